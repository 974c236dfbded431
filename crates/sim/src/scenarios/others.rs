//! Stories of what is not the cluster's: objects of somebody else in its way, and pools that go from one cluster to another.

use super::Edit::{GiveAway, NoOthers, Other, Scale, TakeBack, Wait};
use super::{Base, Scenario, Story};
use crate::kubernetes::Kind;

/// By then it was looked again whether what was in the way is gone.
const LOOKED_AGAIN: (u64, u64) = (65_000, 75_000);

pub(super) fn stories() -> Vec<Scenario> {
    let (least, most) = LOOKED_AGAIN;
    vec![
        Story::new("objects-of-others-in-the-way", Base::Small)
            .then(Other(Kind::Claim, "data-c-controllers-4"))
            .and(Other(Kind::ConfigMap, "c-controllers-5"))
            .and(Scale("controllers", 5))
            .then(NoOthers)
            .after(least, most, Wait)
            .changes_mind()
            .never_below(3)
            .ends(&[1, 2, 3, 4, 5], 6),
        Story::new("service-of-others-in-the-way", Base::Nothing)
            .then(Other(Kind::Service, "c-kafka-brokers"))
            .then(NoOthers)
            .after(least, most, Wait)
            .changes_mind()
            .ends(&[3, 4, 5], 6),
        Story::new("pool-given-away-and-taken-back", Base::Spare)
            .then(GiveAway("brokers"))
            .then(TakeBack("brokers"))
            .changes_mind()
            .ids_differ()
            .ends(&[4], 5),
    ]
}
