//! Around the pods: racks, metrics and logging, as they are asked for, and changed while nodes run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use karst_api::Kafka;
use karst_e2e::cluster::{ACTING, Cluster, STARTING, warnings};
use karst_e2e::kafka_tools::ConsoleTools;
use karst_e2e::kubectl;
use karst_e2e::manifests::{kafka, pool};
use karst_e2e::story::{Scene, story};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

/// A label that only this story uses.
const LABEL: &str = "example.com/row";
/// Time for the kubelet to refresh a mounted ConfigMap, and for its reader to look at it.
const REFRESHED: Duration = Duration::from_secs(200);
const PACE: Duration = Duration::from_secs(2);

#[tokio::test]
async fn racks_metrics_and_logging_are_as_asked_for() -> Result<()> {
    story("around", Duration::from_secs(900), async |scene| {
        let surroundings = Surroundings { scene, role: format!("{}-racks", scene.namespace) };
        let told = tell(scene, &surroundings).await;
        let cleaned = surroundings.clean().await;
        told.and(cleaned)
    })
    .await
}

async fn tell(scene: &Scene, surroundings: &Surroundings<'_>) -> Result<()> {
    surroundings.label(json!("row-7")).await?;
    write(scene, "rules", "rules.yml", &rules("first")).await?;
    write(scene, "levels", "log4j2.properties", &levels("WARN")).await?;
    let cluster = create(scene).await?;
    without_the_right(&cluster).await?;
    surroundings.allow().await?;
    scene.step("waiting until it is ready");
    cluster.until_ready().await?;
    racks(&cluster).await?;

    let before = lives(&cluster).await?;
    metrics(&cluster).await?;
    logging(&cluster).await?;
    lost(&cluster).await?;
    ensure!(lives(&cluster).await? == before, "a node restarted");
    Ok(())
}

/// What is outside the story's namespace, and has to go with it.
struct Surroundings<'a> {
    scene: &'a Scene,
    role: String,
}

impl Surroundings<'_> {
    async fn label(&self, value: Value) -> Result<()> {
        let machines: Api<Node> = Api::all(self.scene.client.clone());
        let patch = Patch::Merge(json!({ "metadata": { "labels": { LABEL: value } } }));
        for machine in machines.list(&ListParams::default()).await? {
            machines.patch(&machine.name_any(), &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }

    /// Gives the operator the right that the chart gives with `racks: true`.
    async fn allow(&self) -> Result<()> {
        self.scene.step("letting the operator get nodes");
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": self.role },
            "rules": [{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] }],
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": self.role },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": self.role },
            "subjects": [{ "kind": "ServiceAccount", "name": "karst-operator", "namespace": "karst-system" }],
        });
        kubectl::feed(&["apply", "-f", "-"], &format!("{role}\n---\n{binding}")).await.map(drop)
    }

    async fn clean(&self) -> Result<()> {
        let kinds = "clusterrole,clusterrolebinding";
        kubectl::run(&["delete", kinds, &self.role, "--ignore-not-found"]).await?;
        self.label(Value::Null).await
    }
}

async fn create(scene: &Scene) -> Result<Cluster<'_>> {
    scene.step("creating a cluster");
    let source = |name: &str, key: &str| json!({ "configMapKeyRef": { "name": name, "key": key } });
    let mut kafka = kafka("around");
    // What every client of an old kind understands, all the way down.
    kafka["metadata"]["annotations"] = json!({ "karst.io/key-algorithm": "rsa-2048" });
    kafka["spec"]["kafka"]["rack"] = json!({ "topologyKey": LABEL });
    kafka["spec"]["kafka"]["metricsConfig"] =
        json!({ "type": "jmxPrometheusExporter", "valueFrom": source("rules", "rules.yml") });
    kafka["spec"]["kafka"]["logging"] =
        json!({ "type": "external", "valueFrom": source("levels", "log4j2.properties") });
    let pools =
        [pool("around", "both", &["controller", "broker"], 1), pool("around", "brokers", &["broker"], 1)];
    Cluster::create(scene, &kafka, &pools).await
}

/// Creates or replaces a ConfigMap with one entry.
async fn write(scene: &Scene, name: &str, key: &str, text: &str) -> Result<()> {
    let map: ConfigMap =
        serde_json::from_value(json!({ "metadata": { "name": name }, "data": { key: text } }))?;
    let api = scene.api::<ConfigMap>();
    match api.create(&PostParams::default(), &map).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let patch = Patch::Merge(json!({ "data": { key: text } }));
            api.patch(name, &PatchParams::default(), &patch).await?;
        }
        created => drop(created?),
    }
    Ok(())
}

fn rules(prefix: &str) -> String {
    format!("rules:\n- pattern: kafka.server<type=ReplicaManager, name=(.+)><>Value\n  name: {prefix}_$1\n")
}

fn levels(request: &str) -> String {
    format!(
        "appender.console.type = Console\nappender.console.name = STDOUT\n\
         appender.console.layout.type = PatternLayout\nappender.console.layout.pattern = %p %c %m%n\n\
         rootLogger.level = INFO\nrootLogger.appenderRef.console.ref = STDOUT\n\
         logger.request.name = kafka.request.logger\nlogger.request.level = {request}\n"
    )
}

async fn without_the_right(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("the operator may not get nodes");
    cluster.until_warned("RackUnknown", &["forbidden", "racks: true"], STARTING).await
}

async fn racks(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("brokers know their rack");
    let tools = ConsoleTools::new(cluster.scene, "around-brokers-1", &cluster.bootstrap().await?);
    let racks = tools.racks().await?;
    let expected: BTreeMap<i32, String> = racks.keys().map(|id| (*id, "row-7".to_owned())).collect();
    ensure!(racks.len() == 2 && racks == expected, "the brokers are in the racks {racks:?}");
    Ok(())
}

/// Which containers run: pods by UID, and how often each was started anew.
async fn lives(cluster: &Cluster<'_>) -> Result<BTreeMap<String, (String, i32)>> {
    let pods = cluster.scene.api::<Pod>().list(&cluster.listed()).await?;
    let restarts = |pod: &Pod| {
        let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        containers.into_iter().flatten().map(|container| container.restart_count).sum()
    };
    Ok(pods.iter().map(|pod| (pod.name_any(), (pod.uid().unwrap_or_default(), restarts(pod)))).collect())
}

/// Reads again and again what nobody tells changes of: files in pods, and what is made of them.
async fn until_text(
    what: &str,
    mut read: impl AsyncFnMut() -> Result<String>,
    found: impl Fn(&str) -> bool,
) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < REFRESHED {
        if found(&read().await?) {
            return Ok(());
        }
        tokio::time::sleep(PACE).await;
    }
    bail!("waited {} s in vain for {what}", REFRESHED.as_secs())
}

async fn metrics(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("reading metrics");
    let namespace = &cluster.scene.namespace;
    for pod in lives(cluster).await?.into_keys() {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:9404/proxy/metrics");
        let text =
            kubectl::run(&["get", "--raw", &path]).await.with_context(|| format!("metrics of {pod}"))?;
        ensure!(text.contains("\nfirst_LeaderCount "), "{pod} has other metrics:\n{text}");
    }
    cluster.scene.step("changing the rules of metrics");
    write(cluster.scene, "rules", "rules.yml", &rules("second")).await?;
    let path = format!("/api/v1/namespaces/{namespace}/pods/around-brokers-1:9404/proxy/metrics");
    until_text(
        "metrics by the new rules",
        async || kubectl::run(&["get", "--raw", &path]).await,
        |text| text.contains("\nsecond_LeaderCount "),
    )
    .await
}

async fn log(cluster: &Cluster<'_>) -> Result<String> {
    let namespace = &cluster.scene.namespace;
    kubectl::run(&["logs", "--namespace", namespace, "around-both-0", "--container=kafka"]).await
}

async fn logging(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("changing the level of a logger, in the user's own file");
    let is_told = |text: &str| text.contains("DEBUG kafka.request.logger ");
    ensure!(!is_told(&log(cluster).await?), "requests are logged already");
    write(cluster.scene, "levels", "log4j2.properties", &levels("DEBUG")).await?;
    until_text("requests in the log", async || log(cluster).await, is_told).await?;

    cluster.scene.step("changing a level inline");
    let loggers = json!({ "org.apache.kafka.clients.NetworkClient": "DEBUG" });
    let patch = json!({ "spec": { "kafka": { "logging": { "type": "inline", "loggers": loggers, "valueFrom": null } } } });
    let api = cluster.scene.api::<Kafka>();
    api.patch(&cluster.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    // The usual layout has the logger behind the words.
    let is_told = |text: &str| text.contains("(org.apache.kafka.clients.NetworkClient)");
    until_text("connections in the log", async || log(cluster).await, is_told).await
}

/// What is lost is told, and takes nothing away.
async fn lost(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("the rules of metrics are deleted");
    let api = cluster.scene.api::<ConfigMap>();
    api.delete("rules", &DeleteParams::default()).await?;
    cluster.until_warned("ConfigurationKept", &["'rules'", "no such ConfigMap"], ACTING).await?;
    let map = api.get("around-brokers-1").await?;
    let kept = map.data.unwrap_or_default().remove("metrics-config.yml").unwrap_or_default();
    ensure!(kept == rules("second"), "the node has other rules: {kept:?}");
    write(cluster.scene, "rules", "rules.yml", &rules("second")).await?;
    cluster
        .until_status("no warning", ACTING, |_, status| {
            let said = warnings(status.conditions.as_ref());
            (!said.iter().any(|warning| warning.contains("ConfigurationKept"))).then_some(())
        })
        .await
}
