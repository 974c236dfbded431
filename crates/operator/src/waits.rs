//! Work that does not get on because the world is never as it was decided for.
//!
//! Once or twice that is how it goes when several write at once. When it lasts, people have to be told what is waited for.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::queue::Work;

/// What lasts longer than this is told, and told again after as long.
const WORTH_A_WORD: Duration = Duration::from_secs(60);

/// Since when each piece of work waits, and when that was told last.
#[derive(Debug, Default)]
pub(crate) struct Waits(Mutex<HashMap<Work, (Instant, Instant)>>);

impl Waits {
    /// It still waits. Returns for how long, when that is to be told now.
    pub(crate) fn goes_on(&self, work: &Work) -> Option<Duration> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let (since, told) = all.entry(work.clone()).or_insert((now, now));
        if now.duration_since(*told) < WORTH_A_WORD {
            return None;
        }
        *told = now;
        Some(now.duration_since(*since))
    }

    /// It does not wait any more.
    pub(crate) fn ends(&self, work: &Work) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(work);
    }
}

#[cfg(test)]
mod tests {
    use karst_core::names::ClusterKey;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_a_minute_says_so_once_a_minute() {
        let waits = Waits::default();
        let work = Work::Cluster(ClusterKey { namespace: "ns".into(), name: "c".into() });
        let mut told = Vec::new();
        for second in 0..150 {
            told.extend(waits.goes_on(&work).map(|waited| (second, waited.as_secs())));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(told, [(60, 60), (120, 120)]);
        waits.ends(&work);
        assert_eq!(waits.goes_on(&work), None, "it begins anew");
    }
}
