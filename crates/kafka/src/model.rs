//! The answers, in types that need no knowledge of the wire protocol.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{DirectoryId, Endpoint, ErrorCode, NodeId, TopicId};

/// The brokers of a cluster, as one of them knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterDescription {
    pub cluster_id: String,
    /// A broker that takes requests meant for a controller. In KRaft mode it is any broker, and says nothing about who leads
    /// the quorum.
    pub controller_id: Option<NodeId>,
    pub brokers: Vec<Broker>,
    /// Whether registered brokers that are fenced (stopped, or still starting) are listed. Before Kafka 4.0 they are not: there
    /// a broker that is missing from the list may still be registered.
    pub fenced_known: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    pub id: NodeId,
    /// Where it listens, on the listener of the same name as the one that was asked.
    pub endpoint: Endpoint,
    pub rack: Option<String>,
    /// Registered, but not serving. Always false where [`ClusterDescription::fenced_known`] is.
    pub fenced: bool,
}

/// The controllers that have registered, and who leads them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllersDescription {
    pub cluster_id: String,
    pub leader: Option<NodeId>,
    pub controllers: Vec<Controller>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    pub id: NodeId,
    pub endpoint: Endpoint,
}

/// The metadata quorum, as its leader sees it.
///
/// One node id can be listed twice, under the directory it lost and the one it has now: never key a map by node id alone. The
/// voters are those of the newest voter set, committed or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quorum {
    pub leader: NodeId,
    pub leader_epoch: i32,
    pub high_watermark: i64,
    pub voters: Vec<ReplicaState>,
    /// Brokers, controllers that have not joined, and, for some minutes, controllers that have left.
    pub observers: Vec<ReplicaState>,
}

impl Quorum {
    /// Whether one of its replicas was there in this leader's time: it leads, or it asked the leader for records. A leader knows
    /// nothing of what happened in the terms before its own.
    #[must_use]
    pub fn takes_part(&self, replica: &ReplicaState) -> bool {
        replica.id == self.leader || replica.last_fetch.is_some()
    }

    /// Whether this node was there with this very disk.
    #[must_use]
    pub fn has_seen(&self, node: NodeId, directory: DirectoryId) -> bool {
        let mut replicas = self.voters.iter().chain(&self.observers);
        replicas.any(|one| one.id == node && one.directory == Some(directory) && self.takes_part(one))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaState {
    pub id: NodeId,
    /// `None` when Kafka does not say: the quorum is static, or Kafka is older than 3.9.
    pub directory: Option<DirectoryId>,
    /// -1 when the leader has not heard from this replica.
    pub log_end_offset: i64,
    /// When the leader was last asked for records by this replica, in milliseconds of the leader's clock. `None` for a replica
    /// that it has not heard from. For the leader itself, Kafka gives the time of the answer.
    pub last_fetch: Option<i64>,
    /// When this replica last had everything, in milliseconds of the leader's clock; for the leader itself the time of the answer.
    pub last_caught_up: Option<i64>,
}

/// Which topics to describe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TopicSelection {
    All,
    Names(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicMetadata {
    /// The brokers that serve; fenced ones are not among them.
    pub brokers: Vec<Broker>,
    /// One entry for each topic that was asked for, those that do not exist included.
    pub topics: Vec<Topic>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    pub name: Arc<str>,
    pub id: Option<TopicId>,
    pub internal: bool,
    /// Why there is nothing to see: the topic does not exist, or may not be read.
    pub error: Option<ErrorCode>,
    pub partitions: Vec<Partition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    pub index: i32,
    /// `None` while the partition is offline.
    pub leader: Option<NodeId>,
    pub leader_epoch: i32,
    pub replicas: Vec<NodeId>,
    pub isr: Vec<NodeId>,
    pub offline_replicas: Vec<NodeId>,
    pub error: Option<ErrorCode>,
}

/// A topic and its partitions, with all that the metadata log has about who could lead them (KIP-966).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedTopic {
    pub name: Arc<str>,
    pub id: Option<TopicId>,
    pub internal: bool,
    /// Why there is nothing to see: the topic does not exist, or may not be read.
    pub error: Option<ErrorCode>,
    pub partitions: Vec<DescribedPartition>,
}

/// A partition, and which replicas outside of its ISR could lead it without losing anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedPartition {
    pub partition: Partition,
    /// The eligible leader replicas: not in sync any more, and complete all the same. Empty too where the cluster keeps no track of
    /// them, which is so before Kafka 4.0 and for clusters that were not told to (`eligible.leader.replicas.version`).
    pub eligible: Vec<NodeId>,
    /// Who is known to have been complete last, when nobody is in sync: the last leader among them.
    pub last_known_eligible: Vec<NodeId>,
}

/// What to describe the configuration of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigResource {
    /// A node; only the node itself knows all of its configuration, so it is asked itself.
    Broker(NodeId),
    /// What holds for all brokers that do not say otherwise themselves.
    BrokerDefaults,
    /// The log levels of a node, which live and die with its process.
    BrokerLogger(NodeId),
    Topic(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigEntry {
    pub name: String,
    /// `None` when it is not set, or sensitive.
    pub value: Option<String>,
    pub source: ConfigSource,
    /// Cannot be changed while the node runs.
    pub read_only: bool,
    pub sensitive: bool,
}

/// Where the value of a configuration entry comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigSource {
    DynamicTopic,
    DynamicBroker,
    DynamicDefaultBroker,
    StaticBroker,
    Default,
    DynamicBrokerLogger,
    ClientMetrics,
    Group,
    Other(i8),
}

/// A partition that is on its way from some brokers to others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reassignment {
    pub topic: Arc<str>,
    pub partition: i32,
    /// All of them: those that stay, those to come and those to go.
    pub replicas: Vec<NodeId>,
    pub adding: Vec<NodeId>,
    pub removing: Vec<NodeId>,
}

/// A directory in which a broker keeps partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogDir {
    pub path: String,
    /// Why there is nothing to see: the disk has failed, for one.
    pub error: Option<ErrorCode>,
    /// The size of the volume. `None` when Kafka does not say.
    pub total_bytes: Option<u64>,
    pub usable_bytes: Option<u64>,
    pub replicas: Vec<LogDirReplica>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogDirReplica {
    pub topic: Arc<str>,
    pub partition: i32,
    pub size: i64,
    pub offset_lag: i64,
    /// A copy in the making, on its way here from another directory of the same broker.
    pub future: bool,
}

/// The features of a cluster, such as `metadata.version` and `kraft.version`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Features {
    /// What the node that was asked could do.
    pub supported: BTreeMap<String, LevelRange>,
    /// What the cluster has agreed on. A feature that is missing is at level 0.
    pub finalized: BTreeMap<String, i16>,
    /// How far in the metadata log the node knows `finalized` to be true: of two answers the one with the higher epoch is
    /// newer. `None` when the node has not learnt of any yet.
    pub epoch: Option<i64>,
}

/// A range of feature levels, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelRange {
    pub min: i16,
    pub max: i16,
}
