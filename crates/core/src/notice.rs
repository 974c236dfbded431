//! What is done otherwise than asked, or is worth a look, though the cluster goes on.
//!
//! Each notice is a value with its data and one sentence. Conditions, events, logs and dry runs print that sentence.

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
    /// A change of the controllers of a formed quorum.
    #[error(
        "pool '{pool}' asks for {wanted} controllers and keeps {kept}: the controllers of a running cluster cannot be changed yet"
    )]
    ControllersHeld {
        /// The pool.
        pool: String,
        /// What was asked for.
        wanted: i32,
        /// What stays.
        kept: usize,
    },
    /// Nodes that are to go.
    #[error("pool '{pool}' asks for {wanted} nodes and keeps {kept}: removing nodes is not possible yet")]
    ScaleDownHeld {
        /// The pool.
        pool: String,
        /// What was asked for.
        wanted: i32,
        /// What stays.
        kept: usize,
    },
    /// A change of roles.
    #[error(
        "pool '{pool}' keeps its roles ({kept}): changing the roles of running nodes is not possible yet"
    )]
    RolesHeld {
        /// The pool.
        pool: String,
        /// The roles its nodes run with.
        kept: String,
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
        "the pool of StrimziPodSet '{pod_set}' does not exist any more; its nodes stay, because removing nodes is not possible yet"
    )]
    PoolGone {
        /// Its pod set.
        pod_set: String,
    },
    /// Nodes that run with old settings.
    #[error("these pods run with older settings than asked for, and take the new ones when they restart (Karst does not restart them by itself yet): {}", pods.join(", "))]
    PodsOutdated {
        /// The pods.
        pods: Vec<String>,
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
            Self::ControllersHeld { .. } | Self::ScaleDownHeld { .. } | Self::RolesHeld { .. } => {
                "ChangeHeld"
            }
            Self::StorageHeld { .. } | Self::SingleEphemeral { .. } => "KafkaStorage",
            Self::PoolGone { .. } => "PoolGone",
            Self::PodsOutdated { .. } => "PodsOutdated",
            Self::EvenControllers { .. } => "KafkaKRaftControllerNodeCount",
            Self::ReplicationUnset { key: "min.insync.replicas", .. } => "KafkaMinInsyncReplicas",
            Self::ReplicationUnset { .. } => "KafkaDefaultReplicationFactor",
        }
    }

    /// The pool it is about, when it is about one.
    pub fn pool(&self) -> Option<&str> {
        match self {
            Self::ControllersHeld { pool, .. }
            | Self::ScaleDownHeld { pool, .. }
            | Self::RolesHeld { pool, .. }
            | Self::StorageHeld { pool } => Some(pool),
            Self::FieldsIgnored { pool, .. } => pool.as_deref(),
            _ => None,
        }
    }
}
