//! Settings of a running cluster: taken without a restart where Kafka can, by one restart of each node where it must, refused
//! where it would not start.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use karst_api::Kafka;
use karst_e2e::cluster::{ACTING, Cluster, STARTING, is_pod_ready, uids};
use karst_e2e::kafka_tools::ConsoleTools;
use karst_e2e::manifests::{claims, kafka, pool};
use karst_e2e::story::{Scene, story};
use karst_e2e::wait;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const BROKERS: [i32; 2] = [0, 1];
/// The disruption budget of the brokers.
const BUDGET: &str = "set-kafka";
/// Karst writes once a minute what somebody keeps changing.
const FIGHTING: Duration = Duration::from_secs(180);

#[tokio::test]
async fn settings_change_without_a_restart_where_kafka_can_and_with_one_where_it_must() -> Result<()> {
    story("configuration", Duration::from_secs(420), async |scene| {
        let cluster = create(scene).await?;
        let bootstrap = cluster.bootstrap().await?;
        let tools = ConsoleTools::new(scene, "set-brokers-0", &bootstrap);
        change_while_running(&cluster, &tools).await?;
        refuse(&cluster).await?;
        change_in_steps(&cluster, &tools).await?;
        report_what_kafka_does_not_take(&cluster).await?;
        write_what_the_api_server_does_not_keep(&cluster).await?;
        let meddler = Meddler::begins(&cluster).await?;
        restart_once(&cluster, "a setting that is read at the start", &json!({ "queued.max.requests": 400 }))
            .await?;
        let both = json!({ "queued.max.requests": 300, "log.retention.ms": 700_000 });
        restart_once(&cluster, "one of each kind", &both).await?;
        meddler.until_named(&cluster).await?;
        expect(&tools, "log.retention.ms", "700000").await?;
        expect(&tools, "queued.max.requests", "300").await?;
        let gone = json!({ "log.retention.ms": null, "message.max.bytes": null });
        restart_once(&cluster, "no longer what nodes started with", &gone).await?;
        expect(&tools, "log.retention.ms", "null").await?;
        expect(&tools, "message.max.bytes", "1048588").await
    })
    .await
}

async fn create(scene: &Scene) -> Result<Cluster<'_>> {
    let mut pools = [pool("set", "brokers", &["broker"], 2), pool("set", "controllers", &["controller"], 1)];
    for pool in &mut pools {
        pool["spec"]["storage"] = claims(true);
    }
    Cluster::create_ready(scene, &kafka("set"), &pools).await
}

/// Values of `null` take settings away.
async fn configure(cluster: &Cluster<'_>, config: &Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "spec": { "kafka": { "config": config } } }));
    cluster.scene.api::<Kafka>().patch(&cluster.name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// All brokers run with this value.
async fn expect(tools: &ConsoleTools<'_>, key: &str, value: &str) -> Result<()> {
    for broker in BROKERS {
        let found = tools.broker_setting(broker, key).await?;
        ensure!(found == value, "broker {broker} runs with {key}={found}, not {value}");
    }
    Ok(())
}

/// The pods, with how often their containers were started.
async fn lives(cluster: &Cluster<'_>) -> Result<BTreeMap<String, (String, i32)>> {
    let pods = cluster.scene.api::<Pod>().list(&cluster.listed()).await?;
    let restarts = |pod: &Pod| {
        let containers = pod.status.as_ref().and_then(|status| status.container_statuses.clone());
        containers.into_iter().flatten().map(|container| container.restart_count).sum()
    };
    Ok(pods.iter().map(|pod| (pod.name_any(), (pod.uid().unwrap_or_default(), restarts(pod)))).collect())
}

async fn change_while_running(cluster: &Cluster<'_>, tools: &ConsoleTools<'_>) -> Result<()> {
    cluster.scene.step("changing settings that Kafka takes while it runs");
    let before = lives(cluster).await?;
    let config = json!({
        "log.retention.ms": 600_000,
        "message.max.bytes": 2_000_000,
        "num.io.threads": 12,
        "background.threads": 12,
        "min.insync.replicas": 2,
    });
    configure(cluster, &config).await?;
    cluster.until_ready().await?;
    for (key, value) in config.as_object().into_iter().flatten() {
        expect(tools, key, &value.to_string()).await?;
    }
    cluster.scene.step("taking some of them back");
    let back = json!({ "background.threads": null, "num.io.threads": null, "min.insync.replicas": 1 });
    configure(cluster, &back).await?;
    cluster.until_ready().await?;
    expect(tools, "background.threads", "10").await?;
    expect(tools, "num.io.threads", "8").await?;
    expect(tools, "min.insync.replicas", "1").await?;
    let after = lives(cluster).await?;
    ensure!(before == after, "nothing was to restart: {before:?}, then {after:?}");
    Ok(())
}

/// What Kafka would not start with reaches no node.
async fn refuse(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("asking for what Kafka would not start with");
    let before = lives(cluster).await?;
    configure(cluster, &json!({ "queued.max.requests": "many" })).await?;
    cluster.until_not_ready("InvalidResource", "spec.kafka.config.queued.max.requests").await?;
    configure(cluster, &json!({ "queued.max.requests": null })).await?;
    cluster.until_ready().await?;
    ensure!(before == lives(cluster).await?, "a refused setting restarted something");
    Ok(())
}

/// Kafka doubles or halves the number of its threads at most, so it is told in steps.
async fn change_in_steps(cluster: &Cluster<'_>, tools: &ConsoleTools<'_>) -> Result<()> {
    cluster.scene.step("asking for many more threads, and taking that back");
    let before = lives(cluster).await?;
    for (wanted, threads) in [(json!(50), "50"), (Value::Null, "8")] {
        configure(cluster, &json!({ "num.io.threads": wanted })).await?;
        cluster.until_ready().await?;
        expect(tools, "num.io.threads", threads).await?;
    }
    ensure!(before == lives(cluster).await?, "threads can change without a restart");
    Ok(())
}

/// A value that only Kafka itself finds wrong is told, and does not get where a restart would read it.
async fn report_what_kafka_does_not_take(cluster: &Cluster<'_>) -> Result<()> {
    const KEY: &str = "max.connections.per.ip.overrides";
    cluster.scene.step("asking for what Kafka does not take while it runs");
    let before = lives(cluster).await?;
    configure(cluster, &json!({ KEY: "127.0.0.1:many" })).await?;
    cluster.until_warned("SettingNotTaken", &[KEY, "127.0.0.1:many"], ACTING).await?;
    let map = cluster.scene.api::<ConfigMap>().get("set-brokers-0").await?;
    ensure!(!format!("{:?}", map.data).contains(KEY), "a restart would read what Kafka refused");
    configure(cluster, &json!({ KEY: null })).await?;
    cluster.until_ready().await?;
    ensure!(before == lives(cluster).await?, "a setting that was not taken restarted something");
    Ok(())
}

/// An empty list is not kept: what is read is never what was written. It must not be waited for.
async fn write_what_the_api_server_does_not_keep(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("lists of peers that are empty");
    let before = cluster.pod_uids().await?;
    let block = json!({ "ipBlock": { "cidr": "0.0.0.0/0", "except": [] } });
    let pods = json!({ "podSelector": { "matchLabels": {} }, "namespaceSelector": {} });
    for peers in [json!([block, pods]), json!([])] {
        let mut listener = kafka("set")["spec"]["kafka"]["listeners"][0].clone();
        listener["networkPolicyPeers"] = peers;
        cluster.edit(&json!({ "listeners": [listener] })).await?;
        // Ready, at this generation.
        cluster.until_ready().await?;
    }
    ensure!(cluster.pod_uids().await? == before, "who may connect is no business of the nodes");
    Ok(())
}

/// Somebody who changes the budget of the brokers back whenever Karst writes it.
struct Meddler(JoinHandle<Result<()>>);

impl Meddler {
    async fn begins(cluster: &Cluster<'_>) -> Result<Self> {
        cluster.scene.step("somebody changes a budget back, whenever it is written");
        let budgets = cluster.scene.api::<PodDisruptionBudget>();
        budgets.get(BUDGET).await?;
        Ok(Self(tokio::spawn(async move {
            loop {
                let api = budgets.clone();
                wait::until_one(api, BUDGET, "Karst to write the budget", FIGHTING, |budget| {
                    let least = budget?.spec.as_ref()?.min_available.clone()?;
                    (least != IntOrString::Int(0)).then_some(())
                })
                .await?;
                let parameters =
                    PatchParams { field_manager: Some("meddler".to_owned()), ..PatchParams::default() };
                let patch = Patch::Merge(json!({ "spec": { "minAvailable": 0 } }));
                budgets.patch(BUDGET, &parameters, &patch).await?;
            }
        })))
    }

    /// By now it has gone on for a minute, and all the rest was done meanwhile.
    async fn until_named(self, cluster: &Cluster<'_>) -> Result<()> {
        let words = ["PodDisruptionBudget set-kafka", "spec.minAvailable", "\"meddler\""];
        let named = cluster.until_warned("ObjectKeepsChanging", &words, STARTING).await;
        let has_ended = self.0.is_finished();
        self.0.abort();
        ensure!(!has_ended, "nobody fought any more");
        named
    }
}

impl Drop for Meddler {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Every pod is replaced, and none twice.
async fn restart_once(cluster: &Cluster<'_>, what: &str, config: &Value) -> Result<()> {
    cluster.scene.step(format!("changing {what}"));
    let before = cluster.pod_uids().await?;
    let mut seen: BTreeSet<String> = before.values().cloned().collect();
    configure(cluster, config).await?;
    let (api, watched) = (cluster.scene.api::<Pod>(), cluster.watched());
    wait::until(api, watched, "another pod for each", STARTING, |pods| {
        let now = uids(pods);
        seen.extend(now.values().cloned());
        let all_new = before.iter().all(|(pod, uid)| now.get(pod).is_some_and(|new| new != uid));
        (all_new && pods.values().all(is_pod_ready)).then_some(())
    })
    .await?;
    cluster.until_ready().await?;
    seen.extend(cluster.pod_uids().await?.into_values());
    ensure!(
        seen.len() == 2 * before.len(),
        "{} pods in the places of {}",
        seen.len() - before.len(),
        before.len()
    );
    Ok(())
}
