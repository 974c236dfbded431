//! An instance of the embedded Kubernetes: one node with everything it needs, found by its name.
//!
//! All of an instance lives in four places that carry its name: a state directory, a control group, and
//! a network and a mount namespace that exist as long as its processes do. Ending the processes in the
//! control group and removing the directory therefore leaves nothing behind, whatever happened before.

pub(crate) mod cgroup;
pub(crate) mod components;
pub(crate) mod configuration;
pub(crate) mod forward;
pub(crate) mod namespaces;
pub(crate) mod process;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::paths;
use cgroup::Cgroup;
use process::Process;

/// The name of an instance, fit for file names, control groups and host names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name(String);

impl std::str::FromStr for Name {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let ends_well = !text.starts_with('-') && !text.ends_with('-');
        if text.is_empty() || text.len() > 30 || !text.chars().all(allowed) || !ends_well {
            bail!("{text:?} is not a name: use 1 to 30 lower-case letters, digits and inner dashes");
        }
        Ok(Self(text.to_owned()))
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Instance {
    name: Name,
    state: PathBuf,
}

/// Held while an instance is being changed, so that two runs do not change it at once.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Instance {
    pub(crate) fn named(name: &Name) -> Result<Self> {
        Ok(Self { name: name.clone(), state: paths::state()?.join(&name.0) })
    }

    /// Every instance that has a state directory, running or not.
    pub(crate) fn all() -> Result<Vec<Self>> {
        let Ok(entries) = fs::read_dir(paths::state()?) else { return Ok(Vec::new()) };
        let mut names: Vec<Name> = entries
            .filter_map(std::io::Result::ok)
            .filter(|entry| entry.path().is_dir())
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        names.sort_by(|a, b| a.0.cmp(&b.0));
        names.iter().map(Self::named).collect()
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    pub(crate) fn cgroup(&self) -> Cgroup {
        Cgroup::named(&format!("karst-{}", self.name))
    }

    /// The kubeconfig for the user of this machine.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.state.join("kubeconfig")
    }

    /// The kubeconfig for programs that run inside the instance's namespaces.
    pub(crate) fn inside_kubeconfig(&self) -> PathBuf {
        self.identities().join("admin.kubeconfig")
    }

    pub(crate) fn identities(&self) -> PathBuf {
        self.state.join("identities")
    }

    pub(crate) fn log(&self, component: &str) -> PathBuf {
        self.state.join("logs").join(format!("{component}.log"))
    }

    /// The API server's record of who asked for what.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.log("audit")
    }

    /// Whether the namespaces exist, in which case everything else can be started or healed in them.
    pub(crate) fn is_up(&self) -> bool {
        self.process(namespaces::HOLDER).is_some_and(Process::is_alive)
    }

    /// What was recorded when a component was started.
    pub(crate) fn process(&self, component: &str) -> Option<Process> {
        Process::recorded(&self.record(component))
    }

    fn record(&self, component: &str) -> PathBuf {
        self.state.join("processes").join(format!("{component}.json"))
    }

    pub(crate) fn lock(&self) -> Result<Lock> {
        let root = paths::state()?;
        fs::create_dir_all(&root).with_context(|| {
            format!("{} cannot be made; set XDG_STATE_HOME to a place that can be written", root.display())
        })?;
        // The file stays when the instance goes: removing a lock that others may be opening is a race.
        let path = root.join(format!("{}.lock", self.name));
        let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
        if file.try_lock().is_err() {
            bail!("another run is changing the instance {}: wait for it, or use another --name", self.name);
        }
        Ok(Lock { _file: file })
    }

    /// Whether there is anything of this instance, running or left behind.
    pub(crate) fn exists(&self) -> bool {
        self.state.exists() || self.cgroup().exists()
    }

    /// Makes an empty instance, after removing whatever a run that was killed left behind.
    pub(crate) fn prepare(&self, _lock: &Lock) -> Result<()> {
        self.remove()?;
        for directory in ["config/cni", "logs", "pods", "processes", "volumes"] {
            let path = self.state.join(directory);
            fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        }
        self.cgroup().create()
    }

    /// Ends every process of the instance and removes all it has, in any state it may be in.
    pub(crate) fn remove(&self) -> Result<()> {
        // Their namespaces, and with them all mounts, interfaces and rules, end with the last process.
        self.cgroup().end()?;
        if self.state.exists() {
            fs::remove_dir_all(&self.state).with_context(|| format!("removing {}", self.state.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_everywhere_they_are_used() {
        for good in ["karst", "test-1a2b3c", "a"] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a/b", "..", "a.b", "a b", &"a".repeat(31)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }
}
