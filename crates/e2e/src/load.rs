//! Clients that never rest while a story is told: producers, a consumer, and topics that come into being.
//!
//! Every record that a producer was told is written must be read by the consumer, and by one that begins when all is over: who read along
//! cannot tell what was lost afterwards. Every topic that took a record must be there at the end.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::kafka_tools::Kcat;
use crate::story::Scene;

/// How many loads there were.
static LOADS: AtomicUsize = AtomicUsize::new(0);
/// The topic that is written to all the time.
pub const BUSY: &str = "busy";
/// A record every so often, from each producer.
const PACE: Duration = Duration::from_millis(20);
/// A new topic every so often.
const TOPIC_PACE: Duration = Duration::from_millis(1500);
/// How long what was written may take to arrive when the producers have stopped.
const LAST_RECORDS: Duration = Duration::from_secs(60);

/// Tells a part of a story under load. Fails when the part does, when a producer saw an error past its retries, or when
/// anything that was acknowledged is lost.
pub async fn under_load<T>(
    scene: &Scene,
    bootstrap: &str,
    tell: impl AsyncFnOnce() -> Result<T>,
) -> Result<T> {
    Load::new(bootstrap, true).during(scene, tell).await
}

/// The same, with records alone: new topics would live on brokers that are to go.
pub async fn under_records<T>(
    scene: &Scene,
    bootstrap: &str,
    tell: impl AsyncFnOnce() -> Result<T>,
) -> Result<T> {
    Load::new(bootstrap, false).during(scene, tell).await
}

#[derive(Clone, Copy)]
struct Load<'a> {
    bootstrap: &'a str,
    makes_topics: bool,
    /// A record of one load is never taken for one of another.
    number: usize,
}

impl<'a> Load<'a> {
    fn new(bootstrap: &'a str, makes_topics: bool) -> Self {
        Self { bootstrap, makes_topics, number: LOADS.fetch_add(1, Ordering::Relaxed) }
    }

    async fn during<T>(self, scene: &Scene, tell: impl AsyncFnOnce() -> Result<T>) -> Result<T> {
        let Self { bootstrap, makes_topics, .. } = self;
        let stop = CancellationToken::new();
        // A consumer of a topic that is not there ends at once.
        Kcat::new(bootstrap).produce(BUSY, &["first"]).await?;
        let mut consumer = consumer(bootstrap)?;
        let topics = async { if makes_topics { self.create_topics(&stop).await } else { Ok(Vec::new()) } };
        let producers = async {
            tokio::join!(
                self.produce("plain", &["-X", "acks=all"], &stop),
                self.produce("idempotent", &["-X", "enable.idempotence=true"], &stop),
                topics,
            )
        };
        let ((plain, idempotent, topics), told) = tokio::join!(producers, async {
            let told = tell().await;
            stop.cancel();
            told
        });
        let told = told?;
        let (plain, idempotent, topics) = (plain?, idempotent?, topics?);
        scene.step(format!(
            "{} records and {} topics were acknowledged; all of them must be there",
            plain.len() + idempotent.len(),
            topics.len()
        ));
        let written: BTreeSet<_> = plain.into_iter().chain(idempotent).collect();
        ensure!(!written.is_empty() && topics.is_empty() != makes_topics, "nothing was written");
        all_arrive(&mut consumer, written.clone()).await.context("read along")?;
        drop(consumer);
        all_arrive(&mut self::consumer(bootstrap)?, written).await.context("read at the end")?;
        let there = Kcat::new(bootstrap).topics().await?;
        let lost: Vec<_> = topics.iter().filter(|topic| !there.contains(*topic)).collect();
        ensure!(lost.is_empty(), "{} of {} topics are lost: {lost:?}", lost.len(), topics.len());
        Ok(told)
    }

    /// Writes one record after the other over one connection until told to stop. Returns those that were acknowledged: all, or it
    /// is an error.
    async fn produce(self, name: &str, how: &[&str], stop: &CancellationToken) -> Result<Vec<String>> {
        let always = ["-P", "-t", BUSY, "-X", "message.timeout.ms=60000"];
        let mut child =
            kcat(self.bootstrap, &[&always[..], how].concat()).spawn().context("cannot run kcat")?;
        let mut input = child.stdin.take().context("kcat takes no input")?;
        // Somebody has to read what it says all the time: a long story would fill the pipe, and stop the producer.
        let said = tokio::spawn(read_all(child.stderr.take().context("kcat says nothing")?));
        let mut written = Vec::new();
        while !stop.is_cancelled() {
            let record = format!("{name}-{}-{}", self.number, written.len());
            let fed = input.write_all(format!("{record}\n").as_bytes()).await;
            fed.with_context(|| format!("the {name} producer ended at {record}"))?;
            written.push(record);
            sleep(PACE).await;
        }
        drop(input);
        let ended = child.wait().await?;
        let said = said.await??;
        let failed = said.lines().filter(|line| line.contains("Delivery failed")).count();
        ensure!(ended.success() && failed == 0, "the {name} producer lost {failed} records:\n{said}");
        Ok(written)
    }

    /// Makes one topic after the other by writing to it. A topic may have to be asked for twice: one that nobody confirmed is
    /// nobody's loss.
    async fn create_topics(self, stop: &CancellationToken) -> Result<Vec<String>> {
        let kcat = Kcat::new(self.bootstrap);
        let mut topics = Vec::new();
        while !stop.is_cancelled() {
            let topic = format!("made-{}-{}", self.number, topics.len());
            match kcat.produce(&topic, &["first"]).await {
                Ok(()) => topics.push(topic),
                Err(error) => eprintln!("topic {topic} was not made: {error:#}"),
            }
            sleep(TOPIC_PACE).await;
        }
        Ok(topics)
    }
}

async fn read_all(mut output: ChildStderr) -> Result<String> {
    let mut said = Vec::new();
    output.read_to_end(&mut said).await?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

fn kcat(bootstrap: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("kcat");
    command.args(["-b", bootstrap, "-E", "-X", "topic.metadata.refresh.interval.ms=5000"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

fn consumer(bootstrap: &str) -> Result<Child> {
    kcat(bootstrap, &["-C", "-t", BUSY, "-o", "beginning", "-u", "-q"]).spawn().context("cannot run kcat")
}

/// Reads until everything has arrived.
async fn all_arrive(consumer: &mut Child, mut missing: BTreeSet<String>) -> Result<()> {
    let output = consumer.stdout.take().context("kcat has no output")?;
    let mut records = BufReader::new(output).lines();
    let until = Instant::now() + LAST_RECORDS;
    while !missing.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        match timeout(left, records.next_line()).await {
            Ok(record) => drop(missing.remove(&record?.context("the consumer ended")?)),
            Err(_) => break,
        }
    }
    let some: Vec<_> = missing.iter().take(20).collect();
    ensure!(missing.is_empty(), "{} acknowledged records were never read: {some:?}", missing.len());
    Ok(())
}
