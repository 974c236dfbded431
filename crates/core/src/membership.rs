//! Who votes: which controller joins or leaves the quorum next.
//!
//! One change at a time, and none that could cost the majority. Voters that cannot come back leave first: they only count against
//! the majority. So do those that are not wanted and have been away for long, as long as enough healthy ones are left. Then wanted
//! controllers join, once they are up and caught up. All others leave last, when all who should join have joined, and the leader
//! after all others: a voter that is away for a moment is as good as any.
//!
//! A change that Kafka has just refused lets others go first, so that one node that cannot join keeps no other from it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::certificates;
use crate::cluster::Cluster;
use crate::health;
use crate::ids::{DirectoryId, NodeId};
use crate::names;
use crate::notice::Notice;
use crate::reach;
use crate::reason::Reason;
use crate::world::{PodView, QuorumView, Replica, World};

/// How soon to look again while the quorum changes.
const LOOK_AGAIN: Duration = Duration::from_millis(300);
/// Where three or more controllers are wanted, never fewer than this many healthy ones.
const ENOUGH: usize = 3;
/// A voter that has lacked records for so long is dead. A container that restarts, or a machine that does, is back by then.
const DEAD: Duration = Duration::from_secs(60);

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
    /// Whose vote it is about, if it is about one.
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Self::Join { voter, .. } | Self::Leave { voter, .. } => Some(voter.node),
            Self::MakeDynamic => None,
        }
    }

    /// The reason of the event.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Join { .. } => Reason::VoterAdded,
            Self::Leave { .. } => Reason::VoterRemoved,
            Self::MakeDynamic => Reason::QuorumMigrated,
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
    let waits =
        cluster.voters().filter(|node| certificates::lacks_certificate(world, &cluster.pod_name(*node)));
    let uncertified = waits.map(|node| node.id).collect();
    Comparison { world, quorum, limit, wanted, uncertified, held: held(world, cluster), renewal }.decide()
}

/// Nodes of pools that are not there to be read, or not valid: what they do is left alone.
pub(crate) fn held(world: &World, cluster: &Cluster) -> BTreeSet<NodeId> {
    let known: BTreeSet<String> = cluster.pools.iter().map(|pool| world.key.pod_set(&pool.name)).collect();
    let others = world.pod_sets.iter().filter(|(name, _)| !known.contains(*name));
    others.flat_map(|(_, set)| set.pods.keys().filter_map(|pod| names::node_of_pod(pod))).collect()
}

/// How many healthy voters must be left when one gives up its vote for the sake of its disk, while others who are wanted do not vote.
pub(crate) fn fewest_beside(world: &World, cluster: &Cluster, quorum: &QuorumView) -> usize {
    fewest(cluster.voters().count(), &held(world, cluster), quorum)
}

fn fewest(wanted: usize, held: &BTreeSet<NodeId>, quorum: &QuorumView) -> usize {
    let is_held = |voter: &&Replica| held.contains(&voter.node);
    match wanted + quorum.voters.iter().filter(is_held).count() {
        0 => ENOUGH,
        stay => ENOUGH.min(stay),
    }
}

struct Comparison<'a> {
    world: &'a World,
    quorum: &'a QuorumView,
    limit: Duration,
    wanted: BTreeMap<NodeId, String>,
    /// Of these, those that cannot start before others have restarted to trust who signs their certificates.
    uncertified: BTreeSet<NodeId>,
    held: BTreeSet<NodeId>,
    renewal: &'a Renewal,
}

/// Voters that are to leave, by how urgent that is.
#[derive(Default)]
struct Unwanted<'a> {
    /// They cannot come back: another disk is in the place of theirs, or pod and disk are gone.
    lost: Vec<(&'a Replica, Leaving)>,
    /// They have been away for long.
    dead: Vec<(&'a Replica, Leaving)>,
    /// All others. Who is away for a moment is one of these.
    others: Vec<(&'a Replica, Leaving)>,
}

impl Unwanted<'_> {
    fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.dead.is_empty() && self.others.is_empty()
    }
}

/// What must be left when a voter leaves.
#[derive(Clone, Copy)]
struct Guard {
    /// So many healthy voters, and never less than a majority of those that remain.
    fewest: usize,
    /// A voter for each broker that knows no other.
    keeps_known: bool,
}

impl Guard {
    /// For a voter that counts against the majority as long as it is one, or whose successor takes its place at once.
    const MAJORITY: Self = Self { fewest: 0, keeps_known: false };
}

impl Comparison<'_> {
    fn decide(&self) -> Membership {
        let unwanted = self.unwanted();
        let mut membership = Membership::default();
        let notices = &mut membership.notices;
        let dead = Guard { fewest: self.fewest(), keeps_known: false };
        let others = Guard { fewest: self.fewest(), keeps_known: true };
        let mut changes = self.leaves(&unwanted.lost, Guard::MAJORITY, notices);
        changes.extend(self.leaves(&unwanted.dead, dead, notices));
        let joins = self.joining();
        let all_joined = joins.is_empty();
        changes.extend(joins);
        if all_joined {
            changes.extend(self.leaves(&unwanted.others, others, notices));
        }
        if changes.iter().all(|change| self.is_refused_join(change)) {
            let renewed = self.leaves(&self.renewed(), self.guard_of_renewal(), notices);
            // One that Kafka does not make either takes turns with the others.
            let is_new = renewed.iter().all(|change| self.world.memory.trouble_with(change).is_none());
            if is_new && !renewed.is_empty() {
                changes = renewed;
            } else {
                changes.extend(renewed);
            }
        }
        membership.look_again = (!changes.is_empty() || !unwanted.is_empty()).then_some(LOOK_AGAIN);
        if let Some(change) = self.choose(&changes) {
            let refused = changes.iter().filter(|other| *other != change);
            membership.notices = refused.filter_map(|other| self.refusal(other)).collect();
            membership.change = Some(change.clone());
        }
        membership
    }

    /// The first, unless it was refused: then another one has its turn, but for the leader, which leaves after all others. When all
    /// wait for their time, one of them is chosen all the same, to be told.
    fn choose<'c>(&self, changes: &'c [Change]) -> Option<&'c Change> {
        changes.iter().min_by_key(|change| {
            let is_leader = change.node() == Some(self.quorum.leader);
            let trouble = self.world.memory.trouble_with(change);
            let waits = trouble.is_some_and(|trouble| !self.world.time_until(trouble.until).is_zero());
            (is_leader, waits, trouble.map_or(0, |trouble| trouble.failures))
        })
    }

    /// What Kafka said to a change that lets another one go first.
    fn refusal(&self, change: &Change) -> Option<Notice> {
        let trouble = self.world.memory.trouble_with(change)?;
        Some(Notice::QuorumChangeFailed { change: change.to_string(), why: trouble.why.clone() })
    }

    /// How many healthy voters must be left when one leaves that may come back. Those of pools that cannot be read go on voting. When
    /// nobody at all is to vote, somebody made a mistake.
    fn fewest(&self) -> usize {
        fewest(self.wanted.len(), &self.held, self.quorum)
    }

    /// Does its vote count? A pod can be unready for a moment while its vote is as good as ever: such a voter is not to go
    /// before those who take its place are there.
    fn is_alive(&self, replica: &Replica) -> bool {
        replica.is_caught_up(self.limit) && !health::is_replaced(self.quorum, replica)
    }

    /// Did the leader hear from it within half of the time limit? A leader sends everybody else a heartbeat, and dies if the answer
    /// comes when the voter has been removed ("Unexpected acknowledgement from non-voter"). Since Kafka 4.2 only those get heartbeats;
    /// before, everybody does, and who is late with its fetches is late with its answers too.
    fn keeps_up(&self, replica: &Replica) -> bool {
        replica.is_caught_up(self.limit / 2)
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

    /// Is it about a node that Kafka has refused a vote again and again? Nothing waits for it.
    fn is_refused_join(&self, change: &Change) -> bool {
        matches!(change, Change::Join { voter, .. } if self.world.memory.is_refused_a_vote(voter.node, self.world.now))
    }

    /// That is a change of one disk, and not of how many vote: who leaves joins again. Where Kafka refuses somebody a vote, they are fewer
    /// already.
    fn guard_of_renewal(&self) -> Guard {
        let is_complete = self.awaited().all(|node| self.quorum.has_voter(node));
        if is_complete { Guard::MAJORITY } else { Guard { fewest: self.fewest(), keeps_known: false } }
    }

    /// The controllers that are wanted, without those that wait for others themselves.
    fn awaited(&self) -> impl Iterator<Item = NodeId> {
        self.wanted.keys().copied().filter(|node| !self.uncertified.contains(node))
    }

    /// The voter that gives up its vote for the sake of its pod, if all who are wanted vote, and nobody else is to leave. Who is refused
    /// a vote again and again is not waited for.
    fn renewed(&self) -> Vec<(&Replica, Leaving)> {
        let is_it = |voter: &&Replica| self.renewal.leaves == Some(voter.node);
        let has_its_place = |node: NodeId| {
            self.quorum.has_voter(node) || self.world.memory.is_refused_a_vote(node, self.world.now)
        };
        let is_complete = self.awaited().all(has_its_place);
        let renewed = self.quorum.voters.iter().filter(|_| is_complete).filter(is_it);
        renewed.map(|voter| (voter, Leaving::DiskGoes)).collect()
    }

    /// Voters that are to leave, the leader last.
    fn unwanted(&self) -> Unwanted<'_> {
        let voters = self.quorum.voters.iter().filter(|voter| !self.held.contains(&voter.node));
        let mut all: Vec<_> = voters.filter_map(|voter| Some((voter, self.why_leave(voter)?))).collect();
        all.sort_by_key(|(voter, _)| (voter.node == self.quorum.leader, voter.node));
        let mut unwanted = Unwanted::default();
        for (voter, why) in all {
            let is_dead = self.is_dead(voter);
            let kind = if self.has_new_disk(voter) || is_dead && self.is_gone(voter.node) {
                &mut unwanted.lost
            } else if is_dead {
                &mut unwanted.dead
            } else {
                &mut unwanted.others
            };
            kind.push((voter, why));
        }
        unwanted
    }

    /// Has it been away for long? Of one that was never heard of in this term, nobody knows for how long it was away before.
    fn is_dead(&self, voter: &Replica) -> bool {
        voter.behind.unwrap_or(self.quorum.stable_for) >= DEAD && !voter.is_caught_up(self.limit)
    }

    /// Has it had a minute to catch up, under this leader and in this pod? How long it has lagged, nobody remembers.
    fn lags_for_long(&self, voter: &Replica) -> bool {
        let is_old = |pod: &PodView| pod.meta.created.is_none_or(|made| self.world.time_since(made) >= DEAD);
        let mut pods = self.world.pods.iter().filter(|(_, pod)| !pod.meta.deleting);
        self.quorum.stable_for >= DEAD
            && pods.any(|(name, pod)| names::node_of_pod(name) == Some(voter.node) && is_old(pod))
    }

    /// Are its pod and its disks gone? Then nothing can bring it back.
    fn is_gone(&self, node: NodeId) -> bool {
        let mut left = self.world.pods.keys().chain(self.world.claims.keys());
        !left.any(|name| names::node_of_pod(name) == Some(node))
    }

    /// Does the disk that the node has now fetch, and the one that votes does not?
    fn has_new_disk(&self, voter: &Replica) -> bool {
        let mut observers = self.quorum.observers.iter();
        !voter.is_caught_up(self.limit)
            && observers.any(|observer| {
                observer.node == voter.node
                    && observer.directory != voter.directory
                    && observer.is_caught_up(self.limit)
            })
    }

    fn why_leave(&self, voter: &Replica) -> Option<Leaving> {
        if !self.wanted.contains_key(&voter.node) {
            return Some(Leaving::NotWanted);
        }
        self.has_new_disk(voter).then_some(Leaving::DiskReplaced)
    }

    /// Those of them that can leave now.
    fn leaves(
        &self,
        leaving: &[(&Replica, Leaving)],
        guard: Guard,
        notices: &mut Vec<Notice>,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
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
            // It catches up within moments, or turns out to be dead. Who is dead answers nothing. One that goes on to lag answers late,
            // so a person has to know.
            if !self.is_dead(voter) && !self.has_new_disk(voter) && !self.keeps_up(voter) {
                notices.extend(self.lags_for_long(voter).then_some(Notice::VoterLags { node: voter.node }));
                continue;
            }
            // Brokers that know nobody else restart first; see the rolling update.
            if guard.keeps_known && self.cuts_off_somebody(voter.node) {
                continue;
            }
            if healthy >= health::majority(left).max(guard.fewest) {
                let voter = Voter { node: voter.node, directory };
                changes.push(Change::Leave { voter, why: *why });
            } else if healthy < health::majority(left) {
                // That others are to join first is as it should be.
                notices.push(Notice::VoterStays { node: voter.node, left, healthy, voters: self.sick() });
            }
        }
        changes
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
