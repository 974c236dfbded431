//! The definitions are up to date, small enough, and obey the rules that the API server has for schemas.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking, as tests do")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// `kubectl apply` keeps a copy of the object in an annotation, and all annotations together may not be larger.
const LARGEST_ANNOTATIONS: usize = 262_144;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds")
}

fn definitions() -> Vec<Value> {
    let files = karst_api::crds().expect("the definitions can be written");
    files.into_iter().map(|(name, yaml)| read(name, &yaml)).collect()
}

fn read(name: &str, yaml: &str) -> Value {
    serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{name} is not YAML: {error}"))
}

fn schemas() -> Vec<Value> {
    let versions =
        |crd: Value| crd["spec"]["versions"].as_array().cloned().expect("a definition has versions");
    let versions = definitions().into_iter().flat_map(versions);
    versions.map(|version| version["schema"]["openAPIV3Schema"].clone()).collect()
}

/// Calls `check` with the path and content of every schema below and including `schema`.
fn walk(path: &str, schema: &Value, check: &mut impl FnMut(&str, &Value)) {
    check(path, schema);
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), child, check);
    }
    for (below, sign) in [("items", "[]"), ("additionalProperties", ".*")] {
        if !schema[below].is_null() {
            walk(&format!("{path}{sign}"), &schema[below], check);
        }
    }
}

#[test]
fn the_files_in_deploy_are_up_to_date() {
    let crds = karst_api::crds().expect("the definitions can be written");
    for (name, yaml) in &crds {
        let file = std::fs::read_to_string(directory().join(name)).unwrap_or_default();
        assert!(file == *yaml, "deploy/crds/{name} is not what the types say: run cargo xtask crds");
    }
    let expected: BTreeSet<String> = crds.iter().map(|(name, _)| (*name).to_owned()).collect();
    let files = std::fs::read_dir(directory()).expect("deploy/crds can be read");
    let names =
        files.map(|file| file.expect("deploy/crds can be read").file_name().to_string_lossy().into_owned());
    assert_eq!(
        names.collect::<BTreeSet<_>>(),
        expected,
        "deploy/crds holds the definitions and nothing else"
    );
}

#[test]
fn the_yaml_says_what_the_objects_say() {
    for (crd, object) in definitions().into_iter().zip(karst_api::definitions()) {
        let object = serde_json::to_value(object).expect("a definition is JSON");
        assert_eq!(with_plain_numbers(crd), with_plain_numbers(object));
    }
}

/// The YAML has 0 where the object has 0.0.
fn with_plain_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.into_iter().map(with_plain_numbers).collect(),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (name, with_plain_numbers(value))).collect())
        }
        other => other,
    }
}

#[test]
fn a_plain_kubectl_apply_can_keep_its_copy() {
    for crd in definitions() {
        let size = serde_json::to_string(&crd).expect("a definition is JSON").len();
        assert!(size < LARGEST_ANNOTATIONS, "{} has {size} bytes", crd["metadata"]["name"]);
    }
}

#[test]
fn both_versions_are_served_with_one_schema() {
    for crd in definitions() {
        let [stored, earlier] = crd["spec"]["versions"].as_array().expect("versions").as_slice() else {
            panic!("{} has not two versions", crd["metadata"]["name"]);
        };
        assert_eq!([&stored["name"], &earlier["name"]], [&json!("v1"), &json!("v1beta2")]);
        assert_eq!([&stored["storage"], &earlier["storage"]], [&json!(true), &json!(false)]);
        assert_eq!([&stored["served"], &earlier["served"]], [&json!(true), &json!(true)]);
        for part in ["schema", "subresources", "additionalPrinterColumns"] {
            assert_eq!(stored[part], earlier[part], "{part} of {} differs", crd["metadata"]["name"]);
        }
        assert_eq!(crd["spec"]["conversion"], json!({ "strategy": "None" }));
    }
}

#[test]
fn names_and_labels_are_those_that_tools_look_for() {
    let found = definitions().into_iter().map(|crd| {
        assert_eq!(crd["metadata"]["labels"], json!({ "app": "strimzi", "strimzi.io/crd-install": "true" }));
        assert_eq!(crd["spec"]["names"]["categories"], json!(["strimzi"]));
        assert_eq!(crd["spec"]["scope"], "Namespaced");
        json!([crd["metadata"]["name"], crd["spec"]["names"]["shortNames"]])
    });
    let expected = json!([
        ["kafkas.kafka.strimzi.io", ["k"]],
        ["kafkanodepools.kafka.strimzi.io", ["knp"]],
        ["strimzipodsets.core.strimzi.io", ["sps"]]
    ]);
    assert_eq!(found.collect::<Value>(), expected);
}

#[test]
fn columns_are_those_that_users_know() {
    let expected = [
        vec!["Ready", "Warnings", "Kafka version", "Metadata version", "Quorum", "Voters"],
        vec!["Desired replicas", "Roles", "NodeIds"],
        vec!["Pods", "Ready Pods", "Current Pods", "Age"],
    ];
    for (crd, expected) in definitions().into_iter().zip(expected) {
        let columns = crd["spec"]["versions"][0]["additionalPrinterColumns"].as_array().cloned();
        let names: Value = columns.into_iter().flatten().map(|column| column["name"].clone()).collect();
        assert_eq!(names, json!(expected));
    }
}

#[test]
fn every_schema_is_structural() {
    for schema in schemas() {
        walk("", &schema, &mut |path, node| {
            let int_or_string = node["x-kubernetes-int-or-string"] == json!(true);
            assert!(node["type"].is_string() || int_or_string, "{path} has no type: {node}");
            for forbidden in ["oneOf", "anyOf", "allOf", "not", "$ref", "nullable", "title"] {
                assert!(node[forbidden].is_null(), "{path} has {forbidden}: {node}");
            }
            let both = !node["properties"].is_null() && !node["additionalProperties"].is_null();
            assert!(!both, "{path} has both properties and additionalProperties");
        });
    }
}

#[test]
fn the_api_server_writes_no_defaults_into_what_users_wrote() {
    for schema in schemas() {
        walk("", &schema, &mut |path, node| {
            assert!(node["default"].is_null(), "{path} has a default: {node}");
        });
    }
}

/// The API server takes no notice of `format`, and one object that cannot be read stops the reading of all.
#[test]
fn no_number_is_let_in_that_the_types_cannot_hold() {
    for schema in schemas() {
        walk("", &schema, &mut |path, node| {
            let bounds = [&node["minimum"], &node["maximum"]];
            if node["format"] == "int32" {
                let held =
                    bounds.map(|bound| bound.as_i64().is_some_and(|bound| i32::try_from(bound).is_ok()));
                assert_eq!(held, [true, true], "{path} is not bounded: {node}");
            }
            // It cuts a bound to 64 bits before it compares: one outside of them turns into its opposite.
            assert!(bounds.iter().all(|bound| bound.is_null() || bound.as_i64().is_some()), "{path}: {node}");
        });
    }
}

/// What has no end in the schema: fields of every object, which the API server checks by itself, and what is inside of free-form
/// parts, which ends where the API server takes no larger object (1.5 to 3 MiB).
const WITHOUT_BOUNDS: &[&str] = &[".apiVersion", ".kind", ".metadata"];

#[test]
fn every_text_list_map_and_number_has_its_bounds() {
    let mut seen = 0;
    for schema in schemas() {
        walk("", &schema, &mut |path, node| {
            if WITHOUT_BOUNDS.contains(&path) {
                return;
            }
            let is_amount = node["x-kubernetes-int-or-string"] == json!(true);
            let is_map = node["properties"].is_null() && node["type"] == "object";
            let needed: &[&str] = match node["type"].as_str() {
                _ if is_amount => &["maxLength", "minimum", "maximum"],
                Some("string") if node["enum"].is_null() => &["maxLength"],
                Some("array") => &["maxItems"],
                Some("integer" | "number") => &["minimum", "maximum"],
                Some("object") if is_map => &["maxProperties"],
                _ => &[],
            };
            for bound in needed {
                assert!(node[*bound].is_number(), "{path} has no {bound}: {node}");
            }
            seen += needed.len();
        });
    }
    assert!(seen > 500, "only {seen} bounds were looked at");
}

#[test]
fn every_field_that_users_meet_is_described() {
    for schema in schemas() {
        for part in ["spec", "status"] {
            walk(part, &schema["properties"][part], &mut |path, node| {
                for (name, field) in node["properties"].as_object().into_iter().flatten() {
                    let described = field["description"].as_str().is_some_and(|text| text.ends_with('.'));
                    assert!(described, "{path}.{name} is not described by a sentence");
                }
            });
        }
    }
}

#[test]
fn a_pool_has_at_least_one_role_and_none_but_the_two_there_are() {
    let mut seen = 0;
    for schema in schemas() {
        let roles = &schema["properties"]["spec"]["properties"]["roles"];
        if roles.is_null() {
            continue;
        }
        seen += 1;
        assert_eq!(roles["minItems"], 1);
        assert_eq!(roles["items"]["enum"], json!(["controller", "broker"]));
    }
    assert_eq!(seen, 2, "both versions of KafkaNodePool");
}
