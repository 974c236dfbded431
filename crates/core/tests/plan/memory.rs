//! What nodes are made of is remembered from pass to pass. That must show in nothing but the time it takes.
//!
//! Every plan of the other tests is compared with the one of a thread that remembers nothing, too: see [`decide`].

use std::sync::Arc;

use crate::support::*;
use karst_core::names::{CA_CERT_GENERATION_ANNOTATION, trust_secret};
use karst_core::world::World;
use serde_json::json;

type Change = fn(&mut World);

/// What objects of nodes depend on, each changed in its own way.
const CHANGES: &[(&str, Change)] = &[
    ("a setting", |world| {
        edit_kafka(world, |kafka| {
            let config = kafka.spec.kafka.config.get_or_insert_default();
            config.insert("log.retention.hours".into(), json!(5));
        });
    }),
    ("a label of the resource", |world| {
        edit_kafka(world, |kafka| {
            kafka.metadata.labels.get_or_insert_default().insert("team".into(), "a".into());
        });
    }),
    ("the resource itself", |world| edit_kafka(world, |kafka| kafka.metadata.uid = Some("another".into()))),
    ("the image of the launcher", |world| Arc::make_mut(&mut world.settings).node_image = "another".into()),
    ("a ConfigMap that is gone", |world| drop(world.config_maps.pop_first())),
    ("a ConfigMap that somebody changed", |world| {
        let map = world.config_maps.values_mut().next().expect("a ConfigMap");
        Arc::make_mut(map).digest = None;
    }),
    ("a claim that is gone", |world| drop(world.claims.pop_first())),
    ("a claim without its labels", |world| {
        let claim = world.claims.values_mut().next().expect("a claim");
        Arc::make_mut(claim).meta.labels.clear();
    }),
    ("a pod set that somebody changed", |world| {
        let set = world.pod_sets.values_mut().next().expect("a pod set");
        Arc::make_mut(set).digest = None;
    }),
    ("a pod set without its labels", |world| {
        let set = world.pod_sets.values_mut().next().expect("a pod set");
        Arc::make_mut(set).meta.labels.remove("strimzi.io/kind");
    }),
    ("what nodes trust", |world| {
        let secret = world.secrets.get_mut(&trust_secret("my-cluster")).expect("a Secret");
        let annotations = &mut Arc::make_mut(secret).meta.annotations;
        annotations.insert(CA_CERT_GENERATION_ANNOTATION.into(), "7".into());
    }),
];

#[test]
fn every_change_is_seen_and_so_is_its_end() {
    let before = converged();
    for (what, change) in CHANGES {
        assert!(decide(&before).objects.is_empty(), "before {what}");
        let mut after = before.clone();
        change(&mut after);
        assert!(!decide(&after).objects.is_empty(), "{what}");
        assert!(decide(&before).objects.is_empty(), "after {what}");
    }
}
