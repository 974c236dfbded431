//! Kafka images with the layout of the official ones, made from the jars that Maven has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use super::archive::Image;
use super::base;
use super::classes;
use super::layer::{Files, Layer};
use super::{maven, pins};
use crate::cache::{Cache, Entry};
use crate::command;
use crate::hash::Hasher;
use crate::steps::note;

/// The versions to make images of: one of the oldest line we support, and the default.
pub(crate) const USUAL: &[&str] = &["3.9.1", "4.3.1"];
/// One version of each line that Karst runs: what an upgrade passes through.
pub(crate) const EVERY_LINE: &[&str] = &["3.9.1", "4.0.2", "4.1.1", "4.2.1", "4.3.1"];

const RUN_CLASS: &str = include_str!("../../../local/kafka/kafka-run-class.sh");
const LOG4J2: &str = include_str!("../../../local/kafka/tools-log4j2.properties");
const LOG4J: &str = include_str!("../../../local/kafka/tools-log4j.properties");

/// The tools that people and tests call in a pod, with the classes that have had the job over time.
const TOOLS: [(&str, &[&str]); 17] = [
    ("kafka-acls", &["org.apache.kafka.tools.AclCommand", "kafka.admin.AclCommand"]),
    (
        "kafka-broker-api-versions",
        &["org.apache.kafka.tools.BrokerApiVersionsCommand", "kafka.admin.BrokerApiVersionsCommand"],
    ),
    ("kafka-cluster", &["org.apache.kafka.tools.ClusterTool"]),
    ("kafka-configs", &["org.apache.kafka.tools.ConfigCommand", "kafka.admin.ConfigCommand"]),
    ("kafka-console-consumer", &["org.apache.kafka.tools.consumer.ConsoleConsumer"]),
    ("kafka-console-producer", &["org.apache.kafka.tools.ConsoleProducer", "kafka.tools.ConsoleProducer"]),
    ("kafka-consumer-groups", &["org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"]),
    ("kafka-dump-log", &["org.apache.kafka.tools.DumpLogSegments", "kafka.tools.DumpLogSegments"]),
    ("kafka-features", &["org.apache.kafka.tools.FeatureCommand"]),
    ("kafka-leader-election", &["org.apache.kafka.tools.LeaderElectionCommand"]),
    ("kafka-log-dirs", &["org.apache.kafka.tools.LogDirsCommand"]),
    ("kafka-metadata-quorum", &["org.apache.kafka.tools.MetadataQuorumCommand"]),
    ("kafka-producer-perf-test", &["org.apache.kafka.tools.ProducerPerformance"]),
    ("kafka-reassign-partitions", &["org.apache.kafka.tools.reassign.ReassignPartitionsCommand"]),
    ("kafka-server-start", &["kafka.Kafka"]),
    ("kafka-storage", &["org.apache.kafka.tools.StorageTool", "kafka.tools.StorageTool"]),
    ("kafka-topics", &["org.apache.kafka.tools.TopicCommand"]),
];

pub(crate) fn images(cache: &Cache, versions: &[&str]) -> Result<Vec<Image>> {
    let base = base::layer(cache)?;
    versions.iter().map(|version| image(cache, &base, version)).collect()
}

fn image(cache: &Cache, base: &Layer, version: &str) -> Result<Image> {
    let jars = jars(cache, version)?;
    let entry = Entry {
        name: &format!("kafka-image-{version}"),
        key: recipe(&jars),
        doing: &format!("Packing the image of Kafka {version}"),
    };
    let layer = Layer::cached(cache, entry, |files| describe(files, &jars, version))?;
    let mut layers = vec![base.clone(), layer];
    match classes::layer(cache, version, &layers) {
        Ok(classes) => layers.push(classes),
        Err(error) => note(format!("Kafka {version} will start more slowly than it could: {error:#}")),
    }
    Ok(Image {
        reference: format!("docker.io/apache/kafka:{version}"),
        layers,
        config: json!({
            "User": "appuser",
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
            "WorkingDir": "/",
            "Cmd": ["/opt/kafka/bin/kafka-server-start.sh", "/opt/kafka/config/server.properties"],
        }),
    })
}

/// All that an image is made of. The jars' own place in the cache stands for the jars.
fn recipe(jars: &Path) -> Hasher {
    let place = jars.file_name().unwrap_or_default().as_encoded_bytes();
    let key = Hasher::default().part(place).part(RUN_CLASS).part(LOG4J2).part(LOG4J);
    TOOLS.iter().fold(key, |key, (tool, classes)| key.part(wrapper(tool)).part(classes.join(" ")))
}

/// Kafka's jars and all they need at run time.
pub(crate) fn jars(cache: &Cache, version: &str) -> Result<PathBuf> {
    let project = project(version);
    let entry = Entry {
        name: &format!("kafka-jars-{version}"),
        key: Hasher::default().part(&project).part("verified"),
        doing: &format!("Fetching Kafka {version} with Maven (about a minute, once)"),
    };
    cache.get(entry, |place| {
        let file = place.join("pom.xml");
        fs::write(&file, &project)?;
        let mut maven = maven::plugin("copy-dependencies")?;
        maven.arg("--file").arg(&file).arg("-DincludeScope=runtime");
        maven.arg(format!("-DoutputDirectory={}", place.join("libs").display()));
        command::run(&mut maven).with_context(|| format!("Kafka {version} cannot be fetched"))?;
        pins::verify(&place.join("libs"))
    })
}

/// A Maven project that depends on one version of Kafka and on what it logs with.
fn project(version: &str) -> String {
    let mut dependencies =
        vec![("org.apache.kafka", "kafka_2.13", version), ("org.apache.kafka", "kafka-tools", version)];
    if logs_with_log4j2(version) {
        dependencies.push(("org.apache.logging.log4j", "log4j-core", "2.25.1"));
        dependencies.push(("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.1"));
    } else {
        dependencies.push(("org.slf4j", "slf4j-reload4j", "1.7.36"));
    }
    let dependencies: String = dependencies
        .into_iter()
        .map(|(group, artifact, version)| {
            format!(
                "    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>\n"
            )
        })
        .collect();
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">\n  <modelVersion>4.0.0</modelVersion>\n  \
         <groupId>io.karst</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>\n  \
         <dependencies>\n{dependencies}  </dependencies>\n</project>\n"
    )
}

fn logs_with_log4j2(version: &str) -> bool {
    !version.starts_with("3.")
}

fn describe(files: &mut Files, jars: &Path, version: &str) -> Result<()> {
    for directory in ["opt", "opt/kafka", "opt/kafka/bin", "opt/kafka/config", "opt/kafka/libs"] {
        files.directory(directory);
    }
    let jars = list(&jars.join("libs"))?;
    files.script("opt/kafka/bin/kafka-run-class.sh", RUN_CLASS.to_owned());
    for (tool, classes) in TOOLS {
        let class = first_present(classes, &jars).with_context(|| {
            format!("Kafka {version} has no class for {tool}: looked for {}", classes.join(", "))
        })?;
        files.script(&format!("opt/kafka/bin/{tool}.sh"), wrapper(class));
    }
    if logs_with_log4j2(version) {
        files.text("opt/kafka/config/tools-log4j2.properties", LOG4J2);
    } else {
        files.text("opt/kafka/config/tools-log4j.properties", LOG4J);
    }
    for jar in &jars {
        let name = jar.file_name().unwrap_or_default().to_string_lossy();
        files.data(&format!("opt/kafka/libs/{name}"), jar)?;
    }
    Ok(())
}

fn wrapper(class: &str) -> String {
    format!("#!/bin/sh\nexec \"$(dirname \"$0\")/kafka-run-class.sh\" {class} \"$@\"\n")
}

pub(super) fn list(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .with_context(|| format!("reading {}", directory.display()))?
        .filter_map(std::io::Result::ok)
        .map(|entry| entry.path())
        .collect();
    files.sort();
    Ok(files)
}

/// The first of the classes that one of Kafka's own jars has.
fn first_present<'a>(classes: &[&'a str], jars: &[PathBuf]) -> Option<&'a str> {
    let is_own =
        |jar: &&PathBuf| jar.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"kafka"));
    let own: Vec<_> = jars.iter().filter(is_own).collect();
    classes.iter().copied().find(|class| has_class(&own, class))
}

/// Whether one of the jars has a class. File names stand uncompressed in a jar's directory.
fn has_class(jars: &[&PathBuf], class: &str) -> bool {
    let name = format!("{}.class", class.replace('.', "/"));
    command::run(Command::new("grep").args(["--quiet", "--fixed-strings", "-e", &name]).args(jars)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths;

    /// Whoever names no version gets the default: it must be there, in the quickstart and in the stories of every day.
    #[test]
    fn what_users_get_by_default_is_what_is_tested() {
        let table = fs::read_to_string(paths::checkout().join("crates/core/src/versions.rs")).unwrap();
        let default = table.lines().find_map(|line| line.strip_prefix("pub const DEFAULT: &str = \""));
        let default = default.unwrap().trim_end_matches("\";");
        assert!(USUAL.contains(&default), "no image of {default}");
        for example in list(&paths::checkout().join("deploy/examples")).unwrap() {
            let text = fs::read_to_string(&example).unwrap();
            let version = text.lines().find_map(|line| line.trim().strip_prefix("version: ")).unwrap();
            let wanted = if example.ends_with("kafka-3.9.yaml") { "3.9.1" } else { default };
            assert_eq!(version, wanted, "{}", example.display());
            assert!(USUAL.contains(&version), "{} has no image here", example.display());
        }
    }

    #[test]
    fn each_version_brings_the_logging_it_was_made_for() {
        assert!(project("3.9.1").contains("slf4j-reload4j"));
        assert!(!project("3.9.1").contains("log4j-core"));
        assert!(project("4.1.1").contains("log4j-core"));
        assert!(!project("4.1.1").contains("reload4j"));
    }

    #[test]
    fn a_tool_that_moved_is_found_where_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let jar = directory.path().join("kafka_2.13-3.9.1.jar");
        fs::write(&jar, b"PK..kafka/tools/ConsoleProducer.class..").unwrap();
        let classes = ["org.apache.kafka.tools.ConsoleProducer", "kafka.tools.ConsoleProducer"];
        assert_eq!(first_present(&classes, &[jar]), Some("kafka.tools.ConsoleProducer"));
    }
}
