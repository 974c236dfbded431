//! The life of the process: read everything, become the leader, work, stop in order.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use kube::{Client, Config};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ask::Terms;
use crate::checked::Checked;
use crate::clients::Clients;
use crate::clock;
use crate::events::Events;
use crate::hands::Hands;
use crate::http::{self, Health};
use crate::index::Index;
use crate::lease::{Election, Leadership};
use crate::metrics::Metrics;
use crate::pass::Passes;
use crate::queue::{Outcome, Queue, Work};
use crate::references::References;
use crate::refusals::Refusals;
use crate::settings::Settings;
use crate::slots::Slots;
use crate::troubles::Troubles;
use crate::watch::{self, Synced};

/// How long running passes may take to end when the operator stops.
const LAST_PASSES: Duration = Duration::from_secs(10);

/// Runs until told to stop, or until the leadership is lost.
pub(crate) async fn run(settings: Settings) -> anyhow::Result<()> {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another TLS provider is installed already"))?;
    let started = Instant::now();
    let config = Config::infer().await.context("cannot find out how to reach Kubernetes")?;
    let client = clock::client(config.clone())?;

    let index = Arc::new(Index::default());
    let queue = Arc::new(Queue::default());
    let synced = Arc::new(Synced::default());
    let metrics = Arc::new(Metrics::new());
    let leadership =
        Arc::new(if settings.lease.is_some() { Leadership::none() } else { Leadership::always() });
    let mut background = watch::start(&client, &settings, &index, &queue, &synced);

    let terms = Arc::new(Terms::default());
    let health = Arc::new(Health {
        terms: Arc::clone(&terms),
        synced: Arc::clone(&synced),
        index: Arc::clone(&index),
        queue: Arc::clone(&queue),
        leadership: Arc::clone(&leadership),
        metrics: Arc::clone(&metrics),
    });
    let mut server = tokio::spawn(http::serve(settings.http_address, health));
    let stop = stop_on_signal()?;

    let mut election = match &settings.lease {
        Some(lease) => Some(Election::new(without_retries(config)?, lease.clone())),
        None => None,
    };
    let ready = async {
        synced.done().await;
        tracing::info!(ms = started.elapsed().as_millis(), version = env!("CARGO_PKG_VERSION"), "ready");
        if let Some(election) = &mut election {
            election.win(&leadership).await;
            tracing::info!("this replica leads");
        }
    };
    tokio::select! {
        () = ready => {}
        () = stop.cancelled() => return Ok(()),
        ended = &mut server => return ended?.context("the health server ended"),
        _ = background.join_next() => return Err(anyhow!("a watch ended")),
    }

    let identity = settings.lease.as_ref().map(|lease| lease.identity.clone());
    let passes = Arc::new(Passes {
        hands: Hands {
            client: client.clone(),
            index: Arc::clone(&index),
            queue: Arc::clone(&queue),
            leadership: Arc::clone(&leadership),
        },
        config_maps: References::new(client.clone(), Arc::clone(&queue)),
        named_secrets: References::new(client.clone(), Arc::clone(&queue)),
        events: Events::new(client, identity),
        clients: Clients::default(),
        slots: Slots::default(),
        terms,
        troubles: Troubles::default(),
        growths: Refusals::default(),
        strangers: Refusals::default(),
        refusals: Refusals::default(),
        checked: Checked::default(),
        doors: Refusals::default(),
        settings: Arc::clone(&settings.core),
        sees_all: settings.selector.is_none(),
    });
    let mut workers = start_workers(&settings, &passes, &queue, &metrics, &stop);
    let lost = tokio::select! {
        kept = keep(election.as_mut(), &leadership, &stop) => kept,
        ended = &mut server => ended?.context("the health server ended"),
        _ = background.join_next() => Err(anyhow!("a watch ended")),
    };
    stop.cancel();
    let _ = tokio::time::timeout(LAST_PASSES, async { while workers.join_next().await.is_some() {} }).await;
    if lost.is_ok()
        && let Some(election) = &mut election
    {
        election.release(&leadership).await;
    }
    lost
}

async fn keep(
    election: Option<&mut Election>,
    leadership: &Leadership,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    match election {
        Some(election) => election.keep(leadership, stop).await,
        None => {
            stop.cancelled().await;
            Ok(())
        }
    }
}

/// The lease is renewed by the clock: a client that retries by itself for minutes would hide that it is lost.
fn without_retries(mut config: Config) -> anyhow::Result<Client> {
    config.default_retry = false;
    Ok(clock::client(config)?)
}

fn stop_on_signal() -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let token = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        token.cancel();
    });
    Ok(stop)
}

fn start_workers(
    settings: &Settings,
    passes: &Arc<Passes>,
    queue: &Arc<Queue>,
    metrics: &Arc<Metrics>,
    stop: &CancellationToken,
) -> JoinSet<()> {
    let mut workers = JoinSet::new();
    for _ in 0..settings.workers {
        let (passes, queue, metrics) = (Arc::clone(passes), Arc::clone(queue), Arc::clone(metrics));
        let (stop, resync) = (stop.clone(), settings.resync);
        workers.spawn(async move {
            while let Some(work) = stop.run_until_cancelled(queue.next()).await {
                let began = Instant::now();
                let outcome = do_work(&passes, &work).await;
                metrics.count(&work, outcome, began.elapsed());
                queue.finish(work.clone(), with_resync(&work, outcome, resync));
            }
        });
    }
    workers
}

async fn do_work(passes: &Passes, work: &Work) -> Outcome {
    match work {
        Work::Cluster(key) => passes.cluster(key).await,
        Work::PodSet { cluster, name } => passes.pod_set(cluster, name).await,
    }
}

/// Clusters are looked at now and then though nothing changed, each at its own time.
fn with_resync(work: &Work, outcome: Outcome, resync: Duration) -> Outcome {
    match (work, outcome) {
        (Work::Cluster(_), Outcome::Done { look_again: None }) => {
            let mut hasher = DefaultHasher::new();
            work.hash(&mut hasher);
            let jitter = resync.mul_f64((hasher.finish() % 1000) as f64 / 4000.0);
            Outcome::Done { look_again: Some(resync + jitter) }
        }
        (_, outcome) => outcome,
    }
}
