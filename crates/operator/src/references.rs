//! Secrets and ConfigMaps of users that resources name. They carry no label of ours, so each is watched on its own, by its name,
//! for as long as somebody names it: watching all that there are would cost far more.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ConfigMap;
use karst_core::names::ClusterKey;
use karst_core::own_certificates::LARGEST_ENTRY;
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
/// How many names of entries that nobody named are kept, to be told to whoever named a wrong one.
const OTHERS_TOLD: usize = 20;
/// How much is kept of all Secrets that are named in one namespace. 64 listeners with a certificate each need hardly one megabyte.
const MOST_OF_NAMESPACE: usize = 16 << 20;
/// How much is kept of all of them together.
const MOST_OF_ALL: usize = 96 << 20;
/// How many may be read at once.
const AT_ONCE: usize = 16;

/// Namespace and name.
type Place = (String, String);

/// Names of objects, and which of their entries are wanted.
pub(crate) type Names = BTreeMap<String, BTreeSet<String>>;

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

    /// Reads it: of what takes much room only the entries that are named.
    fn content(self, named: &BTreeSet<String>) -> Self::Content;

    /// How many bytes it takes that nobody else has.
    fn weight(content: &Self::Content) -> usize;
}

impl Named for SecretWire {
    type Content = Arc<Files>;

    /// An entry that is too large is there, and empty.
    fn content(self, named: &BTreeSet<String>) -> Arc<Files> {
        let (named, others): (Vec<_>, Vec<_>) =
            self.into_entries().partition(|(name, _)| named.contains(name));
        let read = |bytes: Vec<u8>| if bytes.len() <= LARGEST_ENTRY { bytes } else { Vec::new() };
        let named = named.into_iter().map(|(name, bytes)| (name, read(bytes)));
        let others = others.into_iter().take(OTHERS_TOLD).map(|(name, _)| (name, Vec::new()));
        Arc::new(Files(named.chain(others).collect()))
    }

    fn weight(content: &Arc<Files>) -> usize {
        content.0.iter().map(|(name, bytes)| name.len() + bytes.len()).sum()
    }
}

impl Named for ConfigMap {
    type Content = Texts;

    fn content(self, _named: &BTreeSet<String>) -> Texts {
        let entries = self.data.unwrap_or_default().into_iter();
        entries.map(|(key, text)| (key, texts::shared(&text))).collect()
    }

    /// A cluster names two of them at most, and equal texts are kept once.
    fn weight(_content: &Texts) -> usize {
        0
    }
}

/// One object that is watched.
#[derive(Debug)]
struct Watch<T> {
    /// Who names it, and which of its entries.
    clusters: HashMap<ClusterKey, BTreeSet<String>>,
    /// What is kept of it for them.
    weight: usize,
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
    fn learn(
        &self,
        place: &Place,
        named: &BTreeSet<String>,
        change: Change<T>,
        weight: impl Fn(&T) -> usize,
    ) -> Vec<Work> {
        let mut all = self.lock();
        let (change, weight) = bounded(&all, place, change, weight);
        let Some(watch) = all.get_mut(place) else { return Vec::new() };
        if !watch.entries().is_subset(named) {
            // Somebody named more while it was read. Another watch has begun, and reads that too.
            return Vec::new();
        }
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
        watch.weight = weight;
        watch.clusters.keys().cloned().map(Work::Cluster).collect()
    }

    /// A cluster names these and no others. Returns those that are to be watched from now on: by themselves, or anew since more of their
    /// entries are named than were kept.
    fn name(&self, key: &ClusterKey, names: &Names) -> Vec<Place> {
        let mut all = self.lock();
        let mut unwatched = Vec::new();
        all.retain(|(namespace, name), watch| {
            match names.get(name).filter(|_| *namespace == key.namespace) {
                Some(entries) => {
                    let is_kept = entries.is_subset(&watch.entries());
                    watch.clusters.insert(key.clone(), entries.clone());
                    if !is_kept {
                        watch.seen = None;
                        unwatched.push((namespace.clone(), name.clone()));
                    }
                }
                None => drop(watch.clusters.remove(key)),
            }
            if watch.clusters.is_empty() {
                watch.task.abort();
            }
            !watch.clusters.is_empty()
        });
        let places = names.keys().map(|name| (key.namespace.clone(), name.clone()));
        unwatched.extend(places.filter(|place| !all.contains_key(place)));
        unwatched
    }

    /// What is named of an object.
    fn entries(&self, place: &Place) -> BTreeSet<String> {
        self.lock().get(place).map(Watch::entries).unwrap_or_default()
    }
}

impl<T> Watch<T> {
    fn entries(&self) -> BTreeSet<String> {
        self.clusters.values().flatten().cloned().collect()
    }
}

/// What was seen, unless there is no room for it; and how much of it that takes.
fn bounded<T>(
    all: &HashMap<Place, Watch<T>>,
    place: &Place,
    change: Change<T>,
    weight: impl Fn(&T) -> usize,
) -> (Change<T>, usize) {
    let Change::Seen(Reference::Found(content)) = &change else { return (change, 0) };
    let weight = weight(content);
    let others = || all.iter().filter(|(other, _)| *other != place);
    let beside: usize = others().filter(|(other, _)| other.0 == place.0).map(|(_, watch)| watch.weight).sum();
    let (found, whose, most) = match beside.saturating_add(weight) > MOST_OF_NAMESPACE {
        true => (beside, "of this namespace", MOST_OF_NAMESPACE),
        false => (others().map(|(_, watch)| watch.weight).sum(), "of all namespaces", MOST_OF_ALL),
    };
    if found.saturating_add(weight) <= most {
        return (change, weight);
    }
    let why = format!(
        "the Secrets that listeners {whose} name have more than {} MiB in the entries that are named, and no more is read",
        most >> 20
    );
    (Change::Seen(Reference::Unreadable(why)), 0)
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
    pub(crate) fn of(&self, key: &ClusterKey, names: &Names) -> BTreeMap<String, Reference<K::Content>> {
        let unwatched = self.state.name(key, names);
        let mut all = self.state.lock();
        for place in unwatched {
            // Under the lock: what a watch sees first must find its place here, and another cluster may have been faster.
            let named = names.get(&place.1).cloned().unwrap_or_default();
            let others = all.remove(&place).map(|watch| {
                watch.task.abort();
                watch.clusters
            });
            let mut clusters = others.unwrap_or_default();
            clusters.insert(key.clone(), named);
            let task = self.watch(place.clone());
            all.insert(place, Watch { clusters, weight: 0, seen: None, task });
        }
        let seen = names.keys().filter_map(|name| {
            let watch = all.get(&(key.namespace.clone(), name.clone()))?;
            Some((name.clone(), watch.seen.clone()?))
        });
        seen.collect()
    }

    /// The cluster is gone.
    pub(crate) fn forget(&self, key: &ClusterKey) {
        self.state.name(key, &Names::new());
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
            let named = state.entries(&place);
            if let Some(change) = change(event, &mut listed, &named) {
                queue.push(state.learn(&place, &named, change, K::weight));
            }
            Next::GoOn
        }));
        task.abort_handle()
    }
}

/// What an event says about the one object of a watch. A list without it says that it does not exist.
fn change<K: Named>(
    event: Event<K>,
    listed: &mut bool,
    named: &BTreeSet<String>,
) -> Option<Change<K::Content>> {
    match event {
        Event::ListBegins(_) => {
            *listed = false;
            None
        }
        Event::Listed(read) => {
            *listed = true;
            Some(Change::Seen(found(read, named)))
        }
        Event::ListEnds => (!*listed).then_some(Change::Seen(Reference::Missing)),
        Event::Applied(read) => Some(Change::Seen(found(read, named))),
        Event::Deleted(_) => Some(Change::Seen(Reference::Missing)),
        Event::ToldUpTo(_) | Event::GoesOn => None,
        Event::Failed(error) => {
            tracing::warn!(%error, kind = %K::kind(&()), "the watch of an object that a resource names failed; reconnecting");
            Some(Change::Failed(error.to_string()))
        }
    }
}

fn found<K: Named>(read: Read<K>, named: &BTreeSet<String>) -> Reference<K::Content> {
    match item::contained(read, |_| None, |object| object.content(named)) {
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

    fn entries(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn watch_of(clusters: &[&str]) -> Watch<Arc<Files>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let task = runtime.spawn(async {}).abort_handle();
        let clusters = clusters.iter().map(|name| (key(name), entries(&["a"]))).collect();
        Watch { clusters, weight: 0, seen: None, task }
    }

    /// A state in which these clusters name the Secret.
    fn named_by(clusters: &[&str]) -> State<Arc<Files>> {
        let state = State::default();
        state.lock().insert(place(), watch_of(clusters));
        state
    }

    fn learn(state: &State<Arc<Files>>, change: Change<Arc<Files>>) -> usize {
        state.learn(&place(), &entries(&["a"]), change, SecretWire::weight).len()
    }

    #[test]
    fn a_list_without_the_secret_says_that_there_is_none() {
        let mut listed = false;
        assert!(change::<SecretWire>(Event::ListBegins(1), &mut listed, &entries(&["a"])).is_none());
        assert!(matches!(
            change::<SecretWire>(Event::ListEnds, &mut listed, &entries(&["a"])),
            Some(Change::Seen(Reference::Missing))
        ));
        change::<SecretWire>(Event::ListBegins(1), &mut listed, &entries(&["a"]));
        assert!(matches!(
            change(Event::Listed(Ok(secret("YQ=="))), &mut listed, &entries(&["a"])),
            Some(Change::Seen(Reference::Found(files))) if files.0["a"] == b"a"
        ));
        assert!(change::<SecretWire>(Event::ListEnds, &mut listed, &entries(&["a"])).is_none());
    }

    #[test]
    fn a_secret_that_is_too_large_is_not_kept() {
        let text = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine"}, "data": {"a": "YQ==".repeat(LARGEST / 4)}});
        let text = serde_json::value::RawValue::from_string(text.to_string()).unwrap();
        let read = crate::watch::item::read::<SecretWire>(&text, LARGEST).unwrap();
        let change = change(Event::Applied(read), &mut false, &entries(&["a"]));
        assert!(matches!(change, Some(Change::Seen(Reference::Unreadable(why))) if why.contains("1024 KiB")));
    }

    impl Named for Fragile {
        type Content = Files;

        fn content(self, _named: &BTreeSet<String>) -> Files {
            self.look();
            Files::default()
        }

        fn weight(_content: &Files) -> usize {
            0
        }
    }

    #[test]
    fn one_whose_content_panics_cannot_be_read_and_harms_no_other() {
        let read =
            |name: &str| change(Event::Applied(Ok(Fragile::new("c", name))), &mut false, &entries(&[]));
        let broken = read("broken");
        assert!(
            matches!(&broken, Some(Change::Seen(Reference::Unreadable(why))) if why.starts_with("an internal error"))
        );
        assert!(matches!(read("fine"), Some(Change::Seen(Reference::Found(_)))));
    }

    #[test]
    fn every_cluster_that_names_a_secret_hears_of_a_change_and_of_no_repetition() {
        let state = named_by(&["a", "b"]);
        let found = || Change::Seen(Reference::Found(secret("YQ==").content(&entries(&["a"]))));
        assert_eq!(learn(&state, found()), 2);
        assert_eq!(learn(&state, found()), 0);
        assert_eq!(learn(&state, Change::Seen(Reference::Missing)), 2);
    }

    #[test]
    fn a_watch_that_fails_takes_nothing_away() {
        let state = named_by(&["a"]);
        assert_eq!(learn(&state, Change::Failed("forbidden".into())), 1);
        learn(&state, Change::Seen(Reference::Missing));
        assert_eq!(learn(&state, Change::Failed("gone for a moment".into())), 0);
    }

    #[test]
    fn a_secret_is_watched_as_long_as_somebody_names_it() {
        let state = named_by(&["a", "b"]);
        let names = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), entries(&["a"]))).collect();
        assert_eq!(
            state.name(&key("a"), &names(&["mine", "other"])),
            [("ns".to_owned(), "other".to_owned())]
        );
        assert_eq!(state.name(&key("a"), &names(&[])), []);
        assert!(state.lock().contains_key(&place()));
        state.name(&key("b"), &names(&[]));
        assert!(state.lock().is_empty());
    }

    #[test]
    fn of_a_secret_only_the_entries_are_kept_that_somebody_names() {
        let bytes = |length: usize| k8s_openapi::ByteString(vec![1; length]);
        let data: BTreeMap<_, _> = [("a", 9), ("b", LARGEST_ENTRY), ("large", LARGEST_ENTRY + 1)]
            .map(|(name, length)| (name.to_owned(), bytes(length)))
            .into();
        let wire = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine"}, "data": data});
        let secret: SecretWire = serde_json::from_value(wire).unwrap();
        let kept = secret.content(&entries(&["a", "large"]));
        let lengths: Vec<_> = kept.0.iter().map(|(name, bytes)| (name.as_str(), bytes.len())).collect();
        assert_eq!(
            lengths,
            [("a", 9), ("b", 0), ("large", 0)],
            "the names are told to whoever named a wrong one"
        );
        // Both clusters look at the same bytes.
        let state = named_by(&["a", "b"]);
        learn(&state, Change::Seen(Reference::Found(Arc::clone(&kept))));
        let all = state.lock();
        assert!(matches!(&all[&place()].seen, Some(Reference::Found(seen)) if Arc::ptr_eq(seen, &kept)));
    }

    #[test]
    fn a_secret_is_read_again_when_somebody_names_another_entry() {
        let state = named_by(&["a", "b"]);
        let found = || Change::Seen(Reference::Found(secret("YQ==").content(&entries(&["a"]))));
        learn(&state, found());
        let names = |names: &[&str]| Names::from([("mine".to_owned(), entries(names))]);
        assert_eq!(state.name(&key("b"), &names(&["a"])), []);
        assert_eq!(state.name(&key("b"), &names(&["a", "other"])), [place()]);
        assert!(state.lock()[&place()].seen.is_none(), "what was kept lacks it");
        assert_eq!(learn(&state, found()), 0, "and so does what the watch before read");
        assert!(state.lock()[&place()].seen.is_none());
    }

    #[test]
    fn the_secrets_of_a_namespace_have_a_bound_and_those_of_others_their_own() {
        let state = named_by(&["a"]);
        let content = |length: usize| Arc::new(Files([("a".to_owned(), vec![0; length])].into()));
        let at = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
        let learn = |place: &Place, length: usize| {
            state.lock().entry(place.clone()).or_insert_with(|| watch_of(&["a"]));
            let found = Change::Seen(Reference::Found(content(length)));
            state.learn(place, &entries(&["a"]), found, SecretWire::weight);
            match state.lock()[place].seen.clone() {
                Some(Reference::Unreadable(why)) => Some(why),
                _ => None,
            }
        };
        assert_eq!(learn(&place(), MOST_OF_NAMESPACE - 10), None);
        let why = learn(&at("ns", "second"), 100).unwrap();
        assert!(why.contains("of this namespace name have more than 16 MiB"), "{why}");
        assert_eq!(learn(&place(), 50), None, "it takes the place of what it was");
        assert_eq!(learn(&at("ns", "second"), 100), None);
        let each = MOST_OF_NAMESPACE - 10;
        let full: Vec<_> = (0..6).map(|n| learn(&at(&format!("other-{n}"), "x"), each)).collect();
        assert_eq!(full[..5], [const { None }; 5]);
        assert!(full[5].as_ref().unwrap().contains("of all namespaces name have more than 96 MiB"));
    }
}
