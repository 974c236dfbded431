//! `StrimziPodSet`: the pods of one pool, each described in full.
//!
//! Written by the operator, not by users.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::common::Condition;
use crate::schema;

/// Which pods there should be.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    crates(kube = "::kube_derive", kube_core = "::kube_core"),
    group = "core.strimzi.io",
    version = "v1",
    kind = "StrimziPodSet",
    plural = "strimzipodsets",
    doc = "Pods that the operator keeps running, each with its own description.",
    namespaced,
    status = "StrimziPodSetStatus",
    derive = "PartialEq",
    shortname = "sps",
    category = "strimzi",
    printcolumn = r#"{"name": "Pods", "type": "integer", "jsonPath": ".status.pods",
        "description": "How many pods there should be"}"#,
    printcolumn = r#"{"name": "Ready Pods", "type": "integer", "jsonPath": ".status.readyPods",
        "description": "How many pods are ready"}"#,
    printcolumn = r#"{"name": "Current Pods", "type": "integer", "jsonPath": ".status.currentPods",
        "description": "How many pods are as they are described here"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
        "description": "How long the pod set has existed"}"#
)]
pub struct StrimziPodSetSpec {
    /// Labels by which the pods of this set are found.
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: LabelSelector,
    /// The pods, each as a whole; kept as JSON so that no field of a newer Kubernetes is lost.
    #[schemars(schema_with = "schema::free_form_list")]
    pub pods: Vec<serde_json::Value>,
}

/// Which pods there are.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StrimziPodSetStatus {
    /// What wants attention.
    pub conditions: Option<Vec<Condition>>,
    /// Generation of the pod set that was last carried out.
    pub observed_generation: Option<i64>,
    /// How many pods there should be.
    pub pods: Option<i32>,
    /// How many pods are ready.
    pub ready_pods: Option<i32>,
    /// How many pods are as they are described here.
    pub current_pods: Option<i32>,
}
