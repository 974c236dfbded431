//! Claims that Kubernetes would not let grow: what it said, and when it is asked again.
//!
//! Kept in memory only. A new process tries at once, which is what one would want of it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use karst_core::claims::Growth;
use karst_core::names::ClusterKey;
use karst_core::world::RefusedGrowth;

/// How long to wait before the next try. Somebody has to change the storage class meanwhile, and nobody tells.
const PAUSE: Duration = Duration::from_secs(60);

/// What was refused, by cluster and claim.
#[derive(Debug, Default)]
pub(crate) struct Growths(Mutex<HashMap<ClusterKey, BTreeMap<String, RefusedGrowth>>>);

impl Growths {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterKey, BTreeMap<String, RefusedGrowth>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was refused in a cluster.
    pub(crate) fn refused(&self, key: &ClusterKey) -> BTreeMap<String, RefusedGrowth> {
        self.lock().get(key).cloned().unwrap_or_default()
    }

    /// Kubernetes refused.
    pub(crate) fn remember(&self, key: &ClusterKey, growth: &Growth, why: &impl ToString) {
        let until = Timestamp::now().checked_add(PAUSE).unwrap_or(Timestamp::MAX);
        let refused = RefusedGrowth { size: growth.size.clone(), why: why.to_string(), until };
        self.lock().entry(key.clone()).or_default().insert(growth.claim.clone(), refused);
    }

    /// A claim grew.
    pub(crate) fn forget(&self, key: &ClusterKey, claim: &str) {
        let mut all = self.lock();
        if let Some(claims) = all.get_mut(key) {
            claims.remove(claim);
            if claims.is_empty() {
                all.remove(key);
            }
        }
    }

    /// The cluster is gone.
    pub(crate) fn forget_cluster(&self, key: &ClusterKey) {
        self.lock().remove(key);
    }
}
