//! Whatever somebody writes harms nobody else: the operator goes on, and a neighbour's cluster is scaled in its usual time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use futures::stream;
use hyper::http::Request;
use k8s_openapi::api::core::v1::Pod;
use karst_e2e::cluster::{ACTING, Cluster};
use karst_e2e::kubectl;
use karst_e2e::manifests::{kafka, paper_pool, pool};
use karst_e2e::operator::Operator;
use karst_e2e::story::{Scene, story};
use karst_malice::{Case, Dice, Malice};
use kube::ResourceExt;
use serde_json::{Value, json};

/// How many hostile resources there are of each kind.
const OF_EACH_KIND: usize = 120;
/// The same ones every time; what is found by others is tried without a Kubernetes (`cargo xtask fuzz malice`).
const SEED: u64 = 17;
/// How many are sent at once.
const AT_ONCE: usize = 8;
/// A broker that is added serves within seconds; on two busy cores it takes this long at most.
const USUAL: Duration = Duration::from_secs(60);

#[tokio::test]
async fn hostile_resources_neither_stop_the_operator_nor_slow_down_a_neighbour() -> Result<()> {
    story("hostile", Duration::from_secs(240), async |scene| {
        let neighbour = create_neighbour(scene).await?;
        let operator = Operator::installed(&scene.client);
        let before = life(&operator.until_led(None).await?);

        scene.step("sending hostile resources, while the neighbour is scaled");
        let start = Instant::now();
        let scaled = async {
            neighbour.edit_pool("brokers", &json!({ "replicas": 1 })).await?;
            neighbour.until_pods_ready(2).await?;
            anyhow::Ok(start.elapsed())
        };
        let (tally, took) = tokio::try_join!(send_all(scene), scaled)?;
        scene.step(format!("{tally:?}; the neighbour took {:.1} s", took.as_secs_f32()));
        ensure!(took < USUAL, "the neighbour had to wait for {took:?}");
        ensure!(tally.taken + tally.refused >= 200, "only {tally:?}");
        ensure!(tally.taken > 0 && tally.refused > 0, "all of one kind: {tally:?}");

        scene.step("asking for something good");
        let after = Cluster::create(scene, &kafka("after"), &[]).await?;
        after.until_not_ready("PoolsMissing", "strimzi.io/cluster=after").await?;

        scene.step("deleting everything");
        delete_all(scene).await?;
        let after = life(&operator.until_led(None).await?);
        ensure!(after == before, "the operator was started anew: {before:?}, {after:?}");
        Ok(())
    })
    .await
}

/// One node, and a pool that waits for its first.
async fn create_neighbour(scene: &Scene) -> Result<Cluster<'_>> {
    scene.step("creating the neighbour");
    let nodes = pool("neighbour", "both", &["controller", "broker"], 1);
    let brokers = pool("neighbour", "brokers", &["broker"], 0);
    Cluster::create_ready(scene, &kafka("neighbour"), &[nodes, brokers]).await
}

/// The operator's pod, and how often its container was started.
fn life(pod: &Pod) -> (Option<String>, i32) {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.clone());
    let restarts = containers.into_iter().flatten().map(|container| container.restart_count).sum();
    (pod.uid(), restarts)
}

/// What the API server did with them.
#[derive(Debug, Default)]
struct Tally {
    taken: usize,
    refused: usize,
}

/// Clusters without pools, and pools of a cluster that is refused: all of them are read and decided about, and none of them
/// needs the machine that the neighbour runs on.
async fn send_all(scene: &Scene) -> Result<Tally> {
    let mut victim = kafka("victim");
    victim["spec"]["kafka"]["version"] = json!("2.8.0");
    let pool = paper_pool("victim", "nodes", &["controller", "broker"], 1);
    let good = [kafka("hostile"), pool];
    let mut hostile = vec![("kafkas", victim)];
    for (plural, good) in ["kafkas", "kafkanodepools"].into_iter().zip(good) {
        let cases = cases(plural, good)?.into_iter().enumerate();
        hostile.extend(cases.map(|(index, case)| (plural, named(case.object, plural, index))));
    }
    let sent = stream::iter(hostile).map(|(plural, object)| send(scene, plural, object));
    let answers: Vec<_> = sent.buffer_unordered(AT_ONCE).collect().await;
    let mut tally = Tally::default();
    for is_taken in answers {
        match is_taken? {
            true => tally.taken += 1,
            false => tally.refused += 1,
        }
    }
    Ok(tally)
}

fn cases(plural: &str, good: Value) -> Result<Vec<Case>> {
    let crd = karst_api::definitions().into_iter().find(|crd| crd.spec.names.plural == plural);
    let crd = serde_json::to_value(crd.context("a definition")?)?;
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let malice = Malice::new(schema, good, &[]);
    let mut dice = Dice::new(SEED);
    Ok((0..OF_EACH_KIND).map(|_| malice.several(&mut dice)).collect())
}

/// With a name of its own, so that each is another one.
fn named(mut object: Value, plural: &str, index: usize) -> Value {
    if object["metadata"].is_object() {
        object["metadata"]["name"] = json!(format!("hostile-{plural}-{index}"));
    }
    object
}

/// Sends one as it is: no library of ours may mend or refuse it before. Was it taken?
async fn send(scene: &Scene, plural: &str, object: Value) -> Result<bool> {
    let path = format!("/apis/kafka.strimzi.io/v1/namespaces/{}/{plural}", scene.namespace);
    let request = Request::post(path).header("Content-Type", "application/json");
    let request = request.body(serde_json::to_vec(&object)?)?;
    match scene.client.request_text(request).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => Ok(false),
        Err(error) => Err(error).context("the API server did not answer"),
    }
}

/// Also what no type of ours could read.
async fn delete_all(scene: &Scene) -> Result<()> {
    let limit = format!("--timeout={}s", ACTING.as_secs());
    let kinds = "kafkanodepools,kafkas";
    kubectl::run(&["delete", kinds, "--all", "--namespace", &scene.namespace, &limit]).await.map(drop)
}
