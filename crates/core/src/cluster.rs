//! A cluster that can be carried out: everything in it was checked, and later steps need not check again.
//!
//! Only [`crate::resolve`] makes one.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use karst_api as api;

use crate::authorization::Authorization;
use crate::ids::NodeId;
use crate::listeners::{self, Authentication, ClientListener};
use crate::names::ClusterKey;
use crate::quantity::Quantity;
use crate::quorum::CONTROLLER_PORT;
use crate::rack::Rack;
use crate::references::Wish;
use crate::storage::Storage;
use crate::template::Template;
use crate::versions::KafkaVersion;

/// What the nodes of a pool do. At least one of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Roles {
    /// Vote.
    Controller,
    /// Serve.
    Broker,
    /// Both.
    Combined,
}

impl Roles {
    /// Reads a list of roles; an empty one is none.
    pub(crate) fn parse(roles: &[api::Role]) -> Option<Self> {
        Self::of(roles.contains(&api::Role::Controller), roles.contains(&api::Role::Broker))
    }

    /// Those of a node that votes, that serves, or both.
    pub(crate) fn of(votes: bool, serves: bool) -> Option<Self> {
        match (votes, serves) {
            (true, true) => Some(Self::Combined),
            (true, false) => Some(Self::Controller),
            (false, true) => Some(Self::Broker),
            (false, false) => None,
        }
    }

    /// Do they vote?
    pub fn has_controller(self) -> bool {
        self != Self::Broker
    }

    /// Do they serve?
    pub fn has_broker(self) -> bool {
        self != Self::Controller
    }

    /// The same, and vote.
    pub(crate) fn with_controller(self) -> Self {
        if self == Self::Broker { Self::Combined } else { self }
    }

    /// The same, and serve.
    pub(crate) fn with_broker(self) -> Self {
        if self == Self::Controller { Self::Combined } else { self }
    }

    /// As the status lists them.
    pub fn to_api(self) -> Vec<api::Role> {
        match self {
            Self::Controller => vec![api::Role::Controller],
            Self::Broker => vec![api::Role::Broker],
            Self::Combined => vec![api::Role::Controller, api::Role::Broker],
        }
    }
}

impl fmt::Display for Roles {
    /// As Kafka's `process.roles` wants them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Controller => "controller",
            Self::Broker => "broker",
            Self::Combined => "broker,controller",
        })
    }
}

/// A pool that can be carried out.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// What its nodes do.
    pub roles: Roles,
    /// Their disks.
    pub storage: Storage,
    /// The storage as it was written, for the pod set's annotation.
    pub storage_written: api::Storage,
    /// CPU and memory.
    pub resources: Option<api::ResourceRequirements>,
    /// What the JVM is started with.
    pub jvm_options: Option<api::JvmOptions>,
    /// What users add to its objects.
    pub template: Template,
    /// The nodes that are to run.
    pub nodes: Vec<NodeId>,
    /// How many of them it asks for.
    pub wanted: usize,
    /// Those of them that leave the quorum, and then go, or stop being controllers.
    pub leaving: BTreeSet<NodeId>,
    /// The ids that belong to the pool: those of its nodes, and of nodes that are still on their way out.
    pub ids: Vec<NodeId>,
    /// Was its deletion asked for?
    pub is_going: bool,
    /// Is there a resource for it, which has a status to keep?
    pub has_resource: bool,
}

impl Pool {
    /// What a container may use of memory, when that is limited.
    pub fn memory(&self) -> Option<Quantity> {
        let resources = self.resources.as_ref()?;
        let of = |amounts: &Option<BTreeMap<String, api::Quantity>>| {
            amounts.as_ref()?.get("memory")?.to_string().parse().ok()
        };
        of(&resources.limits).or_else(|| of(&resources.requests))
    }
}

/// One node.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    /// Its id.
    pub id: NodeId,
    /// Its pool.
    pub pool: &'a Pool,
}

/// A node of a pool that is refused. It runs on as it is, and the rest of the cluster has to go on counting with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its id.
    pub id: NodeId,
    /// Its pod.
    pub pod: String,
    /// What it does.
    pub roles: Roles,
}

/// A cluster that can be carried out.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// Where it is.
    pub key: ClusterKey,
    /// The Kafka version its nodes run.
    pub version: &'static KafkaVersion,
    /// The metadata version it is formatted with.
    pub metadata_version: &'static str,
    /// The image of Kafka.
    pub image: String,
    /// What clients connect to.
    pub listeners: Vec<ClientListener>,
    /// Those of them that are served otherwise than asked for until they can be, by name.
    pub kept_listeners: BTreeMap<String, listeners::kept::Kept>,
    /// Who may do what. Everybody everything, when there is none.
    pub authorization: Option<Authorization>,
    /// The pools, by name.
    pub pools: Vec<Pool>,
    /// The nodes of pools that are refused.
    pub kept: Vec<Kept>,
    /// Domain of the Kubernetes cluster.
    pub domain: String,
    /// What its nodes log.
    pub logging: Wish,
    /// How they tell about themselves in numbers, if they do.
    pub metrics: Option<Wish>,
    /// Where brokers learn which rack they are in.
    pub rack: Option<Rack>,
    /// Nodes that are not made yet, and may not be for long: nobody waits for them.
    pub arriving: BTreeSet<NodeId>,
}

impl Cluster {
    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        self.pools.iter().flat_map(|pool| pool.nodes.iter().map(move |id| Node { id: *id, pool }))
    }

    /// The nodes with the role controller, in the order of their ids.
    pub fn controllers(&self) -> Vec<Node<'_>> {
        let mut controllers: Vec<_> = self.nodes().filter(|node| node.pool.roles.has_controller()).collect();
        controllers.sort_by_key(|node| node.id);
        controllers
    }

    /// Those of the controllers that are to vote.
    pub fn voters(&self) -> impl Iterator<Item = Node<'_>> {
        self.controllers().into_iter().filter(|node| !node.pool.leaving.contains(&node.id))
    }

    /// The voters of a static quorum, as every node's settings name them.
    pub fn static_voters(&self) -> String {
        let known = self.controllers().into_iter().map(|node| (node.id, self.host(node)));
        let kept = self.kept_controllers().map(|kept| (kept.id, self.key.pod_host(&kept.pod, &self.domain)));
        // Of two that claim the same id the last one counts: a node of a pool that was read is the real one.
        let voters: BTreeMap<_, _> = kept.chain(known).collect();
        let voters = voters.iter().map(|(id, host)| format!("{id}@{host}:{CONTROLLER_PORT}"));
        voters.collect::<Vec<_>>().join(",")
    }

    /// Controllers of pools that are refused.
    pub fn kept_controllers(&self) -> impl Iterator<Item = &Kept> {
        self.kept.iter().filter(|kept| kept.roles.has_controller())
    }

    /// How a listener is served until it can be as asked for.
    pub(crate) fn kept_listener(&self, listener: &ClientListener) -> listeners::kept::Kept {
        self.kept_listeners.get(&listener.name).copied().unwrap_or_default()
    }

    /// A listener as it is served until it can be as asked for.
    pub(crate) fn as_kept<'a>(&self, listener: &'a ClientListener) -> Cow<'a, ClientListener> {
        let kept = self.kept_listener(listener);
        if kept == listeners::kept::Kept::default() {
            return Cow::Borrowed(listener);
        }
        let mut listener = listener.clone();
        listener.reach = kept.reach.unwrap_or(listener.reach);
        if kept.shows_brokers {
            listener.configuration.broker_cert_chain_and_key = None;
        }
        Cow::Owned(listener)
    }

    /// Do clients of a listener have to show certificates?
    pub fn asks_for_certificates(&self) -> bool {
        self.listeners.iter().any(|listener| listener.authentication == Authentication::Certificate)
    }

    /// How many nodes serve.
    pub fn broker_count(&self) -> usize {
        self.nodes().filter(|node| node.pool.roles.has_broker()).count()
    }

    /// A node's pod.
    pub fn pod_name(&self, node: Node<'_>) -> String {
        self.key.pod(&node.pool.name, node.id)
    }

    /// A node's host name. For controllers it is stored in the quorum.
    pub fn host(&self, node: Node<'_>) -> String {
        self.key.pod_host(&self.pod_name(node), &self.domain)
    }
}
