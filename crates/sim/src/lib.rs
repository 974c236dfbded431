//! A deterministic world for Karst's decisions.
//!
//! Kubernetes and Kafka are simulated under a seed, with crashes, lost answers, stale views and lost disks; the decisions are
//! the real ones of [`karst_core::plan::plan`], carried out in the order of the real operator. What must hold is checked at every
//! instant. A run that fails is a number that anybody can replay.

pub mod campaigns;
pub mod conformance;
pub mod data;
pub mod dice;
pub mod explore;
pub mod faults;
pub mod invariants;
pub mod kraft;
pub mod kubelet;
pub mod kubernetes;
pub mod mint;
pub mod mutations;
pub mod operator;
pub mod run;
pub mod scenarios;
pub mod shrink;
pub mod sim;
pub mod trust;
