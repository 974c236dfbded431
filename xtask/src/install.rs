//! Puts Karst into a cluster: the definitions of its resources, and the operator.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::kubectl::Kubectl;
use crate::local::OperatorImage;
use crate::paths;
use crate::steps::step;

const NAMESPACE: &str = "--namespace=karst-system";
const DEPLOYMENT: &str = "deployment/karst-operator";

pub(crate) fn resource_definitions(kubectl: &Kubectl) -> Result<()> {
    step("Installing the custom resource definitions", || {
        let files = manifests("deploy/crds")?;
        kubectl.apply(&files)?;
        let mut wait = kubectl.command(["wait", "--for=condition=Established", "--timeout=60s"]);
        for file in &files {
            wait.arg("-f").arg(file);
        }
        crate::command::run(&mut wait)
    })
}

/// Installs the operator, and starts it anew when its image changed under the same name.
pub(crate) fn operator(kubectl: &Kubectl, image: OperatorImage) -> Result<()> {
    step("Installing the operator", || {
        let was_there = kubectl.output(["get", DEPLOYMENT, NAMESPACE]).is_ok();
        kubectl.apply(&manifests("deploy/install")?)?;
        if was_there && image == OperatorImage::New {
            kubectl.output(["rollout", "restart", DEPLOYMENT, NAMESPACE])?;
        }
        await_operator(kubectl)
    })
}

fn await_operator(kubectl: &Kubectl) -> Result<()> {
    let status = kubectl.output(["rollout", "status", DEPLOYMENT, NAMESPACE, "--timeout=120s"]);
    status.map(drop).map_err(|error| {
        let pods = kubectl.output(["get", "pods", NAMESPACE]).unwrap_or_default();
        let logs = kubectl.output(["logs", DEPLOYMENT, NAMESPACE, "--tail=20"]).unwrap_or_default();
        error.context(format!("the operator does not become ready\n{pods}\n{logs}"))
    })
}

/// The manifests in a directory of the checkout, in the order of their names.
fn manifests(directory: &str) -> Result<Vec<PathBuf>> {
    let place = paths::checkout().join(directory);
    let entries = fs::read_dir(&place).with_context(|| format!("reading {}", place.display()))?;
    let mut files: Vec<_> = entries.filter_map(std::io::Result::ok).map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    if files.is_empty() {
        bail!("{directory} has no manifests");
    }
    Ok(files)
}
