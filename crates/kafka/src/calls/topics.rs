//! Metadata: topics, their partitions, and who of the replicas is in sync.

use std::time::Duration;

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, MetadataRequest, MetadataResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::{Call, Context, bounds};
use crate::error::{Api, Error, Versions};
use crate::wire::LONGEST;
use crate::{Broker, ErrorCode, NodeId, Partition, Topic, TopicId, TopicMetadata, TopicSelection};

#[derive(Debug)]
pub(crate) struct DescribeTopics(pub(crate) TopicSelection);

impl Call for DescribeTopics {
    const API: Api = Api::Metadata;
    // Version 12 is in every Kafka since 3.1 and has topic ids.
    const VERSIONS: Versions = Versions::new(12, 13);
    const LARGEST: usize = LONGEST;
    type Request = MetadataRequest;
    type Answer = TopicMetadata;

    fn request(&self, _version: i16, _time_left: Duration) -> MetadataRequest {
        let topics = match &self.0 {
            TopicSelection::All => None,
            TopicSelection::Names(names) => Some(names.iter().map(|name| asked_topic(name)).collect()),
        };
        // Looking must not create what is looked for.
        MetadataRequest::default().with_topics(topics).with_allow_auto_topic_creation(false)
    }

    fn answer(&self, response: MetadataResponse, context: &Context<'_>) -> Result<TopicMetadata, Error> {
        context.check(response.error_code, None)?;
        context.at_most("brokers", response.brokers.len(), bounds::NODES)?;
        context.at_most("topics", response.topics.len(), bounds::PARTITIONS)?;
        let partitions = response.topics.iter().map(|topic| topic.partitions.len()).sum();
        context.at_most("partitions", partitions, bounds::PARTITIONS)?;
        Ok(TopicMetadata {
            brokers: response.brokers.iter().map(|node| broker(node, context)).collect::<Result<_, _>>()?,
            topics: response
                .topics
                .into_iter()
                .map(|entry| topic(entry, context))
                .collect::<Result<_, _>>()?,
        })
    }
}

fn asked_topic(name: &str) -> MetadataRequestTopic {
    MetadataRequestTopic::default().with_name(Some(TopicName(StrBytes::from_string(name.to_owned()))))
}

fn broker(node: &MetadataResponseBroker, context: &Context<'_>) -> Result<Broker, Error> {
    Ok(Broker {
        id: NodeId(node.node_id.0),
        endpoint: context.endpoint_of(&node.host, node.port)?,
        rack: node.rack.as_ref().map(ToString::to_string),
        fenced: false,
    })
}

fn topic(entry: MetadataResponseTopic, context: &Context<'_>) -> Result<Topic, Error> {
    let name = entry.name.ok_or_else(|| context.malformed("it lists a topic without a name"))?;
    Ok(Topic {
        name: context.topic(&name.0)?,
        id: TopicId::from_uuid(entry.topic_id),
        internal: entry.is_internal,
        error: ErrorCode::from_code(entry.error_code),
        partitions: entry.partitions.iter().map(partition).collect(),
    })
}

fn partition(entry: &MetadataResponsePartition) -> Partition {
    Partition {
        index: entry.partition_index,
        leader: NodeId::known(entry.leader_id.0),
        leader_epoch: entry.leader_epoch,
        replicas: node_ids(&entry.replica_nodes),
        isr: node_ids(&entry.isr_nodes),
        offline_replicas: node_ids(&entry.offline_replicas),
        error: ErrorCode::from_code(entry.error_code),
    }
}

pub(super) fn node_ids(ids: &[BrokerId]) -> Vec<NodeId> {
    ids.iter().map(|id| NodeId(id.0)).collect()
}
