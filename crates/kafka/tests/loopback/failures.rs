//! Silence, lies and broken connections: every call ends, says why, and leaves nothing behind that could mislead the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;
use karst_kafka::{Admin, Api, Bootstrap, ClientConfig, Endpoint, Error, Waiting};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use crate::node::{Node, PATIENT, Question, Reply, brokers, cluster, config, endpoint_of, quorum_led_by};

const SHORT: Duration = Duration::from_millis(300);

fn good(question: &Question) -> Option<Reply> {
    (question.api == ApiKey::DescribeCluster).then(|| question.answer(&cluster(-1, &[])))
}

fn impatient(endpoint: &Endpoint) -> Admin {
    Admin::new(Bootstrap::Brokers(vec![endpoint.clone()]), config(SHORT))
}

/// A node that does `misdeed` to the first real question and answers all others.
async fn once_bad(misdeed: impl Fn(&Question) -> Reply + Send + Sync + 'static) -> Node {
    let done = AtomicBool::new(false);
    Node::start(move |question| match question.api {
        ApiKey::ApiVersions => None,
        _ if done.swap(true, Ordering::Relaxed) => good(question),
        _ => Some(misdeed(question)),
    })
    .await
}

/// The first call must fail with what `expected` accepts, the second must succeed on another connection.
async fn fails_then_recovers(node: &Node, admin: &Admin, expected: impl Fn(&Error) -> bool) {
    let error = admin.describe_cluster().await.unwrap_err();
    assert!(expected(&error), "{error:?}");
    admin.describe_cluster().await.unwrap();
    assert_eq!(node.connections(), 2, "the connection that failed is not used again");
}

fn is_protocol(error: &Error) -> bool {
    matches!(error, Error::Protocol { api: Api::DescribeCluster, .. }) && !error.is_retriable()
}

#[tokio::test]
async fn silence_ends_at_the_deadline() {
    let node = once_bad(|_| Reply::Silence).await;
    let admin = impatient(&node.endpoint);
    let begun = Instant::now();
    fails_then_recovers(&node, &admin, |error| {
        matches!(error, Error::Timeout { waiting_for: Waiting::ForAnswer(Api::DescribeCluster), after, .. } if *after == SHORT)
    })
    .await;
    assert!(begun.elapsed() >= SHORT && begun.elapsed() < PATIENT);
}

#[tokio::test]
async fn half_an_answer_and_then_silence_ends_at_the_deadline() {
    let node = once_bad(|_| Reply::BytesThenSilence(Bytes::from_static(&[0, 0, 1, 0, 1, 2]))).await;
    fails_then_recovers(&node, &impatient(&node.endpoint), |error| {
        matches!(error, Error::Timeout { waiting_for: Waiting::ForAnswer(Api::DescribeCluster), .. })
    })
    .await;
}

#[tokio::test]
async fn a_node_that_accepts_and_never_speaks_ends_at_the_connect_timeout() {
    let node = Node::start(|_| Some(Reply::Silence)).await;
    let admin = Admin::new(
        Bootstrap::Brokers(vec![node.endpoint.clone()]),
        ClientConfig { connect_timeout: SHORT, ..config(PATIENT) },
    );
    let error = admin.describe_cluster().await.unwrap_err();
    assert!(
        matches!(error, Error::Timeout { waiting_for: Waiting::ForAnswer(Api::ApiVersions), after, .. } if after == SHORT),
        "{error}"
    );
    assert!(error.is_retriable());
}

#[tokio::test]
async fn a_dead_host_leaves_time_for_a_living_one() {
    let silent = Node::start(|_| Some(Reply::Silence)).await;
    let living = Node::start(good).await;
    // With a connect timeout beyond the deadline, only the fair share keeps the silent node from using up all of it.
    let admin = Admin::new(
        Bootstrap::Brokers(vec![silent.endpoint.clone(), living.endpoint.clone()]),
        ClientConfig { connect_timeout: PATIENT, ..config(Duration::from_secs(2)) },
    );
    admin.describe_cluster().await.unwrap();
    let begun = Instant::now();
    admin.describe_cluster().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "the silent node is not tried again first");
    assert_eq!(silent.connections(), 1);
}

#[tokio::test]
async fn a_refused_connection_names_the_address() {
    let endpoint = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        endpoint_of(&listener)
    };
    let error = impatient(&endpoint).describe_cluster().await.unwrap_err();
    assert!(matches!(&error, Error::Connect { endpoint: named, .. } if *named == endpoint), "{error}");
    assert!(error.is_retriable());

    let both = brokers([&endpoint, &endpoint]).describe_cluster().await.unwrap_err();
    assert!(matches!(&both, Error::Unreachable { attempts } if attempts.len() == 2), "{both}");
    assert!(both.is_retriable());
}

#[tokio::test]
async fn an_answer_to_another_question_is_refused() {
    let node =
        once_bad(|question| Reply::Message(question.message(&cluster(-1, &[]), question.correlation_id + 1)))
            .await;
    fails_then_recovers(&node, &brokers([&node.endpoint]), is_protocol).await;
}

#[tokio::test]
async fn a_truncated_answer_is_refused() {
    let node = once_bad(|question| {
        let message = question.message(&cluster(-1, &[]), question.correlation_id);
        Reply::Message(message.slice(..message.len() - 3))
    })
    .await;
    fails_then_recovers(&node, &brokers([&node.endpoint]), is_protocol).await;
}

#[tokio::test]
async fn an_empty_answer_is_refused() {
    let node = once_bad(|_| Reply::Message(Bytes::new())).await;
    fails_then_recovers(&node, &brokers([&node.endpoint]), is_protocol).await;
}

#[tokio::test]
async fn a_frame_of_negative_length_is_refused() {
    let node = once_bad(|_| Reply::BytesThenClose(Bytes::from_static(&[0xff, 0xff, 0xff, 0xfe]))).await;
    fails_then_recovers(&node, &brokers([&node.endpoint]), is_protocol).await;
}

#[tokio::test]
async fn a_frame_of_two_gigabytes_is_refused_before_it_comes() {
    let node = once_bad(|_| Reply::BytesThenClose(Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff, 1, 2]))).await;
    fails_then_recovers(&node, &brokers([&node.endpoint]), is_protocol).await;
}

#[tokio::test]
async fn an_answer_that_is_longer_than_any_to_its_question_is_refused_before_it_comes() {
    let node = once_bad(|_| Reply::BytesThenClose(Bytes::from_static(&[0, 0x10, 0, 1, 1, 2]))).await;
    fails_then_recovers(&node, &brokers([&node.endpoint]), |error| {
        is_protocol(error) && error.to_string().contains("no more than 1048576 are read of this answer")
    })
    .await;
}

#[tokio::test]
async fn an_end_in_the_middle_of_a_frame_is_refused() {
    let node = once_bad(|_| Reply::BytesThenClose(Bytes::from_static(&[0, 0, 1, 0, 1, 2]))).await;
    fails_then_recovers(&node, &brokers([&node.endpoint]), |error| {
        is_protocol(error) && error.to_string().contains("after 2 of 256 bytes")
    })
    .await;
}

#[tokio::test]
async fn an_end_instead_of_the_first_answer_is_a_lost_connection() {
    let node = once_bad(|_| Reply::Close).await;
    fails_then_recovers(&node, &brokers([&node.endpoint]), |error| {
        matches!(error, Error::Disconnected { api: Api::DescribeCluster, .. }) && error.is_retriable()
    })
    .await;
}

#[tokio::test]
async fn something_that_is_not_kafka_is_recognized() {
    let node =
        Node::start(|_| Some(Reply::BytesThenClose(Bytes::from_static(b"HTTP/1.1 400 Bad Request\r\n"))))
            .await;
    let error = brokers([&node.endpoint]).describe_cluster().await.unwrap_err();
    assert!(error.to_string().contains("is this a Kafka listener?"), "{error}");
}

#[tokio::test]
async fn a_kept_connection_is_used_again() {
    let node = Node::start(good).await;
    let admin = brokers([&node.endpoint]);
    for _ in 0..3 {
        admin.describe_cluster().await.unwrap();
    }
    assert_eq!(node.connections(), 1);
}

#[tokio::test]
async fn a_connection_that_nobody_uses_is_closed_and_opened_again_when_it_is_needed() {
    let (node, other) = (Node::start(good).await, Node::start(good).await);
    let (admin, used) = (brokers([&node.endpoint]), brokers([&other.endpoint]));
    admin.describe_cluster().await.unwrap();
    let since = Instant::now();
    used.describe_cluster().await.unwrap();
    for admin in [&admin, &used] {
        admin.close_idle(since.into());
    }
    assert_eq!((admin.connections().len(), used.connections().len()), (0, 1));
    for admin in [&admin, &used] {
        admin.describe_cluster().await.unwrap();
    }
    assert_eq!((node.connections(), other.connections()), (2, 1));
}

#[tokio::test]
async fn a_restarted_node_is_found_again_without_an_error() {
    let node = Node::start(good).await;
    let admin = brokers([&node.endpoint]);
    admin.describe_cluster().await.unwrap();
    let address = node.stop().await;
    admin.describe_cluster().await.unwrap_err();
    let node = Node::start_at(address, good).await;
    admin.describe_cluster().await.unwrap();
    let address = node.stop().await;
    let node = Node::start_at(address, good).await;
    admin
        .describe_cluster()
        .await
        .expect("a connection that died between two calls is not the caller's business");
    assert_eq!(node.connections(), 1);
}

#[tokio::test]
async fn concurrent_calls_each_get_their_own_answer() {
    let node = Node::start(|question| match question.api {
        ApiKey::DescribeCluster => good(question),
        ApiKey::DescribeQuorum => Some(question.answer(&quorum_led_by(4))),
        _ => None,
    })
    .await;
    let admin = brokers([&node.endpoint]);
    let (cluster, quorum, features, again) = tokio::join!(
        admin.describe_cluster(),
        admin.describe_quorum(),
        admin.features(),
        admin.describe_cluster()
    );
    assert_eq!(cluster.unwrap(), again.unwrap());
    assert_eq!(quorum.unwrap().leader.0, 4);
    features.unwrap();
    assert_eq!(node.connections(), 1);
}

#[tokio::test]
async fn a_cancelled_call_does_not_leave_its_answer_to_the_next() {
    let asked = Arc::new(Notify::new());
    let node = once_bad({
        let asked = Arc::clone(&asked);
        move |_| {
            asked.notify_one();
            Reply::Silence
        }
    })
    .await;
    let admin = brokers([&node.endpoint]);
    tokio::select! {
        outcome = admin.describe_cluster() => panic!("{outcome:?}"),
        () = asked.notified() => {}
    }
    admin.describe_cluster().await.unwrap();
    assert_eq!(node.connections(), 2);
}

#[tokio::test]
async fn a_call_that_waits_for_another_has_its_own_deadline() {
    let node = Node::start(|_| None).await;
    let admin = impatient(&node.endpoint);
    let begun = Instant::now();
    let (first, second) = tokio::join!(admin.describe_cluster(), admin.describe_cluster());
    assert!(matches!(first, Err(Error::Timeout { .. })), "{first:?}");
    assert!(matches!(second, Err(Error::Timeout { .. })), "{second:?}");
    assert!(begun.elapsed() < PATIENT);
}

#[tokio::test]
async fn time_spent_waiting_for_another_call_is_not_taken_from_the_time_to_connect() {
    let spoken_to = AtomicBool::new(false);
    let node = Node::start(move |question| match question.api {
        ApiKey::ApiVersions if !spoken_to.swap(true, Ordering::Relaxed) => Some(Reply::Silence),
        _ => good(question),
    })
    .await;
    let admin = Admin::new(
        Bootstrap::Brokers(vec![node.endpoint.clone()]),
        ClientConfig { connect_timeout: SHORT, ..config(PATIENT) },
    );
    let (first, second) = tokio::join!(admin.describe_cluster(), admin.describe_cluster());
    assert!(matches!(first, Err(Error::Timeout { .. })), "{first:?}");
    second.unwrap();
}
