//! Asking Kafka about itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use karst_core::ids::{DirectoryId, NodeId};
use karst_core::plan::Questions;
use karst_core::world::{Answer, Answers, PartitionView, Partitions, QuorumView, Replica, World};
use karst_kafka::{Admin, ConfigEntry, Error, Partition, Quorum, ReplicaState, TopicSelection};

use crate::clients::Clients;

/// Asks what is to be asked, and adds the answers to those there are.
pub(crate) async fn ask(clients: &Clients, world: &World, questions: &Questions, answers: &mut Answers) {
    if !questions.quorum.is_empty() {
        answers.quorum = match clients.controllers(world, &questions.quorum) {
            Ok(admin) => answer(quorum(&admin).await),
            Err(unable) => Answer::Silent(unable.to_string()),
        };
    }
    if !questions.partitions_of.is_empty() {
        answers.partitions = match clients.brokers(world, &questions.brokers) {
            Ok(admin) => answer(partitions(&admin, &questions.partitions_of).await),
            Err(unable) => Answer::Silent(unable.to_string()),
        };
    }
}

fn answer<T>(result: Result<T, Error>) -> Answer<T> {
    match result {
        Ok(answer) => Answer::Known(answer),
        Err(error) => {
            tracing::debug!(%error, "Kafka did not answer");
            Answer::Silent(error.to_string())
        }
    }
}

async fn quorum(admin: &Admin) -> Result<QuorumView, Error> {
    let quorum = admin.describe_quorum().await?;
    let is_committed = is_committed(admin, &quorum).await?;
    let features = admin.features().await?.finalized;
    Ok(QuorumView {
        leader: NodeId(quorum.leader.0),
        epoch: quorum.leader_epoch,
        voters: replicas(&quorum, &quorum.voters),
        observers: replicas(&quorum, &quorum.observers),
        is_dynamic: features.get("kraft.version").is_some_and(|level| *level > 0),
        is_committed,
        metadata_level: features.get("metadata.version").copied(),
    })
}

/// The leader tells the newest voter set, committed or not. It is committed when everything is that the leader had then.
async fn is_committed(admin: &Admin, seen: &Quorum) -> Result<bool, Error> {
    let leader = seen.voters.iter().chain(&seen.observers).find(|replica| replica.id == seen.leader);
    let Some(end) = leader.map(|leader| leader.log_end_offset) else { return Ok(false) };
    if seen.high_watermark >= end {
        return Ok(true);
    }
    let later = admin.describe_quorum().await?;
    let same_term = (later.leader, later.leader_epoch) == (seen.leader, seen.leader_epoch);
    Ok(same_term && later.high_watermark >= end)
}

fn replicas(quorum: &Quorum, replicas: &[ReplicaState]) -> Vec<Replica> {
    let all = quorum.voters.iter().chain(&quorum.observers);
    let leader_time =
        all.filter(|replica| replica.id == quorum.leader).find_map(|leader| leader.last_caught_up);
    let behind = |replica: &ReplicaState| {
        let lag = leader_time?.saturating_sub(replica.last_caught_up?);
        Some(Duration::from_millis(u64::try_from(lag).unwrap_or_default()))
    };
    let view = |replica: &ReplicaState| Replica {
        node: NodeId(replica.id.0),
        directory: replica.directory.and_then(|id| id.to_string().parse::<DirectoryId>().ok()),
        takes_part: replica.id == quorum.leader || replica.last_fetch.is_some(),
        behind: if replica.id == quorum.leader { Some(Duration::ZERO) } else { behind(replica) },
    };
    replicas.iter().map(view).collect()
}

/// The partitions that have a copy on one of the nodes.
async fn partitions(admin: &Admin, of: &BTreeSet<NodeId>) -> Result<Partitions, Error> {
    let topics = admin.metadata(TopicSelection::All).await?.topics;
    let views = topics.iter().flat_map(|topic| topic.partitions.iter().map(|one| view(&topic.name, one)));
    let mut found: Vec<_> = views.filter(|view| !view.replicas.is_disjoint(of)).collect();
    let names: BTreeSet<_> = found.iter().map(|view| view.topic.clone()).collect();
    let minimums = minimums(admin, &names.into_iter().collect::<Vec<_>>()).await?;
    for view in &mut found {
        // A minimum that cannot be read must not make anything look safe.
        view.min_in_sync = minimums.get(&view.topic).copied().unwrap_or(usize::MAX);
    }
    Ok(Partitions { of: of.clone(), found })
}

/// How many complete copies a write needs, by topic.
async fn minimums(admin: &Admin, topics: &[String]) -> Result<BTreeMap<String, usize>, Error> {
    const KEY: &str = "min.insync.replicas";
    let described = admin.describe_topic_configs(topics, &[KEY]).await?;
    let minimum = |entries: Vec<ConfigEntry>| {
        entries.into_iter().find(|entry| entry.name == KEY)?.value?.parse::<usize>().ok()
    };
    Ok(described.into_iter().filter_map(|(topic, entries)| Some((topic, minimum(entries.ok()?)?))).collect())
}

fn view(topic: &str, partition: &Partition) -> PartitionView {
    let nodes = |ids: &[karst_kafka::NodeId]| ids.iter().map(|id| NodeId(id.0)).collect::<BTreeSet<_>>();
    PartitionView {
        topic: topic.to_owned(),
        index: partition.index,
        replicas: nodes(&partition.replicas),
        in_sync: nodes(&partition.isr),
        min_in_sync: 0,
    }
}
