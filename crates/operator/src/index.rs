//! What the watches have seen, by cluster: a plain, synchronous index.
//!
//! Every change names the work it causes. The index decides nothing, and forgets nothing but what the API server
//! said is gone.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use karst_api::{Kafka, KafkaNodePool, StrimziPodSet};
use karst_core::certificates;
use karst_core::names::{CLUSTER_LABEL, ClusterKey, POOL_LABEL};
use karst_core::world::{
    ClaimView, ConfigMapView, PlainView, PodSetView, PodView, SecretView, ServiceAccountView, ServiceView,
};
use kube::runtime::watcher::Event;

use crate::queue::Work;
use crate::views::{
    AccountWire, BudgetWire, ClaimWire, ConfigMapWire, PodWire, PolicyWire, SecretWire, ServiceWire, Watched,
};

/// Views of one kind, by name, each with the version it was read at.
pub(crate) type Slot<V> = BTreeMap<String, Seen<V>>;

#[derive(Debug)]
pub(crate) struct Seen<V> {
    uid: String,
    version: Option<u64>,
    view: Arc<V>,
}

/// Everything seen of one cluster.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    kafkas: Slot<Kafka>,
    pools: Slot<KafkaNodePool>,
    pod_sets: Slot<PodSetView>,
    pods: Slot<PodView>,
    config_maps: Slot<ConfigMapView>,
    services: Slot<ServiceView>,
    accounts: Slot<ServiceAccountView>,
    budgets: Slot<PlainView>,
    policies: Slot<PlainView>,
    claims: Slot<ClaimView>,
    secrets: Slot<SecretView>,
}

/// A copy of what is known of one cluster: cheap, because views are shared.
#[derive(Debug, Default, Clone)]
pub(crate) struct Snapshot {
    pub(crate) kafka: Option<Arc<Kafka>>,
    pub(crate) pools: BTreeMap<String, Arc<KafkaNodePool>>,
    pub(crate) pod_sets: BTreeMap<String, Arc<PodSetView>>,
    pub(crate) pods: BTreeMap<String, Arc<PodView>>,
    pub(crate) config_maps: BTreeMap<String, Arc<ConfigMapView>>,
    pub(crate) services: BTreeMap<String, Arc<ServiceView>>,
    pub(crate) accounts: BTreeMap<String, Arc<ServiceAccountView>>,
    pub(crate) budgets: BTreeMap<String, Arc<PlainView>>,
    pub(crate) policies: BTreeMap<String, Arc<PlainView>>,
    pub(crate) claims: BTreeMap<String, Arc<ClaimView>>,
    pub(crate) secrets: BTreeMap<String, Arc<SecretView>>,
}

/// A pod set, and what its pods depend on.
#[derive(Debug)]
pub(crate) struct PodSetSnapshot {
    pub(crate) set: Arc<PodSetView>,
    /// The pods of its cluster.
    pub(crate) pods: Vec<Arc<PodView>>,
    /// The claims of its cluster that are being deleted.
    pub(crate) going: BTreeSet<String>,
}

impl Objects {
    fn snapshot(&self) -> Snapshot {
        fn copy<V>(slot: &Slot<V>) -> BTreeMap<String, Arc<V>> {
            slot.iter().map(|(name, seen)| (name.clone(), Arc::clone(&seen.view))).collect()
        }
        Snapshot {
            kafka: self.kafkas.values().next().map(|seen| Arc::clone(&seen.view)),
            pools: copy(&self.pools),
            pod_sets: copy(&self.pod_sets),
            pods: copy(&self.pods),
            config_maps: copy(&self.config_maps),
            services: copy(&self.services),
            accounts: copy(&self.accounts),
            budgets: copy(&self.budgets),
            policies: copy(&self.policies),
            claims: copy(&self.claims),
            secrets: copy(&self.secrets),
        }
    }

    fn is_empty(&self) -> bool {
        self.kafkas.is_empty()
            && self.pools.is_empty()
            && self.pod_sets.is_empty()
            && self.pods.is_empty()
            && self.config_maps.is_empty()
            && self.services.is_empty()
            && self.accounts.is_empty()
            && self.budgets.is_empty()
            && self.policies.is_empty()
            && self.claims.is_empty()
            && self.secrets.is_empty()
    }
}

/// A kind that the index has a place for.
pub(crate) trait Indexed: Watched {
    /// The place.
    fn slot(objects: &mut Objects) -> &mut Slot<Self::View>;

    /// The cluster it belongs to.
    fn cluster(meta: &ObjectMeta) -> Option<&str> {
        meta.labels.as_ref()?.get(CLUSTER_LABEL).map(String::as_str)
    }

    /// What a change of it causes to be done, besides a pass of its cluster.
    fn also(_cluster: &ClusterKey, _meta: &ObjectMeta) -> Option<Work> {
        None
    }
}

impl Indexed for Kafka {
    fn slot(objects: &mut Objects) -> &mut Slot<Kafka> {
        &mut objects.kafkas
    }

    fn cluster(meta: &ObjectMeta) -> Option<&str> {
        meta.name.as_deref()
    }
}

impl Indexed for KafkaNodePool {
    fn slot(objects: &mut Objects) -> &mut Slot<KafkaNodePool> {
        &mut objects.pools
    }
}

impl Indexed for StrimziPodSet {
    fn slot(objects: &mut Objects) -> &mut Slot<PodSetView> {
        &mut objects.pod_sets
    }

    fn also(cluster: &ClusterKey, meta: &ObjectMeta) -> Option<Work> {
        Some(Work::PodSet { cluster: cluster.clone(), name: meta.name.clone()? })
    }
}

impl Indexed for PodWire {
    fn slot(objects: &mut Objects) -> &mut Slot<PodView> {
        &mut objects.pods
    }

    fn also(cluster: &ClusterKey, meta: &ObjectMeta) -> Option<Work> {
        let name = meta.labels.as_ref()?.get("strimzi.io/controller-name")?.clone();
        Some(Work::PodSet { cluster: cluster.clone(), name })
    }
}

impl Indexed for ConfigMapWire {
    fn slot(objects: &mut Objects) -> &mut Slot<ConfigMapView> {
        &mut objects.config_maps
    }
}

impl Indexed for ServiceWire {
    fn slot(objects: &mut Objects) -> &mut Slot<ServiceView> {
        &mut objects.services
    }
}

impl Indexed for AccountWire {
    fn slot(objects: &mut Objects) -> &mut Slot<ServiceAccountView> {
        &mut objects.accounts
    }
}

impl Indexed for BudgetWire {
    fn slot(objects: &mut Objects) -> &mut Slot<PlainView> {
        &mut objects.budgets
    }
}

impl Indexed for PolicyWire {
    fn slot(objects: &mut Objects) -> &mut Slot<PlainView> {
        &mut objects.policies
    }
}

impl Indexed for ClaimWire {
    fn slot(objects: &mut Objects) -> &mut Slot<ClaimView> {
        &mut objects.claims
    }

    /// A pod waits until a disk that is being deleted is gone.
    fn also(cluster: &ClusterKey, meta: &ObjectMeta) -> Option<Work> {
        let pool = meta.labels.as_ref()?.get(POOL_LABEL)?;
        Some(Work::PodSet { cluster: cluster.clone(), name: cluster.pod_set(pool) })
    }
}

impl Indexed for SecretWire {
    fn slot(objects: &mut Objects) -> &mut Slot<SecretView> {
        &mut objects.secrets
    }
}

/// The index, shared by watches and passes.
#[derive(Debug, Default)]
pub(crate) struct Index {
    clusters: Mutex<HashMap<ClusterKey, Objects>>,
}

impl Index {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterKey, Objects>> {
        // A panic elsewhere leaves the map itself whole: every change is a single insertion or removal.
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a cluster.
    pub(crate) fn snapshot(&self, key: &ClusterKey) -> Snapshot {
        self.lock().get(key).map(Objects::snapshot).unwrap_or_default()
    }

    /// The newest version that is known of an object; none, when it is gone or another one took its place.
    pub(crate) fn version<K: Indexed>(&self, key: &ClusterKey, name: &str, uid: &str) -> Option<String> {
        let mut clusters = self.lock();
        let known = K::slot(clusters.get_mut(key)?).get(name).filter(|known| known.uid == uid)?;
        known.version.map(|version| version.to_string())
    }

    /// What there is of a pod set.
    pub(crate) fn pod_set(&self, key: &ClusterKey, name: &str) -> Option<PodSetSnapshot> {
        let clusters = self.lock();
        let objects = clusters.get(key)?;
        let set = Arc::clone(&objects.pod_sets.get(name)?.view);
        let pods = objects.pods.values().map(|seen| Arc::clone(&seen.view)).collect();
        let going = objects.claims.iter().filter(|(_, seen)| seen.view.meta.deleting);
        Some(PodSetSnapshot { set, pods, going: going.map(|(name, _)| name.clone()).collect() })
    }

    /// Which of these pod sets belong to other clusters of the namespace.
    pub(crate) fn taken(&self, key: &ClusterKey, pod_sets: &[String]) -> BTreeMap<String, ClusterKey> {
        if pod_sets.is_empty() {
            return BTreeMap::new();
        }
        let clusters = self.lock();
        let others = clusters.iter().filter(|(other, _)| other.namespace == key.namespace && *other != key);
        others
            .flat_map(|(other, objects)| {
                let has = pod_sets.iter().filter(|name| objects.pod_sets.contains_key(*name));
                has.map(move |name| (name.clone(), other.clone()))
            })
            .collect()
    }

    /// All clusters that a `Kafka` resource asks for, and how many pools each has.
    pub(crate) fn kafkas(&self) -> Vec<(ClusterKey, Arc<Kafka>, usize)> {
        let clusters = self.lock();
        let with_kafka = clusters.iter().filter_map(|(key, objects)| {
            let kafka = objects.kafkas.values().next()?;
            Some((key.clone(), Arc::clone(&kafka.view), objects.pools.len()))
        });
        with_kafka.collect()
    }

    /// When the certificates of each cluster end: those of nodes together, by the first of them.
    pub(crate) fn certificate_ends(&self) -> Vec<(ClusterKey, BTreeMap<String, Timestamp>)> {
        let clusters = self.lock();
        let with_kafka = clusters.iter().filter(|(_, objects)| !objects.kafkas.is_empty());
        let ends = |key: &ClusterKey, objects: &Objects| {
            certificates::ends(key, objects.secrets.values().map(|seen| &*seen.view))
        };
        with_kafka.map(|(key, objects)| (key.clone(), ends(key, objects))).collect()
    }

    /// Takes in an object, unless what is known is newer. Returns the work this causes.
    pub(crate) fn insert<K: Indexed>(&self, object: K) -> Vec<Work> {
        let meta = object.meta();
        let Some(cluster) = key_of::<K>(meta) else { return Vec::new() };
        let (name, uid) = (meta.name.clone().unwrap_or_default(), meta.uid.clone().unwrap_or_default());
        let version = meta.resource_version.as_deref().and_then(|version| version.parse().ok());
        let work = work::<K>(&cluster, meta);
        let mut clusters = self.lock();
        let slot = K::slot(clusters.entry(cluster).or_default());
        if slot
            .get(&name)
            .is_some_and(|known| known.uid == uid && known.version >= version && version.is_some())
        {
            return Vec::new();
        }
        slot.insert(name, Seen { uid, version, view: Arc::new(object.view()) });
        work
    }

    /// A pod was deleted just now: nobody may take it for one that serves until the watch says so too.
    pub(crate) fn mark_deleting(&self, key: &ClusterKey, pod: &str, uid: &str) {
        let mut clusters = self.lock();
        let seen = clusters.get_mut(key).and_then(|objects| objects.pods.get_mut(pod));
        if let Some(seen) = seen.filter(|seen| seen.uid == uid) {
            Arc::make_mut(&mut seen.view).meta.deleting = true;
        }
    }

    /// Forgets an object that is gone, unless another of the same name took its place.
    pub(crate) fn remove<K: Indexed>(&self, object: &K) -> Vec<Work> {
        let meta = object.meta();
        let Some(cluster) = key_of::<K>(meta) else { return Vec::new() };
        self.forget::<K>(&cluster, meta.name.as_deref().unwrap_or_default(), meta.uid.as_deref());
        work::<K>(&cluster, meta)
    }

    fn forget<K: Indexed>(&self, cluster: &ClusterKey, name: &str, uid: Option<&str>) {
        let mut clusters = self.lock();
        let Some(objects) = clusters.get_mut(cluster) else { return };
        let slot = K::slot(objects);
        if slot.get(name).is_some_and(|known| uid.is_none_or(|uid| known.uid == uid)) {
            slot.remove(name);
        }
        if objects.is_empty() {
            clusters.remove(cluster);
        }
    }
}

fn key_of<K: Indexed>(meta: &ObjectMeta) -> Option<ClusterKey> {
    Some(ClusterKey { namespace: meta.namespace.clone()?, name: K::cluster(meta)?.to_owned() })
}

fn work<K: Indexed>(cluster: &ClusterKey, meta: &ObjectMeta) -> Vec<Work> {
    std::iter::once(Work::Cluster(cluster.clone())).chain(K::also(cluster, meta)).collect()
}

/// Turns the events of one watch into changes of the index.
///
/// It remembers in which cluster each object was, because an object can be relabelled, and a list that starts
/// anew does not say what is missing from it.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    homes: HashMap<(String, String), ClusterKey>,
    listed: Option<HashSet<(String, String)>>,
}

impl Feed {
    /// Takes in one event. Returns the work it causes, and whether the watch has now seen everything.
    pub(crate) fn take<K: Indexed>(&mut self, index: &Index, event: Event<K>) -> (Vec<Work>, bool) {
        match event {
            Event::Init => {
                self.listed = Some(HashSet::new());
                (Vec::new(), false)
            }
            Event::InitApply(object) => {
                let at = place(object.meta());
                self.listed.get_or_insert_default().insert(at);
                (self.apply(index, object), false)
            }
            Event::InitDone => (self.drop_unlisted::<K>(index), true),
            Event::Apply(object) => (self.apply(index, object), false),
            Event::Delete(object) => {
                self.homes.remove(&place(object.meta()));
                (index.remove(&object), false)
            }
        }
    }

    fn apply<K: Indexed>(&mut self, index: &Index, object: K) -> Vec<Work> {
        let at = place(object.meta());
        let (name, home) = (at.1.clone(), key_of::<K>(object.meta()));
        let before = match home {
            Some(home) => self.homes.insert(at, home.clone()).filter(|before| *before != home),
            None => self.homes.remove(&at),
        };
        let mut work = index.insert(object);
        if let Some(before) = before {
            index.forget::<K>(&before, &name, None);
            work.push(Work::Cluster(before));
        }
        work
    }

    fn drop_unlisted<K: Indexed>(&mut self, index: &Index) -> Vec<Work> {
        let listed = self.listed.take().unwrap_or_default();
        let gone: Vec<_> = self.homes.keys().filter(|at| !listed.contains(*at)).cloned().collect();
        let mut work = Vec::new();
        for at in gone {
            if let Some(home) = self.homes.remove(&at) {
                index.forget::<K>(&home, &at.1, None);
                work.push(Work::Cluster(home));
            }
        }
        work
    }
}

fn place(meta: &ObjectMeta) -> (String, String) {
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pool(cluster: &str, name: &str, uid: &str, version: u64) -> KafkaNodePool {
        serde_json::from_value(json!({
            "apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaNodePool",
            "metadata": {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": version.to_string(),
                         "labels": {CLUSTER_LABEL: cluster}},
            "spec": {"replicas": 1, "roles": ["broker"], "storage": {"type": "ephemeral"}}
        }))
        .unwrap()
    }

    fn key(name: &str) -> ClusterKey {
        ClusterKey { namespace: "ns".into(), name: name.into() }
    }

    fn pools(index: &Index, cluster: &str) -> Vec<String> {
        index.snapshot(&key(cluster)).pools.keys().cloned().collect()
    }

    #[test]
    fn an_older_version_does_not_replace_a_newer_one() {
        let index = Index::default();
        assert_eq!(index.insert(pool("a", "p", "1", 7)), [Work::Cluster(key("a"))]);
        assert_eq!(index.insert(pool("a", "p", "1", 6)), []);
        assert_eq!(index.insert(pool("a", "p", "2", 6)), [Work::Cluster(key("a"))], "another incarnation");
    }

    #[test]
    fn the_end_of_an_older_incarnation_does_not_remove_a_newer_one() {
        let index = Index::default();
        index.insert(pool("a", "p", "2", 9));
        index.remove(&pool("a", "p", "1", 8));
        assert_eq!(pools(&index, "a"), ["p"]);
        index.remove(&pool("a", "p", "2", 10));
        assert!(index.lock().is_empty());
    }

    #[test]
    fn what_is_said_of_an_object_is_never_said_of_the_next_one_of_its_name() {
        let index = Index::default();
        let version = |uid| index.version::<KafkaNodePool>(&key("a"), "p", uid);
        index.insert(pool("a", "p", "1", 7));
        index.insert(pool("a", "p", "1", 8));
        assert_eq!((version("1").as_deref(), version("2")), (Some("8"), None));
        index.insert(pool("a", "p", "2", 9));
        assert_eq!((version("1"), version("2").as_deref()), (None, Some("9")));
        index.remove(&pool("a", "p", "2", 10));
        assert_eq!(version("2"), None);
    }

    #[test]
    fn a_relabelled_object_leaves_its_old_cluster() {
        let index = Index::default();
        let mut feed = Feed::default();
        feed.take(&index, Event::Apply(pool("a", "p", "1", 1)));
        let (work, _) = feed.take(&index, Event::Apply(pool("b", "p", "1", 2)));
        assert_eq!(work, [Work::Cluster(key("b")), Work::Cluster(key("a"))]);
        assert!(pools(&index, "a").is_empty());
        assert_eq!(pools(&index, "b"), ["p"]);
    }

    #[test]
    fn what_a_new_list_does_not_show_is_gone() {
        let index = Index::default();
        let mut feed = Feed::default();
        feed.take(&index, Event::Apply(pool("a", "kept", "1", 1)));
        feed.take(&index, Event::Apply(pool("a", "gone", "2", 2)));
        feed.take::<KafkaNodePool>(&index, Event::Init);
        feed.take(&index, Event::InitApply(pool("a", "kept", "1", 1)));
        let (work, synced) = feed.take::<KafkaNodePool>(&index, Event::InitDone);
        assert!(synced);
        assert_eq!(work, [Work::Cluster(key("a"))]);
        assert_eq!(pools(&index, "a"), ["kept"]);
    }
}
