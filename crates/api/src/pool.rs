//! `KafkaNodePool`: nodes of a cluster that are alike.

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::common::{Condition, JvmOptions, ResourceRequirements};
use crate::storage::Storage;
use crate::template::KafkaNodePoolTemplate;

/// What the nodes of the pool should be.
#[skip_serializing_none]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    crates(kube = "::kube_derive", kube_core = "::kube_core"),
    group = "kafka.strimzi.io",
    version = "v1",
    kind = "KafkaNodePool",
    plural = "kafkanodepools",
    doc = "Nodes of a Kafka cluster that are alike.",
    namespaced,
    status = "KafkaNodePoolStatus",
    derive = "PartialEq",
    shortname = "knp",
    category = "strimzi",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.labelSelector"
    ),
    printcolumn = r#"{"name": "Desired replicas", "type": "integer", "jsonPath": ".spec.replicas",
        "description": "How many nodes the pool should have"}"#,
    printcolumn = r#"{"name": "Roles", "type": "string", "jsonPath": ".status.roles",
        "description": "What the nodes of the pool do"}"#,
    printcolumn = r#"{"name": "NodeIds", "type": "string", "jsonPath": ".status.nodeIds",
        "description": "Ids of the nodes of the pool"}"#
)]
pub struct KafkaNodePoolSpec {
    /// How many nodes the pool has.
    #[schemars(range(min = 0))]
    pub replicas: i32,
    /// Where the nodes keep their data.
    pub storage: Storage,
    /// What the nodes do: controller, broker, or both.
    #[schemars(length(min = 1))]
    pub roles: Vec<Role>,
    /// CPU and memory of the nodes.
    pub resources: Option<ResourceRequirements>,
    /// How the Java virtual machines are started; replaces what the Kafka resource says.
    pub jvm_options: Option<JvmOptions>,
    /// What to add to the Kubernetes objects of the pool.
    pub template: Option<Box<KafkaNodePoolTemplate>>,
}

/// What a node does in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    Controller,
    Broker,
}

/// What the nodes of the pool are.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KafkaNodePoolStatus {
    /// What wants attention; whether the cluster is ready is told by the Kafka resource.
    pub conditions: Option<Vec<Condition>>,
    /// Generation of the resource that was last carried out or refused.
    pub observed_generation: Option<i64>,
    /// Ids of the nodes of the pool.
    pub node_ids: Option<Vec<i32>>,
    /// Id of the Kafka cluster that the pool belongs to.
    pub cluster_id: Option<String>,
    /// What the nodes of the pool do now.
    pub roles: Option<Vec<Role>>,
    /// How many nodes the pool has now.
    pub replicas: Option<i32>,
    /// Labels by which the pods of the pool are found, for the scale subresource.
    pub label_selector: Option<String>,
}
