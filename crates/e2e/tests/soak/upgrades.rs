//! A cluster goes through every line of Kafka under load, with mistakes on the way, and back where Kafka allows it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use karst_api::KafkaStatus;
use karst_core::names::KAFKA_VERSION_ANNOTATION;
use karst_e2e::cluster::{Cluster, STARTING};
use karst_e2e::kafka_tools::ConsoleTools;
use karst_e2e::load::under_load;
use karst_e2e::manifests::{replicated, separate};
use karst_e2e::story::story;
use karst_e2e::wait;
use kube::ResourceExt;
use serde_json::{Value, json};

/// Time for six nodes to restart, one after the other.
const ROLLING: Duration = Duration::from_secs(400);
const BROKER: &str = "live-brokers-0";

#[tokio::test]
async fn upgrades_through_every_line_and_back() -> Result<()> {
    story("upgrades", Duration::from_secs(3000), async |scene| {
        let mut kafka = replicated("live");
        kafka["spec"]["kafka"]["version"] = json!("3.9.1");
        let cluster = Cluster::create_ready(scene, &kafka, &separate("live")).await?;
        let bootstrap = cluster.bootstrap().await?;
        under_load(scene, &bootstrap, async || {
            leave_departed_controllers(&cluster).await?;
            upgrade(&cluster, "4.0.2", "4.0-IV3").await?;
            revert_half_way(&cluster).await?;
            correct_an_image_half_way(&cluster).await?;
            go_and_come_back(&cluster).await?;
            upgrade(&cluster, "4.3.1", "4.3-IV0").await?;
            refuse_to_go_back(&cluster).await
        })
        .await?;
        scene.step("asking Kafka's own tools");
        let tools = ConsoleTools::new(scene, BROKER, &bootstrap);
        ensure!(tools.brokers().await? == [0, 1, 2], "brokers that nobody wants are registered");
        let metadata = tools.feature("metadata.version").await?;
        ensure!(metadata.contains("4.3-IV0"), "{metadata}");
        Ok(())
    })
    .await
}

/// Two controllers come and go. Kafka keeps them registered, with what 3.9 can do.
async fn leave_departed_controllers(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("scaling the controllers from three to five and back");
    for (replicas, voters) in [(5, vec![3, 4, 5, 6, 7]), (3, vec![3, 4, 5])] {
        cluster.edit_pool("controllers", &json!({ "replicas": replicas })).await?;
        cluster.until_voters(&voters).await?;
        cluster.until_pods_ready(3 + voters.len()).await?;
    }
    Ok(())
}

/// Waits until all nodes run a version, nothing of the change is left, and the metadata is at this version.
async fn until_version(cluster: &Cluster<'_>, version: &str, metadata: &str) -> Result<KafkaStatus> {
    let what = format!("Kafka {version} with metadata version {metadata}");
    cluster
        .until_status(&what, ROLLING, |kafka, status| {
            let is_there = status.kafka_version.as_deref() == Some(version)
                && status.kafka_metadata_version.as_deref() == Some(metadata)
                && status.observed_generation == kafka.metadata.generation;
            is_there.then(|| status.clone())
        })
        .await?;
    let status = cluster.until_ready().await?;
    cluster.until_pods_ready(6).await?;
    let versions = versions(cluster).await?;
    ensure!(versions.values().all(|one| one == version), "the status says {version}, pods run {versions:?}");
    Ok(status)
}

async fn versions(cluster: &Cluster<'_>) -> Result<BTreeMap<String, String>> {
    let pods = cluster.scene.api::<Pod>().list(&cluster.listed()).await?;
    let version = |pod: &Pod| pod.annotations().get(KAFKA_VERSION_ANNOTATION).cloned().unwrap_or_default();
    Ok(pods.into_iter().map(|pod| (pod.name_any(), version(&pod))).collect())
}

async fn upgrade(cluster: &Cluster<'_>, version: &str, metadata: &str) -> Result<()> {
    cluster.scene.step(format!("upgrading to {version}"));
    cluster.edit(&json!({ "version": version, "metadataVersion": null, "image": null })).await?;
    until_version(cluster, version, metadata).await.map(drop)
}

/// Waits until one of the pods, but not all of them, are of another version.
async fn until_half_way(cluster: &Cluster<'_>, version: &str) -> Result<()> {
    let what = format!("a first pod of {version}");
    wait::until(cluster.scene.api::<Pod>(), cluster.watched(), &what, STARTING, |pods| {
        let is_new =
            |pod: &Pod| pod.annotations().get(KAFKA_VERSION_ANNOTATION).is_some_and(|one| one == version);
        pods.values().any(is_new).then_some(())
    })
    .await
}

async fn revert_half_way(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("beginning an upgrade to 4.1.1, and going back to 4.0.2 half way");
    cluster.edit(&json!({ "version": "4.1.1" })).await?;
    until_half_way(cluster, "4.1.1").await?;
    cluster.edit(&json!({ "version": "4.0.2" })).await?;
    until_version(cluster, "4.0.2", "4.0-IV3").await.map(drop)
}

async fn correct_an_image_half_way(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("upgrading to 4.1.1 with an image that does not exist, and correcting it");
    cluster.edit(&json!({ "version": "4.1.1", "image": "docker.io/apache/kafka:missing" })).await?;
    cluster.until_warned("RollingUpdateStopped", &[], STARTING).await?;
    upgrade(cluster, "4.1.1", "4.1-IV1").await
}

/// Binaries may go back as long as the metadata version stayed.
async fn go_and_come_back(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("upgrading to 4.3.1 with the metadata version of 4.1, and back to 4.1.1");
    let set = async |version: &str, metadata: Value| {
        cluster.edit(&json!({ "version": version, "metadataVersion": metadata })).await
    };
    set("4.3.1", json!("4.1")).await?;
    until_version(cluster, "4.3.1", "4.1-IV1").await?;
    set("4.1.1", json!("4.1")).await?;
    until_version(cluster, "4.1.1", "4.1-IV1").await.map(drop)
}

/// What 4.1.1 cannot read keeps it away, and the numbers say why.
async fn refuse_to_go_back(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("asking for 4.1.1 when the metadata is at 4.3");
    let before = cluster.pod_uids().await?;
    cluster.edit(&json!({ "version": "4.1.1" })).await?;
    cluster.until_warned("VersionHeld", &["4.3-IV0"], STARTING).await?;
    ensure!(before == cluster.pod_uids().await?, "a pod restarted");
    cluster.edit(&json!({ "version": "4.3.1" })).await?;
    until_version(cluster, "4.3.1", "4.3-IV0").await.map(drop)
}
