//! Processes of an instance: started in its control group, remembered by id and start time.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// A process, told apart from a later one with the same id by the time at which it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub pid: u32,
    /// In clock ticks since the machine was started.
    started: u64,
}

impl Process {
    /// The process that has this id now.
    pub(crate) fn current(pid: u32) -> Option<Self> {
        Some(Self { pid, started: stat_of(pid)?.started })
    }

    pub(crate) fn recorded(file: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(file).ok()?).ok()
    }

    pub(crate) fn record(self, file: &Path) -> Result<()> {
        let text = serde_json::to_vec(&self)?;
        fs::write(file, text).with_context(|| format!("writing {}", file.display()))
    }

    /// The file that the process runs.
    pub(crate) fn program(self) -> Option<PathBuf> {
        self.is_alive().then(|| fs::read_link(format!("/proc/{}/exe", self.pid)).ok()).flatten()
    }

    pub(crate) fn is_alive(self) -> bool {
        stat_of(self.pid).is_some_and(|stat| stat.started == self.started && !stat.is_zombie)
    }
}

struct Stat {
    parent: u32,
    session: u32,
    started: u64,
    is_zombie: bool,
}

/// The descendants of a process that are still in its session.
pub(crate) fn below_in_session(ancestor: u32) -> Vec<Process> {
    let entries =
        fs::read_dir("/proc").map(|entries| entries.flatten().collect()).unwrap_or_else(|_| Vec::new());
    let ids = entries.iter().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let all: BTreeMap<u32, Stat> = ids.filter_map(|pid| Some((pid, stat_of(pid)?))).collect();
    let Some(session) = all.get(&ancestor).map(|stat| stat.session) else { return Vec::new() };
    let descends = |pid: &u32| {
        iter::successors(all.get(pid), |stat| all.get(&stat.parent)).any(|stat| stat.parent == ancestor)
    };
    let ours = all.iter().filter(|(pid, stat)| stat.session == session && descends(pid));
    ours.map(|(&pid, stat)| Process { pid, started: stat.started }).collect()
}

fn stat_of(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(stat: &str) -> Option<Stat> {
    // The second field is the program's name in parentheses, and may hold spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    // Field 6 of the line; the parent was field 4.
    let session = fields.nth(1)?.parse().ok()?;
    let started = fields.nth(15)?.parse().ok()?;
    Some(Stat { parent, session, started, is_zombie })
}

/// Starts a program that outlives us, in its own session, with its output in a log.
///
/// `membership` are the files to which it writes its own id before it becomes the program: the members'
/// lists of its control group in each hierarchy. Everything it starts inherits the membership.
pub(crate) fn start(program: &Command, membership: &[PathBuf], log: &Path) -> Result<Process> {
    let output = File::options()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("opening {}", log.display()))?;
    let errors = output.try_clone()?;
    start_with(program, membership, |command| {
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
    })
}

/// Like [`start`], with the caller's choice of standard input, output and error.
pub(crate) fn start_with(
    program: &Command,
    membership: &[PathBuf],
    wire: impl FnOnce(&mut Command),
) -> Result<Process> {
    let mut command = in_group(program, membership);
    wire(&mut command);
    let child = command.spawn().context("starting a process of the instance")?;
    Process::current(child.id()).context("a process of the instance ended at once")
}

/// The program behind a shell that joins the control group and then becomes the program.
fn in_group(program: &Command, membership: &[PathBuf]) -> Command {
    // Whoever became root by `su` may lack the directories in which Debian keeps ip, runc and iptables.
    const JOIN: &str = r#"while [ "$1" != -- ]; do echo $$ >"$1"; shift; done; shift
PATH=$PATH:/usr/sbin:/sbin exec "$@""#;
    let mut command = Command::new("setsid");
    command.args(["sh", "-euc", JOIN, "sh"]).args(membership).arg("--");
    command.arg(program.get_program()).args(program.get_args());
    command
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    #[test]
    fn a_running_process_is_alive_and_an_ended_one_is_not() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::current(child.id()).unwrap();
        assert!(process.is_alive());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.is_alive());
    }

    #[test]
    fn programs_are_found_below_their_ancestor_and_those_with_a_session_of_their_own_are_not() {
        const TREE: &str = "sleep 60 & setsid sleep 60 & echo; wait";
        let mut ancestor = Command::new("sh").args(["-c", TREE]).stdout(Stdio::piped()).spawn().unwrap();
        let said = ancestor.stdout.as_mut().unwrap();
        io::Read::read_exact(said, &mut [0]).unwrap();
        let below = || below_in_session(ancestor.id());
        let program = |process: &Process| fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap();
        // Until it is in its own session the other one is `setsid`, or still the shell.
        let deadline = Instant::now() + Duration::from_secs(20);
        while !below().iter().map(program).eq(["sleep\n"]) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let found = below();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(below_in_session(std::process::id()).iter().any(|process| process.pid == found[0].pid));
        let all = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        let children = all.filter(|pid| stat_of(*pid).is_some_and(|stat| stat.parent == ancestor.id()));
        for pid in children.collect::<Vec<u32>>() {
            kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
        }
        ancestor.wait().unwrap();
        assert_eq!(below_in_session(ancestor.id()), []);
    }

    #[test]
    fn another_process_with_the_same_id_is_not_mistaken_for_ours() {
        let us = Process::current(std::process::id()).unwrap();
        let before_us = Process { started: us.started - 1, ..us };
        assert!(us.is_alive());
        assert!(!before_us.is_alive());
    }

    #[test]
    fn names_with_parentheses_do_not_confuse_the_reader() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 0 0";
        let stat = parse_stat(stat).unwrap();
        assert_eq!((stat.parent, stat.session, stat.started), (1, 7, 12345));
        assert!(!stat.is_zombie);
    }
}
