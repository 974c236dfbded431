//! The fingerprint of a pod, in parts, so that a restart can say what changed.

use serde_json::Value;

use crate::digest::Digest;
use crate::names::{BROKER_ROLE_LABEL, CONFIGURATION_HASH_ANNOTATION, CONTROLLER_ROLE_LABEL};

/// What a part of the fingerprint is about, in the order of the parts. The last one covers the whole pod.
const PARTS: [&str; 5] = ["image", "settings", "roles", "resources", VOLUMES];
/// The part that is about volumes.
pub(crate) const VOLUMES: &str = "volumes";
/// What changed when no part did.
const REST: &str = "pod template";

/// The fingerprint of a pod that is to be created.
pub(crate) fn of(pod: &Value) -> String {
    let (spec, meta) = (&pod["spec"], &pod["metadata"]);
    let lists = [&spec["initContainers"], &spec["containers"]];
    let containers: Vec<&Value> = lists.into_iter().filter_map(Value::as_array).flatten().collect();
    let of_each = |field: &str| containers.iter().map(|container| &container[field]).collect::<Vec<_>>();
    let (annotations, labels) = (&meta["annotations"], &meta["labels"]);
    let parts = [
        Digest::of_list(&of_each("image")),
        Digest::of_json(&annotations[CONFIGURATION_HASH_ANNOTATION]),
        Digest::of_list(&[&labels[CONTROLLER_ROLE_LABEL], &labels[BROKER_ROLE_LABEL]]),
        Digest::of_list(&of_each("resources")),
        Digest::of_value_and_list(&spec["volumes"], &of_each("volumeMounts")),
        Digest::of_json(pod),
    ];
    parts.iter().map(Digest::short).collect::<Vec<_>>().join("-")
}

/// What is different between two pods, by their fingerprints. Nothing, when they are the same.
pub(crate) fn differences(running: Option<&str>, wanted: Option<&str>) -> Vec<&'static str> {
    if running == wanted {
        return Vec::new();
    }
    let (running, wanted) = (running.unwrap_or_default().split('-'), wanted.unwrap_or_default().split('-'));
    let named = PARTS.iter().zip(running.zip(wanted));
    let named: Vec<_> = named.filter(|(_, (old, new))| old != new).map(|(part, _)| *part).collect();
    if named.is_empty() { vec![REST] } else { named }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    fn revision(change: impl FnOnce(&mut Value)) -> String {
        let mut pod = json!({
            "metadata": {"name": "c-p-0", "annotations": {CONFIGURATION_HASH_ANNOTATION: "a"},
                         "labels": {CONTROLLER_ROLE_LABEL: "true", BROKER_ROLE_LABEL: "false"}},
            "spec": {"containers": [{"name": "kafka", "image": "kafka:1"}], "volumes": []}
        });
        change(&mut pod);
        // With all that Kubernetes' own types add.
        let pod: Pod = serde_json::from_value(pod).unwrap();
        of(&serde_json::to_value(pod).unwrap())
    }

    #[test]
    fn what_changed_is_named() {
        let before = revision(|_| {});
        let changed = |change: fn(&mut Value)| differences(Some(&before), Some(&revision(change))).join(", ");
        assert_eq!(changed(|_| {}), "");
        assert_eq!(changed(|pod| pod["spec"]["containers"][0]["image"] = json!("kafka:2")), "image");
        assert_eq!(
            changed(|pod| pod["metadata"]["annotations"][CONFIGURATION_HASH_ANNOTATION] = json!("b")),
            "settings"
        );
        assert_eq!(changed(|pod| pod["metadata"]["labels"][BROKER_ROLE_LABEL] = json!("true")), "roles");
        assert_eq!(changed(|pod| pod["metadata"]["labels"]["mine"] = json!("x")), "pod template");
    }

    #[test]
    fn a_fingerprint_of_an_older_form_is_different() {
        assert_eq!(differences(Some("3f2a11cc"), Some(&revision(|_| {}))), ["image"]);
        assert!(!differences(None, Some("x")).is_empty());
    }
}
