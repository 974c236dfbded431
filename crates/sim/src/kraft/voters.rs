//! Voters that come and go: one change at a time, each done when it is committed.

use std::collections::BTreeSet;
use std::sync::Arc;

use karst_core::membership::Voter;

use super::{Pending, Quorum, Refused, Voters, What};

impl Quorum {
    /// Can a change of the voters be made now? Gives the leader's disk, term and voters.
    fn open_for_change(&self, cluster: &str) -> Result<(String, u32, Voters), Refused> {
        let leader = self.leader().ok_or(Refused::NoLeader)?;
        let office = leader.office.as_ref().ok_or(Refused::NoLeader)?;
        let disk = self.disk_of(leader).ok_or(Refused::NoLeader)?;
        if disk.cluster != cluster {
            return Err(Refused::OtherCluster);
        }
        if disk.voters().is_none() {
            return Err(Refused::Static);
        }
        let last = disk.log.iter().rposition(|record| matches!(record.what, What::Voters(_)));
        if office.committed == 0 || last.is_some_and(|last| last >= office.committed) {
            return Err(Refused::Busy);
        }
        Ok((leader.disk.clone(), office.epoch, disk.voters().cloned().ok_or(Refused::NoLeader)?))
    }

    /// AddRaftVoter. Returns where in the log the change is: it is made when that is committed.
    pub fn add(&mut self, cluster: &str, voter: Voter) -> Result<Pending, Refused> {
        let (disk, epoch, voters) = self.open_for_change(cluster)?;
        if voters.iter().any(|one| one.node == voter.node) {
            return Err(Refused::Duplicate);
        }
        let office = self.leader().and_then(|leader| leader.office.as_ref()).ok_or(Refused::NoLeader)?;
        // Kafka's own measure is lenient: caught up once, and fetched not long ago.
        let is_fit = office.followers.get(&voter).is_some_and(|follower| follower.caught_up.is_some())
            && self.processes.get(&voter.node).is_some_and(|process| process.controller);
        if !is_fit {
            return Err(Refused::Behind);
        }
        let mut new = (*voters).clone();
        new.insert(voter);
        Ok(self.write_voters(&disk, epoch, new))
    }

    /// RemoveRaftVoter.
    pub fn remove(&mut self, cluster: &str, voter: Voter) -> Result<Pending, Refused> {
        let (disk, epoch, voters) = self.open_for_change(cluster)?;
        if !voters.contains(&voter) || voters.len() == 1 {
            return Err(Refused::NotFound);
        }
        let mut new = (*voters).clone();
        new.remove(&voter);
        self.note_removal(voter);
        Ok(self.write_voters(&disk, epoch, new))
    }

    fn write_voters(&mut self, disk: &str, epoch: u32, voters: BTreeSet<Voter>) -> Pending {
        self.write(disk, epoch, What::Voters(Arc::new(voters)))
    }
}
