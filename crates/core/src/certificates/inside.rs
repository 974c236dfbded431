//! Whom those inside a cluster trust, and whose certificates they show: by what certificates are, and not by how they are counted.
//!
//! The Secrets of an authority may be deleted, overwritten, or edited in halves at any time. What a pod started with is in its
//! annotations, and the certificates of all authorities that somebody relies on are in the Secret by which nodes trust.
//! From these two it follows who may be shown a certificate of which authority, whatever became of the other Secrets.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use karst_certs::{Certificate, Kind, Stored};

use super::operator;
use crate::names::{
    CA_CERT_GENERATION_ANNOTATION, CA_KEY_GENERATION_ANNOTATION, CERTIFICATE_AUTHORITY_ANNOTATION,
    CERTIFICATE_HASH_ANNOTATION, TRUSTED_AUTHORITIES_ANNOTATION, operator_secret, trust_secret,
};
use crate::world::{PodView, SecretView, World};

/// What the annotation of a pod says of a certificate: so many digits of its fingerprint.
pub(super) const HASH_DIGITS: usize = 8;

/// What is known of trust inside a cluster.
pub(crate) struct Inside<'a> {
    world: &'a World,
    running: Vec<&'a PodView>,
    /// What nodes that start now trust.
    given: BTreeSet<String>,
    /// The newest authority, by its certificate in the Secret.
    newest: Option<String>,
    /// Every certificate of an authority that can be found.
    known: Vec<Certificate>,
    /// Of these, what nodes were given to trust, and what was found only because something is signed with it.
    reliable: Vec<Certificate>,
}

impl<'a> Inside<'a> {
    /// Looks at Secrets and pods.
    pub(crate) fn of(world: &'a World) -> Self {
        let cluster = &world.key.name;
        let trust = world.secrets.get(&trust_secret(cluster));
        let mut reliable: Vec<_> = trust.map(|trust| trust.authorities().to_vec()).unwrap_or_default();
        let given = reliable.iter().map(Certificate::authority_id).collect();
        let published = published(world);
        let newest = published.first().map(Certificate::authority_id);
        let mut known = [reliable.clone(), published].concat();
        let found = lost_and_found(world, &known);
        known.extend(found.iter().cloned());
        reliable.extend(found);
        let running = world.pods.values().filter(|pod| !pod.is_finished()).map(|pod| &**pod).collect();
        Self { world, running, given, newest, known, reliable }
    }

    /// The certificates of authorities without which somebody who runs would not be trusted, or could not be once it restarts.
    ///
    /// Until nodes are given the newest one, those are among them that anybody who runs trusts: the key that was to sign next may be
    /// deleted in the moment in which nobody shows it yet, and whoever has not heard of that goes on to sign with it. What somebody else
    /// put among what nodes are given is trusted by nobody who runs, and goes.
    pub(super) fn relied_on(&self) -> Vec<Certificate> {
        if self.running.is_empty() {
            return Vec::new();
        }
        let mut used: BTreeSet<String> =
            leaves(self.world).filter_map(|leaf| self.signer(leaf.certificate())).collect();
        let shown: Vec<_> = self.running.iter().map(|pod| self.shown_by(pod)).collect();
        // Who shows nobody knows what may show anything.
        let is_unknown = shown.iter().any(Option::is_none);
        used.extend(shown.into_iter().flatten());
        // Nobody can sign with an older one any more where all are over it.
        let are_over_it = |newest: &String| self.all_trust(newest) && self.all_show(newest);
        let awaits_newest =
            self.newest.as_ref().is_none_or(|newest| !self.given.contains(newest) && !are_over_it(newest));
        let is_used = |one: &&Certificate| {
            let id = one.authority_id();
            is_unknown || used.contains(&id) || awaits_newest && self.who_trusts(&id) > 0
        };
        self.reliable.iter().filter(is_used).cloned().collect()
    }

    /// Does nothing run?
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Does everything that runs trust this authority?
    pub(super) fn all_trust(&self, authority: &str) -> bool {
        self.running.iter().all(|pod| self.trusts(pod, authority))
    }

    /// The pods that do not trust it.
    pub(super) fn who_does_not_trust(&self, authority: &str) -> Vec<String> {
        let running = self.running.iter().filter(|pod| !self.trusts(pod, authority));
        running.map(|pod| pod.meta.name.clone()).collect()
    }

    /// Does everybody show, now and after a restart, what this authority signed?
    pub(super) fn all_show(&self, authority: &str) -> bool {
        let is_it = |shown: Option<String>| shown.as_deref() == Some(authority);
        self.running.iter().all(|pod| is_it(self.shown_by(pod)))
            && leaves(self.world).all(|leaf| is_it(self.signer(leaf.certificate())))
    }

    /// May this one get a certificate of an authority that not all trust yet? Only one that has none of use and could not start
    /// again without; and only when all others trust it, one after the other: by its new certificate a node is cut off until
    /// it restarts.
    pub(super) fn may_get_its_first(&self, secret: &str, authority: &str) -> bool {
        let has_one = |pod: &&PodView| self.signer_for(&pod.meta.name).is_some();
        let (with, without): (Vec<&PodView>, Vec<&PodView>) = self.running.iter().copied().partition(has_one);
        let next = without.iter().find(|pod| !self.trusts(pod, authority));
        let is_next = || next.is_none_or(|pod| pod.meta.name == secret);
        self.signer_for(secret).is_none()
            && self.lost().is_empty()
            && with.iter().all(|pod| self.trusts(pod, authority))
            && (secret == operator_secret(&self.world.key.name) || is_next())
    }

    /// Does anybody who runs accept the operator's own certificate?
    pub(super) fn accepts_operator(&self) -> bool {
        self.acceptance_of(&operator_secret(&self.world.key.name)) > 0
    }

    /// The node whose certificate is accepted by the most of those that run, if these are more than accept the operator's own.
    pub(super) fn stand_in(&self) -> Option<String> {
        let own = self.acceptance_of(&operator_secret(&self.world.key.name));
        if own == self.running.len() {
            return None;
        }
        let mut best: Option<(usize, String)> = None;
        let mut known: BTreeMap<String, usize> = BTreeMap::new();
        for pod in &self.running {
            let Some(signer) = self.signer_of_use(&pod.meta.name) else { continue };
            let accepted = *known.entry(signer).or_insert_with_key(|signer| self.who_trusts(signer));
            if accepted > best.as_ref().map_or(own, |(most, _)| *most) {
                best = Some((accepted, pod.meta.name.clone()));
            }
        }
        best.map(|(_, pod)| pod)
    }

    /// How many of those that run accept what is in this Secret.
    fn acceptance_of(&self, secret: &str) -> usize {
        self.signer_of_use(secret).map_or(0, |signer| self.who_trusts(&signer))
    }

    fn who_trusts(&self, authority: &str) -> usize {
        self.running.iter().filter(|pod| self.trusts(pod, authority)).count()
    }

    fn signer_of_use(&self, secret: &str) -> Option<String> {
        let stored = stored(self.world, secret).filter(|stored| operator::is_of_use(self.world, stored))?;
        self.signer(stored.certificate())
    }

    /// Is a restart needed to trust the newest authority?
    pub(super) fn has_to_learn(&self, pod: &PodView) -> bool {
        let newest = self.newest.as_ref().filter(|newest| self.given.contains(*newest));
        newest.is_some_and(|newest| !self.trusts(pod, newest)) && self.strangers().next().is_none()
    }

    /// Does the newest authority need a restart of some pod, which then would not trust all others? Those others, with the
    /// certificates of an authority of which nothing is left.
    pub(super) fn lost(&self) -> Vec<String> {
        let newest = self.newest.as_deref();
        if newest.is_none_or(|newest| self.all_trust(newest)) {
            return Vec::new();
        }
        self.strangers().collect()
    }

    /// Pods that serve, and would not any more if nothing else were trusted than these: what is beside their processes would not
    /// accept what those show, and nobody who restarts would.
    pub(super) fn would_be_refused_by(&self, given: &[&Certificate]) -> bool {
        let given = given.iter().map(|one| one.authority_id()).collect();
        self.strangers_to(&given).next().is_some()
    }

    fn strangers(&self) -> impl Iterator<Item = String> {
        self.strangers_to(&self.given)
    }

    fn strangers_to(&self, given: &BTreeSet<String>) -> impl Iterator<Item = String> {
        let is_strange = |pod: &&&PodView| match self.shown_by(pod) {
            Some(shown) => !given.contains(&shown),
            None => stored(self.world, &pod.meta.name).is_some() && self.signer_for(&pod.meta.name).is_none(),
        };
        let strange = self.running.iter().filter(|pod| pod.has_ready_kafka()).filter(is_strange);
        strange.map(|pod| pod.meta.name.clone()).collect::<Vec<_>>().into_iter()
    }

    /// Who signed what the pod started with and what it would start with now, when that differs and all trust the latter.
    pub(super) fn shows_another(&self, pod: &PodView) -> bool {
        match (self.shown_by(pod), self.signer_for(&pod.meta.name)) {
            (Some(shown), Some(wanted)) => shown != wanted && self.all_trust(&wanted),
            _ => false,
        }
    }

    /// Is the pod of no use until it starts again? It does not accept the certificate that it has now, or nobody who starts now
    /// accepts the one that it started with. Starting again helps only if that is accepted.
    pub(super) fn is_cut_off(&self, pod: &PodView) -> bool {
        let wanted = self.signer_for(&pod.meta.name).filter(|wanted| self.given.contains(wanted));
        let Some(wanted) = wanted else { return false };
        let is_refused = || self.shown_by(pod).is_some_and(|shown| !self.given.contains(&shown));
        !pod.has_ready_kafka() && (!self.trusts(pod, &wanted) || is_refused())
    }

    fn trusts(&self, pod: &PodView, authority: &str) -> bool {
        match pod.meta.annotations.get(TRUSTED_AUTHORITIES_ANNOTATION) {
            Some(trusted) => trusted.split(',').any(|one| one == authority),
            None => self.is_assumed_to_trust(pod, authority),
        }
    }

    /// A pod of an earlier Karst does not say what it trusts. It trusts whoever signed its own certificate, or it would not be
    /// ready. When nobody is, it may be one of the same number that is younger than the pod itself.
    fn is_assumed_to_trust(&self, pod: &PodView, authority: &str) -> bool {
        let Some(signer) = self.signer_for(&pod.meta.name) else { return self.given.contains(authority) };
        let given = self.world.secrets.get(&trust_secret(&self.world.key.name));
        let generation = given.and_then(|given| given.annotation(CA_CERT_GENERATION_ANNOTATION));
        let believes =
            pod.meta.annotations.get(CA_CERT_GENERATION_ANNOTATION).map(String::as_str) == generation;
        let born = |id: &str| -> Option<Timestamp> {
            let of_it = self.known.iter().filter(|one| one.authority_id() == id);
            of_it.map(|one| one.not_before).min()
        };
        let is_younger = || pod.meta.created.zip(born(authority)).is_some_and(|(pod, born)| born > pod);
        let serves_nobody = || self.running.iter().all(|pod| !pod.has_ready_kafka());
        signer == authority && !(believes && serves_nobody() && is_younger())
    }

    /// Whose certificate the pod started with. Nothing when nobody knows.
    pub(super) fn shown_by(&self, pod: &PodView) -> Option<String> {
        let said = |annotation: &str| pod.meta.annotations.get(annotation);
        if let Some(authority) = said(CERTIFICATE_AUTHORITY_ANNOTATION) {
            return Some(authority.clone());
        }
        // One of an earlier Karst: it is the stored one, or another of the same key.
        let secret = self.world.secrets.get(&pod.meta.name)?;
        let certificate = secret.stored()?.certificate();
        let is_stored = said(CERTIFICATE_HASH_ANNOTATION)
            .is_some_and(|hash| hash.len() == HASH_DIGITS && certificate.fingerprint().starts_with(hash));
        let key = said(CA_KEY_GENERATION_ANNOTATION).map(String::as_str);
        let is_of_same_key = key.is_some() && key == secret.annotation(CA_KEY_GENERATION_ANNOTATION);
        (is_stored || is_of_same_key).then(|| self.signer(certificate)).flatten()
    }

    /// Who signed what is in this Secret.
    fn signer_for(&self, secret: &str) -> Option<String> {
        self.signer(stored(self.world, secret)?.certificate())
    }

    fn signer(&self, leaf: &Certificate) -> Option<String> {
        let signer = self.known.iter().find(|authority| leaf.is_from(authority));
        signer.map(Certificate::authority_id)
    }
}

/// What a pod is told about the trust that it starts with: the authorities that it trusts, and the one that signed its certificate.
pub(super) fn of_start(trust: Option<&SecretView>, leaf: Option<&Certificate>) -> [Option<String>; 2] {
    let given = trust.map(SecretView::authorities).unwrap_or_default();
    let mut ids: Vec<_> = given.iter().map(Certificate::authority_id).collect();
    ids.dedup();
    let signer = leaf.and_then(|leaf| given.iter().find(|one| leaf.is_from(one)));
    [(!ids.is_empty()).then(|| ids.join(",")), signer.map(Certificate::authority_id)]
}

fn stored<'a>(world: &'a World, secret: &str) -> Option<&'a Stored> {
    world.secrets.get(secret)?.stored()
}

/// The certificates of all nodes, and that of the operator.
fn leaves(world: &World) -> impl Iterator<Item = &Stored> {
    world.secrets.values().filter(|secret| !secret.meta.deleting).filter_map(|secret| secret.stored())
}

/// What the Secret of the authority's certificates holds, the newest first.
fn published(world: &World) -> Vec<Certificate> {
    let secret = world.secrets.get(&Kind::Cluster.cert_secret(&world.key.name));
    let Some(material) = secret.and_then(|secret| secret.material()) else { return Vec::new() };
    let of = |entry: &str| material.certificates(entry).unwrap_or_default().to_vec();
    let old = material.secret.data.keys().filter(|entry| entry.starts_with("ca-") && entry.ends_with(".crt"));
    of("ca.crt").into_iter().chain(old.flat_map(|entry| of(entry))).collect()
}

/// Certificates of authorities that are gone from both Secrets, and that signed what is still in use. They are looked for where
/// copies were left: beside what they signed, and in what clients were told.
fn lost_and_found(world: &World, known: &[Certificate]) -> Vec<Certificate> {
    let is_lost = |leaf: &&Stored| !known.iter().any(|one| leaf.certificate().is_from(one));
    let lost: Vec<_> = leaves(world).filter(is_lost).collect();
    if lost.is_empty() {
        return Vec::new();
    }
    let status = world.kafka.status.as_ref().and_then(|status| status.listeners.as_ref());
    let told = status.into_iter().flatten().filter_map(|listener| listener.certificates.as_ref());
    let told = told.flatten().filter_map(|pem| Certificate::all_from_pem(pem.as_bytes()).ok()).flatten();
    let beside = lost.iter().flat_map(|leaf| leaf.chain()).cloned();
    let mut found: Vec<Certificate> = Vec::new();
    for copy in beside.chain(told).filter(|copy| copy.is_authority) {
        // By the signature itself: the status is no place of ours alone.
        if !found.contains(&copy) && lost.iter().any(|leaf| leaf.certificate().is_signed_by(&copy)) {
            found.push(copy);
        }
    }
    found
}
