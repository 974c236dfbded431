//! Who the cluster is: its id and the controllers that formed its quorum.
//!
//! Both are written once, before the first pod, and only read afterwards. Guessing here loses data: a cluster
//! that exists already must never be formed a second time.

use karst_api as api;

use crate::cluster::Cluster;
use crate::ids::{ClusterId, NodeId};
use crate::problem::Problem;
use crate::quorum::InitialControllers;
use crate::world::World;

/// The cluster's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its id. Unknown when only disks are left: then nodes start on those as they are, none is formatted, and Kafka tells.
    pub cluster_id: Option<ClusterId>,
    /// Who formed its quorum. Unknown when the status was lost, with the `Kafka` resource or otherwise: then no node
    /// may form a quorum, and the voters themselves tell when they are up again.
    pub initial: Option<InitialControllers>,
    /// Is it in the status already? Nothing may be built on it before.
    pub is_durable: bool,
}

fn controllers(cluster: &Cluster) -> impl Iterator<Item = (NodeId, String)> {
    cluster.controllers().into_iter().map(|node| (node.id, cluster.host(node)))
}

/// Reads the identity from the status, or makes one for a cluster of which nothing exists.
pub fn resolve(world: &World, cluster: &Cluster) -> Result<Identity, Problem> {
    let empty = api::KafkaStatus::default();
    let status = world.kafka.status.as_ref().unwrap_or(&empty);
    let known_id = status.cluster_id.clone().map(ClusterId);
    let known_list = status.initial_controllers.as_deref().map(InitialControllers::parse).transpose()?;
    match (known_id, known_list) {
        (Some(cluster_id), Some(initial)) => {
            Ok(Identity { cluster_id: Some(cluster_id), initial: Some(initial), is_durable: true })
        }
        (None, Some(initial)) => {
            let cluster_id = id_of_pools(world)?.ok_or(Problem::ClusterIdGone)?;
            Ok(Identity { cluster_id: Some(cluster_id), initial: Some(initial), is_durable: false })
        }
        // Whoever has an id exists, though its disks may be ones that nobody has labelled yet.
        (Some(cluster_id), None) => Ok(existing(world, cluster, cluster_id, true)),
        (None, None) => match (id_of_pools(world)?, has_remains(world)) {
            (cluster_id, false) => Ok(Identity {
                cluster_id: Some(cluster_id.unwrap_or_else(|| world.entropy.cluster_id())),
                initial: Some(InitialControllers::form(controllers(cluster), &world.entropy)),
                is_durable: false,
            }),
            (Some(cluster_id), true) => Ok(existing(world, cluster, cluster_id, false)),
            (None, true) => Ok(id_in_kafka(world)
                .map_or(Identity { cluster_id: None, initial: None, is_durable: true }, |cluster_id| {
                    existing(world, cluster, cluster_id, false)
                })),
        },
    }
}

/// Are there disks, or more, of a cluster that no resource remembers?
pub(crate) fn is_forgotten(world: &World) -> bool {
    let is_known = world
        .kafka
        .status
        .as_ref()
        .is_some_and(|status| status.cluster_id.is_some() || status.initial_controllers.is_some());
    !is_known && has_remains(world) && matches!(id_of_pools(world), Ok(None))
}

/// The id by which the nodes know each other. That a leader was elected proves that their disks belong together.
fn id_in_kafka(world: &World) -> Option<ClusterId> {
    world.answers.quorum.known()?.cluster_id.clone().map(ClusterId)
}

/// A cluster that exists, and whose list is unknown until its voters tell.
fn existing(world: &World, cluster: &Cluster, cluster_id: ClusterId, has_id: bool) -> Identity {
    let initial = from_voters(world, cluster);
    Identity { cluster_id: Some(cluster_id), is_durable: has_id && initial.is_none(), initial }
}

/// The list as the voters would have formed it: for a cluster that exists, and whose list was lost.
fn from_voters(world: &World, cluster: &Cluster) -> Option<InitialControllers> {
    let voters = &world.answers.quorum.known()?.voters;
    let host = |node: NodeId| {
        let controllers = cluster.controllers();
        controllers.into_iter().find(|known| known.id == node).map(|known| cluster.host(known))
    };
    let all: Option<Vec<_>> =
        voters.iter().map(|voter| Some((voter.node, host(voter.node)?, voter.directory?))).collect();
    all.filter(|all| !all.is_empty()).map(InitialControllers::of_voters)
}

/// The id that a pool remembers, when it is that of this cluster.
///
/// A pool that was labelled as another cluster's remembers the other one's id. Which cluster it worked for last stands in its
/// selector; where that is not said, only remains of this cluster prove that there was one before.
pub(crate) fn id_of_pool<'a>(world: &World, name: &str, pool: &'a api::KafkaNodePool) -> Option<&'a String> {
    let status = pool.status.as_ref()?;
    let is_its = match &status.label_selector {
        Some(selector) => *selector == world.key.pool_selector_text(name),
        None => has_remains(world),
    };
    status.cluster_id.as_ref().filter(|_| is_its)
}

/// The id that the pools remember. It survives the deletion of the `Kafka` resource.
fn id_of_pools(world: &World) -> Result<Option<ClusterId>, Problem> {
    let ids: Vec<(&String, &String)> =
        world.pools.iter().filter_map(|(name, pool)| Some((name, id_of_pool(world, name, pool)?))).collect();
    match ids.split_first() {
        None => Ok(None),
        Some(((_, first), others)) if others.iter().all(|(_, id)| id == first) => {
            Ok(Some(ClusterId((*first).clone())))
        }
        Some(_) => {
            let found: Vec<_> = ids.iter().map(|(pool, id)| format!("{pool}: {id}")).collect();
            Err(Problem::PoolsDisagree { found: found.join(", ") })
        }
    }
}

/// Is anything left of an earlier life? It may hold data or votes, so the cluster must not be formed again.
pub(crate) fn has_remains(world: &World) -> bool {
    !(world.pod_sets.is_empty() && world.pods.is_empty() && world.claims.is_empty())
}
