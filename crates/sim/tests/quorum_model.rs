//! The simulated quorum does what was measured on a real one, the bad things included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::sync::Arc;

use karst_core::ids::{Entropy, NodeId};
use karst_core::membership::Voter;
use karst_sim::dice::Dice;
use karst_sim::kraft::{Disk, LEVEL, Memory, Quorum, Refused, Voters};

struct Kafka {
    quorum: Quorum,
    dice: Dice,
    now: u64,
}

fn voter(node: i32) -> Voter {
    Voter { node: NodeId(node), directory: Entropy([1; 32]).directory_id(NodeId(node)) }
}

fn founders(nodes: i32) -> Voters {
    Arc::new((1..=nodes).map(voter).collect())
}

impl Kafka {
    /// A quorum that its first voters form.
    fn formed(nodes: i32, seed: u64) -> Self {
        let mut kafka = Self { quorum: Quorum::default(), dice: Dice::new(seed), now: 0 };
        for node in 1..=nodes {
            kafka.format_as_founder(node, nodes);
            kafka.start(node);
        }
        kafka.live(10_000);
        assert!(kafka.quorum.leader().is_some(), "nobody leads");
        kafka
    }

    fn format_as_founder(&mut self, node: i32, nodes: i32) {
        let disk = Disk::formatted(voter(node).directory, "c".into(), Some(founders(nodes)));
        self.quorum.disks.insert(node.to_string(), disk);
    }

    fn format_to_join(&mut self, node: i32) -> Voter {
        let directory = Entropy([9; 32]).directory_id(NodeId(node));
        self.quorum.disks.insert(node.to_string(), Disk::formatted(directory, "c".into(), None));
        Voter { node: NodeId(node), directory }
    }

    fn start(&mut self, node: i32) {
        self.quorum.start(NodeId(node), &node.to_string(), true, false, LEVEL);
    }

    fn stop(&mut self, nodes: &[i32]) {
        nodes.iter().for_each(|node| self.quorum.stop(NodeId(*node)));
    }

    fn live(&mut self, millis: u64) {
        for _ in 0..millis / 100 {
            self.now += 100;
            self.quorum.step(self.now, &mut self.dice);
        }
    }

    fn voters(&self) -> Vec<i32> {
        self.quorum
            .committed_voters()
            .iter()
            .map(|voter| voter.node.0)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }
}

#[test]
fn three_voters_elect_a_leader_and_survive_the_loss_of_one() {
    for seed in 0..50 {
        let mut kafka = Kafka::formed(3, seed);
        let leader = kafka.quorum.leader().unwrap().node.0;
        kafka.stop(&[leader]);
        kafka.live(10_000);
        assert!(kafka.quorum.leader().is_some_and(|new| new.node.0 != leader));
        assert_eq!(kafka.quorum.broken, None);
    }
}

#[test]
fn without_a_majority_nobody_leads() {
    let mut kafka = Kafka::formed(3, 1);
    kafka.stop(&[1, 2]);
    kafka.live(20_000);
    assert!(kafka.quorum.leader().is_none());
}

#[test]
fn an_observer_joins_and_a_leader_that_leaves_gives_up_its_office() {
    let mut kafka = Kafka::formed(3, 2);
    let fourth = kafka.format_to_join(4);
    assert_eq!(kafka.quorum.add("c", fourth).unwrap_err(), Refused::Behind);
    kafka.start(4);
    kafka.live(2_000);
    kafka.quorum.add("c", fourth).unwrap();
    assert_eq!(kafka.quorum.remove("c", voter(1)).unwrap_err(), Refused::Busy, "one change at a time");
    kafka.live(2_000);
    assert_eq!(kafka.voters(), [1, 2, 3, 4]);
    assert_eq!(kafka.quorum.add("c", fourth).unwrap_err(), Refused::Duplicate);
    let leader = kafka.quorum.leader().unwrap().node;
    let own = kafka.quorum.committed_voters().into_iter().find(|voter| voter.node == leader).unwrap();
    kafka.quorum.remove("c", own).unwrap();
    kafka.live(10_000);
    assert!(!kafka.voters().contains(&leader.0));
    assert!(kafka.quorum.leader().is_some_and(|new| new.node != leader));
    assert_eq!(kafka.quorum.broken, None);
}

#[test]
fn others_remember_a_voter_that_was_there_whoever_leads() {
    for seed in 0..50 {
        let mut kafka = Kafka::formed(3, seed);
        let leader = kafka.quorum.leader().unwrap().node.0;
        let follower = if leader == 1 { 2 } else { 1 };
        kafka.stop(&[follower]);
        assert_eq!(kafka.quorum.remembers(&voter(follower)), Memory::WasThere);
        kafka.start(follower);
        kafka.live(5_000);
        let leader = kafka.quorum.leader().unwrap().node.0;
        kafka.stop(&[leader]);
        assert_eq!(
            kafka.quorum.remembers(&voter(leader)),
            Memory::NoLeader,
            "the others still have to elect one"
        );
        kafka.live(20_000);
        assert!(kafka.quorum.leader().is_some());
        assert_eq!(
            kafka.quorum.remembers(&voter(leader)),
            Memory::WasThere,
            "before the time of this leader"
        );
    }
}

/// Kafka has made nothing of its log before it has heard of a leader, and says that it cannot tell.
#[test]
fn controllers_that_have_just_started_remember_nobody() {
    let mut kafka = Kafka::formed(3, 7);
    kafka.stop(&[1, 2, 3]);
    for node in [1, 2] {
        kafka.start(node);
    }
    assert_eq!(kafka.quorum.remembers(&voter(3)), Memory::Nobody);
    kafka.live(20_000);
    assert_eq!(kafka.quorum.remembers(&voter(3)), Memory::WasThere);
}

#[test]
fn nobody_remembers_a_voter_that_never_came() {
    let mut kafka = Kafka { quorum: Quorum::default(), dice: Dice::new(5), now: 0 };
    assert_eq!(kafka.quorum.remembers(&voter(3)), Memory::Nobody, "nobody is there");
    for node in [1, 2] {
        kafka.format_as_founder(node, 3);
        kafka.start(node);
    }
    assert_eq!(kafka.quorum.remembers(&voter(3)), Memory::Nobody, "they have heard of no leader yet");
    kafka.live(20_000);
    assert!(kafka.quorum.leader().is_some());
    assert_eq!(kafka.quorum.remembers(&voter(3)), Memory::New, "it was slower than the others");
}

/// As measured: two of three disks were wiped and formatted again with the first list of voters, and started before the third.
#[test]
fn two_wiped_voters_that_are_formatted_as_first_voters_lose_what_was_acknowledged() {
    let mut kafka = Kafka::formed(3, 3);
    kafka.quorum.has_clients = true;
    kafka.live(20_000);
    assert!(kafka.quorum.topics() > 0);
    kafka.stop(&[1, 2, 3]);
    for node in [2, 3] {
        kafka.format_as_founder(node, 3);
        kafka.start(node);
    }
    kafka.live(10_000);
    let broken = kafka.quorum.broken.unwrap_or_default();
    assert!(broken.contains("acknowledged metadata is lost"), "{broken}");
}

#[test]
fn two_wiped_voters_that_are_formatted_to_join_elect_nobody() {
    let mut kafka = Kafka::formed(3, 4);
    kafka.stop(&[2, 3]);
    for node in [2, 3] {
        kafka.format_to_join(node);
        kafka.start(node);
    }
    kafka.live(60_000);
    assert!(kafka.quorum.leader().is_none());
    assert_eq!(kafka.quorum.broken, None);
}
