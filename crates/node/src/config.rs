//! The node's mounted files, turned into one typed [`NodeConfig`].
//!
//! Reading ([`ConfigFiles::read`]) and understanding ([`NodeConfig::parse`]) are apart, so that every rule can be tested
//! without a disk. Nothing here is defaulted silently that the operator must have written: a missing file or key is an
//! error that names it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use karst_kafka::{DirectoryId, Endpoint, NodeId};
use thiserror::Error;

use crate::listeners::{self, Listener, ListenerError};
use crate::properties::{BadEscape, Properties};

/// Kafka's own default of `controller.quorum.fetch.timeout.ms`.
const DEFAULT_FETCH_TIMEOUT: Duration = Duration::from_millis(2000);

/// Names of the mounted files, which are the keys of the node's ConfigMap.
pub mod file {
    pub const SERVER_CONFIG: &str = "server.config";
    pub const CLUSTER_ID: &str = "cluster.id";
    pub const METADATA_VERSION: &str = "metadata.version";
    pub const STORAGE_FORMAT: &str = "storage.format";
    pub const INITIAL_CONTROLLERS: &str = "initial.controllers";
    /// What the operator knows of the disk of a node that is to form the quorum.
    pub const EMPTY_DISK: &str = "empty.disk";
    pub const JVM_OPTIONS: &str = "jvm.options";
    /// Logging of Kafka 4.0 and later.
    pub const LOG4J2: &str = "log4j2.properties";
    /// Logging of Kafka 3.9.
    pub const LOG4J: &str = "log4j.properties";
}

/// All that the launcher has to know about its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    pub node_id: NodeId,
    pub role: Role,
    /// It may be unknown while disks are adopted.
    pub cluster_id: Option<String>,
    pub metadata_version: String,
    pub storage_format: StorageFormat,
    /// What it means when the disk of a first voter is empty.
    pub empty_disk: EmptyDisk,
    /// Under which directory id the node was, or is to be, one of the first voters, if it is one of them.
    pub founder: Option<DirectoryId>,
    pub log_dirs: LogDirs,
    /// The listener on which the node is asked whether it is ready: replication for a broker, control plane otherwise.
    pub own_listener: Listener,
    /// The files that Kafka takes the certificates of its listeners from.
    pub stores: Vec<PathBuf>,
    /// Where the quorum is found.
    pub controllers: Vec<Endpoint>,
    /// How far behind the leader a controller may be and still count as caught up.
    pub fetch_timeout: Duration,
    /// Arguments for the JVM, one each, in the order written.
    pub jvm_options: Vec<String>,
    pub logging: Logging,
}

/// `process.roles`. A node always has one, and a combined node counts as a controller when it is formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Broker,
    Controller,
    Combined,
}

impl Role {
    #[must_use]
    pub fn is_broker(self) -> bool {
        matches!(self, Self::Broker | Self::Combined)
    }

    #[must_use]
    pub fn is_controller(self) -> bool {
        matches!(self, Self::Controller | Self::Combined)
    }
}

/// `storage.format`: what the operator knows about the quorum that this node's empty disk is formatted for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageFormat {
    /// The voters are in every node's configuration. The quorum exists: an empty disk is one in the place of a lost one.
    Static,
    /// The same, and somebody decided that a voter may start on an empty disk whatever the others have.
    StaticAnew,
    /// A new dynamic quorum, made by these controllers.
    Initial(InitialControllers),
    /// The same, though the node may have been one of them before: its vote is given back.
    Restore(InitialControllers),
    /// A dynamic quorum that exists: voters are learnt from its leader.
    Join,
    /// Nobody knows the cluster's id, or who votes, but the disks: nothing is formatted.
    Adopt,
}

/// `empty.disk`: what the operator knows of the disk of a node that is to form the quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmptyDisk {
    /// It is the first that the node has, and no quorum was ever seen.
    New,
    /// It is the first that the node has, of a quorum that was seen.
    Late,
    /// The node ran on another one before, or nobody says.
    #[default]
    Replaced,
    /// A person said that the node may vote on it, whatever it had before.
    Allowed,
}

/// The first voters of a dynamic quorum, in the notation of Kafka's storage tool: `id@host:port:directory,...`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialControllers {
    text: String,
    directories: BTreeMap<NodeId, DirectoryId>,
}

impl InitialControllers {
    fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut directories = BTreeMap::new();
        for entry in text.split(',').map(str::trim) {
            let (id, directory) = parse_initial_controller(entry)
                .ok_or_else(|| ConfigError::InitialController(entry.to_owned()))?;
            if directories.insert(id, directory).is_some() {
                return Err(ConfigError::RepeatedInitialController(id));
            }
        }
        Ok(Self { text: text.to_owned(), directories })
    }

    /// The list as it was written: every initial controller must be formatted with the very same one.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The directory id under which this node is to vote, if it is an initial controller.
    #[must_use]
    pub fn directory_of(&self, node: NodeId) -> Option<DirectoryId> {
        self.directories.get(&node).copied()
    }
}

fn parse_initial_controller(entry: &str) -> Option<(NodeId, DirectoryId)> {
    let (id, rest) = entry.split_once('@')?;
    let (address, directory) = rest.rsplit_once(':')?;
    let (host, port) = address.rsplit_once(':')?;
    if host.is_empty() || port.parse::<u16>().is_err() {
        return None;
    }
    Some((NodeId(id.parse().ok()?), directory.parse().ok()?))
}

/// Where the node keeps its data; the metadata log has its own directory or shares one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDirs {
    metadata: PathBuf,
    all: Vec<PathBuf>,
}

impl LogDirs {
    fn from_properties(server: &Properties) -> Result<Self, ConfigError> {
        // Kafka reads `log.dir` only when `log.dirs` is absent.
        let key = if server.get_non_empty("log.dirs").is_some() { "log.dirs" } else { "log.dir" };
        let data: Vec<PathBuf> = server.list(key).map(PathBuf::from).collect();
        let first = data.first().ok_or(ConfigError::MissingKey("log.dirs"))?;
        let metadata = server.get_non_empty("metadata.log.dir").map_or_else(|| first.clone(), PathBuf::from);
        let mut all = data;
        all.push(metadata.clone());
        all.sort();
        all.dedup();
        Ok(Self { metadata, all })
    }

    #[must_use]
    pub fn metadata(&self) -> &Path {
        &self.metadata
    }

    /// Every directory once, the one of the metadata log included.
    #[must_use]
    pub fn all(&self) -> &[PathBuf] {
        &self.all
    }
}

/// Which logging configurations are mounted. Kafka 3.9 reads log4j's, 4.x log4j2's, and each ignores the other's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Logging {
    pub log4j2: bool,
    pub log4j: bool,
}

/// What was mounted, not yet understood.
#[derive(Clone, Debug, Default)]
pub struct ConfigFiles(BTreeMap<&'static str, Vec<u8>>);

impl ConfigFiles {
    const KNOWN: [&'static str; 9] = [
        file::SERVER_CONFIG,
        file::CLUSTER_ID,
        file::METADATA_VERSION,
        file::STORAGE_FORMAT,
        file::INITIAL_CONTROLLERS,
        file::EMPTY_DISK,
        file::JVM_OPTIONS,
        file::LOG4J2,
        file::LOG4J,
    ];

    /// # Errors
    /// When a file is there but cannot be read. That one is missing shows only when it is needed.
    pub fn read(dir: &Path) -> Result<Self, ConfigError> {
        let mut files = BTreeMap::new();
        for name in Self::KNOWN {
            let path = dir.join(name);
            match std::fs::read(&path) {
                Ok(content) => {
                    files.insert(name, content);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(ConfigError::Unreadable { path, source }),
            }
        }
        Ok(Self(files))
    }

    fn bytes(&self, name: &'static str) -> Result<&[u8], ConfigError> {
        self.0.get(name).map(Vec::as_slice).ok_or(ConfigError::MissingFile(name))
    }

    fn text(&self, name: &'static str) -> Result<&str, ConfigError> {
        let text = std::str::from_utf8(self.bytes(name)?).map_err(|_| ConfigError::NotText(name))?;
        Ok(text.trim())
    }

    /// A file that holds one word, such as an id.
    fn word(&self, name: &'static str) -> Result<String, ConfigError> {
        let word = self.text(name)?;
        if word.is_empty() || word.contains(char::is_whitespace) {
            return Err(ConfigError::NotOneWord { file: name, content: word.to_owned() });
        }
        Ok(word.to_owned())
    }

    fn has(&self, name: &'static str) -> bool {
        self.0.contains_key(name)
    }
}

/// Why the node cannot be understood. All of these are the operator's, or an editor's of its ConfigMap, to mend.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the file `{0}` is missing")]
    MissingFile(&'static str),
    #[error("the file `{0}` is not text in UTF-8")]
    NotText(&'static str),
    #[error("the file `{file}` must hold one word, and holds {content:?}")]
    NotOneWord { file: &'static str, content: String },
    #[error("`server.config` cannot be read as properties: {0}")]
    Syntax(#[from] BadEscape),
    #[error("`server.config` has no `{0}`")]
    MissingKey(&'static str),
    #[error("`server.config` has `{key}={value}`, which is not {expected}")]
    BadValue { key: &'static str, value: String, expected: &'static str },
    #[error(
        "`storage.format` is {0:?}; it can be `static`, `static-anew`, `initial`, `restore`, `join` or `adopt`"
    )]
    StorageFormat(String),
    #[error("`empty.disk` is {0:?}; it can be `new`, `late`, `replaced` or `allowed`")]
    EmptyDisk(String),
    #[error(
        "`initial.controllers` has the entry {0:?}, which is not of the form `id@host:port:directory-id`"
    )]
    InitialController(String),
    #[error("`initial.controllers` names node {0} twice")]
    RepeatedInitialController(NodeId),
    #[error("`server.config`: {0}")]
    Listener(#[from] ListenerError),
}

impl NodeConfig {
    /// # Errors
    /// When a file or key is missing or makes no sense.
    pub fn parse(files: &ConfigFiles) -> Result<Self, ConfigError> {
        let server = Properties::parse(files.bytes(file::SERVER_CONFIG)?)?;
        let role = parse_role(&server)?;
        let storage_format = parse_storage_format(files)?;
        let node_id = NodeId(required_number(&server, "node.id")?);
        Ok(Self {
            node_id,
            role,
            cluster_id: parse_cluster_id(files, &storage_format)?,
            metadata_version: files.word(file::METADATA_VERSION)?,
            storage_format,
            empty_disk: parse_empty_disk(files)?,
            founder: parse_founder(files, node_id, role),
            log_dirs: LogDirs::from_properties(&server)?,
            own_listener: listeners::own_listener(&server, role)?,
            stores: parse_stores(&server),
            controllers: parse_controllers(&server),
            fetch_timeout: parse_fetch_timeout(&server)?,
            jvm_options: parse_jvm_options(files.text(file::JVM_OPTIONS)?),
            logging: Logging { log4j2: files.has(file::LOG4J2), log4j: files.has(file::LOG4J) },
        })
    }
}

impl NodeConfig {
    /// The other controllers. The listener that a combined node is asked on is not the one by which controllers know it, so hosts are
    /// compared, unless the node is known by no name that others use.
    #[must_use]
    pub fn other_controllers(&self) -> Vec<Endpoint> {
        let own = &self.own_listener.endpoint;
        let is_nameless = own.host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        let is_own = |one: &&Endpoint| if is_nameless { *one == own } else { one.host == own.host };
        self.controllers.iter().filter(|one| !is_own(one)).cloned().collect()
    }
}

fn parse_role(server: &Properties) -> Result<Role, ConfigError> {
    const KEY: &str = "process.roles";
    let value = server.get_non_empty(KEY).ok_or(ConfigError::MissingKey(KEY))?;
    let mut roles: Vec<&str> = server.list(KEY).collect();
    roles.sort_unstable();
    match roles.as_slice() {
        ["broker"] => Ok(Role::Broker),
        ["controller"] => Ok(Role::Controller),
        ["broker", "controller"] => Ok(Role::Combined),
        _ => Err(ConfigError::BadValue {
            key: KEY,
            value: value.to_owned(),
            expected: "`broker`, `controller` or both",
        }),
    }
}

fn required_number(server: &Properties, key: &'static str) -> Result<i32, ConfigError> {
    let value = server.get_non_empty(key).ok_or(ConfigError::MissingKey(key))?;
    value.parse().map_err(|_| ConfigError::BadValue { key, value: value.to_owned(), expected: "a number" })
}

/// Every file once, whichever listeners share it.
fn parse_stores(server: &Properties) -> Vec<PathBuf> {
    let is_store = |key: &str| {
        key.starts_with("listener.name.")
            && (key.ends_with(".ssl.keystore.location") || key.ends_with(".ssl.truststore.location"))
    };
    let stores = server.iter().filter(|(key, _)| is_store(key)).map(|(_, file)| PathBuf::from(file));
    stores.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Whether the addresses are good is for Kafka to judge.
fn parse_controllers(server: &Properties) -> Vec<Endpoint> {
    // Nodes of a static quorum are told its voters, each with its id.
    let servers = server.get_non_empty("controller.quorum.bootstrap.servers");
    let servers = servers.or_else(|| server.get("controller.quorum.voters")).unwrap_or_default();
    let address =
        |server: &str| server.rsplit_once('@').map_or(server, |(_, address)| address).trim().parse().ok();
    servers.split(',').filter_map(address).collect()
}

fn parse_fetch_timeout(server: &Properties) -> Result<Duration, ConfigError> {
    const KEY: &str = "controller.quorum.fetch.timeout.ms";
    server.get_non_empty(KEY).map_or(Ok(DEFAULT_FETCH_TIMEOUT), |value| {
        value.parse().map(Duration::from_millis).map_err(|_| ConfigError::BadValue {
            key: KEY,
            value: value.to_owned(),
            expected: "a number of milliseconds",
        })
    })
}

fn parse_cluster_id(files: &ConfigFiles, format: &StorageFormat) -> Result<Option<String>, ConfigError> {
    match format {
        // It is known where only nobody has said who votes. A disk of another cluster is one all the same.
        StorageFormat::Adopt => Ok(files.word(file::CLUSTER_ID).ok()),
        _ => files.word(file::CLUSTER_ID).map(Some),
    }
}

fn parse_storage_format(files: &ConfigFiles) -> Result<StorageFormat, ConfigError> {
    match files.word(file::STORAGE_FORMAT)?.as_str() {
        "static" => Ok(StorageFormat::Static),
        "static-anew" => Ok(StorageFormat::StaticAnew),
        "join" => Ok(StorageFormat::Join),
        "adopt" => Ok(StorageFormat::Adopt),
        "initial" => parse_initial_controllers(files).map(StorageFormat::Initial),
        "restore" => parse_initial_controllers(files).map(StorageFormat::Restore),
        other => Err(ConfigError::StorageFormat(other.to_owned())),
    }
}

/// Operators that know nothing of it know nothing of the disk.
fn parse_empty_disk(files: &ConfigFiles) -> Result<EmptyDisk, ConfigError> {
    if !files.has(file::EMPTY_DISK) {
        return Ok(EmptyDisk::default());
    }
    match files.word(file::EMPTY_DISK)?.as_str() {
        "new" => Ok(EmptyDisk::New),
        "late" => Ok(EmptyDisk::Late),
        "replaced" => Ok(EmptyDisk::Replaced),
        "allowed" => Ok(EmptyDisk::Allowed),
        other => Err(ConfigError::EmptyDisk(other.to_owned())),
    }
}

/// Whoever needs the list to format a disk reads it again, and strictly.
fn parse_founder(files: &ConfigFiles, node: NodeId, role: Role) -> Option<DirectoryId> {
    let controllers = parse_initial_controllers(files).ok().filter(|_| role.is_controller())?;
    controllers.directory_of(node)
}

fn parse_initial_controllers(files: &ConfigFiles) -> Result<InitialControllers, ConfigError> {
    InitialControllers::parse(files.text(file::INITIAL_CONTROLLERS)?)
}

fn parse_jvm_options(text: &str) -> Vec<String> {
    let options = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    options.map(str::to_owned).collect()
}

#[cfg(test)]
pub(crate) mod tests;
