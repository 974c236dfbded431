//! What is to be done next.
//!
//! The same work never runs twice at once; asked for while it runs, it runs once more. Work that failed comes
//! back after a pause that doubles.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use karst_core::names::ClusterKey;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A pause after the world changed under a decision for the first time.
const FIRST_LOOK: Duration = Duration::from_millis(100);
/// A pause after the first failure.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// One thing to look after.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Work {
    /// A pass of a cluster.
    Cluster(ClusterKey),
    /// The pods of a pod set.
    PodSet {
        /// The cluster it belongs to.
        cluster: ClusterKey,
        /// Its name.
        name: String,
    },
}

impl Work {
    /// The cluster that it is for.
    pub(crate) fn cluster(&self) -> &ClusterKey {
        match self {
            Self::Cluster(cluster) | Self::PodSet { cluster, .. } => cluster,
        }
    }
}

/// How a piece of work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing is left to do until something changes, or until the time given.
    Done {
        /// When to look again.
        look_again: Option<Duration>,
    },
    /// What was decided did not fit the world any more. It is to be decided again soon.
    Changed,
    /// It is to be tried again soon.
    Failed,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Work>,
    queued: HashSet<Work>,
    running: HashSet<Work>,
    later: BTreeMap<(Instant, u64), Work>,
    due: HashMap<Work, (Instant, u64)>,
    failures: HashMap<Work, u32>,
    counter: u64,
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

impl State {
    fn push(&mut self, work: Work) {
        if let Some(at) = self.due.remove(&work) {
            self.later.remove(&at);
        }
        if self.queued.insert(work.clone()) {
            self.ready.push_back(work);
        }
    }

    fn push_later(&mut self, work: Work, pause: Duration) {
        if self.queued.contains(&work) {
            return;
        }
        self.counter += 1;
        let at = (Instant::now() + pause, self.counter);
        if let Some(before) = self.due.insert(work.clone(), at) {
            self.later.remove(&before);
        }
        self.later.insert(at, work);
    }

    /// Moves what is due to the others, and says when the next is.
    fn wake(&mut self) -> Option<Instant> {
        while let Some((&at, _)) = self.later.first_key_value() {
            if at.0 > Instant::now() {
                return Some(at.0);
            }
            if let Some(work) = self.later.remove(&at) {
                self.due.remove(&work);
                self.push(work);
            }
        }
        None
    }

    fn take(&mut self) -> Option<Work> {
        let position = self.ready.iter().position(|work| !self.running.contains(work))?;
        let work = self.ready.remove(position)?;
        self.queued.remove(&work);
        self.running.insert(work.clone());
        Some(work)
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for work to be done now.
    pub(crate) fn push(&self, work: impl IntoIterator<Item = Work>) {
        let mut state = self.lock();
        work.into_iter().for_each(|work| state.push(work));
        drop(state);
        self.changed.notify_waiters();
    }

    /// How much waits to be done now.
    pub(crate) fn depth(&self) -> usize {
        self.lock().ready.len()
    }

    /// The next work. Whoever takes it must say how it ended.
    pub(crate) async fn next(&self) -> Work {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no notification is missed, though nobody waits yet.
            changed.as_mut().enable();
            let next_due = {
                let mut state = self.lock();
                let next_due = state.wake();
                if let Some(work) = state.take() {
                    return work;
                }
                next_due
            };
            match next_due {
                Some(at) => {
                    let _ = tokio::time::timeout_at(at, changed).await;
                }
                None => changed.await,
            }
        }
    }

    /// Says how work ended.
    pub(crate) fn finish(&self, work: Work, outcome: Outcome) {
        let mut state = self.lock();
        state.running.remove(&work);
        match outcome {
            Outcome::Done { look_again } => {
                state.failures.remove(&work);
                if let Some(pause) = look_again {
                    state.push_later(work, pause);
                }
            }
            Outcome::Changed | Outcome::Failed => {
                let first = if outcome == Outcome::Failed { FIRST_PAUSE } else { FIRST_LOOK };
                let failures = state.failures.entry(work.clone()).or_default();
                let pause = first.saturating_mul(1 << (*failures).min(10)).min(LONGEST_PAUSE);
                *failures += 1;
                state.push_later(work, pause);
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn work(name: &str) -> Work {
        Work::Cluster(ClusterKey { namespace: "ns".into(), name: name.into() })
    }

    const DONE: Outcome = Outcome::Done { look_again: None };

    #[tokio::test(start_paused = true)]
    async fn work_asked_for_twice_runs_once_and_asked_for_while_running_once_more() {
        let queue = Queue::default();
        queue.push([work("a"), work("a")]);
        assert_eq!(queue.next().await, work("a"));
        assert!(queue.next().now_or_never().is_none());
        queue.push([work("a"), work("a")]);
        assert!(queue.next().now_or_never().is_none(), "it still runs");
        queue.finish(work("a"), DONE);
        assert_eq!(queue.next().await, work("a"));
        queue.finish(work("a"), DONE);
        assert!(queue.next().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn failed_work_comes_back_after_a_pause_that_doubles() {
        let queue = Queue::default();
        queue.push([work("a")]);
        let mut pauses = Vec::new();
        let mut next = queue.next().await;
        for _ in 0..10 {
            let before = Instant::now();
            queue.finish(next, Outcome::Failed);
            next = queue.next().await;
            pauses.push(before.elapsed().as_millis());
        }
        assert_eq!(pauses, [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_fit_the_world_is_decided_again_after_a_pause_that_doubles() {
        let queue = Queue::default();
        queue.push([work("a")]);
        let mut pauses = Vec::new();
        let mut next = queue.next().await;
        for _ in 0..11 {
            let before = Instant::now();
            queue.finish(next, Outcome::Changed);
            next = queue.next().await;
            pauses.push(before.elapsed().as_millis());
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        queue.finish(next, DONE);
        queue.push([work("a")]);
        let (next, before) = (queue.next().await, Instant::now());
        queue.finish(next, Outcome::Changed);
        queue.next().await;
        assert_eq!(before.elapsed().as_millis(), 100, "what went well in between counts");
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_does_not_wait_for_a_pause() {
        let queue = Queue::default();
        queue.push([work("a")]);
        let taken = queue.next().await;
        queue.finish(taken, Outcome::Done { look_again: Some(Duration::from_secs(60)) });
        queue.push([work("a")]);
        let before = Instant::now();
        let taken = queue.next().await;
        assert_eq!(before.elapsed(), Duration::ZERO);
        queue.finish(taken, DONE);
        assert!(queue.next().now_or_never().is_none(), "the later look was for the same thing");
    }

    #[tokio::test(start_paused = true)]
    async fn other_work_passes_what_still_runs() {
        let queue = Queue::default();
        queue.push([work("a")]);
        let a = queue.next().await;
        queue.push([work("a"), work("b")]);
        assert_eq!(queue.next().await, work("b"));
        queue.finish(a, DONE);
        assert_eq!(queue.next().await, work("a"));
    }
}
