//! Clocks that are wrong: the operator's is behind, ahead, or set while it works. A cluster at rest stays at rest, and nothing that is
//! waited for takes as long as the clock was wrong.

use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use karst_core::memory::Stranger;
use karst_core::plan::plan;
use karst_core::world::World;

use crate::support::*;

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const DAY: SignedDuration = SignedDuration::from_hours(24);
const YEAR: SignedDuration = SignedDuration::from_hours(24 * 365);

/// What has to be asked is asked, and then nothing is left to do.
fn is_at_rest(world: &World) -> bool {
    let (mut world, mut kafka) = (world.clone(), Kafka::formed(world));
    for _ in 0..10 {
        let plan = plan(&world).unwrap();
        if plan.questions.is_empty() {
            return is_quiet(&plan);
        }
        kafka.answer(&mut world, &[], &plan.questions);
    }
    panic!("it asks and asks")
}

#[test]
fn a_clock_that_is_behind_or_ahead_disturbs_no_cluster() {
    let right = converged();
    for skew in [-YEAR, -DAY, -HOUR, HOUR, DAY, 30 * DAY] {
        let world = World { now: right.now + skew, ..right.clone() };
        assert!(is_at_rest(&world), "a clock that is {skew} away changes something: {:?}", decide(&world));
    }
}

#[test]
fn a_pause_is_over_when_the_clock_was_set_back() {
    let mut world = quickstart();
    let theirs = "PersistentVolumeClaim data-0-my-cluster-brokers-1".to_owned();
    let until = world.now + Duration::from_secs(60);
    world.memory.strangers.insert(theirs.clone(), Stranger { owner: "StatefulSet 'db'".into(), until });
    converge(&mut world);
    let tried = |world: &World| decide(world).objects.iter().any(|object| object.describe() == theirs);
    assert!(!tried(&world), "it pauses");
    world.now -= DAY;
    assert!(tried(&world), "it would pause for a day");
}
