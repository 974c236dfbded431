//! Maven, which fetches what is written in Java.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::{Cache, Entry};
use crate::{command, hash};

const PLUGIN: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1";

/// Maven, about to do this with dependencies.
pub(super) fn plugin(goal: &str) -> Result<Command> {
    if !command::exists("mvn") {
        bail!(
            "Maven is needed to fetch Java programs and is not on the PATH: install Maven and Java 17 or newer"
        );
    }
    let mut maven = Command::new("mvn");
    maven.args(["--batch-mode", "--quiet"]).arg(format!("{PLUGIN}:{goal}"));
    Ok(maven)
}

/// One artifact, `group:artifact:version`, as a file in a place of the cache. Its SHA-256 is known beforehand.
pub(super) fn copy(
    cache: &Cache,
    entry: Entry<'_>,
    artifact: &str,
    file: &str,
    sha256: &str,
) -> Result<PathBuf> {
    let place = cache.get(entry, |place| {
        let mut maven = plugin("copy")?;
        // Away from any project that is in the directory where this was started.
        maven.current_dir(place);
        maven.arg(format!("-Dartifact={artifact}")).arg(format!("-DoutputDirectory={}", place.display()));
        command::run(&mut maven).with_context(|| format!("{artifact} cannot be fetched"))?;
        hash::require(&place.join(file), sha256)
    })?;
    Ok(place.join(file))
}
