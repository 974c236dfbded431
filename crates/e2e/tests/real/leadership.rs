//! Two replicas: one acts, and the other takes over.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use karst_e2e::cluster::Cluster;
use karst_e2e::manifests::{kafka, paper_pool};
use karst_e2e::operator::Operator;
use karst_e2e::story::{Scene, story};
use kube::ResourceExt;

#[tokio::test]
async fn when_the_leader_is_killed_or_freezes_the_other_replica_takes_over() -> Result<()> {
    story("leadership", Duration::from_secs(240), async |scene| {
        let operator = Operator::installed(&scene.client);
        operator.scale(2).await?;
        let successor = a_killed_leader_is_replaced(scene, &operator).await?;
        a_frozen_leader_is_replaced_and_steps_down_when_it_wakes(scene, &operator, &successor).await
    })
    .await
}

async fn a_killed_leader_is_replaced(scene: &Scene, operator: &Operator) -> Result<Pod> {
    let leader = operator.until_led(None).await?;
    scene.step(format!("killing the leader {}", leader.name_any()));
    operator.kill_for_good(&leader).await?;

    scene.step("waiting for another leader");
    let successor = operator.until_led(Some(&leader.name_any())).await?;
    it_acts(scene, "killed").await?;
    Ok(successor)
}

async fn a_frozen_leader_is_replaced_and_steps_down_when_it_wakes(
    scene: &Scene,
    operator: &Operator,
    leader: &Pod,
) -> Result<()> {
    operator.until_replicas(2).await?;
    scene.step(format!("freezing the leader {}", leader.name_any()));
    Operator::freeze(leader)?;
    let successor = operator.until_led(Some(&leader.name_any())).await;
    Operator::wake(leader)?;
    let successor = successor?;

    scene.step("waiting until the old leader, awake again, has noticed and ended by itself");
    assert_eq!(operator.until_restarted(leader).await?, 1, "it was not its own decision");
    it_acts(scene, "frozen").await?;
    let leads = operator.until_led(None).await?;
    assert_eq!(leads.name_any(), successor.name_any(), "the old leader leads again");
    Ok(())
}

async fn it_acts(scene: &Scene, name: &str) -> Result<()> {
    scene.step("creating a cluster");
    let pools = [paper_pool(name, &format!("{name}-both"), &["controller", "broker"], 1)];
    let cluster = Cluster::create(scene, &kafka(name), &pools).await?;
    cluster.until_pods(1).await.map(drop)
}
