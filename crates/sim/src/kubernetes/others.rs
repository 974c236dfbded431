//! Objects that are not labelled as the cluster's: those of somebody else, and pools that were labelled as another cluster's. No watch of
//! the operator tells of them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karst_core::names::MANAGED_BY_LABEL;

use super::{ApiServer, Item, Kind};

/// Such objects, and what was done to them.
#[derive(Debug, Clone, Default)]
pub(super) struct Others {
    objects: BTreeMap<(Kind, String), ObjectMeta>,
    pools: BTreeMap<String, Item>,
    /// The first thing that was done to an object of somebody else.
    harm: Option<String>,
}

impl Others {
    pub(super) fn has(&self, kind: Kind, name: &str) -> bool {
        self.objects.contains_key(&(kind, name.to_owned()))
    }

    /// A pod is made that uses a claim.
    pub(super) fn use_of_pod(&mut self, pod: &str, claim: &str) {
        if self.has(Kind::Claim, claim) {
            self.harm
                .get_or_insert_with(|| format!("pod {pod} is made on {claim}, which is somebody else's"));
        }
    }
}

impl ApiServer {
    /// Somebody else makes an object.
    pub(crate) fn create_other(&mut self, kind: Kind, name: &str) {
        let labels = [(MANAGED_BY_LABEL.to_owned(), "somebody-else".to_owned())];
        let meta = ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(format!("other-{name}")),
            resource_version: Some(self.version.to_string()),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        };
        self.others.objects.insert((kind, name.to_owned()), meta);
    }

    /// Somebody else deletes all of theirs.
    pub(crate) fn delete_others(&mut self) {
        self.others.objects.clear();
    }

    /// An object of somebody else, as whoever asks for it by name sees it.
    pub(crate) fn other(&self, kind: Kind, name: &str) -> Option<&ObjectMeta> {
        self.others.objects.get(&(kind, name.to_owned()))
    }

    /// An object of somebody else is written over.
    pub(crate) fn take_over(&mut self, kind: Kind, name: &str) {
        if self.others.objects.remove(&(kind, name.to_owned())).is_some() {
            self.others
                .harm
                .get_or_insert_with(|| format!("{kind:?} {name} of somebody else is written over"));
        }
    }

    /// What was done to an object of somebody else.
    pub(crate) fn harm_to_others(&self) -> Option<&String> {
        self.others.harm.as_ref()
    }

    /// A pool is labelled as another cluster's.
    pub(crate) fn give_away_pool(&mut self, name: &str) {
        if let Some(pool) = self.get(Kind::Pool, name).cloned() {
            self.others.pools.insert(name.to_owned(), pool);
            self.gone(Kind::Pool, name);
        }
    }

    /// It is labelled as this cluster's again.
    pub(crate) fn take_back_pool(&mut self, name: &str) {
        if let Some(pool) = self.others.pools.remove(name) {
            self.put(pool);
        }
    }
}
