//! What nobody gets by writing a resource: pods that Karst did not describe, and pods that reach out of themselves.

use std::sync::Arc;

use karst_core::names::PAUSE_ANNOTATION;
use karst_core::objects::pod_set_digest;
use karst_core::plan::Plan;
use karst_core::podset;
use karst_core::world::{PodSetView, Settings, WantedPod, World};
use serde_json::{Value, json};

use crate::support::*;

const BROKERS: &str = "my-cluster-brokers";

/// What nobody may have made: it reads whatever the machine has.
fn evil() -> (String, WantedPod) {
    let json = json!({"metadata": {"name": "my-cluster-brokers-66"}, "spec": {"hostPID": true}});
    (
        "my-cluster-brokers-66".to_owned(),
        WantedPod { json: Arc::from(json.to_string()), revision: Some("x".to_owned()) },
    )
}

/// The operator has seen what it made, and said so.
fn report(world: &mut World) {
    let sets: Vec<_> = world.pod_sets.keys().cloned().collect();
    for name in sets {
        let pods: Vec<_> = world.pods.values().cloned().collect();
        let rendered = world.memory.rendered.get(&name).copied();
        let set = Arc::make_mut(world.pod_sets.get_mut(&name).unwrap());
        set.status = Some(podset::plan(set, &pods, &[], rendered.as_ref()).status);
    }
}

/// Somebody adds a pod to a pod set, as the API server would store that.
fn add(set: &mut PodSetView, (name, pod): (String, WantedPod)) {
    let selector = serde_json::from_value(json!({})).unwrap();
    let pods = vec![serde_json::from_str::<Value>(&pod.json).unwrap()];
    set.digest = pod_set_digest(&karst_api::StrimziPodSetSpec { selector, pods }).ok();
    set.generation += 1;
    set.pods.insert(name, pod);
}

fn warned(world: &World) -> Vec<String> {
    let warnings = conditions(world, "Warning").into_iter();
    warnings.filter(|(_, reason, _)| reason == "PodSetNotRendered").map(|(_, _, message)| message).collect()
}

/// The pods that the pod-set work would make now.
fn made(world: &World, set: &str) -> usize {
    let pods: Vec<_> = world.pods.values().cloned().collect();
    let plan = podset::plan(&world.pod_sets[set], &pods, &[], world.memory.rendered.get(set));
    plan.actions.iter().filter(|action| action.is_creation()).count()
}

fn restart_operator(world: &mut World) {
    world.memory.rendered.clear();
}

fn carry(world: &mut World) -> Plan {
    let plan = decide(world);
    carry_out(world, decide(world));
    plan
}

#[test]
fn a_pod_that_somebody_put_into_a_pod_set_is_not_made_and_taken_out_again() {
    let mut world = converged();
    report(&mut world);
    add(Arc::make_mut(world.pod_sets.get_mut(BROKERS).unwrap()), evil());
    assert_eq!(made(&world, BROKERS), 0);
    carry(&mut world);
    assert_eq!(world.pod_sets[BROKERS].pods.len(), 3);
    assert_eq!(warned(&world), [""; 0], "it is as it should be again");
}

#[test]
fn a_pod_set_of_somebody_else_makes_no_pod_and_is_named() {
    let mut world = converged();
    report(&mut world);
    let mut set = (*world.pod_sets[BROKERS]).clone();
    (set.meta.name, set.meta.uid, set.status, set.generation) =
        ("my-cluster-evil".into(), "uid-evil".into(), None, 0);
    set.pods.clear();
    add(&mut set, evil());
    world.pod_sets.insert("my-cluster-evil".into(), Arc::new(set));
    carry(&mut world);
    assert_eq!(made(&world, "my-cluster-evil"), 0);
    let warned = warned(&world);
    assert_eq!(warned.len(), 1);
    assert!(
        warned[0].contains("'my-cluster-evil'") && warned[0].contains("my-cluster-brokers-66"),
        "{warned:?}"
    );
}

#[test]
fn a_lost_pod_comes_back_while_its_cluster_is_paused_though_the_operator_is_new() {
    let mut world = converged();
    report(&mut world);
    let pause = |world: &mut World| {
        edit_kafka(world, |kafka| {
            kafka.metadata.annotations.get_or_insert_default().insert(PAUSE_ANNOTATION.into(), "true".into());
        });
    };
    pause(&mut world);
    restart_operator(&mut world);
    world.pods.remove("my-cluster-brokers-1");
    carry(&mut world);
    assert_eq!(warned(&world), [""; 0]);
    assert_eq!(made(&world, BROKERS), 1);

    add(Arc::make_mut(world.pod_sets.get_mut(BROKERS).unwrap()), evil());
    carry(&mut world);
    assert_eq!(made(&world, BROKERS), 0);
    let warned = warned(&world);
    assert_eq!(warned.len(), 1);
    assert!(warned[0].contains("(missing: my-cluster-brokers-1, my-cluster-brokers-66)"), "{warned:?}");
}

#[test]
fn the_pods_of_a_pool_that_vanished_are_kept() {
    let mut world = converged();
    report(&mut world);
    restart_operator(&mut world);
    world.pools.remove("brokers");
    world.pods.remove("my-cluster-brokers-1");
    carry(&mut world);
    assert_eq!((made(&world, BROKERS), warned(&world).len()), (1, 0));
}

#[test]
fn what_was_rendered_is_remembered_for_as_long_as_its_pod_set_is_there() {
    let mut world = converged();
    let mut rendered = world.memory.rendered.clone();
    let brokers = rendered.remove(BROKERS);
    assert_eq!(podset::remembered(&world, &rendered).get(BROKERS), brokers.as_ref(), "its pool vanished");
    world.pod_sets.remove(BROKERS);
    assert_eq!(podset::remembered(&world, &rendered), rendered);
}

#[test]
fn a_new_pod_set_is_looked_at_again_as_soon_as_it_is_known_to_be_rendered() {
    let mut world = converged();
    restart_operator(&mut world);
    let rendered = decide(&world).rendered.unwrap();
    let admitted: Vec<_> = podset::admitted(&world, &rendered).collect();
    assert_eq!(admitted, [BROKERS, "my-cluster-controllers"], "nobody has said yet that they are rendered");
    world.memory.rendered = podset::remembered(&world, &rendered);
    assert_eq!(podset::admitted(&world, &rendered).count(), 0);
}

fn allow(world: &mut World) {
    let settings = Settings { privileged_templates: true, ..(*world.settings).clone() };
    world.settings = Arc::new(settings);
}

fn privileged_broker(world: &mut World) {
    edit_pool(world, "brokers", |pool| {
        let template = json!({"kafkaContainer": {"securityContext": {"privileged": true}}});
        pool.spec.template = Some(Box::new(serde_json::from_value(template).unwrap()));
    });
}

#[test]
fn a_privileged_pod_of_a_pool_is_refused_and_what_runs_is_held() {
    let mut world = converged();
    let before = world.pod_sets.clone();
    privileged_broker(&mut world);
    carry(&mut world);
    assert_eq!(world.pod_sets, before);
    let message = &pool_conditions(&world, "brokers", "Ready")[0].2;
    assert!(
        message.starts_with("spec.template.kafkaContainer.securityContext.privileged is true"),
        "{message}"
    );
    assert!(message.contains("allowPrivilegedTemplates"), "{message}");
}

#[test]
fn whoever_runs_the_operator_may_allow_it() {
    let mut world = converged();
    allow(&mut world);
    privileged_broker(&mut world);
    carry(&mut world);
    let pods = world.pod_sets[BROKERS].pods.values();
    assert!(pods.into_iter().all(|pod| pod.json.contains(r#""privileged":true"#)));
}

#[test]
fn a_privileged_pod_of_the_cluster_is_refused() {
    let mut world = converged();
    edit_kafka(&mut world, |kafka| {
        let template = json!({"pod": {"securityContext": {"runAsUser": 0}}});
        kafka.spec.kafka.template = Some(Box::new(serde_json::from_value(template).unwrap()));
    });
    carry(&mut world);
    let message = &conditions(&world, "Ready")[0].2;
    assert!(message.contains("spec.kafka.template.pod.securityContext.runAsUser is 0"), "{message}");
}

#[test]
fn a_service_takes_over_no_address_of_others() {
    let mut world = converged();
    edit_kafka(&mut world, |kafka| {
        let listener = json!({"name": "out", "port": 9095, "type": "nodeport", "tls": false, "configuration": {
            "bootstrap": {"externalIPs": ["10.0.0.1"]}, "brokers": [{"broker": 0, "externalIPs": ["10.0.0.2"]}]}});
        kafka.spec.kafka.listeners.push(serde_json::from_value(listener).unwrap());
    });
    let mut allowed = world.clone();
    let services = |plan: &Plan| {
        serde_json::to_string(
            &plan.services.iter().map(karst_core::objects::Object::meta).collect::<Vec<_>>(),
        )
        .unwrap()
    };
    let plan = carry(&mut world);
    assert!(!services(&plan).contains("-out-"), "{}", services(&plan));
    let message = &conditions(&world, "Ready")[0].2;
    assert!(message.contains(".configuration.bootstrap.externalIPs is 10.0.0.1"), "{message}");
    assert!(message.contains(".configuration.brokers[0].externalIPs is 10.0.0.2"), "{message}");
    allow(&mut allowed);
    assert!(services(&decide(&allowed)).contains("-out-"));
}

#[test]
fn addresses_of_nobody_here_are_named() {
    let mut world = converged();
    world.answers.foreign_hosts = ["evil.example:9091".to_owned()].into();
    let plan = decide(&world);
    let told: Vec<_> = plan.notices.iter().filter(|one| one.reason() == "ForeignAddress").collect();
    assert_eq!(told.len(), 1);
    assert!(told[0].to_string().contains("evil.example:9091"), "{told:?}");
}

/// It locked the whole cluster: its nodes were said to run Kafka "unknown".
#[test]
fn a_pod_set_of_somebody_else_says_nothing_of_the_version_that_nodes_ran() {
    let mut world = converged();
    report(&mut world);
    world.pods.clear();
    let mut foreign = (*world.pod_sets[BROKERS]).clone();
    foreign.meta.name = "my-cluster-evil".to_owned();
    foreign.meta.annotations.clear();
    foreign.pods = [evil()].into();
    foreign.generation += 1;
    world.pod_sets.insert(foreign.meta.name.clone(), Arc::new(foreign));
    world.answers.quorum = karst_core::world::Answer::NotAsked;
    Arc::make_mut(&mut world.kafka).status.as_mut().unwrap().kafka_metadata_version = None;
    let plan = decide(&world);
    assert!(plan.problems.is_empty(), "{:?}", plan.problems);
}
