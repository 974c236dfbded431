//! The command lines of the two Java programs: Kafka, and its storage tool. Pure; nothing is started here.
//!
//! Kafka's own shell scripts are not used: they need a shell, compute what the operator has already decided, and write to
//! a file system that is read-only.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::classes::Classes;
use crate::config::{NodeConfig, file};
use crate::format::{QuorumOption, storage_tool_arguments};

/// The class of Kafka itself, the same from 3.9 to 4.3.
const KAFKA: &str = "kafka.Kafka";

/// The class of `kafka-storage`, likewise.
const STORAGE_TOOL: &str = "kafka.tools.StorageTool";

/// The collector and its settings, as in Kafka's start script. They go together, and give way as one to a user's collector:
/// a JVM that is told to use two does not start.
const DEFAULT_COLLECTOR: [&str; 4] = [
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
];

/// A JVM that ran out of memory has lost whatever thread wanted some, and may serve half of what it should for ever after. It
/// comes back whole when it ends. What a user asks for in this case (a heap dump, a command) is done before.
const NO_LIFE_WITHOUT_MEMORY: &str = "-XX:+ExitOnOutOfMemoryError";

/// The storage tool lives for a second: it is started with what starts fastest.
const SHORT_LIVED: [&str; 3] = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// Where things are in the container.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The mounted ConfigMap.
    pub config_dir: PathBuf,
    pub kafka_home: PathBuf,
    pub java: PathBuf,
    /// For a user's logging configuration that writes files; the one of the operator writes to the console.
    pub logs_dir: PathBuf,
    /// For what the launcher itself writes: settings with the node's place in them.
    pub work_dir: PathBuf,
    /// The settings to start Kafka with, when they are not the mounted ones.
    pub resolved: Option<PathBuf>,
}

impl Paths {
    #[must_use]
    pub fn server_config(&self) -> PathBuf {
        self.resolved.clone().unwrap_or_else(|| self.config_dir.join(file::SERVER_CONFIG))
    }
}

/// The command that runs Kafka. The user's options come after the defaults, and so win over them.
#[must_use]
pub fn kafka_command(config: &NodeConfig, paths: &Paths, classes: &Classes, rack: Option<&str>) -> Command {
    let mut command = Command::new(&paths.java);
    classes.give_to_kafka(&mut command);
    if !chooses_collector(&config.jvm_options) {
        command.args(DEFAULT_COLLECTOR);
    }
    command
        .arg(NO_LIFE_WITHOUT_MEMORY)
        .arg("-Djava.awt.headless=true")
        .args(&config.jvm_options)
        .args(logging_arguments(config, paths))
        .arg(KAFKA)
        .arg(paths.server_config());
    if let Some(rack) = rack {
        command.arg("--override").arg(format!("broker.rack={rack}"));
    }
    command
}

/// The command that formats the directories.
#[must_use]
pub fn format_command(
    config: &NodeConfig,
    paths: &Paths,
    classes: &Classes,
    quorum: &QuorumOption,
) -> Command {
    let mut command = Command::new(&paths.java);
    classes.give_to_storage_tool(&mut command);
    command
        .args(SHORT_LIVED)
        .args(logging_arguments(config, paths))
        .arg(STORAGE_TOOL)
        .args(storage_tool_arguments(config, &paths.server_config(), quorum));
    command
}

fn chooses_collector(options: &[String]) -> bool {
    options.iter().any(|option| option.starts_with("-XX:+Use") && option.ends_with("GC"))
}

fn logging_arguments(config: &NodeConfig, paths: &Paths) -> Vec<OsString> {
    let mut arguments = vec![property("kafka.logs.dir", "", &paths.logs_dir)];
    if config.logging.log4j2 {
        arguments.push(property("log4j2.configurationFile", "", &paths.config_dir.join(file::LOG4J2)));
    }
    if config.logging.log4j {
        arguments.push(property("log4j.configuration", "file:", &paths.config_dir.join(file::LOG4J)));
    }
    arguments
}

fn property(name: &str, prefix: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(format!("-D{name}={prefix}"));
    argument.push(path);
    argument
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::tests::without_archives;
    use crate::config::tests::controller_files;
    use crate::config::{Logging, NodeConfig};

    fn paths() -> Paths {
        Paths {
            config_dir: "/config".into(),
            kafka_home: "/opt/kafka".into(),
            java: "java".into(),
            logs_dir: "/tmp/logs".into(),
            work_dir: "/tmp/work".into(),
            resolved: None,
        }
    }

    fn config() -> NodeConfig {
        NodeConfig::parse(&controller_files()).unwrap()
    }

    fn arguments(command: &Command) -> Vec<String> {
        command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn kafka_gets_its_options_in_an_order_in_which_the_users_win() {
        assert_eq!(
            arguments(&kafka_command(&config(), &paths(), &without_archives(), None)),
            [
                "-XX:+UseG1GC",
                "-XX:MaxGCPauseMillis=20",
                "-XX:InitiatingHeapOccupancyPercent=35",
                "-XX:+ExplicitGCInvokesConcurrent",
                "-XX:+ExitOnOutOfMemoryError",
                "-Djava.awt.headless=true",
                "-Xms1g",
                "-Xmx1g",
                "-Dx=a b",
                "-Dkafka.logs.dir=/tmp/logs",
                "-Dlog4j2.configurationFile=/config/log4j2.properties",
                "kafka.Kafka",
                "/config/server.config",
            ]
        );
    }

    #[test]
    fn a_rack_comes_after_the_settings_it_is_added_to() {
        let arguments = arguments(&kafka_command(&config(), &paths(), &without_archives(), Some("zone-a")));
        let end = &arguments[arguments.len() - 3..];
        assert_eq!(end, ["/config/server.config", "--override", "broker.rack=zone-a"]);
    }

    #[test]
    fn a_collector_that_the_user_chose_stands_alone() {
        let config = NodeConfig { jvm_options: vec!["-XX:+UseZGC".to_owned()], ..config() };
        let arguments = arguments(&kafka_command(&config, &paths(), &without_archives(), None));
        assert!(arguments.contains(&"-XX:+UseZGC".to_owned()));
        assert!(!arguments.iter().any(|argument| argument.contains("G1") || argument.contains("Initiating")));
    }

    #[test]
    fn a_user_who_wants_a_jvm_to_outlive_its_memory_wins() {
        let wish = "-XX:-ExitOnOutOfMemoryError".to_owned();
        let config = NodeConfig { jvm_options: vec![wish.clone()], ..config() };
        let arguments = arguments(&kafka_command(&config, &paths(), &without_archives(), None));
        let place = |wanted: &str| arguments.iter().position(|argument| argument == wanted);
        assert!(place(&wish) > place(NO_LIFE_WITHOUT_MEMORY), "{arguments:?}");
    }

    #[test]
    fn kafka_3_9_is_given_log4j_properties_as_a_url() {
        let config = NodeConfig { logging: Logging { log4j2: false, log4j: true }, ..config() };
        let arguments = arguments(&kafka_command(&config, &paths(), &without_archives(), None));
        assert!(arguments.contains(&"-Dlog4j.configuration=file:/config/log4j.properties".to_owned()));
        assert!(!arguments.iter().any(|argument| argument.contains("log4j2")));
    }

    #[test]
    fn the_storage_tool_does_not_get_kafkas_heap() {
        let arguments =
            arguments(&format_command(&config(), &paths(), &without_archives(), &QuorumOption::Static));
        assert!(!arguments.contains(&"-Xms1g".to_owned()));
        let class = arguments.iter().position(|argument| argument == STORAGE_TOOL).unwrap();
        assert_eq!(arguments[class + 1], "format");
    }
}
