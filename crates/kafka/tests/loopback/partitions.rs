//! Partitions, a page at a time.

use std::time::{Duration, Instant};

use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition as WirePartition,
    DescribeTopicPartitionsResponseTopic as WireTopic,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, BrokerId, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    MetadataResponse, TopicName,
};
use kafka_protocol::protocol::{Decodable as _, StrBytes};
use karst_kafka::{Admin, Api, Bootstrap, DescribedTopic, Error, ErrorCode, NodeId, TopicSelection};

use crate::node::{Node, Question, Reply, api, brokers, cluster, config};

/// How many partitions the node puts into one answer.
const LIMIT: usize = 3;

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

fn partition(index: i32) -> WirePartition {
    let nodes = |ids: &[i32]| ids.iter().copied().map(BrokerId).collect::<Vec<_>>();
    WirePartition::default()
        .with_partition_index(index)
        .with_leader_id(BrokerId(if index == 1 { -1 } else { 5 }))
        .with_replica_nodes(nodes(&[5, 6]))
        .with_isr_nodes(nodes(&[5]))
        .with_eligible_leader_replicas(if index == 0 { None } else { Some(nodes(&[6])) })
}

/// How many partitions a topic has: as many as the number at its end says. What has none does not exist.
fn partitions_of(topic: &str) -> i32 {
    topic.rsplit('-').next().unwrap().parse().unwrap_or_default()
}

/// Answers as Kafka does: in the order of names, up to the limit, and where it stopped.
fn describe(request: &DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse {
    let mut names: Vec<&str> = request.topics.iter().map(|topic| topic.name.0.as_str()).collect();
    names.sort_unstable();
    let cursor = request.cursor.as_ref().map(|at| (at.topic_name.0.as_str(), at.partition_index));
    let mut answer = DescribeTopicPartitionsResponse::default();
    let mut left = LIMIT;
    for topic in names {
        let begin = cursor.filter(|(at, _)| *at == topic).map_or(0, |(_, begin)| begin);
        assert!(cursor.is_none_or(|(at, _)| topic >= at), "what was told is not asked for again");
        if left == 0 {
            let here = Cursor::default().with_topic_name(name(topic)).with_partition_index(0);
            return answer.with_next_cursor(Some(here));
        }
        let end = partitions_of(topic).min(begin + i32::try_from(left).unwrap());
        let told: Vec<_> = (begin..end).map(partition).collect();
        left -= told.len();
        let error = if partitions_of(topic) == 0 { 3 } else { 0 };
        let entry = WireTopic::default().with_name(Some(name(topic))).with_error_code(error);
        answer.topics.push(entry.with_partitions(told));
        if end < partitions_of(topic) {
            let here = Cursor::default().with_topic_name(name(topic)).with_partition_index(end);
            return answer.with_next_cursor(Some(here));
        }
    }
    answer
}

fn asked(question: &Question) -> Option<DescribeTopicPartitionsRequest> {
    let mut body = question.body.clone();
    (question.api == ApiKey::DescribeTopicPartitions)
        .then(|| DescribeTopicPartitionsRequest::decode(&mut body, question.version).unwrap())
}

fn honest(question: &Question) -> Option<Reply> {
    asked(question).map(|request| question.answer(&describe(&request)))
}

fn topics(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn indices(topic: &DescribedTopic) -> Vec<i32> {
    topic.partitions.iter().map(|one| one.partition.index).collect()
}

#[tokio::test]
async fn all_pages_are_turned_and_put_together() {
    let node = Node::start(honest).await;
    let described = brokers([&node.endpoint])
        .describe_topic_partitions(&topics(&["b-7", "missing", "a-2", "c-1", "a-2"]))
        .await
        .unwrap();
    let told: Vec<_> = described.iter().map(|topic| (&*topic.name, indices(topic))).collect();
    let seven = (0..7).collect();
    assert_eq!(told, [("a-2", vec![0, 1]), ("b-7", seven), ("c-1", vec![0]), ("missing", vec![])]);
    assert_eq!(described[3].error, Some(ErrorCode::UnknownTopicOrPartition));
    let [first, second] = described[0].partitions.as_slice() else { panic!("{described:?}") };
    assert_eq!((first.partition.leader, first.eligible.as_slice()), (Some(NodeId(5)), [].as_slice()));
    assert_eq!((second.partition.leader, second.eligible.as_slice()), (None, [NodeId(6)].as_slice()));
    let cursors = node.questions().iter().filter_map(asked).map(|request| request.cursor).collect::<Vec<_>>();
    assert_eq!(cursors.len(), 4, "ten partitions, three at a time");
    assert_eq!(node.connections(), 1);
}

#[tokio::test]
async fn many_topics_are_named_in_several_questions() {
    let node = Node::start(|question| {
        asked(question).map(|request| {
            assert!(request.topics.len() <= 500);
            let told =
                request.topics.into_iter().map(|topic| WireTopic::default().with_name(Some(topic.name)));
            question.answer(&DescribeTopicPartitionsResponse::default().with_topics(told.collect()))
        })
    })
    .await;
    let names: Vec<String> = (0..1001).map(|number| format!("topic-{number:04}")).collect();
    let described = brokers([&node.endpoint]).describe_topic_partitions(&names).await.unwrap();
    assert_eq!(described.iter().map(|topic| topic.name.to_string()).collect::<Vec<_>>(), names);
    assert_eq!(node.asked().len(), 1 + 3);
}

#[tokio::test]
async fn no_topics_mean_none_and_not_all() {
    let node = Node::start(honest).await;
    assert_eq!(brokers([&node.endpoint]).describe_topic_partitions(&[]).await.unwrap(), []);
    assert_eq!(node.asked(), []);
}

#[tokio::test]
async fn a_node_without_the_question_says_so_and_keeps_its_connection() {
    let node = Node::start(|question| match question.api {
        ApiKey::ApiVersions => Some(
            question.answer(
                &ApiVersionsResponse::default()
                    .with_api_keys(vec![api(ApiKey::ApiVersions, 0, 4), api(ApiKey::Metadata, 0, 12)]),
            ),
        ),
        ApiKey::Metadata => Some(question.answer(&MetadataResponse::default())),
        _ => None,
    })
    .await;
    let admin = brokers([&node.endpoint]);
    let error = admin.describe_topic_partitions(&topics(&["a-1"])).await.unwrap_err();
    assert!(
        matches!(error, Error::Unsupported { api: Api::DescribeTopicPartitions, theirs: None, .. }),
        "{error}"
    );
    admin.metadata(TopicSelection::All).await.unwrap();
    assert_eq!(node.connections(), 1);
}

async fn complaint(
    lie: impl Fn(DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse + Send + Sync + 'static,
) -> String {
    let node =
        Node::start(move |question| asked(question).map(|request| question.answer(&lie(request)))).await;
    let outcome = brokers([&node.endpoint]).describe_topic_partitions(&topics(&["a-2", "b-2"])).await;
    assert!(node.asked().len() <= 3, "{:?}", node.asked());
    match outcome.unwrap_err() {
        Error::Protocol { api: Api::DescribeTopicPartitions, detail, .. } => detail,
        other => panic!("{other}"),
    }
}

fn continued(
    request: &DescribeTopicPartitionsRequest,
    topic: &str,
    partition: i32,
) -> DescribeTopicPartitionsResponse {
    let at = Cursor::default().with_topic_name(name(topic)).with_partition_index(partition);
    describe(request).with_next_cursor(Some(at))
}

#[tokio::test]
async fn pages_that_lead_nowhere_are_refused() {
    for (topic, partition) in [("a-2", 0), ("b-2", -1), ("aa-2", 1), ("z", 0), ("", 0)] {
        let detail = complaint(move |request| continued(&request, topic, partition)).await;
        assert!(detail.contains("leads nowhere"), "{topic}-{partition}: {detail}");
    }
    // The first page is sound, the second leads back to where it began.
    let detail = complaint(|request| continued(&request, "b-2", 1)).await;
    assert!(detail.contains("to be continued at b-2-1, which leads nowhere"), "{detail}");
}

#[tokio::test]
async fn a_topic_that_is_passed_over_is_missed() {
    let detail = complaint(|request| describe(&request).with_topics(Vec::new()).with_next_cursor(None)).await;
    assert_eq!(detail, "it does not speak of a-2");
    let detail = complaint(|request| {
        let mut answer = describe(&request);
        answer.topics.retain(|topic| topic.name != Some(name("b-2")));
        answer
    })
    .await;
    assert_eq!(detail, "it does not speak of b-2");
}

#[tokio::test]
async fn more_partitions_than_were_asked_for_are_refused() {
    let detail = complaint(|request| {
        let mut answer = describe(&request);
        answer.topics[0].partitions = (0..2000).map(partition).collect();
        answer
    })
    .await;
    assert_eq!(detail, "it tells of 2001 partitions, asked was for 2000", "one more is of the other topic");
}

/// Asks about a topic whose every page takes a quarter of the time of a question, and tells how long that took.
async fn ask_for_pages_of(topic: &str, patience: Duration) -> (Result<usize, Error>, Duration) {
    let node = Node::start(move |question| {
        std::thread::sleep(patience / 4);
        honest(question)
    })
    .await;
    let admin = Admin::new(Bootstrap::Brokers(vec![node.endpoint.clone()]), config(patience));
    let begun = Instant::now();
    let described = admin.describe_topic_partitions(&topics(&[topic])).await;
    (described.map(|topics| topics[0].partitions.len()), begun.elapsed())
}

#[tokio::test]
async fn many_pages_may_take_longer_than_one_question_but_not_for_ever() {
    // Seven pages.
    let (described, took) = ask_for_pages_of("a-20", Duration::from_millis(300)).await;
    assert_eq!(described.unwrap(), 20);
    assert!(took > Duration::from_millis(300), "{took:?}");
    // Hundreds of pages.
    let (described, _) = ask_for_pages_of("a-900", Duration::from_millis(100)).await;
    assert!(matches!(described, Err(Error::Timeout { .. })), "{described:?}");
}

#[tokio::test]
async fn only_the_nodes_that_a_client_starts_from_are_asked_over_the_connections_there_are() {
    let answers = |question: &Question| match question.api {
        ApiKey::DescribeCluster => Some(question.answer(&cluster(-1, &[]))),
        ApiKey::Metadata => Some(question.answer(&MetadataResponse::default())),
        _ => honest(question),
    };
    let stale = Node::start(answers).await;
    let current = Node::start(answers).await;
    let all = brokers([&stale.endpoint, &current.endpoint]);
    all.describe_cluster().await.unwrap();
    let some = all.starting_from(Bootstrap::Brokers(vec![current.endpoint.clone()]));
    some.metadata(TopicSelection::All).await.unwrap();
    some.describe_topic_partitions(&topics(&["a-2"])).await.unwrap();
    assert_eq!(stale.asked(), [ApiKey::ApiVersions, ApiKey::DescribeCluster]);
    let again = all.starting_from(Bootstrap::Brokers(vec![current.endpoint.clone()]));
    again.metadata(TopicSelection::All).await.unwrap();
    assert_eq!(current.connections(), 1, "another client of the same cluster needs no other connection");
    let nobody = all.starting_from(Bootstrap::Brokers(Vec::new()));
    assert!(matches!(nobody.metadata(TopicSelection::All).await, Err(Error::NoEndpoint)));
}
