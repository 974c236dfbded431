//! DescribeCluster again, asked only to learn where one node listens.
//!
//! That the node which was asked does not know is an error here, not an answer, so that another one is asked.

use std::time::Duration;

use kafka_protocol::messages::{DescribeClusterRequest, DescribeClusterResponse};

use super::{Call, Context, DescribeBrokers, DescribeControllers};
use crate::error::{Api, Error, Versions};
use crate::{ControllersDescription, Endpoint, NodeId};

#[derive(Debug)]
pub(crate) struct FindBroker(pub(crate) NodeId);

impl Call for FindBroker {
    const API: Api = DescribeBrokers::API;
    const VERSIONS: Versions = DescribeBrokers::VERSIONS;
    type Request = DescribeClusterRequest;
    type Answer = Endpoint;

    fn request(&self, version: i16, time_left: Duration) -> DescribeClusterRequest {
        DescribeBrokers.request(version, time_left)
    }

    fn answer(&self, response: DescribeClusterResponse, context: &Context<'_>) -> Result<Endpoint, Error> {
        let cluster = DescribeBrokers.answer(response, context)?;
        let broker = cluster.brokers.into_iter().find(|broker| broker.id == self.0);
        broker.map(|broker| broker.endpoint).ok_or_else(|| unknown(self.0, context))
    }
}

#[derive(Debug)]
pub(crate) struct FindController(pub(crate) NodeId);

impl Call for FindController {
    const API: Api = DescribeControllers::API;
    const VERSIONS: Versions = DescribeControllers::VERSIONS;
    type Request = DescribeClusterRequest;
    type Answer = Endpoint;

    fn request(&self, version: i16, time_left: Duration) -> DescribeClusterRequest {
        DescribeControllers.request(version, time_left)
    }

    fn answer(&self, response: DescribeClusterResponse, context: &Context<'_>) -> Result<Endpoint, Error> {
        let cluster = DescribeControllers.answer(response, context)?;
        endpoint_in(cluster, self.0, context)
    }
}

#[derive(Debug)]
pub(crate) struct FindLeader;

impl Call for FindLeader {
    const API: Api = DescribeControllers::API;
    const VERSIONS: Versions = DescribeControllers::VERSIONS;
    type Request = DescribeClusterRequest;
    type Answer = Endpoint;

    fn request(&self, version: i16, time_left: Duration) -> DescribeClusterRequest {
        DescribeControllers.request(version, time_left)
    }

    fn answer(&self, response: DescribeClusterResponse, context: &Context<'_>) -> Result<Endpoint, Error> {
        let cluster = DescribeControllers.answer(response, context)?;
        let leader = cluster.leader.ok_or_else(|| Error::NoLeader { endpoint: context.endpoint.clone() })?;
        endpoint_in(cluster, leader, context)
    }
}

fn endpoint_in(
    cluster: ControllersDescription,
    node: NodeId,
    context: &Context<'_>,
) -> Result<Endpoint, Error> {
    let controller = cluster.controllers.into_iter().find(|controller| controller.id == node);
    controller.map(|controller| controller.endpoint).ok_or_else(|| unknown(node, context))
}

fn unknown(node: NodeId, context: &Context<'_>) -> Error {
    Error::UnknownNode { endpoint: context.endpoint.clone(), node }
}
