//! How long a text, how many entries and how large a number may be: as generous as any real use, and never without an end.
//!
//! One operator reads what everybody writes, again and again. What has no bound here costs all of them when somebody slips, or
//! means harm. Every field gets the bound of its type, and some get one of their own. Free-form parts are bounded on their first
//! level only; below it there is what the API server takes for a whole object.
//!
//! The API server compares whole numbers as 64-bit integers, after it cut the bound to one: [`LARGEST`] is well inside.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrBool,
};

/// The longest text of a field that needs no other bound.
const TEXT: i64 = 4096;
/// The most entries of a list or a map that needs no other bound.
const ENTRIES: i64 = 1024;
/// The largest number.
const LARGEST: f64 = 9e18;

/// The most nodes of a cluster, and so of a pool.
pub const NODES: i32 = 1000;
/// The most days for which a certificate is valid, or before its end at which it is renewed.
pub const DAYS: i32 = 365_000;
/// The most listeners.
pub const LISTENERS: i64 = 64;
/// The most volumes of a node.
pub const VOLUMES: i64 = 256;
/// The most maintenance windows.
pub const WINDOWS: i64 = 128;
/// The longest maintenance window.
pub const WINDOW: i64 = 1024;
/// The longest message of a condition.
pub const MESSAGE: i64 = 32_768;
/// The most conditions of a status.
pub const CONDITIONS: i64 = ENTRIES;
/// The most addresses of a listener.
pub const ADDRESSES: i64 = ENTRIES;
/// The longest certificate, with those it was signed by.
pub const CERTIFICATE: i64 = 262_144;
/// The longest template of a host or a port.
pub const ADDRESS_TEMPLATE: i64 = 512;

/// Texts with a bound of their own, by the end of their path.
const TEXTS: &[(&str, i64)] = &[
    (".conditions[].message", MESSAGE),
    (".maintenanceTimeWindows[]", WINDOW),
    // All annotations of an object together may be so long.
    ("nnotations.*", 262_144),
    (".perBrokerAnnotationsTemplate.*", 262_144),
    (".advertisedHostTemplate", ADDRESS_TEMPLATE),
    (".advertisedPortTemplate", ADDRESS_TEMPLATE),
    (".hostTemplate", ADDRESS_TEMPLATE),
    (".classPath", 32_768),
    (".remoteStorageManager.config.*", 32_768),
    ("Regex", 32_768),
    // A name of each node.
    (".initialControllers", 524_288),
    (".bootstrapServers", 524_288),
    (".certificates[]", CERTIFICATE),
];

/// Lists with a bound of their own.
const LISTS: &[(&str, i64)] = &[
    (".spec.kafka.listeners", LISTENERS),
    (".maintenanceTimeWindows", WINDOWS),
    ("torage.volumes", VOLUMES),
    (".conditions", CONDITIONS),
    (".addresses", ADDRESSES),
    (".roles", 16),
    (".ipFamilies", 16),
    // Ids of nodes: of clusters that are there, too.
    (".nodeIds", 16_384),
    (".voterIds", 16_384),
    (".voters", 16_384),
    (".registeredNodeIds", 16_384),
    (".modes[].brokers", 16_384),
];

/// Numbers with bounds of their own.
const NUMBERS: &[(&str, f64, f64)] = &[
    (".spec.replicas", 0.0, NODES as f64),
    (".spec.kafka.replicas", 1.0, NODES as f64),
    (".validityDays", 1.0, DAYS as f64),
    (".renewalDays", 1.0, DAYS as f64),
    (".nodePort", 0.0, 65_535.0),
    ("ort", 1.0, 65_535.0),
    (".broker", 0.0, i32::MAX as f64),
    (".observedGeneration", 0.0, LARGEST),
];

fn of<T: Copy>(table: &[(&str, T)], path: &str, default: T) -> T {
    table.iter().find(|(end, _)| path.ends_with(end)).map_or(default, |(_, bound)| *bound)
}

/// Gives the schema at this path the bounds that it lacks.
pub(crate) fn add(path: &str, schema: &mut JSONSchemaProps) {
    let is_amount = schema.x_kubernetes_int_or_string == Some(true);
    let type_ = schema.type_.as_deref();
    if is_amount || (type_ == Some("string") && schema.enum_.is_none()) {
        schema.max_length.get_or_insert(of(TEXTS, path, TEXT));
    }
    if is_amount || matches!(type_, Some("integer" | "number")) {
        let default = match schema.format.as_deref() {
            Some("int32") => (f64::from(i32::MIN), f64::from(i32::MAX)),
            _ => (-LARGEST, LARGEST),
        };
        let own = NUMBERS.iter().find(|(end, _, _)| path.ends_with(end));
        let (least, most) = own.map_or(default, |(_, least, most)| (*least, *most));
        schema.minimum.get_or_insert(least);
        schema.maximum.get_or_insert(most);
    }
    if type_ == Some("array") {
        schema.max_items.get_or_insert(of(LISTS, path, ENTRIES));
    }
    let has_values = matches!(schema.additional_properties, Some(JSONSchemaPropsOrBool::Schema(_)));
    if has_values || schema.x_kubernetes_preserve_unknown_fields == Some(true) {
        schema.max_properties.get_or_insert(ENTRIES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd;

    #[test]
    fn every_bound_of_its_own_has_a_field() {
        let mut paths = Vec::new();
        for crd in crate::definitions() {
            let schema = crd.spec.versions.into_iter().next().and_then(|version| version.schema);
            let root = schema.and_then(|schema| schema.open_api_v3_schema);
            crd::walk("", &mut root.unwrap(), &mut |path, _| paths.push(path.to_owned()));
        }
        let ends = TEXTS.iter().chain(LISTS).map(|(end, _)| *end);
        for end in ends.chain(NUMBERS.iter().map(|(end, _, _)| *end)) {
            assert!(paths.iter().any(|path| path.ends_with(end)), "no field ends with {end}");
        }
    }
}
