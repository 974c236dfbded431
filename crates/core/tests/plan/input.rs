//! Bad input, and changes that cannot be made yet: a clear word, and nothing that runs is harmed.

use std::sync::Arc;

use crate::support::*;
use karst_api as api;
use karst_core::world::World;

/// The message on the cluster after an edit of one that runs, having checked that nothing that runs was touched.
fn refused(edit: impl FnOnce(&mut api::Kafka)) -> String {
    let mut world = converged();
    edit_kafka(&mut world, edit);
    let plan = decide(&world);
    assert_eq!(plan.objects, []);
    assert_eq!(plan.facts, []);
    carry_out(&mut world, plan);
    let (status, _, message) = conditions(&world, "Ready").remove(0);
    assert_eq!(status, "False");
    assert_eq!(world.kafka.status.as_ref().unwrap().observed_generation, world.kafka.metadata.generation);
    message
}

#[test]
fn an_unknown_version_is_refused_with_those_that_are_known() {
    let message = refused(|kafka| kafka.spec.kafka.version = Some("2.8.0".into()));
    assert!(message.contains("spec.kafka.version is '2.8.0'") && message.contains("4.1.1"), "{message}");
}

#[test]
fn a_new_cluster_with_a_metadata_version_from_the_future_is_refused() {
    let mut world = quickstart();
    edit_kafka(&mut world, |kafka| kafka.spec.kafka.metadata_version = Some("4.3-IV0".into()));
    converge(&mut world);
    assert!(world.pods.is_empty());
    let (_, reason, message) = conditions(&world, "Ready").remove(0);
    assert_eq!(reason, "InvalidResource");
    assert!(
        message.contains("spec.kafka.metadataVersion is '4.3-IV0'") && message.contains("4.1-IV1"),
        "{message}"
    );
}

#[test]
fn two_listeners_on_one_port_are_refused() {
    let message = refused(|kafka| {
        let mut second = kafka.spec.kafka.listeners[0].clone();
        second.name = "other".into();
        kafka.spec.kafka.listeners.push(second);
    });
    assert!(message.contains("spec.kafka.listeners[1].port is 9092"), "{message}");
}

#[test]
fn authorization_that_cannot_be_enforced_is_refused() {
    let authorization: api::Authorization =
        serde_json::from_value(serde_json::json!({"type": "custom"})).unwrap();
    let message = refused(|kafka| kafka.spec.kafka.authorization = Some(authorization));
    assert!(message.contains("spec.kafka.authorization.authorizerClass"), "{message}");
}

#[test]
fn a_name_that_makes_others_too_long_is_refused() {
    let mut world = quickstart();
    let name = "a".repeat(60);
    edit_kafka(&mut world, |kafka| kafka.metadata.name = Some(name.clone()));
    world.key.name = name;
    let plan = decide(&world);
    assert_eq!(plan.facts, []);
    carry_out(&mut world, plan);
    let message = &conditions(&world, "Ready")[0].2;
    assert!(message.contains("metadata.name") && message.contains("63"), "{message}");
}

#[test]
fn a_pool_whose_pods_would_be_those_of_another_cluster_is_refused() {
    // Kafka 'my' with a pool 'cluster-brokers' makes the same names as 'my-cluster' with 'brokers'.
    let mut world = quickstart();
    let other = karst_core::names::ClusterKey { namespace: NAMESPACE.into(), name: "my".into() };
    world.taken.insert("my-cluster-brokers".into(), other);
    let plan = decide(&world);
    assert_eq!((plan.facts.len(), plan.objects.len()), (0, 0));
    carry_out(&mut world, plan);
    let message = &pool_conditions(&world, "brokers", "Ready")[0].2;
    assert!(message.contains("metadata.name is 'brokers'") && message.contains("Kafka 'my'"), "{message}");
}

#[test]
fn clusters_without_controllers_or_brokers_wait_for_them() {
    for (pool, role) in [("controllers", "controller"), ("brokers", "broker")] {
        let mut world = quickstart();
        world.pools.remove(pool);
        let plan = decide(&world);
        assert_eq!((plan.facts.len(), plan.objects.len()), (0, 0));
        carry_out(&mut world, plan);
        let (status, reason, message) = conditions(&world, "Ready").remove(0);
        assert_eq!((status.as_str(), reason.as_str()), ("False", "PoolsMissing"));
        assert!(message.contains(&format!("role {role}")), "{message}");
    }
}

#[test]
fn an_invalid_pool_of_a_new_cluster_stops_it_and_says_so_on_both() {
    let mut world = quickstart();
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = -1);
    let plan = decide(&world);
    assert_eq!((plan.facts.len(), plan.objects.len()), (0, 0));
    carry_out(&mut world, plan);
    assert!(pool_conditions(&world, "brokers", "Ready")[0].2.contains("spec.replicas is -1"));
    assert!(conditions(&world, "Ready")[0].2.contains("brokers"));
}

#[test]
fn an_invalid_pool_of_a_running_cluster_keeps_running_and_does_not_hold_up_the_others() {
    let mut world = converged();
    edit_pool(&mut world, "brokers", |pool| pool.spec.roles.clear());
    edit_pool(&mut world, "controllers", |pool| {
        pool.spec.jvm_options = serde_json::from_value(serde_json::json!({"-Xmx": "300m"})).unwrap();
    });
    // Its roles are known from what runs, so make it invalid in another way as well.
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = -1);
    let plan = decide(&world);
    assert!(plan.objects.iter().all(|object| !object.describe().contains("brokers-")), "{:?}", plan.objects);
    assert!(plan.objects.iter().any(|object| object.describe() == "ConfigMap my-cluster-controllers-3"));
    carry_out(&mut world, plan);
    assert!(conditions(&world, "Ready")[0].2.contains("pool 'brokers': spec.replicas is -1"));
}

/// What a change of a running pool is answered with; no node may come or go by it.
fn held(pool: &str, edit: impl FnOnce(&mut api::KafkaNodePool)) -> String {
    let mut world = converged();
    let nodes =
        |world: &World| world.pod_sets.values().flat_map(|set| set.pods.keys().cloned()).collect::<Vec<_>>();
    let before = nodes(&world);
    edit_pool(&mut world, pool, edit);
    converge(&mut world);
    assert_eq!(nodes(&world), before);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    pool_conditions(&world, pool, "Warning").into_iter().map(|(_, _, message)| message).collect()
}

#[test]
fn what_could_cost_data_is_held_and_said_on_the_pool() {
    let smaller = serde_json::json!({"type": "ephemeral"});
    let message = held("brokers", |pool| pool.spec.storage = serde_json::from_value(smaller).unwrap());
    assert!(message.contains("spec.storage.type is ephemeral"), "{message}");
}

#[test]
fn brokers_can_be_added_with_the_lowest_free_ids() {
    let mut world = converged();
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 4);
    converge(&mut world);
    assert_eq!(world.pools["brokers"].status.as_ref().unwrap().node_ids, Some(vec![0, 1, 2, 6]));
    assert_eq!(world.config_maps["my-cluster-brokers-6"].storage_format.as_deref(), Some("join"));
}

#[test]
fn a_vanished_pool_keeps_its_nodes() {
    let mut world = converged();
    world.pools.remove("brokers");
    let pods = world.pod_sets["my-cluster-brokers"].pods.len();
    let plan = decide(&world);
    carry_out(&mut world, plan);
    assert_eq!(world.pod_sets["my-cluster-brokers"].pods.len(), pods);
    assert!(conditions(&world, "Warning").iter().any(|(_, reason, _)| reason == "PoolGone"));
}

#[test]
fn a_pool_of_another_cluster_is_refused() {
    let mut world = converged();
    edit_pool(&mut world, "brokers", |pool| {
        pool.status.as_mut().unwrap().cluster_id = Some("another".into());
    });
    let plan = decide(&world);
    assert_eq!(plan.facts, []);
    carry_out(&mut world, plan);
    assert!(pool_conditions(&world, "brokers", "Ready")[0].2.contains("belongs to another Kafka cluster"));
    assert!(conditions(&world, "Ready")[0].2.contains("another"));
}

#[test]
fn fields_and_settings_without_effect_are_named() {
    let mut world = converged();
    edit_kafka(&mut world, |kafka| {
        kafka.spec.maintenance_time_windows = Some(vec!["* * * * *".into()]);
        kafka.spec.kafka.config.get_or_insert_default().insert("node.id".into(), 7.into());
        let mut outside = kafka.spec.kafka.listeners[0].clone();
        (outside.name, outside.port, outside.type_) = ("outside".into(), 9093, api::ListenerType::Route);
        outside.tls = true;
        kafka.spec.kafka.listeners.push(outside);
    });
    converge(&mut world);
    let warnings: Vec<_> = conditions(&world, "Warning").into_iter().map(|(_, _, message)| message).collect();
    for part in ["spec.maintenanceTimeWindows", "node.id", "listener 'outside' is not served"] {
        assert!(warnings.iter().any(|warning| warning.contains(part)), "{part} is not in {warnings:?}");
    }
}

#[test]
fn a_cluster_without_pools_gets_a_virtual_one() {
    let mut world = without_pools();
    converge(&mut world);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    let pods: Vec<_> = world.pods.keys().cloned().collect();
    assert_eq!(pods, ["old-kafka-0", "old-kafka-1", "old-kafka-2"]);
}

#[test]
fn listeners_are_as_safe_as_asked_for_and_the_status_tells_whom_to_trust() {
    let mut world = quickstart();
    edit_kafka(&mut world, |kafka| {
        let listeners = serde_json::json!([
            {"name": "plain", "port": 9092, "type": "internal", "tls": false},
            {"name": "tls", "port": 9093, "type": "internal", "tls": true, "authentication": {"type": "tls"}},
            {"name": "scram", "port": 9094, "type": "internal", "tls": true, "authentication": {"type": "scram-sha-512"}},
        ]);
        kafka.spec.kafka.listeners = serde_json::from_value(listeners).unwrap();
    });
    converge(&mut world);
    let listeners = world.kafka.status.as_ref().unwrap().listeners.clone().unwrap();
    assert_eq!(listeners[0].certificates, None);
    for listener in &listeners[1..] {
        let certificates = listener.certificates.clone().unwrap();
        assert!(certificates[0].starts_with("-----BEGIN CERTIFICATE-----"), "{certificates:?}");
    }
    let discovery = &world.services["my-cluster-kafka-bootstrap"].meta.annotations["strimzi.io/discovery"];
    assert!(discovery.contains("scram-sha-512"), "{discovery}");
}

/// What a cluster that runs says after something that nobody can do was asked of it: on the cluster, and on a pool. Nothing that
/// runs may be touched by it.
fn said_after(pool: &str, edit: impl FnOnce(&mut World)) -> (String, String) {
    let mut world = converged();
    let before = world.clone();
    edit(&mut world);
    for _ in 0..4 {
        let plan = decide(&world);
        assert_eq!((plan.objects.as_slice(), plan.facts.as_slice()), (&[][..], &[][..]));
        assert!(plan.restarts.is_empty() && plan.removals.is_empty() && plan.deeds.is_empty());
        carry_out(&mut world, plan);
        run_pods(&mut world, true);
    }
    assert_eq!(world.pods, before.pods);
    let message = |conditions: Vec<(String, String, String)>| {
        let not_ready = conditions.into_iter().filter(|(status, _, _)| status == "False");
        not_ready.map(|(_, _, message)| message).collect::<String>()
    };
    let on_pool =
        if world.pools.contains_key(pool) { pool_conditions(&world, pool, "Ready") } else { vec![] };
    (message(conditions(&world, "Ready")), message(on_pool))
}

fn set_node_ids(world: &mut World, pool: &str, ids: &[i32]) {
    let pool = Arc::make_mut(world.pools.get_mut(pool).unwrap());
    pool.status.as_mut().unwrap().node_ids = Some(ids.to_vec());
}

/// A copy of a pool under another name, as a user would apply it.
fn add_pool(world: &mut World, name: &str) {
    let mut pool = (*world.pools["brokers"]).clone();
    (pool.metadata.name, pool.metadata.uid) = (Some(name.into()), Some(format!("uid-{name}")));
    pool.status = None;
    world.pools.insert(name.into(), Arc::new(pool));
}

#[test]
fn what_nobody_can_do_is_said_on_the_right_resource_and_nothing_that_runs_is_touched() {
    type Row = (&'static str, &'static str, fn(&mut World), &'static [&'static str], &'static [&'static str]);
    let sixty: &'static str = "a-pool-with-a-name-of-sixty-characters-which-is-far-too-long";
    assert_eq!(sixty.len(), 60);
    // What was asked, the pool, how, what the cluster says, what the pool says.
    let table: &[Row] = &[
        (
            "fewer than no replicas",
            "brokers",
            |world| edit_pool(world, "brokers", |pool| pool.spec.replicas = -1),
            &["pool 'brokers'", "spec.replicas is -1"],
            &["spec.replicas is -1", "from 0 to 1000"],
        ),
        (
            "a huge number of replicas",
            "brokers",
            |world| edit_pool(world, "brokers", |pool| pool.spec.replicas = i32::MAX),
            &["pool 'brokers'", "spec.replicas is 2147483647"],
            &["spec.replicas is 2147483647", "from 0 to 1000"],
        ),
        (
            "no roles",
            "brokers",
            |world| edit_pool(world, "brokers", |pool| pool.spec.roles.clear()),
            &["pool 'brokers'", "spec.roles is empty"],
            &["spec.roles is empty; list controller, broker, or both"],
        ),
        (
            "no broker left",
            "brokers",
            |world| edit_pool(world, "brokers", |pool| pool.spec.replicas = 0),
            &["no pool with the role broker has replicas", "spec.replicas above 0"],
            &["Kafka 'my-cluster' cannot be carried out; its status says why"],
        ),
        (
            "no controller left",
            "controllers",
            |world| edit_pool(world, "controllers", |pool| pool.spec.replicas = 0),
            &["no pool with the role controller has replicas", "spec.replicas above 0"],
            &["Kafka 'my-cluster' cannot be carried out; its status says why"],
        ),
        (
            "one id in two pools",
            "brokers",
            |world| set_node_ids(world, "controllers", &[2, 3, 4, 5]),
            &["node id 2", "'brokers' and 'controllers'", "my-cluster-controllers-2"],
            &["Kafka 'my-cluster' cannot be carried out; its status says why"],
        ),
        (
            "a pool with a name of sixty characters",
            sixty,
            |world| add_pool(world, "a-pool-with-a-name-of-sixty-characters-which-is-far-too-long"),
            &["a-pool-with-a-name-of-sixty-characters", "choose a name at least"],
            &["metadata.name is 'a-pool-with-a-name-of-sixty-characters", "and 63 are allowed", "shorter"],
        ),
    ];
    for (story, pool, edit, on_cluster, on_pool) in table {
        let (cluster, own) = said_after(pool, edit);
        for part in *on_cluster {
            assert!(cluster.contains(part), "{story}: '{part}' is not in what the cluster says: {cluster}");
        }
        for part in *on_pool {
            assert!(own.contains(part), "{story}: '{part}' is not in what the pool says: {own}");
        }
    }
}

#[test]
fn a_smaller_disk_is_refused_on_the_pool_and_everything_goes_on() {
    let smaller = serde_json::json!({"type": "jbod", "volumes": [
        {"id": 0, "type": "persistent-claim", "size": "1Mi", "kraftMetadata": "shared"}]});
    let message = held("brokers", |pool| pool.spec.storage = serde_json::from_value(smaller).unwrap());
    assert!(message.contains("size is 1Mi") && message.contains("pool 'brokers'"), "{message}");
}

#[test]
fn ids_that_nobody_can_give_are_said_on_the_pool_and_the_default_rule_is_used() {
    for (asked, part) in [
        ("[5,7---9]", "7---9"),
        ("[-1]", "-1"),
        ("[3000000000]", "3000000000"),
        ("[0-2]", "0-2"),
        ("7", "brackets"),
    ] {
        let mut world = converged();
        edit_pool(&mut world, "brokers", |pool| {
            let annotations = pool.metadata.annotations.get_or_insert_default();
            annotations.insert("strimzi.io/next-node-ids".into(), asked.into());
            pool.spec.replicas = 4;
        });
        converge(&mut world);
        let ids = world.pools["brokers"].status.as_ref().unwrap().node_ids.clone();
        assert_eq!(ids, Some(vec![0, 1, 2, 6]), "{asked}");
        let warnings = pool_conditions(&world, "brokers", "Warning");
        let said = warnings.iter().find(|(_, reason, _)| reason == "NodeIdsIgnored").expect("a warning");
        assert!(said.2.contains(part) && said.2.contains("strimzi.io/next-node-ids"), "{said:?}");
        assert_eq!(conditions(&world, "Ready")[0].0, "True");
    }
}
