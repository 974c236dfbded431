//! Brokers that died and read their logs anew, for as long as a story wants.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use tokio::time::{Instant, sleep};

use crate::cluster::STARTING;
use crate::processes::{freeze, kafka_of, kill_kafka, wake_kafka};
use crate::story::Scene;

/// How often somebody looks for a process that is about to start: Kafka must not get far.
const LOOKING: Duration = Duration::from_millis(20);

/// A broker that was killed, has begun to start again, and comes no further until somebody wakes it.
#[derive(Debug)]
pub struct Recovering<'a> {
    scene: &'a Scene,
    pod: String,
}

impl<'a> Recovering<'a> {
    /// Kills Kafka in a pod, and freezes the one that is started next. Its logs were not closed, so it has to read them first.
    pub async fn begin(scene: &'a Scene, pod: &str) -> Result<Self> {
        let found = scene.api::<Pod>().get(pod).await?;
        let dying = kafka_of(&found)?;
        kill_kafka(&found)?;
        let until = Instant::now() + STARTING;
        let next = loop {
            match kafka_of(&found) {
                Ok(process) if process != dying => break process,
                _ => ensure!(Instant::now() < until, "Kafka was not started again in {pod}"),
            }
            sleep(LOOKING).await;
        };
        freeze(next)?;
        Ok(Self { scene, pod: pod.to_owned() })
    }

    /// Lets it go on.
    pub async fn go_on(self) -> Result<()> {
        wake_kafka(&self.scene.api::<Pod>().get(&self.pod).await?)
    }
}
