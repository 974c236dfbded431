//! Looks, before anything slow begins, whether it can end well, and says all that a machine lacks at once.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache::Cache;
use crate::instance::cgroup;
use crate::steps::note;
use crate::{command, packages, paths};

const GIBIBYTE: u64 = 1 << 30;

/// Building everything fills Go's, Maven's and our own caches.
const NEEDED_FOR_BUILDING: u64 = 10 * GIBIBYTE;
/// An instance has its own copy of the images, and the volumes of a small cluster.
const NEEDED_FOR_RUNNING: u64 = 3 * GIBIBYTE;

/// The Kubernetes itself, and what builds it.
pub(crate) const MEMORY_OF_KUBERNETES: u64 = 3 * GIBIBYTE;
/// The pods of the quickstart, or of a story, beside it.
pub(crate) const MEMORY_WITH_KAFKA: u64 = 6 * GIBIBYTE;

/// A tool that builds what the cache does not have yet.
#[derive(Debug)]
struct Tool {
    program: &'static str,
    purpose: &'static str,
    /// What makes it write its version, and the oldest that will do.
    version: Option<(&'static str, u32, u32)>,
    /// The first words of the cache's entries that it makes.
    makes: &'static [&'static str],
}

const TOOLS: [Tool; 3] = [
    Tool {
        program: "go",
        purpose: "Go 1.24 or newer builds Kubernetes",
        version: Some(("version", 1, 24)),
        makes: &["kubernetes-", "coredns-", "pause-"],
    },
    Tool {
        program: "mvn",
        purpose: "Maven fetches Kafka",
        version: None,
        makes: &["kafka-jars-", "jmx-exporter-"],
    },
    Tool {
        program: "java",
        purpose: "Java 17 or newer runs Maven",
        version: Some(("-version", 17, 0)),
        makes: &["kafka-jars-", "jmx-exporter-"],
    },
];

/// Refuses a machine on which an instance cannot be made. Builds, installs and changes nothing.
pub(crate) fn check(memory: u64) -> Result<()> {
    let cache = Cache::open()?;
    let mut lacks: Vec<String> = TOOLS.iter().filter_map(|tool| lack_of(tool, &cache)).collect();
    lacks.extend(lack_of_root());
    lacks.extend(cgroup::usable().err().map(|error| format!("{error:#}")));
    lacks.extend(lack_of_namespaces());
    lacks.extend(lack_of_memory(memory));
    if cache.is_empty() {
        lacks.extend(lack_of_space(cache.root(), NEEDED_FOR_BUILDING));
    }
    lacks.extend(lack_of_space(&paths::state()?, NEEDED_FOR_RUNNING));
    lacks.extend(packages::obstacle());
    if !lacks.is_empty() {
        bail!(
            "the embedded Kubernetes cannot run on this machine as it is; nothing was built or changed:\n{}",
            listed(&lacks)
        );
    }
    Ok(())
}

fn listed(lacks: &[String]) -> String {
    let items: Vec<_> = lacks.iter().map(|lack| format!("  - {}", lack.replace('\n', "\n    "))).collect();
    items.join("\n")
}

/// Refuses to go on as another user: namespaces, control groups and mounts need root.
pub(crate) fn require_root() -> Result<()> {
    lack_of_root().map_or(Ok(()), |lack| bail!(lack))
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

fn lack_of_root() -> Option<String> {
    let lack = "the embedded Kubernetes needs root, because it makes network namespaces, control groups and mounts.\n\
                Run this as root, or use a cluster that you have: `cargo xtask up --context NAME`. Without either there is \
                `cargo xtask test --floor pure`";
    (!is_root()).then(|| lack.to_owned())
}

fn lack_of(tool: &Tool, cache: &Cache) -> Option<String> {
    let Tool { program, purpose, version, makes } = tool;
    if makes.iter().all(|name| cache.has_any(name)) {
        return None;
    }
    if !command::exists(program) {
        return Some(format!("{program} is needed and not on the PATH: {purpose}"));
    }
    let (argument, major, minor) = (*version)?;
    let said = said_by(program, argument);
    match find_version(&said) {
        Some(found) if found >= (major, minor) => None,
        Some((major, minor)) => Some(format!("{program} is of version {major}.{minor}: {purpose}")),
        None => Some(format!("{program} is on the PATH and does not say its version: {purpose}")),
    }
}

/// Java writes its version where others write errors.
fn said_by(program: &str, argument: &str) -> String {
    let said = Command::new(program).arg(argument).output().map(|said| [said.stdout, said.stderr].concat());
    String::from_utf8_lossy(&said.unwrap_or_default()).into_owned()
}

/// `go version go1.26.8 linux/amd64`, `openjdk version "17.0.15" 2025-04-15`
fn find_version(said: &str) -> Option<(u32, u32)> {
    said.split_whitespace().find_map(|word| {
        let word = word.trim_matches('"');
        let mut numbers = word.strip_prefix("go").unwrap_or(word).split(['.', '-', '+']).map(str::parse);
        let major = numbers.next()?.ok()?;
        Some((major, numbers.next().and_then(Result::ok).unwrap_or(0)))
    })
}

/// Who is not root hears of that alone.
fn lack_of_namespaces() -> Option<String> {
    if !is_root() {
        return None;
    }
    let attempt = command::run(Command::new("unshare").args(["--net", "--mount", "true"]));
    attempt.err().map(|error| {
        format!("network and mount namespaces cannot be made here; a container must be privileged: {error:#}")
    })
}

fn lack_of_memory(needed: u64) -> Option<String> {
    let Memory { total, available } = Memory::of_machine()?;
    if total < needed {
        let found = gibibytes(total);
        return Some(format!("{} GiB of memory are needed, and there are {found:.1}", needed / GIBIBYTE));
    }
    if available < needed {
        note(format!("only {:.1} GiB of memory are free: pods may have to wait", gibibytes(available)));
    }
    None
}

#[derive(Debug, PartialEq, Eq)]
struct Memory {
    total: u64,
    available: u64,
}

impl Memory {
    fn of_machine() -> Option<Self> {
        let memory = Self::parse(&fs::read_to_string("/proc/meminfo").ok()?)?;
        // In a container there may be less than the machine has.
        let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
        let limit = limits.iter().find_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
        Some(Self { total: memory.total.min(limit.unwrap_or(u64::MAX)), ..memory })
    }

    fn parse(meminfo: &str) -> Option<Self> {
        let size = |name: &str| {
            let rest = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
            Some(rest.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
        };
        Some(Self { total: size("MemTotal:")?, available: size("MemAvailable:")? })
    }
}

fn lack_of_space(place: &Path, needed: u64) -> Option<String> {
    let free = match free_space(place) {
        Ok(free) => free,
        Err(error) => return Some(format!("{error:#}")),
    };
    (free < needed).then(|| {
        format!(
            "{} has {:.1} GiB free and {} GiB are needed: make room, or set XDG_CACHE_HOME and XDG_STATE_HOME to \
             a larger disk",
            place.display(),
            gibibytes(free),
            needed / GIBIBYTE
        )
    })
}

fn gibibytes(bytes: u64) -> f64 {
    bytes as f64 / GIBIBYTE as f64
}

/// The free space of the disk that has, or will have, a directory.
fn free_space(place: &Path) -> Result<u64> {
    let existing = place.ancestors().find(|directory| directory.exists()).unwrap_or(Path::new("/"));
    let disk = rustix::fs::statvfs(existing)
        .with_context(|| format!("asking for the free space of {}", existing.display()))?;
    Ok(disk.f_bavail * disk.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_does_not_exist_yet_is_judged_by_its_disk() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(lack_of_space(&directory.path().join("not/yet/there"), 1), None);
    }

    #[test]
    fn a_full_disk_is_refused_with_the_numbers() {
        let directory = tempfile::tempdir().unwrap();
        let lack = lack_of_space(directory.path(), u64::MAX).unwrap();
        assert!(lack.contains("GiB free"), "{lack}");
    }

    #[test]
    fn a_small_machine_is_refused_with_the_numbers() {
        let lack = lack_of_memory(1 << 60).unwrap();
        assert!(lack.contains("GiB of memory are needed"), "{lack}");
        assert_eq!(lack_of_memory(1), None);
        let meminfo =
            "MemTotal:       24629028 kB\nMemFree:        17976252 kB\nMemAvailable:   23224140 kB\n";
        let expected = Memory { total: 24_629_028 << 10, available: 23_224_140 << 10 };
        assert_eq!(Memory::parse(meminfo), Some(expected));
    }

    #[test]
    fn versions_are_found_in_what_tools_say() {
        for (said, version) in [
            ("go version go1.26.8 linux/amd64", (1, 26)),
            ("go version go1.23 linux/arm64", (1, 23)),
            (
                "openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)",
                (17, 0),
            ),
            ("java version \"1.8.0_202\"", (1, 8)),
            ("openjdk version \"24-ea\" 2025-03-18", (24, 0)),
        ] {
            assert_eq!(find_version(said), Some(version), "{said}");
        }
        assert_eq!(find_version("no such thing"), None);
    }

    #[test]
    fn a_tool_is_missed_only_for_what_it_has_still_to_make() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path().to_owned()).unwrap();
        let tool = Tool { program: "no-such-tool", purpose: "it builds", version: None, makes: &["thing-"] };
        let lack = lack_of(&tool, &cache).unwrap();
        assert!(lack.contains("no-such-tool") && lack.contains("it builds"), "{lack}");
        fs::create_dir(directory.path().join("thing-1-abc")).unwrap();
        assert_eq!(lack_of(&tool, &cache), None);
        let old = Tool {
            program: "echo",
            version: Some(("go version go1.2 linux", 1, 24)),
            makes: &["other-"],
            ..tool
        };
        assert!(lack_of(&old, &cache).unwrap().contains("is of version 1.2: it builds"));
    }

    #[test]
    fn all_that_is_missing_is_one_list() {
        let text = listed(&["root".to_owned(), "memory\nand a disk".to_owned()]);
        assert_eq!(text, "  - root\n  - memory\n    and a disk");
    }
}
