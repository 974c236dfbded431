//! The operator as a process of the test, which can die at any write.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::door::{Closing, Door};
use crate::kafka_door;
use crate::story::Scene;

/// One life of an operator, from its start to its death.
#[derive(Debug)]
pub struct Life {
    /// What it writes through.
    pub door: Door,
    child: Child,
    place: TempDir,
}

/// How a life that was given a door that closes came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It died at the chosen write.
    Crashed,
    /// It had done all there was to do before it came to that write.
    Finished,
}

impl Life {
    /// Starts an operator that looks after the scene's namespace only.
    pub async fn begin(scene: &Scene, closing: Closing) -> Result<Self> {
        Self::begin_with(scene, closing, |_| {}).await
    }

    /// Starts one whose way to Kafka leads through a [`KafkaDoor`](crate::kafka_door::KafkaDoor).
    pub async fn begin_behind_the_door(scene: &Scene) -> Result<Self> {
        Self::begin_with(scene, Closing::Never, |command| {
            command.gid(kafka_door::GROUP);
        })
        .await
    }

    async fn begin_with(scene: &Scene, closing: Closing, adapt: impl FnOnce(&mut Command)) -> Result<Self> {
        let door = Door::open(&scene.client, closing).await?;
        let place = tempfile::tempdir()?;
        let kubeconfig = place.path().join("kubeconfig");
        std::fs::write(&kubeconfig, kubeconfig_for(&door)?)?;
        let log = std::fs::File::create(place.path().join("log"))?;
        let program = program()?;
        let mut command = Command::new(&program);
        adapt(&mut command);
        let child = command
            .env("KUBECONFIG", &kubeconfig)
            .env("STRIMZI_NAMESPACE", &scene.namespace)
            .env("STRIMZI_LEADER_ELECTION_ENABLED", "false")
            .env("KARST_HTTP_ADDRESS", "127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        Ok(Self { door, child, place })
    }

    /// Lives until the door closes, or until `finished` says that nothing is left to be done; then dies.
    pub async fn live(mut self, finished: impl Future<Output = Result<()>>) -> Result<End> {
        let end = tokio::select! {
            () = self.door.closed() => Ok(End::Crashed),
            finished = finished => finished.map(|()| End::Finished),
            ended = self.child.wait() => Err(anyhow::anyhow!("the operator ended by itself: {ended:?}")),
        };
        let end = end.with_context(|| format!("the operator's log:\n{}", self.log()));
        self.child.kill().await.or_else(already_dead)?;
        end
    }

    /// Waits until it ends by itself, which it should not.
    pub async fn ended(&mut self) -> anyhow::Error {
        let ended = self.child.wait().await;
        anyhow::anyhow!("the operator ended by itself: {ended:?}; its log:\n{}", self.log())
    }

    /// Kills it, without a chance to say goodbye. Returns what it had logged.
    pub async fn kill(mut self) -> Result<String> {
        self.child.kill().await.or_else(already_dead)?;
        Ok(self.log())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.place.path().join("log")).unwrap_or_default()
    }
}

fn already_dead(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::InvalidInput { Ok(()) } else { Err(error) }
}

fn kubeconfig_for(door: &Door) -> Result<String> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "door", "cluster": { "server": format!("http://{}", door.address) } }],
        "users": [{ "name": "operator", "user": {} }],
        "contexts": [{ "name": "door", "context": { "cluster": "door", "user": "operator" } }],
        "current-context": "door",
    });
    Ok(serde_json::to_string(&config)?)
}

/// The operator that is in the image, or the one that `KARST_OPERATOR` names.
fn program() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os("KARST_OPERATOR") {
        return Ok(program.into());
    }
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let program = checkout.join("target/image").join(target).join("image/karst-operator");
    if !program.exists() {
        bail!("{} does not exist: `cargo xtask test` builds it", program.display());
    }
    Ok(program)
}
