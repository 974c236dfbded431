//! One pool of controllers is replaced by another in one go. Somebody else watches, and counts.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use karst_api::KafkaNodePool;
use karst_e2e::cluster::{Cluster, STARTING};
use karst_e2e::kafka_tools::ConsoleTools;
use karst_e2e::load::under_load;
use karst_e2e::manifests::{pool_with_claims, replicated, separate};
use karst_e2e::story::story;
use karst_e2e::{plots, wait};
use karst_kafka::{Admin, Bootstrap, ClientConfig, Quorum};
use kube::api::DeleteParams;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// How often the watcher looks.
const LOOKING: Duration = Duration::from_millis(100);
/// A leader knows its followers when they have fetched from it.
const SETTLING: Duration = Duration::from_secs(2);
/// A voter that lacks records for longer is not healthy.
const BEHIND: i64 = 2000;

#[tokio::test]
async fn replacement_of_a_pool_of_controllers_leaves_three_healthy_voters_at_every_moment() -> Result<()> {
    story("replacement", Duration::from_secs(600), async |scene| {
        let cluster = Cluster::create_ready(scene, &replicated("live"), &separate("live")).await?;
        let bootstrap = cluster.bootstrap().await?;
        under_load(scene, &bootstrap, async || {
            let stop = CancellationToken::new();
            let (watched, told) = tokio::join!(watch(&bootstrap, &stop), async {
                let told = replace(&cluster).await;
                stop.cancel();
                told
            });
            told?;
            let Watched { answers, most, least } = watched?;
            scene.step(format!(
                "of {answers} answers the one with the fewest healthy voters had {least}, the one with the most {most}"
            ));
            ensure!(answers > 20, "only {answers} answers");
            ensure!(most > 3, "the new ones never voted beside the old ones");
            ensure!(least >= 3, "only {least} voters were healthy at some moment");
            Ok(())
        })
        .await?;
        plots::kafka_agrees(&cluster, &ConsoleTools::new(scene, "live-brokers-0", &bootstrap), 3).await
    })
    .await
}

async fn replace(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("adding a pool of controllers, and deleting the other one in the same moment");
    let pools = cluster.scene.api::<KafkaNodePool>();
    let new = [pool_with_claims("live", "fresh", &["controller"], 3)];
    let at_once = DeleteParams::default();
    let (created, deleted) = tokio::join!(cluster.create_pools(&new), pools.delete("controllers", &at_once));
    created?;
    deleted?;
    cluster.until_voters(&[6, 7, 8]).await?;
    wait::until_one(pools, "controllers", "the end of pool controllers", STARTING, |pool| {
        pool.is_none().then_some(())
    })
    .await?;
    cluster.until_pods_ready(6).await?;
    cluster.until_ready().await.map(drop)
}

struct Watched {
    answers: usize,
    most: usize,
    least: usize,
}

/// Asks brokers for the quorum again and again. What a leader says that has just begun does not count: it knows nobody yet.
async fn watch(bootstrap: &str, stop: &CancellationToken) -> Result<Watched> {
    let admin = Admin::new(Bootstrap::Brokers(vec![bootstrap.parse()?]), ClientConfig::default());
    let mut watched = Watched { answers: 0, most: 0, least: usize::MAX };
    let mut term = None;
    while !stop.is_cancelled() {
        sleep(LOOKING).await;
        let Ok(quorum) = admin.describe_quorum().await else { continue };
        ensure!(quorum.voters.len() >= 3, "only {} voters", quorum.voters.len());
        let now = (quorum.leader, quorum.leader_epoch);
        let (_, since) = term.take_if(|(seen, _)| *seen == now).unwrap_or((now, Instant::now()));
        term = Some((now, since));
        if since.elapsed() > SETTLING {
            let healthy = healthy(&quorum).context("the leader does not vote")?;
            watched.answers += 1;
            watched.most = watched.most.max(healthy);
            watched.least = watched.least.min(healthy);
        }
    }
    Ok(watched)
}

fn healthy(quorum: &Quorum) -> Option<usize> {
    let all = quorum.voters.iter().chain(&quorum.observers);
    let time = all.filter(|one| one.id == quorum.leader).find_map(|leader| leader.last_caught_up)?;
    let is_healthy = |at: Option<i64>| at.is_some_and(|at| time.saturating_sub(at) < BEHIND);
    Some(quorum.voters.iter().filter(|voter| is_healthy(voter.last_caught_up)).count())
}
