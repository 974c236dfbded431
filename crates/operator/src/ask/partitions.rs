//! Asking Kafka for partitions: who has a copy, who leads, and whose copy is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karst_core::ids::NodeId;
use karst_core::world::{PartitionView, Partitions};
use karst_kafka::{
    Admin, Broker, ConfigEntry, DescribedPartition, DescribedTopic, Error, ErrorCode, Partition, Topic,
    TopicSelection,
};

/// Why it is not known which partitions there are. One that was left out would look as if nobody needed its copies.
#[derive(Debug, thiserror::Error)]
pub(super) enum Untold {
    #[error(transparent)]
    Kafka(#[from] Error),
    #[error("Kafka does not tell of topic {topic}: {code}")]
    Topic { topic: String, code: ErrorCode },
    #[error("Kafka does not tell who could lead {topic}-{index}")]
    Partition { topic: String, index: i32 },
}

/// The partitions that have a copy on one of the nodes.
///
/// All topics are asked for where they live, which every broker tells; those that live here also for their eligible leaders.
pub(super) async fn on(admin: &Admin, of: &BTreeSet<NodeId>) -> Result<Partitions, Untold> {
    let metadata = admin.metadata(TopicSelection::All).await?;
    let serving = nodes(metadata.brokers.iter().map(|broker: &Broker| &broker.id));
    let topics = with_copies_on(metadata.topics, of)?;
    let names: Vec<String> = topics.iter().map(|topic| topic.name.to_string()).collect();
    let described = if_offered(admin.describe_topic_partitions(&names).await)?;
    let minimums = minimums(admin, &names).await?;
    let mut found = Vec::new();
    for topic in &topics {
        let leaders = described.as_ref().map(|described| leaders(&topic.name, described)).transpose()?;
        let min_in_sync = minimums.get(&*topic.name).copied();
        let views = views(topic, leaders.flatten(), &serving)?;
        let here = views.into_iter().filter(|view| !view.replicas.is_disjoint(of));
        found.extend(here.map(|view| PartitionView { min_in_sync, ..view }));
    }
    Ok(Partitions { of: of.clone(), found })
}

/// The topics that have a copy on one of the nodes.
fn with_copies_on(topics: Vec<Topic>, of: &BTreeSet<NodeId>) -> Result<Vec<Topic>, Untold> {
    let is_here = |partition: &Partition| partition.replicas.iter().any(|id| of.contains(&NodeId(id.0)));
    let mut here = Vec::new();
    for topic in topics {
        match topic.error {
            None => here.extend(topic.partitions.iter().any(is_here).then_some(topic)),
            Some(ErrorCode::UnknownTopicOrPartition) => {}
            Some(code) => return Err(Untold::Topic { topic: topic.name.to_string(), code }),
        }
    }
    Ok(here)
}

/// Kafka that cannot be asked for eligible leaders keeps no track of them.
fn if_offered(
    described: Result<Vec<DescribedTopic>, Error>,
) -> Result<Option<BTreeMap<Arc<str>, DescribedTopic>>, Error> {
    match described {
        Ok(topics) => Ok(Some(topics.into_iter().map(|topic| (Arc::clone(&topic.name), topic)).collect())),
        Err(Error::Unsupported { .. }) => Ok(None),
        Err(error) => Err(error),
    }
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

/// What was said about the eligible leaders of a topic. `None` if it was deleted after it was seen: then what was seen stands.
fn leaders<'a>(
    topic: &str,
    described: &'a BTreeMap<Arc<str>, DescribedTopic>,
) -> Result<Option<&'a [DescribedPartition]>, Untold> {
    match described.get(topic) {
        // Each of its partitions will be missed.
        None => Ok(Some(&[])),
        Some(DescribedTopic { error: None, partitions, .. }) => Ok(Some(partitions)),
        Some(DescribedTopic { error: Some(ErrorCode::UnknownTopicOrPartition), .. }) => Ok(None),
        Some(DescribedTopic { error: Some(code), .. }) => {
            Err(Untold::Topic { topic: topic.to_owned(), code: *code })
        }
    }
}

/// The partitions of a topic by both answers, the second of which may be lacking.
fn views(
    topic: &Topic,
    leaders: Option<&[DescribedPartition]>,
    serving: &BTreeSet<NodeId>,
) -> Result<Vec<PartitionView>, Untold> {
    let mut described: BTreeMap<i32, &DescribedPartition> =
        leaders.unwrap_or_default().iter().map(|one| (one.partition.index, one)).collect();
    let mut views = Vec::new();
    for seen in &topic.partitions {
        let later = described.remove(&seen.index);
        if leaders.is_some() && later.is_none() {
            return Err(Untold::Partition { topic: topic.name.to_string(), index: seen.index });
        }
        views.push(view(&topic.name, seen, later, serving));
    }
    // Those that were added in between.
    let added = described.into_values().map(|one| view(&topic.name, &one.partition, Some(one), serving));
    views.extend(added);
    Ok(views)
}

/// One partition by both answers. Where they disagree it changed in between, and what was said last holds; whoever had a copy by
/// either counts as having one.
fn view(
    topic: &Arc<str>,
    seen: &Partition,
    described: Option<&DescribedPartition>,
    serving: &BTreeSet<NodeId>,
) -> PartitionView {
    // Another broker may have given the second answer, one that is a little behind the first.
    let is_later = |one: &&DescribedPartition| one.partition.leader_epoch >= seen.leader_epoch;
    let last = described.filter(is_later).map_or(seen, |one| &one.partition);
    let replicas = described.iter().flat_map(|one| &one.partition.replicas).chain(&seen.replicas);
    PartitionView {
        topic: Arc::clone(topic),
        index: seen.index,
        leader: last.leader.map(|leader| NodeId(leader.0)),
        replicas: nodes(replicas),
        in_sync: nodes(&last.isr),
        eligible: nodes(described.iter().flat_map(|one| &one.eligible)),
        last_known: nodes(described.iter().flat_map(|one| &one.last_known_eligible)),
        offline: failed(seen, serving),
        min_in_sync: None,
    }
}

/// The replicas that are offline though their brokers serve: the directory that they are in failed. Those of brokers that are down
/// are offline too, and say nothing about their disks.
fn failed(seen: &Partition, serving: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
    nodes(&seen.offline_replicas).intersection(serving).copied().collect()
}

fn nodes<'a>(ids: impl IntoIterator<Item = &'a karst_kafka::NodeId>) -> BTreeSet<NodeId> {
    ids.into_iter().map(|id| NodeId(id.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use karst_kafka::{Api, Endpoint, Versions};

    fn set(ids: &[i32]) -> BTreeSet<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    fn ids(ids: &[i32]) -> Vec<karst_kafka::NodeId> {
        ids.iter().copied().map(karst_kafka::NodeId).collect()
    }

    fn partition(index: i32, leader: Option<i32>, replicas: &[i32], isr: &[i32]) -> Partition {
        Partition {
            index,
            leader: leader.map(karst_kafka::NodeId),
            leader_epoch: 4,
            replicas: ids(replicas),
            isr: ids(isr),
            offline_replicas: Vec::new(),
            error: None,
        }
    }

    fn topic(name: &str, error: Option<ErrorCode>, partitions: Vec<Partition>) -> Topic {
        Topic { name: name.into(), id: None, internal: false, error, partitions }
    }

    fn described(partition: Partition, eligible: &[i32], last_known: &[i32]) -> DescribedPartition {
        DescribedPartition { partition, eligible: ids(eligible), last_known_eligible: ids(last_known) }
    }

    fn description(
        error: Option<ErrorCode>,
        partitions: Vec<DescribedPartition>,
    ) -> BTreeMap<Arc<str>, DescribedTopic> {
        let name: Arc<str> = "orders".into();
        let topic = DescribedTopic { name: Arc::clone(&name), id: None, internal: false, error, partitions };
        BTreeMap::from([(name, topic)])
    }

    /// What both answers come to, for partitions of `orders`.
    fn told(
        seen: Vec<Partition>,
        described: Option<&BTreeMap<Arc<str>, DescribedTopic>>,
    ) -> Result<Vec<PartitionView>, String> {
        let leaders = described.map(|described| leaders("orders", described)).transpose();
        let leaders = leaders.map_err(|error| error.to_string())?.flatten();
        views(&topic("orders", None, seen), leaders, &set(&[1, 4])).map_err(|error| error.to_string())
    }

    #[test]
    fn a_partition_without_a_leader_is_told_with_those_who_could_lead_it() {
        let offline = |partition: Partition| Partition {
            offline_replicas: ids(&[1, 2, 3]),
            error: Some(ErrorCode::LeaderNotAvailable),
            ..partition
        };
        let seen = offline(partition(0, None, &[1, 2, 3], &[]));
        let second = description(None, vec![described(seen.clone(), &[2, 3], &[2])]);
        let view = PartitionView {
            topic: "orders".into(),
            index: 0,
            leader: None,
            replicas: set(&[1, 2, 3]),
            in_sync: set(&[]),
            eligible: set(&[2, 3]),
            last_known: set(&[2]),
            // Brokers 2 and 3 are down. Broker 1 serves, so it lost a directory.
            offline: set(&[1]),
            min_in_sync: None,
        };
        assert_eq!(told(vec![seen.clone()], Some(&second)), Ok(vec![view.clone()]));
        let blind = PartitionView { eligible: set(&[]), last_known: set(&[]), ..view };
        assert_eq!(told(vec![seen], None), Ok(vec![blind]), "Kafka that has only Metadata");
    }

    #[test]
    fn of_two_answers_that_disagree_the_later_holds_and_every_copy_counts() {
        let first = partition(0, Some(1), &[1, 2, 3], &[1, 2]);
        let second = partition(0, Some(2), &[2, 3, 4], &[2, 3]);
        let merge = |second: &Partition| {
            let both = description(None, vec![described(second.clone(), &[4], &[])]);
            told(vec![first.clone()], Some(&both)).unwrap().remove(0)
        };
        let view = merge(&second);
        assert_eq!((view.leader, view.in_sync), (Some(NodeId(2)), set(&[2, 3])));
        assert_eq!((view.replicas, view.eligible), (set(&[1, 2, 3, 4]), set(&[4])));
        let view = merge(&Partition { leader_epoch: 3, ..second });
        assert_eq!((view.leader, view.in_sync), (Some(NodeId(1)), set(&[1, 2])), "the second was behind");
        assert_eq!((view.replicas, view.eligible), (set(&[1, 2, 3, 4]), set(&[4])));
    }

    #[test]
    fn a_partition_that_was_added_in_between_is_told_too() {
        let one = |index| partition(index, Some(1), &[1], &[1]);
        let both = description(None, vec![described(one(0), &[], &[]), described(one(1), &[2], &[])]);
        let views = told(vec![one(0)], Some(&both)).unwrap();
        let found: Vec<_> = views.into_iter().map(|view| (view.index, view.eligible)).collect();
        assert_eq!(found, [(0, set(&[])), (1, set(&[2]))]);
    }

    #[test]
    fn what_is_not_told_of_is_not_taken_for_safe() {
        let seen = || vec![partition(0, Some(1), &[1], &[1]), partition(1, Some(1), &[1], &[1])];
        let short = description(None, vec![described(seen().remove(0), &[], &[])]);
        assert_eq!(told(seen(), Some(&short)), Err("Kafka does not tell who could lead orders-1".to_owned()));
        assert_eq!(
            told(seen(), Some(&BTreeMap::new())),
            Err("Kafka does not tell who could lead orders-0".to_owned())
        );
        let refused = description(Some(ErrorCode::TopicAuthorizationFailed), Vec::new());
        assert_eq!(
            told(seen(), Some(&refused)),
            Err("Kafka does not tell of topic orders: TOPIC_AUTHORIZATION_FAILED".to_owned())
        );
        let deleted = description(Some(ErrorCode::UnknownTopicOrPartition), Vec::new());
        assert_eq!(told(seen(), Some(&deleted)).unwrap().len(), 2, "what was deleted since need not be told");
    }

    #[test]
    fn only_a_topic_that_does_not_exist_may_be_left_out() {
        let on = |node| vec![partition(0, None, &[9, node], &[])];
        let unknown = topic("gone", Some(ErrorCode::UnknownTopicOrPartition), Vec::new());
        let topics = vec![topic("here", None, on(1)), topic("elsewhere", None, on(5)), unknown.clone()];
        let found = with_copies_on(topics, &set(&[1, 2])).unwrap();
        assert_eq!(found.iter().map(|topic| &*topic.name).collect::<Vec<_>>(), ["here"]);
        let refused = topic("secret", Some(ErrorCode::TopicAuthorizationFailed), Vec::new());
        let error = with_copies_on(vec![unknown, refused], &set(&[1])).unwrap_err();
        assert_eq!(error.to_string(), "Kafka does not tell of topic secret: TOPIC_AUTHORIZATION_FAILED");
    }

    #[test]
    fn only_kafka_that_cannot_be_asked_is_not() {
        let endpoint = || Endpoint::new("broker", 9091);
        let api = Api::DescribeTopicPartitions;
        let ours = Versions { min: 0, max: 0 };
        let unsupported = Error::Unsupported { endpoint: endpoint(), api, ours, theirs: None };
        assert!(if_offered(Err(unsupported)).unwrap().is_none());
        let code = ErrorCode::RequestTimedOut;
        let refused = Error::Kafka { endpoint: endpoint(), api, code, message: None };
        assert!(if_offered(Err(refused)).is_err());
        assert_eq!(if_offered(Ok(Vec::new())).unwrap(), Some(BTreeMap::new()));
    }
}
