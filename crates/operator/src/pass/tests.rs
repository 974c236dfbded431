//! A cluster whose decision panics, beside one whose does not.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use karst_certs::{Authority, Decision, KeyAlgorithm};
use karst_core::ids::NodeId;
use karst_core::names::{ALLOW_LOSS_ANNOTATION, MIGRATION_ANNOTATION};
use karst_core::world::Settings;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::hands::tests::{Server, world};
use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::places::Places;
use crate::queue::Queue;
use crate::workers::Workers;

const STATUS: &str = "/apis/kafka.strimzi.io/v1/namespaces/myproject/kafkas/broken/status";

/// How often something was decided for the cluster that is not broken.
static DECIDED: AtomicUsize = AtomicUsize::new(0);

fn decide(world: &World) -> Result<Plan, serde_json::Error> {
    assert_ne!(world.key.name, "broken", "a password");
    DECIDED.fetch_add(1, Ordering::Relaxed);
    Ok(Plan::default())
}

fn kafka(name: &str) -> Value {
    json!({
        "apiVersion": "kafka.strimzi.io/v1", "kind": "Kafka",
        "metadata": {"name": name, "namespace": "myproject", "uid": format!("uid-{name}"), "resourceVersion": "7"},
        "spec": {"kafka": {"listeners": []}}, "status": {"clusterId": "the-id"}
    })
}

fn passes(server: &Server, settings: Arc<Settings>) -> Passes {
    let hands = server.hands();
    let (client, queue) = (hands.client.clone(), Arc::clone(&hands.queue));
    for name in ["broken", "healthy"] {
        let kafka: Kafka = serde_json::from_value(kafka(name)).unwrap();
        hands.learn(kafka);
    }
    Passes {
        unreadable: LeftAlone::default(),
        decide,
        hands,
        events: Events::new(client.clone(), None, Arc::new(Leadership::always())),
        config_maps: References::new(client.clone(), Arc::clone(&queue), Arc::default()),
        named_secrets: References::new(client, queue, Arc::default()),
        clients: Arc::new(Clients::new(10)),
        slots: Slots::default(),
        silences: Silences::default(),
        panics: Refusals::default(),
        terms: Arc::default(),
        settings,
        sees_all: true,
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_panics_is_told_in_the_status_of_its_cluster_and_all_others_go_on() {
    let server = Server::with(STATUS, kafka("broken"));
    let passes = passes(&server, Arc::clone(&world().settings));
    let queue: Arc<Queue> = Arc::clone(&passes.hands.queue);
    let key = |name: &str| ClusterKey { namespace: "myproject".to_owned(), name: name.to_owned() };
    queue.push(["broken", "healthy"].map(|name| Work::Cluster(key(name))));
    let workers = Arc::new(Workers {
        job: passes,
        queue,
        metrics: Arc::new(Metrics::new()),
        heartbeats: Arc::default(),
        places: Places::new(1),
        resync: Duration::from_secs(600),
    });
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::clone(&workers).run(stop.clone()));
    tokio::time::sleep(Duration::from_secs(20)).await;
    stop.cancel();
    running.await.unwrap().unwrap();

    assert_eq!(DECIDED.load(Ordering::Relaxed), 1);
    assert!(workers.metrics.panics(&Work::Cluster(key("broken"))) > 3, "it was tried again");
    let statuses: Vec<_> = server.bodies().into_iter().filter(|(path, _)| path == STATUS).collect();
    let [(_, patch)] = &statuses[..] else { panic!("it is told once: {statuses:?}") };
    let conditions = patch["status"]["conditions"].as_array().unwrap();
    let types: Vec<_> = conditions.iter().map(|one| (&one["type"], &one["reason"])).collect();
    let reason = json!("InternalError");
    assert_eq!(types, [(&json!("Ready"), &reason), (&json!("NotReady"), &reason)]);
    assert_eq!(patch["status"].as_object().unwrap().len(), 1, "no fact is touched: {patch}");
    assert!(!patch.to_string().contains("password"), "what a panic says stays in the log: {patch}");
}

fn going_pool() -> KafkaNodePool {
    serde_json::from_value(json!({
        "apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaNodePool",
        "metadata": {"name": "nodes", "namespace": "myproject", "uid": "uid-pool", "resourceVersion": "7",
                     "labels": {"strimzi.io/cluster": "unseen"}, "deletionTimestamp": "2026-01-01T00:00:00Z",
                     "finalizers": ["karst.io/nodes-leave-in-order"]},
        "spec": {"replicas": 1, "roles": ["broker"], "storage": {"type": "ephemeral"}}
    }))
    .unwrap()
}

/// What becomes of a deleted pool whose `Kafka` the selector does not show: was its finalizer taken off, and is it looked at again?
async fn of_unseen(kafka_exists: bool, has_pod: bool) -> (bool, bool) {
    let pool = "/apis/kafka.strimzi.io/v1/namespaces/myproject/kafkanodepools/nodes";
    let kafka_path = "/apis/kafka.strimzi.io/v1/namespaces/myproject/kafkas/unseen";
    let server = Server::with(pool, serde_json::to_value(going_pool()).unwrap());
    if kafka_exists {
        server.has(kafka_path, kafka("unseen"));
    }
    let passes = Passes { sees_all: false, ..passes(&server, Arc::clone(&world().settings)) };
    passes.hands.learn(going_pool());
    if has_pod {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "unseen-nodes-0", "namespace": "myproject", "uid": "uid-pod", "resourceVersion": "7",
                         "labels": {"strimzi.io/cluster": "unseen", "strimzi.io/pool-name": "nodes"}}
        });
        passes.hands.learn(serde_json::from_value::<crate::views::PodWire>(pod).unwrap());
    }
    let key = ClusterKey { namespace: "myproject".to_owned(), name: "unseen".to_owned() };
    let snapshot = passes.hands.index.snapshot(&key);
    assert_eq!((snapshot.pools.len(), snapshot.pods.len()), (1, usize::from(has_pod)));
    let outcome = passes.pools_without_kafka(&key, &snapshot).await;
    let released = server
        .bodies()
        .iter()
        .any(|(path, body)| path == pool && body["metadata"]["finalizers"] == json!([]));
    (released, matches!(outcome, Outcome::Done { look_again: Some(_) }))
}

#[tokio::test]
async fn with_a_selector_a_deleted_pool_goes_when_its_kafka_is_gone_or_nothing_runs() {
    assert_eq!(of_unseen(false, true).await, (true, false), "its Kafka is gone");
    assert_eq!(of_unseen(true, false).await, (true, false), "nothing of it runs");
    assert_eq!(of_unseen(true, true).await, (false, true), "another operator may look after it");
}

/// The service of an admission webhook is away, and the API server asks it first.
#[tokio::test]
async fn a_webhook_that_is_down_is_told_and_a_pod_that_stays_away_is_remembered() {
    let server = Server::with(STATUS, kafka("broken"));
    let passes = passes(&server, Arc::clone(&world().settings));
    let key = ClusterKey { namespace: "myproject".to_owned(), name: "healthy".to_owned() };
    let said = "Internal error occurred: failed calling webhook \"validate.kyverno.svc-fail\"";
    let status = kube::core::Status { code: 500, message: said.to_owned(), ..kube::core::Status::default() };
    let source = Box::new(kube::Error::Api(Box::new(status)));
    let failure = Failure::Api { what: "could not make pod healthy-brokers-0".to_owned(), source };
    assert!(passes.remember_refusals(&key, "healthy-brokers", &[failure]), "it is news");
    // One that hangs takes as long as is waited for.
    let hangs =
        || [Failure::Deadline { what: "could not write PodDisruptionBudget c".to_owned(), after: DEADLINE }];
    assert!(!passes.remember_refusals(&key, OBJECTS, &hangs()), "once says nothing");
    assert!(passes.remember_refusals(&key, OBJECTS, &hangs()), "twice does");
    assert!(!passes.remember_refusals(&key, OBJECTS, &hangs()), "and is no news any more");
    assert!(passes.remember_refusals(&key, OBJECTS, &[]), "it is over");
    assert!(!passes.remember_refusals(&key, OBJECTS, &hangs()), "and begins anew");
    let pod_set = json!({
        "apiVersion": "core.strimzi.io/v1", "kind": "StrimziPodSet",
        "metadata": {"name": "healthy-brokers", "namespace": "myproject", "uid": "uid-set", "resourceVersion": "7",
                     "labels": {"strimzi.io/cluster": "healthy"}},
        "spec": {"selector": {}, "pods": [{"metadata": {"name": "healthy-brokers-0", "annotations": {"strimzi.io/revision": "r"}}}]}
    });
    passes.hands.learn(serde_json::from_value::<karst_api::StrimziPodSet>(pod_set).unwrap());
    let seen = || {
        let snapshot = passes.hands.index.snapshot(&key);
        let kafka = snapshot.kafka.clone().unwrap();
        passes.world(&key, kafka, snapshot, Answers::default(), Entropy([1; 32]))
    };
    let first = seen();
    assert!(
        first.memory.refusals().iter().any(|told| told.contains("failed calling webhook")),
        "{:?}",
        first.memory.refusals()
    );
    assert_eq!(first.memory.absent.get("healthy-brokers-0"), Some(&first.now));
    let second = seen();
    assert!(second.now > first.now, "time passes");
    assert_eq!(second.memory.absent, first.memory.absent, "and it is known since when the pod is away");
}

#[test]
fn where_a_pod_of_somebody_else_was_met_none_is_made_for_a_while() {
    let now = Timestamp::UNIX_EPOCH;
    let until = now.checked_add(Duration::from_secs(40)).unwrap_or(now);
    let met = BTreeMap::from([(stranger("a-0"), Stranger { owner: "StatefulSet 'db'".to_owned(), until })]);
    let create = |name: &str| PodAction::Create { name: name.to_owned(), pod: Arc::from("{}") };
    let remove = PodAction::Remove { name: "a-0".to_owned(), uid: "u".to_owned() };
    let mut actions = vec![create("a-0"), create("a-1"), remove.clone()];
    assert_eq!(wait_for_strangers(&mut actions, &met, now), Some(Duration::from_secs(40)));
    assert_eq!(actions, [create("a-1"), remove]);
    let mut actions = vec![create("a-0")];
    assert_eq!(wait_for_strangers(&mut actions, &met, until), None);
    assert_eq!(actions, [create("a-0")], "then it is tried again");
}

#[test]
fn before_a_restart_everybody_is_asked_once_more_if_somebody_was_not_asked() {
    let mut asking = Asking::default();
    assert!(!asking.insist(), "everybody was asked");
    asking.from_memory = true;
    assert!(asking.insist() && asking.insists);
    assert!(!asking.insist(), "once is enough");
}

/// A pass that takes the annotation off that lets a pod lose what only it has, with these claims in the API server.
async fn taking_off(claims: &Value) -> (Outcome, Vec<(String, Value)>) {
    let mut annotated = kafka("healthy");
    annotated["metadata"]["annotations"] = json!({ ALLOW_LOSS_ANNOTATION: "healthy-brokers-0" });
    let server = Server::with(HEALTHY, annotated);
    let list = |kind: &str, items: &Value| json!({ "apiVersion": "v1", "kind": kind, "metadata": { "resourceVersion": "8" }, "items": items });
    server.has("/api/v1/namespaces/myproject/pods", list("PodList", &json!([])));
    let path = "/api/v1/namespaces/myproject/persistentvolumeclaims";
    server.has(path, list("PersistentVolumeClaimList", claims));
    let decide: Decide = |_| Ok(Plan { forgotten: vec![ALLOW_LOSS_ANNOTATION], ..Plan::default() });
    let passes = Passes { decide, ..passes(&server, Arc::clone(&world().settings)) };
    let place = Places::new(1).one().await;
    let outcome = Box::pin(passes.cluster(&key("healthy"), &place)).await;
    (outcome, server.bodies())
}

const HEALTHY: &str = "/apis/kafka.strimzi.io/v1/namespaces/myproject/kafkas/healthy";

/// A tool that applies manifests may put it back each time: then what it allows is allowed again, and somebody has to see that.
#[tokio::test]
async fn that_an_annotation_was_taken_off_is_told() {
    let (outcome, written) = taking_off(&json!([])).await;
    assert_eq!(outcome, Outcome::Done { look_again: None });
    let [(patched, patch), (events, event)] = &written[..] else { panic!("{written:?}") };
    assert_eq!(
        (patched.as_str(), &patch["metadata"]["annotations"][ALLOW_LOSS_ANNOTATION]),
        (HEALTHY, &Value::Null)
    );
    assert!(events.contains("/events/") && event["reason"] == "AnnotationRemoved", "{written:?}");
    assert!(event["note"].as_str().unwrap().contains(ALLOW_LOSS_ANNOTATION), "{event}");
}

/// What may be lost is on a claim that no watch has told of yet.
#[tokio::test]
async fn what_a_person_allowed_is_not_taken_off_while_there_is_a_claim_that_was_not_seen() {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-0-healthy-brokers-0", "namespace": "myproject", "uid": "uid-claim", "resourceVersion": "8",
                     "labels": {"strimzi.io/cluster": "healthy", "strimzi.io/kind": "Kafka"}}
    });
    let (outcome, written) = taking_off(&json!([claim])).await;
    assert!(matches!(outcome, Outcome::Changed { .. }), "{outcome:?}");
    assert!(written.iter().all(|(path, _)| path != HEALTHY), "{written:?}");
}

fn key(name: &str) -> ClusterKey {
    ClusterKey { namespace: "myproject".to_owned(), name: name.to_owned() }
}

/// So many authorities that are still to be made, with keys that take long.
fn authorities(world: &World, count: usize) -> Vec<Issue> {
    let settings = karst_certs::Settings { algorithm: KeyAlgorithm::Rsa2048, ..Default::default() };
    let names = (0..count).map(|number| format!("a{number}"));
    let missing =
        names.filter(|name| !world.secrets.contains_key(&karst_certs::Kind::Cluster.cert_secret(name)));
    let authority =
        |name: String| Authority::read(karst_certs::Kind::Cluster, &name, &settings, None, None).unwrap();
    missing.map(|name| Issue::Authority { authority: authority(name), decision: Decision::Create }).collect()
}

#[tokio::test(start_paused = true)]
async fn keys_that_take_long_are_made_a_few_in_each_pass_and_soon_all_of_them() {
    let server = Server::default();
    let decide: Decide = |world| Ok(Plan { certificates: authorities(world, 18), ..Plan::default() });
    let passes = Passes { decide, ..passes(&server, Arc::clone(&world().settings)) };
    let places = Places::new(1);
    let outcome = passes.cluster(&key("healthy"), &places.one().await).await;
    // Each has a Secret for its key and one for its certificate.
    assert_eq!(server.written().len(), 2 * 16, "{:?}", server.written());
    assert_eq!(outcome, Outcome::Done { look_again: Some(MORE_KEYS) });
    let outcome = passes.cluster(&key("healthy"), &places.one().await).await;
    assert_eq!(server.written().len(), 2 * 18);
    assert_eq!(outcome, Outcome::Done { look_again: None });
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_its_turn_to_make_keys_keeps_nobody_from_working_and_does_the_rest() {
    let server =
        Server::with("/apis/kafka.strimzi.io/v1/namespaces/myproject/kafkas/healthy", kafka("healthy"));
    let decide: Decide = |world| {
        let certificates = authorities(world, 1);
        let forgotten = vec![MIGRATION_ANNOTATION];
        Ok(Plan { certificates, forgotten, ..Plan::default() })
    };
    let passes = Passes { decide, ..passes(&server, Arc::clone(&world().settings)) };
    let places = Places::new(1);
    let others = passes.hands.keys.turn().await;
    let place = places.one().await;
    let (cluster, began) = (key("healthy"), Instant::now());
    let mut waiting = Box::pin(passes.cluster(&cluster, &place));
    assert!(tokio::time::timeout(Duration::from_secs(1), waiting.as_mut()).await.is_err());
    assert!(places.one().now_or_never().is_some(), "others work meanwhile");
    assert_eq!(waiting.await, Outcome::Done { look_again: Some(MORE_KEYS) });
    assert!(began.elapsed() < Duration::from_secs(20), "the rest waited for {:?}", began.elapsed());
    let written = server.written();
    assert!(written.iter().any(|path| path.ends_with("/kafkas/healthy")), "the rest was done: {written:?}");
    assert!(!written.iter().any(|path| path.contains("/secrets")), "{written:?}");
    drop(others);
    passes.cluster(&cluster, &place).await;
    assert_eq!(server.written().iter().filter(|path| path.contains("/secrets")).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn whoever_lets_kafka_do_things_keeps_nobody_from_working_and_ends_when_nobody_answers() {
    let server = Server::default();
    let decide: Decide = |_| {
        let deeds = (0..8).map(|node| Deed::Unregister(NodeId(node))).collect();
        Ok(Plan { deeds, ..Plan::default() })
    };
    let passes = Passes { decide, ..passes(&server, Arc::clone(&world().settings)) };
    server.hang();
    let places = Places::new(1);
    let (cluster, place, began) = (key("healthy"), places.one().await, Instant::now());
    let mut waiting = Box::pin(passes.cluster(&cluster, &place));
    assert!(tokio::time::timeout(Duration::from_millis(1), waiting.as_mut()).await.is_err());
    assert!(places.one().now_or_never().is_some(), "others work meanwhile");
    let outcome = waiting.await;
    assert!(matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
    assert!(began.elapsed() < DEADLINE * 2, "one was tried: {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_kafka_is_to_do_is_decided_anew_when_pods_changed_while_others_were_asked() {
    let server = Server::default();
    let decide: Decide = |_| Ok(Plan { deeds: vec![Deed::Unregister(NodeId(7))], ..Plan::default() });
    let passes = Passes { decide, ..passes(&server, Arc::clone(&world().settings)) };
    let places = Places::new(1);
    let (cluster, other, place) = (key("healthy"), places.one().await, places.one());
    let mut asked = Vec::new();
    while let Some(room) = other.room(Pace::Prompt).now_or_never() {
        asked.push(room);
    }
    let place = place.await;
    let mut waiting = Box::pin(passes.cluster(&cluster, &place));
    assert!(waiting.as_mut().now_or_never().is_none());
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "healthy-nodes-7", "namespace": "myproject", "uid": "uid-pod", "resourceVersion": "7",
                     "labels": {"strimzi.io/cluster": "healthy"}}
    });
    passes.hands.learn(serde_json::from_value::<crate::views::PodWire>(pod).unwrap());
    drop(asked);
    let outcome = waiting.await;
    assert!(
        matches!(&outcome, Outcome::Changed { why, .. } if why.contains("while others were asked")),
        "{outcome:?}"
    );
    assert_eq!(server.most_at_once(), 0, "nobody was asked");
}

#[tokio::test]
async fn the_pods_of_a_pod_set_are_made_a_few_at_once() {
    let pods: Vec<_> = (0..50)
        .map(|node| {
            let name = format!("healthy-nodes-{node}");
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []},
                "metadata": {"name": name, "namespace": "myproject", "annotations": {"strimzi.io/revision": "1"}}})
        })
        .collect();
    let set = json!({
        "apiVersion": "core.strimzi.io/v1", "kind": "StrimziPodSet",
        "metadata": {"name": "healthy-nodes", "namespace": "myproject", "uid": "uid-set", "resourceVersion": "7", "generation": 1,
                     "labels": {"strimzi.io/cluster": "healthy", "app.kubernetes.io/managed-by": "karst"}},
        "spec": {"selector": {}, "pods": pods},
        "status": {"observedGeneration": 1, "pods": 0, "readyPods": 0, "currentPods": 0}
    });
    let path = "/apis/core.strimzi.io/v1/namespaces/myproject/strimzipodsets/healthy-nodes";
    let server = Server::with(path, set.clone());
    let passes = passes(&server, Arc::clone(&world().settings));
    passes.hands.learn(serde_json::from_value::<karst_api::StrimziPodSet>(set).unwrap());
    passes.pod_set(&key("healthy"), "healthy-nodes").await;
    let made = server.written();
    assert_eq!(
        made.iter().filter(|path| path.starts_with("POST") && path.contains("/pods/")).count(),
        50,
        "{made:?}"
    );
    assert_eq!(server.most_at_once(), 8);
}

#[tokio::test]
async fn facts_of_many_pools_are_written_a_few_at_once() {
    let server = Server::default();
    let passes = passes(&server, Arc::clone(&world().settings));
    let mut world = world();
    let mut facts = Vec::new();
    for number in 0..50 {
        let (name, mut pool) = (format!("p{number}"), serde_json::to_value(going_pool()).unwrap());
        pool["metadata"]["name"] = json!(name);
        server.has(
            &format!("/apis/kafka.strimzi.io/v1/namespaces/myproject/kafkanodepools/{name}/status"),
            pool.clone(),
        );
        world.pools.insert(name.clone(), Arc::new(serde_json::from_value(pool).unwrap()));
        facts.push(Fact::PoolCluster { pool: name, status: json!({"clusterId": "the-id"}) });
    }
    let plan = Plan { facts, ..Plan::default() };
    let place = Places::new(1).one().await;
    Box::pin(passes.make_durable(&world, plan, &mut Certifying::default(), &place)).await.unwrap();
    assert_eq!((server.written().len(), server.most_at_once()), (50, 8));
}
