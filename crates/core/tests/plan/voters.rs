//! Voters that must not be missed: what is away for a moment, what is away for good, and what Kafka refuses.

use std::sync::Arc;
use std::time::Duration;

use crate::quorum::{pool, setting, static_cluster};
use crate::support::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use karst_api as api;
use karst_core::ids::{Entropy, NodeId};
use karst_core::membership::{Change, Leaving, Voter};
use karst_core::names::{ALLOW_LOSS_ANNOTATION, MANUAL_ROLL_ANNOTATION, node_of_pod};
use karst_core::objects::Object;
use karst_core::plan::{self, Deed, Plan};
use karst_core::world::{Answer, QuorumView, World};

const MOMENT: Option<Duration> = Some(Duration::from_secs(5));
const LONG: Option<Duration> = Some(Duration::from_secs(61));

fn delete_pool(world: &mut World, name: &str) {
    edit_pool(world, name, |pool| {
        pool.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
    });
}

fn set_ready(world: &mut World, pod: &str, ready: bool) {
    edit_pod(world, pod, |pod| pod.ready = ready);
}

fn controller(node: i32) -> String {
    format!("my-cluster-controllers-{node}")
}

/// One pool of controllers is to replace another, and no pod of it has started.
fn replaced_by_pending_pods() -> (World, Kafka) {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    world.pools.insert("fresh".into(), Arc::new(pool("fresh", 3, "controller")));
    delete_pool(&mut world, "controllers");
    while !world.pods.contains_key("my-cluster-fresh-8") {
        assert!(step(&mut world, &mut kafka, &[]));
    }
    for node in 6..=8 {
        edit_pod(&mut world, &format!("my-cluster-fresh-{node}"), |pod| {
            (pod.ready, pod.phase) = (false, "Pending".into());
        });
    }
    assert_eq!(kafka.voters.len(), 3);
    (world, kafka)
}

/// What is decided when the leader says this.
fn decided(world: &World, kafka: &Kafka, said: impl FnOnce(&mut QuorumView)) -> Plan {
    let mut world = world.clone();
    world.answers.quorum = kafka.quorum(&world);
    let Answer::Known(quorum) = &mut world.answers.quorum else { panic!("nobody leads") };
    said(quorum);
    decide(&world)
}

fn away(quorum: &mut QuorumView, node: i32, behind: Option<Duration>) {
    let voters = quorum.voters.iter_mut().filter(|voter| voter.node == NodeId(node));
    voters.for_each(|voter| voter.behind = behind);
}

fn leaves(plan: &Plan) -> Option<i32> {
    match plan.change() {
        Some(Change::Leave { voter, why: Leaving::NotWanted }) => Some(voter.node.0),
        Some(other) => panic!("{other}"),
        None => None,
    }
}

/// Two containers that restart one after the other made a quorum of one.
#[test]
fn voters_that_are_to_go_and_are_away_for_a_while_stay_until_their_successors_are_there() {
    let (mut world, kafka) = replaced_by_pending_pods();
    for behind in [MOMENT, LONG, Some(Duration::from_secs(3_600)), None] {
        let plan = decided(&world, &kafka, |quorum| away(quorum, 3, behind));
        assert_eq!(leaves(&plan), None, "node 3 is behind {behind:?}");
        assert!(plan.look_again.unwrap() < Duration::from_secs(1), "it is looked at again soon");
    }
    set_ready(&mut world, &controller(4), false);
    assert_eq!(leaves(&decided(&world, &kafka, |quorum| away(quorum, 4, MOMENT))), None);
}

#[test]
fn a_voter_that_cannot_come_back_goes_though_only_two_are_left() {
    let (mut world, kafka) = replaced_by_pending_pods();
    let plan = |world: &World, behind| {
        let mut world = world.clone();
        let healthy = kafka.quorum(&converged());
        world.answers.quorum = healthy;
        let Answer::Known(quorum) = &mut world.answers.quorum else { panic!("nobody leads") };
        quorum.leader = NodeId(4);
        away(quorum, 3, behind);
        leaves(&decide(&world))
    };
    assert_eq!(plan(&world, LONG), None, "its pod and its disk are there");
    world.pods.remove(&controller(3));
    assert_eq!(plan(&world, LONG), None, "its disk is there");
    world.claims.retain(|name, _| node_of_pod(name) != Some(NodeId(3)));
    assert_eq!(plan(&world, MOMENT), None, "it may only not have been seen yet");
    assert_eq!(plan(&world, LONG), Some(3));
}

/// It counts against the majority: of four, three must be up, and one of them is not.
#[test]
fn a_dead_voter_goes_first_only_if_three_healthy_ones_are_left() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    world.pools.insert("fresh".into(), Arc::new(pool("fresh", 3, "controller")));
    delete_pool(&mut world, "controllers");
    while kafka.voters.len() < 4 {
        assert!(step(&mut world, &mut kafka, &[]));
    }
    for (behind, goes) in [(MOMENT, None), (LONG, Some(3))] {
        set_ready(&mut world, &controller(3), false);
        let mut world = world.clone();
        world.answers.quorum = kafka.quorum(&world);
        let Answer::Known(quorum) = &mut world.answers.quorum else { panic!("nobody leads") };
        quorum.observers.clear();
        away(quorum, 3, behind);
        // Nobody can join at the moment. The one that is away for a moment is as good as the others, of which three must stay.
        for node in 7..=8 {
            set_ready(&mut world, &format!("my-cluster-fresh-{node}"), false);
        }
        let plan = decide(&world);
        match goes {
            Some(node) => assert_eq!(leaves(&plan), Some(node)),
            None => assert!(leaves(&plan).is_none_or(|node| node == 3), "{:?}", plan.change()),
        }
        set_ready(&mut world, &controller(4), false);
        away_known(&mut world, 4);
        assert_eq!(leaves(&decide(&world)), None, "only two are healthy then");
    }
}

fn away_known(world: &mut World, node: i32) {
    let Answer::Known(quorum) = &mut world.answers.quorum else { panic!("nobody leads") };
    away(quorum, node, MOMENT);
}

/// The last pool of controllers goes, and the only other one was never valid: three voters must not become one.
#[test]
fn nobody_leaves_for_a_pool_that_never_was_valid() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    world.pools.insert("fresh".into(), Arc::new(pool("fresh", -1, "controller")));
    delete_pool(&mut world, "controllers");
    for _ in 0..60 {
        step(&mut world, &mut kafka, &[]);
        assert_eq!(kafka.voters.len(), 3, "{:?}", kafka.voters);
    }
}

/// They go on voting, so three stay though only one of the others is wanted.
#[test]
fn voters_of_a_pool_that_cannot_be_read_count_among_those_that_stay() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    world.pools.insert("more".into(), Arc::new(pool("more", 2, "controller")));
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(kafka.voters.len(), 5);
    edit_pool(&mut world, "more", |pool| pool.spec.replicas = -1);
    edit_pool(&mut world, "controllers", |pool| pool.spec.replicas = 1);
    while kafka.voters.len() > 4 {
        assert!(step(&mut world, &mut kafka, &[]));
    }
    assert!(leaves(&decided(&world, &kafka, |_| {})).is_some(), "all four are well");
    set_ready(&mut world, "my-cluster-more-7", false);
    let plan = decided(&world, &kafka, |quorum| away(quorum, 7, MOMENT));
    assert_eq!(leaves(&plan), None, "only two healthy ones would be left");
}

/// Five are wanted, and Kafka does not take 6.
fn join_refused() -> (World, Kafka, Change) {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    edit_pool(&mut world, "controllers", |pool| pool.spec.replicas = 5);
    let join = loop {
        let change = decided(&world, &kafka, |_| {}).change().cloned();
        if let Some(change) = change {
            break change;
        }
        assert!(step(&mut world, &mut kafka, &[]));
    };
    assert!(matches!(&join, Change::Join { voter, .. } if voter.node == NodeId(6)), "{join}");
    kafka.refused.push((Deed::Change(join.clone()), "NOT_CONTROLLER: it does not answer"));
    (world, kafka, join)
}

/// Kafka refused it so often, the last time so long ago.
fn refuse(world: &mut World, kafka: &Kafka, times: u32, pause: Duration) {
    world.troubles = kafka
        .refused
        .iter()
        .map(|(deed, why)| karst_core::world::Trouble {
            deed: deed.clone(),
            why: (*why).to_owned(),
            until: world.now + pause,
            failures: times,
        })
        .collect();
}

#[test]
fn a_node_that_kafka_refuses_lets_the_next_one_join_and_is_named() {
    let (mut world, mut kafka, join) = join_refused();
    refuse(&mut world, &kafka, 1, Duration::from_secs(2));
    let plan = decided(&world, &kafka, |_| {});
    assert!(matches!(plan.change(), Some(Change::Join { voter, .. }) if voter.node == NodeId(7)));
    let said: Vec<_> = plan.notices.iter().map(ToString::to_string).collect();
    assert!(
        said.iter().any(|said| said.contains("controller 6") && said.contains("does not answer")),
        "{said:?}"
    );
    // When both were refused, both wait, and both are named.
    let other = plan.change().unwrap().clone();
    kafka.refused.push((Deed::Change(other), "no room"));
    refuse(&mut world, &kafka, 1, Duration::from_secs(2));
    let plan = decided(&world, &kafka, |_| {});
    assert_eq!(plan.change(), None);
    let refused = plan.notices.iter().filter(|notice| notice.reason() == "QuorumChangeFailed");
    assert_eq!(refused.count(), 2);
    // Each remembers how often it was refused, though they take turns.
    world.troubles.clear();
    for _ in 0..12 {
        world.now += Duration::from_millis(100);
        let plan = decided(&world, &kafka, |_| {});
        let deed = plan.deeds.iter().find(|deed| matches!(deed, Deed::Change(_)));
        let Some(deed) = deed.cloned() else { continue };
        let before = world.troubles.iter().position(|trouble| trouble.deed == deed);
        let failures = before.map_or(0, |at| world.troubles.swap_remove(at).failures);
        world.troubles.retain(|trouble| !trouble.is_replaced_by(&deed, world.now));
        let until = world.now + Duration::from_millis(100 + 100 * u64::from(failures));
        let why = "no".to_owned();
        world.troubles.push(karst_core::world::Trouble { deed, why, until, failures: failures + 1 });
    }
    assert_eq!(world.troubles.len(), 2);
    assert!(world.troubles.iter().all(|trouble| trouble.failures >= 2), "{:?}", world.troubles);
    kafka.refused.retain(|(deed, _)| *deed == Deed::Change(join.clone()));
}

/// What keeps it out may be cured by a restart: its own, or that of another controller.
#[test]
fn a_join_that_keeps_failing_freezes_no_restart() {
    let (mut world, kafka, _) = join_refused();
    let mut other = kafka.clone();
    // The other new one has joined.
    while other.voters.len() < 4 {
        assert!(step(&mut world, &mut other, &[]));
    }
    for pod in [6, 3].map(controller) {
        let mut world = world.clone();
        edit_pod(&mut world, &pod, |pod| {
            pod.meta.annotations.insert(MANUAL_ROLL_ANNOTATION.into(), "true".into());
        });
        let restarts = |world: &World| -> Vec<String> {
            let plan = decided(world, &other, |_| {});
            plan.restarts.into_iter().map(|restart| restart.pod).collect()
        };
        refuse(&mut world, &kafka, 9, Duration::ZERO);
        assert_eq!(restarts(&world), [""; 0], "it is tried again just now");
        refuse(&mut world, &kafka, 9, Duration::from_secs(4));
        assert_eq!(restarts(&world), std::slice::from_ref(&pod));
        // It may have happened all the same.
        let plan = decided(&world, &other, |quorum| quorum.is_committed = false);
        assert_eq!(plan.restarts.len(), 0);
        // A controller that has just started is often refused once: others wait for it.
        refuse(&mut world, &kafka, 1, Duration::from_secs(4));
        assert_eq!(restarts(&world).is_empty(), pod == controller(3), "{pod}");
    }
}

/// Between the leader's answer and the call the leader may have lost somebody.
#[test]
fn a_change_is_made_only_if_it_is_decided_on_what_the_leader_says_right_before() {
    let mut world = converged();
    let kafka = Kafka::formed(&world);
    edit_pool(&mut world, "controllers", |pool| pool.spec.replicas = 2);
    world.answers.quorum = kafka.quorum(&world);
    world.answers.registered = kafka.clone().registered(&world);
    let change = decide(&world).change().cloned().unwrap();
    let Answer::Known(seen) = kafka.quorum(&world) else { panic!("nobody leads") };
    let holds = |said: Answer<QuorumView>| plan::still_changes(&world, &change, said).unwrap();
    assert!(holds(Answer::Known(seen.clone())));
    let mut lost = seen.clone();
    away(&mut lost, 4, MOMENT);
    assert!(!holds(Answer::Known(lost)), "only one of the other two is healthy");
    let mut done = seen;
    done.voters.retain(|voter| Some(voter.node) != change.node());
    assert!(!holds(Answer::Known(done)), "somebody else has done it");
    assert!(!holds(Answer::Silent("nobody leads".into())));
}

/// A static quorum of five, with its controllers in two pools.
fn static_quorum_of_two_pools() -> (World, Kafka) {
    let (mut world, mut kafka) = static_cluster();
    let mut more = pool("more", 2, "controller");
    more.status = Some(api::KafkaNodePoolStatus {
        node_ids: Some(vec![6, 7]),
        cluster_id: world.kafka.status.as_ref().and_then(|status| status.cluster_id.clone()),
        ..api::KafkaNodePoolStatus::default()
    });
    world.pools.insert("more".into(), Arc::new(more));
    for node in [6, 7].map(NodeId) {
        kafka.voters.push(Voter { node, directory: Entropy([1; 32]).directory_id(node) });
    }
    converge_kafka(&mut world, &mut kafka, &[]);
    (world, kafka)
}

fn fixed_voters(world: &World, kafka: &Kafka) -> String {
    setting(world, kafka, "my-cluster-controllers-3", "controller.quorum.voters").unwrap()
}

/// A list without some of the voters is another quorum. All nodes would restart for it, one after the other.
#[test]
fn a_static_quorum_keeps_the_voters_of_a_pool_that_cannot_be_read() {
    let (world, kafka) = static_quorum_of_two_pools();
    let all = fixed_voters(&world, &kafka);
    assert!(all.contains("3@my-cluster-controllers-3") && all.contains("7@my-cluster-more-7"), "{all}");
    type Mistake = fn(&mut World);
    let mistakes: [(&str, Mistake); 3] = [
        ("not valid", |world| edit_pool(world, "more", |pool| pool.spec.replicas = -1)),
        ("without roles", |world| edit_pool(world, "more", |pool| pool.spec.roles.clear())),
        ("gone, or without its label", |world| drop(world.pools.remove("more"))),
    ];
    for (mistake, make) in mistakes {
        for is_restarting in [false, true] {
            let mut world = world.clone();
            make(&mut world);
            if is_restarting && world.pools.contains_key("more") {
                edit_pool(&mut world, "more", |pool| pool.status.as_mut().unwrap().roles = None);
            }
            if is_restarting {
                world.pods.remove("my-cluster-more-6");
            }
            assert_eq!(fixed_voters(&world, &kafka), all, "{mistake}, and restarting: {is_restarting}");
            world.answers.quorum = kafka.quorum(&world);
            let plan = decide(&world);
            assert_eq!((plan.restarts, plan.objects.len()), (vec![], 0), "{mistake}: {is_restarting}");
        }
    }
}

/// Two of three have lost their disks. Their launchers wait, until a person lets one of them go on.
#[test]
fn a_person_lets_a_voter_of_a_static_quorum_start_on_an_empty_disk() {
    let (mut world, mut kafka) = static_cluster();
    converge_kafka(&mut world, &mut kafka, &[]);
    for node in 3..=5 {
        set_ready(&mut world, &controller(node), false);
    }
    let formats = |plan: &Plan| {
        let maps = plan.objects.iter().filter_map(|object| match object {
            Object::ConfigMap(map) => Some((map.metadata.name.clone()?, map.data.clone()?)),
            _ => None,
        });
        maps.map(|(name, data)| (name, data["storage.format"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(formats(&decide(&world)), [], "nothing changes by itself");
    edit_kafka(&mut world, |kafka| {
        let annotations = kafka.metadata.annotations.get_or_insert_default();
        annotations.insert(ALLOW_LOSS_ANNOTATION.into(), controller(4));
    });
    let plan = decide(&world);
    assert_eq!(formats(&plan), [(controller(4), "static-anew".to_owned())]);
    assert!(plan.objects.iter().all(|object| object.is_hard_to_undo(&world)));
    assert!(!plan.forgotten.contains(&ALLOW_LOSS_ANNOTATION), "it has not started yet");
    carry_out(&mut world, plan);
    set_ready(&mut world, &controller(4), true);
    world.answers.quorum = kafka.quorum(&converged());
    let plan = decide(&world);
    assert_eq!(formats(&plan), [(controller(4), "static".to_owned())]);
    assert!(plan.restarts.is_empty());
    carry_out(&mut world, plan);
    set_ready(&mut world, &controller(4), true);
    world.answers.quorum = kafka.quorum(&converged());
    let plan = decide(&world);
    assert!(
        plan.restarts.is_empty() && plan.forgotten.contains(&ALLOW_LOSS_ANNOTATION),
        "{:?}",
        plan.objects
    );
}
