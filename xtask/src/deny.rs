//! What may be among the dependencies: `deny.toml` says, and `cargo deny` looks. Advisories are not asked for: they come from the
//! network, and would fail a change for what somebody else published that day.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::{Cache, Entry};
use crate::hash::Hasher;
use crate::{command, paths};

const VERSION: &str = "0.20.2";

pub(crate) fn check() -> Result<()> {
    let program = program(&Cache::open()?)?;
    let mut deny = Command::new(program);
    // Two versions of one crate are a warning, and the choice of others.
    deny.current_dir(paths::checkout()).args(["--log-level", "error", "check"]);
    command::run_visibly(deny.args(["bans", "licenses", "sources"]))
        .context("a dependency is not one that deny.toml allows")
}

fn program(cache: &Cache) -> Result<PathBuf> {
    let entry = Entry {
        name: &format!("cargo-deny-{VERSION}"),
        key: Hasher::default().part(VERSION),
        doing: &format!("Building cargo-deny {VERSION} (about 2 minutes, once)"),
    };
    let place = cache.get(entry, |place| {
        let target = place.join("target");
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["install", "cargo-deny", "--quiet", "--locked", "--version", VERSION, "--root"])
            .arg(place);
        // A place that a developer has chosen is for this checkout.
        command::run(cargo.env("CARGO_TARGET_DIR", &target)).context("cargo-deny cannot be built")?;
        std::fs::remove_dir_all(&target).context("removing what cargo-deny was built from")
    })?;
    Ok(place.join("bin/cargo-deny"))
}
