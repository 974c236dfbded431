//! What is true now: everything that a decision may look at.
//!
//! The views hold only what is looked at. They are filled by the operator's watches, by the simulation, and by
//! tests; nothing here reads a clock, a network or a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use karst_api as api;

use crate::cluster::Roles;
use crate::digest::Digest;
use crate::dynamic::RunningSetting;
use crate::health;
use crate::ids::{DirectoryId, Entropy, NodeId};
use crate::listeners::kept::Serving;
use crate::memory::Memory;
use crate::names::{
    self, BROKER_ROLE_LABEL, CONTROLLER_ROLE_LABEL, ClusterKey, MANAGED_BY, MANAGED_BY_LABEL,
    REVISION_ANNOTATION, node_of_pod,
};
use crate::objects;

/// No storage format has a longer name.
const LONGEST_FORMAT: usize = 40;
/// Twice as long as the longest pause that is remembered.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

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
    /// Who controls it, if that is told and no pod set.
    pub controller: Option<Box<Controller>>,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Was its deletion asked for?
    pub deleting: bool,
    /// When it is to be gone, if its deletion was asked for.
    pub gone_by: Option<Timestamp>,
}

/// Who controls an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// What it is.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Which one.
    pub uid: String,
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
    /// Fingerprint of type, ports, selector and publication: see [`crate::objects::service_digest`].
    pub digest: Option<Digest>,
    /// The port of the Kubernetes nodes that leads to its first port.
    pub node_port: Option<u16>,
    /// The names or addresses of its load balancer.
    pub addresses: Vec<String>,
}

/// An object of which only Karst sets anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlainView {
    /// Who it is.
    pub meta: Meta,
    /// Fingerprint of its spec.
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
    /// What the node is told of a disk that it finds empty.
    pub empty_disk: Option<String>,
    /// Files in it that users asked for: what is to be kept when they can no longer be had.
    pub files: BTreeMap<String, Arc<str>>,
    /// How the node serves clients.
    pub serving: Serving,
}

impl ConfigMapView {
    /// Keeps of a ConfigMap what decisions need. `keep` makes copies of texts that stay.
    pub fn new(meta: Meta, data: Option<&BTreeMap<String, String>>, keep: impl Fn(&str) -> Arc<str>) -> Self {
        let entry = |key: &str| data.and_then(|data| data.get(key));
        let short = |key: &str| entry(key).map(|text| text.chars().take(LONGEST_FORMAT).collect());
        Self {
            meta,
            digest: objects::config_digest(data).ok(),
            storage_format: short("storage.format"),
            empty_disk: short("empty.disk"),
            files: objects::files(data, &keep),
            serving: entry("server.config").map(|text| Serving::read(text, &keep)).unwrap_or_default(),
        }
    }
}

/// A claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimView {
    /// Who it is.
    pub meta: Meta,
    /// How much it asks for.
    pub requested: Option<String>,
    /// Who may use it at once.
    pub access_modes: Option<Vec<String>>,
    /// Its storage class.
    pub class: Option<String>,
    /// Labels that its volume must have.
    pub selector: Option<BTreeMap<String, String>>,
    /// Has it ever got a volume? One that has not holds nothing.
    pub bound: bool,
    /// Since when its volume is larger than the file system on it.
    pub resize_pending: Option<Timestamp>,
    /// How much it really holds.
    pub capacity: Option<String>,
    /// Why it does not grow, when its driver or the kubelet says so.
    pub resize_error: Option<String>,
}

/// A pod that a pod set asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedPod {
    /// The pod as it is to be created, as JSON. Kept as text: it is only ever sent.
    pub json: Arc<str>,
    /// Its fingerprint.
    pub revision: Option<String>,
}

impl WantedPod {
    /// What its node is to do.
    pub(crate) fn roles(&self) -> Option<Roles> {
        let pod: serde_json::Value = serde_json::from_str(&self.json).ok()?;
        let has = |label: &str| pod["metadata"]["labels"][label] == "true";
        Roles::of(has(CONTROLLER_ROLE_LABEL), has(BROKER_ROLE_LABEL))
    }

    /// Is this claim one of its disks?
    pub(crate) fn uses(&self, claim: &str) -> bool {
        self.json.contains(&format!("\"{claim}\""))
    }

    /// The claims that it mounts.
    pub fn claims(&self) -> Vec<String> {
        let pod: serde_json::Value = serde_json::from_str(&self.json).unwrap_or_default();
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        let claims = volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str());
        claims.map(str::to_owned).collect()
    }
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
    /// Since when that is so.
    pub since: Option<Timestamp>,
    /// Was it ever? What never served holds nothing that anybody could miss.
    pub was_ready: bool,
    /// Why its Kafka does not run, when Kubernetes says so.
    pub stuck: Option<String>,
    /// Why a container beside Kafka's does not run, when Kubernetes says so. The pod is not ready then, whatever Kafka does.
    pub sidecar: Option<String>,
    /// Is its Kafka ready, whatever the containers beside it are?
    pub kafka_ready: bool,
    /// The machine that it was given to.
    pub machine: Option<String>,
    /// The address of that machine.
    pub host_ip: Option<String>,
}

impl PodView {
    /// Has it ended for good, so that only a new pod can take its place?
    pub fn is_finished(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// The fingerprint of the description it was made from.
    pub fn revision(&self) -> Option<&str> {
        self.meta.annotations.get(REVISION_ANNOTATION).map(String::as_str)
    }

    /// Was it made from this description?
    pub fn is_current(&self, wanted: &WantedPod) -> bool {
        self.revision() == wanted.revision.as_deref()
    }

    /// Does it serve, and is it to stay?
    pub fn is_serving(&self) -> bool {
        self.ready && !self.meta.deleting
    }

    /// Is its Kafka ready, whether or not all of the pod is?
    pub fn has_ready_kafka(&self) -> bool {
        self.ready || self.kafka_ready
    }

    /// Does its Kafka serve, and is it to stay? A container beside it that fails makes the pod unready, and Kafka none the worse.
    pub fn serves_kafka(&self) -> bool {
        self.has_ready_kafka() && !self.meta.deleting
    }

    /// Does it run the controller role? What the spec asks for may differ while roles change.
    pub fn runs_controller(&self) -> bool {
        self.has_role(CONTROLLER_ROLE_LABEL)
    }

    /// Does it run the broker role?
    pub fn runs_broker(&self) -> bool {
        self.has_role(BROKER_ROLE_LABEL)
    }

    fn has_role(&self, label: &str) -> bool {
        self.meta.labels.get(label).is_some_and(|value| value == "true")
    }
}

/// One voter or observer, as the quorum's leader sees it.
///
/// Node and disk together say who it is: one node can be listed twice, with the disk it lost and the one it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Its node.
    pub node: NodeId,
    /// Its disk; unknown in a static quorum.
    pub directory: Option<DirectoryId>,
    /// Is it the leader, or did it ever fetch from this one?
    pub takes_part: bool,
    /// For how long it has been lacking records that the leader has. `None` when it never had them all.
    pub behind: Option<Duration>,
}

impl Replica {
    /// Does it have what the leader has, within the time that Kafka itself allows?
    pub fn is_caught_up(&self, limit: Duration) -> bool {
        self.behind.is_some_and(|behind| behind < limit)
    }
}

/// What the quorum's leader said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuorumView {
    /// The id of the cluster, where it is told.
    pub cluster_id: Option<String>,
    /// Who leads.
    pub leader: NodeId,
    /// Which term of office this is.
    pub epoch: i32,
    /// For how long this leader has been seen in this term.
    pub stable_for: Duration,
    /// The voters of the newest voter set, committed or not.
    pub voters: Vec<Replica>,
    /// Brokers, controllers that have not joined, and for some minutes those that left.
    pub observers: Vec<Replica>,
    /// Is the set of voters kept in the quorum's own log, so that it can be changed?
    pub is_dynamic: bool,
    /// Controllers that are registered. Those that left stay so.
    pub registered: BTreeSet<NodeId>,
    /// Can what the voter set says still be undone by another leader?
    pub is_committed: bool,
    /// The finalized metadata version's level.
    pub metadata_level: Option<i16>,
    /// All finalized features with their levels.
    pub features: BTreeMap<String, i16>,
}

impl QuorumView {
    /// Is this node among the voters, with whatever disk?
    pub fn has_voter(&self, node: NodeId) -> bool {
        self.voters.iter().any(|voter| voter.node == node)
    }
}

/// One partition that lives on a node which is to go, or to restart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionView {
    /// Its topic, whose name its partitions share.
    pub topic: Arc<str>,
    /// Its number.
    pub index: i32,
    /// Who leads it, if anybody does.
    pub leader: Option<NodeId>,
    /// The nodes that have a copy.
    pub replicas: BTreeSet<NodeId>,
    /// The nodes whose copy is complete.
    pub in_sync: BTreeSet<NodeId>,
    /// Nodes that are not in sync any more, and whose copy has all that was acknowledged (KIP-966).
    pub eligible: BTreeSet<NodeId>,
    /// The nodes that were eligible last, when none is left: the last ones known to have had all that was acknowledged.
    pub last_known: BTreeSet<NodeId>,
    /// The nodes whose copy lies in a directory that failed.
    pub offline: BTreeSet<NodeId>,
    /// How many complete copies a write needs. `None` when Kafka does not say.
    pub min_in_sync: Option<usize>,
}

impl PartitionView {
    /// The nodes whose disks may have what was acknowledged.
    pub fn holders(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.in_sync.iter().chain(&self.eligible).chain(&self.last_known).copied()
    }
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

    /// Why there is none.
    pub(crate) fn silence(&self) -> String {
        match self {
            Self::Silent(why) => why.clone(),
            Self::NotAsked | Self::Known(_) => "it was not asked".to_owned(),
        }
    }

    /// Was it asked?
    pub fn was_asked(&self) -> bool {
        !matches!(self, Self::NotAsked)
    }
}

/// A broker that is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegisteredBroker {
    /// Its node.
    pub node: NodeId,
    /// Registered, but not serving.
    pub fenced: bool,
}

/// The brokers that are registered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registered {
    /// The brokers.
    pub brokers: Vec<RegisteredBroker>,
    /// Are those that do not serve among them? Before Kafka 4.0 they are not.
    pub fenced_known: bool,
}

/// Partitions, and the nodes whose partitions these are all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Partitions {
    /// The nodes that were asked about.
    pub of: BTreeSet<NodeId>,
    /// Every partition with a copy on one of them.
    pub found: Vec<PartitionView>,
}

impl Partitions {
    /// The partitions with a copy on a node.
    pub fn on(&self, node: NodeId) -> impl Iterator<Item = &PartitionView> {
        self.found.iter().filter(move |partition| partition.replicas.contains(&node))
    }

    /// The same for all nodes that were asked about.
    pub(crate) fn by_node(&self) -> PartitionsByNode<'_> {
        let mut by_node = BTreeMap::<NodeId, Vec<&PartitionView>>::new();
        for partition in &self.found {
            for node in partition.replicas.intersection(&self.of) {
                by_node.entry(*node).or_default().push(partition);
            }
        }
        PartitionsByNode(by_node)
    }
}

/// Partitions, found by their nodes. Whoever looks for those of a thousand nodes would go through all of them a thousand times.
#[derive(Debug, Default)]
pub(crate) struct PartitionsByNode<'a>(BTreeMap<NodeId, Vec<&'a PartitionView>>);

impl<'a> PartitionsByNode<'a> {
    /// The partitions with a copy on a node.
    pub(crate) fn on(&self, node: NodeId) -> &[&'a PartitionView] {
        self.0.get(&node).map_or(&[], Vec::as_slice)
    }
}

/// Claims, found by the pods whose they are.
pub(crate) type ClaimsByPod<'a> = BTreeMap<&'a str, Vec<&'a Arc<ClaimView>>>;

/// A directory of a broker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogDirView {
    /// Where it is.
    pub path: String,
    /// Why the broker cannot look into it.
    pub error: Option<String>,
    /// Some of the partitions there, as `topic-0`; copies in the making too.
    pub partitions: Vec<String>,
    /// How many more there are.
    pub more: usize,
}

/// What the launcher of a node says about it, while its Kafka does not serve.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LauncherView {
    /// The node is ready, and Kubernetes may not know yet.
    pub serves: bool,
    /// Kafka was not shut down cleanly, and reads its logs anew. Whoever ends it makes it begin again.
    pub recovery: Option<Recovery>,
    /// The node's disk is empty, and it waits for a controller that can tell whether it lost one.
    pub awaits_leader: bool,
}

/// How far the recovery of a broker's logs is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovery {
    /// So many logs are done, of those that are known to need it.
    pub done: usize,
    /// So many there are. None while Kafka has not said.
    pub all: usize,
}

/// What Kafka said in this pass, and what else was asked in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answers {
    /// About its quorum.
    pub quorum: Answer<QuorumView>,
    /// About partitions on the nodes that are to go, or to restart.
    pub partitions: Answer<Partitions>,
    /// About the brokers that are registered.
    pub registered: Answer<Registered>,
    /// About the directories of brokers that were asked.
    pub log_dirs: BTreeMap<NodeId, Answer<Vec<LogDirView>>>,
    /// About nodes that do not serve, by their launchers.
    pub launchers: BTreeMap<NodeId, Answer<LauncherView>>,
    /// About the label of machines that tells their rack; `None` when they have no such label.
    pub machines: BTreeMap<String, Answer<Option<String>>>,
    /// About the settings that nodes which were asked run with.
    pub settings: BTreeMap<NodeId, Answer<Vec<RunningSetting>>>,
    /// Addresses under which Kafka says its nodes are, and that are no hosts of this cluster's pods.
    pub foreign_hosts: BTreeSet<String>,
}

impl Answers {
    /// The partitions on these nodes. What was not asked about all of them counts as not asked.
    pub fn partitions_of(&self, nodes: &BTreeSet<NodeId>) -> Answer<&Partitions> {
        match &self.partitions {
            Answer::Known(known) if nodes.is_subset(&known.of) => Answer::Known(known),
            Answer::Silent(why) => Answer::Silent(why.clone()),
            _ => Answer::NotAsked,
        }
    }
}

pub use crate::own_certificates::Files;
pub use crate::references::{Reference, Texts};
pub use crate::secrets::{OperatorIdentity, SecretContent, SecretView};

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
    /// Are network policies made?
    pub network_policies: bool,
    /// The operator's own namespace, if it is known: others are kept out.
    pub operator_namespace: Option<String>,
    /// Labels of the operator's namespace, when it is to be known by these and not by its name.
    pub operator_namespace_labels: BTreeMap<String, String>,
    /// May resources ask for what gives pods rights over their Kubernetes node, or services addresses of others?
    pub privileged_templates: bool,
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
    /// Its pod disruption budgets.
    pub budgets: BTreeMap<String, Arc<PlainView>>,
    /// Its network policies.
    pub policies: BTreeMap<String, Arc<PlainView>>,
    /// Its claims.
    pub claims: BTreeMap<String, Arc<ClaimView>>,
    /// Its Secrets.
    pub secrets: BTreeMap<String, Arc<SecretView>>,
    /// ConfigMaps of users that the resource refers to, by name.
    pub references: BTreeMap<String, Reference<Texts>>,
    /// Why pools that carry the cluster's label cannot be read, if some cannot. They are not among those above, and are not gone.
    pub unreadable: Option<String>,
    /// What else carries the cluster's label and cannot be read, in words. By its name it is nothing that Karst makes.
    pub strays: Vec<String>,
    /// What Kafka itself says.
    pub answers: Answers,
    /// What is remembered of earlier passes.
    pub memory: Memory,
    /// Secrets of users that the resource names. One that is not here was not read yet.
    pub referenced: BTreeMap<String, Reference<Arc<Files>>>,
    /// What the operator was told.
    pub settings: Arc<Settings>,
    /// When it is now.
    pub now: Timestamp,
    /// When it is now by the clock of the API server, as far as it tells.
    pub api_server_time: Option<Timestamp>,
    /// Randomness for this pass.
    pub entropy: Entropy,
}

impl World {
    /// The hosts of the pods of which something holds.
    pub fn hosts(&self, is_one: impl Fn(&PodView) -> bool) -> Vec<String> {
        let pods = self.pods.iter().filter(|(_, pod)| is_one(pod));
        pods.map(|(name, _)| self.key.pod_host(name, &self.settings.cluster_domain)).collect()
    }

    /// Are these the pods that there are, and is each of them up, or on its way out, as it was seen?
    pub fn has_just_these_pods<'a>(&self, live: impl IntoIterator<Item = &'a PodView>) -> bool {
        fn state(pod: &PodView) -> (&str, bool, bool, bool, bool) {
            // One that served since, and failed again, holds what it held not before.
            (&pod.meta.uid, pod.ready, pod.kafka_ready, pod.was_ready, pod.meta.deleting)
        }
        let seen: BTreeSet<_> = self.pods.values().map(|pod| state(pod)).collect();
        live.into_iter().map(state).collect::<BTreeSet<_>>() == seen
    }

    /// Are these the claims that there are, and is each of them on its way out, or not, as it was seen?
    pub fn has_just_these_claims<'a>(&self, live: impl IntoIterator<Item = &'a ClaimView>) -> bool {
        let state = |claim: &'a ClaimView| (claim.meta.uid.clone(), claim.meta.deleting);
        let seen: BTreeSet<_> =
            self.claims.values().map(|claim| (claim.meta.uid.clone(), claim.meta.deleting)).collect();
        live.into_iter().map(state).collect::<BTreeSet<_>>() == seen
    }

    /// Is the pod of this node the one that was seen, and not on its way out?
    pub fn still_has_pod_of<'a>(&self, node: NodeId, live: impl IntoIterator<Item = &'a PodView>) -> bool {
        let is_its = |pod: &&PodView| node_of_pod(&pod.meta.name) == Some(node) && !pod.meta.deleting;
        let seen: BTreeSet<_> =
            self.pods.values().map(AsRef::as_ref).filter(is_its).map(|pod| &pod.meta.uid).collect();
        live.into_iter().filter(is_its).any(|pod| seen.contains(&pod.meta.uid))
    }

    /// The controllers that serve.
    pub fn serving_controllers(&self) -> Vec<String> {
        self.hosts(|pod| pod.runs_controller() && pod.serves_kafka())
    }

    /// Is there one?
    pub(crate) fn has_serving_controller(&self) -> bool {
        self.pods.values().any(|pod| pod.runs_controller() && pod.serves_kafka())
    }

    /// The brokers that serve.
    pub fn serving_brokers(&self) -> Vec<String> {
        self.hosts(|pod| pod.runs_broker() && pod.serves_kafka())
    }

    /// The nodes that have all of the metadata, by the word of the quorum's leader in this pass.
    pub(crate) fn current_nodes(&self) -> BTreeSet<NodeId> {
        let limit = health::fetch_timeout(self);
        let quorum = self.answers.quorum.known().into_iter();
        let replicas = quorum.flat_map(|quorum| quorum.voters.iter().chain(&quorum.observers));
        replicas.filter(|replica| replica.is_caught_up(limit)).map(|replica| replica.node).collect()
    }

    /// The brokers that serve, and that have all of the metadata, by the word of the quorum's leader in this pass. A broker that is
    /// cut off from the controllers goes on to tell of partitions as they were. Without that word it is known of none.
    pub fn current_brokers(&self) -> Vec<String> {
        let current = self.current_nodes();
        self.hosts(|pod| {
            let node = names::node_of_pod(&pod.meta.name);
            pod.runs_broker() && pod.serves_kafka() && node.is_some_and(|node| current.contains(&node))
        })
    }

    /// The claims that are labelled as those of pods, by these.
    pub(crate) fn claims_by_pod(&self) -> ClaimsByPod<'_> {
        let mut by_pod = ClaimsByPod::new();
        for claim in self.claims.values() {
            if let Some(pod) = claim.meta.labels.get(names::POD_NAME_LABEL) {
                by_pod.entry(pod).or_default().push(claim);
            }
        }
        by_pod
    }

    /// How long a pause lasts that ends then. Nothing, when that is past, or further away than any pause: the clock was set back since.
    pub(crate) fn time_until(&self, then: Timestamp) -> Duration {
        let pause = Duration::try_from(then.duration_since(self.now)).unwrap_or_default();
        if pause > LONGEST_PAUSE { Duration::ZERO } else { pause }
    }

    /// What the status of the cluster says now.
    pub(crate) fn said(&self) -> impl Iterator<Item = &api::Condition> {
        let status = self.kafka.status.as_ref();
        status.and_then(|status| status.conditions.as_ref()).into_iter().flatten()
    }

    /// How long ago it was. Nothing, when it is still to come.
    pub(crate) fn time_since(&self, then: Timestamp) -> Duration {
        Duration::try_from(self.now.duration_since(then)).unwrap_or_default()
    }
}
