//! What the real tests are made of: namespaces of their own, waiting by watching, Kafka's own tools.
//!
//! The tests in `tests/real` run inside the network of an embedded Kubernetes that `cargo xtask test` starts, and
//! see what a user would see: they may use the API server, the tools in the pods and a Kafka client, and nothing
//! of the operator's insides but the names it promises.
#![allow(clippy::print_stderr, reason = "a test tells whoever runs it how far it is")]

pub mod audit;
pub mod cluster;
pub mod crash;
pub mod credentials;
pub mod disks;
pub mod door;
pub mod frozen;
pub mod kafka_call;
pub mod kafka_door;
pub mod kafka_tools;
pub mod keeper;
pub mod kubectl;
pub mod load;
pub mod manifests;
pub mod old_disks;
pub mod operator;
pub mod platform;
pub mod plots;
pub mod processes;
pub mod recovery;
pub mod snapshot;
pub mod stage;
pub mod story;
pub mod wait;
