//! The Secrets of an authority are deleted, overwritten, and edited in halves: at every step everybody trusts everybody.

use std::time::Duration;

use super::*;
use karst_core::ids::NodeId;
use karst_core::world::PartitionView;

/// The certificate of an authority that is published as the newest.
fn newest(world: &World) -> Certificate {
    let SecretContent::Authority(material) = &world.secrets[CLUSTER_CA_CERT].content else { panic!() };
    material.certificates("ca.crt").unwrap()[0].clone()
}

fn entries(world: &World, secret: &str) -> Vec<String> {
    let SecretContent::Authority(material) = &world.secrets[secret].content else { panic!("{secret}") };
    material.secret.data.keys().cloned().collect()
}

impl Life {
    fn all_show_the_newest(&self) {
        let newest = newest(&self.world);
        for (pod, loaded) in &self.loaded {
            assert!(self.is_signed(&loaded.leaf, &newest), "{pod} shows a certificate of another authority");
        }
    }

    /// Pods as an earlier Karst made them.
    fn forgets_what_it_started_with(&mut self) {
        for pod in self.world.pods.values_mut() {
            for annotation in [TRUSTED_AUTHORITIES_ANNOTATION, CERTIFICATE_AUTHORITY_ANNOTATION] {
                Arc::make_mut(pod).meta.annotations.remove(annotation).unwrap();
            }
        }
    }

    /// What a key that nobody knows yet costs: all learn it, then all show it, then nothing is left of the old one.
    fn comes_over_to_the_new_key(&mut self, before: &Certificate) {
        let restarts = self.pass(SignedDuration::from_mins(10));
        let causes = stale(&restarts);
        assert_eq!(causes.len(), 12, "{causes:?}");
        assert!(causes[..6].iter().all(|cause| **cause == Cause::Certificates(Stale::Trust)), "{causes:?}");
        assert!(causes[6..].iter().all(|cause| **cause == Cause::Certificates(Stale::Key)), "{causes:?}");
        assert_ne!(newest(&self.world).authority_id(), before.authority_id());
        self.all_show_the_newest();
        let SecretContent::Trust(files) = &self.world.secrets["my-cluster-trustbundle"].content else {
            panic!()
        };
        assert_eq!(Certificate::all_from_pem(&files[CLUSTER_TRUST]).unwrap(), [newest(&self.world)]);
        assert_eq!(self.pass(days(1)), []);
    }
}

/// Both Secrets of the authority are deleted: its key is gone for good. What it signed stays in use until everybody trusts the
/// next one.
#[test]
fn deleted_secrets_of_the_authority_are_a_new_key_and_everybody_trusts_everybody_throughout() {
    for annotated in [true, false] {
        let mut life = Life::begin(quickstart());
        life.restarts.clear();
        if !annotated {
            life.forgets_what_it_started_with();
            assert_eq!(life.pass(days(1)), [], "a new operator restarts nobody");
        }
        let before = newest(&life.world);
        life.world.secrets.remove(CLUSTER_CA);
        life.world.secrets.remove(CLUSTER_CA_CERT);
        life.comes_over_to_the_new_key(&before);
        assert_eq!(entries(&life.world, CLUSTER_CA_CERT), ["ca.crt", "ca.p12", "ca.password"]);
    }
}

/// Somebody puts back, from a backup, what nodes were given to trust before the key was replaced. All who run still trust that, and nobody
/// shows it any more.
#[test]
fn what_nodes_were_given_before_a_new_key_is_not_kept_when_it_is_put_back() {
    let mut life = Life::begin(quickstart());
    let of_before = life.world.secrets["my-cluster-trustbundle"].clone();
    let before = newest(&life.world);
    life.world.secrets.remove(CLUSTER_CA);
    life.world.secrets.remove(CLUSTER_CA_CERT);
    life.comes_over_to_the_new_key(&before);
    let mut world = life.world;
    let (content, meta) =
        (of_before.trust().unwrap().clone(), world.secrets["my-cluster-trustbundle"].meta.clone());
    world.secrets.insert("my-cluster-trustbundle".into(), Arc::new(SecretView::new(meta, content)));
    for _ in 0..10 {
        let plan = decide(&world);
        carry_out(&mut world, plan);
    }
    let files = world.secrets["my-cluster-trustbundle"].trust().unwrap();
    let given = Certificate::all_from_pem(&files[CLUSTER_TRUST]).unwrap();
    assert_eq!(given, [newest(&world)]);
    assert_eq!(decide(&world).certificates.len(), 0, "and nothing takes turns");
}

/// The next key is deleted too, when all trust it and before it signed anything. Who has not heard of that signs with it: so it stays trusted
/// until everybody shows a certificate of the newest one.
#[test]
fn a_key_that_is_deleted_before_it_signed_stays_trusted_until_all_are_over_it() {
    let mut life = Life::begin(quickstart());
    for secret in [CLUSTER_CA, CLUSTER_CA_CERT] {
        life.world.secrets.remove(secret);
    }
    let signs = |world: &World| {
        let plan = plan(world).unwrap();
        plan.certificates.iter().any(|issue| matches!(issue, Issue::Leaf { .. }))
    };
    while !signs(&life.world) {
        assert!(life.one_step());
    }
    let next = newest(&life.world);
    let unaware = life.world.clone();
    for secret in [CLUSTER_CA, CLUSTER_CA_CERT] {
        life.world.secrets.remove(secret);
    }
    while !life.world.secrets.contains_key(CLUSTER_CA_CERT) || newest(&life.world) == next {
        assert!(life.one_step());
    }
    for _ in 0..3 {
        assert!(life.one_step());
    }
    let given = |life: &Life| {
        let files = life.world.secrets["my-cluster-trustbundle"].trust().unwrap();
        Certificate::all_from_pem(&files[CLUSTER_TRUST]).unwrap()
    };
    assert!(given(&life).contains(&newest(&life.world)), "nodes are given the newest");
    // What the other operator writes fits what is there: nobody has touched these Secrets.
    for issue in plan(&unaware).unwrap().certificates {
        for write in issue.make(unaware.now).unwrap() {
            let meta = unaware.secrets[&write.name].meta.clone();
            assert_eq!(meta, life.world.secrets[&write.name].meta, "{}", write.name);
            let secret = SecretView::new(meta, write.content.data);
            life.world.secrets.insert(write.name, Arc::new(secret));
        }
    }
    life.settle();
    life.all_show_the_newest();
    assert_eq!(given(&life), [newest(&life.world)], "and in the end nothing else is trusted");
}

impl Life {
    /// Does everybody who runs accept what the operator shows?
    fn is_heard(&self) -> bool {
        let own = "my-cluster-cluster-operator-certs".to_owned();
        let shown = self.world.secrets.get(&stand_in(&self.world).unwrap_or(own));
        let Some(shown) = shown.and_then(|secret| secret.stored()) else { return false };
        self.loaded
            .values()
            .all(|loaded| loaded.trust.iter().any(|one| self.is_signed(shown.certificate(), one)))
    }
}

/// The operator's own certificate goes with the authority, and nobody who runs trusts the next one. Kafka answers only who shows what it
/// accepts, and without its word nobody restarts.
#[test]
fn an_operator_that_loses_its_certificate_with_the_authority_shows_that_of_a_node() {
    let mut life = Life::begin(quickstart());
    life.restarts.clear();
    assert_eq!(stand_in(&life.world), None, "its own is as good as any");
    let before = newest(&life.world);
    for secret in [CLUSTER_CA, CLUSTER_CA_CERT, "my-cluster-cluster-operator-certs"] {
        life.world.secrets.remove(secret);
    }
    let mut told = Vec::new();
    for _ in steps(300) {
        life.kafka.is_silent = !life.is_heard();
        let goes_on = life.one_step();
        told.extend(conditions(&life.world, "Warning"));
        if !goes_on {
            break;
        }
    }
    assert!(!life.kafka.is_silent);
    let told = told.iter().find(|(_, reason, _)| reason == "OperatorCertificateUnknown").expect("a warning");
    assert!(told.2.contains("it shows Kafka that of pod my-cluster-brokers-0"), "{told:?}");
    let causes = stale(&life.restarts);
    assert_eq!(causes.len(), 12, "{causes:?}");
    assert!(causes[..6].iter().all(|cause| **cause == Cause::Certificates(Stale::Trust)), "{causes:?}");
    assert_ne!(newest(&life.world).authority_id(), before.authority_id());
    life.all_show_the_newest();
    assert_eq!(stand_in(&life.world), None, "it has one of its own again");
    assert_eq!(conditions(&life.world, "Warning"), []);
}

#[test]
fn what_a_node_shows_is_shown_once_it_was_read() {
    let mut world = converged();
    let own = operator_side(&world).expect("its own").chain.to_vec();
    let secret = world.secrets.remove("my-cluster-cluster-operator-certs").unwrap();
    let node = stand_in(&world).expect("a node");
    assert!(operator_side(&world).is_none());
    let files = [("crt", b"chain"), ("key", b"a key")];
    let files = files.map(|(entry, text)| (format!("{node}.{entry}"), text.to_vec()));
    world.referenced.insert(node, Reference::Found(Arc::new(Files(files.into()))));
    let side = operator_side(&world).expect("that of the node");
    assert_eq!((side.chain, side.key), (&b"chain"[..], &b"a key"[..]));
    assert!(side.trust.contains("BEGIN CERTIFICATE") && !format!("{side:?}").contains("a key"));
    // Its own goes before that again as soon as it is there.
    world.secrets.insert("my-cluster-cluster-operator-certs".into(), secret);
    assert_eq!(operator_side(&world).expect("its own").chain, own);
}

/// The certificates of all nodes went, too: nobody has anything to show that those who run accept.
#[test]
fn an_operator_to_whom_nobody_can_lend_a_certificate_says_what_to_do() {
    let mut life = Life::begin(quickstart());
    let lost = |name: &String| name != "my-cluster-trustbundle";
    life.world.secrets.retain(|name, _| !lost(name));
    life.kafka.is_silent = true;
    let uids = |life: &Life| life.world.pods.values().map(|pod| pod.meta.uid.clone()).collect::<Vec<_>>();
    let before = uids(&life);
    for _ in 0..12 {
        step(&mut life.world, &mut life.kafka, &[]);
    }
    assert_eq!(uids(&life), before);
    let warnings = conditions(&life.world, "Warning");
    let told = warnings.iter().find(|(_, reason, _)| reason == "OperatorCertificateUnknown");
    let told = &told.unwrap_or_else(|| panic!("{warnings:?}")).2;
    for part in ["Kafka does not answer it", "from a backup", "delete all pods at once", "ephemeral"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

/// The same when the operator dies between any two writes, and when the Secrets go one after the other.
#[test]
fn secrets_of_the_authority_go_one_after_the_other() {
    for (first, second) in [(CLUSTER_CA, CLUSTER_CA_CERT), (CLUSTER_CA_CERT, CLUSTER_CA)] {
        let mut life = Life::begin(quickstart());
        life.world.secrets.remove(first);
        for _ in 0..2 {
            step(&mut life.world, &mut life.kafka, &[]);
            life.load();
            life.all_trust_each_other();
        }
        life.world.secrets.remove(second);
        life.pass(days(1));
        life.pass(days(1));
        assert_eq!(conditions(&life.world, "Ready")[0].0, "True");
        life.all_show_the_newest();
    }
}

/// The old certificate is nowhere but in the status, where clients look for it.
#[test]
fn a_certificate_that_is_left_in_the_status_alone_is_enough() {
    let mut world = quickstart();
    edit_kafka(&mut world, |kafka| {
        let listener = serde_json::json!({"name": "tls", "port": 9093, "type": "internal", "tls": true});
        kafka.spec.kafka.listeners.push(serde_json::from_value(listener).unwrap());
    });
    let mut life = Life::begin(world);
    life.restarts.clear();
    let before = newest(&life.world);
    for secret in [CLUSTER_CA, CLUSTER_CA_CERT, "my-cluster-trustbundle"] {
        life.world.secrets.remove(secret);
    }
    life.comes_over_to_the_new_key(&before);
}

/// Nothing is left of the old authority but what it signed: whoever restarted would trust nobody.
#[test]
fn nobody_restarts_to_trust_an_authority_and_nobody_else() {
    let mut life = Life::begin(quickstart());
    life.restarts.clear();
    let before = newest(&life.world);
    for secret in [CLUSTER_CA, CLUSTER_CA_CERT, "my-cluster-trustbundle"] {
        life.world.secrets.remove(secret);
    }
    assert_eq!(life.pass(days(1)), []);
    assert!(!life.world.secrets.contains_key("my-cluster-trustbundle"), "it would cut off everybody");
    let warnings = conditions(&life.world, "Warning");
    let told =
        warnings.iter().find(|(_, reason, _)| reason == "CertificateAuthorityLost").expect("a warning");
    assert!(told.2.contains("ca-old.crt"), "{told:?}");
    // Somebody has it.
    edit_secret(&mut life.world, CLUSTER_CA_CERT, |secret| {
        secret.data.insert("ca-old.crt".into(), before.pem().as_bytes().to_vec());
    });
    life.comes_over_to_the_new_key(&before);
}

/// The clients' authority: nobody knows who shows what, so it stays trusted until it ends.
#[test]
fn clients_of_a_deleted_authority_are_served_until_their_certificates_end() {
    let mut life = Life::begin(quickstart());
    let SecretContent::Authority(before) = &life.world.secrets["my-cluster-clients-ca-cert"].content else {
        panic!()
    };
    let before = before.certificates("ca.crt").unwrap()[0].clone();
    life.world.secrets.remove("my-cluster-clients-ca");
    life.world.secrets.remove("my-cluster-clients-ca-cert");
    life.pass(days(1));
    let trusted = |life: &Life| match &life.world.secrets["my-cluster-trustbundle"].content {
        SecretContent::Trust(files) => Certificate::all_from_pem(&files["clients-ca.crt"]).unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(trusted(&life).len(), 2);
    assert!(trusted(&life).contains(&before));
}

/// A user replaces the key with one command after the other, and keeps nothing of the old one.
#[test]
fn an_authority_that_a_user_replaces_in_halves_is_trusted_before_it_signs() {
    for order in [[CLUSTER_CA, CLUSTER_CA_CERT], [CLUSTER_CA_CERT, CLUSTER_CA]] {
        for is_deleted_first in [true, false] {
            let mut world = quickstart();
            bring_your_own(&mut world);
            for write in brought(&world) {
                write_secret(&mut world, None, write);
            }
            let mut life = Life::begin(world);
            life.restarts.clear();
            let before = newest(&life.world);
            let next: BTreeMap<_, _> =
                brought(&life.world).into_iter().map(|write| (write.name.clone(), write)).collect();
            for secret in order {
                if is_deleted_first {
                    life.world.secrets.remove(secret);
                    assert_eq!(life.pass(days(1)), [], "one half is missing");
                }
                write_secret(&mut life.world, None, next[secret].clone());
                if secret == order[0] {
                    assert_eq!(life.pass(days(1)), [], "the halves do not belong together");
                }
            }
            // Nobody raised a generation.
            life.comes_over_to_the_new_key(&before);
        }
    }
}

/// Somebody writes their own authority over the one that Karst made.
#[test]
fn an_overwritten_authority_signs_nothing_before_it_is_trusted() {
    let mut life = Life::begin(quickstart());
    life.restarts.clear();
    let before = newest(&life.world);
    for write in brought(&life.world) {
        let is_cert = write.name == CLUSTER_CA_CERT;
        edit_secret(&mut life.world, &write.name, |secret| {
            let entry = if is_cert { "ca.crt" } else { "ca.key" };
            secret.data.insert(entry.into(), write.content.data[entry].clone());
        });
    }
    let plan = decide(&life.world);
    assert!(
        plan.certificates.iter().all(|issue| !matches!(issue, Issue::Leaf { .. })),
        "{:?}",
        plan.certificates
    );
    life.comes_over_to_the_new_key(&before);
    assert_eq!(entries(&life.world, CLUSTER_CA_CERT), ["ca.crt", "ca.p12", "ca.password"]);
}

/// In the middle of a replacement the user thinks better of it, and puts the old authority back.
#[test]
fn an_authority_that_comes_back_costs_no_trust() {
    for steps in [3, 12, 30, 60] {
        let mut world = quickstart();
        bring_your_own(&mut world);
        let first = brought(&world);
        for write in first.clone() {
            write_secret(&mut world, None, write);
        }
        let mut life = Life::begin(world);
        for write in brought(&life.world) {
            write_secret(&mut life.world, None, write);
        }
        for _ in 0..steps {
            life.one_step();
        }
        for write in first {
            write_secret(&mut life.world, None, write);
        }
        life.settle();
        life.all_show_the_newest();
    }
}

/// A node that was asked for meanwhile waits until all trust who signs its certificate, and keeps nobody waiting.
#[test]
fn a_node_that_comes_while_a_new_authority_is_learnt_gets_its_certificate_afterwards() {
    let mut life = Life::begin(quickstart());
    life.restarts.clear();
    life.world.secrets.remove(CLUSTER_CA);
    life.world.secrets.remove(CLUSTER_CA_CERT);
    edit_pool(&mut life.world, "brokers", |pool| pool.spec.replicas = 4);
    life.pass(days(1));
    assert_eq!(life.world.pods.len(), 7);
    assert!(life.world.pods.values().all(|pod| pod.ready));
    life.all_show_the_newest();
    // Controllers too: that they have not joined keeps no other from its restart.
    life.world.secrets.remove(CLUSTER_CA);
    life.world.secrets.remove(CLUSTER_CA_CERT);
    edit_pool(&mut life.world, "controllers", |pool| pool.spec.replicas = 5);
    life.pass(days(1));
    assert_eq!(life.world.pods.len(), 9);
    assert_eq!(life.kafka.voters.len(), 5);
    life.all_show_the_newest();
}

/// Disks that go with their pods: each controller leaves the quorum before its restart, and waits for nobody who waits for it.
#[test]
fn controllers_on_ephemeral_disks_learn_a_new_authority_while_others_are_to_come() {
    let mut world = quickstart();
    edit_pool(&mut world, "controllers", |pool| pool.spec.storage = karst_api::Storage::ephemeral());
    let mut life = Life::begin(world);
    life.restarts.clear();
    life.world.secrets.remove(CLUSTER_CA);
    life.world.secrets.remove(CLUSTER_CA_CERT);
    edit_pool(&mut life.world, "controllers", |pool| pool.spec.replicas = 5);
    life.pass(days(1));
    assert_eq!((life.world.pods.len(), life.kafka.voters.len()), (8, 5));
    life.all_show_the_newest();
}

/// The certificate of a node is deleted with the authority: it starts again when the others trust the new one.
#[test]
fn a_node_that_lost_its_certificate_with_the_authority_comes_over_last() {
    let mut life = Life::begin(quickstart());
    life.restarts.clear();
    for secret in [CLUSTER_CA, CLUSTER_CA_CERT, "my-cluster-brokers-0"] {
        life.world.secrets.remove(secret);
    }
    // Its own process refuses its new certificate until it restarts.
    life.is_lonely = Some("my-cluster-brokers-0");
    let restarts = life.pass(days(1));
    life.all_show_the_newest();
    let first = |pod: &str| restarts.iter().position(|restart| restart.pod == pod).unwrap();
    assert!(first("my-cluster-brokers-2") < first("my-cluster-brokers-0"), "{restarts:?}");
}

/// The same, and nobody but that node has all of some partition: the others restart one after the other, for it cannot start before.
#[test]
fn what_a_broker_without_a_certificate_has_does_not_hold_the_restarts_that_it_waits_for() {
    const LONELY: &str = "my-cluster-brokers-0";
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    world.now += days(1);
    for secret in [CLUSTER_CA, CLUSTER_CA_CERT, LONELY] {
        world.secrets.remove(secret);
    }
    let lacks = |world: &World| !world.secrets.contains_key(LONELY);
    let rest = |world: &mut World| {
        edit_pod(world, LONELY, |pod| {
            pod.ready = false;
            pod.kafka_ready = false;
        });
    };
    rest(&mut world);
    // One that only it could lead, with a copy at each other that is behind; and one that has no copy elsewhere.
    let without_leader =
        |topic: &str, replicas: &[i32]| PartitionView { leader: None, ..partition(topic, replicas, &[0], 1) };
    let partitions = [without_leader("shared", &[0, 1, 2]), without_leader("alone", &[0])];
    let mut restarted = Vec::new();
    let mut rounds = 0;
    while lacks(&world) {
        let next = plan(&world).unwrap();
        if next.questions.is_empty() {
            assert!(next.restarts.len() <= 1, "two at a time: {:?}", next.restarts);
            restarted.extend(next.restarts);
        }
        let goes_on = step(&mut world, &mut kafka, &partitions);
        if lacks(&world) {
            assert!(goes_on, "it waits for ever, after {restarted:?}: {:?}", conditions(&world, "Warning"));
            rest(&mut world);
        }
        rounds += 1;
        assert!(rounds < 200, "it does not get its certificate, after {restarted:?}");
    }
    let pods: Vec<_> = restarted.iter().map(|restart| restart.pod.as_str()).collect();
    assert_eq!(pods.len(), 5, "{pods:?}");
    assert!(!pods.contains(&LONELY), "{pods:?}");
    let causes = stale(&restarted);
    assert!(causes.iter().all(|cause| **cause == Cause::Certificates(Stale::Trust)), "{causes:?}");
    // With its certificate it counts again: a partition without a leader holds what nobody waits for.
    for _ in 0..30 {
        let next = plan(&world).unwrap();
        let held =
            |restart: &Restart| ["my-cluster-brokers-1", "my-cluster-brokers-2"].contains(&&*restart.pod);
        assert!(!next.restarts.iter().any(held), "{:?}", next.restarts);
        step(&mut world, &mut kafka, &partitions);
    }
    let warnings = conditions(&world, "Warning");
    assert!(warnings.iter().any(|(_, _, message)| message.contains("shared-0")), "{warnings:?}");
}

/// As an earlier Karst left it: every Secret is of a new authority, and no process has read any of that.
#[test]
fn nodes_of_two_worlds_that_do_not_serve_start_again_together() {
    let mut world = converged();
    world.now += days(1);
    // What the new authority is in its Secrets, with the same numbers as the old one.
    let pods: Vec<_> = world.pods.keys().cloned().collect();
    for name in [CLUSTER_CA, CLUSTER_CA_CERT] {
        world.secrets.remove(name);
    }
    let kept = std::mem::take(&mut world.pods);
    for _ in 0..4 {
        for issue in plan(&world).unwrap().certificates {
            issue_certificates(&mut world, &issue);
        }
    }
    world.pods = kept;
    for pod in &pods {
        let pod = Arc::make_mut(world.pods.get_mut(pod).unwrap());
        pod.meta.created = Some(world.now - days(1));
        for annotation in [TRUSTED_AUTHORITIES_ANNOTATION, CERTIFICATE_AUTHORITY_ANNOTATION] {
            pod.meta.annotations.remove(annotation);
        }
    }
    run_pods(&mut world, false);
    world.answers = Answers { quorum: Answer::Silent("not trusted".into()), ..Answers::default() };
    for _ in 0..6 {
        let plan = plan(&world).unwrap();
        if plan.certificates.is_empty() && plan.objects.is_empty() && plan.questions.is_empty() {
            break;
        }
        carry_out(&mut world, plan);
        world.answers = Answers { quorum: Answer::Silent("not trusted".into()), ..Answers::default() };
    }
    let restarts = plan(&world).unwrap().restarts;
    assert_eq!(restarts.len(), 6, "alone none of them would find anybody to talk to");
}

/// Kafka does not start with an empty list of whom to trust.
#[test]
fn an_authority_of_clients_that_ended_stays_in_the_bundle_and_is_told() {
    let mut world = converged();
    edit_kafka(&mut world, |kafka| {
        let own = CertificateAuthority { generate_certificate_authority: Some(false), ..Default::default() };
        kafka.spec.clients_ca = Some(own);
    });
    converge(&mut world);
    world.now += days(400);
    let plan = decide(&world);
    let told = plan.notices.iter().find(|notice| {
        notice.reason() == "CertificateEnds" && notice.to_string().contains("my-cluster-clients-ca-cert")
    });
    assert!(told.expect("a warning").to_string().contains("ended at"), "{told:?}");
    for _ in 0..4 {
        let plan = decide(&world);
        carry_out(&mut world, plan);
    }
    let SecretContent::Trust(files) = &world.secrets["my-cluster-trustbundle"].content else { panic!() };
    assert_eq!(Certificate::all_from_pem(&files["clients-ca.crt"]).unwrap().len(), 1);
}

/// A clock that jumps says that everything has ended. The API server knows better.
#[test]
fn a_clock_that_jumps_a_year_makes_nothing_new_and_restarts_nobody() {
    let mut world = converged();
    world.api_server_time = Some(world.now);
    world.now += days(366);
    let plan = decide(&world);
    assert!(plan.certificates.is_empty(), "{:?}", plan.certificates);
    assert_eq!(plan.restarts, []);
    let told = plan.notices.iter().find(|notice| notice.reason() == "ClocksDiffer").expect("a warning");
    assert!(told.to_string().contains("2023-11-14 22:13 UTC") && told.to_string().contains("2024"), "{told}");
    world.api_server_time = Some(world.now);
    assert!(!decide(&world).certificates.is_empty(), "when both say so it is so");
}

/// Somebody puts back the Secrets of another day, in which nothing is left of what nodes show. Whoever restarted would be alone.
#[test]
fn secrets_of_another_world_restart_nobody_who_serves() {
    let mut life = Life::begin(quickstart());
    let uids = |life: &Life| life.world.pods.values().map(|pod| pod.meta.uid.clone()).collect::<Vec<_>>();
    let before = uids(&life);
    for write in brought(&life.world) {
        edit_secret(&mut life.world, &write.name, |secret| secret.data.extend(write.content.data.clone()));
    }
    let trust = "my-cluster-trustbundle";
    let mut files = life.world.secrets[trust].trust().unwrap().clone();
    files.insert(CLUSTER_TRUST.into(), newest(&life.world).pem().as_bytes().to_vec());
    let meta = life.world.secrets[trust].meta.clone();
    life.world.secrets.insert(trust.into(), Arc::new(SecretView::new(meta, files)));
    for _ in 0..12 {
        step(&mut life.world, &mut life.kafka, &[]);
    }
    assert_eq!(uids(&life), before);
    let warnings = conditions(&life.world, "Warning");
    assert!(warnings.iter().any(|(_, reason, _)| reason == "CertificateAuthorityLost"), "{warnings:?}");
}

/// The authority is lost, and with it the certificates of some nodes, which start only when all others trust the next one. Returns the
/// restarts of the others, while Kafka says this.
fn restarts_while_waiting(
    waiting: &[&str],
    partitions: &[PartitionView],
    say: impl Fn(&mut World),
) -> Vec<Restart> {
    let mut world = converged();
    let mut kafka = Kafka::formed(&world);
    for secret in [CLUSTER_CA, CLUSTER_CA_CERT].iter().chain(waiting) {
        world.secrets.remove(*secret).unwrap();
    }
    let mut restarts: Vec<Restart> = Vec::new();
    for _ in 0..80 {
        for pod in waiting {
            edit_pod(&mut world, pod, |pod| pod.ready = false);
        }
        say(&mut world);
        let plan = plan(&world).unwrap();
        if !plan.questions.is_empty() {
            kafka.answer(&mut world, partitions, &plan.questions);
            continue;
        }
        restarts.extend(plan.restarts.iter().cloned());
        if plan.restarts.iter().any(|restart| waiting.contains(&restart.pod.as_str())) {
            break;
        }
        carry_out(&mut world, plan);
        world.answers = Answers::default();
        run_pods(&mut world, true);
    }
    restarts
}

/// It is done all the same: they would wait for ever. But what takes no writes meanwhile is named.
#[test]
fn a_restart_that_lets_others_start_names_the_partitions_that_take_no_writes_meanwhile() {
    let partitions =
        [partition("orders", &[0, 1, 2], &[1, 2], 2), partition("bills", &[0, 1, 2], &[1, 2], 1)];
    let restarts = restarts_while_waiting(&["my-cluster-brokers-0"], &partitions, |_| {});
    let of = |pod: &str| restarts.iter().find(|restart| restart.pod == pod).expect(pod);
    assert_eq!(of("my-cluster-brokers-1").exposed.as_deref(), Some("orders-0"));
    assert!(restarts.iter().all(|restart| restart.leaderless.is_none()), "{restarts:?}");
}

#[test]
fn a_restart_that_lets_others_start_says_that_too_few_voters_are_left() {
    let restarts = restarts_while_waiting(&["my-cluster-controllers-5"], &[], |_| {});
    let [first, ..] = restarts.as_slice() else { panic!("nothing restarts") };
    assert_eq!(first.pod, "my-cluster-controllers-4", "the leader is last");
    let said = first.leaderless.as_deref().unwrap_or_default();
    assert!(said.contains("1 of 3 controllers are left") && said.contains("certificate (5)"), "{said}");
}

/// Only a container beside it fails. It votes, and counts as any other.
#[test]
fn a_node_whose_kafka_runs_waits_for_nobody() {
    let pod = "my-cluster-controllers-5";
    let restarts = restarts_while_waiting(&[pod], &[], |world| {
        edit_pod(world, pod, |pod| pod.kafka_ready = true);
        let Answer::Known(quorum) = &mut world.answers.quorum else { return };
        for voter in &mut quorum.voters {
            voter.takes_part = true;
            voter.behind = Some(Duration::from_secs(if voter.node == NodeId(4) { 9 } else { 0 }));
        }
    });
    let pods: Vec<_> = restarts.iter().map(|restart| restart.pod.as_str()).collect();
    assert!(
        !pods.contains(&"my-cluster-controllers-3"),
        "one would be left that is up and caught up: {pods:?}"
    );
}
