//! Objects that were not seen, and have the name of one that is to be made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, Response, StatusCode};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use k8s_openapi::jiff::Timestamp;
use karst_core::certificates::Issue;
use karst_core::ids::Entropy;
use karst_core::memory::Memory;
use karst_core::names::{CA_CERT_GENERATION_ANNOTATION, CLUSTER_TRUST, trust_secret};
use karst_core::plan::{Removal, Seen};
use karst_core::podset::PodAction;
use karst_core::rolling::{Cause, Restart};
use karst_core::world::{Answer, Answers, Meta, PodSetView, SecretView, Settings, WantedPod};
use kube::client::Body;
use tower::service_fn;

use super::*;

pub(crate) const NAMESPACE: &str = "myproject";
const CLAIM: &str = "data-c-kafka-0";

/// An API server with some objects, by their paths, and what was written to it.
#[derive(Clone, Default)]
pub(crate) struct Server {
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    written: Arc<Mutex<Vec<(Method, String, Value)>>>,
    /// Requests that are not answered yet, and how many there were at most.
    open: Arc<Mutex<(usize, usize)>>,
    /// Is nothing answered any more?
    hangs: Arc<AtomicBool>,
    /// What there is at another path as soon as something was written at this one.
    then: Arc<Mutex<BTreeMap<String, (String, Value)>>>,
}

impl Server {
    pub(crate) fn with(path: &str, object: Value) -> Self {
        let server = Self::default();
        server.objects.lock().unwrap().insert(path.to_owned(), object);
        server
    }

    /// There is another object.
    pub(crate) fn has(&self, path: &str, object: Value) {
        self.objects.lock().unwrap().insert(path.to_owned(), object);
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> (StatusCode, Value) {
        let mut objects = self.objects.lock().unwrap();
        if *method == Method::GET {
            let missing =
                json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"});
            let lists = ["kafkanodepools"].iter().any(|kind| path.ends_with(kind));
            let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []});
            return match objects.get(path) {
                Some(object) => (StatusCode::OK, object.clone()),
                None if lists => (StatusCode::OK, list),
                None => (StatusCode::NOT_FOUND, missing),
            };
        }
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let name = body["metadata"]["name"].as_str().map(|name| format!("{path}/{name}"));
        let at = if *method == Method::POST { name.unwrap_or_default() } else { path.to_owned() };
        let live = objects.get(&at).cloned();
        let has = live.as_ref().and_then(|live| live["metadata"]["resourceVersion"].as_str());
        let asked = body["metadata"]["resourceVersion"].as_str();
        let is_as_asked = match *method {
            Method::DELETE => true,
            Method::POST => live.is_none(),
            _ => has == asked.filter(|one| *one != NEVER),
        };
        if !is_as_asked {
            let conflict =
                json!({"kind": "Status", "code": 409, "reason": "Conflict", "message": "conflict"});
            return (StatusCode::CONFLICT, conflict);
        }
        self.written.lock().unwrap().push((method.clone(), at.clone(), body.clone()));
        let mut new = live.unwrap_or_else(|| body.clone());
        for part in ["labels", "annotations"] {
            for (key, value) in body["metadata"][part].as_object().cloned().unwrap_or_default() {
                match (value.is_null(), new["metadata"][part].as_object_mut()) {
                    (true, Some(all)) => drop(all.remove(&key)),
                    (true, None) => {}
                    (false, _) => new["metadata"][part][key] = value,
                }
            }
        }
        if body.get("status").is_some() {
            new["status"] = body["status"].clone();
        }
        new["metadata"]["resourceVersion"] = json!("8");
        if let Some((path, object)) = self.then.lock().unwrap().remove(&at) {
            objects.insert(path, object);
        }
        objects.insert(at, new.clone());
        (StatusCode::OK, new)
    }

    pub(crate) fn hands(&self) -> Hands {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (method, path) = (request.method().clone(), request.uri().path().to_owned());
                let body = request.into_body().collect().await?.to_bytes();
                server.wait().await;
                let (code, answer) = server.answer(&method, &path, &body);
                let answer = serde_json::to_vec(&answer).unwrap();
                let mut response = Response::new(Full::new(Bytes::from(answer)));
                *response.status_mut() = code;
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response)
            }
        });
        Hands {
            client: Client::new(service, "default"),
            index: Arc::default(),
            queue: Arc::default(),
            leadership: Arc::new(Leadership::always()),
            heartbeats: Arc::default(),
            confirmed: Arc::default(),
            memories: Arc::default(),
            keys: Keys::default(),
        }
    }

    /// From now on it is silent.
    pub(crate) fn hang(&self) {
        self.hangs.store(true, Ordering::Relaxed);
    }

    /// Takes a moment, so that it shows who asks at the same time.
    async fn wait(&self) {
        {
            let mut open = self.open.lock().unwrap();
            open.0 += 1;
            open.1 = open.1.max(open.0);
        }
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        self.open.lock().unwrap().0 -= 1;
    }

    /// How many requests there were at once, at most.
    pub(crate) fn most_at_once(&self) -> usize {
        self.open.lock().unwrap().1
    }

    pub(crate) fn last_written(&self) -> Value {
        self.written.lock().unwrap().last().unwrap().2.clone()
    }

    /// What was written, by its path.
    pub(crate) fn bodies(&self) -> Vec<(String, Value)> {
        let written = self.written.lock().unwrap();
        written.iter().map(|(_, path, body)| (path.clone(), body.clone())).collect()
    }

    pub(crate) fn written(&self) -> Vec<String> {
        let written = self.written.lock().unwrap();
        written.iter().map(|(method, path, _)| format!("{method} {path}")).collect()
    }
}

pub(crate) fn kafka(annotations: &Value) -> Kafka {
    serde_json::from_value(json!({
        "apiVersion": "kafka.strimzi.io/v1", "kind": "Kafka",
        "metadata": {"name": "c", "namespace": NAMESPACE, "uid": "uid-kafka", "generation": 1, "annotations": annotations},
        "spec": {"kafka": {"listeners": []}},
        "status": {"clusterId": "the-id"}
    }))
    .unwrap()
}

pub(crate) fn world() -> World {
    let key = ClusterKey { namespace: NAMESPACE.to_owned(), name: "c".to_owned() };
    World {
        key,
        kafka: Arc::new(kafka(&json!({}))),
        pools: BTreeMap::new(),
        pod_sets: BTreeMap::new(),
        taken: BTreeMap::new(),
        pods: BTreeMap::new(),
        config_maps: BTreeMap::new(),
        services: BTreeMap::new(),
        service_accounts: BTreeMap::new(),
        budgets: BTreeMap::new(),
        policies: BTreeMap::new(),
        claims: BTreeMap::new(),
        secrets: BTreeMap::new(),
        references: BTreeMap::new(),
        unreadable: None,
        strays: Vec::new(),
        answers: Answers::default(),
        memory: Memory::default(),
        referenced: BTreeMap::new(),
        settings: Arc::new(Settings {
            operator_version: "0.1.0".to_owned(),
            node_image: "image".to_owned(),
            kafka_images: BTreeMap::new(),
            image_pull_policy: None,
            image_pull_secrets: Vec::new(),
            cluster_domain: "cluster.local".to_owned(),
            network_policies: true,
            operator_namespace: None,
            operator_namespace_labels: BTreeMap::new(),
            privileged_templates: false,
        }),
        now: Timestamp::UNIX_EPOCH,
        api_server_time: None,
        entropy: Entropy([0; 32]),
    }
}

fn claim_path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/{CLAIM}")
}

fn meta(more: &Value) -> Value {
    let mut meta = json!({"name": CLAIM, "namespace": NAMESPACE, "uid": "uid-there", "resourceVersion": "7"});
    for (key, value) in more.as_object().unwrap() {
        meta[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": {}})
}

/// The claim that a new node needs.
fn wanted() -> Object {
    let metadata = ObjectMeta {
        name: Some(CLAIM.to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        labels: Some(world().key.labels()),
        ..ObjectMeta::default()
    };
    Object::Claim(PersistentVolumeClaim { metadata, ..PersistentVolumeClaim::default() })
}

/// What becomes of a claim that is to be made where there is one already.
async fn meet(more: &Value) -> (Vec<String>, Vec<String>) {
    let server = Server::with(&claim_path(), meta(more));
    let failures = server.hands().write(&world(), vec![wanted()]).await;
    (failures.iter().map(ToString::to_string).collect(), server.written())
}

#[tokio::test]
async fn a_claim_of_somebody_else_is_left_alone_and_both_are_named() {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "uid-db", "controller": true}]);
    let labelled = world().key.labels();
    for more in [json!({"ownerReferences": owner}), json!({"ownerReferences": owner, "labels": labelled})] {
        let (failures, written) = meet(&more).await;
        let expected =
            format!("PersistentVolumeClaim {CLAIM} belongs to StatefulSet 'db', and is left as it is");
        assert_eq!((failures, written), (vec![expected], Vec::new()), "{more}");
    }
    let (failures, written) = meet(&json!({"managedFields": [{"manager": "kubectl"}]})).await;
    assert!(failures[0].contains("belongs to whoever wrote it with kubectl"), "{failures:?}");
    assert_eq!(written, [""; 0]);
}

#[tokio::test]
async fn what_lost_its_labels_is_healed() {
    let owner =
        json!([{"apiVersion": "kafka.strimzi.io/v1", "kind": "Kafka", "name": "c", "uid": "uid-kafka"}]);
    for more in [json!({"ownerReferences": owner}), json!({"annotations": {"karst.io/cluster-id": "the-id"}})]
    {
        let (failures, written) = meet(&more).await;
        assert_eq!((failures, written), (Vec::new(), vec![format!("PATCH {}", claim_path())]), "{more}");
    }
}

#[tokio::test]
async fn a_claim_with_our_labels_that_was_not_seen_is_looked_at_first() {
    let (failures, written) = meet(&json!({"labels": world().key.labels()})).await;
    assert_eq!((failures.len(), written), (1, Vec::new()));
}

#[tokio::test]
async fn a_secret_that_lost_its_labels_gets_them_back_and_keeps_its_key() {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/c-cluster-ca");
    let owner =
        json!([{"apiVersion": "kafka.strimzi.io/v1", "kind": "Kafka", "name": "c", "uid": "uid-kafka"}]);
    let live = |owners: &Value| {
        json!({"apiVersion": "v1", "kind": "Secret", "data": {"ca.key": "b2xk"}, "metadata": {
            "name": "c-cluster-ca", "namespace": NAMESPACE, "uid": "u", "resourceVersion": "7", "ownerReferences": owners
        }})
    };
    let metadata = ObjectMeta {
        name: Some("c-cluster-ca".to_owned()),
        labels: Some(world().key.labels()),
        ..ObjectMeta::default()
    };
    let new = Secret { metadata, ..Secret::default() };
    let server = Server::with(&path, live(&owner));
    let failure = server.hands().write_secret(&world(), new.clone()).await.unwrap_err();
    assert!(failure.is_conflict(), "it is decided anew: {failure}");
    let now = server.objects.lock().unwrap()[&path].clone();
    assert_eq!(now["data"]["ca.key"], "b2xk");
    assert_eq!(now["metadata"]["labels"][CLUSTER_LABEL], "c");

    let server = Server::with(&path, live(&json!([])));
    let failure = server.hands().write_secret(&world(), new).await.unwrap_err();
    assert!(failure.is_foreign(), "{failure}");
    assert_eq!(server.written(), [""; 0]);
}

/// Deletes a claim, for a `Kafka` resource that is annotated by now.
async fn remove_claim(annotations: &Value) -> Vec<String> {
    let server = Server::with(&claim_path(), meta(&json!({})));
    let kafka_path = format!("/apis/kafka.strimzi.io/v1/namespaces/{NAMESPACE}/kafkas/c");
    let kafka = serde_json::to_value(kafka(annotations)).unwrap();
    server.objects.lock().unwrap().insert(kafka_path, kafka);
    let seen = Seen { name: CLAIM.to_owned(), uid: "uid-there".to_owned(), version: "7".to_owned() };
    let removal = Removal::Claim { claim: seen, pod: "c-kafka-0".to_owned() };
    let outcome = server.hands().remove(&world(), &removal).await;
    assert_eq!(outcome.is_ok(), !server.written().is_empty(), "{outcome:?}");
    server.written()
}

#[tokio::test]
async fn a_disk_goes_only_if_the_user_still_wants_what_was_seen() {
    assert_eq!(remove_claim(&json!({})).await, [format!("DELETE {}", claim_path())]);
    for annotation in ["strimzi.io/pause-reconciliation", "strimzi.io/skip-broker-scaledown-check"] {
        assert_eq!(remove_claim(&json!({annotation: "true"})).await, [""; 0], "{annotation}");
    }
}

#[tokio::test]
async fn a_claim_is_told_which_pod_had_nothing_on_it() {
    let mut there = meta(&json!({}));
    there["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let server = Server::with(&claim_path(), there);
    server.hands().note_empty(&world().key, CLAIM, "uid-there", "uid-of-pod").await.unwrap();
    let expected = json!({"uid": "uid-there", "annotations": {"karst.io/empty-in-pod": "uid-of-pod"}});
    assert_eq!(server.last_written()["metadata"], expected, "that very claim, and nothing else of it");
}

const POD: &str = "c-kafka-0";

fn pod_path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods/{POD}")
}

/// What becomes of a pod that is to be made where there is one already.
async fn meet_pod(more: &Value) -> (Result<(), Failure>, Vec<String>, Value) {
    let mut live = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []},
        "metadata": {"name": POD, "namespace": NAMESPACE, "uid": "uid-there", "resourceVersion": "7"}});
    for (key, value) in more.as_object().unwrap() {
        live["metadata"][key] = value.clone();
    }
    let server = Server::with(&pod_path(), live);
    let hands = server.hands();
    hands.learn(kafka_at(6));
    let set = PodSetView {
        meta: Meta { name: "c-kafka".into(), uid: "uid-set".into(), ..Meta::default() },
        ..PodSetView::default()
    };
    let wanted = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []},
        "metadata": {"name": POD, "namespace": NAMESPACE, "labels": world().key.labels()}});
    let action = PodAction::Create { name: POD.into(), pod: wanted.to_string().into() };
    let outcome = hands.handle_pod(&world().key, &set, &action).await;
    let now = server.objects.lock().unwrap()[&pod_path()]["metadata"]["labels"].clone();
    (outcome, server.written(), now)
}

fn kafka_at(version: u64) -> Kafka {
    let mut kafka = kafka(&json!({}));
    kafka.metadata.resource_version = Some(version.to_string());
    kafka
}

fn pod_owner(kind: &str, uid: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": kind, "name": "it", "uid": uid, "controller": true}])
}

/// The watch does not show it any more: it was taken for gone, and could not be made again.
#[tokio::test]
async fn a_pod_that_lost_its_labels_gets_them_back() {
    let other = json!({"strimzi.io/cluster": "other", "strimzi.io/kind": "Kafka"});
    for labels in [json!({}), other, json!({"strimzi.io/cluster": "c"})] {
        for owner in [pod_owner("StrimziPodSet", "uid-set"), pod_owner("Kafka", "uid-kafka")] {
            let (outcome, written, now) =
                meet_pod(&json!({"ownerReferences": owner, "labels": labels})).await;
            outcome.unwrap();
            assert_eq!(written, [format!("PATCH {}", pod_path())], "{labels} {owner}");
            assert_eq!(now, serde_json::to_value(world().key.labels()).unwrap());
        }
    }
}

#[tokio::test]
async fn a_pod_of_somebody_else_is_left_alone_and_both_are_named() {
    let cases = [
        (json!({"ownerReferences": pod_owner("StatefulSet", "uid-db")}), "StatefulSet 'it'"),
        (json!({"ownerReferences": pod_owner("StrimziPodSet", "uid-earlier")}), "StrimziPodSet 'it'"),
        (json!({"managedFields": [{"manager": "kubectl"}]}), "whoever wrote it with kubectl"),
    ];
    for (more, owner) in cases {
        let (outcome, written, _) = meet_pod(&more).await;
        let failure = outcome.unwrap_err();
        assert!(failure.is_foreign(), "{failure}");
        assert_eq!(failure.to_string(), format!("Pod {POD} belongs to {owner}, and is left as it is"));
        assert_eq!(written, [""; 0]);
    }
}

#[tokio::test]
async fn a_pod_that_only_the_watch_has_not_told_of_is_looked_at_first() {
    let (outcome, written, _) = meet_pod(&json!({"labels": world().key.labels()})).await;
    let failure = outcome.unwrap_err();
    assert!(failure.is_conflict() && !failure.is_foreign(), "{failure}");
    assert_eq!(written, [""; 0]);
}

fn pool(name: &str, finalizers: &Value) -> Value {
    json!({
        "apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaNodePool",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": format!("uid-{name}"), "generation": 1, "resourceVersion": "7",
                     "finalizers": finalizers},
        "spec": {"replicas": 1, "roles": ["broker"], "storage": {"type": "ephemeral"}},
    })
}

/// How many requests there are at once when a cluster with many pools and pods looks and writes.
#[tokio::test]
async fn a_cluster_with_many_pools_asks_for_a_few_at_once() {
    let (server, mut world) = (Server::default(), world());
    let names: Vec<_> = (0..50).map(|number| format!("p{number}")).collect();
    for name in &names {
        let pool = pool(name, &json!([]));
        world.pools.insert(name.clone(), Arc::new(serde_json::from_value(pool.clone()).unwrap()));
        server.has(&format!("/apis/kafka.strimzi.io/v1/namespaces/{NAMESPACE}/kafkanodepools/{name}"), pool);
        let node =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"zone": "a"}}});
        server.has(&format!("/api/v1/nodes/{name}"), node);
    }
    let hands = server.hands();
    hands.pools_exist(&world, &names.iter().map(String::as_str).collect()).await.unwrap();
    assert_eq!(server.most_at_once(), AT_ONCE, "pools");
    *server.open.lock().unwrap() = (0, 0);
    let machines = names.iter().map(|name| (name.clone(), "zone".to_owned())).collect();
    let racks = hands.racks(&machines).await;
    assert!(racks.len() == 50 && racks.values().all(|rack| *rack == Answer::Known(Some("a".to_owned()))));
    assert_eq!(server.most_at_once(), AT_ONCE, "racks");
}

#[tokio::test(start_paused = true)]
async fn machines_that_were_not_asked_for_because_nobody_answers_are_not_known() {
    let server = Server::default();
    server.hang();
    let machines = (0..50).map(|number| (format!("m{number}"), "zone".to_owned())).collect();
    let began = Instant::now();
    let racks = server.hands().racks(&machines).await;
    assert!(began.elapsed() < DEADLINE * 2, "each would have let us wait as long: {:?}", began.elapsed());
    assert!(racks.len() == 50 && racks.values().all(|rack| matches!(rack, Answer::Silent(_))));
    assert_eq!(server.most_at_once(), AT_ONCE);
}

#[tokio::test(start_paused = true)]
async fn after_a_call_that_hung_none_is_begun_and_after_one_that_was_refused_the_others_are() {
    for (time, done) in [(LONG, AT_ONCE), (LONG - Duration::from_millis(1), 100)] {
        let calls = (0..100).map(|_| async {
            tokio::time::sleep(time).await;
            Err::<(), _>(Failure::NotLeader)
        });
        assert_eq!(few_at_once(calls.collect(), Result::is_err).await.len(), done, "{time:?}");
        let calls = (0..100).map(|_| async { tokio::time::sleep(time).await });
        assert_eq!(few_at_once(calls.collect(), |()| false).await.len(), 100, "slow, and done");
    }
}

fn restart(claims: &[&str], keeps: &[&str]) -> Restart {
    let named =
        |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), "uid-there".to_owned())).collect();
    Restart {
        node: NodeId(0),
        pod: POD.to_owned(),
        uid: "uid-there".to_owned(),
        causes: vec![if claims.is_empty() { Cause::QuorumMoved } else { Cause::EmptyDisks }],
        claims: named(claims),
        keeps: named(keeps),
        loses_disk: keeps.is_empty(),
        exposed: None,
        leaderless: None,
    }
}

/// A server with the pod, the claim and the `Kafka` resource.
fn with_pod(pod: &Value, claim: &Value, kafka_annotations: &Value) -> Server {
    let mut live = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []},
        "metadata": {"name": POD, "namespace": NAMESPACE, "uid": "uid-there", "resourceVersion": "7"}});
    for (key, value) in pod.as_object().unwrap() {
        live["metadata"][key] = value.clone();
    }
    let server = Server::with(&pod_path(), live);
    server.has(&claim_path(), meta(claim));
    server.has(KAFKA_PATH, serde_json::to_value(kafka(kafka_annotations)).unwrap());
    server
}

const KAFKA_PATH: &str = "/apis/kafka.strimzi.io/v1/namespaces/myproject/kafkas/c";

/// What is deleted for a restart.
async fn restarts(server: &Server, restart: &Restart) -> Vec<String> {
    let outcome = server.hands().restart(&world(), restart).await;
    assert_eq!(outcome.is_ok(), !server.written().is_empty(), "{outcome:?}");
    assert!(outcome.err().is_none_or(|failure| failure.is_conflict()), "it is decided anew");
    server.written()
}

#[tokio::test]
async fn a_pod_goes_only_while_the_claims_that_its_successor_is_to_find_stay() {
    let keeps = restart(&[], &[CLAIM]);
    let nothing = json!({});
    let stays = with_pod(&nothing, &nothing, &nothing);
    assert_eq!(restarts(&stays, &keeps).await, [format!("DELETE {}", pod_path())]);
    for gone in [json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), json!({"uid": "uid-of-another"})] {
        let server = with_pod(&nothing, &gone, &nothing);
        assert_eq!(restarts(&server, &keeps).await, [""; 0], "{gone}");
    }
    let server = with_pod(&nothing, &nothing, &nothing);
    server.objects.lock().unwrap().remove(&claim_path());
    assert_eq!(restarts(&server, &keeps).await, [""; 0], "it is gone");
}

const EMPTIED: &str = "strimzi.io/delete-pod-and-pvc";

#[tokio::test]
async fn a_disk_is_emptied_only_while_that_is_still_wished_for() {
    let emptied = restart(&[CLAIM], &[]);
    let asked = json!({"annotations": { EMPTIED: "true" }});
    let nothing = json!({});
    let both = [format!("DELETE {}", claim_path()), format!("DELETE {}", pod_path())];
    assert_eq!(restarts(&with_pod(&asked, &nothing, &nothing), &emptied).await, both);
    // The watch has told of none of this.
    let taken_back = [
        json!({}),
        json!({"annotations": { EMPTIED: "false" }}),
        json!({"annotations": { EMPTIED: "true" }, "uid": "uid-of-another"}),
        json!({"annotations": { EMPTIED: "true" }, "deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ];
    for pod in taken_back {
        assert_eq!(restarts(&with_pod(&pod, &nothing, &nothing), &emptied).await, [""; 0], "{pod}");
    }
    for annotation in ["karst.io/allow-data-loss", "strimzi.io/pause-reconciliation"] {
        let server = with_pod(&asked, &nothing, &json!({ annotation: "another" }));
        assert_eq!(restarts(&server, &emptied).await, [""; 0], "{annotation}");
    }
}

/// To tell a claim to go may take seconds, and what is on it is there for as long as its pod is.
#[tokio::test]
async fn a_pod_stays_when_the_wish_is_taken_back_after_its_claim_was_told_to_go() {
    let nothing = json!({});
    let server = with_pod(&json!({"annotations": { EMPTIED: "true" }}), &nothing, &nothing);
    let paused = serde_json::to_value(kafka(&json!({"strimzi.io/pause-reconciliation": "true"}))).unwrap();
    server.then.lock().unwrap().insert(claim_path(), (KAFKA_PATH.to_owned(), paused));
    let failure = server.hands().restart(&world(), &restart(&[CLAIM], &[])).await.unwrap_err();
    assert!(failure.is_conflict(), "{failure}");
    assert_eq!(server.written(), [format!("DELETE {}", claim_path())]);
}

/// Its claim is on its way out already: the pod's end is enough to empty it.
#[tokio::test]
async fn a_pod_whose_disk_goes_with_it_goes_only_while_the_wishes_are_what_they_were() {
    let goes = restart(&[], &[]);
    let nothing = json!({});
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    let server = with_pod(&nothing, &going, &nothing);
    assert_eq!(restarts(&server, &goes).await, [format!("DELETE {}", pod_path())]);
    let server = with_pod(&nothing, &going, &json!({"karst.io/allow-data-loss": "another"}));
    assert_eq!(restarts(&server, &goes).await, [""; 0]);
}

/// What becomes of a pod that will not run, and of what is on its claim.
async fn replaces(claim: &Value, volume: Option<&str>) -> Vec<String> {
    let server = with_pod(&json!({}), claim, &json!({}));
    if let Some(volume) = volume {
        server.objects.lock().unwrap().get_mut(&claim_path()).unwrap()["spec"]["volumeName"] = json!(volume);
    }
    let pod = json!({"spec": {"volumes": [
        {"name": "tmp", "emptyDir": {}},
        {"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}}
    ]}});
    let wanted = WantedPod { json: pod.to_string().into(), revision: None };
    let set = PodSetView { pods: [(POD.to_owned(), wanted)].into(), ..PodSetView::default() };
    let action = PodAction::Replace {
        name: POD.into(),
        uid: "uid-there".into(),
        version: "7".into(),
        phase: "Failed".into(),
    };
    let outcome = server.hands().handle_pod(&world().key, &set, &action).await;
    assert_eq!(outcome.is_ok(), !server.written().is_empty(), "{outcome:?}");
    server.written()
}

#[tokio::test]
async fn a_pod_that_will_not_run_keeps_what_is_on_a_claim_that_is_being_deleted() {
    let gone = [format!("DELETE {}", pod_path())];
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    assert_eq!(replaces(&json!({}), Some("pv-1")).await, gone, "its claim stays");
    assert_eq!(replaces(&going, None).await, gone, "its claim never had a volume");
    assert_eq!(replaces(&going, Some("pv-1")).await, [""; 0]);
}

/// Is a pool taken to be there after the API server was asked for it, and it is gone since?
async fn is_asked_once(finalizers: &Value) -> bool {
    let path = format!("/apis/kafka.strimzi.io/v1/namespaces/{NAMESPACE}/kafkanodepools/brokers");
    let pool = pool("brokers", finalizers);
    let server = Server::with(&path, pool.clone());
    let (hands, mut world) = (server.hands(), world());
    world.pools.insert("brokers".to_owned(), Arc::new(serde_json::from_value(pool).unwrap()));
    let brokers = BTreeSet::from(["brokers"]);
    hands.pools_exist(&world, &brokers).await.unwrap();
    server.objects.lock().unwrap().clear();
    hands.pools_exist(&world, &brokers).await.is_ok()
}

#[tokio::test]
async fn a_pool_is_asked_for_once_in_a_moment_if_it_cannot_go_without_us() {
    assert!(is_asked_once(&json!([POOL_FINALIZER])).await);
    assert!(!is_asked_once(&json!([])).await);
}

#[tokio::test]
async fn pods_are_made_for_the_pod_set_that_was_just_written_and_for_no_other() {
    let hands = Server::default().hands();
    let set: StrimziPodSet = serde_json::from_value(json!({
        "apiVersion": "core.strimzi.io/v1", "kind": "StrimziPodSet",
        "metadata": {"name": "c-brokers", "namespace": NAMESPACE, "uid": "uid-set", "generation": 2},
        "spec": {"selector": {}, "pods": []},
    }))
    .unwrap();
    let view = set.clone().view();
    assert!(hands.is_as_seen(NAMESPACE, &view).await.is_err(), "it is asked for, and not there");
    hands.confirmed.pod_set(&set.metadata);
    hands.is_as_seen(NAMESPACE, &view).await.unwrap();
    let mut older = view;
    older.generation = 1;
    assert!(hands.is_as_seen(NAMESPACE, &older).await.is_err(), "a view that is older than what was written");
}

/// What is written a second time is looked at first: somebody changed it, and people are told what and who.
#[tokio::test]
async fn what_is_written_again_is_compared_with_what_is_there() {
    let path = format!("/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/c-kafka");
    let budget = |least: i32, version: Option<&str>| {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "c-kafka", "namespace": NAMESPACE, "uid": "uid-budget", "resourceVersion": version, "labels": world().key.labels()},
            "spec": {"minAvailable": least, "selector": {"matchLabels": {"a": "b"}}}
        })
    };
    let object = |version: &str| Object::Budget(serde_json::from_value(budget(2, Some(version))).unwrap());
    let mut live = budget(1, Some("7"));
    live["metadata"]["managedFields"] = json!([
        {"manager": "karst", "operation": "Apply", "time": "2026-01-02T00:00:00Z"},
        {"manager": "meddler", "operation": "Update", "time": "2026-01-01T00:00:00Z"},
        {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status", "time": "2026-01-03T00:00:00Z"}
    ]);
    let server = Server::with(&path, live);
    let hands = server.hands();
    let mut world = world();
    let mut said = Vec::new();
    for version in ["7", "8", "8"] {
        // Unchanged but for who it is to replace.
        assert!(hands.write(&world, vec![object(version)]).await.is_empty());
        world.memory = hands.memories.of(&world.key);
        said.push(format!("{:?}", world.memory.rewrites["PodDisruptionBudget c-kafka"]));
    }
    assert!(said[0].contains("times: 1") && said[0].contains("difference: None"), "{}", said[0]);
    let named = "spec.minAvailable (changed last by \\\"meddler\\\")";
    assert!(said[1].contains("times: 2") && said[1].contains(named), "{}", said[1]);
    assert!(said[2].contains("times: 3") && said[2].contains(named), "{}", said[2]);
}

/// A Secret is known by what it is for: what it holds may be made anew each time.
#[tokio::test]
async fn a_secret_that_is_written_again_is_remembered_with_what_was_changed_and_by_whom() {
    let name = trust_secret("c");
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{name}");
    let live = json!({
        "apiVersion": "v1", "kind": "Secret", "data": {},
        "metadata": {
            "name": name, "namespace": NAMESPACE, "uid": "uid-trust", "resourceVersion": "7", "labels": world().key.labels(),
            "managedFields": [
                {"manager": "karst", "operation": "Update", "time": "2026-01-02T00:00:00Z"},
                {"manager": "meddler", "operation": "Update", "time": "2026-01-01T00:00:00Z"}
            ]
        }
    });
    let server = Server::with(&path, live);
    let hands = server.hands();
    let mut world = world();
    let files = BTreeMap::from([(CLUSTER_TRUST.to_owned(), b"whom to trust".to_vec())]);
    let annotations = BTreeMap::from([(CA_CERT_GENERATION_ANNOTATION.to_owned(), "0".to_owned())]);
    let issue = Issue::Trust { secret: name.clone(), files: files.clone(), annotations };
    let mut said = Vec::new();
    for version in ["7", "8"] {
        let meta = Meta {
            name: name.clone(),
            uid: "uid-trust".to_owned(),
            resource_version: version.to_owned(),
            labels: world.key.labels(),
            ..Meta::default()
        };
        world.secrets.insert(name.clone(), Arc::new(SecretView::new(meta, files.clone())));
        let failures = hands.certify(&world, &[&issue]).await;
        assert!(failures.is_empty(), "{failures:?}");
        world.memory = hands.memories.of(&world.key);
        said.push(format!("{:?}", world.memory.rewrites[&format!("Secret {name}")]));
    }
    assert!(said[0].contains("times: 1") && said[0].contains("difference: None"), "{}", said[0]);
    let named =
        format!("metadata.annotations[{CA_CERT_GENERATION_ANNOTATION}] (changed last by \\\"meddler\\\")");
    assert!(said[1].contains("times: 2") && said[1].contains(&named), "{}", said[1]);
}
