//! DescribeConfigs: the configuration of one node or topic, or that of many topics.

use std::collections::HashMap;
use std::time::Duration;

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use kafka_protocol::protocol::StrBytes;

use super::{Call, Context, MIDDLING, bounds};
use crate::error::{Api, Error, Versions};
use crate::{ConfigEntry, ConfigResource, ConfigSource, Refusal};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const BROKER_LOGGER: i8 = 8;

/// The type and the name by which Kafka knows a resource. The brokers' common defaults are a broker without a name.
pub(super) fn on_the_wire(resource: &ConfigResource) -> (i8, String) {
    match resource {
        ConfigResource::Broker(id) => (BROKER, id.to_string()),
        ConfigResource::BrokerDefaults => (BROKER, String::new()),
        ConfigResource::BrokerLogger(id) => (BROKER_LOGGER, id.to_string()),
        ConfigResource::Topic(name) => (TOPIC, name.clone()),
    }
}

/// Some entries of one configuration; all entries if none is named.
#[derive(Debug)]
pub(crate) struct DescribeConfigs<'a> {
    pub(crate) resource: ConfigResource,
    pub(crate) keys: &'a [&'a str],
}

impl Call for DescribeConfigs<'_> {
    const API: Api = Api::DescribeConfigs;
    const VERSIONS: Versions = Versions::new(4, 4);
    const LARGEST: usize = MIDDLING;
    type Request = DescribeConfigsRequest;
    type Answer = Vec<ConfigEntry>;

    fn request(&self, _version: i16, _time_left: Duration) -> DescribeConfigsRequest {
        let (kind, name) = on_the_wire(&self.resource);
        DescribeConfigsRequest::default().with_resources(vec![asked(kind, name, names(self.keys))])
    }

    fn answer(
        &self,
        response: DescribeConfigsResponse,
        context: &Context<'_>,
    ) -> Result<Vec<ConfigEntry>, Error> {
        let (kind, name) = on_the_wire(&self.resource);
        let result = response
            .results
            .iter()
            .find(|result| result.resource_type == kind && result.resource_name.as_str() == name)
            .ok_or_else(|| context.malformed(format!("it does not speak of {:?}", self.resource)))?;
        context.check(result.error_code, result.error_message.as_ref())?;
        entries(result, self.keys, context)
    }
}

/// Some entries of many topics, so that the answer stays small; all entries if none is named.
#[derive(Debug)]
pub(crate) struct DescribeTopicConfigs<'a> {
    pub(crate) topics: &'a [String],
    pub(crate) keys: &'a [&'a str],
}

impl Call for DescribeTopicConfigs<'_> {
    const API: Api = DescribeConfigs::<'static>::API;
    const VERSIONS: Versions = DescribeConfigs::<'static>::VERSIONS;
    const LARGEST: usize = MIDDLING;
    type Request = DescribeConfigsRequest;
    type Answer = Vec<(String, Result<Vec<ConfigEntry>, Refusal>)>;

    fn request(&self, _version: i16, _time_left: Duration) -> DescribeConfigsRequest {
        let keys = names(self.keys);
        let resources = self.topics.iter().map(|topic| asked(TOPIC, topic.clone(), keys.clone()));
        DescribeConfigsRequest::default().with_resources(resources.collect())
    }

    fn answer(
        &self,
        response: DescribeConfigsResponse,
        context: &Context<'_>,
    ) -> Result<Self::Answer, Error> {
        let results: HashMap<&str, &DescribeConfigsResult> = response
            .results
            .iter()
            .filter(|result| result.resource_type == TOPIC)
            .map(|result| (result.resource_name.as_str(), result))
            .collect();
        let outcome = |topic: &String| {
            let result = results
                .get(topic.as_str())
                .ok_or_else(|| context.malformed(format!("it does not speak of {topic}")))?;
            let outcome = context.outcome(result.error_code, result.error_message.as_ref())?;
            let outcome = match outcome {
                Ok(()) => Ok(entries(result, self.keys, context)?),
                Err(refusal) => Err(refusal),
            };
            Ok((topic.clone(), outcome))
        };
        self.topics.iter().map(outcome).collect()
    }
}

/// No names at all mean every entry.
fn names(keys: &[&str]) -> Option<Vec<StrBytes>> {
    let names = keys.iter().map(|key| StrBytes::from_string((*key).to_owned()));
    (!keys.is_empty()).then(|| names.collect())
}

fn asked(kind: i8, name: String, keys: Option<Vec<StrBytes>>) -> DescribeConfigsResource {
    DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(StrBytes::from_string(name))
        .with_configuration_keys(keys)
}

/// What was asked for, and nothing else that an answer may have.
fn entries(
    result: &DescribeConfigsResult,
    keys: &[&str],
    context: &Context<'_>,
) -> Result<Vec<ConfigEntry>, Error> {
    let is_asked =
        |entry: &&DescribeConfigsResourceResult| keys.is_empty() || keys.contains(&entry.name.as_str());
    let found: Vec<_> = result.configs.iter().filter(is_asked).collect();
    context.at_most("settings", found.len(), if keys.is_empty() { bounds::SETTINGS } else { keys.len() })?;
    Ok(found.into_iter().map(entry).collect())
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
