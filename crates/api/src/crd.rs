//! The CustomResourceDefinitions: made from the types, finished by hand where the derive has no word for it,
//! and written as the YAML files that are installed.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps,
    JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube_core::CustomResourceExt;
use serde::Serialize;
use serde_json::Value;

use crate::{Kafka, KafkaNodePool, StrimziPodSet, bounds};

/// The version that older YAML and older clients still speak. It has the same schema as the stored version,
/// so the API server converts by changing the name only.
const EARLIER_VERSION: &str = "v1beta2";

/// Labels by which tools find the definitions that belong to the operator.
const LABELS: [(&str, &str); 2] = [("app", "strimzi"), ("strimzi.io/crd-install", "true")];

const HEADER: &str =
    "# Made by `cargo xtask crds` from the types in crates/api: change those, not this file.\n";

/// Why the definitions could not be written.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// The definition has no JSON form.
    #[error("the definition of {name} cannot be written as JSON: {source}")]
    Json { name: &'static str, source: serde_json::Error },
    /// The definition has no YAML form.
    #[error("the definition of {name} cannot be written as YAML: {source}")]
    Yaml { name: &'static str, source: serde_saphyr::ser_error::Error },
}

/// All definitions, as objects for the API server.
pub fn definitions() -> [CustomResourceDefinition; 3] {
    [Kafka::crd(), KafkaNodePool::crd(), StrimziPodSet::crd()].map(finish)
}

/// All definitions as files: the name of the file, and its YAML. The same types always give the same text.
pub fn crds() -> Result<Vec<(&'static str, String)>, CrdError> {
    let names = [
        "kafkas.kafka.strimzi.io.yaml",
        "kafkanodepools.kafka.strimzi.io.yaml",
        "strimzipodsets.core.strimzi.io.yaml",
    ];
    names.into_iter().zip(definitions()).map(|(name, crd)| Ok((name, to_yaml(name, &crd)?))).collect()
}

fn finish(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let labels = LABELS.map(|(name, value)| (name.to_owned(), value.to_owned()));
    crd.metadata.labels = Some(BTreeMap::from(labels));
    crd.spec.conversion = Some(CustomResourceConversion { strategy: "None".to_owned(), webhook: None });
    for version in &mut crd.spec.versions {
        if let Some(root) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            add_object_fields(root);
            finish_schema(root);
        }
    }
    serve_earlier_version(&mut crd);
    crd
}

fn serve_earlier_version(crd: &mut CustomResourceDefinition) {
    let Some(stored) = crd.spec.versions.iter().find(|version| version.storage) else { return };
    let group = &crd.spec.group;
    let warning =
        format!("{group}/{EARLIER_VERSION} is deprecated, use {group}/{} (same fields)", stored.name);
    let earlier = CustomResourceDefinitionVersion {
        name: EARLIER_VERSION.to_owned(),
        storage: false,
        deprecated: Some(true),
        deprecation_warning: Some(warning),
        ..stored.clone()
    };
    crd.spec.versions.push(earlier);
}

/// The fields that every object has.
const OBJECT_FIELDS: [&str; 3] = [".apiVersion", ".kind", ".metadata"];

/// Names the fields that every object has, as Strimzi's definitions do.
fn add_object_fields(root: &mut JSONSchemaProps) {
    let typed = |type_: &str| JSONSchemaProps { type_: Some(type_.to_owned()), ..JSONSchemaProps::default() };
    let properties = root.properties.get_or_insert_default();
    properties.insert("apiVersion".to_owned(), typed("string"));
    properties.insert("kind".to_owned(), typed("string"));
    properties.insert("metadata".to_owned(), typed("object"));
}

/// Makes a derived schema say what the API server understands and readers expect, all the way down.
fn finish_schema(root: &mut JSONSchemaProps) {
    walk("", root, &mut |path, schema| {
        // The API server drops a null where null is not allowed, so that nobody after it has to think of null.
        schema.nullable = None;
        schema.title = None;
        if let Some(values) = &mut schema.enum_ {
            values.retain(|value| !value.0.is_null());
        }
        // Docs are wrapped for editors, descriptions are wrapped by `kubectl explain`.
        schema.description = schema.description.take().map(|text| text.replace('\n', " "));
        if let Some(JSONSchemaPropsOrBool::Bool(true)) = schema.additional_properties {
            schema.additional_properties = None;
            schema.x_kubernetes_preserve_unknown_fields = Some(true);
        }
        // What every object has is the API server's to check.
        if !OBJECT_FIELDS.contains(&path) {
            bounds::add(path, schema);
        }
    });
}

/// Calls `each` with the path and content of a schema, and of every schema below it.
pub(crate) fn walk(
    path: &str,
    schema: &mut JSONSchemaProps,
    each: &mut impl FnMut(&str, &mut JSONSchemaProps),
) {
    each(path, schema);
    for (name, field) in schema.properties.iter_mut().flatten() {
        walk(&format!("{path}.{name}"), field, each);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        walk(&format!("{path}[]"), items, each);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        walk(&format!("{path}.*"), values, each);
    }
}

fn to_yaml(name: &'static str, crd: &CustomResourceDefinition) -> Result<String, CrdError> {
    let json = serde_json::to_value(crd).map_err(|source| CrdError::Json { name, source })?;
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let yaml = serde_saphyr::to_string_with_options(&Sorted::from(json), options)
        .map_err(|source| CrdError::Yaml { name, source })?;
    Ok(format!("{HEADER}{yaml}"))
}

/// JSON whose text depends on nothing but its content: the order of keys in a [`Value`] is a build option that
/// any crate in the build may switch.
#[derive(Serialize)]
#[serde(untagged)]
enum Sorted {
    Object(BTreeMap<String, Sorted>),
    Array(Vec<Sorted>),
    /// `0` rather than the `0.0` that Kubernetes' types make of every bound.
    Whole(i64),
    Other(Value),
}

impl From<Value> for Sorted {
    fn from(value: Value) -> Self {
        match value {
            Value::Object(fields) => {
                Self::Object(fields.into_iter().map(|(name, value)| (name, value.into())).collect())
            }
            Value::Array(items) => Self::Array(items.into_iter().map(Self::from).collect()),
            Value::Number(number) => whole(&number).map_or(Self::Other(Value::Number(number)), Self::Whole),
            other => Self::Other(other),
        }
    }
}

fn whole(number: &serde_json::Number) -> Option<i64> {
    let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
    // Through text, because the language has no checked way from a float to an integer.
    format!("{float:.0}").parse().ok()
}
