//! Brokers that died and read their logs anew, for as long as a story wants.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use tokio::time::{Instant, sleep};

use crate::cluster::STARTING;
use crate::processes::{freeze, kafka_of, kill_kafka, reads_logs, wake_kafka};
use crate::story::Scene;

/// How often somebody looks at a Kafka that is starting: it may not have much to read.
const LOOKING: Duration = Duration::from_millis(5);

/// A broker that was killed, reads its logs, and comes no further until somebody wakes it.
#[derive(Debug)]
pub struct Recovering<'a> {
    scene: &'a Scene,
    pod: String,
}

impl<'a> Recovering<'a> {
    /// Kills Kafka in a pod, and freezes the one that is started next when it has begun to read its logs: they were not closed.
    pub async fn begin(scene: &'a Scene, pod: &str) -> Result<Self> {
        let found = scene.api::<Pod>().get(pod).await?;
        let dying = kafka_of(&found)?;
        kill_kafka(&found)?;
        let until = Instant::now() + STARTING;
        let next = loop {
            match kafka_of(&found) {
                Ok(process) if process != dying && reads_logs(process) => break process,
                _ => ensure!(Instant::now() < until, "nobody saw Kafka read its logs in {pod}"),
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
