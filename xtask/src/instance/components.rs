//! The components of an instance: what they are called, how they are started, and when they are ready.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::process::{self, Process};
use super::{Instance, configuration, forward, namespaces};
use crate::binaries::Binaries;
use crate::kubectl::Kubectl;
use crate::steps::step;
use crate::{command, interrupt};

const RUNTIME: &str = "containerd";
const STORE: &str = "etcd";
const API: &str = "kube-apiserver";
const DOOR: &str = "forward";

/// What needs nothing but an API server that answers.
const AFTER_API: [&str; 6] =
    ["kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "coredns", "volume-provisioner"];

/// A loaded machine with two cores needs 15 seconds; this is for much worse ones.
const PATIENCE: Duration = Duration::from_secs(120);

/// Every component, in the order in which they are started.
pub(crate) fn all() -> impl Iterator<Item = &'static str> {
    [namespaces::HOLDER, RUNTIME, STORE, API, DOOR].into_iter().chain(AFTER_API)
}

/// Starts whatever does not run, and waits until the node is ready for pods.
pub(crate) fn start(instance: &Instance, binaries: &Binaries) -> Result<Kubectl> {
    step("Starting containerd, etcd and the API server", || {
        for component in [RUNTIME, STORE, API] {
            ensure_running(instance, binaries, component)?;
        }
        open_door(instance)?;
        await_api(instance, binaries)
    })?;
    let kubectl = Kubectl::of_instance(instance, binaries);
    step("Starting the controllers, the kubelet and DNS", || {
        for component in AFTER_API {
            ensure_running(instance, binaries, component)?;
        }
        kubectl.apply_text(include_str!("../../../local/config/storage-class.yaml"))?;
        await_node(instance, &kubectl)?;
        await_dns(instance)
    })?;
    Ok(kubectl)
}

/// The certificates, keys and kubeconfigs of a new instance.
pub(crate) fn write_identities(instance: &Instance, binaries: &Binaries) -> Result<()> {
    command::run(
        Command::new(binaries.program("identities"))
            .arg("--directory")
            .arg(instance.identities())
            .args(["--node", configuration::NODE])
            .args(["--address", configuration::GATEWAY, "--address", configuration::API_SERVICE])
            .args(["--server", &forward::server(configuration::API_PORT)]),
    )
}

/// Whether the instance runs other programs than those that this checkout builds.
pub(crate) fn is_outdated(instance: &Instance, binaries: &Binaries) -> bool {
    let running = instance.process(API).and_then(Process::program);
    let built = std::fs::canonicalize(binaries.program(API)).ok();
    running.is_some() && running != built
}

fn is_running(instance: &Instance, component: &str) -> bool {
    instance.process(component).is_some_and(Process::is_alive)
}

fn ensure_running(instance: &Instance, binaries: &Binaries, component: &str) -> Result<()> {
    if is_running(instance, component) {
        return Ok(());
    }
    let program =
        if component == RUNTIME { component.into() } else { binaries.program(component).into_os_string() };
    let mut command = namespaces::inside_at(instance, instance.state(), program)?;
    command.args(arguments(component, instance.state(), instance));
    let membership = instance.cgroup().membership()?;
    process::start(&command, &membership, &instance.log(component))?.record(&instance.record(component))
}

fn arguments(component: &str, state: &Path, instance: &Instance) -> Vec<String> {
    let state = state.to_string_lossy();
    let identity = |name: &str| format!("{state}/identities/{name}");
    let kubeconfig = |flag: &str, name: &str| format!("--{flag}={state}/identities/{name}.kubeconfig");
    match component {
        "containerd" => vec![format!("--config={state}/config/containerd.toml")],
        "etcd" => vec![
            format!("--data-dir={state}/etcd"),
            "--listen-client-urls=http://127.0.0.1:2379".into(),
            "--advertise-client-urls=http://127.0.0.1:2379".into(),
            "--listen-peer-urls=http://127.0.0.1:2380".into(),
            // The cluster does not outlive the machine, so its store need not outlive a power cut.
            "--unsafe-no-fsync".into(),
            "--log-level=warn".into(),
        ],
        "kube-apiserver" => vec![
            "--etcd-servers=http://127.0.0.1:2379".into(),
            "--bind-address=0.0.0.0".into(),
            format!("--secure-port={}", configuration::API_PORT),
            format!("--advertise-address={}", configuration::GATEWAY),
            format!("--service-cluster-ip-range={}", configuration::SERVICES),
            format!("--tls-cert-file={}", identity("apiserver.crt")),
            format!("--tls-private-key-file={}", identity("apiserver.key")),
            format!("--client-ca-file={}", identity("ca.crt")),
            format!("--kubelet-certificate-authority={}", identity("ca.crt")),
            format!("--kubelet-client-certificate={}", identity("apiserver-kubelet-client.crt")),
            format!("--kubelet-client-key={}", identity("apiserver-kubelet-client.key")),
            "--kubelet-preferred-address-types=InternalIP".into(),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
            format!("--service-account-key-file={}", identity("service-accounts.pub")),
            format!("--service-account-signing-key-file={}", identity("service-accounts.key")),
            "--authorization-mode=Node,RBAC".into(),
            "--enable-admission-plugins=NodeRestriction".into(),
            "--allow-privileged=true".into(),
            format!("--audit-policy-file={state}/config/audit-policy.yaml"),
            format!("--audit-log-path={}", instance.audit_log().display()),
            "--audit-log-maxsize=100".into(),
            "--audit-log-maxbackup=2".into(),
        ],
        "kube-controller-manager" => vec![
            kubeconfig("kubeconfig", "controller-manager"),
            "--bind-address=127.0.0.1".into(),
            // One replica needs no election, and an idle cluster is quieter without its renewals.
            "--leader-elect=false".into(),
            format!("--flex-volume-plugin-dir={state}/kubelet/volume-plugins"),
            "--use-service-account-credentials=true".into(),
            format!("--service-account-private-key-file={}", identity("service-accounts.key")),
            format!("--root-ca-file={}", identity("ca.crt")),
            format!("--cluster-signing-cert-file={}", identity("ca.crt")),
            format!("--cluster-signing-key-file={}", identity("ca.key")),
        ],
        "kube-scheduler" => vec![
            kubeconfig("kubeconfig", "scheduler"),
            "--bind-address=127.0.0.1".into(),
            "--leader-elect=false".into(),
        ],
        "kubelet" => vec![
            kubeconfig("kubeconfig", "kubelet"),
            format!("--config={state}/config/kubelet.yaml"),
            format!("--root-dir={state}/kubelet"),
            format!("--cert-dir={state}/kubelet/pki"),
            format!("--hostname-override={}", configuration::NODE),
            format!("--node-ip={}", configuration::GATEWAY),
        ],
        "kube-proxy" => vec![format!("--config={state}/config/kube-proxy.yaml")],
        "coredns" => vec![format!("-conf={state}/config/Corefile")],
        "volume-provisioner" => {
            vec![kubeconfig("kubeconfig", "volumes"), format!("--root={state}/volumes")]
        }
        _ => Vec::new(),
    }
}

/// Starts the process that lets the machine's own loopback reach the API server.
fn open_door(instance: &Instance) -> Result<()> {
    if is_running(instance, DOOR) {
        return Ok(());
    }
    let listener = forward::listen(instance)?;
    forward::write_kubeconfig(instance, &listener)?;
    let us = std::env::current_exe().context("finding our own program")?;
    let mut command = namespaces::inside_at(instance, instance.state(), us)?;
    command.arg(DOOR);
    let errors = std::fs::File::create(instance.log(DOOR))?;
    let membership = instance.cgroup().membership()?;
    let process = process::start_with(&command, &membership, |command| {
        command.stdin(std::os::fd::OwnedFd::from(listener)).stdout(Stdio::null()).stderr(errors);
    })?;
    process.record(&instance.record(DOOR))
}

fn await_api(instance: &Instance, binaries: &Binaries) -> Result<()> {
    let kubectl = Kubectl::of_instance(instance, binaries);
    eventually(instance, &[RUNTIME, STORE, API, DOOR], "the API server does not answer", || {
        kubectl.output(["get", "--raw=/readyz"]).is_ok()
    })
}

fn await_node(instance: &Instance, kubectl: &Kubectl) -> Result<()> {
    const READY: &str = r#"jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}"#;
    eventually(instance, &AFTER_API, "the node does not become Ready", || {
        let node = kubectl.output(["get", "nodes", "-o", READY]);
        // Pods are refused until their namespace's service account exists.
        node.is_ok_and(|ready| ready == "True")
            && kubectl.output(["get", "serviceaccount", "default", "-n", "default"]).is_ok()
    })
}

/// Asks from inside, as pods and tests will.
fn await_dns(instance: &Instance) -> Result<()> {
    eventually(instance, &["coredns"], "DNS does not answer", || {
        namespaces::inside(instance, "getent")
            .and_then(|mut command| {
                command::run(command.args(["hosts", "kubernetes.default.svc.cluster.local"]))
            })
            .is_ok()
    })
}

/// Waits for a condition, and gives up early when a component that it needs has ended.
fn eventually(
    instance: &Instance,
    needs: &[&str],
    otherwise: &str,
    mut condition: impl FnMut() -> bool,
) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        interrupt::check()?;
        if condition() {
            return Ok(());
        }
        if let Some(ended) = needs.iter().find(|component| !is_running(instance, component)) {
            bail!("{ended} ended unexpectedly; its last words:\n{}", command::tail(&instance.log(ended)));
        }
        if Instant::now() > deadline {
            bail!(
                "{otherwise} after {} s; see the logs in {}",
                PATIENCE.as_secs(),
                instance.state().join("logs").display()
            );
        }
        thread::sleep(Duration::from_millis(100));
    }
}
