//! Whether the parts of the process that must never stand still go on.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A part that says now and then that it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Passes: work was begun, went on, or ended; or there was none.
    Work,
    /// The lease was looked at.
    Lease,
}

impl Part {
    /// How long it may be silent. Every call has a deadline of ten seconds, and ends it.
    const fn patience(self) -> Duration {
        match self {
            Self::Work | Self::Lease => Duration::from_secs(60),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Work => "the work on clusters",
            Self::Lease => "the renewal of the lease",
        })
    }
}

/// A part stands still.
#[derive(Debug, thiserror::Error)]
#[error("{part} has not gone on for {} s", silent_for.as_secs())]
pub(crate) struct Still {
    part: Part,
    silent_for: Duration,
}

/// When each part that was started was last heard of.
#[derive(Debug, Default)]
pub(crate) struct Heartbeats(Mutex<BTreeMap<Part, Instant>>);

impl Heartbeats {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Part, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This part goes on. From the first time on it must say so again.
    pub(crate) fn beat(&self, part: Part) {
        self.lock().insert(part, Instant::now());
    }

    /// Does every part go on?
    pub(crate) fn check(&self) -> Result<(), Still> {
        let late = self.lock().iter().find_map(|(part, last)| {
            let silent_for = last.elapsed();
            (silent_for > part.patience()).then_some(Still { part: *part, silent_for })
        });
        late.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_part_that_stands_still_is_named_and_one_that_was_never_started_is_not() {
        let beats = Heartbeats::default();
        assert!(beats.check().is_ok());
        beats.beat(Part::Work);
        tokio::time::advance(Duration::from_secs(59)).await;
        beats.beat(Part::Lease);
        assert!(beats.check().is_ok());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(beats.check().unwrap_err().to_string(), "the work on clusters has not gone on for 61 s");
        beats.beat(Part::Work);
        assert!(beats.check().is_ok());
    }
}
