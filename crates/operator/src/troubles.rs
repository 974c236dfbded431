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

/// What failed in each cluster, with how often in a row it failed.
#[derive(Debug, Default)]
pub(crate) struct Troubles(Mutex<HashMap<ClusterKey, Vec<(Trouble, u32)>>>);

impl Troubles {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterKey, Vec<(Trouble, u32)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What failed last in a cluster.
    pub(crate) fn of(&self, key: &ClusterKey) -> Vec<Trouble> {
        self.lock().get(key).into_iter().flatten().map(|(trouble, _)| trouble.clone()).collect()
    }

    /// Something failed.
    pub(crate) fn remember(&self, key: &ClusterKey, deed: &Deed, why: &impl ToString) {
        let mut all = self.lock();
        let troubles = all.entry(key.clone()).or_default();
        let before = troubles.iter().position(|(trouble, _)| trouble.deed == *deed);
        let failures = before.map_or(0, |at| troubles.swap_remove(at).1);
        // Of changes that are not wanted any more only the newest is worth keeping.
        troubles.retain(|(trouble, _)| !replaces(deed, &trouble.deed));
        let until = Timestamp::now().checked_add(pause(deed, failures)).unwrap_or(Timestamp::MAX);
        let trouble = Trouble { deed: deed.clone(), why: why.to_string(), until };
        troubles.push((trouble, failures.saturating_add(1)));
    }

    /// This one did not fail.
    pub(crate) fn succeeded(&self, key: &ClusterKey, deed: &Deed) {
        if let Some(troubles) = self.lock().get_mut(key) {
            troubles.retain(|(trouble, _)| trouble.deed != *deed);
        }
    }

    /// The cluster is gone.
    pub(crate) fn forget(&self, key: &ClusterKey) {
        self.lock().remove(key);
    }
}

/// Can the older of two deeds not be wanted any more when the newer one is?
fn replaces(newer: &Deed, older: &Deed) -> bool {
    match (newer, older) {
        (Deed::Unregister(_), _) => false,
        (Deed::Configure(newer), Deed::Configure(older)) => {
            (&newer.key, newer.node) == (&older.key, older.node)
        }
        _ => std::mem::discriminant(newer) == std::mem::discriminant(older),
    }
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
