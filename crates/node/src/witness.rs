//! Asking the others, before an empty disk becomes that of a first voter, whether this node was there before.
//!
//! The operator says that a node forms the quorum until it has seen the node in it. A disk that is lost before the operator
//! could say otherwise would be formatted under its old directory id, and vote with nothing on it. The other controllers know
//! better than the node's settings: their leader was asked for records from that very directory, and a controller that was
//! there is registered with its cluster, which outlives every leader.
//!
//! Where a quorum is being formed nobody may be kept waiting: who gets no answer goes on at once. Only a node of which others
//! say that it was there waits, until they have a leader. If they find none, the settings are right after all: then a person
//! may be giving this node its vote back, so that there can be one.

use std::time::Duration;

use karst_kafka::{Admin, Bootstrap, ControllersDescription, DirectoryId, NodeId, Quorum};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::config::NodeConfig;
use crate::line::Line;

/// By then a question is answered, or no answer is awaited. Where nobody listens that is known at once.
const DEADLINE: Duration = Duration::from_millis(750);
/// Part of the deadline that a single connection may use.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// How often those who have no leader are asked.
const PERIOD: Duration = Duration::from_millis(250);
/// For so long others may elect a leader: several times as long as it takes them.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether the others know that this node was there, so that its disk must have been lost.
pub(crate) async fn was_there(config: &NodeConfig, directory: DirectoryId) -> bool {
    if config.controllers.is_empty() {
        return false;
    }
    let bootstrap = Bootstrap::Controllers(config.controllers.clone());
    // A node shows the same certificate everywhere inside.
    let line = Line::new(bootstrap, &config.own_listener, CONNECT_TIMEOUT, DEADLINE);
    let mut doubt = Doubt::new(config, directory);
    let began = Instant::now();
    loop {
        let said = match line.admin() {
            Ok(admin) => ask(&admin).await,
            Err(error) => {
                warn!("the quorum cannot be asked whether it has seen this node: {error}; going on without");
                return false;
            }
        };
        match doubt.hear(said.as_ref()) {
            Some(verdict) => return verdict,
            None if began.elapsed() >= PATIENCE => {
                warn!(
                    "this node was there before, and the other controllers have no leader; going on as the settings say"
                );
                return false;
            }
            None => sleep(PERIOD).await,
        }
    }
}

/// What controllers say.
#[derive(Debug)]
struct Said {
    controllers: ControllersDescription,
    /// What their leader says, if they have one.
    quorum: Option<Quorum>,
}

async fn ask(admin: &Admin) -> Option<Said> {
    match admin.describe_controllers().await {
        Ok(controllers) => Some(Said { controllers, quorum: admin.describe_quorum().await.ok() }),
        Err(error) => {
            info!("no controller says whether this node was there before: {error}");
            None
        }
    }
}

/// What has been heard of a node that is to be a first voter.
#[derive(Debug)]
struct Doubt<'a> {
    node: NodeId,
    cluster_id: Option<&'a str>,
    directory: DirectoryId,
    is_registered: bool,
}

impl<'a> Doubt<'a> {
    fn new(config: &'a NodeConfig, directory: DirectoryId) -> Self {
        let cluster_id = config.cluster_id.as_deref();
        Self { node: config.node_id, cluster_id, directory, is_registered: false }
    }

    /// Whether the node was there; `None` when only a leader can tell, and there is none. What was heard once stays true: others
    /// that are busy electing may not answer the next time.
    fn hear(&mut self, said: Option<&Said>) -> Option<bool> {
        self.is_registered |= said.is_some_and(|said| self.is_named_by(&said.controllers));
        match said.and_then(|said| said.quorum.as_ref()) {
            Some(quorum) => Some(self.is_registered || quorum.has_seen(self.node, self.directory)),
            None if self.is_registered => None,
            None => Some(false),
        }
    }

    /// Names are used again: a cluster of the same name that is on its way out may answer too.
    fn is_named_by(&self, cluster: &ControllersDescription) -> bool {
        let is_registered = cluster.controllers.iter().any(|controller| controller.id == self.node);
        self.cluster_id == Some(cluster.cluster_id.as_str())
            && (is_registered || cluster.leader == Some(self.node))
    }
}

#[cfg(test)]
mod tests;
