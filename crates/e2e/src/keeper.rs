//! Keeps an operator running that is made to suffer: at each call by which it changes something in Kafka, or every few seconds.
//!
//! The installed operator would be held back by Kubernetes after a few deaths. This one is a process of the test, and begins
//! anew at once.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use karst_core::names::CONTROLLER_ROLE_LABEL;
use kube::ResourceExt;
use kube::api::DeleteParams;
use kube::runtime::watcher::Config;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cluster::{Cluster, condition, warnings};
use crate::crash::Life;
use crate::kafka_call::{Call, REFUSAL};
use crate::kafka_door::{KafkaDoor, Moment, Verdict, When};
use crate::operator::Operator;
use crate::processes;
use crate::story::Scene;
use crate::wait;

/// How soon an operator that hears nothing from Kafka says so.
const NOTICING: Duration = Duration::from_secs(40);

/// What is done to the operator, or to Kafka.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mischief {
    /// The operator is killed, at each call before Kafka gets it, and again after Kafka has carried it out.
    OperatorDies,
    /// The leader of the controllers is killed, at the same moments.
    LeaderDies,
    /// The operator is cut off from Kafka for so long, from the same moments on.
    Silence(Duration),
    /// Kafka refuses each unregistration until the operator has said so.
    Refusal,
    /// The operator is killed this often, whatever it does.
    OperatorDiesEvery(Duration),
}

/// What has happened so far.
#[derive(Debug, Default, Clone)]
pub struct Record {
    /// The moments of each call that were used for mischief.
    pub moments: BTreeMap<String, BTreeSet<When>>,
    /// The pods that were killed.
    pub killed: BTreeSet<String>,
    /// How many operators there were.
    pub lives: usize,
}

impl Record {
    /// How many calls of this kind there were, each of them met before and after Kafka carried it out.
    pub fn met(&self, api: &str) -> usize {
        let whole = |(call, when): &(&String, &BTreeSet<When>)| {
            call.split(' ').next() == Some(api) && when.len() == 2
        };
        self.moments.iter().filter(whole).count()
    }
}

/// Keeps the operator.
#[derive(Debug)]
pub struct Keeper {
    record: Arc<Mutex<Record>>,
    door: Arc<KafkaDoor>,
    acting: Arc<tokio::sync::Mutex<()>>,
    /// A story that fails does not end the keeper.
    stop: DropGuard,
    task: JoinHandle<Result<()>>,
}

impl Keeper {
    /// Takes a cluster over from the installed operator.
    pub async fn take_over(cluster: &Cluster<'_>, mischief: Mischief) -> Result<Self> {
        let scene = cluster.scene;
        Operator::installed(&scene.client).scale(0).await?;
        let (door, moments) = KafkaDoor::open(cluster).await?;
        let (door, record, acting) = (Arc::new(door), Arc::default(), Arc::default());
        let stop = CancellationToken::new();
        let work = Work {
            scene: scene.clone(),
            cluster: cluster.name.clone(),
            mischief,
            door: Arc::clone(&door),
            record: Arc::clone(&record),
            acting: Arc::clone(&acting),
            moments,
            stop: stop.clone(),
        };
        Ok(Self { record, door, acting, stop: stop.drop_guard(), task: tokio::spawn(work.begin()) })
    }

    /// Waits until no mischief is being done.
    pub async fn at_rest(&self) {
        drop(self.acting.lock().await);
    }

    /// What has happened since the record was begun.
    pub fn record(&self) -> Record {
        lock(&self.record).clone()
    }

    /// Begins the record anew: calls that were made before count again.
    pub fn begin_anew(&self) {
        self.door.forget();
        *lock(&self.record) = Record::default();
    }

    /// Ends the mischief, and returns what has happened since the record was begun. The installed operator goes on.
    pub async fn end(self, scene: &Scene) -> Result<Record> {
        self.stop.disarm().cancel();
        self.task.await.context("the keeper of the operator panicked")??;
        let record = lock(&self.record).clone();
        Operator::installed(&scene.client).scale(1).await?;
        Ok(record)
    }
}

fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Work {
    scene: Scene,
    cluster: String,
    mischief: Mischief,
    door: Arc<KafkaDoor>,
    record: Arc<Mutex<Record>>,
    /// Held while mischief is being done.
    acting: Arc<tokio::sync::Mutex<()>>,
    moments: mpsc::Receiver<Moment>,
    stop: CancellationToken,
}

impl Work {
    async fn begin(self) -> Result<()> {
        let scene = self.scene.clone();
        let kept = self.keep().await;
        if let Err(error) = &kept {
            // The story would only see that nothing happens any more.
            scene.step(format!("the keeper of the operator gives up: {error:#}"));
        }
        kept
    }

    async fn keep(mut self) -> Result<()> {
        let mut life = self.new_life().await?;
        loop {
            let next = Instant::now() + self.pace();
            tokio::select! {
                () = self.stop.cancelled() => break,
                () = sleep_until(next) => life = self.replace(life).await?,
                Some(moment) = self.moments.recv() => life = self.act(life, moment).await?,
                ended = life.ended() => return Err(ended),
            }
        }
        self.keep_log(&life.kill().await?)
    }

    /// After how long an operator is killed for no reason.
    fn pace(&self) -> Duration {
        match self.mischief {
            Mischief::OperatorDiesEvery(pace) => pace,
            _ => Duration::from_secs(24 * 3600),
        }
    }

    async fn new_life(&self) -> Result<Life> {
        lock(&self.record).lives += 1;
        Life::begin_behind_the_door(&self.scene).await
    }

    async fn replace(&self, life: Life) -> Result<Life> {
        self.keep_log(&life.kill().await?)?;
        self.new_life().await
    }

    /// What operators logged, life after life: who reads of a failure wants to know.
    fn keep_log(&self, log: &str) -> Result<()> {
        let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/e2e-logs");
        std::fs::create_dir_all(&place)?;
        let path = place.join(format!("{}-operators.log", self.scene.namespace));
        let mut file = std::fs::File::options().create(true).append(true).open(path)?;
        writeln!(file, "{log}----- killed -----")?;
        Ok(())
    }

    async fn act(&self, life: Life, moment: Moment) -> Result<Life> {
        let Moment { call, when, pod, verdict } = moment;
        let _acting = self.acting.lock().await;
        self.scene.step(format!("  {when:?} {call}"));
        lock(&self.record).moments.entry(call.to_string()).or_default().insert(when);
        if self.mischief == Mischief::Refusal {
            self.refuse(&call, when, verdict).await?;
            return Ok(life);
        }
        let mut life = life;
        let decided = match self.mischief {
            Mischief::OperatorDies => {
                life = self.replace(life).await?;
                Verdict::Lose
            }
            Mischief::LeaderDies => {
                self.kill_leader(&pod).await?;
                Verdict::Pass
            }
            Mischief::Silence(length) => {
                self.be_silent(length, &call, when).await?;
                Verdict::Lose
            }
            Mischief::Refusal | Mischief::OperatorDiesEvery(_) => Verdict::Pass,
        };
        // Whoever waited for it may be gone.
        let _ = verdict.send(decided);
        Ok(life)
    }

    /// The controller that was asked is the leader. A broker that was asked passes it on, to whom the status tells.
    async fn kill_leader(&self, asked: &str) -> Result<()> {
        let pods = self.scene.api::<Pod>();
        let cluster = Cluster::named(&self.scene, &self.cluster);
        let leader =
            cluster.status().await?.quorum.and_then(|quorum| quorum.leader).context("nobody leads")?;
        let ends = format!("-{leader}");
        let all = pods.list(&cluster.listed()).await?;
        let is_controller =
            |pod: &&Pod| pod.labels().get(CONTROLLER_ROLE_LABEL).is_some_and(|role| role == "true");
        let found = all.iter().filter(is_controller).find(|pod| pod.name_any() == asked);
        let found = found.or_else(|| all.iter().find(|pod| pod.name_any().ends_with(&ends)));
        let pod = found.with_context(|| format!("no pod runs the leader, node {leader}"))?;
        let name = pod.name_any();
        self.scene.step(format!("  killing {name}, which leads"));
        processes::kill_kafka(pod)?;
        // A container that dies a second time would be kept waiting. Its pod goes, and comes again.
        pods.delete(&name, &DeleteParams::default().grace_period(0)).await?;
        lock(&self.record).killed.insert(name);
        Ok(())
    }

    /// Refuses, however often it is tried, until a warning says so and an event does. Nothing else may suffer from it.
    async fn refuse(&self, call: &Call, when: When, verdict: oneshot::Sender<Verdict>) -> Result<()> {
        self.door.refuse(when == When::Before);
        let _ = verdict.send(Verdict::Pass);
        if when == When::After {
            return Ok(());
        }
        let cluster = Cluster::named(&self.scene, &self.cluster);
        let node = format!("broker {}", call.subject);
        cluster
            .until_status("a warning of the refusal", NOTICING, |_, status| {
                let said = warnings(status.conditions.as_ref());
                said.iter().any(|one| one.contains(&node) && one.contains(REFUSAL)).then_some(())
            })
            .await?;
        let what = format!("an event that {node} is refused");
        wait::until(self.scene.api::<Event>(), Config::default(), &what, NOTICING, |events| {
            let told = |event: &Event| {
                event.note.as_ref().is_some_and(|note| note.contains(&node) && note.contains(REFUSAL))
            };
            events.values().any(told).then_some(())
        })
        .await?;
        self.door.refuse(false);
        Ok(())
    }

    /// Cuts the operator off, and does not let go before it has said why it does nothing.
    async fn be_silent(&self, length: Duration, call: &Call, when: When) -> Result<()> {
        let until = Instant::now() + length;
        self.door.shut(true);
        let cluster = Cluster::named(&self.scene, &self.cluster);
        let said = cluster
            .until_status("a quorum that cannot be heard", NOTICING, |_, status| {
                let healthy = condition(status, "QuorumHealthy")?;
                (healthy.status.as_deref() == Some("False"))
                    .then(|| healthy.message.clone().unwrap_or_default())
            })
            .await;
        let said = said.with_context(|| format!("cut off {when:?} {call}"));
        sleep_until(until).await;
        self.door.shut(false);
        let said = said?;
        ensure!(!said.is_empty(), "cut off {when:?} {call}, and it does not say why");
        Ok(())
    }
}
