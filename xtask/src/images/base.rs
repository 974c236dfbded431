//! The layer below Kafka: a minimal Debian with a Java runtime, from the machine's own package sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::layer::Layer;
use crate::cache::{Cache, Entry};
use crate::command;
use crate::hash::Hasher;

/// Kafka 4 needs Java 17; newer releases of Debian have only newer ones, with which it runs as well.
const RUNTIMES: [&str; 2] = ["openjdk-17-jre-headless", "openjdk-21-jre-headless"];

/// The user of the official image.
const ADD_USER: &str = r#"
echo 'appuser:x:1000:1000::/home/appuser:/bin/sh' >>"$1/etc/passwd"
echo 'appuser:x:1000:' >>"$1/etc/group"
mkdir -p "$1/home/appuser" && chown 1000:1000 "$1/home/appuser"
"#;

/// The Java package links its manual pages from here, and fails when the directory was left out.
const KEEP_MANUAL_DIRECTORY: &str = r#"mkdir -p "$1/usr/share/man/man1""#;

/// Documentation and translations are two thirds of a small system.
const LEFT_OUT: [&str; 4] =
    ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*"];

pub(crate) fn layer(cache: &Cache) -> Result<Layer> {
    let release = release()?;
    let runtime = available_runtime()?;
    let key =
        Hasher::default().part(&release).part(runtime).part(ADD_USER).part(LEFT_OUT.join(" ")).part("1");
    let entry = Entry {
        name: &format!("base-{release}"),
        key,
        doing: "Making the images' base, a small Debian with Java (1 to 3 minutes, once)",
    };
    let place = cache.get(entry, |place| {
        bootstrap(&release, runtime, &place.join("layer.tar"))?;
        Layer::seal(place)
    })?;
    Layer::in_entry(&place)
}

fn bootstrap(release: &str, runtime: &str, target: &Path) -> Result<()> {
    let mut command = Command::new("mmdebstrap");
    command.args(["--quiet", "--variant=minbase", "--skip=output/dev"]);
    command.arg(format!("--include={runtime}"));
    command.arg(format!("--essential-hook={KEEP_MANUAL_DIRECTORY}"));
    command.arg(format!("--customize-hook={ADD_USER}"));
    for path in LEFT_OUT {
        command.arg(format!("--dpkgopt=path-exclude={path}"));
    }
    command.arg(release).arg(target).args(sources()?);
    command::run(&mut command)
        .context("the base of the images cannot be made from this machine's package sources")
}

/// The code name of this machine's release, such as `bookworm`.
fn release() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("reading /etc/os-release")?;
    text.lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .map(|name| name.trim_matches('"').to_owned())
        .context("/etc/os-release does not name this Debian release")
}

fn available_runtime() -> Result<&'static str> {
    let is_available =
        |package: &&str| command::output(Command::new("apt-cache").args(["show", package])).is_ok();
    RUNTIMES.into_iter().find(is_available).with_context(|| {
        format!(
            "the package sources of this machine have none of {}: run `apt-get update`",
            RUNTIMES.join(", ")
        )
    })
}

/// The files in which this machine lists its package sources.
fn sources() -> Result<Vec<PathBuf>> {
    let apt = Path::new("/etc/apt");
    let mut files: Vec<_> = fs::read_dir(apt.join("sources.list.d"))
        .map(|entries| entries.filter_map(std::io::Result::ok).map(|entry| entry.path()).collect())
        .unwrap_or_default();
    files.push(apt.join("sources.list"));
    files.retain(|file| is_sources_file(file) && file.metadata().is_ok_and(|data| data.len() > 0));
    files.sort();
    if files.is_empty() {
        bail!("no package sources are listed in {}", apt.display());
    }
    Ok(files)
}

fn is_sources_file(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "list" || extension == "sources")
}
