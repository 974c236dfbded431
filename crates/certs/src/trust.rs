//! Certificates as they are read from PEM, and the bundle of those that a node trusts.

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::time::ASN1Time;
use x509_parser::x509::AttributeTypeAndValue;

/// A certificate that could be read. It is taken apart once: a pass asks the same things of it again and again, and keeps it in
/// many places.
#[derive(Clone)]
pub struct Certificate(Arc<Parts>);

/// What a certificate says.
pub struct Parts {
    der: Vec<u8>,
    /// The certificate as text, once somebody asked for it.
    pem: OnceLock<String>,
    fingerprint: [u8; 32],
    /// The subject as people write it, for example `O=io.strimzi, CN=cluster-ca v0`.
    pub subject: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    /// The DNS names and addresses that it is for, sorted, addresses as text.
    pub names: Vec<String>,
    /// Does the basic constraint say that it may sign others?
    pub is_authority: bool,
    pub(crate) organization: Option<String>,
    pub(crate) common_name: Option<String>,
    pub(crate) raw_subject: Vec<u8>,
    raw_issuer: Vec<u8>,
    pub(crate) public_key: Vec<u8>,
    pub(crate) key_id: Option<Vec<u8>>,
    issuer_key_id: Option<Vec<u8>>,
}

impl Deref for Certificate {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl PartialEq for Certificate {
    /// Everything else is read from the same bytes.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.der == other.der
    }
}

impl Eq for Certificate {}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({}, {} to {})", self.subject, self.not_before, self.not_after)
    }
}

/// Text that is not a list of certificates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("is not in PEM format")]
    Pem,
    #[error("holds no certificate")]
    Empty,
    #[error("holds something else than an X.509 certificate")]
    Certificate,
}

impl Certificate {
    pub(crate) fn from_der(der: &[u8]) -> Option<Self> {
        let (rest, parsed) = X509Certificate::from_der(der).ok()?;
        let time = |time: ASN1Time| Timestamp::from_second(time.timestamp()).ok();
        let subject = parsed.subject();
        // A name with an empty part is refused here, because the library that signs breaks down on it.
        let is_whole = rest.is_empty() && subject.iter().all(|part| part.iter().next().is_some());
        let (key_id, issuer_key_id) = key_ids(&parsed);
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest(&SHA256, der).as_ref());
        Some(Self(Arc::new(Parts {
            subject: is_whole.then(|| subject.to_string())?,
            not_before: time(parsed.validity().not_before)?,
            not_after: time(parsed.validity().not_after)?,
            names: names(&parsed),
            is_authority: parsed.tbs_certificate.is_ca(),
            organization: first(subject.iter_organization()),
            common_name: first(subject.iter_common_name()),
            raw_subject: subject.as_raw().to_vec(),
            raw_issuer: parsed.issuer().as_raw().to_vec(),
            public_key: parsed.public_key().subject_public_key.data.to_vec(),
            key_id,
            issuer_key_id,
            der: der.to_vec(),
            pem: OnceLock::new(),
            fingerprint,
        })))
    }

    /// All certificates of a PEM file, in its order.
    pub fn all_from_pem(pem: &[u8]) -> Result<Vec<Self>, Unreadable> {
        let blocks = pem::parse_many(pem).map_err(|_| Unreadable::Pem)?;
        let blocks = blocks.iter().filter(|block| !block.tag().ends_with("PRIVATE KEY"));
        let read = |block: &pem::Pem| Self::from_der(block.contents()).ok_or(Unreadable::Certificate);
        let certificates = blocks.map(read).collect::<Result<Vec<_>, _>>()?;
        if certificates.is_empty() { Err(Unreadable::Empty) } else { Ok(certificates) }
    }

    pub fn der(&self) -> &[u8] {
        &self.der
    }

    pub fn pem(&self) -> &str {
        self.pem.get_or_init(|| to_pem("CERTIFICATE", &self.der))
    }

    /// SHA-256 of the certificate, in hexadecimal.
    pub fn fingerprint(&self) -> String {
        hex(&self.fingerprint)
    }

    /// The authority that a certificate stands for, by its name and its key: a renewed certificate stands for the same.
    pub fn authority_id(&self) -> String {
        let both = [self.raw_subject.as_slice(), &self.public_key].concat();
        hex(digest(&SHA256, &both).as_ref().get(..8).unwrap_or_default())
    }

    pub fn is_expired(&self, now: Timestamp) -> bool {
        now > self.not_after
    }

    pub fn is_self_signed(&self) -> bool {
        self.is_signed_by(self)
    }

    /// Is it signed with the key of that certificate, under its name?
    pub fn is_signed_by(&self, issuer: &Self) -> bool {
        let verified = |own: &X509Certificate<'_>| {
            issuer.parsed(|issuer| own.verify_signature(Some(issuer.public_key())).is_ok())
        };
        self.names_as_issuer(issuer) && self.parsed(verified)
    }

    /// The same by names of authority and key alone, which is enough, and much faster, for what is in our own Secrets.
    pub fn is_from(&self, issuer: &Self) -> bool {
        match (&self.issuer_key_id, &issuer.key_id) {
            (Some(_), Some(_)) => self.names_as_issuer(issuer),
            _ => self.is_signed_by(issuer),
        }
    }

    fn names_as_issuer(&self, issuer: &Self) -> bool {
        let other_key = match (&self.issuer_key_id, &issuer.key_id) {
            (Some(named), Some(id)) => named != id,
            _ => false,
        };
        self.raw_issuer == issuer.raw_subject && !other_key
    }

    pub(crate) fn belongs_to(&self, key: &rcgen::KeyPair) -> bool {
        self.public_key == key.public_key_raw()
    }

    /// Asks the parsed form; a certificate of this type was parsed before, so it can be again.
    pub(crate) fn parsed<T: Default>(&self, ask: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
        X509Certificate::from_der(&self.der).map(|(_, parsed)| ask(&parsed)).unwrap_or_default()
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn first<'a>(mut attributes: impl Iterator<Item = &'a AttributeTypeAndValue<'a>>) -> Option<String> {
    attributes.next().and_then(|attribute| attribute.as_str().ok().map(str::to_owned))
}

fn names(parsed: &X509Certificate<'_>) -> Vec<String> {
    let address = |bytes: &[u8]| match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
        _ => <[u8; 16]>::try_from(bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
    };
    let extension = parsed.subject_alternative_name().ok().flatten();
    let names = extension.iter().flat_map(|extension| &extension.value.general_names);
    let mut names: Vec<String> = names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => address(bytes),
            _ => None,
        })
        .collect();
    names.sort();
    names
}

/// The names that the certificate gives to its own key and to that of its issuer.
fn key_ids(parsed: &X509Certificate<'_>) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let (mut own, mut issuer) = (None, None);
    for extension in parsed.iter_extensions() {
        match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => own = Some(id.0.to_vec()),
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                issuer = id.key_identifier.as_ref().map(|id| id.0.to_vec());
            }
            _ => {}
        }
    }
    (own, issuer)
}

pub(crate) fn to_pem(tag: &str, der: &[u8]) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new(tag, der), config)
}

/// The file that a node trusts: every certificate once, one after the other.
pub fn bundle<'a>(certificates: impl IntoIterator<Item = &'a Certificate>) -> String {
    let mut pems: Vec<&str> = Vec::new();
    for pem in certificates.into_iter().map(Certificate::pem) {
        if !pems.contains(&pem) {
            pems.push(pem);
        }
    }
    pems.concat()
}

/// When the first of them ends: for the metric and the condition.
pub fn earliest_expiry<'a>(certificates: impl IntoIterator<Item = &'a Certificate>) -> Option<Timestamp> {
    certificates.into_iter().map(|certificate| certificate.not_after).min()
}
