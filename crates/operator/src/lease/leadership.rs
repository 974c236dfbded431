//! Whether this process may act, and for how long.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

use crate::settings::LeaseSettings;

/// What is kept between the end of the last call and the moment from which another replica may act.
const MARGIN: Duration = Duration::from_secs(1);
/// A call that cannot have this much time is not begun.
const SHORTEST: Duration = Duration::from_secs(1);

/// Time since the start of the process, the time included in which the machine slept.
#[derive(Debug)]
struct Clock {
    start: Instant,
    since_boot: fn() -> Duration,
    start_since_boot: Duration,
}

impl Clock {
    fn new(since_boot: fn() -> Duration) -> Self {
        Self { start: Instant::now(), since_boot, start_since_boot: since_boot() }
    }

    fn now(&self) -> Duration {
        self.start.elapsed().max((self.since_boot)().saturating_sub(self.start_since_boot))
    }
}

/// The one clock of the kernel that goes on while the machine is suspended.
fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}

/// Until when something holds, by the clock of this process.
#[derive(Debug, Clone, Copy)]
struct Term {
    /// Until then new calls may be begun.
    acts: Duration,
    /// From then on another replica may act, so that every call must have ended.
    lease: Duration,
}

/// Whether this process may act.
#[derive(Debug)]
pub(crate) struct Leadership {
    clock: Clock,
    term: Mutex<Term>,
}

impl Leadership {
    fn new(until: Duration, since_boot: fn() -> Duration) -> Self {
        let term = Mutex::new(Term { acts: until, lease: until });
        Self { clock: Clock::new(since_boot), term }
    }

    /// Not the leader yet.
    pub(crate) fn none() -> Self {
        Self::new(Duration::ZERO, since_boot)
    }

    /// Not the leader yet, by another clock.
    #[cfg(test)]
    pub(super) fn none_by(since_boot: fn() -> Duration) -> Self {
        Self::new(Duration::ZERO, since_boot)
    }

    /// The only replica there is.
    pub(crate) fn always() -> Self {
        Self::new(Duration::MAX, since_boot)
    }

    /// May this process act now?
    pub(crate) fn holds(&self) -> bool {
        self.now() < self.term().acts
    }

    /// How much time a call may take that is begun now: it must end while nobody else may act. Nothing, if it may not be begun.
    pub(crate) fn time_for(&self, longest: Duration) -> Option<Duration> {
        let (now, term) = (self.now(), *self.term());
        let left = term.lease.saturating_sub(now).saturating_sub(MARGIN);
        (now < term.acts && left >= SHORTEST).then(|| left.min(longest))
    }

    /// Can nobody else have acted yet? To be asked after a call: the machine may have slept meanwhile.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.now() < self.term().lease
    }

    /// The time by the clock of the leadership.
    pub(super) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// The lease was renewed by a request that was sent at `asked`. Others saw it later than that.
    pub(super) fn extend(&self, asked: Duration, settings: &LeaseSettings) {
        *self.term() = Term { acts: asked + settings.renew_deadline, lease: asked + settings.duration };
    }

    pub(super) fn end(&self) {
        *self.term() = Term { acts: Duration::ZERO, lease: Duration::ZERO };
    }

    fn term(&self) -> MutexGuard<'_, Term> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
