//! Secrets and ConfigMaps of users that resources name. They carry no label of ours, so each is watched on its own, by its name,
//! for as long as somebody names it: watching all that there are would cost far more.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use karst_core::names::ClusterKey;
use karst_core::world::{Files, Reference, Texts};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::AbortHandle;

use crate::heartbeats::Heartbeats;
use crate::queue::{Queue, Work};
use crate::texts;
use crate::views::SecretWire;
use crate::watch::{Event, ListWatch, Next, Read, Turns, item};

/// Larger objects are not read: all of each is kept. etcd takes hardly more.
const LARGEST: usize = 1 << 20;
/// How long a watch lasts before it is begun anew. There may be thousands of them.
pub(crate) const LASTS: Duration = Duration::from_secs(290);
/// How many may be read at once.
const AT_ONCE: usize = 16;

/// Namespace and name.
type Place = (String, String);

/// What can be named.
pub(crate) trait Named:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + std::fmt::Debug
    + DeserializeOwned
    + Send
    + 'static
{
    /// What is read of it.
    type Content: Clone + std::fmt::Debug + PartialEq + Send + 'static;

    /// Reads it.
    fn content(self) -> Self::Content;
}

impl Named for SecretWire {
    type Content = Files;

    fn content(self) -> Files {
        self.into_files()
    }
}

impl Named for ConfigMap {
    type Content = Texts;

    fn content(self) -> Texts {
        let entries = self.data.unwrap_or_default().into_iter();
        entries.map(|(key, text)| (key, texts::shared(&text))).collect()
    }
}

/// One object that is watched.
#[derive(Debug)]
struct Watch<T> {
    /// Who names it.
    clusters: HashSet<ClusterKey>,
    /// What was seen. Nothing, before the first answer.
    seen: Option<Reference<T>>,
    task: AbortHandle,
}

#[derive(Debug)]
struct State<T>(Mutex<HashMap<Place, Watch<T>>>);

impl<T> Default for State<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: PartialEq> State<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Watch<T>>> {
        // A panic elsewhere leaves the map itself whole: every change is a single insertion or removal.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what was seen. Returns the work this causes.
    fn learn(&self, place: &Place, change: Change<T>) -> Vec<Work> {
        let mut all = self.lock();
        let Some(watch) = all.get_mut(place) else { return Vec::new() };
        let new = match change {
            Change::Seen(new) => new,
            // What was known is better than nothing.
            Change::Failed(_) if watch.seen.is_some() => return Vec::new(),
            Change::Failed(why) => Reference::Unreadable(why),
        };
        if watch.seen.as_ref() == Some(&new) {
            return Vec::new();
        }
        watch.seen = Some(new);
        watch.clusters.iter().cloned().map(Work::Cluster).collect()
    }

    /// A cluster names these and no others. Returns those that nobody watches yet.
    fn name(&self, key: &ClusterKey, names: &BTreeSet<String>) -> Vec<Place> {
        let mut all = self.lock();
        all.retain(|(namespace, name), watch| {
            let is_named = *namespace == key.namespace && names.contains(name);
            if is_named {
                watch.clusters.insert(key.clone());
            } else {
                watch.clusters.remove(key);
            }
            if watch.clusters.is_empty() {
                watch.task.abort();
            }
            !watch.clusters.is_empty()
        });
        let places = names.iter().map(|name| (key.namespace.clone(), name.clone()));
        places.filter(|place| !all.contains_key(place)).collect()
    }
}

/// What a watch tells.
enum Change<T> {
    Seen(Reference<T>),
    Failed(String),
}

/// The objects of one kind that resources name.
pub(crate) struct References<K: Named> {
    client: Client,
    queue: Arc<Queue>,
    state: Arc<State<K::Content>>,
    turns: Turns,
    heartbeats: Arc<Heartbeats>,
}

impl<K: Named> std::fmt::Debug for References<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("References").finish_non_exhaustive()
    }
}

impl<K: Named> References<K> {
    pub(crate) fn new(client: Client, queue: Arc<Queue>, heartbeats: Arc<Heartbeats>) -> Self {
        Self { client, queue, state: Arc::default(), turns: Turns::of(AT_ONCE), heartbeats }
    }

    /// What is known of those that a cluster names. Those that were not watched before are from now on, and cause a
    /// pass when they are read.
    pub(crate) fn of(
        &self,
        key: &ClusterKey,
        names: &BTreeSet<String>,
    ) -> BTreeMap<String, Reference<K::Content>> {
        let unwatched = self.state.name(key, names);
        let mut all = self.state.lock();
        for place in unwatched {
            // Under the lock: what a watch sees first must find its place here, and another cluster may have been faster.
            let watch = all.entry(place.clone()).or_insert_with(|| Watch {
                clusters: HashSet::new(),
                seen: None,
                task: self.watch(place),
            });
            watch.clusters.insert(key.clone());
        }
        let seen = names.iter().filter_map(|name| {
            let watch = all.get(&(key.namespace.clone(), name.clone()))?;
            Some((name.clone(), watch.seen.clone()?))
        });
        seen.collect()
    }

    /// The cluster is gone.
    pub(crate) fn forget(&self, key: &ClusterKey) {
        self.state.name(key, &BTreeSet::new());
    }

    fn watch(&self, place: Place) -> AbortHandle {
        let source = ListWatch::<K> {
            client: self.client.clone(),
            namespace: Some(place.0.clone()),
            labels: None,
            fields: Some(format!("metadata.name={}", place.1)),
            largest: LARGEST,
            lasts: LASTS,
            turns: self.turns.clone(),
            kind: PhantomData,
        };
        let (state, queue) = (Arc::clone(&self.state), Arc::clone(&self.queue));
        let mut listed = false;
        let pulse = self.heartbeats.of_watch(
            &format!("{} {}", K::kind(&()), place.1),
            Some(&place.0),
            source.longest_silence(),
        );
        let task = tokio::spawn(source.follow(move |event| {
            pulse.beat();
            if let Some(change) = change(event, &mut listed) {
                queue.push(state.learn(&place, change));
            }
            Next::GoOn
        }));
        task.abort_handle()
    }
}

/// What an event says about the one object of a watch. A list without it says that it does not exist.
fn change<K: Named>(event: Event<K>, listed: &mut bool) -> Option<Change<K::Content>> {
    match event {
        Event::ListBegins(_) => {
            *listed = false;
            None
        }
        Event::Listed(read) => {
            *listed = true;
            Some(Change::Seen(found(read)))
        }
        Event::ListEnds => (!*listed).then_some(Change::Seen(Reference::Missing)),
        Event::Applied(read) => Some(Change::Seen(found(read))),
        Event::Deleted(_) => Some(Change::Seen(Reference::Missing)),
        Event::ToldUpTo(_) | Event::GoesOn => None,
        Event::Failed(error) => {
            tracing::warn!(%error, kind = %K::kind(&()), "the watch of an object that a resource names failed; reconnecting");
            Some(Change::Failed(error.to_string()))
        }
    }
}

fn found<K: Named>(read: Read<K>) -> Reference<K::Content> {
    match item::contained(read, |_| None, K::content) {
        Ok(content) => Reference::Found(content),
        Err(unreadable) => Reference::Unreadable(unreadable.why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::item::fragile::Fragile;
    use serde_json::json;

    fn secret(value: &str) -> SecretWire {
        let wire =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine"}, "data": {"a": value}});
        serde_json::from_value(wire).unwrap()
    }

    fn key(name: &str) -> ClusterKey {
        ClusterKey { namespace: "ns".into(), name: name.into() }
    }

    fn place() -> Place {
        ("ns".into(), "mine".into())
    }

    /// A state in which these clusters name the Secret.
    fn named_by(clusters: &[&str]) -> State<Files> {
        let state = State::default();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let task = runtime.spawn(async {}).abort_handle();
        let clusters = clusters.iter().map(|name| key(name)).collect();
        state.lock().insert(place(), Watch { clusters, seen: None, task });
        state
    }

    #[test]
    fn a_list_without_the_secret_says_that_there_is_none() {
        let mut listed = false;
        assert!(change::<SecretWire>(Event::ListBegins(1), &mut listed).is_none());
        assert!(matches!(
            change::<SecretWire>(Event::ListEnds, &mut listed),
            Some(Change::Seen(Reference::Missing))
        ));
        change::<SecretWire>(Event::ListBegins(1), &mut listed);
        assert!(matches!(
            change(Event::Listed(Ok(secret("YQ=="))), &mut listed),
            Some(Change::Seen(Reference::Found(files))) if files.0["a"] == b"a"
        ));
        assert!(change::<SecretWire>(Event::ListEnds, &mut listed).is_none());
    }

    #[test]
    fn a_secret_that_is_too_large_is_not_kept() {
        let text = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine"}, "data": {"a": "YQ==".repeat(LARGEST / 4)}});
        let text = serde_json::value::RawValue::from_string(text.to_string()).unwrap();
        let read = crate::watch::item::read::<SecretWire>(&text, LARGEST).unwrap();
        let change = change(Event::Applied(read), &mut false);
        assert!(matches!(change, Some(Change::Seen(Reference::Unreadable(why))) if why.contains("1024 KiB")));
    }

    impl Named for Fragile {
        type Content = Files;

        fn content(self) -> Files {
            self.look();
            Files::default()
        }
    }

    #[test]
    fn one_whose_content_panics_cannot_be_read_and_harms_no_other() {
        let read = |name: &str| change(Event::Applied(Ok(Fragile::new("c", name))), &mut false);
        let broken = read("broken");
        assert!(
            matches!(&broken, Some(Change::Seen(Reference::Unreadable(why))) if why.starts_with("an internal error"))
        );
        assert!(matches!(read("fine"), Some(Change::Seen(Reference::Found(_)))));
    }

    #[test]
    fn every_cluster_that_names_a_secret_hears_of_a_change_and_of_no_repetition() {
        let state = named_by(&["a", "b"]);
        let found = || Change::Seen(Reference::Found(secret("YQ==").into_files()));
        assert_eq!(state.learn(&place(), found()).len(), 2);
        assert_eq!(state.learn(&place(), found()).len(), 0);
        assert_eq!(state.learn(&place(), Change::Seen(Reference::Missing)).len(), 2);
    }

    #[test]
    fn a_watch_that_fails_takes_nothing_away() {
        let state = named_by(&["a"]);
        assert_eq!(state.learn(&place(), Change::Failed("forbidden".into())).len(), 1);
        state.learn(&place(), Change::Seen(Reference::Missing));
        assert_eq!(state.learn(&place(), Change::Failed("gone for a moment".into())).len(), 0);
    }

    #[test]
    fn a_secret_is_watched_as_long_as_somebody_names_it() {
        let state = named_by(&["a", "b"]);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(
            state.name(&key("a"), &names(&["mine", "other"])),
            [("ns".to_owned(), "other".to_owned())]
        );
        assert_eq!(state.name(&key("a"), &names(&[])), []);
        assert!(state.lock().contains_key(&place()));
        state.name(&key("b"), &names(&[]));
        assert!(state.lock().is_empty());
    }
}
