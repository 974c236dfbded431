//! The simulated quorum says what a real one says: the same is done to both, step by step, and their answers are compared.
//!
//! The controllers run in one pod, without Karst. Without a Kubernetes they run here, if `KARST_KAFKA_HOME` names a directory with
//! Kafka's `libs`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use karst_kafka::{
    Admin, Bootstrap, ClientConfig, DirectoryId, Error, ErrorCode, FeatureUpdate, Intent, Listener, NodeId,
    Quorum, ReplicaState, UpdateKind,
};
use karst_sim::conformance::{
    ALIVE, Description, Disks, Formatting, Member, Operation, Outcome, Sequence, Which, founder, sequences,
    simulated,
};
use tokio::time::sleep;

use crate::machine::{Machine, SETTLES, on_a_machine};

mod replicas;

#[tokio::test]
async fn conformance_of_the_simulated_quorum_with_a_real_one() -> Result<()> {
    on_a_machine("conformance", async |machine, tell| compare_all(machine, tell).await).await
}

async fn compare_all(machine: &Machine, tell: &dyn Fn(String)) -> Result<()> {
    for sequence in sequences() {
        let mut real = Real { machine, sequence, disks: Disks::default(), running: BTreeSet::new() };
        let compared = compare(&mut real, tell).await;
        let running: Vec<i32> = real.running.iter().copied().collect();
        for node in running {
            real.stop(node).await?;
        }
        compared?;
    }
    Ok(())
}

async fn compare(real: &mut Real<'_>, tell: &dyn Fn(String)) -> Result<()> {
    let name = real.sequence.name;
    let steps = real.sequence.steps.iter().zip(simulated(&real.sequence, 1));
    for (step, (outcome, description)) in steps {
        tell(format!("{name}: {step}, and the simulated quorum says {outcome:?}"));
        let said = real.perform(step).await.with_context(|| format!("{name}: {step}"))?;
        ensure!(
            said == outcome,
            "{name}: {step}: a real quorum says {said:?}, the simulated one {outcome:?}"
        );
        let until = Instant::now() + SETTLES;
        loop {
            let seen = real.describe().await;
            if seen == description {
                break;
            }
            ensure!(
                Instant::now() < until,
                "{name}: after {step} a real quorum says {seen:#?}, the simulated one {description:#?}"
            );
            sleep(Duration::from_millis(200)).await;
        }
    }
    Ok(())
}

/// A real quorum, to which a sequence is done.
struct Real<'a> {
    machine: &'a Machine,
    sequence: Sequence,
    disks: Disks,
    running: BTreeSet<i32>,
}

impl Real<'_> {
    async fn perform(&mut self, operation: &Operation) -> Result<Option<Outcome>> {
        Ok(Some(match *operation {
            Operation::Format(node, format) => {
                self.format(node, format).await?;
                return Ok(None);
            }
            Operation::Start(nodes) => {
                for node in nodes {
                    self.start(*node).await?;
                }
                return Ok(None);
            }
            Operation::Stop(node) => {
                self.stop(node).await?;
                return Ok(None);
            }
            Operation::Add(node, which) => self.add(&self.admin(), node, which).await?,
            Operation::Remove(node, which) => self.remove(&self.admin(), node, which).await?,
            Operation::AddAndRemove(joins, leaves) => self.add_and_remove(joins, leaves).await?,
            Operation::MakeDynamic => self.make_dynamic().await?,
        }))
    }

    /// A voter that has just started tells the leader what it can do a little later. Until then Kafka refuses, and is asked again,
    /// as the operator does it.
    async fn make_dynamic(&self) -> Result<Outcome> {
        let update = FeatureUpdate { name: "kraft.version".to_owned(), level: 1, kind: UpdateKind::Upgrade };
        let until = Instant::now() + SETTLES;
        loop {
            let asked = self.admin().update_features(std::slice::from_ref(&update), Intent::Apply).await;
            let is_early = matches!(&asked, Err(Error::Kafka { code: ErrorCode::InvalidUpdateVersion, .. }));
            if !is_early || Instant::now() > until {
                return outcome(asked.map(drop));
            }
            sleep(Duration::from_secs(5)).await;
        }
    }

    fn admin(&self) -> Admin {
        let endpoints = self.running.iter().map(|node| self.machine.endpoint(*node)).collect();
        Admin::new(Bootstrap::Controllers(endpoints), ClientConfig::default())
    }

    async fn format(&mut self, node: i32, format: Formatting) -> Result<()> {
        let first = self.sequence.first.iter();
        let first: Vec<_> =
            first.map(|one| format!("{one}@{}:{}", self.machine.endpoint(*one), founder(*one))).collect();
        let option = match format {
            Formatting::First => format!("--initial-controllers={}", first.join(",")),
            Formatting::Join => "--no-initial-controllers".to_owned(),
            Formatting::Static => String::new(),
        };
        let directory = self.machine.format(node, &self.settings(node, format), &option).await?;
        self.disks.add(node, directory.parse().with_context(|| format!("directory id '{directory}'"))?);
        Ok(())
    }

    fn settings(&self, node: i32, format: Formatting) -> String {
        let Machine { scratch, .. } = self.machine;
        let endpoint = self.machine.endpoint(node);
        let voters: Vec<_> =
            self.sequence.first.iter().map(|one| format!("{one}@{}", self.machine.endpoint(*one))).collect();
        let known: Vec<_> = (1..=5).map(|one| self.machine.endpoint(one).to_string()).collect();
        let quorum = match format {
            Formatting::Static => format!("controller.quorum.voters={}", voters.join(",")),
            Formatting::First | Formatting::Join => {
                format!("controller.quorum.bootstrap.servers={}", known.join(","))
            }
        };
        // A leader whose followers are frozen for a moment stays in office.
        format!(
            "node.id={node}\nprocess.roles=controller\ncontroller.listener.names=CONTROLLER\n\
             listeners=CONTROLLER://0.0.0.0:{}\nadvertised.listeners=CONTROLLER://{endpoint}\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT\nlog.dirs={scratch}/{node}\n\
             controller.quorum.fetch.timeout.ms=6000\n{quorum}\n",
            endpoint.port
        )
    }

    async fn start(&mut self, node: i32) -> Result<()> {
        self.machine.start(node).await?;
        self.running.insert(node);
        Ok(())
    }

    async fn stop(&mut self, node: i32) -> Result<()> {
        self.machine.end(node, "KILL").await?;
        self.running.remove(&node);
        Ok(())
    }

    async fn signal(&self, nodes: &[i32], signal: &str) -> Result<()> {
        let pids = nodes.iter().map(|node| format!("$(cat {}/{node}.pid)", self.machine.scratch));
        self.machine.run(&format!("kill -{signal} {}", pids.collect::<Vec<_>>().join(" "))).await.map(drop)
    }

    fn directory(&self, node: i32, which: Which) -> Result<DirectoryId> {
        let directory =
            self.disks.get(node, which).with_context(|| format!("node {node} has no such disk"))?;
        Ok(directory.to_string().parse()?)
    }

    async fn add(&self, admin: &Admin, node: i32, which: Which) -> Result<Outcome> {
        let listener = Listener { name: "CONTROLLER".to_owned(), endpoint: self.machine.endpoint(node) };
        outcome(admin.add_voter(None, NodeId(node), self.directory(node, which)?, &[listener]).await)
    }

    async fn remove(&self, admin: &Admin, node: i32, which: Which) -> Result<Outcome> {
        outcome(admin.remove_voter(None, NodeId(node), self.directory(node, which)?).await)
    }

    /// While its followers are frozen a leader commits nothing.
    async fn add_and_remove(&self, joins: i32, leaves: i32) -> Result<Outcome> {
        let leader = self.admin().describe_quorum().await?.leader.0;
        let endpoint = self.machine.endpoint(leader);
        let admin = || Admin::new(Bootstrap::Controllers(vec![endpoint.clone()]), ClientConfig::default());
        let others: Vec<i32> =
            self.running.iter().copied().filter(|node| *node != leader && *node != joins).collect();
        self.signal(&others, "STOP").await?;
        let (adding, asking) = (admin(), admin());
        let second = async {
            let until = Instant::now() + Duration::from_secs(5);
            while Instant::now() < until {
                let quorum = asking.describe_quorum().await;
                if quorum.is_ok_and(|quorum| quorum.voters.iter().any(|voter| voter.id.0 == joins)) {
                    break;
                }
            }
            let said = self.remove(&asking, leaves, Which::Newest).await;
            self.signal(&others, "CONT").await?;
            said
        };
        let (first, second) = futures::join!(self.add(&adding, joins, Which::Newest), second);
        let second = second?;
        ensure!(first? == Outcome::Done, "the first of two changes was not made");
        Ok(second)
    }

    async fn describe(&self) -> Option<Description> {
        if self.running.is_empty() {
            return None;
        }
        let admin = self.admin();
        let quorum = admin.describe_quorum().await.ok()?;
        let features = admin.features().await.ok()?;
        let now = clock(&quorum)?;
        let member = |replica: &ReplicaState| self.member(replica, now);
        let observers = quorum.observers.iter().map(member);
        Some(Description {
            voters: quorum.voters.iter().map(member).collect(),
            observers: observers.filter(|(_, _, is_alive)| *is_alive).collect(),
            is_dynamic: features.finalized.get("kraft.version").is_some_and(|level| *level > 0),
        })
    }

    fn member(&self, replica: &ReplicaState, now: i64) -> Member {
        let node = replica.id.0;
        let directory = replica.directory.and_then(|directory| directory.to_string().parse().ok());
        let which = directory.and_then(|directory| self.disks.position(node, directory));
        let alive = i64::try_from(ALIVE).unwrap_or(i64::MAX);
        (node, which, replica.last_caught_up.is_some_and(|then| then > 0 && now - then < alive))
    }
}

/// The leader's clock: of itself it says that it has everything now.
fn clock(quorum: &Quorum) -> Option<i64> {
    let all = quorum.voters.iter().chain(&quorum.observers);
    all.filter(|replica| replica.id == quorum.leader).filter_map(|replica| replica.last_caught_up).max()
}

fn outcome(asked: Result<(), Error>) -> Result<Outcome> {
    Ok(match asked {
        Ok(()) => Outcome::Done,
        Err(Error::Kafka { code: ErrorCode::DuplicateVoter, .. }) => Outcome::Duplicate,
        Err(Error::Kafka { code: ErrorCode::VoterNotFound, .. }) => Outcome::NotFound,
        Err(Error::Kafka { code: ErrorCode::RequestTimedOut, .. }) => Outcome::TimedOut,
        Err(Error::Kafka { code: ErrorCode::UnsupportedVersion, .. }) => Outcome::Static,
        Err(error) => return Err(error.into()),
    })
}
