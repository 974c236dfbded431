//! Bad input, and changes that cannot be made yet: a clear word, and nothing that runs is harmed.

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
fn a_metadata_version_from_the_future_is_refused() {
    let message = refused(|kafka| kafka.spec.kafka.metadata_version = Some("4.3-IV0".into()));
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
