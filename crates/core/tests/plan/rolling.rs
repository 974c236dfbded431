//! Restarts of running pods: in which order, why, and what keeps them from it.

use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use k8s_openapi::jiff::Timestamp;
use karst_core::ids::NodeId;
use karst_core::plan::plan;
use karst_core::rolling::{Cause, Restart};
use karst_core::world::{Answer, LauncherView, PartitionView, Partitions, World};

fn change_setting(world: &mut World) {
    edit_kafka(world, |kafka| {
        kafka.spec.kafka.config.get_or_insert_default().insert("log.retention.hours".into(), 1.into());
    });
    let plan = decide(world);
    assert_eq!(plan.restarts, [], "nothing restarts before what it is to run with is written");
    carry_out(world, plan);
}

/// What restarts next, when Kafka has these partitions and all its initial controllers vote.
fn next(world: &World, partitions: &[PartitionView]) -> Vec<Restart> {
    let mut world = world.clone();
    // Who votes, what nodes run with, where partitions live: then it is decided.
    for _ in 0..4 {
        let plan = plan(&world).unwrap();
        if plan.questions.is_empty() {
            return plan.restarts;
        }
        if !plan.questions.quorum.is_empty() {
            world.answers.quorum = healthy_quorum(&world);
        }
        if plan.questions.registered {
            world.answers.registered = Kafka::default().registered(&world);
        }
        let of = plan.questions.partitions_of.clone();
        if !of.is_empty() {
            world.answers.partitions = Answer::Known(Partitions { of, found: partitions.to_vec() });
        }
        Kafka::default().tell_settings(&mut world, &plan.questions);
    }
    panic!("it never stops asking");
}

fn next_pods(world: &World, partitions: &[PartitionView]) -> Vec<String> {
    next(world, partitions).into_iter().map(|restart| restart.pod).collect()
}

/// Restarts everything that is due, one after the other, and returns the order.
fn roll(world: &mut World, partitions: &[PartitionView]) -> Vec<String> {
    let mut order = Vec::new();
    for _ in 0..20 {
        let restarts = next_pods(world, partitions);
        if restarts.is_empty() {
            return order;
        }
        for pod in restarts {
            world.pods.remove(&pod);
            order.push(pod);
        }
        assert_eq!(next_pods(world, partitions), [] as [&str; 0], "one is on its way back");
        run_pods(world, true);
    }
    panic!("it never ends: {order:?}");
}

#[test]
fn whoever_restarts_a_pod_looks_at_all_of_them_first() {
    let mut world = converged();
    let seen = |world: &World| world.pods.values().map(|pod| (**pod).clone()).collect::<Vec<_>>();
    let before = seen(&world);
    assert!(world.has_just_these_pods(&before));
    let name = before[0].meta.name.clone();

    edit_pod(&mut world, &name, |pod| pod.ready = false);
    assert!(!world.has_just_these_pods(&before), "one is down");
    edit_pod(&mut world, &name, |pod| (pod.ready, pod.was_ready) = (true, false));
    assert!(!world.has_just_these_pods(&before), "one has served since");
    edit_pod(&mut world, &name, |pod| (pod.was_ready, pod.meta.deleting) = (true, true));
    assert!(!world.has_just_these_pods(&before), "one is on its way out");
    edit_pod(&mut world, &name, |pod| (pod.meta.deleting, pod.meta.uid) = (false, "another".to_owned()));
    assert!(!world.has_just_these_pods(&before), "one is another one");
    world.pods.remove(&name);
    assert!(!world.has_just_these_pods(&before), "one is gone");
    assert!(world.has_just_these_pods(&before[1..]));
}

#[test]
fn controllers_restart_before_brokers_one_at_a_time_and_the_leader_last() {
    let mut world = converged();
    change_setting(&mut world);
    let leader = healthy_quorum(&world).known().unwrap().leader;
    assert_eq!(leader, NodeId(3));
    let order = roll(&mut world, &[partition("orders", &[0, 1, 2], &[0, 1, 2], 2)]);
    let expected = ["controllers-4", "controllers-5", "controllers-3", "brokers-0", "brokers-1", "brokers-2"];
    assert_eq!(order, expected.map(|pod| format!("my-cluster-{pod}")));
}

#[test]
fn a_restart_says_what_changed() {
    let mut world = converged();
    change_setting(&mut world);
    assert_eq!(next(&world, &[])[0].causes, [Cause::Changed(vec!["settings"])]);
}

#[test]
fn a_cluster_that_rolls_stays_ready_and_its_generation_is_not_done_before_the_end() {
    let mut world = converged();
    change_setting(&mut world);
    let plan = decide(&world);
    let victim = plan.restarts[0].pod.clone();
    carry_out(&mut world, plan);
    assert!(!world.pods.contains_key(&victim));
    let plan = decide(&world);
    carry_out(&mut world, plan);
    let (ready, reason, message) = conditions(&world, "Ready").remove(0);
    assert_eq!((ready.as_str(), reason.as_str()), ("True", "RollingUpdate"));
    assert!(message.contains(&victim), "{message}");
    assert_eq!(world.kafka.status.as_ref().unwrap().observed_generation, Some(1));
    run_pods(&mut world, true);
    converge(&mut world);
    assert_eq!(world.kafka.status.as_ref().unwrap().observed_generation, Some(2));
    assert_eq!(conditions(&world, "Ready")[0].1, "");
}

#[test]
fn pools_at_rest_are_ready_without_a_word_and_their_generation_is_done() {
    let world = converged();
    for pool in ["brokers", "controllers"] {
        let (ready, reason, _) = pool_conditions(&world, pool, "Ready").remove(0);
        assert_eq!((ready.as_str(), reason.as_str()), ("True", ""), "{pool}");
        assert_eq!(world.pools[pool].status.as_ref().unwrap().observed_generation, Some(1), "{pool}");
    }
}

#[test]
fn a_pool_is_not_called_done_before_what_it_asks_for_is_written() {
    let mut world = converged();
    edit_pool(&mut world, "brokers", |pool| {
        pool.spec.jvm_options = serde_json::from_value(serde_json::json!({"-Xmx": "300m"})).unwrap();
    });
    let plan = decide(&world);
    carry_out(&mut world, plan);
    assert_eq!(world.pools["brokers"].status.as_ref().unwrap().observed_generation, Some(1));
    converge(&mut world);
    assert_eq!(world.pools["brokers"].status.as_ref().unwrap().observed_generation, Some(2));
}

#[test]
fn a_partition_at_its_minimum_holds_exactly_the_brokers_that_it_needs() {
    let mut world = converged();
    change_setting(&mut world);
    for controller in ["3", "4", "5"] {
        world.pods.remove(&format!("my-cluster-controllers-{controller}"));
    }
    run_pods(&mut world, true);
    let at_minimum = [partition("orders", &[0, 1], &[0, 1], 1), partition("bills", &[0, 1, 2], &[0, 2], 2)];
    assert_eq!(next_pods(&world, &at_minimum), ["my-cluster-brokers-1"]);

    // With broker 1 done, the others are left, and the condition says what they wait for.
    world.pods.remove("my-cluster-brokers-1");
    run_pods(&mut world, true);
    world.answers.partitions = Answer::Known(Partitions { of: nodes(&[0, 2]), found: at_minimum.to_vec() });
    let plan = decide(&world);
    assert_eq!(plan.restarts, []);
    assert!(plan.look_again.unwrap() < Duration::from_secs(1));
    carry_out(&mut world, plan);
    let held: String =
        conditions(&world, "Warning").into_iter().map(|(_, _, message)| message + "\n").collect();
    for part in ["my-cluster-brokers-0", "broker 0", "my-cluster-brokers-2", "bills-0", "min.insync.replicas"]
    {
        assert!(held.contains(part), "{part} is not in {held}");
    }
    assert!(!held.contains("orders"), "{held}");
}

#[test]
fn partitions_that_cannot_be_protected_do_not_hold_anything_and_are_named() {
    let mut world = converged();
    change_setting(&mut world);
    for controller in ["3", "4", "5"] {
        world.pods.remove(&format!("my-cluster-controllers-{controller}"));
    }
    run_pods(&mut world, true);
    let restarts = next(&world, &[partition("single", &[0], &[0], 1)]);
    assert_eq!(restarts[0].pod, "my-cluster-brokers-0");
    assert_eq!(restarts[0].exposed.as_deref(), Some("single-0"));
}

#[test]
fn a_voter_does_not_restart_while_another_is_down() {
    let mut world = converged();
    change_setting(&mut world);
    world.pods.remove("my-cluster-controllers-4");
    run_pods(&mut world, true);
    // Controller 4 is back, and lags behind.
    let mut answer = healthy_quorum(&world);
    if let Answer::Known(quorum) = &mut answer {
        quorum.voters[1].behind = Some(Duration::from_secs(9));
    }
    world.answers.quorum = answer;
    let plan = decide(&world);
    assert_eq!(plan.restarts, []);
    carry_out(&mut world, plan);
    let held =
        conditions(&world, "Warning").into_iter().find(|(_, reason, _)| reason == "RestartHeld").unwrap();
    assert!(held.2.contains("these are not: 4") && held.2.contains("my-cluster-controllers-5"), "{}", held.2);
}

#[test]
fn nothing_that_serves_restarts_while_kafka_is_silent() {
    let mut world = converged();
    change_setting(&mut world);
    world.answers.quorum = Answer::Silent("no route to host".into());
    let plan = decide(&world);
    assert_eq!(plan.restarts, []);
    carry_out(&mut world, plan);
    let warnings = conditions(&world, "Warning");
    assert!(warnings.iter().any(|(_, _, message)| message.contains("no route to host")), "{warnings:?}");
}

#[test]
fn a_pod_that_does_not_come_back_stops_the_others_and_a_corrected_spec_replaces_it_at_once() {
    let mut world = converged();
    change_setting(&mut world);
    let first = next_pods(&world, &[]).remove(0);
    world.pods.remove(&first);
    run_pods(&mut world, true);
    edit_pod(&mut world, &first, |pod| {
        pod.ready = false;
        pod.stuck = Some("CrashLoopBackOff: log.retention.hours: no such luck".into());
    });
    let plan = decide(&world);
    assert_eq!(plan.restarts, []);
    carry_out(&mut world, plan);
    let (ready, _, message) = conditions(&world, "Ready").remove(0);
    assert_eq!(ready, "False");
    assert!(message.contains(&first) && message.contains("no such luck"), "{message}");
    assert!(conditions(&world, "Warning").iter().any(|(_, reason, _)| reason == "RollingUpdateStopped"));

    // Back to what was: the broken pod goes first, and nobody asks whether it may.
    edit_kafka(&mut world, |kafka| {
        kafka.spec.kafka.config.get_or_insert_default().remove("log.retention.hours");
    });
    let plan = decide(&world);
    carry_out(&mut world, plan);
    world.answers.quorum = Answer::Silent("no leader".into());
    let restarts: Vec<_> = decide(&world).restarts.into_iter().map(|restart| restart.pod).collect();
    assert_eq!(restarts, [first]);
}

#[test]
fn pods_that_run_but_are_of_no_use_are_restarted_in_the_end_though_kafka_is_silent() {
    let mut world = converged();
    change_setting(&mut world);
    let unready_for = |world: &mut World, seconds: i64| {
        let since = Timestamp::from_second(world.now.as_second() - seconds).unwrap();
        let names: Vec<_> = world.pods.keys().cloned().collect();
        for name in names {
            edit_pod(world, &name, |pod| (pod.ready, pod.since) = (false, Some(since)));
        }
    };
    world.answers.quorum = Answer::Silent("no leader".into());
    let no_recovery = (0..3).map(|id| (NodeId(id), Answer::Known(LauncherView::default())));
    world.answers.launchers = no_recovery.collect();
    unready_for(&mut world, 5);
    assert_eq!(decide(&world).restarts, []);
    unready_for(&mut world, 60);
    assert_eq!(decide(&world).restarts.len(), 1);
}

#[test]
fn brokers_that_share_no_partition_restart_together_when_the_user_allows_it() {
    let mut world = converged();
    change_setting(&mut world);
    for controller in ["3", "4", "5"] {
        world.pods.remove(&format!("my-cluster-controllers-{controller}"));
    }
    run_pods(&mut world, true);
    let shared = [partition("a", &[0, 1], &[0, 1], 1), partition("b", &[2], &[2], 1)];
    assert_eq!(next_pods(&world, &shared), ["my-cluster-brokers-0"]);
    edit_kafka(&mut world, |kafka| {
        let annotations = kafka.metadata.annotations.get_or_insert_default();
        annotations.insert("karst.io/broker-restarts-at-once".into(), "3".into());
    });
    assert_eq!(next_pods(&world, &shared), ["my-cluster-brokers-0", "my-cluster-brokers-2"]);
}

#[test]
fn a_restart_can_be_asked_for_by_an_annotation_of_a_pod_or_a_pod_set() {
    let mut world = converged();
    let key = "strimzi.io/manual-rolling-update";
    edit_pod(&mut world, "my-cluster-brokers-1", |pod| {
        pod.meta.annotations.insert(key.into(), "true".into());
    });
    let restarts = next(&world, &[]);
    assert_eq!(
        (restarts[0].pod.as_str(), restarts[0].causes.as_slice()),
        ("my-cluster-brokers-1", &[Cause::Asked][..])
    );
    converge(&mut world);
    assert!(is_quiet(&decide(&world)));

    let set = Arc::make_mut(world.pod_sets.get_mut("my-cluster-controllers").unwrap());
    set.meta.annotations.insert(key.into(), "true".into());
    let plan = decide(&world);
    assert_eq!(plan.marks[0].pods.len(), 3);
    carry_out(&mut world, plan);
    assert_eq!(roll(&mut world, &[]).len(), 3);
    assert!(is_quiet(&decide(&world)));
}

#[test]
fn no_disk_is_emptied_while_that_of_another_voter_is_on_its_way_out() {
    let mut world = converged();
    for pod in ["my-cluster-controllers-4", "my-cluster-controllers-5"] {
        edit_pod(&mut world, pod, |pod| {
            pod.meta.annotations.insert("strimzi.io/delete-pod-and-pvc".into(), "true".into());
        });
    }
    let leaves = |world: &World| {
        let mut world = world.clone();
        world.answers.quorum = healthy_quorum(&world);
        let plan = decide(&world);
        assert_eq!(plan.restarts, [], "its vote goes before its disk");
        plan.change().map(ToString::to_string).unwrap_or_default()
    };
    assert!(leaves(&world).starts_with("controller 4 "), "{}", leaves(&world));
    // As an operator leaves it that dies after it deleted the claim, and before it deletes the pod.
    let claim = world.claims.get_mut("data-0-my-cluster-controllers-5").unwrap();
    Arc::make_mut(claim).meta.deleting = true;
    assert!(leaves(&world).starts_with("controller 5 "), "{}", leaves(&world));
}

#[test]
fn a_pod_and_its_disks_go_together_only_if_nobody_needs_them() {
    let mut world = converged();
    edit_pod(&mut world, "my-cluster-brokers-1", |pod| {
        pod.meta.annotations.insert("strimzi.io/delete-pod-and-pvc".into(), "true".into());
    });
    assert_eq!(next(&world, &[partition("orders", &[0, 1], &[1], 1)]), []);
    assert_eq!(
        next(&world, &[partition("orders", &[0, 1, 2], &[0, 1], 1)]),
        [],
        "not all others are in sync"
    );
    let restarts = next(&world, &[partition("orders", &[0, 1], &[0, 1], 1)]);
    let claims: Vec<_> = restarts[0].claims.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(claims, ["data-0-my-cluster-brokers-1"]);
    converge_with(&mut world, &[partition("orders", &[0, 1], &[0, 1], 1)]);
    assert!(world.claims.contains_key("data-0-my-cluster-brokers-1"), "a new one takes its place");
}
