//! What the operator may cost. Each number is a promise of the project, for a machine with two cores.

use std::time::Duration;

pub(crate) const TEN_THOUSAND_IDS: Duration = Duration::from_millis(10);
/// A pass, whatever a resource contains.
pub(crate) const PASS: Duration = Duration::from_millis(100);
pub(crate) const START: Duration = Duration::from_millis(300);
pub(crate) const ONE_CLUSTER: Duration = Duration::from_millis(300);
pub(crate) const TWENTY_CLUSTERS: Duration = Duration::from_secs(3);
/// Processor time of the operator when all of 1,000 clusters are changed at once.
pub(crate) const ALL_CHANGED: Duration = Duration::from_secs(30);

/// Resident memory, in bytes, with so many clusters; nothing is promised for other numbers.
pub(crate) fn memory(clusters: usize) -> Option<u64> {
    match clusters {
        0 => Some(12_000_000),
        20 => Some(25_000_000),
        1000 => Some(300_000_000),
        _ => None,
    }
}
