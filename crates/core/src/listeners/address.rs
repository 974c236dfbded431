//! Where clients find the brokers of a listener: what each broker tells them, what the status tells them, and which names the
//! brokers' certificates must be good for.
//!
//! Ports of Kubernetes nodes and addresses of load balancers are decided by others, and can be late or go away. A listener
//! without its address waits alone: its brokers serve the others. One that had an address keeps it until there is another,
//! because to take it away would restart every broker.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::str::FromStr;
use std::time::Duration;

use karst_api as api;

use super::kept::Shown;
use super::{ClientListener, Reach, kept, template};
use crate::cluster::{Cluster, Node};
use crate::names::ADVERTISED_ANNOTATION;
use crate::notice::Notice;
use crate::own_certificates;
use crate::world::{ConfigMapView, PodView, ServiceView, World};

/// Stands for the address of the Kubernetes node in the settings of a broker. Where a pod runs is only known when it
/// does, so the launcher puts it in.
pub const NODE_IP: &str = "@node-ip@";
/// The same, for the name of the Kubernetes node.
pub const NODE_NAME: &str = "@node-name@";

/// How long a new broker waits for the address of its load balancer. Many come within a second, and to start before would
/// cost another start.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a broker tells its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertised {
    /// The host, or one of [`NODE_IP`] and [`NODE_NAME`].
    pub host: String,
    /// The port.
    pub port: u16,
}

impl std::fmt::Display for Advertised {
    /// As Kafka writes it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.parse::<Ipv6Addr>() {
            Ok(host) => write!(f, "[{host}]:{}", self.port),
            Err(_) => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for Advertised {
    type Err = ();

    /// As Kafka writes it.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (host, port) = text.rsplit_once(':').ok_or(())?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        Ok(Self { host: bare.unwrap_or(host).to_owned(), port: port.parse().map_err(|_| ())? })
    }
}

/// A listener that a broker can serve now.
#[derive(Debug, Clone)]
pub struct Served<'a> {
    /// The listener.
    pub listener: &'a ClientListener,
    /// What the broker tells its clients.
    pub advertised: Advertised,
    /// How clients get there: while there is no address of the kind that is asked for, as before.
    pub reach: Reach,
    /// The certificate that clients see: while that of the user cannot be used, as before. None without encryption.
    pub shown: Option<Shown>,
}

impl Served<'_> {
    /// Is its address that of the Kubernetes node?
    pub(crate) fn needs_node(&self) -> bool {
        [NODE_IP, NODE_NAME].contains(&self.advertised.host.as_str())
    }

    /// Does it show a certificate that the user brought?
    pub(crate) fn shows_users(&self) -> bool {
        self.shown == Some(Shown::OfUser)
    }
}

/// The listeners that a broker can serve now: those whose address and certificate are there, and those that it serves already, as it
/// does.
pub fn served<'a>(world: &World, cluster: &'a Cluster, node: Node<'_>) -> Vec<Served<'a>> {
    if !node.pool.roles.has_broker() {
        return Vec::new();
    }
    let served = cluster.listeners.iter().filter_map(|listener| {
        let shown = kept::shown(world, cluster, listener, node)?;
        let new = advertised(world, cluster, listener, node);
        let is_settled = new.is_some() && cluster.kept_listener(listener).reach.is_none();
        let before = || kept::address(world, cluster, listener, node, new.is_some());
        let before = if is_settled { None } else { before() };
        let (advertised, reach) = before.or_else(|| Some((new?, listener.reach)))?;
        Some(Served { listener, advertised, reach, shown })
    });
    let mut served: Vec<_> = served.collect();
    if let Some(before) = kept::of(world, cluster, node) {
        before.order(&mut served);
    }
    served
}

/// What a broker tells the clients of a listener, if that is known.
pub(super) fn advertised(
    world: &World,
    cluster: &Cluster,
    listener: &ClientListener,
    node: Node<'_>,
) -> Option<Advertised> {
    let pod = cluster.pod_name(node);
    let (host, port) = found(world, cluster, listener, node);
    let before = || remembered(world, listener, &pod);
    let host =
        template::host(listener, node.id, &pod).or(host).or_else(|| before().map(|before| before.host))?;
    let port = template::port(listener, node.id).or(port).or_else(|| before().map(|before| before.port))?;
    Some(Advertised { host, port })
}

/// What is known of a broker's address without what users say about it.
fn found(
    world: &World,
    cluster: &Cluster,
    listener: &ClientListener,
    node: Node<'_>,
) -> (Option<String>, Option<u16>) {
    let name = cluster.key.listener_broker(&node.pool.name, listener, node.id);
    let service = || world.services.get(&name).filter(|service| !service.meta.deleting);
    let with_domain = listener.configuration.use_service_dns_domain;
    match listener.reach {
        Reach::Internal => (Some(pod_host(cluster, node, with_domain.unwrap_or(true))), Some(listener.port)),
        Reach::ClusterIp => {
            (Some(service_host(cluster, &name, with_domain.unwrap_or(false))), Some(listener.port))
        }
        Reach::NodePort => {
            let host = if prefers_names(listener) { NODE_NAME } else { NODE_IP };
            (Some(host.to_owned()), service().and_then(|service| service.node_port))
        }
        Reach::LoadBalancer => {
            let now: Vec<_> = service().into_iter().flat_map(|service| usable(service)).collect();
            // Others decide about their order: whoever is told one keeps it for as long as it is there.
            let told = remembered(world, listener, &cluster.pod_name(node)).map(|told| told.host);
            let kept = told.filter(|told| now.contains(&told));
            (kept.or_else(|| now.first().map(|first| (*first).clone())), Some(listener.port))
        }
    }
}

/// The addresses of a load balancer. They become part of a setting and of a certificate, so what is no host is left out.
fn usable(service: &ServiceView) -> impl Iterator<Item = &String> {
    service.addresses.iter().filter(|address| template::is_host(address))
}

fn prefers_names(listener: &ClientListener) -> bool {
    listener.configuration.preferred_node_port_address_type == Some(api::NodeAddressType::Hostname)
}

fn pod_host(cluster: &Cluster, node: Node<'_>, with_domain: bool) -> String {
    let whole = cluster.host(node);
    match whole.strip_suffix(&format!(".{}", cluster.domain)) {
        Some(short) if !with_domain => short.to_owned(),
        _ => whole,
    }
}

fn service_host(cluster: &Cluster, service: &str, with_domain: bool) -> String {
    let short = format!("{service}.{}.svc", cluster.key.namespace);
    if with_domain { format!("{short}.{}", cluster.domain) } else { short }
}

/// The address that was last written for a broker, by its ConfigMap's annotation.
fn remembered(world: &World, listener: &ClientListener, pod: &str) -> Option<Advertised> {
    let text = world.config_maps.get(pod)?.meta.annotations.get(ADVERTISED_ANNOTATION)?;
    let all: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
    let key = memory_key(&listener.kafka_name(), listener.reach)?;
    let (host, port) = all.get(&key)?.rsplit_once(':')?;
    Some(Advertised { host: host.to_owned(), port: port.parse().ok()? })
}

/// Only what others decide has to be remembered. An address of one type is of no use to another.
fn memory_key(kafka_name: &str, reach: Reach) -> Option<String> {
    let kind = match reach {
        Reach::NodePort => "nodeport",
        Reach::LoadBalancer => "loadbalancer",
        Reach::Internal | Reach::ClusterIp => return None,
    };
    Some(format!("{kafka_name}/{kind}"))
}

/// Of what kind the address is that was last written for a listener of a broker, when it is one that others decide about.
pub(super) fn remembered_reach(map: &ConfigMapView, kafka_name: &str) -> Option<Reach> {
    let text = map.meta.annotations.get(ADVERTISED_ANNOTATION)?;
    let all: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
    let is_told = |reach: &Reach| memory_key(kafka_name, *reach).is_some_and(|key| all.contains_key(&key));
    [Reach::LoadBalancer, Reach::NodePort].into_iter().find(is_told)
}

/// What is to be remembered of a broker's addresses.
pub(crate) fn memory(served: &[Served<'_>]) -> Option<String> {
    let entry = |one: &Served<'_>| {
        let Advertised { host, port } = &one.advertised;
        Some((memory_key(&one.listener.kafka_name(), one.reach)?, format!("{host}:{port}")))
    };
    let all: BTreeMap<_, _> = served.iter().filter_map(entry).collect();
    if all.is_empty() { None } else { serde_json::to_string(&all).ok() }
}

/// May a broker that does not run yet be started, as far as its listeners are concerned? What comes in a moment is waited for:
/// services that are just being made, certificates that were not read yet. `Err` says how long to wait.
pub(crate) fn may_start(world: &World, cluster: &Cluster, node: Node<'_>) -> Result<(), Option<Duration>> {
    if !node.pool.roles.has_broker() {
        return Ok(());
    }
    for listener in &cluster.listeners {
        if !own_certificates::was_read(world, listener) {
            return Err(None);
        }
        if listener.reach == Reach::Internal || advertised(world, cluster, listener, node).is_some() {
            continue;
        }
        let name = cluster.key.listener_broker(&node.pool.name, listener, node.id);
        match world.services.get(&name) {
            None if !world.memory.refused_services.contains_key(&name) => return Err(None),
            Some(service) if listener.reach == Reach::LoadBalancer => {
                let left = patience_left(world, service);
                if !left.is_zero() {
                    return Err(Some(left));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn patience_left(world: &World, service: &ServiceView) -> Duration {
    let age = service.meta.created.map(|created| world.now.duration_since(created));
    let age = age.and_then(|age| Duration::try_from(age).ok()).unwrap_or_default();
    PATIENCE.saturating_sub(age)
}

/// The pods of the brokers that are wanted.
fn pods<'a>(world: &'a World, cluster: &Cluster) -> Vec<Option<&'a PodView>> {
    let brokers = cluster.nodes().filter(|node| node.pool.roles.has_broker());
    brokers.map(|node| world.pods.get(&cluster.pod_name(node)).map(|pod| &**pod)).collect()
}

fn node_host(listener: &ClientListener, pod: &PodView) -> Option<String> {
    if prefers_names(listener) { pod.machine.clone() } else { pod.host_ip.clone() }
}

/// The addresses of the Kubernetes nodes that brokers are on, by listener.
pub(crate) type NodeHosts = BTreeMap<String, Vec<String>>;

/// Looked up once for all brokers: each of them needs those of all. None before they are known for all.
pub(crate) fn node_hosts(world: &World, cluster: &Cluster) -> NodeHosts {
    let pods = pods(world, cluster);
    let hosts = |listener: &ClientListener| {
        pods.iter().map(|pod| node_host(listener, (*pod)?)).collect::<Option<Vec<_>>>()
    };
    let listeners = cluster.listeners.iter().filter(|listener| listener.reach == Reach::NodePort);
    listeners.map(|listener| (listener.name.clone(), hosts(listener).unwrap_or_default())).collect()
}

/// The names and addresses that the certificate of a broker must be good for, besides those that every node has.
///
/// Each bootstrap address can lead to any broker. Addresses of Kubernetes nodes are left out until they are known for all
/// brokers, so that a cluster that starts makes new certificates once, and not once for each pod.
pub(crate) fn certificate_names(
    world: &World,
    cluster: &Cluster,
    node: Node<'_>,
    hosts: &NodeHosts,
) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    if !node.pool.roles.has_broker() {
        return names;
    }
    let key = &cluster.key;
    let served = served(world, cluster, node);
    // A broker goes on to serve what it served until it has restarted, with the certificate that it loads today.
    let is_to_change = || {
        let is_other = kept::of(world, cluster, node).is_some_and(|before| !before.is(&served));
        is_other || !runs_what_is_written(world, cluster, node)
    };
    let stored = world.secrets.get(&cluster.pod_name(node)).and_then(|secret| secret.stored());
    if let Some(stored) = stored.filter(|_| is_to_change()) {
        names.extend(stored.certificate().names.iter().cloned());
    }
    let shows_brokers = |listener: &ClientListener| {
        let kept = || served.iter().any(|one| one.listener.name == listener.name && !one.shows_users());
        listener.tls && (listener.own_certificate().is_none() || kept())
    };
    for listener in cluster.listeners.iter().filter(|one| shows_brokers(one)) {
        names.extend(
            listener
                .bootstrap()
                .and_then(|bootstrap| bootstrap.alternative_names.clone())
                .unwrap_or_default(),
        );
        names.extend(template::host(listener, node.id, &cluster.pod_name(node)));
        let bootstrap = key.listener_bootstrap(&listener.name);
        let own = key.listener_broker(&node.pool.name, listener, node.id);
        match listener.reach {
            Reach::Internal => {}
            Reach::ClusterIp => {
                names.extend(
                    [bootstrap, own].iter().flat_map(|service| key.service_names(service, &cluster.domain)),
                );
            }
            Reach::LoadBalancer => {
                let services = [bootstrap, own].into_iter().filter_map(|name| world.services.get(&name));
                names.extend(services.flat_map(|service| usable(service).cloned()));
                let told = advertised(world, cluster, listener, node).map(|advertised| advertised.host);
                names.extend(told);
            }
            Reach::NodePort => {
                let own = world.pods.get(&cluster.pod_name(node));
                names.extend(own.and_then(|pod| node_host(listener, pod)));
                names.extend(hosts.get(&listener.name).into_iter().flatten().cloned());
            }
        }
    }
    names
}

/// Was the pod of a broker made from what its pod set asks for now?
fn runs_what_is_written(world: &World, cluster: &Cluster, node: Node<'_>) -> bool {
    let name = cluster.pod_name(node);
    let Some(pod) = world.pods.get(&name) else { return true };
    let set = world.pod_sets.get(&cluster.key.pod_set(&node.pool.name));
    set.and_then(|set| set.pods.get(&name)).is_some_and(|wanted| pod.is_current(wanted))
}

/// Can the addresses of brokers' certificates come and go by themselves?
pub(crate) fn names_come_and_go(cluster: &Cluster) -> bool {
    cluster.listeners.iter().any(|listener| listener.tls && listener.reach.is_observed())
}

/// Where clients of a listener start.
pub(crate) fn bootstrap(
    world: &World,
    cluster: &Cluster,
    listener: &ClientListener,
) -> BTreeSet<(String, u16)> {
    let name = cluster.key.listener_bootstrap(&listener.name);
    let service = world.services.get(&name);
    let with_domain = listener.configuration.use_service_dns_domain.unwrap_or(false);
    match listener.reach {
        Reach::Internal => {
            [(service_host(cluster, &cluster.key.bootstrap_service(), with_domain), listener.port)].into()
        }
        Reach::ClusterIp => [(service_host(cluster, &name, with_domain), listener.port)].into(),
        Reach::LoadBalancer if listener.has_bootstrap_service() => {
            let addresses = service.into_iter().flat_map(|service| usable(service));
            addresses.map(|host| (host.clone(), listener.port)).collect()
        }
        Reach::LoadBalancer => {
            let brokers = cluster.nodes().filter(|node| node.pool.roles.has_broker());
            let told = brokers.filter_map(|node| advertised(world, cluster, listener, node));
            told.map(|advertised| (advertised.host, advertised.port)).collect()
        }
        Reach::NodePort => {
            let Some(port) = service.and_then(|service| service.node_port) else { return BTreeSet::new() };
            let brokers = cluster.nodes().filter(|node| node.pool.roles.has_broker());
            let hosts = brokers.filter_map(|node| {
                let pod = cluster.pod_name(node);
                let told = template::host(listener, node.id, &pod);
                told.or_else(|| node_host(listener, world.pods.get(&pod)?))
            });
            hosts.map(|host| (host, port)).collect()
        }
    }
}

/// What keeps listeners from being served by all brokers. Services that are just being made are not worth a word, and those
/// that cannot be made have words of their own.
pub(crate) fn notices(world: &World, cluster: &Cluster) -> Vec<Notice> {
    let mut notices = Vec::new();
    for listener in cluster.listeners.iter().filter(|listener| listener.reach.is_observed()) {
        let bootstrap_service = cluster.key.listener_bootstrap(&listener.name);
        let lacks_bootstrap = listener.has_bootstrap_service()
            && world_runs(world)
            && bootstrap(world, cluster, listener).is_empty();
        let brokers = cluster.nodes().filter(|node| node.pool.roles.has_broker());
        let brokers = brokers.filter(|node| advertised(world, cluster, listener, *node).is_none());
        let brokers = brokers.map(|node| cluster.key.listener_broker(&node.pool.name, listener, node.id));
        let waiting = lacks_bootstrap.then_some(bootstrap_service).into_iter().chain(brokers);
        let waiting: Vec<_> = waiting.filter(|service| world.services.contains_key(service)).collect();
        if !waiting.is_empty() {
            let (name, services) = (listener.name.clone(), waiting.join(", "));
            notices.push(match cluster.kept_listener(listener).reach {
                Some(now) => Notice::ListenerReachKept {
                    name,
                    asked: listener.reach.name(),
                    now: now.name(),
                    services,
                },
                None => Notice::ListenerAwaitsAddress { name, services },
            });
        }
        if let Some(asked) = unreachable_address(listener) {
            notices.push(Notice::NodeAddressType { name: listener.name.clone(), asked });
        }
    }
    notices
}

fn world_runs(world: &World) -> bool {
    world.pods.values().any(|pod| pod.is_serving() && pod.runs_broker())
}

/// Karst does not read the Kubernetes nodes, so it knows only what a pod is told about its own.
fn unreachable_address(listener: &ClientListener) -> Option<&'static str> {
    if listener.configuration.advertised_host_template.is_some() {
        return None;
    }
    match listener.configuration.preferred_node_port_address_type? {
        api::NodeAddressType::ExternalIp => Some("ExternalIP"),
        api::NodeAddressType::ExternalDns => Some("ExternalDNS"),
        api::NodeAddressType::InternalDns => Some("InternalDNS"),
        api::NodeAddressType::InternalIp | api::NodeAddressType::Hostname => None,
    }
}
