//! Which nodes a pool runs: what it asks for, less what is not safe to do.
//!
//! Nodes come at once. A node goes only when nothing needs it: no partition lives there, or, when it moves to another
//! pool, every partition is safe without it ([`crate::safety`]); and it has left the quorum, if it was a voter. Nodes move one
//! after the other: the next one when the last one is back. An id is given up only after its pod is gone, so that the same id is
//! never alive twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Pool;
use crate::health::{self, list};
use crate::id_list::IdList;
use crate::ids::NodeId;
use crate::names::{NEXT_IDS_ANNOTATION, REMOVE_IDS_ANNOTATION, SKIP_CHECK_ANNOTATION, is_true, node_of_pod};
use crate::node_ids::{self, Assignment, Demand};
use crate::notice::Notice;
use crate::pools::quorum_is_fixed;
use crate::problem::Problem;
use crate::quorum_status;
use crate::resolve::Resolved;
use crate::safety::{self, Disks, Judge, Service, Stop};
use crate::world::{Answer, PartitionView, World};

/// A pool that is valid, without its nodes.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) pool: Pool,
    pub(crate) current: BTreeSet<NodeId>,
    pub(crate) replicas: usize,
    /// Are its nodes to vote no longer, though they stay?
    pub(crate) leaves_quorum: bool,
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
    let mut mover = None;
    for ((checked, demand), assignment) in checked.into_iter().zip(&demands).zip(&assignments) {
        report(&checked, demand, assignment, &mut resolved.notices);
        let mut guard = Guard { world, pool: &checked.pool, awaited: &awaited, mover: &mut mover, resolved };
        let Staying { held, leaving } = guard.staying(&assignment.removed);
        let still_there =
            assignment.removed.iter().filter(|node| is_there(world, &checked.pool.name, **node));
        let wanted = assignment.kept.len() + assignment.added.len() + assignment.awaited.len();
        let run: BTreeSet<NodeId> =
            assignment.kept.iter().chain(&assignment.added).chain(&held).chain(&leaving).copied().collect();
        let ids: BTreeSet<NodeId> = run.iter().chain(still_there).copied().collect();
        let leaving = if checked.leaves_quorum { run.clone() } else { leaving };
        let (nodes, ids) = (run.into_iter().collect(), ids.into_iter().collect());
        pools.push(Pool { nodes, ids, wanted, leaving, ..checked.pool });
    }
    pools
}

/// What a pool asks for, less what is held whatever Kafka says: the controllers of a quorum that cannot be changed.
fn demand(world: &World, checked: &Checked, notices: &mut Vec<Notice>) -> Demand {
    let pool = &checked.pool;
    let mut wanted = if pool.is_going { 0 } else { checked.replicas };
    if pool.roles.has_controller() && quorum_is_fixed(world) && wanted != checked.current.len() {
        wanted = checked.current.len();
        notices.push(Notice::ControllersHeld { pool: pool.name.clone(), kept: list(&checked.current) });
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

/// Nodes that are to go and do not go yet.
#[derive(Debug, Default)]
struct Staying {
    /// Something needs them.
    held: BTreeSet<NodeId>,
    /// They vote, and have to leave the quorum first.
    leaving: BTreeSet<NodeId>,
}

/// Decides which of the nodes that are to go must stay.
struct Guard<'a> {
    world: &'a World,
    pool: &'a Pool,
    awaited: &'a BTreeSet<NodeId>,
    /// The one node that moves now, of all pools.
    mover: &'a mut Option<NodeId>,
    resolved: &'a mut Resolved,
}

impl Guard<'_> {
    fn staying(&mut self, removed: &BTreeSet<NodeId>) -> Staying {
        let (asked, unlisted): (BTreeSet<NodeId>, BTreeSet<NodeId>) =
            removed.iter().partition(|node| is_asked_for(self.world, &self.pool.name, **node));
        // What the pod set no longer lists was free to go once. As long as its pod is not told to, it serves, and Kafka goes on
        // giving it partitions: an operator that dies in between may be away for long. Whoever got some is listed again.
        let unlisted = unlisted.into_iter().filter(|node| is_to_stop(self.world, &self.pool.name, *node));
        let held = self.held_by_partitions(&asked.iter().copied().chain(unlisted).collect());
        let free: BTreeSet<NodeId> = asked.difference(&held).copied().collect();
        let leaving = self.still_voting(&free);
        let gone = free.difference(&leaving).copied();
        self.resolved.moving.extend(gone.filter(|node| self.awaited.contains(node)));
        Staying { held, leaving }
    }

    fn held_by_partitions(&mut self, asked: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let skip = is_true(self.world.kafka.metadata.annotations.as_ref(), SKIP_CHECK_ANNOTATION);
        let serves =
            |node: &NodeId| self.pool.roles.has_broker() || runs(self.world, self.pool, *node).broker;
        let (moving, going): (BTreeSet<_>, BTreeSet<_>) =
            asked.iter().partition(|node| self.awaited.contains(node));
        let going: BTreeSet<NodeId> = going.into_iter().filter(|node| !skip && serves(node)).collect();
        let of: BTreeSet<NodeId> =
            moving.iter().copied().filter(serves).chain(going.iter().copied()).collect();
        let partitions = self.world.answers.partitions_of(&of);
        match &partitions {
            Answer::NotAsked if !of.is_empty() => {
                self.resolved.partitions_of.extend(&of);
                return of.union(&moving).copied().collect();
            }
            Answer::Silent(why) if !going.is_empty() => {
                let (pool, nodes, why) = (self.pool.name.clone(), list(&going), why.clone());
                self.resolved.notices.push(Notice::PartitionsUnknown { pool, nodes, why });
            }
            _ => {}
        }
        let judge = Judge::new(self.world, &partitions);
        let is_known = partitions.known().is_some();
        let mut held: BTreeSet<NodeId> =
            going.into_iter().filter(|node| !is_known || self.must_stay(*node, judge.on(*node))).collect();
        let missing = if moving.is_empty() { BTreeSet::new() } else { safety::nodes_missing(self.world) };
        for node in moving {
            self.resolved.to_move.insert(self.world.key.pod(&self.pool.name, node));
            // One that is on its way already has had its turn.
            let has_begun = !is_asked_for(self.world, &self.pool.name, node);
            let has_turn = |guard: &mut Self| has_begun || guard.has_its_turn(node, &missing);
            if serves(&node) && !self.may_move(node, &judge) || !has_turn(self) {
                held.insert(node);
            }
        }
        held
    }

    fn must_stay(&mut self, node: NodeId, here: &[&PartitionView]) -> bool {
        let stays = !here.is_empty();
        if stays {
            let partitions = health::some_of(here);
            self.resolved.notices.push(Notice::PartitionsHere {
                pool: self.pool.name.clone(),
                node,
                partitions,
            });
        }
        stays
    }

    /// It starts empty in its new pool: what it has must be everywhere else.
    fn may_move(&mut self, node: NodeId, judge: &Judge<'_>) -> bool {
        let stop = Stop::from([(node, Disks::Go)]);
        let pod = self.world.key.pod(&self.pool.name, node);
        let Some(obstacle) = judge.obstacle(node, &Service::Serves, &stop) else { return true };
        if safety::is_allowed_to_lose(self.world, &pod) {
            return true;
        }
        let (why, pool) = (obstacle.to_string(), self.pool.name.clone());
        self.resolved.notices.push(match obstacle.needs_a_person() {
            true => Notice::LossHeld { pool, pod, why },
            false => Notice::MoveHeld { pool, node, why },
        });
        false
    }

    /// One node moves at a time: the next one when the last one serves and votes again.
    fn has_its_turn(&mut self, node: NodeId, missing: &BTreeSet<NodeId>) -> bool {
        let missing: BTreeSet<NodeId> = missing.iter().copied().filter(|other| *other != node).collect();
        let why = match *self.mover {
            Some(other) => format!("node {other} moves first"),
            None if !missing.is_empty() => format!("these do not serve: {}", list(&missing)),
            None => match self.voters_missing(node) {
                missing if missing.is_empty() => {
                    *self.mover = Some(node);
                    return true;
                }
                missing => format!("these controllers do not vote, or lag behind: {}", list(&missing)),
            },
        };
        self.resolved.notices.push(Notice::MoveHeld { pool: self.pool.name.clone(), node, why });
        false
    }

    /// Other controllers that run, and that are no voters, or not as good ones as they could be. Who gives up its vote needs all of
    /// them.
    fn voters_missing(&self, node: NodeId) -> BTreeSet<NodeId> {
        if !runs(self.world, self.pool, node).controller {
            return BTreeSet::new();
        }
        let pods = self.world.pods.iter().filter(|(_, pod)| pod.runs_controller());
        let others = pods.filter_map(|(name, _)| node_of_pod(name)).filter(|other| *other != node);
        // Whether it votes is asked before it goes; who is silent then, holds it.
        let Some(quorum) = self.world.answers.quorum.known() else { return others.collect() };
        let healthy = health::caught_up_without(self.world, quorum, node);
        others.filter(|other| !healthy.contains(other)).collect()
    }

    /// Nodes that vote, or may do so as far as anybody can tell.
    fn still_voting(&mut self, nodes: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let votes =
            |node: &NodeId| self.pool.roles.has_controller() || runs(self.world, self.pool, *node).controller;
        let nodes: BTreeSet<NodeId> = nodes.iter().copied().filter(votes).collect();
        if nodes.is_empty() {
            return nodes;
        }
        match &self.world.answers.quorum {
            Answer::NotAsked => {
                self.resolved.asks_quorum = true;
                nodes
            }
            Answer::Silent(why) => {
                // A leader that was just elected, or is about to be, is not worth a warning.
                if quorum_status::is_silent_for_long(self.world) {
                    let (pool, nodes, why) = (self.pool.name.clone(), list(&nodes), why.clone());
                    self.resolved.notices.push(Notice::QuorumUnknown { pool, nodes, why });
                }
                nodes
            }
            Answer::Known(quorum) if quorum.is_committed => {
                nodes.into_iter().filter(|node| quorum.has_voter(*node)).collect()
            }
            Answer::Known(quorum) => {
                self.resolved.awaits_commit |= nodes.iter().any(|node| !quorum.has_voter(*node));
                nodes
            }
        }
    }
}

/// What a node's pod does now, whatever its pool asks for.
struct Runs {
    controller: bool,
    broker: bool,
}

fn runs(world: &World, pool: &Pool, node: NodeId) -> Runs {
    let pod = world.pods.get(&world.key.pod(&pool.name, node));
    Runs {
        controller: pod.is_some_and(|pod| pod.runs_controller()),
        broker: pod.is_some_and(|pod| pod.runs_broker()),
    }
}

/// Does the pool's pod set ask for the node's pod?
fn is_asked_for(world: &World, pool: &str, node: NodeId) -> bool {
    let set = world.pod_sets.get(&world.key.pod_set(pool));
    set.is_some_and(|set| set.pods.contains_key(&world.key.pod(pool, node)))
}

/// Is the node's pod there, and not told to stop yet?
fn is_to_stop(world: &World, pool: &str, node: NodeId) -> bool {
    world.pods.get(&world.key.pod(pool, node)).is_some_and(|pod| !pod.meta.deleting)
}

/// Is anything of the node's pod there, or about to be?
fn is_there(world: &World, pool: &str, node: NodeId) -> bool {
    world.pods.contains_key(&world.key.pod(pool, node)) || is_asked_for(world, pool, node)
}
