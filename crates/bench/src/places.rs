//! Where things are when nobody says: the checkout, what Cargo built, and what is cached for all clones.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

/// The root of this checkout.
pub(crate) fn checkout() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// What was given, or else what is found; in any case something that exists.
pub(crate) fn existing(given: Option<PathBuf>, find: impl FnOnce() -> Result<PathBuf>) -> Result<PathBuf> {
    let path = given.map_or_else(find, Ok)?;
    path.canonicalize().with_context(|| format!("there is no program {}", path.display()))
}

/// Cargo's target directory: this program is two levels below it.
pub(crate) fn target() -> Result<PathBuf> {
    let us = std::env::current_exe().context("cannot find out where this program is")?;
    let target = us.ancestors().nth(2).context("this program is not in a target directory of Cargo")?;
    Ok(target.to_owned())
}

/// The operator as users get it. One that is not optimised would tell nothing.
pub(crate) fn release_operator() -> Result<PathBuf> {
    let path = target()?.join("release/karst-operator");
    if !path.exists() {
        bail!("there is no {}: run `cargo build --release -p karst-operator` first", path.display());
    }
    Ok(path)
}

/// The Kubernetes that `cargo xtask up` built last.
pub(crate) fn cached_kubernetes() -> Result<PathBuf> {
    let cache = cache()?;
    newest_kubernetes(&cache).with_context(|| {
        format!(
            "no Kubernetes is cached in {}: let `cargo xtask up` build one, or name one with --kubernetes",
            cache.display()
        )
    })
}

fn newest_kubernetes(cache: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(cache).ok()?.filter_map(Result::ok);
    let candidates = entries.filter_map(|entry| {
        // Entries in the making begin with a dot.
        let named_so = entry.file_name().to_string_lossy().starts_with("kubernetes-");
        let program = entry.path().join("kubernetes");
        let made = program.metadata().and_then(|metadata| metadata.modified()).ok()?;
        named_so.then_some((made, program))
    });
    candidates.max_by_key(|(made, _): &(SystemTime, _)| *made).map(|(_, program)| program)
}

/// The same rule as that of `cargo xtask`.
fn cache() -> Result<PathBuf> {
    let configured = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(directory) = configured {
        return Ok(directory.join("karst"));
    }
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    Ok(home.context("no home directory is known: set HOME or XDG_CACHE_HOME")?.join(".cache/karst"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, create_dir};
    use std::time::Duration;

    #[test]
    fn the_checkout_has_the_files_that_are_installed() {
        for place in ["deploy/crds", "deploy/install", "deploy/examples/quickstart.yaml"] {
            assert!(checkout().join(place).exists(), "{place}");
        }
    }

    #[test]
    fn the_newest_complete_build_is_taken() {
        let cache = tempfile::tempdir().unwrap();
        let builds = [("kubernetes-v1-old", 1), ("kubernetes-v1-new", 2), (".kubernetes-v1.unfinished", 3)];
        for (name, age) in builds {
            create_dir(cache.path().join(name)).unwrap();
            let program = File::create(cache.path().join(name).join("kubernetes")).unwrap();
            program.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(age)).unwrap();
        }
        create_dir(cache.path().join("kubernetes-v1-without-a-program")).unwrap();
        let found = newest_kubernetes(cache.path());
        assert_eq!(found, Some(cache.path().join("kubernetes-v1-new/kubernetes")));
    }
}
