//! Disks of a static quorum, formatted by hand as an older Kafka may have left them, and the resources of a cluster that finds them:
//! three nodes of a pool `both` that are brokers too.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use karst_api::Kafka;
use karst_core::names::PAUSE_ANNOTATION;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, STARTING};
use crate::manifests::{pod_with_kafka, typed_kafka};
use crate::story::Scene;
use crate::{kubectl, wait};

const CLUSTER_ID: &str = "c3RhdGljIHF1b3J1bQ";
/// Its nodes.
pub const NODES: [i32; 3] = [0, 1, 2];

/// Formats the disks, and creates the resources of a cluster that was there before: its status knows the id, and nothing else.
pub async fn find<'a>(scene: &'a Scene, kafka: &Value, pools: &[Value]) -> Result<Cluster<'a>> {
    scene.step("formatting the disks of a static quorum by hand");
    let mut kafka = typed_kafka(kafka)?;
    let cluster = Cluster::named(scene, &kafka.name_any());
    for node in NODES {
        format_disk(&cluster, node).await?;
    }
    kafka.annotations_mut().insert(PAUSE_ANNOTATION.to_owned(), "true".to_owned());
    cluster.create_kafka(&kafka).await?;
    let status = Patch::Merge(json!({ "status": { "clusterId": CLUSTER_ID } }));
    scene.api::<Kafka>().patch_status(&cluster.name, &PatchParams::default(), &status).await?;
    cluster.create_pools(pools).await?;
    cluster.annotate(PAUSE_ANNOTATION, None).await?;
    Ok(cluster)
}

fn host(cluster: &Cluster<'_>, node: i32) -> String {
    let (name, namespace) = (&cluster.name, &cluster.scene.namespace);
    format!("{name}-both-{node}.{name}-kafka-brokers.{namespace}.svc.cluster.local")
}

/// As a person would do it: without a word about voters but in the settings.
async fn format_disk(cluster: &Cluster<'_>, node: i32) -> Result<()> {
    let scene = cluster.scene;
    let voters: Vec<_> = NODES.iter().map(|one| format!("{one}@{}:9090", host(cluster, *one))).collect();
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
    let claim = format!("data-{}-both-{node}", cluster.name);
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
