//! Pools of a running cluster: growing, shrinking, moving nodes, deletion and conversion.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::support::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use karst_api as api;
use karst_core::ids::NodeId;
use karst_core::names::{POOL_FINALIZER, POOL_LABEL};
use karst_core::objects::Object;
use karst_core::plan::{Fact, Protection};
use karst_core::world::{Answer, Answers, ClaimView, Meta, PartitionView, Partitions, World};

fn on(nodes: &[i32], found: Vec<PartitionView>) -> Answer<Partitions> {
    Answer::Known(Partitions { of: nodes.iter().copied().map(NodeId).collect(), found })
}

fn ids(world: &World, pool: &str) -> Vec<i32> {
    world.pools[pool].status.as_ref().unwrap().node_ids.clone().unwrap()
}

fn scale(world: &mut World, pool: &str, replicas: i32) {
    edit_pool(world, pool, |pool| pool.spec.replicas = replicas);
}

fn annotate(world: &mut World, pool: &str, key: &str, value: &str) {
    edit_pool(world, pool, |pool| {
        pool.metadata.annotations.get_or_insert_default().insert(key.into(), value.into());
    });
}

fn warnings(world: &World, pool: &str) -> String {
    pool_conditions(world, pool, "Warning").into_iter().map(|(_, _, message)| message + "\n").collect()
}

/// An operator that has just started may see some kinds of objects later than others.
#[test]
fn a_node_whose_pod_and_certificate_are_not_seen_yet_stays() {
    let mut world = converged();
    world.pods.clear();
    world.secrets.retain(|name, _| !name.starts_with("my-cluster-controllers-"));
    for object in decide(&world).objects {
        if let karst_core::objects::Object::PodSet(set) = object {
            assert!(!set.spec.pods.is_empty(), "{:?} loses its pods", set.metadata.name);
        }
    }
}

/// A broker that is to go, and brokers that are to restart, ask for the partitions of different nodes. If each answer took the
/// place of the one before, they would ask in turn for ever.
#[test]
fn a_question_for_partitions_repeats_what_was_answered_before() {
    let mut world = converged();
    edit_kafka(&mut world, |kafka| {
        kafka.spec.kafka.config.get_or_insert_default().insert("queued.max.requests".into(), 300.into());
    });
    let mut kafka = Kafka::formed(&world);
    for _ in 0..50 {
        if !world.answers.partitions.was_asked() {
            world.answers.partitions = on(&[77], Vec::new());
        }
        let asked = decide(&world).questions.partitions_of;
        if !asked.is_empty() {
            assert!(asked.contains(&NodeId(77)) && asked.len() > 1, "{asked:?}");
            return;
        }
        step(&mut world, &mut kafka, &[]);
    }
    panic!("nobody asked for partitions");
}

#[test]
fn a_broker_with_partitions_stays_until_they_are_gone() {
    let mut world = converged();
    scale(&mut world, "brokers", 2);
    converge_with(&mut world, &[partition("orders", &[0, 2], &[0, 2], 1)]);
    assert_eq!(ids(&world, "brokers"), [0, 1, 2]);
    let warning = warnings(&world, "brokers");
    assert!(warning.contains("node 2") && warning.contains("orders-0"), "{warning}");

    // Nothing tells the operator that partitions moved, but it looks again.
    converge_with(&mut world, &[]);
    let plan = decide(&world);
    assert!(is_quiet(&plan));
    assert_eq!(ids(&world, "brokers"), [0, 1]);
    assert_eq!(warnings(&world, "brokers"), "");
}

#[test]
fn a_blocked_removal_is_looked_at_again_soon() {
    let mut world = converged();
    scale(&mut world, "brokers", 2);
    world.answers.partitions = on(&[2], vec![partition("orders", &[2], &[2], 1)]);
    assert!(decide(&world).look_again.is_some());
}

#[test]
fn only_the_nodes_concerned_stay() {
    let mut world = converged();
    scale(&mut world, "brokers", 1);
    converge_with(&mut world, &[partition("orders", &[1], &[1], 1)]);
    assert_eq!(ids(&world, "brokers"), [0, 1]);
}

#[test]
fn nothing_goes_while_kafka_is_silent() {
    let mut world = converged();
    scale(&mut world, "brokers", 1);
    world.answers.partitions = Answer::Silent("no route to host".into());
    let plan = decide(&world);
    assert_eq!((plan.objects.len(), plan.facts.len(), plan.removals.len()), (0, 0, 0));
    assert!(plan.look_again.is_some());
    carry_out(&mut world, plan);
    assert!(warnings(&world, "brokers").contains("no route to host"));
}

#[test]
fn the_check_can_be_skipped() {
    let mut world = converged();
    edit_kafka(&mut world, |kafka| {
        let annotations = kafka.metadata.annotations.get_or_insert_default();
        annotations.insert("strimzi.io/skip-broker-scaledown-check".into(), "true".into());
    });
    scale(&mut world, "brokers", 2);
    converge_with(&mut world, &[partition("orders", &[2], &[2], 1)]);
    assert_eq!(ids(&world, "brokers"), [0, 1]);
}

#[test]
fn an_id_is_given_up_only_after_its_pod_is_gone_and_its_objects_go_last() {
    let mut world = converged();
    scale(&mut world, "brokers", 2);
    world.answers.partitions = on(&[2], Vec::new());
    let plan = decide(&world);
    assert_eq!(plan.facts, [], "the id stays while the pod is there");
    carry_out(&mut world, plan);
    assert!(!world.pod_sets["my-cluster-brokers"].pods.contains_key("my-cluster-brokers-2"));

    // The pod still serves: what was true of it a moment ago need not be true any more.
    world.answers = Answers::default();
    assert_eq!(decide(&world).questions.partitions_of, [NodeId(2)].into());

    // The pod is on its way out.
    edit_pod(&mut world, "my-cluster-brokers-2", |pod| pod.meta.deleting = true);
    let plan = decide(&world);
    assert!(plan.questions.is_empty(), "nobody can hold it any more");
    assert_eq!((plan.facts.len(), plan.removals.len()), (0, 0));

    world.pods.remove("my-cluster-brokers-2");
    let plan = decide(&world);
    assert!(matches!(plan.facts.as_slice(), [Fact::PoolNodes { .. }]));
    carry_out(&mut world, plan);
    converge(&mut world);
    assert!(!world.config_maps.contains_key("my-cluster-brokers-2"));
    assert!(!world.claims.contains_key("data-0-my-cluster-brokers-2"), "the example has deleteClaim: true");
}

#[test]
fn a_claim_that_is_to_be_kept_is_kept() {
    let yaml = include_str!("../../../../deploy/examples/quickstart.yaml")
        .replace("deleteClaim: true", "deleteClaim: false");
    let mut world = world(&yaml);
    converge(&mut world);
    scale(&mut world, "brokers", 2);
    converge(&mut world);
    assert!(world.claims.contains_key("data-0-my-cluster-brokers-2"));
    assert!(!world.config_maps.contains_key("my-cluster-brokers-2"));
    // The id is free again, and its node finds its old disk.
    scale(&mut world, "brokers", 3);
    converge(&mut world);
    assert_eq!(ids(&world, "brokers"), [0, 1, 2]);
}

#[test]
fn users_steer_which_ids_come_and_go() {
    let mut world = converged();
    annotate(&mut world, "brokers", "strimzi.io/next-node-ids", "[1000-1010]");
    scale(&mut world, "brokers", 5);
    converge(&mut world);
    assert_eq!(ids(&world, "brokers"), [0, 1, 2, 1000, 1001]);
    annotate(&mut world, "brokers", "strimzi.io/remove-node-ids", "[0, 1000-1010]");
    scale(&mut world, "brokers", 3);
    converge(&mut world);
    assert_eq!(ids(&world, "brokers"), [1, 2, 1001]);
}

#[test]
fn a_node_moves_between_pools_in_one_apply() {
    let mut world = two_broker_pools();
    annotate(&mut world, "brokers", "strimzi.io/remove-node-ids", "[2]");
    annotate(&mut world, "more", "strimzi.io/next-node-ids", "[2]");
    scale(&mut world, "brokers", 2);
    scale(&mut world, "more", 2);
    for _ in 0..30 {
        let plan = decide(&world);
        if !plan.questions.partitions_of.is_empty() {
            let has_stopped = !world.pods.contains_key("my-cluster-brokers-2");
            let in_sync: &[i32] = if has_stopped { &[0, 1] } else { &[0, 1, 2] };
            world.answers.partitions = on(&[2], vec![partition("orders", &[0, 1, 2], in_sync, 2)]);
            continue;
        }
        world.answers = Answers::default();
        if is_quiet(&plan) {
            break;
        }
        carry_out(&mut world, plan);
        let alive: Vec<_> =
            world.pods.keys().chain(world.pod_sets.values().flat_map(|set| set.pods.keys())).collect();
        let moved: BTreeSet<_> = alive.iter().filter(|pod| pod.ends_with("-2")).collect();
        assert!(moved.len() <= 1, "the same id is alive twice: {moved:?}");
        run_pods(&mut world, true);
    }
    assert_eq!((ids(&world, "brokers"), ids(&world, "more")), (vec![0, 1], vec![2, 6]));
    assert!(world.pods.contains_key("my-cluster-more-2"));
}

#[test]
fn a_node_that_alone_has_a_partition_does_not_move() {
    let mut world = two_broker_pools();
    annotate(&mut world, "brokers", "strimzi.io/remove-node-ids", "[2]");
    annotate(&mut world, "more", "strimzi.io/next-node-ids", "[2]");
    scale(&mut world, "brokers", 2);
    scale(&mut world, "more", 2);
    converge_with(&mut world, &[partition("orders", &[0, 2], &[2], 1)]);
    assert_eq!((ids(&world, "brokers"), ids(&world, "more")), (vec![0, 1, 2], vec![6]));
    assert!(warnings(&world, "brokers").contains("orders-0"));
    assert!(warnings(&world, "more").contains("waits for node ids 2"));
}

fn two_broker_pools() -> World {
    let yaml = format!(
        "{}\n---\n{}",
        include_str!("../../../../deploy/examples/quickstart.yaml"),
        "apiVersion: kafka.strimzi.io/v1
kind: KafkaNodePool
metadata: {name: more, labels: {strimzi.io/cluster: my-cluster}}
spec: {replicas: 1, roles: [broker], storage: {type: ephemeral}}
"
    );
    let mut world = world(&yaml);
    converge(&mut world);
    assert_eq!(ids(&world, "more"), [6]);
    world
}

fn delete_pool(world: &mut World, name: &str) {
    let now = world.now;
    edit_pool(world, name, |pool| pool.metadata.deletion_timestamp = Some(Time(now)));
}

#[test]
fn a_deleted_pool_goes_after_its_partitions_and_takes_everything_with_it() {
    let mut world = two_broker_pools();
    assert!(world.pools["more"].metadata.finalizers.is_some(), "its deletion is guarded");
    delete_pool(&mut world, "more");
    converge_with(&mut world, &[partition("orders", &[6], &[6], 1)]);
    assert!(warnings(&world, "more").contains("orders-0"));
    assert!(world.pods.contains_key("my-cluster-more-6"));

    converge(&mut world);
    assert!(!world.pools.contains_key("more"));
    assert!(!world.pods.contains_key("my-cluster-more-6"));
    assert!(!world.pod_sets.contains_key("my-cluster-more"));
    assert!(!world.config_maps.contains_key("my-cluster-more-6"));
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
}

#[test]
fn a_deleted_pool_waits_for_what_could_not_be_deleted_of_its_nodes() {
    let mut world = two_broker_pools();
    delete_pool(&mut world, "more");
    let (map, secret) =
        (world.config_maps["my-cluster-more-6"].clone(), world.secrets["my-cluster-more-6"].clone());
    let pool = world.pools["more"].clone();
    converge(&mut world);

    // The pod is gone, and so is its pod set, and what is seen of the rest is old: whoever deletes it is refused.
    world.pools.insert("more".to_owned(), pool);
    edit_pool(&mut world, "more", |pool| pool.status.as_mut().unwrap().node_ids = Some(Vec::new()));
    world.config_maps.insert("my-cluster-more-6".to_owned(), map);
    assert!(decide(&world).protections.is_empty(), "its settings are left");
    world.config_maps.remove("my-cluster-more-6");
    world.secrets.insert("my-cluster-more-6".to_owned(), secret);
    assert!(decide(&world).protections.is_empty(), "its certificate is left");
    world.secrets.remove("my-cluster-more-6");
    assert_eq!(decide(&world).protections.get("more"), Some(&Protection::Remove));
}

/// An operator with an old view of a pool that has no nodes left can ask for them once more.
#[test]
fn nodes_that_came_back_after_their_pool_had_given_them_up_go_in_order_too() {
    let mut world = two_broker_pools();
    delete_pool(&mut world, "more");
    edit_pool(&mut world, "more", |pool| pool.status.as_mut().unwrap().node_ids = Some(Vec::new()));
    converge_with(&mut world, &[partition("orders", &[6], &[6], 1)]);
    assert!(world.pods.contains_key("my-cluster-more-6"), "a partition lives there");

    converge(&mut world);
    assert!(!world.pools.contains_key("more"));
    assert!(!world.pods.contains_key("my-cluster-more-6"));
    assert!(!world.pod_sets.contains_key("my-cluster-more"));
    assert!(!world.secrets.contains_key("my-cluster-more-6"));
}

/// What belongs to a pool that is gone, nobody can be asked about: it would stay for good.
#[test]
fn nothing_is_made_for_a_new_pool_before_its_deletion_waits_for_its_nodes() {
    let mut world = two_broker_pools();
    let mut late = (*world.pools["more"]).clone();
    late.metadata.name = Some("late".into());
    (late.metadata.finalizers, late.status) = (None, None);
    world.pools.insert("late".into(), std::sync::Arc::new(late));
    for _ in 0..10 {
        let plan = decide(&world);
        let is_protected = world.pools["late"].metadata.finalizers.is_some();
        let labelled = |object: &Object| object.meta().labels.as_ref()?.get(POOL_LABEL).cloned();
        let made = plan.objects.iter().chain(&plan.services).filter_map(labelled);
        let certified = plan.certificates.iter().filter_map(|issue| issue.pool().map(str::to_owned));
        let begins = made.chain(certified).any(|pool| pool == "late");
        assert!(is_protected || !begins, "{plan:?}");
        if begins {
            converge(&mut world);
            assert!(world.pods.contains_key("my-cluster-late-7"));
            return;
        }
        carry_out(&mut world, plan);
    }
    panic!("nothing is made for it at all");
}

/// A view can be so old that it shows a pool which is gone, and nothing of what went with it.
#[test]
fn a_plan_names_the_pools_that_it_makes_something_new_for() {
    let mut world = two_broker_pools();
    assert_eq!(decide(&world).begins(), BTreeSet::new());
    edit_kafka(&mut world, |kafka| {
        let config = kafka.spec.kafka.config.get_or_insert_default();
        config.insert("num.io.threads".into(), serde_json::json!(9));
    });
    let plan = decide(&world);
    assert!(!plan.objects.is_empty());
    assert_eq!(plan.begins(), BTreeSet::new(), "what is only changed is there");

    world.secrets.remove("my-cluster-more-6");
    assert_eq!(decide(&world).begins(), ["more"].into());
    converge(&mut world);
    world.config_maps.remove("my-cluster-more-6");
    assert_eq!(decide(&world).begins(), ["more"].into());
    converge(&mut world);
    world.pod_sets.remove("my-cluster-more");
    assert_eq!(decide(&world).begins(), ["more"].into());
    assert_eq!(decide(&quickstart()).begins(), BTreeSet::new(), "nothing is made before facts are durable");
}

#[test]
fn a_pool_that_runs_and_lost_its_finalizer_gets_it_back_and_waits_for_nothing() {
    let mut world = two_broker_pools();
    edit_pool(&mut world, "more", |pool| pool.metadata.finalizers = None);
    world.config_maps.remove("my-cluster-more-6");
    let plan = decide(&world);
    assert_eq!(plan.facts, []);
    assert_eq!(plan.protections.get("more"), Some(&Protection::Add));
    assert!(plan.objects.iter().any(|object| object.describe() == "ConfigMap my-cluster-more-6"));
}

#[test]
fn the_only_pool_of_controllers_stays_when_it_is_deleted() {
    let mut world = converged();
    delete_pool(&mut world, "controllers");
    converge(&mut world);
    assert_eq!(world.pods.len(), 6);
    assert!(conditions(&world, "Ready")[0].2.contains("no pool with the role controller"));
}

#[test]
fn a_deleted_pool_without_a_cluster_is_released_at_once() {
    let mut world = converged();
    delete_pool(&mut world, "brokers");
    let released = karst_core::plan::released_without_kafka(&world.pools);
    assert_eq!(released.into_iter().collect::<Vec<_>>(), [("brokers".to_owned(), Protection::Remove)]);
}

/// Somebody makes a pool, which is protected at once.
fn add_pool(world: &mut World, name: &str, edit: impl FnOnce(&mut api::KafkaNodePool)) {
    let mut pool = api::KafkaNodePool::clone(&world.pools["brokers"]);
    pool.metadata.name = Some(name.into());
    pool.metadata.uid = Some(format!("uid-{name}"));
    pool.metadata.finalizers = Some(vec![POOL_FINALIZER.into()]);
    pool.status = None;
    edit(&mut pool);
    world.pools.insert(name.into(), Arc::new(pool));
}

#[test]
fn a_deleted_pool_that_was_never_valid_waits_for_nothing() {
    let mut world = converged();
    add_pool(&mut world, "wrong", |pool| pool.spec.roles.clear());
    converge(&mut world);
    assert!(world.pools.contains_key("wrong"));
    delete_pool(&mut world, "wrong");
    assert_eq!(decide(&world).protections.get("wrong"), Some(&Protection::Remove));
    converge(&mut world);
    assert!(!world.pools.contains_key("wrong"));
    assert_eq!(world.pods.len(), 6);
}

#[test]
fn a_deleted_pool_that_runs_and_became_invalid_is_not_let_go() {
    let mut world = two_broker_pools();
    edit_pool(&mut world, "more", |pool| pool.spec.roles.clear());
    delete_pool(&mut world, "more");
    converge(&mut world);
    assert!(world.pools.contains_key("more"), "its nodes still run");
    // Also when everything but a pod is gone by hand.
    world.pod_sets.remove("my-cluster-more");
    assert_eq!(decide(&world).protections.get("more"), None);
    let mut bare = world.clone();
    bare.config_maps.retain(|name, _| !name.contains("more"));
    bare.secrets.retain(|name, _| !name.contains("more"));
    bare.claims.retain(|name, _| !name.contains("more"));
    assert!(bare.pods.keys().any(|name| name.contains("more")));
    assert_eq!(decide(&bare).protections.get("more"), None, "a pod is there, and nothing else");
    world.pods.retain(|name, _| !name.contains("more"));
    assert_eq!(decide(&world).protections.get("more"), None, "its settings are still there");
    world.config_maps.retain(|name, _| !name.contains("more"));
    world.secrets.retain(|name, _| !name.contains("more"));
    let meta = Meta { labels: [(POOL_LABEL.into(), "more".into())].into(), ..Meta::default() };
    world.claims.insert("kept".into(), Arc::new(ClaimView { meta, ..ClaimView::default() }));
    assert_eq!(decide(&world).protections.get("more"), None, "it remembers a node, and there is a disk");
    world.claims.remove("kept");
    assert_eq!(decide(&world).protections.get("more"), Some(&Protection::Remove));
}

#[test]
fn a_pool_that_was_relabelled_and_is_deleted_waits_for_nothing_here() {
    let mut world = converged();
    add_pool(&mut world, "foreign", |pool| {
        let status = serde_json::json!({"clusterId": "somebody-elses", "nodeIds": [7]});
        pool.status = serde_json::from_value(status).unwrap();
    });
    converge(&mut world);
    delete_pool(&mut world, "foreign");
    assert_eq!(decide(&world).protections.get("foreign"), Some(&Protection::Remove));
}

#[test]
fn a_deleted_pool_waits_for_nothing_when_the_cluster_cannot_be_carried_out_and_nothing_of_it_is_there() {
    let mut world = quickstart();
    edit_kafka(&mut world, |kafka| kafka.spec.kafka.version = Some("1.2.3".into()));
    add_pool(&mut world, "early", |_| {});
    delete_pool(&mut world, "early");
    let plan = karst_core::plan::plan(&world).unwrap();
    assert_eq!(plan.protections.into_iter().collect::<Vec<_>>(), [("early".to_owned(), Protection::Remove)]);

    let mut world = converged();
    edit_kafka(&mut world, |kafka| kafka.spec.kafka.version = Some("1.2.3".into()));
    delete_pool(&mut world, "brokers");
    assert_eq!(decide(&world).protections, BTreeMap::new(), "its nodes run");
}

#[test]
fn a_pool_that_is_not_used_and_is_deleted_waits_for_nothing() {
    let mut world = old_cluster();
    for name in ["kafka", "more"] {
        convert(&mut world, name, |pool| pool.metadata.finalizers = Some(vec![POOL_FINALIZER.into()]));
        delete_pool(&mut world, name);
    }
    edit_kafka(&mut world, |kafka| kafka.metadata.annotations = None);
    let going = ["kafka", "more"].map(|name| (name.to_owned(), Protection::Remove));
    assert_eq!(decide(&world).protections.into_iter().collect::<Vec<_>>(), going);
    converge(&mut world);
    assert_eq!((world.pools.len(), world.pods.len()), (0, 3));
}

#[test]
fn a_deleted_pool_of_a_cluster_that_nobody_here_looks_after_goes_only_without_nodes() {
    let mut world = converged();
    let release = |world: &World| {
        let World { key, pools, pod_sets, pods, .. } = world;
        karst_core::plan::released_without_care(key, pools, pod_sets, pods)
    };
    delete_pool(&mut world, "brokers");
    assert_eq!(release(&world), BTreeMap::new());
    world.pod_sets.remove("my-cluster-brokers");
    assert_eq!(release(&world), BTreeMap::new(), "its pods are still there");
    world.pods.retain(|name, _| !name.contains("brokers"));
    let released: Vec<_> = release(&world).into_iter().collect();
    assert_eq!(released, [("brokers".to_owned(), Protection::Remove)]);
}

#[test]
fn the_last_brokers_are_not_removed() {
    let mut world = converged();
    scale(&mut world, "brokers", 0);
    let before = world.pods.len();
    converge(&mut world);
    assert_eq!(world.pods.len(), before);
    assert!(conditions(&world, "Ready")[0].2.contains("role broker"));
}

/// A cluster as it was before there were pools, at rest.
fn old_cluster() -> World {
    let mut world = without_pools();
    converge(&mut world);
    world
}

fn convert(world: &mut World, name: &str, edit: impl FnOnce(&mut api::KafkaNodePool)) {
    let mut pool: api::KafkaNodePool = serde_json::from_value(serde_json::json!({
        "apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaNodePool",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": "uid-pool", "generation": 1, "resourceVersion": "1",
                     "labels": {"strimzi.io/cluster": "old"}},
        "spec": {"replicas": 3, "roles": ["controller", "broker"], "storage": {"type": "persistent-claim", "size": "1Gi"}}
    }))
    .unwrap();
    edit(&mut pool);
    world.pools.insert(name.into(), std::sync::Arc::new(pool));
    edit_kafka(world, |kafka| {
        let annotations = kafka.metadata.annotations.get_or_insert_default();
        annotations.insert("strimzi.io/node-pools".into(), "enabled".into());
    });
}

#[test]
fn a_cluster_is_converted_to_pools_without_touching_a_pod_or_a_claim() {
    let mut world = old_cluster();
    let (sets, claims) = (world.pod_sets.clone(), world.claims.clone());
    convert(&mut world, "kafka", |_| {});
    for _ in 0..10 {
        let plan = decide(&world);
        assert_eq!((plan.objects.as_slice(), plan.restarts.as_slice()), ([].as_slice(), [].as_slice()));
        carry_out(&mut world, plan);
    }
    assert!(is_quiet(&decide(&world)));
    assert_eq!((world.pod_sets.clone(), world.claims.clone()), (sets, claims));
    assert_eq!(ids(&world, "kafka"), [0, 1, 2]);
    // The fields that pools replaced can go.
    edit_kafka(&mut world, |kafka| (kafka.spec.kafka.replicas, kafka.spec.kafka.storage) = (None, None));
    converge(&mut world);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
}

#[test]
fn wrong_conversions_leave_running_nodes_alone() {
    type Edit = fn(&mut api::KafkaNodePool);
    let wrong: [(&str, Edit, usize); 3] = [
        ("kafka", |pool| pool.spec.replicas = 1, 3),
        ("kafka", |pool| pool.spec.storage.size = Some("5Gi".into()), 3),
        // The new pool is carried out; the nodes of the old one stay.
        ("other", |_| {}, 6),
    ];
    for (name, edit, nodes) in wrong {
        let mut world = old_cluster();
        let pods: Vec<_> = world.pod_sets["old-kafka"].pods.clone().into_iter().collect();
        convert(&mut world, name, edit);
        for _ in 0..10 {
            let plan = decide(&world);
            carry_out(&mut world, plan);
            run_pods(&mut world, true);
        }
        assert_eq!(world.pod_sets["old-kafka"].pods.clone().into_iter().collect::<Vec<_>>(), pods, "{name}");
        assert_eq!(world.pods.len(), nodes, "{name}");
    }
}

#[test]
fn replicas_removed_before_the_pool_exists_harms_nothing() {
    let mut world = old_cluster();
    edit_kafka(&mut world, |kafka| kafka.spec.kafka.replicas = None);
    for _ in 0..5 {
        let plan = decide(&world);
        assert_eq!((plan.objects.len(), plan.removals.len()), (0, 0));
        carry_out(&mut world, plan);
    }
    assert_eq!(world.pods.len(), 3);
    assert!(conditions(&world, "Ready")[0].2.contains("KafkaNodePool"));
}

#[test]
fn an_annotation_that_cannot_be_followed_is_said_and_the_default_rule_used() {
    let mut world = converged();
    annotate(&mut world, "brokers", "strimzi.io/next-node-ids", "[5,7---9]");
    converge(&mut world);
    assert_eq!(warnings(&world, "brokers"), "", "it matters only when the pool is scaled");
    scale(&mut world, "brokers", 4);
    converge(&mut world);
    assert_eq!(ids(&world, "brokers"), [0, 1, 2, 6]);
    let warning = warnings(&world, "brokers");
    assert!(warning.contains("7---9") && warning.contains("strimzi.io/next-node-ids"), "{warning}");
}
