//! The kinds that the index has places for, and what a change of each causes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karst_api::{Kafka, KafkaNodePool, StrimziPodSet};
use karst_core::names::{CLUSTER_LABEL, ClusterKey, POOL_FINALIZER, POOL_LABEL};
use karst_core::world::{
    ClaimView, ConfigMapView, PlainView, PodSetView, PodView, SecretView, ServiceAccountView, ServiceView,
};

use super::{Objects, Slot};
use crate::views::{
    AccountWire, BudgetWire, ClaimWire, ConfigMapWire, PodWire, PolicyWire, SecretWire, ServiceWire, Watched,
};

/// The label with the pod set of a pod.
pub(crate) const CONTROLLER_NAME_LABEL: &str = "strimzi.io/controller-name";

/// A kind that the index has a place for.
pub(crate) trait Indexed: Watched {
    /// The place.
    fn slot(objects: &mut Objects) -> &mut Slot<Self::View>;

    /// The cluster it belongs to.
    fn cluster(meta: &ObjectMeta) -> Option<&str> {
        meta.labels.as_ref()?.get(CLUSTER_LABEL).map(String::as_str)
    }

    /// The pod set that has to be looked at when it changes, besides its cluster.
    fn pod_set(_cluster: &ClusterKey, _meta: &ObjectMeta) -> Option<String> {
        None
    }
}

impl Indexed for Kafka {
    fn slot(objects: &mut Objects) -> &mut Slot<Kafka> {
        &mut objects.kafkas
    }

    fn cluster(meta: &ObjectMeta) -> Option<&str> {
        meta.name.as_deref()
    }
}

impl Indexed for KafkaNodePool {
    fn slot(objects: &mut Objects) -> &mut Slot<KafkaNodePool> {
        &mut objects.pools
    }

    /// One that lost its label is still to be let go: it has the place of a cluster without a name.
    fn cluster(meta: &ObjectMeta) -> Option<&str> {
        let named = meta.labels.as_ref().and_then(|labels| labels.get(CLUSTER_LABEL));
        let waits = meta.finalizers.iter().flatten().any(|finalizer| finalizer == POOL_FINALIZER);
        named.map(String::as_str).or(waits.then_some(""))
    }
}

impl Indexed for StrimziPodSet {
    fn slot(objects: &mut Objects) -> &mut Slot<PodSetView> {
        &mut objects.pod_sets
    }

    fn pod_set(_cluster: &ClusterKey, meta: &ObjectMeta) -> Option<String> {
        meta.name.clone()
    }
}

impl Indexed for PodWire {
    fn slot(objects: &mut Objects) -> &mut Slot<PodView> {
        &mut objects.pods
    }

    fn pod_set(_cluster: &ClusterKey, meta: &ObjectMeta) -> Option<String> {
        meta.labels.as_ref()?.get(CONTROLLER_NAME_LABEL).cloned()
    }
}

impl Indexed for ConfigMapWire {
    fn slot(objects: &mut Objects) -> &mut Slot<ConfigMapView> {
        &mut objects.config_maps
    }
}

impl Indexed for ServiceWire {
    fn slot(objects: &mut Objects) -> &mut Slot<ServiceView> {
        &mut objects.services
    }
}

impl Indexed for AccountWire {
    fn slot(objects: &mut Objects) -> &mut Slot<ServiceAccountView> {
        &mut objects.accounts
    }
}

impl Indexed for BudgetWire {
    fn slot(objects: &mut Objects) -> &mut Slot<PlainView> {
        &mut objects.budgets
    }
}

impl Indexed for PolicyWire {
    fn slot(objects: &mut Objects) -> &mut Slot<PlainView> {
        &mut objects.policies
    }
}

impl Indexed for ClaimWire {
    fn slot(objects: &mut Objects) -> &mut Slot<ClaimView> {
        &mut objects.claims
    }

    /// A pod waits until a disk that is being deleted is gone.
    fn pod_set(cluster: &ClusterKey, meta: &ObjectMeta) -> Option<String> {
        Some(cluster.pod_set(meta.labels.as_ref()?.get(POOL_LABEL)?))
    }
}

impl Indexed for SecretWire {
    fn slot(objects: &mut Objects) -> &mut Slot<SecretView> {
        &mut objects.secrets
    }
}
