//! Many runs with one purpose.

use std::collections::BTreeMap;
use std::fmt;

use crate::dice::Dice;
use crate::kubernetes::Kind;
use crate::mint::Mint;
use crate::run::{Report, Start, run};
use crate::scenarios::{Base, Scenario};
use crate::sim::{FATES, Fate, Faults};

/// A run that went wrong, and how to see it again.
#[derive(Debug)]
pub struct Finding {
    /// The story.
    pub scenario: &'static str,
    /// Its seed.
    pub seed: u64,
    /// What befell which call, in a campaign of crashes.
    pub at: Option<(usize, Fate)>,
    /// What did not hold.
    pub what: String,
    /// What happened.
    pub story: Vec<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} seed {} {:?}: {}", self.scenario, self.seed, self.at, self.what)?;
        self.story.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// What came of a campaign.
#[derive(Debug, Default)]
pub struct Tally {
    /// How many runs.
    pub runs: usize,
    /// How many calls the operator made in them.
    pub calls: usize,
    /// How many times it decided.
    pub plans: usize,
    /// What went wrong.
    pub findings: Vec<Finding>,
}

impl Tally {
    fn count(&mut self, report: &Report) {
        self.runs += 1;
        self.calls += report.calls;
        self.plans += report.plans;
    }

    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.calls += other.calls;
        self.plans += other.plans;
        self.findings.extend(other.findings);
    }
}

/// The beginnings of stories, each made once.
#[derive(Debug, Default)]
pub struct Starts {
    made: BTreeMap<Base, Start>,
    mint: Mint,
}

impl Starts {
    /// The beginning of a story.
    pub fn of(&mut self, base: Base) -> &Start {
        self.made.entry(base).or_insert_with(|| Start::of(base, self.mint.clone()))
    }
}

/// Campaign (a): every call of a story is crashed, before and after, loses its answer, and is refused. The end must be the one
/// of an undisturbed run. `stride` takes only every so-manieth call.
pub fn crash_every_call(starts: &mut Starts, scenario: &Scenario, seed: u64, stride: usize) -> Tally {
    let mut tally = Tally::default();
    let start = starts.of(scenario.base);
    let calm = run(start, scenario, seed, &Faults::default(), false);
    tally.count(&calm);
    if let Some(what) = &calm.broken {
        let again = run(start, scenario, seed, &Faults::default(), true);
        tally.findings.push(finding(scenario, seed, None, what.clone(), again.story));
        return tally;
    }
    for call in (1..=calm.calls).step_by(stride.max(1)) {
        for fate in FATES {
            let faults = Faults { at: Some((call, fate)), ..Faults::default() };
            let report = run(start, scenario, seed, &faults, false);
            tally.count(&report);
            if let Some(what) = difference(scenario, &calm, &report) {
                let again = run(start, scenario, seed, &faults, true);
                tally.findings.push(finding(scenario, seed, faults.at, what, again.story));
            }
        }
    }
    tally
}

fn finding(
    scenario: &Scenario,
    seed: u64,
    at: Option<(usize, Fate)>,
    what: String,
    story: Vec<String>,
) -> Finding {
    Finding { scenario: scenario.name, seed, at, what, story }
}

/// How a run differs from an undisturbed one, in what must not differ.
fn difference(scenario: &Scenario, calm: &Report, report: &Report) -> Option<String> {
    if report.broken.is_some() {
        return report.broken.clone();
    }
    if calm.end != report.end {
        return Some(format!("it ended as {:?}, not as {:?}", report.end, calm.end));
    }
    if scenario.is_racy {
        return None;
    }
    let counted = |counts: &BTreeMap<(Kind, String), usize>| {
        let matter =
            counts.iter().filter(|((kind, _), _)| matches!(kind, Kind::Pod | Kind::Claim | Kind::PodSet));
        matter.map(|(key, count)| (key.clone(), *count)).collect::<BTreeMap<_, _>>()
    };
    for (what, calm, seen) in [
        ("created", &calm.counts.created, &report.counts.created),
        ("deleted", &calm.counts.deleted, &report.counts.deleted),
    ] {
        if counted(calm) != counted(seen) {
            return Some(format!("{what} {:?}, not {:?}", counted(seen), counted(calm)));
        }
    }
    None
}

/// The faults of a random run: some runs are calm in one respect and wild in another.
pub fn random_faults(seed: u64) -> Faults {
    let mut dice = Dice::new(seed ^ 0x00c0_ffee);
    let mut some = |often: u64| if dice.chance(500) { dice.between(1, often) } else { 0 };
    Faults {
        at: None,
        calls: some(80),
        silence: some(200),
        crashes: some(150),
        power_cuts: some(15),
        disks: some(30),
        deletions: some(60),
        until: 40_000,
        interleaves: true,
    }
}

/// Campaign (d): random faults, one seed.
pub fn random(
    starts: &mut Starts,
    scenarios: &[Scenario],
    seed: u64,
    tells: bool,
) -> Option<(Report, Finding)> {
    let (report, scenario) = random_run(starts, scenarios, seed, tells)?;
    let what = report.broken.clone().unwrap_or_default();
    let finding = finding(scenario, seed, None, what, report.story.clone());
    Some((report, finding))
}

fn random_run<'a>(
    starts: &mut Starts,
    scenarios: &'a [Scenario],
    seed: u64,
    tells: bool,
) -> Option<(Report, &'a Scenario)> {
    let scenario = Dice::new(seed ^ 0x5eed).pick(scenarios)?;
    let mut faults = random_faults(seed);
    // In these stories too much is lost already.
    if scenario.ready.is_none() {
        (faults.disks, faults.deletions) = (0, 0);
    }
    if scenario.base == Base::Ephemeral {
        (faults.disks, faults.deletions) = (0, 0);
    }
    Some((run(starts.of(scenario.base), scenario, seed, &faults, tells), scenario))
}

/// Campaign (d): random faults, many seeds.
pub fn random_many(
    starts: &mut Starts,
    scenarios: &[Scenario],
    seeds: impl IntoIterator<Item = u64>,
    most: usize,
) -> Tally {
    let mut tally = Tally::default();
    for seed in seeds {
        let Some((report, mut finding)) = random(starts, scenarios, seed, false) else { continue };
        tally.count(&report);
        if report.broken.is_some() {
            finding.story =
                random(starts, scenarios, seed, true).map(|(_, told)| told.story).unwrap_or_default();
            tally.findings.push(finding);
            if tally.findings.len() >= most {
                break;
            }
        }
    }
    tally
}
