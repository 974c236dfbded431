//! What must hold at every instant.
//!
//! Some checks are about Kafka's history and are made wherever it is written ([`crate::kraft`]). The others are made here: after
//! every moment, and at the instant at which something that the operator asked for takes effect.
//!
//! No operator can foresee a crash. Where a check counts who is up, a crash in the last seconds excuses it; nothing excuses the
//! removal of a voter's pod, a rewritten history, a vote under an old identity, or a deleted disk.

use std::collections::BTreeSet;

use karst_core::ids::NodeId;
use karst_core::membership::{Change, Voter};
use karst_core::names::{DELETE_CLAIM_ANNOTATION, DELETE_POD_AND_CLAIM_ANNOTATION, node_of_pod};

use crate::kraft::majority;
use crate::sim::Sim;

/// How long a crash excuses what it could have caused.
const EXCUSE: u64 = 6_000;

/// What was seen so far.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// The first thing that went wrong.
    pub broken: Option<String>,
    /// When something went wrong that was not the operator's doing.
    pub last_fault: u64,
    /// At least so many voters, once there were as many.
    pub fewest: usize,
    identity: Option<(String, String)>,
}

/// Why the operator deletes a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Another takes its place.
    Restart,
    /// Its node goes.
    Removal,
}

impl Sim {
    /// Something that must hold does not.
    pub fn fail(&mut self, what: String) {
        if self.watch.broken.is_none() {
            self.tell(|| format!("BROKEN    {what}"));
            self.watch.broken = Some(what);
        }
    }

    fn is_excused(&self) -> bool {
        self.watch.last_fault > 0 && self.now < self.watch.last_fault + EXCUSE
    }

    /// What is checked after every moment.
    pub(crate) fn check(&mut self) {
        if let Some(broken) = self.quorum.broken.clone() {
            self.fail(broken);
        }
        self.check_identity();
        let voters = self.quorum.count_voters();
        if self.watch.last_fault == 0 && voters > 0 && voters < self.watch.fewest {
            self.fail(format!("only {voters} vote, and never fewer than {} should", self.watch.fewest));
        }
    }

    fn check_identity(&mut self) {
        let status = self.api.kafka().and_then(|kafka| kafka.status.as_ref());
        let now = status
            .and_then(|status| Some((status.cluster_id.as_deref()?, status.initial_controllers.as_deref()?)));
        let before = self.watch.identity.as_ref().map(|(id, first)| (id.as_str(), first.as_str()));
        match (before, now) {
            (None, Some((id, first))) => self.watch.identity = Some((id.to_owned(), first.to_owned())),
            (Some(before), now) if now != Some(before) => {
                let what = format!("the cluster's identity changed from {before:?} to {now:?}");
                self.fail(what);
            }
            _ => {}
        }
    }

    /// The operator deletes a pod, at this instant.
    pub fn check_stop(&mut self, pod: &str, stop: Stop) {
        let Some(node) = node_of_pod(pod) else { return };
        let committed = self.quorum.committed_voters();
        let keeps_role = stop == Stop::Restart && self.keeps_controller_role(pod);
        if !keeps_role && committed.iter().any(|voter| voter.node == node) {
            self.fail(format!("pod {pod} goes, or loses the controller role, and its node votes"));
        }
        if stop == Stop::Removal
            && let Some(partition) = self.partitions.iter().find(|one| one.replicas.contains(&node))
        {
            let what = format!("pod {pod} goes, and partition {partition} lives there");
            self.fail(what);
        }
        if self.is_excused() {
            return;
        }
        self.check_majority_without(node, pod);
        self.check_partitions_without(node, pod);
    }

    fn keeps_controller_role(&self, pod: &str) -> bool {
        let settings = self.api.settings(pod).and_then(|settings| settings.get("server.config").cloned());
        settings.is_some_and(|config| {
            config.lines().any(|line| line.starts_with("process.roles=") && line.contains("controller"))
        })
    }

    fn check_majority_without(&mut self, node: NodeId, pod: &str) {
        let voters = self.quorum.newest_voters();
        let before = self.quorum.healthy(&voters);
        let after = self.quorum.healthy(voters.iter().filter(|voter| voter.node != node));
        let needed = match voters.len() {
            0 => 0,
            small @ (1 | 2) => small - 1,
            count => majority(count),
        };
        if after < before && before >= majority(voters.len()) && after < needed {
            self.fail(format!("pod {pod} stops, and only {after} of {} voters stay healthy", voters.len()));
        }
    }

    fn check_partitions_without(&mut self, node: NodeId, pod: &str) {
        let lost = self.partitions.iter().find(|one| {
            one.replicas.len() > one.min_in_sync
                && one.in_sync.contains(&node)
                && one.in_sync.len() == one.min_in_sync
        });
        if let Some(partition) = lost {
            let what = format!("pod {pod} stops, and partition {partition} takes no writes without it");
            self.fail(what);
        }
    }

    /// The operator changes the quorum, at this instant.
    pub fn check_change(&mut self, change: &Change) {
        let before = self.quorum.newest_voters();
        let mut after: BTreeSet<Voter> = before.clone();
        match change {
            Change::Join { voter, .. } => drop(after.insert(*voter)),
            Change::Leave { voter, .. } => drop(after.remove(voter)),
            Change::MakeDynamic => {}
        }
        if self.is_excused() || self.quorum.healthy(&before) < majority(before.len()) {
            return;
        }
        let healthy = self.quorum.healthy(&after);
        if healthy < majority(after.len()) {
            self.fail(format!("{change}, and only {healthy} of {} voters are healthy then", after.len()));
        }
    }

    /// The operator lets Kafka forget a broker, at this instant. A live one would serve on, and nobody would know it.
    pub fn check_unregistration(&mut self, node: NodeId) {
        let is_alive = self.quorum.processes.get(&node).is_some_and(|process| process.broker);
        let is_its = |name: &str| node_of_pod(name) == Some(node);
        let has_pod = self.api.pods().any(|pod| is_its(&pod.meta.name) && pod.runs_broker());
        if is_alive || has_pod {
            self.fail(format!("broker {node} is unregistered, and is there"));
        }
        if let Some(partition) = self.partitions.iter().find(|one| one.replicas.contains(&node)) {
            let what = format!("broker {node} is unregistered, and partition {partition} lives there");
            self.fail(what);
        }
    }

    /// The operator deletes a claim whose node is gone.
    ///
    /// Of two operators one can see a node go that the other sees come back. Nothing is lost as long as no pod has run on the
    /// claim since: Kubernetes starts none on a claim that is being deleted, and the node begins with an empty disk.
    pub fn check_claim_removal(&mut self, claim: &str) {
        let Some(view) = self.api.claim(claim).cloned() else { return };
        let is_disposable =
            view.meta.annotations.get(DELETE_CLAIM_ANNOTATION).is_some_and(|value| value == "true");
        let pod = view.meta.labels.get(karst_core::names::POD_NAME_LABEL).cloned().unwrap_or_default();
        let is_wanted = self.api.pod_sets().any(|set| set.pods.contains_key(&pod));
        let has_pod = self.api.pod(&pod).is_some();
        let has_run = self.api.pod(&pod).is_some_and(|pod| pod.phase != "Pending");
        let is_there = if self.faults.rival.is_some() { has_run } else { is_wanted || has_pod };
        if !is_disposable || is_there {
            self.fail(format!("claim {claim} is deleted, and its node is there, or its data is to be kept"));
        }
    }

    /// The operator deletes a claim because a pod is to start with empty disks.
    pub fn check_emptied(&mut self, claim: &str, pod: &str) {
        let asked = self.api.pod(pod).is_some_and(|pod| {
            pod.meta.annotations.get(DELETE_POD_AND_CLAIM_ANNOTATION).is_some_and(|value| value == "true")
        });
        if !asked {
            self.fail(format!("claim {claim} of {pod} is deleted, and nobody asked for it"));
        }
    }

    /// The operator writes the settings of a node.
    pub fn check_settings(&mut self, pod: &str, new: Option<&String>) {
        let format = |settings: Option<&String>| settings.map(String::as_str).unwrap_or_default().to_owned();
        let old = self.api.settings(pod).and_then(|settings| settings.get("storage.format").cloned());
        if format(old.as_ref()) == "join" && format(new) == "initial" {
            self.fail(format!("{pod} was to join, and is to form a quorum again"));
        }
    }
}
