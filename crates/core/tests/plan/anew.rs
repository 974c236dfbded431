//! Clusters with ephemeral disks that lose all of them, or nearly all.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use karst_core::ids::{Entropy, NodeId};
use karst_core::names::node_of_pod;
use karst_core::objects::Object;
use karst_core::world::{Answer, World};

fn ephemeral() -> World {
    let mut world = quickstart();
    for name in ["controllers", "brokers"] {
        edit_pool(&mut world, name, |pool| {
            pool.spec.storage = serde_json::from_value(serde_json::json!({ "type": "ephemeral" })).unwrap();
        });
    }
    world
}

fn formed(mut world: World) -> (World, Kafka) {
    converge(&mut world);
    let mut kafka = Kafka::formed(&world);
    converge_kafka(&mut world, &mut kafka, &[]);
    (world, kafka)
}

/// These pods go, with all that they know. Their successors start empty.
fn lose(world: &mut World, kafka: &mut Kafka, is_lost: impl Fn(&str) -> bool) {
    let lost: Vec<_> = world.pods.keys().filter(|name| is_lost(name)).cloned().collect();
    for name in lost {
        let node = node_of_pod(&name).unwrap();
        world.pods.remove(&name);
        kafka.disks.insert(node, Entropy([0x40 + node.0 as u8; 32]).directory_id(node));
    }
    run_pods(world, false);
}

fn serving(world: &World) -> BTreeSet<String> {
    world.pods.values().filter(|pod| pod.is_serving()).map(|pod| pod.meta.uid.clone()).collect()
}

/// Goes on until nothing is left to do. Controllers are ready when a majority of voters has its disks, brokers from then on. Returns
/// the pods that were restarted.
fn live(world: &mut World, kafka: &mut Kafka) -> BTreeSet<String> {
    let mut restarted = BTreeSet::new();
    let mut served = serving(world);
    for _ in 0..100 {
        let intact = kafka.voters.iter().filter(|voter| !kafka.disks.contains_key(&voter.node)).count();
        let has_leader = intact * 2 > kafka.voters.len();
        for pod in world.pods.values_mut() {
            let serves = has_leader || (!pod.runs_controller() && served.contains(&pod.meta.uid));
            Arc::make_mut(pod).ready = serves;
        }
        served = serving(world);
        let before = world.pods.clone();
        if !step(world, kafka, &[]) {
            return restarted;
        }
        for (name, pod) in &world.pods {
            if before.get(name).is_none_or(|old| old.meta.uid == pod.meta.uid) {
                continue;
            }
            restarted.insert(name.clone());
            if world.config_maps[name].storage_format.as_deref() == Some("restore") {
                kafka.disks.remove(&node_of_pod(name).unwrap());
            }
        }
    }
    panic!("it never comes to rest: {:?}", decide(world));
}

fn warning(world: &World, reason: &str) -> Option<String> {
    conditions(world, "Warning").into_iter().find(|(_, found, _)| found == reason).map(|(_, _, text)| text)
}

#[test]
fn a_cluster_whose_ephemeral_disks_are_all_gone_is_formed_anew() {
    let (mut world, mut kafka) = formed(ephemeral());
    let status = world.kafka.status.clone().unwrap();
    let voters = kafka.voters.clone();
    lose(&mut world, &mut kafka, |_| true);
    assert_eq!(live(&mut world, &mut kafka), BTreeSet::new(), "an election may take a moment");
    assert_eq!(conditions(&world, "QuorumHealthy")[0].1, "NoLeader");

    world.now += Duration::from_secs(21);
    let restarted = live(&mut world, &mut kafka);
    assert_eq!(restarted, world.pods.keys().cloned().collect(), "nobody keeps what it may have copied");
    assert_eq!(kafka.voters, voters, "nobody else can have their identities any more");
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    let now = world.kafka.status.clone().unwrap();
    assert_eq!((now.cluster_id, now.initial_controllers), (status.cluster_id, status.initial_controllers));
    for map in world.config_maps.values() {
        assert_eq!(map.storage_format.as_deref(), Some("join"), "{}", map.meta.name);
        assert!(!map.meta.annotations.contains_key("karst.io/restored-pod"), "{}", map.meta.name);
    }
}

#[test]
fn whoever_makes_voters_of_empty_disks_looks_at_the_pods_first() {
    let (mut world, mut kafka) = formed(ephemeral());
    assert!(!decide(&world).relies_on_pods(), "nothing is to do");
    lose(&mut world, &mut kafka, |_| true);
    live(&mut world, &mut kafka);
    world.now += Duration::from_secs(21);
    world.answers.quorum = Answer::Silent("nobody leads".to_owned());
    let mut plan = decide(&world);
    assert!(plan.relies_on_pods());
    assert!(plan.objects.iter().any(|object| matches!(object, Object::ConfigMap(_))), "{:?}", plan.objects);

    plan.rely_on_no_pods();
    assert!(plan.objects.is_empty() && plan.restarts.is_empty());
    assert!(plan.status.is_some(), "what is known is said all the same");
}

#[test]
fn it_can_happen_again() {
    let (mut world, mut kafka) = formed(ephemeral());
    for _ in 0..3 {
        lose(&mut world, &mut kafka, |_| true);
        live(&mut world, &mut kafka);
        world.now += Duration::from_secs(21);
        live(&mut world, &mut kafka);
        assert_eq!(conditions(&world, "Ready")[0].0, "True");
    }
}

#[test]
fn a_broker_that_kept_its_disk_is_left_to_a_person() {
    let (mut world, mut kafka) = formed(ephemeral());
    lose(&mut world, &mut kafka, |name| name != "my-cluster-brokers-1");
    live(&mut world, &mut kafka);
    world.now += Duration::from_secs(3600);
    assert_eq!(live(&mut world, &mut kafka), BTreeSet::new());
    let told = warning(&world, "DisksLost").unwrap();
    assert!(told.contains("Left are the disks of my-cluster-brokers-1."), "{told}");

    lose(&mut world, &mut kafka, |name| name == "my-cluster-brokers-1");
    live(&mut world, &mut kafka);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    assert_eq!(warning(&world, "DisksLost"), None);
}

#[test]
fn a_controller_that_kept_its_disk_is_left_to_a_person() {
    let (mut world, mut kafka) = formed(ephemeral());
    lose(&mut world, &mut kafka, |name| name != "my-cluster-controllers-4");
    live(&mut world, &mut kafka);
    world.now += Duration::from_secs(3600);
    assert_eq!(live(&mut world, &mut kafka), BTreeSet::new());
    let told = warning(&world, "DisksLost").unwrap();
    assert!(told.contains("Left are the disks of my-cluster-controllers-4."), "{told}");
}

#[test]
fn disks_of_claims_are_never_taken_for_gone() {
    let mut world = ephemeral();
    edit_pool(&mut world, "brokers", |pool| {
        let claims = serde_json::json!({ "type": "persistent-claim", "size": "1Gi" });
        pool.spec.storage = serde_json::from_value(claims).unwrap();
    });
    let (mut world, mut kafka) = formed(world);
    lose(&mut world, &mut kafka, |_| true);
    live(&mut world, &mut kafka);
    world.now += Duration::from_secs(3600);
    assert_eq!(live(&mut world, &mut kafka), BTreeSet::new());
    assert!(world.config_maps.values().all(|map| map.storage_format.as_deref() == Some("join")));
}

#[test]
fn a_quorum_that_only_lost_its_leader_for_long_keeps_its_disks() {
    let (mut world, mut kafka) = formed(ephemeral());
    let voters = kafka.voters.clone();
    for voter in &voters {
        kafka.disks.insert(voter.node, Entropy([9; 32]).directory_id(NodeId(9)));
    }
    live(&mut world, &mut kafka);
    world.now += Duration::from_secs(3600);
    assert_eq!(live(&mut world, &mut kafka), BTreeSet::new());
    assert_eq!(warning(&world, "FormedAnew"), None);
}

/// The view of the pods can be older than the cluster that was formed since.
#[test]
fn a_leader_that_answers_keeps_its_cluster_though_no_controller_is_seen_to_be_ready() {
    let (mut world, mut kafka) = formed(ephemeral());
    let answer = kafka.quorum(&world);
    assert!(answer.known().is_some());
    lose(&mut world, &mut kafka, |_| true);
    live(&mut world, &mut kafka);
    world.now += Duration::from_secs(21);

    world.answers.registered = kafka.registered(&world);
    let plan = karst_core::plan::plan(&world).unwrap();
    assert_eq!(plan.questions.quorum.len(), 3, "Kafka is asked before anything is formed");
    assert!(plan.objects.is_empty() && plan.restarts.is_empty());
    world.answers.quorum = answer;
    let plan = karst_core::plan::plan(&world).unwrap();
    assert!(plan.restarts.is_empty(), "{:?}", plan.restarts);
    for object in &plan.objects {
        let karst_core::objects::Object::ConfigMap(map) = object else { continue };
        let format = map.data.as_ref().unwrap()["storage.format"].as_str();
        assert!(!["initial", "restore"].contains(&format), "{}: {format}", object.describe());
    }
}

/// A node that copied the beginning of what the last leader knew would take it for the beginning of what the next one says.
#[test]
fn brokers_start_over_before_anybody_can_be_elected() {
    let (mut world, mut kafka) = formed(ephemeral());
    lose(&mut world, &mut kafka, |_| true);
    live(&mut world, &mut kafka);
    world.now += Duration::from_secs(21);
    let mut restarts = Vec::new();
    while restarts.len() < 6 {
        world.answers.quorum = Answer::Silent("nobody leads".to_owned());
        let plan = decide(&world);
        assert!(!plan.objects.is_empty() || !plan.restarts.is_empty(), "{plan:?}");
        restarts.extend(plan.restarts.iter().map(|restart| restart.pod.clone()));
        step(&mut world, &mut kafka, &[]);
        for pod in world.pods.values_mut() {
            Arc::make_mut(pod).ready = false;
        }
    }
    let brokers = restarts.iter().take_while(|pod| pod.contains("brokers")).count();
    assert_eq!(brokers, 3, "{restarts:?}");
}

/// Its disk would be gone, and whatever somebody else writes is what it starts with.
#[test]
fn no_node_starts_over_with_settings_that_somebody_changes() {
    let (mut world, mut kafka) = formed(ephemeral());
    lose(&mut world, &mut kafka, |_| true);
    live(&mut world, &mut kafka);
    world.now += Duration::from_secs(21);
    let contested = ["my-cluster-brokers-0", "my-cluster-controllers-3"];
    let mut restarted = |world: &mut World, seconds: usize, is_meddling: bool| {
        let mut restarted = BTreeSet::new();
        for _ in 0..seconds {
            world.answers.quorum = Answer::Silent("nobody leads".to_owned());
            restarted.extend(decide(world).restarts.into_iter().map(|restart| restart.pod));
            step(world, &mut kafka, &[]);
            for pod in world.pods.values_mut() {
                Arc::make_mut(pod).ready = false;
            }
            for name in contested.iter().filter(|_| is_meddling) {
                let map = Arc::make_mut(world.config_maps.get_mut(*name).unwrap());
                (map.digest, map.storage_format) = (None, Some("join".into()));
            }
            world.now += Duration::from_secs(1);
        }
        restarted
    };
    let first = restarted(&mut world, 90, true);
    let others = ["my-cluster-brokers-1", "my-cluster-brokers-2"].map(str::to_owned);
    assert_eq!(first, others.into(), "voters come last, when all brokers are empty");
    let said = warning(&world, "ObjectKeepsChanging").unwrap();
    assert!(said.contains("does not restart my-cluster-"), "{said}");
    let last = restarted(&mut world, 240, false);
    assert_eq!(last.len(), 4, "{last:?}");
}

/// It copied what the last old controller knew, and the operator sees it when that one is gone too.
#[test]
fn a_broker_that_was_fast_enough_to_copy_is_left_to_a_person() {
    let (mut world, mut kafka) = formed(ephemeral());
    lose(&mut world, &mut kafka, |_| true);
    Arc::make_mut(world.pods.get_mut("my-cluster-brokers-1").unwrap()).ready = true;
    live(&mut world, &mut kafka);
    world.now += Duration::from_secs(3600);
    assert_eq!(live(&mut world, &mut kafka), BTreeSet::new());
    let told = warning(&world, "DisksLost").unwrap();
    assert!(told.contains("Left are the disks of my-cluster-brokers-1."), "{told}");
}

/// A quorum that was formed anew can lose its leader before anybody has asked it anything.
#[test]
fn pods_that_serve_have_their_disks_though_kafka_was_never_heard_since() {
    let (mut world, mut kafka) = formed(ephemeral());
    lose(&mut world, &mut kafka, |_| true);
    let silent = || Answer::Silent("no leader".into());
    for pod in world.pods.values_mut() {
        Arc::make_mut(pod).ready = true;
    }
    world.answers.quorum = silent();
    let mut plan = karst_core::plan::plan(&world).unwrap();
    for object in plan.objects.drain(..) {
        let Object::ConfigMap(map) = object else { continue };
        let name = map.metadata.name.unwrap();
        let disk = &map.metadata.annotations.unwrap()["karst.io/disk-of-pod"];
        assert_eq!(*disk, world.pods[&name].meta.uid, "{name}");
        Arc::make_mut(world.config_maps.get_mut(&name).unwrap())
            .meta
            .annotations
            .insert("karst.io/disk-of-pod".into(), disk.clone());
    }
    for pod in world.pods.values_mut() {
        Arc::make_mut(pod).ready = false;
    }
    world.answers.quorum = silent();
    world.now += Duration::from_secs(60);
    let plan = karst_core::plan::plan(&world).unwrap();
    assert!(plan.restarts.is_empty(), "{:?}", plan.restarts);
}
