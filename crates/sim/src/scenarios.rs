//! Stories of clusters: what users do, what befalls them, and how it must end.

mod authorities;
mod brokers;
mod disks;
mod edit;
mod fixed;
mod held;
mod others;
mod policies;

use std::collections::BTreeSet;

use karst_api::{self as api, Role};
use karst_core::ids::NodeId;
use karst_core::names::{NEXT_IDS_ANNOTATION, REMOVE_IDS_ANNOTATION};

use crate::data::RECORDS;
use crate::kraft::LEVEL;
use crate::sim::Sim;
use edit::annotate;
pub use edit::{Disks, Edit};
pub(crate) use held::put_back;

/// The cluster of all stories.
pub const CLUSTER: &str = "c";

/// When a step comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// When everything is at rest.
    AtRest,
    /// So long after the step before: least and most, in milliseconds.
    After(u64, u64),
}

/// A step of a story.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// When it comes.
    pub when: When,
    /// What it is.
    pub edit: Edit,
}

/// How a story begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Base {
    /// Nothing but the resources of three controllers and three brokers.
    Nothing,
    /// Three controllers, one broker.
    Small,
    /// Three controllers, one broker, all of it ephemeral.
    Ephemeral,
    /// Three controllers, three brokers with partitions.
    Whole,
    /// Three nodes that do both.
    Combined,
    /// Three controllers, four brokers, of which the last has no partitions.
    Spare,
    /// Three nodes that do both, and no pools.
    Virtual,
    /// Three nodes that do both, with a static quorum.
    Static,
    /// Three controllers and one broker on disks that stay.
    Lasting,
    /// Three controllers, four brokers, and three more in a pool of their own.
    Moving,
    /// Three controllers, three ephemeral brokers.
    Fleeting,
    /// Three controllers, one ephemeral broker.
    Brittle,
    /// Two ephemeral controllers, one broker.
    Two,
    /// Three ephemeral controllers, one broker.
    Three,
}

/// A story.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// What it is called.
    pub name: &'static str,
    /// How it begins.
    pub base: Base,
    /// What happens.
    pub steps: Vec<Step>,
    /// Who votes in the end.
    pub voters: BTreeSet<NodeId>,
    /// Who else may vote in the end, when what users change is heard of in another order.
    pub or_voters: Option<BTreeSet<NodeId>>,
    /// How many pods run and are ready in the end. `None` when some cannot be.
    pub ready: Option<usize>,
    /// Never fewer voters than this.
    pub fewest: usize,
    /// The level of the metadata version in the end.
    pub level: i16,
    /// Does how much is done on the way differ from run to run? It does when the user changes their mind while the operator works.
    pub is_racy: bool,
    /// Is everything put back in the end, and to be as it was?
    pub reverts: bool,
    /// Are the voters in the settings of nodes in the end?
    pub is_static: bool,
    /// How many pods are to stay as they are, though something else is asked for.
    pub outdated: usize,
    /// Is an id free or taken when a pool asks for it, depending on which of the user's changes was heard of first?
    pub ids_differ: bool,
}

impl Scenario {
    /// Does the user change things again before they are at rest? Who looks late may never see what was wanted in between.
    pub fn hurries(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.when, When::After(_, most) if most > 0))
    }

    /// Is the `Kafka` resource deleted? Who has not heard of it makes once more what goes with it, and that goes too.
    pub fn forgets(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.edit, Edit::DeleteKafka))
    }
}

pub(crate) const CONTROLLER: &[Role] = &[Role::Controller];
pub(crate) const BROKER: &[Role] = &[Role::Broker];
pub(crate) const BOTH: &[Role] = &[Role::Controller, Role::Broker];

/// A pool of the cluster.
pub fn pool(name: &str, replicas: i32, roles: &[Role], disks: Disks) -> Option<api::KafkaNodePool> {
    let storage = match disks {
        Disks::Disposable => disposable("1Gi"),
        Disks::Kept => kept(),
        Disks::Ephemeral => serde_json::json!({"type": "ephemeral"}),
    };
    serde_json::from_value(serde_json::json!({
        "apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaNodePool",
        "metadata": {"name": name, "labels": {"strimzi.io/cluster": CLUSTER}},
        "spec": {"replicas": replicas, "roles": roles, "storage": storage}
    }))
    .ok()
}

fn kept() -> serde_json::Value {
    serde_json::json!({"type": "persistent-claim", "size": "1Gi"})
}

fn disposable(size: &str) -> serde_json::Value {
    serde_json::json!({"type": "persistent-claim", "size": size, "deleteClaim": true})
}

/// The `Kafka` resource of most stories.
pub fn kafka() -> Option<api::Kafka> {
    serde_json::from_value(serde_json::json!({
        "apiVersion": "kafka.strimzi.io/v1", "kind": "Kafka", "metadata": {"name": CLUSTER},
        "spec": {"kafka": {"version": "4.1.1",
            "listeners": [{"name": "plain", "port": 9092, "type": "internal", "tls": false}],
            "config": {"default.replication.factor": 3, "min.insync.replicas": 2}}}
    }))
    .ok()
}

/// The resources of a base.
pub fn resources(base: Base) -> Option<(api::Kafka, Vec<api::KafkaNodePool>)> {
    let pools: &[(&str, i32, &[Role], Disks)] = match base {
        Base::Nothing | Base::Whole => {
            &[("brokers", 3, BROKER, Disks::Disposable), ("controllers", 3, CONTROLLER, Disks::Kept)]
        }
        Base::Small => {
            &[("brokers", 1, BROKER, Disks::Disposable), ("controllers", 3, CONTROLLER, Disks::Disposable)]
        }
        Base::Ephemeral => {
            &[("brokers", 1, BROKER, Disks::Ephemeral), ("controllers", 3, CONTROLLER, Disks::Ephemeral)]
        }
        Base::Combined | Base::Static => &[("both", 3, BOTH, Disks::Kept)],
        Base::Lasting => &[("brokers", 1, BROKER, Disks::Kept), ("controllers", 3, CONTROLLER, Disks::Kept)],
        Base::Spare => {
            &[("brokers", 4, BROKER, Disks::Disposable), ("controllers", 1, CONTROLLER, Disks::Kept)]
        }
        Base::Moving => &[
            ("brokers", 4, BROKER, Disks::Disposable),
            ("controllers", 3, CONTROLLER, Disks::Kept),
            ("small", 3, BROKER, Disks::Disposable),
        ],
        Base::Fleeting => {
            &[("brokers", 3, BROKER, Disks::Ephemeral), ("controllers", 3, CONTROLLER, Disks::Kept)]
        }
        Base::Brittle => {
            &[("brokers", 1, BROKER, Disks::Ephemeral), ("controllers", 3, CONTROLLER, Disks::Kept)]
        }
        Base::Two => &[("brokers", 1, BROKER, Disks::Kept), ("controllers", 2, CONTROLLER, Disks::Ephemeral)],
        Base::Three => {
            &[("brokers", 1, BROKER, Disks::Kept), ("controllers", 3, CONTROLLER, Disks::Ephemeral)]
        }
        Base::Virtual => &[],
    };
    let mut kafka = kafka()?;
    if base == Base::Virtual {
        kafka.spec.kafka.replicas = Some(3);
        kafka.spec.kafka.storage = serde_json::from_value(kept()).ok();
    }
    let pools = pools.iter().map(|(name, replicas, roles, disks)| pool(name, *replicas, roles, *disks));
    let mut pools = pools.collect::<Option<Vec<_>>>()?;
    for pool in &mut pools {
        let ids = match pool.metadata.name.as_deref() {
            Some("brokers") => "[0-2, 6]",
            Some("small") => "[20-22]",
            _ => continue,
        };
        if base == Base::Moving {
            annotate(&mut pool.metadata, NEXT_IDS_ANNOTATION, ids);
        }
    }
    Some((kafka, pools))
}

/// Puts the resources of a base into an empty world.
pub fn begin(sim: &mut Sim, base: Base) {
    let Some((mut kafka, pools)) = resources(base) else { return };
    if base == Base::Static {
        fixed::found(sim, &mut kafka);
    }
    sim.api.create_kafka(kafka);
    for mut pool in pools {
        if base == Base::Static {
            pool.status = Some(fixed::pool_status());
        }
        sim.api.create_pool(pool);
    }
    if base == Base::Nothing {
        populate(sim, base);
    }
}

impl Base {
    /// Are there topics with a copy on each of its first three brokers?
    pub fn has_partitions(self) -> bool {
        matches!(self, Self::Whole | Self::Combined | Self::Spare | Self::Virtual | Self::Static)
    }
}

/// Creates the topics of a base: copies that are one more than needed, just enough, and single ones.
pub fn populate(sim: &mut Sim, base: Base) {
    let topics: &[(&str, i32, &[i32], usize)] = match base {
        Base::Nothing | Base::Whole | Base::Combined | Base::Spare | Base::Virtual | Base::Static => &[
            ("orders", 0, &[0, 1, 2], 2),
            ("orders", 1, &[0, 1, 2], 2),
            ("audit", 0, &[0, 1, 2], 1),
            ("pairs", 0, &[0, 2], 2),
            ("single", 0, &[0], 1),
        ],
        Base::Small | Base::Ephemeral | Base::Lasting | Base::Brittle | Base::Two | Base::Three => {
            &[("orders", 0, &[0], 2), ("single", 0, &[0], 1)]
        }
        Base::Moving => &[
            ("orders", 0, &[20, 21, 22], 2),
            ("orders", 1, &[0, 1, 2], 2),
            ("mixed", 0, &[2, 6, 20], 2),
            ("audit", 0, &[20, 21, 22], 1),
            ("pairs", 0, &[0, 6], 2),
        ],
        Base::Fleeting => &[
            ("orders", 0, &[0, 1, 2], 2),
            ("orders", 1, &[0, 1, 2], 2),
            ("audit", 0, &[0, 1, 2], 1),
            ("pairs", 0, &[0, 2], 1),
        ],
    };
    for (topic, index, on, min) in topics {
        sim.data.create(topic, *index, on, *min, RECORDS);
    }
}

struct Story {
    scenario: Scenario,
}

impl Story {
    fn new(name: &'static str, base: Base) -> Self {
        let scenario = Scenario {
            name,
            base,
            steps: Vec::new(),
            voters: BTreeSet::new(),
            ready: None,
            fewest: 1,
            level: LEVEL,
            is_racy: false,
            or_voters: None,
            reverts: false,
            is_static: false,
            ids_differ: false,
            outdated: 0,
        };
        Self { scenario }
    }

    fn then(mut self, edit: Edit) -> Self {
        self.scenario.steps.push(Step { when: When::AtRest, edit });
        self
    }

    fn and(self, edit: Edit) -> Self {
        self.after(0, 0, edit)
    }

    fn after(mut self, least: u64, most: u64, edit: Edit) -> Self {
        self.scenario.steps.push(Step { when: When::After(least, most), edit });
        self
    }

    fn never_below(mut self, fewest: usize) -> Self {
        self.scenario.fewest = fewest;
        self
    }

    fn changes_mind(mut self) -> Self {
        self.scenario.is_racy = true;
        self
    }

    /// A node restarts to know the controllers that are to vote, and once more when its vote is gone. When both come in the same
    /// moment, one restart does.
    fn restarts_once_or_twice(mut self) -> Self {
        self.scenario.is_racy = true;
        self
    }

    /// Pods stay as they are, because something would be lost otherwise.
    fn holds(mut self, pods: usize) -> Self {
        self.scenario.outdated = pods;
        self
    }

    fn ids_differ(mut self) -> Self {
        self.scenario.ids_differ = true;
        self
    }

    fn or_votes(mut self, voters: &[i32]) -> Self {
        self.scenario.or_voters = Some(voters.iter().copied().map(NodeId).collect());
        self
    }

    fn at_level(mut self, level: i16) -> Self {
        self.scenario.level = level;
        self
    }

    fn ends(mut self, voters: &[i32], ready: usize) -> Scenario {
        self.scenario.voters = voters.iter().copied().map(NodeId).collect();
        self.scenario.ready = Some(ready);
        self.scenario
    }

    /// All that was changed is changed back.
    fn reverted(mut self) -> Scenario {
        self.scenario.reverts = true;
        self.scenario
    }

    fn ends_stuck(mut self, voters: &[i32]) -> Scenario {
        self.scenario.voters = voters.iter().copied().map(NodeId).collect();
        self.scenario
    }
}

/// A story whose steps are changed back at some moment.
pub fn reverted(name: &'static str, base: Base, steps: Vec<Step>) -> Scenario {
    let mut scenario = Story::new(name, base).reverted();
    scenario.steps = steps;
    scenario
}

/// All stories.
pub fn all() -> Vec<Scenario> {
    use Base::*;
    use Edit::*;
    let pool_of = |name, replicas, roles| AddPool(name, replicas, roles, Disks::Disposable);
    let mut all = vec![
        Story::new("create", Nothing).ends(&[3, 4, 5], 6),
        Story::new("controllers-3-5", Small)
            .then(Scale("controllers", 5))
            .never_below(3)
            .ends(&[1, 2, 3, 4, 5], 6),
        Story::new("controllers-3-5-3", Small)
            .then(Scale("controllers", 5))
            .then(Scale("controllers", 3))
            .never_below(3)
            .ends(&[1, 2, 3], 4),
        Story::new("controllers-3-5-3-on-disks-that-stay", Whole)
            .then(Scale("controllers", 5))
            .then(Scale("controllers", 3))
            .never_below(3)
            .ends(&[3, 4, 5], 6),
        Story::new("controllers-3-1-3", Small)
            .then(Scale("controllers", 1))
            .then(Scale("controllers", 3))
            .ends(&[1, 2, 3], 4),
        Story::new("controllers-3-5-reverted", Small)
            .then(Scale("controllers", 5))
            .after(500, 8_000, Scale("controllers", 3))
            .never_below(3)
            .ends(&[1, 2, 3], 4),
        Story::new("pool-added", Small)
            .then(pool_of("more", 2, CONTROLLER))
            .never_below(3)
            .ends(&[1, 2, 3, 4, 5], 6),
        Story::new("pool-replaced", Small)
            .then(pool_of("fresh", 3, CONTROLLER))
            .and(DeletePool("controllers"))
            .never_below(3)
            .ends(&[4, 5, 6], 4),
        // Two containers restart, and none of those that are to take over has started.
        Story::new("pool-replaced-while-no-machine-has-room", Small)
            .then(Full(150_000))
            .and(pool_of("fresh", 3, CONTROLLER))
            .and(DeletePool("controllers"))
            .after(5_000, 10_000, Down(1, 8_000))
            .after(20_000, 30_000, Down(2, 8_000))
            .ends(&[4, 5, 6], 4),
        // The same, and one of them never comes back: its machine is gone, and its disk with it.
        Story::new("pool-replaced-while-a-voter-is-away-for-long", Small)
            .then(Full(200_000))
            .and(pool_of("fresh", 3, CONTROLLER))
            .and(DeletePool("controllers"))
            .after(5_000, 10_000, Down(1, 400_000))
            .after(90_000, 100_000, Down(2, 8_000))
            .ends(&[4, 5, 6], 4),
        Story::new("pool-replaced-ephemeral", Ephemeral)
            .then(AddPool("fresh", 3, CONTROLLER, Disks::Ephemeral))
            .and(DeletePool("controllers"))
            // The only broker has to restart, to learn of the new controllers, and what it has goes with its pod.
            .then(AllowLoss("c-brokers-0"))
            .never_below(3)
            .ends(&[4, 5, 6], 4),
        Story::new("role-added-and-removed", Whole)
            .then(Roles("brokers", BOTH))
            .then(Roles("brokers", BROKER))
            .never_below(3)
            .ends(&[3, 4, 5], 6),
        Story::new("combined-to-separate", Combined)
            .then(pool_of("voters", 3, CONTROLLER))
            .and(Roles("both", BROKER))
            .never_below(3)
            .ends(&[3, 4, 5], 6),
        Story::new("separate-to-combined", Combined)
            .then(pool_of("voters", 3, CONTROLLER))
            .and(Roles("both", BROKER))
            .then(Roles("both", BOTH))
            .and(DeletePool("voters"))
            .never_below(3)
            .ends(&[0, 1, 2], 3),
        Story::new("brokers-up-and-down", Spare)
            .then(Scale("brokers", 5))
            .then(Scale("brokers", 3))
            .ends(&[4], 4),
        Story::new("broker-with-partitions-stays", Spare).then(Scale("brokers", 2)).ends(&[4], 5 - 1),
        Story::new("configuration", Whole)
            .then(Configure("queued.max.requests", 300))
            .never_below(3)
            .ends(&[3, 4, 5], 6),
        Story::new("configuration-combined", Combined)
            .then(Configure("queued.max.requests", 300))
            .never_below(3)
            .ends(&[0, 1, 2], 3),
        Story::new("configured-while-running", Whole)
            .then(Configure("num.io.threads", 3))
            .then(Unset("num.io.threads"))
            .then(Configure("num.io.threads", 4))
            .never_below(3)
            .ends(&[3, 4, 5], 6),
        Story::new("configured-both-ways", Combined)
            .then(Configure("num.io.threads", 3))
            .and(Configure("queued.max.requests", 300))
            .then(Unset("num.io.threads"))
            .and(Configure("min.insync.replicas", 1))
            .never_below(3)
            .ends(&[0, 1, 2], 3),
        Story::new("configured-and-reverted", Whole)
            .then(Configure("num.io.threads", 3))
            .after(0, 1_000, Unset("num.io.threads"))
            .changes_mind()
            .ends(&[3, 4, 5], 6),
        Story::new("upgrade", Whole).then(Version("4.2.1")).at_level(29).ends(&[3, 4, 5], 6),
        Story::new("upgrade-reverted", Combined)
            .then(Version("4.2.1"))
            .after(200, 2_000, Version("4.1.1"))
            .changes_mind()
            .ends(&[0, 1, 2], 3),
        Story::new("disks-grow", Small).then(Grow("controllers", "2Gi")).ends(&[1, 2, 3], 4),
        Story::new("brokers-replaced", Spare)
            .then(pool_of("fresh", 1, BROKER))
            .and(Scale("brokers", 3))
            .after(0, 5_000, Scale("brokers", 4))
            .changes_mind()
            .ids_differ()
            .ends(&[4], 6),
        Story::new("manual-roll", Whole).then(Roll("brokers")).and(Roll("controllers")).ends(&[3, 4, 5], 6),
        Story::new("controller-emptied", Small).then(Empty(2)).ends(&[1, 2, 3], 4),
        Story::new("controllers-emptied", Small)
            .then(Empty(1))
            .and(Empty(2))
            .and(Empty(3))
            .ends(&[1, 2, 3], 4),
        Story::new("broker-emptied", Whole).then(Empty(1)).ends(&[3, 4, 5], 6),
        Story::new("disk-lost", Small).then(LoseDisk(2)).ends(&[1, 2, 3], 4),
        Story::new("disk-lost-ephemeral", Ephemeral).then(DeletePod(2)).ends(&[1, 2, 3], 4),
        Story::new("claim-deleted-by-hand", Small).then(DeletePodAndClaim(3)).ends(&[1, 2, 3], 4),
        Story::new("two-disks-lost", Small).then(LoseDisk(2)).and(LoseDisk(3)).ends_stuck(&[1, 2, 3]),
        Story::new("two-disks-lost-power-cut", Small)
            .then(PowerCut)
            .and(LoseDisk(2))
            .and(LoseDisk(3))
            .after(0, 5_000, PowerCut)
            .ends_stuck(&[1, 2, 3]),
        Story::new("scaled-down-and-back-on-empty-disks", Small)
            .then(Scale("controllers", 1))
            .then(Scale("controllers", 3))
            .then(PowerCut)
            .ends(&[1, 2, 3], 4),
        Story::new("role-removed-during-power-cut", Combined)
            .then(pool_of("voters", 3, CONTROLLER))
            .and(Roles("both", BROKER))
            // Whether a broker restarts for new addresses or by the power cut is a matter of moments.
            .after(0, 10_000, PowerCut)
            .changes_mind()
            .ends(&[3, 4, 5], 6),
        Story::new("scaled-down-while-two-are-down", Small)
            .then(Scale("controllers", 5))
            .then(Down(1, 90_000))
            .and(Down(2, 90_000))
            .after(10_000, 20_000, Scale("controllers", 3))
            .ends(&[1, 2, 3], 4),
        Story::new("configured-while-one-is-down", Small)
            .then(Down(2, 60_000))
            .after(8_000, 20_000, Configure("queued.max.requests", 300))
            .ends(&[1, 2, 3], 4),
        Story::new("power-cut", Whole).then(PowerCut).ends(&[3, 4, 5], 6),
        Story::new("paused-and-resumed", Small)
            .then(Pause(true))
            .then(Scale("controllers", 5))
            .and(DeletePod(2))
            .then(Pause(false))
            .never_below(3)
            .ends(&[1, 2, 3, 4, 5], 6),
        Story::new("paused-in-the-middle", Small)
            .then(Scale("controllers", 5))
            .after(0, 8_000, Pause(true))
            .after(0, 8_000, Scale("controllers", 3))
            .then(Pause(false))
            .changes_mind()
            .never_below(3)
            .ends(&[1, 2, 3], 4),
        Story::new("broker-moved", Spare)
            .then(pool_of("fresh", 1, BROKER))
            .then(Steer("brokers", REMOVE_IDS_ANNOTATION, "[3]"))
            .and(Steer("fresh", NEXT_IDS_ANNOTATION, "[3]"))
            .and(Scale("brokers", 3))
            .and(Scale("fresh", 2))
            .ids_differ()
            .ends(&[4], 6),
        Story::new("controller-moved", Small)
            .then(pool_of("fresh", 1, CONTROLLER))
            .then(Steer("controllers", REMOVE_IDS_ANNOTATION, "[3]"))
            .and(Steer("fresh", NEXT_IDS_ANNOTATION, "[3]"))
            .and(Scale("controllers", 2))
            .and(Scale("fresh", 2))
            // Whoever hears of the new pool first finds the id in use, and takes the next one.
            .ids_differ()
            .or_votes(&[1, 2, 4, 5])
            .ends(&[1, 2, 3, 4], 5),
        Story::new("virtual-pool", Virtual)
            .then(Configure("queued.max.requests", 300))
            .never_below(3)
            .ends(&[0, 1, 2], 3),
        Story::new("virtual-pool-converted", Virtual)
            .then(AddPool("kafka", 3, BOTH, Disks::Kept))
            .then(UsePools)
            .then(pool_of("voters", 3, CONTROLLER))
            .and(Roles("kafka", BROKER))
            .restarts_once_or_twice()
            .never_below(3)
            .ends(&[3, 4, 5], 6),
    ];
    all.extend(fixed::stories());
    all.extend(disks::stories());
    all.extend(authorities::stories());
    all.extend(brokers::stories());
    all.extend(policies::stories());
    all.extend(others::stories());
    all
}
