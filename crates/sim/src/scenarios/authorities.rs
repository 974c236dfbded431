//! Stories of authorities: their certificates are renewed and their keys replaced, while everybody goes on to accept everybody.

use karst_certs::Kind::{Clients, Cluster};

use super::Edit::{Configure, PowerCut, Renew, Replace, Scale, Wait};
use super::{Base, Scenario, Story};

/// Longer than brokers may take to trust clients with a new key.
const TRUSTED: u64 = 310_000;

pub(super) fn stories() -> Vec<Scenario> {
    let new = |name, base| Story::new(name, base).never_below(3);
    // A pod that is made after all others trust the new key begins with a certificate of it, and restarts once less.
    let replaced = |name, base| new(name, base).then(Replace(Cluster)).changes_mind();
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
    ]
}
