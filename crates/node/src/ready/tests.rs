use super::*;
use crate::config::tests::{DIRECTORY_3, DIRECTORY_4, with_server_lines};
use karst_kafka::{Broker, Endpoint};

const FETCH_TIMEOUT: Duration = Duration::from_secs(2);

fn cluster(brokers: &[(i32, bool)]) -> ClusterDescription {
    let broker = |&(id, fenced): &(i32, bool)| Broker {
        id: NodeId(id),
        endpoint: Endpoint::new("host", 9091),
        rack: None,
        fenced,
    };
    ClusterDescription {
        cluster_id: "cluster".to_owned(),
        controller_id: None,
        brokers: brokers.iter().map(broker).collect(),
        fenced_known: true,
    }
}

fn directory(text: &str) -> DirectoryId {
    text.parse().unwrap()
}

fn replica(id: i32, directory: Option<&str>, last_caught_up: Option<i64>) -> ReplicaState {
    ReplicaState {
        id: NodeId(id),
        directory: directory.map(|text| text.parse().unwrap()),
        log_end_offset: 10,
        last_fetch: last_caught_up,
        last_caught_up,
    }
}

/// Node 4 leads at time 10,000.
fn quorum(others: Vec<ReplicaState>, observers: Vec<ReplicaState>) -> Quorum {
    let mut voters = vec![replica(4, Some(DIRECTORY_4), Some(10_000))];
    voters.extend(others);
    Quorum { leader: NodeId(4), leader_epoch: 2, high_watermark: 10, voters, observers }
}

fn judge_3(quorum: &Quorum) -> Result<(), NotReady> {
    judge_controller(NodeId(3), directory(DIRECTORY_3), FETCH_TIMEOUT, quorum)
}

#[test]
fn a_broker_is_ready_once_it_is_unfenced() {
    assert_eq!(judge_broker(NodeId(1), &cluster(&[(0, false), (1, false)])), Ok(()));
    assert_eq!(judge_broker(NodeId(1), &cluster(&[(0, false), (1, true)])), Err(NotReady::Fenced(NodeId(1))));
    assert_eq!(judge_broker(NodeId(1), &cluster(&[(0, false)])), Err(NotReady::NotRegistered(NodeId(1))));
}

#[test]
fn a_broker_stays_ready_when_the_controllers_have_no_leader() {
    let leaderless = ClusterDescription { controller_id: None, ..cluster(&[(1, false)]) };
    assert_eq!(judge_broker(NodeId(1), &leaderless), Ok(()));
}

#[test]
fn a_voter_that_keeps_up_is_ready() {
    assert_eq!(judge_3(&quorum(vec![replica(3, Some(DIRECTORY_3), Some(8_001))], vec![])), Ok(()));
}

#[test]
fn an_observer_that_keeps_up_is_ready() {
    assert_eq!(judge_3(&quorum(vec![], vec![replica(3, Some(DIRECTORY_3), Some(9_900))])), Ok(()));
}

#[test]
fn a_controller_that_fell_behind_is_not_ready() {
    assert_eq!(
        judge_3(&quorum(vec![replica(3, Some(DIRECTORY_3), Some(8_000))], vec![])),
        Err(NotReady::Behind { node: NodeId(3), leader: NodeId(4), behind: FETCH_TIMEOUT })
    );
}

#[test]
fn a_controller_that_never_caught_up_is_not_ready() {
    assert!(matches!(
        judge_3(&quorum(vec![replica(3, Some(DIRECTORY_3), None)], vec![])),
        Err(NotReady::NeverCaughtUp { .. })
    ));
}

#[test]
fn an_earlier_life_under_the_same_id_is_not_this_node() {
    let earlier = quorum(vec![replica(3, Some("Anjr8banTey_LqVZsppzYg"), Some(10_000))], vec![]);
    assert!(matches!(judge_3(&earlier), Err(NotReady::NotInQuorum { .. })));
    let both = quorum(
        vec![replica(3, Some("Anjr8banTey_LqVZsppzYg"), Some(1))],
        vec![replica(3, Some(DIRECTORY_3), Some(10_000))],
    );
    assert_eq!(judge_3(&both), Ok(()));
}

#[test]
fn the_leader_is_ready_once_it_has_committed_something() {
    let judge_4 =
        |quorum: &Quorum| judge_controller(NodeId(4), directory(DIRECTORY_4), FETCH_TIMEOUT, quorum);
    assert_eq!(judge_4(&quorum(vec![], vec![])), Ok(()));
    let fresh = Quorum { high_watermark: -1, ..quorum(vec![], vec![]) };
    assert_eq!(judge_4(&fresh), Err(NotReady::NothingCommitted(NodeId(4))));
}

#[test]
fn an_id_that_leads_under_another_directory_is_not_this_node() {
    let result = judge_controller(NodeId(4), directory(DIRECTORY_3), FETCH_TIMEOUT, &quorum(vec![], vec![]));
    assert!(matches!(result, Err(NotReady::NotInQuorum { .. })));
}

#[test]
fn a_static_quorum_knows_its_voters_by_id_alone() {
    let mut quorum = quorum(vec![replica(3, None, Some(9_999))], vec![]);
    quorum.voters[0].directory = None;
    assert_eq!(judge_3(&quorum), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_cannot_be_spoken_to_is_not_ready_and_says_so() {
    let files = with_server_lines("listener.security.protocol.map=CONTROLPLANE-9090:SSL\n");
    let probe = ReadinessProbe::new(&NodeConfig::parse(&files).unwrap());
    let _ = timeout(PERIOD, probe.keep_asking()).await;
    let message = probe.check().unwrap_err().to_string();
    assert!(message.contains("CONTROLPLANE-9090") && message.contains("SSL"), "{message}");
}

fn slow() -> Result<(), NotReady> {
    Err(NotReady::TooSlow(DEADLINE))
}

/// A node that was ready at the beginning, what was heard of it after so many seconds, and when to judge it.
fn heard_after(
    patience: Duration,
    heard: &[(u64, Result<(), NotReady>)],
    judged: u64,
) -> Result<(), NotReady> {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut all = Heard::nothing(patience);
    all.note(Ok(()), start);
    for (seconds, answer) in heard {
        all.note(answer.clone(), at(*seconds));
    }
    all.verdict(at(judged))
}

#[test]
fn a_broker_stays_ready_through_a_stall_of_fifteen_seconds_and_no_longer() {
    let stall = [(2, slow()), (6, slow()), (12, slow())];
    assert_eq!(heard_after(BROKERS_PATIENCE, &stall, 14), Ok(()));
    assert_eq!(heard_after(BROKERS_PATIENCE, &stall, 15), slow());
    let back = [(2, slow()), (14, Ok(())), (16, slow())];
    assert_eq!(heard_after(BROKERS_PATIENCE, &back, 28), Ok(()), "each answer is good for as long");
    assert!(heard_after(BROKERS_PATIENCE, &[], 15).is_err(), "also while a question is under way");
}

#[test]
fn a_broker_that_is_fenced_or_does_not_listen_is_not_ready_at_once() {
    let closed = NotReady::Closed("refused".to_owned());
    for why in [NotReady::Fenced(NodeId(1)), NotReady::NotRegistered(NodeId(1)), closed] {
        assert_eq!(heard_after(BROKERS_PATIENCE, &[(1, Err(why.clone()))], 1), Err(why.clone()));
        let then_silent = [(1, Err(why)), (2, slow())];
        assert_eq!(
            heard_after(BROKERS_PATIENCE, &then_silent, 3),
            slow(),
            "it was not ready before the stall"
        );
    }
}

#[test]
fn a_node_that_was_never_ready_is_not_ready_when_it_stalls() {
    let mut heard = Heard::nothing(BROKERS_PATIENCE);
    assert_eq!(heard.verdict(Instant::now()), Err(NotReady::Unasked));
    heard.note(slow(), Instant::now());
    assert_eq!(heard.verdict(Instant::now()), slow());
    assert!(!heard.has_answered);
}

#[test]
fn questions_in_vain_get_more_time_and_the_first_answer_ends_that() {
    let mut deadline = DEADLINE;
    let mut given = Vec::new();
    for _ in 0..5 {
        deadline = next_deadline(deadline, &slow());
        given.push(deadline.as_millis());
    }
    assert_eq!(given, [3000, 6000, 12000, 12000, 12000]);
    let unanswered = Err(NotReady::Unanswered("no such name".to_owned()));
    assert_eq!(next_deadline(deadline, &unanswered), deadline);
    assert_eq!(next_deadline(deadline, &Err(NotReady::Fenced(NodeId(1)))), DEADLINE);
    assert_eq!(next_deadline(deadline, &Ok(())), DEADLINE);
}
