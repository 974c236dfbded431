//! `Kafka`: a cluster, and what belongs to all of its nodes. The nodes themselves are in its pools.

use std::collections::BTreeMap;

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Number;
use serde_with::skip_serializing_none;

use crate::common::{FreeForm, JvmOptions, Logging, MetricsConfig, Probe, ResourceRequirements};
use crate::listener::Listener;
use crate::status::KafkaStatus;
use crate::storage::Storage;
use crate::template::KafkaClusterTemplate;

/// What the cluster should be.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    crates(kube = "::kube_derive", kube_core = "::kube_core"),
    group = "kafka.strimzi.io",
    version = "v1",
    kind = "Kafka",
    plural = "kafkas",
    doc = "A Kafka cluster.",
    namespaced,
    status = "KafkaStatus",
    derive = "PartialEq",
    shortname = "k",
    category = "strimzi",
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status",
        "description": "Whether the cluster is as it was asked for"}"#,
    printcolumn = r#"{"name": "Warnings", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Warning\")].status",
        "description": "Whether something wants attention"}"#,
    printcolumn = r#"{"name": "Kafka version", "type": "string", "jsonPath": ".status.kafkaVersion",
        "description": "Version of Kafka that the nodes run"}"#,
    printcolumn = r#"{"name": "Metadata version", "type": "string", "jsonPath": ".status.kafkaMetadataVersion",
        "description": "Version of the metadata that the nodes agreed on"}"#,
    printcolumn = r#"{"name": "Quorum", "type": "string", "jsonPath": ".status.quorum.kind", "priority": 1,
        "description": "Whether the voters can change while the cluster runs"}"#,
    printcolumn = r#"{"name": "Voters", "type": "string", "jsonPath": ".status.quorum.voterIds", "priority": 1,
        "description": "Node ids of the controllers that vote"}"#
)]
pub struct KafkaSpec {
    /// The Kafka cluster itself.
    pub kafka: KafkaClusterSpec,
    /// The operators of topics and users.
    pub entity_operator: Option<Box<EntityOperatorSpec>>,
    /// The authority that signs the certificates of the nodes.
    pub cluster_ca: Option<CertificateAuthority>,
    /// The authority that signs the certificates of clients.
    pub clients_ca: Option<CertificateAuthority>,
    /// Cruise Control, which balances partitions over brokers.
    pub cruise_control: Option<Box<CruiseControlSpec>>,
    /// The exporter of consumer lag and topic metrics.
    pub kafka_exporter: Option<Box<KafkaExporterSpec>>,
    /// Cron expressions in UTC: when certificates may be renewed at the cost of a restart; always when missing.
    pub maintenance_time_windows: Option<Vec<String>>,
}

/// What all nodes of the cluster have in common.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KafkaClusterSpec {
    /// Version of Kafka, for example 4.1.1; the operator's default when missing.
    pub version: Option<String>,
    /// Version of the cluster's metadata, for example 4.1-IV1; that of the Kafka version when missing.
    pub metadata_version: Option<String>,
    /// Container image of the nodes; the operator knows one for each Kafka version.
    pub image: Option<String>,
    /// How clients reach the brokers.
    #[schemars(length(min = 1))]
    pub listeners: Vec<Listener>,
    /// Kafka settings of all nodes; those that the operator decides are not taken over.
    pub config: Option<FreeForm>,
    /// Who may do what.
    pub authorization: Option<Authorization>,
    /// How brokers learn in which rack they are.
    pub rack: Option<Rack>,
    /// Image of the init container that finds out the rack.
    pub broker_rack_init_image: Option<String>,
    /// When a node is taken for dead.
    pub liveness_probe: Option<Probe>,
    /// When a node is taken for ready.
    pub readiness_probe: Option<Probe>,
    /// How the Java virtual machines are started, unless a pool says otherwise.
    pub jvm_options: Option<JvmOptions>,
    /// Access to the nodes by JMX.
    pub jmx_options: Option<JmxOptions>,
    /// Which metrics the nodes show, and how.
    pub metrics_config: Option<MetricsConfig>,
    /// What the nodes log.
    pub logging: Option<Logging>,
    /// What to add to the Kubernetes objects of the cluster.
    pub template: Option<Box<KafkaClusterTemplate>>,
    /// Where old log segments are moved to.
    pub tiered_storage: Option<TieredStorage>,
    /// Limits for clients that have none of their own.
    pub quotas: Option<Box<Quotas>>,
    /// Deprecated, use a KafkaNodePool: how many nodes the cluster has when it has no pools.
    #[schemars(range(min = 1))]
    pub replicas: Option<i32>,
    /// Deprecated, use a KafkaNodePool: where the nodes keep their data when the cluster has no pools.
    pub storage: Option<Storage>,
    /// Deprecated, use a KafkaNodePool: CPU and memory of the nodes, unless a pool says otherwise.
    pub resources: Option<ResourceRequirements>,
}

/// Who may do what.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Authorization {
    /// Whether Kafka's own authorizer is used (simple) or another class (custom).
    #[serde(rename = "type")]
    pub type_: AuthorizationType,
    /// Class of a custom authorizer.
    pub authorizer_class: Option<String>,
    /// Principals that may do everything.
    pub super_users: Option<Vec<String>>,
    /// Whether rules of a custom authorizer can be changed through Kafka's admin API.
    pub supports_admin_api: Option<bool>,
}

/// The kinds of [`Authorization`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AuthorizationType {
    Simple,
    Custom,
}

/// How brokers learn in which rack they are.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "(has(self.type) && self.type == 'environment-variable') || \
                 (has(self.topologyKey) && self.topologyKey != '')",
        "message": "topologyKey is required unless type is environment-variable",
        "reason": "FieldValueRequired",
        "fieldPath": ".topologyKey"
    },
    {
        "rule": "!has(self.type) || self.type != 'environment-variable' || \
                 (has(self.envVarName) && self.envVarName != '')",
        "message": "envVarName is required when type is environment-variable",
        "reason": "FieldValueRequired",
        "fieldPath": ".envVarName"
    }
]))]
pub struct Rack {
    /// Whether the rack is a label of the Kubernetes node or a variable of the container.
    #[serde(rename = "type")]
    pub type_: Option<RackType>,
    /// Label of the Kubernetes nodes whose value is the rack, for example topology.kubernetes.io/zone.
    pub topology_key: Option<String>,
    /// Name of the environment variable that holds the rack.
    pub env_var_name: Option<String>,
}

/// The kinds of [`Rack`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RackType {
    TopologyLabel,
    EnvironmentVariable,
}

/// Access to the nodes by JMX.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JmxOptions {
    /// How JMX clients prove who they are; anybody may connect when it is missing.
    pub authentication: Option<JmxAuthentication>,
}

/// How JMX clients prove who they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JmxAuthentication {
    /// Kind of authentication.
    #[serde(rename = "type")]
    pub type_: JmxAuthenticationType,
}

/// The kinds of [`JmxAuthentication`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum JmxAuthenticationType {
    Password,
}

/// Where old log segments are moved to.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TieredStorage {
    /// Kind of tiered storage.
    #[serde(rename = "type")]
    pub type_: TieredStorageType,
    /// The plugin that moves segments.
    pub remote_storage_manager: Option<RemoteStorageManager>,
}

/// The kinds of [`TieredStorage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TieredStorageType {
    Custom,
}

/// The plugin that moves log segments.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteStorageManager {
    /// Class of the plugin.
    pub class_name: Option<String>,
    /// Class path of the plugin.
    pub class_path: Option<String>,
    /// Settings of the plugin.
    pub config: Option<BTreeMap<String, String>>,
}

/// Limits for clients that have none of their own.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Quotas {
    /// Whether Kafka's own quotas are used (kafka) or the quota plugin (strimzi).
    #[serde(rename = "type")]
    pub type_: QuotasType,
    /// Bytes per second that a client may fetch.
    #[schemars(range(min = 0))]
    pub consumer_byte_rate: Option<i64>,
    /// Bytes per second that a client may produce.
    #[schemars(range(min = 0))]
    pub producer_byte_rate: Option<i64>,
    /// Share of the request threads' time that a client may use, in percent.
    #[schemars(range(min = 0))]
    pub request_percentage: Option<i32>,
    /// Topics and partitions per second that a client may create or delete.
    #[schemars(range(min = 0.0))]
    pub controller_mutation_rate: Option<Number>,
    /// Principals that the quota plugin does not limit.
    pub excluded_principals: Option<Vec<String>>,
    /// Free bytes on a volume below which the quota plugin stops producers.
    #[schemars(range(min = 0))]
    pub min_available_bytes_per_volume: Option<i64>,
    /// Free share of a volume, from 0 to 1, below which the quota plugin stops producers.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_available_ratio_per_volume: Option<Number>,
}

/// The kinds of [`Quotas`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum QuotasType {
    Kafka,
    Strimzi,
}

/// An authority that signs certificates.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateAuthority {
    /// Whether the operator makes the authority; if not, the user provides its secrets.
    pub generate_certificate_authority: Option<bool>,
    /// Whether the authority's secrets are deleted with the cluster.
    pub generate_secret_owner_reference: Option<bool>,
    /// Days for which certificates are valid; 365 unless given.
    #[schemars(range(min = 1))]
    pub validity_days: Option<i32>,
    /// Days before the end at which certificates are renewed; 30 unless given.
    #[schemars(range(min = 1))]
    pub renewal_days: Option<i32>,
    /// Whether an authority that is about to expire keeps its key or gets a new one.
    pub certificate_expiration_policy: Option<CertificateExpirationPolicy>,
}

/// What becomes of an authority's key when its certificate is about to expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateExpirationPolicy {
    RenewCertificate,
    ReplaceKey,
}

/// The operators of topics and users.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EntityOperatorSpec {
    /// The operator of topics.
    pub topic_operator: Option<FreeForm>,
    /// The operator of users.
    pub user_operator: Option<FreeForm>,
    /// What to add to the Kubernetes objects of the entity operator.
    pub template: Option<FreeForm>,
}

/// Cruise Control, which balances partitions over brokers.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CruiseControlSpec {
    /// Container image of Cruise Control.
    pub image: Option<String>,
    /// CPU and memory of Cruise Control.
    pub resources: Option<FreeForm>,
    /// When Cruise Control is taken for dead.
    pub liveness_probe: Option<FreeForm>,
    /// When Cruise Control is taken for ready.
    pub readiness_probe: Option<FreeForm>,
    /// How the Java virtual machine is started.
    pub jvm_options: Option<FreeForm>,
    /// What Cruise Control logs.
    pub logging: Option<FreeForm>,
    /// What to add to the Kubernetes objects of Cruise Control.
    pub template: Option<FreeForm>,
    /// What the brokers can carry.
    pub broker_capacity: Option<FreeForm>,
    /// Settings of Cruise Control.
    pub config: Option<FreeForm>,
    /// Which metrics Cruise Control shows, and how.
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self.type != 'jmxPrometheusExporter' || has(self.valueFrom)",
        "message": "valueFrom is required when type is jmxPrometheusExporter",
        "reason": "FieldValueRequired",
        "fieldPath": ".valueFrom"
    }, {
        "rule": "self.type != 'strimziMetricsReporter'",
        "message": "Cruise Control cannot use the strimziMetricsReporter; use jmxPrometheusExporter"
    }]))]
    pub metrics_config: Option<MetricsConfig>,
    /// Where users of Cruise Control's own API come from.
    pub api_users: Option<FreeForm>,
    /// When partitions are balanced without being asked.
    #[schemars(length(min = 1))]
    pub auto_rebalance: Option<Vec<FreeForm>>,
}

/// The exporter of consumer lag and topic metrics.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KafkaExporterSpec {
    /// Container image of the exporter.
    pub image: Option<String>,
    /// Which consumer groups are shown; all unless given.
    pub group_regex: Option<String>,
    /// Which topics are shown; all unless given.
    pub topic_regex: Option<String>,
    /// Which consumer groups are left out.
    pub group_exclude_regex: Option<String>,
    /// Which topics are left out.
    pub topic_exclude_regex: Option<String>,
    /// CPU and memory of the exporter.
    pub resources: Option<FreeForm>,
    /// Log level of the exporter.
    pub logging: Option<String>,
    /// When the exporter is taken for dead.
    pub liveness_probe: Option<FreeForm>,
    /// When the exporter is taken for ready.
    pub readiness_probe: Option<FreeForm>,
    /// Whether the exporter's Kafka client logs too.
    pub enable_sarama_logging: Option<bool>,
    /// Whether offsets of groups without members are shown.
    pub show_all_offsets: Option<bool>,
    /// What to add to the Kubernetes objects of the exporter.
    pub template: Option<FreeForm>,
}
