//! Claims that exist and differ from what is asked for: what can be brought up to it, and what cannot.
//!
//! A claim grows, and never shrinks. Its class and selector are what it was made with.

use std::time::Duration;

use crate::cluster::{Cluster, Node};
use crate::notice::Notice;
use crate::quantity::Quantity;
use crate::storage::{Disk, Medium};
use crate::world::{ClaimView, PodView, World};

/// How long the kubelet gets to grow a file system that is in use. Drivers that can do it do it within a minute or so.
const ONLINE: Duration = Duration::from_secs(120);

/// A claim that is to grow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Growth {
    /// Its name.
    pub claim: String,
    /// Which one.
    pub uid: String,
    /// How much it is to hold.
    pub size: String,
}

/// What came of comparing the claims.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    /// Grow these.
    pub(crate) growths: Vec<Growth>,
    /// What cannot be done.
    pub(crate) notices: Vec<Notice>,
    /// When to look again.
    pub(crate) look_again: Option<Duration>,
}

/// Compares the claims of all nodes with what their pools ask for.
pub(crate) fn compare(world: &World, cluster: &Cluster) -> Compared {
    let mut compared = Compared::default();
    for (node, disk, claim) in cluster.nodes().flat_map(|node| of_node(world, cluster, node)) {
        compared.grow(world, node, disk, claim);
        let pending = claim.resize_pending.map(|since| ONLINE.saturating_sub(world.time_since(since)));
        compared.look_soon(pending);
    }
    for pool in &cluster.pools {
        for disk in pool.storage.disks() {
            compared.notices.extend(made_otherwise(world, cluster, pool, disk));
        }
    }
    compared
}

impl Compared {
    fn look_soon(&mut self, pause: Option<Duration>) {
        self.look_again = self.look_again.into_iter().chain(pause.filter(|pause| !pause.is_zero())).min();
    }

    fn grow(&mut self, world: &World, node: Node<'_>, disk: &Disk, claim: &ClaimView) {
        let Medium::Claim { size, .. } = &disk.medium else { return };
        let amount = |text: &str| text.parse::<Quantity>().ok();
        let (Some(asked), Some(wanted)) = (claim.requested.as_deref().and_then(amount), amount(size)) else {
            return;
        };
        self.tell_pending(node, claim, asked);
        // Kubernetes grows only what is bound.
        if wanted <= asked || !claim.bound {
            return;
        }
        let refused =
            world.memory.refused_growth.get(&claim.meta.name).filter(|refused| refused.size == *size);
        if let Some(refused) = refused {
            self.notices.push(Notice::GrowthRefused {
                pool: node.pool.name.clone(),
                claim: claim.meta.name.clone(),
                size: size.clone(),
                why: refused.why.clone(),
            });
            let pause = world.time_until(refused.until);
            if !pause.is_zero() {
                self.look_soon(Some(pause));
                return;
            }
        }
        self.growths.push(Growth {
            claim: claim.meta.name.clone(),
            uid: claim.meta.uid.clone(),
            size: size.clone(),
        });
    }
}

impl Compared {
    /// A driver that never grows a volume says nothing at all: Kubernetes took the new size, and goes on waiting.
    fn tell_pending(&mut self, node: Node<'_>, claim: &ClaimView, asked: Quantity) {
        let Some(capacity) = claim.capacity.as_ref().filter(|_| claim.bound) else { return };
        let holds = capacity.parse::<Quantity>().ok();
        if holds.is_some_and(|holds| holds < asked) {
            self.notices.push(Notice::GrowthPending {
                pool: node.pool.name.clone(),
                claim: claim.meta.name.clone(),
                size: claim.requested.clone().unwrap_or_default(),
                capacity: capacity.clone(),
                why: claim.resize_error.clone(),
            });
        }
    }
}

/// The disks of a node that have a claim which exists and stays.
fn of_node<'a>(
    world: &'a World,
    cluster: &Cluster,
    node: Node<'a>,
) -> Vec<(Node<'a>, &'a Disk, &'a ClaimView)> {
    let pod = cluster.pod_name(node);
    let claim = |disk: &Disk| world.claims.get(&disk.claim_name(&pod)?).filter(|claim| !claim.meta.deleting);
    node.pool.storage.disks().iter().filter_map(|disk| Some((node, disk, &**claim(disk)?))).collect()
}

/// The claims of a volume that were made with another class or selector than what is asked for now.
fn made_otherwise(world: &World, cluster: &Cluster, pool: &crate::cluster::Pool, disk: &Disk) -> Vec<Notice> {
    let Medium::Claim { class, selector, .. } = &disk.medium else { return Vec::new() };
    let storage = if pool.has_resource { "spec.storage" } else { "spec.kafka.storage" };
    let at = disk.id.map_or_else(|| storage.to_owned(), |id| format!("{storage}.volumes[id={id}]"));
    let others = |differs: &dyn Fn(&ClaimView) -> bool| {
        let nodes = pool.nodes.iter().flat_map(|id| of_node(world, cluster, Node { id: *id, pool }));
        let nodes = nodes.filter(|(_, one, claim)| *one == disk && differs(claim));
        nodes.map(|(_, _, claim)| claim.meta.name.clone()).collect::<Vec<_>>()
    };
    let mut notices = Vec::new();
    // Without a class the cluster's default is used, which is not known here.
    if let Some(class) = class {
        let claims = others(&|claim| claim.class.as_ref().is_some_and(|has| has != class));
        notices.push((format!("{at}.class"), format!("'{class}'"), claims));
    }
    let claims = others(&|claim| claim.selector != *selector);
    let found = selector.as_ref().map_or_else(
        || "not set".to_owned(),
        |labels| {
            let labels = labels.iter().map(|(key, value)| format!("{key}={value}"));
            labels.collect::<Vec<_>>().join(",")
        },
    );
    notices.push((format!("{at}.selector"), found, claims));
    let some = notices.into_iter().filter(|(_, _, claims)| !claims.is_empty());
    some.map(|(field, found, claims)| Notice::ClaimsKeep { pool: pool.name.clone(), field, found, claims })
        .collect()
}

/// Those of a node's claims whose file system grows only when it is mounted anew: Kubernetes has said so for a while, and
/// the pod has run all that time.
pub(crate) fn awaiting_restart(
    world: &World,
    cluster: &Cluster,
    node: Node<'_>,
    pod: &PodView,
) -> Vec<String> {
    let is_due = |claim: &ClaimView| {
        claim.resize_pending.is_some_and(|since| {
            ONLINE.saturating_sub(world.time_since(since)).is_zero()
                && pod.meta.created.is_none_or(|made| made < since)
        })
    };
    let claims = of_node(world, cluster, node).into_iter().filter(|(_, _, claim)| is_due(claim));
    claims.map(|(_, _, claim)| claim.meta.name.clone()).collect()
}
