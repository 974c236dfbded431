//! Making keys and certificates.

use k8s_openapi::jiff::Timestamp;
use karst_certs::{Error, SecretWrite};
use karst_core::certificates::Issue;

use crate::panics::contain;

/// Makes keys and certificates. Nothing else goes on meanwhile, so what takes long is done elsewhere.
pub(crate) async fn make(issue: &Issue, now: Timestamp) -> Result<Vec<SecretWrite>, Error> {
    if !issue.takes_long() {
        return issue.make(now);
    }
    let issue = issue.clone();
    // A panic there is that of the cluster as much as one here.
    let made = tokio::task::spawn_blocking(move || contain(|| issue.make(now))).await;
    made.unwrap_or(Ok(Err(Error::NoRandomness))).unwrap_or(Err(Error::NoRandomness))
}
