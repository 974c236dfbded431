//! Ten years in the life of a cluster, a day at a time: whatever happens to its authorities, every node trusts every
//! other one, whichever of the files that it may have loaded it has loaded.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod common;

use common::{Store, at, check};
use jiff::{SignedDuration, Timestamp};
use karst_certs::authority::{Cause, Change, FORCE_RENEW, FORCE_REPLACE};
use karst_certs::trust::{Certificate, bundle};
use karst_certs::{Decision, Issuer, Kind, Leaf, Nodes, Request, Settings, Windows, why_reissue};

const DAYS: i64 = 3653;

/// A node: the files in its Secrets, and what it read of them when it started last.
struct Node {
    request: Request,
    stored: Option<Leaf>,
    loaded: Option<Loaded>,
}

#[derive(Clone, PartialEq)]
struct Loaded {
    trust: String,
    cert_generation: u64,
    leaf: Leaf,
}

impl Node {
    fn new(number: usize) -> Self {
        let mut request = Request::client("c-kafka");
        request.dns_names = vec![format!("c-node-{number}.c-kafka-brokers.ns.svc")];
        request.addresses = vec![[10, 0, 0, number as u8].into()];
        Self { request, stored: None, loaded: None }
    }

    fn renew(&mut self, issuer: &Issuer, now: Timestamp) -> bool {
        let existing = self.stored.as_ref().map(|leaf| (leaf.chain.as_bytes(), leaf.key.as_bytes()));
        let reason = why_reissue(existing, &self.request, issuer, now);
        if reason.is_some() {
            self.stored = Some(issuer.issue(&self.request, now).unwrap());
        }
        reason.is_some()
    }
}

struct Life {
    kind: Kind,
    settings: Settings,
    windows: Windows,
    store: Store,
    nodes: Vec<Node>,
    /// What the nodes run with, and whether that is all that there is to run with.
    facts: Nodes,
    is_quiet: bool,
    decisions: Vec<(i64, Decision)>,
    leaves_made: usize,
}

impl Life {
    fn new(kind: Kind, on_expiry: Change, windows: &[&str]) -> Self {
        Self {
            kind,
            settings: Settings { on_expiry, ..Settings::default() },
            windows: Windows::parse(windows),
            store: Store::default(),
            nodes: (0..6).map(Node::new).collect(),
            facts: Nodes::NONE,
            is_quiet: false,
            decisions: Vec::new(),
            leaves_made: 0,
        }
    }

    fn nodes(&self, now: Timestamp) -> Nodes {
        let authority = self.store.read(self.kind, &self.settings);
        let mut loaded = self.nodes.iter().filter_map(|node| node.loaded.as_ref()).peekable();
        let Some(newest) = authority.certificate().filter(|_| loaded.peek().is_some()) else {
            return Nodes::NONE;
        };
        let loaded: Vec<&Loaded> = loaded.collect();
        let is_newest =
            |leaf: &Leaf| Certificate::all_from_pem(leaf.chain.as_bytes()).unwrap()[0].is_signed_by(newest);
        let bundle = bundle(authority.trusted(now));
        let trusts = |one: &&Loaded| {
            one.cert_generation == authority.cert_generation()
                && (!authority.has_next() || one.trust == bundle)
        };
        Nodes {
            all_trust_newest: loaded.iter().all(trusts),
            all_present_newest: loaded.iter().all(|one| is_newest(&one.leaf)),
        }
    }

    /// One pass. Every other time the operator dies between two writes.
    fn pass(&mut self, day: i64, now: Timestamp) -> bool {
        let authority = self.store.read(self.kind, &self.settings);
        let decision = authority.decide(now, self.windows.opening(now), self.facts);
        let mut writes = authority.carry_out(&decision, now).unwrap();
        if writes.len() == 2 && self.decisions.len().is_multiple_of(2) {
            writes.pop();
        }
        let mut has_changed = !writes.is_empty();
        writes.into_iter().for_each(|write| self.store.write(write));
        if decision != Decision::Keep {
            self.decisions.push((day, decision));
        }
        if has_changed {
            self.facts = self.nodes(now);
        }
        let authority = self.store.read(self.kind, &self.settings);
        if let Ok(issuer) = authority.issuer(now, self.facts) {
            for node in &mut self.nodes {
                let is_new = node.renew(&issuer, now);
                self.leaves_made += usize::from(is_new);
                has_changed |= is_new;
            }
        }
        has_changed
    }

    /// At most one node restarts a day.
    fn restart(&mut self, now: Timestamp) -> bool {
        let authority = self.store.read(self.kind, &self.settings);
        let (trust, cert_generation) = (bundle(authority.trusted(now)), authority.cert_generation());
        for node in &mut self.nodes {
            let Some(leaf) = node.stored.clone() else { continue };
            let fresh = Some(Loaded { trust: trust.clone(), cert_generation, leaf });
            if node.loaded != fresh {
                node.loaded = fresh;
                return true;
            }
        }
        false
    }

    /// A node may load its files at any time, one of them before the other: all combinations have to hold.
    fn everybody_trusts_everybody(&self, day: i64, now: Timestamp) {
        let loaded = || self.nodes.iter().filter_map(|node| node.loaded.as_ref());
        let authority = self.store.read(self.kind, &self.settings);
        let mut trusts: Vec<String> = loaded().map(|loaded| loaded.trust.clone()).collect();
        trusts.push(bundle(authority.trusted(now)));
        // Clients that take nothing but `ca.crt`.
        trusts.extend(
            self.store.cert.iter().map(|secret| String::from_utf8(secret.data["ca.crt"].clone()).unwrap()),
        );
        trusts.sort();
        trusts.dedup();
        let stored = self.nodes.iter().filter_map(|node| node.stored.as_ref());
        let mut leaves: Vec<&Leaf> = loaded().map(|loaded| &loaded.leaf).chain(stored).collect();
        leaves.sort_by(|one, other| one.chain.cmp(&other.chain));
        leaves.dedup();
        for trust in trusts.iter().filter(|trust| !trust.is_empty()) {
            let certificates = Certificate::all_from_pem(trust.as_bytes()).unwrap();
            let trust: Vec<&Certificate> = certificates.iter().collect();
            for leaf in &leaves {
                let result = check(&trust, &leaf.chain, now);
                assert_eq!(result, Ok(()), "day {day}: {leaf:?} for {trust:?}; {:#?}", self.decisions);
            }
        }
    }

    fn live(&mut self, event: impl Fn(i64, &mut Self)) {
        let start = at("2026-01-01T12:00:00Z");
        for day in 0..DAYS {
            let now = start + SignedDuration::from_hours(24 * day);
            event(day, self);
            let has_changed = self.pass(day, now);
            self.is_quiet &= !has_changed;
            if !self.is_quiet || day % 30 == 0 {
                self.everybody_trusts_everybody(day, now);
                self.is_quiet = !self.restart(now);
                self.facts = self.nodes(now);
                self.everybody_trusts_everybody(day, now);
            }
        }
    }

    fn count(&self, is_it: impl Fn(&Decision) -> bool) -> usize {
        self.decisions.iter().filter(|(_, decision)| is_it(decision)).count()
    }

    fn is_settled(&self) -> bool {
        let entries = |secret: &Option<karst_certs::Secret>| {
            secret.iter().flat_map(|secret| secret.data.keys().cloned()).collect::<Vec<_>>()
        };
        entries(&self.store.cert) == ["ca.crt", "ca.p12", "ca.password"]
            && entries(&self.store.key) == ["ca.key"]
    }
}

#[test]
fn ten_years_of_renewals_with_a_forced_replacement() {
    let mut life = Life::new(Kind::Cluster, Change::RenewCertificate, &[]);
    life.live(|day, life| match day {
        1000 => life.store.annotate_cert(FORCE_RENEW),
        1500 => life.store.annotate_key(FORCE_REPLACE),
        // A second one, before the first is done; and names change while not every node trusts the new key.
        1503 => {
            life.store.annotate_key(FORCE_REPLACE);
            life.nodes[5].request.dns_names.push("new.example".to_owned());
        }
        _ => {}
    });
    assert!(life.is_settled(), "{:?}", life.store);
    assert_eq!(life.count(|decision| *decision == Decision::Renew(Cause::Asked(FORCE_RENEW))), 1);
    assert_eq!(life.count(|decision| matches!(decision, Decision::Replace(_))), 2);
    assert_eq!(life.count(|decision| *decision == Decision::SignWithNewKey), 2);
    assert_eq!(life.count(|decision| matches!(decision, Decision::Drop(_))), 2);
    let renewals = life.count(|decision| matches!(decision, Decision::Renew(Cause::Expiry(_))));
    assert!((8..=11).contains(&renewals), "{renewals} renewals");
    // Each node: one a year, one for each replacement, and the first; and one for the new name.
    assert!(life.leaves_made <= 6 * (11 + 2 + 1) + 1, "{} leaves", life.leaves_made);
    let authority = life.store.read(Kind::Cluster, &life.settings);
    assert_eq!(authority.key_generation(), 2);
    assert_eq!(authority.certificate().unwrap().subject, "O=io.strimzi, CN=cluster-ca v2");
}

#[test]
fn ten_years_of_replacements_on_saturdays_only() {
    let mut life = Life::new(Kind::Clients, Change::ReplaceKey, &["* * * ? * SAT"]);
    life.live(|_, _| {});
    assert!(life.is_settled(), "{:?}", life.store);
    let replacements = life.count(|decision| matches!(decision, Decision::Replace(_)));
    assert!((9..=11).contains(&replacements), "{replacements} replacements");
    // 2026-01-01 is a Thursday.
    for (day, _) in life.decisions.iter().filter(|(_, decision)| matches!(decision, Decision::Replace(_))) {
        assert_eq!(day % 7, 2, "day {day} is no Saturday");
    }
    assert_eq!(life.store.read(Kind::Clients, &life.settings).key_generation(), replacements as u64);
}
