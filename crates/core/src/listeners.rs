//! The listeners clients use: which can be served, how clients reach them, and what is wrong with the others.
//!
//! What users wrote is checked here, once. Later steps take a [`ClientListener`] as it is: they look up where its brokers can be
//! reached now ([`address`]), and which services lead there ([`services`]).

pub mod address;
pub mod kept;
mod rules;
pub mod services;
pub(crate) mod template;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use karst_api as api;

use crate::cluster::Pool;
use crate::config;
use crate::ids::NodeId;
use crate::names::ClusterKey;
use crate::notice::Notice;
use crate::problem::Problem;
use crate::resolve::too_long;

/// How clients of a listener prove who they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authentication {
    /// Not at all.
    None,
    /// With a certificate of the clients' authority.
    Certificate,
    /// With a password that Kafka knows the salted form of.
    Scram,
    /// As the user's own settings say.
    Custom {
        /// Does it use SASL?
        sasl: bool,
        /// Settings of the listener, without its prefix.
        settings: BTreeMap<String, String>,
    },
}

impl Authentication {
    fn of(listener: &api::Listener) -> Self {
        let Some(written) = &listener.authentication else { return Self::None };
        match written.type_ {
            api::ListenerAuthenticationType::Tls => Self::Certificate,
            api::ListenerAuthenticationType::ScramSha512 => Self::Scram,
            api::ListenerAuthenticationType::Custom => Self::Custom {
                sasl: written.sasl.unwrap_or(false),
                settings: config::listener_settings(written.listener_config.as_ref()),
            },
        }
    }

    /// What users wrote about it that has no effect.
    fn left_out(listener: &api::Listener) -> Option<Notice> {
        let written = listener.authentication.as_ref()?;
        let settings = written.listener_config.iter().flatten().map(|(key, _)| key);
        let named = |key: &String| format!("listenerConfig.{key}");
        let (fields, why): (Vec<_>, _) = match written.type_ {
            api::ListenerAuthenticationType::Custom => (
                settings.filter(|key| !config::is_listener_setting(key)).map(named).collect(),
                "which certificate the listener shows is said by configuration.brokerCertChainAndKey",
            ),
            _ => (
                settings.map(named).chain(written.sasl.map(|_| "sasl".to_owned())).collect(),
                "they have an effect with type custom only",
            ),
        };
        let name = listener.name.clone();
        (!fields.is_empty()).then_some(Notice::ListenerSettingsLeftOut { name, fields, why })
    }

    /// As consoles know it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Certificate => "tls",
            Self::Scram => "scram-sha-512",
            Self::Custom { .. } => "custom",
        }
    }

    fn uses_sasl(&self) -> bool {
        matches!(self, Self::Scram | Self::Custom { sasl: true, .. })
    }
}

/// How clients reach the brokers of a listener. Each leads to all that the ones before it lead to, and farther.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// By the names of the pods.
    Internal,
    /// By a service of each broker, inside the Kubernetes cluster.
    ClusterIp,
    /// By a port of the Kubernetes nodes.
    NodePort,
    /// By a load balancer of each broker.
    LoadBalancer,
}

impl Reach {
    fn of(type_: api::ListenerType) -> Option<Self> {
        match type_ {
            api::ListenerType::Internal => Some(Self::Internal),
            api::ListenerType::ClusterIp => Some(Self::ClusterIp),
            api::ListenerType::NodePort => Some(Self::NodePort),
            api::ListenerType::LoadBalancer => Some(Self::LoadBalancer),
            api::ListenerType::Route | api::ListenerType::TlsRoute | api::ListenerType::Ingress => None,
        }
    }

    /// As users write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Internal => "internal",
            Self::ClusterIp => "cluster-ip",
            Self::NodePort => "nodeport",
            Self::LoadBalancer => "loadbalancer",
        }
    }

    /// Do others than Karst decide about its addresses?
    pub(crate) fn is_observed(self) -> bool {
        matches!(self, Self::NodePort | Self::LoadBalancer)
    }
}

/// A listener for clients. All of it was checked.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientListener {
    /// As the user named it.
    pub name: String,
    /// The port on every broker, and on its services.
    pub port: u16,
    /// Is the connection encrypted?
    pub tls: bool,
    /// How clients prove who they are.
    pub authentication: Authentication,
    /// Who may connect, when not everybody.
    pub peers: Option<Vec<NetworkPolicyPeer>>,
    /// How clients reach it.
    pub reach: Reach,
    /// Is that not as asked for, because Karst cannot do what is? Then its services stay as they are.
    pub is_frozen: bool,
    /// The rest of what the user says about it.
    pub configuration: Box<api::ListenerConfiguration>,
}

impl ClientListener {
    /// As Kafka names it.
    pub fn kafka_name(&self) -> String {
        kafka_name(&self.name, self.port)
    }

    /// The protocol, as Kafka calls it.
    pub fn protocol(&self) -> &'static str {
        match (self.tls, self.authentication.uses_sasl()) {
            (false, false) => "PLAINTEXT",
            (true, false) => "SSL",
            (false, true) => "SASL_PLAINTEXT",
            (true, true) => "SASL_SSL",
        }
    }

    /// As the port of a service is named.
    pub fn port_name(&self) -> String {
        match (self.name.as_str(), self.port) {
            ("plain", 9092) => "tcp-clients".to_owned(),
            ("tls", 9093) => "tcp-clientstls".to_owned(),
            _ => format!("tcp-{}", self.name),
        }
    }

    /// The user's own certificate for it.
    pub fn own_certificate(&self) -> Option<&api::CertificateAndKey> {
        self.configuration.broker_cert_chain_and_key.as_ref()
    }

    /// What users say about one broker.
    fn broker(&self, node: NodeId) -> Option<&api::ListenerBroker> {
        self.configuration.brokers.iter().flatten().find(|broker| broker.broker == node.0)
    }

    fn bootstrap(&self) -> Option<&api::ListenerBootstrap> {
        self.configuration.bootstrap.as_ref()
    }

    /// Is there one service that leads to all brokers of the listener, and to no other listener?
    pub(crate) fn has_bootstrap_service(&self) -> bool {
        self.reach != Reach::Internal && self.configuration.create_bootstrap_service != Some(false)
    }
}

fn kafka_name(name: &str, port: u16) -> String {
    format!("{}-{port}", name.to_uppercase())
}

/// What became of the listeners that were asked for.
#[derive(Debug, Default, PartialEq)]
pub struct Listeners {
    /// Those that are served.
    pub served: Vec<ClientListener>,
    /// Those that are not, and why.
    pub notices: Vec<Notice>,
    /// What stops the whole cluster.
    pub problems: Vec<Problem>,
}

/// Looks at every listener and collects all that is wrong, so that a user can mend it in one go.
///
/// `reach_now` tells how a listener is reached that is served already.
pub fn resolve(wanted: &[api::Listener], reach_now: impl Fn(&str, u16) -> Option<Reach>) -> Listeners {
    let mut result = Listeners::default();
    let mut names = BTreeMap::new();
    let mut ports = BTreeMap::new();
    for (index, listener) in wanted.iter().enumerate() {
        let name = listener.name.clone();
        if !is_listener_name(&name) {
            result.problems.push(Problem::ListenerName { index, name: name.clone() });
        }
        if names.insert(name.clone(), index).is_some() {
            result.problems.push(Problem::ListenerNameTaken { index, name: name.clone() });
        }
        if let Some(other) = ports.insert(listener.port, name.clone()) {
            result.problems.push(Problem::ListenerPortTaken { index, port: listener.port, other });
        }
        if !listener.tls && Authentication::of(listener) == Authentication::Certificate {
            result.problems.push(Problem::ListenerNeedsTls { index, name: name.clone() });
        }
        result.problems.extend(rules::problems(index, listener));
        result.notices.extend(Authentication::left_out(listener));
        match u16::try_from(listener.port) {
            Ok(port) if port >= 9092 && port != 9404 && port != 9999 => match Reach::of(listener.type_) {
                Some(reach) => result.served.push(client_listener(listener, port, reach)),
                None => {
                    let now = reach_now(&name, port);
                    let kept = now.map(|reach| client_listener(listener, port, reach));
                    result.served.extend(kept.map(|kept| ClientListener { is_frozen: true, ..kept }));
                    result.notices.push(match now {
                        Some(now) => {
                            Notice::ListenerTypeKept { name, now: now.name(), why: unsupported(listener) }
                        }
                        None => Notice::ListenerLeftOut { name, why: unsupported(listener) },
                    });
                }
            },
            _ => result.problems.push(Problem::ListenerPortReserved { index, port: listener.port }),
        }
    }
    result
}

fn client_listener(listener: &api::Listener, port: u16, reach: Reach) -> ClientListener {
    ClientListener {
        name: listener.name.clone(),
        port,
        tls: listener.tls,
        authentication: Authentication::of(listener),
        peers: listener.network_policy_peers.clone(),
        reach,
        is_frozen: false,
        configuration: listener.configuration.clone().unwrap_or_default(),
    }
}

/// Names that ports of Karst's own have.
const TAKEN: [&str; 6] = ["health", "ctrlplane", "replication", "prometheus", "clients", "clientstls"];

fn is_listener_name(name: &str) -> bool {
    (1..=11).contains(&name.len())
        && !TAKEN.contains(&name)
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
}

/// Such a listener is not served at all, and does not disturb the others.
fn unsupported(listener: &api::Listener) -> String {
    format!(
        "its type {} is not supported yet; use internal, cluster-ip, nodeport or loadbalancer",
        rules::type_name(listener.type_)
    )
}

/// What only shows when the brokers are known: addresses made from templates, names of services, and settings of nodes that are
/// no brokers.
pub(crate) fn check_brokers(
    key: &ClusterKey,
    listeners: &[ClientListener],
    pools: &[Pool],
) -> (Vec<Problem>, Vec<Notice>) {
    let (mut problems, mut notices) = (Vec::new(), Vec::new());
    let brokers: Vec<_> = pools
        .iter()
        .filter(|pool| pool.roles.has_broker())
        .flat_map(|pool| pool.nodes.iter().map(move |node| (pool, *node)))
        .collect();
    let ids: BTreeSet<i32> = brokers.iter().map(|(_, node)| node.0).collect();
    for listener in listeners {
        let field = format!("configuration of listener '{}'", listener.name);
        if listener.reach != Reach::Internal {
            let made = std::iter::once(key.listener_bootstrap(&listener.name))
                .chain(brokers.iter().map(|(pool, node)| key.listener_broker(&pool.name, listener, *node)));
            let longest = made.max_by_key(String::len).unwrap_or_default();
            problems.extend(too_long(&key.name, longest));
        }
        for (pool, node) in &brokers {
            problems.extend(template::problems(&field, listener, *node, &key.pod(&pool.name, *node)));
        }
        let written = listener.configuration.brokers.iter().flatten().map(|broker| broker.broker);
        let unknown: Vec<_> = written.filter(|id| !ids.contains(id)).map(|id| id.to_string()).collect();
        if !unknown.is_empty() && !brokers.is_empty() {
            notices.push(Notice::ListenerBrokersUnknown {
                name: listener.name.clone(),
                nodes: unknown.join(", "),
            });
        }
    }
    problems.dedup();
    (problems, notices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resolve_json(listeners: serde_json::Value) -> Listeners {
        resolve(&serde_json::from_value::<Vec<api::Listener>>(listeners).unwrap(), |_, _| None)
    }

    #[test]
    fn a_listener_of_a_type_that_is_not_supported_is_left_out_alone() {
        let result = resolve_json(json!([
            {"name": "plain", "port": 9092, "type": "internal", "tls": false},
            {"name": "tls", "port": 9093, "type": "internal", "tls": true},
            {"name": "inside", "port": 9094, "type": "cluster-ip", "tls": false},
            {"name": "node", "port": 9095, "type": "nodeport", "tls": false},
            {"name": "lb", "port": 9096, "type": "loadbalancer", "tls": true},
            {"name": "route", "port": 9097, "type": "route", "tls": true},
        ]));
        let served: Vec<_> = result.served.iter().map(|one| (one.name.as_str(), one.protocol())).collect();
        assert_eq!(
            served,
            [
                ("plain", "PLAINTEXT"),
                ("tls", "SSL"),
                ("inside", "PLAINTEXT"),
                ("node", "PLAINTEXT"),
                ("lb", "SSL")
            ]
        );
        let said: Vec<_> = result.notices.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "listener 'route' is not served: its type route is not supported yet; use internal, cluster-ip, nodeport or loadbalancer"
            ]
        );
        assert_eq!(result.problems, []);
    }

    #[test]
    fn encryption_and_passwords_can_be_had_together_and_certificates_need_encryption() {
        let listener = |tls: bool, authentication: serde_json::Value| {
            resolve_json(
                json!([{"name": "a", "port": 9092, "type": "internal", "tls": tls, "authentication": authentication}]),
            )
        };
        assert_eq!(listener(true, json!({"type": "scram-sha-512"})).served[0].protocol(), "SASL_SSL");
        assert_eq!(listener(false, json!({"type": "scram-sha-512"})).served[0].protocol(), "SASL_PLAINTEXT");
        assert_eq!(
            listener(false, json!({"type": "custom", "sasl": true})).served[0].protocol(),
            "SASL_PLAINTEXT"
        );
        assert_eq!(listener(true, json!({"type": "custom"})).served[0].protocol(), "SSL");
        assert_eq!(
            listener(true, json!({"type": "tls"})).served[0].authentication,
            Authentication::Certificate
        );
        assert_eq!(
            listener(false, json!({"type": "tls"})).problems,
            [Problem::ListenerNeedsTls { index: 0, name: "a".into() }]
        );
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let result = resolve_json(json!([
            {"name": "a", "port": 9092, "type": "internal", "tls": false},
            {"name": "a", "port": 9092, "type": "internal", "tls": false},
            {"name": "metrics", "port": 9404, "type": "internal", "tls": false,
             "configuration": {"class": "x", "finalizers": ["a.b/c"]}},
        ]));
        let said: Vec<_> = result.problems.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 5, "{said:#?}");
        assert_eq!(
            result.problems[..2],
            [
                Problem::ListenerNameTaken { index: 1, name: "a".into() },
                Problem::ListenerPortTaken { index: 1, port: 9092, other: "a".into() },
            ]
        );
        assert_eq!(result.problems[4], Problem::ListenerPortReserved { index: 2, port: 9404 });
        assert!(said[2].starts_with("spec.kafka.listeners[2].configuration.class is set"), "{said:#?}");
    }
}
