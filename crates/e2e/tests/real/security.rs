//! Clients prove who they are, and know whom they talk to; the wrong ones are kept out.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use karst_e2e::cluster::Cluster;
use karst_e2e::credentials::{Company, Credentials, entry};
use karst_e2e::kafka_tools::Kcat;
use karst_e2e::manifests::{pool_with_claims, replicated};
use karst_e2e::story::{Scene, story};
use serde_json::json;

#[tokio::test]
async fn clients_with_certificates_are_served_and_others_are_not() -> Result<()> {
    story("security", Duration::from_secs(420), async |scene| {
        let cluster = create(scene).await?;
        let credentials = Credentials::of(&cluster)?;
        encrypted(&cluster, &credentials).await?;
        with_certificate(&cluster, &credentials).await
    })
    .await
}

/// A company has one root, an authority below it for Kafka, and others. Nobody else under the root gets in.
#[tokio::test]
async fn only_the_authority_that_a_user_brings_is_trusted_and_not_the_root_above_it() -> Result<()> {
    story("company", Duration::from_secs(420), async |scene| {
        let root = Company::root()?;
        let (nodes, clients, office) = (root.below("Nodes")?, root.below("Clients")?, root.below("Office")?);
        nodes.bring(scene, "safe", "cluster-ca").await?;
        clients.bring(scene, "safe", "clients-ca").await?;
        let both = pool_with_claims("safe", "both", &["controller", "broker"], 3);
        let mut kafka = replicated("safe");
        kafka["spec"]["kafka"]["listeners"] = json!([
            { "name": "plain", "port": 9092, "type": "internal", "tls": false },
            { "name": "mutual", "port": 9094, "type": "internal", "tls": true, "authentication": { "type": "tls" } },
        ]);
        for authority in ["clusterCa", "clientsCa"] {
            kafka["spec"][authority] = json!({ "generateCertificateAuthority": false });
        }
        scene.step("waiting until it is ready: nodes trust each other by an authority below a root");
        let cluster = Cluster::create_ready(scene, &kafka, &[both]).await?;
        for file in ["cluster-ca.crt", "clients-ca.crt"] {
            let trusted = String::from_utf8(entry(scene, "safe-trustbundle", file).await?)?;
            let count = trusted.matches("BEGIN CERTIFICATE").count();
            ensure!(count == 1, "{file} has {count} certificates");
        }
        let credentials = Credentials::of(&cluster)?;
        let kcat = Kcat::new(&address(&cluster, 9094).await?);
        scene.step("connecting with a certificate of the clients' authority");
        kcat.clone().with(&credentials.signed_by("alice", &clients).await?).round_trip("mutual", "record").await?;
        scene.step("connecting with certificates of its siblings");
        is_refused(kcat.clone().with(&credentials.signed_by("mallory", &office).await?)).await?;
        is_refused(kcat.with(&credentials.signed_by("mallory", &nodes).await?)).await
    })
    .await
}

async fn create(scene: &Scene) -> Result<Cluster<'_>> {
    let both = pool_with_claims("safe", "both", &["controller", "broker"], 3);
    let mut kafka = replicated("safe");
    kafka["spec"]["kafka"]["listeners"] = json!([
        { "name": "plain", "port": 9092, "type": "internal", "tls": false },
        { "name": "tls", "port": 9093, "type": "internal", "tls": true },
        { "name": "mutual", "port": 9094, "type": "internal", "tls": true, "authentication": { "type": "tls" } },
    ]);
    let cluster = Cluster::create(scene, &kafka, &[both]).await?;
    scene.step("waiting until it is ready");
    cluster.until_ready().await?;
    Ok(cluster)
}

async fn address(cluster: &Cluster<'_>, port: u16) -> Result<String> {
    let plain = cluster.bootstrap().await?;
    let (host, _) = plain.rsplit_once(':').context("no port")?;
    Ok(format!("{host}:{port}"))
}

async fn encrypted(cluster: &Cluster<'_>, credentials: &Credentials<'_>) -> Result<()> {
    cluster.scene.step("connecting with TLS");
    let kcat = Kcat::new(&address(cluster, 9093).await?);
    kcat.clone().with(&credentials.trusting().await?).round_trip("encrypted", "record").await?;
    cluster.scene.step("connecting with TLS, and trusting somebody else");
    is_refused(kcat.with(&credentials.trusting_others().await?)).await
}

pub(crate) async fn is_refused(kcat: Kcat) -> Result<()> {
    let outcome = kcat.with(&["message.timeout.ms=8000".to_owned()]).produce("refused", &["record"]).await;
    ensure!(outcome.is_err(), "a client that should be refused was served");
    Ok(())
}

async fn with_certificate(cluster: &Cluster<'_>, credentials: &Credentials<'_>) -> Result<()> {
    cluster.scene.step("connecting with a certificate");
    let kcat = Kcat::new(&address(cluster, 9094).await?);
    kcat.clone().with(&credentials.signed("alice").await?).round_trip("mutual", "record").await?;
    cluster.scene.step("connecting without one, and with one that nobody signed");
    is_refused(kcat.clone().with(&credentials.trusting().await?)).await?;
    is_refused(kcat.with(&credentials.self_signed("mallory").await?)).await
}
