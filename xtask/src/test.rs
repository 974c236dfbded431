//! The tests, on two floors: `pure` needs nothing but a compiler, `real` starts a Kubernetes of its own and
//! runs the end-to-end tests inside its network, where pods and services can be reached by name. What takes too long for every
//! day is a soak, and runs on a real floor too.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use crate::earlier::Earlier;
use crate::images::kafka;
use crate::instance::{Instance, Name};
use crate::local::{self, Running};
use crate::steps::{Elapsed, headline, note, step};
use crate::{command, deny, fuzz, hash, install, interrupt, paths, preflight};

const END_TO_END: &str = "karst-e2e";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only the end-to-end tests whose names contain one of these
    filters: Vec<String>,
    /// Run only one floor; both when not given
    #[arg(long)]
    floor: Option<Floor>,
    /// Leave the test's Kubernetes running, to look at what happened
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SoakOptions {
    /// Which ones: those whose names contain one of these
    #[arg(required = true)]
    names: Vec<String>,
    /// Leave the Kubernetes of the soak running, to look at what happened
    #[arg(long)]
    keep: bool,
    /// The commit whose clusters are taken over, for soaks that begin with an earlier Karst
    #[arg(long, default_value = DEFAULT_EARLIER)]
    from: String,
}

/// The last state of Karst before a disk could only be emptied when nothing is lost by it.
const DEFAULT_EARLIER: &str = "7eb6e1b";
/// The soaks that begin with an earlier Karst.
const TAKEOVER: &str = "takeover";

/// End-to-end tests, and what they need.
#[derive(Debug, Clone, Copy)]
struct Suite<'a> {
    /// The test program.
    program: &'static str,
    /// Which of its tests.
    filters: &'a [String],
    /// The versions of Kafka that must be there beside the usual ones.
    versions: &'static [&'static str],
    /// The commit of an earlier Karst that must be there too.
    earlier: Option<&'a str>,
    /// Does its Kubernetes stay?
    keep: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Floor {
    Pure,
    Real,
}

impl Options {
    /// Names are those of end-to-end tests, so whoever gives one wants only these.
    fn wants(&self, floor: Floor) -> bool {
        match self.floor {
            Some(wanted) => wanted == floor,
            None => floor == Floor::Real || self.filters.is_empty(),
        }
    }
}

/// What was tested and how it went.
#[derive(Debug)]
struct Outcome {
    part: &'static str,
    took: Elapsed,
    error: Option<anyhow::Error>,
}

pub(crate) fn test(options: &Options) -> Result<ExitCode> {
    if options.wants(Floor::Real) {
        preflight::check(preflight::MEMORY_WITH_KAFKA)?;
    }
    interrupt::listen(leftover()?)?;
    let mut outcomes = Vec::new();
    if options.wants(Floor::Pure) {
        for (part, arguments) in pure() {
            outcomes.push(attempt(part, || cargo_visibly(&arguments)));
        }
        outcomes.push(attempt("dependencies", deny::check));
        outcomes.push(attempt("random input", fuzz::for_a_minute));
        outcomes.push(attempt("simulation", simulation));
    }
    let is_sound = outcomes.iter().all(|outcome| outcome.error.is_none());
    if options.wants(Floor::Real) && is_sound {
        let suite = Suite {
            program: "real",
            filters: &options.filters,
            versions: &[],
            earlier: None,
            keep: options.keep,
        };
        outcomes.push(attempt("end to end", || real(suite)));
    }
    Ok(summarise(&outcomes, options.wants(Floor::Real) && !is_sound))
}

/// Runs tests that take too long for every day.
pub(crate) fn soak(options: &SoakOptions) -> Result<ExitCode> {
    preflight::check(preflight::MEMORY_WITH_KAFKA)?;
    interrupt::listen(leftover()?)?;
    let takes_over = options.names.iter().any(|name| TAKEOVER.contains(name) || name.contains(TAKEOVER));
    let suite = Suite {
        program: "soak",
        filters: &options.names,
        versions: kafka::EVERY_LINE,
        earlier: takes_over.then_some(options.from.as_str()),
        keep: options.keep,
    };
    Ok(summarise(&[attempt("soak", || real(suite))], false))
}

/// What stays behind when a run ends at once.
fn leftover() -> Result<String> {
    let name = instance_name()?;
    Ok(format!(
        "If this run made a Kubernetes, it is there still: `cargo xtask down --name {name}` ends it, and so does the \
         next run of the tests."
    ))
}

/// The generated resource definitions are compared with their types by a unit test.
fn pure() -> [(&'static str, Vec<&'static str>); 3] {
    [
        ("formatting", vec!["fmt", "--all", "--check"]),
        ("lints", vec!["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
        ("unit tests", vec!["test", "--workspace", "--exclude", END_TO_END, "--quiet"]),
    ]
}

/// The random runs of each campaign: from which seed on, and how many. Those of (d) begin behind two findings that are open: see
/// docs/findings.md.
const SIMULATED: [(&str, &str, &str); 3] = [("d", "20001", "20000"), ("c", "1", "1000"), ("e", "1", "500")];

/// Campaigns of the simulation, optimised: unoptimised they would take all day.
fn simulation() -> Result<()> {
    SIMULATED.iter().try_for_each(|(campaign, from, seeds)| {
        let program = ["run", "--quiet", "--release", "--package", "karst-sim", "--"];
        cargo_visibly(&[&program[..], &["--campaign", campaign, "--from", from, "--seeds", seeds]].concat())
    })
}

fn real(suite: Suite<'_>) -> Result<()> {
    // Inside the instance's network no registry can be reached: compile before entering it.
    cargo_visibly(&["test", "--package", END_TO_END, "--no-run", "--quiet"])?;
    require_a_test(suite)?;
    let instance = Instance::named(&instance_name()?)?;
    let result = in_fresh_instance(&instance, suite);
    if suite.keep {
        note(format!(
            "the instance {} is left running; `cargo xtask down --name {0}` ends it",
            instance.name()
        ));
        return result;
    }
    // Also when somebody asked to stop: it starts no program.
    let stopped = local::stop(&instance);
    result.and(stopped)
}

/// A misspelt name must not look like a success.
fn require_a_test(suite: Suite<'_>) -> Result<()> {
    let mut list = Command::new(env!("CARGO"));
    list.current_dir(paths::checkout()).args(["test", "--quiet", "--package", END_TO_END]);
    list.args(["--test", suite.program, "--", "--list"]);
    let listed = command::output(list.args(suite.filters))?;
    if !listed.lines().any(|line| line.ends_with(": test")) {
        bail!("no test of the program {} is called {}", suite.program, suite.filters.join(" or "));
    }
    Ok(())
}

/// One instance for each checkout, so that clones do not disturb each other and a run finds what its
/// killed predecessor left behind.
fn instance_name() -> Result<Name> {
    let digest = hash::of_bytes(paths::checkout().as_os_str().as_encoded_bytes());
    format!("test-{}", &digest[..8]).parse()
}

fn in_fresh_instance(instance: &Instance, suite: Suite<'_>) -> Result<()> {
    let lock = instance.lock()?;
    if instance.exists() {
        step("Removing what an earlier run left behind", || instance.remove())?;
    }
    let running = local::start(instance, &lock)?;
    running.load_kafka(suite.versions)?;
    let image = running.load_operator()?;
    let earlier = suite.earlier.map(|revision| running.load_earlier(revision)).transpose()?;
    install::resource_definitions(&running.kubectl)?;
    install::operator(&running.kubectl, image)?;
    let result = run_inside(instance, &running, suite, earlier.as_ref());
    // Whoever stopped it knows why it failed.
    if result.is_err() && !interrupt::is_requested() {
        // What explains a failure must outlive the cluster in which it happened.
        let evidence = paths::checkout().join("target/test-evidence");
        keep_evidence(instance, &running, &evidence)?;
        note(format!("logs and objects of the failed run are in {}", evidence.display()));
    }
    result
}

fn run_inside(
    instance: &Instance,
    running: &Running,
    suite: Suite<'_>,
    earlier: Option<&Earlier>,
) -> Result<()> {
    let mut command = local::guest(instance, &running.binaries, paths::checkout(), env!("CARGO"))?;
    command.args(["test", "--offline", "--package", END_TO_END, "--test", suite.program]);
    command.args(["--", "--test-threads=1", "--nocapture"]);
    let failures = instance.state().join("failures.txt");
    command.args(suite.filters).env("KARST_E2E", "1").env("KARST_E2E_FAILURES", &failures);
    if let Some(earlier) = earlier {
        command.env("KARST_EARLIER", earlier.manifests());
    }
    // A story's error says what it waited for; the way through the test's runtime only buries it.
    command.env("RUST_BACKTRACE", "0");
    command::run_visibly(&mut command).with_context(|| told_failures(&failures))
}

/// What the stories that failed said themselves. One that panicked said it only where it happened.
fn told_failures(failures: &Path) -> String {
    let told = fs::read_to_string(failures).unwrap_or_default();
    format!("end-to-end tests failed\n{told}")
}

fn keep_evidence(instance: &Instance, running: &Running, target: &Path) -> Result<()> {
    if target.exists() {
        fs::remove_dir_all(target)?;
    }
    fs::create_dir_all(target)?;
    command::run(
        Command::new("cp").arg("-r").arg(instance.state().join("logs")).arg(target.join("kubernetes")),
    )?;
    command::run(Command::new("cp").arg("-r").arg(instance.state().join("pods")).arg(target.join("pods")))?;
    let objects = "kafka,kafkanodepool,strimzipodset,pods,services,configmaps,persistentvolumeclaims,events";
    for (file, query) in [
        ("overview.txt", ["get", objects, "--all-namespaces", "--output=wide"]),
        ("objects.yaml", ["get", objects, "--all-namespaces", "--output=yaml"]),
    ] {
        // A cluster that is too broken to answer leaves its answer in place of the objects.
        let text = running.kubectl.output(query).unwrap_or_else(|error| format!("{error:#}\n"));
        fs::write(target.join(file), text)?;
    }
    Ok(())
}

fn attempt(part: &'static str, work: impl FnOnce() -> Result<()>) -> Outcome {
    let started = Instant::now();
    let error = interrupt::check().and_then(|()| {
        headline(format!("Testing: {part}"));
        work()
    });
    let error = error.err();
    if let Some(error) = error.as_ref().filter(|_| !interrupt::is_requested()) {
        eprintln!("\nError: {error:#}");
    }
    Outcome { part, took: Elapsed(started.elapsed()), error }
}

fn summarise(outcomes: &[Outcome], left_out: bool) -> ExitCode {
    headline("Summary");
    for outcome in outcomes {
        let word = if outcome.error.is_none() { "passed" } else { "FAILED" };
        println!("  {word}  {} ({})", outcome.part, outcome.took);
        let why = outcome.error.as_ref().map(|error| format!("{error:#}")).unwrap_or_default();
        for line in why.lines() {
            println!("          {line}");
        }
    }
    if left_out {
        println!("  not run end to end, because of the failures above");
    }
    if interrupt::is_requested() {
        return ExitCode::from(interrupt::EXIT_CODE);
    }
    let all_passed = outcomes.iter().all(|outcome| outcome.error.is_none());
    if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn cargo_visibly(arguments: &[&str]) -> Result<()> {
    command::run_visibly(Command::new(env!("CARGO")).current_dir(paths::checkout()).args(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(filters: &[&str], floor: Option<Floor>) -> Options {
        Options { filters: filters.iter().map(ToString::to_string).collect(), floor, keep: false }
    }

    #[test]
    fn everything_is_tested_unless_somebody_asks_for_less() {
        let all = options(&[], None);
        assert!(all.wants(Floor::Pure) && all.wants(Floor::Real));
        let pure = options(&[], Some(Floor::Pure));
        assert!(pure.wants(Floor::Pure) && !pure.wants(Floor::Real));
        let named = options(&["scale"], None);
        assert!(!named.wants(Floor::Pure) && named.wants(Floor::Real));
    }

    #[test]
    fn one_failure_fails_the_whole() {
        let passed = || Outcome { part: "a", took: Elapsed(std::time::Duration::ZERO), error: None };
        let failed = Outcome { error: Some(anyhow::anyhow!("no")), ..passed() };
        assert_eq!(summarise(&[passed()], false), ExitCode::SUCCESS);
        assert_eq!(summarise(&[passed(), failed], false), ExitCode::FAILURE);
    }

    #[test]
    fn a_checkout_has_a_name_for_its_test_instance() {
        assert!(instance_name().unwrap().to_string().starts_with("test-"));
    }
}
