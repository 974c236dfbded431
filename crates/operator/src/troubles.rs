//! What Kafka did not do: it is asked again, and how long after.
//!
//! Kept in memory only. A new process tries at once, which is what one would want of it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use karst_core::membership::Change;
use karst_core::names::ClusterKey;
use karst_core::plan::Deed;
use karst_core::world::Trouble;

/// The pause after a first failure. A controller that was just started often refuses once.
const FIRST_PAUSE: Duration = Duration::from_millis(300);
/// A migration that fails costs a leader its office: the next one must be at rest again.
const AFTER_MIGRATION: Duration = Duration::from_secs(10);
/// The longest pause before Kafka is told again what it would not take.
const AFTER_REFUSED_VALUE: Duration = Duration::from_secs(60);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What failed in each cluster.
#[derive(Debug, Default)]
pub(crate) struct Troubles(Mutex<HashMap<ClusterKey, Vec<Trouble>>>);

impl Troubles {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterKey, Vec<Trouble>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What failed last in a cluster.
    pub(crate) fn of(&self, key: &ClusterKey) -> Vec<Trouble> {
        self.lock().get(key).cloned().unwrap_or_default()
    }

    /// Something failed.
    pub(crate) fn remember(&self, key: &ClusterKey, deed: &Deed, why: &impl ToString) {
        let mut all = self.lock();
        let troubles = all.entry(key.clone()).or_default();
        let before = troubles.iter().position(|trouble| trouble.deed == *deed);
        let failures = before.map_or(0, |at| troubles.remove(at).failures);
        let now = Timestamp::now();
        troubles.retain(|trouble| !trouble.is_replaced_by(deed, now));
        let until = now.checked_add(pause(deed, failures)).unwrap_or(Timestamp::MAX);
        let failures = failures.saturating_add(1);
        troubles.push(Trouble { deed: deed.clone(), why: why.to_string(), until, failures });
        Trouble::keep_few(troubles);
    }

    /// This one did not fail. What was refused to the same node before, with another disk perhaps, is of the past too.
    pub(crate) fn succeeded(&self, key: &ClusterKey, deed: &Deed) {
        if let Some(troubles) = self.lock().get_mut(key) {
            troubles.retain(|trouble| trouble.deed != *deed && !is_about_same_node(&trouble.deed, deed));
        }
    }

    /// The cluster is gone.
    pub(crate) fn forget(&self, key: &ClusterKey) {
        self.lock().remove(key);
    }
}

fn is_about_same_node(one: &Deed, other: &Deed) -> bool {
    let node = |deed: &Deed| match deed {
        Deed::Change(change) => change.node(),
        _ => None,
    };
    node(one).is_some() && node(one) == node(other)
}

fn pause(deed: &Deed, failures: u32) -> Duration {
    match deed {
        Deed::Change(Change::MakeDynamic) => AFTER_MIGRATION,
        Deed::Metadata(_) => LONGEST_PAUSE,
        // What Kafka thinks of a value seldom changes.
        Deed::Configure(_) => FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(AFTER_REFUSED_VALUE),
        _ => FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karst_core::ids::{Entropy, NodeId};
    use karst_core::membership::Voter;

    fn join(node: i32, disk: u8) -> Deed {
        let voter = Voter { node: NodeId(node), directory: Entropy([disk; 32]).directory_id(NodeId(node)) };
        Deed::Change(Change::Join { voter, host: format!("controller-{node}") })
    }

    #[test]
    fn a_node_that_joined_with_another_disk_was_not_refused() {
        let (troubles, key) = (Troubles::default(), ClusterKey { namespace: "n".into(), name: "c".into() });
        for deed in [join(3, 1), join(4, 1), Deed::Unregister(NodeId(3))] {
            troubles.remember(&key, &deed, &"no");
        }
        troubles.succeeded(&key, &join(3, 2));
        let left: Vec<_> = troubles.of(&key).into_iter().map(|trouble| trouble.deed).collect();
        assert_eq!(left, [join(4, 1), Deed::Unregister(NodeId(3))]);
    }
}
