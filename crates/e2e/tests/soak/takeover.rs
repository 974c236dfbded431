//! A cluster that an earlier Karst made, with the resource definitions and the rights of its time, taken over by this one under load.
//! `cargo xtask soak takeover --from COMMIT` says which.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use karst_e2e::audit::Audit;
use karst_e2e::cluster::{Cluster, STARTING};
use karst_e2e::load::under_load;
use karst_e2e::manifests::{replicated, separate};
use karst_e2e::operator::Operator;
use karst_e2e::snapshot::Facts;
use karst_e2e::story::{Scene, story};
use karst_e2e::{kubectl, wait};
use kube::ResourceExt;
use kube::runtime::watcher::Config;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// The image that today's manifests name, and the one that has the earlier programs.
const IMAGE: &str = concat!("docker.io/karst/operator:", env!("CARGO_PKG_VERSION"));
const EARLIER_IMAGE: &str = "docker.io/karst/operator:earlier";
const NODES: usize = 6;
/// A cluster is taken over when the operator has nothing more to do for so long.
const CALM: Duration = Duration::from_secs(20);
/// Time for six restarts, should there be a reason for them.
const TAKING_OVER: Duration = Duration::from_secs(600);

#[tokio::test]
async fn takeover_of_a_cluster_that_an_earlier_karst_made() -> Result<()> {
    story("takeover", Duration::from_secs(1800), async |scene| {
        let earlier = std::env::var_os("KARST_EARLIER").map(PathBuf::from);
        let earlier = earlier.context("KARST_EARLIER does not say where an earlier Karst is")?;
        let told = tell(scene, &earlier).await;
        // However it went, the next story finds the operator of today.
        install(scene, &today(), IMAGE, IMAGE).await.and(told)
    })
    .await
}

async fn tell(scene: &Scene, earlier: &Path) -> Result<()> {
    scene.step("installing the earlier operator");
    install(scene, earlier, EARLIER_IMAGE, EARLIER_IMAGE).await?;
    let cluster = Cluster::create_ready(scene, &replicated("old"), &separate("old")).await?;
    Audit::until_calm(CALM, TAKING_OVER).await?;
    let facts = Facts::of(&cluster).await?;
    let bootstrap = cluster.bootstrap().await?;
    under_load(scene, &bootstrap, async || Box::pin(replace_operator_then_launcher(&cluster)).await).await?;
    ensure!(Facts::of(&cluster).await? == facts, "the cluster is no longer who it was");
    scene.step("a change of today, done by the operator of today");
    cluster.edit_pool("brokers", &json!({ "replicas": 4 })).await?;
    cluster.until_pods_ready(NODES + 1).await
}

/// The operator alone first: pods keep their launcher, and have no reason to restart.
async fn replace_operator_then_launcher(cluster: &Cluster<'_>) -> Result<()> {
    let restarts = during(cluster, Box::pin(take_over(cluster, IMAGE, EARLIER_IMAGE))).await?;
    ensure!(restarts.is_empty(), "the new operator alone restarted {restarts:?}");
    let restarts = during(cluster, Box::pin(take_over(cluster, IMAGE, IMAGE))).await?;
    cluster.scene.step(format!("restarted for the new launcher: {restarts:?}"));
    let is_once = restarts.len() == NODES && restarts.values().all(|count| *count == 1);
    ensure!(is_once, "not each node restarted once for the new launcher: {restarts:?}");
    Ok(())
}

/// The manifests of this checkout.
fn today() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// Installs the operator with the manifests that are in `place`.
async fn install(scene: &Scene, place: &Path, operator: &str, launcher: &str) -> Result<()> {
    for directory in ["crds", "install"] {
        let place = place.join(directory);
        let files = std::fs::read_dir(&place).with_context(|| format!("reading {}", place.display()))?;
        let mut files = files.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
        files.sort();
        for file in files {
            let manifest = with_images(&std::fs::read_to_string(&file)?, operator, launcher);
            kubectl::feed(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &manifest).await?;
        }
    }
    until_rolled_out(scene, operator, launcher).await
}

/// The manifests with other images: of the operator, and of the launcher in its pods.
fn with_images(manifest: &str, operator: &str, launcher: &str) -> String {
    let lines = manifest.lines().map(|line| {
        let image = if line.trim_start().starts_with("image:") { operator } else { launcher };
        line.replace(IMAGE, image) + "\n"
    });
    lines.collect()
}

/// Waits until exactly one pod of the operator runs, with these images.
async fn until_rolled_out(scene: &Scene, operator: &str, launcher: &str) -> Result<()> {
    let rollout = ["rollout", "status", "deployment/karst-operator", "--namespace=karst-system"];
    kubectl::run(&rollout).await?;
    let installed = Operator::installed(&scene.client);
    installed.until_replicas(1).await?;
    let leader = installed.until_led(None).await?;
    let container = leader.spec.as_ref().and_then(|spec| spec.containers.first());
    let container = container.context("the operator has no container")?;
    ensure!(container.image.as_deref() == Some(operator), "{:?} leads, not {operator}", container.image);
    let variables = container.env.iter().flatten();
    let node_image = variables.filter(|variable| variable.name == "KARST_NODE_IMAGE");
    let node_image: Vec<_> = node_image.filter_map(|variable| variable.value.as_deref()).collect();
    ensure!(node_image == [launcher], "the launcher comes from {node_image:?}, not {launcher}");
    Ok(())
}

/// Replaces the operator, and waits until it has nothing more to do.
async fn take_over(cluster: &Cluster<'_>, operator: &str, launcher: &str) -> Result<()> {
    let scene = cluster.scene;
    scene.step(format!("installing {operator}, with the launcher of {launcher}"));
    let audit = Audit::from_now()?;
    install(scene, &today(), operator, launcher).await?;
    Audit::until_calm(CALM, TAKING_OVER).await?;
    cluster.until_ready().await?;
    let writes = audit.of_operator()?.into_iter().filter(|request| {
        !request.is_about_the_lease() && !["get", "list", "watch"].contains(&request.verb.as_str())
    });
    let of_cluster = writes.filter(|write| write.uri.contains(&scene.namespace));
    let mut written: BTreeMap<String, usize> = BTreeMap::new();
    for write in of_cluster {
        let path = write.uri.split('?').next().unwrap_or_default();
        let object = path.rsplit_once(&format!("{}/", scene.namespace)).map_or(path, |(_, object)| object);
        *written.entry(format!("{} {object}", write.verb)).or_default() += 1;
    }
    scene.step(format!("it wrote: {written:?}"));
    Ok(())
}

/// Which pods came anew while something happened, and how often each did.
async fn during(
    cluster: &Cluster<'_>,
    what: impl Future<Output = Result<()>>,
) -> Result<BTreeMap<String, usize>> {
    let before = cluster.pod_uids().await?;
    ensure!(before.len() == NODES, "there are not {NODES} pods: {before:?}");
    let done = CancellationToken::new();
    let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let (watched, result) = tokio::join!(
        async {
            let pods = wait::until(
                cluster.scene.api::<Pod>(),
                Config::default().labels(&cluster.selector()),
                "the end of a take-over",
                TAKING_OVER + STARTING,
                |pods| {
                    for pod in pods.values() {
                        seen.entry(pod.name_any()).or_default().insert(pod.uid().unwrap_or_default());
                    }
                    None::<()>
                },
            );
            done.run_until_cancelled(pods).await.transpose()
        },
        async {
            let result = what.await;
            done.cancel();
            result
        }
    );
    result.and(watched.map(drop))?;
    ensure!(!seen.is_empty(), "no pod was ever seen");
    let restarts = seen.into_iter().map(|(name, mut uids)| {
        let first = before.get(&name).map(String::as_str).unwrap_or_default();
        uids.remove(first);
        (name, uids.len())
    });
    Ok(restarts.filter(|(_, count)| *count > 0).collect())
}
