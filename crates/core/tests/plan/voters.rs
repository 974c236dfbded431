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
use karst_core::notice::Notice;
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

/// Nobody can tell whether it answers in time. A leader that hears from a voter that it has just removed dies.
#[test]
fn a_voter_that_is_to_go_and_lags_all_the_time_stays_and_is_named() {
    let mut world = converged();
    let kafka = Kafka::formed(&world);
    edit_pool(&mut world, "controllers", |pool| pool.spec.replicas = 2);
    let leaving = leaves(&decided(&world, &kafka, |_| {})).unwrap();
    let named = |world: &World, behind: Duration, leads_for: u64| {
        let plan = decided(world, &kafka, |quorum| {
            quorum.stable_for = Duration::from_secs(leads_for);
            away(quorum, leaving, Some(behind));
        });
        let said = plan.notices.iter().find(|notice| notice.to_string().contains("keep up with the leader"));
        (
            leaves(&plan),
            said.map(|said| (said.reason().as_str(), said.to_string().contains(&leaving.to_string()))),
        )
    };
    let said = Some(("QuorumChangeHeld", true));
    for behind in [Duration::from_millis(1_500), Duration::from_secs(5), Duration::from_secs(59)] {
        assert_eq!(named(&world, behind, 61), (None, said), "{behind:?}");
        assert_eq!(named(&world, behind, 20), (None, None), "the leader has just begun: {behind:?}");
    }
    assert_eq!(named(&world, Duration::from_millis(500), 61), (Some(leaving), None));
    assert_eq!(named(&world, Duration::from_secs(61), 61), (Some(leaving), None), "it is dead");
    let now = world.now;
    edit_pod(&mut world, &controller(leaving), |pod| pod.meta.created = Some(now));
    assert_eq!(named(&world, Duration::from_secs(5), 61), (None, None), "it has just started");
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
    world.memory.troubles = kafka
        .refused
        .iter()
        .map(|(deed, why)| karst_core::memory::Trouble {
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
    world.memory.troubles.clear();
    for _ in 0..12 {
        world.now += Duration::from_millis(300);
        let plan = decided(&world, &kafka, |_| {});
        let deed = plan.deeds.iter().find(|deed| matches!(deed, Deed::Change(_)));
        let Some(deed) = deed.cloned() else { continue };
        world.memory.kafka_refused(&deed, &"no", world.now);
    }
    assert_eq!(world.memory.troubles.len(), 2);
    assert!(world.memory.troubles.iter().all(|trouble| trouble.failures >= 2), "{:?}", world.memory.troubles);
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

/// It joined after all, and what Kafka said before is of the past. When it lacks its vote again, others wait for it.
#[test]
fn what_kafka_refused_a_while_ago_is_no_reason_not_to_wait_for_a_node() {
    let (mut world, kafka, _) = join_refused();
    edit_pod(&mut world, &controller(3), |pod| {
        pod.meta.annotations.insert(MANUAL_ROLL_ANNOTATION.into(), "true".into());
    });
    let mut kafka_of_five = kafka.clone();
    kafka_of_five.voters.push(Voter { node: NodeId(7), directory: kafka.voters[0].directory });
    kafka_of_five.disks.insert(NodeId(7), kafka.voters[0].directory);
    refuse(&mut world, &kafka, 9, Duration::ZERO);
    // It does not fetch, so it is not told to join.
    let restarts = |world: &World| -> Vec<String> {
        let plan =
            decided(world, &kafka_of_five, |quorum| quorum.observers.retain(|one| one.node != NodeId(6)));
        assert_eq!(plan.change(), None);
        plan.restarts.into_iter().map(|restart| restart.pod).collect()
    };
    assert_eq!(restarts(&world), [controller(3)]);
    world.now += Duration::from_secs(61);
    assert_eq!(restarts(&world), [""; 0]);
}

fn loses_disks(world: &mut World, node: i32) {
    edit_pod(world, &controller(node), |pod| {
        pod.meta.annotations.insert("strimzi.io/delete-pod-and-pvc".into(), "true".into());
    });
}

/// A controller whose disk goes with its pod leaves the quorum first. That must not wait for one that Kafka does not take.
#[test]
fn a_join_that_keeps_failing_freezes_no_controller_whose_disk_goes() {
    let (mut world, kafka, _) = join_refused();
    let mut other = kafka.clone();
    while other.voters.len() < 4 {
        assert!(step(&mut world, &mut other, &[]));
    }
    // The leader, too, though it leaves after all others.
    for node in [4, 3] {
        let mut world = world.clone();
        loses_disks(&mut world, node);
        for pause in [Duration::ZERO, Duration::from_secs(4)] {
            refuse(&mut world, &kafka, 9, pause);
            let plan = decided(&world, &other, |_| {});
            let change = plan.change().map(ToString::to_string).unwrap_or_default();
            assert!(
                change.contains(&format!("controller {node} ")) && change.contains("its disk goes"),
                "{change}"
            );
            assert_eq!(plan.restarts, [], "its vote goes before its disk");
        }
        // One that was refused only once is waited for.
        refuse(&mut world, &kafka, 1, Duration::ZERO);
        let plan = decided(&world, &other, |_| {});
        assert!(matches!(plan.change(), Some(Change::Join { .. })), "{:?}", plan.change());
    }
    // When Kafka does not let it go either, the two take turns.
    loses_disks(&mut world, 4);
    refuse(&mut world, &kafka, 9, Duration::ZERO);
    let leave = decided(&world, &other, |_| {}).change().cloned().unwrap();
    let why = "not now".to_owned();
    let (until, failures) = (world.now + Duration::from_secs(4), 1);
    world.memory.troubles.push(karst_core::memory::Trouble {
        deed: Deed::Change(leave),
        why,
        until,
        failures,
    });
    let plan = decided(&world, &other, |_| {});
    assert!(matches!(plan.change(), Some(Change::Join { .. })), "{:?}", plan.change());
}

/// Its restart may be what it needs, and nobody misses its vote.
#[test]
fn a_node_that_kafka_refuses_restarts_before_others_give_up_their_votes() {
    let (mut world, kafka, _) = join_refused();
    let mut other = kafka.clone();
    while other.voters.len() < 4 {
        assert!(step(&mut world, &mut other, &[]));
    }
    loses_disks(&mut world, 4);
    loses_disks(&mut world, 6);
    refuse(&mut world, &kafka, 9, Duration::from_secs(4));
    let plan = decided(&world, &other, |_| {});
    let restarts: Vec<_> = plan.restarts.iter().map(|restart| restart.pod.clone()).collect();
    assert_eq!((restarts, plan.change()), (vec![controller(6)], None));
}

/// Five are wanted, and three vote: one less is too few for as long as nobody knows whether more will join.
#[test]
fn a_vote_is_given_up_beside_a_refused_one_only_if_three_are_left_and_that_is_told() {
    let (mut world, mut kafka, join) = join_refused();
    let Change::Join { voter, host } = &join else { panic!("{join}") };
    let other = Voter { node: NodeId(7), ..*voter };
    let other = Change::Join { voter: other, host: host.replace("-6.", "-7.") };
    kafka.refused.push((Deed::Change(other), "no room"));
    loses_disks(&mut world, 4);
    refuse(&mut world, &kafka, 9, Duration::from_secs(4));
    let plan = decided(&world, &kafka, |_| {});
    assert_eq!(plan.restarts, []);
    assert!(!matches!(plan.change(), Some(Change::Leave { .. })), "{:?}", plan.change());
    let told = plan.notices.iter().find(|notice| notice.reason() == "RestartHeld").expect("a warning");
    for part in
        ["my-cluster-controllers-4", "refuses controllers 6, 7 a vote", "3 voters must be left", "3, 5"]
    {
        assert!(told.to_string().contains(part), "{part}: {told}");
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

/// How nodes are to format their disks, of those whose settings are to be written.
fn formats(plan: &Plan) -> Vec<(String, String)> {
    let maps = plan.objects.iter().filter_map(|object| match object {
        Object::ConfigMap(map) => Some((map.metadata.name.clone()?, map.data.clone()?)),
        _ => None,
    });
    maps.map(|(name, data)| (name, data["storage.format"].clone())).collect()
}

fn allow_loss(world: &mut World, nodes: &[i32]) {
    let pods: Vec<_> = nodes.iter().map(|node| controller(*node)).collect();
    edit_kafka(world, |kafka| {
        let annotations = kafka.metadata.annotations.get_or_insert_default();
        annotations.insert(ALLOW_LOSS_ANNOTATION.into(), pods.join(","));
    });
}

/// No controller of a static quorum of three serves.
fn static_quorum_without_leader() -> (World, Kafka) {
    let (mut world, mut kafka) = static_cluster();
    converge_kafka(&mut world, &mut kafka, &[]);
    for node in 3..=5 {
        set_ready(&mut world, &controller(node), false);
    }
    (world, kafka)
}

/// What is said of pods that were named and have to wait.
fn held_starts(plan: &Plan) -> Vec<String> {
    let said = plan.notices.iter().filter(|notice| matches!(notice, Notice::EmptyStartHeld { .. }));
    said.map(ToString::to_string).collect()
}

/// Two empty voters would elect each other, and the third one, which is only slow, would lose what it has.
#[test]
fn of_two_named_voters_of_a_static_quorum_one_starts_on_an_empty_disk_and_the_other_when_somebody_leads() {
    let (mut world, kafka) = static_quorum_without_leader();
    allow_loss(&mut world, &[4, 5]);
    let plan = decide(&world);
    assert_eq!(formats(&plan), [(controller(4), "static-anew".to_owned())]);
    let [held] = &held_starts(&plan)[..] else { panic!("{:?}", plan.notices) };
    assert!(
        held.contains(&format!("not followed for {} yet: {} may", controller(5), controller(4))),
        "{held}"
    );
    carry_out(&mut world, plan);
    assert_eq!(formats(&decide(&world)), [], "nor in the next pass");

    // Naming the other one instead does not take back what the first one may have done.
    allow_loss(&mut world, &[5]);
    let plan = decide(&world);
    assert_eq!(formats(&plan), [(controller(4), "static".to_owned())]);
    assert_eq!(held_starts(&plan).len(), 1);
    assert!(!plan.forgotten.contains(&ALLOW_LOSS_ANNOTATION));
    carry_out(&mut world, plan);
    assert_eq!(formats(&decide(&world)), []);

    world.answers.quorum = kafka.quorum(&converged());
    let plan = decide(&world);
    assert_eq!(held_starts(&plan), [""; 0]);
    let wanted = [(controller(4), "static".to_owned())];
    assert_eq!(
        formats(&plan),
        wanted,
        "who leads has what the first one has, and tells the other one itself"
    );
}

#[test]
fn a_person_who_names_every_voter_of_a_static_quorum_says_that_all_is_lost() {
    let (mut world, _) = static_quorum_without_leader();
    allow_loss(&mut world, &[3, 4, 5]);
    let plan = decide(&world);
    assert_eq!(formats(&plan), [3, 4, 5].map(|node| (controller(node), "static-anew".to_owned())));
    assert_eq!(held_starts(&plan), [""; 0]);
}

/// Otherwise both would be told to join, start on empty disks after a while, and elect each other.
#[test]
fn voters_of_a_static_quorum_whose_status_was_lost_are_not_told_to_join() {
    let (mut world, _) = static_quorum_without_leader();
    edit_kafka(&mut world, |kafka| kafka.status.as_mut().unwrap().quorum = None);
    let of_controllers = |plan: &Plan| -> Vec<_> {
        formats(plan).into_iter().filter(|(name, _)| name.contains("controllers")).collect()
    };
    let plan = decide(&world);
    assert!(of_controllers(&plan).iter().all(|(_, format)| format == "static"), "{:?}", formats(&plan));
    carry_out(&mut world, plan);
    let mut named = world.clone();
    allow_loss(&mut named, &[4]);
    let plan = decide(&named);
    assert_eq!(of_controllers(&plan), [(controller(4), "static-anew".to_owned())], "a person still decides");
    assert!(!plan.forgotten.contains(&ALLOW_LOSS_ANNOTATION));

    // What nodes were told is lost too.
    world.config_maps.retain(|name, _| !name.contains("controllers"));
    let plan = decide(&world);
    assert_eq!(of_controllers(&plan), [3, 4, 5].map(|node| (controller(node), "adopt".to_owned())));
}

/// Whoever may write pod sets would otherwise say who votes: all nodes would restart for it, and find no leader any more.
#[test]
fn a_pod_set_that_karst_did_not_describe_makes_nobody_a_voter() {
    let (world, kafka) = static_quorum_of_two_pools();
    let all = fixed_voters(&world, &kafka);
    let pods = &world.pod_sets["my-cluster-more"].pods;
    let planted = |names: [&str; 2]| {
        let mut set = (*world.pod_sets["my-cluster-more"]).clone();
        (set.meta.name, set.meta.uid) = ("my-cluster-x".into(), "uid-of-somebody".into());
        set.pods = names.iter().map(|name| ((*name).to_owned(), pods["my-cluster-more-6"].clone())).collect();
        (set.digest, set.status) = (None, None);
        set
    };
    // Three more voters, one in the place of a real one, and one in the place of one whose pool cannot be read.
    for (names, is_unread) in [
        (["my-cluster-x-8", "my-cluster-x-9"], false),
        (["my-cluster-x-3", "my-cluster-x-9"], false),
        (["my-cluster-x-6", "my-cluster-x-7"], true),
    ] {
        let mut world = world.clone();
        world.pod_sets.insert("my-cluster-x".into(), Arc::new(planted(names)));
        if is_unread {
            world.pools.remove("more");
        }
        assert_eq!(fixed_voters(&world, &kafka), all, "{names:?}");
        world.answers.quorum = kafka.quorum(&world);
        let plan = decide(&world);
        let objects: Vec<_> = plan.objects.iter().map(Object::describe).collect();
        assert_eq!((plan.restarts, objects), (vec![], vec![]), "{names:?}");
    }
}

/// Nor does it take a vote away: its pool is not there to be read, and somebody changes what its pod set asks for.
#[test]
fn a_pod_set_that_somebody_changed_takes_no_vote_away() {
    let (mut world, kafka) = static_quorum_of_two_pools();
    let all = fixed_voters(&world, &kafka);
    world.pools.remove("more");
    let set = Arc::make_mut(world.pod_sets.get_mut("my-cluster-more").unwrap());
    (set.generation, set.digest) = (2, None);
    for pod in set.pods.values_mut() {
        pod.json = pod
            .json
            .replace("strimzi.io/controller-role\":\"true", "strimzi.io/controller-role\":\"false")
            .into();
        assert!(pod.json.contains("controller-role\":\"false"), "{}", pod.json);
    }
    assert_eq!(fixed_voters(&world, &kafka), all);
    world.pods.remove("my-cluster-more-6");
    assert_eq!(fixed_voters(&world, &kafka), all, "it is away for a moment");
    // A pod that the pod set no longer lists runs on: nothing is done for such a pod set.
    let set = Arc::make_mut(world.pod_sets.get_mut("my-cluster-more").unwrap());
    let uid = set.meta.uid.clone();
    set.pods.remove("my-cluster-more-7");
    edit_pod(&mut world, "my-cluster-more-7", |pod| pod.meta.owners = vec![uid]);
    assert_eq!(fixed_voters(&world, &kafka), all);
}

/// Two of three have lost their disks. Their launchers wait, until a person lets one of them go on.
#[test]
fn a_person_lets_a_voter_of_a_static_quorum_start_on_an_empty_disk() {
    let (mut world, mut kafka) = static_cluster();
    converge_kafka(&mut world, &mut kafka, &[]);
    for node in 3..=5 {
        set_ready(&mut world, &controller(node), false);
    }
    assert_eq!(formats(&decide(&world)), [], "nothing changes by itself");
    edit_kafka(&mut world, |kafka| {
        let annotations = kafka.metadata.annotations.get_or_insert_default();
        annotations.insert(ALLOW_LOSS_ANNOTATION.into(), controller(4));
    });
    let plan = decide(&world);
    assert_eq!(formats(&plan), [(controller(4), "static-anew".to_owned())]);
    assert!(plan.objects.iter().all(|object| object.is_hard_to_undo(&world)));
    assert!(!plan.forgotten.contains(&ALLOW_LOSS_ANNOTATION), "it has not started yet");
    // While somebody leads its launcher can ask whether the others have what it lost.
    let mut led = world.clone();
    led.answers.quorum = kafka.quorum(&converged());
    assert!(led.answers.quorum.known().is_some());
    assert_eq!(formats(&decide(&led)), []);
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
