//! Keys and certificates, each made once and used in every run: making them takes longer than all the rest of a run.
//!
//! Decisions look at who signed what and until when, never at the bytes. So that a certificate fits every run, all of them are
//! made at the beginning of time.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use karst_certs::SecretWrite;
use karst_core::certificates::Issue;

use crate::sim::timestamp;

/// What was made so far. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Mint(Arc<Mutex<Made>>);

/// What was made, by what was asked for and what it was made of.
type Made = BTreeMap<(String, u64), Vec<SecretWrite>>;

impl Mint {
    /// What is asked for, or `None` if it cannot be made. What was made before in the same run, and was lost, never comes
    /// again: `lost` tells how often that was.
    pub fn make(&self, issue: &Issue, lost: u64) -> Option<Vec<SecretWrite>> {
        // What nodes trust needs no key, and is different from moment to moment.
        if matches!(issue, Issue::Trust { .. }) {
            return issue.make(timestamp(0)).ok();
        }
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (issue.to_string(), made_of(issue, lost));
        if let Some(known) = made.get(&key) {
            return Some(known.clone());
        }
        let new = issue.make(timestamp(second(issue))).ok()?;
        made.insert(key, new.clone());
        Some(new)
    }
}

/// What it is made of, besides what its words say.
fn made_of(issue: &Issue, lost: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    match issue {
        Issue::Authority { authority, .. } => {
            for secret in authority.secrets() {
                (&secret.data, &secret.annotations).hash(&mut hasher);
            }
            for known in authority.for_clients(timestamp(0)) {
                known.der().hash(&mut hasher);
            }
            lost.hash(&mut hasher);
        }
        Issue::Leaf { request, issuer, cert_generation, .. } => {
            (issuer.certificate().der(), cert_generation, &request.dns_names).hash(&mut hasher);
        }
        Issue::Trust { .. } | Issue::Listeners { .. } => {}
    }
    hasher.finish()
}

/// Authorities name what they replace by its end, so no two of them end at the same time.
fn second(issue: &Issue) -> u64 {
    match issue {
        Issue::Authority { authority, .. } => 1_000 * authority.cert_generation(),
        _ => 0,
    }
}
