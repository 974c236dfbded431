//! Spaces restarts over clusters: a new operator may have reasons to restart every pod of every cluster, and must not do
//! so everywhere at once.
//!
//! What users ask for does not wait here. A cluster that was given a slot keeps it until its last pod is back.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use karst_core::names::ClusterKey;
use karst_core::world::World;

/// How many clusters may restart pods at once when nobody asked for it.
const SLOTS: usize = 3;

/// Clusters that restart pods though nobody changed their resources.
#[derive(Debug, Default)]
pub(crate) struct Slots(Mutex<HashSet<ClusterKey>>);

impl Slots {
    /// May this cluster restart pods now?
    pub(crate) fn may_restart(&self, world: &World) -> bool {
        if is_asked_for(world) {
            return true;
        }
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.contains(&world.key) || (taken.len() < SLOTS && taken.insert(world.key.clone()))
    }

    /// Nothing is to restart in this cluster any more.
    pub(crate) fn release(&self, key: &ClusterKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// Did a user change a resource, or annotate a pod, since the cluster was last as asked for?
fn is_asked_for(world: &World) -> bool {
    let kafka = &world.kafka;
    let done = kafka.status.as_ref().and_then(|status| status.observed_generation);
    let pool_is_new = world.pools.values().any(|pool| {
        pool.status.as_ref().and_then(|status| status.observed_generation) != pool.metadata.generation
    });
    done != kafka.metadata.generation || pool_is_new
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ClusterKey {
        ClusterKey { namespace: "ns".into(), name: name.into() }
    }

    #[test]
    fn a_released_slot_is_free_for_another() {
        let slots = Slots::default();
        let take = |name: &str| {
            let mut taken = slots.0.lock().unwrap();
            taken.contains(&key(name)) || (taken.len() < SLOTS && taken.insert(key(name)))
        };
        assert!(take("a") && take("b") && take("c") && take("a"));
        assert!(!take("d"));
        slots.release(&key("b"));
        assert!(take("d"));
    }
}
