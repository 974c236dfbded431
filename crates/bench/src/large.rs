//! What only many clusters show: all changed at once, all of them alive, and some of them hung.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::budgets;
use crate::clusters::NAMESPACE;
use crate::live::Live;
use crate::report::{Figure, Value, median};
use crate::scenario::{REPEATS, resident, say};
use crate::stage::Running;
use crate::usage::Memory;

/// So many of them hang.
const HUNG: usize = 20;
/// How long all of them may take to be as they were asked for.
const CHANGED: Duration = Duration::from_secs(1800);
/// How long it may take until the operator has asked each cluster.
const CONNECTED: Duration = Duration::from_secs(600);
/// For so long the number of connections must not grow to count as all there are.
const STEADY: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What is unhealthy is asked about every second: in this time everybody who hangs was asked a few times.
const HANGING: Duration = Duration::from_secs(30);
/// The noise of a machine that also runs the API server.
const NOISE: Duration = Duration::from_millis(100);

/// Changes a setting of all clusters, for which every pod has to be made anew.
pub(crate) async fn change_all(
    running: &mut Running,
    figures: &mut Vec<Figure>,
    clusters: usize,
) -> Result<()> {
    say(&format!("Changing a setting of {clusters} clusters at once"));
    let (cpu, before) = (running.cpu()?, pods(running).await?);
    let setting = json!({ "spec": { "kafka": { "config": { "queued.max.requests": 400 } } } });
    running.change_in(NAMESPACE, 1..=clusters, &setting).await?;
    running.settle_within(CHANGED).await?;
    let anew = pods(running).await?.difference(&before).count();
    let used = Figure::new(
        format!("{clusters} clusters changed at once: CPU of the operator"),
        Value::Time(running.cpu()? - cpu),
    );
    let used = used.below(Value::Time(budgets::ALL_CHANGED));
    figures.push(used.noting([format!("{anew} of {} pods were made anew", before.len())]));
    figures.push(resident(format!("resident memory, {clusters} changed clusters"), running.memory()?));
    Ok(())
}

/// The pods that there are, by their UIDs.
async fn pods(running: &Running) -> Result<HashSet<String>> {
    let api: Api<Pod> = Api::namespaced(running.client().clone(), NAMESPACE);
    let pods = api.list_metadata(&ListParams::default()).await?;
    Ok(pods.into_iter().filter_map(|pod| pod.uid()).collect())
}

/// Lets all clusters live, then some of them hang, and sees how soon a new cluster gets its pods beside them.
pub(crate) async fn live(running: &mut Running, figures: &mut Vec<Figure>, clusters: usize) -> Result<()> {
    say(&format!("Letting {clusters} clusters live"));
    let live = Live::begin(running.client()).await?;
    let (memory, connections) = connected(running, &live, clusters).await?;
    let figure = resident(format!("resident memory, {clusters} clusters that answer"), memory);
    let figure = figure.noting([format!("{connections} connections")]);
    figures.push(match budgets::memory(clusters) {
        Some(budget) => figure.below(Value::Bytes(budget)),
        None => figure,
    });

    let alone = reactions(running, clusters + 1).await?;
    figures.push(Figure::median(&format!("one more cluster → 6 pods, {clusters} answer"), &alone));
    say(&format!("Letting {HUNG} of them hang"));
    live.kafka.hang((1..=HUNG).map(|number| (NAMESPACE.to_owned(), crate::clusters::name(number))));
    sleep(HANGING).await;
    let beside = reactions(running, clusters + REPEATS + 1).await?;
    let limit = 2 * median(&alone) + NOISE;
    let figure = Figure::median(&format!("one more cluster → 6 pods, {HUNG} hang"), &beside);
    figures.push(
        figure.below(Value::Time(limit)).noting(["twice as long as before would be too much".to_owned()]),
    );
    Ok(())
}

/// The most memory, and the most connections at a time, until the operator has asked everybody and opened all that it wants.
async fn connected(running: &Running, live: &Live, clusters: usize) -> Result<(Memory, usize)> {
    let began = Instant::now();
    let (mut most, mut most_memory) = (0, running.memory()?);
    let mut grew = Instant::now();
    while live.kafka.asked() < clusters || grew.elapsed() < STEADY {
        if began.elapsed() > CONNECTED {
            let (asked, words) = (live.kafka.asked(), running.last_words());
            bail!("the operator has asked only {asked} of {clusters} clusters; its last words:\n{words}");
        }
        sleep(LOOK_EVERY).await;
        let memory = running.memory()?;
        if memory.resident > most_memory.resident {
            most_memory = memory;
        }
        if live.kafka.connections() > most {
            (most, grew) = (live.kafka.connections(), Instant::now());
        }
    }
    Ok((most_memory, most))
}

/// How soon clusters that come alone get their pods, from this number on.
async fn reactions(running: &mut Running, from: usize) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for number in from..from + REPEATS {
        say(&format!("Applying a cluster beside all others, {} of {REPEATS}", number - from + 1));
        times.push(running.appear(number..=number).await?);
    }
    Ok(times)
}
