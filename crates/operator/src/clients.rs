//! The lines to Kafka clusters: one client for the controllers of each, and one for its brokers, kept between passes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use karst_core::config::{CONTROLLER_LISTENER, REPLICATION_PORT};
use karst_core::membership::{Change, Voter};
use karst_core::names::ClusterKey;
use karst_core::plan::Deed;
use karst_core::quorum::CONTROLLER_PORT;
use karst_kafka::{
    Admin, Bootstrap, ClientConfig, DirectoryId, Endpoint, Error, ErrorCode, FeatureUpdate, Intent, Listener,
    NodeId, Refusal, UpdateKind,
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

/// Why Kafka did not make a change.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unchanged {
    /// It did not answer, or refused as a whole.
    #[error(transparent)]
    Kafka(#[from] Error),
    /// It refused this.
    #[error("Kafka refused: {0}")]
    Refused(#[from] Refusal),
}

/// Does what was decided. That it was done before is success too: the decision came from what Kafka said.
pub(crate) async fn do_it(admin: &Admin, deed: &Deed) -> Result<(), Unchanged> {
    let outcome = match deed {
        Deed::Change(Change::Join { voter, host }) => {
            let endpoint = Endpoint::new(host, CONTROLLER_PORT);
            let listener = Listener { name: CONTROLLER_LISTENER.to_owned(), endpoint };
            // Neither of the two types can hold a zero id.
            let Some(directory) = directory(voter) else { return Ok(()) };
            admin.add_voter(NodeId(voter.node.0), directory, &[listener]).await
        }
        Deed::Change(Change::Leave { voter, .. }) => {
            let Some(directory) = directory(voter) else { return Ok(()) };
            admin.remove_voter(NodeId(voter.node.0), directory).await
        }
        Deed::Change(Change::MakeDynamic) => {
            return set_feature(admin, "kraft.version", 1, UpdateKind::Upgrade).await;
        }
        Deed::Metadata(change) => {
            let kind = if change.is_downgrade { UpdateKind::SafeDowngrade } else { UpdateKind::Upgrade };
            return set_feature(admin, "metadata.version", change.level, kind).await;
        }
        Deed::Unregister(node) => admin.unregister_broker(NodeId(node.0)).await,
    };
    match outcome {
        Err(Error::Kafka { code, .. }) if is_done_before(code) => Ok(()),
        outcome => Ok(outcome?),
    }
}

fn is_done_before(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::DuplicateVoter | ErrorCode::VoterNotFound | ErrorCode::BrokerIdNotRegistered)
}

fn directory(voter: &Voter) -> Option<DirectoryId> {
    DirectoryId::from_bytes(voter.directory.to_bytes())
}

/// Brings a feature of the cluster to a level.
async fn set_feature(admin: &Admin, name: &str, level: i16, kind: UpdateKind) -> Result<(), Unchanged> {
    let update = FeatureUpdate { name: name.to_owned(), level, kind };
    for (_, outcome) in admin.update_features(&[update], Intent::Apply).await? {
        outcome?;
    }
    Ok(())
}
