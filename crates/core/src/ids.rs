//! The identities of a Kafka cluster: node ids, directory ids, cluster ids, and where fresh ones come from.
//!
//! Nothing here rolls dice: fresh ids are derived from the [`Entropy`] that came in with the world, so a
//! pass that is replayed makes the same choice.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The id of one Kafka node, unique in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub i32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of a metadata disk. Together with the node id it is what votes in the quorum.
///
/// It is never zero: Kafka reports zero for "unknown" in a static quorum, and a voter must not be added or
/// removed under it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectoryId([u8; 16]);

/// The text is not a directory id that could belong to a disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a directory id: it must be 22 characters of URL-safe base64, and not all zero")]
pub struct InvalidDirectoryId(String);

impl DirectoryId {
    /// The id with these bytes, unless they are all zero.
    pub fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for DirectoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for DirectoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DirectoryId({self})")
    }
}

impl FromStr for DirectoryId {
    type Err = InvalidDirectoryId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        URL_SAFE_NO_PAD
            .decode(text)
            .ok()
            .and_then(|bytes| <[u8; 16]>::try_from(bytes).ok())
            .and_then(Self::from_bytes)
            .ok_or_else(|| InvalidDirectoryId(text.to_owned()))
    }
}

/// The id that Kafka gave a cluster when it was formatted. Kept as text: existing clusters may have any.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterId(pub String);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Randomness that was drawn outside, once for a pass.
#[derive(Clone, Copy)]
pub struct Entropy(pub [u8; 32]);

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy(..)")
    }
}

impl Entropy {
    /// A fresh cluster id.
    pub fn cluster_id(&self) -> ClusterId {
        ClusterId(URL_SAFE_NO_PAD.encode(self.uuid("cluster")))
    }

    /// A fresh directory id for the metadata disk of a node.
    pub fn directory_id(&self, node: NodeId) -> DirectoryId {
        DirectoryId(self.uuid(&format!("directory-{node}")))
    }

    /// A random UUID (version 4) for a purpose. Its version bits make it impossible to be zero, or one of the
    /// small numbers that Kafka reserves.
    fn uuid(&self, purpose: &str) -> [u8; 16] {
        let hash = Sha256::new().chain_update(self.0).chain_update(purpose).finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash[..16]);
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_id_survives_its_text() {
        let id = Entropy([7; 32]).directory_id(NodeId(3));
        assert_eq!(id.to_string().len(), 22);
        assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn a_zero_directory_id_cannot_be_made() {
        assert!("AAAAAAAAAAAAAAAAAAAAAA".parse::<DirectoryId>().is_err());
        assert_eq!(DirectoryId::from_bytes([0; 16]), None);
    }

    #[test]
    fn ids_for_different_purposes_differ() {
        let entropy = Entropy([1; 32]);
        assert_ne!(entropy.directory_id(NodeId(0)), entropy.directory_id(NodeId(1)));
        assert_ne!(entropy.cluster_id(), Entropy([2; 32]).cluster_id());
        assert_eq!(entropy.cluster_id(), entropy.cluster_id());
    }
}
