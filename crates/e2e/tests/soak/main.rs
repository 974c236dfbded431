//! Stories that take too long for every day: `cargo xtask soak NAME` tells one. When each was told last, and how it ended, is in
//! docs/reliability.md.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod authorities;
mod static_quorum;
mod upgrades;
