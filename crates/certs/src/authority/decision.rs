//! What to do about an authority now: a list of checks, the first that hits decides.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use super::{Authority, FORCE_RENEW, FORCE_REPLACE, Nodes, PASSWORD, STORE, Secret};
use crate::trust::Certificate;
use crate::window::Opening;
use crate::x509;

/// Closed windows are overruled this long before the end, when none opens before it: an expired authority stops the
/// whole cluster, which no maintenance window was ever meant to do.
const LAST_CALL: SignedDuration = SignedDuration::from_hours(7 * 24);

/// How an authority is made to last longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new certificate for the same key.
    RenewCertificate,
    /// A new key, in phases.
    ReplaceKey,
}

/// Why an authority is changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    #[error("its certificate ends at {0}")]
    Expiry(Timestamp),
    #[error("the annotation {0} asks for it")]
    Asked(&'static str),
    #[error("its certificate is missing or cannot be read")]
    NoCertificate,
    #[error("its key is gone")]
    NoKey,
}

/// What to do, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Keep,
    /// There is none yet.
    Create,
    Renew(Cause),
    /// Begin with phase 1: a new key beside the old one, which goes on signing.
    Replace(Cause),
    /// `ca.crt` does not belong to `ca.key`: give the key its certificate, the rest of phase 1 after a crash.
    Publish,
    /// Certificates that nodes rely on are missing in the Secret: publish these entries again.
    PublishAgain(Vec<String>),
    /// Phase 2: drop the old key, so that the new one signs.
    SignWithNewKey,
    /// Phase 3, or certificates that ended: these entries are no longer trusted.
    Drop(Vec<String>),
    /// The trust store for Java or its password is missing.
    CompleteStore,
    /// The change has to wait, for a maintenance window or for a replacement under way.
    Postpone {
        change: Change,
        cause: Cause,
        until: Until,
    },
}

/// What a change waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    Time(Timestamp),
    /// No maintenance window opens in sight.
    NoWindow,
    /// The replacement that is under way.
    Replaced,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |change: &Change| match change {
            Change::RenewCertificate => "renewing the certificate",
            Change::ReplaceKey => "replacing the key",
        };
        match self {
            Self::Keep => f.write_str("nothing to do"),
            Self::Create => f.write_str("making the authority, which does not exist yet"),
            Self::Renew(cause) => write!(f, "renewing the certificate with the same key: {cause}"),
            Self::Replace(cause) => write!(f, "replacing the key: {cause}"),
            Self::Publish => f.write_str("making the certificate of a key that has none yet"),
            Self::PublishAgain(entries) => {
                write!(f, "publishing again what nodes still rely on: {}", entries.join(", "))
            }
            Self::SignWithNewKey => f.write_str("every node trusts the new key: it signs from now on"),
            Self::Drop(entries) => write!(f, "dropping what is no longer needed: {}", entries.join(", ")),
            Self::CompleteStore => f.write_str("making the missing PKCS#12 store and its password"),
            Self::Postpone { change, cause, until } => {
                write!(f, "{} ({cause}) waits ", name(change))?;
                match until {
                    Until::Time(time) => write!(f, "for the maintenance window at {time}"),
                    Until::NoWindow => {
                        f.write_str("for a maintenance window, but none opens: check maintenanceTimeWindows")
                    }
                    Until::Replaced => f.write_str("for the replacement that is under way"),
                }
            }
        }
    }
}

impl Authority {
    /// What to do now. One step; after it is done and read back, there may be another.
    pub fn decide(&self, now: Timestamp, opening: Opening, nodes: Nodes) -> Decision {
        if !self.settings.generate {
            return Decision::Keep;
        }
        let Some(key) = &self.key else {
            let trusted = self.trusted(now);
            return if trusted.is_empty() { Decision::Create } else { Decision::Replace(Cause::NoKey) };
        };
        let Some(current) = self.certificate() else { return Decision::Renew(Cause::NoCertificate) };
        if !current.belongs_to(key) {
            let is_next = self.next.as_ref().is_some_and(|next| next.certificate == *current);
            return if is_next { Decision::SignWithNewKey } else { Decision::Publish };
        }
        if !self.unpublished.is_empty() {
            return Decision::PublishAgain(self.unpublished.clone());
        }
        if self.old_key.is_some() && (nodes.all_trust_newest || !self.old_key_can_sign(now)) {
            return Decision::SignWithNewKey;
        }
        if self.next.is_some() && (nodes.all_trust_newest || current.is_expired(now)) {
            return Decision::SignWithNewKey;
        }
        // What costs nobody anything goes before what may have to wait for weeks.
        let droppable = self.droppable(now, nodes);
        if !droppable.is_empty() {
            return Decision::Drop(droppable);
        }
        if !self.has_store() {
            return Decision::CompleteStore;
        }
        match self.wanted_change(current, now) {
            Some((change, cause)) => now_or_later(change, cause, self.first_end(current), now, opening),
            None if self.is_replacement_asked() => Decision::Postpone {
                change: Change::ReplaceKey,
                cause: Cause::Asked(FORCE_REPLACE),
                until: Until::Replaced,
            },
            None => Decision::Keep,
        }
    }

    fn old_key_can_sign(&self, now: Timestamp) -> bool {
        let key = self.old_key.as_ref();
        self.trusted(now).iter().any(|certificate| key.is_some_and(|key| certificate.belongs_to(key)))
    }

    fn has_store(&self) -> bool {
        [STORE, PASSWORD].iter().all(|entry| self.cert_secret().data.contains_key(*entry))
    }

    fn droppable(&self, now: Timestamp, nodes: Nodes) -> Vec<String> {
        let is_replaced = self.old_key.is_none() && nodes.all_trust_newest && nodes.all_present_newest;
        let old = self.old.iter().filter(|(_, certificate)| is_replaced || certificate.is_expired(now));
        old.map(|(name, _)| name.clone()).collect()
    }

    /// When the first certificate ends that this one may have signed: those of nodes end some days earlier.
    fn first_end(&self, current: &Certificate) -> Timestamp {
        let earlier = x509::most_spread(self.settings.validity_days, self.settings.renewal_days);
        current.not_after.saturating_sub(earlier).unwrap_or(current.not_after)
    }

    fn is_replacement_asked(&self) -> bool {
        is_asked(self.key_secret(), FORCE_REPLACE)
    }

    fn wanted_change(&self, current: &Certificate, now: Timestamp) -> Option<(Change, Cause)> {
        // One replacement at a time. One that takes so long that its own certificate ends is renewed, not replaced in
        // turn: that would never end.
        let is_replacing = self.is_replacing();
        if self.is_replacement_asked() && !is_replacing {
            return Some((Change::ReplaceKey, Cause::Asked(FORCE_REPLACE)));
        }
        if is_asked(self.cert_secret(), FORCE_RENEW) {
            return Some((Change::RenewCertificate, Cause::Asked(FORCE_RENEW)));
        }
        let is_due = now >= x509::renewal(current, self.settings.renewal_days);
        let change = if is_replacing { Change::RenewCertificate } else { self.settings.on_expiry };
        is_due.then_some((change, Cause::Expiry(current.not_after)))
    }
}

fn now_or_later(change: Change, cause: Cause, end: Timestamp, now: Timestamp, opening: Opening) -> Decision {
    if let Opening::Closed { next } = opening {
        let opens_in_time = next.is_some_and(|next| next < end);
        if opens_in_time || now < end.saturating_sub(LAST_CALL).unwrap_or(end) {
            return Decision::Postpone { change, cause, until: next.map_or(Until::NoWindow, Until::Time) };
        }
    }
    match change {
        Change::RenewCertificate => Decision::Renew(cause),
        Change::ReplaceKey => Decision::Replace(cause),
    }
}

/// Like Java's `parseBoolean`: only "true", in any case, is true.
fn is_asked(secret: &Secret, annotation: &str) -> bool {
    secret.annotations.get(annotation).is_some_and(|value| value.eq_ignore_ascii_case("true"))
}
