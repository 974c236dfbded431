//! Whether Kafka recovers its logs: it was not shut down cleanly, and reads them anew before it serves.
//!
//! That takes hours where there is much to read, and whoever ends Kafka meanwhile, however politely, makes it begin again
//! with the first log. So it is told who should not: the operator, by the text of `/ready`.
//!
//! That Kafka will do it is known before it starts, by the mark that it did not leave ([`storage::unclean`]). That it has begun
//! its threads tell ([`threads`]); before, a restart costs nothing. How far it is stands in its output, for as long as
//! users let it write that. The logs are read when Kafka answers: ended between its last log and that, it closes none of them, and
//! the next start reads them all once more. Then the broker comes back to the others, who wait for it: for that it is given some
//! time before its recovery is over.

mod lines;

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tracing::{info, warn};

use self::lines::Told;
use crate::config::NodeConfig;
use crate::output::Output;
use crate::storage;
use crate::threads::{self, Loading};

/// What those who want to end Kafka should know.
const ADVICE: &str = "Kafka was not shut down cleanly; ending it now would make it begin again";

/// For so long a broker that has read its logs, and does not serve yet, is about to. One that takes longer may need to be
/// restarted.
const RETURN: Duration = Duration::from_secs(30);

/// How far a Kafka that recovers its logs is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So many logs are done of so many, as far as Kafka has told.
    Reads(Option<(usize, usize)>),
    /// All are read, and it is about to serve.
    ComesBack,
}

/// The first words are for the operator, and as it expects them.
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reads(Some((done, all))) => write!(f, "recovering logs: {done} of {all} ({ADVICE})"),
            Self::Reads(None) => write!(f, "recovering logs ({ADVICE})"),
            Self::ComesBack => {
                f.write_str("recovering logs (all are read, and the broker is about to serve)")
            }
        }
    }
}

/// A recovery that lies before a Kafka that is not started yet.
#[derive(Debug)]
pub(crate) struct Ahead {
    told: Arc<Mutex<Told>>,
    output: Option<Output>,
}

impl Ahead {
    /// `None` for a node that has nothing to recover. The output of a Kafka that has is listened to.
    pub(crate) fn of(config: &NodeConfig, command: &mut Command) -> Option<Self> {
        if !config.role.is_broker() {
            return None;
        }
        let directories = storage::unclean(&config.log_dirs);
        if directories.is_empty() {
            return None;
        }
        announce(&directories);
        let told = Arc::<Mutex<Told>>::default();
        let output = listen(command, Arc::clone(&told))
            .inspect_err(|error| warn!("how far the recovery is will not be told: {error}"));
        Some(Self { told, output: output.ok() })
    }

    /// Kafka was started.
    pub(crate) fn begun(self, kafka: &Child) -> (Recovery, Option<Output>) {
        (Recovery::new(kafka.id(), self.told), self.output)
    }
}

fn announce(directories: &[PathBuf]) {
    let directories: Vec<String> = directories.iter().map(|dir| dir.display().to_string()).collect();
    info!(
        "Kafka was not shut down cleanly, and will recover the logs in {} before it serves",
        directories.join(", ")
    );
}

fn listen(command: &mut Command, told: Arc<Mutex<Told>>) -> io::Result<Output> {
    Output::overhear(command, move |line| {
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        told.hear(line);
        if told.is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

/// The recovery of one running Kafka.
#[derive(Debug)]
pub struct Recovery {
    kafka: u32,
    told: Arc<Mutex<Told>>,
    has_begun: AtomicBool,
    answered: OnceLock<Instant>,
}

impl Recovery {
    fn new(kafka: u32, told: Arc<Mutex<Told>>) -> Self {
        Self { kafka, told, has_begun: AtomicBool::new(false), answered: OnceLock::new() }
    }

    /// Kafka has answered on its own listener, which it opens when all logs are loaded.
    pub(crate) fn answered(&self) {
        self.answered.get_or_init(Instant::now);
    }

    /// How far it is. `None` when it is over, and also when it has not begun.
    pub(crate) fn progress(&self) -> Option<Progress> {
        if let Some(since) = self.answered.get() {
            return (since.elapsed() < RETURN).then_some(Progress::ComesBack);
        }
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let threads = threads::loading(self.kafka);
        if threads == Loading::Now || told.is_over || told.logs().is_some() {
            self.has_begun.store(true, Ordering::Relaxed);
        }
        let waits = threads == Loading::NotNow && !self.has_begun.load(Ordering::Relaxed);
        (!waits).then(|| Progress::Reads(told.logs()))
    }
}

#[cfg(test)]
impl Recovery {
    /// Of a process that has no threads with Kafka's names.
    pub(crate) fn of_nobody() -> Self {
        Self::new(u32::MAX, Arc::default())
    }

    /// One whose Kafka answered so long ago.
    pub(crate) fn answered_before(age: Duration) -> Self {
        let recovery = Self::of_nobody();
        recovery.answered.get_or_init(|| Instant::now().checked_sub(age).expect("the clock is older"));
        recovery
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_in_the_words_that_the_operator_expects() {
        let told = |logs| Progress::Reads(logs).to_string();
        assert_eq!(
            told(Some((17, 340))),
            "recovering logs: 17 of 340 (Kafka was not shut down cleanly; ending it now would make it begin again)"
        );
        assert_eq!(
            told(None),
            "recovering logs (Kafka was not shut down cleanly; ending it now would make it begin again)"
        );
        let back = Progress::ComesBack.to_string();
        assert_eq!(back, "recovering logs (all are read, and the broker is about to serve)");
    }

    #[test]
    fn a_kafka_that_says_nothing_reads_its_logs_until_it_answers_and_is_given_time_to_come_back() {
        let recovery = Recovery::of_nobody();
        assert_eq!(recovery.progress(), Some(Progress::Reads(None)));
        recovery.answered();
        assert_eq!(recovery.progress(), Some(Progress::ComesBack));
        assert_eq!(Recovery::answered_before(RETURN).progress(), None, "it may be restarted");
    }

    /// It closes none of them when it is ended before it answers.
    #[test]
    fn a_kafka_that_says_that_its_logs_are_loaded_recovers_until_it_answers() {
        let recovery = Recovery::of_nobody();
        recovery
            .told
            .lock()
            .unwrap()
            .hear("Recovering 3 logs from /d since no clean shutdown file was found");
        assert_eq!(recovery.progress(), Some(Progress::Reads(Some((0, 3)))));
        recovery.told.lock().unwrap().hear("Loaded 3 logs in 17ms (unclean log dirs = ArrayBuffer(/d))");
        assert!(matches!(recovery.progress(), Some(Progress::Reads(_))));
        recovery.answered();
        assert_eq!(recovery.progress(), Some(Progress::ComesBack));
    }
}
