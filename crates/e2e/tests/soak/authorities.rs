//! Both authorities get new certificates, and then new keys, under load. Clients that trust what is published, and show what the
//! published authority signed, are served all the time. Authorities that users bring are replaced, overwritten, and end.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use karst_e2e::cluster::{ACTING, Cluster, STARTING, is_pod_ready};
use karst_e2e::credentials::{Company, Credentials, entry};
use karst_e2e::kafka_tools::Kcat;
use karst_e2e::load::under_load;
use karst_e2e::manifests::{pool_with_claims, replicated};
use karst_e2e::story::{Scene, story};
use karst_e2e::{kubectl, wait};
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// For so long the authority of clients is good that ends in a story: time enough for the cluster to start, and for a client to be
/// served.
const BRIEF: Duration = Duration::from_secs(240);
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
            let clients = clients_come_and_go(&cluster, None, &stop);
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
///
/// Where a user brings the authority of nodes, clients trust what the user gave them, `trusted`, and not what is published.
async fn clients_come_and_go(
    cluster: &Cluster<'_>,
    trusted: Option<&str>,
    stop: &CancellationToken,
) -> Result<usize> {
    let (name, namespace) = (&cluster.name, &cluster.scene.namespace);
    let brokers =
        [0, 1, 2].map(|node| format!("{name}-both-{node}.{name}-kafka-brokers.{namespace}.svc:9094"));
    let kcat = Kcat::new(&brokers.join(","));
    let credentials = Credentials::of(cluster)?;
    let mut served = 0;
    while !stop.is_cancelled() {
        // For a moment after they were deleted the Secrets are not there.
        let Ok(mut options) = credentials.signed("alice").await else {
            tokio::time::sleep(Duration::from_millis(200)).await;
            continue;
        };
        if let Some(trusted) = trusted {
            options.push(credentials.trusting_these(trusted)?);
        }
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
                clients_come_and_go(&cluster, None, &stop),
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

/// Three nodes with doors for everybody: without encryption, with it, and with certificates of clients.
fn with_three_doors() -> Value {
    let mut kafka = replicated("safe");
    kafka["spec"]["kafka"]["listeners"] = json!([
        { "name": "plain", "port": 9092, "type": "internal", "tls": false },
        { "name": "tls", "port": 9093, "type": "internal", "tls": true },
        { "name": "mutual", "port": 9094, "type": "internal", "tls": true, "authentication": { "type": "tls" } },
    ]);
    kafka
}

/// All brokers, by a port of theirs: kcat ends when the only one that it knows does.
fn brokers(cluster: &Cluster<'_>, port: u16) -> Kcat {
    let (name, namespace) = (&cluster.name, &cluster.scene.namespace);
    let host = |node| format!("{name}-both-{node}.{name}-kafka-brokers.{namespace}.svc.cluster.local:{port}");
    Kcat::new(&[0, 1, 2].map(host).join(","))
}

/// The user's own authority of clients ends, and nobody has renewed it. That is its clients' trouble: brokers restart all the same, and
/// serve the others.
#[tokio::test]
async fn authority_of_clients_that_ended_keeps_no_broker_from_restarting() -> Result<()> {
    story("clients-ca-ended", Duration::from_secs(1200), async |scene| {
        let clients = Company::for_only(BRIEF)?;
        clients.bring(scene, "safe", "clients-ca").await?;
        let mut kafka = with_three_doors();
        kafka["spec"]["clientsCa"] = json!({ "generateCertificateAuthority": false });
        let pools = [pool_with_claims("safe", "both", &["controller", "broker"], 3)];
        let cluster = Cluster::create_ready(scene, &kafka, &pools).await?;
        let credentials = Credentials::of(&cluster)?;
        scene.step("a client with a certificate comes in while the authority is good");
        let alice = brokers(&cluster, 9094).with(&credentials.signed_by("alice", &clients).await?);
        alice.round_trip("mutual", "record").await?;
        scene.step("waiting until it ends");
        cluster
            .until_warned("CertificateEnds", &["safe-clients-ca-cert", "ended at"], BRIEF + ACTING)
            .await?;

        let encrypted = brokers(&cluster, 9093).with(&credentials.trusting().await?);
        let bootstrap = cluster.bootstrap().await?;
        encrypted.round_trip("encrypted", "before").await?;
        under_load(scene, &bootstrap, async || {
            let restart = async || restart_all(&cluster).await;
            encrypted.while_connected("encrypted", restart).await
        })
        .await?;
        scene.step("clients without certificates come in as before");
        encrypted.round_trip("encrypted", "after").await?;
        cluster.until_ready().await.map(drop)
    })
    .await
}

/// One after the other, because somebody asks for it.
async fn restart_all(cluster: &Cluster<'_>) -> Result<()> {
    let scene = cluster.scene;
    scene.step("restarting all pods");
    let before = cluster.pod_uids().await?;
    let (namespace, selector) = (scene.namespace.as_str(), cluster.selector());
    let wish = "strimzi.io/manual-rolling-update=true";
    kubectl::run(&["annotate", "pods", "--namespace", namespace, "--selector", &selector, wish]).await?;
    let stop = CancellationToken::new();
    let (watched, told) = tokio::join!(never_two_away(cluster, &stop), async {
        let told = until_all_are_new(cluster, &before).await;
        stop.cancel();
        told
    });
    told.and(watched)
}

async fn until_all_are_new(cluster: &Cluster<'_>, before: &BTreeMap<String, String>) -> Result<()> {
    let pods = cluster.scene.api::<Pod>();
    wait::until(pods, cluster.watched(), "other pods, all of them ready", 4 * STARTING, |pods| {
        let is_new = |pod: &Pod| before.get(&pod.name_any()) != pod.uid().as_ref() && is_pod_ready(pod);
        (pods.len() == before.len() && pods.values().all(is_new)).then_some(())
    })
    .await
}

/// A user's own authority of nodes is replaced by one command after the other, and another one is written over that. Nobody notices but
/// by a restart of one node after the other, and in the end all trust the last one alone.
#[tokio::test]
async fn authority_of_a_user_is_replaced_in_halves_and_overwritten_under_load() -> Result<()> {
    story("own-authority", Duration::from_secs(2400), async |scene| {
        let [first, second, third] = ["First", "Second", "Third"].map(Company::named);
        let (first, second, third) = (first?, second?, third?);
        first.bring(scene, "safe", "cluster-ca").await?;
        let mut kafka = with_three_doors();
        kafka["spec"]["clusterCa"] = json!({ "generateCertificateAuthority": false });
        let pools = [pool_with_claims("safe", "both", &["controller", "broker"], 3)];
        let cluster = Cluster::create_ready(scene, &kafka, &pools).await?;
        let bootstrap = cluster.bootstrap().await?;
        // As a company would: clients know all authorities before nodes do.
        let trusted = [first.chain.as_str(), &second.chain, &third.chain].concat();
        under_load(scene, &bootstrap, async || {
            let stop = CancellationToken::new();
            let (served, watched, told) = tokio::join!(
                clients_come_and_go(&cluster, Some(&trusted), &stop),
                never_two_away(&cluster, &stop),
                async {
                    let told = replace_twice(&cluster, &second, &third).await;
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

async fn replace_twice(cluster: &Cluster<'_>, second: &Company, third: &Company) -> Result<()> {
    replace_in_halves(cluster, second).await?;
    let scene = cluster.scene;
    scene.step("writing another authority over it, and raising no generation");
    let before = cluster.pod_uids().await?;
    third.bring(scene, "safe", "cluster-ca").await?;
    until_all_trust_only(cluster, third, &before).await
}

/// As docs/security.md tells it, with a command for each Secret. Between them the two do not belong together, and nothing is done.
async fn replace_in_halves(cluster: &Cluster<'_>, next: &Company) -> Result<()> {
    let scene = cluster.scene;
    let before = cluster.pod_uids().await?;
    scene.step("putting the new certificate there, without its key");
    write_half(scene, "safe-cluster-ca-cert", "ca.crt", &next.chain, "strimzi.io/ca-cert-generation=1")
        .await?;
    let what = "a word about halves that do not belong together";
    cluster
        .until_status(what, ACTING, |_, status| {
            let mut reasons = status.conditions.iter().flatten().filter_map(|one| one.reason.as_deref());
            reasons.any(|reason| reason == "CertificateAuthorityUnusable").then_some(())
        })
        .await?;
    ensure!(cluster.pod_uids().await? == before, "a pod restarted for half of an authority");
    scene.step("putting the new key there");
    write_half(scene, "safe-cluster-ca", "ca.key", &next.key, "strimzi.io/ca-key-generation=1").await?;
    until_all_trust_only(cluster, next, &before).await
}

async fn write_half(scene: &Scene, secret: &str, entry: &str, text: &str, generation: &str) -> Result<()> {
    let change = json!({ "stringData": { entry: text } }).to_string();
    let place = ["--namespace", &scene.namespace];
    let patch = ["patch", "secret", secret, "--type", "merge", "--patch", &change];
    kubectl::run(&[&patch[..], &place].concat()).await?;
    let raise = ["annotate", "--overwrite", "secret", secret, generation];
    kubectl::run(&[&raise[..], &place].concat()).await.map(drop)
}

/// Waits until all pods are other ones, and nodes are given nothing to trust but this authority.
async fn until_all_trust_only(
    cluster: &Cluster<'_>,
    authority: &Company,
    before: &BTreeMap<String, String>,
) -> Result<()> {
    let scene = cluster.scene;
    let bare = |text: &str| text.split_whitespace().collect::<String>();
    let expected = bare(&authority.chain);
    let what = "nothing but the last authority in the trust bundle";
    wait::until_one(scene.api::<Secret>(), "safe-trustbundle", what, PHASES, |secret| {
        let trusted = &secret?.data.as_ref()?.get("cluster-ca.crt")?.0;
        (bare(std::str::from_utf8(trusted).ok()?) == expected).then_some(())
    })
    .await?;
    until_all_are_new(cluster, before).await?;
    cluster.until_ready().await.map(drop)
}
