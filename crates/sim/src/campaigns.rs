//! Many runs with one purpose.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZero;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::dice::Dice;
use crate::faults::{FATES, Fate, Faults, Stale};
use crate::kubernetes::Kind;
use crate::mint::Mint;
use crate::mutations;
use crate::run::{Report, Start, run};
use crate::scenarios::{Base, Scenario};
use crate::shrink::Case;

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
    /// How many of them ended where Kafka does not find out of by itself.
    pub stuck: usize,
    /// What went wrong.
    pub findings: Vec<Finding>,
}

impl Tally {
    fn count(&mut self, report: &Report) {
        self.runs += 1;
        self.calls += report.calls;
        self.plans += report.plans;
        self.stuck += usize::from(report.stuck);
    }

    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.calls += other.calls;
        self.plans += other.plans;
        self.stuck += other.stuck;
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
    let kinds: Vec<_> = FATES.map(|fate| (fate, None)).into();
    disturb_every_call(starts, scenario, seed, stride, &kinds)
}

/// What an operator may see when it starts again: all of it as it was some time ago, or each kind of object as of another time.
const STALE_VIEWS: [Stale; 3] = [
    Stale { back: 2_000, hold: 1_500, together: true },
    Stale { back: 15_000, hold: 6_000, together: true },
    Stale { back: 10_000, hold: 5_000, together: false },
];

/// Campaign (b): the operator dies before and after every call of a story, and starts again with an old view of the cluster, which
/// stays old for a while.
pub fn crash_into_the_past(starts: &mut Starts, scenario: &Scenario, seed: u64, stride: usize) -> Tally {
    let crashes = [Fate::CrashBefore, Fate::CrashAfter];
    let kinds: Vec<_> =
        crashes.into_iter().flat_map(|fate| STALE_VIEWS.map(|stale| (fate, Some(stale)))).collect();
    disturb_every_call(starts, scenario, seed, stride, &kinds)
}

fn disturb_every_call(
    starts: &mut Starts,
    scenario: &Scenario,
    seed: u64,
    stride: usize,
    kinds: &[(Fate, Option<Stale>)],
) -> Tally {
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
        for (fate, stale) in kinds {
            let faults = Faults { at: Some((call, *fate)), stale: *stale, ..Faults::default() };
            let report = run(start, scenario, seed, &faults, false);
            tally.count(&report);
            let hurries = scenario.hurries();
            let must = Must {
                end_alike: stale.is_none() || !scenario.ids_differ,
                count_alike: !scenario.is_racy && stale.is_none_or(|stale| stale.together && !hurries),
                make_all: !hurries && !scenario.forgets(),
            };
            if let Some(what) = difference(must, &calm, &report) {
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

/// What a disturbed run has to have in common with an undisturbed one.
#[derive(Debug, Clone, Copy)]
struct Must {
    /// Does it end in the same way?
    end_alike: bool,
    /// Is as much made and deleted?
    count_alike: bool,
    /// Also no less? Where the user hurries or deletes everything, it depends on who looks when what was wanted in between is made.
    make_all: bool,
}

/// How a run differs from an undisturbed one, in what must not differ.
fn difference(must: Must, calm: &Report, report: &Report) -> Option<String> {
    if report.broken.is_some() {
        return report.broken.clone();
    }
    if must.end_alike && calm.end != report.end {
        return Some(format!("it ended as {:?}, not as {:?}", report.end, calm.end));
    }
    if !must.count_alike {
        return None;
    }
    for (what, calm, seen) in [
        ("created", &calm.counts.created, &report.counts.created),
        ("deleted", &calm.counts.deleted, &report.counts.deleted),
    ] {
        if let Some(key) = counted_otherwise(calm, seen, must.make_all) {
            let count = |counts: &Made| counts.get(&key).copied().unwrap_or_default();
            return Some(format!(
                "{what} {key:?} {} times, and undisturbed {} times",
                count(seen),
                count(calm)
            ));
        }
    }
    None
}

type Made = BTreeMap<(Kind, String), usize>;

/// Something that was made or deleted more often than undisturbed, or, where all is to be made, a disk or a pod set less often. A pod may be restarted once less: one that
/// comes up late has what others are restarted for. (That none is outdated in the end is seen in the end.)
fn counted_otherwise(calm: &Made, seen: &Made, makes_all: bool) -> Option<(Kind, String)> {
    let count = |counts: &Made, key: &(Kind, String)| counts.get(key).copied().unwrap_or_default();
    let is_wrong = |key: &&(Kind, String)| match key.0 {
        Kind::Claim | Kind::PodSet if makes_all => count(seen, key) != count(calm, key),
        Kind::Pod | Kind::Claim | Kind::PodSet => count(seen, key) > count(calm, key),
        _ => false,
    };
    calm.keys().chain(seen.keys()).find(is_wrong).cloned()
}

/// What a random campaign is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chance {
    /// (c): two operators, each believing to lead, with watches that fall behind.
    TwoOperators,
    /// (d): faults of all kinds.
    Faults,
    /// (e): resources are changed and put back.
    Mutations,
}

/// The faults of a random run: some runs are calm in one respect and wild in another.
fn random_faults(seed: u64) -> Faults {
    let mut dice = Dice::new(seed ^ 0x00c0_ffee);
    let mut some = |often: u64| if dice.chance(500) { dice.between(1, often) } else { 0 };
    Faults {
        calls: some(80),
        silence: some(200),
        crashes: some(150),
        power_cuts: some(15),
        disks: some(30),
        deletions: some(60),
        lags: some(60),
        answers: some(5_000),
        until: 40_000,
        interleaves: true,
        ..of_platform(seed)
    }
}

/// What befalls the ways between the operator and the API server.
fn of_platform(seed: u64) -> Faults {
    let mut dice = Dice::new(seed ^ 0x00a9_1a7f);
    let mut some = |often: u64| if dice.chance(500) { dice.between(1, often) } else { 0 };
    Faults { deafness: some(60), late: some(60), ..Faults::default() }
}

/// Two operators for a while. Nodes crash as well in some runs, and answers get lost.
fn two_operators(seed: u64) -> Faults {
    let mut dice = Dice::new(seed ^ 0x0002_0b05);
    let from = dice.between(0, 10_000);
    let until = from + dice.between(5_000, 40_000);
    let mut some = |often: u64| if dice.chance(500) { dice.between(1, often) } else { 0 };
    Faults {
        calls: some(40),
        silence: some(100),
        crashes: some(60),
        deafness: some(600),
        until,
        interleaves: true,
        rival: Some((from, until)),
        stale: Some(Stale { back: some(10_000), hold: some(4_000), together: false }),
        lags: some(40),
        answers: some(5_000),
        ..Faults::default()
    }
}

/// Some of the runs in which users change their minds are disturbed otherwise too.
fn mutation_faults(seed: u64) -> Faults {
    let mut dice = Dice::new(seed ^ 0x0123_4567);
    let mut some = |often: u64| if dice.chance(300) { dice.between(1, often) } else { 0 };
    let (calls, crashes) = (some(40), some(50));
    let until = if calls + crashes > 0 { 40_000 } else { 0 };
    Faults { calls, crashes, until, interleaves: true, ..Faults::default() }
}

/// The run of a seed.
pub fn random_case(chance: Chance, scenarios: &[Scenario], seed: u64) -> Option<Case> {
    let scenario = match chance {
        Chance::Mutations => mutations::random(seed),
        _ => Dice::new(seed ^ 0x5eed).pick(scenarios)?.clone(),
    };
    let mut faults = match chance {
        Chance::TwoOperators => two_operators(seed),
        Chance::Faults => random_faults(seed),
        Chance::Mutations => mutation_faults(seed),
    };
    // In these stories too much is lost already.
    if chance == Chance::Faults && (scenario.ready.is_none() || scenario.base == Base::Ephemeral) {
        (faults.disks, faults.deletions) = (0, 0);
    }
    Some(Case { scenario, seed, faults })
}

/// Tells the story of a case.
pub fn tell(starts: &mut Starts, case: &Case) -> Finding {
    let report = case.run(starts.of(case.scenario.base), true);
    let what = report.broken.unwrap_or_else(|| "nothing went wrong".to_owned());
    finding(&case.scenario, case.seed, None, what, report.story)
}

/// Campaigns (c), (d) and (e): many seeds, on all cores. What goes wrong is told with as little in it as will do; after `most`
/// findings it ends.
pub fn random_many(chance: Chance, scenarios: &[Scenario], seeds: Range<u64>, most: usize) -> Tally {
    let found = AtomicUsize::new(0);
    let mut seeds: Vec<u64> = seeds.collect();
    // Runs of one story make much of the same, and what was made is remembered for a while.
    seeds.sort_by_cached_key(|seed| {
        random_case(chance, scenarios, *seed).map(|case| (case.scenario.base, case.scenario.name))
    });
    on_all_cores(&seeds, |starts, seed| {
        if found.load(Ordering::Relaxed) >= most {
            return Tally::default();
        }
        let tally = random_one(starts, chance, scenarios, *seed);
        found.fetch_add(tally.findings.len(), Ordering::Relaxed);
        tally
    })
}

fn random_one(starts: &mut Starts, chance: Chance, scenarios: &[Scenario], seed: u64) -> Tally {
    let mut tally = Tally::default();
    let Some(case) = random_case(chance, scenarios, seed) else { return tally };
    let start = starts.of(case.scenario.base);
    let report = case.run(start, false);
    tally.count(&report);
    if report.broken.is_some() {
        let less = case.shrunk(start, report.struck);
        tally.findings.push(tell(starts, &less));
    }
    tally
}

/// Does something with each of these, on all cores. Each core has worlds of its own: what is shared is slow.
pub fn on_all_cores<T: Sync>(items: &[T], does: impl Fn(&mut Starts, &T) -> Tally + Sync) -> Tally {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut starts = Starts::default();
        let mut tally = Tally::default();
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            tally.add(does(&mut starts, item));
        }
        tally
    };
    let mut tally = Tally::default();
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, NonZero::get).min(items.len());
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            tally.add(worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
    });
    tally.findings.sort_by_key(|finding| finding.seed);
    tally
}
