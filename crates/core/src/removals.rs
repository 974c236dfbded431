//! What is deleted: only what belongs to a node or a volume that is gone, of a pool that is still there to say so.
//!
//! Whose pool cannot be read, or is not there at all, keeps everything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karst_api as api;

use crate::claim_memory::{emptied_in, is_disposable, is_to_be_released, is_volume_of};
use crate::cluster::{Cluster, Pool};
use crate::ids::NodeId;
use crate::left_behind::Kept;
use crate::listeners::{Reach, kept};
use crate::names::{LISTENER_LABEL, POD_NAME_LABEL, POOL_FINALIZER, POOL_LABEL, VIRTUAL_POOL, node_of_pod};
use crate::notice::Notice;
use crate::plan::{Protection, Removal, Seen};
use crate::pools;
use crate::problem::Problem;
use crate::strangers;
use crate::world::{ClaimView, ClaimsByPod, Meta, World};

/// Tells of an object whether it is of a node that is gone.
fn is_left<'a>(
    world: &'a World,
    cluster: &'a Cluster,
    refused: &'a BTreeMap<String, Vec<Problem>>,
) -> impl Fn(&Meta) -> bool + 'a {
    let names = |pool: &Pool| pool.ids.iter().map(|id| world.key.pod(&pool.name, *id)).collect();
    let wanted: Vec<(&Pool, BTreeSet<String>)> =
        cluster.pools.iter().map(|pool| (pool, names(pool))).collect();
    move |meta: &Meta| {
        let pool = meta.labels.get(POOL_LABEL);
        let pool = pool.and_then(|name| wanted.iter().find(|(pool, _)| pool.name == *name));
        let (Some((pool, wanted)), Some(pod)) = (pool, meta.labels.get(POD_NAME_LABEL)) else { return false };
        let is_wanted = wanted.contains(pod);
        !is_wanted && !refused.contains_key(&pool.name) && !world.pods.contains_key(pod) && !meta.deleting
    }
}

/// Claims of nodes that are gone, and that are not to outlive them.
pub(crate) fn claims<'w>(
    world: &'w World,
    cluster: &Cluster,
    refused: &BTreeMap<String, Vec<Problem>>,
) -> Vec<&'w ClaimView> {
    let is_left = is_left(world, cluster, refused);
    let claims = world.claims.values().map(AsRef::as_ref);
    claims.filter(|claim| is_disposable(world, &claim.meta) && is_left(&claim.meta)).collect()
}

/// The objects that are no longer wanted, but for what brokers left behind that is still needed.
pub(crate) fn of(
    world: &World,
    cluster: &Cluster,
    refused: &BTreeMap<String, Vec<Problem>>,
    kept: &Kept,
) -> Vec<Removal> {
    let is_left = is_left(world, cluster, refused);
    let maps = world
        .config_maps
        .values()
        .filter(|map| is_left(&map.meta))
        .map(|map| Removal::ConfigMap(Seen::of(&map.meta)));
    let secrets = world
        .secrets
        .values()
        .filter(|secret| is_left(&secret.meta))
        .map(|secret| Removal::Secret(Seen::of(&secret.meta)));
    let claims = claims(world, cluster, refused).into_iter().filter(|claim| !kept.has(&claim.meta.name));
    let claims = claims.filter_map(|claim| {
        let pod = claim.meta.labels.get(POD_NAME_LABEL)?.clone();
        Some(Removal::Claim { claim: Seen::of(&claim.meta), pod })
    });
    let volumes = cluster.pools.iter().filter(|pool| !refused.contains_key(&pool.name));
    let claims_by_pod = world.claims_by_pod();
    let volumes = volumes.flat_map(|pool| removed_volumes(world, pool, &claims_by_pod));
    let empty = cluster.pools.iter().filter(|pool| pool.ids.is_empty());
    let sets = empty.filter_map(|pool| world.pod_sets.get(&world.key.pod_set(&pool.name)));
    let sets = sets
        .filter(|set| set.pods.is_empty() && !set.meta.deleting)
        .map(|set| Removal::PodSet(Seen::of(&set.meta)));
    let services = services(world, cluster, &is_left);
    let all = maps.chain(secrets).chain(claims).chain(volumes).chain(sets).chain(services);
    all.filter(|removal| !strangers::is_theirs(world, removal)).collect()
}

/// Services of listeners that are no longer asked for, and of brokers that are gone. Others are not ours to remove, and those by
/// which brokers that run are still reached stay.
fn services(world: &World, cluster: &Cluster, is_left: impl Fn(&Meta) -> bool) -> Vec<Removal> {
    let told = kept::still_told(world, cluster);
    let is_unwanted = |meta: &Meta| {
        let Some(name) = meta.labels.get(LISTENER_LABEL) else { return false };
        if told.contains(name.as_str()) && !is_left(meta) {
            return false;
        }
        let listener = cluster.listeners.iter().find(|one| one.name == *name && one.reach != Reach::Internal);
        let Some(listener) = listener else { return true };
        let node = meta.labels.get(POD_NAME_LABEL).and_then(|pod| node_of_pod(pod));
        match (node, meta.labels.get(POOL_LABEL)) {
            (Some(node), Some(pool)) => {
                is_left(meta) || meta.name != world.key.listener_broker(pool, listener, node)
            }
            _ => {
                !listener.has_bootstrap_service() || meta.name != world.key.listener_bootstrap(&listener.name)
            }
        }
    };
    let ours = world.services.values().filter(|service| service.meta.other_manager().is_none());
    let unwanted = ours.filter(|service| !service.meta.deleting && is_unwanted(&service.meta));
    unwanted.map(|service| Removal::Service(Seen::of(&service.meta))).collect()
}

/// Claims of volumes that nodes of the pool no longer have. Each waits until its node's pod is one that was made without it, and
/// goes only if the pod that had it last was seen to have nothing there.
fn removed_volumes(world: &World, pool: &Pool, claims: &ClaimsByPod<'_>) -> Vec<Removal> {
    let (empty, _) = claims_of_volumes(world, pool, claims);
    let removal = |(claim, pod): (&ClaimView, String)| Removal::Claim { claim: Seen::of(&claim.meta), pod };
    empty.into_iter().map(removal).collect()
}

/// That claims of volumes which are gone stay, because nobody knows what they hold: their pods were replaced by somebody else, or by
/// an accident, before they were seen empty.
pub(crate) fn volumes_left(
    world: &World,
    cluster: &Cluster,
    refused: &BTreeMap<String, Vec<Problem>>,
) -> Vec<Notice> {
    let pools = cluster.pools.iter().filter(|pool| !refused.contains_key(&pool.name));
    let by_pod = world.claims_by_pod();
    let left = pools.filter_map(|pool| {
        let (_, unknown) = claims_of_volumes(world, pool, &by_pod);
        let claims: Vec<String> = unknown.into_iter().map(|(claim, _)| claim.meta.name.clone()).collect();
        (!claims.is_empty()).then(|| Notice::VolumesLeft { pool: pool.name.clone(), claims })
    });
    left.collect()
}

/// Claims, and the pods that had them.
type OfPods<'w> = Vec<(&'w ClaimView, String)>;

/// The disposable claims of volumes that nodes of the pool no longer have: those that are known to hold nothing, and the others.
fn claims_of_volumes<'w>(world: &World, pool: &Pool, claims: &ClaimsByPod<'w>) -> (OfPods<'w>, OfPods<'w>) {
    let Some(set) = world.pod_sets.get(&world.key.pod_set(&pool.name)) else { return Default::default() };
    let of_node = |node: &NodeId| {
        let name = world.key.pod(&pool.name, *node);
        let (Some(wanted), Some(pod)) = (set.pods.get(&name), world.pods.get(&name)) else {
            return Vec::new();
        };
        if pod.meta.deleting || !pod.is_current(wanted) {
            return Vec::new();
        }
        let has = |claim: &str| {
            let disks = pool.storage.disks().iter();
            let is_listed = disks.filter_map(|disk| disk.claim_name(&name)).any(|has| has == claim);
            is_listed || wanted.uses(claim)
        };
        let of_pod = claims.get(name.as_str()).into_iter().flatten().copied().map(Arc::as_ref);
        let gone = of_pod.filter(|claim| {
            let meta = &claim.meta;
            is_volume_of(meta, &name) && is_disposable(world, meta) && !meta.deleting && !has(&meta.name)
        });
        gone.map(|claim| (claim, name.clone())).collect()
    };
    let all = pool.nodes.iter().flat_map(of_node);
    all.partition(|(claim, _)| !claim.bound || emptied_in(&claim.meta).is_some())
}

/// Which pools are to be protected from now on, and which no longer.
pub(crate) fn protections(
    world: &World,
    cluster: &Cluster,
    refused: &BTreeMap<String, Vec<Problem>>,
) -> BTreeMap<String, Protection> {
    // Of a pool that cannot be read nothing is deleted, so nothing is waited for.
    let has_remains =
        |pool: &str| has_pod_set(world, pool) || (!refused.contains_key(pool) && has_remains(world, pool));
    let of_pool = |pool: &Pool| {
        let meta = &world.pools.get(&pool.name)?.metadata;
        match (pool.is_going, is_protected(meta)) {
            (false, false) => Some((pool.name.clone(), Protection::Add)),
            (true, true) if pool.ids.is_empty() && !has_remains(&pool.name) => {
                Some((pool.name.clone(), Protection::Remove))
            }
            _ => None,
        }
    };
    cluster.pools.iter().filter(|pool| pool.has_resource).filter_map(of_pool).collect()
}

/// Pools that are deleted, are not part of what is carried out, and have nothing left: they wait for nothing. So it is with one that
/// is not valid and never ran, with one whose label named another cluster before, and with one that is not used.
pub(crate) fn released(world: &World, cluster: Option<&Cluster>) -> BTreeMap<String, Protection> {
    let is_carried_out = |name: &str| {
        cluster.is_some_and(|cluster| cluster.pools.iter().any(|one| one.has_resource && one.name == name))
    };
    // What bears the name of the pool belongs to the nodes that are there without pools.
    let is_virtual = |name: &str| name == VIRTUAL_POOL && !pools::uses_pools(&world.kafka);
    let has_pods =
        |name: &String| world.pods.values().any(|pod| pod.meta.labels.get(POOL_LABEL) == Some(name));
    // Nodes that the pool still remembers may vote with their disks.
    let has_disks = |name: &String| {
        let status = world.pools.get(name).and_then(|pool| pool.status.as_ref());
        let has_nodes =
            status.and_then(|status| status.node_ids.as_ref()).is_some_and(|nodes| !nodes.is_empty());
        has_nodes && world.claims.values().any(|claim| claim.meta.labels.get(POOL_LABEL) == Some(name))
    };
    let has_nothing = |name: &String| {
        let has_nodes = has_pods(name) || has_pod_set(world, name) || has_disks(name);
        is_virtual(name) || !(has_nodes || has_remains(world, name))
    };
    let going = going(&world.pools).filter(|name| !is_carried_out(name) && has_nothing(name));
    going.map(|name| (name.clone(), Protection::Remove)).collect()
}

/// Pools that are deleted, and whose deletion waits.
pub(crate) fn going(pools: &BTreeMap<String, Arc<api::KafkaNodePool>>) -> impl Iterator<Item = &String> {
    let is_going = |pool: &api::KafkaNodePool| {
        pool.metadata.deletion_timestamp.is_some() && is_protected(&pool.metadata)
    };
    pools.iter().filter(move |(_, pool)| is_going(pool)).map(|(name, _)| name)
}

/// May anything be made for a pool? Not before its deletion would wait for it. One that has nodes goes on all the same.
pub(crate) fn may_begin(world: &World, pool: &Pool) -> bool {
    let is_safe = || world.pools.get(&pool.name).is_some_and(|resource| is_protected(&resource.metadata));
    let runs = |node: &NodeId| world.pods.contains_key(&world.key.pod(&pool.name, *node));
    !pool.has_resource || is_safe() || has_pod_set(world, &pool.name) || pool.ids.iter().any(runs)
}

/// Does the pool's deletion wait for its nodes?
pub(crate) fn is_protected(pool: &ObjectMeta) -> bool {
    pool.finalizers.iter().flatten().any(|finalizer| finalizer == POOL_FINALIZER)
}

/// Is anything left of a pool's nodes that is still to be deleted, or to be saved from that? Whoever comes after the pool would
/// not know whose it is.
fn has_remains(world: &World, pool: &str) -> bool {
    let is_its = |meta: &Meta| {
        let is_theirs = strangers::controller(world, meta).is_some();
        let is_of_node = meta.labels.contains_key(POD_NAME_LABEL) && !meta.deleting && !is_theirs;
        is_of_node && meta.labels.get(POOL_LABEL).is_some_and(|name| name == pool)
    };
    let is_open = |claim: &Meta| is_disposable(world, claim) || is_to_be_released(world, claim);
    world.config_maps.values().any(|map| is_its(&map.meta))
        || world.secrets.values().any(|secret| is_its(&secret.meta))
        || world.claims.values().any(|claim| is_its(&claim.meta) && is_open(&claim.meta))
}

fn has_pod_set(world: &World, pool: &str) -> bool {
    let set = world.pod_sets.get(&world.key.pod_set(pool));
    set.is_some_and(|set| strangers::controller(world, &set.meta).is_none())
}
