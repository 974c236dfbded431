//! The command line of the launcher.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use karst_node::install::{install, install_agent};
use karst_node::jvm::Paths;
use karst_node::place::Place;
use karst_node::rack::RackSource;
use karst_node::run::{Options, run};
use tracing::{error, level_filters::LevelFilter};

/// Formats, starts, watches and stops Kafka in its container.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Copy this executable to where the Kafka container will run it from.
    Install {
        path: PathBuf,
        /// Where to put the agent that serves Kafka's metrics, if it is needed.
        #[arg(long)]
        agent: Option<PathBuf>,
        /// Where the agent is in this image.
        #[arg(long, env = "KARST_AGENT", default_value = "/jmx_prometheus_javaagent.jar")]
        agent_from: PathBuf,
    },
    /// Run Kafka to its end, and exit as it did.
    Run(RunArgs),
}

#[derive(Debug, Args)]
struct RunArgs {
    /// The directory with the node's mounted configuration.
    #[arg(long, env = "KARST_CONFIG_DIR", default_value = "/opt/kafka/custom-config")]
    config_dir: PathBuf,
    /// Where Kafka is installed; its jars are in `libs` below.
    #[arg(long, env = "KARST_KAFKA_HOME", default_value = "/opt/kafka")]
    kafka_home: PathBuf,
    /// The Java executable, looked up on the PATH.
    #[arg(long, env = "KARST_JAVA", default_value = "java")]
    java: PathBuf,
    /// Where a logging configuration that writes files writes them.
    #[arg(long, env = "KARST_LOGS_DIR", default_value = "/tmp/kafka-logs")]
    logs_dir: PathBuf,
    /// Where the launcher writes what Kafka is to read and is not mounted.
    #[arg(long, env = "KARST_WORK_DIR", default_value = "/tmp/karst")]
    work_dir: PathBuf,
    /// The address of the Kubernetes node, for listeners that are reached through it.
    #[arg(long, env = "KARST_NODE_IP")]
    node_ip: Option<String>,
    /// The name of the Kubernetes node.
    #[arg(long, env = "KARST_NODE_NAME")]
    node_name: Option<String>,
    /// The address that answers /live and /ready. The usual one is that of IPv6 and IPv4 together, or of IPv4 where there is
    /// nothing else.
    #[arg(long, env = "KARST_HTTP", default_value = "[::]:8080")]
    http: SocketAddr,
    /// After so many seconds without any reaction a Kafka that has answered before is given up.
    #[arg(long, env = "KARST_SILENCE_LIMIT", default_value_t = 180)]
    silence_limit: u64,
    /// A file with the rack of this broker, which is empty until the operator knows it.
    #[arg(long, conflicts_with = "rack_variable")]
    rack_file: Option<PathBuf>,
    /// The environment variable with the rack of this broker.
    #[arg(long)]
    rack_variable: Option<String>,
}

impl RunArgs {
    fn into_options(self, began: Instant) -> Options {
        Options {
            paths: Paths {
                config_dir: self.config_dir,
                kafka_home: self.kafka_home,
                java: self.java,
                logs_dir: self.logs_dir,
                work_dir: self.work_dir,
                resolved: None,
            },
            place: Place { ip: self.node_ip, name: self.node_name },
            http: self.http,
            silence_limit: Duration::from_secs(self.silence_limit),
            rack: self.rack_file.map(RackSource::File).or(self.rack_variable.map(RackSource::Variable)),
            began,
        }
    }
}

fn main() -> ExitCode {
    let began = Instant::now();
    tracing_subscriber::fmt().with_max_level(LevelFilter::INFO).with_target(false).with_ansi(false).init();
    let result = match Cli::parse().command {
        Command::Install { path, agent, agent_from } => install(&path)
            .and_then(|()| agent.map_or(Ok(()), |agent| install_agent(&agent_from, &agent)))
            .map(|()| ExitCode::SUCCESS)
            .map_err(Into::into),
        Command::Run(arguments) => run_to_the_end(&arguments.into_options(began)),
    };
    result.unwrap_or_else(|error| {
        error!("{error}");
        ExitCode::FAILURE
    })
}

fn run_to_the_end(options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(run(options));
    // A name lookup that hangs must not keep the container alive.
    runtime.shutdown_background();
    Ok(ExitCode::from(result?.code()))
}
