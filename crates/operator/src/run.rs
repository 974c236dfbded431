//! The life of the process: read everything, become the leader, work, stop in order.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use karst_core::plan;
use kube::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ask::Terms;
use crate::clients::Clients;
use crate::connection;
use crate::events::Events;
use crate::hands::Hands;
use crate::heartbeats::Heartbeats;
use crate::http::{self, Health, Rendered};
use crate::index::Index;
use crate::keys::Keys;
use crate::lease::{Election, Leadership};
use crate::metrics::Metrics;
use crate::pass::Passes;
use crate::places::Places;
use crate::queue::Queue;
use crate::references::References;
use crate::refusals::Refusals;
use crate::settings::Settings;
use crate::silences::Silences;
use crate::slots::Slots;
use crate::unreadable::LeftAlone;
use crate::watch::{self, Synced};
use crate::workers::Workers;

/// How long running passes may take to end when the operator stops.
const LAST_PASSES: Duration = Duration::from_secs(10);
/// How often what is not needed any more is looked for.
const TIDY: Duration = Duration::from_secs(10);
/// How many connections to Kafka there may be, where descriptors are many.
const MOST_CONNECTIONS: usize = 4096;
/// How many descriptors are for watches, health and the rest.
const OTHER_DESCRIPTORS: u64 = 512;

/// Runs until told to stop, or until the leadership is lost.
pub(crate) async fn run(settings: Settings) -> anyhow::Result<()> {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow!("another TLS provider is installed already"))?;
    let started = Instant::now();
    let config = Config::infer().await.context("cannot find out how to reach Kubernetes")?;
    let client = connection::client(config.clone())?;

    let index = Arc::new(Index::default());
    let queue = Arc::new(Queue::default());
    let synced = Arc::new(Synced::default());
    let metrics = Arc::new(Metrics::new());
    let heartbeats = Arc::new(Heartbeats::default());
    let clients = Arc::new(Clients::new(connections()));
    let leadership =
        Arc::new(if settings.lease.is_some() { Leadership::none() } else { Leadership::always() });
    // None of these ever ends. One that does takes the process with it: a part that is missing is seen by nobody.
    let mut background = watch::start(&client, &settings, &index, &queue, &synced, &heartbeats);
    background.spawn(tidy_up(Arc::clone(&clients), Arc::clone(&metrics), Arc::clone(&index)));

    let terms = Arc::new(Terms::default());
    let health = Arc::new(Health {
        terms: Arc::clone(&terms),
        synced: Arc::clone(&synced),
        index: Arc::clone(&index),
        queue: Arc::clone(&queue),
        leadership: Arc::clone(&leadership),
        metrics: Arc::clone(&metrics),
        heartbeats: Arc::clone(&heartbeats),
        rendered: Rendered::default(),
    });
    let mut server = tokio::spawn(http::serve(settings.http_address, health));
    let stop = stop_on_signal()?;

    let mut election = match &settings.lease {
        Some(lease) => {
            let client = connection::client(config)?;
            Some(Election::new(client, lease.clone(), Arc::clone(&heartbeats)))
        }
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
        ended = background.join_next() => return Err(why_ended(ended)),
    }

    let identity = settings.lease.as_ref().map(|lease| lease.identity.clone());
    let passes = Passes {
        decide: plan::plan,
        hands: Hands {
            client: client.clone(),
            index: Arc::clone(&index),
            queue: Arc::clone(&queue),
            leadership: Arc::clone(&leadership),
            heartbeats: Arc::clone(&heartbeats),
            confirmed: Arc::default(),
            memories: Arc::default(),
            keys: Keys::default(),
        },
        config_maps: References::new(client.clone(), Arc::clone(&queue), Arc::clone(&heartbeats)),
        named_secrets: References::new(client.clone(), Arc::clone(&queue), Arc::clone(&heartbeats)),
        events: Events::new(client, identity, Arc::clone(&leadership)),
        clients,
        slots: Slots::default(),
        silences: Silences::default(),
        panics: Refusals::default(),
        terms,
        unreadable: LeftAlone::default(),
        settings: Arc::clone(&settings.core),
        sees_all: settings.selector.is_none(),
    };
    let workers = Arc::new(Workers {
        job: passes,
        queue,
        metrics,
        heartbeats,
        places: Places::new(settings.workers),
        resync: settings.resync,
    });
    let work = tokio::spawn(workers.run(stop.clone()));
    let lead = async {
        tokio::select! {
            kept = keep(election.as_mut(), &leadership, &stop) => kept,
            ended = &mut server => ended?.context("the health server ended"),
            ended = background.join_next() => Err(why_ended(ended)),
        }
    };
    // Only when nothing is under way any more that relies on it the lease goes back; else it runs out by itself.
    let has_ended = work_while_leading(work, lead, &stop).await?;
    if let Some(election) = election.as_mut().filter(|_| has_ended) {
        election.release(&leadership).await;
    }
    Ok(())
}

/// Works for as long as this process leads, and is not told to stop. Returns whether nothing is under way any more.
async fn work_while_leading(
    mut work: JoinHandle<Result<(), JoinError>>,
    lead: impl Future<Output = anyhow::Result<()>>,
    stop: &CancellationToken,
) -> anyhow::Result<bool> {
    let led = tokio::select! {
        led = lead => led,
        ended = &mut work => {
            ended??;
            // Whoever has nothing to do hears first that it is time to stop.
            ensure!(stop.is_cancelled(), "the work on clusters ended");
            return Ok(true);
        }
    };
    if let Err(lost) = led {
        // Whoever leads now must not meet what this process began.
        work.abort();
        return Err(lost);
    }
    if let Ok(ended) = tokio::time::timeout(LAST_PASSES, work).await {
        ended??;
        return Ok(true);
    }
    tracing::warn!("passes have not ended in {} s; the lease runs out by itself", LAST_PASSES.as_secs());
    Ok(false)
}

fn why_ended(ended: Option<Result<(), JoinError>>) -> anyhow::Error {
    match ended {
        Some(Err(error)) => anyhow!("a watch or another task that never ends ended: {error}"),
        _ => anyhow!("a watch or another task that never ends ended"),
    }
}

/// Closes connections and forgets numbers that nobody needs any more.
async fn tidy_up(clients: Arc<Clients>, metrics: Arc<Metrics>, index: Arc<Index>) {
    loop {
        tokio::time::sleep(TIDY).await;
        clients.close_idle();
        metrics.forget_all_but(&index.kafkas().into_iter().map(|(key, ..)| key.namespace).collect());
    }
}

/// How many connections to Kafka there may be. Each takes a descriptor, and so does everything else.
fn connections() -> usize {
    let limit = descriptors();
    let free = limit.saturating_sub(OTHER_DESCRIPTORS).max(limit / 2);
    tracing::debug!(limit, "descriptors");
    MOST_CONNECTIONS.min(usize::try_from(free).unwrap_or(MOST_CONNECTIONS))
}

/// Raises the limit of descriptors as far as it goes without asking, and returns it.
fn descriptors() -> u64 {
    let limits = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limits.maximum, maximum: limits.maximum };
    match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => limits.maximum.unwrap_or(u64::MAX),
        Err(error) => {
            tracing::warn!(%error, "the limit of open files stays as it is");
            limits.current.unwrap_or(u64::MAX)
        }
    }
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

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn work_that_hears_first_that_it_is_time_to_stop_has_not_failed() {
        let stop = CancellationToken::new();
        let told = stop.clone();
        let work = tokio::spawn(async move {
            told.cancelled().await;
            Ok(())
        });
        stop.cancel();
        assert!(work_while_leading(work, pending(), &stop).await.unwrap());
    }

    #[tokio::test]
    async fn work_that_ends_by_itself_has_failed() {
        let work = tokio::spawn(async { Ok(()) });
        let ended = work_while_leading(work, pending(), &CancellationToken::new()).await;
        assert_eq!(ended.unwrap_err().to_string(), "the work on clusters ended");
    }

    #[tokio::test]
    async fn work_ends_when_the_lease_is_lost() {
        let (began, ended) = tokio::sync::oneshot::channel::<()>();
        let work = tokio::spawn(async move {
            let _began = began;
            pending().await
        });
        let lost = async { Err(anyhow!("lost")) };
        assert!(work_while_leading(work, lost, &CancellationToken::new()).await.is_err());
        assert!(ended.await.is_err(), "what was under way goes on");
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_of_who_is_still_at_work_is_not_given_back() {
        let work = tokio::spawn(pending());
        assert!(!work_while_leading(work, async { Ok(()) }, &CancellationToken::new()).await.unwrap());
    }
}
