//! UnregisterBroker: makes the cluster forget a broker that is gone for good.

use std::time::Duration;

use kafka_protocol::messages::{BrokerId, UnregisterBrokerRequest, UnregisterBrokerResponse};

use super::{Call, Context};
use crate::NodeId;
use crate::error::{Api, Error, Versions};

#[derive(Debug)]
pub(crate) struct UnregisterBroker(pub(crate) NodeId);

impl Call for UnregisterBroker {
    const API: Api = Api::UnregisterBroker;
    const VERSIONS: Versions = Versions::new(0, 0);
    type Request = UnregisterBrokerRequest;
    type Answer = ();

    fn request(&self, _version: i16, _time_left: Duration) -> UnregisterBrokerRequest {
        UnregisterBrokerRequest::default().with_broker_id(BrokerId(self.0.0))
    }

    fn answer(&self, response: UnregisterBrokerResponse, context: &Context<'_>) -> Result<(), Error> {
        context.check(response.error_code, response.error_message.as_ref())
    }
}
