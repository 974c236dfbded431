//! How to reach a cluster.

use std::time::Duration;

use crate::{Endpoint, TlsConfig};

/// The addresses a client starts from, and what kind of node listens there.
///
/// The kind matters: brokers forward a question about the quorum to its leader, controllers do not, so a client that knows
/// only controllers finds the leader itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bootstrap {
    Brokers(Vec<Endpoint>),
    Controllers(Vec<Endpoint>),
}

impl Bootstrap {
    pub(crate) fn endpoints(&self) -> &[Endpoint] {
        match self {
            Self::Brokers(endpoints) | Self::Controllers(endpoints) => endpoints,
        }
    }
}

/// The hosts that a client connects to. Kafka tells where its nodes are, and whoever rules one node may make it tell anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Hosts {
    /// Whatever Kafka names.
    #[default]
    All,
    /// Those directly below this domain: of `b` that is `a.b`, and neither `b` nor `x.a.b`.
    Below(String),
}

impl Hosts {
    /// Whether this host is one of them.
    #[must_use]
    pub fn include(&self, host: &str) -> bool {
        match self {
            Self::All => true,
            Self::Below(domain) => host
                .split_once('.')
                .is_some_and(|(label, parent)| !label.is_empty() && parent.eq_ignore_ascii_case(domain)),
        }
    }
}

/// How a client introduces itself and how long it waits.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// The name that Kafka shows in its request logs, metrics and quotas.
    pub client_id: String,
    /// The longest that one node may take to become usable: name lookup, connecting, securing, and agreeing on API versions. When
    /// several addresses are known, each gets no more than its fair share of the time that is left, so that a dead host
    /// never uses up the time in which a living one would have answered.
    pub connect_timeout: Duration,
    /// The longest that a call may take, everything included. One that asks about many topics asks many questions; then each
    /// may take that long, and all of them together fifteen times that.
    pub request_timeout: Duration,
    pub security: Security,
    /// Where it connects to. A host that is not among them is never connected to, whoever names it.
    pub hosts: Hosts,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            client_id: "karst".to_owned(),
            connect_timeout: Duration::from_secs(3),
            request_timeout: Duration::from_secs(10),
            security: Security::Plaintext,
            hosts: Hosts::All,
        }
    }
}

/// How the bytes of a connection are protected.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Security {
    /// Not at all.
    #[default]
    Plaintext,
    /// By TLS: nodes have to prove that they are who they were called, and the client says who it is if it has an identity.
    Tls(TlsConfig),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_directly_below_a_domain_is_within_it() {
        let hosts = Hosts::Below("c-brokers.ns.svc.cluster.local".to_owned());
        for host in ["c-nodes-0.c-brokers.ns.svc.cluster.local", "C-Nodes-0.C-Brokers.ns.svc.cluster.local"] {
            assert!(hosts.include(host), "{host}");
        }
        for host in [
            "",
            "10.0.0.1",
            "evil.example",
            "c-brokers.ns.svc.cluster.local",
            ".c-brokers.ns.svc.cluster.local",
            "x.c-nodes-0.c-brokers.ns.svc.cluster.local",
            "c-nodes-0.c-brokers.ns.svc.cluster.local.evil.example",
            "c-nodes-0.c-brokers.ns.svc.cluster.local.",
            "c-nodes-0.xc-brokers.ns.svc.cluster.local",
            "c-nodes-0.c-brokers.other.svc.cluster.local",
        ] {
            assert!(!hosts.include(host), "{host}");
        }
        assert!(Hosts::All.include("evil.example"));
    }
}
