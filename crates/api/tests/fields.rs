//! The schema has every field that Strimzi's users know, with its type and validation, and no others.
//!
//! The expectations are the tables in `fields/`.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking, as tests do")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// One line of a table: what is expected of a field.
struct Expectation<'a> {
    path: &'a str,
    type_: &'a str,
    facts: Vec<&'a str>,
}

fn expectations(table: &str) -> Vec<Expectation<'_>> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    let expectation = |line| {
        let mut words = str::split_whitespace(line);
        let (path, type_) = words.next().zip(words.next()).expect("a line has a path and a type");
        Expectation { path, type_, facts: words.collect() }
    };
    lines.map(expectation).collect()
}

/// A field of the schema, and whether its parent demands it.
struct Field {
    schema: Value,
    required: bool,
}

/// All fields of a schema by path, with `[]` for the items of a list.
fn fields(path: &str, schema: &Value, found: &mut BTreeMap<String, Field>) {
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let required = schema["required"].as_array().is_some_and(|names| names.contains(&json!(name)));
        fields(&path, child, found);
        fields(&format!("{path}[]"), &child["items"], found);
        found.insert(path, Field { schema: child.clone(), required });
    }
}

fn type_of(schema: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("nothing").to_owned();
    if schema["x-kubernetes-int-or-string"] == json!(true) {
        "int-or-string".to_owned()
    } else if schema["type"] == "array" {
        format!("array<{}>", type_of(&schema["items"]))
    } else if schema["additionalProperties"].is_object() {
        format!("map<{}>", type_of(&schema["additionalProperties"]))
    } else if schema["x-kubernetes-preserve-unknown-fields"] == json!(true) {
        format!("{}(free)", text(&schema["type"]))
    } else {
        text(&schema["type"])
    }
}

/// A table that says `object` without saying what is inside is content with a free one.
fn type_matches(expected: &str, found: &str) -> bool {
    expected == found || expected.replace("object", "object(free)") == found
}

fn fact_holds(field: &Field, fact: &str) -> bool {
    let schema = &field.schema;
    let number = |name: &str, value: &str| schema[name].as_f64() == value.parse::<f64>().ok();
    match fact.split_once('=') {
        None if fact == "required" => field.required,
        None if fact == "rules" => {
            schema["x-kubernetes-validations"].as_array().is_some_and(|rules| !rules.is_empty())
        }
        Some(("enum", values)) => {
            let of = if schema["type"] == "array" { &schema["items"] } else { schema };
            of["enum"] == json!(values.split(',').collect::<Vec<_>>())
        }
        Some(("pattern", pattern)) => schema["pattern"] == pattern,
        Some((name @ ("minimum" | "maximum" | "minItems"), value)) => number(name, value),
        _ => panic!("the table has a fact that this test does not understand: {fact}"),
    }
}

fn differences(expected: &[Expectation<'_>], schema: &Value) -> Vec<String> {
    let mut found = BTreeMap::new();
    fields("", schema, &mut found);
    let mut differences = Vec::new();
    for Expectation { path, type_, facts } in expected {
        let Some(field) = found.get(*path) else {
            differences.push(format!("{path} is missing"));
            continue;
        };
        let found_type = type_of(&field.schema);
        if !type_matches(type_, &found_type) {
            differences.push(format!("{path} is {found_type} instead of {type_}"));
        }
        let broken = facts.iter().filter(|fact| !fact_holds(field, fact));
        differences.extend(broken.map(|fact| format!("{path} lacks {fact}: {}", field.schema)));
    }
    differences.extend(
        found.keys().filter(|path| !is_expected(path, expected)).map(|path| format!("{path} is new")),
    );
    differences
}

/// Whether a table names the path, or names something above it without going into detail.
fn is_expected(path: &str, expected: &[Expectation<'_>]) -> bool {
    let named: BTreeSet<&str> = expected.iter().map(|expectation| expectation.path).collect();
    let is_detailed = |above: &str| {
        named.iter().any(|path| path.strip_prefix(above).is_some_and(|rest| rest.starts_with(['.', '['])))
    };
    let separators = path.match_indices(['.', '[']).map(|(at, _)| &path[..at]);
    named.contains(path) || separators.into_iter().any(|above| named.contains(above) && !is_detailed(above))
}

fn assert_fields(kind: &str, table: &str) {
    let expected = expectations(table);
    let crd = karst_api::definitions().into_iter().find(|crd| crd.spec.names.kind == kind);
    let crd = serde_json::to_value(crd.expect("the kind has a definition")).expect("a definition is JSON");
    let versions = crd["spec"]["versions"].as_array().expect("a definition has versions");
    assert_eq!(versions.len(), 2, "{kind} is served in two versions");
    for version in versions {
        let differences = differences(&expected, &version["schema"]["openAPIV3Schema"]);
        assert!(differences.is_empty(), "{kind} {}:\n{}", version["name"], differences.join("\n"));
    }
}

#[test]
fn kafka_has_the_fields_that_users_know() {
    assert_fields("Kafka", include_str!("fields/kafka.txt"));
}

#[test]
fn kafka_node_pool_has_the_fields_that_users_know() {
    assert_fields("KafkaNodePool", include_str!("fields/kafkanodepool.txt"));
}

#[test]
fn strimzi_pod_set_has_the_fields_that_users_know() {
    assert_fields("StrimziPodSet", include_str!("fields/strimzipodset.txt"));
}
