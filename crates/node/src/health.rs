//! `GET /live` and `GET /ready`, for the kubelet. One line of text says why.
//!
//! Whoever reaches the port may ask, so nobody who does can keep the kubelet waiting: each connection has one question and little
//! time for it, and when there are too many the oldest one is ended.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet, yield_now};
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::liveness::{Liveness, Silent};
use crate::lost_disk::Waiting;
use crate::ready::{NotReady, ReadinessProbe};
use crate::recovery::Recovery;

/// A client that does not finish its request in this time is sent away.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A client that does not take its answer in this time is sent away as well.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// How many connections there may be. Kubelet and operator have a handful at a time.
const CONNECTIONS: usize = 32;

/// The longest head of a request, the least that is possible. Bodies are not read.
const BUFFER: usize = 8 << 10;

/// After a failed accept (no file descriptor left, say) the next one would fail as well: do not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How a node begins to say that it waits for somebody who knows whether it lost its disk. The operator reads it.
const LOST_DISK_CHECK: &str = "lost-disk check";

/// What the node is doing. Only a running Kafka can be asked whether it is ready.
#[derive(Clone, Debug)]
pub enum Phase {
    Starting,
    AskingOthers(Option<Waiting>),
    /// A voter of a static quorum lost its disk.
    AwaitingMajority,
    Formatting,
    AwaitingQuorum,
    AwaitingRack,
    Running(Arc<Kafka>),
    ShuttingDown,
}

/// A Kafka that runs.
#[derive(Debug)]
pub struct Kafka {
    pub probe: ReadinessProbe,
    pub liveness: Liveness,
    /// For one that was not shut down cleanly before.
    pub recovery: Option<Recovery>,
}

impl Kafka {
    fn readiness(&self) -> Result<(), String> {
        judge(self.probe.check(), self.probe.has_answered(), self.recovery.as_ref())
    }
}

/// That a Kafka which recovers its logs does not answer is no wonder, and one that has answered has read them.
fn judge(heard: Result<(), NotReady>, has_answered: bool, recovery: Option<&Recovery>) -> Result<(), String> {
    if let Some(recovery) = recovery
        && has_answered
    {
        recovery.answered();
    }
    let progress = || recovery.and_then(Recovery::progress);
    heard.map_err(|why| progress().map_or_else(|| why.to_string(), |progress| progress.to_string()))
}

impl Phase {
    fn name(&self) -> String {
        match self {
            Self::Starting => "starting".to_owned(),
            Self::AskingOthers(None) => {
                "asking the other controllers whether this node was there before".to_owned()
            }
            Self::AskingOthers(Some(why)) => format!("{LOST_DISK_CHECK}: {why}"),
            Self::AwaitingMajority => {
                "the disk of this voter of a static quorum is empty: waiting until a majority of the others has everything".to_owned()
            }
            Self::Formatting => "formatting".to_owned(),
            Self::AwaitingQuorum => "waiting for the quorum to have a leader".to_owned(),
            Self::AwaitingRack => "waiting for the operator to tell the rack".to_owned(),
            Self::Running(_) => "running".to_owned(),
            Self::ShuttingDown => "shutting down".to_owned(),
        }
    }
}

/// Answers until it is dropped.
pub async fn serve(listener: TcpListener, phase: watch::Receiver<Phase>) -> Infallible {
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.add(serve_connection(stream, phase.clone()));
                // However many others wait to be accepted: it is looked at before it can be the oldest.
                yield_now().await;
            }
            Err(error) => {
                warn!("cannot accept a probe's connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, phase: watch::Receiver<Phase>) {
    let answer_request = service_fn(async |request: Request<Incoming>| {
        Ok::<_, Infallible>(answer(request.method(), request.uri().path(), &phase))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(BUFFER)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answer_request);
    match timeout(CONNECTION_TIMEOUT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!("a probe's connection broke: {error}"),
        Err(_) => debug!("a probe's connection took longer than {} s", CONNECTION_TIMEOUT.as_secs()),
    }
}

/// The connections there are, the oldest first. A probe takes a millisecond, so of too many the oldest is one of those that
/// only occupy a place.
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

fn answer(method: &Method, path: &str, phase: &watch::Receiver<Phase>) -> Response<Full<Bytes>> {
    let phase = phase.borrow();
    match (method, path) {
        (&Method::GET, "/live") => match liveness(&phase) {
            Ok(()) => text(StatusCode::OK, phase.name()),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, why.to_string()),
        },
        (&Method::GET, "/ready") => match readiness(&phase) {
            Ok(()) => text(StatusCode::OK, "ready".to_owned()),
            Err(why) => text(StatusCode::SERVICE_UNAVAILABLE, why),
        },
        (_, "/live" | "/ready") => text(StatusCode::METHOD_NOT_ALLOWED, "only GET".to_owned()),
        _ => text(StatusCode::NOT_FOUND, "there are only /live and /ready".to_owned()),
    }
}

/// The launcher ends with the JVM, so that it answers at all is most of the proof.
fn liveness(phase: &Phase) -> Result<(), Silent> {
    match phase {
        Phase::Running(kafka) => kafka.liveness.check(),
        _ => Ok(()),
    }
}

fn readiness(phase: &Phase) -> Result<(), String> {
    match phase {
        Phase::Running(kafka) => kafka.readiness(),
        _ => Err(phase.name()),
    }
}

fn text(status: StatusCode, line: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(line + "\n")));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use karst_kafka::NodeId;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    /// A launcher that is about to start Kafka, and where it answers.
    async fn launcher() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        start(listener);
        address
    }

    fn start(listener: TcpListener) {
        let (sender, phase) = watch::channel(Phase::Starting);
        tokio::spawn(async move {
            let _sender = sender;
            serve(listener, phase).await
        });
    }

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // Whoever is too long is not listened to.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    async fn is_alive(address: SocketAddr) -> bool {
        ask(address, "GET /live HTTP/1.1\r\nhost: x\r\n\r\n").await.ends_with("starting\n")
    }

    #[tokio::test]
    async fn whoever_occupies_connections_keeps_no_probe_waiting() {
        let address = launcher().await;
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS * 3 {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let began = Instant::now();
        assert!(is_alive(address).await);
        // The oldest one was ended, long before its time was over.
        assert_eq!(idle[0].read(&mut [0; 1]).await.unwrap_or(0), 0);
        assert!(began.elapsed() < REQUEST_TIMEOUT / 2, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_probe_in_the_middle_of_a_flood_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // All of them wait to be accepted, as when the launcher was busy for a moment.
        let mut flood = Vec::new();
        for _ in 0..CONNECTIONS / 2 {
            flood.push(TcpStream::connect(address).await.unwrap());
        }
        let mut probe = TcpStream::connect(address).await.unwrap();
        probe.write_all(b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        for _ in 0..CONNECTIONS * 3 {
            flood.push(TcpStream::connect(address).await.unwrap());
        }
        start(listener);
        let mut told = String::new();
        let _ = probe.read_to_string(&mut told).await;
        assert!(told.ends_with("starting\n"), "it was ended unheard: {told:?}");
    }

    #[tokio::test]
    async fn a_request_that_is_never_complete_or_too_long_is_not_waited_for() {
        let address = launcher().await;
        let began = Instant::now();
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /live HTTP/1.1\r\nhost:").await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
        assert!(began.elapsed() < REQUEST_TIMEOUT + Duration::from_secs(3), "{:?}", began.elapsed());
        let long = format!("GET /live?{} HTTP/1.1\r\n\r\n", "x".repeat(BUFFER * 4));
        assert!(!ask(address, &long).await.contains("starting"));
        assert!(is_alive(address).await);
    }

    #[tokio::test]
    async fn a_connection_has_one_question() {
        let twice = "GET /live HTTP/1.1\r\nhost: x\r\n\r\n".repeat(2);
        assert_eq!(ask(launcher().await, &twice).await.matches("starting").count(), 1);
    }

    #[test]
    fn a_broker_reads_its_logs_until_it_answers_and_comes_back_for_a_while() {
        let silent = || Err(NotReady::Unanswered("connection refused".to_owned()));
        let plain = Err("Kafka cannot tell: connection refused".to_owned());
        assert_eq!(judge(silent(), false, None), plain, "one that has nothing to recover");
        for answer in [Ok(()), Err(NotReady::Fenced(NodeId(3))), Err(NotReady::NotRegistered(NodeId(3)))] {
            let recovery = Recovery::of_nobody();
            let why = judge(silent(), false, Some(&recovery)).unwrap_err();
            assert!(why.starts_with("recovering logs ("), "{why}");
            let back = |_| "recovering logs (all are read, and the broker is about to serve)".to_owned();
            assert_eq!(judge(answer.clone(), true, Some(&recovery)), answer.clone().map_err(back));
            assert_eq!(judge(silent(), true, Some(&recovery)), silent().map_err(back));
            let late = Recovery::answered_before(Duration::from_secs(60));
            assert_eq!(judge(answer.clone(), true, Some(&late)), answer.map_err(|why| why.to_string()));
            assert_eq!(judge(silent(), true, Some(&late)), plain);
        }
    }
}
