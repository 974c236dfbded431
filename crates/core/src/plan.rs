//! One pass, from top to bottom: what is true becomes what to do.
//!
//! Nothing here waits, reads a clock or talks to anybody. The order of a pass can be read here and nowhere else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use karst_api as api;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Pool};
use crate::identity::{self, Identity};
use crate::names::{CLUSTER_LABEL, ClusterKey, PAUSE_ANNOTATION};
use crate::notice::Notice;
use crate::objects::{Object, Render};
use crate::problem::Problem;
use crate::quorum::StorageFormat;
use crate::status::{self, Progress};
use crate::world::{KafkaAnswer, World};
use crate::{config, ignored, pods, resolve};

/// How soon to look again when Kafka did not answer.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Fields of the cluster's status that are never written with the rest of it.
pub const KAFKA_FACTS: &[&str] = &["clusterId", "initialControllers"];
/// Fields of a pool's status that are never written with the rest of it.
pub const POOL_FACTS: &[&str] = &["nodeIds", "clusterId", "roles"];

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
    },
    /// Which cluster a pool belongs to.
    PoolCluster {
        /// The pool.
        pool: String,
        /// The new part of its status.
        status: Value,
    },
}

/// What to do now, and what to say about it.
#[derive(Debug, Default)]
pub struct Plan {
    /// What must be durable first. When there is any, nothing that depends on it is in this plan: after it is
    /// written, plan again.
    pub facts: Vec<Fact>,
    /// Objects to write, those that others need first.
    pub objects: Vec<Object>,
    /// Would Kafka's own answer change this plan?
    pub ask_kafka: bool,
    /// Where Kafka's controllers can be asked.
    pub controllers: Vec<String>,
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

/// Decides one pass.
pub fn plan(world: &World) -> Result<Plan, serde_json::Error> {
    let mut plan = Plan::default();
    if world.kafka.metadata.deletion_timestamp.is_some() {
        return Ok(plan);
    }
    if is_paused(&world.kafka) {
        return finish(plan, world, None, Progress::Paused);
    }
    if let Some(problem) = other_operator(world) {
        plan.problems.push(problem.clone());
        return finish(plan, world, None, Progress::Refused(vec![problem]));
    }

    // Pools, roles, node ids.
    let resolved = resolve::resolve(world);
    plan.notices = resolved.notices;
    plan.notices.extend(notices(world, resolved.cluster.as_ref()));
    plan.problems = resolved.problems;
    let pool_problems = resolved.pool_problems;
    let Some(cluster) = resolved.cluster else {
        let progress = Progress::held_by(&plan.problems);
        report_pools(&mut plan, world, None, &pool_problems)?;
        return finish(plan, world, None, progress);
    };

    // Who the cluster is. What is not durable yet comes before all that is built on it.
    let identity = match identity::resolve(world, &cluster) {
        Ok(identity) => identity,
        Err(problem) => {
            plan.problems.push(problem.clone());
            report_pools(&mut plan, world, None, &pool_problems)?;
            return finish(plan, world, None, Progress::Refused(vec![problem]));
        }
    };
    plan.facts = missing_facts(world, &cluster, &identity);

    // Objects.
    let mut wanted = Render::shared(&cluster, &world.kafka);
    if plan.facts.is_empty() {
        let render =
            Render { cluster: &cluster, world, cluster_id: &identity.cluster_id, initial: &identity.initial };
        wanted.extend(render.nodes()?);
        ask_kafka(&mut plan, world, &cluster, &identity);
    }
    for object in wanted {
        if !object.is_as_observed(world)? {
            plan.objects.push(object);
        }
    }

    // Status.
    let progress = if pool_problems.is_empty() {
        status::progress(world, &cluster)
    } else {
        let problems = pool_problems.iter().flat_map(|(pool, problems)| {
            problems
                .iter()
                .map(move |problem| Problem::InvalidPool { pool: pool.clone(), why: problem.to_string() })
        });
        Progress::Refused(problems.collect())
    };
    report_pools(&mut plan, world, Some(&cluster), &pool_problems)?;
    finish(plan, world, Some(&cluster), progress)
}

fn is_paused(kafka: &api::Kafka) -> bool {
    let annotations = kafka.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(PAUSE_ANNOTATION))
        .is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// What another operator made is not ours to change.
fn other_operator(world: &World) -> Option<Problem> {
    let sets = world.pod_sets.values().map(|set| ("StrimziPodSet", &set.meta));
    let pods = world.pods.values().map(|pod| ("Pod", &pod.meta));
    sets.chain(pods).find_map(|(kind, meta)| {
        let manager = meta.other_manager()?.to_owned();
        Some(Problem::OtherOperator { object: format!("{kind} {}", meta.name), manager })
    })
}

fn notices(world: &World, cluster: Option<&Cluster>) -> Vec<Notice> {
    let mut notices = Vec::new();
    notices.extend(ignored::of_kafka(&world.kafka));
    notices.extend(world.pools.iter().filter_map(|(name, pool)| ignored::of_pool(name, pool)));
    let keys = config::forbidden_keys(world.kafka.spec.kafka.config.as_ref());
    if !keys.is_empty() {
        notices.push(Notice::SettingsLeftOut { keys });
    }
    notices.extend(status::outdated(world));
    notices.extend(cluster.map(|cluster| advice(world, cluster)).unwrap_or_default());
    notices
}

/// What works, and still wants a second look.
fn advice(world: &World, cluster: &Cluster) -> Vec<Notice> {
    let mut notices = Vec::new();
    let controllers = cluster.controllers();
    let brokers = cluster.broker_count();
    if controllers.len().is_multiple_of(2) && !controllers.is_empty() {
        notices.push(Notice::EvenControllers { count: controllers.len() });
    }
    for key in ["default.replication.factor", "min.insync.replicas"] {
        let set = world.kafka.spec.kafka.config.as_ref().is_some_and(|config| config.contains_key(key));
        if brokers > 1 && !set {
            notices.push(Notice::ReplicationUnset { key, brokers });
        }
    }
    if let [only] = controllers.as_slice()
        && pods::is_ephemeral(only.pool)
    {
        notices.push(Notice::SingleEphemeral { role: "controller" });
    }
    if brokers == 1
        && cluster.nodes().any(|node| node.pool.roles.has_broker() && pods::is_ephemeral(node.pool))
    {
        notices.push(Notice::SingleEphemeral { role: "broker" });
    }
    notices
}

/// The next facts to make durable, in the order that a crash between any two of them is harmless: the nodes of
/// every pool, then who the cluster is, then which cluster each pool belongs to.
fn missing_facts(world: &World, cluster: &Cluster, identity: &Identity) -> Vec<Fact> {
    let pools: Vec<_> = cluster
        .pools
        .iter()
        .filter(|pool| pool.has_resource)
        .filter_map(|pool| Some((pool, world.pools.get(&pool.name)?.status.clone().unwrap_or_default())))
        .collect();
    let nodes: Vec<_> = pools
        .iter()
        .filter(|(pool, status)| status.node_ids.as_ref() != Some(&id_list(pool)) || status.roles.is_none())
        .map(|(pool, _)| Fact::PoolNodes {
            pool: pool.name.clone(),
            status: json!({ "nodeIds": id_list(pool), "roles": pool.roles.to_api() }),
        })
        .collect();
    if !nodes.is_empty() {
        return nodes;
    }
    if !identity.is_durable {
        let status =
            json!({ "clusterId": identity.cluster_id, "initialControllers": identity.initial.to_string() });
        return vec![Fact::Identity { status }];
    }
    pools
        .iter()
        .filter(|(_, status)| status.cluster_id.is_none())
        .map(|(pool, _)| Fact::PoolCluster {
            pool: pool.name.clone(),
            status: json!({ "clusterId": identity.cluster_id }),
        })
        .collect()
}

fn id_list(pool: &Pool) -> Vec<i32> {
    pool.nodes.iter().map(|id| id.0).collect()
}

/// Kafka is asked only when its answer changes something: a controller that still formats as an initial one
/// serves already, or the metadata version is not known yet.
fn ask_kafka(plan: &mut Plan, world: &World, cluster: &Cluster, identity: &Identity) {
    let controllers = cluster.controllers();
    let serves = |name: &str| world.pods.get(name).is_some_and(|pod| pod.is_serving());
    let formats_initially = |name: &str| {
        let map = world.config_maps.get(name);
        map.is_some_and(|map| map.storage_format.as_deref() == Some(StorageFormat::Initial.as_str()))
    };
    let open = controllers
        .iter()
        .map(|node| cluster.pod_name(*node))
        .any(|name| serves(&name) && formats_initially(&name));
    let all_serve = cluster.nodes().all(|node| serves(&cluster.pod_name(node)));
    let version_unknown =
        world.kafka.status.as_ref().is_none_or(|status| status.kafka_metadata_version.is_none());
    let wanted = open || (all_serve && version_unknown);
    plan.ask_kafka = wanted && world.answer == KafkaAnswer::NotAsked;
    if wanted && world.answer != KafkaAnswer::NotAsked {
        plan.look_again = Some(ASK_AGAIN);
    }
    plan.controllers = identity.initial.iter().map(|controller| controller.host.clone()).collect();
}

fn report_pools(
    plan: &mut Plan,
    world: &World,
    cluster: Option<&Cluster>,
    problems: &BTreeMap<String, Vec<Problem>>,
) -> Result<(), serde_json::Error> {
    for (name, resource) in &world.pools {
        let progress = match (problems.get(name), cluster) {
            (Some(problems), _) => Progress::Refused(problems.clone()),
            (None, Some(cluster)) => match cluster.pools.iter().find(|pool| pool.name == *name) {
                Some(pool) => {
                    status::progress(world, &Cluster { pools: vec![pool.clone()], ..cluster.clone() })
                }
                None => continue,
            },
            (None, None) => Progress::Underway {
                reason: "ClusterNotReady",
                message: format!("Kafka '{}' cannot be carried out; its status says why", world.key.name),
            },
        };
        let new = status::of_pool(&world.key, world.now, name, resource, &progress, &plan.notices);
        if let Some(patch) = status::patch(resource.status.as_ref(), &new, POOL_FACTS)? {
            plan.pool_statuses.insert(name.clone(), patch);
        }
    }
    Ok(())
}

fn finish(
    mut plan: Plan,
    world: &World,
    cluster: Option<&Cluster>,
    progress: Progress,
) -> Result<Plan, serde_json::Error> {
    let new = status::of_kafka(world, cluster, &progress, &plan.notices);
    plan.status = status::patch(world.kafka.status.as_ref(), &new, KAFKA_FACTS)?;
    plan.progress = Some(progress);
    Ok(plan)
}

/// The statuses of pools whose `Kafka` resource does not exist.
pub fn pools_without_kafka(
    key: &ClusterKey,
    pools: &BTreeMap<String, Arc<api::KafkaNodePool>>,
    now: Timestamp,
) -> Result<BTreeMap<String, Value>, serde_json::Error> {
    let progress = Progress::Underway {
        reason: "KafkaMissing",
        message: format!(
            "no Kafka '{}' exists in this namespace; create it, or correct the label {CLUSTER_LABEL}",
            key.name
        ),
    };
    let mut patches = BTreeMap::new();
    for (name, pool) in pools.iter().filter(|(_, pool)| pool.metadata.deletion_timestamp.is_none()) {
        let new = status::of_pool(key, now, name, pool, &progress, &[]);
        if let Some(patch) = status::patch(pool.status.as_ref(), &new, POOL_FACTS)? {
            patches.insert(name.clone(), patch);
        }
    }
    Ok(patches)
}
