//! A Kafka that runs and does nothing any more is given up; one that is slow, busy, or new is not.

use nix::sys::signal::Signal;

use crate::support::controller::{Controller, Manner, Said};
use crate::support::{CLUSTER_ID, DIRECTORY_ID, Launched, TestNode, eventually};

/// Sleeps like a JVM without threads, and writes its stacks when asked.
const SLEEPS: &str = r"
trap 'kill $waiter; exit 143' TERM
trap 'touch $dir/stacks' QUIT
sleep 600 & waiter=$!
touch $dir/started
while :; do wait $waiter; done";

/// Is always busy.
const SPINS: &str = r"
trap 'exit 143' TERM
touch $dir/started
while :; do :; done";

/// More connections, or questions, than a limit of one second has.
const MANY_LOOKS: usize = 24;

/// A controller whose own listener is that of this one.
fn node(java: &str) -> (TestNode, Controller) {
    let said = Said { node: 3, directory: DIRECTORY_ID, fetched: true, registered: true };
    let kafka = Controller::leading(said);
    let node = TestNode::new(java).formatted_for(CLUSTER_ID, 3);
    let config = node.read("config/server.config").replace("127.0.0.1:1", &kafka.address.to_string());
    node.write("config/server.config", &config);
    (node, kafka)
}

fn launched(node: &TestNode) -> Launched<'_> {
    let launched = node.launch_with(|command| command.args(["--silence-limit", "1"]));
    launched.await_file("started");
    launched
}

fn is_alive(launched: &Launched<'_>) -> bool {
    launched.get("/live") == (200, "running".to_owned())
}

/// Kafka is looked at many times, and is alive each time.
fn assert_not_given_up(launched: &Launched<'_>, kafka: &Controller) {
    let before = kafka.connections();
    eventually("Kafka was looked at often", || {
        assert!(is_alive(launched));
        kafka.connections() > before + MANY_LOOKS
    });
}

fn end(mut launched: Launched<'_>) {
    launched.signal(Signal::SIGTERM);
    assert_eq!(launched.exit_code(), 143);
}

#[test]
fn a_kafka_that_served_and_has_lost_its_threads_is_given_up_with_its_stacks_and_taken_back_if_it_answers() {
    let (node, kafka) = node(SLEEPS);
    let launched = launched(&node);
    eventually("it serves", || launched.get("/ready").0 == 200);
    assert!(is_alive(&launched));
    kafka.behave(Manner::Hangs);
    eventually("it is given up", || launched.get("/live").0 == 503);
    let (_, why) = launched.get("/live");
    assert!(why.starts_with("Kafka has reacted to nothing on its own listener for "), "{why}");
    launched.await_file("stacks");
    kafka.behave(Manner::Answers);
    eventually("it is taken back", || is_alive(&launched));
    end(launched);
}

#[test]
fn a_kafka_that_still_closes_connections_waits_for_somebody_and_is_not_given_up() {
    let (node, kafka) = node(SLEEPS);
    let launched = launched(&node);
    eventually("it serves", || launched.get("/ready").0 == 200);
    kafka.behave(Manner::Reacts);
    assert_not_given_up(&launched, &kafka);
    eventually("it is not ready", || launched.get("/ready").0 == 503);
    end(launched);
}

#[test]
fn a_kafka_that_is_busy_is_not_given_up() {
    let (node, kafka) = node(SPINS);
    let launched = launched(&node);
    eventually("it serves", || launched.get("/ready").0 == 200);
    kafka.behave(Manner::Hangs);
    assert_not_given_up(&launched, &kafka);
    end(launched);
}

#[test]
fn a_kafka_that_has_not_served_yet_is_not_given_up() {
    let (node, kafka) = node(SLEEPS);
    kafka.behave(Manner::Hangs);
    let launched = launched(&node);
    assert_not_given_up(&launched, &kafka);
    end(launched);
}

#[test]
fn a_controller_without_a_leader_is_not_ready_and_not_given_up() {
    let said = Said { node: 3, directory: DIRECTORY_ID, fetched: true, registered: true };
    let kafka = Controller::without_leader(said);
    let node = TestNode::new(SLEEPS).formatted();
    let config = node.read("config/server.config").replace("127.0.0.1:1", &kafka.address.to_string());
    node.write("config/server.config", &config);
    let launched = launched(&node);
    eventually("it is known to have no leader", || launched.get("/ready").1.contains("no leader"));
    let asked = kafka.asked();
    eventually("it was asked often", || {
        assert!(is_alive(&launched));
        kafka.asked() > asked + MANY_LOOKS
    });
    end(launched);
}
