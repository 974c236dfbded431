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

#[tokio::test]
async fn a_listener_that_cannot_be_spoken_to_is_not_ready_and_says_so() {
    let files = with_server_lines("listener.security.protocol.map=CONTROLPLANE-9090:SSL\n");
    let probe = ReadinessProbe::new(&NodeConfig::parse(&files).unwrap());
    let message = probe.check().await.unwrap_err().to_string();
    assert!(message.contains("CONTROLPLANE-9090") && message.contains("SSL"), "{message}");
}
