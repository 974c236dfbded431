//! A story: one test, in a namespace of its own, with a limit to its time, that says what it saw when it fails
//! and cleans up however it ends.

use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use futures::FutureExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::Mutex;

use crate::kubectl;
use crate::operator::Operator;

/// Two cores cannot start the Kafka clusters of two stories at once in any useful time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// An object in a namespace that tests read and write.
pub trait Namespaced:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + std::fmt::Debug
    + DeserializeOwned
    + Serialize
{
}

impl<K> Namespaced for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize
{
}

/// Where a story happens.
#[derive(Clone)]
pub struct Scene {
    /// The way to the API server.
    pub client: Client,
    /// A namespace that nobody else uses.
    pub namespace: String,
    began: Instant,
}

impl std::fmt::Debug for Scene {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scene").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Scene {
    async fn open(name: &str) -> Result<Self> {
        if std::env::var_os("KARST_E2E").is_none() {
            bail!("these tests need a Kubernetes that runs Karst: run `cargo xtask test`");
        }
        let client = Client::try_default().await.context("cannot reach Kubernetes (see KUBECONFIG)")?;
        let scene = Self { client, namespace: format!("{name}-{}", suffix()?), began: Instant::now() };
        scene.create_namespace(&scene.namespace).await?;
        Operator::installed(&scene.client).scale(1).await?;
        Ok(scene)
    }

    /// Names the part of the story that begins.
    pub fn step(&self, what: impl AsRef<str>) {
        eprintln!("[{:>6.1} s] {}: {}", self.began.elapsed().as_secs_f32(), self.namespace, what.as_ref());
    }

    /// A resource of this scene.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The strictest level of pod security is enforced: whoever runs Kafka with Karst can do the same.
    async fn create_namespace(&self, name: &str) -> Result<()> {
        let namespace: Namespace = serde_json::from_value(json!({
            "metadata": { "name": name, "labels": { "pod-security.kubernetes.io/enforce": "restricted" } },
        }))?;
        let api: Api<Namespace> = Api::all(self.client.clone());
        api.create(&PostParams::default(), &namespace).await.context("creating a namespace")?;
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await?;
        // Nobody reads these disks again: an orderly shutdown would only take the next story's time.
        let at_once = DeleteParams::default().grace_period(1);
        self.api::<Pod>().delete_collection(&at_once, &ListParams::default()).await?;
        Operator::installed(&self.client).scale(1).await
    }
}

fn suffix() -> Result<String> {
    let mut bytes = [0; 3];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("the kernel gives no randomness: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// How long a soak lasts: as many minutes as `KARST_SOAK_MINUTES` says, or what is usual.
pub fn minutes(usual: u64) -> Result<Duration> {
    let minutes = match std::env::var("KARST_SOAK_MINUTES") {
        Ok(minutes) => {
            minutes.parse().with_context(|| format!("KARST_SOAK_MINUTES={minutes} is no number"))?
        }
        Err(_) => usual,
    };
    Ok(Duration::from_secs(60 * minutes))
}

/// Tells a story: `tell` gets a scene, and `limit` to come to its end.
pub async fn story(name: &str, limit: Duration, tell: impl AsyncFnOnce(&Scene) -> Result<()>) -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().await;
    let scene = Scene::open(name).await?;
    let told = AssertUnwindSafe(Box::pin(tell(&scene))).catch_unwind();
    let ended = match tokio::time::timeout(limit, told).await {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(panic)) => Err(panic),
        Err(_) => Ok(Err(anyhow!("the story did not come to its end within {} s", limit.as_secs()))),
    };
    if !matches!(ended, Ok(Ok(()))) {
        eprintln!("{}", kubectl::describe_scene(&scene.namespace).await);
    }
    let closed = scene.close().await;
    match ended {
        Err(panic) => std::panic::resume_unwind(panic),
        Ok(Err(error)) => {
            report(&scene.namespace, &error)?;
            Err(error)
        }
        Ok(Ok(())) => {
            scene.step("done");
            closed
        }
    }
}

/// Repeats a failure in the file that the caller names, so that it can be told at the end, below thousands of lines.
fn report(story: &str, error: &anyhow::Error) -> Result<()> {
    let Some(path) = std::env::var_os("KARST_E2E_FAILURES") else { return Ok(()) };
    let mut file = std::fs::File::options().create(true).append(true).open(path)?;
    writeln!(file, "{story}: {error:#}").context("cannot report a failure")
}
