//! The `kubectl` on the path, used where a user would use it: applying files, reading tables, running tools in pods.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use anyhow::{Context, Result, bail};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Runs kubectl and returns what it printed. Fails when it fails.
pub async fn run(arguments: &[&str]) -> Result<String> {
    feed(arguments, "").await
}

/// Runs kubectl with something to read.
pub async fn feed(arguments: &[&str], input: &str) -> Result<String> {
    let mut command = Command::new("kubectl");
    command.args(arguments);
    text(&output(&mut command, input).await?, &format!("kubectl {}", arguments.join(" ")))
}

/// Applies manifests to a namespace, as a user would.
pub async fn apply(namespace: &str, manifests: &str) -> Result<String> {
    feed(&["apply", "--namespace", namespace, "-f", "-"], manifests).await
}

/// Runs a program to its end, giving it `input` to read.
pub(crate) async fn output(command: &mut Command, input: &str) -> Result<Output> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().with_context(|| format!("cannot run {program}: is it on the PATH?"))?;
    if let Some(mut stdin) = child.stdin.take() {
        let input = input.to_owned();
        // A program that does not read its input ends before it is written; that is no failure.
        tokio::spawn(async move { stdin.write_all(input.as_bytes()).await });
    }
    Ok(child.wait_with_output().await?)
}

/// What a program printed, when it succeeded; otherwise an error with all it said.
pub(crate) fn text(output: &Output, what: &str) -> Result<String> {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    bail!("{what}: {}\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr))
}

/// Everything that helps to understand why a story failed.
pub async fn describe_scene(namespace: &str) -> String {
    let in_namespace = ["--namespace", namespace];
    let status = "custom-columns=KIND:.kind,NAME:.metadata.name,STATUS:.status";
    let queries: [(&str, &[&str]); 5] = [
        ("objects", &["get", "kafka,kafkanodepool,strimzipodset,pods,pvc,services,configmaps"]),
        ("statuses", &["get", "kafka,kafkanodepool", "--output", status]),
        ("events", &["get", "events", "--sort-by=.lastTimestamp"]),
        ("pods", &["describe", "pods"]),
        ("operator", &[]),
    ];
    let mut report = format!("\n===== what is in {namespace} =====\n");
    for (title, query) in queries {
        let answer = match query {
            [] => run(&["logs", "--namespace=karst-system", "deployment/karst-operator", "--tail=60"]).await,
            query => run(&[query, &in_namespace].concat()).await,
        };
        let answer = answer.unwrap_or_else(|error| format!("{error:#}"));
        report.push_str(&format!("----- {title} -----\n{answer}\n"));
    }
    report.push_str(&match keep_logs(namespace).await {
        Ok(place) => format!("----- all that Kafka logged is in {} -----\n", place.display()),
        Err(error) => format!("----- what Kafka logged could not be kept: {error:#} -----\n"),
    });
    report
}

/// Saves the logs of all pods, of containers that ended too: they are gone with the namespace.
async fn keep_logs(namespace: &str) -> Result<PathBuf> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/e2e-logs").join(namespace);
    std::fs::create_dir_all(&place)?;
    let pods = run(&["get", "pods", "--namespace", namespace, "--output", "name"]).await?;
    for pod in pods.lines() {
        for (file, which) in [("log", "--previous=false"), ("previous.log", "--previous=true")] {
            // Most pods have no previous container.
            let Ok(log) = run(&["logs", "--namespace", namespace, pod, "--container=kafka", which]).await
            else {
                continue;
            };
            std::fs::write(place.join(format!("{}.{file}", pod.trim_start_matches("pod/"))), log)?;
        }
    }
    Ok(place)
}
