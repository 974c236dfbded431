//! Pods that are to exist and do not, and since when.
//!
//! A pod that restarts is gone for a moment. One that stays away, because nobody makes it, leaves nothing behind that has a time: it has
//! to be remembered from one pass to the next. An operator that starts anew begins to count anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::names::node_of_pod;
use crate::world::World;

/// How long a pod that is replaced may take before its absence counts.
pub(crate) const RESTART_TIME: Duration = Duration::from_secs(300);
/// How long one may be away, or not ready, before it is told that others wait for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The pods that do not exist, though pod sets ask for them or they have settings, and since when. Of those that were away before,
/// that is known already.
pub fn of(world: &World) -> BTreeMap<String, Timestamp> {
    let listed = world.pod_sets.values().flat_map(|set| set.pods.keys());
    let set_up = world.config_maps.keys().filter(|name| node_of_pod(name).is_some());
    let away: BTreeSet<&String> =
        listed.chain(set_up).filter(|name| !world.pods.contains_key(*name)).collect();
    // One that is still to come is of another clock.
    let since = |name: &String| world.memory.absent.get(name).copied().filter(|since| *since <= world.now);
    away.into_iter().map(|name| (name.clone(), since(name).unwrap_or(world.now))).collect()
}

/// Has the pod been away for longer than a restart takes?
pub(crate) fn is_overdue(world: &World, pod: &str) -> bool {
    world.memory.absent.get(pod).is_some_and(|since| world.time_since(*since) >= RESTART_TIME)
}

/// That a pod has been away for a while. It is told with the time, not with how long that is: a message that changes is written again
/// and again.
pub(crate) fn for_long(world: &World, pod: &str) -> Option<String> {
    let since = world.memory.absent.get(pod).filter(|since| world.time_since(**since) >= PATIENCE)?;
    let since = since.strftime("%Y-%m-%d %H:%M UTC");
    Some(format!(
        "it does not exist since {since}, and Kubernetes has made no new one; see the operator's log"
    ))
}

/// When to look again. Nobody tells that something did not happen.
pub(crate) fn look_again(world: &World) -> Option<Duration> {
    let left = |since: &Timestamp| {
        let away = world.time_since(*since);
        [PATIENCE, RESTART_TIME]
            .into_iter()
            .filter_map(|limit| limit.checked_sub(away))
            .find(|left| !left.is_zero())
    };
    world.memory.absent.values().filter_map(left).min()
}
