//! May these nodes stop, and may these lose their disks, now?
//!
//! Whatever stops a pod, or empties or removes a disk that may hold records, asks here: restarts of every cause, nodes that move
//! to another pool, disks that are replaced. The question is always about a set: three brokers of which each could be missed
//! because of the other two cannot be missed together. What is already on its way out, restarting, or not back in its ISRs
//! counts as missing.
//!
//! What is not known is not safe. It holds whatever serves, recovers its logs, or would lose its disk. A node that does none of
//! these may always restart: nothing can be lost with it, and it may be what the rest waits for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::cluster::Node;
use crate::health;
use crate::ids::NodeId;
use crate::names::{ALLOW_LOSS_ANNOTATION, POD_NAME_LABEL, node_of_pod};
use crate::storage::Medium;
use crate::world::{
    Answer, ClaimView, PartitionView, Partitions, PartitionsByNode, PodView, Recovery, World,
};

/// How long a node that does not serve, in a cluster that does not answer, is left to itself.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the leaders of partitions may take to tell a new leader of the controllers who fell behind while there was none.
const UNTOLD: Duration = Duration::from_secs(2);

/// When the new leader of the controllers has been told who fell behind, if it has just begun.
pub(crate) fn until_told(world: &World) -> Option<Duration> {
    let left = UNTOLD.checked_sub(world.answers.quorum.known()?.stable_for)?;
    (!left.is_zero()).then_some(left)
}

/// Is this a controller that does not serve, and did a person say that what only it had may be lost? A voter of a static quorum starts
/// on an empty disk then, whatever the others have, as soon as [`crate::let_in`] lets it.
pub(crate) fn may_start_anew(world: &World, pod: &str) -> bool {
    waits_to_serve(world, pod) && is_allowed_to_lose(world, pod)
}

/// Is this a controller that does not serve?
pub(crate) fn waits_to_serve(world: &World, pod: &str) -> bool {
    world.pods.get(pod).is_none_or(|pod| pod.runs_controller() && !pod.is_serving())
}

/// What becomes of a node's disks when its pod stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disks {
    /// The next pod finds them as they were.
    Stay,
    /// They go with the pod, or hold nothing afterwards.
    Go,
}

/// Nodes that are to stop together, and what becomes of their disks.
pub(crate) type Stop = BTreeMap<NodeId, Disks>;

/// What a node does for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Service {
    /// It serves, or may do so as far as anybody can tell.
    Serves,
    /// It reads its logs anew. Whoever stops it makes it begin again.
    Recovers(Option<Recovery>),
    /// Nobody can say whether it recovers its logs.
    Untold(String),
    /// It runs and does not serve, by what was seen of it. It may be back by now, unless it has been late for long.
    Late { for_long: bool },
    /// Nothing: it does not run.
    Idle,
}

/// Why nodes may not stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Kafka does not say what would be missed.
    Unknown(String),
    /// The controllers have a new leader, which may not have been told yet who fell behind.
    NewLeader { node: NodeId },
    /// These have no leader: which disk has what was acknowledged is not known.
    NoLeader { node: NodeId, partitions: String },
    /// Of these Kafka does not tell the minimum.
    NoMinimum { node: NodeId, partitions: String },
    /// These would take no writes.
    BelowMinimum { node: NodeId, partitions: String },
    /// These have as many replicas as their minimum, or fewer, and another replica is not in sync yet.
    OthersBehind { node: NodeId, partitions: String },
    /// It is about to become a replica that these lack.
    CatchesUp { node: NodeId, partitions: String },
    /// Its disk goes, and not all other replicas of these are in sync.
    LosesCopy { node: NodeId, partitions: String },
    /// Its disk goes, and nobody else has these.
    LosesOnlyCopy { node: NodeId, partitions: String },
    /// Its disk goes, and whether it holds something that nobody else has is not known.
    LosesUnknown { node: NodeId, why: String },
    /// It recovers its logs.
    Recovers { node: NodeId, progress: Option<Recovery> },
    /// It runs and does not serve yet, and may do so any moment.
    ComesBack { node: NodeId },
    /// It runs and does not serve yet, and these wait for it.
    NotBackYet { node: NodeId, partitions: String },
    /// It does not serve, and does not say whether it recovers its logs.
    RecoveryUnknown { node: NodeId, why: String },
}

impl Obstacle {
    /// Can only a person decide this, because waiting changes nothing?
    pub(crate) fn needs_a_person(&self) -> bool {
        matches!(self, Self::LosesOnlyCopy { .. })
    }

    /// The same, of a node that has been of no use for so long that nobody else will say more.
    pub(crate) fn needs_a_person_in_the_end(&self) -> bool {
        self.needs_a_person() || matches!(self, Self::LosesUnknown { .. })
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(why) => write!(f, "Kafka does not say which partitions it has ({why})"),
            Self::NewLeader { node } => write!(
                f,
                "the controllers have just elected a leader, and it may not know yet which replicas of partitions of broker {node} are in sync"
            ),
            Self::NoLeader { node, partitions } => write!(
                f,
                "broker {node} has replicas of partitions without a leader, and may have the only complete copy: {partitions}"
            ),
            Self::NoMinimum { node, partitions } => write!(
                f,
                "Kafka does not tell min.insync.replicas of partitions that broker {node} has: {partitions}"
            ),
            Self::BelowMinimum { node, partitions } => write!(
                f,
                "without broker {node} these have fewer in-sync replicas than min.insync.replicas: {partitions}"
            ),
            Self::OthersBehind { node, partitions } => {
                write!(f, "other replicas of partitions of broker {node} are not in sync yet: {partitions}")
            }
            Self::CatchesUp { node, partitions } => write!(
                f,
                "broker {node} is catching up, and these have fewer in-sync replicas than min.insync.replicas: {partitions}"
            ),
            Self::LosesCopy { node, partitions } => write!(
                f,
                "broker {node} loses its disk by this, and not all other replicas of these are in sync: {partitions}"
            ),
            Self::LosesOnlyCopy { node, partitions } => {
                write!(f, "broker {node} loses its disk by this, and has the only copy of: {partitions}")
            }
            Self::LosesUnknown { node, why } => {
                write!(f, "node {node} loses its disk by this, and nobody can say what only it has ({why})")
            }
            Self::Recovers { node, progress } => {
                write!(f, "broker {node} recovers its logs after an unclean stop")?;
                if let Some(Recovery { done, all }) = progress.filter(|progress| progress.all > 0) {
                    write!(f, " ({done} of {all} logs)")?;
                }
                f.write_str(", and would have to begin again")
            }
            Self::ComesBack { node } => write!(
                f,
                "broker {node} runs and does not serve yet, and is given {} s to come back",
                PATIENCE.as_secs()
            ),
            Self::NotBackYet { node, partitions } => write!(
                f,
                "broker {node} is not back yet, and these partitions wait for it: {partitions}; if it does not come back, delete its pod"
            ),
            Self::RecoveryUnknown { node, why } => write!(
                f,
                "broker {node} does not serve, and its launcher does not say whether it recovers its logs ({why}); if it does not, delete its pod"
            ),
        }
    }
}

/// The pods that a person lets lose what only they have.
pub(crate) fn may_lose(world: &World) -> impl Iterator<Item = &str> {
    let annotations = world.kafka.metadata.annotations.as_ref();
    let named = annotations.and_then(|all| all.get(ALLOW_LOSS_ANNOTATION)).map_or("", String::as_str);
    named.split([',', ' ']).map(str::trim).filter(|name| !name.is_empty())
}

/// Did a person say that this pod may lose what only it has?
pub(crate) fn is_allowed_to_lose(world: &World, pod: &str) -> bool {
    may_lose(world).any(|named| named == pod)
}

/// Pods of which a claim is being deleted that may hold something.
pub(crate) fn pods_losing_claims(world: &World) -> BTreeSet<&String> {
    let going = world.claims.values().filter_map(|claim| {
        let pod = claim.meta.labels.get(POD_NAME_LABEL)?;
        goes_with(claim, world.pods.get(pod).map(AsRef::as_ref)).then_some(pod)
    });
    going.collect()
}

/// Is a claim on its way out, and something on it may be lost with its pod? A claim outlives its pods: what another one wrote is on it,
/// whatever has become of this one. One that never got a volume holds nothing, unless its pod served all the same.
pub(crate) fn goes_with(claim: &ClaimView, pod: Option<&PodView>) -> bool {
    claim.meta.deleting && (claim.bound || pod.is_some_and(|pod| pod.was_ready))
}

/// What becomes of a node's disks when its pod is replaced by one with the same claims.
pub(crate) fn disks_of(
    world: &World,
    node: Node<'_>,
    pod: &PodView,
    pods_losing_claims: &BTreeSet<&String>,
) -> Disks {
    // A claim that is not seen may be gone.
    let stays = |name: String| world.claims.get(&name).is_some_and(|claim| !goes_with(claim, Some(pod)));
    let is_kept = |medium: &Medium, claim: Option<String>| match medium {
        // The pod's own disk came with it: if it never served, nothing on it was acknowledged.
        Medium::Ephemeral { .. } => !pod.was_ready,
        Medium::Claim { .. } => claim.is_some_and(stays),
    };
    let disks = node.pool.storage.disks().iter();
    let mut kept = disks.map(|disk| is_kept(&disk.medium, disk.claim_name(&pod.meta.name)));
    // Also one of a volume that the pool no longer has, and the pod still does.
    let is_any_going = pods_losing_claims.contains(&pod.meta.name);
    if kept.all(|kept| kept) && !is_any_going { Disks::Stay } else { Disks::Go }
}

/// What a broker does for others.
pub(crate) fn service(world: &World, node: NodeId, pod: &PodView) -> Service {
    if pod.has_ready_kafka() {
        return Service::Serves;
    }
    // Kafka counts on a broker that died until its session ends: while it reads its logs already.
    let said = world.answers.launchers.get(&node).and_then(Answer::known);
    if let Some(recovery) = said.and_then(|said| said.recovery) {
        return Service::Recovers(Some(recovery).filter(|recovery| recovery.all > 0));
    }
    if is_unfenced(world, node) {
        return Service::Serves;
    }
    // It came back since Kafka was asked: what Kafka said of its partitions is from before, too.
    if said.is_some_and(|said| said.serves) {
        return Service::Late { for_long: false };
    }
    if pod.stuck.is_some() || pod.phase != "Running" {
        return Service::Idle;
    }
    match world.answers.launchers.get(&node) {
        Some(Answer::Known(_)) => Service::Late { for_long: is_given_up(world, pod) },
        Some(Answer::Silent(why)) => Service::Untold(why.clone()),
        Some(Answer::NotAsked) | None => Service::Untold("it was not asked".to_owned()),
    }
}

/// Does Kafka count on the broker, whatever its pod says?
fn is_unfenced(world: &World, node: NodeId) -> bool {
    let registered = world.answers.registered.known();
    registered.is_some_and(|known| known.brokers.iter().any(|broker| broker.node == node && !broker.fenced))
}

/// Has it been of no use for so long that a silent Kafka is no reason to leave it alone?
pub(crate) fn is_given_up(world: &World, pod: &PodView) -> bool {
    !pod.has_ready_kafka() && pod.since.is_some_and(|since| world.time_since(since) >= PATIENCE)
}

/// Judges which brokers can be missed.
#[derive(Debug)]
pub(crate) struct Judge<'a> {
    partitions: &'a Answer<&'a Partitions>,
    by_node: PartitionsByNode<'a>,
    /// Those whose disks go with their pods.
    losing_disks: BTreeSet<NodeId>,
    /// The brokers that serve, are to stay, and keep up with the controllers. One that is cut off from them is about to be fenced, and
    /// then it leads nothing.
    counted_on: BTreeSet<NodeId>,
    /// Has the leader of the controllers just begun? Who is in sync is what was true before, then.
    leader_is_new: bool,
}

impl<'a> Judge<'a> {
    /// By what is known of the world, and of the partitions on these brokers.
    pub(crate) fn new(world: &'a World, partitions: &'a Answer<&'a Partitions>) -> Self {
        let counted_on = brokers_up(world).intersection(&world.current_nodes()).copied().collect();
        let by_node = partitions.known().map(|known| known.by_node()).unwrap_or_default();
        let leader_is_new = until_told(world).is_some();
        Self { partitions, by_node, losing_disks: health::losing_disks(world), counted_on, leader_is_new }
    }

    /// The partitions with a copy on one of the brokers that were asked about.
    pub(crate) fn on(&self, node: NodeId) -> &[&'a PartitionView] {
        self.by_node.on(node)
    }

    /// What keeps a broker from stopping beside those that stop already.
    pub(crate) fn obstacle(&self, node: NodeId, service: &Service, stop: &Stop) -> Option<Obstacle> {
        self.obstacle_to_cure(node, service, stop, &BTreeSet::new())
    }

    /// The same, for a stop that these nodes wait for. They cannot come back before: what they lack is no reason against it.
    pub(crate) fn obstacle_to_cure(
        &self,
        node: NodeId,
        service: &Service,
        stop: &Stop,
        waiting: &BTreeSet<NodeId>,
    ) -> Option<Obstacle> {
        let loses = stop.get(&node) == Some(&Disks::Go);
        match service {
            Service::Recovers(progress) => return Some(Obstacle::Recovers { node, progress: *progress }),
            // Between Kafka's answer and its end it could come back to its ISRs, and others could count on it.
            Service::Late { for_long: false } => return Some(Obstacle::ComesBack { node }),
            _ if loses => {}
            Service::Untold(why) => return Some(Obstacle::RecoveryUnknown { node, why: why.clone() }),
            Service::Idle => return None,
            Service::Late { for_long: true } if !self.is_back(node) => {
                return self.awaited_by(node).map(|partitions| Obstacle::NotBackYet { node, partitions });
            }
            Service::Late { .. } | Service::Serves => {}
        }
        if self.partitions.known().is_none() {
            let why = self.partitions.silence();
            return Some(match loses {
                true => Obstacle::LosesUnknown { node, why },
                false => Obstacle::Unknown(why),
            });
        }
        if self.leader_is_new && !self.on(node).is_empty() {
            return Some(Obstacle::NewLeader { node });
        }
        let mut found: BTreeMap<Concern, Vec<&PartitionView>> = BTreeMap::new();
        for partition in self.on(node).iter().copied() {
            let concern = match loses {
                true => self.concern_of_loss(partition, node, service, stop, waiting),
                false => self.concern_of_stop(partition, node, stop, waiting),
            };
            if let Some(concern) = concern {
                found.entry(concern).or_default().push(partition);
            }
        }
        let (concern, partitions) = found.into_iter().next()?;
        Some(concern.of(node, health::some_of(&partitions)))
    }

    /// What keeps a broker that does not run from starting without the disk that it had: that Kafka could elect it, and nobody else who
    /// has everything.
    pub(crate) fn obstacle_to_empty_start(&self, node: NodeId) -> Option<Obstacle> {
        if self.partitions.known().is_none() {
            return Some(Obstacle::LosesUnknown { node, why: self.partitions.silence() });
        }
        let mut found: BTreeMap<Concern, Vec<&PartitionView>> = BTreeMap::new();
        for partition in self.on(node).iter().copied() {
            if let Some(concern) = self.concern_of_empty_start(partition, node) {
                found.entry(concern).or_default().push(partition);
            }
        }
        let (concern, partitions) = found.into_iter().next()?;
        Some(concern.of(node, health::some_of(&partitions)))
    }

    /// Whoever is in sync, or was among the last that had everything, may be elected.
    fn concern_of_empty_start(&self, partition: &PartitionView, node: NodeId) -> Option<Concern> {
        if partition.leader.is_some() && !partition.holders().any(|holder| holder == node) {
            return None;
        }
        // Others that serve, and cannot lead, wait for it too.
        let is_no_help = |holder: NodeId| {
            holder == node || (partition.leader.is_none() && self.counted_on.contains(&holder))
        };
        if partition.holders().any(|holder| holder == node) && partition.holders().all(is_no_help) {
            return Some(Concern::LosesOnlyCopy);
        }
        let is_elsewhere = self.up_in_sync(partition, &Stop::from([(node, Disks::Go)])).next().is_some();
        match partition.leader {
            Some(leader) if leader != node && is_elsewhere && !partition.in_sync.contains(&node) => None,
            Some(_) => Some(Concern::LosesCopy),
            None => Some(Concern::NoLeader),
        }
    }

    /// Does Kafka count on a broker that was late a moment ago? One that is fenced is in no ISR but as the last one, and then nobody
    /// leads.
    fn is_back(&self, node: NodeId) -> bool {
        self.on(node).iter().any(|one| one.leader.is_some() && one.in_sync.contains(&node))
    }

    /// Partitions that nobody leads before the broker is back. It may be about to: a broker that has read its logs needs some
    /// seconds more until it serves.
    fn awaited_by(&self, node: NodeId) -> Option<String> {
        let waits = |one: &&PartitionView| one.leader.is_none() && one.holders().any(|holder| holder == node);
        let waiting: Vec<_> = self.on(node).iter().copied().filter(waits).collect();
        (!waiting.is_empty()).then(|| health::some_of(&waiting))
    }

    /// Its disk stays: only what it serves now is missed.
    fn concern_of_stop(
        &self,
        partition: &PartitionView,
        node: NodeId,
        stop: &Stop,
        waiting: &BTreeSet<NodeId>,
    ) -> Option<Concern> {
        let is_in_sync = partition.in_sync.contains(&node);
        let can_catch_up = !is_in_sync && !partition.offline.contains(&node);
        if partition.leader.is_none() {
            // Nobody else could lead: a restart may even help.
            let is_free = |holder: NodeId| stop.contains_key(&holder) || waiting.contains(&holder);
            let is_theirs = partition.holders().all(is_free);
            return (!is_theirs || partition.holders().next().is_none()).then_some(Concern::NoLeader);
        }
        let Some(least) = partition.min_in_sync else { return Some(Concern::NoMinimum) };
        let left = self.up_in_sync(partition, stop).count();
        let replicas = || partition.replicas.difference(waiting);
        if replicas().count() > least {
            return match (is_in_sync, can_catch_up) {
                (true, _) if left < least => Some(Concern::BelowMinimum),
                (_, true) if partition.in_sync.len() < least => Some(Concern::CatchesUp),
                _ => None,
            };
        }
        // It takes no writes without one of its replicas, whatever anybody does. One after the other, then.
        let others = replicas().filter(|other| !stop.contains_key(other)).count();
        (left < others).then_some(Concern::OthersBehind)
    }

    /// Its disk goes: what is on it must be everywhere else.
    fn concern_of_loss(
        &self,
        partition: &PartitionView,
        node: NodeId,
        service: &Service,
        stop: &Stop,
        waiting: &BTreeSet<NodeId>,
    ) -> Option<Concern> {
        let loses = |node: &NodeId| stop.get(node) == Some(&Disks::Go);
        let may_have_all = partition.leader.is_none() || partition.holders().any(|holder| holder == node);
        if !may_have_all {
            let is_missed = match service {
                Service::Idle => false,
                Service::Late { .. } => self.is_back(node),
                _ => true,
            };
            return is_missed.then(|| self.concern_of_stop(partition, node, stop, waiting)).flatten();
        }
        let others: Vec<_> = partition.replicas.iter().filter(|other| !loses(other)).collect();
        let has_holders = partition.holders().next().is_some();
        if others.is_empty() || (has_holders && partition.holders().all(|holder| loses(&holder))) {
            return Some(Concern::LosesOnlyCopy);
        }
        if partition.leader.is_none() {
            return Some(Concern::NoLeader);
        }
        let Some(least) = partition.min_in_sync else { return Some(Concern::NoMinimum) };
        let left = self.up_in_sync(partition, stop).filter(|other| !self.losing_disks.contains(other));
        let left = left.count();
        let takes_writes = left >= least || partition.replicas.len() <= least;
        (left < others.len() || !takes_writes).then_some(Concern::LosesCopy)
    }

    /// The nodes that stay, have a complete copy, and can be counted on.
    fn up_in_sync<'p>(
        &'p self,
        partition: &'p PartitionView,
        stop: &'p Stop,
    ) -> impl Iterator<Item = NodeId> + 'p {
        let in_sync = partition.in_sync.intersection(&self.counted_on).copied();
        in_sync.filter(|node| !stop.contains_key(node) && !partition.offline.contains(node))
    }
}

/// What is wrong with one partition, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Concern {
    LosesOnlyCopy,
    LosesCopy,
    NoLeader,
    NoMinimum,
    BelowMinimum,
    OthersBehind,
    CatchesUp,
}

impl Concern {
    fn of(self, node: NodeId, partitions: String) -> Obstacle {
        match self {
            Self::LosesOnlyCopy => Obstacle::LosesOnlyCopy { node, partitions },
            Self::LosesCopy => Obstacle::LosesCopy { node, partitions },
            Self::NoLeader => Obstacle::NoLeader { node, partitions },
            Self::NoMinimum => Obstacle::NoMinimum { node, partitions },
            Self::BelowMinimum => Obstacle::BelowMinimum { node, partitions },
            Self::OthersBehind => Obstacle::OthersBehind { node, partitions },
            Self::CatchesUp => Obstacle::CatchesUp { node, partitions },
        }
    }
}

/// The brokers whose pods serve, and are to stay. One that its pod set no longer lists is on its way out.
fn brokers_up(world: &World) -> BTreeSet<NodeId> {
    let is_listed = |name: &str| world.pod_sets.values().any(|set| set.pods.contains_key(name));
    let is_up = |name: &str, pod: &PodView| pod.serves_kafka() && pod.runs_broker() && is_listed(name);
    let up = world.pods.iter().filter(|(name, pod)| is_up(name, pod));
    up.filter_map(|(name, _)| node_of_pod(name)).collect()
}

/// Nodes that pod sets ask for, or that are on their way out, and that do not serve.
pub(crate) fn nodes_missing(world: &World) -> BTreeSet<NodeId> {
    let listed: BTreeSet<&String> = world.pod_sets.values().flat_map(|set| set.pods.keys()).collect();
    let serves =
        |name: &String| listed.contains(name) && world.pods.get(name).is_some_and(|pod| pod.is_serving());
    let names = listed.iter().copied().chain(world.pods.keys());
    names.filter(|name| !serves(name)).filter_map(|name| node_of_pod(name)).collect()
}

/// That a node recovers its logs, and how far it is.
pub(crate) fn recovery(world: &World, node: NodeId) -> Option<String> {
    let Recovery { done, all } = world.answers.launchers.get(&node)?.known()?.recovery?;
    Some(match all {
        0 => "recovers its logs".to_owned(),
        all => format!("recovers its logs: {done} of {all} done"),
    })
}

/// Brokers that have not served for a while. That they recover their logs is told.
pub(crate) fn late_brokers(world: &World) -> BTreeMap<NodeId, String> {
    let late = world.pods.iter().filter(|(_, pod)| pod.runs_broker() && is_given_up(world, pod));
    launcher_hosts(world, late.filter_map(|(name, _)| node_of_pod(name)))
}

/// Brokers of which it matters whether they recover their logs: they run and do not serve.
pub(crate) fn launcher_hosts(
    world: &World,
    nodes: impl IntoIterator<Item = NodeId>,
) -> BTreeMap<NodeId, String> {
    let wanted: BTreeSet<NodeId> = nodes.into_iter().collect();
    let is_doubtful = |pod: &PodView| {
        let is_late = !pod.has_ready_kafka() && !pod.meta.deleting;
        is_late && pod.stuck.is_none() && pod.phase == "Running"
    };
    let pods = world.pods.iter().filter(|(_, pod)| is_doubtful(pod));
    let hosts = pods.filter_map(|(name, _)| {
        let node = node_of_pod(name).filter(|node| wanted.contains(node))?;
        Some((node, world.key.pod_host(name, &world.settings.cluster_domain)))
    });
    hosts.filter(|(node, _)| !world.answers.launchers.contains_key(node)).collect()
}
