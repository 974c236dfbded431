//! What another operator, or somebody else, made is left alone.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service, ServiceAccount};
use karst_api::{Condition, Kafka, KafkaNodePool, StrimziPodSet};
use karst_e2e::audit::Audit;
use karst_e2e::cluster::{ACTING, Cluster};
use karst_e2e::manifests::{claims, kafka, paper_pool, typed_pool};
use karst_e2e::story::{Namespaced, Scene, story};
use karst_e2e::wait;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

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

/// Who was there first, with objects whose names a cluster needs.
const OWNER: &str = "legacy";
/// How the operator signs what it writes.
const MANAGER: &str = "karst";
/// The operator has done what there was to do when it is silent for so long.
const CALM: Duration = Duration::from_secs(2);

#[tokio::test]
async fn objects_of_another_owner_are_neither_taken_over_nor_deleted() -> Result<()> {
    story("other-owner", Duration::from_secs(300), async |scene| {
        let owner = create_owner(scene).await?;
        let size =
            json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
        let claim = json!({ "metadata": { "name": "data-one-nodes-one-0" }, "spec": size });
        is_left_alone::<PersistentVolumeClaim>(scene, "one", claim, &owner).await?;
        let map = json!({ "metadata": { "name": "two-nodes-two-0" }, "data": { "theirs": "yes" } });
        is_left_alone::<ConfigMap>(scene, "two", map, &owner).await?;
        let account = json!({ "metadata": { "name": "three-kafka" }, "automountServiceAccountToken": true });
        is_left_alone::<ServiceAccount>(scene, "three", account, &owner).await
    })
    .await
}

/// A stateful set without pods, as owner references name it.
async fn create_owner(scene: &Scene) -> Result<Value> {
    let labels = json!({ "app": OWNER });
    let set: StatefulSet = serde_json::from_value(json!({
        "metadata": { "name": OWNER },
        "spec": {
            "replicas": 0, "serviceName": OWNER, "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "main", "image": "none" }] },
            },
        },
    }))?;
    let set = scene.api::<StatefulSet>().create(&PostParams::default(), &set).await?;
    let uid = set.uid().context("a stateful set without UID")?;
    Ok(
        json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": OWNER, "uid": uid, "controller": true }),
    )
}

/// A cluster that needs the object's name says whose it is, and leaves it as it is, also when the cluster goes.
async fn is_left_alone<K: Namespaced + Sync>(
    scene: &Scene,
    name: &str,
    mut object: Value,
    owner: &Value,
) -> Result<()> {
    object["metadata"]["ownerReferences"] = json!([owner]);
    object["metadata"]["labels"] = json!({ "app": OWNER });
    let object: K = serde_json::from_value(object)?;
    let theirs = object.name_any();
    scene.step(format!("creating a cluster that needs the name of {} {theirs}", K::kind(&())));
    scene.api::<K>().create(&PostParams::default(), &object).await?;
    let pool_name = format!("nodes-{name}");
    let mut pool = paper_pool(name, &pool_name, &["controller", "broker"], 1);
    pool["spec"]["storage"] = claims(true);
    let cluster = Cluster::create(scene, &kafka(name), &[pool]).await?;
    until_told(&cluster, &pool_name, &[&theirs, OWNER, name]).await?;
    Audit::until_calm(CALM, ACTING).await?;
    is_theirs(&scene.api::<K>().get(&theirs).await?)?;

    scene.step("deleting the cluster");
    scene.api::<Kafka>().delete(name, &DeleteParams::default()).await?;
    let pools = scene.api::<KafkaNodePool>();
    pools.delete(&pool_name, &DeleteParams::default()).await?;
    wait::until_one(pools, &pool_name, "the end of its pool", ACTING, |pool| pool.is_none().then_some(()))
        .await?;
    Audit::until_calm(CALM, ACTING).await?;
    let found = scene.api::<K>().get_opt(&theirs).await?;
    is_theirs(&found.with_context(|| format!("{theirs} went with the cluster"))?)
}

/// Waits until the status of the cluster, or of its pool, has these words in one sentence.
async fn until_told(cluster: &Cluster<'_>, pool: &str, words: &[&str]) -> Result<()> {
    let has = |conditions: Option<&Vec<Condition>>| {
        let mut messages =
            conditions.into_iter().flatten().filter_map(|condition| condition.message.as_ref());
        messages.any(|message| words.iter().all(|word| message.contains(word))).then_some(())
    };
    let what = format!("a word about {words:?}");
    let of_cluster = cluster.until_status(&what, ACTING, |_, status| has(status.conditions.as_ref()));
    let of_pool = wait::until_one(cluster.scene.api::<KafkaNodePool>(), pool, &what, ACTING, |pool| {
        has(pool?.status.as_ref()?.conditions.as_ref())
    });
    tokio::select! {
        told = of_cluster => told,
        told = of_pool => told,
    }
}

/// Nobody but its owner wrote to it, and it stays.
fn is_theirs<K: Namespaced>(object: &K) -> Result<()> {
    let name = object.name_any();
    let by_us = object.managed_fields().iter().any(|one| one.manager.as_deref() == Some(MANAGER));
    ensure!(!by_us, "{name} was written to: {:?} {:?}", object.labels(), object.owner_references());
    ensure!(object.meta().deletion_timestamp.is_none(), "{name} is being deleted");
    let owners: Vec<_> = object.owner_references().iter().map(|owner| owner.name.as_str()).collect();
    ensure!(owners == [OWNER], "{name} belongs to {owners:?}");
    Ok(())
}
