//! What must hold at every instant.
//!
//! Some checks are about Kafka's history and are made wherever it is written ([`crate::kraft`]). The others are made here: after
//! every moment, and at the instant at which something that the operator asked for takes effect.
//!
//! No operator can foresee a crash. Where a check counts who is up, a crash in the last seconds excuses it; nothing excuses the
//! removal of a voter's pod, a rewritten history, a vote under an old identity, or a deleted disk.

mod records;

use std::collections::BTreeSet;
use std::sync::Arc;

use karst_api::Role;
use karst_certs::Kind as Authority;
use karst_core::ids::NodeId;
use karst_core::membership::{Change, Leaving, Voter};
use karst_core::names::{
    DELETE_CLAIM_ANNOTATION, DELETE_POD_AND_CLAIM_ANNOTATION, NEXT_IDS_ANNOTATION, POOL_LABEL,
    REMOVE_IDS_ANNOTATION, TRUSTED_AUTHORITIES_ANNOTATION, node_of_pod,
};
use karst_core::world::PodView;

use crate::kraft::majority;
use crate::kubernetes::{Item, Kind};
use crate::scenarios::CLUSTER;
use crate::sim::Sim;

/// How long a crash excuses what it could have caused.
const EXCUSE: u64 = 6_000;
/// Where so many controllers or more are wanted, never fewer vote.
const ENOUGH: usize = 3;

/// What was seen so far.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// The first thing that went wrong.
    pub broken: Option<String>,
    /// When something went wrong that was not the operator's doing.
    pub last_fault: u64,
    /// The same without leaders that died because a voter was removed: who removes one has to reckon with that.
    pub last_surprise: u64,
    /// When somebody last deleted a claim, and not its pod.
    pub last_claim_deletion: u64,
    /// When an operator last stopped a pod.
    pub last_stop: u64,
    /// When a user last wished for something.
    pub last_wish: u64,
    /// When a user last took back that data may be lost, and of which pods.
    pub taken_back: Option<(u64, String)>,
    /// When a user last asked for something else.
    pub last_request: u64,
    /// The last disk that broke, and when.
    pub lost_disk: Option<(u64, NodeId)>,
    /// Did a disk break in the moment in which another node gave up its vote?
    pub unlucky: bool,
    /// At least so many voters, once there were as many.
    pub fewest: usize,
    /// Voters that a person asked to restore.
    pub restorable: BTreeSet<NodeId>,
    identity: Option<Known>,
}

/// Who the cluster is, as far as anybody could know.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    /// The resource that says so.
    resource: String,
    /// How often everything was lost before.
    lives: usize,
    cluster_id: String,
    initial: Option<String>,
}

/// Why the operator deletes a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Another takes its place.
    Restart,
    /// The same, and the cluster starts over.
    Anew,
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
        self.is_recent(self.watch.last_fault)
    }

    fn is_recent(&self, fault: u64) -> bool {
        fault > 0 && self.now < fault + EXCUSE
    }

    /// What is checked after every moment.
    pub(crate) fn check(&mut self) {
        if let Some(broken) = self.quorum.broken.clone() {
            self.fail(broken);
        }
        self.check_losses();
        self.check_identity();
        if let Some(harm) = self.api.harm_to_others().cloned() {
            self.fail(harm);
        }
        self.check_trust();
        let voters = self.quorum.count_voters();
        if self.watch.last_fault == 0 && voters > 0 && voters < self.watch.fewest {
            self.fail(format!("only {voters} vote, and never fewer than {} should", self.watch.fewest));
        }
    }

    fn check_identity(&mut self) {
        let Some(kafka) = self.api.kafka() else { return };
        let resource = kafka.metadata.uid.as_deref().unwrap_or_default();
        let status = kafka.status.as_ref();
        let cluster_id = status.and_then(|status| status.cluster_id.as_deref());
        let initial = status.and_then(|status| status.initial_controllers.as_deref());
        let lives = self.quorum.lives;
        let is_same = match &self.watch.identity {
            None => true,
            // The list was learned from the voters if the first one is lost.
            Some(known) if known.resource != resource => {
                cluster_id.is_none_or(|id| id == known.cluster_id || lives != known.lives)
            }
            Some(known) => {
                cluster_id == Some(known.cluster_id.as_str())
                    && (known.initial.is_none() || known.initial.as_deref() == initial)
            }
        };
        let is_new = self.watch.identity.as_ref().is_none_or(|known| {
            known.resource != resource || known.initial.as_deref() != initial || known.lives != lives
        });
        if !is_same {
            let what = format!(
                "the cluster's identity changed from {:?} to {cluster_id:?}, {initial:?}",
                self.watch.identity
            );
            self.fail(what);
        } else if let Some(id) = cluster_id.filter(|_| is_new) {
            self.watch.identity = Some(Known {
                resource: resource.to_owned(),
                lives,
                cluster_id: id.to_owned(),
                initial: initial.map(str::to_owned),
            });
        }
    }

    /// The operator deletes a pod, at this instant.
    pub fn check_stop(&mut self, pod: &str, stop: Stop) {
        let Some(node) = node_of_pod(pod) else { return };
        let committed = self.quorum.committed_voters();
        let keeps_role = stop != Stop::Removal && self.keeps_role(pod, "controller");
        // A cluster that is deleted goes with all its pods.
        let is_there = self.api.kafka().is_some();
        if is_there && !keeps_role && committed.iter().any(|voter| voter.node == node) {
            self.fail(format!("pod {pod} goes, or loses the controller role, and its node votes"));
        }
        if stop == Stop::Removal
            && !self.is_moved(pod)
            && let Some(partition) = self.data.first_on(node)
        {
            let what = format!("pod {pod} goes, and partition {partition} lives there");
            self.fail(what);
        }
        if stop == Stop::Restart {
            self.check_recovery(node, pod);
        }
        self.doom_disk_of(pod);
        if !self.is_excused() {
            self.check_majority_without(node, pod);
            self.check_partitions_without(node, pod);
        }
        self.data.note_stop(node);
        self.watch.last_stop = self.now;
    }

    /// The operator deletes a pod that ended, or that cannot start. That a claim was deleted surprises nobody who acts because of it.
    pub fn check_replaced(&mut self, pod: &str, knows_of_claim: bool) {
        if knows_of_claim {
            self.watch.last_claim_deletion = 0;
        }
        self.doom_disk_of(pod);
    }

    /// Does what starts next in the place of this pod have this role?
    fn keeps_role(&self, pod: &str, role: &str) -> bool {
        let settings = self.api.settings(pod).and_then(|settings| settings.get("server.config"));
        settings.is_some_and(|config| {
            config.lines().any(|line| line.starts_with("process.roles=") && line.contains(role))
        })
    }

    /// Nodes that cannot start before this pod has: they have no certificate, and get one when it trusts who is to sign that. What they
    /// lack is no reason against what brings them back: without it they would never come.
    fn waiting_for(&self, pod: &str) -> BTreeSet<NodeId> {
        let Some(Item::Secret(authority)) =
            self.api.get(Kind::Secret, &Authority::Cluster.cert_secret(CLUSTER))
        else {
            return BTreeSet::new();
        };
        let newest = authority.material().and_then(|material| {
            let all = material.certificates("ca.crt").unwrap_or_default();
            Some(all.first()?.authority_id())
        });
        let trusted =
            self.api.pod(pod).and_then(|pod| pod.meta.annotations.get(TRUSTED_AUTHORITIES_ANNOTATION));
        let knows = |id: &String| trusted.is_some_and(|trusted| trusted.split(',').any(|one| one == id));
        if newest.is_none_or(|newest| knows(&newest)) {
            return BTreeSet::new();
        }
        let waits = |pod: &&Arc<PodView>| !pod.ready && self.api.get(Kind::Secret, &pod.meta.name).is_none();
        self.api.pods().filter(waits).filter_map(|pod| node_of_pod(&pod.meta.name)).collect()
    }

    fn check_majority_without(&mut self, node: NodeId, pod: &str) {
        let has_rival = self.faults.rival.is_some();
        if has_rival && self.watch.last_stop > 0 && self.now < self.watch.last_stop + records::AT_ONCE {
            return;
        }
        let mut voters = self.quorum.newest_voters();
        let waiting = self.waiting_for(pod);
        voters.retain(|voter| !waiting.contains(&voter.node));
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

    /// The operator changes the quorum, at this instant.
    pub fn check_change(&mut self, change: &Change) {
        let before = self.quorum.newest_voters();
        let mut after: BTreeSet<Voter> = before.clone();
        match change {
            Change::Join { voter, .. } => drop(after.insert(*voter)),
            Change::Leave { voter, why } => {
                after.remove(voter);
                self.note_bad_luck(Some(voter.node));
                self.check_leave(voter, *why, after.len());
            }
            Change::MakeDynamic => {}
        }
        let is_excused = self.is_recent(self.watch.last_surprise);
        if is_excused || self.quorum.healthy(&before) < majority(before.len()) {
            return;
        }
        let healthy = self.quorum.healthy(&after);
        if healthy < majority(after.len()) {
            self.fail(format!("{change}, and only {healthy} of {} voters are healthy then", after.len()));
        }
    }

    /// A voter that is to go, and that can come back, goes only when enough others vote, whatever befell it: who is away for a moment
    /// is as good as any. Not so one that gives up its vote to start empty in another pool.
    fn check_leave(&mut self, voter: &Voter, why: Leaving, left: usize) {
        let can_come_back = self.quorum.disks.values().any(|disk| disk.directory == voter.directory);
        let was_just_told = self.watch.last_request > 0 && self.now < self.watch.last_request + EXCUSE;
        let is_rivalled = self.faults.rival.is_some();
        if why != Leaving::NotWanted || !can_come_back || was_just_told || is_rivalled {
            return;
        }
        let needed = self.wanted_voters().map_or(0, |wanted| wanted.min(ENOUGH));
        if left < needed {
            self.fail(format!("controller {voter} leaves, and only {left} vote then, not {needed}"));
        }
    }

    /// How many controllers users ask for. Nobody knows while nodes move between pools.
    fn wanted_voters(&self) -> Option<usize> {
        let mut wanted = 0;
        let mut has_pools = false;
        for pool in self.api.pools().filter(|pool| pool.metadata.deletion_timestamp.is_none()) {
            has_pools = true;
            let steers = |annotation: &str| {
                pool.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(annotation))
            };
            if steers(NEXT_IDS_ANNOTATION) || steers(REMOVE_IDS_ANNOTATION) {
                return None;
            }
            if pool.spec.roles.contains(&Role::Controller) {
                wanted += usize::try_from(pool.spec.replicas).ok()?;
            }
        }
        has_pools.then_some(wanted)
    }

    /// The operator lets Kafka forget a broker, at this instant. A live one would serve on, and nobody would know it.
    pub fn check_unregistration(&mut self, node: NodeId) {
        let is_alive = self.quorum.processes.get(&node).is_some_and(|process| process.broker);
        let is_its = |name: &str| node_of_pod(name) == Some(node);
        let has_pod = self.api.pods().any(|pod| is_its(&pod.meta.name) && pod.runs_broker());
        if is_alive || has_pod {
            self.fail(format!("broker {node} is unregistered, and is there"));
        }
        if let Some(partition) = self.data.first_on(node) {
            let what = format!("broker {node} is unregistered, and partition {partition} lives there");
            self.fail(what);
        }
    }

    /// The operator deletes a claim whose node is gone.
    ///
    /// Of two operators one can see a node go that the other sees come back. Nothing is lost as long as no pod has run on the
    /// claim since: Kubernetes starts none on a claim that is being deleted, and the node begins with an empty disk. An operator
    /// that starts with an old view of pools and a new one of claims can take one for a leftover that no pod ever ran on.
    pub fn check_claim_removal(&mut self, claim: &str) {
        let Some(view) = self.api.claim(claim).cloned() else { return };
        let is_disposable =
            view.meta.annotations.get(DELETE_CLAIM_ANNOTATION).is_some_and(|value| value == "true");
        let pod = view.meta.labels.get(karst_core::names::POD_NAME_LABEL).cloned().unwrap_or_default();
        let is_wanted = self.api.pod_sets().any(|set| set.pods.contains_key(&pod));
        let has_pod = self.api.pod(&pod).is_some();
        let has_run = self.api.pod(&pod).is_some_and(|pod| pod.phase != "Pending");
        let is_there = match (self.faults.rival, self.faults.stale) {
            (Some(_), _) => has_run,
            (None, Some(_)) => (is_wanted || has_pod) && view.bound,
            (None, None) => is_wanted || has_pod,
        };
        let is_kept = self.is_to_be_kept(view.meta.labels.get(POOL_LABEL));
        if !is_disposable || is_there || is_kept {
            self.fail(format!("claim {claim} is deleted, and its node is there, or its data is to be kept"));
        }
        self.doom_claim(claim, &pod);
    }

    /// The operator deletes a claim because a pod is to start with empty disks.
    pub fn check_emptied(&mut self, claim: &str, pod: &str) {
        let asked = self.api.pod(pod).is_some_and(|pod| {
            pod.meta.annotations.get(DELETE_POD_AND_CLAIM_ANNOTATION).is_some_and(|value| value == "true")
        });
        if !asked && !self.is_disk_to_restore(claim, pod) {
            self.fail(format!("claim {claim} of {pod} is deleted, and nobody asked for it"));
        }
        self.doom_claim(claim, pod);
        self.note_bad_luck(node_of_pod(pod));
    }

    /// The vote of this node goes, in the moment in which the disk of another one broke.
    fn note_bad_luck(&mut self, node: Option<NodeId>) {
        let just_lost = self.watch.lost_disk.filter(|(at, _)| self.now < at + EXCUSE);
        self.watch.unlucky |= just_lost.is_some_and(|(_, lost)| node.is_some_and(|node| node != lost));
    }

    /// Did a person ask for this node's vote to be restored, and is the disk that it has no voter's?
    fn is_disk_to_restore(&self, claim: &str, pod: &str) -> bool {
        let is_asked = node_of_pod(pod).is_some_and(|node| self.watch.restorable.contains(&node));
        let disk = self.api.claim(claim).and_then(|claim| self.quorum.disks.get(&claim.meta.uid));
        let votes =
            |directory| self.quorum.committed_voters().iter().any(|voter| voter.directory == directory);
        is_asked && disk.is_none_or(|disk| !votes(disk.directory))
    }

    /// A leader gave up its office, because it was asked to make the quorum dynamic while it missed a voter.
    pub fn check_failed_migration(&mut self) {
        if !self.is_excused() {
            self.fail(
                "kraft.version was to become 1 while a voter was missing: the leader gives up".to_owned(),
            );
        }
    }

    /// The operator writes the settings of a node.
    pub fn check_settings(&mut self, pod: &str, new: Option<&String>) {
        let format = |settings: Option<&String>| settings.map(String::as_str).unwrap_or_default().to_owned();
        let old = self.api.settings(pod).and_then(|settings| settings.get("storage.format").cloned());
        let is_restored = node_of_pod(pod).is_some_and(|node| self.watch.restorable.contains(&node));
        let is_over = self.quorum.history.is_empty();
        let forms = ["initial", "restore"].contains(&format(new).as_str());
        if format(old.as_ref()) == "join" && forms && !is_restored && !is_over {
            self.fail(format!("{pod} was to join, and is to form a quorum again"));
        }
    }
}
