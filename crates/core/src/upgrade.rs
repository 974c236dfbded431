//! Which version of Kafka the nodes run, and when the metadata version follows.
//!
//! Binaries first, the metadata version last: what Kafka has written in a newer form an older Kafka cannot read, so a version
//! that could not read what is there is refused before a single pod restarts.

use std::collections::BTreeSet;

use karst_api as api;

use crate::cluster::Cluster;
use crate::health;
use crate::ids::NodeId;
use crate::names::KAFKA_VERSION_ANNOTATION;
use crate::notice::Notice;
use crate::steps::Deed;
use crate::versions::{self, KafkaVersion};
use crate::world::{PodView, World};

/// A metadata version to go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataChange {
    /// Its level.
    pub level: i16,
    /// Its name.
    pub name: &'static str,
    /// Is it an older one?
    pub is_downgrade: bool,
}

/// The version a pod runs.
pub(crate) fn version_of(pod: &PodView) -> Option<&'static KafkaVersion> {
    versions::find(pod.meta.annotations.get(KAFKA_VERSION_ANNOTATION)?)
}

/// The versions that pods run, oldest first.
fn running(world: &World) -> Vec<&'static KafkaVersion> {
    let names: BTreeSet<&str> =
        world.pods.values().filter_map(|pod| version_of(pod)).map(|known| known.version).collect();
    versions::SUPPORTED.iter().filter(|known| names.contains(known.version)).collect()
}

/// The level of the metadata that is there, as Kafka says or as it said last.
fn level(world: &World) -> Option<i16> {
    let told = world.answers.quorum.known().and_then(|quorum| quorum.metadata_level);
    let name = world.kafka.status.as_ref().and_then(|status| status.kafka_metadata_version.as_deref());
    told.or_else(|| versions::metadata_level(name?))
}

/// The version that nodes are to run: the one that was asked for, unless it could not read what is there.
pub(crate) fn held(
    world: &World,
    asked: &'static KafkaVersion,
    notices: &mut Vec<Notice>,
) -> &'static KafkaVersion {
    let running = running(world);
    let Some(newest) = running.last().filter(|newest| newest.order() > asked.order()) else { return asked };
    let why = match level(world) {
        None => Some("Kafka has not said which metadata version it has".to_owned()),
        Some(level) if level > asked.level() => Some(format!(
            "its metadata version is {} (level {level}), and Kafka {asked} understands {} (level {}) at most; set spec.kafka.metadataVersion to that or an older one first",
            versions::metadata_name(level),
            asked.metadata,
            asked.level(),
        )),
        Some(_) => features_beyond(world, asked),
    };
    match why {
        None => asked,
        Some(why) => {
            notices.push(Notice::VersionHeld { asked: asked.version, kept: newest.version, why });
            newest
        }
    }
}

/// Other features that are in use and that a version does not know.
fn features_beyond(world: &World, asked: &KafkaVersion) -> Option<String> {
    let features = &world.answers.quorum.known()?.features;
    let beyond =
        features.iter().filter(|(name, _)| *name != "metadata.version").filter_map(|(name, level)| {
            let most = versions::feature_level(asked, name);
            (*level > most)
                .then(|| format!("{name} is at level {level}, and Kafka {asked} understands {most} at most"))
        });
    let beyond: Vec<_> = beyond.collect();
    (!beyond.is_empty()).then(|| beyond.join("; "))
}

/// The metadata version to go to, once every node runs the version that is asked for. That nothing is to restart any more is for
/// the caller to see.
pub(crate) fn metadata(world: &World, cluster: &Cluster) -> Option<MetadataChange> {
    let level = world.answers.quorum.known()?.metadata_level?;
    let wanted = versions::metadata_level(cluster.metadata_version)?;
    let asked_for = world.kafka.spec.kafka.metadata_version.is_some();
    let is_downgrade = wanted < level;
    if wanted == level || (is_downgrade && !asked_for) || !is_settled(world, cluster) {
        return None;
    }
    Some(MetadataChange { level: wanted, name: cluster.metadata_version, is_downgrade })
}

/// A broker that is gone and cannot be forgotten keeps the metadata version where it is: it counts with what it could do last.
/// One that Kafka is only about to forget is not worth a word.
pub(crate) fn waits_for(world: &World, change: &MetadataChange, gone: &BTreeSet<NodeId>) -> Option<Notice> {
    let failed = |node: &&NodeId| {
        let deed = Deed::Unregister(**node);
        world.troubles.iter().any(|trouble| trouble.deed == deed)
    };
    let brokers: BTreeSet<NodeId> = gone.iter().filter(failed).copied().collect();
    let is_held = !brokers.is_empty();
    is_held.then(|| Notice::MetadataWaits { name: change.name, brokers: health::list(&brokers) })
}

/// Does every node run the version that is asked for, and serve?
pub(crate) fn is_settled(world: &World, cluster: &Cluster) -> bool {
    let runs = |pod: &PodView| pod.is_serving() && version_of(pod) == Some(cluster.version);
    cluster.nodes().all(|node| world.pods.get(&cluster.pod_name(node)).is_some_and(|pod| runs(pod)))
        && world.pods.values().all(|pod| version_of(pod) == Some(cluster.version))
}

/// The metadata version to ask for: what the user says, or what goes with the version. A user's own is kept within what
/// the version that really runs can do.
pub(crate) fn wanted_metadata(
    spec: &api::KafkaClusterSpec,
    runs: &'static KafkaVersion,
) -> Option<&'static str> {
    match spec.metadata_version.as_deref() {
        None => Some(runs.metadata),
        Some(wanted) => versions::metadata_in_full(wanted).filter(|full| versions::can_run(runs, full)),
    }
}
