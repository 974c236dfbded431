//! What the API server keeps of what is written to it.
//!
//! It drops empty lists and maps, fills in fields that nobody set, and lets others add fields. None of that makes an object
//! another one than was asked for, so what was written and what is seen are compared by what is left without it.

use k8s_openapi::api::networking::v1::NetworkPolicySpec;
use k8s_openapi::api::policy::v1::PodDisruptionBudgetSpec;
use serde_json::Value;

use crate::digest::Digest;
use crate::names::{ADDITIONS_ANNOTATION, RESTORED_POD_ANNOTATION};

/// The only fields of type map in the specs that are compared. An empty object elsewhere means something: all namespaces, say.
const MAPS: &[&str] = &["matchLabels"];
/// Metadata that says which object it is, or which of its states, and not what was asked for.
const IDENTITY: &[&str] = &["uid", "resourceVersion", "managedFields"];

/// Fingerprint of what Karst sets in a network policy: to which pods it applies, and who may connect to them. That somebody
/// restricts outgoing connections as well changes nothing of that.
pub fn policy_digest(spec: Option<&NetworkPolicySpec>) -> Result<Digest, serde_json::Error> {
    let is_inbound =
        |spec: &NetworkPolicySpec| spec.policy_types.iter().flatten().any(|one| one == "Ingress");
    let ours = spec.map(|spec| (&spec.pod_selector, &spec.ingress, is_inbound(spec)));
    Ok(Digest::of_json(&without_nothing(serde_json::to_value(ours)?)))
}

/// Fingerprint of what Karst sets in a disruption budget: which pods, and how many of them must stay.
pub fn budget_digest(spec: Option<&PodDisruptionBudgetSpec>) -> Result<Digest, serde_json::Error> {
    let ours = spec.map(|spec| (&spec.selector, &spec.min_available));
    Ok(Digest::of_json(&without_nothing(serde_json::to_value(ours)?)))
}

/// Leaves fields out that the API server does not keep, because there is nothing in them.
fn without_nothing(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, without_nothing(value)));
            Value::Object(fields.filter(|(name, value)| !is_dropped(name, value)).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nothing).collect()),
        scalar => scalar,
    }
}

fn is_dropped(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() && MAPS.contains(&name),
        _ => false,
    }
}

/// The path of the first field that Karst sets, and that is not in an object as Karst set it. What others added is not looked at.
pub fn first_difference(written: &Value, live: &Value) -> Option<String> {
    let annotation = |object: &Value, mark: &str| object["metadata"]["annotations"].get(mark).cloned();
    let added = [ADDITIONS_ANNOTATION, RESTORED_POD_ANNOTATION];
    let added = added.into_iter().find(|mark| annotation(written, mark) != annotation(live, mark));
    difference("", written, live).or(added.map(|mark| format!("metadata.annotations[{mark}]")))
}

fn difference(path: &str, written: &Value, live: &Value) -> Option<String> {
    match (written, live) {
        (Value::Object(written), Value::Object(live)) => written.iter().find_map(|(name, written)| {
            if path == "metadata" && IDENTITY.contains(&name.as_str()) {
                return None;
            }
            difference(&join(path, name), written, live.get(name).unwrap_or(&Value::Null))
        }),
        // Others may own it too.
        (Value::Array(written), Value::Array(live)) if path == "metadata.ownerReferences" => {
            let is_there = |owner: &Value| live.iter().any(|one| one["uid"] == owner["uid"]);
            (!written.iter().all(is_there)).then(|| path.to_owned())
        }
        (Value::Array(written), Value::Array(live)) if written.len() == live.len() => {
            let mut pairs = written.iter().zip(live).enumerate();
            pairs.find_map(|(at, (written, live))| difference(&format!("{path}[{at}]"), written, live))
        }
        (written, Value::Null) if is_nothing(written) => None,
        (written, live) => (written != live).then(|| path.to_owned()),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn join(path: &str, name: &str) -> String {
    match (path.is_empty(), name.contains(['.', '/'])) {
        (_, true) => format!("{path}[{name}]"),
        (true, false) => name.to_owned(),
        (false, false) => format!("{path}.{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policy(spec: Value) -> Digest {
        policy_digest(Some(&serde_json::from_value(spec).unwrap())).unwrap()
    }

    fn budget(spec: Value) -> Digest {
        budget_digest(Some(&serde_json::from_value(spec).unwrap())).unwrap()
    }

    fn from(peers: &Value) -> Digest {
        policy(json!({"podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": ["Ingress"],
                      "ingress": [{"from": peers, "ports": [{"port": 9092, "protocol": "TCP"}]}]}))
    }

    #[test]
    fn what_is_empty_is_not_kept_and_is_not_missed() {
        assert_eq!(from(&json!([])), from(&Value::Null));
        let block = |more: Value| {
            let mut block = json!({"cidr": "10.0.0.0/8"});
            block.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            from(&json!([{ "ipBlock": block }]))
        };
        assert_eq!(block(json!({"except": []})), block(json!({})));
        let pods = |selector: Value| from(&json!([{ "podSelector": selector }]));
        assert_eq!(pods(json!({"matchLabels": {}, "matchExpressions": []})), pods(json!({})));
    }

    #[test]
    fn a_selector_of_everything_is_not_nothing() {
        let everybody = from(&json!([{"namespaceSelector": {}}]));
        assert_ne!(everybody, from(&json!([{}])));
        assert_ne!(everybody, from(&json!([])));
        assert_ne!(from(&json!([{"podSelector": {}}])), everybody);
    }

    #[test]
    fn what_others_add_is_not_looked_at_and_what_they_change_is() {
        let ours = json!({"minAvailable": 2, "selector": {"matchLabels": {"a": "b"}}});
        let mut seen = ours.clone();
        seen["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
        assert_eq!(budget(ours.clone()), budget(seen.clone()));
        seen["minAvailable"] = json!(1);
        assert_ne!(budget(ours), budget(seen));

        let ours =
            json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"ports": [{"port": 1}]}]});
        let mut seen = ours.clone();
        seen["policyTypes"] = json!(["Egress", "Ingress"]);
        seen["egress"] = json!([{}]);
        assert_eq!(policy(ours.clone()), policy(seen.clone()));
        seen["policyTypes"] = json!(["Egress"]);
        assert_ne!(policy(ours.clone()), policy(seen.clone()), "it protects nobody any more");
        seen["policyTypes"] = json!(["Ingress"]);
        seen["ingress"] = json!([{}]);
        assert_ne!(policy(ours), policy(seen));
    }

    #[test]
    fn the_field_that_differs_is_named() {
        let written = json!({"metadata": {"name": "c", "resourceVersion": "1", "labels": {"a": "b"}, "annotations": {"strimzi.io/kind": "x"},
                                          "ownerReferences": [{"uid": "u"}]},
                             "spec": {"selector": {}, "ports": [{"name": "one", "port": 1}], "externalIPs": []}});
        let mut live = written.clone();
        live["metadata"]["resourceVersion"] = json!("7");
        live["metadata"]["labels"]["more"] = json!("labels");
        live["metadata"]["ownerReferences"] = json!([{"uid": "other"}, {"uid": "u", "controller": false}]);
        live["spec"] =
            json!({"ports": [{"name": "one", "port": 1, "protocol": "TCP"}], "clusterIP": "10.0.0.1"});
        assert_eq!(first_difference(&written, &live), None);
        let differs = |path: &str, value: Value| {
            let mut live = live.clone();
            *live.pointer_mut(path).unwrap() = value;
            first_difference(&written, &live).unwrap_or_default()
        };
        assert_eq!(differs("/spec/ports/0/port", json!(2)), "spec.ports[0].port");
        assert_eq!(differs("/spec/ports", json!([])), "spec.ports");
        assert_eq!(differs("/metadata/annotations", json!({})), "metadata.annotations[strimzi.io/kind]");
        assert_eq!(differs("/metadata/ownerReferences", json!([])), "metadata.ownerReferences");
        let marked = json!({"strimzi.io/kind": "x", ADDITIONS_ANNOTATION: "y"});
        let mark = format!("metadata.annotations[{ADDITIONS_ANNOTATION}]");
        assert_eq!(differs("/metadata/annotations", marked), mark);
        assert_eq!(first_difference(&written, &Value::Null), Some(String::new()));
    }
}
