//! The certificate authorities of a cluster and the certificates that they sign.
//!
//! - [`authority`]: what the two Secrets of an authority hold, what is to be done about it now, and the new contents
//! - [`leaf`]: certificates of nodes and of the operator, and why one has to be made again
//! - [`trust`]: certificates read from PEM, and the bundle that a node trusts
//! - [`window`]: when maintenance may happen
//!
//! Deciding is pure: the time comes in as a value, and nothing here knows Kubernetes. Only what makes a key
//! ([`Authority::carry_out`], [`Issuer::issue`]) rolls dice.
//!
//! One pass over an authority:
//!
//! ```
//! use karst_certs::{Authority, Decision, Kind, Nodes, Opening, Settings};
//!
//! # fn pass(now: jiff::Timestamp) -> Result<(), Box<dyn std::error::Error>> {
//! let kind = Kind::Cluster;
//! let authority = Authority::read(kind, "my-cluster", &Settings::default(), None, None)?;
//! let decision = authority.decide(now, Opening::Open, Nodes::NONE);
//! assert_eq!(decision, Decision::Create);
//! for write in authority.carry_out(&decision, now)? {
//!     // Write these one after the other, each on condition that the Secret is still the one that was read.
//!     assert!(!write.content.data.is_empty());
//! }
//! # Ok(())
//! # }
//! # pass("2026-01-01T00:00:00Z".parse().unwrap()).unwrap();
//! ```

pub mod authority;
pub mod key;
pub mod leaf;
mod p12;
pub mod trust;
pub mod window;
mod x509;

pub use authority::{Authority, Decision, Kind, Material, Nodes, Refusal, Secret, SecretWrite, Settings};
pub use key::KeyAlgorithm;
pub use leaf::{Issuer, Leaf, Reason, Request, Stored, why_reissue};
pub use trust::Certificate;
pub use window::{Opening, Windows};

/// Why a key or a certificate could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("a certificate or key could not be made: {0}")]
    Making(#[from] rcgen::Error),
    #[error("the system gave no random bytes")]
    NoRandomness,
    #[error("the certificate of {0} cannot be read back after it was made")]
    Unreadable(String),
    #[error(
        "the subject of the authority {0} cannot be written the same way again: use a subject with one plain attribute per part"
    )]
    Subject(String),
    #[error("there is no key that could do this")]
    NoKey,
}
