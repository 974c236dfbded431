//! What a pod set needs: each of its pods exists, and none that it does not list.
//!
//! A running pod is never changed here. Which pod restarts, and when, is decided elsewhere.
//!
//! Whoever may write a pod set must not get pods by that: nothing is done for a spec that [`crate::plan::plan`] did not render. See
//! [`is_rendered`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karst_api as api;

use crate::certificates::{self, Secrets};
use crate::digest::Digest;
use crate::names::{ClusterKey, POD_NAME_LABEL};
use crate::notice::Notice;
use crate::world::{ClaimView, PodSetView, PodView, WantedPod, World};

/// One thing to do for a pod set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodAction {
    /// A pod that is listed does not exist.
    Create {
        /// Its name.
        name: String,
        /// The pod, as JSON.
        pod: Arc<str>,
    },
    /// A pod that is listed lost its owner, and would not go with it.
    Adopt {
        /// Its name.
        name: String,
        /// Which one.
        uid: String,
    },
    /// A pod of this pod set is not listed any more.
    Remove {
        /// Its name.
        name: String,
        /// Which one.
        uid: String,
    },
    /// A pod ended for good, or can never start; its place is needed for a new one. No disk that holds anything goes with it, as far as
    /// was seen: look once more.
    Replace {
        /// Its name.
        name: String,
        /// Which one.
        uid: String,
        /// In which state: one that has got on since stays.
        version: String,
        /// How far it came.
        phase: String,
    },
}

impl PodAction {
    /// The pod that it is about.
    pub fn pod(&self) -> &str {
        match self {
            Self::Create { name, .. }
            | Self::Adopt { name, .. }
            | Self::Remove { name, .. }
            | Self::Replace { name, .. } => name,
        }
    }

    /// The same, with what the pod starts with now in its description.
    #[must_use]
    pub fn as_started_now(self, key: &ClusterKey, secrets: &Secrets) -> Self {
        match self {
            Self::Create { name, pod } => {
                let pod = certificates::started_now(key, secrets, &name, &pod);
                Self::Create { name, pod }
            }
            other => other,
        }
    }

    /// Does it make a pod?
    pub fn is_creation(&self) -> bool {
        matches!(self, Self::Create { .. })
    }
}

/// What to do for a pod set, and what it reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSetPlan {
    /// What to do.
    pub actions: Vec<PodAction>,
    /// What is true of its pods.
    pub status: api::StrimziPodSetStatus,
}

/// Was the spec of this pod set rendered by Karst? `rendered` is the fingerprint of what was rendered last for this name.
///
/// Spec and annotations of a pod set can be written by many; its status only by whoever may write `strimzipodsets/status`. So
/// `observedGeneration` says which spec was rendered: the API server counts a generation for each spec, lets nobody set it, and takes no
/// status from whoever makes a pod set or changes its spec. It outlives the operator, so a pod that is lost comes back though its
/// `Kafka` resource cannot be carried out at the moment.
pub fn is_rendered(set: &PodSetView, rendered: Option<&Digest>) -> bool {
    is_recorded(set) || is_as(set, rendered)
}

/// Has Karst, or whatever operator made it, ever made this pod set's pods? A status is not written by those who make pod sets.
pub(crate) fn was_looked_after(set: &PodSetView, rendered: Option<&Digest>) -> bool {
    observed(set).is_some() || is_as(set, rendered)
}

/// The pod sets whose pods Karst described.
pub(crate) fn described_by_karst(world: &World) -> impl Iterator<Item = (&String, &Arc<PodSetView>)> {
    world.pod_sets.iter().filter(|(name, set)| is_rendered(set, world.memory.rendered.get(*name)))
}

fn is_recorded(set: &PodSetView) -> bool {
    observed(set) == Some(set.generation)
}

fn observed(set: &PodSetView) -> Option<i64> {
    set.status.as_ref()?.observed_generation
}

fn is_as(set: &PodSetView, rendered: Option<&Digest>) -> bool {
    set.digest.is_some() && set.digest.as_ref() == rendered
}

/// The pod sets for which something may be done from now on: they are seen to be what was rendered just now, and that was not known
/// before. They were looked at in vain, at least for what they no longer list, and nobody else tells them.
pub fn admitted<'a>(world: &'a World, rendered: &'a Rendered) -> impl Iterator<Item = &'a String> {
    let is_new = |name: &String, set: &PodSetView| {
        !is_as(set, world.memory.rendered.get(name)) && is_as(set, rendered.get(name))
    };
    world.pod_sets.iter().filter(move |(name, set)| is_new(name, set)).map(|(name, _)| name)
}

/// Fingerprints of specs of pod sets, by the names of the pod sets.
pub type Rendered = BTreeMap<String, Digest>;

/// What is known to be rendered from now on: what was rendered just now, and for pod sets whose pool is gone what was rendered last.
pub fn remembered(world: &World, rendered: &Rendered) -> Rendered {
    let before = world.memory.rendered.iter().filter(|(name, _)| world.pod_sets.contains_key(*name));
    before.chain(rendered).map(|(name, digest)| (name.clone(), *digest)).collect()
}

/// Pod sets for which nothing is done, because somebody else described their pods. `rendered` is what this pass rendered, if it came
/// that far: what differs from it is about to be written.
pub(crate) fn notices(world: &World, rendered: Option<&Rendered>) -> Vec<Notice> {
    let is_written = |name: &String| rendered.is_some_and(|rendered| rendered.contains_key(name));
    let ours: BTreeSet<&String> = described_by_karst(world).map(|(name, _)| name).collect();
    let others = world
        .pod_sets
        .iter()
        .filter(|(name, set)| !set.meta.deleting && !is_written(name) && !ours.contains(name));
    let missing = |set: &PodSetView| {
        let missing = set.pods.keys().filter(|pod| !world.pods.contains_key(*pod));
        missing.cloned().collect()
    };
    let notice = |(name, set): (&String, &Arc<PodSetView>)| Notice::NotRendered {
        pod_set: name.clone(),
        missing: missing(set),
    };
    others.map(notice).collect()
}

/// Compares the pods that exist (those of this pod set) with those that are listed. `going` are claims that are being deleted,
/// `rendered` is as in [`is_rendered`].
pub fn plan(
    set: &PodSetView,
    pods: &[Arc<PodView>],
    going: &[Arc<ClaimView>],
    rendered: Option<&Digest>,
) -> PodSetPlan {
    if is_rendered(set, rendered) {
        let mut plan = compare(set, pods, going);
        // What is not listed was free to go when that was written, and by whom. This process has to have judged it too: the one
        // that wrote it may be long dead, and Kafka may have given the node partitions since.
        if !is_as(set, rendered) {
            plan.actions.retain(|action| !matches!(action, PodAction::Remove { .. }));
        }
        return plan;
    }
    let PodSetPlan { status, .. } = compare(set, pods, going);
    let status = api::StrimziPodSetStatus { observed_generation: observed(set), ..status };
    PodSetPlan { actions: Vec::new(), status }
}

fn compare(set: &PodSetView, pods: &[Arc<PodView>], going: &[Arc<ClaimView>]) -> PodSetPlan {
    let mut actions = Vec::new();
    let loses_disk = |wanted: &WantedPod| going.iter().any(|claim| wanted.uses(&claim.meta.name));
    let is_its = |claim: &ClaimView, name: &String, wanted: &WantedPod| {
        wanted.uses(&claim.meta.name) || claim.meta.labels.get(POD_NAME_LABEL) == Some(name)
    };
    // A claim that ever got a volume may hold what nobody else has, and goes with the pod: that is judged where all copies are known, and
    // told there ([`crate::rolling`]).
    let would_empty = |name: &String, wanted: &WantedPod| {
        going.iter().any(|claim| claim.bound && is_its(claim, name, wanted))
    };
    let (mut ready, mut current) = (0, 0);
    for (name, wanted) in &set.pods {
        match pods.iter().find(|pod| pod.meta.name == *name) {
            // A pod that is on its way out keeps its name until it is gone: its deletion brings us back.
            Some(pod) if pod.meta.deleting => {}
            // Kubernetes starts no pod on a claim that is being deleted, and keeps the claim for the sake of the pod.
            Some(pod)
                if (pod.is_finished() || (pod.phase == "Pending" && loses_disk(wanted)))
                    && !would_empty(name, wanted) =>
            {
                actions.push(PodAction::Replace {
                    name: name.clone(),
                    uid: pod.meta.uid.clone(),
                    version: pod.meta.resource_version.clone(),
                    phase: pod.phase.clone(),
                });
            }
            Some(pod) => {
                // A pod with another owner goes with that one: its place is filled then.
                if pod.meta.owners.is_empty() {
                    actions.push(PodAction::Adopt { name: name.clone(), uid: pod.meta.uid.clone() });
                }
                ready += i32::from(pod.ready);
                current += i32::from(pod.is_current(wanted));
            }
            None if set.meta.deleting || loses_disk(wanted) => {}
            None => actions.push(PodAction::Create { name: name.clone(), pod: Arc::clone(&wanted.json) }),
        }
    }
    let unlisted = pods.iter().filter(|pod| {
        pod.meta.owners.contains(&set.meta.uid)
            && !set.pods.contains_key(&pod.meta.name)
            && !pod.meta.deleting
    });
    if !set.meta.deleting {
        actions.extend(
            unlisted.map(|pod| PodAction::Remove { name: pod.meta.name.clone(), uid: pod.meta.uid.clone() }),
        );
    }
    let status = api::StrimziPodSetStatus {
        conditions: None,
        observed_generation: Some(set.generation),
        pods: i32::try_from(set.pods.len()).ok(),
        ready_pods: Some(ready),
        current_pods: Some(current),
    };
    PodSetPlan { actions, status }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Meta;

    fn plan(set: &PodSetView, pods: &[Arc<PodView>]) -> PodSetPlan {
        super::plan(set, pods, &[], set.digest.as_ref().filter(|_| set.generation == 4))
    }

    fn reported(generation: i64) -> Option<api::StrimziPodSetStatus> {
        let observed_generation = Some(generation);
        Some(api::StrimziPodSetStatus { observed_generation, ..api::StrimziPodSetStatus::default() })
    }

    fn set(names: &[&str]) -> PodSetView {
        PodSetView {
            meta: Meta { uid: "uid-set".into(), ..Meta::default() },
            pods: names
                .iter()
                .map(|name| ((*name).to_owned(), WantedPod { json: Arc::from("{}"), revision: None }))
                .collect(),
            generation: 4,
            digest: Some(digest("this")),
            status: reported(4),
        }
    }

    fn digest(of: &str) -> Digest {
        Digest::of_parts(&[of.as_bytes()])
    }

    #[test]
    fn nothing_is_done_for_a_spec_that_was_not_rendered() {
        // One pod is missing, one failed, one has no owner, and one is not listed.
        let mut orphan = (*pod("a-2", "Running")).clone();
        orphan.meta.owners.clear();
        let pods = [pod("a-1", "Failed"), Arc::new(orphan), pod("a-9", "Running")];
        let mut set = set(&["a-0", "a-1", "a-2"]);
        assert_eq!(plan(&set, &pods).actions.len(), 4);
        set.generation = 5;
        let plan = plan(&set, &pods);
        assert_eq!(plan.actions, []);
        assert_eq!(plan.status.observed_generation, Some(4), "what was rendered is still the spec of before");
        assert_eq!(plan.status.pods, Some(3));
    }

    #[test]
    fn a_pod_set_that_was_just_made_is_known_by_what_was_rendered() {
        let mut set = set(&["a-0"]);
        set.status = None;
        let plan = |rendered: Option<&Digest>| super::plan(&set, &[], &[], rendered);
        assert_eq!(plan(None).actions, []);
        assert_eq!(plan(Some(&digest("another"))).actions, []);
        assert_eq!(plan(None).status.observed_generation, None, "or it would be taken for ours later");
        assert_eq!(plan(Some(&digest("this"))).actions.len(), 1);
        assert_eq!(plan(Some(&digest("this"))).status.observed_generation, Some(4));
    }

    #[test]
    fn a_spec_without_a_fingerprint_is_nobodys() {
        let set = PodSetView { generation: 1, ..PodSetView::default() };
        assert!(!is_rendered(&set, None));
    }

    fn pod(name: &str, phase: &str) -> Arc<PodView> {
        let owners = vec!["uid-set".into()];
        let meta = Meta {
            name: name.into(),
            uid: format!("uid-{name}"),
            resource_version: "7".into(),
            owners,
            ..Meta::default()
        };
        Arc::new(PodView { meta, phase: phase.into(), ready: phase == "Running", ..PodView::default() })
    }

    #[test]
    fn a_missing_pod_is_created_and_an_ended_one_replaced() {
        let pods = [pod("a-0", "Running"), pod("a-1", "Failed")];
        let plan = plan(&set(&["a-0", "a-1", "a-2"]), &pods);
        assert_eq!(
            plan.actions,
            [
                PodAction::Replace {
                    name: "a-1".into(),
                    uid: "uid-a-1".into(),
                    version: "7".into(),
                    phase: "Failed".into()
                },
                PodAction::Create { name: "a-2".into(), pod: Arc::from("{}") },
            ]
        );
        assert_eq!((plan.status.pods, plan.status.ready_pods), (Some(3), Some(1)));
    }

    #[test]
    fn a_pod_on_its_way_out_is_waited_for() {
        let mut leaving = (*pod("a-0", "Running")).clone();
        leaving.meta.deleting = true;
        assert_eq!(plan(&set(&["a-0"]), &[Arc::new(leaving)]).actions, []);
    }

    #[test]
    fn a_pod_set_that_is_being_deleted_makes_no_pods() {
        let mut going = set(&["a-0"]);
        going.meta.deleting = true;
        assert_eq!(plan(&going, &[]).actions, []);
    }

    #[test]
    fn no_pod_waits_on_a_disk_that_is_being_deleted() {
        let mut set = set(&["a-0"]);
        let json = Arc::from(r#"{"persistentVolumeClaim":{"claimName":"data-0-a-0"}}"#);
        set.pods.insert("a-0".into(), WantedPod { json, revision: None });
        let going = |claim: &str| going(claim, false, &[]);
        let actions =
            |pods: &[Arc<PodView>], claim: &str| super::plan(&set, pods, &going(claim), None).actions;
        assert_eq!(actions(&[], "data-0-a-0"), [], "it waits until the disk is gone");
        assert_eq!(actions(&[], "data-0-a-01").len(), 1, "that is not its disk");
        let replaced = PodAction::Replace {
            name: "a-0".into(),
            uid: "uid-a-0".into(),
            version: "7".into(),
            phase: "Pending".into(),
        };
        assert_eq!(actions(&[pod("a-0", "Pending")], "data-0-a-0"), [replaced]);
        assert_eq!(actions(&[pod("a-0", "Running")], "data-0-a-0"), [], "what runs keeps its disk");
    }

    fn going(name: &str, bound: bool, labels: &[(&str, &str)]) -> [Arc<ClaimView>; 1] {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let meta = Meta { name: name.into(), deleting: true, labels, ..Meta::default() };
        [Arc::new(ClaimView { meta, bound, ..ClaimView::default() })]
    }

    /// The image cannot be pulled, and somebody deletes PVCs: Kubernetes keeps what is on them for as long as the pods are there.
    #[test]
    fn a_pod_that_does_not_run_keeps_the_data_on_a_claim_that_is_being_deleted() {
        let mut set = set(&["a-0"]);
        let json = Arc::from(r#"{"persistentVolumeClaim":{"claimName":"data-0-a-0"}}"#);
        set.pods.insert("a-0".into(), WantedPod { json, revision: None });
        let actions = |phase: &str, going: &[Arc<ClaimView>]| {
            super::plan(&set, &[pod("a-0", phase)], going, None).actions.len()
        };
        let own = |bound| going("data-0-a-0", bound, &[]);
        let removed = |bound| going("data-1-a-0", bound, &[(POD_NAME_LABEL, "a-0")]);
        for phase in ["Pending", "Failed", "Succeeded"] {
            assert_eq!(actions(phase, &own(true)), 0, "{phase}");
            assert_eq!(actions(phase, &own(false)), 1, "{phase}: it never had a volume");
        }
        assert_eq!(actions("Failed", &removed(true)), 0, "a volume that the pool no longer has");
        assert_eq!(actions("Failed", &removed(false)), 1);
        assert_eq!(actions("Failed", &going("data-0-a-1", true, &[(POD_NAME_LABEL, "a-1")])), 1);
    }

    #[test]
    fn an_orphan_is_adopted_and_a_pod_of_another_owner_is_not() {
        let mut orphan = (*pod("a-0", "Running")).clone();
        orphan.meta.owners.clear();
        let pods = [Arc::new(orphan), pod("a-1", "Running")];
        let adopt = PodAction::Adopt { name: "a-0".into(), uid: "uid-a-0".into() };
        assert_eq!(plan(&set(&["a-0", "a-1"]), &pods).actions, [adopt]);
    }

    #[test]
    fn a_pod_that_is_not_listed_goes_and_one_of_another_owner_is_left_alone() {
        let mut foreign = (*pod("a-8", "Running")).clone();
        foreign.meta.owners = vec!["uid-other".into()];
        let pods = [Arc::new(foreign), pod("a-9", "Running")];
        let remove = PodAction::Remove { name: "a-9".into(), uid: "uid-a-9".into() };
        assert_eq!(plan(&set(&[]), &pods).actions, [remove]);
        // A process that did not judge it itself makes and keeps pods, and removes none.
        let set = set(&["a-0"]);
        for rendered in [None, Some(digest("of before"))] {
            let actions = super::plan(&set, &pods, &[], rendered.as_ref()).actions;
            assert_eq!(actions, [PodAction::Create { name: "a-0".into(), pod: Arc::from("{}") }]);
        }
    }
}
