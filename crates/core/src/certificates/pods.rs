//! What running pods loaded when they started, by their annotations, and when that is no longer good enough.
//!
//! Kafka reads the certificate of a node once. A new one rides on whatever restart comes; a pod restarts for its sake alone
//! only when the old one is about to end, or when the authority's key is replaced, which needs every node to know.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use karst_certs::{Kind, Nodes, Opening, Stored};

use super::{settings, windows};
use crate::names::{
    CA_CERT_GENERATION_ANNOTATION, CA_KEY_GENERATION_ANNOTATION, CERTIFICATE_END_ANNOTATION,
    CERTIFICATE_HASH_ANNOTATION, trust_secret,
};
use crate::world::{PodView, World};

/// Why the certificates that a pod started with make a restart necessary.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stale {
    /// The key of the authority is being replaced, and it does not trust the new one yet.
    #[error("it does not trust the new key of the cluster's certificate authority yet")]
    Trust,
    /// The key of the authority was replaced, and its certificate is of the old one.
    #[error("its certificate is signed with the old key of the cluster's certificate authority")]
    Key,
    /// Its certificate is about to end.
    #[error("the certificate that it started with ends at {0}")]
    Ends(Timestamp),
}

impl Stale {
    /// The reason of the event.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Trust => "ClusterCaCertKeyReplaced",
            Self::Key => "CaCertHasOldGeneration",
            Self::Ends(_) => "KafkaCertificatesChanged",
        }
    }
}

/// What a pod is to be annotated with when it starts now. These never enter its fingerprint.
pub(crate) fn annotations(world: &World, pod: &str) -> Vec<(String, String)> {
    let trust = world.secrets.get(&trust_secret(&world.key.name));
    let secret = world.secrets.get(pod);
    let certificate = secret.and_then(|secret| secret.stored()).map(Stored::certificate);
    let values = [
        (
            CA_CERT_GENERATION_ANNOTATION,
            trust.and_then(|trust| trust.annotation(CA_CERT_GENERATION_ANNOTATION)).map(str::to_owned),
        ),
        (
            CA_KEY_GENERATION_ANNOTATION,
            secret.and_then(|secret| secret.annotation(CA_KEY_GENERATION_ANNOTATION)).map(str::to_owned),
        ),
        (
            CERTIFICATE_HASH_ANNOTATION,
            certificate.map(|certificate| certificate.fingerprint().chars().take(8).collect()),
        ),
        (CERTIFICATE_END_ANNOTATION, certificate.map(|certificate| certificate.not_after.to_string())),
    ];
    values.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// What all running nodes loaded.
pub(super) fn nodes(world: &World, cert_generation: u64, key_generation: u64) -> Nodes {
    let running: Vec<_> = world.pods.values().filter(|pod| !pod.is_finished()).collect();
    if running.is_empty() {
        return Nodes::NONE;
    }
    let all = |annotation: &str, generation: u64| {
        let generation = generation.to_string();
        running.iter().all(|pod| pod.meta.annotations.get(annotation) == Some(&generation))
    };
    Nodes {
        all_trust_newest: all(CA_CERT_GENERATION_ANNOTATION, cert_generation),
        all_present_newest: all(CA_KEY_GENERATION_ANNOTATION, key_generation),
    }
}

/// Why this pod has to restart for the sake of its certificates. One without annotations may have loaded anything: that matters while a
/// key is replaced, which would wait for it for ever.
pub(crate) fn stale(world: &World, pod: &PodView) -> Option<Stale> {
    let secret = world.secrets.get(&pod.meta.name)?;
    let trust = world.secrets.get(&trust_secret(&world.key.name))?;
    let loaded = |annotation: &str| pod.meta.annotations.get(annotation).map(String::as_str);
    if loaded(CA_CERT_GENERATION_ANNOTATION) != trust.annotation(CA_CERT_GENERATION_ANNOTATION)
        && is_replacing(world)
    {
        return Some(Stale::Trust);
    }
    let key = loaded(CA_KEY_GENERATION_ANNOTATION);
    if key != secret.annotation(CA_KEY_GENERATION_ANNOTATION) && (key.is_some() || is_replacing(world)) {
        return Some(Stale::Key);
    }
    let end = end(pod)?;
    let lasts_longer = secret.stored()?.certificate().not_after > end;
    (lasts_longer && is_time(world, end)).then_some(Stale::Ends(end))
}

/// Does the pod run with a certificate that nobody accepts any more, and is of no use for it?
pub(crate) fn has_ended(world: &World, pod: &PodView) -> bool {
    !pod.ready && end(pod).is_some_and(|end| world.now > end)
}

fn end(pod: &PodView) -> Option<Timestamp> {
    pod.meta.annotations.get(CERTIFICATE_END_ANNOTATION)?.parse().ok()
}

/// Are an old and a new key of the authority in use at once?
fn is_replacing(world: &World) -> bool {
    let cluster = &world.key.name;
    let secrets = [Kind::Cluster.cert_secret(cluster), Kind::Cluster.key_secret(cluster)];
    let entries = secrets.iter().filter_map(|name| world.secrets.get(name)?.material());
    entries
        .flat_map(|material| material.secret.data.keys())
        .any(|entry| entry == "ca-old.key" || (entry.starts_with("ca-") && entry.ends_with(".crt")))
}

/// The last third of the days that a renewal has is for restarts in a maintenance window; the last sixth is for restarts.
fn is_time(world: &World, end: Timestamp) -> bool {
    let days = settings(&world.kafka, Kind::Cluster).renewal_days;
    let renewal = SignedDuration::from_hours(24 * i64::from(days));
    let reached = |part: i32| world.now > end.saturating_sub(renewal / part).unwrap_or(end);
    reached(6) || reached(3) && windows(&world.kafka).opening(world.now) == Opening::Open
}
