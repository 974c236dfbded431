//! A taste of each campaign. `cargo xtask test` runs many more, optimised; still more: `cargo xtask sim --campaign a|b|c|d|e|f`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use karst_sim::campaigns::{Chance, Starts, Tally, crash_every_call, crash_into_the_past, random_many};
use karst_sim::explore::{explore, plots};
use karst_sim::faults::Faults;
use karst_sim::scenarios;
use karst_sim::shrink::Case;

fn assert_nothing_found(tally: &Tally) {
    if let Some(first) = tally.findings.first() {
        panic!("{} of {} runs went wrong; the first:\n{first}", tally.findings.len(), tally.runs);
    }
}

/// How many calls of a story are passed over for each that is crashed. The binary's campaign crashes every one.
const STRIDE: usize = 397;
/// The same where each call is crashed in more ways, in every so-manieth story.
const LONG_STRIDE: usize = 397;
const STORIES: usize = 6;
/// How many events in a row.
const DEPTH: usize = 5;

fn random(chance: Chance, runs: u64) {
    let tally = random_many(chance, &scenarios::all(), 1..runs + 1, 1);
    assert_nothing_found(&tally);
    assert_eq!(u64::try_from(tally.runs), Ok(runs));
}

#[test]
fn a_crash_at_any_call_of_any_story_changes_nothing_in_the_end() {
    let mut starts = Starts::default();
    let mut tally = Tally::default();
    for scenario in scenarios::all() {
        tally.add(crash_every_call(&mut starts, &scenario, 7, STRIDE));
    }
    assert!(tally.runs > 100, "{} runs", tally.runs);
    assert_nothing_found(&tally);
}

#[test]
fn an_operator_that_wakes_up_in_the_past_breaks_nothing() {
    let mut starts = Starts::default();
    let mut tally = Tally::default();
    for scenario in scenarios::all().into_iter().step_by(STORIES) {
        tally.add(crash_into_the_past(&mut starts, &scenario, 7, LONG_STRIDE));
    }
    assert!(tally.runs > 30, "{} runs", tally.runs);
    assert_nothing_found(&tally);
}

#[test]
fn two_operators_that_both_believe_to_lead_break_nothing() {
    random(Chance::TwoOperators, 10);
}

#[test]
fn random_faults_break_nothing() {
    random(Chance::Faults, 10);
}

/// Kafka's own fault: whoever removes a voter may lose the leader in the same moment.
#[test]
fn a_leader_that_dies_of_each_removal_breaks_nothing() {
    let names = ["controllers-3-5-reverted", "pool-replaced", "combined-to-separate", "controllers-emptied"];
    let mut starts = Starts::default();
    let faults = Faults { answers: 5_000, until: 120_000, interleaves: true, ..Faults::default() };
    for scenario in scenarios::all().into_iter().filter(|one| names.contains(&one.name)) {
        let mut deaths = 0;
        for seed in 0..6 {
            let case = Case { scenario: scenario.clone(), seed, faults: faults.clone() };
            let report = case.run(starts.of(scenario.base), false);
            assert_eq!(report.broken, None, "{} seed {seed}", scenario.name);
            deaths += report.struck.len();
        }
        assert!(deaths > 0, "{}: no leader died", scenario.name);
    }
}

/// A disk is lost, and the operator dies, in the moment after the quorum was formed.
#[test]
fn a_first_voter_that_loses_its_disk_at_once_does_not_vote_under_its_old_name() {
    one_run(Chance::Faults, "recreated-at-once", 2_005_772);
}

fn one_run(chance: Chance, story: &str, seed: u64) {
    let mut stories = scenarios::all();
    stories.retain(|one| story.is_empty() || one.name == story);
    let tally = random_many(chance, &stories, seed..seed + 1, 1);
    assert_nothing_found(&tally);
    assert_eq!(tally.runs, 1);
}

/// A cluster is deleted and created again at once, and its authority goes in between: a node without a certificate waits for the restarts
/// of the others, and is the only one that could lead some partitions.
#[test]
fn a_node_without_a_certificate_gets_one_though_partitions_wait_for_it() {
    one_run(Chance::Faults, "recreated-at-once", 5_404_034);
}

/// A broker has read its logs and serves, and Kafka's word is from a moment before.
#[test]
fn a_broker_that_has_just_come_back_is_not_emptied_while_its_partitions_need_it() {
    one_run(Chance::Faults, "eligible-replicas-emptied-together", 7_089);
}

/// A person restores a voter in the moment in which its pod was deleted, and the operator, whose watch fell silent, has not made it again.
#[test]
fn a_voter_is_restored_when_its_pod_has_been_made_again() {
    one_run(Chance::Faults, "voters-restored-while-the-intact-one-is-down", 14_939);
}

/// Of two operators one does not know that a controller on an ephemeral disk has been replaced, and has joined again.
#[test]
fn no_controller_leaves_for_the_sake_of_a_pod_that_is_gone() {
    one_run(Chance::TwoOperators, "three-ephemeral-controllers-rolled", 7_000_018);
}

/// While the controllers had no leader a copy fell behind, and nobody could be told.
#[test]
fn no_broker_restarts_before_a_new_leader_was_told_who_fell_behind() {
    one_run(Chance::Faults, "configured-while-a-broker-lags", 9_014_539);
}

/// A watch on claims is silent while somebody deletes one, and allows what that costs.
#[test]
fn what_a_person_allows_is_not_taken_back_on_an_old_view_of_claims() {
    one_run(Chance::Faults, "new-broker-has-no-image-and-may-be-lost", 9_020_873);
}

/// A disk is lost in the moment in which a static quorum becomes a dynamic one.
#[test]
fn a_disk_that_is_lost_during_a_migration_is_nobodys_fault() {
    one_run(Chance::Faults, "static-migrated-and-scaled", 9_016_760);
}

/// Of two operators one signs with a key of the authority that somebody has just deleted, and that the other one has replaced.
#[test]
fn a_key_that_was_deleted_before_it_signed_anything_cuts_nobody_off() {
    one_run(Chance::TwoOperators, "authority-deleted-twice", 908);
}

/// Of two operators one takes a setting off the list of those that Kafka was told, while the other one tells it.
#[test]
fn what_another_operator_told_kafka_is_taken_back_in_the_end() {
    for seed in [7_000_884, 7_004_768, 20_104, 20_201, 22_615] {
        one_run(Chance::TwoOperators, "configured-and-reverted", seed);
    }
}

/// The power goes in the moment in which a broker that moves to another pool is told to stop.
#[test]
fn a_broker_that_led_last_does_not_start_empty_in_another_pool() {
    for seed in [10_667, 18_407, 9_013] {
        one_run(Chance::Faults, "brokers-moved-together", seed);
    }
}

/// A broker without partitions reads its logs anew in the moment in which it is to be none any more.
#[test]
fn what_is_to_be_no_broker_any_more_need_not_read_its_logs() {
    for seed in [7_001_834, 7_003_167, 7_004_826] {
        one_run(Chance::Mutations, "", seed);
    }
}

#[test]
fn what_is_changed_and_changed_back_is_as_it_was() {
    random(Chance::Mutations, 10);
}

#[test]
fn in_small_quorums_no_order_of_events_breaks_anything() {
    let mut states = 0;
    for plot in plots() {
        let explored = explore(&plot, DEPTH);
        if let Some(story) = explored.story {
            panic!("{}:\n{}", plot.name, story.join("\n"));
        }
        states += explored.states;
    }
    assert!(states > 10_000, "{states} states");
}
