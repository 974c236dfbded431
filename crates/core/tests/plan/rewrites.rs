//! Objects that are not seen as they were written: because the API server keeps them in its own words, because a policy of whoever
//! runs Kubernetes adds to them, or because somebody changes them back.

use std::sync::Arc;
use std::time::Duration;

use karst_core::digest::Digest;
use karst_core::names::{REVISION_ANNOTATION, SETTINGS_IN_KAFKA_ANNOTATION};
use karst_core::plan::plan;
use karst_core::world::World;
use serde_json::{Value, json};

use crate::support::*;

const BUDGET: &str = "my-cluster-kafka";
const BROKERS: [&str; 3] = ["my-cluster-brokers-0", "my-cluster-brokers-1", "my-cluster-brokers-2"];

fn listen_to(world: &mut World, peers: &Value) {
    edit_kafka(world, |kafka| {
        kafka.spec.kafka.listeners[0].network_policy_peers = serde_json::from_value(peers.clone()).unwrap();
    });
}

/// Asks for what every node has to restart for.
fn change_memory(world: &mut World, pool: &str, amount: &str) {
    edit_pool(world, pool, |pool| {
        let resources = json!({"limits": {"memory": amount}, "requests": {"memory": amount}});
        pool.spec.resources = serde_json::from_value(resources).unwrap();
    });
}

/// The pods that are as their pod sets want them.
fn current(world: &World) -> Vec<&str> {
    let wanted = |name: &str| world.pod_sets.values().find_map(|set| set.pods.get(name));
    let is_current = |(name, pod): &(&String, &Arc<karst_core::world::PodView>)| {
        wanted(name).is_some_and(|wanted| pod.is_current(wanted))
    };
    world.pods.iter().filter(is_current).map(|(name, _)| name.as_str()).collect()
}

fn revisions(world: &World) -> Vec<Option<String>> {
    world.pods.values().map(|pod| pod.meta.annotations.get(REVISION_ANNOTATION).cloned()).collect()
}

fn named(world: &World) -> Vec<String> {
    let warnings = conditions(world, "Warning").into_iter();
    let warnings = warnings.filter(|(_, reason, _)| reason == "ObjectKeepsChanging");
    warnings.map(|(_, _, message)| message).collect()
}

fn is_carried_out(world: &World) -> bool {
    let status = world.kafka.status.as_ref().unwrap();
    status.observed_generation == world.kafka.metadata.generation
}

/// Lets time pass, second by second, while somebody changes things after whatever is written. Returns how often objects were written.
fn live(world: &mut World, seconds: u64, meddle: impl Fn(&mut World)) -> usize {
    let mut kafka = Kafka::formed(world);
    let mut written = 0;
    for _ in 0..seconds {
        for _ in 0..20 {
            let planned = plan(world).unwrap();
            written += planned.objects.len() + planned.services.len();
            let goes_on = step(world, &mut kafka, &[]);
            meddle(world);
            if !goes_on {
                break;
            }
        }
        world.now = world.now.checked_add(Duration::from_secs(1)).unwrap();
        let now = world.now;
        world.memory.rewrites.retain(|_, rewrite| rewrite.is_current(now));
    }
    written
}

/// Somebody else's wish.
fn other() -> Option<Digest> {
    Some(Digest::of_json(&json!("other")))
}

fn take_back_budget(world: &mut World) {
    if let Some(budget) = world.budgets.get_mut(BUDGET) {
        Arc::make_mut(budget).digest = other();
    }
}

#[test]
fn what_the_api_server_does_not_keep_holds_nothing_back() {
    for peers in [
        json!([]),
        json!([{"ipBlock": {"cidr": "10.0.0.0/8", "except": []}}]),
        json!([{"podSelector": {"matchLabels": {}, "matchExpressions": []}}]),
    ] {
        let mut world = converged();
        let before = revisions(&world);
        listen_to(&mut world, &peers);
        change_memory(&mut world, "brokers", "3Gi");
        converge(&mut world);
        assert_eq!(current(&world).len(), 6, "{peers}");
        assert_ne!(revisions(&world), before, "{peers}");
        assert!(is_carried_out(&world), "{peers}");
        assert_eq!(named(&world), [""; 0], "{peers}");
        let written = live(&mut world, 90, |_| {});
        assert_eq!(written, 0, "it is not written again: {peers}");
    }
}

#[test]
fn an_object_that_somebody_changes_back_holds_nothing_back_and_is_named_after_a_minute() {
    let mut world = converged();
    take_back_budget(&mut world);
    edit_kafka(&mut world, |kafka| {
        kafka.spec.kafka.config.get_or_insert_default().insert("queued.max.requests".into(), 300.into());
    });
    live(&mut world, 30, take_back_budget);
    assert_eq!(current(&world).len(), 6, "the others go on at once");
    assert_eq!(named(&world), [""; 0], "it may still come to be as it should be");
    assert!(!is_carried_out(&world));

    live(&mut world, 60, take_back_budget);
    let [message] = &named(&world)[..] else { panic!("{:?}", named(&world)) };
    assert!(message.contains("PodDisruptionBudget my-cluster-kafka does not stay"), "{message}");
    assert!(is_carried_out(&world), "all else is done");
    assert_eq!(conditions(&world, "Ready")[0].0, "True");

    let said = world.kafka.status.clone();
    let written = live(&mut world, 600, take_back_budget);
    assert!((5..=12).contains(&written), "once a minute, not {written} times in ten");
    assert_eq!(world.kafka.status, said, "what is said stays the same");

    live(&mut world, 240, |_| {});
    assert_eq!(named(&world), [""; 0], "whoever it was has stopped");
}

/// What Kafka was told is put down in an annotation of a service. Without that, nobody would take it back.
#[test]
fn nothing_is_told_to_kafka_that_could_not_be_remembered() {
    let forget = |world: &mut World| {
        for service in world.services.values_mut() {
            Arc::make_mut(service).meta.annotations.remove(SETTINGS_IN_KAFKA_ANNOTATION);
        }
    };
    let configure = |world: &mut World| {
        edit_kafka(world, |kafka| {
            let config = kafka.spec.kafka.config.get_or_insert_default();
            config.insert("log.retention.ms".into(), 700_000.into());
        });
    };
    let mut world = converged();
    configure(&mut world);
    forget(&mut world);
    let mut kafka = Kafka::formed(&world);
    for _ in 0..100 {
        step(&mut world, &mut kafka, &[]);
        forget(&mut world);
        world.now = world.now.checked_add(Duration::from_secs(1)).unwrap();
    }
    assert_eq!(kafka.told.len(), 0, "{:?}", kafka.told);
    assert!(named(&world)[0].starts_with("Service "), "{:?}", named(&world));
    for _ in 0..100 {
        step(&mut world, &mut kafka, &[]);
        world.now = world.now.checked_add(Duration::from_secs(1)).unwrap();
    }
    assert_eq!(kafka.told.len(), 1, "{:?}", kafka.told);
}

#[test]
fn a_change_of_somebody_is_put_back_at_once_and_not_worth_a_word() {
    let mut world = converged();
    live(&mut world, 300, |_| {});
    take_back_budget(&mut world);
    assert_eq!(live(&mut world, 1, |_| {}), 1);
    assert_eq!(live(&mut world, 300, |_| {}), 0);
    assert_eq!(named(&world), [""; 0]);
}

#[test]
fn an_object_that_is_made_anew_whenever_it_is_deleted_holds_nothing_back() {
    let mut world = converged();
    let delete = |world: &mut World| world.policies.clear();
    delete(&mut world);
    change_memory(&mut world, "brokers", "3Gi");
    live(&mut world, 90, delete);
    assert_eq!(current(&world).len(), 6);
    assert!(named(&world)[0].starts_with("NetworkPolicy "), "{:?}", named(&world));
}

#[test]
fn a_node_does_not_restart_into_settings_that_somebody_changes_and_the_others_do() {
    let meddle = |world: &mut World| {
        Arc::make_mut(world.config_maps.get_mut(BROKERS[0]).unwrap()).digest = other();
    };
    let mut world = converged();
    let before = world.pods[BROKERS[0]].meta.uid.clone();
    meddle(&mut world);
    change_memory(&mut world, "brokers", "3Gi");
    live(&mut world, 120, meddle);
    assert_eq!(world.pods[BROKERS[0]].meta.uid, before);
    assert_eq!(current(&world).len(), 5, "{:?}", current(&world));
    let message = named(&world).join("\n");
    assert!(message.contains("ConfigMap my-cluster-brokers-0 does not stay"), "{message}");
    assert!(message.contains("does not restart my-cluster-brokers-0;"), "{message}");

    live(&mut world, 240, |_| {});
    assert_eq!(current(&world).len(), 6, "it is as it should be");
    assert_eq!(named(&world), [""; 0]);
}

#[test]
fn no_node_restarts_into_a_description_that_somebody_changes() {
    let meddle = |world: &mut World| {
        Arc::make_mut(world.pod_sets.get_mut("my-cluster-brokers").unwrap()).digest = other();
    };
    let mut world = converged();
    let brokers: Vec<_> = BROKERS.iter().map(|name| world.pods[*name].meta.uid.clone()).collect();
    meddle(&mut world);
    change_memory(&mut world, "brokers", "3Gi");
    change_memory(&mut world, "controllers", "3Gi");
    live(&mut world, 120, meddle);
    let now: Vec<_> = BROKERS.iter().map(|name| world.pods[*name].meta.uid.clone()).collect();
    assert_eq!(now, brokers);
    assert_eq!(current(&world).len(), 3, "controllers go on");
    assert!(named(&world)[0].starts_with("StrimziPodSet my-cluster-brokers "), "{:?}", named(&world));
}
