//! Which of its own listeners the node is asked on, and how that listener speaks. Pure.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use karst_kafka::Endpoint;
use thiserror::Error;

use crate::config::Role;
use crate::properties::Properties;

/// One listener of this node, reachable from inside its container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub name: String,
    /// Where it is asked, under the name that its certificate is for, if it has one.
    pub endpoint: Endpoint,
    /// Where it is bound: reached without asking DNS.
    pub local: Endpoint,
    pub protocol: Protocol,
}

/// How a listener speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    Plaintext,
    /// With certificates on both sides.
    Tls(TlsFiles),
    /// One that the launcher does not speak yet. Kafka is started all the same; readiness says so.
    Other(String),
}

/// Where the certificates of a TLS listener are, in PEM. The launcher uses those of the node as its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The node's key and chain.
    pub keystore: PathBuf,
    /// The authorities that it trusts.
    pub truststore: PathBuf,
}

impl TlsFiles {
    fn of_listener(server: &Properties, listener: &str) -> Option<Self> {
        let file = |store: &str| {
            let key = format!("listener.name.{}.ssl.{store}.location", listener.to_lowercase());
            server.get_non_empty(&key).map(PathBuf::from)
        };
        Some(Self { keystore: file("keystore")?, truststore: file("truststore")? })
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plaintext => "PLAINTEXT",
            Self::Tls(_) => "SSL",
            Self::Other(name) => name,
        })
    }
}

/// Why the node's own listener cannot be told from `server.config`.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ListenerError {
    #[error("there is no `{0}`, so the launcher cannot tell which listener to ask for readiness")]
    Unnamed(&'static str),
    #[error("`{key}` has no listener named {name:?}")]
    Absent { key: &'static str, name: String },
    #[error("`{key}` has {entry:?}, which is not of the form `NAME://host:port`")]
    Malformed { key: &'static str, entry: String },
}

/// A broker, combined or not, is asked on the listener that other brokers use, a mere controller on its first one.
pub(crate) fn own_listener(server: &Properties, role: Role) -> Result<Listener, ListenerError> {
    let key = if role.is_broker() { "inter.broker.listener.name" } else { "controller.listener.names" };
    let name = server.list(key).next().ok_or(ListenerError::Unnamed(key))?;
    let protocol = protocol_of(server, name);
    // A certificate is for the name that the node is known by, not for the loopback.
    let local = find_endpoint(server, "listeners", name)?;
    let endpoint = match protocol {
        Protocol::Tls(_) => find_endpoint(server, "advertised.listeners", name)?,
        _ => local.clone(),
    };
    Ok(Listener { name: name.to_owned(), endpoint, local, protocol })
}

fn find_endpoint(server: &Properties, key: &'static str, wanted: &str) -> Result<Endpoint, ListenerError> {
    for entry in server.list(key) {
        let malformed = || ListenerError::Malformed { key, entry: entry.to_owned() };
        let (name, address) = entry.split_once("://").ok_or_else(malformed)?;
        if name.eq_ignore_ascii_case(wanted) {
            let (host, port) = address.rsplit_once(':').ok_or_else(malformed)?;
            let port = port.parse().map_err(|_| malformed())?;
            return Ok(Endpoint { host: reachable_host(host), port });
        }
    }
    Err(ListenerError::Absent { key, name: wanted.to_owned() })
}

/// A listener bound to all addresses, which Java also takes an IPv6 wildcard for, is reached over the loopback.
fn reachable_host(bound: &str) -> String {
    let host = bound.trim_start_matches('[').trim_end_matches(']');
    let wildcard = host.is_empty() || host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified());
    if wildcard { Ipv4Addr::LOCALHOST.to_string() } else { host.to_owned() }
}

/// A listener that the map does not name is called after its protocol.
fn protocol_of(server: &Properties, name: &str) -> Protocol {
    let mapped = server
        .list("listener.security.protocol.map")
        .filter_map(|entry| entry.split_once(':'))
        .find(|(listener, _)| listener.trim().eq_ignore_ascii_case(name));
    let protocol = mapped.map_or(name, |(_, protocol)| protocol.trim());
    let files = || TlsFiles::of_listener(server, name);
    match protocol.to_ascii_uppercase().as_str() {
        "PLAINTEXT" => Protocol::Plaintext,
        "SSL" => files().map_or_else(|| Protocol::Other(protocol.to_owned()), Protocol::Tls),
        _ => Protocol::Other(protocol.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = "inter.broker.listener.name=REPLICATION-9091\ncontroller.listener.names=CONTROLPLANE-9090\n\
        listeners=CONTROLPLANE-9090://0.0.0.0:9090, REPLICATION-9091://0.0.0.0:9091,PLAIN-9092://0.0.0.0:9092\n\
        listener.security.protocol.map=CONTROLPLANE-9090:PLAINTEXT,REPLICATION-9091:PLAINTEXT,PLAIN-9092:PLAINTEXT\n";

    fn own(text: &str, role: Role) -> Result<Listener, ListenerError> {
        own_listener(&Properties::parse(text.as_bytes()).unwrap(), role)
    }

    fn endpoint(text: &str, role: Role) -> String {
        own(text, role).unwrap().endpoint.to_string()
    }

    #[test]
    fn a_broker_is_asked_where_brokers_talk_and_a_controller_where_controllers_do() {
        assert_eq!(endpoint(BOTH, Role::Broker), "127.0.0.1:9091");
        assert_eq!(endpoint(BOTH, Role::Combined), "127.0.0.1:9091");
        assert_eq!(endpoint(BOTH, Role::Controller), "127.0.0.1:9090");
    }

    #[test]
    fn a_wildcard_is_reached_over_the_loopback_and_an_address_as_it_is() {
        for (bound, reached) in [
            ("", "127.0.0.1"),
            ("0.0.0.0", "127.0.0.1"),
            ("[::]", "127.0.0.1"),
            ("10.0.0.7", "10.0.0.7"),
            ("[fd00::7]", "fd00::7"),
            ("host.example", "host.example"),
        ] {
            let text = format!("controller.listener.names=C\nlisteners=C://{bound}:9090\n");
            assert_eq!(own(&text, Role::Controller).unwrap().endpoint.host, reached, "{bound}");
        }
    }

    #[test]
    fn a_listener_without_a_mapping_is_called_after_its_protocol() {
        let text = "inter.broker.listener.name=PLAINTEXT\nlisteners=PLAINTEXT://:9092";
        assert_eq!(own(text, Role::Broker).unwrap().protocol, Protocol::Plaintext);
    }

    #[test]
    fn a_protocol_that_is_not_spoken_is_kept_by_name() {
        for name in ["SASL_SSL", "SSL"] {
            let text = format!(
                "controller.listener.names=C\nlisteners=C://:9090\nlistener.security.protocol.map=C:{name}"
            );
            let protocol = own(&text, Role::Controller).unwrap().protocol;
            assert_eq!(protocol, Protocol::Other(name.to_owned()), "without files there is no TLS to speak");
        }
    }

    #[test]
    fn a_tls_listener_is_asked_under_the_name_that_its_certificate_is_for() {
        let text = "controller.listener.names=C-9090\nlisteners=C-9090://0.0.0.0:9090\n\
            advertised.listeners=C-9090://c-0.brokers.ns.svc:9090\nlistener.security.protocol.map=C-9090:SSL\n\
            listener.name.c-9090.ssl.keystore.location=/k\nlistener.name.c-9090.ssl.truststore.location=/t\n";
        let listener = own(text, Role::Controller).unwrap();
        assert_eq!(listener.endpoint.to_string(), "c-0.brokers.ns.svc:9090");
        assert_eq!(listener.local.to_string(), "127.0.0.1:9090", "and needs no DNS to be found");
        let files = TlsFiles { keystore: "/k".into(), truststore: "/t".into() };
        assert_eq!(listener.protocol, Protocol::Tls(files));
    }

    #[test]
    fn a_listener_that_cannot_be_found_is_an_error() {
        let error = |text: &str| own(text, Role::Controller).unwrap_err();
        assert_eq!(error("listeners=C://:9090"), ListenerError::Unnamed("controller.listener.names"));
        assert_eq!(
            error("controller.listener.names=C\nlisteners=D://:9090"),
            ListenerError::Absent { key: "listeners", name: "C".to_owned() }
        );
        for bad in ["C", "C://host", "C://host:port"] {
            let text = format!("controller.listener.names=C\nlisteners={bad}");
            assert_eq!(error(&text), ListenerError::Malformed { key: "listeners", entry: bad.to_owned() });
        }
    }
}
