//! Clients prove who they are, and know whom they talk to; the wrong ones are kept out.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use karst_e2e::cluster::Cluster;
use karst_e2e::kafka_tools::Kcat;
use karst_e2e::manifests::{claims, kafka, pool};
use karst_e2e::story::{Scene, story};
use serde_json::json;

#[tokio::test]
async fn clients_with_certificates_are_served_and_others_are_not() -> Result<()> {
    story("security", Duration::from_secs(420), async |scene| {
        let cluster = create(scene).await?;
        let files = tempfile::tempdir()?;
        trust_the_cluster(scene, files.path()).await?;
        encrypted(&cluster, files.path()).await?;
        with_certificate(&cluster, files.path()).await
    })
    .await
}

async fn create(scene: &Scene) -> Result<Cluster<'_>> {
    let mut both = pool("safe", "both", &["controller", "broker"], 3);
    both["spec"]["storage"] = claims(true);
    let mut kafka = kafka("safe");
    kafka["spec"]["kafka"]["listeners"] = json!([
        { "name": "plain", "port": 9092, "type": "internal", "tls": false },
        { "name": "tls", "port": 9093, "type": "internal", "tls": true },
        { "name": "mutual", "port": 9094, "type": "internal", "tls": true, "authentication": { "type": "tls" } },
    ]);
    for key in ["default.replication.factor", "offsets.topic.replication.factor"] {
        kafka["spec"]["kafka"]["config"][key] = json!(3);
    }
    kafka["spec"]["kafka"]["config"]["min.insync.replicas"] = json!(2);
    let cluster = Cluster::create(scene, &kafka, &[both]).await?;
    scene.step("waiting until it is ready");
    cluster.until_ready().await?;
    Ok(cluster)
}

pub(crate) async fn entry(scene: &Scene, secret: &str, key: &str) -> Result<Vec<u8>> {
    let found = scene.api::<Secret>().get(secret).await?;
    let data = found.data.unwrap_or_default();
    let value: Option<ByteString> = data.get(key).cloned();
    value.map(|value| value.0).with_context(|| format!("Secret {secret} has no {key}"))
}

/// As a user would: the certificate of the authority, from the Secret that is published for it.
async fn trust_the_cluster(scene: &Scene, files: &Path) -> Result<()> {
    std::fs::write(files.join("ca.crt"), entry(scene, "safe-cluster-ca-cert", "ca.crt").await?)?;
    Ok(())
}

async fn address(cluster: &Cluster<'_>, port: u16) -> Result<String> {
    let plain = cluster.bootstrap().await?;
    let (host, _) = plain.rsplit_once(':').context("no port")?;
    Ok(format!("{host}:{port}"))
}

pub(crate) fn option(key: &str, value: impl std::fmt::Display) -> String {
    format!("{key}={value}")
}

async fn encrypted(cluster: &Cluster<'_>, files: &Path) -> Result<()> {
    cluster.scene.step("connecting with TLS");
    let address = address(cluster, 9093).await?;
    let trust = option("ssl.ca.location", files.join("ca.crt").display());
    let tls = vec!["security.protocol=ssl".to_owned(), trust];
    Kcat::new(&address).with(&tls).round_trip("encrypted", "record").await?;

    cluster.scene.step("connecting with TLS, and trusting somebody else");
    let wrong = entry(cluster.scene, "safe-clients-ca-cert", "ca.crt").await?;
    std::fs::write(files.join("other.crt"), wrong)?;
    let trust = option("ssl.ca.location", files.join("other.crt").display());
    let tls = vec!["security.protocol=ssl".to_owned(), trust];
    is_refused(Kcat::new(&address).with(&tls)).await
}

pub(crate) async fn is_refused(kcat: Kcat) -> Result<()> {
    let outcome = kcat.with(&["message.timeout.ms=8000".to_owned()]).produce("refused", &["record"]).await;
    ensure!(outcome.is_err(), "a client that should be refused was served");
    Ok(())
}

/// A client's certificate, signed by the authority for clients as a user of openssl would do it.
async fn with_certificate(cluster: &Cluster<'_>, files: &Path) -> Result<()> {
    cluster.scene.step("connecting with a certificate");
    for (name, secret, key) in
        [("clients.crt", "safe-clients-ca-cert", "ca.crt"), ("clients.key", "safe-clients-ca", "ca.key")]
    {
        std::fs::write(files.join(name), entry(cluster.scene, secret, key).await?)?;
    }
    sign(files, "alice", "clients").await?;
    let address = address(cluster, 9094).await?;
    let options = |name: &str| {
        vec![
            "security.protocol=ssl".to_owned(),
            option("ssl.ca.location", files.join("ca.crt").display()),
            option("ssl.certificate.location", files.join(format!("{name}.crt")).display()),
            option("ssl.key.location", files.join(format!("{name}.key")).display()),
        ]
    };
    Kcat::new(&address).with(&options("alice")).round_trip("mutual", "record").await?;
    cluster.scene.step("connecting without one, and with one that nobody signed");
    is_refused(Kcat::new(&address).with(&options("alice")[..2])).await?;
    sign(files, "mallory", "mallory").await?;
    is_refused(Kcat::new(&address).with(&options("mallory"))).await
}

/// Makes a key and a certificate with openssl, signed by `issuer` or, when that is itself, by itself.
pub(crate) async fn sign(files: &Path, name: &str, issuer: &str) -> Result<()> {
    let subject = format!("/CN={name}");
    let (key, crt) = (format!("{name}.key"), format!("{name}.crt"));
    let mut arguments = vec![
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-subj",
        &subject,
        "-keyout",
        &key,
        "-out",
        &crt,
    ];
    let (ca, ca_key) = (format!("{issuer}.crt"), format!("{issuer}.key"));
    if issuer != name {
        arguments.extend(["-CA", &ca, "-CAkey", &ca_key]);
    }
    let made = tokio::process::Command::new("openssl").args(&arguments).current_dir(files).output().await?;
    ensure!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
    Ok(())
}
