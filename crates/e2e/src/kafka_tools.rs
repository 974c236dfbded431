//! Clients that are not ours: the console tools in Kafka's own pods, and `kcat`.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::kubectl;
use crate::story::Scene;

/// How often a client that stays connected writes.
const PACE: Duration = Duration::from_millis(100);

/// The tools of one Kafka pod.
#[derive(Debug)]
pub struct ConsoleTools<'a> {
    scene: &'a Scene,
    pod: String,
    bootstrap: String,
}

/// One member of the quorum, as `kafka-metadata-quorum` prints it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Its node.
    pub id: i32,
    /// Its disk. Static quorums have none.
    pub directory_id: Option<String>,
}

/// What `kafka-log-dirs` prints.
#[derive(Deserialize)]
struct LogDirs {
    brokers: Vec<BrokerDirs>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BrokerDirs {
    log_dirs: Vec<LogDir>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogDir {
    log_dir: String,
    partitions: Vec<LogDirPartition>,
}

#[derive(Deserialize)]
struct LogDirPartition {
    partition: String,
}

impl<'a> ConsoleTools<'a> {
    /// The tools in `pod`, to be used on the cluster at `bootstrap`.
    pub fn new(scene: &'a Scene, pod: &str, bootstrap: &str) -> Self {
        Self { scene, pod: pod.to_owned(), bootstrap: bootstrap.to_owned() }
    }

    /// Writes a file into the pod, for tools that read their settings from one.
    pub async fn write_file(&self, path: &str, content: &str) -> Result<()> {
        let place = ["exec", "--stdin", "--namespace", &self.scene.namespace, &self.pod, "--container=kafka"];
        let script = format!("cat > {path}");
        kubectl::feed(&[&place[..], &["--", "sh", "-c", &script]].concat(), content).await.map(drop)
    }

    /// Runs one of Kafka's tools with its own arguments.
    pub async fn run(&self, tool: &str, arguments: &[&str], input: &str) -> Result<String> {
        self.run_command(tool, &[], arguments, input).await
    }

    /// Some tools want a command before everything else.
    async fn run_command(
        &self,
        tool: &str,
        command: &[&str],
        arguments: &[&str],
        input: &str,
    ) -> Result<String> {
        let program = format!("/opt/kafka/bin/{tool}.sh");
        let place = ["exec", "--stdin", "--namespace", &self.scene.namespace, &self.pod, "--container=kafka"];
        let server = ["--bootstrap-server", &self.bootstrap];
        let call = [&place[..], &["--", &program], command, &server, arguments].concat();
        kubectl::feed(&call, input).await
    }

    /// The voters of the quorum.
    pub async fn voters(&self) -> Result<Vec<Member>> {
        let line = self.quorum("CurrentVoters:").await?;
        let mut voters: Vec<Member> =
            serde_json::from_str(&line).with_context(|| format!("cannot read {line}"))?;
        voters.sort();
        Ok(voters)
    }

    /// The node that leads the quorum.
    pub async fn leader(&self) -> Result<i32> {
        let line = self.quorum("LeaderId:").await?;
        line.parse().with_context(|| format!("cannot read {line}"))
    }

    async fn quorum(&self, field: &str) -> Result<String> {
        let status = self.run("kafka-metadata-quorum", &["describe", "--status"], "").await?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let line = line.with_context(|| format!("no {field} in:\n{status}"))?;
        Ok(line.trim().to_owned())
    }

    /// Where the tools start.
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// The ids of the brokers that are registered, those that do not serve included.
    pub async fn brokers(&self) -> Result<Vec<i32>> {
        let (command, all) = (["list-endpoints"], ["--include-fenced-brokers"]);
        let listing = self.run_command("kafka-cluster", &command, &all, "").await?;
        let ids = listing.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok());
        let mut ids: Vec<i32> = ids.collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// Asks Kafka to forget a broker.
    pub async fn unregister(&self, broker: i32) -> Result<String> {
        self.run_command("kafka-cluster", &["unregister"], &["--id", &broker.to_string()], "").await
    }

    /// The racks of the brokers that serve, by node.
    pub async fn racks(&self) -> Result<BTreeMap<i32, String>> {
        let listing = self.run("kafka-broker-api-versions", &[], "").await?;
        // host:port (id: 0 rack: a isFenced: false) -> (
        let rack = |line: &str| {
            let (_, rest) = line.split_once("(id: ")?;
            let (id, rest) = rest.split_once(" rack: ")?;
            let end = rest.find([' ', ')'])?;
            Some((id.parse().ok()?, rest[..end].to_owned()))
        };
        Ok(listing.lines().filter_map(rack).collect())
    }

    /// Lets a user log in with a password.
    pub async fn add_scram_user(&self, user: &str, password: &str) -> Result<()> {
        let credentials = format!("SCRAM-SHA-512=[password={password}]");
        let who = ["--alter", "--entity-type", "users", "--entity-name", user];
        self.run("kafka-configs", &[&who[..], &["--add-config", &credentials]].concat(), "").await.map(drop)
    }

    /// The value of a setting that a broker runs with, as `kafka-configs` tells it.
    pub async fn broker_setting(&self, broker: i32, key: &str) -> Result<String> {
        let id = broker.to_string();
        let who = ["--describe", "--all", "--entity-type", "brokers", "--entity-name", &id];
        let said = self.run("kafka-configs", &who, "").await?;
        let value = said.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix('='));
        let value = value.and_then(|value| value.split_whitespace().next());
        value.map(str::to_owned).with_context(|| format!("no {key} in:\n{said}"))
    }

    /// What `kafka-features` says of a feature.
    pub async fn feature(&self, name: &str) -> Result<String> {
        let features = self.run("kafka-features", &["describe"], "").await?;
        let line = features.lines().find(|line| line.contains(name));
        line.map(str::to_owned).with_context(|| format!("no {name} in:\n{features}"))
    }

    /// Creates a topic of one partition, with its replicas on these brokers.
    pub async fn create_topic_on(&self, topic: &str, brokers: &str) -> Result<()> {
        let arguments = ["--create", "--topic", topic, "--replica-assignment", brokers];
        self.run("kafka-topics", &arguments, "").await.map(drop)
    }

    /// Moves the only partition of each of these topics to these brokers, and does not wait for the end. All at once, because
    /// the tool refuses to begin while another move is under way.
    pub async fn reassign(&self, moves: &[(&str, &[i32])]) -> Result<()> {
        let entry = |(topic, brokers): &(&str, &[i32])| json!({ "topic": topic, "partition": 0, "replicas": brokers });
        self.execute_reassignment(moves.iter().map(entry).collect()).await
    }

    async fn execute_reassignment(&self, partitions: Vec<Value>) -> Result<()> {
        let plan = json!({ "version": 1, "partitions": partitions });
        let arguments = ["--reassignment-json-file", "/dev/stdin", "--execute"];
        self.run("kafka-reassign-partitions", &arguments, &plan.to_string()).await.map(drop)
    }

    /// The directories of these brokers, and the partitions in each, as `topic-0`.
    pub async fn log_dirs(&self, brokers: &str) -> Result<BTreeMap<String, Vec<String>>> {
        let said = self.run("kafka-log-dirs", &["--describe", "--broker-list", brokers], "").await?;
        let json = said.lines().find(|line| line.starts_with('{'));
        let found: LogDirs = serde_json::from_str(json.with_context(|| format!("no JSON in:\n{said}"))?)?;
        let dirs = found.brokers.into_iter().flat_map(|broker| broker.log_dirs);
        let names = |dir: &LogDir| dir.partitions.iter().map(|one| one.partition.clone()).collect();
        Ok(dirs.map(|dir| (dir.log_dir.clone(), names(&dir))).collect())
    }

    /// Moves partitions (as `topic-0`) to these directories of these brokers, and does not wait for the end.
    pub async fn move_to_dirs(&self, partitions: &[String], brokers: &[i32], dirs: &[&str]) -> Result<()> {
        let entry = |name: &String| {
            let (topic, partition) = name.rsplit_once('-').context("no partition number")?;
            let partition: i32 = partition.parse()?;
            Ok(json!({ "topic": topic, "partition": partition, "replicas": brokers, "log_dirs": dirs }))
        };
        self.execute_reassignment(partitions.iter().map(entry).collect::<Result<_>>()?).await
    }

    /// Writes one record a line.
    pub async fn produce(&self, topic: &str, records: &[&str]) -> Result<()> {
        let input: String = records.iter().map(|record| format!("{record}\n")).collect();
        self.run("kafka-console-producer", &["--topic", topic], &input).await.map(drop)
    }

    /// Reads this many records from the beginning.
    pub async fn consume(&self, topic: &str, count: usize) -> Result<Vec<String>> {
        let count = count.to_string();
        let from = ["--topic", topic, "--from-beginning", "--timeout-ms", "60000", "--max-messages", &count];
        Ok(lines(&self.run("kafka-console-consumer", &from, "").await?))
    }
}

/// A client outside Java, outside the pods.
#[derive(Debug, Clone)]
pub struct Kcat {
    bootstrap: String,
    options: Vec<String>,
}

impl Kcat {
    /// A client of the cluster at `bootstrap`.
    pub fn new(bootstrap: &str) -> Self {
        Self { bootstrap: bootstrap.to_owned(), options: Vec::new() }
    }

    /// The same, with more settings, each as `key=value`.
    pub fn with(mut self, options: &[String]) -> Self {
        self.options.extend_from_slice(options);
        self
    }

    async fn run(&self, arguments: &[&str], input: &str) -> Result<String> {
        let mut command = Command::new("timeout");
        command.args(["90", "kcat", "-b", &self.bootstrap]).args(arguments);
        // The last word counts: these come after what a call sets by itself.
        command.args(self.options.iter().flat_map(|option| ["-X", option.as_str()]));
        kubectl::text(&kubectl::output(&mut command, input).await?, &format!("kcat {}", arguments.join(" ")))
    }

    /// Writes one record a line, each acknowledged by all replicas in sync.
    pub async fn produce(&self, topic: &str, records: &[&str]) -> Result<()> {
        let input = records.join("\n");
        let arguments = ["-P", "-t", topic, "-X", "acks=all", "-X", "message.timeout.ms=60000"];
        self.run(&arguments, &input).await.map(drop)
    }

    /// Stays connected while something is told, and writes a record every so often. Each must be acknowledged.
    pub async fn while_connected<T>(&self, topic: &str, tell: impl AsyncFnOnce() -> Result<T>) -> Result<T> {
        let mut command = Command::new("kcat");
        command.args(["-b", &self.bootstrap, "-P", "-E", "-t", topic, "-X", "acks=all"]);
        command.args(["-X", "message.timeout.ms=60000"]);
        command.args(self.options.iter().flat_map(|option| ["-X", option.as_str()]));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("cannot run kcat")?;
        let mut input = child.stdin.take().context("kcat takes no input")?;
        let mut output = child.stderr.take().context("kcat says nothing")?;
        // Somebody has to read what it says all the time: what is not read stops it.
        let said = tokio::spawn(async move {
            let mut said = String::new();
            output.read_to_string(&mut said).await.map(|_| said)
        });
        let stop = CancellationToken::new();
        let write = async {
            while !stop.is_cancelled() {
                input.write_all(b"record\n").await.context("the client that stays connected ended")?;
                tokio::time::sleep(PACE).await;
            }
            drop(input);
            anyhow::Ok(())
        };
        let (written, told) = tokio::join!(write, async {
            let told = tell().await;
            stop.cancel();
            told
        });
        let told = told?;
        let (ended, said) = (child.wait().await?, said.await??);
        written.with_context(|| said.clone())?;
        let is_lost = said.contains("Delivery failed");
        ensure!(ended.success() && !is_lost, "a client of {topic} lost records: {ended}\n{said}");
        Ok(told)
    }

    /// Reads everything that is in the topic.
    pub async fn consume(&self, topic: &str) -> Result<Vec<String>> {
        let mut records = lines(&self.run(&["-C", "-t", topic, "-o", "beginning", "-e", "-q"], "").await?);
        records.sort();
        Ok(records)
    }

    /// The names of all topics.
    pub async fn topics(&self) -> Result<Vec<String>> {
        let listing: Value = serde_json::from_str(&self.run(&["-L", "-J"], "").await?)?;
        let topics = listing["topics"].as_array().context("no topics in the listing")?;
        Ok(topics.iter().filter_map(|topic| topic["topic"].as_str().map(str::to_owned)).collect())
    }

    /// Writes a record and reads it back.
    pub async fn round_trip(&self, topic: &str, record: &str) -> Result<()> {
        self.produce(topic, &[record]).await?;
        let records = self.consume(topic).await?;
        ensure!(records.iter().any(|read| read == record), "'{record}' is not among {records:?}");
        Ok(())
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}
