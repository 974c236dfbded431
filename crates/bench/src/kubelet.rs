//! A kubelet that runs nothing: it says of every pod that it is ready.

use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// How many pods are spoken for at the same time. More would only take processor time from the operator.
const AT_ONCE: usize = 10;

/// Ends when dropped; pods stay as they were called last.
#[derive(Debug)]
pub(crate) struct Kubelet(JoinHandle<()>);

impl Kubelet {
    /// Begins with all pods that there are, in all namespaces.
    pub(crate) fn start(client: &Client) -> Self {
        Self(tokio::spawn(run(client.clone())))
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn run(client: Client) {
    let events = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default()).default_backoff();
    let pods = pin!(events.applied_objects().filter_map(async |pod| pod.ok()));
    pods.for_each_concurrent(AT_ONCE, |pod| {
        let client = client.clone();
        async move {
            if is_ready(&pod) || pod.metadata.deletion_timestamp.is_some() {
                return;
            }
            let api = Api::<Pod>::namespaced(client, &pod.namespace().unwrap_or_default());
            let patch = Patch::Merge(ready(Timestamp::now()));
            // One that was deleted meanwhile needs no word.
            let _ = api.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await;
        }
    })
    .await;
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True")
}

fn ready(now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        .map(|kind| json!({ "type": kind, "status": "True", "lastTransitionTime": now }));
    json!({ "status": {
        "phase": "Running",
        "startTime": now,
        "hostIP": "127.0.0.1",
        "podIP": "127.0.0.1",
        "conditions": conditions,
        "containerStatuses": [{
            "name": "kafka", "image": "kafka", "imageID": "kafka", "ready": true, "started": true,
            "restartCount": 0, "state": { "running": { "startedAt": now } },
        }],
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_ready_when_it_was_called_so() {
        let pod = json!({ "metadata": { "name": "c-brokers-0" } });
        let mut called = pod.clone();
        called["status"] = ready(Timestamp::UNIX_EPOCH)["status"].clone();
        assert!(is_ready(&serde_json::from_value(called).unwrap()));
        assert!(!is_ready(&serde_json::from_value(pod).unwrap()));
    }
}
