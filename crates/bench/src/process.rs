//! A process that ends when its owner does, however that comes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

/// How much of a log is shown when its process fails.
const LAST_WORDS: usize = 15;

#[derive(Debug)]
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program. What it prints goes to a file in `logs`.
    pub(crate) fn start(name: &'static str, command: &mut Command, logs: &Path) -> Result<Self> {
        let log = logs.join(format!("{name}.log"));
        let output = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("could not start {name}"))?;
        Ok(Self { name, child, log })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails when the process has ended, with what it said last.
    pub(crate) fn must_run(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended unexpectedly ({status}); its last words:\n{}", self.name, self.last_words());
        }
        Ok(())
    }

    pub(crate) fn last_words(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n")
    }

    /// Asks the process to end, and waits until it has.
    pub(crate) async fn stop(mut self, patience: Duration) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let deadline = Instant::now() + patience;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                bail!(
                    "{} was asked to stop and still runs after {} s; its last words:\n{}",
                    self.name,
                    patience.as_secs(),
                    self.last_words()
                );
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

impl Drop for Process {
    /// Waits too: a process that still writes would bring back the directory that is removed next.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, logs: &Path) -> Process {
        Process::start("shell", Command::new("sh").args(["-c", script]), logs).unwrap()
    }

    #[test]
    fn a_process_ends_with_its_owner() {
        let logs = tempfile::tempdir().unwrap();
        let process = shell("exec sleep 600", logs.path());
        let entry = PathBuf::from(format!("/proc/{}", process.pid()));
        assert!(entry.exists());
        drop(process);
        assert!(!entry.exists());
    }

    #[test]
    fn a_process_that_ended_is_reported_with_its_last_words() {
        let logs = tempfile::tempdir().unwrap();
        let mut process = shell("echo the disk is full >&2; exit 3", logs.path());
        process.child.wait().unwrap();
        let error = process.must_run().unwrap_err().to_string();
        assert!(error.contains("the disk is full") && error.contains('3'), "{error}");
    }

    #[tokio::test]
    async fn a_process_that_does_not_stop_when_asked_is_an_error() {
        let logs = tempfile::tempdir().unwrap();
        let process = shell("trap '' TERM; echo set; while :; do sleep 0.05; done", logs.path());
        while process.last_words().is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(process.stop(Duration::from_millis(50)).await.is_err());
    }
}
