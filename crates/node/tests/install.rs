//! `karst-node install`, as the init container runs it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking, its helpers too")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const LAUNCHER: &str = env!("CARGO_BIN_EXE_karst-node");

fn install(target: &Path) -> Output {
    Command::new(LAUNCHER).arg("install").arg(target).output().unwrap()
}

#[test]
fn the_installed_launcher_is_whole_and_executable() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("karst-node");
    assert!(install(&target).status.success());
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o755);
    assert!(fs::read(&target).unwrap() == fs::read(LAUNCHER).unwrap(), "the copy differs");
    assert!(Command::new(&target).arg("--version").output().unwrap().status.success());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left behind");
}

#[test]
fn an_earlier_launcher_is_replaced_even_if_a_killed_install_left_its_half() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("karst-node");
    fs::write(&target, "an old one").unwrap();
    fs::write(dir.path().join("karst-node.partial"), "half of one").unwrap();
    assert!(install(&target).status.success());
    assert!(fs::read(&target).unwrap() == fs::read(LAUNCHER).unwrap(), "the copy differs");
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_missing_volume_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("missing").join("karst-node");
    let output = install(&target);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(&target.display().to_string()) && text.contains("mounted"), "{text}");
}

#[test]
fn the_agent_for_metrics_comes_along_when_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (launcher, agent) = (dir.path().join("karst-node"), dir.path().join("agent.jar"));
    let install = |from: &Path| {
        let mut command = Command::new(LAUNCHER);
        command.arg("install").arg(&launcher).arg("--agent").arg(&agent).env("KARST_AGENT", from);
        command.output().unwrap()
    };
    let missing = install(&dir.path().join("missing.jar"));
    assert_eq!(missing.status.code(), Some(1));
    let text = String::from_utf8_lossy(&missing.stdout);
    assert!(text.contains("missing.jar") && text.contains("image of the operator"), "{text}");

    let from = dir.path().join("from.jar");
    fs::write(&from, "classes").unwrap();
    assert!(install(&from).status.success());
    assert_eq!(fs::read_to_string(&agent).unwrap(), "classes");
    assert_eq!(fs::metadata(&agent).unwrap().permissions().mode() & 0o777, 0o644);
}
