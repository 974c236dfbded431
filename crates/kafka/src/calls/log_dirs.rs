//! DescribeLogDirs: which partitions live in which directory of one broker. It knows of its own directories only.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::describe_log_dirs_response::{DescribeLogDirsResult, DescribeLogDirsTopic};
use kafka_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};

use super::{Call, Context, bounds};
use crate::error::{Api, Error, Versions};
use crate::wire::LONGEST;
use crate::{ErrorCode, LogDir, LogDirReplica};

#[derive(Debug)]
pub(crate) struct DescribeLogDirs;

impl Call for DescribeLogDirs {
    const API: Api = Api::DescribeLogDirs;
    // Version 4 also tells how large the volume is (Kafka 3.3).
    const VERSIONS: Versions = Versions::new(2, 4);
    const LARGEST: usize = LONGEST;
    type Request = DescribeLogDirsRequest;
    type Answer = Vec<LogDir>;

    fn request(&self, _version: i16, _time_left: Duration) -> DescribeLogDirsRequest {
        DescribeLogDirsRequest::default().with_topics(None)
    }

    fn answer(&self, response: DescribeLogDirsResponse, context: &Context<'_>) -> Result<Vec<LogDir>, Error> {
        context.check(response.error_code, None)?;
        let topics = response.results.iter().flat_map(|result| &result.topics);
        let copies = topics.map(|topic| topic.partitions.len()).sum();
        context.at_most("copies of partitions", copies, bounds::PARTITIONS)?;
        response.results.iter().map(|result| log_dir(result, context)).collect()
    }
}

fn log_dir(result: &DescribeLogDirsResult, context: &Context<'_>) -> Result<LogDir, Error> {
    let mut copies = Vec::new();
    for topic in &result.topics {
        copies.extend(replicas(topic, &context.topic(&topic.name.0)?));
    }
    Ok(LogDir {
        path: context.path(&result.log_dir)?,
        error: ErrorCode::from_code(result.error_code),
        total_bytes: known_size(result.total_bytes),
        usable_bytes: known_size(result.usable_bytes),
        replicas: copies,
    })
}

fn replicas(topic: &DescribeLogDirsTopic, name: &Arc<str>) -> impl Iterator<Item = LogDirReplica> {
    topic.partitions.iter().map(|entry| LogDirReplica {
        topic: Arc::clone(name),
        partition: entry.partition_index,
        size: entry.partition_size,
        offset_lag: entry.offset_lag,
        future: entry.is_future_key,
    })
}

/// Kafka writes "not known" as -1.
fn known_size(bytes: i64) -> Option<u64> {
    u64::try_from(bytes).ok()
}
