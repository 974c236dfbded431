//! The launcher as a process: what it runs, what it refuses, how it stops, what it answers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, its helpers too"
)]

mod first_voters;
mod liveness;
mod recovery;
mod support;

use nix::sys::signal::Signal;
use support::{CLUSTER_ID, DIRECTORY_ID, TestNode, eventually, parent_of};

/// Formats when asked to; as Kafka it ends at once and well.
const WELL_BEHAVED: &str = "if [ $class = tool ]; then format_storage; fi";

/// A Kafka that takes its time to stop: on a signal it says which, then waits on the pipe `stop`.
const STOPS_SLOWLY: &str = r"
stop() { echo $1 > $dir/signal.tmp; mv $dir/signal.tmp $dir/signal; read _ < $dir/stop; kill $waiter; exit $2; }
trap 'stop TERM 143' TERM
trap 'stop INT 130' INT
trap 'stop HUP 129' HUP
trap 'touch $dir/stacks' QUIT
sleep 60 & waiter=$!
touch $dir/started
while :; do wait $waiter; done";

#[test]
fn a_formatted_node_starts_kafka_at_once() {
    let node = TestNode::new(WELL_BEHAVED).formatted();
    let (code, output) = node.run();
    assert_eq!(code, 0, "{output}");
    let calls = node.java_calls();
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert!(calls[0].contains("-Xmx64m"), "{calls:?}");
    let server_config = node.path("config/server.config");
    assert!(calls[0].ends_with(&format!("kafka.Kafka {}", server_config.display())), "{calls:?}");
}

#[test]
fn the_place_of_a_node_is_in_the_settings_that_kafka_starts_with() {
    let node = TestNode::new(WELL_BEHAVED).formatted();
    let asking = format!("{}advertised.listeners=C://@node-ip@:31000\n", node.read("config/server.config"));
    node.write("config/server.config", &asking);
    let (code, output) = node.run();
    assert_eq!((code, node.java_calls().len()), (1, 0), "{output}");
    assert!(output.contains("KARST_NODE_IP"), "{output}");
    let (code, output) = node.run_with(&["--node-ip", "192.168.0.7"]);
    assert_eq!(code, 0, "{output}");
    let written = node.path("work/server.config");
    assert!(node.java_calls()[0].ends_with(&format!("kafka.Kafka {}", written.display())));
    assert!(node.read("work/server.config").contains("advertised.listeners=C://192.168.0.7:31000"));
}

#[test]
fn an_empty_disk_is_formatted_before_kafka_starts() {
    let node = TestNode::new(WELL_BEHAVED);
    let (code, output) = node.run();
    assert_eq!(code, 0, "{output}");
    let calls = node.java_calls();
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(calls[0].contains(&format!("StorageTool format --cluster-id={CLUSTER_ID} ")), "{calls:?}");
    assert!(calls[0].ends_with(&format!("--initial-controllers=3@localhost:1:{DIRECTORY_ID}")), "{calls:?}");
    assert!(calls[1].contains(" kafka.Kafka "), "{calls:?}");
    assert!(output.contains("as an initial controller"), "{output}");
}

#[test]
fn a_node_formats_only_once() {
    let node = TestNode::new(WELL_BEHAVED);
    node.run();
    node.run();
    let formats = node.java_calls().iter().filter(|call| call.contains("StorageTool")).count();
    assert_eq!((formats, node.java_calls().len()), (1, 3));
}

#[test]
fn the_launcher_ends_as_kafka_did() {
    for (java, code) in [("exit 7", 7), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)] {
        assert_eq!(TestNode::new(java).formatted().run().0, code, "{java}");
    }
}

#[test]
fn a_foreign_disk_is_refused_and_java_is_never_called() {
    for (node, clue) in [
        (TestNode::new(WELL_BEHAVED).formatted_for("other", 3), "cluster.id=other"),
        (TestNode::new(WELL_BEHAVED).formatted_for(CLUSTER_ID, 4), "node.id=4"),
    ] {
        let (code, output) = node.run();
        assert_eq!(code, 1);
        assert!(output.contains(clue) && output.contains(&node.data().display().to_string()), "{output}");
        assert!(node.java_calls().is_empty());
    }
}

#[test]
fn data_without_a_mark_is_refused() {
    let node = TestNode::new(WELL_BEHAVED);
    std::fs::create_dir_all(node.data().join("orders-0")).unwrap();
    let (code, output) = node.run();
    assert_eq!(code, 1);
    assert!(output.contains("orders-0") && output.contains("no meta.properties"), "{output}");
    assert!(node.java_calls().is_empty());
}

#[test]
fn a_broken_configuration_is_named() {
    let node = TestNode::new(WELL_BEHAVED).formatted();
    node.write("config/storage.format", "maybe");
    let (code, output) = node.run();
    assert_eq!(code, 1);
    assert!(output.contains("`storage.format` is \"maybe\""), "{output}");
    assert!(node.java_calls().is_empty());
}

#[test]
fn kafka_is_not_started_when_formatting_fails() {
    let node = TestNode::new("echo no space left; exit 3");
    let (code, output) = node.run();
    assert_eq!(code, 1);
    assert!(output.contains("no space left") && output.contains("exit code 3"), "{output}");
    assert_eq!(node.java_calls().len(), 1);
}

#[test]
fn a_storage_tool_that_only_claims_success_is_not_believed() {
    let node = TestNode::new("exit 0");
    let (code, output) = node.run();
    assert_eq!(code, 1);
    assert!(output.contains("reported success, but"), "{output}");
    assert_eq!(node.java_calls().len(), 1);
}

#[test]
fn a_founder_with_another_directory_id_is_not_started() {
    let node = TestNode::new("format_storage Anjr8banTey_LqVZsppzYg");
    let (code, output) = node.run();
    assert_eq!(code, 1);
    assert!(output.contains(DIRECTORY_ID), "{output}");
    assert_eq!(node.java_calls().len(), 1);
}

#[test]
fn a_missing_java_is_named() {
    let node = TestNode::new(WELL_BEHAVED).formatted();
    std::fs::remove_file(node.path("java")).unwrap();
    let (code, output) = node.run();
    assert_eq!(code, 1);
    assert!(output.contains(&node.path("java").display().to_string()), "{output}");
}

#[test]
fn a_signal_to_stop_is_passed_on_and_the_orderly_end_awaited() {
    for (signal, name, code) in
        [(Signal::SIGTERM, "TERM", 143), (Signal::SIGINT, "INT", 130), (Signal::SIGHUP, "HUP", 129)]
    {
        let node = TestNode::new(STOPS_SLOWLY).formatted().with_pipe("stop");
        let mut launched = node.launch();
        launched.await_file("started");
        launched.signal(signal);
        launched.await_file("signal");
        assert_eq!(node.read("signal").trim(), name);
        assert_eq!(launched.get("/ready"), (503, "shutting down".to_owned()));
        assert_eq!(launched.get("/live").0, 200);
        node.release("stop");
        assert_eq!(launched.exit_code(), code);
    }
}

#[test]
fn a_request_for_stacks_does_not_stop_anything() {
    let node = TestNode::new(STOPS_SLOWLY).formatted().with_pipe("stop");
    let mut launched = node.launch();
    launched.await_file("started");
    launched.signal(Signal::SIGQUIT);
    launched.await_file("stacks");
    assert_eq!(launched.get("/live"), (200, "running".to_owned()));
    launched.signal(Signal::SIGTERM);
    node.release("stop");
    assert_eq!(launched.exit_code(), 143);
}

#[test]
fn a_stop_during_formatting_is_not_followed_by_a_start() {
    let node = TestNode::new(STOPS_SLOWLY).with_pipe("stop");
    let mut launched = node.launch();
    launched.await_file("started");
    assert_eq!(launched.get("/live"), (200, "formatting".to_owned()));
    assert_eq!(launched.get("/ready"), (503, "formatting".to_owned()));
    launched.signal(Signal::SIGTERM);
    node.release("stop");
    assert_eq!(launched.exit_code(), 143);
    assert_eq!(node.java_calls().len(), 1, "{:?}", node.java_calls());
}

#[test]
fn orphans_are_adopted_and_collected_while_kafka_runs() {
    let adopts = r"
(sh -c 'read _ < $0/orphan' $dir & echo $! > $dir/orphan_pid.tmp; mv $dir/orphan_pid.tmp $dir/orphan_pid)
read _ < $dir/stop";
    let node = TestNode::new(adopts).formatted().with_pipe("stop").with_pipe("orphan");
    let mut launched = node.launch();
    launched.await_file("orphan_pid");
    let orphan: i32 = node.read("orphan_pid").trim().parse().unwrap();
    eventually("the launcher adopts the orphan", || parent_of(orphan) == Some(launched.pid()));
    node.release("orphan");
    eventually("the dead orphan is collected", || parent_of(orphan).is_none());
    node.release("stop");
    assert_eq!(launched.exit_code(), 0);
}

#[test]
fn a_kafka_that_does_not_answer_is_alive_but_not_ready() {
    let node = TestNode::new(STOPS_SLOWLY).formatted().with_pipe("stop");
    let mut launched = node.launch();
    launched.await_file("started");
    assert_eq!(launched.get("/live"), (200, "running".to_owned()));
    eventually("Kafka was asked in vain", || {
        let (status, why) = launched.get("/ready");
        status == 503 && why.contains("127.0.0.1:1")
    });
    launched.signal(Signal::SIGTERM);
    node.release("stop");
    assert_eq!(launched.exit_code(), 143);
}

#[test]
fn only_the_two_questions_are_answered() {
    let node = TestNode::new(STOPS_SLOWLY).formatted().with_pipe("stop");
    let mut launched = node.launch();
    launched.await_file("started");
    assert_eq!(launched.get("/").0, 404);
    assert_eq!(launched.request("POST", "/live").0, 405);
    launched.signal(Signal::SIGTERM);
    node.release("stop");
    assert_eq!(launched.exit_code(), 143);
}

#[test]
fn a_new_node_does_not_start_kafka_before_the_quorum_has_a_leader() {
    // Nobody listens there.
    let node = TestNode::new("format_storage Anjr8banTey_LqVZsppzYg").with_controllers("127.0.0.1:1");
    node.write("config/storage.format", "join");
    // Nor when its container starts again.
    for _ in 0..2 {
        let mut launched = node.launch();
        let waits = (503, "waiting for the quorum to have a leader".to_owned());
        eventually("the launcher waits", || launched.get("/ready") == waits);
        assert_eq!(launched.get("/live").0, 200);
        launched.signal(Signal::SIGTERM);
        assert_eq!(launched.exit_code(), 143);
        assert_eq!(node.java_calls().len(), 1, "only the storage tool was called: {:?}", node.java_calls());
    }
}

#[test]
fn a_node_that_has_metadata_waits_for_nobody() {
    let node = TestNode::new(WELL_BEHAVED).formatted().with_controllers("127.0.0.1:1");
    node.write("config/storage.format", "join");
    node.write("config/initial.controllers", "");
    let log = node.data().join("__cluster_metadata-0");
    std::fs::create_dir(&log).unwrap();
    std::fs::write(log.join("00000000000000000000.log"), "records").unwrap();
    let (code, output) = node.run();
    assert_eq!(code, 0, "{output}");
    assert_eq!(node.java_calls().len(), 1, "Kafka is started: {:?}", node.java_calls());
}

#[test]
fn a_first_voter_that_has_no_record_yet_waits_for_nobody() {
    for format in ["initial", "join"] {
        let node = TestNode::new(WELL_BEHAVED).formatted().with_controllers("127.0.0.1:1");
        node.write("config/storage.format", format);
        let (code, output) = node.run();
        assert_eq!(code, 0, "{output}");
    }
}

/// Gives the node a second volume, and says where the metadata log is.
fn with_second_volume(node: &TestNode, roles: &str, metadata: &std::path::Path) -> std::path::PathBuf {
    let more = node.path("more/kafka-log3");
    let server = format!(
        "node.id=3\nprocess.roles={roles}\nlog.dirs={},{}\nmetadata.log.dir={}\ncontroller.listener.names=C\n\
         listeners=C://127.0.0.1:1\ninter.broker.listener.name=C\nlistener.security.protocol.map=C:PLAINTEXT\n",
        node.data().display(),
        more.display(),
        metadata.display()
    );
    node.write("config/server.config", &server);
    node.write("config/storage.format", "join");
    more
}

#[test]
fn a_volume_added_to_a_lone_controller_is_formatted_and_nobody_is_waited_for() {
    let node = TestNode::new(
        "if [ $class = tool ]; then data=$dir/more/kafka-log3; format_storage Anjr8banTey_LqVZsppzYg; fi",
    )
    .formatted();
    let more = with_second_volume(&node, "controller", &node.data());
    // Its own address: nobody leads there before Kafka starts.
    let node = node.with_controllers("127.0.0.1:1");
    let (code, output) = node.run();
    assert_eq!(code, 0, "{output}");
    let calls = node.java_calls();
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(calls[0].contains(" --ignore-formatted --no-initial-controllers"), "{calls:?}");
    let mark = |dir: &std::path::Path| std::fs::read_to_string(dir.join("meta.properties")).unwrap();
    assert!(mark(&node.data()).contains(DIRECTORY_ID), "the disk that was there is left alone");
    assert!(mark(&more).contains("Anjr8banTey_LqVZsppzYg"));
}

/// A node whose metadata log moved to its second volume, and what it left behind on the first.
fn with_moved_metadata(roles: &str) -> (TestNode, std::path::PathBuf) {
    let node = TestNode::new(WELL_BEHAVED).formatted();
    let more = with_second_volume(&node, roles, &node.path("more/kafka-log3"));
    std::fs::create_dir_all(&more).unwrap();
    std::fs::copy(node.data().join("meta.properties"), more.join("meta.properties")).unwrap();
    let old = node.data().join("__cluster_metadata-0");
    std::fs::create_dir(&old).unwrap();
    std::fs::write(old.join("quorum-state"), "{}").unwrap();
    std::fs::create_dir(node.data().join("orders-0")).unwrap();
    (node, old)
}

#[test]
fn a_broker_drops_the_copy_of_the_metadata_log_that_it_left_behind() {
    let (node, old) = with_moved_metadata("broker");
    let (code, output) = node.run();
    assert_eq!(code, 0, "{output}");
    assert!(!old.exists() && node.data().join("orders-0").exists());
    assert!(output.contains("removing the old copy"), "{output}");
}

#[test]
fn a_broker_that_lost_an_election_before_it_left_the_voters_starts() {
    let own =
        "\"leaderId\":4,\"leaderEpoch\":7,\"votedId\":3,\"votedDirectoryId\":\"r9VGTiw2QUCoDUadCt6q2g\"";
    for (roles, keeps) in [("broker", false), ("controller", true), ("broker,controller", true)] {
        let node = TestNode::new(WELL_BEHAVED).formatted();
        let server = node
            .read("config/server.config")
            .replace("process.roles=controller", &format!("process.roles={roles}"));
        node.write("config/server.config", &(server + "inter.broker.listener.name=C\n"));
        let log = node.data().join("__cluster_metadata-0");
        std::fs::create_dir(&log).unwrap();
        std::fs::write(log.join("quorum-state"), format!("{{{own},\"data_version\":1}}")).unwrap();
        let (code, output) = node.run();
        assert_eq!(code, 0, "{output}");
        let left = std::fs::read_to_string(log.join("quorum-state")).unwrap();
        assert_eq!(left.contains("\"votedId\":3"), keeps, "{roles}: {left}");
        assert!(left.contains("\"leaderId\":4,\"leaderEpoch\":7"), "{left}");
    }
}

#[test]
fn a_controller_never_loses_what_it_voted_for() {
    for roles in ["controller", "broker,controller"] {
        let (node, old) = with_moved_metadata(roles);
        node.run();
        assert!(old.join("quorum-state").exists(), "{roles}");
    }
}

#[test]
fn a_broker_waits_until_its_rack_is_known() {
    let node = TestNode::new(WELL_BEHAVED).formatted();
    node.write("rack", "");
    let mut launched = node.launch_with(|command| command.arg("--rack-file").arg(node.path("rack")));
    eventually("the launcher waits", || {
        launched.get("/live").1 == "waiting for the operator to tell the rack"
    });
    assert_eq!(launched.get("/ready").0, 503);
    assert_eq!(node.java_calls(), [""; 0]);
    node.write("rack", "zone-a");
    assert_eq!(launched.exit_code(), 0);
    assert!(node.java_calls()[0].ends_with(" --override broker.rack=zone-a"), "{:?}", node.java_calls());
}

#[test]
fn a_broker_that_waits_for_its_rack_can_be_stopped() {
    let node = TestNode::new(WELL_BEHAVED).formatted();
    let mut launched = node.launch_with(|command| command.arg("--rack-file").arg(node.path("none")));
    eventually("the launcher waits", || {
        launched.get("/live").1 == "waiting for the operator to tell the rack"
    });
    launched.signal(Signal::SIGTERM);
    assert_eq!(launched.exit_code(), 143);
    assert_eq!(node.java_calls(), [""; 0]);
}

#[test]
fn a_rack_from_a_variable_is_there_or_is_named() {
    let node = TestNode::new(WELL_BEHAVED).formatted();
    let mut launched =
        node.launch_with(|command| command.args(["--rack-variable", "ROW"]).env("ROW", "row-7"));
    assert_eq!(launched.exit_code(), 0);
    assert!(node.java_calls()[0].ends_with(" --override broker.rack=row-7"), "{:?}", node.java_calls());

    for (value, part) in [(None, "the environment variable ROW"), (Some("a=b"), "the rack is \"a=b\"")] {
        let mut launched = node.launch_with(|command| {
            let command = command.args(["--rack-variable", "ROW"]).env_remove("ROW");
            if let Some(value) = value { command.env("ROW", value) } else { command }
        });
        assert_eq!(launched.exit_code(), 1);
        assert!(node.read("output").contains(part), "{}", node.read("output"));
    }
}
