//! A value that is asked for often and must not be found out each time.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// The last value, kept for a while. While one caller renews it the others wait for that one result.
#[derive(Debug)]
pub(crate) struct Cached<T> {
    fresh_for: Duration,
    last: Mutex<Option<(Instant, T)>>,
}

impl<T: Clone> Cached<T> {
    pub(crate) fn new(fresh_for: Duration) -> Self {
        Self { fresh_for, last: Mutex::new(None) }
    }

    pub(crate) async fn get_or_renew(&self, renew: impl AsyncFnOnce() -> T) -> T {
        let mut last = self.last.lock().await;
        if let Some((since, value)) = &*last
            && since.elapsed() < self.fresh_for
        {
            return value.clone();
        }
        let value = renew().await;
        *last = Some((Instant::now(), value.clone()));
        value
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const FRESH_FOR: Duration = Duration::from_millis(500);

    #[tokio::test(start_paused = true)]
    async fn a_value_is_renewed_only_when_it_is_old() {
        let cached = Cached::new(FRESH_FOR);
        assert_eq!(cached.get_or_renew(async || 1).await, 1);
        tokio::time::advance(FRESH_FOR - Duration::from_millis(1)).await;
        assert_eq!(cached.get_or_renew(async || 2).await, 1);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(cached.get_or_renew(async || 3).await, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn callers_that_come_together_share_one_renewal() {
        let cached = Cached::new(FRESH_FOR);
        let renewals = Cell::new(0);
        let ask = || {
            cached.get_or_renew(async || {
                renewals.set(renewals.get() + 1);
                tokio::time::sleep(Duration::from_secs(1)).await;
                renewals.get()
            })
        };
        assert_eq!(tokio::join!(ask(), ask(), ask()), (1, 1, 1));
    }
}
