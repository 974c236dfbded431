//! The questions: for each, its versions, how to put it, and how to read the answer.
//!
//! Nothing here does I/O, so every question can be tested from bytes alone.

mod alter_configs;
mod bounds;
mod cluster;
mod configs;
mod features;
mod find;
mod follow;
mod log_dirs;
mod quorum;
mod reassignments;
mod scram;
mod topic_partitions;
mod topics;
mod unregister;
mod update_features;
mod voters;

use std::time::Duration;

use kafka_protocol::protocol::{Request, StrBytes};

pub(crate) use alter_configs::AlterConfigs;
pub(crate) use cluster::{DescribeBrokers, DescribeControllers};
pub(crate) use configs::{DescribeConfigs, DescribeTopicConfigs};
pub(crate) use features::ApiVersionsCall;
pub(crate) use find::{FindBroker, FindController, FindLeader};
pub(crate) use follow::{FollowLeader, QuorumEpoch};
pub(crate) use log_dirs::DescribeLogDirs;
pub(crate) use quorum::{DescribeQuorum, DescribeVoterListeners};
pub(crate) use reassignments::ListReassignments;
pub(crate) use scram::AlterScram;
pub(crate) use topic_partitions::{DescribeTopicPartitions, Page};
pub(crate) use topics::DescribeTopics;
pub(crate) use unregister::UnregisterBroker;
pub(crate) use update_features::UpdateFeatures;
pub(crate) use voters::{AddVoter, RemoveVoter};

use crate::error::{Api, Error, Versions};
use crate::{Endpoint, ErrorCode, Refusal};

/// Most answers are about nodes, of which there are not many.
pub(crate) const SMALL: usize = 1 << 20;
/// Those that tell what was asked for of some hundred topics.
const MIDDLING: usize = 4 << 20;

/// One kind of question. Whether it may be asked twice is a matter of its [`Api`]: see [`Api::is_change`].
pub(crate) trait Call: Sync {
    const API: Api;
    /// The versions that this client speaks. All of them must be flexible ones (see `wire::guard`).
    const VERSIONS: Versions;
    /// The longest answer that is read, in bytes.
    const LARGEST: usize = SMALL;
    type Request: Request + Send + Sync;
    type Answer;

    /// `time_left` is how long the answer will be waited for.
    fn request(&self, version: i16, time_left: Duration) -> Self::Request;

    fn answer(
        &self,
        response: <Self::Request as Request>::Response,
        context: &Context<'_>,
    ) -> Result<Self::Answer, Error>;
}

/// How long Kafka is told to work on something that is waited for during `time_left`, in milliseconds: a little less, so that
/// it says itself that the time was too short, and what it was waiting for.
fn kafkas_share(time_left: Duration) -> i32 {
    let millis = time_left.as_millis() / 10 * 9;
    i32::try_from(millis).unwrap_or(i32::MAX).max(1)
}

/// Where an answer came from: the version it was given in, and whom to name when it is not a good one.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) api: Api,
    pub(crate) version: i16,
}

impl Context<'_> {
    fn check(&self, code: i16, message: Option<&StrBytes>) -> Result<(), Error> {
        match refusal(code, message) {
            None => Ok(()),
            Some(refusal) => Err(self.refused(refusal)),
        }
    }

    /// What Kafka says of one part of what was asked. That somebody else leads is never about a part only, so it is an error
    /// of the whole.
    fn outcome(&self, code: i16, message: Option<&StrBytes>) -> Result<Result<(), Refusal>, Error> {
        match refusal(code, message) {
            None => Ok(Ok(())),
            Some(refusal) if refusal.code.is_not_leader() => Err(self.refused(refusal)),
            Some(refusal) => Ok(Err(refusal)),
        }
    }

    fn refused(&self, Refusal { code, message }: Refusal) -> Error {
        Error::Kafka { endpoint: self.endpoint.clone(), api: self.api, code, message }
    }

    fn malformed(&self, detail: impl Into<String>) -> Error {
        Error::Protocol { endpoint: self.endpoint.clone(), api: self.api, detail: detail.into() }
    }
}

fn refusal(code: i16, message: Option<&StrBytes>) -> Option<Refusal> {
    let message = message.filter(|message| !message.is_empty()).map(bounds::words);
    ErrorCode::from_code(code).map(|code| Refusal { code, message })
}

#[cfg(test)]
mod tests;
