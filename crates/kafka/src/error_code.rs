//! Kafka's error codes, those that an administrator's tool acts on by name.

use std::fmt;

macro_rules! error_codes {
    ($($variant:ident = $code:literal, $name:literal, $retriable:literal;)*) => {
        /// What Kafka answered instead of what was asked for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($variant,)*
            /// A code without a name here; Kafka's protocol guide has the full list.
            Other(i16),
        }

        impl ErrorCode {
            /// `None` for 0, which means that there is no error.
            #[must_use]
            pub fn from_code(code: i16) -> Option<Self> {
                match code {
                    0 => None,
                    $($code => Some(Self::$variant),)*
                    other => Some(Self::Other(other)),
                }
            }

            /// The number on the wire.
            #[must_use]
            pub fn code(self) -> i16 {
                match self {
                    $(Self::$variant => $code,)*
                    Self::Other(code) => code,
                }
            }

            /// Whether Kafka itself says that asking again may help.
            #[must_use]
            pub fn is_retriable(self) -> bool {
                match self {
                    $(Self::$variant => $retriable,)*
                    Self::Other(code) => kafka_protocol::ResponseError::try_from_code(code)
                        .is_some_and(|known| known.is_retriable()),
                }
            }
        }

        impl fmt::Display for ErrorCode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($name),)*
                    Self::Other(code) => write!(f, "error code {code}"),
                }
            }
        }

        #[cfg(test)]
        const NAMED: &[ErrorCode] = &[$(ErrorCode::$variant,)*];
    };
}

error_codes! {
    UnknownServerError = -1, "UNKNOWN_SERVER_ERROR", false;
    UnknownTopicOrPartition = 3, "UNKNOWN_TOPIC_OR_PARTITION", true;
    LeaderNotAvailable = 5, "LEADER_NOT_AVAILABLE", true;
    NotLeaderOrFollower = 6, "NOT_LEADER_OR_FOLLOWER", true;
    RequestTimedOut = 7, "REQUEST_TIMED_OUT", true;
    BrokerNotAvailable = 8, "BROKER_NOT_AVAILABLE", false;
    InvalidTopic = 17, "INVALID_TOPIC_EXCEPTION", false;
    TopicAuthorizationFailed = 29, "TOPIC_AUTHORIZATION_FAILED", false;
    ClusterAuthorizationFailed = 31, "CLUSTER_AUTHORIZATION_FAILED", false;
    UnsupportedVersion = 35, "UNSUPPORTED_VERSION", false;
    InvalidConfig = 40, "INVALID_CONFIG", false;
    NotController = 41, "NOT_CONTROLLER", true;
    InvalidRequest = 42, "INVALID_REQUEST", false;
    PolicyViolation = 44, "POLICY_VIOLATION", false;
    KafkaStorageError = 56, "KAFKA_STORAGE_ERROR", true;
    LogDirNotFound = 57, "LOG_DIR_NOT_FOUND", false;
    ResourceNotFound = 91, "RESOURCE_NOT_FOUND", false;
    DuplicateResource = 92, "DUPLICATE_RESOURCE", false;
    UnacceptableCredential = 93, "UNACCEPTABLE_CREDENTIAL", false;
    InvalidUpdateVersion = 95, "INVALID_UPDATE_VERSION", false;
    FeatureUpdateFailed = 96, "FEATURE_UPDATE_FAILED", false;
    BrokerIdNotRegistered = 102, "BROKER_ID_NOT_REGISTERED", false;
    InconsistentClusterId = 104, "INCONSISTENT_CLUSTER_ID", false;
    MismatchedEndpointType = 114, "MISMATCHED_ENDPOINT_TYPE", false;
    UnsupportedEndpointType = 115, "UNSUPPORTED_ENDPOINT_TYPE", false;
    UnknownControllerId = 116, "UNKNOWN_CONTROLLER_ID", false;
    InvalidVoterKey = 125, "INVALID_VOTER_KEY", false;
    DuplicateVoter = 126, "DUPLICATE_VOTER", false;
    VoterNotFound = 127, "VOTER_NOT_FOUND", false;
}

impl ErrorCode {
    /// Whether the node says that somebody else leads the quorum.
    pub(crate) fn is_not_leader(self) -> bool {
        matches!(self, Self::NotLeaderOrFollower | Self::NotController)
    }

    /// Whether a change that was answered with this may have been made all the same.
    ///
    /// Kafka's own time may run out while a change waits to be committed; and a leader that has to resign answers so for all
    /// that it has written and not committed yet, of which the next leader keeps what a majority has.
    pub(crate) fn leaves_open(self) -> bool {
        self.is_not_leader()
            || matches!(self, Self::RequestTimedOut | Self::UnknownServerError | Self::Other(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_no_error_and_unnamed_codes_keep_their_number() {
        assert_eq!(ErrorCode::from_code(0), None);
        assert_eq!(ErrorCode::from_code(9999), Some(ErrorCode::Other(9999)));
        assert_eq!(ErrorCode::Other(9999).to_string(), "error code 9999");
        assert!(ErrorCode::Other(14).is_retriable(), "COORDINATOR_LOAD_IN_PROGRESS");
    }

    #[test]
    fn named_codes_agree_with_the_protocol() {
        for &named in NAMED {
            assert_eq!(ErrorCode::from_code(named.code()), Some(named));
            let protocol = kafka_protocol::ResponseError::try_from_code(named.code()).unwrap();
            assert_eq!(named.is_retriable(), protocol.is_retriable(), "{named}");
            let shouted = named.to_string().replace('_', "").to_lowercase();
            assert_eq!(shouted, protocol.to_string().to_lowercase());
        }
    }
}
