//! From the resources that users wrote to a [`Cluster`] that can be carried out, or to all that is wrong with them.

use std::collections::{BTreeMap, BTreeSet};

use karst_api as api;

use crate::authorization::Authorization;
use crate::cluster::{Cluster, Pool, Roles};
use crate::ids::NodeId;
use crate::listeners;
use crate::names::{self, ClusterKey, LONGEST_NAME};
use crate::notice::Notice;
use crate::pools;
use crate::problem::Problem;
use crate::upgrade;
use crate::versions::{self, KafkaVersion};
use crate::world::World;

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
    /// Must the quorum be asked, because nodes that may vote are to go?
    pub asks_quorum: bool,
}

/// Reads the resources, checks them, and holds what must not change while it runs.
pub fn resolve(world: &World) -> Resolved {
    let mut resolved = Resolved::default();
    let spec = &world.kafka.spec.kafka;
    resolved.problems.extend(name_problems(&world.key));
    let asked = find_version(spec, &mut resolved.problems);
    if let Some(asked) = asked {
        check_metadata(spec, asked, &mut resolved.problems);
    }
    let version = asked.map(|asked| upgrade::held(world, asked, &mut resolved.notices));
    let metadata_version = version.and_then(|version| upgrade::wanted_metadata(spec, version));
    let authorization = Authorization::read(spec.authorization.as_ref(), &mut resolved.problems);
    let listeners = listeners::resolve(&spec.listeners);
    resolved.problems.extend(listeners.problems);
    resolved.notices.extend(listeners.notices);

    let pools = pools::resolve(world, &mut resolved);
    check_cluster(world, &pools, &mut resolved);
    let (problems, notices) = listeners::check_brokers(&world.key, &listeners.served, &pools);
    resolved.problems.extend(problems);
    resolved.notices.extend(notices);
    if let (Some(version), Some(metadata_version), true) =
        (version, metadata_version, resolved.problems.is_empty())
    {
        resolved.cluster = Some(Cluster {
            key: world.key.clone(),
            version,
            metadata_version,
            image: image(world, spec, asked == Some(version), version),
            listeners: listeners.served,
            authorization,
            pools,
            domain: world.settings.cluster_domain.clone(),
        });
    }
    resolved
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

fn check_metadata(spec: &api::KafkaClusterSpec, kafka: &'static KafkaVersion, problems: &mut Vec<Problem>) {
    let Some(wanted) = spec.metadata_version.as_deref() else { return };
    if upgrade::wanted_metadata(spec, kafka).is_none() {
        problems.push(Problem::UnknownMetadataVersion {
            metadata: wanted.to_owned(),
            kafka: kafka.version,
            newest: kafka.metadata,
        });
    }
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
    if !pools.iter().any(|pool| pool.roles.has_controller() && pool.wanted > 0 && votes(pool)) {
        resolved.problems.push(Problem::NoController);
    }
    if !has(Roles::has_broker) {
        resolved.problems.push(Problem::NoBroker);
    }
}
