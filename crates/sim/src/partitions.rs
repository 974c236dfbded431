//! Partitions, as simply as will do: replicas that fall out of sync when their broker is away, and come back after it.

use karst_core::ids::NodeId;
use karst_core::world::PartitionView;

use crate::dice::Dice;
use crate::kraft::Quorum;

/// A replica has caught up by then, in milliseconds: a world that is at rest has nobody who waits for one.
const LATEST: u64 = 8_000;

/// Follows the brokers.
pub fn step(partitions: &mut [PartitionView], quorum: &Quorum, now: u64, dice: &mut Dice) {
    // Without a leader nobody can say who is in sync.
    if quorum.leader().is_none() {
        return;
    }
    let serves = |node: &NodeId| quorum.processes.get(node).and_then(|process| process.serves);
    let has_served =
        |node: &NodeId, least: u64| serves(node).is_some_and(|since| now.saturating_sub(since) > least);
    for partition in partitions {
        let away: Vec<NodeId> =
            partition.in_sync.iter().filter(|node| serves(node).is_none()).copied().collect();
        for node in away {
            // The last one keeps its place: nobody else has the data.
            if partition.in_sync.len() > 1 {
                partition.in_sync.remove(&node);
            }
        }
        let has_leader = partition.in_sync.iter().any(|node| serves(node).is_some());
        let back: Vec<NodeId> = partition
            .replicas
            .difference(&partition.in_sync)
            .filter(|node| has_served(node, 500))
            .copied()
            .collect();
        for node in back {
            if has_leader && (dice.chance(100) || has_served(&node, LATEST)) {
                partition.in_sync.insert(node);
            }
        }
    }
}
