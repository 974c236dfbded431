//! Controllers that left the quorum, and that Kafka has not forgotten.
//!
//! The metadata version moves only when every registered node can follow, and up to Kafka 4.3 there is no way to unregister a
//! controller: one that left before an upgrade stays registered with what its old version could do. So it runs once more, on
//! the new version and on an empty disk, as an observer that never votes. It registers anew, the metadata version moves, and
//! it goes again. That it runs is the only memory there is: nothing is kept anywhere else.

use std::collections::BTreeSet;

use karst_api as api;

use crate::cluster::{Cluster, Pool, Roles};
use crate::health;
use crate::ids::NodeId;
use crate::names::{self, POOL_LABEL};
use crate::notice::Notice;
use crate::steps::Deed;
use crate::storage::Storage;
use crate::upgrade;
use crate::versions;
use crate::world::{Meta, World};

/// The pool of the controllers that run once more.
pub(crate) const POOL: &str = "returning";

/// Adds the controllers that must run once more to the cluster, or what is left of them while they go.
pub(crate) fn bring_back(world: &World, cluster: &mut Cluster, notices: &mut Vec<Notice>) {
    if world.pools.contains_key(POOL) {
        return;
    }
    let departed = departed(world, cluster);
    let nodes = match world.answers.quorum.known() {
        // Whoever cannot be asked has not said that they may go.
        None => there(world),
        Some(_) if must_run(world, cluster) => departed.clone(),
        Some(_) => BTreeSet::new(),
    };
    if is_in_the_way(world, cluster) && !departed.is_empty() {
        notices.push(Notice::ControllersRegistered {
            nodes: health::list(&departed),
            metadata: cluster.metadata_version,
        });
    }
    if !nodes.is_empty() || has_remains(world) {
        cluster.pools.extend(pool(world, cluster, nodes));
    }
}

/// Controllers that are registered, and that no pool has.
fn departed(world: &World, cluster: &Cluster) -> BTreeSet<NodeId> {
    let Some(quorum) = world.answers.quorum.known().filter(|quorum| quorum.is_dynamic) else {
        return BTreeSet::new();
    };
    let is_elsewhere = |node: &NodeId| {
        let pods = world.pods.iter().filter(|(_, pod)| !is_ours(&pod.meta));
        let sets = world.pod_sets.values().filter(|set| !is_ours(&set.meta));
        let described = sets.flat_map(|set| set.pods.keys());
        cluster.pools.iter().any(|pool| pool.ids.contains(node))
            || pods.map(|(name, _)| name).chain(described).any(|name| names::node_of_pod(name) == Some(*node))
    };
    quorum.registered.iter().filter(|node| !is_elsewhere(node)).copied().collect()
}

/// Is a newer metadata version wanted than the one that is there?
fn is_in_the_way(world: &World, cluster: &Cluster) -> bool {
    let level = world.answers.quorum.known().and_then(|quorum| quorum.metadata_level);
    matches!((level, versions::metadata_level(cluster.metadata_version)), (Some(has), Some(wanted)) if has < wanted)
}

/// They run from the moment at which everything else is ready for the new metadata version and Kafka refused it, until it is
/// there.
fn must_run(world: &World, cluster: &Cluster) -> bool {
    let refused = || world.memory.troubles.iter().any(|trouble| matches!(trouble.deed, Deed::Metadata(_)));
    let began = !there(world).is_empty();
    is_in_the_way(world, cluster) && (began || (refused() && upgrade::is_settled(world, cluster)))
}

fn is_ours(meta: &Meta) -> bool {
    meta.labels.get(POOL_LABEL).is_some_and(|pool| pool == POOL)
}

fn has_remains(world: &World) -> bool {
    world.pod_sets.values().any(|set| is_ours(&set.meta))
        || world.pods.values().any(|pod| is_ours(&pod.meta))
        || world.config_maps.values().any(|map| is_ours(&map.meta))
        || world.secrets.values().any(|secret| is_ours(&secret.meta))
}

/// Those that run already, or are about to.
fn there(world: &World) -> BTreeSet<NodeId> {
    let set = world.pod_sets.get(&world.key.pod_set(POOL)).filter(|set| is_ours(&set.meta));
    let described = set.into_iter().flat_map(|set| set.pods.keys());
    let running = world.pods.iter().filter(|(_, pod)| is_ours(&pod.meta)).map(|(name, _)| name);
    described.chain(running).filter_map(|pod| names::node_of_pod(pod)).collect()
}

/// Like the controllers of the first pool that has any, but for their disks.
fn pool(world: &World, cluster: &Cluster, nodes: BTreeSet<NodeId>) -> Option<Pool> {
    let model = cluster.pools.iter().find(|pool| pool.roles.has_controller())?;
    let disk = api::Storage::ephemeral();
    Some(Pool {
        name: POOL.to_owned(),
        roles: Roles::Controller,
        storage: Storage::parse("storage", &disk).ok()?,
        storage_written: disk,
        wanted: nodes.len(),
        leaving: nodes.clone(),
        ids: nodes.union(&there(world)).copied().collect(),
        nodes: nodes.into_iter().collect(),
        is_going: false,
        has_resource: false,
        ..model.clone()
    })
}
