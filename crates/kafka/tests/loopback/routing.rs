//! Who is asked.

use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::messages::describe_log_dirs_response::DescribeLogDirsResult;
use kafka_protocol::messages::metadata_response::MetadataResponse;
use kafka_protocol::messages::{
    ApiKey, DescribeConfigsRequest, DescribeConfigsResponse, DescribeLogDirsResponse, MetadataRequest,
};
use kafka_protocol::protocol::{Decodable as _, StrBytes};
use karst_kafka::{
    Admin, Bootstrap, ClientConfig, ConfigResource, Endpoint, Error, ErrorCode, Hosts, NodeId, TopicSelection,
};
use tokio::net::TcpListener;

use crate::node::{
    Node, PATIENT, Reply, brokers, cluster, config, controllers, endpoint_of, follow, not_the_leader,
    quorum_led_by, quorum_with_listener,
};

#[tokio::test]
async fn a_broker_is_asked_about_the_quorum_and_passes_it_on_itself() {
    let node = Node::start(|question| {
        (question.api == ApiKey::DescribeQuorum).then(|| question.answer(&quorum_led_by(2)))
    })
    .await;
    let quorum = brokers([&node.endpoint]).describe_quorum().await.unwrap();
    assert_eq!((quorum.leader, quorum.leader_epoch, quorum.high_watermark), (NodeId(2), 3, 5));
    assert_eq!(quorum.voters[0].directory, None, "the zero id of a static quorum is no id");
    assert_eq!(node.asked(), [ApiKey::ApiVersions, ApiKey::DescribeQuorum]);
}

#[tokio::test]
async fn where_only_controllers_are_known_the_leader_is_found_first() {
    let leader = Node::start(|question| {
        (question.api == ApiKey::DescribeQuorum).then(|| question.answer(&quorum_led_by(1)))
    })
    .await;
    let at = leader.endpoint.clone();
    let follower = Node::start(move |question| {
        (question.api == ApiKey::DescribeCluster).then(|| question.answer(&cluster(1, &[(1, &at)])))
    })
    .await;
    let quorum = controllers([&follower.endpoint]).describe_quorum().await.unwrap();
    assert_eq!(quorum.leader, NodeId(1));
    assert_eq!(follower.asked(), [ApiKey::ApiVersions, ApiKey::DescribeCluster]);
    assert_eq!(leader.asked(), [ApiKey::ApiVersions, ApiKey::DescribeQuorum]);
}

#[tokio::test]
async fn a_leader_that_has_not_registered_is_found_by_the_word_of_the_quorum() {
    let leader = Node::start(|question| {
        (question.api == ApiKey::DescribeQuorum).then(|| question.answer(&quorum_led_by(1)))
    })
    .await;
    let at = leader.endpoint.clone();
    let follower = Node::start(move |question| match question.api {
        // Seen on Kafka 4.1.1: a leader that is not listed is not named either.
        ApiKey::DescribeCluster => Some(question.answer(&cluster(-1, &[]))),
        ApiKey::Fetch => Some(question.answer(&follow(1, &at))),
        _ => None,
    })
    .await;
    let quorum = controllers([&follower.endpoint]).describe_quorum().await.unwrap();
    assert_eq!(quorum.leader, NodeId(1));
    assert_eq!(follower.asked(), [ApiKey::ApiVersions, ApiKey::DescribeCluster, ApiKey::Fetch]);
    assert_eq!(leader.asked(), [ApiKey::ApiVersions, ApiKey::DescribeQuorum]);
}

/// Two controllers. The first says that it leads, when it no longer does; the second knows better.
async fn deposed_and_elected(elected_answers: bool) -> (Node, Node) {
    let elected_at = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let deposed_at = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (elected, deposed) = (endpoint_of(&elected_at), endpoint_of(&deposed_at));
    let deposed_node = Node::serve(deposed_at, {
        let (elected, deposed) = (elected.clone(), deposed.clone());
        move |question| match question.api {
            ApiKey::DescribeCluster => Some(question.answer(&cluster(0, &[(0, &deposed), (1, &elected)]))),
            ApiKey::DescribeQuorum => Some(question.answer(&not_the_leader())),
            _ => None,
        }
    });
    let elected_node = Node::serve(elected_at, move |question| match question.api {
        ApiKey::DescribeCluster => Some(question.answer(&cluster(1, &[(0, &deposed), (1, &elected)]))),
        ApiKey::DescribeQuorum if elected_answers => Some(question.answer(&quorum_led_by(1))),
        ApiKey::DescribeQuorum => Some(question.answer(&not_the_leader())),
        _ => None,
    });
    (deposed_node, elected_node)
}

#[tokio::test]
async fn a_leader_that_lost_its_office_is_followed_to_the_next() {
    let (deposed, elected) = deposed_and_elected(true).await;
    let quorum = controllers([&deposed.endpoint, &elected.endpoint]).describe_quorum().await.unwrap();
    assert_eq!(quorum.leader, NodeId(1));
}

/// The nodes of these tests are at 127.0.0.1. Another name leads to the same place, and is not among these.
fn only_here() -> ClientConfig {
    ClientConfig { hosts: Hosts::Below("0.0.1".to_owned()), ..config(PATIENT) }
}

fn elsewhere(node: &Node) -> Endpoint {
    Endpoint::new("localhost", node.endpoint.port)
}

/// Says that the leader is there.
async fn liar(at: Endpoint) -> Node {
    Node::start(move |question| match question.api {
        ApiKey::DescribeCluster => Some(question.answer(&cluster(1, &[(1, &at)]))),
        ApiKey::Fetch => Some(question.answer(&follow(1, &at))),
        _ => None,
    })
    .await
}

#[tokio::test]
async fn a_host_that_is_not_of_the_cluster_is_never_connected_to() {
    let victim = Node::start(|question| {
        (question.api == ApiKey::DescribeQuorum).then(|| question.answer(&quorum_led_by(1)))
    })
    .await;
    let liar = liar(elsewhere(&victim)).await;
    let from = vec![liar.endpoint.clone()];
    let error = Admin::new(Bootstrap::Controllers(from.clone()), only_here()).describe_quorum().await;
    let error = error.unwrap_err();
    assert!(matches!(&error, Error::ForeignHost { endpoint } if *endpoint == elsewhere(&victim)), "{error}");
    assert!(!error.is_retriable() && !error.may_have_happened());
    let error = Admin::new(Bootstrap::Brokers(from.clone()), only_here()).describe_log_dirs(NodeId(1)).await;
    assert!(matches!(error, Err(Error::ForeignHost { .. })), "{error:?}");
    assert_eq!(victim.connections(), 0);
    let trusting = Admin::new(Bootstrap::Controllers(from), config(PATIENT));
    assert_eq!(trusting.describe_quorum().await.unwrap().leader, NodeId(1), "it would have answered");
}

#[tokio::test]
async fn a_controller_that_names_hosts_of_others_does_not_hide_the_leader() {
    let victim = Node::start(|_| None).await;
    let liar = liar(elsewhere(&victim)).await;
    let leader_at = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = endpoint_of(&leader_at);
    let leader = Node::serve(leader_at, move |question| match question.api {
        ApiKey::DescribeCluster => Some(question.answer(&cluster(1, &[(1, &at)]))),
        ApiKey::DescribeQuorum => Some(question.answer(&quorum_led_by(1))),
        _ => None,
    });
    let both = vec![liar.endpoint.clone(), leader.endpoint.clone()];
    let quorum = Admin::new(Bootstrap::Controllers(both), only_here()).describe_quorum().await.unwrap();
    assert_eq!((quorum.leader, victim.connections()), (NodeId(1), 0));
}

#[tokio::test]
async fn a_leader_is_followed_once_and_no_more() {
    let (deposed, elected) = deposed_and_elected(false).await;
    let error = controllers([&deposed.endpoint, &elected.endpoint]).describe_quorum().await.unwrap_err();
    assert!(matches!(error, Error::Kafka { code: ErrorCode::NotLeaderOrFollower, .. }), "{error}");
    assert!(error.is_retriable());
    let asked = [deposed.asked(), elected.asked()].concat();
    assert_eq!(asked.iter().filter(|api| **api == ApiKey::DescribeQuorum).count(), 2);
}

#[tokio::test]
async fn a_controller_that_knows_no_leader_does_not_hide_one_that_does() {
    let leader_at = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = endpoint_of(&leader_at);
    let leader = Node::serve(leader_at, move |question| match question.api {
        ApiKey::DescribeCluster => Some(question.answer(&cluster(1, &[(1, &at)]))),
        ApiKey::DescribeQuorum => Some(question.answer(&quorum_led_by(1))),
        _ => None,
    });
    let lost = Node::start(|question| match question.api {
        ApiKey::DescribeCluster => Some(question.answer(&cluster(-1, &[]))),
        ApiKey::Fetch => Some(question.answer(&follow(-1, &Endpoint::new("nowhere", 1)))),
        _ => None,
    })
    .await;
    let quorum = controllers([&lost.endpoint, &leader.endpoint]).describe_quorum().await.unwrap();
    assert_eq!(quorum.leader, NodeId(1));

    let error = controllers([&lost.endpoint]).describe_quorum().await.unwrap_err();
    assert!(matches!(&error, Error::NoLeader { endpoint } if *endpoint == lost.endpoint), "{error}");
    assert!(error.is_retriable());
}

#[tokio::test]
async fn a_controller_that_has_just_started_does_not_hide_one_that_knows() {
    let leader_at = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = endpoint_of(&leader_at);
    let leader = Node::serve(leader_at, move |question| match question.api {
        ApiKey::DescribeCluster => Some(question.answer(&cluster(1, &[(1, &at)]))),
        ApiKey::DescribeQuorum => Some(question.answer(&quorum_led_by(1))),
        _ => None,
    });
    let beginner = Node::start(|question| {
        (question.api == ApiKey::DescribeCluster)
            .then(|| question.answer(&cluster(-1, &[]).with_error_code(35)))
    })
    .await;
    controllers([&beginner.endpoint, &leader.endpoint]).describe_quorum().await.unwrap();
    let error = controllers([&beginner.endpoint]).describe_quorum().await.unwrap_err();
    assert!(error.is_retriable(), "{error}");
}

fn configuration_of(id: &str) -> DescribeConfigsResponse {
    let entry = DescribeConfigsResourceResult::default()
        .with_name(StrBytes::from_static_str("node.id"))
        .with_value(Some(StrBytes::from_string(id.to_owned())));
    let result = DescribeConfigsResult::default()
        .with_resource_type(4)
        .with_resource_name(StrBytes::from_string(id.to_owned()))
        .with_configs(vec![entry]);
    DescribeConfigsResponse::default().with_results(vec![result])
}

#[tokio::test]
async fn the_configuration_of_a_broker_is_asked_of_that_broker() {
    let seventh = Node::start(|question| {
        (question.api == ApiKey::DescribeConfigs).then(|| question.answer(&configuration_of("7")))
    })
    .await;
    let at = seventh.endpoint.clone();
    let first = Node::start(move |question| {
        (question.api == ApiKey::DescribeCluster).then(|| question.answer(&cluster(-1, &[(7, &at)])))
    })
    .await;
    let admin = brokers([&first.endpoint]);
    let entries = admin.describe_configs(ConfigResource::Broker(NodeId(7))).await.unwrap();
    assert_eq!((entries[0].name.as_str(), entries[0].value.as_deref()), ("node.id", Some("7")));
    assert_eq!(seventh.asked(), [ApiKey::ApiVersions, ApiKey::DescribeConfigs]);

    let error = admin.describe_configs(ConfigResource::Broker(NodeId(8))).await.unwrap_err();
    assert!(matches!(error, Error::UnknownNode { node: NodeId(8), .. }), "{error}");
}

#[tokio::test]
async fn a_voter_that_has_not_registered_is_found_by_the_word_of_the_leader() {
    let voter = Node::start(|question| {
        (question.api == ApiKey::DescribeConfigs).then(|| question.answer(&configuration_of("2")))
    })
    .await;
    let voter_at = voter.endpoint.clone();
    let leader_at = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = endpoint_of(&leader_at);
    let leader = Node::serve(leader_at, move |question| match question.api {
        ApiKey::DescribeCluster => Some(question.answer(&cluster(1, &[(1, &at)]))),
        ApiKey::DescribeQuorum => Some(question.answer(&quorum_with_listener(1, 2, &voter_at))),
        _ => None,
    });
    let admin = controllers([&leader.endpoint]);
    admin.describe_configs(ConfigResource::Broker(NodeId(2))).await.unwrap();
    assert_eq!(voter.asked(), [ApiKey::ApiVersions, ApiKey::DescribeConfigs]);

    let error = admin.describe_configs(ConfigResource::Broker(NodeId(8))).await.unwrap_err();
    assert!(matches!(error, Error::UnknownNode { node: NodeId(8), .. }), "{error}");
}

#[tokio::test]
async fn looking_at_a_topic_does_not_create_it() {
    let node = Node::start(|question| {
        (question.api == ApiKey::Metadata).then(|| question.answer(&MetadataResponse::default()))
    })
    .await;
    let admin = brokers([&node.endpoint]);
    admin.metadata(TopicSelection::Names(vec!["orders".to_owned()])).await.unwrap();
    admin.metadata(TopicSelection::All).await.unwrap();
    let mut asked = node
        .questions()
        .into_iter()
        .filter(|question| question.api == ApiKey::Metadata)
        .map(|mut question| MetadataRequest::decode(&mut question.body, question.version).unwrap());
    let named = asked.next().unwrap();
    assert!(!named.allow_auto_topic_creation);
    assert_eq!(named.topics.unwrap().len(), 1);
    assert!(asked.next().unwrap().topics.is_none(), "none named means all");
}

#[tokio::test]
async fn the_address_that_answered_last_is_asked_first() {
    let unfriendly = Node::start(|_| Some(Reply::Close)).await;
    let good = Node::start(|question| {
        (question.api == ApiKey::DescribeCluster).then(|| question.answer(&cluster(-1, &[])))
    })
    .await;
    let admin = brokers([&unfriendly.endpoint, &good.endpoint]);
    admin.describe_cluster().await.unwrap();
    admin.describe_cluster().await.unwrap();
    assert_eq!((unfriendly.connections(), good.connections()), (1, 1));
    assert_eq!(good.asked(), [ApiKey::ApiVersions, ApiKey::DescribeCluster, ApiKey::DescribeCluster]);
}

#[tokio::test]
async fn a_client_without_addresses_says_so() {
    let none: [&Endpoint; 0] = [];
    assert!(matches!(brokers(none).describe_cluster().await, Err(Error::NoEndpoint)));
}

fn retention_of(topics: impl IntoIterator<Item = StrBytes>) -> DescribeConfigsResponse {
    let results = topics.into_iter().map(|topic| {
        let entry = DescribeConfigsResourceResult::default()
            .with_name(StrBytes::from_static_str("retention.ms"))
            .with_value(Some(topic.clone()));
        let code = if topic.as_str() == "topic-500" { 3 } else { 0 };
        DescribeConfigsResult::default()
            .with_resource_type(2)
            .with_resource_name(topic)
            .with_error_code(code)
            .with_configs(vec![entry])
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

#[tokio::test]
async fn many_topics_are_asked_about_in_few_questions_and_only_for_what_is_wanted() {
    let node = Node::start(|question| {
        (question.api == ApiKey::DescribeConfigs).then(|| {
            let mut body = question.body.clone();
            let request = DescribeConfigsRequest::decode(&mut body, question.version).unwrap();
            assert!(request.resources.len() <= 500);
            let wanted = Some(vec![StrBytes::from_static_str("retention.ms")]);
            assert!(request.resources.iter().all(|resource| resource.configuration_keys == wanted));
            question
                .answer(&retention_of(request.resources.into_iter().map(|resource| resource.resource_name)))
        })
    })
    .await;
    let topics: Vec<String> = (0..1001).map(|number| format!("topic-{number}")).collect();
    let configs = brokers([&node.endpoint]).describe_topic_configs(&topics, &["retention.ms"]).await.unwrap();
    assert_eq!(configs.iter().map(|(topic, _)| topic.clone()).collect::<Vec<_>>(), topics);
    assert_eq!(node.asked().len(), 1 + 3);
    let (_, missing) = &configs[500];
    assert_eq!(missing.as_ref().unwrap_err().code, ErrorCode::UnknownTopicOrPartition);
    let (_, last) = &configs[1000];
    assert_eq!(last.as_ref().unwrap()[0].value.as_deref(), Some("topic-1000"));
}

#[tokio::test]
async fn an_answer_that_leaves_a_topic_out_is_refused() {
    let node = Node::start(|question| {
        let short = retention_of([StrBytes::from_static_str("a")]);
        (question.api == ApiKey::DescribeConfigs).then(|| question.answer(&short))
    })
    .await;
    let topics = ["a".to_owned(), "b".to_owned()];
    let error = brokers([&node.endpoint]).describe_topic_configs(&topics, &[]).await.unwrap_err();
    assert!(error.to_string().contains("it does not speak of b"), "{error}");
}

#[tokio::test]
async fn the_directories_of_a_broker_are_asked_of_that_broker() {
    let seventh = Node::start(|question| {
        let directory = DescribeLogDirsResult::default().with_log_dir(StrBytes::from_static_str("/data"));
        let answer = DescribeLogDirsResponse::default().with_results(vec![directory]);
        (question.api == ApiKey::DescribeLogDirs).then(|| question.answer(&answer))
    })
    .await;
    let at = seventh.endpoint.clone();
    let first = Node::start(move |question| {
        (question.api == ApiKey::DescribeCluster).then(|| question.answer(&cluster(-1, &[(7, &at)])))
    })
    .await;
    let directories = brokers([&first.endpoint]).describe_log_dirs(NodeId(7)).await.unwrap();
    assert_eq!(directories[0].path, "/data");
    assert_eq!(directories[0].total_bytes, None, "not known");
}
