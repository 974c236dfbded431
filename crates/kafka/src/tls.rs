//! Securing a connection: whom this client trusts, who it says it is, and what it means when either is not accepted.
//!
//! Keys and certificates are read once, into a [`TlsConfig`]; nothing here reads files or watches them. Whoever rotates a
//! certificate makes another one.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::Endpoint;

/// Whom to trust, and what to show when asked who is calling. Cloning it is cheap.
#[derive(Clone)]
pub struct TlsConfig {
    rustls: Arc<rustls::ClientConfig>,
    has_identity: bool,
    expected: Option<String>,
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConfig").field("has_identity", &self.has_identity).finish_non_exhaustive()
    }
}

/// What a client shows of itself, in PEM.
#[derive(Clone, Copy)]
pub struct Identity<'a> {
    /// The client's own certificate first, then those that lead to its authority.
    pub chain_pem: &'a [u8],
    /// The private key, ECDSA or RSA; PKCS#8 is the usual form.
    pub key_pem: &'a [u8],
}

impl fmt::Debug for Identity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// Which part of a [`TlsConfig`] could not be used, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTls {
    #[error("the trusted certificates cannot be used: {0}")]
    Trust(String),
    #[error("the client's certificate cannot be used: {0}")]
    Chain(String),
    #[error("the client's private key cannot be used: {0}")]
    Key(String),
}

impl TlsConfig {
    /// Reads `trust_pem`, the certificates of all trusted authorities, and the client's identity if it has one.
    ///
    /// One certificate that cannot be read makes the whole unusable. To skip it would be to find out only when the nodes that
    /// it vouches for are refused, and by then nobody looks here.
    pub fn new(trust_pem: &[u8], identity: Option<Identity<'_>>) -> Result<Self, InvalidTls> {
        let builder = rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| InvalidTls::Trust(error.to_string()))?
            .with_root_certificates(authorities(trust_pem)?);
        let mut rustls = match identity {
            None => builder.with_no_client_auth(),
            Some(Identity { chain_pem, key_pem }) => {
                let chain = certificates(chain_pem).map_err(InvalidTls::Chain)?;
                let key = private_key(key_pem)?;
                builder.with_client_auth_cert(chain, key).map_err(unusable_identity)?
            }
        };
        // A resumed session is not asked for its certificate again. Connections are few and are kept, so to look each node in
        // the face costs next to nothing.
        rustls.resumption = Resumption::disabled();
        Ok(Self { rustls: Arc::new(rustls), has_identity: identity.is_some(), expected: None })
    }

    /// Expects a certificate for this name, whatever the address that is connected to: for a node that is reached without
    /// looking its name up.
    #[must_use]
    pub fn expecting(mut self, host: impl Into<String>) -> Self {
        self.expected = Some(host.into());
        self
    }

    /// Secures `stream`, and makes sure that it leads to the host that was asked for.
    pub(crate) async fn secure(
        &self,
        endpoint: &Endpoint,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, TlsFailure> {
        let host = self.expected.as_ref().unwrap_or(&endpoint.host);
        let name = ServerName::try_from(host.clone()).map_err(|_| {
            TlsFailure::Other(format!("`{host}` is not a name that a certificate could have"))
        })?;
        let connector = TlsConnector::from(Arc::clone(&self.rustls));
        connector.connect(name, stream).await.map_err(|error| self.why_no_handshake(&error))
    }

    fn why_no_handshake(&self, error: &io::Error) -> TlsFailure {
        match rustls_error(error) {
            Some(error) => self.why(error),
            None => TlsFailure::ClosedInHandshake { reason: error.to_string() },
        }
    }

    /// Why the very first answer did not come.
    ///
    /// In TLS 1.3 the client's side of the handshake is over before the node has looked at the client's certificate, so what
    /// the node thinks of it is only heard in place of the first answer; and if the node closes the connection at once, it is
    /// not heard at all.
    pub(crate) fn why_no_first_answer(&self, error: &io::Error) -> TlsFailure {
        match rustls_error(error) {
            Some(error) => self.why(error),
            None => TlsFailure::ClosedAfterHandshake {
                had_identity: self.has_identity,
                reason: error.to_string(),
            },
        }
    }

    fn why(&self, error: &rustls::Error) -> TlsFailure {
        match error {
            rustls::Error::InvalidCertificate(flaw) => TlsFailure::from_flaw(flaw),
            rustls::Error::AlertReceived(alert) if is_about_our_certificate(*alert) => {
                TlsFailure::Refused { had_identity: self.has_identity, alert: format!("{alert:?}") }
            }
            rustls::Error::InvalidMessage(_) => TlsFailure::NotTls,
            other => TlsFailure::Other(other.to_string()),
        }
    }
}

fn authorities(trust_pem: &[u8]) -> Result<RootCertStore, InvalidTls> {
    let mut store = RootCertStore::empty();
    for (index, certificate) in certificates(trust_pem).map_err(InvalidTls::Trust)?.into_iter().enumerate() {
        store
            .add(certificate)
            .map_err(|error| InvalidTls::Trust(format!("certificate {} of them: {error}", index + 1)))?;
    }
    Ok(store)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    match read {
        Ok(none) if none.is_empty() => Err("there is no certificate in the PEM".to_owned()),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(format!("the PEM is damaged ({error})")),
    }
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, InvalidTls> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
        InvalidTls::Key(match error {
            pem::Error::NoItemsFound => "there is no unencrypted private key in the PEM".to_owned(),
            error => format!("the PEM is damaged ({error})"),
        })
    })
}

/// The certificate and the key were both found; one of them, or their being a pair, is the trouble.
fn unusable_identity(error: rustls::Error) -> InvalidTls {
    match error {
        rustls::Error::InvalidCertificate(flaw) => InvalidTls::Chain(flaw.to_string()),
        rustls::Error::InconsistentKeys(_) => {
            InvalidTls::Key("it does not belong to the certificate".to_owned())
        }
        other => InvalidTls::Key(other.to_string()),
    }
}

fn rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn is_about_our_certificate(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::NoCertificate
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::CertificateRequired
            | Alert::UnknownCA
            | Alert::AccessDenied
    )
}

/// Why a connection could not be secured. Each reads on from "cannot talk securely to host:port".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFailure {
    #[error("no authority that this client trusts has issued its certificate")]
    NotTrusted,
    #[error("its certificate has expired")]
    Expired,
    #[error("its certificate is not valid yet; one of the clocks may be wrong")]
    NotYetValid,
    /// Known to a trusted authority, but as somebody else.
    #[error("its certificate does not name it{}", names_text(.presented))]
    WrongName { presented: Vec<String> },
    /// The node told in so many words that it does not take this client's certificate, or that it wants one.
    #[error("it {} (alert {alert})", refusal_text(*.had_identity))]
    Refused { had_identity: bool, alert: String },
    /// A node that does not take this client's certificate often just hangs up. So does one that is being stopped.
    #[error("it closed the connection right after the handshake ({reason}): {}", hint_text(*.had_identity))]
    ClosedAfterHandshake { had_identity: bool, reason: String },
    #[error("it closed the connection during the handshake ({reason}); is this a TLS listener?")]
    ClosedInHandshake { reason: String },
    #[error("it does not speak TLS on this port")]
    NotTls,
    #[error("{0}")]
    Other(String),
}

impl TlsFailure {
    fn from_flaw(flaw: &CertificateError) -> Self {
        match flaw {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::NotTrusted,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
            CertificateError::NotValidForName => Self::WrongName { presented: Vec::new() },
            CertificateError::NotValidForNameContext { presented, .. } => {
                Self::WrongName { presented: presented.iter().map(|name| plain_name(name)).collect() }
            }
            other => Self::Other(format!("its certificate is not acceptable: {other}")),
        }
    }

    /// Whether it may pass without anybody doing anything: the node is on its way down or up, or a clock has to catch up.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::NotYetValid | Self::ClosedAfterHandshake { .. } | Self::ClosedInHandshake { .. })
    }
}

/// The library gives names as `DnsName("localhost")`. People read them.
fn plain_name(presented: &str) -> String {
    let inner = presented.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(presented).trim_matches('"').to_owned()
}

fn names_text(presented: &[String]) -> String {
    match presented {
        [] => String::new(),
        names => format!(", only {}", names.join(", ")),
    }
}

fn refusal_text(had_identity: bool) -> &'static str {
    if had_identity {
        "does not accept this client's certificate"
    } else {
        "wants a client certificate, and this client has none"
    }
}

fn hint_text(had_identity: bool) -> &'static str {
    if had_identity {
        "it is stopping, or does not accept this client's certificate"
    } else {
        "it is stopping, or wants a client certificate, which this client does not have"
    }
}
