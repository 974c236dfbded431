//! Whether the node is useful, by what Kafka itself says.
//!
//! A broker is asked on its own listener, which answers from its own metadata: it stays ready when the controllers lose
//! their leader, because it goes on serving. A controller that is nothing else is useful only while it keeps up with a
//! leader; only the leader knows that, so the question goes there, and no answer means "not ready".

use std::path::PathBuf;
use std::time::Duration;

use karst_kafka::{Bootstrap, ClusterDescription, DirectoryId, Error, NodeId, Quorum, ReplicaState};
use thiserror::Error as ThisError;
use tokio::time::timeout;

use crate::cached::Cached;
use crate::config::NodeConfig;
use crate::line::{Line, LineError};
use crate::storage;

/// A probe that gets no answer by then gets "not ready". Kubelet's own patience is longer.
const DEADLINE: Duration = Duration::from_millis(1500);

/// Part of the deadline that a single connection may use.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(700);

/// For so long the last answer is given again, so that probes cannot pile up on Kafka.
const FRESH_FOR: Duration = Duration::from_millis(500);

/// Why a running Kafka is not useful yet, or not any more.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum NotReady {
    #[error("Kafka cannot tell: {0}")]
    Unanswered(String),
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
            Self::Unanswered(_) | Self::TooSlow(_) | Self::DirectoryUnknown(_) | Self::Speechless(_) => false,
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
        Self::Unanswered(error.to_string())
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
    last: Cached<Result<(), NotReady>>,
}

#[derive(Debug)]
enum Question {
    Broker { node: NodeId, line: Line },
    Controller { node: NodeId, line: Line, metadata_dir: PathBuf, fetch_timeout: Duration },
}

impl ReadinessProbe {
    #[must_use]
    pub fn new(config: &NodeConfig) -> Self {
        Self { question: Question::new(config), last: Cached::new(FRESH_FOR) }
    }

    /// # Errors
    /// When the node is not ready, which includes that it could not be asked.
    pub async fn check(&self) -> Result<(), NotReady> {
        let ask = || async {
            let answer = timeout(DEADLINE, self.question.ask()).await;
            answer.unwrap_or(Err(NotReady::TooSlow(DEADLINE)))
        };
        self.last.get_or_renew(ask).await
    }
}

impl Question {
    fn new(config: &NodeConfig) -> Self {
        let listener = &config.own_listener;
        let line = |bootstrap| Line::new(bootstrap, listener, CONNECT_TIMEOUT, DEADLINE);
        let own = vec![listener.endpoint.clone()];
        let node = config.node_id;
        if config.role.is_broker() {
            return Self::Broker { node, line: line(Bootstrap::Brokers(own)) };
        }
        Self::Controller {
            node,
            line: line(Bootstrap::Controllers(own)),
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
