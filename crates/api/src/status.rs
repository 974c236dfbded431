//! What Karst tells about a `Kafka` cluster, and the few facts that it must never forget.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::common::{Condition, FreeForm};

/// What the cluster is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KafkaStatus {
    /// How the cluster is, and what wants attention.
    pub conditions: Option<Vec<Condition>>,
    /// Generation of the resource that was last carried out or refused.
    pub observed_generation: Option<i64>,
    /// Addresses at which clients reach the cluster.
    pub listeners: Option<Vec<ListenerStatus>>,
    /// Pools that the cluster is made of.
    pub kafka_node_pools: Option<Vec<UsedNodePool>>,
    /// Pools that the cluster is made of: the same list as kafkaNodePools, under its earlier name.
    pub node_pools: Option<Vec<UsedNodePool>>,
    /// Id of the Kafka cluster, chosen once.
    pub cluster_id: Option<String>,
    /// Version of the operator that last brought the cluster to what was asked for.
    pub operator_last_successful_version: Option<String>,
    /// Version of Kafka that the nodes run.
    pub kafka_version: Option<String>,
    /// Version of the metadata that the nodes agreed on.
    pub kafka_metadata_version: Option<String>,
    /// Controllers that founded a dynamic quorum, as id@host:port:directory; written once, missing for a static quorum.
    pub initial_controllers: Option<String>,
    /// Who votes now, as the quorum's leader said last.
    pub quorum: Option<QuorumStatus>,
    /// Internal, deprecated, to be removed: node ids that are registered, tracked only for Kafka 3.9.
    pub registered_node_ids: Option<Vec<i32>>,
    /// State of balancing that starts by itself.
    pub auto_rebalance: Option<AutoRebalanceStatus>,
    /// What is known about the security of the cluster.
    pub cluster_security: Option<FreeForm>,
}

/// The controller quorum.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuorumStatus {
    /// Whether the voters can change while the cluster runs.
    pub kind: Option<QuorumKind>,
    /// Node id of the leader.
    pub leader: Option<i32>,
    /// Node ids of the voters.
    pub voter_ids: Option<Vec<i32>>,
    /// The voters with their disks.
    pub voters: Option<Vec<QuorumVoter>>,
}

/// Kinds of quorums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum QuorumKind {
    Dynamic,
    Static,
}

/// One voter.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuorumVoter {
    /// Its node id.
    pub id: Option<i32>,
    /// The id of its metadata directory; unknown in a static quorum.
    pub directory_id: Option<String>,
}

/// Where one listener is reached.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    /// Name of the listener.
    pub name: Option<String>,
    /// Addresses of the listener.
    pub addresses: Option<Vec<ListenerAddress>>,
    /// The addresses in the form that clients take as bootstrap.servers.
    pub bootstrap_servers: Option<String>,
    /// Certificates, in PEM form, by which clients of a TLS listener know that it is the right one.
    pub certificates: Option<Vec<String>>,
}

/// One address of a listener.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListenerAddress {
    /// Host name or IP address.
    pub host: Option<String>,
    /// Port.
    pub port: Option<i32>,
}

/// A pool that the cluster is made of.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsedNodePool {
    /// Name of the KafkaNodePool.
    pub name: Option<String>,
}

/// State of balancing that starts by itself.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoRebalanceStatus {
    /// What goes on.
    pub state: Option<AutoRebalanceState>,
    /// When the state last changed, in UTC.
    pub last_transition_time: Option<String>,
    /// Brokers that wait, by what is to be done with them.
    pub modes: Option<Vec<AutoRebalanceModeBrokers>>,
}

/// What automatic balancing is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AutoRebalanceState {
    Idle,
    RebalanceOnScaleDown,
    RebalanceOnScaleUp,
}

/// Brokers that wait for one mode of balancing.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoRebalanceModeBrokers {
    /// What is to be done with the brokers.
    pub mode: Option<AutoRebalanceMode>,
    /// Node ids of the brokers.
    pub brokers: Option<Vec<i32>>,
}

/// Modes of balancing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AutoRebalanceMode {
    AddBrokers,
    RemoveBrokers,
}
