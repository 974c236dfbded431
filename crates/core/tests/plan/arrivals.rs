//! Brokers that move to another pool start empty there: not while only their old disk has something, or nobody can say.

use karst_core::ids::NodeId;
use karst_core::world::{PartitionView, World};

use crate::support::*;

const OLD: &str = "my-cluster-small-6";
const NEW: &str = "my-cluster-brokers-6";

fn steer(world: &mut World, pool: &str, replicas: i32, annotation: &str) {
    edit_pool(world, pool, |pool| {
        pool.spec.replicas = replicas;
        pool.metadata.annotations.get_or_insert_default().insert(annotation.into(), "[6]".into());
    });
}

/// Broker 6 has stopped, and its new pod is not made yet.
fn on_its_way() -> (World, Kafka) {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    let mut small = (*world.pools["brokers"]).clone();
    (small.metadata.name, small.metadata.uid, small.status) =
        (Some("small".into()), Some("uid-small".into()), None);
    small.spec.replicas = 1;
    world.pools.insert("small".into(), small.into());
    converge_kafka(&mut world, &mut kafka, &[]);
    steer(&mut world, "small", 0, "strimzi.io/remove-node-ids");
    steer(&mut world, "brokers", 4, "strimzi.io/next-node-ids");
    while world.pods.contains_key(OLD) {
        assert!(step(&mut world, &mut kafka, &[orders(Some(0), &[0, 6])]), "it never goes");
    }
    assert!(!world.pods.contains_key(NEW));
    (world, kafka)
}

fn orders(leader: Option<i32>, in_sync: &[i32]) -> PartitionView {
    PartitionView { leader: leader.map(NodeId), ..partition("orders", &[0, 6], in_sync, 1) }
}

fn warnings(world: &World, reason: &str) -> Vec<String> {
    let said = conditions(world, "Warning").into_iter();
    said.filter(|(_, found, _)| found == reason).map(|(_, _, message)| message).collect()
}

#[test]
fn a_broker_that_moved_is_made_when_somebody_else_has_everything() {
    let (mut world, mut kafka) = on_its_way();
    converge_kafka(&mut world, &mut kafka, &[orders(Some(0), &[0])]);
    assert!(world.pods.contains_key(NEW));
}

/// The power went in the moment in which it was told to stop: it was the last one that led.
#[test]
fn a_broker_that_led_last_does_not_start_empty_in_its_new_pool() {
    let (mut world, mut kafka) = on_its_way();
    let last = [orders(None, &[6])];
    converge_kafka(&mut world, &mut kafka, &last);
    assert!(!world.pods.contains_key(NEW));
    let said = warnings(&world, "DataLossHeld");
    for part in ["orders-0", OLD, "data-0-my-cluster-small-6", "pool 'small'", "karst.io/allow-data-loss"] {
        assert!(said.iter().any(|said| said.contains(part)), "{part} is not in {said:?}");
    }
    assert_ne!(conditions(&world, "Ready")[0].0, "True");

    // Its disk is there: so is the broker, when its id is put back.
    let mut back = world.clone();
    steer(&mut back, "brokers", 3, "strimzi.io/remove-node-ids");
    steer(&mut back, "small", 1, "strimzi.io/next-node-ids");
    converge_kafka(&mut back, &mut kafka, &last);
    assert!(back.pods.contains_key(OLD) && !back.pods.contains_key(NEW));
    assert!(warnings(&back, "DataLossHeld").is_empty());

    // Or a person says that it may be lost.
    edit_kafka(&mut world, |kafka| {
        let annotations = kafka.metadata.annotations.get_or_insert_default();
        annotations.insert("karst.io/allow-data-loss".into(), OLD.into());
    });
    converge_kafka(&mut world, &mut kafka, &last);
    assert!(world.pods.contains_key(NEW));
}

/// Pods that take the place of others have not served yet. What the old disk has, nobody else has all the same.
#[test]
fn a_broker_that_led_last_is_held_also_while_all_others_are_new() {
    let (mut world, mut kafka) = on_its_way();
    let last = [orders(None, &[6])];
    converge_kafka(&mut world, &mut kafka, &last);
    let others: Vec<_> = world.pods.keys().filter(|pod| pod.contains("brokers")).cloned().collect();
    for pod in others {
        edit_pod(&mut world, &pod, |pod| (pod.was_ready, pod.ready) = (false, false));
    }
    decided(&mut world, &mut kafka, &last);
    assert!(!world.pod_sets["my-cluster-brokers"].pods.contains_key(NEW));
}

/// It may wait for a person for days.
#[test]
fn a_broker_that_is_held_keeps_nobody_from_restarting() {
    let (mut world, mut kafka) = on_its_way();
    let last = [orders(None, &[6])];
    converge_kafka(&mut world, &mut kafka, &last);
    let before = world.pods["my-cluster-controllers-3"].revision().unwrap().to_owned();
    edit_pool(&mut world, "controllers", |pool| {
        let resources = serde_json::json!({ "limits": { "memory": "3Gi" } });
        pool.spec.resources = serde_json::from_value(resources).ok();
    });
    converge_kafka(&mut world, &mut kafka, &last);
    assert!(!world.pods.contains_key(NEW));
    assert_ne!(world.pods["my-cluster-controllers-3"].revision().unwrap(), before);
}

#[test]
fn a_broker_that_moved_waits_for_others_that_may_have_everything() {
    let (mut world, mut kafka) = on_its_way();
    edit_pod(&mut world, "my-cluster-brokers-0", |pod| pod.ready = false);
    let held = decided(&mut world, &mut kafka, &[orders(None, &[0, 6])]);
    assert!(held.iter().any(|said| said.contains("node 6 of pool 'small'")), "{held:?}");
    assert!(!world.pod_sets["my-cluster-brokers"].pods.contains_key(NEW));
}

#[test]
fn a_broker_that_moved_waits_for_kafkas_word() {
    let (mut world, mut kafka) = on_its_way();
    kafka.is_silent = true;
    let held = decided(&mut world, &mut kafka, &[]);
    assert!(held.iter().any(|said| said.contains("nobody can say what only it has")), "{held:?}");
    assert!(!world.pod_sets["my-cluster-brokers"].pods.contains_key(NEW));
    kafka.is_silent = false;
    converge_kafka(&mut world, &mut kafka, &[]);
    assert!(world.pods.contains_key(NEW));
}

/// Some passes, in which pods stay as they are. Returns what is told of moves that wait.
fn decided(world: &mut World, kafka: &mut Kafka, partitions: &[PartitionView]) -> Vec<String> {
    for _ in 0..40 {
        let plan = karst_core::plan::plan(world).unwrap();
        if plan.questions.is_empty() {
            carry_out(world, plan);
            world.answers = Default::default();
        } else {
            kafka.answer(world, partitions, &plan.questions);
        }
    }
    warnings(world, "MoveHeld")
}

/// Old disks of another pool are there, and nobody who could say what is on them: a cluster is created again.
#[test]
fn a_cluster_that_is_made_anew_waits_for_no_old_disk() {
    let (mut world, _) = on_its_way();
    lose_all_but_disks(&mut world);
    converge(&mut world);
    assert!(world.pods.contains_key("my-cluster-brokers-0"));
    assert!(warnings(&world, "DataLossHeld").is_empty() && warnings(&world, "MoveHeld").is_empty());
}
