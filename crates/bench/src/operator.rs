//! The operator, run as a process the way its Deployment runs it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep, timeout};

use crate::control_plane::free_ports;
use crate::process::Process;
use crate::usage::{self, Memory};
use crate::{http, install};

const PATIENCE: Duration = Duration::from_secs(60);
/// How often a starting operator is asked whether it is ready: the error of that figure.
const ASK_EVERY: Duration = Duration::from_millis(1);
/// A stopping operator lets running passes end, for 10 seconds at most.
const STOP: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(crate) struct Operator {
    process: Process,
    http: SocketAddr,
}

impl Operator {
    /// Starts the operator. Returns when it is ready, with the time that took.
    pub(crate) async fn start(program: &Path, kubeconfig: &Path, logs: &Path) -> Result<(Self, Duration)> {
        let [port] = free_ports()?;
        let http = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut command = Command::new(program);
        // Settings of whoever runs this must not become settings of what is measured.
        command
            .env_clear()
            .env("KUBECONFIG", kubeconfig)
            .env("KARST_HTTP_ADDRESS", http.to_string())
            .env("STRIMZI_LEADER_ELECTION_LEASE_NAMESPACE", install::NAMESPACE)
            .env("STRIMZI_LEADER_ELECTION_IDENTITY", "bench");
        let started = Instant::now();
        let mut operator = Self { process: Process::start("karst-operator", &mut command, logs)?, http };
        while !operator.is_ready().await {
            operator.process.must_run()?;
            if started.elapsed() > PATIENCE {
                let words = operator.process.last_words();
                bail!("the operator is not ready after {} s; its last words:\n{words}", PATIENCE.as_secs());
            }
            sleep(ASK_EVERY).await;
        }
        Ok((operator, started.elapsed()))
    }

    async fn is_ready(&self) -> bool {
        matches!(http::get(self.http, "/readyz").await, Ok((200, _)))
    }

    /// Whether it leads, and has nothing left to do that could be done now.
    pub(crate) async fn has_nothing_to_do(&mut self) -> Result<bool> {
        let metrics = self.metrics().await?;
        Ok(metric(&metrics, "karst_leader")? == 1.0 && metric(&metrics, "karst_queue_depth")? == 0.0)
    }

    /// All that it tells of itself.
    pub(crate) async fn metrics(&mut self) -> Result<String> {
        self.process.must_run()?;
        let answer = timeout(PATIENCE, http::get(self.http, "/metrics")).await;
        let (_, metrics) = answer.context("the operator does not answer")??;
        Ok(metrics)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Fails when it has ended.
    pub(crate) fn must_run(&mut self) -> Result<()> {
        self.process.must_run()
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        usage::memory(self.process.pid())
    }

    pub(crate) fn cpu(&self) -> Result<Duration> {
        usage::cpu(self.process.pid())
    }

    pub(crate) fn last_words(&self) -> String {
        self.process.last_words()
    }

    /// Stops it in order, so that it gives back its lease and the next need not wait.
    pub(crate) async fn stop(self) -> Result<()> {
        self.process.stop(STOP).await
    }
}

fn metric(metrics: &str, name: &str) -> Result<f64> {
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = value.with_context(|| format!("the operator has no metric {name}"))?;
    value.trim().parse().with_context(|| format!("the operator's metric {name} is '{value}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_by_its_whole_name() {
        let metrics = "# HELP karst_leader Whether.\nkarst_leader_since 5\nkarst_leader 1\n";
        assert_eq!(metric(metrics, "karst_leader").unwrap(), 1.0);
        assert!(metric(metrics, "karst_lead").is_err());
    }
}
