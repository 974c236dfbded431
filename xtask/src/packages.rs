//! The Debian packages that the embedded Kubernetes stands on. What is there already, wherever it came from, is used as it is;
//! nothing is ever removed to make room for another.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command;
use crate::instance::configuration;
use crate::steps::step;

/// How it is known that what a package brings is there.
#[derive(Debug, Clone, Copy)]
enum Brings {
    Programs(&'static [&'static str]),
    CniPlugins,
}

const NEEDED: [(&str, Brings); 11] = [
    ("containerd", Brings::Programs(&["containerd", "containerd-shim-runc-v2", "ctr"])),
    ("runc", Brings::Programs(&["runc"])),
    ("containernetworking-plugins", Brings::CniPlugins),
    ("iproute2", Brings::Programs(&["ip"])),
    ("iptables", Brings::Programs(&["iptables"])),
    ("conntrack", Brings::Programs(&["conntrack"])),
    ("ethtool", Brings::Programs(&["ethtool"])),
    ("socat", Brings::Programs(&["socat"])),
    ("mount", Brings::Programs(&["mount"])),
    ("mmdebstrap", Brings::Programs(&["mmdebstrap"])),
    ("kcat", Brings::Programs(&["kcat"])),
];

const ELSEWHERE: &str = "The embedded Kubernetes runs on Debian and its relatives. Elsewhere, put these programs on the PATH, or use \
                         a cluster that you have: `cargo xtask up --context NAME`";

/// Why the missing packages cannot be had, as far as that can be told without changing anything.
pub(crate) fn obstacle() -> Option<String> {
    let missing = missing(is_there);
    if missing.is_empty() {
        return None;
    }
    if !command::exists("apt-get") {
        let names = missing.join(" ");
        return Some(format!(
            "these packages are missing and there is no apt-get to install them: {names}\n{ELSEWHERE}"
        ));
    }
    // Lists of packages that are not there yet are fetched before the installation, and it is asked again.
    let removed = removed_by_installing(&missing).unwrap_or_default();
    (!removed.is_empty()).then(|| removal(&missing, &removed))
}

/// Installs what is missing. Debian starts a containerd of its own with the package; it is not ours to
/// stop, and does not disturb us.
pub(crate) fn install_missing() -> Result<()> {
    let missing = missing(is_there);
    if missing.is_empty() {
        return Ok(());
    }
    step(format!("Installing the Debian packages {}", missing.join(" ")), || {
        apt_get(&["update", "-qq"])?;
        if let Some(obstacle) = obstacle() {
            bail!(obstacle);
        }
        // Should it come to that all the same, it is apt that refuses.
        let options = ["install", "-y", "-qq", "--no-install-recommends", "--no-remove"];
        apt_get(&[&options[..], missing.as_slice()].concat())
    })
}

fn missing(is_there: impl Fn(Brings) -> bool) -> Vec<&'static str> {
    NEEDED.iter().filter(|(_, brings)| !is_there(*brings)).map(|(package, _)| *package).collect()
}

fn is_there(brings: Brings) -> bool {
    match brings {
        Brings::Programs(names) => names.iter().all(|name| command::exists(name)),
        Brings::CniPlugins => configuration::cni_plugins().is_some(),
    }
}

/// What apt would remove for them. It says so without being root, and changes nothing.
fn removed_by_installing(packages: &[&str]) -> Result<Vec<String>> {
    let mut simulation = Command::new("apt-get");
    simulation.env("LC_ALL", "C").args(["install", "--simulate", "--no-install-recommends"]).args(packages);
    Ok(removals(&command::output(&mut simulation)?))
}

/// `Remv docker-ce [5:28.2.2-1~debian.12~bookworm]`
fn removals(simulated: &str) -> Vec<String> {
    let removed = simulated.lines().filter_map(|line| line.strip_prefix("Remv "));
    removed.filter_map(|rest| rest.split_whitespace().next()).map(str::to_owned).collect()
}

fn removal(missing: &[&str], removed: &[String]) -> String {
    let names = missing.join(" ");
    format!(
        "the Debian packages {names} are missing, and to install them would remove {}. Nothing was changed.\n\
         If you can do without those: `apt-get install {names}`, then run this again. If not: put the programs of \
         the missing packages on the PATH in another way, or use a cluster that you have: `cargo xtask up --context NAME`",
        removed.join(" ")
    )
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
        let has_all_but = |absent: &'static str| move |brings| !matches!(brings, Brings::Programs(names) if names.contains(&absent));
        assert_eq!(missing(has_all_but("kcat")), ["kcat"]);
        assert_eq!(missing(has_all_but("containerd-shim-runc-v2")), ["containerd"]);
        assert_eq!(missing(|_| true), Vec::<&str>::new());
        assert_eq!(missing(|_| false).len(), NEEDED.len());
    }

    #[test]
    fn what_would_be_removed_is_named_with_the_ways_to_go_on() {
        let simulated = "Reading package lists...\nThe following packages will be REMOVED:\n  containerd.io docker-ce\n\
            Remv docker-ce [5:28.2.2-1~debian.12~bookworm]\nRemv containerd.io [1.7.27-1]\n\
            Inst runc (1.1.5+ds1-1+deb12u1 Debian:12.10/stable [amd64])\nConf runc (1.1.5 Debian:12.10/stable [amd64])\n";
        let removed = removals(simulated);
        assert_eq!(removed, ["docker-ce", "containerd.io"]);
        let text = removal(&["runc"], &removed);
        assert!(text.contains("would remove docker-ce containerd.io. Nothing was changed."), "{text}");
        assert!(text.contains("`apt-get install runc`") && text.contains("--context"), "{text}");
        assert_eq!(removals("Inst runc (1.1.5)\n"), [""; 0]);
    }
}
