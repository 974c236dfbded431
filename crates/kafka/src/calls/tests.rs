//! What real nodes answered is read for what it says.

mod bounds;
mod changes;
mod damage;

use std::sync::LazyLock;

use bytes::{Buf as _, Bytes};

use super::topic_partitions::Cursor;
use super::*;
use crate::wire::decode_response;
use crate::{
    ClusterDescription, ConfigResource, ConfigSource, DescribedTopic, LevelRange, NodeId, Quorum,
    TopicMetadata, TopicSelection,
};

macro_rules! frame {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/frames/", $name)).as_slice()
    };
}
use frame;

/// Reads a message as `call` would, taking its own word for the correlation id.
fn read<C: Call>(call: &C, version: i16, message: &[u8]) -> Result<C::Answer, String> {
    let endpoint = Endpoint::new("node", 9092);
    let context = Context { endpoint: &endpoint, api: C::API, version };
    let correlation_id = message.get(..4).map_or(0, |mut id| id.get_i32());
    let response = decode_response::<C::Request>(Bytes::copy_from_slice(message), version, correlation_id)?;
    call.answer(response, &context).map_err(|error| error.to_string())
}

fn topics() -> DescribeTopics {
    DescribeTopics(TopicSelection::All)
}

fn orders_config() -> DescribeConfigs<'static> {
    DescribeConfigs { resource: ConfigResource::Topic("orders".to_owned()), keys: &[] }
}

/// The topics of a cluster that keeps track of eligible leaders: from the beginning, or from a partition of `orders`.
fn three_topics(from: Option<i32>) -> DescribeTopicPartitions<'static> {
    static TOPICS: LazyLock<[String; 3]> = LazyLock::new(|| ["audit", "nosuch", "orders"].map(str::to_owned));
    let from = from.map(|partition| Cursor { topic: "orders".to_owned(), partition });
    DescribeTopicPartitions { topics: &*TOPICS, from, told: 0 }
}

fn states(cluster: &ClusterDescription) -> Vec<(i32, String, bool)> {
    let mut states: Vec<_> = cluster
        .brokers
        .iter()
        .map(|broker| (broker.id.0, broker.endpoint.to_string(), broker.fenced))
        .collect();
    states.sort();
    states
}

#[test]
fn whoever_wants_to_copy_the_metadata_log_is_told_where_the_leader_is() {
    let leader = read(&FollowLeader, 17, frame!("4.1.1/fetch-v17.bin")).unwrap();
    assert_eq!(
        leader.to_string(),
        "live-controllers-3.live-kafka-brokers.calls-silence-27d858.svc.cluster.local:9090"
    );
}

#[test]
fn whoever_wants_to_copy_the_metadata_log_is_told_the_epoch() {
    let epoch = read(&QuorumEpoch, 17, frame!("4.1.1/fetch-v17.bin")).unwrap();
    assert!(epoch > 0, "{epoch}");
}

#[test]
fn a_killed_broker_is_listed_as_fenced_by_kafka_4() {
    let cluster = read(&DescribeBrokers, 2, frame!("4.1.1/describe-cluster-v2.bin")).unwrap();
    assert!(cluster.fenced_known);
    assert_eq!(cluster.cluster_id, "4L6g3nShT-eMCtK--X86sw");
    assert_eq!(
        states(&cluster),
        [(3, "localhost:29093".to_owned(), false), (4, "localhost:29094".to_owned(), true)]
    );
}

#[test]
fn kafka_3_9_does_not_speak_of_fenced_brokers() {
    let cluster = read(&DescribeBrokers, 1, frame!("3.9.1/describe-cluster-v1.bin")).unwrap();
    assert!(!cluster.fenced_known);
    assert_eq!(
        states(&cluster),
        [(3, "localhost:29193".to_owned(), false), (4, "localhost:29194".to_owned(), false)]
    );
}

#[test]
fn a_controller_names_the_leader_and_where_it_listens() {
    for (version, port, message) in [
        (2, 29090, frame!("4.1.1/describe-controllers-v2.bin")),
        (1, 29190, frame!("3.9.1/describe-controllers-v1.bin")),
    ] {
        let cluster = read(&DescribeControllers, version, message).unwrap();
        assert_eq!(cluster.leader, Some(NodeId(0)));
        assert_eq!(cluster.controllers.len(), 3);
        assert_eq!(read(&FindLeader, version, message).unwrap(), Endpoint::new("localhost", port));
        assert_eq!(
            read(&FindController(NodeId(2)), version, message).unwrap(),
            Endpoint::new("localhost", port + 2)
        );
        assert_eq!(
            read(&FindController(NodeId(7)), version, message).unwrap_err(),
            "node 7 is not among those that node:9092 lists"
        );
    }
}

fn directories(quorum: &Quorum) -> Vec<(i32, String)> {
    quorum.voters.iter().map(|voter| (voter.id.0, voter.directory.unwrap().to_string())).collect()
}

#[test]
fn the_voters_of_a_dynamic_quorum_have_the_directories_they_were_formatted_with() {
    for message in [frame!("4.1.1/describe-quorum-v2.bin"), frame!("3.9.1/describe-quorum-v2.bin")] {
        let quorum = read(&DescribeQuorum, 2, message).unwrap();
        assert_eq!((quorum.leader, quorum.leader_epoch), (NodeId(0), 1));
        assert_eq!(
            directories(&quorum),
            [
                (0, "3Db5QLSqSZieL3rJBUUegA".to_owned()),
                (1, "L3QjC3x4T8eQ2fD1kqf2Cw".to_owned()),
                (2, "Zm9vYmFyYmF6cXV4MTIzNA".to_owned()),
            ]
        );
        assert_eq!(quorum.observers.len(), 2, "the brokers");
        assert!(quorum.voters.iter().all(|voter| voter.log_end_offset == quorum.high_watermark));
        assert!(
            quorum.voters.iter().all(|voter| voter.last_fetch.is_some() && voter.last_caught_up.is_some())
        );
    }
}

fn check_topics(metadata: &TopicMetadata, in_sync: &[i32]) {
    let orders = metadata.topics.iter().find(|topic| &*topic.name == "orders").unwrap();
    assert_eq!((orders.error, orders.internal, orders.partitions.len()), (None, false, 2));
    assert!(orders.id.is_some());
    for partition in &orders.partitions {
        assert_eq!(partition.replicas.len(), 2);
        let mut isr: Vec<i32> = partition.isr.iter().map(|id| id.0).collect();
        isr.sort_unstable();
        assert_eq!(isr, in_sync);
        assert!(partition.isr.contains(&partition.leader.unwrap()));
    }
    let missing = metadata.topics.iter().find(|topic| &*topic.name == "nosuch").unwrap();
    assert_eq!((missing.error, missing.id), (Some(ErrorCode::UnknownTopicOrPartition), None));
}

#[test]
fn topics_tell_who_is_in_sync_and_which_do_not_exist() {
    check_topics(&read(&topics(), 13, frame!("4.1.1/metadata-v13.bin")).unwrap(), &[3]);
    check_topics(&read(&topics(), 12, frame!("3.9.1/metadata-v12.bin")).unwrap(), &[3, 4]);
}

/// Index, leader, ISR, eligible leaders, those that are known last, and replicas that are offline.
type Row = (i32, Option<i32>, Vec<i32>, Vec<i32>, Vec<i32>, Vec<i32>);

fn rows(topic: &DescribedTopic) -> Vec<Row> {
    let ids = |ids: &[NodeId]| ids.iter().map(|id| id.0).collect();
    let row = |one: &crate::DescribedPartition| {
        let part = &one.partition;
        let leader = part.leader.map(|leader| leader.0);
        let (eligible, last) = (ids(&one.eligible), ids(&one.last_known_eligible));
        (part.index, leader, ids(&part.isr), eligible, last, ids(&part.offline_replicas))
    };
    topic.partitions.iter().map(row).collect()
}

#[test]
fn partitions_tell_who_could_lead_them_when_nobody_is_in_sync() {
    let first = read(&three_topics(None), 0, frame!("4.1.1/describe-topic-partitions-v0.bin")).unwrap();
    let [audit, missing, orders] = first.topics.as_slice() else { panic!("{first:?}") };
    assert_eq!((&*audit.name, audit.error), ("audit", None));
    let calm = |index| (index, Some(4), vec![4], vec![], vec![], vec![]);
    assert_eq!(rows(audit), [calm(0), calm(1)]);
    assert_eq!((missing.error, missing.id), (Some(ErrorCode::UnknownTopicOrPartition), None));
    let leaderless = |index, replicas| (index, None, vec![], vec![2, 3], vec![2], replicas);
    assert_eq!(rows(orders), [leaderless(0, vec![1, 2, 3])]);
    assert_eq!(orders.partitions[0].partition.leader_epoch, 2);
    assert_eq!(first.next, Some(Cursor { topic: "orders".to_owned(), partition: 1 }));

    let message = frame!("4.1.1/describe-topic-partitions-next-v0.bin");
    let next = read(&three_topics(Some(1)), 0, message).unwrap();
    let [orders] = next.topics.as_slice() else { panic!("{next:?}") };
    let thin = |index, offline| (index, Some(1), vec![1], vec![2], vec![], offline);
    assert_eq!(rows(orders), [thin(1, vec![2, 3]), leaderless(2, vec![3, 1, 2]), thin(3, vec![3, 2])]);
    assert_eq!(next.next, None);
}

#[test]
fn an_answer_about_partitions_that_leads_back_or_leaves_a_topic_out_is_refused() {
    let page = frame!("4.1.1/describe-topic-partitions-v0.bin");
    let back = read(&three_topics(Some(1)), 0, page).unwrap_err();
    assert!(back.contains("to be continued at orders-1, which leads nowhere"), "{back}");
    let topics = ["audit", "more", "nosuch", "orders"].map(str::to_owned);
    let four = DescribeTopicPartitions { topics: &topics, from: None, told: 0 };
    assert!(read(&four, 0, page).unwrap_err().contains("it does not speak of more"));
    // What comes after the cursor was not to be told yet.
    let topics = ["audit", "nosuch", "orders", "payments"].map(str::to_owned);
    read(&DescribeTopicPartitions { topics: &topics, from: None, told: 0 }, 0, page).unwrap();
    let elsewhere = DescribeTopicPartitions { topics: &topics[..2], from: None, told: 0 };
    assert!(
        read(&elsewhere, 0, page).unwrap_err().contains("leads nowhere"),
        "not a topic that was asked for"
    );
}

#[test]
fn the_configuration_of_a_topic_says_where_each_value_comes_from() {
    let entries = read(&orders_config(), 4, frame!("4.1.1/describe-configs-v4.bin")).unwrap();
    assert_eq!(entries.len(), 33);
    let min_isr = entries.iter().find(|entry| entry.name == "min.insync.replicas").unwrap();
    assert_eq!(min_isr.value.as_deref(), Some("1"));
    assert!(!min_isr.sensitive);
    assert!(
        entries.iter().all(|entry| !matches!(entry.source, ConfigSource::Other(_))),
        "every source of a real answer has a name"
    );
    let another = DescribeConfigs { resource: ConfigResource::Topic("invoices".to_owned()), keys: &[] };
    assert!(read(&another, 4, frame!("4.1.1/describe-configs-v4.bin")).is_err(), "not the topic asked for");
}

#[test]
fn features_tell_a_dynamic_quorum_and_the_metadata_version() {
    let features = read(&ApiVersionsCall, 4, frame!("4.1.1/api-versions-v4.bin")).unwrap();
    assert_eq!(features.supported["metadata.version"], LevelRange { min: 7, max: 27 });
    assert_eq!(features.supported["kraft.version"], LevelRange { min: 0, max: 1 });
    assert_eq!((features.finalized["metadata.version"], features.finalized["kraft.version"]), (27, 1));
    assert!(features.epoch.is_some());

    let older = read(&ApiVersionsCall, 4, frame!("3.9.1/api-versions-v4.bin")).unwrap();
    assert_eq!((older.finalized["metadata.version"], older.finalized["kraft.version"]), (21, 1));
}
