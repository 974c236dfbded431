//! How much a cluster may ask for, so that no resource makes a pass long, or takes the memory of all clusters.
//!
//! The schema has bounds for every field, but another operator's definitions may be installed, and many fields that are large
//! together make what no single bound forbids: a long template for each of a thousand nodes. So what is about to be made is
//! weighed before anything of it is made, or durable. What is too much is refused as a whole; nothing that runs changes.

use std::collections::BTreeSet;
use std::io;

use karst_api as api;
use karst_api::bounds;
use serde::Serialize;

use crate::cluster::{Cluster, Node, Pool};
use crate::listeners::{ClientListener, Reach};
use crate::objects::Render;
use crate::problem::Problem;
use crate::quorum::Kind;
use crate::world::World;

/// The most nodes of a cluster.
pub(crate) const NODES: usize = bounds::NODES as usize;
/// The most pools of a cluster: those without nodes are looked at, too.
const POOLS: usize = 1000;
/// The largest spec, in bytes of JSON. Kubernetes takes 1.5 MB for the whole object.
const SPEC: usize = 512 * 1024;
/// What all objects of a cluster's nodes may weigh together.
const TOTAL: usize = 32 * 1024 * 1024;
/// What etcd takes is 1.5 MiB, with what the API server adds.
const POD_SET: usize = 1_450_000;

/// What a pod and the settings beside it weigh, without what users add.
const NODE: usize = 16 * 1024;
/// What a claim, or a service of a listener, weighs.
const OBJECT: usize = 1024;
/// What the address of a node weighs in a list.
const ADDRESS: usize = 256;

/// The length of a value as JSON.
pub(crate) fn weight(value: &impl Serialize) -> usize {
    struct Counter(usize);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // What cannot be written as JSON is not small.
    serde_json::to_writer(&mut counter, value).map_or(usize::MAX, |()| counter.0)
}

/// A resource that is too large to be looked at.
pub(crate) fn too_large(spec: &impl Serialize) -> Option<Problem> {
    let bytes = weight(spec);
    (bytes > SPEC).then_some(Problem::SpecTooLarge { kilobytes: bytes / 1000, most: SPEC / 1000 })
}

/// Numbers and lists of the cluster that have no bounds when its schema is another operator's.
pub(crate) fn of_cluster(kafka: &api::Kafka) -> Vec<Problem> {
    let spec = &kafka.spec;
    let mut problems = Vec::new();
    for (name, authority) in [("clusterCa", &spec.cluster_ca), ("clientsCa", &spec.clients_ca)] {
        let Some(authority) = authority else { continue };
        let days = [("validityDays", authority.validity_days), ("renewalDays", authority.renewal_days)];
        for (field, days) in days {
            let wrong = days.filter(|days| !is_days(*days));
            problems.extend(wrong.map(|value| Problem::Number {
                field: format!("spec.{name}.{field}"),
                value,
                most: bounds::DAYS,
            }));
        }
    }
    let listeners = spec.kafka.listeners.len();
    problems.extend(too_many("spec.kafka.listeners", listeners, bounds::LISTENERS));
    problems
}

/// Can a certificate be valid for so long?
pub(crate) fn is_days(days: i32) -> bool {
    (1..=bounds::DAYS).contains(&days)
}

/// A list that is too long.
pub(crate) fn too_many(field: &str, found: usize, most: i64) -> Option<Problem> {
    let is_more = i64::try_from(found).is_ok_and(|found| found <= most);
    (!is_more).then(|| Problem::TooMany { field: field.to_owned(), found, most })
}

/// More nodes than a cluster can have.
pub(crate) fn too_many_nodes(found: usize) -> Option<Problem> {
    (found > NODES).then_some(Problem::TooManyNodes { found, most: NODES })
}

/// More pools than are looked at.
pub(crate) fn too_many_pools(found: usize) -> Option<Problem> {
    (found > POOLS).then_some(Problem::TooManyPools { found, most: POOLS })
}

/// A cluster whose nodes would weigh too much.
pub(crate) fn too_heavy(world: &World, listeners: &[ClientListener], pools: &[Pool]) -> Option<Problem> {
    let scale = Scale::of(world, listeners, pools);
    let weighed = pools.iter().map(|pool| (pool, scale.of_pool(pool)));
    let (mut total, mut heaviest): (usize, Option<(&Pool, usize)>) = (0, None);
    for (pool, weight) in weighed {
        total = total.saturating_add(weight);
        if heaviest.is_none_or(|(_, most)| weight > most) {
            heaviest = Some((pool, weight));
        }
    }
    let (pool, _) = heaviest.filter(|_| total > TOTAL)?;
    Some(Problem::TooHeavy {
        nodes: pools.iter().map(|pool| pool.nodes.len()).sum(),
        megabytes: total / 1_000_000,
        most: TOTAL / 1_000_000,
        pool: pool.name.clone(),
    })
}

/// What nodes are weighed with.
struct Scale<'a> {
    world: &'a World,
    /// Weight of `spec.kafka` and of the labels that all objects inherit.
    kafka: usize,
    labels: usize,
    /// Listeners with a service for each broker.
    services: usize,
    /// Weight of a list of all controllers, which every node has.
    controllers: usize,
    /// Weight of the addresses of all brokers, where certificates name them.
    brokers: usize,
}

impl<'a> Scale<'a> {
    fn of(world: &'a World, listeners: &[ClientListener], pools: &[Pool]) -> Self {
        let count = |is_one: fn(&Pool) -> bool| -> usize {
            pools.iter().filter(|pool| is_one(pool)).map(|pool| pool.nodes.len()).sum()
        };
        let named = listeners.iter().filter(|one| one.tls && one.reach == Reach::NodePort).count();
        Self {
            world,
            kafka: weight(&world.kafka.spec.kafka),
            labels: weight(&world.kafka.metadata.labels),
            services: listeners.iter().filter(|listener| listener.reach != Reach::Internal).count(),
            controllers: ADDRESS.saturating_mul(count(|pool| pool.roles.has_controller())),
            brokers: (ADDRESS / 4 * named).saturating_mul(count(|pool| pool.roles.has_broker())),
        }
    }

    fn of_pool(&self, pool: &Pool) -> usize {
        self.of_node(pool).saturating_mul(pool.nodes.len())
    }

    /// What comes into each object is counted as often as there are objects.
    fn of_node(&self, pool: &Pool) -> usize {
        let resource = self.world.pools.get(&pool.name).filter(|_| pool.has_resource);
        let own = resource.map_or(0, |resource| weight(&resource.spec));
        let labels = self.labels + resource.map_or(0, |resource| weight(&resource.metadata.labels));
        let template = self.template(resource.map(|resource| &**resource));
        let storage = weight(&pool.storage_written);
        let claims = pool.storage.disks().len().saturating_mul(OBJECT + storage + template + labels);
        let services = self.services.saturating_mul(OBJECT + template + labels);
        [self.pod(pool), own, 3 * labels, claims, services].into_iter().fold(0, usize::saturating_add)
    }

    /// What a pod and the settings beside it weigh at most.
    fn pod(&self, pool: &Pool) -> usize {
        let resource = self.world.pools.get(&pool.name).filter(|_| pool.has_resource);
        let own = resource.map_or(0, |resource| weight(&resource.spec));
        [NODE, self.kafka, own, self.labels, self.controllers, self.brokers]
            .into_iter()
            .fold(0, usize::saturating_add)
    }

    /// Labels and annotations of claims and of services.
    fn template(&self, pool: Option<&api::KafkaNodePool>) -> usize {
        let own = pool.and_then(|pool| pool.spec.template.as_deref());
        let own = own.map(|own| weight(&(&own.persistent_volume_claim, &own.per_pod_service)));
        let of_cluster = || {
            let template = self.world.kafka.spec.kafka.template.as_deref();
            template.map(|all| weight(&(&all.persistent_volume_claim, &all.per_pod_service)))
        };
        own.or_else(of_cluster).unwrap_or_default()
    }
}

/// A pool whose pod set etcd would not take. To know it, one of its pods is made, but only where it may be.
pub(crate) fn oversized(world: &World, cluster: &Cluster) -> Result<Option<Problem>, serde_json::Error> {
    let scale = Scale::of(world, &cluster.listeners, &cluster.pools);
    let (unproven, held) = (BTreeSet::new(), BTreeSet::new());
    let render = Render {
        cluster,
        world,
        cluster_id: None,
        initial: None,
        quorum: Kind::of(world),
        bootstrap_servers: crate::plan::bootstrap_servers(world, cluster),
        restoration: None,
        unproven: &unproven,
        held: &held,
    };
    let may_be = |pool: &&Pool| scale.pod(pool).saturating_mul(pool.nodes.len()) > POD_SET;
    for pool in cluster.pools.iter().filter(may_be) {
        // The last id is the longest.
        let Some(id) = pool.nodes.last() else { continue };
        let pod = render.weight_of_pod(Node { id: *id, pool })?;
        let bytes = pod.saturating_mul(pool.nodes.len());
        if bytes > POD_SET {
            return Ok(Some(Problem::PodSetTooLarge {
                pool: pool.name.clone(),
                nodes: pool.nodes.len(),
                kilobytes: bytes / 1000,
                most: POD_SET / pod.max(1),
            }));
        }
    }
    Ok(None)
}
