//! Stories of authorities: their certificates are renewed and their keys replaced, while everybody goes on to accept everybody.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use karst_certs::Kind::{Clients, Cluster};
use karst_certs::{Authority, Decision, Kind, SecretWrite, Settings};

use super::Edit::{Configure, Lose, LoseOwn, LoseTrust, Overwrite, PowerCut, Renew, Replace, Scale, Wait};
use super::edit::Half;
use super::{Base, CLUSTER, Scenario, Story};
use crate::sim::{Sim, timestamp};

/// Longer than brokers may take to trust clients with a new key.
const TRUSTED: u64 = 310_000;

pub(super) fn stories() -> Vec<Scenario> {
    let new = |name, base| Story::new(name, base).never_below(3);
    // A pod that is made after all others trust the new key begins with a certificate of it, and restarts once less.
    let replaced = |name, base| new(name, base).then(Replace(Cluster)).changes_mind();
    let changed = |name, base, edit| new(name, base).then(edit).changes_mind();
    vec![
        new("authority-renewed", Base::Whole).then(Renew(Cluster)).ends(&[3, 4, 5], 6),
        replaced("authority-replaced", Base::Whole).ends(&[3, 4, 5], 6),
        replaced("authority-replaced-and-renewed", Base::Combined)
            .then(Renew(Cluster))
            .then(Replace(Cluster))
            .ends(&[0, 1, 2], 3),
        replaced("authority-replaced-twice", Base::Combined)
            .after(0, 30_000, Replace(Cluster))
            .ends(&[0, 1, 2], 3),
        replaced("authority-replaced-while-controllers-come", Base::Small)
            .after(0, 10_000, Scale("controllers", 5))
            .ends(&[1, 2, 3, 4, 5], 6),
        new("authority-replaced-while-controllers-go", Base::Small)
            .then(Scale("controllers", 5))
            .then(Replace(Cluster))
            .after(0, 10_000, Scale("controllers", 3))
            .changes_mind()
            .ends(&[1, 2, 3], 4),
        new("authority-replaced-during-a-restart", Base::Whole)
            .then(Configure("queued.max.requests", 300))
            .after(0, 5_000, Replace(Cluster))
            .changes_mind()
            .ends(&[3, 4, 5], 6),
        replaced("authority-replaced-during-power-cuts", Base::Whole)
            .after(0, 10_000, PowerCut)
            .after(0, 20_000, PowerCut)
            .ends(&[3, 4, 5], 6),
        replaced("both-authorities-replaced", Base::Combined)
            .and(Replace(Clients))
            .after(TRUSTED, TRUSTED, Wait)
            .ends(&[0, 1, 2], 3),
        changed("authority-deleted", Base::Whole, Lose(Cluster, Half::Both)).ends(&[3, 4, 5], 6),
        changed("authority-deleted-key-first", Base::Combined, Lose(Cluster, Half::Key))
            .after(0, 20_000, Lose(Cluster, Half::Certificates))
            .ends(&[0, 1, 2], 3),
        changed("authority-deleted-certificates-first", Base::Combined, Lose(Cluster, Half::Certificates))
            .after(0, 20_000, Lose(Cluster, Half::Key))
            .ends(&[0, 1, 2], 3),
        changed("authority-deleted-twice", Base::Combined, Lose(Cluster, Half::Both))
            .after(0, 60_000, Lose(Cluster, Half::Both))
            .ends(&[0, 1, 2], 3),
        changed("authority-deleted-while-it-is-replaced", Base::Combined, Replace(Cluster))
            .after(0, 60_000, Lose(Cluster, Half::Both))
            .ends(&[0, 1, 2], 3),
        changed("authority-deleted-and-trust-later", Base::Combined, Lose(Cluster, Half::Both))
            .after(5_000, 60_000, LoseTrust)
            .ends(&[0, 1, 2], 3),
        changed("authority-deleted-and-the-operators-certificate", Base::Whole, Lose(Cluster, Half::Both))
            .and(LoseOwn)
            .ends(&[3, 4, 5], 6),
        changed(
            "authority-deleted-and-the-operators-certificate-later",
            Base::Combined,
            Lose(Cluster, Half::Both),
        )
        .after(5_000, 20_000, LoseOwn)
        .ends(&[0, 1, 2], 3),
        changed("authority-deleted-while-controllers-come", Base::Small, Lose(Cluster, Half::Both))
            .after(0, 10_000, Scale("controllers", 5))
            .ends(&[1, 2, 3, 4, 5], 6),
        changed("authority-deleted-during-power-cuts", Base::Whole, Lose(Cluster, Half::Both))
            .after(0, 10_000, PowerCut)
            .after(0, 20_000, PowerCut)
            .ends(&[3, 4, 5], 6),
        changed("both-authorities-deleted", Base::Combined, Lose(Cluster, Half::Both))
            .and(Lose(Clients, Half::Both))
            .ends(&[0, 1, 2], 3),
        changed("authority-overwritten", Base::Whole, Overwrite(Cluster, Half::Both)).ends(&[3, 4, 5], 6),
        changed("authority-overwritten-key-first", Base::Combined, Overwrite(Cluster, Half::Key))
            .after(0, 20_000, Overwrite(Cluster, Half::Certificates))
            .ends(&[0, 1, 2], 3),
        changed(
            "authority-overwritten-certificates-first",
            Base::Combined,
            Overwrite(Cluster, Half::Certificates),
        )
        .after(0, 20_000, Overwrite(Cluster, Half::Key))
        .ends(&[0, 1, 2], 3),
        changed("authority-overwritten-and-deleted", Base::Combined, Overwrite(Cluster, Half::Both))
            .after(0, 60_000, Lose(Cluster, Half::Both))
            .ends(&[0, 1, 2], 3),
    ]
}

/// The same authority of somebody else for every run: to make one takes time.
pub(super) fn overwrite(sim: &mut Sim, kind: Kind, half: Half) {
    static FOREIGN: OnceLock<BTreeMap<String, SecretWrite>> = OnceLock::new();
    let foreign = FOREIGN.get_or_init(|| {
        let make = |kind| {
            let none = Authority::read(kind, CLUSTER, &Settings::default(), None, None).ok()?;
            none.carry_out(&Decision::Create, timestamp(500)).ok()
        };
        let made = [Cluster, Clients].into_iter().filter_map(make).flatten();
        made.map(|write| (write.name.clone(), write)).collect()
    });
    for secret in half.secrets(kind) {
        let Some(write) = foreign.get(&secret) else { continue };
        let entries =
            write.content.data.iter().filter(|(entry, _)| matches!(entry.as_str(), "ca.crt" | "ca.key"));
        sim.api.overwrite_secret(&secret, entries.map(|(entry, bytes)| (entry.clone(), bytes.clone())));
    }
}
