//! Bad input is refused by name, and harms nothing that runs.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::ResourceQuota;
use karst_api::{Kafka, KafkaNodePool};
use karst_e2e::cluster::{ACTING, Cluster, warnings};
use karst_e2e::kafka_tools::Kcat;
use karst_e2e::kubectl;
use karst_e2e::manifests::{VERSION, claims, kafka, paper_pool, pool};
use karst_e2e::story::{Scene, story};
use karst_e2e::wait;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

const BOTH: &[&str] = &["controller", "broker"];

#[tokio::test]
async fn bad_input_is_refused_by_name_and_harms_nothing_that_runs() -> Result<()> {
    story("refusals", Duration::from_secs(360), async |scene| {
        let running = a_cluster_that_asks_for_more_than_it_gets(scene).await?;
        let pods = running.pod_uids().await?;
        the_api_server_refuses_wrong_types(scene).await?;
        the_operator_refuses_what_cannot_be(scene).await?;
        kubernetes_refuses_pods_and_claims(scene).await?;
        a_running_cluster_survives_its_own_bad_input(&running).await?;
        assert_eq!(running.pod_uids().await?, pods, "a pod was replaced");
        Ok(())
    })
    .await
}

/// What is not supported yet is named; the rest is served.
async fn a_cluster_that_asks_for_more_than_it_gets(scene: &Scene) -> Result<Cluster<'_>> {
    scene.step("creating a cluster that asks for more than it gets");
    let mut kafka = kafka("running");
    let spec = &mut kafka["spec"];
    spec["kafka"]["listeners"] = json!([
        { "name": "plain", "port": 9092, "type": "internal", "tls": false },
        { "name": "outside", "port": 9093, "type": "route", "tls": true },
    ]);
    spec["kafka"]["quotas"] = json!({ "type": "kafka" });
    spec["kafka"]["config"]["advertised.listeners"] = json!("PLAINTEXT://nowhere:1");
    spec["entityOperator"] = json!({ "topicOperator": {} });
    let mut nodes = pool("running", "both", BOTH, 1);
    nodes["spec"]["template"] = json!({ "perPodRoute": { "metadata": { "labels": { "a": "b" } } } });
    let cluster = Cluster::create(scene, &kafka, &[nodes]).await?;
    let status = cluster.until_ready().await?;

    let warnings = warnings(status.conditions.as_ref());
    for (reason, name) in [
        ("ListenerNotServed", "'outside'"),
        ("NotSupportedYet", "spec.kafka.quotas"),
        ("NotSupportedYet", "spec.entityOperator"),
        ("ForbiddenSettings", "advertised.listeners"),
    ] {
        let warned = warnings.iter().any(|text| text.starts_with(reason) && text.contains(name));
        ensure!(warned, "no warning {reason} about {name} in {warnings:#?}");
    }
    let listeners = status.listeners.unwrap_or_default();
    let names: Vec<_> = listeners.iter().filter_map(|listener| listener.name.as_deref()).collect();
    assert_eq!(names, ["plain"], "a listener without the encryption that was asked for");
    let pool = scene.api::<KafkaNodePool>().get("both").await?.status.unwrap_or_default();
    let warnings = self::warnings(pool.conditions.as_ref());
    ensure!(warnings.iter().any(|text| text.contains("spec.template.perPodRoute")), "{warnings:#?}");
    Kcat::new(&cluster.bootstrap().await?).round_trip("topic", "before").await?;
    Ok(cluster)
}

async fn the_api_server_refuses_wrong_types(scene: &Scene) -> Result<()> {
    scene.step("wrong types");
    let edited = |mut object: Value, path: &str, value: Value| -> Result<Value> {
        *object.pointer_mut(path).with_context(|| format!("no {path}"))? = value;
        Ok(object)
    };
    let cluster = || kafka("wrong");
    let nodes = || pool("wrong", "nodes", BOTH, 1);
    let cases = [
        (edited(nodes(), "/spec/replicas", json!("three"))?, "spec.replicas"),
        (edited(nodes(), "/spec/replicas", json!(-1))?, "spec.replicas"),
        (edited(nodes(), "/spec/roles", json!([]))?, "spec.roles"),
        (edited(nodes(), "/spec/roles", json!(["voter"]))?, "spec.roles"),
        (edited(nodes(), "/spec/storage", json!({ "type": "persistent-claim" }))?, "spec.storage"),
        (edited(nodes(), "/spec/storage", json!({ "type": "jbod" }))?, "spec.storage"),
        (edited(cluster(), "/spec/kafka/listeners/0/port", json!("9092"))?, "spec.kafka.listeners[0].port"),
        (edited(cluster(), "/spec/kafka/listeners/0/type", json!("magic"))?, "spec.kafka.listeners[0].type"),
        (edited(cluster(), "/spec/kafka/config", json!("a=b"))?, "spec.kafka.config"),
    ];
    for (object, field) in cases {
        match kubectl::apply(&scene.namespace, &object.to_string()).await {
            Ok(said) => bail!("the API server took a wrong {field}: {said}"),
            Err(error) => ensure!(format!("{error:#}").contains(field), "{field} is not named: {error:#}"),
        }
    }
    Ok(())
}

/// A cluster that cannot be, and what is said about it.
struct Refused<'a> {
    name: &'a str,
    roles: &'a [&'a str],
    change: Option<(&'a str, Value)>,
    reason: &'a str,
    field: &'a str,
}

impl<'a> Refused<'a> {
    fn missing(name: &'a str, roles: &'a [&'a str], field: &'a str) -> Self {
        Self { name, roles, change: None, reason: "PoolsMissing", field }
    }

    fn setting(name: &'a str, key: &'a str, value: Value, reason: &'a str, field: &'a str) -> Self {
        Self { name, roles: BOTH, change: Some((key, value)), reason, field }
    }

    async fn check(self, scene: &Scene) -> Result<()> {
        let Self { name, roles, change, reason, field } = self;
        let mut kafka = kafka(name);
        if let Some((key, value)) = change {
            kafka["spec"]["kafka"][key] = value;
        }
        let nodes = format!("nodes-of-{}", &name[..name.len().min(20)]);
        let cluster = Cluster::create(scene, &kafka, &[paper_pool(name, &nodes, roles, 1)]).await?;
        cluster.until_not_ready(reason, field).await?;
        ensure!(cluster.pod_uids().await?.is_empty(), "{name} has pods all the same");
        Ok(())
    }
}

async fn the_operator_refuses_what_cannot_be(scene: &Scene) -> Result<()> {
    scene.step("what no schema can refuse");
    let listener = |name: &str| json!({ "name": name, "port": 9092, "type": "internal", "tls": false });
    let same_port = json!([listener("one"), listener("two")]);
    let custom = json!({ "type": "custom" });
    let long = "l".repeat(60);
    let invalid = "InvalidResource";
    let cases = [
        Refused::missing("no-controllers", &["broker"], "spec.roles with controller"),
        Refused::missing("no-brokers", &["controller"], "spec.roles with broker"),
        Refused::setting("same-port", "listeners", same_port, invalid, "spec.kafka.listeners[1].port"),
        Refused::setting("no-version", "version", json!("2.8.0"), invalid, "spec.kafka.version"),
        Refused::setting(&long, "version", json!(VERSION), invalid, "metadata.name"),
        Refused::setting(
            "guarded",
            "authorization",
            custom,
            invalid,
            "spec.kafka.authorization.authorizerClass",
        ),
    ];
    for case in cases {
        case.check(scene).await?;
    }
    Ok(())
}

/// What somebody else forbids is told in their words, and done when they allow it.
async fn kubernetes_refuses_pods_and_claims(scene: &Scene) -> Result<()> {
    scene.step("a namespace that allows no more pods and claims");
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "few" },
        "spec": { "hard": { "pods": "1", "persistentvolumeclaims": "0" } },
    });
    kubectl::apply(&scene.namespace, &quota.to_string()).await?;
    until_enforced(scene).await?;
    let mut nodes = paper_pool("poor", "nodes-of-poor", BOTH, 1);
    nodes["spec"]["storage"] = claims(true);
    let cluster = Cluster::create(scene, &kafka("poor"), &[nodes]).await?;
    let refused = async |words: &[&str]| cluster.until_warned("KubernetesRefused", words, ACTING).await;
    refused(&["data-poor-nodes-of-poor-0", "exceeded quota: few", "persistentvolumeclaims=0"]).await?;

    scene.step("allowing claims, and no pods");
    let quotas = scene.api::<ResourceQuota>();
    let claims = Patch::Merge(json!({ "spec": { "hard": { "persistentvolumeclaims": null } } }));
    quotas.patch("few", &PatchParams::default(), &claims).await?;
    refused(&["pod poor-nodes-of-poor-0", "exceeded quota: few", "pods=1"]).await?;

    scene.step("allowing everything");
    quotas.delete("few", &DeleteParams::default()).await?;
    cluster.until_pods(1).await?;
    cluster
        .until_status("no word of it any more", ACTING, |_, status| {
            warnings(status.conditions.as_ref()).iter().all(|one| !one.contains("quota")).then_some(())
        })
        .await
}

/// A quota counts what is there before it holds.
async fn until_enforced(scene: &Scene) -> Result<()> {
    wait::until_one(scene.api::<ResourceQuota>(), "few", "the quota to hold", ACTING, |quota| {
        quota?.status.as_ref()?.used.as_ref()?.get("pods").map(drop)
    })
    .await
}

async fn a_running_cluster_survives_its_own_bad_input(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("bad input for the cluster that runs");
    let api = cluster.scene.api::<Kafka>();
    let patch = Patch::Merge(json!({ "spec": { "kafka": { "version": "2.8.0" } } }));
    api.patch(&cluster.name, &PatchParams::default(), &patch).await?;
    cluster.until_not_ready("InvalidResource", "spec.kafka.version").await?;
    Kcat::new(&cluster_address(cluster)).round_trip("topic", "after").await?;
    let patch = Patch::Merge(json!({ "spec": { "kafka": { "version": VERSION } } }));
    api.patch(&cluster.name, &PatchParams::default(), &patch).await?;
    wait::until_one(api, &cluster.name, "the cluster to be ready again", ACTING, |kafka| {
        karst_e2e::cluster::is_true(kafka?.status.as_ref()?, "Ready").then_some(())
    })
    .await
}

/// While a cluster is refused its status may not be relied on; its service is there all the same.
fn cluster_address(cluster: &Cluster<'_>) -> String {
    format!("{}-kafka-bootstrap.{}.svc.cluster.local:9092", cluster.name, cluster.scene.namespace)
}
