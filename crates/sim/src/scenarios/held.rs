//! What a person does about a broker that moved, and that is not made in its new pool because only its old disk has something.

use karst_core::ids::NodeId;
use karst_core::names::{NEXT_IDS_ANNOTATION, REMOVE_IDS_ANNOTATION, node_of_pod};

use super::edit::annotate;
use crate::sim::Sim;

/// Puts its id back into the pool where its disk is, as the warning says. Was there one?
pub(crate) fn put_back(sim: &mut Sim) -> bool {
    let Some((node, old)) = held(sim) else { return false };
    let is_of = |ids: &Option<Vec<i32>>| ids.as_ref().is_some_and(|ids| ids.contains(&node.0));
    let new = sim.api.pools().find(|pool| is_of(&pool.status.as_ref().and_then(|one| one.node_ids.clone())));
    let Some(new) = new.and_then(|pool| pool.metadata.name.clone()) else { return false };
    sim.tell(|| format!("user      puts node {} back into pool {old}", node.0));
    let ids = format!("[{}]", node.0);
    sim.api.edit_pool(&new, |pool| {
        annotate(&mut pool.metadata, REMOVE_IDS_ANNOTATION, &ids);
        pool.spec.replicas -= 1;
    });
    sim.api.edit_pool(&old, |pool| {
        annotate(&mut pool.metadata, NEXT_IDS_ANNOTATION, &ids);
        pool.spec.replicas += 1;
    });
    true
}

/// The node that is held, and the pool where its disk is.
fn held(sim: &Sim) -> Option<(NodeId, String)> {
    let status = sim.api.kafka()?.status.as_ref()?;
    let said = status.conditions.iter().flatten().filter(|one| one.reason.as_deref() == Some("DataLossHeld"));
    said.filter_map(|one| one.message.as_deref()).find_map(|message| {
        let pod = message.strip_prefix("pod ")?.split(' ').next()?;
        let pool = message.split_once("put back into pool '")?.1.split('\'').next()?;
        Some((node_of_pod(pod)?, pool.to_owned()))
    })
}
