//! The Debian packages that the embedded Kubernetes stands on.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command;
use crate::steps::step;

/// Each package, with a file by which its presence is known.
const NEEDED: [(&str, &str); 11] = [
    ("containerd", "/usr/bin/containerd"),
    ("runc", "/usr/sbin/runc"),
    ("containernetworking-plugins", "/usr/lib/cni/bridge"),
    ("iproute2", "/usr/sbin/ip"),
    ("iptables", "/usr/sbin/iptables"),
    ("conntrack", "/usr/sbin/conntrack"),
    ("ethtool", "/usr/sbin/ethtool"),
    ("socat", "/usr/bin/socat"),
    ("mount", "/usr/bin/mount"),
    ("mmdebstrap", "/usr/bin/mmdebstrap"),
    ("kcat", "/usr/bin/kcat"),
];

/// Installs what is missing. Debian starts a containerd of its own with the package; it is not ours to
/// stop, and does not disturb us.
pub(crate) fn install_missing() -> Result<()> {
    let missing = missing(|file| std::path::Path::new(file).exists());
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if !command::exists("apt-get") {
        bail!(
            "these programs are missing and there is no apt-get to install them: {names}\n\
             The embedded Kubernetes runs on Debian and its relatives. Elsewhere, use a cluster that you have: \
             `cargo xtask up --context NAME`"
        );
    }
    step(format!("Installing the Debian packages {names}"), || {
        apt_get(&["update", "-qq"])?;
        apt_get(&[&["install", "-y", "-qq", "--no-install-recommends"], missing.as_slice()].concat())
    })
}

fn missing(is_there: impl Fn(&str) -> bool) -> Vec<&'static str> {
    NEEDED.iter().filter(|(_, file)| !is_there(file)).map(|(package, _)| *package).collect()
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    command::run(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(arguments))
        .context("Debian packages cannot be installed; try it by hand, then run this again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_installed() {
        assert_eq!(missing(|file| !file.ends_with("kcat")), ["kcat"]);
        assert_eq!(missing(|_| true), Vec::<&str>::new());
        assert_eq!(missing(|_| false).len(), NEEDED.len());
    }
}
