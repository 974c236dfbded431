//! Changes of the storage of nodes that run: what is done, what is held, and what is said about it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{
    Kafka, conditions, converge, converge_kafka, decide, edit_kafka, edit_pod, edit_pool, healthy_quorum,
    is_quiet, partition, pool_conditions, run_pods, step, world,
};
use karst_api as api;
use karst_core::ids::NodeId;
use karst_core::memory::RefusedGrowth;
use karst_core::plan::{Plan, plan};
use karst_core::rolling::Cause;
use karst_core::world::{Answer, Answers, ClaimView, LogDirView, Partitions, World};
use serde_json::{Value, json};

/// Three controllers on one claim each, and two brokers with two volumes each.
fn cluster() -> World {
    let mut world = world(
        "apiVersion: kafka.strimzi.io/v1
kind: Kafka
metadata: {name: c}
spec:
  kafka:
    version: 4.1.1
    listeners: [{name: plain, port: 9092, type: internal, tls: false}]
    config: {default.replication.factor: 2, min.insync.replicas: 1}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaNodePool
metadata: {name: ctl, labels: {strimzi.io/cluster: c}}
spec:
  replicas: 3
  roles: [controller]
  storage: {type: jbod, volumes: [{id: 1, type: persistent-claim, size: 10Gi}]}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaNodePool
metadata: {name: brk, labels: {strimzi.io/cluster: c}}
spec:
  replicas: 2
  roles: [broker]
  storage:
    type: jbod
    volumes:
      - {id: 0, type: persistent-claim, size: 10Gi, deleteClaim: true}
      - {id: 1, type: persistent-claim, size: 10Gi, deleteClaim: true}
",
    );
    converge(&mut world);
    world
}

/// The brokers of [`cluster`].
const BROKERS: [NodeId; 2] = [NodeId(0), NodeId(1)];

fn volume(id: i32, size: &str) -> Value {
    json!({"id": id, "type": "persistent-claim", "size": size, "deleteClaim": true})
}

fn ask(world: &mut World, pool: &str, storage: &Value) {
    edit_pool(world, pool, |pool| pool.spec.storage = serde_json::from_value(storage.clone()).unwrap());
}

fn ask_volumes(world: &mut World, pool: &str, volumes: &[Value]) {
    ask(world, pool, &json!({"type": "jbod", "volumes": volumes}));
}

/// What the pod set remembers.
fn remembered(world: &World, pool: &str) -> api::Storage {
    let set = &world.pod_sets[&world.key.pod_set(pool)];
    serde_json::from_str(&set.meta.annotations["strimzi.io/storage"]).unwrap()
}

fn sizes(world: &World, pool: &str) -> Vec<(i32, String)> {
    let volumes = remembered(world, pool).volumes.unwrap();
    volumes.into_iter().map(|volume| (volume.id, volume.size.unwrap_or_default())).collect()
}

fn warnings(world: &World, pool: &str) -> Vec<String> {
    let of_storage = pool_conditions(world, pool, "Warning").into_iter();
    of_storage.filter(|(_, reason, _)| reason == "KafkaStorage").map(|(_, _, message)| message).collect()
}

fn claim<'w>(world: &'w mut World, name: &str) -> &'w mut ClaimView {
    Arc::make_mut(world.claims.get_mut(name).expect(name))
}

fn requested(world: &World) -> Vec<(&str, &str)> {
    let brokers = world.claims.iter().filter(|(name, _)| name.contains("-brk-"));
    brokers.map(|(name, claim)| (name.as_str(), claim.requested.as_deref().unwrap())).collect()
}

fn uses(world: &World, pod: &str, claim: &str) -> bool {
    world.pod_sets.values().any(|set| set.pods.get(pod).is_some_and(|pod| pod.json.contains(claim)))
}

fn dir(node: NodeId, volume: i32, partitions: &[&str]) -> LogDirView {
    LogDirView {
        path: format!("/var/lib/kafka/data-{volume}/kafka-log{node}"),
        error: None,
        partitions: partitions.iter().map(ToString::to_string).collect(),
        more: 0,
    }
}

/// Comes to rest with a Kafka that has these partitions on volume 1 of broker 0.
fn rest_with(world: &mut World, kafka: &mut Kafka, partitions: &[&str]) {
    for node in BROKERS {
        let here = if node == NodeId(0) { partitions } else { &[] };
        kafka.log_dirs.insert(node, vec![dir(node, 0, &["other-0"]), dir(node, 1, here)]);
    }
    converge_kafka(world, kafka, &[]);
}

fn removals(plan: &Plan) -> Vec<String> {
    plan.removals.iter().map(|removal| removal.seen().name.clone()).collect()
}

#[test]
fn a_larger_size_grows_every_claim_and_restarts_nobody() {
    let mut world = cluster();
    ask_volumes(&mut world, "brk", &[volume(0, "10Gi"), volume(1, "20Gi")]);
    // Somebody was here before: one claim is half-way, another was grown further by hand.
    claim(&mut world, "data-1-c-brk-0").requested = Some("15Gi".into());
    claim(&mut world, "data-0-c-brk-1").requested = Some("99Gi".into());
    let pods = world.pods.clone();
    converge(&mut world);
    let expected = [
        ("data-0-c-brk-0", "10Gi"),
        ("data-0-c-brk-1", "99Gi"),
        ("data-1-c-brk-0", "20Gi"),
        ("data-1-c-brk-1", "20Gi"),
    ];
    assert_eq!(requested(&world), expected);
    assert_eq!(world.pods, pods);
    assert_eq!(warnings(&world, "brk"), [""; 0]);
    assert_eq!(sizes(&world, "brk"), [(0, "10Gi".into()), (1, "20Gi".into())]);
}

#[test]
fn the_same_size_in_another_unit_changes_nothing() {
    let mut world = cluster();
    ask_volumes(&mut world, "brk", &[volume(0, "10240Mi"), volume(1, "10Gi")]);
    assert_eq!(decide(&world).growths, []);
    converge(&mut world);
    assert_eq!(warnings(&world, "brk"), [""; 0]);
}

#[test]
fn a_claim_without_a_volume_is_not_grown_before_it_has_one() {
    let mut world = cluster();
    claim(&mut world, "data-1-c-brk-0").bound = false;
    ask_volumes(&mut world, "brk", &[volume(0, "10Gi"), volume(1, "20Gi")]);
    converge(&mut world);
    assert_eq!(requested(&world)[2], ("data-1-c-brk-0", "10Gi"));
    claim(&mut world, "data-1-c-brk-0").bound = true;
    converge(&mut world);
    assert_eq!(requested(&world)[2], ("data-1-c-brk-0", "20Gi"));
}

#[test]
fn a_refused_growth_is_told_and_tried_again_later_and_can_be_taken_back() {
    let mut world = cluster();
    ask_volumes(&mut world, "brk", &[volume(0, "20Gi"), volume(1, "10Gi")]);
    let until = world.now.checked_add(Duration::from_secs(60)).unwrap();
    for name in ["data-0-c-brk-0", "data-0-c-brk-1"] {
        let refused = RefusedGrowth { size: "20Gi".into(), why: "the class does not allow it".into(), until };
        world.memory.refused_growth.insert(name.into(), refused);
    }
    converge(&mut world);
    let said = warnings(&world, "brk");
    assert!(said[0].contains("data-0-c-brk-0") && said[0].contains("20Gi"), "{said:?}");
    assert!(said[0].contains("the class does not allow it"), "{said:?}");
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    let plan = decide(&world);
    assert!(plan.growths.is_empty() && plan.look_again.is_some());
    world.now = until;
    assert_eq!(decide(&world).growths.len(), 2, "a minute later it is tried again");
    // Nothing grew, so nothing has to shrink.
    ask_volumes(&mut world, "brk", &[volume(0, "10Gi"), volume(1, "10Gi")]);
    converge(&mut world);
    assert_eq!(warnings(&world, "brk"), [""; 0]);
    assert_eq!(sizes(&world, "brk"), [(0, "10Gi".into()), (1, "10Gi".into())]);
}

#[test]
fn a_smaller_size_is_refused_alone_and_everything_else_goes_on() {
    let mut world = cluster();
    ask_volumes(&mut world, "brk", &[volume(0, "5Gi"), volume(1, "20Gi"), volume(2, "7Gi")]);
    edit_pool(&mut world, "brk", |pool| pool.spec.replicas = 3);
    converge(&mut world);
    let said = warnings(&world, "brk");
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("spec.storage.volumes[id=0].size is 5Gi, and its nodes keep 10Gi"), "{said:?}");
    assert_eq!(sizes(&world, "brk"), [(0, "10Gi".into()), (1, "20Gi".into()), (2, "7Gi".into())]);
    assert_eq!(world.claims["data-0-c-brk-5"].requested.as_deref(), Some("10Gi"));
    assert!(world.claims.contains_key("data-2-c-brk-0") && uses(&world, "c-brk-0", "data-2-c-brk-0"));
    assert!(is_quiet(&decide(&world)));
}

#[test]
fn a_file_system_that_does_not_grow_in_use_restarts_its_pod_once() {
    let mut world = cluster();
    let since = world.now;
    claim(&mut world, "data-1-c-brk-1").resize_pending = Some(since);
    let plan = decide(&world);
    assert!(plan.restarts.is_empty(), "the kubelet may be able to do it");
    assert!(plan.look_again.is_some());
    world.now = since.checked_add(Duration::from_secs(120)).unwrap();
    let mut kafka = Kafka::formed(&world);
    while decide(&world).restarts.is_empty() {
        assert!(step(&mut world, &mut kafka, &[]), "the pod is never restarted");
    }
    let plan = decide(&world);
    assert_eq!(plan.restarts[0].pod, "c-brk-1");
    assert_eq!(plan.restarts[0].causes, [Cause::Resize(vec!["data-1-c-brk-1".into()])]);
    assert!(plan.restarts[0].causes[0].to_string().contains("file system resize"));
    // The condition goes a moment after the new pod came.
    let pod = Arc::make_mut(world.pods.get_mut("c-brk-1").unwrap());
    pod.meta.created = Some(world.now);
    assert!(decide(&world).restarts.is_empty());
}

#[test]
fn an_added_volume_gets_claims_and_every_pod_restarts_with_it() {
    let mut world = cluster();
    ask_volumes(&mut world, "brk", &[volume(0, "10Gi"), volume(1, "10Gi"), volume(2, "30Gi")]);
    let mut kafka = Kafka::formed(&world);
    let mut restarted = BTreeSet::new();
    while step(&mut world, &mut kafka, &[]) {
        restarted.extend(decide(&world).restarts.into_iter().map(|restart| restart.pod));
    }
    assert_eq!(restarted, ["c-brk-0", "c-brk-1"].map(str::to_owned).into());
    for pod in ["c-brk-0", "c-brk-1"] {
        assert_eq!(world.claims[&format!("data-2-{pod}")].requested.as_deref(), Some("30Gi"));
        assert!(uses(&world, pod, &format!("data-2-{pod}")));
    }
    assert!(is_quiet(&decide(&world)));
}

#[test]
fn a_volume_with_partitions_stays_and_they_are_named_and_then_it_goes_with_its_claims() {
    let mut world = cluster();
    let mut kafka = Kafka::formed(&world);
    ask_volumes(&mut world, "brk", &[volume(0, "10Gi")]);
    rest_with(&mut world, &mut kafka, &["orders-0", "orders-7"]);
    let said = warnings(&world, "brk");
    assert!(said[0].contains("volume 1 of pool 'brk' is to go and stays"), "{said:?}");
    assert!(said[0].contains("broker 0 has orders-0, orders-7"), "{said:?}");
    assert!(uses(&world, "c-brk-1", "data-1-c-brk-1"), "no broker loses it before all are free");
    assert_eq!(sizes(&world, "brk").len(), 2);

    rest_with(&mut world, &mut kafka, &[]);
    assert_eq!(warnings(&world, "brk"), [""; 0]);
    assert!(!uses(&world, "c-brk-0", "data-1-c-brk-0"));
    let left: Vec<_> = requested(&world).into_iter().map(|(name, _)| name).collect();
    assert_eq!(left, ["data-0-c-brk-0", "data-0-c-brk-1"]);
}

#[test]
fn a_claim_goes_only_after_its_pod_runs_without_it_and_only_if_it_may() {
    let mut world = cluster();
    let mut kafka = Kafka::formed(&world);
    let keep = json!({"id": 1, "type": "persistent-claim", "size": "10Gi", "deleteClaim": false});
    ask_volumes(&mut world, "ctl", &[keep.clone(), volume(2, "1Gi")]);
    converge_kafka(&mut world, &mut kafka, &[]);
    ask_volumes(&mut world, "ctl", &[keep]);
    while step(&mut world, &mut kafka, &[]) {
        for name in removals(&decide(&world)) {
            let pod = name.strip_prefix("data-2-").expect(&name);
            let running = &world.pods[pod];
            let wanted = &world.pod_sets["c-ctl"].pods[pod];
            assert!(running.is_current(wanted) && !uses(&world, pod, &name), "{name}");
        }
    }
    let left: Vec<_> = world.claims.keys().filter(|name| name.contains("-ctl-")).collect();
    assert_eq!(left, ["data-1-c-ctl-2", "data-1-c-ctl-3", "data-1-c-ctl-4"]);

    ask_volumes(
        &mut world,
        "brk",
        &[volume(0, "10Gi"), json!({"id": 1, "type": "persistent-claim", "size": "10Gi"})],
    );
    rest_with(&mut world, &mut kafka, &[]);
    ask_volumes(&mut world, "brk", &[volume(0, "10Gi")]);
    rest_with(&mut world, &mut kafka, &[]);
    assert!(!uses(&world, "c-brk-0", "data-1-c-brk-0"));
    assert!(world.claims.contains_key("data-1-c-brk-0"), "deleteClaim was false");
}

#[test]
fn partitions_that_came_after_the_check_hold_the_restart() {
    let mut world = cluster();
    let mut kafka = Kafka::formed(&world);
    ask_volumes(&mut world, "brk", &[volume(0, "10Gi")]);
    // The removal is accepted while all is empty, and written.
    while sizes(&world, "brk").len() == 2 {
        assert!(step(&mut world, &mut kafka, &[]), "it is never accepted");
    }
    let old = world.pods["c-brk-0"].clone();
    rest_with(&mut world, &mut kafka, &["late-0"]);
    assert_eq!(world.pods["c-brk-0"], old);
    let other = &world.pod_sets["c-brk"].pods["c-brk-1"];
    assert!(world.pods["c-brk-1"].is_current(other), "the other broker need not wait");
    let said = conditions(&world, "Warning");
    assert!(
        said.iter().any(|(_, reason, message)| reason == "RestartHeld" && message.contains("late-0")),
        "{said:?}"
    );
    assert!(world.claims.contains_key("data-1-c-brk-0"));
    rest_with(&mut world, &mut kafka, &[]);
    assert!(!world.claims.contains_key("data-1-c-brk-0"));
}

#[test]
fn a_silent_broker_and_a_broken_disk_hold_a_removal() {
    let mut world = cluster();
    ask_volumes(&mut world, "brk", &[volume(0, "10Gi")]);
    let broken = LogDirView { error: Some("KAFKA_STORAGE_ERROR".into()), ..dir(NodeId(1), 1, &[]) };
    world.answers.log_dirs =
        [(NodeId(0), Answer::Silent("timed out".into())), (NodeId(1), Answer::Known(vec![broken]))].into();
    let plan = decide(&world);
    let said: Vec<_> = plan.notices.iter().filter(|notice| notice.reason() == "KafkaStorage").collect();
    let said = said[0].to_string();
    assert!(said.contains("broker 0 does not say") && said.contains("timed out"), "{said}");
    assert!(said.contains("broker 1 cannot read") && said.contains("KAFKA_STORAGE_ERROR"), "{said}");
    assert_eq!(plan.objects, []);
    // The user knows better.
    edit_kafka(&mut world, |kafka| {
        let annotations = kafka.metadata.annotations.get_or_insert_default();
        annotations.insert("strimzi.io/skip-broker-scaledown-check".into(), "true".into());
    });
    assert!(!decide(&world).objects.is_empty());
}

#[test]
fn a_volume_that_never_got_a_disk_can_be_taken_back_though_its_broker_is_down() {
    let mut world = cluster();
    let mut kafka = Kafka::formed(&world);
    ask_volumes(&mut world, "brk", &[volume(0, "10Gi"), volume(1, "10Gi"), volume(2, "1Ti")]);
    converge_kafka(&mut world, &mut kafka, &[]);
    for name in ["data-2-c-brk-0", "data-2-c-brk-1"] {
        claim(&mut world, name).bound = false;
    }
    ask_volumes(&mut world, "brk", &[volume(0, "10Gi"), volume(1, "10Gi")]);
    let plan = decide(&world);
    assert!(plan.questions.log_dirs_of.is_empty());
    assert!(!plan.objects.is_empty(), "the pod set is written without it");
}

#[test]
fn controllers_keep_their_metadata_log_where_it_is() {
    let mut world = cluster();
    let pods = world.pod_sets["c-ctl"].pods.clone();
    // A lower id would take the log over.
    ask_volumes(
        &mut world,
        "ctl",
        &[volume(0, "1Gi"), json!({"id": 1, "type": "persistent-claim", "size": "10Gi"})],
    );
    converge(&mut world);
    let said = warnings(&world, "ctl");
    assert!(said[0].contains("kraftMetadata is volume 0, and its nodes keep volume 1"), "{said:?}");
    let volumes = remembered(&world, "ctl").volumes.unwrap();
    assert_eq!(
        volumes.iter().map(|volume| (volume.id, volume.kraft_metadata.is_some())).collect::<Vec<_>>(),
        [(0, false), (1, true)]
    );
    assert_ne!(world.pod_sets["c-ctl"].pods, pods, "the volume itself is added");
    assert!(is_quiet(&decide(&world)));

    ask_volumes(&mut world, "ctl", &[volume(0, "1Gi")]);
    converge(&mut world);
    let said = warnings(&world, "ctl").join("\n");
    assert!(said.contains("without id 1, and its nodes keep with id 1"), "{said}");
    assert!(uses(&world, "c-ctl-2", "data-1-c-ctl-2"));
}

#[test]
fn brokers_move_their_metadata_log_one_after_the_other() {
    let mut world = cluster();
    let mut marked = volume(1, "10Gi");
    marked["kraftMetadata"] = json!("shared");
    ask_volumes(&mut world, "brk", &[volume(0, "10Gi"), marked]);
    let maps = world.config_maps.clone();
    let mut kafka = Kafka::formed(&world);
    let mut restarted = Vec::new();
    while step(&mut world, &mut kafka, &[]) {
        let restarts = decide(&world).restarts;
        assert!(restarts.len() <= 1);
        restarted.extend(restarts.into_iter().map(|restart| restart.pod));
    }
    restarted.dedup();
    assert_eq!(restarted, ["c-brk-0", "c-brk-1"]);
    assert_eq!(warnings(&world, "brk"), [""; 0]);
    assert_ne!(world.config_maps["c-brk-0"].digest, maps["c-brk-0"].digest);
}

#[test]
fn another_type_is_refused_and_the_pool_still_scales() {
    for storage in [json!({"type": "ephemeral"}), json!({"type": "persistent-claim", "size": "10Gi"})] {
        let mut world = cluster();
        let pods = world.pods.clone();
        ask(&mut world, "brk", &storage);
        edit_pool(&mut world, "brk", |pool| pool.spec.replicas = 3);
        converge(&mut world);
        let said = warnings(&world, "brk");
        let found = storage["type"].as_str().unwrap();
        let expected = format!("spec.storage.type is {found}, and its nodes keep jbod");
        assert!(said[0].contains(&expected), "{said:?}");
        assert_eq!(world.pods["c-brk-0"], pods["c-brk-0"]);
        assert!(world.claims.contains_key("data-1-c-brk-5"));
    }
    let mut world = cluster();
    ask_volumes(&mut world, "brk", &[volume(0, "10Gi"), json!({"id": 1, "type": "ephemeral"})]);
    converge(&mut world);
    let said = warnings(&world, "brk");
    assert!(
        said[0].contains("volumes[id=1].type is ephemeral, and its nodes keep persistent-claim"),
        "{said:?}"
    );
}

#[test]
fn storage_that_cannot_be_used_leaves_a_running_pool_alone() {
    let mut world = cluster();
    ask_volumes(&mut world, "brk", &[volume(0, "much"), volume(1, "10Gi")]);
    edit_pool(&mut world, "brk", |pool| pool.spec.replicas = 3);
    converge(&mut world);
    let said = warnings(&world, "brk");
    assert!(said[0].contains("spec.storage.volumes[0].size is 'much'"), "{said:?}");
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    assert!(world.pods.contains_key("c-brk-5"));
}

#[test]
fn another_class_or_selector_is_for_new_nodes() {
    let mut world = cluster();
    for name in ["data-0-c-brk-0", "data-0-c-brk-1"] {
        claim(&mut world, name).class = Some("slow".into());
    }
    let mut fast = volume(0, "10Gi");
    fast["class"] = json!("fast");
    fast["selector"] = json!({"disk": "ssd"});
    ask_volumes(&mut world, "brk", &[fast, volume(1, "10Gi")]);
    edit_pool(&mut world, "brk", |pool| pool.spec.replicas = 3);
    let pods = world.pods.clone();
    converge(&mut world);
    assert_eq!(world.claims["data-0-c-brk-5"].class.as_deref(), Some("fast"));
    assert_eq!(world.pods["c-brk-0"], pods["c-brk-0"]);
    let said = warnings(&world, "brk");
    assert!(
        said[0].contains("volumes[id=0].class is 'fast'") && said[0].contains("data-0-c-brk-1"),
        "{said:?}"
    );
    assert!(!said[0].contains("brk-5"), "{said:?}");
    assert!(said[1].contains("volumes[id=0].selector is disk=ssd"), "{said:?}");
}

#[test]
fn who_keeps_its_claims_can_be_changed_without_a_restart() {
    let mut world = cluster();
    let pods = world.pods.clone();
    let deletes =
        |world: &World| world.claims["data-0-c-brk-0"].meta.annotations["strimzi.io/delete-claim"].clone();
    let owners = |world: &World| world.claims["data-0-c-brk-0"].meta.owners.len();
    assert_eq!((deletes(&world).as_str(), owners(&world)), ("true", 1));
    let kept = |id| json!({"id": id, "type": "persistent-claim", "size": "10Gi"});
    ask_volumes(&mut world, "brk", &[kept(0), kept(1)]);
    converge(&mut world);
    assert_eq!((deletes(&world).as_str(), owners(&world)), ("false", 0));
    ask_volumes(&mut world, "brk", &[volume(0, "10Gi"), volume(1, "10Gi")]);
    converge(&mut world);
    assert_eq!((deletes(&world).as_str(), owners(&world)), ("true", 1));
    assert_eq!(world.pods, pods);
}

#[test]
fn the_limit_of_an_ephemeral_volume_restarts_pods() {
    let mut world = crate::support::world(
        "apiVersion: kafka.strimzi.io/v1
kind: Kafka
metadata: {name: c}
spec: {kafka: {version: 4.1.1, listeners: [{name: plain, port: 9092, type: internal, tls: false}]}}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaNodePool
metadata: {name: all, labels: {strimzi.io/cluster: c}}
spec: {replicas: 3, roles: [controller, broker], storage: {type: ephemeral, sizeLimit: 1Gi}}
",
    );
    converge(&mut world);
    let before = world.pods["c-all-0"].revision().map(str::to_owned);
    edit_pool(&mut world, "all", |pool| pool.spec.storage.size_limit = Some("2Gi".into()));
    converge(&mut world);
    assert_ne!(world.pods["c-all-0"].revision().map(str::to_owned), before);
    assert_eq!(remembered(&world, "all").size_limit.as_deref(), Some("2Gi"));
}

/// Two volumes per broker, and what is said of keeping their claims.
fn volumes(delete_claim: bool) -> [Value; 2] {
    let volume =
        |id| json!({"id": id, "type": "persistent-claim", "size": "10Gi", "deleteClaim": delete_claim});
    [volume(0), volume(1)]
}

/// The user says something of the claims of brokers, and takes a broker away, all at once.
fn ask_and_scale(world: &mut World, delete_claim: bool, replicas: i32) {
    ask_volumes(world, "brk", &volumes(delete_claim));
    edit_pool(world, "brk", |pool| pool.spec.replicas = replicas);
}

/// A claim of a broker that is gone, as it was written while it was there.
fn leave_claim(world: &mut World, name: &str, pod: &str, delete_claim: &str) {
    let mut left = ClaimView::clone(&world.claims["data-0-c-brk-0"]);
    left.meta.name = name.into();
    left.meta.labels.insert("strimzi.io/pod-name".into(), pod.into());
    left.meta.annotations.insert("strimzi.io/delete-claim".into(), delete_claim.into());
    world.claims.insert(name.into(), Arc::new(left));
}

fn is_kept(claim: &ClaimView) -> bool {
    claim.meta.annotations["strimzi.io/delete-claim"] == "false" && claim.meta.owners.is_empty()
}

#[test]
fn claims_are_kept_when_that_is_said_in_the_same_breath_as_a_removal() {
    let mut world = cluster();
    ask_and_scale(&mut world, false, 1);
    converge(&mut world);
    assert!(!world.pods.contains_key("c-brk-1"), "the broker goes");
    for name in ["data-0-c-brk-1", "data-1-c-brk-1"] {
        assert!(is_kept(world.claims.get(name).expect(name)), "{name} would go with the Kafka resource");
    }
}

#[test]
fn claims_go_when_that_is_said_in_the_same_breath_as_a_removal() {
    let mut world = cluster();
    ask_volumes(&mut world, "brk", &volumes(false));
    converge(&mut world);
    ask_and_scale(&mut world, true, 1);
    converge(&mut world);
    let left: Vec<_> = requested(&world).into_iter().map(|(name, _)| name).collect();
    assert_eq!(left, ["data-0-c-brk-0", "data-1-c-brk-0"]);
}

#[test]
fn claims_are_kept_when_that_is_said_while_nobody_looks() {
    let mut world = cluster();
    leave_claim(&mut world, "data-0-c-brk-9", "c-brk-9", "true");
    world.answers.partitions = Answer::Known(Partitions { of: [NodeId(9)].into(), found: Vec::new() });
    assert_eq!(removals(&decide(&world)), ["data-0-c-brk-9"], "it was to go");
    ask_volumes(&mut world, "brk", &volumes(false));
    assert_eq!(removals(&decide(&world)), [""; 0]);
    converge(&mut world);
    assert!(is_kept(&world.claims["data-0-c-brk-9"]));
}

#[test]
fn claims_that_were_kept_once_stay_whatever_is_said_later_of_others() {
    let mut world = cluster();
    leave_claim(&mut world, "data-0-c-brk-9", "c-brk-9", "false");
    converge(&mut world);
    assert!(world.claims.contains_key("data-0-c-brk-9"), "the user kept it, and may need it");
}

#[test]
fn claims_of_a_pool_are_kept_when_that_is_said_right_before_its_deletion() {
    let mut world = cluster();
    let mut second = (*world.pools["brk"]).clone();
    second.metadata = api::KafkaNodePool::new("more", second.spec.clone()).metadata;
    second.metadata.labels = world.pools["brk"].metadata.labels.clone();
    second.metadata.uid = Some("uid-more".into());
    second.status = None;
    world.pools.insert("more".into(), Arc::new(second));
    converge(&mut world);
    ask_volumes(&mut world, "brk", &volumes(false));
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now);
    edit_pool(&mut world, "brk", |pool| pool.metadata.deletion_timestamp = Some(now));
    converge(&mut world);
    assert!(!world.pools.contains_key("brk"), "the pool goes");
    let left: Vec<_> = world.claims.iter().filter(|(name, _)| name.contains("-brk-")).collect();
    assert_eq!(left.len(), 4);
    assert!(left.into_iter().all(|(_, claim)| is_kept(claim)));
}

/// The pod set goes, with all that it remembered, and its pods.
fn lose_pod_set(world: &mut World, pool: &str) {
    world.pod_sets.remove(&world.key.pod_set(pool));
    let of_pool = format!("-{pool}-");
    world.pods.retain(|name, _| !name.contains(&of_pool));
}

/// Claims as an earlier version of Karst wrote them.
fn forget_storage(world: &mut World) {
    for claim in world.claims.values_mut() {
        let annotations = &mut Arc::make_mut(claim).meta.annotations;
        annotations.remove("strimzi.io/storage");
        annotations.remove("karst.io/cluster-id");
    }
}

#[test]
fn a_change_that_is_held_stays_held_when_the_pod_set_is_lost() {
    let single = json!({"type": "persistent-claim", "size": "10Gi"});
    let other_volume = json!({"type": "jbod", "volumes": [volume(2, "10Gi")]});
    let smaller = json!({"type": "jbod", "volumes": [volume(1, "5Gi")]});
    let cases = [
        ("brk", json!({"type": "ephemeral"}), "spec.storage.type is ephemeral, and its nodes keep jbod"),
        ("brk", single, "spec.storage.type is persistent-claim, and its nodes keep jbod"),
        ("ctl", other_volume, "spec.storage.volumes is without id 1, and its nodes keep with id 1"),
        ("ctl", smaller, "spec.storage.volumes[id=1].size is 5Gi, and its nodes keep 10Gi"),
    ];
    for (pool, storage, expected) in cases {
        for remembers in [true, false] {
            let mut world = cluster();
            if !remembers {
                forget_storage(&mut world);
            }
            ask(&mut world, pool, &storage);
            lose_pod_set(&mut world, pool);
            converge(&mut world);
            let said = warnings(&world, pool).join("\n");
            assert!(said.contains(expected), "{remembers}: {said}");
            let node = if pool == "brk" { 0 } else { 2 };
            let pod = format!("c-{pool}-{node}");
            assert!(uses(&world, &pod, &format!("data-1-{pod}")), "{pod} would start on another disk");
        }
    }
}

#[test]
fn storage_is_what_the_claims_remember_when_the_whole_cluster_is_made_again() {
    let mut world = cluster();
    let mut kafka = Kafka::formed(&world);
    edit_kafka(&mut world, |kafka| kafka.status = None);
    crate::support::lose_all_but_disks(&mut world);
    ask(&mut world, "ctl", &json!({"type": "ephemeral"}));
    converge_kafka(&mut world, &mut kafka, &[]);
    assert!(uses(&world, "c-ctl-2", "data-1-c-ctl-2"));
    let said = warnings(&world, "ctl").join("\n");
    assert!(said.contains("spec.storage.type is ephemeral, and its nodes keep jbod"), "{said}");
}

#[test]
fn a_claim_that_never_got_a_disk_remembers_nothing() {
    let mut world = cluster();
    for name in ["data-0-c-brk-0", "data-1-c-brk-0", "data-0-c-brk-1", "data-1-c-brk-1"] {
        claim(&mut world, name).bound = false;
    }
    ask(&mut world, "brk", &json!({"type": "persistent-claim", "size": "1Gi"}));
    lose_pod_set(&mut world, "brk");
    converge(&mut world);
    assert!(uses(&world, "c-brk-0", "data-c-brk-0"));
    assert_eq!(warnings(&world, "brk"), [""; 0]);
}

#[test]
fn claims_of_an_earlier_version_learn_what_they_hold_once_and_nobody_restarts() {
    let mut world = cluster();
    let (claims, pods) = (world.claims.clone(), world.pods.clone());
    forget_storage(&mut world);
    let plan = decide(&world);
    let written: Vec<_> = plan.objects.iter().map(karst_core::objects::Object::describe).collect();
    assert_eq!(written.len(), claims.len(), "{written:?}");
    assert!(plan.restarts.is_empty());
    converge(&mut world);
    assert_eq!(world.claims, claims);
    assert_eq!(world.pods, pods);
    let marks = |key: &str| world.claims["data-1-c-ctl-2"].meta.annotations.get(key).cloned();
    assert_eq!(
        marks("strimzi.io/storage"),
        world.pod_sets["c-ctl"].meta.annotations.get("strimzi.io/storage").cloned()
    );
    assert_eq!(marks("karst.io/cluster-id"), world.kafka.status.as_ref().unwrap().cluster_id);
}

fn annotate_kafka(world: &mut World, key: &str, value: &str) {
    edit_kafka(world, |kafka| {
        kafka.metadata.annotations.get_or_insert_default().insert(key.into(), value.into());
    });
}

/// The removal of volume 1 of the brokers is accepted, because all is empty, and written. No pod has restarted yet.
fn losing_a_volume() -> (World, Kafka) {
    let mut world = cluster();
    let mut kafka = Kafka::formed(&world);
    for node in BROKERS {
        kafka.log_dirs.insert(node, vec![dir(node, 0, &["other-0"]), dir(node, 1, &[])]);
    }
    ask_volumes(&mut world, "brk", &[volume(0, "10Gi")]);
    while sizes(&world, "brk").len() == 2 {
        assert!(step(&mut world, &mut kafka, &[]), "it is never accepted");
    }
    (world, kafka)
}

fn has_claim(world: &World, node: i32) -> bool {
    world.claims.contains_key(&format!("data-1-c-brk-{node}"))
}

#[test]
fn a_volume_that_nobody_saw_empty_before_its_pod_went_keeps_its_claim() {
    let (mut world, mut kafka) = losing_a_volume();
    // Somebody drains the machine of broker 0: its next pod is made without the volume.
    world.pods.remove("c-brk-0");
    run_pods(&mut world, true);
    rest_with(&mut world, &mut kafka, &[]);
    assert!(has_claim(&world, 0), "it may have records");
    assert!(!has_claim(&world, 1), "that one was empty when Karst restarted its pod");
    let said = warnings(&world, "brk").join("\n");
    assert!(said.contains("data-1-c-brk-0") && said.contains("list the volume again"), "{said}");

    // What is there comes back with the volume, and then goes in order.
    ask_volumes(&mut world, "brk", &[volume(0, "10Gi"), volume(1, "10Gi")]);
    rest_with(&mut world, &mut kafka, &["late-0"]);
    assert!(uses(&world, "c-brk-0", "data-1-c-brk-0"));
    assert_eq!(warnings(&world, "brk"), [""; 0]);
    ask_volumes(&mut world, "brk", &[volume(0, "10Gi")]);
    rest_with(&mut world, &mut kafka, &[]);
    assert!(!has_claim(&world, 0) && !has_claim(&world, 1));
}

/// It was, once: since then another pod had it.
#[test]
fn a_volume_that_is_listed_again_is_not_taken_for_empty_later() {
    let mut world = cluster();
    let mark =
        |world: &World| world.claims["data-1-c-brk-0"].meta.annotations.get("karst.io/empty-in-pod").cloned();
    claim(&mut world, "data-1-c-brk-0")
        .meta
        .annotations
        .insert("karst.io/empty-in-pod".into(), "uid-of-before".into());
    converge(&mut world);
    assert_eq!(mark(&world).as_deref(), Some(""));
    assert!(is_quiet(&decide(&world)));
    let (mut world, mut kafka) = (world.clone(), Kafka::formed(&world));
    for node in BROKERS {
        kafka.log_dirs.insert(node, vec![dir(node, 0, &["other-0"]), dir(node, 1, &[])]);
    }
    ask_volumes(&mut world, "brk", &[volume(0, "10Gi")]);
    while sizes(&world, "brk").len() == 2 {
        assert!(step(&mut world, &mut kafka, &[]), "it is never accepted");
    }
    world.pods.remove("c-brk-0");
    run_pods(&mut world, true);
    rest_with(&mut world, &mut kafka, &[]);
    assert!(has_claim(&world, 0), "it was empty when an earlier pod left it");
}

/// All brokers crash, and the user raises their memory: one apply must not take a volume from all of them unseen.
#[test]
fn a_broker_that_does_not_serve_loses_no_volume_unless_a_person_says_so() {
    let (mut world, _) = losing_a_volume();
    let since = world.now.checked_sub(Duration::from_secs(600)).unwrap();
    for pod in ["c-brk-0", "c-brk-1"] {
        edit_pod(&mut world, pod, |pod| {
            (pod.ready, pod.since, pod.stuck) =
                (false, Some(since), Some("CrashLoopBackOff: OOMKilled".into()));
        });
    }
    let decided = |world: &mut World, partitions: Answer<Partitions>| {
        world.answers = Answers::default();
        world.answers.quorum = healthy_quorum(world);
        world.answers.registered = Answer::Silent("no broker serves".into());
        world.answers.partitions = partitions;
        plan(world).unwrap()
    };
    let silent = || Answer::Silent("no broker serves".into());
    let restarted = |plan: &Plan| plan.restarts.iter().map(|one| one.pod.clone()).collect::<Vec<_>>();
    let plan = decided(&mut world, silent());
    assert_eq!(restarted(&plan), [""; 0]);
    let said: String = plan.notices.iter().map(|notice| format!("{}: {notice}\n", notice.reason())).collect();
    for part in ["DataLossHeld: pod c-brk-0", "DataLossHeld: pod c-brk-1", "list the volume again"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    // One of them could be missed with all that it has, and not both.
    let found = vec![partition("orders", &[0, 1], &[0, 1], 1)];
    let both = Partitions { of: BROKERS.into(), found };
    assert_eq!(restarted(&decided(&mut world, Answer::Known(both))), [""; 0]);

    let mut allowed = world.clone();
    annotate_kafka(&mut allowed, "karst.io/allow-data-loss", "c-brk-1");
    let plan = decided(&mut allowed, silent());
    assert_eq!((restarted(&plan), plan.forgotten.len()), (vec!["c-brk-1".to_owned()], 0));
    let uid = &allowed.pods["c-brk-1"].meta.uid;
    assert_eq!(plan.emptied[uid][0].0, "data-1-c-brk-1", "its claim goes too");

    // With its volumes as they were it restarts at once: the change of memory may be what it needs.
    ask_volumes(&mut world, "brk", &[volume(0, "10Gi"), volume(1, "10Gi")]);
    edit_pool(&mut world, "brk", |pool| {
        let memory = json!({"requests": {"memory": "2Gi"}, "limits": {"memory": "2Gi"}});
        pool.spec.resources = serde_json::from_value(memory).unwrap();
    });
    for _ in 0..4 {
        let plan = decided(&mut world, silent());
        if !plan.restarts.is_empty() {
            assert_eq!(restarted(&plan), ["c-brk-0", "c-brk-1"]);
            return;
        }
        crate::support::carry_out(&mut world, plan);
    }
    panic!("they never restart");
}

fn all_are_kept(world: &World) -> bool {
    world.claims.iter().filter(|(name, _)| name.contains("-brk-")).all(|(_, claim)| is_kept(claim))
}

#[test]
fn claims_are_kept_when_that_is_said_of_a_cluster_that_is_paused_or_cannot_be_carried_out() {
    type Mistake = fn(&mut World);
    let cases: [(&str, Mistake); 3] = [
        ("paused", |world| annotate_kafka(world, "strimzi.io/pause-reconciliation", "true")),
        ("refused", |world| edit_kafka(world, |kafka| kafka.spec.kafka.version = Some("9.9.9".into()))),
        ("a pool refused", |world| edit_pool(world, "brk", |pool| pool.spec.replicas = -1)),
    ];
    for (name, break_it) in cases {
        let mut world = cluster();
        break_it(&mut world);
        converge(&mut world);
        let before = world.claims.clone();
        ask_volumes(&mut world, "brk", &volumes(false));
        converge(&mut world);
        assert!(all_are_kept(&world), "{name}: they would go with the Kafka resource");
        let controllers = |claims: &std::collections::BTreeMap<String, Arc<ClaimView>>| {
            claims
                .iter()
                .filter(|(name, _)| name.contains("-ctl-"))
                .map(|one| one.1.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(controllers(&world.claims), controllers(&before), "{name}: of these nothing was said");
        let remember = |claim: &ClaimView| claim.meta.annotations.get("strimzi.io/storage").cloned();
        let old = &before["data-0-c-brk-0"];
        assert_eq!(
            remember(&world.claims["data-0-c-brk-0"]),
            remember(old),
            "{name}: it keeps what it knows"
        );
        // The other way round waits.
        ask_volumes(&mut world, "brk", &volumes(true));
        converge(&mut world);
        assert!(all_are_kept(&world), "{name}");
    }
}

#[test]
fn claims_of_another_operator_are_left_alone_while_a_cluster_is_paused() {
    let mut world = cluster();
    for name in ["data-0-c-brk-0", "data-1-c-brk-0"] {
        claim(&mut world, name).meta.labels.remove("app.kubernetes.io/managed-by");
    }
    annotate_kafka(&mut world, "strimzi.io/pause-reconciliation", "true");
    ask_volumes(&mut world, "brk", &volumes(false));
    converge(&mut world);
    assert!(!is_kept(&world.claims["data-0-c-brk-0"]) && is_kept(&world.claims["data-0-c-brk-1"]));
}
