//! Parts of a pod that users write as they would in a pod of their own, read as what Kubernetes makes of them.
//!
//! Reading is strict in both directions. A field that is not known would be dropped without a word, and a required
//! one that is missing would only show when the API server refuses the pod, which is when its predecessor is gone.

use karst_api::FreeForm;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::problem::Problem;

/// Reads what is written at `field`, if anything is. What does not fit is reported and left out.
pub(super) fn one<T: DeserializeOwned + Serialize>(
    field: &str,
    written: Option<&FreeForm>,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    read(field, written?).map_err(|problem| problems.push(problem)).ok()
}

/// Reads every item of the list that is written at `field`, if there is one.
pub(super) fn list<T: DeserializeOwned + Serialize>(
    field: &str,
    written: Option<&Vec<FreeForm>>,
    problems: &mut Vec<Problem>,
) -> Option<Vec<T>> {
    let read = |(index, item)| one(&format!("{field}[{index}]"), Some(item), problems);
    Some(written?.iter().enumerate().filter_map(read).collect())
}

fn read<T: DeserializeOwned + Serialize>(field: &str, written: &FreeForm) -> Result<T, Problem> {
    let written = Value::Object(written.clone().into_iter().collect());
    let read: T = serde_path_to_error::deserialize(&written).map_err(|error| Problem::FreeForm {
        field: format!("{field}.{}", error.path()),
        why: error.inner().to_string(),
    })?;
    let understood =
        serde_json::to_value(&read).map_err(|error| free_form(field.to_owned(), &error.to_string()))?;
    difference(field, &written, &understood).map_or(Ok(read), Err)
}

fn free_form(field: String, why: &str) -> Problem {
    Problem::FreeForm { field, why: why.to_owned() }
}

/// The first field that is only in what was written, or only in what was understood.
fn difference(field: &str, written: &Value, understood: &Value) -> Option<Problem> {
    match (written, understood) {
        (Value::Object(written), Value::Object(understood)) => {
            let at = |key: &str| format!("{field}.{key}");
            // To Kubernetes null is the same as nothing.
            let mut set = written.iter().filter(|(_, value)| !value.is_null());
            let missing = understood.keys().find(|key| written.get(*key).is_none_or(Value::is_null));
            if let Some(key) = missing {
                return Some(free_form(at(key), "the field is required, and missing"));
            }
            set.find_map(|(key, value)| match understood.get(key) {
                Some(understood) => difference(&at(key), value, understood),
                None => Some(free_form(
                    at(key),
                    "there is no such field (or it is newer than the Kubernetes that Karst was built for)",
                )),
            })
        }
        (Value::Array(written), Value::Array(understood)) => {
            written.iter().zip(understood).enumerate().find_map(|(index, (written, understood))| {
                difference(&format!("{field}[{index}]"), written, understood)
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Affinity, EnvVar, Toleration, TopologySpreadConstraint};
    use serde_json::json;

    fn problem<T: DeserializeOwned + Serialize>(written: Value) -> String {
        let written: FreeForm = serde_json::from_value(written).unwrap();
        let mut problems = Vec::new();
        let read: Option<T> = one("at", Some(&written), &mut problems);
        assert_eq!((read.is_none(), problems.len()), (true, 1));
        problems[0].to_string()
    }

    #[test]
    fn what_fits_is_read_as_it_was_written() {
        let written =
            json!({"key": "dedicated", "operator": "Exists", "tolerationSeconds": 3, "effect": null});
        let form = serde_json::from_value(written).unwrap();
        let mut problems = Vec::new();
        let read: Toleration = one("at", Some(&form), &mut problems).unwrap();
        assert_eq!(
            (read.key.as_deref(), read.toleration_seconds, read.effect),
            (Some("dedicated"), Some(3), None)
        );
        assert_eq!(problems, []);
    }

    #[test]
    fn a_wrong_type_is_reported_with_the_whole_path() {
        let term = json!({"weight": "heavy", "podAffinityTerm": {"topologyKey": "zone"}});
        let written = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}});
        let message = problem::<Affinity>(written);
        let path = "at.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight";
        assert!(message.starts_with(path) && message.contains("heavy"), "{message}");
    }

    #[test]
    fn a_misspelt_field_is_not_dropped_in_silence() {
        let written = json!({"name": "A", "valueFrom": {"fieldRef": {"fieldpath": "x", "fieldPath": "y"}}});
        let message = problem::<EnvVar>(written);
        assert!(message.starts_with("at.valueFrom.fieldRef.fieldpath"), "{message}");
        assert!(message.contains("no such field"), "{message}");
    }

    #[test]
    fn a_missing_field_is_found_before_the_api_server_does() {
        let message = problem::<TopologySpreadConstraint>(json!({"maxSkew": 1, "topologyKey": "zone"}));
        assert!(message.starts_with("at.whenUnsatisfiable") && message.contains("required"), "{message}");
    }
}
