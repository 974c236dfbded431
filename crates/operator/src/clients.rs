//! The lines to Kafka clusters: one client for the controllers of each, and one for its brokers, kept between passes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use karst_core::config::{CONTROLLER_LISTENER, REPLICATION_PORT};
use karst_core::membership::Change;
use karst_core::names::ClusterKey;
use karst_core::quorum::CONTROLLER_PORT;
use karst_kafka::{
    Admin, Bootstrap, ClientConfig, DirectoryId, Endpoint, Error, ErrorCode, Listener, NodeId,
};

/// How long Kafka may take to answer. A pass does not wait longer: no answer is an answer too.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whom a client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Side {
    Controllers,
    Brokers,
}

#[derive(Debug)]
struct Kept {
    hosts: Vec<String>,
    admin: Arc<Admin>,
}

/// The clients. One is replaced when its hosts change.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    kept: Mutex<HashMap<(ClusterKey, Side), Kept>>,
}

impl Clients {
    /// A client that asks these controllers.
    pub(crate) fn controllers(&self, key: &ClusterKey, hosts: &[String]) -> Arc<Admin> {
        self.get(key, Side::Controllers, hosts)
    }

    /// A client that asks these brokers.
    pub(crate) fn brokers(&self, key: &ClusterKey, hosts: &[String]) -> Arc<Admin> {
        self.get(key, Side::Brokers, hosts)
    }

    fn get(&self, key: &ClusterKey, side: Side, hosts: &[String]) -> Arc<Admin> {
        // The map is whole between any two statements, so a panic elsewhere is no reason to give up on it.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (key.clone(), side);
        if let Some(known) = kept.get(&place).filter(|known| known.hosts == hosts) {
            return Arc::clone(&known.admin);
        }
        let admin = Arc::new(Admin::new(bootstrap(side, hosts), config()));
        kept.insert(place, Kept { hosts: hosts.to_vec(), admin: Arc::clone(&admin) });
        admin
    }

    /// Closes the lines to a cluster that is gone.
    pub(crate) fn forget(&self, key: &ClusterKey) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(known, _), _| known != key);
    }
}

fn bootstrap(side: Side, hosts: &[String]) -> Bootstrap {
    let endpoints = |port| hosts.iter().map(|host| Endpoint::new(host, port)).collect();
    match side {
        Side::Controllers => Bootstrap::Controllers(endpoints(CONTROLLER_PORT)),
        Side::Brokers => Bootstrap::Brokers(endpoints(REPLICATION_PORT)),
    }
}

fn config() -> ClientConfig {
    ClientConfig {
        client_id: "karst-operator".to_owned(),
        connect_timeout: PATIENCE / 2,
        request_timeout: PATIENCE,
        ..ClientConfig::default()
    }
}

/// Makes a change of the quorum. That it was made before is success too: the decision came from what the quorum said.
pub(crate) async fn change(admin: &Admin, change: &Change) -> Result<(), Error> {
    let (Change::Join { voter, .. } | Change::Leave { voter, .. }) = change;
    let node = NodeId(voter.node.0);
    // Neither of the two types can hold a zero id.
    let Some(directory) = DirectoryId::from_bytes(voter.directory.to_bytes()) else { return Ok(()) };
    let outcome = match change {
        Change::Join { host, .. } => {
            let endpoint = Endpoint::new(host, CONTROLLER_PORT);
            let listener = Listener { name: CONTROLLER_LISTENER.to_owned(), endpoint };
            admin.add_voter(node, directory, &[listener]).await
        }
        Change::Leave { .. } => admin.remove_voter(node, directory).await,
    };
    match outcome {
        Err(Error::Kafka { code: ErrorCode::DuplicateVoter | ErrorCode::VoterNotFound, .. }) => Ok(()),
        outcome => outcome,
    }
}
