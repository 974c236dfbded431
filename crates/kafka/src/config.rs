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
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            client_id: "karst".to_owned(),
            connect_timeout: Duration::from_secs(3),
            request_timeout: Duration::from_secs(10),
            security: Security::Plaintext,
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
