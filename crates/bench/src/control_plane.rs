//! A real API server and its store, on free ports of the loopback, with files in a directory of their own.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::api::GetParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Request;
use kube::{Client, Config};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::process::Process;
use crate::{audit, usage};

/// Two busy cores needed 4 to 12 seconds until all was installed; this is for much busier ones.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long one look at how busy the API server is takes.
const LOOK: Duration = Duration::from_millis(500);
/// The share of a core below which the API server counts as idle.
const IDLE: f64 = 0.1;

/// Ended and removed when dropped, in the order of the fields.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    controllers: Option<Process>,
    api: Process,
    store: Process,
    directory: TempDir,
}

impl ControlPlane {
    /// Starts both, and waits until the API server is ready. The requests of `audited` are logged.
    pub(crate) async fn start(kubernetes: &Path, audited: &str) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("karst-bench-")
            .tempdir()
            .context("no temporary directory can be made; set TMPDIR to a place that can be written")?;
        let [store_port, peer_port, api_port] = free_ports()?;
        let here = directory.path();
        let server = format!("https://127.0.0.1:{api_port}");
        write_identities(kubernetes, here, &server)?;
        fs::write(here.join("audit-policy.json"), audit::policy(audited))?;
        let store = start_store(kubernetes, here, store_port, peer_port)?;
        let api = start_api(kubernetes, here, store_port, api_port)?;
        let mut control_plane = Self { controllers: None, api, store, directory };
        control_plane.await_ready().await?;
        Ok(control_plane)
    }

    /// Starts the controllers that remove what belongs to nobody any more. Without them nothing that was deleted goes.
    pub(crate) fn start_controllers(&mut self, kubernetes: &Path) -> Result<()> {
        let [port] = free_ports()?;
        let here = self.directory.path();
        let mut controllers = called(kubernetes, "kube-controller-manager", here);
        controllers.arg(format!("--secure-port={port}")).args([
            "--kubeconfig=identities/controller-manager.kubeconfig",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            "--service-account-private-key-file=identities/service-accounts.key",
            "--root-ca-file=identities/ca.crt",
            "--controllers=garbage-collector-controller,namespace-controller,persistentvolumeclaim-protection-controller",
        ]);
        self.controllers = Some(Process::start("kube-controller-manager", &mut controllers, here)?);
        Ok(())
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.directory.path().join("audit.log")
    }

    /// The administrator's, made by `identities`.
    pub(crate) fn kubeconfig(&self) -> Result<Kubeconfig> {
        let path = self.directory.path().join("identities/admin.kubeconfig");
        Kubeconfig::read_from(&path).with_context(|| format!("reading {}", path.display()))
    }

    pub(crate) async fn client(&self) -> Result<Client> {
        let mut config =
            Config::from_custom_kubeconfig(self.kubeconfig()?, &KubeConfigOptions::default()).await?;
        // What is measured must not be hidden behind attempts that nobody sees.
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    /// Processor time that both have used.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        Ok(usage::cpu(self.api.pid())? + usage::cpu(self.store.pid())?)
    }

    /// Waits until the API server has done what a new definition makes it do behind the scenes.
    pub(crate) async fn await_idle(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let before = self.cpu()?;
            sleep(LOOK).await;
            if self.cpu()? - before < LOOK.mul_f64(IDLE) {
                return Ok(());
            }
            self.must_run()?;
        }
        bail!("the API server has been busy for {} s with nothing to do", PATIENCE.as_secs())
    }

    pub(crate) fn must_run(&mut self) -> Result<()> {
        if let Some(controllers) = &mut self.controllers {
            controllers.must_run()?;
        }
        self.store.must_run()?;
        self.api.must_run()
    }

    async fn await_ready(&mut self) -> Result<()> {
        let client = self.client().await?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let request = Request::new("").get("readyz", &GetParams::default())?;
            if client.request_text(request).await.is_ok() {
                return Ok(());
            }
            self.must_run()?;
            if Instant::now() > deadline {
                bail!(
                    "the API server is not ready after {} s; its last words:\n{}",
                    PATIENCE.as_secs(),
                    self.api.last_words()
                );
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Ports that nobody listens on. All are held until all are known, so they differ.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut ports = [0; N];
    let mut held = Vec::new();
    for port in &mut ports {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port of the loopback is free")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

/// The program does what the name it is called by says.
fn called(kubernetes: &Path, name: &str, here: &Path) -> Command {
    let mut command = Command::new(kubernetes);
    command.arg0(name).current_dir(here);
    command
}

fn write_identities(kubernetes: &Path, here: &Path, server: &str) -> Result<()> {
    let output = called(kubernetes, "identities", here)
        .args(["--directory=identities", "--node=none", "--address=127.0.0.1", "--server", server])
        .output()
        .with_context(|| format!("could not start {}", kubernetes.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} could not make certificates:\n{}", kubernetes.display(), said.trim());
    }
    Ok(())
}

fn start_store(kubernetes: &Path, here: &Path, port: u16, peer_port: u16) -> Result<Process> {
    let mut etcd = called(kubernetes, "etcd", here);
    etcd.arg("--data-dir=store")
        .arg(format!("--listen-client-urls=http://127.0.0.1:{port}"))
        .arg(format!("--advertise-client-urls=http://127.0.0.1:{port}"))
        .arg(format!("--listen-peer-urls=http://127.0.0.1:{peer_port}"))
        // The disk of this machine is not what is measured, and nothing is kept.
        .args(["--unsafe-no-fsync", "--log-level=warn"]);
    Process::start("etcd", &mut etcd, here)
}

fn start_api(kubernetes: &Path, here: &Path, store_port: u16, port: u16) -> Result<Process> {
    let mut api = called(kubernetes, "kube-apiserver", here);
    api.arg(format!("--etcd-servers=http://127.0.0.1:{store_port}"))
        .arg(format!("--secure-port={port}"))
        .args([
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            // There is nobody to find this API server, and a loopback address is refused in endpoints.
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--tls-cert-file=identities/apiserver.crt",
            "--tls-private-key-file=identities/apiserver.key",
            "--client-ca-file=identities/ca.crt",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            "--service-account-key-file=identities/service-accounts.pub",
            "--service-account-signing-key-file=identities/service-accounts.key",
            "--authorization-mode=RBAC",
            "--audit-policy-file=audit-policy.json",
            "--audit-log-path=audit.log",
            // Never rotated: one reader follows one file.
            "--audit-log-maxsize=100000",
        ]);
    Process::start("kube-apiserver", &mut api, here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ() {
        let [a, b, c] = free_ports().unwrap();
        assert!(a != b && b != c && a != c);
    }
}
