//! What docs/quorum.md tells about lost disks and lost resources, on a real cluster: two of three controllers lose their disks while
//! the third is down, the resources go and the disks stay, all ephemeral disks go at once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use karst_api::{Kafka, KafkaNodePool, KafkaStatus};
use karst_e2e::cluster::{Cluster, STARTING, condition, is_pod_ready, is_true};
use karst_e2e::kafka_tools::{ConsoleTools, Kcat};
use karst_e2e::manifests::{claims, kafka, pool, pool_with_claims, replicated, separate};
use karst_e2e::operator::Operator;
use karst_e2e::snapshot::Facts;
use karst_e2e::story::story;
use karst_e2e::{disks, kubectl, wait};
use kube::ResourceExt;
use kube::api::DeleteParams;
use tokio::time::sleep;

const INTACT: &str = "live-controllers-3";
const LOST: [&str; 2] = ["live-controllers-4", "live-controllers-5"];
/// Elections take seconds. What has not happened by then does not happen.
const LONG_ENOUGH: Duration = Duration::from_secs(40);

#[tokio::test]
async fn disasters_are_survived_with_the_help_of_a_person() -> Result<()> {
    story("disasters", Duration::from_secs(1200), async |scene| {
        let cluster = Cluster::create_ready(scene, &replicated("live"), &separate("live")).await?;
        cluster.until_voters(&[3, 4, 5]).await?;
        let kcat = Kcat::new(&cluster.bootstrap().await?);
        kcat.round_trip("before", "record").await?;
        let before = directories(&cluster).await?;

        lose_two_disks_while_the_third_is_down(&cluster).await?;
        nobody_is_elected(&cluster).await?;
        // Whoever led last cannot be restored.
        let leader =
            cluster.scene.api::<Kafka>().get(&cluster.name).await?.status.and_then(|it| it.quorum?.leader);
        let (restored, other) = if leader == Some(4) { (2, 1) } else { (1, 2) };
        restore(&cluster, &format!("{}:{}", restored + 3, before[restored])).await?;
        cluster.until_voters(&[3, 4, 5]).await?;
        cluster.until_pods_ready(6).await?;

        scene.step("the other lost disk is replaced");
        cluster
            .until_status("another disk of the other voter", STARTING, |_, status| {
                let voters = status.quorum.as_ref()?.voters.as_ref()?;
                let id = i32::try_from(other + 3).ok();
                let disk = voters.iter().find(|voter| voter.id == id)?.directory_id.as_ref()?;
                (voters.len() == 3 && *disk != before[other]).then_some(())
            })
            .await?;
        let after = directories(&cluster).await?;
        let kept = [0, restored];
        ensure!(kept.iter().all(|one| after[*one] == before[*one]), "{before:?} became {after:?}");

        scene.step("everything is there, and work goes on");
        ensure!(kcat.consume("before").await? == ["record"], "what was written before is lost");
        kcat.round_trip("after", "record").await
    })
    .await
}

/// The directory ids of the voters, in the order of their nodes.
async fn directories(cluster: &Cluster<'_>) -> Result<Vec<String>> {
    let status = cluster.scene.api::<Kafka>().get(&cluster.name).await?.status.context("no status")?;
    let voters = status.quorum.and_then(|quorum| quorum.voters).context("no voters")?;
    voters.into_iter().map(|voter| voter.directory_id.context("no directory id")).collect()
}

async fn lose_two_disks_while_the_third_is_down(cluster: &Cluster<'_>) -> Result<()> {
    let scene = cluster.scene;
    scene.step("stopping the operator, deleting all controllers, and the disks of two");
    let operator = Operator::installed(&scene.client);
    operator.scale(0).await?;
    let at_once = DeleteParams::default().grace_period(1);
    for pod in LOST.iter().chain([&INTACT]) {
        scene.api::<Pod>().delete(pod, &at_once).await?;
    }
    for pod in LOST {
        let claim = format!("data-{pod}");
        scene.api::<PersistentVolumeClaim>().delete(&claim, &DeleteParams::default()).await?;
        let gone = |claim: Option<&PersistentVolumeClaim>| claim.is_none().then_some(());
        wait::until_one(scene.api::<PersistentVolumeClaim>(), &claim, "its end", STARTING, gone).await?;
    }
    scene.step("starting the operator, which starts all three");
    operator.scale(1).await?;
    let what = "three controllers that run";
    wait::until(scene.api::<Pod>(), cluster.watched(), what, STARTING, |pods| {
        let runs = |pod: &&Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            pod.name_any().contains("controllers") && phase == Some("Running")
        };
        (pods.values().filter(runs).count() == 3).then_some(())
    })
    .await
}

fn has_no_leader(status: &KafkaStatus) -> bool {
    condition(status, "QuorumHealthy").is_some_and(|one| one.reason.as_deref() == Some("NoLeader"))
}

async fn nobody_is_elected(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("nobody is elected on empty disks");
    cluster
        .until_status("a quorum without a leader", STARTING, |_, status| has_no_leader(status).then_some(()))
        .await?;
    sleep(LONG_ENOUGH).await;
    let status = cluster.scene.api::<Kafka>().get(&cluster.name).await?.status.context("no status")?;
    ensure!(has_no_leader(&status), "somebody was elected: {:?}", status.conditions);
    let told = condition(&status, "QuorumHealthy").and_then(|one| one.message.clone()).unwrap_or_default();
    ensure!(told.contains("karst.io/restore-voter"), "nobody is told what to do: {told}");
    Ok(())
}

async fn restore(cluster: &Cluster<'_>, voter: &str) -> Result<()> {
    cluster.scene.step(format!("restoring {voter}"));
    let wish = format!("karst.io/restore-voter={voter}");
    kubectl::run(&["annotate", "--namespace", &cluster.scene.namespace, "kafka/live", &wish]).await?;
    cluster
        .until_status("a healthy quorum", STARTING, |kafka, status| {
            let is_done = !kafka.annotations().contains_key("karst.io/restore-voter");
            (is_done && is_true(status, "QuorumHealthy") && is_true(status, "QuorumReconciled")).then_some(())
        })
        .await
}

/// Of two voters there is no other one to restore than the one that led last. The other one still says that it leads.
#[tokio::test]
async fn disasters_that_take_the_leaders_disk_of_two_voters_need_a_person() -> Result<()> {
    story("disasters-two", Duration::from_secs(900), async |scene| {
        let pools = [("brokers", "broker", 3), ("controllers", "controller", 2)];
        let pools = pools.map(|(name, role, replicas)| pool_with_claims("live", name, &[role], replicas));
        let cluster = Cluster::create_ready(scene, &replicated("live"), &pools).await?;
        cluster.until_voters(&[3, 4]).await?;
        let kcat = Kcat::new(&cluster.bootstrap().await?);
        kcat.round_trip("before", "record").await?;
        let before = directories(&cluster).await?;
        let leader = cluster.status().await?.quorum.and_then(|quorum| quorum.leader).context("no leader")?;
        let directory = before.get(usize::try_from(leader - 3)?).context("another voter leads")?;

        scene.step(format!("the leader, {leader}, loses its disk for good"));
        let operator = Operator::installed(&scene.client);
        operator.scale(0).await?;
        let pod = format!("live-controllers-{leader}");
        let claim = format!("data-{pod}");
        scene.api::<PersistentVolumeClaim>().delete(&claim, &DeleteParams::default()).await?;
        scene.api::<Pod>().delete(&pod, &DeleteParams::default().grace_period(1)).await?;
        let gone = |claim: Option<&PersistentVolumeClaim>| claim.is_none().then_some(());
        wait::until_one(scene.api::<PersistentVolumeClaim>(), &claim, "its end", STARTING, gone).await?;
        operator.scale(1).await?;
        nobody_is_elected(&cluster).await?;

        restore(&cluster, &format!("{leader}:{directory}")).await?;
        cluster.until_voters(&[3, 4]).await?;
        cluster.until_pods_ready(5).await?;
        ensure!(directories(&cluster).await? == before, "other disks vote");
        ensure!(kcat.consume("before").await? == ["record"], "what was written before is lost");
        kcat.round_trip("after", "record").await
    })
    .await
}

/// The settings of a first voter say that it forms the quorum until the operator has seen it in there. Here it never does.
#[tokio::test]
async fn disasters_that_befall_a_first_voter_at_once_cost_it_its_vote() -> Result<()> {
    story("disasters-first", Duration::from_secs(600), async |scene| {
        let operator = Operator::installed(&scene.client);
        let cluster = Cluster::create(scene, &replicated("live"), &separate("live")).await?;
        cluster.until_pods(6).await?;
        scene.step("stopping the operator, before it has seen a quorum");
        operator.scale(0).await?;
        cluster.until_pods_ready(6).await?;
        let leader = ConsoleTools::new(scene, "live-brokers-0", "localhost:9092").leader().await?;
        lose_disk_of_founder(&cluster, leader).await?;

        scene.step("starting the operator, which replaces the voter");
        operator.scale(1).await?;
        cluster.until_ready().await?;
        cluster.until_voters(&[3, 4, 5]).await?;
        let founders = cluster.status().await?.initial_controllers.context("no initial controllers")?;
        for (node, directory) in (3..).zip(directories(&cluster).await?) {
            let is_first = founders.contains(&directory);
            ensure!(is_first == (node != leader), "node {node} votes with {directory}, of {founders}");
        }
        Kcat::new(&cluster.bootstrap().await?).round_trip("after", "record").await
    })
    .await
}

async fn lose_disk_of_founder(cluster: &Cluster<'_>, node: i32) -> Result<()> {
    let (scene, pod) = (cluster.scene, format!("live-controllers-{node}"));
    let settings = scene.api::<ConfigMap>().get(&pod).await?.data.unwrap_or_default();
    ensure!(settings["storage.format"] == "initial", "the operator has seen the quorum already");
    scene.step(format!("the leader, {pod}, loses its disk"));
    let claim = scene.api::<PersistentVolumeClaim>().get(&format!("data-{pod}")).await?;
    disks::lose(scene, &scene.api::<Pod>().get(&pod).await?, &claim).await?;
    let is_back = |found: Option<&Pod>| {
        let containers = found?.status.as_ref()?.container_statuses.as_ref()?;
        let restarts = containers.iter().map(|container| container.restart_count).max()?;
        (restarts > 0 && is_pod_ready(found?)).then_some(())
    };
    wait::until_one(scene.api::<Pod>(), &pod, "its return", STARTING, is_back).await?;
    let log = kubectl::run(&["logs", "--namespace", &scene.namespace, &pod, "--container=kafka"]).await?;
    ensure!(log.contains("know that this node was one of them"), "nobody told it:\n{log}");
    Ok(())
}

#[tokio::test]
async fn disasters_that_take_the_resources_leave_the_disks() -> Result<()> {
    story("disasters-resources", Duration::from_secs(900), async |scene| {
        let mut pools = separate("live");
        for pool in &mut pools {
            pool["spec"]["storage"] = claims(false);
        }
        let cluster = Cluster::create_ready(scene, &replicated("live"), &pools).await?;
        cluster.until_voters(&[3, 4, 5]).await?;
        let before = Facts::of(&cluster).await?;
        let voters = directories(&cluster).await?;
        Kcat::new(&cluster.bootstrap().await?).round_trip("before", "record").await?;

        scene.step("deleting the Kafka resource and its pools");
        let foreground = DeleteParams::foreground();
        scene.api::<Kafka>().delete("live", &foreground).await?;
        for pool in ["brokers", "controllers"] {
            scene.api::<KafkaNodePool>().delete(pool, &foreground).await?;
        }
        wait::until(scene.api::<KafkaNodePool>(), cluster.watched(), "no pools", STARTING, |pools| {
            pools.is_empty().then_some(())
        })
        .await?;
        wait::until(scene.api::<Pod>(), cluster.watched(), "no pods", STARTING, |pods| {
            pods.is_empty().then_some(())
        })
        .await?;

        scene.step("creating them again");
        let cluster = Cluster::create_ready(scene, &replicated("live"), &pools).await?;
        let after = Facts::of(&cluster).await?;
        ensure!(after.cluster_id == before.cluster_id, "{before:?} became {after:?}");
        ensure!(after.node_ids == before.node_ids, "{before:?} became {after:?}");
        ensure!(directories(&cluster).await? == voters, "other disks vote");
        let kcat = Kcat::new(&cluster.bootstrap().await?);
        ensure!(kcat.consume("before").await? == ["record"], "what was written before is lost");
        kcat.round_trip("after", "record").await
    })
    .await
}

#[tokio::test]
async fn disasters_that_take_all_ephemeral_disks_leave_a_cluster_that_starts_over() -> Result<()> {
    story("disasters-ephemeral", Duration::from_secs(900), async |scene| {
        for replicas in [1, 3] {
            let name = format!("live-{replicas}");
            scene.step(format!("{replicas} nodes lose their pods, all at once"));
            let nodes = [pool(&name, &format!("both-{replicas}"), &["controller", "broker"], replicas)];
            let cluster = Cluster::create_ready(scene, &kafka(&name), &nodes).await?;
            let before = Facts::of(&cluster).await?;
            Kcat::new(&cluster.bootstrap().await?).round_trip("before", "record").await?;
            let old = cluster.pod_uids().await?;
            let at_once = DeleteParams::default().grace_period(0);
            for pod in old.keys() {
                scene.api::<Pod>().delete(pod, &at_once).await?;
            }

            scene.step("waiting until it has started over");
            cluster
                .until_status("a quorum without a leader", STARTING, |_, status| {
                    has_no_leader(status).then_some(())
                })
                .await?;
            cluster
                .until_status("a healthy quorum", STARTING, |_, status| {
                    (is_true(status, "QuorumHealthy") && is_true(status, "Ready")).then_some(())
                })
                .await?;
            let after = Facts::of(&cluster).await?;
            ensure!(after.cluster_id == before.cluster_id, "{before:?} became {after:?}");
            ensure!(after.initial_controllers == before.initial_controllers, "{before:?} became {after:?}");
            Kcat::new(&cluster.bootstrap().await?).round_trip("after", "record").await?;
        }
        Ok(())
    })
    .await
}
