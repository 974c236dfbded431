//! No acknowledged record is lost by anything that the operator does, unless a person named the pod; no partition stops taking
//! writes by it.
//!
//! A record is lost with the last disk that held it, or when somebody is elected who does not have it. What fate does is not held
//! against the operator, and a fault of the last moments excuses it: it could not know.

use karst_api as api;
use karst_core::id_list::IdList;
use karst_core::ids::NodeId;
use karst_core::names::{
    ALLOW_LOSS_ANNOTATION, DELETE_POD_AND_CLAIM_ANNOTATION, NEXT_IDS_ANNOTATION, POOL_LABEL, node_of_pod,
};

use crate::data::{Destroyed, Doom};
use crate::sim::Sim;

/// What befell a node so long ago the operator may not have heard of.
const NEWS: u64 = 2_000;
/// Of two operators, each may look at the pods and delete one so long after the other, in milliseconds. A lease keeps real ones from
/// leading at once, and each asks it before every call; nothing else could tell the one what the other is about to do. Nor can it tell
/// that a broker, cut off from the controllers and therefore counted on by nobody, came back after Kafka was asked.
pub(super) const AT_ONCE: u64 = 500;
/// A broker that began to read its logs anew so long ago is known to do so.
const RECOVERY_IS_KNOWN: u64 = 2_000;

impl Sim {
    /// Was something lost in the last moment, and by whom?
    pub(super) fn check_losses(&mut self) {
        for loss in std::mem::take(&mut self.data.losses) {
            let what = loss.what;
            match loss.destroyed {
                Some(Destroyed { by: Some(doom) }) if !doom.is_allowed && !self.is_surprised(doom.at) => {
                    self.fail(format!("{what}, because {}", doom.what));
                }
                Some(_) => self.tell(|| format!("fate      {what}")),
                None => self.fail(format!("{what}, and no copy had been destroyed")),
            }
        }
    }

    /// Did a fault, or somebody who deleted a claim, come so late that nobody who acted then could know of it? What users wish is no
    /// excuse: it is carried out when it does no harm.
    fn is_surprised(&self, at: u64) -> bool {
        let latest = self.watch.last_fault.max(self.watch.last_claim_deletion);
        latest > 0 && latest + NEWS > at
    }

    /// The operator deletes a pod: its disk goes too, if it is the pod's own, or if its claim was deleted before, by whomever.
    pub(super) fn doom_disk_of(&mut self, pod: &str) {
        let Some(view) = self.api.pod(pod).filter(|pod| !pod.meta.deleting).cloned() else { return };
        let claim = self.api.volume(&view.meta.uid).and_then(|claim| self.api.claim(claim));
        match claim {
            None => self.doom(&view.meta.uid, pod, format!("pod {pod} was deleted, and its disk is its own")),
            // A pod without a machine holds no claim back.
            Some(claim) if claim.meta.deleting && self.kubelet.has_machine(&view) => {
                let uid = claim.meta.uid.clone();
                self.doom(&uid, pod, format!("pod {pod} was deleted, and its claim is being deleted"));
            }
            Some(_) => {}
        }
    }

    /// The operator deletes a claim.
    pub(super) fn doom_claim(&mut self, claim: &str, pod: &str) {
        if let Some(uid) = self.api.claim(claim).map(|claim| claim.meta.uid.clone()) {
            self.doom(&uid, pod, format!("claim {claim} of {pod} was deleted"));
        }
    }

    fn doom(&mut self, disk: &str, pod: &str, what: String) {
        let Some(directory) = self.quorum.disks.get(disk).map(|disk| disk.directory) else { return };
        let is_allowed = self.allows_loss(pod);
        let (at, said) = (self.now, what.clone());
        let lost = self.data.doom(directory, Doom { at, what, is_allowed });
        if let Some(partition) = lost.filter(|_| !is_allowed && !self.is_surprised(at)) {
            self.fail(format!("the last complete copy of partition {partition} goes, because {said}"));
        }
    }

    /// Does the pool of a claim say now that its disks are to be kept? What was said in the last moments need not be heard of.
    pub(super) fn is_to_be_kept(&self, pool: Option<&String>) -> bool {
        let is_old = self.now > self.watch.last_wish + NEWS;
        let pool = self.api.pools().find(|one| one.metadata.name.as_ref() == pool);
        let deletes = |pool: &api::KafkaNodePool| {
            let storage = &pool.spec.storage;
            let mut volumes = storage.volumes.iter().flatten();
            storage.delete_claim == Some(true) || volumes.any(|volume| volume.delete_claim == Some(true))
        };
        is_old && pool.is_some_and(|pool| !deletes(pool))
    }

    /// Did a person say that the data of this pod may be lost? That they took it back in the last moment nobody can know who asked just
    /// before.
    fn allows_loss(&self, pod: &str) -> bool {
        let taken_back = self.watch.taken_back.as_ref();
        let taken_back = taken_back.filter(|(at, _)| self.now < at + AT_ONCE).map(|(_, pods)| pods.clone());
        let mut named = self.may_lose().into_iter().chain(taken_back);
        named.any(|named| named.split(',').any(|one| one.trim() == pod))
    }

    /// The pods whose data may be lost, as a person said.
    pub(crate) fn may_lose(&self) -> Option<String> {
        let annotations = self.api.kafka()?.metadata.annotations.as_ref()?;
        annotations.get(ALLOW_LOSS_ANNOTATION).cloned()
    }

    /// Does a node of this pod's pool go to another one, which asks for its id? Then its copies go, and come back there.
    pub(super) fn is_moved(&self, pod: &str) -> bool {
        let Some(node) = node_of_pod(pod) else { return false };
        let own = self.api.pod(pod).and_then(|pod| pod.meta.labels.get(POOL_LABEL).cloned());
        self.api.pools().any(|pool| {
            let asked = pool.metadata.annotations.as_ref().and_then(|all| all.get(NEXT_IDS_ANNOTATION));
            let asked = asked.and_then(|text| text.parse::<IdList>().ok());
            pool.metadata.name != own && asked.is_some_and(|ids| ids.contains(node))
        })
    }

    /// The operator stops a pod: every partition goes on taking writes, if it has a copy more than it needs; of the others no second
    /// copy is stopped while another one that the operator stopped is away.
    pub(super) fn check_partitions_without(&mut self, node: NodeId, pod: &str) {
        let is_going = |node: NodeId| {
            let mut own = self.api.pods().filter(|pod| node_of_pod(&pod.meta.name) == Some(node));
            own.any(|pod| pod.meta.deleting)
        };
        // It was asked of Kafka a moment ago who serves, and this one did not.
        if self.quorum.is_reconnected_since(node, self.now.saturating_sub(AT_ONCE)) {
            return;
        }
        let has_rival = self.faults.rival.is_some();
        let waiting = self.waiting_for(pod);
        let wrong = self.data.on(node).find_map(|partition| {
            if has_rival && self.data.stopped_since(partition, self.now.saturating_sub(AT_ONCE)) {
                return None;
            }
            let in_sync = partition.in_sync.iter().copied();
            let live = in_sync.filter(|node| self.data.brokers.serves(*node) && !is_going(*node));
            let live: Vec<NodeId> = live.collect();
            if !live.contains(&node) {
                return None;
            }
            if partition.is_protectable_without(&waiting) {
                let why = format!("pod {pod} stops, and partition {partition} takes no writes without it");
                return (live.len() == partition.least()).then_some(why);
            }
            let mut away = self.data.stopped_besides(partition, node);
            away.retain(|other| !waiting.contains(other));
            let others: Vec<_> = away.iter().map(ToString::to_string).collect();
            (!away.is_empty()).then(|| {
                format!(
                    "pod {pod} stops, and of partition {partition} the operator stopped {} too, which is not back in sync",
                    others.join(", ")
                )
            })
        });
        if let Some(wrong) = wrong {
            self.fail(wrong);
        }
    }

    /// The operator restarts a pod: not while its broker reads its logs anew, for it would begin with that again. What is to be no broker any
    /// more does not: that nothing lives there is seen to before.
    pub(super) fn check_recovery(&mut self, node: NodeId, pod: &str) {
        let Some((since, _)) = self.quorum.recovery(node) else { return };
        let is_emptied = self.api.pod(pod).is_some_and(|pod| {
            pod.meta.annotations.get(DELETE_POD_AND_CLAIM_ANNOTATION).is_some_and(|value| value == "true")
        });
        if !is_emptied && self.keeps_role(pod, "broker") && self.now > since + RECOVERY_IS_KNOWN {
            self.fail(format!("pod {pod} restarts while it reads its logs anew, and begins with that again"));
        }
    }
}
