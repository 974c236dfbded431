//! Spaces restarts over clusters: a new operator may have reasons to restart every pod of every cluster, and must not do
//! so everywhere at once.
//!
//! What users ask for does not wait here: a change of their resources, a pod that they annotate, a voter that they want back. Nor
//! does a pod whose certificate ends soon. A cluster that was given a slot keeps it until its last pod is back.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use karst_core::names::ClusterKey;
use karst_core::rolling::Restart;
use karst_core::world::World;

/// How many clusters may restart pods at once when nobody asked for it.
const SLOTS: usize = 3;

/// Clusters that restart pods though nobody changed their resources.
#[derive(Debug, Default)]
pub(crate) struct Slots(Mutex<HashSet<ClusterKey>>);

impl Slots {
    /// Which of these restarts may be made now?
    pub(crate) fn admitted<'a>(&self, world: &World, restarts: &'a [Restart]) -> Vec<&'a Restart> {
        if is_asked_for(world) { restarts.iter().collect() } else { self.unasked(&world.key, restarts) }
    }

    /// The same for a cluster that nobody changed. A restart that a user asked for by an annotation takes no slot.
    fn unasked<'a>(&self, key: &ClusterKey, restarts: &'a [Restart]) -> Vec<&'a Restart> {
        let needs_slot = restarts.iter().any(|one| !is_free(one));
        let has_slot = needs_slot && self.take(key);
        restarts.iter().filter(|one| has_slot || is_free(one)).collect()
    }

    /// Has the cluster a slot now?
    fn take(&self, key: &ClusterKey) -> bool {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.contains(key) || (taken.len() < SLOTS && taken.insert(key.clone()))
    }

    /// Nothing is to restart in this cluster any more.
    pub(crate) fn release(&self, key: &ClusterKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// Does a restart need no slot? What a user asks for does not wait, nor what would be too late then.
fn is_free(restart: &Restart) -> bool {
    restart.is_asked_for() || restart.cannot_wait()
}

/// Did a user change a resource since the cluster was last as asked for?
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
    use karst_core::certificates::Stale;
    use karst_core::ids::NodeId;
    use karst_core::rolling::Cause;

    fn key(name: &str) -> ClusterKey {
        ClusterKey { namespace: "ns".into(), name: name.into() }
    }

    fn restart(node: i32, cause: Cause) -> Restart {
        let (pod, uid) = (format!("c-brokers-{node}"), "uid".into());
        Restart {
            node: NodeId(node),
            pod,
            uid,
            causes: vec![cause],
            claims: Vec::new(),
            keeps: Vec::new(),
            exposed: None,
        }
    }

    #[test]
    fn a_certificate_that_ends_soon_waits_for_no_slot() {
        let slots = Slots::default();
        let busy = [restart(1, Cause::QuorumMoved)];
        for name in ["a", "b", "c"] {
            assert_eq!(slots.unasked(&key(name), &busy).len(), 1);
        }
        assert_eq!(slots.unasked(&key("d"), &busy).len(), 0);
        let ends = Cause::Certificates(Stale::EndsSoon("2026-01-01T00:00:00Z".parse().unwrap()));
        assert_eq!(slots.unasked(&key("d"), &[restart(1, ends)]).len(), 1);
    }

    #[test]
    fn what_a_user_asks_for_waits_for_no_slot_and_takes_none() {
        let slots = Slots::default();
        let ours = [restart(0, Cause::QuorumMoved)];
        for name in ["a", "b", "c"] {
            assert_eq!(slots.unasked(&key(name), &ours).len(), 1);
        }
        let mixed = [
            restart(0, Cause::QuorumMoved),
            restart(1, Cause::Asked),
            restart(2, Cause::EmptyDisks),
            restart(3, Cause::Restored),
        ];
        let admitted: Vec<_> = slots.unasked(&key("d"), &mixed).iter().map(|one| one.node.0).collect();
        assert_eq!(admitted, [1, 2, 3]);
        slots.release(&key("a"));
        assert_eq!(slots.unasked(&key("d"), &mixed[1..]).len(), 3);
        assert_eq!(slots.unasked(&key("e"), &ours).len(), 1, "the free slot was not taken for that");
    }

    #[test]
    fn a_released_slot_is_free_for_another() {
        let slots = Slots::default();
        let take = |name: &str| slots.take(&key(name));
        assert!(take("a") && take("b") && take("c") && take("a"));
        assert!(!take("d"));
        slots.release(&key("b"));
        assert!(take("d"));
    }
}
