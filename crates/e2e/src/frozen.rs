//! Processes that stand still: their connections stay open, and nobody answers.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::processes::{freeze, kafka_of};

/// Processes that stand still until this is dropped.
#[derive(Debug, Default)]
pub struct Frozen(Vec<Pid>);

impl Frozen {
    pub(crate) fn process(process: Pid) -> Result<Self> {
        freeze(process)?;
        Ok(Self(vec![process]))
    }

    /// Freezes Kafka in all of these pods.
    pub fn kafka(pods: &[Pod]) -> Result<Self> {
        let mut frozen = Self::default();
        for pod in pods {
            let process = kafka_of(pod).context("freezing Kafka")?;
            freeze(process)?;
            frozen.0.push(process);
        }
        Ok(frozen)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for process in &self.0 {
            // One that was killed meanwhile needs no waking.
            let _ = kill(*process, Signal::SIGCONT);
        }
    }
}
