//! The quorum under load: controllers are added, removed, replaced, and change places with brokers.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use karst_api::KafkaNodePool;
use karst_core::names::CONTROLLER_ROLE_LABEL;
use karst_e2e::cluster::{Cluster, STARTING, is_pod_ready};
use karst_e2e::kafka_tools::ConsoleTools;
use karst_e2e::load::under_load;
use karst_e2e::manifests::{pool_with_claims, replicated, separate};
use karst_e2e::story::{Scene, story};
use karst_e2e::{kubectl, plots, wait};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;

#[tokio::test]
async fn controllers_come_go_and_are_replaced_under_load_and_nothing_is_lost() -> Result<()> {
    story("quorum", Duration::from_secs(480), async |scene| {
        let cluster = create(scene).await?;
        let bootstrap = cluster.bootstrap().await?;
        under_load(scene, &bootstrap, async || {
            let brokers = brokers(&cluster).await?;
            scale(&cluster).await?;
            plots::replace_disk(&cluster).await?;
            ensure!(
                brokers == self::brokers(&cluster).await?,
                "a broker restarted, though nothing of it changed"
            );
            exchange_roles(&cluster).await
        })
        .await?;
        let tools = ConsoleTools::new(scene, "live-brokers-0", &bootstrap);
        plots::kafka_agrees(&cluster, &tools, 3).await
    })
    .await
}

async fn create(scene: &Scene) -> Result<Cluster<'_>> {
    Cluster::create_ready(scene, &replicated("live"), &separate("live")).await
}

async fn brokers(cluster: &Cluster<'_>) -> Result<BTreeMap<String, String>> {
    let mut uids = cluster.pod_uids().await?;
    uids.retain(|pod, _| pod.contains("brokers"));
    Ok(uids)
}

/// Three, five, three, one and three again. The claims go with their nodes, so the initial ones come back on empty disks.
async fn scale(cluster: &Cluster<'_>) -> Result<()> {
    for (replicas, voters) in [(5, vec![3, 4, 5, 6, 7]), (3, vec![3, 4, 5]), (1, vec![3]), (3, vec![3, 4, 5])]
    {
        cluster.scene.step(format!("scaling the controllers to {replicas}"));
        let replicas = format!("--replicas={replicas}");
        let target = "kafkanodepool/controllers";
        kubectl::run(&["scale", "--namespace", &cluster.scene.namespace, target, &replicas]).await?;
        cluster.until_voters(&voters).await?;
        cluster.until_pods_ready(3 + voters.len()).await?;
    }
    Ok(())
}

/// The brokers become controllers too, and the old ones go; then new ones come, and the brokers only serve again.
async fn exchange_roles(cluster: &Cluster<'_>) -> Result<()> {
    let scene = cluster.scene;
    let pools = scene.api::<KafkaNodePool>();
    let roles = async |roles: &[&str]| cluster.edit_pool("brokers", &json!({ "roles": roles })).await;
    scene.step("making the brokers controllers, and deleting the pool of controllers");
    roles(&["controller", "broker"]).await?;
    pools.delete("controllers", &DeleteParams::default()).await?;
    cluster.until_voters(&[0, 1, 2]).await?;
    wait::until_one(pools.clone(), "controllers", "the end of pool controllers", STARTING, |found| {
        found.is_none().then_some(())
    })
    .await?;

    scene.step("adding a pool of controllers, and making the brokers brokers again");
    cluster.create_pools(&[pool_with_claims("live", "fresh", &["controller"], 3)]).await?;
    roles(&["broker"]).await?;
    cluster.until_voters(&[3, 4, 5]).await?;
    let what = "brokers that were restarted without the role of controllers";
    wait::until(scene.api::<Pod>(), cluster.watched(), what, STARTING, |pods| {
        let votes = |pod: &Pod| pod.labels().get(CONTROLLER_ROLE_LABEL).is_some_and(|value| value == "true");
        let done = |(name, pod): (&String, &Pod)| is_pod_ready(pod) && votes(pod) == name.contains("fresh");
        (pods.len() == 6 && pods.iter().all(done)).then_some(())
    })
    .await?;
    cluster.until_ready().await.map(drop)
}
