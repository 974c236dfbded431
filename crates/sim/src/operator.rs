//! The operator as a process: a cache that lags behind, passes in the order of the real one, and a life that can end before
//! or after any call.
//!
//! What is decided is decided by the real [`karst_core::plan::plan`] and [`karst_core::podset::plan`]; the order of the calls
//! is that of the operator's own passes.

use std::collections::BTreeMap;
use std::sync::Arc;

use karst_core::ids::Entropy;
use karst_core::membership::Change;
use karst_core::names::{ClusterKey, MANUAL_ROLL_ANNOTATION, POOL_FINALIZER};
use karst_core::objects::Object;
use karst_core::plan::{self, Fact, Mark, Plan, Protection, Questions, Removal};
use karst_core::podset::{self, PodAction};
use karst_core::rolling::Restart;
use karst_core::world::{Answer, Answers, Partitions, PodSetView, PodView, Settings, Trouble, World};

use crate::invariants::Stop;
use crate::kraft::Refused;
use crate::kubernetes::{Event, Item, Kind, Refusal, Stored};
use crate::sim::{Fate, NAMESPACE, Sim, timestamp};

/// As the real one: how often a pass decides anew.
const ROUNDS: usize = 6;
/// How soon to look again when the world changed under a decision, in milliseconds.
const CHANGED: u64 = 100;
/// How soon after a failure.
const FAILED: u64 = 1_000;
/// For how long a change of the quorum is waited for.
const PATIENCE: u64 = 3_000;

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
    cache: BTreeMap<(Kind, String), Stored>,
    trouble: Option<(Trouble, u32)>,
    /// When the cluster is looked at again.
    due: Option<u64>,
    due_sets: BTreeMap<String, u64>,
    /// When it starts again, while it is dead.
    down: Option<u64>,
    is_nested: bool,
    /// When it last called anybody.
    pub acted: u64,
}

impl Operator {
    /// An operator that is about to start.
    pub fn new(cluster: &str) -> Self {
        Self {
            key: ClusterKey { namespace: NAMESPACE.to_owned(), name: cluster.to_owned() },
            settings: Arc::new(Settings {
                operator_version: "0.1.0".to_owned(),
                node_image: "docker.io/karst/operator:0.1.0".to_owned(),
                kafka_images: BTreeMap::new(),
                image_pull_policy: None,
                image_pull_secrets: Vec::new(),
                cluster_domain: "cluster.local".to_owned(),
            }),
            cache: BTreeMap::new(),
            trouble: None,
            due: None,
            due_sets: BTreeMap::new(),
            down: Some(0),
            is_nested: false,
            acted: 0,
        }
    }

    /// Is it at work, with nothing to do at once?
    pub fn is_idle(&self) -> bool {
        self.down.is_none() && self.due_sets.is_empty()
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
        if self.work(sim).is_err() {
            self.crash(sim);
        }
    }

    fn start(&mut self, sim: &mut Sim) {
        self.down = None;
        self.cache = sim
            .api
            .list()
            .into_iter()
            .map(|stored| ((stored.item.kind(), stored.item.name().to_owned()), stored))
            .collect();
        self.due = Some(sim.now);
        self.due_sets = sim.api.pod_sets().map(|set| (set.meta.name.clone(), sim.now)).collect();
    }

    fn crash(&mut self, sim: &mut Sim) {
        sim.tell(|| "operator  dies".to_owned());
        self.down = Some(sim.now + sim.dice.between(200, 4_000));
        self.acted = sim.now;
        self.trouble = None;
        self.due = None;
        self.due_sets.clear();
        self.cache.clear();
        self.is_nested = false;
    }

    /// Takes in what the watches tell.
    fn hear(&mut self, sim: &mut Sim) {
        for event in sim.api.told() {
            match event {
                Event::Put(stored) => self.learn(stored, sim),
                Event::Gone { kind, name, uid } => {
                    let place = (kind, name);
                    if self.cache.get(&place).is_some_and(|known| known.item.uid() == uid) {
                        let gone = self.cache.remove(&place);
                        self.wake(gone.as_ref().map(|gone| &gone.item), sim);
                    }
                }
            }
        }
    }

    /// Takes in an object, unless what is known is newer.
    fn learn(&mut self, stored: Stored, sim: &mut Sim) {
        let place = (stored.item.kind(), stored.item.name().to_owned());
        let is_known = self
            .cache
            .get(&place)
            .is_some_and(|known| known.item.uid() == stored.item.uid() && known.version >= stored.version);
        if !is_known {
            self.wake(Some(&stored.item), sim);
            self.cache.insert(place, stored);
        }
    }

    fn wake(&mut self, item: Option<&Item>, sim: &mut Sim) {
        let soon = sim.now + sim.dice.between(0, 2) * 100;
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
        let set = match item {
            Some(Item::PodSet(set)) => Some(set.meta.name.clone()),
            Some(Item::Pod(pod)) => pod.meta.labels.get("strimzi.io/controller-name").cloned(),
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
        sim.tick();
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
        self.acted = sim.now;
        let fate = sim.fate();
        let number = sim.calls;
        match fate {
            Fate::Fine => sim.tell(|| format!("operator  {number}: {}", what())),
            fate => sim.tell(|| format!("operator  {number}: {} ({fate:?})", what())),
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
        }
    }

    fn world(&self, sim: &mut Sim, answers: Answers) -> Option<World> {
        let mut world = World {
            key: self.key.clone(),
            kafka: match self.cache.get(&(Kind::Kafka, self.key.name.clone())) {
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
            claims: BTreeMap::new(),
            answers,
            trouble: self.trouble.as_ref().map(|(trouble, _)| trouble.clone()),
            settings: Arc::clone(&self.settings),
            now: timestamp(sim.now),
            entropy: Entropy(sim.dice.bytes()),
        };
        for ((_, name), Stored { item, .. }) in &self.cache {
            let name = name.clone();
            match item {
                Item::Kafka(_) => {}
                Item::Pool(item) => drop(world.pools.insert(name, Arc::clone(item))),
                Item::PodSet(item) => drop(world.pod_sets.insert(name, Arc::clone(item))),
                Item::Pod(item) => drop(world.pods.insert(name, Arc::clone(item))),
                Item::ConfigMap(item) => drop(world.config_maps.insert(name, Arc::clone(item))),
                Item::Service(item) => drop(world.services.insert(name, Arc::clone(item))),
                Item::Account(item) => drop(world.service_accounts.insert(name, Arc::clone(item))),
                Item::Claim(item) => drop(world.claims.insert(name, Arc::clone(item))),
            }
        }
        Some(world)
    }

    /// One pass of the cluster. Returns when to look again.
    fn pass(&mut self, sim: &mut Sim) -> Called<Option<u64>> {
        let mut answers = Answers::default();
        for _ in 0..ROUNDS {
            let Some(world) = self.world(sim, answers.clone()) else { return Ok(None) };
            sim.plans += 1;
            let Ok(plan) = plan::plan(&world) else {
                sim.fail("the plan could not be rendered".to_owned());
                return Ok(None);
            };
            if !plan.questions.is_empty() {
                self.ask(sim, &plan.questions, &mut answers)?;
                continue;
            }
            if plan.facts.is_empty() {
                return self.act(sim, &world, plan);
            }
            self.make_durable(sim, &world, plan)?;
        }
        Ok(Some(CHANGED))
    }

    fn ask(&mut self, sim: &mut Sim, questions: &Questions, answers: &mut Answers) -> Called<()> {
        self.pause(sim)?;
        let is_up = |sim: &Sim, hosts: &[String]| {
            hosts.iter().any(|host| {
                let pod = host.split('.').next().unwrap_or_default();
                karst_core::names::node_of_pod(pod)
                    .is_some_and(|node| sim.quorum.processes.contains_key(&node))
            })
        };
        let is_silent =
            |sim: &mut Sim| sim.is_stormy() && sim.faults.silence > 0 && sim.dice.chance(sim.faults.silence);
        let silence = || "no answer".to_owned();
        if !questions.quorum.is_empty() {
            let reached = is_up(sim, &questions.quorum) && !is_silent(sim);
            let said = if reached { sim.quorum.describe(&mut sim.dice) } else { None };
            answers.quorum = said.map_or_else(|| Answer::Silent(silence()), Answer::Known);
        }
        if !questions.partitions_of.is_empty() {
            let of = questions.partitions_of.clone();
            let reached = is_up(sim, &questions.brokers) && !is_silent(sim);
            let found = sim.partitions.iter().filter(|one| !one.replicas.is_disjoint(&of)).cloned().collect();
            answers.partitions =
                if reached { Answer::Known(Partitions { of, found }) } else { Answer::Silent(silence()) };
        }
        Ok(())
    }

    fn make_durable(&mut self, sim: &mut Sim, world: &World, plan: Plan) -> Called<()> {
        let mut failures = Vec::new();
        for fact in &plan.facts {
            self.note(&mut failures, |own| own.write_fact(sim, world, fact))?;
        }
        self.write(sim, plan.objects, &mut failures)?;
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

    fn write_fact(&mut self, sim: &mut Sim, world: &World, fact: &Fact) -> Called<()> {
        let (kind, name, version, status, forms) = match fact {
            Fact::PoolNodes { pool, status } | Fact::PoolCluster { pool, status } => {
                let Some(resource) = world.pools.get(pool) else { return Ok(()) };
                (Kind::Pool, pool.clone(), resource.metadata.resource_version.clone(), status, false)
            }
            Fact::Identity { status, forms } => {
                let version = world.kafka.metadata.resource_version.clone();
                (Kind::Kafka, world.key.name.clone(), version, status, *forms)
            }
        };
        if forms && sim.api.has_remains() {
            return Err(End::Failed(Failure::Changed));
        }
        let written = self.call(
            sim,
            || format!("makes durable {kind:?} {name}: {status}"),
            |sim| sim.api.patch_status(kind, &name, version.as_deref(), status).map_err(Failure::from),
        )?;
        self.learn(written, sim);
        Ok(())
    }

    fn write(&mut self, sim: &mut Sim, objects: Vec<Object>, failures: &mut Vec<Failure>) -> Called<()> {
        let (sets, mut others): (Vec<_>, Vec<_>) =
            objects.into_iter().partition(|object| matches!(object, Object::PodSet(_)));
        // The real ones go out side by side: any can be the first.
        if sim.faults.interleaves && !others.is_empty() {
            let first = usize::try_from(sim.dice.roll()).unwrap_or_default() % others.len();
            others.rotate_left(first);
        }
        for object in others {
            self.note(failures, |own| own.write_one(sim, object))?;
        }
        if failures.is_empty() {
            for object in sets {
                self.note(failures, |own| own.write_one(sim, object))?;
            }
        }
        Ok(())
    }

    fn write_one(&mut self, sim: &mut Sim, object: Object) -> Called<()> {
        let what = object.describe();
        let written = self.call(
            sim,
            || format!("writes {what}{}", details(&object)),
            |sim| {
                if let Object::ConfigMap(map) = &object {
                    let new = map.data.as_ref().and_then(|data| data.get("storage.format").cloned());
                    sim.check_settings(map.metadata.name.as_deref().unwrap_or_default(), new.as_ref());
                }
                Ok(sim.api.apply(object.clone()))
            },
        )?;
        if let Some(written) = written {
            self.learn(written, sim);
        }
        Ok(())
    }

    fn act(&mut self, sim: &mut Sim, world: &World, plan: Plan) -> Called<Option<u64>> {
        let mut failures = Vec::new();
        self.write(sim, plan.objects, &mut failures)?;
        for removal in &plan.removals {
            self.note(&mut failures, |own| own.remove(sim, removal))?;
        }
        for (pool, protection) in &plan.protections {
            self.note(&mut failures, |own| own.protect(sim, world, pool, *protection))?;
        }
        for mark in &plan.marks {
            self.note(&mut failures, |own| own.mark(sim, mark))?;
        }
        for restart in &plan.restarts {
            self.note(&mut failures, |own| own.restart(sim, restart))?;
        }
        if let Some(change) = &plan.change {
            self.change_quorum(sim, change)?;
        }
        for (pool, patch) in &plan.pool_statuses {
            self.note(&mut failures, |own| own.report(sim, Kind::Pool, pool, &patch["status"]))?;
        }
        if let Some(patch) = &plan.status {
            let name = world.key.name.clone();
            self.note(&mut failures, |own| own.report(sim, Kind::Kafka, &name, &patch["status"]))?;
        }
        if failures.is_empty() {
            return Ok(plan.look_again.map(|pause| u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)));
        }
        let only_changed = failures.iter().all(|failure| *failure == Failure::Changed);
        Ok(Some(if only_changed { CHANGED } else { FAILED }))
    }

    fn report(&mut self, sim: &mut Sim, kind: Kind, name: &str, patch: &serde_json::Value) -> Called<()> {
        let written = self.call(
            sim,
            || format!("reports on {kind:?} {name}{}", said(patch)),
            |sim| sim.api.patch_status(kind, name, None, patch).map_err(Failure::from),
        );
        match written {
            Ok(written) => self.learn(written, sim),
            Err(End::Failed(Failure::Missing)) if kind == Kind::Pool => {}
            Err(end) => return Err(end),
        }
        Ok(())
    }

    fn delete(&mut self, sim: &mut Sim, kind: Kind, name: &str, uid: &str) -> Called<()> {
        self.delete_checked(sim, kind, name, uid, |_| {})
    }

    fn delete_checked(
        &mut self,
        sim: &mut Sim,
        kind: Kind,
        name: &str,
        uid: &str,
        check: impl FnOnce(&mut Sim),
    ) -> Called<()> {
        let deleted = self.call(
            sim,
            || format!("deletes {kind:?} {name}"),
            |sim| {
                let is_same = sim.api.get(kind, name).is_some_and(|item| item.uid() == uid);
                if is_same {
                    check(sim);
                }
                sim.api.delete(kind, name, uid).map_err(Failure::from)
            },
        );
        if let Err(End::Failed(Failure::Missing)) = deleted { Ok(()) } else { deleted }
    }

    fn remove(&mut self, sim: &mut Sim, removal: &Removal) -> Called<()> {
        match removal {
            Removal::ConfigMap { name, uid } => self.delete(sim, Kind::ConfigMap, name, uid),
            Removal::PodSet { name, uid } => self.delete(sim, Kind::PodSet, name, uid),
            Removal::Claim { name, uid, pod } => {
                if sim.api.pod(pod).is_some() {
                    return Err(End::Failed(Failure::Changed));
                }
                self.delete_checked(sim, Kind::Claim, name, uid, |sim| sim.check_claim_removal(name))
            }
        }
    }

    fn protect(&mut self, sim: &mut Sim, world: &World, pool: &str, protection: Protection) -> Called<()> {
        let Some(resource) = world.pools.get(pool) else { return Ok(()) };
        let mut finalizers = resource.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != POOL_FINALIZER);
        if protection == Protection::Add {
            finalizers.push(POOL_FINALIZER.to_owned());
        }
        let version = resource.metadata.resource_version.clone();
        let patched = self.call(
            sim,
            || format!("{protection:?}s the finalizer of pool {pool}"),
            |sim| sim.api.set_finalizers(pool, version.as_deref(), finalizers.clone()).map_err(Failure::from),
        );
        match patched {
            Ok(Some(patched)) if !is_going(&patched) => self.learn(patched, sim),
            Ok(_) | Err(End::Failed(Failure::Missing)) => {}
            Err(end) => return Err(end),
        }
        Ok(())
    }

    fn mark(&mut self, sim: &mut Sim, mark: &Mark) -> Called<()> {
        for (pod, uid) in &mark.pods {
            let patched = self.call(
                sim,
                || format!("marks pod {pod} for a restart"),
                |sim| {
                    let is_same = sim.api.pod(pod).is_some_and(|pod| pod.meta.uid == *uid);
                    let marked = is_same.then(|| {
                        sim.api.edit_pod(pod, |pod| {
                            pod.meta.annotations.insert(MANUAL_ROLL_ANNOTATION.to_owned(), "true".to_owned());
                        })
                    });
                    marked.flatten().ok_or(Failure::Changed)
                },
            )?;
            self.learn(patched, sim);
        }
        let set = &mark.pod_set;
        let patched = self.call(
            sim,
            || format!("takes the mark off pod set {set}"),
            |sim| {
                let edited =
                    sim.api.edit_set(set, |set| drop(set.meta.annotations.remove(MANUAL_ROLL_ANNOTATION)));
                edited.ok_or(Failure::Missing)
            },
        )?;
        self.learn(patched, sim);
        Ok(())
    }

    fn restart(&mut self, sim: &mut Sim, restart: &Restart) -> Called<()> {
        let pod = &restart.pod;
        for (claim, uid) in &restart.claims {
            self.delete_checked(sim, Kind::Claim, claim, uid, |sim| sim.check_emptied(claim, pod))?;
        }
        let causes: Vec<_> = restart.causes.iter().map(ToString::to_string).collect();
        sim.tell(|| format!("operator  restarts {pod}, because {}", causes.join(", ")));
        self.delete_checked(sim, Kind::Pod, pod, &restart.uid, |sim| sim.check_stop(pod, Stop::Restart))?;
        let seen = self.cache.get_mut(&(Kind::Pod, pod.clone()));
        if let Some(Stored { item: Item::Pod(seen), .. }) = seen.filter(|seen| seen.item.uid() == restart.uid)
        {
            Arc::make_mut(seen).meta.deleting = true;
        }
        Ok(())
    }

    fn change_quorum(&mut self, sim: &mut Sim, change: &Change) -> Called<()> {
        let requested = self.call(
            sim,
            || format!("asks that {change}"),
            |sim| {
                let (Change::Join { voter, .. } | Change::Leave { voter, .. }) = change;
                let answer = if matches!(change, Change::Join { .. }) {
                    sim.quorum.clone().add(*voter).and_then(|_| {
                        sim.check_change(change);
                        sim.quorum.add(*voter)
                    })
                } else {
                    sim.quorum.clone().remove(*voter).and_then(|_| {
                        sim.check_change(change);
                        sim.quorum.remove(*voter)
                    })
                };
                Ok(answer)
            },
        );
        let why = match requested {
            Err(End::Crash) => return Err(End::Crash),
            Err(End::Failed(_)) => "no answer".to_owned(),
            Ok(Err(Refused::Duplicate | Refused::NotFound)) => return self.succeed(),
            Ok(Err(refused)) => format!("{refused:?}"),
            Ok(Ok(pending)) => {
                let until = sim.now + PATIENCE;
                loop {
                    match sim.quorum.is_done(&pending) {
                        Some(true) => return self.succeed(),
                        Some(false) if sim.now < until && sim.watch.broken.is_none() => {
                            sim.tick();
                            self.hear(sim);
                        }
                        _ => break "the request timed out".to_owned(),
                    }
                }
            }
        };
        sim.tell(|| format!("operator  the quorum did not change: {why}"));
        self.remember(sim, change, why);
        Ok(())
    }

    fn succeed(&mut self) -> Called<()> {
        self.trouble = None;
        Ok(())
    }

    fn remember(&mut self, sim: &Sim, change: &Change, why: String) {
        let before = self
            .trouble
            .as_ref()
            .filter(|(trouble, _)| trouble.change == *change)
            .map_or(0, |(_, times)| *times);
        let pause = (300_u64 << before.min(10)).min(5_000);
        let trouble = Trouble { change: change.clone(), why, until: timestamp(sim.now + pause) };
        self.trouble = Some((trouble, before + 1));
    }

    /// Keeps the pods of the pod sets that are due.
    fn keep_sets(&mut self, sim: &mut Sim) -> Called<()> {
        let due: Vec<String> =
            self.due_sets.iter().filter(|(_, due)| **due <= sim.now).map(|(name, _)| name.clone()).collect();
        for name in due {
            self.due_sets.remove(&name);
            let mut failures = Vec::new();
            self.note(&mut failures, |own| own.keep_set(sim, &name))?;
            if let Some(failure) = failures.first() {
                self.due_sets.insert(name, sim.now + pause_after(*failure));
            }
        }
        Ok(())
    }

    fn keep_set(&mut self, sim: &mut Sim, name: &str) -> Called<()> {
        let Some(Stored { item: Item::PodSet(set), .. }) = self.cache.get(&(Kind::PodSet, name.to_owned()))
        else {
            return Ok(());
        };
        let set = Arc::clone(set);
        let pods: Vec<Arc<PodView>> = self
            .cache
            .values()
            .filter_map(|stored| if let Item::Pod(pod) = &stored.item { Some(Arc::clone(pod)) } else { None })
            .collect();
        let plan = podset::plan(&set, &pods);
        let mut failures = Vec::new();
        for action in &plan.actions {
            self.note(&mut failures, |own| own.handle_pod(sim, &set, action))?;
        }
        if plan.actions.is_empty() && set.status.as_ref() != Some(&plan.status) {
            self.note(&mut failures, |own| own.report_set(sim, name, &plan))?;
        }
        failures.into_iter().next().map_or(Ok(()), |failure| Err(End::Failed(failure)))
    }

    fn report_set(&mut self, sim: &mut Sim, name: &str, plan: &podset::PodSetPlan) -> Called<()> {
        let written = self.call(
            sim,
            || format!("reports on pod set {name}"),
            |sim| sim.api.report_set(name, &plan.status).map_err(Failure::from),
        )?;
        self.learn(written, sim);
        Ok(())
    }

    fn handle_pod(&mut self, sim: &mut Sim, set: &PodSetView, action: &PodAction) -> Called<()> {
        match action {
            PodAction::Create { name, pod } => {
                let created = self.call(
                    sim,
                    || format!("creates pod {name}"),
                    |sim| sim.api.create_pod(pod, &set.meta.uid).map_err(Failure::from),
                )?;
                self.learn(created, sim);
                Ok(())
            }
            PodAction::Remove { name, uid } => {
                let live = sim.api.pod_sets().find(|live| live.meta.name == set.meta.name).cloned();
                let Some(live) = live else { return Ok(()) };
                if live.pods.contains_key(name) || live.meta.uid != set.meta.uid {
                    return Err(End::Failed(Failure::Changed));
                }
                self.delete_checked(sim, Kind::Pod, name, uid, |sim| sim.check_stop(name, Stop::Removal))
            }
            PodAction::Replace { name, uid, .. } => self.delete(sim, Kind::Pod, name, uid),
            PodAction::Adopt { .. } => Ok(()),
        }
    }
}

fn pause_after(failure: Failure) -> u64 {
    if failure == Failure::Changed { CHANGED } else { FAILED }
}

fn is_going(stored: &Stored) -> bool {
    matches!(&stored.item, Item::Pool(pool) if pool.metadata.deletion_timestamp.is_some())
}

/// What is worth reading of an object.
fn details(object: &Object) -> String {
    match object {
        Object::PodSet(set) => {
            let names: Vec<_> =
                set.spec.pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
            format!(": {}", names.join(", "))
        }
        Object::ConfigMap(map) => {
            let format = map.data.as_ref().and_then(|data| data.get("storage.format")).cloned();
            format!(" (format {})", format.unwrap_or_default())
        }
        _ => String::new(),
    }
}

/// What is worth reading of a status.
fn said(patch: &serde_json::Value) -> String {
    let conditions = patch["conditions"].as_array().cloned().unwrap_or_default();
    let text: Vec<_> = conditions
        .iter()
        .map(|one| {
            format!("{}={} {}", one["type"], one["status"], one["message"].as_str().unwrap_or_default())
        })
        .collect();
    if text.is_empty() { String::new() } else { format!(": {}", text.join("; ").replace('"', "")) }
}
