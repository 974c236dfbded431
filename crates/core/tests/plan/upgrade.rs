//! Versions that change, brokers that are forgotten, and what the status says of both.

use std::collections::BTreeSet;

use crate::support::*;
use k8s_openapi::jiff::Timestamp;
use karst_api::Role;
use karst_core::ids::NodeId;
use karst_core::membership::Change;
use karst_core::memory::{Memory, Trouble};
use karst_core::plan::{Deed, plan};
use karst_core::world::{Answer, Partitions, World};

fn set_version(world: &mut World, version: &str) {
    edit_kafka(world, |kafka| kafka.spec.kafka.version = Some(version.into()));
}

fn status(world: &World) -> karst_api::KafkaStatus {
    world.kafka.status.clone().unwrap()
}

fn old_cluster() -> (World, Kafka) {
    let mut world = quickstart();
    set_version(&mut world, "3.9.1");
    let mut kafka = Kafka { level: 21, fenced_known: false, ..Kafka::default() };
    for _ in 0..100 {
        if kafka.voters.is_empty() {
            kafka.voters = Kafka::formed(&world).voters;
        }
        if !step(&mut world, &mut kafka, &[]) {
            return (world, kafka);
        }
    }
    panic!("it never comes to rest: {:?}", decide(&world));
}

fn running(world: &World) -> BTreeSet<String> {
    let key = "strimzi.io/kafka-version";
    world.pods.values().map(|pod| pod.meta.annotations[key].clone()).collect()
}

#[test]
fn an_upgrade_rolls_all_nodes_and_then_raises_the_metadata_version() {
    let (mut world, mut kafka) = old_cluster();
    assert_eq!(status(&world).kafka_version.as_deref(), Some("3.9.1"));
    assert_eq!(status(&world).kafka_metadata_version.as_deref(), Some("3.9-IV0"));
    set_version(&mut world, "4.1.1");
    for _ in steps(200) {
        let before = running(&world);
        if !step(&mut world, &mut kafka, &[]) {
            break;
        }
        assert!(kafka.level == 21 || before == ["4.1.1".to_owned()].into(), "metadata before binaries");
        kafka.fenced_known = running(&world) == ["4.1.1".to_owned()].into();
    }
    assert_eq!((kafka.level, running(&world)), (27, ["4.1.1".to_owned()].into()));
    assert_eq!(status(&world).kafka_version.as_deref(), Some("4.1.1"));
    assert_eq!(status(&world).kafka_metadata_version.as_deref(), Some("4.1-IV1"));
    assert_eq!(status(&world).registered_node_ids, None, "nothing is remembered any more");
}

/// A cluster from which two controllers have departed.
fn shrunk() -> (World, Kafka) {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    for replicas in [5, 3] {
        edit_pool(&mut world, "controllers", |pool| pool.spec.replicas = replicas);
        converge_kafka(&mut world, &mut kafka, &[]);
    }
    assert_eq!(kafka.controllers.keys().map(|node| node.0).collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
    (world, kafka)
}

#[test]
fn controllers_that_departed_run_once_more_so_that_the_metadata_version_can_move() {
    let (mut world, mut kafka) = shrunk();
    let voters = kafka.voters.clone();
    set_version(&mut world, "4.3.1");
    let (mut came, mut told_before_the_roll) = (BTreeSet::new(), false);
    for _ in steps(200) {
        if !step(&mut world, &mut kafka, &[]) {
            break;
        }
        assert_eq!(kafka.voters, voters, "whoever departed does not vote again");
        came.extend(world.pods.keys().filter(|pod| pod.contains("returning")).cloned());
        let told =
            conditions(&world, "Warning").iter().any(|(_, reason, _)| reason == "ControllersStillRegistered");
        told_before_the_roll |= told && running(&world).contains("4.1.1");
    }
    assert_eq!(came, ["my-cluster-returning-6".to_owned(), "my-cluster-returning-7".to_owned()].into());
    assert!(told_before_the_roll);
    assert_eq!(status(&world).kafka_metadata_version.as_deref(), Some("4.3-IV0"));
    let left = |name: &String| name.contains("returning");
    assert!(!world.pods.keys().any(left) && !world.pod_sets.keys().any(left));
    assert!(!world.config_maps.keys().any(left) && !world.secrets.keys().any(left));
    assert_eq!(conditions(&world, "Ready")[0].1, "");
}

#[test]
fn departed_controllers_stay_away_while_nothing_asks_for_them() {
    let (mut world, mut kafka) = shrunk();
    edit_kafka(&mut world, |kafka| {
        (kafka.spec.kafka.version, kafka.spec.kafka.metadata_version) =
            (Some("4.3.1".into()), Some("4.1".into()));
    });
    for _ in steps(200) {
        if !step(&mut world, &mut kafka, &[]) {
            break;
        }
        assert!(!world.pods.keys().any(|pod| pod.contains("returning")));
    }
    assert_eq!((kafka.level, running(&world)), (27, ["4.3.1".to_owned()].into()));
}

#[test]
fn a_metadata_version_that_is_given_is_kept() {
    let (mut world, mut kafka) = old_cluster();
    edit_kafka(&mut world, |kafka| {
        (kafka.spec.kafka.version, kafka.spec.kafka.metadata_version) =
            (Some("4.1.1".into()), Some("3.9".into()));
    });
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!((kafka.level, running(&world)), (21, ["4.1.1".to_owned()].into()));
    // And back again, which is possible because the metadata version did not move.
    edit_kafka(&mut world, |kafka| kafka.spec.kafka.version = Some("3.9.1".into()));
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(running(&world), ["3.9.1".to_owned()].into());
}

#[test]
fn a_version_that_could_not_read_what_is_there_is_refused_with_the_numbers() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    set_version(&mut world, "4.0.1");
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(running(&world), ["4.1.1".to_owned()].into());
    let held =
        conditions(&world, "Warning").into_iter().find(|(_, reason, _)| reason == "VersionHeld").unwrap().2;
    for part in ["4.0.1", "4.1.1", "4.1-IV1", "27", "4.0-IV3", "25", "spec.kafka.metadataVersion"] {
        assert!(held.contains(part), "{part} is not in {held}");
    }
    // The way that the message tells: the metadata version first, then the binaries.
    edit_kafka(&mut world, |kafka| kafka.spec.kafka.metadata_version = Some("4.0-IV3".into()));
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!((kafka.level, running(&world)), (25, ["4.0.1".to_owned()].into()));
}

#[test]
fn an_upgrade_that_is_reverted_half_way_goes_back() {
    let (mut world, mut kafka) = old_cluster();
    for steps in 1..25 {
        set_version(&mut world, "4.1.1");
        for _ in 0..steps {
            step(&mut world, &mut kafka, &[]);
        }
        if kafka.level > 21 {
            break;
        }
        set_version(&mut world, "3.9.1");
        converge_kafka(&mut world, &mut kafka, &[]);
        assert_eq!(running(&world), ["3.9.1".to_owned()].into(), "after {steps} steps");
    }
}

#[test]
fn a_feature_that_a_version_does_not_know_keeps_it_away() {
    let mut world = converged();
    let kafka = Kafka::formed(&world);
    edit_kafka(&mut world, |kafka| {
        (kafka.spec.kafka.version, kafka.spec.kafka.metadata_version) =
            (Some("4.0.1".into()), Some("4.0".into()));
    });
    let mut answer = kafka.quorum(&world);
    if let Answer::Known(quorum) = &mut answer {
        quorum.metadata_level = Some(25);
        quorum.features.insert("share.version".into(), 1);
    }
    world.answers.quorum = answer;
    let plan = decide(&world);
    let held =
        plan.notices.iter().map(ToString::to_string).find(|notice| notice.contains("share.version")).unwrap();
    assert!(held.contains("stay at 4.1.1"), "{held}");
    assert!(plan.restarts.is_empty());
}

#[test]
fn a_broker_that_is_gone_is_unregistered_and_nothing_is_remembered() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(kafka.registered.len(), 3);
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 2);
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(kafka.registered, [NodeId(0), NodeId(1)].into());
    assert_eq!(status(&world).registered_node_ids, None);
}

#[test]
fn a_broker_that_only_votes_from_now_on_is_unregistered() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    edit_pool(&mut world, "controllers", |pool| pool.spec.roles.push(Role::Broker));
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(kafka.registered.len(), 6);
    edit_pool(&mut world, "controllers", |pool| pool.spec.roles = vec![Role::Controller]);
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(kafka.registered.len(), 3);
}

#[test]
fn a_broker_that_restarts_or_whose_pool_cannot_be_read_stays_registered() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    converge_kafka(&mut world, &mut kafka, &[]);
    world.pods.remove("my-cluster-brokers-1");
    world.answers.quorum = kafka.quorum(&world);
    world.answers.registered = kafka.registered(&world);
    assert!(plan(&world).unwrap().deeds.is_empty());
    world.pools.remove("brokers");
    assert!(plan(&world).unwrap().deeds.is_empty());
}

#[test]
fn on_kafka_3_9_brokers_are_remembered_before_they_start_and_until_they_are_unregistered() {
    let (mut world, mut kafka) = old_cluster();
    assert_eq!(status(&world).registered_node_ids, Some(vec![0, 1, 2]));
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 4);
    while !world.pods.contains_key("my-cluster-brokers-6") {
        assert!(step(&mut world, &mut kafka, &[]));
    }
    assert_eq!(status(&world).registered_node_ids, Some(vec![0, 1, 2, 6]), "before the pod is made");
    converge_kafka(&mut world, &mut kafka, &[]);
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 2);
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(kafka.registered, [NodeId(0), NodeId(1)].into());
    assert_eq!(status(&world).registered_node_ids, Some(vec![0, 1]));
}

#[test]
fn an_unregistration_that_fails_is_told_and_tried_again_after_a_pause() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    converge_kafka(&mut world, &mut kafka, &[]);
    kafka.registered.insert(NodeId(9));
    let answered = |world: &World, kafka: &mut Kafka| {
        let mut world = world.clone();
        world.answers.quorum = kafka.quorum(&world);
        world.answers.registered = kafka.registered(&world);
        world.answers.partitions = Answer::Known(Partitions { of: [NodeId(9)].into(), found: Vec::new() });
        world
    };
    let deed = Deed::Unregister(NodeId(9));
    assert_eq!(plan(&answered(&world, &mut kafka)).unwrap().deeds, vec![deed.clone()]);
    let until = Timestamp::from_second(world.now.as_second() + 3).unwrap();
    world.memory.troubles = vec![Trouble { deed: deed.clone(), why: "no".into(), until, failures: 1 }];
    let held = plan(&answered(&world, &mut kafka)).unwrap();
    assert_eq!(held.deeds, []);
    assert!(held.notices.iter().any(|notice| notice.to_string().contains("broker 9")));
    world.now = until;
    assert_eq!(plan(&answered(&world, &mut kafka)).unwrap().deeds, [deed]);
}

#[test]
fn of_thousands_of_brokers_that_are_gone_a_few_are_unregistered_at_a_time() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    converge_kafka(&mut world, &mut kafka, &[]);
    kafka.registered.extend((1_000..11_000).map(NodeId));
    world.answers.quorum = kafka.quorum(&world);
    world.answers.registered = kafka.registered(&world);
    let all = (0..11_000).map(NodeId).collect();
    world.answers.partitions = Answer::Known(Partitions { of: all, found: Vec::new() });
    let of = |nodes: &[i32]| nodes.iter().map(|node| Deed::Unregister(NodeId(*node))).collect::<Vec<_>>();
    let until = Timestamp::from_second(world.now.as_second() + 3).unwrap();
    let trouble = |node: i32| Trouble { deed: of(&[node]).remove(0), why: "no".into(), until, failures: 1 };
    let first = plan(&world).unwrap();
    assert_eq!(first.deeds, of(&[1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007]));
    assert!(first.look_again.is_some(), "the others are not forgotten");

    // What failed counts: else there would be more and more of it.
    world.memory.troubles = vec![trouble(1003), trouble(1000)];
    assert_eq!(plan(&world).unwrap().deeds, of(&[1001, 1002, 1004, 1005, 1006, 1007]));
    world.memory.troubles = (1000..1008).map(trouble).collect();
    let held = plan(&world).unwrap();
    assert_eq!(held.deeds, []);
    let told = held.notices.iter().filter(|notice| notice.to_string().contains("broker 10"));
    assert_eq!(told.count(), 8);
    // A broker that is not gone any more takes no turn from others.
    world.memory.troubles = (500..508).map(trouble).collect();
    assert_eq!(plan(&world).unwrap().deeds.len(), 8);
    world.now = until;
    world.memory.troubles = vec![trouble(1003)];
    assert_eq!(
        plan(&world).unwrap().deeds,
        of(&[1000, 1001, 1002, 1004, 1005, 1006, 1007, 1003]),
        "what failed before comes last"
    );
}

#[test]
fn all_brokers_that_are_gone_are_unregistered_in_the_end() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    converge_kafka(&mut world, &mut kafka, &[]);
    kafka.registered.extend((1_000..1_030).map(NodeId));
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(kafka.registered.len(), 3);
}

#[test]
fn of_unregistrations_that_failed_the_last_ones_are_remembered_and_everything_else() {
    let mut memory = Memory::default();
    memory.kafka_refused(&Deed::Change(Change::MakeDynamic), &"no", Timestamp::UNIX_EPOCH);
    for node in 0..1_000 {
        memory.kafka_refused(&Deed::Unregister(NodeId(node)), &"no", Timestamp::UNIX_EPOCH);
    }
    let left: Vec<_> = memory.troubles.into_iter().map(|trouble| trouble.deed).collect();
    assert_eq!(left.len(), 17);
    assert_eq!((&left[0], &left[16]), (&Deed::Change(Change::MakeDynamic), &Deed::Unregister(NodeId(999))));
}

#[test]
fn versions_in_the_status_tell_the_truth_through_failures_and_pauses() {
    let mut world = converged();
    let good = status(&world);
    assert_eq!(good.operator_last_successful_version.as_deref(), Some("0.1.0"));
    // A new operator takes over, and a node is down: what was true stays.
    let mut settings = (*world.settings).clone();
    settings.operator_version = "0.2.0".into();
    world.settings = settings.into();
    world.pods.remove("my-cluster-brokers-0");
    let plan = decide(&world);
    carry_out(&mut world, plan);
    let now = status(&world);
    assert_eq!(now.operator_last_successful_version, good.operator_last_successful_version);
    assert_eq!(
        (now.kafka_version, now.kafka_metadata_version),
        (good.kafka_version, good.kafka_metadata_version)
    );
    run_pods(&mut world, true);
    converge(&mut world);
    assert_eq!(status(&world).operator_last_successful_version.as_deref(), Some("0.2.0"));
    // While an upgrade is under way the old version is told.
    let mut kafka = Kafka::formed(&world);
    set_version(&mut world, "4.2.0");
    let mut seen = BTreeSet::new();
    while step(&mut world, &mut kafka, &[]) {
        let all = running(&world);
        let told = status(&world).kafka_version.unwrap();
        assert!(told == "4.1.1" || all == ["4.2.0".to_owned()].into(), "{told} while {all:?} run");
        seen.insert(told);
    }
    assert_eq!(seen.len(), 2);
}
