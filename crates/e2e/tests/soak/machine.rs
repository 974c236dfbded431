//! Where real nodes run without Karst: in one pod, or here.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use karst_e2e::cluster::STARTING;
use karst_e2e::manifests::pod_with_kafka;
use karst_e2e::story::{Scene, story};
use karst_e2e::{kubectl, wait};
use karst_kafka::Endpoint;
use tokio::process::Command;

/// Within this time Kafka settles, on a machine that has other things to do.
pub(crate) const SETTLES: Duration = Duration::from_secs(90);
const CLUSTER_ID: &str = "Y29uZm9ybWFuY2UgIQ";

/// Does something on a machine: here, if `KARST_KAFKA_HOME` names a directory with Kafka's `libs`, or else in a pod.
#[allow(clippy::print_stderr, reason = "a test tells whoever runs it how far it is")]
pub(crate) async fn on_a_machine(
    name: &str,
    act: impl AsyncFn(&Machine, &dyn Fn(String)) -> Result<()>,
) -> Result<()> {
    if let Ok(home) = std::env::var("KARST_KAFKA_HOME") {
        let scratch = tempfile::tempdir()?;
        let scratch = scratch.path().to_string_lossy().into_owned();
        let machine = Machine { place: Place::Here, host: "127.0.0.1".to_owned(), home, scratch };
        return act(&machine, &|step| eprintln!("{name}: {step}")).await;
    }
    story(name, Duration::from_secs(1800), async |scene| {
        let machine = Machine::in_a_pod(scene).await?;
        act(&machine, &|step| scene.step(step)).await
    })
    .await
}

/// Where the nodes run.
pub(crate) struct Machine {
    place: Place,
    host: String,
    home: String,
    pub(crate) scratch: String,
}

enum Place {
    Here,
    Pod { namespace: String, name: String },
}

impl Machine {
    async fn in_a_pod(scene: &Scene) -> Result<Self> {
        let name = "nodes".to_owned();
        kubectl::apply(&scene.namespace, &pod_with_kafka(&name, &["sleep", "3600"]).to_string()).await?;
        let host = wait::until_one(scene.api::<Pod>(), &name, "a pod that runs", STARTING, |pod| {
            let status = pod?.status.as_ref()?;
            status.pod_ip.clone().filter(|_| status.phase.as_deref() == Some("Running"))
        })
        .await?;
        let place = Place::Pod { namespace: scene.namespace.clone(), name };
        Ok(Self { place, host, home: "/opt/kafka".to_owned(), scratch: "/tmp/conformance".to_owned() })
    }

    pub(crate) async fn run(&self, script: &str) -> Result<String> {
        match &self.place {
            Place::Pod { namespace, name } => {
                kubectl::run(&["exec", "--namespace", namespace, name, "--", "sh", "-ec", script]).await
            }
            Place::Here => {
                let output = Command::new("sh").args(["-ec", script]).output().await?;
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                ensure!(output.status.success(), "{script}: {said}");
                Ok(String::from_utf8_lossy(&output.stdout).into_owned())
            }
        }
    }

    /// The class path of Kafka's own tools.
    pub(crate) fn libs(&self) -> String {
        format!("{}/libs/*", self.home)
    }

    pub(crate) fn endpoint(&self, node: i32) -> Endpoint {
        Endpoint::new(self.host.clone(), 19390 + u16::try_from(node).unwrap_or_default())
    }

    /// Formats an empty disk for a node with these settings, and tells the id of its directory.
    pub(crate) async fn format(&self, node: i32, settings: &str, option: &str) -> Result<String> {
        let Self { scratch, home, .. } = self;
        let script = format!(
            "mkdir -p {scratch}; rm -rf {scratch}/{node}\ncat > {scratch}/{node}.properties <<'END'\n{settings}END\n\
             java -cp '{home}/libs/*' kafka.tools.StorageTool format --cluster-id={CLUSTER_ID} \
             --config={scratch}/{node}.properties {option} >&2\n\
             sed -n 's/^directory.id=//p' {scratch}/{node}/meta.properties"
        );
        Ok(self.run(&script).await?.trim().to_owned())
    }

    pub(crate) async fn start(&self, node: i32) -> Result<()> {
        let Self { scratch, home, .. } = self;
        let script = format!(
            "setsid java -Xmx160m -XX:+UseSerialGC -cp '{home}/libs/*' kafka.Kafka {scratch}/{node}.properties \
             </dev/null >{scratch}/{node}.log 2>&1 &\necho $! > {scratch}/{node}.pid"
        );
        self.run(&script).await.map(drop)
    }

    pub(crate) async fn signal(&self, node: i32, signal: &str) -> Result<()> {
        self.run(&format!("kill -{signal} $(cat {}/{node}.pid)", self.scratch)).await.map(drop)
    }

    pub(crate) async fn is_running(&self, node: i32) -> Result<bool> {
        let script = format!(
            "p=$(cat {}/{node}.pid); if [ -e /proc/$p ] && ! grep -q ') Z' /proc/$p/stat; then echo yes; fi",
            self.scratch
        );
        Ok(!self.run(&script).await?.is_empty())
    }

    /// What a node that died said about it.
    pub(crate) async fn last_words(&self, node: i32) -> Result<String> {
        self.run(&format!(
            "grep -A 3 -e ERROR -e FATAL {}/{node}.log || tail -n 20 {0}/{node}.log",
            self.scratch
        ))
        .await
    }

    /// Nobody may be there to take note of its death, so it is dead when it does nothing any more. It may be so already.
    pub(crate) async fn end(&self, node: i32, signal: &str) -> Result<()> {
        let script = format!(
            "p=$(cat {}/{node}.pid); kill -{signal} $p || tail -n 5 {0}/{node}.log\n\
             while [ -e /proc/$p ] && ! grep -q ') Z' /proc/$p/stat; do sleep 0.1; done",
            self.scratch
        );
        self.run(&script).await.map(drop)
    }
}
