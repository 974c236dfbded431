//! The operator's image: two static programs and nothing else.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use serde_json::json;

use super::archive::Image;
use super::layer::Layer;
use crate::{command, paths};

const PROGRAMS: [&str; 2] = ["karst-operator", "karst-node"];

/// The C library is linked in, so the programs run on an empty base and in any Kafka image.
const STATIC: &str = "-C target-feature=+crt-static";

pub(crate) fn reference() -> String {
    format!("docker.io/karst/operator:{}", env!("CARGO_PKG_VERSION"))
}

/// The Cargo profile of what is shipped.
const PROFILE: &str = "image";

/// Compiles both programs as they are shipped. Cargo decides whether there is anything to do.
pub(crate) fn compile() -> Result<PathBuf> {
    let target = target()?;
    // Flags for static linking would make Cargo build everything anew, back and forth, in the usual place.
    let directory = paths::checkout().join("target/image");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(paths::checkout()).env("RUSTFLAGS", STATIC);
    cargo
        .args(["build", "--quiet", "--profile", PROFILE, "--target", target, "--target-dir"])
        .arg(&directory);
    for program in PROGRAMS {
        cargo.args(["--package", program]);
    }
    command::run(&mut cargo)?;
    Ok(directory.join(target).join(PROFILE))
}

pub(crate) fn image(programs: &Path) -> Result<Image> {
    let layer = Layer::pack(&programs.join("layer.tar"), |files| {
        PROGRAMS.iter().try_for_each(|program| files.program(program, &programs.join(program)))
    })?;
    Ok(Image {
        reference: reference(),
        layers: vec![layer],
        config: json!({ "Entrypoint": ["/karst-operator"], "User": "1000:1000" }),
    })
}

fn target() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("x86_64-unknown-linux-gnu"),
        "aarch64" => Ok("aarch64-unknown-linux-gnu"),
        other => bail!("no image is made for {other} processors yet"),
    }
}
