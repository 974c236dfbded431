//! Whatever waits says so, and on what: in the status of the cluster, where people look.

use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use karst_api as api;
use karst_core::absences;
use karst_core::ids::NodeId;
use karst_core::plan::{Plan, plan};
use karst_core::world::{Answer, Answers, LauncherView, PartitionView, World};
use serde_json::json;

const POD: &str = "my-cluster-brokers-1";
const CLAIM: &str = "data-0-my-cluster-brokers-1";

fn ago(world: &World, seconds: i64) -> Option<Timestamp> {
    Some(world.now - SignedDuration::from_secs(seconds))
}

/// The message of the first warning with this reason.
fn warning(world: &World, reason: &str) -> Option<String> {
    let told = conditions(world, "Warning").into_iter().find(|(_, said, _)| said == reason);
    told.map(|(_, _, message)| message)
}

/// What a pass comes to when Kafka was asked all it had to be.
fn decided(world: &mut World, partitions: &[PartitionView]) -> Plan {
    let mut kafka = Kafka::formed(world);
    for _ in 0..8 {
        let plan = plan(world).unwrap();
        if plan.questions.is_empty() {
            return plan;
        }
        kafka.answer(world, partitions, &plan.questions);
        for node in plan.questions.launchers.into_keys() {
            world.answers.launchers.insert(node, Answer::Known(LauncherView::default()));
        }
    }
    panic!("it never stops asking");
}

/// One pass, and what the cluster says then: Ready, its reason and its message.
fn said(world: &mut World) -> (String, String, String) {
    let plan = decided(world, &[]);
    carry_out(world, plan);
    world.answers = Answers::default();
    conditions(world, "Ready").remove(0)
}

fn told(plan: &Plan, reason: &str) -> Vec<String> {
    plan.notices.iter().filter(|notice| notice.reason() == reason).map(ToString::to_string).collect()
}

/// The settings of nodes are older than their pods, as they are in a cluster that runs.
fn running() -> World {
    let mut world = converged();
    world.answers = Answers::default();
    world
}

#[test]
fn a_pod_that_stays_in_terminating_is_not_called_ready() {
    let mut world = running();
    let by = ago(&world, 10);
    edit_pod(&mut world, POD, |pod| (pod.meta.deleting, pod.meta.gone_by, pod.ready) = (true, by, false));
    let plan = decided(&mut world, &[]);
    assert!(plan.look_again.unwrap() <= Duration::from_secs(50), "it looks again in time");
    let (ready, reason, _) = said(&mut world);
    assert_eq!((ready.as_str(), reason.as_str()), ("True", "RollingUpdate"), "it is given its time");

    world.now += SignedDuration::from_secs(51);
    let (ready, reason, message) = said(&mut world);
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "NodesNotReady"));
    assert!(message.contains("my-cluster-brokers-1 (it is being deleted, and does not go)"), "{message}");
    let warning = warning(&world, "DeletionPending").unwrap();
    for part in [POD, "finalizers", "Kubernetes node machine-1", "--force", "2023-11-14 22:13 UTC"] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    let plan = decided(&mut world, &[]);
    assert!(plan.status.is_none(), "it is said once: {:?}", plan.status);
}

/// The next roll waits for it, and says so.
#[test]
fn a_pod_that_stays_in_terminating_stops_the_roll_with_a_word() {
    let mut world = running();
    let by = ago(&world, 100);
    edit_pod(&mut world, POD, |pod| (pod.meta.deleting, pod.meta.gone_by, pod.ready) = (true, by, false));
    change_setting(&mut world);
    let plan = decided(&mut world, &[]);
    assert_eq!(plan.restarts, []);
    let told = told(&plan, "RollingUpdateStopped");
    assert!(told[0].contains("before pod my-cluster-brokers-1 is ready"), "{told:?}");
}

fn change_setting(world: &mut World) {
    edit_kafka(world, |kafka| {
        kafka.spec.kafka.config.get_or_insert_default().insert("log.retention.hours".into(), 1.into());
    });
    let plan = decide(world);
    carry_out(world, plan);
    world.answers = Answers::default();
}

fn delete_claim(world: &mut World, seconds: i64) {
    let by = ago(world, seconds);
    let claim = Arc::make_mut(world.claims.get_mut(CLAIM).expect("a claim"));
    (claim.meta.deleting, claim.meta.gone_by) = (true, by);
}

#[test]
fn a_pvc_that_was_deleted_under_its_pod_is_told() {
    let mut world = running();
    delete_claim(&mut world, 59);
    assert_eq!(told(&decided(&mut world, &[]), "DeletionPending"), [""; 0]);
    world.now += SignedDuration::from_secs(1);
    said(&mut world);
    let warning = warning(&world, "DeletionPending").unwrap();
    for part in [CLAIM, POD, "cannot be undone", "strimzi.io/delete-pod-and-pvc"] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
}

#[test]
fn a_pvc_that_stays_in_terminating_keeps_its_pod_away_and_that_is_not_called_ready() {
    let mut world = running();
    world.pods.remove(POD);
    delete_claim(&mut world, 5);
    let (ready, reason, _) = said(&mut world);
    assert_eq!((ready.as_str(), reason.as_str()), ("True", "RollingUpdate"));
    world.now += SignedDuration::from_secs(60);
    let (ready, _, message) = said(&mut world);
    assert_eq!(ready, "False");
    assert!(message.contains("its PVC data-0-my-cluster-brokers-1 is still being deleted"), "{message}");
    assert!(warning(&world, "DeletionPending").unwrap().contains("so pod my-cluster-brokers-1 is not made"));
}

#[test]
fn a_pod_that_kubernetes_does_not_make_is_not_called_ready() {
    let mut world = running();
    world.pods.remove(POD);
    let refusal = "pods \"x\" is forbidden: exceeded quota".to_owned();
    world.memory.kubernetes_refused("objects", [refusal].into(), [].into());
    let (ready, _, message) = said(&mut world);
    assert_eq!(ready, "False");
    assert!(message.contains("Kubernetes refuses"), "{message}");
}

/// As an operator remembers from one pass to the next who is away.
fn look(world: &mut World) {
    world.memory.absent = absences::of(world);
}

/// Nobody refuses anything, and still nobody makes it.
#[test]
fn a_pod_that_nobody_makes_is_called_restarting_only_for_so_long() {
    let mut world = running();
    world.pods.remove(POD);
    look(&mut world);
    for (passed, left) in [(0, 60), (59, 1), (181, 60)] {
        world.now += SignedDuration::from_secs(passed);
        look(&mut world);
        let again = decided(&mut world, &[]).look_again.unwrap();
        assert!(again <= Duration::from_secs(left), "it looks again in time: {again:?}");
        let (ready, reason, _) = said(&mut world);
        assert_eq!((ready.as_str(), reason.as_str()), ("True", "RollingUpdate"), "it is given its time");
    }
    world.now += SignedDuration::from_secs(60);
    look(&mut world);
    let (ready, reason, message) = said(&mut world);
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "NodesNotReady"));
    assert!(
        message.contains("my-cluster-brokers-1 (it does not exist since 2023-11-14 22:13 UTC"),
        "{message}"
    );
    assert!(decided(&mut world, &[]).status.is_none(), "it is said once");

    // It comes back, and goes again: that is another absence.
    run_pods(&mut world, true);
    look(&mut world);
    assert_eq!(said(&mut world).0, "True");
    world.pods.remove(POD);
    look(&mut world);
    assert_eq!(said(&mut world).1, "RollingUpdate");
}

#[test]
fn a_pod_that_nobody_makes_stops_the_roll_with_a_word() {
    let mut world = running();
    world.pods.remove(POD);
    look(&mut world);
    change_setting(&mut world);
    world.now += SignedDuration::from_secs(59);
    assert_eq!(told(&decided(&mut world, &[]), "RollingUpdateStopped"), [""; 0]);
    world.now += SignedDuration::from_secs(1);
    let plan = decided(&mut world, &[]);
    assert_eq!(plan.restarts, []);
    let told = told(&plan, "RollingUpdateStopped");
    assert!(
        told[0].contains("before pod my-cluster-brokers-1 is ready: it does not exist since"),
        "{told:?}"
    );
}

/// Its pod set went, too, and nobody may make a new one: only the settings of the nodes are left.
#[test]
fn a_pod_whose_pod_set_is_gone_is_missed_all_the_same() {
    let mut world = running();
    world.pods.remove(POD);
    world.pod_sets.remove("my-cluster-brokers");
    look(&mut world);
    assert_eq!(world.memory.absent.keys().collect::<Vec<_>>(), [POD]);
}

#[test]
fn a_volume_that_its_driver_never_grows_is_told() {
    let mut world = running();
    let claim = Arc::make_mut(world.claims.get_mut(CLAIM).unwrap());
    claim.capacity.clone_from(&claim.requested);
    assert_eq!(told(&decided(&mut world, &[]), "KafkaStorage"), [""; 0]);
    Arc::make_mut(world.claims.get_mut(CLAIM).unwrap()).capacity = Some("1Mi".into());
    said(&mut world);
    let message = warning(&world, "KafkaStorage").unwrap();
    assert!(message.contains(CLAIM) && message.contains("holds 1Mi"), "{message}");
    assert!(message.contains("waits for the driver"), "{message}");

    let claim = Arc::make_mut(world.claims.get_mut(CLAIM).unwrap());
    claim.resize_error = Some("Infeasible: no room".into());
    said(&mut world);
    assert!(warning(&world, "KafkaStorage").unwrap().contains("Infeasible: no room"));
}

/// Brokers that wait for a partition, beside a pod that was made a day ago and gets ready and unready all the time.
fn held_beside(created: i64) -> Vec<String> {
    let mut world = running();
    change_setting(&mut world);
    let (made, since) = (ago(&world, created), ago(&world, 3));
    edit_pod(&mut world, "my-cluster-controllers-3", |pod| (pod.meta.created, pod.since) = (made, since));
    // Controllers have restarted already.
    let names: Vec<_> = world.pods.keys().filter(|name| name.contains("controllers")).cloned().collect();
    for name in names {
        let set = world.pod_sets["my-cluster-controllers"].pods[&name].revision.clone().unwrap();
        edit_pod(&mut world, &name, |pod| {
            pod.meta.annotations.insert("strimzi.io/revision".into(), set);
        });
    }
    let busy = |node: i32| partition(&format!("busy-{node}"), &[0, 1, 2], &[0], 2);
    let plan = decided(&mut world, &[busy(0), busy(1), busy(2)]);
    assert_eq!(plan.restarts, []);
    told(&plan, "RestartHeld")
}

#[test]
fn a_pod_that_comes_and_goes_silences_nobody() {
    assert_eq!(held_beside(60), [""; 0], "after a restart the others get their time");
    let told = held_beside(86_400);
    assert!(!told.is_empty());
}

#[test]
fn a_pod_that_is_not_ready_for_no_known_reason_stops_the_roll_with_a_word() {
    let mut world = running();
    // It is as it should be, and not ready.
    change_setting(&mut world);
    let set = world.pod_sets["my-cluster-brokers"].pods[POD].revision.clone();
    let since = ago(&world, 59);
    edit_pod(&mut world, POD, |pod| {
        (pod.ready, pod.since) = (false, since);
        pod.meta.annotations.insert("strimzi.io/revision".into(), set.unwrap());
    });
    assert_eq!(told(&decided(&mut world, &[]), "RollingUpdateStopped"), [""; 0]);
    world.now += SignedDuration::from_secs(1);
    let plan = decided(&mut world, &[]);
    assert_eq!(plan.restarts, []);
    let told = told(&plan, "RollingUpdateStopped");
    assert!(told[0].contains("it has not been ready since 2023-11-14 22:12 UTC"), "{told:?}");
}

/// Kafka serves in all of them, and a container beside it crashes in all of them.
fn with_bad_sidecars() -> World {
    let mut world = running();
    let names: Vec<_> = world.pods.keys().cloned().collect();
    for name in names {
        edit_pod(&mut world, &name, |pod| {
            (pod.ready, pod.kafka_ready) = (false, true);
            pod.sidecar = Some("container proxy: CrashLoopBackOff".into());
        });
    }
    world
}

#[test]
fn a_sidecar_that_crashes_does_not_make_kafka_dispensable() {
    let mut world = with_bad_sidecars();
    change_setting(&mut world);
    world.answers.quorum = Answer::Known(quorum_of_all(&world));
    let all = |topic: &str| partition(topic, &[0, 1, 2], &[0, 1, 2], 2);
    let restarts = decided(&mut world, &[all("orders")]).restarts;
    assert_eq!(restarts.len(), 1, "one at a time, though none is ready: {restarts:?}");
    let plan = decided(&mut world, &[all("orders")]);
    let (_, _, message) = {
        carry_out(&mut world, Plan { restarts: Vec::new(), ..plan });
        conditions(&world, "Ready").remove(0)
    };
    assert!(message.contains("(container proxy: CrashLoopBackOff)"), "{message}");
}

/// All controllers vote and are caught up, whatever their pods are called.
fn quorum_of_all(world: &World) -> karst_core::world::QuorumView {
    let mut ready = world.clone();
    for pod in ready.pods.values_mut() {
        Arc::make_mut(pod).ready = true;
    }
    match healthy_quorum(&ready) {
        Answer::Known(quorum) => quorum,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_metadata_version_that_cannot_be_had_keeps_the_one_there_is() {
    for asked in ["4.3-IV0", "9.9", "nonsense"] {
        let mut world = running();
        edit_kafka(&mut world, |kafka| {
            kafka.spec.kafka.metadata_version = Some(asked.into());
            kafka.spec.kafka.config.get_or_insert_default().insert("log.retention.hours".into(), 1.into());
        });
        converge(&mut world);
        assert_eq!(conditions(&world, "Ready")[0].0, "True", "the rest goes on");
        let message = warning(&world, "MetadataVersionHeld").unwrap();
        assert!(message.contains(&format!("spec.kafka.metadataVersion is '{asked}'")), "{message}");
        assert!(message.contains("stays 4.1-IV1") && message.contains("newest is 4.1-IV1"), "{message}");
        let status = world.kafka.status.as_ref().unwrap();
        assert_eq!(status.kafka_metadata_version.as_deref(), Some("4.1-IV1"));
        assert_eq!(status.observed_generation, world.kafka.metadata.generation);
    }
}

fn add_volumes(pool: &mut api::KafkaNodePool) {
    let volume = |id: i32| json!({"id": id, "type": "persistent-claim", "size": "1Gi"});
    let storage = json!({"type": "jbod", "volumes": [volume(0), volume(1)]});
    pool.spec.storage = serde_json::from_value(storage).unwrap();
}

#[test]
fn two_volumes_need_a_metadata_version_that_knows_them() {
    let mut world = quickstart();
    edit_kafka(&mut world, |kafka| kafka.spec.kafka.metadata_version = Some("3.6".into()));
    edit_pool(&mut world, "brokers", add_volumes);
    converge(&mut world);
    assert!(world.pods.is_empty());
    let (_, reason, message) = pool_conditions(&world, "brokers", "Ready").remove(0);
    assert_eq!(reason, "InvalidResource");
    for part in
        ["spec.storage.volumes has 2 entries", "3.7-IV2", "3.6-IV2", "spec.kafka.metadataVersion is '3.6'"]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
    edit_kafka(&mut world, |kafka| kafka.spec.kafka.metadata_version = Some("3.7-IV2".into()));
    converge(&mut world);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
}

#[test]
fn controllers_may_have_as_many_volumes_as_they_like() {
    let mut world = quickstart();
    edit_kafka(&mut world, |kafka| kafka.spec.kafka.metadata_version = Some("3.6".into()));
    edit_pool(&mut world, "controllers", add_volumes);
    converge(&mut world);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
}

#[test]
fn a_metadata_version_that_does_not_know_the_volumes_there_are_is_held() {
    let mut world = quickstart();
    edit_pool(&mut world, "brokers", add_volumes);
    converge(&mut world);
    edit_kafka(&mut world, |kafka| kafka.spec.kafka.metadata_version = Some("3.6".into()));
    let mut kafka = Kafka::formed(&world);
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(kafka.level, 27, "brokers would not start again");
    let message = warning(&world, "MetadataVersionHeld").unwrap();
    assert!(
        message.contains("'3.6'") && message.contains("pool 'brokers' have more than one volume"),
        "{message}"
    );
}

#[test]
fn a_second_volume_waits_for_its_metadata_version_and_the_nodes_run_on() {
    let mut world = quickstart();
    edit_kafka(&mut world, |kafka| kafka.spec.kafka.metadata_version = Some("3.6".into()));
    converge(&mut world);
    let mut kafka = Kafka { level: 14, ..Kafka::formed(&world) };
    converge_kafka(&mut world, &mut kafka, &[]);
    let pods: Vec<_> = world.pods.values().map(|pod| pod.meta.uid.clone()).collect();
    edit_pool(&mut world, "brokers", add_volumes);
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(conditions(&world, "Ready")[0].1, "InvalidResource");
    assert_eq!(world.pods.values().map(|pod| pod.meta.uid.clone()).collect::<Vec<_>>(), pods);
    // It goes up though the pool is held, and then the volumes come.
    edit_kafka(&mut world, |kafka| kafka.spec.kafka.metadata_version = None);
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(kafka.level, 27);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    assert!(world.claims.contains_key("data-1-my-cluster-brokers-1"), "{:?}", world.claims.keys());
}

#[test]
fn a_change_of_roles_that_is_held_says_what_the_nodes_are_instead() {
    let mut world = running();
    edit_pool(&mut world, "brokers", |pool| pool.spec.roles = vec![api::Role::Controller]);
    let mut other = (*world.pools["brokers"]).clone();
    (other.metadata.name, other.metadata.uid) = (Some("other".into()), Some("uid-other".into()));
    (other.status, other.spec.roles, other.spec.replicas) = (None, vec![api::Role::Broker], 1);
    world.pools.insert("other".into(), Arc::new(other));
    let lives = partition("orders", &[1], &[1], 1);
    let plan = decided(&mut world, &[lives]);
    let told = told(&plan, "ChangeHeld");
    let expected = "spec.roles of pool 'brokers' is controller, and its nodes are broker,controller for now: partitions live";
    assert!(told[0].starts_with(expected), "{told:?}");
}

/// People's alerts look at the cluster.
#[test]
fn a_change_of_a_pool_that_is_held_is_told_by_the_cluster_too() {
    let mut world = running();
    edit_pool(&mut world, "brokers", |pool| {
        pool.spec.storage =
            serde_json::from_value(json!({"type": "persistent-claim", "size": "1Gi"})).unwrap();
    });
    converge(&mut world);
    let of_pool = pool_conditions(&world, "brokers", "Warning");
    let held = of_pool.iter().find(|(_, reason, _)| reason == "KafkaStorage").expect("a warning").2.clone();
    assert!(warning(&world, "KafkaStorage").is_some_and(|message| message == held), "{held}");

    // What is of no concern to anybody else is not.
    let mut world = running();
    edit_pool(&mut world, "brokers", |pool| {
        let annotations = pool.metadata.annotations.get_or_insert_default();
        annotations.insert("strimzi.io/next-node-ids".into(), "[0]".into());
        pool.spec.replicas = 4;
    });
    converge(&mut world);
    assert!(
        pool_conditions(&world, "brokers", "Warning").iter().any(|(_, reason, _)| reason == "NodeIdsIgnored")
    );
    assert_eq!(warning(&world, "NodeIdsIgnored"), None);
}

#[test]
fn that_kafka_does_not_list_its_brokers_is_told() {
    let mut world = running();
    world.answers.quorum = healthy_quorum(&world);
    world.answers.registered = Answer::Silent("timed out".into());
    let told = |world: &World| told(&decide(world), "BrokersNotTold");
    assert!(told(&world)[0].contains("timed out"));
    let (made, since) = (ago(&world, 20), ago(&world, 10));
    edit_pod(&mut world, POD, |pod| (pod.meta.created, pod.since) = (made, since));
    assert_eq!(told(&world), [""; 0], "while brokers restart that happens");
    let made = ago(&world, 86_400);
    edit_pod(&mut world, POD, |pod| pod.meta.created = made);
    assert_eq!(told(&world).len(), 1, "one that comes and goes silences nobody");
}

#[test]
fn a_metadata_version_that_waits_for_the_pods_of_an_invalid_pool_says_so() {
    let mut world = running();
    let mut kafka = Kafka::formed(&world);
    // The pool is not valid, so its pods stay on the old version.
    edit_kafka(&mut world, |kafka| kafka.spec.kafka.version = Some("4.3.1".into()));
    edit_pool(&mut world, "brokers", |pool| pool.spec.roles.clear());
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(kafka.level, 27);
    let message = warning(&world, "MetadataVersionHeld").unwrap();
    for part in ["4.3-IV0", "my-cluster-brokers-0", "correct their pools"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(kafka.registered.contains(&NodeId(0)));
}
