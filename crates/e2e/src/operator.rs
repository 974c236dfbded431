//! The installed operator: how many replicas there are, which one leads, and how to kill one.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::watcher::Config;
use kube::{Api, Client, ResourceExt};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::cluster::{is_pod_ready, restarts};
use crate::{kubectl, processes, wait};

const NAMESPACE: &str = "karst-system";
const NAME: &str = "karst-operator";
const PODS: &str = "strimzi.io/kind=cluster-operator";
/// Images are there and the operator is small: this is time for a busy machine.
const STARTING: Duration = Duration::from_secs(90);

/// The operator's deployment.
#[derive(Clone)]
pub struct Operator {
    client: Client,
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").finish_non_exhaustive()
    }
}

impl Operator {
    /// The one that `cargo xtask` installed.
    pub fn installed(client: &Client) -> Self {
        Self { client: client.clone() }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Changes the number of replicas. However a story ends, the next one finds a single replica.
    pub async fn scale(&self, replicas: usize) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), NAMESPACE);
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        deployments.patch_scale(NAME, &PatchParams::default(), &patch).await?;
        self.until_replicas(replicas).await
    }

    /// Waits until there are this many replicas, all of them ready.
    pub async fn until_replicas(&self, replicas: usize) -> Result<()> {
        let what = format!("{replicas} replicas of the operator");
        wait::until(self.pods(), Config::default().labels(PODS), &what, STARTING, |pods| {
            (pods.len() == replicas && pods.values().all(is_pod_ready)).then_some(())
        })
        .await
    }

    /// Waits until one of the replicas leads, other than `but`. Returns its pod.
    pub async fn until_led(&self, but: Option<&str>) -> Result<Pod> {
        let mut past: BTreeSet<String> = but.map(str::to_owned).into_iter().collect();
        loop {
            let holder = self.until_held_by_another(&past).await?;
            if let Some(pod) = self.pods().get_opt(&holder).await? {
                return Ok(pod);
            }
            // Its pod is gone, and the lease has not run out yet.
            past.insert(holder);
        }
    }

    async fn until_held_by_another(&self, past: &BTreeSet<String>) -> Result<String> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let what = format!("a leader other than {past:?}");
        wait::until_one(leases, NAME, &what, STARTING, |lease| {
            let holder = lease?.spec.as_ref()?.holder_identity.clone()?;
            (!holder.is_empty() && !past.contains(&holder)).then_some(holder)
        })
        .await
    }

    /// How many passes the leader has begun for clusters in a namespace, by its own metrics.
    pub async fn passes(&self, namespace: &str) -> Result<u64> {
        let leader = self.until_led(None).await?.name_any();
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{leader}:8080/proxy/metrics");
        let metrics = kubectl::run(&["get", "--raw", &path]).await?;
        let series = format!(r#"strimzi_reconciliations_total{{kind="Kafka",namespace="{namespace}"}} "#);
        let value = metrics.lines().find_map(|line| line.strip_prefix(&series));
        value.map_or(Ok(0), |value| value.parse().with_context(|| format!("not a count: {value}")))
    }

    /// How often operators were started again, all replicas together.
    pub async fn restarts(&self) -> Result<i32> {
        let pods = self.pods().list(&ListParams::default().labels(PODS)).await?;
        Ok(pods.iter().map(restarts).sum())
    }

    /// Kills the operator's process in a pod, without a chance to say goodbye. Its container is started anew.
    pub fn kill(pod: &Pod) -> Result<()> {
        signal(pod, Signal::SIGKILL)
    }

    /// Stops the clock for the operator's process in a pod: it neither works nor knows that time goes by.
    pub fn freeze(pod: &Pod) -> Result<()> {
        signal(pod, Signal::SIGSTOP)
    }

    /// Lets a frozen process go on.
    pub fn wake(pod: &Pod) -> Result<()> {
        signal(pod, Signal::SIGCONT)
    }

    /// Waits until the operator in a pod has ended and begun anew. Returns the exit code of the one that ended.
    pub async fn until_restarted(&self, pod: &Pod) -> Result<i32> {
        let name = pod.name_any();
        let what = format!("{name} to end and begin anew");
        wait::until_one(self.pods(), &name, &what, STARTING, |pod| {
            let container = pod?.status.as_ref()?.container_statuses.as_ref()?.first()?;
            let ended = container.last_state.as_ref()?.terminated.as_ref()?;
            container.ready.then_some(ended.exit_code)
        })
        .await
    }

    /// Waits until the operator's process runs again, and kills it.
    pub async fn kill_when_running(&self) -> Result<()> {
        let which = Config::default().labels(PODS);
        wait::until(self.pods(), which, "the operator's process to run", STARTING, |pods| {
            pods.values().find_map(|pod| Self::kill(pod).ok())
        })
        .await
    }

    /// Kills the operator's process, and takes away its pod before the container is started anew.
    pub async fn kill_for_good(&self, pod: &Pod) -> Result<()> {
        Self::kill(pod)?;
        self.pods().delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }
}

fn signal(pod: &Pod, signal: Signal) -> Result<()> {
    processes::signal(pod, "/karst-operator", signal)
}
