//! The new contents of an authority's Secrets. Here keys are made; nothing is decided.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rcgen::{BasicConstraints, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose};

use super::{
    Authority, CERT_GENERATION, CERTIFICATE, Decision, FORCE_RENEW, FORCE_REPLACE, KEY, KEY_GENERATION, Kind,
    NEXT_CERTIFICATE, NEXT_KEY, Next, OLD_KEY, ORGANIZATION, PASSWORD, STORE, Secret, SecretWrite,
};
use crate::trust::{self, Certificate};
use crate::{Error, key, p12, x509};

impl Authority {
    /// The Secrets to be written, **in this order**, each on condition that it is still the one that was read (or still
    /// absent). After a write that failed, read and decide again.
    pub fn carry_out(&self, decision: &Decision, now: Timestamp) -> Result<Vec<SecretWrite>, Error> {
        Ok(match decision {
            Decision::Keep | Decision::Postpone { .. } => Vec::new(),
            Decision::Create | Decision::Replace(_) => {
                let key = self.settings.algorithm.make()?;
                let generation = self.next_key_generation();
                let certificate = self.sign_self(&key, generation, None, now)?;
                if self.kind == Kind::Clients && self.key.is_some() {
                    return Ok(vec![self.write_next_key(&key, &certificate)]);
                }
                vec![self.write_new_key(&key, generation), self.write_certificate(&certificate, now)?]
            }
            Decision::Renew(_) | Decision::Publish => {
                let key = self.key.as_ref().ok_or(Error::NoKey)?;
                // A certificate of this key, wherever it is kept, knows the subject that others trust.
                let all = self.published.iter().chain(self.old.values());
                let before = all.into_iter().find(|certificate| certificate.belongs_to(key));
                let certificate = self.sign_self(key, self.key_generation, before, now)?;
                vec![self.write_certificate(&certificate, now)?]
            }
            Decision::SignWithNewKey => match &self.next {
                // Nothing is lost when only the first is written: the key is kept beside the other until it is.
                Some(next) if self.certificate() == Some(&next.certificate) => vec![self.write_key_of(next)],
                Some(next) => vec![self.write_certificate(&next.certificate, now)?, self.write_key_of(next)],
                None => vec![self.write_key_secret(|content| drop(content.data.remove(OLD_KEY)))],
            },
            Decision::Drop(entries) => {
                let mut old = self.old.clone();
                old.retain(|name, _| !entries.contains(name));
                let current = self.certificate().ok_or(Error::NoKey)?;
                vec![self.write_certificates(current, &old, self.cert_generation)?]
            }
            Decision::PublishAgain(_) => {
                let current = self.certificate().ok_or(Error::NoKey)?;
                vec![self.write_certificates(current, &self.old, self.cert_generation + 1)?]
            }
            Decision::CompleteStore => {
                let current = self.certificate().ok_or(Error::NoKey)?;
                vec![self.write_certificates(current, &self.old, self.cert_generation)?]
            }
        })
    }

    /// A number that no key had before, also when the annotation was lost: nodes are told apart by it.
    fn next_key_generation(&self) -> u64 {
        let next = self.next.as_ref().map(|next| &next.certificate);
        let known = self.published.iter().chain(self.old.values()).filter(|known| Some(*known) != next);
        let known: Vec<&str> = known.map(|known| known.subject.as_str()).collect();
        if self.key_secret().data.is_empty() && known.is_empty() {
            return 0;
        }
        let is_taken = |number: u64| known.iter().any(|subject| subject.ends_with(&self.common_name(number)));
        (self.key_generation + 1..).find(|number| !is_taken(*number)).unwrap_or(u64::MAX)
    }

    fn common_name(&self, key_generation: u64) -> String {
        format!("{} v{key_generation}", self.kind)
    }

    fn sign_self(
        &self,
        key: &KeyPair,
        generation: u64,
        before: Option<&Certificate>,
        now: Timestamp,
    ) -> Result<Certificate, Error> {
        let (not_before, not_after) = x509::validity(now, self.settings.validity_days);
        let mut params = x509::params(not_before, not_after)?;
        params.distinguished_name = match before {
            Some(before) => x509::same_subject(before)?,
            None => x509::subject(ORGANIZATION, &self.common_name(generation)),
        };
        // Leaves name the key that signed them; another name for the same key would make them strangers.
        if let Some(id) = before.and_then(|before| before.key_id.clone()) {
            params.key_identifier_method = KeyIdMethod::PreSpecified(id);
        }
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let der = params.self_signed(key)?;
        let certificate =
            Certificate::from_der(der.der()).ok_or_else(|| Error::Unreadable(self.kind.to_string()))?;
        match before {
            Some(before) if before.raw_subject != certificate.raw_subject => {
                Err(Error::Subject(before.subject.clone()))
            }
            _ => Ok(certificate),
        }
    }

    /// The Secret of the key, with a change.
    fn write_key_secret(&self, change: impl FnOnce(&mut Secret)) -> SecretWrite {
        let mut content = self.key_secret().clone();
        change(&mut content);
        SecretWrite { name: self.kind.key_secret(&self.cluster), content }
    }

    /// The key that signed so far stays beside the new one.
    fn write_new_key(&self, key: &KeyPair, generation: u64) -> SecretWrite {
        self.write_key_secret(|content| {
            if let Some(old) = content.data.insert(KEY.to_owned(), pem(key)) {
                content.data.insert(OLD_KEY.to_owned(), old);
            }
            content.annotations.remove(FORCE_REPLACE);
            content.annotations.insert(KEY_GENERATION.to_owned(), generation.to_string());
        })
    }

    /// Nobody signs with it yet: what people take from the Secret stays as it is.
    fn write_next_key(&self, key: &KeyPair, certificate: &Certificate) -> SecretWrite {
        self.write_key_secret(|content| {
            content.data.insert(NEXT_KEY.to_owned(), pem(key));
            content.data.insert(NEXT_CERTIFICATE.to_owned(), certificate.pem().as_bytes().to_vec());
            content.annotations.remove(FORCE_REPLACE);
        })
    }

    /// The key that waited is the key.
    fn write_key_of(&self, next: &Next) -> SecretWrite {
        let mut write = self.write_new_key(&next.key, self.next_key_generation());
        for entry in [OLD_KEY, NEXT_KEY, NEXT_CERTIFICATE] {
            write.content.data.remove(entry);
        }
        write
    }

    /// A new newest certificate. What it replaces is kept, unless it is of the same key: then the new one stands for it.
    fn write_certificate(&self, new: &Certificate, now: Timestamp) -> Result<SecretWrite, Error> {
        let is_needed = |old: &Certificate| !old.is_expired(now) && old.public_key != new.public_key;
        let mut old = self.old.clone();
        if let Some(current) = self.certificate() {
            let end = current.not_after.strftime("%Y-%m-%dT%H-%M-%SZ");
            old.insert(format!("ca-{end}.crt"), current.clone());
        }
        old.retain(|_, certificate| is_needed(certificate));
        let has_been = self.cert_secret().data.contains_key(CERTIFICATE) || !self.old.is_empty();
        let generation = if has_been { self.cert_generation + 1 } else { self.cert_generation };
        self.write_certificates(new, &old, generation)
    }

    fn write_certificates(
        &self,
        current: &Certificate,
        old: &BTreeMap<String, Certificate>,
        generation: u64,
    ) -> Result<SecretWrite, Error> {
        let mut content = self.cert_secret().clone();
        content.data.retain(|name, _| !self.old.contains_key(name));
        let all = [current].into_iter().chain(old.values());
        content.data.insert(CERTIFICATE.to_owned(), trust::bundle(all).into_bytes());
        content.data.extend(old.iter().map(|(name, old)| (name.clone(), old.pem().as_bytes().to_vec())));
        let password = content.data.get(PASSWORD).and_then(|bytes| String::from_utf8(bytes.clone()).ok());
        let password = password.map_or_else(new_password, Ok)?;
        let named = old.iter().map(|(name, old)| (name.clone(), old));
        let named: Vec<_> = [(CERTIFICATE.to_owned(), current)].into_iter().chain(named).collect();
        content.data.insert(STORE.to_owned(), p12::trust_store(&named, &password)?);
        content.data.insert(PASSWORD.to_owned(), password.into_bytes());
        content.annotations.insert(CERT_GENERATION.to_owned(), generation.to_string());
        if generation != self.cert_generation {
            content.annotations.remove(FORCE_RENEW);
        }
        Ok(SecretWrite { name: self.kind.cert_secret(&self.cluster), content })
    }
}

fn pem(key: &KeyPair) -> Vec<u8> {
    trust::to_pem("PRIVATE KEY", key.serialized_der()).into_bytes()
}

/// Twelve letters and digits, the first a letter: some tools take a leading digit for something else.
fn new_password() -> Result<String, Error> {
    const LETTERS: &[u8; 52] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const ALL: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let random = key::random::<24>()?;
    // Two random bytes for each sign, so that none is noticeably more likely than another.
    let sign = |(index, pair): (usize, &[u8])| {
        let number = usize::from(pair[0]) << 8 | usize::from(pair[1]);
        let signs: &[u8] = if index == 0 { LETTERS } else { ALL };
        char::from(signs[number % signs.len()])
    };
    Ok(random.chunks(2).enumerate().map(sign).collect())
}
