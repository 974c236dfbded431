//! The embedded Kubernetes, from the first process to the loaded images.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::binaries::Binaries;
use crate::cache::Cache;
use crate::earlier::Earlier;
use crate::images;
use crate::instance::{Instance, components, configuration, namespaces};
use crate::kubectl::Kubectl;
use crate::steps::{note, step};
use crate::{packages, preflight};

/// An instance that runs, with what is needed to go on with it.
#[derive(Debug)]
pub(crate) struct Running {
    pub kubectl: Kubectl,
    pub binaries: Binaries,
    instance: Instance,
}

/// Builds what is not in the cache, starts what does not run, and loads the images of Kafka.
/// The caller has looked whether it can end well ([`preflight::check`]), and holds the instance's lock for as long as it changes the instance.
pub(crate) fn start(instance: &Instance, lock: &crate::instance::Lock) -> Result<Running> {
    let cache = Cache::open()?;
    packages::install_missing()?;
    let binaries = Binaries::build(&cache)?;
    let foundation = images::foundation(&cache, &binaries)?;
    if instance.is_up() {
        if components::is_outdated(instance, &binaries) {
            note("it runs a Kubernetes built from other sources; `cargo xtask down` and `up` renew it");
        }
    } else {
        step(format!("Making the namespaces of {}", instance.name()), || {
            instance.prepare(lock)?;
            configuration::write(instance)?;
            components::write_identities(instance, &binaries)?;
            namespaces::create(instance)
        })?;
    }
    let kubectl = components::start(instance, &binaries)?;
    step("Loading the images of Kafka", || images::load(instance, &foundation))?;
    Ok(Running { kubectl, binaries, instance: instance.clone() })
}

/// Whether the instance has an operator that it did not have before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperatorImage {
    New,
    Unchanged,
}

impl Running {
    /// Makes more versions of Kafka available than every instance has.
    pub(crate) fn load_kafka(&self, versions: &[&str]) -> Result<()> {
        if versions.is_empty() {
            return Ok(());
        }
        let images = images::kafka::images(&Cache::open()?, versions)?;
        step("Loading more versions of Kafka", || images::load(&self.instance, &images)).map(drop)
    }

    /// Builds the operator of an earlier commit and loads its image.
    pub(crate) fn load_earlier(&self, revision: &str) -> Result<Earlier> {
        let cache = Cache::open()?;
        let earlier = Earlier::build(&cache, revision)?;
        let image = earlier.image(&cache)?;
        step(format!("Loading the operator of {revision}"), || images::load(&self.instance, &[image]))?;
        Ok(earlier)
    }

    /// Compiles the operator of this checkout and loads its image.
    pub(crate) fn load_operator(&self) -> Result<OperatorImage> {
        let programs = step("Compiling the operator and the launcher", images::operator::compile)?;
        let image = images::operator::image(&Cache::open()?, &programs)?;
        let new = step("Loading the operator's image", || images::load(&self.instance, &[image]))?;
        Ok(if new.is_empty() { OperatorImage::Unchanged } else { OperatorImage::New })
    }
}

/// A program of the user, or a test: inside the namespaces, with all it needs to find its way there.
pub(crate) fn guest(
    instance: &Instance,
    binaries: &Binaries,
    directory: &Path,
    program: impl AsRef<OsStr>,
) -> Result<Command> {
    let mut command = namespaces::inside_at(instance, directory, program)?;
    command
        .env("KUBECONFIG", instance.inside_kubeconfig())
        .env("KARST_AUDIT_LOG", instance.audit_log())
        .env("PATH", path_with(binaries)?);
    Ok(command)
}

/// A PATH on which kubectl, of the right version, is found.
fn path_with(binaries: &Binaries) -> Result<OsString> {
    let ours = binaries.program("kubectl").parent().map(Path::to_path_buf);
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(ours.into_iter().chain(std::env::split_paths(&path)))
        .context("putting kubectl on the PATH")
}

/// Ends an instance and removes all it has.
pub(crate) fn stop(instance: &Instance) -> Result<()> {
    preflight::require_root()?;
    let _lock = instance.lock()?;
    if !instance.exists() {
        note(format!("there is no instance {}", instance.name()));
        return Ok(());
    }
    step(format!("Stopping {} and removing all it has", instance.name()), || instance.remove())
}
