//! The lines to Kafka clusters: one client for the controllers of each, and one for its brokers, kept between passes.
//!
//! The brokers' client is kept for all brokers that serve. Whoever wants to ask only some of them gets a client that shares its
//! connections: what is asked of few takes no place away from what is asked of all, and leaves no connection behind.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use karst_certs::Kind;
use karst_core::certificates;
use karst_core::config::{CONTROLLER_LISTENER, REPLICATION_PORT};
use karst_core::dynamic::SettingChange;
use karst_core::membership::{Change, Voter};
use karst_core::names::{ClusterKey, operator_secret, trust_secret};
use karst_core::plan::Deed;
use karst_core::quorum::CONTROLLER_PORT;
use karst_core::world::{Reference, World};
use karst_kafka::{
    Admin, Bootstrap, ClientConfig, ConfigChange, ConfigResource, DirectoryId, Endpoint, Error, ErrorCode,
    FeatureUpdate, Hosts, Identity, Intent, InvalidTls, Listener, NodeId, Refusal, Security, TlsConfig,
    UpdateKind,
};
use tokio::time::Instant;

/// How long Kafka may take to answer. A pass does not wait longer: no answer is an answer too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// How long a connection is kept that nobody uses. A cluster is looked at every ten seconds, over few of its connections.
const IDLE: Duration = Duration::from_secs(45);

fn close(admins: &[Arc<Admin>], not_used_since: Instant) {
    admins.iter().for_each(|admin| admin.close_idle(not_used_since));
}

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

/// The clients. One is replaced when its hosts or its certificates change.
#[derive(Debug)]
pub(crate) struct Clients {
    kept: Mutex<HashMap<(ClusterKey, Side), Kept>>,
    /// How many connections there may be.
    most: usize,
}

impl Clients {
    pub(crate) fn new(most: usize) -> Self {
        Self { kept: Mutex::default(), most }
    }

    /// A client that asks these controllers.
    pub(crate) fn controllers(&self, world: &World, hosts: &[String]) -> Result<Arc<Admin>, Unable> {
        self.get(world, Side::Controllers, hosts)
    }

    /// A client that asks these brokers. The question goes to no other, but for what only a broker itself can tell.
    pub(crate) fn brokers(&self, world: &World, hosts: &[String]) -> Result<Arc<Admin>, Unable> {
        let serving = world.serving_brokers();
        let all = self.get(world, Side::Brokers, &serving)?;
        if serving == hosts {
            return Ok(all);
        }
        Ok(Arc::new(all.starting_from(bootstrap(Side::Brokers, hosts))))
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
        let admin = Arc::new(Admin::new(bootstrap(side, hosts), config(tls(world)?, own_hosts(world))));
        kept.insert(place, Kept { hosts: hosts.to_vec(), made_from, admin: Arc::clone(&admin) });
        Ok(admin)
    }

    /// Lets Kafka do something.
    pub(crate) async fn do_it(&self, world: &World, deed: &Deed) -> Result<(), Unchanged> {
        let admin = match deed {
            // Only brokers check what they are told.
            Deed::Configure(_) => self.brokers(world, &world.serving_brokers())?,
            _ => self.controllers(world, &world.serving_controllers())?,
        };
        let cluster_id = world.kafka.status.as_ref().and_then(|status| status.cluster_id.as_deref());
        do_it(&admin, cluster_id, deed).await
    }

    /// Closes connections that were not used for a while; and more, those used longest ago first, when there are too many.
    pub(crate) fn close_idle(&self) {
        let admins: Vec<_> = {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.values().map(|known| Arc::clone(&known.admin)).collect()
        };
        let idle_since = Instant::now().checked_sub(IDLE);
        idle_since.into_iter().for_each(|since| close(&admins, since));
        let mut used: Vec<_> = admins.iter().flat_map(|admin| admin.connections()).collect();
        if used.len() > self.most {
            used.sort_unstable();
            let last_to_go = used[used.len() - self.most - 1];
            tracing::debug!(open = used.len(), most = self.most, "too many connections to Kafka");
            close(&admins, last_to_go);
        }
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
    let secrets = [operator_secret(cluster), trust_secret(cluster), Kind::Cluster.cert_secret(cluster)];
    let version = |name: &String| {
        let meta = &world.secrets.get(name)?.meta;
        Some(format!("{}/{}", meta.uid, meta.resource_version))
    };
    // What a node shows counts from when it was read.
    let read = world.referenced.iter().filter(|(_, secret)| matches!(secret, Reference::Found(_)));
    let names = secrets.iter().chain(read.map(|(name, _)| name));
    names.filter_map(version).collect()
}

fn tls(world: &World) -> Result<TlsConfig, Unable> {
    let side = certificates::operator_side(world).ok_or(Unable::NoCertificate)?;
    let identity = Identity { chain_pem: side.chain, key_pem: side.key };
    Ok(TlsConfig::new(side.trust.as_bytes(), Some(identity))?)
}

fn bootstrap(side: Side, hosts: &[String]) -> Bootstrap {
    let endpoints = |port| hosts.iter().map(|host| Endpoint::new(host, port)).collect();
    match side {
        Side::Controllers => Bootstrap::Controllers(endpoints(CONTROLLER_PORT)),
        Side::Brokers => Bootstrap::Brokers(endpoints(REPLICATION_PORT)),
    }
}

/// The hosts of the cluster's pods. Kafka says where its nodes are, but a node that somebody took over may say anything.
pub(crate) fn own_hosts(world: &World) -> Hosts {
    Hosts::Below(world.key.host_domain(&world.settings.cluster_domain))
}

fn config(tls: TlsConfig, hosts: Hosts) -> ClientConfig {
    ClientConfig {
        client_id: "karst-operator".to_owned(),
        connect_timeout: PATIENCE / 2,
        request_timeout: PATIENCE,
        security: Security::Tls(tls),
        hosts,
    }
}

/// Why Kafka did not make a change.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unchanged {
    /// There is nobody to ask with.
    #[error(transparent)]
    Unable(#[from] Unable),
    /// It did not answer, or refused as a whole.
    #[error(transparent)]
    Kafka(#[from] Error),
    /// It refused this.
    #[error("Kafka refused: {0}")]
    Refused(#[from] Refusal),
    /// It took too long. It may have happened all the same.
    #[error("Kafka did not say so within {} s", .0.as_secs())]
    Late(Duration),
}

/// Does what was decided. That it was done before is success too: the decision came from what Kafka said.
async fn do_it(admin: &Admin, cluster_id: Option<&str>, deed: &Deed) -> Result<(), Unchanged> {
    let outcome = match deed {
        Deed::Change(Change::Join { voter, host }) => {
            let endpoint = Endpoint::new(host, CONTROLLER_PORT);
            let listener = Listener { name: CONTROLLER_LISTENER.to_owned(), endpoint };
            // Neither of the two types can hold a zero id.
            let Some(directory) = directory(voter) else { return Ok(()) };
            admin.add_voter(cluster_id, NodeId(voter.node.0), directory, &[listener]).await
        }
        Deed::Change(Change::Leave { voter, .. }) => {
            let Some(directory) = directory(voter) else { return Ok(()) };
            admin.remove_voter(cluster_id, NodeId(voter.node.0), directory).await
        }
        Deed::Change(Change::MakeDynamic) => {
            return set_feature(admin, "kraft.version", 1, UpdateKind::Upgrade).await;
        }
        Deed::Metadata(change) => {
            let kind = if change.is_downgrade { UpdateKind::SafeDowngrade } else { UpdateKind::Upgrade };
            return set_feature(admin, "metadata.version", change.level, kind).await;
        }
        Deed::Unregister(node) => admin.unregister_broker(NodeId(node.0)).await,
        Deed::Configure(change) => return configure(admin, change).await,
    };
    match outcome {
        Err(Error::Kafka { code, .. }) if is_done_before(code) => Ok(()),
        outcome => Ok(outcome?),
    }
}

/// Tells Kafka about a setting, so that nodes take it while they run.
async fn configure(admin: &Admin, change: &SettingChange) -> Result<(), Unchanged> {
    let resource = match change.node {
        Some(node) => ConfigResource::Broker(NodeId(node.0)),
        None => ConfigResource::BrokerDefaults,
    };
    let entry = match &change.value {
        Some(value) => ConfigChange::set(&change.key, value.trim()),
        None => ConfigChange::delete(&change.key),
    };
    Ok(admin.incremental_alter_configs(resource, &[entry], Intent::Apply).await?)
}

/// Not so for a voter that is there already: it may be the one with the disk that was lost. Who really votes is seen next.
fn is_done_before(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::VoterNotFound | ErrorCode::BrokerIdNotRegistered)
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
