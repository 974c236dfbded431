//! The lines to Kafka clusters: one client for the controllers of each, and one for its brokers, kept between passes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use karst_certs::Kind;
use karst_core::certificates;
use karst_core::config::{CONTROLLER_LISTENER, REPLICATION_PORT};
use karst_core::membership::Change;
use karst_core::names::{ClusterKey, operator_secret};
use karst_core::quorum::CONTROLLER_PORT;
use karst_core::world::World;
use karst_kafka::{
    Admin, Bootstrap, ClientConfig, DirectoryId, Endpoint, Error, ErrorCode, Identity, InvalidTls, Listener,
    NodeId, Security, TlsConfig,
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
    /// The Secrets that it was made from, each with its version.
    made_from: Vec<String>,
    admin: Arc<Admin>,
}

/// Why there is nobody to ask with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unable {
    #[error("the operator has no certificate to show yet")]
    NoCertificate,
    #[error(transparent)]
    Tls(#[from] InvalidTls),
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotChanged {
    #[error(transparent)]
    Unable(#[from] Unable),
    #[error(transparent)]
    Kafka(#[from] Error),
}

/// The clients. One is replaced when its hosts or its certificates change.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    kept: Mutex<HashMap<(ClusterKey, Side), Kept>>,
}

impl Clients {
    /// A client that asks these controllers.
    pub(crate) fn controllers(&self, world: &World, hosts: &[String]) -> Result<Arc<Admin>, Unable> {
        self.get(world, Side::Controllers, hosts)
    }

    /// A client that asks these brokers.
    pub(crate) fn brokers(&self, world: &World, hosts: &[String]) -> Result<Arc<Admin>, Unable> {
        self.get(world, Side::Brokers, hosts)
    }

    fn get(&self, world: &World, side: Side, hosts: &[String]) -> Result<Arc<Admin>, Unable> {
        // The map is whole between any two statements, so a panic elsewhere is no reason to give up on it.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (world.key.clone(), side);
        let made_from = versions(world);
        let is_same = |known: &&Kept| known.hosts == hosts && known.made_from == made_from;
        if let Some(known) = kept.get(&place).filter(is_same) {
            return Ok(Arc::clone(&known.admin));
        }
        let admin = Arc::new(Admin::new(bootstrap(side, hosts), config(tls(world)?)));
        kept.insert(place, Kept { hosts: hosts.to_vec(), made_from, admin: Arc::clone(&admin) });
        Ok(admin)
    }

    /// Makes a change of the quorum.
    pub(crate) async fn change(
        &self,
        world: &World,
        hosts: &[String],
        change: &Change,
    ) -> Result<(), NotChanged> {
        let admin = self.controllers(world, hosts)?;
        Ok(make(&admin, change).await?)
    }

    /// Closes the lines to a cluster that is gone.
    pub(crate) fn forget(&self, key: &ClusterKey) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(known, _), _| known != key);
    }
}

/// Which Secrets, in which state, say whom the operator trusts and who it is.
fn versions(world: &World) -> Vec<String> {
    let cluster = &world.key.name;
    let secrets = [operator_secret(cluster), Kind::Cluster.cert_secret(cluster)];
    let version = |name: &String| {
        let meta = &world.secrets.get(name)?.meta;
        Some(format!("{}/{}", meta.uid, meta.resource_version))
    };
    secrets.iter().filter_map(version).collect()
}

fn tls(world: &World) -> Result<TlsConfig, Unable> {
    let (trust, identity) = certificates::operator_side(world).ok_or(Unable::NoCertificate)?;
    let identity = Identity { chain_pem: &identity.chain, key_pem: &identity.key };
    Ok(TlsConfig::new(trust.as_bytes(), Some(identity))?)
}

fn bootstrap(side: Side, hosts: &[String]) -> Bootstrap {
    let endpoints = |port| hosts.iter().map(|host| Endpoint::new(host, port)).collect();
    match side {
        Side::Controllers => Bootstrap::Controllers(endpoints(CONTROLLER_PORT)),
        Side::Brokers => Bootstrap::Brokers(endpoints(REPLICATION_PORT)),
    }
}

fn config(tls: TlsConfig) -> ClientConfig {
    ClientConfig {
        client_id: "karst-operator".to_owned(),
        connect_timeout: PATIENCE / 2,
        request_timeout: PATIENCE,
        security: Security::Tls(tls),
    }
}

/// That a change was made before is success too: the decision came from what the quorum said.
async fn make(admin: &Admin, change: &Change) -> Result<(), Error> {
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
