//! Looks, before anything slow begins, whether it can end well.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::cache::Cache;
use crate::{command, packages, paths};

const GIBIBYTE: u64 = 1 << 30;

/// Building everything fills Go's, Maven's and our own caches.
const NEEDED_FOR_BUILDING: u64 = 10 * GIBIBYTE;
/// An instance has its own copy of the images, and the volumes of a small cluster.
const NEEDED_FOR_RUNNING: u64 = 3 * GIBIBYTE;

const TOOLS: [(&str, &str); 3] = [
    ("go", "Go 1.24 or newer builds Kubernetes"),
    ("mvn", "Maven fetches Kafka"),
    ("java", "Java 17 or newer runs Maven"),
];

/// Says all that is missing at once, installs what can be installed, and refuses to go on otherwise.
pub(crate) fn check(cache: &Cache) -> Result<()> {
    require_root()?;
    if cache.is_empty() {
        require_tools()?;
        require_space(cache.root(), NEEDED_FOR_BUILDING)?;
    }
    require_space(&paths::state()?, NEEDED_FOR_RUNNING)?;
    packages::install_missing()
}

/// Refuses to go on as another user: namespaces, control groups and mounts need root.
pub(crate) fn require_root() -> Result<()> {
    if !rustix::process::getuid().is_root() {
        bail!(
            "the embedded Kubernetes needs root, because it makes network namespaces, control groups and \
             mounts.\nRun this as root, or use a cluster that you have: `cargo xtask up --context NAME`"
        );
    }
    Ok(())
}

fn require_tools() -> Result<()> {
    let missing: Vec<_> = TOOLS
        .iter()
        .filter(|(program, _)| !command::exists(program))
        .map(|(program, purpose)| format!("  {program}: {purpose}"))
        .collect();
    if !missing.is_empty() {
        bail!("these programs are needed and not on the PATH:\n{}", missing.join("\n"));
    }
    Ok(())
}

fn require_space(place: &Path, needed: u64) -> Result<()> {
    let free = free_space(place)?;
    if free < needed {
        bail!(
            "{} has {:.1} GiB free and {} GiB are needed: make room, or set XDG_CACHE_HOME and XDG_STATE_HOME to \
             a larger disk",
            place.display(),
            free as f64 / GIBIBYTE as f64,
            needed / GIBIBYTE
        );
    }
    Ok(())
}

/// The free space of the disk that has, or will have, a directory.
fn free_space(place: &Path) -> Result<u64> {
    let existing = place.ancestors().find(|directory| directory.exists()).unwrap_or(Path::new("/"));
    let disk = rustix::fs::statvfs(existing)
        .with_context(|| format!("asking for the free space of {}", existing.display()))?;
    Ok(disk.f_bavail * disk.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_does_not_exist_yet_is_judged_by_its_disk() {
        let directory = tempfile::tempdir().unwrap();
        assert!(require_space(&directory.path().join("not/yet/there"), 1).is_ok());
    }

    #[test]
    fn a_full_disk_is_refused_with_the_numbers() {
        let directory = tempfile::tempdir().unwrap();
        let error = require_space(directory.path(), u64::MAX).unwrap_err().to_string();
        assert!(error.contains("GiB free"), "{error}");
    }
}
