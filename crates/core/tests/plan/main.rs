//! What `plan()` decides, subject by subject. One program: linking it once takes a tenth of the time of linking ten.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

mod anew;
mod around;
mod arrivals;
mod certificates;
mod clocks;
mod configuration;
mod creation;
mod empty_disk;
mod golden;
mod input;
mod left_behind;
mod limits;
mod listeners;
mod losses;
mod memory;
mod origin;
mod pools;
mod quorum;
mod rewrites;
mod rights;
mod rolling;
mod storage;
mod templates;
mod upgrade;
mod versions;
mod views;
mod voters;
mod waiting;
