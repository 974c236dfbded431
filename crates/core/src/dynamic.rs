//! Settings that change while nodes run.
//!
//! Of the settings that users write, Kafka can change some for all nodes at once while they run. A change of these restarts
//! nothing: Kafka is told, and the nodes' ConfigMaps get the same value for their next start. What nodes run with is not
//! remembered but asked: once after each of their starts, and after each change of what is wanted.
//!
//! Kafka keeps what it is told in its own log, above what nodes read when they start. So it is not ours to delete there what
//! somebody else told it; the names of the settings that are ours are kept on the cluster's headless service, and written there
//! before Kafka is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use crate::cluster::{Cluster, Roles};
use crate::config;
use crate::config_model::{self, Definition};
use crate::digest::Digest;
use crate::ids::NodeId;
use crate::names::{SETTINGS_IN_KAFKA_ANNOTATION, STARTED_WITH_ANNOTATION};
use crate::properties::Properties;
use crate::versions::KafkaVersion;
use crate::world::{Answer, PodView, World};

/// What Kafka calls dynamic, and what still goes better with a restart: to load a class can fail, and then only a node that
/// starts says so.
const BETTER_AT_START: &[&str] = &["metric.reporters", "config.providers"];
/// What controllers take only when they start, though brokers take it while they run.
const CONTROLLERS_TAKE_AT_START: &[&str] = &["num.network.threads"];
/// Kafka does not let go of it where it keeps track of eligible leaders, so it is set back to its default instead.
const NEVER_DELETED: (&str, &str) = ("min.insync.replicas", "1");

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

/// Must a node of these roles restart to take another value of this setting?
pub(crate) fn needs_restart(kafka: &KafkaVersion, roles: Roles, key: &str) -> bool {
    definition(kafka, key).is_none() || (roles.has_controller() && CONTROLLERS_TAKE_AT_START.contains(&key))
}

/// What a pod is annotated with that starts with these settings: those that can change while it runs.
pub(crate) fn annotation(kafka: &KafkaVersion, config: &Properties) -> Result<String, serde_json::Error> {
    let changeable = config.iter().filter(|(key, _)| definition(kafka, key).is_some());
    serde_json::to_string(&changeable.collect::<BTreeMap<_, _>>())
}

/// Was the setting there when the pod started?
fn started_with(pod: &PodView, key: &str) -> bool {
    let settings = pod.meta.annotations.get(STARTED_WITH_ANNOTATION);
    let settings = settings.and_then(|text| serde_json::from_str::<BTreeMap<String, Value>>(text).ok());
    settings.is_some_and(|settings| settings.contains_key(key))
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
    /// The settings that Kafka may have been told by us. `None` when there never were any.
    pub(crate) ours: Option<BTreeSet<String>>,
}

/// Compares what nodes run with to what is wanted.
pub(crate) fn compare(world: &World, cluster: &Cluster) -> Result<Dynamic, serde_json::Error> {
    let mut comparison = Comparison {
        cluster,
        wanted: wanted(world, cluster.version),
        recorded: recorded(world, cluster),
        found: BTreeSet::new(),
        still_there: BTreeSet::new(),
        dynamic: Dynamic::default(),
    };
    let mut all_settled = true;
    for node in cluster.nodes() {
        let name = cluster.pod_name(node);
        let Some(pod) = world.pods.get(&name).filter(|pod| pod.is_serving()) else {
            all_settled = false;
            continue;
        };
        let state = Digest::of(&(&pod.meta.uid, pod.since, &comparison.wanted))?;
        if world.checked_settings.get(&name) == Some(&state) {
            continue;
        }
        let settled = match world.answers.settings.get(&node.id) {
            Some(Answer::Known(running)) => comparison.judge(node.id, pod, running),
            Some(_) => false,
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
    Ok(comparison.finish(all_settled))
}

/// The settings of the spec that can change while nodes run.
fn wanted(world: &World, kafka: &KafkaVersion) -> BTreeMap<String, String> {
    let user = config::of_user(world.kafka.spec.kafka.config.as_ref());
    user.filter(|(key, _)| definition(kafka, key).is_some())
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// The settings that Kafka may have been told by us, by the annotation of the headless service.
fn recorded(world: &World, cluster: &Cluster) -> Option<BTreeSet<String>> {
    let service = world.services.get(&cluster.key.headless_service())?;
    let text = service.meta.annotations.get(SETTINGS_IN_KAFKA_ANNOTATION)?;
    Some(text.split(',').filter(|key| !key.is_empty()).map(str::to_owned).collect())
}

/// The annotation for these settings.
pub(crate) fn record(ours: &BTreeSet<String>) -> String {
    ours.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

struct Comparison<'a> {
    cluster: &'a Cluster,
    wanted: BTreeMap<String, String>,
    recorded: Option<BTreeSet<String>>,
    /// Settings of the spec that Kafka was told, or is to be told: they are ours from now on.
    found: BTreeSet<String>,
    /// Settings that are ours, gone from the spec, and not gone from Kafka.
    still_there: BTreeSet<String>,
    dynamic: Dynamic,
}

impl Comparison<'_> {
    fn ask(&mut self, node: NodeId, pod: &PodView) {
        let asked =
            if pod.runs_broker() { &mut self.dynamic.ask_brokers } else { &mut self.dynamic.ask_controllers };
        asked.insert(node);
    }

    /// Does the node run with what is wanted? If not, finds out what helps.
    fn judge(&mut self, node: NodeId, pod: &PodView, running: &[RunningSetting]) -> bool {
        let mut settled = true;
        for setting in running {
            let Some(definition) = definition(self.cluster.version, &setting.key) else { continue };
            let key = &setting.key;
            settled &= match self.wanted.get(key).cloned() {
                Some(value) => self.judge_wanted(node, setting, &value, definition),
                None => self.judge_unwanted(node, pod, setting),
            };
        }
        settled
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
        if source == Source::Cluster || (!is_right && source != Source::Node) {
            self.found.insert(key.clone());
        }
        if is_right {
            return true;
        }
        // What a node was told alone stands above what all are told.
        let alone = source == Source::Node;
        let change =
            SettingChange { key, node: alone.then_some(node), value: (!alone).then(|| value.to_owned()) };
        self.dynamic.changes.insert(change);
        false
    }

    fn judge_unwanted(&mut self, node: NodeId, pod: &PodView, setting: &RunningSetting) -> bool {
        let key = &setting.key;
        let is_ours = self.recorded.as_ref().is_some_and(|ours| ours.contains(key));
        match setting.source {
            Source::Cluster if is_ours => self.take_back(setting),
            Source::Start if started_with(pod, key) => {
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
        self.still_there.insert(setting.key.clone());
        self.dynamic.changes.insert(SettingChange { key: setting.key.clone(), node: None, value });
        false
    }

    /// What is ours stays so until every node was seen without it.
    fn finish(mut self, all_settled: bool) -> Dynamic {
        let before = self.recorded.take();
        let was_there = before.is_some();
        let mut ours = self.found;
        let (wanted, still_there) = (&self.wanted, &self.still_there);
        let kept = |key: &String| wanted.contains_key(key) || !all_settled || still_there.contains(key);
        ours.extend(before.into_iter().flatten().filter(kept));
        self.dynamic.ours = (was_there || !ours.is_empty()).then_some(ours);
        self.dynamic
    }
}
