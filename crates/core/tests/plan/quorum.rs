//! Who votes: controllers that come and go, roles that change, disks that are lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use karst_api::{self as api, Role};
use karst_core::ids::{Entropy, NodeId};
use karst_core::membership::{Change, Leaving};
use karst_core::world::{Answer, World};

fn ids(kafka: &Kafka) -> Vec<i32> {
    let mut ids: Vec<_> = kafka.voters.iter().map(|voter| voter.node.0).collect();
    ids.sort_unstable();
    ids
}

fn controllers(world: &World) -> Vec<String> {
    let running = world.pods.iter().filter(|(_, pod)| pod.runs_controller());
    running.map(|(name, _)| name.trim_start_matches("my-cluster-").to_owned()).collect()
}

fn scale(world: &mut World, pool: &str, replicas: i32) {
    edit_pool(world, pool, |pool| pool.spec.replicas = replicas);
}

pub(crate) fn pool(name: &str, replicas: i32, roles: &str) -> api::KafkaNodePool {
    let yaml = format!(
        "apiVersion: kafka.strimzi.io/v1
kind: KafkaNodePool
metadata: {{name: {name}, namespace: {NAMESPACE}, uid: uid-{name}, generation: 1, resourceVersion: \"1\", labels: {{strimzi.io/cluster: my-cluster}}}}
spec: {{replicas: {replicas}, roles: [{roles}], storage: {{type: ephemeral}}}}"
    );
    serde_saphyr::from_str(&yaml).unwrap()
}

/// Goes on until nothing is left to do, and checks after every step what must always hold.
fn converge_safely(world: &mut World, kafka: &mut Kafka, fewest: usize) {
    for _ in 0..300 {
        let before: BTreeSet<_> = kafka.voters.iter().copied().collect();
        let pods: Vec<_> = world.pods.keys().cloned().collect();
        if !step(world, kafka, &[]) {
            return;
        }
        let after: BTreeSet<_> = kafka.voters.iter().copied().collect();
        assert!(before.symmetric_difference(&after).count() <= 1, "more than one change at once");
        assert!(kafka.voters.len() >= fewest, "only {:?} vote", ids(kafka));
        for pod in pods.iter().filter(|pod| !world.pods.contains_key(*pod)) {
            let node = karst_core::names::node_of_pod(pod).unwrap();
            assert!(!before.iter().any(|voter| voter.node == node), "the pod of voter {node} was removed");
        }
    }
    panic!("it never comes to rest: {:?}", decide(world));
}

#[test]
fn controllers_are_added_and_removed_by_replicas() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    let initial = world.kafka.status.as_ref().unwrap().initial_controllers.clone();
    for (replicas, voters) in [(5, vec![3, 4, 5, 6, 7]), (3, vec![3, 4, 5]), (1, vec![3]), (3, vec![3, 4, 5])]
    {
        scale(&mut world, "controllers", replicas);
        converge_safely(&mut world, &mut kafka, 1);
        assert_eq!(ids(&kafka), voters);
        assert_eq!(controllers(&world).len(), voters.len());
        assert_eq!(world.config_maps.len(), 3 + voters.len());
        assert_eq!(conditions(&world, "Ready")[0].0, "True");
    }
    assert_eq!(world.kafka.status.as_ref().unwrap().initial_controllers, initial, "written once");
    let formats: BTreeSet<_> = world.config_maps.values().map(|map| map.storage_format.clone()).collect();
    assert_eq!(formats, [Some("join".into())].into());
}

#[test]
fn the_list_of_bootstrap_servers_follows_and_restarts_nothing() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    let uids: Vec<_> = world.pods.values().map(|pod| pod.revision().map(str::to_owned)).collect();
    scale(&mut world, "controllers", 5);
    for _ in steps(100) {
        assert_eq!(decide(&world).restarts, []);
        if !step(&mut world, &mut kafka, &[]) {
            break;
        }
    }
    assert_eq!(ids(&kafka), [3, 4, 5, 6, 7]);
    let after: Vec<_> =
        world.pods.iter().filter(|(name, _)| !name.ends_with("-6") && !name.ends_with("-7")).collect();
    assert_eq!(after.into_iter().map(|(_, pod)| pod.revision().map(str::to_owned)).collect::<Vec<_>>(), uids);
}

#[test]
fn one_pool_of_controllers_replaces_another_and_three_always_vote() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    world.pools.insert("fresh".into(), Arc::new(pool("fresh", 3, "controller")));
    edit_pool(&mut world, "controllers", |pool| {
        pool.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
    });
    converge_safely(&mut world, &mut kafka, 3);
    assert_eq!(ids(&kafka), [6, 7, 8]);
    assert!(!world.pools.contains_key("controllers"));
    assert_eq!(world.pods.keys().filter(|pod| pod.contains("controllers")).count(), 0);
}

#[test]
fn roles_are_added_and_removed_and_a_voter_leaves_before_it_restarts() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    edit_pool(&mut world, "brokers", |pool| pool.spec.roles.push(Role::Controller));
    converge_safely(&mut world, &mut kafka, 3);
    assert_eq!(ids(&kafka), [0, 1, 2, 3, 4, 5]);
    edit_pool(&mut world, "brokers", |pool| pool.spec.roles = vec![Role::Broker]);
    for _ in steps(200) {
        let restarted: Vec<_> = decide(&world).restarts.into_iter().map(|restart| restart.node).collect();
        assert!(restarted.iter().all(|node| kafka.voters.iter().all(|voter| voter.node != *node)));
        if !step(&mut world, &mut kafka, &[]) {
            break;
        }
    }
    assert_eq!(ids(&kafka), [3, 4, 5]);
    assert!(world.pods["my-cluster-brokers-0"].runs_broker());
    assert!(!world.pods["my-cluster-brokers-0"].runs_controller());
}

#[test]
fn brokers_restart_before_the_last_controller_that_they_know_leaves() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    world.pools.insert("fresh".into(), Arc::new(pool("fresh", 3, "controller")));
    edit_pool(&mut world, "controllers", |pool| {
        pool.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
    });
    let knows = |world: &World, kafka: &Kafka| {
        world.pods.iter().filter(|(_, pod)| pod.runs_broker()).all(|(_, pod)| {
            let known = &pod.meta.annotations["karst.io/quorum-pods"];
            kafka
                .voters
                .iter()
                .any(|voter| known.split(',').any(|one| one.ends_with(&format!("-{}", voter.node))))
        })
    };
    while step(&mut world, &mut kafka, &[]) {
        assert!(knows(&world, &kafka), "{:?}", kafka.voters);
    }
    assert_eq!(ids(&kafka), [6, 7, 8]);
    assert!(world.pods["my-cluster-brokers-0"].meta.annotations["karst.io/quorum-pods"].contains("fresh-6"));
}

#[test]
fn controllers_that_take_over_find_those_that_still_vote() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    edit_pool(&mut world, "brokers", |pool| pool.spec.roles.push(Role::Controller));
    converge_safely(&mut world, &mut kafka, 3);
    // The brokers vote. From now on they are not to.
    edit_pool(&mut world, "brokers", |pool| pool.spec.roles = vec![Role::Broker]);
    while world.pools["brokers"].status.as_ref().unwrap().roles != Some(vec![Role::Broker]) {
        assert!(step(&mut world, &mut kafka, &[]));
    }
    let servers =
        setting(&world, &kafka, "my-cluster-controllers-3", "controller.quorum.bootstrap.servers").unwrap();
    assert!(
        servers.contains("my-cluster-brokers-0.") && servers.contains("my-cluster-controllers-3."),
        "{servers}"
    );
}

#[test]
fn combined_nodes_become_separate_ones_and_back() {
    let mut world = world(
        "apiVersion: kafka.strimzi.io/v1
kind: Kafka
metadata: {name: my-cluster}
spec:
  kafka:
    version: 4.1.1
    listeners: [{name: plain, port: 9092, type: internal, tls: false}]
    config: {default.replication.factor: 3, min.insync.replicas: 2}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaNodePool
metadata: {name: both, labels: {strimzi.io/cluster: my-cluster}}
spec: {replicas: 3, roles: [controller, broker], storage: {type: ephemeral}}",
    );
    converge(&mut world);
    let mut kafka = Kafka::formed(&world);
    world.pools.insert("voters".into(), Arc::new(pool("voters", 3, "controller")));
    edit_pool(&mut world, "both", |pool| pool.spec.roles = vec![Role::Broker]);
    converge_safely(&mut world, &mut kafka, 3);
    assert_eq!((ids(&kafka), controllers(&world).len()), (vec![3, 4, 5], 3));
    edit_pool(&mut world, "both", |pool| pool.spec.roles = vec![Role::Broker, Role::Controller]);
    edit_pool(&mut world, "voters", |pool| {
        pool.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
    });
    converge_safely(&mut world, &mut kafka, 3);
    assert_eq!((ids(&kafka), world.pods.len()), (vec![0, 1, 2], 3));
}

#[test]
fn brokers_with_partitions_keep_their_role_and_the_partitions_are_named() {
    let mut world = converged();
    edit_pool(&mut world, "brokers", |pool| pool.spec.roles.push(Role::Controller));
    let mut kafka = Kafka::formed(&world);
    converge_kafka(&mut world, &mut kafka, &[]);
    edit_pool(&mut world, "brokers", |pool| pool.spec.roles = vec![Role::Controller]);
    // Somebody must serve.
    world.pools.insert("other".into(), Arc::new(pool("other", 1, "broker")));
    let lives = partition("orders", &[1], &[1], 1);
    converge_kafka(&mut world, &mut kafka, &[lives]);
    let warning = &pool_conditions(&world, "brokers", "Warning")[0].2;
    assert!(warning.contains("node 1: orders-0"), "{warning}");
    assert!(world.pods["my-cluster-brokers-0"].runs_broker());
    converge_kafka(&mut world, &mut kafka, &[]);
    assert!(!world.pods["my-cluster-brokers-0"].runs_broker());
}

#[test]
fn a_change_that_is_reverted_half_way_is_undone() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    for steps in 1..12 {
        scale(&mut world, "controllers", 5);
        for _ in 0..steps {
            step(&mut world, &mut kafka, &[]);
        }
        scale(&mut world, "controllers", 3);
        converge_safely(&mut world, &mut kafka, 3);
        assert_eq!(ids(&kafka), [3, 4, 5], "after {steps} steps");
    }
}

#[test]
fn nothing_goes_while_the_quorum_is_silent() {
    let mut world = converged();
    scale(&mut world, "controllers", 1);
    world.answers.quorum = Answer::Silent("no leader".into());
    let plan = decide(&world);
    assert_eq!((plan.change(), plan.objects.len()), (None, 0));
    // An election takes a moment. What lasts is said.
    let plan = decide(&world);
    carry_out(&mut world, plan);
    assert_eq!(pool_conditions(&world, "controllers", "Warning"), []);
    let (status, reason, message) = conditions(&world, "QuorumHealthy").remove(0);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NoLeader"));
    assert!(message.contains("my-cluster-controllers-3 is ready"), "{message}");
    let plan = decide(&world);
    carry_out(&mut world, plan);
    assert!(pool_conditions(&world, "controllers", "Warning")[0].2.contains("no leader"));
}

#[test]
fn the_status_tells_who_votes_and_what_is_still_to_change() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    let quorum = world.kafka.status.clone().unwrap().quorum.unwrap();
    assert_eq!((quorum.leader, quorum.voter_ids), (Some(3), Some(vec![3, 4, 5])));
    assert_eq!(conditions(&world, "QuorumHealthy")[0].0, "True");
    assert_eq!(conditions(&world, "QuorumReconciled")[0].0, "True");
    scale(&mut world, "controllers", 5);
    let seen = std::iter::from_fn(|| {
        step(&mut world, &mut kafka, &[]).then(|| conditions(&world, "QuorumReconciled").remove(0).2)
    });
    let seen: BTreeSet<_> = seen.collect();
    assert!(seen.contains("to join: 6, 7") && seen.contains("to join: 7"), "{seen:?}");
    assert_eq!(conditions(&world, "QuorumReconciled")[0].0, "True");
}

#[test]
fn a_voter_whose_removal_could_be_undone_keeps_its_pod() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    scale(&mut world, "controllers", 2);
    kafka.voters.retain(|voter| voter.node != NodeId(5));
    let mut answer = kafka.quorum(&world);
    if let Answer::Known(quorum) = &mut answer {
        quorum.is_committed = false;
    }
    world.answers.quorum = answer;
    let plan = decide(&world);
    assert_eq!(plan.objects, []);
    assert!(plan.look_again.unwrap() < Duration::from_secs(1), "it is looked at again soon");
    world.answers.quorum = kafka.quorum(&world);
    assert!(!decide(&world).objects.is_empty());
}

#[test]
fn a_scale_down_that_could_cost_the_majority_is_held_and_names_the_voters() {
    let mut world = converged();
    let kafka = Kafka::formed(&world);
    scale(&mut world, "controllers", 2);
    let mut answer = kafka.quorum(&world);
    if let Answer::Known(quorum) = &mut answer {
        quorum.voters[1].behind = Some(Duration::from_secs(60));
    }
    world.answers.quorum = answer;
    let plan = decide(&world);
    assert_eq!(plan.change(), None);
    carry_out(&mut world, plan);
    let warning =
        conditions(&world, "Warning").into_iter().find(|(_, reason, _)| reason == "QuorumChangeHeld");
    assert!(warning.unwrap().2.contains("not so: 4"));
}

#[test]
fn a_dead_voter_that_is_not_wanted_leaves_before_anybody_joins() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    scale(&mut world, "controllers", 5);
    converge_kafka(&mut world, &mut kafka, &[]);
    edit_pool(&mut world, "controllers", |pool| {
        pool.spec.replicas = 4;
        let annotations = pool.metadata.annotations.get_or_insert_default();
        annotations.insert("strimzi.io/remove-node-ids".into(), "[4]".into());
    });
    let mut answer = kafka.quorum(&world);
    if let Answer::Known(quorum) = &mut answer {
        let dead = quorum.voters.iter_mut().find(|voter| voter.node == NodeId(4)).unwrap();
        dead.behind = None;
    }
    world.answers.quorum = answer;
    let change = decide(&world).change().cloned();
    assert!(
        matches!(change, Some(Change::Leave { voter, why: Leaving::NotWanted }) if voter.node == NodeId(4))
    );
}

/// The leader would send it a heartbeat, and die of an answer that comes when it is no voter any more.
#[test]
fn a_living_voter_leaves_only_while_it_keeps_up_with_the_leader() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    scale(&mut world, "controllers", 5);
    converge_kafka(&mut world, &mut kafka, &[]);
    scale(&mut world, "controllers", 3);
    for (behind, leaves) in [(0, true), (900, true), (1_100, false), (1_900, false)] {
        let mut answer = kafka.quorum(&world);
        let Answer::Known(quorum) = &mut answer else { panic!("nobody leads") };
        for voter in quorum.voters.iter_mut().filter(|voter| [NodeId(6), NodeId(7)].contains(&voter.node)) {
            voter.behind = Some(Duration::from_millis(behind));
        }
        world.answers.quorum = answer;
        let plan = decide(&world);
        assert_eq!(plan.change().is_some(), leaves, "{behind} ms behind");
        assert!(plan.look_again.is_some_and(|soon| soon < Duration::from_secs(1)), "{behind} ms behind");
    }
}

/// It would write that down and be gone before anybody has copied it; then it stands no more, and refuses its vote to all others.
#[test]
fn a_leader_on_its_way_out_is_not_told_to_leave() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    scale(&mut world, "controllers", 4);
    converge_safely(&mut world, &mut kafka, 3);
    edit_pool(&mut world, "controllers", |pool| {
        pool.spec.replicas = 3;
        let annotations = pool.metadata.annotations.get_or_insert_default();
        annotations.insert("strimzi.io/remove-node-ids".into(), "[3]".into());
    });
    world.answers.quorum = kafka.quorum(&world);
    let pod = "my-cluster-controllers-3";
    let leaves = |world: &World| {
        let change = decide(world).change().cloned();
        matches!(change, Some(Change::Leave { voter, why: Leaving::NotWanted }) if voter.node == NodeId(3))
    };
    for (leader, is_told) in [(3, false), (4, true)] {
        let Answer::Known(quorum) = &mut world.answers.quorum else { panic!("nobody leads") };
        quorum.leader = NodeId(leader);
        Arc::make_mut(world.pods.get_mut(pod).unwrap()).meta.deleting = true;
        assert_eq!(leaves(&world), is_told, "node {leader} leads, and {pod} is going");
        Arc::make_mut(world.pods.get_mut(pod).unwrap()).meta.deleting = false;
        assert!(leaves(&world), "node {leader} leads, and {pod} stays");
    }
}

#[test]
fn a_controller_that_lost_its_disk_is_replaced_as_a_voter() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    kafka.disks.insert(NodeId(4), Entropy([5; 32]).directory_id(NodeId(4)));
    let mut answer = kafka.quorum(&world);
    world.answers.quorum = answer.clone();
    let change = decide(&world).change().cloned();
    assert!(
        matches!(change, Some(Change::Leave { voter, why: Leaving::DiskReplaced }) if voter.node == NodeId(4))
    );
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(ids(&kafka), [3, 4, 5]);
    assert_eq!(
        kafka.voters.iter().find(|voter| voter.node == NodeId(4)).unwrap().directory,
        kafka.disks[&NodeId(4)]
    );

    // Not while another voter is down: the majority of intact disks comes first.
    kafka.disks.insert(NodeId(5), Entropy([6; 32]).directory_id(NodeId(5)));
    answer = kafka.quorum(&world);
    if let Answer::Known(quorum) = &mut answer {
        quorum.voters.iter_mut().find(|voter| voter.node == NodeId(4)).unwrap().behind =
            Some(Duration::from_secs(9));
    }
    world.answers.quorum = answer;
    assert_eq!(decide(&world).change(), None);
}

#[test]
fn controllers_of_a_pool_that_vanished_or_is_not_valid_are_left_alone() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    world.pools.insert("more".into(), Arc::new(pool("more", 2, "controller")));
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(ids(&kafka), [3, 4, 5, 6, 7]);
    edit_pool(&mut world, "more", |pool| pool.spec.roles.clear());
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(ids(&kafka), [3, 4, 5, 6, 7]);
    world.pools.remove("more");
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!((ids(&kafka), world.pods.len()), (vec![3, 4, 5, 6, 7], 8));
}

/// A cluster that was made before quorums were dynamic: its disks are there, though none has our labels, and its id is known.
pub(crate) fn static_cluster() -> (World, Kafka) {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    kafka.is_static = true;
    edit_kafka(&mut world, |kafka| {
        let status = kafka.status.as_mut().unwrap();
        (status.initial_controllers, status.quorum) = (None, None);
    });
    (world.pods, world.pod_sets, world.config_maps, world.claims) = Default::default();
    (world, kafka)
}

pub(crate) fn setting(world: &World, kafka: &Kafka, node: &str, key: &str) -> Option<String> {
    let mut world = World { config_maps: Default::default(), ..world.clone() };
    world.answers.quorum = kafka.quorum(&world);
    world.answers.registered = kafka.clone().registered(&world);
    let plan = karst_core::plan::plan(&world).unwrap();
    let map = plan.objects.into_iter().find_map(|object| match object {
        karst_core::objects::Object::ConfigMap(map) if map.metadata.name.as_deref() == Some(node) => map.data,
        _ => None,
    });
    let config = map.unwrap().remove("server.config").unwrap();
    config.lines().find_map(|line| line.strip_prefix(&format!("{key}=")).map(str::to_owned))
}

#[test]
fn a_static_cluster_is_run_as_one_and_its_controllers_are_not_scaled() {
    let (mut world, mut kafka) = static_cluster();
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    let status = world.kafka.status.clone().unwrap();
    assert_eq!(status.initial_controllers, None);
    assert_eq!(status.quorum.unwrap().kind, Some(api::QuorumKind::Static));
    let node = "my-cluster-controllers-3";
    assert!(
        setting(&world, &kafka, node, "controller.quorum.voters")
            .unwrap()
            .starts_with("3@my-cluster-controllers-3")
    );
    assert_eq!(setting(&world, &kafka, node, "controller.quorum.bootstrap.servers"), None);
    assert!(world.config_maps.values().all(|map| map.storage_format.as_deref() == Some("static")));

    scale(&mut world, "controllers", 5);
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(world.pods.len(), 6);
    assert!(pool_conditions(&world, "controllers", "Warning")[0].2.contains("kraft-quorum-migration"));
}

/// A static cluster that was written down with its id, of which otherwise only the disks are left.
fn static_disks_only() -> (World, Kafka) {
    let (mut world, mut kafka) = static_cluster();
    converge_kafka(&mut world, &mut kafka, &[]);
    edit_kafka(&mut world, |kafka| {
        let cluster_id = kafka.status.take().unwrap().cluster_id;
        kafka.status = Some(api::KafkaStatus { cluster_id, ..api::KafkaStatus::default() });
    });
    lose_all_but_disks(&mut world);
    (world, kafka)
}

#[test]
fn the_disks_of_a_static_cluster_whose_pools_forgot_their_nodes_are_found_again() {
    let (mut world, mut kafka) = static_disks_only();
    let claims: Vec<_> = world.claims.values().map(|claim| claim.meta.uid.clone()).collect();
    while step(&mut world, &mut kafka, &[]) {
        for map in world.config_maps.values() {
            assert_ne!(map.storage_format.as_deref(), Some("initial"), "no node may form a quorum");
        }
    }
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    for (pool, ids) in [("brokers", vec![0, 1, 2]), ("controllers", vec![3, 4, 5])] {
        assert_eq!(world.pools[pool].status.as_ref().unwrap().node_ids, Some(ids));
    }
    assert!(world.claims.values().map(|claim| &claim.meta.uid).eq(&claims));
    assert_eq!(world.kafka.status.as_ref().unwrap().initial_controllers, None, "it is static as before");
}

#[test]
fn more_disks_of_a_static_cluster_than_nodes_are_not_guessed_about() {
    for (pool, ids) in [("brokers", "0, 1, 2"), ("controllers", "3, 4, 5")] {
        let (mut world, _) = static_disks_only();
        scale(&mut world, pool, 1);
        let plan = decide(&world);
        assert!(plan.facts.is_empty() && plan.objects.is_empty() && plan.removals.is_empty(), "{plan:?}");
        let [problem] = plan.problems.as_slice() else { panic!("{:?}", plan.problems) };
        assert!(problem.to_string().contains(&format!("nodes {ids} of pool {pool}")), "{problem}");
    }
}

#[test]
fn controllers_that_are_held_stay_when_their_pod_sets_are_deleted() {
    let (mut world, mut kafka) = static_cluster();
    converge_kafka(&mut world, &mut kafka, &[]);
    scale(&mut world, "controllers", 1);
    converge_kafka(&mut world, &mut kafka, &[]);
    (world.pods, world.pod_sets) = Default::default();
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(world.pods.len(), 6);
}

fn ask_for_migration(world: &mut World) {
    edit_kafka(world, |kafka| {
        let annotations = kafka.metadata.annotations.get_or_insert_default();
        annotations.insert("strimzi.io/kraft-quorum-migration".into(), "true".into());
    });
}

#[test]
fn a_static_cluster_is_migrated_and_its_nodes_get_the_new_settings() {
    let (mut world, mut kafka) = static_cluster();
    converge_kafka(&mut world, &mut kafka, &[]);
    ask_for_migration(&mut world);
    converge_kafka(&mut world, &mut kafka, &[]);
    assert!(!kafka.is_static);
    let status = world.kafka.status.clone().unwrap();
    assert!(status.initial_controllers.unwrap().starts_with("3@my-cluster-controllers-3"));
    assert_eq!(status.quorum.unwrap().kind, Some(api::QuorumKind::Dynamic));
    assert!(
        !world
            .kafka
            .metadata
            .annotations
            .clone()
            .unwrap_or_default()
            .contains_key("strimzi.io/kraft-quorum-migration")
    );
    assert_eq!(setting(&world, &kafka, "my-cluster-controllers-3", "controller.quorum.voters"), None);
    assert!(world.config_maps.values().all(|map| map.storage_format.as_deref() == Some("join")));
    scale(&mut world, "controllers", 5);
    converge_safely(&mut world, &mut kafka, 3);
    assert_eq!(ids(&kafka), [3, 4, 5, 6, 7]);
}

#[test]
fn a_migration_waits_for_every_voter_for_a_leader_that_lasts_and_for_a_kafka_that_can() {
    let (mut world, mut kafka) = static_cluster();
    converge_kafka(&mut world, &mut kafka, &[]);
    ask_for_migration(&mut world);
    let with = |world: &World, change: fn(&mut karst_core::world::QuorumView)| {
        let mut answer = kafka.quorum(world);
        if let Answer::Known(quorum) = &mut answer {
            change(quorum);
        }
        let mut world = world.clone();
        world.answers.quorum = answer;
        world.answers.registered = kafka.clone().registered(&world);
        karst_core::plan::plan(&world).unwrap()
    };
    assert_eq!(with(&world, |_| {}).change(), Some(&Change::MakeDynamic));
    assert_eq!(with(&world, |quorum| quorum.stable_for = Duration::from_secs(3)).change(), None);
    let plan = with(&world, |quorum| quorum.voters[2].behind = None);
    assert_eq!(plan.change(), None);
    assert!(
        plan.notices.iter().any(|notice| notice.to_string().contains("these are not: 5")),
        "{:?}",
        plan.notices
    );
    edit_kafka(&mut world, |kafka| {
        (kafka.spec.kafka.version, kafka.spec.kafka.metadata_version) =
            (Some("4.0.1".into()), Some("4.0".into()));
    });
    let plan = with(&world, |quorum| quorum.metadata_level = Some(25));
    assert_eq!(plan.change(), None);
    assert!(
        plan.notices.iter().any(|notice| notice.to_string().contains("4.0.1 cannot")),
        "{:?}",
        plan.notices
    );
}

#[test]
fn a_voter_whose_pod_is_unready_for_a_moment_does_not_go_before_others_take_its_place() {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    world.pools.insert("fresh".into(), Arc::new(pool("fresh", 3, "controller")));
    edit_pool(&mut world, "controllers", |pool| {
        pool.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
    });
    while !kafka.voters.iter().any(|voter| voter.node == NodeId(8)) {
        assert!(step(&mut world, &mut kafka, &[]));
    }
    kafka.voters.retain(|voter| [4, 5, 6].contains(&voter.node.0));
    // The leader still hears from all of them.
    world.answers.quorum = kafka.quorum(&world);
    world.answers.registered = kafka.registered(&world);
    for name in ["my-cluster-controllers-5", "my-cluster-fresh-7", "my-cluster-fresh-8"] {
        Arc::make_mut(world.pods.get_mut(name).unwrap()).ready = false;
    }
    assert_eq!(decide(&world).change(), None);
}

/// The disks of 4 and 5 are lost, and 3 has its own.
fn majority_lost() -> (World, Kafka) {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    converge_kafka(&mut world, &mut kafka, &[]);
    for node in [4, 5] {
        kafka.disks.insert(NodeId(node), Entropy([node as u8; 32]).directory_id(NodeId(node)));
    }
    settle(&mut world, &mut kafka);
    assert_eq!(conditions(&world, "QuorumHealthy")[0].1, "NoLeader");
    world.now += Duration::from_secs(61);
    (world, kafka)
}

/// One step of a cluster whose controllers are ready when a majority of voters has its disks.
fn step_or_stand_still(world: &mut World, kafka: &mut Kafka) -> bool {
    let intact = kafka.voters.iter().filter(|voter| !kafka.disks.contains_key(&voter.node)).count();
    for (name, pod) in &mut world.pods {
        let ready = !name.contains("controllers") || intact * 2 > kafka.voters.len();
        Arc::make_mut(pod).ready = ready;
    }
    step(world, kafka, &[])
}

fn settle(world: &mut World, kafka: &mut Kafka) {
    for _ in 0..100 {
        if !step_or_stand_still(world, kafka) {
            return;
        }
    }
    panic!("it never comes to rest: {:?}", decide(world));
}

fn restore(world: &mut World, what: String) {
    edit_kafka(world, |kafka| {
        kafka.metadata.annotations.get_or_insert_default().insert("karst.io/restore-voter".into(), what);
    });
}

fn held_restoration(world: &World) -> String {
    let warnings = conditions(world, "Warning");
    warnings.into_iter().find(|(_, reason, _)| reason == "RestorationHeld").unwrap_or_default().2
}

#[test]
fn a_person_restores_a_voter_after_the_majority_of_disks_was_lost_and_the_rest_is_replaced() {
    let (mut world, mut kafka) = majority_lost();
    let lost = kafka.voters.clone();
    let pod = "my-cluster-controllers-4";
    let (claim, uid) = ("data-0-my-cluster-controllers-4", world.pods[pod].meta.uid.clone());
    let claims: Vec<_> = world.claims.keys().cloned().collect();
    assert!(claims.iter().any(|name| name == claim), "{claims:?}");
    let claim_uid = world.claims[claim].meta.uid.clone();
    restore(&mut world, format!("4:{}", lost[1].directory));
    let mut deleted = BTreeSet::new();
    for _ in steps(100) {
        let before: BTreeSet<_> = world.pods.values().map(|pod| pod.meta.uid.clone()).collect();
        if !step_or_stand_still(&mut world, &mut kafka) {
            break;
        }
        let after: BTreeSet<_> = world.pods.values().map(|pod| pod.meta.uid.clone()).collect();
        deleted.extend(before.difference(&after).cloned());
        let map = &world.config_maps[pod];
        if world.pods[pod].meta.uid != uid && map.storage_format.as_deref() == Some("restore") {
            let is_empty = world.claims.get(claim).is_none_or(|claim| claim.meta.uid != claim_uid);
            assert!(is_empty, "its disk must be empty");
            kafka.disks.remove(&NodeId(4));
        }
    }
    assert_eq!(deleted, [uid].into(), "one pod restarts, once");
    assert_eq!(ids(&kafka), [3, 4, 5]);
    assert_eq!(kafka.voters.iter().find(|voter| voter.node == NodeId(4)), Some(&lost[1]));
    assert_ne!(kafka.voters.iter().find(|voter| voter.node == NodeId(5)), Some(&lost[2]));
    assert_eq!(conditions(&world, "QuorumHealthy")[0].0, "True");
    let annotations = world.kafka.metadata.annotations.clone().unwrap_or_default();
    assert!(!annotations.contains_key("karst.io/restore-voter"), "{annotations:?}");
    let map = &world.config_maps[pod];
    assert_eq!(map.storage_format.as_deref(), Some("join"));
    assert!(!map.meta.annotations.contains_key("karst.io/restored-pod"));
}

/// The others would tell it that it leads, in a term that it knows nothing of: Kafka ends then, each time it starts.
#[test]
fn who_led_last_is_not_restored_where_somebody_else_can_be() {
    for (voters, is_held) in [(3, true), (2, false)] {
        let (mut world, kafka) = majority_lost();
        let lost = kafka.voters[1].directory;
        edit_kafka(&mut world, |kafka| {
            let quorum = kafka.status.as_mut().unwrap().quorum.as_mut().unwrap();
            quorum.leader = Some(4);
            quorum.voters.as_mut().unwrap().truncate(voters);
        });
        restore(&mut world, format!("4:{lost}"));
        world.answers.quorum = Answer::Silent("nobody leads".into());
        let why = decide(&world).notices.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        assert_eq!(why.contains("node 4 led last"), is_held, "{voters} voters: {why}");
    }
}

/// An operator that has not seen the annotation yet would write the settings back, and the node would start as nobody's voter for good.
#[test]
fn that_a_vote_is_to_be_restored_or_no_longer_is_hard_to_undo() {
    let (mut world, mut kafka) = majority_lost();
    restore(&mut world, format!("4:{}", kafka.voters[1].directory));
    let settings = |world: &World| {
        let mut silent = world.clone();
        silent.answers.quorum = Answer::Silent("nobody leads".into());
        silent.pods.values_mut().for_each(|pod| Arc::make_mut(pod).ready = false);
        let hard = decide(&silent).objects.into_iter().filter(|object| object.is_hard_to_undo(world));
        hard.filter_map(|object| object.meta().name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(settings(&world), ["my-cluster-controllers-4"]);
    while world.config_maps["my-cluster-controllers-4"].storage_format.as_deref() != Some("restore") {
        assert!(step_or_stand_still(&mut world, &mut kafka));
    }
    assert_eq!(settings(&world), Vec::<String>::new(), "it is written");
    edit_kafka(&mut world, |kafka| kafka.metadata.annotations = None);
    assert_eq!(settings(&world), ["my-cluster-controllers-4"]);
}

#[test]
fn voters_that_were_restored_never_become_a_majority_by_themselves() {
    let (mut world, mut kafka) = majority_lost();
    let lost = kafka.voters.clone();
    restore(&mut world, format!("4:{}", lost[1].directory));
    // The intact one is lost too before it could be elected, and the person tries the other one as well.
    kafka.disks.insert(NodeId(3), Entropy([33; 32]).directory_id(NodeId(3)));
    settle(&mut world, &mut kafka);
    for _ in 0..3 {
        restore(&mut world, format!("5:{}", lost[2].directory));
        settle(&mut world, &mut kafka);
        assert!(held_restoration(&world).contains("majority"), "{}", held_restoration(&world));
        let format = world.config_maps["my-cluster-controllers-5"].storage_format.clone();
        assert_eq!(format.as_deref(), Some("join"));
    }
}

#[test]
fn a_restoration_that_is_not_needed_or_not_right_is_held_with_the_reason() {
    let mut healthy = converged();
    let mut kafka = Kafka::formed(&healthy);
    restore(&mut healthy, format!("4:{}", kafka.voters[1].directory));
    converge_kafka(&mut healthy, &mut kafka, &[]);
    // The voter takes part: there is nothing to do, and the annotation has served its purpose.
    assert_eq!(held_restoration(&healthy), "");
    // A wish that cannot come true now must not lie in wait for a worse moment.
    let other = kafka.voters[2].directory;
    kafka.disks.insert(NodeId(5), Entropy([55; 32]).directory_id(NodeId(5)));
    restore(&mut healthy, format!("5:{other}"));
    converge_kafka(&mut healthy, &mut kafka, &[]);
    assert_eq!(
        healthy.kafka.metadata.annotations.clone().unwrap_or_default().get("karst.io/restore-voter"),
        None
    );
    assert!(healthy.pods["my-cluster-controllers-5"].ready);

    let (mut world, mut kafka) = majority_lost();
    let (right, other) = (kafka.voters[1].directory, kafka.voters[2].directory);
    for (what, word) in [
        ("4".to_owned(), "for example"),
        (format!("9:{right}"), "node 9 is not among the voters"),
        (format!("4:{other}"), "voted with directory"),
    ] {
        restore(&mut world, what);
        let pods: Vec<_> = world.pods.values().map(|pod| pod.meta.uid.clone()).collect();
        settle(&mut world, &mut kafka);
        assert!(held_restoration(&world).contains(word), "{}", held_restoration(&world));
        assert!(pods.iter().eq(world.pods.values().map(|pod| &pod.meta.uid)));
    }
}

#[test]
fn nothing_is_restored_in_haste_or_while_a_voter_is_down_that_may_be_intact() {
    let (mut world, mut kafka) = majority_lost();
    let lost = kafka.voters.clone();
    restore(&mut world, format!("4:{}", lost[1].directory));
    world.now -= Duration::from_secs(61);
    settle(&mut world, &mut kafka);
    assert!(held_restoration(&world).contains("60 seconds"), "{}", held_restoration(&world));
    world.now += Duration::from_secs(61);
    for (node, phase) in [("my-cluster-controllers-3", "Pending"), ("my-cluster-controllers-5", "Pending")] {
        Arc::make_mut(world.pods.get_mut(node).unwrap()).phase = phase.into();
        let plan = karst_core::plan::plan(&world).unwrap();
        assert!(plan.restarts.is_empty() && plan.objects.is_empty(), "{:?}", plan.restarts);
        Arc::make_mut(world.pods.get_mut(node).unwrap()).phase = "Running".into();
    }
}
