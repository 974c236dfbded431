//! The client against nodes that follow a script: real sockets, real bytes, and every way to misbehave.

// All of this is a test, the helpers between the test functions too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod changes;
mod failures;
mod negotiation;
mod node;
mod partitions;
mod pki;
mod routing;
mod tls;
