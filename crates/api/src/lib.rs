//! The custom resources that users write and Karst reads: `Kafka`, `KafkaNodePool` and `StrimziPodSet`.
//!
//! These are wire types. They say what may be written and how it looks as JSON, and hold no decisions: what a
//! missing field means, which fields go together and what is done about them is decided in `karst-core`.
//! The only rules here are those that the API server can check by itself, from the schema.
//!
//! Every optional field is an [`Option`], lists and maps included, so that what was read is written back as it
//! was, and so that a reader can tell "not written" from "written as empty".

pub mod bounds;
mod common;
mod crd;
mod kafka;
mod listener;
mod podset;
mod pool;
pub mod rights;
mod schema;
mod status;
mod storage;
mod template;

pub use common::{
    Condition, ConfigMapKeySelector, ExternalConfiguration, FreeForm, JvmOptions, Logging, LoggingType,
    MetricsConfig, MetricsReporterValues, MetricsType, Probe, Quantity, ResourceClaim, ResourceRequirements,
    SystemProperty,
};
pub use crd::{CrdError, crds, definitions};
pub use kafka::{
    Authorization, AuthorizationType, CertificateAuthority, CertificateExpirationPolicy, CruiseControlSpec,
    EntityOperatorSpec, JmxAuthentication, JmxAuthenticationType, JmxOptions, Kafka, KafkaClusterSpec,
    KafkaExporterSpec, KafkaSpec, Quotas, QuotasType, Rack, RackType, RemoteStorageManager, TieredStorage,
    TieredStorageType,
};
pub use listener::{
    CertificateAndKey, ExternalTrafficPolicy, IpFamily, IpFamilyPolicy, Listener, ListenerAuthentication,
    ListenerAuthenticationType, ListenerBootstrap, ListenerBroker, ListenerConfiguration, ListenerType,
    NodeAddressType, ParentReference,
};
pub use podset::{StrimziPodSet, StrimziPodSetSpec, StrimziPodSetStatus};
pub use pool::{KafkaNodePool, KafkaNodePoolSpec, KafkaNodePoolStatus, Role};
pub use status::{
    AutoRebalanceMode, AutoRebalanceModeBrokers, AutoRebalanceState, AutoRebalanceStatus, KafkaStatus,
    ListenerAddress, ListenerStatus, QuorumKind, QuorumStatus, QuorumVoter, UsedNodePool,
};
pub use storage::{KraftMetadata, Storage, StorageType, Volume, VolumeType};
pub use template::{
    ContainerTemplate, DnsPolicy, InternalServiceTemplate, KafkaClusterTemplate, KafkaNodePoolTemplate,
    MetadataTemplate, PodDisruptionBudgetTemplate, PodTemplate, ResourceTemplate,
};
