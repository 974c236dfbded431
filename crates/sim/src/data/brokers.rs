//! Brokers, as far as partitions depend on them: who copies, whom the controllers believe to be alive, and on which disk.

use std::collections::{BTreeMap, BTreeSet};

use karst_core::ids::{DirectoryId, NodeId};

use crate::kraft::{End, Process, Quorum};

/// What a broker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It does not run. Until it is missed the controllers take it for alive, unless it said that it goes.
    Away { has_said: bool },
    /// It runs, and does not serve yet.
    Starts,
    /// It serves.
    Serves,
}

/// A broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Broker {
    directory: DirectoryId,
    since: u64,
    phase: Phase,
    is_missed: bool,
    is_slow: bool,
    is_cut_off: bool,
}

/// All brokers.
#[derive(Debug, Clone, Default)]
pub struct Brokers {
    known: BTreeMap<NodeId, Broker>,
    /// Until when brokers copy nothing.
    slow: BTreeMap<NodeId, u64>,
    /// Disks of which one directory failed.
    pub(super) failed: BTreeSet<DirectoryId>,
    /// Brokers that came back, and had not ended in peace. The controllers do not know it yet.
    pub(super) unclean: Vec<NodeId>,
    /// What time it is.
    pub(super) now: u64,
}

impl Brokers {
    /// Looks who is there. Tells whether anything is not as it was.
    pub(super) fn observe(&mut self, quorum: &mut Quorum, now: u64) -> bool {
        self.now = now;
        let mut is_other = self.hear_of_ends(quorum);
        self.slow.retain(|_, until| *until > now);
        for process in quorum.processes.values().filter(|process| process.broker) {
            let Some(directory) = quorum.directory_of(process) else { continue };
            let known = self.known.get(&process.node);
            let is_new = known.is_none_or(|known| {
                matches!(known.phase, Phase::Away { .. }) || known.since != process.since
            });
            if is_new && !process.ended_well {
                self.unclean.push(process.node);
            }
            let broker = self.seen(quorum, process, directory);
            if known != Some(&broker) {
                is_other = true;
                self.known.insert(process.node, broker);
            }
        }
        for (node, broker) in &mut self.known {
            let is_missed = quorum.is_missed(*node);
            if matches!(broker.phase, Phase::Away { .. }) && broker.is_missed != is_missed {
                broker.is_missed = is_missed;
                is_other = true;
            }
        }
        is_other
    }

    fn seen(&self, quorum: &Quorum, process: &Process, directory: DirectoryId) -> Broker {
        Broker {
            directory,
            since: process.since,
            phase: if process.serves.is_some() { Phase::Serves } else { Phase::Starts },
            is_missed: quorum.is_missed(process.node),
            is_slow: self.slow.contains_key(&process.node),
            is_cut_off: quorum.is_cut_off(process.node),
        }
    }

    fn hear_of_ends(&mut self, quorum: &mut Quorum) -> bool {
        let ended = std::mem::take(&mut quorum.ended);
        for (node, end) in &ended {
            if let Some(broker) = self.known.get_mut(node) {
                broker.phase = Phase::Away { has_said: *end == End::InPeace };
                self.unclean.retain(|other| other != node);
            }
        }
        !ended.is_empty()
    }

    /// A broker copies nothing for a while.
    pub(super) fn slow_down(&mut self, node: NodeId, millis: u64) {
        self.slow.insert(node, self.now + millis);
    }

    /// The disk that a node has, or had last.
    pub(super) fn directory(&self, node: NodeId) -> Option<DirectoryId> {
        self.known.get(&node).map(|broker| broker.directory)
    }

    /// Does it serve?
    pub fn serves(&self, node: NodeId) -> bool {
        self.known.get(&node).is_some_and(|broker| broker.phase == Phase::Serves)
    }

    /// Has it served since it was started after this time?
    pub(super) fn serves_since(&self, node: NodeId, after: u64) -> bool {
        self.serves(node) && self.known.get(&node).is_some_and(|broker| broker.since > after)
    }

    /// Do the controllers take it for alive?
    pub(super) fn is_alive(&self, node: NodeId) -> bool {
        self.known.get(&node).is_some_and(|broker| match broker.phase {
            Phase::Away { has_said } => !has_said && !broker.is_missed,
            // Its registration comes first.
            Phase::Starts => !broker.is_missed && self.unclean.contains(&node),
            Phase::Serves => !broker.is_missed,
        })
    }

    /// Does it reach the controllers?
    pub(super) fn reaches_controllers(&self, node: NodeId) -> bool {
        self.known.get(&node).is_some_and(|broker| !broker.is_cut_off)
    }

    pub(super) fn is_slow(&self, node: NodeId) -> bool {
        self.known.get(&node).is_some_and(|broker| broker.is_slow)
    }

    /// Is a broker slow, or cut off?
    pub(super) fn are_disturbed(&self) -> bool {
        !self.slow.is_empty()
            || self
                .known
                .values()
                .any(|broker| broker.is_cut_off && !matches!(broker.phase, Phase::Away { .. }))
    }
}
