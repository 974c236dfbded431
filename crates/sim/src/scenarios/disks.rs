//! Stories of disks that outlive their resources, and of clusters that outlive their disks.

use karst_api::Kafka;
use karst_core::ids::NodeId;

use super::Edit::{
    AddPool, CreateKafka, DeleteKafka, DeletePod, DeletePodAndClaim, DeletePool, Down, LoseDisk, PowerCut,
    Restore, Scale, Wait,
};
use super::{BOTH, BROKER, Base, CONTROLLER, Disks, Scenario, Story};
use crate::sim::Sim;

/// Longer than a quorum must have been without a leader before a voter may be restored.
const LONG: (u64, u64) = (70_000, 90_000);

/// The disk with which a node voted when the quorum was last seen.
fn last_directory(kafka: &Kafka, node: i32) -> Option<String> {
    let voters = kafka.status.as_ref()?.quorum.as_ref()?.voters.as_ref()?;
    voters.iter().find(|voter| voter.id == Some(node))?.directory_id.clone()
}

/// The first of two lost voters that did not lead last, which a person can have restored, and the disk with which it voted.
pub(super) fn restorable(kafka: &Kafka, lost: [i32; 2]) -> Option<(i32, String)> {
    let leader = kafka.status.as_ref()?.quorum.as_ref()?.leader;
    let node = lost.into_iter().find(|node| leader != Some(*node))?;
    Some((node, last_directory(kafka, node)?))
}

/// A person names a voter with the disk that the status remembers: from now on it may vote under that name on another one.
pub(super) fn allow_restoration(sim: &mut Sim, lost: [i32; 2]) {
    let restored = sim.api.kafka().and_then(|kafka| restorable(kafka, lost));
    let Some((node, directory)) = restored else { return };
    sim.watch.restorable.insert(NodeId(node));
    if let Ok(directory) = directory.parse() {
        sim.kubelet.retired.remove(&directory);
    }
}

impl Story {
    fn after_long(self, edit: super::Edit) -> Self {
        self.after(LONG.0, LONG.1, edit)
    }
}

pub(super) fn stories() -> Vec<Scenario> {
    let mut all = recreated();
    all.extend(forgotten());
    all.extend(lost());
    all
}

/// The `Kafka` resource goes, and its pools stay and remember.
fn recreated() -> Vec<Scenario> {
    vec![
        Story::new("recreated", Base::Combined).then(DeleteKafka).then(CreateKafka).ends(&[0, 1, 2], 3),
        Story::new("recreated-at-once", Base::Combined)
            .then(DeleteKafka)
            .after(0, 4_000, CreateKafka)
            .changes_mind()
            .ends(&[0, 1, 2], 3),
        Story::new("recreated-separate", Base::Lasting)
            .then(DeleteKafka)
            .then(CreateKafka)
            .ends(&[1, 2, 3], 4),
        // Nothing is left but the id that the pools remember.
        Story::new("recreated-without-disks", Base::Small)
            .then(DeleteKafka)
            .then(CreateKafka)
            .ends(&[1, 2, 3], 4),
    ]
}

/// All resources go, and only disks stay.
fn forgotten() -> Vec<Scenario> {
    let both = AddPool("both", 3, BOTH, Disks::Kept);
    let brokers = AddPool("brokers", 1, BROKER, Disks::Kept);
    let controllers = AddPool("controllers", 3, CONTROLLER, Disks::Kept);
    let gone = |name| Story::new(name, Base::Combined).then(DeleteKafka).and(DeletePool("both"));
    let separate_gone =
        |story: Story| story.then(DeleteKafka).and(DeletePool("brokers")).and(DeletePool("controllers"));
    vec![
        gone("forgotten").then(CreateKafka).and(both.clone()).ends(&[0, 1, 2], 3),
        gone("forgotten-pools-first").then(both.clone()).then(CreateKafka).ends(&[0, 1, 2], 3),
        gone("forgotten-and-one-disk-lost")
            .then(DeletePodAndClaim(1))
            .then(CreateKafka)
            .and(both.clone())
            .ends(&[0, 1, 2], 3),
        gone("forgotten-and-two-disks-lost")
            .then(DeletePodAndClaim(1))
            .and(DeletePodAndClaim(2))
            .then(CreateKafka)
            .and(both)
            .after_long(Wait)
            .ends_stuck(&[0, 1, 2]),
        separate_gone(Story::new("forgotten-separate", Base::Lasting))
            .then(CreateKafka)
            .and(brokers.clone())
            .and(controllers.clone())
            .ends(&[1, 2, 3], 4),
        // Disks of nodes that left the quorum are there too: nobody knows which, so all of them come back first.
        separate_gone(
            Story::new("forgotten-after-scaling", Base::Lasting)
                .then(Scale("controllers", 5))
                .then(Scale("controllers", 3)),
        )
        .then(CreateKafka)
        .and(brokers)
        .and(controllers)
        .then(Scale("controllers", 5))
        .then(Scale("controllers", 3))
        .ends(&[1, 2, 3], 4),
    ]
}

/// Disks go, and with them the majority.
fn lost() -> Vec<Scenario> {
    let two_lost = |name| Story::new(name, Base::Small).then(LoseDisk(2)).and(LoseDisk(3));
    let all_deleted = |name| {
        let story = Story::new(name, Base::Ephemeral).then(DeletePod(1));
        story.and(DeletePod(2)).and(DeletePod(3))
    };
    vec![
        all_deleted("all-ephemeral-disks-lost").and(DeletePod(0)).after_long(Wait).ends(&[1, 2, 3], 4),
        all_deleted("all-ephemeral-disks-lost-twice")
            .and(DeletePod(0))
            .after_long(Wait)
            .then(DeletePod(0))
            .and(DeletePod(1))
            .and(DeletePod(2))
            .and(DeletePod(3))
            .after_long(Wait)
            .ends(&[1, 2, 3], 4),
        // What the broker remembers is not thrown away by itself.
        all_deleted("all-ephemeral-controllers-lost").after_long(Wait).ends_stuck(&[1, 2, 3]),
        two_lost("voter-restored").after_long(Restore([2, 3])).after_long(Wait).ends(&[1, 2, 3], 4),
        two_lost("voter-restored-then-power-cut")
            .after_long(Restore([2, 3]))
            .after(0, 8_000, PowerCut)
            .after_long(Wait)
            .changes_mind()
            .ends(&[1, 2, 3], 4),
        // Two that were restored could forget what the intact one knows.
        two_lost("voters-restored-while-the-intact-one-is-down")
            .and(Down(1, 200_000))
            .after_long(Restore([2, 3]))
            .after(5_000, 15_000, Restore([3, 2]))
            .after(100_000, 110_000, Wait)
            .after_long(Wait)
            .changes_mind()
            .ends(&[1, 2, 3], 4),
    ]
}
