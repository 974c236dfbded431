//! Who the cluster is: its id and the controllers that formed its quorum.
//!
//! Both are written once, before the first pod, and only read afterwards. Guessing here loses data: a cluster
//! that exists already must never be formed a second time.

use karst_api as api;

use crate::cluster::Cluster;
use crate::ids::ClusterId;
use crate::problem::Problem;
use crate::quorum::InitialControllers;
use crate::world::World;

/// The cluster's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its id.
    pub cluster_id: ClusterId,
    /// Who formed its quorum.
    pub initial: InitialControllers,
    /// Is it in the status already? Nothing may be built on it before.
    pub is_durable: bool,
}

/// Reads the identity from the status, or makes one for a cluster of which nothing exists.
pub fn resolve(world: &World, cluster: &Cluster) -> Result<Identity, Problem> {
    let empty = api::KafkaStatus::default();
    let status = world.kafka.status.as_ref().unwrap_or(&empty);
    let known_id = status.cluster_id.clone().map(ClusterId);
    let known_list = status.initial_controllers.as_deref().map(InitialControllers::parse).transpose()?;
    match (known_id, known_list) {
        (Some(cluster_id), Some(initial)) => Ok(Identity { cluster_id, initial, is_durable: true }),
        (None, Some(initial)) => {
            let cluster_id = id_of_pools(world)?.ok_or(Problem::ClusterIdGone)?;
            Ok(Identity { cluster_id, initial, is_durable: false })
        }
        (known_id, None) => {
            let cluster_id = match known_id {
                Some(id) => Some(id),
                None => id_of_pools(world)?,
            };
            refuse_to_form_again(world, cluster_id.as_ref())?;
            let hosts = cluster.controllers().into_iter().map(|node| (node.id, cluster.host(node)));
            Ok(Identity {
                cluster_id: cluster_id.unwrap_or_else(|| world.entropy.cluster_id()),
                initial: InitialControllers::form(hosts, &world.entropy),
                is_durable: false,
            })
        }
    }
}

/// The id that the pools remember. It survives the deletion of the `Kafka` resource.
fn id_of_pools(world: &World) -> Result<Option<ClusterId>, Problem> {
    let ids: Vec<(&String, &String)> = world
        .pools
        .iter()
        .filter_map(|(name, pool)| Some((name, pool.status.as_ref()?.cluster_id.as_ref()?)))
        .collect();
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

/// Whatever is left of an earlier life may hold data or votes.
fn refuse_to_form_again(world: &World, cluster_id: Option<&ClusterId>) -> Result<(), Problem> {
    let list = |names: Vec<&String>| names.into_iter().cloned().collect::<Vec<_>>().join(", ");
    let running: Vec<_> = world.pod_sets.keys().chain(world.pods.keys()).collect();
    let claims: Vec<_> = world.claims.keys().collect();
    match cluster_id {
        Some(id) if !running.is_empty() || !claims.is_empty() => Err(Problem::UnknownQuorum {
            cluster_id: id.to_string(),
            found: list(running.into_iter().chain(claims).collect()),
        }),
        None if !claims.is_empty() => Err(Problem::ClaimsWithoutStatus { claims: list(claims) }),
        None if !running.is_empty() => {
            Err(Problem::UnknownQuorum { cluster_id: "unknown".to_owned(), found: list(running) })
        }
        _ => Ok(()),
    }
}
