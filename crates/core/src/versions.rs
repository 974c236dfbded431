//! The Kafka versions Karst runs, in one table: adding a version is one line and a test run.

use std::fmt;

/// How a version of Kafka is told what to log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logging {
    /// Kafka 3.9: `log4j.properties`.
    Log4j1,
    /// Kafka 4 and later: `log4j2.properties`.
    Log4j2,
}

/// One supported version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KafkaVersion {
    /// As users write it, and as the image is tagged.
    pub version: &'static str,
    /// The metadata version a new cluster of this version gets.
    pub metadata: &'static str,
    /// What its logging configuration looks like.
    pub logging: Logging,
}

impl KafkaVersion {
    /// Its numbers, to tell older from newer.
    pub fn order(&self) -> (u32, u32, u32) {
        let mut numbers = self.version.split('.').map(|number| number.parse().unwrap_or_default());
        let mut next = || numbers.next().unwrap_or_default();
        (next(), next(), next())
    }

    /// Its major and minor number.
    pub fn minor(&self) -> (u32, u32) {
        let (major, minor, _) = self.order();
        (major, minor)
    }

    /// The level of the newest metadata version that it can run.
    pub fn level(&self) -> i16 {
        metadata_level(self.metadata).unwrap_or_default()
    }
}

impl fmt::Display for KafkaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.version)
    }
}

const fn v3(version: &'static str, metadata: &'static str) -> KafkaVersion {
    KafkaVersion { version, metadata, logging: Logging::Log4j1 }
}

const fn v4(version: &'static str, metadata: &'static str) -> KafkaVersion {
    KafkaVersion { version, metadata, logging: Logging::Log4j2 }
}

/// All supported versions, oldest first.
pub const SUPPORTED: &[KafkaVersion] = &[
    v3("3.9.0", "3.9-IV0"),
    v3("3.9.1", "3.9-IV0"),
    v3("3.9.2", "3.9-IV0"),
    v4("4.0.0", "4.0-IV3"),
    v4("4.0.1", "4.0-IV3"),
    v4("4.0.2", "4.0-IV3"),
    v4("4.1.0", "4.1-IV1"),
    v4("4.1.1", "4.1-IV1"),
    v4("4.1.2", "4.1-IV1"),
    v4("4.2.0", "4.2-IV1"),
    v4("4.2.1", "4.2-IV1"),
    v4("4.2.2", "4.2-IV1"),
    v4("4.3.0", "4.3-IV0"),
    v4("4.3.1", "4.3-IV0"),
];

/// The version of a cluster whose resource names none.
pub const DEFAULT: &str = "4.3.1";

/// Metadata versions by the level that Kafka finalizes, from the oldest that a supported version can run.
const METADATA_LEVELS: &[(i16, &str)] = &[
    (7, "3.3-IV3"),
    (8, "3.4-IV0"),
    (9, "3.5-IV0"),
    (10, "3.5-IV1"),
    (11, "3.5-IV2"),
    (12, "3.6-IV0"),
    (13, "3.6-IV1"),
    (14, "3.6-IV2"),
    (15, "3.7-IV0"),
    (16, "3.7-IV1"),
    (17, "3.7-IV2"),
    (18, "3.7-IV3"),
    (19, "3.7-IV4"),
    (20, "3.8-IV0"),
    (21, "3.9-IV0"),
    (22, "4.0-IV0"),
    (23, "4.0-IV1"),
    (24, "4.0-IV2"),
    (25, "4.0-IV3"),
    (26, "4.1-IV0"),
    (27, "4.1-IV1"),
    (28, "4.2-IV0"),
    (29, "4.2-IV1"),
    (30, "4.3-IV0"),
];

/// The level from which on a broker may have more than one directory (3.7-IV2). Before, it does not start with them.
pub(crate) const SEVERAL_VOLUMES: i16 = 17;

/// The supported version of that name.
pub fn find(version: &str) -> Option<&'static KafkaVersion> {
    SUPPORTED.iter().find(|known| known.version == version)
}

/// The level of a metadata version.
pub fn metadata_level(name: &str) -> Option<i16> {
    METADATA_LEVELS.iter().find(|(_, known)| *known == name).map(|(level, _)| *level)
}

/// Levels of other features: the first version that knows each.
const FEATURE_LEVELS: &[(&str, i16, (u32, u32))] = &[
    ("kraft.version", 1, (3, 9)),
    ("transaction.version", 1, (4, 0)),
    ("transaction.version", 2, (4, 0)),
    ("group.version", 1, (4, 0)),
    ("eligible.leader.replicas.version", 1, (4, 0)),
    ("share.version", 1, (4, 1)),
    ("streams.version", 1, (4, 1)),
];

/// The highest level of a feature that a version knows. Of a feature that is not in the table nothing is known, so it is not
/// in the way.
pub fn feature_level(kafka: &KafkaVersion, feature: &str) -> i16 {
    let mut levels = FEATURE_LEVELS.iter().filter(|(name, _, _)| *name == feature).peekable();
    if levels.peek().is_none() {
        return i16::MAX;
    }
    levels
        .filter(|(_, _, since)| *since <= kafka.minor())
        .map(|(_, level, _)| *level)
        .max()
        .unwrap_or_default()
}

/// The name of a metadata level, or the number itself for a level that is newer than this table.
pub fn metadata_name(level: i16) -> String {
    METADATA_LEVELS
        .iter()
        .find(|(known, _)| *known == level)
        .map_or_else(|| level.to_string(), |(_, name)| (*name).to_owned())
}

/// A metadata version as Kafka spells it in full: users also write only `4.1`.
pub fn metadata_in_full(version: &str) -> Option<&'static str> {
    METADATA_LEVELS
        .iter()
        .rev()
        .map(|(_, name)| *name)
        .find(|name| *name == version || name.split_once('-').is_some_and(|(minor, _)| minor == version))
}

/// Can this version of Kafka run that metadata version?
pub fn can_run(kafka: &KafkaVersion, metadata: &str) -> bool {
    let level = |name: &str| METADATA_LEVELS.iter().position(|(_, known)| *known == name);
    matches!((level(metadata), level(kafka.metadata)), (Some(wanted), Some(newest)) if wanted <= newest)
}

/// The supported versions as a list for people.
pub fn supported_list() -> String {
    SUPPORTED.iter().map(|known| known.version).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_can_run_its_own_default_and_nothing_newer() {
        for kafka in SUPPORTED {
            assert!(can_run(kafka, kafka.metadata), "{kafka}");
        }
        assert!(!can_run(find("3.9.0").unwrap(), "4.0-IV0"));
        assert!(can_run(find("4.3.1").unwrap(), "3.9-IV0"));
        assert!(find(DEFAULT).is_some());
    }

    #[test]
    fn a_metadata_version_without_its_suffix_means_the_newest_of_that_minor() {
        assert_eq!(metadata_in_full("4.1"), Some("4.1-IV1"));
        assert_eq!(metadata_in_full("4.0-IV1"), Some("4.0-IV1"));
        assert_eq!(metadata_in_full("9.9"), None);
        assert_eq!(metadata_name(27), "4.1-IV1");
        assert_eq!(metadata_name(99), "99");
    }
}
