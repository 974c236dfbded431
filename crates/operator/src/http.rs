//! Health and metrics over HTTP.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::ask::Terms;
use crate::index::Index;
use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::watch::Synced;

/// What the answers are made from.
#[derive(Debug)]
pub(crate) struct Health {
    pub(crate) synced: Arc<Synced>,
    pub(crate) index: Arc<Index>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) leadership: Arc<Leadership>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) terms: Arc<Terms>,
}

impl Health {
    fn answer(&self, path: &str) -> (StatusCode, String) {
        match path {
            "/healthz" | "/healthy" => (StatusCode::OK, "alive\n".to_owned()),
            "/readyz" | "/ready" if self.synced.is_done() => (StatusCode::OK, "ready\n".to_owned()),
            "/readyz" | "/ready" => {
                (StatusCode::SERVICE_UNAVAILABLE, "still reading the cluster\n".to_owned())
            }
            "/metrics" => {
                (StatusCode::OK, self.metrics.render(&self.index, &self.queue, &self.leadership, &self.terms))
            }
            _ => (StatusCode::NOT_FOUND, "try /healthz, /readyz or /metrics\n".to_owned()),
        }
    }
}

/// Serves until the process ends.
pub(crate) async fn serve(address: SocketAddr, health: Arc<Health>) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot serve health and metrics on {address} (see --http-address)"))?;
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let health = Arc::clone(&health);
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let (status, text) = health.answer(request.uri().path());
                let mut response = Response::new(Full::new(Bytes::from(text)));
                *response.status_mut() = status;
                async move { Ok::<_, Infallible>(response) }
            });
            if let Err(error) = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await
            {
                tracing::debug!(%error, "a health connection ended early");
            }
        });
    }
}
