//! One authority at a time: what is decided, what is written, and what a TLS stack says to the result.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod common;

use common::{Store, at, check};
use jiff::{SignedDuration, Timestamp};
use karst_certs::authority::{Cause, Change, FORCE_RENEW, FORCE_REPLACE, Until};
use karst_certs::{
    Authority, Decision, KeyAlgorithm, Kind, Leaf, Nodes, Opening, Reason, Request, Secret, SecretWrite,
    Settings, why_reissue,
};

const KIND: Kind = Kind::Cluster;
const ALL: Nodes = Nodes { all_trust_newest: true, all_present_newest: true };
const NOT_YET: Nodes = Nodes { all_trust_newest: false, all_present_newest: false };

fn start() -> Timestamp {
    at("2026-01-01T00:00:00Z")
}

fn day(number: i64) -> Timestamp {
    start() + SignedDuration::from_hours(24 * number)
}

/// Decides and does all of it.
fn step(store: &mut Store, settings: &Settings, now: Timestamp, nodes: Nodes) -> Decision {
    let authority = store.read(KIND, settings);
    let decision = authority.decide(now, Opening::Open, nodes);
    authority.carry_out(&decision, now).unwrap().into_iter().for_each(|write| store.write(write));
    decision
}

fn created(settings: &Settings) -> Store {
    let mut store = Store::default();
    assert_eq!(step(&mut store, settings, start(), Nodes::NONE), Decision::Create);
    assert_eq!(step(&mut store, settings, start(), Nodes::NONE), Decision::Keep);
    store
}

fn node() -> Request {
    let mut request = Request::client("c-kafka");
    request.dns_names = vec!["c-kafka-bootstrap".to_owned(), "c-node-0.c-kafka-brokers.ns.svc".to_owned()];
    request.addresses = vec!["10.1.2.3".parse().unwrap(), "fd00::1".parse().unwrap()];
    request
}

fn why(
    leaf: &Leaf,
    request: &Request,
    authority: &Authority,
    now: Timestamp,
    nodes: Nodes,
) -> Option<Reason> {
    let existing = Some((leaf.chain.as_bytes(), leaf.key.as_bytes()));
    why_reissue(existing, request, &authority.issuer(now, nodes).unwrap(), now)
}

/// Seen: 5,000,000 renewal days were a panic in every pass, of all clusters.
#[test]
fn more_renewal_days_than_time_has_mean_half_of_its_life() {
    for renewal_days in [5_000_000, u32::MAX] {
        let settings = Settings { renewal_days, ..Settings::default() };
        let mut store = created(&settings);
        assert_eq!(step(&mut store, &settings, day(182), ALL), Decision::Keep);
        let decision = step(&mut store, &settings, day(183), ALL);
        assert!(matches!(decision, Decision::Renew(Cause::Expiry(_))), "{decision}");
    }
}

#[test]
fn a_new_authority_looks_like_strimzis() {
    let store = created(&Settings::default());
    let cert = store.cert.unwrap();
    assert_eq!(cert.data.keys().collect::<Vec<_>>(), ["ca.crt", "ca.p12", "ca.password"]);
    assert_eq!(cert.annotations["strimzi.io/ca-cert-generation"], "0");
    assert_eq!(store.key.unwrap().annotations["strimzi.io/ca-key-generation"], "0");
    let password = String::from_utf8(cert.data["ca.password"].clone()).unwrap();
    assert!(password.len() == 12 && password.chars().all(|sign| sign.is_ascii_alphanumeric()), "{password}");
    assert!(password.starts_with(|sign: char| sign.is_ascii_alphabetic()), "{password}");
}

#[test]
fn a_leaf_from_before_a_renewal_is_good_under_the_new_certificate_alone() {
    for algorithm in [KeyAlgorithm::EcdsaP256, KeyAlgorithm::Rsa2048] {
        let settings = Settings { algorithm, ..Settings::default() };
        let mut store = created(&settings);
        let before = store.read(KIND, &settings);
        let request = Request { algorithm, ..node() };
        let leaf = before.issuer(day(0), ALL).unwrap().issue(&request, day(0)).unwrap();
        let expiry = before.certificate().unwrap().not_after;
        assert_eq!(step(&mut store, &settings, day(334), ALL), Decision::Keep);
        assert_eq!(step(&mut store, &settings, day(335), ALL), Decision::Renew(Cause::Expiry(expiry)));
        let after = store.read(KIND, &settings);
        let trusted = after.trusted(day(335));
        assert_eq!(trusted, [after.certificate().unwrap()]);
        assert_ne!(after.certificate(), before.certificate());
        assert_eq!(check(&trusted, &leaf.chain, day(335)), Ok(()));
        assert_eq!((after.cert_generation(), after.key_generation()), (1, 0));
        // The leaf ended with its authority; only now it can last longer.
        let expires = Some(Reason::ExpiresSoon { not_after: expiry });
        assert_eq!(why(&leaf, &request, &before, day(335), ALL), None);
        assert_eq!(why(&leaf, &request, &after, day(335), ALL), expires);
    }
}

#[test]
fn a_replacement_goes_through_its_phases() {
    let settings = Settings::default();
    let mut store = created(&settings);
    let old = store.read(KIND, &settings).issuer(day(0), ALL).unwrap();
    let leaf = old.issue(&node(), day(0)).unwrap();
    store.annotate_key(FORCE_REPLACE);
    let asked = Cause::Asked(FORCE_REPLACE);
    assert_eq!(step(&mut store, &settings, day(1), ALL), Decision::Replace(asked.clone()));

    let trusting = store.read(KIND, &settings);
    assert!(store.cert.as_ref().unwrap().data.contains_key("ca-2027-01-01T00-00-00Z.crt"));
    assert_eq!(trusting.issuer(day(1), NOT_YET).unwrap().certificate(), old.certificate());
    assert_eq!(why(&leaf, &node(), &trusting, day(1), NOT_YET), None);
    assert_eq!(step(&mut store, &settings, day(2), NOT_YET), Decision::Keep);
    store.annotate_key(FORCE_REPLACE);
    let postponed = Decision::Postpone { change: Change::ReplaceKey, cause: asked, until: Until::Replaced };
    assert_eq!(step(&mut store, &settings, day(2), NOT_YET), postponed);
    store.key.as_mut().unwrap().annotations.remove(FORCE_REPLACE);

    let trusts = Nodes { all_trust_newest: true, all_present_newest: false };
    assert_eq!(step(&mut store, &settings, day(3), trusts), Decision::SignWithNewKey);
    let signing = store.read(KIND, &settings);
    assert!(matches!(why(&leaf, &node(), &signing, day(3), trusts), Some(Reason::OtherAuthority { .. })));
    assert_eq!(check(&signing.trusted(day(3)), &leaf.chain, day(3)), Ok(()));
    assert_eq!(step(&mut store, &settings, day(3), trusts), Decision::Keep);

    let dropped = Decision::Drop(vec!["ca-2027-01-01T00-00-00Z.crt".to_owned()]);
    assert_eq!(step(&mut store, &settings, day(4), ALL), dropped);
    let done = store.read(KIND, &settings);
    assert!(check(&done.trusted(day(4)), &leaf.chain, day(4)).is_err());
    assert_eq!((done.cert_generation(), done.key_generation()), (1, 1));
}

#[test]
fn a_new_key_of_clients_waits_until_nodes_trust_it() {
    let settings = Settings::default();
    let mut store = Store::default();
    let step = |store: &mut Store, nodes: Nodes| {
        let authority = store.read(Kind::Clients, &settings);
        let decision = authority.decide(day(1), Opening::Open, nodes);
        (decision.clone(), authority.carry_out(&decision, day(1)).unwrap())
    };
    let write = |store: &mut Store, writes: Vec<SecretWrite>| {
        for one in writes {
            store.write(one);
        }
    };
    let (_, made) = step(&mut store, NOT_YET);
    write(&mut store, made);
    let before = store.clone();
    store.annotate_key(FORCE_REPLACE);
    let (decision, prepared) = step(&mut store, NOT_YET);
    assert_eq!(decision, Decision::Replace(Cause::Asked(FORCE_REPLACE)));
    write(&mut store, prepared);
    assert_eq!(store.cert, before.cert, "nothing is published yet");
    let entry = |store: &Store, name: &str| store.key.as_ref().unwrap().data.get(name).cloned();
    assert_eq!(entry(&store, "ca.key"), entry(&before, "ca.key"));
    let next = entry(&store, "ca-next.key");
    assert_eq!(store.read(Kind::Clients, &settings).trusted(day(1)).len(), 2);
    assert_eq!(step(&mut store, NOT_YET).0, Decision::Keep);

    let (decision, promoted) = step(&mut store, ALL);
    assert_eq!(decision, Decision::SignWithNewKey);
    // Also when it is cut off between the two writes.
    let mut half = store.clone();
    write(&mut half, promoted[..1].to_vec());
    let (decision, published) = step(&mut half, NOT_YET);
    assert_eq!(decision, Decision::SignWithNewKey);
    write(&mut half, published);
    write(&mut store, promoted);
    for store in [store, half] {
        let done = store.read(Kind::Clients, &settings);
        assert_eq!((done.cert_generation(), done.key_generation()), (1, 1));
        assert_eq!(entry(&store, "ca.key"), next);
        assert_eq!(entry(&store, "ca-next.key"), None);
        assert_eq!(done.trusted(day(1)).len(), 2, "what clients have from the old key is good until it ends");
        let leaf = done.issuer(day(1), ALL).unwrap().issue(&node(), day(1)).unwrap();
        assert_eq!(check(&done.trusted(day(1)), &leaf.chain, day(1)), Ok(()));
    }
}

#[test]
fn a_crash_after_the_key_was_written_costs_nothing() {
    let settings = Settings::default();
    let mut store = created(&settings);
    let old = store.read(KIND, &settings);
    store.annotate_key(FORCE_REPLACE);
    let authority = store.read(KIND, &settings);
    let writes = authority.carry_out(&authority.decide(day(1), Opening::Open, ALL), day(1)).unwrap();
    assert_eq!(
        writes.iter().map(|write| write.name.as_str()).collect::<Vec<_>>(),
        ["c-cluster-ca", "c-cluster-ca-cert"]
    );
    store.write(writes[0].clone());
    let half = store.read(KIND, &settings);
    assert_eq!(half.issuer(day(1), ALL).unwrap().certificate(), old.certificate().unwrap());
    assert_eq!(step(&mut store, &settings, day(1), ALL), Decision::Publish);
    let whole = store.read(KIND, &settings);
    assert_eq!(whole.issuer(day(1), NOT_YET).unwrap().certificate(), old.certificate().unwrap());
    assert_eq!(whole.trusted(day(1)).len(), 2);
    // Also at the very first creation.
    let mut first = Store { cert: None, ..created(&settings) };
    assert_eq!(step(&mut first, &settings, day(1), Nodes::NONE), Decision::Renew(Cause::NoCertificate));
    assert_eq!(step(&mut first, &settings, day(1), Nodes::NONE), Decision::Keep);
}

#[test]
fn a_lost_key_does_not_cost_the_trust_in_what_it_signed() {
    let settings = Settings::default();
    let mut store = created(&settings);
    let leaf = store.read(KIND, &settings).issuer(day(0), ALL).unwrap().issue(&node(), day(0)).unwrap();
    store.key = None;
    assert_eq!(step(&mut store, &settings, day(1), ALL), Decision::Replace(Cause::NoKey));
    let after = store.read(KIND, &settings);
    assert_eq!(check(&after.trusted(day(1)), &leaf.chain, day(1)), Ok(()));
    assert_eq!(after.key_generation(), 1);
    // The leaf stays until everybody trusts the new key, and no longer.
    assert_eq!(why(&leaf, &node(), &after, day(1), NOT_YET), None);
    assert!(matches!(why(&leaf, &node(), &after, day(1), ALL), Some(Reason::OtherAuthority { .. })));
}

#[test]
fn a_closed_window_postpones_until_the_cluster_would_die() {
    let settings = Settings::default();
    let mut store = created(&settings);
    let authority = store.read(KIND, &settings);
    let cause = Cause::Expiry(authority.certificate().unwrap().not_after);
    let postponed =
        |until| Decision::Postpone { change: Change::RenewCertificate, cause: cause.clone(), until };
    let renewed = Decision::Renew(cause.clone());
    let never = Opening::Closed { next: None };
    let soon = Opening::Closed { next: Some(day(361)) };
    // The first certificate of a node may have ended by then.
    let too_late = Opening::Closed { next: Some(day(364)) };
    let late = Opening::Closed { next: Some(day(366)) };
    for (now, opening, decision) in [
        (340, Opening::Open, renewed.clone()),
        (340, never, postponed(Until::NoWindow)),
        (340, late, postponed(Until::Time(day(366)))),
        (360, soon, postponed(Until::Time(day(361)))),
        (360, too_late, renewed.clone()),
        (358, never, renewed.clone()),
        (360, late, renewed.clone()),
        (400, never, renewed),
    ] {
        assert_eq!(authority.decide(day(now), opening, ALL), decision, "day {now}, {opening:?}");
    }
    store.annotate_cert(FORCE_RENEW);
    let asked = store.read(KIND, &settings).decide(day(1), soon, ALL);
    assert!(matches!(asked, Decision::Postpone { cause: Cause::Asked(FORCE_RENEW), .. }), "{asked}");
    assert_eq!(step(&mut store, &settings, day(1), ALL), Decision::Renew(Cause::Asked(FORCE_RENEW)));
    assert_eq!(step(&mut store, &settings, day(1), ALL), Decision::Keep);
}

#[test]
fn more_renewal_days_than_validity_days_do_not_renew_for_ever() {
    let settings = Settings { validity_days: 10, renewal_days: 90, ..Settings::default() };
    let mut store = created(&settings);
    let request = Request { validity_days: 10, renewal_days: 90, ..node() };
    let authority = store.read(KIND, &settings);
    let leaf = authority.issuer(day(0), ALL).unwrap().issue(&request, day(0)).unwrap();
    assert_eq!(why(&leaf, &request, &authority, day(4), ALL), None);
    assert_eq!(step(&mut store, &settings, day(4), ALL), Decision::Keep);
    assert!(matches!(step(&mut store, &settings, day(5), ALL), Decision::Renew(_)));
}

#[test]
fn a_missing_store_is_made_again_with_the_same_password() {
    let settings = Settings::default();
    let mut store = created(&settings);
    let before = store.cert.clone().unwrap();
    store.cert.as_mut().unwrap().data.remove("ca.p12");
    assert_eq!(step(&mut store, &settings, day(1), ALL), Decision::CompleteStore);
    let after = store.cert.unwrap();
    assert_eq!(after.data["ca.password"], before.data["ca.password"]);
    assert_eq!(after.data["ca.crt"], before.data["ca.crt"]);
    assert!(after.data.contains_key("ca.p12"));
    assert_eq!(after.annotations, before.annotations);
}

#[test]
fn each_reason_to_make_a_leaf_again_is_named() {
    let settings = Settings::default();
    let store = created(&settings);
    let authority = store.read(KIND, &settings);
    let issuer = authority.issuer(day(0), ALL).unwrap();
    let leaf = issuer.issue(&node(), day(0)).unwrap();
    let other = issuer.issue(&node(), day(0)).unwrap();
    let why = |chain: &str, key: &str, request: &Request| {
        why_reissue(Some((chain.as_bytes(), key.as_bytes())), request, &issuer, day(1))
            .map(|why| why.to_string())
    };
    assert_eq!(why_reissue(None, &node(), &issuer, day(1)), Some(Reason::Missing));
    assert_eq!(why(&leaf.chain, &leaf.key, &node()), None);
    // Kafka's one file serves as both.
    assert_eq!(why(&leaf.key_and_chain(), &leaf.key_and_chain(), &node()), None);
    assert_eq!(why("junk", &leaf.key, &node()), Some(Reason::Unreadable.to_string()));
    assert_eq!(why(&leaf.chain, &other.key, &node()), Some(Reason::KeyMismatch.to_string()));
    let mut moved = node();
    moved.dns_names[0] = "elsewhere".to_owned();
    let names = "its names changed (new: [elsewhere], gone: [c-kafka-bootstrap])";
    assert_eq!(why(&leaf.chain, &leaf.key, &moved).as_deref(), Some(names));
    let renamed = Request { common_name: "d-kafka".to_owned(), ..node() };
    assert!(why(&leaf.chain, &leaf.key, &renamed).unwrap().contains("CN=d-kafka"));
}

#[test]
fn a_users_authority_is_taken_as_it_is_or_refused_with_a_way_out() {
    let users = Settings { generate: false, ..Settings::default() };
    let made = created(&Settings::default());
    let other = created(&Settings::default());
    let leaf = made.read(KIND, &users).issuer(day(0), ALL).unwrap().issue(&node(), day(0)).unwrap();
    assert_eq!(made.read(KIND, &users).decide(day(400), Opening::Open, ALL), Decision::Keep);
    let ended = made.read(KIND, &users).issuer(day(400), ALL).unwrap_err().to_string();
    assert!(ended.contains("c-cluster-ca-cert") && ended.contains("ca-cert-generation"), "{ended}");

    let with = |entry: &str, value: &[u8]| {
        let mut secret = made.cert.clone().unwrap();
        secret.data.insert(entry.to_owned(), value.to_vec());
        Some(secret)
    };
    let annotated = {
        let mut secret = made.cert.clone().unwrap();
        secret.annotations.insert("strimzi.io/ca-cert-generation".to_owned(), "one".to_owned());
        Some(secret)
    };
    let disorder =
        [made.cert.as_ref().unwrap(), other.cert.as_ref().unwrap()].map(|one| one.data["ca.crt"].clone());
    for (cert, key, said) in [
        (None, made.key.clone(), "Secret c-cluster-ca-cert: does not exist"),
        (made.cert.clone(), None, "Secret c-cluster-ca: does not exist"),
        (Some(Secret::default()), made.key.clone(), "create it with the authority's ca.crt"),
        (with("ca.crt", b"junk"), made.key.clone(), "ca.crt holds no certificate"),
        (with("ca.crt", leaf.chain.as_bytes()), made.key.clone(), "CA:TRUE"),
        (with("ca.crt", &disorder.concat()), made.key.clone(), "is not signed by"),
        (made.cert.clone(), other.key.clone(), "ca.key is not the key of O=io.strimzi, CN=cluster-ca v0"),
        (annotated, made.key.clone(), "it has to be a whole number"),
    ] {
        let refusal =
            Authority::read(KIND, "c", &users, cert.as_ref(), key.as_ref()).unwrap_err().to_string();
        assert!(refusal.contains(said), "{refusal} does not say {said}");
    }
}

#[test]
fn a_broken_key_of_our_own_is_not_overwritten() {
    let mut store = created(&Settings::default());
    store.key.as_mut().unwrap().data.insert("ca.key".to_owned(), b"junk".to_vec());
    let read = Authority::read(KIND, "c", &Settings::default(), store.cert.as_ref(), store.key.as_ref());
    assert!(read.unwrap_err().to_string().contains("Secret c-cluster-ca: ca.key is not a private key"));
}
