//! Everything a developer runs: `cargo xtask help` tells.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod binaries;
mod cache;
mod command;
mod config_model;
mod deny;
mod earlier;
mod example;
mod fuzz;
mod hash;
mod images;
mod inspect;
mod install;
mod instance;
mod interrupt;
mod kubectl;
mod local;
mod packages;
mod paths;
mod preflight;
mod steps;
mod test;
mod up;

use std::ffi::OsString;
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use binaries::Binaries;
use cache::Cache;
use instance::{Instance, Name};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Everything a developer of Karst runs", disable_version_flag = true)]
struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Start a Kubernetes on this machine, with the operator and a Kafka cluster
    Up(up::Options),
    /// Stop what `up` started, and leave nothing behind
    Down(Which),
    /// Show the instances on this machine and what runs in them
    Status,
    /// Run kubectl against the embedded Kubernetes
    Kubectl {
        #[command(flatten)]
        which: Which,
        /// What kubectl shall do
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run a program inside the instance's network, where pods and services can be reached by name
    Inside {
        #[command(flatten)]
        which: Which,
        program: OsString,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Show what the operator, or a component of the embedded Kubernetes, has logged
    Logs(inspect::LogsOptions),
    /// Run the tests: formatting, lints, unit tests, and end-to-end tests in a Kubernetes of their own
    Test(test::Options),
    /// Run tests that take too long for every day, by name, in a Kubernetes of their own: upgrades, disasters, ...
    Soak(test::SoakOptions),
    /// Run Karst's decisions in a simulated world, with faults: `--seeds N`, `--campaign a` to `f`, `--help` for more
    #[command(disable_help_flag = true)]
    Sim {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Measure the operator: start, memory, speed, requests
    Bench(bench::Options),
    /// Write the custom resource definitions to deploy/crds
    Crds,
    /// Write what Kafka's jars say about its settings to crates/core, for the check of users' settings
    ConfigModel,
    /// Look for input that does harm, for as long as you like: settings of users, answers of Kafka
    Fuzz(fuzz::Options),
    #[command(hide = true)]
    Forward,
}

/// The name of the instance that people mean when they name none.
const USUAL_NAME: &str = "karst";

/// Which instance of the embedded Kubernetes is meant.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The name of the instance
    #[arg(long, default_value = USUAL_NAME)]
    name: Name,
}

impl Which {
    pub(crate) fn instance(&self) -> Result<Instance> {
        Instance::named(&self.name)
    }

    /// How the user calls a task for this instance.
    pub(crate) fn command(&self, task: &str) -> String {
        match self.name.to_string().as_str() {
            USUAL_NAME => format!("cargo xtask {task} --"),
            name => format!("cargo xtask {task} --name {name} --"),
        }
    }
}

fn main() -> ExitCode {
    match run(Options::parse().task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("\nError: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<ExitCode> {
    match task {
        Task::Up(options) => up::up(&options)?,
        Task::Down(which) => local::stop(&which.instance()?)?,
        Task::Status => inspect::status()?,
        Task::Kubectl { which, arguments } => {
            let kubectl = inspect::kubectl(&which.instance()?)?;
            return Ok(exit_code(command::interactive(&mut kubectl.command(arguments))?));
        }
        Task::Inside { which, program, arguments } => {
            let binaries = Binaries::build(&Cache::open()?)?;
            let here = std::env::current_dir()?;
            let mut command = local::guest(&which.instance()?, &binaries, &here, program)?;
            return Ok(exit_code(command::interactive(command.args(arguments))?));
        }
        Task::Logs(options) => return Ok(exit_code(inspect::logs(&options)?)),
        Task::Test(options) => return test::test(&options),
        Task::Soak(options) => return test::soak(&options),
        Task::Sim { arguments } => return simulate(&arguments),
        Task::Bench(options) => bench::bench(&options)?,
        Task::Crds => write_crds()?,
        Task::ConfigModel => config_model::write()?,
        Task::Fuzz(options) => fuzz::fuzz(&options)?,
        Task::Forward => instance::forward::serve()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The definitions are made by the crate that has the types.
fn write_crds() -> Result<()> {
    let target = paths::checkout().join("deploy/crds");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(paths::checkout());
    cargo.args(["run", "--quiet", "--package", "karst-api", "--example", "crds", "--"]).arg(&target);
    command::run_visibly(&mut cargo)
}

/// Optimised: a campaign is worth what it gets through.
fn simulate(arguments: &[OsString]) -> Result<ExitCode> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(paths::checkout());
    cargo.args(["run", "--quiet", "--release", "--package", "karst-sim", "--"]).args(arguments);
    Ok(exit_code(command::interactive(&mut cargo)?))
}

fn exit_code(status: ExitStatus) -> ExitCode {
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) => ExitCode::from(code),
        None => ExitCode::FAILURE,
    }
}
