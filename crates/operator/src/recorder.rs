//! Writes Kubernetes events, each with its own words.
//!
//! The recorder of `kube` counts events of one reason about one object as one, and keeps only what the first of them said: of
//! three pods that restart, people would read about one. Here only what says the same again is counted.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, PoisonError};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

/// What is said again within this time is the same event. Kubernetes' own components take as long.
const SERIES: SignedDuration = SignedDuration::from_mins(6);
/// The longest note that Kubernetes takes.
const LONGEST_NOTE: usize = 1000;
const CONTROLLER: &str = "karst.io/operator";

/// Writes events in the name of one process.
#[derive(Clone)]
pub(crate) struct Recorder {
    client: Client,
    instance: String,
    written: Arc<std::sync::Mutex<HashMap<u64, Written>>>,
}

/// An event that may be said again.
#[derive(Debug, Clone)]
struct Written {
    name: String,
    count: i32,
    last: Timestamp,
}

/// Whether people should worry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Weight {
    Normal,
    Warning,
}

impl Recorder {
    pub(crate) fn new(client: Client, identity: Option<String>) -> Self {
        let instance = identity.unwrap_or_else(|| CONTROLLER.to_owned());
        Self { client, instance, written: Arc::default() }
    }

    pub(crate) async fn publish(
        &self,
        about: &ObjectReference,
        weight: Weight,
        reason: &str,
        note: &str,
    ) -> kube::Result<()> {
        let (now, note) = (Timestamp::now(), shortened(note));
        let key = key(about, weight, reason, note);
        let event = self.written_before(key, now);
        let api: Api<Event> =
            Api::namespaced(self.client.clone(), about.namespace.as_deref().unwrap_or("default"));
        let written = match event {
            Some(before) => {
                let series = EventSeries { count: before.count + 1, last_observed_time: MicroTime(now) };
                let patch = Patch::Merge(json!({ "series": series }));
                api.patch(&before.name, &PatchParams::default(), &patch).await?;
                Written { count: series.count, last: now, ..before }
            }
            None => {
                let event = self.event(about, weight, reason, note, now);
                let name = event.metadata.name.clone().unwrap_or_default();
                api.create(&PostParams::default(), &event).await?;
                Written { name, count: 1, last: now }
            }
        };
        self.lock().insert(key, written);
        Ok(())
    }

    /// Forgets what is too old to be said again.
    fn written_before(&self, key: u64, now: Timestamp) -> Option<Written> {
        let mut written = self.lock();
        written.retain(|_, one| now.duration_since(one.last) < SERIES);
        written.get(&key).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Written>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn event(
        &self,
        about: &ObjectReference,
        weight: Weight,
        reason: &str,
        note: &str,
        now: Timestamp,
    ) -> Event {
        let name = about.name.as_deref().unwrap_or(CONTROLLER);
        Event {
            action: Some("Reconcile".to_owned()),
            event_time: Some(MicroTime(now)),
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                namespace: about.namespace.clone(),
                ..ObjectMeta::default()
            },
            note: Some(note.to_owned()),
            reason: Some(reason.to_owned()),
            regarding: Some(about.clone()),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(format!("{weight:?}")),
            ..Event::default()
        }
    }
}

fn shortened(note: &str) -> &str {
    let end = (0..=LONGEST_NOTE.min(note.len())).rev().find(|end| note.is_char_boundary(*end));
    &note[..end.unwrap_or_default()]
}

/// What makes an event the same as another.
fn key(about: &ObjectReference, weight: Weight, reason: &str, note: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&about.namespace, &about.name, &about.kind, &about.uid, weight, reason, note).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http_body_util::{BodyExt, Full};
    use hyper::body::Bytes;
    use hyper::{Method, Request, Response};
    use kube::client::Body;
    use tower::service_fn;

    use super::*;

    type Sent = Arc<Mutex<Vec<(Method, serde_json::Value)>>>;

    /// An API server that takes everything, and what was sent to it.
    fn recorder() -> (Recorder, Sent) {
        let sent = Sent::default();
        let heard = Arc::clone(&sent);
        let service = service_fn(move |request: Request<Body>| {
            let heard = Arc::clone(&heard);
            async move {
                let method = request.method().clone();
                let body = request.into_body().collect().await?.to_bytes();
                heard.lock().unwrap().push((method, serde_json::from_slice(&body).unwrap()));
                let answer = serde_json::to_vec(&Event::default()).unwrap();
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Response::new(Full::new(Bytes::from(
                    answer,
                ))))
            }
        });
        (Recorder::new(Client::new(service, "default"), None), sent)
    }

    fn kafka() -> ObjectReference {
        ObjectReference {
            kind: Some("Kafka".to_owned()),
            name: Some("my-cluster".to_owned()),
            namespace: Some("ns".to_owned()),
            ..ObjectReference::default()
        }
    }

    #[tokio::test]
    async fn events_of_one_reason_are_all_told_and_the_same_one_is_counted() {
        let (recorder, sent) = recorder();
        for note in ["Pod 0 restarts", "Pod 1 restarts", "Pod 0 restarts"] {
            recorder.publish(&kafka(), Weight::Normal, "ConfigChanged", note).await.unwrap();
        }
        let sent = sent.lock().unwrap();
        let notes: Vec<_> = sent[..2].iter().map(|(_, event)| event["note"].as_str().unwrap()).collect();
        assert_eq!(notes, ["Pod 0 restarts", "Pod 1 restarts"]);
        assert_eq!(sent[2].0, Method::PATCH);
        assert_eq!(sent[2].1["series"]["count"], 2);
    }

    #[test]
    fn a_note_is_cut_between_letters() {
        let note = format!("{}ä", "x".repeat(LONGEST_NOTE - 1));
        assert_eq!(shortened(&note).len(), LONGEST_NOTE - 1);
        assert_eq!(shortened("short"), "short");
    }
}
