//! The operator: watches Kubernetes, lets `karst-core` decide, and carries it out.

mod ask;
mod checked;
mod clients;
mod clock;
mod events;
mod failure;
mod gates;
mod hands;
mod http;
mod index;
mod keys;
mod lease;
mod machines;
mod metrics;
mod pass;
mod queue;
mod recorder;
mod references;
mod refusals;
mod run;
mod settings;
mod slots;
mod texts;
mod troubles;
mod views;
mod watch;

use std::io::IsTerminal;

use clap::Parser;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::settings::{Args, LogFormat};

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    start_log(args.log_format, &args.log_level)?;
    let settings = args.check()?;
    // One thread: a pass computes for microseconds and otherwise waits for answers.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run::run(settings))
}

fn start_log(format: LogFormat, level: &str) -> anyhow::Result<()> {
    let filter: Targets = level.to_lowercase().parse()?;
    let lines =
        tracing_subscriber::fmt::layer().with_target(false).with_ansi(std::io::stdout().is_terminal());
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Text => registry.with(lines).init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).init(),
    }
    Ok(())
}
