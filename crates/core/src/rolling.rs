//! Which pods restart next, and why, or what keeps them from it.
//!
//! One at a time, controllers before brokers, what does not serve before what does, the leader of the quorum last. A pod
//! that does not come back stops the rest, so that a mistake hurts one node. What cannot be harmed need not be
//! asked about: a pod in which nothing runs is replaced at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::certificates::{self, Stale};
use crate::claims;
use crate::cluster::{Cluster, Node};
use crate::departed;
use crate::health;
use crate::ids::NodeId;
use crate::names::{
    DELETE_POD_AND_CLAIM_ANNOTATION, MANUAL_ROLL_ANNOTATION, RESTARTS_AT_ONCE_ANNOTATION, RESTORE_ANNOTATION,
    is_true,
};
use crate::notice::Notice;
use crate::reach;
use crate::revision::{self, VOLUMES};
use crate::steps::Mark;
use crate::storage_change;
use crate::world::{Answer, ClaimView, PartitionView, Partitions, PodView, World};

/// How soon to look again at what keeps a pod from its restart: Kafka does not tell.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How long a restart may be held before anybody is told: replicas need a moment to catch up after the last one.
const CALM: Duration = Duration::from_secs(20);
/// How long a node that does not serve, in a cluster that does not answer, is left to itself.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a pod restarts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// It runs with something else than what is asked for.
    Changed(Vec<&'static str>),
    /// The certificates that it started with are no longer good enough.
    Certificates(Stale),
    /// It knows none of the controllers that are to vote.
    QuorumMoved,
    /// It started with settings that are gone since.
    SettingsGone(Vec<String>),
    /// Somebody asked for it.
    Asked,
    /// Somebody asked for empty disks.
    EmptyDisks,
    /// It gets back the vote that it had before its disk was lost.
    Restored,
    /// The whole cluster starts over.
    FormedAnew,
    /// The file systems of these claims grow only when they are mounted anew.
    Resize(Vec<String>),
}

impl Cause {
    /// The reason of the event.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Changed(_) | Self::SettingsGone(_) => "PodHasOldRevision",
            Self::QuorumMoved => "QuorumMoved",
            Self::Certificates(stale) => stale.reason(),
            Self::Asked | Self::EmptyDisks => "ManualRollingUpdate",
            Self::Restored => "VoterRestored",
            Self::FormedAnew => "FormedAnew",
            Self::Resize(_) => "FileSystemResizeNeeded",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed(parts) => write!(f, "{} changed", parts.join(", ")),
            Self::Certificates(stale) => stale.fmt(f),
            Self::QuorumMoved => f.write_str("it knows none of the controllers that are to vote"),
            Self::SettingsGone(keys) => {
                write!(f, "it started with settings that are no longer set: {}", keys.join(", "))
            }
            Self::Asked => write!(f, "the annotation {MANUAL_ROLL_ANNOTATION} asks for it"),
            Self::EmptyDisks => {
                write!(f, "the annotation {DELETE_POD_AND_CLAIM_ANNOTATION} asks for it and for empty disks")
            }
            Self::Restored => {
                write!(f, "the annotation {RESTORE_ANNOTATION} gives it back its vote, on an empty disk")
            }
            Self::FormedAnew => f.write_str(
                "every disk of the cluster was ephemeral, and is gone: it is formed anew, without topics and records",
            ),
            Self::Resize(claims) => {
                write!(f, "file system resize: {} grew and must be mounted anew", claims.join(", "))
            }
        }
    }
}

/// A pod that is to be deleted, so that its successor takes its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restart {
    /// Its node.
    pub node: NodeId,
    /// Its name.
    pub pod: String,
    /// Which one.
    pub uid: String,
    /// Why.
    pub causes: Vec<Cause>,
    /// Disks that go with it: name and uid.
    pub claims: Vec<(String, String)>,
    /// Partitions that have too few replicas to be protected, and take no writes meanwhile.
    pub exposed: Option<String>,
}

impl Restart {
    /// Did a user ask for just this, by an annotation?
    pub fn is_asked_for(&self) -> bool {
        self.causes.iter().any(|cause| matches!(cause, Cause::Asked | Cause::EmptyDisks | Cause::Restored))
    }
}

/// What came of looking for the next restart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Roll {
    /// Restart these now.
    pub(crate) restarts: Vec<Restart>,
    /// What keeps others from it.
    pub(crate) notices: Vec<Notice>,
    /// Ask Kafka about partitions on these nodes.
    pub(crate) partitions_of: BTreeSet<NodeId>,
    /// Ask these brokers about their directories.
    pub(crate) log_dirs_of: BTreeSet<NodeId>,
    /// Ask Kafka about its quorum.
    pub(crate) asks_quorum: bool,
    /// When to look again.
    pub(crate) look_again: Option<Duration>,
}

/// A pod that is to restart.
#[derive(Debug)]
pub(crate) struct Due<'a> {
    pub(crate) node: Node<'a>,
    pub(crate) pod: &'a PodView,
    pub(crate) causes: Vec<Cause>,
}

impl Due<'_> {
    fn wants_empty_disks(&self) -> bool {
        self.causes.contains(&Cause::EmptyDisks)
    }

    /// Could it lose a directory by this? A broker that serves can say what is in it.
    fn may_lose_a_volume(&self) -> bool {
        let changes = |cause: &Cause| matches!(cause, Cause::Changed(parts) if parts.contains(&VOLUMES));
        self.pod.runs_broker() && self.pod.is_serving() && self.causes.iter().any(changes)
    }
}

/// The pods that are to restart, in the order of their nodes.
///
/// `outlived` are settings that nodes started with and that are gone since.
pub(crate) fn due<'a>(
    world: &'a World,
    cluster: &'a Cluster,
    outlived: &BTreeMap<NodeId, Vec<String>>,
) -> Vec<Due<'a>> {
    let voters: BTreeSet<String> = cluster.voters().map(|node| cluster.pod_name(node)).collect();
    let due_pod = |node: Node<'a>| due_pod(world, cluster, node, &voters, outlived.get(&node.id));
    let mut due: Vec<_> = cluster.nodes().filter_map(due_pod).collect();
    due.sort_by_key(|due| due.node.id);
    due
}

fn due_pod<'a>(
    world: &'a World,
    cluster: &Cluster,
    node: Node<'a>,
    voters: &BTreeSet<String>,
    outlived: Option<&Vec<String>>,
) -> Option<Due<'a>> {
    let name = cluster.pod_name(node);
    let pod = world.pods.get(&name).filter(|pod| !pod.meta.deleting)?;
    let wanted = world.pod_sets.get(&world.key.pod_set(&node.pool.name))?.pods.get(&name)?;
    let mut causes = Vec::new();
    let changed = revision::differences(pod.revision(), wanted.revision.as_deref());
    if !changed.is_empty() {
        causes.push(Cause::Changed(changed));
    }
    causes.extend(certificates::stale(world, pod).map(Cause::Certificates));
    if reach::is_cut_off(pod, voters) {
        causes.push(Cause::QuorumMoved);
    }
    causes.extend(outlived.cloned().map(Cause::SettingsGone));
    if is_true(Some(&pod.meta.annotations), MANUAL_ROLL_ANNOTATION) {
        causes.push(Cause::Asked);
    }
    if is_true(Some(&pod.meta.annotations), DELETE_POD_AND_CLAIM_ANNOTATION) {
        causes.push(Cause::EmptyDisks);
    }
    let grown = claims::awaiting_restart(world, cluster, node, pod);
    if !grown.is_empty() {
        causes.push(Cause::Resize(grown));
    }
    (!causes.is_empty()).then_some(Due { node, pod, causes })
}

/// Pod sets whose annotation asks for a restart of all their pods. Each pod carries the wish from then on: it goes with
/// the pod, so nobody has to remember which ones were done.
pub(crate) fn marks(world: &World, cluster: &Cluster) -> Vec<Mark> {
    let sets = cluster.pools.iter().filter_map(|pool| world.pod_sets.get(&world.key.pod_set(&pool.name)));
    let asked = sets.filter(|set| is_true(Some(&set.meta.annotations), MANUAL_ROLL_ANNOTATION));
    asked
        .map(|set| {
            let pods = set.pods.keys().filter_map(|name| world.pods.get(name));
            let pods = pods.filter(|pod| !is_true(Some(&pod.meta.annotations), MANUAL_ROLL_ANNOTATION));
            Mark {
                pod_set: set.meta.name.clone(),
                pods: pods.map(|pod| (pod.meta.name.clone(), pod.meta.uid.clone())).collect(),
            }
        })
        .collect()
}

/// Decides which of the pods that are to restart do so now.
pub(crate) fn next(world: &World, cluster: &Cluster, due: &[Due<'_>]) -> Roll {
    if due.is_empty() {
        return Roll::default();
    }
    let is_of_no_use = |pod: &PodView| pod.stuck.is_some() || certificates::has_ended(world, pod);
    let (broken, due): (Vec<_>, Vec<_>) =
        due.iter().partition(|due| is_of_no_use(due.pod) && !due.wants_empty_disks());
    if !broken.is_empty() {
        let restarts = broken.into_iter().map(|due| restart(world, due, None)).collect();
        return Roll { restarts, ..Roll::default() };
    }
    let absent = absent(world, cluster, &due);
    if !absent.is_empty() {
        let stuck = absent.into_iter().filter_map(|(pod, why)| Some(Notice::RollStopped { pod, why: why? }));
        return Roll { notices: stuck.collect(), ..Roll::default() };
    }
    Choice { world, cluster }.among(due)
}

/// Nodes that do not serve and need no restart: they are on their way, or do not come back.
fn absent(world: &World, cluster: &Cluster, due: &[&Due<'_>]) -> Vec<(String, Option<String>)> {
    let is_due = |node: Node<'_>| due.iter().any(|due| due.node.id == node.id);
    // Controllers that run once more have no part in anything that others do.
    let nodes = cluster.nodes().filter(|node| node.pool.name != departed::POOL && !is_due(*node));
    let absent = nodes.filter_map(|node| {
        let name = cluster.pod_name(node);
        match world.pods.get(&name) {
            Some(pod) if pod.is_serving() => None,
            Some(pod) => Some((name, pod.stuck.clone())),
            None => Some((name, None)),
        }
    });
    absent.collect()
}

fn restart(world: &World, due: &Due<'_>, exposed: Option<String>) -> Restart {
    let of_pod = |claim: &&std::sync::Arc<ClaimView>| {
        claim.meta.labels.get(crate::names::POD_NAME_LABEL) == Some(&due.pod.meta.name)
            && !claim.meta.deleting
    };
    let claims = world.claims.values().filter(|_| due.wants_empty_disks()).filter(of_pod);
    Restart {
        node: due.node.id,
        pod: due.pod.meta.name.clone(),
        uid: due.pod.meta.uid.clone(),
        causes: due.causes.clone(),
        claims: claims.map(|claim| (claim.meta.name.clone(), claim.meta.uid.clone())).collect(),
        exposed,
    }
}

/// Chooses among pods of which each could restart as far as the others are concerned.
struct Choice<'a> {
    world: &'a World,
    cluster: &'a Cluster,
}

impl Choice<'_> {
    fn among(&self, due: Vec<&Due<'_>>) -> Roll {
        let (controllers, brokers): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|due| due.pod.runs_controller());
        let group = if controllers.is_empty() { brokers } else { controllers };
        let serving: BTreeSet<NodeId> =
            group.iter().filter(|due| due.pod.runs_broker()).map(|due| due.node.id).collect();
        let asks_quorum = group.iter().any(|due| due.pod.runs_controller());
        let mut roll = Roll::default();
        if asks_quorum && !self.world.answers.quorum.was_asked() {
            roll.asks_quorum = true;
        }
        if !serving.is_empty() && !self.world.answers.partitions_of(&serving).was_asked() {
            roll.partitions_of.clone_from(&serving);
        }
        let answers = &self.world.answers.log_dirs;
        let unasked =
            group.iter().filter(|due| due.may_lose_a_volume() && !answers.contains_key(&due.node.id));
        roll.log_dirs_of = unasked.map(|due| due.node.id).collect();
        if roll.asks_quorum || !roll.partitions_of.is_empty() || !roll.log_dirs_of.is_empty() {
            return roll;
        }
        self.first(&self.ordered(group), &self.world.answers.partitions_of(&serving))
    }

    /// What does not serve first, the leader of the quorum last.
    fn ordered<'d>(&self, mut group: Vec<&'d Due<'d>>) -> Vec<&'d Due<'d>> {
        let leader = self.world.answers.quorum.known().map(|quorum| quorum.leader);
        group.sort_by_key(|due| (due.pod.ready, leader == Some(due.node.id), due.node.id));
        group
    }

    fn first(&self, group: &[&Due<'_>], partitions: &Answer<&Partitions>) -> Roll {
        let mut roll = Roll::default();
        let mut touched: BTreeSet<NodeId> = BTreeSet::new();
        for due in group {
            if roll.restarts.len() >= self.at_once(due) {
                break;
            }
            if !roll.restarts.is_empty() && touched.contains(&due.node.id) {
                continue;
            }
            match self.obstacle(due, partitions) {
                Some(why) => roll.notices.push(Notice::RestartHeld { pod: due.pod.meta.name.clone(), why }),
                None => {
                    let known = partitions.known();
                    let here = || known.into_iter().flat_map(|known| known.on(due.node.id));
                    touched.extend(here().flat_map(|partition| partition.replicas.iter().copied()));
                    let exposed: Vec<_> =
                        here().filter(|partition| is_exposed(partition, due.node.id)).collect();
                    let exposed = (!exposed.is_empty()).then(|| health::some_of(&exposed));
                    roll.restarts.push(restart(self.world, due, exposed));
                }
            }
        }
        if !roll.restarts.is_empty() || !self.is_calm() {
            // Others wait for their turn; that is not worth a word.
            roll.notices.clear();
        }
        roll.look_again = roll.restarts.is_empty().then_some(LOOK_AGAIN);
        roll
    }

    /// How many may restart together with this one: brokers only, and only if the user allows it.
    fn at_once(&self, due: &Due<'_>) -> usize {
        let annotations = self.world.kafka.metadata.annotations.as_ref();
        let allowed = annotations.and_then(|all| all.get(RESTARTS_AT_ONCE_ANNOTATION));
        let allowed = allowed.and_then(|count| count.parse().ok()).unwrap_or(1);
        if due.pod.runs_controller() { 1 } else { allowed.max(1) }
    }

    /// Was it some time ago that a pod came back?
    fn is_calm(&self) -> bool {
        let recent = |pod: &PodView| pod.since.is_some_and(|since| self.world.time_since(since) < CALM);
        !self
            .cluster
            .nodes()
            .any(|node| self.world.pods.get(&self.cluster.pod_name(node)).is_some_and(|pod| recent(pod)))
    }

    fn obstacle(&self, due: &Due<'_>, partitions: &Answer<&Partitions>) -> Option<String> {
        let quorum = due.pod.runs_controller().then(|| self.quorum_obstacle(due)).flatten();
        let quorum = quorum
            .or_else(|| due.pod.runs_broker().then(|| self.partition_obstacle(due, partitions)).flatten());
        quorum.or_else(|| {
            due.may_lose_a_volume().then(|| storage_change::lost_by_restart(self.world, due.node)).flatten()
        })
    }

    /// Has it been of no use for so long that a silent Kafka is no reason to leave it alone?
    fn is_given_up(&self, pod: &PodView) -> bool {
        !pod.ready && pod.since.is_some_and(|since| self.world.time_since(since) >= PATIENCE)
    }

    fn quorum_obstacle(&self, due: &Due<'_>) -> Option<String> {
        let quorum = match &self.world.answers.quorum {
            Answer::Known(quorum) => quorum,
            _ if self.is_given_up(due.pod) && !due.wants_empty_disks() => return None,
            Answer::Silent(why) => return Some(format!("the quorum does not answer ({why})")),
            Answer::NotAsked => return Some("the quorum was not asked".to_owned()),
        };
        if !quorum.has_voter(due.node.id) {
            return None;
        }
        if !due.node.pool.roles.has_controller() {
            return Some("it still votes in the quorum, and has to leave it first".to_owned());
        }
        let mut others = health::caught_up_without(self.world, quorum, due.node.id);
        if due.wants_empty_disks() {
            others.retain(|other| !health::is_losing_disk(self.world, *other));
        }
        // A vote that is lost with its disk does not come back: then a majority must be left, however few voters there are.
        let needed = match due.wants_empty_disks() {
            true => health::majority(quorum.voters.len()),
            false => health::needed_to_restart(quorum.voters.len()),
        };
        if others.len() >= needed {
            return None;
        }
        let votes = quorum.voters.iter().find(|voter| voter.node == due.node.id);
        let limit = health::fetch_timeout(self.world);
        let is_of_no_use = votes.is_some_and(|voter| !voter.is_caught_up(limit)) && !due.pod.ready;
        if is_of_no_use && !due.wants_empty_disks() {
            return None;
        }
        Some(format!(
            "{needed} of {} voters must stay up and caught up without it, and only these are: {}",
            quorum.voters.len(),
            if others.is_empty() { "none".to_owned() } else { health::list(&others) }
        ))
    }

    fn partition_obstacle(&self, due: &Due<'_>, partitions: &Answer<&Partitions>) -> Option<String> {
        let partitions = match partitions {
            Answer::Known(partitions) => partitions,
            _ if self.is_given_up(due.pod) && !due.wants_empty_disks() => return None,
            Answer::Silent(why) => {
                return Some(format!("Kafka does not say which partitions it has ({why})"));
            }
            Answer::NotAsked => return Some("Kafka was not asked which partitions it has".to_owned()),
        };
        let node = due.node.id;
        let on = |holds: fn(&PartitionView, NodeId, bool) -> bool| {
            let found: Vec<_> =
                partitions.on(node).filter(|partition| holds(partition, node, due.pod.ready)).collect();
            (!found.is_empty()).then(|| health::some_of(&found))
        };
        if !due.node.pool.roles.has_broker() {
            let here = on(|_, _, _| true)?;
            return Some(format!("it is to stop being a broker, and partitions live there: {here}"));
        }
        if due.wants_empty_disks() {
            let lost = on(|partition, node, _| !health::is_safe_without(partition, node))?;
            return Some(format!(
                "broker {node} is to start empty, and these would lack in-sync replicas: {lost}"
            ));
        }
        let held = on(holds)?;
        Some(format!(
            "without broker {node} these have fewer in-sync replicas than min.insync.replicas: {held}"
        ))
    }
}

/// Must the node stay up for the sake of this partition?
fn holds(partition: &PartitionView, node: NodeId, ready: bool) -> bool {
    let in_sync = partition.in_sync.len();
    let Some(least) = partition.min_in_sync else { return true };
    let protectable = partition.replicas.len() > least;
    let counts = partition.in_sync.contains(&node) && in_sync <= least;
    // It is about to become the replica that the partition lacks.
    let catches_up = ready && in_sync < least;
    protectable && (counts || catches_up)
}

/// Does the partition take no writes while the node is away, whatever anybody does?
fn is_exposed(partition: &PartitionView, node: NodeId) -> bool {
    partition.in_sync.contains(&node)
        && partition.min_in_sync.is_some_and(|least| partition.replicas.len() <= least.max(1))
}
