//! Making keys and certificates.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use karst_certs::{Error, SecretWrite};
use karst_core::certificates::Issue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::panics::contain;

/// How many keys that take long are made at once, for all clusters together: each takes a core for seconds, and passes and probes
/// need one too.
const AT_ONCE: usize = 1;

/// Whose turn it is to make a key that takes long.
#[derive(Debug, Clone)]
pub(crate) struct Keys(Arc<Semaphore>);

/// One turn. It lasts until the key is made, also when nobody waits for it any more.
#[derive(Debug)]
pub(crate) struct Turn(#[allow(dead_code, reason = "it is held, and not read")] Option<OwnedSemaphorePermit>);

impl Default for Keys {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl Keys {
    /// Waits for a turn. Who came first has the first one.
    pub(crate) async fn turn(&self) -> Turn {
        // It is never closed, so there is one in the end.
        Turn(Arc::clone(&self.0).acquire_owned().await.ok())
    }
}

/// Makes keys and certificates that take long, beside the thread on which everything else goes on.
pub(crate) async fn make(issue: &Issue, now: Timestamp, turn: Turn) -> Result<Vec<SecretWrite>, Error> {
    let issue = issue.clone();
    let making = move || {
        let _turn = turn;
        // A panic there is that of the cluster as much as one here.
        contain(|| issue.make(now))
    };
    let made = tokio::task::spawn_blocking(making).await;
    made.unwrap_or(Ok(Err(Error::NoRandomness))).unwrap_or(Err(Error::NoRandomness))
}
