//! `karst-node install`: puts the launcher, and what Kafka needs beside it, where the Kafka container will find it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use thiserror::Error;

/// The running executable, even when its file was renamed meanwhile.
const OWN_EXECUTABLE: &str = "/proc/self/exe";

const EXECUTABLE_MODE: u32 = 0o755;
const DATA_MODE: u32 = 0o644;

/// What is needed beside Kafka could not be installed.
#[derive(Debug, Error)]
pub enum InstallError {
    #[error(
        "cannot install the launcher as {target}: {source}; check that the volume is mounted, writable and not full"
    )]
    Target { target: String, source: io::Error },
    #[error(
        "cannot read {agent}, the agent that serves Kafka's metrics: {source}; use an image of the operator that has it"
    )]
    NoAgent { agent: String, source: io::Error },
}

/// Copies the running executable. A half-written file is never seen under the final name, and doing it again is harmless.
///
/// # Errors
/// When the target's directory is missing, read-only or full.
pub fn install(target: &Path) -> Result<(), InstallError> {
    copy_as_a_whole(Path::new(OWN_EXECUTABLE), target, EXECUTABLE_MODE)
}

/// Copies the agent that serves Kafka's metrics, in the same way.
///
/// # Errors
/// When the image has no agent, or as with [`install`].
pub fn install_agent(agent: &Path, target: &Path) -> Result<(), InstallError> {
    File::open(agent)
        .map_err(|source| InstallError::NoAgent { agent: agent.display().to_string(), source })?;
    copy_as_a_whole(agent, target, DATA_MODE)
}

fn copy_as_a_whole(from: &Path, target: &Path, mode: u32) -> Result<(), InstallError> {
    let temporary = temporary_beside(target);
    let result = copy(from, &temporary, mode).and_then(|()| fs::rename(&temporary, target));
    result.map_err(|source| {
        // Best effort: what matters is the error that is returned, and the next attempt overwrites the file anyway.
        let _ = fs::remove_file(&temporary);
        InstallError::Target { target: target.display().to_string(), source }
    })
}

fn temporary_beside(target: &Path) -> std::path::PathBuf {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    target.with_file_name(name)
}

fn copy(from: &Path, to: &Path, mode: u32) -> io::Result<()> {
    let mut from = File::open(from)?;
    let mut to = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(to)?;
    io::copy(&mut from, &mut to)?;
    // The mode given at creation is subject to the umask, and is not applied to a file that exists.
    to.set_permissions(Permissions::from_mode(mode))
}
