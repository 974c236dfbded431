//! The processes of pods, as the machine sees them.

use std::path::Path;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The program that Kafka is.
const KAFKA: &str = "java";
/// The class that makes it Kafka, and not one of its tools.
const KAFKA_CLASS: &[u8] = b"kafka.Kafka";
/// How threads begin that read logs, after what Java leaves of their names.
const LOG_READERS: &str = "log-rec";

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
pub fn kill_kafka(pod: &Pod) -> Result<()> {
    signal(pod, KAFKA, Signal::SIGKILL)
}

/// Kafka's process in a pod. Tools in the pod are Java's programs too.
pub(crate) fn kafka_of(pod: &Pod) -> Result<Pid> {
    find(pod, |command| {
        command.first().is_some_and(|first| first.ends_with(KAFKA.as_bytes()))
            && command.contains(&KAFKA_CLASS)
    })
}

/// Does Kafka read its logs? It has threads for that and for nothing else.
pub(crate) fn reads_logs(process: Pid) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    // Threads come and go while they are looked at.
    let mut names = threads.flatten().filter_map(|one| std::fs::read_to_string(one.path().join("comm")).ok());
    names.any(|name| name.starts_with(LOG_READERS))
}

/// Stops the clock for a process.
pub(crate) fn freeze(process: Pid) -> Result<()> {
    kill(process, Signal::SIGSTOP).with_context(|| format!("freezing process {process}"))
}

/// Lets a frozen Kafka go on.
pub(crate) fn wake_kafka(pod: &Pod) -> Result<()> {
    signal(pod, KAFKA, Signal::SIGCONT)
}

/// The process of a pod. Its control group carries the pod's UID, so no other instance's is found.
fn of_pod(pod: &Pod, program: &str) -> Result<Pid> {
    let is_it = |command: &[&[u8]]| command.first().is_some_and(|first| first.ends_with(program.as_bytes()));
    find(pod, is_it).with_context(|| format!("looking for {program}"))
}

/// The process of a pod with such a command line.
fn find(pod: &Pod, is_it: impl Fn(&[&[u8]]) -> bool) -> Result<Pid> {
    let uid = pod.uid().context("a pod without UID")?;
    for entry in std::fs::read_dir("/proc")?.filter_map(std::io::Result::ok) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command: Vec<_> = command.split(|byte| *byte == 0).collect();
        if is_it(&command) && is_in_pod(&entry.path(), &uid) {
            return Ok(Pid::from_raw(pid));
        }
    }
    bail!("pod {} has no such process", pod.name_any())
}

/// Runtimes write the UID with dashes or, in systemd's units, with underscores.
fn is_in_pod(process: &Path, uid: &str) -> bool {
    let groups = std::fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    groups.contains(uid) || groups.contains(&uid.replace('-', "_"))
}
