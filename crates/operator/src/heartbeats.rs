//! Whether the parts of the process that must never stand still go on.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// More than any call takes, and than a busy machine keeps a part waiting.
const MARGIN: Duration = Duration::from_secs(60);

/// A part that says now and then that it goes on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Passes: work was begun, went on, or ended; or there was none.
    Work,
    /// The lease was looked at.
    Lease,
    /// Something was heard of what it watches, or that nothing can be heard: an API server that is silent is no reason to end.
    Watch { of: Arc<str>, longest_silence: Duration },
}

impl Part {
    /// How long it may be silent. Every call has a deadline of ten seconds, and ends it; watches know their own.
    const fn patience(&self) -> Duration {
        match self {
            Self::Work | Self::Lease => MARGIN,
            Self::Watch { longest_silence, .. } => longest_silence.saturating_add(MARGIN),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Work => f.write_str("the work on clusters"),
            Self::Lease => f.write_str("the renewal of the lease"),
            Self::Watch { of, .. } => write!(f, "the watch on {of}"),
        }
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

/// Of a part that comes and goes: one that is gone is not missed.
#[derive(Debug)]
pub(crate) struct Pulse {
    part: Part,
    heartbeats: Arc<Heartbeats>,
}

impl Pulse {
    pub(crate) fn beat(&self) {
        self.heartbeats.beat(self.part.clone());
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.heartbeats.lock().remove(&self.part);
    }
}

impl Heartbeats {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Part, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This part goes on. From the first time on it must say so again.
    pub(crate) fn beat(&self, part: Part) {
        self.lock().insert(part, Instant::now());
    }

    /// Begins to listen to a watch, on these in this namespace or in all, that tells something at least so often.
    pub(crate) fn of_watch(
        self: &Arc<Self>,
        what: &str,
        namespace: Option<&str>,
        longest_silence: Duration,
    ) -> Pulse {
        let of = namespace.map_or_else(|| what.into(), |namespace| format!("{what} in {namespace}").into());
        let pulse = Pulse { part: Part::Watch { of, longest_silence }, heartbeats: Arc::clone(self) };
        pulse.beat();
        pulse
    }

    /// Does every part go on?
    pub(crate) fn check(&self) -> Result<(), Still> {
        let late = self.lock().iter().find_map(|(part, last)| {
            let silent_for = last.elapsed();
            (silent_for > part.patience()).then_some(Still { part: part.clone(), silent_for })
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

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_stands_still_is_named_and_one_that_is_not_needed_any_more_is_not_missed() {
        let beats = Arc::new(Heartbeats::default());
        let still = beats.of_watch("Pod", Some("ns"), Duration::from_secs(160));
        let gone = beats.of_watch("Secret mine", Some("ns"), Duration::ZERO);
        drop(gone);
        tokio::time::advance(Duration::from_secs(219)).await;
        assert!(beats.check().is_ok());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(
            beats.check().unwrap_err().to_string(),
            "the watch on Pod in ns has not gone on for 221 s"
        );
        still.beat();
        assert!(beats.check().is_ok());
    }
}
