//! What happens to a cluster of three brokers (nodes 0 to 2) and three controllers (3 to 5), in parts that any story can use.
//! Each part ends when nothing of it is left to be done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use karst_api::{KafkaNodePool, StrimziPodSet};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, STARTING, is_pod_ready, uids};
use crate::kafka_tools::ConsoleTools;
use crate::keeper::{Keeper, Mischief};
use crate::load::{under_load, under_records};
use crate::manifests::{replicated, separate};
use crate::story::Scene;
use crate::{kubectl, wait};

/// The pool of brokers.
pub const BROKERS: &str = "brokers";
/// The pool of controllers.
pub const CONTROLLERS: &str = "controllers";
/// How often the operator is killed: it works for some seconds, and is rarely done.
const KILLING: Duration = Duration::from_secs(5);
/// How often Kafka's tools are asked when there is nothing to watch.
const ASKING: Duration = Duration::from_secs(2);

/// Changes the number of controllers: three, or five.
pub async fn scale_controllers(cluster: &Cluster<'_>, replicas: usize) -> Result<()> {
    cluster.scene.step(format!("scaling the controllers to {replicas}"));
    cluster.edit_pool(CONTROLLERS, &json!({ "replicas": replicas })).await?;
    let pools = cluster.scene.api::<KafkaNodePool>();
    let ids = wait::until_one(pools, CONTROLLERS, "the ids of its nodes", STARTING, |pool| {
        let ids = pool?.status.as_ref()?.node_ids.clone()?;
        (ids.len() == replicas).then_some(ids)
    })
    .await?;
    cluster.until_voters(&ids).await?;
    cluster.until_pods_ready(3 + replicas).await?;
    cluster.until_ready().await.map(drop)
}

/// The disk under which a node votes.
pub async fn directory(cluster: &Cluster<'_>, node: i32) -> Result<String> {
    let status = cluster.until_ready().await?;
    let voters = status.quorum.and_then(|quorum| quorum.voters).unwrap_or_default();
    let voter = voters.into_iter().find(|voter| voter.id == Some(node));
    voter.and_then(|voter| voter.directory_id).with_context(|| format!("{node} does not vote"))
}

/// Takes the disk of controller 4 away.
pub async fn replace_disk(cluster: &Cluster<'_>) -> Result<()> {
    let scene = cluster.scene;
    scene.step("deleting the pod and the claim of a controller");
    let before = directory(cluster, 4).await?;
    let wish = ["live-controllers-4", "strimzi.io/delete-pod-and-pvc=true"];
    kubectl::run(&[&["annotate", "--namespace", &scene.namespace, "pod"], &wish[..]].concat()).await?;
    cluster
        .until_status("controller 4 votes with another disk", STARTING, |_, status| {
            let voters = status.quorum.as_ref()?.voters.as_ref()?;
            let disks: Vec<_> = voters.iter().filter(|voter| voter.id == Some(4)).collect();
            let is_new = matches!(disks.as_slice(), [one] if one.directory_id.as_ref() != Some(&before));
            (is_new && voters.len() == 3).then_some(())
        })
        .await?;
    cluster.until_pods_ready(6).await?;
    cluster.until_ready().await.map(drop)
}

/// Adds a broker, and takes it away again. No partition may live there.
pub async fn add_and_remove_a_broker(cluster: &Cluster<'_>, tools: &ConsoleTools<'_>) -> Result<()> {
    cluster.scene.step("adding a fourth broker");
    cluster.edit_pool(BROKERS, &json!({ "replicas": 4 })).await?;
    cluster.until_pods_ready(7).await?;
    cluster.until_ready().await?;
    cluster.scene.step("taking it away again");
    cluster.edit_pool(BROKERS, &json!({ "replicas": 3 })).await?;
    cluster.until_pods_ready(6).await?;
    until_registered(tools, &[0, 1, 2]).await?;
    cluster.until_ready().await.map(drop)
}

/// Waits until Kafka's own tools know these brokers and no others, those that do not serve included.
pub async fn until_registered(tools: &ConsoleTools<'_>, brokers: &[i32]) -> Result<()> {
    let until = Instant::now() + STARTING;
    loop {
        let known = tools.brokers().await?;
        if known == brokers {
            return Ok(());
        }
        ensure!(Instant::now() < until, "registered are {known:?}, and not {brokers:?}");
        sleep(ASKING).await;
    }
}

/// Restarts all brokers, one after the other, because somebody asked for it.
pub async fn roll_brokers(cluster: &Cluster<'_>) -> Result<()> {
    let scene = cluster.scene;
    scene.step("restarting the brokers");
    let before = cluster.pod_uids().await?;
    let wish = Patch::Merge(
        json!({ "metadata": { "annotations": { "strimzi.io/manual-rolling-update": "true" } } }),
    );
    let set = format!("{}-{BROKERS}", cluster.name);
    scene.api::<StrimziPodSet>().patch(&set, &PatchParams::default(), &wish).await?;
    // One after the other.
    let limit = 3 * STARTING;
    wait::until(scene.api::<Pod>(), cluster.watched(), "other brokers, all ready", limit, |pods| {
        let is_new =
            |(name, uid): (&String, &String)| !name.contains(BROKERS) || before.get(name) != Some(uid);
        (uids(pods).iter().all(is_new) && pods.values().all(is_pod_ready) && pods.len() == before.len())
            .then_some(())
    })
    .await?;
    cluster.until_ready().await.map(drop)
}

/// Fails when a pod that was there before, and is there still, is another one, unless it is named in `but`.
pub fn only_changed(
    before: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
    but: &BTreeSet<String>,
) -> Result<()> {
    let is_other = |(name, uid): &(&String, &String)| {
        !but.contains(*name) && now.get(*name).is_some_and(|other| other != *uid)
    };
    let others: Vec<_> = before.iter().filter(is_other).map(|(name, _)| name).collect();
    ensure!(others.is_empty(), "pods restarted, though nothing of them changed: {others:?}");
    Ok(())
}

/// Fails unless Kafka's own tools say what the status says, and this many nodes vote.
pub async fn kafka_agrees(cluster: &Cluster<'_>, tools: &ConsoleTools<'_>, voters: usize) -> Result<()> {
    cluster.scene.step("asking Kafka's own tools");
    let status = cluster.until_ready().await?;
    let told = status.quorum.and_then(|quorum| quorum.voters).unwrap_or_default();
    let told: Vec<_> = told.into_iter().map(|voter| (voter.id, voter.directory_id)).collect();
    let known = tools.voters().await?;
    let known: Vec<_> = known.into_iter().map(|voter| (Some(voter.id), voter.directory_id)).collect();
    ensure!(told == known, "the status says {told:?}, Kafka says {known:?}");
    ensure!(known.len() == voters, "{} nodes vote, and {voters} should: {known:?}", known.len());
    Ok(())
}

/// Everything that the plots have, round after round for this long, and at least once, under load, while the operator is
/// killed every few seconds.
pub async fn kill_for(scene: &Scene, length: Duration) -> Result<()> {
    let cluster = Cluster::create_ready(scene, &replicated("live"), &separate("live")).await?;
    let bootstrap = cluster.bootstrap().await?;
    let tools = ConsoleTools::new(scene, "live-brokers-0", &bootstrap);
    let keeper = Keeper::take_over(&cluster, Mischief::OperatorDiesEvery(KILLING)).await?;
    let until = Instant::now() + length;
    let mut rounds = 0;
    while rounds == 0 || Instant::now() < until {
        rounds += 1;
        under_load(scene, &bootstrap, async || {
            let before = cluster.pod_uids().await?;
            scale_controllers(&cluster, 5).await?;
            scale_controllers(&cluster, 3).await?;
            replace_disk(&cluster).await?;
            only_changed(&before, &cluster.pod_uids().await?, &["live-controllers-4".to_owned()].into())?;
            roll_brokers(&cluster).await
        })
        .await?;
        under_records(scene, &bootstrap, async || {
            let before = cluster.pod_uids().await?;
            add_and_remove_a_broker(&cluster, &tools).await?;
            only_changed(&before, &cluster.pod_uids().await?, &BTreeSet::new())
        })
        .await?;
    }
    let record = keeper.record();
    scene.step(format!("{rounds} rounds, {} lives of the operator", record.lives));
    kafka_agrees(&cluster, &tools, 3).await?;
    until_registered(&tools, &[0, 1, 2]).await?;
    keeper.end(scene).await.map(drop)
}
