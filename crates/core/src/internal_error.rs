//! What users are told of a cluster whose pass ended in an internal error.
//!
//! It is told without deciding anything: whatever decides may be what fails.

use k8s_openapi::jiff::Timestamp;
use karst_api::{Condition, Kafka};
use serde_json::{Value, json};

use crate::reason::Reason;
use crate::status;

/// A merge patch of the status that says so. Nothing, if it says so already.
///
/// What else was said stays: it was true when it was said, and nobody can tell by now.
pub fn status(kafka: &Kafka, what: &str, now: Timestamp) -> Option<Value> {
    let message = format!(
        "Karst stopped its work on this cluster: {what}. This is a fault of Karst, not of Kafka, which goes on as it is; other \
         clusters are not affected. Karst tries again, less and less often, and at once when a resource of the cluster changes. The \
         operator's log says more; please report it"
    );
    let old = kafka.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = status::not_ready(Reason::InternalError, &message);
    conditions.extend(old.into_iter().flatten().filter(|condition| is_beside(condition)).cloned());
    let conditions = status::since(conditions, old, now);
    (old != Some(&conditions)).then(|| json!({ "status": { "conditions": conditions } }))
}

fn is_beside(condition: &Condition) -> bool {
    !matches!(condition.type_.as_deref(), Some("Ready" | "NotReady" | "ReconciliationPaused"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kafka(conditions: &Value) -> Kafka {
        let kafka = json!({
            "apiVersion": "kafka.strimzi.io/v1", "kind": "Kafka", "metadata": {"name": "c"},
            "spec": {"kafka": {"listeners": []}}, "status": {"conditions": conditions, "clusterId": "x"}
        });
        serde_json::from_value(kafka).unwrap()
    }

    #[test]
    fn an_internal_error_is_told_once_and_leaves_warnings_and_facts_as_they_are() {
        let warning = json!({"type": "Warning", "status": "True", "reason": "X", "message": "x", "lastTransitionTime": "t"});
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "t"});
        let now = Timestamp::UNIX_EPOCH;
        let patch = status(&kafka(&json!([ready, warning])), "an internal error at x.rs:1", now).unwrap();
        let conditions = &patch["status"]["conditions"];
        let types: Vec<_> = conditions.as_array().unwrap().iter().map(|one| &one["type"]).collect();
        assert_eq!(types, ["Ready", "NotReady", "Warning"]);
        assert_eq!(conditions[0]["status"], "False");
        assert_eq!(conditions[1]["reason"], "InternalError");
        assert!(conditions[1]["message"].as_str().unwrap().contains("an internal error at x.rs:1"));
        assert_eq!(conditions[2], warning);
        assert_eq!(patch["status"].as_object().unwrap().len(), 1, "facts are not touched: {patch}");
        assert_eq!(status(&kafka(conditions), "an internal error at x.rs:1", now), None);
    }
}
