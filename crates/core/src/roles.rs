//! Which roles the nodes of a pool have: what the pool asks for, less what is not safe to do.
//!
//! A role is added at once. Brokers stop being brokers only when no partition lives on them. Controllers stop being
//! controllers only in a quorum that lets them leave, and only after all of the pool have left it: until then their settings
//! and pods are described as those of controllers, so that a node that crashes or is drained meanwhile comes back as the
//! voter it is.

use std::collections::BTreeSet;

use karst_api as api;

use crate::cluster::Roles;
use crate::health;
use crate::ids::NodeId;
use crate::names::{POOL_LABEL, SKIP_CHECK_ANNOTATION, is_true, node_of_pod};
use crate::notice::Notice;
use crate::pools::{quorum_is_dynamic, quorum_is_fixed};
use crate::quorum_status;
use crate::resolve::Resolved;
use crate::world::{Answer, World};

/// The roles a pool gets.
pub(crate) fn held(
    world: &World,
    pool: &str,
    asked: &[api::Role],
    status: Option<&api::KafkaNodePoolStatus>,
    resolved: &mut Resolved,
) -> Option<Roles> {
    let asked = Roles::parse(asked);
    let nodes = nodes(world, pool);
    let Some(kept) = current(world, pool, status).filter(|_| !nodes.is_empty()) else { return asked };
    // A list without any role is refused by whoever asked.
    let asked = asked?;
    if asked == kept {
        return Some(kept);
    }
    let mut hold = |given: Roles, why: String| {
        let (pool, asked, kept) = (pool.to_owned(), asked.to_string(), given.to_string());
        resolved.notices.push(Notice::RolesHeld { pool, asked, kept, why });
    };
    if asked.has_controller() != kept.has_controller() && quorum_is_fixed(world) {
        hold(kept, "the quorum is static: its voters cannot change before it is migrated".to_owned());
        return Some(kept);
    }
    if asked.has_broker() || !kept.has_broker() {
        return Some(asked);
    }
    match partitions_on(world, &nodes) {
        Partitions::None => return Some(asked),
        Partitions::Unasked => resolved.partitions_of.extend(nodes),
        Partitions::Some(why) => hold(asked.with_broker(), why),
    }
    Some(asked.with_broker())
}

/// Do nodes of a pool vote, or may they, though it is to get these roles, without controllers?
pub(crate) fn still_votes(
    world: &World,
    pool: &str,
    roles: Roles,
    status: Option<&api::KafkaNodePoolStatus>,
    resolved: &mut Resolved,
) -> bool {
    let nodes = nodes(world, pool);
    if roles.has_controller() || nodes.is_empty() || !quorum_is_dynamic(world) {
        return false;
    }
    let were_controllers = current(world, pool, status).is_some_and(Roles::has_controller);
    match &world.answers.quorum {
        Answer::NotAsked => {
            resolved.asks_quorum |= were_controllers;
            were_controllers
        }
        Answer::Silent(why) if were_controllers => {
            if quorum_status::is_silent_for_long(world) {
                let (pool, nodes) = (pool.to_owned(), health::list(&nodes));
                resolved.notices.push(Notice::QuorumUnknown { pool, nodes, why: why.clone() });
            }
            true
        }
        Answer::Silent(_) => false,
        Answer::Known(quorum) => {
            let votes = nodes.iter().any(|node| quorum.has_voter(*node));
            let may_vote_again = were_controllers && !quorum.is_committed;
            resolved.awaits_commit |= may_vote_again && !votes;
            votes || may_vote_again
        }
    }
}

/// What is known of partitions on the nodes that are to stop being brokers.
enum Partitions {
    /// There are none, or nobody minds.
    None,
    /// Kafka is still to be asked.
    Unasked,
    /// There are some, or there may be.
    Some(String),
}

/// The nodes of a pool that run.
fn nodes(world: &World, pool: &str) -> BTreeSet<NodeId> {
    let set = world.pod_sets.get(&world.key.pod_set(pool));
    set.into_iter().flat_map(|set| set.pods.keys().filter_map(|pod| node_of_pod(pod))).collect()
}

/// The roles that were carried out last; of a pool without a status, those that its pods have.
fn current(world: &World, pool: &str, status: Option<&api::KafkaNodePoolStatus>) -> Option<Roles> {
    let remembered = status.and_then(|status| Roles::parse(status.roles.as_deref()?));
    remembered.or_else(|| {
        let mut roles = Vec::new();
        for pod in
            world.pods.values().filter(|pod| pod.meta.labels.get(POOL_LABEL).is_some_and(|of| of == pool))
        {
            roles.extend(pod.runs_controller().then_some(api::Role::Controller));
            roles.extend(pod.runs_broker().then_some(api::Role::Broker));
        }
        Roles::parse(&roles)
    })
}

fn partitions_on(world: &World, nodes: &BTreeSet<NodeId>) -> Partitions {
    if is_true(world.kafka.metadata.annotations.as_ref(), SKIP_CHECK_ANNOTATION) {
        return Partitions::None;
    }
    let partitions = match world.answers.partitions_of(nodes) {
        Answer::NotAsked => return Partitions::Unasked,
        Answer::Silent(why) => {
            return Partitions::Some(format!(
                "Kafka does not say whether partitions live on its nodes ({why})"
            ));
        }
        Answer::Known(partitions) => partitions,
    };
    let partitions = partitions.by_node();
    let on = |node: &NodeId| {
        let here = partitions.on(*node);
        (!here.is_empty()).then(|| format!("node {node}: {}", health::some_of(here)))
    };
    let here: Vec<_> = nodes.iter().filter_map(on).collect();
    if here.is_empty() {
        return Partitions::None;
    }
    Partitions::Some(format!(
        "partitions live on its nodes ({}); move them to other brokers (kafka-reassign-partitions.sh) first",
        here.join("; ")
    ))
}
