//! Pieces that more than one resource, or more than one part of a resource, is made of.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::schema;

/// An object whose inside is somebody else's: kept exactly as it was written.
///
/// Used where Karst only hands a part of the resource on, to a pod for example. A typed copy would lose
/// whatever a newer Kubernetes adds to that part.
pub type FreeForm = BTreeMap<String, serde_json::Value>;

/// One observation about a resource, such as `Ready`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about, for example Ready, NotReady or Warning.
    #[serde(rename = "type")]
    pub type_: Option<String>,
    /// True, False or Unknown.
    pub status: Option<String>,
    /// When the condition last changed, in UTC.
    pub last_transition_time: Option<String>,
    /// One word for programs that says why.
    pub reason: Option<String>,
    /// A sentence for people that says why, and what can be done.
    pub message: Option<String>,
}

/// An amount of CPU, memory or disk, as people write it: `2`, `500m`, `8Gi`.
///
/// Kubernetes' own type knows only text, but the API server keeps a number in a custom resource a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "an amount must be a whole number or text such as 500m or 8Gi")]
pub enum Quantity {
    /// A plain number, in the resource's base unit.
    Number(i64),
    /// A number with or without a unit.
    Text(String),
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl From<&str> for Quantity {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<&Quantity> for k8s_openapi::apimachinery::pkg::api::resource::Quantity {
    fn from(quantity: &Quantity) -> Self {
        Self(quantity.to_string())
    }
}

impl JsonSchema for Quantity {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schema::int_or_string()
    }
}

/// CPU and memory that a container asks for and may use.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequirements {
    /// Resource claims of the pod that the container uses.
    pub claims: Option<Vec<ResourceClaim>>,
    /// The most the container may use.
    pub limits: Option<BTreeMap<String, Quantity>>,
    /// What the container is guaranteed to get.
    pub requests: Option<BTreeMap<String, Quantity>>,
}

/// A resource claim of the pod, by name.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceClaim {
    /// Name of the claim in the pod.
    pub name: Option<String>,
    /// Name of the request inside the claim, when only that one is meant.
    pub request: Option<String>,
}

/// How the Java virtual machine of a node is started.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JvmOptions {
    /// Options of the -XX kind, by name: true and false switch an option on and off.
    #[serde(rename = "-XX")]
    pub xx: Option<BTreeMap<String, String>>,
    /// Largest size of the heap, for example 2g.
    #[serde(rename = "-Xmx")]
    #[schemars(regex(pattern = r"^[0-9]+[mMgG]?$"))]
    pub xmx: Option<String>,
    /// Size of the heap at the start, for example 2g.
    #[serde(rename = "-Xms")]
    #[schemars(regex(pattern = r"^[0-9]+[mMgG]?$"))]
    pub xms: Option<String>,
    /// Whether the garbage collector writes a log; it does not unless asked to.
    pub gc_logging_enabled: Option<bool>,
    /// System properties that are passed with -D.
    pub java_system_properties: Option<Vec<SystemProperty>>,
}

/// A Java system property.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SystemProperty {
    /// Name of the property.
    pub name: Option<String>,
    /// Value of the property.
    pub value: Option<String>,
}

/// When a container is asked how it is, and how patiently.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// Seconds from the start of the container to the first question.
    #[schemars(range(min = 0))]
    pub initial_delay_seconds: Option<i32>,
    /// Seconds after which a missing answer counts as a failure.
    #[schemars(range(min = 1))]
    pub timeout_seconds: Option<i32>,
    /// Seconds between two questions.
    #[schemars(range(min = 1))]
    pub period_seconds: Option<i32>,
    /// Good answers in a row that make a failed probe good again.
    #[schemars(range(min = 1))]
    pub success_threshold: Option<i32>,
    /// Bad answers in a row that make the probe fail.
    #[schemars(range(min = 1))]
    pub failure_threshold: Option<i32>,
}

/// Where log levels come from: written here, or a file in a ConfigMap.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Logging {
    /// Whether the levels are in `loggers` (inline) or in a ConfigMap (external).
    #[serde(rename = "type")]
    pub type_: LoggingType,
    /// Log levels by logger, for inline logging.
    pub loggers: Option<BTreeMap<String, String>>,
    /// Where the logging configuration is, for external logging.
    pub value_from: Option<ExternalConfiguration>,
}

/// The kinds of [`Logging`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum LoggingType {
    Inline,
    External,
}

/// A file that the user keeps in a ConfigMap.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExternalConfiguration {
    /// The ConfigMap and the key in it.
    pub config_map_key_ref: Option<ConfigMapKeySelector>,
}

/// One key of one ConfigMap.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapKeySelector {
    /// The key in the ConfigMap.
    pub key: Option<String>,
    /// Name of the ConfigMap, in the namespace of the resource.
    pub name: Option<String>,
    /// Whether the ConfigMap or the key may be missing.
    pub optional: Option<bool>,
}

/// Which metrics a node shows, and how.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.type != 'jmxPrometheusExporter' || has(self.valueFrom)",
    "message": "valueFrom is required when type is jmxPrometheusExporter",
    "reason": "FieldValueRequired",
    "fieldPath": ".valueFrom"
}]))]
pub struct MetricsConfig {
    /// What collects the metrics.
    #[serde(rename = "type")]
    pub type_: MetricsType,
    /// Where the exporter's configuration is, for the JMX exporter.
    pub value_from: Option<ExternalConfiguration>,
    /// Settings of the metrics reporter.
    pub values: Option<MetricsReporterValues>,
}

/// The kinds of [`MetricsConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MetricsType {
    JmxPrometheusExporter,
    StrimziMetricsReporter,
}

/// Settings of the metrics reporter.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricsReporterValues {
    /// Regular expressions; a metric is shown when one of them matches its name.
    pub allow_list: Option<Vec<String>>,
}
