//! What can go wrong, said so that a person woken at night knows which node to look at.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::tls::TlsFailure;
use crate::{Endpoint, ErrorCode, NodeId};

/// The questions this client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Api {
    Fetch,
    Metadata,
    ApiVersions,
    DescribeConfigs,
    DescribeQuorum,
    DescribeCluster,
    DescribeLogDirs,
    ListPartitionReassignments,
    DescribeTopicPartitions,
    IncrementalAlterConfigs,
    AlterUserScramCredentials,
    UpdateFeatures,
    UnregisterBroker,
    AddRaftVoter,
    RemoveRaftVoter,
}

impl Api {
    /// Whether it changes something. What only looks is asked again when an answer got lost. A change is not: the answer to the
    /// repetition ("duplicate voter", "voter not found") would look like a refusal of what was in fact done, or like the
    /// success of what somebody else did.
    #[must_use]
    pub fn is_change(self) -> bool {
        match self {
            Self::Fetch
            | Self::Metadata
            | Self::ApiVersions
            | Self::DescribeConfigs
            | Self::DescribeQuorum
            | Self::DescribeCluster
            | Self::DescribeLogDirs
            | Self::ListPartitionReassignments
            | Self::DescribeTopicPartitions => false,
            Self::IncrementalAlterConfigs
            | Self::AlterUserScramCredentials
            | Self::UpdateFeatures
            | Self::UnregisterBroker
            | Self::AddRaftVoter
            | Self::RemoveRaftVoter => true,
        }
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A range of versions of one API, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    pub min: i16,
    pub max: i16,
}

impl Versions {
    pub(crate) const fn new(min: i16, max: i16) -> Self {
        Self { min, max }
    }

    pub(crate) fn highest_common(self, other: Self) -> Option<i16> {
        let highest = self.max.min(other.max);
        (highest >= self.min && highest >= other.min).then_some(highest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { min, max } if min == max => write!(f, "version {min}"),
            Self { min, max } => write!(f, "versions {min} to {max}"),
        }
    }
}

/// Why a call did not get its answer.
///
/// Each message is complete by itself: the reason that an operating system gave is part of it, not a source to be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No connection could be opened: no such name, nothing listens there, or no route.
    #[error("cannot connect to {endpoint}: {reason}")]
    Connect { endpoint: Endpoint, reason: io::Error },

    /// The connection was opened, but could not be secured.
    #[error("cannot talk securely to {endpoint}: {reason}")]
    Tls { endpoint: Endpoint, reason: TlsFailure },

    /// A connection broke before the answer began: the node stopped, or closed it.
    #[error("{endpoint} closed the connection before it answered {api}: {reason}")]
    Disconnected { endpoint: Endpoint, api: Api, reason: io::Error },

    /// Time ran out. `waiting_for` says what for.
    #[error("{endpoint} did not answer within {after:?} while {waiting_for}")]
    Timeout { endpoint: Endpoint, waiting_for: Waiting, after: Duration },

    /// What came back is not what Kafka would send: another service listens there, or the bytes were damaged.
    #[error("{endpoint} sent something that is not a valid answer to {api}: {detail}")]
    Protocol { endpoint: Endpoint, api: Api, detail: String },

    /// The node is too old, too new, or of the wrong kind for this question.
    #[error("{endpoint} does not support {api} as this client speaks it: this client has {ours}, the node {}", theirs_text(*.theirs))]
    Unsupported { endpoint: Endpoint, api: Api, ours: Versions, theirs: Option<Versions> },

    /// Kafka understood the question and refused.
    #[error("{endpoint} answered {api} with {code}{}", message_text(.message.as_deref()))]
    Kafka { endpoint: Endpoint, api: Api, code: ErrorCode, message: Option<String> },

    /// The client was made without any address.
    #[error("no address is known under which the cluster could be asked")]
    NoEndpoint,

    /// All addresses were tried in vain; each has its own reason.
    #[error("none of the {} addresses gave an answer: {}", .attempts.len(), attempts_text(.attempts))]
    Unreachable { attempts: Vec<Error> },

    /// The node knows of no leader of the metadata quorum: an election is under way, or the majority of the voters is gone.
    #[error("{endpoint} knows of no leader of the metadata quorum")]
    NoLeader { endpoint: Endpoint },

    /// Kafka named a host that is not among those the client connects to.
    #[error("Kafka names {endpoint}, which is no host of this cluster: it is not connected to")]
    ForeignHost { endpoint: Endpoint },

    /// The node does not list the one that was to be asked: it has not registered yet, or is gone.
    #[error("node {node} is not among those that {endpoint} lists")]
    UnknownNode { endpoint: Endpoint, node: NodeId },
}

/// What a call was doing when its time ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waiting {
    /// An earlier call on the same connection had not ended.
    ForEarlierCall,
    /// The connection was being opened.
    ToConnect,
    /// The question was sent, or was being sent.
    ForAnswer(Api),
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForEarlierCall => f.write_str("waiting for an earlier call to end"),
            Self::ToConnect => f.write_str("connecting"),
            Self::ForAnswer(api) => write!(f, "waiting for {api}"),
        }
    }
}

impl Error {
    /// Whether the same call may succeed later without anybody changing anything.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::Disconnected { .. }
            | Self::Timeout { .. }
            | Self::NoLeader { .. }
            | Self::UnknownNode { .. } => true,
            Self::Protocol { .. }
            | Self::Unsupported { .. }
            | Self::NoEndpoint
            | Self::ForeignHost { .. } => false,
            Self::Tls { reason, .. } => reason.is_passing(),
            Self::Kafka { .. } if self.is_from_a_beginner() => true,
            Self::Kafka { code, .. } => code.is_retriable(),
            Self::Unreachable { attempts } => attempts.iter().any(Self::is_retriable),
        }
    }

    /// Whether a change that ended in this error may have been made all the same, or may yet be: it was sent, and what became of
    /// it is not known. Look before you ask for it again.
    ///
    /// Never true for a call that only looks.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Disconnected { api, .. }
            | Self::Protocol { api, .. }
            | Self::Timeout { waiting_for: Waiting::ForAnswer(api), .. } => api.is_change(),
            Self::Kafka { api, code, .. } => api.is_change() && code.leaves_open(),
            Self::Unreachable { attempts } => attempts.iter().any(Self::may_have_happened),
            Self::Timeout { waiting_for: Waiting::ForEarlierCall | Waiting::ToConnect, .. }
            | Self::Connect { .. }
            | Self::Tls { .. }
            | Self::Unsupported { .. }
            | Self::NoEndpoint
            | Self::ForeignHost { .. }
            | Self::NoLeader { .. }
            | Self::UnknownNode { .. } => false,
        }
    }

    /// Whether the node at the other end gave no usable answer, or does not know, so that another is worth asking.
    pub(crate) fn is_no_answer(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::Tls { .. }
            | Self::Disconnected { .. }
            | Self::Timeout { .. }
            | Self::Protocol { .. }
            | Self::NoLeader { .. }
            | Self::UnknownNode { .. } => true,
            Self::Kafka { .. } => self.is_from_a_beginner(),
            Self::Unsupported { .. }
            | Self::NoEndpoint
            | Self::ForeignHost { .. }
            | Self::Unreachable { .. } => false,
        }
    }

    /// Whether it comes from a controller that has just started. Until it has read the metadata log it takes the cluster for one
    /// of the time before controllers answered such questions (KIP-919), and says that it is too old.
    fn is_from_a_beginner(&self) -> bool {
        matches!(self, Self::Kafka { api: Api::DescribeCluster, code: ErrorCode::UnsupportedVersion, .. })
    }

    /// Whether the node that was named as the leader is not to be asked: it does not lead, or is no host of the cluster.
    pub(crate) fn is_not_leader(&self) -> bool {
        match self {
            Self::Kafka { code, .. } => code.is_not_leader(),
            Self::ForeignHost { .. } => true,
            _ => false,
        }
    }

    /// Whether those who were asked know of no leader, or not where it is.
    pub(crate) fn is_lost_leader(&self) -> bool {
        match self {
            Self::NoLeader { .. } => true,
            Self::Unreachable { attempts } => attempts.iter().any(Self::is_lost_leader),
            _ => self.is_unknown_node(),
        }
    }

    /// Whether a node was named of which nobody says where it is.
    pub(crate) fn is_unknown_node(&self) -> bool {
        match self {
            Self::UnknownNode { .. } => true,
            Self::Unreachable { attempts } => attempts.iter().any(Self::is_unknown_node),
            _ => false,
        }
    }

    /// One failure stands for itself; several are told together.
    pub(crate) fn from_attempts(mut attempts: Vec<Error>) -> Self {
        match attempts.len() {
            0 | 1 => attempts.pop().unwrap_or(Self::NoEndpoint),
            _ => Self::Unreachable { attempts },
        }
    }
}

fn theirs_text(theirs: Option<Versions>) -> String {
    theirs
        .map_or_else(|| "does not offer it on this listener".to_owned(), |versions| format!("has {versions}"))
}

pub(crate) fn message_text(message: Option<&str>) -> String {
    message.map_or_else(String::new, |message| format!(": {message}"))
}

fn attempts_text(attempts: &[Error]) -> String {
    attempts.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker() -> Endpoint {
        Endpoint::new("broker-3", 9091)
    }

    #[test]
    fn the_highest_version_that_both_have_is_taken() {
        let ours = Versions::new(1, 4);
        assert_eq!(ours.highest_common(Versions::new(0, 9)), Some(4));
        assert_eq!(ours.highest_common(Versions::new(0, 2)), Some(2));
        assert_eq!(ours.highest_common(Versions::new(4, 9)), Some(4));
        assert_eq!(ours.highest_common(Versions::new(5, 9)), None);
        assert_eq!(ours.highest_common(Versions::new(0, 0)), None);
        assert_eq!(ours.highest_common(Versions::new(3, 2)), None, "a peer that contradicts itself");
    }

    #[test]
    fn messages_say_what_happened_to_which_node() {
        let unsupported = Error::Unsupported {
            endpoint: broker(),
            api: Api::DescribeQuorum,
            ours: Versions::new(0, 2),
            theirs: Some(Versions::new(3, 3)),
        };
        assert_eq!(
            unsupported.to_string(),
            "broker-3:9091 does not support DescribeQuorum as this client speaks it: \
             this client has versions 0 to 2, the node has version 3"
        );
        let refused = Error::Kafka {
            endpoint: broker(),
            api: Api::DescribeConfigs,
            code: ErrorCode::InvalidRequest,
            message: Some("Unexpected broker id".to_owned()),
        };
        assert_eq!(
            refused.to_string(),
            "broker-3:9091 answered DescribeConfigs with INVALID_REQUEST: Unexpected broker id"
        );
    }

    #[test]
    fn only_a_change_that_was_sent_and_not_plainly_refused_may_have_happened() {
        let lost = |api| Error::Disconnected { endpoint: broker(), api, reason: io::Error::other("reset") };
        assert!(lost(Api::RemoveRaftVoter).may_have_happened());
        assert!(!lost(Api::ApiVersions).may_have_happened(), "the change was to come after it");
        assert!(!lost(Api::DescribeQuorum).may_have_happened(), "a look changes nothing");
        let refused = |code| Error::Kafka { endpoint: broker(), api: Api::AddRaftVoter, code, message: None };
        for open in [
            ErrorCode::RequestTimedOut,
            ErrorCode::NotLeaderOrFollower,
            ErrorCode::NotController,
            ErrorCode::UnknownServerError,
            ErrorCode::Other(9999),
        ] {
            assert!(refused(open).may_have_happened(), "{open}");
        }
        for plain in [ErrorCode::DuplicateVoter, ErrorCode::InvalidRequest, ErrorCode::UnsupportedVersion] {
            assert!(!refused(plain).may_have_happened(), "{plain}");
        }
        let unreachable = Error::from_attempts(vec![lost(Api::ApiVersions), lost(Api::AddRaftVoter)]);
        assert!(unreachable.may_have_happened());
    }

    #[test]
    fn one_failed_attempt_is_told_without_ceremony_and_several_together() {
        let timeout = || Error::Timeout {
            endpoint: broker(),
            waiting_for: Waiting::ToConnect,
            after: Duration::from_secs(3),
        };
        assert_eq!(
            Error::from_attempts(vec![timeout()]).to_string(),
            "broker-3:9091 did not answer within 3s while connecting"
        );
        let both = Error::from_attempts(vec![timeout(), timeout()]);
        assert!(
            both.to_string().starts_with("none of the 2 addresses gave an answer: broker-3:9091 did not")
        );
        assert!(both.is_retriable());
        assert!(matches!(Error::from_attempts(Vec::new()), Error::NoEndpoint));
    }
}
