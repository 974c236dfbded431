//! What Kafka itself says about its settings: which there are in a version, what they may be, and which of them can change
//! while a node runs.
//!
//! The table is made from Kafka's jars by `cargo xtask config-model`. It stays as text and is searched where it lies: it costs next
//! to no memory, and a look at it a microsecond. Nothing here is stricter than Kafka: what the jars do not say is left to Kafka.

use std::cmp::Ordering;
use std::fmt;
use std::sync::LazyLock;

use crate::versions::KafkaVersion;

/// Sorted by name. Lines that begin with `#` come first.
const TABLE: &str = include_str!("config_model/settings.tsv");

/// Of what type a setting is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// `true` or `false`.
    Boolean,
    /// A number of 16 bits.
    Short,
    /// A number of 32 bits.
    Int,
    /// A number of 64 bits.
    Long,
    /// A number with a fraction.
    Double,
    /// Words, separated by commas.
    List,
    /// Any text: also classes and passwords.
    Text,
}

/// How a setting can change while a node runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It cannot.
    ReadOnly,
    /// For each broker on its own.
    PerBroker,
    /// For all of them at once.
    ClusterWide,
}

/// Which values of its type a setting may have.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Values {
    Any,
    Range { min: Option<f64>, max: Option<f64> },
    OneOf { words: &'static str, any_case: bool },
    ListOf(&'static str),
    NotEmpty,
}

/// What holds for one setting in one version.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Definition {
    /// Its type.
    pub type_: Type,
    /// How it can change.
    pub mode: Mode,
    values: Values,
}

/// One line of the table.
struct Line {
    name: &'static str,
    first: (u32, u32),
    last: (u32, u32),
    rest: &'static str,
}

impl Line {
    fn parse(line: &'static str) -> Option<Self> {
        let mut fields = line.splitn(4, '\t');
        let name = fields.next()?;
        let (first, last) = (minor(fields.next()?)?, minor(fields.next()?)?);
        Some(Self { name, first, last, rest: fields.next()? })
    }

    fn holds_in(&self, version: &KafkaVersion) -> bool {
        (self.first..=self.last).contains(&version.minor())
    }

    fn definition(&self) -> Option<Definition> {
        let mut fields = self.rest.splitn(3, '\t');
        let type_ = match fields.next()? {
            "BOOLEAN" => Type::Boolean,
            "SHORT" => Type::Short,
            "INT" => Type::Int,
            "LONG" => Type::Long,
            "DOUBLE" => Type::Double,
            "LIST" => Type::List,
            _ => Type::Text,
        };
        let values = values(fields.next()?);
        let mode = match fields.next()? {
            "per-broker" => Mode::PerBroker,
            "cluster-wide" => Mode::ClusterWide,
            _ => Mode::ReadOnly,
        };
        Some(Definition { type_, mode, values })
    }
}

fn minor(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn values(text: &'static str) -> Values {
    if let Some((min, max)) = text.strip_prefix("range ").and_then(|range| range.split_once("..")) {
        return Values::Range { min: min.parse().ok(), max: max.parse().ok() };
    }
    if let Some(words) = text.strip_prefix("one of (any case) ") {
        return Values::OneOf { words, any_case: true };
    }
    if let Some(words) = text.strip_prefix("one of ") {
        return Values::OneOf { words, any_case: false };
    }
    match text.strip_prefix("list of ") {
        Some(words) => Values::ListOf(words),
        None if text == "not empty" => Values::NotEmpty,
        None => Values::Any,
    }
}

/// The lines of a setting, oldest version first.
fn lines_of(name: &str) -> impl Iterator<Item = Line> {
    let start = first_line(name);
    let lines = TABLE[start..].lines().map_while(Line::parse);
    lines.take_while(move |line| line.name == name)
}

/// Where the first line begins whose name is not less than this one.
fn first_line(name: &str) -> usize {
    let (mut low, mut high) = (0, TABLE.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let begin = TABLE[low..middle].rfind('\n').map_or(low, |at| low + at + 1);
        let end = TABLE[middle..].find('\n').map_or(TABLE.len(), |at| middle + at + 1);
        let line = &TABLE[begin..end];
        let found = line.split('\t').next().unwrap_or_default();
        if line.starts_with('#') || found.cmp(name) == Ordering::Less { low = end } else { high = begin }
    }
    low
}

/// What holds for a setting in a version of Kafka; `None` when that version does not know it.
pub fn find(version: &KafkaVersion, name: &str) -> Option<Definition> {
    lines_of(name).find(|line| line.holds_in(version))?.definition()
}

/// A setting that some versions can change for all brokers at once, and from which to which of them.
struct ClusterWide {
    name: &'static str,
    first: (u32, u32),
    last: (u32, u32),
    definition: Definition,
}

impl ClusterWide {
    fn holds_in(&self, minor: (u32, u32)) -> bool {
        (self.first..=self.last).contains(&minor)
    }
}

/// All of them, sorted by name. Of most settings that nodes have, this is all that is asked, and for every node again.
static CLUSTER_WIDE: LazyLock<Vec<ClusterWide>> = LazyLock::new(|| {
    let lines = TABLE.lines().filter_map(Line::parse);
    let found = lines.filter_map(|line| {
        let definition = line.definition().filter(|found| found.mode == Mode::ClusterWide)?;
        Some(ClusterWide { name: line.name, first: line.first, last: line.last, definition })
    });
    found.collect()
});

/// What holds for a setting that a version can change for all brokers at once; `None` for all others.
pub fn find_cluster_wide(version: &KafkaVersion, name: &str) -> Option<Definition> {
    let first = CLUSTER_WIDE.partition_point(|one| one.name < name);
    let mut found = CLUSTER_WIDE[first..].iter().take_while(|one| one.name == name);
    found.find(|one| one.holds_in(version.minor())).map(|one| one.definition)
}

/// The versions that know a setting, for people: `4.2 to 4.3`. `None` when no supported version does.
pub fn known_to(name: &str) -> Option<String> {
    let (first, last) = lines_of(name).fold(None, |known: Option<((u32, u32), (u32, u32))>, line| {
        Some((known.map_or(line.first, |(first, _)| first), line.last))
    })?;
    let text = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    Some(if first == last { text(first) } else { format!("{} to {}", text(first), text(last)) })
}

/// The settings that a version can change for all brokers at once, by name.
pub fn cluster_wide(version: &KafkaVersion) -> impl Iterator<Item = &'static str> {
    let minor = version.minor();
    CLUSTER_WIDE.iter().filter(move |one| one.holds_in(minor)).map(|one| one.name)
}

impl Definition {
    /// Is this a value that Kafka would take? If not, what would be right.
    pub fn check(&self, value: &str) -> Result<(), String> {
        let value = value.trim();
        let is_right = match (self.type_, self.values) {
            (Type::Boolean, _) => ["true", "false"].iter().any(|word| value.eq_ignore_ascii_case(word)),
            (Type::Short | Type::Int | Type::Long, _) => {
                value.parse().is_ok_and(|number: i64| self.fits(number) && self.is_in_range(value))
            }
            (Type::Double, _) => number(value).is_some() && self.is_in_range(value),
            (Type::List, Values::ListOf(words)) => {
                items(value).all(|item| words.split(',').any(|word| word == item))
            }
            (Type::Text, Values::OneOf { words, any_case }) => {
                words.split(',').any(|word| word == value || (any_case && word.eq_ignore_ascii_case(value)))
            }
            (Type::Text, Values::NotEmpty) => !value.is_empty(),
            (Type::List | Type::Text, _) => true,
        };
        if is_right { Ok(()) } else { Err(self.to_string()) }
    }

    fn fits(&self, number: i64) -> bool {
        match self.type_ {
            Type::Short => i16::try_from(number).is_ok(),
            Type::Int => i32::try_from(number).is_ok(),
            _ => true,
        }
    }

    fn is_in_range(&self, value: &str) -> bool {
        let Values::Range { min, max } = self.values else { return true };
        number(value)
            .is_some_and(|number| min.is_none_or(|min| number >= min) && max.is_none_or(|max| number <= max))
    }

    /// Do these mean the same to Kafka? It tells values in a form of its own.
    pub fn means_the_same(&self, one: &str, other: &str) -> bool {
        let (one, other) = (one.trim(), other.trim());
        match self.type_ {
            Type::Boolean => one.eq_ignore_ascii_case(other),
            Type::Short | Type::Int | Type::Long => match (one.parse::<i64>(), other.parse::<i64>()) {
                (Ok(one), Ok(other)) => one == other,
                _ => one == other,
            },
            Type::Double => match (number(one), number(other)) {
                (Some(one), Some(other)) => one.total_cmp(&other) == Ordering::Equal,
                _ => one == other,
            },
            Type::List => items(one).eq(items(other)),
            Type::Text => one == other,
        }
    }
}

/// As Java reads it, which takes a letter for the type at the end.
fn number(text: &str) -> Option<f64> {
    text.parse().ok().or_else(|| text.strip_suffix(['d', 'D', 'f', 'F'])?.parse().ok())
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty())
}

impl fmt::Display for Definition {
    /// What would be right, as the end of "it must be ...".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.values {
            Values::OneOf { words, .. } => return write!(f, "one of {}", words.replace(',', ", ")),
            Values::ListOf(words) => return write!(f, "a list of any of {}", words.replace(',', ", ")),
            Values::NotEmpty => return f.write_str("not empty"),
            Values::Any | Values::Range { .. } => {}
        }
        let what = match self.type_ {
            Type::Boolean => "true or false",
            Type::Double => "a number",
            Type::Short | Type::Int | Type::Long => "a whole number",
            Type::List => "a list",
            Type::Text => "text",
        };
        f.write_str(what)?;
        let Values::Range { min, max } = self.values else { return self.write_limit(f) };
        match (min, max) {
            (Some(min), Some(max)) => write!(f, " from {min} to {max}"),
            (Some(min), None) => write!(f, " of {min} or more").and_then(|()| self.write_limit(f)),
            (None, Some(max)) => write!(f, " of {max} or less"),
            (None, None) => Ok(()),
        }
    }
}

impl Definition {
    /// The largest number that the type can hold: the most common mistake with it is a number beyond that.
    fn write_limit(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.type_ {
            Type::Short => write!(f, ", at most {}", i16::MAX),
            Type::Int => write!(f, ", at most {}", i32::MAX),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::{self, SUPPORTED};

    fn kafka(version: &str) -> &'static KafkaVersion {
        versions::find(version).unwrap()
    }

    #[test]
    fn the_table_is_sorted_and_every_line_can_be_read() {
        let lines: Vec<_> = TABLE.lines().filter(|line| !line.starts_with('#')).collect();
        let parsed: Vec<_> = lines.iter().map(|line| Line::parse(line).expect(line)).collect();
        assert!(parsed.iter().all(|line| line.definition().is_some()));
        let order: Vec<_> = parsed.iter().map(|line| (line.name, line.first)).collect();
        assert!(order.is_sorted(), "cargo xtask config-model writes it sorted");
        for line in &parsed {
            assert_eq!(lines_of(line.name).next().map(|found| found.name), Some(line.name));
        }
    }

    #[test]
    fn every_supported_version_has_a_model() {
        for version in SUPPORTED {
            let count = TABLE.lines().filter_map(Line::parse).filter(|line| line.holds_in(version)).count();
            assert!(count > 300, "{version} has only {count} settings: run cargo xtask config-model");
            assert!(find(version, "log.retention.ms").is_some(), "{version}");
        }
    }

    #[test]
    fn what_is_not_in_the_table_is_not_found() {
        for name in ["", "#", "a", "zzz", "log.retention", "log.retention.msx", "# name"] {
            assert_eq!(find(kafka("4.1.1"), name), None, "{name}");
        }
    }

    #[test]
    fn versions_differ() {
        let smallest = |version| find(kafka(version), "log.segment.bytes").unwrap().check("1000");
        assert_eq!(smallest("3.9.1"), Ok(()));
        assert_eq!(
            smallest("4.1.1"),
            Err("a whole number of 1048576 or more, at most 2147483647".to_owned())
        );
        assert!(find(kafka("3.9.1"), "log.message.format.version").is_some());
        assert_eq!(find(kafka("4.0.0"), "log.message.format.version"), None);
        assert_eq!(known_to("log.message.format.version").as_deref(), Some("3.9"));
        assert_eq!(known_to("nonsense"), None);
    }

    #[test]
    fn values_are_judged_as_kafka_judges_them() {
        let right = [
            ("num.io.threads", "8"),
            ("num.io.threads", " +8 "),
            ("unclean.leader.election.enable", "TRUE"),
            ("log.cleanup.policy", "delete, compact"),
            ("compression.type", "zstd"),
            ("log.cleaner.min.cleanable.ratio", "5e-1"),
            ("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308"),
            ("min.insync.replicas", "2"),
            ("log.retention.ms", "-1"),
        ];
        for (key, value) in right {
            assert_eq!(find(kafka("4.1.1"), key).unwrap().check(value), Ok(()), "{key}={value}");
        }
        let wrong = [
            ("num.io.threads", "eight", "a whole number of 1 or more, at most 2147483647"),
            ("num.io.threads", "0", "a whole number of 1 or more, at most 2147483647"),
            ("num.io.threads", "8.0", "a whole number of 1 or more, at most 2147483647"),
            ("message.max.bytes", "3000000000", "a whole number of 0 or more, at most 2147483647"),
            ("log.retention.ms", "", "a whole number"),
            ("unclean.leader.election.enable", "yes", "true or false"),
            ("log.cleanup.policy", "delete,shrink", "a list of any of compact, delete"),
            ("compression.type", "ZSTD", "one of gzip, lz4, producer, snappy, uncompressed, zstd"),
            ("log.cleaner.min.cleanable.ratio", "1.5", "a number from 0 to 1"),
            ("log.cleaner.io.max.bytes.per.second", "fast", "a number"),
            ("offsets.topic.replication.factor", "40000", "a whole number of 1 or more, at most 32767"),
        ];
        for (key, value, advice) in wrong {
            let said = find(kafka("4.1.1"), key).unwrap().check(value);
            assert_eq!(said, Err(advice.to_owned()), "{key}={value}");
        }
    }

    #[test]
    fn kafka_tells_values_in_a_form_of_its_own() {
        let same =
            |key: &str, one: &str, other: &str| find(kafka("4.1.1"), key).unwrap().means_the_same(one, other);
        assert!(same("num.io.threads", "08", "8"));
        assert!(same("unclean.leader.election.enable", "True", "true"));
        assert!(same("log.cleanup.policy", "delete, compact", "delete,compact"));
        assert!(same("log.cleaner.min.cleanable.ratio", ".50", "0.5"));
        assert!(!same("num.io.threads", "8", "9"));
        assert!(!same("log.cleanup.policy", "compact,delete", "delete"));
    }

    #[test]
    fn what_can_change_for_all_brokers_at_once_is_listed() {
        let keys: Vec<_> = cluster_wide(kafka("4.1.1")).collect();
        for key in ["log.retention.ms", "num.io.threads", "message.max.bytes", "min.insync.replicas"] {
            assert!(keys.contains(&key), "{key}");
        }
        for key in ["log.retention.hours", "listeners", "ssl.cipher.suites", "default.replication.factor"] {
            assert!(!keys.contains(&key), "{key}");
        }
    }
}
