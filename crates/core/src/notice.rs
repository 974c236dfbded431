//! What is done otherwise than asked, or is worth a look, though the cluster goes on.
//!
//! Each notice is a value with its data and one sentence. Conditions, events, logs and dry runs print that sentence.

use crate::ids::NodeId;
use crate::names::SKIP_CHECK_ANNOTATION;

/// The reason of [`Notice::IdsIgnored`]. It is said once, when nodes are added or removed, and stays in the status.
pub const IDS_IGNORED: &str = "NodeIdsIgnored";

/// Something a user should know, though the cluster goes on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Notice {
    /// Fields that have no effect.
    #[error("Karst keeps these fields but does not act on them yet: {}", fields.join(", "))]
    FieldsIgnored {
        /// The pool they are on, or `None` for the cluster.
        pool: Option<String>,
        /// Their paths.
        fields: Vec<String>,
    },
    /// Settings that only the operator may make.
    #[error("these settings of spec.kafka.config belong to Karst and are left out: {}", keys.join(", "))]
    SettingsLeftOut {
        /// The keys.
        keys: Vec<String>,
    },
    /// A listener that is not served.
    #[error("listener '{name}' is not served: {why}")]
    ListenerLeftOut {
        /// The listener.
        name: String,
        /// What is not supported.
        why: String,
    },
    /// Pools that are not used.
    #[error("the KafkaNodePool resources {} are not used, because spec.kafka.replicas is set and the annotation strimzi.io/node-pools is not 'enabled'", pools.join(", "))]
    PoolsNotUsed {
        /// The pools.
        pools: Vec<String>,
    },
    /// A change of the controllers of a static quorum.
    #[error(
        "pool '{pool}' keeps its controllers {kept}: the voters of a static quorum cannot change; migrate it to a dynamic quorum first"
    )]
    ControllersHeld {
        /// The pool.
        pool: String,
        /// Its nodes.
        kept: String,
    },
    /// Controllers that are to go, and the quorum does not say whether they vote.
    #[error(
        "nodes {nodes} of pool '{pool}' are to go and stay, because the quorum does not say whether they vote ({why})"
    )]
    QuorumUnknown {
        /// The pool.
        pool: String,
        /// The nodes.
        nodes: String,
        /// What came instead of an answer.
        why: String,
    },
    /// A voter that is to leave and cannot.
    #[error(
        "controller {node} is to leave the quorum and stays: of the {left} voters that would remain only {healthy} are up and caught up; not so: {voters}"
    )]
    VoterStays {
        /// The voter.
        node: NodeId,
        /// How many would remain.
        left: usize,
        /// How many of them are healthy.
        healthy: usize,
        /// Those that are not.
        voters: String,
    },
    /// A change of the quorum that Kafka did not make.
    #[error("{change}, but Kafka did not do it: {why}; it is tried again")]
    QuorumChangeFailed {
        /// The change.
        change: String,
        /// What Kafka said.
        why: String,
    },
    /// A pod that is to restart and cannot.
    #[error("pod {pod} is to restart and does not yet: {why}")]
    RestartHeld {
        /// The pod.
        pod: String,
        /// What keeps it.
        why: String,
    },
    /// A pod that does not come back.
    #[error("no other pod is restarted before pod {pod} is ready: {why}")]
    RollStopped {
        /// The pod.
        pod: String,
        /// What is wrong with it.
        why: String,
    },
    /// Nodes that are to go, and still have partitions.
    #[error(
        "node {node} of pool '{pool}' is to go and stays, because partitions live there: {partitions}; move them to other brokers (kafka-reassign-partitions.sh), or set the annotation {SKIP_CHECK_ANNOTATION}: \"true\" on the Kafka resource to remove the node and what it alone has"
    )]
    PartitionsHere {
        /// The pool.
        pool: String,
        /// The node.
        node: NodeId,
        /// The partitions.
        partitions: String,
    },
    /// A node that is to be moved, and has what nobody else has.
    #[error(
        "node {node} of pool '{pool}' is to move and stays, because it would start empty, and these partitions would lack in-sync replicas: {partitions}; wait until their other replicas are in sync, or move them to other brokers"
    )]
    MoveHeld {
        /// The pool.
        pool: String,
        /// The node.
        node: NodeId,
        /// The partitions.
        partitions: String,
    },
    /// Nodes that are to go, and Kafka does not say whether they can.
    #[error(
        "nodes {nodes} of pool '{pool}' are to go and stay, because Kafka does not say whether partitions live there ({why})"
    )]
    PartitionsUnknown {
        /// The pool.
        pool: String,
        /// The nodes.
        nodes: String,
        /// What came instead of an answer.
        why: String,
    },
    /// A new node that has to wait for the id it is to get.
    #[error("pool '{pool}' waits for node ids {ids}, which another pool gives up")]
    IdsAwaited {
        /// The pool.
        pool: String,
        /// The ids.
        ids: String,
    },
    /// Ids that were asked for and could not be used.
    #[error("pool '{pool}': {annotation} is {asked}, but {what}")]
    IdsIgnored {
        /// The pool.
        pool: String,
        /// The annotation.
        annotation: &'static str,
        /// What it says.
        asked: String,
        /// What was done instead, and why.
        what: String,
    },
    /// A change of roles.
    #[error("pool '{pool}' keeps its roles ({kept}): {why}")]
    RolesHeld {
        /// The pool.
        pool: String,
        /// The roles its nodes run with.
        kept: String,
        /// What is in the way.
        why: String,
    },
    /// A change of storage.
    #[error(
        "pool '{pool}' keeps the storage its nodes run with: changing the storage of running nodes is not possible yet"
    )]
    StorageHeld {
        /// The pool.
        pool: String,
    },
    /// A pool whose resource was deleted.
    #[error(
        "the pool of StrimziPodSet '{pod_set}' does not exist any more; its nodes stay; create the KafkaNodePool again and scale it to 0, or delete it, to remove them in order"
    )]
    PoolGone {
        /// Its pod set.
        pod_set: String,
    },
    /// An authority that cannot be used, in a cluster that runs.
    #[error("{why}; until then no certificate can be signed, and what runs goes on with those it has")]
    AuthorityUnusable {
        /// What is wrong, and what would be right.
        why: String,
    },
    /// A certificate that Karst may not renew, or not yet.
    #[error("Secret {secret}: {what}")]
    CertificateEnds {
        /// The Secret.
        secret: String,
        /// When it ends, and who can do something about it.
        what: String,
    },
    /// A maintenance window that cannot be understood.
    #[error("spec.maintenanceTimeWindows: {why}")]
    Window {
        /// What is wrong with it.
        why: String,
    },
    /// Controllers in a number that buys nothing.
    #[error("{count} controllers survive the loss of {survives}, no more than {fewer} would; use an odd number, 3 or 5", survives = (count - 1) / 2, fewer = count - 1)]
    EvenControllers {
        /// How many there are.
        count: usize,
    },
    /// Settings that make data easy to lose.
    #[error(
        "spec.kafka.config has no {key}, so topics get Kafka's default of 1 in a cluster of {brokers} brokers; set it (3 brokers: default.replication.factor 3, min.insync.replicas 2)"
    )]
    ReplicationUnset {
        /// The key.
        key: &'static str,
        /// How many brokers there are.
        brokers: usize,
    },
    /// A single node without a disk that lasts.
    #[error("the only {role} has ephemeral storage: everything is lost when its pod goes")]
    SingleEphemeral {
        /// The role.
        role: &'static str,
    },
}

impl Notice {
    /// The reason of the condition.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::FieldsIgnored { .. } => "NotSupportedYet",
            Self::SettingsLeftOut { .. } => "ForbiddenSettings",
            Self::ListenerLeftOut { .. } => "ListenerNotServed",
            Self::PoolsNotUsed { .. } => "PoolsNotUsed",
            Self::ControllersHeld { .. } | Self::RolesHeld { .. } => "ChangeHeld",
            Self::QuorumUnknown { .. } | Self::VoterStays { .. } => "QuorumChangeHeld",
            Self::QuorumChangeFailed { .. } => "QuorumChangeFailed",
            Self::RestartHeld { .. } => "RestartHeld",
            Self::RollStopped { .. } => "RollingUpdateStopped",
            Self::PartitionsHere { .. } | Self::PartitionsUnknown { .. } => "ScaleDownPreventionCheck",
            Self::MoveHeld { .. } => "MoveHeld",
            Self::IdsAwaited { .. } => "NodeIdsAwaited",
            Self::IdsIgnored { .. } => IDS_IGNORED,
            Self::StorageHeld { .. } | Self::SingleEphemeral { .. } => "KafkaStorage",
            Self::PoolGone { .. } => "PoolGone",
            Self::AuthorityUnusable { .. } => "CertificateAuthorityUnusable",
            Self::CertificateEnds { .. } => "CertificateEnds",
            Self::Window { .. } => "MaintenanceWindow",
            Self::EvenControllers { .. } => "KafkaKRaftControllerNodeCount",
            Self::ReplicationUnset { key: "min.insync.replicas", .. } => "KafkaMinInsyncReplicas",
            Self::ReplicationUnset { .. } => "KafkaDefaultReplicationFactor",
        }
    }

    /// Does it go away when partitions move, or Kafka answers again?
    pub fn waits_for_kafka(&self) -> bool {
        matches!(
            self,
            Self::PartitionsHere { .. }
                | Self::PartitionsUnknown { .. }
                | Self::MoveHeld { .. }
                | Self::RolesHeld { .. }
                | Self::QuorumUnknown { .. }
        )
    }

    /// The pool it is about, when it is about one.
    pub fn pool(&self) -> Option<&str> {
        match self {
            Self::ControllersHeld { pool, .. }
            | Self::PartitionsHere { pool, .. }
            | Self::PartitionsUnknown { pool, .. }
            | Self::MoveHeld { pool, .. }
            | Self::IdsAwaited { pool, .. }
            | Self::IdsIgnored { pool, .. }
            | Self::QuorumUnknown { pool, .. }
            | Self::RolesHeld { pool, .. }
            | Self::StorageHeld { pool } => Some(pool),
            Self::FieldsIgnored { pool, .. } => pool.as_deref(),
            _ => None,
        }
    }
}
