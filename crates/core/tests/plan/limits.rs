//! What is more than one operator can carry beside all other clusters: a clear word, and nothing that runs is harmed.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::*;
use karst_api as api;
use karst_certs::window;
use karst_core::objects::Object;
use karst_core::world::World;
use serde_json::json;

/// What a cluster that runs says after an edit, having checked that nothing was done about it.
fn refused(edit: impl FnOnce(&mut World)) -> String {
    let mut world = converged();
    edit(&mut world);
    let plan = decide(&world);
    assert_eq!((plan.objects.as_slice(), plan.facts.as_slice()), (&[][..], &[][..]));
    assert!(plan.restarts.is_empty() && plan.removals.is_empty() && plan.deeds.is_empty());
    carry_out(&mut world, plan);
    let (status, reason, message) = conditions(&world, "Ready").remove(0);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "InvalidResource"), "{message}");
    message
}

fn copy_pool(world: &mut World, name: &str, replicas: i32) {
    let mut pool = (*world.pools["brokers"]).clone();
    (pool.metadata.name, pool.metadata.uid) = (Some(name.into()), Some(format!("uid-{name}")));
    pool.status = None;
    pool.spec.replicas = replicas;
    world.pools.insert(name.into(), Arc::new(pool));
}

/// Seen: `renewalDays: 5000000` was a panic in every pass, of all clusters.
#[test]
fn more_days_than_time_has_are_refused_and_certificates_stay() {
    for (days, field) in [(5_000_000, "renewalDays"), (i32::MAX, "validityDays"), (0, "renewalDays")] {
        let message = refused(|world| {
            edit_kafka(world, |kafka| {
                let authority = serde_json::from_value(json!({ field: days })).unwrap();
                kafka.spec.cluster_ca = Some(authority);
            });
        });
        let expected = format!("spec.clusterCa.{field} is {days}; it must be from 1 to 365000");
        assert_eq!(message, expected);
    }
}

#[test]
fn the_largest_numbers_of_days_are_carried_out() {
    let mut world = quickstart();
    edit_kafka(&mut world, |kafka| {
        let authority = json!({ "renewalDays": 365_000, "validityDays": 365_000 });
        kafka.spec.cluster_ca = Some(serde_json::from_value(authority).unwrap());
    });
    converge(&mut world);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
}

#[test]
fn more_nodes_than_a_cluster_can_have_are_refused() {
    let message = refused(|world| {
        copy_pool(world, "one", 600);
        copy_pool(world, "two", 500);
    });
    assert!(message.starts_with("spec.replicas of the pools are 1106 together"), "{message}");
    assert!(message.contains("1000 nodes at most"), "{message}");
}

#[test]
fn more_pools_than_a_cluster_can_have_are_refused() {
    let message = refused(|world| (0..1000).for_each(|pool| copy_pool(world, &format!("p-{pool}"), 0)));
    assert!(message.starts_with("1002 KafkaNodePools are labelled"), "{message}");
}

#[test]
fn a_pod_set_that_etcd_would_not_take_is_refused_with_the_number_that_it_would() {
    let message = refused(|world| edit_pool(world, "brokers", |pool| pool.spec.replicas = 900));
    assert!(message.starts_with("pool 'brokers': 900 nodes make a StrimziPodSet of "), "{message}");
    let most = message.split("with ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
    let most: i32 = most.parse().unwrap();
    assert!((100..900).contains(&most), "{message}");
    // So many it takes, and their set is as small as was said.
    let mut world = converged();
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = most);
    converge(&mut world);
    let set = &world.pod_sets["my-cluster-brokers"];
    let bytes: usize = set.pods.values().map(|pod| pod.json.len()).sum();
    assert!(
        set.pods.len() == usize::try_from(most).unwrap() && bytes < 1_500_000,
        "{bytes}: {:?}",
        conditions(&world, "Ready")
    );
    assert!(bytes > 1_300_000, "fewer are taken than could be: {bytes}");
}

#[test]
fn settings_that_are_long_for_many_nodes_are_refused() {
    let edit = |replicas: i32| {
        move |world: &mut World| {
            edit_kafka(world, |kafka| {
                let config = kafka.spec.kafka.config.get_or_insert_default();
                config.insert("my.plugin.list".into(), json!("x".repeat(300_000)));
            });
            edit_pool(world, "brokers", |pool| pool.spec.replicas = replicas);
        }
    };
    let message = refused(edit(200));
    assert!(message.contains("203 nodes would be about 6"), "{message}");
    let mut world = converged();
    edit(3)(&mut world);
    assert_eq!(decide(&world).problems, []);
}

#[test]
fn a_resource_that_is_too_long_to_be_looked_at_is_refused() {
    let long: BTreeMap<String, serde_json::Value> =
        (0..60_000).map(|key| (format!("key.{key}"), json!(1))).collect();
    let config = long.clone();
    let message = refused(|world| edit_kafka(world, |kafka| kafka.spec.kafka.config = Some(config)));
    assert!(message.starts_with("spec is ") && message.contains("524 kB are possible"), "{message}");
    let message = refused(|world| {
        edit_pool(world, "brokers", |pool| {
            let template: api::KafkaNodePoolTemplate =
                serde_json::from_value(json!({ "pod": { "affinity": long } })).unwrap();
            pool.spec.template = Some(Box::new(template));
        });
    });
    assert!(message.starts_with("pool 'brokers': spec is "), "{message}");
}

#[test]
fn more_listeners_and_volumes_than_anybody_has_are_refused() {
    let listeners: Vec<_> = (0..65)
        .map(|one| json!({ "name": format!("l{one}"), "port": 9100 + one, "type": "internal", "tls": false }))
        .collect();
    let message = refused(|world| {
        edit_kafka(world, |kafka| {
            kafka.spec.kafka.listeners = serde_json::from_value(json!(listeners)).unwrap();
        });
    });
    assert_eq!(message, "spec.kafka.listeners has 65 entries; it can have 64 at most");
}

/// The operator holds without the schema, and the schema tells first.
#[test]
fn schema_and_reader_have_the_same_bounds() {
    assert_eq!(window::MOST, usize::try_from(api::bounds::WINDOWS).unwrap());
    assert_eq!(window::LONGEST, usize::try_from(api::bounds::WINDOW).unwrap());
}

/// A pool that is refused runs on, and so does the rest: brokers find their controllers, no budget lets more pods go at once, and
/// a static quorum has the voters that it had.
#[test]
fn a_refused_pool_of_controllers_changes_nothing_for_brokers() {
    let of_3_9 = include_str!("../../../../deploy/examples/kafka-3.9.yaml");
    for mut world in [quickstart(), world(of_3_9)] {
        copy_pool(&mut world, "more", 2);
        converge(&mut world);
        for pool in ["controllers", "brokers"] {
            let mut world = world.clone();
            edit_pool(&mut world, pool, |pool| {
                pool.spec.replicas = -1;
                // What somebody wrote there does not count: the pods tell what they do.
                pool.status.as_mut().unwrap().roles = Some(vec![api::Role::Controller, api::Role::Broker]);
            });
            let plan = decide(&world);
            assert!(plan.problems.is_empty() && plan.restarts.is_empty(), "{:?}", plan.restarts);
            let objects: Vec<_> = plan.objects.iter().map(Object::describe).collect();
            assert_eq!(objects, [""; 0], "{pool}");
        }
    }
}
