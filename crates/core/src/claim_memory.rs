//! What is to become of claims, and what they remember of the storage of their nodes.
//!
//! Whether a claim goes with its node is for the user to say, in the moment in which it would go: the annotation of the claim is
//! what was said when it was last written, and the operator may have been away since. What nodes run with is written on their
//! claims, beside the data: whatever else is lost, it is there as long as there is anything to lose.

use std::collections::BTreeMap;

use karst_api as api;

use crate::ids::NodeId;
use crate::names::{
    self, DELETE_CLAIM_ANNOTATION, EMPTIED_ANNOTATION, POD_NAME_LABEL, POOL_LABEL, STORAGE_ANNOTATION,
    VIRTUAL_POOL,
};
use crate::pools;
use crate::quantity::Quantity;
use crate::storage::{Disk, Medium};
use crate::world::{ClaimView, Meta, World};

/// Does the claim go when its node or its volume goes? Only when its annotation says so and the user does not say otherwise by
/// now. A claim that was kept once stays, whatever is said later of those that nodes use.
pub(crate) fn is_disposable(world: &World, claim: &Meta) -> bool {
    is_marked_disposable(claim) && said(world, claim) != Some(false)
}

/// The user said once that this claim goes with its node.
fn is_marked_disposable(claim: &Meta) -> bool {
    claim.annotations.get(DELETE_CLAIM_ANNOTATION).is_some_and(|value| value == "true")
}

/// Is it still to be written on the claim that the user wants to keep it? Until then it would go with the `Kafka` resource.
pub(crate) fn is_to_be_released(world: &World, claim: &Meta) -> bool {
    is_marked_disposable(claim) && said(world, claim) == Some(false)
}

/// Was the claim made for a volume of this pod? By its label and by its name.
pub(crate) fn is_volume_of(claim: &Meta, pod: &str) -> bool {
    let is_its = claim.labels.get(POD_NAME_LABEL).is_some_and(|label| label == pod);
    is_its && matches!(volume_of(&claim.name, pod), Some(Some(_)))
}

/// The pod that had the claim last, and was seen to have nothing on it. It is written when that pod was told to stop, and taken off
/// before another one gets the claim.
pub(crate) fn emptied_in(claim: &Meta) -> Option<&String> {
    claim.annotations.get(EMPTIED_ANNOTATION).filter(|pod| !pod.is_empty())
}

/// The disk of such a claim.
pub(crate) fn kept_disk(claim: &str, pod: &str) -> Option<Disk> {
    let medium = Medium::Claim { size: String::new(), class: None, selector: None, delete: false };
    Some(Disk { id: volume_of(claim, pod)?, medium })
}

/// What the user says now of this claim. Nothing, when its volume is not listed any more, or its pool is not there.
fn said(world: &World, claim: &Meta) -> Option<bool> {
    let storage = asked_for(world, claim.labels.get(POOL_LABEL)?)?;
    match volume_of(&claim.name, claim.labels.get(POD_NAME_LABEL)?)? {
        None => of_single(storage),
        Some(id) => of_volume(storage, id),
    }
}

/// The storage of a pool as it is written now.
fn asked_for<'a>(world: &'a World, pool: &str) -> Option<&'a api::Storage> {
    if pools::uses_pools(&world.kafka) {
        return Some(&world.pools.get(pool)?.spec.storage);
    }
    world.kafka.spec.kafka.storage.as_ref().filter(|_| pool == VIRTUAL_POOL)
}

fn of_single(storage: &api::Storage) -> Option<bool> {
    match storage.type_ {
        api::StorageType::PersistentClaim => Some(storage.delete_claim.unwrap_or_default()),
        api::StorageType::Ephemeral => storage.delete_claim,
        api::StorageType::Jbod => None,
    }
}

fn of_volume(storage: &api::Storage, id: i32) -> Option<bool> {
    let volumes = storage.volumes.iter().flatten().filter(|volume| volume.id == id);
    let said = volumes.filter_map(|volume| match volume.type_ {
        api::VolumeType::PersistentClaim => Some(volume.delete_claim.unwrap_or_default()),
        api::VolumeType::Ephemeral => volume.delete_claim,
    });
    // Of two that contradict each other the one counts that keeps the data.
    said.min()
}

/// The same storage, but for what is said of keeping claims: that holds at once, whatever else of a change is held.
pub(crate) fn with_what_is_said(mut storage: api::Storage, asked: &api::Storage) -> api::Storage {
    if storage.type_ != api::StorageType::Jbod {
        storage.delete_claim = of_single(asked).or(storage.delete_claim);
    }
    for volume in storage.volumes.iter_mut().flatten() {
        volume.delete_claim = of_volume(asked, volume.id).or(volume.delete_claim);
    }
    storage
}

/// The volume that a claim of a pod is for: its id, or `None` for the only one.
fn volume_of(claim: &str, pod: &str) -> Option<Option<i32>> {
    if claim == names::claim(pod, None) {
        return Some(None);
    }
    let id = claim.strip_prefix("data-")?.strip_suffix(pod)?.strip_suffix('-')?;
    id.parse().ok().map(Some)
}

/// The storage that the nodes of a pool have, as their claims tell. Nothing, when none of them ever had a disk.
///
/// What is asked for settles what claims cannot tell: those of earlier versions remember nothing but their names and sizes.
pub(crate) fn storage(
    world: &World,
    pool: &str,
    nodes: &[NodeId],
    asked: &api::Storage,
) -> Option<api::Storage> {
    let pods: Vec<String> = nodes.iter().map(|node| world.key.pod(pool, *node)).collect();
    let has_data = |claim: &&ClaimView| claim.bound && !claim.meta.deleting;
    let claims = world.claims.values().map(AsRef::as_ref).filter(has_data);
    let of_nodes = claims.filter_map(|claim| {
        let pod = claim.meta.labels.get(POD_NAME_LABEL).filter(|pod| pods.contains(pod))?;
        Some((volume_of(&claim.meta.name, pod)?, claim))
    });
    let claims: Vec<(Option<i32>, &ClaimView)> = of_nodes.collect();
    as_written(&claims).or_else(|| by_names(&claims, asked))
}

/// What most claims say. They differ when a change of all of them was interrupted; then either is true of some.
fn as_written(claims: &[(Option<i32>, &ClaimView)]) -> Option<api::Storage> {
    let texts = claims.iter().filter_map(|(_, claim)| claim.meta.annotations.get(STORAGE_ANNOTATION));
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for text in texts {
        *counts.entry(text).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count)?.0;
    serde_json::from_str(most).ok()
}

/// What the names of claims tell: which volumes there are.
fn by_names(claims: &[(Option<i32>, &ClaimView)], asked: &api::Storage) -> Option<api::Storage> {
    let mut volumes: BTreeMap<Option<i32>, Vec<&ClaimView>> = BTreeMap::new();
    for (volume, claim) in claims {
        volumes.entry(*volume).or_default().push(claim);
    }
    let single = volumes.remove(&None);
    let is_single = volumes.is_empty() || asked.type_ == api::StorageType::PersistentClaim;
    match single.filter(|_| is_single) {
        Some(claims) => Some(api::Storage {
            type_: api::StorageType::PersistentClaim,
            size: size(&claims),
            class: claims.first().and_then(|claim| claim.class.clone()),
            selector: claims.first().and_then(|claim| claim.selector.clone()),
            delete_claim: Some(claims.iter().all(|claim| is_marked_disposable(&claim.meta))),
            ..api::Storage::ephemeral()
        }),
        None if volumes.is_empty() => None,
        None => {
            let volumes = volumes.iter().filter_map(|(id, claims)| Some(volume((*id)?, claims, asked)));
            Some(api::Storage {
                type_: api::StorageType::Jbod,
                volumes: Some(volumes.collect()),
                ..api::Storage::ephemeral()
            })
        }
    }
}

fn volume(id: i32, claims: &[&ClaimView], asked: &api::Storage) -> api::Volume {
    let asked = asked.volumes.iter().flatten().find(|volume| volume.id == id);
    api::Volume {
        id,
        type_: api::VolumeType::PersistentClaim,
        size: size(claims),
        class: claims.first().and_then(|claim| claim.class.clone()),
        selector: claims.first().and_then(|claim| claim.selector.clone()),
        delete_claim: Some(claims.iter().all(|claim| is_marked_disposable(&claim.meta))),
        volume_attributes_class: None,
        // Names do not tell where the metadata log is. A mark on a volume that exists is believed: to take it for moved would
        // put the log of controllers elsewhere.
        kraft_metadata: asked.and_then(|volume| volume.kraft_metadata),
        size_limit: None,
    }
}

/// The smallest that any of these claims asks for. One that somebody grew by hand must not make the others grow.
fn size(claims: &[&ClaimView]) -> Option<String> {
    let sizes = claims.iter().filter_map(|claim| claim.requested.as_ref());
    let sizes = sizes.filter_map(|size| Some((size.parse::<Quantity>().ok()?, size)));
    sizes.min_by_key(|(amount, _)| *amount).map(|(_, size)| size.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn storage(wire: Value) -> api::Storage {
        serde_json::from_value(wire).unwrap()
    }

    fn claim(requested: &str, written: Option<&str>) -> ClaimView {
        let mut claim = ClaimView { requested: Some(requested.into()), ..ClaimView::default() };
        let written = written.map(|text| (STORAGE_ANNOTATION.to_owned(), text.to_owned()));
        claim.meta.annotations.extend(written);
        claim
    }

    #[test]
    fn a_claim_tells_its_volume_by_its_name() {
        let cases = [
            ("data-c-brk-0", Some(None)),
            ("data-7-c-brk-0", Some(Some(7))),
            ("data-c-brk-10", None),
            ("data-x-c-brk-0", None),
            ("other-c-brk-0", None),
        ];
        for (name, volume) in cases {
            assert_eq!(volume_of(name, "c-brk-0"), volume, "{name}");
        }
    }

    #[test]
    fn names_and_sizes_tell_enough_to_see_a_change() {
        let (small, grown) = (claim("10Gi", None), claim("99Gi", None));
        let asked = storage(json!({"type": "ephemeral"}));
        let found = by_names(&[(None, &grown), (None, &small)], &asked).unwrap();
        assert_eq!((found.type_, found.size.as_deref()), (api::StorageType::PersistentClaim, Some("10Gi")));

        let marked = json!({"id": 2, "type": "persistent-claim", "size": "1Gi", "kraftMetadata": "shared"});
        let asked = storage(json!({"type": "jbod", "volumes": [marked]}));
        let found = by_names(&[(Some(1), &small), (Some(2), &small)], &asked).unwrap();
        let volumes: Vec<_> = found.volumes.unwrap();
        let told: Vec<_> = volumes.iter().map(|one| (one.id, one.kraft_metadata.is_some())).collect();
        assert_eq!(told, [(1, false), (2, true)]);
        assert_eq!(by_names(&[], &asked), None);
    }

    #[test]
    fn of_an_interrupted_change_that_counts_which_most_claims_tell() {
        let (old, new) = (r#"{"type":"ephemeral"}"#, r#"{"type":"jbod"}"#);
        let claims = [claim("1Gi", Some(old)), claim("1Gi", Some(new)), claim("1Gi", Some(new))];
        let claims: Vec<_> = claims.iter().map(|claim| (None, claim)).collect();
        assert_eq!(as_written(&claims).unwrap().type_, api::StorageType::Jbod);
    }

    #[test]
    fn what_is_said_of_keeping_claims_holds_though_the_rest_is_held() {
        let kept = storage(json!({"type": "jbod", "volumes": [
            {"id": 0, "type": "persistent-claim", "size": "9Gi", "deleteClaim": true},
            {"id": 1, "type": "persistent-claim", "size": "9Gi", "deleteClaim": true}
        ]}));
        let asked = storage(json!({"type": "jbod", "volumes": [
            {"id": 0, "type": "persistent-claim", "size": "much"}
        ]}));
        let volumes = with_what_is_said(kept, &asked).volumes.unwrap();
        let told: Vec<_> = volumes.iter().map(|one| (one.size.as_deref(), one.delete_claim)).collect();
        assert_eq!(told, [(Some("9Gi"), Some(false)), (Some("9Gi"), Some(true))]);
    }
}
