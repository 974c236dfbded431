//! What users add to the Kubernetes objects of a cluster: labels, annotations, scheduling, security, volumes.
//!
//! Everything is read and checked here, once, before anything is decided from it. What cannot be used becomes a
//! [`Problem`] that names the field where it was written; later steps render a [`Template`] without looking again.
//!
//! Inheritance is by the whole field, as seed 002 has it: a pool with a template of its own takes nothing that
//! concerns pools from the cluster's. Mixing the two is what nobody can predict from reading one resource.

mod container;
mod free_form;
mod metadata;
mod pod;
mod service;

use std::collections::BTreeMap;

use karst_api as api;

pub(crate) use container::ContainerTemplate;
pub(crate) use metadata::{Metadata, mark};
pub(crate) use pod::PodTemplate;
pub(crate) use service::{ServiceTemplate, family, policy};

use crate::problem::Problem;

/// Where a cluster's template is written.
const CLUSTER_FIELD: &str = "spec.kafka.template";
/// Where a pool's template is written.
const POOL_FIELD: &str = "spec.template";

/// What users add to the objects of one pool. All of it was checked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Template {
    /// Labels of the resource that the pool was made from; all its objects inherit them.
    labels: BTreeMap<String, String>,
    pod_set: Metadata,
    claim: Metadata,
    per_pod_service: Metadata,
    pub(crate) pod: PodTemplate,
    pub(crate) kafka_container: ContainerTemplate,
    pub(crate) init_container: ContainerTemplate,
}

impl Template {
    /// What is added to the pod set.
    pub(crate) fn pod_set(&self) -> Metadata {
        self.pod_set.inheriting(&self.labels)
    }

    /// What is added to the pods.
    pub(crate) fn pods(&self) -> Metadata {
        self.pod.metadata.inheriting(&self.labels)
    }

    /// What is added to the claims.
    pub(crate) fn claims(&self) -> Metadata {
        self.claim.inheriting(&self.labels)
    }

    /// What is added to the services that each broker has for listeners.
    pub(crate) fn per_pod_service(&self) -> Metadata {
        self.per_pod_service.inheriting(&self.labels)
    }

    /// What is added to objects of the pool that have no template.
    pub(crate) fn others(&self) -> Metadata {
        Metadata::default().inheriting(&self.labels)
    }
}

/// Reads the cluster's template: the parts that pools without a template of their own use, having checked the
/// others as well.
pub(crate) fn of_cluster(kafka: &api::Kafka) -> Result<Template, Vec<Problem>> {
    let labels = metadata::inheritable(kafka.metadata.labels.as_ref());
    let Some(template) = kafka.spec.kafka.template.as_deref() else {
        return Ok(Template { labels, ..Template::default() });
    };
    let mut problems = shared_problems(template);
    let read = PoolParts::of_cluster(template).read(labels, &mut problems);
    if problems.is_empty() { Ok(read) } else { Err(problems) }
}

/// Reads a pool's template; without one the pool uses the cluster's.
pub(crate) fn of_pool(pool: &api::KafkaNodePool, cluster: &Template) -> Result<Template, Vec<Problem>> {
    let labels = metadata::inheritable(pool.metadata.labels.as_ref());
    let Some(template) = pool.spec.template.as_deref() else {
        return Ok(Template { labels, ..cluster.clone() });
    };
    let mut problems = Vec::new();
    let read = PoolParts::of_pool(template).read(labels, &mut problems);
    if problems.is_empty() { Ok(read) } else { Err(problems) }
}

/// The parts of a template that concern one pool, whichever resource they are written on.
struct PoolParts<'a> {
    field: &'static str,
    pod_set: Option<&'a api::ResourceTemplate>,
    pod: Option<&'a api::PodTemplate>,
    claim: Option<&'a api::ResourceTemplate>,
    per_pod_service: Option<&'a api::ResourceTemplate>,
    kafka_container: Option<&'a api::ContainerTemplate>,
    init_container: Option<&'a api::ContainerTemplate>,
}

impl<'a> PoolParts<'a> {
    fn of_cluster(template: &'a api::KafkaClusterTemplate) -> Self {
        Self {
            field: CLUSTER_FIELD,
            pod_set: template.pod_set.as_ref(),
            pod: template.pod.as_deref(),
            claim: template.persistent_volume_claim.as_ref(),
            per_pod_service: template.per_pod_service.as_ref(),
            kafka_container: template.kafka_container.as_ref(),
            init_container: template.init_container.as_ref(),
        }
    }

    fn of_pool(template: &'a api::KafkaNodePoolTemplate) -> Self {
        Self {
            field: POOL_FIELD,
            pod_set: template.pod_set.as_ref(),
            pod: template.pod.as_deref(),
            claim: template.persistent_volume_claim.as_ref(),
            per_pod_service: template.per_pod_service.as_ref(),
            kafka_container: template.kafka_container.as_ref(),
            init_container: template.init_container.as_ref(),
        }
    }

    fn read(&self, labels: BTreeMap<String, String>, problems: &mut Vec<Problem>) -> Template {
        let at = |part: &str| format!("{}.{part}", self.field);
        let pod = PodTemplate::read(&at("pod"), self.pod, problems);
        let volumes = container::Volumes { field: at("pod.volumes"), names: pod::volume_names(self.pod) };
        let container = |part: &str, template, problems: &mut Vec<Problem>| {
            ContainerTemplate::read(&at(part), template, &volumes, problems)
        };
        Template {
            labels,
            pod_set: resource(&at("podSet"), self.pod_set, problems),
            claim: resource(&at("persistentVolumeClaim"), self.claim, problems),
            per_pod_service: resource(&at("perPodService"), self.per_pod_service, problems),
            kafka_container: container("kafkaContainer", self.kafka_container, problems),
            init_container: container("initContainer", self.init_container, problems),
            pod,
        }
    }
}

fn resource(field: &str, template: Option<&api::ResourceTemplate>, problems: &mut Vec<Problem>) -> Metadata {
    Metadata::read(field, template.and_then(|template| template.metadata.as_ref()), problems)
}

/// What users add to the objects that all pools share.
#[derive(Debug, Default)]
pub(crate) struct SharedTemplate {
    pub(crate) service_account: Metadata,
    pub(crate) bootstrap_service: ServiceTemplate,
    pub(crate) brokers_service: ServiceTemplate,
    pub(crate) external_bootstrap_service: Metadata,
    pub(crate) budget: Metadata,
    /// How many pods of a kind may be evicted at once.
    pub(crate) max_unavailable: i32,
}

/// How many pods of a kind may be evicted at once, unless the user says otherwise.
const MAX_UNAVAILABLE: i32 = 1;

impl SharedTemplate {
    /// Reads the parts of the cluster's template that concern no pool. [`of_cluster`] reports what is wrong with
    /// them, and what is wrong is left out here.
    ///
    /// `labels` are those of the `Kafka` resource.
    pub(crate) fn of(labels: Option<&BTreeMap<String, String>>, spec: &api::KafkaClusterSpec) -> Self {
        let labels = metadata::inheritable(labels);
        let template = spec.template.as_deref();
        let read = template.map(|template| Self::read(template, &mut Vec::new())).unwrap_or_default();
        Self {
            service_account: read.service_account.inheriting(&labels),
            bootstrap_service: read.bootstrap_service.inheriting(&labels),
            brokers_service: read.brokers_service.inheriting(&labels),
            external_bootstrap_service: read.external_bootstrap_service.inheriting(&labels),
            budget: read.budget.inheriting(&labels),
            max_unavailable: template
                .and_then(|template| template.pod_disruption_budget.as_ref()?.max_unavailable)
                .unwrap_or(MAX_UNAVAILABLE),
        }
    }

    fn read(template: &api::KafkaClusterTemplate, problems: &mut Vec<Problem>) -> Self {
        let at = |part: &str| format!("{CLUSTER_FIELD}.{part}");
        let service = |part: &str, template: &Option<api::InternalServiceTemplate>, problems: &mut _| {
            ServiceTemplate::read(&at(part), template.as_ref(), problems)
        };
        Self {
            service_account: resource(&at("serviceAccount"), template.service_account.as_ref(), problems),
            bootstrap_service: service("bootstrapService", &template.bootstrap_service, problems),
            brokers_service: service("brokersService", &template.brokers_service, problems),
            external_bootstrap_service: resource(
                &at("externalBootstrapService"),
                template.external_bootstrap_service.as_ref(),
                problems,
            ),
            budget: Metadata::read(
                &at("podDisruptionBudget"),
                template.pod_disruption_budget.as_ref().and_then(|budget| budget.metadata.as_ref()),
                problems,
            ),
            max_unavailable: MAX_UNAVAILABLE,
        }
    }
}

fn shared_problems(template: &api::KafkaClusterTemplate) -> Vec<Problem> {
    let mut problems = Vec::new();
    SharedTemplate::read(template, &mut problems);
    problems
}
