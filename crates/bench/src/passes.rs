//! What deciding costs when there is as much of everything as there can be, or something odd. No I/O, and no Kubernetes.
//!
//! The worlds are those of the tests of `plan()`. Each pass begins on a thread of its own, which remembers nothing of earlier ones.

#[path = "../../core/tests/plan/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use karst_core::plan::plan;
use karst_core::world::{Answers, PartitionView, World};
use karst_malice::{Bad, Dice, Malice};
use serde_json::{Value as Json, json};

use self::support::{Kafka, edit_kafka, edit_pool};
use crate::budgets;
use crate::report::{Figure, Value};

/// As many partitions as a large cluster has.
const PARTITIONS: i32 = 50_000;
/// How many resources are made of each kind in each world, from these seeds on.
const CASES: usize = 400;
const SEED: u64 = 17;
/// One round for each kind of question that follows from an answer, and some more.
const ROUNDS: usize = 8;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// All of it.
pub(crate) fn measure() -> Result<Vec<Figure>> {
    let world = large()?;
    let mut figures = Vec::new();
    for (what, pass) in passes(&world)? {
        let took = pass.measure()?;
        figures.push(limited(format!("1,000 nodes, a pass {what}"), took));
    }
    for (what, took, case) in [of_kafkas()?, of_pools()?] {
        figures.push(limited(what, took).noting([case]));
    }
    Ok(figures)
}

fn limited(what: String, took: Duration) -> Figure {
    Figure::new(what, Value::Time(took)).below(Value::Time(budgets::PASS))
}

/// A cluster with as many nodes as there can be, at rest.
fn large() -> Result<World> {
    let mut world = support::thousand();
    // Carrying out is the work of the tests' Kubernetes, and not measured.
    thread::Builder::new()
        .spawn(move || {
            support::converge(&mut world);
            world
        })?
        .join()
        .map_err(|_| anyhow!("a cluster with 1,000 nodes does not come to rest"))
}

/// A pass: what is true, and what Kafka says.
struct Pass {
    world: World,
    kafka: Kafka,
    partitions: Vec<PartitionView>,
}

/// Passes in which something is to be said about each node.
fn passes(world: &World) -> Result<Vec<(&'static str, Pass)>> {
    let kafka = Kafka::formed(world);
    let pass =
        |world: World, in_sync: usize| Pass { world, kafka: kafka.clone(), partitions: partitions(in_sync) };
    let with = |edit: &dyn Fn(&mut World)| {
        let mut world = world.clone();
        edit(&mut world);
        world
    };
    // Of brokers alone: before controllers have restarted nothing is asked about brokers.
    let changed = with(&|world| {
        for pool in brokers(world) {
            let resources = json!({ "limits": { "memory": "3Gi" } });
            edit_pool(world, &pool, |pool| pool.spec.resources = serde_json::from_value(resources).ok());
        }
    });
    let written = written(&changed, kafka.clone())?;
    let silent = Pass { kafka: Kafka { is_silent: true, ..kafka.clone() }, ..pass(written.clone(), 3) };
    Ok(vec![
        ("with nothing to do", pass(world.clone(), 3)),
        ("that makes the cluster", pass(support::thousand(), 3)),
        ("after a change of all brokers", pass(changed, 3)),
        ("in which all are to restart", pass(written.clone(), 3)),
        ("in which all are to restart and none may", pass(written.clone(), 1)),
        ("in which all are to restart and Kafka is silent", silent),
        ("in which all are to restart and none is ready", pass(none_ready(&written), 3)),
        (
            "in which all brokers are to go and none may",
            pass(
                with(&|world| {
                    for pool in brokers(world) {
                        edit_pool(world, &pool, |pool| pool.spec.replicas = 0);
                    }
                }),
                3,
            ),
        ),
        ("of a resource that is refused", pass(refused(world), 3)),
        ("in which all certificates end", pass(with(&|world| world.now += DAY * 350), 3)),
        ("without pods", pass(with(&|world| world.pods.clear()), 3)),
    ])
}

/// All is written that pods are to restart for, and the first of them is about to.
fn written(changed: &World, mut kafka: Kafka) -> Result<World> {
    let mut world = changed.clone();
    while plan(&world)?.restarts.is_empty() && support::step(&mut world, &mut kafka, &[]) {}
    Ok(world)
}

fn brokers(world: &World) -> Vec<String> {
    world.pools.keys().filter(|pool| pool.starts_with("brokers")).cloned().collect()
}

fn none_ready(world: &World) -> World {
    let mut world = world.clone();
    for pod in world.pods.values_mut() {
        Arc::make_mut(pod).ready = false;
    }
    world
}

/// Its certificates are about to end, too: pods restart for them whatever else is wrong.
fn refused(world: &World) -> World {
    let mut world = World { now: world.now + DAY * 360, ..world.clone() };
    edit_kafka(&mut world, |kafka| {
        let authority = json!({ "renewalDays": 5_000_000 });
        kafka.spec.cluster_ca = serde_json::from_value(authority).ok();
    });
    world
}

/// Three copies of each, of which so many are in sync; two are the minimum.
fn partitions(in_sync: usize) -> Vec<PartitionView> {
    let one = |number: i32| {
        let first = 5 + number * 7 % 993;
        let replicas = [first, first + 1, first + 2];
        support::partition(&format!("topic-{number}"), &replicas, &replicas[..in_sync], 2)
    };
    (0..PARTITIONS).map(one).collect()
}

impl Pass {
    fn measure(self) -> Result<Duration> {
        let Self { world, mut kafka, partitions } = self;
        let pass = move || decide(world, &mut kafka, &partitions);
        thread::Builder::new().spawn(pass)?.join().map_err(|_| anyhow!("a pass panicked"))?
    }
}

/// What this thread has had of a processor: that others are busy, too, is not the pass's fault.
fn processor_time() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").context("the kernel counts no time")?;
    let nanoseconds = text.split_whitespace().next().context("no time in schedstat")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

/// Decides, with Kafka answering what is asked. Returns how long it took to decide, and not to answer.
fn decide(mut world: World, kafka: &mut Kafka, partitions: &[PartitionView]) -> Result<Duration> {
    world.answers = Answers::default();
    let mut took = Duration::ZERO;
    for _ in 0..ROUNDS {
        let before = processor_time()?;
        let plan = plan(&world)?;
        took += processor_time()?.saturating_sub(before);
        if plan.questions.is_empty() {
            return Ok(took);
        }
        kafka.answer(&mut world, partitions, &plan.questions);
    }
    bail!("it never stops asking")
}

/// The slowest pass for a resource that somebody made to do harm, and what that was.
type Slowest = (String, Duration, String);

fn of_kafkas() -> Result<Slowest> {
    let world = support::converged();
    let good = serde_json::to_value(&*world.kafka)?;
    let put = |world: &mut World, text: &str| {
        world.kafka = Arc::new(serde_json::from_str(text)?);
        anyhow::Ok(())
    };
    slowest("Kafka", &world, good, put)
}

fn of_pools() -> Result<Slowest> {
    let world = support::converged();
    let good = serde_json::to_value(&**world.pools.get("brokers").context("the example has brokers")?)?;
    let put = |world: &mut World, text: &str| {
        world.pools.insert("brokers".to_owned(), Arc::new(serde_json::from_str(text)?));
        anyhow::Ok(())
    };
    slowest("KafkaNodePool", &world, good, put)
}

fn slowest(
    kind: &str,
    world: &World,
    good: Json,
    put: impl Fn(&mut World, &str) -> Result<()>,
) -> Result<Slowest> {
    let malice = Malice::new(&schema(kind)?, good, &[]);
    let (mut dice, kafka) = (Dice::new(SEED), Kafka::formed(world));
    let mut slowest = (Duration::ZERO, String::new());
    let one = |dice: &mut Dice| {
        let field = malice.fields().get(dice.below(malice.fields().len()))?;
        malice.one(field, *Bad::ALL.get(dice.below(Bad::ALL.len()))?)
    };
    for number in 0..CASES {
        let case = if number % 4 == 0 { Some(malice.several(&mut dice)) } else { one(&mut dice) };
        let mut world = world.clone();
        let Some(case) = case.filter(|case| put(&mut world, &case.object.to_string()).is_ok()) else {
            continue;
        };
        let took = decide(world, &mut kafka.clone(), &[])?;
        if took > slowest.0 {
            slowest = (took, case.name);
        }
    }
    Ok((format!("slowest pass for {CASES} hostile resources of kind {kind}"), slowest.0, slowest.1))
}

fn schema(kind: &str) -> Result<Json> {
    let all = karst_api::definitions();
    let definition = all.into_iter().find(|one| one.spec.names.kind == kind);
    let mut definition = serde_json::to_value(definition.context("a kind without a schema")?)?;
    Ok(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].take())
}
