//! What goes with its owner, and what was there before any owner.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karst_core::world::{ClaimView, Meta};

use super::{ApiServer, Item, KINDS, Kind};
use crate::dice::Dice;

/// What a `Kafka` resource may own: not itself, nor what users make. Pods go with their pod sets.
fn may_be_owned(kind: Kind) -> bool {
    !matches!(kind, Kind::Kafka | Kind::Pool | Kind::Pod)
}

impl ApiServer {
    /// Was a `Kafka` resource ever deleted?
    pub(crate) fn was_deleted(&self) -> bool {
        !self.deleted.is_empty()
    }

    /// A user deletes the `Kafka` resource. What it owns goes later.
    pub fn delete_kafka(&mut self) {
        let Some(kafka) = self.kafka().cloned() else { return };
        self.deleted.extend(kafka.metadata.uid.clone());
        self.gone(Kind::Kafka, kafka.metadata.name.as_deref().unwrap_or_default());
    }

    /// The garbage collector: takes what only a deleted `Kafka` resource owns, one after the other.
    pub fn collect_owned(&mut self, dice: &mut Dice) {
        if self.deleted.is_empty() {
            return;
        }
        let is_orphan = |meta: &Meta| {
            !meta.deleting
                && !meta.owners.is_empty()
                && meta.owners.iter().all(|owner| self.deleted.contains(owner))
        };
        let orphans: BTreeSet<(Kind, String, String)> = KINDS
            .into_iter()
            .filter(|kind| may_be_owned(*kind))
            .flat_map(|kind| self.all(kind).map(move |item| (kind, item)))
            .filter_map(|(kind, item)| Some((kind, item.meta().filter(|meta| is_orphan(meta))?)))
            .map(|(kind, meta)| (kind, meta.name.clone(), meta.uid.clone()))
            .collect();
        for (kind, name, uid) in orphans {
            if dice.chance(500) {
                // It was just seen.
                let _ = self.delete(kind, &name, &uid, None);
            }
        }
    }

    /// What was applied before and is no longer, goes. What others added stays.
    pub(super) fn forget_annotations(&mut self, kind: Kind, wanted: &ObjectMeta, meta: &mut Meta) {
        let set: BTreeSet<String> = wanted.annotations.iter().flat_map(|all| all.keys().cloned()).collect();
        for key in self.applied.get(&(kind, meta.name.clone())).into_iter().flatten() {
            if !set.contains(key) {
                meta.annotations.remove(key);
            }
        }
        self.applied.insert((kind, meta.name.clone()), set);
    }

    /// Somebody made a claim before there was an operator. Returns its uid.
    pub fn create_claim(&mut self, name: &str, pod: &str, pool: &str, cluster: &str) -> String {
        use karst_core::names::{CLUSTER_LABEL, POD_NAME_LABEL, POOL_LABEL};
        let labels = [(CLUSTER_LABEL, cluster), (POOL_LABEL, pool), (POD_NAME_LABEL, pod)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let uid = self.fresh_uid();
        let meta = Meta { name: name.to_owned(), uid: uid.clone(), labels: labels.into(), ..Meta::default() };
        let claim =
            ClaimView { meta, requested: Some("1Gi".to_owned()), bound: true, ..ClaimView::default() };
        self.put(Item::Claim(claim.into()));
        uid
    }
}
