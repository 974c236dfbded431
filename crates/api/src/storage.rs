//! Where a node keeps its data.
//!
//! On the wire one flat object serves all kinds of storage, told apart by `type`; which fields belong to which
//! kind is checked by rules that the API server runs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The storage of every node of a pool.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.type != 'persistent-claim' || has(self.size)",
        "message": "size is required when type is persistent-claim, for example 100Gi",
        "reason": "FieldValueRequired",
        "fieldPath": ".size"
    },
    {
        "rule": "self.type != 'jbod' || (has(self.volumes) && size(self.volumes) > 0)",
        "message": "volumes is required when type is jbod, with at least one volume",
        "reason": "FieldValueRequired",
        "fieldPath": ".volumes"
    }
]))]
pub struct Storage {
    /// Whether data lives in the pod (ephemeral), on one claim (persistent-claim) or on several volumes (jbod).
    #[serde(rename = "type")]
    pub type_: StorageType,
    /// The volumes, for storage of type jbod.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    pub volumes: Option<Vec<Volume>>,
    /// Number of the volume; only used inside a list of volumes.
    #[schemars(range(min = 0))]
    pub id: Option<i32>,
    /// Size of the persistent volume claim, for example 100Gi.
    pub size: Option<String>,
    /// Storage class of the persistent volume claim.
    pub class: Option<String>,
    /// Labels that the persistent volume must have.
    pub selector: Option<BTreeMap<String, String>>,
    /// Whether the claim, and the data with it, is deleted with its node; it is kept unless asked for.
    pub delete_claim: Option<bool>,
    /// Name of the VolumeAttributesClass of the claim.
    pub volume_attributes_class: Option<String>,
    /// Marks the volume that holds the KRaft metadata log.
    pub kraft_metadata: Option<KraftMetadata>,
    /// Largest size of ephemeral storage, for example 1Gi.
    #[schemars(regex(pattern = r"^([0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"))]
    pub size_limit: Option<String>,
}

impl Storage {
    /// A disk that lives and dies with its pod.
    pub fn ephemeral() -> Self {
        Self {
            type_: StorageType::Ephemeral,
            volumes: None,
            id: None,
            size: None,
            class: None,
            selector: None,
            delete_claim: None,
            volume_attributes_class: None,
            kraft_metadata: None,
            size_limit: None,
        }
    }
}

/// The kinds of [`Storage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StorageType {
    Ephemeral,
    PersistentClaim,
    Jbod,
}

/// One volume of a node that has several.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.type != 'persistent-claim' || has(self.size)",
    "message": "size is required when type is persistent-claim, for example 100Gi",
    "reason": "FieldValueRequired",
    "fieldPath": ".size"
}]))]
pub struct Volume {
    /// Number of the volume, unique within the node; it is part of the claim's name and of the mount path.
    #[schemars(range(min = 0))]
    pub id: i32,
    /// Whether data lives in the pod (ephemeral) or on a claim (persistent-claim).
    #[serde(rename = "type")]
    pub type_: VolumeType,
    /// Size of the persistent volume claim, for example 100Gi.
    pub size: Option<String>,
    /// Storage class of the persistent volume claim.
    pub class: Option<String>,
    /// Labels that the persistent volume must have.
    pub selector: Option<BTreeMap<String, String>>,
    /// Whether the claim, and the data with it, is deleted with its node; it is kept unless asked for.
    pub delete_claim: Option<bool>,
    /// Name of the VolumeAttributesClass of the claim.
    pub volume_attributes_class: Option<String>,
    /// Marks the volume that holds the KRaft metadata log; the one with the lowest id does when none is marked.
    pub kraft_metadata: Option<KraftMetadata>,
    /// Largest size of ephemeral storage, for example 1Gi.
    #[schemars(regex(pattern = r"^([0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"))]
    pub size_limit: Option<String>,
}

/// The kinds of [`Volume`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeType {
    Ephemeral,
    PersistentClaim,
}

/// How a volume takes part in keeping the KRaft metadata log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum KraftMetadata {
    Shared,
}
