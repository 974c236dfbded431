//! A cluster with a static quorum, as older operators made them, is run as it is, and becomes a dynamic one under load.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use karst_api::{Kafka, KafkaNodePool, QuorumKind};
use karst_e2e::cluster::{ACTING, Cluster, STARTING, warnings};
use karst_e2e::kafka_tools::ConsoleTools;
use karst_e2e::load::under_load;
use karst_e2e::manifests::{pod_with_kafka, pool_with_claims, replicated, typed_kafka};
use karst_e2e::story::{Scene, story};
use karst_e2e::{kubectl, wait};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

const CLUSTER_ID: &str = "c3RhdGljIHF1b3J1bQ";
const NODES: [i32; 3] = [0, 1, 2];

#[tokio::test]
async fn static_quorum_is_run_as_it_is_and_migrated_under_load() -> Result<()> {
    story("static", Duration::from_secs(900), async |scene| {
        let cluster = create(scene).await?;
        let bootstrap = cluster.bootstrap().await?;
        let tools = ConsoleTools::new(scene, "live-both-0", &bootstrap);
        let voters = tools.voters().await?;
        ensure!(voters.iter().map(|voter| voter.id).eq(NODES), "Kafka says {voters:?}");
        under_load(scene, &bootstrap, async || {
            refuse_to_scale(&cluster).await?;
            migrate(&cluster).await?;
            scale(&cluster).await
        })
        .await?;
        let voters = tools.voters().await?;
        let all_known = voters.iter().all(|voter| voter.directory_id.is_some());
        ensure!(voters.len() == 3 && all_known, "Kafka says {voters:?}");
        Ok(())
    })
    .await
}

/// A static quorum of three nodes that are brokers too, as an older Kafka may have left it.
pub(crate) async fn create(scene: &Scene) -> Result<Cluster<'_>> {
    scene.step("formatting the disks of a static quorum by hand");
    for node in NODES {
        format_disk(scene, node).await?;
    }
    let cluster = find(scene).await?;
    scene.step("waiting until it is ready");
    cluster.until_ready().await?;
    until_kind(&cluster, QuorumKind::Static).await?;
    Ok(cluster)
}

fn host(node: i32, namespace: &str) -> String {
    format!("live-both-{node}.live-kafka-brokers.{namespace}.svc.cluster.local")
}

/// As a person would do it: without a word about voters but in the settings.
async fn format_disk(scene: &Scene, node: i32) -> Result<()> {
    let voters: Vec<_> =
        NODES.iter().map(|one| format!("{one}@{}:9090", host(*one, &scene.namespace))).collect();
    let settings = format!(
        "node.id={node}\nprocess.roles=broker,controller\ncontroller.listener.names=CONTROLPLANE-9090\n\
         listeners=CONTROLPLANE-9090://:9090,REPLICATION-9091://:9091\ninter.broker.listener.name=REPLICATION-9091\n\
         listener.security.protocol.map=CONTROLPLANE-9090:SSL,REPLICATION-9091:SSL\n\
         log.dirs=/var/lib/kafka/data/kafka-log{node}\ncontroller.quorum.voters={}\n",
        voters.join(",")
    );
    let script = format!(
        "printf '%s' \"$SETTINGS\" > /tmp/server.properties && \
         /opt/kafka/bin/kafka-storage.sh format -t {CLUSTER_ID} -c /tmp/server.properties"
    );
    let claim = format!("data-live-both-{node}");
    let manifests = [claim_of(&claim), one_off_pod(node, &claim, &settings, &script)];
    for manifest in manifests {
        kubectl::apply(&scene.namespace, &manifest.to_string()).await?;
    }
    let pods = scene.api::<Pod>();
    let name = format!("format-{node}");
    wait::until_one(pods.clone(), &name, "a formatted disk", STARTING, |pod| {
        (pod?.status.as_ref()?.phase.as_deref() == Some("Succeeded")).then_some(())
    })
    .await?;
    pods.delete(&name, &DeleteParams::default()).await?;
    Ok(())
}

fn claim_of(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    })
}

fn one_off_pod(node: i32, claim: &str, settings: &str, script: &str) -> Value {
    let mut pod = pod_with_kafka(&format!("format-{node}"), &["sh", "-c", script]);
    let container = &mut pod["spec"]["containers"][0];
    container["env"] = json!([{ "name": "SETTINGS", "value": settings }]);
    container["volumeMounts"] = json!([{ "name": "data", "mountPath": "/var/lib/kafka/data" }]);
    pod["spec"]["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }]);
    pod
}

/// The resources of a cluster that was there before: its status knows the id, and nothing else.
async fn find(scene: &Scene) -> Result<Cluster<'_>> {
    let mut kafka = replicated("live");
    kafka["metadata"]["annotations"] = json!({ "strimzi.io/pause-reconciliation": "true" });
    let cluster = Cluster::named(scene, "live");
    cluster.create_kafka(&typed_kafka(&kafka)?).await?;
    let status = Patch::Merge(json!({ "status": { "clusterId": CLUSTER_ID } }));
    scene.api::<Kafka>().patch_status("live", &PatchParams::default(), &status).await?;
    cluster.create_pools(&[pool_with_claims("live", "both", &["controller", "broker"], 3)]).await?;
    cluster.annotate("strimzi.io/pause-reconciliation", None).await?;
    Ok(cluster)
}

async fn until_kind(cluster: &Cluster<'_>, kind: QuorumKind) -> Result<()> {
    let what = format!("a quorum of the kind {kind:?}");
    cluster
        .until_status(&what, STARTING, |_, status| {
            let is_listed = status.initial_controllers.is_some() == (kind == QuorumKind::Dynamic);
            (status.quorum.as_ref()?.kind == Some(kind) && is_listed).then_some(())
        })
        .await
}

async fn refuse_to_scale(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("asking for a fourth controller, which a static quorum cannot have");
    let before = cluster.pod_uids().await?;
    cluster.edit_pool("both", &json!({ "replicas": 4 })).await?;
    let pools = cluster.scene.api::<KafkaNodePool>();
    wait::until_one(pools, "both", "the advice to migrate", ACTING, |pool| {
        let said = warnings(pool?.status.as_ref()?.conditions.as_ref());
        said.iter().any(|warning| warning.contains("strimzi.io/kraft-quorum-migration")).then_some(())
    })
    .await?;
    ensure!(before == cluster.pod_uids().await?, "pods changed");
    cluster.edit_pool("both", &json!({ "replicas": 3 })).await
}

pub(crate) async fn migrate(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("migrating it");
    let before = cluster.pod_uids().await?;
    cluster.annotate("strimzi.io/kraft-quorum-migration", Some("true")).await?;
    until_kind(cluster, QuorumKind::Dynamic).await?;
    cluster.scene.step("waiting until all nodes run without the list of voters");
    let what = "three other pods, all ready";
    wait::until(cluster.scene.api::<Pod>(), cluster.watched(), what, STARTING, |pods| {
        let uids = karst_e2e::cluster::uids(pods);
        let is_new = |(name, uid): (&String, &String)| before.get(name) != Some(uid);
        let ready = pods.values().all(karst_e2e::cluster::is_pod_ready);
        (uids.len() == 3 && uids.iter().all(is_new) && ready).then_some(())
    })
    .await?;
    cluster.until_ready().await?;
    let kafka = cluster.scene.api::<Kafka>().get("live").await?;
    let annotations = kafka.metadata.annotations.unwrap_or_default();
    ensure!(!annotations.contains_key("strimzi.io/kraft-quorum-migration"), "the annotation stays");
    Ok(())
}

/// Now its voters can change.
async fn scale(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("adding two controllers, and taking them away again");
    cluster.create_pools(&[pool_with_claims("live", "more", &["controller"], 2)]).await?;
    cluster.until_voters(&[0, 1, 2, 3, 4]).await?;
    let pools = cluster.scene.api::<KafkaNodePool>();
    pools.delete("more", &DeleteParams::default()).await?;
    cluster.until_voters(&NODES).await?;
    wait::until_one(pools, "more", "the end of pool more", STARTING, |pool| pool.is_none().then_some(()))
        .await?;
    cluster.until_ready().await.map(drop)
}
