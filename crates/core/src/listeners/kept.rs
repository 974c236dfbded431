//! What brokers serve now, and which of it stays until what is asked for can take its place.
//!
//! A certificate that cannot be used, a Secret that comes later and a load balancer without an address are no reason to close
//! a port that clients use. Only two things are kept: which certificate a listener shows, and where clients are sent. Who gets in
//! (encryption, authentication) is always as asked: a cluster is never more open than that.
//!
//! The services by which clients come in stay for the same reason until no broker sends clients there any more: brokers restart one
//! after the other, and when one of them has to wait, for as long as that lasts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karst_api::bounds;

use super::address::{Advertised, NODE_IP, NODE_NAME, Served};
use super::{ClientListener, Reach, address, template};
use crate::authorization;
use crate::cluster::{Cluster, Node};
use crate::config::{self, LISTENERS_DIR};
use crate::ids::NodeId;
use crate::names::{ClusterKey, LISTENER_LABEL, POOL_LABEL, node_of_pod};
use crate::own_certificates;
use crate::world::{PodView, ServiceView, World};

/// More listeners than a cluster can have are none of ours, whatever a ConfigMap says.
const MOST_LISTENERS: usize = bounds::LISTENERS as usize;
/// A name, and an address in DNS.
const LONGEST_LISTENER: usize = 1_000;
/// All super users together.
const LONGEST_USERS: usize = 256 << 10;

/// Which certificate a listener shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// The broker's own, signed by the cluster CA.
    OfBroker,
    /// One that the user brought.
    OfUser,
}

/// A listener for clients, as the settings of a broker have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Before {
    /// As Kafka names it.
    name: String,
    /// What the broker tells its clients.
    advertised: Advertised,
    /// What it shows them; nothing, without encryption.
    shown: Option<Shown>,
}

/// What the settings of a node, as they were written last, say about clients.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Serving {
    listeners: Vec<Before>,
    /// Who may do everything, as Kafka reads it.
    super_users: Option<Arc<str>>,
}

impl Serving {
    /// Reads `server.config`. `keep` makes the copy that stays.
    pub fn read(server_config: &str, keep: impl Fn(&str) -> Arc<str>) -> Self {
        let mut wanted = BTreeMap::new();
        for line in server_config.lines() {
            let Some((key, value)) = line.split_once('=') else { continue };
            if config::tells_of_clients(key) {
                wanted.insert(key, value);
            }
        }
        let advertised = wanted.get(config::ADVERTISED).copied().unwrap_or_default();
        let listeners = advertised.split(',').filter_map(|one| {
            let (name, address) = one.split_once("://")?;
            if config::is_inside(name) {
                return None;
            }
            let keystore = wanted.get(config::keystore_setting(name).as_str());
            let shown = keystore.map(|at| match at.starts_with(LISTENERS_DIR) {
                true => Shown::OfUser,
                false => Shown::OfBroker,
            });
            if one.len() > LONGEST_LISTENER {
                return None;
            }
            Some(Before { name: name.to_owned(), advertised: address.parse().ok()?, shown })
        });
        let users = wanted.get(authorization::SUPER_USERS).filter(|users| users.len() <= LONGEST_USERS);
        let super_users = users.map(|users| keep(users));
        Self { listeners: listeners.take(MOST_LISTENERS).collect(), super_users }
    }

    /// The listeners, as Kafka names them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.listeners.iter().map(|one| one.name.as_str())
    }

    fn find(&self, listener: &ClientListener) -> Option<&Before> {
        let name = listener.kafka_name();
        self.listeners.iter().find(|one| one.name == name)
    }

    /// Who may do everything, as Kafka reads it.
    pub(crate) fn super_users(&self) -> Option<&str> {
        self.super_users.as_deref()
    }

    /// In the order that the broker has them in. A restart for another order would be for nothing.
    pub(super) fn order(&self, served: &mut [Served<'_>]) {
        let place = |one: &Served<'_>| {
            let name = one.listener.kafka_name();
            self.listeners.iter().position(|before| before.name == name).unwrap_or(usize::MAX)
        };
        served.sort_by_cached_key(place);
    }

    /// Is it just this that is served, in whatever order?
    pub(super) fn is(&self, served: &[Served<'_>]) -> bool {
        let is_before = |one: &Served<'_>| {
            self.find(one.listener)
                .is_some_and(|before| before.advertised == one.advertised && before.shown == one.shown)
        };
        self.listeners.len() == served.len() && served.iter().all(is_before)
    }
}

/// What a node's settings say, when it has some.
pub(super) fn of<'a>(world: &'a World, cluster: &Cluster, node: Node<'_>) -> Option<&'a Serving> {
    world.config_maps.get(&cluster.pod_name(node)).map(|map| &map.serving)
}

fn before<'a>(
    world: &'a World,
    cluster: &Cluster,
    listener: &ClientListener,
    node: Node<'_>,
) -> Option<&'a Before> {
    of(world, cluster, node)?.find(listener)
}

/// How a listener is served until it can be as asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    /// It shows the brokers' own certificates: that of the user cannot be used.
    pub(crate) shows_brokers: bool,
    /// It is reached in this way: the new one has no addresses.
    pub(crate) reach: Option<Reach>,
}

/// The listeners that are kept otherwise than asked for, by name.
pub(crate) fn all(world: &World, cluster: &Cluster) -> BTreeMap<String, Kept> {
    let kept = cluster.listeners.iter().filter_map(|listener| {
        let shows_brokers = listener.own_certificate().is_some()
            && !own_certificates::is_there(world, listener)
            && befores(world, cluster, listener).any(|(_, before)| before.shown == Some(Shown::OfBroker));
        let reach = listener.reach.is_observed().then(|| old_reach(world, cluster, listener)).flatten();
        let kept = Kept { shows_brokers, reach };
        (kept != Kept::default()).then(|| (listener.name.clone(), kept))
    });
    kept.collect()
}

/// What each broker that serves a listener serves it as.
fn befores<'a>(
    world: &'a World,
    cluster: &'a Cluster,
    listener: &'a ClientListener,
) -> impl Iterator<Item = (Node<'a>, &'a Before)> {
    let brokers = cluster.nodes().filter(|node| node.pool.roles.has_broker());
    brokers.filter_map(move |node| Some((node, before(world, cluster, listener, node)?)))
}

/// How brokers that are still reached in another way are reached, while one of them has no new address. They change when all can:
/// clients of either way need every broker.
fn old_reach(world: &World, cluster: &Cluster, listener: &ClientListener) -> Option<Reach> {
    let mut old = None;
    let mut waits = false;
    for (node, before) in befores(world, cluster, listener) {
        let reach = reach_of(&cluster.key, listener, (&node.pool.name, node.id), &before.advertised.host);
        if reach != listener.reach {
            old = old.or(Some(reach));
            waits |= address::advertised(world, cluster, listener, node).is_none();
        }
    }
    old.filter(|_| waits)
}

/// What kind of address this is.
fn reach_of(key: &ClusterKey, listener: &ClientListener, (pool, id): (&str, NodeId), host: &str) -> Reach {
    let is_below = |name: &str| host.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
    let pod = key.pod(pool, id);
    if [NODE_IP, NODE_NAME].contains(&host) {
        Reach::NodePort
    } else if is_below(&format!("{pod}.{}", key.headless_service())) {
        Reach::Internal
    } else if is_below(&format!("{}.{}", key.listener_broker(pool, listener, id), key.namespace)) {
        Reach::ClusterIp
    } else {
        Reach::LoadBalancer
    }
}

/// Which certificate a broker shows the clients of a listener; nothing, without encryption. `None` when the listener cannot be
/// served.
pub(super) fn shown(
    world: &World,
    cluster: &Cluster,
    listener: &ClientListener,
    node: Node<'_>,
) -> Option<Option<Shown>> {
    if !listener.tls {
        return Some(None);
    }
    if listener.own_certificate().is_none() {
        return Some(Some(Shown::OfBroker));
    }
    if own_certificates::is_there(world, listener) {
        return Some(Some(Shown::OfUser));
    }
    let before = before(world, cluster, listener, node).map(|before| before.shown);
    let is_kept = cluster.kept_listener(listener).shows_brokers;
    match before {
        // The process has loaded it. A pod that is to start would wait for the file for ever.
        Some(Some(Shown::OfUser)) => runs(world, cluster, node).then_some(Some(Shown::OfUser)),
        // One that was open to be read is to be closed to that.
        Some(None) => None,
        Some(Some(Shown::OfBroker)) | None => is_kept.then_some(Some(Shown::OfBroker)),
    }
}

fn runs(world: &World, cluster: &Cluster, node: Node<'_>) -> bool {
    let runs = |pod: &PodView| pod.phase == "Running" && pod.stuck.is_none() && !pod.meta.deleting;
    world.pods.get(&cluster.pod_name(node)).is_some_and(|pod| runs(pod))
}

/// Do brokers serve a listener with a certificate of the user's that is not to be had any more?
pub(crate) fn is_only_loaded(world: &World, cluster: &Cluster, listener: &ClientListener) -> bool {
    befores(world, cluster, listener)
        .any(|(node, before)| before.shown == Some(Shown::OfUser) && runs(world, cluster, node))
}

/// Where a broker goes on to send clients, and how these reach it, when it has no address of the kind that is asked for, or when
/// others have none.
pub(super) fn address(
    world: &World,
    cluster: &Cluster,
    listener: &ClientListener,
    node: Node<'_>,
    has_new: bool,
) -> Option<(Advertised, Reach)> {
    let kept = cluster.kept_listener(listener).reach;
    let Some(before) = before(world, cluster, listener, node) else {
        // A new broker is reached as the others are.
        let as_others =
            ClientListener { reach: kept.filter(|reach| !reach.is_observed())?, ..listener.clone() };
        return Some((address::advertised(world, cluster, &as_others, node)?, as_others.reach));
    };
    let reach = reach_of(&cluster.key, listener, (&node.pool.name, node.id), &before.advertised.host);
    let is_good = reach == Reach::NodePort || template::is_host(&before.advertised.host);
    let is_old = kept.is_some() && reach != listener.reach;
    ((is_old || !has_new) && is_good).then(|| (before.advertised.clone(), reach))
}

/// How brokers tell the clients of a listener to reach them, where that shows. Of a host that the user chose, only what is remembered
/// tells. Of some brokers the address may be missing.
fn told_reach(world: &World, listener: &str, kafka_name: &str) -> Option<Reach> {
    let is_its = |meta: &crate::world::Meta| meta.labels.get(LISTENER_LABEL).is_some_and(|of| of == listener);
    let services: Vec<_> =
        world.services.iter().filter(|(_, one)| is_its(&one.meta)).map(|(name, _)| name).collect();
    let told = world.config_maps.iter().filter_map(|(pod, map)| {
        let host = &map.serving.listeners.iter().find(|before| before.name == kafka_name)?.advertised.host;
        let is_below = |name: String| host.strip_prefix(&name).is_some_and(|rest| rest.starts_with('.'));
        if let Some(reach) = address::remembered_reach(map, kafka_name) {
            Some(reach)
        } else if [NODE_IP, NODE_NAME].contains(&host.as_str()) {
            Some(Reach::NodePort)
        } else if is_below(format!("{pod}.{}", world.key.headless_service())) {
            Some(Reach::Internal)
        } else {
            let mut services = services.iter().map(|name| format!("{name}.{}", world.key.namespace));
            services.any(is_below).then_some(Reach::ClusterIp)
        }
    });
    let told: Vec<_> = told.collect();
    let order = [Reach::LoadBalancer, Reach::NodePort, Reach::ClusterIp, Reach::Internal];
    order.into_iter().find(|reach| told.contains(reach))
}

/// How a listener that cannot be what is asked for, whatever comes, is served now: as brokers tell their clients. Only when that says
/// nothing its services are looked at: their addresses come and go.
pub(crate) fn known_reach(world: &World, name: &str, port: u16) -> Option<Reach> {
    let kafka_name = super::kafka_name(name, port);
    let is_it = |before: &Before| before.name == kafka_name;
    world.config_maps.values().find(|map| map.serving.listeners.iter().any(is_it))?;
    if let Some(told) = told_reach(world, name, &kafka_name) {
        return Some(told);
    }
    let service = world
        .services
        .values()
        .filter(|one| !one.meta.deleting && one.meta.labels.get(LISTENER_LABEL).is_some_and(|of| of == name));
    let kinds = service.map(|service| reach_by(service));
    // Of a load balancer, some services may have no address.
    let kinds: Vec<_> = kinds.collect();
    let has = |reach: &Reach| kinds.contains(reach);
    Some(
        [Reach::LoadBalancer, Reach::NodePort, Reach::ClusterIp]
            .into_iter()
            .find(has)
            .unwrap_or(Reach::Internal),
    )
}

/// How clients can come in by a service, as far as it tells.
fn reach_by(service: &ServiceView) -> Reach {
    match (service.addresses.is_empty(), service.node_port) {
        (false, _) => Reach::LoadBalancer,
        (true, Some(_)) => Reach::NodePort,
        (true, None) => Reach::ClusterIp,
    }
}

/// Does a service lead clients farther than is asked for now? Then it is the one by which they came in before.
pub(crate) fn leads_farther(listener: &ClientListener, service: &ServiceView) -> bool {
    // A load balancer that was made without ports of nodes is in the way of those: they come with another service, and both
    // have one name. Nobody could ever move.
    let is_in_the_way = listener.reach == Reach::NodePort && service.node_port.is_none();
    reach_by(service) > listener.reach && !is_in_the_way
}

/// The listeners, by name, whose brokers may still send clients to where services lead that are to go, or to lead less far.
pub(crate) fn still_told<'a>(world: &World, cluster: &'a Cluster) -> BTreeSet<&'a str> {
    let find = |name: &String| cluster.listeners.iter().find(|listener| listener.name == *name);
    let farther = world.services.values().filter_map(|service| {
        let listener = find(service.meta.labels.get(LISTENER_LABEL)?)?;
        leads_farther(listener, service).then_some(listener.name.as_str())
    });
    let mut told: BTreeSet<_> = farther.collect();
    told.retain(|name| cluster.listeners.iter().any(|one| one.name == *name && is_told(world, cluster, one)));
    told
}

/// May a broker that runs send clients elsewhere than is asked for? By its settings, until these are written anew, and then until it
/// has restarted.
fn is_told(world: &World, cluster: &Cluster, listener: &ClientListener) -> bool {
    let brokers = cluster.nodes().filter(|node| node.pool.roles.has_broker());
    let wanted: BTreeMap<_, _> = brokers.map(|node| (cluster.pod_name(node), node)).collect();
    let is_elsewhere = |name: &String, pod: &PodView| match wanted.get(name) {
        Some(node) => before(world, cluster, listener, *node).is_some_and(|before| {
            address::advertised(world, cluster, listener, *node).as_ref() != Some(&before.advertised)
        }),
        // That of a pool that is refused runs on as it is.
        None => is_beyond(world, cluster, listener, name, pod),
    };
    let mut running = world.pods.iter().filter(|(_, pod)| pod.runs_broker());
    running.any(|(name, pod)| !runs_what_is_written(world, name, pod) || is_elsewhere(name, pod))
}

/// Do the settings of a broker that is not among those of the cluster send clients farther than is asked for?
fn is_beyond(world: &World, cluster: &Cluster, listener: &ClientListener, name: &str, pod: &PodView) -> bool {
    let before = world.config_maps.get(name).and_then(|map| map.serving.find(listener));
    let place = pod.meta.labels.get(POOL_LABEL).zip(node_of_pod(name));
    before.zip(place).is_some_and(|(before, (pool, id))| {
        reach_of(&cluster.key, listener, (pool, id), &before.advertised.host) > listener.reach
    })
}

/// Was a pod made from what its pod set asks for now?
fn runs_what_is_written(world: &World, name: &str, pod: &PodView) -> bool {
    let pool = pod.meta.labels.get(POOL_LABEL);
    let set = pool.and_then(|pool| world.pod_sets.get(&world.key.pod_set(pool)));
    set.and_then(|set| set.pods.get(name)).is_none_or(|wanted| pod.is_current(wanted))
}
