//! What a Secret of an authority has to hold to be of use, and what to tell the person who can mend it.

use std::sync::Arc;

use rcgen::KeyPair;

use super::{CERTIFICATE, KEY, Material, Refusal, Secret};
use crate::trust::{Certificate, Unreadable};

pub(super) fn refuse(secret: &str, problem: String, remedy: &str) -> Refusal {
    Refusal { secret: secret.to_owned(), problem, remedy: remedy.to_owned() }
}

pub(super) fn is_brought(name: &str, secret: Option<&Secret>, entry: &str) -> Result<(), Refusal> {
    let what = match secret {
        None => "does not exist",
        Some(secret) if secret.data.contains_key(entry) => return Ok(()),
        Some(_) => "is incomplete",
    };
    let problem = format!("{what}, and generateCertificateAuthority is false");
    Err(refuse(name, problem, &format!("create it with the authority's {entry} in PEM format")))
}

pub(super) fn key(name: &str, material: &Material, entry: &str) -> Result<Option<Arc<KeyPair>>, Refusal> {
    let Some(read) = material.keys.get(entry) else { return Ok(None) };
    read.clone().map(Some).ok_or_else(|| {
        let remedy =
            "put back an unencrypted private key (RSA or ECDSA), or delete the entry to get a new key";
        refuse(name, format!("{entry} is not a private key in PEM format"), remedy)
    })
}

pub(super) fn generation(name: &str, secret: &Secret, annotation: &str) -> Result<u64, Refusal> {
    let text = secret.annotations.get(annotation).map_or("0", |text| text.trim());
    let problem = || format!("annotation {annotation} is {text:?}");
    text.parse().map_err(|_| refuse(name, problem(), "it has to be a whole number, from 0 up"))
}

pub(super) fn unreadable(name: &str, problem: &Unreadable) -> Refusal {
    let remedy = "it has to be the authority's certificate in PEM format";
    refuse(name, format!("{CERTIFICATE} {problem}"), remedy)
}

/// Each certificate may sign, and signed the one before it.
pub(super) fn chain(name: &str, chain: &[Certificate]) -> Result<(), Refusal> {
    if let Some(no_authority) = chain.iter().find(|certificate| !certificate.is_authority) {
        let problem = format!("{} in {CERTIFICATE} may not sign certificates", no_authority.subject);
        return Err(refuse(name, problem, "use a certificate with the basic constraint CA:TRUE"));
    }
    if let Some(pair) = chain.windows(2).find(|pair| !pair[0].is_signed_by(&pair[1])) {
        let problem = format!("in {CERTIFICATE}, {} is not signed by {}", pair[0].subject, pair[1].subject);
        let remedy = "put the signing authority first, then each one that signed the one before, the root last; \
                      an authority that was replaced goes into an entry ca-<date>.crt of its own";
        return Err(refuse(name, problem, remedy));
    }
    Ok(())
}

pub(super) fn belongs(name: &str, chain: &[Certificate], key: Option<&KeyPair>) -> Result<(), Refusal> {
    match (chain.first(), key) {
        (Some(first), Some(key)) if !first.belongs_to(key) => {
            let subject = &first.subject;
            let problem =
                format!("{KEY} is not the key of {subject}, the first certificate in {CERTIFICATE}");
            Err(refuse(name, problem, "put the key there that belongs to that certificate"))
        }
        _ => Ok(()),
    }
}
