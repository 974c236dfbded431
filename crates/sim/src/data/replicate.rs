//! Producers that write, followers that copy, and what is acknowledged by that.

use std::collections::BTreeSet;

use karst_core::ids::NodeId;

use super::brokers::Brokers;
use super::log::Log;
use super::loss::Loss;
use super::partition::{Partition, State};
use crate::dice::Dice;

/// For so long a copy may lack records and stay in sync, in milliseconds (`replica.lag.time.max.ms`).
const LAG_TIME: u64 = 10_000;
/// So many records at least, and at most, are copied in a moment.
const RATE: (u64, u64) = (30, 120);

impl Partition {
    /// A producer writes, if it may.
    pub(super) fn write(&mut self, brokers: &Brokers, records: u64) {
        let Some(leader) = self.leader.filter(|leader| self.works(brokers, *leader)) else { return };
        if !self.exists() || self.in_sync.len() < self.least() {
            return;
        }
        let Some(disk) = brokers.directory(leader) else { return };
        self.wake(brokers.now);
        let term = self.term;
        self.copies.entry(disk).or_default().append(term, records);
    }

    /// Something may change from now on. Until now all that are in sync had everything: followers fetch also what there is not, and
    /// their leader counts that.
    pub(super) fn wake(&mut self, now: u64) {
        if self.state == State::Rests {
            self.had_all.extend(self.in_sync.iter().map(|node| (*node, now)));
        }
        if self.exists() {
            self.state = State::Moves;
        }
    }

    /// A moment passes.
    pub(super) fn step(&mut self, brokers: &Brokers, is_led: bool, dice: &mut Dice) -> Option<Loss> {
        if let State::Wanted(records) = self.state {
            if is_led && self.replicas.iter().all(|node| self.works(brokers, *node)) {
                self.create(brokers, records);
            }
            return None;
        }
        let mut loss = is_led.then(|| self.miss(brokers)).flatten();
        let up_to_date = self.copy_from_leader(brokers, dice);
        self.acknowledge(brokers);
        if is_led && self.leader.is_some_and(|leader| brokers.reaches_controllers(leader)) {
            self.join(&up_to_date, brokers, dice);
            loss = loss.or_else(|| self.leave_behind(brokers));
            loss = loss.or_else(|| self.finish_moving(brokers));
        }
        if is_led && self.is_at_rest(brokers, &up_to_date) {
            self.state = State::Rests;
        }
        loss
    }

    /// Followers copy, after they cut off what the leader does not have. Returns the copies that have everything.
    fn copy_from_leader(&mut self, brokers: &Brokers, dice: &mut Dice) -> BTreeSet<NodeId> {
        let mut up_to_date = BTreeSet::new();
        let Some(leader) = self.leader.filter(|leader| self.works(brokers, *leader)) else {
            return up_to_date;
        };
        let Some(source) = brokers.directory(leader) else { return up_to_date };
        let log: Log = std::mem::take(self.copies.entry(source).or_default());
        up_to_date.insert(leader);
        for node in self.replicas.iter().copied().filter(|node| *node != leader) {
            let Some(disk) = brokers.directory(node).filter(|_| self.works(brokers, node)) else { continue };
            let copy = self.copies.entry(disk).or_default();
            if !brokers.is_slow(node) && dice.chance(900) {
                copy.truncate(copy.shared(&log));
                let rate = dice.between(RATE.0, RATE.1);
                copy.copy(&log, log.end().min(copy.end() + rate));
            }
            if *copy == log {
                up_to_date.insert(node);
                self.had_all.insert(node, brokers.now);
            }
        }
        self.copies.insert(source, log);
        up_to_date
    }

    /// What all that are in sync have is acknowledged, if they are enough.
    fn acknowledge(&mut self, brokers: &Brokers) {
        let Some(source) = self.leader.and_then(|leader| brokers.directory(leader)) else { return };
        if self.in_sync.len() < self.least() {
            return;
        }
        let disks = self.in_sync.iter().map(|node| brokers.directory(*node));
        let Some(log) = self.copies.get(&source) else { return };
        let has = disks.map(|disk| {
            let copy = disk.and_then(|disk| self.copies.get(&disk));
            copy.map_or(0, |copy| copy.shared(log))
        });
        let upto = has.min().unwrap_or_default();
        if upto > self.acknowledged.end() {
            self.acknowledged.become_start_of(log, upto);
        }
    }

    /// Copies that have everything are in sync from now on.
    fn join(&mut self, up_to_date: &BTreeSet<NodeId>, brokers: &Brokers, dice: &mut Dice) {
        let new = up_to_date.difference(&self.in_sync).copied();
        let new: Vec<NodeId> =
            new.filter(|node| brokers.is_alive(*node)).filter(|_| dice.chance(150)).collect();
        if new.is_empty() {
            return;
        }
        let mut target = self.in_sync.clone();
        target.extend(new);
        // The leader stays, so nothing can be lost.
        let _ = self.change(target, None, brokers);
        // A broker that died with its disk counts as in sync until it is missed.
        let has_all = |node: &NodeId| brokers.directory(*node).is_some_and(|disk| self.is_complete(disk));
        if self.replicas.iter().all(|node| self.in_sync.contains(node) && has_all(node)) {
            self.destroyed = None;
        }
    }

    /// Copies that lacked records for too long are not in sync any more.
    fn leave_behind(&mut self, brokers: &Brokers) -> Option<Loss> {
        let is_behind = |node: &NodeId| {
            let had_all = self.had_all.get(node).copied().unwrap_or_default();
            Some(*node) != self.leader && brokers.now.saturating_sub(had_all) > LAG_TIME
        };
        let target: BTreeSet<NodeId> = self.in_sync.iter().copied().filter(|node| !is_behind(node)).collect();
        let is_same = target.len() == self.in_sync.len();
        if is_same { None } else { self.change(target, None, brokers) }
    }

    /// When all that were to come are in sync, those go that were to go.
    fn finish_moving(&mut self, brokers: &Brokers) -> Option<Loss> {
        let stays = |node: &NodeId| !self.removing.contains(node);
        let target: BTreeSet<NodeId> = self.in_sync.iter().copied().filter(stays).collect();
        if self.removing.is_empty() || !self.adding.is_subset(&self.in_sync) || target.is_empty() {
            return None;
        }
        let removed = std::mem::take(&mut self.removing);
        self.adding.clear();
        self.replicas.retain(|node| !removed.contains(node));
        self.eligible.retain(|node| !removed.contains(node));
        let loss = self.change(target, None, brokers);
        for disk in removed.iter().filter_map(|node| brokers.directory(*node)) {
            self.copies.remove(&disk);
        }
        loss
    }

    fn is_at_rest(&self, brokers: &Brokers, up_to_date: &BTreeSet<NodeId>) -> bool {
        let rests = |node: &NodeId| match self.works(brokers, *node) {
            true => self.in_sync.contains(node) && up_to_date.contains(node),
            false => !brokers.is_alive(*node) || self.is_offline(brokers, *node),
        };
        // Where nobody can lead nothing changes, whoever waits.
        self.leader.is_none() || (self.removing.is_empty() && self.replicas.iter().all(rests))
    }
}
