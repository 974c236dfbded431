//! Why something is not done: what a user wrote that cannot be carried out.
//!
//! Each problem is a value with its data and one sentence. Conditions, events, logs and dry runs print that sentence.

use crate::ids::NodeId;
use crate::names::LONGEST_NAME;
use crate::reason::Reason;
use crate::versions;

/// Input that cannot be carried out. Nothing that runs is changed because of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A name of which no valid object name can be built.
    #[error(
        "metadata.name is '{name}': it becomes part of host names, so use lower-case letters, digits and '-', and start with a letter"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// A name that makes another name too long.
    #[error("metadata.name is '{name}': '{made}', which is made of it, would be {length} characters long, and {max} are allowed; choose a name at least {excess} characters shorter", length = made.len(), max = LONGEST_NAME, excess = made.len() - LONGEST_NAME)]
    NameTooLong {
        /// The name.
        name: String,
        /// The object's name that is too long.
        made: String,
    },
    /// Another cluster has the name.
    #[error(
        "metadata.name is '{name}': the StrimziPodSet '{made}', which is made of it, belongs to the Kafka '{other}'; choose another name"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// The pod set.
        made: String,
        /// The cluster that has it.
        other: String,
    },
    /// A version that is not in the table.
    #[error("spec.kafka.version is '{version}', which is not supported; supported are {list}", list = versions::supported_list())]
    UnknownVersion {
        /// What was asked for.
        version: String,
    },
    /// A metadata version that this Kafka cannot run.
    #[error(
        "spec.kafka.metadataVersion is '{metadata}', which Kafka {kafka} cannot run; its newest is {newest}"
    )]
    UnknownMetadataVersion {
        /// What was asked for.
        metadata: String,
        /// The Kafka version.
        kafka: &'static str,
        /// The newest metadata version of that Kafka version.
        newest: &'static str,
    },
    /// Two listeners with one name.
    #[error(
        "spec.kafka.listeners[{index}].name is '{name}', which another listener has; give every listener a name of its own"
    )]
    ListenerNameTaken {
        /// Position of the second listener.
        index: usize,
        /// The name.
        name: String,
    },
    /// Two listeners on one port.
    #[error(
        "spec.kafka.listeners[{index}].port is {port}, which listener '{other}' has; give every listener a port of its own"
    )]
    ListenerPortTaken {
        /// Position of the second listener.
        index: usize,
        /// The port.
        port: i32,
        /// The listener that has the port.
        other: String,
    },
    /// A port that something else in the pod needs.
    #[error(
        "spec.kafka.listeners[{index}].port is {port}; ports must be from 9092 to 65535, and not 9404 or 9999, which are for metrics"
    )]
    ListenerPortReserved {
        /// Position of the listener.
        index: usize,
        /// The port.
        port: i32,
    },
    /// Certificates of clients on a connection without any.
    #[error(
        "spec.kafka.listeners[{index}].authentication.type is tls, and tls of listener '{name}' is false; clients can show certificates only over TLS: set tls to true"
    )]
    ListenerNeedsTls {
        /// Position of the listener.
        index: usize,
        /// The listener.
        name: String,
    },
    /// A listener name that cannot be part of a setting's name.
    #[error(
        "spec.kafka.listeners[{index}].name is '{name}'; use 1 to 11 lower-case letters and digits, and none of the names of Karst's own ports (health, ctrlplane, replication, prometheus, clients, clientstls)"
    )]
    ListenerName {
        /// Position of the listener.
        index: usize,
        /// The name.
        name: String,
    },
    /// A setting that Kafka would not start with.
    #[error("spec.kafka.config.{key} is '{value}'; for Kafka {kafka} it must be {right}")]
    Setting {
        /// The setting.
        key: String,
        /// Its value.
        value: String,
        /// The Kafka version.
        kafka: &'static str,
        /// What would be right.
        right: String,
    },
    /// A setting of a listener that cannot be used.
    #[error("{field} {found}; {advice}")]
    Listener {
        /// Full path of the field.
        field: String,
        /// What is there.
        found: String,
        /// What would be right.
        advice: String,
    },
    /// Custom access control without a class.
    #[error(
        "spec.kafka.authorization.authorizerClass is '{class}'; authorization of type custom needs the full name of a class in the image"
    )]
    AuthorizerClass {
        /// What is there.
        class: String,
    },
    /// A principal that Kafka would read as none, or as several.
    #[error(
        "spec.kafka.authorization.superUsers[{index}] is '{user}'; write one principal in each entry, such as CN=alice or bob"
    )]
    SuperUser {
        /// Its position.
        index: usize,
        /// What is there.
        user: String,
    },
    /// A cluster without pools.
    #[error(
        "no KafkaNodePool with the label strimzi.io/cluster={cluster} exists; create at least one with the role controller and one with the role broker (a pool can have both)"
    )]
    NoPools {
        /// The cluster.
        cluster: String,
    },
    /// No node would vote.
    #[error(
        "no pool with the role controller has replicas; give a KafkaNodePool spec.roles with controller, and spec.replicas above 0"
    )]
    NoController,
    /// No node would serve.
    #[error(
        "no pool with the role broker has replicas; give a KafkaNodePool spec.roles with broker, and spec.replicas above 0"
    )]
    NoBroker,
    /// The virtual pool cannot be built.
    #[error(
        "spec.kafka.storage is missing; a cluster with spec.kafka.replicas and without node pools needs it (or use KafkaNodePool resources)"
    )]
    NoStorage,
    /// A pool without roles.
    #[error("spec.roles is empty; list controller, broker, or both")]
    NoRoles,
    /// Fewer than no replicas, or more than anybody can run.
    #[error("spec.replicas is {replicas}; it must be from 0 to {most}")]
    Replicas {
        /// How many are possible.
        most: usize,
        /// What was asked for.
        replicas: i32,
    },
    /// More nodes than a cluster can have.
    #[error(
        "spec.replicas of the pools are {found} together, and a cluster has {most} nodes at most; lower them"
    )]
    TooManyNodes {
        /// How many are asked for.
        found: usize,
        /// How many are possible.
        most: usize,
    },
    /// More pools than a cluster can have.
    #[error(
        "{found} KafkaNodePools are labelled for this cluster, and it has {most} at most; delete some, or label them for other clusters"
    )]
    TooManyPools {
        /// How many there are.
        found: usize,
        /// How many are possible.
        most: usize,
    },
    /// A number that nothing can be done with.
    #[error("{field} is {value}; it must be from 1 to {most}")]
    Number {
        /// Full path of the field.
        field: String,
        /// What is there.
        value: i32,
        /// The largest that is possible.
        most: i32,
    },
    /// A list that is too long.
    #[error("{field} has {found} entries; it can have {most} at most")]
    TooMany {
        /// Full path of the field.
        field: String,
        /// How many there are.
        found: usize,
        /// How many are possible.
        most: i64,
    },
    /// A resource that is too large.
    #[error("spec is {kilobytes} kB long, and {most} kB are possible; shorten its longest texts and lists")]
    SpecTooLarge {
        /// Its length as JSON.
        kilobytes: usize,
        /// How long it may be.
        most: usize,
    },
    /// A cluster with more in it than one operator can carry beside all others.
    #[error(
        "the pods, settings, claims and services of {nodes} nodes would be about {megabytes} MB together, most of it those of pool '{pool}', and {most} MB are possible; use fewer nodes, volumes or listeners, or shorter templates and settings"
    )]
    TooHeavy {
        /// How many nodes there are.
        nodes: usize,
        /// What they weigh.
        megabytes: usize,
        /// What they may weigh.
        most: usize,
        /// The pool that weighs most.
        pool: String,
    },
    /// A pod set that cannot be stored.
    #[error(
        "pool '{pool}': {nodes} nodes make a StrimziPodSet of {kilobytes} kB, and etcd takes 1500 kB; spread the nodes over several pools, with {most} nodes each at most"
    )]
    PodSetTooLarge {
        /// The pool.
        pool: String,
        /// How many nodes it has.
        nodes: usize,
        /// How large their pod set would be.
        kilobytes: usize,
        /// How many nodes would do.
        most: usize,
    },
    /// Storage that cannot be used.
    #[error("{field} {found}; {advice}")]
    Storage {
        /// Full path of the field.
        field: String,
        /// What is there.
        found: String,
        /// What would be right.
        advice: String,
    },
    /// A resource quantity that cannot be used.
    #[error("{field} is '{value}'; write a quantity such as 500m or 2Gi")]
    Quantity {
        /// Full path of the field.
        field: String,
        /// What is there.
        value: String,
    },
    /// A label or an annotation that is not a user's to set.
    #[error(
        "{field} is reserved: labels and annotations that start with strimzi.io/ or karst.io/, and app.kubernetes.io/name, instance and managed-by, are set by Karst, which finds its objects by them; remove it or choose another key"
    )]
    ReservedKey {
        /// Full path of the field.
        field: String,
    },
    /// A part of a pod or container that is not what Kubernetes expects.
    #[error(
        "{field} is not what Kubernetes expects there: {why}; correct it (`kubectl explain pod.spec` tells more)"
    )]
    FreeForm {
        /// Full path of the field.
        field: String,
        /// What is wrong with it.
        why: String,
    },
    /// A part of a template that cannot be used.
    #[error("{field} {found}; {advice}")]
    Template {
        /// Full path of the field.
        field: String,
        /// What is there.
        found: String,
        /// What would be right.
        advice: String,
    },
    /// Something that reaches out of the pod, or takes the traffic of others.
    #[error(
        "{field} is {found}, which reaches beyond this cluster; Karst makes that only when whoever runs it allows it (KARST_ALLOW_PRIVILEGED_TEMPLATES=true, the chart's value allowPrivilegedTemplates); take it out, or ask them"
    )]
    Privileged {
        /// Full path of the field.
        field: String,
        /// What is there.
        found: String,
    },
    /// One id in two pools.
    #[error(
        "node id {node} is in status.nodeIds of the pools '{one}' and '{other}'; remove it from the one whose pod '{pod}' does not exist"
    )]
    NodeIdTwice {
        /// The id.
        node: NodeId,
        /// A pool that has it.
        one: String,
        /// Another one.
        other: String,
        /// The pod of the second.
        pod: String,
    },
    /// A pool that belongs to another cluster.
    #[error(
        "status.clusterId of pool '{pool}' is {found}, and the cluster's is {expected}: the pool belongs to another Kafka cluster; set its label strimzi.io/cluster back, or create a new pool"
    )]
    ForeignPool {
        /// The pool.
        pool: String,
        /// The id it has.
        found: String,
        /// The id of this cluster.
        expected: String,
    },
    /// Pools of a new Kafka resource that come from different clusters.
    #[error(
        "status.clusterId is missing, and the pools disagree about it ({found}); remove the pools that belong to another cluster"
    )]
    PoolsDisagree {
        /// Each pool with its id.
        found: String,
    },
    /// The cluster of a pool cannot be carried out.
    #[error("Kafka '{cluster}' cannot be carried out; its status says why")]
    ClusterHeld {
        /// The cluster.
        cluster: String,
    },
    /// More disks than nodes, and nobody remembers which nodes there were.
    #[error(
        "the claims of nodes {ids} of pool {pool} are there, {replicas} nodes are asked for, and no resource remembers which of them belong to the cluster; set replicas to {found} (nodes can be removed later), or delete the claims of nodes that had been removed before"
    )]
    MoreDisks {
        /// The pool.
        pool: String,
        /// The nodes.
        ids: String,
        /// How many they are.
        found: usize,
        /// How many are asked for.
        replicas: usize,
    },
    /// The cluster's id is lost, though its quorum was formed.
    #[error(
        "status.clusterId is gone, though status.initialControllers is there, and no pool knows the id either; restore status.clusterId from a backup, or from cluster.id in meta.properties on any of the disks"
    )]
    ClusterIdGone,
    /// The durable list of initial controllers cannot be read.
    #[error(
        "status.initialControllers cannot be read: '{entry}' is not of the form id@host:port:directoryId; restore it from a backup"
    )]
    InitialControllers {
        /// The part that cannot be read.
        entry: String,
    },
    /// Another operator runs this cluster.
    #[error(
        "{object} was made by '{manager}', so Karst leaves this cluster alone; taking over another operator's cluster is not possible yet"
    )]
    OtherOperator {
        /// An object that shows it.
        object: String,
        /// Who made it.
        manager: String,
    },
    /// Something of the cluster cannot be read.
    #[error("{why}")]
    Unreadable {
        /// What, why, and what comes of it.
        why: String,
    },
    /// An authority that cannot be used, so no node can get a certificate.
    #[error("{why}; no node is created before that")]
    AuthorityUnusable {
        /// What is wrong, and what would be right.
        why: String,
    },
    /// A file that nodes need and that cannot be made.
    #[error("{why}; no node is created before that")]
    File {
        /// What is wrong, and what would be right.
        why: String,
    },
    /// A pool that is not valid, in a cluster that runs.
    #[error("pool '{pool}': {why}")]
    InvalidPool {
        /// The pool.
        pool: String,
        /// What is wrong with it.
        why: String,
    },
    /// Pools that are not valid stop the creation of the cluster.
    #[error(
        "the pools {pools} are not valid (each says why in its own status); nothing is created before they are"
    )]
    InvalidPools {
        /// The pools.
        pools: String,
    },
    /// A pool that worked for another cluster, labelled as that of a new one.
    #[error(
        "status.clusterId of pool '{pool}' is {found}, and nothing shows that this is the id of the cluster that the pool is labelled for: it was a pool of {}; set its label strimzi.io/cluster back, or delete the pool and create a new one", last.as_ref().map_or_else(|| "another Kafka cluster".to_owned(), |last| format!("Kafka '{last}'"))
    )]
    RelabelledPool {
        /// The pool.
        pool: String,
        /// The id it has.
        found: String,
        /// The cluster that it worked for.
        last: Option<String>,
    },
    /// Nobody knows whether the version that is asked for can read what newer nodes wrote.
    #[error(
        "spec.kafka.version is {asked}, and {runs}: {why}; nothing is changed before; set spec.kafka.version to a version that can read what is there"
    )]
    VersionUnsafe {
        /// What was asked for.
        asked: &'static str,
        /// What runs.
        runs: String,
        /// What is in the way.
        why: String,
    },
}

impl Problem {
    pub(crate) fn storage(field: &str, name: &str, found: &str, advice: &str) -> Self {
        Self::Storage { field: format!("{field}.{name}"), found: found.to_owned(), advice: advice.to_owned() }
    }

    /// Does it go away by itself when the rest of the resources arrives?
    pub fn is_waiting(&self) -> bool {
        matches!(self, Self::NoPools { .. } | Self::NoController | Self::NoBroker)
    }

    /// The reason of the condition.
    pub fn reason(&self) -> Reason {
        match self {
            missing if missing.is_waiting() => Reason::PoolsMissing,
            Self::OtherOperator { .. } => Reason::OtherOperator,
            Self::ClusterHeld { .. } => Reason::ClusterNotReady,
            Self::MoreDisks { .. } | Self::ClusterIdGone | Self::InitialControllers { .. } => {
                Reason::IdentityUnknown
            }
            Self::ForeignPool { .. } | Self::RelabelledPool { .. } | Self::PoolsDisagree { .. } => {
                Reason::ClusterIdMismatch
            }
            Self::VersionUnsafe { .. } => Reason::VersionHeld,
            Self::AuthorityUnusable { .. } => Reason::CertificateAuthorityUnusable,
            Self::Unreadable { .. } => Reason::Unreadable,
            _ => Reason::InvalidResource,
        }
    }
}
