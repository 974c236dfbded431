//! A pass that finds nothing to do does nothing, whatever others have added to the objects it looks at.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use karst_api::{Kafka, StrimziPodSet};
use karst_e2e::audit::Audit;
use karst_e2e::cluster::Cluster;
use karst_e2e::manifests::{claims, kafka, paper_pool};
use karst_e2e::operator::Operator;
use karst_e2e::story::{Scene, story};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

const CALM: Duration = Duration::from_secs(2);
const SETTLING: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_pass_that_finds_additions_of_others_only_writes_nothing() -> Result<()> {
    story("idle-pass", Duration::from_secs(240), async |scene| {
        let mut nodes = paper_pool("calm", "nodes", &["controller", "broker"], 1);
        nodes["spec"]["storage"] = claims(true);
        let cluster = Cluster::create(scene, &kafka("calm"), &[nodes]).await?;
        cluster.until_pods(1).await?;

        scene.step("adding to its objects what others add");
        let note = json!({ "metadata": { "labels": { "team": "a" }, "annotations": { "note": "b" } } });
        add::<Service>(scene, "calm-kafka-bootstrap", &note).await?;
        add::<StrimziPodSet>(scene, "calm-nodes", &note).await?;
        add::<PersistentVolumeClaim>(scene, "data-calm-nodes-0", &note).await?;
        add::<ConfigMap>(scene, "calm-nodes-0", &note).await?;
        add::<ConfigMap>(scene, "calm-nodes-0", &json!({ "data": { "extra": "c" } })).await?;
        let eviction = json!({ "spec": { "unhealthyPodEvictionPolicy": "AlwaysAllow" } });
        add::<PodDisruptionBudget>(scene, "calm-kafka-controllers", &eviction).await?;
        let outgoing = json!({ "spec": { "policyTypes": ["Ingress", "Egress"], "egress": [{}] } });
        add::<NetworkPolicy>(scene, "calm-network-policy-kafka", &outgoing).await?;
        Audit::until_calm(CALM, SETTLING).await?;

        scene.step("making the operator look again");
        let operator = Operator::installed(&scene.client);
        let passes = operator.passes(&scene.namespace).await?;
        ensure!(passes > 0, "no pass was counted");
        let audit = Audit::from_now()?;
        // A label would be handed on to what is made for the cluster; an annotation changes nothing.
        add::<Kafka>(scene, "calm", &json!({ "metadata": { "annotations": { "note": "b" } } })).await?;
        while operator.passes(&scene.namespace).await? == passes {}
        Audit::until_calm(CALM, SETTLING).await?;
        let requests = audit.of_operator()?;
        let here = format!("/namespaces/{}/", scene.namespace);
        let writes: Vec<_> = requests
            .iter()
            .filter(|request| request.breaks_the_silence() && request.uri.contains(&here))
            .collect();
        ensure!(writes.is_empty(), "a pass with nothing to do asked for {writes:#?}");
        Ok(())
    })
    .await
}

async fn add<K>(scene: &Scene, name: &str, what: &Value) -> Result<()>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    scene.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(what)).await?;
    Ok(())
}
