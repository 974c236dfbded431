//! What running pods loaded when they started, by their annotations, and when that is no longer good enough.
//!
//! Kafka reads the certificate of a node once. A new one rides on whatever restart comes; a pod restarts for its sake alone
//! only when the old one is about to end, or when the authority's key is replaced, which needs every node to know.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use karst_certs::{Kind, Opening, Stored};

use super::inside::{self, HASH_DIGITS, Inside};
use super::{clock, settings, windows};
use crate::names::{
    CA_CERT_GENERATION_ANNOTATION, CA_KEY_GENERATION_ANNOTATION, CERTIFICATE_AUTHORITY_ANNOTATION,
    CERTIFICATE_END_ANNOTATION, CERTIFICATE_HASH_ANNOTATION, ClusterKey, PAUSE_ANNOTATION,
    TRUSTED_AUTHORITIES_ANNOTATION, trust_secret,
};
use crate::notice::Notice;
use crate::reason::Reason;
use crate::world::{PodView, SecretView, World};

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
    /// So soon that nothing else goes before it.
    #[error("the certificate that it started with ends at {0}, and nothing goes before that any more")]
    EndsSoon(Timestamp),
}

impl Stale {
    /// The reason of the event.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Trust => Reason::ClusterCaCertKeyReplaced,
            Self::Key => Reason::CaCertHasOldGeneration,
            Self::Ends(_) | Self::EndsSoon(_) => Reason::KafkaCertificatesChanged,
        }
    }
}

/// What a pod is to be annotated with when it starts now. These never enter its fingerprint.
pub(crate) fn annotations(world: &World, pod: &str) -> Vec<(String, String)> {
    let known = known(&world.key, &world.secrets, pod);
    known.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// The description of a pod that is made now, with what it starts with now. Its pod set may be of another day: while a resource cannot be
/// carried out it is not written, and a pod that said what its predecessor started with would restart for ever.
pub fn started_now(key: &ClusterKey, secrets: &Secrets, pod: &str, json: &Arc<str>) -> Arc<str> {
    let Ok(mut value) = serde_json::from_str::<serde_json::Value>(json) else { return Arc::clone(json) };
    let all = value.pointer_mut("/metadata/annotations").and_then(serde_json::Value::as_object_mut);
    let Some(all) = all else { return Arc::clone(json) };
    let before = all.clone();
    // Of a Secret that is not seen nothing is known.
    let is_given = secrets.get(&trust_secret(&key.name)).is_some_and(|trust| !trust.authorities().is_empty());
    let has_leaf = secrets.get(pod).is_some_and(|secret| secret.stored().is_some());
    for (annotation, known) in known(key, secrets, pod) {
        let is_seen = if OF_TRUST.contains(&annotation) { is_given } else { has_leaf };
        if let Some(known) = known {
            all.insert(annotation.to_owned(), known.into());
        } else if is_seen {
            all.remove(annotation);
        }
    }
    if *all == before { Arc::clone(json) } else { Arc::from(value.to_string()) }
}

/// Secrets by their names.
pub type Secrets = BTreeMap<String, Arc<SecretView>>;

/// What tells of the certificates that a pod trusts, and not of its own.
const OF_TRUST: [&str; 2] = [CA_CERT_GENERATION_ANNOTATION, TRUSTED_AUTHORITIES_ANNOTATION];

fn known(key: &ClusterKey, secrets: &Secrets, pod: &str) -> [(&'static str, Option<String>); 6] {
    let trust = secrets.get(&trust_secret(&key.name));
    let secret = secrets.get(pod);
    let certificate = secret.and_then(|secret| secret.stored()).map(Stored::certificate);
    let [trusted, signer] = inside::of_start(trust.map(|trust| &**trust), certificate);
    [
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
            certificate.map(|certificate| certificate.fingerprint().chars().take(HASH_DIGITS).collect()),
        ),
        (CERTIFICATE_END_ANNOTATION, certificate.map(|certificate| certificate.not_after.to_string())),
        (TRUSTED_AUTHORITIES_ANNOTATION, trusted),
        (CERTIFICATE_AUTHORITY_ANNOTATION, signer),
    ]
}

/// Why this pod has to restart for the sake of its certificates.
pub(crate) fn stale(world: &World, inside: &Inside<'_>, pod: &PodView) -> Option<Stale> {
    let secret = world.secrets.get(&pod.meta.name)?;
    if inside.has_to_learn(pod) || inside.is_cut_off(pod) {
        return Some(Stale::Trust);
    }
    if inside.shows_another(pod) {
        return Some(Stale::Key);
    }
    // Nobody knows what it shows: that matters while a key is replaced, which would wait for it for ever.
    let key = pod.meta.annotations.get(CA_KEY_GENERATION_ANNOTATION).map(String::as_str);
    let is_other_key = key != secret.annotation(CA_KEY_GENERATION_ANNOTATION);
    if inside.shown_by(pod).is_none() && is_other_key && (key.is_some() || is_replacing(world)) {
        return Some(Stale::Key);
    }
    let end = end(pod)?;
    let lasts_longer = secret.stored()?.certificate().not_after > end;
    lasts_longer.then(|| is_time(world, end)).flatten()
}

/// The same for a pod that restarts only when it must, and for the sake of nothing else: its certificate ends soon, or it keeps others
/// from theirs.
pub(crate) fn cannot_wait(world: &World, inside: &Inside<'_>, pod: &PodView) -> Option<Stale> {
    let is_due = |stale: &Stale| !matches!(stale, Stale::Ends(_));
    ends_soon(world, pod).or_else(|| stale(world, inside, pod).filter(is_due))
}

fn ends_soon(world: &World, pod: &PodView) -> Option<Stale> {
    let end = end(pod)?;
    let lasts_longer = world.secrets.get(&pod.meta.name)?.stored()?.certificate().not_after > end;
    let ends = lasts_longer.then(|| is_time(world, end)).flatten();
    ends.filter(|ends| matches!(ends, Stale::EndsSoon(_)))
}

/// That certificates which are in use end soon, and no newer ones are there: those that sign are about to end themselves, or are not
/// trusted by all. Told of the first.
pub(crate) fn unrenewed(world: &World) -> Option<Notice> {
    let lasts_longer = |pod: &PodView, end| {
        let stored = world.secrets.get(&pod.meta.name).and_then(|secret| secret.stored());
        stored.is_some_and(|stored| stored.certificate().not_after > end)
    };
    let ending = world.pods.values().filter(|pod| !pod.is_finished()).filter_map(|pod| {
        let end = end(pod).filter(|end| !lasts_longer(pod, *end))?;
        matches!(is_time(world, end)?, Stale::EndsSoon(_)).then_some((end, &pod.meta.name))
    });
    let (end, pod) = ending.min()?;
    let what = format!(
        "pod {pod} started with a certificate that ends at {end}, and there is no newer one; nobody accepts the pod afterwards. Other warnings say what keeps the CA from being renewed, or pods from trusting the new one: deal with those first"
    );
    Some(Notice::CertificateEnds { secret: pod.clone(), what })
}

/// That certificates which are in use end soon while nothing is renewed, as a user asked. Told of the first.
pub(crate) fn ending_while_paused(world: &World) -> Option<Notice> {
    if clock::doubt(world).is_some() {
        return None;
    }
    let ending = world.pods.values().filter(|pod| !pod.is_finished()).filter_map(|pod| {
        let end = end(pod)?;
        let days = settings(&world.kafka, Kind::Cluster).renewal_days;
        let third = SignedDuration::from_hours(24 * i64::from(days)) / 3;
        (world.now > end.saturating_sub(third).unwrap_or(end)).then_some((end, &pod.meta.name))
    });
    let (end, pod) = ending.min()?;
    let what = format!(
        "pod {pod} started with a certificate that ends at {end}, and nothing is renewed while the annotation {PAUSE_ANNOTATION} pauses the cluster; take it off in time: nobody accepts the pod afterwards"
    );
    Some(Notice::CertificateEnds { secret: pod.clone(), what })
}

/// Is the pod of no use before it restarts? Nobody accepts its certificate any more, or it accepts nobody's.
pub(crate) fn is_of_no_use(world: &World, inside: &Inside<'_>, pod: &PodView) -> bool {
    let has_ended = || end(pod).is_some_and(|end| world.now > end) && clock::doubt(world).is_none();
    !pod.has_ready_kafka() && (has_ended() || inside.is_cut_off(pod))
}

/// Has a node no certificate, so that it cannot start? It may have to wait until all others trust who signs it.
pub(crate) fn lacks_certificate(world: &World, pod: &str) -> bool {
    world.secrets.get(pod).is_none_or(|secret| secret.stored().is_none())
}

/// Does a node wait for the restarts of others, because only what they trust then signs its certificate?
pub(crate) fn waits_for_others(world: &World, pod: &str) -> bool {
    lacks_certificate(world, pod) && !world.pods.get(pod).is_some_and(|pod| pod.has_ready_kafka())
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
fn is_time(world: &World, end: Timestamp) -> Option<Stale> {
    if clock::doubt(world).is_some() {
        return None;
    }
    let days = settings(&world.kafka, Kind::Cluster).renewal_days;
    let renewal = SignedDuration::from_hours(24 * i64::from(days));
    let reached = |part: i32| world.now > end.saturating_sub(renewal / part).unwrap_or(end);
    if reached(6) {
        return Some(Stale::EndsSoon(end));
    }
    let is_open = || windows(&world.kafka).opening(world.now) == Opening::Open;
    (reached(3) && is_open()).then_some(Stale::Ends(end))
}
