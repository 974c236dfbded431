//! The listeners clients use: which can be served, and what is wrong with the others.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use karst_api as api;

use crate::notice::Notice;
use crate::problem::Problem;

/// How clients of a listener prove who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authentication {
    /// Not at all.
    None,
    /// With a certificate of the clients' authority.
    Certificate,
    /// With a password that Kafka knows the salted form of.
    Scram,
}

/// A listener inside the Kubernetes cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientListener {
    /// As the user named it.
    pub name: String,
    /// The port on every broker, and on the bootstrap service.
    pub port: u16,
    /// Is the connection encrypted?
    pub tls: bool,
    /// How clients prove who they are.
    pub authentication: Authentication,
    /// Who may connect, when not everybody.
    pub peers: Option<Vec<NetworkPolicyPeer>>,
}

impl ClientListener {
    /// As Kafka names it.
    pub fn kafka_name(&self) -> String {
        format!("{}-{}", self.name.to_uppercase(), self.port)
    }

    /// The protocol, as Kafka calls it.
    pub fn protocol(&self) -> &'static str {
        match (self.tls, self.authentication == Authentication::Scram) {
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
pub fn resolve(wanted: &[api::Listener]) -> Listeners {
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
        if !listener.tls && authentication(listener) == Authentication::Certificate {
            result.problems.push(Problem::ListenerNeedsTls { index, name: name.clone() });
        }
        match u16::try_from(listener.port) {
            Ok(port) if port >= 9092 && port != 9404 && port != 9999 => match unsupported(listener) {
                Some(why) => result.notices.push(Notice::ListenerLeftOut { name, why }),
                None => result.served.push(ClientListener {
                    name,
                    port,
                    tls: listener.tls,
                    authentication: authentication(listener),
                    peers: listener.network_policy_peers.clone(),
                }),
            },
            _ => result.problems.push(Problem::ListenerPortReserved { index, port: listener.port }),
        }
    }
    result
}

fn is_listener_name(name: &str) -> bool {
    (1..=11).contains(&name.len()) && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
}

fn authentication(listener: &api::Listener) -> Authentication {
    match listener.authentication.as_ref().map(|authentication| authentication.type_) {
        None | Some(api::ListenerAuthenticationType::Custom) => Authentication::None,
        Some(api::ListenerAuthenticationType::Tls) => Authentication::Certificate,
        Some(api::ListenerAuthenticationType::ScramSha512) => Authentication::Scram,
    }
}

/// What of a listener Karst cannot do yet. Such a listener is not served at all: one without the encryption or
/// the authentication that was asked for would be worse than none.
fn unsupported(listener: &api::Listener) -> Option<String> {
    if listener.type_ != api::ListenerType::Internal {
        return Some("only listeners of type internal are supported yet".to_owned());
    }
    let kind = listener.authentication.as_ref().map(|authentication| authentication.type_);
    if kind == Some(api::ListenerAuthenticationType::Custom) {
        return Some("authentication of type custom is not supported yet".to_owned());
    }
    let certificate =
        listener.configuration.as_ref().is_some_and(|settings| settings.broker_cert_chain_and_key.is_some());
    certificate.then(|| "configuration.brokerCertChainAndKey is not supported yet".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resolve_json(listeners: serde_json::Value) -> Listeners {
        resolve(&serde_json::from_value::<Vec<api::Listener>>(listeners).unwrap())
    }

    #[test]
    fn a_listener_that_cannot_be_as_safe_as_asked_for_is_not_served() {
        let result = resolve_json(json!([
            {"name": "plain", "port": 9092, "type": "internal", "tls": false},
            {"name": "tls", "port": 9093, "type": "internal", "tls": true},
            {"name": "own", "port": 9096, "type": "internal", "tls": true, "configuration":
                {"brokerCertChainAndKey": {"secretName": "s", "certificate": "c", "key": "k"}}},
            {"name": "custom", "port": 9094, "type": "internal", "tls": false, "authentication": {"type": "custom"}},
            {"name": "outside", "port": 9095, "type": "nodeport", "tls": false},
        ]));
        let served: Vec<_> = result.served.iter().map(|one| (one.name.as_str(), one.protocol())).collect();
        assert_eq!(served, [("plain", "PLAINTEXT"), ("tls", "SSL")]);
        assert_eq!(result.notices.len(), 3);
        assert_eq!(result.problems, []);
    }

    #[test]
    fn encryption_and_passwords_can_be_had_together_and_certificates_need_encryption() {
        let listener = |tls: bool, kind: &str| {
            resolve_json(
                json!([{"name": "a", "port": 9092, "type": "internal", "tls": tls, "authentication": {"type": kind}}]),
            )
        };
        assert_eq!(listener(true, "scram-sha-512").served[0].protocol(), "SASL_SSL");
        assert_eq!(listener(false, "scram-sha-512").served[0].protocol(), "SASL_PLAINTEXT");
        assert_eq!(listener(true, "tls").served[0].authentication, Authentication::Certificate);
        assert_eq!(
            listener(false, "tls").problems,
            [Problem::ListenerNeedsTls { index: 0, name: "a".into() }]
        );
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let result = resolve_json(json!([
            {"name": "a", "port": 9092, "type": "internal", "tls": false},
            {"name": "a", "port": 9092, "type": "internal", "tls": false},
            {"name": "metrics", "port": 9404, "type": "internal", "tls": false},
        ]));
        assert_eq!(
            result.problems,
            [
                Problem::ListenerNameTaken { index: 1, name: "a".into() },
                Problem::ListenerPortTaken { index: 1, port: 9092, other: "a".into() },
                Problem::ListenerPortReserved { index: 2, port: 9404 },
            ]
        );
    }
}
