//! A Kafka admin client on the wire protocol, for clusters in KRaft mode.
//!
//! [`Admin`] asks a running cluster what is true: who its brokers are, fenced ones included ([`Admin::describe_cluster`]),
//! who votes in its metadata quorum and how far each replica is ([`Admin::describe_quorum`]), what its topics look like, how
//! its nodes are configured and which features are finalized. It can also change some of that: the voters
//! ([`Admin::add_voter`], [`Admin::remove_voter`]), features, configurations, registrations and users' credentials.
//!
//! ```no_run
//! # async fn example() -> Result<(), karst_kafka::Error> {
//! use karst_kafka::{Admin, Bootstrap, ClientConfig, Endpoint};
//!
//! let brokers = Bootstrap::Brokers(vec![Endpoint::new("localhost", 9092)]);
//! let admin = Admin::new(brokers, ClientConfig::default());
//! let quorum = admin.describe_quorum().await?;
//! assert!(quorum.voters.iter().any(|voter| voter.id == quorum.leader));
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - **Every call ends.** One deadline ([`ClientConfig::request_timeout`]) covers name lookup, connecting, the TLS handshake,
//!   negotiation, the
//!   question, the answer and every reroute. Only what is asked about many topics is asked in several questions, each with a
//!   deadline of its own and all with one that is longer.
//! - **Nothing a peer sends can panic, hang or bloat the process.** Frames, lengths, counts and correlation ids are checked
//!   before they are believed; what does not hold up is [`Error::Protocol`].
//! - **A connection that misbehaved is never used again**, nor is one whose call was cancelled half-way.
//! - **A change is sent at most once.** When its answer got lost, the caller hears so ([`Error::may_have_happened`]) and can look
//!   what became of it. What only looks is asked again where that helps.
//! - Calls on one [`Admin`] may run concurrently.
//!
//! # What it may not do
//!
//! It knows nothing of Kubernetes, spawns no task, keeps no clock and retries nothing that Kafka refused: when to ask again
//! is the caller's decision, and [`Error::is_retriable`] helps with it.

mod admin;
mod calls;
mod change;
mod config;
mod connection;
mod deadline;
mod endpoint;
mod error;
mod error_code;
mod ids;
mod model;
mod pool;
mod tls;
mod wire;

pub use admin::Admin;
pub use change::{
    ConfigChange, ConfigOperation, FeatureUpdate, Intent, Listener, Refusal, ScramChange, ScramCredential,
    UpdateKind,
};
pub use config::{Bootstrap, ClientConfig, Hosts, Security};
pub use endpoint::{Endpoint, InvalidEndpoint};
pub use error::{Api, Error, Versions, Waiting};
pub use error_code::ErrorCode;
pub use ids::{DirectoryId, InvalidId, NodeId, TopicId};
pub use model::{
    Broker, ClusterDescription, ConfigEntry, ConfigResource, ConfigSource, Controller,
    ControllersDescription, DescribedPartition, DescribedTopic, Features, LevelRange, LogDir, LogDirReplica,
    Partition, Quorum, Reassignment, ReplicaState, Topic, TopicMetadata, TopicSelection,
};
pub use tls::{Identity, InvalidTls, TlsConfig, TlsFailure};
