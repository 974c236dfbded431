//! Certificates through the life of a cluster: made before its pods, renewed without them, and replaced under them.

mod ending;
mod trust;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::*;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use karst_api::CertificateAuthority;
use karst_certs::{Authority, Certificate, Kind, Secret, SecretWrite, Settings, Stored};
use karst_core::certificates::{Issue, Stale, operator_side, stand_in};
use karst_core::names::{
    CERTIFICATE_AUTHORITY_ANNOTATION, CLUSTER_TRUST, MANUAL_ROLL_ANNOTATION, TRUSTED_AUTHORITIES_ANNOTATION,
};
use karst_core::plan::plan;
use karst_core::rolling::{Cause, Restart};
use karst_core::status::Progress;
use karst_core::world::{Answer, Answers, Files, PodView, Reference, SecretContent, SecretView, World};

const CLUSTER_CA: &str = "my-cluster-cluster-ca";
const CLUSTER_CA_CERT: &str = "my-cluster-cluster-ca-cert";

fn days(days: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * days)
}

fn edit_secret(world: &mut World, name: &str, edit: impl FnOnce(&mut Secret)) {
    let view = &world.secrets[name];
    let SecretContent::Authority(material) = &view.content else { panic!("{name} is not an authority's") };
    let mut secret = material.secret.clone();
    edit(&mut secret);
    let mut meta = view.meta.clone();
    meta.annotations = secret.annotations;
    world.secrets.insert(name.into(), Arc::new(SecretView::new(meta, secret.data)));
}

fn annotate(world: &mut World, name: &str, annotation: &str) {
    edit_secret(world, name, |secret| {
        secret.annotations.insert(annotation.into(), "true".into());
    });
}

fn generation(world: &World, secret: &str, annotation: &str) -> String {
    world.secrets[secret].meta.annotations.get(annotation).cloned().unwrap_or_default()
}

fn leaf_end(world: &World, pod: &str) -> Timestamp {
    world.secrets[pod].stored().unwrap().certificate().not_after
}

/// A certificate, and one that may have signed it.
type Signing = (Vec<u8>, Vec<u8>);

/// What a process read when it started.
#[derive(Clone, PartialEq, Debug)]
struct Loaded {
    leaf: Certificate,
    trust: Vec<Certificate>,
}

/// A cluster whose processes remember what they loaded.
struct Life {
    world: World,
    kafka: Kafka,
    loaded: BTreeMap<String, Loaded>,
    restarts: Vec<Restart>,
    /// Who signed whom: to find that out takes longer than all the rest.
    signed: RefCell<BTreeMap<Signing, bool>>,
    /// A node that gets a certificate which its own process does not accept.
    is_lonely: Option<&'static str>,
}

impl Life {
    fn begin(world: World) -> Self {
        let kafka = Kafka::formed(&world);
        let mut life = Self {
            world,
            kafka,
            loaded: BTreeMap::new(),
            restarts: Vec::new(),
            signed: RefCell::default(),
            is_lonely: None,
        };
        life.settle();
        life
    }

    /// Lets the operator work until it has nothing to do, and looks after each step whether all nodes trust each other.
    fn settle(&mut self) {
        for _ in 0..300 {
            if !self.one_step() {
                return;
            }
        }
        panic!("it never comes to rest: {:?}", decide(&self.world));
    }

    fn one_step(&mut self) -> bool {
        if self.kafka.voters.is_empty() {
            self.kafka = Kafka::formed(&self.world);
        }
        let plan = plan(&self.world).unwrap();
        if plan.questions.is_empty() {
            for restart in &plan.restarts {
                self.loaded.remove(&restart.pod);
            }
            self.restarts.extend(plan.restarts);
        }
        let goes_on = step(&mut self.world, &mut self.kafka, &[]);
        self.load();
        self.all_trust_each_other();
        self.all_accept_themselves();
        goes_on
    }

    fn load(&mut self) {
        self.loaded.retain(|pod, _| self.world.pods.contains_key(pod));
        for pod in self.world.pods.keys() {
            let now = || {
                let SecretContent::Trust(files) = &self.world.secrets["my-cluster-trustbundle"].content
                else {
                    panic!("no trust");
                };
                Loaded {
                    leaf: self.world.secrets[pod].stored().unwrap().certificate().clone(),
                    trust: Certificate::all_from_pem(&files[CLUSTER_TRUST]).unwrap(),
                }
            };
            if !self.loaded.contains_key(pod) {
                let now = now();
                self.loaded.insert(pod.clone(), now);
            }
        }
    }

    fn all_trust_each_other(&self) {
        let now = self.world.now;
        let is_trusted = |leaf: &Certificate, trust: &[Certificate]| {
            !leaf.is_expired(now) && trust.iter().any(|one| !one.is_expired(now) && self.is_signed(leaf, one))
        };
        let operator = self.world.secrets.get("my-cluster-cluster-operator-certs");
        let operator = operator.and_then(|secret| secret.stored()).map(Stored::certificate);
        for (pod, one) in &self.loaded {
            for (other, presented) in &self.loaded {
                assert!(is_trusted(&presented.leaf, &one.trust), "{pod} does not trust {other}");
            }
            assert!(
                operator.is_none_or(|leaf| is_trusted(leaf, &one.trust)),
                "{pod} does not trust the operator"
            );
        }
    }

    /// A kubelet may give a pod newer files at any time. What is beside its process takes them, and talks to it.
    fn all_accept_themselves(&self) {
        let secrets = &self.world.secrets;
        let given = secrets.get("my-cluster-trustbundle").and_then(|secret| secret.trust());
        let given = given.map(|files| Certificate::all_from_pem(&files[CLUSTER_TRUST]).unwrap());
        for (pod, loaded) in self.loaded.iter().filter(|(pod, _)| self.is_lonely != Some(pod.as_str())) {
            let accepts = |leaf: &Certificate, trust: &[Certificate]| {
                trust.iter().any(|authority| self.is_signed(leaf, authority))
            };
            let stored = secrets.get(pod).and_then(|secret| secret.stored()).map(Stored::certificate);
            assert!(stored.is_none_or(|leaf| accepts(leaf, &loaded.trust)), "{pod} refuses its new files");
            let is_accepted = given.as_ref().is_none_or(|given| accepts(&loaded.leaf, given));
            assert!(is_accepted, "{pod} is refused by its new files");
        }
    }

    fn is_signed(&self, leaf: &Certificate, by: &Certificate) -> bool {
        let pair = (leaf.der().to_vec(), by.der().to_vec());
        *self.signed.borrow_mut().entry(pair).or_insert_with(|| leaf.is_signed_by(by))
    }

    fn pass(&mut self, time: SignedDuration) -> Vec<Restart> {
        self.world.now += time;
        self.settle();
        std::mem::take(&mut self.restarts)
    }
}

fn stale(restarts: &[Restart]) -> Vec<&Cause> {
    restarts.iter().flat_map(|restart| &restart.causes).collect()
}

#[test]
fn every_secret_that_a_pod_mounts_is_there_before_its_pod_set() {
    let mut world = quickstart();
    let mut kafka = Kafka::formed(&world);
    let mut rounds = 0;
    while world.pod_sets.is_empty() {
        assert!(step(&mut world, &mut kafka, &[]));
        rounds += 1;
    }
    assert_eq!(rounds, 4, "certificates are made beside the facts, and cost no round of their own");
    let named = |set: &str| world.pod_sets[set].pods.len();
    assert_eq!((named("my-cluster-brokers"), named("my-cluster-controllers")), (3, 3));
    let secrets: Vec<_> = world.secrets.keys().map(String::as_str).collect();
    assert_eq!(
        secrets,
        [
            "my-cluster-brokers-0",
            "my-cluster-brokers-1",
            "my-cluster-brokers-2",
            "my-cluster-clients-ca",
            "my-cluster-clients-ca-cert",
            CLUSTER_CA,
            CLUSTER_CA_CERT,
            "my-cluster-cluster-operator-certs",
            "my-cluster-controllers-3",
            "my-cluster-controllers-4",
            "my-cluster-controllers-5",
            "my-cluster-trustbundle",
        ]
    );
    let names = &world.secrets["my-cluster-brokers-0"].stored().unwrap().certificate().names;
    for name in ["my-cluster-kafka-bootstrap.myproject.svc", "my-cluster-kafka-brokers"] {
        assert!(names.contains(&name.to_owned()), "{names:?}");
    }
    let own = "my-cluster-brokers-0.my-cluster-kafka-brokers.myproject.svc.cluster.local";
    assert!(names.contains(&own.to_owned()), "{names:?}");
    assert!(world.secrets.values().all(|secret| secret.meta.owners == ["uid-kafka"]));
}

#[test]
fn a_renewal_restarts_nobody_before_the_last_days() {
    let mut life = Life::begin(quickstart());
    life.restarts.clear();
    assert_eq!(life.pass(days(334)), []);
    assert_eq!(generation(&life.world, CLUSTER_CA_CERT, "strimzi.io/ca-cert-generation"), "0");
    let before = leaf_end(&life.world, "my-cluster-brokers-0");
    assert_eq!(life.pass(days(2)), [], "renewed, but nothing restarts");
    assert_eq!(generation(&life.world, CLUSTER_CA_CERT, "strimzi.io/ca-cert-generation"), "1");
    assert!(leaf_end(&life.world, "my-cluster-brokers-0") > before);
    assert_eq!(conditions(&life.world, "Ready")[0].0, "True");
    let restarts = life.pass(days(20));
    assert_eq!(restarts.len(), 6);
    assert!(stale(&restarts).iter().all(|cause| matches!(cause, Cause::Certificates(Stale::Ends(_)))));
    assert_eq!(life.pass(days(1)), []);
}

#[test]
fn a_renewed_certificate_rides_on_any_other_restart() {
    let mut life = Life::begin(quickstart());
    life.pass(days(336));
    for pod in life.world.pods.values_mut() {
        Arc::make_mut(pod).meta.annotations.insert(MANUAL_ROLL_ANNOTATION.into(), "true".into());
    }
    assert_eq!(life.pass(days(1)).len(), 6);
    assert_eq!(life.pass(days(25)), [], "they started with the new certificates");
}

#[test]
fn restarts_for_certificates_wait_for_a_maintenance_window_as_long_as_they_can() {
    let mut world = quickstart();
    edit_kafka(&mut world, |kafka| {
        kafka.spec.maintenance_time_windows = Some(vec!["* * 2 ? * * *".into(), "nonsense".into()]);
    });
    // The world begins at 22:13.
    let mut life = Life::begin(world);
    let warnings = conditions(&life.world, "Warning");
    assert!(
        warnings.iter().any(|(_, reason, why)| reason == "MaintenanceWindow" && why.contains("nonsense"))
    );
    assert_eq!(life.pass(days(336)), []);
    assert_eq!(generation(&life.world, CLUSTER_CA_CERT, "strimzi.io/ca-cert-generation"), "0", "not open");
    assert_eq!(life.pass(SignedDuration::from_hours(4)), []);
    assert_eq!(generation(&life.world, CLUSTER_CA_CERT, "strimzi.io/ca-cert-generation"), "1", "open at two");
    assert_eq!(life.pass(days(20) - SignedDuration::from_hours(4)), [], "not open");
    assert_eq!(life.pass(SignedDuration::from_hours(4)).len(), 6, "open at two");
}

#[test]
fn a_key_is_replaced_in_two_rolls_and_everybody_trusts_everybody_throughout() {
    let mut life = Life::begin(quickstart());
    life.restarts.clear();
    annotate(&mut life.world, CLUSTER_CA, "strimzi.io/force-replace");
    let restarts = life.pass(days(1));
    let causes = stale(&restarts);
    assert_eq!(causes.len(), 12, "{causes:?}");
    assert!(causes[..6].iter().all(|cause| **cause == Cause::Certificates(Stale::Trust)), "{causes:?}");
    assert!(causes[6..].iter().all(|cause| **cause == Cause::Certificates(Stale::Key)), "{causes:?}");
    assert_eq!(generation(&life.world, CLUSTER_CA, "strimzi.io/ca-key-generation"), "1");
    let SecretContent::Authority(left) = &life.world.secrets[CLUSTER_CA_CERT].content else { panic!() };
    let left: Vec<_> = left.secret.data.keys().collect();
    assert_eq!(left, ["ca.crt", "ca.p12", "ca.password"], "nothing of the old key is left");
    assert!(life.loaded.values().all(|loaded| loaded.leaf.is_signed_by(&loaded.trust[0])));
}

/// A pod can be made when its Secrets are there and were not seen: then nobody knows what it loaded.
#[test]
fn a_key_is_replaced_though_a_pod_does_not_tell_what_it_trusts() {
    for lost in ["strimzi.io/cluster-ca-cert-generation", "strimzi.io/cluster-ca-key-generation"] {
        let mut life = Life::begin(quickstart());
        life.restarts.clear();
        let pod = Arc::make_mut(life.world.pods.get_mut("my-cluster-brokers-1").unwrap());
        for lost in [lost, TRUSTED_AUTHORITIES_ANNOTATION, CERTIFICATE_AUTHORITY_ANNOTATION] {
            pod.meta.annotations.remove(lost).unwrap();
        }
        assert_eq!(life.pass(days(1)), [], "nothing depends on it yet");
        annotate(&mut life.world, CLUSTER_CA, "strimzi.io/force-replace");
        let restarts = life.pass(days(1));
        assert_eq!(stale(&restarts).len(), 12, "{restarts:?}");
        let SecretContent::Authority(left) = &life.world.secrets[CLUSTER_CA_CERT].content else { panic!() };
        let left: Vec<_> = left.secret.data.keys().collect();
        assert_eq!(left, ["ca.crt", "ca.p12", "ca.password"], "nothing of the old key is left");
    }
}

/// Whoever signs for clients takes the key from its Secret at any time, and every broker has to trust what they sign.
#[test]
fn the_clients_authority_is_replaced_without_a_restart_and_signs_when_brokers_have_loaded_it() {
    let authority = |life: &Life| match &life.world.secrets["my-cluster-clients-ca"].content {
        SecretContent::Authority(material) => material.secret.data.clone(),
        other => panic!("{other:?}"),
    };
    let trusted = |life: &Life| match &life.world.secrets["my-cluster-trustbundle"].content {
        SecretContent::Trust(files) => String::from_utf8(files["clients-ca.crt"].clone()).unwrap(),
        other => panic!("{other:?}"),
    };
    let mut life = Life::begin(quickstart());
    life.restarts.clear();
    let before = authority(&life);
    annotate(&mut life.world, "my-cluster-clients-ca", "strimzi.io/force-replace");
    assert_eq!(life.pass(days(1)), []);
    let prepared = authority(&life);
    assert_eq!(prepared["ca.key"], before["ca.key"], "brokers do not know another one yet");
    let next = String::from_utf8(prepared["ca-next.crt"].clone()).unwrap();
    assert!(trusted(&life).contains(&next), "they learn it");

    assert_eq!(life.pass(SignedDuration::from_secs(290)), []);
    assert_eq!(authority(&life)["ca.key"], before["ca.key"], "a kubelet may take its time");
    assert_eq!(life.pass(SignedDuration::from_secs(20)), []);
    let after = authority(&life);
    assert_eq!(after["ca.key"], prepared["ca-next.key"]);
    assert_eq!(after.keys().collect::<Vec<_>>(), ["ca.key"]);
    assert_eq!(generation(&life.world, "my-cluster-clients-ca", "strimzi.io/ca-key-generation"), "1");
    assert_eq!(
        generation(&life.world, "my-cluster-trustbundle", "strimzi.io/clients-ca-cert-generation"),
        "1"
    );
    assert!(trusted(&life).contains(&next), "what it signs was trusted all the time");
}

#[test]
fn ten_years_pass_without_a_certificate_that_nobody_accepts() {
    let mut life = Life::begin(quickstart());
    life.restarts.clear();
    let mut restarts = 0;
    for look in 0..(365 * 10 / 9) {
        if look % 130 == 129 {
            annotate(&mut life.world, CLUSTER_CA, "strimzi.io/force-replace");
        }
        restarts += life.pass(days(9)).len();
    }
    // Ten renewals and three replacements of two rolls; a replacement renews too.
    assert!((60..=96).contains(&restarts), "{restarts}");
}

#[test]
fn certificates_are_renewed_while_the_cluster_is_neither_ready_nor_valid() {
    let mut world = converged();
    run_pods(&mut world, false);
    edit_kafka(&mut world, |kafka| kafka.spec.kafka.version = Some("0.8".into()));
    world.now += days(340);
    let before = leaf_end(&world, "my-cluster-brokers-0");
    for _ in 0..3 {
        let plan = decide(&world);
        assert!(matches!(plan.progress, Some(Progress::Refused(_))));
        carry_out(&mut world, plan);
    }
    assert_eq!(generation(&world, CLUSTER_CA_CERT, "strimzi.io/ca-cert-generation"), "1");
    assert!(leaf_end(&world, "my-cluster-brokers-0") > before);
    assert!(decide(&world).certificates.is_empty());
}

#[test]
fn nodes_whose_certificates_have_ended_start_again_together() {
    let mut world = converged();
    world.now += days(366);
    world.answers = Answers { quorum: Answer::Silent("expired".into()), ..Answers::default() };
    run_pods(&mut world, false);
    for _ in 0..4 {
        let plan = plan(&world).unwrap();
        if plan.certificates.is_empty() && plan.objects.is_empty() {
            break;
        }
        carry_out(&mut world, plan);
    }
    let restarts = plan(&world).unwrap().restarts;
    assert_eq!(restarts.len(), 6, "alone none of them would find anybody to talk to");
}

fn bring_your_own(world: &mut World) {
    edit_kafka(world, |kafka| {
        let own = CertificateAuthority { generate_certificate_authority: Some(false), ..Default::default() };
        kafka.spec.cluster_ca = Some(own);
    });
}

/// The Secrets of an authority that a user made.
fn brought(world: &World) -> Vec<SecretWrite> {
    let none = Authority::read(Kind::Cluster, "my-cluster", &Settings::default(), None, None).unwrap();
    none.carry_out(&karst_certs::Decision::Create, world.now).unwrap()
}

#[test]
fn a_cluster_waits_for_the_authority_that_its_user_is_to_bring() {
    let mut world = quickstart();
    bring_your_own(&mut world);
    converge(&mut world);
    assert!(world.pod_sets.values().all(|set| set.pods.is_empty()) && world.pods.is_empty());
    let (ready, reason, message) = conditions(&world, "Ready").remove(0);
    assert_eq!((ready.as_str(), reason.as_str()), ("False", "CertificateAuthorityUnusable"));
    for part in [CLUSTER_CA_CERT, "does not exist", "ca.crt", "strimzi.io/cluster: my-cluster"] {
        assert!(message.contains(part), "{message}");
    }
    for write in brought(&world) {
        write_secret(&mut world, None, write);
    }
    converge(&mut world);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
}

#[test]
fn a_broken_authority_of_a_user_harms_nothing_that_runs_and_is_told() {
    let mut world = converged();
    bring_your_own(&mut world);
    converge(&mut world);
    let secrets = world.secrets.len();
    edit_secret(&mut world, CLUSTER_CA, |secret| {
        secret.data.insert("ca.key".into(), b"nonsense".to_vec());
    });
    let mut kafka = Kafka::formed(&world);
    let pods: Vec<Arc<PodView>> = world.pods.values().cloned().collect();
    converge_kafka(&mut world, &mut kafka, &[]);
    assert_eq!(world.pods.values().cloned().collect::<Vec<_>>(), pods);
    assert_eq!(world.secrets.len(), secrets);
    assert_eq!(conditions(&world, "Ready")[0].0, "True");
    let warning =
        conditions(&world, "Warning").into_iter().find(|one| one.1 == "CertificateAuthorityUnusable");
    let message = warning.expect("a warning").2;
    for part in [CLUSTER_CA, "ca.key", "PEM"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn the_end_of_an_authority_that_karst_did_not_make_is_announced() {
    let mut world = converged();
    bring_your_own(&mut world);
    converge(&mut world);
    world.now += days(340);
    let plan = decide(&world);
    let is_ours = |issue: &Issue| issue.to_string().contains("clients-ca");
    assert!(plan.certificates.iter().all(is_ours), "{:?}", plan.certificates);
    let ends = plan.notices.iter().find(|notice| notice.reason() == "CertificateEnds").expect("a notice");
    assert!(ends.to_string().contains(CLUSTER_CA_CERT), "{ends}");
}

#[test]
fn a_lost_certificate_is_made_again_and_nothing_restarts() {
    let mut life = Life::begin(quickstart());
    life.restarts.clear();
    life.world.secrets.remove("my-cluster-brokers-1");
    life.world.secrets.remove("my-cluster-trustbundle");
    let plan = decide(&life.world);
    let made: Vec<_> = plan.certificates.iter().map(Issue::to_string).collect();
    assert_eq!(made.len(), 2, "{made:?}");
    carry_out(&mut life.world, plan);
    assert_eq!(life.pass(days(1)), []);
}

#[test]
fn authorities_outlive_the_cluster_when_asked_to_and_leftovers_are_taken_over() {
    let mut world = converged();
    edit_kafka(&mut world, |kafka| {
        let kept =
            CertificateAuthority { generate_secret_owner_reference: Some(false), ..Default::default() };
        kafka.spec.cluster_ca = Some(kept);
    });
    converge(&mut world);
    assert_eq!(world.secrets[CLUSTER_CA].meta.owners, [] as [&str; 0]);
    assert_eq!(world.secrets["my-cluster-clients-ca"].meta.owners, ["uid-kafka"]);
    // Another resource of the same name, before what the first one owned is gone.
    let mut next = quickstart();
    next.secrets = world.secrets;
    Arc::make_mut(&mut next.kafka).metadata.uid = Some("uid-next".into());
    converge(&mut next);
    assert!(next.secrets.values().all(|secret| secret.meta.owners == ["uid-next"]));
}

#[test]
fn the_certificate_of_a_node_that_is_gone_goes_too() {
    let mut world = converged();
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 2);
    converge(&mut world);
    assert!(!world.secrets.contains_key("my-cluster-brokers-2"));
    assert!(world.secrets.contains_key("my-cluster-brokers-1"));
}
