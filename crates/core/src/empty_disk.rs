//! What an empty disk of a first voter means, for the launcher that finds it.
//!
//! A node formats its disk as that of a first voter until it was seen in the quorum. If that disk is lost before, its successor
//! is as empty as a first one. The launcher asks the other controllers; where nobody answers it goes by what is said here: only
//! the first disk of a node, while no quorum was ever seen, is formatted without anybody's word. A person can decide otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cluster::{Cluster, Node};
use crate::ids::NodeId;
use crate::let_in::LetIn;
use crate::names::{EMPTY_VOTER_ANNOTATION, FIRST_CLAIM_ANNOTATION, node_of_pod};
use crate::notice::Notice;
use crate::quorum::{InitialControllers, StorageFormat};
use crate::restoration::{config_map, pod};
use crate::world::{Answer, ClaimView, PodView, World};

/// For so long a controller that forms a quorum may be unready without a question. It takes less.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the launcher is told of a disk that it finds empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EmptyDisk {
    /// It is the node's first, and no quorum was ever seen.
    New,
    /// It is the node's first, of a quorum that was seen.
    Late,
    /// The node ran on another one before.
    Replaced,
    /// A person said that the node may vote on it.
    Allowed,
}

impl EmptyDisk {
    /// As the launcher reads it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Late => "late",
            Self::Replaced => "replaced",
            Self::Allowed => "allowed",
        }
    }

    /// Of a node that is to form the quorum with these.
    pub(crate) fn of(world: &World, cluster: &Cluster, initial: &InitialControllers, node: Node<'_>) -> Self {
        if LetIn::of_first(world, cluster, initial).has(&cluster.pod_name(node)) {
            return Self::Allowed;
        }
        let is_first = match (first_claim(world, node.id), claim_name(cluster, node)) {
            (Some(first), Some(name)) => {
                world.claims.get(&name).is_some_and(|claim| claim.meta.uid == *first && !claim.meta.deleting)
            }
            // An ephemeral disk goes with its pod, and a node that never ran has lost none.
            _ => true,
        };
        let status = world.kafka.status.as_ref();
        let is_seen =
            status.is_some_and(|status| status.quorum.is_some()) || world.answers.quorum.known().is_some();
        match (is_first, is_seen) {
            (true, false) => Self::New,
            (true, true) => Self::Late,
            (false, _) => Self::Replaced,
        }
    }
}

/// The claim to remember as the one that a node first ran on. Before its container runs there is nothing on a disk that anybody
/// could miss.
pub(crate) fn memory(world: &World, cluster: &Cluster, node: Node<'_>) -> Option<String> {
    let runs = |pod: &&PodView| pod.phase != "Pending" && !pod.meta.deleting;
    let running = || {
        pod(world, node.id).filter(runs)?;
        let claim: &ClaimView = world.claims.get(&claim_name(cluster, node)?)?;
        Some(claim.meta.uid.clone()).filter(|_| claim.bound && !claim.meta.deleting)
    };
    first_claim(world, node.id).cloned().or_else(running)
}

fn first_claim(world: &World, node: NodeId) -> Option<&String> {
    config_map(world, node)?.meta.annotations.get(FIRST_CLAIM_ANNOTATION)
}

fn claim_name(cluster: &Cluster, node: Node<'_>) -> Option<String> {
    node.pool.storage.metadata_disk().claim_name(&cluster.pod_name(node))
}

/// The pods whose nodes a person lets vote on empty disks.
pub(crate) fn allowed(world: &World) -> impl Iterator<Item = &str> {
    let annotations = world.kafka.metadata.annotations.as_ref();
    let named = annotations.and_then(|all| all.get(EMPTY_VOTER_ANNOTATION)).map_or("", String::as_str);
    named.split([',', ' ']).map(str::trim).filter(|name| !name.is_empty())
}

/// Has the annotation served? A word that lies in wait could come true at a wrong time: it goes when somebody leads.
pub(crate) fn is_idle(world: &World) -> bool {
    let annotations = world.kafka.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(EMPTY_VOTER_ANNOTATION))
        && world.answers.quorum.known().is_some()
}

/// Controllers that are to form the quorum, and have not become ready for a while.
fn late(world: &World) -> impl Iterator<Item = (NodeId, &str, &PodView)> {
    let forms = |node| {
        config_map(world, node).and_then(|map| map.storage_format.as_deref())
            == Some(StorageFormat::Initial.as_str())
    };
    let pods = world.pods.iter().filter(|(_, pod)| {
        pod.runs_controller()
            && !pod.ready
            && !pod.meta.deleting
            && pod.stuck.is_none()
            && pod.phase == "Running"
    });
    pods.filter_map(move |(name, pod)| {
        let node = node_of_pod(name).filter(|node| forms(*node))?;
        Some((node, name.as_str(), pod.as_ref()))
    })
}

fn waited(world: &World, pod: &PodView) -> Duration {
    pod.since.map(|since| world.time_since(since)).unwrap_or_default()
}

/// Their launchers, which may know why.
pub(crate) fn questions(world: &World) -> BTreeMap<NodeId, String> {
    let late = late(world).filter(|(node, _, pod)| {
        waited(world, pod) >= PATIENCE && !world.answers.launchers.contains_key(node)
    });
    late.map(|(node, name, _)| (node, world.key.pod_host(name, &world.settings.cluster_domain))).collect()
}

/// When to ask them.
pub(crate) fn look_again(world: &World) -> Option<Duration> {
    late(world)
        .map(|(_, _, pod)| PATIENCE.saturating_sub(waited(world, pod)).max(Duration::from_secs(5)))
        .min()
}

/// That nodes wait, and what a person can do.
pub(crate) fn notice(world: &World) -> Option<Notice> {
    let awaits = |node: &NodeId| {
        let said = world.answers.launchers.get(node).and_then(Answer::known);
        said.is_some_and(|said| said.awaits_leader)
    };
    let pods: BTreeSet<&str> =
        late(world).filter(|(node, _, _)| awaits(node)).map(|(_, name, _)| name).collect();
    let first = (*pods.first()?).to_owned();
    Some(Notice::EmptyDiskHeld { pods: pods.into_iter().collect::<Vec<_>>().join(", "), first })
}
