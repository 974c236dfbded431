//! Which version of Kafka the nodes run, and when the metadata version follows.
//!
//! Binaries first, the metadata version last: what Kafka has written in a newer form an older Kafka cannot read, so a version
//! that could not read what is there is refused before a single pod restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karst_api as api;

use crate::cluster::Cluster;
use crate::health;
use crate::ids::NodeId;
use crate::names::KAFKA_VERSION_ANNOTATION;
use crate::notice::Notice;
use crate::podset;
use crate::problem::Problem;
use crate::resolve::Resolved;
use crate::steps::Deed;
use crate::versions::{self, KafkaVersion};
use crate::world::{PodSetView, PodView, World};

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

/// What the nodes run; where none does, what they are to run, or ran last.
struct Running<'a> {
    /// The newest version of the table.
    newest: Option<&'static KafkaVersion>,
    /// Versions that are not in the table, and are not known to be older than the one that is asked for.
    unknown: BTreeSet<&'a str>,
}

fn running<'a>(world: &'a World, asked: &KafkaVersion) -> Running<'a> {
    let version = |annotations: &'a BTreeMap<String, String>| {
        annotations.get(KAFKA_VERSION_ANNOTATION).map_or("unknown", String::as_str)
    };
    let pods = world.pods.values().map(|pod| version(&pod.meta.annotations));
    let mut names: BTreeSet<&str> = pods.collect();
    if names.is_empty() {
        // What somebody else wrote into a pod set says nothing of what nodes ran.
        let is_ours =
            |(name, set): &(&String, &Arc<PodSetView>)| podset::is_rendered(set, world.rendered.get(*name));
        let ours = world.pod_sets.iter().filter(is_ours);
        names = ours.map(|(_, set)| version(&set.meta.annotations)).collect();
    }
    if names.is_empty() {
        let status = world.kafka.status.as_ref();
        names.extend(status.and_then(|status| status.kafka_version.as_deref()));
    }
    let newest = versions::SUPPORTED.iter().rfind(|known| names.contains(known.version));
    let is_older = |name: &str| order(name).is_some_and(|order| order < asked.order());
    let unknown = names.into_iter().filter(|name| versions::find(name).is_none() && !is_older(name));
    Running { newest, unknown: unknown.collect() }
}

/// The numbers of a version that is not in the table.
fn order(version: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next()??))
}

/// The metadata version that is there, as Kafka says or as it said last. The level of one that is newer than the table may not be
/// known.
fn metadata_there(world: &World) -> Option<(String, Option<i16>)> {
    let told = world.answers.quorum.known().and_then(|quorum| quorum.metadata_level);
    if let Some(level) = told {
        return Some((versions::metadata_name(level), Some(level)));
    }
    let name = world.kafka.status.as_ref()?.kafka_metadata_version.clone()?;
    // What has no name here was written down as its level.
    let level = versions::metadata_level(&name).or_else(|| name.parse().ok());
    Some((name, level))
}

/// Could the version that is asked for not read what is there? Says why. Features that are in use are known to all that runs, so
/// they are looked at only when `may_be_older`.
fn unreadable(world: &World, asked: &KafkaVersion, may_be_older: bool) -> Option<String> {
    let most = || format!("Kafka {asked} understands {} (level {}) at most", asked.metadata, asked.level());
    match metadata_there(world)? {
        (name, Some(level)) if level > asked.level() => Some(format!(
            "its metadata version is {name} (level {level}), and {}; set spec.kafka.metadataVersion to that or an older one first",
            most()
        )),
        (name, None) => {
            Some(format!("its metadata version is {name}, which is not known here, and {}", most()))
        }
        _ => may_be_older.then(|| features_beyond(world, asked)).flatten(),
    }
}

/// The version that nodes are to run: the one that was asked for, unless it could not read what is there.
///
/// What is there counts, whatever pods run: they may be of a version that is not in the table, or not be there at all. What
/// nodes run is kept then. Where that is not a version of the table it cannot be asked for, so the whole change is refused, and
/// nothing that runs is touched. The same holds when nobody says what is there and pods may be newer than what is asked for.
pub(crate) fn held(
    world: &World,
    asked: &'static KafkaVersion,
    resolved: &mut Resolved,
) -> &'static KafkaVersion {
    let Running { newest, unknown } = running(world, asked);
    let newer = newest.filter(|newest| newest.order() > asked.order());
    let may_be_older = newer.is_some() || !unknown.is_empty();
    let is_untold = may_be_older && metadata_there(world).is_none();
    let untold = is_untold.then(|| "Kafka has not said which metadata version it has".to_owned());
    let Some(why) = untold.or_else(|| unreadable(world, asked, may_be_older)) else { return asked };
    if let Some(kept) = newer.filter(|_| unknown.is_empty()) {
        resolved.notices.push(Notice::VersionHeld { asked: asked.version, kept: kept.version, why });
        return kept;
    }
    let runs: Vec<_> = unknown.iter().copied().chain(newest.map(|newest| newest.version)).collect();
    let runs = match runs.as_slice() {
        [] => "no node runs".to_owned(),
        runs => format!("the nodes run Kafka {}", runs.join(" and ")),
    };
    resolved.problems.push(Problem::VersionUnsafe { asked: asked.version, runs, why });
    asked
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
