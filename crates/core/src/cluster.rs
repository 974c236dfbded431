//! A cluster that can be carried out: everything in it was checked, and later steps need not check again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use karst_api as api;

use crate::ids::NodeId;
use crate::listeners::{self, ClientListener};
use crate::names::{self, ClusterKey, LONGEST_NAME, NODE_POOLS_ANNOTATION, STORAGE_ANNOTATION};
use crate::node_ids;
use crate::problem::{Notice, Problem};
use crate::quantity::Quantity;
use crate::quorum::{InitialController, InitialControllers};
use crate::storage::Storage;
use crate::versions::{self, KafkaVersion};
use crate::world::{PodSetView, World};

/// The name of the pool that stands for a cluster without pools.
const VIRTUAL_POOL: &str = "kafka";

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
    fn parse(roles: &[api::Role]) -> Option<Self> {
        match (roles.contains(&api::Role::Controller), roles.contains(&api::Role::Broker)) {
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
    /// Its nodes: those that exist, and those that are to be.
    pub nodes: Vec<NodeId>,
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
    /// The pools, by name.
    pub pools: Vec<Pool>,
    /// Domain of the Kubernetes cluster.
    pub domain: String,
}

impl Cluster {
    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        self.pools.iter().flat_map(|pool| pool.nodes.iter().map(move |id| Node { id: *id, pool }))
    }

    /// The nodes that vote, in the order of their ids.
    pub fn controllers(&self) -> Vec<Node<'_>> {
        let mut controllers: Vec<_> = self.nodes().filter(|node| node.pool.roles.has_controller()).collect();
        controllers.sort_by_key(|node| node.id);
        controllers
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

/// What came of reading the resources.
#[derive(Debug, Default)]
pub struct Resolved {
    /// The cluster, when it can be carried out.
    pub cluster: Option<Cluster>,
    /// Why it cannot, in all respects.
    pub problems: Vec<Problem>,
    /// Why a pool cannot.
    pub pool_problems: BTreeMap<String, Vec<Problem>>,
    /// What is done otherwise than asked.
    pub notices: Vec<Notice>,
}

/// A pool as it was asked for, real or virtual.
struct Wanted<'a> {
    name: &'a str,
    replicas: i32,
    roles: &'a [api::Role],
    storage: &'a api::Storage,
    storage_field: &'static str,
    resources: Option<&'a api::ResourceRequirements>,
    jvm_options: Option<&'a api::JvmOptions>,
    status: Option<&'a api::KafkaNodePoolStatus>,
    has_resource: bool,
}

/// Reads the resources, checks them, and holds what must not change while it runs.
pub fn resolve(world: &World) -> Resolved {
    let mut resolved = Resolved::default();
    let spec = &world.kafka.spec.kafka;
    resolved.problems.extend(name_problems(&world.key));
    let version = find_version(spec, &mut resolved.problems);
    let metadata_version = version.and_then(|version| find_metadata(spec, version, &mut resolved.problems));
    if spec.authorization.is_some() {
        resolved.problems.push(Problem::AuthorizationUnsupported);
    }
    let listeners = listeners::resolve(&spec.listeners);
    resolved.problems.extend(listeners.problems);
    resolved.notices.extend(listeners.notices);

    let pools = resolve_pools(world, &mut resolved);
    check_cluster(world, &pools, &mut resolved);
    if let (Some(version), Some(metadata_version), true) =
        (version, metadata_version, resolved.problems.is_empty())
    {
        resolved.cluster = Some(Cluster {
            key: world.key.clone(),
            version,
            metadata_version,
            image: spec.image.clone().unwrap_or_else(|| world.settings.kafka_image(version.version)),
            listeners: listeners.served,
            pools,
            domain: world.settings.cluster_domain.clone(),
        });
    }
    resolved
}

fn name_problems(key: &ClusterKey) -> Vec<Problem> {
    let mut problems = Vec::new();
    let starts_with_letter = key.name.starts_with(|c: char| c.is_ascii_lowercase());
    if !names::is_host_label(&key.name) || !starts_with_letter {
        problems.push(Problem::BadName { name: key.name.clone() });
    }
    problems.extend(too_long(&key.name, key.bootstrap_service()));
    problems
}

fn too_long(name: &str, made: String) -> Option<Problem> {
    (made.len() > LONGEST_NAME).then(|| Problem::NameTooLong { name: name.to_owned(), made })
}

fn find_version(spec: &api::KafkaClusterSpec, problems: &mut Vec<Problem>) -> Option<&'static KafkaVersion> {
    let wanted = spec.version.as_deref().unwrap_or(versions::DEFAULT);
    let found = versions::find(wanted);
    if found.is_none() {
        problems.push(Problem::UnknownVersion { version: wanted.to_owned() });
    }
    found
}

fn find_metadata(
    spec: &api::KafkaClusterSpec,
    kafka: &'static KafkaVersion,
    problems: &mut Vec<Problem>,
) -> Option<&'static str> {
    let Some(wanted) = spec.metadata_version.as_deref() else { return Some(kafka.metadata) };
    let found = versions::metadata_in_full(wanted).filter(|full| versions::can_run(kafka, full));
    if found.is_none() {
        problems.push(Problem::UnknownMetadataVersion {
            metadata: wanted.to_owned(),
            kafka: kafka.version,
            newest: kafka.metadata,
        });
    }
    found
}

/// Are the pools that make up the cluster `KafkaNodePool` resources?
fn uses_pools(kafka: &api::Kafka) -> bool {
    match kafka.metadata.annotations.as_ref().and_then(|all| all.get(NODE_POOLS_ANNOTATION)) {
        Some(value) => value == "enabled",
        None => kafka.spec.kafka.replicas.is_none(),
    }
}

/// The names of the pools that make up a cluster.
pub fn pool_names<'a>(
    kafka: &api::Kafka,
    pools: &'a BTreeMap<String, Arc<api::KafkaNodePool>>,
) -> Vec<&'a str> {
    if uses_pools(kafka) { pools.keys().map(String::as_str).collect() } else { vec![VIRTUAL_POOL] }
}

fn resolve_pools(world: &World, resolved: &mut Resolved) -> Vec<Pool> {
    let spec = &world.kafka.spec.kafka;
    let wanted: Vec<Wanted<'_>> = if uses_pools(&world.kafka) {
        world.pools.iter().map(|(name, pool)| real_pool(name, pool, spec)).collect()
    } else {
        if !world.pools.is_empty() {
            resolved.notices.push(Notice::PoolsNotUsed { pools: world.pools.keys().cloned().collect() });
        }
        if spec.storage.is_none() {
            resolved.problems.push(Problem::NoStorage);
        }
        virtual_pool(spec).into_iter().collect()
    };
    if wanted.is_empty() && resolved.problems.is_empty() {
        resolved.problems.push(Problem::NoPools { cluster: world.key.name.clone() });
    }
    report_vanished_pools(world, &wanted, resolved);

    let mut taken = taken_ids(world, &wanted, resolved);
    let mut pools = Vec::new();
    for wanted in wanted {
        match resolve_pool(world, &wanted, &mut taken, &mut resolved.notices) {
            Ok(pool) => pools.push(pool),
            Err(problems) => {
                resolved.pool_problems.insert(wanted.name.to_owned(), problems);
            }
        }
    }
    pools
}

fn real_pool<'a>(
    name: &'a str,
    pool: &'a api::KafkaNodePool,
    cluster: &'a api::KafkaClusterSpec,
) -> Wanted<'a> {
    Wanted {
        name,
        replicas: pool.spec.replicas,
        roles: &pool.spec.roles,
        storage: &pool.spec.storage,
        storage_field: "spec.storage",
        resources: pool.spec.resources.as_ref().or(cluster.resources.as_ref()),
        jvm_options: pool.spec.jvm_options.as_ref().or(cluster.jvm_options.as_ref()),
        status: pool.status.as_ref(),
        has_resource: true,
    }
}

fn virtual_pool(spec: &api::KafkaClusterSpec) -> Option<Wanted<'_>> {
    Some(Wanted {
        name: VIRTUAL_POOL,
        replicas: spec.replicas.unwrap_or_default(),
        roles: &[api::Role::Controller, api::Role::Broker],
        storage: spec.storage.as_ref()?,
        storage_field: "spec.kafka.storage",
        resources: spec.resources.as_ref(),
        jvm_options: spec.jvm_options.as_ref(),
        status: None,
        has_resource: false,
    })
}

fn report_vanished_pools(world: &World, wanted: &[Wanted<'_>], resolved: &mut Resolved) {
    let known: BTreeSet<String> = wanted.iter().map(|pool| world.key.pod_set(pool.name)).collect();
    let gone = world.pod_sets.keys().filter(|pod_set| !known.contains(*pod_set));
    resolved.notices.extend(gone.map(|pod_set| Notice::PoolGone { pod_set: pod_set.clone() }));
}

/// The ids a pool's nodes have: what its status says, or what its pod set runs, or (the virtual pool has neither
/// when its cluster is being made) what the quorum was formed with.
fn current_ids(world: &World, pool: &Wanted<'_>) -> Vec<NodeId> {
    if let Some(ids) = pool.status.and_then(|status| status.node_ids.as_ref()) {
        return ids.iter().copied().map(NodeId).collect();
    }
    match running(world, pool.name) {
        Some(set) => pod_ids(set).collect(),
        None => founders(world, pool.name),
    }
}

/// The initial controllers that are nodes of a pool.
fn founders(world: &World, pool: &str) -> Vec<NodeId> {
    let list = world.kafka.status.as_ref().and_then(|status| status.initial_controllers.as_deref());
    let list = list.and_then(|list| InitialControllers::parse(list).ok());
    let is_of_pool = |controller: &InitialController| {
        let host = world.key.pod_host(&world.key.pod(pool, controller.node), &world.settings.cluster_domain);
        controller.host == host
    };
    list.iter().flat_map(InitialControllers::iter).filter(|one| is_of_pool(one)).map(|one| one.node).collect()
}

fn running<'a>(world: &'a World, pool: &str) -> Option<&'a PodSetView> {
    world.pod_sets.get(&world.key.pod_set(pool)).map(AsRef::as_ref)
}

fn pod_ids(set: &PodSetView) -> impl Iterator<Item = NodeId> + '_ {
    set.pods.keys().filter_map(|pod| names::node_of_pod(pod))
}

/// Every id that anything might still use.
fn taken_ids(world: &World, wanted: &[Wanted<'_>], resolved: &mut Resolved) -> BTreeSet<NodeId> {
    let mut owners: BTreeMap<NodeId, &str> = BTreeMap::new();
    for pool in wanted {
        for id in current_ids(world, pool) {
            if let Some(one) = owners.insert(id, pool.name) {
                resolved.problems.push(Problem::NodeIdTwice {
                    node: id,
                    one: one.to_owned(),
                    other: pool.name.to_owned(),
                    pod: world.key.pod(pool.name, id),
                });
            }
        }
    }
    let in_pod_sets = world.pod_sets.values().flat_map(|set| pod_ids(set));
    let in_pods = world.pods.keys().filter_map(|pod| names::node_of_pod(pod));
    let in_claims = world.claims.keys().filter_map(|claim| names::node_of_pod(claim));
    let in_other_pools = world
        .pools
        .values()
        .filter_map(|pool| pool.status.as_ref()?.node_ids.as_ref())
        .flatten()
        .copied()
        .map(NodeId);
    owners.into_keys().chain(in_pod_sets).chain(in_pods).chain(in_claims).chain(in_other_pools).collect()
}

fn resolve_pool(
    world: &World,
    wanted: &Wanted<'_>,
    taken: &mut BTreeSet<NodeId>,
    notices: &mut Vec<Notice>,
) -> Result<Pool, Vec<Problem>> {
    let mut problems = pool_name_problems(world, wanted);
    problems.extend(resource_problems(wanted.resources));
    problems.extend(cluster_id_problem(world, wanted));
    let current = current_ids(world, wanted);
    let roles = held_roles(world, wanted, notices);
    if roles.is_none() {
        problems.push(Problem::NoRoles);
    }
    let written = held_storage(world, wanted, notices);
    let storage =
        Storage::parse(wanted.storage_field, &written).map_err(|problem| problems.push(problem)).ok();
    let replicas = usize::try_from(wanted.replicas)
        .map_err(|_| problems.push(Problem::Replicas { replicas: wanted.replicas }))
        .ok();
    let (Some(roles), Some(storage), Some(replicas), true) = (roles, storage, replicas, problems.is_empty())
    else {
        return Err(problems);
    };
    let nodes = held_nodes(world, wanted, roles, replicas, &current, taken, notices);
    Ok(Pool {
        name: wanted.name.to_owned(),
        roles,
        storage,
        storage_written: written,
        resources: wanted.resources.cloned(),
        jvm_options: wanted.jvm_options.cloned(),
        nodes,
        has_resource: wanted.has_resource,
    })
}

fn pool_name_problems(world: &World, wanted: &Wanted<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    if !names::is_host_label(wanted.name) {
        problems.push(Problem::BadName { name: wanted.name.to_owned() });
    }
    let pod_set = world.key.pod_set(wanted.name);
    if let Some(other) = world.taken.get(&pod_set) {
        let (name, other) = (wanted.name.to_owned(), other.name.clone());
        problems.push(Problem::NameTaken { name, made: pod_set, other });
    }
    // Room for ids up to 9999, so that a pool does not stop growing because of its name.
    problems.extend(too_long(wanted.name, world.key.pod(wanted.name, NodeId(9999))));
    problems
}

fn resource_problems(resources: Option<&api::ResourceRequirements>) -> Vec<Problem> {
    let Some(resources) = resources else { return Vec::new() };
    let named = [("limits", &resources.limits), ("requests", &resources.requests)];
    let amounts =
        named.iter().flat_map(|(kind, amounts)| amounts.iter().flatten().map(move |amount| (kind, amount)));
    amounts
        .filter(|(_, (_, value))| !value.to_string().parse::<Quantity>().is_ok_and(Quantity::is_positive))
        .map(|(kind, (name, value))| Problem::Quantity {
            field: format!("spec.resources.{kind}.{name}"),
            value: value.to_string(),
        })
        .collect()
}

fn cluster_id_problem(world: &World, wanted: &Wanted<'_>) -> Option<Problem> {
    let expected = world.kafka.status.as_ref()?.cluster_id.as_ref()?;
    let found = wanted.status?.cluster_id.as_ref()?;
    (found != expected).then(|| Problem::ForeignPool {
        pool: wanted.name.to_owned(),
        found: found.clone(),
        expected: expected.clone(),
    })
}

/// The roles that nodes run with stay as they are.
fn held_roles(world: &World, wanted: &Wanted<'_>, notices: &mut Vec<Notice>) -> Option<Roles> {
    let asked = Roles::parse(wanted.roles);
    let runs = running(world, wanted.name).is_some();
    let kept = wanted.status.and_then(|status| Roles::parse(status.roles.as_deref()?)).filter(|_| runs);
    if let Some(kept) = kept.filter(|kept| Some(*kept) != asked) {
        notices.push(Notice::RolesHeld { pool: wanted.name.to_owned(), kept: kept.to_string() });
    }
    kept.or(asked)
}

/// The storage that nodes run with stays as it is. The pod set remembers it.
fn held_storage(world: &World, wanted: &Wanted<'_>, notices: &mut Vec<Notice>) -> api::Storage {
    let kept: Option<api::Storage> = running(world, wanted.name)
        .and_then(|set| set.meta.annotations.get(STORAGE_ANNOTATION))
        .and_then(|text| serde_json::from_str(text).ok());
    match kept {
        Some(kept) if kept != *wanted.storage => {
            notices.push(Notice::StorageHeld { pool: wanted.name.to_owned() });
            kept
        }
        _ => wanted.storage.clone(),
    }
}

/// Pools grow; they do not shrink, and controllers of a formed quorum stay as they are.
fn held_nodes(
    world: &World,
    wanted: &Wanted<'_>,
    roles: Roles,
    replicas: usize,
    current: &[NodeId],
    taken: &mut BTreeSet<NodeId>,
    notices: &mut Vec<Notice>,
) -> Vec<NodeId> {
    let pool = || wanted.name.to_owned();
    if roles.has_controller() && quorum_is_formed(world) && replicas != current.len() {
        notices.push(Notice::ControllersHeld { pool: pool(), wanted: wanted.replicas, kept: current.len() });
        return node_ids::grow(current, 0, taken);
    }
    if replicas < current.len() {
        notices.push(Notice::ScaleDownHeld { pool: pool(), wanted: wanted.replicas, kept: current.len() });
    }
    node_ids::grow(current, replicas, taken)
}

/// What only shows in the cluster as a whole. A pool that is not valid stops a cluster that does not run yet;
/// one that runs goes on without the change.
fn check_cluster(world: &World, pools: &[Pool], resolved: &mut Resolved) {
    if !resolved.problems.is_empty() {
        return;
    }
    if !resolved.pool_problems.is_empty() {
        if !quorum_is_formed(world) {
            let pools = resolved.pool_problems.keys().cloned().collect::<Vec<_>>().join(", ");
            resolved.problems.push(Problem::InvalidPools { pools });
        }
        return;
    }
    let has = |role: fn(Roles) -> bool| pools.iter().any(|pool| role(pool.roles) && !pool.nodes.is_empty());
    if !has(Roles::has_controller) {
        resolved.problems.push(Problem::NoController);
    }
    if !has(Roles::has_broker) {
        resolved.problems.push(Problem::NoBroker);
    }
}

fn quorum_is_formed(world: &World) -> bool {
    world.kafka.status.as_ref().is_some_and(|status| status.initial_controllers.is_some())
}
