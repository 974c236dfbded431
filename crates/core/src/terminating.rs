//! Deletions that do not end: pods and PVCs that should have been gone a while ago, and PVCs that were deleted under a pod that runs.
//!
//! Kubernetes waits for ever where a finalizer is not released, a Kubernetes node does not answer, or a PVC is in use. Nothing can be
//! done about it here. It is told, and no node counts as about to come back because of it.

use std::sync::Arc;
use std::time::Duration;

use crate::names::POD_NAME_LABEL;
use crate::notice::Notice;
use crate::world::{ClaimView, Meta, World};

/// How long after its time an object may still be there. The kubelet and the volume's driver need some seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is to be told of deletions, and when to look again. Nobody tells that something did not happen.
pub(crate) fn next(world: &World) -> (Vec<Notice>, Option<Duration>) {
    let pods = world.pods.values().map(|pod| &pod.meta);
    let claims = world.claims.values().map(|claim| &claim.meta);
    let pause =
        pods.chain(claims).filter(|meta| meta.deleting).filter_map(|meta| time_left(world, meta)).min();
    let late_pods = world.pods.values().filter_map(|pod| {
        let since = overdue_since(world, &pod.meta)?;
        Some(Notice::PodTerminating { pod: pod.meta.name.clone(), since, machine: pod.machine.clone() })
    });
    let late_claims = world.claims.values().filter_map(|claim| of_claim(world, claim));
    (late_pods.chain(late_claims).collect(), pause)
}

fn of_claim(world: &World, claim: &Arc<ClaimView>) -> Option<Notice> {
    let since = overdue_since(world, &claim.meta)?;
    let pod = claim.meta.labels.get(POD_NAME_LABEL).cloned().unwrap_or_default();
    let name = claim.meta.name.clone();
    match world.pods.get(&pod) {
        // That the pod does not go is told.
        Some(pod) if pod.meta.deleting => None,
        Some(_) => Some(Notice::ClaimDeletedInUse { claim: name, pod, since }),
        None => Some(Notice::ClaimTerminating { claim: name, pod, since }),
    }
}

/// Since when it should have been gone, if Kubernetes had time enough.
pub(crate) fn overdue_since(world: &World, meta: &Meta) -> Option<k8s_openapi::jiff::Timestamp> {
    meta.gone_by.filter(|gone_by| meta.deleting && world.time_since(*gone_by) >= PATIENCE)
}

/// How long Kubernetes still has.
fn time_left(world: &World, meta: &Meta) -> Option<Duration> {
    let until = meta.gone_by?.checked_add(PATIENCE).ok()?;
    Duration::try_from(until.duration_since(world.now)).ok().filter(|pause| !pause.is_zero())
}

/// What keeps a pod that does not exist from being made, as far as it is known here.
pub(crate) fn keeps_from_starting(world: &World, pod: &str) -> Option<String> {
    let claims = world
        .claims
        .values()
        .filter(|claim| claim.meta.labels.get(POD_NAME_LABEL).is_some_and(|of| of == pod));
    let mut late = claims.filter(|claim| overdue_since(world, &claim.meta).is_some());
    if let Some(claim) = late.next() {
        return Some(format!("its PVC {} is still being deleted", claim.meta.name));
    }
    if world.memory.strangers.contains_key(&format!("Pod {pod}")) {
        return Some("a pod of somebody else has its name".to_owned());
    }
    (!world.memory.refusals().is_empty())
        .then(|| "Kubernetes refuses something; a warning says what".to_owned())
}
