//! What an operator remembers of a cluster from one pass to the next: what was tried in vain, and when it is tried again; what was
//! seen, and need not be asked again.
//!
//! Nothing durable depends on it. A new process begins without, tries at once, and finds out anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::digest::Digest;
use crate::ids::NodeId;
use crate::membership::Change;
use crate::objects::Object;
use crate::podset::Rendered;
use crate::rewrites::Rewrite;
use crate::steps::Deed;

/// The pause after Kafka refused something for the first time. A controller that was just started often refuses once.
const FIRST_PAUSE: Duration = Duration::from_millis(300);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause before Kafka is told again what it would not take. What it thinks of a value seldom changes.
const AFTER_REFUSED_VALUE: Duration = Duration::from_secs(60);
/// A migration that fails costs a leader its office: the next one must be at rest again.
const AFTER_MIGRATION: Duration = Duration::from_secs(10);
/// How long to wait before Kubernetes is asked again for what it refused. Somebody has to change something meanwhile, and nobody tells.
const AFTER_REFUSAL: Duration = Duration::from_secs(60);
/// A change of the quorum that was not tried for so long after its pause is not wanted any more.
const OUTDATED: Duration = Duration::from_secs(60);
/// How often in a row a node must be refused before others stop waiting for it. One that just started is often refused once or twice.
const REFUSED: u32 = 5;
/// So many refusals of one kind say enough.
const TOLD: usize = 3;
/// How many unregistrations that failed are remembered. Fewer are tried at a time; the others are of brokers that are not to be
/// unregistered any more.
const MOST_UNREGISTRATIONS: usize = 16;

/// What is remembered of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// What Kafka did not do when it was last asked to.
    pub troubles: Vec<Trouble>,
    /// Nodes that were seen to run with the settings that were wanted then, by their pods.
    pub checked_settings: BTreeMap<String, Digest>,
    /// Pod sets as they were rendered last by this operator.
    pub rendered: Rendered,
    /// Pods that are to exist and do not, and since when that is known: see [`crate::absences::of`].
    pub absent: BTreeMap<String, Timestamp>,
    /// Claims that could not grow, by name.
    pub refused_growth: BTreeMap<String, RefusedGrowth>,
    /// Services of listeners that Kubernetes refused, by name.
    pub refused_services: BTreeMap<String, RefusedService>,
    /// Objects of others in place of the cluster's, by kind and name.
    pub strangers: BTreeMap<String, Stranger>,
    /// How often the same was written to objects lately, by kind and name.
    pub rewrites: BTreeMap<String, Rewrite>,
    /// What else Kubernetes refused, in its own words, by who asked for it.
    refusals: BTreeMap<String, BTreeSet<String>>,
    /// What it did not answer in time when it was last asked, by who asked for it.
    late: BTreeMap<String, BTreeSet<String>>,
}

impl Memory {
    /// A pass begins: what is past is forgotten.
    pub fn begin_pass(&mut self, now: Timestamp) {
        self.rewrites.retain(|_, rewrite| rewrite.is_current(now));
        self.strangers.retain(|_, stranger| is_current(stranger.until, now));
    }

    /// Kafka did not do something.
    pub fn kafka_refused(&mut self, deed: &Deed, why: &impl ToString, now: Timestamp) {
        let before = self.troubles.iter().position(|trouble| trouble.deed == *deed);
        let failures = before.map_or(0, |at| self.troubles.remove(at).failures);
        self.troubles.retain(|trouble| !trouble.is_replaced_by(deed, now));
        let until = after(now, pause(deed, failures));
        let failures = failures.saturating_add(1);
        self.troubles.push(Trouble { deed: deed.clone(), why: why.to_string(), until, failures });
        self.keep_few_unregistrations();
    }

    /// Kafka did it. What was refused to the same node before, with another disk perhaps, is of the past too.
    pub fn kafka_did(&mut self, deed: &Deed) {
        self.troubles.retain(|trouble| trouble.deed != *deed && !is_about_same_node(&trouble.deed, deed));
    }

    /// Forgets the oldest unregistrations when there are too many: Kafka may name other brokers each time it is asked.
    fn keep_few_unregistrations(&mut self) {
        let count = self.troubles.iter().filter_map(Trouble::of_unregistration).count();
        let mut too_many = count.saturating_sub(MOST_UNREGISTRATIONS);
        self.troubles.retain(|trouble| {
            let goes = too_many > 0 && trouble.of_unregistration().is_some();
            too_many -= usize::from(goes);
            !goes
        });
    }

    /// What Kafka said when it did not make a change of the quorum.
    pub(crate) fn trouble_with(&self, change: &Change) -> Option<&Trouble> {
        self.troubles.iter().find(|trouble| matches!(&trouble.deed, Deed::Change(failed) if failed == change))
    }

    /// Has this node been refused a vote again and again, and lately? It may have joined all the same, and lost its vote since.
    pub(crate) fn is_refused_a_vote(&self, node: NodeId, now: Timestamp) -> bool {
        self.troubles.iter().any(|trouble| {
            let is_its =
                matches!(&trouble.deed, Deed::Change(Change::Join { voter, .. }) if voter.node == node);
            is_its && !trouble.is_outdated(now) && trouble.failures >= REFUSED
        })
    }

    /// An object was written, and the API server took it.
    pub fn wrote(&mut self, object: &Object, rewrite: Rewrite) {
        let name = object.describe();
        self.strangers.remove(&name);
        self.rewrites.insert(name, rewrite);
    }

    /// What is to be remembered of an object that is written, if the API server takes it. `difference` is what was found changed before,
    /// if that was looked for.
    pub fn rewrite(
        &self,
        object: &Object,
        now: Timestamp,
        difference: Option<String>,
    ) -> Result<Rewrite, serde_json::Error> {
        Rewrite::after(self.rewrites.get(&object.describe()), object, now, difference)
    }

    /// An object of somebody else was met in place of the cluster's.
    pub fn met_stranger(&mut self, object: &str, owner: &str, now: Timestamp) {
        let stranger = Stranger { owner: owner.to_owned(), until: after(now, AFTER_REFUSAL) };
        self.strangers.insert(object.to_owned(), stranger);
    }

    /// Kubernetes did not let a claim grow.
    pub fn growth_refused(&mut self, claim: &str, size: &str, why: String, now: Timestamp) {
        let refused = RefusedGrowth { size: size.to_owned(), why, until: after(now, AFTER_REFUSAL) };
        self.refused_growth.insert(claim.to_owned(), refused);
    }

    /// Kubernetes did not take a service of a listener.
    pub fn service_refused(&mut self, name: &str, asked: Option<&str>, why: String, now: Timestamp) {
        let refused =
            RefusedService { asked: asked.map(str::to_owned), why, until: after(now, AFTER_REFUSAL) };
        self.refused_services.insert(name.to_owned(), refused);
    }

    /// What Kubernetes refused to whoever asked, and what it did not answer: that is told when it happens twice in a row. Is there
    /// something new to say?
    pub fn kubernetes_refused(
        &mut self,
        who: &str,
        mut refused: BTreeSet<String>,
        late: BTreeSet<String>,
    ) -> bool {
        let late_before = set(&mut self.late, who, late.clone());
        refused.extend(late.into_iter().filter(|words| late_before.contains(words)));
        let before = set(&mut self.refusals, who, refused.into_iter().take(TOLD).collect());
        before != self.refusals.get(who).cloned().unwrap_or_default()
    }

    /// What Kubernetes refused, to whomever.
    pub fn refusals(&self) -> BTreeSet<String> {
        self.refusals.values().flatten().cloned().collect()
    }
}

/// Keeps what is not empty. Returns what was there.
fn set(all: &mut BTreeMap<String, BTreeSet<String>>, who: &str, new: BTreeSet<String>) -> BTreeSet<String> {
    let before = match new.is_empty() {
        true => all.remove(who),
        false => all.insert(who.to_owned(), new),
    };
    before.unwrap_or_default()
}

fn after(now: Timestamp, pause: Duration) -> Timestamp {
    now.checked_add(pause).unwrap_or(Timestamp::MAX)
}

/// Is what was to be tried again at this time still worth a word? If nobody tried, nobody wants it any more.
fn is_current(next_try: Timestamp, now: Timestamp) -> bool {
    now < after(next_try, AFTER_REFUSAL)
}

fn is_about_same_node(one: &Deed, other: &Deed) -> bool {
    let node = |deed: &Deed| match deed {
        Deed::Change(change) => change.node(),
        _ => None,
    };
    node(one).is_some() && node(one) == node(other)
}

fn pause(deed: &Deed, failures: u32) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.min(10));
    match deed {
        Deed::Change(Change::MakeDynamic) => AFTER_MIGRATION,
        Deed::Metadata(_) => LONGEST_PAUSE,
        Deed::Configure(_) => doubled.min(AFTER_REFUSED_VALUE),
        Deed::Change(_) | Deed::Unregister(_) => doubled.min(LONGEST_PAUSE),
    }
}

/// Something that Kafka did not do when it was last asked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// What.
    pub deed: Deed,
    /// What Kafka said.
    pub why: String,
    /// Not to be tried again before.
    pub until: Timestamp,
    /// How many times in a row it did not.
    pub failures: u32,
}

impl Trouble {
    /// The broker that Kafka did not forget.
    pub(crate) fn of_unregistration(&self) -> Option<NodeId> {
        match self.deed {
            Deed::Unregister(node) => Some(node),
            _ => None,
        }
    }

    fn is_outdated(&self, now: Timestamp) -> bool {
        after(self.until, OUTDATED) < now
    }

    /// May it be forgotten when this is remembered? Of what takes the place of each other only the newest is still wanted. Each node
    /// joins or leaves by itself: they take turns, and none is to forget how often it was refused.
    fn is_replaced_by(&self, newer: &Deed, now: Timestamp) -> bool {
        match (newer, &self.deed) {
            (Deed::Unregister(_), _) => false,
            (Deed::Configure(newer), Deed::Configure(older)) => {
                (&newer.key, newer.node) == (&older.key, older.node)
            }
            (Deed::Change(newer), Deed::Change(older)) => {
                newer.node() == older.node() || self.is_outdated(now)
            }
            _ => std::mem::discriminant(newer) == std::mem::discriminant(&self.deed),
        }
    }
}

/// The growth of a claim that Kubernetes refused when it was last tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedGrowth {
    /// The size it was to get.
    pub size: String,
    /// What Kubernetes said.
    pub why: String,
    /// Not to be tried again before.
    pub until: Timestamp,
}

/// An object of somebody else that was found in place of one that the cluster needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stranger {
    /// Whose it is.
    pub owner: String,
    /// Not to be looked at again before.
    pub until: Timestamp,
}

/// A service of a listener that Kubernetes did not take when it was last written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedService {
    /// What was asked for, by its mark.
    pub asked: Option<String>,
    /// What Kubernetes said.
    pub why: String,
    /// Not to be tried again before.
    pub until: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Entropy;
    use crate::membership::Voter;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn join(node: i32, disk: u8) -> Deed {
        let voter = Voter { node: NodeId(node), directory: Entropy([disk; 32]).directory_id(NodeId(node)) };
        Deed::Change(Change::Join { voter, host: format!("controller-{node}") })
    }

    fn pause_of(memory: &Memory, deed: &Deed) -> Duration {
        let trouble = memory.troubles.iter().find(|trouble| trouble.deed == *deed).unwrap();
        trouble.until.duration_since(NOW).unsigned_abs()
    }

    #[test]
    fn a_node_that_joined_with_another_disk_was_not_refused() {
        let mut memory = Memory::default();
        for deed in [join(3, 1), join(4, 1), Deed::Unregister(NodeId(3))] {
            memory.kafka_refused(&deed, &"no", NOW);
        }
        memory.kafka_did(&join(3, 2));
        let left: Vec<_> = memory.troubles.into_iter().map(|trouble| trouble.deed).collect();
        assert_eq!(left, [join(4, 1), Deed::Unregister(NodeId(3))]);
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_a_refused_value_waits_longest() {
        let configure = Deed::Configure(crate::dynamic::SettingChange {
            key: "k".to_owned(),
            node: None,
            value: Some("v".to_owned()),
        });
        let mut memory = Memory::default();
        let expected = [300, 600, 1_200, 2_400, 4_800, 5_000];
        for millis in expected {
            memory.kafka_refused(&join(3, 1), &"no", NOW);
            memory.kafka_refused(&configure, &"no", NOW);
            assert_eq!(pause_of(&memory, &join(3, 1)), Duration::from_millis(millis));
        }
        assert_eq!(pause_of(&memory, &configure), Duration::from_millis(9_600));
        for _ in 0..10 {
            memory.kafka_refused(&configure, &"no", NOW);
        }
        assert_eq!(pause_of(&memory, &configure), AFTER_REFUSED_VALUE);
    }

    #[test]
    fn what_is_refused_is_news_once_and_what_is_late_when_it_is_late_again() {
        let words = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<BTreeSet<_>>();
        let mut memory = Memory::default();
        assert!(memory.kubernetes_refused("objects", words(&["no"]), words(&[])));
        assert!(!memory.kubernetes_refused("objects", words(&["no"]), words(&["late"])));
        assert_eq!(memory.refusals(), words(&["no"]));
        assert!(memory.kubernetes_refused("objects", words(&["no"]), words(&["late"])));
        assert_eq!(memory.refusals(), words(&["no", "late"]));
        assert!(memory.kubernetes_refused("objects", words(&[]), words(&[])));
        assert_eq!(memory.refusals(), words(&[]));
    }
}
