//! `karst-node install`: puts the launcher where the Kafka container will find it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use thiserror::Error;

/// The running executable, even when its file was renamed meanwhile.
const OWN_EXECUTABLE: &str = "/proc/self/exe";

const EXECUTABLE_MODE: u32 = 0o755;

/// The launcher could not be installed.
#[derive(Debug, Error)]
#[error(
    "cannot install the launcher as {target}: {source}; check that the volume is mounted, writable and not full"
)]
pub struct InstallError {
    target: String,
    source: io::Error,
}

/// Copies the running executable. A half-written file is never seen under the final name, and doing it again is harmless.
///
/// # Errors
/// When the target's directory is missing, read-only or full.
pub fn install(target: &Path) -> Result<(), InstallError> {
    let temporary = temporary_beside(target);
    let result = copy_executable(&temporary).and_then(|()| fs::rename(&temporary, target));
    result.map_err(|source| {
        // Best effort: what matters is the error that is returned, and the next attempt overwrites the file anyway.
        let _ = fs::remove_file(&temporary);
        InstallError { target: target.display().to_string(), source }
    })
}

fn temporary_beside(target: &Path) -> std::path::PathBuf {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    target.with_file_name(name)
}

fn copy_executable(to: &Path) -> io::Result<()> {
    let mut from = File::open(OWN_EXECUTABLE)?;
    let mut to = OpenOptions::new().write(true).create(true).truncate(true).mode(EXECUTABLE_MODE).open(to)?;
    io::copy(&mut from, &mut to)?;
    // The mode given at creation is subject to the umask, and is not applied to a file that exists.
    to.set_permissions(Permissions::from_mode(EXECUTABLE_MODE))
}
