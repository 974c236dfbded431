//! Pools of a running cluster under load: brokers come and go, and no acknowledged record is lost.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use karst_api::{KafkaNodePool, StrimziPodSet};
use karst_e2e::cluster::{ACTING, Cluster, STARTING, warnings};
use karst_e2e::kafka_tools::{ConsoleTools, Kcat};
use karst_e2e::manifests::{claims, kafka, pool};
use karst_e2e::story::{Scene, story};
use karst_e2e::{kubectl, wait};
use kube::api::DeleteParams;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// The topic that is written to all the time.
const BUSY: &str = "busy";
/// A topic that stands in the way of a node that is to go.
const HEAVY: &str = "heavy";

#[tokio::test]
async fn brokers_come_and_go_under_load_and_nothing_acknowledged_is_lost() -> Result<()> {
    story("pools", Duration::from_secs(420), async |scene| {
        let cluster = create(scene).await?;
        let bootstrap = cluster.bootstrap().await?;
        let tools = ConsoleTools::new(scene, "live-brokers-0", &bootstrap);
        tools.create_topic_on(BUSY, "0:1").await?;
        let kcat = Kcat::new(&bootstrap);
        let stop = CancellationToken::new();
        let (written, told) = tokio::join!(write_until(&kcat, &stop), async {
            let told = shape(&cluster, &tools).await;
            stop.cancel();
            told
        });
        told?;

        scene.step("reading every record that was acknowledged");
        let (written, read) = (written?, kcat.consume(BUSY).await?);
        ensure!(!written.is_empty(), "nothing was written");
        let lost: Vec<_> = written.iter().filter(|record| !read.contains(record)).collect();
        ensure!(lost.is_empty(), "{} of {} records are lost: {lost:?}", lost.len(), written.len());
        Ok(())
    })
    .await
}

/// One controller and two brokers, with two copies of everything.
async fn create(scene: &Scene) -> Result<Cluster<'_>> {
    let mut brokers = pool("live", "brokers", &["broker"], 2);
    brokers["spec"]["storage"] = claims(true);
    let mut controllers = pool("live", "controllers", &["controller"], 1);
    controllers["spec"]["storage"] = claims(true);
    let mut kafka = kafka("live");
    for key in ["default.replication.factor", "offsets.topic.replication.factor"] {
        kafka["spec"]["kafka"]["config"][key] = json!(2);
    }
    let cluster = Cluster::create(scene, &kafka, &[brokers, controllers]).await?;
    scene.step("waiting until it is ready");
    cluster.until_ready().await?;
    Ok(cluster)
}

async fn shape(cluster: &Cluster<'_>, tools: &ConsoleTools<'_>) -> Result<()> {
    let scene = cluster.scene;
    scene.step("scaling the brokers from two to three with kubectl scale");
    scale(scene, "brokers", 3).await?;
    until_ids(scene, "brokers", &[0, 1, 3]).await?;
    cluster.until_pods_ready(4).await?;

    scene.step("scaling them back while a partition lives on the third");
    tools.create_topic_on(HEAVY, "3:0").await?;
    scale(scene, "brokers", 2).await?;
    until_warned(scene, "brokers", &["node 3", "heavy-0"]).await?;
    ensure!(scene.api::<Pod>().get_opt("live-brokers-3").await?.is_some(), "it went with its partition");

    scene.step("moving the partition, after which the node goes by itself");
    tools.reassign(HEAVY, &[1, 0]).await?;
    until_gone::<Pod>(scene, "live-brokers-3").await?;
    until_gone::<ConfigMap>(scene, "live-brokers-3").await?;
    until_gone::<PersistentVolumeClaim>(scene, "data-live-brokers-3").await?;
    until_ids(scene, "brokers", &[0, 1]).await?;

    scene.step("adding a pool with ids of its own, and deleting it");
    let mut more = pool("live", "more", &["broker"], 1);
    more["metadata"]["annotations"] = json!({ "strimzi.io/next-node-ids": "[100-110]" });
    cluster.create_pools(&[more]).await?;
    until_ids(scene, "more", &[100]).await?;
    cluster.until_pods_ready(4).await?;
    scene.api::<KafkaNodePool>().delete("more", &DeleteParams::default()).await?;
    until_gone::<KafkaNodePool>(scene, "more").await?;
    until_gone::<StrimziPodSet>(scene, "live-more").await?;
    until_gone::<Pod>(scene, "live-more-100").await?;
    cluster.until_ready().await.map(drop)
}

/// Writes one record after the other until told to stop. Returns those that were acknowledged.
async fn write_until(kcat: &Kcat, stop: &CancellationToken) -> Result<Vec<String>> {
    let mut written = Vec::new();
    while !stop.is_cancelled() {
        let record = format!("record-{}", written.len());
        kcat.produce(BUSY, &[&record]).await.with_context(|| format!("writing {record}"))?;
        written.push(record);
    }
    Ok(written)
}

async fn scale(scene: &Scene, pool: &str, replicas: usize) -> Result<()> {
    let (pool, replicas) = (format!("kafkanodepool/{pool}"), format!("--replicas={replicas}"));
    kubectl::run(&["scale", "--namespace", &scene.namespace, &pool, &replicas]).await.map(drop)
}

async fn until_ids(scene: &Scene, pool: &str, ids: &[i32]) -> Result<()> {
    let what = format!("nodeIds {ids:?} of pool {pool}");
    wait::until_one(scene.api::<KafkaNodePool>(), pool, &what, STARTING, |found| {
        (found?.status.as_ref()?.node_ids.as_deref()? == ids).then_some(())
    })
    .await
}

async fn until_warned(scene: &Scene, pool: &str, words: &[&str]) -> Result<()> {
    let what = format!("a warning with {words:?} on pool {pool}");
    wait::until_one(scene.api::<KafkaNodePool>(), pool, &what, ACTING, |found| {
        let said = warnings(found?.status.as_ref()?.conditions.as_ref());
        said.iter().any(|warning| words.iter().all(|word| warning.contains(word))).then_some(())
    })
    .await
}

async fn until_gone<K>(scene: &Scene, name: &str) -> Result<()>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + 'static,
{
    let what = format!("the end of {} {name}", K::kind(&()));
    wait::until_one(scene.api::<K>(), name, &what, STARTING, |found| found.is_none().then_some(())).await
}
