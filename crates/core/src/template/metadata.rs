//! Labels and annotations of users, and those that are not theirs to set.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karst_api as api;
use serde::Serialize;

use crate::digest::Digest;
use crate::names::{ADDITIONS_ANNOTATION, MANAGED_BY_LABEL};
use crate::problem::Problem;

/// The longest part of a label after its prefix, and the longest value.
const LONGEST: usize = 63;
/// The longest prefix of a label.
const LONGEST_PREFIX: usize = 253;

/// Labels and annotations to add to an object.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Metadata {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl Metadata {
    /// Reads the `metadata` of the template at `field`. What cannot be used is reported and left out.
    pub(super) fn read(
        field: &str,
        written: Option<&api::MetadataTemplate>,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let Some(written) = written else { return Self::default() };
        let fields = ["labels", "annotations"].map(|part| format!("{field}.metadata.{part}"));
        Self::checked(&fields, &written.labels, &written.annotations, problems)
    }

    /// Keeps of labels and annotations, which are written at these two fields, what can be used. The rest is reported.
    pub(crate) fn checked(
        fields: &[String; 2],
        labels: &Option<BTreeMap<String, String>>,
        annotations: &Option<BTreeMap<String, String>>,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut usable = |field: &str, entries: &Option<BTreeMap<String, String>>, check: Check| {
            let mut usable = BTreeMap::new();
            for (key, value) in entries.iter().flatten() {
                match check(format!("{field}[{key}]"), key, value) {
                    Some(problem) => problems.push(problem),
                    None => {
                        usable.insert(key.clone(), value.clone());
                    }
                }
            }
            usable
        };
        Self {
            labels: usable(&fields[0], labels, label_problem),
            annotations: usable(&fields[1], annotations, annotation_problem),
        }
    }

    /// The same, with labels that the object inherits. Those of the template win.
    pub(super) fn inheriting(&self, labels: &BTreeMap<String, String>) -> Self {
        let mut all = labels.clone();
        all.extend(self.labels.clone());
        Self { labels: all, annotations: self.annotations.clone() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }

    /// Adds them, over what is there: what Karst needs cannot be among them.
    pub(crate) fn add_to(&self, meta: &mut ObjectMeta) {
        if !self.labels.is_empty() {
            meta.labels.get_or_insert_default().extend(self.labels.clone());
        }
        if !self.annotations.is_empty() {
            meta.annotations.get_or_insert_default().extend(self.annotations.clone());
        }
    }

    /// Adds them, and leaves a mark by which it shows later that something was taken away again.
    pub(crate) fn add_marked_to(&self, meta: &mut ObjectMeta) {
        self.add_to(meta);
        if !self.is_empty() {
            mark(meta, self);
        }
    }
}

/// Writes down on an object what was added to it. An object may have labels and annotations from anybody, so
/// without the mark nothing would tell one that a user took out of a template from one that somebody else set.
pub(crate) fn mark(meta: &mut ObjectMeta, additions: &impl Serialize) {
    if let Ok(digest) = Digest::of(additions) {
        meta.annotations.get_or_insert_default().insert(ADDITIONS_ANNOTATION.to_owned(), digest.short());
    }
}

/// The labels of a resource that the objects made for it inherit, as Strimzi's default pattern has it: not those
/// of operators, and not those by which deployment tools recognise what they made themselves.
pub(super) fn inheritable(labels: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let is_of_tool = |key: &str| {
        let recommended = key.strip_prefix("app.kubernetes.io/");
        recommended.is_some_and(|name| !name.starts_with("part-of"))
            || key.starts_with("kustomize.toolkit.fluxcd.io")
    };
    labels
        .into_iter()
        .flatten()
        .filter(|(key, _)| !is_reserved(key) && !is_of_tool(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Does Karst find its objects by it, or keep its own notes in it?
fn is_reserved(key: &str) -> bool {
    let own = ["app.kubernetes.io/name", "app.kubernetes.io/instance", MANAGED_BY_LABEL];
    key.starts_with("strimzi.io/") || key.starts_with("karst.io/") || own.contains(&key)
}

type Check = fn(String, &str, &str) -> Option<Problem>;

fn annotation_problem(field: String, key: &str, _: &str) -> Option<Problem> {
    if is_reserved(key) {
        return Some(Problem::ReservedKey { field });
    }
    (!is_key(key)).then(|| Problem::Template {
        field,
        found: "is not a key that Kubernetes accepts".to_owned(),
        advice: format!(
            "use up to {LONGEST} letters, digits, '-', '_' and '.', if need be after a domain and '/'"
        ),
    })
}

fn label_problem(field: String, key: &str, value: &str) -> Option<Problem> {
    if is_label_value(value) {
        return annotation_problem(field, key, value);
    }
    Some(Problem::Template {
        field,
        found: format!("is '{value}', which no label can be"),
        advice: format!(
            "use up to {LONGEST} letters, digits, '-', '_' and '.', with a letter or a digit at both ends"
        ),
    })
}

fn is_key(key: &str) -> bool {
    let (prefix, name) = key.rsplit_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_domain =
        |prefix: &str| prefix.len() <= LONGEST_PREFIX && prefix.split('.').all(crate::names::is_host_label);
    prefix.is_none_or(is_domain) && !name.is_empty() && is_label_value(name)
}

fn is_label_value(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let end = |c: char| c.is_ascii_alphanumeric();
    text.is_empty()
        || (text.len() <= LONGEST && text.chars().all(inner) && text.starts_with(end) && text.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn labels_of_operators_and_tools_are_not_inherited() {
        let labels = map(&[
            ("app.kubernetes.io/instance", "argo"),
            ("app.kubernetes.io/part-of", "shop"),
            ("app.kubernetes.io/version", "7"),
            ("karst.io/x", "1"),
            ("kustomize.toolkit.fluxcd.io/name", "flux"),
            ("strimzi.io/cluster", "my-cluster"),
            ("team", "payments"),
        ]);
        let expected = map(&[("app.kubernetes.io/part-of", "shop"), ("team", "payments")]);
        assert_eq!(inheritable(Some(&labels)), expected);
    }

    #[test]
    fn a_label_of_the_template_wins_over_an_inherited_one() {
        let template = Metadata { labels: map(&[("team", "a")]), annotations: map(&[("note", "some text")]) };
        let all = template.inheriting(&map(&[("team", "b"), ("stage", "test")]));
        assert_eq!(all.labels, map(&[("team", "a"), ("stage", "test")]));
        assert_eq!(all.annotations, template.annotations);
    }

    #[test]
    fn keys_and_values_are_those_that_kubernetes_accepts() {
        for key in ["team", "example.com/team", "a.b-c.io/T_e.a-m", "7"] {
            assert!(is_key(key), "{key}");
        }
        for key in ["", "/team", "example.com/", "Example.com/team", "a/b/c", "-team", "te am", "ex..com/a"] {
            assert!(!is_key(key), "{key}");
        }
        assert!(is_label_value("") && is_label_value("a_B.c-9") && is_label_value(&"a".repeat(63)));
        for value in ["two words", "-a", "a.", "ü", &"a".repeat(64)] {
            assert!(!is_label_value(value), "{value}");
        }
    }

    #[test]
    fn all_that_cannot_be_used_is_reported_with_its_place() {
        let written = api::MetadataTemplate {
            labels: Some(map(&[("strimzi.io/kind", "x"), ("team", "two words"), ("good", "1")])),
            annotations: Some(map(&[
                ("app.kubernetes.io/managed-by", "me"),
                ("no key", ""),
                ("free", "a b"),
            ])),
        };
        let mut problems = Vec::new();
        let read = Metadata::read("spec.template.pod", Some(&written), &mut problems);
        assert_eq!((read.labels, read.annotations), (map(&[("good", "1")]), map(&[("free", "a b")])));
        let messages: Vec<_> = problems.iter().map(ToString::to_string).collect();
        for (message, field) in messages.iter().zip([
            "spec.template.pod.metadata.labels[strimzi.io/kind] ",
            "spec.template.pod.metadata.labels[team] ",
            "spec.template.pod.metadata.annotations[app.kubernetes.io/managed-by] ",
            "spec.template.pod.metadata.annotations[no key] ",
        ]) {
            assert!(message.starts_with(field), "{message}");
        }
        assert_eq!(messages.len(), 4);
    }
}
