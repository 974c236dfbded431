//! What is installed is consistent: chart, plain YAML, definitions and examples say the same.
//!
//! Helm itself is not run here, because building it would take longer than all other tests together. What could hurt
//! most when it drifts, the rights, stands in the chart as plain YAML and is compared as such; `deploy/helm/render
//! --check` compares everything where Helm is at hand.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking, as tests do")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use karst_api::rights::{FOR_RACKS, IN_NAMESPACES, IN_OWN_NAMESPACE, Right};
use karst_api::{Kafka, KafkaNodePool};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(deploy().join(path)).unwrap_or_else(|error| panic!("deploy/{path}: {error}"))
}

fn documents(path: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&text(path))
        .unwrap_or_else(|error| panic!("deploy/{path} is not YAML: {error}"))
}

fn files(directory: &str) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(deploy().join(directory))
        .unwrap_or_else(|error| panic!("deploy/{directory}: {error}"));
    let names = entries
        .map(|entry| entry.expect("the directory can be read").file_name().to_string_lossy().into_owned());
    names.map(|name| (name.clone(), text(&format!("{directory}/{name}")))).collect()
}

/// The rules of the chart: the text between the lines that begin and end their definition.
fn rules_of_the_chart() -> Value {
    let text = text("helm/karst/templates/_rules.tpl");
    let (_, rules) =
        text.split_once("{{- define \"karst.rules\" -}}\n").expect("the chart defines karst.rules");
    let (rules, _) = rules.split_once("{{- end }}").expect("the definition ends");
    serde_saphyr::from_str(rules).expect("the rules are plain YAML")
}

/// The rights for racks, which are given only when asked for: the text between the switch and its end, without placeholders.
fn rules_for_racks() -> Value {
    let text = text("helm/karst/templates/rbac.yaml");
    let (_, part) =
        text.split_once("{{- if .Values.racks }}\n---\n").expect("the chart has a switch for racks");
    let (role, _) = part.split_once("\n---\n").expect("the role comes first");
    let plain: Vec<&str> = role.lines().filter(|line| !line.contains("{{")).collect();
    let role: Value = serde_saphyr::from_str(&plain.join("\n")).expect("the role is YAML");
    role["rules"].clone()
}

/// The rights as they stand in a role.
fn rules(rights: &[Right]) -> Value {
    let rule = |right: &Right| {
        let mut rule =
            json!({"apiGroups": [right.group], "resources": right.resources, "verbs": right.verbs});
        if let Some(name) = right.name {
            rule["resourceNames"] = json!([name]);
        }
        rule
    };
    rights.iter().map(rule).collect()
}

/// The rights as they stand in the docs.
fn table(rights: &[(&str, &[Right])]) -> String {
    let mut table = "| where | objects | verbs | what for |\n|---|---|---|---|\n".to_owned();
    for (place, rights) in rights {
        for right in *rights {
            let name = right.name.map(|name| format!(" called `{name}`")).unwrap_or_default();
            let objects = right.resources.iter().map(|one| format!("`{one}`")).collect::<Vec<_>>().join(", ");
            let (verbs, why) = (right.verbs.join(", "), right.why);
            table.push_str(&format!("| {place} | {objects}{name} | {verbs} | {why} |\n"));
        }
    }
    table
}

#[test]
fn chart_and_plain_yaml_give_the_rights_that_the_operator_needs_and_no_others() {
    assert_eq!(rules_of_the_chart(), rules(IN_NAMESPACES));
    assert_eq!(rules_of("ClusterRole", "karst-operator"), rules(IN_NAMESPACES));
    assert_eq!(rules_of("Role", "karst-operator-leader"), rules(IN_OWN_NAMESPACE));
    assert_eq!(rules_for_racks(), rules(FOR_RACKS));
}

#[test]
fn the_docs_name_the_rights_that_the_operator_needs_and_no_others() {
    let text = text("../docs/install.md");
    let (_, after) =
        text.split_once("<!-- rights: begin -->\n").expect("docs/install.md has a table of rights");
    let (found, _) = after.split_once("<!-- rights: end -->").expect("the table ends");
    let expected = table(&[
        ("namespaces looked after", IN_NAMESPACES),
        ("its own namespace", IN_OWN_NAMESPACE),
        ("everywhere, with `racks: true`", FOR_RACKS),
    ]);
    assert_eq!(found, expected, "docs/install.md is stale; put this between its marks:\n{expected}");
}

/// It was denied in three places for as long as it was there.
#[test]
fn nobody_denies_the_right_to_read_secrets() {
    let docs = files("../docs").into_iter().filter(|(name, _)| name.ends_with(".md"));
    let chart = files("helm/karst/templates");
    let readme = ("README.md".to_owned(), text("../README.md"));
    for (name, text) in docs.chain(chart).chain([readme]) {
        let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for denial in ["no Secrets", "no right to read Secrets", "cannot read Secrets"] {
            assert!(!said.contains(denial), "{name} says: {denial}");
        }
    }
}

#[test]
fn machines_can_be_read_only_where_racks_are_used_and_then_nothing_more() {
    let rules = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]);
    assert_eq!(rules_for_racks(), rules);
    assert!(!rules_of("ClusterRole", "karst-operator").to_string().contains("\"nodes\""));
}

fn rules_of(kind: &str, name: &str) -> Value {
    let objects = documents("install/020-rbac.yaml");
    let object =
        objects.into_iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    object.unwrap_or_else(|| panic!("020-rbac.yaml has no {kind} {name}"))["rules"].take()
}

#[test]
fn no_right_is_a_wildcard() {
    for rules in [rules_of("ClusterRole", "karst-operator"), rules_of("Role", "karst-operator-leader")] {
        let rules = rules.as_array().cloned().expect("rules are a list");
        assert!(!rules.is_empty());
        for rule in rules {
            for words in ["apiGroups", "resources", "verbs"].map(|field| rule[field].as_array().cloned()) {
                let words = words.unwrap_or_else(|| panic!("a rule is incomplete: {rule}"));
                let forbidden = |word: &Value| word.as_str().is_none_or(|word| word.contains('*'));
                assert!(!words.iter().any(forbidden), "{rule}");
            }
        }
    }
}

#[test]
fn the_chart_brings_the_definitions_of_this_version() {
    assert_eq!(files("helm/karst/crds"), files("crds"));
}

#[test]
fn chart_and_plain_yaml_install_the_operator_of_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = &documents("helm/karst/Chart.yaml")[0];
    assert_eq!((&chart["version"], &chart["appVersion"]), (&json!(version), &json!(version)));
    let deployment = &documents("install/030-operator.yaml")[0];
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let image = json!(format!("docker.io/karst/operator:{version}"));
    assert_eq!(container["image"], image);
    let launcher =
        container["env"].as_array().and_then(|all| all.iter().find(|one| one["name"] == "KARST_NODE_IMAGE"));
    assert_eq!(launcher.map(|one| &one["value"]), Some(&image), "operator and launcher come from one image");
}

fn read_and_write<T: DeserializeOwned + Serialize>(name: &str, document: &Value) -> Value {
    let object: T = serde_json::from_value(document.clone())
        .unwrap_or_else(|error| panic!("{name} was refused: {error}"));
    serde_json::to_value(&object).expect("what was read can be written")
}

#[test]
fn the_types_know_everything_in_the_examples() {
    let examples = files("examples");
    assert!(examples.contains_key("quickstart.yaml"), "the quickstart is what `cargo xtask up` applies");
    for name in examples.keys() {
        for document in documents(&format!("examples/{name}")) {
            let written = match document["kind"].as_str() {
                Some("Kafka") => read_and_write::<Kafka>(name, &document),
                Some("KafkaNodePool") => read_and_write::<KafkaNodePool>(name, &document),
                // What a resource refers to.
                Some("ConfigMap") => continue,
                kind => panic!("{name} has a document of kind {kind:?}"),
            };
            assert_eq!(written, document, "{name}: a field was lost");
        }
    }
}
