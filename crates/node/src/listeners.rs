//! Which of its own listeners the node is asked on, and how that listener speaks. Pure.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use karst_kafka::{Endpoint, Security};
use thiserror::Error;

use crate::config::Role;
use crate::properties::Properties;

/// One listener of this node, reachable from inside its container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    pub name: String,
    pub endpoint: Endpoint,
    pub protocol: Protocol,
}

/// How a listener speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protocol {
    Plaintext,
    /// One that the launcher does not speak yet. Kafka is started all the same; readiness says so.
    Other(String),
}

impl Protocol {
    fn parse(name: &str) -> Self {
        if name.eq_ignore_ascii_case("PLAINTEXT") { Self::Plaintext } else { Self::Other(name.to_owned()) }
    }

    /// What the client needs to talk to such a listener. TLS becomes another arm here, and nowhere else.
    #[must_use]
    pub fn security(&self) -> Option<Security> {
        match self {
            Self::Plaintext => Some(Security::Plaintext),
            Self::Other(_) => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plaintext => "PLAINTEXT",
            Self::Other(name) => name,
        })
    }
}

/// Why the node's own listener cannot be told from `server.config`.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ListenerError {
    #[error("there is no `{0}`, so the launcher cannot tell which listener to ask for readiness")]
    Unnamed(&'static str),
    #[error("`listeners` has no listener named {0:?}")]
    Absent(String),
    #[error("`listeners` has {0:?}, which is not of the form `NAME://host:port`")]
    Malformed(String),
}

/// A broker, combined or not, is asked on the listener that other brokers use, a mere controller on its first one.
pub(crate) fn own_listener(server: &Properties, role: Role) -> Result<Listener, ListenerError> {
    let key = if role.is_broker() { "inter.broker.listener.name" } else { "controller.listener.names" };
    let name = server.list(key).next().ok_or(ListenerError::Unnamed(key))?;
    Ok(Listener {
        name: name.to_owned(),
        endpoint: find_endpoint(server, name)?,
        protocol: protocol_of(server, name),
    })
}

fn find_endpoint(server: &Properties, wanted: &str) -> Result<Endpoint, ListenerError> {
    for entry in server.list("listeners") {
        let malformed = || ListenerError::Malformed(entry.to_owned());
        let (name, address) = entry.split_once("://").ok_or_else(malformed)?;
        if name.eq_ignore_ascii_case(wanted) {
            let (host, port) = address.rsplit_once(':').ok_or_else(malformed)?;
            let port = port.parse().map_err(|_| malformed())?;
            return Ok(Endpoint { host: reachable_host(host), port });
        }
    }
    Err(ListenerError::Absent(wanted.to_owned()))
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
    Protocol::parse(mapped.map_or(name, |(_, protocol)| protocol.trim()))
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
    fn a_protocol_that_is_not_spoken_yet_is_kept_by_name() {
        let text = "controller.listener.names=C\nlisteners=C://:9090\nlistener.security.protocol.map=C:SSL";
        let protocol = own(text, Role::Controller).unwrap().protocol;
        assert_eq!(protocol, Protocol::Other("SSL".to_owned()));
        assert!(protocol.security().is_none());
    }

    #[test]
    fn a_listener_that_cannot_be_found_is_an_error() {
        let error = |text: &str| own(text, Role::Controller).unwrap_err();
        assert_eq!(error("listeners=C://:9090"), ListenerError::Unnamed("controller.listener.names"));
        assert_eq!(
            error("controller.listener.names=C\nlisteners=D://:9090"),
            ListenerError::Absent("C".to_owned())
        );
        for bad in ["C", "C://host", "C://host:port"] {
            let text = format!("controller.listener.names=C\nlisteners={bad}");
            assert_eq!(error(&text), ListenerError::Malformed(bad.to_owned()));
        }
    }
}
