//! The processes of pods, as the machine sees them.

use std::path::Path;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The program that Kafka is.
const KAFKA: &str = "java";

/// Sends a signal to the process in a pod whose program ends with `program`.
pub(crate) fn signal(pod: &Pod, program: &str, signal: Signal) -> Result<()> {
    let process = of_pod(pod, program)?;
    kill(process, signal).with_context(|| format!("sending {signal} to process {process}"))
}

/// Does Kafka run in a pod?
pub(crate) fn kafka_runs(pod: &Pod) -> bool {
    of_pod(pod, KAFKA).is_ok()
}

/// Ends Kafka in a pod, without a warning.
pub(crate) fn kill_kafka(pod: &Pod) -> Result<()> {
    signal(pod, KAFKA, Signal::SIGKILL)
}

/// The process of a pod. Its control group carries the pod's UID, so no other instance's is found.
fn of_pod(pod: &Pod, program: &str) -> Result<Pid> {
    let uid = pod.uid().context("a pod without UID")?;
    for entry in std::fs::read_dir("/proc")?.filter_map(std::io::Result::ok) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if runs(&entry.path(), program) && is_in_pod(&entry.path(), &uid) {
            return Ok(Pid::from_raw(pid));
        }
    }
    bail!("pod {} has no process of {program}", pod.name_any())
}

fn runs(process: &Path, program: &str) -> bool {
    let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
    command.split(|byte| *byte == 0).next().is_some_and(|first| first.ends_with(program.as_bytes()))
}

/// Runtimes write the UID with dashes or, in systemd's units, with underscores.
fn is_in_pod(process: &Path, uid: &str) -> bool {
    let groups = std::fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    groups.contains(uid) || groups.contains(&uid.replace('-', "_"))
}
