//! A voter whose disk is lost gets its old identity back, because a person says so.
//!
//! When a majority of disks is lost, nobody can be elected and nothing can be replaced. Then a person who knows that another
//! voter's disk is intact may name a lost one, with the directory id that it voted under: it is formatted as that voter, on an
//! empty disk, and can only help the intact one into office, whose log is longer. Voters that were so restored must never be a
//! majority by themselves: they could elect one of themselves, and what the intact one knows would be truncated.

use std::time::Duration;

use karst_api as api;

use crate::cluster::Cluster;
use crate::health;
use crate::ids::{DirectoryId, NodeId};
use crate::membership::Voter;
use crate::names::{self, RESTORE_ANNOTATION, RESTORED_POD_ANNOTATION};
use crate::notice::Notice;
use crate::quorum::InitialControllers;
use crate::quorum_status;
use crate::rolling::{Cause, Restart};
use crate::world::{Answer, ClaimView, ConfigMapView, PodView, World};

/// How long a quorum must have been without a leader. An election takes seconds.
const SURE: Duration = Duration::from_secs(60);
const HAS_LEADER: &str =
    "the quorum has a leader, and replaces lost disks by itself; the annotation is taken away";

/// Voters that come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Restoration {
    /// Which.
    restored: Vec<Voter>,
    /// Nodes that start on empty disks too, and first: what they may have copied of the last leader is not what the next one says.
    others: Vec<NodeId>,
    /// Why their pods restart.
    cause: Cause,
    /// All voters, as they were last seen.
    pub(crate) voters: InitialControllers,
    /// Do they take part again?
    pub(crate) is_over: bool,
}

/// What the annotation asks for, if it may be done now.
pub(crate) fn asked_for(world: &World, cluster: &Cluster, notices: &mut Vec<Notice>) -> Option<Restoration> {
    let text = world.kafka.metadata.annotations.as_ref()?.get(RESTORE_ANNOTATION)?;
    match allowed(world, cluster, text) {
        Ok(restoration) => Some(restoration),
        Err(why) => {
            notices.push(Notice::RestorationHeld { asked: text.clone(), why });
            None
        }
    }
}

fn allowed(world: &World, cluster: &Cluster, text: &str) -> Result<Restoration, String> {
    let voter = parse(text)
        .ok_or("it must be the id of a node and its directory id, for example 4:Vy6LdyGnR8W7QEzjKw9z1g")?;
    let voters = last_known(world);
    let known = voters.iter().find(|known| known.node == voter.node);
    match known {
        None => return Err(format!("node {} is not among the voters that were last seen", voter.node)),
        Some(known) if known.directory != voter.directory => {
            return Err(format!("node {} voted with directory {}", known.node, known.directory));
        }
        Some(_) => {}
    }
    let voters_and_hosts = with_hosts(cluster, &voters)?;
    let restoration = |is_over| Restoration {
        restored: vec![voter],
        others: Vec::new(),
        cause: Cause::Restored,
        voters: voters_and_hosts,
        is_over,
    };
    if let Answer::Known(quorum) = &world.answers.quorum {
        let is_back = |one: &crate::world::Replica| {
            one.node == voter.node && one.directory == Some(voter.directory) && one.takes_part
        };
        let is_over = quorum.voters.iter().any(is_back);
        if !is_being_restored(world, voter.node) {
            return Err(HAS_LEADER.to_owned());
        }
        return Ok(restoration(is_over));
    }
    if !is_being_restored(world, voter.node) {
        check_leader(world, &voter, &voters)?;
        check_own_pod(world, &voter)?;
    }
    if world.has_serving_controller() {
        return Err("a controller is ready, so somebody leads; the quorum has to be asked first".to_owned());
    }
    if quorum_status::without_leader_for(world).is_none_or(|time| time < SURE) {
        return Err(format!("the quorum must have been without a leader for {} seconds", SURE.as_secs()));
    }
    check_others(world, &voter, &voters)?;
    Ok(restoration(false))
}

/// All voters come back, on empty disks: for those who know that nothing is left of what they voted for.
pub(crate) fn of_all(cluster: &Cluster, voters: Vec<Voter>) -> Result<Restoration, String> {
    let list = with_hosts(cluster, &voters)?;
    let nodes = cluster.nodes().map(|node| node.id);
    let others = nodes.filter(|node| !voters.iter().any(|voter| voter.node == *node)).collect();
    Ok(Restoration { restored: voters, others, cause: Cause::FormedAnew, voters: list, is_over: false })
}

/// Of the voter that led last the others still say that it leads, in a term of which it knows nothing any more. Kafka 4.1.1 takes that for
/// impossible and ends, each time it starts. Where three voted, the vote of another one does as well.
fn check_leader(world: &World, voter: &Voter, voters: &[Voter]) -> Result<(), String> {
    let led = world.kafka.status.as_ref().and_then(|status| status.quorum.as_ref()?.leader);
    if led != Some(voter.node.0) || voters.len() < 3 {
        return Ok(());
    }
    Err(format!(
        "node {} led last, and the others would still take it for the leader, which Kafka does not survive; name another voter whose disk is lost",
        voter.node
    ))
}

/// What is restored is the successor of a pod that is known: its disk is not the one that is wanted. Of one that is not there, or not for
/// long, nobody could tell it later.
fn check_own_pod(world: &World, voter: &Voter) -> Result<(), String> {
    match pod(world, voter.node) {
        Some(pod) if !pod.meta.deleting => Ok(()),
        _ => Err(format!(
            "the pod of node {} is not there; the node is restored when its pod has been made",
            voter.node
        )),
    }
}

/// Whoever was restored may not be a majority without those who were not, one of whom must be there.
fn check_others(world: &World, voter: &Voter, voters: &[Voter]) -> Result<(), String> {
    let others = || voters.iter().filter(|other| other.node != voter.node);
    let restored = others().filter(|other| is_being_restored(world, other.node)).count() + 1;
    let majority = health::majority(voters.len());
    if restored >= majority {
        return Err(format!(
            "{restored} restored voters of {} would be a majority, and could forget what an intact one knows; restore one at a time, while an intact one is up",
            voters.len()
        ));
    }
    // Which of them is intact only the person knows. One that is down would come back too late to be heard.
    let is_down =
        |other: &&Voter| pod(world, other.node).is_none_or(|pod| pod.phase != "Running" || pod.meta.deleting);
    match others().find(is_down) {
        None => Ok(()),
        Some(down) => Err(format!("voter {} is down, and it may be the intact one", down.node)),
    }
}

fn parse(text: &str) -> Option<Voter> {
    let (node, directory) = text.trim().split_once(':')?;
    Some(Voter { node: NodeId(node.trim().parse().ok()?), directory: directory.trim().parse().ok()? })
}

/// The voters as the status remembers them.
pub(crate) fn last_known(world: &World) -> Vec<Voter> {
    let status = world.kafka.status.as_ref().and_then(|status| status.quorum.as_ref()?.voters.as_ref());
    let voter = |voter: &api::QuorumVoter| {
        let directory: DirectoryId = voter.directory_id.as_ref()?.parse().ok()?;
        Some(Voter { node: NodeId(voter.id?), directory })
    };
    status.into_iter().flatten().filter_map(voter).collect()
}

fn with_hosts(cluster: &Cluster, voters: &[Voter]) -> Result<InitialControllers, String> {
    let controllers = cluster.controllers();
    let entry = |voter: &Voter| {
        let node = controllers.iter().find(|node| node.id == voter.node);
        let node = node.ok_or_else(|| format!("node {} voted, and no pool has it any more", voter.node))?;
        Ok((voter.node, cluster.host(*node), voter.directory))
    };
    voters.iter().map(entry).collect::<Result<Vec<_>, String>>().map(InitialControllers::of_voters)
}

pub(crate) fn pod(world: &World, node: NodeId) -> Option<&PodView> {
    let found = world.pods.iter().find(|(name, _)| names::node_of_pod(name) == Some(node));
    found.map(|(_, pod)| pod.as_ref())
}

pub(crate) fn config_map(world: &World, node: NodeId) -> Option<&ConfigMapView> {
    let found = world.config_maps.iter().find(|(name, _)| names::node_of_pod(name) == Some(node));
    found.map(|(_, map)| map.as_ref())
}

fn is_being_restored(world: &World, node: NodeId) -> bool {
    config_map(world, node).is_some_and(|map| map.meta.annotations.contains_key(RESTORED_POD_ANNOTATION))
}

/// Does the pod that ran when the restoration began run no more, or not for long?
fn is_emptied(world: &World, node: NodeId) -> bool {
    let first = config_map(world, node).and_then(|map| map.meta.annotations.get(RESTORED_POD_ANNOTATION));
    let is_another = |pod: &PodView| first.is_some_and(|first| *first != pod.meta.uid);
    pod(world, node).is_none_or(|pod| pod.meta.deleting || is_another(pod))
}

/// What marks a voter that was restored. It stays until there is a leader again, whatever else is asked for meanwhile.
pub(crate) fn mark(world: &World, node: NodeId) -> Option<String> {
    let marks = config_map(world, node)?;
    let mark = marks.meta.annotations.get(RESTORED_POD_ANNOTATION).cloned();
    mark.filter(|_| world.answers.quorum.known().is_none())
}

/// Did a person ask for a voter to be restored?
pub(crate) fn is_asked(world: &World) -> bool {
    world.kafka.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(RESTORE_ANNOTATION))
}

/// Was it asked for at a time at which it is of no use? A wish that lies in wait could come true at a wrong one.
pub(crate) fn is_idle(world: &World, restoration: Option<&Restoration>) -> bool {
    match restoration {
        // The settings follow when it is gone: as long as it is there, who has not seen the leader would begin once more.
        Some(restoration) => restoration.is_over,
        None => is_asked(world) && world.answers.quorum.known().is_some(),
    }
}

impl Restoration {
    /// Is it about this node?
    pub(crate) fn is_of(&self, node: NodeId) -> bool {
        self.restored.iter().any(|voter| voter.node == node)
    }

    /// Does this node start on an empty disk?
    pub(crate) fn empties(&self, node: NodeId) -> bool {
        self.is_of(node) || self.others.contains(&node)
    }

    /// The pod of a node that ran when the restoration began: its disk is not the one that is wanted.
    pub(crate) fn first_pod(&self, world: &World, node: NodeId) -> String {
        let map = config_map(world, node);
        let remembered = map.and_then(|map| map.meta.annotations.get(RESTORED_POD_ANNOTATION)).cloned();
        let running = || pod(world, node).map(|pod| pod.meta.uid.clone());
        remembered.or_else(running).unwrap_or_default()
    }

    /// The pods start anew, on empty disks, when their settings say as whom. Nobody can be elected before the voters do, so they are last.
    pub(crate) fn restarts(&self, world: &World, cluster: &Cluster) -> Vec<Restart> {
        let nodes: Vec<NodeId> = if self.others.iter().all(|node| is_emptied(world, *node)) {
            self.restored.iter().map(|voter| voter.node).collect()
        } else {
            self.others.clone()
        };
        nodes.into_iter().filter_map(|node| self.restart(world, cluster, node)).collect()
    }

    fn restart(&self, world: &World, cluster: &Cluster, node: NodeId) -> Option<Restart> {
        let map = config_map(world, node)?;
        let pod = pod(world, node)?;
        let is_first = map.meta.annotations.get(RESTORED_POD_ANNOTATION) == Some(&pod.meta.uid);
        if self.is_over || !is_first || pod.meta.deleting {
            return None;
        }
        let pool = cluster.nodes().find(|one| one.id == node)?.pool;
        let claim = pool.storage.metadata_disk().claim_name(&pod.meta.name);
        let claim = claim.and_then(|name| world.claims.get(&name)).map(AsRef::as_ref);
        let identity = |claim: &ClaimView| (claim.meta.name.clone(), claim.meta.uid.clone());
        Some(Restart {
            keeps: Vec::new(),
            loses_disk: true,
            node,
            pod: pod.meta.name.clone(),
            uid: pod.meta.uid.clone(),
            causes: vec![self.cause.clone()],
            claims: claim.map(identity).into_iter().collect(),
            exposed: None,
            leaderless: None,
        })
    }
}
