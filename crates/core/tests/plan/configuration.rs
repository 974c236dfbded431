//! Settings of users: what is refused, what changes while nodes run, and what restarts them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use karst_core::dynamic::{RunningSetting, SettingChange, Source};
use karst_core::ids::NodeId;
use karst_core::memory::Trouble;
use karst_core::names::{SETTINGS_IN_KAFKA_ANNOTATION, STARTED_WITH_ANNOTATION};
use karst_core::objects::Object;
use karst_core::plan::{Deed, Plan, plan};
use karst_core::rolling::Cause;
use karst_core::world::{Answer, Answers, WantedPod, World};
use serde_json::{Value, json};

const SERVICE: &str = "my-cluster-kafka-brokers";

fn set(world: &mut World, key: &str, value: impl Into<Value>) {
    let value = value.into();
    edit_kafka(world, |kafka| {
        kafka.spec.kafka.config.get_or_insert_default().insert(key.to_owned(), value);
    });
}

fn unset(world: &mut World, key: &str) {
    edit_kafka(world, |kafka| {
        kafka.spec.kafka.config.as_mut().unwrap().remove(key);
    });
}

/// A Kafka at rest, and the world around it.
fn at_rest() -> (World, Kafka) {
    let world = converged();
    let kafka = Kafka::formed(&world);
    (world, kafka)
}

/// Gives every pod another uid, so that a restart shows.
fn mark_pods(world: &mut World) {
    for pod in world.pods.values_mut() {
        Arc::make_mut(pod).meta.uid.push_str("-first");
    }
}

/// The pods that were replaced since they were marked.
fn replaced(world: &World) -> BTreeSet<String> {
    let new = world.pods.values().filter(|pod| !pod.meta.uid.ends_with("-first"));
    new.map(|pod| pod.meta.name.clone()).collect()
}

fn change(key: &str, value: Option<&str>) -> SettingChange {
    SettingChange { key: key.into(), node: None, value: value.map(Into::into) }
}

/// What is planned once all questions are answered.
fn answered(world: &World, kafka: &mut Kafka) -> Plan {
    let mut world = World { answers: Answers::default(), ..world.clone() };
    for _ in 0..5 {
        let plan = plan(&world).unwrap();
        if plan.questions.is_empty() {
            return plan;
        }
        if !plan.questions.quorum.is_empty() {
            world.answers.quorum = kafka.quorum(&world);
        }
        if plan.questions.registered {
            world.answers.registered = kafka.registered(&world);
        }
        kafka.tell_settings(&mut world, &plan.questions);
    }
    panic!("it never stops asking");
}

fn configured(plan: &Plan) -> Vec<SettingChange> {
    let changes = plan.deeds.iter().filter_map(|deed| match deed {
        Deed::Configure(change) => Some(change.clone()),
        _ => None,
    });
    changes.collect()
}

fn record(world: &World) -> Option<&String> {
    world.services[SERVICE].meta.annotations.get(SETTINGS_IN_KAFKA_ANNOTATION)
}

#[test]
fn a_wrong_value_is_refused_and_nothing_that_runs_is_touched() {
    let mut world = converged();
    mark_pods(&mut world);
    set(&mut world, "num.io.threads", "many");
    set(&mut world, "compression.type", "zip");
    let plan = decide(&world);
    assert!(plan.objects.is_empty() && plan.restarts.is_empty() && plan.deeds.is_empty());
    carry_out(&mut world, plan);
    let (ready, reason, message) = conditions(&world, "Ready").remove(0);
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "InvalidResource"));
    for part in
        ["spec.kafka.config.num.io.threads is 'many'", "a whole number", "compression.type is 'zip'", "zstd"]
    {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    set(&mut world, "num.io.threads", 8);
    unset(&mut world, "compression.type");
    converge(&mut world);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    assert!(replaced(&world).is_empty());
}

#[test]
fn an_unknown_setting_is_passed_on_and_told() {
    let mut world = quickstart();
    set(&mut world, "my.plugin.level", 3);
    converge(&mut world);
    let warnings = conditions(&world, "Warning");
    let unknown = warnings.iter().find(|(_, reason, _)| reason == "UnknownSettings").expect("a warning");
    assert!(unknown.2.contains("my.plugin.level"), "{unknown:?}");
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
}

#[test]
fn a_setting_that_can_change_while_nodes_run_restarts_none() {
    let (mut world, mut kafka) = at_rest();
    mark_pods(&mut world);
    set(&mut world, "log.retention.ms", 60_000);
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(kafka.told, [("log.retention.ms".into(), "60000".into())].into());
    assert!(replaced(&world).is_empty());
    assert_eq!(world.kafka.status.as_ref().unwrap().observed_generation, Some(2));
    assert_eq!(record(&world).map(String::as_str), Some("log.retention.ms"));
}

#[test]
fn the_generation_is_not_done_before_kafka_was_told() {
    let (mut world, mut kafka) = at_rest();
    set(&mut world, "log.retention.ms", 60_000);
    for _ in 0..20 {
        let done = world.kafka.status.as_ref().unwrap().observed_generation == Some(2);
        assert!(!done || kafka.told.contains_key("log.retention.ms"));
        if !step(&mut world, &mut kafka, &[]) {
            assert!(done);
            return;
        }
    }
    panic!("it never comes to rest");
}

#[test]
fn kafka_is_told_only_after_it_is_written_down() {
    let (mut world, mut kafka) = at_rest();
    set(&mut world, "log.retention.ms", 60_000);
    let plan = answered(&world, &mut kafka);
    assert_eq!(configured(&plan), []);
    assert!(plan.objects.iter().any(|object| object.describe() == format!("Service {SERVICE}")));
    carry_out(&mut world, plan);
    assert_eq!(record(&world).map(String::as_str), Some("log.retention.ms"));
    assert_eq!(configured(&answered(&world, &mut kafka)), [change("log.retention.ms", Some("60000"))]);
}

#[test]
fn a_static_and_a_dynamic_setting_together_restart_each_pod_once() {
    let (mut world, mut kafka) = at_rest();
    mark_pods(&mut world);
    set(&mut world, "log.retention.ms", 60_000);
    set(&mut world, "queued.max.requests", 300);
    let mut restarts: BTreeMap<String, usize> = BTreeMap::new();
    for _ in steps(200) {
        let plan = plan(&world).unwrap();
        for restart in plan.restarts.iter().filter(|_| plan.questions.is_empty()) {
            *restarts.entry(restart.pod.clone()).or_default() += 1;
        }
        if !step(&mut world, &mut kafka, &[]) {
            break;
        }
    }
    assert_eq!(restarts.len(), 6);
    assert!(restarts.values().all(|times| *times == 1), "{restarts:?}");
    assert_eq!(kafka.told["log.retention.ms"], "60000");
}

#[test]
fn a_setting_that_is_taken_back_is_deleted_without_a_restart() {
    let (mut world, mut kafka) = at_rest();
    set(&mut world, "log.retention.ms", 60_000);
    converge_kafka(&mut world, &mut kafka, &[]);
    mark_pods(&mut world);
    unset(&mut world, "log.retention.ms");
    converge_kafka(&mut world, &mut kafka, &[]);
    assert!(kafka.told.is_empty());
    assert!(replaced(&world).is_empty());
    let record_then = record(&world).cloned().unwrap();
    assert!(record_then.starts_with("log.retention.ms@2"), "{record_then}");
    let later = decide(&world);
    assert!(is_quiet(&later) && later.look_again.is_some_and(|pause| pause <= Duration::from_secs(60)));
    a_minute_later(&mut world, &mut kafka);
    assert_eq!(record(&world).map(String::as_str), Some(""));
}

fn a_minute_later(world: &mut World, kafka: &mut Kafka) {
    world.now += SignedDuration::from_secs(61);
    converge_kafka(world, kafka, &[]);
}

/// An operator that leads no longer had sent it, and Kafka got it after the next one had seen every node without it.
#[test]
fn what_reaches_kafka_after_the_first_look_is_taken_back_too() {
    let (mut world, mut kafka) = at_rest();
    set(&mut world, "num.io.threads", 6);
    converge_kafka(&mut world, &mut kafka, &[]);
    unset(&mut world, "num.io.threads");
    converge_kafka(&mut world, &mut kafka, &[]);
    assert!(kafka.told.is_empty());
    kafka.told.insert("num.io.threads".into(), "6".into());
    a_minute_later(&mut world, &mut kafka);
    assert!(kafka.told.is_empty(), "{:?}", kafka.told);
    a_minute_later(&mut world, &mut kafka);
    assert_eq!(record(&world).map(String::as_str), Some(""));
    // From now on it is somebody else's.
    kafka.told.insert("num.io.threads".into(), "6".into());
    world.memory.checked_settings.clear();
    a_minute_later(&mut world, &mut kafka);
    assert_eq!(kafka.told.len(), 1);
}

#[test]
fn a_setting_that_nodes_started_with_is_forgotten_by_a_restart() {
    let mut world = quickstart();
    set(&mut world, "log.retention.ms", 60_000);
    converge(&mut world);
    let mut kafka = Kafka::formed(&world);
    mark_pods(&mut world);
    unset(&mut world, "log.retention.ms");
    let plan = answered(&world, &mut kafka);
    carry_out(&mut world, plan);
    let causes = answered(&world, &mut kafka).restarts.remove(0).causes;
    assert_eq!(causes, [Cause::SettingsGone(vec!["log.retention.ms".into()])]);
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(replaced(&world).len(), 6);
    assert!(kafka.told.is_empty());
}

/// Its settings named other roles while its container started again, and do not any more: nobody sees that in the pod.
#[test]
fn a_node_with_other_roles_than_its_pod_says_restarts() {
    let (mut world, mut kafka) = at_rest();
    mark_pods(&mut world);
    let roles = |roles: &str| [("process.roles".to_owned(), roles.to_owned())].into();
    kafka.read_later.insert(NodeId(0), roles("broker"));
    kafka.read_later.insert(NodeId(3), roles("broker"));
    kafka.read_later.insert(NodeId(4), roles("controller"));
    world.memory.checked_settings.clear();
    let restart = answered(&world, &mut kafka).restarts.remove(0);
    assert_eq!(restart.node, NodeId(3));
    assert_eq!(restart.causes, [Cause::SettingsGone(vec!["process.roles=broker".into()])]);
    kafka.read_later.remove(&NodeId(3));
    assert_eq!(answered(&world, &mut kafka).restarts, []);
}

#[test]
fn what_somebody_told_kafka_by_hand_stays_unless_the_spec_names_it() {
    let (mut world, mut kafka) = at_rest();
    kafka.told.insert("log.cleaner.threads".into(), "2".into());
    kafka.told_alone.insert((NodeId(1), "log.retention.ms".into()), "1".into());
    world.memory.checked_settings.clear();
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(kafka.told.len(), 1);
    assert_eq!(kafka.told_alone.len(), 1);

    set(&mut world, "log.cleaner.threads", 3);
    set(&mut world, "log.retention.ms", 60_000);
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(kafka.told["log.cleaner.threads"], "3");
    assert_eq!(kafka.told["log.retention.ms"], "60000");
    assert!(kafka.told_alone.is_empty(), "what one broker was told stands above what all are told");
}

#[test]
fn min_insync_replicas_is_set_back_because_kafka_does_not_let_go_of_it() {
    let (mut world, mut kafka) = at_rest();
    set(&mut world, "min.insync.replicas", 1);
    converge_kafka(&mut world, &mut kafka, &[]);
    set(&mut world, "min.insync.replicas", 2);
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(kafka.told["min.insync.replicas"], "2");
    unset(&mut world, "min.insync.replicas");
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(kafka.told["min.insync.replicas"], "1");
}

#[test]
fn a_change_that_is_reverted_before_anybody_looked_is_reverted_in_kafka_too() {
    let (mut world, mut kafka) = at_rest();
    set(&mut world, "log.retention.ms", 60_000);
    let plan = answered(&world, &mut kafka);
    carry_out(&mut world, plan);
    // Kafka is told, and the operator dies: a new one has seen no node.
    for deed in &answered(&world, &mut kafka).deeds {
        kafka.do_it(deed);
    }
    world.memory.checked_settings.clear();
    assert_eq!(kafka.told.len(), 1);
    unset(&mut world, "log.retention.ms");
    converge_kafka(&mut world, &mut kafka, &[]);
    assert!(kafka.told.is_empty());
}

#[test]
fn a_value_that_kafka_does_not_take_is_told_and_stops_nothing_else() {
    let (mut world, mut kafka) = at_rest();
    set(&mut world, "num.io.threads", 100);
    set(&mut world, "log.retention.ms", 60_000);
    let plan = answered(&world, &mut kafka);
    carry_out(&mut world, plan);
    let refused = change("num.io.threads", Some("100"));
    let until = world.now.checked_add(SignedDuration::from_secs(5)).unwrap();
    let why = "value should not be greater than double the current value 8".to_owned();
    world.memory.troubles = vec![Trouble { deed: Deed::Configure(refused.clone()), why, until, failures: 1 }];
    let plan = answered(&world, &mut kafka);
    assert_eq!(configured(&plan), [change("log.retention.ms", Some("60000"))]);
    carry_out(&mut world, plan);
    let warnings = conditions(&world, "Warning");
    let told = warnings.iter().find(|(_, reason, _)| reason == "SettingNotTaken").expect("a warning");
    for part in ["num.io.threads", "100", "double the current value"] {
        assert!(told.2.contains(part), "{told:?}");
    }
    world.now = until;
    assert!(configured(&answered(&world, &mut kafka)).contains(&refused), "it is tried again");
}

#[test]
fn of_many_settings_a_few_are_told_at_a_time_and_those_that_were_refused_come_last() {
    let (mut world, mut kafka) = at_rest();
    let keys = [
        "background.threads",
        "log.cleaner.threads",
        "log.retention.bytes",
        "log.retention.ms",
        "message.max.bytes",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    ];
    keys.iter().for_each(|key| set(&mut world, key, 1_000_000));
    let plan = answered(&world, &mut kafka);
    carry_out(&mut world, plan);
    let first = configured(&answered(&world, &mut kafka));
    assert_eq!(first.len(), 8);
    let refused = |change: &SettingChange| Trouble {
        deed: Deed::Configure(change.clone()),
        why: "no".to_owned(),
        until: world.now,
        failures: 1,
    };
    world.memory.troubles = first.iter().take(5).map(refused).collect();
    let then = configured(&answered(&world, &mut kafka));
    assert_eq!(then.len(), 8);
    let of = |changes: &[SettingChange]| -> BTreeSet<String> {
        changes.iter().map(|change| change.key.clone()).collect()
    };
    let new: BTreeSet<_> = keys.iter().map(|key| (*key).to_owned()).collect();
    let new: BTreeSet<_> = new.difference(&of(&first[..5])).cloned().collect();
    assert_eq!(of(&then[..4]), new, "nobody waits behind what was refused");
}

/// What nodes would read when they start, of one setting.
fn written(world: &World, key: &str) -> BTreeSet<Option<String>> {
    let pods = world.pod_sets.values().flat_map(|set| set.pods.values());
    let read = |pod: &WantedPod| {
        let pod: Value = serde_json::from_str(&pod.json).unwrap();
        let text = pod["metadata"]["annotations"][STARTED_WITH_ANNOTATION].as_str().unwrap();
        let settings: BTreeMap<String, String> = serde_json::from_str(text).unwrap();
        settings.get(key).cloned()
    };
    pods.map(read).collect()
}

/// A Kafka that does not take a value, after a few passes.
fn with_a_refused_value(before: Option<i64>) -> (World, Kafka) {
    let mut world = quickstart();
    if let Some(value) = before {
        set(&mut world, "log.retention.ms", value);
    }
    converge(&mut world);
    let mut kafka = Kafka::formed(&world);
    mark_pods(&mut world);
    let refused = Deed::Configure(change("log.retention.ms", Some("77")));
    kafka.refused.push((refused, "log.retention.ms does not go with log.local.retention.ms"));
    set(&mut world, "log.retention.ms", 77);
    for _ in 0..6 {
        pass(&mut world, &mut kafka);
    }
    (world, kafka)
}

#[test]
fn a_value_that_kafka_refuses_never_gets_where_a_restart_would_read_it() {
    for before in [None, Some(60_000)] {
        let (mut world, mut kafka) = with_a_refused_value(before);
        let kept = before.map(|value| value.to_string());
        assert_eq!(written(&world, "log.retention.ms"), [kept.clone()].into());
        let told = conditions(&world, "Warning");
        let told = told.iter().find(|(_, reason, _)| reason == "SettingNotTaken").expect("a warning");
        for part in ["spec.kafka.config.log.retention.ms", "77", "log.local.retention.ms", "keep the value"] {
            assert!(told.2.contains(part), "{part} is not in {told:?}");
        }
        // A node that is added meanwhile gets what the others have, and other settings go their way.
        edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 4);
        set(&mut world, "queued.max.requests", 300);
        for _ in 0..40 {
            pass(&mut world, &mut kafka);
            run_pods(&mut world, true);
        }
        assert!(world.pods.contains_key("my-cluster-brokers-6"));
        assert_eq!(replaced(&world).len(), 7, "all of them restarted for the other setting");
        assert_eq!(written(&world, "log.retention.ms"), [kept].into());
        // The user thinks again.
        set(&mut world, "log.retention.ms", 88_000);
        converge_kafka(&mut world, &mut kafka, &[]);
        assert_eq!(written(&world, "log.retention.ms"), [Some("88000".into())].into());
        assert_eq!(kafka.told["log.retention.ms"], "88000");
    }
}

#[test]
fn a_refused_value_is_not_read_after_all_nodes_went_down_either() {
    let (mut world, mut kafka) = with_a_refused_value(Some(60_000));
    run_pods(&mut world, false);
    for _ in 0..3 {
        pass(&mut world, &mut kafka);
    }
    assert_eq!(written(&world, "log.retention.ms"), [Some("60000".into())].into());
    // Another value may be what brings them back, and nobody is there to try it before.
    set(&mut world, "log.retention.ms", 88_000);
    pass(&mut world, &mut kafka);
    assert_eq!(written(&world, "log.retention.ms"), [Some("88000".into())].into());
}

#[test]
fn a_value_is_written_for_the_next_start_when_kafka_has_taken_it() {
    let (mut world, mut kafka) = at_rest();
    set(&mut world, "log.retention.ms", 60_000);
    for _ in 0..20 {
        let is_written = written(&world, "log.retention.ms") == [Some("60000".to_owned())].into();
        assert!(!is_written || kafka.told.contains_key("log.retention.ms"));
        if !step(&mut world, &mut kafka, &[]) {
            assert!(is_written);
            return;
        }
    }
    panic!("it never comes to rest");
}

#[test]
fn threads_are_changed_in_steps_that_kafka_takes() {
    let (mut world, mut kafka) = at_rest();
    set(&mut world, "num.io.threads", 8);
    converge_kafka(&mut world, &mut kafka, &[]);
    mark_pods(&mut world);
    set(&mut world, "num.io.threads", 40);
    let mut seen = Vec::new();
    while step(&mut world, &mut kafka, &[]) {
        let now = kafka.told["num.io.threads"].clone();
        if seen.last() != Some(&now) {
            seen.push(now);
        }
    }
    assert_eq!(seen, ["8", "16", "32", "40"]);
    assert!(replaced(&world).is_empty());
    assert_eq!(written(&world, "num.io.threads"), [Some("40".into())].into());
}

#[test]
fn a_setting_that_only_a_container_read_when_it_started_again_is_forgotten_too() {
    let (mut world, mut kafka) = at_rest();
    set(&mut world, "log.retention.ms", 60_000);
    converge_kafka(&mut world, &mut kafka, &[]);
    mark_pods(&mut world);
    // The container of one broker ends and starts again in the same pod. It reads what is written now.
    kafka.read_later.insert(NodeId(1), [("log.retention.ms".into(), "60000".into())].into());
    unset(&mut world, "log.retention.ms");
    for _ in 0..30 {
        step(&mut world, &mut kafka, &[]);
        if replaced(&world).contains("my-cluster-brokers-1") {
            kafka.read_later.clear();
        }
    }
    assert!(kafka.told.is_empty());
    assert_eq!(replaced(&world), ["my-cluster-brokers-1".to_owned()].into(), "and only this one restarts");
}

#[test]
fn karst_itself_sets_nothing_that_could_be_taken_for_a_users_setting() {
    let mut world = quickstart();
    edit_kafka(&mut world, |kafka| kafka.spec.kafka.config = None);
    let kafka = karst_core::versions::find("4.1.1").unwrap();
    for _ in 0..6 {
        let plan = decide(&world);
        for object in &plan.objects {
            let Object::ConfigMap(map) = object else { continue };
            let config = &map.data.as_ref().unwrap()["server.config"];
            for key in karst_core::dynamic::keys(kafka) {
                assert!(!config.lines().any(|line| line.starts_with(&format!("{key}="))), "{key}");
            }
        }
        carry_out(&mut world, plan);
    }
    assert_eq!(world.config_maps.len(), 6);
}

#[test]
fn a_node_at_rest_is_asked_once() {
    let (mut world, _) = at_rest();
    let asks = |world: &World| {
        let mut world = World { answers: Answers::default(), ..world.clone() };
        world.answers.quorum = healthy_quorum(&world);
        world.answers.registered = Kafka::default().registered(&world);
        let questions = plan(&world).unwrap().questions;
        (questions.settings_of_brokers.len(), questions.settings_of_controllers.len())
    };
    assert_eq!(asks(&world), (0, 0));
    // It starts again, or something else is wanted.
    let pod = Arc::make_mut(world.pods.get_mut("my-cluster-brokers-1").unwrap());
    pod.since = Some(Timestamp::from_second(1_700_000_100).unwrap());
    assert_eq!(asks(&world), (1, 0));
    set(&mut world, "log.retention.ms", 1);
    assert_eq!(asks(&world), (3, 3));
}

#[test]
fn a_node_that_does_not_say_what_it_runs_with_changes_nothing() {
    let (mut world, mut kafka) = at_rest();
    set(&mut world, "log.retention.ms", 60_000);
    let written = answered(&world, &mut kafka);
    carry_out(&mut world, written);
    world.answers.quorum = kafka.quorum(&world);
    world.answers.registered = kafka.registered(&world);
    for node in 0..6 {
        world.answers.settings.insert(NodeId(node), Answer::Silent("no answer".into()));
    }
    let plan = plan(&world).unwrap();
    assert!(plan.questions.is_empty() && plan.deeds.is_empty() && plan.checked_settings.is_empty());
    assert!(
        plan.objects.is_empty() && plan.restarts.is_empty(),
        "nor is anything written for the next start"
    );
    let told = plan.notices.iter().map(ToString::to_string).find(|told| told.contains("do not say"));
    let told = told.expect("a warning");
    assert!(told.contains("nodes 0, 1, 2, 3, 4, 5") && told.contains("no answer"), "{told}");
    let status = plan.status.expect("a status");
    assert_eq!(status.pointer("/status/observedGeneration"), None, "nobody knows whether it is done");
}

#[test]
fn one_node_that_does_not_say_what_it_runs_with_is_named() {
    let (mut world, mut kafka) = at_rest();
    set(&mut world, "log.retention.ms", 60_000);
    converge_kafka(&mut world, &mut kafka, &[]);
    world.memory.checked_settings.remove("my-cluster-brokers-2");
    world.answers.quorum = kafka.quorum(&world);
    world.answers.registered = kafka.registered(&world);
    world.answers.settings.insert(NodeId(2), Answer::Silent("timed out".into()));
    let plan = plan(&world).unwrap();
    assert!(plan.objects.is_empty() && plan.deeds.is_empty());
    let told = plan.notices.iter().map(ToString::to_string).find(|told| told.contains("do not say"));
    assert!(told.expect("a warning").starts_with("nodes 2 serve"));
}

#[test]
fn a_value_in_another_form_is_the_same_value() {
    let (mut world, mut kafka) = at_rest();
    set(&mut world, "log.cleanup.policy", "delete, compact");
    converge_kafka(&mut world, &mut kafka, &[]);
    world.memory.checked_settings.clear();
    world.answers.quorum = kafka.quorum(&world);
    world.answers.registered = kafka.registered(&world);
    let running = |value: &str| RunningSetting {
        key: "log.cleanup.policy".into(),
        value: Some(value.into()),
        source: Source::Cluster,
    };
    for node in 0..6 {
        world.answers.settings.insert(NodeId(node), Answer::Known(vec![running("delete,compact")]));
    }
    assert_eq!(configured(&plan(&world).unwrap()), []);
}

#[test]
fn controllers_restart_for_what_only_brokers_take_while_they_run() {
    let (mut world, mut kafka) = at_rest();
    mark_pods(&mut world);
    set(&mut world, "num.network.threads", 4);
    converge_kafka(&mut world, &mut kafka, &[]);
    let expected = ["controllers-3", "controllers-4", "controllers-5"].map(|pod| format!("my-cluster-{pod}"));
    assert_eq!(replaced(&world), expected.into());
    assert_eq!(kafka.told["num.network.threads"], "4");
}

#[test]
fn copies_that_cannot_be_made_are_told() {
    let mut world = quickstart();
    set(&mut world, "default.replication.factor", 5);
    set(&mut world, "min.insync.replicas", json!("6"));
    converge(&mut world);
    let told: String =
        conditions(&world, "Warning").into_iter().map(|(_, _, message)| message + "\n").collect();
    assert!(told.contains("default.replication.factor is 5, and there are 3 brokers"), "{told}");
    assert!(told.contains("min.insync.replicas is 6, and default.replication.factor is 5"), "{told}");
}
