//! Changes of a quorum that failed: what is tried again, and how long after.
//!
//! Kept in memory only. A new process tries at once, which is what one would want of it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use karst_core::membership::Change;
use karst_core::names::ClusterKey;
use karst_core::world::Trouble;

/// The pause after a first failure. A controller that was just started often refuses once.
const FIRST_PAUSE: Duration = Duration::from_millis(300);
/// A migration that fails costs a leader its office: the next one must be at rest again.
const AFTER_MIGRATION: Duration = Duration::from_secs(10);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The last failure of each cluster, with how often in a row it failed.
#[derive(Debug, Default)]
pub(crate) struct Troubles(Mutex<HashMap<ClusterKey, (Trouble, u32)>>);

impl Troubles {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterKey, (Trouble, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What failed last in a cluster.
    pub(crate) fn of(&self, key: &ClusterKey) -> Option<Trouble> {
        self.lock().get(key).map(|(trouble, _)| trouble.clone())
    }

    /// A change failed.
    pub(crate) fn remember(&self, key: &ClusterKey, change: &Change, why: &impl ToString) {
        let mut all = self.lock();
        let before =
            all.get(key).filter(|(trouble, _)| trouble.change == *change).map_or(0, |(_, times)| *times);
        let pause = if *change == Change::MakeDynamic { AFTER_MIGRATION } else { pause(before) };
        let until = Timestamp::now().checked_add(pause).unwrap_or(Timestamp::MAX);
        let trouble = Trouble { change: change.clone(), why: why.to_string(), until };
        all.insert(key.clone(), (trouble, before.saturating_add(1)));
    }

    /// Nothing fails any more.
    pub(crate) fn forget(&self, key: &ClusterKey) {
        self.lock().remove(key);
    }
}

fn pause(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE)
}
