//! Talks to a cluster through `kubectl`: the embedded one, or one that the user has.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::binaries::Binaries;
use crate::command;
use crate::instance::Instance;

/// Who owns the fields that we apply.
const FIELD_MANAGER: &str = "karst-xtask";

#[derive(Debug, Clone)]
pub(crate) struct Kubectl {
    program: PathBuf,
    options: Vec<OsString>,
}

impl Kubectl {
    pub(crate) fn of_instance(instance: &Instance, binaries: &Binaries) -> Self {
        let mut kubeconfig = OsString::from("--kubeconfig=");
        kubeconfig.push(instance.kubeconfig());
        Self { program: binaries.program("kubectl"), options: vec![kubeconfig] }
    }

    /// The user's own kubectl, with a context of the user's own kubeconfig.
    pub(crate) fn of_context(context: &str) -> Self {
        Self { program: PathBuf::from("kubectl"), options: vec![format!("--context={context}").into()] }
    }

    pub(crate) fn command<I>(&self, arguments: I) -> Command
    where
        I: IntoIterator<Item: AsRef<OsStr>>,
    {
        let mut command = Command::new(&self.program);
        command.args(&self.options).args(arguments);
        command
    }

    pub(crate) fn output<I>(&self, arguments: I) -> Result<String>
    where
        I: IntoIterator<Item: AsRef<OsStr>>,
    {
        command::output(&mut self.command(arguments))
    }

    pub(crate) fn json<I>(&self, arguments: I) -> Result<Value>
    where
        I: IntoIterator<Item: AsRef<OsStr>>,
    {
        let mut command = self.command(arguments);
        command.args(["-o", "json"]);
        serde_json::from_str(&command::output(&mut command)?).context("kubectl answered with broken JSON")
    }

    /// Applies files on the server's side, taking over fields that somebody else set before.
    pub(crate) fn apply(&self, files: &[PathBuf]) -> Result<()> {
        let mut command = self.apply_command();
        for file in files {
            command.arg("-f").arg(file);
        }
        command::run(&mut command)
    }

    pub(crate) fn apply_text(&self, manifest: &str) -> Result<()> {
        self.apply_input(&[], manifest)
    }

    /// Applies objects in a namespace; those that name another one are refused.
    pub(crate) fn apply_text_in(&self, namespace: &str, manifest: &str) -> Result<()> {
        self.apply_input(&["--namespace", namespace], manifest)
    }

    fn apply_input(&self, options: &[&str], manifest: &str) -> Result<()> {
        let mut command = self.apply_command();
        command.args(options).args(["-f", "-"]);
        command::run_with_input(&mut command, |input| Ok(input.write_all(manifest.as_bytes())?))
    }

    fn apply_command(&self) -> Command {
        self.command([
            "apply",
            "--server-side",
            "--force-conflicts",
            &format!("--field-manager={FIELD_MANAGER}"),
        ])
    }
}
