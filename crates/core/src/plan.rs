//! One pass, from top to bottom: what is true becomes what to do.
//!
//! Nothing here waits, reads a clock or talks to anybody. The order of a pass can be read here and nowhere else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use karst_api as api;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Node, Pool};
use crate::identity::{self, Identity};
use crate::names::{CLUSTER_LABEL, ClusterKey, PAUSE_ANNOTATION, is_true};
use crate::notice::Notice;
use crate::objects::Render;
use crate::problem::Problem;
use crate::quorum::StorageFormat;
use crate::status::{self, Progress};
pub use crate::steps::{Fact, Plan, Protection, Questions, Removal};
use crate::world::World;
use crate::{config, ignored, pods, removals, resolve};

/// How soon to look again when Kafka did not answer.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// How soon to look again whether partitions have left a node. Kafka does not tell.
const LOOK_AT_PARTITIONS_AGAIN: Duration = Duration::from_secs(5);

/// Fields of the cluster's status that are never written with the rest of it.
pub const KAFKA_FACTS: &[&str] = &["clusterId", "initialControllers"];
/// Fields of a pool's status that are never written with the rest of it.
pub const POOL_FACTS: &[&str] = &["nodeIds", "clusterId", "roles"];

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
    let (partitions_of, moved) = (resolved.partitions_of, resolved.moved);
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

    // Kafka's own word, where a decision needs it.
    plan.questions.quorum = ask_quorum(&mut plan.look_again, world, &cluster, &identity);
    if !partitions_of.is_empty() {
        plan.questions.partitions_of = partitions_of;
        plan.questions.moved = moved;
        plan.questions.brokers = broker_hosts(world, &cluster);
    }
    if world.answers.partitions.was_asked() {
        let blocked = plan.notices.iter().any(Notice::waits_for_partitions);
        plan.look_again = plan.look_again.or(blocked.then_some(LOOK_AT_PARTITIONS_AGAIN));
    }

    // Objects.
    let mut wanted = Render::shared(&cluster, &world.kafka);
    if plan.facts.is_empty() {
        let render = Render {
            cluster: &cluster,
            world,
            cluster_id: &identity.cluster_id,
            initial: identity.initial.as_ref(),
            bootstrap_servers: identity.bootstrap_servers(&cluster),
        };
        wanted.extend(render.nodes()?);
        plan.removals = removals::of(world, &cluster, &pool_problems);
        plan.protections = removals::protections(world, &cluster);
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
    is_true(kafka.metadata.annotations.as_ref(), PAUSE_ANNOTATION)
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
        let mut status = json!({ "clusterId": identity.cluster_id });
        if let Some(initial) = &identity.initial {
            status["initialControllers"] = json!(initial.to_string());
        }
        let forms = !identity::has_remains(world);
        return vec![Fact::Identity { status, forms }];
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
    pool.ids.iter().map(|id| id.0).collect()
}

/// The quorum is asked only when its answer changes something: a controller that still formats as an initial one
/// serves already, the metadata version is not known yet, or nobody remembers who formed the quorum.
fn ask_quorum(
    look_again: &mut Option<Duration>,
    world: &World,
    cluster: &Cluster,
    identity: &Identity,
) -> Vec<String> {
    let controllers = cluster.controllers();
    let serves = |node: Node<'_>| world.pods.get(&cluster.pod_name(node)).is_some_and(|pod| pod.is_serving());
    let formats_initially = |node: Node<'_>| {
        let map = world.config_maps.get(&cluster.pod_name(node));
        map.is_some_and(|map| map.storage_format.as_deref() == Some(StorageFormat::Initial.as_str()))
    };
    let version_unknown =
        world.kafka.status.as_ref().is_none_or(|status| status.kafka_metadata_version.is_none());
    let wanted = controllers.iter().any(|node| serves(*node) && formats_initially(*node))
        || (cluster.nodes().all(serves) && version_unknown)
        || (identity.initial.is_none() && controllers.iter().any(|node| serves(*node)));
    if !wanted {
        return Vec::new();
    }
    if world.answers.quorum.was_asked() {
        *look_again = Some(ASK_AGAIN);
        return Vec::new();
    }
    controllers.into_iter().map(|node| cluster.host(node)).collect()
}

/// Brokers that serve, and so can be asked.
fn broker_hosts(world: &World, cluster: &Cluster) -> Vec<String> {
    let brokers = cluster.nodes().filter(|node| node.pool.roles.has_broker());
    let serving =
        brokers.filter(|node| world.pods.get(&cluster.pod_name(*node)).is_some_and(|pod| pod.is_serving()));
    serving.map(|node| cluster.host(node)).collect()
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

/// Pools that are deleted and whose `Kafka` resource does not exist: nothing is left to wait for.
pub fn released_without_kafka(
    pools: &BTreeMap<String, Arc<api::KafkaNodePool>>,
) -> BTreeMap<String, Protection> {
    let going = pools.iter().filter(|(_, pool)| {
        pool.metadata.deletion_timestamp.is_some() && removals::is_protected(&pool.metadata)
    });
    going.map(|(name, _)| (name.clone(), Protection::Remove)).collect()
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
