//! The launcher's own line to Kafka, which shows the node's own certificate where the listener wants one.
//!
//! Certificates change under a running node, so the mounted files are read again for each question; a changed file makes a
//! new client.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fs, io};

use karst_kafka::{Admin, Bootstrap, ClientConfig, Identity, InvalidTls, Security, TlsConfig};
use thiserror::Error;

use crate::listeners::{Listener, Protocol, TlsFiles};

/// Longer than this no question takes.
pub(crate) const LONGEST_DEADLINE: Duration = Duration::from_secs(12);

/// How long the next question may take, after one in vain. One that took all of its time may have spent it on looking up names:
/// where DNS is slow, a fixed limit would never be enough.
pub(crate) fn next_deadline(deadline: Duration, took: Duration) -> Duration {
    if took < deadline { deadline } else { (deadline * 2).min(LONGEST_DEADLINE.max(deadline)) }
}

/// A single connection may use this part of a question's time.
const SHARE_OF_CONNECTION: u32 = 2;

/// The same, for one who goes on asking. Where few are asked, a name that takes long to look up takes no more than the time of a
/// connection.
pub(crate) fn next_patience(deadline: Duration, took: Duration) -> Duration {
    // Parts are rounded down to what a clock can tell.
    let slack = Duration::from_millis(10);
    next_deadline(deadline, (took + slack) * SHARE_OF_CONNECTION)
}

/// Why Kafka cannot be asked.
#[derive(Debug, Error)]
pub enum LineError {
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} or {} is of no use: {source}", files.keystore.display(), files.truststore.display())]
    Invalid { files: TlsFiles, source: InvalidTls },
    #[error("listener {listener} speaks {protocol}, which this launcher cannot speak")]
    Protocol { listener: String, protocol: String },
}

/// What the files held, and the client that was made from it.
#[derive(Debug)]
struct Made {
    keystore: Vec<u8>,
    truststore: Vec<u8>,
    admin: Arc<Admin>,
}

#[derive(Debug)]
enum Way {
    Plain(Arc<Admin>),
    Tls(TlsFiles, Mutex<Option<Made>>),
    Unknown { listener: String, protocol: String },
}

/// A client that keeps up with its certificates.
#[derive(Debug)]
pub(crate) struct Line {
    bootstrap: Bootstrap,
    connect_timeout: Duration,
    request_timeout: Duration,
    /// Whom the certificate is to be for, where that is not the host that is connected to.
    expected: Option<String>,
    way: Way,
}

impl Line {
    pub(crate) fn new(
        bootstrap: Bootstrap,
        listener: &Listener,
        connect_timeout: Duration,
        request_timeout: Duration,
    ) -> Self {
        let way = match &listener.protocol {
            Protocol::Plaintext => {
                let config = config(connect_timeout, request_timeout, Security::Plaintext);
                Way::Plain(Arc::new(Admin::new(bootstrap.clone(), config)))
            }
            Protocol::Tls(files) => Way::Tls(files.clone(), Mutex::default()),
            Protocol::Other(name) => Way::Unknown { listener: listener.name.clone(), protocol: name.clone() },
        };
        Self { bootstrap, connect_timeout, request_timeout, expected: None, way }
    }

    /// With one limit for all of a question, and a part of it for each connection.
    pub(crate) fn within(deadline: Duration, bootstrap: Bootstrap, listener: &Listener) -> Self {
        Self::new(bootstrap, listener, deadline / SHARE_OF_CONNECTION, deadline)
    }

    /// To the node's own listener, over the loopback: DNS need not answer for it, and its certificate is checked all the same.
    pub(crate) fn to_itself(listener: &Listener, timeout: Duration) -> Self {
        let own = Bootstrap::Brokers(vec![listener.local.clone()]);
        let expected = Some(listener.endpoint.host.clone());
        Self { expected, ..Self::new(own, listener, timeout, timeout) }
    }

    /// The client to ask with now.
    pub(crate) fn admin(&self) -> Result<Arc<Admin>, LineError> {
        match &self.way {
            Way::Plain(admin) => Ok(Arc::clone(admin)),
            Way::Unknown { listener, protocol } => {
                Err(LineError::Protocol { listener: listener.clone(), protocol: protocol.clone() })
            }
            Way::Tls(files, made) => {
                let (keystore, truststore) = (read(&files.keystore)?, read(&files.truststore)?);
                // What is kept is whole or not there, so a panic elsewhere is no reason to give up on it.
                let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
                let is_same = |made: &&Made| made.keystore == keystore && made.truststore == truststore;
                if let Some(made) = made.as_ref().filter(is_same) {
                    return Ok(Arc::clone(&made.admin));
                }
                // Key and chain are in one file.
                let identity = Identity { chain_pem: &keystore, key_pem: &keystore };
                let tls = TlsConfig::new(&truststore, Some(identity))
                    .map_err(|source| LineError::Invalid { files: files.clone(), source })?;
                let tls = match &self.expected {
                    Some(host) => tls.expecting(host),
                    None => tls,
                };
                let config = config(self.connect_timeout, self.request_timeout, Security::Tls(tls));
                let admin = Arc::new(Admin::new(self.bootstrap.clone(), config));
                *made = Some(Made { keystore, truststore, admin: Arc::clone(&admin) });
                Ok(admin)
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, LineError> {
    fs::read(path).map_err(|source| LineError::Unreadable { path: path.to_owned(), source })
}

fn config(connect_timeout: Duration, request_timeout: Duration, security: Security) -> ClientConfig {
    let client_id = "karst-node".to_owned();
    ClientConfig { client_id, connect_timeout, request_timeout, security, ..ClientConfig::default() }
}

#[cfg(test)]
mod tests {
    use karst_kafka::Endpoint;

    use super::*;

    /// A key with its certificate, and another pair, made for these tests with `openssl req -x509 -newkey ec`.
    const ONE: &str = include_str!("line/one.pem");
    const OTHER: &str = include_str!("line/other.pem");

    #[test]
    fn a_question_that_took_all_of_its_time_gives_the_next_one_more() {
        let millis = Duration::from_millis;
        assert_eq!(next_deadline(millis(750), millis(749)), millis(750), "nobody listens there");
        assert_eq!(next_deadline(millis(750), millis(751)), millis(1500));
        assert_eq!(next_deadline(millis(9000), millis(9000)), millis(12000));
        assert_eq!(next_deadline(millis(12000), millis(12000)), millis(12000));
    }

    #[test]
    fn a_single_name_that_takes_long_to_look_up_gives_the_next_question_more_time() {
        let millis = Duration::from_millis;
        assert_eq!(next_patience(millis(2000), millis(3)), millis(2000), "nobody listens there");
        assert_eq!(next_patience(millis(2000), millis(999)), millis(4000), "a connection had no more");
        assert_eq!(next_patience(millis(2000), millis(2000)), millis(4000));
        assert_eq!(next_patience(millis(12000), millis(12000)), millis(12000));
    }

    #[test]
    fn the_node_itself_is_asked_without_looking_its_name_up_and_expected_under_that_name() {
        let files = TlsFiles { keystore: "/k".into(), truststore: "/t".into() };
        let listener = Listener {
            name: "R".to_owned(),
            endpoint: Endpoint::new("broker-0.brokers.svc", 9091),
            local: Endpoint::new("127.0.0.1", 9091),
            protocol: Protocol::Tls(files),
        };
        let line = Line::to_itself(&listener, Duration::from_secs(1));
        assert_eq!(line.bootstrap, Bootstrap::Brokers(vec![listener.local]));
        assert_eq!(line.expected.as_deref(), Some("broker-0.brokers.svc"));
    }

    #[test]
    fn a_changed_certificate_makes_a_new_client_and_an_unchanged_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let files = TlsFiles { keystore: dir.path().join("node.pem"), truststore: dir.path().join("ca.crt") };
        let endpoint = Endpoint::new("localhost", 9091);
        let bootstrap = Bootstrap::Brokers(vec![endpoint.clone()]);
        let listener = Listener {
            name: "R".to_owned(),
            local: endpoint.clone(),
            endpoint,
            protocol: Protocol::Tls(files.clone()),
        };
        let line = Line::new(bootstrap, &listener, Duration::from_secs(1), Duration::from_secs(1));
        let error = line.admin().unwrap_err().to_string();
        assert!(error.contains("node.pem cannot be read"), "{error}");
        fs::write(&files.keystore, ONE).unwrap();
        fs::write(&files.truststore, ONE).unwrap();
        let first = line.admin().unwrap();
        assert!(Arc::ptr_eq(&first, &line.admin().unwrap()));
        fs::write(&files.keystore, OTHER).unwrap();
        assert!(!Arc::ptr_eq(&first, &line.admin().unwrap()));
    }
}
