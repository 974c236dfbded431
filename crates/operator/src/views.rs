//! What the watches read of each kind, and the views of it that decisions look at.
//!
//! Kubernetes objects are large; the index keeps a thin view of each. What is not in a view here cannot be looked
//! at, and costs no memory.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    ConfigMap, ContainerState, LoadBalancerIngress, PersistentVolumeClaim, PersistentVolumeClaimSpec, Pod,
    Secret, Service, ServiceAccount, ServiceSpec, ServiceStatus,
};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicySpec};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use karst_api::{Condition, Kafka, KafkaNodePool, StrimziPodSet};
use karst_core::names::REVISION_ANNOTATION;
use karst_core::objects::{pod_set_digest, service_digest};
use karst_core::stored::{budget_digest, policy_digest};
use karst_core::world::{
    ClaimView, ConfigMapView, Controller, Files, Meta, PlainView, PodSetView, PodView, SecretView,
    ServiceAccountView, ServiceView, WantedPod,
};
use kube::Resource;
use kube::core::NamespaceResourceScope;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::texts;

/// Of some kinds all is kept. No real one comes near this.
const LARGEST_KEPT: usize = 512 << 10;
/// A file of users in a ConfigMap of ours is remembered up to this size.
const LARGEST_FILE: usize = 256 << 10;

/// Labels and annotations that operators set are kept up to this size, and those of others up to a smaller one. Kubernetes allows any
/// number of labels.
const LARGEST_OWN: usize = 128 << 10;
const LARGEST_OTHERS: usize = 64 << 10;
/// What a label costs besides its text.
const LABEL: usize = 96;
/// The names under which operators set labels and annotations.
const OWN: [&str; 3] = ["strimzi.io/", "karst.io/", "app.kubernetes.io/"];
/// How many owners of an object are kept. Those that Karst makes have one.
const MOST_OWNERS: usize = 100;

/// Something that is watched, with the view that is kept of it.
pub(crate) trait Watched:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + DeserializeOwned
    + Clone
    + Debug
    + Send
    + Sync
    + 'static
{
    /// What is kept.
    type View: Send + Sync + 'static;

    /// Objects with more bytes are not read: what is kept of them would be too much.
    const LARGEST: usize = usize::MAX;

    /// The part of the object that is kept.
    fn view(self) -> Self::View;

    /// What its status says, of a kind whose status says that it cannot be read.
    fn conditions(&self) -> Option<Vec<Condition>> {
        None
    }
}

impl Watched for Kafka {
    type View = Kafka;

    const LARGEST: usize = LARGEST_KEPT;

    fn conditions(&self) -> Option<Vec<Condition>> {
        self.status.as_ref()?.conditions.clone()
    }

    fn view(mut self) -> Kafka {
        self.metadata.managed_fields = None;
        self
    }
}

impl Watched for KafkaNodePool {
    type View = KafkaNodePool;

    const LARGEST: usize = LARGEST_KEPT;

    fn view(mut self) -> KafkaNodePool {
        self.metadata.managed_fields = None;
        self
    }
}

#[derive(Resource, Deserialize, Clone, Debug)]
#[resource(inherit = "ServiceAccount")]
pub(crate) struct AccountWire {
    metadata: ObjectMeta,
}

impl Watched for AccountWire {
    type View = ServiceAccountView;

    fn view(self) -> ServiceAccountView {
        ServiceAccountView { meta: meta(self.metadata) }
    }
}

#[derive(Resource, Deserialize, Clone, Debug)]
#[resource(inherit = "Service")]
pub(crate) struct ServiceWire {
    metadata: ObjectMeta,
    spec: Option<ServiceSpec>,
    status: Option<ServiceStatus>,
}

impl Watched for ServiceWire {
    type View = ServiceView;

    fn view(self) -> ServiceView {
        let service = Service { spec: self.spec, ..Service::default() };
        let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
        let balancer = self.status.and_then(|status| status.load_balancer);
        let ingress = balancer.and_then(|balancer| balancer.ingress).unwrap_or_default();
        // A name outlives the addresses behind it.
        let address = |one: LoadBalancerIngress| {
            let given = |text: Option<String>| text.filter(|text| !text.is_empty());
            given(one.hostname).or_else(|| given(one.ip))
        };
        ServiceView {
            meta: meta(self.metadata),
            digest: service_digest(&service).ok(),
            node_port: ports.filter_map(|port| port.node_port).find_map(|port| u16::try_from(port).ok()),
            addresses: ingress.into_iter().filter_map(address).collect(),
        }
    }
}

#[derive(Resource, Deserialize, Clone, Debug)]
#[resource(inherit = "PodDisruptionBudget")]
pub(crate) struct BudgetWire {
    metadata: ObjectMeta,
    spec: Option<PodDisruptionBudgetSpec>,
}

impl Watched for BudgetWire {
    type View = PlainView;

    fn view(self) -> PlainView {
        PlainView { meta: meta(self.metadata), digest: budget_digest(self.spec.as_ref()).ok() }
    }
}

#[derive(Resource, Deserialize, Clone, Debug)]
#[resource(inherit = "NetworkPolicy")]
pub(crate) struct PolicyWire {
    metadata: ObjectMeta,
    spec: Option<NetworkPolicySpec>,
}

impl Watched for PolicyWire {
    type View = PlainView;

    fn view(self) -> PlainView {
        PlainView { meta: meta(self.metadata), digest: policy_digest(self.spec.as_ref()).ok() }
    }
}

#[derive(Resource, Deserialize, Clone, Debug)]
#[resource(inherit = "ConfigMap")]
pub(crate) struct ConfigMapWire {
    metadata: ObjectMeta,
    data: Option<BTreeMap<String, String>>,
}

impl Watched for ConfigMapWire {
    type View = ConfigMapView;

    fn view(self) -> ConfigMapView {
        let mut view = ConfigMapView::new(meta(self.metadata), self.data.as_ref(), texts::shared);
        view.files.retain(|_, text| text.len() <= LARGEST_FILE);
        view
    }
}

/// Conditions by which a driver, or the kubelet, says why a PVC does not grow.
const RESIZE_ERRORS: [&str; 2] = ["ControllerResizeError", "NodeResizeError"];

#[derive(Resource, Deserialize, Clone, Debug)]
#[resource(inherit = "PersistentVolumeClaim")]
pub(crate) struct ClaimWire {
    metadata: ObjectMeta,
    spec: Option<PersistentVolumeClaimSpec>,
    status: Option<ClaimStatusWire>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
struct ClaimStatusWire {
    capacity: Option<BTreeMap<String, Quantity>>,
    conditions: Option<Vec<ConditionWire>>,
}

impl Watched for ClaimWire {
    type View = ClaimView;

    fn view(self) -> ClaimView {
        let spec = self.spec.unwrap_or_default();
        let requests = spec.resources.and_then(|resources| resources.requests);
        let status = self.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let holds = |found: &&ConditionWire, type_: &str| found.type_ == type_ && found.status == "True";
        let pending = conditions.iter().find(|found| holds(found, "FileSystemResizePending"));
        let failed = conditions.iter().find(|found| RESIZE_ERRORS.iter().any(|type_| holds(found, type_)));
        ClaimView {
            meta: meta(self.metadata),
            requested: requests.and_then(|mut requests| requests.remove("storage")).map(|size| size.0),
            access_modes: spec.access_modes,
            class: spec.storage_class_name,
            selector: spec.selector.and_then(|selector| selector.match_labels).map(kept),
            bound: spec.volume_name.is_some_and(|volume| !volume.is_empty()),
            resize_pending: pending.and_then(|found| found.last_transition_time.as_ref()).map(|time| time.0),
            resize_error: failed.map(|found| join(found.reason.as_deref(), found.message.as_deref())),
            capacity: status.capacity.and_then(|mut all| all.remove("storage")).map(|size| size.0),
        }
    }
}

#[derive(Resource, Deserialize, Clone)]
#[resource(inherit = "Secret")]
pub(crate) struct SecretWire {
    metadata: ObjectMeta,
    data: Option<BTreeMap<String, ByteString>>,
}

impl Debug for SecretWire {
    /// Without the values: they are secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretWire").field("name", &self.metadata.name).finish_non_exhaustive()
    }
}

impl SecretWire {
    /// Its entries.
    pub(crate) fn into_entries(self) -> impl Iterator<Item = (String, Vec<u8>)> {
        files(self.data).0.into_iter()
    }
}

fn files(data: Option<BTreeMap<String, ByteString>>) -> Files {
    Files(data.unwrap_or_default().into_iter().map(|(name, bytes)| (name, bytes.0)).collect())
}

impl Watched for SecretWire {
    type View = SecretView;

    const LARGEST: usize = LARGEST_KEPT;

    fn view(self) -> SecretView {
        SecretView::new(meta(self.metadata), files(self.data).0)
    }
}

impl Watched for StrimziPodSet {
    type View = PodSetView;

    fn view(self) -> PodSetView {
        let digest = pod_set_digest(&self.spec).ok();
        let generation = self.metadata.generation.unwrap_or_default();
        let pods = self.spec.pods.iter().filter_map(wanted_pod).collect();
        PodSetView { meta: meta(self.metadata), generation, pods, digest, status: self.status }
    }
}

fn wanted_pod(pod: &serde_json::Value) -> Option<(String, WantedPod)> {
    let name = pod.pointer("/metadata/name")?.as_str()?.to_owned();
    let revision =
        pod.pointer("/metadata/annotations")?.get(REVISION_ANNOTATION)?.as_str().map(str::to_owned);
    Some((name, WantedPod { json: Arc::from(pod.to_string()), revision }))
}

#[derive(Resource, Deserialize, Clone, Debug)]
#[resource(inherit = "Pod")]
pub(crate) struct PodWire {
    metadata: ObjectMeta,
    spec: Option<PodSpecWire>,
    status: Option<PodStatusWire>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct PodSpecWire {
    node_name: Option<String>,
}

#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct PodStatusWire {
    phase: Option<String>,
    start_time: Option<Time>,
    #[serde(rename = "hostIP")]
    host_ip: Option<String>,
    conditions: Option<Vec<ConditionWire>>,
    init_container_statuses: Option<Vec<ContainerWire>>,
    container_statuses: Option<Vec<ContainerWire>>,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
struct ConditionWire {
    #[serde(rename = "type")]
    type_: String,
    last_transition_time: Option<Time>,
    status: String,
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
struct ContainerWire {
    #[serde(default)]
    name: String,
    #[serde(default)]
    ready: bool,
    state: Option<ContainerState>,
    last_state: Option<ContainerState>,
}

impl Watched for PodWire {
    type View = PodView;

    fn view(self) -> PodView {
        let status = self.status.unwrap_or_default();
        let found = status.conditions.iter().flatten().find(|found| found.type_ == "Ready");
        let ready = found.is_some_and(|found| found.status == "True");
        let since = found.and_then(|found| found.last_transition_time.as_ref()).map(|time| time.0);
        PodView {
            meta: meta(self.metadata),
            was_ready: ready || was_ready(since, status.start_time.as_ref().map(|time| time.0)),
            since,
            stuck: (!ready).then(|| stuck(&status)).flatten(),
            sidecar: (!ready).then(|| sidecar(&status)).flatten(),
            kafka_ready: is_kafka_ready(&status),
            host_ip: status.host_ip,
            phase: status.phase.unwrap_or_default(),
            ready,
            machine: self.spec.and_then(|spec| spec.node_name),
        }
    }
}

/// The kubelet says that a pod is not ready as soon as it takes it, and says since when. A later time means that it was ready in
/// between. No Kafka serves within this of its pod's start, and the kubelet's two times may be that far apart.
const AT_ONCE: SignedDuration = SignedDuration::from_secs(3);

fn was_ready(unready_since: Option<Timestamp>, started: Option<Timestamp>) -> bool {
    // What cannot be told counts as yes: it may hold something.
    !matches!((unready_since, started), (Some(since), Some(started)) if since.duration_since(started) <= AT_ONCE)
        && started.is_some()
}

/// States in which a container waits as a matter of course.
const PASSING: &[&str] = &["ContainerCreating", "PodInitializing"];
/// How much of a container's last words is worth repeating.
const LAST_WORDS: usize = 400;

/// The container in which Kafka runs.
const KAFKA: &str = "kafka";

fn kafka(status: &PodStatusWire) -> Option<&ContainerWire> {
    status.container_statuses.iter().flatten().find(|container| container.name == KAFKA)
}

/// Is Kafka ready, as the kubelet says? When a Kubernetes node is lost, its pods are called unready by others, and what the kubelet
/// said last of their containers stays: that counts only where the kubelet itself says that not all of them are ready.
fn is_kafka_ready(status: &PodStatusWire) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    let others_are_not = conditions.any(|found| found.type_ == "ContainersReady" && found.status == "False");
    others_are_not && kafka(status).is_some_and(|kafka| kafka.ready)
}

/// Why a pod's Kafka does not run, in Kubernetes' own words and in the last words of its container. Where it runs, or could as far
/// as it is concerned, what other containers do is for [`sidecar`] to say: the pod may have the only copy of something.
fn stuck(status: &PodStatusWire) -> Option<String> {
    let unschedulable = status
        .conditions
        .iter()
        .flatten()
        .find(|found| found.type_ == "PodScheduled" && found.status == "False")
        .map(|found| join(found.reason.as_deref(), found.message.as_deref()));
    let kafka = kafka(status);
    let runs = kafka.and_then(|kafka| kafka.state.as_ref()).is_some_and(|state| state.running.is_some());
    // Containers that start before Kafka's keep it from running; some of them go on beside it.
    let before = status.init_container_statuses.iter().flatten();
    let containers = || before.chain(kafka).filter(|_| !runs);
    unschedulable.or_else(|| containers().find_map(waiting))
}

/// Why a container beside Kafka's does not run.
fn sidecar(status: &PodStatusWire) -> Option<String> {
    let containers = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let mut others = containers.filter(|container| container.name != KAFKA);
    others.find_map(|other| Some(format!("container {}: {}", other.name, waiting(other)?)))
}

fn waiting(container: &ContainerWire) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().filter(|reason| !PASSING.contains(reason))?;
    let ended = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let last_words =
        ended.and_then(|ended| ended.message.as_deref()).map(|words| tail(telling(words), LAST_WORDS));
    Some(join(Some(reason), last_words.or(waiting.message.as_deref())))
}

/// The line that says what happened: the last that names an exception, or else the last at all. The rest is where it happened,
/// and when, which is never the same twice.
fn telling(words: &str) -> &str {
    let lines = || words.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    let is_frame = |line: &&str| line.starts_with("at ") || line.starts_with("...");
    let exception = lines().filter(|line| !is_frame(line)).find(|line| line.contains("Exception: "));
    exception.or_else(|| lines().find(|line| !is_frame(line))).unwrap_or_default()
}

fn tail(text: &str, length: usize) -> &str {
    let start = text.len().saturating_sub(length);
    (start..text.len()).find_map(|at| text.get(at..)).unwrap_or_default()
}

fn join(reason: Option<&str>, message: Option<&str>) -> String {
    [reason, message].into_iter().flatten().collect::<Vec<_>>().join(": ")
}

fn meta(metadata: ObjectMeta) -> Meta {
    let controller = controller(&metadata);
    let owners = metadata.owner_references;
    Meta {
        controller,
        name: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        labels: metadata.labels.map(kept).unwrap_or_default(),
        annotations: metadata.annotations.map(kept).unwrap_or_default(),
        owners: owners.into_iter().flatten().take(MOST_OWNERS).map(|owner| owner.uid).collect(),
        created: metadata.creation_timestamp.map(|time| time.0),
        deleting: metadata.deletion_timestamp.is_some(),
        gone_by: metadata.deletion_timestamp.map(|time| time.0),
    }
}

/// Of labels or annotations those that there is room for. Hardly any object has more; then the operators' own come first.
fn kept(all: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let weight = |key: &str, value: &str| LABEL + key.len() + value.len();
    if all.iter().map(|(key, value)| weight(key, value)).sum::<usize>() <= LARGEST_OTHERS {
        return all;
    }
    let (mut room_for_own, mut room) = (LARGEST_OWN, LARGEST_OTHERS);
    let fits = |(key, value): &(String, String)| {
        let room = if OWN.iter().any(|own| key.starts_with(own)) { &mut room_for_own } else { &mut room };
        let left = room.checked_sub(weight(key, value));
        *room = left.unwrap_or(*room);
        left.is_some()
    };
    all.into_iter().filter(fits).collect()
}

/// Who controls it. Of a pod that is its pod set, and nothing has to be known of that.
fn controller(metadata: &ObjectMeta) -> Option<Box<Controller>> {
    let owners = metadata.owner_references.iter().flatten();
    let mut controllers =
        owners.filter(|owner| owner.controller == Some(true) && owner.kind != "StrimziPodSet");
    let owner = controllers.next()?;
    let (kind, name, uid) = (owner.kind.clone(), owner.name.clone(), owner.uid.clone());
    Some(Box::new(Controller { kind, name, uid }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(status: &serde_json::Value) -> PodView {
        let wire =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "c-p-0"}, "status": status});
        serde_json::from_value::<PodWire>(wire).unwrap().view()
    }

    /// Sixty of these would take all of an operator's memory.
    #[test]
    fn labels_without_number_are_not_kept_and_hide_none_of_the_operators() {
        let mut labels: serde_json::Map<String, serde_json::Value> =
            (0..68_000).map(|n| (format!("a{n}"), json!(""))).collect();
        labels.insert("strimzi.io/cluster".to_owned(), json!("c"));
        labels.insert("zone".to_owned(), json!("a"));
        let annotations = json!({"big": "x".repeat(200_000), "karst.io/rack": "a", "mine": "b"});
        let owners = vec![json!({"apiVersion": "v1", "kind": "x", "name": "x", "uid": "u"}); 5_000];
        let wire = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata":
            {"name": "x", "labels": labels, "annotations": annotations, "ownerReferences": owners}});
        let meta = serde_json::from_value::<ConfigMapWire>(wire).unwrap().view().meta;
        let all = meta.labels.iter().map(|(key, value)| LABEL + key.len() + value.len());
        assert!(all.sum::<usize>() <= LARGEST_OTHERS + LARGEST_OWN && meta.owners.len() <= MOST_OWNERS);
        assert_eq!(meta.labels["strimzi.io/cluster"], "c");
        let kept: Vec<_> = meta.annotations.keys().map(String::as_str).collect();
        assert_eq!(kept, ["karst.io/rack", "mine"]);
        let few = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        assert_eq!(super::kept(few.clone()), few);
    }

    #[test]
    fn what_a_config_map_says_of_its_node_is_kept_only_if_it_can_be_true() {
        let long = "x".repeat(1 << 19);
        let listeners: Vec<_> = (0..60_000).map(|n| format!("L{n}-1://a:1")).collect();
        let config = format!("super.users={long}\nadvertised.listeners={}", listeners.join(","));
        let wire = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c-p-0"},
            "data": {"storage.format": long, "server.config": config}});
        let view = serde_json::from_value::<ConfigMapWire>(wire).unwrap().view();
        assert!(view.storage_format.unwrap().len() < 100);
        assert_eq!(view.serving.names().count(), 64);
        assert!(!format!("{:?}", view.serving).contains("xxx"));
    }

    #[test]
    fn a_container_that_refused_to_start_is_quoted() {
        let view = pod(&json!({
            "phase": "Running",
            "containerStatuses": [{
                "name": "kafka",
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
                "lastState": {"terminated": {"exitCode": 1, "message": "disk belongs to another cluster\n"}}
            }]
        }));
        assert_eq!(view.stuck.as_deref(), Some("CrashLoopBackOff: disk belongs to another cluster"));
    }

    #[test]
    fn of_a_java_program_that_died_the_exception_is_quoted() {
        let words = "2026-11-15T12:42:21,311 ERROR Exiting Kafka due to fatal exception (kafka.Kafka$) [main]
org.apache.kafka.common.config.ConfigException: Invalid value a while for configuration log.retention.hours: Not a number of type INT
\tat org.apache.kafka.common.config.ConfigDef.parseType(ConfigDef.java:757)
\tat kafka.Kafka.main(Kafka.scala)
2026-11-15T12:42:21.336080Z  INFO Kafka ended with exit code 1
";
        assert!(
            telling(words)
                .starts_with("org.apache.kafka.common.config.ConfigException: Invalid value a while")
        );
        assert_eq!(telling("first\nlast\n"), "last");
        assert_eq!(telling(""), "");
    }

    #[test]
    fn a_pod_that_just_starts_is_not_stuck() {
        let view = pod(&json!({
            "phase": "Pending",
            "containerStatuses": [{"name": "kafka", "state": {"waiting": {"reason": "PodInitializing"}}}]
        }));
        assert_eq!(view.stuck, None);
        assert!(!view.ready);
    }

    const LOOPS: &str = "CrashLoopBackOff";

    fn container(name: &str, ready: bool, waits: Option<&str>) -> serde_json::Value {
        let state = match waits {
            Some(reason) => json!({"waiting": {"reason": reason}}),
            None => json!({"running": {}}),
        };
        json!({"name": name, "ready": ready, "state": state})
    }

    #[test]
    fn a_sidecar_that_crashes_says_nothing_of_kafka() {
        let view = pod(&json!({
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "False"}],
            "containerStatuses": [container("proxy", false, Some(LOOPS)), container("kafka", true, None)]
        }));
        assert_eq!((view.stuck.as_deref(), view.ready, view.kafka_ready), (None, false, true));
        assert_eq!(view.sidecar.as_deref(), Some("container proxy: CrashLoopBackOff"));

        // Also one of the kind that starts before Kafka and goes on beside it.
        let view = pod(&json!({
            "phase": "Running",
            "initContainerStatuses": [container("proxy", false, Some(LOOPS))],
            "containerStatuses": [container("kafka", false, None)]
        }));
        assert_eq!((view.stuck, view.kafka_ready), (None, false));
        assert!(view.sidecar.is_some());
    }

    #[test]
    fn a_container_that_keeps_kafka_from_starting_is_quoted() {
        let view = pod(&json!({
            "phase": "Pending",
            "initContainerStatuses": [container("prepare", false, Some(LOOPS))],
            "containerStatuses": [container("kafka", false, Some("PodInitializing"))]
        }));
        assert_eq!(view.stuck.as_deref(), Some(LOOPS));
    }

    #[test]
    fn what_was_said_last_of_a_pod_whose_machine_is_lost_does_not_count() {
        let view = pod(&json!({
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "False"}, {"type": "ContainersReady", "status": "True"}],
            "containerStatuses": [container("kafka", true, None)]
        }));
        assert!(!view.ready && !view.kafka_ready);
    }

    #[test]
    fn an_object_tells_by_when_it_is_to_be_gone() {
        let wire = json!({"apiVersion": "v1", "kind": "Pod",
                          "metadata": {"name": "c-p-0", "deletionTimestamp": "2024-01-01T00:00:00Z"}});
        let meta = serde_json::from_value::<PodWire>(wire).unwrap().view().meta;
        assert_eq!((meta.deleting, meta.gone_by), (true, Some("2024-01-01T00:00:00Z".parse().unwrap())));
        assert_eq!(pod(&json!({})).meta.gone_by, None);
    }

    #[test]
    fn a_pod_without_a_place_says_so() {
        let view = pod(&json!({
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]
        }));
        assert_eq!(view.stuck.as_deref(), Some("Unschedulable: 0/1 nodes"));
    }

    #[test]
    fn an_object_tells_who_controls_it() {
        let view = |owner: serde_json::Value| {
            let wire = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"ownerReferences": [owner]}});
            serde_json::from_value::<ClaimWire>(wire).unwrap().view().meta.controller
        };
        let owner = |kind: &str, controls: bool| json!({"apiVersion": "v1", "kind": kind, "name": "x", "uid": "u", "controller": controls});
        let found = view(owner("StatefulSet", true)).unwrap();
        assert_eq!((found.kind.as_str(), found.name.as_str(), found.uid.as_str()), ("StatefulSet", "x", "u"));
        assert_eq!(view(owner("Kafka", false)), None);
        assert_eq!(view(owner("StrimziPodSet", true)), None);
    }

    #[test]
    fn a_pod_tells_where_it_runs() {
        let wire = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "c-p-0"},
                          "spec": {"nodeName": "machine-1", "containers": []}, "status": {"hostIP": "10.0.0.1"}});
        let view = serde_json::from_value::<PodWire>(wire).unwrap().view();
        assert_eq!((view.machine.as_deref(), view.host_ip.as_deref()), (Some("machine-1"), Some("10.0.0.1")));
    }

    #[test]
    fn a_service_tells_its_port_on_the_nodes_and_its_addresses() {
        let wire = json!({"apiVersion": "v1", "kind": "Service", "metadata": {},
                          "spec": {"type": "LoadBalancer", "ports": [{"name": "tcp-out", "port": 9095, "nodePort": 31000}]},
                          "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}, {"hostname": "lb.example.com", "ip": "10.0.0.2"}]}}});
        let view = serde_json::from_value::<ServiceWire>(wire).unwrap().view();
        assert_eq!(view.node_port, Some(31000));
        assert_eq!(view.addresses, ["10.0.0.1", "lb.example.com"]);
        let plain = json!({"apiVersion": "v1", "kind": "Service", "metadata": {}, "spec": {"ports": [{"port": 1}]},
                           "status": {"loadBalancer": {}}});
        let plain = serde_json::from_value::<ServiceWire>(plain).unwrap().view();
        assert_eq!((plain.node_port, plain.addresses.len()), (None, 0));
    }

    #[test]
    fn a_claim_tells_its_size_and_what_it_waits_for() {
        let view = |spec: serde_json::Value, conditions: serde_json::Value| {
            let wire = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {}, "spec": spec,
                              "status": {"conditions": conditions}});
            serde_json::from_value::<ClaimWire>(wire).unwrap().view()
        };
        let spec = json!({"volumeName": "pv-1", "storageClassName": "fast", "selector": {"matchLabels": {"disk": "ssd"}},
                          "resources": {"requests": {"storage": "10Gi"}}});
        let pending = json!([
            {"type": "Resizing", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z"},
            {"type": "FileSystemResizePending", "status": "True", "lastTransitionTime": "2024-01-02T00:00:00Z"}
        ]);
        let claim = view(spec, pending);
        assert_eq!((claim.requested.as_deref(), claim.class.as_deref()), (Some("10Gi"), Some("fast")));
        assert_eq!(claim.selector.unwrap()["disk"], "ssd");
        assert!(claim.bound);
        assert_eq!(claim.resize_pending, Some("2024-01-02T00:00:00Z".parse().unwrap()));
        let new = view(json!({"resources": {"requests": {"storage": "1Gi"}}}), json!([]));
        assert_eq!((new.bound, new.resize_pending), (false, None));
        let failed = json!([{"type": "ControllerResizeError", "status": "True", "reason": "Infeasible", "message": "no room"}]);
        let failed = view(json!({}), failed);
        assert_eq!(failed.resize_error.as_deref(), Some("Infeasible: no room"));
    }

    #[test]
    fn a_claim_tells_how_much_it_really_holds() {
        let wire = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {},
                          "spec": {"resources": {"requests": {"storage": "20Gi"}}},
                          "status": {"capacity": {"storage": "10Gi"}}});
        let claim = serde_json::from_value::<ClaimWire>(wire).unwrap().view();
        assert_eq!((claim.requested.as_deref(), claim.capacity.as_deref()), (Some("20Gi"), Some("10Gi")));
    }

    #[test]
    fn a_key_that_somebody_added_to_a_config_map_is_not_looked_at() {
        let view = |data: serde_json::Value| {
            let wire = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": data});
            serde_json::from_value::<ConfigMapWire>(wire).unwrap().view().digest
        };
        let ours = view(json!({"cluster.id": "a"}));
        assert_eq!(view(json!({"cluster.id": "a", "extra": "x"})), ours);
        assert_ne!(view(json!({"cluster.id": "b"})), ours);
        assert_ne!(view(json!({})), ours);
    }

    #[test]
    fn last_words_are_cut_at_a_character() {
        assert_eq!(tail("aé", 1), "");
        assert_eq!(tail("abc", 2), "bc");
    }
}
