//! Listeners that reach outside, certificates of users, and who may do what.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::jiff::SignedDuration;
use karst_api as api;
use karst_certs::{Authority, Decision, Kind, Nodes, Opening, Request, Settings};
use karst_core::memory::RefusedService;
use karst_core::names::LISTENER_LABEL;
use karst_core::objects::Object;
use karst_core::plan::{Plan, plan};
use karst_core::rolling::Cause;
use karst_core::world::{Files, Reference, SecretContent, World};
use serde_json::{Value, json};

fn set_listeners(world: &mut World, listeners: Value) {
    edit_kafka(world, |kafka| kafka.spec.kafka.listeners = serde_json::from_value(listeners).unwrap());
}

/// The example with these listeners, in which nothing was done yet.
fn with(listeners: Value) -> World {
    let mut world = quickstart();
    set_listeners(&mut world, listeners);
    world
}

#[allow(clippy::needless_pass_by_value, reason = "a test writes it in place")]
fn outside(type_: &str, tls: bool, configuration: Value) -> Value {
    json!([
        {"name": "plain", "port": 9092, "type": "internal", "tls": false},
        {"name": "out", "port": 9095, "type": type_, "tls": tls, "configuration": configuration},
    ])
}

/// The settings that a broker's pod would start with, by what was last written.
fn config(world: &World, pod: &str) -> BTreeMap<String, String> {
    let mut copy = world.clone();
    let map = copy.config_maps.get_mut(pod).map(Arc::make_mut).expect(pod);
    map.digest = None;
    let found = decide(&copy).objects.into_iter().find_map(|object| match object {
        Object::ConfigMap(map) if map.metadata.name.as_deref() == Some(pod) => map.data,
        _ => None,
    });
    let text = found.expect("a ConfigMap")["server.config"].clone();
    let lines = text.lines().map(|line| line.split_once('=').unwrap());
    lines.map(|(key, value)| (key.to_owned(), value.replace("\\:", ":"))).collect()
}

/// What a broker tells clients of the listener `out`.
fn told(world: &World, pod: &str) -> Option<String> {
    let all = config(world, pod)["advertised.listeners"].clone();
    all.split(',').find_map(|one| one.strip_prefix("OUT-9095://").map(str::to_owned))
}

fn services(plan: &Plan) -> BTreeMap<String, Service> {
    let service = |object: &Object| match object {
        Object::Service(service) => service.clone(),
        other => panic!("{}", other.describe()),
    };
    plan.services.iter().map(service).map(|one| (one.metadata.name.clone().unwrap(), one)).collect()
}

/// The services of a new cluster's listeners.
fn made_for(listeners: Value) -> BTreeMap<String, Service> {
    let mut world = with(listeners);
    loop {
        let plan = decide(&world);
        if !plan.services.is_empty() {
            return services(&plan);
        }
        assert!(!is_quiet(&plan), "no services are made");
        carry_out(&mut world, plan);
    }
}

fn status(world: &World, name: &str) -> api::ListenerStatus {
    let listeners = world.kafka.status.clone().unwrap().listeners.unwrap();
    listeners.into_iter().find(|one| one.name.as_deref() == Some(name)).expect(name)
}

fn warnings(world: &World, reason: &str) -> Vec<String> {
    let all = conditions(world, "Warning").into_iter();
    all.filter(|(_, found, _)| found == reason).map(|(_, _, message)| message).collect()
}

fn give_address(world: &mut World, service: &str, address: &str) {
    let service = Arc::make_mut(world.services.get_mut(service).expect(service));
    service.addresses = vec![address.into()];
}

fn names_of(world: &World, pod: &str) -> Vec<String> {
    world.secrets[pod].stored().unwrap().certificate().names.clone()
}

mod kept;

const BROKERS: [&str; 3] = ["my-cluster-brokers-0", "my-cluster-brokers-1", "my-cluster-brokers-2"];

#[test]
fn each_broker_has_a_service_under_the_names_that_strimzi_users_know() {
    let made = made_for(outside("cluster-ip", false, json!({})));
    let names: Vec<_> = made.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "my-cluster-brokers-out-0",
            "my-cluster-brokers-out-1",
            "my-cluster-brokers-out-2",
            "my-cluster-kafka-out-bootstrap"
        ]
    );
    let broker = made["my-cluster-brokers-out-1"].spec.clone().unwrap();
    assert_eq!(broker.type_.as_deref(), Some("ClusterIP"));
    let selector = broker.selector.unwrap();
    assert_eq!(selector["strimzi.io/pod-name"], "my-cluster-brokers-1");
    assert_eq!(selector["strimzi.io/pool-name"], "brokers");
    let bootstrap = made["my-cluster-kafka-out-bootstrap"].spec.clone().unwrap();
    assert_eq!(bootstrap.selector.unwrap()["strimzi.io/broker-role"], "true");
    assert_eq!(bootstrap.ports.unwrap()[0].port, 9095);

    let made = made_for(json!([{"name": "external", "port": 9094, "type": "nodeport", "tls": true}]));
    assert!(
        made.contains_key("my-cluster-brokers-0") && made.contains_key("my-cluster-kafka-external-bootstrap")
    );
}

#[test]
fn a_listener_inside_needs_no_address_of_others() {
    let mut world = with(outside("cluster-ip", true, json!({})));
    converge(&mut world);
    assert_eq!(told(&world, BROKERS[1]).as_deref(), Some("my-cluster-brokers-out-1.myproject.svc:9095"));
    assert_eq!(
        status(&world, "out").bootstrap_servers.as_deref(),
        Some("my-cluster-kafka-out-bootstrap.myproject.svc:9095")
    );
    let names = names_of(&world, BROKERS[1]);
    for name in [
        "my-cluster-kafka-out-bootstrap.myproject.svc",
        "my-cluster-brokers-out-1.myproject.svc.cluster.local",
    ] {
        assert!(names.contains(&name.to_owned()), "{name} is not in {names:?}");
    }
    assert!(!names.iter().any(|name| name.starts_with("my-cluster-brokers-out-0")), "{names:?}");
    assert!(!names_of(&world, "my-cluster-controllers-3").iter().any(|name| name.contains("out")));
}

#[test]
fn brokers_behind_node_ports_are_started_once_with_the_port_that_they_got() {
    let mut world = with(outside("nodeport", true, json!({"bootstrap": {"nodePort": 32100}})));
    let mut kafka = Kafka::default();
    let mut restarts = 0;
    for _ in steps(60) {
        kafka = if kafka.voters.is_empty() { Kafka::formed(&world) } else { kafka };
        restarts += plan(&world).unwrap().restarts.len();
        if !step(&mut world, &mut kafka, &[]) {
            break;
        }
    }
    assert_eq!(restarts, 0);
    let port = world.services["my-cluster-brokers-out-1"].node_port.unwrap();
    assert_eq!(told(&world, BROKERS[1]), Some(format!("@node-ip@:{port}")));
    assert_eq!(
        status(&world, "out").bootstrap_servers.as_deref(),
        Some("192.168.0.1:32100,192.168.0.2:32100,192.168.0.3:32100")
    );
    // Each bootstrap address may lead to any broker.
    for pod in BROKERS {
        let names = names_of(&world, pod);
        assert!(
            ["192.168.0.1", "192.168.0.2", "192.168.0.3"].iter().all(|ip| names.contains(&(*ip).to_owned())),
            "{names:?}"
        );
    }
    let pod: Value =
        serde_json::from_str(&world.pod_sets["my-cluster-brokers"].pods[BROKERS[0]].json).unwrap();
    let env = pod["spec"]["containers"][0]["env"].to_string();
    assert!(env.contains("status.hostIP") && env.contains("KARST_NODE_IP"), "{env}");
    let controllers = &world.pod_sets["my-cluster-controllers"];
    assert!(controllers.pods.values().all(|pod| !pod.json.contains("KARST_NODE_IP")));
}

#[test]
fn a_pod_that_moves_to_another_machine_gets_new_certificates_and_nobody_restarts() {
    let mut world = with(outside("nodeport", true, json!({})));
    converge(&mut world);
    let uids: Vec<_> = world.pods.values().map(|pod| pod.meta.uid.clone()).collect();
    // For a moment nobody knows where it is. That alone makes no certificate.
    Arc::make_mut(world.pods.get_mut(BROKERS[0]).unwrap()).host_ip = None;
    assert_eq!(decide(&world).certificates.len(), 0);
    Arc::make_mut(world.pods.get_mut(BROKERS[0]).unwrap()).host_ip = Some("192.168.7.7".into());
    let plan = decide(&world);
    assert_eq!(plan.certificates.len(), 3, "those of the brokers");
    for issue in &plan.certificates {
        issue_certificates(&mut world, issue);
    }
    let names = names_of(&world, BROKERS[2]);
    assert!(
        names.contains(&"192.168.7.7".to_owned()) && !names.contains(&"192.168.0.1".to_owned()),
        "{names:?}"
    );
    let plan = decide(&world);
    assert_eq!((plan.certificates.len(), plan.restarts.len()), (0, 0));
    carry_out(&mut world, plan);
    assert_eq!(decide(&world).restarts, []);
    assert_eq!(world.pods.values().map(|pod| pod.meta.uid.clone()).collect::<Vec<_>>(), uids);
}

#[test]
fn a_load_balancer_without_an_address_delays_only_its_listener() {
    let mut world = with(outside("loadbalancer", true, json!({})));
    converge(&mut world);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    assert_eq!(told(&world, BROKERS[0]), None);
    assert!(!config(&world, BROKERS[0]).keys().any(|key| key.contains("out-9095")));
    assert_eq!(status(&world, "out").addresses, None);
    let said = warnings(&world, "ListenerAwaitsAddress");
    assert!(
        said[0].contains("my-cluster-brokers-out-0") && said[0].contains("my-cluster-kafka-out-bootstrap"),
        "{said:?}"
    );

    // One broker's address comes: that broker alone restarts, with a certificate for it.
    give_address(&mut world, "my-cluster-brokers-out-0", "lb-0.example.com");
    let mut restarted = Vec::new();
    let mut kafka = Kafka::formed(&world);
    for _ in steps(60) {
        restarted.extend(plan(&world).unwrap().restarts);
        if !step(&mut world, &mut kafka, &[]) {
            break;
        }
    }
    restarted.dedup();
    let pods: Vec<_> = restarted.iter().map(|restart| restart.pod.as_str()).collect();
    assert_eq!(pods, [BROKERS[0]]);
    assert!(
        matches!(&restarted[0].causes[..], [Cause::Changed(parts)] if parts.contains(&"settings")),
        "{restarted:?}"
    );
    assert_eq!(told(&world, BROKERS[0]).as_deref(), Some("lb-0.example.com:9095"));
    assert!(names_of(&world, BROKERS[0]).contains(&"lb-0.example.com".to_owned()));
    assert_eq!(told(&world, BROKERS[1]), None);

    give_address(&mut world, "my-cluster-kafka-out-bootstrap", "10.1.1.1");
    converge(&mut world);
    assert_eq!(status(&world, "out").bootstrap_servers.as_deref(), Some("10.1.1.1:9095"));
    assert!(BROKERS.iter().all(|pod| names_of(&world, pod).contains(&"10.1.1.1".to_owned())));
}

#[test]
fn an_address_that_is_no_host_is_not_told_to_anybody() {
    let mut world = with(outside("loadbalancer", true, json!({})));
    converge(&mut world);
    give_address(&mut world, "my-cluster-brokers-out-0", "evil:1,PLAIN-9092://evil");
    converge(&mut world);
    assert_eq!(told(&world, BROKERS[0]), None);
}

#[test]
fn an_address_that_goes_away_is_kept_until_there_is_another() {
    let mut world = with(outside("loadbalancer", true, json!({})));
    converge(&mut world);
    for (index, pod) in ["out-0", "out-1", "out-2"].iter().enumerate() {
        give_address(&mut world, &format!("my-cluster-brokers-{pod}"), &format!("10.0.0.{index}"));
    }
    give_address(&mut world, "my-cluster-kafka-out-bootstrap", "10.0.0.9");
    converge(&mut world);
    let before: Vec<_> = BROKERS.iter().map(|pod| told(&world, pod)).collect();
    // Somebody deletes all services; they come back without addresses.
    world.services.retain(|_, service| !service.meta.labels.contains_key(LISTENER_LABEL));
    let plan = decide(&world);
    assert_eq!((plan.services.len(), plan.restarts.len(), plan.certificates.len()), (4, 0, 0));
    converge(&mut world);
    assert_eq!(BROKERS.iter().map(|pod| told(&world, pod)).collect::<Vec<_>>(), before);
    assert!(decide(&world).restarts.is_empty());
}

#[test]
fn a_new_broker_waits_a_moment_for_its_load_balancer_and_no_longer() {
    let mut world = with(outside("loadbalancer", false, json!({})));
    while world.services.len() < 6 {
        let plan = decide(&world);
        carry_out(&mut world, plan);
    }
    for service in world.services.values_mut() {
        Arc::make_mut(service).meta.created = Some(world.now);
    }
    let brokers = |plan: &Plan| {
        let sets = plan.objects.iter().filter_map(|object| match object {
            Object::PodSet(set) if set.metadata.name.as_deref() == Some("my-cluster-brokers") => {
                Some(set.spec.pods.len())
            }
            _ => None,
        });
        sets.sum::<usize>()
    };
    world.pod_sets.clear();
    let plan = decide(&world);
    assert_eq!(brokers(&plan), 0);
    assert!(plan.look_again.is_some_and(|pause| pause <= Duration::from_secs(5)), "{:?}", plan.look_again);
    world.now += SignedDuration::from_secs(6);
    assert_eq!(brokers(&decide(&world)), 3);
}

#[test]
fn a_service_that_kubernetes_refuses_is_told_and_nothing_else_waits_for_it() {
    let mut world = with(outside("nodeport", false, json!({"brokers": [{"broker": 1, "nodePort": 99}]})));
    let name = "my-cluster-brokers-out-1";
    // As the operator does: what is refused is remembered, with what was asked for.
    let mut asked = None;
    let mut kafka = Kafka::default();
    for _ in steps(80) {
        kafka = if kafka.voters.is_empty() { Kafka::formed(&world) } else { kafka };
        let mut next = plan(&world).unwrap();
        if let Some(at) = next.services.iter().position(|one| one.meta().name.as_deref() == Some(name)) {
            let service = next.services.remove(at);
            asked = karst_core::listeners::services::asked(service.meta()).map(str::to_owned);
            let refused = RefusedService {
                asked: asked.clone(),
                why: "port 99 is not in the range".into(),
                until: world.now + SignedDuration::from_secs(60),
            };
            world.memory.refused_services.insert(name.into(), refused);
            carry_out(&mut world, next);
            continue;
        }
        if !step(&mut world, &mut kafka, &[]) {
            break;
        }
    }
    assert!(asked.is_some());
    assert_eq!(world.pods.len(), 6);
    assert!(told(&world, BROKERS[0]).is_some() && told(&world, BROKERS[1]).is_none());
    let said = warnings(&world, "ListenerServiceRefused");
    assert!(said[0].contains(name) && said[0].contains("port 99"), "{said:?}");
    assert_eq!(conditions(&world, "Ready")[0].0, "True");

    // A corrected listener is tried at once.
    set_listeners(
        &mut world,
        outside("nodeport", false, json!({"brokers": [{"broker": 1, "nodePort": 31999}]})),
    );
    assert!(services(&decide(&world)).contains_key(name));
}

#[test]
fn what_users_say_about_addresses_wins() {
    let mut world = with(outside(
        "nodeport",
        true,
        json!({
            "brokers": [{"broker": 0, "advertisedHost": "zero.example.com", "advertisedPort": 443}],
            "advertisedHostTemplate": "broker-{nodeId}.example.com",
            "advertisedPortTemplate": "9000 + {nodeId} * 10",
            "bootstrap": {"alternativeNames": ["kafka.example.com"]},
        }),
    ));
    converge(&mut world);
    assert_eq!(told(&world, BROKERS[0]).as_deref(), Some("zero.example.com:443"));
    assert_eq!(told(&world, BROKERS[2]).as_deref(), Some("broker-2.example.com:9020"));
    let names = names_of(&world, BROKERS[2]);
    assert!(
        ["broker-2.example.com", "kafka.example.com"].iter().all(|name| names.contains(&(*name).to_owned())),
        "{names:?}"
    );
    let pods = &world.pod_sets["my-cluster-brokers"].pods;
    assert!(pods.values().all(|pod| !pod.json.contains("KARST_NODE_IP")), "nobody needs to know the machine");
}

#[test]
fn a_load_balancer_with_a_told_address_waits_for_nobody() {
    let mut world =
        with(outside("loadbalancer", false, json!({"advertisedHostTemplate": "b{nodeId}.example.com"})));
    converge(&mut world);
    assert_eq!(told(&world, BROKERS[1]).as_deref(), Some("b1.example.com:9095"));
}

#[test]
fn all_settings_reach_the_services() {
    let made = made_for(outside(
        "loadbalancer",
        false,
        json!({
            "class": "fancy", "externalTrafficPolicy": "Local", "loadBalancerSourceRanges": ["10.0.0.0/8"],
            "finalizers": ["example.com/lb"], "allocateLoadBalancerNodePorts": false, "publishNotReadyAddresses": true,
            "ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"],
            "perBrokerLabelsTemplate": {"node": "{nodeId}"}, "perBrokerAnnotationsTemplate": {"dns": "{nodePodName}.example.com"},
            "bootstrap": {"loadBalancerIP": "10.9.9.9", "annotations": {"dns": "kafka.example.com"}, "labels": {"tier": "front"}},
            "brokers": [{"broker": 1, "loadBalancerIP": "10.9.9.1", "nodePort": 32001, "annotations": {"dns": "one.example.com"}}],
        }),
    ));
    let bootstrap = serde_json::to_value(&made["my-cluster-kafka-out-bootstrap"]).unwrap();
    assert_eq!(bootstrap["spec"]["type"], "LoadBalancer");
    assert_eq!(bootstrap["spec"]["loadBalancerIP"], "10.9.9.9");
    assert_eq!(bootstrap["metadata"]["annotations"]["dns"], "kafka.example.com");
    assert_eq!(bootstrap["metadata"]["labels"]["tier"], "front");
    let broker = serde_json::to_value(&made["my-cluster-brokers-out-1"]).unwrap();
    for (path, value) in [
        ("/spec/loadBalancerClass", json!("fancy")),
        ("/spec/externalTrafficPolicy", json!("Local")),
        ("/spec/loadBalancerSourceRanges", json!(["10.0.0.0/8"])),
        ("/spec/allocateLoadBalancerNodePorts", json!(false)),
        ("/spec/publishNotReadyAddresses", json!(true)),
        ("/spec/ipFamilyPolicy", json!("PreferDualStack")),
        ("/spec/ipFamilies", json!(["IPv6", "IPv4"])),
        ("/spec/loadBalancerIP", json!("10.9.9.1")),
        ("/spec/ports/0/nodePort", json!(32001)),
        ("/metadata/finalizers", json!(["example.com/lb"])),
        ("/metadata/labels/node", json!("1")),
        ("/metadata/annotations/dns", json!("one.example.com")),
    ] {
        assert_eq!(broker.pointer(path), Some(&value), "{path}");
    }
    let other = serde_json::to_value(&made["my-cluster-brokers-out-2"]).unwrap();
    assert_eq!(other["metadata"]["annotations"]["dns"], "my-cluster-brokers-2.example.com");
    assert!(other["spec"]["ports"][0]["nodePort"].is_null());
}

#[test]
fn without_a_bootstrap_service_clients_start_at_the_brokers() {
    let mut world = with(outside("loadbalancer", false, json!({"createBootstrapService": false})));
    converge(&mut world);
    assert!(!world.services.contains_key("my-cluster-kafka-out-bootstrap"));
    for index in 0..3 {
        give_address(&mut world, &format!("my-cluster-brokers-out-{index}"), &format!("10.0.0.{index}"));
    }
    converge(&mut world);
    assert_eq!(
        status(&world, "out").bootstrap_servers.as_deref(),
        Some("10.0.0.0:9095,10.0.0.1:9095,10.0.0.2:9095")
    );
}

#[test]
fn services_go_with_their_listener_and_with_their_broker() {
    let mut world = with(outside("nodeport", false, json!({})));
    converge(&mut world);
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 2);
    converge(&mut world);
    let ours = |world: &World| -> Vec<String> {
        let all = world.services.values().filter(|service| service.meta.labels.contains_key(LISTENER_LABEL));
        all.map(|service| service.meta.name.clone()).collect()
    };
    assert_eq!(
        ours(&world),
        ["my-cluster-brokers-out-0", "my-cluster-brokers-out-1", "my-cluster-kafka-out-bootstrap"]
    );
    set_listeners(&mut world, json!([{"name": "plain", "port": 9092, "type": "internal", "tls": false}]));
    converge(&mut world);
    assert_eq!(ours(&world), Vec::<String>::new());
    assert!(world.services.contains_key("my-cluster-kafka-bootstrap"));
    assert!(world.services.contains_key("my-cluster-kafka-brokers"));
}

#[test]
fn a_listener_that_is_added_restarts_each_broker_once_and_no_controller() {
    let mut world = converged();
    set_listeners(&mut world, outside("nodeport", false, json!({})));
    let mut kafka = Kafka::formed(&world);
    let mut restarted = Vec::new();
    for _ in steps(100) {
        let next = plan(&world).unwrap();
        if next.questions.is_empty() {
            restarted.extend(next.restarts.into_iter().map(|restart| restart.pod));
        }
        if !step(&mut world, &mut kafka, &[]) {
            break;
        }
    }
    assert_eq!(restarted, BROKERS);
}

#[test]
fn an_address_that_no_pod_is_told_of_is_named() {
    let mut world = with(outside("nodeport", false, json!({"preferredNodePortAddressType": "ExternalIP"})));
    converge(&mut world);
    assert!(warnings(&world, "NodeAddressUnknown")[0].contains("ExternalIP"));
    let mut world = with(outside("nodeport", false, json!({"preferredNodePortAddressType": "Hostname"})));
    converge(&mut world);
    assert!(told(&world, BROKERS[0]).unwrap().starts_with("@node-name@:"));
    assert_eq!(warnings(&world, "NodeAddressUnknown"), Vec::<String>::new());
    assert!(status(&world, "out").bootstrap_servers.unwrap().starts_with(&format!("{MACHINE}:")));
}

#[test]
fn problems_of_all_listeners_are_told_together_and_nothing_that_runs_is_harmed() {
    let mut world = converged();
    set_listeners(
        &mut world,
        json!([
            {"name": "plain", "port": 9092, "type": "internal", "tls": false, "configuration": {"class": "x"}},
            {"name": "out", "port": 9092, "type": "nodeport", "tls": false, "authentication": {"type": "tls"}},
            {"name": "lb", "port": 9404, "type": "loadbalancer", "tls": true,
             "configuration": {"advertisedPortTemplate": "65530 + {nodeId} * 10"}},
        ]),
    );
    let plan = decide(&world);
    assert_eq!((plan.objects.len(), plan.services.len(), plan.removals.len()), (0, 0, 0));
    carry_out(&mut world, plan);
    let message = conditions(&world, "Ready")[0].2.clone();
    for part in [
        "listeners[0].configuration.class",
        "listeners[1].port is 9092",
        "listeners[1].authentication.type",
        "listeners[2].port is 9404",
    ] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
}

#[test]
fn a_port_that_only_some_brokers_could_have_is_refused() {
    let mut world = converged();
    set_listeners(
        &mut world,
        outside("nodeport", false, json!({"advertisedPortTemplate": "65534 + {nodeId}"})),
    );
    let plan = decide(&world);
    carry_out(&mut world, plan);
    let message = conditions(&world, "Ready")[0].2.clone();
    assert!(message.contains("advertisedPortTemplate") && message.contains("node 2"), "{message}");
}

#[test]
fn settings_of_nodes_that_are_no_brokers_are_named() {
    let mut world = with(outside("nodeport", false, json!({"brokers": [{"broker": 7, "nodePort": 31000}]})));
    converge(&mut world);
    assert!(warnings(&world, "ListenerBrokersUnknown")[0].contains('7'));
}

fn own() -> Value {
    json!([
        {"name": "plain", "port": 9092, "type": "internal", "tls": false},
        {"name": "own", "port": 9095, "type": "internal", "tls": true,
         "configuration": {"brokerCertChainAndKey": {"secretName": "mine", "certificate": "tls.crt", "key": "tls.key"}}},
    ])
}

/// A certificate and its key, as a user would bring them.
fn leaf(world: &World, name: &str) -> (Vec<u8>, Vec<u8>) {
    let authority = Authority::read(Kind::Cluster, "elsewhere", &Settings::default(), None, None).unwrap();
    assert_eq!(authority.decide(world.now, Opening::Open, Nodes::NONE), Decision::Create);
    let mut made = authority.carry_out(&Decision::Create, world.now).unwrap().into_iter();
    let (one, other) = (made.next().unwrap().content, made.next().unwrap().content);
    let (cert, key) = if one.data.contains_key("ca.crt") { (one, other) } else { (other, one) };
    let authority =
        Authority::read(Kind::Cluster, "elsewhere", &Settings::default(), Some(&cert), Some(&key)).unwrap();
    let issuer = authority.issuer(world.now, Nodes::NONE).unwrap();
    let leaf = issuer.issue(&Request::client(name), world.now).unwrap();
    (leaf.chain.into_bytes(), leaf.key.into_bytes())
}

fn bring(world: &mut World, certificate: &[u8], key: &[u8]) {
    let files = [("tls.crt".to_owned(), certificate.to_vec()), ("tls.key".to_owned(), key.to_vec())];
    world.referenced.insert("mine".into(), Reference::Found(Files(files.into()).into()));
}

fn keystore(world: &World) -> Option<Vec<u8>> {
    let SecretContent::Listeners(files) = &world.secrets.get("my-cluster-kafka-listener-certs")?.content
    else {
        panic!("not the Secret of listeners");
    };
    files.0.get("own-9095.pem").cloned()
}

#[test]
fn a_key_that_stands_beside_the_certificate_is_not_published() {
    let mut world = with(own());
    let (certificate, key) = leaf(&world, "first");
    bring(&mut world, &[certificate, key.clone()].concat(), &key);
    converge(&mut world);
    let published = status(&world, "own").certificates.unwrap().concat();
    assert!(published.contains("BEGIN CERTIFICATE") && !published.contains("PRIVATE KEY"), "{published}");
    let keystore = String::from_utf8(keystore(&world).unwrap()).unwrap();
    assert_eq!(keystore.matches("BEGIN PRIVATE KEY").count(), 1, "Kafka takes one key");
}

#[test]
fn the_users_own_certificate_is_mounted_and_published() {
    let mut world = with(own());
    let (certificate, key) = leaf(&world, "first");
    bring(&mut world, &certificate, &key);
    converge(&mut world);
    let text = String::from_utf8(keystore(&world).unwrap()).unwrap();
    assert!(text.starts_with("-----BEGIN PRIVATE KEY-----") && text.contains("-----BEGIN CERTIFICATE-----"));
    let config = config(&world, BROKERS[0]);
    assert_eq!(config["listener.name.own-9095.ssl.keystore.location"], "/opt/kafka/listeners/own-9095.pem");
    assert!(
        world.pod_sets["my-cluster-brokers"].pods[BROKERS[0]]
            .json
            .contains("my-cluster-kafka-listener-certs")
    );
    assert!(
        !world.pod_sets["my-cluster-controllers"]
            .pods
            .values()
            .any(|pod| pod.json.contains("listener-certs"))
    );
    let published = status(&world, "own").certificates.unwrap();
    assert_eq!(published[0].trim(), String::from_utf8(certificate).unwrap().trim());
    assert!(!published[0].contains("PRIVATE"));
}

#[test]
fn a_renewed_certificate_of_the_users_restarts_nobody() {
    let mut world = with(own());
    let (certificate, key) = leaf(&world, "first");
    bring(&mut world, &certificate, &key);
    converge(&mut world);
    let before = keystore(&world);
    let (certificate, key) = leaf(&world, "second");
    bring(&mut world, &certificate, &key);
    let plan = decide(&world);
    assert_eq!(plan.certificates.len(), 1);
    assert!(!format!("{plan:?}").contains("PRIVATE KEY"), "a key is in what may be logged");
    converge(&mut world);
    assert_ne!(keystore(&world), before);
    assert!(decide(&world).restarts.is_empty());
}

#[test]
fn a_certificate_that_cannot_be_used_is_refused_and_the_old_one_stays() {
    let mut world = with(own());
    let (certificate, key) = leaf(&world, "first");
    let (_, other_key) = leaf(&world, "second");
    bring(&mut world, &certificate, &key);
    converge(&mut world);
    let good = keystore(&world);
    for (certificate, key, clue) in [
        (&b"nonsense"[..], &key[..], "'tls.crt' "),
        (&certificate, b"nonsense", "'tls.key' is not a private key"),
        (&certificate, &other_key, "is not the key of the certificate"),
    ] {
        bring(&mut world, certificate, key);
        converge(&mut world);
        assert_eq!(keystore(&world), good);
        let said = warnings(&world, "ListenerCertificateUnusable");
        assert!(said[0].contains(clue) && said[0].contains("good before is used"), "{said:?}");
    }
    world.referenced.insert("mine".into(), Reference::Missing);
    converge(&mut world);
    assert_eq!(keystore(&world), good);
    bring(&mut world, &certificate, &key);
    converge(&mut world);
    assert_eq!(warnings(&world, "ListenerCertificateUnusable"), Vec::<String>::new());
}

#[test]
fn without_its_certificate_a_listener_is_not_served_and_the_others_are() {
    let mut world = with(own());
    // Before the Secret was looked at, nothing is begun that would have to be restarted.
    while !world.secrets.contains_key(BROKERS[0]) {
        let plan = decide(&world);
        carry_out(&mut world, plan);
    }
    let plan = decide(&world);
    assert!(!plan.objects.iter().any(|object| object.describe() == format!("ConfigMap {}", BROKERS[0])));
    world.referenced.insert("mine".into(), Reference::Missing);
    converge(&mut world);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    assert!(!config(&world, BROKERS[0])["listeners"].contains("OWN-9095"));
    let said = warnings(&world, "ListenerCertificateUnusable");
    assert!(said[0].contains("does not exist") && said[0].contains("not served"), "{said:?}");
    let (certificate, key) = leaf(&world, "first");
    bring(&mut world, &certificate, &key);
    converge(&mut world);
    assert!(config(&world, BROKERS[0])["listeners"].contains("OWN-9095"));
}

#[test]
fn an_operator_that_just_started_does_not_take_a_listener_away() {
    let mut world = with(own());
    let (certificate, key) = leaf(&world, "first");
    bring(&mut world, &certificate, &key);
    converge(&mut world);
    world.referenced.clear();
    let plan = decide(&world);
    assert!(is_quiet(&plan), "{plan:?}");
}

#[test]
fn a_key_of_openssl_is_brought_into_the_form_that_kafka_reads() {
    let key = include_bytes!("fixtures/ec.key");
    let certificate = include_bytes!("fixtures/ec.crt");
    assert!(key.starts_with(b"-----BEGIN EC PRIVATE KEY-----"));
    let mut world = with(own());
    bring(&mut world, certificate, key);
    converge(&mut world);
    assert!(keystore(&world).unwrap().starts_with(b"-----BEGIN PRIVATE KEY-----"));
    let (rsa, certificate) = (include_bytes!("fixtures/rsa.key"), include_bytes!("fixtures/rsa.crt"));
    assert!(rsa.starts_with(b"-----BEGIN RSA PRIVATE KEY-----"));
    bring(&mut world, certificate, rsa);
    converge(&mut world);
    assert!(keystore(&world).unwrap().starts_with(b"-----BEGIN PRIVATE KEY-----"));
    assert_eq!(warnings(&world, "ListenerCertificateUnusable"), Vec::<String>::new());
}

#[test]
fn custom_authentication_sets_what_users_write_for_that_listener_alone() {
    let mut world = with(json!([
        {"name": "plain", "port": 9092, "type": "internal", "tls": false},
        {"name": "oauth", "port": 9095, "type": "internal", "tls": true, "authentication": {"type": "custom", "sasl": true,
            "listenerConfig": {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "oauthbearer.sasl.jaas.config": "a.B required ;\nnode.id=7",
                "ssl.keystore.location": "/etc/passwd",
                "ssl.client.auth": "requested",
                "connections.max.reauth.ms": 3600000,
            }},
         "configuration": {"maxConnections": 10, "maxConnectionCreationRate": 5}},
    ]));
    converge(&mut world);
    let config = config(&world, BROKERS[0]);
    let own = |key: &str| config[&format!("listener.name.oauth-9095.{key}")].as_str();
    assert_eq!(own("sasl.enabled.mechanisms"), "OAUTHBEARER");
    assert_eq!(own("connections.max.reauth.ms"), "3600000");
    assert_eq!(own("ssl.client.auth"), "requested");
    assert_eq!(own("ssl.keystore.location"), "/opt/kafka/certificate/node.pem");
    assert_eq!((own("max.connections"), own("max.connection.creation.rate")), ("10", "5"));
    assert!(config["listener.security.protocol.map"].contains("OAUTH-9095:SASL_SSL"));
    assert_eq!(config["node.id"], "0");
}

#[test]
fn authorization_is_on_all_nodes_and_a_change_of_it_restarts_them() {
    let mut world = converged();
    let authorization = json!({"type": "simple", "superUsers": ["CN=alice"]});
    edit_kafka(&mut world, |kafka| {
        kafka.spec.kafka.authorization = serde_json::from_value(authorization).unwrap();
    });
    let mut kafka = Kafka::formed(&world);
    let mut restarted = Vec::new();
    for _ in steps(100) {
        let next = plan(&world).unwrap();
        if next.questions.is_empty() {
            restarted.extend(next.restarts.into_iter().map(|restart| restart.pod));
        }
        if !step(&mut world, &mut kafka, &[]) {
            break;
        }
    }
    assert_eq!(restarted.len(), 6, "{restarted:?}");
    for pod in ["my-cluster-brokers-0", "my-cluster-controllers-3"] {
        let config = config(&world, pod);
        assert_eq!(
            config["authorizer.class.name"],
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        );
        assert_eq!(
            config["super.users"],
            "User:CN=my-cluster-kafka,O=io.strimzi;User:CN=cluster-operator,O=io.strimzi;User:CN=alice"
        );
    }
    // Those are the names that nodes and operator really have.
    let subject = |secret: &str| world.secrets[secret].stored().unwrap().certificate().subject.clone();
    assert_eq!(subject("my-cluster-brokers-0"), "O=io.strimzi, CN=my-cluster-kafka");
    assert_eq!(subject("my-cluster-cluster-operator-certs"), "O=io.strimzi, CN=cluster-operator");
}

#[test]
fn a_cluster_whose_resource_is_not_valid_keeps_the_names_of_its_certificates() {
    let mut world = with(outside("cluster-ip", true, json!({})));
    converge(&mut world);
    let before = names_of(&world, BROKERS[0]);
    set_listeners(&mut world, json!([{"name": "BAD", "port": 1, "type": "internal", "tls": true}]));
    let plan = decide(&world);
    assert_eq!(plan.certificates.len(), 0);
    // Nor are they lost when the certificate is about to end.
    world.now += SignedDuration::from_hours(24 * 340);
    for _ in 0..5 {
        let plan = decide(&world);
        carry_out(&mut world, plan);
    }
    let after = &world.secrets[BROKERS[0]].stored().unwrap().certificate().clone();
    assert!(after.not_after > world.now + SignedDuration::from_hours(24 * 300), "it was renewed");
    assert_eq!(after.names, before);
}

#[test]
fn the_example_is_carried_out_without_a_word_but_about_its_load_balancer() {
    let mut world = world(include_str!("../../../../deploy/examples/listeners.yaml"));
    converge(&mut world);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    let said = conditions(&world, "Warning");
    assert!(said.iter().all(|(_, reason, _)| reason == "ListenerAwaitsAddress"), "{said:?}");
    assert_eq!(status(&world, "external").bootstrap_servers.unwrap().matches(":32100").count(), 3);
}
