//! Racks: where a broker stands, so that Kafka keeps the copies of a partition apart.
//!
//! Which machine a pod runs on is known only after it was made. So the operator reads that machine's label then, and writes
//! it on the pod as an annotation; the launcher waits for it. Nodes themselves need no rights in Kubernetes for that.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Affinity, DownwardAPIVolumeFile, DownwardAPIVolumeSource, NodeSelector, NodeSelectorRequirement,
    NodeSelectorTerm, ObjectFieldSelector, PodAffinityTerm, Volume, VolumeMount, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use karst_api as api;

use crate::cluster::Cluster;
use crate::names::RACK_ANNOTATION;
use crate::notice::Notice;
use crate::problem::Problem;
use crate::steps::Racked;
use crate::world::{Answer, PodView, World};

/// The volume that has the pod's rack.
pub(crate) const VOLUME: &str = "pod";
const DIRECTORY: &str = "/opt/kafka/pod";
const FILE: &str = "rack";
/// As much as any other wish about where pods go.
const WEIGHT: i32 = 100;

/// Where a broker's rack comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rack {
    /// From a label of its machine.
    Label(String),
    /// From a variable of its container.
    Variable(String),
}

/// Reads what users ask for.
pub(crate) fn resolve(spec: &api::KafkaClusterSpec, problems: &mut Vec<Problem>) -> Option<Rack> {
    let rack = spec.rack.as_ref()?;
    let (field, value, advice) = match rack.type_ {
        Some(api::RackType::EnvironmentVariable) => {
            let name = rack.env_var_name.clone().unwrap_or_default();
            if is_variable(&name) {
                return Some(Rack::Variable(name));
            }
            ("envVarName", name, "write the name of an environment variable of the Kafka container")
        }
        Some(api::RackType::TopologyLabel) | None => {
            let label = rack.topology_key.clone().unwrap_or_default();
            if is_label(&label) {
                return Some(Rack::Label(label));
            }
            (
                "topologyKey",
                label,
                "write the key of a label of the machines, such as topology.kubernetes.io/zone",
            )
        }
    };
    problems.push(Problem::Template {
        field: format!("spec.kafka.rack.{field}"),
        found: format!("is '{value}'"),
        advice: advice.to_owned(),
    });
    None
}

fn is_variable(name: &str) -> bool {
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts_well && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

fn is_label(key: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_word = |part: &str| !part.is_empty() && part.len() <= 253 && part.chars().all(is_part);
    let mut parts = key.split('/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, None) => is_word(name),
        (Some(prefix), Some(name), None) => is_word(prefix) && is_word(name),
        _ => false,
    }
}

impl Rack {
    /// What the launcher is told.
    pub(crate) fn arguments(&self) -> [String; 2] {
        match self {
            Self::Label(_) => ["--rack-file".to_owned(), format!("{DIRECTORY}/{FILE}")],
            Self::Variable(name) => ["--rack-variable".to_owned(), name.clone()],
        }
    }

    /// The pod's annotation as a file: it is there as soon as the annotation is.
    pub(crate) fn volume(&self) -> Option<Volume> {
        matches!(self, Self::Label(_)).then(|| Volume {
            name: VOLUME.to_owned(),
            downward_api: Some(DownwardAPIVolumeSource {
                items: Some(vec![DownwardAPIVolumeFile {
                    path: FILE.to_owned(),
                    field_ref: Some(ObjectFieldSelector {
                        field_path: format!("metadata.annotations['{RACK_ANNOTATION}']"),
                        ..ObjectFieldSelector::default()
                    }),
                    ..DownwardAPIVolumeFile::default()
                }]),
                ..DownwardAPIVolumeSource::default()
            }),
            ..Volume::default()
        })
    }

    /// Where the launcher finds it.
    pub(crate) fn mount(&self) -> Option<VolumeMount> {
        matches!(self, Self::Label(_)).then(|| VolumeMount {
            name: VOLUME.to_owned(),
            mount_path: DIRECTORY.to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        })
    }

    /// Brokers run only on machines that have a rack, and prefer those of different ones.
    pub(crate) fn spread(&self, mut affinity: Affinity, pods: BTreeMap<String, String>) -> Affinity {
        let Self::Label(label) = self else { return affinity };
        let machines = affinity.node_affinity.get_or_insert_default();
        let required = machines
            .required_during_scheduling_ignored_during_execution
            .get_or_insert_with(|| NodeSelector { node_selector_terms: vec![NodeSelectorTerm::default()] });
        for term in &mut required.node_selector_terms {
            term.match_expressions.get_or_insert_default().push(NodeSelectorRequirement {
                key: label.clone(),
                operator: "Exists".to_owned(),
                values: None,
            });
        }
        let apart = WeightedPodAffinityTerm {
            weight: WEIGHT,
            pod_affinity_term: PodAffinityTerm {
                topology_key: label.clone(),
                label_selector: Some(LabelSelector { match_labels: Some(pods), ..LabelSelector::default() }),
                ..PodAffinityTerm::default()
            },
        };
        let others = affinity.pod_anti_affinity.get_or_insert_default();
        others.preferred_during_scheduling_ignored_during_execution.get_or_insert_default().push(apart);
        affinity
    }
}

/// What is to be done about racks.
#[derive(Debug, Default)]
pub(crate) struct Racks {
    /// Machines whose label is to be read.
    pub(crate) machines: BTreeMap<String, String>,
    /// Pods that are to be told where they are.
    pub(crate) racked: Vec<Racked>,
    pub(crate) notices: Vec<Notice>,
    /// Can the labels of machines not be read? A broker that restarts now would not come back.
    pub(crate) are_unknown: bool,
}

/// Tells brokers where they are. Those that run without a rack are told too: so it shows whether that can be known before the
/// first of them restarts to use it.
pub(crate) fn next(world: &World, cluster: &Cluster) -> Racks {
    let mut racks = Racks::default();
    let Some(Rack::Label(label)) = &cluster.rack else { return racks };
    let untold = world.pods.values().filter(|pod| {
        pod.runs_broker() && !pod.meta.deleting && !pod.meta.annotations.contains_key(RACK_ANNOTATION)
    });
    let mut without = BTreeMap::<&str, BTreeSet<&str>>::new();
    for pod in untold {
        let Some(machine) = &pod.machine else { continue };
        match world.answers.machines.get(machine) {
            None | Some(Answer::NotAsked) => drop(racks.machines.insert(machine.clone(), label.clone())),
            Some(Answer::Known(Some(rack))) => racks.racked.push(Racked {
                pod: pod.meta.name.clone(),
                uid: pod.meta.uid.clone(),
                rack: rack.clone(),
            }),
            Some(Answer::Known(None)) => drop(without.entry(machine).or_default().insert(&pod.meta.name)),
            Some(Answer::Silent(why)) => {
                racks.are_unknown = true;
                let notice = Notice::RackUnknown { machine: machine.clone(), why: why.clone() };
                if !racks.notices.contains(&notice) {
                    racks.notices.push(notice);
                }
            }
        }
    }
    // Where no broker has a rack, the label itself may be wrong: a successor that asks for it would never get a machine.
    let is_told = |pod: &PodView| pod.runs_broker() && pod.meta.annotations.contains_key(RACK_ANNOTATION);
    let nobody_has_one = racks.racked.is_empty() && !world.pods.values().any(|pod| is_told(pod));
    racks.are_unknown |= !without.is_empty() && nobody_has_one;
    racks.notices.extend(without.into_iter().map(|(machine, pods)| Notice::RackMissing {
        machine: machine.to_owned(),
        label: label.clone(),
        pods: pods.into_iter().map(str::to_owned).collect(),
    }));
    racks
}
