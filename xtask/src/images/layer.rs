//! One layer of an image: a tar file and its digest. The same content makes the same bytes.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cache::{Cache, Entry};
use crate::hash;

#[derive(Debug, Clone)]
pub(crate) struct Layer {
    pub file: PathBuf,
    /// The SHA-256 of the file, as 64 hexadecimal digits.
    pub digest: String,
}

impl Layer {
    /// A layer in a cache entry that holds `layer.tar` and its digest, sealed by [`Layer::seal`].
    pub(crate) fn in_entry(entry: &Path) -> Result<Self> {
        let digest = fs::read_to_string(entry.join("digest"))
            .with_context(|| format!("{} is damaged: remove it and run this again", entry.display()))?;
        Ok(Self { file: entry.join("layer.tar"), digest })
    }

    /// Writes the digest beside the layer, so that hundreds of megabytes are read once only.
    pub(crate) fn seal(entry: &Path) -> Result<()> {
        let digest = hash::of_file(&entry.join("layer.tar"))?;
        fs::write(entry.join("digest"), digest).context("writing a layer's digest")
    }

    /// A layer of files, in the cache under a key that stands for all of them.
    pub(crate) fn cached(
        cache: &Cache,
        entry: Entry<'_>,
        describe: impl FnOnce(&mut Files) -> Result<()>,
    ) -> Result<Self> {
        let place = cache.get(entry, |place| Self::write(place, describe))?;
        Self::in_entry(&place)
    }

    /// Packs files into a cache entry that is being made.
    pub(crate) fn write(place: &Path, describe: impl FnOnce(&mut Files) -> Result<()>) -> Result<()> {
        let mut files = Files::default();
        describe(&mut files)?;
        files.write(&place.join("layer.tar"))?;
        Self::seal(place)
    }

    /// A layer that changes too often to be kept: it is packed anew each time, to the given file.
    pub(crate) fn pack(file: &Path, describe: impl FnOnce(&mut Files) -> Result<()>) -> Result<Self> {
        let mut files = Files::default();
        describe(&mut files)?;
        files.write(file)?;
        Ok(Self { file: file.to_owned(), digest: hash::of_file(file)? })
    }
}

/// The files of a layer, in the order in which they are packed.
#[derive(Debug, Default)]
pub(crate) struct Files(Vec<(String, Source)>);

#[derive(Debug)]
enum Source {
    Directory,
    Copy { from: PathBuf, mode: u32 },
    Text { text: String, mode: u32 },
}

impl Files {
    pub(crate) fn directory(&mut self, path: &str) {
        self.0.push((path.to_owned(), Source::Directory));
    }

    /// A program that is copied as it is.
    pub(crate) fn program(&mut self, path: &str, from: &Path) -> Result<()> {
        self.copy(path, from, 0o755)
    }

    pub(crate) fn data(&mut self, path: &str, from: &Path) -> Result<()> {
        self.copy(path, from, 0o644)
    }

    fn copy(&mut self, path: &str, from: &Path, mode: u32) -> Result<()> {
        let from = from.canonicalize().with_context(|| format!("looking for {}", from.display()))?;
        self.0.push((path.to_owned(), Source::Copy { from, mode }));
        Ok(())
    }

    pub(crate) fn script(&mut self, path: &str, text: String) {
        self.0.push((path.to_owned(), Source::Text { text, mode: 0o755 }));
    }

    pub(crate) fn text(&mut self, path: &str, text: &str) {
        self.0.push((path.to_owned(), Source::Text { text: text.to_owned(), mode: 0o644 }));
    }

    fn write(&self, target: &Path) -> Result<()> {
        let file = File::create(target).with_context(|| format!("creating {}", target.display()))?;
        let mut tar = tar::Builder::new(BufWriter::new(file));
        for (path, source) in &self.0 {
            match source {
                Source::Directory => {
                    append(&mut tar, path, tar::EntryType::Directory, 0o755, 0, std::io::empty())
                }
                Source::Copy { from, mode } => {
                    let file = File::open(from).with_context(|| format!("opening {}", from.display()))?;
                    let size = file.metadata()?.len();
                    append(&mut tar, path, tar::EntryType::Regular, *mode, size, BufReader::new(file))
                }
                Source::Text { text, mode } => {
                    let size = text.len() as u64;
                    append(&mut tar, path, tar::EntryType::Regular, *mode, size, text.as_bytes())
                }
            }
            .with_context(|| format!("packing {path}"))?;
        }
        tar.into_inner()?.into_inner().context("writing the end of a layer")?;
        Ok(())
    }
}

/// Appends an entry that depends on nothing but its content: owned by root, from the beginning of time.
fn append(
    tar: &mut tar::Builder<BufWriter<File>>,
    path: &str,
    kind: tar::EntryType,
    mode: u32,
    size: u64,
    content: impl Read,
) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    tar.append_data(&mut header, path, content)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_files_make_the_same_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let pack = |name: &str| {
            let mut files = Files::default();
            files.directory("opt");
            files.script("opt/run.sh", "#!/bin/sh\n".to_owned());
            let target = directory.path().join(name);
            files.write(&target).unwrap();
            fs::read(target).unwrap()
        };
        assert_eq!(pack("one"), pack("two"));
    }

    #[test]
    fn modes_are_those_of_programs_and_data() {
        let directory = tempfile::tempdir().unwrap();
        let mut files = Files::default();
        files.script("run.sh", String::new());
        files.text("notes", "");
        let target = directory.path().join("layer.tar");
        files.write(&target).unwrap();
        let mut archive = tar::Archive::new(File::open(target).unwrap());
        let modes: Vec<_> =
            archive.entries().unwrap().map(|entry| entry.unwrap().header().mode().unwrap()).collect();
        assert_eq!(modes, [0o755, 0o644]);
    }
}
