//! The operator dies at every moment there is, and the cluster becomes the same.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use karst_api::StrimziPodSet;
use karst_e2e::cluster::{ACTING, Cluster, condition};
use karst_e2e::crash::{End, Life};
use karst_e2e::door::Closing;
use karst_e2e::kafka_tools::Kcat;
use karst_e2e::manifests::{claims, kafka, paper_pool, pool};
use karst_e2e::operator::Operator;
use karst_e2e::snapshot::{self, Facts, Snapshot};
use karst_e2e::story::{Scene, story};
use karst_e2e::wait;

/// More lives than there are writes in a creation: an operator that needs more makes no progress.
const MOST_LIVES: usize = 60;
/// The last writes are statuses, and two of them may be one at times.
const SLACK: usize = 4;
const PODS: usize = 3;

#[tokio::test]
async fn an_operator_that_dies_at_any_write_of_a_creation_still_makes_the_same_cluster() -> Result<()> {
    story("crash-at-writes", Duration::from_secs(400), async |scene| {
        Operator::installed(&scene.client).scale(0).await?;
        die_at_every_write(scene).await
    })
    .await
}

async fn die_at_every_write(scene: &Scene) -> Result<()> {
    scene.step("creating a cluster without a crash");
    let undisturbed = create(scene, "undisturbed").await?;
    let life = Life::begin(scene, Closing::Never).await?;
    let writes = finished(&undisturbed).await.map(|()| life.door.writes());
    life.live(std::future::ready(Ok(()))).await?;
    let writes = writes?;
    let expected = snapshot::take(&undisturbed).await?;
    ensure!(writes > 10, "only {writes} writes: were they counted?");

    scene.step(format!("crashing at each of {writes} writes, lost or carried out"));
    let mut crashes = 0;
    for number in 1..=writes {
        for (name, closing) in [("lost", Closing::Before(number)), ("done", Closing::After(number))] {
            let cluster = create(scene, &format!("{name}-{number}")).await?;
            let mut history = History::default();
            let end = one_life(&cluster, closing, &mut history).await?;
            crashes += usize::from(end == End::Crashed);
            one_life(&cluster, Closing::Never, &mut history).await?;
            history.check(&cluster, &expected).await?;
        }
    }
    scene.step(format!("{crashes} crashes"));
    ensure!(crashes + 2 * SLACK >= 2 * writes, "only {crashes} crashes at {writes} writes");

    scene.step("creating one more without a crash, among all that are finished");
    let last = create(scene, "last").await?;
    let life = Life::begin(scene, Closing::Never).await?;
    finished(&last).await?;
    let more = life.door.writes();
    life.live(std::future::ready(Ok(()))).await?;
    ensure!(
        more <= writes + SLACK,
        "{more} writes where {writes} were enough: finished clusters were written"
    );

    scene.step("crashing at every first write, life after life");
    let cluster = create(scene, "many-lives").await?;
    let mut history = History::default();
    let mut lives = 1;
    while one_life(&cluster, Closing::After(1), &mut history).await? == End::Crashed {
        lives += 1;
        ensure!(lives < MOST_LIVES, "no end after {lives} lives");
    }
    scene.step(format!("it took {lives} lives"));
    history.check(&cluster, &expected).await
}

async fn create<'a>(scene: &'a Scene, name: &str) -> Result<Cluster<'a>> {
    let mut brokers = paper_pool(name, &format!("{name}-b"), &["broker"], 2);
    brokers["spec"]["storage"] = claims(true);
    let controllers = paper_pool(name, &format!("{name}-c"), &["controller"], 1);
    Cluster::create(scene, &kafka(name), &[brokers, controllers]).await
}

async fn one_life(cluster: &Cluster<'_>, closing: Closing, history: &mut History) -> Result<End> {
    let life = Life::begin(cluster.scene, closing).await?;
    let end = life.live(finished(cluster)).await.with_context(|| format!("{}, {closing:?}", cluster.name))?;
    history.add(cluster).await?;
    Ok(end)
}

/// Pods, pod sets and statuses are as they stay while no pod can start.
async fn finished(cluster: &Cluster<'_>) -> Result<()> {
    cluster.until_pods(PODS).await?;
    let sets = cluster.scene.api::<StrimziPodSet>();
    wait::until(sets, cluster.watched(), "both pod sets to count their pods", ACTING, |sets| {
        let counted = |set: &StrimziPodSet| {
            let status = set.status.as_ref();
            status.is_some_and(|status| status.pods.is_some() && status.pods == status.current_pods)
        };
        (sets.len() == 2 && sets.values().all(counted)).then_some(())
    })
    .await?;
    cluster
        .until_status("all pods to be waited for", ACTING, |_, status| {
            let message = condition(status, "Ready")?.message.as_ref()?;
            message.starts_with(&format!("0 of {PODS} nodes")).then_some(())
        })
        .await
}

/// What was true between lives, when nobody was there to change it.
#[derive(Debug, Default)]
struct History {
    cluster_ids: BTreeSet<String>,
    initial_controllers: BTreeSet<String>,
    node_ids: BTreeMap<String, BTreeSet<Vec<i32>>>,
    pods: BTreeSet<(String, String)>,
}

impl History {
    async fn add(&mut self, cluster: &Cluster<'_>) -> Result<()> {
        let Facts { cluster_id, initial_controllers, node_ids } = Facts::of(cluster).await?;
        self.cluster_ids.extend(cluster_id);
        self.initial_controllers.extend(initial_controllers);
        for (pool, ids) in node_ids {
            self.node_ids.entry(pool).or_default().insert(ids);
        }
        self.pods.extend(cluster.pod_uids().await?);
        Ok(())
    }

    /// What is durable was written once, no pod was made twice, and the end is the same as without a crash.
    async fn check(&self, cluster: &Cluster<'_>, expected: &Snapshot) -> Result<()> {
        let name = &cluster.name;
        assert_eq!(self.cluster_ids.len(), 1, "{name}: {self:?}");
        assert_eq!(self.initial_controllers.len(), 1, "{name}: {self:?}");
        assert!(self.node_ids.values().all(|ids| ids.len() == 1), "{name}: {self:?}");
        assert_eq!(self.pods.len(), PODS, "{name}: {self:?}");
        assert_eq!(&snapshot::take(cluster).await?, expected, "{name}");
        Ok(())
    }
}

#[tokio::test]
async fn the_installed_operator_is_killed_twice_during_a_creation_and_the_cluster_comes_up() -> Result<()> {
    story("killed", Duration::from_secs(360), async |scene| {
        let operator = Operator::installed(&scene.client);
        scene.step("applying, and killing the operator");
        let nodes = [pool("k", "both", &["controller", "broker"], 1)];
        let cluster = Cluster::create(scene, &kafka("k"), &nodes).await?;
        Operator::kill(&operator.until_led(None).await?)?;

        // A container that dies a third time would be kept waiting for longer than the cluster needs.
        scene.step("killing it again when the cluster has its id");
        let id = cluster.until_status("an id", ACTING, |_, status| status.cluster_id.clone()).await?;
        operator.kill_when_running().await?;

        scene.step("waiting until it is ready");
        let status = cluster.until_ready().await?;
        assert_eq!(status.cluster_id, Some(id));
        assert_eq!(cluster.pod_uids().await?.len(), 1);
        Kcat::new(&cluster.bootstrap().await?).round_trip("topic", "record").await
    })
    .await
}
