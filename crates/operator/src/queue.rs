//! What is to be done next.
//!
//! The same work never runs twice at once; asked for while it runs, it runs once more. Work that failed, or met a world that
//! had changed, comes back after a pause that doubles; when that has gone on for a minute, the log says why.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use karst_core::names::ClusterKey;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A pause after the first failure.
const AFTER_FAILURE: Duration = Duration::from_millis(200);
/// A pause after the world changed under a decision: what is known catches up within milliseconds.
const AFTER_CHANGE: Duration = Duration::from_millis(100);
/// A pause after the first panic. What is wrong will not go away by itself.
const AFTER_PANIC: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// For how long work is tried again in silence.
const SILENCE: Duration = Duration::from_secs(60);
/// How often it is said that it still is.
const REMINDER: Duration = Duration::from_secs(600);

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
            Self::Cluster(key) | Self::PodSet { cluster: key, .. } => key,
        }
    }
}

/// How a piece of work ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing is left to do until something changes, or until the time given.
    Done {
        /// When to look again.
        look_again: Option<Duration>,
    },
    /// Something else is to be decided now: the world changed under the decision, or there is something new to tell.
    Changed {
        /// What changed.
        why: String,
        /// When to look again at the latest.
        look_again: Option<Duration>,
    },
    /// It is to be tried again soon.
    Failed {
        /// What went wrong.
        why: String,
    },
    /// It panicked, and is to be tried again.
    Panicked {
        /// Where.
        why: String,
    },
}

impl Outcome {
    /// The first pause before it is tried again, and why it is; nothing when it is done.
    fn to_try_again(&self) -> Option<(Duration, &str)> {
        match self {
            Self::Done { .. } => None,
            Self::Changed { why, .. } => Some((AFTER_CHANGE, why)),
            Self::Failed { why } => Some((AFTER_FAILURE, why)),
            Self::Panicked { why } => Some((AFTER_PANIC, why)),
        }
    }

    /// The same, but that it is looked at again by then.
    pub(crate) fn no_later_than(mut self, soon: Duration) -> Self {
        if let Self::Done { look_again } | Self::Changed { look_again, .. } = &mut self {
            *look_again = Some(look_again.map_or(soon, |known| known.min(soon)));
        }
        self
    }

    fn look_again(&self) -> Option<Duration> {
        match self {
            Self::Done { look_again } | Self::Changed { look_again, .. } => *look_again,
            Self::Failed { .. } | Self::Panicked { .. } => None,
        }
    }
}

/// Work that was not done yet, though it was tried.
#[derive(Debug)]
struct Unfinished {
    attempts: u32,
    since: Instant,
    /// When the log is to say so.
    to_say: Instant,
}

impl Unfinished {
    fn new() -> Self {
        let now = Instant::now();
        Self { attempts: 0, since: now, to_say: now + SILENCE }
    }

    /// The pause before the next attempt, which doubles from `first` on.
    fn next_pause(&mut self, first: Duration) -> Duration {
        let pause = first.saturating_mul(1 << self.attempts.min(10)).min(LONGEST_PAUSE);
        self.attempts = self.attempts.saturating_add(1);
        pause
    }

    /// For how long it has been waiting, if that is to be said now.
    fn reminder(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if now < self.to_say {
            return None;
        }
        self.to_say = now + REMINDER;
        Some(now - self.since)
    }
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<Work>,
    queued: HashSet<Work>,
    running: HashSet<Work>,
    later: BTreeMap<(Instant, u64), Work>,
    due: HashMap<Work, (Instant, u64)>,
    unfinished: HashMap<Work, Unfinished>,
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
    pub(crate) fn finish(&self, work: Work, outcome: &Outcome) {
        let mut state = self.lock();
        state.running.remove(&work);
        match outcome.to_try_again() {
            None => {
                state.unfinished.remove(&work);
                if let Some(pause) = outcome.look_again() {
                    state.push_later(work, pause);
                }
            }
            Some((first, why)) => {
                let unfinished = state.unfinished.entry(work.clone()).or_insert_with(Unfinished::new);
                let pause = unfinished.next_pause(first);
                if let Some(waiting) = unfinished.reminder() {
                    let (cluster, seconds) = (work.cluster(), waiting.as_secs());
                    tracing::warn!(%cluster, seconds, "still waiting, tried again every {} s: {why}", pause.as_secs());
                }
                state.push_later(work, outcome.look_again().map_or(pause, |soon| soon.min(pause)));
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// For how long work has been tried again and again, and how often.
    #[cfg(test)]
    fn unfinished(&self, work: &Work) -> Option<(Duration, u32)> {
        self.lock().unfinished.get(work).map(|one| (one.since.elapsed(), one.attempts))
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
        queue.finish(work("a"), &DONE);
        assert_eq!(queue.next().await, work("a"));
        queue.finish(work("a"), &DONE);
        assert!(queue.next().now_or_never().is_none());
    }

    /// The pauses before work is tried again that always ends like this, in milliseconds.
    async fn pauses(outcome: Outcome, attempts: usize) -> Vec<u128> {
        let queue = Queue::default();
        queue.push([work("a")]);
        let mut pauses = Vec::new();
        let mut next = queue.next().await;
        for _ in 0..attempts {
            let before = Instant::now();
            queue.finish(next, &outcome);
            next = queue.next().await;
            pauses.push(before.elapsed().as_millis());
        }
        pauses
    }

    #[tokio::test(start_paused = true)]
    async fn failed_work_comes_back_after_a_pause_that_doubles() {
        let failed = Outcome::Failed { why: "no answer".into() };
        let expected = [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000];
        assert_eq!(pauses(failed, 10).await, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_world_that_never_fits_the_decision_is_not_looked_at_ten_times_a_second() {
        let changed = Outcome::Changed { why: "a pod that nobody finds".into(), look_again: None };
        assert_eq!(pauses(changed, 10).await[..4], [100, 200, 400, 800]);
        let with_a_date = Outcome::Changed { why: "x".into(), look_again: Some(Duration::from_secs(1)) };
        assert_eq!(pauses(with_a_date, 6).await, [100, 200, 400, 800, 1000, 1000]);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_panics_waits_longer_than_work_that_fails() {
        let panicked = Outcome::Panicked { why: "x.rs:1".into() };
        assert_eq!(pauses(panicked, 6).await, [1000, 2000, 4000, 8000, 16_000, 30_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_more_than_a_minute_is_said_once_and_then_every_ten_minutes() {
        let mut unfinished = Unfinished::new();
        let mut said = Vec::new();
        for second in 0..1300 {
            said.extend(unfinished.reminder().map(|_| second));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(said, [60, 660, 1260]);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_was_done_once_starts_with_short_pauses_again() {
        let queue = Queue::default();
        queue.push([work("a")]);
        for outcome in [Outcome::Failed { why: "no".into() }, Outcome::Failed { why: "no".into() }] {
            let taken = queue.next().await;
            queue.finish(taken, &outcome);
        }
        assert_eq!(queue.unfinished(&work("a")).map(|(_, attempts)| attempts), Some(2));
        let taken = queue.next().await;
        queue.finish(taken, &DONE);
        assert_eq!(queue.unfinished(&work("a")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_does_not_wait_for_a_pause() {
        let queue = Queue::default();
        queue.push([work("a")]);
        let taken = queue.next().await;
        queue.finish(taken, &Outcome::Done { look_again: Some(Duration::from_secs(60)) });
        queue.push([work("a")]);
        let before = Instant::now();
        let taken = queue.next().await;
        assert_eq!(before.elapsed(), Duration::ZERO);
        queue.finish(taken, &DONE);
        assert!(queue.next().now_or_never().is_none(), "the later look was for the same thing");
    }

    #[tokio::test(start_paused = true)]
    async fn other_work_passes_what_still_runs() {
        let queue = Queue::default();
        queue.push([work("a")]);
        let a = queue.next().await;
        queue.push([work("a"), work("b")]);
        assert_eq!(queue.next().await, work("b"));
        queue.finish(a, &DONE);
        assert_eq!(queue.next().await, work("a"));
    }
}
