//! The pools of a cluster, real or virtual: checked, and held where a change of what runs could cost data.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karst_api as api;

use crate::claim_memory;
use crate::cluster::{Pool, Roles};
use crate::departed;
use crate::health;
use crate::identity;
use crate::ids::NodeId;
use crate::limits;
use crate::names::{self, NODE_POOLS_ANNOTATION, POD_NAME_LABEL, STORAGE_ANNOTATION, VIRTUAL_POOL};
use crate::nodes::{self, Checked};
use crate::notice::Notice;
use crate::privileges;
use crate::problem::Problem;
use crate::quantity::Quantity;
use crate::quorum::{InitialController, InitialControllers};
use crate::resolve::{Resolved, too_long};
use crate::roles;
use crate::storage::Storage;
use crate::storage_change;
use crate::template::{self, Template};
use crate::versions;
use crate::world::{PodSetView, World};

/// A pool as it was asked for, real or virtual.
struct Wanted<'a> {
    name: &'a str,
    replicas: i32,
    roles: &'a [api::Role],
    storage: &'a api::Storage,
    storage_field: &'static str,
    resources: Option<&'a api::ResourceRequirements>,
    jvm_options: Option<&'a api::JvmOptions>,
    template: Result<Template, Vec<Problem>>,
    status: Option<&'a api::KafkaNodePoolStatus>,
    resource: Option<&'a api::KafkaNodePool>,
}

/// Are the pools that make up the cluster `KafkaNodePool` resources?
pub(crate) fn uses_pools(kafka: &api::Kafka) -> bool {
    match kafka.metadata.annotations.as_ref().and_then(|all| all.get(NODE_POOLS_ANNOTATION)) {
        Some(value) => value == "enabled",
        None => kafka.spec.kafka.replicas.is_none(),
    }
}

/// The names of the pools that make up a cluster.
pub fn names<'a>(kafka: &api::Kafka, pools: &'a BTreeMap<String, Arc<api::KafkaNodePool>>) -> Vec<&'a str> {
    if uses_pools(kafka) { pools.keys().map(String::as_str).collect() } else { vec![VIRTUAL_POOL] }
}

/// Checks every pool, and gives each of its nodes an id.
pub(crate) fn resolve(world: &World, resolved: &mut Resolved) -> Vec<Pool> {
    let spec = &world.kafka.spec.kafka;
    // What is wrong with the cluster's own template holds the whole cluster, so nothing is made without it.
    let template = template::of_cluster(&world.kafka).unwrap_or_else(|problems| {
        resolved.problems.extend(problems);
        Template::default()
    });
    if let Some(problem) = limits::too_many_pools(world.pools.len()) {
        resolved.problems.push(problem);
        return Vec::new();
    }
    let wanted: Vec<Wanted<'_>> = if uses_pools(&world.kafka) {
        world.pools.iter().map(|(name, pool)| real_pool(name, pool, spec, &template)).collect()
    } else {
        if !world.pools.is_empty() {
            resolved.notices.push(Notice::PoolsNotUsed { pools: world.pools.keys().cloned().collect() });
        }
        if spec.storage.is_none() {
            resolved.problems.push(Problem::NoStorage);
        }
        virtual_pool(spec, template).into_iter().collect()
    };
    if wanted.is_empty() && resolved.problems.is_empty() {
        resolved.problems.push(Problem::NoPools { cluster: world.key.name.clone() });
    }
    report_vanished_pools(world, &wanted, resolved);

    let mut checked = Vec::new();
    let mut refused = BTreeSet::new();
    for wanted in &wanted {
        match check(world, wanted, resolved) {
            Ok(pool) => checked.push(pool),
            Err(problems) => {
                refused.extend(current_ids(world, wanted));
                resolved.pool_problems.insert(wanted.name.to_owned(), problems);
            }
        }
    }
    // More are not even counted out.
    if let Some(problem) = limits::too_many_nodes(checked.iter().map(|pool| pool.replicas).sum()) {
        resolved.problems.push(problem);
        return Vec::new();
    }
    check_disks(world, &checked, resolved);
    let taken = taken_ids(world, refused);
    nodes::settle(world, checked, &taken, resolved)
}

fn real_pool<'a>(
    name: &'a str,
    pool: &'a api::KafkaNodePool,
    cluster: &'a api::KafkaClusterSpec,
    template: &Template,
) -> Wanted<'a> {
    Wanted {
        name,
        replicas: pool.spec.replicas,
        roles: &pool.spec.roles,
        storage: &pool.spec.storage,
        storage_field: "spec.storage",
        resources: pool.spec.resources.as_ref().or(cluster.resources.as_ref()),
        jvm_options: pool.spec.jvm_options.as_ref().or(cluster.jvm_options.as_ref()),
        template: template::of_pool(pool, template),
        status: pool.status.as_ref(),
        resource: Some(pool),
    }
}

fn virtual_pool(spec: &api::KafkaClusterSpec, template: Template) -> Option<Wanted<'_>> {
    Some(Wanted {
        name: VIRTUAL_POOL,
        replicas: spec.replicas.unwrap_or_default(),
        roles: &[api::Role::Controller, api::Role::Broker],
        storage: spec.storage.as_ref()?,
        storage_field: "spec.kafka.storage",
        resources: spec.resources.as_ref(),
        jvm_options: spec.jvm_options.as_ref(),
        template: Ok(template),
        status: None,
        resource: None,
    })
}

fn report_vanished_pools(world: &World, wanted: &[Wanted<'_>], resolved: &mut Resolved) {
    let names = wanted.iter().map(|pool| pool.name).chain([departed::POOL]);
    let known: BTreeSet<String> = names.map(|pool| world.key.pod_set(pool)).collect();
    let gone = world.pod_sets.keys().filter(|pod_set| !known.contains(*pod_set));
    resolved.notices.extend(gone.map(|pod_set| Notice::PoolGone { pod_set: pod_set.clone() }));
}

/// The ids a pool's nodes have: what its status says, or what its pod set runs, or (the virtual pool has neither
/// when its cluster is being made) what the quorum was formed with. When only disks are left, those tell.
fn current_ids(world: &World, pool: &Wanted<'_>) -> Vec<NodeId> {
    let told = pool.status.and_then(|status| status.node_ids.as_ref());
    match (told, running(world, pool.name)) {
        (Some(ids), _) if !ids.is_empty() => ids.iter().copied().map(NodeId).collect(),
        // Also when the status says that none is left: an operator with an old view asked for nodes once more, and they have to go in
        // order too.
        (_, Some(set)) => pod_ids(set).collect(),
        (Some(_), None) => Vec::new(),
        (None, None) if is_found_by_disks(world, pool.name) => {
            ids_of_claims(world, pool.name).into_iter().collect()
        }
        (None, None) => founders(world, pool.name),
    }
}

/// Do only disks tell which nodes a pool has? So it is when nobody remembers the cluster, and when its quorum has no list of
/// who formed it and nothing is left that names the nodes. (A pool that is new in a cluster that runs has none.)
fn is_found_by_disks(world: &World, pool: &str) -> bool {
    let status = world.pools.get(pool).and_then(|pool| pool.status.as_ref());
    let is_unnamed = || status.is_none_or(|status| status.node_ids.is_none()) && world.pod_sets.is_empty();
    identity::is_forgotten(world) || (quorum_is_fixed(world) && is_unnamed())
}

/// The nodes of a pool that have disks.
fn ids_of_claims(world: &World, pool: &str) -> BTreeSet<NodeId> {
    let pods = world.claims.values().filter_map(|claim| claim.meta.labels.get(POD_NAME_LABEL));
    let nodes = pods.filter_map(|pod| Some((pod, names::node_of_pod(pod)?)));
    nodes.filter(|(pod, node)| world.key.pod(pool, *node) == **pod).map(|(_, node)| node).collect()
}

/// Disks that are to be found again must all belong to nodes: which of too many vote, nobody can tell.
fn check_disks(world: &World, pools: &[Checked], resolved: &mut Resolved) {
    let found = pools.iter().filter(|pool| is_found_by_disks(world, &pool.pool.name));
    let too_many = found.filter(|pool| pool.current.len() > pool.replicas);
    resolved.problems.extend(too_many.map(|pool| Problem::MoreDisks {
        pool: pool.pool.name.clone(),
        ids: health::list(&pool.current),
        found: pool.current.len(),
        replicas: pool.replicas,
    }));
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

/// Ids in use by anything but the pools that are about to be settled: pods, pod sets, pools that are refused or not used.
fn taken_ids(world: &World, refused: BTreeSet<NodeId>) -> BTreeSet<NodeId> {
    let in_pod_sets = world.pod_sets.values().flat_map(|set| pod_ids(set));
    let in_pods = world.pods.keys().filter_map(|pod| names::node_of_pod(pod));
    let in_pools = world.pools.values().filter_map(|pool| pool.status.as_ref()?.node_ids.as_ref());
    let in_pools = in_pools.flatten().copied().map(NodeId);
    refused.into_iter().chain(in_pod_sets).chain(in_pods).chain(in_pools).collect()
}

fn check(world: &World, wanted: &Wanted<'_>, resolved: &mut Resolved) -> Result<Checked, Vec<Problem>> {
    // Nothing else is looked at then: that would take too long.
    if let Some(problem) = wanted.resource.and_then(|pool| limits::too_large(&pool.spec)) {
        return Err(vec![problem]);
    }
    let mut problems = pool_name_problems(world, wanted);
    problems.extend(resource_problems(wanted.resources));
    problems.extend(cluster_id_problem(world, wanted));
    problems.extend(wanted.resource.iter().flat_map(|pool| privileges::of_pool(world, pool)));
    let roles = roles::held(world, wanted.name, wanted.roles, wanted.status, resolved);
    if roles.is_none() {
        problems.push(Problem::NoRoles);
    }
    let leaves_quorum =
        roles.is_some_and(|roles| roles::still_votes(world, wanted.name, roles, wanted.status, resolved));
    let roles = roles.map(|roles| if leaves_quorum { roles.with_controller() } else { roles });
    let written = held_storage(world, wanted, roles, resolved);
    let storage =
        Storage::parse(wanted.storage_field, &written).map_err(|problem| problems.push(problem)).ok();
    let replicas = usize::try_from(wanted.replicas).ok().filter(|replicas| *replicas <= limits::NODES);
    if replicas.is_none() {
        problems.push(Problem::Replicas { replicas: wanted.replicas, most: limits::NODES });
    }
    problems.extend(roles.zip(storage.as_ref()).and_then(|(roles, storage)| {
        too_many_volumes(world, wanted.storage_field, roles, storage, resolved.metadata_level)
    }));
    let template = wanted.template.clone().map_err(|found| problems.extend(found)).ok();
    let (Some(roles), Some(storage), Some(replicas), Some(template), true) =
        (roles, storage, replicas, template, problems.is_empty())
    else {
        return Err(problems);
    };
    let meta = wanted.resource.map(|pool| &pool.metadata);
    Ok(Checked {
        current: current_ids(world, wanted).into_iter().collect(),
        replicas,
        leaves_quorum,
        annotations: meta.and_then(|meta| meta.annotations.clone()).unwrap_or_default(),
        pool: Pool {
            name: wanted.name.to_owned(),
            roles,
            storage,
            storage_written: written,
            resources: wanted.resources.cloned(),
            jvm_options: wanted.jvm_options.cloned(),
            template,
            nodes: Vec::new(),
            wanted: 0,
            leaving: BTreeSet::new(),
            ids: Vec::new(),
            is_going: meta.is_some_and(|meta| meta.deletion_timestamp.is_some()),
            has_resource: wanted.resource.is_some(),
        },
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

/// A broker with several directories does not start before the metadata version knows them.
fn too_many_volumes(
    world: &World,
    field: &str,
    roles: Roles,
    storage: &Storage,
    metadata: Option<i16>,
) -> Option<Problem> {
    let (volumes, level) = (storage.disks().len(), metadata?);
    if !roles.has_broker() || volumes < 2 || level >= versions::SEVERAL_VOLUMES {
        return None;
    }
    let asked = world.kafka.spec.kafka.metadata_version.as_ref();
    let asked = asked.map_or_else(|| "is not set".to_owned(), |asked| format!("is '{asked}'"));
    let advice = format!(
        "brokers with more than one need metadata version {} or newer, and it is {} here (spec.kafka.metadataVersion {asked}): list one volume, or raise it first",
        versions::metadata_name(versions::SEVERAL_VOLUMES),
        versions::metadata_name(level),
    );
    Some(Problem::storage(field, "volumes", &format!("has {volumes} entries"), &advice))
}

/// Pools whose brokers have more than one volume, or are to have.
pub(crate) fn with_several_volumes(world: &World) -> impl Iterator<Item = &str> {
    let has_several = |storage: &api::Storage| storage.volumes.as_ref().is_some_and(|all| all.len() > 1);
    let is_one = move |name: &&str| {
        let pool = world.pools.get(*name).filter(|_| uses_pools(&world.kafka));
        let asked = pool.map(|pool| &pool.spec.storage).or(world.kafka.spec.kafka.storage.as_ref());
        let serves = pool.is_none_or(|pool| {
            let was = pool.status.as_ref().and_then(|status| status.roles.as_ref());
            pool.spec.roles.iter().chain(was.into_iter().flatten()).any(|role| *role == api::Role::Broker)
        });
        let runs = running(world, name).and_then(|set| set.meta.annotations.get(STORAGE_ANNOTATION));
        let runs = runs.and_then(|text| serde_json::from_str::<api::Storage>(text).ok());
        serves && (asked.is_some_and(has_several) || runs.as_ref().is_some_and(has_several))
    };
    names(&world.kafka, &world.pools).into_iter().filter(is_one)
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
    let found = wanted.status?.cluster_id.as_ref()?;
    let (pool, found) = (wanted.name.to_owned(), found.clone());
    let Some(expected) = world.kafka.status.as_ref().and_then(|status| status.cluster_id.as_ref()) else {
        let is_its = identity::id_of_pool(world, wanted.name, wanted.resource?).is_some();
        let last = names::cluster_of_selector(wanted.status?.label_selector.as_deref()).map(str::to_owned);
        return (!is_its).then_some(Problem::RelabelledPool { pool, found, last });
    };
    (found != *expected).then(|| Problem::ForeignPool { pool, found, expected: expected.clone() })
}

/// What is possible of the storage that was asked for.
fn held_storage(
    world: &World,
    wanted: &Wanted<'_>,
    roles: Option<Roles>,
    resolved: &mut Resolved,
) -> api::Storage {
    let Some((nodes, kept)) = kept_storage(world, wanted) else { return wanted.storage.clone() };
    let field = wanted.storage_field;
    let running = storage_change::Running { world, pool: wanted.name, field, roles, nodes, kept: &kept };
    let settled = storage_change::settle(&running, wanted.storage);
    resolved.notices.extend(settled.notices);
    resolved.log_dirs_of.extend(settled.log_dirs_of);
    claim_memory::with_what_is_said(settled.storage, wanted.storage)
}

/// The storage that a pool's nodes run with, and those nodes. The pod set tells. Where it was lost, with what it remembered, the
/// claims tell: nodes would start on empty or wrong directories otherwise.
fn kept_storage(world: &World, wanted: &Wanted<'_>) -> Option<(Vec<NodeId>, api::Storage)> {
    let of_set = |set: &PodSetView| {
        let kept = serde_json::from_str(set.meta.annotations.get(STORAGE_ANNOTATION)?).ok()?;
        Some((pod_ids(set).collect(), kept))
    };
    running(world, wanted.name).and_then(of_set).or_else(|| {
        let nodes = current_ids(world, wanted);
        let kept = claim_memory::storage(world, wanted.name, &nodes, wanted.storage)?;
        Some((nodes, kept))
    })
}

/// Has the cluster a quorum that must not be changed by accident? Also when only what is left of it shows that.
pub(crate) fn quorum_is_formed(world: &World) -> bool {
    let status = world.kafka.status.as_ref();
    let is_remembered =
        world.pools.iter().any(|(name, pool)| identity::id_of_pool(world, name, pool).is_some())
            || status.is_some_and(|status| status.cluster_id.is_some());
    let is_known = status.is_some_and(|status| status.initial_controllers.is_some());
    is_known || (is_remembered && identity::has_remains(world))
}

/// Has the cluster a quorum whose voters cannot change while it runs?
pub(crate) fn quorum_is_fixed(world: &World) -> bool {
    quorum_is_formed(world) && !quorum_is_dynamic(world)
}

/// Can the voters of the cluster's quorum change while it runs? Only such a quorum has a list of initial controllers.
pub(crate) fn quorum_is_dynamic(world: &World) -> bool {
    world.kafka.status.as_ref().is_some_and(|status| status.initial_controllers.is_some())
}
