//! The life of a lease, at an API server that is slow, loses answers, or has other writers.

use std::cell::Cell;
use std::sync::Mutex;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;
use crate::failure::DEADLINE;

/// An API server that keeps one lease.
#[derive(Default)]
struct State {
    lease: Option<Value>,
    version: u64,
    /// What it was asked.
    requests: Vec<Method>,
    /// How long it takes to answer after it did what it was asked.
    slow: Duration,
    /// Does it not answer at all?
    gone: bool,
}

#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

impl Server {
    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock().unwrap());
    }

    fn holder(&self) -> Option<String> {
        let state = self.0.lock().unwrap();
        state.lease.as_ref()?["spec"]["holderIdentity"].as_str().map(str::to_owned)
    }

    /// Somebody writes the lease.
    fn write(&self, holder: &str) {
        self.set(|state| {
            state.version += 1;
            let version = state.version.to_string();
            let lease = state.lease.as_mut().unwrap();
            lease["spec"]["holderIdentity"] = json!(holder);
            lease["metadata"]["resourceVersion"] = json!(version);
        });
    }

    fn requests(&self) -> Vec<Method> {
        std::mem::take(&mut self.0.lock().unwrap().requests)
    }

    fn answer(&self, method: &Method, body: &[u8]) -> (StatusCode, Value) {
        let mut state = self.0.lock().unwrap();
        state.requests.push(method.clone());
        let no = |code: u16| {
            let reason = if code == 404 { "NotFound" } else { "Conflict" };
            let status = json!({"kind": "Status", "apiVersion": "v1", "code": code, "message": "no", "reason": reason});
            (StatusCode::from_u16(code).unwrap(), status)
        };
        if *method == Method::GET {
            return state.lease.clone().map_or_else(|| no(404), |lease| (StatusCode::OK, lease));
        }
        let mut new: Value = serde_json::from_slice(body).unwrap();
        let known = state.lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
        match (&known, *method == Method::POST) {
            (Some(_), true) => return no(409),
            (None, false) => return no(404),
            (Some(known), false) if *known != new["metadata"]["resourceVersion"] => return no(409),
            _ => {}
        }
        state.version += 1;
        new["metadata"]["resourceVersion"] = json!(state.version.to_string());
        state.lease = Some(new.clone());
        (StatusCode::OK, new)
    }

    fn election(&self, identity: &str) -> Election {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let method = request.method().clone();
                let body = request.into_body().collect().await?.to_bytes();
                if server.0.lock().unwrap().gone {
                    std::future::pending::<()>().await;
                }
                let (code, answer) = server.answer(&method, &body);
                let slow = server.0.lock().unwrap().slow;
                tokio::time::sleep(slow).await;
                let mut response =
                    Response::new(Full::new(Bytes::from(serde_json::to_vec(&answer).unwrap())));
                *response.status_mut() = code;
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response)
            }
        });
        let settings = LeaseSettings { identity: identity.to_owned(), ..LeaseSettings::default() };
        Election::new(Client::new(service, "default"), settings, Arc::default())
    }
}

/// Keeps the lease for a while, and then goes on with the rest.
async fn keep(election: &mut Election, leadership: &Leadership, time: Duration) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        tokio::time::sleep(time).await;
        stopped.cancel();
    });
    election.keep(leadership, &stop).await
}

async fn won(server: &Server) -> (Election, Leadership) {
    let (mut election, leadership) = (server.election("a"), Leadership::none());
    tokio::time::timeout(Duration::from_secs(60), election.win(&leadership)).await.unwrap();
    assert!(leadership.holds());
    (election, leadership)
}

#[tokio::test(start_paused = true)]
async fn a_lease_costs_one_request_for_each_renewal_and_six_a_minute() {
    let server = Server::default();
    let (mut election, leadership) = won(&server).await;
    server.requests();
    keep(&mut election, &leadership, Duration::from_secs(61)).await.unwrap();
    assert_eq!(server.requests(), vec![Method::PUT; 6]);
    assert!(leadership.holds());
}

#[tokio::test(start_paused = true)]
async fn who_waits_asks_twelve_times_a_minute_at_most() {
    let server = Server::default();
    let (mut first, leadership) = won(&server).await;
    let mut second = server.election("b");
    let keeps = keep(&mut first, &leadership, Duration::from_secs(200));
    let waits = tokio::time::timeout(Duration::from_secs(60), async {
        second.win(&Leadership::none()).await;
    });
    server.requests();
    let (kept, won) = tokio::join!(keeps, waits);
    kept.unwrap();
    assert!(won.is_err(), "two lead");
    let looks = server.requests().iter().filter(|method| **method == Method::GET).count();
    assert!((10..=13).contains(&looks), "{looks}");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_no_loss_while_the_lease_is_still_ours() {
    let server = Server::default();
    let (mut election, leadership) = won(&server).await;
    server.write("a");
    server.requests();
    keep(&mut election, &leadership, Duration::from_secs(11)).await.unwrap();
    assert_eq!(server.requests(), [Method::PUT, Method::GET, Method::PUT]);
    // Somebody removed it.
    server.set(|state| state.lease = None);
    keep(&mut election, &leadership, Duration::from_secs(10)).await.unwrap();
    assert_eq!(server.holder().as_deref(), Some("a"));
    server.write("b");
    let lost = keep(&mut election, &leadership, Duration::from_secs(11)).await.unwrap_err();
    assert_eq!(lost.to_string(), "b took the lease 'karst-operator'");
    assert!(!leadership.holds() && leadership.time_for(DEADLINE).is_none());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_does_not_cost_the_lease() {
    let server = Server::default();
    let (mut election, leadership) = won(&server).await;
    server.set(|state| state.slow = Duration::from_secs(8));
    let early = keep(&mut election, &leadership, Duration::from_secs(12));
    early.await.unwrap();
    server.set(|state| state.slow = Duration::ZERO);
    keep(&mut election, &leadership, Duration::from_secs(10)).await.unwrap();
    assert_eq!(server.holder().as_deref(), Some("a"));
    assert!(leadership.holds());
}

/// The rule: what one began has ended before the other begins. Whatever happens in between.
#[tokio::test(start_paused = true)]
async fn every_call_of_a_leader_ends_before_another_leads() {
    let strimzi = LeaseSettings {
        duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        ..LeaseSettings::default()
    };
    for settings in [LeaseSettings::default(), strimzi] {
        for gone_after in 0..20 {
            check_the_calls_of_a_leader_that_is_gone_after(Duration::from_secs(gone_after), &settings).await;
        }
    }
}

async fn check_the_calls_of_a_leader_that_is_gone_after(gone_after: Duration, settings: &LeaseSettings) {
    let (server, leadership) = (Server::default(), Leadership::none());
    let (mut first, mut second) = (server.election("a"), server.election("b"));
    for election in [&mut first, &mut second] {
        election.settings =
            LeaseSettings { identity: election.settings.identity.clone(), ..settings.clone() };
    }
    first.win(&leadership).await;
    let began = Instant::now();
    let last_call_ends = async {
        let mut last = Duration::ZERO;
        for _ in 0..600 {
            if let Some(time) = leadership.time_for(DEADLINE) {
                last = began.elapsed() + time;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        last
    };
    // The process froze, or its network is gone.
    let loses = async {
        let keeps = keep(&mut first, &leadership, Duration::from_secs(100));
        assert!(tokio::time::timeout(gone_after, keeps).await.is_err());
    };
    let taken = Leadership::none();
    let wins = async {
        second.win(&taken).await;
        began.elapsed()
    };
    let (last, (), won) = tokio::join!(last_call_ends, loses, wins);
    assert!(
        last < won,
        "gone after {gone_after:?}: a call may last until {last:?}, another leads at {won:?}"
    );
    assert!(won <= gone_after + settings.duration + settings.look_period(), "nobody leads until {won:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_ends_in_time_and_says_why() {
    let server = Server::default();
    let (mut election, leadership) = won(&server).await;
    server.set(|state| state.gone = true);
    let began = Instant::now();
    let lost = keep(&mut election, &leadership, Duration::from_secs(100)).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let text = lost.to_string();
    assert!(text.contains("in time: no answer from the API server within 5 s"), "{text}");
}

thread_local! {
    static ASLEEP: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_slept_knows_that_its_lease_may_be_gone() {
    let (server, leadership) = (Server::default(), Leadership::none_by(|| ASLEEP.get()));
    server.election("a").win(&leadership).await;
    assert_eq!(leadership.time_for(DEADLINE), Some(DEADLINE));
    ASLEEP.set(Duration::from_secs(17));
    assert!(leadership.time_for(DEADLINE).is_some());
    ASLEEP.set(Duration::from_secs(19));
    assert!(leadership.time_for(DEADLINE).is_none() && !leadership.holds());
    assert!(leadership.is_exclusive(), "what was begun counts");
    ASLEEP.set(Duration::from_secs(31));
    assert!(!leadership.is_exclusive(), "what was begun may be too late");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_can_be_taken_at_once() {
    let server = Server::default();
    let (mut first, leadership) = won(&server).await;
    let mut second = server.election("b");
    let began = Instant::now();
    let gives_back = async {
        tokio::time::sleep(Duration::from_secs(7)).await;
        first.release(&leadership).await;
        assert!(!leadership.holds());
    };
    let taken = Leadership::none();
    tokio::join!(gives_back, second.win(&taken));
    assert!(began.elapsed() <= Duration::from_secs(12), "{:?}", began.elapsed());
}
