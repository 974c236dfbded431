//! Authorities, and what they issue.

use std::sync::Arc;

use karst_kafka::{Identity, TlsConfig};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_RSA_SHA256, SignatureAlgorithm, date_time_ymd,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::TlsAcceptor;

pub(crate) const ECDSA: &SignatureAlgorithm = &PKCS_ECDSA_P256_SHA256;
pub(crate) const RSA: &SignatureAlgorithm = &PKCS_RSA_SHA256;
pub(crate) const BOTH_TLS: &[&SupportedProtocolVersion] = rustls::ALL_VERSIONS;

pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct Issued {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn issue(&self, names: &[&str]) -> Issued {
        self.issue_for_years(names, 2000, 4000)
    }

    pub(crate) fn issue_for_years(&self, names: &[&str], from: i32, to: i32) -> Issued {
        self.issue_with(names, from, to, ECDSA)
    }

    pub(crate) fn issue_of_kind(&self, algorithm: &'static SignatureAlgorithm) -> Issued {
        self.issue_with(&["client"], 2000, 4000, algorithm)
    }

    fn issue_with(
        &self,
        names: &[&str],
        from: i32,
        to: i32,
        algorithm: &'static SignatureAlgorithm,
    ) -> Issued {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Issued { chain: certificate.pem(), key: key.serialize_pem() }
    }

    /// A client that trusts this authority only.
    pub(crate) fn trusted(&self, identity: Option<&Issued>) -> TlsConfig {
        TlsConfig::new(self.pem().as_bytes(), identity.map(Issued::identity)).unwrap()
    }

    fn store(&self) -> Arc<RootCertStore> {
        let mut store = RootCertStore::empty();
        store.add(CertificateDer::from_pem_slice(self.pem().as_bytes()).unwrap()).unwrap();
        Arc::new(store)
    }
}

impl Issued {
    pub(crate) fn identity(&self) -> Identity<'_> {
        Identity { chain_pem: self.chain.as_bytes(), key_pem: self.key.as_bytes() }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// The server's side, for a node that shows `own` and, where there is an authority for them, wants to see its clients'.
pub(crate) fn acceptor(
    own: &Issued,
    clients: Option<&Authority>,
    versions: &[&'static SupportedProtocolVersion],
) -> TlsAcceptor {
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(versions).unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => builder.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(authority.store(), provider()).build().unwrap(),
        ),
    };
    let chain = CertificateDer::pem_slice_iter(own.chain.as_bytes()).collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
    TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()))
}
