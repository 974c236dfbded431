//! What another operator made is left alone.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use karst_api::{KafkaNodePool, StrimziPodSet};
use karst_e2e::audit::Audit;
use karst_e2e::cluster::Cluster;
use karst_e2e::manifests::{kafka, paper_pool, typed_pool};
use karst_e2e::story::story;
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::json;

#[tokio::test]
async fn a_cluster_of_another_operator_is_not_touched() -> Result<()> {
    story("other-operator", Duration::from_secs(180), async |scene| {
        let labels = json!({
            "strimzi.io/cluster": "theirs", "strimzi.io/kind": "Kafka", "strimzi.io/name": "theirs-kafka",
            "strimzi.io/pool-name": "nodes", "app.kubernetes.io/managed-by": "strimzi-cluster-operator",
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "theirs-nodes-0", "labels": labels },
            "spec": { "containers": [{ "name": "kafka", "image": "none" }] },
        });
        let set: StrimziPodSet = serde_json::from_value(json!({
            "apiVersion": "core.strimzi.io/v1", "kind": "StrimziPodSet",
            "metadata": { "name": "theirs-nodes", "labels": labels },
            "spec": { "selector": { "matchLabels": { "strimzi.io/pool-name": "nodes" } }, "pods": [pod] },
        }))?;
        let sets = scene.api::<StrimziPodSet>();
        let set = sets.create(&PostParams::default(), &set).await?;
        let nodes = typed_pool(&paper_pool("theirs", "nodes", &["controller", "broker"], 1))?;
        scene.api::<KafkaNodePool>().create(&PostParams::default(), &nodes).await?;

        scene.step("creating a Kafka of the same name");
        let cluster = Cluster::create(scene, &kafka("theirs"), &[]).await?;
        cluster
            .until_not_ready("OtherOperator", "theirs-nodes was made by 'strimzi-cluster-operator'")
            .await?;

        scene.step("waiting until the operator has nothing left to do");
        Audit::until_calm(Duration::from_secs(2), Duration::from_secs(30)).await?;
        let now = sets.get("theirs-nodes").await?;
        assert_eq!(now.resource_version(), set.resource_version(), "their pod set was changed");
        let made = cluster.listed();
        assert_eq!(scene.api::<Pod>().list(&made).await?.items.len(), 0, "pods");
        assert_eq!(scene.api::<ConfigMap>().list(&made).await?.items.len(), 0, "config maps");
        assert_eq!(scene.api::<Service>().list(&made).await?.items.len(), 0, "services");
        let status = scene.api::<KafkaNodePool>().get("nodes").await?.status.unwrap_or_default();
        assert_eq!(status.node_ids, None, "their pool got node ids");
        Ok(())
    })
    .await
}
