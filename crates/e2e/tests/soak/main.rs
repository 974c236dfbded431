//! Stories that take too long for every day: `cargo xtask soak NAME` tells one. When each was told last, and how it ended, is in
//! docs/testing.md.

mod authorities;
mod changes;
mod conformance;
mod disasters;
mod kafka_calls;
mod kills;
mod listeners;
mod machine;
mod nothing_lost;
mod platform;
mod removals;
mod replacement;
mod restarts;
mod scenarios;
mod seen;
mod static_quorum;
mod takeover;
mod unregistration;
mod upgrades;
