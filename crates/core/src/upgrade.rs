//! Which version of Kafka the nodes run, and when the metadata version follows.
//!
//! Binaries first, the metadata version last: what Kafka has written in a newer form an older Kafka cannot read, so a version
//! that could not read what is there is refused before a single pod restarts.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Cluster;
use crate::health;
use crate::ids::NodeId;
use crate::names::KAFKA_VERSION_ANNOTATION;
use crate::notice::Notice;
use crate::podset;
use crate::pools;
use crate::problem::Problem;
use crate::resolve::Resolved;
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
        let ours = podset::described_by_karst(world);
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
        world.memory.troubles.iter().any(|trouble| trouble.deed == deed)
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

/// The metadata version to go to: what the user says, or what goes with the version that runs.
///
/// One that cannot be had harms nothing that runs: the cluster keeps the one it has. A cluster that is not formed has none to keep, and
/// is refused.
pub(crate) fn wanted_metadata(
    world: &World,
    runs: &'static KafkaVersion,
    resolved: &mut Resolved,
) -> Option<&'static str> {
    let Some(asked) = world.kafka.spec.kafka.metadata_version.as_deref() else { return Some(runs.metadata) };
    let known = versions::metadata_in_full(asked);
    let is_possible = known.is_some_and(|known| versions::can_run(runs, known));
    if !pools::quorum_is_formed(world) {
        if !is_possible {
            resolved.problems.push(Problem::UnknownMetadataVersion {
                metadata: asked.to_owned(),
                kafka: runs.version,
                newest: runs.metadata,
            });
        }
        return known.filter(|_| is_possible);
    }
    let why = match known {
        Some(known) if is_possible => breaks_volumes(world, known),
        _ => Some(format!("Kafka {runs} cannot run that, its newest is {}", runs.metadata)),
    };
    let Some(why) = why else { return known };
    let there = metadata_there(world).and_then(|(name, _)| versions::metadata_in_full(&name));
    // When Kafka has never said it, nothing is changed before it does.
    let kept = there.filter(|there| versions::can_run(runs, there)).unwrap_or(runs.metadata);
    resolved.notices.push(Notice::MetadataVersionHeld { asked: asked.to_owned(), kept, why });
    Some(kept)
}

/// Would brokers that have several volumes not start again with this metadata version?
fn breaks_volumes(world: &World, metadata: &str) -> Option<String> {
    let level = versions::metadata_level(metadata)?;
    if level >= versions::SEVERAL_VOLUMES {
        return None;
    }
    let pool = pools::with_several_volumes(world).next()?;
    let first = versions::metadata_name(versions::SEVERAL_VOLUMES);
    Some(format!(
        "brokers of pool '{pool}' have more than one volume, and need metadata version {first} or newer"
    ))
}

/// The level that nodes have to get on with: that of the metadata version which is there, or of the one to go to.
pub(crate) fn lowest_metadata(world: &World, wanted: Option<&str>) -> Option<i16> {
    let there = metadata_there(world).and_then(|(_, level)| level);
    there.into_iter().chain(wanted.and_then(versions::metadata_level)).min()
}

/// Pods that no pool of the cluster has, that run another version, and that Kafka counts with what they can do: the metadata version
/// waits for them, and nothing that is done to the cluster's nodes ends that.
pub(crate) fn waits_for_pods(world: &World, cluster: &Cluster) -> Option<Notice> {
    let level = world.answers.quorum.known()?.metadata_level?;
    let wanted = versions::metadata_level(cluster.metadata_version)?;
    let nodes: BTreeSet<String> = cluster.nodes().map(|node| cluster.pod_name(node)).collect();
    let others = world.pods.iter().filter(|(name, pod)| {
        !nodes.contains(*name) && !pod.meta.deleting && version_of(pod) != Some(cluster.version)
    });
    let others: Vec<_> = others.map(|(name, _)| name.as_str()).collect();
    let is_held = wanted > level && !others.is_empty();
    is_held.then(|| Notice::MetadataWaitsForPods {
        name: cluster.metadata_version,
        pods: health::some_of(&others),
    })
}
