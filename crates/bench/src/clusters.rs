//! The clusters that are measured: that of the quickstart, under other names.

use std::ops::RangeInclusive;

use anyhow::{Context, Result, bail};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DynamicObject, PostParams};
use kube::{Api, Client, ResourceExt};

use crate::{install, places};

/// Where the clusters are made.
pub(crate) const NAMESPACE: &str = "bench";
/// The nodes of one cluster: three controllers and three brokers.
pub(crate) const NODES: usize = 6;

const CLUSTER_LABEL: &str = "strimzi.io/cluster";
/// How many clusters are being applied at the same time. More would only take processor time from the operator.
const AT_ONCE: usize = 10;

pub(crate) async fn create_namespace(client: &Client) -> Result<()> {
    let metadata = ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    let created = Api::all(client.clone()).create(&PostParams::default(), &namespace).await;
    created.with_context(|| format!("could not make the namespace {NAMESPACE}"))?;
    Ok(())
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
    pub(crate) async fn apply(&self, client: &Client, numbers: RangeInclusive<usize>) -> Result<()> {
        let clusters: Vec<_> = numbers.map(|number| self.renamed(&format!("c-{number:04}"))).collect();
        futures::stream::iter(clusters.iter().map(Ok))
            .try_for_each_concurrent(AT_ONCE, |cluster| async move {
                for document in cluster {
                    install::create(client, document).await?;
                }
                Ok(())
            })
            .await
    }

    fn renamed(&self, cluster: &str) -> Vec<DynamicObject> {
        let renamed = self.0.iter().map(|document| {
            let mut document = document.clone();
            document.metadata.namespace = Some(NAMESPACE.to_owned());
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
        let cluster = Quickstart::read().unwrap().renamed("c-0007");
        let names: Vec<_> = cluster.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["c-0007", "c-0007-controllers", "c-0007-brokers"]);
        assert!(cluster[1..].iter().all(|pool| pool.labels()[CLUSTER_LABEL] == "c-0007"));
        assert!(cluster.iter().all(|document| document.namespace().as_deref() == Some(NAMESPACE)));
    }
}
