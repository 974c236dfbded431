//! Which voters start on empty disks because a person says so, and how many of them at a time.
//!
//! A voter on an empty disk has forgotten everything. While such voters are fewer than a majority, nobody is elected without one that has
//! its disk, and the longest log leads. So of the pods that a person names only so many are let in; the others follow when somebody leads,
//! which proves that the first ones have copied what was agreed on. Whoever was let in counts until then, named or not: it may run by
//! now. A person who names every voter says that none of them has its disk.

use std::collections::BTreeSet;

use crate::cluster::Cluster;
use crate::empty_disk;
use crate::health;
use crate::names::{ALLOW_LOSS_ANNOTATION, EMPTY_VOTER_ANNOTATION, LET_IN_ANNOTATION};
use crate::notice::Notice;
use crate::quorum::{InitialControllers, Kind, StorageFormat};
use crate::safety;
use crate::world::World;

/// The pods that a person named in one annotation.
#[derive(Debug, Default)]
pub(crate) struct LetIn {
    annotation: &'static str,
    /// Those that may start on empty disks now.
    now: BTreeSet<String>,
    /// Those that may when somebody leads.
    held: BTreeSet<String>,
    /// Those that count against the majority.
    begun: BTreeSet<String>,
    /// All that would have to be named if none has its disk.
    voters: BTreeSet<String>,
}

impl LetIn {
    /// Of the voters of a static quorum.
    pub(crate) fn of_static(world: &World, cluster: &Cluster) -> Self {
        let named: BTreeSet<&str> = safety::may_lose(world).collect();
        if named.is_empty() {
            return Self::default();
        }
        let known = cluster.controllers().into_iter().map(|node| cluster.pod_name(node));
        let voters: BTreeSet<_> =
            known.chain(cluster.kept_controllers().map(|kept| kept.pod.clone())).collect();
        Self::choose(world, ALLOW_LOSS_ANNOTATION, &named, voters.len(), voters)
    }

    /// Of those that form a quorum.
    pub(crate) fn of_first(world: &World, cluster: &Cluster, initial: &InitialControllers) -> Self {
        let named: BTreeSet<&str> = empty_disk::allowed(world).collect();
        if named.is_empty() {
            return Self::default();
        }
        let controllers = cluster.controllers().into_iter();
        let first = controllers.filter(|node| initial.get(node.id).is_some());
        let voters = first.map(|node| cluster.pod_name(node)).collect();
        Self::choose(world, EMPTY_VOTER_ANNOTATION, &named, initial.iter().count(), voters)
    }

    fn choose(
        world: &World,
        annotation: &'static str,
        named: &BTreeSet<&str>,
        count: usize,
        voters: BTreeSet<String>,
    ) -> Self {
        let is_named = |pod: &&String| named.contains(pod.as_str());
        let asked = voters.iter().filter(is_named).filter(|pod| safety::waits_to_serve(world, pod));
        let (mut now, mut held): (BTreeSet<String>, BTreeSet<String>) =
            asked.cloned().partition(|pod| is_marked(world, pod));
        let begun: BTreeSet<String> = match world.answers.quorum.known() {
            Some(_) => now.clone(),
            None => voters.iter().filter(|pod| is_marked(world, pod)).cloned().collect(),
        };
        let room = match voters.iter().all(|pod| is_named(&pod)) {
            true => held.len(),
            false => (health::majority(count) - 1).saturating_sub(begun.len()),
        };
        // One voter of two has no majority, and one that votes alone is named as every voter is.
        let rest = held.iter().nth(room).cloned();
        let rest = rest.map_or_else(BTreeSet::new, |first| held.split_off(&first));
        now.append(&mut held);
        Self { annotation, now, held: rest, begun, voters }
    }

    /// May this pod start on an empty disk now?
    pub(crate) fn has(&self, pod: &str) -> bool {
        self.now.contains(pod)
    }

    /// That others have to wait, and for what.
    fn notice(&self) -> Option<Notice> {
        if self.held.is_empty() {
            return None;
        }
        let list = |pods: &BTreeSet<String>| pods.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let first: BTreeSet<_> = self.now.union(&self.begun).cloned().collect();
        let (held, first, all) = (list(&self.held), list(&first), list(&self.voters));
        Some(Notice::EmptyStartHeld { annotation: self.annotation, held, first, all })
    }
}

/// Is this the pod of a node whose voters stand in its settings, by all that is known? While nobody remembers and nobody leads, what the
/// node was told before is all there is.
pub(crate) fn is_static(world: &World, kind: Kind, pod: &str) -> bool {
    let formats = [StorageFormat::Static.as_str(), StorageFormat::StaticAnew.as_str()];
    let told = || world.config_maps.get(pod).and_then(|map| map.storage_format.as_deref());
    kind == Kind::Static || (kind == Kind::Unknown && told().is_some_and(|told| formats.contains(&told)))
}

/// Was it let in since somebody led last?
fn is_marked(world: &World, pod: &str) -> bool {
    world.config_maps.get(pod).is_some_and(|map| map.meta.annotations.contains_key(LET_IN_ANNOTATION))
}

/// What marks a voter that was let in. It stays until somebody leads, whatever is said meanwhile.
pub(crate) fn memory(world: &World, pod: &str, is_let_in: bool) -> Option<String> {
    let is_in_doubt = is_marked(world, pod) && world.answers.quorum.known().is_none();
    (is_let_in || is_in_doubt).then(|| "true".to_owned())
}

/// Named pods that have to wait.
pub(crate) fn notices(
    world: &World,
    cluster: &Cluster,
    kind: Kind,
    initial: Option<&InitialControllers>,
) -> Vec<Notice> {
    let mut controllers = cluster.controllers().into_iter();
    let has_static = controllers.any(|node| is_static(world, kind, &cluster.pod_name(node)));
    let fixed = has_static.then(|| LetIn::of_static(world, cluster));
    let first = initial.map(|initial| LetIn::of_first(world, cluster, initial));
    fixed.into_iter().chain(first).filter_map(|one| one.notice()).collect()
}
