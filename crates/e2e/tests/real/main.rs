//! Stories of real clusters: run them with `cargo xtask test`.

mod architectures;
mod around;
mod configuration;
mod crashes;
mod deletion;
mod hostile;
mod idle_pass;
mod kills;
mod leadership;
mod listeners;
mod order;
mod other_operator;
mod pools;
mod quickstart;
mod quorum;
mod refusals;
mod rights;
mod rolling;
mod scenarios;
mod security;
mod storage;
