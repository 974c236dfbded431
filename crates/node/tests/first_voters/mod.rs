//! An empty disk of a first voter: the others are asked whether they have seen the one before it.

use std::net::TcpListener;

use nix::sys::signal::Signal;

use crate::WELL_BEHAVED;
use crate::support::controller::{Controller, EPOCH, Manner, Said};
use crate::support::{DIRECTORY_ID, Launched, TestNode, eventually};

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
        let (call, output) = formatted(WELL_BEHAVED, &format!("127.0.0.1:2,{}", leader.address));
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

/// Waits until the launcher says that it waits, for this reason.
fn await_waiting(launched: &Launched<'_>, why: &str) {
    eventually("the launcher says why it waits", || {
        let (status, text) = launched.get("/ready");
        status == 503 && text.starts_with("lost-disk check: ") && text.contains(why)
    });
    assert_eq!(launched.get("/live").0, 200);
}

const NAMED: &str = "this node was a controller before";

#[test]
fn a_first_voter_that_was_there_before_waits_for_the_others_to_elect_a_leader() {
    let other = Controller::without_leader(Said { registered: true, ..NEW });
    let node = TestNode::new(&joining()).with_controllers(&other.address.to_string());
    let mut launched = node.launch();
    await_waiting(&launched, NAMED);
    other.lead();
    assert_eq!(launched.exit_code(), 0, "{}", node.read("output"));
    assert!(node.java_calls()[0].ends_with(" --no-initial-controllers"), "{:?}", node.java_calls());
}

#[test]
fn a_first_voter_that_others_know_votes_on_an_empty_disk_only_when_a_person_says_so() {
    let other = Controller::without_leader(Said { registered: true, ..NEW });
    let node = TestNode::new(WELL_BEHAVED).with_controllers(&other.address.to_string());
    let mut launched = node.launch();
    await_waiting(&launched, NAMED);
    assert_eq!(node.java_calls(), [""; 0], "nothing is formatted");
    node.write("config/empty.disk", "allowed");
    assert_eq!(launched.exit_code(), 0, "{}", node.read("output"));
    assert_first_voter(&node.java_calls()[0]);
}

#[test]
fn what_others_said_is_remembered_when_the_container_starts_again() {
    let other = Controller::without_leader(Said { registered: true, ..NEW });
    let node = TestNode::new(WELL_BEHAVED).with_controllers(&other.address.to_string());
    let mut launched = node.launch();
    await_waiting(&launched, NAMED);
    launched.signal(Signal::SIGTERM);
    assert_eq!(launched.exit_code(), 143);
    drop(launched);
    let node = node.with_controllers("127.0.0.1:2");
    let mut launched = node.launch();
    await_waiting(&launched, NAMED);
    launched.signal(Signal::SIGTERM);
    assert_eq!(launched.exit_code(), 143);
    assert_eq!(node.java_calls(), [""; 0], "nothing is formatted");
}

#[test]
fn a_disk_that_is_lost_under_a_pod_that_formatted_it_is_not_the_first() {
    let node = TestNode::new(WELL_BEHAVED).with_controllers("127.0.0.1:2");
    assert_eq!(node.run().0, 0);
    std::fs::remove_dir_all(node.data()).unwrap();
    let mut launched = node.launch();
    await_waiting(&launched, NAMED);
    launched.signal(Signal::SIGTERM);
    assert_eq!(launched.exit_code(), 143);
    assert_eq!(node.java_calls().len(), 2, "not formatted once more: {:?}", node.java_calls());
}

#[test]
fn a_node_that_ran_on_another_disk_waits_for_somebody_who_can_tell() {
    let ignorant = Controller::without_leader(NEW);
    for (disk, others, why) in [
        ("late", "127.0.0.1:2".to_owned(), "no other controller answers"),
        ("replaced", "127.0.0.1:2".to_owned(), "no other controller answers"),
        ("replaced", ignorant.address.to_string(), "who can tell"),
    ] {
        let node = TestNode::new(&joining()).with_controllers(&others);
        node.write("config/empty.disk", disk);
        let mut launched = node.launch();
        await_waiting(&launched, why);
        assert_eq!(node.java_calls(), [""; 0], "{disk}");
        // The operator has seen the node in the quorum.
        node.write("config/storage.format", "join");
        eventually("the storage tool is called", || !node.java_calls().is_empty());
        assert!(node.java_calls()[0].ends_with(" --no-initial-controllers"), "{:?}", node.java_calls());
        launched.signal(Signal::SIGTERM);
        assert_eq!(launched.exit_code(), 143, "it waits for a leader");
    }
    // Where others know nothing of a late one it is a first voter at once.
    let node = TestNode::new(WELL_BEHAVED).with_controllers(&ignorant.address.to_string());
    node.write("config/empty.disk", "late");
    assert_eq!(node.run().0, 0);
    assert_first_voter(&node.java_calls()[0]);
}

#[test]
fn where_nobody_listens_nobody_is_waited_for() {
    let (call, output) = formatted(WELL_BEHAVED, "127.0.0.1:2");
    assert_first_voter(&call);
    let known = output.lines().find(|line| line.contains("does not say")).unwrap_or_default();
    assert!(known.contains("refused"), "not because the time was over: {output}");
}

#[test]
fn a_controller_that_says_nothing_does_not_hold_up_the_first_voters_for_long() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (call, output) = formatted(WELL_BEHAVED, &silent.local_addr().unwrap().to_string());
    assert_first_voter(&call);
    assert!(output.contains("does not say"), "{output}");
}

/// The first of them is behind, and answers at once.
#[test]
fn a_controller_that_knows_nothing_does_not_hide_another_that_knows_the_node() {
    let behind = Controller::without_leader(NEW);
    let other = Controller::without_leader(Said { registered: true, ..NEW });
    let others = format!("{},{}", behind.address, other.address);
    let node = TestNode::new(&joining()).with_controllers(&others);
    let mut launched = node.launch();
    await_waiting(&launched, NAMED);
    other.lead();
    assert_eq!(launched.exit_code(), 0, "{}", node.read("output"));
    assert!(node.java_calls()[0].ends_with(" --no-initial-controllers"), "{:?}", node.java_calls());
}

/// With the data on a volume that was in use before, nobody doubts that the one with the metadata was lost.
#[test]
fn a_first_voter_whose_metadata_volume_was_lost_waits_for_a_leader_or_for_a_person() {
    let node = TestNode::new(WELL_BEHAVED).with_controllers("127.0.0.1:2");
    let data = node.add_used_volume();
    let mut launched = node.launch();
    await_waiting(&launched, NAMED);
    assert_eq!(node.java_calls(), [""; 0], "nothing is formatted");
    node.write("config/empty.disk", "allowed");
    assert_eq!(launched.exit_code(), 0, "{}", node.read("output"));
    assert_first_voter(&node.java_calls()[0]);
    assert!(data.join("orders-0").is_dir());
    assert!(node.path("work/was-first-voter").exists());
}

/// The same, in a container that starts again, when there is a leader by then that was not there before. Nobody needs the vote.
#[test]
fn a_lost_metadata_volume_is_not_forgotten_when_a_person_gives_the_vote_back() {
    let leader = Controller::leading(NEW);
    let node = TestNode::new(&joining()).with_controllers("127.0.0.1:2");
    node.add_used_volume();
    let mut launched = node.launch();
    await_waiting(&launched, NAMED);
    launched.signal(Signal::SIGTERM);
    assert_eq!(launched.exit_code(), 143);
    drop(launched);
    let node = node.with_controllers(&leader.address.to_string());
    node.write("config/empty.disk", "allowed");
    assert_eq!(node.run().0, 0, "{}", node.read("output"));
    assert!(node.java_calls()[0].ends_with(" --no-initial-controllers"), "{:?}", node.java_calls());
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

/// Runs a node whose vote is given back, and tells what it then remembers of elections.
fn restored(other: &Controller) -> String {
    let own_log = "mkdir -p $data/__cluster_metadata-0";
    let java = format!("if [ $class = tool ]; then format_storage; {own_log}; fi");
    let node = TestNode::new(&java).with_controllers(&format!("127.0.0.1:2,{}", other.address));
    node.write("config/storage.format", "restore");
    let (code, output) = node.run();
    assert_eq!(code, 0, "{output}");
    assert_first_voter(&node.java_calls()[0]);
    std::fs::read_to_string(node.data().join("__cluster_metadata-0/quorum-state")).expect(&output)
}

fn assert_begins_after(kept: &str) {
    let next = EPOCH + 1;
    assert!(kept.contains(&format!("\"leaderId\":-1,\"leaderEpoch\":{next},\"votedId\":-1")), "{kept}");
}

#[test]
fn a_voter_that_gets_its_vote_back_begins_no_term_where_another_node_leads() {
    let other = Controller::leading(Said { registered: true, ..NEW });
    let own_log = "mkdir -p $data/__cluster_metadata-0";
    let java = format!("if [ $class = tool ]; then format_storage; {own_log}; fi");
    let node = TestNode::new(&java).with_controllers(&other.address.to_string());
    node.write("config/storage.format", "restore");
    let (code, output) = node.run();
    assert_eq!(code, 0, "{output}");
    assert!(!node.data().join("__cluster_metadata-0/quorum-state").exists(), "{output}");
}

#[test]
fn a_voter_that_gets_its_vote_back_begins_after_the_term_that_the_others_know() {
    let other = Controller::without_leader(Said { registered: true, ..NEW });
    assert_begins_after(&restored(&other));
}

#[test]
fn names_that_take_long_to_look_up_keep_no_restored_voter_from_hearing_the_term() {
    let other = Controller::without_leader(Said { registered: true, ..NEW });
    other.behave(Manner::ComesLate);
    assert_begins_after(&restored(&other));
}

#[test]
fn names_that_take_long_to_look_up_keep_no_static_voter_from_its_disk() {
    // The leader, and another that has everything: a majority of three without this node.
    let leader = Controller::leading(Said { node: 5, fetched: true, registered: true, ..NEW });
    leader.behave(Manner::ComesLate);
    let node = TestNode::new(WELL_BEHAVED).with_controllers(&leader.address.to_string());
    node.write("config/storage.format", "static");
    let mut launched = node.launch();
    eventually("the disk is formatted", || !node.java_calls().is_empty());
    assert_eq!(launched.exit_code(), 0, "{}", node.read("output"));
}
