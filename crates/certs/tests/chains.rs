//! An authority below others, as companies have them; and what becomes of trust when Secrets are lost.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod common;

use common::{Store, at, check};
use jiff::{SignedDuration, Timestamp};
use karst_certs::authority::Cause;
use karst_certs::{
    Authority, Certificate, Decision, Issuer, Kind, Nodes, Opening, Request, Secret, Settings,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose};

const ALL: Nodes = Nodes { all_trust_newest: true, all_present_newest: true };
const USERS: Settings = Settings {
    generate: false,
    validity_days: 365,
    renewal_days: 30,
    on_expiry: karst_certs::authority::Change::RenewCertificate,
    algorithm: karst_certs::KeyAlgorithm::EcdsaP256,
};

fn now() -> Timestamp {
    at("2026-06-01T00:00:00Z")
}

fn after(days: i64) -> Timestamp {
    now() + SignedDuration::from_hours(24 * days)
}

/// An authority of a company.
struct Company {
    pem: String,
    issuer: rcgen::Issuer<'static, KeyPair>,
    key: String,
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.use_authority_key_identifier_extension = true;
    params
}

impl Company {
    fn root() -> Self {
        let (params, key) = (params("Root"), KeyPair::generate().unwrap());
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, key: key.serialize_pem(), issuer: rcgen::Issuer::new(params, key) }
    }

    fn below(&self, name: &str) -> Self {
        let (params, key) = (params(name), KeyPair::generate().unwrap());
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        Self { pem, key: key.serialize_pem(), issuer: rcgen::Issuer::new(params, key) }
    }

    /// As a user brings it, with those above it.
    fn brought(&self, above: &[&Self]) -> Authority {
        let chain = [self].iter().chain(above).map(|one| one.pem.as_str()).collect::<String>();
        let secret = |entry: &str, text: String| Secret {
            data: [(entry.to_owned(), text.into_bytes())].into(),
            ..Secret::default()
        };
        let (cert, key) = (secret("ca.crt", chain), secret("ca.key", self.key.clone()));
        Authority::read(Kind::Cluster, "c", &USERS, Some(&cert), Some(&key)).unwrap()
    }
}

fn leaf(issuer: &Issuer) -> String {
    let mut request = Request::client("c-kafka");
    request.dns_names = vec!["c-node-0".to_owned()];
    issuer.issue(&request, now()).unwrap().chain
}

#[test]
fn a_certificate_of_a_sibling_under_the_same_root_is_refused_inside() {
    let root = Company::root();
    let (kafka, office) = (root.below("Kafka"), root.below("Office"));
    let authority = kafka.brought(&[&root]);
    let inside = authority.given_to_nodes(now());
    let own = leaf(&authority.issuer(now(), ALL).unwrap());
    assert_eq!(check(&inside, &own, now()), Ok(()));
    // Somebody else of the company, with all that leads to the root.
    let theirs = leaf(&office.brought(&[&root]).issuer(now(), ALL).unwrap());
    assert!(check(&inside, &theirs, now()).is_err(), "{inside:?}");
    assert!(check(&inside, &[theirs.as_str(), &root.pem].concat(), now()).is_err(), "{inside:?}");
    // Clients may know the root alone, or need it: they get everything.
    let root = Certificate::all_from_pem(root.pem.as_bytes()).unwrap();
    assert_eq!(check(&[&root[0]], &own, now()), Ok(()));
    assert_eq!(authority.for_clients(now()).len(), 2);
    assert!(authority.for_clients(now()).contains(&&root[0]));
}

#[test]
fn while_an_authority_below_a_root_is_replaced_both_are_trusted_and_not_the_root() {
    let root = Company::root();
    let (old, new) = (root.below("Kafka 1"), root.below("Kafka 2"));
    let before = old.brought(&[&root]);
    let shown = leaf(&before.issuer(now(), ALL).unwrap());
    let relied_on: Vec<_> = before.trusted(now()).into_iter().cloned().collect();
    let replaced = new.brought(&[&root]).remembering(&relied_on, 7);
    let inside = replaced.given_to_nodes(now());
    assert_eq!(inside.len(), 2, "{inside:?}");
    assert_eq!(check(&inside, &shown, now()), Ok(()));
    assert_eq!(check(&inside, &leaf(&replaced.issuer(now(), ALL).unwrap()), now()), Ok(()));
    assert!(!inside.iter().any(|one| one.subject == "CN=Root"), "{inside:?}");
    // What a user brings is never written, and counted by the user alone.
    assert_eq!(replaced.decide(now(), Opening::Open, ALL), Decision::Keep);
    assert_eq!(replaced.cert_generation(), 0);
    // The authority that signed so far may stand above the new one.
    let below = old.below("Kafka 3").brought(&[&old, &root]).remembering(&relied_on, 0);
    assert_eq!(check(&below.given_to_nodes(now()), &shown, now()), Ok(()));
}

#[test]
fn an_authority_that_ended_signs_nothing_and_is_still_given_to_nodes() {
    let mut store = Store::default();
    let settings = Settings::default();
    let authority = store.read(Kind::Clients, &settings);
    let writes = authority.carry_out(&Decision::Create, now()).unwrap();
    writes.into_iter().for_each(|write| store.write(write));
    let ended = store.read(Kind::Clients, &USERS);
    assert_eq!(ended.trusted(after(400)).len(), 0);
    assert!(ended.issuer(after(400), ALL).is_err());
    assert_eq!(ended.given_to_nodes(after(400)), [ended.certificate().unwrap()]);
}

#[test]
fn what_nodes_rely_on_is_published_again_when_the_secrets_are_gone_or_overwritten() {
    let settings = Settings::default();
    let create = || {
        let mut store = Store::default();
        let writes = store.read(Kind::Cluster, &settings).carry_out(&Decision::Create, now()).unwrap();
        writes.into_iter().for_each(|write| store.write(write));
        store
    };
    let before = create().read(Kind::Cluster, &settings);
    let relied_on = [before.certificate().unwrap().clone()];
    let shown = leaf(&before.issuer(now(), ALL).unwrap());

    let gone = Store::default().read(Kind::Cluster, &settings).remembering(&relied_on, 4);
    let decision = gone.decide(now(), Opening::Closed { next: None }, ALL);
    assert_eq!(decision, Decision::Replace(Cause::NoKey));
    let mut store = Store::default();
    gone.carry_out(&decision, now()).unwrap().into_iter().for_each(|write| store.write(write));
    let after = store.read(Kind::Cluster, &settings);
    assert_eq!(check(&after.trusted(now()), &shown, now()), Ok(()));
    assert_eq!((after.cert_generation(), after.key_generation()), (5, 1));

    let mut store = create();
    let overwritten = store.read(Kind::Cluster, &settings).remembering(&relied_on, 0);
    let decision = overwritten.decide(now(), Opening::Open, ALL);
    assert!(matches!(decision, Decision::PublishAgain(_)), "{decision}");
    overwritten.carry_out(&decision, now()).unwrap().into_iter().for_each(|write| store.write(write));
    let after = store.read(Kind::Cluster, &settings).remembering(&relied_on, 0);
    assert_eq!(check(&after.trusted(now()), &shown, now()), Ok(()));
    let old = after.decide(now(), Opening::Open, ALL);
    assert!(matches!(old, Decision::Drop(_)), "{old}");
}

#[test]
fn certificates_of_one_authority_end_one_after_the_other() {
    let authority = Company::root().brought(&[]);
    let issuer = authority.issuer(now(), ALL).unwrap();
    let end = |bearer: &str, now: Timestamp| {
        let request = Request { bearer: bearer.to_owned(), ..Request::client("c-kafka") };
        let leaf = issuer.issue(&request, now).unwrap();
        Certificate::all_from_pem(leaf.chain.as_bytes()).unwrap()[0].not_after
    };
    let ends: std::collections::BTreeSet<_> =
        (0..9).map(|node| end(&format!("node-{node}"), now())).collect();
    assert_eq!(ends.len(), 9, "{ends:?}");
    let all = after(365).duration_since(*ends.first().unwrap());
    assert!(all <= SignedDuration::from_hours(72), "they are as good as they were: {ends:?}");
    assert_eq!(end("node-0", now()), *ends.iter().find(|one| **one == end("node-0", now())).unwrap());
    // Nothing that is made again only for that would last longer.
    let request = Request { bearer: "node-0".to_owned(), ..Request::client("c-kafka") };
    let leaf = issuer.issue(&request, now()).unwrap();
    let existing = Some((leaf.chain.as_bytes(), leaf.key.as_bytes()));
    assert_eq!(karst_certs::why_reissue(existing, &request, &issuer, now()), None);
}
