//! What Karst decides.
//!
//! [`plan::plan`] is a pure function from a [`world::World`] (everything that is true now) to a [`plan::Plan`]
//! (what to do, and why). This crate does no I/O, reads no clock and rolls no dice, so every decision can be
//! tested, replayed, simulated and explained.

pub(crate) mod anew;
pub mod authorization;
pub mod certificates;
mod claim_memory;
pub mod claims;
pub mod cluster;
mod completion;
pub mod config;
pub mod config_model;
mod departed;
pub mod digest;
pub mod dynamic;
mod fences;
mod health;
pub mod id_list;
pub mod identity;
pub mod ids;
mod ignored;
mod jvm;
pub mod listeners;
mod logging;
pub mod membership;
mod metrics;
mod migration;
pub mod names;
pub mod node_ids;
mod nodes;
pub mod notice;
pub mod objects;
pub mod own_certificates;
pub mod plan;
pub mod pods;
pub mod podset;
pub mod pools;
mod probes;
pub mod problem;
mod properties;
pub mod quantity;
pub mod quorum;
mod quorum_status;
pub mod rack;
mod reach;
pub mod references;
pub mod registration;
mod removals;
pub mod resolve;
mod restoration;
mod revision;
mod roles;
pub mod rolling;
mod secrets;
mod settings;
mod sheet;
pub mod status;
mod steps;
pub mod storage;
mod storage_change;
pub mod strangers;
pub mod template;
mod unproven;
pub mod upgrade;
pub mod versions;
pub mod world;
