//! Which versions are spoken.

use bytes::{BufMut as _, BytesMut};
use kafka_protocol::messages::{ApiKey, ApiVersionsResponse};
use karst_kafka::{Api, Error, Versions};

use crate::node::{Node, Question, Reply, all_versions, api, brokers, cluster, quorum_led_by};

fn describe_cluster(question: &Question) -> Option<Reply> {
    (question.api == ApiKey::DescribeCluster).then(|| question.answer(&cluster(-1, &[])))
}

/// The answer of a node that does not know the version it was asked in: version 0, and what it has instead.
fn refusal(question: &Question, versions: &ApiVersionsResponse) -> Reply {
    let oldest = Question { version: 0, ..question.clone() };
    oldest.answer(&versions.clone().with_error_code(35))
}

#[tokio::test]
async fn the_highest_version_of_both_is_spoken() {
    let node =
        Node::start(|question| match question.api {
            ApiKey::ApiVersions => Some(question.answer(
                &ApiVersionsResponse::default().with_api_keys(vec![api(ApiKey::DescribeCluster, 0, 1)]),
            )),
            _ => describe_cluster(question),
        })
        .await;
    let answer = brokers([&node.endpoint]).describe_cluster().await.unwrap();
    assert!(!answer.fenced_known, "version 1 does not list them");
    assert_eq!(answer.controller_id, None);
    let questions = node.questions();
    assert_eq!((questions[0].api, questions[0].version), (ApiKey::ApiVersions, 4));
    assert_eq!((questions[1].api, questions[1].version), (ApiKey::DescribeCluster, 1));
    assert!(questions.iter().all(|question| question.client_id == "test"));
}

#[tokio::test]
async fn a_node_that_knows_an_older_negotiation_is_asked_in_it() {
    let node = Node::start(|question| match (question.api, question.version) {
        (ApiKey::ApiVersions, 4) => {
            let has = ApiVersionsResponse::default().with_api_keys(vec![api(ApiKey::ApiVersions, 0, 3)]);
            Some(refusal(question, &has))
        }
        (ApiKey::ApiVersions, _) => Some(question.answer(&all_versions())),
        _ => describe_cluster(question),
    })
    .await;
    brokers([&node.endpoint]).describe_cluster().await.unwrap();
    let versions: Vec<i16> = node.questions().iter().map(|question| question.version).collect();
    assert_eq!(versions, [4, 3, 2]);
    assert_eq!(node.connections(), 1);
}

#[tokio::test]
async fn a_node_that_does_not_say_what_it_knows_is_asked_in_the_oldest() {
    let node = Node::start(|question| match (question.api, question.version) {
        (ApiKey::ApiVersions, 4) => Some(refusal(question, &ApiVersionsResponse::default())),
        (ApiKey::ApiVersions, _) => Some(question.answer(&all_versions())),
        _ => describe_cluster(question),
    })
    .await;
    let admin = brokers([&node.endpoint]);
    admin.describe_cluster().await.unwrap();
    let versions: Vec<i16> = node.questions().iter().map(|question| question.version).collect();
    assert_eq!(versions, [4, 0, 2]);
}

#[tokio::test]
async fn the_oldest_negotiation_with_an_absurd_count_is_refused() {
    let node = Node::start(|question| {
        let mut message = BytesMut::new();
        message.put_i32(question.correlation_id);
        message.put_i16(35);
        message.put_i32(i32::MAX);
        Some(Reply::Message(message.freeze()))
    })
    .await;
    let error = brokers([&node.endpoint]).describe_cluster().await.unwrap_err();
    assert!(matches!(error, Error::Protocol { api: Api::ApiVersions, .. }), "{error}");
}

#[tokio::test]
async fn what_a_node_does_not_offer_is_named_with_both_sides_versions() {
    let node = Node::start(|question| {
        let has = ApiVersionsResponse::default()
            .with_api_keys(vec![api(ApiKey::ApiVersions, 0, 4), api(ApiKey::DescribeQuorum, 7, 9)]);
        (question.api == ApiKey::ApiVersions).then(|| question.answer(&has))
    })
    .await;
    let admin = brokers([&node.endpoint]);
    match admin.describe_quorum().await.unwrap_err() {
        Error::Unsupported { endpoint, api: Api::DescribeQuorum, ours, theirs } => {
            assert_eq!(endpoint, node.endpoint);
            assert_eq!((ours.min, ours.max), (0, 2));
            assert_eq!(theirs, Some(Versions { min: 7, max: 9 }));
        }
        other => panic!("{other}"),
    }
    match admin.describe_cluster().await.unwrap_err() {
        Error::Unsupported { theirs: None, .. } => {}
        other => panic!("{other}"),
    }
    assert_eq!(node.connections(), 1, "a question that was not asked costs no connection");
}

#[tokio::test]
async fn an_older_quorum_answer_has_no_directories_and_no_times() {
    let node =
        Node::start(|question| match question.api {
            ApiKey::ApiVersions => Some(question.answer(
                &ApiVersionsResponse::default().with_api_keys(vec![api(ApiKey::DescribeQuorum, 0, 0)]),
            )),
            _ => Some(question.answer(&quorum_led_by(1))),
        })
        .await;
    let quorum = brokers([&node.endpoint]).describe_quorum().await.unwrap();
    let voter = &quorum.voters[0];
    assert_eq!((voter.directory, voter.last_fetch, voter.last_caught_up), (None, None, None));
}

#[tokio::test]
async fn features_are_asked_for_anew_each_time() {
    let node = Node::start(|_| None).await;
    let admin = brokers([&node.endpoint]);
    admin.features().await.unwrap();
    let features = admin.features().await.unwrap();
    assert_eq!(features.epoch, None);
    assert_eq!(node.asked(), [ApiKey::ApiVersions; 3], "one to negotiate, two to answer");
}
