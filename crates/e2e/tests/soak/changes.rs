//! Every field that can be changed is changed and changed back, one at a time, on a cluster that runs: valid values and mistakes.
//! Afterwards everything is as before, and the operator needed no restart for it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use karst_api::{Condition, Kafka, KafkaNodePool};
use karst_e2e::cluster::Cluster;
use karst_e2e::manifests::{VERSION, kafka, pool_with_claims};
use karst_e2e::snapshot::{self, Snapshot};
use karst_e2e::story::{Namespaced, story};
use karst_e2e::wait;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Time for a node to restart, and more.
const SETTLING: Duration = Duration::from_secs(180);
const POOL: &str = "both";

#[tokio::test]
async fn changes_of_every_field_are_undone_without_a_trace() -> Result<()> {
    story("changes", Duration::from_secs(7200), async |scene| {
        let pools = [pool_with_claims("live", POOL, &["controller", "broker"], 1)];
        let cluster = Cluster::create_ready(scene, &kafka("live"), &pools).await?;
        let operator = operators(scene).await?;
        let before = snapshot::take(&cluster).await?;
        let all = changes();
        ensure!(all.len() >= 60, "only {} changes", all.len());
        let (mut refused, mut failed) = (0, Vec::new());
        for (number, change) in all.iter().enumerate() {
            scene.step(format!("{} of {}: {}", number + 1, all.len(), change.patch));
            match there_and_back(&cluster, change, &before).await {
                Ok(Outcome::Carried) => {}
                Ok(Outcome::RefusedByTheApiServer) => refused += 1,
                Err(error) => failed.push(format!("{}: {error:#}", change.patch)),
            }
        }
        scene.step(format!("{} changes, {refused} of them refused by the API server", all.len()));
        ensure!(failed.is_empty(), "{} changes left traces:\n{}", failed.len(), failed.join("\n"));
        ensure!(operator == operators(scene).await?, "the operator restarted");
        Ok(())
    })
    .await
}

/// The operator's pods, with how often each restarted.
async fn operators(scene: &karst_e2e::story::Scene) -> Result<Vec<(String, i32)>> {
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), "karst-system");
    let pods = pods.list(&ListParams::default()).await?;
    let restarts = |pod: &Pod| {
        let containers = pod.status.as_ref().and_then(|status| status.container_statuses.clone());
        containers.unwrap_or_default().iter().map(|container| container.restart_count).sum()
    };
    Ok(pods.into_iter().map(|pod| (pod.uid().unwrap_or_default(), restarts(&pod))).collect())
}

enum Target {
    Kafka,
    Pool,
}

struct Change {
    target: Target,
    patch: Value,
}

enum Outcome {
    Carried,
    RefusedByTheApiServer,
}

async fn there_and_back(cluster: &Cluster<'_>, change: &Change, before: &Snapshot) -> Result<Outcome> {
    let scene = cluster.scene;
    let outcome = match change.target {
        Target::Kafka => patch_and_revert(&scene.api::<Kafka>(), "live", &change.patch, cluster).await?,
        Target::Pool => patch_and_revert(&scene.api::<KafkaNodePool>(), POOL, &change.patch, cluster).await?,
    };
    until_settled(cluster).await.context("after it was reverted")?;
    until_same(cluster, before).await?;
    Ok(outcome)
}

async fn patch_and_revert<K: Namespaced>(
    api: &Api<K>,
    name: &str,
    patch: &Value,
    cluster: &Cluster<'_>,
) -> Result<Outcome> {
    let original = serde_json::to_value(api.get(name).await?)?;
    match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 422 || status.code == 400 => {
            return Ok(Outcome::RefusedByTheApiServer);
        }
        patched => drop(patched?),
    }
    let settled = until_settled(cluster).await.context("after it was made");
    // Whatever became of it, the next change must find what this one found.
    loop {
        let mut now = serde_json::to_value(api.get(name).await?)?;
        now["spec"] = original["spec"].clone();
        for part in ["labels", "annotations"] {
            now["metadata"][part] = original["metadata"][part].clone();
        }
        match api.replace(name, &PostParams::default(), &serde_json::from_value(now)?).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            replaced => break drop(replaced?),
        }
    }
    settled.map(|()| Outcome::Carried)
}

/// Waits until what was asked for is carried out or refused, on both resources, and no pod is on its way.
async fn until_settled(cluster: &Cluster<'_>) -> Result<()> {
    let scene = cluster.scene;
    wait::until_one(scene.api::<Kafka>(), "live", "a settled Kafka", SETTLING, |kafka| {
        let kafka = kafka?;
        let status = kafka.status.as_ref()?;
        let is_current = status.observed_generation == kafka.metadata.generation;
        (is_current && is_at_rest(status.conditions.as_ref())).then_some(())
    })
    .await?;
    wait::until_one(scene.api::<KafkaNodePool>(), POOL, "a settled pool", SETTLING, |pool| {
        let pool = pool?;
        let status = pool.status.as_ref()?;
        let is_current = status.observed_generation == pool.metadata.generation;
        (is_current && is_at_rest(status.conditions.as_ref())).then_some(())
    })
    .await?;
    wait::until(scene.api::<Pod>(), cluster.watched(), "ready pods", SETTLING, |pods| {
        pods.values().all(karst_e2e::cluster::is_pod_ready).then_some(())
    })
    .await
}

/// Ready without a word more, or refused, or left alone.
fn is_at_rest(conditions: Option<&Vec<Condition>>) -> bool {
    let find = |type_: &str| conditions.into_iter().flatten().find(|one| one.type_.as_deref() == Some(type_));
    if find("ReconciliationPaused").is_some() {
        return true;
    }
    find("Ready").is_some_and(|ready| match (ready.status.as_deref(), ready.reason.as_deref()) {
        (Some("True"), None) => true,
        (Some("False"), Some(reason)) => !["Creating", "NodesNotReady", "Applying"].contains(&reason),
        _ => false,
    })
}

async fn until_same(cluster: &Cluster<'_>, before: &Snapshot) -> Result<()> {
    let began = Instant::now();
    loop {
        let now = snapshot::take(cluster).await?;
        if now == *before {
            return Ok(());
        }
        if began.elapsed() > Duration::from_secs(60) {
            let keys = before.keys().chain(now.keys());
            let differ = keys.filter(|key| before.get(*key) != now.get(*key));
            let told: Vec<_> =
                differ.map(|key| format!("{key}: {:?} became {:?}", before.get(key), now.get(key))).collect();
            anyhow::bail!("it is not as before: {}", told.join("\n"));
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// At least one for each field: what works, and what does not.
fn changes() -> Vec<Change> {
    let kafka = |spec: Value| Change { target: Target::Kafka, patch: json!({ "spec": { "kafka": spec } }) };
    let beside = |spec: Value| Change { target: Target::Kafka, patch: json!({ "spec": spec }) };
    let about = |metadata: Value| Change { target: Target::Kafka, patch: json!({ "metadata": metadata }) };
    let pool = |spec: Value| Change { target: Target::Pool, patch: json!({ "spec": spec }) };
    let about_pool =
        |metadata: Value| Change { target: Target::Pool, patch: json!({ "metadata": metadata }) };
    let setting = |key: &str, value: Value| kafka(json!({ "config": { key: value } }));
    let template = |part: &str, value: Value| kafka(json!({ "template": { part: value } }));
    let meta =
        |part: &str, kind: &str| template(part, json!({ "metadata": { kind: { "example.org/a": "b" } } }));
    let plain = json!({ "name": "plain", "port": 9092, "type": "internal", "tls": false });
    let listeners = |more: Value| kafka(json!({ "listeners": [plain, more] }));
    let listener = |only: Value| kafka(json!({ "listeners": [only] }));
    vec![
        setting("log.retention.ms", json!(3_600_000)),
        setting("message.max.bytes", json!(2_000_000)),
        setting("num.io.threads", json!(9)),
        setting("background.threads", json!(11)),
        setting("auto.create.topics.enable", json!(false)),
        setting("log.retention.hours", json!(48)),
        setting("some.plugin.setting", json!("x")),
        setting("min.insync.replicas", json!(2)),
        setting("log.retention.ms", json!("soon")),
        setting("num.io.threads", json!(0)),
        setting("node.id", json!(99)),
        setting("log.cleaner.threads", json!("1\nnode.id=99")),
        setting("broker.session.timeout.ms", json!(20_000)),
        setting("controller.quorum.auto.join.enable", json!(true)),
        kafka(json!({ "jvmOptions": { "-Xmx": "400m" } })),
        kafka(json!({ "jvmOptions": { "javaSystemProperties": [{ "name": "a", "value": "b" }] } })),
        kafka(json!({ "jvmOptions": { "gcLoggingEnabled": true } })),
        kafka(json!({ "jvmOptions": { "-Xmx": "banana" } })),
        kafka(json!({ "livenessProbe": { "periodSeconds": 7 } })),
        kafka(json!({ "readinessProbe": { "timeoutSeconds": 3 } })),
        kafka(json!({ "livenessProbe": { "successThreshold": 2 } })),
        kafka(json!({ "logging": { "type": "inline", "loggers": { "kafka.log": "DEBUG" } } })),
        kafka(json!({ "logging": { "type": "inline", "loggers": { "kafka.log": "LOUD" } } })),
        kafka(
            json!({ "logging": { "type": "external", "valueFrom": { "configMapKeyRef": { "name": "missing", "key": "a" } } } }),
        ),
        kafka(
            json!({ "metricsConfig": { "type": "jmxPrometheusExporter", "valueFrom": { "configMapKeyRef": { "name": "missing", "key": "a" } } } }),
        ),
        kafka(json!({ "image": format!("docker.io/apache/kafka:{VERSION}") })),
        kafka(json!({ "metadataVersion": "4.3" })),
        kafka(json!({ "metadataVersion": "9.9" })),
        kafka(json!({ "version": "2.8.0" })),
        kafka(json!({ "version": "4.0.0" })),
        kafka(json!({ "authorization": { "type": "simple", "superUsers": ["CN=alice"] } })),
        kafka(json!({ "authorization": { "type": "custom" } })),
        kafka(json!({ "authorization": { "type": "simple", "superUsers": ["CN=a;User:b"] } })),
        kafka(json!({ "rack": { "topologyKey": "" } })),
        listeners(json!({ "name": "tls", "port": 9093, "type": "internal", "tls": true })),
        listeners(
            json!({ "name": "mutual", "port": 9094, "type": "internal", "tls": true, "authentication": { "type": "tls" } }),
        ),
        listeners(
            json!({ "name": "scram", "port": 9095, "type": "internal", "tls": false, "authentication": { "type": "scram-sha-512" } }),
        ),
        listeners(json!({ "name": "inside", "port": 9096, "type": "cluster-ip", "tls": false })),
        listeners(json!({ "name": "outside", "port": 9097, "type": "nodeport", "tls": false })),
        listeners(json!({ "name": "lb", "port": 9098, "type": "loadbalancer", "tls": false })),
        listeners(json!({ "name": "way", "port": 9099, "type": "ingress", "tls": true })),
        listeners(json!({ "name": "again", "port": 9092, "type": "internal", "tls": false })),
        listeners(json!({ "name": "low", "port": 80, "type": "internal", "tls": false })),
        listeners(json!({ "name": "BAD", "port": 9093, "type": "internal", "tls": false })),
        listeners(
            json!({ "name": "open", "port": 9093, "type": "internal", "tls": false, "authentication": { "type": "tls" } }),
        ),
        listener(json!({ "name": "plain", "port": 9192, "type": "internal", "tls": false })),
        listener(
            json!({ "name": "plain", "port": 9092, "type": "internal", "tls": false, "networkPolicyPeers": [{ "podSelector": { "matchLabels": { "a": "b" } } }] }),
        ),
        meta("pod", "labels"),
        meta("pod", "annotations"),
        meta("podSet", "labels"),
        meta("bootstrapService", "annotations"),
        meta("brokersService", "labels"),
        meta("persistentVolumeClaim", "labels"),
        meta("serviceAccount", "annotations"),
        meta("podDisruptionBudget", "labels"),
        template("pod", json!({ "metadata": { "labels": { "strimzi.io/cluster": "other" } } })),
        template("pod", json!({ "terminationGracePeriodSeconds": 25 })),
        template("pod", json!({ "tolerations": [{ "key": "a", "operator": "Exists" }] })),
        template("pod", json!({ "enableServiceLinks": true })),
        template("kafkaContainer", json!({ "env": [{ "name": "A", "value": "b" }] })),
        template("podDisruptionBudget", json!({ "maxUnavailable": 0 })),
        beside(json!({ "maintenanceTimeWindows": ["* * 0-1 ? * SUN *"] })),
        beside(json!({ "maintenanceTimeWindows": ["whenever"] })),
        beside(json!({ "clusterCa": { "renewalDays": 20 } })),
        beside(json!({ "clientsCa": { "validityDays": 300 } })),
        beside(json!({ "clusterCa": { "validityDays": -1 } })),
        about(json!({ "annotations": { "strimzi.io/pause-reconciliation": "true" } })),
        about(json!({ "annotations": { "karst.io/restore-voter": "0:nonsense" } })),
        about(json!({ "annotations": { "karst.io/key-algorithm": "morse" } })),
        about(json!({ "annotations": { "strimzi.io/kraft-quorum-migration": "true" } })),
        about(json!({ "labels": { "example.org/a": "b" } })),
        pool(json!({ "replicas": 2 })),
        pool(json!({ "replicas": 0 })),
        pool(json!({ "replicas": -1 })),
        pool(json!({ "roles": ["broker"] })),
        pool(json!({ "roles": [] })),
        pool(json!({ "resources": { "requests": { "cpu": "60m" } } })),
        pool(json!({ "resources": { "limits": { "memory": "much" } } })),
        pool(json!({ "jvmOptions": { "-Xmx": "380m" } })),
        pool(json!({ "template": { "pod": { "metadata": { "labels": { "example.org/p": "q" } } } } })),
        pool(json!({ "template": { "initContainer": { "env": [{ "name": "A", "value": "b" }] } } })),
        pool(json!({ "storage": { "size": "500Mi" } })),
        pool(json!({ "storage": { "class": "golden" } })),
        pool(json!({ "storage": { "deleteClaim": false } })),
        pool(json!({ "storage": { "type": "ephemeral" } })),
        about_pool(json!({ "annotations": { "strimzi.io/next-node-ids": "[50-59]" } })),
        about_pool(json!({ "annotations": { "strimzi.io/remove-node-ids": "nonsense" } })),
        about_pool(json!({ "labels": { "example.org/a": "b" } })),
    ]
}
