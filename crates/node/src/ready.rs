//! Whether the node is useful, by what Kafka itself says.
//!
//! A broker is asked on its own listener, which answers from its own metadata: it stays ready when the controllers lose
//! their leader, because it goes on serving. A controller that is nothing else is useful only while it keeps up with a
//! leader; only the leader knows that, so the question goes there, and no answer means "not ready".
//!
//! Kafka is asked all the time, and a probe hears what was heard last. So probes never pile up on Kafka, and a question may take
//! longer than a probe: where DNS is slow the first answer comes late, and those after it come over the same connection.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use karst_kafka::{Bootstrap, ClusterDescription, DirectoryId, Error, NodeId, Quorum, ReplicaState};
use thiserror::Error as ThisError;
use tokio::time::{Instant, sleep, timeout};

use crate::config::NodeConfig;
use crate::line::{Line, LineError};
use crate::storage;

/// By then a question is given up, and another connection tried.
const DEADLINE: Duration = Duration::from_millis(1500);

/// Each question in vain gives the next one twice the time, up to this: for looking up names, mostly.
const LONGEST_DEADLINE: Duration = Duration::from_secs(12);

/// How often a node that is ready is asked.
const PERIOD: Duration = Duration::from_secs(1);

/// How often one is asked that is not: clients wait for it.
const EAGER_PERIOD: Duration = Duration::from_millis(500);

/// For so long a broker that was ready stays ready without an answer. The cluster lets a broker that gives no sign serve for
/// nine seconds by default; one that stalls under load for as long comes back, and clients are not to be sent away meanwhile.
const BROKERS_PATIENCE: Duration = Duration::from_secs(15);

/// A controller that nobody hears of is soon not caught up any more.
const CONTROLLERS_PATIENCE: Duration = Duration::from_secs(3);

/// Why a running Kafka is not useful yet, or not any more.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum NotReady {
    #[error("Kafka has not been asked yet")]
    Unasked,
    #[error("Kafka cannot tell: {0}")]
    Unanswered(String),
    /// Nobody listens: that is no stall.
    #[error("Kafka cannot tell: {0}")]
    Closed(String),
    #[error("Kafka gave no answer within {} ms", .0.as_millis())]
    TooSlow(Duration),
    #[error("broker {0} is not registered with the controllers yet")]
    NotRegistered(NodeId),
    #[error(
        "broker {0} is fenced: it has not caught up with the cluster's metadata, or lost touch with the controllers"
    )]
    Fenced(NodeId),
    #[error("the directory id of this controller cannot be read from {}", .0.display())]
    DirectoryUnknown(PathBuf),
    #[error("leader {leader} does not know controller {node} with directory {directory}")]
    NotInQuorum { node: NodeId, directory: DirectoryId, leader: NodeId },
    #[error("leader {0} has committed nothing in its term yet")]
    NothingCommitted(NodeId),
    #[error("controller {node} has never caught up with leader {leader}")]
    NeverCaughtUp { node: NodeId, leader: NodeId },
    #[error("controller {node} is {} ms behind leader {leader}", behind.as_millis())]
    Behind { node: NodeId, leader: NodeId, behind: Duration },
    #[error("Kafka cannot be asked: {0}")]
    Speechless(String),
}

impl NotReady {
    /// Is it Kafka's own word, and not the want of it?
    pub(crate) fn is_answer(&self) -> bool {
        match self {
            Self::Unasked
            | Self::Unanswered(_)
            | Self::Closed(_)
            | Self::TooSlow(_)
            | Self::DirectoryUnknown(_)
            | Self::Speechless(_) => false,
            Self::NotRegistered(_)
            | Self::Fenced(_)
            | Self::NotInQuorum { .. }
            | Self::NothingCommitted(_)
            | Self::NeverCaughtUp { .. }
            | Self::Behind { .. } => true,
        }
    }
}

impl From<Error> for NotReady {
    fn from(error: Error) -> Self {
        match &error {
            Error::Connect { reason, .. } if reason.kind() == ErrorKind::ConnectionRefused => {
                Self::Closed(error.to_string())
            }
            _ => Self::Unanswered(error.to_string()),
        }
    }
}

impl From<LineError> for NotReady {
    fn from(error: LineError) -> Self {
        Self::Speechless(error.to_string())
    }
}

/// Asks one running Kafka, the node's own.
#[derive(Debug)]
pub struct ReadinessProbe {
    question: Question,
    heard: Mutex<Heard>,
}

#[derive(Debug)]
enum Question {
    Broker { node: NodeId, line: Line },
    Controller { node: NodeId, line: Line, metadata_dir: PathBuf, fetch_timeout: Duration },
}

impl ReadinessProbe {
    #[must_use]
    pub fn new(config: &NodeConfig) -> Self {
        let patience = if config.role.is_broker() { BROKERS_PATIENCE } else { CONTROLLERS_PATIENCE };
        Self { question: Question::new(config), heard: Mutex::new(Heard::nothing(patience)) }
    }

    /// Asks until it is dropped.
    pub async fn keep_asking(&self) {
        let mut deadline = DEADLINE;
        loop {
            let answer = timeout(deadline, self.question.ask()).await;
            let answer = answer.unwrap_or(Err(NotReady::TooSlow(deadline)));
            deadline = next_deadline(deadline, &answer);
            let period = if answer.is_ok() { PERIOD } else { EAGER_PERIOD };
            self.heard().note(answer, Instant::now());
            sleep(period).await;
        }
    }

    /// # Errors
    /// When the node is not ready, which includes that it could not be asked for a while.
    pub fn check(&self) -> Result<(), NotReady> {
        self.heard().verdict(Instant::now())
    }

    /// Has Kafka answered, whatever it said?
    pub(crate) fn has_answered(&self) -> bool {
        self.heard().has_answered
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        // What was heard is whole, so a panic elsewhere is no reason to forget it.
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn next_deadline(deadline: Duration, answer: &Result<(), NotReady>) -> Duration {
    match answer {
        Err(NotReady::TooSlow(_)) => (deadline * 2).min(LONGEST_DEADLINE),
        Err(why) if !why.is_answer() => deadline,
        _ => DEADLINE,
    }
}

/// What Kafka said last, and how long that is good for.
#[derive(Debug)]
struct Heard {
    patience: Duration,
    last: Result<(), NotReady>,
    was_ready: Option<Instant>,
    has_answered: bool,
}

impl Heard {
    fn nothing(patience: Duration) -> Self {
        Self { patience, last: Err(NotReady::Unasked), was_ready: None, has_answered: false }
    }

    fn note(&mut self, answer: Result<(), NotReady>, now: Instant) {
        match &answer {
            Ok(()) => self.was_ready = Some(now),
            // Kafka itself said otherwise, so what it said before is not good for anything any more.
            Err(why) if why.is_answer() => self.was_ready = None,
            Err(NotReady::Closed(_)) => self.was_ready = None,
            Err(_) => {}
        }
        self.has_answered |= answer.as_ref().map_or_else(NotReady::is_answer, |()| true);
        self.last = answer;
    }

    fn verdict(&self, now: Instant) -> Result<(), NotReady> {
        let silence = self.was_ready.map(|at| now.duration_since(at));
        match (&self.last, silence) {
            (_, Some(silence)) if silence < self.patience => Ok(()),
            (Ok(()), silence) => Err(NotReady::TooSlow(silence.unwrap_or_default())),
            (Err(why), _) => Err(why.clone()),
        }
    }
}

impl Question {
    fn new(config: &NodeConfig) -> Self {
        let listener = &config.own_listener;
        let node = config.node_id;
        if config.role.is_broker() {
            return Self::Broker { node, line: Line::to_itself(listener, LONGEST_DEADLINE) };
        }
        // It leads to the leader, so each node has to be known by its own name.
        let own = Bootstrap::Controllers(vec![listener.endpoint.clone()]);
        Self::Controller {
            node,
            line: Line::new(own, listener, LONGEST_DEADLINE, LONGEST_DEADLINE),
            metadata_dir: config.log_dirs.metadata().to_owned(),
            fetch_timeout: config.fetch_timeout,
        }
    }

    async fn ask(&self) -> Result<(), NotReady> {
        match self {
            Self::Broker { node, line } => judge_broker(*node, &line.admin()?.describe_cluster().await?),
            Self::Controller { node, line, metadata_dir, fetch_timeout } => {
                let admin = line.admin()?;
                let directory = storage::directory_id(metadata_dir)
                    .ok_or_else(|| NotReady::DirectoryUnknown(metadata_dir.clone()))?;
                judge_controller(*node, directory, *fetch_timeout, &admin.describe_quorum().await?)
            }
        }
    }
}

/// Before Kafka 4.0 fenced brokers are not listed at all, so there to be listed is to be unfenced.
fn judge_broker(node: NodeId, cluster: &ClusterDescription) -> Result<(), NotReady> {
    match cluster.brokers.iter().find(|broker| broker.id == node) {
        None => Err(NotReady::NotRegistered(node)),
        Some(broker) if broker.fenced => Err(NotReady::Fenced(node)),
        Some(_) => Ok(()),
    }
}

/// Voters and observers alike: a controller that waits to be made a voter is as ready as it can be.
fn judge_controller(
    node: NodeId,
    directory: DirectoryId,
    fetch_timeout: Duration,
    quorum: &Quorum,
) -> Result<(), NotReady> {
    let leader = quorum.leader;
    let own =
        find_replica(quorum, node, directory).ok_or(NotReady::NotInQuorum { node, directory, leader })?;
    if quorum.high_watermark < 0 {
        return Err(NotReady::NothingCommitted(leader));
    }
    if node == leader {
        return Ok(());
    }
    let never = NotReady::NeverCaughtUp { node, leader };
    let leaders_time =
        quorum.voters.iter().find(|voter| voter.id == leader).and_then(|voter| voter.last_caught_up);
    let (Some(leaders_time), Some(own_time)) = (leaders_time, own.last_caught_up) else { return Err(never) };
    let behind = Duration::from_millis(u64::try_from(leaders_time.saturating_sub(own_time)).unwrap_or(0));
    if behind < fetch_timeout { Ok(()) } else { Err(NotReady::Behind { node, leader, behind }) }
}

/// By id and directory: an earlier life of this node may be listed beside it. A static quorum knows no directories.
fn find_replica(quorum: &Quorum, node: NodeId, directory: DirectoryId) -> Option<&ReplicaState> {
    let is_static = quorum.voters.iter().all(|voter| voter.directory.is_none());
    let is_own =
        |replica: &&ReplicaState| replica.id == node && (is_static || replica.directory == Some(directory));
    quorum.voters.iter().chain(&quorum.observers).find(is_own)
}

#[cfg(test)]
mod tests;
