//! What users are told about the quorum: who votes, whether it is healthy, and whether it is as asked for.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use karst_api as api;

use crate::cluster::Cluster;
use crate::health;
use crate::ids::NodeId;
use crate::quorum::Kind;
use crate::reason::Reason;
use crate::status::condition;
use crate::world::{Answer, QuorumView, World};

/// The condition that tells whether the quorum can do its work.
pub(crate) const HEALTHY: &str = "QuorumHealthy";
/// The condition that tells whether the right controllers vote.
pub(crate) const RECONCILED: &str = "QuorumReconciled";

/// What a person can do when a quorum does not come back by itself.
const ADVICE: &str = "should a majority of the disks be lost, bring them back, or restore a voter with the annotation karst.io/restore-voter (docs/quorum.md)";

/// The same, of a static quorum: nobody can be replaced in it.
const STATIC_ADVICE: &str = "should a majority of the disks be lost, bring them back; controllers on empty disks wait for that, or for the annotation karst.io/allow-data-loss with the name of one of their pods, while a controller that has its disk runs (docs/quorum.md)";

fn advice(world: &World) -> &'static str {
    if Kind::of(world) == Kind::Static { STATIC_ADVICE } else { ADVICE }
}

/// Who votes, as the leader says.
pub(crate) fn view(quorum: &QuorumView) -> api::QuorumStatus {
    let mut voters: Vec<_> = quorum.voters.iter().collect();
    voters.sort_by_key(|voter| (voter.node, voter.directory));
    api::QuorumStatus {
        kind: Some(if quorum.is_dynamic { api::QuorumKind::Dynamic } else { api::QuorumKind::Static }),
        leader: Some(quorum.leader.0),
        voter_ids: Some(voters.iter().map(|voter| voter.node.0).collect()),
        voters: Some(
            voters
                .iter()
                .map(|voter| api::QuorumVoter {
                    id: Some(voter.node.0),
                    directory_id: voter.directory.map(|id| id.to_string()),
                })
                .collect(),
        ),
    }
}

/// Did Kafka say that this node votes? Where it is silent, what it said last counts.
pub(crate) fn has_voted(world: &World, node: NodeId) -> bool {
    if let Some(quorum) = world.answers.quorum.known() {
        return quorum.has_voter(node);
    }
    let status = world.kafka.status.as_ref().and_then(|status| status.quorum.as_ref());
    status.and_then(|quorum| quorum.voter_ids.as_ref()).is_some_and(|voters| voters.contains(&node.0))
}

/// The conditions of a quorum that was formed. What nobody asked about stays as it was said last.
pub(crate) fn conditions(world: &World, cluster: &Cluster) -> Vec<api::Condition> {
    let worked = world.kafka.status.as_ref().is_some_and(|status| status.quorum.is_some());
    match &world.answers.quorum {
        Answer::Known(quorum) => vec![healthy(world, quorum), reconciled(cluster, quorum)],
        Answer::Silent(why) if worked => {
            vec![silent(world, why)].into_iter().chain(said(world, &[RECONCILED])).collect()
        }
        Answer::NotAsked if worked && !world.has_serving_controller() => {
            let why = "no controller is ready";
            vec![silent(world, why)].into_iter().chain(said(world, &[RECONCILED])).collect()
        }
        _ => said(world, &[HEALTHY, RECONCILED]),
    }
}

/// Did the quorum not answer when it was asked before, either?
pub(crate) fn is_silent_for_long(world: &World) -> bool {
    said(world, &[HEALTHY])
        .iter()
        .any(|condition| condition.reason.as_deref() == Some(Reason::NoLeader.as_str()))
}

/// For how long nobody has been found to lead.
pub(crate) fn without_leader_for(world: &World) -> Option<Duration> {
    let said = said(world, &[HEALTHY]);
    let silent =
        said.iter().find(|condition| condition.reason.as_deref() == Some(Reason::NoLeader.as_str()))?;
    let since: Timestamp = silent.last_transition_time.as_ref()?.parse().ok()?;
    Some(world.time_since(since))
}

/// What was said before.
pub(crate) fn said(world: &World, types: &[&str]) -> Vec<api::Condition> {
    let is_one =
        |condition: &&api::Condition| condition.type_.as_deref().is_some_and(|type_| types.contains(&type_));
    world.said().filter(is_one).cloned().collect()
}

fn healthy(world: &World, quorum: &QuorumView) -> api::Condition {
    let limit = health::fetch_timeout(world);
    let (fit, behind): (Vec<_>, Vec<_>) = quorum.voters.iter().partition(|voter| voter.is_caught_up(limit));
    let holds = fit.len() >= health::majority(quorum.voters.len());
    if behind.is_empty() {
        let message = format!("all {} voters are caught up", fit.len());
        return condition(HEALTHY, true, Some((Reason::VotersCaughtUp, &message)));
    }
    let behind: BTreeSet<NodeId> = behind.into_iter().map(|voter| voter.node).collect();
    let message = format!(
        "{} of {} voters are caught up, {} are needed; down or behind: {}",
        fit.len(),
        quorum.voters.len(),
        health::majority(quorum.voters.len()),
        health::list(&behind)
    );
    condition(HEALTHY, holds, Some((Reason::VotersBehind, &message)))
}

fn reconciled(cluster: &Cluster, quorum: &QuorumView) -> api::Condition {
    if !quorum.is_dynamic {
        let message = "the quorum is static: its voters are fixed";
        return condition(RECONCILED, true, Some((Reason::StaticQuorum, message)));
    }
    let wanted: BTreeSet<NodeId> = cluster.voters().map(|node| node.id).collect();
    let voting: BTreeSet<NodeId> = quorum.voters.iter().map(|voter| voter.node).collect();
    if wanted == voting && voting.len() == quorum.voters.len() {
        return condition(RECONCILED, true, Some((Reason::AsWanted, "the controllers that are wanted vote")));
    }
    let join: BTreeSet<NodeId> = wanted.difference(&voting).copied().collect();
    let leave: BTreeSet<NodeId> = voting.difference(&wanted).copied().collect();
    let parts = [("to join", join), ("to leave", leave)];
    let parts: Vec<_> = parts
        .iter()
        .filter(|(_, nodes)| !nodes.is_empty())
        .map(|(what, nodes)| format!("{what}: {}", health::list(nodes)))
        .collect();
    let message = if parts.is_empty() { "a disk is being replaced".to_owned() } else { parts.join("; ") };
    condition(RECONCILED, false, Some((Reason::Changing, &message)))
}

/// No leader can be found: what is known of each controller.
fn silent(world: &World, why: &str) -> api::Condition {
    let pods = world.pods.iter().filter(|(_, pod)| pod.runs_controller());
    let states = pods.map(|(name, pod)| match (&pod.stuck, pod.has_ready_kafka(), pod.meta.deleting) {
        (_, _, true) => format!("{name} is going"),
        (Some(stuck), _, _) => format!("{name} does not run ({stuck})"),
        (None, true, _) => format!("{name} is ready"),
        (None, false, _) => format!("{name} is not ready"),
    });
    let states: Vec<_> = states.collect();
    let last = world.kafka.status.as_ref().and_then(|status| status.quorum.as_ref()?.leader);
    let last = last.map_or_else(String::new, |leader| format!("; the last known leader was {leader}"));
    let states = if states.is_empty() { "no controller pod exists".to_owned() } else { states.join(", ") };
    condition(
        HEALTHY,
        false,
        Some((
            Reason::NoLeader,
            &format!("the quorum does not answer ({why}): {states}{last}; {}", advice(world)),
        )),
    )
}
