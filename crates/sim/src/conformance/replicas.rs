//! What is done to brokers, and who is in sync, eligible and leads after it: for the simulated Kafka, and for a real one.
//!
//! One partition with three copies on the brokers 0, 1 and 2, in this order, and one controller apart from them. The real one must not
//! move leaders by itself (`auto.leader.rebalance.enable=false`).

use std::collections::BTreeSet;
use std::fmt;

use karst_core::ids::{DirectoryId, Entropy, NodeId};
use karst_core::membership::Voter;

use crate::data::Data;
use crate::dice::Dice;
use crate::kraft::{Disk, LEVEL, Quorum, Voters};

/// Both are left alone for so long after each step, in milliseconds: longer than a broker that died is taken for alive.
pub const SETTLE: u64 = 20_000;
/// The controller.
pub const CONTROLLER: i32 = 9;

/// Something that is done to a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// It is asked to end.
    Stop(i32),
    /// It is killed.
    Kill(i32),
    /// It starts, on the disk that it has.
    Start(i32),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A sequence, and what it is called.
#[derive(Debug, Clone, Copy)]
pub struct Sequence {
    /// Its name.
    pub name: &'static str,
    /// `min.insync.replicas`.
    pub min: usize,
    /// What is done.
    pub steps: &'static [Operation],
}

/// What DescribeTopicPartitions says of the partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// Who leads.
    pub leader: Option<i32>,
    /// Who is in sync.
    pub in_sync: BTreeSet<i32>,
    /// Who is eligible.
    pub eligible: BTreeSet<i32>,
    /// Who was known last.
    pub last_known: BTreeSet<i32>,
}

/// All sequences.
pub fn sequences() -> Vec<Sequence> {
    use Operation::{Kill, Start, Stop};
    vec![
        Sequence {
            name: "stopped one after the other",
            min: 2,
            steps: &[Stop(0), Stop(1), Stop(2), Start(0), Start(1), Start(2), Start(0)],
        },
        Sequence {
            name: "the last one dies",
            min: 2,
            steps: &[Stop(0), Stop(1), Kill(2), Start(2), Start(0), Start(1)],
        },
        Sequence {
            name: "all die",
            min: 2,
            steps: &[Kill(0), Start(0), Kill(1), Kill(0), Kill(2), Start(1), Start(2), Start(0)],
        },
        Sequence {
            name: "one copy is enough",
            min: 1,
            steps: &[Stop(1), Kill(2), Stop(0), Start(2), Start(0), Start(1)],
        },
    ]
}

/// What the simulated Kafka says after each step.
pub fn simulated(sequence: &Sequence, seed: u64) -> Vec<Said> {
    let mut cluster = Cluster::with(&[(&[0, 1, 2], sequence.min)], seed);
    let does = |step: &Operation| {
        match *step {
            Operation::Stop(node) => cluster.quorum.stop(NodeId(node)),
            Operation::Kill(node) => cluster.quorum.crash(NodeId(node)),
            Operation::Start(node) => cluster.start(node),
        }
        cluster.live(SETTLE);
        cluster.said()
    };
    sequence.steps.iter().map(does).collect()
}

/// A controller, brokers that come and go, and partitions.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) quorum: Quorum,
    pub(crate) data: Data,
    pub(crate) dice: Dice,
    now: u64,
}

impl Cluster {
    /// Three brokers, and a partition for each of these: on which of them, and its `min.insync.replicas`.
    pub(crate) fn with(partitions: &[(&[i32], usize)], seed: u64) -> Self {
        let mut cluster =
            Self { quorum: Quorum::default(), data: Data::default(), dice: Dice::new(seed), now: 0 };
        cluster.data.dice = Dice::new(seed ^ 0xda7a);
        let directory = cluster.directory(CONTROLLER);
        let founder = Voter { node: NodeId(CONTROLLER), directory };
        let disk =
            Disk::formatted(directory, "data".to_owned(), Some(Voters::new(BTreeSet::from([founder]))));
        cluster.quorum.disks.insert(CONTROLLER.to_string(), disk);
        cluster.quorum.start(NodeId(CONTROLLER), &CONTROLLER.to_string(), true, false, LEVEL);
        for (index, (on, min)) in (0..).zip(partitions) {
            cluster.data.create("topic", index, on, *min, 100);
        }
        (0..3).for_each(|node| cluster.start(node));
        cluster.live(SETTLE);
        cluster
    }

    fn directory(&mut self, node: i32) -> DirectoryId {
        Entropy(self.dice.bytes()).directory_id(NodeId(node))
    }

    /// Starts a broker, on an empty disk if it has none. One that runs goes on.
    pub(crate) fn start(&mut self, node: i32) {
        let name = node.to_string();
        if self.quorum.processes.contains_key(&NodeId(node)) {
            return;
        }
        if !self.quorum.disks.contains_key(&name) {
            let directory = self.directory(node);
            self.quorum.disks.insert(name.clone(), Disk::formatted(directory, "data".to_owned(), None));
        }
        self.quorum.start(NodeId(node), &name, false, true, LEVEL);
    }

    /// The disk of a broker that is down is gone.
    #[cfg(test)]
    pub(crate) fn lose_disk(&mut self, node: i32) {
        if let Some(lost) = self.quorum.disks.remove(&node.to_string()) {
            self.quorum.lost.push(lost.directory);
        }
    }

    pub(crate) fn live(&mut self, millis: u64) {
        for _ in 0..millis / 100 {
            self.now += 100;
            self.quorum.step(self.now, &mut self.dice);
            self.data.step(&mut self.quorum, self.now);
        }
    }

    /// What is said of the first partition.
    pub(crate) fn said(&self) -> Said {
        let nodes = |ids: &BTreeSet<NodeId>| ids.iter().map(|node| node.0).collect();
        let Some(first) = self.data.partitions.first() else { return Said::default() };
        Said {
            leader: first.leader.map(|node| node.0),
            in_sync: nodes(&first.in_sync),
            eligible: nodes(&first.eligible),
            last_known: first.last_known.iter().map(|node| node.0).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What differs from run to run cannot be compared with a real one.
    #[test]
    fn the_simulated_brokers_say_the_same_whatever_the_seed() {
        for sequence in sequences() {
            let said = simulated(&sequence, 1);
            for seed in 2..40 {
                assert_eq!(said, simulated(&sequence, seed), "{}, seed {seed}", sequence.name);
            }
        }
    }

    /// Leader, in sync, eligible, known last: as KIP-966 tells it.
    #[test]
    fn the_answers_are_those_that_are_expected_of_kafka() {
        let told = |said: &Said| {
            let nodes = |ids: &BTreeSet<i32>| ids.iter().map(ToString::to_string).collect::<String>();
            let leader = said.leader.map_or("-".to_owned(), |node| node.to_string());
            format!("{leader}/{}/{}/{}", nodes(&said.in_sync), nodes(&said.eligible), nodes(&said.last_known))
        };
        let answers =
            |sequence: &Sequence| simulated(sequence, 1).iter().map(told).collect::<Vec<_>>().join(" ");
        let said: Vec<_> = sequences().iter().map(answers).collect();
        assert_eq!(
            said,
            [
                "1/12// 2/2/1/ -//12/2 -//12/2 1/01// 1/012// 1/012//",
                "1/12// 2/2/1/ -//12/2 -//1/2 -//1/2 1/012//",
                "1/12// 1/012// 0/02// 2/2/0/ -//02/2 -//02/2 -//0/2 2/012//",
                "0/02// 0/0// -//0/0 -//0/0 0/02// 0/012//",
            ]
        );
    }
}
