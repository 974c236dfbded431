//! What once lost records of users, done again under load: brokers moved to another pool all in one apply, and a broker killed in
//! the middle of a restart of all, while its logs are read anew. Somebody else counts the records.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use karst_api::KafkaNodePool;
use karst_core::names::node_of_pod;
use karst_e2e::cluster::{ACTING, Cluster, STARTING, is_pod_ready};
use karst_e2e::kafka_tools::ConsoleTools;
use karst_e2e::load::{BUSY, under_records};
use karst_e2e::manifests::{pool_with_claims, replicated};
use karst_e2e::recovery::Recovering;
use karst_e2e::story::{Scene, story};
use karst_e2e::{kubectl, wait};
use karst_kafka::{Admin, Bootstrap, ClientConfig, TopicSelection};
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// The brokers that have all copies of everything.
const MOVED: [i32; 3] = [20, 21, 22];
const ID_RANGE: &str = "[20-22]";
/// How often the watcher looks.
const LOOKING: Duration = Duration::from_millis(200);
/// How long three brokers may take to move, each of which copies everything.
const MOVING: Duration = Duration::from_secs(600);
/// What does not restart within this time, with nothing else to do, is held.
const HELD: Duration = Duration::from_secs(40);
/// The broker that dies.
const DYING: &str = "live-brokers-21";
/// What Kafka says when it has started, and before that when it has to read logs that were not closed.
const STARTED: &str = "Kafka Server started";
const UNCLEAN: &str = "since no clean shutdown file was found";
/// So many logs take it a moment to read.
const PARTITIONS: usize = 100;

#[tokio::test]
async fn nothing_lost_by_moving_all_copies_at_once_nor_by_restarts_during_a_recovery() -> Result<()> {
    story("nothing-lost", Duration::from_secs(1500), async |scene| {
        let cluster = create(scene).await?;
        let bootstrap = cluster.bootstrap().await?;
        let tools = ConsoleTools::new(scene, "live-brokers-0", &bootstrap);
        tools.create_topic_on(BUSY, "20:21:22").await?;
        under_records(scene, &bootstrap, async || {
            let moved = async || move_all(&cluster).await;
            let fewest = fewest_copies_during(&bootstrap, moved).await?;
            scene.step(format!("at the worst moment {fewest} copies were in sync"));
            ensure!(fewest >= 2, "only {fewest} copies were in sync at some moment");
            Ok(())
        })
        .await?;
        give_it_something_to_read(&tools).await?;
        under_records(scene, &bootstrap, async || restart_all_while_one_recovers(&cluster).await).await
    })
    .await
}

/// One controller, a broker, and three more of a pool whose disks go with them.
async fn create(scene: &Scene) -> Result<Cluster<'_>> {
    let controllers = pool_with_claims("live", "controllers", &["controller"], 1);
    Cluster::create_ready(scene, &replicated("live"), &[brokers(1), small(3), controllers]).await
}

fn brokers(replicas: u32) -> Value {
    pool_with_claims("live", "brokers", &["broker"], replicas)
}

fn small(replicas: u32) -> Value {
    let mut small = pool_with_claims("live", "small", &["broker"], replicas);
    small["metadata"]["annotations"] = json!({ "strimzi.io/next-node-ids": ID_RANGE });
    small
}

/// What the one pool gives and the other takes, in one apply, and the one that gives comes first.
async fn move_all(cluster: &Cluster<'_>) -> Result<()> {
    let scene = cluster.scene;
    scene.step("moving all brokers with copies to another pool, in one apply");
    let mut giving = small(0);
    giving["metadata"]["annotations"]["strimzi.io/remove-node-ids"] = json!(ID_RANGE);
    let mut taking = brokers(4);
    taking["metadata"]["annotations"] = json!({ "strimzi.io/next-node-ids": ID_RANGE });
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": [giving, taking] }).to_string();
    let watching = one_at_a_time(cluster);
    let (watched, applied) = tokio::join!(watching, kubectl::apply(&scene.namespace, &list));
    applied?;
    watched?;
    let pools = scene.api::<KafkaNodePool>();
    for (name, ids) in [("small", vec![]), ("brokers", vec![0, 20, 21, 22])] {
        wait::until_one(pools.clone(), name, &format!("nodeIds {ids:?} of {name}"), ACTING, |pool| {
            let found = pool?.status.as_ref()?.node_ids.clone().unwrap_or_default();
            (found == ids).then_some(())
        })
        .await?;
    }
    for node in MOVED {
        let claim = format!("data-live-small-{node}");
        wait::until_one(scene.api::<PersistentVolumeClaim>(), &claim, "its end", ACTING, |claim| {
            claim.is_none().then_some(())
        })
        .await?;
    }
    cluster.until_ready().await.map(drop)
}

/// Waits until all brokers live in their new pool. At no moment may two of them not serve.
async fn one_at_a_time(cluster: &Cluster<'_>) -> Result<()> {
    let mut fewest = MOVED.len();
    let pods = cluster.scene.api::<Pod>();
    wait::until(pods, cluster.watched(), "all brokers in their new pool", MOVING, |pods| {
        fewest = fewest.min(serving(pods).len());
        let has_moved = |node: &i32| pods.get(&format!("live-brokers-{node}")).is_some_and(is_pod_ready);
        let none_is_left = !pods.keys().any(|name| name.contains("-small-"));
        (none_is_left && MOVED.iter().all(has_moved)).then_some(())
    })
    .await?;
    ensure!(fewest >= MOVED.len() - 1, "{} of them were away at once", MOVED.len() - fewest);
    Ok(())
}

/// Those of the moved brokers that are ready, in whichever pool.
fn serving(pods: &BTreeMap<String, Pod>) -> BTreeSet<i32> {
    let ready = pods.values().filter(|pod| is_pod_ready(pod));
    let ids = ready.filter_map(|pod| node_of_pod(&pod.name_any()).map(|node| node.0));
    ids.filter(|id| MOVED.contains(id)).collect()
}

/// Asks Kafka all the time how many copies of the busy partition are in sync, and returns the smallest answer.
async fn fewest_copies_during(bootstrap: &str, tell: impl AsyncFnOnce() -> Result<()>) -> Result<usize> {
    let stop = CancellationToken::new();
    let watching = async {
        let admin = Admin::new(Bootstrap::Brokers(vec![bootstrap.parse()?]), ClientConfig::default());
        let (mut answers, mut fewest) = (0, usize::MAX);
        while !stop.is_cancelled() {
            sleep(LOOKING).await;
            let Ok(answer) = admin.metadata(TopicSelection::Names(vec![BUSY.to_owned()])).await else {
                continue;
            };
            let partition = answer.topics.first().and_then(|topic| topic.partitions.first());
            fewest = fewest.min(partition.context("the topic has no partition")?.isr.len());
            answers += 1;
        }
        ensure!(answers > 20, "only {answers} answers");
        anyhow::Ok(fewest)
    };
    let (fewest, told) = tokio::join!(watching, async {
        let told = tell().await;
        stop.cancel();
        told
    });
    told.and(fewest)
}

/// A topic of many partitions, each with a log on the broker that is to die.
async fn give_it_something_to_read(tools: &ConsoleTools<'_>) -> Result<()> {
    let replicas = vec!["21:0"; PARTITIONS].join(",");
    let topic = ["--create", "--topic", "many", "--replica-assignment", &replicas];
    let config = ["--config", "min.insync.replicas=1"];
    tools.run("kafka-topics", &[topic.as_slice(), &config].concat(), "").await?;
    let until = Instant::now() + ACTING;
    loop {
        let logs = tools.log_dirs("21").await?.into_values().flatten();
        let there = logs.filter(|log| log.starts_with("many-")).count();
        if there == PARTITIONS {
            return Ok(());
        }
        ensure!(Instant::now() < until, "broker 21 has {there} logs, and not {PARTITIONS}");
        sleep(LOOKING).await;
    }
}

/// A broker that reads its logs anew is coming back: whoever restarts it makes it begin again.
async fn restart_all_while_one_recovers(cluster: &Cluster<'_>) -> Result<()> {
    let scene = cluster.scene;
    scene.step("killing a broker, which stops while it reads its logs anew");
    let before = cluster.pod_uids().await?;
    let recovering = Recovering::begin(scene, DYING).await?;

    scene.step("changing a setting for which all nodes restart");
    cluster.edit(&json!({ "config": { "queued.max.requests": 400 } })).await?;
    until_told_to_recover(cluster).await?;
    let first = before.get(DYING).context("no such pod")?;
    let what = "another pod, though its broker reads its logs";
    let restarted =
        wait::until_one(scene.api::<Pod>(), DYING, what, HELD, |pod| (!is_first(pod, first)).then_some(()));
    ensure!(restarted.await.is_err(), "the broker was restarted while it read its logs");

    scene.step("letting it go on: all restart, and it does so when its logs can be closed");
    recovering.go_on().await?;
    let pods = scene.api::<Pod>();
    wait::until(pods, cluster.watched(), "other pods, all of them ready", 3 * STARTING, |pods| {
        let is_new = |pod: &Pod| before.get(&pod.name_any()) != pod.uid().as_ref() && is_pod_ready(pod);
        (pods.len() == before.len() && pods.values().all(is_new)).then_some(())
    })
    .await?;
    cluster.until_ready().await?;
    // One that is stopped between the end of its reading and the end of its start closes no log either, and begins again.
    let log = kubectl::run(&["logs", "--namespace", &scene.namespace, DYING, "--container=kafka"]).await?;
    ensure!(log.contains(STARTED), "no word of the start of {DYING}:\n{log}");
    ensure!(!log.contains(UNCLEAN), "the broker read its logs twice");
    Ok(())
}

/// Is it the pod that was there before, and going to stay?
fn is_first(pod: Option<&Pod>, uid: &String) -> bool {
    pod.is_some_and(|pod| pod.uid().as_ref() == Some(uid) && pod.metadata.deletion_timestamp.is_none())
}

/// Waits until the status says what the broker is doing.
async fn until_told_to_recover(cluster: &Cluster<'_>) -> Result<()> {
    cluster
        .until_status("a word about the recovery of broker 21", ACTING, |_, status| {
            let mut said = status.conditions.iter().flatten().filter_map(|one| one.message.as_ref());
            said.any(|message| message.contains("21") && message.to_lowercase().contains("recover"))
                .then_some(())
        })
        .await
}
