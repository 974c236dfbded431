//! What goes wrong: by chance, or as it is written in a script.
//!
//! What chance brought in a run is remembered as strikes. A run under a script of the same strikes is the same run, so a run
//! that went wrong can be told again with fewer of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use karst_core::ids::NodeId;
use karst_core::membership::Voter;
use karst_core::names::node_of_pod;

use crate::kraft::majority;
use crate::kubernetes::{KINDS, Kind};
use crate::scenarios::Edit;
use crate::sim::Sim;

/// What happens to one call of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is made and answered.
    Fine,
    /// The operator dies before it.
    CrashBefore,
    /// The operator dies after it, before it hears the answer.
    CrashAfter,
    /// It is made, and the answer is lost.
    Lost,
    /// It is not made.
    Refused,
    /// It is made, and answered so many moments later.
    Late(u64),
}

/// All that can end a call.
pub const FATES: [Fate; 4] = [Fate::CrashBefore, Fate::CrashAfter, Fate::Lost, Fate::Refused];

/// One thing that went wrong. Times are milliseconds since the run began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Strike {
    /// What befell the call of this number.
    Call(usize, Fate),
    /// The question of this number got no answer.
    Unanswered(usize),
    /// What befell nodes, and when.
    Node(u64, Edit),
    /// From when on, and for how long, a watch of an operator told it nothing.
    Deaf {
        /// From when on.
        at: u64,
        /// Which operator.
        operator: usize,
        /// What it does not hear of.
        kind: Kind,
        /// For how long.
        millis: u64,
        /// With a list that is so old it begins again, if it does not go on where it was, in milliseconds.
        list: Option<u64>,
    },
}

/// For how long a watch tells nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Silence {
    /// Until when.
    pub(crate) until: u64,
    /// How old the list is with which it begins again, if it does not go on where it was, in milliseconds.
    pub(crate) list: Option<u64>,
}

/// For so long a connection may be half open before anybody notices that its watch is silent, in milliseconds.
const HALF_OPEN: u64 = 120_000;
/// So many silent watches of a thousand are.
const HALF_OPEN_OF_THOUSAND: u64 = 50;
/// A list is as old as this at most when it arrives, in milliseconds.
const LIST_ARRIVES: u64 = 3_000;
/// An answer is as many moments late as this at most.
const LATE: u64 = 30;

/// What an operator sees when it starts again: the cluster as it was, for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale {
    /// How old it is, in milliseconds.
    pub back: u64,
    /// How long it stays like that.
    pub hold: u64,
    /// Is all of it equally old? If not, each kind of object is as old as chance has it, up to that age.
    pub together: bool,
}

/// What goes wrong, and how often.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// This befalls the call of this number.
    pub at: Option<(usize, Fate)>,
    /// So many calls in a thousand.
    pub calls: u64,
    /// So many questions to Kafka in a thousand get no answer.
    pub silence: u64,
    /// In so many moments of ten thousand a process dies.
    pub crashes: u64,
    /// In so many moments of ten thousand all processes die.
    pub power_cuts: u64,
    /// In so many moments of ten thousand a disk is lost, if Kafka can do without it.
    pub disks: u64,
    /// In so many moments of ten thousand somebody deletes a pod by hand.
    pub deletions: u64,
    /// In so many moments of ten thousand a broker copies nothing, or reaches no controller, for some seconds.
    pub lags: u64,
    /// In so many moments of ten thousand a watch tells nothing for some seconds.
    pub deafness: u64,
    /// In so many moments of ten thousand in which a voter that was just removed can answer a heartbeat, it does, and the leader dies.
    pub answers: u64,
    /// So many calls in a thousand are answered late.
    pub late: u64,
    /// When it all stops, in milliseconds.
    pub until: u64,
    /// Does the world move between any two calls of a pass?
    pub interleaves: bool,
    /// What an operator sees that starts again, when it is not the truth.
    pub stale: Option<Stale>,
    /// From when until when there are two operators, in milliseconds.
    pub rival: Option<(u64, u64)>,
    /// Exactly this goes wrong, and nothing by chance.
    pub script: Option<Arc<[Strike]>>,
}

impl Sim {
    /// Are faults still to come?
    pub fn is_stormy(&self) -> bool {
        self.now < self.faults.until
    }

    pub(crate) fn misfortune(&mut self) {
        if let Some(script) = self.faults.script.clone() {
            let now = self.now - self.began;
            for strike in script.iter() {
                match strike {
                    Strike::Node(at, edit) if *at == now => edit.befall(self),
                    Strike::Deaf { at, operator, kind, millis, list } if *at == now => {
                        self.deafen(*operator, *kind, *millis, *list);
                    }
                    _ => {}
                }
            }
        } else if self.is_stormy() {
            self.chance();
        }
    }

    fn chance(&mut self) {
        if self.happens(self.faults.crashes)
            && let Some(node) = self.any_node()
        {
            self.strike_nodes(Edit::Crash(node.0));
        }
        if self.happens(self.faults.power_cuts) {
            self.strike_nodes(Edit::PowerCut);
        }
        if self.happens(self.faults.disks)
            && let Some(node) = self.any_node()
            && self.can_lose_disk(node)
        {
            self.strike_nodes(Edit::LoseDisk(node.0));
        }
        if self.happens(self.faults.deletions)
            && let Some(node) = self.any_node()
            && self.can_lose_pod(node)
        {
            self.strike_nodes(Edit::DeletePod(node.0));
        }
        if self.happens(self.faults.lags)
            && let Some(node) = self.any_node()
        {
            let millis = self.fates.between(500, 15_000);
            let is_slow = self.fates.chance(500);
            self.strike_nodes(if is_slow {
                Edit::Slow(node.0, millis)
            } else {
                Edit::CutOff(node.0, millis)
            });
        }
        if let Some(leader) = self.quorum.awaits_answer_of_removed()
            && self.happens(self.faults.answers)
        {
            self.strike_nodes(Edit::Answer(leader.0));
        }
        if self.happens(self.faults.deafness)
            && let Some(kind) = self.fates.pick(&KINDS).copied()
        {
            self.silence_watch(kind);
        }
    }

    fn silence_watch(&mut self, kind: Kind) {
        let has_two = self.faults.rival.is_some();
        let operator = usize::from(self.fates.chance(500) && has_two);
        let mut millis = self.fates.between(500, 8_000);
        // Of two operators only one leads for long.
        let is_half_open = self.weather.chance(HALF_OPEN_OF_THOUSAND) && !has_two;
        if is_half_open {
            millis = self.weather.between(millis, HALF_OPEN);
        }
        let begins_again = self.weather.chance(500) || is_half_open;
        let list = begins_again.then(|| self.weather.between(0, millis.min(LIST_ARRIVES)));
        self.struck.push(Strike::Deaf { at: self.now - self.began, operator, kind, millis, list });
        self.deafen(operator, kind, millis, list);
    }

    /// The watches of an operator that were silent until now, and how old the list is with which each begins again, if it does.
    pub(crate) fn ended_silences(&mut self, operator: usize) -> Vec<(Kind, Option<u64>)> {
        if self.deaf.is_empty() {
            return Vec::new();
        }
        let now = self.now;
        let has_ended = |of: usize, one: &Silence| of == operator && one.until <= now;
        let ended = self.deaf.iter().filter(|((of, _), one)| has_ended(*of, one));
        let ended = ended.map(|((_, kind), one)| (*kind, one.list)).collect();
        self.deaf.retain(|(of, _), one| !has_ended(*of, one));
        ended
    }

    fn happens(&mut self, often: u64) -> bool {
        often > 0 && self.fates.roll() % 10_000 < often
    }

    fn strike_nodes(&mut self, edit: Edit) {
        edit.befall(self);
        self.struck.push(Strike::Node(self.now - self.began, edit));
    }

    /// A watch of an operator tells nothing for a while.
    pub(crate) fn deafen(&mut self, operator: usize, kind: Kind, millis: u64, list: Option<u64>) {
        let then = if list.is_some() { ", and lists then" } else { "" };
        self.tell(|| {
            format!("fate      operator {operator} hears nothing of {kind:?} for {millis} ms{then}")
        });
        self.deaf.insert((operator, kind), Silence { until: self.now + millis, list });
    }

    fn any_node(&mut self) -> Option<NodeId> {
        let nodes: Vec<NodeId> = self.quorum.processes.keys().copied().collect();
        self.fates.pick(&nodes).copied()
    }

    /// A pod on ephemeral disks takes them with it.
    fn can_lose_pod(&self, node: NodeId) -> bool {
        let has_claim = self.api.claims().any(|claim| node_of_pod(&claim.meta.name) == Some(node));
        has_claim || self.can_lose_disk(node)
    }

    /// Would a majority of intact voters be left, and the data of every partition?
    fn can_lose_disk(&self, node: NodeId) -> bool {
        let voters = self.quorum.committed_voters();
        // What a leader knows is one of these, or committed.
        let newest = self.quorum.half_written_voters();
        // A disk that somebody deleted is gone, though what ran on it may not know yet.
        let has_claims = self.api.claims().next().is_some();
        let stays = |voter: &&Voter| {
            let mut own = self.api.claims().filter(|claim| node_of_pod(&claim.meta.name) == Some(voter.node));
            !has_claims || own.any(|claim| !claim.meta.deleting)
        };
        let enough = |voters: &BTreeSet<Voter>| {
            let others = voters.iter().filter(|voter| voter.node != node).filter(stays);
            self.quorum.healthy(others) >= majority(voters.len())
        };
        let data = !self.data.depends_on(node);
        // What the story is still going to take counts as gone: together it would be more than a quorum can lose.
        let is_last = !self.agenda.iter().any(|step| step.edit.takes_disk());
        let is_open = !voters.is_empty() && !self.quorum.is_migrating();
        is_open && enough(&voters) && newest.iter().all(|voters| enough(voters)) && data && is_last
    }

    /// What befalls the next call.
    pub fn fate(&mut self) -> Fate {
        self.calls += 1;
        let number = self.calls;
        if let Some((at, fate)) = self.faults.at {
            return if at == number { fate } else { Fate::Fine };
        }
        if let Some(script) = &self.faults.script {
            let of_this = script.iter().find_map(|strike| match strike {
                Strike::Call(at, fate) if *at == number => Some(*fate),
                _ => None,
            });
            return of_this.unwrap_or(Fate::Fine);
        }
        if self.faults.calls > 0 && self.is_stormy() && self.fates.chance(self.faults.calls) {
            let fate = self.fates.pick(&FATES).copied().unwrap_or(Fate::Fine);
            self.struck.push(Strike::Call(number, fate));
            return fate;
        }
        if self.faults.late > 0 && self.is_stormy() && self.weather.chance(self.faults.late) {
            let fate = Fate::Late(self.weather.between(1, LATE));
            self.struck.push(Strike::Call(number, fate));
            return fate;
        }
        Fate::Fine
    }

    /// Does the next question get no answer, though somebody is there to give one?
    pub fn is_unanswered(&mut self) -> bool {
        self.questions += 1;
        if let Some(script) = &self.faults.script {
            return script.contains(&Strike::Unanswered(self.questions));
        }
        let silence = self.faults.silence;
        let is_unanswered = silence > 0 && self.is_stormy() && self.fates.chance(silence);
        if is_unanswered {
            self.struck.push(Strike::Unanswered(self.questions));
        }
        is_unanswered
    }
}
