//! The questions: for each, its versions, how to put it, and how to read the answer.
//!
//! Nothing here does I/O, so every question can be tested from bytes alone.

mod cluster;
mod configs;
mod features;
mod find;
mod quorum;
mod topics;

use kafka_protocol::protocol::{Request, StrBytes};

pub(crate) use cluster::{DescribeBrokers, DescribeControllers};
pub(crate) use configs::DescribeConfigs;
pub(crate) use features::ApiVersionsCall;
pub(crate) use find::{FindBroker, FindController, FindLeader};
pub(crate) use quorum::DescribeQuorum;
pub(crate) use topics::DescribeTopics;

use crate::error::{Api, Error, Versions};
use crate::{Endpoint, ErrorCode};

/// One kind of question. Asking twice must do no harm: a question whose kept connection has died is asked again.
pub(crate) trait Call: Sync {
    const API: Api;
    /// The versions that this client speaks. All of them must be flexible ones (see `wire::guard`).
    const VERSIONS: Versions;
    type Request: Request + Send + Sync;
    type Answer;

    fn request(&self, version: i16) -> Self::Request;

    fn answer(
        &self,
        response: <Self::Request as Request>::Response,
        context: &Context<'_>,
    ) -> Result<Self::Answer, Error>;
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
        match ErrorCode::from_code(code) {
            None => Ok(()),
            Some(code) => Err(Error::Kafka {
                endpoint: self.endpoint.clone(),
                api: self.api,
                code,
                message: message.filter(|message| !message.is_empty()).map(ToString::to_string),
            }),
        }
    }

    fn malformed(&self, detail: impl Into<String>) -> Error {
        Error::Protocol { endpoint: self.endpoint.clone(), api: self.api, detail: detail.into() }
    }

    fn endpoint_of(&self, host: &StrBytes, port: i32) -> Result<Endpoint, Error> {
        u16::try_from(port)
            .map(|port| Endpoint::new(host.as_str(), port))
            .map_err(|_| self.malformed(format!("{host}:{port} is not an address")))
    }
}

#[cfg(test)]
mod tests;
