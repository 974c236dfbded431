//! What users write, and what is read back from the API server, passes through the types without loss.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking, as tests do")]

use std::path::Path;

use karst_api::{Kafka, KafkaNodePool, Quantity, StrimziPodSet};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn examples() -> Vec<(String, Value)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/examples");
    let files = std::fs::read_dir(&directory).expect("the examples are there");
    let mut examples = Vec::new();
    for file in files {
        let path = file.expect("the directory can be read").path();
        let text = std::fs::read_to_string(&path).expect("an example can be read");
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
            .unwrap_or_else(|error| panic!("{} is not YAML: {error}", path.display()));
        let file = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        for document in documents {
            let name = format!("{} {} in {file}", document["kind"], document["metadata"]["name"]);
            examples.push((name, document));
        }
    }
    examples
}

fn read_and_write<T: DeserializeOwned + Serialize>(name: &str, document: &Value) -> Value {
    let object: T = serde_json::from_value(document.clone())
        .unwrap_or_else(|error| panic!("{name} was refused: {error}"));
    serde_json::to_value(&object).expect("what was read can be written")
}

/// The types speak for both versions and always write the stored one.
fn without_version(mut document: Value) -> Value {
    document.as_object_mut().expect("a resource is an object").remove("apiVersion");
    document
}

#[test]
fn every_example_is_written_back_as_it_was_read() {
    let examples = examples();
    assert!(examples.len() >= 10, "only {} examples were found", examples.len());
    for (name, document) in examples {
        let written = match document["kind"].as_str() {
            Some("Kafka") => read_and_write::<Kafka>(&name, &document),
            Some("KafkaNodePool") => read_and_write::<KafkaNodePool>(&name, &document),
            Some("StrimziPodSet") => read_and_write::<StrimziPodSet>(&name, &document),
            kind => panic!("{name} is of a kind that nobody knows: {kind:?}"),
        };
        assert_eq!(without_version(written), without_version(document), "{name} changed");
    }
}

#[test]
fn every_example_uses_only_fields_that_the_schema_knows() {
    for (name, document) in examples() {
        let kind = document["kind"].as_str().expect("a resource has a kind");
        let crd = karst_api::definitions().into_iter().find(|crd| crd.spec.names.kind == kind);
        let crd =
            serde_json::to_value(crd.expect("the kind has a definition")).expect("a definition is JSON");
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert_known(&name, "", schema, &document);
    }
}

fn assert_known(name: &str, path: &str, schema: &Value, value: &Value) {
    let free = schema["x-kubernetes-preserve-unknown-fields"] == json!(true) || path == ".metadata";
    if free {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let path = format!("{path}.{field}");
                let schema = [&schema["properties"][field], &schema["additionalProperties"]];
                let schema = schema.into_iter().find(|schema| !schema.is_null());
                let schema = schema.unwrap_or_else(|| panic!("{name}: the schema does not know {path}"));
                assert_known(name, &path, schema, value);
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| assert_known(name, &format!("{path}[]"), &schema["items"], item));
        }
        _ => {}
    }
}

#[test]
fn an_amount_may_be_a_number_or_a_text() {
    let amounts: Vec<Quantity> =
        serde_json::from_value(json!([2, 8_589_934_592_i64, "500m"])).expect("amounts");
    let texts: Vec<String> = amounts.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["2", "8589934592", "500m"]);
}

#[test]
fn an_amount_that_is_neither_is_refused_in_words_that_help() {
    let error = serde_json::from_value::<Quantity>(json!(true)).expect_err("true is no amount");
    assert!(error.to_string().contains("whole number or text such as 500m"), "{error}");
}
