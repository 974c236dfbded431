//! What the nodes of a healthy cluster without topics say.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey};
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::messages::describe_quorum_response::{PartitionData, ReplicaState, TopicData};
use kafka_protocol::messages::metadata_response::MetadataResponseBroker;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, BrokerId, DescribeClusterRequest, DescribeClusterResponse,
    DescribeConfigsRequest, DescribeConfigsResponse, DescribeQuorumResponse,
    ListPartitionReassignmentsResponse, MetadataResponse, RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};
use karst_core::versions;

use super::facts::{Facts, Node};

/// The API versions that are served: those in which a current client asks.
const SERVED: [(ApiKey, i16, i16); 6] = [
    (ApiKey::ApiVersions, 0, 4),
    (ApiKey::Metadata, 12, 13),
    (ApiKey::DescribeConfigs, 4, 4),
    (ApiKey::DescribeQuorum, 0, 2),
    (ApiKey::DescribeCluster, 0, 2),
    (ApiKey::ListPartitionReassignments, 0, 0),
];
const CONTROLLER_PORT: u16 = 9090;
const CONTROLLERS: i8 = 2;
const FROM_ITS_FILE: i8 = 4;
const DEFAULT: i8 = 5;
/// The end of the metadata log, which everybody has.
const END: i64 = 100;

/// Answers a question that came to a port. What is not looked at but changed has no answer here.
pub(super) fn answer(facts: &Facts, port: u16, mut question: Bytes) -> Result<Bytes> {
    let api = question.get(..2).context("a question without an end")?;
    let version = question.get(2..4).context("a question without a version")?;
    let (api, version) = ((&api[..]).get_i16(), (&version[..]).get_i16());
    let Ok(key) = ApiKey::try_from(api) else { bail!("nobody knows API {api}") };
    let header = RequestHeader::decode(&mut question, key.request_header_version(version))?;
    let reply = Reply { correlation_id: header.correlation_id, version };
    match key {
        ApiKey::ApiVersions => reply.with(&api_versions()),
        ApiKey::DescribeQuorum => reply.with(&quorum(facts)),
        ApiKey::DescribeCluster => {
            let asked = DescribeClusterRequest::decode(&mut question, version)?;
            let of_controllers = port == CONTROLLER_PORT || asked.endpoint_type == CONTROLLERS;
            reply.with(&cluster(facts, of_controllers))
        }
        ApiKey::DescribeConfigs => {
            reply.with(&configs(facts, &DescribeConfigsRequest::decode(&mut question, version)?))
        }
        ApiKey::Metadata => reply.with(&metadata(facts)),
        ApiKey::ListPartitionReassignments => reply.with(&ListPartitionReassignmentsResponse::default()),
        other => bail!("{other:?} is not served here"),
    }
}

struct Reply {
    correlation_id: i32,
    version: i16,
}

impl Reply {
    fn with<R: Encodable + HeaderVersion>(&self, response: &R) -> Result<Bytes> {
        let mut message = BytesMut::new();
        ResponseHeader::default()
            .with_correlation_id(self.correlation_id)
            .encode(&mut message, R::header_version(self.version))?;
        response.encode(&mut message, self.version)?;
        Ok(message.freeze())
    }
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn api_versions() -> ApiVersionsResponse {
    let keys = SERVED.map(|(key, min, max)| {
        ApiVersion::default().with_api_key(key as i16).with_min_version(min).with_max_version(max)
    });
    let metadata = versions::find(versions::DEFAULT).map_or(0, versions::KafkaVersion::level);
    let features = [("kraft.version", 1), ("metadata.version", metadata)];
    let supported = features.map(|(name, level)| {
        SupportedFeatureKey::default().with_name(text(name)).with_min_version(0).with_max_version(level)
    });
    let finalized = features.map(|(name, level)| {
        FinalizedFeatureKey::default()
            .with_name(text(name))
            .with_min_version_level(level)
            .with_max_version_level(level)
    });
    ApiVersionsResponse::default()
        .with_api_keys(keys.into())
        .with_supported_features(supported.into())
        .with_finalized_features(finalized.into())
        .with_finalized_features_epoch(1)
}

fn quorum(facts: &Facts) -> DescribeQuorumResponse {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let replica = |node: &Node| {
        ReplicaState::default()
            .with_replica_id(BrokerId(node.id))
            .with_replica_directory_id(node.directory)
            .with_log_end_offset(END)
            .with_last_fetch_timestamp(now)
            .with_last_caught_up_timestamp(now)
    };
    let partition = PartitionData::default()
        .with_leader_id(BrokerId(facts.leader()))
        .with_leader_epoch(1)
        .with_high_watermark(END)
        .with_current_voters(facts.controllers.iter().map(replica).collect())
        .with_observers(facts.brokers.iter().map(replica).collect());
    let topic = TopicData::default()
        .with_topic_name(TopicName(StrBytes::from_static_str("__cluster_metadata")))
        .with_partitions(vec![partition]);
    DescribeQuorumResponse::default().with_topics(vec![topic])
}

fn cluster(facts: &Facts, of_controllers: bool) -> DescribeClusterResponse {
    let nodes = if of_controllers { &facts.controllers } else { &facts.brokers };
    let node = |node: &Node| {
        DescribeClusterBroker::default()
            .with_broker_id(BrokerId(node.id))
            .with_host(text(&node.host))
            .with_port(i32::from(node.port))
    };
    let controller = if of_controllers { facts.leader() } else { nodes.first().map_or(-1, |node| node.id) };
    DescribeClusterResponse::default()
        .with_endpoint_type(if of_controllers { CONTROLLERS } else { 1 })
        .with_cluster_id(text(&facts.cluster_id))
        .with_controller_id(BrokerId(controller))
        .with_brokers(nodes.iter().map(node).collect())
}

fn configs(facts: &Facts, asked: &DescribeConfigsRequest) -> DescribeConfigsResponse {
    let results = asked.resources.iter().map(|resource| {
        let keys = resource.configuration_keys.iter().flatten();
        let entries = keys.map(|key| {
            let value = facts.config.get(key.as_str());
            DescribeConfigsResourceResult::default()
                .with_name(key.clone())
                .with_value(value.map(|value| text(value)))
                .with_config_source(if value.is_some() { FROM_ITS_FILE } else { DEFAULT })
        });
        DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone())
            .with_configs(entries.collect())
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn metadata(facts: &Facts) -> MetadataResponse {
    let broker = |node: &Node| {
        MetadataResponseBroker::default()
            .with_node_id(BrokerId(node.id))
            .with_host(text(&node.host))
            .with_port(i32::from(node.port))
    };
    MetadataResponse::default()
        .with_cluster_id(Some(text(&facts.cluster_id)))
        .with_brokers(facts.brokers.iter().map(broker).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use karst_kafka::{Admin, Bootstrap, ClientConfig, Endpoint, TopicSelection};
    use tokio::net::TcpListener;
    use uuid::Uuid;

    use crate::kafka::{read, write};

    fn facts(port: u16) -> Facts {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new()));
        let node = |id| Node {
            id,
            host: "127.0.0.1".into(),
            port,
            directory: Uuid::from_u128(id.unsigned_abs().into()),
        };
        Facts {
            cluster_id: "the-id".into(),
            controllers: [3, 4, 5].map(node).into(),
            brokers: [0, 1, 2].map(node).into(),
            config: [("min.insync.replicas".to_owned(), "2".to_owned())].into(),
            tls: Arc::new(tls),
        }
    }

    /// Answers as if the question came to another port than it did.
    async fn listen(as_if: u16) -> Endpoint {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let facts = Arc::new(facts(port));
            while let Ok((mut stream, _)) = listener.accept().await {
                let facts = Arc::clone(&facts);
                tokio::spawn(async move {
                    while let Ok(question) = read(&mut stream).await {
                        write(&mut stream, &answer(&facts, as_if, question).unwrap()).await.unwrap();
                    }
                });
            }
        });
        Endpoint::new("127.0.0.1", port)
    }

    #[tokio::test]
    async fn the_operators_client_understands_what_controllers_say() {
        let controllers = Bootstrap::Controllers(vec![listen(CONTROLLER_PORT).await]);
        let admin = Admin::new(controllers, ClientConfig::default());
        let quorum = admin.describe_quorum().await.unwrap();
        assert_eq!((quorum.leader.0, quorum.voters.len(), quorum.observers.len()), (3, 3, 3));
        assert!(quorum.voters.iter().all(|voter| voter.directory.is_some() && quorum.takes_part(voter)));
        let told = admin.describe_controllers().await.unwrap();
        assert_eq!((told.cluster_id.as_str(), told.leader.map(|id| id.0)), ("the-id", Some(3)));
        let features = admin.features().await.unwrap().finalized;
        assert_eq!(features["kraft.version"], 1);
        assert!(features["metadata.version"] > 20);
    }

    #[tokio::test]
    async fn the_operators_client_understands_what_brokers_say() {
        let brokers = Bootstrap::Brokers(vec![listen(9091).await]);
        let admin = Admin::new(brokers, ClientConfig::default());
        let cluster = admin.describe_cluster().await.unwrap();
        assert_eq!((cluster.brokers.len(), cluster.fenced_known), (3, true));
        assert_eq!(admin.metadata(TopicSelection::All).await.unwrap().topics, []);
        assert_eq!(admin.list_partition_reassignments().await.unwrap(), []);
    }

    #[test]
    fn a_setting_is_told_from_where_it_is() {
        use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
        let keys = ["min.insync.replicas", "num.io.threads"].map(StrBytes::from_static_str);
        let resource = DescribeConfigsResource::default().with_configuration_keys(Some(keys.into()));
        let told = configs(&facts(0), &DescribeConfigsRequest::default().with_resources(vec![resource]));
        let entries: Vec<_> =
            told.results[0].configs.iter().map(|one| (one.value.clone(), one.config_source)).collect();
        assert_eq!(entries, [(Some(text("2")), FROM_ITS_FILE), (None, DEFAULT)]);
    }
}
