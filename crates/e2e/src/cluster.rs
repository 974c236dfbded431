//! One Kafka cluster of a story: its resources, how far it is, and where it listens.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use karst_api::{Condition, Kafka, KafkaNodePool, KafkaStatus, StrimziPodSet};
use karst_core::names::CLUSTER_LABEL;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::Config;
use serde_json::{Value, json};

use crate::manifests::{typed_kafka, typed_pool};
use crate::story::Scene;
use crate::wait;

/// Time for a few JVMs to start on two busy cores.
pub const STARTING: Duration = Duration::from_secs(180);
/// Time for the operator to see and do something: milliseconds, but on a machine that may be busy with other things.
pub const ACTING: Duration = Duration::from_secs(60);

/// A cluster by its name.
#[derive(Debug, Clone)]
pub struct Cluster<'a> {
    /// Where it is.
    pub scene: &'a Scene,
    /// What it is called.
    pub name: String,
}

impl<'a> Cluster<'a> {
    /// Nothing is created by this.
    pub fn named(scene: &'a Scene, name: &str) -> Self {
        Self { scene, name: name.to_owned() }
    }

    /// Creates the `Kafka` resource and its pools.
    pub async fn create(scene: &'a Scene, kafka: &Value, pools: &[Value]) -> Result<Self> {
        let kafka = typed_kafka(kafka)?;
        let cluster = Self::named(scene, &kafka.name_any());
        cluster.create_kafka(&kafka).await?;
        cluster.create_pools(pools).await?;
        Ok(cluster)
    }

    /// Creates them, and waits until the cluster serves and its quorum is formed.
    pub async fn create_ready(scene: &'a Scene, kafka: &Value, pools: &[Value]) -> Result<Self> {
        let cluster = Self::create(scene, kafka, pools).await?;
        scene.step("waiting until it is ready");
        cluster.until_ready().await?;
        cluster.until_quorum_is_formed().await?;
        Ok(cluster)
    }

    /// Creates the `Kafka` resource alone.
    pub async fn create_kafka(&self, kafka: &Kafka) -> Result<()> {
        let created = self.scene.api::<Kafka>().create(&PostParams::default(), kafka).await;
        created.map(drop).with_context(|| format!("creating Kafka {}", self.name))
    }

    /// Creates pools.
    pub async fn create_pools(&self, pools: &[Value]) -> Result<()> {
        for pool in pools {
            let pool = typed_pool(pool)?;
            let created = self.scene.api::<KafkaNodePool>().create(&PostParams::default(), &pool).await;
            created.with_context(|| format!("creating KafkaNodePool {}", pool.name_any()))?;
        }
        Ok(())
    }

    /// Changes `spec.kafka`.
    pub async fn edit(&self, spec: &Value) -> Result<()> {
        self.patch(&json!({ "spec": { "kafka": spec } })).await
    }

    /// Sets an annotation of the `Kafka` resource, or takes it away.
    pub async fn annotate(&self, annotation: &str, value: Option<&str>) -> Result<()> {
        self.patch(&json!({ "metadata": { "annotations": { annotation: value } } })).await
    }

    async fn patch(&self, change: &Value) -> Result<()> {
        let patch = Patch::Merge(change);
        self.scene.api::<Kafka>().patch(&self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Changes the `spec` of a pool.
    pub async fn edit_pool(&self, pool: &str, spec: &Value) -> Result<()> {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.scene.api::<KafkaNodePool>().patch(pool, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until exactly these nodes vote, and nothing of the quorum is left to be done.
    pub async fn until_voters(&self, ids: &[i32]) -> Result<()> {
        let what = format!("the voters {ids:?}");
        self.until_status(&what, STARTING, |_, status| {
            let same = status.quorum.as_ref()?.voter_ids.as_deref()? == ids;
            (same && is_true(status, "QuorumReconciled") && is_true(status, "QuorumHealthy")).then_some(())
        })
        .await
    }

    /// Selects what belongs to the cluster.
    pub fn selector(&self) -> String {
        format!("{CLUSTER_LABEL}={}", self.name)
    }

    /// Selects what belongs to the cluster, for a watch.
    pub fn watched(&self) -> Config {
        Config::default().labels(&self.selector())
    }

    /// Selects what belongs to the cluster, for a list.
    pub fn listed(&self) -> ListParams {
        ListParams::default().labels(&self.selector())
    }

    /// Waits until the operator says something in the status that `found` looks for.
    pub async fn until_status<T>(
        &self,
        what: &str,
        limit: Duration,
        mut found: impl FnMut(&Kafka, &KafkaStatus) -> Option<T>,
    ) -> Result<T> {
        let what = format!("Kafka {}: {what}", self.name);
        let api = self.scene.api::<Kafka>();
        wait::until_one(api, &self.name, &what, limit, |kafka| {
            kafka.and_then(|kafka| found(kafka, kafka.status.as_ref()?))
        })
        .await
    }

    /// Waits until the latest generation is carried out and all nodes are ready.
    pub async fn until_ready(&self) -> Result<KafkaStatus> {
        self.until_status("Ready=True", STARTING, |kafka, status| {
            let current = status.observed_generation == kafka.metadata.generation;
            // While pods restart, the condition has a reason.
            let at_rest = condition(status, "Ready").is_some_and(|ready| ready.reason.is_none());
            (current && at_rest && is_true(status, "Ready")).then(|| status.clone())
        })
        .await
    }

    /// Waits until there is a warning of this reason that has all these words.
    pub async fn until_warned(&self, reason: &str, words: &[&str], limit: Duration) -> Result<()> {
        let what = format!("a warning {reason} with {words:?}");
        self.until_status(&what, limit, |_, status| {
            let said = warnings(status.conditions.as_ref());
            let is_it = |one: &String| one.starts_with(reason) && words.iter().all(|word| one.contains(word));
            said.iter().any(is_it).then_some(())
        })
        .await
    }

    /// Waits until the cluster is refused, or waits for something, for this reason, in words that name `field`.
    pub async fn until_not_ready(&self, reason: &str, field: &str) -> Result<()> {
        let what = format!("Ready=False because of {reason}, with a message that names {field}");
        self.until_status(&what, ACTING, |_, status| {
            let ready = condition(status, "Ready")?;
            let matches = ready.status.as_deref() == Some("False") && ready.reason.as_deref() == Some(reason);
            (matches && ready.message.as_ref()?.contains(field)).then_some(())
        })
        .await
    }

    /// What the operator said last.
    pub async fn status(&self) -> Result<KafkaStatus> {
        let kafka = self.scene.api::<Kafka>().get(&self.name).await?;
        kafka.status.with_context(|| format!("Kafka {} has no status", self.name))
    }

    /// The UIDs of the pods by name.
    pub async fn pod_uids(&self) -> Result<BTreeMap<String, String>> {
        let pods = self.scene.api::<Pod>().list(&self.listed()).await?;
        Ok(pods.into_iter().map(|pod| (pod.name_any(), pod.uid().unwrap_or_default())).collect())
    }

    /// How often the containers of each pod were started again.
    pub async fn restart_counts(&self) -> Result<BTreeMap<String, i32>> {
        let pods = self.scene.api::<Pod>().list(&self.listed()).await?;
        Ok(pods.iter().map(|pod| (pod.name_any(), restarts(pod))).collect())
    }

    /// Waits until there are this many pods, and returns their UIDs.
    pub async fn until_pods(&self, count: usize) -> Result<BTreeMap<String, String>> {
        let what = format!("{count} pods of {}", self.name);
        wait::until(self.scene.api::<Pod>(), self.watched(), &what, ACTING, |pods| {
            (pods.len() == count).then(|| uids(pods))
        })
        .await
    }

    /// Waits until there are this many pods, all of them ready and none on its way out.
    pub async fn until_pods_ready(&self, count: usize) -> Result<()> {
        let what = format!("{count} ready pods of {}", self.name);
        wait::until(self.scene.api::<Pod>(), self.watched(), &what, STARTING, |pods| {
            (pods.len() == count && pods.values().all(is_pod_ready)).then_some(())
        })
        .await
    }

    /// Waits until the status of a pod set says that it has this many pods, all of them ready and as asked for.
    pub async fn until_pods_counted(&self, set: &str, count: i32) -> Result<()> {
        let what = format!("{count} pods in the status of {set}");
        // They may restart one after the other.
        let limit = 3 * STARTING;
        wait::until_one(self.scene.api::<StrimziPodSet>(), set, &what, limit, |set| {
            let status = set?.status.as_ref()?;
            (status.current_pods == Some(count) && status.ready_pods == Some(count)).then_some(())
        })
        .await
    }

    /// Waits until no controller would found the quorum again, should it lose its disk.
    pub async fn until_quorum_is_formed(&self) -> Result<()> {
        let format = |map: &ConfigMap| map.data.as_ref()?.get("storage.format").cloned();
        let api = self.scene.api::<ConfigMap>();
        wait::until(api, self.watched(), "storage.format join everywhere", STARTING, |maps| {
            let joined = maps.values().all(|map| format(map).as_deref() == Some("join"));
            (!maps.is_empty() && joined).then_some(())
        })
        .await
    }

    /// Where clients start, as the status says it, with the domain that only pods need not name.
    pub async fn bootstrap(&self) -> Result<String> {
        let kafka = self.scene.api::<Kafka>().get_status(&self.name).await?;
        let listeners = kafka.status.and_then(|status| status.listeners).unwrap_or_default();
        let address = listeners.first().and_then(|listener| listener.bootstrap_servers.clone());
        let address =
            address.with_context(|| format!("Kafka {} has no listener in its status", self.name))?;
        ensure!(address.contains(".svc:"), "'{address}' is not the address of a service");
        Ok(address.replace(".svc:", ".svc.cluster.local:"))
    }
}

/// The UIDs of pods by name.
pub fn uids(pods: &BTreeMap<String, Pod>) -> BTreeMap<String, String> {
    pods.iter().map(|(name, pod)| (name.clone(), pod.uid().unwrap_or_default())).collect()
}

/// How often the containers of a pod were started again.
pub fn restarts(pod: &Pod) -> i32 {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    containers.into_iter().flatten().map(|container| container.restart_count).sum()
}

/// Is the pod ready, and going to stay?
pub fn is_pod_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ready && pod.metadata.deletion_timestamp.is_none()
}

/// The condition of this type.
pub fn condition<'s>(status: &'s KafkaStatus, type_: &str) -> Option<&'s Condition> {
    status.conditions.iter().flatten().find(|condition| condition.type_.as_deref() == Some(type_))
}

/// Does the condition of this type hold?
pub fn is_true(status: &KafkaStatus, type_: &str) -> bool {
    condition(status, type_).is_some_and(|condition| condition.status.as_deref() == Some("True"))
}

/// The warnings, as `reason: message`.
pub fn warnings(conditions: Option<&Vec<Condition>>) -> Vec<String> {
    let warnings = conditions.into_iter().flatten().filter(|c| c.type_.as_deref() == Some("Warning"));
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    warnings.map(|warning| format!("{}: {}", text(&warning.reason), text(&warning.message))).collect()
}
