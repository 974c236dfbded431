//! Fetch of the metadata log, asked only to be told who leads, and where.
//!
//! A controller knows where its leader is from the quorum itself, but says so only to those who want to copy from it (KIP-853).
//! DescribeCluster lists controllers that have registered, and names the leader only if it is one of them. One can vote and lead
//! without: Kafka 4.1 does not try again when a controller could not register within five seconds of its start.

use std::time::Duration;

use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{FetchRequest, FetchResponse};
use uuid::Uuid;

use super::{Call, Context};
use crate::error::{Api, Error, Versions};
use crate::{Endpoint, NodeId};

/// The first whose answer has addresses.
const FIRST_WITH_ENDPOINTS: i16 = 17;
/// The id that the metadata log has in every cluster.
const METADATA_TOPIC: Uuid = Uuid::from_u128(1);
/// An epoch in which nobody leads any more, so that no record is sent.
const LONG_AGO: i32 = 0;

#[derive(Debug)]
pub(crate) struct FollowLeader;

impl Call for FollowLeader {
    const API: Api = Api::Fetch;
    const VERSIONS: Versions = Versions::new(FIRST_WITH_ENDPOINTS, FIRST_WITH_ENDPOINTS);
    type Request = FetchRequest;
    type Answer = Endpoint;

    fn request(&self, _version: i16, _time_left: Duration) -> FetchRequest {
        let partition = FetchPartition::default()
            .with_partition(0)
            .with_current_leader_epoch(LONG_AGO)
            .with_fetch_offset(0)
            .with_last_fetched_epoch(0);
        let topic = FetchTopic::default().with_topic_id(METADATA_TOPIC).with_partitions(vec![partition]);
        FetchRequest::default()
            .with_max_wait_ms(0)
            .with_min_bytes(0)
            .with_max_bytes(1)
            .with_topics(vec![topic])
    }

    /// That the epoch is over is what was to be expected, and no error.
    fn answer(&self, response: FetchResponse, context: &Context<'_>) -> Result<Endpoint, Error> {
        context.check(response.error_code, None)?;
        let partition = metadata_log(&response, context)?;
        let leader = NodeId::known(partition.current_leader.leader_id.0)
            .ok_or_else(|| Error::NoLeader { endpoint: context.endpoint.clone() })?;
        let found = response.node_endpoints.iter().find(|node| node.node_id.0 == leader.0);
        let unknown = || Error::UnknownNode { endpoint: context.endpoint.clone(), node: leader };
        let found = found.ok_or_else(unknown)?;
        context.endpoint_of(&found.host, found.port)
    }
}

/// In which epoch the one is who is asked. That takes no leader.
#[derive(Debug)]
pub(crate) struct QuorumEpoch;

impl Call for QuorumEpoch {
    const API: Api = FollowLeader::API;
    const VERSIONS: Versions = FollowLeader::VERSIONS;
    type Request = FetchRequest;
    type Answer = i32;

    fn request(&self, version: i16, time_left: Duration) -> FetchRequest {
        FollowLeader.request(version, time_left)
    }

    fn answer(&self, response: FetchResponse, context: &Context<'_>) -> Result<i32, Error> {
        context.check(response.error_code, None)?;
        let epoch = metadata_log(&response, context)?.current_leader.leader_epoch;
        if epoch < 0 { Err(context.malformed("it does not tell the epoch")) } else { Ok(epoch) }
    }
}

fn metadata_log<'a>(response: &'a FetchResponse, context: &Context<'_>) -> Result<&'a PartitionData, Error> {
    let partition = response.responses.first().and_then(|topic| topic.partitions.first());
    partition.ok_or_else(|| context.malformed("it does not speak of the metadata log"))
}
