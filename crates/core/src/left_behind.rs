//! What brokers leave behind when they go: their claims, and their registrations. Both are as good as records, for with them a
//! broker can be brought back.
//!
//! That nothing lived on a broker was seen to before its pod was told to stop. Until it stopped it served, and Kafka may have given
//! it partitions: in the second in between, or in the hour in which no operator ran. So Kafka is asked once more when the pod is
//! gone, in the very pass in which something of it is to go, and its silence holds. A broker that is gone gets nothing new that
//! anybody could have written to, so that answer does not grow old.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Cluster;
use crate::health;
use crate::ids::NodeId;
use crate::names::{POD_NAME_LABEL, POOL_LABEL, SKIP_CHECK_ANNOTATION, is_true, node_of_pod};
use crate::notice::Notice;
use crate::problem::Problem;
use crate::registration;
use crate::removals;
use crate::safety;
use crate::world::{Answer, ClaimView, PartitionView, Partitions, World};

/// What stays of brokers that are gone.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Claims that stay.
    claims: BTreeSet<String>,
    /// Brokers that stay registered.
    pub(crate) brokers: BTreeSet<NodeId>,
    /// Pods of which claims are left, whether they stay or go.
    pub(crate) pods: BTreeSet<String>,
    /// Kafka has to say first whether partitions live on these.
    pub(crate) partitions_of: BTreeSet<NodeId>,
    /// What stays, and what for.
    pub(crate) notices: Vec<Notice>,
}

impl Kept {
    /// Does this claim stay?
    pub(crate) fn has(&self, claim: &str) -> bool {
        self.claims.contains(claim)
    }
}

/// Finds out what has to stay.
pub(crate) fn judge(world: &World, cluster: &Cluster, refused: &BTreeMap<String, Vec<Problem>>) -> Kept {
    let mut kept = Kept::default();
    let gone = registration::gone(world, cluster);
    let mut claims = BTreeMap::<NodeId, Vec<&ClaimView>>::new();
    for claim in removals::claims(world, cluster, refused) {
        let Some(pod) = claim.meta.labels.get(POD_NAME_LABEL) else { continue };
        kept.pods.insert(pod.clone());
        let node = node_of_pod(pod).filter(|node| may_hold_records(world, cluster, claim, *node));
        if let Some(node) = node.filter(|_| !safety::is_allowed_to_lose(world, pod)) {
            claims.entry(node).or_default().push(claim);
        }
    }
    let nodes: BTreeSet<NodeId> = gone.iter().chain(claims.keys()).copied().collect();
    if nodes.is_empty() || is_true(world.kafka.metadata.annotations.as_ref(), SKIP_CHECK_ANNOTATION) {
        return kept;
    }
    let partitions = world.answers.partitions_of(&nodes);
    if partitions == Answer::NotAsked {
        kept.partitions_of.extend(&nodes);
    }
    for node in nodes {
        let Some(why) = why_kept(world, cluster, &partitions, node) else { continue };
        let claims: Vec<String> =
            claims.get(&node).into_iter().flatten().map(|claim| claim.meta.name.clone()).collect();
        let is_registered = gone.contains(&node);
        if partitions.was_asked() {
            let what = what_stays(&claims, is_registered);
            kept.notices.push(Notice::LeftBehind { node, what, why });
        }
        kept.claims.extend(claims);
        kept.brokers.extend(is_registered.then_some(node));
    }
    kept
}

/// Was it a broker's, as far as anybody can tell? One that never got a volume holds nothing.
fn may_hold_records(world: &World, cluster: &Cluster, claim: &ClaimView, node: NodeId) -> bool {
    let pool = claim.meta.labels.get(POOL_LABEL);
    let pool = cluster.pools.iter().find(|one| pool == Some(&one.name));
    let is_of_brokers = pool.is_none_or(|pool| pool.roles.has_broker());
    // A pool that has controllers only may have had brokers when the node went.
    claim.bound && (is_of_brokers || registration::may_be_registered(world, node))
}

fn why_kept(
    world: &World,
    cluster: &Cluster,
    partitions: &Answer<&Partitions>,
    node: NodeId,
) -> Option<String> {
    let Answer::Known(known) = partitions else {
        return Some(format!("Kafka does not say whether partitions live there ({})", partitions.silence()));
    };
    let elsewhere = cluster.nodes().find(|other| other.id == node && other.pool.roles.has_broker());
    let Some(elsewhere) = elsewhere else {
        let here: Vec<_> = known.on(node).collect();
        return (!here.is_empty()).then(|| format!("partitions live there: {}", health::some_of(&here)));
    };
    // It lives on in another pool, on another disk.
    let is_back = world.pods.get(&cluster.pod_name(elsewhere)).is_some_and(|pod| pod.serves_kafka());
    let behind: Vec<_> = known.on(node).filter(|partition| !is_back || !is_copied(partition, node)).collect();
    (!behind.is_empty()).then(|| {
        format!(
            "it has moved to pool '{}', and has no complete copies yet, or the only ones, of {}",
            elsewhere.pool.name,
            health::some_of(&behind)
        )
    })
}

/// Has the node a complete copy on its new disk, which it got from another one that is there too? Kafka takes a broker that comes
/// back without its disk for complete if it was the only one.
fn is_copied(partition: &PartitionView, node: NodeId) -> bool {
    let is_complete = partition.in_sync.contains(&node) && !partition.offline.contains(&node);
    is_complete && partition.leader.is_some() && partition.in_sync.len() > 1
}

fn what_stays(claims: &[String], is_registered: bool) -> String {
    let registered = is_registered.then(|| "stays registered".to_owned());
    let claims = match claims {
        [] => None,
        claims => Some(format!("keeps {}", health::some_of(claims))),
    };
    claims.into_iter().chain(registered).collect::<Vec<_>>().join(" and ")
}
