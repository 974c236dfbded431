//! The cluster does what clusters are for, and tells the truth about itself.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use karst_api::{KafkaNodePool, KafkaStatus};
use karst_core::names::{CLUSTER_TRUST, OPERATOR_CERTIFICATE, OPERATOR_KEY};
use karst_e2e::cluster::{Cluster, warnings};
use karst_e2e::kafka_tools::{ConsoleTools, Kcat, Member};
use karst_e2e::kubectl;
use karst_e2e::manifests::{METADATA_VERSION, VERSION};
use karst_kafka::{
    Admin, Bootstrap, ClientConfig, ConfigResource, Identity, NodeId, Quorum, Security, TlsConfig,
    TopicSelection,
};

/// What the members of the quorum are, by the list that was recorded before the first pod.
fn recorded_voters(status: &KafkaStatus) -> Result<Vec<Member>> {
    let list = status.initial_controllers.as_deref().context("no status.initialControllers")?;
    let mut members = list.split(',').map(recorded_voter).collect::<Result<Vec<_>>>()?;
    members.sort();
    Ok(members)
}

fn recorded_voter(entry: &str) -> Result<Member> {
    let (id, rest) = entry.split_once('@').with_context(|| format!("no @ in {entry}"))?;
    let (_, directory) = rest.rsplit_once(':').with_context(|| format!("no directory in {entry}"))?;
    Ok(Member { id: id.parse()?, directory_id: Some(directory.to_owned()) })
}

pub(crate) async fn the_status_tells_who_the_cluster_is(
    cluster: &Cluster<'_>,
    status: &KafkaStatus,
) -> Result<()> {
    cluster.scene.step("reading the status");
    assert_eq!(status.kafka_version.as_deref(), Some(VERSION));
    assert_eq!(warnings(status.conditions.as_ref()), Vec::<String>::new());
    ensure!(status.cluster_id.as_ref().is_some_and(|id| id.len() == 22), "{:?}", status.cluster_id);
    assert_eq!(status.operator_last_successful_version.as_deref(), Some(env!("CARGO_PKG_VERSION")));

    let listener = &status.listeners.as_ref().context("no listeners")?[0];
    let host = format!("my-cluster-kafka-bootstrap.{}.svc", cluster.scene.namespace);
    assert_eq!(listener.name.as_deref(), Some("plain"));
    assert_eq!(listener.bootstrap_servers, Some(format!("{host}:9092")));

    let names = |pools: &Option<Vec<karst_api::UsedNodePool>>| -> Vec<String> {
        pools.iter().flatten().filter_map(|pool| pool.name.clone()).collect()
    };
    assert_eq!(names(&status.kafka_node_pools), ["brokers", "controllers"]);
    assert_eq!(status.kafka_node_pools, status.node_pools);

    for (name, ids) in [("brokers", vec![0, 1, 2]), ("controllers", vec![3, 4, 5])] {
        let pool = cluster.scene.api::<KafkaNodePool>().get(name).await?.status.unwrap_or_default();
        assert_eq!((pool.node_ids, pool.replicas), (Some(ids), Some(3)), "{name}");
        assert_eq!(pool.cluster_id, status.cluster_id, "{name}");
    }
    cluster.scene.step("waiting until the quorum is formed and its metadata version is known");
    cluster.until_quorum_is_formed().await?;
    cluster
        .until_status("its metadata version", karst_e2e::cluster::ACTING, |_, status| {
            (status.kafka_metadata_version.as_deref() == Some(METADATA_VERSION)).then_some(())
        })
        .await
}

pub(crate) async fn kubectl_shows_the_columns_that_users_know(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("looking at kubectl's tables");
    cluster.until_pods_counted("my-cluster-brokers", 3).await?;
    let versions = format!("my-cluster True {VERSION} {METADATA_VERSION}");
    let expected = [
        ("kafka", "NAME READY WARNINGS KAFKA VERSION METADATA VERSION", versions.as_str()),
        ("kafkanodepool", "NAME DESIRED REPLICAS ROLES NODEIDS", r#"brokers 3 ["broker"] [0,1,2]"#),
        ("strimzipodset", "NAME PODS READY PODS CURRENT PODS AGE", "my-cluster-brokers 3 3 3"),
    ];
    for (resource, headers, row) in expected {
        let table = kubectl::run(&["get", resource, "--namespace", &cluster.scene.namespace]).await?;
        let lines: Vec<String> =
            table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines.first().map(String::as_str), Some(headers), "{table}");
        ensure!(lines.iter().any(|line| line.starts_with(row)), "no row '{row}' in\n{table}");
    }
    Ok(())
}

pub(crate) async fn the_quorum_is_dynamic_and_has_the_recorded_directories(
    cluster: &Cluster<'_>,
    status: &KafkaStatus,
) -> Result<()> {
    cluster.scene.step("asking kafka-metadata-quorum and kafka-features");
    let tools = ConsoleTools::new(cluster.scene, "my-cluster-brokers-0", &cluster.bootstrap().await?);
    let recorded = recorded_voters(status)?;
    assert_eq!(recorded.len(), 3);
    assert_eq!(tools.voters().await?, recorded);
    let kraft = tools.feature("kraft.version").await?;
    ensure!(kraft.contains("FinalizedVersionLevel: 1"), "the quorum is not dynamic: {kraft}");
    Ok(())
}

pub(crate) async fn console_tools_produce_and_consume(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("producing and consuming with Kafka's console tools");
    let tools = ConsoleTools::new(cluster.scene, "my-cluster-brokers-1", &cluster.bootstrap().await?);
    tools.produce("console", &["one", "two"]).await?;
    assert_eq!(tools.consume("console", 2).await?, ["one", "two"]);
    Ok(())
}

pub(crate) async fn kcat_produces_and_consumes(cluster: &Cluster<'_>) -> Result<()> {
    cluster.scene.step("producing and consuming with kcat");
    let kcat = Kcat::new(&cluster.bootstrap().await?);
    kcat.produce("kept", &["a", "b", "c"]).await?;
    assert_eq!(kcat.consume("kept").await?, ["a", "b", "c"]);
    Ok(())
}

/// How somebody talks to nodes who knows whom to trust but has no certificate, and how the operator does.
async fn inside(cluster: &Cluster<'_>) -> Result<(Security, Security)> {
    let secrets = cluster.scene.api::<Secret>();
    let entry = |secret: &Secret, name: &str| {
        let found = secret.data.as_ref().and_then(|data| data.get(name));
        found.map(|bytes| bytes.0.clone()).with_context(|| format!("no {name}"))
    };
    let trust = entry(&secrets.get("my-cluster-trustbundle").await?, CLUSTER_TRUST)?;
    let own = secrets.get("my-cluster-cluster-operator-certs").await?;
    let (chain, key) = (entry(&own, OPERATOR_CERTIFICATE)?, entry(&own, OPERATOR_KEY)?);
    let identity = Identity { chain_pem: &chain, key_pem: &key };
    Ok((Security::Tls(TlsConfig::new(&trust, None)?), Security::Tls(TlsConfig::new(&trust, Some(identity))?)))
}

pub(crate) async fn the_admin_client_sees_what_is_there(
    cluster: &Cluster<'_>,
    status: &KafkaStatus,
) -> Result<()> {
    cluster.scene.step("asking with Karst's own admin client, by way of brokers and of controllers");
    let bootstrap = cluster.bootstrap().await?.parse()?;
    let brokers = Admin::new(Bootstrap::Brokers(vec![bootstrap]), ClientConfig::default());
    let (stranger, operator) = inside(cluster).await?;
    let controllers = Bootstrap::Controllers(controller_endpoints(status)?);
    for unknown in [ClientConfig::default(), ClientConfig { security: stranger, ..ClientConfig::default() }] {
        let answer = Admin::new(controllers.clone(), unknown).describe_quorum().await;
        ensure!(answer.is_err(), "a controller answers somebody without a certificate: {answer:?}");
    }
    let controllers = Admin::new(controllers, ClientConfig { security: operator, ..ClientConfig::default() });

    let described = brokers.describe_cluster().await?;
    assert_eq!(Some(&described.cluster_id), status.cluster_id.as_ref());
    let mut serving: Vec<_> = described.brokers.iter().filter(|b| !b.fenced).map(|b| b.id.0).collect();
    serving.sort_unstable();
    assert_eq!(serving, [0, 1, 2]);
    ensure!(described.fenced_known, "Kafka 4 lists fenced brokers");

    let known = controllers.describe_controllers().await?;
    ensure!(known.leader.is_some_and(|leader| (3..=5).contains(&leader.0)), "{known:?}");
    let recorded = recorded_voters(status)?;
    assert_eq!(voters(&brokers.describe_quorum().await?), recorded);
    assert_eq!(voters(&controllers.describe_quorum().await?), recorded);

    let features = controllers.features().await?;
    assert_eq!(features.finalized.get("kraft.version"), Some(&1), "{features:?}");

    let metadata = brokers.metadata(TopicSelection::Names(vec!["kept".to_owned()])).await?;
    let partition = &metadata.topics[0].partitions[0];
    assert_eq!((partition.replicas.len(), partition.isr.len()), (3, 3), "{partition:?}");

    let configs = brokers.describe_configs(ConfigResource::Broker(NodeId(1))).await?;
    let value = |name: &str| configs.iter().find(|entry| entry.name == name)?.value.clone();
    assert_eq!(value("min.insync.replicas").as_deref(), Some("2"));
    assert_eq!(value("log.dirs").as_deref(), Some("/var/lib/kafka/data-0/kafka-log1"));
    Ok(())
}

fn controller_endpoints(status: &KafkaStatus) -> Result<Vec<karst_kafka::Endpoint>> {
    let list = status.initial_controllers.as_deref().unwrap_or_default();
    let address = |entry: &str| {
        let (_, rest) = entry.split_once('@')?;
        rest.rsplit_once(':').map(|(address, _)| address.to_owned())
    };
    list.split(',').map(|entry| Ok(address(entry).context("no address")?.parse()?)).collect()
}

fn voters(quorum: &Quorum) -> Vec<Member> {
    let member = |voter: &karst_kafka::ReplicaState| Member {
        id: voter.id.0,
        directory_id: voter.directory.map(|id| id.to_string()),
    };
    let mut voters: Vec<_> = quorum.voters.iter().map(member).collect();
    voters.sort();
    voters
}
