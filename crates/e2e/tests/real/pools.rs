//! Pools of a running cluster under load: brokers come and go, and no acknowledged record is lost.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use karst_api::{KafkaNodePool, StrimziPodSet};
use karst_core::names::ALLOW_LOSS_ANNOTATION;
use karst_e2e::audit::Audit;
use karst_e2e::cluster::{ACTING, Cluster, STARTING, is_pod_ready, warnings};
use karst_e2e::kafka_tools::{ConsoleTools, Kcat};
use karst_e2e::load::{BUSY, under_records};
use karst_e2e::manifests::{claims, kafka, pool};
use karst_e2e::plots::until_registered;
use karst_e2e::story::{Scene, story};
use karst_e2e::{kubectl, wait};
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

/// A topic that stands in the way of a node that is to go.
const HEAVY: &str = "heavy";
/// A topic with one copy, on the last broker that is left.
const ONLY: &str = "only";
const LAST: &str = "live-second-101";
const CLAIMS: [&str; 2] = ["data-0-live-second-101", "data-1-live-second-101"];
/// The operator has done what there was to do when it is silent for so long.
const CALM: Duration = Duration::from_secs(2);

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

    scene.step(
        "scaling them back to three, and keeping disks from now on, while a partition lives on the fifth",
    );
    tools.create_topic_on(HEAVY, "5:0").await?;
    cluster.edit_pool("brokers", &json!({ "replicas": 3, "storage": claims(false) })).await?;
    until_warned(scene, "brokers", &["node 5", "heavy-0"]).await?;
    until_gone::<Pod>(scene, "live-brokers-4").await?;
    until_gone::<ConfigMap>(scene, "live-brokers-4").await?;
    ensure!(scene.api::<Pod>().get_opt("live-brokers-5").await?.is_some(), "it went with its partition");
    is_kept(scene, "data-live-brokers-4").await?;

    scene.step(
        "letting disks go with their nodes, and moving the partition, after which the node goes by itself",
    );
    cluster.edit_pool("brokers", &json!({ "storage": claims(true) })).await?;
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
    until_registered(&tools, &[100, 101]).await?;
    hold_what_would_lose_records(cluster, &tools).await
}

/// Somebody deleted the claims of a broker that runs: they go when its pod does. It has the only copy of a partition, and does not
/// restart until a person says so by its name.
async fn hold_what_would_lose_records(cluster: &Cluster<'_>, tools: &ConsoleTools<'_>) -> Result<()> {
    let scene = cluster.scene;
    scene.step(
        "deleting the claims of a broker with the only copy of a partition, and asking for its restart",
    );
    let kcat = Kcat::new(tools.bootstrap());
    tools.create_topic_on(ONLY, "101").await?;
    let records: Vec<String> = (0..500).map(|number| format!("{number:03}")).collect();
    kcat.produce(ONLY, &records.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let before = cluster.pod_uids().await?;
    for claim in CLAIMS {
        scene.api::<PersistentVolumeClaim>().delete(claim, &DeleteParams::default()).await?;
    }
    let wish = ["pod", LAST, "strimzi.io/manual-rolling-update=true"];
    kubectl::run(&[&["annotate", "--namespace", &scene.namespace], &wish[..]].concat()).await?;
    until_held(cluster, &[LAST, "only-0", ALLOW_LOSS_ANNOTATION]).await?;
    Audit::until_calm(CALM, ACTING).await?;
    ensure!(cluster.pod_uids().await? == before, "a broker restarted");
    ensure!(kcat.consume(ONLY).await? == records, "records of the only copy are lost");

    scene.step("naming it, after which it restarts on empty disks");
    cluster.annotate(ALLOW_LOSS_ANNOTATION, Some(LAST)).await?;
    wait::until_one(scene.api::<Pod>(), LAST, "another pod", STARTING, |pod| {
        pod.filter(|pod| pod.metadata.uid.as_ref() != before.get(LAST))
            .filter(|pod| is_pod_ready(pod))
            .map(drop)
    })
    .await?;
    cluster.annotate(ALLOW_LOSS_ANNOTATION, None).await?;
    cluster.until_ready().await?;
    ensure!(kcat.consume(ONLY).await?.is_empty(), "its disks are not empty: what was held for?");
    let after = cluster.pod_uids().await?;
    let others: Vec<_> =
        before.keys().filter(|pod| *pod != LAST && before.get(*pod) != after.get(*pod)).collect();
    ensure!(others.is_empty(), "others restarted too: {others:?}");
    Ok(())
}

/// Waits until a warning of the cluster, or of the broker's pool, has all these words.
async fn until_held(cluster: &Cluster<'_>, words: &[&str]) -> Result<()> {
    tokio::select! {
        told = cluster.until_warned("", words, ACTING) => told,
        told = until_warned(cluster.scene, "second", words) => told,
    }
}

/// The claim is there, and going to stay.
async fn is_kept(scene: &Scene, claim: &str) -> Result<()> {
    Audit::until_calm(CALM, ACTING).await?;
    let found = scene.api::<PersistentVolumeClaim>().get_opt(claim).await?;
    let found = found.with_context(|| format!("{claim} is gone, though disks were to be kept"))?;
    ensure!(found.metadata.deletion_timestamp.is_none(), "{claim} is going, though disks were to be kept");
    Ok(())
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
