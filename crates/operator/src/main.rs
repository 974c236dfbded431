//! The operator: watches Kubernetes, lets `karst-core` decide, and carries it out.

mod ask;
mod clients;
mod clock;
mod connection;
mod events;
mod failure;
mod gates;
mod hands;
mod heartbeats;
mod http;
mod index;
mod keys;
mod lease;
mod machines;
mod memories;
mod metrics;
mod panics;
mod pass;
mod places;
mod queue;
mod recorder;
mod references;
mod refusals;
mod run;
mod settings;
mod silences;
mod slots;
mod texts;
mod unreadable;
mod views;
mod watch;
mod workers;

use std::io::IsTerminal;

use clap::Parser;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::settings::{Args, LogFormat};

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    start_log(args.log_format, &args.log_level)?;
    panics::end_the_process_unless_contained();
    let settings = args.check()?;
    // One thread: a pass computes for microseconds and otherwise waits for answers.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run::run(settings))
}

fn start_log(format: LogFormat, level: &str) -> anyhow::Result<()> {
    let filter = without_bodies(level.to_lowercase().parse()?);
    let lines =
        tracing_subscriber::fmt::layer().with_target(false).with_ansi(std::io::stdout().is_terminal());
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Text => registry.with(lines).init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).init(),
    }
    Ok(())
}

/// The client writes answers that it cannot decode into the log, with whatever passwords are in them.
fn without_bodies(filter: Targets) -> Targets {
    filter.with_target("kube_client::client", LevelFilter::ERROR)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn what_the_api_server_answers_never_stands_in_the_log() {
        for level in ["trace", "info", "info,kube_client=trace", "kube_client::client=trace"] {
            let filter = without_bodies(level.parse().unwrap());
            for level in [Level::WARN, Level::DEBUG, Level::TRACE] {
                assert!(!filter.would_enable("kube_client::client", &level));
            }
            assert!(filter.would_enable("kube_client::client", &Level::ERROR));
        }
    }
}
