//! What is known of each cluster: a plain, synchronous index, filled by watches and by what the API server answers.
//!
//! Every change names the work it causes. The index decides nothing. One rule says what it shows of a kind:
//!
//! 1. A watch has *told* everything up to some version. What it told is so: after a list the index shows what was listed, after a
//!    deletion the object is gone.
//! 2. An answer (of a write, a get or a list of our own) is taken only if it is newer than all that was told. So it never brings back
//!    what the watch said is gone, however late it arrives.
//! 3. What only an answer said holds until the watch has told everything up to its version. By then the watch has told the same, or
//!    something was missed: there is another list, and what it shows holds.
//! 4. A list that is older than what was told (a store that was restored from a copy) is right, and what was remembered is wrong.
//! 5. An object that cannot be read is there all the same: it has its place, its version and its end like any other.

mod kinds;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
mod told;

use std::any::TypeId;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::jiff::Timestamp;
use karst_api::{Kafka, KafkaNodePool};
use karst_core::certificates;
use karst_core::names::ClusterKey;
use karst_core::world::{
    ClaimView, ConfigMapView, PlainView, PodSetView, PodView, SecretView, ServiceAccountView, ServiceView,
};

pub(crate) use self::kinds::{CONTROLLER_NAME_LABEL, Indexed};
pub(crate) use self::told::Feed;
use self::told::{Scope, Told};
use crate::queue::Work;
use crate::watch::{Unreadable, Version};

/// What is known of the objects of one kind, by name.
pub(crate) type Slot<V> = BTreeMap<String, Seen<V>>;

/// An object, at the version it was read at.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Seen<V> {
    uid: String,
    version: Version,
    view: Result<Arc<V>, Arc<Unreadable>>,
}

/// Everything seen of one cluster.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
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
    /// What is there and cannot be read. Nothing may be decided while there is such a thing: it would count as missing.
    pub(crate) unreadable: Vec<Arc<Unreadable>>,
    /// What cannot be read and has a name that Karst gives to nothing: whoever labels it so would otherwise hold the cluster for ever.
    pub(crate) strays: Vec<Arc<Unreadable>>,
}

impl Snapshot {
    /// Are the pods and the pod sets as they were?
    pub(crate) fn has_same_pods(&self, before: &Self) -> bool {
        fn same<V>(now: &BTreeMap<String, Arc<V>>, before: &BTreeMap<String, Arc<V>>) -> bool {
            let mut both = now.iter().zip(before);
            now.len() == before.len()
                && both.all(|((name, now), (known, before))| name == known && Arc::ptr_eq(now, before))
        }
        same(&self.pods, &before.pods) && same(&self.pod_sets, &before.pod_sets)
    }
}

/// A pod set, and what its pods depend on.
#[derive(Debug)]
pub(crate) struct PodSetSnapshot {
    pub(crate) set: Arc<PodSetView>,
    /// The pods of its cluster.
    pub(crate) pods: Vec<Arc<PodView>>,
    /// The claims of its cluster that are being deleted.
    pub(crate) going: Vec<Arc<ClaimView>>,
}

/// The views of what can be read.
fn readable<V>(slot: &Slot<V>) -> impl Iterator<Item = (&String, &Arc<V>)> {
    slot.iter().filter_map(|(name, seen)| Some((name, seen.view.as_ref().ok()?)))
}

fn unreadable<V>(slot: &Slot<V>) -> impl Iterator<Item = &Arc<Unreadable>> {
    slot.values().filter_map(|seen| seen.view.as_ref().err())
}

/// Is it something that Karst makes for the cluster, by its name?
fn is_of(key: &ClusterKey, one: &Unreadable) -> bool {
    key.gives(&one.kind, one.meta.name.as_deref().unwrap_or_default())
}

impl Objects {
    fn snapshot(&self, key: &ClusterKey) -> Snapshot {
        fn copy<V>(slot: &Slot<V>) -> BTreeMap<String, Arc<V>> {
            readable(slot).map(|(name, view)| (name.clone(), Arc::clone(view))).collect()
        }
        let (unreadable, strays) = self.unreadable().cloned().partition(|one| is_of(key, one));
        Snapshot {
            kafka: readable(&self.kafkas).next().map(|(_, view)| Arc::clone(view)),
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
            unreadable,
            strays,
        }
    }

    fn unreadable(&self) -> impl Iterator<Item = &Arc<Unreadable>> {
        let resources = unreadable(&self.kafkas).chain(unreadable(&self.pools));
        let pods = unreadable(&self.pod_sets).chain(unreadable(&self.pods)).chain(unreadable(&self.claims));
        let settings = unreadable(&self.config_maps).chain(unreadable(&self.secrets));
        let others = unreadable(&self.services).chain(unreadable(&self.accounts));
        let plain = unreadable(&self.budgets).chain(unreadable(&self.policies));
        resources.chain(pods).chain(settings).chain(others).chain(plain)
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

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
struct State {
    clusters: HashMap<ClusterKey, Objects>,
    told: HashMap<(TypeId, Scope), Told>,
}

/// The index, shared by watches and passes.
#[derive(Debug, Default)]
pub(crate) struct Index {
    state: Mutex<State>,
}

impl Index {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the maps themselves whole: every change is a single insertion or removal.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a cluster.
    pub(crate) fn snapshot(&self, key: &ClusterKey) -> Snapshot {
        self.lock().clusters.get(key).map(|objects| objects.snapshot(key)).unwrap_or_default()
    }

    /// Is there a `Kafka` resource, readable or not?
    pub(crate) fn has_kafka(&self, key: &ClusterKey) -> bool {
        self.lock().clusters.get(key).is_some_and(|objects| !objects.kafkas.is_empty())
    }

    /// The newest version that is known of an object; none, when it is gone or another one took its place.
    pub(crate) fn version<K: Indexed>(&self, key: &ClusterKey, name: &str, uid: &str) -> Option<String> {
        let mut state = self.lock();
        let known = K::slot(state.clusters.get_mut(key)?).get(name).filter(|known| known.uid == uid)?;
        (known.version > 0).then(|| known.version.to_string())
    }

    /// What there is of a pod set. Nothing, when a pod or a claim of its cluster cannot be read: it would count as missing.
    pub(crate) fn pod_set(&self, key: &ClusterKey, name: &str) -> Option<PodSetSnapshot> {
        let state = self.lock();
        let objects = state.clusters.get(key)?;
        if unreadable(&objects.pods).chain(unreadable(&objects.claims)).any(|one| is_of(key, one)) {
            return None;
        }
        let set = Arc::clone(objects.pod_sets.get(name)?.view.as_ref().ok()?);
        let pods = readable(&objects.pods).map(|(_, pod)| Arc::clone(pod)).collect();
        let going = readable(&objects.claims).filter(|(_, claim)| claim.meta.deleting);
        Some(PodSetSnapshot { set, pods, going: going.map(|(_, claim)| Arc::clone(claim)).collect() })
    }

    /// Which of these pod sets belong to other clusters of the namespace.
    pub(crate) fn taken(&self, key: &ClusterKey, pod_sets: &[String]) -> BTreeMap<String, ClusterKey> {
        if pod_sets.is_empty() {
            return BTreeMap::new();
        }
        let state = self.lock();
        let others =
            state.clusters.iter().filter(|(other, _)| other.namespace == key.namespace && *other != key);
        others
            .flat_map(|(other, objects)| {
                let has = pod_sets.iter().filter(|name| objects.pod_sets.contains_key(*name));
                has.map(move |name| (name.clone(), other.clone()))
            })
            .collect()
    }

    /// All clusters that a `Kafka` resource asks for, and how many pools each has.
    pub(crate) fn kafkas(&self) -> Vec<(ClusterKey, usize)> {
        let state = self.lock();
        let with_kafka = state.clusters.iter().filter(|(_, objects)| !objects.kafkas.is_empty());
        with_kafka.map(|(key, objects)| (key.clone(), objects.pools.len())).collect()
    }

    /// What cannot be read, in all clusters: namespace and kind of each.
    pub(crate) fn unreadable(&self) -> Vec<(String, String)> {
        let state = self.lock();
        let of = |key: &ClusterKey, one: &Arc<Unreadable>| (key.namespace.clone(), one.kind.clone());
        let all = state.clusters.iter().flat_map(|(key, objects)| {
            let of_cluster: Vec<_> = objects.unreadable().map(|one| of(key, one)).collect();
            of_cluster
        });
        all.collect()
    }

    /// When the certificates of each cluster end: those of nodes together, by the first of them.
    pub(crate) fn certificate_ends(&self) -> Vec<(ClusterKey, BTreeMap<String, Timestamp>)> {
        let state = self.lock();
        let with_kafka = state.clusters.iter().filter(|(_, objects)| !objects.kafkas.is_empty());
        let ends = |key: &ClusterKey, objects: &Objects| {
            certificates::ends(key, readable(&objects.secrets).map(|(_, secret)| &**secret))
        };
        with_kafka.map(|(key, objects)| (key.clone(), ends(key, objects))).collect()
    }

    /// Takes in what a write, a get or a list of our own answered. Returns the work this causes.
    pub(crate) fn answer<K: Indexed>(&self, object: K) -> Vec<Work> {
        self.lock().answer(object)
    }

    /// A pod was deleted just now: nobody may take it for one that serves until the watch says so too.
    pub(crate) fn mark_deleting(&self, key: &ClusterKey, pod: &str, uid: &str) {
        let mut state = self.lock();
        let seen = state.clusters.get_mut(key).and_then(|objects| objects.pods.get_mut(pod));
        if let Some(Ok(view)) = seen.filter(|seen| seen.uid == uid).map(|seen| seen.view.as_mut()) {
            Arc::make_mut(view).meta.deleting = true;
        }
    }
}
