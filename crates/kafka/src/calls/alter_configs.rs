//! IncrementalAlterConfigs: changes some entries of the configuration of one node, of all brokers, or of a topic.

use std::time::Duration;

use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};
use kafka_protocol::protocol::StrBytes;

use super::configs::on_the_wire;
use super::{Call, Context};
use crate::error::{Api, Error, Versions};
use crate::{ConfigChange, ConfigOperation, ConfigResource, Intent};

#[derive(Debug)]
pub(crate) struct AlterConfigs {
    pub(crate) resource: ConfigResource,
    pub(crate) changes: Vec<ConfigChange>,
    pub(crate) intent: Intent,
}

impl Call for AlterConfigs {
    const API: Api = Api::IncrementalAlterConfigs;
    const VERSIONS: Versions = Versions::new(1, 1);
    type Request = IncrementalAlterConfigsRequest;
    type Answer = ();

    fn request(&self, _version: i16, _time_left: Duration) -> IncrementalAlterConfigsRequest {
        let (kind, name) = on_the_wire(&self.resource);
        let resource = AlterConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(StrBytes::from_string(name))
            .with_configs(self.changes.iter().map(alteration).collect());
        IncrementalAlterConfigsRequest::default()
            .with_resources(vec![resource])
            .with_validate_only(self.intent.validates_only())
    }

    fn answer(&self, response: IncrementalAlterConfigsResponse, context: &Context<'_>) -> Result<(), Error> {
        let (kind, name) = on_the_wire(&self.resource);
        let result = response
            .responses
            .iter()
            .find(|result| result.resource_type == kind && result.resource_name.as_str() == name)
            .ok_or_else(|| context.malformed(format!("it does not speak of {:?}", self.resource)))?;
        context.check(result.error_code, result.error_message.as_ref())
    }
}

fn alteration(change: &ConfigChange) -> AlterableConfig {
    let (operation, value) = match &change.operation {
        ConfigOperation::Set(value) => (0, Some(value)),
        ConfigOperation::Delete => (1, None),
        ConfigOperation::Append(value) => (2, Some(value)),
        ConfigOperation::Subtract(value) => (3, Some(value)),
    };
    AlterableConfig::default()
        .with_name(StrBytes::from_string(change.name.clone()))
        .with_config_operation(operation)
        .with_value(value.map(|value| StrBytes::from_string(value.clone())))
}
