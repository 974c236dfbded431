//! Around the pods: what nodes log, what they tell in numbers, which rack they are in, how they are probed, which keys they
//! get, and what they may not do.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::*;
use karst_core::names::{KEY_ALGORITHM_ANNOTATION, RACK_ANNOTATION};
use karst_core::objects::Object;
use karst_core::plan::{Plan, plan};
use karst_core::world::{Answer, Answers, Reference, Texts, World};
use serde_json::{Value, json};

const BROKER: &str = "my-cluster-brokers-0";
const CONTROLLER: &str = "my-cluster-controllers-3";

fn set(world: &mut World, field: &str, value: Value) {
    edit_kafka(world, |kafka| {
        let mut spec = serde_json::to_value(&kafka.spec.kafka).unwrap();
        spec[field] = value;
        kafka.spec.kafka = serde_json::from_value(spec).unwrap();
    });
}

fn pod(world: &World, name: &str) -> Value {
    let pods = world.pod_sets.values().find_map(|set| set.pods.get(name));
    serde_json::from_str(&pods.expect(name).json).unwrap()
}

fn found(entries: &[(&str, &str)]) -> Reference<Texts> {
    Reference::Found(entries.iter().map(|(key, text)| ((*key).to_owned(), Arc::from(*text))).collect())
}

fn from_map(name: &str, key: &str) -> Value {
    json!({"configMapKeyRef": {"name": name, "key": key}})
}

/// The ConfigMaps that a plan writes: name and content.
fn written(plan: &Plan) -> BTreeMap<String, BTreeMap<String, String>> {
    let maps = plan.objects.iter().filter_map(|object| match object {
        Object::ConfigMap(map) => Some((map.metadata.name.clone()?, map.data.clone()?)),
        _ => None,
    });
    maps.collect()
}

fn warnings(world: &World) -> String {
    conditions(world, "Warning")
        .into_iter()
        .map(|(_, reason, message)| format!("{reason}: {message}\n"))
        .collect()
}

mod logging {
    use super::*;

    #[test]
    fn a_changed_level_reaches_the_files_and_restarts_nobody() {
        let mut world = converged();
        set(&mut world, "logging", json!({"type": "inline", "loggers": {"kafka.server": "DEBUG"}}));
        let plan = decide(&world);
        let maps = written(&plan);
        assert_eq!(maps.len(), 6, "every node gets it");
        for map in maps.values() {
            let text = &map["log4j2.properties"];
            assert!(text.contains(".name = kafka.server\n") && text.contains(".level = DEBUG\n"), "{text}");
        }
        assert_eq!(plan.objects.len(), 6, "and nothing else changes: {:?}", plan.objects);
        let uids = |world: &World| world.pods.values().map(|pod| pod.meta.uid.clone()).collect::<Vec<_>>();
        let before = uids(&world);
        converge(&mut world);
        assert_eq!(uids(&world), before, "every pod is the one that it was");
        assert!(decide(&world).restarts.is_empty());
        assert_eq!(warnings(&world), "");
    }

    #[test]
    fn kafka_3_9_reads_its_file_once_so_a_changed_level_is_a_reason_to_restart() {
        let mut world = world(include_str!("../../../../deploy/examples/kafka-3.9.yaml"));
        converge(&mut world);
        let before: BTreeMap<_, _> =
            world.pods.iter().map(|(name, pod)| (name.clone(), pod.revision().unwrap().to_owned())).collect();
        set(
            &mut world,
            "logging",
            json!({"type": "inline", "loggers": {"log4j.logger.kafka.server": "DEBUG"}}),
        );
        let maps = written(&decide(&world));
        assert!(
            maps.values().all(|map| map["log4j.properties"].contains("log4j.logger.kafka.server=DEBUG\n"))
        );
        converge(&mut world);
        for (name, pod) in &world.pods {
            assert_ne!(pod.revision(), before.get(name).map(String::as_str), "{name}");
        }
        set(&mut world, "logging", Value::Null);
        converge(&mut world);
        for (name, pod) in &world.pods {
            assert_eq!(pod.revision(), before.get(name).map(String::as_str), "{name}");
        }
    }

    #[test]
    fn a_wrong_level_is_told_and_nodes_keep_what_they_log() {
        let mut world = converged();
        set(&mut world, "logging", json!({"type": "inline", "loggers": {"kafka.server": "DEBUG"}}));
        converge(&mut world);
        set(&mut world, "logging", json!({"type": "inline", "loggers": {"kafka.server": "LOUD"}}));
        assert_eq!(decide(&world).objects, []);
        converge(&mut world);
        let said = warnings(&world);
        assert!(
            said.contains(
                "ConfigurationKept: spec.kafka.logging.loggers.kafka.server is 'LOUD'; use one of OFF"
            ),
            "{said}"
        );
        assert!(said.contains("nodes keep the logging they have"), "{said}");
        assert_eq!(conditions(&world, "Ready")[0].0, "True");
        set(&mut world, "logging", Value::Null);
        assert_eq!(written(&decide(&world)).len(), 6);
        converge(&mut world);
        assert_eq!(warnings(&world), "");
    }

    #[test]
    fn a_file_of_the_users_is_followed_and_kept_when_it_is_lost() {
        let mut world = converged();
        let text = "rootLogger.level = WARN\n";
        world.references.insert("mine".into(), found(&[("log4j2.properties", text)]));
        set(
            &mut world,
            "logging",
            json!({"type": "external", "valueFrom": from_map("mine", "log4j2.properties")}),
        );
        let maps = written(&decide(&world));
        assert_eq!(maps[BROKER]["log4j2.properties"], "rootLogger.level = WARN\nmonitorInterval=30\n");
        converge(&mut world);
        let text = "rootLogger.level = ERROR\n";
        world.references.insert("mine".into(), found(&[("log4j2.properties", text)]));
        assert!(written(&decide(&world))[BROKER]["log4j2.properties"].contains("ERROR"));
        converge(&mut world);

        for (reference, part) in [
            (Reference::Missing, "name is 'mine', and namespace 'myproject' has no such ConfigMap"),
            (found(&[("other", "")]), "key is 'log4j2.properties', and ConfigMap 'mine' has only 'other'"),
            (Reference::Unreadable("forbidden".into()), "cannot be read: forbidden"),
            (found(&[("log4j2.properties", "log4j.rootLogger=INFO")]), "is for log4j 1, and Kafka 4"),
        ] {
            world.references.insert("mine".into(), reference);
            assert_eq!(decide(&world).objects, []);
            converge(&mut world);
            let said = warnings(&world);
            assert!(said.contains(part), "{part} is not in: {said}");
        }
        // A node that comes now logs like the others.
        edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 4);
        converge(&mut world);
        let new = world.config_maps.values().filter(|map| map.files.contains_key("log4j2.properties"));
        assert_eq!(new.count(), 7);
    }

    #[test]
    fn a_cluster_that_does_not_run_yet_waits_for_its_file() {
        let mut world = quickstart();
        set(&mut world, "logging", json!({"type": "external", "valueFrom": from_map("mine", "x")}));
        converge(&mut world);
        assert!(world.pod_sets.is_empty());
        let (status, reason, message) = conditions(&world, "Ready").remove(0);
        assert_eq!((status.as_str(), reason.as_str()), ("False", "InvalidResource"));
        assert!(message.contains("has no such ConfigMap"), "{message}");
        world.references.insert("mine".into(), found(&[("x", "rootLogger.level = WARN\n")]));
        converge(&mut world);
        assert_eq!(world.pods.len(), 6);
    }
}

mod metrics {
    use super::*;

    fn with_metrics() -> World {
        let mut world = converged();
        world.references.insert("rules".into(), found(&[("kafka.yml", "rules:\n- pattern: .*\n")]));
        set(
            &mut world,
            "metricsConfig",
            json!({"type": "jmxPrometheusExporter", "valueFrom": from_map("rules", "kafka.yml")}),
        );
        world
    }

    #[test]
    fn every_node_serves_metrics_and_the_policy_lets_them_be_read() {
        let mut world = with_metrics();
        let maps = written(&decide(&world));
        converge(&mut world);
        for name in [BROKER, CONTROLLER] {
            assert_eq!(maps[name]["metrics-config.yml"], "rules:\n- pattern: .*\n");
            let argument = "-javaagent:/karst/jmx_prometheus_javaagent.jar=9404:/opt/kafka/custom-config/metrics-config.yml\n";
            assert!(maps[name]["jvm.options"].ends_with(argument), "{}", maps[name]["jvm.options"]);
            let spec = &pod(&world, name)["spec"];
            let ports = spec["containers"][0]["ports"].as_array().unwrap();
            assert!(
                ports.iter().any(|port| port["name"] == "tcp-prometheus" && port["containerPort"] == 9404)
            );
            let install = spec["initContainers"][0]["command"].as_array().unwrap();
            assert_eq!(install[3..], ["--agent", "/karst/jmx_prometheus_javaagent.jar"]);
        }
        let policy = decide(&with_metrics()).objects.into_iter().find_map(|object| match object {
            Object::Policy(policy) => policy.spec,
            _ => None,
        });
        let rules = serde_json::to_value(policy.expect("a new policy").ingress).unwrap();
        let rule = rules.as_array().unwrap().iter().find(|rule| rule["ports"][0]["port"] == 9404).unwrap();
        assert!(rule.get("from").is_none(), "{rule}");
    }

    #[test]
    fn new_rules_need_no_restart_and_broken_ones_change_nothing() {
        let mut world = with_metrics();
        converge(&mut world);
        let revision = world.pods[BROKER].revision().unwrap().to_owned();
        world.references.insert("rules".into(), found(&[("kafka.yml", "rules: []\n")]));
        let plan = decide(&world);
        assert_eq!((written(&plan).len(), plan.objects.len()), (6, 6));
        converge(&mut world);
        for broken in [found(&[("kafka.yml", "rules: [\n")]), Reference::Missing] {
            world.references.insert("rules".into(), broken);
            assert_eq!(decide(&world).objects, []);
            converge(&mut world);
            let said = warnings(&world);
            assert!(said.contains("nodes keep the metrics they have"), "{said}");
        }
        assert_eq!(world.pods[BROKER].revision(), Some(revision.as_str()));
    }

    #[test]
    fn a_reporter_that_karst_does_not_have_is_named() {
        let mut world = converged();
        set(&mut world, "metricsConfig", json!({"type": "strimziMetricsReporter"}));
        converge(&mut world);
        let said = warnings(&world);
        assert!(said.contains("spec.kafka.metricsConfig (strimziMetricsReporter)"), "{said}");
        assert!(!pod(&world, BROKER).to_string().contains("9404"));
    }
}

mod racks {
    use super::*;

    const ZONE: &str = "topology.kubernetes.io/zone";

    fn with_racks() -> World {
        let mut world = quickstart();
        set(&mut world, "rack", json!({"topologyKey": ZONE}));
        world
    }

    fn rack(world: &World, pod: &str) -> Option<String> {
        world.pods[pod].meta.annotations.get(RACK_ANNOTATION).cloned()
    }

    #[test]
    fn brokers_are_told_where_they_are_and_controllers_do_not_ask() {
        let mut world = with_racks();
        converge(&mut world);
        assert_eq!(rack(&world, BROKER).as_deref(), Some("zone-a"));
        assert_eq!(rack(&world, CONTROLLER), None);
        let spec = &pod(&world, BROKER)["spec"];
        let command = spec["containers"][0]["command"].as_array().unwrap();
        assert_eq!(command[2..], ["--rack-file", "/opt/kafka/pod/rack"]);
        let volume =
            spec["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "pod").unwrap();
        let path = &volume["downwardAPI"]["items"][0]["fieldRef"]["fieldPath"];
        assert_eq!(path, "metadata.annotations['karst.io/rack']");
        assert!(!pod(&world, CONTROLLER).to_string().contains("rack"));
    }

    #[test]
    fn brokers_go_to_machines_with_a_rack_and_prefer_different_ones() {
        let mut world = with_racks();
        let terms = json!([{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
                           {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]);
        let wanted = json!({"pod": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                                                 {"nodeSelectorTerms": terms}}}}});
        edit_pool(&mut world, "brokers", |pool| pool.spec.template = serde_json::from_value(wanted).unwrap());
        converge(&mut world);
        let affinity = &pod(&world, BROKER)["spec"]["affinity"];
        let required = &affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        for term in required["nodeSelectorTerms"].as_array().unwrap() {
            let expressions = term["matchExpressions"].as_array().unwrap();
            assert_eq!(expressions.last().unwrap(), &json!({"key": ZONE, "operator": "Exists"}));
        }
        let preferred = &affinity["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(preferred[0]["podAffinityTerm"]["topologyKey"], ZONE);
    }

    #[test]
    fn without_a_template_brokers_also_prefer_different_machines() {
        let mut world = with_racks();
        converge(&mut world);
        let affinity = &pod(&world, BROKER)["spec"]["affinity"];
        let preferred = &affinity["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
        let keys: Vec<_> =
            preferred.as_array().unwrap().iter().map(|one| &one["podAffinityTerm"]["topologyKey"]).collect();
        assert_eq!(keys, ["kubernetes.io/hostname", ZONE]);
    }

    #[test]
    fn nothing_is_asked_when_all_brokers_know() {
        let mut world = with_racks();
        converge(&mut world);
        assert!(plan(&world).unwrap().questions.machines.is_empty());
    }

    #[test]
    fn a_machine_without_the_label_is_named() {
        let mut world = with_racks();
        let mut kafka = Kafka { rack: Answer::Known(None), ..Kafka::default() };
        for _ in 0..40 {
            if kafka.voters.is_empty() {
                kafka.voters = Kafka::formed(&world).voters;
            }
            step(&mut world, &mut kafka, &[]);
        }
        let said = warnings(&world);
        let expected = "RackUnknown: machine 'machine-1' has no label 'topology.kubernetes.io/zone', so my-cluster-brokers-0, my-cluster-brokers-1, my-cluster-brokers-2 have no rack";
        assert!(said.contains(expected), "{said}");
    }

    #[test]
    fn without_the_right_to_read_machines_no_broker_that_runs_is_lost() {
        let mut world = converged();
        set(&mut world, "rack", json!({"topologyKey": ZONE}));
        let mut kafka = Kafka::formed(&world);
        kafka.rack = Answer::Silent("nodes \"machine-1\" is forbidden".into());
        let revision = world.pods[BROKER].revision().unwrap().to_owned();
        for _ in 0..40 {
            step(&mut world, &mut kafka, &[]);
        }
        assert_eq!(world.pods[BROKER].revision(), Some(revision.as_str()), "it was restarted");
        let said = warnings(&world);
        assert!(said.contains("is forbidden") && said.contains("racks: true"), "{said}");

        world.answers = Answers::default();
        kafka.rack = Answer::Known(Some("zone-b".into()));
        converge_kafka(&mut world, &mut kafka, &[]);
        assert_ne!(world.pods[BROKER].revision(), Some(revision.as_str()));
        assert_eq!(rack(&world, BROKER).as_deref(), Some("zone-b"));
        assert_eq!(warnings(&world), "");
    }

    #[test]
    fn a_rack_can_come_from_a_variable() {
        let mut world = quickstart();
        set(&mut world, "rack", json!({"type": "environment-variable", "envVarName": "ROW"}));
        converge(&mut world);
        let spec = &pod(&world, BROKER)["spec"];
        assert_eq!(spec["containers"][0]["command"].as_array().unwrap()[2..], ["--rack-variable", "ROW"]);
        assert!(spec["affinity"].get("nodeAffinity").is_none());
        assert_eq!(rack(&world, BROKER), None);
    }

    #[test]
    fn a_key_that_no_label_can_have_is_refused() {
        for (rack, part) in [
            (json!({"topologyKey": "a b"}), "spec.kafka.rack.topologyKey is 'a b'"),
            (
                json!({"type": "environment-variable", "envVarName": "1$"}),
                "spec.kafka.rack.envVarName is '1$'",
            ),
        ] {
            let mut world = converged();
            set(&mut world, "rack", rack);
            converge(&mut world);
            let message = conditions(&world, "Ready").remove(0).2;
            assert!(message.contains(part), "{message}");
        }
    }
}

#[test]
fn probes_are_as_users_set_them() {
    let mut world = quickstart();
    set(&mut world, "livenessProbe", json!({"initialDelaySeconds": 20, "failureThreshold": 7}));
    set(
        &mut world,
        "readinessProbe",
        json!({"periodSeconds": 9, "timeoutSeconds": 2, "successThreshold": 2}),
    );
    converge(&mut world);
    let kafka = &pod(&world, BROKER)["spec"]["containers"][0];
    let (live, ready) = (&kafka["livenessProbe"], &kafka["readinessProbe"]);
    assert_eq!((&live["initialDelaySeconds"], &live["failureThreshold"]), (&json!(20), &json!(7)));
    assert_eq!((&live["periodSeconds"], &live["timeoutSeconds"]), (&json!(5), &json!(5)));
    assert_eq!((&ready["periodSeconds"], &ready["timeoutSeconds"]), (&json!(9), &json!(2)));
    assert_eq!(ready["successThreshold"], 2);

    set(&mut world, "livenessProbe", json!({"successThreshold": 2}));
    converge(&mut world);
    let message = conditions(&world, "Ready").remove(0).2;
    assert!(
        message.contains("spec.kafka.livenessProbe.successThreshold is 2; Kubernetes allows only 1"),
        "{message}"
    );
}

#[test]
fn jvm_options_and_resources_reach_the_nodes_and_a_change_restarts_them() {
    let mut world = converged();
    let revision = world.pods[BROKER].revision().unwrap().to_owned();
    set(&mut world, "jvmOptions", json!({"-XX": {"UseZGC": "true"}, "gcLoggingEnabled": true}));
    edit_pool(&mut world, "brokers", |pool| {
        pool.spec.resources = serde_json::from_value(json!({"limits": {"memory": "3Gi"}})).unwrap();
    });
    let maps = written(&decide(&world));
    let options: Vec<_> = maps[BROKER]["jvm.options"].lines().skip(1).collect();
    assert_eq!(options, ["-Xms1610612736", "-Xmx1610612736", "-XX:+UseZGC", "-Xlog:gc*"]);
    converge(&mut world);
    assert_ne!(world.pods[BROKER].revision(), Some(revision.as_str()));
    let container = &pod(&world, BROKER)["spec"]["containers"][0];
    assert_eq!(container["resources"]["limits"]["memory"], "3Gi");
}

mod keys {
    use super::*;

    fn ask_for(world: &mut World, algorithm: &str) {
        edit_kafka(world, |kafka| {
            let annotations = kafka.metadata.annotations.get_or_insert_default();
            annotations.insert(KEY_ALGORITHM_ANNOTATION.into(), algorithm.into());
        });
    }

    fn kinds(world: &World) -> Vec<bool> {
        let issues = plan(world).unwrap().certificates;
        issues.iter().map(karst_core::certificates::Issue::takes_long).collect()
    }

    #[test]
    fn keys_are_of_the_kind_that_is_asked_for() {
        let mut world = quickstart();
        assert_eq!(kinds(&world), [false, false]);
        ask_for(&mut world, "rsa-2048");
        assert_eq!(kinds(&world), [true, true]);
        converge(&mut world);
        assert_eq!(world.pods.len(), 6);
        assert!(warnings(&world).is_empty());
    }

    #[test]
    fn keys_that_exist_stay_when_another_kind_is_asked_for() {
        let mut world = converged();
        ask_for(&mut world, "rsa-4096");
        let plan = decide(&world);
        assert!(plan.certificates.is_empty() && plan.objects.is_empty() && plan.restarts.is_empty());
    }

    #[test]
    fn no_authority_is_made_of_a_kind_that_nobody_knows() {
        let mut world = quickstart();
        ask_for(&mut world, "rsa-1024");
        converge(&mut world);
        assert!(world.secrets.is_empty() && world.pods.is_empty());
        let said = warnings(&world);
        assert!(
            said.contains("karst.io/key-algorithm is 'rsa-1024'; use one of ecdsa-p256, rsa-2048, rsa-4096"),
            "{said}"
        );
        ask_for(&mut world, "ecdsa-p256");
        converge(&mut world);
        assert_eq!(world.pods.len(), 6);
    }
}

/// The rules of the restricted profile of Kubernetes' pod security standards that a pod of ours could break.
fn breaches(pod: &Value) -> Vec<String> {
    let spec = &pod["spec"];
    let mut breaches = Vec::new();
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        if spec.get(field).is_some_and(|value| *value != json!(false)) {
            breaches.push(field.to_owned());
        }
    }
    let allowed = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    for volume in spec["volumes"].as_array().unwrap() {
        let sources = volume.as_object().unwrap().keys().filter(|key| *key != "name");
        breaches.extend(sources.filter(|source| !allowed.contains(&source.as_str())).cloned());
    }
    let whole = &spec["securityContext"];
    for container in ["initContainers", "containers"].iter().flat_map(|list| spec[list].as_array().unwrap()) {
        let own = &container["securityContext"];
        let name = container["name"].as_str().unwrap();
        let mut demand = |rule: &str, holds: bool| {
            if !holds {
                breaches.push(format!("{name}: {rule}"));
            }
        };
        let either =
            |field: &str| if own[field].is_null() { whole[field].clone() } else { own[field].clone() };
        demand("allowPrivilegeEscalation", own["allowPrivilegeEscalation"] == json!(false));
        demand("privileged", own["privileged"] != json!(true));
        demand("capabilities.drop", own["capabilities"]["drop"] == json!(["ALL"]));
        demand("capabilities.add", own["capabilities"]["add"].is_null());
        demand("runAsNonRoot", either("runAsNonRoot") == json!(true));
        demand("runAsUser", either("runAsUser") != json!(0));
        demand("seccompProfile", either("seccompProfile")["type"] == json!("RuntimeDefault"));
        demand("procMount", own["procMount"].is_null());
        demand(
            "hostPort",
            container["ports"].as_array().into_iter().flatten().all(|port| port["hostPort"].is_null()),
        );
    }
    breaches
}

#[test]
fn pods_keep_to_the_restricted_profile_with_all_that_can_be_asked_for() {
    let mut world = quickstart();
    world.references.insert("rules".into(), found(&[("kafka.yml", "rules: []\n")]));
    set(&mut world, "rack", json!({"topologyKey": "zone"}));
    set(
        &mut world,
        "metricsConfig",
        json!({"type": "jmxPrometheusExporter", "valueFrom": from_map("rules", "kafka.yml")}),
    );
    converge(&mut world);
    for name in [BROKER, CONTROLLER] {
        assert_eq!(breaches(&pod(&world, name)), [""; 0], "{name}");
    }
    // The check can fail.
    let mut loose = pod(&world, BROKER);
    loose["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    loose["spec"]["hostNetwork"] = json!(true);
    assert_eq!(breaches(&loose).len(), 4, "{:?}", breaches(&loose));
}
