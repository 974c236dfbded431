//! Chain validation as a TLS stack does it, independent of the crate under test.
#![allow(unreachable_pub, dead_code, reason = "each test takes what it needs")]

use std::time::Duration;

use jiff::Timestamp;
use karst_certs::trust::Certificate;
use karst_certs::{Authority, Kind, Secret, SecretWrite, Settings};
use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

pub fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

/// Would somebody with this trust accept this chain now, as a server and as a client?
pub fn check(trust: &[&Certificate], chain: &str, now: Timestamp) -> Result<(), webpki::Error> {
    let chain = Certificate::all_from_pem(chain.as_bytes()).unwrap();
    let ders: Vec<CertificateDer<'_>> = chain.iter().map(|one| one.der().into()).collect();
    // Webpki does not look at the end of what is trusted; OpenSSL does.
    let roots: Vec<CertificateDer<'_>> =
        trust.iter().filter(|root| !root.is_expired(now)).map(|root| root.der().into()).collect();
    let anchors: Vec<_> = roots.iter().map(|root| anchor_from_trusted_cert(root).unwrap()).collect();
    let leaf = EndEntityCert::try_from(&ders[0])?;
    let time = UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().unsigned_abs()));
    let algorithms = webpki::ALL_VERIFICATION_ALGS;
    for usage in [KeyUsage::server_auth(), KeyUsage::client_auth()] {
        leaf.verify_for_usage(algorithms, &anchors, &ders[1..], time, usage, None, None)?;
    }
    Ok(())
}

/// The two Secrets of an authority, as a cluster would keep them.
#[derive(Clone, Debug, Default)]
pub struct Store {
    pub cert: Option<Secret>,
    pub key: Option<Secret>,
}

impl Store {
    pub fn read(&self, kind: Kind, settings: &Settings) -> Authority {
        Authority::read(kind, "c", settings, self.cert.as_ref(), self.key.as_ref()).unwrap()
    }

    pub fn write(&mut self, write: SecretWrite) {
        let place = if write.name.ends_with("-cert") { &mut self.cert } else { &mut self.key };
        *place = Some(write.content);
    }

    pub fn annotate_cert(&mut self, annotation: &str) {
        self.cert.as_mut().unwrap().annotations.insert(annotation.to_owned(), "true".to_owned());
    }

    pub fn annotate_key(&mut self, annotation: &str) {
        self.key.as_mut().unwrap().annotations.insert(annotation.to_owned(), "true".to_owned());
    }
}
