//! Whether, and how, the node's directories are formatted. Pure: what the disks hold comes in, a [`Decision`] comes out; what
//! others know of the node comes in, and a [`Formatting`] becomes another one ([`Formatting::heard`]).
//!
//! Each directory is judged on its own. The two mistakes that this module exists to prevent: starting Kafka on somebody
//! else's data, and giving a controller that lost its metadata its old vote back. The latter has forgotten what it voted
//! for and what it promised to keep; a quorum of such nodes can elect a leader that lacks committed metadata.

use std::fmt;
use std::path::{Path, PathBuf};

use karst_kafka::{DirectoryId, NodeId};

use crate::config::{EmptyDisk, NodeConfig, StorageFormat};
use crate::meta::{self, MetaError, MetaProperties};

/// What was found in one directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// The directory does not exist, or holds nothing of anybody's.
    Empty,
    /// Only what Kafka's storage tool leaves behind when it is killed: no Kafka ever ran on it.
    InterruptedFormat { first_voters_written: bool },
    /// The bytes of its `meta.properties`.
    Marked(Vec<u8>),
    /// The same, with nothing beside it that the storage tool did not leave: no broker ever ran on it.
    Unused(Vec<u8>),
    /// Content, of which some names are given, without a `meta.properties`.
    Unmarked(Vec<String>),
    /// The operating system would not tell.
    Unreadable(String),
}

/// What to do before Kafka may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    AlreadyFormatted,
    Format(Formatting),
    /// Nothing may be touched; every directory that forbids it is named.
    Refuse(Vec<Refusal>),
}

/// A run of Kafka's storage tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formatting {
    /// Only these are written to; the tool is told to leave formatted ones alone.
    pub directories: Vec<PathBuf>,
    pub quorum: QuorumOption,
    /// The identity that others are to be asked about first. A disk in the place of one that was lost is as empty as one
    /// that nobody had before; only those who saw the lost one know.
    pub doubtful: Option<DirectoryId>,
}

impl Formatting {
    /// Is it sure that the node was there before, because its other directories were in use?
    #[must_use]
    pub fn is_proven_loss(&self) -> bool {
        self.quorum == QuorumOption::NoInitialControllers(WhyNotInitial::MetadataLost)
    }

    /// The same, when others were asked whether the node was there before under the doubtful identity.
    #[must_use]
    pub fn heard(self, was_there: bool) -> Self {
        if self.doubtful.is_none() || self.is_proven_loss() || !was_there {
            return self;
        }
        Self { quorum: QuorumOption::NoInitialControllers(WhyNotInitial::SeenBefore), doubtful: None, ..self }
    }
}

/// What the storage tool is told about the quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuorumOption {
    /// Nothing: the voters are in the configuration.
    Static,
    /// This node is one of the first voters, under this directory id.
    InitialControllers { list: String, own_directory: DirectoryId },
    /// The node votes only when it is made a voter later, under a directory id of its own.
    NoInitialControllers(WhyNotInitial),
}

/// Why a node of a dynamic quorum is not formatted as one of its first voters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyNotInitial {
    QuorumExists,
    BrokerOnly,
    NotListed,
    MetadataFormatted,
    MetadataLost,
    SeenBefore,
}

impl WhyNotInitial {
    /// Whether a disk is gone that somebody may be looking for.
    #[must_use]
    pub fn is_loss(self) -> bool {
        matches!(self, Self::MetadataLost | Self::SeenBefore)
    }
}

impl fmt::Display for WhyNotInitial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QuorumExists => "the quorum exists already, and the node learns the voters from its leader",
            Self::BrokerOnly => "the node is not a controller",
            Self::NotListed => "the node is not one of the initial controllers",
            Self::MetadataFormatted => "the metadata directory is formatted already",
            Self::MetadataLost => {
                "the metadata directory is empty while other directories of this node are formatted: it lost its disk and \
                 must not vote under its old directory id; it waits to be made a voter under a new one"
            }
            Self::SeenBefore => {
                "all directories are empty, but the other controllers know that this node was one of them: it lost its disk and \
                 must not vote under its old directory id; it waits to be made a voter under a new one"
            }
        })
    }
}

/// One directory that Kafka must not be started on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub path: PathBuf,
    pub found: Found,
}

/// What stands in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    OtherCluster {
        found: String,
        expected: String,
    },
    OtherNode {
        found: NodeId,
        expected: NodeId,
    },
    BrokenMeta(MetaError),
    /// No disk is formatted before it is known which cluster this is, and who votes in it.
    Empty,
    Unmarked(Vec<String>),
    Unreadable(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.found {
            Found::OtherCluster { found, expected } => write!(
                f,
                "{path} belongs to another cluster: its {} says cluster.id={found}, and this node is of cluster \
                 {expected}. Give this node the volume it had before, or an empty one; if the data is not needed, empty \
                 the directory by hand.",
                meta::FILE_NAME
            ),
            Found::OtherNode { found, expected } => write!(
                f,
                "{path} belongs to another node: its {} says node.id={found}, and this is node {expected}. Volumes seem \
                 to be swapped; give each node its own back.",
                meta::FILE_NAME
            ),
            Found::BrokenMeta(error) => write!(
                f,
                "{path} has a {} that cannot be trusted: {error}. Restore the file (cluster.id, node.id, directory.id and \
                 version=1), or, if the data is not needed, empty the directory by hand.",
                meta::FILE_NAME
            ),
            Found::Empty => write!(
                f,
                "{path} is empty, and the id of the cluster, or how its controllers vote, is not known yet. It is formatted when \
                 other nodes, whose disks are not empty, have found each other."
            ),
            Found::Unmarked(names) => write!(
                f,
                "{path} is not empty ({}), but has no {}, so it is not known whose data it is. Restore the file, or, if \
                 the data is not needed, empty the directory by hand.",
                names.join(", "),
                meta::FILE_NAME
            ),
            Found::Unreadable(error) => write!(
                f,
                "{path} cannot be read: {error}. Check that the volume is healthy and that its owner is the user Kafka \
                 runs as."
            ),
        }
    }
}

/// What is thought of one directory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Formatted(MetaProperties),
    NeedsFormat,
    Refused(Found),
}

/// Judges all directories of a node and settles what is to be done.
#[must_use]
pub fn decide(config: &NodeConfig, directories: &[(PathBuf, Contents)]) -> Decision {
    let mut unformatted = Vec::new();
    let mut refusals = Vec::new();
    // Where nobody knows the cluster's id, the first disk that has one tells the others.
    let mut cluster_id = config.cluster_id.clone();
    for (path, contents) in directories {
        match judge(config, cluster_id.as_deref(), contents) {
            Verdict::Formatted(meta) => cluster_id = Some(meta.cluster_id),
            Verdict::NeedsFormat if config.storage_format == StorageFormat::Adopt => {
                refusals.push(Refusal { path: path.clone(), found: Found::Empty });
            }
            Verdict::NeedsFormat => unformatted.push(path.clone()),
            Verdict::Refused(found) => refusals.push(Refusal { path: path.clone(), found }),
        }
    }
    if !refusals.is_empty() {
        Decision::Refuse(refusals)
    } else if unformatted.is_empty() {
        Decision::AlreadyFormatted
    } else {
        let quorum = quorum_option(config, directories);
        let doubtful = doubtful(config, &quorum, metadata_contents(config, directories));
        Decision::Format(Formatting { directories: unformatted, quorum, doubtful })
    }
}

fn judge(config: &NodeConfig, cluster_id: Option<&str>, contents: &Contents) -> Verdict {
    match contents {
        Contents::Empty | Contents::InterruptedFormat { .. } => Verdict::NeedsFormat,
        Contents::Unmarked(names) => Verdict::Refused(Found::Unmarked(names.clone())),
        Contents::Unreadable(error) => Verdict::Refused(Found::Unreadable(error.clone())),
        Contents::Marked(bytes) | Contents::Unused(bytes) => judge_mark(config.node_id, cluster_id, bytes),
    }
}

fn judge_mark(node: NodeId, cluster_id: Option<&str>, bytes: &[u8]) -> Verdict {
    let meta = match MetaProperties::parse(bytes) {
        Err(error) => return Verdict::Refused(Found::BrokenMeta(error)),
        Ok(meta) => meta,
    };
    match cluster_id.filter(|expected| *expected != meta.cluster_id) {
        Some(expected) => {
            Verdict::Refused(Found::OtherCluster { found: meta.cluster_id, expected: expected.to_owned() })
        }
        None if meta.node_id != node => {
            Verdict::Refused(Found::OtherNode { found: meta.node_id, expected: node })
        }
        None => Verdict::Formatted(meta),
    }
}

fn quorum_option(config: &NodeConfig, directories: &[(PathBuf, Contents)]) -> QuorumOption {
    use WhyNotInitial::{BrokerOnly, MetadataFormatted, MetadataLost, NotListed, QuorumExists};
    let controllers = match &config.storage_format {
        StorageFormat::Static | StorageFormat::StaticAnew => return QuorumOption::Static,
        StorageFormat::Join | StorageFormat::Adopt => {
            return QuorumOption::NoInitialControllers(QuorumExists);
        }
        StorageFormat::Initial(controllers) | StorageFormat::Restore(controllers) => controllers,
    };
    if !config.role.is_controller() {
        return QuorumOption::NoInitialControllers(BrokerOnly);
    }
    let Some(own_directory) = controllers.directory_of(config.node_id) else {
        return QuorumOption::NoInitialControllers(NotListed);
    };
    // Who gives a vote, or gives it back, knows that the disk is lost, and the other disks of the node stay as they are.
    let is_decided =
        matches!(config.storage_format, StorageFormat::Restore(_)) || config.empty_disk == EmptyDisk::Allowed;
    // The tool formats one directory after the other: what was not used yet may be all that it came to.
    let any_used = directories.iter().any(|(_, contents)| matches!(contents, Contents::Marked(_)));
    match metadata_contents(config, directories) {
        Some(Contents::Marked(_) | Contents::Unused(_)) => {
            QuorumOption::NoInitialControllers(MetadataFormatted)
        }
        metadata if is_proven_new(metadata) => initial(controllers.as_str(), own_directory),
        _ if any_used && !is_decided => QuorumOption::NoInitialControllers(MetadataLost),
        _ => initial(controllers.as_str(), own_directory),
    }
}

/// Which identity of a first voter may be one that another disk had, without anybody knowing. Who gives a node its vote back knows.
///
/// One that another disk had for sure is asked about too: without a leader nobody replaces it, and a person may decide.
fn doubtful(config: &NodeConfig, quorum: &QuorumOption, metadata: Option<&Contents>) -> Option<DirectoryId> {
    let StorageFormat::Initial(controllers) = &config.storage_format else { return None };
    let is_open = match quorum {
        QuorumOption::InitialControllers { .. } => !is_proven_new(metadata),
        QuorumOption::NoInitialControllers(why) => *why == WhyNotInitial::MetadataLost,
        QuorumOption::Static => false,
    };
    controllers.directory_of(config.node_id).filter(|_| is_open)
}

/// Is this an empty disk in the place of one that a voter of a static quorum had? Nothing becomes a part of such a quorum later.
#[must_use]
pub fn is_lost_static_voter(config: &NodeConfig, formatting: &Formatting) -> bool {
    let metadata = config.log_dirs.metadata();
    config.storage_format == StorageFormat::Static
        && config.role.is_controller()
        && formatting.directories.iter().any(|directory| directory == metadata)
}

/// Proof that no disk was lost: the tool was killed while it made this very directory that of a first voter. Without
/// the voters it may as well have been replacing a lost one.
fn is_proven_new(metadata: Option<&Contents>) -> bool {
    matches!(metadata, Some(Contents::InterruptedFormat { first_voters_written: true }))
}

fn metadata_contents<'a>(
    config: &NodeConfig,
    directories: &'a [(PathBuf, Contents)],
) -> Option<&'a Contents> {
    let metadata = directories.iter().find(|(path, _)| path == config.log_dirs.metadata());
    metadata.map(|(_, contents)| contents)
}

fn initial(list: &str, own_directory: DirectoryId) -> QuorumOption {
    QuorumOption::InitialControllers { list: list.to_owned(), own_directory }
}

/// The storage tool's arguments. Always `--option=value`: ids begin with `-` now and then.
#[must_use]
pub fn storage_tool_arguments(
    config: &NodeConfig,
    server_config: &Path,
    quorum: &QuorumOption,
) -> Vec<String> {
    let mut arguments = vec![
        "format".to_owned(),
        format!("--cluster-id={}", config.cluster_id.as_deref().unwrap_or_default()),
        format!("--release-version={}", config.metadata_version),
        format!("--config={}", server_config.display()),
        "--ignore-formatted".to_owned(),
    ];
    match quorum {
        QuorumOption::Static => {}
        QuorumOption::InitialControllers { list, .. } => {
            arguments.push(format!("--initial-controllers={list}"));
        }
        QuorumOption::NoInitialControllers(_) => arguments.push("--no-initial-controllers".to_owned()),
    }
    arguments
}

/// Whether the metadata directory carries the id that the other initial controllers were told: with another one this node
/// would never be let into the quorum it is a founder of.
#[must_use]
pub fn has_directory_id(metadata_directory: &Contents, expected: DirectoryId) -> bool {
    let (Contents::Marked(bytes) | Contents::Unused(bytes)) = metadata_directory else { return false };
    MetaProperties::parse(bytes).is_ok_and(|meta| meta.directory_id == Some(expected))
}

#[cfg(test)]
mod tests;
