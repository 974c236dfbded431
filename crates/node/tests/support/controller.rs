//! A controller that says of one voter what a test wants it to say.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::describe_quorum_response::{PartitionData, ReplicaState, TopicData};
use kafka_protocol::messages::fetch_response::{
    FetchableTopicResponse, LeaderIdAndEpoch, PartitionData as FetchedPartition,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, BrokerId, DescribeClusterResponse, DescribeQuorumResponse, FetchResponse,
    ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Encodable, HeaderVersion, StrBytes};
use karst_kafka::DirectoryId;
use uuid::Uuid;

/// The id under which it leads.
const LEADER: BrokerId = BrokerId(4);

/// The term that it knows.
pub(crate) const EPOCH: i32 = 41;

/// Nobody has more to ask.
const LONGEST_QUESTION: usize = 64 * 1024;

/// Longer than the first question of a launcher may take, and shorter than the second.
const LATE: Duration = Duration::from_millis(3_300);

/// What it says of a voter.
#[derive(Clone, Copy)]
pub(crate) struct Said {
    pub(crate) node: i32,
    /// As Kafka writes it.
    pub(crate) directory: &'static str,
    /// Did it ever ask this leader for records?
    pub(crate) fetched: bool,
    /// Is it registered with the cluster?
    pub(crate) registered: bool,
}

/// Answers for as long as the test runs.
#[derive(Clone)]
pub(crate) struct Controller {
    pub(crate) address: SocketAddr,
    leads: Arc<AtomicBool>,
    manner: Arc<AtomicU8>,
    connections: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
    said: Said,
}

/// How it treats those who ask.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Manner {
    /// Every question has its answer.
    Answers,
    /// No question has, and a connection that brings nonsense is closed.
    Reacts,
    /// As if all its threads were gone.
    Hangs,
    /// The first answer of each connection comes late, as if its name took long to look up.
    ComesLate,
}

impl Controller {
    /// One that leads.
    pub(crate) fn leading(said: Said) -> Self {
        Self::start(said, true)
    }

    /// One that knows of no leader.
    pub(crate) fn without_leader(said: Said) -> Self {
        Self::start(said, false)
    }

    fn start(said: Said, leads: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let controller = Self {
            address,
            leads: Arc::new(AtomicBool::new(leads)),
            manner: Arc::new(AtomicU8::new(Manner::Answers as u8)),
            connections: Arc::default(),
            asked: Arc::default(),
            said,
        };
        let serving = controller.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                serving.connections.fetch_add(1, Ordering::SeqCst);
                // The end of the launcher ends it.
                thread::spawn(move || converse(stream, &serving));
            }
        });
        controller
    }

    /// It is elected.
    pub(crate) fn lead(&self) {
        self.leads.store(true, Ordering::SeqCst);
    }

    /// From now on it treats others so.
    pub(crate) fn behave(&self, manner: Manner) {
        self.manner.store(manner as u8, Ordering::SeqCst);
    }

    /// How many connections it has had.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// How many questions it has had.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn is(&self, manner: Manner) -> bool {
        self.manner.load(Ordering::SeqCst) == manner as u8
    }
}

fn converse(mut stream: TcpStream, controller: &Controller) -> io::Result<()> {
    let mut is_first = true;
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap();
        if length > LONGEST_QUESTION && !controller.is(Manner::Hangs) {
            return Ok(());
        }
        let mut question = vec![0; length.min(LONGEST_QUESTION)];
        stream.read_exact(&mut question)?;
        controller.asked.fetch_add(1, Ordering::SeqCst);
        if controller.is(Manner::Reacts) || controller.is(Manner::Hangs) {
            continue;
        }
        if controller.is(Manner::ComesLate) && is_first {
            thread::sleep(LATE);
        }
        is_first = false;
        let answer = answer(&question, controller);
        stream.write_all(&i32::try_from(answer.len()).unwrap().to_be_bytes())?;
        stream.write_all(&answer)?;
    }
}

/// Every question begins with its kind, its version and a number that the answer repeats.
fn answer(question: &[u8], controller: &Controller) -> Bytes {
    let number = |at: usize| i16::from_be_bytes([question[at], question[at + 1]]);
    let (api, version) = (ApiKey::try_from(number(0)).unwrap(), number(2));
    let correlation = i32::from_be_bytes(question[4..8].try_into().unwrap());
    match api {
        ApiKey::ApiVersions => message(correlation, version, &versions()),
        ApiKey::DescribeCluster => message(correlation, version, &cluster(controller)),
        ApiKey::DescribeQuorum => message(correlation, version, &quorum(&controller.said)),
        ApiKey::Fetch => message(correlation, version, &epoch()),
        other => panic!("nobody was to ask {other:?}"),
    }
}

fn message<R: Encodable + HeaderVersion>(correlation: i32, version: i16, response: &R) -> Bytes {
    let mut message = BytesMut::new();
    let header = ResponseHeader::default().with_correlation_id(correlation);
    header.encode(&mut message, R::header_version(version)).unwrap();
    response.encode(&mut message, version).unwrap();
    message.freeze()
}

fn versions() -> ApiVersionsResponse {
    let offered = |(key, max): (ApiKey, i16)| {
        ApiVersion::default().with_api_key(key as i16).with_min_version(0).with_max_version(max)
    };
    let all = [
        (ApiKey::ApiVersions, 4),
        (ApiKey::DescribeCluster, 2),
        (ApiKey::DescribeQuorum, 2),
        (ApiKey::Fetch, 17),
    ];
    ApiVersionsResponse::default().with_api_keys(all.map(offered).into())
}

fn cluster(own: &Controller) -> DescribeClusterResponse {
    let registered = |id| {
        DescribeClusterBroker::default()
            .with_broker_id(id)
            .with_host(StrBytes::from_string(own.address.ip().to_string()))
            .with_port(i32::from(own.address.port()))
    };
    let voter = own.said.registered.then_some(BrokerId(own.said.node));
    let leader = if own.leads.load(Ordering::SeqCst) { LEADER } else { BrokerId(-1) };
    DescribeClusterResponse::default()
        .with_cluster_id(StrBytes::from_static_str(super::CLUSTER_ID))
        .with_controller_id(leader)
        .with_endpoint_type(2)
        .with_brokers([LEADER].into_iter().chain(voter).map(registered).collect())
}

/// Nobody leads any more in the term that it knows.
fn epoch() -> FetchResponse {
    let leader = LeaderIdAndEpoch::default().with_leader_id(BrokerId(-1)).with_leader_epoch(EPOCH);
    let partition = FetchedPartition::default().with_error_code(74).with_current_leader(leader);
    let topic =
        FetchableTopicResponse::default().with_topic_id(Uuid::from_u128(1)).with_partitions(vec![partition]);
    FetchResponse::default().with_responses(vec![topic])
}

fn uuid(directory: &str) -> Uuid {
    Uuid::from_bytes(directory.parse::<DirectoryId>().unwrap().to_bytes())
}

fn quorum(said: &Said) -> DescribeQuorumResponse {
    let time = if said.fetched { 9_000 } else { -1 };
    let leader = ReplicaState::default()
        .with_replica_id(LEADER)
        .with_log_end_offset(5)
        .with_last_fetch_timestamp(10_000)
        .with_last_caught_up_timestamp(10_000);
    let voter = ReplicaState::default()
        .with_replica_id(BrokerId(said.node))
        .with_replica_directory_id(uuid(said.directory))
        .with_log_end_offset(if said.fetched { 5 } else { -1 })
        .with_last_fetch_timestamp(time)
        .with_last_caught_up_timestamp(time);
    let partition = PartitionData::default()
        .with_leader_id(LEADER)
        .with_leader_epoch(1)
        .with_high_watermark(5)
        .with_current_voters(vec![leader, voter]);
    let topic = TopicData::default()
        .with_topic_name(TopicName(StrBytes::from_static_str("__cluster_metadata")))
        .with_partitions(vec![partition]);
    DescribeQuorumResponse::default().with_topics(vec![topic])
}
