//! Whether a running Kafka still does anything at all. One that does not is ended by the kubelet, and started again.
//!
//! A JVM can lose the threads that serve and go on as a process for ever. But whoever restarts what is merely slow makes an
//! outage of it, and what makes one node slow (a storage that hangs, too little processor, a storm of clients) makes all of them
//! slow at the same time. So Kafka is given up only when all of this has been so without a break for minutes:
//!
//! - It has answered this very question before, in this life: one that starts or recovers its logs is never given up, and neither is
//!   one that was restarted in vain.
//! - It leaves a question unanswered that needs no controller, no disk and no DNS: which versions it speaks.
//! - It does not react to a connection either, not even by closing one that brings nonsense. That is done by threads that wait for
//!   nobody; those that answer questions may all wait for an authorizer that is out of reach.
//! - Its threads do nothing and want nothing: none waits for a disk, and together they ask for less than half a processor.
//! - The launcher itself was not held up, or frozen, meanwhile.
//!
//! Certificates that have expired or are not trusted are a reaction. What cannot be found out is no reason.

use std::io::{self, ErrorKind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use karst_kafka::{Endpoint, Error, Features};
use nix::sys::signal::{Signal, raise};
use thiserror::Error as ThisError;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use crate::activity::Activity;
use crate::config::NodeConfig;
use crate::line::Line;

/// A message of two gigabytes, by its first bytes, and no record of TLS either: Kafka closes a connection that begins so.
const NONSENSE: [u8; 8] = [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// Where many fall silent together, not all are restarted together: by their ids they have up to this many different limits.
const STEPS: u32 = 8;

/// Kafka has reacted to nothing for so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
#[error(
    "Kafka has reacted to nothing on its own listener for {} s, and its threads do nothing: it is to be restarted", .0.as_secs()
)]
pub struct Silent(pub Duration);

/// How long things may take. All follow from the limit.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// After so much silence Kafka is given up.
    limit: Duration,
    answer: Duration,
    reaction: Duration,
    period: Duration,
}

impl Times {
    fn of(limit: Duration, step: u32) -> Self {
        Self { limit: limit + limit / 12 * step, answer: limit / 9, reaction: limit / 18, period: limit / 36 }
    }

    /// Two looks that are further apart say nothing of the time between them.
    fn longest_gap(self) -> Duration {
        (self.answer + self.reaction + self.period) * 3 / 2
    }
}

/// What one look showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// The question was answered.
    Answer,
    /// Somebody reacted, somehow, or is busy, or it cannot be found out.
    Other,
    Silence,
}

/// Looks after one running Kafka.
#[derive(Debug)]
pub struct Liveness {
    kafka: u32,
    line: Line,
    listener: Endpoint,
    times: Times,
    seen: Mutex<Seen>,
}

impl Liveness {
    #[must_use]
    pub fn of(config: &NodeConfig, kafka: u32, limit: Duration) -> Self {
        let listener = &config.own_listener;
        let step = config.node_id.0.unsigned_abs() % STEPS;
        let times = Times::of(limit, step);
        Self {
            kafka,
            line: Line::to_itself(listener, times.answer),
            listener: listener.local.clone(),
            times,
            seen: Mutex::new(Seen::new(times)),
        }
    }

    /// # Errors
    /// When Kafka is to be given up.
    pub fn check(&self) -> Result<(), Silent> {
        self.seen().given_up.map_or(Ok(()), |silence| Err(Silent(silence)))
    }

    /// Looks until it is dropped.
    pub async fn keep_looking(&self) {
        let mut before = None;
        loop {
            let sign = self.look(&mut before).await;
            let was_given_up = self.check().is_err();
            self.seen().note(sign, Instant::now());
            if !was_given_up && let Err(silent) = self.check() {
                warn!("{silent}; its stacks follow");
                // The launcher passes it on, and a JVM writes what each of its threads waits for.
                let _ = raise(Signal::SIGQUIT);
            }
            sleep(self.times.period).await;
        }
    }

    /// `before` is what Kafka was seen to do at the last look, while it is silent.
    async fn look(&self, before: &mut Option<(Instant, Activity)>) -> Sign {
        let sign = match self.ask().await {
            Sign::Silence => knock(&self.listener, self.times.reaction).await,
            sign => sign,
        };
        if sign != Sign::Silence {
            *before = None;
            return sign;
        }
        let now = Activity::of(self.kafka).map(|activity| (Instant::now(), activity));
        let is_idle = matches!((&*before, &now), (Some((then, before)), Some((at, now)))
            if now.is_idle_since(before, at.duration_since(*then)));
        *before = now;
        if is_idle { Sign::Silence } else { Sign::Other }
    }

    async fn ask(&self) -> Sign {
        // Without certificates that can be read there is no asking.
        let Ok(admin) = self.line.admin() else { return Sign::Other };
        match timeout(self.times.answer, admin.features()).await {
            Ok(answer) => sign_of(&answer),
            Err(_) => Sign::Silence,
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // What was seen is whole, so a panic elsewhere is no reason to forget it.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sign_of(answer: &Result<Features, Error>) -> Sign {
    match answer {
        Ok(_) => Sign::Answer,
        Err(Error::Timeout { .. }) => Sign::Silence,
        Err(Error::Connect { reason, .. }) => no_connection(reason),
        // An alert, a certificate, a refusal, a connection that was closed: somebody was there.
        Err(_) => Sign::Other,
    }
}

/// That nobody listens any more is silence. Any other reason may be the launcher's own, such as too many open files.
fn no_connection(reason: &io::Error) -> Sign {
    match reason.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::TimedOut => Sign::Silence,
        _ => Sign::Other,
    }
}

/// Brings nonsense, and waits for any reaction to it. Kafka writes a line about it, so it is asked politely first.
async fn knock(listener: &Endpoint, patience: Duration) -> Sign {
    let reaction = async {
        let mut stream = match TcpStream::connect((listener.host.as_str(), listener.port)).await {
            Ok(stream) => stream,
            Err(reason) => return no_connection(&reason),
        };
        // However it ends, Kafka or its kernel ended it.
        if stream.write_all(&NONSENSE).await.is_ok() {
            let _ = stream.read(&mut [0]).await;
        }
        Sign::Other
    };
    timeout(patience, reaction).await.unwrap_or(Sign::Silence)
}

/// What all looks together showed.
#[derive(Debug)]
struct Seen {
    times: Times,
    has_answered: bool,
    looked: Option<Instant>,
    silent_since: Option<Instant>,
    given_up: Option<Duration>,
}

impl Seen {
    fn new(times: Times) -> Self {
        Self { times, has_answered: false, looked: None, silent_since: None, given_up: None }
    }

    fn note(&mut self, sign: Sign, now: Instant) {
        let was_held_up = self.looked.is_none_or(|at| now.duration_since(at) > self.times.longest_gap());
        self.looked = Some(now);
        self.has_answered |= sign == Sign::Answer;
        self.silent_since = match sign {
            Sign::Silence if was_held_up => Some(now),
            Sign::Silence => self.silent_since.or(Some(now)),
            Sign::Answer | Sign::Other => None,
        };
        let silence = self.silent_since.map(|since| now.duration_since(since));
        self.given_up = silence.filter(|silence| self.has_answered && *silence >= self.times.limit);
    }
}

#[cfg(test)]
mod tests;
