//! The identities that Kafka hands out, as types that cannot be mixed up.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

/// The id of a node, be it a broker, a controller or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub i32);

impl NodeId {
    /// Kafka writes "nobody" as a negative id.
    pub(crate) fn known(raw: i32) -> Option<Self> {
        (raw >= 0).then_some(Self(raw))
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A text that should be one of Kafka's ids and is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a Kafka id: expected 22 characters of URL-safe base64 that are not all zero")]
pub struct InvalidId {
    text: String,
}

macro_rules! nonzero_uuid {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// `None` for the zero id, which is how Kafka says "not known".
            #[must_use]
            pub fn from_uuid(uuid: Uuid) -> Option<Self> {
                Self::from_bytes(uuid.into_bytes())
            }

            /// `None` for the zero id, which is how Kafka says "not known".
            #[must_use]
            pub fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
                (bytes != [0; 16]).then_some(Self(bytes))
            }

            /// The sixteen bytes, as they travel on the wire.
            #[must_use]
            pub fn to_bytes(self) -> [u8; 16] {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&URL_SAFE_NO_PAD.encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                // The length is checked first: it bounds what is decoded, and what the error repeats is for people.
                (text.len() == 22)
                    .then(|| URL_SAFE_NO_PAD.decode(text).ok())
                    .flatten()
                    .and_then(|bytes| <[u8; 16]>::try_from(bytes).ok())
                    .and_then(Self::from_bytes)
                    .ok_or_else(|| InvalidId { text: text.to_owned() })
            }
        }
    };
}

nonzero_uuid! {
    /// The identity of one log directory: together with the node id it is who a quorum voter is.
    ///
    /// A static quorum reports all directory ids as zero. A zero id cannot be made here, so it can never be used to add or
    /// remove a voter by mistake.
    DirectoryId
}

nonzero_uuid! {
    /// The identity of a topic: a topic that was deleted and made again under the same name has another one.
    TopicId
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_printed_and_read_as_kafka_does() {
        // An id may well begin with a dash, which is what the URL-safe alphabet has for 62.
        let id: DirectoryId = "-wAAAAAAAAAAAAAAAAAAAQ".parse().unwrap();
        assert_eq!(id.to_bytes(), [0xfb, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(id.to_string(), "-wAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(format!("{id:?}"), "DirectoryId(-wAAAAAAAAAAAAAAAAAAAQ)");
    }

    #[test]
    fn a_zero_id_cannot_be_made() {
        assert_eq!(DirectoryId::from_uuid(Uuid::nil()), None);
        assert!("AAAAAAAAAAAAAAAAAAAAAA".parse::<DirectoryId>().is_err());
    }

    #[test]
    fn what_is_not_an_id_is_refused() {
        for text in [
            "",
            "abc",
            "AAAAAAAAAAAAAAAAAAAAAQ==",
            "AAAAAAAAAAAAAAAAAAAA+Q",
            "AAAAAAAAAAAAAAAAAAAAAB",
            "éééééééééééé",
        ] {
            assert!(text.parse::<DirectoryId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_negative_node_id_means_nobody() {
        assert_eq!(NodeId::known(-1), None);
        assert_eq!(NodeId::known(0), Some(NodeId(0)));
    }
}
