//! Kubernetes events: what happened to a cluster, in the same words as the log and the conditions.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use karst_api::Condition;
use karst_core::certificates::Issue;
use karst_core::names::ClusterKey;
use karst_core::plan::Deed;
use karst_core::reason::Reason;
use karst_core::rolling::Restart;
use kube::Client;

use crate::lease::Leadership;
use crate::recorder::{Recorder, Weight};

/// How long an event may take. It is worth less than what waits for it.
const DEADLINE: Duration = Duration::from_secs(5);

/// Publishes events. A failure to publish is logged and otherwise ignored.
#[derive(Clone)]
pub(crate) struct Events {
    recorder: Recorder,
    leadership: Arc<Leadership>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    /// Events of this process.
    pub(crate) fn new(client: Client, identity: Option<String>, leadership: Arc<Leadership>) -> Self {
        Self { recorder: Recorder::new(client, identity), leadership }
    }

    /// The cluster got its identity.
    pub(crate) async fn cluster_formed(&self, kafka: &ObjectReference) {
        let note = "The cluster has its id and its initial controllers; its nodes are created now.";
        self.publish(kafka, Weight::Normal, Reason::ClusterFormed, note).await;
    }

    /// A pod was restarted.
    pub(crate) async fn restarted(&self, key: &ClusterKey, kafka: &ObjectReference, restart: &Restart) {
        for cause in &restart.causes {
            let note = format!("Pod {} restarts: {cause}", restart.pod);
            tracing::info!(cluster = %key, "{note}");
            self.publish(kafka, Weight::Normal, cause.reason(), &note).await;
        }
        if let Some(partitions) = &restart.exposed {
            let note = format!(
                "While pod {} restarts, these partitions take no writes, because they have no replica in sync to spare: {partitions}",
                restart.pod
            );
            tracing::warn!(cluster = %key, "{note}");
            self.publish(kafka, Weight::Warning, Reason::PartitionsUnprotected, &note).await;
        }
        if let Some(left) = &restart.leaderless {
            let note = format!("While pod {} restarts, {left}", restart.pod);
            tracing::warn!(cluster = %key, "{note}");
            self.publish(kafka, Weight::Warning, Reason::QuorumUnprotected, &note).await;
        }
    }

    /// An authority changed, after the cluster was made.
    pub(crate) async fn certificates(&self, key: &ClusterKey, kafka: &ObjectReference, issue: &Issue) {
        tracing::info!(cluster = %key, "{issue}");
        self.publish(kafka, Weight::Normal, Reason::CertificateAuthorityChanged, &issue.to_string()).await;
    }

    /// Kafka did what it was asked to do.
    pub(crate) async fn done(&self, key: &ClusterKey, kafka: &ObjectReference, deed: &Deed) {
        let (reason, note) = match deed {
            Deed::Change(change) => (change.reason(), change.to_string()),
            Deed::Unregister(node) => {
                (Reason::BrokerUnregistered, format!("broker {node} is gone and was unregistered"))
            }
            Deed::Metadata(change) => {
                (Reason::MetadataVersionChanged, format!("the metadata version is {} now", change.name))
            }
            Deed::Configure(change) => (Reason::SettingChanged, format!("{change}: done")),
        };
        tracing::info!(cluster = %key, "{note}");
        self.publish(kafka, Weight::Normal, reason, &note).await;
    }

    /// An annotation holds no longer. A tool that puts it back each time is to be noticed: what it allows is allowed again.
    pub(crate) async fn annotation_removed(
        &self,
        key: &ClusterKey,
        kafka: &ObjectReference,
        annotation: &str,
    ) {
        let note = format!(
            "Annotation {annotation} has nothing left to do, and was removed. If something puts it back, take it out of that tool's manifests."
        );
        tracing::info!(cluster = %key, "{note}");
        self.publish(kafka, Weight::Normal, Reason::AnnotationRemoved, &note).await;
    }

    /// Something of a cluster cannot be read.
    pub(crate) async fn unreadable(&self, object: &ObjectReference, note: &str) {
        self.publish(object, Weight::Warning, Reason::Unreadable, note).await;
    }

    /// A pool waits for an operator that looks after its cluster, and this is none.
    pub(crate) async fn not_ours(&self, key: &ClusterKey, pool: &ObjectReference, note: &str) {
        tracing::warn!(cluster = %key, "{note}");
        self.publish(pool, Weight::Warning, Reason::KafkaNotSelected, note).await;
    }

    /// A condition is new.
    pub(crate) async fn condition(
        &self,
        key: &ClusterKey,
        resource: &ObjectReference,
        condition: &Condition,
        refused: bool,
    ) {
        let kind = condition.type_.as_deref().unwrap_or_default();
        let holds = condition.status.as_deref() == Some("True");
        let reason = condition.reason.as_deref().unwrap_or(kind);
        let message = condition.message.as_deref().unwrap_or_default();
        match (kind, holds) {
            ("Ready", true) if condition.reason.is_some() => {
                tracing::debug!(cluster = %key, resource = resource.name, reason, "{message}");
            }
            ("Ready", true) => {
                tracing::info!(cluster = %key, resource = resource.name, "ready");
                self.publish(resource, Weight::Normal, Reason::Ready, "All nodes are ready.").await;
            }
            ("Ready", false) if refused => {
                tracing::warn!(cluster = %key, reason, "{message}");
                self.publish_as(resource, Weight::Warning, reason, message).await;
            }
            ("Ready", false) => tracing::info!(cluster = %key, reason, "{message}"),
            ("Warning", _) => {
                tracing::warn!(cluster = %key, reason, "{message}");
                self.publish_as(resource, Weight::Warning, reason, message).await;
            }
            ("ReconciliationPaused", _) => tracing::info!(cluster = %key, "paused"),
            _ => {}
        }
    }

    async fn publish(&self, resource: &ObjectReference, weight: Weight, reason: Reason, note: &str) {
        self.publish_as(resource, weight, reason.as_str(), note).await;
    }

    async fn publish_as(&self, resource: &ObjectReference, weight: Weight, reason: &str, note: &str) {
        let Some(time) = self.leadership.time_for(DEADLINE) else { return };
        match tokio::time::timeout(time, self.recorder.publish(resource, weight, reason, note)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, reason, "could not publish an event"),
            Err(_) => tracing::warn!(reason, "could not publish an event: no answer from the API server"),
        }
    }
}
