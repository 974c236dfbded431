//! How long things take on a machine with nothing else to do: a restart of all pods takes no longer than the restarts of each, and
//! a controller votes as soon as its pod is ready.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use karst_e2e::cluster::{Cluster, STARTING, is_pod_ready};
use karst_e2e::load::under_load;
use karst_e2e::manifests::{VERSION, replicated, separate};
use karst_e2e::story::story;
use karst_e2e::{kubectl, wait};
use kube::ResourceExt;
use serde_json::json;

/// Time for six nodes to restart, one after the other, and more.
const ROLLING: Duration = Duration::from_secs(600);
/// What all restarts together may take, compared with the sum of each.
const OVERHEAD: f64 = 1.1;
/// How soon a controller votes when its pod is ready.
const JOINING: Duration = Duration::from_secs(1);

#[tokio::test]
async fn restarts_and_new_voters_lose_no_time_under_load() -> Result<()> {
    story("restarts", Duration::from_secs(1800), async |scene| {
        let mut kafka = replicated("live");
        kafka["spec"]["kafka"]["version"] = json!("4.2.1");
        let cluster = Cluster::create_ready(scene, &kafka, &separate("live")).await?;
        let bootstrap = cluster.bootstrap().await?;
        under_load(scene, &bootstrap, async || {
            let setting = json!({ "config": { "log.retention.hours": 24 } });
            roll(&cluster, "a setting", cluster.edit(&setting)).await?;
            cluster.until_ready().await?;
            let image = json!({ "version": VERSION, "metadataVersion": "4.2-IV1" });
            roll(&cluster, "an image", cluster.edit(&image)).await?;
            cluster.until_ready().await?;
            // In the first of two rolls all nodes learn to trust the new key.
            roll(&cluster, "the key of the authority", replace_key(&cluster)).await?;
            until_replaced(&cluster).await?;
            join(&cluster, &[6, 7]).await
        })
        .await
    })
    .await
}

async fn replace_key(cluster: &Cluster<'_>) -> Result<()> {
    let secret = format!("{}-cluster-ca", cluster.name);
    let wish = "strimzi.io/force-replace=true";
    kubectl::run(&["annotate", "--namespace", &cluster.scene.namespace, "secret", &secret, wish])
        .await
        .map(drop)
}

/// Waits for the second roll, after which nothing of the old key is left.
async fn until_replaced(cluster: &Cluster<'_>) -> Result<()> {
    let secret = format!("{}-cluster-ca-cert", cluster.name);
    let what = format!("{secret} without the old certificate");
    wait::until_one(cluster.scene.api::<Secret>(), &secret, &what, ROLLING, |secret| {
        let mut names = secret?.data.as_ref()?.keys();
        (!names.any(|name| name.starts_with("ca-"))).then_some(())
    })
    .await?;
    cluster.until_ready().await.map(drop)
}

/// Changes something for which all pods restart, and compares the time of all with that of each.
async fn roll(cluster: &Cluster<'_>, what: &str, change: impl Future<Output = Result<()>>) -> Result<()> {
    let scene = cluster.scene;
    scene.step(format!("changing {what}"));
    let before = cluster.pod_uids().await?;
    let (mut away, mut back) = (BTreeMap::new(), BTreeMap::new());
    let pods = scene.api::<Pod>();
    let watching = wait::until(pods, cluster.watched(), "other pods, all of them", ROLLING, |pods| {
        for (name, uid) in &before {
            let pod = pods.get(name);
            let is_first = pod.is_some_and(|pod| pod.uid().as_ref() == Some(uid));
            if !is_first || pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some()) {
                away.entry(name.clone()).or_insert_with(Instant::now);
            }
            if !is_first && pod.is_some_and(is_pod_ready) {
                back.entry(name.clone()).or_insert_with(Instant::now);
            }
        }
        (back.len() == before.len()).then_some(())
    });
    let (rolled, changed) = tokio::join!(watching, change);
    changed?;
    rolled?;
    let each: Duration = away.iter().map(|(name, went)| back[name].duration_since(*went)).sum();
    let first = away.values().min().context("no pod restarted")?;
    let last = back.values().max().context("no pod came back")?;
    let all = last.duration_since(*first);
    scene.step(format!("{all:.1?} for {} restarts that took {each:.1?} together", before.len()));
    ensure!(all.as_secs_f64() <= OVERHEAD * each.as_secs_f64(), "{all:?} for restarts that took {each:?}");
    Ok(())
}

/// Adds controllers, and compares the moment at which each is ready with that at which it votes.
async fn join(cluster: &Cluster<'_>, new: &[i32]) -> Result<()> {
    let scene = cluster.scene;
    scene.step("adding controllers");
    let name = |node: &i32| format!("live-controllers-{node}");
    let (mut ready, mut voting) = (BTreeMap::new(), BTreeMap::new());
    let pods = wait::until(scene.api::<Pod>(), cluster.watched(), "ready pods", STARTING, |pods| {
        for node in new.iter().filter(|node| pods.get(&name(node)).is_some_and(is_pod_ready)) {
            ready.entry(*node).or_insert_with(Instant::now);
        }
        (ready.len() == new.len()).then_some(())
    });
    let votes = cluster.until_status("new voters", STARTING, |_, status| {
        let voters = status.quorum.as_ref()?.voter_ids.as_ref()?;
        for node in new.iter().filter(|node| voters.contains(node)) {
            voting.entry(*node).or_insert_with(Instant::now);
        }
        (voting.len() == new.len()).then_some(())
    });
    let more = json!({ "replicas": 3 + new.len() });
    let (pods, votes, scaled) = tokio::join!(pods, votes, cluster.edit_pool("controllers", &more));
    scaled.and(pods).and(votes)?;
    for (node, is_ready) in &ready {
        let took = voting[node].duration_since(*is_ready);
        scene.step(format!("controller {node} votes {took:.2?} after its pod was ready"));
        ensure!(took < JOINING, "controller {node} took {took:?} to vote");
    }
    Ok(())
}
