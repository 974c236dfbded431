//! What watches told, what answers added to it, and which of the two holds.

use std::any::TypeId;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karst_core::names::ClusterKey;

use super::{Index, Indexed, Seen, State};
use crate::queue::Work;
use crate::watch::{Event, Read, Version, item, number};

/// The namespace that a watch is about; all of them, if there is none.
pub(super) type Scope = Option<String>;

/// Namespace and name.
type Place = (String, String);

/// What one watch told.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Told {
    /// Everything up to here.
    pub(super) version: Version,
    /// In which cluster each object is: it can be relabelled, and a list does not say what is missing from it.
    homes: HashMap<Place, Home>,
    /// What only an answer said, by its version.
    pub(super) answered: BTreeSet<(Version, Place)>,
}

/// Where an object belongs, and what is to be done when it changes.
#[derive(Debug, Clone, PartialEq)]
struct Home {
    cluster: ClusterKey,
    pod_set: Option<String>,
}

impl Home {
    fn of<K: Indexed>(meta: &ObjectMeta) -> Option<Self> {
        let cluster = ClusterKey { namespace: meta.namespace.clone()?, name: K::cluster(meta)?.to_owned() };
        let pod_set = K::pod_set(&cluster, meta);
        Some(Self { cluster, pod_set })
    }

    fn work(&self) -> Vec<Work> {
        let pod_set = self.pod_set.clone().map(|name| Work::PodSet { cluster: self.cluster.clone(), name });
        std::iter::once(Work::Cluster(self.cluster.clone())).chain(pod_set).collect()
    }
}

/// A list that is being told.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
struct Listing {
    version: Version,
    /// Is it older than what was told before?
    is_older: bool,
    found: HashSet<Place>,
}

/// What came of an event.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// What is to be done because of it.
    pub(crate) work: Vec<Work>,
    /// Has the watch now told everything?
    pub(crate) is_complete: bool,
    /// Must there be a list, because what was told and what was answered do not fit together?
    pub(crate) missed: bool,
}

/// Turns what one watch tells into changes of the index.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Feed {
    scope: Scope,
    listing: Listing,
}

impl Feed {
    pub(crate) fn new(namespace: Option<&str>) -> Self {
        Self { scope: namespace.map(str::to_owned), listing: Listing::default() }
    }

    #[cfg(test)]
    pub(super) fn is_in_an_older_list(&self) -> bool {
        self.listing.is_older
    }

    /// Takes in one event.
    pub(crate) fn take<K: Indexed>(&mut self, index: &Index, event: Event<K>) -> Heard {
        let mut state = index.lock();
        let mut told = state.told::<K>(&self.scope);
        let is_complete = matches!(event, Event::ListEnds);
        let told_up_to = match &event {
            Event::Applied(read) | Event::Deleted(read) => version(item::meta(read)),
            Event::ToldUpTo(version) => *version,
            _ => 0,
        };
        let work = match event {
            Event::ListBegins(version) => {
                let is_older = version < told.told.version;
                if is_older {
                    tracing::warn!(kind = %K::kind(&()), told = told.told.version, version,
                        "the API server is at an earlier version than before; what it lists now holds");
                }
                self.listing = Listing { version, is_older, found: HashSet::new() };
                Vec::new()
            }
            Event::Listed(read) => told.listed(&mut self.listing, read),
            Event::ListEnds => told.list_ends(&std::mem::take(&mut self.listing)),
            Event::Applied(read) => told.applied(read),
            Event::Deleted(read) => told.deleted(&read),
            Event::ToldUpTo(_) | Event::Failed(_) | Event::GoesOn => Vec::new(),
        };
        Heard { work, is_complete, missed: told.told_up_to(told_up_to) }
    }
}

impl State {
    fn told<K: Indexed>(&mut self, scope: &Scope) -> OfKind<'_, K> {
        let told = self.told.entry((TypeId::of::<K>(), scope.clone())).or_default();
        OfKind { clusters: &mut self.clusters, told, kind: std::marker::PhantomData }
    }

    pub(super) fn answer<K: Indexed>(&mut self, object: K) -> Vec<Work> {
        let namespace = object.meta().namespace.clone();
        let is_own = self.told.contains_key(&(TypeId::of::<K>(), namespace.clone()));
        self.told::<K>(&namespace.filter(|_| is_own)).answered(object)
    }
}

/// One kind in one scope.
struct OfKind<'a, K> {
    clusters: &'a mut HashMap<ClusterKey, super::Objects>,
    told: &'a mut Told,
    kind: std::marker::PhantomData<K>,
}

impl<K: Indexed> OfKind<'_, K> {
    /// The uid and the version that are known of an object.
    fn known(&mut self, at: &Place) -> Option<(&str, Version)> {
        let home = self.told.homes.get(at)?;
        let seen = K::slot(self.clusters.get_mut(&home.cluster)?).get(&at.1)?;
        Some((&seen.uid, seen.version))
    }

    fn known_version(&mut self, at: &Place) -> Option<Version> {
        self.known(at).map(|(_, version)| version)
    }

    fn listed(&mut self, listing: &mut Listing, read: Read<K>) -> Vec<Work> {
        let meta = item::meta(&read);
        let (at, version) = (place(meta), version(meta));
        listing.found.insert(at.clone());
        let uid = meta.uid.clone().unwrap_or_default();
        let is_known = self.known(&at).is_some_and(|(known, known_version)| {
            let is_newer = known_version > listing.version && !listing.is_older;
            is_newer || (known, known_version) == (&uid, version) && version > 0
        });
        if is_known { Vec::new() } else { self.put(at, read) }
    }

    /// What the list did not show is gone, unless an answer said later that it is there.
    fn list_ends(&mut self, listing: &Listing) -> Vec<Work> {
        let unlisted: Vec<_> =
            self.told.homes.keys().filter(|at| !listing.found.contains(*at)).cloned().collect();
        let mut work = Vec::new();
        for at in unlisted {
            let is_newer = self.known_version(&at).is_some_and(|version| version > listing.version);
            if listing.is_older || !is_newer {
                work.extend(self.remove(&at));
            }
        }
        self.told.version = listing.version;
        self.told.answered.retain(|(version, _)| *version > listing.version);
        work
    }

    fn applied(&mut self, read: Read<K>) -> Vec<Work> {
        let meta = item::meta(&read);
        let (at, version) = (place(meta), version(meta));
        self.told.answered.remove(&(version, at.clone()));
        let uid = meta.uid.clone().unwrap_or_default();
        // A restored store uses versions again: the same version does not make it the same object.
        let is_known = self.known(&at).is_some_and(|(known, known_version)| {
            known_version > version || (known, known_version) == (&uid, version)
        });
        if is_known && version > 0 { Vec::new() } else { self.put(at, read) }
    }

    fn deleted(&mut self, read: &Read<K>) -> Vec<Work> {
        let meta = item::meta(read);
        let (at, version) = (place(meta), version(meta));
        let is_newer = version > 0 && self.known_version(&at).is_some_and(|known| known > version);
        let mut work = Home::of::<K>(meta).map(|home| home.work()).unwrap_or_default();
        if !is_newer {
            work.extend(self.remove(&at));
        }
        work
    }

    /// The watch told everything up to here. Is there something that only an answer said? Then either is wrong.
    fn told_up_to(&mut self, version: Version) -> bool {
        self.told.version = self.told.version.max(version);
        let mut missed = false;
        while let Some((answered, at)) = self.told.answered.pop_first() {
            if answered > version {
                self.told.answered.insert((answered, at));
                break;
            }
            missed |= self.known_version(&at) == Some(answered);
        }
        missed
    }

    fn answered(&mut self, object: K) -> Vec<Work> {
        let read = Ok(object);
        let meta = item::meta(&read);
        let (at, version) = (place(meta), version(meta));
        let is_old =
            version <= self.told.version || self.known_version(&at).is_some_and(|known| known >= version);
        if is_old || Home::of::<K>(meta).is_none() {
            return Vec::new();
        }
        self.told.answered.insert((version, at.clone()));
        self.put(at, read)
    }

    fn put(&mut self, at: Place, read: Read<K>) -> Vec<Work> {
        let meta = item::meta(&read);
        let Some(home) = Home::of::<K>(meta) else { return self.remove(&at) };
        let mut left = Vec::new();
        if self.told.homes.get(&at).is_some_and(|before| before.cluster != home.cluster) {
            left = self.remove(&at);
        }
        let (uid, version, name) = (meta.uid.clone().unwrap_or_default(), version(meta), at.1.clone());
        let view = item::contained(read, K::conditions, K::view).map(Arc::new).map_err(Arc::from);
        let slot = K::slot(self.clusters.entry(home.cluster.clone()).or_default());
        slot.insert(name, Seen { uid, version, view });
        let mut work = home.work();
        self.told.homes.insert(at, home);
        work.extend(left);
        work
    }

    fn remove(&mut self, at: &Place) -> Vec<Work> {
        let Some(home) = self.told.homes.remove(at) else { return Vec::new() };
        if let Some(objects) = self.clusters.get_mut(&home.cluster) {
            K::slot(objects).remove(&at.1);
            if objects.is_empty() {
                self.clusters.remove(&home.cluster);
            }
        }
        home.work()
    }
}

fn place(meta: &ObjectMeta) -> Place {
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

fn version(meta: &ObjectMeta) -> Version {
    meta.resource_version.as_deref().map(number).unwrap_or_default()
}
