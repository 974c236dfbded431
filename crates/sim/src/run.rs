//! One run: a story from its beginning to its end, and what came of it.

use std::collections::{BTreeMap, BTreeSet};

use karst_core::ids::NodeId;
use karst_core::names::{MIGRATION_ANNOTATION, node_of_pod};
use karst_core::world::{Answers, World};

use crate::dice::Dice;
use crate::faults::{Faults, Strike};
use crate::kubernetes::{Counts, Item, Kind};
use crate::mint::Mint;
use crate::mutations::Before;
use crate::operator::Operator;
use crate::operator::kafka::running_settings;
use crate::scenarios::{self, Base, CLUSTER, Edit, Scenario, Step, When};
use crate::sim::Sim;

/// For so long nothing must happen for the world to be at rest, in milliseconds: longer than any regular look.
const REST: u64 = 12_000;
/// The same where nodes are looked at once more, because a setting is gone.
const SECOND_LOOK: u64 = 75_000;
/// So many brokers move in one story, and one after the other may have to be put back.
const MOST_PUT_BACK: usize = 3;
/// Within this time everything must come to rest.
const BOUND: u64 = 900_000;

/// How the world looks in the end, without what differs from run to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndState {
    /// Who votes.
    pub voters: BTreeSet<NodeId>,
    /// Pods: do they vote, do they serve, are they ready?
    pub pods: BTreeMap<String, (bool, bool, bool)>,
    /// Those that are not made as their pod sets want them now.
    pub outdated: BTreeSet<String>,
    /// Claims.
    pub claims: BTreeSet<String>,
    /// ConfigMaps, and how their nodes format disks.
    pub formats: BTreeMap<String, Option<String>>,
    /// Pools, and their nodes.
    pub pools: BTreeMap<String, Vec<i32>>,
    /// Pod sets.
    pub sets: BTreeSet<String>,
    /// Secrets.
    pub secrets: BTreeSet<String>,
    /// The brokers that Kafka knows.
    pub registered: BTreeSet<NodeId>,
    /// The level of the metadata version.
    pub level: i16,
    /// Are the voters in the settings of nodes?
    pub is_static: bool,
    /// What is asked for by annotations of the `Kafka` resource.
    pub asked: BTreeSet<String>,
}

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    /// What must hold and did not.
    pub broken: Option<String>,
    /// Did it end where Kafka does not find out of by itself? Then the rest of the end says nothing.
    pub stuck: bool,
    /// The end.
    pub end: EndState,
    /// What was made and deleted.
    pub counts: Counts,
    /// How many calls the operator made.
    pub calls: usize,
    /// How many times it decided.
    pub plans: usize,
    /// What happened.
    pub story: Vec<String>,
    /// What went wrong by chance.
    pub struck: Vec<Strike>,
}

/// A world in which the base of a story is at rest.
#[derive(Debug, Clone)]
pub struct Start {
    sim: Sim,
    operator: Operator,
}

impl Start {
    /// Makes a cluster, undisturbed.
    pub fn of(base: Base, mint: Mint) -> Self {
        let mut sim = Sim::new(0, false);
        scenarios::begin(&mut sim, base);
        let mut start = Self { sim, operator: Operator::new(CLUSTER, mint) };
        if base != Base::Nothing {
            start.rest();
            scenarios::populate(&mut start.sim, base);
            start.rest();
        }
        start
    }

    /// What its operator knows.
    pub(crate) fn world(&mut self) -> Option<World> {
        self.operator.world(&mut self.sim, Answers::default())
    }

    /// Lives on until nothing happens any more.
    fn rest(&mut self) {
        let began = self.sim.now;
        while self.sim.watch.broken.is_none() {
            self.step();
            if self.is_at_rest(began) {
                return;
            }
            if self.sim.now > began + BOUND {
                self.sim.fail(format!("nothing came to rest within {} s", BOUND / 1000));
            }
        }
    }

    fn step(&mut self) {
        self.sim.tick();
        self.meet_rival();
        self.operator.step(&mut self.sim);
        self.sim.step_rival();
    }

    /// While there are two operators, either can be in the middle of a pass when the other one acts. Either can stay.
    fn meet_rival(&mut self) {
        let Some((from, until)) = self.sim.faults.rival else { return };
        if self.sim.now >= until {
            self.sim.rival = None;
        } else if self.sim.now >= from {
            let (operator, now) = (&mut self.operator, self.sim.now);
            let rival = self.sim.rival.get_or_insert_with(|| Box::new(operator.rival(now)));
            if self.sim.dice.chance(500) {
                std::mem::swap(operator, rival);
            }
        }
    }

    fn is_at_rest(&self, began: u64) -> bool {
        let sim = &self.sim;
        let rest = if sim.api.remembers_a_setting_that_is_gone() { SECOND_LOOK } else { REST };
        let last = [sim.api.changed, self.operator.acted, began, sim.faults.until, sim.data.moved];
        let last = last.into_iter().max().unwrap_or_default();
        self.operator.is_idle(sim)
            && sim.rival.is_none()
            && sim.kubelet.is_settled(sim.now)
            && sim.data.is_settled()
            && !sim.quorum.just_recovered(REST)
            && sim.next.is_none()
            && sim.now > last + rest
            && !sim.quorum.just_lost_a_broker(REST)
    }
}

/// Runs a story.
pub fn run(start: &Start, scenario: &Scenario, seed: u64, faults: &Faults, tells: bool) -> Report {
    let mut start = start.clone();
    start.operator.forget_past();
    let sim = &mut start.sim;
    sim.api.forget_past();
    sim.dice = Dice::new(seed);
    sim.fates = Dice::new(seed ^ 0xfa7e);
    sim.weather = Dice::new(seed ^ 0x3ea7);
    sim.data.dice = Dice::new(seed ^ 0xda7a);
    sim.began = sim.now;
    sim.faults = faults.clone();
    if faults.until > 0 {
        sim.faults.until += sim.now;
    }
    sim.faults.rival = faults.rival.map(|(from, until)| (sim.now + from, sim.now + until));
    sim.calls = 0;
    sim.plans = 0;
    sim.api.counts = Counts::default();
    sim.agenda = scenario.steps.clone().into();
    if scenario.reverts {
        sim.before = Some(Before::of(sim));
        sim.agenda.push_back(Step { when: When::After(0, 30_000), edit: Edit::Revert });
    }
    sim.story = tells.then(Vec::new);
    sim.watch.fewest = scenario.fewest;
    sim.watch.last_fault = 0;
    sim.watch.last_surprise = 0;
    sim.watch.last_wish = 0;
    sim.watch.last_request = 0;
    sim.watch.last_claim_deletion = 0;
    sim.watch.last_stop = 0;
    sim.watch.taken_back = None;
    if sim.agenda.front().is_some_and(|step| step.when == When::AtRest) {
        sim.edit();
    } else {
        sim.plan_next();
    }
    start.rest();
    while start.sim.watch.broken.is_none() && !start.sim.agenda.is_empty() {
        start.sim.edit();
        start.rest();
    }
    for _ in 0..MOST_PUT_BACK {
        if start.sim.watch.broken.is_some() || !scenarios::put_back(&mut start.sim) {
            break;
        }
        start.rest();
    }
    conclude(start, scenario)
}

fn conclude(mut start: Start, scenario: &Scenario) -> Report {
    let end = end_state(&start.sim);
    let ready = end.pods.values().filter(|(_, _, ready)| *ready).count();
    let before = start.sim.before.take();
    let is_unlucky = start.sim.watch.unlucky && start.sim.quorum.leader().is_none();
    let starts_over = scenario.base == Base::Ephemeral && scenario.ready.is_some();
    let is_copied = starts_over && start.sim.quorum.outlives_its_voters();
    let stuck = start.sim.quorum.is_stuck_between_two() || is_unlucky || is_copied;
    if stuck {
        start.sim.tell(|| "end       the quorum is stuck, and nobody could have known".to_owned());
    } else if let Some(before) = before.filter(|_| start.sim.watch.broken.is_none()) {
        for difference in before.differences(&start.sim) {
            start.sim.fail(difference);
        }
    } else if start.sim.watch.broken.is_none() {
        if end.voters != scenario.voters && Some(&end.voters) != scenario.or_voters.as_ref() {
            start.sim.fail(format!("in the end {:?} vote, not {:?}", end.voters, scenario.voters));
        } else if scenario.ready.is_some_and(|wanted| !is_ready_as_told(scenario, &end, wanted)) {
            start.sim.fail(format!(
                "in the end {ready} of {} pods are ready, not {:?}",
                end.pods.len(),
                scenario.ready
            ));
        } else if scenario.ready.is_some() && end.registered != brokers(&end) {
            start.sim.fail(format!(
                "in the end {:?} are registered, not {:?}",
                end.registered,
                brokers(&end)
            ));
        } else if end.level != scenario.level {
            start
                .sim
                .fail(format!("in the end the metadata has level {}, not {}", end.level, scenario.level));
        } else if end.is_static != scenario.is_static {
            start.sim.fail(format!("in the end the quorum is static: {}", end.is_static));
        } else if let Some(asked) = end.asked.iter().find(|asked| asked.contains(MIGRATION_ANNOTATION)) {
            start.sim.fail(format!("in the end {asked} is still asked for"));
        } else if let Some(wrong) = scenario.ready.and_then(|_| wrong_settings(&start.sim)) {
            start.sim.fail(wrong);
        } else if scenario.ready.is_some() && !is_outdated_as_told(&start.sim, scenario, &end) {
            let what =
                format!("in the end {:?} are outdated, and {} should be", end.outdated, scenario.outdated);
            start.sim.fail(what);
        } else if let Some(left) = scenario.ready.and_then(|_| start.sim.data.without_leader()) {
            let left = format!("in the end nobody leads partition {left}");
            start.sim.fail(left);
        } else if !waits_for_lost_authority(&start.sim)
            && let Some(left) = scenario.ready.and_then(|_| start.sim.unfinished_authority())
        {
            start.sim.fail(left);
        } else if let Some(node) = scenario.ready.and_then(|_| start.sim.quorum.astray()) {
            start.sim.fail(format!("in the end node {node} holds other metadata than what was committed"));
        }
    }
    let mut sim = start.sim;
    if sim.watch.broken.is_some() {
        let said = sim.api.kafka().and_then(|kafka| kafka.status.as_ref()?.conditions.clone());
        let said = said.into_iter().flatten().filter_map(|one| {
            Some(format!(
                "the status says {}={}: {}",
                one.type_?,
                one.status?,
                one.message.unwrap_or_default()
            ))
        });
        for line in said.chain(sim.quorum.picture()).collect::<Vec<_>>() {
            sim.tell(|| format!("end       {line}"));
        }
    }
    Report {
        broken: sim.watch.broken,
        stuck,
        end,
        counts: sim.api.counts,
        calls: sim.calls,
        plans: sim.plans,
        story: sim.story.unwrap_or_default(),
        struck: sim.struck,
    }
}

/// Did whoever deleted the `Kafka` resource delete with it every copy of the certificate by which those that run trust each other, and does
/// the status ask a person for it? They go on, and none of them could restart without cutting itself off.
fn waits_for_lost_authority(sim: &Sim) -> bool {
    let status = sim.api.kafka().and_then(|kafka| kafka.status.as_ref());
    let mut said = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    sim.api.was_deleted() && said.any(|one| one.reason.as_deref() == Some("CertificateAuthorityLost"))
}

/// Where ids differ with what was heard of first, a node that was to move may stay, beside a new one.
fn is_ready_as_told(scenario: &Scenario, end: &EndState, wanted: usize) -> bool {
    let ready = end.pods.values().filter(|(_, _, ready)| *ready).count();
    let is_told = wanted == ready || (scenario.ids_differ && wanted < ready);
    is_told && ready == end.pods.len()
}

/// A pod that is held for want of a person's word is replaced when chance takes it.
fn is_outdated_as_told(sim: &Sim, scenario: &Scenario, end: &EndState) -> bool {
    let (told, found) = (scenario.outdated, end.outdated.len());
    found == told || (found < told && !sim.struck.is_empty())
}

/// The nodes whose pods serve as brokers.
fn brokers(end: &EndState) -> BTreeSet<NodeId> {
    let serving = end.pods.iter().filter(|(_, (_, broker, _))| *broker);
    serving.filter_map(|(name, _)| node_of_pod(name)).collect()
}

fn end_state(sim: &Sim) -> EndState {
    let pods = sim
        .api
        .pods()
        .map(|pod| (pod.meta.name.clone(), (pod.runs_controller(), pod.runs_broker(), pod.ready)));
    let formats = sim.api.all(Kind::ConfigMap).filter_map(|item| match item {
        Item::ConfigMap(map) => Some((map.meta.name.clone(), map.storage_format.clone())),
        _ => None,
    });
    let pools = sim.api.pools().map(|pool| {
        let ids = pool.status.as_ref().and_then(|status| status.node_ids.clone()).unwrap_or_default();
        (pool.metadata.name.clone().unwrap_or_default(), ids)
    });
    let wanted = |name: &str| sim.api.pod_sets().find_map(|set| set.pods.get(name));
    let outdated =
        sim.api.pods().filter(|pod| !wanted(&pod.meta.name).is_some_and(|wanted| pod.is_current(wanted)));
    let asked = sim.api.kafka().and_then(|kafka| kafka.metadata.annotations.as_ref()).into_iter();
    EndState {
        voters: sim.quorum.committed_voters().iter().map(|voter| voter.node).collect(),
        pods: pods.collect(),
        outdated: outdated.map(|pod| pod.meta.name.clone()).collect(),
        claims: sim.api.claims().map(|claim| claim.meta.name.clone()).collect(),
        formats: formats.collect(),
        pools: pools.collect(),
        sets: sim.api.pod_sets().map(|set| set.meta.name.clone()).collect(),
        secrets: sim.api.all(Kind::Secret).map(|secret| secret.name().to_owned()).collect(),
        registered: sim.quorum.registered().into_keys().collect(),
        level: sim.quorum.level,
        is_static: sim.quorum.is_static(),
        asked: asked.flatten().map(|(key, value)| format!("{key}={value}")).collect(),
    }
}

/// A node that does not run with the settings of the spec, of those that can change while it runs.
fn wrong_settings(sim: &Sim) -> Option<String> {
    let spec = &sim.api.kafka()?.spec.kafka;
    let version = karst_core::versions::find(spec.version.as_deref().unwrap_or_default())?;
    let config = spec.config.iter().flatten();
    let wanted: BTreeMap<_, _> = config
        .filter(|(key, _)| karst_core::dynamic::keys(version).any(|known| known == key.as_str()))
        .map(|(key, value)| (key.clone(), value.to_string()))
        .collect();
    sim.quorum.processes.keys().find_map(|node| {
        let running = running_settings(sim, *node)?.into_iter();
        let running: BTreeMap<_, _> = running.map(|one| (one.key, one.value.unwrap_or_default())).collect();
        (running != wanted).then(|| format!("in the end node {node} runs with {running:?}, not {wanted:?}"))
    })
}
