//! Fuzzing by hand: the random tests of the suite, with more cases, again and again until the time is up.
//!
//! Each round begins with fresh randomness. What a finding was is printed, and kept by proptest beside the test, so that the
//! suite tries it first from then on.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::{Args, ValueEnum};

use crate::steps::note;
use crate::{command, paths};

/// How many cases a random test tries in one round. The tests read it from `KARST_FUZZ_CASES`.
const CASES: &str = "20000";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// What to fuzz; everything at once when not given
    target: Option<Target>,
    /// For how many minutes
    #[arg(long, default_value_t = 1)]
    minutes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Target {
    /// Settings of users: can one of them become a setting of Karst?
    Settings,
    /// Answers of Kafka: can broken ones do harm?
    Frames,
    /// Resources made from the schemas: can one stop a pass, or harm what runs?
    Malice,
}

const ALL: &[Target] = &[Target::Settings, Target::Frames, Target::Malice];

impl Target {
    /// The package, and a part of the names of its tests.
    fn tests(self) -> &'static [&'static str] {
        match self {
            Self::Settings => &["--package", "karst-core", "--test", "injection"],
            Self::Frames => &["--package", "karst-kafka", "--lib", "damage"],
            // It tells of the slowest pass, and of the one that took most memory.
            Self::Malice => &["--package", "karst-core", "--test", "malice", "--", "--nocapture"],
        }
    }
}

pub(crate) fn fuzz(options: &Options) -> Result<()> {
    let targets = options.target.map_or_else(|| ALL.to_vec(), |one| vec![one]);
    for_minutes(&targets, options.minutes)
}

/// What can be done in a minute, at once. A round of resources takes longer; the suite itself tries some, always the same.
pub(crate) fn for_a_minute() -> Result<()> {
    for_minutes(&[Target::Settings, Target::Frames], 1)
}

fn for_minutes(targets: &[Target], minutes: u64) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    thread::scope(|scope| {
        let running: Vec<_> = targets.iter().map(|target| scope.spawn(move || until(*target, end))).collect();
        running.into_iter().try_for_each(|one| one.join().map_err(|_| anyhow!("a round broke off"))?)
    })
}

fn until(target: Target, end: Instant) -> Result<()> {
    let mut rounds = 0;
    while rounds == 0 || Instant::now() < end {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(paths::checkout()).env("KARST_FUZZ_CASES", CASES);
        cargo.args(["test", "--quiet"]).args(target.tests());
        command::run(&mut cargo).with_context(|| format!("{target:?} found something"))?;
        rounds += 1;
    }
    note(format!("{target:?}: {rounds} rounds of {CASES} cases a test, and no finding"));
    Ok(())
}
