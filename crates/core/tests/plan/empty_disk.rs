//! What launchers are told of empty disks while a quorum is being formed.

use std::sync::Arc;
use std::time::Duration;

use karst_core::ids::NodeId;
use karst_core::objects::Object;
use karst_core::world::{Answer, Answers, LauncherView, World};

use crate::support::{
    carry_out, conditions, decide, edit_kafka, edit_pod, healthy_quorum, quickstart, run_pods,
};

const POD: &str = "my-cluster-controllers-3";
const CLAIM: &str = "data-0-my-cluster-controllers-3";

/// Everything of a new cluster is written, and its pods run; no controller is ready yet.
fn forming() -> World {
    let mut world = quickstart();
    act(&mut world);
    run_pods(&mut world, false);
    for claim in world.claims.values_mut() {
        Arc::make_mut(claim).bound = true;
    }
    world
}

fn act(world: &mut World) {
    for _ in 0..20 {
        let plan = decide(world);
        let is_done = plan.facts.is_empty() && plan.objects.is_empty();
        carry_out(world, plan);
        if is_done {
            return;
        }
    }
    panic!("it never comes to rest");
}

/// What the settings of a node say of its disk.
fn told(world: &World, pod: &str) -> Option<String> {
    let mut world = world.clone();
    Arc::make_mut(world.config_maps.get_mut(pod)?).digest = None;
    let maps = decide(&world).objects.into_iter().find_map(|object| match object {
        Object::ConfigMap(map) if map.metadata.name.as_deref() == Some(pod) => Some(map),
        _ => None,
    });
    maps?.data?.get("empty.disk").cloned()
}

fn is_told(world: &World) -> String {
    told(world, POD).unwrap_or_default()
}

/// The node's claim and its pod are gone, and made anew.
fn replace_disk(world: &mut World) {
    world.claims.remove(CLAIM);
    world.pods.remove(POD);
    act(world);
    run_pods(world, false);
    Arc::make_mut(world.claims.get_mut(CLAIM).unwrap()).bound = true;
    act(world);
}

fn allow(world: &mut World, pods: &str) {
    edit_kafka(world, |kafka| {
        let annotations = kafka.metadata.annotations.get_or_insert_default();
        annotations.insert("karst.io/vote-on-empty-disk".into(), pods.into());
    });
}

#[test]
fn the_first_disk_of_a_first_voter_is_new_until_its_node_runs_on_another_one() {
    let mut world = quickstart();
    act(&mut world);
    assert_eq!(is_told(&world), "new", "before anything runs");
    let mut world = forming();
    act(&mut world);
    assert_eq!(is_told(&world), "new");
    let first = world.claims[CLAIM].meta.uid.clone();
    assert_eq!(world.config_maps[POD].meta.annotations["karst.io/first-claim"], first);
    replace_disk(&mut world);
    assert_ne!(world.claims[CLAIM].meta.uid, first);
    assert_eq!(is_told(&world), "replaced");
    assert_eq!(told(&world, "my-cluster-controllers-4").as_deref(), Some("new"), "the others keep theirs");
    assert_eq!(told(&world, "my-cluster-brokers-0"), None, "a broker forms nothing");
}

#[test]
fn a_claim_that_no_container_ran_on_may_be_replaced() {
    let mut world = forming();
    edit_pod(&mut world, POD, |pod| pod.phase = "Pending".into());
    act(&mut world);
    world.claims.remove(CLAIM);
    world.pods.remove(POD);
    act(&mut world);
    assert_eq!(is_told(&world), "new");
}

#[test]
fn once_a_quorum_was_seen_a_first_disk_is_a_late_one_and_a_node_in_it_joins() {
    let mut world = forming();
    act(&mut world);
    for pod in ["my-cluster-controllers-4", "my-cluster-controllers-5"] {
        edit_pod(&mut world, pod, |pod| pod.ready = true);
    }
    world.answers.quorum = healthy_quorum(&world);
    let Answer::Known(quorum) = &mut world.answers.quorum else { panic!("it is silent") };
    quorum.voters.iter_mut().find(|voter| voter.node == NodeId(3)).unwrap().takes_part = false;
    assert_eq!(is_told(&world), "late");
    assert_eq!(told(&world, "my-cluster-controllers-4"), None, "it joins from now on");
    let plan = decide(&world);
    carry_out(&mut world, plan);
    world.answers = Answers::default();
    run_pods(&mut world, false);
    assert_eq!(is_told(&world), "late", "what was seen is remembered");
    assert!(
        !world.config_maps["my-cluster-controllers-4"].meta.annotations.contains_key("karst.io/first-claim")
    );
}

#[test]
fn a_person_lets_a_node_vote_and_the_word_goes_when_somebody_leads() {
    let mut world = forming();
    act(&mut world);
    replace_disk(&mut world);
    allow(&mut world, &format!("somebody-else {POD}"));
    assert_eq!(is_told(&world), "allowed");
    assert_eq!(told(&world, "my-cluster-controllers-4").as_deref(), Some("new"));
    assert!(!decide(&world).forgotten.contains(&"karst.io/vote-on-empty-disk"));
    run_pods(&mut world, true);
    world.answers.quorum = healthy_quorum(&world);
    assert!(decide(&world).forgotten.contains(&"karst.io/vote-on-empty-disk"));
}

const OTHER_POD: &str = "my-cluster-controllers-4";

/// Two of three controllers have lost their disks, and a person names both.
#[test]
fn of_two_named_nodes_one_votes_on_an_empty_disk_unless_all_are_named() {
    let mut world = forming();
    act(&mut world);
    replace_disk(&mut world);
    allow(&mut world, &format!("{POD}, {OTHER_POD}"));
    assert_eq!(is_told(&world), "allowed");
    assert_eq!(told(&world, OTHER_POD).as_deref(), Some("new"));
    let said = |world: &World| {
        let notices = decide(world).notices;
        notices
            .iter()
            .map(ToString::to_string)
            .find(|said| said.contains("not followed for"))
            .unwrap_or_default()
    };
    assert!(
        said(&world).contains(&format!("not followed for {OTHER_POD} yet: {POD} may")),
        "{}",
        said(&world)
    );
    act(&mut world);
    allow(&mut world, OTHER_POD);
    assert_eq!(told(&world, OTHER_POD).as_deref(), Some("new"), "the first one may be running");
    act(&mut world);
    assert_eq!(is_told(&world), "replaced");
    assert_eq!(told(&world, OTHER_POD).as_deref(), Some("new"), "and still may");
    allow(&mut world, &format!("{POD} {OTHER_POD} my-cluster-controllers-5"));
    assert_eq!(is_told(&world), "allowed");
    assert_eq!(told(&world, OTHER_POD).as_deref(), Some("allowed"));
    assert_eq!(said(&world), "");
}

#[test]
fn that_a_node_may_vote_on_an_empty_disk_or_no_longer_is_hard_to_undo() {
    let mut world = forming();
    act(&mut world);
    let hard = |world: &World| {
        let objects = decide(world).objects.into_iter().filter(|object| object.is_hard_to_undo(world));
        objects.map(|object| object.describe()).collect::<Vec<_>>()
    };
    assert_eq!(hard(&world), [""; 0]);
    allow(&mut world, POD);
    assert_eq!(hard(&world), [format!("ConfigMap {POD}")]);
    act(&mut world);
    allow(&mut world, "");
    assert_eq!(hard(&world), [format!("ConfigMap {POD}")]);
}

#[test]
fn that_a_controller_waits_with_an_empty_disk_is_told() {
    let mut world = forming();
    act(&mut world);
    let since = world.now;
    edit_pod(&mut world, POD, |pod| pod.since = Some(since));
    world.now += Duration::from_secs(19);
    let plan = decide(&world);
    assert!(plan.questions.launchers.is_empty(), "it takes a while to form a quorum");
    assert!(plan.look_again.is_some_and(|after| after <= Duration::from_secs(5)), "{:?}", plan.look_again);
    world.now += Duration::from_secs(1);
    let asked = karst_core::plan::plan(&world).unwrap().questions.launchers;
    assert_eq!(asked.keys().copied().collect::<Vec<_>>(), [NodeId(3)]);
    for (said, is_told) in [(true, true), (false, false)] {
        let view = LauncherView { awaits_leader: said, ..LauncherView::default() };
        world.answers.launchers.insert(NodeId(3), Answer::Known(view));
        let plan = decide(&world);
        let mut world = world.clone();
        carry_out(&mut world, plan);
        let warnings = conditions(&world, "Warning");
        let held = warnings.iter().find(|(_, reason, _)| reason == "EmptyDiskHeld");
        assert_eq!(held.is_some(), is_told, "{warnings:?}");
        assert!(held.is_none_or(|(_, _, message)| {
            message.contains(&format!("karst.io/vote-on-empty-disk: {POD}"))
        }));
    }
}
