//! The installed operator: how many replicas there are, which one leads, and how to kill one.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::watcher::Config;
use kube::{Api, Client, ResourceExt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::cluster::is_pod_ready;
use crate::wait;

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

    /// Runs `during` with this many replicas, and has one replica again afterwards, whatever happened.
    pub async fn with_replicas<T>(
        &self,
        replicas: usize,
        during: impl AsyncFnOnce() -> Result<T>,
    ) -> Result<T> {
        self.scale(replicas).await?;
        let result = Box::pin(during()).await;
        self.scale(1).await?;
        result
    }

    async fn scale(&self, replicas: usize) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), NAMESPACE);
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        deployments.patch_scale(NAME, &PatchParams::default(), &patch).await?;
        let what = format!("{replicas} replicas of the operator");
        wait::until(self.pods(), Config::default().labels(PODS), &what, STARTING, |pods| {
            (pods.len() == replicas && pods.values().all(is_pod_ready)).then_some(())
        })
        .await
    }

    /// Waits until one of the replicas leads, other than `but`. Returns its pod.
    pub async fn until_led(&self, but: Option<&str>) -> Result<Pod> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let what = format!("a leader other than {but:?}");
        let holder = wait::until_one(leases, NAME, &what, STARTING, |lease| {
            let holder = lease?.spec.as_ref()?.holder_identity.clone()?;
            (!holder.is_empty() && Some(holder.as_str()) != but).then_some(holder)
        })
        .await?;
        self.pods().get(&holder).await.with_context(|| format!("the leader {holder} is not a pod"))
    }

    /// Kills the operator's process in a pod, without a chance to say goodbye. Its container is started anew.
    pub fn kill(pod: &Pod) -> Result<()> {
        let process = process_of(pod)?;
        kill(process, Signal::SIGKILL).with_context(|| format!("killing process {process}"))
    }

    /// Kills the operator's process, and takes away its pod before the container is started anew.
    pub async fn kill_for_good(&self, pod: &Pod) -> Result<()> {
        Self::kill(pod)?;
        self.pods().delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }
}

/// The operator's process in a pod. Its control group carries the pod's UID, so no other instance's is found.
fn process_of(pod: &Pod) -> Result<Pid> {
    let uid = pod.uid().context("a pod without UID")?;
    for entry in std::fs::read_dir("/proc")?.filter_map(std::io::Result::ok) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if is_operator(&entry.path()) && is_in_pod(&entry.path(), &uid) {
            return Ok(Pid::from_raw(pid));
        }
    }
    bail!("pod {} has no process of the operator", pod.name_any())
}

fn is_operator(process: &Path) -> bool {
    let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
    command.split(|byte| *byte == 0).next().is_some_and(|program| program.ends_with(b"/karst-operator"))
}

/// Runtimes write the UID with dashes or, in systemd's units, with underscores.
fn is_in_pod(process: &Path, uid: &str) -> bool {
    let groups = std::fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    groups.contains(uid) || groups.contains(&uid.replace('-', "_"))
}
