//! Answers that fit into a message and are more than any cluster has.

use std::iter::repeat_n;

use bytes::{BufMut as _, BytesMut};
use kafka_protocol::messages::api_versions_response::FinalizedFeatureKey;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::describe_quorum_response::{PartitionData, ReplicaState, TopicData};
use kafka_protocol::messages::describe_topic_partitions_response::{
    DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use kafka_protocol::messages::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
use kafka_protocol::messages::{
    ApiVersionsResponse, DescribeClusterResponse, DescribeConfigsResponse, DescribeLogDirsResponse,
    DescribeQuorumResponse, DescribeTopicPartitionsResponse, MetadataResponse, TopicName,
};
use kafka_protocol::protocol::Encodable;

use super::super::bounds::{FEATURES, NODES, PARTITIONS};
use super::*;

/// A message as a node would send it, without its frame.
fn message(response: &impl Encodable, version: i16, tags: &[u8]) -> BytesMut {
    let mut message = BytesMut::new();
    message.put_i32(7);
    message.put_slice(tags);
    response.encode(&mut message, version).unwrap();
    message
}

fn told<C: Call>(call: &C, version: i16, response: &impl Encodable) -> Result<C::Answer, String> {
    // The answer to ApiVersions is the one whose header never has tags.
    let tags: &[u8] = if C::API == Api::ApiVersions { &[] } else { &[0] };
    let message = message(response, version, tags);
    assert!(message.len() <= C::LARGEST, "{} bytes", message.len());
    read(call, version, &message)
}

fn refusal<C: Call>(call: &C, version: i16, response: &impl Encodable) -> String
where
    C::Answer: std::fmt::Debug,
{
    told(call, version, response).unwrap_err()
}

fn text(length: usize) -> StrBytes {
    StrBytes::from_string("x".repeat(length))
}

fn topic_name(length: usize) -> TopicName {
    TopicName(text(length))
}

fn metadata(name: usize, partitions: usize) -> MetadataResponse {
    let partitions = repeat_n(MetadataResponsePartition::default(), partitions);
    let topic = MetadataResponseTopic::default()
        .with_name(Some(topic_name(name)))
        .with_partitions(partitions.collect());
    MetadataResponse::default().with_topics(vec![topic])
}

#[test]
fn a_name_that_no_topic_has_is_not_copied_for_each_of_its_partitions() {
    let why = refusal(&topics(), 12, &metadata(32_000, 30_000));
    assert!(why.contains("a topic name of 32000 bytes, and no more than 249 are read"), "{why}");
    assert!(why.len() < 1_000);
    assert!(told(&topics(), 12, &metadata(249, 1)).is_ok());

    let topic = |name| DescribeLogDirsTopic::default().with_name(topic_name(name)).with_partitions(vec![]);
    let dir = |name| DescribeLogDirsResult::default().with_topics(vec![topic(name)]);
    let answer = |name| DescribeLogDirsResponse::default().with_results(vec![dir(name)]);
    assert!(refusal(&DescribeLogDirs, 4, &answer(250)).contains("topic name"));
    assert!(told(&DescribeLogDirs, 4, &answer(249)).is_ok());
}

#[test]
fn more_partitions_than_a_cluster_has_are_refused_by_their_number() {
    assert!(told(&topics(), 12, &metadata(1, PARTITIONS)).is_ok());
    let why = refusal(&topics(), 12, &metadata(1, PARTITIONS + 1));
    assert!(why.contains("it lists 200001 partitions, and no more than 200000 are read"), "{why}");

    let topic = |partitions| {
        let partitions = repeat_n(DescribeLogDirsPartition::default(), partitions).collect();
        DescribeLogDirsTopic::default().with_name(topic_name(1)).with_partitions(partitions)
    };
    // Half of them in each of two directories.
    let half = PARTITIONS / 2;
    let dirs = [half, half + 1].map(|n| DescribeLogDirsResult::default().with_topics(vec![topic(n)]));
    let why = refusal(&DescribeLogDirs, 4, &DescribeLogDirsResponse::default().with_results(dirs.to_vec()));
    assert!(why.contains("200001 copies of partitions"), "{why}");
}

/// They are empty, and would take half a kilobyte each.
#[test]
fn millions_of_partitions_are_refused_before_they_are_decoded() {
    let half = metadata(1, 750_000).topics.remove(0);
    let why = refusal(&topics(), 12, &MetadataResponse::default().with_topics(vec![half.clone(), half]));
    assert!(why.contains("it has millions of parts, more than any cluster has"), "{why}");
}

#[test]
fn more_nodes_and_features_than_a_cluster_has_are_refused() {
    let cluster = |nodes| {
        let nodes = repeat_n(DescribeClusterBroker::default().with_port(1), nodes).collect();
        DescribeClusterResponse::default().with_brokers(nodes)
    };
    assert!(told(&DescribeBrokers, 2, &cluster(NODES)).is_ok());
    assert!(refusal(&DescribeBrokers, 2, &cluster(NODES + 1)).contains("10001 brokers"));
    assert!(refusal(&DescribeControllers, 2, &cluster(NODES + 1)).contains("10001 controllers"));

    let quorum = |voters, observers| {
        let replicas = |number| repeat_n(ReplicaState::default(), number).collect::<Vec<_>>();
        let partition = PartitionData::default()
            .with_leader_id(3.into())
            .with_current_voters(replicas(voters))
            .with_observers(replicas(observers));
        let name = TopicName(StrBytes::from_static_str("__cluster_metadata"));
        let topic = TopicData::default().with_topic_name(name).with_partitions(vec![partition]);
        DescribeQuorumResponse::default().with_topics(vec![topic])
    };
    assert!(told(&DescribeQuorum, 2, &quorum(NODES, NODES)).is_ok());
    assert!(refusal(&DescribeQuorum, 2, &quorum(NODES + 1, 1)).contains("10001 voters"));
    assert!(refusal(&DescribeQuorum, 2, &quorum(1, NODES + 1)).contains("10001 observers"));

    let features = |number: usize, length| {
        let feature = FinalizedFeatureKey::default().with_name(text(length));
        ApiVersionsResponse::default().with_finalized_features(vec![feature; number])
    };
    assert!(told(&ApiVersionsCall, 4, &features(FEATURES, 20)).is_ok());
    assert!(refusal(&ApiVersionsCall, 4, &features(FEATURES + 1, 20)).contains("1001 features"));
    assert!(refusal(&ApiVersionsCall, 4, &features(1, 256)).contains("a name of 256 bytes"));
}

#[test]
fn a_host_that_no_resolver_knows_is_not_repeated() {
    let broker = DescribeClusterBroker::default().with_host(text(100_000)).with_port(-1);
    let why = refusal(&DescribeBrokers, 2, &DescribeClusterResponse::default().with_brokers(vec![broker]));
    assert!(why.contains("a host name of 100000 bytes, and no more than 255 are read"), "{why}");
    let long = text(1_000_000);
    let refused = DescribeClusterResponse::default().with_error_code(29).with_error_message(Some(long));
    assert!(refusal(&DescribeBrokers, 2, &refused).len() < 2_000, "nor are words without an end");
}

#[test]
fn settings_that_nobody_asked_for_are_not_kept_and_none_is_told_twice() {
    let setting = |name| {
        DescribeConfigsResourceResult::default()
            .with_name(StrBytes::from_static_str(name))
            .with_value(Some(text(9)))
    };
    let answer = |settings: &[&'static str]| {
        let result = DescribeConfigsResult::default()
            .with_resource_type(2)
            .with_resource_name(StrBytes::from_static_str("orders"))
            .with_configs(settings.iter().map(|name| setting(name)).collect());
        DescribeConfigsResponse::default().with_results(vec![result])
    };
    let call = DescribeConfigs {
        resource: ConfigResource::Topic("orders".to_owned()),
        keys: &["min.insync.replicas"],
    };
    let kept = told(&call, 4, &answer(&["junk", "min.insync.replicas"])).unwrap();
    assert_eq!(kept.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["min.insync.replicas"]);
    let why = refusal(&call, 4, &answer(&["min.insync.replicas"; 2]));
    assert!(why.contains("2 settings, and no more than 1 are read"), "{why}");
}

#[test]
fn a_series_of_pages_ends_where_no_cluster_has_more() {
    let topics = ["orders".to_owned()];
    let call = |told| DescribeTopicPartitions { topics: &topics, from: None, told };
    let page = |name| {
        let topic = DescribeTopicPartitionsResponseTopic::default()
            .with_name(Some(TopicName(StrBytes::from_static_str(name))))
            .with_partitions(vec![DescribeTopicPartitionsResponsePartition::default()]);
        DescribeTopicPartitionsResponse::default().with_topics(vec![topic])
    };
    assert!(told(&call(PARTITIONS - 1), 0, &page("orders")).is_ok());
    assert!(refusal(&call(PARTITIONS), 0, &page("orders")).contains("200001 partitions"));
    assert!(refusal(&call(0), 0, &page("other")).contains("it speaks of other, which was not asked for"));
}
