//! Clusters of which something is there and cannot be read: they are left as they are, and people are told.
//!
//! What cannot be read counts as present. Whoever decided without it would take it for gone, and release or remove what hangs on it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;
use karst_api::{Condition, Kafka};
use karst_core::names::ClusterKey;
use karst_core::status;
use serde_json::json;

use crate::events::Events;
use crate::failure::Failure;
use crate::hands::Hands;
use crate::index::Snapshot;
use crate::refusals::Refusals;
use crate::watch::Unreadable;

/// How many of them are named.
const NAMED: usize = 3;
const LEFT: &str = "The cluster is left as it is until that is corrected.";

/// How many of those that hold nothing are told by an event. There may be thousands of them.
const STRAYS: usize = 20;
const HOLDS_NOTHING: &str = "By its name Karst did not make it, and nothing waits for it: take the label strimzi.io/cluster off it, or delete it.";

/// What cannot be read and was told, by cluster.
#[derive(Debug, Default)]
pub(crate) struct LeftAlone {
    holding: Refusals<String>,
    strays: Refusals<String>,
}

impl LeftAlone {
    /// Says what cannot be read, once. The next change of it brings us back.
    pub(crate) async fn tell(
        &self,
        hands: &Hands,
        events: &Events,
        key: &ClusterKey,
        snapshot: &Snapshot,
    ) -> Result<(), Failure> {
        publish(&self.holding, events, key, &snapshot.unreadable, LEFT).await;
        match say(hands, key, snapshot).await {
            Err(failure) if failure.is_refusal() => {
                tracing::warn!(cluster = %key, %failure, "its status does not say that something cannot be read");
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Everything of this cluster can be read, or nothing is left of it.
    pub(crate) fn ends(&self, key: &ClusterKey) {
        self.holding.forget_cluster(key);
    }

    /// Says once what cannot be read and holds nothing.
    pub(crate) async fn tell_strays(&self, events: &Events, key: &ClusterKey, snapshot: &Snapshot) {
        let some = snapshot.strays.get(..STRAYS).unwrap_or(&snapshot.strays);
        publish(&self.strays, events, key, some, HOLDS_NOTHING).await;
    }

    /// The cluster is gone.
    pub(crate) fn forget(&self, key: &ClusterKey) {
        self.holding.forget_cluster(key);
        self.strays.forget_cluster(key);
    }
}

/// Tells of each that was not told of yet, and forgets those that can be read again.
async fn publish(
    told: &Refusals<String>,
    events: &Events,
    key: &ClusterKey,
    found: &[Arc<Unreadable>],
    what_next: &str,
) {
    let mut readable_again = told.of(key);
    for one in found {
        let note = format!("{} {what_next}", sentence(one));
        readable_again.remove(&describe(one));
        if told.set(key, &describe(one), Some(note.clone())) {
            events.unreadable(&reference(one), &note).await;
        }
    }
    readable_again.keys().for_each(|name| told.forget(key, name));
}

/// What the status says of those that hold nothing.
pub(crate) fn strays(snapshot: &Snapshot) -> Vec<String> {
    let words = |one: &Arc<Unreadable>| format!("{} cannot be read: {}", describe(one), one.why);
    let mut told: Vec<_> = snapshot.strays.iter().take(NAMED).map(words).collect();
    let more = snapshot.strays.len().saturating_sub(NAMED);
    told.extend((more > 0).then(|| format!("and {more} more")));
    told
}

/// Writes it into the status of the `Kafka` resource, readable or not, unless that says so already.
async fn say(hands: &Hands, key: &ClusterKey, snapshot: &Snapshot) -> Result<(), Failure> {
    let message = message(snapshot);
    let news = |said: Option<&Vec<Condition>>| status::unreadable(said, &message, Timestamp::now());
    if let Some(kafka) = &snapshot.kafka {
        let said = kafka.status.as_ref().and_then(|status| status.conditions.as_ref());
        let Some(conditions) = news(said) else { return Ok(()) };
        let patch = json!({ "status": { "conditions": conditions } });
        return hands.write_status::<Kafka>(key, &key.name, kafka.metadata.uid.as_deref(), &patch).await;
    }
    let Some(kafka) = snapshot.unreadable.iter().find(|one| one.kind == "Kafka") else { return Ok(()) };
    let Some(conditions) = news(kafka.conditions.as_ref()) else { return Ok(()) };
    hands.write_conditions(key, &kafka.meta, &conditions).await
}

fn message(snapshot: &Snapshot) -> String {
    let named = snapshot.unreadable.iter().take(NAMED).map(|one| sentence(one));
    format!("{} {LEFT}", named.collect::<Vec<_>>().join(" "))
}

/// What is said of pools that cannot be read, if nothing but pools cannot be read.
pub(crate) fn of_pools(snapshot: &Snapshot) -> Option<String> {
    let mut found = snapshot.unreadable.iter().peekable();
    let is_some = found.peek().is_some();
    (is_some && found.all(|one| one.kind == "KafkaNodePool")).then(|| message(snapshot))
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

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::Value;

    use super::*;
    use crate::hands::tests::{NAMESPACE, Server, kafka};
    use crate::index::Feed;
    use crate::watch::Event;

    fn key() -> ClusterKey {
        ClusterKey { namespace: NAMESPACE.to_owned(), name: "c".to_owned() }
    }

    fn status_path() -> String {
        format!("/apis/kafka.strimzi.io/v1/namespaces/{NAMESPACE}/kafkas/c/status")
    }

    fn unreadable(version: &str, conditions: Option<Vec<Condition>>) -> Unreadable {
        let meta = ObjectMeta {
            namespace: Some(NAMESPACE.to_owned()),
            name: Some("c".to_owned()),
            uid: Some("uid-kafka".to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        };
        let (kind, api_version) = ("Kafka".to_owned(), "kafka.strimzi.io/v1".to_owned());
        Unreadable { kind, api_version, meta, conditions, why: "spec.kafka: nested too deeply".to_owned() }
    }

    /// A server with a Kafka resource, and somebody who heard of it that it cannot be read.
    fn server() -> (Server, Hands, Events) {
        let mut live = serde_json::to_value(kafka(&json!({}))).unwrap();
        live["metadata"]["resourceVersion"] = json!("7");
        let server = Server::with(&status_path(), live);
        let hands = server.hands();
        let events = Events::new(hands.client.clone(), None, Arc::clone(&hands.leadership));
        (server, hands, events)
    }

    fn hear(hands: &Hands, version: &str, conditions: Option<Vec<Condition>>) -> Snapshot {
        let event = Event::Applied(Err(unreadable(version, conditions)));
        Feed::new(None).take::<Kafka>(&hands.index, event);
        hands.index.snapshot(&key())
    }

    #[tokio::test]
    async fn a_kafka_that_cannot_be_read_counts_as_present_and_says_so_once() {
        let (server, hands, events) = server();
        let left = LeftAlone::default();
        let snapshot = hear(&hands, "7", None);
        assert!(snapshot.kafka.is_none() && hands.index.has_kafka(&key()));
        left.tell(&hands, &events, &key(), &snapshot).await.unwrap();
        let written = server.written();
        assert!(written[0].starts_with("POST /apis/events.k8s.io/"), "{written:?}");
        assert_eq!(written[1..], [format!("PATCH {}", status_path())]);
        let patch = server.last_written();
        let said: Vec<Condition> = serde_json::from_value(patch["status"]["conditions"].clone()).unwrap();
        assert_eq!(patch["metadata"], json!({"uid": "uid-kafka", "resourceVersion": "7"}));
        assert_eq!(patch["status"].as_object().map(serde_json::Map::len), Some(1), "nothing else is touched");
        assert_eq!(
            said[0].message.as_deref(),
            Some(
                "Kafka c cannot be read: spec.kafka: nested too deeply. The cluster is left as it is until that is corrected."
            )
        );

        let snapshot = hear(&hands, "8", Some(said));
        left.tell(&hands, &events, &key(), &snapshot).await.unwrap();
        assert_eq!(server.written().len(), 2, "it is silent now");
    }

    fn labelled<K>(kind: &str, name: &str) -> Event<K> {
        let labels = [("strimzi.io/cluster".to_owned(), "c".to_owned())];
        let one = unreadable("7", None);
        let meta = ObjectMeta { name: Some(name.to_owned()), labels: Some(labels.into()), ..one.meta };
        Event::Applied(Err(Unreadable { kind: kind.to_owned(), meta, ..one }))
    }

    #[tokio::test]
    async fn what_has_no_name_of_karsts_is_told_once_and_holds_nothing() {
        let (server, hands, events) = server();
        let mut kafka = kafka(&json!({}));
        kafka.metadata.resource_version = Some("7".to_owned());
        hands.learn(kafka);
        Feed::new(None).take::<crate::views::SecretWire>(&hands.index, labelled("Secret", "junk"));
        Feed::new(None).take::<karst_api::StrimziPodSet>(&hands.index, labelled("StrimziPodSet", "junk"));
        Feed::new(None).take::<crate::views::PodWire>(&hands.index, labelled("Pod", "junk"));
        let snapshot = hands.index.snapshot(&key());
        assert!(snapshot.unreadable.is_empty() && snapshot.kafka.is_some());
        assert_eq!(hands.index.unreadable().len(), 3, "the metric counts them");
        let said = strays(&snapshot);
        assert_eq!(said[1], "Pod junk cannot be read: spec.kafka: nested too deeply");
        let left = LeftAlone::default();
        for _ in 0..2 {
            left.tell_strays(&events, &key(), &snapshot).await;
            left.ends(&key());
        }
        let written = server.written();
        assert_eq!(written.len(), 3, "{written:?}");
        assert!(server.last_written()["note"].as_str().unwrap().ends_with(HOLDS_NOTHING));

        // What Karst makes counts as there.
        Feed::new(None).take::<crate::views::SecretWire>(&hands.index, labelled("Secret", "c-cluster-ca"));
        let snapshot = hands.index.snapshot(&key());
        assert_eq!((snapshot.unreadable.len(), snapshot.strays.len()), (1, 3));
    }

    #[tokio::test]
    async fn a_pool_that_cannot_be_read_is_told_by_its_kafka() {
        let (server, hands, events) = server();
        let mut kafka = kafka(&json!({}));
        kafka.metadata.resource_version = Some("7".to_owned());
        hands.learn(kafka);
        let mut snapshot = hands.index.snapshot(&key());
        let pool = Unreadable { kind: "KafkaNodePool".to_owned(), ..unreadable("7", None) };
        snapshot.unreadable.push(std::sync::Arc::new(pool));
        LeftAlone::default().tell(&hands, &events, &key(), &snapshot).await.unwrap();
        let patch: Value = server.last_written();
        let message = patch["status"]["conditions"][0]["message"].as_str().unwrap();
        assert!(message.starts_with("KafkaNodePool c cannot be read: "), "{message}");
        // The decision says the same.
        assert_eq!(of_pools(&snapshot).as_deref(), Some(message));

        // Without a Secret nothing is decided at all: it would be taken for gone.
        let secret = Unreadable { kind: "Secret".to_owned(), ..unreadable("7", None) };
        snapshot.unreadable.push(std::sync::Arc::new(secret));
        assert_eq!(of_pools(&snapshot), None);
        snapshot.unreadable.clear();
        assert_eq!(of_pools(&snapshot), None);
    }
}
