//! A certificate authority: two Secrets, one with its certificates for everybody, one with its key.
//!
//! **Renewal** makes a new certificate for the same key under the same subject: leaves signed before stay good for
//! everybody, whichever of the two certificates they trust. **Replacement** makes a new key, in phases that never
//! break trust:
//!
//! 1. The new certificate is published as `ca.crt`, the old one beside it as `ca-<its end>.crt`. The key Secret holds
//!    both keys, and the old one (`ca-old.key`) goes on signing, so a node that joins now is trusted by all.
//! 2. When every node trusts the new certificate, the old key is dropped: from now on the new one signs.
//! 3. When every node presents a certificate of the new key, the old certificate is dropped.
//!
//! The state is only what the Secrets hold, so a crash between any two writes is harmless. Of two writes the key comes
//! first: a key without its certificate can still be given one, while a certificate without its key would be lost. A
//! `ca.crt` that does not belong to `ca.key` is that half-written state, and is finished.
//!
//! While `ca.crt` and old certificates are both trusted, `ca.crt` holds them all, the newest first: a client that takes
//! only that file trusts old and new leaves too.
//!
//! An authority that the user brings is only read and judged, never written.

mod change;
mod check;
mod decision;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use rcgen::KeyPair;

pub use self::decision::{Cause, Change, Decision, Until};
use crate::key::KeyAlgorithm;
use crate::leaf::Issuer;
use crate::trust::Certificate;

pub const ORGANIZATION: &str = "io.strimzi";
pub const CERT_GENERATION: &str = "strimzi.io/ca-cert-generation";
pub const KEY_GENERATION: &str = "strimzi.io/ca-key-generation";
pub const FORCE_RENEW: &str = "strimzi.io/force-renew";
pub const FORCE_REPLACE: &str = "strimzi.io/force-replace";
const CERTIFICATE: &str = "ca.crt";
const KEY: &str = "ca.key";
const OLD_KEY: &str = "ca-old.key";
const STORE: &str = "ca.p12";
const PASSWORD: &str = "ca.password";

/// Which of a cluster's authorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Cluster,
    Clients,
}

impl Kind {
    pub fn cert_secret(self, cluster: &str) -> String {
        format!("{cluster}-{self}-cert")
    }

    pub fn key_secret(self, cluster: &str) -> String {
        format!("{cluster}-{self}")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cluster => "cluster-ca",
            Self::Clients => "clients-ca",
        })
    }
}

/// What the `Kafka` resource says about an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether Karst makes the authority; if not, the user does.
    pub generate: bool,
    pub validity_days: u32,
    pub renewal_days: u32,
    pub on_expiry: Change,
    pub algorithm: KeyAlgorithm,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            generate: true,
            validity_days: 365,
            renewal_days: 30,
            on_expiry: Change::RenewCertificate,
            algorithm: KeyAlgorithm::default(),
        }
    }
}

/// What a Secret holds: all of its data, and all of its annotations.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret {
    pub data: BTreeMap<String, Vec<u8>>,
    pub annotations: BTreeMap<String, String>,
}

impl fmt::Debug for Secret {
    /// Without the values: they are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({:?}, {:?})", self.data.keys().collect::<Vec<_>>(), self.annotations)
    }
}

/// The Secret to be written, as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretWrite {
    pub name: String,
    pub content: Secret,
}

/// What the cluster's nodes run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// Every node runs with a trust bundle of the newest certificate generation.
    pub all_trust_newest: bool,
    /// Every node (of the clients' authority: every user) presents a certificate signed by the newest key.
    pub all_present_newest: bool,
}

impl Nodes {
    /// There is no node: none can lose trust, but none proves that the old certificates are of no use either.
    pub const NONE: Self = Self { all_trust_newest: true, all_present_newest: false };
}

/// An authority that cannot be used, and what would make it usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Secret {secret}: {problem}; {remedy}")]
pub struct Refusal {
    pub secret: String,
    pub problem: String,
    pub remedy: String,
}

/// An authority as its Secrets show it.
pub struct Authority {
    kind: Kind,
    cluster: String,
    settings: Settings,
    cert_secret: Secret,
    key_secret: Secret,
    /// `ca.crt`: the newest certificate; of a user's authority, also those that it is signed by.
    published: Vec<Certificate>,
    /// `ca-<date>.crt` by their names, as far as they can be read.
    old: BTreeMap<String, Certificate>,
    key: Option<Arc<KeyPair>>,
    old_key: Option<Arc<KeyPair>>,
    cert_generation: u64,
    key_generation: u64,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority({}, {:?}, old: {:?})", self.kind, self.published, self.old)
    }
}

impl Authority {
    /// Reads what the Secrets hold; an absent Secret is `None`.
    ///
    /// What Karst made itself is refused only where going on would destroy something: a key that cannot be read.
    pub fn read(
        kind: Kind,
        cluster: &str,
        settings: &Settings,
        cert_secret: Option<&Secret>,
        key_secret: Option<&Secret>,
    ) -> Result<Self, Refusal> {
        let (cert_name, key_name) = (kind.cert_secret(cluster), kind.key_secret(cluster));
        if !settings.generate {
            check::is_brought(&cert_name, cert_secret, CERTIFICATE)?;
            check::is_brought(&key_name, key_secret, KEY)?;
        }
        let [cert_secret, key_secret] = [cert_secret, key_secret].map(|one| one.cloned().unwrap_or_default());
        let key = check::key(&key_name, &key_secret, KEY)?;
        let published = cert_secret.data.get(CERTIFICATE).map(|pem| Certificate::all_from_pem(pem));
        let mut published = match published.transpose() {
            Err(problem) if !settings.generate => return Err(check::unreadable(&cert_name, &problem)),
            published => published.ok().flatten().unwrap_or_default(),
        };
        if settings.generate {
            // The rest repeats, for clients, what has entries of its own.
            published.truncate(1);
        } else {
            check::chain(&cert_name, &published)?;
            check::belongs(&key_name, &published, key.as_deref())?;
        }
        let is_old = |name: &&String| name.starts_with("ca-") && name.ends_with(".crt");
        let read_old = |name: &String| {
            let first = Certificate::all_from_pem(cert_secret.data.get(name)?).ok()?.into_iter().next();
            Some((name.clone(), first?))
        };
        Ok(Self {
            old: cert_secret.data.keys().filter(is_old).filter_map(read_old).collect(),
            published,
            key,
            old_key: check::key(&key_name, &key_secret, OLD_KEY)?,
            cert_generation: check::generation(&cert_name, &cert_secret, CERT_GENERATION)?,
            key_generation: check::generation(&key_name, &key_secret, KEY_GENERATION)?,
            kind,
            cluster: cluster.to_owned(),
            settings: *settings,
            cert_secret,
            key_secret,
        })
    }

    /// The newest certificate.
    pub fn certificate(&self) -> Option<&Certificate> {
        self.published.first()
    }

    pub fn cert_generation(&self) -> u64 {
        self.cert_generation
    }

    pub fn key_generation(&self) -> u64 {
        self.key_generation
    }

    /// All certificates that a node has to trust now; [`trust::bundle`](crate::trust::bundle) makes a file of them.
    pub fn trusted(&self, now: Timestamp) -> Vec<&Certificate> {
        let all = self.published.iter().chain(self.old.values());
        let mut trusted: Vec<&Certificate> = Vec::new();
        for certificate in all.filter(|certificate| !certificate.is_expired(now)) {
            if !trusted.contains(&certificate) {
                trusted.push(certificate);
            }
        }
        trusted
    }

    /// Who signs leaves now; refused while no key has a certificate that still holds.
    pub fn issuer(&self, now: Timestamp, nodes: Nodes) -> Result<Issuer, Refusal> {
        let trusted = self.trusted(now);
        let pair = |key: &Arc<KeyPair>| {
            let certificate = trusted.iter().find(|certificate| certificate.belongs_to(key))?;
            Some(((*certificate).clone(), Arc::clone(key)))
        };
        let found = [&self.old_key, &self.key].into_iter().flatten().find_map(pair);
        let (certificate, key) = found.ok_or_else(|| self.no_issuer())?;
        let others = trusted.into_iter().filter(|other| **other != certificate && !nodes.all_trust_newest);
        Ok(Issuer {
            tolerated: others.cloned().collect(),
            chain: self.chain_of(&certificate),
            certificate,
            key,
        })
    }

    fn no_issuer(&self) -> Refusal {
        let problem = match self.certificate() {
            Some(certificate) => {
                format!("{CERTIFICATE} cannot sign; it ended or will end at {}", certificate.not_after)
            }
            None => "the authority does not exist yet".to_owned(),
        };
        let remedy = if self.settings.generate {
            "Karst makes a new certificate as soon as it may"
        } else {
            "put a renewed certificate there, and raise strimzi.io/ca-cert-generation"
        };
        check::refuse(&self.kind.cert_secret(&self.cluster), problem, remedy)
    }

    /// From a user's authority up to its root, without the root.
    fn chain_of(&self, certificate: &Certificate) -> Vec<Certificate> {
        let is_users = !self.settings.generate && self.certificate() == Some(certificate);
        let chain = self.published.iter().filter(|certificate| is_users && !certificate.is_self_signed());
        chain.cloned().collect()
    }
}
