//! What is remembered of each cluster from one pass to the next: see [`karst_core::memory`].

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use karst_core::memory::Memory;
use karst_core::names::ClusterKey;

/// The memories of all clusters of which there is something to remember.
#[derive(Debug, Default)]
pub(crate) struct Memories(Mutex<HashMap<ClusterKey, Memory>>);

impl Memories {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterKey, Memory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is remembered of a cluster.
    #[cfg(test)]
    pub(crate) fn of(&self, key: &ClusterKey) -> Memory {
        self.lock().get(key).cloned().unwrap_or_default()
    }

    /// Something happened to a cluster.
    pub(crate) fn change<T>(&self, key: &ClusterKey, happens: impl FnOnce(&mut Memory) -> T) -> T {
        let mut all = self.lock();
        let memory = all.entry(key.clone()).or_default();
        let told = happens(memory);
        if *memory == Memory::default() {
            all.remove(key);
        }
        told
    }

    /// The cluster is gone.
    pub(crate) fn forget(&self, key: &ClusterKey) {
        self.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    #[test]
    fn a_cluster_of_which_nothing_is_remembered_takes_no_memory() {
        let (memories, key) =
            (Memories::default(), ClusterKey { namespace: "n".to_owned(), name: "c".to_owned() });
        memories.change(&key, |memory| memory.met_stranger("Service c", "somebody", Timestamp::UNIX_EPOCH));
        assert_eq!(memories.of(&key).strangers.len(), 1);
        memories.change(&key, |memory| memory.strangers.clear());
        assert!(memories.lock().is_empty());
    }
}
