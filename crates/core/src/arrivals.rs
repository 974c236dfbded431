//! Brokers that moved to another pool, and have no pod there yet. They start empty, and what they had is on their old claims.
//!
//! That every partition was safe without a broker was seen to before its pod was told to stop. Until it stopped it served, and the others
//! may have gone down in just that moment: then it was the last one that led, and Kafka may elect it with an empty log, after which the
//! others cut theirs down to nothing. So Kafka is asked once more before its new pod is made, and its silence holds. Nothing else is held
//! here: not what finds its own disk, not what never was anywhere else, and nobody where no other broker ever served.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::{Cluster, Node};
use crate::ids::NodeId;
use crate::names::{POD_NAME_LABEL, POOL_LABEL, node_of_pod};
use crate::notice::Notice;
use crate::safety::{self, Judge, Obstacle};
use crate::world::{Answer, ClaimView, World};

/// What came of looking at brokers that arrive.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Nodes whose pods are not made yet.
    pub(crate) held: BTreeSet<NodeId>,
    /// The pods that they had before.
    pub(crate) old_pods: BTreeSet<String>,
    /// Kafka has to say first what is on these.
    pub(crate) partitions_of: BTreeSet<NodeId>,
    /// What they wait for.
    pub(crate) notices: Vec<Notice>,
}

/// Finds out which brokers are not made yet.
pub(crate) fn judge(world: &World, cluster: &Cluster) -> Arrivals {
    let mut arrivals = Arrivals::default();
    let old = old_claims(world, cluster);
    arrivals.old_pods.extend(old.values().filter_map(|claim| old_pod(claim)).cloned());
    let may_lose =
        |claim: &ClaimView| old_pod(claim).is_some_and(|pod| safety::is_allowed_to_lose(world, pod));
    let of: BTreeSet<NodeId> =
        old.iter().filter(|(_, claim)| !may_lose(claim)).map(|(node, _)| *node).collect();
    if of.is_empty() {
        return arrivals;
    }
    let partitions = world.answers.partitions_of(&of);
    if partitions == Answer::NotAsked {
        arrivals.held.extend(&of);
        arrivals.partitions_of = of;
        return arrivals;
    }
    let judge = Judge::new(world, &partitions);
    for node in of {
        let Some((obstacle, claim)) = judge.obstacle_to_empty_start(node).zip(old.get(&node)) else {
            continue;
        };
        arrivals.held.insert(node);
        arrivals.notices.push(notice(node, claim, &obstacle));
    }
    arrivals
}

fn notice(node: NodeId, claim: &ClaimView, obstacle: &Obstacle) -> Notice {
    let pool = claim.meta.labels.get(POOL_LABEL).cloned().unwrap_or_default();
    let why = format!(
        "{obstacle}; what it had is on PVC {}, and the broker finds it again when its id is put back into pool '{pool}'",
        claim.meta.name
    );
    match obstacle.needs_a_person() {
        true => Notice::LossHeld { pool, pod: old_pod(claim).cloned().unwrap_or_default(), why },
        false => Notice::MoveHeld { pool, node, why },
    }
}

fn old_pod(claim: &ClaimView) -> Option<&String> {
    claim.meta.labels.get(POD_NAME_LABEL)
}

/// Of brokers that are to be made, and find nothing of theirs in their pool, the claim that they had last in another one.
fn old_claims<'w>(world: &'w World, cluster: &Cluster) -> BTreeMap<NodeId, &'w ClaimView> {
    let brokers = cluster.nodes().filter(|node| node.pool.roles.has_broker());
    let brokers = brokers.map(|node| (node, cluster.pod_name(node)));
    let (listed, new): (Vec<_>, Vec<_>) =
        brokers.partition(|(node, pod)| is_listed(world, cluster, *node, pod));
    if new.is_empty() || !(has_served(world) || has_worked(world) && !listed.is_empty()) {
        return BTreeMap::new();
    }
    let mut arriving: BTreeMap<NodeId, String> = new.into_iter().map(|(node, pod)| (node.id, pod)).collect();
    let claims = world.claims_by_pod();
    let has_disk = |pod: &str| claims.get(pod).is_some_and(|claims| claims.iter().any(|claim| claim.bound));
    arriving.retain(|_, pod| !has_disk(pod));
    let claims = world.claims.values().filter(|claim| claim.bound && !claim.meta.deleting);
    let mut claims: Vec<_> = claims.collect();
    claims.sort_by_key(|claim| claim.meta.created);
    let old = claims.into_iter().filter_map(|claim| {
        let node = node_of_pod(old_pod(claim)?)?;
        arriving.contains_key(&node).then_some((node, &**claim))
    });
    old.collect()
}

/// Does a broker's pod run, or was it asked for before?
fn is_listed(world: &World, cluster: &Cluster, node: Node<'_>, pod: &str) -> bool {
    let set = world.pod_sets.get(&cluster.key.pod_set(&node.pool.name));
    world.pods.contains_key(pod) || set.is_some_and(|set| set.pods.contains_key(pod))
}

/// Did the cluster work before? Then any other broker of it may be elected, or tell, though its pod is a new one that has not served yet.
fn has_worked(world: &World) -> bool {
    world.kafka.status.as_ref().is_some_and(|status| status.kafka_version.is_some())
}

/// Has any broker of this cluster served? Where none has, nobody could say anything, and nothing is there that anybody could be elected
/// for.
fn has_served(world: &World) -> bool {
    world.pods.values().any(|pod| pod.runs_broker() && pod.was_ready)
}
