//! Small clusters. Size is left out wherever it does not matter: a JVM costs ten seconds of a core.

use anyhow::{Context, Result};
use karst_api::{Kafka, KafkaNodePool};
use serde_json::{Value, json};

/// The version that most stories run: the one that users get who name none.
pub const VERSION: &str = karst_core::versions::DEFAULT;
/// The metadata version that goes with it.
pub const METADATA_VERSION: &str = "4.3-IV0";
/// The oldest line that is supported.
pub const OLD_VERSION: &str = "3.9.1";

/// A cluster with one plain listener, whose topics need one broker only.
pub fn kafka(name: &str) -> Value {
    json!({
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "Kafka",
        "metadata": { "name": name },
        "spec": { "kafka": {
            "version": VERSION,
            "listeners": [{ "name": "plain", "port": 9092, "type": "internal", "tls": false }],
            // A node of a story lives for minutes: a third of what its start costs is optimising for hours.
            "jvmOptions": { "-XX": { "TieredStopAtLevel": "1" } },
            "config": {
                "offsets.topic.replication.factor": 1,
                "transaction.state.log.replication.factor": 1,
                "transaction.state.log.min.isr": 1,
                "default.replication.factor": 1,
                "min.insync.replicas": 1,
            },
        }},
    })
}

/// A cluster whose topics have three copies, and need two of them.
pub fn replicated(name: &str) -> Value {
    let mut kafka = kafka(name);
    for key in ["default.replication.factor", "offsets.topic.replication.factor"] {
        kafka["spec"]["kafka"]["config"][key] = json!(3);
    }
    kafka["spec"]["kafka"]["config"]["min.insync.replicas"] = json!(2);
    kafka
}

/// A pool whose nodes run.
pub fn pool(cluster: &str, name: &str, roles: &[&str], replicas: u32) -> Value {
    json!({
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaNodePool",
        "metadata": { "name": name, "labels": { "strimzi.io/cluster": cluster } },
        "spec": {
            "replicas": replicas,
            "roles": roles,
            "storage": { "type": "ephemeral" },
            "resources": { "requests": { "cpu": "50m", "memory": "512Mi" }, "limits": { "memory": "1Gi" } },
        },
    })
}

/// A pool whose nodes run, on disks that go with them.
pub fn pool_with_claims(cluster: &str, name: &str, roles: &[&str], replicas: u32) -> Value {
    let mut pool = pool(cluster, name, roles, replicas);
    pool["spec"]["storage"] = claims(true);
    pool
}

/// Three brokers, and three controllers beside them.
pub fn separate(cluster: &str) -> [Value; 2] {
    [("brokers", "broker"), ("controllers", "controller")]
        .map(|(name, role)| pool_with_claims(cluster, name, &[role], 3))
}

/// A pool whose nodes no machine is large enough for: its pods are made, but no JVM starts.
pub fn paper_pool(cluster: &str, name: &str, roles: &[&str], replicas: u32) -> Value {
    let mut pool = pool(cluster, name, roles, replicas);
    pool["spec"]["resources"] = json!({ "requests": { "memory": "64Ti" } });
    pool
}

/// Storage that outlives pods, and the cluster too when `delete` is false.
pub fn claims(delete: bool) -> Value {
    json!({ "type": "persistent-claim", "size": "1Gi", "deleteClaim": delete })
}

/// A `Kafka` from its JSON.
pub fn typed_kafka(value: &Value) -> Result<Kafka> {
    serde_json::from_value(value.clone()).context("this is not a Kafka")
}

/// A `KafkaNodePool` from its JSON.
pub fn typed_pool(value: &Value) -> Result<KafkaNodePool> {
    serde_json::from_value(value.clone()).context("this is not a KafkaNodePool")
}

/// A pod with Kafka's programs that Karst knows nothing of, as restricted as its own are.
pub fn pod_with_kafka(name: &str, command: &[&str]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": "kafka",
                "image": format!("docker.io/apache/kafka:{VERSION}"),
                "imagePullPolicy": "Never",
                "command": command,
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            }],
        },
    })
}
