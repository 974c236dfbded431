//! Followers that copy the leader's log, and what is committed by that.

use karst_core::ids::NodeId;

use super::fixed::is;
use super::{Follower, Process, Quorum, Record, majority};
use crate::dice::Dice;

impl Quorum {
    /// Everybody copies from the newest leader, and cuts off what it does not have.
    pub(super) fn fetch(&mut self, dice: &mut Dice) {
        let fetches = |one: &&Process| one.office.is_none() && !self.is_cut_off(one.node);
        let nodes: Vec<NodeId> = self.processes.values().filter(fetches).map(|one| one.node).collect();
        for node in nodes {
            if dice.chance(900) {
                self.fetch_one(node, dice);
            }
        }
    }

    fn fetch_one(&mut self, node: NodeId, dice: &mut Dice) {
        let Some(leader) = self.leader().map(|leader| leader.node) else { return };
        let (Some(from), Some(to)) = (self.processes.get(&leader), self.processes.get(&node)) else { return };
        let (Some(office), Some(source), Some(own)) = (&from.office, self.disk_of(from), self.voter_of(to))
        else {
            return;
        };
        let (epoch, has) = (office.epoch, source.log.len());
        let Some(target) = self.disk_of(to) else { return };
        if target.epoch > epoch {
            // Somebody knows of a newer term: this one is over.
            self.end_office(leader);
            return;
        }
        let shared = shared(&source.log, &target.log);
        let upto = if dice.chance(150) { has.min(shared + 1) } else { has };
        let new: Vec<Record> = source.log[shared..upto].to_vec();
        let cut = target.log.len() - shared;
        let disk_name = to.disk.clone();
        if cut > 0 {
            self.said.push(format!("node {node} cuts {cut} records off its log to follow node {leader}"));
        }
        if let Some(disk) = self.disks.get_mut(&disk_name) {
            disk.log.truncate(shared);
            disk.log.extend(new);
            if disk.epoch < epoch {
                disk.epoch = epoch;
                disk.voted = None;
            }
        }
        let now = self.now;
        if let Some(process) = self.processes.get_mut(&node) {
            process.fetched = Some(now);
            process.has_all = upto == has;
        }
        if let Some(office) = self.processes.get_mut(&leader).and_then(|leader| leader.office.as_mut()) {
            let follower =
                office.followers.entry(own).or_insert(Follower { has: 0, fetched: now, caught_up: None });
            follower.has = upto;
            follower.fetched = now;
            if upto == has {
                follower.caught_up = Some(now);
            }
        }
    }

    /// What a majority of the newest voters has is committed, if any of it is of this term.
    pub(super) fn commit(&mut self) {
        let leaders: Vec<NodeId> = self.leaders().map(|leader| leader.node).collect();
        for node in leaders {
            let Some(upto) = self.committable(node) else { continue };
            let Some(process) = self.processes.get_mut(&node) else { continue };
            if let Some(office) = process.office.as_mut() {
                office.committed = office.committed.max(upto);
            }
            self.remember(node, upto);
        }
    }

    fn committable(&self, node: NodeId) -> Option<usize> {
        let leader = self.processes.get(&node)?;
        let (office, disk, own) = (leader.office.as_ref()?, self.disk_of(leader)?, self.voter_of(leader)?);
        let voters = self.known_to(leader)?;
        let mut has: Vec<usize> = voters
            .iter()
            .map(|voter| match office.follower(voter) {
                _ if is(&own, voter) => disk.log.len(),
                Some(follower) => follower.has,
                None => 0,
            })
            .collect();
        has.sort_unstable_by(|a, b| b.cmp(a));
        let upto = *has.get(majority(has.len()) - 1)?;
        let is_of_this_term = upto > 0 && disk.log.get(upto - 1)?.epoch == office.epoch;
        (is_of_this_term && upto > office.committed).then_some(upto)
    }
}

/// How much of two logs is the same, as Kafka sees it: by terms of office.
fn shared(one: &[Record], other: &[Record]) -> usize {
    let common = one.iter().zip(other).rposition(|(one, other)| one.epoch == other.epoch);
    common.map_or(0, |last| last + 1)
}
