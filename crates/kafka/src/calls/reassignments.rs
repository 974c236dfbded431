//! ListPartitionReassignments: partitions that are on their way from some brokers to others.

use std::time::Duration;

use kafka_protocol::messages::list_partition_reassignments_response::OngoingPartitionReassignment;
use kafka_protocol::messages::{ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse};

use super::topics::node_ids;
use super::{Call, Context, kafkas_share};
use crate::Reassignment;
use crate::error::{Api, Error, Versions};

#[derive(Debug)]
pub(crate) struct ListReassignments;

impl Call for ListReassignments {
    const API: Api = Api::ListPartitionReassignments;
    const VERSIONS: Versions = Versions::new(0, 0);
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
        let of_topic = |name: &str, partitions: &[OngoingPartitionReassignment]| {
            partitions.iter().map(|entry| reassignment(name, entry)).collect::<Vec<_>>()
        };
        Ok(response
            .topics
            .iter()
            .flat_map(|topic| of_topic(topic.name.0.as_str(), &topic.partitions))
            .collect())
    }
}

fn reassignment(topic: &str, entry: &OngoingPartitionReassignment) -> Reassignment {
    Reassignment {
        topic: topic.to_owned(),
        partition: entry.partition_index,
        replicas: node_ids(&entry.replicas),
        adding: node_ids(&entry.adding_replicas),
        removing: node_ids(&entry.removing_replicas),
    }
}
