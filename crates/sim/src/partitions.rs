//! Partitions, as simply as will do: replicas that fall out of sync when their broker is away, and come back after it.

use std::collections::BTreeSet;

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
    let serving: BTreeSet<NodeId> = quorum
        .processes
        .values()
        .filter(|process| process.serves.is_some())
        .map(|process| process.node)
        .collect();
    let since = |least: u64| -> BTreeSet<NodeId> {
        let has_served = |since: u64| now.saturating_sub(since) > least;
        let processes = quorum.processes.values();
        processes.filter(|one| one.serves.is_some_and(has_served)).map(|one| one.node).collect()
    };
    let (settled, caught_up) = (since(500), since(LATEST));
    for partition in partitions {
        let away: Vec<NodeId> = partition.in_sync.difference(&serving).copied().collect();
        for node in away {
            // The last one keeps its place: nobody else has the data.
            if partition.in_sync.len() > 1 {
                partition.in_sync.remove(&node);
            }
        }
        let has_leader = partition.in_sync.iter().any(|node| serving.contains(node));
        let back: Vec<NodeId> = partition
            .replicas
            .intersection(&settled)
            .filter(|node| !partition.in_sync.contains(node))
            .copied()
            .collect();
        for node in back {
            if has_leader && (dice.chance(100) || caught_up.contains(&node)) {
                partition.in_sync.insert(node);
            }
        }
    }
}
