//! Who could be missed: voters that are caught up, partitions that have enough replicas in sync.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::ids::NodeId;
use crate::names;
use crate::world::{QuorumView, Replica, World};

/// How many partitions a message names before it only counts.
const NAMED: usize = 10;
/// Kafka's own default for how long a follower may be silent.
const FETCH_TIMEOUT: Duration = Duration::from_secs(2);

/// How far a voter may be behind and still count as caught up.
pub(crate) fn fetch_timeout(world: &World) -> Duration {
    let config = world.kafka.spec.kafka.config.as_ref();
    let set = config.and_then(|config| config.get("controller.quorum.fetch.timeout.ms"));
    let millis = set.and_then(|value| value.as_u64().or_else(|| value.as_str()?.trim().parse().ok()));
    millis.map_or(FETCH_TIMEOUT, Duration::from_millis)
}

/// The voters, without one node, that are caught up and whose pod serves.
pub(crate) fn caught_up_without(world: &World, quorum: &QuorumView, node: NodeId) -> BTreeSet<NodeId> {
    let limit = fetch_timeout(world);
    let voters = quorum.voters.iter().filter(|voter| voter.node != node && voter.is_caught_up(limit));
    voters
        .filter(|voter| !is_replaced(quorum, voter))
        .map(|voter| voter.node)
        .filter(|voter| is_up(world, *voter))
        .collect()
}

/// Nodes of which a disk is being deleted. It is gone as soon as its pod is.
pub(crate) fn losing_disks(world: &World) -> BTreeSet<NodeId> {
    let going = world.claims.values().filter(|claim| claim.meta.deleting);
    going.filter_map(|claim| names::node_of_pod(&claim.meta.name)).collect()
}

/// Does the node run on another disk than the one that votes? Its pod serves then, and its vote is lost: for a moment the
/// disk that is gone still counts as caught up.
pub(crate) fn is_replaced(quorum: &QuorumView, voter: &Replica) -> bool {
    quorum.observers.iter().any(|observer| {
        observer.node == voter.node
            && observer.directory != voter.directory
            && observer.behind.is_some_and(|behind| voter.behind.is_none_or(|lost| behind < lost))
    })
}

/// Does the node's pod serve as a controller?
pub(crate) fn is_up(world: &World, node: NodeId) -> bool {
    world.pods.iter().any(|(name, pod)| {
        names::node_of_pod(name) == Some(node) && pod.serves_kafka() && pod.runs_controller()
    })
}

/// Is the node's pod on its way out?
pub(crate) fn is_going(world: &World, node: NodeId) -> bool {
    world.pods.iter().any(|(name, pod)| names::node_of_pod(name) == Some(node) && pod.meta.deleting)
}

/// How many voters make a majority.
pub(crate) fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

/// The first few, and how many more there are.
pub(crate) fn some_of(things: &[impl ToString]) -> String {
    some_of_more(things, 0)
}

/// The same of things that are not all here.
pub(crate) fn some_of_more(things: &[impl ToString], elsewhere: usize) -> String {
    let named: Vec<_> = things.iter().take(NAMED).map(ToString::to_string).collect();
    match things.len().saturating_sub(NAMED).saturating_add(elsewhere) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Node ids for people.
pub(crate) fn list(ids: &BTreeSet<NodeId>) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
