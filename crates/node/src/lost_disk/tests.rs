use karst_kafka::{Controller, Endpoint, ReplicaState};

use super::*;

const CLUSTER: &str = "4L6g3nShT-eMCtK--X86sw";
const LISTED: &str = "r9VGTiw2QUCoDUadCt6q2g";
const OTHER: &str = "Anjr8banTey_LqVZsppzYg";

/// Node 3, which is to be a first voter.
fn doubt() -> Doubt<'static> {
    let directory = LISTED.parse().unwrap();
    Doubt { node: NodeId(3), cluster_id: Some(CLUSTER), directory, is_named: false }
}

fn controllers(cluster_id: &str, registered: &[i32], leader: Option<i32>) -> ControllersDescription {
    let controller = |id: &i32| Controller { id: NodeId(*id), endpoint: Endpoint::new("host", 9090) };
    ControllersDescription {
        cluster_id: cluster_id.to_owned(),
        leader: leader.map(NodeId),
        controllers: registered.iter().map(controller).collect(),
    }
}

/// Node 4 leads. This is what it says of a voter.
fn quorum(node: i32, directory: &str, last_fetch: Option<i64>) -> Quorum {
    let voter = ReplicaState {
        id: NodeId(node),
        directory: Some(directory.parse().unwrap()),
        log_end_offset: -1,
        last_fetch,
        last_caught_up: None,
    };
    Quorum {
        leader: NodeId(4),
        leader_epoch: 1,
        high_watermark: 10,
        voters: vec![voter],
        observers: Vec::new(),
    }
}

/// What a node with its first disk makes of this.
fn hears(registered: &[i32], quorum: Option<Quorum>) -> Result<Verdict, Waiting> {
    let controllers = controllers(CLUSTER, registered, Some(4));
    doubt().hear(Some(&Said { controllers, quorum }), EmptyDisk::New)
}

/// Another controller that knows this node, and no leader.
fn naming() -> Said {
    Said { controllers: controllers(CLUSTER, &[3, 4], None), quorum: None }
}

/// Another controller that knows neither this node nor a leader.
fn ignorant() -> Said {
    Said { controllers: controllers(CLUSTER, &[4], None), quorum: None }
}

/// A leader that knows nothing of the node.
fn leading() -> Said {
    let controllers = controllers(CLUSTER, &[4], Some(4));
    Said { controllers, quorum: Some(quorum(3, LISTED, None)) }
}

#[test]
fn where_a_quorum_is_formed_nobody_waits() {
    assert_eq!(doubt().hear(None, EmptyDisk::New), Ok(Verdict::New));
    assert_eq!(hears(&[], None), Ok(Verdict::New), "somebody is there, and nobody leads yet");
}

#[test]
fn what_is_heard_and_what_the_settings_say_decide_together() {
    use EmptyDisk::{Allowed, Late, New, Replaced};
    let wait = Err::<Verdict, Waiting>;
    let is = Ok::<Verdict, Waiting>;
    for (disk, nobody, knows_nothing, names_it, leads) in [
        (New, is(Verdict::New), is(Verdict::New), wait(Waiting::Named), is(Verdict::New)),
        (Late, wait(Waiting::Unanswered), is(Verdict::New), wait(Waiting::Named), is(Verdict::New)),
        (
            Replaced,
            wait(Waiting::Unanswered),
            wait(Waiting::NoLeader),
            wait(Waiting::Named),
            is(Verdict::WasThere),
        ),
        (Allowed, is(Verdict::New), is(Verdict::New), is(Verdict::New), is(Verdict::New)),
    ] {
        assert_eq!(doubt().hear(None, disk), nobody, "{disk:?}, nobody answers");
        assert_eq!(doubt().hear(Some(&ignorant()), disk), knows_nothing, "{disk:?}, nobody leads");
        assert_eq!(doubt().hear(Some(&naming()), disk), names_it, "{disk:?}, named");
        assert_eq!(doubt().hear(Some(&leading()), disk), leads, "{disk:?}, somebody leads");
    }
}

#[test]
fn a_leader_that_was_asked_for_records_from_the_directory_knows_the_node() {
    let hears = |quorum| hears(&[4], Some(quorum));
    assert_eq!(hears(quorum(3, LISTED, Some(9_000))), Ok(Verdict::WasThere));
    assert_eq!(hears(quorum(3, LISTED, None)), Ok(Verdict::New), "the others were faster");
    assert_eq!(hears(quorum(3, OTHER, Some(9_000))), Ok(Verdict::New), "another directory");
    assert_eq!(hears(quorum(5, LISTED, Some(9_000))), Ok(Verdict::New), "another node");
    let mut left = quorum(3, LISTED, Some(9_000));
    left.observers = std::mem::take(&mut left.voters);
    assert_eq!(hears(left), Ok(Verdict::WasThere), "it votes no more");
}

#[test]
fn a_leader_that_came_later_knows_the_node_by_its_registration() {
    assert_eq!(hears(&[3, 4], Some(quorum(3, LISTED, None))), Ok(Verdict::WasThere));
}

#[test]
fn a_registration_with_another_cluster_says_nothing() {
    let controllers = controllers("other", &[3, 4], Some(3));
    let said = Said { controllers, quorum: Some(quorum(3, LISTED, Some(9_000))) };
    assert_eq!(doubt().hear(Some(&said), EmptyDisk::New), Ok(Verdict::New));
    assert_eq!(doubt().hear(Some(&said), EmptyDisk::Late), Err(Waiting::Unanswered));
}

#[test]
fn a_node_that_was_there_waits_until_there_is_a_leader() {
    let mut doubt = doubt();
    assert_eq!(doubt.hear(Some(&naming()), EmptyDisk::New), Err(Waiting::Named));
    assert_eq!(doubt.hear(None, EmptyDisk::New), Err(Waiting::Named), "what was said stays true");
    assert_eq!(doubt.hear(Some(&leading()), EmptyDisk::New), Ok(Verdict::WasThere));
}

#[test]
fn a_person_who_lets_a_node_vote_is_not_heard_against_a_leader_that_knows_better() {
    let mut doubt = doubt();
    assert_eq!(doubt.hear(Some(&naming()), EmptyDisk::New), Err(Waiting::Named));
    assert_eq!(doubt.hear(Some(&leading()), EmptyDisk::Allowed), Ok(Verdict::WasThere));
}

#[test]
fn a_node_that_others_still_follow_was_there() {
    let controllers = controllers(CLUSTER, &[4], Some(3));
    let said = Said { controllers, quorum: None };
    assert_eq!(doubt().hear(Some(&said), EmptyDisk::New), Err(Waiting::Named));
}

#[test]
fn one_that_is_behind_does_not_hide_another_that_knows_the_node() {
    let said = [ignorant(), naming()];
    assert_eq!(doubt().hear(&said, EmptyDisk::New), Err(Waiting::Named));
    let knows = Said { quorum: Some(quorum(3, LISTED, Some(9_000))), ..leading() };
    for said in [[leading(), knows], [leading(), naming()]] {
        assert_eq!(doubt().hear(&said, EmptyDisk::New), Ok(Verdict::WasThere));
    }
}

#[test]
fn a_leader_that_does_not_know_what_is_agreed_on_cannot_tell_yet() {
    let begins = Said { quorum: Some(Quorum { high_watermark: -1, ..quorum(3, LISTED, None) }), ..leading() };
    assert_eq!(doubt().hear(&[begins], EmptyDisk::Replaced), Err(Waiting::NoLeader));
    let begins = Quorum { high_watermark: -1, ..quorum(3, LISTED, Some(9_000)) };
    let knows = Said { quorum: Some(begins), ..leading() };
    assert_eq!(doubt().hear(&[knows], EmptyDisk::New), Err(Waiting::Named), "but it has seen the node");
}

#[test]
fn who_listens_and_says_nothing_is_asked_again_for_a_while() {
    let waits =
        |said, has_silent, seconds| Heard { said, has_silent }.is_unfinished(Duration::from_secs(seconds));
    assert!(waits(vec![], true, 0) && waits(vec![ignorant()], true, 11));
    assert!(!waits(vec![], true, 12), "a new cluster is formed without it");
    assert!(!waits(vec![], false, 0), "nobody listens");
    assert!(!waits(vec![leading()], true, 0), "a leader has said what there is");
}

fn asked(port: u16) -> Line {
    let listener = crate::listeners::Listener {
        name: "CONTROLPLANE-9090".to_owned(),
        endpoint: Endpoint::new("localhost", 9090),
        local: Endpoint::new("127.0.0.1", 9090),
        protocol: crate::listeners::Protocol::Plaintext,
    };
    let other = Bootstrap::Controllers(vec![Endpoint::new("127.0.0.1", port)]);
    Line::new(other, &listener, Duration::from_millis(100), Duration::from_millis(200))
}

#[tokio::test]
async fn who_does_not_listen_has_nothing_to_say_and_who_is_slow_may_have() {
    let slow = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (said, is_silent) = ask(&asked(slow.local_addr().unwrap().port())).await;
    assert!(said.is_none() && is_silent);
    let port = slow.local_addr().unwrap().port();
    drop(slow);
    let (said, is_silent) = ask(&asked(port)).await;
    assert!(said.is_none() && !is_silent);
}
