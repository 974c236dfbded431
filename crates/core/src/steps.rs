//! What a pass can ask for: facts to make durable, objects to write and to delete, questions to Kafka, and what to say.
//!
//! Values only. Who decides is [`crate::plan`]; who does it is the operator, or the simulation.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use crate::certificates::{Issue, Ownership};
use crate::claims::Growth;
use crate::digest::Digest;
use crate::dynamic::SettingChange;
use crate::ids::NodeId;
use crate::membership::Change;
use crate::names::POOL_LABEL;
use crate::notice::Notice;
use crate::objects::Object;
use crate::podset::Rendered;
use crate::problem::Problem;
use crate::rolling::Restart;
use crate::status::Progress;
use crate::upgrade::MetadataChange;
use crate::world::Meta;

/// Something that must be durable before anything is built on it.
///
/// It is written under the precondition that the resource has not changed since it was read.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// Which nodes a pool has, and what they do.
    PoolNodes {
        /// The pool.
        pool: String,
        /// The new part of its status.
        status: Value,
    },
    /// Who the cluster is.
    Identity {
        /// The new part of the status.
        status: Value,
        /// Is the cluster formed by this? Then nothing of an earlier one may be left.
        forms: bool,
    },
    /// Which brokers may be registered, where Kafka does not tell of those that are down.
    Registered {
        /// The new part of the status.
        status: Value,
    },
    /// That a pool's deletion waits for its nodes. What was made for one that is gone, nobody could remove.
    PoolProtected {
        /// The pool.
        pool: String,
    },
    /// Which cluster a pool belongs to.
    PoolCluster {
        /// The pool.
        pool: String,
        /// The new part of its status.
        status: Value,
    },
}

/// An object as it was seen. What was decided of it holds only as long as it is that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its name.
    pub name: String,
    /// Which one.
    pub uid: String,
    /// Which of its states.
    pub version: String,
}

impl Seen {
    pub(crate) fn of(meta: &Meta) -> Self {
        Self { name: meta.name.clone(), uid: meta.uid.clone(), version: meta.resource_version.clone() }
    }
}

/// An object that is no longer wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// The settings of a node that is gone.
    ConfigMap(Seen),
    /// A disk of a node that is gone, or that runs without it, and which the user does not want to keep.
    Claim {
        /// The disk.
        claim: Seen,
        /// The pod that used it, and must not do so any more.
        pod: String,
    },
    /// The certificate of a node that is gone.
    Secret(Seen),
    /// A service of a listener, or of a broker, that is gone.
    Service(Seen),
    /// The pod set of a pool that is gone.
    PodSet(Seen),
}

impl Removal {
    /// What is to go.
    pub fn seen(&self) -> &Seen {
        match self {
            Self::Claim { claim, .. } => claim,
            Self::ConfigMap(seen) | Self::Secret(seen) | Self::Service(seen) | Self::PodSet(seen) => seen,
        }
    }
}

/// Whether a pool's deletion waits for its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// It is to wait from now on.
    Add,
    /// Nothing is left to wait for.
    Remove,
}

/// What to do now, and what to say about it.
#[derive(Debug, Default)]
pub struct Plan {
    /// What must be durable first. When there is any, nothing that depends on it is in this plan: after it is
    /// written, plan again.
    pub facts: Vec<Fact>,
    /// Keys and certificates to be made. When there are any, plan again after they are written.
    pub certificates: Vec<Issue>,
    /// Secrets that are to have another owner.
    pub ownerships: Vec<Ownership>,
    /// Objects to write, those that others need first.
    pub objects: Vec<Object>,
    /// Services of listeners to write. That one cannot be written is remembered and told; nothing else waits for it.
    pub services: Vec<Object>,
    /// Objects that do not stay as they are written, by kind and name, and the pods that do not restart into them. Nothing else waits
    /// for them.
    pub contested: BTreeMap<String, Vec<String>>,
    /// Claims to grow. That one cannot is remembered and told; nothing else waits for it.
    pub growths: Vec<Growth>,
    /// Objects to delete.
    pub removals: Vec<Removal>,
    /// Pods to replace.
    pub restarts: Vec<Restart>,
    /// Claims that a pod has and its successor does not, by the uid of the pod, and that were just seen empty: name and uid. It is
    /// written on them when the pod has been told to stop, and only then: before, it could go on to fill them.
    pub emptied: BTreeMap<String, Vec<(String, String)>>,
    /// Do the objects make voters of nodes whose disks are taken for lost, or let nodes go that have records?
    pub objects_rely_on_pods: bool,
    /// Pods that a pod set's annotation asks to restart: they are marked, then the annotation goes.
    pub marks: Vec<Mark>,
    /// Pods that are to know which rack they are in.
    pub racked: Vec<Racked>,
    /// Annotations of the `Kafka` resource that have served their purpose.
    pub forgotten: Vec<&'static str>,
    /// What Kafka is to do.
    pub deeds: Vec<Deed>,
    /// Nodes that run with the settings that are wanted, by their pods. Remember it, and they are not asked again; forget it all when
    /// Kafka is told to change a setting.
    pub checked_settings: BTreeMap<String, Digest>,
    /// The pod sets as they were rendered; nothing, when this pass did not come that far.
    pub rendered: Option<Rendered>,
    /// Pools whose deletion is to wait from now on, or no longer.
    pub protections: BTreeMap<String, Protection>,
    /// What to ask Kafka, because its answer changes this plan.
    pub questions: Questions,
    /// A merge patch of the cluster's status.
    pub status: Option<Value>,
    /// Merge patches of the pools' statuses.
    pub pool_statuses: BTreeMap<String, Value>,
    /// Why the cluster is not carried out.
    pub problems: Vec<Problem>,
    /// What is done otherwise than asked.
    pub notices: Vec<Notice>,
    /// How far the cluster is.
    pub progress: Option<Progress>,
    /// When to look again, if nothing happens before.
    pub look_again: Option<Duration>,
}

/// Something that Kafka is asked to do, once for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// To change its quorum.
    Change(Change),
    /// To forget a broker that is gone.
    Unregister(NodeId),
    /// To go to another metadata version.
    Metadata(MetadataChange),
    /// To change a setting while it runs.
    Configure(SettingChange),
}

/// All pods of a pod set are to restart, because its annotation says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The pod set.
    pub pod_set: String,
    /// Its pods: name and uid.
    pub pods: Vec<(String, String)>,
}

/// A pod, and the rack of its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Racked {
    /// The pod.
    pub pod: String,
    /// Which one.
    pub uid: String,
    /// The rack.
    pub rack: String,
}

/// What to ask Kafka, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Questions {
    /// Ask the controllers at these hosts about the quorum.
    pub quorum: Vec<String>,
    /// Ask which brokers are registered.
    pub registered: bool,
    /// Ask for the partitions on these nodes.
    pub partitions_of: BTreeSet<NodeId>,
    /// Ask these brokers what is in their directories.
    pub log_dirs_of: BTreeSet<NodeId>,
    /// Ask the launchers of these nodes, at these hosts, what their nodes are doing.
    pub launchers: BTreeMap<NodeId, String>,
    /// Ask these brokers for the settings they run with.
    pub settings_of_brokers: BTreeSet<NodeId>,
    /// Ask these controllers for the settings they run with.
    pub settings_of_controllers: BTreeSet<NodeId>,
    /// The settings that are of interest.
    pub settings: Vec<&'static str>,
    /// Where brokers can be asked.
    pub brokers: Vec<String>,
    /// Where brokers can be asked whose view of the metadata is not old: those that are asked for partitions.
    pub current_brokers: Vec<String>,
    /// Read a label of these machines: the machine, then the label.
    pub machines: BTreeMap<String, String>,
    /// Where controllers can be asked.
    pub controllers: Vec<String>,
}

impl Plan {
    /// The change of the quorum, if there is one.
    pub fn change(&self) -> Option<&Change> {
        self.deeds.iter().find_map(|deed| match deed {
            Deed::Change(change) => Some(change),
            _ => None,
        })
    }

    /// Is all written that others wait for?
    pub(crate) fn is_written(&self) -> bool {
        let mut unwritten = self.objects.iter().chain(&self.services);
        unwritten.all(|object| self.contested.contains_key(&object.describe()))
    }

    /// The pools for whose nodes something is made that may not be there yet. Look first whether they still exist: what belongs to
    /// a pool that is gone stays for good. One that exists is protected, and does not go before all this was seen.
    pub fn begins(&self) -> BTreeSet<&str> {
        let objects = self.objects.iter().chain(&self.services).map(Object::meta);
        let new = objects.filter(|meta| meta.resource_version.is_none());
        let made = new.filter_map(|meta| meta.labels.as_ref()?.get(POOL_LABEL).map(String::as_str));
        made.chain(self.certificates.iter().filter_map(Issue::pool)).collect()
    }

    /// Does it do something that is right only if those are up who were seen to be? Look at the pods first: a view may be old.
    pub fn relies_on_pods(&self) -> bool {
        self.objects_rely_on_pods || !self.restarts.is_empty()
    }

    /// Leaves that out.
    pub fn rely_on_no_pods(&mut self) {
        self.restarts.clear();
        if self.objects_rely_on_pods {
            self.objects.clear();
        }
    }

    /// Looks again at this time at the latest.
    pub(crate) fn look_soon(&mut self, pause: Option<Duration>) {
        self.look_again = self.look_again.into_iter().chain(pause).min();
    }
}

impl Questions {
    /// Adds nodes whose partitions are to be asked for. Without a broker that serves there is nobody to ask, and that is
    /// what will be answered.
    pub(crate) fn ask_partitions(&mut self, nodes: BTreeSet<NodeId>, brokers: impl FnOnce() -> Vec<String>) {
        if !nodes.is_empty() {
            self.partitions_of.extend(nodes);
            self.current_brokers = brokers();
        }
    }

    /// Adds brokers that are to be asked about their directories.
    pub(crate) fn ask_log_dirs(&mut self, nodes: BTreeSet<NodeId>, brokers: impl FnOnce() -> Vec<String>) {
        if !nodes.is_empty() {
            self.log_dirs_of.extend(nodes);
            self.brokers = brokers();
        }
    }

    /// Is there nothing to ask?
    pub fn is_empty(&self) -> bool {
        self.quorum.is_empty()
            && self.partitions_of.is_empty()
            && self.log_dirs_of.is_empty()
            && self.launchers.is_empty()
            && self.machines.is_empty()
            && self.settings_of_brokers.is_empty()
            && self.settings_of_controllers.is_empty()
            && !self.registered
    }
}
