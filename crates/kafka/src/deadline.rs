//! The one deadline of a call, handed down to everything that the call waits for.

use std::time::Duration;

use tokio::time::Instant;

/// When a call must have ended, and how long it was given, for the message when it has not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) allowed: Duration,
}

impl Deadline {
    pub(crate) fn after(allowed: Duration) -> Self {
        Self { at: Instant::now() + allowed, allowed }
    }

    pub(crate) fn has_passed(self) -> bool {
        Instant::now() >= self.at
    }

    pub(crate) fn left(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// The deadline of one part of a call: this long from now, and never later than the call's own.
    pub(crate) fn no_longer_than(self, longest: Duration) -> Self {
        Self::after(longest.min(self.left()))
    }

    /// The deadline of one attempt out of `attempts` that are still possible: never later than the call's own, never longer
    /// than `longest`, and never more than an even share of the time that is left.
    pub(crate) fn for_one_of(self, attempts: usize, longest: Duration) -> Self {
        let divisor = u32::try_from(attempts).unwrap_or(u32::MAX).max(1);
        Self::after(longest.min(whole_millis(self.left() / divisor)))
    }
}

/// People read these durations in messages.
fn whole_millis(duration: Duration) -> Duration {
    duration - Duration::from_nanos(u64::from(duration.subsec_nanos() % 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn an_attempt_gets_its_share_of_what_is_left() {
        let call = Deadline::after(9 * SECOND);
        assert_eq!(call.for_one_of(3, 60 * SECOND).allowed, 3 * SECOND);
        assert_eq!(call.for_one_of(7, 60 * SECOND).allowed, Duration::from_millis(1285), "in round numbers");
        assert_eq!(call.for_one_of(3, SECOND).allowed, SECOND, "but not more than the connect timeout");
        tokio::time::advance(6 * SECOND).await;
        assert_eq!(
            call.for_one_of(1, 60 * SECOND).allowed,
            3 * SECOND,
            "the last attempt gets all that is left"
        );
        tokio::time::advance(6 * SECOND).await;
        assert!(call.has_passed());
        assert_eq!(call.for_one_of(1, SECOND).allowed, Duration::ZERO);
    }
}
