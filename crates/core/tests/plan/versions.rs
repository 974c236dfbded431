//! What the status says of versions, from the first install on: the table of everything that can happen to it.
//!
//! `operatorLastSuccessfulVersion` tells who last carried out all of what was asked for, `kafkaVersion` what all nodes run and
//! serve with, `kafkaMetadataVersion` what Kafka last said. Nothing that goes wrong ever takes one of them away.

use std::sync::Arc;

use crate::support::*;
use k8s_openapi::jiff::Timestamp;
use karst_core::ids::NodeId;
use karst_core::memory::RefusedService;
use karst_core::plan::Deed;
use karst_core::upgrade::MetadataChange;
use karst_core::world::World;

/// A cluster and its Kafka in the middle of a story.
struct Stage {
    world: World,
    kafka: Kafka,
}

type Step = fn(&mut Stage);

/// One line of the table: what happens to a cluster, and what its status says then.
struct Line {
    story: &'static str,
    from: fn() -> Stage,
    happens: &'static [Step],
    operator: &'static str,
    kafka: &'static str,
    metadata: &'static str,
    ready: &'static str,
    /// Is the newest generation the one that `observedGeneration` tells?
    is_done: bool,
}

/// Nothing was done yet, by operator 0.1.0 for Kafka 4.1.1.
fn nothing() -> Stage {
    let world = quickstart();
    Stage { kafka: Kafka::default(), world }
}

/// Operator 0.1.0 has brought a cluster of Kafka 4.1.1 to rest.
fn at_rest() -> Stage {
    let world = converged();
    let mut stage = Stage { kafka: Kafka::formed(&world), world };
    for _ in 0..3 {
        a_pass(&mut stage);
    }
    stage
}

fn a_pass(stage: &mut Stage) {
    if stage.kafka.voters.is_empty() {
        stage.kafka.voters = Kafka::formed(&stage.world).voters;
    }
    pass(&mut stage.world, &mut stage.kafka);
}

/// Passes until all pods exist that are to exist; none becomes ready.
fn passes_with_pods_that_fail(stage: &mut Stage) {
    for _ in 0..12 {
        a_pass(stage);
        let before = stage.world.pods.clone();
        run_pods(&mut stage.world, false);
        // Those that served before go on.
        for (name, pod) in before {
            stage.world.pods.insert(name, pod);
        }
    }
}

/// Passes, with pods that become ready as soon as they exist.
fn passes(stage: &mut Stage) {
    for _ in 0..40 {
        a_pass(stage);
        run_pods(&mut stage.world, true);
    }
    a_pass(stage);
}

fn controllers_become_ready(stage: &mut Stage) {
    for (name, pod) in &mut stage.world.pods {
        Arc::make_mut(pod).ready |= name.contains("controllers");
    }
}

fn one_broker_fails(stage: &mut Stage) {
    let pod = Arc::make_mut(stage.world.pods.get_mut("my-cluster-brokers-0").unwrap());
    (pod.ready, pod.stuck) = (false, Some("CrashLoopBackOff".into()));
}

fn all_pods_are_deleted(stage: &mut Stage) {
    stage.world.pods.clear();
}

fn one_pod_is_deleted(stage: &mut Stage) {
    stage.world.pods.remove("my-cluster-brokers-0");
}

fn kafka_is_silent(stage: &mut Stage) {
    stage.kafka.is_silent = true;
}

fn kafka_answers(stage: &mut Stage) {
    stage.kafka.is_silent = false;
}

fn operator_is_upgraded(stage: &mut Stage) {
    let mut settings = (*stage.world.settings).clone();
    settings.operator_version = "0.2.0".into();
    stage.world.settings = settings.into();
}

/// The new operator's pods differ from those of the old one.
fn and_its_launcher_too(stage: &mut Stage) {
    let mut settings = (*stage.world.settings).clone();
    settings.node_image = "docker.io/karst/operator:0.2.0".into();
    stage.world.settings = settings.into();
}

fn kafka_4_2_is_asked_for(stage: &mut Stage) {
    edit_kafka(&mut stage.world, |kafka| kafka.spec.kafka.version = Some("4.2.0".into()));
}

fn kafka_9_9_is_asked_for(stage: &mut Stage) {
    edit_kafka(&mut stage.world, |kafka| kafka.spec.kafka.version = Some("9.9.9".into()));
}

fn it_is_taken_back(stage: &mut Stage) {
    edit_kafka(&mut stage.world, |kafka| kafka.spec.kafka.version = Some("4.1.1".into()));
}

fn it_is_paused(stage: &mut Stage) {
    edit_kafka(&mut stage.world, |kafka| {
        let annotations = kafka.metadata.annotations.get_or_insert_default();
        annotations.insert("strimzi.io/pause-reconciliation".into(), "true".into());
    });
}

fn it_goes_on(stage: &mut Stage) {
    edit_kafka(&mut stage.world, |kafka| kafka.metadata.annotations = None);
}

fn a_pool_becomes_invalid(stage: &mut Stage) {
    edit_pool(&mut stage.world, "brokers", |pool| pool.spec.replicas = -1);
}

/// Another part than Kafka itself: the services of a listener that is to be reached from outside.
fn a_listener_is_added_and_kubernetes_refuses_its_services(stage: &mut Stage) {
    edit_kafka(&mut stage.world, |kafka| {
        let outside = serde_json::json!({"name": "outside", "port": 9095, "type": "nodeport", "tls": false});
        kafka.spec.kafka.listeners.push(serde_json::from_value(outside).unwrap());
    });
    for _ in 0..40 {
        let plan = decide(&stage.world);
        let until = Timestamp::from_second(stage.world.now.as_second() + 60).unwrap();
        for service in &plan.services {
            let asked = karst_core::listeners::services::asked(service.meta()).map(str::to_owned);
            let refused = RefusedService { asked, why: "no more ports".into(), until };
            stage.world.memory.refused_services.insert(service.meta().name.clone().unwrap(), refused);
        }
        if plan.services.is_empty() {
            a_pass(stage);
            run_pods(&mut stage.world, true);
        }
    }
    a_pass(stage);
}

fn kafka_refuses_the_metadata_version_of_4_2(stage: &mut Stage) {
    let change = MetadataChange { level: 29, name: "4.2-IV1", is_downgrade: false };
    stage.kafka.refused.push((Deed::Metadata(change), "Broker 2 only supports versions 7-27"));
}

fn a_broker_is_left_over_that_kafka_does_not_forget(stage: &mut Stage) {
    stage.kafka.registered.insert(NodeId(9));
    stage.kafka.refused.push((Deed::Unregister(NodeId(9)), "the controller is busy"));
}

const UNSET: &str = "-";

#[rustfmt::skip]
const TABLE: &[Line] = &[
    // First install.
    Line { story: "the pods exist, and none is ready", from: nothing,
        happens: &[passes_with_pods_that_fail],
        operator: UNSET, kafka: UNSET, metadata: UNSET, ready: "False", is_done: false },
    Line { story: "only the controllers are ready", from: nothing,
        happens: &[passes_with_pods_that_fail, controllers_become_ready, a_pass],
        operator: UNSET, kafka: UNSET, metadata: "4.1-IV1", ready: "False", is_done: false },
    Line { story: "all nodes are ready", from: nothing,
        happens: &[passes_with_pods_that_fail, passes],
        operator: "0.1.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "True", is_done: true },
    Line { story: "all nodes are ready, and Kafka does not answer", from: nothing,
        happens: &[kafka_is_silent, passes],
        operator: UNSET, kafka: "4.1.1", metadata: UNSET, ready: "True", is_done: false },
    Line { story: "a version is asked for that does not exist", from: nothing,
        happens: &[kafka_9_9_is_asked_for, passes],
        operator: UNSET, kafka: UNSET, metadata: UNSET, ready: "False", is_done: true },
    Line { story: "all nodes are ready, and a listener's services are refused", from: nothing,
        happens: &[a_listener_is_added_and_kubernetes_refuses_its_services],
        operator: UNSET, kafka: "4.1.1", metadata: "4.1-IV1", ready: "True", is_done: true },
    Line { story: "it is paused from the first moment", from: nothing,
        happens: &[it_is_paused, passes],
        operator: UNSET, kafka: UNSET, metadata: UNSET, ready: "", is_done: false },

    // Something fails later.
    Line { story: "a broker fails", from: at_rest,
        happens: &[one_broker_fails, a_pass],
        operator: "0.1.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "False", is_done: true },
    Line { story: "all pods are deleted", from: at_rest,
        happens: &[all_pods_are_deleted, a_pass],
        operator: "0.1.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "False", is_done: true },
    Line { story: "one pod is deleted", from: at_rest,
        happens: &[one_pod_is_deleted, a_pass],
        operator: "0.1.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "True", is_done: true },
    Line { story: "all pods are deleted, and the new ones fail", from: at_rest,
        happens: &[all_pods_are_deleted, passes_with_pods_that_fail, one_broker_fails, a_pass],
        operator: "0.1.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "False", is_done: true },
    Line { story: "Kafka falls silent", from: at_rest,
        happens: &[kafka_is_silent, a_pass],
        operator: "0.1.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "True", is_done: true },
    Line { story: "a version is asked for that does not exist, later", from: at_rest,
        happens: &[kafka_9_9_is_asked_for, passes],
        operator: "0.1.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "False", is_done: true },
    Line { story: "a pool becomes invalid", from: at_rest,
        happens: &[a_pool_becomes_invalid, passes],
        operator: "0.1.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "False", is_done: true },

    // Kafka is upgraded.
    Line { story: "an upgrade begins", from: at_rest,
        happens: &[kafka_4_2_is_asked_for, a_pass],
        operator: "0.1.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "True", is_done: false },
    Line { story: "an upgrade whose first pod fails", from: at_rest,
        happens: &[kafka_4_2_is_asked_for, passes_with_pods_that_fail],
        operator: "0.1.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "False", is_done: false },
    Line { story: "an upgrade is done", from: at_rest,
        happens: &[kafka_4_2_is_asked_for, passes],
        operator: "0.1.0", kafka: "4.2.0", metadata: "4.2-IV1", ready: "True", is_done: true },
    Line { story: "an upgrade is taken back half-way", from: at_rest,
        happens: &[kafka_4_2_is_asked_for, passes_with_pods_that_fail, it_is_taken_back, passes],
        operator: "0.1.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "True", is_done: true },
    Line { story: "an upgrade of Kafka, and a listener's services are refused", from: at_rest,
        happens: &[operator_is_upgraded, kafka_4_2_is_asked_for, a_listener_is_added_and_kubernetes_refuses_its_services],
        operator: "0.1.0", kafka: "4.2.0", metadata: "4.2-IV1", ready: "True", is_done: true },
    Line { story: "an upgrade whose metadata version Kafka refuses", from: at_rest,
        happens: &[operator_is_upgraded, kafka_refuses_the_metadata_version_of_4_2, kafka_4_2_is_asked_for, passes],
        operator: "0.1.0", kafka: "4.2.0", metadata: "4.1-IV1", ready: "True", is_done: true },
    Line { story: "an upgrade that a broker which is gone keeps from its metadata version", from: at_rest,
        happens: &[operator_is_upgraded, a_broker_is_left_over_that_kafka_does_not_forget, kafka_4_2_is_asked_for, passes],
        operator: "0.1.0", kafka: "4.2.0", metadata: "4.1-IV1", ready: "True", is_done: true },
    Line { story: "an upgrade while Kafka does not answer waits with its metadata version", from: at_rest,
        happens: &[kafka_4_2_is_asked_for, passes, it_is_taken_back, kafka_4_2_is_asked_for, kafka_is_silent, passes],
        operator: "0.1.0", kafka: "4.2.0", metadata: "4.2-IV1", ready: "True", is_done: false },

    // The operator is upgraded.
    Line { story: "a new operator finds nothing to do", from: at_rest,
        happens: &[operator_is_upgraded, a_pass],
        operator: "0.2.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "True", is_done: true },
    Line { story: "a new operator finds a broker that fails", from: at_rest,
        happens: &[operator_is_upgraded, one_broker_fails, a_pass],
        operator: "0.1.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "False", is_done: true },
    Line { story: "a new operator begins to restart pods", from: at_rest,
        happens: &[operator_is_upgraded, and_its_launcher_too, a_pass, a_pass, a_pass],
        operator: "0.1.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "True", is_done: true },
    Line { story: "a new operator has restarted all pods", from: at_rest,
        happens: &[operator_is_upgraded, and_its_launcher_too, passes],
        operator: "0.2.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "True", is_done: true },
    Line { story: "a new operator finds a Kafka that does not answer", from: at_rest,
        happens: &[operator_is_upgraded, kafka_is_silent, passes],
        operator: "0.1.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "True", is_done: true },
    Line { story: "until it answers", from: at_rest,
        happens: &[operator_is_upgraded, kafka_is_silent, passes, kafka_answers, passes],
        operator: "0.2.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "True", is_done: true },
    Line { story: "a broker that is gone and still registered stops nobody", from: at_rest,
        happens: &[operator_is_upgraded, a_broker_is_left_over_that_kafka_does_not_forget, passes],
        operator: "0.2.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "True", is_done: true },

    // It is paused.
    Line { story: "an upgrade is asked for in a pause", from: at_rest,
        happens: &[it_is_paused, kafka_4_2_is_asked_for, passes],
        operator: "0.1.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "", is_done: false },
    Line { story: "a new operator finds a paused cluster", from: at_rest,
        happens: &[it_is_paused, operator_is_upgraded, passes],
        operator: "0.1.0", kafka: "4.1.1", metadata: "4.1-IV1", ready: "", is_done: false },
    Line { story: "the pause ends", from: at_rest,
        happens: &[it_is_paused, operator_is_upgraded, kafka_4_2_is_asked_for, passes, it_goes_on, passes],
        operator: "0.2.0", kafka: "4.2.0", metadata: "4.2-IV1", ready: "True", is_done: true },
];

#[test]
fn the_status_tells_the_truth_about_versions_whatever_happens() {
    let mut wrong = Vec::new();
    for line in TABLE {
        let mut stage = (line.from)();
        for happens in line.happens {
            happens(&mut stage);
        }
        let status = stage.world.kafka.status.clone().unwrap_or_default();
        let text = |field: Option<String>| field.unwrap_or_else(|| UNSET.into());
        let ready = conditions(&stage.world, "Ready").first().map(|one| one.0.clone()).unwrap_or_default();
        let is_done = status.observed_generation == stage.world.kafka.metadata.generation;
        let found = (
            text(status.operator_last_successful_version),
            text(status.kafka_version),
            text(status.kafka_metadata_version),
            ready,
            is_done,
        );
        let owned = str::to_owned;
        let expected =
            (owned(line.operator), owned(line.kafka), owned(line.metadata), owned(line.ready), line.is_done);
        if found != expected {
            wrong.push(format!("{}:\n  is        {found:?}\n  should be {expected:?}", line.story));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn warnings(stage: &Stage) -> String {
    conditions(&stage.world, "Warning")
        .into_iter()
        .map(|(_, reason, text)| format!("{reason}: {text}\n"))
        .collect()
}

#[test]
fn a_broker_that_is_gone_is_unregistered_before_the_metadata_version_moves() {
    let mut stage = at_rest();
    stage.kafka.registered.insert(NodeId(9));
    kafka_4_2_is_asked_for(&mut stage);
    for _ in 0..40 {
        a_pass(&mut stage);
        run_pods(&mut stage.world, true);
        assert!(stage.kafka.level == 27 || !stage.kafka.registered.contains(&NodeId(9)));
    }
    assert_eq!(stage.kafka.level, 29);
}

#[test]
fn a_broker_that_cannot_be_unregistered_is_told_as_the_reason_and_everything_else_goes_on() {
    let mut stage = at_rest();
    a_broker_is_left_over_that_kafka_does_not_forget(&mut stage);
    kafka_4_2_is_asked_for(&mut stage);
    passes(&mut stage);
    assert_eq!(stage.kafka.level, 27, "the metadata version waits");
    let said = warnings(&stage);
    let failed = "UnregistrationFailed: broker 9 is gone and still registered, because Kafka did not unregister it: the controller is busy";
    assert!(said.contains(failed), "{said}");
    let reason = "MetadataVersionHeld: the metadata version is to become 4.2-IV1 and waits until brokers 9,";
    assert!(said.contains(reason), "{said}");
    // Other changes are carried out meanwhile.
    edit_pool(&mut stage.world, "brokers", |pool| pool.spec.replicas = 4);
    passes(&mut stage);
    assert!(stage.world.pods["my-cluster-brokers-6"].is_serving());
    // Kafka lets go of it, and all is well.
    stage.kafka.refused.clear();
    passes(&mut stage);
    assert_eq!((stage.kafka.level, stage.kafka.registered.contains(&NodeId(9))), (29, false));
    let said = warnings(&stage);
    assert!(!said.contains("UnregistrationFailed") && !said.contains("MetadataVersionHeld"), "{said}");
}

/// Every pod is of a version that this operator does not know.
fn pods_run(stage: &mut Stage, version: &str) {
    for pod in stage.world.pods.values_mut() {
        let annotations = &mut Arc::make_mut(pod).meta.annotations;
        annotations.insert("strimzi.io/kafka-version".into(), version.into());
        annotations.insert("strimzi.io/revision".into(), version.into());
    }
}

/// What is said of the version, and what would be done.
fn refusal(stage: &mut Stage) -> (String, String) {
    stage.world.answers.quorum = match stage.kafka.is_silent {
        true => karst_core::world::Answer::Silent("no answer".into()),
        false => stage.kafka.quorum(&stage.world),
    };
    let plan = decide(&stage.world);
    let problems: Vec<_> = plan.problems.iter().map(ToString::to_string).collect();
    let written = plan.objects.iter().map(karst_core::objects::Object::describe);
    let done: Vec<_> = written.chain(plan.restarts.iter().map(|restart| restart.pod.clone())).collect();
    (problems.join("; "), done.join(", "))
}

#[test]
fn a_version_that_cannot_read_what_an_unknown_newer_one_wrote_is_refused() {
    let mut stage = at_rest();
    pods_run(&mut stage, "4.9.0");
    stage.kafka.level = 35;
    let (problem, done) = refusal(&mut stage);
    let expected = "spec.kafka.version is 4.1.1, and the nodes run Kafka 4.9.0: its metadata version is 35 (level 35), and Kafka 4.1.1 understands 4.1-IV1 (level 27) at most";
    assert!(problem.contains(expected), "{problem}");
    assert_eq!(done, "", "nothing that runs is touched");
    passes(&mut stage);
    let ready = conditions(&stage.world, "Ready");
    assert_eq!((ready[0].0.as_str(), ready[0].1.as_str()), ("False", "VersionHeld"));
}

#[test]
fn an_unknown_version_whose_metadata_can_be_read_makes_place() {
    let mut stage = at_rest();
    pods_run(&mut stage, "4.9.0");
    assert_eq!(refusal(&mut stage).0, "");
    passes(&mut stage);
    let runs = stage.world.pods.values().map(|pod| &pod.meta.annotations["strimzi.io/kafka-version"]);
    assert!(runs.into_iter().all(|version| version == "4.1.1"), "pods restart with what is asked for");
}

#[test]
fn an_unknown_version_whose_metadata_nobody_tells_stays() {
    let mut stage = at_rest();
    pods_run(&mut stage, "4.9.0");
    stage.kafka.is_silent = true;
    edit_kafka(&mut stage.world, |kafka| {
        kafka.status.as_mut().unwrap().kafka_metadata_version = None;
    });
    let (problem, done) = refusal(&mut stage);
    assert!(problem.contains("Kafka has not said which metadata version it has"), "{problem}");
    assert_eq!(done, "");
    // One that is known to be older wrote nothing that could not be read.
    pods_run(&mut stage, "3.8.1");
    assert_eq!(refusal(&mut stage).0, "");
    // What was said last counts, also by a name that is not in the table.
    pods_run(&mut stage, "4.9.0");
    for (said, is_refused) in [("4.1-IV1", false), ("4.9-IV2", true), ("35", true)] {
        edit_kafka(&mut stage.world, |kafka| {
            kafka.status.as_mut().unwrap().kafka_metadata_version = Some(said.into());
        });
        let (problem, _) = refusal(&mut stage);
        assert_eq!(!problem.is_empty(), is_refused, "{said}: {problem}");
    }
}

#[test]
fn a_downgrade_is_held_though_no_pod_is_left_to_show_the_version() {
    let mut stage = at_rest();
    kafka_4_2_is_asked_for(&mut stage);
    passes(&mut stage);
    it_is_taken_back(&mut stage);
    stage.world.pods.clear();
    stage.world.pod_sets.clear();
    passes(&mut stage);
    let said = warnings(&stage);
    assert!(said.contains("VersionHeld: spec.kafka.version is 4.1.1, and the nodes stay at 4.2.0"), "{said}");
    let runs = stage.world.pods.values().map(|pod| &pod.meta.annotations["strimzi.io/kafka-version"]);
    assert!(runs.into_iter().all(|version| version == "4.2.0"));
}
