//! Content hashes: the keys of the cache and the names of image layers.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

/// A SHA-256 under construction. Parts are framed, so that `ab` + `c` is not `a` + `bc`.
#[derive(Default)]
pub(crate) struct Hasher(Sha256);

impl Hasher {
    pub(crate) fn part(mut self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// Adds the names and contents of all files below a directory.
    pub(crate) fn tree(mut self, directory: &Path) -> Result<Self> {
        let mut entries = std::fs::read_dir(directory)
            .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
            .with_context(|| format!("reading {}", directory.display()))?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            self = self.part(entry.file_name().as_encoded_bytes());
            self = if path.is_dir() {
                self.tree(&path)?
            } else {
                self.part(std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?)
            };
        }
        Ok(self)
    }

    pub(crate) fn finish(self) -> String {
        hex(&self.0.finalize())
    }
}

/// The SHA-256 of a file, as 64 hexadecimal digits.
pub(crate) fn of_file(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hasher.finalize())),
            read => hasher.update(&buffer[..read]),
        }
    }
}

pub(crate) fn of_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Refuses a file that is not the one that was meant.
pub(crate) fn require(path: &Path, expected: &str) -> Result<()> {
    let found = of_file(path)?;
    if found != expected {
        bail!(
            "{} is not the file that is expected, and is not used.\n  its SHA-256: {found}\n  expected:    {expected}\n\
             Whoever serves it may serve something else under its name, or a download broke: remove it from Maven's \
             repository (~/.m2/repository), and run this again. If it is the same then, find out why before you trust it",
            path.display()
        );
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    let mut digits = Vec::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a vector cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    String::from_utf8(digits).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_digest() {
        assert_eq!(of_bytes(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }

    #[test]
    fn a_file_that_is_not_the_expected_one_is_refused_with_both_hashes() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("agent.jar");
        std::fs::write(&file, "abc").unwrap();
        let abc = of_bytes(b"abc");
        require(&file, &abc).unwrap();
        std::fs::write(&file, "abd").unwrap();
        let error = require(&file, &abc).unwrap_err().to_string();
        assert!(
            error.contains(&abc) && error.contains(&of_bytes(b"abd")) && error.contains("agent.jar"),
            "{error}"
        );
    }

    #[test]
    fn parts_do_not_run_together() {
        let one = Hasher::default().part("ab").part("c").finish();
        let other = Hasher::default().part("a").part("bc").finish();
        assert_ne!(one, other);
    }

    #[test]
    fn a_renamed_file_changes_the_tree() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a"), "same").unwrap();
        let before = Hasher::default().tree(directory.path()).unwrap().finish();
        std::fs::rename(directory.path().join("a"), directory.path().join("b")).unwrap();
        let after = Hasher::default().tree(directory.path()).unwrap().finish();
        assert_ne!(before, after);
    }
}
