//! What serves clients stays until its successor can take its place.

use super::*;
use karst_core::plan::Removal;
use karst_core::status::Progress;

/// Carries out all that is planned, and tells which pods restarted.
fn restarted(world: &mut World) -> Vec<String> {
    let mut kafka = Kafka::formed(world);
    let mut restarted = Vec::new();
    for _ in 0..120 {
        let next = plan(world).unwrap();
        if next.questions.is_empty() {
            restarted.extend(next.restarts.into_iter().map(|restart| restart.pod));
        }
        if !step(world, &mut kafka, &[]) {
            return restarted;
        }
    }
    panic!("it does not come to rest: {restarted:?}");
}

fn plain_and(listener: &Value) -> Value {
    json!([{"name": "plain", "port": 9092, "type": "internal", "tls": false}, listener])
}

/// A listener with TLS that shows the brokers' own certificates.
fn encrypted() -> Value {
    plain_and(&json!({"name": "own", "port": 9095, "type": "internal", "tls": true}))
}

/// A cluster in which this is served.
fn serving(listeners: Value) -> World {
    let mut world = with(listeners);
    converge(&mut world);
    world
}

fn keystore_of(world: &World) -> String {
    config(world, BROKERS[0])["listener.name.own-9095.ssl.keystore.location"].clone()
}

const OF_BROKERS: &str = "/opt/kafka/certificate/node.pem";

#[test]
fn a_typo_in_the_certificate_of_a_listener_closes_nothing() {
    let mut world = serving(encrypted());
    let (certificate, key) = leaf(&world, "first");
    let files = [("cert.pem".to_owned(), certificate.clone()), ("key.pem".to_owned(), key.clone())];
    for reference in [Reference::Missing, Reference::Found(Files(files.into()).into())] {
        set_listeners(&mut world, own());
        world.referenced.insert("mine".into(), reference);
        assert_eq!(restarted(&mut world), Vec::<String>::new());
        assert_eq!(keystore_of(&world), OF_BROKERS);
        let said = warnings(&world, "ListenerCertificateUnusable").join("\n");
        for part in ["listener 'own'", "Secret mine", "'tls.crt'", "as before, and nothing restarts"] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
        assert_eq!(decide(&world).progress, Some(Progress::Partly));
        assert!(status(&world, "own").certificates.is_some(), "what clients see now is to be trusted");
    }
    // The Secret that comes later is taken with one restart of each broker.
    bring(&mut world, &certificate, &key);
    assert_eq!(restarted(&mut world), BROKERS);
    assert_eq!(keystore_of(&world), "/opt/kafka/listeners/own-9095.pem");
    assert_eq!(warnings(&world, "ListenerCertificateUnusable"), Vec::<String>::new());
    assert_eq!(decide(&world).progress, Some(Progress::Ready));
}

#[test]
fn a_secret_that_was_not_read_yet_closes_nothing() {
    let mut world = serving(encrypted());
    set_listeners(&mut world, own());
    assert_eq!(restarted(&mut world), Vec::<String>::new());
    assert_eq!(keystore_of(&world), OF_BROKERS);
}

#[test]
fn a_broker_that_is_added_meanwhile_serves_as_the_others_do() {
    let mut world = serving(encrypted());
    set_listeners(&mut world, own());
    world.referenced.insert("mine".into(), Reference::Missing);
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 4);
    converge(&mut world);
    let new = world.pods.keys().find(|name| !BROKERS.contains(&name.as_str()) && name.contains("brokers"));
    assert!(config(&world, &new.unwrap().clone())["listeners"].contains("OWN-9095"));
}

/// Who gets in, and who can read along, is never otherwise than asked for.
#[test]
fn a_listener_that_is_to_be_encrypted_is_not_kept_open_in_plain_text() {
    let mut world =
        serving(plain_and(&json!({"name": "own", "port": 9095, "type": "internal", "tls": false})));
    set_listeners(&mut world, own());
    world.referenced.insert("mine".into(), Reference::Missing);
    converge(&mut world);
    assert!(!config(&world, BROKERS[0])["listeners"].contains("OWN-9095"));
    assert!(warnings(&world, "ListenerCertificateUnusable")[0].contains("not served"));

    // And authentication that is asked for together with a certificate that cannot be used comes at once.
    let mut world = serving(encrypted());
    let mut listeners = own();
    listeners[1]["authentication"] = json!({"type": "tls"});
    set_listeners(&mut world, listeners);
    world.referenced.insert("mine".into(), Reference::Missing);
    assert_eq!(restarted(&mut world), BROKERS);
    assert_eq!(config(&world, BROKERS[0])["listener.name.own-9095.ssl.client.auth"], "required");
    assert_eq!(keystore_of(&world), OF_BROKERS);
}

#[test]
fn brokers_go_on_with_a_certificate_that_is_gone_everywhere() {
    let mut world = with(own());
    let (certificate, key) = leaf(&world, "first");
    bring(&mut world, &certificate, &key);
    converge(&mut world);
    world.secrets.remove("my-cluster-kafka-listener-certs");
    world.referenced.insert("mine".into(), Reference::Missing);
    assert_eq!(restarted(&mut world), Vec::<String>::new());
    assert!(config(&world, BROKERS[0])["listeners"].contains("OWN-9095"));
    let said = warnings(&world, "ListenerCertificateUnusable");
    assert!(said[0].contains("have loaded"), "{said:?}");
    // A pod that is not up waits for a file that does not come.
    edit_pod(&mut world, BROKERS[1], |pod| pod.phase = "Pending".into());
    assert!(!config(&world, BROKERS[1])["listeners"].contains("OWN-9095"));
    // Its copy comes back with it.
    edit_pod(&mut world, BROKERS[1], |pod| pod.phase = "Running".into());
    bring(&mut world, &certificate, &key);
    assert_eq!(restarted(&mut world), Vec::<String>::new());
    assert!(keystore(&world).is_some());
}

fn out(type_: &str) -> Value {
    plain_and(&json!({"name": "out", "port": 9095, "type": type_, "tls": true}))
}

/// Does the service that all internal listeners share lead to this one?
fn has_port(world: &World) -> bool {
    let mut copy = world.clone();
    let shared = Arc::make_mut(copy.services.get_mut("my-cluster-kafka-bootstrap").unwrap());
    shared.digest = None;
    decide(&copy).objects.iter().any(|object| match object {
        Object::Service(service) if object.meta().name.as_deref() == Some("my-cluster-kafka-bootstrap") => {
            service.spec.iter().flat_map(|spec| spec.ports.iter().flatten()).any(|port| port.port == 9095)
        }
        _ => false,
    })
}

#[test]
fn a_listener_that_is_to_be_a_load_balancer_stays_until_all_of_it_has_addresses() {
    let mut world = serving(out("internal"));
    let before = told(&world, BROKERS[0]);
    set_listeners(&mut world, out("loadbalancer"));
    assert_eq!(restarted(&mut world), Vec::<String>::new());
    assert_eq!(told(&world, BROKERS[0]), before);
    assert!(has_port(&world), "clients come in by the service that they know");
    assert_eq!(
        status(&world, "out").bootstrap_servers.as_deref(),
        Some("my-cluster-kafka-bootstrap.myproject.svc:9095")
    );
    let said = warnings(&world, "ListenerAwaitsAddress");
    assert!(
        said[0].contains("stays as it is (internal)") && said[0].contains("my-cluster-brokers-out-2"),
        "{said:?}"
    );
    assert_eq!(decide(&world).progress, Some(Progress::Partly));

    // Some addresses help nobody: clients need every broker.
    for index in 0..2 {
        give_address(&mut world, &format!("my-cluster-brokers-out-{index}"), &format!("10.0.0.{index}"));
    }
    assert_eq!(restarted(&mut world), Vec::<String>::new());
    assert_eq!(told(&world, BROKERS[0]), before);

    // Then each broker restarts once.
    give_address(&mut world, "my-cluster-brokers-out-2", "10.0.0.2");
    give_address(&mut world, "my-cluster-kafka-out-bootstrap", "10.0.0.9");
    assert_eq!(restarted(&mut world), BROKERS);
    assert_eq!(told(&world, BROKERS[2]).as_deref(), Some("10.0.0.2:9095"));
    assert!(!has_port(&world));
    assert_eq!(warnings(&world, "ListenerAwaitsAddress"), Vec::<String>::new());
    assert_eq!(decide(&world).progress, Some(Progress::Ready));
}

#[test]
fn every_change_of_the_type_costs_one_restart_of_each_broker() {
    for (from, to) in [
        ("internal", "nodeport"),
        ("cluster-ip", "nodeport"),
        ("nodeport", "internal"),
        ("nodeport", "cluster-ip"),
        ("internal", "cluster-ip"),
    ] {
        let mut world = serving(out(from));
        set_listeners(&mut world, out(to));
        assert_eq!(restarted(&mut world), BROKERS, "{from} to {to}");
    }
    // Ports of the nodes are kept until there is a load balancer.
    let mut world = serving(out("nodeport"));
    let before = told(&world, BROKERS[1]);
    set_listeners(&mut world, out("loadbalancer"));
    assert_eq!(restarted(&mut world), Vec::<String>::new());
    assert_eq!(told(&world, BROKERS[1]), before);
}

#[test]
fn certificates_are_good_for_the_addresses_that_clients_still_use() {
    let mut world = serving(out("cluster-ip"));
    let old = "my-cluster-brokers-out-0.myproject.svc".to_owned();
    assert!(names_of(&world, BROKERS[0]).contains(&old));
    set_listeners(&mut world, out("loadbalancer"));
    converge(&mut world);
    assert!(names_of(&world, BROKERS[0]).contains(&old));
    for index in 0..3 {
        give_address(&mut world, &format!("my-cluster-brokers-out-{index}"), &format!("10.0.0.{index}"));
    }
    let issues = decide(&world).certificates;
    assert_eq!(issues.len(), 3);
    for issue in &issues {
        issue_certificates(&mut world, issue);
    }
    let names = names_of(&world, BROKERS[0]);
    assert!(names.contains(&old) && names.contains(&"10.0.0.0".to_owned()), "{names:?}");

    // The same for a listener that is to show a certificate of the user's, and still shows the broker's.
    let mut world = serving(out("cluster-ip"));
    let mut listeners = out("cluster-ip");
    listeners[1]["configuration"] = own()[1]["configuration"].clone();
    set_listeners(&mut world, listeners);
    world.referenced.insert("mine".into(), Reference::Missing);
    converge(&mut world);
    assert!(names_of(&world, BROKERS[0]).contains(&old));
    let (certificate, key) = leaf(&world, "first");
    bring(&mut world, &certificate, &key);
    for _ in 0..2 {
        let next = decide(&world);
        assert_eq!(next.restarts, []);
        carry_out(&mut world, next);
        assert!(names_of(&world, BROKERS[0]).contains(&old), "no broker has restarted yet");
    }
    converge(&mut world);
    assert!(!names_of(&world, BROKERS[0]).contains(&old));
}

#[test]
fn a_type_that_is_not_supported_closes_nothing() {
    for (from, configuration) in
        [("internal", json!({})), ("loadbalancer", json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]}))]
    {
        let mut listeners = out(from);
        listeners[1]["configuration"] = configuration;
        let mut world = serving(listeners);
        for index in 0..3 {
            let name = format!("my-cluster-brokers-out-{index}");
            if world.services.contains_key(&name) {
                give_address(&mut world, &name, &format!("10.0.0.{index}"));
            }
        }
        converge(&mut world);
        let before = told(&world, BROKERS[0]);
        assert!(before.is_some());
        set_listeners(&mut world, out("route"));
        let next = decide(&world);
        assert!(next.services.is_empty(), "they lost who may connect: {:?}", next.services);
        assert!(!next.removals.iter().any(|one| matches!(one, Removal::Service(_))), "{:?}", next.removals);
        assert_eq!(restarted(&mut world), Vec::<String>::new());
        assert_eq!(told(&world, BROKERS[0]), before);
        let said = warnings(&world, "ListenerKept");
        assert!(
            said[0].contains(&format!("stays as it is ({from})")) && said[0].contains("route"),
            "{said:?}"
        );
        assert_eq!(decide(&world).progress, Some(Progress::Partly));
    }
}

/// Load balancers may lose their addresses for a moment. What brokers told their clients says what the listener is.
#[test]
fn a_listener_that_is_kept_stays_what_it_is_though_its_services_change() {
    let chosen = json!({"brokers": [{"broker": 0, "advertisedHost": "broker-0.example.com"}]});
    for (from, configuration) in
        [("loadbalancer", json!({})), ("loadbalancer", chosen.clone()), ("nodeport", chosen)]
    {
        let mut listeners = out(from);
        listeners[1]["configuration"] = configuration.clone();
        let mut world = serving(listeners);
        let services: Vec<_> = (0..3).map(|index| format!("my-cluster-brokers-out-{index}")).collect();
        for name in services.iter().filter(|_| from == "loadbalancer") {
            give_address(&mut world, name, "10.0.0.1");
        }
        converge(&mut world);
        let before = BROKERS.map(|broker| told(&world, broker));
        assert!(before.iter().all(Option::is_some), "{before:?}");
        let mut listeners = out("route");
        listeners[1]["configuration"] = configuration;
        set_listeners(&mut world, listeners);
        converge(&mut world);
        for name in &services {
            let service = Arc::make_mut(world.services.get_mut(name).unwrap());
            match from {
                "loadbalancer" => service.addresses.clear(),
                _ => service.addresses = vec!["10.0.0.9".into()],
            }
        }
        assert_eq!(restarted(&mut world), Vec::<String>::new(), "{from}");
        assert_eq!(BROKERS.map(|broker| told(&world, broker)), before);
        let said = warnings(&world, "ListenerKept");
        assert!(said[0].contains(&format!("stays as it is ({from})")), "{said:?}");
    }
}

#[test]
fn the_order_of_listeners_and_of_super_users_restarts_nobody() {
    let three = |order: [usize; 3]| {
        let all = [
            json!({"name": "plain", "port": 9092, "type": "internal", "tls": false}),
            json!({"name": "own", "port": 9095, "type": "internal", "tls": true}),
            json!({"name": "node", "port": 9096, "type": "nodeport", "tls": true}),
        ];
        Value::Array(order.map(|at| all[at].clone()).to_vec())
    };
    let users = |world: &mut World, users: &[&str]| {
        let written = json!({"type": "simple", "superUsers": users});
        edit_kafka(world, |kafka| {
            kafka.spec.kafka.authorization = serde_json::from_value(written).unwrap();
        });
    };
    let mut world = with(three([0, 1, 2]));
    users(&mut world, &["CN=alice", "CN=ä:b\\c", "bob"]);
    converge(&mut world);
    let before = config(&world, BROKERS[0]);
    set_listeners(&mut world, three([2, 0, 1]));
    users(&mut world, &["bob", "CN=alice", "CN=ä:b\\c"]);
    assert_eq!(restarted(&mut world), Vec::<String>::new());
    assert_eq!(config(&world, BROKERS[0]), before);
    let names: Vec<_> =
        world.kafka.status.clone().unwrap().listeners.unwrap().into_iter().flat_map(|one| one.name).collect();
    assert_eq!(names, ["node", "plain", "own"], "the status has the order of the spec");

    // Who is new comes behind those that are there, and who is gone is gone.
    users(&mut world, &["carol", "bob", "CN=alice"]);
    assert_eq!(restarted(&mut world).len(), 6);
    let now = config(&world, BROKERS[0])["super.users"].clone();
    assert!(now.ends_with(";User:CN=alice;User:bob;User:carol"), "{now}");
}

#[test]
fn nothing_of_a_listeners_own_settings_is_dropped_in_silence() {
    let listener = |type_: &str, config: Value| {
        plain_and(&json!({"name": "mine", "port": 9095, "type": "internal", "tls": true,
            "authentication": {"type": type_, "sasl": true, "listenerConfig": config}}))
    };
    let settings =
        json!({"ssl.keystore.location": "/x", " ssl.keystore.type": "JKS", "ssl.client.auth": "none"});
    let said = |listeners: Value| warnings(&serving(listeners), "ForbiddenSettings");
    let custom = said(listener("custom", settings.clone()));
    assert_eq!(
        custom,
        [
            "listener 'mine': these fields of its authentication are left out: listenerConfig. ssl.keystore.type, listenerConfig.ssl.keystore.location; which certificate the listener shows is said by configuration.brokerCertChainAndKey"
        ]
    );
    let scram = said(listener("scram-sha-512", settings));
    assert!(
        scram[0].contains("listenerConfig.ssl.client.auth")
            && scram[0].contains(", sasl; they have an effect with type custom only"),
        "{scram:?}"
    );
    assert_eq!(said(listener("custom", json!({"ssl.client.auth": "none"}))), Vec::<String>::new());
}

#[test]
fn the_end_of_a_certificate_of_the_users_is_announced_and_told() {
    let mut world = with(own());
    let (certificate, key) = leaf(&world, "first");
    bring(&mut world, &certificate, &key);
    converge(&mut world);
    let end = karst_certs::Certificate::all_from_pem(&certificate).unwrap()[0].not_after;
    let said = |world: &World| -> Vec<String> {
        let notices = decide(world).notices.into_iter();
        notices.filter(|one| one.reason() == "ListenerCertificateEnds").map(|one| one.to_string()).collect()
    };
    assert_eq!(said(&world), Vec::<String>::new());
    world.now = end - SignedDuration::from_hours(24 * 31);
    assert_eq!(said(&world), Vec::<String>::new());
    let pause = decide(&world).look_again.expect("nobody tells when time has passed");
    assert!(pause <= Duration::from_secs(24 * 3600 + 1), "{pause:?}");
    world.now = end - SignedDuration::from_hours(24 * 29);
    let warned = said(&world);
    for part in ["listener 'own'", "Secret mine", "'tls.crt'", "first", "ends at"] {
        assert!(warned[0].contains(part), "{part} is not in {warned:?}");
    }
    world.now = end + SignedDuration::from_hours(1);
    assert!(said(&world)[0].contains("ended at"), "{:?}", said(&world));
}

/// The services by which clients reach the listener `out`.
fn doors(world: &World) -> BTreeMap<String, Arc<karst_core::world::ServiceView>> {
    let ours = |service: &karst_core::world::ServiceView| {
        service.meta.labels.get(LISTENER_LABEL).is_some_and(|name| name == "out")
    };
    world
        .services
        .iter()
        .filter(|(_, one)| ours(one))
        .map(|(name, one)| (name.clone(), one.clone()))
        .collect()
}

/// A cluster in which clients come in by this type of listener.
fn entered_by(type_: &str) -> World {
    let mut world = serving(out(type_));
    if type_ == "loadbalancer" {
        for (index, name) in doors(&world).into_keys().enumerate() {
            give_address(&mut world, &name, &format!("10.0.0.{index}"));
        }
        converge(&mut world);
    }
    assert!(told(&world, BROKERS[0]).is_some());
    world
}

/// The brokers that run since before.
fn of_before<'a>(world: &'a World, before: &'a World) -> impl Iterator<Item = &'static str> + 'a {
    let uid = |world: &World, pod: &str| world.pods.get(pod).map(|pod| pod.meta.uid.clone());
    BROKERS.into_iter().filter(move |pod| uid(world, pod).is_some() && uid(world, pod) == uid(before, pod))
}

#[test]
fn a_port_stays_open_until_no_broker_sends_clients_there() {
    for (from, to) in [
        ("loadbalancer", "internal"),
        ("loadbalancer", "cluster-ip"),
        ("loadbalancer", "nodeport"),
        ("nodeport", "internal"),
        ("nodeport", "cluster-ip"),
        ("cluster-ip", "internal"),
    ] {
        let mut world = entered_by(from);
        let before = world.clone();
        set_listeners(&mut world, out(to));
        let mut kafka = Kafka::formed(&world);
        let mut halfway = 0;
        let mut rounds = 0;
        while step(&mut world, &mut kafka, &[]) {
            let left = of_before(&world, &before).count();
            if left > 0 {
                assert_eq!(
                    doors(&world),
                    doors(&before),
                    "{from} to {to}: {left} brokers send clients there"
                );
                halfway += usize::from(left < 3);
            }
            rounds += 1;
            assert!(rounds < 120, "{from} to {to}: it does not come to rest");
        }
        assert!(halfway > 0, "{from} to {to}: the brokers did not restart one after the other");
        assert_eq!(of_before(&world, &before).count(), 0, "{from} to {to}");
        // Then it is what was asked for.
        assert_ne!(doors(&world), doors(&before), "{from} to {to}");
        assert_eq!(doors(&world).is_empty(), to == "internal", "{from} to {to}");
        assert_eq!(doors(&world).values().all(|door| door.node_port.is_none()), to != "nodeport");
        assert_eq!(decide(&world).progress, Some(Progress::Ready), "{from} to {to}");
    }
}

#[test]
fn a_port_stays_open_while_the_restarts_are_held() {
    let mut world = entered_by("loadbalancer");
    let before = world.clone();
    set_listeners(&mut world, out("internal"));
    // Another broker is away: nobody restarts, whatever is written.
    edit_pod(&mut world, BROKERS[2], |pod| {
        pod.ready = false;
        pod.kafka_ready = false;
        pod.since = None;
    });
    for _ in 0..20 {
        let mut next = decide(&world);
        next.restarts.clear();
        carry_out(&mut world, next);
        assert_eq!(doors(&world), doors(&before));
    }
    assert!(
        told(&world, BROKERS[0]).is_some_and(|told| told.contains("kafka-brokers")),
        "settings are written"
    );
}

/// The operator dies after it wrote the settings of the brokers, and before it wrote their pods' descriptions.
#[test]
fn a_port_stays_open_when_only_the_settings_are_written() {
    for to in ["internal", "nodeport", "cluster-ip"] {
        let mut world = entered_by("loadbalancer");
        let before = world.clone();
        set_listeners(&mut world, out(to));
        let mut changed = false;
        for _ in 0..20 {
            let mut next = decide(&world);
            changed |= next.objects.iter().any(|one| matches!(one, Object::PodSet(_)));
            next.objects.retain(|one| !matches!(one, Object::PodSet(_)));
            next.restarts.clear();
            carry_out(&mut world, next);
            assert_eq!(doors(&world), doors(&before), "{to}");
        }
        assert!(changed, "no description of a pod was to be written");
    }
}

#[test]
fn a_broker_of_a_pool_that_cannot_be_read_is_reached_as_it_was() {
    let mut world = entered_by("loadbalancer");
    let before = world.clone();
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = -1);
    set_listeners(&mut world, out("internal"));
    converge(&mut world);
    assert_eq!(of_before(&world, &before).count(), 3);
    assert_eq!(doors(&world), doors(&before));
}

#[test]
fn a_broker_that_is_added_meanwhile_gets_a_service_and_one_that_goes_loses_its_own() {
    let mut world = entered_by("loadbalancer");
    set_listeners(&mut world, out("cluster-ip"));
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 4);
    for _ in 0..20 {
        let mut next = decide(&world);
        next.restarts.clear();
        carry_out(&mut world, next);
    }
    let open = |world: &World| doors(world).values().filter(|door| door.node_port.is_some()).count();
    assert_eq!((doors(&world).len(), open(&world)), (5, 4));
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 3);
    converge(&mut world);
    assert_eq!((doors(&world).len(), open(&world)), (4, 0));
}

/// Both have one name, and the ports come only with the second.
#[test]
fn a_load_balancer_without_ports_of_nodes_gives_way_to_these() {
    let mut listeners = out("loadbalancer");
    listeners[1]["configuration"] = json!({"allocateLoadBalancerNodePorts": false});
    let mut world = serving(listeners);
    for (index, name) in doors(&world).into_keys().enumerate() {
        give_address(&mut world, &name, &format!("10.0.0.{index}"));
    }
    converge(&mut world);
    for name in doors(&world).into_keys() {
        Arc::make_mut(world.services.get_mut(&name).unwrap()).node_port = None;
    }
    set_listeners(&mut world, out("nodeport"));
    assert_eq!(restarted(&mut world), BROKERS);
    assert!(told(&world, BROKERS[0]).is_some_and(|told| told.starts_with("@node-ip@:")));
}

/// One of them has no port of the nodes yet. The others stay meanwhile: brokers move together.
#[test]
fn load_balancers_stay_while_another_one_gives_way() {
    const ODD: &str = "my-cluster-brokers-out-1";
    let mut world = entered_by("loadbalancer");
    Arc::make_mut(world.services.get_mut(ODD).unwrap()).node_port = None;
    let before = world.clone();
    set_listeners(&mut world, out("nodeport"));
    let mut kafka = Kafka::formed(&world);
    let mut gave_way = false;
    while step(&mut world, &mut kafka, &[]) {
        gave_way |= world.services[ODD].node_port.is_some();
        if of_before(&world, &before).count() == 0 {
            continue;
        }
        for (name, door) in doors(&before).iter().filter(|(name, _)| *name != ODD) {
            assert_eq!(&doors(&world)[name], door);
        }
    }
    assert!(gave_way);
    assert_eq!(of_before(&world, &before).count(), 0);
    assert!(told(&world, BROKERS[1]).is_some_and(|told| told.starts_with("@node-ip@:")));
}
