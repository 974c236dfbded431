//! Both authorities get new certificates, and then new keys, under load. Clients that trust what is published, and show what the
//! published authority signed, are served all the time.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use karst_e2e::cluster::{Cluster, is_pod_ready};
use karst_e2e::credentials::{Credentials, entry};
use karst_e2e::kafka_tools::Kcat;
use karst_e2e::load::under_load;
use karst_e2e::manifests::{pool_with_claims, replicated};
use karst_e2e::story::story;
use karst_e2e::{kubectl, wait};
use kube::ResourceExt;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// Time for three phases, in each of which every node restarts.
const PHASES: Duration = Duration::from_secs(900);

#[tokio::test]
async fn authorities_are_renewed_and_replaced_under_load() -> Result<()> {
    story("authorities", Duration::from_secs(3000), async |scene| {
        let mut kafka = replicated("safe");
        kafka["spec"]["kafka"]["listeners"] = json!([
            { "name": "plain", "port": 9092, "type": "internal", "tls": false },
            { "name": "mutual", "port": 9094, "type": "internal", "tls": true, "authentication": { "type": "tls" } },
        ]);
        let pools = [pool_with_claims("safe", "both", &["controller", "broker"], 3)];
        let cluster = Cluster::create_ready(scene, &kafka, &pools).await?;
        let bootstrap = cluster.bootstrap().await?;
        under_load(scene, &bootstrap, async || {
            let stop = CancellationToken::new();
            let clients = clients_come_and_go(&cluster, &stop);
            let (served, told) = tokio::join!(clients, async {
                let told = renew_and_replace(&cluster).await;
                stop.cancel();
                told
            });
            told?;
            scene.step(format!("{} clients with certificates were served", served?));
            Ok(())
        })
        .await
    })
    .await
}

/// One client after the other takes what is published, and writes a record. None may fail. Each knows all brokers: kcat ends
/// when the only one that it knows does.
async fn clients_come_and_go(cluster: &Cluster<'_>, stop: &CancellationToken) -> Result<usize> {
    let (name, namespace) = (&cluster.name, &cluster.scene.namespace);
    let brokers =
        [0, 1, 2].map(|node| format!("{name}-both-{node}.{name}-kafka-brokers.{namespace}.svc:9094"));
    let kcat = Kcat::new(&brokers.join(","));
    let credentials = Credentials::of(cluster)?;
    let mut served = 0;
    while !stop.is_cancelled() {
        // For a moment after they were deleted the Secrets are not there.
        let Ok(options) = credentials.signed("alice").await else {
            tokio::time::sleep(Duration::from_millis(200)).await;
            continue;
        };
        kcat.clone().with(&options).produce("mutual", &["record"]).await?;
        served += 1;
    }
    Ok(served)
}

/// Both Secrets of the nodes' authority are deleted by mistake. Its key is gone for good, and nobody may notice but by a restart of one
/// node after the other.
#[tokio::test]
async fn deleted_secrets_of_the_authority_cost_nobody_anything() -> Result<()> {
    story("authority-deleted", Duration::from_secs(1500), async |scene| {
        let mut kafka = replicated("safe");
        kafka["spec"]["kafka"]["listeners"] = json!([
            { "name": "plain", "port": 9092, "type": "internal", "tls": false },
            { "name": "mutual", "port": 9094, "type": "internal", "tls": true, "authentication": { "type": "tls" } },
        ]);
        let pools = [pool_with_claims("safe", "both", &["controller", "broker"], 3)];
        let cluster = Cluster::create_ready(scene, &kafka, &pools).await?;
        let bootstrap = cluster.bootstrap().await?;
        under_load(scene, &bootstrap, async || {
            let stop = CancellationToken::new();
            let (served, watched, told) = tokio::join!(
                clients_come_and_go(&cluster, &stop),
                never_two_away(&cluster, &stop),
                async {
                    let told = delete_and_recover(&cluster).await;
                    stop.cancel();
                    told
                }
            );
            told?;
            watched?;
            scene.step(format!("{} clients with certificates were served", served?));
            Ok(())
        })
        .await
    })
    .await
}

/// At most one pod is away at any moment: the one that restarts.
async fn never_two_away(cluster: &Cluster<'_>, stop: &CancellationToken) -> Result<()> {
    while !stop.is_cancelled() {
        let pods = cluster.scene.api::<Pod>().list(&cluster.listed()).await?;
        let ready = pods.iter().filter(|pod| is_pod_ready(pod)).count();
        ensure!(ready >= 2, "only {ready} pods are ready");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

async fn delete_and_recover(cluster: &Cluster<'_>) -> Result<()> {
    let scene = cluster.scene;
    let before = entry(scene, "safe-cluster-ca-cert", "ca.crt").await?;
    let pods = cluster.pod_uids().await?;
    scene.step("deleting both Secrets of the authority of nodes");
    let secrets = ["safe-cluster-ca", "safe-cluster-ca-cert"];
    let arguments = ["delete", "--namespace", &scene.namespace, "secret", secrets[0], secrets[1]];
    kubectl::run(&arguments).await?;
    let what = "a new authority beside the old one";
    wait::until_one(scene.api::<Secret>(), secrets[1], what, Duration::from_secs(60), |secret| {
        let data = secret?.data.as_ref()?;
        data.keys().any(|entry| entry.starts_with("ca-")).then_some(())
    })
    .await?;
    until_only(cluster, secrets[0], &["ca.key"]).await?;
    until_only(cluster, secrets[1], &["ca.crt", "ca.p12", "ca.password"]).await?;
    cluster.until_ready().await?;
    ensure!(entry(scene, secrets[1], "ca.crt").await? != before, "the authority is the old one");
    let now = cluster.pod_uids().await?;
    ensure!(now.iter().all(|(name, uid)| pods.get(name) != Some(uid)), "a pod did not restart");
    Ok(())
}

async fn renew_and_replace(cluster: &Cluster<'_>) -> Result<()> {
    for authority in ["cluster-ca", "clients-ca"] {
        renew(cluster, authority).await?;
        replace(cluster, authority).await?;
    }
    Ok(())
}

async fn generation(cluster: &Cluster<'_>, secret: &str, annotation: &str) -> Result<u64> {
    let secret = cluster.scene.api::<Secret>().get(secret).await?;
    let text = secret.annotations().get(annotation).with_context(|| format!("no {annotation}"))?;
    Ok(text.parse()?)
}

/// Asks for something with an annotation, and waits until the Secret's generation has moved.
async fn ask(cluster: &Cluster<'_>, secret: &str, wish: &str, annotation: &'static str) -> Result<()> {
    let before = generation(cluster, secret, annotation).await?;
    let wish = format!("{wish}=true");
    kubectl::run(&["annotate", "--namespace", &cluster.scene.namespace, "secret", secret, &wish]).await?;
    let what = format!("{secret} of another generation");
    wait::until_one(cluster.scene.api::<Secret>(), secret, &what, PHASES, |secret| {
        let now: u64 = secret?.annotations().get(annotation)?.parse().ok()?;
        (now > before).then_some(())
    })
    .await
}

/// Waits until a Secret has no more entries than these.
async fn until_only(cluster: &Cluster<'_>, secret: &str, entries: &[&str]) -> Result<()> {
    let what = format!("{secret} with nothing but {entries:?}");
    wait::until_one(cluster.scene.api::<Secret>(), secret, &what, PHASES, |secret| {
        let names = secret?.data.as_ref()?.keys();
        names.map(String::as_str).eq(entries.iter().copied()).then_some(())
    })
    .await
}

async fn renew(cluster: &Cluster<'_>, authority: &str) -> Result<()> {
    cluster.scene.step(format!("renewing the certificate of {authority}"));
    let secret = format!("safe-{authority}-cert");
    ask(cluster, &secret, "strimzi.io/force-renew", "strimzi.io/ca-cert-generation").await
}

/// The nodes' certificates are all of the new key when nothing of the old one is left. That of clients stays until it ends.
async fn replace(cluster: &Cluster<'_>, authority: &str) -> Result<()> {
    cluster.scene.step(format!("replacing the key of {authority}"));
    let secret = format!("safe-{authority}");
    let pods = cluster.pod_uids().await?;
    ask(cluster, &secret, "strimzi.io/force-replace", "strimzi.io/ca-key-generation").await?;
    until_only(cluster, &secret, &["ca.key"]).await?;
    if authority == "cluster-ca" {
        let published = ["ca.crt", "ca.p12", "ca.password"];
        until_only(cluster, &format!("{secret}-cert"), &published).await?;
        cluster.until_ready().await?;
    }
    let now = cluster.pod_uids().await?;
    let restarted = now.iter().filter(|(name, uid)| pods.get(*name) != Some(*uid)).count();
    let expected = if authority == "cluster-ca" { now.len() } else { 0 };
    ensure!(restarted == expected, "{restarted} of {} pods restarted, and not {expected}", now.len());
    Ok(())
}
