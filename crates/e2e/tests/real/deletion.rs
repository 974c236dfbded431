//! Deleting a cluster deletes what was made for it, and keeps the data that was to be kept.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service, ServiceAccount};
use karst_api::{Kafka, StrimziPodSet};
use karst_e2e::cluster::Cluster;
use karst_e2e::manifests::{claims, kafka, paper_pool, typed_kafka};
use karst_e2e::story::story;
use karst_e2e::wait;
use kube::api::DeleteParams;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

/// The garbage collector works when it likes.
const COLLECTING: Duration = Duration::from_secs(60);

#[tokio::test]
async fn deleting_a_cluster_removes_all_but_the_claims_to_keep_and_it_is_not_formed_again_on_them()
-> Result<()> {
    story("deletion", Duration::from_secs(180), async |scene| {
        let mut kept = paper_pool("mine", "kept", &["controller"], 1);
        kept["spec"]["storage"] = claims(false);
        let mut lost = paper_pool("mine", "lost", &["broker"], 1);
        lost["spec"]["storage"] = claims(true);
        let cluster = Cluster::create(scene, &kafka("mine"), &[kept, lost]).await?;
        cluster.until_pods(2).await?;

        scene.step("deleting the Kafka resource");
        scene.api::<Kafka>().delete("mine", &DeleteParams::default()).await?;
        until_only::<Pod>(&cluster, &[]).await?;
        until_only::<StrimziPodSet>(&cluster, &[]).await?;
        until_only::<ConfigMap>(&cluster, &[]).await?;
        until_only::<Service>(&cluster, &[]).await?;
        until_only::<ServiceAccount>(&cluster, &[]).await?;
        until_only::<PersistentVolumeClaim>(&cluster, &["data-mine-kept-0"]).await?;

        scene.step("creating it again over the claim that was kept");
        cluster.create_kafka(&typed_kafka(&kafka("mine"))?).await?;
        cluster.until_not_ready("IdentityUnknown", "data-mine-kept-0").await?;
        ensure!(cluster.pod_uids().await?.is_empty(), "pods were made on a disk of unknown origin");
        Ok(())
    })
    .await
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
