//! Heartbeats of a leader to its voters.
//!
//! A leader's process ends when one is answered that votes no more: "Unexpected acknowledgement from non-voter". All versions of
//! Kafka do that. Up to 4.1 every voter is sent a heartbeat each second; since 4.2 only one that is late with its fetches.

use karst_core::ids::NodeId;
use karst_core::membership::Voter;

use super::Quorum;

/// A heartbeat is answered within this time, in milliseconds, or never.
const ANSWERED: u64 = 300;

/// A heartbeat to a voter that was removed after it was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heartbeat {
    leader: NodeId,
    epoch: u32,
    to: Voter,
    removed: u64,
}

impl Quorum {
    /// The leader writes down that somebody is no voter any more, to whom a heartbeat may be on its way.
    pub(super) fn note_removal(&mut self, voter: Voter) {
        let leader = self.leader().filter(|leader| leader.node != voter.node);
        let Some((leader, epoch)) = leader.and_then(|one| Some((one.node, one.office.as_ref()?.epoch)))
        else {
            return;
        };
        self.unanswered = Some(Heartbeat { leader, epoch, to: voter, removed: self.now });
    }

    /// The leader that an answer would kill, if one can come at this moment: before the removal is committed, or after.
    pub fn awaits_answer_of_removed(&self) -> Option<NodeId> {
        let heartbeat = self.unanswered.filter(|one| self.now < one.removed + ANSWERED)?;
        let leads = self.processes.get(&heartbeat.leader).and_then(|leader| leader.office.as_ref());
        let answers = self.processes.get(&heartbeat.to.node).filter(|one| one.controller);
        let is_answered = answers.and_then(|one| self.voter_of(one)) == Some(heartbeat.to);
        (leads.is_some_and(|office| office.epoch == heartbeat.epoch) && is_answered)
            .then_some(heartbeat.leader)
    }
}
