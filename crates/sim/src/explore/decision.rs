//! The real decision about who votes, asked with a quorum of the exploration.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use karst_core::cluster::Cluster;
use karst_core::ids::{DirectoryId, Entropy, NodeId};
use karst_core::membership::{self, Change, Renewal, Voter};
use karst_core::names::node_of_pod;
use karst_core::world::{PodView, QuorumView, Replica, World};

use super::model::{NODES, Quorum, Request, Seat, Seats};
use crate::mint::Mint;
use crate::run::Start;
use crate::scenarios::Base;

/// Somebody who is behind, or gone, is so for this long.
const LONG: Duration = Duration::from_secs(30);

/// What an operator can see of a quorum.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct View {
    wish: u8,
    leader: usize,
    voters: Seats,
    /// Who has everything, who has some of it.
    complete: Seats,
    partial: Seats,
    up: u8,
}

/// Decisions, each made once.
#[derive(Debug)]
pub(super) struct Decisions {
    world: Option<(World, Cluster, PodView)>,
    made: HashMap<View, Option<Request>>,
    /// How often it was asked.
    pub(super) asked: usize,
}

impl Decisions {
    pub(super) fn new() -> Self {
        let world = Start::of(Base::Small, Mint::default()).world().and_then(|world| {
            let cluster = karst_core::resolve::resolve(&world).cluster?;
            let pod = world.pods.values().find(|pod| pod.runs_controller())?.as_ref().clone();
            Some((world, cluster, pod))
        });
        Self { world, made: HashMap::new(), asked: 0 }
    }

    pub(super) fn views(&self) -> usize {
        self.made.len()
    }

    /// What an operator asks for that looks at the quorum now.
    pub(super) fn next(&mut self, quorum: &Quorum, wish: u8) -> Option<Request> {
        self.asked += 1;
        let view = View::of(quorum, wish)?;
        if let Some(made) = self.made.get(&view) {
            return *made;
        }
        let made = self.decide(&view);
        self.made.insert(view, made);
        made
    }

    fn decide(&self, view: &View) -> Option<Request> {
        let (world, cluster, pod) = self.world.as_ref()?;
        let (mut world, mut cluster) = (world.clone(), cluster.clone());
        cluster.pools.retain(|pool| pool.roles.has_controller());
        let pool = cluster.pools.first_mut()?;
        let is_wanted = |node: &NodeId| view.wish & (1 << (node.0 - 1)) != 0;
        pool.nodes = (1..=NODES).filter_map(|id| i32::try_from(id).ok().map(NodeId)).collect();
        pool.leaving = pool.nodes.iter().filter(|node| !is_wanted(node)).copied().collect();
        world.pods = view.pods(pod);
        world.pod_sets = BTreeMap::new();
        let quorum = view.to_quorum();
        match membership::next(&world, &cluster, &quorum, &Renewal::default()).change? {
            Change::Join { voter, .. } => Some(Request::Join(seat_of(voter)?)),
            Change::Leave { voter, .. } => Some(Request::Leave(seat_of(voter)?)),
            Change::MakeDynamic => None,
        }
    }
}

impl View {
    fn of(quorum: &Quorum, wish: u8) -> Option<Self> {
        let (leader, office) = quorum.leader()?;
        if office.committed == 0 {
            return None;
        }
        let voters = quorum.nodes[leader].voters()?;
        let (mut complete, mut partial) = (Seats::default(), Seats::default());
        for seat in Seats::all() {
            match quorum.progress(leader, seat) {
                Some(true) => complete = complete.with(seat),
                Some(false) => partial = partial.with(seat),
                None => {}
            }
        }
        let up = (0..NODES).filter(|node| quorum.nodes[*node].up).fold(0, |up, node| up | (1 << node));
        Some(Self { wish, leader, voters, complete, partial, up })
    }

    fn pods(&self, like: &PodView) -> BTreeMap<String, Arc<PodView>> {
        let pod = |node: usize| {
            let mut pod = like.clone();
            pod.meta.name = format!("c-controllers-{}", node + 1);
            pod.ready = self.up & (1 << node) != 0;
            debug_assert_eq!(node_of_pod(&pod.meta.name), Some(node_id(node)));
            (pod.meta.name.clone(), Arc::new(pod))
        };
        (0..NODES).map(pod).collect()
    }

    fn replica(&self, seat: Seat) -> Replica {
        let behind = if self.complete.has(seat) {
            Some(Duration::ZERO)
        } else {
            self.partial.has(seat).then_some(LONG)
        };
        Replica {
            node: node_id(seat.node),
            directory: Some(directory(seat)),
            takes_part: behind.is_some(),
            behind,
        }
    }

    fn to_quorum(&self) -> QuorumView {
        let known = Seats::all().filter(|seat| self.complete.has(*seat) || self.partial.has(*seat));
        QuorumView {
            cluster_id: None,
            leader: node_id(self.leader),
            epoch: 1,
            stable_for: LONG,
            voters: self.voters.iter().map(|seat| self.replica(seat)).collect(),
            observers: known.filter(|seat| !self.voters.has(*seat)).map(|seat| self.replica(seat)).collect(),
            is_dynamic: true,
            registered: self.voters.iter().map(|seat| node_id(seat.node)).collect(),
            is_committed: true,
            metadata_level: Some(crate::kraft::LEVEL),
            features: BTreeMap::new(),
        }
    }
}

fn node_id(node: usize) -> NodeId {
    NodeId(i32::try_from(node + 1).unwrap_or(i32::MAX))
}

fn directory(seat: Seat) -> DirectoryId {
    let disk = u8::try_from(seat.disk).unwrap_or(u8::MAX);
    Entropy([disk; 32]).directory_id(node_id(seat.node))
}

fn seat_of(voter: Voter) -> Option<Seat> {
    Seats::all().find(|seat| Voter { node: node_id(seat.node), directory: directory(*seat) } == voter)
}
