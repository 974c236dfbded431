//! A cluster with a static quorum, as older operators made them, is run as it is, and becomes a dynamic one under load.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use karst_api::{Kafka, KafkaNodePool, QuorumKind};
use karst_e2e::cluster::{ACTING, Cluster, STARTING, warnings};
use karst_e2e::kafka_tools::ConsoleTools;
use karst_e2e::load::under_load;
use karst_e2e::manifests::{pool_with_claims, replicated};
use karst_e2e::old_disks::{self, NODES};
use karst_e2e::story::{Scene, story};
use karst_e2e::wait;
use kube::api::DeleteParams;
use serde_json::json;

#[tokio::test]
async fn static_quorum_is_run_as_it_is_and_migrated_under_load() -> Result<()> {
    story("static", Duration::from_secs(900), async |scene| {
        let cluster = create(scene).await?;
        let bootstrap = cluster.bootstrap().await?;
        let tools = ConsoleTools::new(scene, "live-both-0", &bootstrap);
        let voters = tools.voters().await?;
        ensure!(voters.iter().map(|voter| voter.id).eq(NODES), "Kafka says {voters:?}");
        under_load(scene, &bootstrap, async || {
            refuse_to_scale(&cluster).await?;
            migrate(&cluster).await?;
            scale(&cluster).await
        })
        .await?;
        let voters = tools.voters().await?;
        let all_known = voters.iter().all(|voter| voter.directory_id.is_some());
        ensure!(voters.len() == 3 && all_known, "Kafka says {voters:?}");
        Ok(())
    })
    .await
}

/// A static quorum of three nodes that are brokers too, as an older Kafka may have left it.
pub(crate) async fn create(scene: &Scene) -> Result<Cluster<'_>> {
    let pools = [pool_with_claims("live", "both", &["controller", "broker"], 3)];
    let cluster = old_disks::find(scene, &replicated("live"), &pools).await?;
    scene.step("waiting until it is ready");
    cluster.until_ready().await?;
    until_kind(&cluster, QuorumKind::Static).await?;
    Ok(cluster)
}

async fn until_kind(cluster: &Cluster<'_>, kind: QuorumKind) -> Result<()> {
    let what = format!("a quorum of the kind {kind:?}");
    cluster
        .until_status(&what, STARTING, |_, status| {
            let is_listed = status.initial_controllers.is_some() == (kind == QuorumKind::Dynamic);
            (status.quorum.as_ref()?.kind == Some(kind) && is_listed).then_some(())
        })
        .await
}

async fn refuse_to_scale(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("asking for a fourth controller, which a static quorum cannot have");
    let before = cluster.pod_uids().await?;
    cluster.edit_pool("both", &json!({ "replicas": 4 })).await?;
    let pools = cluster.scene.api::<KafkaNodePool>();
    wait::until_one(pools, "both", "the advice to migrate", ACTING, |pool| {
        let said = warnings(pool?.status.as_ref()?.conditions.as_ref());
        said.iter().any(|warning| warning.contains("strimzi.io/kraft-quorum-migration")).then_some(())
    })
    .await?;
    ensure!(before == cluster.pod_uids().await?, "pods changed");
    cluster.edit_pool("both", &json!({ "replicas": 3 })).await
}

pub(crate) async fn migrate(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("migrating it");
    let before = cluster.pod_uids().await?;
    cluster.annotate("strimzi.io/kraft-quorum-migration", Some("true")).await?;
    until_kind(cluster, QuorumKind::Dynamic).await?;
    cluster.scene.step("waiting until all nodes run without the list of voters");
    let what = "three other pods, all ready";
    wait::until(cluster.scene.api::<Pod>(), cluster.watched(), what, STARTING, |pods| {
        let uids = karst_e2e::cluster::uids(pods);
        let is_new = |(name, uid): (&String, &String)| before.get(name) != Some(uid);
        let ready = pods.values().all(karst_e2e::cluster::is_pod_ready);
        (uids.len() == 3 && uids.iter().all(is_new) && ready).then_some(())
    })
    .await?;
    cluster.until_ready().await?;
    let kafka = cluster.scene.api::<Kafka>().get("live").await?;
    let annotations = kafka.metadata.annotations.unwrap_or_default();
    ensure!(!annotations.contains_key("strimzi.io/kraft-quorum-migration"), "the annotation stays");
    Ok(())
}

/// Now its voters can change.
async fn scale(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("adding two controllers, and taking them away again");
    cluster.create_pools(&[pool_with_claims("live", "more", &["controller"], 2)]).await?;
    cluster.until_voters(&[0, 1, 2, 3, 4]).await?;
    let pools = cluster.scene.api::<KafkaNodePool>();
    pools.delete("more", &DeleteParams::default()).await?;
    cluster.until_voters(&NODES).await?;
    wait::until_one(pools, "more", "the end of pool more", STARTING, |pool| pool.is_none().then_some(()))
        .await?;
    cluster.until_ready().await.map(drop)
}
