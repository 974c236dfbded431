//! The classes that Kafka loads, in the form in which Java needs them: with such archives, which the official images have as
//! well, Kafka starts with a quarter less work.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::layer::Layer;
use crate::cache::{Cache, Entry};
use crate::command;
use crate::hash::Hasher;

const SCRIPT: &str = include_str!("../../../local/kafka/archive-classes.sh");

/// Enters the image, with a network and processes of its own. What is mounted goes with them.
const ENTER: &str = r#"
ip link set lo up
mkdir -p "$1/proc" "$1/dev"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
exec chroot "$1" bash -euc "$2"
"#;

/// Nobody waits longer for an image that starts sooner.
const LIMIT: &str = "120";

/// A layer with the archives for the image of these layers.
pub(crate) fn layer(cache: &Cache, version: &str, image: &[Layer]) -> Result<Layer> {
    let key = image.iter().fold(Hasher::default().part(SCRIPT), |key, layer| key.part(&layer.digest));
    let entry = Entry {
        name: &format!("kafka-classes-{version}"),
        key,
        doing: &format!("Running Kafka {version} for a moment, so that it starts faster later"),
    };
    let place = cache.get(entry, |place| {
        let root = place.join("root");
        unpack(image, &root)?;
        archive(&root)?;
        Layer::write(place, |files| {
            for name in ["opt/kafka/kafka.jsa", "opt/kafka/storage.jsa"] {
                files.data(name, &root.join(name))?;
            }
            Ok(())
        })?;
        fs::remove_dir_all(&root).context("removing the image that was unpacked")
    })?;
    Layer::in_entry(&place)
}

fn unpack(image: &[Layer], root: &Path) -> Result<()> {
    fs::create_dir(root)?;
    for layer in image {
        let mut tar = Command::new("tar");
        tar.arg("--extract").arg("--file").arg(&layer.file).arg("--directory").arg(root);
        command::run(tar.args(["--preserve-permissions", "--numeric-owner"]))?;
    }
    Ok(())
}

fn archive(root: &Path) -> Result<()> {
    let mut enter = Command::new("timeout");
    enter.args(["--kill-after=5", LIMIT, "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]);
    enter.args(["sh", "-euc", ENTER, "enter"]).arg(root).arg(SCRIPT);
    command::run(&mut enter)
}
