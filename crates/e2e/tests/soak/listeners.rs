//! What clients come in by stays until its successor can take its place. Nobody gives addresses to load balancers here, so they come
//! when the test says so.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use karst_e2e::cluster::{ACTING, Cluster, STARTING};
use karst_e2e::credentials::{Credentials, sign};
use karst_e2e::kafka_tools::Kcat;
use karst_e2e::manifests::{kafka, pool_with_claims};
use karst_e2e::story::{Scene, story};
use karst_e2e::{kubectl, wait};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// The one node. Nothing is to restart for most of the story, and nothing in it needs a second one.
const POD: &str = "open-both-0";
/// The services of the listener that is to be a load balancer.
const SERVICES: [&str; 2] = ["open-both-out-0", "open-kafka-out-bootstrap"];

#[tokio::test]
async fn listeners_stay_open_until_their_successors_can_take_their_place() -> Result<()> {
    story("open", Duration::from_secs(900), async |scene| {
        let mut kafka = kafka("open");
        kafka["spec"]["kafka"]["listeners"] = listeners(&json!({}), "internal");
        let nodes = pool_with_claims("open", "both", &["controller", "broker"], 1);
        let cluster = Cluster::create_ready(scene, &kafka, &[nodes]).await?;
        let credentials = Credentials::of(&cluster)?;
        let before = Lives::of(&cluster).await?;
        let encrypted = Kcat::new(&address(&cluster, "tls").await?).with(&credentials.trusting().await?);
        let open = Kcat::new(&address(&cluster, "out").await?);
        encrypted.round_trip("encrypted", "before").await?;
        open.round_trip("open", "before").await?;

        let ask = async || ask_for_what_is_not_there(&cluster, &before).await;
        let ask = async || encrypted.while_connected("encrypted", ask).await;
        open.while_connected("open", ask).await?;
        scene.step("others come in as before");
        encrypted.round_trip("encrypted", "meanwhile").await?;
        open.round_trip("open", "meanwhile").await?;
        before.are_those_of(&cluster).await?;

        let files = tempfile::tempdir()?;
        bring_what_was_missing(&cluster, files.path()).await?;
        the_load_balancer_stays_until_the_broker_has_restarted(&cluster).await
    })
    .await
}

fn listeners(of_tls: &Value, out: &str) -> Value {
    json!([
        { "name": "plain", "port": 9092, "type": "internal", "tls": false },
        { "name": "tls", "port": 9093, "type": "internal", "tls": true, "configuration": of_tls },
        { "name": "out", "port": 9095, "type": out, "tls": false },
    ])
}

/// A certificate that a user brings in a Secret called `later`.
fn brought() -> Value {
    let named = json!({ "secretName": "later", "certificate": "tls.crt", "key": "tls.key" });
    json!({ "brokerCertChainAndKey": named })
}

/// Which pods there are, and how often their containers were started again.
#[derive(Debug, PartialEq)]
struct Lives(BTreeMap<String, String>, BTreeMap<String, i32>);

impl Lives {
    async fn of(cluster: &Cluster<'_>) -> Result<Self> {
        Ok(Self(cluster.pod_uids().await?, cluster.restart_counts().await?))
    }

    async fn are_those_of(&self, cluster: &Cluster<'_>) -> Result<()> {
        let now = Self::of(cluster).await?;
        ensure!(now == *self, "a pod restarted: {self:?}, and now {now:?}");
        Ok(())
    }
}

/// Where clients of a listener start, as the status says it, with the domain that only pods need not name.
async fn address(cluster: &Cluster<'_>, listener: &str) -> Result<String> {
    let listeners = cluster.status().await?.listeners.unwrap_or_default();
    let found = listeners.into_iter().find(|one| one.name.as_deref() == Some(listener));
    let servers = found.and_then(|one| one.bootstrap_servers);
    let servers = servers.with_context(|| format!("no address of {listener}"))?;
    Ok(servers.replace(".svc:", ".svc.cluster.local:"))
}

/// A certificate whose Secret is not there, then one whose Secret has other entries, and a load balancer that gets no address.
async fn ask_for_what_is_not_there(cluster: &Cluster<'_>, before: &Lives) -> Result<()> {
    let scene = cluster.scene;
    scene.step("asking for a certificate that is not there, and for a load balancer");
    cluster.edit(&json!({ "listeners": listeners(&brought(), "loadbalancer") })).await?;
    let unusable = "ListenerCertificateUnusable";
    cluster.until_warned(unusable, &["listener 'tls'", "Secret later", "as before"], ACTING).await?;
    let stays = ["listener 'out'", "stays as it is (internal)", SERVICES[0]];
    cluster.until_warned("ListenerAwaitsAddress", &stays, ACTING).await?;
    cluster.until_ready().await?;
    before.are_those_of(cluster).await?;

    scene.step("bringing a Secret whose entries have other names");
    apply_secret(scene, &json!({ "cert.pem": "a certificate", "key.pem": "a key" })).await?;
    cluster.until_warned(unusable, &["listener 'tls'", "'tls.crt'", "as before"], ACTING).await?;
    cluster.until_ready().await?;
    before.are_those_of(cluster).await
}

async fn apply_secret(scene: &Scene, entries: &Value) -> Result<()> {
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "later" }, "stringData": entries });
    kubectl::apply(&scene.namespace, &secret.to_string()).await.map(drop)
}

/// The certificate, and addresses for the load balancers: each service's own, which leads to the right place.
async fn bring_what_was_missing(cluster: &Cluster<'_>, files: &Path) -> Result<()> {
    let scene = cluster.scene;
    scene.step("bringing the certificate, and addresses of the load balancers");
    sign(files, "later", None).await?;
    let read = |ending: &str| std::fs::read_to_string(files.join(format!("later.{ending}")));
    apply_secret(scene, &json!({ "tls.crt": read("crt")?, "tls.key": read("key")? })).await?;
    let services = scene.api::<Service>();
    for name in SERVICES {
        let spec = services.get(name).await?.spec;
        let address =
            spec.and_then(|spec| spec.cluster_ip).with_context(|| format!("{name} has no address"))?;
        let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address }] } } });
        services.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    }
    let host = services.get(SERVICES[1]).await?.spec.and_then(|spec| spec.cluster_ip).unwrap_or_default();
    let expected = format!("{host}:9095");
    cluster
        .until_status("the address of the load balancer, and no warning", 2 * STARTING, |_, status| {
            let listeners = status.listeners.iter().flatten();
            let told = listeners.filter_map(|one| one.bootstrap_servers.as_deref());
            told.into_iter().any(|one| one == expected).then_some(())
        })
        .await?;
    scene.step("clients come in by the load balancer, and see the certificate that was brought");
    let open = Kcat::new(&expected);
    until_it_works("the load balancer", || open.round_trip("open", "by the load balancer")).await?;
    let encrypted = Kcat::new(&address(cluster, "tls").await?).with(&[
        "security.protocol=ssl".to_owned(),
        format!("ssl.ca.location={}", files.join("later.crt").display()),
        "ssl.endpoint.identification.algorithm=none".to_owned(),
    ]);
    until_it_works("the certificate", || encrypted.round_trip("encrypted", "with the new one")).await?;
    cluster.until_ready().await.map(drop)
}

/// Tries until it works, or until the time is over.
async fn until_it_works<F: Future<Output = Result<()>>>(what: &str, attempt: impl Fn() -> F) -> Result<()> {
    let began = Instant::now();
    loop {
        match attempt().await {
            Ok(()) => return Ok(()),
            Err(error) if began.elapsed() > STARTING => return Err(error.context(what.to_owned())),
            Err(_) => sleep(Duration::from_secs(2)).await,
        }
    }
}

/// The broker goes on to send its clients to the load balancer until then.
async fn the_load_balancer_stays_until_the_broker_has_restarted(cluster: &Cluster<'_>) -> Result<()> {
    let scene = cluster.scene;
    let before = cluster.pod_uids().await?;
    scene.step("the load balancer is to be internal again");
    cluster.edit(&json!({ "listeners": listeners(&brought(), "internal") })).await?;
    for service in SERVICES {
        let what = format!("service {service} to go");
        wait::until_one(scene.api::<Service>(), service, &what, 2 * STARTING, |service| {
            service.is_none().then_some(())
        })
        .await?;
        let now = cluster.pod_uids().await?;
        ensure!(now.get(POD) != before.get(POD), "{service} went before {POD} restarted");
    }
    cluster.until_pods_ready(1).await?;
    cluster.until_ready().await?;
    let open = Kcat::new(&address(cluster, "out").await?);
    until_it_works("out", || open.round_trip("open", "in the end")).await
}
