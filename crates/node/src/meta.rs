//! `meta.properties`: the mark by which Kafka knows a formatted directory. Read here, written only by Kafka's own tool.

use karst_kafka::{DirectoryId, NodeId};
use thiserror::Error;

use crate::properties::{BadEscape, Properties};

/// The file's name in every log directory.
pub const FILE_NAME: &str = "meta.properties";

/// What a directory says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    pub cluster_id: String,
    pub node_id: NodeId,
    /// Absent in directories that were formatted before Kafka 3.7; Kafka adds it when it starts.
    pub directory_id: Option<DirectoryId>,
}

/// Why a `meta.properties` cannot be trusted.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum MetaError {
    #[error(transparent)]
    Syntax(#[from] BadEscape),
    #[error("it has no `{0}`")]
    Missing(&'static str),
    #[error("its `version` is {0:?}, and only version 1 (KRaft) is known")]
    Version(String),
    #[error("its `{key}` is {value:?}, which is not {expected}")]
    Value { key: &'static str, value: String, expected: &'static str },
}

impl MetaProperties {
    /// # Errors
    /// When the file is not a complete `meta.properties` of a KRaft node.
    pub fn parse(bytes: &[u8]) -> Result<Self, MetaError> {
        let properties = Properties::parse(bytes)?;
        let required = |key| properties.get_non_empty(key).ok_or(MetaError::Missing(key));
        let version = required("version")?;
        if version != "1" {
            return Err(MetaError::Version(version.to_owned()));
        }
        Ok(Self {
            cluster_id: required("cluster.id")?.to_owned(),
            node_id: NodeId(parse_value("node.id", required("node.id")?, "a number")?),
            directory_id: properties
                .get_non_empty("directory.id")
                .map(|id| parse_value("directory.id", id, "a directory id"))
                .transpose()?,
        })
    }
}

fn parse_value<T: std::str::FromStr>(
    key: &'static str,
    value: &str,
    expected: &'static str,
) -> Result<T, MetaError> {
    value.parse().map_err(|_| MetaError::Value { key, value: value.to_owned(), expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: &str = "r9VGTiw2QUCoDUadCt6q2g";

    fn parse(text: &str) -> Result<MetaProperties, MetaError> {
        MetaProperties::parse(text.as_bytes())
    }

    #[test]
    fn what_kafka_writes_is_understood() {
        let text = format!(
            "#\n#Sat Nov 15 08:00:00 UTC 2025\ncluster.id=-bcd\ndirectory.id={DIRECTORY}\nnode.id=3\nversion=1\n"
        );
        assert_eq!(
            parse(&text),
            Ok(MetaProperties {
                cluster_id: "-bcd".to_owned(),
                node_id: NodeId(3),
                directory_id: Some(DIRECTORY.parse().unwrap()),
            })
        );
    }

    #[test]
    fn a_directory_from_before_directory_ids_is_understood() {
        assert_eq!(parse("version=1\ncluster.id=c\nnode.id=3").map(|meta| meta.directory_id), Ok(None));
    }

    #[test]
    fn an_empty_file_is_no_mark_of_anything() {
        assert_eq!(parse(""), Err(MetaError::Missing("version")));
    }

    #[test]
    fn a_directory_of_the_zookeeper_age_is_refused() {
        assert_eq!(parse("version=0\nbroker.id=3\ncluster.id=c"), Err(MetaError::Version("0".to_owned())));
    }

    #[test]
    fn a_file_without_an_id_is_refused() {
        assert_eq!(parse("version=1\nnode.id=3"), Err(MetaError::Missing("cluster.id")));
        assert_eq!(parse("version=1\ncluster.id=c\nnode.id="), Err(MetaError::Missing("node.id")));
    }

    #[test]
    fn ids_that_are_none_are_refused() {
        assert!(matches!(
            parse("version=1\ncluster.id=c\nnode.id=three"),
            Err(MetaError::Value { key: "node.id", .. })
        ));
        for id in ["AAAAAAAAAAAAAAAAAAAAAA", "short"] {
            let text = format!("version=1\ncluster.id=c\nnode.id=3\ndirectory.id={id}");
            assert!(matches!(parse(&text), Err(MetaError::Value { key: "directory.id", .. })), "{id}");
        }
    }
}
