//! ListPartitionReassignments: partitions that are on their way from some brokers to others.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::list_partition_reassignments_response::OngoingPartitionReassignment;
use kafka_protocol::messages::{ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse};

use super::topics::node_ids;
use super::{Call, Context, bounds, kafkas_share};
use crate::Reassignment;
use crate::error::{Api, Error, Versions};
use crate::wire::LONGEST;

#[derive(Debug)]
pub(crate) struct ListReassignments;

impl Call for ListReassignments {
    const API: Api = Api::ListPartitionReassignments;
    const VERSIONS: Versions = Versions::new(0, 0);
    const LARGEST: usize = LONGEST;
    type Request = ListPartitionReassignmentsRequest;
    type Answer = Vec<Reassignment>;

    fn request(&self, _version: i16, time_left: Duration) -> ListPartitionReassignmentsRequest {
        ListPartitionReassignmentsRequest::default()
            .with_timeout_ms(kafkas_share(time_left))
            .with_topics(None)
    }

    fn answer(
        &self,
        response: ListPartitionReassignmentsResponse,
        context: &Context<'_>,
    ) -> Result<Vec<Reassignment>, Error> {
        context.check(response.error_code, response.error_message.as_ref())?;
        let partitions = response.topics.iter().map(|topic| topic.partitions.len()).sum();
        context.at_most("partitions", partitions, bounds::PARTITIONS)?;
        let mut found = Vec::with_capacity(partitions);
        for topic in &response.topics {
            let name = context.topic(&topic.name.0)?;
            found.extend(topic.partitions.iter().map(|entry| reassignment(&name, entry)));
        }
        Ok(found)
    }
}

fn reassignment(topic: &Arc<str>, entry: &OngoingPartitionReassignment) -> Reassignment {
    Reassignment {
        topic: Arc::clone(topic),
        partition: entry.partition_index,
        replicas: node_ids(&entry.replicas),
        adding: node_ids(&entry.adding_replicas),
        removing: node_ids(&entry.removing_replicas),
    }
}
