//! A run that went wrong, with as little in it as will do.

use std::sync::Arc;

use crate::faults::{Faults, Strike};
use crate::run::{Report, Start, run};
use crate::scenarios::{Scenario, Step};

/// A run that went wrong is tried again so often, with less in it.
const TRIES: usize = 400;

/// A run, by what determines it.
#[derive(Debug, Clone)]
pub struct Case {
    /// The story.
    pub scenario: Scenario,
    /// Its seed.
    pub seed: u64,
    /// What goes wrong.
    pub faults: Faults,
}

impl Case {
    /// Runs it.
    pub fn run(&self, start: &Start, tells: bool) -> Report {
        run(start, &self.scenario, self.seed, &self.faults, tells)
    }

    /// The same with fewer strikes and, if its changes are all put back in the end, with fewer changes. Whatever goes wrong then
    /// counts. `struck` is what befell the run.
    pub fn shrunk(&self, start: &Start, struck: Vec<Strike>) -> Self {
        let with = |strikes: &[Strike], steps: &[Step]| {
            let mut less = self.clone();
            less.faults.script = Some(Arc::from(strikes));
            less.scenario.steps = steps.to_vec();
            less
        };
        let mut tries = 0;
        let mut fails = |case: &Self| {
            tries += 1;
            tries <= TRIES && case.run(start, false).broken.is_some()
        };
        let steps = self.scenario.steps.clone();
        if !fails(&with(&struck, &steps)) {
            return self.clone();
        }
        let strikes = fewest(struck, |strikes| fails(&with(strikes, &steps)));
        let steps =
            if self.scenario.reverts { fewest(steps, |steps| fails(&with(&strikes, steps))) } else { steps };
        with(&strikes, &steps)
    }
}

/// Leaves out what is not needed to fail: halves first, then smaller and smaller parts (delta debugging).
fn fewest<T: Clone>(mut items: Vec<T>, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut size = items.len();
    while size > 0 {
        let mut from = 0;
        while from < items.len() {
            let upto = (from + size).min(items.len());
            let less: Vec<T> = items[..from].iter().chain(&items[upto..]).cloned().collect();
            if fails(&less) {
                items = less;
            } else {
                from = upto;
            }
        }
        size /= 2;
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_needed_to_fail_is_left() {
        let needed = |items: &[i32]| items.contains(&3) && items.contains(&17);
        assert_eq!(fewest((0..40).collect(), needed), [3, 17]);
        assert_eq!(fewest(vec![1, 2, 3], |_| true), [0; 0]);
    }
}
