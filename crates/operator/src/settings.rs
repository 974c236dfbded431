//! What the operator is told at its start: flags, or environment variables. Those that mean the same as
//! Strimzi's have Strimzi's names.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Parser, ValueEnum};
use karst_core::versions;
use karst_core::world;

use crate::gates;

/// Runs Apache Kafka on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "karst-operator", version)]
pub(crate) struct Args {
    /// Namespaces to look after: names separated by commas, or `*` for all.
    #[arg(long, env = "STRIMZI_NAMESPACE", default_value = "*")]
    namespaces: String,

    /// Only `Kafka` resources with these labels (`key=value`, separated by commas).
    #[arg(long, env = "STRIMZI_CUSTOM_RESOURCE_SELECTOR")]
    selector: Option<String>,

    /// Image with the launcher that starts Kafka. Normally the operator's own image.
    #[arg(long, env = "KARST_NODE_IMAGE", default_value = concat!("docker.io/karst/operator:", env!("CARGO_PKG_VERSION")))]
    node_image: String,

    /// Kafka images that are not the official ones: one `version=image` a line.
    #[arg(long, env = "STRIMZI_KAFKA_IMAGES", default_value = "", hide_default_value = true)]
    kafka_images: String,

    /// When images are pulled: Always, IfNotPresent or Never.
    #[arg(long, env = "STRIMZI_IMAGE_PULL_POLICY")]
    image_pull_policy: Option<String>,

    /// Secrets for pulling images, separated by commas.
    #[arg(long, env = "STRIMZI_IMAGE_PULL_SECRETS", value_delimiter = ',')]
    image_pull_secrets: Vec<String>,

    /// Domain of the Kubernetes cluster.
    #[arg(long, env = "KUBERNETES_SERVICE_DNS_DOMAIN", default_value = "cluster.local")]
    cluster_domain: String,

    /// Whether network policies are made for clusters.
    #[arg(long, env = "STRIMZI_NETWORK_POLICY_GENERATION", default_value_t = true, action = clap::ArgAction::Set)]
    network_policies: bool,

    /// The operator's own namespace: only operators there may connect to nodes.
    #[arg(long, env = "STRIMZI_OPERATOR_NAMESPACE")]
    operator_namespace: Option<String>,

    /// Whether resources may ask for privileged containers, root, and addresses that services take over.
    #[arg(long, env = "KARST_ALLOW_PRIVILEGED_TEMPLATES", default_value_t = false, action = clap::ArgAction::Set)]
    allow_privileged_templates: bool,

    /// Labels by which the operator's own namespace is known, as key=value, instead of its name.
    #[arg(long, env = "STRIMZI_OPERATOR_NAMESPACE_LABELS", value_delimiter = ',')]
    operator_namespace_labels: Vec<String>,

    /// How often everything is looked at though nothing changed, in milliseconds.
    #[arg(long, env = "STRIMZI_FULL_RECONCILIATION_INTERVAL_MS", default_value_t = 600_000)]
    resync_ms: u64,

    /// Whether only one of several replicas acts.
    #[arg(long, env = "STRIMZI_LEADER_ELECTION_ENABLED", default_value_t = true, action = clap::ArgAction::Set)]
    leader_election: bool,

    /// Name of the Lease.
    #[arg(long, env = "STRIMZI_LEADER_ELECTION_LEASE_NAME", default_value = "karst-operator")]
    lease_name: String,

    /// Namespace of the Lease.
    #[arg(long, env = "STRIMZI_LEADER_ELECTION_LEASE_NAMESPACE")]
    lease_namespace: Option<String>,

    /// Who this replica is. Normally the name of its pod.
    #[arg(long, env = "STRIMZI_LEADER_ELECTION_IDENTITY")]
    identity: Option<String>,

    /// How long a leader that fell silent is waited for, in milliseconds.
    #[arg(long, env = "STRIMZI_LEADER_ELECTION_LEASE_DURATION_MS", default_value_t = LeaseSettings::DURATION_MS)]
    lease_duration_ms: u64,

    /// How long a leader goes on when it cannot renew its lease, in milliseconds.
    #[arg(long, env = "STRIMZI_LEADER_ELECTION_RENEW_DEADLINE_MS", default_value_t = LeaseSettings::RENEW_DEADLINE_MS)]
    renew_deadline_ms: u64,

    /// How soon a renewal of the lease that failed is tried again, in milliseconds.
    #[arg(long, env = "STRIMZI_LEADER_ELECTION_RETRY_PERIOD_MS", default_value_t = LeaseSettings::RETRY_PERIOD_MS)]
    retry_period_ms: u64,

    /// How many clusters are worked on at once.
    #[arg(long, env = "STRIMZI_OPERATIONS_THREAD_POOL_SIZE", default_value_t = 10)]
    workers: usize,

    /// Feature gates as Strimzi writes them: `+Name` or `-Name`, separated by commas.
    #[arg(long, env = "STRIMZI_FEATURE_GATES", default_value = "", hide_default_value = true)]
    feature_gates: String,

    /// Where health and metrics are served. [::] means IPv6 and IPv4, as far as the machine has them.
    #[arg(long, env = "KARST_HTTP_ADDRESS", default_value = "[::]:8080")]
    http_address: SocketAddr,

    /// How log lines look.
    #[arg(long, env = "KARST_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,

    /// What is logged: a level, or `target=level` pairs.
    #[arg(long, env = "STRIMZI_LOG_LEVEL", default_value = "info")]
    pub(crate) log_level: String,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// Which namespaces are looked after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Namespaces {
    /// All of them.
    All,
    /// These.
    Some(Vec<String>),
}

/// How the leader is found.
#[derive(Debug, Clone)]
pub(crate) struct LeaseSettings {
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) identity: String,
    pub(crate) duration: Duration,
    pub(crate) renew_deadline: Duration,
    pub(crate) retry_period: Duration,
}

impl LeaseSettings {
    const DURATION_MS: u64 = 30_000;
    const RENEW_DEADLINE_MS: u64 = 18_000;
    const RETRY_PERIOD_MS: u64 = 2_000;

    /// How often the leader renews the lease: so that one renewal may fail, and be tried again.
    pub(crate) fn renew_period(&self) -> Duration {
        (self.duration / 3).min(self.renew_deadline / 2)
    }

    /// How often another replica looks whether the lease is free.
    pub(crate) fn look_period(&self) -> Duration {
        self.duration / 6
    }
}

#[cfg(test)]
impl Default for LeaseSettings {
    fn default() -> Self {
        Self {
            name: "karst-operator".to_owned(),
            namespace: None,
            identity: "me".to_owned(),
            duration: Duration::from_millis(Self::DURATION_MS),
            renew_deadline: Duration::from_millis(Self::RENEW_DEADLINE_MS),
            retry_period: Duration::from_millis(Self::RETRY_PERIOD_MS),
        }
    }
}

/// Everything the operator was told, checked.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) namespaces: Namespaces,
    pub(crate) selector: Option<String>,
    pub(crate) resync: Duration,
    pub(crate) lease: Option<LeaseSettings>,
    pub(crate) workers: usize,
    pub(crate) http_address: SocketAddr,
    pub(crate) core: Arc<world::Settings>,
}

impl Args {
    /// Checks what was given.
    pub(crate) fn check(self) -> anyhow::Result<Settings> {
        if let Some(policy) = &self.image_pull_policy
            && !["Always", "IfNotPresent", "Never"].contains(&policy.as_str())
        {
            bail!("STRIMZI_IMAGE_PULL_POLICY is '{policy}'; use Always, IfNotPresent or Never");
        }
        if self.renew_deadline_ms >= self.lease_duration_ms || self.retry_period_ms >= self.renew_deadline_ms
        {
            bail!(
                "the lease's duration must be longer than its renew deadline, and that longer than the retry period"
            );
        }
        for gate in gates::check(&self.feature_gates)? {
            tracing::warn!(gate, "this feature gate has no meaning for Karst");
        }
        let lease = self.leader_election.then(|| LeaseSettings {
            name: self.lease_name,
            namespace: self.lease_namespace,
            identity: self.identity.unwrap_or_else(default_identity),
            duration: Duration::from_millis(self.lease_duration_ms),
            renew_deadline: Duration::from_millis(self.renew_deadline_ms),
            retry_period: Duration::from_millis(self.retry_period_ms),
        });
        Ok(Settings {
            namespaces: parse_namespaces(&self.namespaces)?,
            selector: self.selector,
            resync: Duration::from_millis(self.resync_ms),
            lease,
            workers: self.workers.max(1),
            http_address: self.http_address,
            core: Arc::new(world::Settings {
                operator_version: env!("CARGO_PKG_VERSION").to_owned(),
                node_image: self.node_image,
                kafka_images: parse_images(&self.kafka_images)?,
                image_pull_policy: self.image_pull_policy,
                image_pull_secrets: self.image_pull_secrets,
                cluster_domain: self.cluster_domain,
                network_policies: self.network_policies,
                operator_namespace: self.operator_namespace.filter(|name| !name.is_empty()),
                operator_namespace_labels: parse_labels(&self.operator_namespace_labels)?,
                privileged_templates: self.allow_privileged_templates,
            }),
        })
    }
}

fn parse_labels(pairs: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let pair = |text: &String| {
        let (key, value) = text.split_once('=').with_context(|| {
            format!("STRIMZI_OPERATOR_NAMESPACE_LABELS has '{text}'; write key=value, separated by commas")
        })?;
        Ok((key.trim().to_owned(), value.trim().to_owned()))
    };
    pairs.iter().filter(|text| !text.trim().is_empty()).map(pair).collect()
}

/// In a pod the host name is the pod's name, which is unique among replicas.
fn default_identity() -> String {
    std::fs::read_to_string("/etc/hostname")
        .map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| format!("karst-operator-{}", std::process::id()))
}

fn parse_namespaces(text: &str) -> anyhow::Result<Namespaces> {
    let names: Vec<_> =
        text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    match names.as_slice() {
        [] => bail!("STRIMZI_NAMESPACE is empty; name namespaces, or use * for all"),
        [all] if all == "*" => Ok(Namespaces::All),
        _ if names.iter().any(|name| name == "*") => {
            bail!("STRIMZI_NAMESPACE is '{text}'; use either * or names")
        }
        _ => Ok(Namespaces::Some(names)),
    }
}

fn parse_images(text: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (version, image) = line
                .split_once('=')
                .with_context(|| format!("STRIMZI_KAFKA_IMAGES has the line '{line}'; write version=image"))?;
            if versions::find(version.trim()).is_none() {
                let list = versions::supported_list();
                bail!("STRIMZI_KAFKA_IMAGES names Kafka '{version}', which is not supported; supported are {list}");
            }
            Ok((version.trim().to_owned(), image.trim().to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        let settings = Args::parse_from(["karst-operator"]).check().unwrap();
        assert_eq!(settings.namespaces, Namespaces::All);
        assert!(settings.lease.is_some());
    }

    #[test]
    fn namespaces_are_all_or_named() {
        assert_eq!(parse_namespaces("a, b").unwrap(), Namespaces::Some(vec!["a".into(), "b".into()]));
        assert!(parse_namespaces("a,*").is_err());
        assert!(parse_namespaces(" ").is_err());
    }

    #[test]
    fn images_are_checked_against_the_supported_versions() {
        assert_eq!(
            parse_images("4.1.1=registry.example/kafka:1\n\n").unwrap()["4.1.1"],
            "registry.example/kafka:1"
        );
        let error = parse_images("2.8.0=x").unwrap_err().to_string();
        assert!(error.contains("2.8.0") && error.contains("4.1.1"), "{error}");
    }
}
