//! `karst-node`: PID 1 of every Kafka container.
//!
//! It stands between an unmodified Kafka image and the operator: reads the node's mounted files ([`config`]), formats
//! storage that needs it and refuses storage that is not this node's ([`mod@format`]), starts the JVM ([`jvm`]), passes signals
//! on and collects the dead ([`supervise`]), and tells the kubelet whether the node is alive and useful ([`health`],
//! [`liveness`], [`ready`]). [`run`] is the one place where the order of these can be read.
//!
//! It puts the address of its Kubernetes node into the settings where they ask for it ([`place`]), and lets Kafka load
//! certificates that changed. While Kafka recovers its logs it says so, and how far it is ([`recovery`]).
//!
//! What it may not do: talk to Kubernetes, change a configuration that outlives the container, or delete anything on a disk.

mod activity;
mod checkpoint;
pub mod classes;
pub mod config;
pub mod format;
mod founding;
pub mod health;
pub mod install;
pub mod jvm;
pub mod line;
mod listen;
pub mod listeners;
pub mod liveness;
mod lost_disk;
pub mod meta;
mod output;
pub mod place;
pub mod properties;
pub mod rack;
pub mod ready;
pub mod recovery;
mod reload;
mod restored;
pub mod run;
mod static_voter;
pub mod storage;
pub mod supervise;
mod threads;
mod vote;
