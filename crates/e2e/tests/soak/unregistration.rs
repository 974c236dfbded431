//! Brokers that go are forgotten by Kafka too: one that is scaled away, those of a pool that is deleted, and nodes that stay as
//! controllers. The operator is killed, or cut off from Kafka, or refused by it, at every step.

use std::time::Duration;

use anyhow::{Result, ensure};
use karst_api::KafkaNodePool;
use karst_e2e::cluster::{Cluster, STARTING};
use karst_e2e::kafka_tools::ConsoleTools;
use karst_e2e::keeper::{Keeper, Mischief};
use karst_e2e::load::{BUSY, under_records};
use karst_e2e::manifests::{OLD_VERSION, pool_with_claims, replicated};
use karst_e2e::plots::{BROKERS, kafka_agrees, until_registered};
use karst_e2e::story::{Scene, story};
use karst_e2e::wait;
use kube::api::DeleteParams;
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(1200);

#[tokio::test]
async fn unregistration_at_each_step_of_which_the_operator_dies() -> Result<()> {
    story("gone-operator", LIMIT, async |scene| brokers_go(scene, Mischief::OperatorDies).await).await
}

#[tokio::test]
async fn unregistration_at_each_step_of_which_the_operator_is_cut_off() -> Result<()> {
    let silence = Mischief::Silence(Duration::from_secs(20));
    story("gone-silence", LIMIT, async |scene| brokers_go(scene, silence).await).await
}

#[tokio::test]
async fn unregistration_that_kafka_refuses_is_told_and_tried_again() -> Result<()> {
    story("gone-refused", LIMIT, async |scene| brokers_go(scene, Mischief::Refusal).await).await
}

/// Kafka 3.9 does not tell which brokers are registered and do not serve, so the status keeps a list of them.
#[tokio::test]
async fn unregistration_on_kafka_3_9_while_the_operator_dies_at_each_step_and_its_end_with_the_upgrade()
-> Result<()> {
    story("gone-old", LIMIT, async |scene| {
        let mut kafka = replicated("live");
        kafka["spec"]["kafka"]["version"] = json!(OLD_VERSION);
        let pools = [
            pool_with_claims("live", BROKERS, &["broker"], 4),
            pool_with_claims("live", "controllers", &["controller"], 1),
        ];
        let cluster = Cluster::create_ready(scene, &kafka, &pools).await?;
        let bootstrap = cluster.bootstrap().await?;
        let tools = ConsoleTools::new(scene, "live-brokers-0", &bootstrap);
        until_listed(&cluster, Some(&[0, 1, 2, 3])).await?;
        tools.create_topic_on(BUSY, "0:1:2").await?;
        let keeper = Keeper::take_over(&cluster, Mischief::OperatorDies).await?;
        under_records(scene, &bootstrap, async || {
            scene.step("scaling the brokers from four to three");
            cluster.edit_pool(BROKERS, &json!({ "replicas": 3 })).await?;
            until_listed(&cluster, Some(&[0, 1, 2])).await?;
            cluster.until_pods_ready(4).await
        })
        .await?;
        keeper.at_rest().await;
        let record = keeper.end(scene).await?;
        ensure!(record.met("UnregisterBroker") == 1, "one broker went: {:?}", record.moments);
        scene.step("asking Kafka's own tool to unregister it once more");
        let again = tools.unregister(3).await.unwrap_or_else(|error| format!("{error:#}"));
        ensure!(again.contains("BrokerIdNotRegistered"), "it should not be known any more: {again}");

        scene.step("upgrading to 4.0.2");
        cluster.edit(&json!({ "version": "4.0.2" })).await?;
        until_listed(&cluster, None).await?;
        cluster.until_ready().await?;
        until_registered(&tools, &[0, 1, 2]).await
    })
    .await
}

/// Waits until the status lists these brokers as those that may be registered.
async fn until_listed(cluster: &Cluster<'_>, brokers: Option<&[i32]>) -> Result<()> {
    let what = format!("registeredNodeIds {brokers:?}");
    cluster
        .until_status(&what, STARTING, |_, status| {
            (status.registered_node_ids.as_deref() == brokers).then_some(())
        })
        .await
}

/// Nodes 0 to 3 are brokers, 4 and 5 too, and 6 to 8 are brokers and controllers.
async fn brokers_go(scene: &Scene, mischief: Mischief) -> Result<()> {
    let pools = [
        pool_with_claims("live", BROKERS, &["broker"], 4),
        pool_with_claims("live", "extra", &["broker"], 2),
        pool_with_claims("live", "mixed", &["controller", "broker"], 3),
    ];
    let cluster = Cluster::create_ready(scene, &replicated("live"), &pools).await?;
    let bootstrap = cluster.bootstrap().await?;
    let tools = ConsoleTools::new(scene, "live-brokers-0", &bootstrap);
    until_registered(&tools, &[0, 1, 2, 3, 4, 5, 6, 7, 8]).await?;
    tools.create_topic_on(BUSY, "0:1:2").await?;
    let keeper = Keeper::take_over(&cluster, mischief).await?;
    under_records(scene, &bootstrap, async || {
        scene.step("scaling the brokers from four to three");
        cluster.edit_pool(BROKERS, &json!({ "replicas": 3 })).await?;
        cluster.until_pods_ready(8).await?;
        until_registered(&tools, &[0, 1, 2, 4, 5, 6, 7, 8]).await?;
        delete_a_pool(&cluster).await?;
        until_registered(&tools, &[0, 1, 2, 6, 7, 8]).await?;
        scene.step("making nodes that are both controllers only");
        cluster.edit_pool("mixed", &json!({ "roles": ["controller"] })).await?;
        until_registered(&tools, &[0, 1, 2]).await?;
        cluster.until_pods_ready(6).await?;
        cluster.until_ready().await.map(drop)
    })
    .await?;
    keeper.at_rest().await;
    let record = keeper.record();
    ensure!(record.met("UnregisterBroker") == 6, "six brokers went: {:?}", record.moments);
    kafka_agrees(&cluster, &tools, 3).await?;
    keeper.end(scene).await.map(drop)
}

async fn delete_a_pool(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("deleting a pool of two brokers");
    let pools = cluster.scene.api::<KafkaNodePool>();
    pools.delete("extra", &DeleteParams::default()).await?;
    wait::until_one(pools, "extra", "the end of pool extra", STARTING, |pool| pool.is_none().then_some(()))
        .await?;
    cluster.until_pods_ready(6).await
}
