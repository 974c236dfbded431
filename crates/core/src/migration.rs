//! From a static quorum to a dynamic one.
//!
//! Kafka does it in one step, when `kraft.version` becomes 1: the voters' real directory ids then stand in the log, the
//! status takes them from there, and the nodes are restarted without the list of voters in their settings. Asked for too early,
//! a leader that has not heard of every voter gives up its office, so nothing is asked for before the quorum is at rest.

use std::time::Duration;

use crate::cluster::Cluster;
use crate::health;
use crate::membership::{Change, Membership};
use crate::names::{KAFKA_VERSION_ANNOTATION, MIGRATION_ANNOTATION, is_true};
use crate::notice::Notice;
use crate::quorum::Kind;
use crate::versions::{self, KafkaVersion};
use crate::world::{QuorumView, World};

/// How long a leader must have been in office, and how long to wait after a failure.
const AT_REST: Duration = Duration::from_secs(10);
/// How soon to look again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The first version that can do it.
const FIRST: (u32, u32) = (4, 1);

/// Was it asked for, and is the quorum dynamic already?
pub(crate) fn is_over(world: &World) -> bool {
    is_asked_for(world) && Kind::of(world) == Kind::Dynamic
}

fn is_asked_for(world: &World) -> bool {
    is_true(world.kafka.metadata.annotations.as_ref(), MIGRATION_ANNOTATION)
}

/// Decides whether a static quorum becomes a dynamic one now.
pub(crate) fn next(world: &World, cluster: &Cluster, quorum: &QuorumView) -> Membership {
    if !is_asked_for(world) {
        return Membership::default();
    }
    let held = |why: String| Membership {
        notices: vec![Notice::MigrationHeld { why }],
        look_again: Some(LOOK_AGAIN),
        ..Membership::default()
    };
    if let Some(old) = too_old(world, cluster) {
        return held(format!("Kafka {old} cannot do it; upgrade to 4.1 or later first"));
    }
    let limit = health::fetch_timeout(world);
    let absent =
        quorum.voters.iter().filter(|voter| !(voter.is_caught_up(limit) && health::is_up(world, voter.node)));
    let absent = absent.map(|voter| voter.node).collect::<std::collections::BTreeSet<_>>();
    if !absent.is_empty() {
        return held(format!(
            "every voter must be up and caught up, and these are not: {}",
            health::list(&absent)
        ));
    }
    if quorum.stable_for < AT_REST {
        return Membership { look_again: Some(LOOK_AGAIN), ..Membership::default() };
    }
    Membership { change: Some(Change::MakeDynamic), look_again: Some(LOOK_AGAIN), ..Membership::default() }
}

/// A version that runs, or is to run, and cannot do it.
fn too_old(world: &World, cluster: &Cluster) -> Option<String> {
    let running = world.pods.values().filter_map(|pod| pod.meta.annotations.get(KAFKA_VERSION_ANNOTATION));
    let running = running.map(|version| (version.as_str(), versions::find(version)));
    let all = running.chain([(cluster.version.version, Some(cluster.version))]);
    let is_old = |known: Option<&KafkaVersion>| known.is_none_or(|known| known.minor() < FIRST);
    all.into_iter().find(|(_, known)| is_old(*known)).map(|(version, _)| version.to_owned())
}
