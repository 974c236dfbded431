//! All that a cluster is made of, in a form in which two clusters can be compared: what differs from one cluster to
//! the next by nature (names, ids, times) is replaced by what it stands for.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service, ServiceAccount};
use karst_api::{Kafka, KafkaNodePool, StrimziPodSet};
use karst_core::names::{
    CERTIFICATE_AUTHORITY_ANNOTATION, CERTIFICATE_END_ANNOTATION, CERTIFICATE_HASH_ANNOTATION,
    CONFIGURATION_HASH_ANNOTATION, REVISION_ANNOTATION, TRUSTED_AUTHORITIES_ANNOTATION,
};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::story::Namespaced;

/// Who a cluster is, as far as it is written. Once written, none of it may ever change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The cluster's id.
    pub cluster_id: Option<String>,
    /// Who founded the quorum.
    pub initial_controllers: Option<String>,
    /// The nodes of each pool.
    pub node_ids: BTreeMap<String, Vec<i32>>,
}

impl Facts {
    /// What is written now.
    pub async fn of(cluster: &Cluster<'_>) -> Result<Self> {
        let status = cluster.scene.api::<Kafka>().get(&cluster.name).await?.status.unwrap_or_default();
        let pools = cluster.scene.api::<KafkaNodePool>().list(&cluster.listed()).await?;
        let node_ids =
            pools.into_iter().filter_map(|pool| Some((pool.name_any(), pool.status?.node_ids?))).collect();
        Ok(Self { cluster_id: status.cluster_id, initial_controllers: status.initial_controllers, node_ids })
    }
}

/// The objects of a cluster by kind and name.
pub type Snapshot = BTreeMap<String, Value>;

/// Takes a snapshot of a cluster whose objects are all there.
pub async fn take(cluster: &Cluster<'_>) -> Result<Snapshot> {
    let mut objects = Snapshot::new();
    add::<ServiceAccount>(cluster, &mut objects).await?;
    add::<Service>(cluster, &mut objects).await?;
    add::<ConfigMap>(cluster, &mut objects).await?;
    add::<PersistentVolumeClaim>(cluster, &mut objects).await?;
    add::<StrimziPodSet>(cluster, &mut objects).await?;
    for pod in cluster.pod_uids().await?.into_keys() {
        // What a pod is to be stands in its pod set; the rest of it is the kubelet's.
        objects.insert(format!("Pod {pod}"), Value::Null);
    }
    let facts = Facts::of(cluster).await?;
    objects.insert("facts".to_owned(), json!(facts.node_ids));
    anonymous(&objects, cluster, &facts)
}

async fn add<K: Namespaced>(cluster: &Cluster<'_>, objects: &mut Snapshot) -> Result<()> {
    for object in cluster.scene.api::<K>().list(&cluster.listed()).await? {
        let key = format!("{} {}", K::kind(&()), object.name_any());
        objects.insert(key, essence(&serde_json::to_value(&object)?));
    }
    Ok(())
}

/// What Karst decided, without what the API server adds.
fn essence(object: &Value) -> Value {
    let mut essence = json!({
        "labels": object["metadata"]["labels"],
        "annotations": object["metadata"]["annotations"],
        "owners": object["metadata"]["ownerReferences"],
        "data": object["data"],
        "spec": object["spec"],
    });
    for given in ["clusterIP", "clusterIPs"] {
        if essence["spec"][given] != "None" {
            essence["spec"].as_object_mut().map(|spec| spec.remove(given));
        }
    }
    forget(&mut essence);
    essence
}

/// Fingerprints and UIDs say nothing but that something else differs.
fn forget(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for field in [
                "uid",
                REVISION_ANNOTATION,
                CONFIGURATION_HASH_ANNOTATION,
                CERTIFICATE_HASH_ANNOTATION,
                CERTIFICATE_END_ANNOTATION,
                CERTIFICATE_AUTHORITY_ANNOTATION,
                TRUSTED_AUTHORITIES_ANNOTATION,
            ] {
                fields.remove(field);
            }
            fields.values_mut().for_each(forget);
        }
        Value::Array(items) => items.iter_mut().for_each(forget),
        _ => {}
    }
}

/// Replaces every name and id of the cluster by what it is.
fn anonymous(objects: &Snapshot, cluster: &Cluster<'_>, facts: &Facts) -> Result<Snapshot> {
    let mut text = serde_json::to_string(objects)?;
    let cluster_id = facts.cluster_id.as_deref().context("the cluster has no id")?;
    let controllers = facts.initial_controllers.as_deref().context("nobody founded the quorum")?;
    ensure!(text.contains(cluster_id), "no ConfigMap has the cluster's id");
    for (node, controller) in controllers.split(',').enumerate() {
        let directory = controller.rsplit(':').next().context("an initial controller without directory")?;
        ensure!(text.contains(directory), "no ConfigMap has the directory id {directory}");
        text = text.replace(directory, &format!("<directory {node}>"));
    }
    text = text
        .replace(cluster_id, "<cluster id>")
        .replace(&cluster.scene.namespace, "<namespace>")
        .replace(&cluster.name, "<cluster>");
    Ok(serde_json::from_str(&text)?)
}
