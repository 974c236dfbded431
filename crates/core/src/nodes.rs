//! Which nodes a pool runs: what it asks for, less what is not safe to do.
//!
//! Nodes come at once. A node goes only when nothing needs it: no partition lives there, or, when it moves to another
//! pool, every partition is safe without it. Controllers of a formed quorum neither come nor go. An id is given up
//! only after its pod is gone, so that the same id is never alive twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Pool;
use crate::id_list::IdList;
use crate::ids::NodeId;
use crate::names::{NEXT_IDS_ANNOTATION, REMOVE_IDS_ANNOTATION, SKIP_CHECK_ANNOTATION, is_true};
use crate::node_ids::{self, Assignment, Demand};
use crate::notice::Notice;
use crate::pools::quorum_is_formed;
use crate::problem::Problem;
use crate::resolve::Resolved;
use crate::world::{Answer, PartitionView, World};

/// How many partitions a message names before it only counts.
const NAMED: usize = 10;

/// A pool that is valid, without its nodes.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) pool: Pool,
    pub(crate) current: BTreeSet<NodeId>,
    pub(crate) replicas: usize,
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Gives every pool its nodes.
pub(crate) fn settle(
    world: &World,
    checked: Vec<Checked>,
    taken: &BTreeSet<NodeId>,
    resolved: &mut Resolved,
) -> Vec<Pool> {
    let demands: Vec<_> = checked.iter().map(|pool| demand(world, pool, &mut resolved.notices)).collect();
    for (node, one, other) in node_ids::duplicates(&demands) {
        let pod = world.key.pod(other, node);
        resolved.problems.push(Problem::NodeIdTwice {
            node,
            one: one.to_owned(),
            other: other.to_owned(),
            pod,
        });
    }
    let assignments = node_ids::assign(&demands, taken);
    let awaited: BTreeSet<NodeId> = assignments.iter().flat_map(|one| one.awaited.iter().copied()).collect();
    let mut pools = Vec::new();
    for ((checked, demand), assignment) in checked.into_iter().zip(&demands).zip(&assignments) {
        report(&checked, demand, assignment, &mut resolved.notices);
        let mut guard = Guard { world, pool: &checked.pool.name, awaited: &awaited, resolved };
        let staying = guard.staying(&assignment.removed);
        let still_there =
            assignment.removed.iter().filter(|node| is_there(world, &checked.pool.name, **node));
        let run: BTreeSet<NodeId> =
            assignment.kept.iter().chain(&assignment.added).chain(&staying).copied().collect();
        let ids: BTreeSet<NodeId> = run.iter().chain(still_there).copied().collect();
        let (nodes, ids) = (run.into_iter().collect(), ids.into_iter().collect());
        pools.push(Pool { nodes, ids, ..checked.pool });
    }
    pools
}

/// What a pool asks for, less what is held whatever Kafka says.
fn demand(world: &World, checked: &Checked, notices: &mut Vec<Notice>) -> Demand {
    let pool = &checked.pool;
    let mut wanted = if pool.is_going { 0 } else { checked.replicas };
    if pool.roles.has_controller() && quorum_is_formed(world) && wanted != checked.current.len() {
        wanted = checked.current.len();
        notices.push(match pool.is_going {
            true => Notice::DeletionHeld { pool: pool.name.clone(), nodes: list(&checked.current) },
            false => Notice::ControllersHeld {
                pool: pool.name.clone(),
                wanted: checked.replicas,
                kept: checked.current.len(),
            },
        });
    }
    let is_scaled = wanted != checked.current.len();
    Demand {
        pool: pool.name.clone(),
        current: checked.current.clone(),
        wanted,
        next: steering(checked, NEXT_IDS_ANNOTATION, is_scaled, notices),
        remove: steering(checked, REMOVE_IDS_ANNOTATION, is_scaled, notices),
    }
}

/// Reads a list of ids from an annotation. What cannot be read matters only when the pool is scaled.
fn steering(
    checked: &Checked,
    annotation: &'static str,
    is_scaled: bool,
    notices: &mut Vec<Notice>,
) -> IdList {
    let Some(text) = checked.annotations.get(annotation) else { return IdList::default() };
    text.parse().unwrap_or_else(|error| {
        if is_scaled {
            notices.push(Notice::IdsIgnored {
                pool: checked.pool.name.clone(),
                annotation,
                asked: text.clone(),
                what: format!("{error}; the default rule was used"),
            });
        }
        IdList::default()
    })
}

/// Says what of the annotations could not be followed.
fn report(checked: &Checked, demand: &Demand, assignment: &Assignment, notices: &mut Vec<Notice>) {
    let pool = || checked.pool.name.clone();
    if !assignment.awaited.is_empty() {
        notices.push(Notice::IdsAwaited { pool: pool(), ids: list(&assignment.awaited) });
    }
    if !assignment.not_as_asked.is_empty() {
        notices.push(Notice::IdsIgnored {
            pool: pool(),
            annotation: NEXT_IDS_ANNOTATION,
            asked: demand.next.to_string(),
            what: format!(
                "no more of these ids are free; the new nodes got {}",
                list(&assignment.not_as_asked)
            ),
        });
    }
    if !assignment.removed_not_as_asked.is_empty() {
        notices.push(Notice::IdsIgnored {
            pool: pool(),
            annotation: REMOVE_IDS_ANNOTATION,
            asked: demand.remove.to_string(),
            what: format!(
                "no more of these ids belong to the pool; {} go instead",
                list(&assignment.removed_not_as_asked)
            ),
        });
    }
}

/// Decides which of the nodes that are to go must stay.
struct Guard<'a> {
    world: &'a World,
    pool: &'a str,
    awaited: &'a BTreeSet<NodeId>,
    resolved: &'a mut Resolved,
}

impl Guard<'_> {
    fn staying(&mut self, removed: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let skip = is_true(self.world.kafka.metadata.annotations.as_ref(), SKIP_CHECK_ANNOTATION);
        // What is no longer asked for by the pod set was checked before, and is on its way out.
        let asked: BTreeSet<NodeId> = removed
            .iter()
            .copied()
            .filter(|node| !skip && is_asked_for(self.world, self.pool, *node))
            .collect();
        if asked.is_empty() {
            return asked;
        }
        match &self.world.answers.partitions {
            Answer::NotAsked => {
                self.resolved.partitions_of.extend(&asked);
                self.resolved.moved.extend(asked.intersection(self.awaited));
                asked
            }
            Answer::Silent(why) => {
                let (pool, nodes) = (self.pool.to_owned(), list(&asked));
                self.resolved.notices.push(Notice::PartitionsUnknown { pool, nodes, why: why.clone() });
                asked
            }
            Answer::Known(partitions) => {
                asked.into_iter().filter(|node| self.must_stay(*node, partitions)).collect()
            }
        }
    }

    fn must_stay(&mut self, node: NodeId, partitions: &[PartitionView]) -> bool {
        let here: Vec<_> = partitions.iter().filter(|partition| partition.replicas.contains(&node)).collect();
        let pool = self.pool.to_owned();
        if self.awaited.contains(&node) {
            let unsafe_without: Vec<_> =
                here.into_iter().filter(|partition| !is_safe_without(partition, node)).collect();
            let stays = !unsafe_without.is_empty();
            if stays {
                let partitions = name(&unsafe_without);
                self.resolved.notices.push(Notice::MoveHeld { pool, node, partitions });
            }
            return stays;
        }
        let stays = !here.is_empty();
        if stays {
            self.resolved.notices.push(Notice::PartitionsHere { pool, node, partitions: name(&here) });
        }
        stays
    }
}

/// Would the partition keep its data and take writes while the node starts empty?
fn is_safe_without(partition: &PartitionView, node: NodeId) -> bool {
    let others = partition.in_sync.iter().filter(|other| **other != node).count();
    others >= partition.min_in_sync.max(1)
}

/// Does the pool's pod set ask for the node's pod?
fn is_asked_for(world: &World, pool: &str, node: NodeId) -> bool {
    let set = world.pod_sets.get(&world.key.pod_set(pool));
    set.is_some_and(|set| set.pods.contains_key(&world.key.pod(pool, node)))
}

/// Is anything of the node's pod there, or about to be?
fn is_there(world: &World, pool: &str, node: NodeId) -> bool {
    world.pods.contains_key(&world.key.pod(pool, node)) || is_asked_for(world, pool, node)
}

fn list(ids: &BTreeSet<NodeId>) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn name(partitions: &[&PartitionView]) -> String {
    let named: Vec<_> = partitions.iter().take(NAMED).map(ToString::to_string).collect();
    match partitions.len().saturating_sub(NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}
