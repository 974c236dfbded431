//! Kafka's data: partitions whose copies lie on disks, producers that are told what is safe, and what became of that.
//!
//! A copy goes with its disk. The leader of a partition acknowledges what all copies that are in sync have, if they are enough.
//! Who is in sync, who is eligible and who leads is decided as Kafka's controllers decide it since 4.1 (KIP-966).

mod brokers;
mod log;
mod loss;
mod partition;
mod replicate;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use karst_core::ids::{DirectoryId, NodeId};
use karst_core::world::PartitionView;

use crate::dice::Dice;
use crate::kraft::Quorum;
use brokers::Brokers;
pub use loss::{Destroyed, Doom, Loss};
pub use partition::Partition;
use partition::State;

/// So many records are in a partition from the beginning: a copy of them takes a while.
pub const RECORDS: u64 = 1_000;
/// In so many moments of a thousand a producer writes to some partition.
const WRITES: u64 = 250;

/// All of Kafka's data.
#[derive(Debug, Clone)]
pub struct Data {
    /// The partitions.
    pub partitions: Vec<Partition>,
    /// The brokers.
    pub brokers: Brokers,
    /// A die of its own: what happens to records changes nothing else.
    pub(crate) dice: Dice,
    /// Disks that will be gone by what the operator did.
    doomed: BTreeMap<DirectoryId, Doom>,
    /// What was lost since somebody last asked.
    pub losses: Vec<Loss>,
    /// What brokers that are cut off from the controllers still believe.
    stale: BTreeMap<NodeId, Vec<PartitionView>>,
    /// Which life of the cluster the partitions are of.
    life: usize,
    /// Do controllers keep who is eligible to lead? Not in a cluster that was made before Kafka 4.1.
    pub has_eligible: bool,
    is_led: bool,
    /// How many copies are in sync, and since when it is that many.
    in_sync: usize,
    pub(crate) moved: u64,
}

impl Default for Data {
    fn default() -> Self {
        Self {
            partitions: Vec::new(),
            brokers: Brokers::default(),
            dice: Dice::new(0),
            doomed: BTreeMap::new(),
            losses: Vec::new(),
            stale: BTreeMap::new(),
            life: 0,
            has_eligible: true,
            is_led: false,
            in_sync: 0,
            moved: 0,
        }
    }
}

impl Data {
    /// A user creates a topic of one partition, with copies on these brokers.
    pub fn create(&mut self, topic: &'static str, index: i32, on: &[i32], min: usize, records: u64) {
        let mut partition = Partition::wanted(topic, index, on, min, records);
        partition.has_eligible = self.has_eligible;
        self.partitions.push(partition);
    }

    /// A user moves all copies of one broker to the first of these that has none yet, or drops them if there is no such one.
    pub fn reassign(&mut self, from: NodeId, to: &[i32]) {
        for partition in self.partitions.iter_mut().filter(|one| one.replicas.contains(&from)) {
            let target = to.iter().copied().map(NodeId).find(|node| !partition.replicas.contains(node));
            partition.replicas.extend(target);
            partition.adding.extend(target);
            partition.removing.insert(from);
            partition.wake(self.brokers.now);
        }
    }

    /// One directory of a broker fails: half of its copies cannot be read any more.
    pub fn fail_directory(&mut self, node: NodeId) {
        self.brokers.failed.extend(self.brokers.directory(node));
        self.wake_all();
    }

    fn wake_all(&mut self) {
        let now = self.brokers.now;
        self.partitions.iter_mut().for_each(|one| one.wake(now));
    }

    /// A broker copies nothing for a while.
    pub fn slow_down(&mut self, node: NodeId, millis: u64) {
        self.brokers.slow_down(node, millis);
    }

    /// A moment passes.
    pub fn step(&mut self, quorum: &mut Quorum, now: u64) {
        let is_other = self.brokers.observe(quorum, now);
        self.lose_disks(quorum);
        self.begin_anew(quorum);
        self.remember_views(quorum);
        let was_led = std::mem::replace(&mut self.is_led, quorum.has_leader());
        if is_other || self.is_led != was_led {
            self.wake_all();
        }
        let Self { partitions, brokers, dice, losses, .. } = self;
        if self.is_led {
            // They register one after the other, and are taken for alive until then.
            while let Some(node) = brokers.unclean.first().copied() {
                brokers.unclean.remove(0);
                losses.extend(partitions.iter_mut().filter_map(|one| one.distrust(node, brokers)));
            }
        }
        if !partitions.is_empty() && dice.chance(WRITES) {
            let chosen = usize::try_from(dice.roll()).unwrap_or_default() % partitions.len();
            let records = dice.between(1, 3);
            if let Some(partition) = partitions.get_mut(chosen) {
                partition.write(brokers, records);
            }
        }
        for partition in partitions.iter_mut().filter(|one| one.state != State::Rests) {
            losses.extend(partition.step(brokers, self.is_led, dice));
        }
        let in_sync = self.partitions.iter().map(|one| one.in_sync.len()).sum();
        if std::mem::replace(&mut self.in_sync, in_sync) != in_sync {
            self.moved = now;
        }
    }

    fn lose_disks(&mut self, quorum: &mut Quorum) {
        for disk in std::mem::take(&mut quorum.lost) {
            let doom = self.doomed.remove(&disk);
            self.brokers.failed.remove(&disk);
            for partition in &mut self.partitions {
                self.losses.extend(partition.lose(disk, doom.as_ref()));
            }
        }
    }

    /// A cluster that starts over knows no topics. Its users make them again.
    fn begin_anew(&mut self, quorum: &Quorum) {
        if quorum.lives != self.life {
            self.life = quorum.lives;
            self.partitions.iter_mut().for_each(Partition::forget);
        }
    }

    /// A broker that is cut off from now on goes by what it knows now.
    fn remember_views(&mut self, quorum: &Quorum) {
        self.stale.retain(|node, _| quorum.is_cut_off(*node));
        for node in quorum.cut_off() {
            if !self.stale.contains_key(&node) {
                let views = self.views();
                self.stale.insert(node, views);
            }
        }
    }

    fn views(&self) -> Vec<PartitionView> {
        self.partitions.iter().filter(|one| one.exists()).map(|one| one.view(&self.brokers)).collect()
    }

    /// What a broker says of the partitions with a copy on one of these.
    pub fn views_of(&self, broker: NodeId, of: &BTreeSet<NodeId>) -> Vec<PartitionView> {
        let is_one = |view: &PartitionView| !view.replicas.is_disjoint(of);
        if let Some(stale) = self.stale.get(&broker) {
            return stale.iter().filter(|view| is_one(view)).cloned().collect();
        }
        let on = self.partitions.iter().filter(|one| one.exists() && !one.replicas.is_disjoint(of));
        on.map(|one| one.view(&self.brokers)).collect()
    }

    /// The partitions with a copy on a node.
    pub fn on(&self, node: NodeId) -> impl Iterator<Item = &Partition> {
        self.partitions.iter().filter(move |one| one.exists() && one.replicas.contains(&node))
    }

    /// The first of them.
    pub fn first_on(&self, node: NodeId) -> Option<String> {
        self.on(node).next().map(ToString::to_string)
    }

    /// The operator stops a broker, at this time.
    pub fn note_stop(&mut self, node: NodeId) {
        let now = self.brokers.now;
        for partition in self.partitions.iter_mut().filter(|one| one.replicas.contains(&node)) {
            partition.stopped.insert(node, now);
        }
    }

    /// Did the operator stop a copy of the partition since then?
    pub fn stopped_since(&self, partition: &Partition, then: u64) -> bool {
        partition.stopped.values().any(|at| *at >= then)
    }

    /// Other copies of the partition that the operator stopped, and that are not back in sync.
    pub fn stopped_besides(&self, partition: &Partition, node: NodeId) -> BTreeSet<NodeId> {
        let is_back = |other: NodeId, at: u64| {
            partition.in_sync.contains(&other) && self.brokers.serves_since(other, at)
        };
        let others = partition.stopped.iter().filter(|(other, _)| **other != node);
        let away = others.filter(|(other, at)| partition.replicas.contains(other) && !is_back(**other, **at));
        away.map(|(other, _)| *other).collect()
    }

    /// A disk will be gone by what the operator does now. Returns what would be lost with it.
    pub fn doom(&mut self, disk: DirectoryId, doom: Doom) -> Option<String> {
        self.doomed.entry(disk).or_insert(doom);
        let is_going = |other: DirectoryId| self.doomed.contains_key(&other);
        let has_copy = |one: &&Partition| one.exists() && one.is_complete(disk);
        let lost = self.partitions.iter().filter(has_copy).find(|one| one.would_be_lost(is_going));
        lost.map(ToString::to_string)
    }

    /// Would a partition lose its last complete copy with this node's disk, though it is to have several?
    pub fn depends_on(&self, node: NodeId) -> bool {
        let disk = self.brokers.directory(node);
        self.on(node).any(|one| {
            one.replicas.len() > 1
                && one.would_be_lost(|other| Some(other) == disk || self.doomed.contains_key(&other))
        })
    }

    /// Does nobody wait for records?
    pub fn is_settled(&self) -> bool {
        let waits = |one: &Partition| one.state == State::Moves;
        let moves = self.is_led && self.partitions.iter().any(waits);
        !moves && !self.brokers.are_disturbed()
    }

    /// A partition that nobody leads.
    pub fn without_leader(&self) -> Option<&Partition> {
        self.partitions.iter().find(|one| one.leader.is_none())
    }
}

impl Partition {
    /// Nothing of it is left.
    fn forget(&mut self) {
        let replicas = self.replicas.difference(&self.removing).copied().collect();
        let (term, has_eligible) = (self.term, self.has_eligible);
        *self =
            Self { term, replicas, has_eligible, ..Self::wanted(self.topic, self.index, &[], self.min, 0) };
    }
}
