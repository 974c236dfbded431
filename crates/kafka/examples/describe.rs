//! Prints what a Kafka cluster says about itself.
//!
//! ```text
//! describe brokers localhost:9092[,host:port...] [topic...]
//! describe controllers localhost:9093[,host:port...]
//! ```

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use karst_kafka::{
    Admin, Bootstrap, ClientConfig, ConfigResource, ConfigSource, Endpoint, Features, Quorum, ReplicaState,
    TopicMetadata, TopicSelection,
};

const USAGE: &str = "usage: describe brokers|controllers HOST:PORT[,HOST:PORT...] [TOPIC...]";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match describe(&arguments, &mut io::stdout().lock()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to be done if even this cannot be written.
            let _ = writeln!(io::stderr(), "describe: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn describe(arguments: &[String], out: &mut impl Write) -> anyhow::Result<()> {
    let [kind, addresses, topics @ ..] = arguments else { bail!(USAGE) };
    let endpoints = addresses.split(',').map(str::parse).collect::<Result<Vec<Endpoint>, _>>()?;
    let bootstrap = match kind.as_str() {
        "brokers" => Bootstrap::Brokers(endpoints),
        "controllers" => Bootstrap::Controllers(endpoints),
        _ => bail!(USAGE),
    };
    let of_brokers = matches!(bootstrap, Bootstrap::Brokers(_));
    let admin = Admin::new(bootstrap, ClientConfig::default());
    if of_brokers {
        print_brokers(&admin, out).await?;
        print_topics(&admin.metadata(selection(topics)).await.context("the topics")?, out)?;
        print_topic_configs(&admin, topics, out).await?;
    } else {
        print_controllers(&admin, out).await?;
    }
    print_quorum(&admin.describe_quorum().await.context("the quorum")?, out)?;
    print_features(&admin.features().await.context("the features")?, out)?;
    Ok(())
}

fn selection(topics: &[String]) -> TopicSelection {
    if topics.is_empty() { TopicSelection::All } else { TopicSelection::Names(topics.to_vec()) }
}

async fn print_brokers(admin: &Admin, out: &mut impl Write) -> anyhow::Result<()> {
    let cluster = admin.describe_cluster().await.context("the cluster")?;
    let fenced = if cluster.fenced_known { "" } else { " (fenced brokers are not listed by this Kafka)" };
    writeln!(out, "cluster {}: {} brokers{fenced}", cluster.cluster_id, cluster.brokers.len())?;
    for broker in &cluster.brokers {
        let state = if broker.fenced { "fenced" } else { "serving" };
        writeln!(out, "  broker {} at {}: {state}", broker.id, broker.endpoint)?;
    }
    for broker in cluster.brokers.iter().filter(|broker| !broker.fenced) {
        let configs = admin
            .describe_configs(ConfigResource::Broker(broker.id))
            .await
            .context("a broker's configuration")?;
        let set = configs.iter().filter(|entry| entry.source != ConfigSource::Default).count();
        writeln!(out, "  broker {}: {} configuration entries, {set} set", broker.id, configs.len())?;
    }
    Ok(())
}

async fn print_controllers(admin: &Admin, out: &mut impl Write) -> anyhow::Result<()> {
    let cluster = admin.describe_controllers().await.context("the controllers")?;
    let leader = cluster.leader.map_or_else(|| "none".to_owned(), |id| id.to_string());
    writeln!(
        out,
        "cluster {}: {} controllers, leader {leader}",
        cluster.cluster_id,
        cluster.controllers.len()
    )?;
    for controller in &cluster.controllers {
        writeln!(out, "  controller {} at {}", controller.id, controller.endpoint)?;
    }
    Ok(())
}

fn print_topics(metadata: &TopicMetadata, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "topics: {}", metadata.topics.len())?;
    for topic in &metadata.topics {
        let id = topic.id.map_or_else(|| "-".to_owned(), |id| id.to_string());
        let error = topic.error.map_or_else(String::new, |error| format!(", {error}"));
        writeln!(out, "  {} ({id}): {} partitions{error}", topic.name, topic.partitions.len())?;
        for partition in &topic.partitions {
            writeln!(
                out,
                "    {}: leader {:?}, replicas {:?}, in sync {:?}",
                partition.index,
                partition.leader.map(|id| id.0),
                partition.replicas.iter().map(|id| id.0).collect::<Vec<_>>(),
                partition.isr.iter().map(|id| id.0).collect::<Vec<_>>(),
            )?;
        }
    }
    Ok(())
}

async fn print_topic_configs(admin: &Admin, topics: &[String], out: &mut impl Write) -> anyhow::Result<()> {
    for topic in topics {
        match admin.describe_configs(ConfigResource::Topic(topic.clone())).await {
            Ok(configs) => writeln!(out, "  {topic}: {} configuration entries", configs.len())?,
            Err(error) => writeln!(out, "  {topic}: {error}")?,
        }
    }
    Ok(())
}

fn print_quorum(quorum: &Quorum, out: &mut impl Write) -> io::Result<()> {
    let Quorum { leader, leader_epoch, high_watermark, .. } = quorum;
    writeln!(out, "quorum: leader {leader}, epoch {leader_epoch}, high watermark {high_watermark}")?;
    for voter in &quorum.voters {
        print_replica("voter", voter, out)?;
    }
    for observer in &quorum.observers {
        print_replica("observer", observer, out)?;
    }
    Ok(())
}

fn print_replica(role: &str, replica: &ReplicaState, out: &mut impl Write) -> io::Result<()> {
    let directory = replica.directory.map_or_else(|| "unknown".to_owned(), |id| id.to_string());
    writeln!(
        out,
        "  {role} {} directory {directory} end {} last fetch {:?} last caught up {:?}",
        replica.id, replica.log_end_offset, replica.last_fetch, replica.last_caught_up
    )
}

fn print_features(features: &Features, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "features at epoch {:?}:", features.epoch)?;
    for (name, levels) in &features.supported {
        let finalized = features.finalized.get(name).copied().unwrap_or(0);
        writeln!(out, "  {name}: {finalized} (supported {} to {})", levels.min, levels.max)?;
    }
    Ok(())
}
