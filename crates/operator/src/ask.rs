//! Asking Kafka about itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use karst_core::config::REPLICATION_PORT;
use karst_core::ids::{DirectoryId, NodeId};
use karst_core::plan::Questions;
use karst_core::quorum::CONTROLLER_PORT;
use karst_core::world::{Answer, Answers, PartitionView, QuorumView, Replica};
use karst_kafka::{
    Admin, Bootstrap, ClientConfig, ConfigResource, Endpoint, Error, Partition, Quorum, TopicSelection,
};

/// How long Kafka may take. A pass does not wait longer: no answer is an answer too.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks what is to be asked, and adds the answers to those there are.
pub(crate) async fn ask(questions: &Questions, answers: &mut Answers) {
    if !questions.quorum.is_empty() {
        let admin =
            Admin::new(Bootstrap::Controllers(endpoints(&questions.quorum, CONTROLLER_PORT)), config());
        answers.quorum = answer(quorum(&admin).await);
    }
    if !questions.partitions_of.is_empty() {
        let admin = Admin::new(Bootstrap::Brokers(endpoints(&questions.brokers, REPLICATION_PORT)), config());
        answers.partitions = answer(partitions(&admin, questions).await);
    }
}

fn endpoints(hosts: &[String], port: u16) -> Vec<Endpoint> {
    hosts.iter().map(|host| Endpoint::new(host, port)).collect()
}

fn config() -> ClientConfig {
    ClientConfig {
        client_id: "karst-operator".to_owned(),
        connect_timeout: PATIENCE / 2,
        request_timeout: PATIENCE,
        ..ClientConfig::default()
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
    let features = admin.features().await?;
    Ok(QuorumView {
        voters: voters(&quorum),
        metadata_level: features.finalized.get("metadata.version").copied(),
    })
}

fn voters(quorum: &Quorum) -> Vec<Replica> {
    let replica = |voter: &karst_kafka::ReplicaState| Replica {
        node: NodeId(voter.id.0),
        directory: voter.directory.and_then(|id| id.to_string().parse::<DirectoryId>().ok()),
        takes_part: voter.id == quorum.leader || voter.last_fetch.is_some(),
    };
    quorum.voters.iter().map(replica).collect()
}

/// The partitions that have a copy on one of the nodes.
async fn partitions(admin: &Admin, questions: &Questions) -> Result<Vec<PartitionView>, Error> {
    let topics = admin.metadata(TopicSelection::All).await?.topics;
    let mut found = Vec::new();
    let mut minimums = BTreeMap::new();
    for topic in topics {
        for partition in &topic.partitions {
            let view = view(&topic.name, partition);
            if view.replicas.is_disjoint(&questions.partitions_of) {
                continue;
            }
            if !view.replicas.is_disjoint(&questions.moved) && !minimums.contains_key(&topic.name) {
                minimums.insert(topic.name.clone(), min_in_sync(admin, &topic.name).await?);
            }
            found.push(view);
        }
    }
    for view in &mut found {
        view.min_in_sync = minimums.get(&view.topic).copied().unwrap_or_default();
    }
    Ok(found)
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

async fn min_in_sync(admin: &Admin, topic: &str) -> Result<usize, Error> {
    let entries = admin.describe_configs(ConfigResource::Topic(topic.to_owned())).await?;
    let minimum = entries.iter().find(|entry| entry.name == "min.insync.replicas");
    // A minimum that cannot be read must not make a move look safe.
    Ok(minimum.and_then(|entry| entry.value.as_deref()?.parse().ok()).unwrap_or(usize::MAX))
}
