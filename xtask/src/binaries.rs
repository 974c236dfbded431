//! The Go programs of the embedded Kubernetes, built from the modules in `local/`.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::{Cache, Entry};
use crate::hash::Hasher;
use crate::{command, paths};

/// Everything that `local/kubernetes` can be called as.
const NAMES: [&str; 9] = [
    "etcd",
    "identities",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "volume-provisioner",
];

/// Where the programs are after a build.
#[derive(Debug, Clone)]
pub(crate) struct Binaries {
    kubernetes: PathBuf,
    coredns: PathBuf,
    pause: PathBuf,
}

impl Binaries {
    /// Builds what the cache does not have.
    pub(crate) fn build(cache: &Cache) -> Result<Self> {
        Ok(Self { kubernetes: kubernetes(cache)?, coredns: coredns(cache)?, pause: pause(cache)? })
    }

    /// The program of the given name: `etcd`, `kubelet`, `kubectl`, `coredns`, …
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        match name {
            "coredns" => self.coredns.join(name),
            "pause" => self.pause.join(name),
            _ => self.kubernetes.join(name),
        }
    }
}

fn kubernetes(cache: &Cache) -> Result<PathBuf> {
    let source = paths::checkout().join("local/kubernetes");
    let version = required_version(&source, "k8s.io/kubernetes")?;
    let flags = version_flags(&version)?;
    let entry = Entry {
        name: &format!("kubernetes-{version}"),
        key: sources(&source)?.part(&flags),
        doing: &format!("Building Kubernetes {version} (about 10 minutes, once)"),
    };
    cache.get(entry, |place| {
        go_build(&source, &place.join("kubernetes"), &flags)?;
        for name in NAMES {
            symlink("kubernetes", place.join(name))?;
        }
        Ok(())
    })
}

/// The linker's flags that tell the programs their version. Without, they are "v0.0.0-master", and the
/// API server and the kubelet find each other too far apart.
fn version_flags(version: &str) -> Result<String> {
    let (major, minor) = major_and_minor(version)?;
    let flags = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"].map(|package| {
        format!(
            "-X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
        )
    });
    Ok(flags.join(" "))
}

fn coredns(cache: &Cache) -> Result<PathBuf> {
    let source = paths::checkout().join("local/coredns");
    let version = required_version(&source, "github.com/coredns/coredns")?;
    let entry = Entry {
        name: &format!("coredns-{version}"),
        key: sources(&source)?,
        doing: &format!("Building CoreDNS {version} (about 3 minutes, once)"),
    };
    cache.get(entry, |place| go_build(&source, &place.join("coredns"), ""))
}

fn pause(cache: &Cache) -> Result<PathBuf> {
    let source = paths::checkout().join("local/pause");
    let entry = Entry { name: "pause", key: sources(&source)?, doing: "Building the pause program" };
    cache.get(entry, |place| go_build(&source, &place.join("pause"), ""))
}

fn sources(directory: &Path) -> Result<Hasher> {
    Hasher::default().tree(directory)
}

fn go_build(source: &Path, target: &Path, flags: &str) -> Result<()> {
    if !command::exists("go") {
        bail!("Go is needed to build {} and is not on the PATH: install Go 1.24 or newer", source.display());
    }
    command::run(
        Command::new("go")
            .current_dir(source)
            .env("CGO_ENABLED", "0")
            .args(["build", "-buildvcs=false", "-ldflags", &format!("-s -w {flags}"), "-o"])
            .arg(target)
            .arg("."),
    )
}

/// The version that a `go.mod` requires of a module.
fn required_version(source: &Path, module: &str) -> Result<String> {
    let path = source.join("go.mod");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    find_version(&text, module)
        .map(str::to_owned)
        .with_context(|| format!("{} does not require {module}", path.display()))
}

fn find_version<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        (words.next() == Some(module)).then(|| words.next()).flatten()
    })
}

fn major_and_minor(version: &str) -> Result<(&str, &str)> {
    let mut numbers = version.trim_start_matches('v').split('.');
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => Ok((major, minor)),
        _ => bail!("{version:?} is not a version like v1.34.4"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_in_both_forms_of_require() {
        let block = "module x\n\nrequire (\n\tk8s.io/kubectl v0.0.0\n\tk8s.io/kubernetes v1.34.4\n)\n";
        assert_eq!(find_version(block, "k8s.io/kubernetes"), Some("v1.34.4"));
        let line = "require github.com/coredns/coredns v1.14.7\n";
        assert_eq!(find_version(line, "github.com/coredns/coredns"), Some("v1.14.7"));
        assert_eq!(find_version(line, "github.com/coredns"), None);
    }

    #[test]
    fn the_checkout_says_which_versions_it_builds() {
        let kubernetes = paths::checkout().join("local/kubernetes");
        let version = required_version(&kubernetes, "k8s.io/kubernetes").unwrap();
        assert_eq!(major_and_minor(&version).unwrap(), ("1", "34"));
    }
}
