//! Objects of others that have the name of one that a cluster needs.
//!
//! They are neither written nor deleted: that would be done to whoever made them. What needs such an object waits, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::memory::Stranger;
use crate::names::{CLUSTER_ID_ANNOTATION, CLUSTER_LABEL, ClusterKey, KIND_LABEL, MANAGED_BY_LABEL};
use crate::notice::Notice;
use crate::objects::Object;
use crate::steps::Removal;
use crate::world::{Meta, World};

/// Whose an object is, as it really is now. Nothing, when it is the cluster's, or may be taken for it.
///
/// It is the cluster's when its `Kafka` resource owns it, though somebody took the labels off; when it has the labels, which is
/// how users hand something over; or when it is a claim that says so. Whoever controls it has the last word.
pub fn owner(world: &World, live: &ObjectMeta) -> Option<String> {
    let uid = world.kafka.metadata.uid.as_deref();
    let is_taken = is_labelled(&world.key, live) || is_marked(world, live);
    other_owner(uid.as_slice(), is_taken, live)
}

/// Whose a pod is that was not seen: nobody else's, when one of these owns it.
pub fn owner_of_pod(ours: &[&str], live: &ObjectMeta) -> Option<String> {
    other_owner(ours, false, live)
}

fn other_owner(ours: &[&str], is_taken: bool, live: &ObjectMeta) -> Option<String> {
    let owners = || live.owner_references.iter().flatten();
    let is_other = |owner: &str| !ours.contains(&owner);
    if let Some(other) = owners().find(|one| one.controller == Some(true) && is_other(&one.uid)) {
        return Some(format!("{} '{}'", other.kind, other.name));
    }
    if is_taken || owners().any(|one| !is_other(&one.uid)) {
        return None;
    }
    let named = owners().next().map(|one| format!("{} '{}'", one.kind, one.name));
    Some(named.or_else(|| by_marks(live)).unwrap_or_else(|| by_managers(live)))
}

/// Has it the labels by which the cluster's objects are found?
pub fn is_labelled(key: &ClusterKey, live: &ObjectMeta) -> bool {
    label(live, CLUSTER_LABEL) == Some(&key.name)
        && label(live, KIND_LABEL).is_some_and(|kind| kind == "Kafka")
}

/// Does it say that it holds data of this cluster? So do claims that nobody owns, because they are to be kept.
fn is_marked(world: &World, live: &ObjectMeta) -> bool {
    let status = world.kafka.status.as_ref();
    let id = status.and_then(|status| status.cluster_id.as_ref());
    id.is_some_and(|id| mark(live) == Some(id))
}

fn mark(live: &ObjectMeta) -> Option<&String> {
    live.annotations.as_ref()?.get(CLUSTER_ID_ANNOTATION)
}

fn label<'a>(live: &'a ObjectMeta, key: &str) -> Option<&'a String> {
    live.labels.as_ref()?.get(key)
}

fn by_marks(live: &ObjectMeta) -> Option<String> {
    let of_cluster = || {
        let kind = label(live, KIND_LABEL).map_or("Kafka", String::as_str);
        Some(format!("{kind} '{}', as its labels say", label(live, CLUSTER_LABEL)?))
    };
    let of_id = || Some(format!("the Kafka cluster with the id {}, as its annotation says", mark(live)?));
    let of_manager =
        || Some(format!("'{}', as its label {MANAGED_BY_LABEL} says", label(live, MANAGED_BY_LABEL)?));
    of_cluster().or_else(of_id).or_else(of_manager)
}

/// Without an owner and without a label it is only known with what it was written.
fn by_managers(live: &ObjectMeta) -> String {
    let mut managers: Vec<&str> =
        live.managed_fields.iter().flatten().filter_map(|fields| fields.manager.as_deref()).collect();
    managers.sort_unstable();
    managers.dedup();
    match managers.as_slice() {
        [] => "somebody who left no mark on it".to_owned(),
        managers => format!("whoever wrote it with {}", managers.join(", ")),
    }
}

/// Whose an object is that is labelled as the cluster's and controlled by another.
pub fn controller(world: &World, meta: &Meta) -> Option<String> {
    let other = meta.controller.as_ref()?;
    let is_other = world.kafka.metadata.uid.as_ref() != Some(&other.uid);
    is_other.then(|| format!("{} '{}'", other.kind, other.name))
}

/// Whose the object is that was seen in place of this one, when it is not the cluster's.
pub fn owner_of_seen(world: &World, object: &Object) -> Option<String> {
    object.seen_meta(world).and_then(|meta| controller(world, meta))
}

/// Is the object not to be written now, because one of somebody else is there? It is looked at again after a while.
pub(crate) fn is_hidden(world: &World, object: &Object) -> bool {
    let is_known = || {
        let known = world.memory.strangers.get(&object.describe());
        known.is_some_and(|stranger| !world.time_until(stranger.until).is_zero())
    };
    owner_of_seen(world, object).is_some() || is_known()
}

/// Is it not to be deleted, because somebody else controls it?
pub(crate) fn is_theirs(world: &World, removal: &Removal) -> bool {
    let name = &removal.seen().name;
    let meta = match removal {
        Removal::ConfigMap(_) => world.config_maps.get(name).map(|seen| &seen.meta),
        Removal::Claim { .. } => world.claims.get(name).map(|seen| &seen.meta),
        Removal::Secret(_) => world.secrets.get(name).map(|seen| &seen.meta),
        Removal::Service(_) => world.services.get(name).map(|seen| &seen.meta),
        Removal::PodSet(_) => world.pod_sets.get(name).map(|seen| &seen.meta),
    };
    meta.is_some_and(|meta| controller(world, meta).is_some())
}

/// What people should know.
pub(crate) fn notices(world: &World) -> Vec<Notice> {
    fn metas<'a, V: 'a>(
        kind: &'static str,
        views: impl Iterator<Item = &'a V>,
        meta: fn(&V) -> &Meta,
    ) -> impl Iterator<Item = (&'static str, &'a Meta)> {
        views.map(move |view| (kind, meta(view)))
    }
    let accounts = metas("ServiceAccount", world.service_accounts.values(), |seen| &seen.meta);
    let services = metas("Service", world.services.values(), |seen| &seen.meta);
    let maps = metas("ConfigMap", world.config_maps.values(), |seen| &seen.meta);
    let budgets = metas("PodDisruptionBudget", world.budgets.values(), |seen| &seen.meta);
    let policies = metas("NetworkPolicy", world.policies.values(), |seen| &seen.meta);
    let claims = metas("PersistentVolumeClaim", world.claims.values(), |seen| &seen.meta);
    let sets = metas("StrimziPodSet", world.pod_sets.values(), |seen| &seen.meta);
    let seen = accounts.chain(services).chain(maps).chain(budgets).chain(policies).chain(claims).chain(sets);
    let seen =
        seen.filter_map(|(kind, meta)| Some((format!("{kind} {}", meta.name), controller(world, meta)?)));
    let met =
        world.memory.strangers.iter().map(|(object, stranger)| (object.clone(), stranger.owner.clone()));
    let cluster = &world.key.name;
    seen.chain(met)
        .map(|(object, owner)| Notice::ForeignObject { object, owner, cluster: cluster.clone() })
        .collect()
}

/// When to look at them again. Nobody tells when they are gone.
pub(crate) fn look_again(world: &World) -> Option<Duration> {
    let pauses = world.memory.strangers.values().map(|stranger| world.time_until(stranger.until));
    pauses.filter(|pause| !pause.is_zero()).min()
}

/// Pods that need what is somebody else's.
#[derive(Debug, Default)]
pub struct Needy {
    /// Pods whose settings or disks it is.
    pods: BTreeSet<String>,
    /// Is it what every new pod needs: its identity, or the service that its host name comes from?
    is_common: bool,
}

impl Needy {
    /// Finds them.
    pub(crate) fn of(world: &World) -> Self {
        let is_theirs = |meta: &Meta| controller(world, meta).is_some();
        let maps = world.config_maps.values().map(|map| &map.meta).filter(|meta| is_theirs(meta));
        let claims = world.claims.values().map(|claim| &claim.meta).filter(|meta| is_theirs(meta));
        let seen =
            maps.map(|meta| meta.name.as_str()).chain(claims.filter_map(|meta| pod_of_claim(&meta.name)));
        let account = world.service_accounts.get(&world.key.service_account());
        let headless = world.services.get(&world.key.headless_service());
        let mut needy = Self::of_met(&world.key, &world.memory.strangers);
        needy.pods.extend(seen.map(str::to_owned));
        needy.is_common |= account.is_some_and(|seen| is_theirs(&seen.meta));
        needy.is_common |= headless.is_some_and(|seen| is_theirs(&seen.meta));
        needy
    }

    /// Those that need something that was not labelled as the cluster's.
    pub fn of_met(key: &ClusterKey, strangers: &BTreeMap<String, Stranger>) -> Self {
        let pods = strangers.keys().filter_map(|object| match object.split_once(' ')? {
            ("ConfigMap", name) => Some(name),
            ("PersistentVolumeClaim", name) => pod_of_claim(name),
            _ => None,
        });
        let common = [
            format!("ServiceAccount {}", key.service_account()),
            format!("Service {}", key.headless_service()),
        ];
        Self {
            pods: pods.map(str::to_owned).collect(),
            is_common: common.iter().any(|object| strangers.contains_key(object)),
        }
    }

    /// May this pod be made?
    pub fn may_start(&self, pod: &str) -> bool {
        !self.is_common && !self.pods.contains(pod)
    }

    /// May it be made anew? What all pods need it has already.
    pub(crate) fn may_restart(&self, pod: &str) -> bool {
        !self.pods.contains(pod)
    }
}

/// The pod that a claim of this name is for. No pod's name begins with a digit.
fn pod_of_claim(claim: &str) -> Option<&str> {
    let rest = claim.strip_prefix("data-")?;
    let volume = rest.split_once('-').filter(|(id, _)| id.parse::<u32>().is_ok());
    Some(volume.map_or(rest, |(_, pod)| pod))
}
