//! What is true now: everything that a decision may look at.
//!
//! The views hold only what is looked at. They are filled by the operator's watches, by the simulation, and by
//! tests; nothing here reads a clock, a network or a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use karst_api as api;

use crate::digest::Digest;
use crate::ids::{DirectoryId, Entropy, NodeId};
use crate::names::{ClusterKey, MANAGED_BY, MANAGED_BY_LABEL};

/// Who an object is, without the parts nobody looks at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// Its name.
    pub name: String,
    /// What makes it different from an earlier object of the same name.
    pub uid: String,
    /// Which of its states this is.
    pub resource_version: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// The uids of its owners.
    pub owners: Vec<String>,
    /// Was its deletion asked for?
    pub deleting: bool,
}

impl Meta {
    /// Who made it, when that was not Karst.
    pub fn other_manager(&self) -> Option<&str> {
        let manager = self.labels.get(MANAGED_BY_LABEL).map_or("an unknown operator", String::as_str);
        (manager != MANAGED_BY).then_some(manager)
    }
}

/// A service account. Only its existence and labels matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceAccountView {
    /// Who it is.
    pub meta: Meta,
}

/// A service, as far as Karst sets it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceView {
    /// Who it is.
    pub meta: Meta,
    /// Fingerprint of ports, selector and publication: see [`crate::objects::service_digest`].
    pub digest: Option<Digest>,
}

/// A ConfigMap of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigMapView {
    /// Who it is.
    pub meta: Meta,
    /// Fingerprint of its data.
    pub digest: Option<Digest>,
    /// How the node formats empty disks.
    pub storage_format: Option<String>,
}

/// A claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimView {
    /// Who it is.
    pub meta: Meta,
}

/// A pod that a pod set asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedPod {
    /// The pod as it is to be created, as JSON. Kept as text: it is only ever sent.
    pub json: Arc<str>,
    /// Its fingerprint.
    pub revision: Option<String>,
}

/// A pod set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodSetView {
    /// Who it is.
    pub meta: Meta,
    /// Which of its specs this is.
    pub generation: i64,
    /// The pods it asks for, by name.
    pub pods: BTreeMap<String, WantedPod>,
    /// Fingerprint of its spec.
    pub digest: Option<Digest>,
    /// What it reports.
    pub status: Option<api::StrimziPodSetStatus>,
}

/// A pod of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodView {
    /// Who it is.
    pub meta: Meta,
    /// `Pending`, `Running`, ...
    pub phase: String,
    /// Does it say it is useful?
    pub ready: bool,
    /// Why it does not run, when Kubernetes says so.
    pub stuck: Option<String>,
}

impl PodView {
    /// Has it ended for good, so that only a new pod can take its place?
    pub fn is_finished(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Was it made from this description?
    pub fn is_current(&self, wanted: &WantedPod) -> bool {
        self.meta.annotations.get(crate::names::REVISION_ANNOTATION) == wanted.revision.as_ref()
    }

    /// Does it serve, and is it to stay?
    pub fn is_serving(&self) -> bool {
        self.ready && !self.meta.deleting
    }
}

/// One voter or observer, as the quorum's leader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Its node.
    pub node: NodeId,
    /// Its disk; unknown in a static quorum.
    pub directory: Option<DirectoryId>,
    /// Is it the leader, or did it ever fetch from this one?
    pub takes_part: bool,
}

/// What the quorum's leader said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuorumView {
    /// The voters.
    pub voters: Vec<Replica>,
    /// The finalized metadata version's level.
    pub metadata_level: Option<i16>,
}

/// One partition that lives on a node which is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionView {
    /// Its topic.
    pub topic: String,
    /// Its number.
    pub index: i32,
    /// The nodes that have a copy.
    pub replicas: BTreeSet<NodeId>,
    /// The nodes whose copy is complete.
    pub in_sync: BTreeSet<NodeId>,
    /// How many complete copies a write needs.
    pub min_in_sync: usize,
}

impl fmt::Display for PartitionView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.index)
    }
}

/// An answer of Kafka. That there is none is an answer too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Answer<T> {
    /// Nobody asked in this pass.
    #[default]
    NotAsked,
    /// It did not answer in time, or not sensibly.
    Silent(String),
    /// It answered.
    Known(T),
}

impl<T> Answer<T> {
    /// The answer, if there is one.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(answer) => Some(answer),
            _ => None,
        }
    }

    /// Was it asked?
    pub fn was_asked(&self) -> bool {
        !matches!(self, Self::NotAsked)
    }
}

/// What Kafka said in this pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answers {
    /// About its quorum.
    pub quorum: Answer<QuorumView>,
    /// About partitions on the nodes that are to go.
    pub partitions: Answer<Vec<PartitionView>>,
}

/// What the operator was told at its start. The same for all clusters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Version of the operator.
    pub operator_version: String,
    /// Image with the launcher.
    pub node_image: String,
    /// Images of Kafka by version, where they are not the official ones.
    pub kafka_images: BTreeMap<String, String>,
    /// Pull policy of all images, when not Kubernetes' own.
    pub image_pull_policy: Option<String>,
    /// Names of pull secrets.
    pub image_pull_secrets: Vec<String>,
    /// Domain of the Kubernetes cluster.
    pub cluster_domain: String,
}

impl Settings {
    /// The image of a Kafka version.
    pub fn kafka_image(&self, version: &str) -> String {
        self.kafka_images.get(version).cloned().unwrap_or_else(|| format!("docker.io/apache/kafka:{version}"))
    }
}

/// Everything known about one cluster.
#[derive(Debug, Clone)]
pub struct World {
    /// Which cluster.
    pub key: ClusterKey,
    /// The resource that asks for it.
    pub kafka: Arc<api::Kafka>,
    /// The pools that are labelled as its own, by name.
    pub pools: BTreeMap<String, Arc<api::KafkaNodePool>>,
    /// Its pod sets.
    pub pod_sets: BTreeMap<String, Arc<PodSetView>>,
    /// Names that its pod sets would have, and that pod sets of other clusters have already.
    pub taken: BTreeMap<String, ClusterKey>,
    /// Its pods.
    pub pods: BTreeMap<String, Arc<PodView>>,
    /// Its ConfigMaps.
    pub config_maps: BTreeMap<String, Arc<ConfigMapView>>,
    /// Its services.
    pub services: BTreeMap<String, Arc<ServiceView>>,
    /// Its service accounts.
    pub service_accounts: BTreeMap<String, Arc<ServiceAccountView>>,
    /// Its claims.
    pub claims: BTreeMap<String, Arc<ClaimView>>,
    /// What Kafka itself says.
    pub answers: Answers,
    /// What the operator was told.
    pub settings: Arc<Settings>,
    /// When it is now.
    pub now: Timestamp,
    /// Randomness for this pass.
    pub entropy: Entropy,
}
