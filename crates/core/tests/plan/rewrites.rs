//! Objects that are not seen as they were written: because the API server keeps them in its own words, because a policy of whoever
//! runs Kubernetes adds to them, or because somebody changes them back.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use karst_certs::{Certificate, Stored};
use karst_core::digest::Digest;
use karst_core::names::{
    CLUSTER_TRUST, REVISION_ANNOTATION, SETTINGS_IN_KAFKA_ANNOTATION, TRUSTED_AUTHORITIES_ANNOTATION,
};
use karst_core::plan::plan;
use karst_core::world::{SecretContent, SecretView, World};
use serde_json::{Value, json};

use crate::support::*;

const BUDGET: &str = "my-cluster-kafka";
const TRUST: &str = "my-cluster-trustbundle";
const CA: &str = "my-cluster-cluster-ca";
const CA_CERT: &str = "my-cluster-cluster-ca-cert";
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
            // What is asked first is decided again.
            written += if planned.questions.is_empty() { planned.certificates.len() } else { 0 };
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

/// A policy that knows nothing of these annotations, and leaves one of its own.
fn strip_trust(world: &mut World) {
    let now = world.now.to_string();
    let secret = Arc::make_mut(world.secrets.get_mut(TRUST).unwrap());
    secret.meta.annotations = [("example.com/looked-at".to_owned(), now)].into();
}

/// What a Secret of an authority, or of what nodes trust, holds.
fn data_of(world: &World, secret: &str) -> BTreeMap<String, Vec<u8>> {
    match &world.secrets[secret].content {
        SecretContent::Authority(material) => material.secret.data.clone(),
        SecretContent::Trust(files) => files.clone(),
        other => panic!("{secret} holds {other:?}"),
    }
}

fn put(world: &mut World, secret: &str, data: BTreeMap<String, Vec<u8>>) {
    let meta = world.secrets[secret].meta.clone();
    world.secrets.insert(secret.into(), Arc::new(SecretView::new(meta, data)));
}

/// Nodes are given to trust only who signs for clients.
fn distrust(world: &mut World) {
    let mut files = data_of(world, TRUST);
    let others = data_of(world, "my-cluster-clients-ca-cert").remove("ca.crt").unwrap();
    files.insert(CLUSTER_TRUST.into(), others);
    put(world, TRUST, files);
}

fn uids(world: &World) -> Vec<String> {
    world.pods.values().map(|pod| pod.meta.uid.clone()).collect()
}

#[test]
fn annotations_that_somebody_takes_off_a_secret_hold_nothing_back_and_are_named_after_a_minute() {
    let mut world = converged();
    let before = revisions(&world);
    strip_trust(&mut world);
    change_memory(&mut world, "brokers", "3Gi");
    change_memory(&mut world, "controllers", "3Gi");
    live(&mut world, 30, strip_trust);
    assert_ne!(revisions(&world), before);
    assert_eq!(current(&world).len(), 6, "all go on at once");
    assert_eq!(named(&world), [""; 0], "it may still come to be as it should be");

    live(&mut world, 60, strip_trust);
    let [message] = &named(&world)[..] else { panic!("{:?}", named(&world)) };
    let what = "Secret my-cluster-trustbundle does not stay as Karst writes it, in metadata.annotations[";
    assert!(message.starts_with(what), "{message}");
    assert!(!message.contains("does not restart"), "{message}");
    assert!(is_carried_out(&world), "all else is done");
    assert_eq!(conditions(&world, "Ready")[0].0, "True");

    let said = world.kafka.status.clone();
    let written = live(&mut world, 600, strip_trust);
    assert!((5..=12).contains(&written), "once a minute, not {written} times in ten");
    assert_eq!(world.kafka.status, said, "what is said stays the same");

    live(&mut world, 240, |_| {});
    assert_eq!(named(&world), [""; 0], "whoever it was has stopped");
}

/// What is looked at in the moment after it was written is as it should be, and is not when a pod reads it.
#[test]
fn nobody_restarts_to_trust_what_somebody_makes_of_it() {
    let mut world = converged();
    live(&mut world, 10, distrust);
    let before = uids(&world);
    change_memory(&mut world, "brokers", "3Gi");
    change_memory(&mut world, "controllers", "3Gi");
    let written = |world: &World| world.secrets[TRUST].meta.resource_version.parse::<u32>().unwrap();
    let first = written(&world);
    live(&mut world, 120, |world| {
        // Somebody who is slower than Karst.
        if world.now.as_second() % 3 == 0 {
            distrust(world);
        }
    });
    assert_eq!(uids(&world), before);
    let written = written(&world) - first;
    assert!((10..=20).contains(&written), "brokers load it while they run: {written} times in two minutes");
    let message = named(&world).join("\n");
    assert!(
        message.contains("Secret my-cluster-trustbundle does not stay as Karst writes it, in data"),
        "{message}"
    );
    assert!(message.contains("but does not restart my-cluster-brokers-0,"), "{message}");

    live(&mut world, 100, |_| {});
    assert_eq!(uids(&world), before, "it has to stay for a while");
    live(&mut world, 140, |_| {});
    assert_eq!(current(&world).len(), 6, "it is as it should be");
    assert_eq!(named(&world), [""; 0]);
}

#[test]
fn one_change_of_what_is_trusted_holds_nobody() {
    let mut world = converged();
    distrust(&mut world);
    change_memory(&mut world, "brokers", "3Gi");
    live(&mut world, 5, |_| {});
    assert_eq!(current(&world).len(), 6);
    live(&mut world, 90, |_| {});
    assert_eq!(named(&world), [""; 0]);
}

#[test]
fn a_node_does_not_restart_into_a_certificate_that_somebody_takes_away_and_the_others_do() {
    let meddle = |world: &mut World| {
        put(world, BROKERS[0], BTreeMap::new());
    };
    let mut world = converged();
    let before = world.pods[BROKERS[0]].meta.uid.clone();
    live(&mut world, 10, meddle);
    change_memory(&mut world, "brokers", "3Gi");
    live(&mut world, 120, meddle);
    assert_eq!(world.pods[BROKERS[0]].meta.uid, before);
    assert_eq!(current(&world).len(), 5, "{:?}", current(&world));
    let message = named(&world).join("\n");
    assert!(message.contains("Secret my-cluster-brokers-0 does not stay"), "{message}");
    assert!(message.contains("does not restart my-cluster-brokers-0;"), "{message}");

    live(&mut world, 300, |_| {});
    assert_eq!(current(&world).len(), 6, "it is as it should be");
    assert_eq!(named(&world), [""; 0]);
}

/// All authorities that there ever were.
#[derive(Default)]
struct Known(RefCell<BTreeMap<String, Certificate>>);

impl Known {
    /// Everybody who runs trusts whoever signed what is in the Secrets of nodes.
    fn check(&self, world: &World) {
        let mut known = self.0.borrow_mut();
        for secret in world.secrets.values() {
            let SecretContent::Authority(material) = &secret.content else { continue };
            let entries = material.secret.data.keys().filter_map(|entry| material.certificates(entry));
            known.extend(entries.flatten().map(|one| (one.authority_id(), one.clone())));
        }
        for leaf in world.pods.keys().filter_map(|pod| world.secrets.get(pod)?.stored()) {
            let signer = known.values().find(|one| leaf.certificate().is_signed_by(one)).expect("a signer");
            for (name, pod) in &world.pods {
                let trusted = &pod.meta.annotations[TRUSTED_AUTHORITIES_ANNOTATION];
                assert!(trusted.contains(&signer.authority_id()), "{name} trusts {trusted} alone");
            }
        }
    }
}

fn are_all_of_the_newest(world: &World) -> bool {
    let SecretContent::Authority(material) = &world.secrets[CA_CERT].content else { return false };
    let newest = &material.certificates("ca.crt").unwrap()[0];
    let leaves =
        world.pods.keys().filter_map(|pod| world.secrets.get(pod)?.stored()).map(Stored::certificate);
    leaves.filter(|leaf| leaf.is_signed_by(newest)).count() == 6
}

#[test]
fn a_key_that_is_taken_away_again_and_again_signs_nothing_and_restarts_nobody() {
    let known = Known::default();
    let mut world = converged();
    let meddle = |world: &mut World| {
        put(world, CA, BTreeMap::new());
        known.check(world);
    };
    live(&mut world, 20, meddle);
    let before = uids(&world);
    let written = live(&mut world, 600, meddle);
    assert_eq!(uids(&world), before, "nobody learns a key that is gone again");
    assert!((5..=40).contains(&written), "{written} in ten minutes");
    let message = named(&world).join("\n");
    assert!(message.contains("Secret my-cluster-cluster-ca does not stay"), "{message}");
    assert!(message.contains("does not restart my-cluster-brokers-0,"), "{message}");

    live(&mut world, 300, |world| known.check(world));
    assert!(are_all_of_the_newest(&world), "the last key stayed, and everybody came to know it");
    assert_eq!(named(&world), [""; 0]);
}

/// As one does who applies from a repository what was there before the key was replaced.
#[test]
fn no_node_gets_a_certificate_of_a_key_that_its_peers_do_not_trust_whoever_puts_the_old_one_back() {
    let known = Known::default();
    let mut world = converged();
    let old = [CA, CA_CERT].map(|secret| (secret, data_of(&world, secret)));
    for chosen in [&old[..1], &old[1..], &old[..]] {
        let meddle = |world: &mut World| {
            chosen.iter().for_each(|(secret, data)| put(world, secret, data.clone()));
            known.check(world);
        };
        put(&mut world, CA, BTreeMap::new());
        live(&mut world, 1, |world| known.check(world));
        live(&mut world, 100, meddle);
        live(&mut world, 240, |world| known.check(world));
        assert!(are_all_of_the_newest(&world));
        assert_eq!(named(&world), [""; 0]);
    }
}

/// As whatever admits objects does: it is never as it was written, not for a moment.
#[test]
fn nobody_restarts_to_trust_what_was_changed_on_its_way() {
    let mut world = converged();
    let before = uids(&world);
    distrust(&mut world);
    change_memory(&mut world, "brokers", "3Gi");
    change_memory(&mut world, "controllers", "3Gi");
    live(&mut world, 30, distrust);
    assert_eq!(uids(&world), before);
}
