//! What nodes of a cluster know of it: what the operator made durable.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use karst_api::{Kafka, KafkaNodePool};
use karst_core::ids::DirectoryId;
use karst_core::names::CLUSTER_LABEL;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use uuid::Uuid;

use super::Name;

/// The port by which an operator reaches brokers.
const BROKER_PORT: u16 = 9091;

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) id: i32,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) directory: Uuid,
}

/// What a cluster's nodes know, and the certificate that they all show.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) cluster_id: String,
    pub(super) controllers: Vec<Node>,
    pub(super) brokers: Vec<Node>,
    /// What all brokers run with that is not a default.
    pub(super) config: BTreeMap<String, String>,
    pub(super) tls: Arc<ServerConfig>,
}

impl Facts {
    pub(super) async fn read(client: &Client, name: &Name) -> Result<Self> {
        let (namespace, cluster) = name;
        let kafka = Api::<Kafka>::namespaced(client.clone(), namespace).get(cluster).await?;
        let of_cluster = ListParams::default().labels(&format!("{CLUSTER_LABEL}={cluster}"));
        let pools = Api::<KafkaNodePool>::namespaced(client.clone(), namespace).list(&of_cluster).await?;
        let status = kafka.status.context("a cluster that is not formed yet")?;
        let controllers = controllers(&status.initial_controllers.context("nobody votes yet")?)?;
        let is_broker = |id: &i32| !controllers.iter().any(|controller| controller.id == *id);
        let broker = |pool: &str, id: i32| Node {
            id,
            host: format!("{cluster}-{pool}-{id}.{cluster}-kafka-brokers.{namespace}.svc.cluster.local"),
            port: BROKER_PORT,
            directory: Uuid::from_u128(1000 + u128::from(id.unsigned_abs())),
        };
        let brokers = pools.items.iter().flat_map(|pool| {
            let ids = pool.status.as_ref().and_then(|status| status.node_ids.clone()).unwrap_or_default();
            let name = pool.name_any();
            ids.into_iter().filter(is_broker).map(move |id| broker(&name, id)).collect::<Vec<_>>()
        });
        let config = kafka.spec.kafka.config.unwrap_or_default().into_iter().map(|(key, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (key, text)
        });
        Ok(Self {
            cluster_id: status.cluster_id.context("a cluster without an id")?,
            brokers: brokers.collect(),
            config: config.collect(),
            tls: tls(client, name).await?,
            controllers,
        })
    }

    pub(super) fn leader(&self) -> i32 {
        self.controllers.first().map_or(-1, |node| node.id)
    }
}

/// `3@host:9090:directory,4@...`
fn controllers(initial: &str) -> Result<Vec<Node>> {
    let controller = |text: &str| {
        let (id, rest) = text.split_once('@')?;
        let (address, directory) = rest.rsplit_once(':')?;
        let directory: DirectoryId = directory.parse().ok()?;
        let (host, port) = address.rsplit_once(':')?;
        Some(Node {
            id: id.parse().ok()?,
            host: host.to_owned(),
            port: port.parse().ok()?,
            directory: Uuid::from_bytes(directory.to_bytes()),
        })
    };
    initial
        .split(',')
        .map(|text| controller(text).with_context(|| format!("'{text}' is no controller")))
        .collect()
}

/// A certificate for all nodes of a cluster, from its own authority.
async fn tls(client: &Client, (namespace, cluster): &Name) -> Result<Arc<ServerConfig>> {
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let authority = entry(&secrets, &format!("{cluster}-cluster-ca-cert"), "ca.crt").await?;
    let signing = entry(&secrets, &format!("{cluster}-cluster-ca"), "ca.key").await?;
    let issuer = Issuer::from_ca_cert_pem(&authority, KeyPair::from_pem(&signing)?)?;
    let key = KeyPair::generate()?;
    let nodes = format!("*.{cluster}-kafka-brokers.{namespace}.svc.cluster.local");
    let certificate = CertificateParams::new(vec![nodes])?.signed_by(&key, &issuer)?;
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes())?;
    Ok(Arc::new(ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?))
}

async fn entry(secrets: &Api<Secret>, name: &str, key: &str) -> Result<String> {
    let data = secrets.get(name).await?.data.unwrap_or_default();
    let bytes = data.get(key).with_context(|| format!("Secret {name} has no {key}"))?;
    String::from_utf8(bytes.0.clone()).with_context(|| format!("{key} of Secret {name} is no text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voters_are_read_as_the_status_has_them() {
        let text = "3@c-controllers-3.c-kafka-brokers.bench.svc.cluster.local:9090:AAAAAAAAAAAAAAAAAAAAAg";
        let [node] = &controllers(text).unwrap()[..] else { panic!() };
        assert_eq!((node.id, node.port, node.directory), (3, 9090, Uuid::from_u128(2)));
        assert_eq!(node.host, "c-controllers-3.c-kafka-brokers.bench.svc.cluster.local");
        assert!(controllers("3@host").is_err());
    }
}
