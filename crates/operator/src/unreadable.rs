//! Clusters of which something is there and cannot be read: they are left as they are, and people are told.
//!
//! What cannot be read counts as present. Whoever decided without it would take it for gone, and release or remove what hangs on it.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use karst_api::{Condition, Kafka};
use karst_core::names::ClusterKey;
use karst_core::status;
use serde_json::json;

use crate::failure::Failure;
use crate::index::Snapshot;
use crate::pass::Passes;
use crate::queue::Outcome;
use crate::watch::Unreadable;

/// How many of them are named.
const NAMED: usize = 3;

impl Passes {
    /// Says what cannot be read. The next change of it brings us back.
    pub(crate) async fn leave_alone(&self, key: &ClusterKey, snapshot: &Snapshot) -> Outcome {
        self.tell_unreadable(key, snapshot).await;
        let named = snapshot.unreadable.iter().take(NAMED).map(|one| sentence(one));
        let message = format!(
            "{} The cluster is left as it is until that is corrected.",
            named.collect::<Vec<_>>().join(" ")
        );
        match self.say(key, snapshot, &message).await {
            Err(failure) if failure.is_refusal() => {
                tracing::warn!(cluster = %key, %failure, "its status does not say that something cannot be read");
                Outcome::Done { look_again: None }
            }
            Err(failure) => self.failed(key, &[failure]),
            Ok(()) => Outcome::Done { look_again: None },
        }
    }

    async fn tell_unreadable(&self, key: &ClusterKey, snapshot: &Snapshot) {
        let mut readable_again = self.unreadable.of(key);
        for one in &snapshot.unreadable {
            let note = format!("{} The cluster is left as it is until that is corrected.", sentence(one));
            readable_again.remove(&describe(one));
            if self.unreadable.set(key, &describe(one), Some(note.clone())) {
                self.events.unreadable(&reference(one), &note).await;
            }
        }
        for name in readable_again.keys() {
            self.unreadable.forget(key, name);
        }
    }

    async fn say(&self, key: &ClusterKey, snapshot: &Snapshot, message: &str) -> Result<(), Failure> {
        let news = |said: Option<&Vec<Condition>>| status::unreadable(said, message, Timestamp::now());
        if let Some(kafka) = &snapshot.kafka {
            let said = kafka.status.as_ref().and_then(|status| status.conditions.as_ref());
            let Some(conditions) = news(said) else { return Ok(()) };
            let patch = json!({ "status": { "conditions": conditions } });
            let uid = kafka.metadata.uid.as_deref();
            return self.hands.write_status::<Kafka>(key, &key.name, uid, &patch).await;
        }
        let Some(kafka) = snapshot.unreadable.iter().find(|one| one.kind == "Kafka") else { return Ok(()) };
        let Some(conditions) = news(kafka.conditions.as_ref()) else { return Ok(()) };
        self.hands.write_conditions(key, &kafka.meta, &conditions).await
    }
}

fn describe(one: &Unreadable) -> String {
    format!("{} {}", one.kind, one.meta.name.as_deref().unwrap_or_default())
}

fn sentence(one: &Unreadable) -> String {
    format!("{} cannot be read: {}.", describe(one), one.why)
}

fn reference(one: &Unreadable) -> ObjectReference {
    ObjectReference {
        api_version: Some(one.api_version.clone()),
        kind: Some(one.kind.clone()),
        name: one.meta.name.clone(),
        namespace: one.meta.namespace.clone(),
        uid: one.meta.uid.clone(),
        ..ObjectReference::default()
    }
}
