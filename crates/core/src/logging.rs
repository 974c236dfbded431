//! What Kafka logs, and where: to the container's output, one line an event, as much as users ask for.
//!
//! Kafka 4 logs with log4j 2, which looks at its file now and then: a change arrives in the pods without a restart. Kafka 3.9
//! logs with log4j 1, which reads its file once: there a change is a reason to restart.

mod loggers;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use karst_api as api;

use self::loggers::Loggers;
use crate::references;
use crate::versions::Logging;
use crate::world::World;

const FIELD: &str = "spec.kafka.logging";
/// What makes log4j 2 look at its file again, in seconds.
const MONITOR: (&str, u32) = ("monitorInterval", 30);

/// How lines look.
const PATTERN: &str = "%d{ISO8601} %p %m (%c) [%t]%n";

/// Levels that are not those of everything else: what log4j 2 calls each logger, its name, and how much it tells.
const LOG4J2_LEVELS: [(&str, &str, &str); 4] = [
    ("request", "kafka.request.logger", "WARN"),
    ("network", "kafka.network.Processor", "WARN"),
    ("statechange", "state.change.logger", "INFO"),
    ("authorizer", "kafka.authorizer.logger", "INFO"),
];
/// The same for log4j 1.
const LOG4J1_LEVELS: [(&str, &str); 7] = [
    ("org.apache.kafka", "INFO"),
    ("kafka.request.logger", "WARN"),
    ("kafka.network.Processor", "WARN"),
    ("kafka.server.KafkaApis", "WARN"),
    ("kafka.log.LogCleaner", "INFO"),
    ("state.change.logger", "INFO"),
    ("kafka.authorizer.logger", "INFO"),
];

/// The key of the ConfigMap.
pub(crate) fn key(logging: Logging) -> &'static str {
    match logging {
        Logging::Log4j1 => "log4j.properties",
        Logging::Log4j2 => "log4j2.properties",
    }
}

/// The file, when nobody asks for anything else.
pub(crate) fn default(logging: Logging) -> String {
    render(logging, &Loggers::default())
}

/// Is this entry of a node's ConfigMap a file that a user asked for, or came to by one?
pub(crate) fn is_special(entry: &str, text: &str) -> bool {
    [Logging::Log4j1, Logging::Log4j2].into_iter().any(|one| entry == key(one) && text != default(one))
}

/// The file that is asked for, or what is wrong with what is asked for.
pub(crate) fn wanted(world: &World, logging: Logging) -> Result<Arc<str>, String> {
    let Some(spec) = &world.kafka.spec.kafka.logging else { return Ok(default(logging).into()) };
    match spec.type_ {
        api::LoggingType::Inline => {
            let nothing = BTreeMap::new();
            let loggers =
                Loggers::read(&format!("{FIELD}.loggers"), spec.loggers.as_ref().unwrap_or(&nothing))?;
            Ok(render(logging, &loggers).into())
        }
        api::LoggingType::External => match references::text(world, FIELD, spec.value_from.as_ref())? {
            Some(text) => external(logging, &text),
            None => Ok(default(logging).into()),
        },
    }
}

fn render(logging: Logging, loggers: &Loggers) -> String {
    match logging {
        Logging::Log4j1 => log4j1(loggers),
        Logging::Log4j2 => log4j2(loggers),
    }
}

fn log4j1(loggers: &Loggers) -> String {
    let mut text = format!(
        "log4j.rootLogger={}, CONSOLE\n\
         log4j.appender.CONSOLE=org.apache.log4j.ConsoleAppender\n\
         log4j.appender.CONSOLE.layout=org.apache.log4j.PatternLayout\n\
         log4j.appender.CONSOLE.layout.ConversionPattern={PATTERN}\n",
        loggers.root.unwrap_or("INFO")
    );
    let ours = LOG4J1_LEVELS.iter().map(|(name, level)| (*name, *level));
    let is_ours = |name: &str| LOG4J1_LEVELS.iter().any(|(ours, _)| *ours == name);
    for (name, level) in in_order(ours, is_ours, loggers) {
        let _ = writeln!(text, "log4j.logger.{name}={level}");
    }
    text
}

fn log4j2(loggers: &Loggers) -> String {
    let mut text = format!(
        "name = Karst\n\
         {} = {}\n\
         appender.console.type = Console\n\
         appender.console.name = CONSOLE\n\
         appender.console.layout.type = PatternLayout\n\
         appender.console.layout.pattern = {PATTERN}\n\
         rootLogger.level = {}\n\
         rootLogger.appenderRefs = console\n\
         rootLogger.appenderRef.console.ref = CONSOLE\n",
        MONITOR.0,
        MONITOR.1,
        loggers.root.unwrap_or("INFO")
    );
    let ours = LOG4J2_LEVELS.iter().map(|(_, name, level)| (*name, *level));
    let id = |name: &str| LOG4J2_LEVELS.iter().find(|(_, ours, _)| *ours == name).map(|(id, _, _)| *id);
    for (index, (name, level)) in in_order(ours, |name| id(name).is_some(), loggers).into_iter().enumerate() {
        let id = id(name).map_or_else(|| format!("logger{index}"), str::to_owned);
        let _ = writeln!(text, "logger.{id}.name = {name}\nlogger.{id}.level = {level}");
    }
    text
}

/// Our loggers, with the levels that users ask for, and then the others that they ask for.
fn in_order(
    ours: impl Iterator<Item = (&'static str, &'static str)>,
    is_ours: impl Fn(&str) -> bool,
    loggers: &Loggers,
) -> Vec<(&str, &'static str)> {
    let wanted = |name: &str, default| loggers.levels.get(name).copied().unwrap_or(default);
    let ours = ours.map(|(name, level)| (name, wanted(name, level)));
    let others = loggers.levels.iter().filter(|(name, _)| !is_ours(name));
    ours.chain(others.map(|(name, level)| (name.as_str(), *level))).collect()
}

/// A user's own file, which log4j is to look at again.
fn external(logging: Logging, text: &Arc<str>) -> Result<Arc<str>, String> {
    let keys = || text.lines().filter_map(key_of_line);
    let is_log4j1 = keys().any(|key| key.starts_with("log4j.") || key == "kafka.root.logger.level");
    let is_log4j2 = keys().any(|key| key.starts_with("rootLogger") || key.starts_with("appender."));
    match logging {
        _ if !is_log4j1 && !is_log4j2 => Err(format!(
            "{FIELD}: the ConfigMap's entry sets neither rootLogger (log4j 2, Kafka 4) nor log4j.rootLogger (log4j 1, Kafka 3.9), so nothing would be logged; it must be a file of properties for one of them"
        )),
        Logging::Log4j1 if !is_log4j1 => Err(format!(
            "{FIELD}: the ConfigMap's entry is for log4j 2, and Kafka 3.9 logs with log4j 1; write keys that begin with 'log4j.'"
        )),
        Logging::Log4j2 if !is_log4j2 => Err(format!(
            "{FIELD}: the ConfigMap's entry is for log4j 1, and Kafka 4 logs with log4j 2; write rootLogger.level, logger.NAME.level and so on"
        )),
        Logging::Log4j2 if !keys().any(|key| key == MONITOR.0) => {
            Ok(format!("{}\n{}={}\n", text.trim_end(), MONITOR.0, MONITOR.1).into())
        }
        _ => Ok(Arc::clone(text)),
    }
}

/// The key of a line of properties, as far as it matters here: without escapes.
fn key_of_line(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let end = line.find(|c: char| c == '=' || c == ':' || c.is_whitespace()).unwrap_or(line.len());
    let key = &line[..end];
    (!key.is_empty() && !key.starts_with(['#', '!'])).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_file_is_looked_at_again_unless_it_says_how_often_itself() {
        let with = |text: &str| external(Logging::Log4j2, &text.into()).unwrap();
        assert_eq!(&*with("rootLogger.level=INFO"), "rootLogger.level=INFO\nmonitorInterval=30\n");
        let own = "monitorInterval : 5\nrootLogger.level=INFO\n";
        assert_eq!(&*with(own), own);
        let commented = "#monitorInterval=5\nrootLogger.level=INFO\n";
        assert!(with(commented).ends_with("monitorInterval=30\n"));
    }

    #[test]
    fn a_file_for_the_other_log4j_is_refused() {
        let why = |logging, text: &str| external(logging, &text.into()).unwrap_err();
        assert!(why(Logging::Log4j2, "log4j.rootLogger=INFO, A").contains("Kafka 4 logs with log4j 2"));
        assert!(why(Logging::Log4j1, "rootLogger.level=INFO").contains("Kafka 3.9 logs with log4j 1"));
        assert!(why(Logging::Log4j2, "<Configuration/>").contains("must be a file of properties"));
    }

    #[test]
    fn a_level_that_is_asked_for_takes_the_place_of_ours() {
        let loggers = Loggers {
            root: Some("ERROR"),
            levels: [("state.change.logger".to_owned(), "TRACE"), ("kafka.server".to_owned(), "DEBUG")]
                .into(),
        };
        let text = render(Logging::Log4j2, &loggers);
        for line in [
            "rootLogger.level = ERROR\n",
            "logger.statechange.level = TRACE\n",
            "logger.logger4.name = kafka.server\nlogger.logger4.level = DEBUG\n",
            "monitorInterval = 30\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert_eq!(text.matches("state.change.logger").count(), 1);
        let text = render(Logging::Log4j1, &loggers);
        assert!(text.starts_with("log4j.rootLogger=ERROR, CONSOLE\n"), "{text}");
        assert!(text.contains("log4j.logger.kafka.server=DEBUG\n"), "{text}");
        assert_eq!(text.matches("state.change.logger").count(), 1);
    }
}
