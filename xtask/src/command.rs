//! Runs other programs, and turns their failures into messages that say what was run and what it said.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

use crate::interrupt;

/// How much of a failed program's output is worth showing.
const SHOWN_LINES: usize = 25;

/// Runs a program and returns its standard output. What it wrote is shown only when it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    interrupt::check()?;
    let result = command.stdin(Stdio::null()).output().with_context(|| cannot_start(command))?;
    if !result.status.success() {
        let said = [result.stdout, result.stderr].concat();
        bail!(failure(command, result.status, &String::from_utf8_lossy(&said)));
    }
    String::from_utf8(result.stdout)
        .with_context(|| format!("`{}` wrote something that is not UTF-8", shown(command)))
}

/// Runs a program whose output does not matter unless it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// Runs a program that talks to the user directly, and returns how it ended.
pub(crate) fn interactive(command: &mut Command) -> Result<ExitStatus> {
    interrupt::check()?;
    command.status().with_context(|| cannot_start(command))
}

/// Like [`interactive`], for programs whose failure is ours.
pub(crate) fn run_visibly(command: &mut Command) -> Result<()> {
    let status = interactive(command)?;
    if !status.success() {
        bail!("`{}` failed ({status})", shown(command));
    }
    Ok(())
}

/// Runs a program and feeds it through its standard input.
pub(crate) fn run_with_input(
    command: &mut Command,
    feed: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    interrupt::check()?;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| cannot_start(command))?;
    let fed = match child.stdin.take() {
        Some(mut input) => feed(&mut input),
        None => Ok(()),
    };
    let result = child.wait_with_output()?;
    if !result.status.success() {
        // The program's own words explain more than the broken pipe that followed from its end.
        let said = [result.stdout, result.stderr].concat();
        bail!(failure(command, result.status, &String::from_utf8_lossy(&said)));
    }
    fed
}

/// Where Debian keeps ip, runc and iptables. Whoever became root by `su` may lack it on the PATH, and need not have it there.
const OF_ADMINISTRATORS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Whether a program of this name is on the PATH.
pub(crate) fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let beside = OF_ADMINISTRATORS.iter().map(PathBuf::from);
    std::env::split_paths(&path).chain(beside).any(|directory| directory.join(program).is_file())
}

/// The last lines of a log, for error messages.
pub(crate) fn tail(file: &Path) -> String {
    match std::fs::read(file) {
        Ok(bytes) => last_lines(&String::from_utf8_lossy(&bytes)),
        Err(error) => format!("({} cannot be read: {error})", file.display()),
    }
}

fn cannot_start(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    format!("`{program}` cannot be started: is it installed and on the PATH?")
}

fn failure(command: &Command, status: ExitStatus, said: &str) -> String {
    let said = last_lines(said);
    if said.is_empty() {
        format!("`{}` failed ({status}) without a word", shown(command))
    } else {
        format!("`{}` failed ({status}):\n{said}", shown(command))
    }
}

fn shown(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_carries_the_programs_own_words() {
        let error = run(Command::new("sh").args(["-c", "echo the disk is full >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("the disk is full"), "{error}");
    }

    #[test]
    fn programs_are_found_wherever_they_are_on_the_path() {
        assert!(exists("sh") && exists("ls"));
        assert!(!exists("no-such-program-here"));
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run(&mut Command::new("no-such-program-here")).unwrap_err();
        assert!(error.to_string().contains("no-such-program-here"), "{error}");
    }

    #[test]
    fn input_reaches_the_program_even_when_it_is_large() {
        let mut command = Command::new("sh");
        command.args(["-c", "test $(wc -c) -eq 1000000"]);
        run_with_input(&mut command, |input| Ok(input.write_all(&vec![b'x'; 1_000_000])?)).unwrap();
    }

    #[test]
    fn only_the_last_lines_are_shown() {
        let text: String = (0..100).map(|n| format!("line {n}\n")).collect();
        let shown = last_lines(&text);
        assert_eq!(shown.lines().count(), SHOWN_LINES);
        assert!(shown.ends_with("line 99"));
    }
}
