//! What is done to a quorum, written once and done to the simulated one and to a real one: both must say the same.
//!
//! Here are the sequences, and what the simulated quorum says to each step of them. That a real Kafka says so too is shown on the
//! real floor (`cargo xtask soak conformance`).

pub mod replicas;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use karst_core::ids::{DirectoryId, Entropy, NodeId};
use karst_core::membership::Voter;

use crate::dice::Dice;
use crate::kraft::{Disk, LEVEL, Quorum, Refused, Voters, fixed_voters};

/// The id of the cluster of all conversations.
const CLUSTER: &str = "conformance";

/// For so long both are left alone after each step, in milliseconds of the simulated quorum's time.
const SETTLE: u64 = 15_000;
/// Whoever had everything so many milliseconds ago is alive.
pub const ALIVE: u64 = 3_000;

/// How a disk is formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Formatting {
    /// With the list of the first voters.
    First,
    /// As one that joins.
    Join,
    /// Without a word about voters, which the settings name.
    Static,
}

/// Which of the disks that a node has had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The one that it has.
    Newest,
    /// The one before.
    Older,
}

/// Something that is done to a quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A node gets an empty disk, which is formatted. What was on the one before is gone.
    Format(i32, Formatting),
    /// Controllers start.
    Start(&'static [i32]),
    /// A controller dies.
    Stop(i32),
    /// AddRaftVoter.
    Add(i32, Which),
    /// RemoveRaftVoter.
    Remove(i32, Which),
    /// One controller is to join, and before that is committed another one to leave. The answer is that to the second wish.
    AddAndRemove(i32, i32),
    /// UpdateFeatures: `kraft.version` becomes 1.
    MakeDynamic,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// DUPLICATE_VOTER.
    Duplicate,
    /// VOTER_NOT_FOUND.
    NotFound,
    /// REQUEST_TIMED_OUT: the new voter is not there or not caught up, or another change is not committed.
    TimedOut,
    /// UNSUPPORTED_VERSION: the quorum is static.
    Static,
    /// Anything else.
    Other,
}

/// A voter or observer: its node, which of its disks it is (the first is 0; a static quorum does not tell), and whether it is alive.
pub type Member = (i32, Option<usize>, bool);

/// What DescribeQuorum says, without what differs from run to run. Observers that died linger for a while, and are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// Who votes.
    pub voters: BTreeSet<Member>,
    /// Who copies, and does not vote.
    pub observers: BTreeSet<Member>,
    /// Is the set of voters in the log?
    pub is_dynamic: bool,
}

/// The disks that nodes have had, in their order.
#[derive(Debug, Clone, Default)]
pub struct Disks(BTreeMap<i32, Vec<DirectoryId>>);

impl Disks {
    /// A node has another disk.
    pub fn add(&mut self, node: i32, directory: DirectoryId) {
        self.0.entry(node).or_default().push(directory);
    }

    /// The disk of a node.
    pub fn get(&self, node: i32, which: Which) -> Option<DirectoryId> {
        let of_node = self.0.get(&node)?;
        let back = if which == Which::Newest { 1 } else { 2 };
        of_node.get(of_node.len().checked_sub(back)?).copied()
    }

    /// Which of the node's disks it is.
    pub fn position(&self, node: i32, directory: DirectoryId) -> Option<usize> {
        self.0.get(&node)?.iter().position(|one| *one == directory)
    }
}

/// A sequence, and what it is called.
#[derive(Debug, Clone, Copy)]
pub struct Sequence {
    /// Its name.
    pub name: &'static str,
    /// The first voters, or those that settings name.
    pub first: &'static [i32],
    /// What is done.
    pub steps: &'static [Operation],
}

/// All sequences.
pub fn sequences() -> Vec<Sequence> {
    use Operation::*;
    use Which::{Newest, Older};
    vec![
        Sequence {
            name: "dynamic",
            first: &[1, 2, 3],
            steps: &[
                Format(1, Formatting::First),
                Format(2, Formatting::First),
                Format(3, Formatting::First),
                Start(&[1, 2, 3]),
                Add(1, Newest),
                Format(4, Formatting::Join),
                Add(4, Newest),
                Start(&[4]),
                Remove(4, Newest),
                Add(4, Newest),
                Add(4, Newest),
                // Its disk is lost: the voter that it was is not the one that it is.
                Stop(4),
                Format(4, Formatting::Join),
                Start(&[4]),
                Add(4, Newest),
                Remove(4, Newest),
                Remove(4, Older),
                Remove(4, Older),
                Add(4, Newest),
                Format(5, Formatting::Join),
                Start(&[5]),
                AddAndRemove(5, 3),
                Stop(5),
                Remove(5, Newest),
                Remove(4, Newest),
                Remove(3, Newest),
                // Two voters need both.
                Stop(1),
                Start(&[1]),
                Add(3, Newest),
            ],
        },
        Sequence {
            name: "static",
            first: &[1, 2, 3],
            steps: &[
                Format(1, Formatting::Static),
                Format(2, Formatting::Static),
                Format(3, Formatting::Static),
                Start(&[1, 2, 3]),
                Add(1, Newest),
                Remove(3, Newest),
                // Its disk is lost, and it votes again: nobody can tell.
                Stop(3),
                Format(3, Formatting::Static),
                Start(&[3]),
                MakeDynamic,
                Remove(3, Older),
                Remove(3, Newest),
                Add(3, Newest),
            ],
        },
    ]
}

/// What a quorum said to one step: what came of the request, and how it described itself when it had settled; not at all without a
/// leader.
pub type Said = (Option<Outcome>, Option<Description>);

/// What the simulated quorum says to each step.
pub fn simulated(sequence: &Sequence, seed: u64) -> Vec<Said> {
    let mut simulated = Simulated {
        quorum: Quorum::default(),
        dice: Dice::new(seed),
        now: 0,
        disks: Disks::default(),
        first: sequence.first,
    };
    sequence
        .steps
        .iter()
        .map(|step| {
            let outcome = simulated.perform(step);
            simulated.live(SETTLE);
            (outcome, simulated.describe())
        })
        .collect()
}

struct Simulated {
    quorum: Quorum,
    dice: Dice,
    now: u64,
    disks: Disks,
    first: &'static [i32],
}

/// The directory id of a first voter: the list of them is made before any disk is formatted.
pub fn founder(node: i32) -> DirectoryId {
    Entropy([3; 32]).directory_id(NodeId(node))
}

impl Simulated {
    fn live(&mut self, millis: u64) {
        for _ in 0..millis / 100 {
            self.now += 100;
            self.quorum.step(self.now, &mut self.dice);
        }
    }

    fn perform(&mut self, operation: &Operation) -> Option<Outcome> {
        let (disks, quorum) = (&self.disks, &mut self.quorum);
        let voter = |node: i32, which| {
            disks.get(node, which).map(|directory| Voter { node: NodeId(node), directory })
        };
        let add = |quorum: &mut Quorum, voter: Option<Voter>| {
            voter.map_or(Err(Refused::Behind), |voter| quorum.add(CLUSTER, voter))
        };
        let remove = |quorum: &mut Quorum, voter: Option<Voter>| {
            voter.map_or(Err(Refused::NotFound), |voter| quorum.remove(CLUSTER, voter))
        };
        let asked = match operation {
            Operation::Format(node, format) => {
                self.format(*node, *format);
                return None;
            }
            Operation::Start(nodes) => {
                nodes.iter().for_each(|node| self.start(*node));
                return None;
            }
            Operation::Stop(node) => {
                quorum.stop(NodeId(*node));
                return None;
            }
            Operation::Add(node, which) => add(quorum, voter(*node, *which)),
            Operation::Remove(node, which) => remove(quorum, voter(*node, *which)),
            Operation::AddAndRemove(joins, leaves) => {
                let first = add(quorum, voter(*joins, Which::Newest));
                first.and_then(|_| remove(quorum, voter(*leaves, Which::Newest)))
            }
            Operation::MakeDynamic => quorum.make_dynamic(),
        };
        Some(match asked {
            Ok(_) => Outcome::Done,
            Err(Refused::Duplicate) => Outcome::Duplicate,
            Err(Refused::NotFound) => Outcome::NotFound,
            Err(Refused::Behind | Refused::Busy) => Outcome::TimedOut,
            Err(Refused::Static) => Outcome::Static,
            Err(Refused::NoLeader | Refused::OtherCluster) => Outcome::Other,
        })
    }

    fn format(&mut self, node: i32, format: Formatting) {
        let first: Voters = Arc::new(
            self.first.iter().map(|node| Voter { node: NodeId(*node), directory: founder(*node) }).collect(),
        );
        let directory = match format {
            Formatting::First => founder(node),
            Formatting::Join | Formatting::Static => Entropy(self.dice.bytes()).directory_id(NodeId(node)),
        };
        let founders = (format == Formatting::First).then_some(first);
        let disk = Disk {
            is_static: format == Formatting::Static,
            ..Disk::formatted(directory, CLUSTER.to_owned(), founders)
        };
        self.disks.add(node, directory);
        self.quorum.disks.insert(node.to_string(), disk);
    }

    fn start(&mut self, node: i32) {
        self.quorum.start(NodeId(node), &node.to_string(), true, false, LEVEL);
        let is_static = self.quorum.disks.get(&node.to_string()).is_some_and(|disk| disk.is_static);
        let list: Vec<_> = self.first.iter().map(|node| format!("{node}@host")).collect();
        self.quorum.read_settings(NodeId(node), fixed_voters(&list.join(",")).filter(|_| is_static));
    }

    fn describe(&mut self) -> Option<Description> {
        let view = self.quorum.describe(&mut self.dice)?;
        let member = |replica: &karst_core::world::Replica| {
            let node = replica.node.0;
            let is_alive = replica.behind.is_some_and(|behind| behind.as_millis() < u128::from(ALIVE));
            (node, replica.directory.and_then(|directory| self.disks.position(node, directory)), is_alive)
        };
        Some(Description {
            voters: view.voters.iter().map(member).collect(),
            observers: view.observers.iter().map(member).filter(|(_, _, is_alive)| *is_alive).collect(),
            is_dynamic: view.is_dynamic,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What differs from run to run cannot be compared with a real quorum.
    #[test]
    fn the_simulated_quorum_says_the_same_whatever_the_seed() {
        for sequence in sequences() {
            let said = simulated(&sequence, 1);
            for seed in 2..60 {
                for ((step, first), other) in sequence.steps.iter().zip(&said).zip(simulated(&sequence, seed))
                {
                    assert_eq!(*first, other, "{}: {step}, seed {seed}", sequence.name);
                }
            }
        }
    }

    #[test]
    fn the_answers_are_those_that_kafka_is_known_to_give() {
        let outcomes = |name: &str| {
            let sequence = sequences().into_iter().find(|one| one.name == name);
            let said = sequence.map(|sequence| simulated(&sequence, 1)).unwrap_or_default();
            let said = said.into_iter().filter_map(|(outcome, _)| outcome);
            said.map(|outcome| format!("{outcome:?}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            outcomes("dynamic"),
            "Duplicate TimedOut NotFound Done Duplicate Duplicate NotFound Done NotFound Done TimedOut Done \
             Done Done Done"
        );
        assert_eq!(outcomes("static"), "Static Static Done NotFound Done Done");
    }

    #[test]
    fn two_voters_of_which_one_is_gone_say_nothing() {
        let said = sequences().first().map(|sequence| simulated(sequence, 1)).unwrap_or_default();
        let silent = said.iter().rposition(|(_, description)| description.is_none());
        assert_eq!(silent, Some(said.len() - 3));
    }
}
