//! Who is in sync, eligible and leads: the same is done to the brokers of a simulated Kafka and of a real one, and what both say after
//! each step is compared.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use karst_kafka::{Admin, Bootstrap, ClientConfig};
use karst_sim::conformance::replicas::{CONTROLLER, Operation, Said, Sequence, sequences, simulated};
use tokio::time::sleep;

use crate::machine::{Machine, SETTLES, on_a_machine};

const BROKERS: [i32; 3] = [0, 1, 2];
const TOPIC: &str = "replicated";
/// A broker that died is taken for alive for so long.
const SESSION: Duration = Duration::from_secs(3);
/// What is said for so long stays: nobody is taken for alive any more who is dead.
const LASTING: Duration = Duration::from_secs(6);
const PERIOD: Duration = Duration::from_millis(200);

#[tokio::test]
async fn conformance_of_the_simulated_replicas_with_real_ones() -> Result<()> {
    on_a_machine("replicas", async |machine, tell| {
        for sequence in sequences() {
            let mut real = Real { machine, running: BTreeSet::new() };
            let compared = compare(&mut real, &sequence, tell).await;
            for node in real.running.clone() {
                machine.end(node, "KILL").await?;
            }
            compared.context(sequence.name)?;
        }
        Ok(())
    })
    .await
}

async fn compare(real: &mut Real<'_>, sequence: &Sequence, tell: &dyn Fn(String)) -> Result<()> {
    real.begin(sequence.min).await?;
    let all = BROKERS.into_iter().collect();
    real.until(&Said { leader: Some(0), in_sync: all, ..Said::default() }).await?;
    for (step, said) in sequence.steps.iter().zip(simulated(sequence, 1)) {
        tell(format!("{}: {step}, and the simulated Kafka says {said:?}", sequence.name));
        real.perform(*step).await.with_context(|| step.to_string())?;
        // Only a broker tells of partitions.
        if real.has_brokers() {
            real.until(&said).await.with_context(|| step.to_string())?;
        }
    }
    Ok(())
}

/// A controller and brokers, to which a sequence is done.
struct Real<'a> {
    machine: &'a Machine,
    running: BTreeSet<i32>,
}

impl Real<'_> {
    /// Everybody starts on an empty disk, and the topic is made.
    async fn begin(&mut self, min: usize) -> Result<()> {
        self.format(CONTROLLER).await?;
        self.start(CONTROLLER).await?;
        for broker in BROKERS {
            self.format(broker).await?;
            self.start(broker).await?;
        }
        for broker in BROKERS {
            self.until_serving(broker, true).await?;
        }
        let at = self.machine.endpoint(BROKERS[0]);
        let libs = self.machine.libs();
        let script = format!(
            "java -Xmx160m -cp '{libs}' org.apache.kafka.tools.TopicCommand --bootstrap-server {at} --create --if-not-exists \
             --topic {TOPIC} --replica-assignment 0:1:2 --config min.insync.replicas={min} >&2"
        );
        self.machine.run(&script).await.map(drop)
    }

    async fn perform(&mut self, operation: Operation) -> Result<()> {
        match operation {
            Operation::Start(node) if self.running.contains(&node) => Ok(()),
            Operation::Start(node) => {
                self.start(node).await?;
                self.until_serving(node, true).await
            }
            Operation::Stop(node) => self.end(node, "TERM").await,
            Operation::Kill(node) => self.end(node, "KILL").await,
        }
    }

    async fn start(&mut self, node: i32) -> Result<()> {
        self.machine.start(node).await?;
        self.running.insert(node);
        Ok(())
    }

    async fn end(&mut self, node: i32, signal: &str) -> Result<()> {
        self.machine.end(node, signal).await?;
        self.running.remove(&node);
        if self.has_brokers() {
            self.until_serving(node, false).await
        } else {
            sleep(SESSION * 2).await;
            Ok(())
        }
    }

    fn has_brokers(&self) -> bool {
        self.running.iter().any(|node| *node != CONTROLLER)
    }

    async fn format(&self, node: i32) -> Result<()> {
        let option = if node == CONTROLLER { "--standalone" } else { "--no-initial-controllers" };
        self.machine.format(node, &self.settings(node), option).await.map(drop)
    }

    fn settings(&self, node: i32) -> String {
        let scratch = &self.machine.scratch;
        let endpoint = self.machine.endpoint(node);
        let port = endpoint.port;
        let role = match node {
            CONTROLLER => format!(
                "process.roles=controller\nlisteners=CONTROLLER://0.0.0.0:{port}\n\
                 advertised.listeners=CONTROLLER://{endpoint}\n"
            ),
            _ => format!(
                "process.roles=broker\nlisteners=PLAINTEXT://0.0.0.0:{port}\n\
                 advertised.listeners=PLAINTEXT://{endpoint}\n"
            ),
        };
        format!(
            "node.id={node}\n{role}controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\nlog.dirs={scratch}/{node}\n\
             controller.quorum.bootstrap.servers={}\nauto.leader.rebalance.enable=false\n\
             broker.session.timeout.ms={}\nbroker.heartbeat.interval.ms=500\n\
             offsets.topic.replication.factor=1\nlog.cleaner.dedupe.buffer.size=4194304\n",
            self.machine.endpoint(CONTROLLER),
            SESSION.as_millis()
        )
    }

    fn admin(&self) -> Admin {
        let brokers = self.running.iter().filter(|node| **node != CONTROLLER);
        let endpoints = brokers.map(|node| self.machine.endpoint(*node)).collect();
        Admin::new(Bootstrap::Brokers(endpoints), ClientConfig::default())
    }

    /// Waits until the controller takes the broker for one that serves, or no longer.
    async fn until_serving(&self, node: i32, serves: bool) -> Result<()> {
        let until = Instant::now() + SETTLES;
        loop {
            let cluster = self.admin().describe_cluster().await;
            let is_serving = |cluster: karst_kafka::ClusterDescription| {
                cluster.brokers.iter().any(|broker| broker.id.0 == node && !broker.fenced)
            };
            if cluster.is_ok_and(|cluster| is_serving(cluster) == serves) {
                return Ok(());
            }
            ensure!(Instant::now() < until, "broker {node} does not come to serve, or not to end: {serves}");
            sleep(PERIOD).await;
        }
    }

    /// Waits until this is said, and goes on being said.
    async fn until(&self, expected: &Said) -> Result<()> {
        let until = Instant::now() + SETTLES;
        let mut since = None;
        loop {
            let said = self.said().await;
            let now = Instant::now();
            match (&said, since) {
                (Ok(said), None) if said == expected => since = Some(now),
                (Ok(said), Some(then)) if said == expected => {
                    if now.duration_since(then) >= LASTING {
                        return Ok(());
                    }
                }
                _ => since = None,
            }
            ensure!(now < until, "a real Kafka says {said:#?}, the simulated one {expected:#?}");
            sleep(PERIOD).await;
        }
    }

    async fn said(&self) -> Result<Said> {
        let topics = self.admin().describe_topic_partitions(&[TOPIC.to_owned()]).await?;
        let partition = topics.first().and_then(|topic| topic.partitions.first());
        let described = partition.context("there is no partition")?;
        let nodes = |nodes: &[karst_kafka::NodeId]| nodes.iter().map(|node| node.0).collect();
        Ok(Said {
            leader: described.partition.leader.map(|leader| leader.0),
            in_sync: nodes(&described.partition.isr),
            eligible: nodes(&described.eligible),
            last_known: nodes(&described.last_known_eligible),
        })
    }
}
