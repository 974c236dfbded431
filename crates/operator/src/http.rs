//! Health and metrics over HTTP, for whoever can reach the port: so nobody who can may harm the operator. Each connection has
//! one question and little time for it, the oldest one goes when there are too many, and metrics are rendered once a second at
//! the most.

mod server;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Bytes;
use tokio::time::Instant;

use crate::ask::Terms;
use crate::heartbeats::Heartbeats;
use crate::index::Index;
use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::watch::Synced;

/// For how long metrics are as good as new.
const FRESH: Duration = Duration::from_secs(1);

/// What the answers are made from.
#[derive(Debug)]
pub(crate) struct Health {
    pub(crate) synced: Arc<Synced>,
    pub(crate) index: Arc<Index>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) leadership: Arc<Leadership>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) terms: Arc<Terms>,
    pub(crate) heartbeats: Arc<Heartbeats>,
    pub(crate) rendered: Rendered,
}

/// The metrics as they were rendered last.
#[derive(Debug, Default)]
pub(crate) struct Rendered(Mutex<Option<(Instant, Bytes)>>);

impl Rendered {
    fn get(&self, render: impl FnOnce() -> String) -> Bytes {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, text)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return text.clone();
        }
        let text = Bytes::from(render());
        *last = Some((Instant::now(), text.clone()));
        text
    }
}

impl Health {
    fn answer(&self, path: &str) -> (StatusCode, Bytes) {
        let say = |status, text: &'static str| (status, Bytes::from_static(text.as_bytes()));
        match path {
            "/healthz" | "/healthy" => match self.heartbeats.check() {
                Ok(()) => say(StatusCode::OK, "alive\n"),
                Err(still) => (StatusCode::SERVICE_UNAVAILABLE, Bytes::from(format!("{still}\n"))),
            },
            "/readyz" | "/ready" if self.synced.is_done() => say(StatusCode::OK, "ready\n"),
            "/readyz" | "/ready" => say(StatusCode::SERVICE_UNAVAILABLE, "still reading the cluster\n"),
            "/metrics" => (StatusCode::OK, self.rendered.get(|| self.render())),
            _ => say(StatusCode::NOT_FOUND, "try /healthz, /readyz or /metrics\n"),
        }
    }

    fn render(&self) -> String {
        self.metrics.render(&self.index, &self.queue, &self.leadership, &self.terms)
    }
}

/// Serves until the process ends.
pub(crate) async fn serve(address: SocketAddr, health: Arc<Health>) -> anyhow::Result<()> {
    let listeners = server::listen(address).await?;
    server::serve(listeners, move |path| health.answer(path)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn metrics_are_rendered_once_a_second_however_often_somebody_asks() {
        let (rendered, mut times) = (Rendered::default(), 0);
        for _ in 0..20 {
            rendered.get(|| {
                times += 1;
                times.to_string()
            });
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(times, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_of_which_a_part_stands_still_is_not_alive() {
        let health = Health {
            synced: Arc::default(),
            index: Arc::default(),
            queue: Arc::default(),
            leadership: Arc::new(Leadership::always()),
            metrics: Arc::new(Metrics::new()),
            terms: Arc::default(),
            heartbeats: Arc::default(),
            rendered: Rendered::default(),
        };
        assert_eq!(health.answer("/healthz").0, StatusCode::OK);
        health.heartbeats.beat(crate::heartbeats::Part::Lease);
        tokio::time::advance(Duration::from_secs(61)).await;
        let (status, text) = health.answer("/healthz");
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(text, "the renewal of the lease has not gone on for 61 s\n");
    }
}
