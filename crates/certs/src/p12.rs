//! A PKCS#12 trust store, for clients in Java.
//!
//! Certificates are public, so they are not encrypted; the password only guards them against change, as the format
//! wants it. Java takes an entry for a trusted one by an attribute of its own.

use aws_lc_rs::{digest, hmac};
use yasna::models::ObjectIdentifier;
use yasna::{DERWriter, Tag, construct_der};

use crate::trust::Certificate;
use crate::{Error, key};

const DATA: &[u64] = &[1, 2, 840, 113549, 1, 7, 1];
const CERTIFICATE_BAG: &[u64] = &[1, 2, 840, 113549, 1, 12, 10, 1, 3];
const X509_CERTIFICATE: &[u64] = &[1, 2, 840, 113549, 1, 9, 22, 1];
const FRIENDLY_NAME: &[u64] = &[1, 2, 840, 113549, 1, 9, 20];
const JAVA_TRUSTED: &[u64] = &[2, 16, 840, 1, 113894, 746875, 1, 1];
const ANY_USAGE: &[u64] = &[2, 5, 29, 37, 0];
const SHA256: &[u64] = &[2, 16, 840, 1, 101, 3, 4, 2, 1];
const ROUNDS: u32 = 10_000;

/// The store with all these certificates, each under its name.
pub(crate) fn trust_store(certificates: &[(String, &Certificate)], password: &str) -> Result<Vec<u8>, Error> {
    let salt = key::random::<20>()?;
    let bags = construct_der(|writer| {
        writer.write_sequence(|bags| certificates.iter().for_each(|(name, one)| bag(bags.next(), name, one)));
    });
    let safe = construct_der(|writer| writer.write_sequence(|safe| data(safe.next(), &bags)));
    let seal_key = hmac::Key::new(hmac::HMAC_SHA256, &seal_key(password, &salt, ROUNDS));
    let seal = hmac::sign(&seal_key, &safe);
    Ok(construct_der(|writer| {
        writer.write_sequence(|store| {
            store.next().write_u8(3);
            data(store.next(), &safe);
            store.next().write_sequence(|mac| {
                mac.next().write_sequence(|info| {
                    info.next().write_sequence(|algorithm| {
                        algorithm.next().write_oid(&oid(SHA256));
                        algorithm.next().write_null();
                    });
                    info.next().write_bytes(seal.as_ref());
                });
                mac.next().write_bytes(&salt);
                mac.next().write_u32(ROUNDS);
            });
        });
    }))
}

fn oid(parts: &[u64]) -> ObjectIdentifier {
    ObjectIdentifier::from_slice(parts)
}

fn data(writer: DERWriter<'_>, content: &[u8]) {
    writer.write_sequence(|info| {
        info.next().write_oid(&oid(DATA));
        info.next().write_tagged(Tag::context(0), |inner| inner.write_bytes(content));
    });
}

fn bag(writer: DERWriter<'_>, name: &str, certificate: &Certificate) {
    writer.write_sequence(|bag| {
        bag.next().write_oid(&oid(CERTIFICATE_BAG));
        bag.next().write_tagged(Tag::context(0), |inner| {
            inner.write_sequence(|inner| {
                inner.next().write_oid(&oid(X509_CERTIFICATE));
                inner.next().write_tagged(Tag::context(0), |inner| inner.write_bytes(certificate.der()));
            });
        });
        bag.next().write_set_of(|attributes| {
            attribute(attributes.next(), FRIENDLY_NAME, |value| value.write_bmp_string(name));
            attribute(attributes.next(), JAVA_TRUSTED, |value| value.write_oid(&oid(ANY_USAGE)));
        });
    });
}

fn attribute(writer: DERWriter<'_>, kind: &[u64], value: impl FnOnce(DERWriter<'_>)) {
    writer.write_sequence(|attribute| {
        attribute.next().write_oid(&oid(kind));
        attribute.next().write_set_of(|values| value(values.next()));
    });
}

/// The key derivation of RFC 7292, appendix B, for the one block that SHA-256 needs. Passwords are plain ASCII.
fn seal_key(password: &str, salt: &[u8], rounds: u32) -> Vec<u8> {
    const BLOCK: usize = 64;
    const PURPOSE_SEAL: u8 = 3;
    let password: Vec<u8> = password.encode_utf16().chain([0]).flat_map(u16::to_be_bytes).collect();
    let filled = |bytes: &[u8]| -> Vec<u8> {
        bytes.iter().copied().cycle().take(bytes.len().div_ceil(BLOCK) * BLOCK).collect()
    };
    let mut key = [vec![PURPOSE_SEAL; BLOCK], filled(salt), filled(&password)].concat();
    for _ in 0..rounds {
        key = digest::digest(&digest::SHA256, &key).as_ref().to_vec();
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seal_key_is_the_one_that_openssl_derives() {
        let hex: String = seal_key("aB3dEf6hIj9l", b"salt salt salt salt ", 1000)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(hex, "2673eecd5dc788136356748a295f4d32d4e9d0ed5d2535111295535572c1e30f");
    }
}
