//! Restarts under load: from a change of settings, by hand, and with mistakes in the spec.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use karst_api::KafkaNodePool;
use karst_e2e::cluster::{Cluster, STARTING, condition, warnings};
use karst_e2e::kafka_tools::{ConsoleTools, Kcat};
use karst_e2e::load::under_load;
use karst_e2e::manifests::{pool, pool_with_claims, replicated};
use karst_e2e::story::{Scene, story};
use karst_e2e::{kubectl, wait};
use kube::api::DeleteParams;
use serde_json::json;

const PODS: [&str; 3] = ["live-both-0", "live-both-1", "live-both-2"];

#[tokio::test]
async fn pods_restart_one_at_a_time_under_load_and_mistakes_hurt_one_node() -> Result<()> {
    story("rolling", Duration::from_secs(480), async |scene| {
        let cluster = create(scene).await?;
        let bootstrap = cluster.bootstrap().await?;
        under_load(scene, &bootstrap, async || {
            change_settings(&cluster).await?;
            restart_by_hand(&cluster).await?;
            make_mistakes(&cluster).await
        })
        .await?;
        hold_at_minimum(&cluster, &bootstrap).await
    })
    .await
}

async fn create(scene: &Scene) -> Result<Cluster<'_>> {
    let both = pool_with_claims("live", "both", &["controller", "broker"], 3);
    Cluster::create_ready(scene, &replicated("live"), &[both]).await
}

/// All pods are others than before, and the cluster was ready all the time.
async fn change_settings(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("changing a setting");
    let before = cluster.pod_uids().await?;
    cluster.edit(&json!({ "config": { "log.retention.hours": 24 } })).await?;
    let ready = cluster
        .until_status("the new generation, without ever being not ready", STARTING, |kafka, status| {
            let ready = condition(status, "Ready").and_then(|ready| ready.status.clone());
            let done = status.observed_generation == kafka.metadata.generation;
            (done || ready.as_deref() != Some("True")).then_some(ready)
        })
        .await?;
    ensure!(ready.as_deref() == Some("True"), "a planned restart made it not ready");
    let after = cluster.pod_uids().await?;
    ensure!(
        before.iter().all(|(pod, uid)| after.get(pod).is_some_and(|new| new != uid)),
        "{before:?} {after:?}"
    );
    Ok(())
}

async fn restart_by_hand(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("asking for a restart of one pod");
    let before = cluster.pod_uids().await?;
    let wish = ["pod", PODS[1], "strimzi.io/manual-rolling-update=true"];
    kubectl::run(&[&["annotate", "--namespace", &cluster.scene.namespace], &wish[..]].concat()).await?;
    until_replaced(cluster, PODS[1], &before[PODS[1]]).await?;
    cluster.until_pods_ready(3).await?;
    let after = cluster.pod_uids().await?;
    ensure!(before[PODS[0]] == after[PODS[0]] && before[PODS[2]] == after[PODS[2]], "others restarted too");
    Ok(())
}

async fn until_replaced(cluster: &Cluster<'_>, pod: &str, uid: &str) -> Result<()> {
    let what = format!("another pod {pod}");
    wait::until_one(cluster.scene.api::<Pod>(), pod, &what, STARTING, |found| {
        (found?.metadata.uid.as_deref()? != uid).then_some(())
    })
    .await
}

/// An image that does not exist, and a setting that Kafka refuses: one node is hurt, and the right spec heals it.
async fn make_mistakes(cluster: &Cluster<'_>) -> Result<()> {
    let mistakes = [
        (json!({ "image": "docker.io/apache/kafka:no-such-tag" }), json!({ "image": null }), "image"),
        (
            // Only Kafka itself knows that this does not go with its other settings.
            json!({ "config": { "replica.fetch.wait.max.ms": 60_000 } }),
            json!({ "config": { "replica.fetch.wait.max.ms": null } }),
            "replica.fetch.wait.max.ms",
        ),
    ];
    for (wrong, right, word) in mistakes {
        cluster.scene.step(format!("making a mistake in {word}"));
        let before = cluster.pod_uids().await?;
        cluster.edit(&wrong).await?;
        cluster
            .until_status("a roll that stopped at one pod, and why", STARTING, |_, status| {
                let stopped = status.conditions.iter().flatten().any(|condition| {
                    condition.reason.as_deref() == Some("RollingUpdateStopped")
                        && condition.message.as_ref().is_some_and(|message| message.contains(word))
                });
                stopped.then_some(())
            })
            .await?;
        let after = cluster.pod_uids().await?;
        let hurt = before.iter().filter(|(pod, uid)| after.get(*pod) != Some(uid)).count();
        ensure!(hurt == 1, "{hurt} nodes were restarted by a mistake");

        cluster.scene.step("correcting it");
        cluster.edit(&right).await?;
        cluster.until_ready().await?;
    }
    Ok(())
}

/// A partition of three replicas lost the broker of one for good, and is at its minimum: the brokers of the other two stay as
/// they are, until it has a third again.
async fn hold_at_minimum(cluster: &Cluster<'_>, bootstrap: &str) -> Result<()> {
    let scene = cluster.scene;
    scene.step("taking a replica away for good, so that a partition is at its minimum");
    cluster.create_pools(&[pool("live", "extra", &["broker"], 1)]).await?;
    cluster.until_pods_ready(4).await?;
    let tools = ConsoleTools::new(scene, PODS[0], bootstrap);
    tools.create_topic_on("tight", "0:1:3").await?;
    Kcat::new(bootstrap).produce("tight", &["record"]).await?;
    skip_checks(cluster, Some("true")).await?;
    let pools = scene.api::<KafkaNodePool>();
    pools.delete("extra", &DeleteParams::default()).await?;
    wait::until_one(pools, "extra", "the end of pool extra", STARTING, |found| found.is_none().then_some(()))
        .await?;
    skip_checks(cluster, None).await?;
    cluster.until_ready().await?;

    scene.step("changing a setting: only the broker without the partition restarts");
    let before = cluster.pod_uids().await?;
    cluster.edit(&json!({ "config": { "log.retention.hours": 12 } })).await?;
    until_replaced(cluster, PODS[2], &before[PODS[2]]).await?;
    cluster
        .until_status("brokers 0 and 1 held because of tight-0", STARTING, |_, status| {
            let said = warnings(status.conditions.as_ref());
            let held = |broker: &str| {
                said.iter().any(|warning| warning.contains(broker) && warning.contains("tight-0"))
            };
            (held("broker 0") && held("broker 1")).then_some(())
        })
        .await?;
    let after = cluster.pod_uids().await?;
    ensure!(
        before[PODS[0]] == after[PODS[0]] && before[PODS[1]] == after[PODS[1]],
        "a held broker restarted"
    );

    scene.step("giving the partition its third replica back");
    tools.reassign(&[("tight", &[0, 1, 2])]).await?;
    cluster.until_ready().await.map(drop)
}

async fn skip_checks(cluster: &Cluster<'_>, skip: Option<&str>) -> Result<()> {
    cluster.annotate("strimzi.io/skip-broker-scaledown-check", skip).await
}
