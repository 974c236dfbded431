//! The listeners clients use: which can be served, and what is wrong with the others.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use karst_api as api;

use crate::notice::Notice;
use crate::problem::Problem;

/// A plain listener inside the Kubernetes cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientListener {
    /// As the user named it.
    pub name: String,
    /// The port on every broker, and on the bootstrap service.
    pub port: u16,
    /// Who may connect, when not everybody.
    pub peers: Option<Vec<NetworkPolicyPeer>>,
}

impl ClientListener {
    /// As Kafka names it.
    pub fn kafka_name(&self) -> String {
        format!("{}-{}", self.name.to_uppercase(), self.port)
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
        match u16::try_from(listener.port) {
            Ok(port) if port >= 9092 && port != 9404 && port != 9999 => match unsupported(listener) {
                Some(why) => result.notices.push(Notice::ListenerLeftOut { name, why }),
                None => result.served.push(ClientListener {
                    name,
                    port,
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

/// What of a listener Karst cannot do yet. Such a listener is not served at all: one without the encryption or
/// the authentication that was asked for would be worse than none.
fn unsupported(listener: &api::Listener) -> Option<String> {
    if listener.type_ != api::ListenerType::Internal {
        return Some("only listeners of type internal are supported yet".to_owned());
    }
    if listener.tls {
        return Some("tls: true is not supported yet".to_owned());
    }
    if listener.authentication.is_some() {
        return Some("authentication is not supported yet".to_owned());
    }
    None
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
            {"name": "scram", "port": 9094, "type": "internal", "tls": false, "authentication": {"type": "scram-sha-512"}},
            {"name": "outside", "port": 9095, "type": "nodeport", "tls": false},
        ]));
        assert_eq!(result.served, [ClientListener { name: "plain".into(), port: 9092, peers: None }]);
        assert_eq!(result.notices.len(), 3);
        assert_eq!(result.problems, []);
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
