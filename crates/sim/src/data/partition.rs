//! One partition: what the controllers know of it, and its copies on disks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use karst_core::ids::{DirectoryId, NodeId};
use karst_core::world::PartitionView;

use super::brokers::Brokers;
use super::log::Log;
use super::loss::{Destroyed, Loss};

/// A partition.
#[derive(Debug, Clone)]
pub struct Partition {
    pub(super) topic: &'static str,
    pub(super) index: i32,
    /// `min.insync.replicas` of its topic.
    pub min: usize,
    /// Who has a copy, or is to get one.
    pub replicas: BTreeSet<NodeId>,
    /// Those that are to get one.
    pub(super) adding: BTreeSet<NodeId>,
    /// Those that are to give theirs up.
    pub(super) removing: BTreeSet<NodeId>,
    /// Are the controllers to choose a leader when the last copy in sync goes (KIP-966)?
    pub(super) has_eligible: bool,
    /// Who leads.
    pub leader: Option<NodeId>,
    pub(super) term: u32,
    /// The complete copies.
    pub in_sync: BTreeSet<NodeId>,
    /// Copies that are not in sync any more, and have all that was acknowledged.
    pub eligible: BTreeSet<NodeId>,
    /// Who led last, while nobody does and nobody is eligible.
    pub last_known: Option<NodeId>,
    pub(super) last_leader: Option<NodeId>,
    /// The copies, by their disks.
    pub(super) copies: BTreeMap<DirectoryId, Log>,
    /// What was acknowledged to producers.
    pub(super) acknowledged: Log,
    /// When a copy that is in sync last had everything.
    pub(super) had_all: BTreeMap<NodeId, u64>,
    /// Copies that the operator stopped, and when.
    pub(super) stopped: BTreeMap<NodeId, u64>,
    /// The last complete copy that was destroyed since there were enough.
    pub(super) destroyed: Option<Destroyed>,
    pub(super) state: State,
}

/// What is to be done about a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It is to be created once its brokers serve, with so many records in it.
    Wanted(u64),
    /// Something may change.
    Moves,
    /// Nothing changes as long as nobody comes, goes or writes.
    Rests,
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.index)
    }
}

impl Partition {
    /// One that is to be created, with so many records in it.
    pub(super) fn wanted(topic: &'static str, index: i32, on: &[i32], min: usize, records: u64) -> Self {
        Self {
            topic,
            index,
            min,
            replicas: on.iter().copied().map(NodeId).collect(),
            adding: BTreeSet::new(),
            removing: BTreeSet::new(),
            has_eligible: true,
            leader: None,
            term: 0,
            in_sync: BTreeSet::new(),
            eligible: BTreeSet::new(),
            last_known: None,
            last_leader: None,
            copies: BTreeMap::new(),
            acknowledged: Log::default(),
            had_all: BTreeMap::new(),
            stopped: BTreeMap::new(),
            destroyed: None,
            state: State::Wanted(records),
        }
    }

    /// How many complete copies a write needs: never more than there are to be.
    pub fn least(&self) -> usize {
        self.min.min(self.replicas.len() - self.adding.len())
    }

    /// Is there a copy more than a write needs, beside those of these nodes?
    pub fn is_protectable_without(&self, nodes: &BTreeSet<NodeId>) -> bool {
        self.replicas.difference(nodes).count() > self.min
    }

    pub(super) fn exists(&self) -> bool {
        !matches!(self.state, State::Wanted(_))
    }

    /// Does the copy of a node lie in a directory that failed?
    pub(super) fn is_offline(&self, brokers: &Brokers, node: NodeId) -> bool {
        let is_there = self.index % 2 == 1;
        is_there && brokers.directory(node).is_some_and(|directory| brokers.failed.contains(&directory))
    }

    fn may_lead(&self, brokers: &Brokers, node: NodeId) -> bool {
        brokers.is_alive(node) && !self.is_offline(brokers, node)
    }

    /// Does it serve, so that copies are made from it or by it?
    pub(super) fn works(&self, brokers: &Brokers, node: NodeId) -> bool {
        brokers.serves(node) && !self.is_offline(brokers, node)
    }

    /// It is created, with copies that are all alike.
    pub(super) fn create(&mut self, brokers: &Brokers, records: u64) {
        self.state = State::Moves;
        self.term += 1;
        self.in_sync.clone_from(&self.replicas);
        self.leader = self.replicas.first().copied();
        let mut log = Log::default();
        log.append(self.term, records);
        let disks = self.replicas.iter().filter_map(|node| brokers.directory(*node));
        self.copies = disks.map(|disk| (disk, log.clone())).collect();
        self.had_all = self.replicas.iter().map(|node| (*node, brokers.now)).collect();
        self.acknowledged = log;
    }

    /// The controllers take those out of it that are not alive.
    pub(super) fn miss(&mut self, brokers: &Brokers) -> Option<Loss> {
        let target: BTreeSet<NodeId> =
            self.in_sync.iter().copied().filter(|node| self.may_lead(brokers, *node)).collect();
        let leads = self.leader.is_some_and(|leader| self.may_lead(brokers, leader));
        if target == self.in_sync && leads {
            return None;
        }
        self.change(target, None, brokers)
    }

    /// A broker came back that had not ended in peace: what it had may be gone.
    pub(super) fn distrust(&mut self, node: NodeId, brokers: &Brokers) -> Option<Loss> {
        if !self.has_eligible || !(self.in_sync.contains(&node) || self.eligible.contains(&node)) {
            return None;
        }
        let mut target = self.in_sync.clone();
        target.remove(&node);
        self.change(target, Some(node), brokers)
    }

    /// Other copies are in sync: who is eligible then, and who leads. As Kafka's `PartitionChangeBuilder` does it.
    pub(super) fn change(
        &mut self,
        mut target: BTreeSet<NodeId>,
        unclean: Option<NodeId>,
        brokers: &Brokers,
    ) -> Option<Loss> {
        if !self.has_eligible {
            if target.is_empty() {
                target.clone_from(&self.in_sync);
            }
        } else if target.len() >= self.least() {
            self.eligible.clear();
        } else {
            self.eligible.extend(self.in_sync.iter().copied());
            self.eligible.retain(|node| !target.contains(node) && Some(*node) != unclean);
        }
        let became_empty = target.is_empty() && !self.in_sync.is_empty();
        self.in_sync = target;
        self.state = State::Moves;
        self.last_leader = self.leader.or(self.last_leader);
        let loss = self.elect(brokers);
        if self.leader.is_some() {
            self.last_known = None;
        } else if became_empty {
            self.last_known = self.last_leader;
        }
        loss
    }

    fn elect(&mut self, brokers: &Brokers) -> Option<Loss> {
        let is_fit = |own: &Self, node: NodeId| own.in_sync.contains(&node) || own.eligible.contains(&node);
        if self.leader.is_some_and(|leader| is_fit(self, leader) && self.may_lead(brokers, leader)) {
            return None;
        }
        let mut fit = self.replicas.iter().copied();
        let elected = fit.find(|node| is_fit(self, *node) && self.may_lead(brokers, *node));
        let nobody_is_fit = self.in_sync.is_empty() && self.eligible.is_empty();
        let last_known = self.last_known.filter(|last| nobody_is_fit && self.may_lead(brokers, *last));
        self.leader = elected.or(last_known);
        let leader = self.leader?;
        self.term += 1;
        self.eligible.remove(&leader);
        if !self.in_sync.contains(&leader) {
            self.in_sync = BTreeSet::from([leader]);
        }
        // A new leader gives those that are in sync the whole time to show it.
        self.had_all.extend(self.in_sync.iter().map(|node| (*node, brokers.now)));
        self.lost_by_election(leader, brokers)
    }

    /// What Kafka says of it.
    pub(super) fn view(&self, brokers: &Brokers) -> PartitionView {
        PartitionView {
            topic: self.topic.into(),
            index: self.index,
            leader: self.leader,
            replicas: self.replicas.clone(),
            in_sync: self.in_sync.clone(),
            eligible: self.eligible.clone(),
            last_known: self.last_known.into_iter().collect(),
            offline: self.replicas.iter().copied().filter(|node| self.is_offline(brokers, *node)).collect(),
            min_in_sync: Some(self.min),
        }
    }
}
