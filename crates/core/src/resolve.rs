//! From the resources that users wrote to a [`Cluster`] that can be carried out, or to all that is wrong with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karst_api as api;

use crate::authorization::Authorization;
use crate::cluster::{Cluster, Kept, Pool, Roles};
use crate::departed;
use crate::ids::NodeId;
use crate::limits;
use crate::listeners;
use crate::logging;
use crate::metrics;
use crate::names::{self, ClusterKey, LONGEST_NAME};
use crate::notice::Notice;
use crate::podset;
use crate::pools;
use crate::privileges;
use crate::probes;
use crate::problem::Problem;
use crate::quorum_status;
use crate::rack;
use crate::references::Wish;
use crate::settings;
use crate::upgrade;
use crate::versions::{self, KafkaVersion};
use crate::world::{PodSetView, World};

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
    /// Nodes that are to go, or to stop serving, if no partition lives there: Kafka must be asked.
    pub partitions_of: BTreeSet<NodeId>,
    /// Brokers that must say what is in their directories, because a volume is to go.
    pub log_dirs_of: BTreeSet<NodeId>,
    /// Nodes that give up their place in one pool now, and start empty in another.
    pub moving: BTreeSet<NodeId>,
    /// The pods of all nodes that are to do so.
    pub to_move: BTreeSet<String>,
    /// The level of the metadata version that nodes have to get on with, as far as it is known.
    pub metadata_level: Option<i16>,
    /// Must the quorum be asked, because nodes that may vote are to go?
    pub asks_quorum: bool,
    /// Do nodes that vote no longer stay for the moment, because another leader could still undo that?
    pub awaits_commit: bool,
}

/// Reads the resources, checks them, and holds what must not change while it runs.
pub fn resolve(world: &World) -> Resolved {
    let mut resolved = Resolved::default();
    let spec = &world.kafka.spec.kafka;
    // Nothing else is looked at then: that would take too long.
    if let Some(problem) = limits::too_large(&world.kafka.spec) {
        resolved.problems.push(problem);
        return resolved;
    }
    resolved.problems.extend(limits::of_cluster(&world.kafka));
    resolved.problems.extend(name_problems(&world.key));
    let asked = find_version(spec, &mut resolved.problems);
    let version = asked.map(|asked| upgrade::held(world, asked, &mut resolved));
    let metadata_version =
        version.and_then(|version| upgrade::wanted_metadata(world, version, &mut resolved));
    resolved.metadata_level = upgrade::lowest_metadata(world, metadata_version);
    if let Some(version) = version {
        resolved.problems.extend(settings::problems(spec.config.as_ref(), version));
    }
    resolved.problems.extend(privileges::of_kafka(world));
    let authorization = Authorization::read(spec.authorization.as_ref(), &mut resolved.problems);
    let listeners =
        listeners::resolve(&spec.listeners, |name, port| listeners::kept::known_reach(world, name, port));
    resolved.problems.extend(listeners.problems);
    resolved.notices.extend(listeners.notices);

    let rack = rack::resolve(spec, &mut resolved.problems);
    probes::check(spec, &mut resolved.problems);
    let files = version.map(|version| Files {
        logging: or_kept(world, "logging", logging::wanted(world, version.logging), &mut resolved),
        metrics: metrics::wanted(world).map(|text| or_kept(world, "metrics", text, &mut resolved)),
    });

    let pools = pools::resolve(world, &mut resolved);
    resolved.problems.extend(limits::too_heavy(world, &listeners.served, &pools));
    check_cluster(world, &pools, &mut resolved);
    let (problems, notices) = listeners::check_brokers(&world.key, &listeners.served, &pools);
    resolved.problems.extend(problems);
    resolved.notices.extend(notices);
    if let (Some(version), Some(metadata_version), Some(files), true) =
        (version, metadata_version, files, resolved.problems.is_empty())
    {
        let kept = kept(world, &pools, &resolved.pool_problems);
        let mut cluster = Cluster {
            key: world.key.clone(),
            version,
            metadata_version,
            image: image(world, spec, asked == Some(version), version),
            listeners: listeners.served,
            kept_listeners: BTreeMap::new(),
            authorization,
            pools,
            kept,
            domain: world.settings.cluster_domain.clone(),
            logging: files.logging,
            metrics: files.metrics,
            rack,
            arriving: BTreeSet::new(),
        };
        departed::bring_back(world, &mut cluster, &mut resolved.notices);
        cluster.kept_listeners = listeners::kept::all(world, &cluster);
        resolved.cluster = Some(cluster);
    }
    resolved
}

/// The nodes of pools that are refused: those that their pod sets list. What they do, their pods tell, and of one that is not
/// there, the status, or else what its pod set asks for. Where every node's settings name all voters, those of pools that are not
/// there to be read count too: they run on, and a list without them is another quorum.
///
/// Whoever may write pod sets must not write that list: see [`of_set`]. A node of a pool that was read is none of another one, and where
/// two others name the same node, the last one counts: those that Karst described come last.
fn kept(world: &World, pools: &[Pool], refused: &BTreeMap<String, Vec<Problem>>) -> Vec<Kept> {
    let known: BTreeSet<String> = pools.iter().map(|pool| world.key.pod_set(&pool.name)).collect();
    let unread = world.pod_sets.keys().filter(|name| pools::quorum_is_fixed(world) && !known.contains(*name));
    let pools_of_sets = refused.keys().map(|pool| (world.key.pod_set(pool), world.pools.get(pool)));
    let mut sets: BTreeMap<_, _> = unread.map(|name| (name.clone(), None)).collect();
    sets.extend(pools_of_sets);
    let ours: BTreeSet<&String> = podset::described_by_karst(world).map(|(name, _)| name).collect();
    let (described, others): (Vec<_>, Vec<_>) = sets.into_iter().partition(|(name, _)| ours.contains(name));
    let read: BTreeSet<NodeId> = pools.iter().flat_map(|pool| pool.nodes.iter().copied()).collect();
    let mut kept = BTreeMap::new();
    for (name, pool) in others.into_iter().chain(described) {
        let Some(set) = world.pod_sets.get(&name) else { continue };
        let status = pool.and_then(|pool| pool.status.as_ref()?.roles.as_deref());
        for pod in of_set(world, set, ours.contains(&name)) {
            let runs =
                world.pods.get(pod).and_then(|pod| Roles::of(pod.runs_controller(), pod.runs_broker()));
            let roles = runs.or_else(|| Roles::parse(status?)).or_else(|| set.pods.get(pod)?.roles());
            let Some(id) = names::node_of_pod(pod).filter(|id| !read.contains(id)) else { continue };
            // What a description of somebody else says of it does not take its vote away.
            let votes = !ours.contains(&name) && quorum_status::has_voted(world, id);
            let roles =
                if votes { roles.map(Roles::with_controller).or(Some(Roles::Controller)) } else { roles };
            kept.extend(roles.map(|roles| (id, Kept { id, pod: pod.clone(), roles })));
        }
    }
    kept.into_values().collect()
}

/// The pods of a pod set that count: those that it lists, if Karst described them. Of a pod set that somebody else wrote, or changed,
/// they are those that run for it, and those that it lists of which Kafka said that they vote: it adds nobody to the voters, and takes
/// nobody away from them.
fn of_set<'a>(world: &'a World, set: &'a PodSetView, is_ours: bool) -> BTreeSet<&'a String> {
    let listed = set.pods.keys();
    if is_ours {
        return listed.collect();
    }
    let votes =
        |pod: &&String| names::node_of_pod(pod).is_some_and(|node| quorum_status::has_voted(world, node));
    let runs = world.pods.iter().filter(|(_, pod)| pod.meta.owners.contains(&set.meta.uid));
    listed.filter(votes).chain(runs.map(|(name, _)| name)).collect()
}

/// The files of nodes that users have a say in.
struct Files {
    logging: Wish,
    metrics: Option<Wish>,
}

/// A file that cannot be made stops a cluster that does not run yet; one that runs goes on with what it has.
fn or_kept(
    world: &World,
    what: &'static str,
    wanted: Result<Arc<str>, String>,
    resolved: &mut Resolved,
) -> Wish {
    match wanted {
        Ok(text) => return Wish::Text(text),
        Err(why) if world.config_maps.is_empty() && world.pods.is_empty() => {
            resolved.problems.push(Problem::File { why });
        }
        Err(why) => resolved.notices.push(Notice::FileKept { what, why }),
    }
    Wish::Kept
}

/// The image of the version that is run. One that the user names goes with the version that the user names.
fn image(world: &World, spec: &api::KafkaClusterSpec, as_asked: bool, version: &KafkaVersion) -> String {
    let named = spec.image.clone().filter(|_| as_asked);
    named.unwrap_or_else(|| world.settings.kafka_image(version.version))
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

pub(crate) fn too_long(name: &str, made: String) -> Option<Problem> {
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

/// What only shows in the cluster as a whole. A pool that is not valid stops a cluster that does not run yet;
/// one that runs goes on without the change.
fn check_cluster(world: &World, pools: &[Pool], resolved: &mut Resolved) {
    if !resolved.problems.is_empty() {
        return;
    }
    if !resolved.pool_problems.is_empty() {
        if !pools::quorum_is_formed(world) {
            let pools = resolved.pool_problems.keys().cloned().collect::<Vec<_>>().join(", ");
            resolved.problems.push(Problem::InvalidPools { pools });
        }
        return;
    }
    let has = |role: fn(Roles) -> bool| pools.iter().any(|pool| role(pool.roles) && pool.wanted > 0);
    let votes = |pool: &Pool| pool.nodes.iter().any(|node| !pool.leaving.contains(node));
    // While all of them move to another pool, the nodes of the one vote, and those of the other are wanted.
    let wants = |pool: &Pool| pool.wanted > 0 && (pool.nodes.is_empty() || votes(pool));
    let controllers = || pools.iter().filter(|pool| pool.roles.has_controller());
    if !controllers().any(wants) || !controllers().any(votes) {
        resolved.problems.push(Problem::NoController);
    }
    if !has(Roles::has_broker) {
        resolved.problems.push(Problem::NoBroker);
    }
}
