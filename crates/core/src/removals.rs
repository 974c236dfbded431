//! What is deleted: only what belongs to a node that is gone, of a pool that is still there to say so.
//!
//! Whose pool cannot be read, or is not there at all, keeps everything.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cluster::Cluster;
use crate::names::{DELETE_CLAIM_ANNOTATION, POD_NAME_LABEL, POOL_FINALIZER, POOL_LABEL};
use crate::plan::{Protection, Removal};
use crate::problem::Problem;
use crate::world::{Meta, World};

/// The objects that are no longer wanted.
pub(crate) fn of(world: &World, cluster: &Cluster, refused: &BTreeMap<String, Vec<Problem>>) -> Vec<Removal> {
    let is_left = |meta: &Meta| {
        let pool =
            meta.labels.get(POOL_LABEL).and_then(|name| cluster.pools.iter().find(|pool| pool.name == *name));
        let (Some(pool), Some(pod)) = (pool, meta.labels.get(POD_NAME_LABEL)) else { return false };
        let is_wanted = pool.ids.iter().any(|id| world.key.pod(&pool.name, *id) == *pod);
        !is_wanted && !refused.contains_key(&pool.name) && !world.pods.contains_key(pod) && !meta.deleting
    };
    let maps = world
        .config_maps
        .values()
        .filter(|map| is_left(&map.meta))
        .map(|map| Removal::ConfigMap { name: map.meta.name.clone(), uid: map.meta.uid.clone() });
    let secrets = world
        .secrets
        .values()
        .filter(|secret| is_left(&secret.meta))
        .map(|secret| Removal::Secret { name: secret.meta.name.clone(), uid: secret.meta.uid.clone() });
    let claims = world.claims.values().filter(|claim| is_left(&claim.meta) && is_disposable(&claim.meta));
    let claims = claims.filter_map(|claim| {
        let (name, uid) = (claim.meta.name.clone(), claim.meta.uid.clone());
        Some(Removal::Claim { name, uid, pod: claim.meta.labels.get(POD_NAME_LABEL)?.clone() })
    });
    let empty = cluster.pools.iter().filter(|pool| pool.ids.is_empty());
    let sets = empty.filter_map(|pool| world.pod_sets.get(&world.key.pod_set(&pool.name)));
    let sets = sets
        .filter(|set| set.pods.is_empty() && !set.meta.deleting)
        .map(|set| Removal::PodSet { name: set.meta.name.clone(), uid: set.meta.uid.clone() });
    maps.chain(secrets).chain(claims).chain(sets).collect()
}

/// The user said that this claim goes with its node.
fn is_disposable(claim: &Meta) -> bool {
    claim.annotations.get(DELETE_CLAIM_ANNOTATION).is_some_and(|value| value == "true")
}

/// Which pools are to be protected from now on, and which no longer.
pub(crate) fn protections(world: &World, cluster: &Cluster) -> BTreeMap<String, Protection> {
    let of_pool = |pool: &crate::cluster::Pool| {
        let meta = &world.pools.get(&pool.name)?.metadata;
        match (pool.is_going, is_protected(meta)) {
            (false, false) => Some((pool.name.clone(), Protection::Add)),
            (true, true) if pool.ids.is_empty() && !has_pod_set(world, &pool.name) => {
                Some((pool.name.clone(), Protection::Remove))
            }
            _ => None,
        }
    };
    cluster.pools.iter().filter(|pool| pool.has_resource).filter_map(of_pool).collect()
}

/// Does the pool's deletion wait for its nodes?
pub(crate) fn is_protected(pool: &ObjectMeta) -> bool {
    pool.finalizers.iter().flatten().any(|finalizer| finalizer == POOL_FINALIZER)
}

fn has_pod_set(world: &World, pool: &str) -> bool {
    world.pod_sets.contains_key(&world.key.pod_set(pool))
}
