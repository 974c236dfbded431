//! From nothing to a running Kafka cluster.

use anyhow::{Result, bail};
use clap::Args;

use crate::example::{self, Access};
use crate::kubectl::Kubectl;
use crate::local::{self, OperatorImage};
use crate::steps::headline;
use crate::{Which, command, install, preflight};

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    which: Which,
    /// Use a cluster that you have: a context of your kubeconfig
    #[arg(long, conflicts_with = "name")]
    context: Option<String>,
    /// Stop when the operator runs, without a Kafka cluster
    #[arg(long)]
    no_example: bool,
}

pub(crate) fn up(options: &Options) -> Result<()> {
    match &options.context {
        Some(context) => up_in_context(context, options),
        None => up_here(options),
    }
}

fn up_here(options: &Options) -> Result<()> {
    let memory =
        if options.no_example { preflight::MEMORY_OF_KUBERNETES } else { preflight::MEMORY_WITH_KAFKA };
    preflight::check(memory)?;
    let instance = options.which.instance()?;
    let lock = instance.lock()?;
    headline(format!("Starting the embedded Kubernetes {}", instance.name()));
    let running = local::start(&instance, &lock)?;
    let image = running.load_operator()?;
    install::resource_definitions(&running.kubectl)?;
    install::operator(&running.kubectl, image)?;
    drop(lock);

    let access =
        Access { kubectl: options.which.command("kubectl"), inside: Some(options.which.command("inside")) };
    if !options.no_example {
        example::run(&running.kubectl, &access)?;
    }
    headline("Use it");
    println!("  export KUBECONFIG={}", instance.kubeconfig().display());
    println!("  {} get pods --all-namespaces", access.kubectl);
    println!("  {}", options.which.command("down").trim_end_matches(" --"));
    Ok(())
}

fn up_in_context(context: &str, options: &Options) -> Result<()> {
    if !command::exists("kubectl") {
        bail!("kubectl is needed to use the context {context} and is not on the PATH");
    }
    headline(format!("Using the cluster of the context {context}"));
    let kubectl = Kubectl::of_context(context);
    install::resource_definitions(&kubectl)?;
    // The cluster pulls the image from a registry under its published name; it is not ours to change.
    install::operator(&kubectl, OperatorImage::Unchanged)?;
    if !options.no_example {
        let access = Access { kubectl: format!("kubectl --context={context}"), inside: None };
        example::run(&kubectl, &access)?;
    }
    Ok(())
}
