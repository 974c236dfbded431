//! Spaces restarts over clusters: a new operator may have reasons to restart every pod of every cluster, and must not do
//! so everywhere at once.
//!
//! What users ask for does not wait here: a change of their resources, a pod that they annotate, a voter that they want back. Nor
//! does a pod whose certificate ends soon. A cluster that was given a slot keeps it until its last pod is back, or until it has got
//! no further for five minutes: a slot is for restarting, not for being stuck. Who waits is given a slot in turn, and woken then.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use karst_core::names::ClusterKey;
use karst_core::rolling::Restart;
use karst_core::status::Progress;
use karst_core::world::World;
use tokio::time::Instant;

/// How many clusters may restart pods at once when nobody asked for it.
const SLOTS: usize = 3;
/// How long a cluster may get no further. As long as a pod that restarts may take before its absence counts.
const STUCK: Duration = Duration::from_secs(300);
/// How soon to look again at the least: time passes between now and the look.
const SOON: Duration = Duration::from_secs(1);

/// Which pods serve, by name and uid: what changes while a cluster restarts pod after pod, and does not while it is stuck.
type Serving = BTreeSet<(String, String)>;

/// A cluster that has a slot.
#[derive(Debug)]
struct Holder {
    serving: Serving,
    /// Since when that has not changed.
    since: Instant,
}

impl Holder {
    fn new(serving: Serving) -> Self {
        Self { serving, since: Instant::now() }
    }

    /// When it counts as stuck.
    fn ends(&self) -> Instant {
        self.since + STUCK
    }
}

#[derive(Debug, Default)]
struct State {
    holders: HashMap<ClusterKey, Holder>,
    /// In turn. None of them holds a slot, and while there are any no slot is free.
    waiting: VecDeque<ClusterKey>,
}

impl State {
    /// Gives free slots to those who wait. Returns them: they do not know yet.
    fn hand_out(&mut self) -> Vec<ClusterKey> {
        let mut woken = Vec::new();
        while self.holders.len() < SLOTS
            && let Some(next) = self.waiting.pop_front()
        {
            self.holders.insert(next.clone(), Holder::new(Serving::new()));
            woken.push(next);
        }
        woken
    }

    /// Takes the slots of those that are stuck, as far as somebody else waits for them.
    fn take_from_the_stuck(&mut self) -> Vec<ClusterKey> {
        let now = Instant::now();
        let stuck = self.holders.iter().filter(|(_, holder)| holder.ends() <= now);
        let stuck: Vec<_> = stuck.map(|(key, _)| key.clone()).take(self.waiting.len()).collect();
        for key in stuck {
            tracing::warn!(cluster = %key, "its restarts got no further for {} s: another cluster goes first", STUCK.as_secs());
            self.holders.remove(&key);
        }
        self.hand_out()
    }

    /// A pass saw these pods serve.
    fn see(&mut self, key: &ClusterKey, serving: &Serving) {
        if let Some(holder) = self.holders.get_mut(key).filter(|holder| holder.serving != *serving) {
            *holder = Holder::new(serving.clone());
        }
    }

    /// Gives the cluster a slot, or lets it wait. Returns others that were given one.
    fn take(&mut self, key: &ClusterKey, serving: &Serving) -> Vec<ClusterKey> {
        if self.holders.contains_key(key) {
            return Vec::new();
        }
        if self.holders.len() < SLOTS {
            self.holders.insert(key.clone(), Holder::new(serving.clone()));
            return Vec::new();
        }
        if !self.waiting.contains(key) {
            self.waiting.push_back(key.clone());
        }
        let mut woken = self.take_from_the_stuck();
        woken.retain(|one| one != key);
        woken
    }

    fn release(&mut self, key: &ClusterKey) -> Vec<ClusterKey> {
        self.waiting.retain(|waiting| waiting != key);
        self.holders.remove(key);
        self.hand_out()
    }

    /// When one who waits should look again though nobody woke it: those whose turn is next, when somebody counts as stuck.
    fn look_again(&self, key: &ClusterKey) -> Option<Duration> {
        let turn = self.waiting.iter().position(|waiting| waiting == key)?;
        let first = self.holders.values().map(Holder::ends).min().filter(|_| turn < SLOTS);
        let left = first.map(|at| at.saturating_duration_since(Instant::now()));
        Some(left.unwrap_or(STUCK).max(SOON))
    }
}

/// What may be done of what a pass wants to restart.
#[derive(Debug, Default)]
pub(crate) struct Admission<'a> {
    /// These restarts may be made now.
    pub(crate) admitted: Vec<&'a Restart>,
    /// When to look again, if others have the slots.
    pub(crate) look_again: Option<Duration>,
    /// Clusters that were given a slot.
    pub(crate) woken: Vec<ClusterKey>,
}

/// Clusters that restart pods though nobody changed their resources.
#[derive(Debug, Default)]
pub(crate) struct Slots(Mutex<State>);

impl Slots {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which of these restarts may be made now?
    pub(crate) fn admit<'a>(
        &self,
        world: &World,
        restarts: &'a [Restart],
        progress: Option<&Progress>,
    ) -> Admission<'a> {
        let (key, serving) = (&world.key, serving(world));
        self.lock().see(key, &serving);
        if is_at_rest(restarts, progress) {
            return Admission { woken: self.release(key), ..Admission::default() };
        }
        if is_asked_for(world) {
            return Admission { admitted: restarts.iter().collect(), ..Admission::default() };
        }
        self.unasked(key, restarts, &serving)
    }

    /// The same for a cluster that nobody changed. A restart that a user asked for by an annotation takes no slot.
    fn unasked<'a>(&self, key: &ClusterKey, restarts: &'a [Restart], serving: &Serving) -> Admission<'a> {
        let mut state = self.lock();
        let needs_slot = restarts.iter().any(|one| !is_free(one));
        let woken = if needs_slot { state.take(key, serving) } else { Vec::new() };
        let has_slot = state.holders.contains_key(key);
        let admitted = restarts.iter().filter(|one| has_slot || is_free(one)).collect();
        Admission { admitted, look_again: state.look_again(key), woken }
    }

    /// Nothing is to restart in this cluster any more. Returns who was given its slot.
    pub(crate) fn release(&self, key: &ClusterKey) -> Vec<ClusterKey> {
        self.lock().release(key)
    }
}

fn serving(world: &World) -> Serving {
    let pods = world.pods.iter().filter(|(_, pod)| pod.is_serving());
    pods.map(|(name, pod)| (name.clone(), pod.meta.uid.clone())).collect()
}

/// Will nothing restart here before somebody changes something?
fn is_at_rest(restarts: &[Restart], progress: Option<&Progress>) -> bool {
    let is_left_alone = matches!(progress, Some(Progress::Paused | Progress::Refused(_)));
    restarts.is_empty() && (is_left_alone || progress.is_some_and(Progress::has_all_pods))
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
    use karst_core::reason::Reason;
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
            loses_disk: false,
            exposed: None,
            leaderless: None,
        }
    }

    fn ours() -> [Restart; 1] {
        [restart(0, Cause::QuorumMoved)]
    }

    /// Is one restart of this cluster admitted?
    fn wants(slots: &Slots, name: &str) -> bool {
        !slots.unasked(&key(name), &ours(), &Serving::new()).admitted.is_empty()
    }

    fn sees(slots: &Slots, name: &str, pod: &str) {
        let serving = BTreeSet::from([(pod.to_owned(), "uid".to_owned())]);
        slots.lock().see(&key(name), &serving);
    }

    /// Slots that are all taken, by `a`, `b` and `c`.
    fn taken() -> Slots {
        let slots = Slots::default();
        assert!(["a", "b", "c"].iter().all(|name| wants(&slots, name)));
        slots
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_that_ends_soon_waits_for_no_slot() {
        let slots = taken();
        assert!(!wants(&slots, "d"));
        let ends = Cause::Certificates(Stale::EndsSoon("2026-01-01T00:00:00Z".parse().unwrap()));
        assert_eq!(slots.unasked(&key("d"), &[restart(1, ends)], &Serving::new()).admitted.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_user_asks_for_waits_for_no_slot_and_takes_none() {
        let slots = taken();
        let mixed = [
            restart(0, Cause::QuorumMoved),
            restart(1, Cause::Asked),
            restart(2, Cause::EmptyDisks),
            restart(3, Cause::Restored),
        ];
        let none = Serving::new();
        let admission = slots.unasked(&key("d"), &mixed, &none);
        let admitted: Vec<_> = admission.admitted.iter().map(|one| one.node.0).collect();
        assert_eq!(admitted, [1, 2, 3]);
        slots.release(&key("d"));
        slots.release(&key("a"));
        assert_eq!(slots.unasked(&key("d"), &mixed[1..], &none).admitted.len(), 3);
        assert!(wants(&slots, "e"), "the free slot was not taken for that");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_that_becomes_free_is_given_to_who_waited_longest_and_wakes_it() {
        let slots = taken();
        assert!(wants(&slots, "a") && !wants(&slots, "d") && !wants(&slots, "e") && !wants(&slots, "d"));
        assert_eq!(slots.release(&key("b")), [key("d")]);
        assert!(!wants(&slots, "f"), "nobody overtakes");
        assert!(!wants(&slots, "e") && wants(&slots, "d"));
        assert_eq!(slots.release(&key("e")), [], "who waits no longer");
        assert_eq!(slots.release(&key("d")), [key("f")]);
    }

    #[tokio::test(start_paused = true)]
    async fn clusters_that_are_stuck_do_not_keep_the_others_for_ever() {
        let slots = taken();
        assert!(!wants(&slots, "d"));
        tokio::time::advance(STUCK / 2).await;
        sees(&slots, "b", "c-brokers-1");
        tokio::time::advance(STUCK / 2).await;
        assert!(slots.unasked(&key("b"), &[], &Serving::new()).woken.is_empty());
        assert!(wants(&slots, "d"));
        assert!(wants(&slots, "b"), "it got further meanwhile");
        let state = slots.lock();
        let still = ["a", "c"].iter().filter(|name| state.holders.contains_key(&key(name))).count();
        assert_eq!(still, 1, "no slot more was taken away than needed");
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_when_others_are_stuck_wakes_those_who_waited_longer() {
        let slots = taken();
        assert!(!wants(&slots, "d"));
        tokio::time::advance(STUCK).await;
        let ours = ours();
        let admission = slots.unasked(&key("e"), &ours, &Serving::new());
        assert_eq!((admission.woken, admission.admitted.len()), (vec![key("d")], 1));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_looks_again_when_somebody_may_be_stuck_and_not_every_two_seconds() {
        let slots = taken();
        tokio::time::advance(Duration::from_secs(100)).await;
        let (ours, none) = (ours(), Serving::new());
        let look_again = |name: &str| slots.unasked(&key(name), &ours, &none).look_again;
        let soon = ["d", "e", "f", "g"].map(look_again);
        let (next, later) = (Some(STUCK - Duration::from_secs(100)), Some(STUCK));
        assert_eq!(soon, [next, next, next, later]);
        assert_eq!(look_again("a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_restarts_pod_after_pod_keeps_its_slot() {
        let slots = taken();
        for pod in 0..10 {
            tokio::time::advance(STUCK - SOON).await;
            for name in ["a", "b", "c"] {
                sees(&slots, name, &format!("c-brokers-{pod}"));
            }
            assert!(!wants(&slots, "d"));
        }
    }

    #[test]
    fn a_cluster_that_is_paused_or_refused_or_done_keeps_no_slot() {
        let restarts = ours();
        for progress in [Progress::Paused, Progress::Refused(Vec::new()), Progress::Ready] {
            assert!(is_at_rest(&[], Some(&progress)), "{progress:?}");
            assert!(!is_at_rest(&restarts, Some(&progress)));
        }
        let message = String::new();
        let underway = Progress::Underway { reason: Reason::NodesNotReady, message };
        assert!(!is_at_rest(&[], Some(&underway)));
        assert!(!is_at_rest(&[], None));
    }
}
