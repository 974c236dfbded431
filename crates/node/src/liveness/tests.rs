use std::net::TcpListener;

use karst_kafka::TlsFailure;

use super::*;

const LIMIT: Duration = Duration::from_secs(180);
const PERIOD: Duration = Duration::from_secs(30);

/// A Kafka that has answered once, and what was seen of it from then on, every half a minute.
fn after(signs: impl IntoIterator<Item = Sign>) -> Seen {
    let mut seen = Seen::new(Times::of(LIMIT, 0));
    let mut now = Instant::now();
    for sign in [Sign::Answer].into_iter().chain(signs) {
        now += PERIOD;
        seen.note(sign, now);
    }
    seen
}

fn silences(count: usize) -> impl Iterator<Item = Sign> {
    std::iter::repeat_n(Sign::Silence, count)
}

#[test]
fn a_kafka_that_fell_silent_is_given_up_after_the_limit_and_not_before() {
    assert_eq!(after(silences(6)).given_up, None);
    assert_eq!(after(silences(7)).given_up, Some(LIMIT));
    assert_eq!(after(silences(8)).given_up, Some(LIMIT + PERIOD));
}

#[test]
fn one_sign_of_whatever_kind_begins_the_wait_again() {
    for sign in [Sign::Answer, Sign::Other] {
        let seen = after(silences(6).chain([sign]).chain(silences(6)));
        assert_eq!(seen.given_up, None, "{sign:?}");
        let seen = after(silences(9).chain([sign]));
        assert_eq!(seen.given_up, None, "one that comes back late is taken back: {sign:?}");
    }
}

#[test]
fn a_kafka_that_has_never_answered_is_never_given_up() {
    let mut seen = Seen::new(Times::of(LIMIT, 0));
    let mut now = Instant::now();
    seen.note(Sign::Other, now);
    for _ in 0..1000 {
        now += PERIOD;
        seen.note(Sign::Silence, now);
    }
    assert_eq!(seen.given_up, None);
}

#[test]
fn time_in_which_the_launcher_itself_was_held_up_does_not_count() {
    let mut seen = after(silences(6));
    let woken = seen.looked.unwrap() + Duration::from_secs(3600);
    seen.note(Sign::Silence, woken);
    assert_eq!(seen.given_up, None, "a machine that was frozen for an hour");
    seen.note(Sign::Silence, woken + PERIOD);
    assert_eq!(seen.given_up, None);
}

#[test]
fn nodes_of_one_cluster_have_different_limits() {
    let limits: std::collections::BTreeSet<_> = (0..STEPS).map(|step| Times::of(LIMIT, step).limit).collect();
    assert_eq!(limits.len(), 8);
    assert!(limits.first() == Some(&LIMIT) && limits.last() < Some(&(2 * LIMIT)));
}

fn broker() -> Endpoint {
    Endpoint::new("127.0.0.1", 9091)
}

#[test]
fn a_broken_trust_is_a_reaction_and_a_refused_connection_is_none() {
    let connect = |kind: ErrorKind| Error::Connect { endpoint: broker(), reason: kind.into() };
    let tls = |reason| Error::Tls { endpoint: broker(), reason };
    assert_eq!(sign_of(&Err(connect(ErrorKind::ConnectionRefused))), Sign::Silence);
    for error in [
        tls(TlsFailure::Expired),
        tls(TlsFailure::NotTrusted),
        tls(TlsFailure::ClosedInHandshake { reason: "end".to_owned() }),
        connect(ErrorKind::NetworkUnreachable),
        connect(ErrorKind::Other),
    ] {
        assert_eq!(sign_of(&Err(error)), Sign::Other);
    }
}

#[tokio::test]
async fn who_closes_a_connection_that_brings_nonsense_reacts_and_who_only_has_a_kernel_does_not() {
    const SOON: Duration = Duration::from_millis(200);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::new("127.0.0.1", listener.local_addr().unwrap().port());
    assert_eq!(knock(&endpoint, SOON).await, Sign::Silence, "connected by the kernel, accepted by nobody");
    let closing = std::thread::spawn(move || {
        for _ in 0..2 {
            drop(listener.accept().unwrap());
        }
    });
    assert_eq!(knock(&endpoint, Duration::from_secs(20)).await, Sign::Other);
    closing.join().unwrap();
    assert_eq!(knock(&endpoint, SOON).await, Sign::Silence, "nobody listens");
}
