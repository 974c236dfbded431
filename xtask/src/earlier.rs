//! An earlier Karst: the operator as some commit of this repository built it, beside the one of this checkout. A soak that takes
//! over what it made says with `--from` which commit is meant.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::{Cache, Entry};
use crate::hash::Hasher;
use crate::images::archive::Image;
use crate::images::operator;
use crate::{command, paths};

/// The tag of its image.
const TAG: &str = "earlier";

/// What an earlier commit built, and the manifests that it was installed with.
#[derive(Debug)]
pub(crate) struct Earlier {
    place: PathBuf,
}

impl Earlier {
    /// Builds it, unless the cache has it.
    pub(crate) fn build(cache: &Cache, revision: &str) -> Result<Self> {
        let commit = commit(revision)?;
        let short = &commit[..12];
        let entry = Entry {
            name: &format!("karst-{short}"),
            key: Hasher::default().part(&commit),
            doing: &format!("Building the operator of {short} (several minutes, once)"),
        };
        let place = cache.get(entry, |place| {
            let sources = place.join("sources");
            check_out(&commit, &sources)?;
            let built = place.join("built");
            let programs = operator::compile_in(&sources, &built)?;
            operator::copy_programs(&programs, place)?;
            keep_manifests(&sources, place)?;
            [sources, built].iter().try_for_each(|directory| {
                fs::remove_dir_all(directory).with_context(|| format!("removing {}", directory.display()))
            })
        })?;
        Ok(Self { place })
    }

    /// Its image, under a name of its own.
    pub(crate) fn image(&self, cache: &Cache) -> Result<Image> {
        let reference = format!("docker.io/karst/operator:{TAG}");
        Ok(Image { reference, ..operator::image(cache, &self.place)? })
    }

    /// Where its manifests are: `crds` and `install`.
    pub(crate) fn manifests(&self) -> &Path {
        &self.place
    }
}

fn git() -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(paths::checkout());
    git
}

fn commit(revision: &str) -> Result<String> {
    let name = format!("{revision}^{{commit}}");
    let commit = command::output(git().args(["rev-parse", "--verify", "--end-of-options", &name]));
    let commit = commit.with_context(|| format!("{revision} is not a commit of this repository"))?;
    Ok(commit.trim().to_owned())
}

fn check_out(commit: &str, place: &Path) -> Result<()> {
    fs::create_dir(place)?;
    let archive = place.join("sources.tar");
    command::run(git().args(["archive", "--output"]).arg(&archive).arg(commit))?;
    command::run(Command::new("tar").arg("-C").arg(place).arg("-xf").arg(&archive))
}

fn keep_manifests(sources: &Path, place: &Path) -> Result<()> {
    ["crds", "install"].iter().try_for_each(|directory| {
        fs::rename(sources.join("deploy").join(directory), place.join(directory))
            .with_context(|| format!("keeping deploy/{directory}"))
    })
}
