//! Clients reach a cluster by services, by ports of the Kubernetes node and by load balancers; only those who may, and only to
//! do what they may.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Secret, Service};
use karst_api::KafkaStatus;
use karst_e2e::cluster::{Cluster, STARTING, warnings};
use karst_e2e::credentials::{entry, sign};
use karst_e2e::kafka_tools::{ConsoleTools, Kcat};
use karst_e2e::kubectl;
use karst_e2e::manifests::{pool_with_claims, replicated};
use karst_e2e::story::{Scene, story};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::security::is_refused;

/// The kubelet puts a changed Secret into a pod a minute or two later; Kafka is asked to load it some seconds after that.
const REFRESHED: Duration = Duration::from_secs(240);
/// Time for something that Kafka told its controllers to reach its brokers.
const PROPAGATED: Duration = Duration::from_secs(60);

#[tokio::test]
async fn clients_come_in_by_every_door_and_only_those_who_may() -> Result<()> {
    story("listeners", Duration::from_secs(1200), async |scene| {
        let files = tempfile::tempdir()?;
        let cluster = create(scene, files.path()).await?;
        let status = a_load_balancer_without_an_address_delays_only_itself(&cluster).await?;
        prepare_clients(scene, files.path()).await?;
        certificates_are_asked_for_by_each_door(&cluster, files.path(), &status).await?;
        passwords_and_rules(&cluster).await?;
        the_users_own_certificate_is_renewed_without_a_restart(&cluster, files.path()).await?;
        an_address_that_comes_is_served(&cluster, files.path()).await
    })
    .await
}

async fn create<'s>(scene: &'s Scene, files: &Path) -> Result<Cluster<'s>> {
    scene.step("creating a cluster with five doors");
    bring_certificate(scene, files, "first").await?;
    let mutual = json!({ "type": "tls" });
    let mut kafka = replicated("doors");
    let spec = &mut kafka["spec"]["kafka"];
    spec["listeners"] = json!([
        { "name": "scram", "port": 9092, "type": "internal", "tls": true, "authentication": { "type": "scram-sha-512" } },
        // Clients outside of pods need the whole name.
        { "name": "inside", "port": 9093, "type": "cluster-ip", "tls": true, "authentication": mutual,
          "configuration": { "useServiceDnsDomain": true } },
        { "name": "node", "port": 9095, "type": "nodeport", "tls": true, "authentication": mutual },
        { "name": "lb", "port": 9096, "type": "loadbalancer", "tls": true, "authentication": mutual },
        { "name": "own", "port": 9097, "type": "internal", "tls": true, "configuration": { "brokerCertChainAndKey":
            { "secretName": "brought", "certificate": "tls.crt", "key": "tls.key" } } },
    ]);
    spec["authorization"] = json!({ "type": "simple", "superUsers": ["CN=alice"] });
    let both = pool_with_claims("doors", "both", &["controller", "broker"], 3);
    Cluster::create(scene, &kafka, &[both]).await
}

/// The Secret that the listener `own` names, with a new certificate for this name.
async fn bring_certificate(scene: &Scene, files: &Path, name: &str) -> Result<()> {
    sign(files, name, None).await?;
    let read = |ending: &str| std::fs::read_to_string(files.join(format!("{name}.{ending}")));
    let secret: Secret = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "brought" },
        "stringData": { "tls.crt": read("crt")?, "tls.key": read("key")? },
    }))?;
    let api = scene.api::<Secret>();
    if api.get_opt("brought").await?.is_some() {
        api.patch("brought", &PatchParams::default(), &Patch::Merge(&secret)).await?;
    } else {
        api.create(&PostParams::default(), &secret).await?;
    }
    Ok(())
}

async fn a_load_balancer_without_an_address_delays_only_itself(cluster: &Cluster<'_>) -> Result<KafkaStatus> {
    cluster.scene.step("waiting until it is ready, though the load balancer has no address");
    cluster.until_ready().await?;
    let known = |status: &KafkaStatus| {
        let listeners = status.listeners.clone().unwrap_or_default();
        listeners
            .into_iter()
            .filter(|one| one.bootstrap_servers.is_some())
            .filter_map(|one| one.name)
            .collect::<Vec<_>>()
    };
    let status = cluster
        .until_status("addresses of four listeners", STARTING, |_, status| {
            (known(status) == ["scram", "inside", "node", "own"]).then(|| status.clone())
        })
        .await?;
    let said = warnings(status.conditions.as_ref());
    ensure!(
        said.iter().any(|one| one.starts_with("ListenerAwaitsAddress") && one.contains("'lb'")),
        "{said:#?}"
    );
    Ok(status)
}

/// Whom to trust, and certificates: alice's is good and she may do everything, eve's is good, mallory signs her own.
async fn prepare_clients(scene: &Scene, files: &Path) -> Result<()> {
    for (name, secret, key) in [
        ("ca.crt", "doors-cluster-ca-cert", "ca.crt"),
        ("clients.crt", "doors-clients-ca-cert", "ca.crt"),
        ("clients.key", "doors-clients-ca", "ca.key"),
    ] {
        std::fs::write(files.join(name), entry(scene, secret, key).await?)?;
    }
    sign(files, "alice", Some("clients")).await?;
    sign(files, "eve", Some("clients")).await?;
    sign(files, "mallory", None).await
}

fn servers(status: &KafkaStatus, listener: &str) -> Result<String> {
    let listeners = status.listeners.iter().flatten();
    let found = listeners
        .filter(|one| one.name.as_deref() == Some(listener))
        .find_map(|one| one.bootstrap_servers.clone());
    found.with_context(|| format!("no address of {listener} in {:?}", status.listeners))
}

fn client(files: &Path, servers: &str, who: &str) -> Kcat {
    Kcat::new(servers).with(&[
        "security.protocol=ssl".to_owned(),
        format!("ssl.ca.location={}", files.join("ca.crt").display()),
        format!("ssl.certificate.location={}", files.join(format!("{who}.crt")).display()),
        format!("ssl.key.location={}", files.join(format!("{who}.key")).display()),
        // The name that a client asked for is the name in the certificate, by every door.
        "ssl.endpoint.identification.algorithm=https".to_owned(),
    ])
}

/// Tries until it works, or until the time is over.
async fn until_it_works<T, F: Future<Output = Result<T>>>(
    what: &str,
    limit: Duration,
    attempt: impl Fn() -> F,
) -> Result<T> {
    let began = Instant::now();
    loop {
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) if began.elapsed() > limit => return Err(error.context(what.to_owned())),
            Err(_) => sleep(Duration::from_secs(2)).await,
        }
    }
}

async fn certificates_are_asked_for_by_each_door(
    cluster: &Cluster<'_>,
    files: &Path,
    status: &KafkaStatus,
) -> Result<()> {
    for door in ["inside", "node"] {
        let servers = servers(status, door)?;
        cluster.scene.step(format!("coming in by {door}, at {servers}"));
        // The address of the Kubernetes node is known only when pods run there: its certificate is loaded later.
        let alice = client(files, &servers, "alice");
        let topic = format!("by-{door}");
        until_it_works(door, REFRESHED, || alice.round_trip(&topic, "record")).await?;
        is_refused(client(files, &servers, "mallory")).await?;
        // She is who she says, and may do nothing.
        let eve = client(files, &servers, "eve").with(&["message.timeout.ms=8000".to_owned()]);
        ensure!(eve.produce(&topic, &["record"]).await.is_err(), "{door}: somebody without a rule may write");
    }
    let uids = cluster.pod_uids().await?;
    ensure!(uids.len() == 3, "{uids:?}");
    Ok(())
}

/// Settings of a tool in a pod of the cluster that logs in with a password.
fn with_password(password: &str) -> String {
    format!(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n\
         sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"bob\" password=\"{password}\";\n\
         ssl.truststore.type=PEM\nssl.truststore.location=/opt/kafka/trust/cluster-ca.crt\n"
    )
}

/// Kafka's own tools: kcat's library before 2.6.1 sends a nonce that Kafka 4 refuses, whatever the password.
async fn passwords_and_rules(cluster: &Cluster<'_>) -> Result<()> {
    let scene = cluster.scene;
    scene.step("adding a user with a password, as a node of the cluster");
    let (pod, namespace) = ("doors-both-0", &scene.namespace);
    let host = format!("{pod}.doors-kafka-brokers.{namespace}.svc.cluster.local:9091");
    let admin = ConsoleTools::new(scene, pod, &host);
    let node = "security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.location=/opt/kafka/certificate/node.pem\n\
                ssl.truststore.type=PEM\nssl.truststore.location=/opt/kafka/trust/cluster-ca.crt\n";
    admin.write_file("/tmp/node.properties", node).await?;
    let as_node = ["--command-config", "/tmp/node.properties"];
    let user = ["--entity-type", "users", "--entity-name", "bob"];
    let add = ["--alter", "--add-config", "SCRAM-SHA-512=[password=right]"];
    admin.run("kafka-configs", &[&as_node[..], &user, &add].concat(), "").await?;
    until_it_works("the user is described", PROPAGATED, || async {
        let said = admin.run("kafka-configs", &[&as_node[..], &user, &["--describe"]].concat(), "").await?;
        ensure!(said.contains("SCRAM-SHA-512"), "{said}");
        Ok(())
    })
    .await?;

    scene.step("logging in with the password: without a rule nothing may be done");
    let clients =
        ConsoleTools::new(scene, pod, &format!("doors-kafka-bootstrap.{namespace}.svc.cluster.local:9092"));
    for (file, password) in [("/tmp/bob.properties", "right"), ("/tmp/wrong.properties", "wrong")] {
        clients.write_file(file, &with_password(password)).await?;
    }
    let write = |file: &'static str| {
        let arguments =
            ["--topic", "of-bob", "--producer.config", file, "--producer-property", "max.block.ms=15000"];
        let clients = &clients;
        async move { clients.run("kafka-console-producer", &arguments, "record\n").await }
    };
    let read = || async {
        let from = ["--topic", "of-bob", "--from-beginning", "--timeout-ms", "20000", "--max-messages", "1"];
        let who = ["--group", "of-bob", "--consumer.config", "/tmp/bob.properties"];
        let said = clients.run("kafka-console-consumer", &[&from[..], &who].concat(), "").await?;
        ensure!(said.contains("record"), "{said}");
        Ok(())
    };
    // The tool reports what it could not write, and ends well all the same: only what can be read was written.
    let _ = write("/tmp/bob.properties").await;
    ensure!(read().await.is_err(), "a user without a rule may read");

    scene.step("allowing it");
    let rule = [
        "--add",
        "--allow-principal",
        "User:bob",
        "--operation",
        "All",
        "--topic",
        "of-bob",
        "--group",
        "of-bob",
    ];
    admin.run("kafka-acls", &[&as_node[..], &rule].concat(), "").await?;
    let _ = write("/tmp/wrong.properties").await;
    let login = ["--command-config", "/tmp/wrong.properties", "--list"];
    ensure!(clients.run("kafka-topics", &login, "").await.is_err(), "a wrong password is good");
    until_it_works("the user writes and reads", PROPAGATED, || async {
        write("/tmp/bob.properties").await?;
        read().await
    })
    .await
}

/// The subject of the certificate that a server shows, and whether openssl trusts it.
async fn shown(address: &str, trust: &Path) -> Result<String> {
    let mut command = tokio::process::Command::new("openssl");
    command.args(["s_client", "-connect", address, "-CAfile"]).arg(trust).stdin(std::process::Stdio::null());
    let output = tokio::time::timeout(Duration::from_secs(20), command.kill_on_drop(true).output()).await??;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let subject = said.lines().find_map(|line| line.trim().strip_prefix("subject=")).map(str::to_owned);
    ensure!(said.contains("Verify return code: 0 (ok)"), "{said}");
    subject.with_context(|| format!("no subject in {said}"))
}

async fn the_users_own_certificate_is_renewed_without_a_restart(
    cluster: &Cluster<'_>,
    files: &Path,
) -> Result<()> {
    let scene = cluster.scene;
    scene.step("looking at the certificate that the user brought");
    let address = format!("doors-both-1.doors-kafka-brokers.{}.svc.cluster.local:9097", scene.namespace);
    let subject = shown(&address, &files.join("first.crt")).await?;
    ensure!(subject.contains("first"), "{subject}");

    scene.step("renewing it");
    let before = cluster.pod_uids().await?;
    bring_certificate(scene, files, "second").await?;
    let trust = files.join("second.crt");
    until_it_works("the new certificate is shown", REFRESHED, || async {
        let subject = shown(&address, &trust).await?;
        ensure!(subject.contains("second"), "{subject}");
        Ok(())
    })
    .await?;
    assert_eq!(cluster.pod_uids().await?, before, "a pod was replaced");
    let restarts = kubectl::run(&[
        "get",
        "pods",
        "--namespace",
        &scene.namespace,
        "--output",
        "jsonpath={.items[*].status.containerStatuses[*].restartCount}",
    ])
    .await?;
    ensure!(restarts.split_whitespace().all(|count| count == "0"), "containers restarted: {restarts}");

    scene.step("bringing a key that is not the certificate's");
    let other: Value =
        json!({ "stringData": { "tls.key": std::fs::read_to_string(files.join("first.key"))? } });
    scene.api::<Secret>().patch("brought", &PatchParams::default(), &Patch::Merge(other)).await?;
    cluster.until_warned("ListenerCertificateUnusable", &["not the key"], STARTING).await?;
    ensure!(shown(&address, &trust).await?.contains("second"), "the good certificate is gone");
    bring_certificate(scene, files, "second").await
}

/// Nobody gives addresses to load balancers here, so the test does: each service's own, which leads to the right place.
async fn an_address_that_comes_is_served(cluster: &Cluster<'_>, files: &Path) -> Result<()> {
    let scene = cluster.scene;
    scene.step("giving the load balancers addresses");
    let api = scene.api::<Service>();
    let mut given = BTreeMap::new();
    for name in ["doors-both-lb-0", "doors-both-lb-1", "doors-both-lb-2", "doors-kafka-lb-bootstrap"] {
        let service = api.get(name).await?;
        let address = service
            .spec
            .and_then(|spec| spec.cluster_ip)
            .with_context(|| format!("{name} has no address"))?;
        let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address }] } } });
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        given.insert(name, address);
    }
    let expected = format!("{}:9096", given["doors-kafka-lb-bootstrap"]);
    cluster
        .until_status("the address of the load balancer", STARTING, |_, status| {
            (servers(status, "lb").ok().as_ref() == Some(&expected)).then_some(())
        })
        .await?;
    scene.step("waiting until all brokers tell their clients");
    cluster.until_pods_counted("doors-both", 3).await?;
    cluster.until_ready().await?;
    let alice = client(files, &expected, "alice");
    until_it_works("lb", REFRESHED, || alice.round_trip("by-lb", "record")).await?;
    is_refused(client(files, &expected, "mallory")).await
}
