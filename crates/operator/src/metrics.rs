//! Metrics, under the names that dashboards for Strimzi look for where they mean the same.

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::ask::Terms;
use crate::index::Index;
use crate::lease::Leadership;
use crate::queue::{Outcome, Queue, Work};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCluster {
    namespace: String,
    cluster: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfReplica {
    namespace: String,
    cluster: String,
    node: i32,
}

/// So many voters of a quorum have series of their own. None has nearly as many.
const MOST_VOTERS: usize = 100;

/// What is known of quorums, as their leaders said last.
#[derive(Debug, Default)]
struct Quorums {
    voters: Family<OfCluster, Gauge>,
    observers: Family<OfCluster, Gauge>,
    leader: Family<OfCluster, Gauge>,
    leader_changes: Family<OfCluster, Gauge>,
    behind: Family<OfReplica, Gauge<f64, AtomicU64>>,
    lag: Family<OfReplica, Gauge>,
}

impl Quorums {
    fn register(&self, registry: &mut Registry) {
        registry.register("karst_quorum_voters", "Voters", self.voters.clone());
        registry.register("karst_quorum_observers", "Replicas that do not vote", self.observers.clone());
        registry.register("karst_quorum_leader", "Node id of the leader", self.leader.clone());
        let changes = "How many changes of the leader this process has seen";
        registry.register("karst_quorum_leader_changes", changes, self.leader_changes.clone());
        let behind = "For how long a voter has been lacking records that the leader has; -1 when it never had them all";
        registry.register("karst_quorum_voter_behind_seconds", behind, self.behind.clone());
        let lag = "How many records that the leader has a voter lacks";
        registry.register("karst_quorum_voter_lag", lag, self.lag.clone());
    }

    fn tell(&self, terms: &Terms) {
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.voters.clear();
        self.observers.clear();
        self.leader.clear();
        self.leader_changes.clear();
        self.behind.clear();
        self.lag.clear();
        for (key, term) in terms.all() {
            let of = OfCluster { namespace: key.namespace.clone(), cluster: key.name.clone() };
            self.voters.get_or_create(&of).set(count(term.quorum.voters.len()));
            self.observers.get_or_create(&of).set(count(term.quorum.observers.len()));
            self.leader.get_or_create(&of).set(i64::from(term.quorum.leader.0));
            self.leader_changes.get_or_create(&of).set(i64::try_from(term.changes).unwrap_or(i64::MAX));
            for voter in term.quorum.voters.iter().take(MOST_VOTERS) {
                let (namespace, cluster) = (key.namespace.clone(), key.name.clone());
                let of = OfReplica { namespace, cluster, node: voter.node.0 };
                let behind = voter.behind.map_or(-1.0, |behind| behind.as_secs_f64());
                self.behind.get_or_create(&of).set(behind);
                if let Some(missing) = term.missing.get(&voter.node) {
                    self.lag.get_or_create(&of).set(*missing);
                }
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    kind: String,
    namespace: String,
}

impl Labels {
    fn of(work: &Work) -> Self {
        let (kind, namespace) = match work {
            Work::Cluster(key) => ("Kafka", &key.namespace),
            Work::PodSet { cluster, .. } => ("StrimziPodSet", &cluster.namespace),
        };
        Self { kind: kind.to_owned(), namespace: namespace.clone() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabels {
    namespace: String,
    cluster: String,
    kind: String,
}

/// From a tenth of a millisecond to ten seconds.
fn durations() -> Histogram {
    Histogram::new([0.0001, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0])
}

/// All metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    passes: Family<Labels, Counter>,
    failed: Family<Labels, Counter>,
    successful: Family<Labels, Counter>,
    panics: Family<Labels, Counter>,
    durations: Family<Labels, Histogram, fn() -> Histogram>,
    resources: Family<Labels, Gauge>,
    unreadable: Family<Labels, Gauge>,
    quorums: Quorums,
    certificates: Family<CertificateLabels, Gauge>,
    queued: Gauge,
    leader: Gauge,
    /// What was counted of, to be able to forget it.
    counted: Mutex<HashSet<Labels>>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::default();
        let passes = Family::default();
        let failed = Family::default();
        let successful = Family::default();
        let panics = Family::default();
        let durations = Family::new_with_constructor(durations as fn() -> Histogram);
        let (resources, unreadable) = (Family::default(), Family::default());
        let certificates = Family::default();
        let (queued, leader) = (Gauge::default(), Gauge::default());
        registry.register("strimzi_reconciliations", "Passes begun", passes.clone());
        registry.register(
            "strimzi_reconciliations_failed",
            "Passes that will be tried again",
            failed.clone(),
        );
        registry.register(
            "strimzi_reconciliations_successful",
            "Passes that did all they could",
            successful.clone(),
        );
        registry.register("karst_panics", "Passes that ended in an internal error", panics.clone());
        registry.register(
            "strimzi_reconciliations_duration_seconds",
            "How long passes take",
            durations.clone(),
        );
        registry.register("strimzi_resources", "Resources looked after", resources.clone());
        registry.register(
            "karst_unreadable_objects",
            "Objects that cannot be read, so that their clusters are left as they are",
            Family::<Labels, Gauge>::clone(&unreadable),
        );
        registry.register(
            "karst_certificate_expiry_seconds",
            "When the first certificate of a kind ends, in seconds since 1970",
            certificates.clone(),
        );
        registry.register("karst_queue_depth", "Work that waits to be done now", queued.clone());
        registry.register("karst_leader", "Whether this replica acts", leader.clone());
        let quorums = Quorums::default();
        quorums.register(&mut registry);
        Self {
            registry,
            passes,
            failed,
            successful,
            panics,
            durations,
            resources,
            unreadable,
            quorums,
            certificates,
            queued,
            leader,
            counted: Mutex::default(),
        }
    }

    /// Counts a piece of work.
    pub(crate) fn count(&self, work: &Work, outcome: &Outcome, took: Duration) {
        let labels = Labels::of(work);
        self.passes.get_or_create(&labels).inc();
        match outcome {
            Outcome::Done { .. } | Outcome::Changed { .. } => {
                self.successful.get_or_create(&labels).inc();
            }
            Outcome::Failed { .. } => {
                self.failed.get_or_create(&labels).inc();
            }
            Outcome::Panicked { .. } => {
                self.failed.get_or_create(&labels).inc();
                self.panics.get_or_create(&labels).inc();
            }
        }
        self.durations.get_or_create(&labels).observe(took.as_secs_f64());
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).insert(labels);
    }

    /// Forgets namespaces that have no clusters any more: they come and go, and their names never come back.
    pub(crate) fn forget_all_but(&self, namespaces: &HashSet<String>) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.retain(|labels| {
            let stays = namespaces.contains(&labels.namespace);
            if !stays {
                for counters in [&self.passes, &self.failed, &self.successful, &self.panics] {
                    counters.remove(labels);
                }
                self.durations.remove(labels);
            }
            stays
        });
    }

    /// How many passes like this one panicked.
    #[cfg(test)]
    pub(crate) fn panics(&self, like: &Work) -> u64 {
        self.panics.get_or_create(&Labels::of(like)).get()
    }

    /// The text that Prometheus reads.
    pub(crate) fn render(
        &self,
        index: &Index,
        queue: &Queue,
        leadership: &Arc<Leadership>,
        terms: &Terms,
    ) -> String {
        self.quorums.tell(terms);
        self.resources.clear();
        for (key, pools) in index.kafkas() {
            let of = |kind: &str| Labels { kind: kind.to_owned(), namespace: key.namespace.clone() };
            self.resources.get_or_create(&of("Kafka")).inc();
            self.resources
                .get_or_create(&of("KafkaNodePool"))
                .inc_by(i64::try_from(pools).unwrap_or_default());
        }
        self.unreadable.clear();
        for (namespace, kind) in index.unreadable() {
            self.unreadable.get_or_create(&Labels { kind, namespace }).inc();
        }
        self.certificates.clear();
        for (key, ends) in index.certificate_ends() {
            for (kind, end) in ends {
                let (namespace, cluster) = (key.namespace.clone(), key.name.clone());
                let labels = CertificateLabels { namespace, cluster, kind };
                self.certificates.get_or_create(&labels).set(end.as_second());
            }
        }
        self.queued.set(i64::try_from(queue.depth()).unwrap_or(i64::MAX));
        self.leader.set(i64::from(leadership.holds()));
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(error) => format!("# could not render the metrics: {error}\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use karst_core::names::ClusterKey;

    use super::*;

    #[test]
    fn a_namespace_without_clusters_leaves_nothing_behind() {
        let metrics = Metrics::new();
        let pass = |namespace: &str, outcome: &Outcome| {
            let key = ClusterKey { namespace: namespace.to_owned(), name: "c".to_owned() };
            let set = Work::PodSet { cluster: key.clone(), name: "c-brokers".to_owned() };
            for work in [Work::Cluster(key), set] {
                metrics.count(&work, outcome, Duration::from_millis(1));
            }
        };
        let outcomes = [
            Outcome::Done { look_again: None },
            Outcome::Failed { why: "x".to_owned() },
            Outcome::Panicked { why: "x".to_owned() },
        ];
        for outcome in &outcomes {
            pass("stays", outcome);
            pass("goes", outcome);
        }
        let text = || {
            let mut text = String::new();
            encode(&mut text, &metrics.registry).unwrap();
            text
        };
        assert!(text().contains("goes"));
        metrics.forget_all_but(&HashSet::from(["stays".to_owned()]));
        assert!(!text().contains("goes"), "{}", text());
        assert!(text().contains(r#"karst_panics_total{kind="Kafka",namespace="stays"} 1"#), "{}", text());
        assert!(metrics.counted.lock().unwrap().len() == 2);
    }
}
