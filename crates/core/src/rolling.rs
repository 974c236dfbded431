//! Which pods restart next, and why, or what keeps them from it.
//!
//! One at a time, controllers before brokers, what does not serve before what does, the leader of the quorum last. A pod
//! that does not come back stops the rest, so that a mistake hurts one node. Whether a pod can be missed, and its disk with it,
//! is for [`crate::safety`] to say. What cannot be harmed need not be asked about: a pod in which nothing runs, and whose disks
//! stay, is replaced at once. A controller whose disk goes with its pod leaves the quorum first, and joins it again afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::absences::PATIENCE;
use crate::certificates::{self, Inside, Stale};
use crate::claims;
use crate::cluster::{Cluster, Node, Roles};
use crate::departed;
use crate::health;
use crate::ids::NodeId;
use crate::membership;
use crate::names::{
    BROKER_ROLE_LABEL, CONTROLLER_ROLE_LABEL, DELETE_POD_AND_CLAIM_ANNOTATION, MANUAL_ROLL_ANNOTATION,
    POD_NAME_LABEL, RESTARTS_AT_ONCE_ANNOTATION, RESTORE_ANNOTATION, is_true,
};
use crate::notice::Notice;
use crate::reach;
use crate::reason::Reason;
use crate::revision::{self, VOLUMES};
use crate::safety::{self, Disks, Judge, Stop};
use crate::status;
use crate::steps::Mark;
use crate::storage_change;
use crate::world::{Answer, ClaimView, PartitionView, Partitions, PodView, QuorumView, World};

/// How soon to look again at what keeps a pod from its restart: Kafka does not tell.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How long a restart may be held before anybody is told: replicas need a moment to catch up after the last one.
const CALM: Duration = Duration::from_secs(20);

/// For so long a pod that was made anew counts as one that was just restarted.
const RESTARTED: Duration = Duration::from_secs(300);

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
    /// It does not run, and cannot start on these claims: they are being deleted, and are kept for its sake.
    ClaimsGo(Vec<String>),
}

impl Cause {
    fn cannot_wait(&self) -> bool {
        matches!(self, Self::Certificates(Stale::EndsSoon(_)))
    }

    /// The reason of the event.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Changed(_) | Self::SettingsGone(_) => Reason::PodHasOldRevision,
            Self::QuorumMoved => Reason::QuorumMoved,
            Self::Certificates(stale) => stale.reason(),
            Self::Asked | Self::EmptyDisks => Reason::ManualRollingUpdate,
            Self::Restored => Reason::VoterRestored,
            Self::FormedAnew => Reason::FormedAnew,
            Self::Resize(_) => Reason::FileSystemResizeNeeded,
            Self::ClaimsGo(_) => Reason::ClaimDeleted,
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
            Self::ClaimsGo(claims) => {
                write!(f, "it cannot start on what is being deleted: PVC {}", claims.join(", "))
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
    /// Disks on which its successor is to start: they must be there, and not on their way out, or it would start empty.
    pub keeps: Vec<(String, String)>,
    /// Does a disk go with it? Look once more whether that is still wanted: it cannot be undone.
    pub loses_disk: bool,
    /// Partitions that have too few replicas, or too few in sync, to be protected, and take no writes meanwhile.
    pub exposed: Option<String>,
    /// That fewer than a majority of the voters is left meanwhile.
    pub leaderless: Option<String>,
}

impl Restart {
    /// Did a user ask for just this, by an annotation?
    pub fn is_asked_for(&self) -> bool {
        self.causes.iter().any(|cause| matches!(cause, Cause::Asked | Cause::EmptyDisks | Cause::Restored))
    }

    /// Is this still the pod that is to lose its disk, and does it carry all that was asked of it? A wish may have been taken back since.
    pub fn is_still_asked_of(&self, pod: &PodView) -> bool {
        let asks = |cause: &Cause, annotation: &str| {
            !self.causes.contains(cause) || is_true(Some(&pod.meta.annotations), annotation)
        };
        pod.meta.uid == self.uid
            && !pod.meta.deleting
            && asks(&Cause::EmptyDisks, DELETE_POD_AND_CLAIM_ANNOTATION)
            && asks(&Cause::Asked, MANUAL_ROLL_ANNOTATION)
    }

    /// Is it about to be too late for it?
    pub fn cannot_wait(&self) -> bool {
        self.causes.iter().any(Cause::cannot_wait)
    }
}

/// What came of looking for the next restart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Roll {
    /// Restart these now.
    pub(crate) restarts: Vec<Restart>,
    /// This controller's disk goes with its pod. It leaves the quorum first.
    pub(crate) leaves_first: Option<NodeId>,
    /// What keeps others from it.
    pub(crate) notices: Vec<Notice>,
    /// Ask Kafka about partitions on these nodes.
    pub(crate) partitions_of: BTreeSet<NodeId>,
    /// Ask these brokers about their directories.
    pub(crate) log_dirs_of: BTreeSet<NodeId>,
    /// Ask the launchers of these nodes.
    pub(crate) launchers: BTreeMap<NodeId, String>,
    /// Ask Kafka about its quorum.
    pub(crate) asks_quorum: bool,
    /// When to look again.
    pub(crate) look_again: Option<Duration>,
}

impl Roll {
    pub(crate) fn asks(&self) -> bool {
        self.asks_quorum
            || !self.partitions_of.is_empty()
            || !self.log_dirs_of.is_empty()
            || !self.launchers.is_empty()
    }

    /// What it is, or else what another is that has something to do; what is to be told of both.
    pub(crate) fn or(mut self, other: Self) -> Self {
        if self.asks() || self.has_begun() {
            return self;
        }
        self.look_again = self.look_again.into_iter().chain(other.look_again).min();
        let (notices, look_again) = (std::mem::take(&mut self.notices), self.look_again);
        let mut other = Self { look_again, ..other };
        other.notices.splice(0..0, notices);
        other
    }

    fn has_begun(&self) -> bool {
        !self.restarts.is_empty() || self.leaves_first.is_some()
    }
}

/// A pod that is to restart.
#[derive(Debug)]
pub(crate) struct Due<'a> {
    pub(crate) node: Node<'a>,
    pub(crate) pod: &'a PodView,
    pub(crate) causes: Vec<Cause>,
    /// What becomes of its disks.
    pub(crate) disks: Disks,
    /// Does it run the broker role, as far as anybody can tell?
    is_broker: bool,
    /// Does it run the controller role, as far as anybody can tell?
    votes: bool,
    /// Is a volume to go of which it cannot say what is there?
    pub(crate) hides_a_volume: bool,
}

impl Due<'_> {
    /// What becomes of its records. Those on a volume that its successor does not have are as good as lost.
    pub(crate) fn data(&self) -> Disks {
        if self.hides_a_volume { Disks::Go } else { self.disks }
    }

    /// Does it not run, and wait for claims that wait for it?
    fn cannot_start(&self) -> bool {
        self.causes.iter().any(|cause| matches!(cause, Cause::ClaimsGo(_)))
    }

    /// Is it one, or does this restart make it one?
    fn is_controller(&self) -> bool {
        self.votes || self.node.pool.roles.has_controller()
    }

    fn wants_empty_disks(&self) -> bool {
        self.causes.contains(&Cause::EmptyDisks)
    }

    fn cannot_wait(&self) -> bool {
        self.causes.iter().any(Cause::cannot_wait)
    }

    /// Could it lose a directory by this? A broker that serves can say what is in it.
    fn may_lose_a_volume(&self) -> bool {
        self.is_broker && self.pod.serves_kafka() && change_volumes(&self.causes)
    }
}

fn change_volumes(causes: &[Cause]) -> bool {
    causes.iter().any(|cause| matches!(cause, Cause::Changed(parts) if parts.contains(&VOLUMES)))
}

/// Claims that are seen empty right before these restarts, by the pods that have them: those of volumes that go. Of a broker that
/// serves that was asked before it was chosen, and what is no broker has no records. Of others nobody knows, unless a person does.
pub(crate) fn emptied(
    world: &World,
    due: &[Due<'_>],
    restarts: &[Restart],
) -> BTreeMap<String, Vec<(String, String)>> {
    let restarting = |due: &&Due<'_>| restarts.iter().any(|restart| restart.uid == due.pod.meta.uid);
    let is_known = |due: &&Due<'_>| {
        let is_empty = !due.is_broker || due.may_lose_a_volume();
        is_empty
            || storage_change::skips_check(world)
            || safety::is_allowed_to_lose(world, &due.pod.meta.name)
    };
    let known = due.iter().filter(restarting).filter(|due| change_volumes(&due.causes)).filter(is_known);
    let claims = known.map(|due| {
        let going = storage_change::claims_of_removed_volumes(world, due.node, due.pod);
        let claims = going.map(|claim| (claim.meta.name.clone(), claim.meta.uid.clone()));
        (due.pod.meta.uid.clone(), claims.collect())
    });
    claims.collect()
}

/// The pods that are to restart, in the order of their nodes.
///
/// `outlived` are settings that nodes started with and that are gone since.
pub(crate) fn due<'a>(
    world: &'a World,
    cluster: &'a Cluster,
    outlived: &BTreeMap<NodeId, Vec<String>>,
) -> Vec<Due<'a>> {
    let kept = cluster.kept_controllers().map(|kept| kept.pod.clone());
    let voters: BTreeSet<String> = cluster.voters().map(|node| cluster.pod_name(node)).chain(kept).collect();
    let inside = Inside::of(world);
    let losing = safety::pods_losing_claims(world);
    let due_pod =
        |node: Node<'a>| due_pod(world, cluster, node, &voters, &inside, outlived.get(&node.id), &losing);
    let mut due: Vec<_> = cluster.nodes().filter_map(due_pod).collect();
    due.sort_by_key(|due| due.node.id);
    due
}

fn due_pod<'a>(
    world: &'a World,
    cluster: &Cluster,
    node: Node<'a>,
    voters: &BTreeSet<String>,
    inside: &Inside<'_>,
    outlived: Option<&Vec<String>>,
    losing: &BTreeSet<&String>,
) -> Option<Due<'a>> {
    let name = cluster.pod_name(node);
    let pod = world.pods.get(&name).filter(|pod| !pod.meta.deleting)?;
    let wanted = world.pod_sets.get(&world.key.pod_set(&node.pool.name))?.pods.get(&name)?;
    let mut causes = Vec::new();
    let changed = revision::differences(pod.revision(), wanted.revision.as_deref());
    if !changed.is_empty() {
        causes.push(Cause::Changed(changed.clone()));
    }
    causes.extend(certificates::stale(world, inside, pod).map(Cause::Certificates));
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
    let waits_for = claims_waited_for(world, node, pod);
    if !waits_for.is_empty() {
        causes.push(Cause::ClaimsGo(waits_for));
    }
    if causes.is_empty() {
        return None;
    }
    let is_emptied = causes.contains(&Cause::EmptyDisks);
    let disks = if is_emptied { Disks::Go } else { safety::disks_of(world, node, pod, losing) };
    let wanted = wanted.roles();
    let is_told = Told { pod, is_current: changed.is_empty() };
    let answers = &world.answers;
    let is_registered = answers
        .registered
        .known()
        .is_some_and(|known| known.brokers.iter().any(|broker| broker.node == node.id));
    let has_vote = answers.quorum.known().is_some_and(|quorum| quorum.has_voter(node.id));
    let asks = |has: fn(Roles) -> bool| has(node.pool.roles) || wanted.is_some_and(has);
    let is_broker = is_registered || is_told.runs(BROKER_ROLE_LABEL, asks(Roles::has_broker));
    let votes = has_vote || is_told.runs(CONTROLLER_ROLE_LABEL, asks(Roles::has_controller));
    let is_silent = is_broker && !pod.serves_kafka() && change_volumes(&causes);
    let hides_a_volume = is_silent && storage_change::may_hide_records(world, node, pod);
    Some(Due { node, pod, causes, disks, is_broker, votes, hides_a_volume })
}

/// What the labels of a pod say of its roles. Whoever may change a pod may change its labels, by mistake too.
struct Told<'a> {
    pod: &'a PodView,
    /// Was it made from the description that is wanted now?
    is_current: bool,
}

impl Told<'_> {
    /// Does it run a role that is wanted of its node, or not? Only one that is about to get the role may deny it.
    fn runs(&self, label: &str, is_wanted: bool) -> bool {
        let told = self.pod.meta.labels.get(label).map(String::as_str);
        told == Some("true") || is_wanted && (self.is_current || told != Some("false"))
    }
}

/// Claims that are being deleted, and on which a pod waits that does not run.
fn claims_waited_for(world: &World, node: Node<'_>, pod: &PodView) -> Vec<String> {
    if pod.phase != "Pending" && !pod.is_finished() {
        return Vec::new();
    }
    let own = own_claims(world, node, pod).filter(|claim| safety::goes_with(claim, Some(pod)));
    own.map(|claim| claim.meta.name.clone()).collect()
}

/// The claims of a pod, also of volumes that its pool no longer has, or that lost their labels.
fn own_claims<'a>(
    world: &'a World,
    node: Node<'_>,
    pod: &'a PodView,
) -> impl Iterator<Item = &'a std::sync::Arc<ClaimView>> {
    let disks = node.pool.storage.disks().iter();
    let names: BTreeSet<String> = disks.filter_map(|disk| disk.claim_name(&pod.meta.name)).collect();
    world.claims.values().filter(move |claim| {
        claim.meta.labels.get(POD_NAME_LABEL) == Some(&pod.meta.name) || names.contains(&claim.meta.name)
    })
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

/// Nodes whose pods are about to be replaced, and their disks with them, but for those that wait for a person. There is no use in
/// giving them a vote before.
pub(crate) fn about_to_lose_disks(due: &[Due<'_>], roll: &Roll) -> BTreeSet<NodeId> {
    let waits = |due: &&Due<'_>| {
        let is_it =
            |notice: &Notice| matches!(notice, Notice::LossHeld { pod, .. } if *pod == due.pod.meta.name);
        roll.notices.iter().any(is_it)
    };
    let due = due.iter().filter(|due| due.disks == Disks::Go && !waits(due));
    due.map(|due| due.node.id).collect()
}

/// Decides which of the pods that are to restart do so now. Those that are held do not, and the others do not wait for them.
pub(crate) fn next(world: &World, cluster: &Cluster, due: &[Due<'_>], held: &BTreeSet<String>) -> Roll {
    let due: Vec<_> = due.iter().filter(|due| !held.contains(&due.pod.meta.name)).collect();
    if due.is_empty() {
        return Roll::default();
    }
    let inside = Inside::of(world);
    let is_of_no_use = |pod: &PodView| pod.stuck.is_some() || certificates::is_of_no_use(world, &inside, pod);
    let (broken, due): (Vec<_>, Vec<_>) =
        due.into_iter().partition(|due| is_of_no_use(due.pod) && due.data() == Disks::Stay);
    if !broken.is_empty() {
        let restarts = broken.into_iter().map(|due| restart(world, due, None)).collect();
        return Roll { restarts, ..Roll::default() };
    }
    // They do nothing for anybody, and wait for nobody but who has a copy of what they have.
    let (idle, others): (Vec<_>, Vec<_>) = due.iter().copied().partition(|due| due.cannot_start());
    let roll = || in_turn(world, cluster, others, absent(world, cluster, &due));
    match idle.is_empty() {
        true => roll(),
        false => Choice { world, cluster }.among(idle).or(roll()),
    }
}

/// Of those that run, or could. Those that are absent keep them from their restarts.
fn in_turn<'d>(
    world: &World,
    cluster: &Cluster,
    due: Vec<&'d Due<'d>>,
    absent: Vec<(String, Option<String>)>,
) -> Roll {
    if due.is_empty() {
        return Roll::default();
    }
    let choice = Choice { world, cluster };
    let (ending, due): (Vec<_>, Vec<_>) = due.into_iter().partition(|due| due.cannot_wait());
    let first = choice.before_their_end(ending);
    if first.asks() || first.has_begun() || (due.is_empty() && first.look_again.is_some()) {
        return first;
    }
    let stuck = absent.into_iter().map(|(pod, why)| Some(Notice::RollStopped { pod, why: why? }));
    let stuck: Vec<_> = stuck.collect();
    let mut roll = if stuck.is_empty() { choice.among(due) } else { Roll::default() };
    roll.notices.extend(stuck.into_iter().flatten());
    roll.notices.extend(first.notices);
    roll.look_again = roll.look_again.into_iter().chain(first.look_again).min();
    roll
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
            // It waits until the others have restarted to trust who signs its certificate.
            _ if certificates::lacks_certificate(world, &name) => None,
            // It may wait for a person, or for what a restart of others brings.
            None if cluster.arriving.contains(&node.id) => None,
            pod => {
                let why = status::why_away(world, &name, pod).or_else(|| unready_for_long(world, pod?));
                Some((name, why))
            }
        }
    });
    absent.collect()
}

/// That a pod has not been ready for longer than a restart takes. It is told with the time, not with how long that is: a message
/// that changes is written again and again.
fn unready_for_long(world: &World, pod: &PodView) -> Option<String> {
    // One that no machine has taken yet says nothing of itself.
    let since = pod.since.or(pod.meta.created);
    let since = since.filter(|since| !pod.ready && world.time_since(*since) >= PATIENCE)?;
    Some(format!("it has not been ready since {}", since.strftime("%Y-%m-%d %H:%M UTC")))
}

fn restart(world: &World, due: &Due<'_>, exposed: Option<String>) -> Restart {
    let own = || own_claims(world, due.node, due.pod);
    let names = |claim: &std::sync::Arc<ClaimView>| (claim.meta.name.clone(), claim.meta.uid.clone());
    let (claims, keeps) = match due.disks {
        _ if due.wants_empty_disks() => {
            (own().filter(|claim| !claim.meta.deleting).map(names).collect(), Vec::new())
        }
        // With one among them that goes the restart is refused. A claim that goes and holds nothing is not kept.
        Disks::Stay => {
            let is_kept = |claim: &&std::sync::Arc<ClaimView>| {
                !claim.meta.deleting || safety::goes_with(claim, Some(due.pod))
            };
            (Vec::new(), own().filter(is_kept).map(names).collect())
        }
        Disks::Go => (Vec::new(), Vec::new()),
    };
    Restart {
        node: due.node.id,
        pod: due.pod.meta.name.clone(),
        uid: due.pod.meta.uid.clone(),
        causes: due.causes.clone(),
        claims,
        keeps,
        loses_disk: due.disks == Disks::Go,
        exposed,
        leaderless: None,
    }
}

/// What keeps a pod from its restart.
enum Held {
    /// Something that goes by.
    Until(String),
    /// Something that only a person can decide.
    ForAPerson(String),
    /// Its vote, which it gives up first.
    ByItsVote,
}

/// Chooses among pods of which each could restart as far as the others are concerned.
struct Choice<'a> {
    world: &'a World,
    cluster: &'a Cluster,
}

impl Choice<'_> {
    /// Of those whose certificates end soon. They wait for nobody who is not needed: not for a node that is away, and not for
    /// others that wait. Soon they would be away themselves.
    fn before_their_end(&self, ending: Vec<&Due<'_>>) -> Roll {
        if ending.is_empty() {
            return Roll::default();
        }
        let told: Vec<_> = ending.iter().filter_map(|due| self.ends(due)).collect();
        let (controllers, brokers): (Vec<_>, Vec<_>) = ending.into_iter().partition(|due| due.votes);
        let mut held = Roll { notices: told, look_again: Some(LOOK_AGAIN), ..Roll::default() };
        for group in [controllers, brokers].into_iter().filter(|group| !group.is_empty()) {
            let roll = self.of_group(group);
            if roll.asks() || roll.has_begun() {
                return roll;
            }
            held.notices.extend(roll.notices);
        }
        held
    }

    /// That the certificate of a pod ends, and that its restart waits for something all the same.
    fn ends(&self, due: &Due<'_>) -> Option<Notice> {
        let ends = due.causes.iter().find(|cause| cause.cannot_wait())?;
        let what = format!(
            "pod {} has to restart and cannot yet: {ends}; Karst restarts it as soon as nothing is lost by it",
            due.pod.meta.name
        );
        Some(Notice::CertificateEnds { secret: due.pod.meta.name.clone(), what })
    }

    /// Controllers first, and with them those that are to become controllers: the others may wait for their votes. Those that wait
    /// for a person keep nobody else waiting.
    fn among(&self, due: Vec<&Due<'_>>) -> Roll {
        let (controllers, brokers): (Vec<_>, Vec<_>) = due.into_iter().partition(|due| due.is_controller());
        if controllers.is_empty() {
            return self.of_group(brokers);
        }
        let roll = self.of_group(controllers);
        let waits_for_a_person = || {
            !roll.notices.is_empty()
                && roll.notices.iter().all(|notice| matches!(notice, Notice::LossHeld { .. }))
        };
        if brokers.is_empty() || roll.asks() || roll.has_begun() || !waits_for_a_person() {
            return roll;
        }
        let mut others = self.of_group(brokers);
        others.notices.extend(roll.notices);
        others
    }

    fn of_group(&self, group: Vec<&Due<'_>>) -> Roll {
        let brokers: BTreeSet<NodeId> =
            group.iter().filter(|due| due.is_broker).map(|due| due.node.id).collect();
        let asks_quorum = group.iter().any(|due| due.votes);
        let answers = &self.world.answers;
        let mut roll = Roll {
            asks_quorum: asks_quorum && !answers.quorum.was_asked(),
            launchers: safety::launcher_hosts(self.world, brokers.iter().copied()),
            ..Roll::default()
        };
        if !brokers.is_empty() && !answers.partitions_of(&brokers).was_asked() {
            roll.partitions_of.clone_from(&brokers);
        }
        let unasked = group
            .iter()
            .filter(|due| due.may_lose_a_volume() && !answers.log_dirs.contains_key(&due.node.id));
        roll.log_dirs_of = unasked.map(|due| due.node.id).collect();
        if roll.asks() {
            return roll;
        }
        self.first(&self.ordered(group), &answers.partitions_of(&brokers))
    }

    /// What does not serve first, the leader of the quorum last.
    fn ordered<'d>(&self, mut group: Vec<&'d Due<'d>>) -> Vec<&'d Due<'d>> {
        let quorum = self.world.answers.quorum.known();
        let leader = quorum.map(|quorum| quorum.leader);
        // Nobody misses the vote of one that Kafka gives none, and its restart may be what it needs.
        let has_vote = |node| quorum.is_some_and(|quorum| quorum.has_voter(node));
        let votes =
            |node: NodeId| has_vote(node) || !self.world.memory.is_refused_a_vote(node, self.world.now);
        group.sort_by_key(|due| {
            let node = due.node.id;
            (due.pod.ready, votes(node), leader == Some(node), node)
        });
        group
    }

    fn first(&self, group: &[&Due<'_>], partitions: &Answer<&Partitions>) -> Roll {
        let mut roll = Roll::default();
        let mut stop = Stop::new();
        let mut touched: BTreeSet<NodeId> = BTreeSet::new();
        let judge = Judge::new(self.world, partitions);
        for due in group {
            if roll.restarts.len() >= self.at_once(due) {
                break;
            }
            if !roll.restarts.is_empty() && touched.contains(&due.node.id) {
                continue;
            }
            let pod = || due.pod.meta.name.clone();
            stop.insert(due.node.id, due.data());
            let held = self.held(due, partitions, &judge, &stop);
            if held.is_some() {
                stop.remove(&due.node.id);
            }
            match held {
                Some(Held::Until(why)) => roll.notices.push(Notice::RestartHeld { pod: pod(), why }),
                Some(Held::ForAPerson(why)) => {
                    let pool = due.node.pool.name.clone();
                    roll.notices.push(Notice::LossHeld { pool, pod: pod(), why });
                }
                Some(Held::ByItsVote) if roll.restarts.is_empty() => {
                    roll.leaves_first = Some(due.node.id);
                    break;
                }
                Some(Held::ByItsVote) => {}
                None => {
                    let here = || judge.on(due.node.id).iter().copied();
                    touched.extend(here().flat_map(|partition| partition.replicas.iter().copied()));
                    let exposed: Vec<_> =
                        here().filter(|partition| is_exposed(partition, due.node.id)).collect();
                    let exposed = (!exposed.is_empty()).then(|| health::some_of(&exposed));
                    let leaderless = self.without_majority(due);
                    roll.restarts.push(Restart { leaderless, ..restart(self.world, due, exposed) });
                }
            }
        }
        // Others wait for their turn; that is not worth a word. What a person has to decide is.
        let is_quiet = roll.has_begun() || !self.is_calm();
        roll.notices.retain(|notice| match notice {
            Notice::LossHeld { .. } => true,
            Notice::RestartHeld { pod, .. } => !is_quiet && !self.has_just_changed(pod),
            _ => !is_quiet,
        });
        roll.look_again = roll.restarts.is_empty().then_some(LOOK_AGAIN);
        roll
    }

    /// How many may restart together with this one: brokers only, and only if the user allows it.
    fn at_once(&self, due: &Due<'_>) -> usize {
        let annotations = self.world.kafka.metadata.annotations.as_ref();
        let allowed = annotations.and_then(|all| all.get(RESTARTS_AT_ONCE_ANNOTATION));
        let allowed = allowed.and_then(|count| count.parse().ok()).unwrap_or(1);
        if due.is_controller() || due.data() == Disks::Go { 1 } else { allowed.max(1) }
    }

    /// Was it some time ago that a pod came back from a restart? One that is older comes and goes by itself, and is no reason to be
    /// silent about what others wait for.
    fn is_calm(&self) -> bool {
        let is_young =
            |pod: &PodView| pod.meta.created.is_none_or(|made| self.world.time_since(made) < RESTARTED);
        let names = self.cluster.nodes().map(|node| self.cluster.pod_name(node));
        let mut pods = names.filter_map(|name| Some((self.world.pods.get(&name)?, name)));
        !pods.any(|(pod, name)| is_young(pod) && self.has_just_changed(&name))
    }

    /// Did the pod become ready, or unready, a moment ago?
    fn has_just_changed(&self, pod: &str) -> bool {
        let since = self.world.pods.get(pod).and_then(|pod| pod.since);
        since.is_some_and(|since| self.world.time_since(since) < CALM)
    }

    /// Nodes that cannot start before this restart. They have no certificate, and get one only when all others trust who signs it.
    /// Were it held for what they have, it would be held for ever.
    fn waiting_for(&self, due: &Due<'_>) -> BTreeSet<NodeId> {
        let is_cure = due.disks == Disks::Stay && due.causes.contains(&Cause::Certificates(Stale::Trust));
        let waits = |node: &Node<'_>| {
            is_cure && certificates::waits_for_others(self.world, &self.cluster.pod_name(*node))
        };
        self.cluster.nodes().filter(waits).map(|node| node.id).collect()
    }

    /// That a restart for which others wait leaves too few voters. Those that wait cannot vote before, so it is done all the same.
    fn without_majority(&self, due: &Due<'_>) -> Option<String> {
        let waiting = self.waiting_for(due);
        let quorum = self.world.answers.quorum.known().filter(|quorum| quorum.has_voter(due.node.id))?;
        let absent: BTreeSet<NodeId> = waiting.into_iter().filter(|node| quorum.has_voter(*node)).collect();
        let (all, left) = (quorum.voters.len(), self.others_without(&absent, quorum, due.node.id).len());
        let is_too_few = !absent.is_empty() && left < health::majority(all);
        is_too_few.then(|| {
            format!(
                "{left} of {all} controllers are left, and nobody leads: nodes without a certificate ({}) can start only after it",
                health::list(&absent)
            )
        })
    }

    /// The voters besides a node that are up and caught up. Those that wait for its restart are not.
    fn others_without(
        &self,
        waiting: &BTreeSet<NodeId>,
        quorum: &QuorumView,
        node: NodeId,
    ) -> BTreeSet<NodeId> {
        let mut others = health::caught_up_without(self.world, quorum, node);
        others.retain(|other| !waiting.contains(other));
        others
    }

    /// What of the node's work is missed is asked before what becomes of its vote: none is given up in vain.
    fn held(
        &self,
        due: &Due<'_>,
        partitions: &Answer<&Partitions>,
        judge: &Judge<'_>,
        stop: &Stop,
    ) -> Option<Held> {
        let is_allowed =
            due.data() == Disks::Go && safety::is_allowed_to_lose(self.world, &due.pod.meta.name);
        let broker = due.is_broker.then(|| self.held_by_partitions(due, partitions, judge, stop)).flatten();
        let lost = || due.may_lose_a_volume().then(|| storage_change::lost_by_restart(self.world, due.node));
        broker
            .filter(|_| !is_allowed)
            .or_else(|| lost().flatten().map(Held::Until))
            .or_else(|| due.votes.then(|| self.held_by_quorum(due, is_allowed)).flatten())
    }

    fn held_by_partitions(
        &self,
        due: &Due<'_>,
        partitions: &Answer<&Partitions>,
        judge: &Judge<'_>,
        stop: &Stop,
    ) -> Option<Held> {
        let node = due.node.id;
        if !due.node.pool.roles.has_broker() && partitions.known().is_some() {
            let here = judge.on(node);
            let stays = || format!("it is to stop being a broker, and hosts {}", health::some_of(here));
            return (!here.is_empty()).then(|| Held::Until(stays()));
        }
        let service = safety::service(self.world, node, due.pod);
        let obstacle = judge.obstacle_to_cure(node, &service, stop, &self.waiting_for(due))?;
        let is_given_up = safety::is_given_up(self.world, due.pod);
        let waits_for_a_person =
            obstacle.needs_a_person() || (is_given_up && obstacle.needs_a_person_in_the_end());
        let why = match due.hides_a_volume {
            true => format!(
                "a volume of it is to go, and it does not serve, so nobody sees what is there ({obstacle}); list the volume again to restart it with all it has"
            ),
            false => obstacle.to_string(),
        };
        Some(if waits_for_a_person { Held::ForAPerson(why) } else { Held::Until(why) })
    }

    fn held_by_quorum(&self, due: &Due<'_>, is_allowed: bool) -> Option<Held> {
        let loses = due.disks == Disks::Go;
        let quorum = match &self.world.answers.quorum {
            Answer::Known(quorum) => quorum,
            _ if is_allowed => return None,
            _ if safety::is_given_up(self.world, due.pod) && !loses => return None,
            silent => {
                let why = format!("the quorum does not answer ({})", silent.silence());
                let waits_for_a_person = loses && safety::is_given_up(self.world, due.pod);
                return Some(if waits_for_a_person { Held::ForAPerson(why) } else { Held::Until(why) });
            }
        };
        if !quorum.has_voter(due.node.id) {
            let why = "that it has left the quorum is not committed yet, and it may be a voter again";
            return (!quorum.is_committed).then(|| Held::Until(why.to_owned()));
        }
        if !due.node.pool.roles.has_controller() {
            return Some(Held::Until("it still votes in the quorum, and has to leave it first".to_owned()));
        }
        if loses && quorum.voters.iter().all(|voter| voter.node == due.node.id) {
            let why = "it is the only controller and loses its disk by this, and with it the metadata of the whole cluster";
            return (!is_allowed).then(|| Held::ForAPerson(why.to_owned()));
        }
        if loses && !quorum.is_dynamic {
            return self.held_by_static_voters(due, quorum);
        }
        let held = self.held_by_voters(due, quorum, loses);
        if loses { held.or(Some(Held::ByItsVote)) } else { held }
    }

    /// In a static quorum nobody can leave: a majority of voters that keep their disks must be left.
    fn held_by_static_voters(&self, due: &Due<'_>, quorum: &QuorumView) -> Option<Held> {
        let mut others = health::caught_up_without(self.world, quorum, due.node.id);
        let losing = health::losing_disks(self.world);
        others.retain(|other| !losing.contains(other));
        let needed = health::majority(quorum.voters.len());
        (others.len() < needed).then(|| {
            Held::Until(format!(
                "it loses its disk by this, and {needed} of {} voters must be left with theirs; only these are: {}",
                quorum.voters.len(),
                some_or_none(&others)
            ))
        })
    }

    /// All who are wanted must vote, and all others must be up and caught up: then none is missed, also not by a change of the quorum
    /// that follows. A voter that is to leave and still votes counts as any other. One that Kafka refuses again and again is not waited
    /// for: what is to restart may be what keeps it out.
    fn held_by_voters(&self, due: &Due<'_>, quorum: &QuorumView, loses: bool) -> Option<Held> {
        let limit = health::fetch_timeout(self.world);
        let own = quorum.voters.iter().find(|voter| voter.node == due.node.id);
        let is_of_no_use = own.is_some_and(|voter| !voter.is_caught_up(limit)) && !due.pod.has_ready_kafka();
        if is_of_no_use && !loses {
            return None;
        }
        // One that waits for its certificate cannot join before the others have restarted to trust who signs it.
        let can_join = |node: &Node<'_>| {
            !certificates::lacks_certificate(self.world, &self.cluster.pod_name(*node))
                && !self.cluster.arriving.contains(&node.id)
        };
        let wanted = self.cluster.voters().filter(can_join).map(|node| node.id);
        let without_vote = wanted.filter(|node| !quorum.has_voter(*node));
        let (refused, missing): (BTreeSet<NodeId>, BTreeSet<NodeId>) =
            without_vote.partition(|node| self.world.memory.is_refused_a_vote(*node, self.world.now));
        if !missing.is_empty() && !due.cannot_wait() {
            let missing = health::list(&missing);
            return Some(Held::Until(format!("these controllers have not joined the quorum yet: {missing}")));
        }
        let waiting = self.waiting_for(due);
        let vote = quorum.voters.iter().map(|voter| voter.node);
        let vote: BTreeSet<NodeId> = vote.filter(|node| !waiting.contains(node)).collect();
        let mut others = self.others_without(&waiting, quorum, due.node.id);
        if loses {
            let losing = health::losing_disks(self.world);
            others.retain(|other| !losing.contains(other));
        }
        let needed = match due.cannot_wait() && !loses {
            true => health::majority(vote.len()).min(vote.len().saturating_sub(1)),
            false => vote.len().saturating_sub(1),
        };
        if others.len() >= needed {
            let fewest = membership::fewest_beside(self.world, self.cluster, quorum);
            let is_too_few = loses && !refused.is_empty() && others.len() < fewest;
            return is_too_few.then(|| {
                let (refused, left) = (health::list(&refused), some_or_none(&others));
                Held::Until(format!(
                    "its disk goes with its pod, so it would leave the quorum first; Kafka refuses controllers {refused} a vote, and {fewest} voters must be left meanwhile, but only these would be: {left}"
                ))
            });
        }
        let behind: BTreeSet<NodeId> =
            vote.into_iter().filter(|node| *node != due.node.id && !others.contains(node)).collect();
        Some(Held::Until(format!(
            "all other voters must be up and caught up, and these are not: {}",
            health::list(&behind)
        )))
    }
}

fn some_or_none(nodes: &BTreeSet<NodeId>) -> String {
    if nodes.is_empty() { "none".to_owned() } else { health::list(nodes) }
}

/// Does the partition take no writes while the node is away? It has no replica more than it needs, or others that are not in sync can
/// start only when this one has.
fn is_exposed(partition: &PartitionView, node: NodeId) -> bool {
    partition.in_sync.contains(&node)
        && partition.min_in_sync.is_some_and(|least| partition.in_sync.len() <= least.max(1))
}
