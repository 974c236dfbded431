//! Processes of an instance: started in its control group, remembered by id and start time.

use std::fs::{self, File};
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
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(Self { pid, started: parse_stat(&stat)?.started })
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
        fs::read_to_string(format!("/proc/{}/stat", self.pid))
            .ok()
            .and_then(|stat| parse_stat(&stat))
            .is_some_and(|stat| stat.started == self.started && !stat.is_zombie)
    }
}

struct Stat {
    started: u64,
    is_zombie: bool,
}

fn parse_stat(stat: &str) -> Option<Stat> {
    // The second field is the program's name in parentheses, and may hold spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    // Field 22 of the line; the state was field 3.
    let started = fields.nth(18)?.parse().ok()?;
    Some(Stat { started, is_zombie })
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
        assert_eq!(stat.started, 12345);
        assert!(!stat.is_zombie);
    }
}
