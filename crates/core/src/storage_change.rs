//! What becomes of a change of the storage that nodes run with: each part of it on its own.
//!
//! What is possible is accepted, what is not keeps what runs and says why. Nothing else of the pool waits for it. A
//! volume goes only when no partition lives there; the metadata log of a controller stays where it is, because its
//! vote hangs on that very directory.

use std::collections::BTreeSet;

use karst_api as api;

use crate::claim_memory;
use crate::cluster::{Node, Roles};
use crate::health;
use crate::ids::NodeId;
use crate::names::{self, SKIP_CHECK_ANNOTATION, is_true};
use crate::notice::Notice;
use crate::quantity::Quantity;
use crate::storage::{Storage, log_dir};
use crate::world::{Answer, ClaimView, LogDirView, PodView, World};

/// The storage of a pool whose nodes run.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    pub(crate) world: &'a World,
    pub(crate) pool: &'a str,
    /// Where the wish was written.
    pub(crate) field: &'a str,
    /// What its nodes are to do.
    pub(crate) roles: Option<Roles>,
    /// The nodes that run.
    pub(crate) nodes: Vec<NodeId>,
    /// What they run with.
    pub(crate) kept: &'a api::Storage,
}

/// What came of a wish.
#[derive(Debug)]
pub(crate) struct Settled {
    /// What nodes are to run with now.
    pub(crate) storage: api::Storage,
    /// What was not possible, or not yet.
    pub(crate) notices: Vec<Notice>,
    /// Brokers that must say what is in their directories before more can be decided.
    pub(crate) log_dirs_of: BTreeSet<NodeId>,
}

/// Accepts what is possible of a wish.
pub(crate) fn settle(running: &Running<'_>, wanted: &api::Storage) -> Settled {
    let mut settling = Settling {
        running,
        out: Settled { storage: wanted.clone(), notices: Vec::new(), log_dirs_of: BTreeSet::new() },
    };
    if running.kept != wanted {
        settling.settle(wanted);
    }
    settling.out
}

struct Settling<'a> {
    running: &'a Running<'a>,
    out: Settled,
}

impl Settling<'_> {
    fn settle(&mut self, wanted: &api::Storage) {
        let Running { field, kept, .. } = *self.running;
        if let Err(problem) = Storage::parse(field, wanted) {
            let (pool, why) = (self.running.pool.to_owned(), problem.to_string());
            self.out.notices.push(Notice::StorageInvalid { pool, why });
            self.out.storage = kept.clone();
        } else if kept.type_ != wanted.type_ {
            self.hold_type(field, type_name(kept.type_), type_name(wanted.type_));
            self.out.storage = kept.clone();
        } else if wanted.type_ == api::StorageType::Jbod {
            self.settle_jbod(wanted);
        } else {
            let size = self.size(field, None, kept.size.as_ref(), wanted.size.as_ref());
            self.out.storage.size = size;
        }
    }

    fn settle_jbod(&mut self, wanted: &api::Storage) {
        let mut volumes = Vec::new();
        for volume in wanted.volumes.iter().flatten() {
            let kept = self.kept_volumes().find(|kept| kept.id == volume.id).cloned();
            volumes.push(match kept {
                Some(kept) => self.settle_volume(&kept, volume),
                None => volume.clone(),
            });
        }
        let gone: Vec<_> = self
            .kept_volumes()
            .filter(|kept| volumes.iter().all(|volume| volume.id != kept.id))
            .cloned()
            .collect();
        volumes.extend(gone.into_iter().filter(|volume| !self.may_go(volume)));
        self.keep_metadata(&mut volumes);
        self.out.storage.volumes = Some(volumes);
    }

    fn kept_volumes(&self) -> impl Iterator<Item = &api::Volume> {
        self.running.kept.volumes.iter().flatten()
    }

    fn settle_volume(&mut self, kept: &api::Volume, wanted: &api::Volume) -> api::Volume {
        let field = self.volume_field(wanted.id);
        if kept.type_ != wanted.type_ {
            self.hold_type(&field, volume_type_name(kept.type_), volume_type_name(wanted.type_));
            return api::Volume { kraft_metadata: wanted.kraft_metadata, ..kept.clone() };
        }
        let size = self.size(&field, Some(wanted.id), kept.size.as_ref(), wanted.size.as_ref());
        api::Volume { size, ..wanted.clone() }
    }

    fn volume_field(&self, id: i32) -> String {
        format!("{}.volumes[id={id}]", self.running.field)
    }

    fn hold_type(&mut self, field: &str, kept: &str, found: &str) {
        self.hold(
            &format!("{field}.type"),
            found,
            kept,
            "nodes would start empty; set it back, or make a pool with the other storage, move the partitions to its brokers, and delete this one",
        );
    }

    fn hold(&mut self, field: &str, found: &str, kept: &str, why: &str) {
        self.out.notices.push(Notice::StorageHeld {
            pool: self.running.pool.to_owned(),
            field: field.to_owned(),
            found: found.to_owned(),
            kept: kept.to_owned(),
            why: why.to_owned(),
        });
    }

    /// A claim cannot shrink. A smaller size is accepted only when no claim has the larger one yet.
    fn size(
        &mut self,
        field: &str,
        volume: Option<i32>,
        kept: Option<&String>,
        wanted: Option<&String>,
    ) -> Option<String> {
        let amount = |size: Option<&String>| size?.parse::<Quantity>().ok();
        let (Some(kept), Some(wanted)) = (kept, wanted) else { return wanted.cloned() };
        let (Some(old), Some(new)) = (amount(Some(kept)), amount(Some(wanted))) else {
            return Some(wanted.clone());
        };
        let is_larger = |claim: &&ClaimView| amount(claim.requested.as_ref()).is_none_or(|asked| asked > new);
        let larger: Vec<_> =
            self.claims(volume).filter(is_larger).map(|claim| claim.meta.name.clone()).collect();
        if new >= old || larger.is_empty() {
            return Some(wanted.clone());
        }
        let why = format!(
            "a claim cannot shrink, and these ask for more: {}; set it back, or make a pool with smaller volumes and move the partitions to its brokers",
            larger.join(", ")
        );
        self.hold(&format!("{field}.size"), wanted, kept, &why);
        Some(kept.clone())
    }

    fn claims(&self, volume: Option<i32>) -> impl Iterator<Item = &ClaimView> {
        self.running.nodes.iter().filter_map(move |node| self.claim(*node, volume))
    }

    fn claim(&self, node: NodeId, volume: Option<i32>) -> Option<&ClaimView> {
        let Running { world, pool, .. } = self.running;
        world.claims.get(&names::claim(&world.key.pod(pool, node), volume)).map(AsRef::as_ref)
    }

    /// Do nodes of the pool vote, or are they to?
    fn votes(&self) -> bool {
        self.running.roles.is_none_or(Roles::has_controller) || self.any_pod(PodView::runs_controller)
    }

    /// Do nodes of the pool have partitions, or may they?
    fn serves(&self) -> bool {
        self.running.roles.is_none_or(Roles::has_broker) || self.any_pod(PodView::runs_broker)
    }

    fn any_pod(&self, is: fn(&PodView) -> bool) -> bool {
        let Running { world, pool, nodes, .. } = self.running;
        nodes.iter().filter_map(|node| world.pods.get(&world.key.pod(pool, *node))).any(|pod| is(pod))
    }

    /// A controller's vote hangs on the directory of its metadata log: there the log stays, whatever is marked. A broker's
    /// log is a copy, and is fetched again.
    fn keep_metadata(&mut self, volumes: &mut [api::Volume]) {
        let before = metadata_volume(self.kept_volumes());
        let after = metadata_volume(volumes.iter());
        let (Some(before), Some(after)) = (before, after) else { return };
        if before == after || !self.votes() {
            return;
        }
        for volume in volumes {
            volume.kraft_metadata = (volume.id == before).then_some(api::KraftMetadata::Shared);
        }
        self.hold(
            &format!("{}.volumes[].kraftMetadata", self.running.field),
            &format!("volume {after}"),
            &format!("volume {before}"),
            &format!(
                "controllers would lose what they voted for; set kraftMetadata: shared on volume {before} (without a mark it is the volume with the lowest id)"
            ),
        );
    }

    /// May this volume go now?
    fn may_go(&mut self, volume: &api::Volume) -> bool {
        let id = volume.id;
        if self.votes() && metadata_volume(self.kept_volumes()) == Some(id) {
            let why = "it has the metadata log of controllers, which would lose what they voted for; list the volume again";
            self.hold(
                &format!("{}.volumes", self.running.field),
                &format!("without id {id}"),
                &format!("with id {id}"),
                why,
            );
            return false;
        }
        if skips_check(self.running.world) || !self.serves() {
            return true;
        }
        let mut in_the_way = Vec::new();
        let mut unknown = BTreeSet::new();
        for node in self.running.nodes.iter().copied().filter(|node| !self.was_never_used(*node, volume)) {
            match self.running.world.answers.log_dirs.get(&node) {
                None | Some(Answer::NotAsked) => drop(unknown.insert(node)),
                Some(Answer::Silent(why)) => {
                    in_the_way.push(format!("broker {node} does not say what is there ({why})"));
                }
                Some(Answer::Known(dirs)) => in_the_way.extend(self.contents(node, id, dirs)),
            }
        }
        let is_free = in_the_way.is_empty() && unknown.is_empty();
        if unknown.is_empty() && !in_the_way.is_empty() {
            let (pool, why) = (self.running.pool.to_owned(), in_the_way.join("; "));
            self.out.notices.push(Notice::VolumeStays { pool, volume: id, why });
        }
        self.out.log_dirs_of.extend(unknown);
        is_free
    }

    /// A claim that was never bound to a disk holds nothing, and no broker has to be asked about it: it may well be what
    /// keeps that broker from starting.
    fn was_never_used(&self, node: NodeId, volume: &api::Volume) -> bool {
        volume.type_ == api::VolumeType::PersistentClaim
            && self.claim(node, Some(volume.id)).is_none_or(|claim| !claim.bound)
    }

    fn contents(&self, node: NodeId, volume: i32, dirs: &[LogDirView]) -> Option<String> {
        let path = log_dir(Some(volume), node);
        in_use(dirs.iter().find(|dir| dir.path == path)?).map(|what| format!("broker {node} {what}"))
    }
}

/// What a broker would lose by a restart with the volumes that are asked for now. Kafka goes on placing new partitions on a
/// volume that was empty when its removal was accepted: what came there since must not be lost.
pub(crate) fn lost_by_restart(world: &World, node: Node<'_>) -> Option<String> {
    let id = node.id;
    if skips_check(world) {
        return None;
    }
    let dirs = match world.answers.log_dirs.get(&id) {
        Some(Answer::Known(dirs)) => dirs,
        Some(Answer::Silent(why)) => {
            return Some(format!("broker {id} does not say what is in its directories ({why})"));
        }
        _ => return Some(format!("broker {id} was not asked what is in its directories")),
    };
    let stays = |dir: &LogDirView| node.pool.storage.disks().iter().any(|disk| disk.log_dir(id) == dir.path);
    let lost: Vec<_> = dirs.iter().filter(|dir| !stays(dir)).filter_map(in_use).collect();
    (!lost.is_empty()).then(|| {
        format!(
            "a volume of it is to go, and broker {id} {} there; move them to other volumes",
            lost.join(" and ")
        )
    })
}

/// Claims of a pod for volumes that its successor does not have. Those that were seen empty when they were taken away are not among
/// them, nor are those that were never bound to a disk.
pub(crate) fn claims_of_removed_volumes<'w>(
    world: &'w World,
    node: Node<'_>,
    pod: &'w PodView,
) -> impl Iterator<Item = &'w ClaimView> {
    let name = &pod.meta.name;
    let listed: Vec<_> = node.pool.storage.disks().iter().filter_map(|disk| disk.claim_name(name)).collect();
    world.claims.values().map(AsRef::as_ref).filter(move |claim| {
        let is_open = claim.bound && !claim.meta.deleting && claim_memory::emptied_in(&claim.meta).is_none();
        is_open && claim_memory::is_volume_of(&claim.meta, name) && !listed.contains(&claim.meta.name)
    })
}

/// Would a broker that cannot say what is in its directories lose one of them by a restart?
pub(crate) fn may_hide_records(world: &World, node: Node<'_>, pod: &PodView) -> bool {
    !skips_check(world) && claims_of_removed_volumes(world, node, pod).next().is_some()
}

/// Does the user know better than Kafka what is needed?
pub(crate) fn skips_check(world: &World) -> bool {
    is_true(world.kafka.metadata.annotations.as_ref(), SKIP_CHECK_ANNOTATION)
}

/// What of a broker's directory would be missed.
fn in_use(dir: &LogDirView) -> Option<String> {
    match &dir.error {
        Some(error) => Some(format!("cannot read {} ({error})", dir.path)),
        None if dir.partitions.is_empty() => None,
        None => Some(format!("has {}", health::some_of_more(&dir.partitions, dir.more))),
    }
}

fn metadata_volume<'v>(volumes: impl Iterator<Item = &'v api::Volume>) -> Option<i32> {
    // Marked ones before all others, then the lowest id.
    volumes.map(|volume| (volume.kraft_metadata.is_none(), volume.id)).min().map(|(_, id)| id)
}

fn type_name(type_: api::StorageType) -> &'static str {
    match type_ {
        api::StorageType::Ephemeral => "ephemeral",
        api::StorageType::PersistentClaim => "persistent-claim",
        api::StorageType::Jbod => "jbod",
    }
}

fn volume_type_name(type_: api::VolumeType) -> &'static str {
    match type_ {
        api::VolumeType::Ephemeral => "ephemeral",
        api::VolumeType::PersistentClaim => "persistent-claim",
    }
}
