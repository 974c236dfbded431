//! How a cluster comes to be, and that nothing between two steps can make it come out otherwise.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::*;
use karst_core::ids::Entropy;
use karst_core::memory::Stranger;
use karst_core::objects::Object;
use karst_core::plan::{Fact, plan};
use karst_core::problem::Problem;
use karst_core::quorum::InitialControllers;
use karst_core::world::{Answer, Answers, Controller, World};

#[test]
fn what_kubernetes_refuses_is_told_until_it_is_done() {
    let mut world = converged();
    let refusal = "could not create pod my-cluster-brokers-0: exceeded quota: few, requested: pods=1";
    world.memory.kubernetes_refused("objects", [refusal.to_owned()].into(), [].into());
    converge(&mut world);
    let told = conditions(&world, "Warning");
    let is_told = |(_, reason, message): &(_, String, String)| {
        reason == "KubernetesRefused" && message.contains(refusal)
    };
    assert!(told.iter().any(is_told), "{told:?}");

    world.memory.kubernetes_refused("objects", [].into(), [].into());
    converge(&mut world);
    assert_eq!(conditions(&world, "Warning"), []);
}

#[test]
fn facts_are_durable_in_order_before_the_first_pod_is_asked_for() {
    let mut world = quickstart();
    let mut order = Vec::new();
    loop {
        let plan = decide(&world);
        if plan.facts.is_empty() {
            assert!(plan.objects.iter().any(|object| object.kind() == "StrimziPodSet"));
            break;
        }
        for object in &plan.objects {
            assert!(
                matches!(
                    object.kind(),
                    "Service" | "ServiceAccount" | "PodDisruptionBudget" | "NetworkPolicy"
                ),
                "{} came too early",
                object.describe()
            );
        }
        order.push(plan.facts.iter().map(name).collect::<Vec<_>>().join("+"));
        carry_out(&mut world, plan);
    }
    assert_eq!(
        order,
        [
            "nodes of brokers+nodes of controllers",
            "brokers stays for its nodes+controllers stays for its nodes+identity",
            "cluster of brokers+cluster of controllers",
        ]
    );
}

fn name(fact: &Fact) -> String {
    match fact {
        Fact::PoolNodes { pool, .. } => format!("nodes of {pool}"),
        Fact::PoolProtected { pool } => format!("{pool} stays for its nodes"),
        Fact::Identity { .. } => "identity".to_owned(),
        Fact::PoolCluster { pool, .. } => format!("cluster of {pool}"),
        Fact::Registered { .. } => "registered brokers".to_owned(),
    }
}

#[test]
fn a_crash_after_any_fact_does_not_change_what_was_durable() {
    // One fact at a time, and other randomness after each: a restarted operator draws anew.
    let mut world = quickstart();
    let mut seen: Option<String> = None;
    for restart in 0..20_u8 {
        world.entropy = Entropy([restart; 32]);
        let plan = decide(&world);
        let Some(fact) = plan.facts.first() else { break };
        write_fact(&mut world, fact);
        let identity = world.kafka.status.clone().and_then(|status| status.initial_controllers);
        if let (Some(before), Some(now)) = (&seen, &identity) {
            assert_eq!(before, now, "the initial controllers changed");
        }
        seen = identity.or(seen);
    }
    assert!(seen.is_some());
    assert_eq!(world.pools["brokers"].status.as_ref().unwrap().node_ids, Some(vec![0, 1, 2]));
    assert_eq!(world.pools["controllers"].status.as_ref().unwrap().node_ids, Some(vec![3, 4, 5]));
}

#[test]
fn a_converged_cluster_is_ready_and_causes_no_write() {
    let mut world = converged();
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    assert_eq!(conditions(&world, "NotReady"), []);
    let status = world.kafka.status.clone().unwrap();
    assert_eq!(status.kafka_version.as_deref(), Some("4.1.1"));
    assert_eq!(status.kafka_metadata_version.as_deref(), Some("4.1-IV1"));
    assert_eq!(status.operator_last_successful_version.as_deref(), Some("0.1.0"));
    assert_eq!(status.observed_generation, Some(1));
    // Time alone changes nothing.
    world.now += k8s_openapi::jiff::SignedDuration::from_hours(24);
    world.entropy = Entropy([200; 32]);
    assert!(is_quiet(&decide(&world)));
}

#[test]
fn what_is_deleted_or_edited_by_hand_is_written_again_and_nothing_else() {
    let whole = converged();
    let mut world = whole.clone();
    world.services.remove("my-cluster-kafka-bootstrap");
    world.config_maps.remove("my-cluster-brokers-1");
    let mut edited = (*whole.config_maps["my-cluster-brokers-2"]).clone();
    edited.digest = None;
    world.config_maps.insert("my-cluster-brokers-2".into(), Arc::new(edited));
    world.pod_sets.remove("my-cluster-controllers");
    let plan = decide(&world);
    let written: Vec<_> = plan.objects.iter().map(karst_core::objects::Object::describe).collect();
    assert_eq!(
        written,
        [
            "Service my-cluster-kafka-bootstrap",
            "ConfigMap my-cluster-brokers-1",
            "ConfigMap my-cluster-brokers-2",
            "StrimziPodSet my-cluster-controllers",
        ]
    );
}

/// Two operators can lead for a moment: what one of them has not seen, it must not undo.
#[test]
fn what_is_written_or_deleted_names_the_state_it_was_seen_in() {
    let mut world = quickstart();
    while !decide(&world).facts.is_empty() {
        let plan = decide(&world);
        for object in &plan.objects {
            assert_eq!(object.meta().resource_version, None, "{} is new", object.describe());
        }
        carry_out(&mut world, plan);
    }
    let mut world = converged();
    for set in world.pod_sets.values_mut() {
        let set = Arc::make_mut(set);
        set.meta.resource_version = "77".into();
        set.digest = None;
    }
    for map in world.config_maps.values_mut() {
        let map = Arc::make_mut(map);
        map.meta.resource_version = "78".into();
        map.digest = None;
    }
    let plan = decide(&world);
    let versions: BTreeSet<_> = plan
        .objects
        .iter()
        .map(|object| (object.kind(), object.meta().resource_version.as_deref()))
        .collect();
    assert_eq!(versions, [("ConfigMap", Some("78")), ("StrimziPodSet", Some("77"))].into());
    for object in &plan.objects {
        assert!(object.meta().uid.is_some(), "{} could be another one by now", object.describe());
        assert!(!object.is_hard_to_undo(&world), "{}", object.describe());
    }
}

#[test]
fn a_pod_set_that_gets_or_loses_a_pod_is_told_from_one_that_only_describes_them_otherwise() {
    let mut world = converged();
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 4);
    while decide(&world).objects.iter().all(|object| object.kind() != "StrimziPodSet") {
        let plan = decide(&world);
        carry_out(&mut world, plan);
    }
    let changed = |world: &World| {
        let objects = decide(world).objects.into_iter().filter(|object| object.is_hard_to_undo(world));
        objects.filter_map(|object| object.meta().name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(changed(&world), ["my-cluster-brokers"], "one comes");

    world = converged();
    let set = Arc::make_mut(world.pod_sets.get_mut("my-cluster-brokers").unwrap());
    let one = set.pods.values().next().unwrap().clone();
    set.pods.insert("my-cluster-brokers-9".to_owned(), one);
    set.digest = None;
    assert_eq!(changed(&world), ["my-cluster-brokers"], "one goes");

    world.pod_sets.clear();
    assert_eq!(changed(&world), [""; 0], "there is none yet");
}

#[test]
fn controllers_form_the_quorum_until_they_are_seen_in_it_and_join_ever_after() {
    let mut world = quickstart();
    loop {
        let plan = decide(&world);
        if plan.facts.is_empty() && plan.objects.is_empty() {
            break;
        }
        carry_out(&mut world, plan);
    }
    let formats = |world: &karst_core::world::World| {
        ["my-cluster-controllers-3", "my-cluster-brokers-0"]
            .map(|map| world.config_maps[map].storage_format.clone().unwrap())
    };
    assert_eq!(formats(&world), ["initial", "join"]);

    run_pods(&mut world, true);
    assert!(!plan(&world).unwrap().questions.quorum.is_empty());
    world.answers.quorum = Answer::Silent("no route".into());
    let plan = decide(&world);
    assert!(plan.look_again.is_some(), "a silent Kafka is asked again");
    carry_out(&mut world, plan);
    assert_eq!(formats(&world), ["initial", "join"]);

    world.answers.quorum = healthy_quorum(&world);
    let plan = decide(&world);
    carry_out(&mut world, plan);
    assert_eq!(formats(&world), ["join", "join"]);
    world.answers = Answers::default();
    let plan = decide(&world);
    carry_out(&mut world, plan);
    assert_eq!(formats(&world), ["join", "join"]);
}

#[test]
fn pools_and_kafka_may_come_in_any_order() {
    let whole = converged();
    let mut world = quickstart();
    let pools = std::mem::take(&mut world.pools);
    let plan = decide(&world);
    assert_eq!(plan.objects, [], "nothing is made before the pools are there");
    carry_out(&mut world, plan);
    assert_eq!(conditions(&world, "Ready")[0].1, "PoolsMissing");

    world.pools.insert("controllers".into(), Arc::clone(&pools["controllers"]));
    let plan = decide(&world);
    assert_eq!(plan.problems, [Problem::NoBroker]);
    assert!(plan.facts.is_empty(), "ids are given when all is there");

    world.pools = pools;
    converge(&mut world);
    for (name, pool) in &whole.pools {
        assert_eq!(
            world.pools[name].status.as_ref().unwrap().node_ids,
            pool.status.as_ref().unwrap().node_ids
        );
    }
    assert_eq!(world.pod_sets.keys().collect::<Vec<_>>(), whole.pod_sets.keys().collect::<Vec<_>>());
    assert_eq!(world.config_maps.keys().collect::<Vec<_>>(), whole.config_maps.keys().collect::<Vec<_>>());
}

#[test]
fn a_recreated_kafka_resource_brings_the_cluster_back_from_its_disks() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    let before = world.kafka.status.clone().unwrap();
    // The Kafka resource was deleted with all it owned, and created again; claims that are to stay are there.
    edit_kafka(&mut world, |kafka| kafka.status = None);
    world.pods.clear();
    world.pod_sets.clear();
    world.config_maps.clear();
    let mut formats = BTreeSet::new();
    while step(&mut world, &mut kafka, &[]) {
        for (name, map) in &world.config_maps {
            let role = if name.contains("controllers") { "controller" } else { "broker" };
            formats.insert((role, map.storage_format.clone().unwrap()));
        }
    }
    // No node may form a quorum, and no controller starts on an empty disk before somebody tells how they vote.
    let wanted = [("broker", "join"), ("controller", "adopt"), ("controller", "join")];
    assert_eq!(formats, wanted.map(|(role, format)| (role, format.to_owned())).into());
    assert!(world.config_maps.values().all(|map| map.storage_format.as_deref() == Some("join")));
    let after = world.kafka.status.clone().unwrap();
    assert_eq!(after.cluster_id, before.cluster_id);
    assert_eq!(after.initial_controllers, before.initial_controllers);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
}

/// A cluster of which only the disks are left, with its voters.
fn disks_only() -> (World, Kafka) {
    let mut world = converged();
    let kafka = Kafka::formed(&world);
    edit_kafka(&mut world, |kafka| kafka.status = None);
    lose_all_but_disks(&mut world);
    (world, kafka)
}

#[test]
fn disks_that_nobody_remembers_are_found_again_and_never_formatted() {
    let (mut world, mut kafka) = disks_only();
    // Disks of nodes that are not the lowest: they tell the ids.
    let lists: Vec<_> = kafka.voters.iter().map(|voter| voter.node).collect();
    let claims: Vec<_> = world.claims.values().map(|claim| claim.meta.uid.clone()).collect();
    let first = plan(&world).unwrap();
    assert!(first.objects.iter().all(|object| !matches!(object, Object::ConfigMap(_) | Object::PodSet(_))));
    let mut formats = BTreeSet::new();
    while step(&mut world, &mut kafka, &[]) {
        formats.extend(world.config_maps.values().filter_map(|map| map.storage_format.clone()));
    }
    assert_eq!(formats, ["adopt".to_owned(), "join".to_owned()].into());
    let status = world.kafka.status.clone().unwrap();
    assert_eq!(status.cluster_id.as_deref(), Some(ID_IN_KAFKA));
    let initial = InitialControllers::parse(&status.initial_controllers.unwrap()).unwrap();
    assert!(initial.iter().map(|one| one.node).eq(lists));
    for (pool, ids) in [("brokers", vec![0, 1, 2]), ("controllers", vec![3, 4, 5])] {
        assert_eq!(world.pools[pool].status.as_ref().unwrap().node_ids, Some(ids));
    }
    assert!(world.config_maps.values().all(|map| map.storage_format.as_deref() == Some("join")));
    assert!(world.claims.values().map(|claim| &claim.meta.uid).eq(&claims));
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    assert!(conditions(&world, "Warning").iter().all(|(_, reason, _)| reason != "AdoptingDisks"));
}

#[test]
fn as_long_as_nobody_leads_forgotten_disks_stay_as_they_are() {
    let (mut world, mut kafka) = disks_only();
    kafka.voters.clear();
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(world.kafka.status.as_ref().unwrap().cluster_id, None);
    assert!(world.config_maps.values().all(|map| map.storage_format.as_deref() == Some("adopt")));
    let warnings = conditions(&world, "Warning");
    let told = warnings.iter().find(|(_, reason, _)| reason == "AdoptingDisks").unwrap();
    assert!(told.2.contains("6 claims"), "{}", told.2);
}

#[test]
fn more_disks_than_nodes_are_not_guessed_about() {
    let (mut world, _) = disks_only();
    edit_pool(&mut world, "controllers", |pool| pool.spec.replicas = 1);
    let plan = decide(&world);
    assert!(plan.facts.is_empty() && plan.objects.is_empty(), "{plan:?}");
    let [problem] = plan.problems.as_slice() else { panic!("{:?}", plan.problems) };
    let told = problem.to_string();
    assert!(
        told.contains("nodes 3, 4, 5 of pool controllers") && told.contains("set replicas to 3"),
        "{told}"
    );
}

#[test]
fn with_the_disks_gone_too_it_is_a_new_cluster() {
    let (mut world, _) = disks_only();
    world.claims.clear();
    converge(&mut world);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    assert_ne!(world.kafka.status.as_ref().unwrap().cluster_id.as_deref(), Some(ID_IN_KAFKA));
}

#[test]
fn a_paused_cluster_is_not_changed_and_keeps_its_status() {
    let mut world = converged();
    let before = world.kafka.status.clone().unwrap();
    edit_kafka(&mut world, |kafka| {
        let annotations = kafka.metadata.annotations.get_or_insert_default();
        annotations.insert("strimzi.io/pause-reconciliation".into(), "true".into());
    });
    world.config_maps.clear();
    let plan = decide(&world);
    assert_eq!(plan.objects, []);
    carry_out(&mut world, plan);
    let after = world.kafka.status.clone().unwrap();
    assert_eq!(conditions(&world, "ReconciliationPaused")[0].0, "True");
    assert_eq!(
        (after.cluster_id, after.initial_controllers),
        (before.cluster_id, before.initial_controllers)
    );
    assert_eq!((after.listeners, after.kafka_version), (before.listeners, before.kafka_version));
    assert_eq!(after.observed_generation, before.observed_generation);
}

/// A new `Kafka`, and a pool that has the id of a cluster, and worked for this one last.
fn with_used_pool(last: Option<&str>) -> World {
    let mut world = quickstart();
    let selector = last.map(|cluster| {
        let key = karst_core::names::ClusterKey { namespace: NAMESPACE.into(), name: cluster.into() };
        key.pool_selector_text("brokers")
    });
    edit_pool(&mut world, "brokers", |pool| {
        pool.status = Some(karst_api::KafkaNodePoolStatus {
            cluster_id: Some("TheIdOfAnotherCluster0".into()),
            node_ids: Some(vec![0, 1, 2]),
            label_selector: selector,
            ..Default::default()
        });
    });
    world
}

#[test]
fn a_new_cluster_does_not_take_the_id_of_a_pool_that_was_another_ones() {
    for (last, told) in
        [(Some("other"), "it was a pool of Kafka 'other'"), (None, "it was a pool of another Kafka")]
    {
        let mut world = with_used_pool(last);
        for _ in 0..5 {
            let plan = decide(&world);
            assert!(plan.facts.is_empty(), "{:?}", plan.facts);
            carry_out(&mut world, plan);
        }
        let ready = pool_conditions(&world, "brokers", "Ready");
        assert_eq!(ready[0].1, "ClusterIdMismatch");
        assert!(ready[0].2.contains(told), "{ready:?}");
        assert_eq!(conditions(&world, "Ready")[0].0, "False");
        // Set back, it is its cluster's again.
        let selector = world.pools["brokers"].status.as_ref().unwrap().label_selector.clone();
        assert!(last.is_none_or(|last| selector.is_some_and(|text| text.contains(last))));
    }
}

#[test]
fn a_cluster_that_is_made_again_without_disks_keeps_the_id_of_its_own_pools() {
    let mut world = with_used_pool(Some("my-cluster"));
    converge(&mut world);
    let id = world.kafka.status.as_ref().unwrap().cluster_id.as_deref();
    assert_eq!(id, Some("TheIdOfAnotherCluster0"));
}

#[test]
fn a_pool_that_does_not_say_whose_it_was_is_believed_when_there_are_remains() {
    let (mut world, _) = disks_only();
    for pool in world.pools.values_mut() {
        let status =
            karst_api::KafkaNodePoolStatus { cluster_id: Some(ID_IN_KAFKA.into()), ..Default::default() };
        Arc::make_mut(pool).status = Some(status);
    }
    let plan = decide(&world);
    assert!(plan.problems.is_empty(), "{:?}", plan.problems);
}

fn stranger(owner: &str, world: &World) -> Stranger {
    let until = world.now.checked_add(std::time::Duration::from_secs(60)).unwrap();
    Stranger { owner: owner.into(), until }
}

fn controller() -> Option<Box<Controller>> {
    let (kind, name, uid) = ("StatefulSet".into(), "db".into(), "uid-db".into());
    Some(Box::new(Controller { kind, name, uid }))
}

fn foreign(world: &World) -> Vec<String> {
    let warnings = conditions(world, "Warning").into_iter();
    warnings.filter(|(_, reason, _)| reason == "ForeignObject").map(|(_, _, message)| message).collect()
}

#[test]
fn a_node_whose_disk_is_somebody_elses_waits_and_nobody_else_does() {
    let mut world = quickstart();
    let theirs = "PersistentVolumeClaim data-0-my-cluster-brokers-1";
    world.memory.strangers.insert(theirs.into(), stranger("StatefulSet 'db'", &world));
    converge(&mut world);
    let pods: Vec<_> = world.pods.keys().filter(|name| name.contains("brokers")).collect();
    assert_eq!(pods, ["my-cluster-brokers-0", "my-cluster-brokers-2"]);
    assert!(!world.claims.contains_key("data-0-my-cluster-brokers-1"), "it is not written");
    let said = foreign(&world);
    assert_eq!(said.len(), 1);
    let expected =
        format!("{theirs} belongs to StatefulSet 'db', and Kafka 'my-cluster' needs an object of this name");
    assert!(said[0].contains(&expected), "{said:?}");
    assert!(decide(&world).look_again.is_some());
    // It is tried again later, and comes when the other one is gone.
    world.now = world.memory.strangers[theirs].until;
    let tried: Vec<_> = decide(&world).objects.iter().map(Object::describe).collect();
    assert_eq!(tried, [theirs]);
    world.memory.strangers.clear();
    converge(&mut world);
    assert!(world.pods.contains_key("my-cluster-brokers-1"));
    assert_eq!(foreign(&world), [""; 0]);
}

#[test]
fn without_its_own_service_account_no_new_pod_is_made_and_a_budget_stops_nobody() {
    let mut world = quickstart();
    world
        .memory
        .strangers
        .insert("ServiceAccount my-cluster-kafka".into(), stranger("Deployment 'x'", &world));
    converge(&mut world);
    assert!(world.pods.is_empty());
    let mut world = quickstart();
    world
        .memory
        .strangers
        .insert("PodDisruptionBudget my-cluster-kafka".into(), stranger("Deployment 'x'", &world));
    converge(&mut world);
    assert_eq!(world.pods.len(), 6);
    assert_eq!(foreign(&world).len(), 1);
}

#[test]
fn what_somebody_else_controls_is_neither_written_nor_deleted_though_it_has_our_labels() {
    let mut world = converged();
    let pods = world.pods.clone();
    let map = Arc::make_mut(world.config_maps.get_mut("my-cluster-brokers-2").unwrap());
    (map.meta.controller, map.digest) = (controller(), None);
    let account = Arc::make_mut(world.service_accounts.get_mut("my-cluster-kafka").unwrap());
    account.meta.controller = controller();
    account.meta.annotations.clear();
    account.meta.labels.remove("app.kubernetes.io/name");
    let claim = Arc::make_mut(world.claims.get_mut("data-0-my-cluster-brokers-2").unwrap());
    claim.meta.controller = controller();
    claim.meta.annotations.insert("strimzi.io/delete-claim".into(), "true".into());
    assert_eq!(decide(&world).objects, [], "it is not written");
    converge(&mut world);
    assert_eq!(foreign(&world).len(), 3);
    assert_eq!(world.pods, pods, "what runs goes on");
    // The broker goes, and what is somebody else's stays.
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 2);
    converge(&mut world);
    assert!(!world.pods.contains_key("my-cluster-brokers-2"));
    assert!(world.config_maps.contains_key("my-cluster-brokers-2"));
    assert!(world.claims.contains_key("data-0-my-cluster-brokers-2"));
}

#[test]
fn a_pod_whose_settings_are_somebody_elses_is_not_restarted() {
    let mut world = converged();
    let map = Arc::make_mut(world.config_maps.get_mut("my-cluster-brokers-2").unwrap());
    map.meta.controller = controller();
    let before = world.pods.clone();
    edit_kafka(&mut world, |kafka| {
        let settings = kafka.spec.kafka.config.get_or_insert_default();
        settings.insert("queued.max.requests".into(), 77.into());
    });
    converge(&mut world);
    let is_same = |pod: &str| world.pods[pod] == before[pod];
    assert!(!is_same("my-cluster-brokers-0") && !is_same("my-cluster-brokers-1"));
    assert!(is_same("my-cluster-brokers-2"));
}

#[test]
fn whose_an_object_is_shows_in_its_owners_then_its_labels_then_its_marks() {
    let world = converged();
    let id = world.kafka.status.as_ref().unwrap().cluster_id.clone().unwrap();
    let owner = |kind: &str, uid: &str, controls: bool| {
        serde_json::json!({"ownerReferences": [
            {"apiVersion": "v1", "kind": kind, "name": "x", "uid": uid, "controller": controls}
        ]})
    };
    let labels = |cluster: &str, kind: &str| serde_json::json!({"labels": {"strimzi.io/cluster": cluster, "strimzi.io/kind": kind}});
    let mut taken = labels("my-cluster", "Kafka");
    taken["ownerReferences"] = owner("StatefulSet", "uid-db", true)["ownerReferences"].clone();
    let cases = [
        (owner("Kafka", "uid-kafka", false), None),
        (labels("my-cluster", "Kafka"), None),
        (serde_json::json!({"annotations": {"karst.io/cluster-id": id}}), None),
        (taken, Some("StatefulSet 'x'")),
        (owner("StatefulSet", "uid-db", true), Some("StatefulSet 'x'")),
        (owner("Kafka", "uid-earlier", false), Some("Kafka 'x'")),
        (labels("other", "Kafka"), Some("Kafka 'other', as its labels say")),
        (labels("my-cluster", "KafkaConnect"), Some("KafkaConnect 'my-cluster', as its labels say")),
        (
            serde_json::json!({"annotations": {"karst.io/cluster-id": "other"}}),
            Some("the Kafka cluster with the id other, as its annotation says"),
        ),
        (
            serde_json::json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}}),
            Some("'Helm', as its label app.kubernetes.io/managed-by says"),
        ),
        (
            serde_json::json!({"managedFields": [{"manager": "kubectl"}, {"manager": "helm"}, {"manager": "helm"}]}),
            Some("whoever wrote it with helm, kubectl"),
        ),
        (serde_json::json!({}), Some("somebody who left no mark on it")),
    ];
    for (meta, expected) in cases {
        let told = karst_core::strangers::owner(&world, &serde_json::from_value(meta.clone()).unwrap());
        assert_eq!(told.as_deref(), expected, "{meta}");
    }
}
