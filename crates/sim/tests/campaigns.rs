//! A fixed budget of the campaigns. More: `cargo xtask sim --seeds 100000`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use karst_sim::campaigns::{Chance, Starts, Tally, crash_every_call, random_many};
use karst_sim::scenarios;

fn assert_nothing_found(tally: &Tally) {
    if let Some(first) = tally.findings.first() {
        panic!("{} of {} runs went wrong; the first:\n{first}", tally.findings.len(), tally.runs);
    }
}

/// How many calls of a story are passed over for each that is crashed. The binary's campaign crashes every one.
const STRIDE: usize = 97;
/// How many random runs.
const RANDOM_RUNS: u64 = 100;

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
fn random_faults_break_nothing() {
    let tally = random_many(&mut Starts::default(), Chance::Faults, &scenarios::all(), 1..=RANDOM_RUNS, 1);
    assert_nothing_found(&tally);
    assert_eq!(u64::try_from(tally.runs), Ok(RANDOM_RUNS));
}
