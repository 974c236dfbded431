//! Files that users keep in ConfigMaps of their own, and that a resource only names.
//!
//! What is in them was read before: here it is found, or it is said what is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karst_api as api;

use crate::world::World;

/// The longest name of a ConfigMap.
const LONGEST: usize = 253;

/// The entries of a ConfigMap.
pub type Texts = BTreeMap<String, Arc<str>>;

/// An object of users that a resource names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference<T> {
    /// There is none of this name.
    Missing,
    /// It could not be read.
    Unreadable(String),
    /// It is there, with this in it.
    Found(T),
}

/// A file of the nodes that users have a say in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// It is to be this.
    Text(Arc<str>),
    /// What is asked for cannot be done: each node keeps what it has.
    Kept,
}

/// The names of all ConfigMaps that a `Kafka` resource refers to and that have to be read.
pub fn config_maps(kafka: &api::Kafka) -> BTreeSet<String> {
    let spec = &kafka.spec.kafka;
    let logging = spec.logging.iter().filter(|logging| logging.type_ == api::LoggingType::External);
    let metrics =
        spec.metrics_config.iter().filter(|metrics| metrics.type_ == api::MetricsType::JmxPrometheusExporter);
    let sources = logging
        .filter_map(|logging| logging.value_from.as_ref())
        .chain(metrics.filter_map(|metrics| metrics.value_from.as_ref()));
    let names = sources.filter_map(|source| source.config_map_key_ref.as_ref()?.name.clone());
    names.filter(|name| is_name(name)).collect()
}

/// Only such a name is ever looked for.
fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    !name.is_empty() && name.len() <= LONGEST && name.chars().all(is_part)
}

/// The text that is named at `field`, or what keeps it from being used. `None` when it is missing and may be.
pub(crate) fn text(
    world: &World,
    field: &str,
    source: Option<&api::ExternalConfiguration>,
) -> Result<Option<Arc<str>>, String> {
    let field = format!("{field}.valueFrom.configMapKeyRef");
    let found = source.and_then(|source| source.config_map_key_ref.as_ref());
    let named = |part: Option<&String>| part.filter(|part| !part.is_empty()).cloned();
    let name = found.and_then(|found| named(found.name.as_ref()));
    let key = found.and_then(|found| named(found.key.as_ref()));
    let (Some(name), Some(key)) = (name, key) else {
        return Err(format!("{field} is not complete; give it the name of a ConfigMap and a key in it"));
    };
    if !is_name(&name) {
        return Err(format!(
            "{field}.name is '{name}'; the name of a ConfigMap has lower-case letters, digits, '-' and '.'"
        ));
    }
    let is_optional = found.and_then(|found| found.optional) == Some(true);
    let namespace = &world.key.namespace;
    match world.references.get(&name).unwrap_or(&Reference::Missing) {
        Reference::Found(entries) => match entries.get(&key) {
            Some(text) => Ok(Some(Arc::clone(text))),
            None if is_optional => Ok(None),
            None => Err(format!(
                "{field}.key is '{key}', and ConfigMap '{name}' has {}; correct the key, or add it to the ConfigMap",
                keys(entries)
            )),
        },
        Reference::Missing if is_optional => Ok(None),
        Reference::Missing => Err(format!(
            "{field}.name is '{name}', and namespace '{namespace}' has no such ConfigMap; create it, or correct the name"
        )),
        Reference::Unreadable(why) => {
            Err(format!("{field}.name is '{name}', and the ConfigMap cannot be read: {why}"))
        }
    }
}

fn keys(entries: &BTreeMap<String, Arc<str>>) -> String {
    match entries.keys().map(|key| format!("'{key}'")).collect::<Vec<_>>() {
        keys if keys.is_empty() => "no keys".to_owned(),
        keys => format!("only {}", keys.join(", ")),
    }
}
