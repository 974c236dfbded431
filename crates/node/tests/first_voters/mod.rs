//! An empty disk of a first voter: the others are asked whether they have seen the one before it.

use std::net::TcpListener;

use nix::sys::signal::Signal;

use crate::WELL_BEHAVED;
use crate::support::controller::{Controller, Said};
use crate::support::{DIRECTORY_ID, TestNode, eventually};

/// Another identity than the one that the list of first voters has for the node.
const NEW_DIRECTORY_ID: &str = "Anjr8banTey_LqVZsppzYg";

/// How the storage tool was called for an empty disk, and all that was printed.
fn formatted(java: &str, controllers: &str) -> (String, String) {
    let node = TestNode::new(java).with_controllers(controllers);
    let (code, output) = node.run();
    assert_eq!(code, 0, "{output}");
    let calls = node.java_calls();
    assert_eq!(calls.len(), 2, "{calls:?}");
    (calls[0].clone(), output)
}

fn assert_first_voter(call: &str) {
    assert!(call.ends_with(&format!("--initial-controllers=3@localhost:1:{DIRECTORY_ID}")), "{call}");
}

/// A voter that nobody has heard of yet.
const NEW: Said = Said { node: 3, directory: DIRECTORY_ID, fetched: false, registered: false };

/// A storage tool that formats to join.
fn joining() -> String {
    format!("if [ $class = tool ]; then format_storage {NEW_DIRECTORY_ID}; fi")
}

#[test]
fn a_first_voter_that_was_there_before_comes_back_as_somebody_else() {
    // The second was seen by a leader before this one.
    for said in [Said { fetched: true, ..NEW }, Said { registered: true, ..NEW }] {
        let leader = Controller::leading(said);
        let (call, output) = formatted(&joining(), &leader.address.to_string());
        assert!(call.ends_with(" --no-initial-controllers"), "{call}");
        let warning = output.lines().find(|line| line.contains("WARN")).unwrap_or_default();
        assert!(warning.contains("it lost its disk"), "{output}");
    }
}

#[test]
fn a_first_voter_that_was_not_there_yet_is_one() {
    for said in [
        NEW,
        Said { directory: NEW_DIRECTORY_ID, fetched: true, ..NEW },
        Said { node: 5, fetched: true, registered: true, ..NEW },
    ] {
        let leader = Controller::leading(said);
        // One that is not there takes nothing away from one that is.
        let (call, output) = formatted(WELL_BEHAVED, &format!("127.0.0.1:1,{}", leader.address));
        assert_first_voter(&call);
        assert!(!output.contains("WARN"), "{output}");
    }
}

#[test]
fn a_first_voter_meets_others_that_have_no_leader_yet_and_helps_to_elect_one() {
    let other = Controller::without_leader(NEW);
    let (call, _) = formatted(WELL_BEHAVED, &other.address.to_string());
    assert_first_voter(&call);
}

#[test]
fn a_first_voter_that_was_there_before_waits_for_the_others_to_elect_a_leader() {
    let other = Controller::without_leader(Said { registered: true, ..NEW });
    let node = TestNode::new(&joining()).with_controllers(&other.address.to_string());
    let mut launched = node.launch();
    let asks = (503, "asking the other controllers whether this node was there before".to_owned());
    eventually("the launcher asks", || launched.get("/ready") == asks);
    other.lead();
    assert_eq!(launched.exit_code(), 0, "{}", node.read("output"));
    assert!(node.java_calls()[0].ends_with(" --no-initial-controllers"), "{:?}", node.java_calls());
}

#[test]
fn a_voter_that_nobody_else_can_do_without_gets_its_vote_back() {
    let other = Controller::without_leader(Said { registered: true, ..NEW });
    let (call, output) = formatted(WELL_BEHAVED, &other.address.to_string());
    assert_first_voter(&call);
    assert!(output.contains("the other controllers have no leader"), "{output}");
}

#[test]
fn where_nobody_listens_nobody_is_waited_for() {
    let (call, output) = formatted(WELL_BEHAVED, "127.0.0.1:1");
    assert_first_voter(&call);
    let known = output.lines().find(|line| line.contains("no controller says")).unwrap_or_default();
    assert!(known.contains("refused"), "not because the time was over: {output}");
}

#[test]
fn a_controller_that_says_nothing_does_not_hold_up_the_first_voters() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (call, output) = formatted(WELL_BEHAVED, &silent.local_addr().unwrap().to_string());
    assert_first_voter(&call);
    assert!(output.contains("no controller says"), "{output}");
}

#[test]
fn a_first_voter_that_waits_for_an_answer_can_be_stopped() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let node = TestNode::new(WELL_BEHAVED).with_controllers(&silent.local_addr().unwrap().to_string());
    let mut launched = node.launch();
    let (_asking, _) = silent.accept().unwrap();
    launched.signal(Signal::SIGTERM);
    assert_eq!(launched.exit_code(), 143);
    assert_eq!(node.java_calls(), [""; 0], "nothing was formatted");
}
