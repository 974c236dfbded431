//! A node that answers as its script says.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::describe_quorum_response::{
    self, Listener, PartitionData, ReplicaState, TopicData,
};
use kafka_protocol::messages::fetch_response::{
    self, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, BrokerId, DescribeClusterResponse, DescribeQuorumResponse, FetchResponse,
    RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable as _, Encodable, HeaderVersion, StrBytes};
use karst_kafka::{Admin, Bootstrap, ClientConfig, Endpoint};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use uuid::Uuid;

/// One question as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
    pub(crate) client_id: String,
    pub(crate) body: Bytes,
}

/// What to do about it.
#[derive(Debug)]
pub(crate) enum Reply {
    /// A message, to be framed.
    Message(Bytes),
    /// Bytes as they are, and the end of the connection.
    BytesThenClose(Bytes),
    BytesThenSilence(Bytes),
    Silence,
    Close,
}

impl Question {
    /// The answer as a proper node would send it.
    pub(crate) fn answer<R: Encodable + HeaderVersion>(&self, response: &R) -> Reply {
        Reply::Message(self.message(response, self.correlation_id))
    }

    pub(crate) fn message<R: Encodable + HeaderVersion>(&self, response: &R, correlation_id: i32) -> Bytes {
        let mut message = BytesMut::new();
        ResponseHeader::default()
            .with_correlation_id(correlation_id)
            .encode(&mut message, R::header_version(self.version))
            .unwrap();
        response.encode(&mut message, self.version).unwrap();
        message.freeze()
    }
}

/// `None` leaves the answer to the node: its API versions, or silence.
type Script = dyn Fn(&Question) -> Option<Reply> + Send + Sync;

/// Stops, with all its connections, when dropped.
pub(crate) struct Node {
    pub(crate) endpoint: Endpoint,
    seen: Seen,
    task: JoinHandle<()>,
}

/// What has happened to a node so far.
#[derive(Clone, Default)]
struct Seen {
    questions: Arc<Mutex<Vec<Question>>>,
    connections: Arc<Mutex<usize>>,
}

impl Node {
    pub(crate) async fn start(script: impl Fn(&Question) -> Option<Reply> + Send + Sync + 'static) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), script).await
    }

    pub(crate) async fn start_at(
        address: SocketAddr,
        script: impl Fn(&Question) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        Self::serve(TcpListener::bind(address).await.unwrap(), script)
    }

    /// For scripts that must know where they run.
    pub(crate) fn serve(
        listener: TcpListener,
        script: impl Fn(&Question) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        Self::spawn(listener, None, Arc::new(script))
    }

    /// A node that speaks TLS only.
    pub(crate) async fn start_tls(
        tls: TlsAcceptor,
        script: impl Fn(&Question) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::spawn(listener, Some(tls), Arc::new(script))
    }

    fn spawn(listener: TcpListener, tls: Option<TlsAcceptor>, script: Arc<Script>) -> Self {
        let endpoint = endpoint_of(&listener);
        let seen = Seen::default();
        let task = tokio::spawn(accept(listener, tls, script, seen.clone()));
        Self { endpoint, seen, task }
    }

    /// The APIs that were asked, in order.
    pub(crate) fn asked(&self) -> Vec<ApiKey> {
        self.seen.questions.lock().unwrap().iter().map(|question| question.api).collect()
    }

    pub(crate) fn questions(&self) -> Vec<Question> {
        self.seen.questions.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.seen.connections.lock().unwrap()
    }

    /// Stops, and returns when the port is free and all connections are closed.
    pub(crate) async fn stop(mut self) -> SocketAddr {
        let address = SocketAddr::from(([127, 0, 0, 1], self.endpoint.port));
        self.task.abort();
        let _ = (&mut self.task).await;
        address
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn endpoint_of(listener: &TcpListener) -> Endpoint {
    Endpoint::new("127.0.0.1", listener.local_addr().unwrap().port())
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, script: Arc<Script>, seen: Seen) {
    let mut open = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        *seen.connections.lock().unwrap() += 1;
        let (tls, script, seen) = (tls.clone(), Arc::clone(&script), seen.clone());
        open.spawn(async move {
            match tls {
                None => converse(stream, script, seen).await,
                Some(tls) => match tls.accept(stream).into_fallible().await {
                    Ok(stream) => converse(stream, script, seen).await,
                    // An end with unread bytes could overtake the alert that tells the client why.
                    Err((_, mut stream)) => drop(stream.read_to_end(&mut Vec::new()).await),
                },
            }
        });
    }
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, script: Arc<Script>, seen: Seen) {
    while let Some(question) = read_question(&mut stream).await {
        seen.questions.lock().unwrap().push(question.clone());
        match script(&question).unwrap_or_else(|| default_reply(&question)) {
            Reply::Message(message) => {
                let mut frame = BytesMut::new();
                frame.put_i32(i32::try_from(message.len()).unwrap());
                frame.put(message);
                stream.write_all(&frame).await.unwrap();
                stream.flush().await.unwrap();
            }
            Reply::BytesThenClose(bytes) => {
                stream.write_all(&bytes).await.unwrap();
                return;
            }
            Reply::BytesThenSilence(bytes) => stream.write_all(&bytes).await.unwrap(),
            Reply::Silence => {}
            Reply::Close => return,
        }
    }
}

async fn read_question<S: AsyncRead + Unpin>(stream: &mut S) -> Option<Question> {
    let length = stream.read_i32().await.ok()?;
    let mut message = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut message).await.ok()?;
    let mut body = Bytes::from(message);
    let (api, version) = ((&body[..2]).get_i16(), (&body[2..4]).get_i16());
    let api = ApiKey::try_from(api).unwrap();
    let header = RequestHeader::decode(&mut body, api.request_header_version(version)).unwrap();
    Some(Question {
        api,
        version,
        correlation_id: header.correlation_id,
        client_id: header.client_id.unwrap().to_string(),
        body,
    })
}

fn default_reply(question: &Question) -> Reply {
    match question.api {
        ApiKey::ApiVersions => question.answer(&all_versions()),
        _ => Reply::Silence,
    }
}

pub(crate) fn api(key: ApiKey, min: i16, max: i16) -> ApiVersion {
    ApiVersion::default().with_api_key(key as i16).with_min_version(min).with_max_version(max)
}

/// What Kafka 4.1 offers of what the client asks.
pub(crate) fn all_versions() -> ApiVersionsResponse {
    ApiVersionsResponse::default().with_api_keys(vec![
        api(ApiKey::ApiVersions, 0, 4),
        api(ApiKey::Fetch, 4, 18),
        api(ApiKey::Metadata, 0, 13),
        api(ApiKey::DescribeConfigs, 1, 4),
        api(ApiKey::DescribeQuorum, 0, 2),
        api(ApiKey::DescribeCluster, 0, 2),
        api(ApiKey::DescribeLogDirs, 1, 4),
        api(ApiKey::ListPartitionReassignments, 0, 0),
        api(ApiKey::DescribeTopicPartitions, 0, 0),
        api(ApiKey::IncrementalAlterConfigs, 0, 1),
        api(ApiKey::AlterUserScramCredentials, 0, 0),
        api(ApiKey::UpdateFeatures, 0, 2),
        api(ApiKey::UnregisterBroker, 0, 0),
        api(ApiKey::AddRaftVoter, 0, 0),
        api(ApiKey::RemoveRaftVoter, 0, 0),
    ])
}

fn metadata_log(partition: PartitionData) -> DescribeQuorumResponse {
    let topic = TopicData::default()
        .with_topic_name(TopicName(StrBytes::from_static_str("__cluster_metadata")))
        .with_partitions(vec![partition]);
    DescribeQuorumResponse::default().with_topics(vec![topic])
}

/// A quorum of one voter, which is its leader.
pub(crate) fn quorum_led_by(leader: i32) -> DescribeQuorumResponse {
    let voter = ReplicaState::default().with_replica_id(BrokerId(leader)).with_log_end_offset(5);
    metadata_log(
        PartitionData::default()
            .with_leader_id(BrokerId(leader))
            .with_leader_epoch(3)
            .with_high_watermark(5)
            .with_current_voters(vec![voter]),
    )
}

/// The same, with the address of a voter.
pub(crate) fn quorum_with_listener(leader: i32, voter: i32, at: &Endpoint) -> DescribeQuorumResponse {
    let listener = Listener::default()
        .with_name(StrBytes::from_static_str("CONTROLLER"))
        .with_host(StrBytes::from_string(at.host.clone()))
        .with_port(at.port);
    let node = describe_quorum_response::Node::default()
        .with_node_id(BrokerId(voter))
        .with_listeners(vec![listener]);
    quorum_led_by(leader).with_nodes(vec![node])
}

/// What a controller that does not lead says of the quorum.
pub(crate) fn not_the_leader() -> DescribeQuorumResponse {
    metadata_log(PartitionData::default().with_error_code(6))
}

/// What a controller says to somebody who wants to copy the log in an epoch that is over.
pub(crate) fn follow(leader: i32, at: &Endpoint) -> FetchResponse {
    let partition = fetch_response::PartitionData::default().with_error_code(74).with_current_leader(
        LeaderIdAndEpoch::default().with_leader_id(BrokerId(leader)).with_leader_epoch(3),
    );
    let topic =
        FetchableTopicResponse::default().with_topic_id(Uuid::from_u128(1)).with_partitions(vec![partition]);
    let endpoint = NodeEndpoint::default()
        .with_node_id(BrokerId(leader))
        .with_host(StrBytes::from_string(at.host.clone()))
        .with_port(i32::from(at.port));
    FetchResponse::default().with_responses(vec![topic]).with_node_endpoints(vec![endpoint])
}

/// What a controller, or broker, says of its peers.
pub(crate) fn cluster(leader: i32, nodes: &[(i32, &Endpoint)]) -> DescribeClusterResponse {
    let nodes = nodes.iter().map(|(id, endpoint)| {
        DescribeClusterBroker::default()
            .with_broker_id(BrokerId(*id))
            .with_host(StrBytes::from_string(endpoint.host.clone()))
            .with_port(i32::from(endpoint.port))
    });
    DescribeClusterResponse::default()
        .with_cluster_id(StrBytes::from_static_str("4L6g3nShT-eMCtK--X86sw"))
        .with_controller_id(BrokerId(leader))
        .with_brokers(nodes.collect())
}

/// Long enough for a busy machine, short enough for a test that hangs to be noticed.
pub(crate) const PATIENT: Duration = Duration::from_secs(20);

pub(crate) fn config(request_timeout: Duration) -> ClientConfig {
    ClientConfig { client_id: "test".to_owned(), request_timeout, ..ClientConfig::default() }
}

pub(crate) fn brokers<'a>(nodes: impl IntoIterator<Item = &'a Endpoint>) -> Admin {
    Admin::new(Bootstrap::Brokers(nodes.into_iter().cloned().collect()), config(PATIENT))
}

pub(crate) fn controllers<'a>(nodes: impl IntoIterator<Item = &'a Endpoint>) -> Admin {
    Admin::new(Bootstrap::Controllers(nodes.into_iter().cloned().collect()), config(PATIENT))
}
