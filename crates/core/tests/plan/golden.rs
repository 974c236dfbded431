//! Every object of the example, as it is sent. A change here changes what users run: look at it twice.
//!
//! `KARST_UPDATE_GOLDEN=1 cargo test -p karst-core golden` writes the files anew.

use std::path::Path;

use crate::support::*;
use karst_core::names::{
    CERTIFICATE_AUTHORITY_ANNOTATION, CERTIFICATE_HASH_ANNOTATION, TRUSTED_AUTHORITIES_ANNOTATION,
};
use karst_core::objects::Object;

fn render(object: &Object) -> String {
    let value = match object {
        Object::ServiceAccount(object) => serde_json::to_value(object),
        Object::Service(object) => serde_json::to_value(object),
        Object::ConfigMap(object) => serde_json::to_value(object),
        Object::Claim(object) => serde_json::to_value(object),
        Object::Budget(object) => serde_json::to_value(object),
        Object::Policy(object) => serde_json::to_value(object),
        Object::PodSet(object) => serde_json::to_value(object),
    };
    let mut value = value.unwrap();
    for pod in value.pointer_mut("/spec/pods").and_then(|pods| pods.as_array_mut()).into_iter().flatten() {
        // No two certificates are the same.
        for annotation in
            [CERTIFICATE_HASH_ANNOTATION, CERTIFICATE_AUTHORITY_ANNOTATION, TRUSTED_AUTHORITIES_ANNOTATION]
        {
            pod["metadata"]["annotations"][annotation] = "...".into();
        }
    }
    let mut text = serde_json::to_string_pretty(&value).unwrap();
    text.push('\n');
    text
}

/// All objects that a world is asked to have, with the facts made durable.
fn objects(yaml: &str) -> Vec<Object> {
    let mut world = world(yaml);
    loop {
        let plan = decide(&world);
        if plan.facts.is_empty() && plan.certificates.is_empty() {
            // What was made beside the facts is to be seen too.
            world.services.clear();
            world.service_accounts.clear();
            world.budgets.clear();
            world.policies.clear();
            return decide(&world).objects;
        }
        carry_out(&mut world, plan);
    }
}

fn check(example: &str, yaml: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plan/golden").join(example);
    let update = std::env::var_os("KARST_UPDATE_GOLDEN").is_some();
    let mut expected = std::collections::BTreeSet::new();
    for object in objects(yaml) {
        let file =
            format!("{}-{}.json", object.kind().to_lowercase(), object.meta().name.as_deref().unwrap());
        let (path, text) = (folder.join(&file), render(&object));
        if update {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let known = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, known, "{} differs from its golden file", object.describe());
        expected.insert(file);
    }
    let found =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(
        found.collect::<std::collections::BTreeSet<_>>(),
        expected,
        "files of objects that are not made"
    );
}

#[test]
fn the_quickstart_is_rendered_as_before() {
    check("quickstart", include_str!("../../../../deploy/examples/quickstart.yaml"));
}

#[test]
fn a_single_node_is_rendered_as_before() {
    check("single-node", include_str!("../../../../deploy/examples/single-node.yaml"));
}

#[test]
fn kafka_3_9_is_rendered_as_before() {
    check("kafka-3.9", include_str!("../../../../deploy/examples/kafka-3.9.yaml"));
}

#[test]
fn templates_are_rendered_as_before() {
    check("templates", include_str!("../../../../deploy/examples/templates.yaml"));
}

#[test]
fn a_cluster_with_metrics_and_levels_is_rendered_as_before() {
    check("monitored", include_str!("../../../../deploy/examples/monitored.yaml"));
}

#[test]
fn a_cluster_with_racks_is_rendered_as_before() {
    check("racks", include_str!("../../../../deploy/examples/racks.yaml"));
}
