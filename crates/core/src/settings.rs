//! Whether the settings that a user wrote are ones that Kafka can run with, and wise ones.
//!
//! What Kafka would not start with is refused before anything restarts into it. What it does not know may be a plugin's,
//! so it is only told.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::config;
use crate::config_model;
use crate::notice::Notice;
use crate::problem::Problem;
use crate::versions::KafkaVersion;

/// Numbers of copies, each with Kafka's default and with the minimum of them that a write needs.
const REPLICATION: &[(&str, usize, Option<&str>)] = &[
    ("default.replication.factor", 1, Some("min.insync.replicas")),
    ("offsets.topic.replication.factor", 3, None),
    ("transaction.state.log.replication.factor", 3, Some("transaction.state.log.min.isr")),
    ("share.coordinator.state.topic.replication.factor", 3, Some("share.coordinator.state.topic.min.isr")),
];

type Config = BTreeMap<String, Value>;

/// The settings that this version of Kafka would not start with.
pub(crate) fn problems(config: Option<&Config>, kafka: &KafkaVersion) -> Vec<Problem> {
    let wrong = |(key, value): (&str, String)| {
        let right = config_model::find(kafka, key)?.check(&value).err()?;
        Some(Problem::Setting { key: key.to_owned(), value, kafka: kafka.version, right })
    };
    config::of_user(config).filter_map(wrong).collect()
}

/// What a user should look at again.
pub(crate) fn notices(config: Option<&Config>, kafka: &KafkaVersion, brokers: usize) -> Vec<Notice> {
    let mut notices = Vec::new();
    let keys: Vec<_> = config::of_user(config)
        .filter(|(key, _)| config_model::find(kafka, key).is_none())
        .map(|(key, _)| match config_model::known_to(key) {
            Some(versions) => format!("{key} (a setting of Kafka {versions})"),
            None => key.to_owned(),
        })
        .collect();
    if !keys.is_empty() {
        notices.push(Notice::SettingsUnknown { kafka: kafka.version, keys });
    }
    let set: BTreeMap<_, _> = config::of_user(config).collect();
    let number = |key: &str| set.get(key)?.trim().parse::<usize>().ok();
    for (factor_key, default, minimum_key) in REPLICATION {
        let factor = number(factor_key).unwrap_or(*default);
        if set.contains_key(factor_key) && factor > brokers {
            notices.push(Notice::TooManyReplicas { key: factor_key, factor, brokers });
        }
        let minimum = minimum_key.and_then(|key| Some((key, number(key)?)));
        if let Some((key, minimum)) = minimum.filter(|(_, minimum)| *minimum > factor) {
            notices.push(Notice::MinimumTooHigh { key, minimum, factor_key, factor });
        }
    }
    notices
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions;
    use serde_json::json;

    fn config(value: Value) -> Config {
        serde_json::from_value(value).unwrap()
    }

    fn said(value: Value, brokers: usize) -> Vec<String> {
        let kafka = versions::find("4.1.1").unwrap();
        let notices = notices(Some(&config(value)), kafka, brokers);
        notices.iter().map(|notice| format!("{}: {notice}", notice.reason())).collect()
    }

    #[test]
    fn a_wrong_value_is_refused_with_its_field_and_what_would_be_right() {
        let kafka = versions::find("4.1.1").unwrap();
        let config = config(json!({"num.io.threads": "many", "log.retention.ms": 1000, "node.id": "x"}));
        let problems: Vec<_> = problems(Some(&config), kafka).iter().map(ToString::to_string).collect();
        let expected = "spec.kafka.config.num.io.threads is 'many'; for Kafka 4.1.1 it must be a whole number of 1 or more, at most 2147483647";
        assert_eq!(problems, [expected]);
    }

    #[test]
    fn an_unknown_setting_is_told_and_so_is_one_of_another_version() {
        let said = said(json!({"log.retention.mss": 1, "log.message.format.version": "3.0"}), 3);
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("UnknownSettings: "), "{said:?}");
        assert!(
            said[0].contains("log.message.format.version (a setting of Kafka 3.9), log.retention.mss;"),
            "{said:?}"
        );
    }

    #[test]
    fn copies_that_cannot_be_made_are_told() {
        let told = said(json!({"default.replication.factor": 3, "min.insync.replicas": 2}), 3);
        assert_eq!(told, [] as [String; 0]);
        let told = said(json!({"default.replication.factor": "3", "offsets.topic.replication.factor": 2}), 2);
        assert_eq!(told.len(), 1);
        assert!(told[0].contains("default.replication.factor is 3, and there are 2 brokers"), "{told:?}");
    }

    #[test]
    fn a_minimum_that_no_topic_reaches_is_told() {
        let told = said(json!({"default.replication.factor": 2, "min.insync.replicas": 3}), 3);
        assert_eq!(told.len(), 1);
        assert!(told[0].starts_with("KafkaMinInsyncReplicas: "), "{told:?}");
    }
}
