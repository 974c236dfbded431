//! What is deleted or changed by hand comes back, because it is watched; and nothing that was acknowledged is lost.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service, ServiceAccount};
use karst_api::StrimziPodSet;
use karst_e2e::cluster::{Cluster, STARTING, is_pod_ready};
use karst_e2e::kafka_tools::Kcat;
use karst_e2e::wait;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

/// Who watches needs milliseconds; who polls needs minutes.
const SOON: Duration = Duration::from_secs(20);
/// A stop in order, with the partitions handed over first.
const STOPPING: Duration = Duration::from_secs(60);

pub(crate) async fn what_is_deleted_or_changed_comes_back(cluster: &Cluster<'_>) -> Result<()> {
    deleted_object_returns::<ConfigMap>(cluster, "my-cluster-brokers-1").await?;
    deleted_object_returns::<ConfigMap>(cluster, "my-cluster-controllers-3").await?;
    deleted_object_returns::<Service>(cluster, "my-cluster-kafka-bootstrap").await?;
    deleted_object_returns::<Service>(cluster, "my-cluster-kafka-brokers").await?;
    deleted_object_returns::<ServiceAccount>(cluster, "my-cluster-kafka").await?;
    changed_config_map_is_mended(cluster).await?;
    a_controller_that_lost_its_config_map_does_not_found_a_quorum_again(cluster).await
}

async fn deleted_object_returns<K>(cluster: &Cluster<'_>, name: &str) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let what = format!("{} {name}", K::kind(&()));
    cluster.scene.step(format!("deleting {what}"));
    let api = cluster.scene.api::<K>();
    let old = api.get(name).await?.uid();
    api.delete(name, &DeleteParams::default()).await?;
    wait::until_one(api, name, &format!("{what} to be back"), SOON, |object| {
        object.filter(|object| object.uid() != old).map(drop)
    })
    .await
}

async fn changed_config_map_is_mended(cluster: &Cluster<'_>) -> Result<()> {
    // What somebody else adds is not Karst's to remove, and must not keep it busy for ever either.
    cluster.scene.step("changing a ConfigMap by hand");
    let name = "my-cluster-brokers-0";
    let api = cluster.scene.api::<ConfigMap>();
    let settings = |map: &ConfigMap| map.data.as_ref().and_then(|data| data.get("server.config").cloned());
    let before = settings(&api.get(name).await?).context("no server.config")?;
    let change = Patch::Merge(json!({ "data": { "server.config": "node.id=77\n", "extra": "by hand" } }));
    api.patch(name, &PatchParams::default(), &change).await?;
    let what = "the ConfigMap to say again what Karst wrote";
    wait::until_one(api, name, what, SOON, |map| (settings(map?).as_ref() == Some(&before)).then_some(()))
        .await
}

async fn a_controller_that_lost_its_config_map_does_not_found_a_quorum_again(
    cluster: &Cluster<'_>,
) -> Result<()> {
    let map = cluster.scene.api::<ConfigMap>().get("my-cluster-controllers-3").await?;
    let format = map.data.as_ref().and_then(|data| data.get("storage.format"));
    ensure!(format.is_some_and(|format| format == "join"), "storage.format is {format:?}");
    Ok(())
}

pub(crate) async fn a_deleted_pod_comes_back_and_records_survive(cluster: &Cluster<'_>) -> Result<()> {
    let kcat = Kcat::new(&cluster.bootstrap().await?);
    for (name, record) in [("my-cluster-brokers-2", "d"), ("my-cluster-controllers-4", "e")] {
        deleted_pod_returns(cluster, name).await?;
        cluster.until_pods_ready(6).await?;
        kcat.produce("kept", &[record]).await?;
    }
    cluster.until_ready().await?;
    assert_eq!(kcat.consume("kept").await?, ["a", "b", "c", "d", "e"]);
    Ok(())
}

async fn deleted_pod_returns(cluster: &Cluster<'_>, name: &str) -> Result<()> {
    cluster.scene.step(format!("deleting pod {name}"));
    let api = cluster.scene.api::<Pod>();
    let old = api.get(name).await?.uid();
    api.delete(name, &DeleteParams::default()).await?;
    // A pod's name is free only when its containers have stopped: the clock starts then.
    let mut gone = None;
    let missing = wait::until_one(api, name, &format!("pod {name} to be back"), STOPPING, |pod| match pod {
        None => {
            gone.get_or_insert_with(Instant::now);
            None
        }
        Some(pod) => (pod.uid() != old).then(|| gone.map_or(Duration::ZERO, |gone| gone.elapsed())),
    })
    .await?;
    ensure!(missing < SOON, "pod {name} was missing for {missing:?}");
    Ok(())
}

pub(crate) async fn a_deleted_pod_set_comes_back_with_its_pods_and_records_survive(
    cluster: &Cluster<'_>,
) -> Result<()> {
    let before = cluster.pod_uids().await?;
    deleted_object_returns::<StrimziPodSet>(cluster, "my-cluster-brokers").await?;
    cluster.scene.step("waiting for its pods");
    // The garbage collector takes the pods of the old pod set; the new one makes them anew.
    let what = "the brokers' pods to be replaced and ready";
    wait::until(cluster.scene.api::<Pod>(), cluster.watched(), what, STARTING, |pods| {
        let brokers = pods.iter().filter(|(name, _)| name.contains("-brokers-"));
        let new = |name: &String, pod: &Pod| pod.uid().as_ref() != before.get(name) && is_pod_ready(pod);
        (brokers.clone().count() == 3 && brokers.clone().all(|(name, pod)| new(name, pod))).then_some(())
    })
    .await?;
    let after = cluster.pod_uids().await?;
    let controllers = |name: &&String| name.contains("-controllers-");
    for name in before.keys().filter(controllers) {
        assert_eq!(after.get(name), before.get(name), "a controller was replaced, though its pod set stayed");
    }
    cluster.until_ready().await?;
    let kcat = Kcat::new(&cluster.bootstrap().await?);
    assert_eq!(kcat.consume("kept").await?, ["a", "b", "c", "d", "e"]);
    kcat.round_trip("kept", "f").await?;
    cluster.until_pods_counted("my-cluster-brokers", 3).await
}
