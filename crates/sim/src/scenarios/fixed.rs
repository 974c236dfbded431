//! Stories of static quorums, as older operators made them: run as they are, and migrated.

use karst_api as api;
use karst_core::ids::{Entropy, NodeId};

use super::Edit::{AddPool, Configure, DeletePool, Down, LoseDisk, Migrate, PowerCut, Scale};
use super::{Base, CLUSTER, CONTROLLER, Disks, Scenario, Story};
use crate::kraft::Disk;
use crate::sim::Sim;

/// The id that somebody formatted the disks with.
const CLUSTER_ID: &str = "c3RhdGljIHF1b3J1bQ";

/// Puts the disks of a static quorum into the world, and what is known of it into its resource: its id.
pub(super) fn found(sim: &mut Sim, kafka: &mut api::Kafka) {
    let status = api::KafkaStatus { cluster_id: Some(CLUSTER_ID.to_owned()), ..api::KafkaStatus::default() };
    kafka.status = Some(status);
    sim.data.has_eligible = false;
    for node in 0..3 {
        let pod = format!("{CLUSTER}-both-{node}");
        let claim = sim.api.create_claim(&format!("data-{pod}"), &pod, "both", CLUSTER);
        let directory = Entropy([7; 32]).directory_id(NodeId(node));
        let disk = Disk { is_static: true, ..Disk::formatted(directory, CLUSTER_ID.to_owned(), None) };
        sim.quorum.disks.insert(claim, disk);
    }
}

/// What another operator wrote down of its nodes.
pub(super) fn pool_status() -> api::KafkaNodePoolStatus {
    api::KafkaNodePoolStatus {
        node_ids: Some(vec![0, 1, 2]),
        cluster_id: Some(CLUSTER_ID.to_owned()),
        ..api::KafkaNodePoolStatus::default()
    }
}

impl Story {
    /// The voters are in the settings of nodes to the end.
    fn stays_static(mut self) -> Self {
        self.scenario.is_static = true;
        self
    }
}

pub(super) fn stories() -> Vec<Scenario> {
    let more = AddPool("more", 2, CONTROLLER, Disks::Disposable);
    let new = |name| Story::new(name, Base::Static).never_below(3);
    vec![
        new("static").then(Configure("queued.max.requests", 300)).stays_static().ends(&[0, 1, 2], 3),
        // A static quorum cannot have another voter.
        new("static-not-scaled")
            .then(Scale("both", 4))
            .then(Configure("queued.max.requests", 300))
            .then(Scale("both", 3))
            .and(more.clone())
            .then(DeletePool("more"))
            .stays_static()
            .ends(&[0, 1, 2], 3),
        new("static-disk-lost").then(LoseDisk(2)).stays_static().ends(&[0, 1, 2], 3),
        // Two empty voters would elect each other. They wait, and a person may decide.
        Story::new("static-two-disks-lost", Base::Static)
            .then(LoseDisk(1))
            .and(LoseDisk(2))
            .stays_static()
            .ends_stuck(&[0, 1, 2]),
        Story::new("static-two-disks-lost-in-a-power-cut", Base::Static)
            .then(PowerCut)
            .and(LoseDisk(1))
            .and(LoseDisk(2))
            .after(0, 5_000, PowerCut)
            .stays_static()
            .ends_stuck(&[0, 1, 2]),
        new("static-power-cut").then(PowerCut).stays_static().ends(&[0, 1, 2], 3),
        new("static-migrated").then(Migrate).ends(&[0, 1, 2], 3),
        new("static-migrated-and-scaled")
            .then(Migrate)
            .then(more)
            .then(DeletePool("more"))
            .ends(&[0, 1, 2], 3),
        new("static-migrated-and-disk-lost").then(Migrate).then(LoseDisk(1)).ends(&[0, 1, 2], 3),
        new("static-migrated-while-one-is-down")
            .then(Down(1, 40_000))
            .after(8_000, 15_000, Migrate)
            .ends(&[0, 1, 2], 3),
        // Which of the nodes were restarted by then is a matter of moments.
        new("static-migrated-during-power-cuts")
            .then(Migrate)
            .after(0, 2_000, PowerCut)
            .after(5_000, 20_000, PowerCut)
            .changes_mind()
            .ends(&[0, 1, 2], 3),
    ]
}
