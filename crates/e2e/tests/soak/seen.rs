//! What was seen to stop an operator for all clusters, where the definitions of another operator are installed: the API server has no
//! bounds for anything then. Each harms only itself.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hyper::http::Request;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionSpec,
};
use karst_core::names::CLUSTER_LABEL;
use karst_e2e::cluster::{ACTING, Cluster};
use karst_e2e::manifests::{kafka, paper_pool, pool};
use karst_e2e::operator::Operator;
use karst_e2e::story::{Scene, story};
use karst_e2e::{kubectl, wait};
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// What bounds a value in a schema. Rules of the schema go too: the API server takes none over what may be endless.
const BOUNDS: [&str; 6] =
    ["maxLength", "maxItems", "maxProperties", "maximum", "minimum", "x-kubernetes-validations"];
/// The definitions that go without.
const DEFINITIONS: [&str; 2] = ["kafkas.kafka.strimzi.io", "kafkanodepools.kafka.strimzi.io"];
/// The node of the neighbour.
const POD: &str = "neighbour-both-0";
/// Deeper than decoders of JSON go.
const DEPTH: usize = 130;
/// Bytes of a maintenance window.
const LONG: usize = 300_000;

#[tokio::test]
async fn seen_resources_without_bounds_harm_nobody_but_themselves() -> Result<()> {
    story("seen", Duration::from_secs(900), async |scene| {
        let nodes = pool("neighbour", "both", &["controller", "broker"], 1);
        let paper = paper_pool("neighbour", "paper", &["broker"], 0);
        let neighbour = Cluster::create_ready(scene, &kafka("neighbour"), &[nodes, paper]).await?;
        let mut kept = Vec::new();
        let told = tell(&neighbour, &mut kept).await;
        // However it went, the next story finds the definitions of today, and nothing that does not fit them.
        let cleared = delete_hostile(scene).await;
        let mut restored = Ok(());
        for (name, spec) in kept {
            let again = set_definition(scene, name, |now| {
                *now = spec;
                Ok(())
            });
            restored = restored.and(again.await);
        }
        told.and(cleared).and(restored)
    })
    .await
}

async fn tell(
    neighbour: &Cluster<'_>,
    kept: &mut Vec<(&'static str, CustomResourceDefinitionSpec)>,
) -> Result<()> {
    let scene = neighbour.scene;
    scene.step("taking all bounds out of the definitions");
    for name in DEFINITIONS {
        set_definition(scene, name, |spec| {
            let unbounded = without_bounds(serde_json::to_value(&*spec)?);
            kept.push((name, std::mem::replace(spec, serde_json::from_value(unbounded)?)));
            Ok(())
        })
        .await?;
    }
    let operator = Operator::installed(&scene.client);
    let before = life(&operator.until_led(None).await?);

    scene.step("sending what was seen");
    for hostile in hostile() {
        let pool = paper_pool(&hostile.name_any(), &format!("{}-nodes", hostile.name_any()), &BOTH, 1);
        send(scene, "kafkas", &hostile.0).await?;
        send(scene, "kafkanodepools", &pool).await?;
    }
    all_are_told(scene).await?;
    serves_the_neighbour(neighbour, 1).await?;
    let now = life(&operator.until_led(None).await?);
    ensure!(now == before, "the operator was started anew: {before:?}, {now:?}");

    scene.step("starting the operator again, with all of that there");
    operator.scale(0).await?;
    operator.scale(1).await?;
    let before = life(&operator.until_led(None).await?);
    all_are_told(scene).await?;
    serves_the_neighbour(neighbour, 2).await?;
    a_pod_without_its_label_is_still_seen(neighbour).await?;
    let now = life(&operator.until_led(None).await?);
    ensure!(now == before, "the operator was started anew: {before:?}, {now:?}");
    Ok(())
}

const BOTH: [&str; 2] = ["controller", "broker"];

/// A `Kafka` as it is sent: no type of ours could hold all of them.
struct Hostile(Value);

impl Hostile {
    fn name_any(&self) -> String {
        self.0["metadata"]["name"].as_str().unwrap_or_default().to_owned()
    }
}

fn hostile() -> [Hostile; 3] {
    let mut days = kafka("days");
    days["spec"]["clusterCa"] = json!({ "renewalDays": 5_000_000 });
    let mut windows = kafka("windows");
    windows["spec"]["maintenanceTimeWindows"] = json!(["*,".repeat(LONG / 2)]);
    let mut deep = kafka("deep");
    deep["spec"]["kafka"]["config"] =
        json!({ "deep": (0..DEPTH).fold(json!(1), |inner, _| json!({ "d": inner })) });
    [days, windows, deep].map(Hostile)
}

/// The operator's pod, and how often its container was started.
fn life(pod: &Pod) -> (Option<String>, i32) {
    (pod.uid(), karst_e2e::cluster::restarts(pod))
}

/// Changes a definition that is installed.
async fn set_definition(
    scene: &Scene,
    name: &str,
    change: impl FnOnce(&mut CustomResourceDefinitionSpec) -> Result<()>,
) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(scene.client.clone());
    let mut definition = api.get(name).await?;
    change(&mut definition.spec)?;
    let replaced = api.replace(name, &PostParams::default(), &definition).await;
    replaced.map(drop).with_context(|| format!("changing the definition {name}"))
}

/// A schema that takes whatever has the right type. Fields may be called like what bounds them, so only schemas are looked into.
fn without_bounds(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            // A schema with a type, and not a list of fields by their names.
            if fields.get("type").is_some_and(Value::is_string) {
                fields.retain(|name, _| !BOUNDS.contains(&name.as_str()));
            }
            fields.values_mut().for_each(|field| *field = without_bounds(field.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_bounds(item.take())),
        _ => {}
    }
    value
}

/// Sends one as it is: no library of ours may mend or refuse it before. It takes the API server a moment to forget the bounds.
async fn send(scene: &Scene, plural: &str, object: &Value) -> Result<()> {
    let path = format!("/apis/kafka.strimzi.io/v1/namespaces/{}/{plural}", scene.namespace);
    let began = Instant::now();
    loop {
        let request = Request::post(&path).header("Content-Type", "application/json");
        let sent = scene.client.request_text(request.body(serde_json::to_vec(object)?)?).await;
        match sent {
            Ok(_) => return Ok(()),
            Err(error) if began.elapsed() > ACTING => {
                return Err(error).with_context(|| format!("{} is not taken", object["metadata"]["name"]));
            }
            Err(_) => sleep(Duration::from_millis(500)).await,
        }
    }
}

/// Each resource says what is wrong with it. Their statuses are read by somebody who can read them all.
async fn all_are_told(scene: &Scene) -> Result<()> {
    for (name, words) in
        [("days", "renewalDays"), ("windows", "maintenanceTimeWindows"), ("deep", "nested too deeply")]
    {
        let began = Instant::now();
        let conditions = "jsonpath={.status.conditions}";
        let arguments = ["get", "kafka", name, "--namespace", &scene.namespace, "--output", conditions];
        loop {
            let said = kubectl::run(&arguments).await?;
            if said.contains(words) {
                break;
            }
            ensure!(began.elapsed() < ACTING, "Kafka {name} does not say what is wrong with it: '{said}'");
            sleep(Duration::from_millis(500)).await;
        }
    }
    Ok(())
}

/// The neighbour gets another node as soon as it is asked for, and what it has stays ready.
async fn serves_the_neighbour(neighbour: &Cluster<'_>, paper: usize) -> Result<()> {
    neighbour.scene.step(format!("scaling the neighbour to {paper} more"));
    neighbour.edit_pool("paper", &json!({ "replicas": paper })).await?;
    neighbour.until_pods(1 + paper).await?;
    let pods = neighbour.scene.api::<Pod>();
    ensure!(karst_e2e::cluster::is_pod_ready(&pods.get(POD).await?), "{POD} is not ready");
    Ok(())
}

/// Somebody takes the label off by which a pod is seen. It comes back, on the pod that runs.
async fn a_pod_without_its_label_is_still_seen(neighbour: &Cluster<'_>) -> Result<()> {
    let scene = neighbour.scene;
    scene.step(format!("taking the label of the cluster off {POD}"));
    let before = scene.api::<Pod>().get(POD).await?.uid();
    let label = format!("{CLUSTER_LABEL}-");
    kubectl::run(&["label", "pod", POD, "--namespace", &scene.namespace, &label]).await?;
    let what = format!("the label of the cluster on {POD}");
    let uid = wait::until_one(scene.api::<Pod>(), POD, &what, ACTING, |pod| {
        let pod = pod?;
        (pod.labels().get(CLUSTER_LABEL).map(String::as_str) == Some("neighbour")).then(|| pod.uid())
    })
    .await?;
    ensure!(uid == before, "{POD} was replaced, and not labelled");
    Ok(())
}

/// The clusters first: a pool whose `Kafka` cannot be read waits for it.
async fn delete_hostile(scene: &Scene) -> Result<()> {
    scene.step("deleting what was sent");
    let limit = format!("--timeout={}s", ACTING.as_secs());
    let place = ["--namespace", scene.namespace.as_str(), "--ignore-not-found", &limit];
    let clusters = ["delete", "kafkas", "days", "windows", "deep"];
    let clusters = kubectl::run(&[&clusters[..], &place].concat()).await;
    let pools = ["delete", "kafkanodepools", "days-nodes", "windows-nodes", "deep-nodes"];
    kubectl::run(&[&pools[..], &place].concat()).await.and(clusters).map(drop)
}
