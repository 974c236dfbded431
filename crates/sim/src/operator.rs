//! The operator as a process: a cache that lags behind, passes in the order of the real one, and a life that can end before
//! or after any call.
//!
//! What is decided is decided by the real [`karst_core::plan::plan`] and [`karst_core::podset::plan`]; the order of the calls
//! is that of the operator's own passes.

mod cache;
mod hands;
pub(crate) mod kafka;
mod orphans;
mod pods;

use std::collections::BTreeMap;
use std::sync::Arc;

use karst_core::absences;
use karst_core::ids::Entropy;
use karst_core::memory::Memory;
use karst_core::names::{ClusterKey, POOL_LABEL};
use karst_core::plan::{self, Plan};
use karst_core::podset;
use karst_core::world::{Answers, Settings, World};

use self::cache::Cache;
use crate::dice::Dice;
use crate::faults::{Fate, Silence};
use crate::kubernetes::{Item, KINDS, Kind, Refusal, Stored, Watcher};
use crate::mint::Mint;
use crate::sim::{NAMESPACE, Sim, timestamp};

/// As the real one: how often a pass decides anew.
const ROUNDS: usize = 8;
/// So many passes in a row that come to no end never will.
const ENDLESS: usize = 20;
/// How soon to look again when the world changed under a decision, in milliseconds.
const CHANGED: u64 = 100;
/// How soon after a failure.
const FAILED: u64 = 1_000;

/// Why a pass goes no further.
#[derive(Debug)]
enum End {
    /// The process died.
    Crash,
    /// A call failed.
    Failed(Failure),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// The world is not as it was seen.
    Changed,
    /// There is no such object.
    Missing,
    /// It was refused, or not answered.
    Unanswered,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        if refusal == Refusal::Missing { Self::Missing } else { Self::Changed }
    }
}

type Called<T> = Result<T, End>;

/// The operator.
#[derive(Debug, Clone)]
pub struct Operator {
    key: ClusterKey,
    settings: Arc<Settings>,
    cache: Cache,
    /// What is remembered from one pass to the next.
    memory: Memory,
    mint: Mint,
    /// When the cluster is looked at again.
    due: Option<u64>,
    due_sets: BTreeMap<String, u64>,
    /// When it starts again, while it is dead.
    down: Option<u64>,
    is_nested: bool,
    watcher: Watcher,
    /// How many passes in a row came to no end.
    endless: usize,
    /// Which one it is, when there are two.
    number: usize,
    /// When it last called anybody.
    pub acted: u64,
}

impl Operator {
    /// An operator that is about to start.
    pub fn new(cluster: &str, mint: Mint) -> Self {
        Self {
            key: ClusterKey { namespace: NAMESPACE.to_owned(), name: cluster.to_owned() },
            settings: Arc::new(Settings {
                operator_version: "0.1.0".to_owned(),
                node_image: "docker.io/karst/operator:0.1.0".to_owned(),
                kafka_images: BTreeMap::new(),
                image_pull_policy: None,
                image_pull_secrets: Vec::new(),
                cluster_domain: "cluster.local".to_owned(),
                network_policies: true,
                operator_namespace: None,
                operator_namespace_labels: BTreeMap::new(),
                privileged_templates: false,
            }),
            cache: Cache::default(),
            memory: Memory::default(),
            mint,
            due: None,
            due_sets: BTreeMap::new(),
            down: Some(0),
            is_nested: false,
            watcher: Watcher::default(),
            endless: 0,
            number: 0,
            acted: 0,
        }
    }

    /// Another one, about to start.
    pub(crate) fn rival(&self, now: u64) -> Self {
        Self { number: 1 - self.number, down: Some(now), ..Self::new(&self.key.name, self.mint.clone()) }
    }

    /// Is it at work, with nothing to do at once, and everything heard?
    pub fn is_idle(&self, sim: &Sim) -> bool {
        self.down.is_none() && self.due_sets.is_empty() && sim.api.has_told_all(&self.watcher)
    }

    /// A new run begins: what it heard is the past.
    pub(crate) fn forget_past(&mut self) {
        self.watcher = Watcher::default();
    }

    /// A moment of its life.
    pub fn step(&mut self, sim: &mut Sim) {
        if let Some(down) = self.down {
            if sim.now < down {
                return;
            }
            self.start(sim);
        }
        self.hear(sim);
        if sim.now < sim.no_operator_until || self.work(sim).is_err() {
            self.crash(sim);
        }
    }

    fn start(&mut self, sim: &mut Sim) {
        self.down = None;
        self.acted = sim.now;
        self.cache.clear();
        let stale = sim.faults.stale.filter(|_| sim.began > 0);
        let mut dice = Dice::new(sim.now);
        for kind in KINDS {
            let at = match stale {
                None => sim.now,
                Some(stale) => {
                    let mut upto = |most: u64| if stale.together { most } else { dice.between(0, most) };
                    let (back, hold) = (upto(stale.back), upto(stale.hold));
                    sim.deaf.insert((self.number, kind), Silence { until: sim.now + hold, list: None });
                    sim.now.saturating_sub(back)
                }
            };
            self.cache.list(kind, sim.api.list(kind, at, &mut self.watcher));
        }
        let sets = self.cache.all().filter(|item| item.kind() == Kind::PodSet);
        self.due_sets = sets.map(|set| (set.name().to_owned(), sim.now)).collect();
        self.due = Some(sim.now);
    }

    fn crash(&mut self, sim: &mut Sim) {
        let name = self.name();
        sim.tell(|| format!("{name}dies"));
        self.down = Some((sim.now + sim.dice.between(200, 4_000)).max(sim.no_operator_until));
        self.acted = sim.now;
        self.memory = Memory::default();
        self.due = None;
        self.due_sets.clear();
        self.cache.clear();
        self.is_nested = false;
    }

    /// How stories call it.
    fn name(&self) -> &'static str {
        if self.number == 0 { "operator  " } else { "second    " }
    }

    /// Takes in what the watches tell.
    fn hear(&mut self, sim: &mut Sim) {
        for (kind, list) in sim.ended_silences(self.number) {
            // What it hears now it acts on, however long ago that happened.
            self.acted = sim.now;
            if let Some(age) = list {
                self.list_again(kind, age, sim);
            }
        }
        let is_deaf = |kind| sim.deaf.get(&(self.number, kind)).is_some_and(|one| sim.now < one.until);
        for event in sim.api.tell_news(&mut self.watcher, is_deaf) {
            if let Some(item) = self.cache.hear(event) {
                self.wake(&item, sim);
            }
        }
    }

    /// A watch that told nothing for a while begins again, with a list that took so long to arrive. No list is older than what was
    /// told before it was asked for.
    fn list_again(&mut self, kind: Kind, age: u64, sim: &mut Sim) {
        let mut list = sim.api.list(kind, sim.now.saturating_sub(age), &mut self.watcher);
        if list.version < self.cache.told(kind) {
            list = sim.api.list(kind, sim.now, &mut self.watcher);
        }
        for item in self.cache.list(kind, list) {
            self.wake(&item, sim);
        }
    }

    /// Takes in an answer, unless what is known is newer, and looks again because of it.
    fn learn(&mut self, stored: Stored, sim: &mut Sim) {
        let item = stored.item.clone();
        if self.cache.answer(stored) {
            self.wake(&item, sim);
        }
    }

    fn wake(&mut self, item: &Item, sim: &mut Sim) {
        let soon = sim.now + sim.dice.between(0, 2) * 100;
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
        let set = match item {
            Item::PodSet(set) => Some(set.meta.name.clone()),
            Item::Pod(pod) => pod.meta.labels.get("strimzi.io/controller-name").cloned(),
            // A pod waits until a disk that is being deleted is gone.
            Item::Claim(claim) => claim.meta.labels.get(POOL_LABEL).map(|pool| self.key.pod_set(pool)),
            _ => None,
        };
        if let Some(set) = set {
            self.due_sets.entry(set).or_insert(soon);
        }
    }

    fn work(&mut self, sim: &mut Sim) -> Called<()> {
        self.keep_sets(sim)?;
        if self.due.is_some_and(|due| due <= sim.now) {
            self.due = None;
            let look_again = match self.pass(sim) {
                Ok(look_again) => look_again,
                Err(End::Failed(failure)) => Some(pause_after(failure)),
                Err(End::Crash) => return Err(End::Crash),
            };
            let again = look_again.map(|pause| sim.now + pause);
            self.due = self.due.into_iter().chain(again).min();
        }
        Ok(())
    }

    /// The world moves on, and the other half of the operator with it.
    fn pause(&mut self, sim: &mut Sim) -> Called<()> {
        if !sim.faults.interleaves || !sim.dice.chance(250) {
            return Ok(());
        }
        self.meanwhile(sim)
    }

    fn meanwhile(&mut self, sim: &mut Sim) -> Called<()> {
        sim.tick();
        sim.step_rival();
        self.hear(sim);
        if !self.is_nested {
            self.is_nested = true;
            self.keep_sets(sim)?;
            self.is_nested = false;
        }
        Ok(())
    }

    /// One call, with whatever befalls it.
    fn call<T>(
        &mut self,
        sim: &mut Sim,
        what: impl FnOnce() -> String,
        does: impl FnOnce(&mut Sim) -> Result<T, Failure>,
    ) -> Called<T> {
        self.pause(sim)?;
        if sim.now < sim.no_operator_until {
            return Err(End::Crash);
        }
        self.acted = sim.now;
        let fate = sim.fate();
        let (number, name) = (sim.calls, self.name());
        match fate {
            Fate::Fine => sim.tell(|| format!("{name}{number}: {}", what())),
            fate => sim.tell(|| format!("{name}{number}: {} ({fate:?})", what())),
        }
        match fate {
            Fate::Fine => does(sim).map_err(End::Failed),
            Fate::CrashBefore => Err(End::Crash),
            Fate::CrashAfter => {
                let _ = does(sim);
                Err(End::Crash)
            }
            Fate::Lost => {
                let _ = does(sim);
                Err(End::Failed(Failure::Unanswered))
            }
            Fate::Refused => Err(End::Failed(Failure::Unanswered)),
            Fate::Late(moments) => {
                let answer = does(sim);
                for _ in 0..moments {
                    self.meanwhile(sim)?;
                }
                answer.map_err(End::Failed)
            }
        }
    }

    pub(crate) fn world(&self, sim: &mut Sim, answers: Answers) -> Option<World> {
        let mut world = World {
            key: self.key.clone(),
            kafka: match self.cache.get(Kind::Kafka, &self.key.name) {
                Some(Stored { item: Item::Kafka(kafka), .. }) => Arc::clone(kafka),
                _ => return None,
            },
            pools: BTreeMap::new(),
            pod_sets: BTreeMap::new(),
            taken: BTreeMap::new(),
            pods: BTreeMap::new(),
            config_maps: BTreeMap::new(),
            services: BTreeMap::new(),
            service_accounts: BTreeMap::new(),
            budgets: BTreeMap::new(),
            policies: BTreeMap::new(),
            claims: BTreeMap::new(),
            secrets: BTreeMap::new(),
            references: BTreeMap::new(),
            unreadable: None,
            strays: Vec::new(),
            answers,
            memory: self.memory.clone(),
            referenced: BTreeMap::new(),
            settings: Arc::clone(&self.settings),
            now: timestamp(sim.now),
            api_server_time: None,
            entropy: Entropy(sim.dice.bytes()),
        };
        for item in self.cache.all() {
            let name = item.name().to_owned();
            match item {
                Item::Kafka(_) => {}
                Item::Pool(item) => drop(world.pools.insert(name, Arc::clone(item))),
                Item::PodSet(item) => drop(world.pod_sets.insert(name, Arc::clone(item))),
                Item::Pod(item) => drop(world.pods.insert(name, Arc::clone(item))),
                Item::ConfigMap(item) => drop(world.config_maps.insert(name, Arc::clone(item))),
                Item::Service(item) => drop(world.services.insert(name, Arc::clone(item))),
                Item::Account(item) => drop(world.service_accounts.insert(name, Arc::clone(item))),
                Item::Budget(item) => drop(world.budgets.insert(name, Arc::clone(item))),
                Item::Policy(item) => drop(world.policies.insert(name, Arc::clone(item))),
                Item::Claim(item) => drop(world.claims.insert(name, Arc::clone(item))),
                Item::Secret(item) => drop(world.secrets.insert(name, Arc::clone(item))),
            }
        }
        Some(world)
    }

    /// One pass of the cluster. Returns when to look again.
    fn pass(&mut self, sim: &mut Sim) -> Called<Option<u64>> {
        let mut answers = Answers::default();
        let mut uncertified = None;
        for _ in 0..ROUNDS {
            self.memory.begin_pass(timestamp(sim.now));
            let Some(mut world) = self.world(sim, answers.clone()) else { return self.keep_orphans(sim) };
            world.memory.absent = absences::of(&world);
            self.memory.absent.clone_from(&world.memory.absent);
            sim.plans += 1;
            let Ok(plan) = plan::plan(&world) else {
                sim.fail("the plan could not be rendered".to_owned());
                return Ok(None);
            };
            if let Some(rendered) = &plan.rendered {
                self.due_sets.extend(podset::admitted(&world, rendered).map(|set| (set.clone(), sim.now)));
                self.memory.rendered = podset::remembered(&world, rendered);
            }
            hands::pools_exist(sim, &world, &plan.begins())?;
            if plan.facts.is_empty() && !plan.certificates.is_empty() && uncertified.is_none() {
                let mut failures = Vec::new();
                self.certify(sim, &world, &plan.certificates, &mut failures)?;
                // What needs no new certificate goes on without.
                uncertified = pause_after_all(&failures);
                continue;
            }
            if !plan.questions.is_empty() {
                self.ask(sim, &world, &plan.questions, &mut answers)?;
                continue;
            }
            if plan.facts.is_empty() {
                self.endless = 0;
                let again = self.act(sim, &world, plan)?;
                return Ok(uncertified.or(again));
            }
            self.make_durable(sim, &world, plan)?;
        }
        self.endless += 1;
        if self.endless > ENDLESS {
            sim.fail("the operator asks and asks, and does nothing".to_owned());
        }
        Ok(Some(CHANGED))
    }

    fn make_durable(&mut self, sim: &mut Sim, world: &World, plan: Plan) -> Called<()> {
        let mut failures = Vec::new();
        for fact in &plan.facts {
            self.note(&mut failures, |own| own.write_fact(sim, world, fact))?;
        }
        self.write(sim, world, plan.objects, &mut failures)?;
        self.certify(sim, world, &plan.certificates, &mut failures)?;
        failures.into_iter().next().map_or(Ok(()), |failure| Err(End::Failed(failure)))
    }

    /// Goes on after a failure, and remembers it; a crash ends everything.
    fn note(
        &mut self,
        failures: &mut Vec<Failure>,
        does: impl FnOnce(&mut Self) -> Called<()>,
    ) -> Called<()> {
        match does(self) {
            Err(End::Failed(failure)) => failures.push(failure),
            Err(End::Crash) => return Err(End::Crash),
            Ok(()) => {}
        }
        Ok(())
    }

    fn act(&mut self, sim: &mut Sim, world: &World, mut plan: Plan) -> Called<Option<u64>> {
        let mut failures = Vec::new();
        if plan.relies_on_pods() && !world.has_just_these_pods(sim.api.pods().map(AsRef::as_ref)) {
            plan.rely_on_no_pods();
            failures.push(Failure::Changed);
        }
        let objects = plan.objects.into_iter().chain(plan.services).collect();
        self.write(sim, world, objects, &mut failures)?;
        for growth in &plan.growths {
            self.note(&mut failures, |own| own.grow(sim, growth))?;
        }
        for removal in &plan.removals {
            self.note(&mut failures, |own| own.remove(sim, world, removal))?;
        }
        for ownership in &plan.ownerships {
            self.note(&mut failures, |own| own.own(sim, ownership))?;
        }
        for (pool, protection) in &plan.protections {
            self.note(&mut failures, |own| match own.protect(sim, world, pool, *protection) {
                Err(End::Failed(Failure::Missing)) => Ok(()),
                outcome => outcome,
            })?;
        }
        for mark in &plan.marks {
            self.note(&mut failures, |own| own.mark(sim, mark))?;
        }
        for restart in &plan.restarts {
            self.note(&mut failures, |own| own.restart(sim, world, restart))?;
        }
        self.memory.checked_settings.extend(plan.checked_settings);
        for deed in &plan.deeds {
            let mut has_answered = true;
            self.note(&mut failures, |own| {
                has_answered = own.ask_kafka_to(sim, world, deed)?;
                Ok(())
            })?;
            // As the real one: whoever does not answer is not asked for more.
            if !has_answered {
                break;
            }
        }
        for annotation in &plan.forgotten {
            self.note(&mut failures, |own| own.forget(sim, world, annotation))?;
        }
        for (pool, patch) in &plan.pool_statuses {
            let uid = world.pools.get(pool).and_then(|pool| pool.metadata.uid.as_deref());
            self.note(&mut failures, |own| own.report(sim, Kind::Pool, pool, uid, &patch["status"]))?;
        }
        if let Some(patch) = &plan.status {
            let (name, uid) = (world.key.name.clone(), world.kafka.metadata.uid.as_deref());
            self.note(&mut failures, |own| own.report(sim, Kind::Kafka, &name, uid, &patch["status"]))?;
        }
        let regular = plan.look_again.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX));
        Ok(pause_after_all(&failures).or(regular))
    }
}

impl Sim {
    /// A moment in the life of the other operator, if there is one and it is not at work already.
    pub(crate) fn step_rival(&mut self) {
        if let Some(mut rival) = self.rival.take() {
            rival.step(self);
            self.rival = Some(rival);
        }
    }
}

fn pause_after(failure: Failure) -> u64 {
    if failure == Failure::Changed { CHANGED } else { FAILED }
}

/// How soon after these failures; `None` when there was none.
fn pause_after_all(failures: &[Failure]) -> Option<u64> {
    failures.iter().map(|failure| pause_after(*failure)).max()
}
