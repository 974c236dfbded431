//! DescribeQuorum: the voters and observers of the metadata log. Only the leader answers it.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::messages::describe_quorum_request::{
    PartitionData as AskedPartition, TopicData as AskedTopic,
};
use kafka_protocol::messages::describe_quorum_response::{self as wire, PartitionData};
use kafka_protocol::messages::{DescribeQuorumRequest, DescribeQuorumResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::{Call, Context, bounds};
use crate::error::{Api, Error, Versions};
use crate::{DirectoryId, Listener, NodeId, Quorum, ReplicaState};

const METADATA_TOPIC: &str = "__cluster_metadata";
const FIRST_WITH_LISTENERS: i16 = 2;

#[derive(Debug)]
pub(crate) struct DescribeQuorum;

impl Call for DescribeQuorum {
    const API: Api = Api::DescribeQuorum;
    const VERSIONS: Versions = Versions::new(0, 2);
    type Request = DescribeQuorumRequest;
    type Answer = Quorum;

    fn request(&self, _version: i16, _time_left: Duration) -> DescribeQuorumRequest {
        let partition = AskedPartition::default().with_partition_index(0);
        let topic = AskedTopic::default()
            .with_topic_name(TopicName(StrBytes::from_static_str(METADATA_TOPIC)))
            .with_partitions(vec![partition]);
        DescribeQuorumRequest::default().with_topics(vec![topic])
    }

    fn answer(&self, response: DescribeQuorumResponse, context: &Context<'_>) -> Result<Quorum, Error> {
        context.check(response.error_code, response.error_message.as_ref())?;
        let partition = metadata_partition(&response)
            .ok_or_else(|| context.malformed("it does not speak of the metadata log"))?;
        context.check(partition.error_code, partition.error_message.as_ref())?;
        let leader = NodeId::known(partition.leader_id.0)
            .ok_or_else(|| Error::NoLeader { endpoint: context.endpoint.clone() })?;
        context.at_most("voters", partition.current_voters.len(), bounds::NODES)?;
        context.at_most("observers", partition.observers.len(), bounds::NODES)?;
        Ok(Quorum {
            leader,
            leader_epoch: partition.leader_epoch,
            high_watermark: partition.high_watermark,
            voters: partition.current_voters.iter().map(replica).collect(),
            observers: partition.observers.iter().map(replica).collect(),
        })
    }
}

/// Where the voters say that they can be reached, which is part of the same answer.
#[derive(Debug)]
pub(crate) struct DescribeVoterListeners;

impl Call for DescribeVoterListeners {
    const API: Api = Api::DescribeQuorum;
    const VERSIONS: Versions = Versions::new(FIRST_WITH_LISTENERS, 2);
    type Request = DescribeQuorumRequest;
    type Answer = BTreeMap<NodeId, Vec<Listener>>;

    fn request(&self, version: i16, time_left: Duration) -> DescribeQuorumRequest {
        DescribeQuorum.request(version, time_left)
    }

    fn answer(&self, response: DescribeQuorumResponse, context: &Context<'_>) -> Result<Self::Answer, Error> {
        context.at_most("nodes", response.nodes.len(), bounds::NODES)?;
        let nodes = response.nodes.clone();
        // A node that does not lead says so in the part about the log.
        DescribeQuorum.answer(response, context)?;
        nodes.iter().map(|node| Ok((NodeId(node.node_id.0), listeners(node, context)?))).collect()
    }
}

fn listeners(node: &wire::Node, context: &Context<'_>) -> Result<Vec<Listener>, Error> {
    let listener = |listener: &wire::Listener| {
        let endpoint = context.endpoint_of(&listener.host, i32::from(listener.port))?;
        Ok(Listener { name: context.name(&listener.name)?, endpoint })
    };
    node.listeners.iter().map(listener).collect()
}

fn metadata_partition(response: &DescribeQuorumResponse) -> Option<&PartitionData> {
    let topic = response.topics.iter().find(|topic| topic.topic_name.0.as_str() == METADATA_TOPIC)?;
    topic.partitions.iter().find(|partition| partition.partition_index == 0)
}

fn replica(state: &wire::ReplicaState) -> ReplicaState {
    ReplicaState {
        id: NodeId(state.replica_id.0),
        directory: DirectoryId::from_uuid(state.replica_directory_id),
        log_end_offset: state.log_end_offset,
        last_fetch: known_time(state.last_fetch_timestamp),
        last_caught_up: known_time(state.last_caught_up_timestamp),
    }
}

/// Kafka writes "not known" as -1.
fn known_time(millis: i64) -> Option<i64> {
    (millis >= 0).then_some(millis)
}
