//! Whom nodes trust, and who they show to be: everybody inside must accept everybody, at every instant.
//!
//! A node reads its files when it starts. Later its kubelet may give it newer ones, or not: both must do.

use std::collections::BTreeMap;
use std::sync::Arc;

use karst_certs::trust::Certificate;
use karst_certs::{Kind as Authority, Stored, authority};
use karst_core::certificates::stand_in;
use karst_core::ids::NodeId;
use karst_core::names::{CLUSTER_TRUST, operator_secret, trust_secret};
use karst_core::world::{SecretView, World};

use crate::kubernetes::{ApiServer, Item, Kind};
use crate::scenarios::CLUSTER;
use crate::sim::Sim;

/// What the process of a node read when it started.
#[derive(Debug, Clone)]
struct Files {
    own: Arc<SecretView>,
    trust: Arc<SecretView>,
}

/// What all processes read.
#[derive(Debug, Clone, Default)]
pub struct Readings {
    files: BTreeMap<NodeId, Files>,
    /// Has one been read since everybody was last seen to accept everybody?
    is_new: bool,
}

impl Readings {
    /// A process starts, and reads the Secrets that are mounted into its pod.
    pub(crate) fn read(&mut self, node: NodeId, pod: &str, api: &ApiServer) {
        let secrets = secret(api, pod).zip(secret(api, &trust_secret(CLUSTER)));
        let Some((own, trust)) = secrets else { return };
        self.files.insert(node, Files { own: Arc::clone(own), trust: Arc::clone(trust) });
        self.is_new = true;
    }
}

fn secret<'a>(api: &'a ApiServer, name: &str) -> Option<&'a Arc<SecretView>> {
    match api.get(Kind::Secret, name) {
        Some(Item::Secret(secret)) => Some(secret),
        _ => None,
    }
}

fn secrets(api: &ApiServer) -> impl Iterator<Item = &Arc<SecretView>> {
    api.all(Kind::Secret).filter_map(|item| match item {
        Item::Secret(secret) => Some(secret),
        _ => None,
    })
}

impl Sim {
    /// Everybody inside accepts everybody: those that run, with what they read, and those that start now.
    pub(crate) fn check_trust(&mut self) {
        let readings = &mut self.kubelet.readings;
        if !(std::mem::take(&mut readings.is_new) | std::mem::take(&mut self.api.has_new_secrets)) {
            return;
        }
        // The authorities go with their cluster, and what is left of its nodes ends.
        if self.api.was_deleted() {
            return;
        }
        let running: Vec<&Files> =
            self.quorum.processes.keys().filter_map(|node| readings.files.get(node)).collect();
        let shown = running.iter().map(|files| &files.own).chain(secrets(&self.api));
        let shown: Vec<&Certificate> =
            shown.filter_map(|secret| secret.stored()).map(Stored::certificate).collect();
        let trusting =
            running.iter().map(|files| &files.trust).chain(secret(&self.api, &trust_secret(CLUSTER)));
        let mut trusting: Vec<_> = trusting.collect();
        // Most of them read the same.
        trusting.dedup_by(|one, other| Arc::ptr_eq(one, other));
        for trusted in trusting.into_iter().filter_map(|secret| trusted_by(secret)) {
            if let Some(stranger) = shown.iter().find(|one| !trusted.iter().any(|issuer| one.is_from(issuer)))
            {
                let issuers: Vec<_> = trusted.iter().map(|issuer| issuer.subject.as_str()).collect();
                let what = format!(
                    "a certificate for {:?} is shown to somebody who trusts {issuers:?}",
                    stranger.names
                );
                self.fail(what);
                return;
            }
        }
    }

    /// Does the process of a node accept what this operator shows, by what it read when it started?
    pub(crate) fn accepts(&self, node: NodeId, operator: &World) -> bool {
        let own = operator_secret(CLUSTER);
        let stand_in = stand_in(operator);
        let shown = operator.secrets.get(stand_in.as_ref().unwrap_or(&own));
        let Some(shown) = shown.and_then(|secret| secret.stored()) else { return false };
        // Nobody could show more, and to read what each of them trusts takes time.
        if stand_in.is_none() {
            return true;
        }
        let read = self.kubelet.readings.files.get(&node).and_then(|files| trusted_by(&files.trust));
        read.is_none_or(|trusted| trusted.iter().any(|issuer| shown.certificate().is_from(issuer)))
    }

    /// What is left to be done about authorities when all is at rest.
    pub(crate) fn unfinished_authority(&self) -> Option<String> {
        let mut kinds = [Authority::Cluster, Authority::Clients].into_iter();
        kinds.find_map(|kind| self.asked_of(kind)).or_else(|| self.old_certificate())
    }

    fn asked_of(&self, kind: Authority) -> Option<String> {
        let wishes = [
            (kind.cert_secret(CLUSTER), authority::FORCE_RENEW),
            (kind.key_secret(CLUSTER), authority::FORCE_REPLACE),
        ];
        let is_asked = |(name, wish): &(String, &str)| {
            secret(&self.api, name).is_some_and(|secret| secret.meta.annotations.contains_key(*wish))
        };
        let (name, wish) = wishes.into_iter().find(is_asked)?;
        Some(format!("in the end {wish} of {name} is still asked for"))
    }

    fn old_certificate(&self) -> Option<String> {
        let certificates = secret(&self.api, &Authority::Cluster.cert_secret(CLUSTER))?.material()?;
        let newest = certificates.certificates("ca.crt")?.first()?;
        let is_old = |node: &&NodeId| {
            let files = self.kubelet.readings.files.get(node);
            let own = files.and_then(|files| files.own.stored());
            own.is_some_and(|own| !own.certificate().is_from(newest))
        };
        let old = self.quorum.processes.keys().find(is_old)?;
        Some(format!("in the end node {old} shows a certificate of a key that was replaced"))
    }
}

/// What whoever reads this Secret trusts of nodes.
fn trusted_by(secret: &SecretView) -> Option<Vec<Certificate>> {
    Certificate::all_from_pem(secret.trust()?.get(CLUSTER_TRUST)?).ok()
}
