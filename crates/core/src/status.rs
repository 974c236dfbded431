//! What users are told: the status of the cluster and of its pools.
//!
//! A status is written only when it says something else than before. The durable facts (`clusterId`,
//! `initialControllers`, `nodeIds`) are never part of it: they are written on their own, under a precondition.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use karst_api as api;
use karst_api::bounds;
use serde::Serialize;

use crate::absences::{self, RESTART_TIME};
use crate::certificates;
use crate::cluster::{Cluster, Node};
use crate::departed;
use crate::listeners::ClientListener;
use crate::listeners::address::{self, Advertised};
use crate::names::{ClusterKey, KAFKA_VERSION_ANNOTATION, NEXT_IDS_ANNOTATION, REMOVE_IDS_ANNOTATION};
use crate::notice::Notice;
use crate::own_certificates;
use crate::problem::Problem;
use crate::quorum_status;
use crate::reason::Reason;
use crate::rolling::Due;
use crate::safety;
use crate::terminating;
use crate::versions;
use crate::world::{PodView, World};

/// How far a cluster or a pool is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// As it was asked for.
    Ready,
    /// It serves, and what was asked for is being written.
    Applying,
    /// It serves, and something that was asked for was tried and did not work. A warning says what.
    Partly,
    /// It serves, while its pods restart one after the other.
    Rolling {
        /// How far that is.
        message: String,
    },
    /// On its way; says what it waits for.
    Underway {
        /// Reason of the condition.
        reason: Reason,
        /// What is missing.
        message: String,
    },
    /// Not to be carried out.
    Refused(Vec<Problem>),
    /// Left alone, as the user asked.
    Paused,
}

impl Progress {
    /// What problems mean: pools of a new cluster that are not there yet are waited for, everything else is refused.
    pub fn held_by(problems: &[Problem], is_new: bool) -> Self {
        match problems {
            [missing, ..] if is_new && problems.iter().all(Problem::is_waiting) => {
                Self::Underway { reason: missing.reason(), message: sentences(problems) }
            }
            _ => Self::Refused(problems.to_vec()),
        }
    }

    /// What this means for a pool of which nothing else is to be said. When the cluster is refused, so is what the pool asks for.
    pub(crate) fn of_pool(&self, cluster: &str) -> Self {
        let problem = Problem::ClusterHeld { cluster: cluster.to_owned() };
        match self {
            Self::Refused(_) => Self::Refused(vec![problem]),
            _ => Self::Underway { reason: problem.reason(), message: problem.to_string() },
        }
    }

    /// Do all pods serve, and is none of them to restart?
    pub fn has_all_pods(&self) -> bool {
        matches!(self, Self::Ready | Self::Applying | Self::Partly)
    }

    /// Was this generation dealt with, one way or the other?
    fn is_settled(&self) -> bool {
        matches!(self, Self::Ready | Self::Partly | Self::Refused(_))
    }

    fn conditions(&self) -> Vec<api::Condition> {
        match self {
            Self::Ready | Self::Applying | Self::Partly => vec![condition("Ready", true, None)],
            Self::Rolling { message } => {
                vec![condition("Ready", true, Some((Reason::RollingUpdate, message)))]
            }
            Self::Paused => vec![condition("ReconciliationPaused", true, None)],
            Self::Underway { reason, message } => not_ready(*reason, message),
            Self::Refused(problems) => {
                let reason = problems.first().map_or(Reason::InvalidResource, Problem::reason);
                not_ready(reason, &sentences(problems))
            }
        }
    }
}

fn sentences(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Strimzi's tools look for `NotReady`, Kubernetes' for `Ready`: both are served.
pub(crate) fn not_ready(reason: Reason, message: &str) -> Vec<api::Condition> {
    let why = Some((reason, message));
    vec![condition("Ready", false, why), condition("NotReady", true, why)]
}

pub(crate) fn condition(type_: &str, status: bool, why: Option<(Reason, &str)>) -> api::Condition {
    api::Condition {
        type_: Some(type_.to_owned()),
        status: Some(if status { "True" } else { "False" }.to_owned()),
        last_transition_time: None,
        reason: why.map(|(reason, _)| reason.to_string()),
        message: why.map(|(_, message)| message.to_owned()),
    }
}

/// What the status says while something of the cluster cannot be read. Nothing, when it says so already.
pub fn unreadable(
    said: Option<&Vec<api::Condition>>,
    message: &str,
    now: Timestamp,
) -> Option<Vec<api::Condition>> {
    let new = not_ready(Reason::Unreadable, message);
    let is_said = |new: &api::Condition| {
        said.into_iter().flatten().any(|said| {
            (&said.type_, &said.status, &said.reason, &said.message)
                == (&new.type_, &new.status, &new.reason, &new.message)
        })
    };
    (!new.iter().all(is_said)).then(|| since(new, said, now))
}

fn warning(notice: &Notice) -> api::Condition {
    condition("Warning", true, Some((notice.reason(), &notice.to_string())))
}

/// What all messages of a status may be long together: the rest of the resource has to find room beside it.
const ALL_MESSAGES: usize = 256 * 1024;
/// How many warnings a status has. Nobody reads more.
const WARNINGS: usize = 200;

/// The conditions as the schema takes them: a status that is refused would tell nothing at all. Long messages are cut, and of many
/// warnings the first are told.
fn bounded(conditions: Vec<api::Condition>) -> Vec<api::Condition> {
    let (mut bytes, mut warnings, mut left_out) = (0_usize, 0, 0);
    let mut kept = Vec::new();
    for mut condition in conditions {
        condition.message = condition.message.map(cut);
        let length = condition.message.as_ref().map_or(0, String::len);
        let is_warning = condition.type_.as_deref() == Some("Warning");
        if is_warning && (warnings == WARNINGS || bytes.saturating_add(length) > ALL_MESSAGES) {
            left_out += 1;
            continue;
        }
        bytes = bytes.saturating_add(length);
        warnings += usize::from(is_warning);
        kept.push(condition);
    }
    if left_out > 0 {
        let message = format!("{left_out} more warnings are left out; deal with the others first");
        kept.push(condition("Warning", true, Some((Reason::MoreWarnings, &message))));
    }
    kept
}

/// A message that is no longer than the schema allows.
fn cut(message: String) -> String {
    const END: &str = " ... (the rest is left out)";
    let most = usize::try_from(bounds::MESSAGE).unwrap_or(usize::MAX);
    if message.len() <= most {
        return message;
    }
    let end = (0..=most - END.len()).rev().find(|end| message.is_char_boundary(*end));
    format!("{}{END}", &message[..end.unwrap_or_default()])
}

/// Gives each condition the time since when it holds: the old one's, if there was one like it.
pub(crate) fn since(
    mut conditions: Vec<api::Condition>,
    old: Option<&Vec<api::Condition>>,
    now: Timestamp,
) -> Vec<api::Condition> {
    let seconds = Timestamp::from_second(now.as_second()).unwrap_or(now);
    for condition in &mut conditions {
        let same = |other: &&api::Condition| {
            other.type_ == condition.type_
                && other.status == condition.status
                && (condition.type_.as_deref() != Some("Warning") || other.message == condition.message)
        };
        let known = old.into_iter().flatten().find(same).and_then(|other| other.last_transition_time.clone());
        condition.last_transition_time = Some(known.unwrap_or_else(|| seconds.to_string()));
    }
    conditions
}

/// A pod this much younger than its node's settings is not the node's first.
const NOT_THE_FIRST: Duration = Duration::from_secs(5);

/// How far the nodes are: all of them, or those of one pool.
pub(crate) fn progress(world: &World, cluster: &Cluster, due: &[Due<'_>], pool: Option<&str>) -> Progress {
    let is_meant = |node: &Node<'_>| pool.is_none_or(|pool| node.pool.name == pool);
    // A roll never takes all nodes at once, unless there is only one.
    let may_roll =
        was_ready(world) && (cluster.nodes().count() == 1 || world.pods.values().any(|pod| pod.is_serving()));
    let (mut waiting, mut restarting) = (Vec::new(), Vec::new());
    for node in cluster.nodes().filter(is_meant) {
        let name = cluster.pod_name(node);
        match world.pods.get(&name) {
            Some(pod) if pod.is_serving() => {}
            _ if may_roll && is_restarting(world, &name) => restarting.push(name),
            found => waiting.push(
                match why_away(world, &name, found).or_else(|| safety::recovery(world, node.id)) {
                    Some(why) => format!("{name} ({why})"),
                    None => name,
                },
            ),
        }
    }
    if waiting.is_empty() {
        let due = due.iter().filter(|due| is_meant(&due.node)).map(|due| due.pod.meta.name.as_str());
        return rolling_or_ready(&due.collect::<Vec<_>>(), &restarting);
    }
    waiting.extend(restarting);
    let total = cluster.nodes().filter(is_meant).count();
    let reason = match world.kafka.status.as_ref().and_then(|status| status.kafka_version.as_ref()) {
        Some(_) => Reason::NodesNotReady,
        None => Reason::Creating,
    };
    let message =
        format!("{} of {total} nodes are ready; waiting for {}", total - waiting.len(), waiting.join(", "));
    Progress::Underway { reason, message }
}

fn rolling_or_ready(due: &[&str], restarting: &[String]) -> Progress {
    match (restarting, due) {
        ([], []) => Progress::Ready,
        ([], due) => Progress::Rolling { message: format!("pods that are to restart: {}", due.join(", ")) },
        (now, []) => Progress::Rolling { message: format!("restarting {}", now.join(", ")) },
        (now, due) => Progress::Rolling {
            message: format!("restarting {}; pods that are to restart: {}", now.join(", "), due.join(", ")),
        },
    }
}

fn was_ready(world: &World) -> bool {
    world.said().any(|condition| {
        condition.type_.as_deref() == Some("Ready") && condition.status.as_deref() == Some("True")
    })
}

/// What is known of why the pod of a node does not serve.
pub(crate) fn why_away(world: &World, name: &str, pod: Option<&Arc<PodView>>) -> Option<String> {
    let Some(pod) = pod else {
        return terminating::keeps_from_starting(world, name).or_else(|| absences::for_long(world, name));
    };
    let is_overdue = terminating::overdue_since(world, &pod.meta).is_some();
    let terminates = || is_overdue.then(|| "it is being deleted, and does not go".to_owned());
    pod.stuck.clone().or_else(|| pod.sidecar.clone()).or_else(terminates)
}

/// Is the pod of a node that ran before about to come back? One that is stuck, or takes too long, is not.
fn is_restarting(world: &World, pod: &str) -> bool {
    let settings = world.config_maps.get(pod).and_then(|map| map.meta.created);
    let Some(settings) = settings else { return false };
    let after = |time: Timestamp, start: Timestamp| {
        Duration::try_from(time.duration_since(start)).unwrap_or_default()
    };
    match world.pods.get(pod) {
        None => {
            after(world.now, settings) > NOT_THE_FIRST
                && terminating::keeps_from_starting(world, pod).is_none()
                && !absences::is_overdue(world, pod)
        }
        Some(pod) if pod.stuck.is_some() => false,
        Some(pod) if pod.meta.deleting => terminating::overdue_since(world, &pod.meta).is_none(),
        Some(pod) => pod.meta.created.is_some_and(|created| {
            after(created, settings) > NOT_THE_FIRST && after(world.now, created) < RESTART_TIME
        }),
    }
}

/// Do all nodes run this version?
fn all_run(world: &World, cluster: &Cluster) -> bool {
    cluster.nodes().all(|node| {
        world.pods.get(&cluster.pod_name(node)).is_some_and(|pod| {
            pod.is_serving()
                && pod
                    .meta
                    .annotations
                    .get(KAFKA_VERSION_ANNOTATION)
                    .is_some_and(|runs| runs == cluster.version.version)
        })
    })
}

/// What is of no concern but to its pool is told there alone.
fn is_of_cluster(notice: &Notice) -> bool {
    notice.pool().is_none() || !notice.is_for_pool_alone()
}

/// The new status of the cluster.
pub fn of_kafka(
    world: &World,
    cluster: Option<&Cluster>,
    progress: &Progress,
    notices: &[Notice],
) -> api::KafkaStatus {
    let mut status = world.kafka.status.clone().unwrap_or_default();
    let mut conditions = progress.conditions();
    conditions.extend(
        notices.iter().filter(|notice| is_of_cluster(notice) || world_has_no(world, notice)).map(warning),
    );
    conditions.extend(match cluster {
        Some(cluster) => quorum_status::conditions(world, cluster),
        None => quorum_status::said(world, &[quorum_status::HEALTHY, quorum_status::RECONCILED]),
    });
    status.conditions = Some(since(bounded(conditions), status.conditions.as_ref(), world.now));
    if progress.is_settled() {
        status.observed_generation = world.kafka.metadata.generation;
    }
    if let Some(quorum) = world.answers.quorum.known() {
        status.quorum = Some(quorum_status::view(quorum));
    }
    if let Some(cluster) = cluster {
        let pools: Vec<_> = cluster
            .pools
            .iter()
            .filter(|pool| pool.name != departed::POOL)
            .map(|pool| api::UsedNodePool { name: Some(pool.name.clone()) })
            .collect();
        status.kafka_node_pools = Some(pools.clone());
        status.node_pools = Some(pools);
        status.listeners = Some(listeners(world, cluster));
        if all_run(world, cluster) {
            status.kafka_version = Some(cluster.version.version.to_owned());
        }
    }
    if let Some(level) = world.answers.quorum.known().and_then(|quorum| quorum.metadata_level) {
        status.kafka_metadata_version = Some(versions::metadata_name(level));
    }
    if *progress == Progress::Ready {
        status.operator_last_successful_version = Some(world.settings.operator_version.clone());
    }
    status
}

/// Notices of a pool stand on the pool; those of the virtual pool have only the cluster to stand on.
fn world_has_no(world: &World, notice: &Notice) -> bool {
    notice.pool().is_some_and(|pool| !world.pools.contains_key(pool))
}

fn listeners(world: &World, cluster: &Cluster) -> Vec<api::ListenerStatus> {
    let served = cluster.listeners.iter().map(|listener| cluster.as_kept(listener));
    served.map(|listener| listener_status(world, cluster, &listener)).collect()
}

/// Where clients start, and what they are to trust. An address that is not known yet is left out.
fn listener_status(world: &World, cluster: &Cluster, listener: &ClientListener) -> api::ListenerStatus {
    let certificates = match listener.own_certificate() {
        Some(_) => own_certificates::published(world, listener).map(|certificate| vec![certificate]),
        None => listener.tls.then(|| certificates::for_clients(world)).flatten(),
    };
    // One that is cut off would be of no use.
    let certificates = certificates.map(|all| all.into_iter().filter(|one| is_short_enough(one)).collect());
    let found = first_of(address::bootstrap(world, cluster, listener));
    let is_known = !found.is_empty();
    let addresses = found
        .iter()
        .map(|(host, port)| api::ListenerAddress { host: Some(host.clone()), port: Some(i32::from(*port)) });
    let servers = found.iter().map(|(host, port)| Advertised { host: host.clone(), port: *port }.to_string());
    api::ListenerStatus {
        name: Some(listener.name.clone()),
        addresses: is_known.then(|| addresses.collect()),
        bootstrap_servers: is_known.then(|| servers.collect::<Vec<_>>().join(",")),
        certificates,
    }
}

fn is_short_enough(certificate: &str) -> bool {
    i64::try_from(certificate.len()).is_ok_and(|length| length <= bounds::CERTIFICATE)
}

/// As many addresses as a status takes. Clients need only one that answers.
fn first_of(addresses: BTreeSet<(String, u16)>) -> BTreeSet<(String, u16)> {
    addresses.into_iter().take(usize::try_from(bounds::ADDRESSES).unwrap_or(usize::MAX)).collect()
}

/// The new status of a pool.
pub fn of_pool(
    key: &ClusterKey,
    now: Timestamp,
    name: &str,
    pool: &api::KafkaNodePool,
    progress: &Progress,
    notices: &[Notice],
) -> api::KafkaNodePoolStatus {
    let mut status = pool.status.clone().unwrap_or_default();
    let mut conditions = progress.conditions();
    conditions.extend(notices.iter().filter(|notice| notice.pool() == Some(name)).map(warning));
    conditions.extend(said_before(pool, &conditions));
    status.conditions = Some(since(bounded(conditions), status.conditions.as_ref(), now));
    if progress.is_settled() {
        status.observed_generation = pool.metadata.generation;
    }
    if let Some(ids) = &status.node_ids {
        status.replicas = i32::try_from(ids.len()).ok();
        // It is written with the id, too, and stays: of a pool that is labelled over the id would be taken for that of this cluster.
        if status.cluster_id.is_none() {
            status.label_selector = Some(key.pool_selector_text(name));
        }
    }
    status
}

/// That annotations could not be followed is known only in the moment when nodes are added or removed. It stays said
/// as long as the annotations are there and the pool is not scaled again.
fn said_before(pool: &api::KafkaNodePool, now: &[api::Condition]) -> Vec<api::Condition> {
    let is_it =
        |condition: &&api::Condition| condition.reason.as_deref() == Some(Reason::NodeIdsIgnored.as_str());
    let status = pool.status.as_ref();
    let count = status.and_then(|status| status.node_ids.as_ref()).map(Vec::len);
    let is_scaled = count != usize::try_from(pool.spec.replicas).ok();
    let steers = pool
        .metadata
        .annotations
        .iter()
        .flatten()
        .any(|(key, _)| [NEXT_IDS_ANNOTATION, REMOVE_IDS_ANNOTATION].contains(&key.as_str()));
    if is_scaled || !steers || now.iter().any(|condition| is_it(&condition)) {
        return Vec::new();
    }
    status
        .and_then(|status| status.conditions.as_ref())
        .into_iter()
        .flatten()
        .filter(is_it)
        .cloned()
        .collect()
}

/// A merge patch that makes `old` into `new`, without the durable facts; `None` when they say the same.
pub fn patch<S: Serialize + PartialEq>(
    old: Option<&S>,
    new: &S,
    facts: &[&str],
) -> Result<Option<serde_json::Value>, serde_json::Error> {
    if old == Some(new) {
        return Ok(None);
    }
    let fields = |status: serde_json::Value| match status {
        serde_json::Value::Object(fields) => fields,
        _ => serde_json::Map::new(),
    };
    let old = fields(old.map(serde_json::to_value).transpose()?.unwrap_or_default());
    let mut changed = fields(serde_json::to_value(new)?);
    let removed: Vec<_> = old.keys().filter(|key| !changed.contains_key(*key)).cloned().collect();
    changed.retain(|key, value| old.get(key) != Some(value));
    changed.extend(removed.into_iter().map(|key| (key, serde_json::Value::Null)));
    changed.retain(|key, _| !facts.contains(&key.as_str()));
    Ok((!changed.is_empty()).then(|| serde_json::json!({ "status": changed })))
}

/// What is only told. Once it is written, nothing is decided otherwise than before.
const TOLD: &[&str] = &["conditions", "observedGeneration", "quorum", "pods", "readyPods", "currentPods"];

/// Does this part of a status only tell something, so that whoever wrote it need not look again because of it?
pub fn only_tells(status: &serde_json::Value) -> bool {
    status.as_object().is_some_and(|fields| fields.keys().all(|field| TOLD.contains(&field.as_str())))
}

/// Does the resource tell of this already?
pub(crate) fn has_said(world: &World, reason: Reason) -> bool {
    world.said().any(|condition| condition.reason.as_deref() == Some(reason.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_time_of_a_condition_moves_only_when_it_changes() {
        let first = since(not_ready(Reason::Creating, "1 of 3"), None, at(100));
        let later = since(not_ready(Reason::Creating, "2 of 3"), Some(&first), at(200));
        assert_eq!(later[0].last_transition_time, first[0].last_transition_time);
        let ready = since(Progress::Ready.conditions(), Some(&later), at(300));
        assert_eq!(ready[0].last_transition_time.as_deref(), Some("1970-01-01T00:05:00Z"));
    }

    #[test]
    fn a_status_is_never_larger_than_the_schema_takes() {
        let warning = |text: String| condition("Warning", true, Some((Reason::InvalidResource, &text)));
        let long = bounded(vec![warning("ä".repeat(40_000))]).remove(0).message.unwrap();
        assert!(long.len() <= 32_768 && long.ends_with("ä ... (the rest is left out)"), "{}", long.len());

        let mut many = Progress::Ready.conditions();
        many.extend((0..5000).map(|number| warning(number.to_string())));
        many.push(condition("QuorumHealthy", true, None));
        let told = bounded(many);
        assert_eq!(told.len(), 1 + WARNINGS + 1 + 1);
        let types: Vec<_> = told.iter().filter_map(|one| one.type_.as_deref()).collect();
        assert!(types.contains(&"Ready") && types.contains(&"QuorumHealthy"));
        assert!(told.last().unwrap().message.as_ref().unwrap().starts_with("4800 more warnings"));

        let heavy = (0..100).map(|_| warning("x".repeat(30_000))).collect();
        let bytes: usize = bounded(heavy).iter().map(|one| one.message.as_ref().unwrap().len()).sum();
        assert!(bytes < ALL_MESSAGES + 100, "{bytes}");
    }

    #[test]
    fn a_status_that_says_the_same_is_not_written() {
        let status = api::KafkaStatus { kafka_version: Some("4.1.1".into()), ..Default::default() };
        assert_eq!(patch(Some(&status), &status, &[]).unwrap(), None);
    }

    #[test]
    fn what_is_decided_on_later_does_not_only_tell() {
        let told = serde_json::json!({"conditions": [], "observedGeneration": 2, "quorum": {}});
        assert!(only_tells(&told));
        for field in ["kafkaVersion", "kafkaMetadataVersion", "clusterId", "nodeIds", "roles", "listeners"] {
            let mut status = told.clone();
            status[field] = serde_json::json!("anything");
            assert!(!only_tells(&status), "{field}");
        }
        assert!(!only_tells(&serde_json::Value::Null));
    }

    #[test]
    fn a_patch_never_holds_durable_facts() {
        let old = api::KafkaStatus { cluster_id: Some("a".into()), ..Default::default() };
        let new = api::KafkaStatus { kafka_version: Some("4.1.1".into()), ..Default::default() };
        let patch = patch(Some(&old), &new, &["clusterId"]).unwrap();
        assert_eq!(patch, Some(serde_json::json!({"status": {"kafkaVersion": "4.1.1"}})));
    }
}
