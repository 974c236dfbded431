//! Nobody gets pods by writing a pod set, or rights over machines by writing a resource.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use karst_api::{KafkaNodePool, StrimziPodSet};
use karst_core::names::PAUSE_ANNOTATION;
use karst_e2e::audit::Audit;
use karst_e2e::cluster::{ACTING, Cluster};
use karst_e2e::manifests::{kafka, paper_pool};
use karst_e2e::story::{Scene, story};
use karst_e2e::wait;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// The operator has done what there was to do when it is silent for so long.
const CALM: Duration = Duration::from_secs(2);
const SET: &str = "mine-nodes";
const OWN_POD: &str = "mine-nodes-0";

#[tokio::test]
async fn a_pod_that_somebody_wrote_into_a_pod_set_is_never_made() -> Result<()> {
    story("rights", Duration::from_secs(240), async |scene| {
        let pool = paper_pool("mine", "nodes", &["controller", "broker"], 1);
        let cluster = Cluster::create(scene, &kafka("mine"), &[pool]).await?;
        let pods = cluster.until_pods(1).await?;
        until_rendered(scene).await?;

        scene.step("adding a pod to its pod set");
        add(scene, "mine-nodes-66").await?;
        until_listed(scene, 1).await?;

        scene.step("creating a pod set of its own for a pod, and one of no cluster");
        create_set(scene, "mine", "mine-evil").await?;
        create_set(scene, "nobody", "nobody-evil").await?;
        cluster.until_warned("PodSetNotRendered", &["mine-evil", "mine-evil-66"], ACTING).await?;

        scene.step("losing its pod while it is paused");
        cluster.annotate(PAUSE_ANNOTATION, Some("true")).await?;
        delete(scene, OWN_POD).await?;
        let what = "another pod of the same name";
        wait::until_one(scene.api::<Pod>(), OWN_POD, what, ACTING, |pod| {
            (pod?.metadata.uid.as_ref() != pods.get(OWN_POD)).then_some(())
        })
        .await?;

        scene.step("adding a pod to its pod set while it is paused, and losing its own");
        add(scene, "mine-nodes-67").await?;
        delete(scene, OWN_POD).await?;
        cluster.until_warned("PodSetNotRendered", &[SET, OWN_POD, "mine-nodes-67"], ACTING).await?;
        Audit::until_calm(CALM, ACTING).await?;
        only_pods(scene, &[]).await?;

        scene.step("letting it go on");
        cluster.annotate(PAUSE_ANNOTATION, None).await?;
        until_listed(scene, 1).await?;
        cluster.until_pods(1).await?;
        Audit::until_calm(CALM, ACTING).await?;
        only_pods(scene, &[OWN_POD]).await?;

        scene.step("asking for a privileged container");
        let privileged = json!({ "kafkaContainer": { "securityContext": { "privileged": true } } });
        cluster.edit_pool("nodes", &json!({ "template": privileged })).await?;
        wait::until_one(scene.api::<KafkaNodePool>(), "nodes", "its refusal", ACTING, |pool| {
            let conditions = pool?.status.as_ref()?.conditions.as_ref()?;
            let mut messages = conditions.iter().filter_map(|condition| condition.message.as_ref());
            messages.any(|message| message.contains("securityContext.privileged is true")).then_some(())
        })
        .await?;
        let set = scene.api::<StrimziPodSet>().get(SET).await?;
        ensure!(!serde_json::to_string(&set.spec)?.contains("\"privileged\":true"), "it is asked for");
        Ok(())
    })
    .await
}

/// A pod that nobody described but somebody without the right to make one.
fn evil(cluster: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": { "strimzi.io/cluster": cluster, "strimzi.io/kind": "Kafka" },
            "annotations": { "strimzi.io/revision": "00000000" },
        },
        "spec": { "hostPID": true, "containers": [{ "name": "main", "image": "none" }] },
    })
}

async fn add(scene: &Scene, pod: &str) -> Result<()> {
    let sets = scene.api::<StrimziPodSet>();
    let mut pods = sets.get(SET).await?.spec.pods;
    pods.push(evil("mine", pod));
    let patch = Patch::Merge(json!({ "spec": { "pods": pods } }));
    sets.patch(SET, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Creates a pod set with one pod, labelled and reported as if it were Karst's.
async fn create_set(scene: &Scene, cluster: &str, name: &str) -> Result<()> {
    let labels = json!({
        "strimzi.io/cluster": cluster, "strimzi.io/kind": "Kafka", "app.kubernetes.io/managed-by": "karst",
    });
    let set: StrimziPodSet = serde_json::from_value(json!({
        "apiVersion": "core.strimzi.io/v1", "kind": "StrimziPodSet",
        "metadata": { "name": name, "labels": labels },
        "spec": { "selector": { "matchLabels": labels }, "pods": [evil(cluster, &format!("{name}-66"))] },
        "status": { "observedGeneration": 1 },
    }))?;
    let parameters = PostParams { field_manager: Some("karst".to_owned()), ..PostParams::default() };
    scene.api::<StrimziPodSet>().create(&parameters, &set).await?;
    Ok(())
}

async fn delete(scene: &Scene, pod: &str) -> Result<()> {
    scene.api::<Pod>().delete(pod, &DeleteParams::default().grace_period(0)).await?;
    Ok(())
}

/// Waits until the operator has said that the pod set is as it described it.
async fn until_rendered(scene: &Scene) -> Result<()> {
    wait::until_one(scene.api::<StrimziPodSet>(), SET, "its generation in its status", ACTING, |set| {
        let set = set?;
        (set.status.as_ref()?.observed_generation == set.metadata.generation).then_some(())
    })
    .await
}

async fn until_listed(scene: &Scene, count: usize) -> Result<()> {
    let what = format!("{count} pods in its pod set");
    wait::until_one(scene.api::<StrimziPodSet>(), SET, &what, ACTING, |set| {
        (set?.spec.pods.len() == count).then_some(())
    })
    .await
}

/// Only these pods exist in the namespace.
async fn only_pods(scene: &Scene, names: &[&str]) -> Result<()> {
    let pods = scene.api::<Pod>().list(&kube::api::ListParams::default()).await?;
    let found: Vec<_> = pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
    ensure!(found == names, "these pods exist: {found:?}");
    Ok(())
}
