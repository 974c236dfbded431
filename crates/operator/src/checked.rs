//! Nodes that were seen to run with the settings that are wanted, so that they are not asked again in every pass.
//!
//! Kept in memory only. A new process asks every node once.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use karst_core::digest::Digest;
use karst_core::names::ClusterKey;

/// Fingerprints of pod and settings, by cluster and pod.
#[derive(Debug, Default)]
pub(crate) struct Checked(Mutex<HashMap<ClusterKey, BTreeMap<String, Digest>>>);

impl Checked {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterKey, BTreeMap<String, Digest>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was seen in a cluster.
    pub(crate) fn of(&self, key: &ClusterKey) -> BTreeMap<String, Digest> {
        self.lock().get(key).cloned().unwrap_or_default()
    }

    /// Nodes were seen.
    pub(crate) fn remember(&self, key: &ClusterKey, seen: BTreeMap<String, Digest>) {
        if !seen.is_empty() {
            self.lock().entry(key.clone()).or_default().extend(seen);
        }
    }

    /// The cluster is gone, or Kafka was told something that makes all of it uncertain.
    pub(crate) fn forget(&self, key: &ClusterKey) {
        self.lock().remove(key);
    }
}
