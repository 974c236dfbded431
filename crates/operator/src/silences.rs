//! Who did not answer, and is left alone for a while.
//!
//! To wait for an answer that does not come costs seconds. Whoever let us wait is asked again after a pause that doubles, and at
//! once when a pod of its cluster changes. Until then it counts as silent, as it did: what is not known is not safe.
//!
//! Kept in memory only. Whoever says no at once is not remembered: to ask costs nothing.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use karst_core::ids::NodeId;
use karst_core::names::ClusterKey;
use karst_core::world::{Answer, World};
use tokio::time::{Instant, timeout};

use crate::places::Pace;

/// Whoever takes this long lets us wait.
pub(crate) const LONG: Duration = Duration::from_millis(500);
/// For how long a cluster counts as slow that let us wait, and said something in the end.
const SLOW: Duration = Duration::from_secs(60);
/// The first pause.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Who is asked for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Whom {
    /// The controllers, about the quorum.
    Quorum,
    /// The brokers, about each other.
    Brokers,
    /// Brokers, about partitions.
    Partitions,
    /// A broker, about its settings.
    BrokerSettings(NodeId),
    /// A controller, about its settings.
    ControllerSettings(NodeId),
    /// A broker, about its directories.
    LogDirs(NodeId),
    /// The launcher of a node.
    Launcher(NodeId),
}

/// How hard to try to get an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Insistence {
    /// Who did not answer lately is not asked.
    Patient,
    /// Who did not answer last time is not asked, however long ago that is.
    None,
    /// Everybody is asked.
    Full,
}

#[derive(Debug)]
struct Silence {
    why: String,
    pause: Duration,
    until: Instant,
}

/// The silences of a cluster.
#[derive(Debug, Default)]
struct Silent {
    /// How its pods were when they were noted.
    pods: u64,
    of: HashMap<Whom, Silence>,
}

/// The silences of all clusters.
#[derive(Debug, Default)]
pub(crate) struct Silences {
    all: Mutex<HashMap<ClusterKey, Silent>>,
    /// Until when clusters count as slow.
    slow: Mutex<HashMap<ClusterKey, Instant>>,
}

impl Silences {
    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterKey, Silent>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slow(&self) -> MutexGuard<'_, HashMap<ClusterKey, Instant>> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The questions of a pass.
    pub(crate) fn questions<'a>(&'a self, world: &'a World, insistence: Insistence) -> Questions<'a> {
        let (key, pods) = (&world.key, fingerprint(world));
        let mut all = self.lock();
        if all.get(key).is_some_and(|silent| silent.pods != pods) {
            all.remove(key);
        }
        Questions { silences: self, key, pods, insistence, from_memory: Mutex::new(false) }
    }

    /// How did it answer lately?
    pub(crate) fn pace(&self, key: &ClusterKey) -> Pace {
        let is_slow = || self.slow().get(key).is_some_and(|until| Instant::now() < *until);
        match self.lock().contains_key(key) {
            true => Pace::Hangs,
            false if is_slow() => Pace::Slow,
            false => Pace::Prompt,
        }
    }

    /// It took so long to do what it was asked, whatever came of it.
    pub(crate) fn took(&self, key: &ClusterKey, time: Duration) {
        if time >= LONG {
            self.slow().insert(key.clone(), Instant::now() + SLOW);
        }
    }

    /// How long until somebody in the cluster is to be asked again.
    pub(crate) fn pause(&self, key: &ClusterKey) -> Option<Duration> {
        let all = self.lock();
        let until = all.get(key)?.of.values().map(|silence| silence.until).min()?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// The cluster is gone.
    pub(crate) fn forget(&self, key: &ClusterKey) {
        self.slow().remove(key);
        self.lock().remove(key);
    }
}

/// The questions of one pass to one cluster.
#[derive(Debug)]
pub(crate) struct Questions<'a> {
    silences: &'a Silences,
    key: &'a ClusterKey,
    pods: u64,
    insistence: Insistence,
    from_memory: Mutex<bool>,
}

impl Questions<'_> {
    /// Asks, and waits for `patience` at most. Who let us wait before may not be asked.
    pub(crate) async fn ask<T>(
        &self,
        whom: Whom,
        patience: Duration,
        question: impl Future<Output = Answer<T>>,
    ) -> Answer<T> {
        if let Some(why) = self.remembered(whom) {
            return Answer::Silent(why);
        }
        let began = Instant::now();
        let late = || Answer::Silent(format!("no answer within {} s", patience.as_secs()));
        let answer = timeout(patience, question).await.unwrap_or_else(|_| late());
        match &answer {
            Answer::Silent(why) if began.elapsed() >= LONG => self.remember(whom, why),
            _ => self.heard(whom),
        }
        answer
    }

    /// What is said of this one without asking.
    pub(crate) fn remembered(&self, whom: Whom) -> Option<String> {
        let all = self.silences.lock();
        let silence = all.get(self.key)?.of.get(&whom)?;
        let is_left_alone = match self.insistence {
            Insistence::Patient => Instant::now() < silence.until,
            Insistence::None => true,
            Insistence::Full => false,
        };
        if is_left_alone {
            *self.from_memory.lock().unwrap_or_else(PoisonError::into_inner) = true;
        }
        is_left_alone.then(|| silence.why.clone())
    }

    /// Was somebody not asked?
    pub(crate) fn are_from_memory(&self) -> bool {
        *self.from_memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, whom: Whom, why: &str) {
        let mut all = self.silences.lock();
        let silent = all.entry(self.key.clone()).or_default();
        silent.pods = self.pods;
        let pause = silent.of.get(&whom).map_or(FIRST_PAUSE, |before| (before.pause * 2).min(LONGEST_PAUSE));
        silent.of.insert(whom, Silence { why: why.to_owned(), pause, until: Instant::now() + pause });
    }

    fn heard(&self, whom: Whom) {
        let mut all = self.silences.lock();
        let Some(silent) = all.get_mut(self.key) else { return };
        silent.of.remove(&whom);
        if silent.of.is_empty() {
            all.remove(self.key);
        }
    }
}

/// Changes with every event of a pod that may be why nobody answered.
fn fingerprint(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (name, pod) in &world.pods {
        (name, &pod.meta.uid, pod.ready, pod.kafka_ready, pod.meta.deleting, &pod.phase, &pod.stuck)
            .hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;
    use std::sync::Arc;

    use karst_core::world::{Meta, PodView};

    use super::*;
    use crate::hands::tests::world;

    const PATIENCE: Duration = Duration::from_secs(2);

    fn set_pod(world: &mut World, ready: bool) {
        let pod = PodView {
            meta: Meta::default(),
            phase: "Running".to_owned(),
            ready,
            was_ready: true,
            ..PodView::default()
        };
        world.pods.insert("c-brokers-0".to_owned(), Arc::new(pod));
    }

    /// Asks somebody who never answers. Tells for how long that took.
    async fn hang(silences: &Silences, world: &World, insistence: Insistence) -> Duration {
        let began = Instant::now();
        let questions = silences.questions(world, insistence);
        let answer = questions.ask(Whom::Quorum, PATIENCE, pending::<Answer<()>>()).await;
        assert_eq!(answer, Answer::Silent("no answer within 2 s".to_owned()));
        assert_eq!(questions.are_from_memory(), began.elapsed().is_zero());
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn who_lets_us_wait_is_asked_less_and_less_often() {
        let (silences, world, mut asked_at) = (Silences::default(), world(), Vec::new());
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(100) {
            if !hang(&silences, &world, Insistence::Patient).await.is_zero() {
                asked_at.push(began.elapsed().as_secs());
            }
            assert_eq!(silences.pace(&world.key), Pace::Hangs);
            tokio::time::advance(Duration::from_millis(500)).await;
        }
        assert_eq!(asked_at, [2, 6, 12, 22, 40, 72], "pauses of 2, 4, 8, 16 and 30 s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_changes_ends_the_pause_at_once() {
        let (silences, mut world) = (Silences::default(), world());
        set_pod(&mut world, false);
        assert_eq!(hang(&silences, &world, Insistence::Patient).await, PATIENCE);
        assert_eq!(hang(&silences, &world, Insistence::Patient).await, Duration::ZERO);
        set_pod(&mut world, true);
        assert_eq!(hang(&silences, &world, Insistence::Patient).await, PATIENCE);
        assert_eq!(silences.pause(&world.key), Some(FIRST_PAUSE), "and the pauses are short again");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_ends_the_silence_and_a_quick_no_is_none() {
        let (silences, world) = (Silences::default(), world());
        hang(&silences, &world, Insistence::Patient).await;
        tokio::time::advance(FIRST_PAUSE).await;
        let questions = silences.questions(&world, Insistence::Patient);
        let known = questions.ask(Whom::Quorum, PATIENCE, async { Answer::Known(1) }).await;
        assert_eq!(known, Answer::Known(1));
        assert_eq!(silences.pace(&world.key), Pace::Prompt);
        let no = async { Answer::<()>::Silent("refused".to_owned()) };
        questions.ask(Whom::Brokers, PATIENCE, no).await;
        assert_eq!(silences.pace(&world.key), Pace::Prompt);
    }

    #[tokio::test(start_paused = true)]
    async fn who_answers_late_counts_as_slow_for_a_while() {
        let (silences, world) = (Silences::default(), world());
        let key = &world.key;
        silences.took(key, LONG - Duration::from_millis(1));
        assert_eq!(silences.pace(key), Pace::Prompt);
        silences.took(key, LONG);
        silences.took(key, Duration::ZERO);
        assert_eq!(silences.pace(key), Pace::Slow, "one answer in time does not make up for it");
        hang(&silences, &world, Insistence::Patient).await;
        assert_eq!(silences.pace(key), Pace::Hangs);
        tokio::time::advance(SLOW).await;
        let questions = silences.questions(&world, Insistence::Full);
        questions.ask(Whom::Quorum, PATIENCE, async { Answer::Known(1) }).await;
        assert_eq!(silences.pace(key), Pace::Prompt);
    }

    #[tokio::test(start_paused = true)]
    async fn when_there_is_no_room_nobody_who_hangs_is_asked_and_before_a_restart_everybody_is() {
        let (silences, world) = (Silences::default(), world());
        hang(&silences, &world, Insistence::Patient).await;
        tokio::time::advance(Duration::from_secs(1000)).await;
        assert_eq!(hang(&silences, &world, Insistence::None).await, Duration::ZERO);
        hang(&silences, &world, Insistence::Patient).await;
        assert_eq!(hang(&silences, &world, Insistence::Full).await, PATIENCE);
        let (asked, questions) = (Cell::new(false), silences.questions(&world, Insistence::None));
        let other = async {
            asked.set(true);
            Answer::Known(())
        };
        questions.ask(Whom::Brokers, PATIENCE, other).await;
        assert!(asked.get(), "who is not known to hang is asked in any case");
    }
}
