//! Which node ids a pool has, and which it gets next.
//!
//! An id that anything might still use is never given again: not one in a pool's status, nor one that a pod or
//! a pod set carries.

use std::collections::BTreeSet;

use crate::ids::NodeId;

/// Adds nodes to `current` until there are `wanted`, each with the lowest id that nobody has.
///
/// The ids it hands out are added to `taken`.
pub(crate) fn grow(current: &[NodeId], wanted: usize, taken: &mut BTreeSet<NodeId>) -> Vec<NodeId> {
    let mut ids: BTreeSet<NodeId> = current.iter().copied().collect();
    let mut free = (0..).map(NodeId);
    while ids.len() < wanted {
        let Some(id) = free.find(|id| !taken.contains(id)) else { break };
        taken.insert(id);
        ids.insert(id);
    }
    ids.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[i32]) -> Vec<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn gaps_are_filled_over_the_whole_cluster() {
        let mut taken = ids(&[0, 1, 4, 5, 6]).into_iter().collect();
        assert_eq!(grow(&ids(&[0, 1]), 4, &mut taken), ids(&[0, 1, 2, 3]));
        assert_eq!(grow(&ids(&[4, 5, 6]), 4, &mut taken), ids(&[4, 5, 6, 7]));
    }

    #[test]
    fn a_pool_that_has_enough_keeps_what_it_has() {
        let mut taken = ids(&[3, 9]).into_iter().collect();
        assert_eq!(grow(&ids(&[9, 3]), 2, &mut taken), ids(&[3, 9]));
        assert_eq!(grow(&ids(&[9, 3]), 1, &mut taken), ids(&[3, 9]));
    }
}
