//! Elections: who stands, who grants a vote, and what a winner does first.

use std::collections::BTreeMap;
use std::sync::Arc;

use karst_core::ids::NodeId;
use karst_core::membership::Voter;

use super::fixed::is;
use super::{FETCH_TIMEOUT, Office, Process, Quorum, Record, Voters, What, majority};
use crate::dice::Dice;

impl Quorum {
    pub(super) fn elect(&mut self, dice: &mut Dice) {
        let candidates: Vec<NodeId> =
            self.processes.values().filter(|one| self.could_stand(one)).map(|one| one.node).collect();
        for node in candidates {
            if dice.chance(150) {
                self.stand(node, dice);
            }
        }
    }

    /// Is it a voter that has not heard from a leader for too long?
    fn could_stand(&self, process: &Process) -> bool {
        let Some(own) = self.voter_of(process) else { return false };
        let votes = self.known_to(process).is_some_and(|voters| voters.iter().any(|one| is(&own, one)));
        process.controller && process.office.is_none() && votes && self.is_lonely(process)
    }

    fn is_lonely(&self, process: &Process) -> bool {
        self.now.saturating_sub(process.fetched.unwrap_or(process.since)) > FETCH_TIMEOUT
    }

    fn stand(&mut self, node: NodeId, dice: &mut Dice) {
        let Some(process) = self.processes.get(&node) else { return };
        let (Some(disk), Some(own)) = (self.disk_of(process), self.voter_of(process)) else { return };
        let Some(voters) = self.known_to(process).cloned() else { return };
        // Whoever refuses tells the newest term it knows.
        let told = voters.iter().filter_map(|voter| self.disk_of(self.processes.get(&voter.node)?));
        let epoch = told.map(|disk| disk.epoch).chain([disk.epoch]).max().unwrap_or_default() + 1;
        let reach = disk.reach();
        let granting: Vec<Voter> = voters
            .iter()
            .copied()
            .filter(|voter| is(&own, voter) || (dice.chance(900) && self.would_grant(voter, epoch, reach)))
            .collect();
        let wins = granting.len() >= majority(voters.len());
        // Without the hope of a majority a candidate does not raise the term, but for lost messages.
        if !wins && !dice.chance(50) {
            return;
        }
        for voter in &granting {
            let Some(disk) = self.processes.get(&voter.node).map(|one| one.disk.clone()) else { continue };
            if let Some(disk) = self.disks.get_mut(&disk) {
                disk.epoch = epoch;
                disk.voted = Some(own);
            }
        }
        if wins {
            self.take_office(own, epoch, &voters);
        }
    }

    fn would_grant(&self, voter: &Voter, epoch: u32, reach: (u32, usize)) -> bool {
        let Some(process) = self.processes.get(&voter.node) else { return false };
        let Some(disk) = self.disk_of(process) else { return false };
        // A replica that was formatted anew has another directory, and does not answer for the old one.
        let own = Voter { node: process.node, directory: disk.directory };
        let is_same = is(&own, voter) && process.controller;
        let is_free = disk.epoch < epoch && process.office.is_none() && self.is_lonely(process);
        is_same && is_free && disk.reach() <= reach
    }

    fn take_office(&mut self, own: Voter, epoch: u32, voters: &Voters) {
        self.said.push(format!("node {} leads, term {epoch}", own.node));
        let Some(disk_name) = self.processes.get(&own.node).map(|one| one.disk.clone()) else { return };
        let history = self.history.len();
        let Some(disk) = self.disks.get_mut(&disk_name) else { return };
        let keeps = disk.log.len() >= history && disk.log[..history] == self.history[..];
        let had = disk.log.len();
        disk.log.push(Record { epoch, what: What::Leader(own) });
        if disk.founders.is_some() && !disk.log.iter().any(|record| matches!(record.what, What::Voters(_))) {
            disk.log.push(Record { epoch, what: What::Voters(Arc::clone(voters)) });
        }
        if let Some(process) = self.processes.get_mut(&own.node) {
            process.office =
                Some(Office { epoch, since: self.now, committed: 0, followers: BTreeMap::new() });
        }
        if !keeps {
            self.fail(format!(
                "node {} leads with {had} records, and lacks some of the {history} that are committed: \
                 acknowledged metadata is lost",
                own.node
            ));
        }
    }
}
