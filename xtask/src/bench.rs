//! The figures of `docs/performance.md`: the operator as it is shipped, against a real API server without a kubelet.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use clap::Args;

use crate::binaries::Binaries;
use crate::cache::Cache;
use crate::images::operator;
use crate::steps::step;
use crate::{command, paths};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measure only what deciding costs; no Kubernetes is needed, and none is built
    #[arg(long, conflicts_with_all = ["large", "week"])]
    passes: bool,
    /// Also measure with 1,000 clusters (takes several minutes and some gigabytes)
    #[arg(long)]
    large: bool,
    /// Measure only what is left of clusters that have come and gone for so many minutes, 60 if none is given
    #[arg(long, value_name = "MINUTES", num_args = 0..=1, default_missing_value = "60", conflicts_with = "large")]
    week: Option<u64>,
    /// Where to write the figures as JSON
    #[arg(long, default_value = "target/bench.json")]
    json: PathBuf,
}

pub(crate) fn bench(options: &Options) -> Result<()> {
    if options.passes {
        return command::run_visibly(karst_bench().arg("--passes"));
    }
    let binaries = Binaries::build(&Cache::open()?)?;
    let programs = step("Compiling the operator as it is shipped", operator::compile)?;
    let mut cargo = karst_bench();
    cargo.arg("--kubernetes").arg(binaries.program("kubernetes"));
    cargo.arg("--operator").arg(programs.join("karst-operator")).arg("--json").arg(&options.json);
    if options.large {
        cargo.arg("--large");
    }
    if let Some(minutes) = options.week {
        cargo.arg(format!("--week={minutes}"));
    }
    command::run_visibly(&mut cargo)
}

fn karst_bench() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(paths::checkout());
    cargo.args(["run", "--quiet", "--release", "--package", "karst-bench", "--"]);
    cargo
}
