//! DescribeConfigs: the configuration of one node or topic.

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use kafka_protocol::protocol::StrBytes;

use super::{Call, Context};
use crate::error::{Api, Error, Versions};
use crate::{ConfigEntry, ConfigResource, ConfigSource};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

#[derive(Debug)]
pub(crate) struct DescribeConfigs(pub(crate) ConfigResource);

impl DescribeConfigs {
    fn resource(&self) -> (i8, String) {
        match &self.0 {
            ConfigResource::Broker(id) => (BROKER, id.to_string()),
            ConfigResource::Topic(name) => (TOPIC, name.clone()),
        }
    }
}

impl Call for DescribeConfigs {
    const API: Api = Api::DescribeConfigs;
    const VERSIONS: Versions = Versions::new(4, 4);
    type Request = DescribeConfigsRequest;
    type Answer = Vec<ConfigEntry>;

    fn request(&self, _version: i16) -> DescribeConfigsRequest {
        let (kind, name) = self.resource();
        let resource = DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(StrBytes::from_string(name))
            .with_configuration_keys(None);
        DescribeConfigsRequest::default().with_resources(vec![resource])
    }

    fn answer(
        &self,
        response: DescribeConfigsResponse,
        context: &Context<'_>,
    ) -> Result<Vec<ConfigEntry>, Error> {
        let (kind, name) = self.resource();
        let result = response
            .results
            .iter()
            .find(|result| result.resource_type == kind && result.resource_name.as_str() == name)
            .ok_or_else(|| context.malformed(format!("it does not speak of {name}")))?;
        context.check(result.error_code, result.error_message.as_ref())?;
        Ok(result.configs.iter().map(entry).collect())
    }
}

fn entry(result: &DescribeConfigsResourceResult) -> ConfigEntry {
    ConfigEntry {
        name: result.name.to_string(),
        value: result.value.as_ref().map(ToString::to_string),
        source: source(result.config_source),
        read_only: result.read_only,
        sensitive: result.is_sensitive,
    }
}

fn source(code: i8) -> ConfigSource {
    match code {
        1 => ConfigSource::DynamicTopic,
        2 => ConfigSource::DynamicBroker,
        3 => ConfigSource::DynamicDefaultBroker,
        4 => ConfigSource::StaticBroker,
        5 => ConfigSource::Default,
        6 => ConfigSource::DynamicBrokerLogger,
        7 => ConfigSource::ClientMetrics,
        8 => ConfigSource::Group,
        other => ConfigSource::Other(other),
    }
}
