//! What nodes tell about themselves in numbers: Kafka's own, over HTTP, by an agent in its JVM.
//!
//! The agent is the JMX exporter of the Prometheus project. It comes with the launcher, and looks at its configuration again
//! whenever it is asked for numbers, so only turning it on or off needs a restart. A configuration that it cannot read would
//! keep Kafka from starting: what can be checked is checked before it gets there.

use std::sync::Arc;

use karst_api as api;
use serde_json::{Map, Value};

mod regex;

use crate::references;
use crate::world::World;

/// Where the numbers are served.
pub(crate) const PORT: u16 = 9404;
/// What the port is called in pods.
pub(crate) const PORT_NAME: &str = "tcp-prometheus";
/// The key of a node's ConfigMap with the exporter's configuration.
pub(crate) const FILE: &str = "metrics-config.yml";
/// What the init container calls the agent.
pub(crate) const AGENT: &str = "/karst/jmx_prometheus_javaagent.jar";

const FIELD: &str = "spec.kafka.metricsConfig";
/// Everything as it is.
const NO_RULES: &str = "{}\n";
const SWITCHES: [&str; 3] =
    ["lowercaseOutputName", "lowercaseOutputLabelNames", "autoExcludeObjectNameAttributes"];
const LISTS: [&str; 5] =
    ["rules", "includeObjectNames", "excludeObjectNames", "whitelistObjectNames", "blacklistObjectNames"];
/// What the exporter finds elsewhere when it runs on its own.
const ELSEWHERE: [&str; 3] = ["hostPort", "jmxUrl", "ssl"];

/// Is this what Karst does not have?
pub(crate) fn is_unsupported(spec: &api::KafkaClusterSpec) -> bool {
    spec.metrics_config
        .as_ref()
        .is_some_and(|metrics| metrics.type_ != api::MetricsType::JmxPrometheusExporter)
}

/// The exporter's configuration, or what is wrong with it. `None` when no metrics are asked for.
pub(crate) fn wanted(world: &World) -> Option<Result<Arc<str>, String>> {
    let spec = &world.kafka.spec.kafka;
    let metrics = spec.metrics_config.as_ref().filter(|_| !is_unsupported(spec))?;
    let found = metrics.value_from.as_ref().and_then(|from| from.config_map_key_ref.as_ref());
    let part = |part: Option<&String>| part.cloned().unwrap_or_default();
    let (map, key) =
        (part(found.and_then(|found| found.name.as_ref())), part(found.and_then(|found| found.key.as_ref())));
    Some(match references::text(world, FIELD, metrics.value_from.as_ref()) {
        Ok(Some(text)) => check(text, &format!("{FIELD}: key '{key}' of ConfigMap '{map}'")),
        Ok(None) => Ok(NO_RULES.into()),
        Err(why) => Err(why),
    })
}

/// What the JVM is told.
pub(crate) fn argument() -> String {
    format!("-javaagent:{AGENT}={PORT}:/opt/kafka/custom-config/{FILE}")
}

/// `place` is where the text is from, for people.
fn check(text: Arc<str>, place: &str) -> Result<Arc<str>, String> {
    let problem = |what: String| format!("{place} {what}");
    if text.trim().is_empty() {
        return Ok(NO_RULES.into());
    }
    let config: Value = serde_saphyr::from_str(&text)
        .map_err(|error| problem(format!("is not YAML: {}", first_line(&error.to_string()))))?;
    match config {
        Value::Null => Ok(NO_RULES.into()),
        Value::Object(config) => match config.iter().find_map(|(key, value)| wrong(key, value)) {
            Some(what) => Err(problem(what)),
            None => Ok(text),
        },
        _ => Err(problem(
            "is not a configuration of the JMX exporter; it must be a map, with 'rules' and so on".into(),
        )),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn wrong(key: &str, value: &Value) -> Option<String> {
    if ELSEWHERE.contains(&key) {
        return Some(format!("sets '{key}', which is for an exporter that runs on its own; remove it"));
    }
    if SWITCHES.contains(&key) && !value.is_boolean() {
        return Some(format!("has '{key}: {value}'; it must be true or false"));
    }
    if LISTS.contains(&key) && !value.is_array() && !value.is_null() {
        return Some(format!("has '{key}', which must be a list"));
    }
    if key != "rules" {
        return None;
    }
    let rules = value.as_array().into_iter().flatten().enumerate();
    rules
        .into_iter()
        .find_map(|(index, rule)| Some(format!("has rules[{index}], which {}", wrong_rule(rule)?)))
}

fn wrong_rule(rule: &Value) -> Option<String> {
    let Some(rule) = rule.as_object() else {
        return Some("must be a map, with 'pattern', 'name' and so on".to_owned());
    };
    let pattern = rule.get("pattern").and_then(Value::as_str);
    wrong_shape(rule).map(str::to_owned).or_else(|| {
        let pattern = pattern?;
        let why = regex::problem(pattern);
        why.map(|why| format!("has the pattern '{pattern}', which is no regular expression: {why}"))
            .or_else(|| missing_group(rule, pattern))
    })
}

/// Names and labels can take what a group of the pattern matched. With one that is not there, all numbers are missing.
fn missing_group(rule: &Map<String, Value>, pattern: &str) -> Option<String> {
    let groups = regex::groups(pattern);
    let labels = rule.get("labels").and_then(Value::as_object).into_iter().flatten();
    let labels = labels.flat_map(|(name, value)| [Some(name.as_str()), value.as_str()]);
    let fields = ["name", "value", "help"].into_iter().map(|field| rule.get(field).and_then(Value::as_str));
    let texts = fields.chain(labels).flatten();
    let missing =
        |text: &str| Some((text.to_owned(), regex::groups_used(text).find(|group| *group > groups)?));
    let (text, group) = texts.into_iter().find_map(missing)?;
    Some(format!(
        "uses ${group} in '{text}', and its pattern '{pattern}' has {groups} groups; add the group, or correct the number"
    ))
}

fn wrong_shape(rule: &Map<String, Value>) -> Option<&'static str> {
    let has = |key: &str| rule.get(key).is_some_and(|value| !value.is_null());
    let is_text = |key: &str| rule.get(key).is_none_or(|value| value.is_string() || value.is_null());
    if !is_text("pattern") || !is_text("name") || !is_text("help") {
        return Some("has a 'pattern', 'name' or 'help' that is not a text; put it in quotation marks");
    }
    if has("name") && !has("pattern") {
        return Some("has a 'name' and no 'pattern'; add the pattern");
    }
    if (has("labels") || has("help")) && !has("name") {
        return Some("has 'labels' or 'help' and no 'name'; add the name");
    }
    let is_map = rule.get("labels").is_none_or(|labels| labels.is_object() || labels.is_null());
    (!is_map).then_some("has 'labels' that are not a map")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: &str = "spec.kafka.metricsConfig: key 'rules.yml' of ConfigMap 'metrics'";

    #[test]
    fn a_configuration_of_the_exporter_is_taken_as_it_is() {
        let text = "lowercaseOutputName: true\nrules:\n- pattern: kafka.server<type=(.+)><>Value\n  name: kafka_server_$1\n  labels:\n    a: \"$1\"\n- pattern: .*\n";
        assert_eq!(check(text.into(), PLACE), Ok(text.into()));
        assert_eq!(check("".into(), PLACE), Ok("{}\n".into()));
        assert_eq!(check("# nothing\n".into(), PLACE), Ok("{}\n".into()));
    }

    #[test]
    fn what_would_keep_kafka_from_starting_is_refused() {
        for (text, part) in [
            ("rules: [", "is not YAML"),
            ("- a\n", "it must be a map"),
            ("rules: all", "'rules', which must be a list"),
            ("lowercaseOutputName: maybe", "'lowercaseOutputName: \"maybe\"'; it must be true or false"),
            ("rules:\n- name: x", "rules[0], which has a 'name' and no 'pattern'"),
            (
                "rules:\n- pattern: .*\n- pattern: x\n  labels: {a: b}",
                "rules[1], which has 'labels' or 'help' and no 'name'",
            ),
            ("rules:\n- pattern: 3", "not a text"),
            (
                "rules:\n- pattern: '(('",
                "rules[0], which has the pattern '((', which is no regular expression: a '(' is not closed",
            ),
            (
                "rules:\n- pattern: '*Value'",
                "the pattern '*Value', which is no regular expression: there is nothing before '*'",
            ),
            (
                "rules:\n- pattern: 'a<(.+)>'\n  name: x_$1\n  labels: {b: $2}",
                "rules[0], which uses $2 in '$2', and its pattern 'a<(.+)>' has 1 groups",
            ),
            ("hostPort: localhost:9999", "sets 'hostPort'"),
        ] {
            let why = check(text.into(), PLACE).unwrap_err();
            assert!(why.starts_with(PLACE), "{why}");
            assert!(why.contains(part), "{part} is not in: {why}");
        }
    }
}
