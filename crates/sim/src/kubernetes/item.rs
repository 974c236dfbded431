//! Objects, as far as anybody looks at them, and their kinds.

use std::sync::Arc;

use karst_api as api;
use karst_core::objects::Object;
use karst_core::world::{
    ClaimView, ConfigMapView, Meta, PlainView, PodSetView, PodView, SecretView, ServiceAccountView,
    ServiceView,
};

/// The kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `Kafka`.
    Kafka,
    /// `KafkaNodePool`.
    Pool,
    /// `StrimziPodSet`.
    PodSet,
    /// `Pod`.
    Pod,
    /// `ConfigMap`.
    ConfigMap,
    /// `Service`.
    Service,
    /// `ServiceAccount`.
    Account,
    /// `PodDisruptionBudget`.
    Budget,
    /// `NetworkPolicy`.
    Policy,
    /// `PersistentVolumeClaim`.
    Claim,
    /// `Secret`.
    Secret,
}

/// All of them. Each has a watch of its own.
pub const KINDS: [Kind; 11] = [
    Kind::Kafka,
    Kind::Pool,
    Kind::PodSet,
    Kind::Pod,
    Kind::ConfigMap,
    Kind::Service,
    Kind::Account,
    Kind::Budget,
    Kind::Policy,
    Kind::Claim,
    Kind::Secret,
];

/// An object, as far as anybody looks at it.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub enum Item {
    Kafka(Arc<api::Kafka>),
    Pool(Arc<api::KafkaNodePool>),
    PodSet(Arc<PodSetView>),
    Pod(Arc<PodView>),
    ConfigMap(Arc<ConfigMapView>),
    Service(Arc<ServiceView>),
    Account(Arc<ServiceAccountView>),
    Budget(Arc<PlainView>),
    Policy(Arc<PlainView>),
    Claim(Arc<ClaimView>),
    Secret(Arc<SecretView>),
}

impl Item {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Kafka(_) => Kind::Kafka,
            Self::Pool(_) => Kind::Pool,
            Self::PodSet(_) => Kind::PodSet,
            Self::Pod(_) => Kind::Pod,
            Self::ConfigMap(_) => Kind::ConfigMap,
            Self::Service(_) => Kind::Service,
            Self::Account(_) => Kind::Account,
            Self::Budget(_) => Kind::Budget,
            Self::Policy(_) => Kind::Policy,
            Self::Claim(_) => Kind::Claim,
            Self::Secret(_) => Kind::Secret,
        }
    }

    /// Which incarnation it is.
    pub fn uid(&self) -> &str {
        match self {
            Self::Kafka(kafka) => kafka.metadata.uid.as_deref().unwrap_or_default(),
            Self::Pool(pool) => pool.metadata.uid.as_deref().unwrap_or_default(),
            other => other.meta().map_or("", |meta| &meta.uid),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Kafka(kafka) => kafka.metadata.name.as_deref().unwrap_or_default(),
            Self::Pool(pool) => pool.metadata.name.as_deref().unwrap_or_default(),
            other => other.meta().map_or("", |meta| &meta.name),
        }
    }

    pub(super) fn meta(&self) -> Option<&Meta> {
        match self {
            Self::Kafka(_) | Self::Pool(_) => None,
            Self::PodSet(set) => Some(&set.meta),
            Self::Pod(pod) => Some(&pod.meta),
            Self::ConfigMap(map) => Some(&map.meta),
            Self::Service(service) => Some(&service.meta),
            Self::Account(account) => Some(&account.meta),
            Self::Budget(plain) | Self::Policy(plain) => Some(&plain.meta),
            Self::Claim(claim) => Some(&claim.meta),
            Self::Secret(secret) => Some(&secret.meta),
        }
    }

    pub(super) fn set_version(&mut self, version: u64) {
        let text = version.to_string();
        match self {
            Self::Kafka(kafka) => Arc::make_mut(kafka).metadata.resource_version = Some(text),
            Self::Pool(pool) => Arc::make_mut(pool).metadata.resource_version = Some(text),
            Self::PodSet(set) => Arc::make_mut(set).meta.resource_version = text,
            Self::Pod(pod) => Arc::make_mut(pod).meta.resource_version = text,
            Self::ConfigMap(map) => Arc::make_mut(map).meta.resource_version = text,
            Self::Service(service) => Arc::make_mut(service).meta.resource_version = text,
            Self::Account(account) => Arc::make_mut(account).meta.resource_version = text,
            Self::Budget(plain) | Self::Policy(plain) => Arc::make_mut(plain).meta.resource_version = text,
            Self::Claim(claim) => Arc::make_mut(claim).meta.resource_version = text,
            Self::Secret(secret) => Arc::make_mut(secret).meta.resource_version = text,
        }
    }
}

/// The kind of an object that is to be written.
pub fn kind_of(object: &Object) -> Kind {
    match object {
        Object::ServiceAccount(_) => Kind::Account,
        Object::Service(_) => Kind::Service,
        Object::ConfigMap(_) => Kind::ConfigMap,
        Object::Budget(_) => Kind::Budget,
        Object::Policy(_) => Kind::Policy,
        Object::Claim(_) => Kind::Claim,
        Object::PodSet(_) => Kind::PodSet,
    }
}
