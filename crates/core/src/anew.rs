//! A cluster of which every disk was ephemeral, and is gone, is formed anew.
//!
//! An ephemeral disk goes with its pod. When no pod is left that was there while the quorum had a leader, nothing is left of
//! what the cluster knew and held, and nobody can be elected any more: only a cluster that starts over is of use to anybody.
//! The voters come back under the identities that they had, for nobody else has them any more. As long as one disk is left,
//! on a broker too, a person decides.

use std::time::Duration;

use crate::cluster::{Cluster, Node};
use crate::health;
use crate::ids::NodeId;
use crate::membership::Voter;
use crate::names::DISK_ANNOTATION;
use crate::notice::Notice;
use crate::quorum::Kind;
use crate::restoration::{self, Restoration, config_map, pod};
use crate::world::{QuorumView, World};
use crate::{pods, quorum_status};

/// How long a quorum must have been without a leader. An election takes seconds.
const SURE: Duration = Duration::from_secs(20);

/// What there is to do about a cluster that may have lost everything.
#[derive(Debug, Default)]
pub(crate) struct Anew {
    /// All its voters, if it is to start over.
    pub(crate) restoration: Option<Restoration>,
    /// What people should know.
    pub(crate) notice: Option<Notice>,
    /// When to look again.
    pub(crate) look_again: Option<Duration>,
}

/// Is everything gone?
pub(crate) fn next(world: &World, cluster: &Cluster) -> Anew {
    let voters = restoration::last_known(world);
    let may_lead = world.answers.quorum.known().is_some() || world.has_serving_controller();
    if voters.is_empty() || may_lead || Kind::of(world) != Kind::Dynamic || !is_ephemeral(world, cluster) {
        return Anew::default();
    }
    let gone = voters.iter().filter(|voter| !has_disk(world, voter.node)).count();
    if gone < health::majority(voters.len()) {
        return Anew::default();
    }
    let waited = quorum_status::without_leader_for(world).unwrap_or_default();
    if waited < SURE {
        return Anew { look_again: Some(SURE.saturating_sub(waited)), ..Anew::default() };
    }
    match left(world, cluster, &voters) {
        left if left.is_empty() => Anew {
            restoration: restoration::of_all(cluster, voters).ok(),
            notice: Some(Notice::FormedAnew),
            look_again: None,
        },
        left => Anew { notice: Some(Notice::DisksLeft { pods: left.join(", ") }), ..Anew::default() },
    }
}

fn is_ephemeral(world: &World, cluster: &Cluster) -> bool {
    world.claims.is_empty() && cluster.pools.iter().all(pods::is_ephemeral)
}

/// The pods whose disks were there while the quorum had a leader.
fn left(world: &World, cluster: &Cluster, voters: &[Voter]) -> Vec<String> {
    let nodes = cluster.nodes().map(|node| node.id);
    let nodes = nodes
        .filter(|node| has_disk(world, *node) || (is_voter(voters, *node) && disk(world, *node).is_none()));
    nodes.filter_map(|node| Some(pod(world, node)?.meta.name.clone())).collect()
}

fn is_voter(voters: &[Voter], node: NodeId) -> bool {
    voters.iter().any(|voter| voter.node == node)
}

/// The pod that held what the node knew when the quorum was last seen.
fn disk(world: &World, node: NodeId) -> Option<&String> {
    config_map(world, node)?.meta.annotations.get(DISK_ANNOTATION)
}

fn has_disk(world: &World, node: NodeId) -> bool {
    disk(world, node).is_some_and(|uid| pod(world, node).is_some_and(|pod| pod.meta.uid == *uid))
}

/// Which pod to remember as the one that has the node's disk. A pod that serves has it, for it found a leader and caught up, though
/// nobody may lead any more. Of others only a leader can tell: a pod that comes later is empty.
pub(crate) fn memory(world: &World, cluster: &Cluster, node: Node<'_>) -> Option<String> {
    if !is_ephemeral(world, cluster) {
        return None;
    }
    let remembered = disk(world, node.id);
    let quorum = world.answers.quorum.known();
    let takes_part =
        |quorum: &QuorumView| quorum.voters.iter().any(|voter| voter.node == node.id && voter.takes_part);
    let is_new = || remembered.is_none() && quorum.is_some_and(takes_part);
    let pod = pod(world, node.id).filter(|pod| pod.serves_kafka() || is_new());
    pod.map(|pod| &pod.meta.uid).or(remembered).cloned()
}
