//! What the operator asks Kafka, and lets it do.

use std::collections::{BTreeMap, BTreeSet};

use karst_core::dynamic::{RunningSetting, Source};
use karst_core::ids::NodeId;
use karst_core::membership::Change;
use karst_core::names::{STARTED_WITH_ANNOTATION, node_of_pod};
use karst_core::plan::{self, Deed, Questions};
use karst_core::world::{
    Answer, Answers, LauncherView, PartitionView, Partitions, Recovery, Registered, RegisteredBroker, World,
};

use super::hands::wishes_are_as_seen;
use super::{Called, End, Failure, Operator};
use crate::kraft::{Pending, Refused};
use crate::kubernetes::Kind;
use crate::sim::{Sim, timestamp};

/// The setting that every node has.
const ROLES: &str = "process.roles";
/// For how long an answer is waited for.
const PATIENCE: u64 = 3_000;

impl Operator {
    pub(super) fn ask(
        &mut self,
        sim: &mut Sim,
        world: &World,
        questions: &Questions,
        answers: &mut Answers,
    ) -> Called<()> {
        self.pause(sim)?;
        if !questions.quorum.is_empty() {
            let reached = reaches(sim, world, &questions.quorum);
            let said = if reached { sim.quorum.describe(&mut sim.dice) } else { None };
            answers.quorum = known_or_silent(said);
        }
        if questions.registered {
            let reached = reaches(sim, world, &questions.brokers) && sim.quorum.leader().is_some();
            answers.registered = known_or_silent(reached.then(|| registered(sim)));
        }
        if !questions.partitions_of.is_empty() {
            let of = questions.partitions_of.clone();
            let found = partitions(sim, world, &questions.current_brokers, &of);
            answers.partitions = known_or_silent(found.map(|found| Partitions { of, found }));
        }
        for node in questions.launchers.keys() {
            answers.launchers.insert(*node, known_or_silent(launcher(sim, *node)));
        }
        for node in &questions.log_dirs_of {
            let serves = sim.quorum.processes.get(node).is_some_and(|process| process.serves.is_some());
            answers.log_dirs.insert(*node, known_or_silent(serves.then(Vec::new)));
        }
        for node in questions.settings_of_brokers.iter().chain(&questions.settings_of_controllers) {
            let told = running_settings(sim, *node).filter(|_| sim.accepts(*node, world));
            let all = told.map(|set| with_defaults(set, &questions.settings));
            let all = all.map(|set| set.into_iter().chain(roles(sim, *node)).collect());
            answers.settings.insert(*node, known_or_silent(all));
        }
        Ok(())
    }

    /// Lets Kafka do something. That it did not is remembered, and the pass goes on. Did it answer?
    pub(super) fn ask_kafka_to(&mut self, sim: &mut Sim, world: &World, deed: &Deed) -> Called<bool> {
        wishes_are_as_seen(sim, world)?;
        if let Deed::Change(change) = deed
            && let Some(node) = change.relies_on_pod_of()
            && !world.still_has_pod_of(node, sim.api.pods().map(AsRef::as_ref))
        {
            return Err(End::Failed(Failure::Changed));
        }
        if let Deed::Change(change) = deed
            && !still_changes(sim, world, change)
        {
            return Err(End::Failed(Failure::Changed));
        }
        if matches!(deed, Deed::Configure(_)) {
            self.memory.checked_settings.clear();
        }
        let cluster = world.kafka.status.as_ref().and_then(|status| status.cluster_id.clone());
        let cluster = cluster.unwrap_or_default();
        let requested = self.call(
            sim,
            || format!("asks Kafka: {}", describe(deed)),
            |sim| Ok(request(sim, &cluster, deed)),
        );
        let why = match requested {
            Err(End::Crash) => return Err(End::Crash),
            Err(End::Failed(_)) => Err("no answer".to_owned()),
            Ok(Err(Refused::Duplicate | Refused::NotFound)) => return self.succeed(sim, world, deed),
            Ok(Err(refused)) => Ok(format!("{refused:?}")),
            Ok(Ok(pending)) if self.waits_for(sim, &pending) => return self.succeed(sim, world, deed),
            Ok(Ok(_)) => Err("the request timed out".to_owned()),
        };
        let has_answered = why.is_ok();
        let why = why.unwrap_or_else(|silence| silence);
        let name = self.name();
        sim.tell(|| format!("{name}Kafka did not do it: {why}"));
        self.memory.kafka_refused(deed, &why, timestamp(sim.now));
        Ok(has_answered)
    }

    /// Was it committed in time?
    fn waits_for(&mut self, sim: &mut Sim, pending: &Pending) -> bool {
        let until = sim.now + PATIENCE;
        loop {
            match sim.quorum.is_done(pending) {
                Some(true) => return true,
                Some(false) if sim.now < until && sim.watch.broken.is_none() => {
                    sim.tick();
                    sim.step_rival();
                    self.hear(sim);
                }
                _ => return false,
            }
        }
    }

    fn succeed(&mut self, sim: &mut Sim, world: &World, deed: &Deed) -> Called<bool> {
        self.memory.kafka_did(deed);
        if let Deed::Unregister(node) = deed
            && let Some(status) = karst_core::registration::without(world, *node)
        {
            let (name, version) = (world.key.name.clone(), world.kafka.metadata.resource_version.clone());
            self.patch_fact(sim, Kind::Kafka, &name, version.as_deref(), &status)?;
        }
        Ok(true)
    }
}

/// As the real one: the leader is asked again right before.
fn still_changes(sim: &mut Sim, world: &World, change: &Change) -> bool {
    let reached = reaches(sim, world, &world.serving_controllers());
    let said = if reached { sim.quorum.describe(&mut sim.dice) } else { None };
    sim.plans += 1;
    plan::still_changes(world, change, known_or_silent(said)).unwrap_or_default()
}

fn known_or_silent<T>(answer: Option<T>) -> Answer<T> {
    answer.map_or_else(|| Answer::Silent("no answer".to_owned()), Answer::Known)
}

/// Does any of these hosts run, accept the operator, and answer?
fn reaches(sim: &mut Sim, world: &World, hosts: &[String]) -> bool {
    let mut nodes = hosts.iter().filter_map(|host| node_at(host));
    let is_up = nodes.any(|node| sim.quorum.processes.contains_key(&node) && sim.accepts(node, world));
    is_up && !sim.is_unanswered()
}

fn node_at(host: &str) -> Option<NodeId> {
    node_of_pod(host.split('.').next().unwrap_or_default())
}

/// What one of these brokers says of the partitions that have a copy on one of the nodes. It says what it knows: one that is cut off
/// from the controllers knows only what was.
fn partitions(
    sim: &mut Sim,
    world: &World,
    hosts: &[String],
    of: &BTreeSet<NodeId>,
) -> Option<Vec<PartitionView>> {
    let brokers: Vec<NodeId> = hosts.iter().filter_map(|host| node_at(host)).collect();
    let serves = |node: &NodeId| sim.data.brokers.serves(*node) && sim.accepts(*node, world);
    let serving: Vec<NodeId> = brokers.into_iter().filter(serves).collect();
    let broker = *sim.data.dice.pick(&serving)?;
    if sim.is_unanswered() {
        return None;
    }
    let mut found = sim.data.views_of(broker, of);
    // How many copies a write needs is another question.
    if sim.is_unanswered() {
        found.iter_mut().for_each(|view| view.min_in_sync = None);
    }
    Some(found)
}

/// What the launcher of a node says, if it runs.
fn launcher(sim: &mut Sim, node: NodeId) -> Option<LauncherView> {
    let awaits_leader = sim.kubelet.checks_disk(node);
    if !awaits_leader {
        sim.quorum.processes.get(&node)?;
    }
    let recovery = sim.quorum.tells_of_recovery(node).then_some(Recovery { done: 0, all: 0 });
    let serves = sim.quorum.processes.get(&node).is_some_and(|process| process.serves.is_some());
    Some(LauncherView { serves, recovery, awaits_leader })
}

/// What a node runs with: what Kafka was told stands above what its pod started with.
pub(crate) fn running_settings(sim: &Sim, node: NodeId) -> Option<Vec<RunningSetting>> {
    sim.quorum.processes.get(&node)?;
    let pod = sim.api.pods().find(|pod| node_of_pod(&pod.meta.name) == Some(node))?;
    let text = pod.meta.annotations.get(STARTED_WITH_ANNOTATION).map_or("{}", String::as_str);
    let read: BTreeMap<String, String> = serde_json::from_str(text).unwrap_or_default();
    let layers = [(Source::Start, &read), (Source::Cluster, &sim.quorum.settings)];
    let mut running = BTreeMap::new();
    for (source, layer) in layers {
        for (key, value) in layer {
            let setting = RunningSetting { key: key.clone(), value: Some(value.clone()), source };
            running.insert(key.clone(), setting);
        }
    }
    Some(running.into_values().collect())
}

/// The roles of a process, as it read them when it started.
fn roles(sim: &Sim, node: NodeId) -> Option<RunningSetting> {
    let process = sim.quorum.processes.get(&node)?;
    let roles = [("controller", process.controller), ("broker", process.broker)];
    let roles: Vec<_> = roles.iter().filter(|(_, has)| *has).map(|(role, _)| *role).collect();
    Some(RunningSetting { key: ROLES.to_owned(), value: Some(roles.join(",")), source: Source::Start })
}

/// Kafka also tells of settings that nobody set.
fn with_defaults(mut set: Vec<RunningSetting>, keys: &[&str]) -> Vec<RunningSetting> {
    for key in keys.iter().filter(|key| **key != ROLES) {
        if !set.iter().any(|setting| setting.key == *key) {
            set.push(RunningSetting { key: (*key).to_owned(), value: None, source: Source::Default });
        }
    }
    set
}

fn registered(sim: &Sim) -> Registered {
    let brokers = sim.quorum.registered().into_iter();
    let brokers = brokers.map(|(node, fenced)| RegisteredBroker { node, fenced }).collect();
    Registered { brokers, fenced_known: true }
}

fn describe(deed: &Deed) -> String {
    match deed {
        Deed::Change(change) => change.to_string(),
        Deed::Unregister(node) => format!("broker {node} is forgotten"),
        Deed::Metadata(change) => format!("the metadata version becomes {}", change.name),
        Deed::Configure(change) => change.to_string(),
    }
}

/// What Kafka says at once. What must hold is checked when it says yes, before it does it.
fn request(sim: &mut Sim, cluster: &str, deed: &Deed) -> Result<Pending, Refused> {
    let asked = |quorum: &mut crate::kraft::Quorum| match deed {
        Deed::Change(Change::Join { voter, .. }) => quorum.add(cluster, *voter),
        Deed::Change(Change::Leave { voter, .. }) => quorum.remove(cluster, *voter),
        Deed::Change(Change::MakeDynamic) => quorum.make_dynamic(),
        Deed::Unregister(node) => quorum.unregister(*node),
        Deed::Metadata(change) => quorum.set_metadata(change.level),
        Deed::Configure(change) => quorum.configure(change),
    };
    if let Err(refused) = asked(&mut sim.quorum.clone()) {
        if *deed == Deed::Change(Change::MakeDynamic) && refused == Refused::Behind {
            sim.check_failed_migration();
        }
        return asked(&mut sim.quorum);
    }
    match deed {
        Deed::Change(change) => sim.check_change(change),
        Deed::Unregister(node) => sim.check_unregistration(*node),
        Deed::Metadata(_) | Deed::Configure(_) => {}
    }
    asked(&mut sim.quorum)
}
