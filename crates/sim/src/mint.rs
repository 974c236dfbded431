//! Keys and certificates, each made once and used in every run: making them takes longer than all the rest of a run.
//!
//! Decisions look at who signed what and until when, never at the bytes. So that a certificate fits every run, all of them are
//! made at the beginning of time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use karst_certs::SecretWrite;
use karst_core::certificates::Issue;

use crate::sim::timestamp;

/// What was made so far. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Mint(Arc<Mutex<BTreeMap<String, Vec<SecretWrite>>>>);

impl Mint {
    /// What is asked for, or `None` if it cannot be made.
    pub fn make(&self, issue: &Issue) -> Option<Vec<SecretWrite>> {
        // What nodes trust needs no key, and is different from moment to moment.
        if matches!(issue, Issue::Trust { .. }) {
            return issue.make(timestamp(0)).ok();
        }
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = issue.to_string();
        if let Some(known) = made.get(&key) {
            return Some(known.clone());
        }
        let new = issue.make(timestamp(0)).ok()?;
        made.insert(key, new.clone());
        Some(new)
    }
}
