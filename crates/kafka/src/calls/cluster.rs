//! DescribeCluster: the brokers, asked of a broker; the controllers, asked of a controller (KIP-919).

use std::time::Duration;

use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::{DescribeClusterRequest, DescribeClusterResponse};

use super::{Call, Context, bounds};
use crate::error::{Api, Error, Versions};
use crate::{Broker, ClusterDescription, Controller, ControllersDescription, NodeId};

const FIRST_WITH_ENDPOINT_TYPE: i16 = 1;
const FIRST_WITH_FENCED_BROKERS: i16 = 2;
const ENDPOINT_TYPE_CONTROLLER: i8 = 2;

#[derive(Debug)]
pub(crate) struct DescribeBrokers;

impl Call for DescribeBrokers {
    const API: Api = Api::DescribeCluster;
    const VERSIONS: Versions = Versions::new(0, FIRST_WITH_FENCED_BROKERS);
    type Request = DescribeClusterRequest;
    type Answer = ClusterDescription;

    fn request(&self, version: i16, _time_left: Duration) -> DescribeClusterRequest {
        DescribeClusterRequest::default().with_include_fenced_brokers(version >= FIRST_WITH_FENCED_BROKERS)
    }

    fn answer(
        &self,
        response: DescribeClusterResponse,
        context: &Context<'_>,
    ) -> Result<ClusterDescription, Error> {
        context.check(response.error_code, response.error_message.as_ref())?;
        context.at_most("brokers", response.brokers.len(), bounds::NODES)?;
        Ok(ClusterDescription {
            cluster_id: context.name(&response.cluster_id)?,
            controller_id: NodeId::known(response.controller_id.0),
            brokers: response.brokers.iter().map(|node| broker(node, context)).collect::<Result<_, _>>()?,
            fenced_known: context.version >= FIRST_WITH_FENCED_BROKERS,
        })
    }
}

fn broker(node: &DescribeClusterBroker, context: &Context<'_>) -> Result<Broker, Error> {
    Ok(Broker {
        id: NodeId(node.broker_id.0),
        endpoint: context.endpoint_of(&node.host, node.port)?,
        rack: node.rack.as_ref().map(ToString::to_string),
        fenced: node.is_fenced,
    })
}

#[derive(Debug)]
pub(crate) struct DescribeControllers;

impl Call for DescribeControllers {
    const API: Api = Api::DescribeCluster;
    const VERSIONS: Versions = Versions::new(FIRST_WITH_ENDPOINT_TYPE, FIRST_WITH_FENCED_BROKERS);
    type Request = DescribeClusterRequest;
    type Answer = ControllersDescription;

    fn request(&self, _version: i16, _time_left: Duration) -> DescribeClusterRequest {
        DescribeClusterRequest::default().with_endpoint_type(ENDPOINT_TYPE_CONTROLLER)
    }

    fn answer(
        &self,
        response: DescribeClusterResponse,
        context: &Context<'_>,
    ) -> Result<ControllersDescription, Error> {
        context.check(response.error_code, response.error_message.as_ref())?;
        context.at_most("controllers", response.brokers.len(), bounds::NODES)?;
        Ok(ControllersDescription {
            cluster_id: context.name(&response.cluster_id)?,
            leader: NodeId::known(response.controller_id.0),
            controllers: response
                .brokers
                .iter()
                .map(|node| controller(node, context))
                .collect::<Result<_, _>>()?,
        })
    }
}

fn controller(node: &DescribeClusterBroker, context: &Context<'_>) -> Result<Controller, Error> {
    Ok(Controller { id: NodeId(node.broker_id.0), endpoint: context.endpoint_of(&node.host, node.port)? })
}
