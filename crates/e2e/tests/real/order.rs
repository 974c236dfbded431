//! Resources arrive in any order. Only the nodes' pods are made here, not their JVMs: what is made is the point.

use std::time::Duration;

use anyhow::{Result, ensure};
use karst_api::{Kafka, KafkaNodePool};
use karst_e2e::cluster::{ACTING, Cluster};
use karst_e2e::kubectl;
use karst_e2e::manifests::{claims, kafka, paper_pool, typed_kafka};
use karst_e2e::snapshot;
use karst_e2e::story::story;
use karst_e2e::wait;
use serde_json::{Value, json};

fn pools(cluster: &str) -> Vec<Value> {
    let mut brokers = paper_pool(cluster, &format!("{cluster}-brokers"), &["broker"], 2);
    brokers["spec"]["storage"] = claims(true);
    vec![paper_pool(cluster, &format!("{cluster}-controllers"), &["controller"], 3), brokers]
}

#[tokio::test]
async fn the_same_cluster_comes_of_kafka_first_and_of_pools_first() -> Result<()> {
    story("order", Duration::from_secs(240), async |scene| {
        scene.step("Kafka first");
        let first = Cluster::named(scene, "kafka-first");
        first.create_kafka(&typed_kafka(&kafka("kafka-first"))?).await?;
        first.until_not_ready("PoolsMissing", "strimzi.io/cluster=kafka-first").await?;
        let status = scene.api::<Kafka>().get("kafka-first").await?.status.unwrap_or_default();
        ensure!(status.cluster_id.is_none(), "a cluster without nodes has an id already");

        scene.step("one pool, and then the other");
        let (controllers, brokers) = (pools("kafka-first").remove(0), pools("kafka-first").remove(1));
        first.create_pools(&[controllers]).await?;
        first.until_not_ready("PoolsMissing", "no pool with the role broker").await?;
        first.create_pools(&[brokers]).await?;
        first.until_pods(5).await?;

        scene.step("pools first");
        let second = Cluster::named(scene, "pools-first");
        second.create_pools(&pools("pools-first")).await?;
        for pool in ["pools-first-controllers", "pools-first-brokers"] {
            let what = format!("pool {pool} to miss its Kafka");
            wait::until_one(scene.api::<KafkaNodePool>(), pool, &what, ACTING, |pool| {
                let conditions = pool?.status.as_ref()?.conditions.as_ref()?;
                conditions.iter().find(|c| c.reason.as_deref() == Some("KafkaMissing")).map(drop)
            })
            .await?;
        }
        second.create_kafka(&typed_kafka(&kafka("pools-first"))?).await?;
        second.until_pods(5).await?;

        scene.step("in the earlier version of the API");
        let third = Cluster::named(scene, "v1beta2");
        let mut earlier = kafka("v1beta2");
        earlier["metadata"]["annotations"] =
            json!({ "strimzi.io/node-pools": "enabled", "strimzi.io/kraft": "enabled" });
        for object in pools("v1beta2").iter_mut().chain([&mut earlier]) {
            object["apiVersion"] = json!("kafka.strimzi.io/v1beta2");
            kubectl::apply(&scene.namespace, &object.to_string()).await?;
        }
        third.until_pods(5).await?;

        scene.step("comparing them");
        let expected = snapshot::take(&first).await?;
        assert_eq!(snapshot::take(&second).await?, expected);
        assert_eq!(snapshot::take(&third).await?, expected);
        Ok(())
    })
    .await
}
