//! What a caller can ask Kafka to change, and what Kafka says to each part of it.

use std::fmt;

use crate::{Endpoint, ErrorCode};

/// Why Kafka did not do, or tell, one of several things that were asked for together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}{}", crate::error::message_text(.message.as_deref()))]
pub struct Refusal {
    pub code: ErrorCode,
    pub message: Option<String>,
}

/// Where a controller can be reached by the others, under the name of one of its listeners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    pub name: String,
    pub endpoint: Endpoint,
}

/// A new level for one feature. Level 0 takes the feature out of use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureUpdate {
    pub name: String,
    pub level: i16,
    pub kind: UpdateKind,
}

/// Which way a feature's level may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateKind {
    /// Up only.
    Upgrade,
    /// Down, unless metadata would be lost.
    SafeDowngrade,
    /// Down, whatever it costs. Kafka refuses it for most features.
    UnsafeDowngrade,
}

/// Whether to make a change, or only to hear whether Kafka would make it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    Apply,
    ValidateOnly,
}

impl Intent {
    pub(crate) fn validates_only(self) -> bool {
        self == Self::ValidateOnly
    }
}

/// A change of one configuration entry; all others stay as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigChange {
    pub name: String,
    pub operation: ConfigOperation,
}

impl ConfigChange {
    #[must_use]
    pub fn set(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), operation: ConfigOperation::Set(value.into()) }
    }

    #[must_use]
    pub fn delete(name: impl Into<String>) -> Self {
        Self { name: name.into(), operation: ConfigOperation::Delete }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigOperation {
    Set(String),
    /// Back to what holds without it.
    Delete,
    /// Adds to an entry that is a list what is not in it yet.
    Append(String),
    /// Takes out of an entry that is a list what is in it.
    Subtract(String),
}

/// A change of what one user proves itself with, by SCRAM-SHA-512. A user can be changed once in a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScramChange {
    Upsert { user: String, credential: ScramCredential },
    Delete { user: String },
}

impl ScramChange {
    pub(crate) fn user(&self) -> &str {
        match self {
            Self::Upsert { user, .. } | Self::Delete { user } => user,
        }
    }
}

/// What Kafka keeps of a password. Whoever has it can pose as a broker to the user, so it is not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramCredential {
    /// Kafka takes 4096 to 16384.
    pub iterations: i32,
    pub salt: Vec<u8>,
    /// The password, salted and hashed `iterations` times (`Hi` in RFC 5802).
    pub salted_password: Vec<u8>,
}

impl fmt::Debug for ScramCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramCredential").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_not_printed() {
        let credential = ScramCredential { iterations: 4096, salt: vec![77], salted_password: vec![99, 99] };
        let change = ScramChange::Upsert { user: "anna".to_owned(), credential };
        let text = format!("{change:?}");
        assert!(text.contains("anna") && !text.contains("77") && !text.contains("99"), "{text}");
    }

    #[test]
    fn a_refusal_says_what_kafka_said() {
        let silent = Refusal { code: ErrorCode::DuplicateVoter, message: None };
        assert_eq!(silent.to_string(), "DUPLICATE_VOTER");
        let wordy = Refusal { message: Some("it is one already".to_owned()), ..silent };
        assert_eq!(wordy.to_string(), "DUPLICATE_VOTER: it is one already");
    }
}
