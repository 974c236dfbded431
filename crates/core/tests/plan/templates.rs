//! What users add to objects by templates and labels: where it comes from, where it goes, and what is refused.

use std::collections::BTreeMap;

use crate::support::*;
use karst_api as api;
use karst_core::objects::Object;
use karst_core::world::{Meta, World};
use serde_json::{Value, json};

fn set_cluster_template(world: &mut World, template: Value) {
    edit_kafka(world, |kafka| kafka.spec.kafka.template = serde_json::from_value(template).unwrap());
}

fn set_pool_template(world: &mut World, pool: &str, template: Value) {
    edit_pool(world, pool, |pool| pool.spec.template = serde_json::from_value(template).unwrap());
}

fn pod(world: &World, set: &str, pod: &str) -> Value {
    serde_json::from_str(&world.pod_sets[set].pods[pod].json).unwrap()
}

fn broker(world: &World) -> Value {
    pod(world, "my-cluster-brokers", "my-cluster-brokers-0")
}

fn controller(world: &World) -> Value {
    pod(world, "my-cluster-controllers", "my-cluster-controllers-3")
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn written(world: &World) -> Vec<String> {
    decide(world).objects.iter().map(Object::describe).collect()
}

#[test]
fn a_pool_without_a_template_uses_that_of_the_cluster() {
    let mut world = quickstart();
    set_cluster_template(
        &mut world,
        json!({"pod": {"terminationGracePeriodSeconds": 77, "metadata": {"labels": {"tier": "x"}}}}),
    );
    converge(&mut world);
    for pod in [broker(&world), controller(&world)] {
        assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 77);
        assert_eq!(pod["metadata"]["labels"]["tier"], "x");
    }
}

#[test]
fn a_pool_with_a_template_takes_nothing_from_that_of_the_cluster() {
    let mut world = quickstart();
    set_cluster_template(
        &mut world,
        json!({
            "pod": {"priorityClassName": "high", "metadata": {"labels": {"tier": "x"}}},
            "podSet": {"metadata": {"annotations": {"note": "cluster"}}},
            "persistentVolumeClaim": {"metadata": {"labels": {"backup": "daily"}}},
            "kafkaContainer": {"env": [{"name": "A", "value": "1"}]},
        }),
    );
    // The seed's own example: one field in another part, and all of the cluster's parts are ignored.
    set_pool_template(&mut world, "brokers", json!({"podSet": {"metadata": {"labels": {"key1": "label1"}}}}));
    converge(&mut world);

    let set = &world.pod_sets["my-cluster-brokers"].meta;
    assert_eq!(
        (set.labels.get("key1").map(String::as_str), set.annotations.get("note")),
        (Some("label1"), None)
    );
    let pod = broker(&world);
    assert_eq!(pod["spec"]["priorityClassName"], Value::Null);
    assert_eq!(pod["metadata"]["labels"]["tier"], Value::Null);
    assert_eq!(pod["spec"]["containers"][0]["env"], Value::Null);
    assert!(!world.claims["data-0-my-cluster-brokers-0"].meta.labels.contains_key("backup"));

    let pod = controller(&world);
    assert_eq!(pod["spec"]["priorityClassName"], "high");
    assert_eq!(pod["spec"]["containers"][0]["env"][0]["name"], "A");
    assert_eq!(world.claims["data-0-my-cluster-controllers-3"].meta.labels["backup"], "daily");
}

#[test]
fn an_empty_template_of_a_pool_is_a_template() {
    let mut world = quickstart();
    set_cluster_template(&mut world, json!({"pod": {"priorityClassName": "high"}}));
    set_pool_template(&mut world, "brokers", json!({}));
    converge(&mut world);
    assert_eq!(broker(&world)["spec"]["priorityClassName"], Value::Null);
    assert_eq!(controller(&world)["spec"]["priorityClassName"], "high");
}

#[test]
fn jvm_options_and_resources_are_inherited_as_a_whole_and_never_mixed() {
    let mut world = quickstart();
    edit_kafka(&mut world, |kafka| {
        kafka.spec.kafka.jvm_options =
            serde_json::from_value(json!({"-Xms": "111m", "-Xmx": "222m"})).unwrap();
        kafka.spec.kafka.resources =
            serde_json::from_value(json!({"requests": {"cpu": "7", "memory": "3Gi"}})).unwrap();
    });
    edit_pool(&mut world, "controllers", |pool| pool.spec.resources = None);
    edit_pool(&mut world, "brokers", |pool| {
        pool.spec.jvm_options = serde_json::from_value(json!({"-Xmx": "333m"})).unwrap();
        pool.spec.resources = serde_json::from_value(json!({"limits": {"memory": "1Gi"}})).unwrap();
    });
    let mut options = BTreeMap::new();
    while options.len() < 2 {
        let plan = decide(&world);
        for object in &plan.objects {
            if let Object::ConfigMap(map) = object {
                let pool = if object.describe().contains("brokers") { "brokers" } else { "controllers" };
                options.insert(pool, map.data.as_ref().unwrap()["jvm.options"].clone());
            }
        }
        carry_out(&mut world, plan);
    }
    assert!(options["controllers"].contains("-Xms111m") && options["controllers"].contains("-Xmx222m"));
    assert!(options["brokers"].contains("-Xmx333m") && !options["brokers"].contains("111m"));
    let resources = |pod: &Value| pod["spec"]["containers"][0]["resources"].clone();
    assert_eq!(resources(&controller(&world)), json!({"requests": {"cpu": "7", "memory": "3Gi"}}));
    assert_eq!(resources(&broker(&world)), json!({"limits": {"memory": "1Gi"}}));
}

#[test]
fn parts_that_pools_share_come_from_the_cluster_whatever_the_pools_say() {
    let mut world = quickstart();
    let metadata = |value: &str| json!({"labels": {"who": value}, "annotations": {"note": value}});
    set_cluster_template(
        &mut world,
        json!({
            "bootstrapService": {"metadata": metadata("bootstrap"), "ipFamilyPolicy": "PreferDualStack"},
            "brokersService": {"metadata": metadata("brokers"), "ipFamilies": ["IPv6"]},
            "serviceAccount": {"metadata": metadata("account")},
        }),
    );
    set_pool_template(&mut world, "brokers", json!({}));
    set_pool_template(&mut world, "controllers", json!({}));
    let objects = decide(&world).objects;
    let service = |name: &str| {
        objects
            .iter()
            .find_map(|object| match object {
                Object::Service(service) if service.metadata.name.as_deref() == Some(name) => {
                    service.spec.clone()
                }
                _ => None,
            })
            .unwrap()
    };
    assert_eq!(service("my-cluster-kafka-bootstrap").ip_family_policy.as_deref(), Some("PreferDualStack"));
    assert_eq!(service("my-cluster-kafka-brokers").ip_families, Some(vec!["IPv6".to_owned()]));

    converge(&mut world);
    for (meta, value) in [
        (&world.services["my-cluster-kafka-bootstrap"].meta, "bootstrap"),
        (&world.services["my-cluster-kafka-brokers"].meta, "brokers"),
        (&world.service_accounts["my-cluster-kafka"].meta, "account"),
    ] {
        assert_eq!((meta.labels["who"].as_str(), meta.annotations["note"].as_str()), (value, value));
    }
    assert!(
        world.services["my-cluster-kafka-bootstrap"].meta.annotations.contains_key("strimzi.io/discovery")
    );
}

#[test]
fn labels_of_a_resource_pass_to_the_objects_made_for_it_and_annotations_do_not() {
    let mut world = quickstart();
    let from_tools = [("app.kubernetes.io/instance", "argo"), ("kustomize.toolkit.fluxcd.io/name", "flux")];
    edit_kafka(&mut world, |kafka| {
        let all = kafka.metadata.labels.get_or_insert_default();
        all.extend(labels(&[("team", "streams"), ("app.kubernetes.io/part-of", "shop")]));
        all.extend(labels(&from_tools));
        kafka.metadata.annotations = Some(labels(&[("example.com/note", "1")]));
    });
    edit_pool(&mut world, "brokers", |pool| {
        let all = pool.metadata.labels.get_or_insert_default();
        all.extend(labels(&[("team", "data"), ("zone", "a")]));
        all.extend(labels(&from_tools));
        pool.metadata.annotations = Some(labels(&[("example.com/note", "1")]));
    });
    set_pool_template(&mut world, "brokers", json!({"pod": {"metadata": {"labels": {"zone": "b"}}}}));
    converge(&mut world);

    let shared = &world.services["my-cluster-kafka-bootstrap"].meta;
    assert_eq!((shared.labels["team"].as_str(), shared.labels.get("zone")), ("streams", None));
    assert_eq!(shared.labels["app.kubernetes.io/part-of"], "shop");
    for meta in [
        &world.pod_sets["my-cluster-brokers"].meta,
        &world.config_maps["my-cluster-brokers-0"].meta,
        &world.claims["data-0-my-cluster-brokers-0"].meta,
    ] {
        assert_eq!(
            (meta.labels["team"].as_str(), meta.labels["zone"].as_str()),
            ("data", "a"),
            "{}",
            meta.name
        );
        assert_eq!(meta.labels["app.kubernetes.io/instance"], "my-cluster");
        assert!(!meta.labels.contains_key("kustomize.toolkit.fluxcd.io/name"));
        assert!(!meta.annotations.contains_key("example.com/note"));
    }
    let pod = broker(&world);
    assert_eq!(pod["metadata"]["labels"]["team"], "data");
    assert_eq!(pod["metadata"]["labels"]["zone"], "b", "the template wins");
    assert_eq!(controller(&world)["metadata"]["labels"]["team"], Value::Null, "pools do not inherit labels");
}

#[test]
fn the_virtual_pool_has_the_labels_and_the_template_of_the_cluster() {
    let mut world = world(
        "apiVersion: kafka.strimzi.io/v1beta2
kind: Kafka
metadata: {name: old, labels: {team: streams}}
spec:
  kafka:
    version: 4.1.1
    replicas: 3
    storage: {type: persistent-claim, size: 1Gi}
    listeners: [{name: plain, port: 9092, type: internal, tls: false}]
    template: {pod: {priorityClassName: high}}
",
    );
    converge(&mut world);
    let pod = pod(&world, "old-kafka", "old-kafka-0");
    assert_eq!(pod["spec"]["priorityClassName"], "high");
    assert_eq!(pod["metadata"]["labels"]["team"], "streams");
}

#[test]
fn a_template_is_added_to_what_a_node_needs_or_replaces_it() {
    let mut world = quickstart();
    std::sync::Arc::make_mut(&mut world.settings).image_pull_secrets =
        vec!["operators".into(), "both".into()];
    set_pool_template(
        &mut world,
        "brokers",
        json!({
            "pod": {
                "imagePullSecrets": [{"name": "both"}, {"name": "mine"}],
                "securityContext": {"runAsUser": 2000},
                "affinity": {},
                "enableServiceLinks": true,
                "tmpDirSizeLimit": "50Mi",
                "metadata": {"annotations": {"kubectl.kubernetes.io/default-container": "sidecar"}},
                "volumes": [{"name": "extras", "secret": {"secretName": "s"}}],
            },
            "kafkaContainer": {
                "securityContext": {"readOnlyRootFilesystem": false},
                "volumeMounts": [{"name": "extras", "mountPath": "/mnt/extras"}],
            },
            "initContainer": {"env": [{"name": "A", "value": "1"}]},
        }),
    );
    converge(&mut world);
    let pod = broker(&world);
    let spec = &pod["spec"];
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "operators"}, {"name": "both"}, {"name": "mine"}]));
    assert_eq!(spec["securityContext"], json!({"runAsUser": 2000}));
    assert_eq!(spec["affinity"], json!({}));
    assert_eq!(spec["enableServiceLinks"], true);
    assert_eq!(pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"], "sidecar");
    let names = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        names(&spec["volumes"]),
        ["karst", "tmp", "config", "certificate", "trust", "data-0", "extras"]
    );
    assert_eq!(spec["volumes"][1]["emptyDir"], json!({"sizeLimit": "50Mi"}));
    let kafka = &spec["containers"][0];
    let mounts = ["karst", "config", "certificate", "trust", "tmp", "data-0", "extras"];
    assert_eq!(names(&kafka["volumeMounts"]), mounts);
    assert_eq!(kafka["securityContext"], json!({"readOnlyRootFilesystem": false}));
    let init = &spec["initContainers"][0];
    assert_eq!(init["env"], json!([{"name": "A", "value": "1"}]));
    assert_eq!(init["securityContext"]["readOnlyRootFilesystem"], true, "what is not named stays");
}

#[test]
fn every_change_of_a_pods_template_changes_its_revision() {
    let whole = converged();
    let revision =
        |world: &World| world.pod_sets["my-cluster-brokers"].pods["my-cluster-brokers-0"].revision.clone();
    let mut seen = vec![revision(&whole)];
    for template in [
        json!({"pod": {"metadata": {"labels": {"a": "1"}}}}),
        json!({"pod": {"metadata": {"annotations": {"a": "1"}}}}),
        json!({"pod": {"imagePullSecrets": [{"name": "s"}]}}),
        json!({"pod": {"securityContext": {"runAsUser": 7}}}),
        json!({"pod": {"terminationGracePeriodSeconds": 31}}),
        json!({"pod": {"affinity": {}}}),
        json!({"pod": {"tolerations": [{"operator": "Exists"}]}}),
        json!({"pod": {"topologySpreadConstraints":
            [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}}),
        json!({"pod": {"priorityClassName": "p"}}),
        json!({"pod": {"schedulerName": "s"}}),
        json!({"pod": {"hostAliases": [{"ip": "192.0.2.1", "hostnames": ["h"]}]}}),
        json!({"pod": {"dnsPolicy": "Default"}}),
        json!({"pod": {"dnsConfig": {"searches": ["example.com"]}}}),
        json!({"pod": {"enableServiceLinks": true}}),
        json!({"pod": {"tmpDirSizeLimit": "6Mi"}}),
        json!({"pod": {"volumes": [{"name": "v", "emptyDir": {}}]}}),
        json!({"pod": {"hostUsers": false}}),
        json!({"kafkaContainer": {"env": [{"name": "A"}]}}),
        json!({"kafkaContainer": {"securityContext": {}}}),
        json!({"initContainer": {"env": [{"name": "A"}]}}),
        json!({"initContainer": {"securityContext": {}}}),
    ] {
        let mut world = whole.clone();
        set_pool_template(&mut world, "brokers", template.clone());
        converge(&mut world);
        assert!(!seen.contains(&revision(&world)), "{template} does not reach the pod");
        seen.push(revision(&world));
    }
}

#[test]
fn what_is_no_part_of_a_pod_does_not_change_its_revision() {
    let mut world = converged();
    let before = world.pod_sets["my-cluster-brokers"].pods.clone();
    set_pool_template(
        &mut world,
        "brokers",
        json!({
            "podSet": {"metadata": {"labels": {"a": "1"}}},
            "persistentVolumeClaim": {"metadata": {"annotations": {"a": "1"}}},
        }),
    );
    converge(&mut world);
    assert_eq!(world.pod_sets["my-cluster-brokers"].pods, before);
    assert_eq!(world.pod_sets["my-cluster-brokers"].meta.labels["a"], "1");
    assert_eq!(world.claims["data-0-my-cluster-brokers-0"].meta.annotations["a"], "1");
}

#[test]
fn a_rich_cluster_comes_to_rest() {
    let mut world = example(include_str!("../../../../deploy/examples/templates.yaml"));
    converge(&mut world);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    assert_eq!(conditions(&world, "Warning"), []);
    assert!(is_quiet(&decide(&world)));
}

#[test]
fn labels_that_others_put_on_objects_are_left_alone() {
    let mut world = converged();
    let mut service = (*world.services["my-cluster-kafka-bootstrap"]).clone();
    service.meta.labels.insert("others".into(), "1".into());
    world.services.insert("my-cluster-kafka-bootstrap".into(), service.into());
    assert!(is_quiet(&decide(&world)));
}

#[test]
fn what_is_taken_out_of_a_template_is_taken_off_the_objects() {
    let whole = converged();
    let mut world = whole.clone();
    let metadata = json!({"metadata": {"labels": {"a": "1"}, "annotations": {"b": "2"}}});
    set_cluster_template(
        &mut world,
        json!({
            "bootstrapService": metadata,
            "brokersService": {"ipFamilyPolicy": "PreferDualStack"},
            "serviceAccount": metadata,
            "podSet": metadata,
            "persistentVolumeClaim": metadata,
        }),
    );
    edit_pool(&mut world, "brokers", |pool| {
        pool.metadata.labels.get_or_insert_default().insert("team".into(), "x".into());
    });
    converge(&mut world);

    edit_kafka(&mut world, |kafka| kafka.spec.kafka.template = None);
    edit_pool(&mut world, "brokers", |pool| {
        pool.metadata.labels.get_or_insert_default().remove("team");
    });
    let touched = written(&world);
    for object in [
        "ServiceAccount my-cluster-kafka",
        "Service my-cluster-kafka-brokers",
        "Service my-cluster-kafka-bootstrap",
        "ConfigMap my-cluster-brokers-0",
        "PersistentVolumeClaim data-0-my-cluster-controllers-3",
        "StrimziPodSet my-cluster-controllers",
    ] {
        assert!(touched.iter().any(|one| one == object), "{object} is not in {touched:?}");
    }
    assert!(!touched.contains(&"ConfigMap my-cluster-controllers-3".to_owned()), "nothing of it changed");
    converge(&mut world);
    assert_eq!(world.services, whole.services);
    assert_eq!(world.service_accounts, whole.service_accounts);
    assert_eq!(world.config_maps, whole.config_maps);
    assert_eq!(world.claims, whole.claims);
}

/// The message on the cluster after a bad template, having checked that nothing that runs was touched.
fn refused_on_cluster(template: Value) -> String {
    let mut world = converged();
    set_cluster_template(&mut world, template);
    let plan = decide(&world);
    assert_eq!((plan.objects.len(), plan.facts.len()), (0, 0));
    carry_out(&mut world, plan);
    let (status, reason, message) = conditions(&world, "Ready").remove(0);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "InvalidResource"));
    message
}

/// The message on the pool after a bad template, having checked that its nodes were not touched.
fn refused_on_pool(template: Value) -> String {
    let mut world = converged();
    set_pool_template(&mut world, "brokers", template);
    let plan = decide(&world);
    assert_eq!((plan.objects.len(), plan.facts.len()), (0, 0));
    carry_out(&mut world, plan);
    assert!(conditions(&world, "Ready")[0].2.contains("pool 'brokers'"));
    let (status, reason, message) = pool_conditions(&world, "brokers", "Ready").remove(0);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "InvalidResource"));
    message
}

#[test]
fn reserved_labels_and_annotations_are_refused_where_they_were_written() {
    let metadata = json!({"metadata": {"labels": {"strimzi.io/cluster": "other"}}});
    for part in ["pod", "podSet", "persistentVolumeClaim"] {
        let field = format!("template.{part}.metadata.labels[strimzi.io/cluster] is reserved");
        let message = refused_on_pool(json!({ (part): metadata }));
        assert!(message.contains(&format!("spec.{field}")), "{message}");
        let message = refused_on_cluster(json!({ (part): metadata }));
        assert!(message.contains(&format!("spec.kafka.{field}")), "{message}");
    }
    for part in ["bootstrapService", "brokersService", "serviceAccount"] {
        let metadata = json!({"metadata": {"annotations": {"strimzi.io/discovery": "no"}}});
        let message = refused_on_cluster(json!({ (part): metadata }));
        let field =
            format!("spec.kafka.template.{part}.metadata.annotations[strimzi.io/discovery] is reserved");
        assert!(message.contains(&field), "{message}");
    }
    let message =
        refused_on_pool(json!({"pod": {"metadata": {"labels": {"app.kubernetes.io/managed-by": "me"}}}}));
    assert!(message.contains("labels[app.kubernetes.io/managed-by] is reserved"), "{message}");
}

#[test]
fn parts_that_kubernetes_would_not_understand_are_refused_with_the_reason() {
    let tolerations = json!({"pod": {"tolerations": [{"key": "a"}, {"tolerationSeconds": "soon"}]}});
    let message = refused_on_pool(tolerations.clone());
    assert!(message.contains("spec.template.pod.tolerations[1].tolerationSeconds"), "{message}");
    assert!(message.contains("\"soon\""), "{message}");
    let message = refused_on_cluster(tolerations);
    assert!(message.contains("spec.kafka.template.pod.tolerations[1].tolerationSeconds"), "{message}");
    let message = refused_on_pool(json!({"initContainer": {"securityContext": {"runAsUsr": 7}}}));
    assert!(message.contains("spec.template.initContainer.securityContext.runAsUsr"), "{message}");
}

#[test]
fn volumes_and_mounts_that_clash_with_those_of_a_node_are_refused() {
    let message = refused_on_pool(json!({"pod": {"volumes": [{"name": "data-0", "emptyDir": {}}]}}));
    assert!(message.contains("spec.template.pod.volumes[0].name is 'data-0'"), "{message}");
    let message = refused_on_pool(json!({
        "pod": {"volumes": [{"name": "extras", "emptyDir": {}}]},
        "kafkaContainer": {"volumeMounts": [{"name": "extras", "mountPath": "/opt/kafka/libs"}]},
    }));
    assert!(message.contains("kafkaContainer.volumeMounts[0].mountPath is '/opt/kafka/libs'"), "{message}");
}

#[test]
fn a_bad_template_of_one_pool_does_not_hold_up_the_others() {
    let mut world = converged();
    set_pool_template(&mut world, "brokers", json!({"pod": {"tolerations": [{"kee": "a"}]}}));
    set_pool_template(&mut world, "controllers", json!({"pod": {"priorityClassName": "high"}}));
    assert_eq!(written(&world), ["StrimziPodSet my-cluster-controllers"]);
}

#[test]
fn a_new_cluster_with_a_bad_template_is_not_begun() {
    let mut world = quickstart();
    set_pool_template(&mut world, "brokers", json!({"pod": {"metadata": {"labels": {"strimzi.io/x": "1"}}}}));
    let plan = decide(&world);
    assert_eq!((plan.objects.len(), plan.facts.len()), (0, 0));
}

#[test]
fn parts_of_objects_that_are_not_made_yet_are_named() {
    let mut world = converged();
    let unused = json!({"metadata": {"labels": {"a": "1"}}});
    set_cluster_template(&mut world, json!({"externalBootstrapIngress": unused}));
    set_pool_template(&mut world, "brokers", json!({"perPodRoute": unused}));
    converge(&mut world);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    let ignored = |warnings: Vec<(String, String, String)>| -> String {
        warnings
            .into_iter()
            .filter(|(_, reason, _)| reason == "NotSupportedYet")
            .map(|(_, _, text)| text)
            .collect()
    };
    let on_cluster = ignored(conditions(&world, "Warning"));
    assert!(on_cluster.contains("spec.kafka.template.externalBootstrapIngress"), "{on_cluster}");
    let on_pool = ignored(pool_conditions(&world, "brokers", "Warning"));
    assert!(on_pool.contains("spec.template.perPodRoute"), "{on_pool}");
}

#[test]
fn a_template_that_is_acted_on_is_not_reported_as_ignored() {
    let mut world = converged();
    set_cluster_template(&mut world, json!({"pod": {"terminationGracePeriodSeconds": 31}}));
    let plan = decide(&world);
    assert!(plan.notices.iter().all(|notice| notice.reason() != "NotSupportedYet"), "{:?}", plan.notices);
}

/// A cluster with a listener that has a service for each broker.
fn with_services_of_brokers() -> World {
    let mut world = quickstart();
    edit_kafka(&mut world, |kafka| {
        let mut outside = kafka.spec.kafka.listeners[0].clone();
        (outside.name, outside.port, outside.type_) = ("outside".into(), 9094, api::ListenerType::NodePort);
        kafka.spec.kafka.listeners.push(outside);
    });
    converge(&mut world);
    world
}

/// The part of a template that pools can have, what is written in it, and where that must be found afterwards.
type Part = (&'static str, Value, fn(&World) -> Value);

fn parts_of_pools() -> Vec<Part> {
    let metadata = json!({"metadata": {"labels": {"a": "1"}, "annotations": {"b": "2"}}});
    let volumes = json!({"volumes": [{"name": "plain", "emptyDir": {}}],
        "templatedVolumes": [{"name": "own", "secret": {"secretName": "own-{nodeId}"}}]});
    vec![
        ("podSet", metadata.clone(), |world| marks_of(&world.pod_sets["my-cluster-brokers"].meta)),
        ("persistentVolumeClaim", metadata.clone(), |world| {
            let claim = world.claims.iter().find(|(name, _)| name.ends_with("my-cluster-brokers-0"));
            marks_of(&claim.expect("a claim").1.meta)
        }),
        ("perPodService", metadata.clone(), |world| {
            marks_of(&world.services["my-cluster-brokers-outside-0"].meta)
        }),
        ("pod", metadata, |world| {
            let meta = &broker(world)["metadata"];
            json!([meta["labels"]["a"], meta["annotations"]["b"]])
        }),
        ("pod", volumes, |world| {
            let pod = broker(world);
            let volumes = pod["spec"]["volumes"].as_array().unwrap();
            let named = |name: &str| volumes.iter().find(|volume| volume["name"] == name).cloned();
            let own = named("own").map(|own| own["secret"]["secretName"].clone());
            json!([named("plain").map(|_| "1"), own.map(|own| if own == "own-0" { "2" } else { "wrong" })])
        }),
        (
            "kafkaContainer",
            json!({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}),
            |world| env_of(&broker(world)["spec"]["containers"][0]),
        ),
        (
            "initContainer",
            json!({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}),
            |world| env_of(&broker(world)["spec"]["initContainers"][0]),
        ),
    ]
}

fn marks_of(meta: &Meta) -> Value {
    json!([meta.labels.get("a"), meta.annotations.get("b")])
}

fn env_of(container: &Value) -> Value {
    let env = container["env"].as_array().cloned().unwrap_or_default();
    let value = |name: &str| env.iter().find(|one| one["name"] == name).map(|one| one["value"].clone());
    json!([value("A"), value("B")])
}

#[test]
fn each_part_of_a_pools_template_reaches_its_object_from_either_level() {
    let whole = with_services_of_brokers();
    for (part, content, found) in parts_of_pools() {
        let nothing = json!([null, null]);
        assert_eq!(found(&whole), nothing, "{part} before");

        let mut from_cluster = whole.clone();
        set_cluster_template(&mut from_cluster, json!({ (part): content }));
        converge(&mut from_cluster);
        assert_eq!(found(&from_cluster), json!(["1", "2"]), "spec.kafka.template.{part}");

        let mut from_pool = whole.clone();
        set_pool_template(&mut from_pool, "brokers", json!({ (part): content }));
        converge(&mut from_pool);
        assert_eq!(found(&from_pool), json!(["1", "2"]), "spec.template.{part}");

        // A pool with a template of its own takes nothing from the cluster's, nor from that of another pool.
        set_pool_template(&mut from_cluster, "brokers", json!({}));
        set_pool_template(&mut from_cluster, "controllers", json!({ (part): content }));
        converge(&mut from_cluster);
        assert_eq!(found(&from_cluster), nothing, "{part} with an empty template of the pool");
    }
}

#[test]
fn every_template_of_the_schema_is_acted_on_or_named() {
    // A part that is added to the schema later must not be forgotten here.
    let part = json!({"metadata": {"labels": {"a": "1"}}});
    let template: api::KafkaClusterTemplate = serde_json::from_value(json!({
        "pod": part, "bootstrapService": part, "brokersService": part, "externalBootstrapService": part,
        "perPodService": part, "externalBootstrapRoute": part, "perPodRoute": part,
        "externalBootstrapIngress": part, "perPodIngress": part, "persistentVolumeClaim": part,
        "podDisruptionBudget": part, "kafkaContainer": {"env": [{"name": "A"}]},
        "initContainer": {"env": [{"name": "A"}]}, "clusterCaCert": part, "serviceAccount": part,
        "jmxSecret": part, "clusterRoleBinding": part, "podSet": part,
    }))
    .unwrap();
    let all = serde_json::to_value(&template).unwrap();
    let whole = with_services_of_brokers();
    for (name, value) in all.as_object().unwrap() {
        let mut world = whole.clone();
        set_cluster_template(&mut world, json!({ (name): value }));
        let plan = decide(&world);
        let named =
            plan.notices.iter().any(|notice| notice.to_string().contains(&format!("template.{name}")));
        let is_quiet = plan.objects.is_empty() && plan.services.is_empty();
        assert_eq!(named, is_quiet, "{name} must either have an effect or be named");
    }
}

#[test]
fn voters_and_brokers_have_budgets_of_their_own_and_no_pod_is_in_two() {
    let mut world = quickstart();
    let budgets = |world: &World| -> BTreeMap<String, (i64, Value)> {
        let objects =
            decide(world).objects.into_iter().filter(|object| object.kind() == "PodDisruptionBudget");
        let read = |object: Object| {
            let Object::Budget(budget) = object else { panic!("not a budget") };
            let spec = serde_json::to_value(budget.spec).unwrap();
            let least = spec["minAvailable"].as_i64().unwrap();
            (
                budget.metadata.name.unwrap(),
                (least, spec["selector"]["matchLabels"]["strimzi.io/controller-role"].clone()),
            )
        };
        objects.map(read).collect()
    };
    let found = budgets(&world);
    assert_eq!(found["my-cluster-kafka"], (2, "false".into()));
    assert_eq!(found["my-cluster-kafka-controllers"], (2, "true".into()));
    set_cluster_template(&mut world, json!({"podDisruptionBudget": {"maxUnavailable": 0}}));
    assert_eq!(budgets(&world)["my-cluster-kafka"].0, 3);
}

#[test]
fn only_nodes_and_the_operator_reach_what_is_internal() {
    let policy = decide(&quickstart()).objects.into_iter().find_map(|object| match object {
        Object::Policy(policy) => Some(serde_json::to_value(policy.spec).unwrap()),
        _ => None,
    });
    let policy = policy.unwrap();
    let from = |port: u64| {
        let rules = policy["ingress"].as_array().unwrap();
        rules.iter().find(|rule| rule["ports"][0]["port"] == port).unwrap()["from"].clone()
    };
    for internal in [9090, 9091] {
        assert_eq!(from(internal).as_array().unwrap().len(), 2, "{internal}");
        assert!(from(internal).to_string().contains("cluster-operator"), "{internal}");
    }
    let launcher = from(8080);
    assert_eq!(launcher.as_array().unwrap().len(), 1, "nobody else asks the launcher: {launcher}");
    assert!(launcher.to_string().contains("cluster-operator"), "{launcher}");
    assert!(from(9092).is_null(), "clients come from anywhere");
}
