//! Looks at instances without changing them.

use std::process::{Command, ExitStatus};

use anyhow::{Result, bail};
use clap::Args;

use crate::Which;
use crate::binaries::Binaries;
use crate::cache::Cache;
use crate::command;
use crate::instance::{Instance, components};
use crate::kubectl::Kubectl;

/// What `logs` calls the operator, which is a pod and not a process of the instance.
const OPERATOR: &str = "operator";

#[derive(Debug, Args)]
pub(crate) struct LogsOptions {
    #[command(flatten)]
    which: Which,
    /// `operator`, or a component such as `kubelet`
    #[arg(default_value = OPERATOR)]
    component: String,
    /// Go on as more is logged
    #[arg(short, long)]
    follow: bool,
}

/// A kubectl for an instance that runs.
pub(crate) fn kubectl(instance: &Instance) -> Result<Kubectl> {
    if !instance.is_up() {
        bail!("the instance {} is not running: start it with `cargo xtask up`", instance.name());
    }
    Ok(Kubectl::of_instance(instance, &Binaries::build(&Cache::open()?)?))
}

pub(crate) fn status() -> Result<()> {
    let instances = Instance::all()?;
    if instances.is_empty() {
        println!("No instance is on this machine. `cargo xtask up` starts one.");
    }
    for instance in instances {
        show(&instance)?;
    }
    Ok(())
}

fn show(instance: &Instance) -> Result<()> {
    println!("{} in {}", instance.name(), instance.state().display());
    for component in components::all() {
        println!("  {component:<24} {}", state(instance, component));
    }
    if instance.is_up() {
        println!("  export KUBECONFIG={}\n", instance.kubeconfig().display());
        let kubectl = kubectl(instance)?;
        // A cluster without our definitions, or one that is starting, has less to show; that is no failure.
        for query in [&["get", "nodes"][..], &["get", "kafka,kafkanodepool,pods", "--all-namespaces"]] {
            command::interactive(&mut kubectl.command(query))?;
        }
    } else {
        println!("  It was not stopped in order; `cargo xtask down --name {}` cleans up.", instance.name());
    }
    Ok(())
}

fn state(instance: &Instance, component: &str) -> String {
    match instance.process(component) {
        Some(process) if process.is_alive() => format!("runs as process {}", process.pid),
        Some(_) => format!("HAS ENDED: see `cargo xtask logs --name {} {component}`", instance.name()),
        None => "was not started".to_owned(),
    }
}

pub(crate) fn logs(options: &LogsOptions) -> Result<ExitStatus> {
    let instance = options.which.instance()?;
    let component = options.component.as_str();
    let follow = options.follow.then_some("--follow");
    if component == OPERATOR {
        let query = ["logs", "--namespace=karst-system", "deployment/karst-operator"];
        return command::interactive(kubectl(&instance)?.command(query).args(follow));
    }
    let log = instance.log(component);
    if !log.exists() {
        let known: Vec<_> = components::all().collect();
        bail!("{component} has logged nothing here; the components are {OPERATOR}, {}", known.join(", "));
    }
    command::interactive(Command::new("tail").args(["-n", "+1"]).args(follow).arg(log))
}
