//! Inline logging: which loggers tell how much.
//!
//! Users write the keys of log4j 1, those of log4j 2, or simply the names of loggers: all of them mean the same, whatever the
//! version of Kafka. Only names and levels are taken; appenders are for logging that is kept in a ConfigMap.

use std::collections::BTreeMap;

const LEVELS: [&str; 8] = ["OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ALL"];

/// Keys by which the level of everything else is set.
const ROOT_KEYS: [&str; 5] =
    ["root", "rootLogger", "rootLogger.level", "log4j.rootLogger", "kafka.root.logger.level"];

/// What Strimzi's own files call loggers: users set the level alone.
const KNOWN: [(&str, &str); 8] = [
    ("kafka", "kafka"),
    ("orgapachekafka", "org.apache.kafka"),
    ("requestlogger", "kafka.request.logger"),
    ("requestchannel", "kafka.network.RequestChannel$"),
    ("controller", "org.apache.kafka.controller"),
    ("logcleaner", "kafka.log.LogCleaner"),
    ("statechange", "state.change.logger"),
    ("authorizer", "kafka.authorizer.logger"),
];

/// Levels by logger, checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Loggers {
    pub(super) root: Option<&'static str>,
    pub(super) levels: BTreeMap<String, &'static str>,
}

impl Loggers {
    /// Reads what users wrote at `field`. All that is wrong with it is told at once.
    pub(super) fn read(field: &str, written: &BTreeMap<String, String>) -> Result<Self, String> {
        let mut loggers = Self::default();
        let mut problems = Vec::new();
        for (key, value) in written {
            if let Err(problem) = loggers.add(written, key, value) {
                problems.push(format!("{field}.{key} {problem}"));
            }
        }
        if problems.is_empty() { Ok(loggers) } else { Err(problems.join("; ")) }
    }

    fn add(&mut self, written: &BTreeMap<String, String>, key: &str, value: &str) -> Result<(), String> {
        if ROOT_KEYS.contains(&key) {
            self.root = Some(level(value)?);
            return Ok(());
        }
        if let Some(name) = key.strip_prefix("log4j.logger.") {
            return self.set(name, level(value)?);
        }
        if let Some((id, property)) = key.strip_prefix("logger.").and_then(|rest| rest.split_once('.')) {
            return match property {
                "name" => check_name(value),
                "level" => self.set(&name_of(written, id)?, level(value)?),
                _ => Err(not_a_level()),
            };
        }
        if ["log4j.", "appender.", "rootLogger."].iter().any(|prefix| key.starts_with(prefix)) {
            return Err(not_a_level());
        }
        self.set(key, level(value)?)
    }

    fn set(&mut self, name: &str, level: &'static str) -> Result<(), String> {
        check_name(name)?;
        self.levels.insert(name.to_owned(), level);
        Ok(())
    }
}

fn not_a_level() -> String {
    "is not the level of a logger; only levels can be set inline: for the rest use logging of type external"
        .to_owned()
}

/// The logger that log4j 2 is told of under this id.
fn name_of(written: &BTreeMap<String, String>, id: &str) -> Result<String, String> {
    let known = || KNOWN.iter().find(|(known, _)| *known == id).map(|(_, name)| (*name).to_owned());
    let given = written.get(&format!("logger.{id}.name")).cloned();
    given.or_else(known).ok_or_else(|| {
        format!("does not say which logger is meant; add logger.{id}.name, or write the logger's name instead of the key")
    })
}

/// No character that means something in a file of properties, or to log4j.
fn check_name(name: &str) -> Result<(), String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '$');
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if starts_well && name.chars().all(is_part) {
        return Ok(());
    }
    Err(format!("names the logger '{name}'; a logger's name has letters, digits, '.', '_', '-' and '$'"))
}

/// The level. What log4j 1 lists behind it are appenders, and all loggers have the same.
fn level(value: &str) -> Result<&'static str, String> {
    let wanted = value.split(',').next().unwrap_or_default().trim();
    let found = LEVELS.iter().find(|level| level.eq_ignore_ascii_case(wanted));
    found.copied().ok_or_else(|| format!("is '{value}'; use one of {}", LEVELS.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(written: &[(&str, &str)]) -> Result<Loggers, String> {
        let written = written.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Loggers::read("l", &written)
    }

    #[test]
    fn keys_of_log4j_1_and_2_and_plain_names_mean_the_same() {
        for written in [
            &[("rootLogger.level", "WARN"), ("logger.x.name", "kafka.server"), ("logger.x.level", "debug")][..],
            &[("log4j.rootLogger", "WARN, CONSOLE"), ("log4j.logger.kafka.server", "DEBUG, CONSOLE")],
            &[("kafka.root.logger.level", "warn"), ("kafka.server", "DEBUG")],
            &[("root", "WARN"), ("kafka.server", "Debug")],
        ] {
            let loggers = read(written).unwrap();
            assert_eq!(loggers.root, Some("WARN"));
            assert_eq!(loggers.levels, [("kafka.server".to_owned(), "DEBUG")].into());
        }
    }

    #[test]
    fn the_loggers_that_strimzi_names_need_no_name() {
        let loggers = read(&[("logger.requestchannel.level", "TRACE")]).unwrap();
        assert_eq!(loggers.levels, [("kafka.network.RequestChannel$".to_owned(), "TRACE")].into());
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let problem = read(&[
            ("kafka.server", "LOUD"),
            ("logger.mine.level", "INFO"),
            ("appender.console.type", "Console"),
            ("kafka = x", "INFO"),
        ])
        .unwrap_err();
        for part in [
            "l.kafka.server is 'LOUD'; use one of OFF, FATAL",
            "l.logger.mine.level does not say which logger is meant; add logger.mine.name",
            "l.appender.console.type is not the level of a logger",
            "names the logger 'kafka = x'",
        ] {
            assert!(problem.contains(part), "{part} is not in: {problem}");
        }
    }

    #[test]
    fn nothing_that_is_written_becomes_another_line_or_a_lookup() {
        for name in ["a\nappender.x", "a=b", "${env:HOME}", "a b", "#a", "", "a\\u000ab", ".a"] {
            assert!(read(&[(name, "INFO")]).is_err(), "{name:?}");
            assert!(read(&[("logger.x.name", name), ("logger.x.level", "INFO")]).is_err(), "{name:?}");
        }
        assert!(read(&[("a", "INFO\nx=y")]).is_err());
    }
}
