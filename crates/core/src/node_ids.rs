//! Which node ids the pools of a cluster have, get and give up.
//!
//! Pure arithmetic over all pools at once, because an id is unique in the cluster: an id that anything might still
//! use is never given out. A node moves to another pool when both say so: its own names it among those that go, the other
//! among those that come. Then the other one waits for it. Where only one of them names it, its id is taken.

use std::collections::{BTreeMap, BTreeSet};

use crate::id_list::IdList;
use crate::ids::NodeId;

/// What one pool has, and what it asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// The pool.
    pub pool: String,
    /// The ids its nodes have.
    pub current: BTreeSet<NodeId>,
    /// How many nodes it is to have.
    pub wanted: usize,
    /// Ids that new nodes should get, in order.
    pub next: IdList,
    /// Ids that should go first, in order.
    pub remove: IdList,
}

/// What becomes of one pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assignment {
    /// Ids of nodes that stay.
    pub kept: BTreeSet<NodeId>,
    /// Ids of nodes that are new.
    pub added: BTreeSet<NodeId>,
    /// Ids of nodes that are to go.
    pub removed: BTreeSet<NodeId>,
    /// Ids it asked for that another pool is about to give up.
    pub awaited: BTreeSet<NodeId>,
    /// How many new nodes got another id than one it asked for, though it asked for some.
    pub not_as_asked: BTreeSet<NodeId>,
    /// How many nodes go that were not named, though some were.
    pub removed_not_as_asked: BTreeSet<NodeId>,
}

/// Decides for all pools. `taken` are ids that are in use in any other way.
pub fn assign(demands: &[Demand], taken: &BTreeSet<NodeId>) -> Vec<Assignment> {
    let mut assignments: Vec<Assignment> = demands.iter().map(shrink).collect();
    let named = demands
        .iter()
        .zip(&assignments)
        .flat_map(|(demand, one)| one.removed.iter().copied().filter(|id| demand.remove.contains(*id)));
    let leaving: BTreeSet<NodeId> = named.collect();
    let mut used: BTreeSet<NodeId> = taken.clone();
    used.extend(demands.iter().flat_map(|demand| demand.current.iter().copied()));
    let mut free = Free::default();
    for (demand, assignment) in demands.iter().zip(&mut assignments) {
        grow(demand, assignment, &leaving, &mut used, &mut free);
    }
    assignments
}

/// Takes ids away: those that were named and belong to the pool, then the highest.
fn shrink(demand: &Demand) -> Assignment {
    let excess = demand.current.len().saturating_sub(demand.wanted);
    let mut kept = demand.current.clone();
    let mut removed = BTreeSet::new();
    for id in demand.remove.among(&demand.current) {
        if removed.len() < excess && kept.remove(&id) {
            removed.insert(id);
        }
    }
    let mut others = BTreeSet::new();
    while removed.len() < excess {
        let Some(highest) = kept.pop_last() else { break };
        removed.insert(highest);
        others.insert(highest);
    }
    let asked = demand.remove != IdList::default();
    let removed_not_as_asked = if asked { others } else { BTreeSet::new() };
    Assignment { kept, removed, removed_not_as_asked, ..Assignment::default() }
}

/// Where to look for the lowest free id next: below it none is free.
#[derive(Debug, Default)]
struct Free {
    from: i32,
}

impl Free {
    fn lowest(&mut self, used: &BTreeSet<NodeId>) -> Option<NodeId> {
        while used.contains(&NodeId(self.from)) {
            self.from = self.from.checked_add(1)?;
        }
        Some(NodeId(self.from))
    }
}

/// Gives ids: those that were asked for and are free, then the lowest free ones.
fn grow(
    demand: &Demand,
    assignment: &mut Assignment,
    leaving: &BTreeSet<NodeId>,
    used: &mut BTreeSet<NodeId>,
    free: &mut Free,
) {
    let missing = demand.wanted.saturating_sub(demand.current.len());
    if missing == 0 {
        return;
    }
    let asked = demand.next != IdList::default();
    let mut given = 0;
    // A range may be far larger than what is needed of it: at most every used id is skipped once.
    for id in demand.next.iter(missing.saturating_add(used.len())) {
        if given == missing {
            break;
        }
        if leaving.contains(&id) {
            given += usize::from(assignment.awaited.insert(id));
        } else if used.insert(id) {
            assignment.added.insert(id);
            given += 1;
        }
    }
    while given < missing {
        let Some(id) = free.lowest(used) else { break };
        used.insert(id);
        assignment.added.insert(id);
        if asked {
            assignment.not_as_asked.insert(id);
        }
        given += 1;
    }
}

/// Ids that are in more than one pool, with the pools.
pub fn duplicates(demands: &[Demand]) -> Vec<(NodeId, &str, &str)> {
    let mut owners: BTreeMap<NodeId, &str> = BTreeMap::new();
    let mut twice = Vec::new();
    for demand in demands {
        for id in &demand.current {
            if let Some(one) = owners.insert(*id, &demand.pool) {
                twice.push((*id, one, demand.pool.as_str()));
            }
        }
    }
    twice
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids(ids: &[i32]) -> BTreeSet<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    fn demand(pool: &str, current: &[i32], wanted: usize, next: &str, remove: &str) -> Demand {
        Demand {
            pool: pool.to_owned(),
            current: ids(current),
            wanted,
            next: next.parse().unwrap(),
            remove: remove.parse().unwrap(),
        }
    }

    fn one(current: &[i32], wanted: usize, next: &str, remove: &str) -> Assignment {
        assign(&[demand("a", current, wanted, next, remove)], &BTreeSet::new()).remove(0)
    }

    #[test]
    fn gaps_are_filled_over_the_whole_cluster() {
        let demands = [demand("a", &[0, 1], 4, "", ""), demand("b", &[4, 5, 6], 4, "", "")];
        let result = assign(&demands, &BTreeSet::new());
        assert_eq!(result[0].added, ids(&[2, 3]));
        assert_eq!(result[1].added, ids(&[7]));
    }

    #[test]
    fn the_highest_goes_first_unless_others_are_named() {
        assert_eq!(one(&[0, 1, 2], 1, "", "").removed, ids(&[1, 2]));
        assert_eq!(one(&[0, 1, 2], 1, "", "[0, 1]").removed, ids(&[0, 1]));
        let partly = one(&[0, 1, 2], 1, "", "[9, 0]");
        assert_eq!((partly.removed, partly.removed_not_as_asked), (ids(&[0, 2]), ids(&[2])));
    }

    #[test]
    fn asked_for_ids_come_first_and_used_ones_are_skipped() {
        assert_eq!(one(&[0], 3, "[10-20]", "").added, ids(&[10, 11]));
        assert_eq!(one(&[10, 11], 4, "[10-20]", "").added, ids(&[12, 13]));
        assert_eq!(one(&[0], 3, "[20-10]", "").added, ids(&[19, 20]));
        let mixed = one(&[0, 5], 4, "[5, 7]", "");
        assert_eq!((mixed.added, mixed.not_as_asked), (ids(&[1, 7]), ids(&[1])));
    }

    #[test]
    fn lists_are_for_scaling_only() {
        let still = one(&[0, 1], 2, "[7]", "[0]");
        assert_eq!(still, Assignment { kept: ids(&[0, 1]), ..Assignment::default() });
    }

    #[test]
    fn a_moved_id_is_waited_for() {
        let demands = [demand("small", &[2, 3], 1, "", "[3]"), demand("big", &[0, 1], 3, "[3]", "")];
        let result = assign(&demands, &BTreeSet::new());
        assert_eq!(result[0].removed, ids(&[3]));
        assert_eq!((&result[1].awaited, &result[1].added), (&ids(&[3]), &ids(&[])));
        // The old node is gone.
        let demands = [demand("small", &[2], 1, "", "[3]"), demand("big", &[0, 1], 3, "[3]", "")];
        assert_eq!(assign(&demands, &BTreeSet::new())[1].added, ids(&[3]));
    }

    #[test]
    fn an_id_that_only_one_of_two_pools_names_is_taken() {
        let unnamed = [demand("small", &[2, 3], 1, "", ""), demand("big", &[0, 1], 3, "[3]", "")];
        let result = assign(&unnamed, &BTreeSet::new());
        assert_eq!(result[0].removed, ids(&[3]));
        assert_eq!((&result[1].added, &result[1].not_as_asked), (&ids(&[4]), &ids(&[4])));
        let unasked = [demand("small", &[2, 3], 1, "", "[3]"), demand("big", &[0, 1], 3, "", "")];
        let result = assign(&unasked, &BTreeSet::new());
        assert_eq!((&result[1].awaited, &result[1].added), (&ids(&[]), &ids(&[4])));
        // Another one goes than the one that was named.
        let other = [demand("small", &[2, 3], 1, "", "[2]"), demand("big", &[0, 1], 3, "[3]", "")];
        assert_eq!(assign(&other, &BTreeSet::new())[1].added, ids(&[4]));
    }

    #[test]
    fn a_huge_range_that_is_used_does_not_take_for_ever() {
        let current: Vec<i32> = (0..1000).collect();
        let result = one(&current, 1001, "[0-2147483647]", "");
        assert_eq!(result.added, ids(&[1000]));
        assert_eq!(one(&current, 999, "", "[2147483647-1000, 5]").removed, ids(&[5]));
    }

    #[test]
    fn ids_in_two_pools_are_found() {
        let demands = [demand("a", &[1, 2], 2, "", ""), demand("b", &[2], 1, "", "")];
        assert_eq!(duplicates(&demands), [(NodeId(2), "a", "b")]);
    }

    fn lists() -> impl Strategy<Value = String> {
        prop::collection::vec((0..40_i32, 0..40_i32, any::<bool>()), 0..4).prop_map(|parts| {
            let parts: Vec<_> = parts
                .into_iter()
                .map(|(a, b, single)| if single { a.to_string() } else { format!("{a}-{b}") })
                .collect();
            format!("[{}]", parts.join(","))
        })
    }

    /// A change of all pools: how many nodes each is to have, and what its annotations say.
    fn changes() -> impl Strategy<Value = Vec<Vec<(usize, String, String)>>> {
        prop::collection::vec(prop::collection::vec((0..8_usize, lists(), lists()), 3), 1..12)
    }

    proptest! {
        #[test]
        fn ids_are_unique_and_stable_whatever_the_pools_ask_for(changes in changes()) {
            let mut pools = vec![BTreeSet::new(); 3];
            for change in changes {
                let demands: Vec<_> = change
                    .iter()
                    .zip(&pools)
                    .enumerate()
                    .map(|(index, ((wanted, next, remove), current))| Demand {
                        pool: index.to_string(),
                        current: current.clone(),
                        wanted: *wanted,
                        next: next.parse().unwrap(),
                        remove: remove.parse().unwrap(),
                    })
                    .collect();
                let result = assign(&demands, &BTreeSet::new());
                for (demand, assignment) in demands.iter().zip(&result) {
                    let Assignment { kept, added, removed, awaited, .. } = assignment;
                    prop_assert!(kept.union(removed).eq(demand.current.iter()), "nodes that stay keep their ids");
                    prop_assert!(added.is_disjoint(&demand.current));
                    prop_assert_eq!(kept.len() + added.len() + awaited.len(), demand.wanted);
                    if demand.wanted == demand.current.len() {
                        prop_assert!(added.is_empty() && removed.is_empty(), "lists are for scaling only");
                    }
                    for id in added.difference(&assignment.not_as_asked) {
                        prop_assert!(demand.next == IdList::default() || demand.next.contains(*id));
                    }
                    // Another id was given only because no asked-for id was left.
                    if !assignment.not_as_asked.is_empty() {
                        let in_use: BTreeSet<_> = result.iter().flat_map(|one| one.added.iter().copied())
                            .chain(demands.iter().flat_map(|one| one.current.iter().copied())).collect();
                        prop_assert!(demand.next.iter(100).all(|id| in_use.contains(&id)));
                    }
                }
                // While nodes leave, theirs and the new ids live side by side: all must differ.
                let alive = result.iter().zip(&demands).flat_map(|(one, demand)| one.added.iter().chain(&demand.current));
                let alive: Vec<_> = alive.collect();
                let distinct: BTreeSet<_> = alive.iter().collect();
                prop_assert_eq!(alive.len(), distinct.len());
                for (pool, assignment) in pools.iter_mut().zip(result) {
                    *pool = assignment.kept.union(&assignment.added).copied().collect();
                }
            }
        }
    }
}
