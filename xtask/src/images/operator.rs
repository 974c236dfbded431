//! The operator's image: two static programs, and the agent by which Kafka's JVM serves metrics.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::json;

use super::archive::Image;
use super::layer::Layer;
use super::maven;
use crate::cache::{Cache, Entry};
use crate::hash::{self, Hasher};
use crate::{command, paths};

const PROGRAMS: [&str; 2] = ["karst-operator", "karst-node"];

/// Where Maven finds the agent for metrics.
const AGENT: (&str, &str, &str) = ("io.prometheus.jmx", "jmx_prometheus_javaagent", "1.0.1");
/// The SHA-256 of its jar: it runs in every broker that has metrics.
const AGENT_SHA256: &str = "7d61f737fd661610ccc14aea79764faa1ea94a340cbc8f0029b3d2edea3d80c1";

/// The C library is linked in, so the programs run on an empty base and in any Kafka image.
const STATIC: &str = "-C target-feature=+crt-static";

pub(crate) fn reference() -> String {
    format!("docker.io/karst/operator:{}", env!("CARGO_PKG_VERSION"))
}

/// The Cargo profile of what is shipped.
const PROFILE: &str = "image";

/// Compiles both programs as they are shipped. Cargo decides whether there is anything to do.
pub(crate) fn compile() -> Result<PathBuf> {
    // Flags for static linking would make Cargo build everything anew, back and forth, in the usual place.
    compile_in(paths::checkout(), &paths::checkout().join("target/image"))
}

/// The same with the sources of another checkout, in a directory of their own: Cargo takes what two checkouts compile for the same,
/// and would go on shipping the programs of the other one.
pub(crate) fn compile_in(sources: &Path, directory: &Path) -> Result<PathBuf> {
    let target = target()?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(sources).env("RUSTFLAGS", STATIC);
    cargo.args(["build", "--quiet", "--profile", PROFILE, "--target", target, "--target-dir"]).arg(directory);
    for program in PROGRAMS {
        cargo.args(["--package", program]);
    }
    command::run(&mut cargo)?;
    Ok(directory.join(target).join(PROFILE))
}

/// Keeps the programs where no later build replaces them.
pub(crate) fn copy_programs(from: &Path, to: &Path) -> Result<()> {
    PROGRAMS.iter().try_for_each(|program| {
        std::fs::copy(from.join(program), to.join(program)).with_context(|| format!("copying {program}"))?;
        Ok(())
    })
}

pub(crate) fn image(cache: &Cache, programs: &Path) -> Result<Image> {
    let layer = Layer::pack(&programs.join("layer.tar"), |files| {
        PROGRAMS.iter().try_for_each(|program| files.program(program, &programs.join(program)))
    })?;
    Ok(Image {
        reference: reference(),
        // The agent changes once a year, the programs every hour.
        layers: vec![agent(cache)?, layer],
        config: json!({ "Entrypoint": ["/karst-operator"], "User": "1000:1000" }),
    })
}

/// The JMX exporter of the Prometheus project (Apache-2.0), as the package registry has it.
fn agent(cache: &Cache) -> Result<Layer> {
    let (group, artifact, version) = AGENT;
    let entry = Entry {
        name: &format!("jmx-exporter-{version}"),
        key: Hasher::default().part(group).part(artifact).part(version).part(AGENT_SHA256),
        doing: &format!("Fetching the JMX exporter {version} with Maven"),
    };
    let file = format!("{artifact}-{version}.jar");
    let jar = maven::copy(cache, entry, &format!("{group}:{artifact}:{version}"), &file, AGENT_SHA256)?;
    let entry = Entry {
        name: &format!("jmx-exporter-layer-{version}"),
        key: Hasher::default().part(hash::of_file(&jar)?),
        doing: "Packing the JMX exporter",
    };
    Layer::cached(cache, entry, |files| files.data("jmx_prometheus_javaagent.jar", &jar))
}

fn target() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("x86_64-unknown-linux-gnu"),
        "aarch64" => Ok("aarch64-unknown-linux-gnu"),
        other => bail!("no image is made for {other} processors yet"),
    }
}
