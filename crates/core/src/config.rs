//! The settings of a node: `server.config`.
//!
//! Keys that Karst sets cannot be set by users, whatever they write: theirs are filtered first, and ours are
//! written last.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::authorization;
use crate::cluster::{Cluster, Node, Roles};
use crate::dynamic;
use crate::listeners::Authentication;
use crate::listeners::address::Served;
use crate::names::CLIENTS_TRUST;
use crate::own_certificates;
use crate::properties::Properties;
use crate::quorum::{CONTROLLER_PORT, Kind};
use crate::versions::KafkaVersion;

/// What clients are told about each listener.
pub(crate) const ADVERTISED: &str = "advertised.listeners";

/// The port on which brokers copy partitions from each other.
pub const REPLICATION_PORT: u16 = 9091;
/// The listener of [`CONTROLLER_PORT`]. Its name is stored in the quorum's log.
pub const CONTROLLER_LISTENER: &str = "CONTROLPLANE-9090";
/// The listener of [`REPLICATION_PORT`].
pub const REPLICATION_LISTENER: &str = "REPLICATION-9091";
/// Where nodes look for the quorum when they start. A changed list needs no restart.
pub const BOOTSTRAP_SERVERS: &str = "controller.quorum.bootstrap.servers";

/// The voters of a static quorum.
const STATIC_VOTERS: &str = "controller.quorum.voters";
/// Where a node's own certificate is mounted.
pub const CERTIFICATE_DIR: &str = "/opt/kafka/certificate";
/// The file in [`CERTIFICATE_DIR`]: key and chain.
pub const CERTIFICATE_FILE: &str = "node.pem";
/// Where the certificates are mounted that a node trusts.
pub const TRUST_DIR: &str = "/opt/kafka/trust";
/// The file in [`TRUST_DIR`].
pub const TRUST_FILE: &str = "cluster-ca.crt";

/// Where certificates are mounted that users brought for listeners.
pub const LISTENERS_DIR: &str = "/opt/kafka/listeners";

/// What users may not set, by the beginning of the key.
const FORBIDDEN_PREFIXES: &[&str] = &[
    "listeners",
    "advertised.",
    "broker.",
    "listener.",
    "host.name",
    "port",
    "inter.broker.listener.name",
    "sasl.",
    "ssl.",
    "security.",
    "password.",
    "log.dir",
    "zookeeper.",
    "authorizer.",
    "super.user",
    "cruise.control.metrics.topic",
    "cruise.control.metrics.reporter.bootstrap.servers",
    "node.id",
    "process.roles",
    "controller.",
    "metadata.log.dir",
    "client.quota.callback.static.",
    "prometheus.metrics.reporter.",
    "cordoned.log.dirs",
    "config.providers",
];

/// What users may set all the same.
const ALLOWED: &[&str] = &[
    "sasl.server.max.receive.size",
    "ssl.cipher.suites",
    "ssl.protocol",
    "ssl.enabled.protocols",
    "ssl.secure.random.implementation",
    "broker.session.timeout.ms",
    "broker.heartbeat.interval.ms",
    "controller.socket.timeout.ms",
    "controller.quorum.election.backoff.max.ms",
    "controller.quorum.election.timeout.ms",
    "controller.quorum.fetch.timeout.ms",
];

/// May a user set this key?
pub(crate) fn is_allowed(key: &str) -> bool {
    let key = key.trim();
    let forbidden = FORBIDDEN_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
    !key.is_empty() && (!forbidden || ALLOWED.contains(&key))
}

/// The keys of the user's settings that are left out.
pub fn forbidden_keys(config: Option<&BTreeMap<String, Value>>) -> Vec<String> {
    config.into_iter().flat_map(BTreeMap::keys).filter(|key| !is_allowed(key)).cloned().collect()
}

/// The settings of users that are carried out, as Kafka reads them.
pub(crate) fn of_user(config: Option<&BTreeMap<String, Value>>) -> impl Iterator<Item = (&str, String)> {
    let allowed = config.into_iter().flatten().filter(|(key, _)| is_allowed(key));
    allowed.map(|(key, value)| (key.trim(), text(value)))
}

/// The value of a setting as Kafka reads it.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// The settings of one node.
pub fn render(
    cluster: &Cluster,
    node: Node<'_>,
    served: &[Served<'_>],
    quorum: Kind,
    bootstrap_servers: &str,
    user: Option<&BTreeMap<String, Value>>,
    super_users: Option<&str>,
) -> Properties {
    let mut config = Properties::default();
    for (key, value) in of_user(user) {
        config.set(key, value);
    }
    let roles = node.pool.roles;
    let storage = &node.pool.storage;
    let log_dirs: Vec<_> = storage.disks().iter().map(|disk| disk.log_dir(node.id)).collect();

    config.set("node.id", node.id.to_string());
    config.set("process.roles", roles.to_string());
    config.set("controller.listener.names", CONTROLLER_LISTENER);
    // A static quorum cannot start without the one, a dynamic one not without the other. Each ignores what it does not need.
    if quorum != Kind::Dynamic {
        config.set(STATIC_VOTERS, cluster.static_voters());
    }
    if quorum != Kind::Static {
        config.set(BOOTSTRAP_SERVERS, bootstrap_servers);
    }
    config.set("metadata.log.dir", storage.metadata_disk().log_dir(node.id));
    config.set("log.dirs", log_dirs.join(","));
    let listeners = listeners(cluster, node, served);
    let join = |entry: fn(&KafkaListener) -> String, all: &[KafkaListener]| {
        all.iter().map(entry).collect::<Vec<_>>().join(",")
    };
    config.set(
        "listeners",
        join(|listener| format!("{}://0.0.0.0:{}", listener.name, listener.port), &listeners),
    );
    config
        .set(ADVERTISED, join(|listener| format!("{}://{}", listener.name, listener.advertised), &listeners));
    config.set("listener.security.protocol.map", protocols(&listeners));
    // All nodes talk to controllers, and Kafka takes what it needs for that from the settings of their listener.
    secure(&mut config, CONTROLLER_LISTENER);
    if roles.has_broker() {
        config.set("inter.broker.listener.name", REPLICATION_LISTENER);
        secure(&mut config, REPLICATION_LISTENER);
        for one in served {
            secure_clients(&mut config, one);
        }
        // Certificates that change are loaded while the broker runs. Kafka would refuse those for other names, and with one
        // of them all that changed at the same time.
        config.set("ssl.allow.dn.changes", "true");
        config.set("ssl.allow.san.changes", "true");
    }
    if let Some(authorization) = &cluster.authorization {
        authorization.add_to(&mut config, &cluster.key.name, super_users);
    }
    config.set("ssl.endpoint.identification.algorithm", "HTTPS");
    config
}

/// Both sides of a listener prove who they are. The names of the files stay, so new certificates need no new settings.
fn secure(config: &mut Properties, listener: &str) {
    let mut set = |key: &str, value: &str| {
        config.set(format!("listener.name.{}.ssl.{key}", listener.to_lowercase()), value);
    };
    set("keystore.type", "PEM");
    set("keystore.location", &format!("{CERTIFICATE_DIR}/{CERTIFICATE_FILE}"));
    set("truststore.type", "PEM");
    set("truststore.location", &format!("{TRUST_DIR}/{TRUST_FILE}"));
    set("client.auth", "required");
}

/// What clients of a listener get and have to show.
fn secure_clients(config: &mut Properties, served: &Served<'_>) {
    let listener = served.listener;
    let name = listener.kafka_name().to_lowercase();
    let mut set = |key: &str, value: &str| config.set(format!("listener.name.{name}.{key}"), value);
    if listener.tls {
        let keystore = match served.shows_users() {
            true => format!("{LISTENERS_DIR}/{}", own_certificates::keystore(listener)),
            false => format!("{CERTIFICATE_DIR}/{CERTIFICATE_FILE}"),
        };
        set("ssl.keystore.type", "PEM");
        set(KEYSTORE, &keystore);
        set("ssl.client.auth", "none");
    }
    let limits = [
        ("max.connections", listener.configuration.max_connections),
        ("max.connection.creation.rate", listener.configuration.max_connection_creation_rate),
    ];
    for (key, limit) in limits {
        if let Some(limit) = limit {
            set(key, &limit.to_string());
        }
    }
    match &listener.authentication {
        Authentication::None => {}
        Authentication::Custom { settings, .. } => {
            for (key, value) in settings {
                set(key, value);
            }
        }
        Authentication::Certificate => {
            set("ssl.truststore.type", "PEM");
            set("ssl.truststore.location", &format!("{TRUST_DIR}/{CLIENTS_TRUST}"));
            set("ssl.client.auth", "required");
        }
        Authentication::Scram => {
            set("sasl.enabled.mechanisms", "SCRAM-SHA-512");
            let login = "org.apache.kafka.common.security.scram.ScramLoginModule required;";
            set("scram-sha-512.sasl.jaas.config", login);
        }
    }
}

/// The settings that users write for a listener of their own authentication, without its prefix. Which certificate the
/// listener shows is not among them.
pub(crate) fn listener_settings(written: Option<&karst_api::FreeForm>) -> BTreeMap<String, String> {
    let written = written.into_iter().flatten();
    let settings = written.filter(|(key, _)| is_listener_setting(key));
    settings.map(|(key, value)| (key.trim().to_owned(), text(value))).collect()
}

/// Is it a setting of a listener that is the user's to set?
pub(crate) fn is_listener_setting(key: &str) -> bool {
    let key = key.trim();
    !key.is_empty() && !key.starts_with("ssl.keystore.")
}

/// Where the certificate is that a listener shows.
const KEYSTORE: &str = "ssl.keystore.location";

/// The setting that says which certificate a listener shows.
pub(crate) fn keystore_setting(listener: &str) -> String {
    format!("listener.name.{}.{KEYSTORE}", listener.to_lowercase())
}

/// Is it a listener that only nodes and the operator use?
pub(crate) fn is_inside(listener: &str) -> bool {
    [CONTROLLER_LISTENER, REPLICATION_LISTENER].contains(&listener)
}

/// Is it one of the settings that tell how clients are served, and who may do everything?
pub(crate) fn tells_of_clients(key: &str) -> bool {
    [ADVERTISED, authorization::SUPER_USERS].contains(&key) || key.ends_with(KEYSTORE)
}

struct KafkaListener {
    name: String,
    port: u16,
    advertised: String,
    protocol: &'static str,
}

fn listeners(cluster: &Cluster, node: Node<'_>, served: &[Served<'_>]) -> Vec<KafkaListener> {
    let host = cluster.host(node);
    let listener = |name: &str, port, protocol| KafkaListener {
        name: name.to_owned(),
        port,
        advertised: format!("{host}:{port}"),
        protocol,
    };
    let mut listeners = Vec::new();
    if node.pool.roles.has_controller() {
        listeners.push(listener(CONTROLLER_LISTENER, CONTROLLER_PORT, "SSL"));
    }
    if node.pool.roles.has_broker() {
        listeners.push(listener(REPLICATION_LISTENER, REPLICATION_PORT, "SSL"));
        listeners.extend(served.iter().map(|one| KafkaListener {
            name: one.listener.kafka_name(),
            port: one.listener.port,
            advertised: one.advertised.to_string(),
            protocol: one.listener.protocol(),
        }));
    }
    listeners
}

/// Brokers talk to controllers too, so every node must know how.
fn protocols(listeners: &[KafkaListener]) -> String {
    let mut names: Vec<_> = listeners.iter().map(|one| (one.name.as_str(), one.protocol)).collect();
    if !names.iter().any(|(name, _)| *name == CONTROLLER_LISTENER) {
        names.insert(0, (CONTROLLER_LISTENER, "SSL"));
    }
    names.iter().map(|(name, protocol)| format!("{name}:{protocol}")).collect::<Vec<_>>().join(",")
}

/// The settings that make a restart necessary when they change, as text to be fingerprinted. The list of a static quorum
/// counts only where it is all there is: a node that has both lists runs with either kind.
pub(crate) fn restart_relevant(config: &Properties, kafka: &KafkaVersion, roles: Roles) -> String {
    let has_both = config.iter().any(|(key, _)| key == BOOTSTRAP_SERVERS);
    let mut relevant = Properties::default();
    for (key, value) in config.iter().filter(|(key, _)| dynamic::needs_restart(kafka, roles, key)) {
        if key != BOOTSTRAP_SERVERS && !(has_both && key == STATIC_VOTERS) {
            relevant.set(key, value);
        }
    }
    relevant.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn users_cannot_set_what_karst_sets() {
        for key in [
            "node.id",
            "listeners",
            "log.dirs",
            "controller.quorum.voters",
            " node.id",
            "",
            "controller.quorum.auto.join.enable",
        ] {
            assert!(!is_allowed(key), "{key:?}");
        }
        for key in ["min.insync.replicas", "controller.quorum.fetch.timeout.ms", "log.retention.hours"] {
            assert!(is_allowed(key), "{key:?}");
        }
    }

    #[test]
    fn values_of_every_json_type_become_text() {
        assert_eq!(text(&json!(3)), "3");
        assert_eq!(text(&json!(true)), "true");
        assert_eq!(text(&json!("a")), "a");
        assert_eq!(text(&json!(["a", 1])), "a,1");
        assert_eq!(text(&json!(0.5)), "0.5");
    }
}
