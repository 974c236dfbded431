//! Whatever somebody writes: no panic, no pass without an end, no memory without a bound, and nothing that runs is harmed.
//!
//! The resources are made from the schemas (`crates/malice`), decoded as the watches do it, and decided about in the worlds of the
//! other tests. `cargo xtask fuzz malice --minutes N` goes on for longer, with other seeds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[path = "plan/support/mod.rs"]
mod support;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use karst_api as api;
use karst_core::names::{NEXT_IDS_ANNOTATION, REMOVE_IDS_ANNOTATION};
use karst_core::objects::Object;
use karst_core::plan::{Plan, plan};
use karst_core::status::Progress;
use karst_core::world::{Answers, World};
use karst_malice::{Bad, Case, Dice, Malice, violation};
use peak_alloc::PeakAlloc;
use serde_json::Value;

use support::Kafka;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Memory is counted for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// Only what runs away is to be caught here: how long passes take is measured elsewhere, on a machine that does nothing else.
const RUNAWAY: Duration = Duration::from_secs(20);
/// What one pass may need at once.
const MOST_MEMORY: usize = 128 * 1024 * 1024;
/// The name of the world with as many nodes as there can be.
const LARGE: &str = "1,000 nodes";
/// Annotations that steer something.
const KAFKA_KEYS: &[&str] = &[
    "strimzi.io/pause-reconciliation",
    "strimzi.io/node-pools",
    "strimzi.io/skip-broker-scaledown-check",
    "karst.io/allow-data-loss",
    "karst.io/restore-voter",
    "karst.io/key-algorithm",
    "karst.io/broker-restarts-at-once",
    "karst.io/adopt",
    "strimzi.io/kraft-quorum-migration",
];
const POOL_KEYS: &[&str] = &[NEXT_IDS_ANNOTATION, REMOVE_IDS_ANNOTATION];

/// How many cases are tried of each kind in each world: more of them in `cargo xtask fuzz`.
fn cases() -> Option<usize> {
    std::env::var("KARST_FUZZ_CASES").ok().and_then(|cases| cases.parse().ok())
}

/// The suite always tries the same; by hand every round tries something else.
fn seed() -> u64 {
    cases().map_or(17, |_| RandomState::new().hash_one(0))
}

fn schema(kind: &str) -> Value {
    let crd = api::definitions().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let mut crd = serde_json::to_value(crd).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take()
}

static KAFKA: LazyLock<Value> = LazyLock::new(|| schema("Kafka"));
static POOL: LazyLock<Value> = LazyLock::new(|| schema("KafkaNodePool"));

/// Clusters to be harmed: at rest, or just asked for.
fn worlds() -> Vec<(&'static str, World)> {
    let converged = |mut world: World| {
        support::converge(&mut world);
        world
    };
    let listeners = include_str!("../../../deploy/examples/listeners.yaml");
    let of_3_9 = include_str!("../../../deploy/examples/kafka-3.9.yaml");
    let mut worlds = vec![
        ("quickstart", support::converged()),
        ("asked for", support::quickstart()),
        ("listeners", converged(support::example(listeners))),
        ("without pools", converged(support::without_pools())),
        ("Kafka 3.9", converged(support::world(of_3_9))),
    ];
    // Not in the suite: each pass takes as long as a hundred of the others.
    if cases().is_some() {
        worlds.push((LARGE, converged(support::thousand())));
    }
    worlds
}

/// How many cases are tried in a world.
fn cases_in(world: &str, usual: usize) -> usize {
    cases().map_or(usual, |cases| if world == LARGE { cases / 100 } else { cases })
}

/// What was decided, and what that cost: without the answers of Kafka, which come from elsewhere.
struct Decided {
    plan: Plan,
    took: Duration,
    memory: usize,
}

/// Decides once.
fn counted(world: &World) -> Decided {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let start = Instant::now();
    let plan = plan(world).expect("a plan");
    Decided { plan, took: start.elapsed(), memory: MEMORY.peak_usage().saturating_sub(before) }
}

/// Decides, with Kafka answering what is asked.
fn decide(world: &World, mut kafka: Kafka) -> Decided {
    let mut world = World { answers: Answers::default(), ..world.clone() };
    let (mut took, mut memory) = (Duration::ZERO, 0);
    for _ in 0..8 {
        let decided = counted(&world);
        took += decided.took;
        memory = memory.max(decided.memory);
        if decided.plan.questions.is_empty() {
            return Decided { plan: decided.plan, took, memory };
        }
        kafka.answer(&mut world, &[], &decided.plan.questions);
    }
    panic!("it never stops asking");
}

/// What became of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Nobody could read it, so it was left alone.
    Unreadable,
    /// It was refused, and said so.
    Refused,
    /// It was carried out.
    Taken,
}

#[derive(Debug, Default)]
struct Tally {
    unreadable: usize,
    refused: usize,
    taken: usize,
    slowest: (Duration, String),
    largest: (usize, String),
}

impl Tally {
    fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Unreadable => self.unreadable += 1,
            Outcome::Refused => self.refused += 1,
            Outcome::Taken => self.taken += 1,
        }
    }
}

/// Decides about one case.
fn pass(
    world: &World,
    kafka: Kafka,
    case: &Case,
    tally: &mut Tally,
    is_alone: bool,
) -> Result<Outcome, String> {
    let decided = catch_unwind(AssertUnwindSafe(|| decide(world, kafka)));
    let Decided { plan, took, memory } = decided.map_err(|_| "it panicked".to_owned())?;
    if took > tally.slowest.0 {
        tally.slowest = (took, case.name.clone());
    }
    if memory > tally.largest.0 {
        tally.largest = (memory, case.name.clone());
    }
    if took > RUNAWAY {
        return Err(format!("the pass took {took:?}"));
    }
    if memory > MOST_MEMORY {
        return Err(format!("the pass took {} MB", memory / 1_000_000));
    }
    fits_schema(&plan)?;
    let is_refused = matches!(plan.progress, Some(Progress::Refused(_)));
    if is_refused && is_alone {
        harms_nothing(&plan)?;
    }
    Ok(if is_refused { Outcome::Refused } else { Outcome::Taken })
}

/// What the API server would refuse is never told at all.
fn fits_schema(plan: &Plan) -> Result<(), String> {
    let of_kafka = plan.status.iter().map(|patch| (&*KAFKA, patch));
    let of_pools = plan.pool_statuses.values().map(|patch| (&*POOL, patch));
    for (schema, patch) in of_kafka.chain(of_pools) {
        let schema = &schema["properties"]["status"];
        if let Some(why) = violation("the new status", schema, &patch["status"]) {
            return Err(why);
        }
        let length = patch.to_string().len();
        if length > 1_000_000 {
            return Err(format!("the new status has {length} bytes"));
        }
    }
    Ok(())
}

/// Of what is refused nothing is done to what runs.
fn harms_nothing(plan: &Plan) -> Result<(), String> {
    let is_still = plan.restarts.is_empty()
        && plan.removals.is_empty()
        && plan.deeds.is_empty()
        && plan.growths.is_empty()
        && plan.marks.is_empty()
        && plan.objects.is_empty()
        && plan.services.is_empty();
    if is_still {
        return Ok(());
    }
    let objects: Vec<_> = plan.objects.iter().chain(&plan.services).map(Object::describe).collect();
    Err(format!(
        "it is refused, and these are done: {:?} {:?} {:?} {:?} {:?} {objects:?}",
        plan.restarts, plan.removals, plan.deeds, plan.growths, plan.marks
    ))
}

type Put = fn(&mut World, &str) -> Result<(), serde_json::Error>;

/// As the watch reads it.
fn put_kafka(world: &mut World, text: &str) -> Result<(), serde_json::Error> {
    world.kafka = Arc::new(serde_json::from_slice(text.as_bytes())?);
    Ok(())
}

fn put_pool(world: &mut World, text: &str) -> Result<(), serde_json::Error> {
    let pool: api::KafkaNodePool = serde_json::from_slice(text.as_bytes())?;
    let name = pool.metadata.name.clone().unwrap_or_default();
    world.pools.insert(name, Arc::new(pool));
    Ok(())
}

/// Tries cases in one world. Fails with the first that does harm, and the seed that finds it again.
fn try_all(where_: &str, world: &World, malice: &Malice, put: Put, count: usize) {
    let seed = seed();
    let mut dice = Dice::new(seed);
    let mut tally = Tally::default();
    let kafka = Kafka::formed(world);
    let calm = harms_nothing(&decide(world, kafka.clone()).plan);
    let alone = (0..count).filter_map(|_| {
        let field = malice.fields().get(dice.below(malice.fields().len()))?;
        malice.one(field, *Bad::ALL.get(dice.below(Bad::ALL.len()))?)
    });
    let alone: Vec<_> = alone.collect();
    let together: Vec<_> = (0..count / 4).map(|_| malice.several(&mut dice)).collect();
    let cases =
        alone.iter().map(|case| (case, calm.is_ok())).chain(together.iter().map(|case| (case, false)));
    for (case, is_alone) in cases {
        let mut world = world.clone();
        let outcome = match put(&mut world, &case.object.to_string()) {
            Err(_) => Outcome::Unreadable,
            Ok(()) => pass(&world, kafka.clone(), case, &mut tally, is_alone)
                .unwrap_or_else(|why| panic!("seed {seed}, {where_}, {}: {why}", case.name)),
        };
        tally.add(outcome);
    }
    eprintln!("{where_}: {tally:?}");
    assert!(count < 100 || tally.refused > 0 && tally.unreadable > 0 && tally.taken > 0, "{tally:?}");
}

#[test]
fn no_kafka_resource_stops_a_pass_or_harms_what_runs() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (name, world) in worlds() {
        let malice = Malice::new(&KAFKA, serde_json::to_value(&*world.kafka).unwrap(), KAFKA_KEYS);
        try_all(name, &world, &malice, put_kafka, cases_in(name, 300));
    }
}

#[test]
fn no_pool_stops_a_pass_or_harms_what_runs() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (name, world) in worlds() {
        // Those of the large cluster are all alike.
        let pools = if name == LARGE { 2 } else { world.pools.len() };
        for (pool, resource) in world.pools.clone().into_iter().rev().take(pools) {
            let good = serde_json::to_value(&*resource).unwrap();
            let malice = Malice::new(&POOL, good, POOL_KEYS);
            try_all(&format!("{name}, pool {pool}"), &world, &malice, put_pool, cases_in(name, 150));
        }
    }
}

/// As many nodes as there can be: made, at rest, and all of them changed.
#[test]
fn a_thousand_nodes_take_no_more_memory_than_a_pass_may() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut world = support::thousand();
    let most = until_rest(&mut world);
    support::edit_kafka(&mut world, |kafka| {
        let config = kafka.spec.kafka.config.get_or_insert_default();
        config.insert("queued.max.requests".into(), serde_json::json!(400));
    });
    let changed = decide(&world, Kafka::formed(&world));
    assert_eq!(changed.plan.objects.len(), 1006, "config maps of all nodes, pod sets and what is shared");
    let most = most.max(changed.memory);
    eprintln!("1,000 nodes: {} MB at most", most / 1_000_000);
    assert!(most < MOST_MEMORY, "a pass took {} MB", most / 1_000_000);
}

/// Carries out until nothing is left to do. Returns the most memory that deciding took at once.
fn until_rest(world: &mut World) -> usize {
    let (mut kafka, mut most) = (Kafka::formed(world), 0);
    for _ in 0..40 {
        if kafka.voters.is_empty() {
            kafka = Kafka::formed(world);
        }
        most = most.max(counted(world).memory);
        if !support::step(world, &mut kafka, &[]) {
            return most;
        }
    }
    panic!("it never comes to rest");
}
