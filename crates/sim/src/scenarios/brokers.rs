//! Stories of records: brokers that move, restart, are emptied and recover, and what lies on their disks.

use karst_core::names::{NEXT_IDS_ANNOTATION, REMOVE_IDS_ANNOTATION};

use super::Edit::{
    AddTopic, AllowLoss, Apply, Configure, Crash, CrashAnew, CutOff, DeleteClaim, DeletePod, DeletePool,
    Down, Empty, FailDirectory, KeepClaims, LoseDisk, Mark, Memory, OperatorDown, OperatorDownUnlisting,
    PowerCut, PullAnew, Reassign, Roll, Scale, Slow, Starve, Steer, Unset, Wait,
};
use super::{Base, Edit, Scenario, Story};

/// A setting that needs a restart.
const RESTARTS: Edit = Configure("queued.max.requests", 300);

/// All nodes of the pool `small` go to the pool `brokers`, in one file.
const MOVED: Edit = Apply(&[
    Steer("small", REMOVE_IDS_ANNOTATION, "[20-22]"),
    Scale("small", 0),
    Steer("brokers", NEXT_IDS_ANNOTATION, "[20-22]"),
    Scale("brokers", 7),
]);

/// Only one of the pools says so: the ids are taken.
const TAKEN: Edit =
    Apply(&[Scale("small", 0), Steer("brokers", NEXT_IDS_ANNOTATION, "[20-22]"), Scale("brokers", 7)]);

pub(super) fn stories() -> Vec<Scenario> {
    let mut all = moved();
    all.extend(filled_while_leaving());
    all.extend(restarted());
    all.extend(emptied());
    all.extend(ephemeral());
    all.extend(disturbed());
    all.extend(eligible());
    all.extend(idle());
    all
}

fn moved() -> Vec<Scenario> {
    let new = |name| Story::new(name, Base::Moving).never_below(3);
    vec![
        new("brokers-moved-together").then(MOVED).ids_differ().ends(&[3, 4, 5], 10),
        new("brokers-moved-together-ids-in-one-pool-only").then(TAKEN).ids_differ().ends(&[3, 4, 5], 13),
        new("brokers-moved-away-then-gone")
            .then(Reassign(20, &[0, 1, 6]))
            .and(Reassign(21, &[0, 1, 6]))
            .and(Reassign(22, &[0, 1, 2, 6]))
            .then(DeletePool("small"))
            .ends(&[3, 4, 5], 7),
        Story::new("brokers-drained", Base::Spare)
            .then(Scale("brokers", 5))
            .then(AddTopic("late", &[3, 5], 1))
            .then(Reassign(3, &[0, 1, 2]))
            .and(Reassign(5, &[0, 1, 2]))
            .after(0, 2_000, Scale("brokers", 3))
            .ends(&[4], 4),
        Story::new("claims-kept-at-last", Base::Spare)
            .then(Apply(&[KeepClaims("brokers"), Scale("brokers", 3)]))
            .ends(&[4], 4),
    ]
}

/// Longer than Kafka, and users, need to put something on a broker that is to go.
const NOBODY: u64 = 60_000;

/// A node is no longer listed, its pod is still there, and no operator runs. Then it gets the only copy of something.
fn filled_while_leaving() -> Vec<Scenario> {
    let filled = |name| {
        Story::new(name, Base::Spare)
            .then(OperatorDownUnlisting(NOBODY))
            .and(Scale("brokers", 3))
            .after(15_000, 20_000, AddTopic("late", &[3], 1))
            .changes_mind()
    };
    vec![
        filled("broker-gets-a-topic-while-it-leaves-and-nobody-looks")
            .after(60_000, 70_000, Wait)
            .then(Scale("brokers", 4))
            .ends(&[4], 5),
        // Its pod goes all the same, and its disk and its registration are what is left. Both are needed.
        filled("broker-gets-a-topic-and-loses-its-pod-while-nobody-looks")
            .after(10_000, 15_000, DeletePod(3))
            .after(50_000, 60_000, Wait)
            .then(Scale("brokers", 4))
            .ends(&[4], 5),
        Story::new("brokers-scaled-and-configured-while-nobody-looks", Base::Spare)
            .then(OperatorDown(NOBODY))
            .after(5_000, 10_000, Scale("brokers", 3))
            .and(RESTARTS)
            // Whether the one that goes is restarted before depends on what is heard of first.
            .changes_mind()
            .ends(&[4], 4),
    ]
}

fn restarted() -> Vec<Scenario> {
    vec![
        Story::new("topics-that-need-every-copy-restarted", Base::Whole)
            .then(AddTopic("strict", &[0, 1, 2], 3))
            .and(AddTopic("both", &[0, 1], 2))
            .and(AddTopic("alone", &[2], 1))
            .then(Roll("brokers"))
            .ends(&[3, 4, 5], 6),
        Story::new("topics-that-need-every-copy-configured", Base::Combined)
            .then(AddTopic("strict", &[0, 1, 2], 3))
            .and(AddTopic("both", &[1, 2], 2))
            .then(RESTARTS)
            .then(Unset("queued.max.requests"))
            .ends(&[0, 1, 2], 3),
        Story::new("claim-deleted-then-marked", Base::Whole)
            .then(DeleteClaim(0))
            .after(7_000, 12_000, Mark(0))
            .ends(&[3, 4, 5], 6),
        Story::new("claim-deleted-then-configured", Base::Whole)
            .then(DeleteClaim(0))
            .after(7_000, 12_000, RESTARTS)
            .holds(1)
            .ends(&[3, 4, 5], 6),
        Story::new("claims-deleted-then-rolled", Base::Moving)
            .then(DeleteClaim(20))
            .and(DeleteClaim(21))
            .and(DeleteClaim(22))
            .after(7_000, 12_000, Roll("small"))
            .ends(&[3, 4, 5], 10),
        Story::new("broker-recovers-and-is-configured", Base::Whole)
            .then(Crash(1))
            .after(0, 1_000, RESTARTS)
            .changes_mind()
            .ends(&[3, 4, 5], 6),
        Story::new("brokers-recover-and-are-configured", Base::Whole)
            .then(PowerCut)
            .after(0, 3_000, RESTARTS)
            .changes_mind()
            .ends(&[3, 4, 5], 6),
    ]
}

fn emptied() -> Vec<Scenario> {
    vec![
        Story::new("three-brokers-emptied", Base::Moving)
            .then(Apply(&[Empty(20), Empty(21), Empty(22)]))
            .ends(&[3, 4, 5], 10),
        Story::new("directory-failed-then-configured", Base::Whole)
            .then(FailDirectory(2))
            .after(500, 3_000, RESTARTS)
            .then(Reassign(2, &[]))
            .then(Empty(2))
            .changes_mind()
            .ends(&[3, 4, 5], 6),
    ]
}

fn ephemeral() -> Vec<Scenario> {
    let single = |name| Story::new(name, Base::Brittle).never_below(3).then(RESTARTS);
    vec![
        Story::new("ephemeral-brokers-configured", Base::Fleeting).then(RESTARTS).ends(&[3, 4, 5], 6),
        Story::new("ephemeral-brokers-with-topics-that-need-every-copy", Base::Fleeting)
            .then(AddTopic("strict", &[0, 1, 2], 3))
            .and(AddTopic("both", &[0, 1], 2))
            .then(RESTARTS)
            .ends(&[3, 4, 5], 6),
        Story::new("ephemeral-brokers-get-memory", Base::Fleeting).then(Memory("2Gi")).ends(&[3, 4, 5], 6),
        Story::new("ephemeral-brokers-rolled", Base::Fleeting)
            .then(Roll("brokers"))
            .after(0, 20_000, Roll("brokers"))
            .changes_mind()
            .ends(&[3, 4, 5], 6),
        single("single-ephemeral-broker-configured").holds(1).ends(&[1, 2, 3], 4),
        single("single-ephemeral-broker-may-be-lost").then(AllowLoss("c-brokers-0")).ends(&[1, 2, 3], 4),
        Story::new("three-ephemeral-controllers-configured", Base::Three)
            .then(RESTARTS)
            .never_below(2)
            .ends(&[1, 2, 3], 4),
        Story::new("three-ephemeral-controllers-rolled", Base::Three)
            .then(Roll("controllers"))
            .never_below(2)
            .ends(&[1, 2, 3], 4),
        Story::new("two-ephemeral-controllers-configured", Base::Two).then(RESTARTS).ends(&[1, 2], 3),
        Story::new("two-ephemeral-controllers-rolled", Base::Two).then(Roll("controllers")).ends(&[1, 2], 3),
        Story::new("ephemeral-nodes-crash-then-get-memory", Base::Ephemeral)
            .then(Starve)
            .after(20_000, 60_000, Memory("2Gi"))
            .ends_stuck(&[1, 2, 3]),
        Story::new("ephemeral-brokers-crash-then-get-memory", Base::Fleeting)
            .then(Starve)
            .after(20_000, 60_000, Memory("2Gi"))
            .ends_stuck(&[3, 4, 5]),
    ]
}

fn disturbed() -> Vec<Scenario> {
    vec![
        Story::new("configured-while-a-broker-lags", Base::Whole)
            .then(Slow(1, 30_000))
            .after(5_000, 20_000, RESTARTS)
            .changes_mind()
            .ends(&[3, 4, 5], 6),
        Story::new("configured-while-a-broker-is-cut-off", Base::Whole)
            .then(CutOff(1, 30_000))
            .after(5_000, 20_000, RESTARTS)
            .changes_mind()
            .ends(&[3, 4, 5], 6),
        Story::new("emptied-while-a-broker-is-cut-off", Base::Fleeting)
            .then(CutOff(1, 25_000))
            .after(2_000, 15_000, Roll("brokers"))
            .then(Wait)
            .changes_mind()
            .ends(&[3, 4, 5], 6),
    ]
}

/// Nothing runs in a pod, and its claim, which is full of records, is deleted: Kubernetes keeps it as long as that pod is there.
fn idle() -> Vec<Scenario> {
    let deleted = |story: Story, node| story.after(20_000, 30_000, DeleteClaim(node));
    let all = |story: Story| story.and(DeleteClaim(1)).and(DeleteClaim(2));
    vec![
        deleted(Story::new("new-broker-crashes-then-gets-memory", Base::Whole).then(CrashAnew(0)), 0)
            .after(7_000, 12_000, Memory("2Gi"))
            .changes_mind()
            .ends_stuck(&[3, 4, 5]),
        all(deleted(
            Story::new("new-brokers-crash-then-get-memory", Base::Whole)
                .then(CrashAnew(0))
                .and(CrashAnew(1))
                .and(CrashAnew(2)),
            0,
        ))
        .after(7_000, 12_000, Memory("2Gi"))
        .changes_mind()
        .ends_stuck(&[3, 4, 5]),
        deleted(Story::new("new-broker-has-no-image", Base::Whole).then(PullAnew(0)), 0)
            .ends_stuck(&[3, 4, 5]),
        all(deleted(
            Story::new("new-brokers-have-no-image", Base::Whole)
                .then(PullAnew(0))
                .and(PullAnew(1))
                .and(PullAnew(2)),
            0,
        ))
        .ends_stuck(&[3, 4, 5]),
        deleted(Story::new("new-broker-has-no-image-and-may-be-lost", Base::Whole).then(PullAnew(0)), 0)
            .after(7_000, 12_000, AllowLoss("c-brokers-0"))
            .ends(&[3, 4, 5], 6),
        deleted(Story::new("new-broker-has-no-image-and-no-partitions", Base::Spare).then(PullAnew(3)), 3)
            .ends(&[4], 5),
        // A voter that is away leaves when it has been away for long.
        deleted(Story::new("new-controller-has-no-image", Base::Small).then(PullAnew(2)), 2)
            .after(100_000, 110_000, Wait)
            .ends(&[1, 2, 3], 4),
        Story::new("emptied-and-taken-back", Base::Whole)
            .then(Apply(&[AllowLoss("c-brokers-0"), Empty(0)]))
            .after(0, 3_000, AllowLoss(""))
            .changes_mind()
            .ends(&[3, 4, 5], 6),
    ]
}

/// How long a broker stays away: until after whatever is asked of it meanwhile.
const AWAY: u64 = 60_000;

/// A replica that is not in sync, and eligible, has the only complete copy, and its disk is to go. (Its ISR shrank to another broker,
/// and that one's disk is lost: nobody leads.)
fn eligible() -> Vec<Scenario> {
    let of_two = |name: &'static str, base: Base, away: i32, lost: i32| {
        Story::new(name, base)
            .then(AddTopic("both", if away == 20 { &[20, 21] } else { &[0, 1] }, 2))
            .then(Down(away, AWAY))
            // By then it is missed.
            .after(11_000, 13_000, LoseDisk(lost))
            .changes_mind()
    };
    vec![
        of_two("only-copy-is-eligible-and-emptied", Base::Whole, 1, 0)
            .after(4_000, 15_000, Empty(1))
            .ends(&[3, 4, 5], 6),
        of_two("only-copy-is-eligible-and-moved", Base::Moving, 20, 21)
            .after(4_000, 15_000, MOVED)
            .ids_differ()
            .ends(&[3, 4, 5], 10),
        of_two("only-copy-is-eligible-on-an-ephemeral-disk", Base::Fleeting, 1, 0)
            .after(4_000, 15_000, RESTARTS)
            .ends(&[3, 4, 5], 6),
        Story::new("eligible-replicas-emptied-together", Base::Moving)
            .then(Down(20, AWAY))
            .and(Down(21, AWAY))
            .after(11_000, 13_000, LoseDisk(22))
            .after(4_000, 15_000, Apply(&[Empty(20), Empty(21), Empty(22)]))
            .changes_mind()
            .ends(&[3, 4, 5], 10),
    ]
}
