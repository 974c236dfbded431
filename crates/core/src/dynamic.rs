//! Settings that change while nodes run.
//!
//! Of the settings that users write, Kafka can change some for all nodes at once while they run. A change of these restarts
//! nothing: Kafka is told, and when it has taken the value, the nodes' ConfigMaps get it for their next start. What nodes run with
//! is not remembered but asked: once after each of their starts, and after each change of what is wanted.
//!
//! Kafka keeps what it is told in its own log, above what nodes read when they start. So it is not ours to delete there what
//! somebody else told it; the names of the settings that are ours are kept on the cluster's headless service, and written there
//! before Kafka is told. A name leaves that list only after nodes were seen without the setting twice, a minute apart: what an operator
//! sent that leads no longer may reach Kafka after the first look of the one that does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::cluster::{Cluster, Roles};
use crate::config;
use crate::config_model::{self, Definition};
use crate::digest::Digest;
use crate::health;
use crate::ids::NodeId;
use crate::names::SETTINGS_IN_KAFKA_ANNOTATION;
use crate::notice::Notice;
use crate::properties::Properties;
use crate::unproven;
use crate::versions::KafkaVersion;
use crate::world::{Answer, PodView, World};

/// What Kafka calls dynamic, and what still goes better with a restart: to load a class can fail, and then only a node that
/// starts says so.
const BETTER_AT_START: &[&str] = &["metric.reporters", "config.providers"];
/// What controllers take only when they start, though brokers take it while they run.
const CONTROLLERS_TAKE_AT_START: &[&str] = &["num.network.threads"];
/// Kafka does not let go of it where it keeps track of eligible leaders, so it is set back to its default instead.
const NEVER_DELETED: (&str, &str) = ("min.insync.replicas", "1");
/// Numbers of threads, which Kafka doubles or halves at most: it is told of a larger change in steps. Each with about what it is when
/// nobody sets it.
const THREADS: &[(&str, i64)] = &[
    ("background.threads", 10),
    ("log.cleaner.threads", 1),
    ("num.io.threads", 8),
    ("num.network.threads", 3),
    ("num.recovery.threads.per.data.dir", 2),
    ("num.replica.fetchers", 1),
    ("remote.log.manager.copier.thread.pool.size", 10),
    ("remote.log.manager.expiration.thread.pool.size", 10),
    ("remote.log.manager.follower.thread.pool.size", 2),
    ("remote.log.reader.threads", 10),
];

/// For how long a setting that nobody runs with any more stays ours: longer than a call of an operator that led before is on its way.
const GOES_AFTER: Duration = Duration::from_secs(60);
/// Stands between the name of a setting that nobody runs with any more, and since when that is known.
const GONE_SINCE: char = '@';

/// What a node is. Its settings can change before its pod does, and what starts again in an old pod reads the new ones.
const ROLES: &str = "process.roles";

/// Where a node has a setting from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Kafka was told so for all nodes.
    Cluster,
    /// Kafka was told so for this node alone.
    Node,
    /// The node read it when it started.
    Start,
    /// Nobody set it.
    Default,
}

/// A setting that a node runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningSetting {
    /// Its name.
    pub key: String,
    /// Its value; `None` when it has none, or a secret one.
    pub value: Option<String>,
    /// Where the value is from.
    pub source: Source,
}

/// Something that Kafka is to be told about a setting.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SettingChange {
    /// The setting.
    pub key: String,
    /// The node it is about; all of them when there is none.
    pub node: Option<NodeId>,
    /// The new value. Without one Kafka is to forget what it was told.
    pub value: Option<String>,
}

impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, node, value } = self;
        match (value, node) {
            (Some(value), _) => write!(f, "spec.kafka.config.{key} is to become {value} without a restart"),
            (None, None) => write!(f, "spec.kafka.config.{key} is gone, and Kafka is to forget it"),
            (None, Some(node)) => {
                write!(
                    f,
                    "Kafka is to forget another value of {key} for node {node} than spec.kafka.config has"
                )
            }
        }
    }
}

/// Can Kafka change this setting for all nodes while they run, and do we let it?
fn definition(kafka: &KafkaVersion, key: &str) -> Option<Definition> {
    config_model::find_cluster_wide(kafka, key).filter(|_| !BETTER_AT_START.contains(&key))
}

/// The settings to ask nodes about: all that could change while they run, for one that is gone from the spec counts too.
pub fn keys(kafka: &KafkaVersion) -> impl Iterator<Item = &'static str> {
    config_model::cluster_wide(kafka).filter(|key| !BETTER_AT_START.contains(key) && config::is_allowed(key))
}

/// All that nodes are asked about.
pub(crate) fn asked(kafka: &KafkaVersion) -> Vec<&'static str> {
    keys(kafka).chain([ROLES]).collect()
}

/// Must a node of these roles restart to take another value of this setting?
pub(crate) fn needs_restart(kafka: &KafkaVersion, roles: Roles, key: &str) -> bool {
    definition(kafka, key).is_none() || (roles.has_controller() && CONTROLLERS_TAKE_AT_START.contains(&key))
}

/// What a pod is annotated with that starts with these settings: those that can change while it runs.
pub(crate) fn annotation(kafka: &KafkaVersion, config: &Properties) -> Result<String, serde_json::Error> {
    let changeable = config.iter().filter(|(key, _)| definition(kafka, key).is_some());
    serde_json::to_string(&changeable.collect::<BTreeMap<_, _>>())
}

/// What Kafka is told next so that a setting becomes what is wanted.
fn next_value(key: &str, running: Option<&str>, wanted: &str) -> String {
    let next = |running: &str| {
        let (running, wanted) = (running.trim().parse::<i64>().ok()?, wanted.trim().parse::<i64>().ok()?);
        let next = wanted.clamp(running / 2, running.saturating_mul(2).max(running / 2));
        // A step that leads nowhere is no step: then Kafka says what it thinks of the value.
        (next != running && next != wanted).then(|| next.to_string())
    };
    let next = running.filter(|_| unset_threads(key).is_some()).and_then(next);
    next.unwrap_or_else(|| wanted.to_owned())
}

/// How many threads there are when nobody says how many.
fn unset_threads(key: &str) -> Option<String> {
    THREADS.iter().find(|(threads, _)| *threads == key).map(|(_, unset)| unset.to_string())
}

/// What Kafka is told before it can forget a setting: a number that is not too far from what comes then.
fn last_value(key: &str, running: Option<&str>) -> Option<String> {
    let unset = unset_threads(key)?;
    Some(next_value(key, running, &unset)).filter(|next| *next != unset)
}

/// What is to be done about settings of nodes that run.
#[derive(Debug, Default)]
pub(crate) struct Dynamic {
    /// Brokers that are to be asked what they run with.
    pub(crate) ask_brokers: BTreeSet<NodeId>,
    /// The same, of nodes that are only controllers.
    pub(crate) ask_controllers: BTreeSet<NodeId>,
    /// What Kafka is to be told, once all objects are written.
    pub(crate) changes: BTreeSet<SettingChange>,
    /// Nodes that run with what is wanted, by their pods: they need not be asked again.
    pub(crate) checked: BTreeMap<String, Digest>,
    /// Settings that nodes read when they started, and that are gone since: only a restart makes a node forget them.
    pub(crate) outlived: BTreeMap<NodeId, Vec<String>>,
    /// The settings that Kafka may have been told by us, as they are written down. `None` when there never were any.
    pub(crate) ours: Option<BTreeSet<String>>,
    /// When one of them may be ours no longer.
    pub(crate) look_again: Option<Duration>,
    /// Settings of the spec that no node was seen to run with: nodes are not to start with them yet.
    pub(crate) unproven: BTreeSet<String>,
    /// Nodes that serve and do not say what they run with, and what came instead.
    pub(crate) untold: BTreeMap<NodeId, String>,
}

impl Dynamic {
    /// What is to be told about nodes that do not answer.
    pub(crate) fn notice(&self) -> Option<Notice> {
        let why = self.untold.values().next()?.clone();
        Some(Notice::SettingsUntold { nodes: health::list(&self.untold.keys().copied().collect()), why })
    }
}

/// Compares what nodes run with to what is wanted.
pub(crate) fn compare(world: &World, cluster: &Cluster) -> Result<Dynamic, serde_json::Error> {
    let recorded = recorded(world, cluster);
    let spec = wanted(world, cluster.version);
    let looks = looks(world, recorded.as_ref(), &spec);
    let mut comparison = Comparison {
        cluster,
        wanted: spec,
        recorded,
        found: BTreeSet::new(),
        still_there: BTreeSet::new(),
        right: BTreeSet::new(),
        wrong: BTreeSet::new(),
        dynamic: Dynamic::default(),
    };
    let mut all_settled = true;
    let wanted = Digest::of(&comparison.wanted)?;
    for node in cluster.nodes() {
        let name = cluster.pod_name(node);
        let Some(pod) = world.pods.get(&name).filter(|pod| pod.serves_kafka()) else {
            all_settled = false;
            continue;
        };
        let state = state(pod, wanted, &looks);
        if world.memory.checked_settings.get(&name) == Some(&state) {
            comparison.right.extend(comparison.wanted.keys().cloned());
            continue;
        }
        let settled = match world.answers.settings.get(&node.id) {
            Some(Answer::Known(running)) => {
                comparison.judge(node.id, running) & comparison.judge_roles(node.id, pod, running)
            }
            Some(silence) => {
                let why = if let Answer::Silent(why) = silence { why.clone() } else { String::new() };
                comparison.dynamic.untold.insert(node.id, why);
                false
            }
            None => {
                comparison.ask(node.id, pod);
                false
            }
        };
        if settled {
            comparison.dynamic.checked.insert(name, state);
        }
        all_settled &= settled;
    }
    comparison.dynamic.unproven = comparison.unproven(world);
    Ok(comparison.finish(world, all_settled))
}

/// What a node that was found right need not be asked about again: this life of its pod, what was wanted then, and what was to be
/// gone.
fn state(pod: &PodView, wanted: Digest, looks: &str) -> Digest {
    let since = pod.since.map(|since| since.as_nanosecond().to_le_bytes());
    let since = since.as_ref().map_or(&[][..], <[u8; 16]>::as_slice);
    Digest::of_parts(&[pod.meta.uid.as_bytes(), since, wanted.bytes(), looks.as_bytes()])
}

/// The settings that nodes are to run without, with the time of the second look, and whether it has come: each is a question of its own.
fn looks(world: &World, recorded: Option<&Recorded>, spec: &BTreeMap<String, String>) -> String {
    let unwanted = recorded.into_iter().flatten().filter(|(key, _)| !spec.contains_key(*key));
    let looks =
        unwanted.map(|(key, gone)| format!("{} {}", entry((key.clone(), *gone)), is_over(world, *gone)));
    looks.collect::<Vec<_>>().join(",")
}

/// The settings of the spec that can change while nodes run.
fn wanted(world: &World, kafka: &KafkaVersion) -> BTreeMap<String, String> {
    let user = config::of_user(world.kafka.spec.kafka.config.as_ref());
    user.filter(|(key, _)| definition(kafka, key).is_some())
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// The settings that Kafka may have been told by us, each with the time since which nobody runs with it.
type Recorded = BTreeMap<String, Option<Timestamp>>;

/// By the annotation of the headless service.
fn recorded(world: &World, cluster: &Cluster) -> Option<Recorded> {
    let service = world.services.get(&cluster.key.headless_service())?;
    let text = service.meta.annotations.get(SETTINGS_IN_KAFKA_ANNOTATION)?;
    let read = |entry: &str| match entry.split_once(GONE_SINCE) {
        Some((key, since)) => (key.to_owned(), since.parse().ok()),
        None => (entry.to_owned(), None),
    };
    Some(text.split(',').filter(|entry| !entry.is_empty()).map(read).collect())
}

/// As it is written down.
fn entry((key, gone): (String, Option<Timestamp>)) -> String {
    match gone {
        Some(since) => format!("{key}{GONE_SINCE}{since:.0}"),
        None => key,
    }
}

/// Has a setting been gone for so long that a second look says whether it is gone for good?
fn is_over(world: &World, gone: Option<Timestamp>) -> bool {
    gone.is_some_and(|since| world.time_since(since) >= GOES_AFTER)
}

/// The annotation for these settings.
pub(crate) fn record(ours: &BTreeSet<String>) -> String {
    ours.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

struct Comparison<'a> {
    cluster: &'a Cluster,
    wanted: BTreeMap<String, String>,
    recorded: Option<Recorded>,
    /// Settings of the spec that Kafka was told, or is to be told: they are ours from now on.
    found: BTreeSet<String>,
    /// Settings that are ours, gone from the spec, and not gone from Kafka.
    still_there: BTreeSet<String>,
    /// Settings of the spec that a node runs with.
    right: BTreeSet<String>,
    /// Settings of the spec that a node does not run with.
    wrong: BTreeSet<String>,
    dynamic: Dynamic,
}

impl Comparison<'_> {
    fn ask(&mut self, node: NodeId, pod: &PodView) {
        let asked =
            if pod.runs_broker() { &mut self.dynamic.ask_brokers } else { &mut self.dynamic.ask_controllers };
        asked.insert(node);
    }

    /// Does the node run with what is wanted? If not, finds out what helps.
    fn judge(&mut self, node: NodeId, running: &[RunningSetting]) -> bool {
        let mut settled = true;
        for setting in running {
            let Some(definition) = definition(self.cluster.version, &setting.key) else { continue };
            let key = &setting.key;
            settled &= match self.wanted.get(key).cloned() {
                Some(value) => self.judge_wanted(node, setting, &value, definition),
                None => self.judge_unwanted(node, setting),
            };
        }
        settled
    }

    /// Does the node have the roles that its pod says? If not, only a restart gives it these.
    fn judge_roles(&mut self, node: NodeId, pod: &PodView, running: &[RunningSetting]) -> bool {
        let told = running.iter().find(|setting| setting.key == ROLES);
        let Some(told) = told.and_then(|setting| setting.value.as_ref()) else { return true };
        let has = |role: &str| told.split(',').any(|one| one.trim() == role);
        let is_right = (has("controller"), has("broker")) == (pod.runs_controller(), pod.runs_broker());
        if !is_right {
            self.dynamic.outlived.entry(node).or_default().push(format!("{ROLES}={told}"));
        }
        is_right
    }

    fn judge_wanted(
        &mut self,
        node: NodeId,
        setting: &RunningSetting,
        value: &str,
        means: Definition,
    ) -> bool {
        let is_right = setting.value.as_ref().is_some_and(|running| means.means_the_same(running, value));
        let (key, source) = (setting.key.clone(), setting.source);
        if is_right {
            self.right.insert(key.clone());
        } else if source != Source::Node {
            self.wrong.insert(key.clone());
        }
        if source == Source::Cluster || (!is_right && source != Source::Node) {
            self.found.insert(key.clone());
        }
        if is_right {
            return true;
        }
        // What a node was told alone stands above what all are told.
        let change = if source == Source::Node {
            SettingChange { key, node: Some(node), value: None }
        } else {
            let next = next_value(&key, setting.value.as_deref(), value);
            SettingChange { key, node: None, value: Some(next) }
        };
        self.dynamic.changes.insert(change);
        false
    }

    fn judge_unwanted(&mut self, node: NodeId, setting: &RunningSetting) -> bool {
        let key = &setting.key;
        let is_ours = self.recorded.as_ref().is_some_and(|ours| ours.contains_key(key));
        match setting.source {
            Source::Cluster if is_ours => self.take_back(setting),
            // Nobody but us writes what nodes read. The node may have read it when its container started again, long after
            // its pod did, so what the pod started with does not tell.
            Source::Start => {
                self.dynamic.outlived.entry(node).or_default().push(key.clone());
                false
            }
            _ => true,
        }
    }

    /// Makes Kafka forget a setting that it was told by us.
    fn take_back(&mut self, setting: &RunningSetting) -> bool {
        let (never_deleted, default) = NEVER_DELETED;
        let value = (setting.key == never_deleted).then(|| default.to_owned());
        if value.is_some() && setting.value == value {
            return true;
        }
        let value = value.or_else(|| last_value(&setting.key, setting.value.as_deref()));
        self.still_there.insert(setting.key.clone());
        self.dynamic.changes.insert(SettingChange { key: setting.key.clone(), node: None, value });
        false
    }

    /// The settings that nobody was seen to run with. Without a broker nobody could try them but a node that starts; what was
    /// refused before is not tried like that.
    fn unproven(&self, world: &World) -> BTreeSet<String> {
        let can_try = !world.serving_brokers().is_empty();
        let is_unproven = |(key, value): &(&String, &String)| {
            let is_seen = self.right.contains(*key) && !self.wrong.contains(*key);
            !is_seen && (can_try || unproven::was_refused(world, key, value))
        };
        self.wanted.iter().filter(is_unproven).map(|(key, _)| key.clone()).collect()
    }

    /// What is ours stays so until every node was seen without it, and once more after a while.
    fn finish(mut self, world: &World, all_settled: bool) -> Dynamic {
        let before = self.recorded.take();
        let was_there = before.is_some();
        let mut ours: Recorded = before.into_iter().flatten().collect();
        ours.retain(|key, gone| {
            let is_over = is_over(world, *gone);
            if self.wanted.contains_key(key) {
                *gone = None;
            } else if self.still_there.contains(key) {
                // It came after the first look: the minute begins again.
                *gone = if is_over { Some(world.now) } else { *gone };
            } else if all_settled && is_over {
                return false;
            } else if all_settled {
                // A time that is still to come is another clock's.
                let known =
                    gone.filter(|since| since.duration_since(world.now) < SignedDuration::from_mins(1));
                let since = *gone.insert(known.unwrap_or(world.now));
                let left = GOES_AFTER.saturating_sub(world.time_since(since));
                self.dynamic.look_again = self.dynamic.look_again.into_iter().chain([left]).min();
            }
            true
        });
        ours.extend(self.found.into_iter().map(|key| (key, None)));
        self.dynamic.ours = (was_there || !ours.is_empty()).then(|| ours.into_iter().map(entry).collect());
        self.dynamic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_double_or_halve_at_most_until_they_are_there() {
        let steps = |running: i64, wanted: &str| {
            let mut running = running.to_string();
            let mut steps = Vec::new();
            while running != wanted {
                running = next_value("num.io.threads", Some(&running), wanted);
                steps.push(running.clone());
            }
            steps
        };
        assert_eq!(last_value("num.io.threads", Some("100")), Some("50".into()));
        assert_eq!(last_value("num.io.threads", Some("12")), None, "near enough to be forgotten at once");
        assert_eq!(last_value("log.retention.ms", Some("100")), None);
        assert_eq!(steps(8, "12"), ["12"]);
        assert_eq!(steps(8, "100"), ["16", "32", "64", "100"]);
        assert_eq!(steps(9, "1"), ["4", "2", "1"]);
        assert_eq!(next_value("num.io.threads", None, "100"), "100");
        assert_eq!(next_value("log.cleaner.threads", Some("0"), "4"), "4");
        assert_eq!(next_value("log.retention.ms", Some("1"), "100"), "100");
    }
}
