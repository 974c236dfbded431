//! A small HTTP server that nobody can occupy.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet, yield_now};

use crate::panics::contained;

/// How many connections there may be at each listener.
const CONNECTIONS: usize = 32;
/// How long it may take to say what one wants to know.
const HEAD: Duration = Duration::from_secs(5);
/// How long a connection may last: metrics of a thousand clusters are long, and some lines slow.
const ALL: Duration = Duration::from_secs(20);
/// The longest head of a request, the least that is possible. Bodies are not read.
const BUFFER: usize = 8 << 10;
/// The pause after no connection could be accepted, as when there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Listens. Where IPv6 is asked for, on whatever of IPv6 and IPv4 the machine has.
pub(super) async fn listen(address: SocketAddr) -> anyhow::Result<Vec<TcpListener>> {
    let mut outcomes = vec![TcpListener::bind(address).await];
    if address.is_ipv6() && address.ip().is_unspecified() {
        // In use already, where the first one takes both: then there is nothing to add.
        let ipv4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), address.port());
        outcomes.push(TcpListener::bind(ipv4).await);
    }
    let (listeners, errors): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    match errors.into_iter().next() {
        Some(Err(error)) if listeners.is_empty() => Err(error)
            .with_context(|| format!("cannot serve health and metrics on {address} (see --http-address)")),
        _ => Ok(listeners.into_iter().flatten().collect()),
    }
}

/// Answers questions, by their paths, until the process ends.
pub(super) async fn serve(
    listeners: Vec<TcpListener>,
    answer: impl Fn(&str) -> (StatusCode, Bytes) + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let answer = Arc::new(answer);
    let mut all = JoinSet::new();
    for listener in listeners {
        let answer = Arc::clone(&answer);
        all.spawn(async move { serve_one(&listener, answer).await });
    }
    while let Some(ended) = all.join_next().await {
        ended?;
    }
    Ok(())
}

async fn serve_one(
    listener: &TcpListener,
    answer: Arc<impl Fn(&str) -> (StatusCode, Bytes) + Send + Sync + 'static>,
) {
    let mut connections = Connections::default();
    let mut pause = PAUSE;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                pause = PAUSE;
                connections.add(one_question(stream, Arc::clone(&answer)));
                // However many others wait to be accepted: it is looked at before it can be the oldest.
                yield_now().await;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection to health and metrics");
                if is_about_us(&error) {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }
}

/// Will the next attempt fail as well? Not if it was only that somebody hung up.
fn is_about_us(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

async fn one_question(
    stream: TcpStream,
    answer: Arc<impl Fn(&str) -> (StatusCode, Bytes) + Send + Sync + 'static>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (status, text) = answer(request.uri().path());
        let mut response = Response::new(Full::new(text));
        *response.status_mut() = status;
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(BUFFER)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // What somebody sends who can reach the port must not end the process.
    match tokio::time::timeout(ALL, contained(connection)).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => tracing::debug!(%error, "a connection to health and metrics ended early"),
        Ok(Err(panicked)) => tracing::error!(%panicked, "a connection to health and metrics ended"),
        Err(_) => tracing::debug!("a connection to health and metrics took too long"),
    }
}

/// The connections of a listener, the oldest first. When there are too many it is ended: a probe takes a millisecond, so the
/// oldest is one of those that only occupy a place.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    handles: VecDeque<AbortHandle>,
}

impl Connections {
    fn add(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        self.handles.retain(|handle| !handle.is_finished());
        while self.handles.len() >= CONNECTIONS
            && let Some(oldest) = self.handles.pop_front()
        {
            oldest.abort();
        }
        self.handles.push_back(self.tasks.spawn(connection));
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    /// A server that says `yes`, and its address.
    async fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        answer(listener);
        address
    }

    fn answer(listener: TcpListener) {
        tokio::spawn(serve(vec![listener], |path| {
            assert_ne!(path, "/panic");
            (StatusCode::OK, Bytes::from_static(b"yes"))
        }));
    }

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // Whoever is too long is not listened to.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    async fn is_served(address: SocketAddr) -> bool {
        ask(address, "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.ends_with("yes")
    }

    #[tokio::test]
    async fn whoever_occupies_connections_keeps_no_probe_waiting() {
        let address = server().await;
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS * 3 {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let began = Instant::now();
        assert!(is_served(address).await);
        assert!(began.elapsed() < HEAD, "it waited for others: {:?}", began.elapsed());
        // The oldest was ended, without an answer.
        let mut nothing = [0; 1];
        assert_eq!(idle[0].read(&mut nothing).await.unwrap_or(0), 0);
        assert!(began.elapsed() < HEAD / 2, "it was not ended before its time: {:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_probe_in_the_middle_of_a_flood_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // All of them wait to be accepted, as when the server was busy for a moment.
        let mut flood = Vec::new();
        for _ in 0..CONNECTIONS / 2 {
            flood.push(TcpStream::connect(address).await.unwrap());
        }
        let mut probe = TcpStream::connect(address).await.unwrap();
        probe.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        for _ in 0..CONNECTIONS * 3 {
            flood.push(TcpStream::connect(address).await.unwrap());
        }
        answer(listener);
        let mut told = String::new();
        let _ = probe.read_to_string(&mut told).await;
        assert!(told.ends_with("yes"), "it was ended unheard: {told:?}");
    }

    #[tokio::test]
    async fn a_request_that_is_never_complete_or_too_long_is_not_waited_for() {
        let address = server().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost:").await.unwrap();
        let began = Instant::now();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert!(began.elapsed() < HEAD + Duration::from_secs(3), "{:?}", began.elapsed());
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(BUFFER * 4));
        assert!(!ask(address, &long).await.ends_with("yes"));
        assert!(is_served(address).await);
    }

    #[tokio::test]
    async fn a_connection_has_one_question_and_a_panic_is_its_own() {
        let address = server().await;
        let twice = "GET /a HTTP/1.1\r\nhost: x\r\n\r\n".repeat(2);
        assert_eq!(ask(address, &twice).await.matches("yes").count(), 1);
        assert_eq!(ask(address, "GET /panic HTTP/1.1\r\nhost: x\r\n\r\n").await, "");
        assert!(is_served(address).await);
    }

    #[tokio::test]
    async fn all_addresses_means_those_of_both_kinds() {
        let listeners = listen("[::]:0".parse().unwrap()).await.unwrap();
        let ports: Vec<_> = listeners.iter().map(|one| one.local_addr().unwrap().port()).collect();
        assert!(TcpStream::connect(("127.0.0.1", *ports.last().unwrap())).await.is_ok());
        let taken = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), ports[0]);
        drop(listeners);
        let only = listen(taken).await.unwrap();
        assert_eq!(only.len(), 1);
        let error = listen(taken).await.unwrap_err().to_string();
        assert!(error.contains("--http-address"), "{error}");
    }
}
