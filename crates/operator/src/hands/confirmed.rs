//! What the API server said of pools and pod sets a moment ago, in its answers to this operator's own calls.
//!
//! Before something is made for a pool or a pod set, the API server is asked whether it is still there, because the cache may lag behind.
//! An answer does not lag behind: one that came just now is worth as much as another question, which would also be a moment old when
//! what depends on it is written. Nobody else can have acted for the cluster since: a lease lasts much longer.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karst_core::names::POOL_FINALIZER;
use tokio::time::Instant;

/// For how long an answer counts.
const COUNTS: Duration = Duration::from_secs(1);

/// Answers that still count, by the UID of what they are about.
#[derive(Debug, Default)]
pub(crate) struct Confirmed(Mutex<HashMap<String, Answer>>);

#[derive(Debug)]
struct Answer {
    generation: Option<i64>,
    heard: Instant,
}

impl Answer {
    fn counts(&self) -> bool {
        self.heard.elapsed() < COUNTS
    }
}

impl Confirmed {
    /// The API server says this of a pod set.
    pub(super) fn pod_set(&self, meta: &ObjectMeta) {
        self.remember(meta);
    }

    /// The API server says this of a pool. One that nothing protects may be gone at once.
    pub(super) fn pool(&self, meta: &ObjectMeta) {
        let is_protected = meta.finalizers.iter().flatten().any(|finalizer| finalizer == POOL_FINALIZER);
        if is_protected && meta.deletion_timestamp.is_none() {
            self.remember(meta);
        }
    }

    fn remember(&self, meta: &ObjectMeta) {
        let Some(uid) = meta.uid.clone() else { return };
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answers.retain(|_, answer| answer.counts());
        answers.insert(uid, Answer { generation: meta.generation, heard: Instant::now() });
    }

    /// This is about to be deleted.
    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    /// Was it there a moment ago, and protected if it is a pool?
    pub(super) fn is_there(&self, uid: &str) -> bool {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(uid).is_some_and(Answer::counts)
    }

    /// Was it there a moment ago, and of this generation?
    pub(super) fn is_of(&self, uid: &str, generation: i64) -> bool {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(uid).is_some_and(|answer| answer.counts() && answer.generation == Some(generation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    fn meta(generation: i64, finalizers: &[&str]) -> ObjectMeta {
        ObjectMeta {
            uid: Some("uid".to_owned()),
            generation: Some(generation),
            finalizers: Some(finalizers.iter().map(ToString::to_string).collect()),
            ..ObjectMeta::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_for_a_moment_and_for_what_it_is_about() {
        let confirmed = Confirmed::default();
        confirmed.pod_set(&meta(3, &[]));
        assert!(confirmed.is_of("uid", 3));
        assert!(!confirmed.is_of("uid", 2), "a pod set that is older than the answer");
        assert!(!confirmed.is_of("another", 3));
        tokio::time::advance(COUNTS).await;
        assert!(!confirmed.is_of("uid", 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pool_that_may_go_at_any_moment_is_asked_for_each_time() {
        let confirmed = Confirmed::default();
        confirmed.pool(&meta(1, &["somebody.else/guard"]));
        assert!(!confirmed.is_there("uid"));
        let going = ObjectMeta {
            deletion_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
            ..meta(1, &[POOL_FINALIZER])
        };
        confirmed.pool(&going);
        assert!(!confirmed.is_there("uid"));
        confirmed.pool(&meta(1, &[POOL_FINALIZER]));
        assert!(confirmed.is_there("uid"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_about_to_be_deleted_is_not_taken_for_there() {
        let confirmed = Confirmed::default();
        confirmed.pod_set(&meta(1, &[]));
        confirmed.forget("uid");
        assert!(!confirmed.is_of("uid", 1));
    }
}
