//! Every architecture, storage and line of Kafka comes up and takes a record.

use std::time::Duration;

use anyhow::{Context, Result};
use karst_e2e::cluster::Cluster;
use karst_e2e::kafka_tools::{ConsoleTools, Kcat};
use karst_e2e::manifests::{OLD_VERSION, claims, kafka, pool, typed_kafka};
use karst_e2e::story::story;
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(360);
const BOTH: &[&str] = &["controller", "broker"];

#[tokio::test]
async fn a_combined_node_with_two_volumes_serves_when_its_pool_comes_after_kafka() -> Result<()> {
    story("combined", LIMIT, async |scene| {
        let mut both = pool("small", "both", BOTH, 1);
        both["spec"]["storage"] = json!({ "type": "jbod", "volumes": [
            { "id": 0, "type": "persistent-claim", "size": "1Gi", "deleteClaim": true },
            { "id": 3, "type": "persistent-claim", "size": "1Gi", "deleteClaim": true, "kraftMetadata": "shared" },
        ]});
        let cluster = Cluster::named(scene, "small");
        cluster.create_kafka(&typed_kafka(&kafka("small"))?).await?;
        cluster.until_not_ready("PoolsMissing", "strimzi.io/cluster=small").await?;
        cluster.create_pools(&[both]).await?;
        scene.step("waiting until it is ready");
        cluster.until_ready().await?;
        Kcat::new(&cluster.bootstrap().await?).round_trip("topic", "record").await?;

        scene.step("looking at its disks");
        let place = ["exec", "--namespace", &scene.namespace, "small-both-0", "--container=kafka", "--"];
        let listing = ["ls", "/var/lib/kafka/data-0/kafka-log0", "/var/lib/kafka/data-3/kafka-log0"];
        let listing = karst_e2e::kubectl::run(&[&place[..], &listing].concat()).await?;
        let (first, second) = listing.split_once("/var/lib/kafka/data-3").context("one directory only")?;
        assert!(first.contains("meta.properties") && !first.contains("__cluster_metadata-0"), "{listing}");
        assert!(second.contains("meta.properties") && second.contains("__cluster_metadata-0"), "{listing}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn combined_nodes_with_more_brokers_serve_from_all_of_them() -> Result<()> {
    story("combined-and-brokers", LIMIT, async |scene| {
        let mut more = pool("mixed", "more", &["broker"], 1);
        more["spec"]["storage"] = claims(true);
        let mut kafka = kafka("mixed");
        kafka["spec"]["kafka"]["config"]["default.replication.factor"] = json!(2);
        let cluster = Cluster::create(scene, &kafka, &[pool("mixed", "both", BOTH, 1), more]).await?;
        scene.step("waiting until it is ready");
        cluster.until_ready().await?;
        // With two replicas of every partition, a record that all replicas have acknowledged is on both brokers.
        Kcat::new(&cluster.bootstrap().await?).round_trip("topic", "record").await
    })
    .await
}

#[tokio::test]
async fn kafka_3_9_described_without_pools_has_a_dynamic_quorum_and_serves() -> Result<()> {
    story("old-kafka", LIMIT, async |scene| {
        let nodes = pool("old", "unused", BOTH, 1);
        let mut kafka = kafka("old");
        kafka["spec"]["kafka"]["version"] = json!(OLD_VERSION);
        for field in ["replicas", "storage", "resources"] {
            kafka["spec"]["kafka"][field] = nodes["spec"][field].clone();
        }
        let cluster = Cluster::create(scene, &kafka, &[]).await?;
        scene.step("waiting until it is ready");
        let status = cluster.until_ready().await?;
        assert_eq!(status.kafka_version.as_deref(), Some(OLD_VERSION));
        let bootstrap = cluster.bootstrap().await?;
        Kcat::new(&bootstrap).round_trip("topic", "record").await?;

        scene.step("asking kafka-features");
        let kraft = ConsoleTools::new(scene, "old-kafka-0", &bootstrap).feature("kraft.version").await?;
        assert!(kraft.contains("FinalizedVersionLevel: 1"), "{kraft}");
        Ok(())
    })
    .await
}
