//! The control group of an instance. The kernel puts every descendant of a member into it, so it is
//! the complete list of what the instance started: servers, container shims, and the pods' processes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// The group for the instance's own servers, beside the pods' groups that the kubelet makes.
const SERVERS: &str = "servers";

/// A killed process is gone in milliseconds; one that hangs in a broken disk may never be.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Cgroup {
    name: String,
}

impl Cgroup {
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn exists(&self) -> bool {
        hierarchies().is_ok_and(|all| all.iter().any(|hierarchy| hierarchy.join(&self.name).exists()))
    }

    /// Makes the group in every hierarchy: one with control groups version 2, one for each controller
    /// with version 1, where the kubelet wants its root to exist everywhere.
    pub(crate) fn create(&self) -> Result<()> {
        for hierarchy in hierarchies()? {
            let group = hierarchy.join(&self.name);
            for directory in [group.clone(), group.join(SERVERS)] {
                fs::create_dir_all(&directory)
                    .with_context(|| format!("creating {}", directory.display()))?;
                inherit_cpuset(&directory)?;
            }
        }
        Ok(())
    }

    /// The files to which a process writes its id to become a member.
    pub(crate) fn membership(&self) -> Result<Vec<PathBuf>> {
        let file = Path::new(&self.name).join(SERVERS).join("cgroup.procs");
        Ok(hierarchies()?.into_iter().map(|hierarchy| hierarchy.join(&file)).collect())
    }

    /// Kills every member, then removes the group.
    pub(crate) fn end(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let groups: Vec<_> = hierarchies()?.into_iter().map(|hierarchy| hierarchy.join(&self.name)).collect();
        loop {
            let members: BTreeSet<_> = groups.iter().flat_map(|group| members(group)).collect();
            // Members may start others between the reading and the killing: look again until none is left.
            if members.is_empty() && groups.iter().all(|group| remove(group)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("processes {members:?} of {} do not end although they were killed", self.name);
            }
            for member in members.into_iter().filter_map(Pid::from_raw) {
                // It may be gone already, which is what we want.
                let _ = kill_process(member, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Whether groups can be made here, and hold what the kubelet needs.
pub(crate) fn usable() -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("reading the list of mounts")?;
    let hierarchies = hierarchies()?;
    if let Some(place) = read_only(&mounts) {
        bail!(
            "control groups are mounted read-only at {place}: a container has to be privileged to run Kubernetes"
        );
    }
    // With version 2 alone one hierarchy has all controllers; with version 1 each of them has its own.
    if let [only] = hierarchies.as_slice() {
        let controllers = fs::read_to_string(only.join("cgroup.controllers")).unwrap_or_default();
        let missing = missing_controllers(&controllers);
        if !missing.is_empty() {
            bail!("the control groups at {} lack the controllers {}", only.display(), missing.join(", "));
        }
    }
    Ok(())
}

fn missing_controllers(present: &str) -> Vec<&'static str> {
    const NEEDED: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];
    NEEDED.into_iter().filter(|needed| !present.split_whitespace().any(|one| one == *needed)).collect()
}

fn read_only(mounts: &str) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (place, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        let is_group = matches!(kind, "cgroup" | "cgroup2");
        (is_group && options.split(',').any(|option| option == "ro")).then_some(place)
    })
}

fn hierarchies() -> Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("reading the list of mounts")?;
    let found = parse_hierarchies(&mounts);
    if found.is_empty() {
        bail!("no control groups are mounted on this machine: Kubernetes cannot run without them");
    }
    Ok(found)
}

fn parse_hierarchies(mounts: &str) -> Vec<PathBuf> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let (place, kind) = (fields.nth(1)?, fields.next()?);
            matches!(kind, "cgroup" | "cgroup2").then(|| PathBuf::from(place))
        })
        .collect()
}

/// With version 1 a new group has no processors and no memory nodes, and takes no members until it has.
fn inherit_cpuset(group: &Path) -> Result<()> {
    let Some(parent) = group.parent() else { return Ok(()) };
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (from, to) = (parent.join(file), group.join(file));
        let is_empty = fs::read_to_string(&to).is_ok_and(|text| text.trim().is_empty());
        if is_empty && from.exists() {
            fs::write(&to, fs::read(&from)?).with_context(|| format!("writing {}", to.display()))?;
        }
    }
    Ok(())
}

/// The processes in a group and in the groups below it.
fn members(group: &Path) -> Vec<i32> {
    let own = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut all: Vec<i32> = own.lines().filter_map(|line| line.parse().ok()).collect();
    for below in subgroups(group) {
        all.extend(members(&below));
    }
    all
}

/// Removes a group and those below it; tells whether it is gone.
fn remove(group: &Path) -> bool {
    for below in subgroups(group) {
        remove(&below);
    }
    fs::remove_dir(group).is_ok() || !group.exists()
}

fn subgroups(group: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(group) else { return Vec::new() };
    entries.filter_map(std::io::Result::ok).map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_control_groups_are_found() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let expected: Vec<_> =
            ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/unified"].into_iter().map(PathBuf::from).collect();
        assert_eq!(parse_hierarchies(mounts), expected);
    }
    #[test]
    fn groups_that_cannot_be_written_are_found() {
        let mounts = "cgroup2 /sys/fs/cgroup cgroup2 ro,nosuid,nodev 0 0\n";
        assert_eq!(read_only(mounts), Some("/sys/fs/cgroup"));
        assert_eq!(read_only("proc /proc proc ro 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,ro_not 0 0\n"), None);
        assert_eq!(missing_controllers("cpuset cpu io memory hugetlb pids rdma\n"), [""; 0]);
        assert_eq!(missing_controllers("cpu io\n"), ["cpuset", "memory", "pids"]);
    }
}
