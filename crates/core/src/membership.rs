//! Who votes: which controller joins or leaves the quorum next.
//!
//! One change at a time, and none that could cost the majority. Voters that are dead and not wanted, or that a node's new
//! disk replaced, leave first: they only count against the majority. Then wanted controllers join, once they are up and
//! caught up. A voter that is alive leaves last, when all who should join have joined, and the leader after all others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::health;
use crate::ids::{DirectoryId, NodeId};
use crate::names;
use crate::notice::Notice;
use crate::reach;
use crate::world::{QuorumView, Replica, World};

/// How soon to look again while the quorum changes.
const LOOK_AGAIN: Duration = Duration::from_millis(300);
/// Where three or more controllers are wanted, never fewer than this many healthy ones.
const ENOUGH: usize = 3;

/// A voter: a node and the disk it votes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Voter {
    /// The node.
    pub node: NodeId,
    /// Its disk.
    pub directory: DirectoryId,
}

impl fmt::Display for Voter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (directory {})", self.node, self.directory)
    }
}

/// A change of the quorum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A controller that is wanted becomes a voter.
    Join {
        /// Who.
        voter: Voter,
        /// Where it is reached.
        host: String,
    },
    /// A static quorum becomes a dynamic one.
    MakeDynamic,
    /// A voter leaves.
    Leave {
        /// Who.
        voter: Voter,
        /// Why.
        why: Leaving,
    },
}

/// Why a voter leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// Its node is to be no controller any more.
    NotWanted,
    /// Its node has another disk now.
    DiskReplaced,
    /// Its disk goes with its pod, which is about to be replaced. It joins again with the disk that it gets.
    DiskGoes,
}

impl Change {
    /// The reason of the event.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Join { .. } => "VoterAdded",
            Self::Leave { .. } => "VoterRemoved",
            Self::MakeDynamic => "QuorumMigrated",
        }
    }

    /// The node whose pod must still be the one that was seen: who joins does so with the disk of that pod, and who leaves because its
    /// disk goes with its pod does so in vain when that is another pod by now.
    pub fn relies_on_pod_of(&self) -> Option<NodeId> {
        match self {
            Self::Join { voter, .. } | Self::Leave { voter, why: Leaving::DiskGoes } => Some(voter.node),
            Self::Leave { .. } | Self::MakeDynamic => None,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MakeDynamic => f.write_str("the static quorum becomes a dynamic one (kraft.version 1)"),
            Self::Join { voter, .. } => write!(f, "controller {voter} joins the quorum"),
            Self::Leave { voter, why: Leaving::NotWanted } => {
                write!(f, "controller {voter} leaves the quorum, because it is not wanted any more")
            }
            Self::Leave { voter, why: Leaving::DiskGoes } => write!(
                f,
                "controller {voter} leaves the quorum, because its disk goes with its pod; it joins again with a new one"
            ),
            Self::Leave { voter, why: Leaving::DiskReplaced } => {
                write!(f, "controller {voter} leaves the quorum, because the node has another disk now")
            }
        }
    }
}

/// What came of comparing the voters with the controllers that are wanted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// What to change now.
    pub change: Option<Change>,
    /// What cannot be changed now, and why.
    pub notices: Vec<Notice>,
    /// When to look again.
    pub look_again: Option<Duration>,
}

/// Controllers whose disks go with their pods.
#[derive(Debug, Default)]
pub struct Renewal {
    /// This one gives up its vote, so that its pod can be replaced.
    pub leaves: Option<NodeId>,
    /// These get no vote before their pods were replaced.
    pub waiting: BTreeSet<NodeId>,
}

/// Decides the next change of a dynamic quorum.
pub fn next(world: &World, cluster: &Cluster, quorum: &QuorumView, renewal: &Renewal) -> Membership {
    let wanted: BTreeMap<NodeId, String> =
        cluster.voters().map(|node| (node.id, cluster.host(node))).collect();
    let limit = health::fetch_timeout(world);
    Comparison { world, quorum, limit, wanted, held: held(world, cluster), renewal }.decide()
}

/// Nodes of pools that are not there to be read, or not valid: what they do is left alone.
pub(crate) fn held(world: &World, cluster: &Cluster) -> BTreeSet<NodeId> {
    let known: BTreeSet<String> = cluster.pools.iter().map(|pool| world.key.pod_set(&pool.name)).collect();
    let others = world.pod_sets.iter().filter(|(name, _)| !known.contains(*name));
    others.flat_map(|(_, set)| set.pods.keys().filter_map(|pod| names::node_of_pod(pod))).collect()
}

struct Comparison<'a> {
    world: &'a World,
    quorum: &'a QuorumView,
    limit: Duration,
    wanted: BTreeMap<NodeId, String>,
    held: BTreeSet<NodeId>,
    renewal: &'a Renewal,
}

impl Comparison<'_> {
    fn decide(&self) -> Membership {
        let joining = self.joining();
        let (living, dead): (Vec<_>, Vec<_>) =
            self.unwanted().into_iter().partition(|(voter, _)| self.is_alive(voter));
        let mut membership = Membership::default();
        let first = self.first_leave(&dead, 0, &mut membership.notices);
        let change = first.or_else(|| joining.into_iter().next()).or_else(|| {
            let floor = ENOUGH.min(self.wanted.len());
            self.first_leave(&living, floor, &mut membership.notices)
        });
        // That is a change of one disk, and not of how many vote: the floor is for the latter.
        let change = change.or_else(|| self.first_leave(&self.renewed(), 0, &mut membership.notices));
        let is_underway = change.is_some() || !(dead.is_empty() && living.is_empty());
        membership.look_again = is_underway.then_some(LOOK_AGAIN);
        if change.is_some() {
            membership.notices.clear();
        }
        membership.change = change;
        membership
    }

    /// Does its vote count? A pod can be unready for a moment while its vote is as good as ever: such a voter is not to go
    /// before those who take its place are there.
    fn is_alive(&self, replica: &Replica) -> bool {
        replica.is_caught_up(self.limit) && !health::is_replaced(self.quorum, replica)
    }

    /// Is it up, and does it have what the leader has?
    fn is_healthy(&self, replica: &Replica) -> bool {
        self.is_alive(replica)
            && (health::is_up(self.world, replica.node) || self.quorum.leader == replica.node)
    }

    /// Wanted controllers that are up, caught up and no voters yet.
    fn joining(&self) -> Vec<Change> {
        let joins = self.quorum.observers.iter().filter_map(|observer| {
            let host = self.wanted.get(&observer.node)?;
            let voter = Voter { node: observer.node, directory: observer.directory? };
            let is_free =
                !self.quorum.has_voter(observer.node) && !self.renewal.waiting.contains(&observer.node);
            // The leader remembers a disk that is gone for a while. The one that the node has now is ahead of it.
            let is_gone = self.quorum.observers.iter().any(|other| {
                other.node == observer.node
                    && other.directory != observer.directory
                    && other.behind.is_some_and(|behind| observer.behind.is_none_or(|own| behind < own))
            });
            let is_up =
                !is_gone && health::is_up(self.world, observer.node) && observer.is_caught_up(self.limit);
            let would_hold = self.healthy_without(None) + 1 >= health::majority(self.quorum.voters.len() + 1);
            (is_free && is_up && would_hold).then(|| Change::Join { voter, host: host.clone() })
        });
        joins.collect()
    }

    /// The voter that gives up its vote for the sake of its pod, if all who are wanted vote, and nobody else is to leave.
    fn renewed(&self) -> Vec<(&Replica, Leaving)> {
        let is_it = |voter: &&Replica| self.renewal.leaves == Some(voter.node);
        let is_complete = self.wanted.keys().all(|node| self.quorum.has_voter(*node));
        let renewed = self.quorum.voters.iter().filter(|_| is_complete).filter(is_it);
        renewed.map(|voter| (voter, Leaving::DiskGoes)).collect()
    }

    /// Voters that are to leave, the leader last.
    fn unwanted(&self) -> Vec<(&Replica, Leaving)> {
        let mut unwanted: Vec<_> = self
            .quorum
            .voters
            .iter()
            .filter(|voter| !self.held.contains(&voter.node))
            .filter_map(|voter| Some((voter, self.why_leave(voter)?)))
            .collect();
        unwanted.sort_by_key(|(voter, _)| (voter.node == self.quorum.leader, voter.node));
        unwanted
    }

    fn why_leave(&self, voter: &Replica) -> Option<Leaving> {
        if !self.wanted.contains_key(&voter.node) {
            return Some(Leaving::NotWanted);
        }
        // The disk that the node has now fetches; the one that votes does not.
        let replaced = !voter.is_caught_up(self.limit)
            && self.quorum.observers.iter().any(|observer| {
                observer.node == voter.node
                    && observer.directory != voter.directory
                    && observer.is_caught_up(self.limit)
            });
        replaced.then_some(Leaving::DiskReplaced)
    }

    fn first_leave(
        &self,
        leaving: &[(&Replica, Leaving)],
        floor: usize,
        notices: &mut Vec<Notice>,
    ) -> Option<Change> {
        for (voter, why) in leaving {
            let Some(directory) = voter.directory else { continue };
            let (left, healthy) = (self.quorum.voters.len() - 1, self.healthy_without(Some(voter)));
            if left == 0 {
                continue;
            }
            // It may write its end down, and be gone before anybody has copied that. When it comes back, it takes itself for no voter, and
            // votes for nobody who lacks that record.
            if self.quorum.leader == voter.node && health::is_going(self.world, voter.node) {
                continue;
            }
            // Brokers that know nobody else restart first; see the rolling update.
            if floor > 0 && self.cuts_off_somebody(voter.node) {
                continue;
            }
            if healthy >= health::majority(left).max(floor) {
                let voter = Voter { node: voter.node, directory };
                return Some(Change::Leave { voter, why: *why });
            }
            // That others are to join first is as it should be.
            if healthy < health::majority(left) {
                notices.push(Notice::VoterStays { node: voter.node, left, healthy, voters: self.sick() });
            }
        }
        None
    }

    /// Is there a broker that knows no other voter than this one?
    fn cuts_off_somebody(&self, node: NodeId) -> bool {
        let others = self.quorum.voters.iter().map(|voter| voter.node).filter(|other| *other != node);
        let others: BTreeSet<NodeId> = others.collect();
        let pods = self.world.pods.keys();
        let pods = pods.filter(|pod| names::node_of_pod(pod).is_some_and(|node| others.contains(&node)));
        let pods: BTreeSet<String> = pods.cloned().collect();
        // A pod that is about to be replaced will know better.
        let stays =
            |name: &str| names::node_of_pod(name) != Some(node) || !self.renewal.waiting.contains(&node);
        let staying = self.world.pods.iter().filter(|(name, pod)| stays(name) && !pod.meta.deleting);
        staying.into_iter().any(|(_, pod)| reach::is_cut_off(pod, &pods))
    }

    fn healthy_without(&self, without: Option<&Replica>) -> usize {
        let others = self.quorum.voters.iter().filter(|voter| without.is_none_or(|one| one != *voter));
        others.filter(|voter| self.is_healthy(voter)).count()
    }

    /// The voters that are down or behind, for people.
    fn sick(&self) -> String {
        let sick: BTreeSet<_> = self
            .quorum
            .voters
            .iter()
            .filter(|voter| !self.is_healthy(voter))
            .map(|voter| voter.node)
            .collect();
        if sick.is_empty() { "none".to_owned() } else { health::list(&sick) }
    }
}
