//! Waiting by watching: never a fixed sleep, always a limit, and an error that says what was seen last.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;

/// Waits until `found` sees what it looks for among the objects that `which` selects, by name.
///
/// Every single change is shown to `found`, so that it can also notice what lasts only for a moment.
pub async fn until<K, T>(
    api: Api<K>,
    which: Config,
    what: &str,
    limit: Duration,
    mut found: impl FnMut(&BTreeMap<String, K>) -> Option<T>,
) -> Result<T>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut objects = BTreeMap::new();
    let mut trouble = None;
    let watching = async {
        let mut events = pin!(watcher(api, which).default_backoff());
        let mut complete = false;
        loop {
            match events.next().await {
                None => return None,
                Some(Err(error)) => trouble = Some(error),
                Some(Ok(event)) => complete = take(&mut objects, event, complete),
            }
            if complete && let Some(result) = found(&objects) {
                return Some(result);
            }
        }
    };
    let outcome = tokio::time::timeout(limit, watching).await;
    match outcome {
        Ok(Some(result)) => Ok(result),
        Ok(None) => bail!("the watch for {what} ended"),
        Err(_) => {
            let names: Vec<_> = objects.keys().map(String::as_str).collect();
            let trouble = trouble.map(|error| format!("; the watch said: {error}")).unwrap_or_default();
            bail!("waited {} s in vain for {what}; there: [{}]{trouble}", limit.as_secs(), names.join(", "))
        }
    }
}

/// Brings the objects up to date. Tells whether they are all known.
fn take<K: Resource>(objects: &mut BTreeMap<String, K>, event: Event<K>, complete: bool) -> bool {
    match event {
        Event::Init => {
            objects.clear();
            return false;
        }
        Event::InitApply(object) | Event::Apply(object) => {
            objects.insert(object.name_any(), object);
        }
        Event::Delete(object) => {
            objects.remove(&object.name_any());
        }
        Event::InitDone => return true,
    }
    complete
}

/// Waits until `found` sees what it looks for in one object, which may not exist.
pub async fn until_one<K, T>(
    api: Api<K>,
    name: &str,
    what: &str,
    limit: Duration,
    mut found: impl FnMut(Option<&K>) -> Option<T>,
) -> Result<T>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let which = Config::default().fields(&format!("metadata.name={name}"));
    until(api, which, what, limit, |objects| found(objects.get(name))).await
}
