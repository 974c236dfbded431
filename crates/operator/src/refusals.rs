//! What Kubernetes would not do: what it said, and when it is asked again.
//!
//! Kept in memory only. A new process tries at once, which is what one would want of it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use karst_core::names::ClusterKey;

/// What was refused, by cluster and by the name of the object.
#[derive(Debug)]
pub(crate) struct Refusals<T>(Mutex<HashMap<ClusterKey, BTreeMap<String, T>>>);

impl<T> Default for Refusals<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Refusals<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterKey, BTreeMap<String, T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was refused in a cluster.
    pub(crate) fn of(&self, key: &ClusterKey) -> BTreeMap<String, T> {
        self.lock().get(key).cloned().unwrap_or_default()
    }

    /// Kubernetes refused.
    pub(crate) fn remember(&self, key: &ClusterKey, name: &str, refused: T) {
        self.lock().entry(key.clone()).or_default().insert(name.to_owned(), refused);
    }

    /// What is refused now, if anything. Tells whether it was something else before.
    pub(crate) fn set(&self, key: &ClusterKey, name: &str, refused: Option<T>) -> bool
    where
        T: PartialEq,
    {
        let before = self.lock().get(key).and_then(|all| all.get(name)).cloned();
        let is_new = before != refused;
        match refused {
            Some(refused) => self.remember(key, name, refused),
            None => self.forget(key, name),
        }
        is_new
    }

    /// It was done.
    pub(crate) fn forget(&self, key: &ClusterKey, name: &str) {
        let mut all = self.lock();
        if let Some(refused) = all.get_mut(key) {
            refused.remove(name);
            if refused.is_empty() {
                all.remove(key);
            }
        }
    }

    /// The cluster is gone.
    pub(crate) fn forget_cluster(&self, key: &ClusterKey) {
        self.lock().remove(key);
    }
}
