//! What is slow to make is made once and kept outside the checkout, where all clones find it.
//!
//! An entry is a directory whose name carries a hash of everything it was made from. It is made beside
//! its place and renamed when complete, so an entry that exists is whole; a lock keeps two clones from
//! making the same thing at once. Entries are never changed afterwards.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::steps::{note, step};
use crate::{hash, paths};

/// Hexadecimal digits of the hash in an entry's name: enough to tell versions apart.
const KEY_LENGTH: usize = 16;

#[derive(Debug)]
pub(crate) struct Cache {
    root: PathBuf,
}

/// What an entry is called and made from.
pub(crate) struct Entry<'a> {
    /// The readable part of the name, such as `kubernetes-1.34.4`.
    pub name: &'a str,
    /// The hash of everything that the content depends on.
    pub key: hash::Hasher,
    /// What the user reads while it is made.
    pub doing: &'a str,
}

impl Cache {
    pub(crate) fn open() -> Result<Self> {
        Self::at(paths::cache()?)
    }

    pub(crate) fn at(root: PathBuf) -> Result<Self> {
        fs::create_dir_all(&root).with_context(|| {
            format!(
                "the cache {} cannot be made; set XDG_CACHE_HOME to a place that can be written",
                root.display()
            )
        })?;
        Ok(Self { root })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether nothing was ever made here.
    pub(crate) fn is_empty(&self) -> bool {
        let Ok(entries) = fs::read_dir(&self.root) else { return true };
        !entries.filter_map(std::io::Result::ok).any(|entry| entry.path().is_dir())
    }

    /// Whether something was made here whose name begins so.
    pub(crate) fn has_any(&self, name: &str) -> bool {
        let Ok(entries) = fs::read_dir(&self.root) else { return false };
        let begins = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(name);
        entries.filter_map(std::io::Result::ok).any(|entry| begins(&entry) && entry.path().is_dir())
    }

    /// The entry's directory; made by `make`, in the directory it is given, when it is not there yet.
    pub(crate) fn get(&self, entry: Entry<'_>, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let key = entry.key.finish();
        let name = format!("{}-{}", entry.name, &key[..KEY_LENGTH]);
        let place = self.root.join(&name);
        if place.is_dir() {
            return Ok(place);
        }
        let _guard = self.lock(entry.name)?;
        if place.is_dir() {
            return Ok(place);
        }
        step(entry.doing, || {
            let unfinished = self.root.join(format!(".{name}.unfinished"));
            remove_if_present(&unfinished)?;
            fs::create_dir_all(&unfinished)?;
            make(&unfinished)?;
            fs::rename(&unfinished, &place)
                .with_context(|| format!("putting {} in its place", place.display()))
        })?;
        Ok(place)
    }

    /// Waits until no other process makes this entry. The lock ends with the returned file.
    fn lock(&self, name: &str) -> Result<File> {
        let path = self.root.join(format!("{name}.lock"));
        let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
        if file.try_lock().is_err() {
            note(format!("another run is making {name}; waiting for it"));
            file.lock().with_context(|| format!("locking {}", path.display()))?;
        }
        Ok(file)
    }
}

fn remove_if_present(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("removing {}", directory.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    fn entry<'a>(content: &str) -> Entry<'a> {
        Entry { name: "thing", key: hash::Hasher::default().part(content), doing: "Making a thing" }
    }

    #[test]
    fn an_entry_is_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path().to_owned()).unwrap();
        let first = cache.get(entry("a"), |place| Ok(fs::write(place.join("file"), "made")?)).unwrap();
        let second = cache.get(entry("a"), |_| bail!("must not be made again")).unwrap();
        assert_eq!(first, second);
        assert_eq!(fs::read_to_string(second.join("file")).unwrap(), "made");
    }

    #[test]
    fn other_sources_make_another_entry() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path().to_owned()).unwrap();
        let first = cache.get(entry("a"), |_| Ok(())).unwrap();
        let second = cache.get(entry("b"), |_| Ok(())).unwrap();
        assert_ne!(first, second);
    }

    #[test]
    fn a_failed_attempt_leaves_no_entry_and_does_not_disturb_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path().to_owned()).unwrap();
        let failed = cache.get(entry("a"), |place| {
            fs::write(place.join("half"), "")?;
            bail!("the network is gone")
        });
        assert!(failed.is_err());
        let place = cache.get(entry("a"), |_| Ok(())).unwrap();
        assert!(!place.join("half").exists());
    }
}
