//! Where a node listens.

use std::fmt;
use std::str::FromStr;

/// A host name or address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// A DNS name or an IP address; an IPv6 address stands here without brackets.
    pub host: String,
    pub port: u16,
}

impl Endpoint {
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A text that should be an [`Endpoint`] and is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an address: expected host:port, with an IPv6 address in brackets")]
pub struct InvalidEndpoint {
    text: String,
}

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        split(text)
            .and_then(|(host, port)| Some(Self::new(host, port.parse().ok()?)))
            .filter(|endpoint| !endpoint.host.is_empty() && endpoint.port != 0)
            .ok_or_else(|| InvalidEndpoint { text: text.to_owned() })
    }
}

fn split(text: &str) -> Option<(&str, &str)> {
    let (host, port) = text.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(bracketed) => Some((bracketed.strip_suffix(']')?, port)),
        None if host.contains([':', ']']) => None,
        None => Some((host, port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_reads_what_it_prints() {
        for text in ["localhost:9092", "10.0.0.1:1", "[::1]:65535", "a.b.svc.cluster.local:9090"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        assert_eq!("[::1]:9".parse::<Endpoint>().unwrap().host, "::1");
    }

    #[test]
    fn what_is_not_an_endpoint_is_refused() {
        for text in [
            "",
            "host",
            ":9092",
            "host:",
            "host:0",
            "host:65536",
            "host:-1",
            "::1:9092",
            "[::1:9092",
            "::1]:9092",
            "[]:1",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
