//! DescribeTopicPartitions: partitions with their eligible leaders (KIP-966), a page at a time.
//!
//! Kafka takes the topics in the order of their names, stops when a page is full, and says where it stopped. It is asked again from
//! there until it stops nowhere.

use std::collections::BTreeSet;
use std::time::Duration;

use kafka_protocol::messages::describe_topic_partitions_request::{Cursor as AskedCursor, TopicRequest};
use kafka_protocol::messages::describe_topic_partitions_response::{
    DescribeTopicPartitionsResponsePartition as WirePartition,
    DescribeTopicPartitionsResponseTopic as WireTopic,
};
use kafka_protocol::messages::{
    BrokerId, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use super::topics::node_ids;
use super::{Call, Context, MIDDLING, bounds};
use crate::error::{Api, Error, Versions};
use crate::{DescribedPartition, DescribedTopic, ErrorCode, NodeId, Partition, TopicId};

/// How many partitions an answer may hold. It is what Kafka itself allows at most, unless told otherwise
/// (`max.request.partition.size.limit`).
const MOST_AT_ONCE: usize = 2000;

/// Where a page begins: at this partition of this topic. All before it, in the order of names and then of indices, was told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cursor {
    pub(crate) topic: String,
    pub(crate) partition: i32,
}

/// What one answer tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) topics: Vec<DescribedTopic>,
    /// Where to go on. `None` when there is nothing left.
    pub(crate) next: Option<Cursor>,
}

/// One page of what there is to tell about some topics.
#[derive(Debug)]
pub(crate) struct DescribeTopicPartitions<'a> {
    /// In the order of their names, and never none: to Kafka that would mean all.
    pub(crate) topics: &'a [String],
    /// Where to begin, if not with the first.
    pub(crate) from: Option<Cursor>,
    /// How many partitions earlier answers of the same series told of.
    pub(crate) told: usize,
}

impl Call for DescribeTopicPartitions<'_> {
    const API: Api = Api::DescribeTopicPartitions;
    const VERSIONS: Versions = Versions::new(0, 0);
    const LARGEST: usize = MIDDLING;
    type Request = DescribeTopicPartitionsRequest;
    type Answer = Page;

    fn request(&self, _version: i16, _time_left: Duration) -> DescribeTopicPartitionsRequest {
        let left = self.left().map(|topic| TopicRequest::default().with_name(topic_name(topic)));
        let cursor = self.from.as_ref().map(|from| {
            AskedCursor::default()
                .with_topic_name(topic_name(&from.topic))
                .with_partition_index(from.partition)
        });
        DescribeTopicPartitionsRequest::default()
            .with_topics(left.collect())
            .with_response_partition_limit(i32::try_from(MOST_AT_ONCE).unwrap_or(i32::MAX))
            .with_cursor(cursor)
    }

    fn answer(
        &self,
        response: DescribeTopicPartitionsResponse,
        context: &Context<'_>,
    ) -> Result<Page, Error> {
        let told = response.topics.iter().map(|topic| topic.partitions.len()).sum::<usize>();
        if told > MOST_AT_ONCE {
            return Err(
                context.malformed(format!("it tells of {told} partitions, asked was for {MOST_AT_ONCE}"))
            );
        }
        context.at_most("partitions", self.told.saturating_add(told), bounds::PARTITIONS)?;
        let cursor = response.next_cursor.map(|cursor| {
            let topic = context.name(&cursor.topic_name.0)?;
            Ok::<_, Error>(Cursor { topic, partition: cursor.partition_index })
        });
        let next = cursor.transpose()?;
        if let Some(next) = &next {
            self.check_progress(next, context)?;
        }
        let topics = response.topics.into_iter().map(|entry| topic(entry, context));
        let topics = topics.collect::<Result<Vec<_>, _>>()?;
        self.check_relevance(&topics, context)?;
        self.check_completeness(&topics, next.as_ref(), context)?;
        Ok(Page { topics, next })
    }
}

impl DescribeTopicPartitions<'_> {
    /// A cursor leads forward, to a topic that was asked for. One that does not would let the questions go on for ever.
    fn check_progress(&self, next: &Cursor, context: &Context<'_>) -> Result<(), Error> {
        let is_after = match &self.from {
            Some(from) => next > from,
            None => self.topics.first().is_some_and(|first| (first, 0) < (&next.topic, next.partition)),
        };
        if is_after && next.partition >= 0 && self.topics.binary_search(&next.topic).is_ok() {
            return Ok(());
        }
        let Cursor { topic, partition } = next;
        Err(context.malformed(format!("it is to be continued at {topic}-{partition}, which leads nowhere")))
    }

    /// Page after page of topics that nobody asked for would never end.
    fn check_relevance(&self, told: &[DescribedTopic], context: &Context<'_>) -> Result<(), Error> {
        let is_asked = |topic: &DescribedTopic| {
            self.topics.binary_search_by(|asked| asked.as_str().cmp(&topic.name)).is_ok()
        };
        match told.iter().find(|topic| !is_asked(topic)) {
            None => Ok(()),
            Some(other) => {
                Err(context.malformed(format!("it speaks of {}, which was not asked for", other.name)))
            }
        }
    }

    /// Kafka passes over no topic. One that was left out would look as if it had no eligible leaders.
    fn check_completeness(
        &self,
        told: &[DescribedTopic],
        next: Option<&Cursor>,
        context: &Context<'_>,
    ) -> Result<(), Error> {
        let told: BTreeSet<&str> = told.iter().map(|topic| &*topic.name).collect();
        let has_begun = |topic: &String| next.is_none_or(|next| (topic, 0) < (&next.topic, next.partition));
        match self.left().filter(|topic| has_begun(topic)).find(|topic| !told.contains(topic.as_str())) {
            None => Ok(()),
            Some(missing) => Err(context.malformed(format!("it does not speak of {missing}"))),
        }
    }

    /// The topics that are not told of wholly yet. Kafka insists that the one at which it stopped is named again.
    fn left(&self) -> impl Iterator<Item = &String> {
        self.topics.iter().filter(|topic| self.from.as_ref().is_none_or(|from| **topic >= from.topic))
    }
}

fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

fn topic(entry: WireTopic, context: &Context<'_>) -> Result<DescribedTopic, Error> {
    let name = entry.name.ok_or_else(|| context.malformed("it lists a topic without a name"))?;
    Ok(DescribedTopic {
        name: context.topic(&name.0)?,
        id: TopicId::from_uuid(entry.topic_id),
        internal: entry.is_internal,
        error: ErrorCode::from_code(entry.error_code),
        partitions: entry.partitions.iter().map(partition).collect(),
    })
}

fn partition(entry: &WirePartition) -> DescribedPartition {
    let known = |ids: &Option<Vec<BrokerId>>| ids.as_deref().map_or_else(Vec::new, node_ids);
    DescribedPartition {
        partition: Partition {
            index: entry.partition_index,
            leader: NodeId::known(entry.leader_id.0),
            leader_epoch: entry.leader_epoch,
            replicas: node_ids(&entry.replica_nodes),
            isr: node_ids(&entry.isr_nodes),
            offline_replicas: node_ids(&entry.offline_replicas),
            error: ErrorCode::from_code(entry.error_code),
        },
        eligible: known(&entry.eligible_leader_replicas),
        last_known_eligible: known(&entry.last_known_elr),
    }
}
