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
//! Whoever signs for clients takes `ca.key` as it is, so a new key of theirs waits in the key Secret, as `ca-next.key` with its
//! certificate `ca-next.crt`, until every node trusts it. Then its certificate is published, and it becomes `ca.key`. What it
//! replaces stays trusted until it ends: nobody knows who still presents it.
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
use crate::trust::{Certificate, Unreadable};
use crate::{key, x509};

pub const ORGANIZATION: &str = "io.strimzi";
pub const CERT_GENERATION: &str = "strimzi.io/ca-cert-generation";
pub const KEY_GENERATION: &str = "strimzi.io/ca-key-generation";
pub const FORCE_RENEW: &str = "strimzi.io/force-renew";
pub const FORCE_REPLACE: &str = "strimzi.io/force-replace";
const CERTIFICATE: &str = "ca.crt";
const KEY: &str = "ca.key";
const OLD_KEY: &str = "ca-old.key";
const NEXT_KEY: &str = "ca-next.key";
const NEXT_CERTIFICATE: &str = "ca-next.crt";
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
        [cluster, "-", self.name(), "-cert"].concat()
    }

    pub fn key_secret(self, cluster: &str) -> String {
        [cluster, "-", self.name()].concat()
    }

    /// The authority whose certificates or key are in this Secret.
    pub fn of_secret(cluster: &str, secret: &str) -> Option<Self> {
        let name = secret.strip_prefix(cluster)?.strip_prefix('-')?;
        let name = name.strip_suffix("-cert").unwrap_or(name);
        [Self::Cluster, Self::Clients].into_iter().find(|kind| kind.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster-ca",
            Self::Clients => "clients-ca",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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

/// A Secret whose certificates and keys were taken apart, once: that costs more than all that is decided from them.
#[derive(Default)]
pub struct Material {
    pub secret: Secret,
    certificates: BTreeMap<String, Result<Vec<Certificate>, Unreadable>>,
    keys: BTreeMap<String, Option<Arc<KeyPair>>>,
}

impl Material {
    pub fn new(secret: Secret) -> Self {
        let of = |ending: &'static str| secret.data.iter().filter(move |(name, _)| name.ends_with(ending));
        Self {
            certificates: of(".crt")
                .map(|(name, pem)| (name.clone(), Certificate::all_from_pem(pem)))
                .collect(),
            keys: of(".key").map(|(name, pem)| (name.clone(), key::read(pem).map(Arc::new))).collect(),
            secret,
        }
    }

    /// The certificates of an entry, if there is one and it can be read.
    pub fn certificates(&self, entry: &str) -> Option<&[Certificate]> {
        self.certificates.get(entry)?.as_deref().ok()
    }
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.secret.fmt(f)
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
#[derive(Clone)]
pub struct Authority {
    kind: Kind,
    cluster: String,
    settings: Settings,
    cert_material: Arc<Material>,
    key_material: Arc<Material>,
    /// `ca.crt`: the newest certificate; of a user's authority, also those that it is signed by.
    published: Vec<Certificate>,
    /// `ca-<date>.crt` by their names, as far as they can be read, and what was remembered.
    old: BTreeMap<String, Certificate>,
    /// Those of them that the Secret does not hold, and has to: see [`Authority::remembering`].
    unpublished: Vec<String>,
    key: Option<Arc<KeyPair>>,
    old_key: Option<Arc<KeyPair>>,
    /// A key that is to sign when everybody trusts it.
    next: Option<Box<Next>>,
    cert_generation: u64,
    key_generation: u64,
}

#[derive(Clone)]
struct Next {
    key: Arc<KeyPair>,
    certificate: Certificate,
}

impl Next {
    /// Half of one is as good as none.
    fn read(material: &Material) -> Option<Self> {
        let key = material.keys.get(NEXT_KEY)?.clone()?;
        let certificate = material.certificates(NEXT_CERTIFICATE)?.first()?.clone();
        certificate.belongs_to(&key).then_some(Self { key, certificate })
    }
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
        let take_apart = |secret: &Secret| Arc::new(Material::new(secret.clone()));
        let [cert, key] = [cert_secret, key_secret].map(|secret| secret.map(take_apart));
        Self::from_material(kind, cluster, settings, cert.as_ref(), key.as_ref())
    }

    /// The same from Secrets that were taken apart before.
    pub fn from_material(
        kind: Kind,
        cluster: &str,
        settings: &Settings,
        cert: Option<&Arc<Material>>,
        key: Option<&Arc<Material>>,
    ) -> Result<Self, Refusal> {
        let (cert_name, key_name) = (kind.cert_secret(cluster), kind.key_secret(cluster));
        if !settings.generate {
            check::is_brought(&cert_name, cert.map(|cert| &cert.secret), CERTIFICATE)?;
            check::is_brought(&key_name, key.map(|key| &key.secret), KEY)?;
        }
        let [cert_material, key_material] = [cert, key].map(|one| one.cloned().unwrap_or_default());
        let key = check::key(&key_name, &key_material, KEY)?;
        let mut published = match cert_material.certificates.get(CERTIFICATE) {
            Some(Err(problem)) if !settings.generate => return Err(check::unreadable(&cert_name, problem)),
            Some(Ok(published)) => published.clone(),
            _ => Vec::new(),
        };
        if settings.generate {
            // The rest repeats, for clients, what has entries of its own.
            published.truncate(1);
        } else {
            check::chain(&cert_name, &published)?;
            check::belongs(&key_name, &published, key.as_deref())?;
        }
        let old = cert_material.certificates.iter().filter(|(name, _)| name.starts_with("ca-"));
        let first = |(name, read): (&String, &Result<Vec<Certificate>, Unreadable>)| {
            Some((name.clone(), read.as_ref().ok()?.first()?.clone()))
        };
        Ok(Self {
            old: old.filter_map(first).collect(),
            unpublished: Vec::new(),
            published,
            key,
            old_key: check::key(&key_name, &key_material, OLD_KEY)?,
            next: Next::read(&key_material)
                .filter(|_| settings.generate && kind == Kind::Clients)
                .map(Box::new),
            cert_generation: check::generation(&cert_name, &cert_material.secret, CERT_GENERATION)?,
            key_generation: check::generation(&key_name, &key_material.secret, KEY_GENERATION)?,
            kind,
            cluster: cluster.to_owned(),
            settings: *settings,
            cert_material,
            key_material,
        })
    }

    /// Adds certificates that nodes still rely on, and that the Secrets do not hold any more: they were deleted or overwritten.
    ///
    /// What those certificates signed stays trusted until nobody relies on it, whatever became of the Secrets. An
    /// authority that Karst makes publishes them again, and goes on counting after `generation`.
    #[must_use]
    pub fn remembering(mut self, relied_on: &[Certificate], generation: u64) -> Self {
        for certificate in relied_on {
            let id = certificate.authority_id();
            if self.signing().any(|known| known.authority_id() == id) {
                continue;
            }
            let end = certificate.not_after.strftime("%Y-%m-%dT%H-%M-%SZ");
            let mut entry = format!("ca-{end}.crt");
            if self.old.contains_key(&entry) {
                entry = format!("ca-{end}-{id}.crt");
            }
            self.unpublished.push(entry.clone());
            self.old.insert(entry, certificate.clone());
        }
        if self.settings.generate {
            self.cert_generation = self.cert_generation.max(generation);
        } else {
            self.unpublished.clear();
        }
        self
    }

    /// What signs, will sign, or has signed, ended or not. Of a chain that is only its first certificate.
    fn signing(&self) -> impl Iterator<Item = &Certificate> {
        let next = self.next.as_ref().map(|next| &next.certificate);
        self.published.first().into_iter().chain(next).chain(self.old.values())
    }

    /// All that it is made of: the Secrets of its certificates and of its key.
    pub fn secrets(&self) -> [&Secret; 2] {
        [self.cert_secret(), self.key_secret()]
    }

    fn cert_secret(&self) -> &Secret {
        &self.cert_material.secret
    }

    fn key_secret(&self) -> &Secret {
        &self.key_material.secret
    }

    /// Is an old key, or a certificate of one, still of use? Then nodes have to learn about the new one.
    pub fn is_replacing(&self) -> bool {
        self.old_key.is_some() || self.next.is_some() || !self.old.is_empty()
    }

    /// Does a new key wait until every node trusts it?
    pub fn has_next(&self) -> bool {
        self.next.is_some()
    }

    /// Is it time for a new certificate?
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.certificate().is_some_and(|current| now >= x509::renewal(current, self.settings.renewal_days))
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What kind of key it gets when it gets a new one.
    pub fn algorithm(&self) -> KeyAlgorithm {
        self.settings.algorithm
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

    /// All certificates that are trusted inside the cluster now, and have not ended.
    ///
    /// Of a chain only the authority that signs is among them. Those above it sign for others too: whoever trusts them
    /// lets in every certificate under the same root.
    pub fn trusted(&self, now: Timestamp) -> Vec<&Certificate> {
        distinct(self.signing().filter(|certificate| !certificate.is_expired(now)))
    }

    /// What nodes are given to trust; [`trust::bundle`](crate::trust::bundle) makes a file of it. When all has ended it is the
    /// newest certificate all the same: Kafka does not start with an empty list.
    pub fn given_to_nodes(&self, now: Timestamp) -> Vec<&Certificate> {
        let trusted = self.trusted(now);
        if trusted.is_empty() { self.certificate().into_iter().collect() } else { trusted }
    }

    /// What clients are told to trust: with all of the chain, because some TLS libraries accept nothing below a root.
    pub fn for_clients(&self, now: Timestamp) -> Vec<&Certificate> {
        let all = self.published.iter().chain(self.signing());
        distinct(all.filter(|certificate| !certificate.is_expired(now)))
    }

    /// Who signs leaves now; refused while no key has a certificate that still holds.
    pub fn issuer(&self, now: Timestamp, nodes: Nodes) -> Result<Issuer, Refusal> {
        let trusted = self.trusted(now);
        let pair = |key: &Arc<KeyPair>| {
            let certificate = trusted.iter().find(|certificate| certificate.belongs_to(key))?;
            Some(((*certificate).clone(), Arc::clone(key)))
        };
        let by_old = self.old_key.as_ref().and_then(pair);
        let key_generation = self.key_generation.saturating_sub(u64::from(by_old.is_some()));
        let found = by_old.or_else(|| self.key.as_ref().and_then(pair));
        let (certificate, key) = found.ok_or_else(|| self.no_issuer())?;
        let others = trusted.into_iter().filter(|other| **other != certificate && !nodes.all_trust_newest);
        Ok(Issuer {
            tolerated: others.cloned().collect(),
            chain: self.chain_of(&certificate),
            certificate,
            key,
            key_generation,
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

    /// From a user's authority up to its root, without the root. It goes with every leaf, though those inside need none of it:
    /// clients may trust the root alone.
    fn chain_of(&self, certificate: &Certificate) -> Vec<Certificate> {
        let is_users = !self.settings.generate && self.certificate() == Some(certificate);
        let chain = self.published.iter().filter(|certificate| is_users && !certificate.is_self_signed());
        chain.cloned().collect()
    }
}

fn distinct<'a>(all: impl Iterator<Item = &'a Certificate>) -> Vec<&'a Certificate> {
    let mut distinct: Vec<&Certificate> = Vec::new();
    for certificate in all {
        if !distinct.contains(&certificate) {
            distinct.push(certificate);
        }
    }
    distinct
}
