//! Restarts of pods for the sake of certificates, though their resources cannot be carried out: a spec or a pool that is not valid
//! holds every change, and must not hold this. A certificate that ends soon takes the node with it; a pod that does not trust the next
//! key of the authority, or shows the last one's, keeps all others from their renewals until everything ends together.
//!
//! Of these nodes nothing is known but what runs. Their pod sets make their pods again as they were. One restarts at a time, and
//! only when nobody misses it; nothing is done for any other reason.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::certificates::{self, Inside, Stale};
use crate::cluster::Cluster;
use crate::health;
use crate::ids::NodeId;
use crate::names::{STORAGE_ANNOTATION, node_of_pod};
use crate::notice::Notice;
use crate::rolling::{Cause, Restart, Roll};
use crate::safety::{self, Disks, Judge, Stop};
use crate::world::{Answer, ClaimView, PodView, World};

/// How soon to look again at what keeps a pod from its restart: Kafka does not tell.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// For so long after a pod came back it is no news that others wait: replicas need a moment to catch up.
const CALM: Duration = Duration::from_secs(20);
/// For so long a pod that was made anew counts as one that was just restarted.
const RESTARTED: Duration = Duration::from_secs(300);

/// A pod that has to restart for the sake of its certificates.
struct Ending<'a> {
    node: NodeId,
    pod: &'a PodView,
    claims: &'a [&'a Arc<ClaimView>],
    stale: Stale,
}

/// Decides which pod restarts now, of those that are no node of a cluster that is carried out. Those that are held do not.
pub(crate) fn next(world: &World, cluster: Option<&Cluster>, held: &BTreeSet<String>) -> Roll {
    let carried_out: BTreeSet<String> =
        cluster.iter().flat_map(|cluster| cluster.nodes().map(|node| cluster.pod_name(node))).collect();
    let is_free = |name: &String| !carried_out.contains(name) && !held.contains(name);
    let others: Vec<_> = world.pods.values().filter(|pod| is_free(&pod.meta.name)).collect();
    if others.is_empty() {
        return Roll::default();
    }
    let claims = world.claims_by_pod();
    let inside = Inside::of(world);
    let mut ending: Vec<_> = others
        .into_iter()
        .filter_map(|pod| {
            let claims = claims.get(pod.meta.name.as_str()).map_or(&[][..], Vec::as_slice);
            let node = node_of_pod(&pod.meta.name).filter(|_| keeps_its_disks(world, pod, claims))?;
            Some(Ending { node, pod, claims, stale: certificates::cannot_wait(world, &inside, pod)? })
        })
        .collect();
    if ending.is_empty() {
        return Roll::default();
    }
    let brokers: BTreeSet<NodeId> =
        ending.iter().filter(|one| one.pod.runs_broker()).map(|one| one.node).collect();
    let partitions = world.answers.partitions_of(&brokers);
    let roll = Roll {
        asks_quorum: !world.answers.quorum.was_asked(),
        partitions_of: if partitions.was_asked() { BTreeSet::new() } else { brokers.clone() },
        launchers: safety::launcher_hosts(world, brokers.iter().copied()),
        ..Roll::default()
    };
    if roll.asks() {
        return roll;
    }
    let leader = world.answers.quorum.known().map(|quorum| quorum.leader);
    let is_urgent = |one: &Ending<'_>| matches!(one.stale, Stale::EndsSoon(_));
    ending.sort_by_key(|one| (one.pod.ready, !is_urgent(one), leader == Some(one.node), one.node));
    let judge = Judge::new(world, &partitions);
    let is_calm = !world.pods.values().any(|pod| has_just_come(world, pod));
    let mut roll = Roll { look_again: Some(LOOK_AGAIN), ..Roll::default() };
    for one in &ending {
        let Some(why) = held_by_voters(world, one).or_else(|| held_by_partitions(world, &judge, one)) else {
            return Roll { restarts: vec![restart(one)], ..Roll::default() };
        };
        let pod = one.pod.meta.name.clone();
        if is_urgent(one) {
            let what = format!("pod {pod} has to restart and cannot yet: {}; {why}", one.stale);
            roll.notices.push(Notice::CertificateEnds { secret: pod, what });
        } else if is_calm {
            let why = format!("{}, and no certificate is renewed before all do; {why}", one.stale);
            roll.notices.push(Notice::RestartHeld { pod, why });
        }
    }
    roll
}

/// Is it back from a restart since a moment ago?
fn has_just_come(world: &World, pod: &PodView) -> bool {
    let is_within = |time: Option<Timestamp>, limit| time.is_some_and(|time| world.time_since(time) < limit);
    is_within(pod.meta.created, RESTARTED) && is_within(pod.since, CALM)
}

/// Is the pod made again on the disks that it has?
fn keeps_its_disks(world: &World, pod: &PodView, claims: &[&Arc<ClaimView>]) -> bool {
    let set = world.pod_sets.values().find(|set| set.pods.contains_key(&pod.meta.name));
    let storage = set.and_then(|set| set.meta.annotations.get(STORAGE_ANNOTATION));
    let is_kept = storage.is_some_and(|storage| !storage.contains("ephemeral"));
    is_kept && !pod.meta.deleting && !claims.is_empty() && claims.iter().all(|claim| !claim.meta.deleting)
}

fn held_by_voters(world: &World, one: &Ending<'_>) -> Option<String> {
    let quorum = match &world.answers.quorum {
        Answer::Known(quorum) => quorum,
        silent => return Some(format!("the quorum does not answer ({})", silent.silence())),
    };
    if !quorum.has_voter(one.node) {
        return None;
    }
    let voters = quorum.voters.len();
    let needed = health::majority(voters).min(voters.saturating_sub(1));
    let others = health::caught_up_without(world, quorum, one.node);
    (others.len() < needed).then(|| {
        let others = if others.is_empty() { "none".to_owned() } else { health::list(&others) };
        format!("{needed} of {voters} voters must be left that are up and caught up, and these are: {others}")
    })
}

fn held_by_partitions(world: &World, judge: &Judge<'_>, one: &Ending<'_>) -> Option<String> {
    let stop = Stop::from([(one.node, Disks::Stay)]);
    let service = one.pod.runs_broker().then(|| safety::service(world, one.node, one.pod))?;
    judge.obstacle(one.node, &service, &stop).map(|obstacle| obstacle.to_string())
}

fn restart(one: &Ending<'_>) -> Restart {
    let keeps = one.claims.iter().map(|claim| (claim.meta.name.clone(), claim.meta.uid.clone()));
    Restart {
        node: one.node,
        pod: one.pod.meta.name.clone(),
        uid: one.pod.meta.uid.clone(),
        causes: vec![Cause::Certificates(one.stale.clone())],
        claims: Vec::new(),
        keeps: keeps.collect(),
        loses_disk: false,
        exposed: None,
        leaderless: None,
    }
}
