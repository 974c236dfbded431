use std::collections::BTreeSet;

use karst_core::ids::NodeId;

use super::{Doom, State};
use crate::conformance::replicas::{Cluster, Said};

struct Kafka(Cluster);

impl Kafka {
    fn with(partitions: &[(&[i32], usize)]) -> Self {
        Self(Cluster::with(partitions, 1))
    }

    fn stop(&mut self, node: i32) {
        self.quorum.stop(NodeId(node));
        self.live(3_000);
    }

    fn crash(&mut self, node: i32) {
        self.quorum.crash(NodeId(node));
        self.live(12_000);
    }

    fn restart(&mut self, node: i32) {
        self.start(node);
        self.live(12_000);
    }

    /// Who leads, who is in sync, who is eligible, and who led last.
    fn said(&self) -> String {
        let Said { leader, in_sync, eligible, last_known } = self.0.said();
        let nodes = |ids: &BTreeSet<i32>| ids.iter().map(ToString::to_string).collect::<String>();
        let leader = leader.map_or("nobody".to_owned(), |node| node.to_string());
        let (in_sync, eligible, last) = (nodes(&in_sync), nodes(&eligible), nodes(&last_known));
        format!("{leader} leads, in sync {in_sync}, eligible {eligible}, last {last}")
    }

    fn acknowledged(&self) -> u64 {
        self.data.partitions[0].acknowledged.end()
    }
}

impl std::ops::Deref for Kafka {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl std::ops::DerefMut for Kafka {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.0
    }
}

#[test]
fn records_are_acknowledged_and_copied() {
    let mut kafka = Kafka::with(&[(&[0, 1, 2], 2)]);
    assert_eq!(kafka.said(), "0 leads, in sync 012, eligible , last ");
    let before = kafka.acknowledged();
    kafka.live(20_000);
    assert!(kafka.acknowledged() > before, "producers write");
    kafka.stop(1);
    assert_eq!(kafka.said(), "0 leads, in sync 02, eligible , last ");
    kafka.restart(1);
    assert_eq!(kafka.said(), "0 leads, in sync 012, eligible , last ");
    assert_eq!(kafka.data.losses, []);
}

#[test]
fn below_the_minimum_those_that_leave_stay_eligible_and_nothing_is_acknowledged() {
    let mut kafka = Kafka::with(&[(&[0, 1, 2], 2)]);
    kafka.stop(0);
    kafka.stop(1);
    assert_eq!(kafka.said(), "2 leads, in sync 2, eligible 1, last ");
    let before = kafka.acknowledged();
    kafka.live(20_000);
    assert_eq!(kafka.acknowledged(), before);
    kafka.stop(2);
    assert_eq!(kafka.said(), "nobody leads, in sync , eligible 12, last 2");
    kafka.restart(0);
    assert_eq!(kafka.said(), "nobody leads, in sync , eligible 12, last 2", "0 may lack records");
    kafka.restart(1);
    assert_eq!(kafka.said(), "1 leads, in sync 01, eligible , last ");
    assert_eq!(kafka.data.losses, []);
}

#[test]
fn a_broker_that_died_is_not_eligible_and_may_still_lead_when_it_was_the_last() {
    let mut kafka = Kafka::with(&[(&[0, 1, 2], 2)]);
    kafka.stop(0);
    kafka.stop(1);
    kafka.crash(2);
    assert_eq!(kafka.said(), "nobody leads, in sync , eligible 12, last 2");
    kafka.start(2);
    kafka.live(100);
    assert_eq!(kafka.data.views()[0].eligible, BTreeSet::from([NodeId(1)]));
    kafka.live(12_000);
    assert_eq!(kafka.said(), "nobody leads, in sync , eligible 1, last 2");
    kafka.restart(1);
    assert_eq!(kafka.said(), "1 leads, in sync 12, eligible , last ");
    assert_eq!(kafka.data.losses, []);
}

#[test]
fn without_eligible_replicas_the_last_one_keeps_its_place() {
    let mut kafka = Kafka::with(&[(&[0, 1], 1)]);
    kafka.data.partitions[0].has_eligible = false;
    kafka.stop(0);
    kafka.stop(1);
    assert_eq!(kafka.said(), "nobody leads, in sync 1, eligible , last ");
    kafka.restart(0);
    assert_eq!(kafka.said(), "nobody leads, in sync 1, eligible , last ");
    kafka.restart(1);
    assert_eq!(kafka.said(), "1 leads, in sync 01, eligible , last ");
}

fn doom() -> Doom {
    Doom { at: 0, what: "it was emptied".to_owned(), is_allowed: false }
}

#[test]
fn the_last_complete_copy_is_missed_and_whoever_destroyed_it_is_known() {
    let mut kafka = Kafka::with(&[(&[0, 1], 1)]);
    let disk = |kafka: &Kafka, node| kafka.data.brokers.directory(NodeId(node)).unwrap();
    kafka.stop(1);
    kafka.live(20_000);
    let first = disk(&kafka, 1);
    assert_eq!(kafka.data.doom(first, doom()), None, "it lacks what came since");
    let second = disk(&kafka, 0);
    assert_eq!(kafka.data.doom(second, doom()), Some("topic-0".to_owned()));
    kafka.stop(0);
    kafka.lose_disk(0);
    kafka.live(100);
    let lost = &kafka.data.losses[0];
    assert_eq!(lost.what, "the last complete copy of partition topic-0 is gone");
    assert_eq!(lost.destroyed.as_ref().unwrap().by, Some(doom()));
}

/// All else is there, and Kafka cuts it off to follow the last one that is known to have led.
#[test]
fn an_empty_leader_loses_what_others_hold() {
    let mut kafka = Kafka::with(&[(&[0, 1, 2], 1)]);
    kafka.stop(1);
    kafka.stop(2);
    kafka.data.losses.clear();
    kafka.quorum.stop(NodeId(0));
    kafka.lose_disk(0);
    kafka.live(3_000);
    kafka.restart(1);
    kafka.restart(2);
    kafka.restart(0);
    assert!(kafka.said().starts_with("0 leads"), "{}", kafka.said());
    assert!(!kafka.data.losses.is_empty());
    assert!(kafka.acknowledged() < 100, "what they had is cut off");
}

#[test]
fn an_empty_broker_fetches_all_before_it_is_in_sync() {
    let mut kafka = Kafka::with(&[(&[0, 1, 2], 2)]);
    let data = &mut kafka.data;
    data.partitions[0].write(&data.brokers, 5_000);
    kafka.live(10_000);
    kafka.stop(1);
    kafka.lose_disk(1);
    kafka.start(1);
    kafka.live(3_000);
    assert_eq!(kafka.said(), "0 leads, in sync 02, eligible , last ", "it is not that fast");
    kafka.live(20_000);
    assert_eq!(kafka.said(), "0 leads, in sync 012, eligible , last ");
    assert_eq!(kafka.data.losses, []);
}

#[test]
fn a_copy_moves_when_it_is_complete_elsewhere() {
    let mut kafka = Kafka::with(&[(&[0], 1)]);
    kafka.data.reassign(NodeId(0), &[0, 2]);
    kafka.live(100);
    assert_eq!(kafka.data.on(NodeId(0)).count(), 1);
    kafka.live(10_000);
    assert_eq!(kafka.said(), "2 leads, in sync 2, eligible , last ");
    assert_eq!((kafka.data.on(NodeId(0)).count(), kafka.data.on(NodeId(2)).count()), (0, 1));
    assert_eq!(kafka.data.losses, []);
}

#[test]
fn a_failed_directory_takes_its_copies_out_of_sync() {
    let mut kafka = Kafka::with(&[(&[0, 1, 2], 2), (&[0, 1, 2], 2)]);
    kafka.data.fail_directory(NodeId(0));
    kafka.live(3_000);
    let views = kafka.data.views();
    let nodes = |ids: &[i32]| ids.iter().copied().map(NodeId).collect::<BTreeSet<_>>();
    assert_eq!((&views[0].in_sync, &views[0].offline), (&nodes(&[0, 1, 2]), &nodes(&[])));
    assert_eq!((&views[1].in_sync, &views[1].offline), (&nodes(&[1, 2]), &nodes(&[0])));
    assert_eq!(views[1].leader, Some(NodeId(1)));
}

#[test]
fn a_broker_that_is_cut_off_says_what_was_and_is_missed_in_the_end() {
    let mut kafka = Kafka::with(&[(&[0, 1, 2], 2)]);
    kafka.quorum.cut(NodeId(0), 20_000);
    kafka.live(1_000);
    kafka.stop(1);
    let of = BTreeSet::from([NodeId(1)]);
    let in_sync = |kafka: &Kafka, broker| kafka.data.views_of(NodeId(broker), &of)[0].in_sync.len();
    assert_eq!((in_sync(&kafka, 0), in_sync(&kafka, 2)), (3, 2));
    kafka.live(10_000);
    assert_eq!(kafka.said(), "2 leads, in sync 2, eligible 0, last ", "nobody has heard of it");
    let cluster = &mut kafka.0;
    let quorum = cluster.quorum.describe(&mut cluster.dice).unwrap();
    let behind = quorum.observers.iter().find(|one| one.node == NodeId(0)).unwrap().behind;
    assert!(behind.unwrap().as_secs() > 9);
    kafka.live(20_000);
    assert_eq!(in_sync(&kafka, 0), 2);
}

#[test]
fn a_broker_that_died_reads_its_logs_before_it_serves() {
    let mut kafka = Kafka::with(&[(&[0, 1, 2], 2)]);
    kafka.quorum.crash(NodeId(1));
    assert!(kafka.quorum.needs_recovery("1") && !kafka.quorum.needs_recovery("7"));
    kafka.start(1);
    kafka.quorum.recover(NodeId(1), 5_000);
    kafka.live(3_000);
    assert!(kafka.quorum.recovery(NodeId(1)).is_some() && !kafka.data.brokers.serves(NodeId(1)));
    // Whoever stops it makes it begin again.
    kafka.quorum.stop(NodeId(1));
    assert!(kafka.quorum.needs_recovery("1"));
    kafka.start(1);
    kafka.quorum.recover(NodeId(1), 2_000);
    kafka.live(4_000);
    assert!(kafka.data.brokers.serves(NodeId(1)));
    kafka.quorum.stop(NodeId(1));
    assert!(!kafka.quorum.needs_recovery("1"));
}

/// Their fetches tell the leader that there is nothing new.
#[test]
fn followers_of_a_partition_to_which_nobody_wrote_have_not_fallen_behind() {
    let mut kafka = Kafka::with(&[(&[0, 1, 2], 2)]);
    kafka.live(20_000);
    let data = &mut kafka.data;
    data.partitions[0].had_all.clear();
    data.partitions[0].state = State::Rests;
    data.brokers.slow_down(NodeId(1), 5_000);
    data.partitions[0].write(&data.brokers, 1);
    kafka.live(3_000);
    assert_eq!(kafka.said(), "0 leads, in sync 012, eligible , last ");
}

/// A broker that died counts as in sync until it is missed.
#[test]
fn a_destroyed_copy_is_remembered_until_all_have_everything_again() {
    let mut kafka = Kafka::with(&[(&[0, 1, 2], 1)]);
    kafka.stop(1);
    kafka.quorum.crash(NodeId(2));
    kafka.lose_disk(2);
    kafka.start(1);
    kafka.live(5_000);
    assert_eq!(kafka.said(), "0 leads, in sync 012, eligible , last ");
    assert!(kafka.data.partitions[0].destroyed.is_some());
    kafka.restart(2);
    kafka.live(20_000);
    assert_eq!(kafka.said(), "0 leads, in sync 012, eligible , last ");
    assert!(kafka.data.partitions[0].destroyed.is_none());
}
