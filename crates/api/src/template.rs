//! What users add to the Kubernetes objects that Karst makes: labels, annotations, scheduling, security.
//!
//! Parts of a pod that Karst only passes on are [`FreeForm`].

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::common::FreeForm;
use crate::listener::{IpFamily, IpFamilyPolicy};

/// Templates of everything that is made for a Kafka cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KafkaClusterTemplate {
    /// Template of the pods.
    pub pod: Option<Box<PodTemplate>>,
    /// Template of the bootstrap service inside the Kubernetes cluster.
    pub bootstrap_service: Option<InternalServiceTemplate>,
    /// Template of the headless service of the nodes.
    pub brokers_service: Option<InternalServiceTemplate>,
    /// Template of the bootstrap services of listeners that reach outside.
    pub external_bootstrap_service: Option<ResourceTemplate>,
    /// Template of the services that each broker has for listeners that reach outside.
    pub per_pod_service: Option<ResourceTemplate>,
    /// Template of the bootstrap routes.
    pub external_bootstrap_route: Option<ResourceTemplate>,
    /// Template of the routes that each broker has.
    pub per_pod_route: Option<ResourceTemplate>,
    /// Template of the bootstrap ingresses.
    pub external_bootstrap_ingress: Option<ResourceTemplate>,
    /// Template of the ingresses that each broker has.
    pub per_pod_ingress: Option<ResourceTemplate>,
    /// Template of the persistent volume claims.
    pub persistent_volume_claim: Option<ResourceTemplate>,
    /// Template of the pod disruption budget.
    pub pod_disruption_budget: Option<PodDisruptionBudgetTemplate>,
    /// Template of the container that runs Kafka.
    pub kafka_container: Option<ContainerTemplate>,
    /// Template of the init container.
    pub init_container: Option<ContainerTemplate>,
    /// Template of the secret that holds the cluster CA's certificate.
    pub cluster_ca_cert: Option<ResourceTemplate>,
    /// Template of the service account.
    pub service_account: Option<ResourceTemplate>,
    /// Template of the secret that holds the JMX credentials.
    pub jmx_secret: Option<ResourceTemplate>,
    /// Template of the cluster role binding.
    pub cluster_role_binding: Option<ResourceTemplate>,
    /// Template of the pod sets.
    pub pod_set: Option<ResourceTemplate>,
}

/// Templates of what is made for one pool. When a pool has them, the cluster's own do not apply to it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KafkaNodePoolTemplate {
    /// Template of the pod set.
    pub pod_set: Option<ResourceTemplate>,
    /// Template of the pods.
    pub pod: Option<Box<PodTemplate>>,
    /// Template of the services that each broker has for listeners that reach outside.
    pub per_pod_service: Option<ResourceTemplate>,
    /// Template of the routes that each broker has.
    pub per_pod_route: Option<ResourceTemplate>,
    /// Template of the ingresses that each broker has.
    pub per_pod_ingress: Option<ResourceTemplate>,
    /// Template of the persistent volume claims.
    pub persistent_volume_claim: Option<ResourceTemplate>,
    /// Template of the container that runs Kafka.
    pub kafka_container: Option<ContainerTemplate>,
    /// Template of the init container.
    pub init_container: Option<ContainerTemplate>,
}

/// Labels and annotations to add to an object.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetadataTemplate {
    /// Labels to add.
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations to add.
    pub annotations: Option<BTreeMap<String, String>>,
}

/// Template of an object of which only the metadata can be changed.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceTemplate {
    /// Labels and annotations to add.
    pub metadata: Option<MetadataTemplate>,
}

/// Template of a service inside the Kubernetes cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InternalServiceTemplate {
    /// Labels and annotations to add.
    pub metadata: Option<MetadataTemplate>,
    /// Whether the service has addresses of one IP family or of both.
    pub ip_family_policy: Option<IpFamilyPolicy>,
    /// IP families of the service, the preferred one first.
    pub ip_families: Option<Vec<IpFamily>>,
}

/// Template of the pod disruption budget.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodDisruptionBudgetTemplate {
    /// Labels and annotations to add.
    pub metadata: Option<MetadataTemplate>,
    /// How many pods may be evicted at the same time; one unless given.
    #[schemars(range(min = 0))]
    pub max_unavailable: Option<i32>,
}

/// Template of a container.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerTemplate {
    /// Environment variables to add.
    pub env: Option<Vec<FreeForm>>,
    /// Security context of the container.
    pub security_context: Option<FreeForm>,
    /// Mounts of the pod's additional volumes.
    pub volume_mounts: Option<Vec<FreeForm>>,
}

/// Template of a pod.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplate {
    /// Labels and annotations to add.
    pub metadata: Option<MetadataTemplate>,
    /// Secrets with the credentials of image registries.
    pub image_pull_secrets: Option<Vec<FreeForm>>,
    /// Security context of the pod.
    pub security_context: Option<FreeForm>,
    /// Seconds that a node gets to shut down in order; 30 unless given.
    #[schemars(range(min = 0))]
    pub termination_grace_period_seconds: Option<i64>,
    /// Affinity rules.
    pub affinity: Option<FreeForm>,
    /// Taints that the pod tolerates.
    pub tolerations: Option<Vec<FreeForm>>,
    /// How the pods are spread over the topology.
    pub topology_spread_constraints: Option<Vec<FreeForm>>,
    /// Name of the priority class.
    pub priority_class_name: Option<String>,
    /// Name of the scheduler.
    pub scheduler_name: Option<String>,
    /// Lines to add to the hosts file.
    pub host_aliases: Option<Vec<FreeForm>>,
    /// Where the pod's DNS settings come from.
    pub dns_policy: Option<DnsPolicy>,
    /// DNS settings of the pod.
    pub dns_config: Option<FreeForm>,
    /// Whether services show up as environment variables.
    pub enable_service_links: Option<bool>,
    /// Largest size of the temporary directory; without a limit unless given.
    #[schemars(regex(pattern = r"^([0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"))]
    pub tmp_dir_size_limit: Option<String>,
    /// Volumes to add to the pod.
    pub volumes: Option<Vec<FreeForm>>,
    /// Volumes to add to the pod whose settings may name the node.
    pub templated_volumes: Option<Vec<FreeForm>>,
    /// Whether the pod uses the user namespace of the host.
    pub host_users: Option<bool>,
}

/// Where a pod's DNS settings come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DnsPolicy {
    ClusterFirst,
    ClusterFirstWithHostNet,
    Default,
    None,
}
