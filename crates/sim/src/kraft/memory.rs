//! What controllers tell a launcher that asks whether its node was there before.

use karst_core::ids::NodeId;
use karst_core::membership::Voter;

use super::{Process, Quorum};

/// What the others know of a node that is to be a first voter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Nobody is there to tell, or only controllers that have heard of no leader since they started.
    Nobody,
    /// Those who are there know nothing of it, and nobody leads.
    Nothing,
    /// Somebody leads, and knows nothing of it.
    New,
    /// It was there, and somebody leads.
    WasThere,
    /// It was there, and nobody leads now.
    NoLeader,
}

impl Quorum {
    /// Controllers register once, when they know everything. That outlives every leader.
    pub(super) fn register_controllers(&mut self) {
        let is_new = |one: &&Process| one.controller && !self.controllers.contains_key(&one.node);
        if !self.processes.values().any(|one| is_new(&one)) || self.open_for_records().is_none() {
            return;
        }
        let new = self.processes.values().filter(is_new);
        let new: Vec<NodeId> =
            new.filter(|one| one.has_all || one.office.is_some()).map(|one| one.node).collect();
        let committed = self.history.len();
        self.controllers.extend(new.into_iter().map(|node| (node, committed)));
    }

    /// What is said when this voter, which does not run, asks for itself.
    pub fn remembers(&self, voter: &Voter) -> Memory {
        let is_registered = self.processes.values().any(|one| self.has_heard_of(one, voter.node));
        match self.leader_has_seen(voter) {
            Some(has_seen) if has_seen || is_registered => Memory::WasThere,
            Some(_) => Memory::New,
            None if is_registered => Memory::NoLeader,
            None if self.processes.values().any(can_tell) => Memory::Nothing,
            None => Memory::Nobody,
        }
    }

    /// Does a controller know that another one is registered?
    fn has_heard_of(&self, process: &Process, node: NodeId) -> bool {
        let has = self.disk_of(process).map_or(0, |disk| disk.log.len());
        can_tell(process) && self.controllers.get(&node).is_some_and(|committed| has >= *committed)
    }

    /// What the leader says of a voter, if somebody leads who can tell: as in [`Quorum::describe`].
    fn leader_has_seen(&self, voter: &Voter) -> Option<bool> {
        let leader = self.leader()?;
        let office = leader.office.as_ref().filter(|office| office.committed > 0)?;
        Some(office.has_seen(&self.voter_of(leader)?, voter))
    }
}

/// Does a controller answer launchers? Before it has heard of a leader it does not know what of its log is agreed on, has made nothing of
/// it, and says only that it cannot tell.
fn can_tell(process: &Process) -> bool {
    let leads = || process.office.as_ref().is_some_and(|office| office.committed > 0);
    process.controller && (process.fetched.is_some() || leads())
}
