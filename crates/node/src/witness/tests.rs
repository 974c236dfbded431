use karst_kafka::{Controller, Endpoint, ReplicaState};

use super::*;

const CLUSTER: &str = "4L6g3nShT-eMCtK--X86sw";
const LISTED: &str = "r9VGTiw2QUCoDUadCt6q2g";
const OTHER: &str = "Anjr8banTey_LqVZsppzYg";

/// Node 3, which is to be a first voter.
fn doubt() -> Doubt<'static> {
    let directory = LISTED.parse().unwrap();
    Doubt { node: NodeId(3), cluster_id: Some(CLUSTER), directory, is_registered: false }
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

fn hears(registered: &[i32], quorum: Option<Quorum>) -> Option<bool> {
    let controllers = controllers(CLUSTER, registered, Some(4));
    doubt().hear(Some(&Said { controllers, quorum }))
}

#[test]
fn where_nobody_answers_the_node_is_new() {
    assert_eq!(doubt().hear(None), Some(false));
    assert_eq!(hears(&[], None), Some(false), "somebody is there, and nobody leads yet");
}

#[test]
fn a_leader_that_was_asked_for_records_from_the_directory_knows_the_node() {
    assert_eq!(hears(&[4], Some(quorum(3, LISTED, Some(9_000)))), Some(true));
    assert_eq!(hears(&[4], Some(quorum(3, LISTED, None))), Some(false), "the others were faster");
    assert_eq!(hears(&[4], Some(quorum(3, OTHER, Some(9_000)))), Some(false), "another directory");
    assert_eq!(hears(&[4], Some(quorum(5, LISTED, Some(9_000)))), Some(false), "another node");
    let mut left = quorum(3, LISTED, Some(9_000));
    left.observers = std::mem::take(&mut left.voters);
    assert_eq!(hears(&[4], Some(left)), Some(true), "it votes no more");
}

#[test]
fn a_leader_that_came_later_knows_the_node_by_its_registration() {
    assert_eq!(hears(&[3, 4], Some(quorum(3, LISTED, None))), Some(true));
}

#[test]
fn a_registration_with_another_cluster_says_nothing() {
    let controllers = controllers("other", &[3, 4], Some(3));
    assert_eq!(doubt().hear(Some(&Said { controllers, quorum: None })), Some(false));
}

#[test]
fn a_node_that_was_there_waits_until_there_is_a_leader() {
    let mut doubt = doubt();
    let registered = Said { controllers: controllers(CLUSTER, &[3, 4], None), quorum: None };
    assert_eq!(doubt.hear(Some(&registered)), None);
    assert_eq!(doubt.hear(None), None, "what was said stays true");
    let controllers = controllers(CLUSTER, &[], Some(4));
    let led = Said { controllers, quorum: Some(quorum(3, LISTED, None)) };
    assert_eq!(doubt.hear(Some(&led)), Some(true));
}

#[test]
fn a_node_that_others_still_follow_was_there() {
    let controllers = controllers(CLUSTER, &[4], Some(3));
    assert_eq!(doubt().hear(Some(&Said { controllers, quorum: None })), None);
}
