//! What Kubernetes runs on breaks: nobody answers for its API, its store is slow, a machine is away, twenty clusters hang. Clients go on,
//! nothing restarts without need, and what was asked for happens. `KARST_SOAK_MINUTES` says for how long each fault lasts.
//!
//! Clocks cannot be told apart here: all processes of a machine share one, and a static program takes no other. What a clock that is
//! wrong does to decisions is tested where time is an input: in `crates/core/tests/plan/clocks.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use karst_e2e::cluster::{ACTING, Cluster, STARTING, is_pod_ready, is_true, restarts};
use karst_e2e::frozen::Frozen;
use karst_e2e::kafka_tools::ConsoleTools;
use karst_e2e::load::{under_load, under_records};
use karst_e2e::manifests::{kafka, paper_pool, pool, replicated, separate};
use karst_e2e::operator::Operator;
use karst_e2e::platform::{Component, until_api_answers};
use karst_e2e::plots::{add_and_remove_a_broker, only_changed};
use karst_e2e::processes::kill_kafka;
use karst_e2e::story::{Scene, minutes, story};
use karst_e2e::wait;
use kube::runtime::watcher::Config;
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::time::{Instant, sleep};

/// The issue asks for ten: `KARST_SOAK_MINUTES=10`.
const USUAL_MINUTES: u64 = 3;
/// Time to begin, and to see that all is well at the end.
const AROUND: Duration = Duration::from_secs(1500);

/// The pod that dies while nobody can tell the operator.
const KILLED: &str = "live-brokers-1";

/// For so long the store stands still, and then works: a write takes a second on average, and two now and then.
const STILL: Duration = Duration::from_millis(1500);
const WORKS: Duration = Duration::from_millis(500);

/// The pods of the machine that is away.
const AWAY: [&str; 2] = ["live-brokers-0", "live-controllers-3"];
/// How long it takes until Kubernetes calls a machine away.
const NOTICED: Duration = Duration::from_secs(180);
/// Kubernetes removes pods itself from a machine that is away for five minutes.
const LONGEST_AWAY: Duration = Duration::from_secs(180);

/// So many clusters hang, each with one node. They start a few at a time: a JVM costs ten seconds of a core.
const HUNG: usize = 20;
const AT_A_TIME: usize = 4;
/// How often the neighbour is changed, to see how soon the operator reacts.
const CHANGES: usize = 9;
/// What hung neighbours may cost in the middle of the measured: nothing but the noise of a busy machine.
const NOISE: Duration = Duration::from_millis(250);
/// What they may cost once: less than one of them is waited for.
const WORST: Duration = Duration::from_secs(2);

#[tokio::test]
async fn platform_without_an_api_server_for_minutes_restarts_nothing() -> Result<()> {
    let length = minutes(USUAL_MINUTES)?;
    story("api-gone", length + AROUND, async |scene| {
        let cluster = Cluster::create_ready(scene, &replicated("live"), &separate("live")).await?;
        let before = cluster.pod_uids().await?;
        let bootstrap = cluster.bootstrap().await?;
        under_load(scene, &bootstrap, async || {
            lose_the_api_server(&cluster, length).await?;
            scene.step("asking for another broker: the operator has to work again for that");
            cluster.edit_pool("brokers", &json!({ "replicas": 4 })).await?;
            cluster.until_pods_ready(7).await?;
            cluster.until_ready().await.map(drop)
        })
        .await?;
        only_changed(&before, &cluster.pod_uids().await?, &BTreeSet::new())?;
        let restarted = cluster.restart_counts().await?;
        let expected: BTreeMap<_, _> =
            restarted.keys().map(|name| (name.clone(), i32::from(name == KILLED))).collect();
        ensure!(restarted == expected, "containers were started again: {restarted:?}");
        Operator::installed(&scene.client).until_replicas(1).await
    })
    .await
}

async fn lose_the_api_server(cluster: &Cluster<'_>, length: Duration) -> Result<()> {
    let scene = cluster.scene;
    let victim = scene.api::<Pod>().get(KILLED).await?;
    scene.step(format!("the API server is gone for {} s", length.as_secs()));
    let away = Component::ApiServer.take_away()?;
    sleep(length / 2).await;
    scene.step(format!("killing Kafka in {KILLED}"));
    kill_kafka(&victim)?;
    sleep(length / 2).await;
    scene.step("bringing the API server back");
    away.bring_back()?;
    until_api_answers(&scene.client).await?;
    let what = "six ready pods, one of them with another Kafka";
    wait::until(scene.api::<Pod>(), cluster.watched(), what, STARTING, |pods| {
        let is_back = pods.get(KILLED).is_some_and(|pod| restarts(pod) > 0);
        (is_back && pods.len() == 6 && pods.values().all(is_pod_ready)).then_some(())
    })
    .await?;
    cluster.until_ready().await.map(drop)
}

#[tokio::test]
async fn platform_with_a_slow_store_does_what_is_asked_for_and_no_more() -> Result<()> {
    let length = minutes(USUAL_MINUTES)?;
    story("slow-store", length + AROUND, async |scene| {
        let cluster = Cluster::create_ready(scene, &replicated("live"), &separate("live")).await?;
        let bootstrap = cluster.bootstrap().await?;
        let tools = ConsoleTools::new(scene, "live-brokers-0", &bootstrap);
        let operator = Operator::installed(&scene.client);
        let (pods, lives) = (cluster.pod_uids().await?, operator.restarts().await?);
        under_records(scene, &bootstrap, async || {
            scene.step(format!("the store stands still for {STILL:?}, again and again"));
            let until = Instant::now() + length;
            let changes = async {
                while Instant::now() < until {
                    add_and_remove_a_broker(&cluster, &tools).await?;
                }
                anyhow::Ok(())
            };
            tokio::select! {
                error = Component::Store.stutter(STILL, WORKS) => Err(error),
                changed = changes => changed,
            }
        })
        .await?;
        only_changed(&pods, &cluster.pod_uids().await?, &BTreeSet::new())?;
        let restarted = cluster.restart_counts().await?;
        ensure!(restarted.values().all(|count| *count == 0), "containers were started again: {restarted:?}");
        let now = operator.restarts().await?;
        ensure!(now == lives, "the operator was started again {} times", now - lives);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn platform_whose_machine_vanishes_takes_nothing_away_until_it_is_back() -> Result<()> {
    let length = minutes(USUAL_MINUTES)?.min(LONGEST_AWAY);
    story("machine", length + AROUND, async |scene| {
        let cluster = Cluster::create_ready(scene, &replicated("live"), &separate("live")).await?;
        let before = cluster.pod_uids().await?;
        let bootstrap = cluster.bootstrap().await?;
        under_records(scene, &bootstrap, async || {
            lose_the_machine(&cluster, length).await?;
            scene.step("waiting until all have restarted");
            wait::until(
                scene.api::<Pod>(),
                cluster.watched(),
                "other pods, all ready",
                4 * STARTING,
                |pods| {
                    let is_new =
                        |pod: &Pod| before.get(&pod.name_any()) != pod.uid().as_ref() && is_pod_ready(pod);
                    (pods.len() == before.len() && pods.values().all(is_new)).then_some(())
                },
            )
            .await?;
            cluster.until_ready().await.map(drop)
        })
        .await
    })
    .await
}

/// Two nodes are gone with a machine. The others serve, but nothing of them is heard any more. Whoever wants a restart of all has to
/// wait: what is not known is not safe.
async fn lose_the_machine(cluster: &Cluster<'_>, length: Duration) -> Result<()> {
    let scene = cluster.scene;
    let before = cluster.pod_uids().await?;
    scene.step(format!("the kubelet stands still, and Kafka is gone in {AWAY:?}"));
    let kubelet = Component::Kubelet.freeze()?;
    for pod in AWAY {
        kill_kafka(&scene.api::<Pod>().get(pod).await?)?;
    }
    let nodes: Api<Node> = Api::all(scene.client.clone());
    wait::until(nodes, Config::default(), "a node that is not ready", NOTICED, |nodes| {
        (!nodes.values().any(is_node_ready)).then_some(())
    })
    .await?;

    scene.step("changing a setting for which all nodes restart");
    cluster.edit(&json!({ "config": { "queued.max.requests": 400 } })).await?;
    let what = "a pod that goes, though it serves";
    let gone = wait::until(scene.api::<Pod>(), cluster.watched(), what, length, |pods| {
        let serving = before.iter().filter(|(name, _)| !AWAY.contains(&name.as_str()));
        let mut stays = serving.map(|(name, uid)| {
            let pod = pods.get(name);
            pod.is_some_and(|pod| {
                pod.uid().as_ref() == Some(uid) && pod.metadata.deletion_timestamp.is_none()
            })
        });
        (!stays.all(|stays| stays)).then(|| pods.keys().cloned().collect::<Vec<_>>())
    })
    .await;
    if let Ok(pods) = gone {
        anyhow::bail!("a pod went while nobody could tell whether others serve; there: {pods:?}");
    }
    scene.step("the machine is back");
    drop(kubelet);
    Ok(())
}

fn is_node_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True")
}

#[tokio::test]
async fn platform_with_hung_clusters_reacts_as_soon_as_without() -> Result<()> {
    story("hung", Duration::from_secs(3600), async |scene| {
        let neighbour = create_neighbour(scene).await?;
        let mut replicas = 1;
        let alone = reactions(&neighbour, &mut replicas).await?;
        scene.step(format!("alone it takes {alone:.0?} until a pod is made"));

        let clusters = create_many(scene).await?;
        let mut pods = Vec::new();
        for cluster in &clusters {
            pods.extend(scene.api::<Pod>().list(&cluster.listed()).await?);
        }
        scene.step(format!("{} clusters hang, and still look ready", clusters.len()));
        // Nobody else may notice: a pod that is not ready is not asked.
        let _kubelet = Component::Kubelet.freeze()?;
        let _controllers = Component::Controllers.freeze()?;
        let _hung = Frozen::kafka(&pods)?;
        for cluster in &clusters {
            cluster
                .until_status("a word about its silence", 2 * ACTING, |_, status| {
                    (!is_true(status, "QuorumHealthy")).then_some(())
                })
                .await?;
        }
        let beside = reactions(&neighbour, &mut replicas).await?;
        scene.step(format!("beside them it takes {beside:.0?}"));
        ensure!(median(&beside) <= 2 * median(&alone) + NOISE, "alone {alone:.0?}, beside {beside:.0?}");
        let worst = beside.iter().max().copied().unwrap_or_default();
        ensure!(worst < WORST, "{worst:?} at worst; alone {alone:.0?}, beside {beside:.0?}");
        Ok(())
    })
    .await
}

/// A cluster whose pods are made and never run: to see how soon they are made, nothing else is needed.
async fn create_neighbour(scene: &Scene) -> Result<Cluster<'_>> {
    let pools = [("voters", "controller"), ("paper", "broker")]
        .map(|(name, role)| paper_pool("neighbour", name, &[role], 1));
    let cluster = Cluster::create(scene, &kafka("neighbour"), &pools).await?;
    cluster.until_pods(2).await?;
    Ok(cluster)
}

async fn create_many(scene: &Scene) -> Result<Vec<Cluster<'_>>> {
    let mut clusters = Vec::new();
    while clusters.len() < HUNG {
        let mut starting = Vec::new();
        for number in clusters.len()..HUNG.min(clusters.len() + AT_A_TIME) {
            let name = format!("hung-{number}");
            let nodes = pool(&name, &format!("{name}-nodes"), &["controller", "broker"], 1);
            starting.push(Cluster::create(scene, &kafka(&name), &[nodes]).await?);
        }
        for cluster in &starting {
            cluster.until_ready().await?;
        }
        clusters.append(&mut starting);
        scene.step(format!("{} of {HUNG} clusters run", clusters.len()));
    }
    Ok(clusters)
}

/// How long it takes from the wish for another node until its pod is there, again and again.
async fn reactions(cluster: &Cluster<'_>, replicas: &mut usize) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for _ in 0..CHANGES {
        *replicas += 1;
        let wanted = *replicas;
        let pods = cluster.scene.api::<Pod>();
        let made = wait::until(pods, cluster.watched(), "another pod", ACTING, |pods| {
            let made = pods.keys().filter(|name| name.contains("-paper-")).count();
            (made >= wanted).then(Instant::now)
        });
        let asked = async {
            cluster.edit_pool("paper", &json!({ "replicas": wanted })).await?;
            anyhow::Ok(Instant::now())
        };
        let (made, asked) = tokio::join!(made, asked);
        times.push(made?.saturating_duration_since(asked?));
    }
    Ok(times)
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
