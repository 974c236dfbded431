//! A stage for the stories of the simulation: the same resources, the same steps and the same end, on a real cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use karst_api::{Kafka, KafkaNodePool, KafkaStatus, QuorumKind, StrimziPodSet};
use karst_core::names::{
    BROKER_ROLE_LABEL, DELETE_POD_AND_CLAIM_ANNOTATION, MANUAL_ROLL_ANNOTATION, node_of_pod,
};
use karst_core::versions::metadata_name;
use karst_sim::scenarios::{self, Base, CLUSTER, Edit, Scenario, When};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, condition, is_pod_ready, is_true};
use crate::kafka_tools::{ConsoleTools, Kcat};
use crate::manifests::{METADATA_VERSION, VERSION, kafka, pool};
use crate::processes::{kafka_runs, kill_kafka};
use crate::story::{Namespaced, Scene};
use crate::{disks, old_disks};

/// How often somebody looks.
const LOOKING: Duration = Duration::from_millis(500);
/// For so long everything must be as it was asked for.
const SETTLED: Duration = Duration::from_secs(3);
/// For so long nothing must change when not everything can be as it was asked for: longer than any regular look of the operator.
const UNCHANGED: Duration = Duration::from_secs(15);
/// For so long when pods are not ready: they may be about to start.
const STILL: Duration = Duration::from_secs(75);
/// Within this time everything comes to rest.
const BOUND: Duration = Duration::from_secs(600);
/// The topic of clusters that have one, and what is in it.
const TOPIC: &str = "orders";
const RECORDS: [&str; 3] = ["one", "three", "two"];

/// Tells a story of the simulation.
pub async fn tell(scene: &Scene, scenario: &Scenario) -> Result<()> {
    let stage = Stage { cluster: Cluster::named(scene, CLUSTER), versions: Versions::of(scenario) };
    stage.begin(scenario.base).await?;
    for step in &scenario.steps {
        match step.when {
            When::AtRest => stage.rest().await?,
            When::After(least, most) => sleep(Duration::from_millis(least.midpoint(most))).await,
        }
        scene.step(step.edit.to_string());
        stage.carry_out(&step.edit).await?;
    }
    stage.rest().await?;
    stage.end(scenario).await
}

struct Stage<'a> {
    cluster: Cluster<'a>,
    versions: Versions,
}

/// Which Kafka a story is told with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Versions {
    /// The story is about versions, and names them.
    OfTheStory,
    /// Any would do: it is the one that users get.
    Default,
}

impl Versions {
    fn of(scenario: &Scenario) -> Self {
        let is_about_them = scenario.steps.iter().any(|step| matches!(step.edit, Edit::Version(_)));
        if is_about_them { Self::OfTheStory } else { Self::Default }
    }
}

fn small_pool(resource: KafkaNodePool) -> Result<Value> {
    let mut resource = serde_json::to_value(resource)?;
    resource["spec"]["resources"] = pool(CLUSTER, "", &[], 0)["spec"]["resources"].clone();
    Ok(resource)
}

impl Stage<'_> {
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        self.cluster.scene.api()
    }

    /// The same resources, for small machines.
    fn small_kafka(&self, kafka: Kafka) -> Result<Kafka> {
        let mut kafka = serde_json::to_value(kafka)?;
        let like = self::kafka(CLUSTER);
        kafka["spec"]["kafka"]["jvmOptions"] = like["spec"]["kafka"]["jvmOptions"].clone();
        if kafka["spec"]["kafka"]["replicas"].is_number() {
            kafka["spec"]["kafka"]["resources"] = pool(CLUSTER, "", &[], 0)["spec"]["resources"].clone();
        }
        if self.versions == Versions::Default {
            kafka["spec"]["kafka"]["version"] = json!(VERSION);
        }
        Ok(serde_json::from_value(kafka)?)
    }

    async fn begin(&self, base: Base) -> Result<()> {
        let (kafka, pools) = scenarios::resources(base).context("a base without resources")?;
        let kafka = self.small_kafka(kafka)?;
        let pools = pools.into_iter().map(small_pool).collect::<Result<Vec<_>>>()?;
        if base == Base::Static {
            old_disks::find(self.cluster.scene, &serde_json::to_value(kafka)?, &pools).await?;
        } else {
            self.cluster.create_kafka(&kafka).await?;
            self.cluster.create_pools(&pools).await?;
        }
        if base == Base::Nothing {
            return Ok(());
        }
        self.cluster.until_ready().await?;
        if base != Base::Static {
            self.cluster.until_quorum_is_formed().await?;
        }
        if base.has_partitions() {
            let bootstrap = self.cluster.bootstrap().await?;
            self.tools(&bootstrap).await?.create_topic_on(TOPIC, "0:1:2").await?;
            Kcat::new(&bootstrap).produce(TOPIC, &RECORDS).await?;
        }
        Ok(())
    }

    async fn pods(&self) -> Result<Vec<Pod>> {
        Ok(self.api::<Pod>().list(&self.cluster.listed()).await?.items)
    }

    async fn pod(&self, node: i32) -> Result<Pod> {
        let found = self.pods().await?.into_iter().find(|pod| node_of(pod) == Some(node));
        found.with_context(|| format!("node {node} has no pod"))
    }

    /// Kafka's tools, in a broker that serves.
    async fn tools(&self, bootstrap: &str) -> Result<ConsoleTools<'_>> {
        let pods = self.pods().await?;
        let serving = pods.iter().find(|pod| is_broker(pod) && is_pod_ready(pod));
        let pod = serving.context("no broker serves")?.name_any();
        Ok(ConsoleTools::new(self.cluster.scene, &pod, bootstrap))
    }

    async fn carry_out(&self, edit: &Edit) -> Result<()> {
        if let Some(pool) = edit.pool() {
            return self.change::<KafkaNodePool>(pool, |pool| edit.change_pool(pool)).await;
        }
        if let Some((secret, annotation)) = edit.marks_secret() {
            return self.annotate::<Secret>(&secret, annotation).await;
        }
        match edit {
            Edit::AddPool(name, replicas, roles, disks) => {
                let pool = scenarios::pool(name, *replicas, roles, *disks).context("no pool")?;
                self.cluster.create_pools(&[small_pool(pool)?]).await
            }
            Edit::DeletePool(pool) => self.delete::<KafkaNodePool>(pool).await,
            Edit::Empty(node) => {
                let pod = self.pod(*node).await?.name_any();
                self.annotate::<Pod>(&pod, DELETE_POD_AND_CLAIM_ANNOTATION).await
            }
            Edit::Roll(pool) => {
                self.annotate::<StrimziPodSet>(&format!("{CLUSTER}-{pool}"), MANUAL_ROLL_ANNOTATION).await
            }
            Edit::Crash(node) => kill_kafka(&self.pod(*node).await?),
            Edit::PowerCut => {
                self.pods().await?.iter().filter(|pod| kafka_runs(pod)).try_for_each(kill_kafka)
            }
            Edit::LoseDisk(node) => self.lose_disk(*node).await,
            Edit::DeletePod(node) => self.delete::<Pod>(&self.pod(*node).await?.name_any()).await,
            Edit::DeletePodAndClaim(node) => {
                for claim in self.claims(*node).await? {
                    self.delete::<PersistentVolumeClaim>(&claim.name_any()).await?;
                }
                match self.pod(*node).await {
                    Ok(pod) => self.delete::<Pod>(&pod.name_any()).await,
                    Err(_) => Ok(()),
                }
            }
            Edit::DeleteKafka => self.delete::<Kafka>(CLUSTER).await,
            Edit::CreateKafka => {
                let kafka = scenarios::kafka().context("no Kafka")?;
                self.cluster.create_kafka(&self.small_kafka(kafka)?).await
            }
            Edit::Wait => Ok(()),
            edit if edit.is_simulated_only() => bail!("{edit} cannot be done here"),
            of_kafka => self.change::<Kafka>(CLUSTER, |kafka| of_kafka.change_kafka(kafka)).await,
        }
    }

    /// A user changes a resource. Should the operator write to it in that moment, the user tries again.
    async fn change<K: Namespaced>(&self, name: &str, change: impl Fn(&mut K)) -> Result<()> {
        loop {
            let mut resource = self.api::<K>().get(name).await?;
            change(&mut resource);
            match self.api::<K>().replace(name, &PostParams::default(), &resource).await {
                Err(kube::Error::Api(refused)) if refused.code == 409 => {}
                replaced => return replaced.map(drop).with_context(|| format!("changing {name}")),
            }
        }
    }

    async fn annotate<K: Namespaced>(&self, name: &str, annotation: &str) -> Result<()> {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { annotation: "true" } } }));
        let patched = self.api::<K>().patch(name, &PatchParams::default(), &patch).await;
        patched.map(drop).with_context(|| format!("annotating {name}"))
    }

    async fn delete<K: Namespaced>(&self, name: &str) -> Result<()> {
        let deleted = self.api::<K>().delete(name, &DeleteParams::default()).await;
        deleted.map(drop).with_context(|| format!("deleting {name}"))
    }

    async fn claims(&self, node: i32) -> Result<Vec<PersistentVolumeClaim>> {
        let claims = self.api::<PersistentVolumeClaim>().list(&self.cluster.listed()).await?;
        let is_its = |claim: &PersistentVolumeClaim| {
            node_of_pod(&claim.name_any()).is_some_and(|found| found.0 == node)
        };
        Ok(claims.into_iter().filter(is_its).collect())
    }

    /// A process dies, and when it starts again its disk is empty.
    async fn lose_disk(&self, node: i32) -> Result<()> {
        let claims = self.claims(node).await?;
        let claim = claims.first().with_context(|| format!("node {node} has no claim"))?;
        disks::lose(self.cluster.scene, &self.pod(node).await?, claim).await
    }

    /// Waits until everything is as it was asked for, or nothing changes any more.
    async fn rest(&self) -> Result<()> {
        let until = Instant::now() + BOUND;
        let mut before = BTreeMap::new();
        let (mut changed, mut unsettled) = (Instant::now(), Instant::now());
        loop {
            let pods = self.pods().await?;
            let all_ready = pods.iter().all(is_pod_ready);
            let now = self.picture(&pods).await?;
            if now != before {
                (before, changed) = (now, Instant::now());
            }
            if !(all_ready && self.is_carried_out().await?) {
                unsettled = Instant::now();
            }
            let enough = if all_ready { UNCHANGED } else { STILL };
            if unsettled.max(changed).elapsed() > SETTLED || changed.elapsed() > enough {
                return Ok(());
            }
            ensure!(Instant::now() < until, "nothing came to rest within {} s", BOUND.as_secs());
            sleep(LOOKING).await;
        }
    }

    /// Does the operator say that everything is as it was asked for?
    async fn is_carried_out(&self) -> Result<bool> {
        let Some(kafka) = self.api::<Kafka>().get_opt(CLUSTER).await? else { return Ok(false) };
        let Some(status) = kafka.status else { return Ok(false) };
        let is_ready = is_true(&status, "Ready")
            && condition(&status, "Ready").is_some_and(|ready| ready.reason.is_none())
            && status.observed_generation == kafka.metadata.generation;
        let is_reconciled = ["QuorumHealthy", "QuorumReconciled"].iter().all(|one| is_true(&status, one));
        Ok(is_ready && is_reconciled)
    }

    /// Everything that changes while the operator has something to do.
    async fn picture(&self, pods: &[Pod]) -> Result<BTreeMap<String, String>> {
        let mut picture = BTreeMap::new();
        self.add_versions::<Kafka>(&mut picture).await?;
        self.add_versions::<KafkaNodePool>(&mut picture).await?;
        self.add_versions::<StrimziPodSet>(&mut picture).await?;
        self.add_versions::<ConfigMap>(&mut picture).await?;
        self.add_versions::<Secret>(&mut picture).await?;
        self.add_versions::<PersistentVolumeClaim>(&mut picture).await?;
        // The kubelet tells more about a pod than that.
        picture.extend(pods.iter().map(|pod| {
            let is_going = pod.metadata.deletion_timestamp.is_some();
            (format!("Pod {}", pod.name_any()), format!("{:?} {} {is_going}", pod.uid(), is_pod_ready(pod)))
        }));
        Ok(picture)
    }

    async fn add_versions<K: Namespaced>(&self, picture: &mut BTreeMap<String, String>) -> Result<()> {
        let all = self.api::<K>().list(&Default::default()).await?;
        picture.extend(all.into_iter().map(|one| {
            let name = format!("{} {}", K::kind(&()), one.name_any());
            (name, one.resource_version().unwrap_or_default())
        }));
        Ok(())
    }

    /// Is the end the one of the story?
    async fn end(&self, scenario: &Scenario) -> Result<()> {
        self.cluster.scene.step("looking at the end");
        let status = self.cluster.status().await?;
        let voters = voters(&status);
        let ids = |nodes: &BTreeSet<karst_core::ids::NodeId>| nodes.iter().map(|node| node.0).collect();
        let allowed: Vec<BTreeSet<i32>> =
            [Some(&scenario.voters), scenario.or_voters.as_ref()].into_iter().flatten().map(ids).collect();
        // Of a cluster whose resources were lost nobody may be left to say who votes.
        let is_unknown = scenario.ready.is_none() && status.quorum.is_none();
        ensure!(is_unknown || allowed.contains(&voters), "{voters:?} vote, and not one of {allowed:?}");
        let Some(count) = scenario.ready else { return is_stuck(&status) };
        let pods = self.pods().await?;
        let ready = pods.iter().filter(|pod| is_pod_ready(pod)).count();
        ensure!(
            (ready, pods.len()) == (count, count),
            "{ready} of {} pods are ready, not {count}",
            pods.len()
        );
        let is_static = status.quorum.as_ref().and_then(|quorum| quorum.kind) == Some(QuorumKind::Static);
        ensure!(is_static == scenario.is_static, "the quorum is static: {is_static}");
        let level = match self.versions {
            Versions::OfTheStory => metadata_name(scenario.level),
            Versions::Default => METADATA_VERSION.to_owned(),
        };
        ensure!(
            status.kafka_metadata_version.as_deref() == Some(level.as_str()),
            "the metadata version is {:?}, and not {level}",
            status.kafka_metadata_version
        );
        self.kafka_agrees(scenario, &voters, &pods).await
    }

    async fn kafka_agrees(&self, scenario: &Scenario, voters: &BTreeSet<i32>, pods: &[Pod]) -> Result<()> {
        let bootstrap = self.cluster.bootstrap().await?;
        let tools = self.tools(&bootstrap).await?;
        let known: BTreeSet<_> = tools.voters().await?.into_iter().map(|voter| voter.id).collect();
        ensure!(known == *voters, "the status says that {voters:?} vote, and Kafka says {known:?}");
        let brokers: Vec<_> = pods.iter().filter(|pod| is_broker(pod)).filter_map(node_of).collect();
        let brokers: BTreeSet<_> = brokers.into_iter().collect();
        let registered: BTreeSet<_> = tools.brokers().await?.into_iter().collect();
        ensure!(registered == brokers, "{registered:?} are registered, and the brokers are {brokers:?}");
        self.has_settings(scenario, &tools, brokers.first().copied()).await?;
        if scenario.base.has_partitions() {
            let read = Kcat::new(&bootstrap).consume(TOPIC).await?;
            ensure!(read == RECORDS, "the topic has {read:?}, and not {RECORDS:?}");
        }
        Ok(())
    }

    /// Does a broker run with what was asked for?
    async fn has_settings(
        &self,
        scenario: &Scenario,
        tools: &ConsoleTools<'_>,
        broker: Option<i32>,
    ) -> Result<()> {
        let config = self.api::<Kafka>().get(CLUSTER).await?.spec.kafka.config.unwrap_or_default();
        let configured = scenario.steps.iter().filter_map(|step| match step.edit {
            Edit::Configure(key, _) => Some((key, config.get(key)?.to_string())),
            _ => None,
        });
        for (key, wanted) in configured {
            let value = tools.broker_setting(broker.context("no broker")?, key).await?;
            ensure!(value == wanted, "a broker runs with {key}={value}, and not {wanted}");
        }
        Ok(())
    }
}

fn node_of(pod: &Pod) -> Option<i32> {
    node_of_pod(&pod.name_any()).map(|node| node.0)
}

fn is_broker(pod: &Pod) -> bool {
    pod.labels().get(BROKER_ROLE_LABEL).is_some_and(|role| role == "true")
}

/// Does the status say that nobody can be elected? Where it knows no quorum, it says that nothing is ready.
fn is_stuck(status: &KafkaStatus) -> Result<()> {
    if status.quorum.is_none() {
        ensure!(!is_true(status, "Ready"), "it is ready, and not stuck");
        return Ok(());
    }
    let healthy = condition(status, "QuorumHealthy").and_then(|one| one.reason.clone());
    ensure!(healthy.as_deref() == Some("NoLeader"), "the quorum is {healthy:?}, and not stuck");
    Ok(())
}

fn voters(status: &KafkaStatus) -> BTreeSet<i32> {
    let voters = status.quorum.as_ref().and_then(|quorum| quorum.voter_ids.clone());
    voters.into_iter().flatten().collect()
}
