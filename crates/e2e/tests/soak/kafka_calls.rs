//! At every call by which the operator changes something in Kafka, before Kafka gets it and again after Kafka has carried it out,
//! the operator is killed, or the leader of the controllers is, or the operator is cut off from Kafka for a while.
//! Under load; nothing is lost, and the end is the one that was asked for.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use karst_e2e::cluster::{Cluster, STARTING};
use karst_e2e::kafka_tools::ConsoleTools;
use karst_e2e::keeper::{Keeper, Mischief};
use karst_e2e::load::{under_load, under_records};
use karst_e2e::manifests::{replicated, separate};
use karst_e2e::plots;
use karst_e2e::story::{Scene, story};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::static_quorum;

/// Longer than the operator needs to see that Kafka does not answer, and to say so.
const SILENCE: Mischief = Mischief::Silence(Duration::from_secs(10));
const LIMIT: Duration = Duration::from_secs(2400);

#[tokio::test]
async fn kafka_calls_at_each_of_which_the_operator_dies() -> Result<()> {
    story("calls-operator", LIMIT, async |scene| live_through(scene, Mischief::OperatorDies).await).await
}

#[tokio::test]
async fn kafka_calls_at_each_of_which_the_leader_dies() -> Result<()> {
    story("calls-leader", LIMIT, async |scene| live_through(scene, Mischief::LeaderDies).await).await
}

#[tokio::test]
async fn kafka_calls_at_each_of_which_the_operator_is_cut_off() -> Result<()> {
    story("calls-silence", LIMIT, async |scene| live_through(scene, SILENCE).await).await
}

#[tokio::test]
async fn kafka_calls_of_a_migration_at_each_of_which_the_operator_dies() -> Result<()> {
    story("moves-operator", LIMIT, async |scene| migrate(scene, Mischief::OperatorDies).await).await
}

#[tokio::test]
async fn kafka_calls_of_a_migration_at_each_of_which_the_leader_dies() -> Result<()> {
    story("moves-leader", LIMIT, async |scene| migrate(scene, Mischief::LeaderDies).await).await
}

#[tokio::test]
async fn kafka_calls_of_a_migration_at_each_of_which_the_operator_is_cut_off() -> Result<()> {
    story("moves-silence", LIMIT, async |scene| migrate(scene, SILENCE).await).await
}

/// What a part of the story must have met, and which pods it changes by itself.
struct Part<'a> {
    calls: &'a [(&'a str, usize)],
    changes: &'a [&'a str],
}

async fn live_through(scene: &Scene, mischief: Mischief) -> Result<()> {
    let mut kafka = replicated("live");
    // There is a step left for the metadata.
    kafka["spec"]["kafka"]["metadataVersion"] = json!("4.0");
    let cluster = Cluster::create_ready(scene, &kafka, &separate("live")).await?;
    let bootstrap = cluster.bootstrap().await?;
    let tools = ConsoleTools::new(scene, "live-brokers-0", &bootstrap);
    let keeper = Keeper::take_over(&cluster, mischief).await?;
    under_load(scene, &bootstrap, async || {
        let same = |calls| Part { calls, changes: &[] };
        let part = same(&[("AddRaftVoter", 2)]);
        told(&cluster, &keeper, part, async || plots::scale_controllers(&cluster, 5).await).await?;
        let part = same(&[("RemoveRaftVoter", 2)]);
        told(&cluster, &keeper, part, async || plots::scale_controllers(&cluster, 3).await).await?;
        let part =
            Part { calls: &[("RemoveRaftVoter", 1), ("AddRaftVoter", 1)], changes: &["live-controllers-4"] };
        told(&cluster, &keeper, part, async || plots::replace_disk(&cluster).await).await?;
        let part = same(&[("UpdateFeatures", 1)]);
        told(&cluster, &keeper, part, async || raise_metadata(&cluster).await).await?;
        let part = same(&[("IncrementalAlterConfigs", 1)]);
        told(&cluster, &keeper, part, async || change_a_setting(&cluster, &tools).await).await
    })
    .await?;
    under_records(scene, &bootstrap, async || {
        let part = Part { calls: &[("UnregisterBroker", 1)], changes: &[] };
        told(&cluster, &keeper, part, async || plots::add_and_remove_a_broker(&cluster, &tools).await).await
    })
    .await?;
    plots::kafka_agrees(&cluster, &tools, 3).await?;
    keeper.end(scene).await.map(drop)
}

/// Tells a part, and looks whether it met what it should, and left alone what it should.
async fn told(
    cluster: &Cluster<'_>,
    keeper: &Keeper,
    part: Part<'_>,
    tell: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    keeper.begin_anew();
    let before = cluster.pod_uids().await?;
    tell().await?;
    // What was asked for may be there while the mischief of the last call goes on.
    keeper.at_rest().await;
    cluster.until_ready().await?;
    let record = keeper.record();
    for (api, calls) in part.calls {
        ensure!(record.met(api) >= *calls, "{calls} times {api} should have been met: {:?}", record.moments);
    }
    let mut changed: BTreeSet<String> = part.changes.iter().map(ToString::to_string).collect();
    changed.extend(record.killed);
    plots::only_changed(&before, &cluster.pod_uids().await?, &changed)
}

async fn raise_metadata(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("raising the metadata version");
    cluster.edit(&json!({ "metadataVersion": null })).await?;
    cluster
        .until_status("metadata of 4.1", STARTING, |_, status| {
            status.kafka_metadata_version.as_ref()?.starts_with("4.1").then_some(())
        })
        .await?;
    cluster.until_ready().await.map(drop)
}

async fn change_a_setting(cluster: &Cluster<'_>, tools: &ConsoleTools<'_>) -> Result<()> {
    cluster.scene.step("changing a setting that nodes take while they run");
    cluster.edit(&json!({ "config": { "log.retention.ms": 7_200_000 } })).await?;
    let until = Instant::now() + STARTING;
    while tools.broker_setting(0, "log.retention.ms").await? != "7200000" {
        ensure!(Instant::now() < until, "the broker does not take it");
        sleep(Duration::from_secs(1)).await;
    }
    cluster.until_ready().await.map(drop)
}

async fn migrate(scene: &Scene, mischief: Mischief) -> Result<()> {
    let cluster = static_quorum::create(scene).await?;
    let bootstrap = cluster.bootstrap().await?;
    let keeper = Keeper::take_over(&cluster, mischief).await?;
    under_load(scene, &bootstrap, async || static_quorum::migrate(&cluster).await).await?;
    keeper.at_rest().await;
    let record = keeper.record();
    ensure!(record.met("UpdateFeatures") == 1, "the change of the quorum was not met: {:?}", record.moments);
    let tools = ConsoleTools::new(scene, "live-both-0", &bootstrap);
    plots::kafka_agrees(&cluster, &tools, 3).await?;
    keeper.end(scene).await.map(drop)
}
