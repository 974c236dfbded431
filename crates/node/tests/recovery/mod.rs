//! A broker whose Kafka was not shut down cleanly: who asks is told that it recovers its logs, and how far it is.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Launched, TestNode, eventually};

/// What the operator and people are told.
const RECOVERING: &str = "(Kafka was not shut down cleanly; ending it now would make it begin again)";

/// A Kafka that writes what is in the file `says` each time the pipe `say` is written to, and then tells so by `said`, until there is a file `end`. It is
/// called as the file `name` says, where there is one: the threads of this Kafka are this one process.
const SPEAKS: &str = r"
touch $dir/started
while :; do
    read _ < $dir/say
    if [ -e $dir/end ]; then exit 7; fi
    if [ -e $dir/name ]; then printf %s $(cat $dir/name) > /proc/$$/comm; fi
    if [ -e $dir/says ]; then cat $dir/says; fi
    touch $dir/said
done";

/// Broker 3, with a log in its directory.
fn broker(java: &str, mark: Option<&str>) -> TestNode {
    node("broker", java, mark, "orders-0")
}

fn node(roles: &str, java: &str, mark: Option<&str>, log: &str) -> TestNode {
    let node = TestNode::new(java).formatted().with_pipe("say");
    let config = node.read("config/server.config").replace("roles=controller", &format!("roles={roles}"));
    node.write("config/server.config", &format!("{config}inter.broker.listener.name=C\n"));
    node.write("config/storage.format", "join");
    fs::create_dir(node.data().join(log)).unwrap();
    if let Some(mark) = mark {
        fs::write(node.data().join(mark), r#"{"version":0,"brokerEpoch":9}"#).unwrap();
    }
    node
}

fn launched(node: &TestNode) -> Launched<'_> {
    let launched = node.launch();
    launched.await_file("started");
    eventually("Kafka is known to run", || launched.get("/live").1 == "running");
    launched
}

/// Lets Kafka write this, and be called that.
fn let_say(node: &TestNode, launched: &Launched<'_>, says: &str, name: Option<&str>) {
    node.write("says", says);
    if let Some(name) = name {
        node.write("name", name);
    }
    let _ = fs::remove_file(node.path("said"));
    node.release("say");
    launched.await_file("said");
}

fn assert_not_recovering(launched: &Launched<'_>) {
    eventually("Kafka was asked in vain", || {
        let (status, why) = launched.get("/ready");
        assert!(status == 503 && !why.contains("recovering"), "{why}");
        why.contains("127.0.0.1:1")
    });
}

fn end(node: &TestNode, mut launched: Launched<'_>) {
    node.write("end", "");
    node.release("say");
    assert_eq!(launched.exit_code(), 7);
}

#[test]
fn a_broker_that_was_not_shut_down_cleanly_says_how_far_its_recovery_is() {
    let node = broker(SPEAKS, None);
    let launched = launched(&node);
    assert_eq!(launched.get("/ready"), (503, format!("recovering logs {RECOVERING}")));
    assert_eq!(launched.get("/live"), (200, "running".to_owned()));
    let begins = "[x] INFO Recovering 12 logs from /d since no clean shutdown file was found (a) [b]\n";
    let_say(&node, &launched, begins, None);
    let tells = |far: &str| launched.get("/ready") == (503, format!("recovering logs: {far} {RECOVERING}"));
    eventually("the first words are heard", || tells("0 of 12"));
    let_say(&node, &launched, "[x] INFO Completed load of a in 2ms (5/12 completed in /d) (a) [b]\n", None);
    eventually("progress is heard", || tells("5 of 12"));
    let_say(&node, &launched, "[x] INFO Loaded 12 logs in 299ms (unclean log dirs = d)\n", None);
    eventually("the last log is heard of, and Kafka does not answer yet", || tells("12 of 12"));
    assert!(node.read("output").contains(begins), "what Kafka writes is passed on");
    end(&node, launched);
}

#[test]
fn only_a_broker_with_logs_and_without_the_mark_recovers() {
    for (roles, mark, log) in [
        ("broker", Some(".kafka_cleanshutdown"), "orders-0"),
        ("broker", None, "__cluster_metadata-0"),
        ("controller", None, "orders-0"),
    ] {
        let node = node(roles, SPEAKS, mark, log);
        let launched = launched(&node);
        assert_not_recovering(&launched);
        end(&node, launched);
    }
    let node = node("broker,controller", SPEAKS, None, "orders-0");
    let launched = launched(&node);
    assert!(launched.get("/ready").1.starts_with("recovering logs"));
    end(&node, launched);
}

#[test]
fn a_kafka_that_has_no_loading_threads_yet_does_not_recover_and_one_that_had_some_does_until_it_answers() {
    let node = broker(SPEAKS, None);
    let launched = launched(&node);
    let_say(&node, &launched, "", Some("kafka-3-raft-io"));
    assert_not_recovering(&launched);
    let_say(&node, &launched, "", Some("log-recovery-/v"));
    assert_eq!(launched.get("/ready"), (503, format!("recovering logs {RECOVERING}")));
    let_say(&node, &launched, "", Some("kafka-3-raft-io"));
    assert_eq!(launched.get("/ready"), (503, format!("recovering logs {RECOVERING}")));
    end(&node, launched);
}

#[test]
fn all_that_a_recovering_kafka_writes_is_passed_on_to_its_last_word() {
    let writes = r"
i=0
while [ $i -lt 20000 ]; do echo line $i of a Kafka that has much to say; i=$((i + 1)); done
printf 'no end'
exit 7";
    let (code, output) = broker(writes, None).run();
    assert_eq!(code, 7);
    let expected: String =
        (0..20_000).map(|i| format!("line {i} of a Kafka that has much to say\n")).collect();
    assert!(output.contains(&format!("{expected}no end")), "{}", output.len());
}

#[test]
fn a_process_that_outlives_kafka_does_not_keep_the_launcher() {
    let node = broker("sleep 60 & echo $! > $dir/orphan; exit 7", None);
    let (code, output) = node.run();
    kill(Pid::from_raw(node.read("orphan").trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    assert_eq!(code, 7, "{output}");
}

#[test]
fn the_output_of_any_other_kafka_is_its_own() {
    let own = "own=$(readlink /proc/$$/fd/1); echo $own > $dir/own";
    let run = |mark| {
        let node = broker(own, mark);
        node.run();
        node.read("own")
    };
    let (clean, unclean) = (run(Some(".kafka_cleanshutdown")), run(None));
    assert!(clean.trim().ends_with("/output") && unclean.starts_with("pipe:"), "{clean}{unclean}");
}
