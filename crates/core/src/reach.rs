//! Whether a broker would find the quorum again.
//!
//! A node that does not vote looks for the leader only where its settings told it to look when it started. When none of those
//! controllers votes any more, the next election cuts it off for good. So what it knew is remembered on its pod: such a
//! broker restarts, and the last voter that it knows stays until then.

use std::collections::BTreeSet;

use crate::names::QUORUM_PODS_ANNOTATION;
use crate::world::PodView;

/// What a pod that starts with these addresses is annotated with: the pods of the controllers.
pub(crate) fn annotation(bootstrap_servers: &str) -> String {
    let pods = bootstrap_servers.split(',').filter_map(|server| server.split('.').next());
    pods.collect::<Vec<_>>().join(",")
}

/// Does a broker know none of these controllers, given by their pods?
pub(crate) fn is_cut_off(pod: &PodView, controllers: &BTreeSet<String>) -> bool {
    let known = pod.meta.annotations.get(QUORUM_PODS_ANNOTATION);
    pod.runs_broker() && known.is_some_and(|known| !known.split(',').any(|one| controllers.contains(one)))
}
