//! Pools of a running cluster under load: brokers come and go, and no acknowledged record is lost.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use karst_api::{KafkaNodePool, StrimziPodSet};
use karst_e2e::cluster::{ACTING, Cluster, STARTING, warnings};
use karst_e2e::kafka_tools::ConsoleTools;
use karst_e2e::load::{BUSY, under_records};
use karst_e2e::manifests::{claims, kafka, pool};
use karst_e2e::plots::until_registered;
use karst_e2e::story::{Scene, story};
use karst_e2e::{kubectl, wait};
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

/// A topic that stands in the way of a node that is to go.
const HEAVY: &str = "heavy";

#[tokio::test]
async fn brokers_come_and_go_under_load_and_nothing_acknowledged_is_lost() -> Result<()> {
    story("pools", Duration::from_secs(480), async |scene| {
        let cluster = create(scene).await?;
        let bootstrap = cluster.bootstrap().await?;
        let tools = ConsoleTools::new(scene, "live-brokers-0", &bootstrap);
        tools.create_topic_on(BUSY, "0:1").await?;
        under_records(scene, &bootstrap, async || shape(&cluster, &tools).await).await
    })
    .await
}

/// One controller and three brokers, with two copies of everything.
async fn create(scene: &Scene) -> Result<Cluster<'_>> {
    let mut brokers = pool("live", "brokers", &["broker"], 3);
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
    scene.step("scaling the brokers from three to five with a HorizontalPodAutoscaler");
    let scaler = scaler("brokers", 5)?;
    let scalers = scene.api::<HorizontalPodAutoscaler>();
    scalers.create(&PostParams::default(), &scaler).await?;
    until_ids(scene, "brokers", &[0, 1, 2, 4, 5]).await?;
    cluster.until_pods_ready(6).await?;
    scalers.delete("brokers", &DeleteParams::default()).await?;

    scene.step("scaling them back to three with kubectl scale while a partition lives on the fifth");
    tools.create_topic_on(HEAVY, "5:0").await?;
    scale(scene, "brokers", 3).await?;
    until_warned(scene, "brokers", &["node 5", "heavy-0"]).await?;
    until_gone::<Pod>(scene, "live-brokers-4").await?;
    ensure!(scene.api::<Pod>().get_opt("live-brokers-5").await?.is_some(), "it went with its partition");

    scene.step("moving the partition, after which the node goes by itself");
    tools.reassign(&[(HEAVY, &[1, 0])]).await?;
    until_gone::<Pod>(scene, "live-brokers-5").await?;
    until_gone::<ConfigMap>(scene, "live-brokers-5").await?;
    until_gone::<PersistentVolumeClaim>(scene, "data-live-brokers-5").await?;
    until_ids(scene, "brokers", &[0, 1, 2]).await?;

    scene.step("adding a pool with ids, storage and resources of its own");
    let mut second = pool("live", "second", &["broker"], 2);
    second["metadata"]["annotations"] = json!({ "strimzi.io/next-node-ids": "[100-110]" });
    second["spec"]["resources"]["requests"]["memory"] = json!("600Mi");
    second["spec"]["storage"] = json!({ "type": "jbod", "volumes": [
        { "id": 0, "type": "persistent-claim", "size": "1Gi", "deleteClaim": true },
        { "id": 1, "type": "persistent-claim", "size": "1Gi", "deleteClaim": true },
    ]});
    cluster.create_pools(&[second]).await?;
    until_ids(scene, "second", &[100, 101]).await?;
    cluster.until_pods_ready(6).await?;

    scene.step("deleting the first pool, which waits until it is drained");
    scene.api::<KafkaNodePool>().delete("brokers", &DeleteParams::default()).await?;
    until_warned(scene, "brokers", &["node 0", "busy-0"]).await?;
    let tools = ConsoleTools::new(scene, "live-second-100", tools.bootstrap());
    tools.reassign(&[(BUSY, &[100, 101]), (HEAVY, &[101, 100])]).await?;
    until_gone::<KafkaNodePool>(scene, "brokers").await?;
    until_gone::<StrimziPodSet>(scene, "live-brokers").await?;
    cluster.until_pods_ready(3).await?;
    cluster.until_ready().await?;
    let table = kubectl::run(&["get", "kafkanodepools", "--namespace", &scene.namespace]).await?;
    ensure!(
        table.contains("[100,101]") && table.contains("broker"),
        "the table does not tell ids and roles:\n{table}"
    );
    scene.step("looking for registrations of brokers that are gone");
    until_registered(&tools, &[100, 101]).await
}

/// One that wants at least this many nodes, whatever their load is.
fn scaler(pool: &str, least: u32) -> Result<HorizontalPodAutoscaler> {
    Ok(serde_json::from_value(json!({
        "metadata": { "name": pool },
        "spec": {
            "minReplicas": least,
            "maxReplicas": least,
            "scaleTargetRef": { "apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaNodePool", "name": pool },
        },
    }))?)
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
