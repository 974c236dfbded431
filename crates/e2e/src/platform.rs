//! The processes that Kubernetes itself is made of here. One can be taken away, or be made to stand still, and comes back however a
//! story ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::frozen::Frozen;

/// A machine with two busy cores needs some seconds until its API server answers.
const STARTING: Duration = Duration::from_secs(120);
const LOOKING: Duration = Duration::from_millis(200);
/// Joins the control groups named first, and becomes the program named after them: what ends the instance must find it there.
const JOIN: &str = r#"while [ "$1" != -- ]; do echo $$ >"$1"; shift; done; shift; exec "$@""#;

/// A part of the embedded Kubernetes, which `cargo xtask` started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// What everybody talks to.
    ApiServer,
    /// Where it keeps everything: etcd.
    Store,
    /// What runs the pods of the one node.
    Kubelet,
    /// What notices that a node is away, and much else.
    Controllers,
}

impl Component {
    fn name(self) -> &'static str {
        match self {
            Self::ApiServer => "kube-apiserver",
            Self::Store => "etcd",
            Self::Kubelet => "kubelet",
            Self::Controllers => "kube-controller-manager",
        }
    }

    fn record(self) -> Result<PathBuf> {
        Ok(state()?.join("processes").join(format!("{}.json", self.name())))
    }

    fn process(self) -> Result<Pid> {
        let (name, record) = (self.name(), self.record()?);
        let text = std::fs::read(&record).with_context(|| format!("reading {}", record.display()))?;
        let recorded: Value = serde_json::from_slice(&text)?;
        let pid = recorded["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        let pid = Pid::from_raw(pid.with_context(|| format!("{} names no process", record.display()))?);
        // An id is used again some day.
        let is_it = words(pid, "cmdline")?.first().is_some_and(|program| program.ends_with(name));
        ensure!(is_it, "process {pid} is not {name}");
        Ok(pid)
    }

    /// Lets it stand still until it is woken. Its connections stay open, and nobody answers.
    pub fn freeze(self) -> Result<Frozen> {
        Frozen::process(self.process()?)
    }

    /// Lets it stand still for `still`, then work for `works`, again and again. It never comes to an end by itself.
    pub async fn stutter(self, still: Duration, works: Duration) -> anyhow::Error {
        loop {
            match self.freeze() {
                Ok(frozen) => {
                    sleep(still).await;
                    drop(frozen);
                }
                Err(error) => return error,
            }
            sleep(works).await;
        }
    }

    /// Ends it, without a warning, until it is brought back.
    pub fn take_away(self) -> Result<Away> {
        let process = self.process()?;
        let start = Start::of(self, process)?;
        kill(process, Signal::SIGKILL).with_context(|| format!("killing {}", self.name()))?;
        Ok(Away(Some(start)))
    }
}

/// A component that was taken away. It comes back when dropped, at the latest.
#[derive(Debug)]
pub struct Away(Option<Start>);

impl Away {
    /// Starts the component again, as it was started before.
    pub fn bring_back(mut self) -> Result<()> {
        self.0.take().map_or(Ok(()), |start| start.again())
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.take().map(|start| start.again()) {
            eprintln!("a part of Kubernetes does not come back: {error:#}");
        }
    }
}

/// How a process was started.
#[derive(Debug)]
struct Start {
    component: Component,
    command: Vec<String>,
    environment: Vec<String>,
    groups: Vec<PathBuf>,
}

impl Start {
    fn of(component: Component, process: Pid) -> Result<Self> {
        let (command, environment) = (words(process, "cmdline")?, words(process, "environ")?);
        ensure!(!command.is_empty(), "{} has ended by itself", component.name());
        Ok(Self { component, command, environment, groups: groups(process)? })
    }

    fn again(&self) -> Result<()> {
        let (name, state) = (self.component.name(), state()?);
        let log = std::fs::File::options().append(true).open(state.join(format!("logs/{name}.log")))?;
        let variables = self.environment.iter().filter_map(|one| one.split_once('='));
        let child = Command::new("setsid")
            .args(["sh", "-euc", JOIN, "sh"])
            .args(&self.groups)
            .arg("--")
            .args(&self.command)
            .current_dir(&state)
            .env_clear()
            .envs(variables)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {name} again"))?;
        // Whoever looks after the instance finds it as if nothing had happened.
        let record = json!({ "pid": child.id(), "started": started(child.id())? });
        std::fs::write(self.component.record()?, record.to_string())?;
        Ok(())
    }
}

/// The directory of the instance, which has the API server's audit log.
fn state() -> Result<PathBuf> {
    let log = std::env::var_os("KARST_AUDIT_LOG").map(PathBuf::from);
    let log = log.context("KARST_AUDIT_LOG does not say where the instance is")?;
    let state = log.parent().and_then(Path::parent).map(Path::to_owned);
    state.with_context(|| format!("{} is in no instance", log.display()))
}

/// What the kernel tells of a process as words that end with a zero.
fn words(process: Pid, file: &str) -> Result<Vec<String>> {
    let path = format!("/proc/{process}/{file}");
    let text = std::fs::read(&path).with_context(|| format!("reading {path}"))?;
    let words = text.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    Ok(words.map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

/// The lists of members of the control groups of a process, one for each hierarchy.
fn groups(process: Pid) -> Result<Vec<PathBuf>> {
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    let memberships = std::fs::read_to_string(format!("/proc/{process}/cgroup"))?;
    let mut groups = Vec::new();
    for mount in mounts.lines() {
        let fields: Vec<_> = mount.split(' ').collect();
        let [_, place, kind, options, ..] = fields.as_slice() else { continue };
        let is_of = |controllers: &str| match *kind {
            "cgroup2" => controllers.is_empty(),
            "cgroup" => {
                let first = controllers.split(',').next().unwrap_or_default();
                !first.is_empty() && options.split(',').any(|option| option == first)
            }
            _ => false,
        };
        // 4:memory:/karst-test/servers
        let group = memberships.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            is_of(parts.next()?).then(|| parts.next()).flatten()
        });
        groups.extend(
            group.map(|group| Path::new(place).join(group.trim_start_matches('/')).join("cgroup.procs")),
        );
    }
    groups.retain(|group| group.exists());
    ensure!(!groups.is_empty(), "process {process} is in no control group that can be joined");
    Ok(groups)
}

/// When a process was started, in clock ticks since the machine was: field 22, after a name that may have spaces.
fn started(process: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let field = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19));
    Ok(field.context("a process without a start")?.parse()?)
}

/// Waits until the API server answers again.
pub async fn until_api_answers(client: &Client) -> Result<()> {
    let until = Instant::now() + STARTING;
    loop {
        if matches!(timeout(LOOKING * 10, client.apiserver_version()).await, Ok(Ok(_))) {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("the API server does not answer {} s after it was started again", STARTING.as_secs());
        }
        sleep(LOOKING).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_a_process_was_started_is_read_from_the_kernel() {
        let us = Pid::this();
        let command = words(us, "cmdline").unwrap();
        assert_eq!(command.len(), std::env::args().count());
        assert!(words(us, "environ").unwrap().iter().any(|variable| variable.starts_with("PATH=")));
        assert!(started(std::process::id()).unwrap() > 0);
    }

    #[test]
    fn the_control_groups_of_a_process_are_those_that_list_it() {
        let us = std::process::id().to_string();
        for group in groups(Pid::this()).unwrap() {
            let members = std::fs::read_to_string(&group).unwrap();
            assert!(members.lines().any(|member| member == us), "{}", group.display());
        }
    }
}
