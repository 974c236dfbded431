//! The clusters that are measured: that of the quickstart, under other names.

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karst_api::Kafka;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tokio::time::timeout;

use crate::{install, places};

/// Where the clusters are made.
pub(crate) const NAMESPACE: &str = "bench";
/// The nodes of one cluster: three controllers and three brokers.
pub(crate) const NODES: usize = 6;

const CLUSTER_LABEL: &str = "strimzi.io/cluster";
/// How many clusters are being applied at the same time. More would only take processor time from the operator.
const AT_ONCE: usize = 10;

pub(crate) async fn create_namespace(client: &Client, name: &str) -> Result<()> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    let created = Api::all(client.clone()).create(&PostParams::default(), &namespace).await;
    created.with_context(|| format!("could not make the namespace {name}"))?;
    Ok(())
}

/// Deletes a namespace with all that is in it, and waits until it is gone.
pub(crate) async fn delete_namespace(client: &Client, name: &str, patience: Duration) -> Result<()> {
    let api: Api<Namespace> = Api::all(client.clone());
    let uid = api.get(name).await?.uid().unwrap_or_default();
    api.delete(name, &DeleteParams::default()).await?;
    timeout(patience, await_condition(api, name, conditions::is_deleted(&uid)))
        .await
        .with_context(|| format!("the namespace {name} is not gone after {} s", patience.as_secs()))??;
    Ok(())
}

/// The name of a cluster by its number.
pub(crate) fn name(number: usize) -> String {
    format!("c-{number:04}")
}

/// Changes clusters by number, all in the same way.
pub(crate) async fn change(
    client: &Client,
    namespace: &str,
    numbers: RangeInclusive<usize>,
    change: &Value,
) -> Result<()> {
    let api: Api<Kafka> = Api::namespaced(client.clone(), namespace);
    let api = &api;
    futures::stream::iter(numbers.map(Ok))
        .try_for_each_concurrent(AT_ONCE, |number| async move {
            let name = name(number);
            let changed = api.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await;
            changed.map(drop).with_context(|| format!("Kafka {name} cannot be changed"))
        })
        .await
}

/// The documents of one cluster, as the quickstart has them.
#[derive(Debug)]
pub(crate) struct Quickstart(Vec<DynamicObject>);

impl Quickstart {
    pub(crate) fn read() -> Result<Self> {
        let path = places::checkout().join("deploy/examples/quickstart.yaml");
        let documents = install::documents(&path)?;
        let nodes: u64 =
            documents.iter().filter_map(|pool| pool.data.pointer("/spec/replicas")?.as_u64()).sum();
        if usize::try_from(nodes) != Ok(NODES) {
            bail!("{} has {nodes} nodes; the budgets are for {NODES}", path.display());
        }
        Ok(Self(documents))
    }

    /// Applies clusters by number, each as one `kubectl apply` would: document after document.
    pub(crate) async fn apply(
        &self,
        client: &Client,
        namespace: &str,
        numbers: RangeInclusive<usize>,
    ) -> Result<()> {
        let clusters: Vec<_> = numbers.map(|number| self.renamed(namespace, &name(number))).collect();
        futures::stream::iter(clusters.iter().map(Ok))
            .try_for_each_concurrent(AT_ONCE, |cluster| async move {
                for document in cluster {
                    install::create(client, document).await?;
                }
                Ok(())
            })
            .await
    }

    fn renamed(&self, namespace: &str, cluster: &str) -> Vec<DynamicObject> {
        let renamed = self.0.iter().map(|document| {
            let mut document = document.clone();
            document.metadata.namespace = Some(namespace.to_owned());
            let belongs = document.labels().contains_key(CLUSTER_LABEL);
            if belongs {
                document.labels_mut().insert(CLUSTER_LABEL.to_owned(), cluster.to_owned());
            }
            // Pools of all clusters share one namespace.
            document.metadata.name =
                Some(if belongs { format!("{cluster}-{}", document.name_any()) } else { cluster.to_owned() });
            document
        });
        renamed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cluster_has_pools_of_its_own() {
        let cluster = Quickstart::read().unwrap().renamed("bench", "c-0007");
        let names: Vec<_> = cluster.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["c-0007", "c-0007-controllers", "c-0007-brokers"]);
        assert!(cluster[1..].iter().all(|pool| pool.labels()[CLUSTER_LABEL] == "c-0007"));
        assert!(cluster.iter().all(|document| document.namespace().as_deref() == Some(NAMESPACE)));
    }
}
