//! Deleting a cluster deletes what was made for it, and keeps the data that was to be kept.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service, ServiceAccount};
use karst_api::{Kafka, KafkaNodePool, KafkaStatus, StrimziPodSet};
use karst_e2e::cluster::{ACTING, Cluster, is_true, warnings};
use karst_e2e::manifests::{claims, kafka, paper_pool, typed_kafka};
use karst_e2e::story::story;
use karst_e2e::wait;
use kube::api::DeleteParams;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::process::Command;

/// The garbage collector works when it likes.
const COLLECTING: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_deleted_cluster_keeps_its_claims_and_comes_back_over_them_while_its_pools_remember_it()
-> Result<()> {
    story("deletion", Duration::from_secs(240), async |scene| {
        let mut kept = paper_pool("mine", "kept", &["controller"], 1);
        kept["spec"]["storage"] = claims(false);
        let mut lost = paper_pool("mine", "lost", &["broker"], 1);
        lost["spec"]["storage"] = claims(true);
        let pools = [kept, lost];
        let cluster = Cluster::create(scene, &kafka("mine"), &pools).await?;
        cluster.until_pods(2).await?;
        let cluster_id = cluster_id(&cluster).await?;

        scene.step("deleting the Kafka resource");
        delete_all_but_the_kept_claim(&cluster).await?;

        scene.step("creating it again over the claim that was kept");
        cluster.create_kafka(&typed_kafka(&kafka("mine"))?).await?;
        cluster.until_pods(2).await?;
        ensure!(self::cluster_id(&cluster).await? == cluster_id, "it became another cluster");
        let formats = storage_formats(&cluster).await?;
        // Nobody leads who could tell how its controllers vote.
        ensure!(formats == ["adopt", "join"], "its controller would vote on an empty disk: {formats:?}");

        scene.step("deleting it with its pools");
        delete_all_but_the_kept_claim(&cluster).await?;
        for pool in ["kept", "lost"] {
            scene.api::<KafkaNodePool>().delete(pool, &DeleteParams::default()).await?;
        }
        until_only::<KafkaNodePool>(&cluster, &[]).await?;

        scene.step("creating it again when nobody remembers whose disk it is");
        cluster.create_kafka(&typed_kafka(&kafka("mine"))?).await?;
        cluster.create_pools(&pools).await?;
        cluster.until_pods(2).await?;
        let formats = storage_formats(&cluster).await?;
        ensure!(formats == ["adopt", "adopt"], "a disk of unknown origin would be formatted: {formats:?}");
        let cluster_id = cluster
            .until_status("a warning that disks are adopted", ACTING, |_, status| {
                let said = warnings(status.conditions.as_ref());
                said.iter()
                    .any(|warning| warning.contains("AdoptingDisks"))
                    .then(|| status.cluster_id.clone())
            })
            .await?;
        ensure!(cluster_id.is_none(), "only Kafka can tell who it is: {cluster_id:?}");
        a_pool_that_nobody_lets_go(&cluster).await
    })
    .await
}

/// What users are told to do with pools when the operator is gone. Here it only looks away: nobody does anything for a cluster that is paused.
async fn a_pool_that_nobody_lets_go(cluster: &Cluster<'_>) -> Result<()> {
    let scene = cluster.scene;
    scene.step(
        "deleting a pool of a cluster that nobody looks after, and taking its finalizer off as documented",
    );
    cluster.annotate("strimzi.io/pause-reconciliation", Some("true")).await?;
    cluster
        .until_status("a word that it is paused", ACTING, |_, status| {
            is_true(status, "ReconciliationPaused").then_some(())
        })
        .await?;
    scene.api::<KafkaNodePool>().delete("lost", &DeleteParams::default()).await?;
    let waits = scene.api::<KafkaNodePool>().get("lost").await?;
    ensure!(waits.meta().deletion_timestamp.is_some(), "the pool does not wait");

    let page = include_str!("../../../../docs/install.md");
    let (_, rest) =
        page.split_once("```sh\nkubectl get kafkanodepools").context("the command is not documented")?;
    let (command, _) = rest.split_once("```").context("the command does not end")?;
    let here = format!("--namespace {}", scene.namespace);
    let command = format!("kubectl get kafkanodepools{}", command.replace("--all-namespaces", &here));
    let done = Command::new("sh").args(["-c", &command]).output().await?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    until_only::<KafkaNodePool>(cluster, &["kept"]).await?;
    let left = scene.api::<KafkaNodePool>().get("kept").await?.metadata.finalizers;
    ensure!(left.unwrap_or_default().is_empty(), "the other pool keeps its finalizer");
    cluster.annotate("strimzi.io/pause-reconciliation", None).await
}

/// How its nodes format disks that are empty.
async fn storage_formats(cluster: &Cluster<'_>) -> Result<Vec<String>> {
    let maps = cluster.scene.api::<ConfigMap>().list(&cluster.listed()).await?;
    Ok(maps.into_iter().filter_map(|map| map.data?.get("storage.format").cloned()).collect())
}

async fn cluster_id(cluster: &Cluster<'_>) -> Result<String> {
    let found = |_: &Kafka, status: &KafkaStatus| status.cluster_id.clone();
    cluster.until_status("a cluster id", ACTING, found).await
}

async fn delete_all_but_the_kept_claim(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.api::<Kafka>().delete("mine", &DeleteParams::default()).await?;
    until_only::<Pod>(cluster, &[]).await?;
    until_only::<StrimziPodSet>(cluster, &[]).await?;
    until_only::<ConfigMap>(cluster, &[]).await?;
    until_only::<Service>(cluster, &[]).await?;
    until_only::<ServiceAccount>(cluster, &[]).await?;
    until_only::<PersistentVolumeClaim>(cluster, &["data-mine-kept-0"]).await
}

async fn until_only<K>(cluster: &Cluster<'_>, names: &[&str]) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let names: BTreeSet<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let what = format!("{} to be only {names:?}", K::plural(&()));
    let api = cluster.scene.api::<K>();
    wait::until(api, cluster.watched(), &what, COLLECTING, |objects| {
        let left: BTreeSet<_> = objects.values().map(ResourceExt::name_any).collect();
        (left == names).then_some(())
    })
    .await
}
