//! A door between an operator and the API server that counts what is written, and closes for ever at a chosen write.
//!
//! Crashes at random moments find few of the moments there are. Behind this door an operator can be crashed at every
//! single write, both when the write never arrived and when it arrived but its answer was lost.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// When the door closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// Never.
    Never,
    /// Before the write with this number reaches the API server.
    Before(usize),
    /// After the write with this number was carried out, before anybody learns of it.
    After(usize),
}

/// A door. It is taken away when dropped.
#[derive(Debug)]
pub struct Door {
    /// Where the operator finds it.
    pub address: SocketAddr,
    passage: Arc<Passage>,
    task: JoinHandle<()>,
}

struct Passage {
    client: Client,
    closing: Closing,
    writes: AtomicUsize,
    /// Gets its one permit when the door closes.
    closed: Semaphore,
}

impl std::fmt::Debug for Passage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passage").field("closing", &self.closing).finish_non_exhaustive()
    }
}

impl Door {
    /// Opens a door to the API server of `client`, with the rights of `client`.
    pub async fn open(client: &Client, closing: Closing) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("opening a door to the API server")?;
        let address = listener.local_addr()?;
        let passage = Arc::new(Passage {
            client: client.clone(),
            closing,
            writes: AtomicUsize::new(0),
            closed: Semaphore::new(0),
        });
        let task = tokio::spawn(serve(listener, Arc::clone(&passage)));
        Ok(Self { address, passage, task })
    }

    /// How many writes were tried.
    pub fn writes(&self) -> usize {
        self.passage.writes.load(Ordering::Acquire)
    }

    /// Waits until the door has closed.
    pub async fn closed(&self) {
        // The permit is given back at once, so this can be asked again.
        let _permit = self.passage.closed.acquire().await;
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, passage: Arc<Passage>) {
    while let Ok((stream, _)) = listener.accept().await {
        let passage = Arc::clone(&passage);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let passage = Arc::clone(&passage);
                async move { Ok::<_, Infallible>(passage.pass(request).await) }
            });
            // A connection that breaks off is what the death of an operator looks like from here.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

impl Passage {
    async fn pass(&self, request: Request<Incoming>) -> Response<Body> {
        if self.is_closed() {
            return std::future::pending().await;
        }
        if request.method() == Method::GET {
            return self.forward(request).await;
        }
        let number = self.writes.fetch_add(1, Ordering::AcqRel) + 1;
        if self.closing == Closing::Before(number) {
            return self.close().await;
        }
        let answer = self.forward(request).await;
        if self.closing == Closing::After(number) || self.is_closed() {
            return self.close().await;
        }
        answer
    }

    fn is_closed(&self) -> bool {
        self.closed.available_permits() > 0
    }

    /// Closes the door. Whoever waits for an answer waits for ever.
    async fn close(&self) -> Response<Body> {
        if !self.is_closed() {
            self.closed.add_permits(1);
        }
        std::future::pending().await
    }

    async fn forward(&self, request: Request<Incoming>) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        // The client behind the door knows the server's name and its own rights.
        parts.headers.remove(hyper::header::HOST);
        parts.headers.remove(hyper::header::AUTHORIZATION);
        let answer = match body.collect().await {
            Ok(body) => self.client.send(Request::from_parts(parts, Body::from(body.to_bytes()))).await,
            Err(_) => return refusal(),
        };
        answer.unwrap_or_else(|_| refusal())
    }
}

fn refusal() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    response
}
