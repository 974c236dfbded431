//! Brokers that are gone are unregistered, so that Kafka forgets them: they would count in every check of versions and show in
//! every listing for ever.
//!
//! From Kafka 4.0 on it tells of all registered brokers, those that do not serve included, and nothing is kept here. Before, it
//! tells of those that serve only: there the status remembers which ones may be registered.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::ids::NodeId;
use crate::membership;
use crate::memory::Trouble;
use crate::names;
use crate::notice::Notice;
use crate::terminating;
use crate::world::{Answer, PodView, World};

/// The first version that tells of brokers that do not serve.
const TELLS_OF_ALL: (u32, u32) = (4, 0);

/// The brokers to unregister now.
pub(crate) fn gone(world: &World, cluster: &Cluster) -> BTreeSet<NodeId> {
    let kept = kept(world, cluster);
    let Answer::Known(registered) = &world.answers.registered else { return BTreeSet::new() };
    // Whoever reads no brokers at all has read something wrong.
    if cluster.broker_count() == 0 {
        return BTreeSet::new();
    }
    let candidates: BTreeSet<NodeId> = if registered.fenced_known {
        registered.brokers.iter().filter(|broker| broker.fenced).map(|broker| broker.node).collect()
    } else {
        let serving: BTreeSet<NodeId> = registered.brokers.iter().map(|broker| broker.node).collect();
        tracked(world).difference(&serving).copied().collect()
    };
    candidates.difference(&kept).copied().collect()
}

/// How many brokers are being unregistered at a time. Kafka may be made to name any number of them.
const AT_ONCE: usize = 8;

/// Those of the brokers that are gone to unregister now. What Kafka would not do before counts: only when it was done, others follow.
pub(crate) fn next(world: &World, gone: BTreeSet<NodeId>) -> Vec<NodeId> {
    let failed: BTreeSet<NodeId> =
        world.memory.troubles.iter().filter_map(Trouble::of_unregistration).collect();
    let (before, new): (Vec<_>, Vec<_>) = gone.into_iter().partition(|node| failed.contains(node));
    before.into_iter().chain(new).take(AT_ONCE).collect()
}

/// Is the node registered as a broker, as far as anybody can tell?
pub(crate) fn may_be_registered(world: &World, node: NodeId) -> bool {
    let Answer::Known(registered) = &world.answers.registered else { return true };
    registered.brokers.iter().any(|broker| broker.node == node)
        || !registered.fenced_known && tracked(world).contains(&node)
}

/// How long a broker serves before it is told that it does not answer: while they restart, an answer gets lost now and then.
const SETTLED: Duration = Duration::from_secs(60);

/// That brokers which have served for a while do not say which brokers are registered.
pub(crate) fn untold(world: &World) -> Option<Notice> {
    let Answer::Silent(why) = &world.answers.registered else { return None };
    let mut serving = world.pods.values().filter(|pod| pod.runs_broker() && pod.serves_kafka());
    let long_ago = |time| world.time_since(time) >= SETTLED;
    let serves_for_long = serving.any(|pod| pod.since.is_none_or(long_ago));
    let restarts = |pod: &PodView| match pod.meta.deleting {
        true => terminating::overdue_since(world, &pod.meta).is_none(),
        false => pod.meta.created.is_some_and(|made| !long_ago(made)),
    };
    let is_settled = serves_for_long && !world.pods.values().any(|pod| restarts(pod));
    is_settled.then(|| Notice::BrokersUntold { why: why.clone() })
}

/// Brokers that are wanted, that run, or whose pool cannot be read.
fn kept(world: &World, cluster: &Cluster) -> BTreeSet<NodeId> {
    let wanted = cluster.nodes().filter(|node| node.pool.roles.has_broker()).map(|node| node.id);
    let running = world.pods.iter().filter(|(_, pod)| pod.runs_broker());
    let running = running.filter_map(|(name, _)| names::node_of_pod(name));
    wanted.chain(running).chain(membership::held(world, cluster)).collect()
}

fn tracked(world: &World) -> BTreeSet<NodeId> {
    let status = world.kafka.status.as_ref().and_then(|status| status.registered_node_ids.as_ref());
    status.into_iter().flatten().copied().map(NodeId).collect()
}

/// What the status must remember before anything else is done; `None` when it does.
pub(crate) fn to_remember(world: &World, cluster: &Cluster) -> Option<Value> {
    let tracked = tracked(world);
    if tells_of_all(world, cluster) {
        let has_field =
            world.kafka.status.as_ref().is_some_and(|status| status.registered_node_ids.is_some());
        return has_field.then(|| json!({ "registeredNodeIds": null }));
    }
    let brokers = cluster.nodes().filter(|node| node.pool.roles.has_broker()).map(|node| node.id);
    let all: BTreeSet<NodeId> = tracked.iter().copied().chain(brokers).collect();
    (all != tracked).then(|| json!({ "registeredNodeIds": all }))
}

/// The list without a broker that was unregistered; `None` where nothing is remembered.
pub fn without(world: &World, node: NodeId) -> Option<Value> {
    world.kafka.status.as_ref()?.registered_node_ids.as_ref()?;
    let mut rest = tracked(world);
    rest.remove(&node);
    Some(json!({ "registeredNodeIds": rest }))
}

/// Does Kafka tell of all registered brokers? Its own word counts; before it has spoken, the oldest version that runs.
fn tells_of_all(world: &World, cluster: &Cluster) -> bool {
    if let Answer::Known(registered) = &world.answers.registered {
        return registered.fenced_known;
    }
    let running = world.pods.values().filter_map(|pod| crate::upgrade::version_of(pod));
    running.chain([cluster.version]).all(|version| version.minor() >= TELLS_OF_ALL)
}
