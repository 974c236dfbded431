//! ConfigMaps of users that resources refer to. They carry no label of ours, so each is watched on its own, by name, for as
//! long as some cluster refers to it: watching all ConfigMaps there are would cost far more.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use karst_core::names::ClusterKey;
use karst_core::world::Reference;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use kube::{Api, Client};
use tokio::task::AbortHandle;

use crate::queue::{Queue, Work};
use crate::texts;

/// Namespace and name.
type Place = (String, String);

/// The ConfigMaps that are referred to.
#[derive(Clone)]
pub(crate) struct References {
    client: Client,
    queue: Arc<Queue>,
    watched: Arc<Mutex<HashMap<Place, Watched>>>,
}

struct Watched {
    /// `None` until it was looked for.
    seen: Option<Reference>,
    /// Who refers to it.
    clusters: HashSet<ClusterKey>,
    task: AbortHandle,
}

impl std::fmt::Debug for References {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("References").finish_non_exhaustive()
    }
}

impl References {
    pub(crate) fn new(client: Client, queue: Arc<Queue>) -> Self {
        Self { client, queue, watched: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Watched>> {
        // A panic elsewhere leaves the map itself whole.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a cluster refers to, as it is now. `None` when one of them was not looked for yet: a pass of the cluster is
    /// asked for as soon as it was.
    pub(crate) fn of(
        &self,
        cluster: &ClusterKey,
        names: &BTreeSet<String>,
    ) -> Option<BTreeMap<String, Reference>> {
        let mut watched = self.lock();
        release(&mut watched, cluster, names);
        for name in names {
            let place = (cluster.namespace.clone(), name.clone());
            let entry = watched.entry(place.clone()).or_insert_with(|| self.watch(place));
            entry.clusters.insert(cluster.clone());
        }
        let seen = |name: &String| {
            let entry = watched.get(&(cluster.namespace.clone(), name.clone()))?;
            Some((name.clone(), entry.seen.clone()?))
        };
        names.iter().map(seen).collect()
    }

    /// A cluster is gone.
    pub(crate) fn forget(&self, cluster: &ClusterKey) {
        release(&mut self.lock(), cluster, &BTreeSet::new());
    }

    fn watch(&self, place: Place) -> Watched {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &place.0);
        let mut events = Box::pin(watch_object(api, &place.1).default_backoff());
        let own = self.clone();
        let task = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Ok(found) => own.saw(&place, found.map_or(Reference::Missing, content)),
                    Err(error) => own.failed(&place, &error.to_string()),
                }
            }
        });
        Watched { seen: None, clusters: HashSet::new(), task: task.abort_handle() }
    }

    fn saw(&self, place: &Place, reference: Reference) {
        let mut watched = self.lock();
        let Some(entry) = watched.get_mut(place) else { return };
        if entry.seen.as_ref() != Some(&reference) {
            entry.seen = Some(reference);
            self.queue.push(entry.clusters.iter().cloned().map(Work::Cluster));
        }
    }

    /// What was seen before is still the best there is.
    fn failed(&self, place: &Place, why: &str) {
        tracing::warn!(namespace = place.0, name = place.1, error = why, "a ConfigMap cannot be watched");
        let is_new = self.lock().get(place).is_some_and(|entry| entry.seen.is_none());
        if is_new {
            self.saw(place, Reference::Unreadable(why.to_owned()));
        }
    }
}

/// A cluster refers to these and no others. What nobody refers to is not watched any more.
fn release(watched: &mut HashMap<Place, Watched>, cluster: &ClusterKey, names: &BTreeSet<String>) {
    watched.retain(|(namespace, name), entry| {
        if *namespace == cluster.namespace && !names.contains(name) {
            entry.clusters.remove(cluster);
        }
        if entry.clusters.is_empty() {
            entry.task.abort();
        }
        !entry.clusters.is_empty()
    });
}

fn content(map: ConfigMap) -> Reference {
    let entries = map.data.unwrap_or_default().into_iter();
    Reference::Found(entries.map(|(key, text)| (key, texts::shared(&text))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ClusterKey {
        ClusterKey { namespace: "ns".into(), name: name.into() }
    }

    fn watched(clusters: &[&str]) -> Watched {
        let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
        Watched { seen: None, clusters: clusters.iter().map(|name| key(name)).collect(), task }
    }

    #[tokio::test]
    async fn what_nobody_refers_to_any_more_is_not_watched_any_more() {
        let place = |name: &str| ("ns".to_owned(), name.to_owned());
        let mut all = HashMap::from([
            (place("both"), watched(&["a", "b"])),
            (place("mine"), watched(&["a"])),
            (place("kept"), watched(&["a"])),
        ]);
        let task = all[&place("mine")].task.clone();
        release(&mut all, &key("a"), &["kept".to_owned()].into());
        let mut left: Vec<_> = all.keys().map(|(_, name)| name.as_str()).collect();
        left.sort_unstable();
        assert_eq!(left, ["both", "kept"]);
        assert_eq!(all[&place("both")].clusters, HashSet::from([key("b")]));
        tokio::task::yield_now().await;
        assert!(task.is_finished());
    }
}
