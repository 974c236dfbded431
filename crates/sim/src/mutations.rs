//! Changes of mind: resources are changed at random moments, then put back, and all must be as it was before.

use std::collections::{BTreeMap, BTreeSet};

use karst_api::{KafkaNodePoolSpec, KafkaSpec};

use crate::dice::Dice;
use crate::kubernetes::{ApiServer, Item, KINDS};
use crate::operator::kafka::running_settings;
use crate::scenarios::{self, BOTH, BROKER, Base, CONTROLLER, Disks, Edit, Scenario, Step, When};
use crate::sim::Sim;

/// How everything was before the first change.
#[derive(Debug, Clone)]
pub struct Before {
    kafka: Option<KafkaSpec>,
    pools: BTreeMap<String, KafkaNodePoolSpec>,
    picture: BTreeMap<String, String>,
}

impl Before {
    /// How everything is now.
    pub fn of(sim: &Sim) -> Self {
        let pools = sim.api.pools();
        Self {
            kafka: sim.api.kafka().map(|kafka| kafka.spec.clone()),
            pools: pools
                .map(|pool| (pool.metadata.name.clone().unwrap_or_default(), pool.spec.clone()))
                .collect(),
            picture: picture(sim),
        }
    }

    /// A user puts all resources back.
    pub(crate) fn restore(&self, api: &mut ApiServer) {
        if let Some(spec) = &self.kafka {
            api.edit_kafka(|kafka| kafka.spec = spec.clone());
        }
        let names: Vec<_> = api.pools().filter_map(|pool| pool.metadata.name.clone()).collect();
        for name in names {
            match self.pools.get(&name) {
                Some(spec) => api.edit_pool(&name, |pool| pool.spec = spec.clone()),
                None => api.delete_pool(&name),
            }
        }
    }

    /// What is not as it was.
    pub(crate) fn differences(&self, sim: &Sim) -> Vec<String> {
        let now = picture(sim);
        let keys: BTreeSet<_> = self.picture.keys().chain(now.keys()).collect();
        let none = "nothing".to_owned();
        // Two things stay that harm nobody: a budget when the last pod that it was for is gone, and the certificate of a node
        // whose pool went before its deletion could be made to wait.
        let is_left_over = |key: &str| {
            !self.picture.contains_key(key) && (key.starts_with("Budget ") || key.starts_with("Secret "))
        };
        let differing = keys.into_iter().filter(|key| !is_left_over(key)).filter_map(|key| {
            let (old, new) = (self.picture.get(key).unwrap_or(&none), now.get(key).unwrap_or(&none));
            (old != new).then(|| format!("in the end {key} is {new}, not {old}"))
        });
        differing.collect()
    }
}

/// Everything that must be the same again, by name.
fn picture(sim: &Sim) -> BTreeMap<String, String> {
    let mut picture = BTreeMap::new();
    for item in KINDS.iter().flat_map(|kind| sim.api.all(*kind)) {
        if let Some(looks) = looks(sim, item) {
            picture.insert(format!("{:?} {}", item.kind(), item.name()), looks);
        }
    }
    let nodes = |ids: &mut dyn Iterator<Item = String>| ids.collect::<Vec<_>>().join(", ");
    let voters = sim.quorum.committed_voters();
    picture.insert("who votes".to_owned(), nodes(&mut voters.iter().map(|voter| voter.node.to_string())));
    let registered = sim.quorum.registered();
    picture.insert("who is registered".to_owned(), nodes(&mut registered.keys().map(ToString::to_string)));
    picture.insert("the metadata level".to_owned(), sim.quorum.level.to_string());
    for node in sim.quorum.processes.keys() {
        let runs_with = running_settings(sim, *node).unwrap_or_default().into_iter();
        // Where a node has a setting from is of no account.
        let runs_with: Vec<_> = runs_with.map(|one| (one.key, one.value)).collect();
        picture.insert(format!("what node {node} runs with"), format!("{runs_with:?}"));
    }
    picture
}

/// An object, without what need not be the same again.
fn looks(sim: &Sim, item: &Item) -> Option<String> {
    Some(match item {
        Item::Kafka(kafka) => {
            let conditions = kafka.status.as_ref().and_then(|status| status.conditions.as_ref());
            // Disks never shrink, and it is told that they are larger than asked for.
            let said = conditions.into_iter().flatten();
            let said = said.filter(|one| one.reason.as_deref() != Some("KafkaStorage"));
            let said = said.map(|one| format!("{:?}={:?} {:?}", one.type_, one.status, one.reason));
            said.collect::<Vec<_>>().join(", ")
        }
        Item::Pool(pool) => {
            format!("{:?}", pool.status.as_ref().map(|status| (&status.node_ids, &status.roles)))
        }
        Item::PodSet(set) => {
            let pods = set.pods.iter().map(|(name, pod)| (name, pod.revision.as_deref().unwrap_or_default()));
            format!("{:?}", pods.collect::<Vec<_>>())
        }
        Item::Pod(pod) => format!("ready {}, made as {}", pod.ready, pod.revision().unwrap_or_default()),
        // Whoever came back on an empty disk joins, and does not form the quorum again.
        Item::ConfigMap(map) => {
            let settings = sim.api.settings(&map.meta.name)?.iter();
            let settings =
                settings.filter(|(key, _)| !["storage.format", "empty.disk"].contains(&key.as_str()));
            format!("{:?}", settings.collect::<Vec<_>>())
        }
        Item::Service(service) => format!("{:?}", service.digest),
        Item::Budget(plain) | Item::Policy(plain) => format!("{:?}", plain.digest),
        Item::Account(_) | Item::Secret(_) => "there".to_owned(),
        // Disks stay, where data is to be kept, and never shrink.
        Item::Claim(_) => return None,
    })
}

/// A story of random changes.
pub fn random(seed: u64) -> Scenario {
    let mut dice = Dice::new(seed ^ 0xed17);
    let bases = [Base::Small, Base::Whole, Base::Combined, Base::Spare];
    let base = dice.pick(&bases).copied().unwrap_or(Base::Small);
    let possible = edits(base, &mut dice);
    let mut steps: Vec<Step> = Vec::new();
    for _ in 0..dice.between(1, 4) {
        let Some(edit) = dice.pick(&possible).cloned() else { break };
        if steps.iter().all(|step| step.edit != edit) {
            let when = if dice.chance(200) { When::AtRest } else { When::After(0, 12_000) };
            steps.push(Step { when, edit });
        }
    }
    scenarios::reverted("changed-and-reverted", base, steps)
}

/// What a user could change. A node id that becomes free may be taken by another pool, and is not given back: so not all at once.
fn edits(base: Base, dice: &mut Dice) -> Vec<Edit> {
    let mut edits = vec![
        Edit::Configure("num.io.threads", 5),
        Edit::Configure("queued.max.requests", 300),
        Edit::Configure("min.insync.replicas", 1),
        Edit::Unset("default.replication.factor"),
        Edit::VersionOnly("4.2.1"),
        Edit::Listen("second", 9095, "internal"),
        Edit::Listen("third", 9096, "cluster-ip"),
        // Nobody has such a thing: it is refused.
        Edit::Version("1.2.3"),
        Edit::Listen("plain", 9097, "internal"),
    ];
    let (brokers, controllers) =
        if base == Base::Combined { ("both", "both") } else { ("brokers", "controllers") };
    edits.extend([Edit::Grow(brokers, "2Gi"), Edit::Roll(brokers), Edit::Roll(controllers)]);
    if dice.chance(300) {
        if base != Base::Small {
            edits.push(Edit::Scale(brokers, 2));
        }
        if base != Base::Combined && base != Base::Spare {
            edits.extend([Edit::Scale(controllers, 1), Edit::Scale(controllers, 2)]);
        }
        return edits;
    }
    edits.extend([
        Edit::Scale(brokers, 5),
        Edit::Scale(brokers, 6),
        Edit::Roles(brokers, BOTH),
        Edit::AddPool("more", 2, CONTROLLER, Disks::Disposable),
        Edit::AddPool("others", 1, BROKER, Disks::Ephemeral),
        Edit::AddPool("all", 1, BOTH, Disks::Disposable),
    ]);
    if base == Base::Combined {
        edits.extend([Edit::Roles(brokers, BROKER), Edit::Roles(brokers, CONTROLLER)]);
    } else {
        edits.extend([
            Edit::Scale(controllers, 4),
            Edit::Scale(controllers, 5),
            Edit::Roles(controllers, BOTH),
        ]);
    }
    edits
}
