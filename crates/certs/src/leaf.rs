//! Certificates that an authority signs: those of the nodes, which are servers and clients at once, and the
//! operator's own.
//!
//! A leaf ends with its authority's certificate at the latest: a chain is good only while all of it is. So a leaf
//! that ends soon is made again only when the new one would last longer, which is after its authority was renewed.
//! A self-signed certificate is not sent along with a leaf: whoever trusts it has it, and it would be stale after
//! a renewal that the leaf itself outlives.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use rcgen::{ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType};

use crate::key::{self, KeyAlgorithm};
use crate::trust::{self, Certificate};
use crate::{Error, x509};

/// What a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub common_name: String,
    pub organization: String,
    pub dns_names: Vec<String>,
    pub addresses: Vec<IpAddr>,
    pub validity_days: u32,
    pub renewal_days: u32,
    pub algorithm: KeyAlgorithm,
    /// Who it is for. Certificates of different bearers do not end at the same time, though their authority's certificate does.
    pub bearer: String,
}

impl Request {
    /// A certificate for this name alone, as a client has it, good for a year.
    pub fn client(common_name: &str) -> Self {
        Self {
            common_name: common_name.to_owned(),
            organization: crate::authority::ORGANIZATION.to_owned(),
            dns_names: Vec::new(),
            addresses: Vec::new(),
            validity_days: 365,
            renewal_days: 30,
            algorithm: KeyAlgorithm::default(),
            bearer: String::new(),
        }
    }

    /// Are these the names as they are written in it? Mostly they are, and then nothing has to be sorted to find out.
    fn has_just(&self, names: &[String]) -> bool {
        self.addresses.is_empty() && self.dns_names == names
    }

    fn names(&self) -> Vec<String> {
        let addresses = self.addresses.iter().map(IpAddr::to_string);
        let mut names: Vec<String> = self.dns_names.iter().cloned().chain(addresses).collect();
        names.sort();
        names.dedup();
        names
    }
}

/// A certificate and its key, as they are written.
#[derive(Clone, PartialEq, Eq)]
pub struct Leaf {
    /// The certificate and those between it and the one that is trusted.
    pub chain: String,
    /// In PKCS#8.
    pub key: String,
}

impl Leaf {
    /// The one file that Kafka takes as a PEM keystore: the key, then the chain.
    pub fn key_and_chain(&self) -> String {
        format!("{}{}", self.key, self.chain)
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Leaf({:?})", Certificate::all_from_pem(self.chain.as_bytes()))
    }
}

/// Who signs now: a certificate with its key.
pub struct Issuer {
    pub(crate) certificate: Certificate,
    /// The certificates between the issuer and the root, itself included; empty when it is the root.
    pub(crate) chain: Vec<Certificate>,
    pub(crate) key: Arc<KeyPair>,
    pub(crate) key_generation: u64,
    /// Others whose leaves stay as they are, because not every node trusts this issuer yet.
    pub(crate) tolerated: Vec<Certificate>,
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Issuer({:?})", self.certificate)
    }
}

impl Issuer {
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Which of the authority's keys signs. Of a key that is about to go it is only sure that it is not the newest.
    pub fn key_generation(&self) -> u64 {
        self.key_generation
    }

    /// Makes a key and signs a certificate for it.
    pub fn issue(&self, request: &Request, now: Timestamp) -> Result<Leaf, Error> {
        let key = request.algorithm.make()?;
        let (not_before, not_after) = self.long_enough(self.validity(request, now), request, now);
        let mut params = x509::params(not_before, not_after)?;
        params.distinguished_name = x509::subject(&request.organization, &request.common_name);
        for name in request.names() {
            params.subject_alt_names.push(match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(name.try_into()?),
            });
        }
        params.key_usages = match request.algorithm {
            KeyAlgorithm::EcdsaP256 => vec![KeyUsagePurpose::DigitalSignature],
            _ => vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment],
        };
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let issuer = rcgen::Issuer::from_ca_cert_der(&self.certificate.der().into(), &*self.key)?;
        let signed = params.signed_by(&key, &issuer)?;
        let leaf = Certificate::from_der(signed.der()).filter(|leaf| leaf.is_signed_by(&self.certificate));
        let leaf = leaf.ok_or_else(|| Error::Subject(self.certificate.subject.clone()))?;
        Ok(Leaf {
            chain: trust::bundle([&leaf].into_iter().chain(&self.chain)),
            key: trust::to_pem("PRIVATE KEY", key.serialized_der()),
        })
    }

    /// Nodes that could not restart in time are lost one after the other, and not all at once.
    fn validity(&self, request: &Request, now: Timestamp) -> (Timestamp, Timestamp) {
        let (not_before, not_after) = x509::validity(now, request.validity_days);
        let end = not_after.min(self.certificate.not_after);
        let earlier = x509::spread(&request.bearer, request.validity_days, request.renewal_days);
        (not_before.max(self.certificate.not_before), end.saturating_sub(earlier).unwrap_or(end))
    }

    /// What is made in the last days of its authority lasts as long as that does.
    fn long_enough(
        &self,
        (not_before, not_after): (Timestamp, Timestamp),
        request: &Request,
        now: Timestamp,
    ) -> (Timestamp, Timestamp) {
        let most = x509::most_spread(request.validity_days, request.renewal_days);
        let end = self.certificate.not_after;
        let is_short = not_after < now.saturating_add(most).unwrap_or(now);
        (not_before, if is_short { end.max(not_after) } else { not_after })
    }
}

/// Why a certificate has to be made (again).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("there is none yet")]
    Missing,
    #[error("the one that is stored cannot be read")]
    Unreadable,
    #[error("the stored key is not the one of the stored certificate")]
    KeyMismatch,
    #[error("its subject is {is}, not {wanted}")]
    Subject { is: String, wanted: String },
    #[error("it is signed by another authority than {authority}")]
    OtherAuthority { authority: String },
    #[error("the certificates between it and the root changed")]
    Chain,
    #[error("its names changed (new: [{}], gone: [{}])", added.join(", "), removed.join(", "))]
    Names { added: Vec<String>, removed: Vec<String> },
    #[error("it ends at {not_after}")]
    ExpiresSoon { not_after: Timestamp },
}

impl Reason {
    /// Is the stored certificate good until it ends? Then a new one can wait for a maintenance window or another restart.
    pub fn can_wait(&self) -> bool {
        matches!(self, Self::ExpiresSoon { .. } | Self::Chain)
    }
}

/// Why the stored chain and key (in PEM, if there are any) are not what is wanted from this issuer; nothing when they are.
pub fn why_reissue(
    existing: Option<(&[u8], &[u8])>,
    wanted: &Request,
    issuer: &Issuer,
    now: Timestamp,
) -> Option<Reason> {
    let Some((chain, key)) = existing else { return Some(Reason::Missing) };
    match Stored::read(chain, key) {
        Some(stored) => stored.why_reissue(wanted, issuer, now),
        None => Some(Reason::Unreadable),
    }
}

/// A leaf in a Secret, taken apart once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    certificate: Certificate,
    /// Those between it and the root.
    chain: Vec<Certificate>,
    has_its_key: bool,
}

impl Stored {
    /// Reads a chain and a key in PEM.
    pub fn read(chain: &[u8], key: &[u8]) -> Option<Self> {
        let (mut chain, key) = (Certificate::all_from_pem(chain).ok()?, key::read(key)?);
        let certificate = chain.remove(0);
        chain.retain(|certificate| !certificate.is_self_signed());
        Some(Self { has_its_key: certificate.belongs_to(&key), certificate, chain })
    }

    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// The certificates between it and the root, as far as they are sent along.
    pub fn chain(&self) -> &[Certificate] {
        &self.chain
    }

    /// Is the stored key the one of the certificate?
    pub fn has_its_key(&self) -> bool {
        self.has_its_key
    }

    /// Why it is not what is wanted from this issuer; nothing when it is.
    pub fn why_reissue(&self, wanted: &Request, issuer: &Issuer, now: Timestamp) -> Option<Reason> {
        let leaf = &self.certificate;
        let is_from_issuer = leaf.is_from(&issuer.certificate);
        let is_tolerated = || issuer.tolerated.iter().any(|other| leaf.is_from(other));
        let checks = [
            (!self.has_its_key).then_some(Reason::KeyMismatch),
            (!is_from_issuer && !is_tolerated())
                .then(|| Reason::OtherAuthority { authority: issuer.certificate.subject.clone() }),
            other_subject(leaf, wanted),
            (!wanted.has_just(&leaf.names)).then(|| other_names(&leaf.names, &wanted.names())).flatten(),
            (is_from_issuer && self.chain != issuer.chain).then_some(Reason::Chain),
            ends_soon(leaf, wanted, issuer, now),
        ];
        checks.into_iter().flatten().next()
    }
}

fn other_subject(leaf: &Certificate, wanted: &Request) -> Option<Reason> {
    let (organization, name) = (&wanted.organization, &wanted.common_name);
    let is_same = leaf.organization.as_ref() == Some(organization) && leaf.common_name.as_ref() == Some(name);
    let wanted = || format!("O={organization}, CN={name}");
    (!is_same).then(|| Reason::Subject { is: leaf.subject.clone(), wanted: wanted() })
}

fn other_names(is: &[String], wanted: &[String]) -> Option<Reason> {
    let without = |all: &[String], others: &[String]| -> Vec<String> {
        all.iter().filter(|name| !others.contains(name)).cloned().collect()
    };
    let (added, removed) = (without(wanted, is), without(is, wanted));
    (!added.is_empty() || !removed.is_empty()).then_some(Reason::Names { added, removed })
}

/// A new one that would end no later is no better: its authority has to be renewed first.
fn ends_soon(leaf: &Certificate, wanted: &Request, issuer: &Issuer, now: Timestamp) -> Option<Reason> {
    let lasts_longer = issuer.validity(wanted, now).1 > leaf.not_after;
    let is_due = now >= x509::renewal(leaf, wanted.renewal_days);
    (is_due && lasts_longer).then_some(Reason::ExpiresSoon { not_after: leaf.not_after })
}
