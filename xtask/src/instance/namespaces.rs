//! The network and the mount namespace of an instance.
//!
//! One process makes and holds them; every other process of the instance joins them. There is no route
//! out of the network, so nothing that runs inside can load anything but itself.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::{Instance, configuration, process};
use crate::command;

/// The component that holds the namespaces.
pub(crate) const HOLDER: &str = "namespaces";

const SCRIPT: &str = include_str!("../../../local/config/namespaces.sh");

/// Makes the namespaces and returns when they are set up.
pub(crate) fn create(instance: &Instance) -> Result<()> {
    let resolv_conf = instance.state().join("config/resolv.conf");
    let mut program = Command::new("unshare");
    program
        .args(["--net", "--mount", "--propagation", "slave", "sh", "-euc", SCRIPT, HOLDER])
        .args([configuration::BRIDGE, configuration::GATEWAY_WITH_MASK, configuration::SERVICES])
        .arg(&resolv_conf);

    let log = instance.log(HOLDER);
    let errors = std::fs::File::create(&log).with_context(|| format!("creating {}", log.display()))?;
    let (said, says) = std::io::pipe()?;
    let membership = instance.cgroup().membership()?;
    let holder = process::start_with(&program, &membership, |command| {
        command.stdin(Stdio::null()).stdout(says).stderr(errors);
    })?;
    holder.record(&instance.record(HOLDER))?;

    // The line comes when all is set up; the end of the stream without it means that something failed.
    let mut line = String::new();
    BufReader::new(said).read_line(&mut line)?;
    if line.trim() != "ready" {
        bail!("the namespaces of {} cannot be set up:\n{}", instance.name(), command::tail(&log));
    }
    Ok(())
}

/// A program to run inside the namespaces, as a command that the caller can still add arguments to.
pub(crate) fn inside(instance: &Instance, program: impl AsRef<OsStr>) -> Result<Command> {
    inside_at(instance, &std::env::current_dir()?, program)
}

/// Like [`inside`], in the given working directory.
pub(crate) fn inside_at(
    instance: &Instance,
    directory: &Path,
    program: impl AsRef<OsStr>,
) -> Result<Command> {
    let Some(holder) = instance.process(HOLDER).filter(|holder| holder.is_alive()) else {
        bail!("the instance {} is not running: start it with `cargo xtask up`", instance.name());
    };
    let namespace = |kind: &str| PathBuf::from(format!("/proc/{}/ns/{kind}", holder.pid));
    let mut command = Command::new("nsenter");
    command
        .arg(option("--net=", &namespace("net")))
        .arg(option("--mount=", &namespace("mnt")))
        .arg("--")
        // Entering a mount namespace moves to its root.
        .arg("env")
        .arg(option("--chdir=", directory))
        .arg(program);
    Ok(command)
}

fn option(name: &str, value: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(value);
    option
}
