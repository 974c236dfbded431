//! Stories of a Kubernetes that does not keep objects as they are written.

use karst_certs::Kind::Cluster;

use super::Edit::{Configure, Enforce, Listen, Memory, Renew, Replace, Scale, Version};
use super::{Base, Scenario, Story};
use crate::kubernetes::PolicyEngine::{Absent, Adds, Fights, Strips};

pub(super) fn stories() -> Vec<Scenario> {
    vec![
        Story::new("listener-for-nobody-in-particular", Base::Whole)
            .then(Listen("second", 9095, "internal"))
            .then(Memory("3Gi"))
            .never_below(3)
            .ends(&[3, 4, 5], 6),
        Story::new("policy-that-adds-fields", Base::Whole)
            .then(Enforce(Adds))
            .and(Listen("second", 9095, "internal"))
            .then(Memory("3Gi"))
            .then(Version("4.2.1"))
            .then(Enforce(Absent))
            .and(Configure("queued.max.requests", 300))
            .at_level(29)
            .never_below(3)
            .ends(&[3, 4, 5], 6),
        Story::new("controller-that-changes-everything-back", Base::Spare)
            .then(Enforce(Fights))
            .and(Listen("second", 9095, "internal"))
            .and(Memory("3Gi"))
            .then(Scale("brokers", 5))
            .then(Scale("brokers", 3))
            .then(Version("4.2.1"))
            .at_level(29)
            .ends(&[4], 4),
        Story::new("policy-that-strips-annotations-of-secrets", Base::Whole)
            .then(Enforce(Strips))
            .and(Renew(Cluster))
            .then(Memory("3Gi"))
            .then(Replace(Cluster))
            .then(Scale("brokers", 4))
            .then(Version("4.2.1"))
            .then(Enforce(Absent))
            .and(Configure("queued.max.requests", 300))
            .at_level(29)
            .never_below(3)
            .changes_mind()
            .ends(&[3, 4, 5], 7),
        Story::new("made-under-a-policy-that-strips-annotations-of-secrets", Base::Nothing)
            .and(Enforce(Strips))
            .then(Replace(Cluster))
            .then(Memory("3Gi"))
            .changes_mind()
            .ends(&[3, 4, 5], 6),
        Story::new("made-under-a-policy-that-adds-fields", Base::Small)
            .then(Enforce(Adds))
            .and(Scale("controllers", 5))
            .then(Memory("3Gi"))
            .never_below(3)
            .ends(&[1, 2, 3, 4, 5], 6),
    ]
}
