//! The disks of running nodes: they grow, come and go, and nothing acknowledged is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use karst_api::KafkaNodePool;
use karst_e2e::cluster::{Cluster, STARTING, warnings};
use karst_e2e::kafka_tools::{ConsoleTools, Kcat};
use karst_e2e::load::under_load;
use karst_e2e::manifests::{kafka, pool};
use karst_e2e::story::{Scene, story};
use karst_e2e::wait;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

const POD: &str = "live-brokers-0";
/// The directories of both brokers on their first and on their second volume.
const FIRST: [&str; 2] = ["/var/lib/kafka/data-0/kafka-log0", "/var/lib/kafka/data-0/kafka-log1"];
const SECOND: [&str; 2] = ["/var/lib/kafka/data-1/kafka-log0", "/var/lib/kafka/data-1/kafka-log1"];

#[tokio::test]
async fn volumes_grow_come_and_go_and_nothing_acknowledged_is_lost() -> Result<()> {
    story("storage", Duration::from_secs(480), async |scene| {
        let cluster = create(scene).await?;
        let bootstrap = cluster.bootstrap().await?;
        let tools = ConsoleTools::new(scene, POD, &bootstrap);
        under_load(scene, &bootstrap, async || {
            grow(&cluster).await?;
            add_volume(&cluster, &tools).await
        })
        .await?;
        refuse_to_shrink(&cluster).await?;
        remove_volume(&cluster, &tools, &Kcat::new(&bootstrap)).await?;
        add_volume_to_the_only_controller(&cluster).await
    })
    .await
}

fn volume(id: i32, size: &str) -> Value {
    json!({ "id": id, "type": "persistent-claim", "size": size, "deleteClaim": true })
}

/// One controller and two brokers, with two copies of everything.
async fn create(scene: &Scene) -> Result<Cluster<'_>> {
    let storage = json!({ "type": "jbod", "volumes": [volume(0, "1Gi")] });
    let mut brokers = pool("live", "brokers", &["broker"], 2);
    brokers["spec"]["storage"] = storage.clone();
    let mut controllers = pool("live", "controllers", &["controller"], 1);
    controllers["spec"]["storage"] = storage;
    let mut kafka = kafka("live");
    for key in ["default.replication.factor", "offsets.topic.replication.factor"] {
        kafka["spec"]["kafka"]["config"][key] = json!(2);
    }
    Cluster::create_ready(scene, &kafka, &[brokers, controllers]).await
}

async fn set_volumes(scene: &Scene, pool: &str, volumes: &[Value]) -> Result<()> {
    let patch = Patch::Merge(json!({ "spec": { "storage": { "volumes": volumes } } }));
    scene.api::<KafkaNodePool>().patch(pool, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until the warnings of a pool are as they should be.
async fn until_warnings(
    scene: &Scene,
    pool: &str,
    what: &str,
    are: impl Fn(&[String]) -> bool,
) -> Result<()> {
    wait::until_one(scene.api::<KafkaNodePool>(), pool, what, STARTING, |found| {
        let (generation, status) = (found?.metadata.generation, found?.status.as_ref()?);
        let dealt_with = status.observed_generation == generation;
        (dealt_with && are(&warnings(status.conditions.as_ref()))).then_some(())
    })
    .await
}

async fn until_calm(scene: &Scene, pool: &str) -> Result<()> {
    until_warnings(scene, pool, "a pool without warnings", <[String]>::is_empty).await
}

/// Waits until these pods are others than before, and all pods are ready.
async fn until_restarted(
    cluster: &Cluster<'_>,
    pods: &[&str],
    before: &BTreeMap<String, String>,
) -> Result<()> {
    for pod in pods {
        wait::until_one(cluster.scene.api::<Pod>(), pod, "another pod", STARTING, |found| {
            (found?.metadata.uid.as_ref() != before.get(*pod)).then_some(())
        })
        .await?;
    }
    cluster.until_pods_ready(3).await
}

async fn until_claim(scene: &Scene, claim: &str, capacity: Option<&str>) -> Result<()> {
    let what = format!("claim {claim} with {capacity:?}");
    wait::until_one(scene.api::<PersistentVolumeClaim>(), claim, &what, STARTING, |found| {
        let has = |claim: &PersistentVolumeClaim| {
            Some(claim.status.as_ref()?.capacity.as_ref()?["storage"].0.clone())
        };
        match (found, capacity) {
            (None, None) => Some(()),
            (Some(found), Some(wanted)) => (has(found)? == wanted).then_some(()),
            _ => None,
        }
    })
    .await
}

/// Claims grow while pods run on.
async fn grow(cluster: &Cluster<'_>) -> Result<()> {
    let scene = cluster.scene;
    scene.step("growing the volumes of the brokers");
    let before = cluster.pod_uids().await?;
    set_volumes(scene, "brokers", &[volume(0, "2Gi")]).await?;
    for claim in ["data-0-live-brokers-0", "data-0-live-brokers-1"] {
        until_claim(scene, claim, Some("2Gi")).await?;
    }
    until_calm(scene, "brokers").await?;
    ensure!(cluster.pod_uids().await? == before, "growing restarted a pod");
    Ok(())
}

/// A volume comes, and takes the metadata log over: each broker fetches it again.
async fn add_volume(cluster: &Cluster<'_>, tools: &ConsoleTools<'_>) -> Result<()> {
    let scene = cluster.scene;
    scene.step("adding a volume to the brokers, and moving their metadata log there");
    let before = cluster.pod_uids().await?;
    let mut second = volume(1, "1Gi");
    second["kraftMetadata"] = json!("shared");
    set_volumes(scene, "brokers", &[volume(0, "2Gi"), second]).await?;
    until_restarted(cluster, &[POD, "live-brokers-1"], &before).await?;
    until_calm(scene, "brokers").await?;
    let dirs: BTreeSet<_> = tools.log_dirs("0,1").await?.into_keys().collect();
    ensure!(dirs == FIRST.iter().chain(&SECOND).map(ToString::to_string).collect(), "{dirs:?}");
    Ok(())
}

async fn refuse_to_shrink(cluster: &Cluster<'_>) -> Result<()> {
    let scene = cluster.scene;
    scene.step("asking for a smaller volume, which is refused and stops nothing");
    let mut second = volume(1, "1Gi");
    second["kraftMetadata"] = json!("shared");
    let before = cluster.pod_uids().await?;
    set_volumes(scene, "brokers", &[volume(0, "1Gi"), second]).await?;
    until_warnings(scene, "brokers", "a word about the size", |said| {
        said.iter().any(|one| one.contains("size is 1Gi, and its nodes keep 2Gi"))
    })
    .await?;
    ensure!(cluster.pod_uids().await? == before, "a refused change restarted a pod");
    Ok(())
}

/// A volume with partitions stays; when they have moved it goes, and its claims with it.
async fn remove_volume(cluster: &Cluster<'_>, tools: &ConsoleTools<'_>, kcat: &Kcat) -> Result<()> {
    let scene = cluster.scene;
    scene.step("taking away a volume that has partitions");
    kcat.produce("keepsake", &["one", "two"]).await?;
    let there = tools.log_dirs("0,1").await?;
    let moving: BTreeSet<String> = SECOND.iter().flat_map(|dir| there[*dir].clone()).collect();
    ensure!(!moving.is_empty(), "nothing was ever placed on the second volume: {there:?}");
    let before = cluster.pod_uids().await?;
    set_volumes(scene, "brokers", &[volume(0, "2Gi")]).await?;
    until_warnings(scene, "brokers", "a warning that names partitions", |said| {
        let named = |one: &String| moving.iter().any(|partition| one.contains(partition));
        said.iter().any(|one| one.contains("volume 1 of pool 'brokers' is to go and stays") && named(one))
    })
    .await?;
    ensure!(cluster.pod_uids().await? == before, "a volume that stays restarted a pod");

    scene.step(format!("moving {} partitions, after which it goes by itself", moving.len()));
    tools.move_to_dirs(&moving.into_iter().collect::<Vec<_>>(), &[0, 1], &FIRST).await?;
    until_restarted(cluster, &[POD, "live-brokers-1"], &before).await?;
    for claim in ["data-1-live-brokers-0", "data-1-live-brokers-1"] {
        until_claim(scene, claim, None).await?;
    }
    until_calm(scene, "brokers").await?;
    let dirs: BTreeSet<_> = tools.log_dirs("0,1").await?.into_keys().collect();
    ensure!(dirs == FIRST.map(str::to_owned).into(), "{dirs:?}");
    let read = kcat.consume("keepsake").await?;
    ensure!(read == ["one", "two"], "{read:?}");
    Ok(())
}

/// Nobody leads while it restarts, and it must not wait for somebody who does.
async fn add_volume_to_the_only_controller(cluster: &Cluster<'_>) -> Result<()> {
    let scene = cluster.scene;
    scene.step("adding a volume to the only controller");
    let before = cluster.pod_uids().await?;
    set_volumes(scene, "controllers", &[volume(0, "1Gi"), volume(1, "1Gi")]).await?;
    until_restarted(cluster, &["live-controllers-2"], &before).await?;
    cluster.until_ready().await.map(drop)
}
