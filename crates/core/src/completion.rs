//! Whether all of a generation was carried out.
//!
//! Pods tell most of it, but not all: what is still to be written, what Kafka is still to do, and what Kafka or Kubernetes
//! would not do. Only when nothing of that is left, the operator's version is put down as the one that succeeded.

use crate::notice::Notice;
use crate::objects::Object;
use crate::plan::{Deed, Plan};
use crate::status::Progress;
use crate::world::{Answer, World};

/// How far a cluster is whose pods say that it is ready.
pub(crate) fn judge(progress: Progress, plan: &Plan, world: &World) -> Progress {
    match progress {
        Progress::Ready if is_underway(plan, world) => Progress::Applying,
        Progress::Ready if plan.notices.iter().any(Notice::is_failure) => Progress::Partly,
        progress => progress,
    }
}

/// Is something on its way that pods do not show? What Kafka or Kubernetes would not do is told, and not waited for.
fn is_underway(plan: &Plan, world: &World) -> bool {
    let is_new = |deed: &Deed| !world.memory.troubles.iter().any(|trouble| trouble.deed == *deed);
    // Before that, it may still come to be as it should be.
    let is_told = |contested: &String| {
        let is_it = |notice: &Notice| matches!(notice, Notice::ObjectKeepsChanging { object, .. } if object == contested);
        plan.notices.iter().any(is_it)
    };
    let was_refused = |service: &Object| {
        service.meta().name.as_ref().is_some_and(|name| world.memory.refused_services.contains_key(name))
    };
    !plan.objects.iter().all(|object| plan.contested.contains_key(&object.describe()))
        || !plan.contested.keys().all(is_told)
        || !plan.services.iter().all(|service| was_refused(service) || plan.contested.contains_key(&service.describe()))
        || !plan.growths.is_empty()
        || !plan.marks.is_empty()
        || plan.deeds.iter().any(is_new)
        // What Kafka does not tell, nobody can call done.
        || matches!(world.answers.quorum, Answer::Silent(_))
        || plan.notices.iter().any(|notice| matches!(notice, Notice::SettingsUntold { .. }))
}
