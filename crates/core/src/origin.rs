//! Whose the pod sets and pods are that carry a cluster's labels. It is judged here, once, before anything is decided on them.
//!
//! Labels can be written by whoever may create a pod or a pod set. So they neither make another operator's cluster ours, nor do they
//! take one away from Karst that it runs. What counts is what only an operator writes: the statuses.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::departed;
use crate::notice::Notice;
use crate::podset;
use crate::pools;
use crate::problem::Problem;
use crate::world::{Meta, PodSetView, PodView, World};

/// Who runs a cluster.
pub(crate) enum Runs {
    /// Karst does, or nobody yet.
    Karst {
        /// What is true of it without what others labelled as its own, if they did.
        without_others: Option<Box<World>>,
        /// What that is.
        strangers: Vec<Notice>,
    },
    /// Another operator does. What it made is not ours to change.
    Another(Problem),
}

/// Finds out.
pub(crate) fn judge(world: &World) -> Runs {
    let sets = world.pod_sets.values().filter(|set| set.meta.other_manager().is_some());
    let pods = world.pods.values().filter(|pod| pod.meta.other_manager().is_some());
    let found: Vec<(&str, &Meta)> =
        sets.map(|set| ("StrimziPodSet", &set.meta)).chain(pods.map(|pod| ("Pod", &pod.meta))).collect();
    let Some((kind, first)) = found.first() else {
        return Runs::Karst { without_others: None, strangers: Vec::new() };
    };
    let places = places(world);
    if !is_run_by_karst(world, &places) {
        let (object, manager) = (format!("{kind} {}", first.name), manager_of(first));
        return Runs::Another(Problem::OtherOperator { object, manager });
    }
    without_strangers(world, &places)
}

/// The names of the pod sets that the cluster has, or is to have.
fn places(world: &World) -> BTreeSet<String> {
    let pools = pools::names(&world.kafka, &world.pools).into_iter().chain([departed::POOL]);
    pools.map(|pool| world.key.pod_set(pool)).collect()
}

/// Whoever looks after the pod sets of the cluster's pools runs it: pod sets get their status from an operator, and from nobody else.
/// Where that says nothing, or both (somebody took our label off), the status of the `Kafka` resource tells: the list of initial
/// controllers is written by Karst alone.
fn is_run_by_karst(world: &World, places: &BTreeSet<String>) -> bool {
    let mut by_karst = false;
    let mut by_another = false;
    for (name, set) in world.pod_sets.iter().filter(|(name, _)| places.contains(*name)) {
        let is_looked_after = podset::was_looked_after(set, world.memory.rendered.get(name));
        by_karst |= is_looked_after && set.meta.other_manager().is_none();
        by_another |= is_looked_after && set.meta.other_manager().is_some();
    }
    match by_karst == by_another {
        true => pools::quorum_is_dynamic(world),
        false => by_karst,
    }
}

/// The world without pod sets that have no place in the cluster, and without pods that none of its pod sets owns, where others made
/// them. A pod set of the cluster's own that lost its label is written anew, as after any other change of it.
fn without_strangers(world: &World, places: &BTreeSet<String>) -> Runs {
    let is_set_ours =
        |name: &String, set: &PodSetView| set.meta.other_manager().is_none() || places.contains(name);
    let mut ours = world.clone();
    ours.pod_sets.retain(|name, set| is_set_ours(name, set));
    let sets: BTreeSet<String> = ours.pod_sets.values().map(|set| set.meta.uid.clone()).collect();
    let is_pod_ours = |pod: &PodView| {
        pod.meta.other_manager().is_none() || pod.meta.owners.iter().any(|owner| sets.contains(owner))
    };
    ours.pods.retain(|_, pod: &mut Arc<PodView>| is_pod_ours(pod));
    let other_sets = world.pod_sets.iter().filter(|(name, _)| !ours.pod_sets.contains_key(*name));
    let other_pods = world.pods.iter().filter(|(name, _)| !ours.pods.contains_key(*name));
    let strangers: Vec<_> = other_sets
        .map(|(_, set)| notice("StrimziPodSet", &set.meta))
        .chain(other_pods.map(|(_, pod)| notice("Pod", &pod.meta)))
        .collect();
    Runs::Karst { without_others: Some(Box::new(ours)), strangers }
}

fn notice(kind: &str, meta: &Meta) -> Notice {
    Notice::NotOfCluster { object: format!("{kind} {}", meta.name), manager: manager_of(meta) }
}

fn manager_of(meta: &Meta) -> String {
    meta.other_manager().unwrap_or_default().to_owned()
}
