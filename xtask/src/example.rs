//! The quickstart: a Kafka cluster that is applied, watched until it is ready, and shown.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::kubectl::Kubectl;
use crate::paths;
use crate::steps::{headline, note, step};

const NAMESPACE: &str = "kafka";
const MANIFEST: &str = "deploy/examples/quickstart.yaml";

/// Two busy cores need less than one minute for six brokers and controllers.
const PATIENCE: Duration = Duration::from_secs(600);

/// How the user reaches the cluster, as printed in the hints.
#[derive(Debug)]
pub(crate) struct Access {
    /// What to type for kubectl, such as `cargo xtask kubectl --`.
    pub kubectl: String,
    /// What to type before a program that talks to Kafka from this machine, where that is possible.
    pub inside: Option<String>,
}

pub(crate) fn run(kubectl: &Kubectl, access: &Access) -> Result<()> {
    step(format!("Applying {MANIFEST} in the namespace {NAMESPACE}"), || apply(kubectl))?;
    step("Waiting until Kafka is ready", || await_ready(kubectl))?;
    show(kubectl, access)
}

fn apply(kubectl: &Kubectl) -> Result<()> {
    let namespace = serde_json::json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE },
    });
    kubectl.apply_text(&namespace.to_string())?;
    let manifest = paths::checkout().join(MANIFEST);
    let text =
        std::fs::read_to_string(&manifest).with_context(|| format!("reading {}", manifest.display()))?;
    kubectl.apply_text_in(NAMESPACE, &text)
}

/// Follows the pods and the conditions, and prints each change once.
fn await_ready(kubectl: &Kubectl) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut shown = BTreeMap::new();
    loop {
        let clusters = items(&kubectl.json(["get", "kafka", "-n", NAMESPACE])?);
        let pods = items(&kubectl.json(["get", "pods", "-n", NAMESPACE])?);
        let states = pods.iter().map(|pod| (name(pod), pod_state(pod)));
        for (what, state) in states.chain(clusters.iter().map(|kafka| (name(kafka), cluster_state(kafka)))) {
            if shown.get(&what) != Some(&state) {
                note(format!("{what}: {state}"));
                shown.insert(what, state);
            }
        }
        if !clusters.is_empty() && clusters.iter().all(is_ready) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!(
                "Kafka is not ready after {} minutes. `cargo xtask logs` shows what the operator says, and \
                 `cargo xtask kubectl -- describe pods -n {NAMESPACE}` what the pods wait for",
                PATIENCE.as_secs() / 60
            );
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn show(kubectl: &Kubectl, access: &Access) -> Result<()> {
    headline("What runs");
    let resources = "kafka,kafkanodepool,strimzipodset,pods";
    print!("{}", kubectl.output(["get", resources, "-n", NAMESPACE])?);

    let Some((pod, bootstrap)) = entrance(kubectl)? else { return Ok(()) };
    headline("The quorum, as Kafka's own tool sees it");
    let tool = "/opt/kafka/bin/kafka-metadata-quorum.sh";
    let describe = ["--bootstrap-server", &bootstrap, "describe", "--status"];
    let exec = ["exec", "-n", NAMESPACE, &pod, "--"];
    print!("{}", kubectl.output(exec.iter().chain(&[tool]).chain(&describe))?);

    let exec = format!("{} exec -it -n {NAMESPACE} {pod} -- /opt/kafka/bin", access.kubectl);
    headline("Produce and consume");
    println!("  {exec}/kafka-console-producer.sh --bootstrap-server {bootstrap} --topic hello");
    println!(
        "  {exec}/kafka-console-consumer.sh --bootstrap-server {bootstrap} --topic hello --from-beginning"
    );
    if let Some(inside) = &access.inside {
        println!("\n  echo hello | {inside} kcat -b {bootstrap} -t hello -P");
        println!("  {inside} kcat -b {bootstrap} -t hello -C -e");
    }
    Ok(())
}

/// A pod that runs, and the address at which it finds the brokers.
fn entrance(kubectl: &Kubectl) -> Result<Option<(String, String)>> {
    let clusters = items(&kubectl.json(["get", "kafka", "-n", NAMESPACE])?);
    let pods = items(&kubectl.json(["get", "pods", "-n", NAMESPACE])?);
    let bootstrap = clusters
        .iter()
        .find_map(|kafka| kafka.pointer("/status/listeners/0/bootstrapServers")?.as_str().map(str::to_owned));
    let pod = pods.iter().find(|pod| pod_state(pod) == READY).map(name);
    Ok(pod.zip(bootstrap))
}

fn items(list: &Value) -> Vec<Value> {
    list["items"].as_array().cloned().unwrap_or_default()
}

fn name(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if kind == "pod" { name.to_owned() } else { format!("{kind} {name}") }
}

const READY: &str = "ready";

/// What a pod is doing, in as few words as possible.
fn pod_state(pod: &Value) -> String {
    if condition(pod, "Ready").is_some_and(|condition| condition["status"] == "True") {
        return READY.to_owned();
    }
    let waits = |container: &Value| {
        container.pointer("/state/waiting/reason").and_then(Value::as_str).map(str::to_owned)
    };
    let containers = ["containerStatuses", "initContainerStatuses"]
        .into_iter()
        .flat_map(|kind| pod["status"][kind].as_array().cloned().unwrap_or_default());
    let phase = pod["status"]["phase"].as_str().unwrap_or("Unknown").to_lowercase();
    match containers.into_iter().find_map(|container| waits(&container)) {
        Some(reason) if reason != "PodInitializing" && reason != "ContainerCreating" => {
            format!("{phase} ({reason})")
        }
        _ => phase,
    }
}

fn cluster_state(kafka: &Value) -> String {
    match condition(kafka, "Ready") {
        None => "not seen by the operator yet".to_owned(),
        Some(_) if is_ready(kafka) => READY.to_owned(),
        Some(ready) => {
            let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
            format!("not ready: {} {}", text("reason"), text("message")).trim_end().to_owned()
        }
    }
}

/// Ready, and for what was asked last.
fn is_ready(kafka: &Value) -> bool {
    let is_current = kafka["status"]["observedGeneration"] == kafka["metadata"]["generation"];
    is_current && condition(kafka, "Ready").is_some_and(|condition| condition["status"] == "True")
}

fn condition(object: &Value, kind: &str) -> Option<Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn readiness_of_an_older_generation_does_not_count() {
        let kafka = |observed: u32| {
            json!({
                "metadata": { "generation": 2 },
                "status": { "observedGeneration": observed, "conditions": [{ "type": "Ready", "status": "True" }] },
            })
        };
        assert!(!is_ready(&kafka(1)));
        assert!(is_ready(&kafka(2)));
    }

    #[test]
    fn a_pod_that_cannot_start_says_why() {
        let pod = json!({ "status": {
            "phase": "Pending",
            "containerStatuses": [{ "state": { "waiting": { "reason": "ErrImageNeverPull" } } }],
        }});
        assert_eq!(pod_state(&pod), "pending (ErrImageNeverPull)");
    }

    #[test]
    fn a_cluster_that_waits_says_for_what() {
        let kafka = json!({ "status": { "conditions": [
            { "type": "Ready", "status": "False", "reason": "NoNodePools", "message": "no pool names this cluster" },
        ]}});
        assert_eq!(cluster_state(&kafka), "not ready: NoNodePools no pool names this cluster");
        assert_eq!(cluster_state(&json!({})), "not seen by the operator yet");
    }
}
