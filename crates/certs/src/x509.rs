//! What all certificates that Karst makes have in common: times, serial numbers, subjects.

use aws_lc_rs::digest::{SHA256, digest};
use jiff::{SignedDuration, Timestamp};
use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, SerialNumber};

use x509_parser::asn1_rs::Tag;
use x509_parser::x509::AttributeTypeAndValue;

use crate::trust::Certificate;
use crate::{Error, key};

/// Clocks of nodes differ a little; a certificate must be good on all of them the moment it is made.
const SKEW: SignedDuration = SignedDuration::from_mins(10);

/// The last instant that a certificate can name, and what to write when it shall be good for ever.
const END_OF_TIME: i64 = 253_402_300_799;

/// The first and last instant of a certificate made now.
pub(crate) fn validity(now: Timestamp, days: u32) -> (Timestamp, Timestamp) {
    let last = now.as_second().saturating_add(i64::from(days) * 86_400).min(END_OF_TIME);
    let whole = Timestamp::from_second(now.as_second()).unwrap_or(now);
    (whole.saturating_sub(SKEW).unwrap_or(whole), Timestamp::from_second(last).unwrap_or(Timestamp::MAX))
}

/// From when on a certificate is to be renewed. Never before half of its life is over: with more renewal days than
/// validity days it would be renewed for ever.
pub(crate) fn renewal(certificate: &Certificate, renewal_days: u32) -> Timestamp {
    let ahead = SignedDuration::from_hours(24 * i64::from(renewal_days));
    let half = certificate.not_after.duration_since(certificate.not_before) / 2;
    let middle = certificate.not_before.saturating_add(half).unwrap_or(certificate.not_before);
    // More days than there are since the beginning of time: then half of its life decides.
    certificate.not_after.checked_sub(ahead).unwrap_or(middle).max(middle)
}

/// By how much earlier a bearer's certificate ends than it could: a part of the time that a renewal has, and always the same.
pub(crate) fn spread(bearer: &str, validity_days: u32, renewal_days: u32) -> SignedDuration {
    if bearer.is_empty() {
        return SignedDuration::ZERO;
    }
    let mark = digest(&SHA256, bearer.as_bytes());
    let part = mark.as_ref().iter().take(2).fold(0, |sum, byte| sum << 8 | i64::from(*byte));
    let most = most_spread(validity_days, renewal_days).as_secs();
    SignedDuration::from_secs(most * part / 65_536)
}

/// A tenth of the time that a renewal has: what is left is enough for it.
pub(crate) fn most_spread(validity_days: u32, renewal_days: u32) -> SignedDuration {
    let hours = (24 * i64::from(renewal_days)).min(12 * i64::from(validity_days));
    SignedDuration::from_hours(hours) / 10
}

/// Parameters with a random positive serial number: two certificates of one authority never share theirs.
pub(crate) fn params(not_before: Timestamp, not_after: Timestamp) -> Result<CertificateParams, Error> {
    let mut serial = key::random::<16>()?;
    serial[0] = serial[0] & 0x7f | 0x40;
    let date = |time: Timestamp| {
        let seconds = u64::try_from(time.as_second()).unwrap_or(0);
        rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds)
    };
    let mut params = CertificateParams::default();
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.not_before = date(not_before);
    params.not_after = date(not_after);
    Ok(params)
}

/// `O=<organization>, CN=<name>`.
pub(crate) fn subject(organization: &str, name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, organization);
    subject.push(DnType::CommonName, name);
    subject
}

/// The subject of a certificate, to be written again byte for byte: whoever trusts an authority knows it by these bytes.
pub(crate) fn same_subject(certificate: &Certificate) -> Result<DistinguishedName, Error> {
    let attribute = |attribute: &AttributeTypeAndValue<'_>| {
        let kind = DnType::from_oid(&attribute.attr_type().iter()?.collect::<Vec<u64>>());
        let text = attribute.as_str().ok()?;
        let value = match attribute.attr_value().header.tag() {
            Tag::PrintableString => DnValue::PrintableString(text.try_into().ok()?),
            Tag::Ia5String => DnValue::Ia5String(text.try_into().ok()?),
            Tag::Utf8String => DnValue::Utf8String(text.to_owned()),
            _ => return None,
        };
        Some((kind, value))
    };
    let parts: Option<Vec<_>> =
        certificate.parsed(|parsed| parsed.subject().iter_attributes().map(attribute).collect());
    let mut subject = DistinguishedName::new();
    for (kind, value) in parts.ok_or_else(|| Error::Subject(certificate.subject.clone()))? {
        subject.push(kind, value);
    }
    Ok(subject)
}
