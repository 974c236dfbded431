//! Measures what the operator costs: time, memory, processor and requests.
//!
//! The operator is the release program, run as in production: with its own role, its own lease, its own service
//! account. The API server and its store are real. There are no nodes, so pods are created and never run: these
//! figures are the operator's own, and say nothing of how long Kafka takes to start.
//!
//! The figures are set against the project's budgets. A budget that is missed is marked, and is not a failure:
//! the machine may be slow or busy. What cannot be measured at all is.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod audit;
mod budgets;
mod clusters;
mod control_plane;
mod decisions;
mod http;
mod install;
mod kafka;
mod kubelet;
mod large;
mod live;
mod machine;
mod network;
mod operator;
mod passes;
mod places;
mod pods;
mod process;
mod report;
mod requests;
mod scenario;
mod stage;
mod usage;
mod week;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::scenario::Scenario;
use crate::stage::Programs;

/// Measures what the operator costs.
#[derive(Debug, Parser)]
#[command(name = "karst-bench", disable_version_flag = true)]
struct Options {
    /// The program that is etcd and kube-apiserver in one [default: the newest in the cache]
    #[arg(long, value_name = "PATH")]
    kubernetes: Option<PathBuf>,

    /// The operator [default: the release build of this checkout]
    #[arg(long, value_name = "PATH")]
    operator: Option<PathBuf>,

    /// Where the figures are written as JSON [default: bench.json in Cargo's target directory]
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,

    /// Measure only what deciding costs, which needs no Kubernetes
    #[arg(long, conflicts_with_all = ["large", "week"])]
    passes: bool,

    /// Go on to 1,000 clusters, which takes some minutes more
    #[arg(long)]
    large: bool,

    /// Measure only what is left when clusters have come and gone for so many minutes
    #[arg(long, value_name = "MINUTES", num_args = 0..=1, default_missing_value = "60", conflicts_with = "large")]
    week: Option<u64>,
}

fn main() -> ExitCode {
    match run(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nError: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> Result<()> {
    if options.passes {
        println!("{}", Scenario::measure_passes()?);
        return Ok(());
    }
    if options.large || options.week.is_some() {
        network::enter()?;
    }
    let week = options.week.map(|minutes| Duration::from_secs(60 * minutes));
    let programs = Programs {
        kubernetes: places::existing(options.kubernetes, places::cached_kubernetes)?,
        operator: places::existing(options.operator, places::release_operator)?,
    };
    let json = options.json.map_or_else(|| Ok(places::target()?.join("bench.json")), anyhow::Ok)?;
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another TLS provider is installed already"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        // Dropping the unfinished scenario ends every process it started and removes its files.
        tokio::select! {
            report = Box::pin(Scenario { programs, large: options.large, week }.measure()) => report,
            stopped = asked_to_stop() => {
                stopped?;
                bail!("stopped before all was measured; what was started has been ended")
            }
        }
    })?;
    report.write_json(&json)?;
    println!("\n{report}");
    println!("As JSON: {}", json.display());
    Ok(())
}

async fn asked_to_stop() -> Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}
