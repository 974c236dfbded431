//! A week in an hour: clusters come, change and go, always others in another namespace. When all of them are gone the operator is as
//! small as it was.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::clusters::{self, NODES};
use crate::live::Live;
use crate::report::{Figure, Limit, Value};
use crate::scenario::{resident, say};
use crate::stage::Running;
use crate::usage::Memory;

/// So many clusters at a time: those of a day.
const CLUSTERS: usize = 10;
/// The first days warm it up: programs are read in, buffers and tables grow to their size.
const WARM_UP: usize = 3;
/// How long the pods of a day may take to come, to change and to go.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long a changed cluster is left to restart its pods. It need not be done when it goes.
const CHANGING: Duration = Duration::from_secs(10);
/// What it keeps of clusters that are gone may take this long to go. Connections to the API server that nobody uses stay open for a
/// minute and a half: some hundred, when ten clusters came at once.
const FORGETTING: Duration = Duration::from_secs(120);
/// What the process may have grown by: a tenth, for memory that is free and not given back.
const GROWTH: f64 = 1.1;
/// Connections to the API server come and go by ones and twos.
const MORE_FILES: u64 = 3;

/// What must not grow.
#[derive(Debug, Clone, Copy)]
struct Size {
    memory: Memory,
    files: u64,
    series: u64,
}

/// Days follow one another for so long, and at least one.
pub(crate) async fn measure(running: &mut Running, length: Duration) -> Result<Vec<Figure>> {
    let mut live = Live::begin(running.client()).await?;
    let mut days = 0;
    for _ in 0..WARM_UP {
        days = spend(running, &mut live, days).await?;
    }
    let before = size(running).await?;
    let until = Instant::now() + length;
    let warm = days;
    while days == warm || Instant::now() < until {
        days = spend(running, &mut live, days).await?;
    }
    let after = size(running).await?;
    Ok(figures(before, after, days - warm))
}

fn figures(before: Size, after: Size, days: usize) -> Vec<Figure> {
    let clusters = days * CLUSTERS;
    let was = |value: Value| [format!("{value} before")];
    let memory = Value::Bytes(before.memory.resident);
    let allowed = (before.memory.resident as f64 * GROWTH) as u64;
    let count = |what: &str, before: u64, after: u64, more: u64| {
        Figure::new(format!("{what} after {clusters} clusters came and went"), Value::Count(after))
            .limited(Limit::AtMost(Value::Count(before + more)))
            .noting(was(Value::Count(before)))
    };
    vec![
        resident(format!("resident memory after {clusters} clusters came and went"), after.memory)
            .limited(Limit::AtMost(Value::Bytes(allowed)))
            .noting(was(memory)),
        count("open files", before.files, after.files, MORE_FILES),
        count("series of metrics", before.series, after.series, 0),
    ]
}

/// One day: clusters come, are changed, and go with their namespace.
async fn spend(running: &mut Running, live: &mut Live, day: usize) -> Result<usize> {
    let namespace = format!("day-{day:04}");
    say(&format!("Day {}: {CLUSTERS} clusters come, change and go", day + 1));
    clusters::create_namespace(running.client(), &namespace).await?;
    running.apply_in(&namespace, 1..=CLUSTERS).await?;
    running.until_pods_in(&namespace, CLUSTERS * NODES, PATIENCE).await?;
    let setting = json!({ "spec": { "kafka": { "config": { "queued.max.requests": 400 } } } });
    running.change_in(&namespace, 1..=CLUSTERS, &setting).await?;
    sleep(CHANGING).await;
    clusters::delete_namespace(running.client(), &namespace, PATIENCE).await?;
    live.kafka.forget(&namespace);
    running.must_run()?;
    Ok(day + 1)
}

/// How large the operator is when it has forgotten what it knows of clusters that are gone.
async fn size(running: &mut Running) -> Result<Size> {
    sleep(FORGETTING).await;
    running.settle_within(PATIENCE).await?;
    let metrics = running.metrics().await?;
    let series = metrics.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
    Ok(Size { memory: running.memory()?, files: open_files(running.pid())?, series: u64::try_from(series)? })
}

fn open_files(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/fd");
    let files = fs::read_dir(&path).with_context(|| format!("reading {path}"))?;
    Ok(u64::try_from(files.count())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_keeps_something_of_clusters_that_are_gone_is_over_the_limit() {
        let size = |resident, files, series| Size {
            memory: Memory { resident, anonymous: resident, peak: resident },
            files,
            series,
        };
        let before = size(20_000_000, 20, 100);
        let over = |after| figures(before, after, 7).iter().filter(|figure| figure.is_over()).count();
        assert_eq!(over(size(21_000_000, 22, 100)), 0);
        assert_eq!(over(size(23_000_000, 24, 101)), 3);
    }

    #[test]
    fn open_files_are_counted() {
        let before = open_files(std::process::id()).unwrap();
        let _file = tempfile::tempfile().unwrap();
        assert!(open_files(std::process::id()).unwrap() > before.saturating_sub(3));
    }
}
