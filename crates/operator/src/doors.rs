//! Services of listeners that Kubernetes did not take: what it said, and when it is asked again.
//!
//! Kept in memory only. A new process tries at once, which is what one would want of it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use karst_core::listeners::services::asked;
use karst_core::names::ClusterKey;
use karst_core::objects::Object;
use karst_core::world::RefusedService;

/// How long to wait before the same is tried again. Something else is tried at once.
const PAUSE: Duration = Duration::from_secs(60);

/// What was refused, by cluster and service.
#[derive(Debug, Default)]
pub(crate) struct Doors(Mutex<HashMap<ClusterKey, BTreeMap<String, RefusedService>>>);

impl Doors {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterKey, BTreeMap<String, RefusedService>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was refused in a cluster.
    pub(crate) fn refused(&self, key: &ClusterKey) -> BTreeMap<String, RefusedService> {
        self.lock().get(key).cloned().unwrap_or_default()
    }

    /// Kubernetes refused.
    pub(crate) fn remember(&self, key: &ClusterKey, service: &Object, why: String) {
        let until = Timestamp::now().checked_add(PAUSE).unwrap_or(Timestamp::MAX);
        let asked = asked(service.meta()).map(str::to_owned);
        let name = service.meta().name.clone().unwrap_or_default();
        let refused = RefusedService { asked, why, until };
        self.lock().entry(key.clone()).or_default().insert(name, refused);
    }

    /// A service was written.
    pub(crate) fn forget(&self, key: &ClusterKey, service: &Object) {
        let mut all = self.lock();
        if let (Some(services), Some(name)) = (all.get_mut(key), &service.meta().name) {
            services.remove(name);
            if services.is_empty() {
                all.remove(key);
            }
        }
    }

    /// The cluster is gone.
    pub(crate) fn forget_cluster(&self, key: &ClusterKey) {
        self.lock().remove(key);
    }
}
