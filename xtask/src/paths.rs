//! Where things are: the checkout, the cache that all clones share, and the state of instances.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The root of this checkout.
pub(crate) fn checkout() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// What is slow to make and the same for every clone.
pub(crate) fn cache() -> Result<PathBuf> {
    user_directory("XDG_CACHE_HOME", ".cache")
}

/// What belongs to instances of the embedded Kubernetes.
pub(crate) fn state() -> Result<PathBuf> {
    user_directory("XDG_STATE_HOME", ".local/state")
}

/// The XDG rule: the variable when it holds an absolute path, else a directory below the home.
fn user_directory(variable: &str, below_home: &str) -> Result<PathBuf> {
    if let Some(directory) = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute()) {
        return Ok(directory.join("karst"));
    }
    let home = std::env::home_dir()
        .filter(|home| home.is_absolute())
        .with_context(|| format!("no home directory is known: set HOME or {variable}"))?;
    Ok(home.join(below_home).join("karst"))
}
