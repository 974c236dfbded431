//! The pod sets as this operator rendered them last: their pods are made, and nobody else's.
//!
//! Kept in memory only. A new process knows by their status which were rendered before, see [`karst_core::podset::is_rendered`].

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use karst_core::names::ClusterKey;
use karst_core::podset::Rendered;

/// Fingerprints of pod sets, by cluster.
#[derive(Debug, Default)]
pub(crate) struct RenderedSets(Mutex<HashMap<ClusterKey, Rendered>>);

impl RenderedSets {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterKey, Rendered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was rendered for a cluster.
    pub(crate) fn of(&self, key: &ClusterKey) -> Rendered {
        self.lock().get(key).cloned().unwrap_or_default()
    }

    /// They were rendered.
    pub(crate) fn remember(&self, key: &ClusterKey, rendered: Rendered) {
        self.lock().insert(key.clone(), rendered);
    }

    /// The cluster is gone.
    pub(crate) fn forget(&self, key: &ClusterKey) {
        self.lock().remove(key);
    }
}
