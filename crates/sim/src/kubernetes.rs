//! The API server: objects with versions, preconditions and watches that lag behind.
//!
//! It knows nothing of Kafka. What runs in pods is the business of [`crate::kubelet`].

mod item;
mod others;
mod owners;
mod policies;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use karst_api as api;
use karst_core::names::SETTINGS_IN_KAFKA_ANNOTATION;
use karst_core::objects::{Object, pod_set_digest};
use karst_core::world::{
    ClaimView, ConfigMapView, Meta, PlainView, PodSetView, PodView, SecretView, ServiceAccountView,
    ServiceView, WantedPod,
};
use serde_json::Value;

pub use item::{Item, KINDS, Kind, kind_of};
use others::Others;
pub use policies::PolicyEngine;
use watch::Told;
pub use watch::{Event, List, Watcher};

/// An object with the version it has.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Its version.
    pub version: u64,
    /// The object.
    pub item: Item,
}

/// Why a call did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The object is another one by now, or has another version.
    Conflict,
    /// There is no such object.
    Missing,
    /// Something of an earlier life is left.
    Remains,
}

/// How often what was made and deleted: an undisturbed run and a disturbed one must agree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Creations, by kind and name.
    pub created: BTreeMap<(Kind, String), usize>,
    /// Deletions.
    pub deleted: BTreeMap<(Kind, String), usize>,
}

/// Objects by kind and name.
type Objects = BTreeMap<Kind, BTreeMap<String, Stored>>;

/// The API server.
#[derive(Debug, Clone, Default)]
pub struct ApiServer {
    objects: Objects,
    /// What ConfigMaps hold.
    settings: BTreeMap<String, Arc<BTreeMap<String, String>>>,
    /// The claim that a pod's metadata is on, by the pod's uid; none when it is the pod's own.
    volumes: BTreeMap<String, Option<String>>,
    version: u64,
    /// What there was before anything in `told`.
    past: Objects,
    /// What happened since, in order, as watches tell it.
    told: BTreeMap<Kind, Vec<Told>>,
    /// For how long at most a watch lags behind, in milliseconds.
    pub lag: u64,
    /// What was made and deleted.
    pub counts: Counts,
    /// When anything changed last, in milliseconds.
    pub changed: u64,
    /// Was a Secret written since somebody last asked?
    pub(crate) has_new_secrets: bool,
    /// How many Secrets users deleted.
    pub(crate) lost_secrets: u64,
    /// The annotations that were set by the last apply of an object.
    applied: BTreeMap<(Kind, String), BTreeSet<String>>,
    /// What a policy of whoever runs Kubernetes does.
    pub(crate) engine: PolicyEngine,
    /// What somebody is going to change back, and when.
    provoked: BTreeMap<(Kind, String), u64>,
    /// `Kafka` resources that were deleted, by uid. What they own goes too.
    deleted: BTreeSet<String>,
    /// What is not labelled as the cluster's.
    others: Others,
    now: u64,
    lags: u64,
}

/// Another spec is another generation; another annotation is not.
fn count_generation(meta: &mut ObjectMeta, is_other: bool) {
    meta.generation = meta.generation.map(|generation| generation + i64::from(is_other));
}

fn merged<S: serde::Serialize + serde::de::DeserializeOwned>(
    old: Option<&S>,
    patch: &Value,
) -> Result<S, serde_json::Error> {
    let mut value = old.map(serde_json::to_value).transpose()?.unwrap_or_else(|| serde_json::json!({}));
    if let (Some(fields), Some(patch)) = (value.as_object_mut(), patch.as_object()) {
        for (key, new) in patch {
            if new.is_null() {
                fields.remove(key);
            } else {
                fields.insert(key.clone(), new.clone());
            }
        }
    }
    serde_json::from_value(value)
}

impl ApiServer {
    /// It is this time now, and watches lag behind by this much.
    pub fn at(&mut self, now: u64, lag: u64) {
        self.now = now;
        self.lags = lag;
    }

    fn timestamp(&self) -> Timestamp {
        crate::sim::timestamp(self.now)
    }

    fn put(&mut self, mut item: Item) -> Stored {
        self.version += 1;
        self.changed = self.now;
        item.set_version(self.version);
        let stored = Stored { version: self.version, item };
        self.has_new_secrets |= stored.item.kind() == Kind::Secret;
        let (kind, name) = (stored.item.kind(), stored.item.name().to_owned());
        if self.objects.entry(kind).or_default().insert(name.clone(), stored.clone()).is_none() {
            *self.counts.created.entry((kind, name)).or_default() += 1;
        }
        self.tell(kind, Event::Put(stored.clone()));
        stored
    }

    fn gone(&mut self, kind: Kind, name: &str) {
        if let Some(stored) = self.objects.get_mut(&kind).and_then(|all| all.remove(name)) {
            self.changed = self.now;
            *self.counts.deleted.entry((kind, name.to_owned())).or_default() += 1;
            if kind == Kind::ConfigMap {
                self.settings.remove(name);
            }
            if kind == Kind::Pod {
                self.volumes.remove(stored.item.uid());
            }
            self.tell(kind, Event::Gone { kind, name: name.to_owned(), version: self.version });
        }
    }

    /// One object.
    pub fn get(&self, kind: Kind, name: &str) -> Option<&Item> {
        self.find(kind, name).map(|stored| &stored.item)
    }

    /// One object, with its version.
    pub fn stored(&self, kind: Kind, name: &str) -> Option<Stored> {
        self.find(kind, name).cloned()
    }

    fn find(&self, kind: Kind, name: &str) -> Option<&Stored> {
        self.objects.get(&kind)?.get(name)
    }

    /// All objects of a kind.
    pub fn all(&self, kind: Kind) -> impl Iterator<Item = &Item> {
        of_kind(&self.objects, kind).map(|stored| &stored.item)
    }

    /// Does the list of settings that Kafka was told name one that nobody runs with any more, until nodes are asked once more?
    pub(crate) fn remembers_a_setting_that_is_gone(&self) -> bool {
        let told = |item: &Item| match item {
            Item::Service(service) => service.meta.annotations.get(SETTINGS_IN_KAFKA_ANNOTATION).cloned(),
            _ => None,
        };
        self.all(Kind::Service).filter_map(told).any(|told| told.contains('@'))
    }

    /// All pods.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<PodView>> {
        self.all(Kind::Pod).filter_map(|item| if let Item::Pod(pod) = item { Some(pod) } else { None })
    }

    /// All claims.
    pub fn claims(&self) -> impl Iterator<Item = &Arc<ClaimView>> {
        self.all(Kind::Claim)
            .filter_map(|item| if let Item::Claim(claim) = item { Some(claim) } else { None })
    }

    /// All pod sets.
    pub fn pod_sets(&self) -> impl Iterator<Item = &Arc<PodSetView>> {
        self.all(Kind::PodSet).filter_map(|item| if let Item::PodSet(set) = item { Some(set) } else { None })
    }

    /// All pools.
    pub fn pools(&self) -> impl Iterator<Item = &Arc<api::KafkaNodePool>> {
        self.all(Kind::Pool).filter_map(|item| if let Item::Pool(pool) = item { Some(pool) } else { None })
    }

    /// The `Kafka` resource.
    pub fn kafka(&self) -> Option<&Arc<api::Kafka>> {
        self.all(Kind::Kafka).find_map(|item| if let Item::Kafka(kafka) = item { Some(kafka) } else { None })
    }

    /// A pod.
    pub fn pod(&self, name: &str) -> Option<&Arc<PodView>> {
        if let Some(Item::Pod(pod)) = self.get(Kind::Pod, name) { Some(pod) } else { None }
    }

    /// A claim.
    pub fn claim(&self, name: &str) -> Option<&Arc<ClaimView>> {
        if let Some(Item::Claim(claim)) = self.get(Kind::Claim, name) { Some(claim) } else { None }
    }

    /// What a ConfigMap holds.
    pub fn settings(&self, name: &str) -> Option<&Arc<BTreeMap<String, String>>> {
        self.settings.get(name)
    }

    /// The claim that a pod's metadata is on.
    pub fn volume(&self, uid: &str) -> Option<&String> {
        self.volumes.get(uid)?.as_ref()
    }

    /// A user makes a `Kafka` resource.
    pub fn create_kafka(&mut self, mut kafka: api::Kafka) {
        self.fill(&mut kafka.metadata);
        self.put(Item::Kafka(Arc::new(kafka)));
    }

    /// A user makes a pool.
    pub fn create_pool(&mut self, mut pool: api::KafkaNodePool) {
        self.fill(&mut pool.metadata);
        self.put(Item::Pool(Arc::new(pool)));
    }

    fn fill(&mut self, meta: &mut ObjectMeta) {
        meta.namespace = Some(crate::sim::NAMESPACE.to_owned());
        meta.uid = Some(self.fresh_uid());
        meta.generation = Some(1);
    }

    fn fresh_uid(&self) -> String {
        format!("uid-{}", self.version + 1)
    }

    /// A user changes the `Kafka` resource.
    pub fn edit_kafka(&mut self, edit: impl FnOnce(&mut api::Kafka)) {
        let Some(mut kafka) = self.kafka().cloned() else { return };
        let spec = kafka.spec.clone();
        let inner = Arc::make_mut(&mut kafka);
        edit(inner);
        count_generation(&mut inner.metadata, inner.spec != spec);
        self.put(Item::Kafka(kafka));
    }

    /// A user changes a pool.
    pub fn edit_pool(&mut self, name: &str, edit: impl FnOnce(&mut api::KafkaNodePool)) {
        let Some(Item::Pool(pool)) = self.get(Kind::Pool, name) else { return };
        let mut pool = Arc::clone(pool);
        let (spec, was_going) = (pool.spec.clone(), pool.metadata.deletion_timestamp.is_some());
        let inner = Arc::make_mut(&mut pool);
        edit(inner);
        let is_going = inner.metadata.deletion_timestamp.is_some();
        count_generation(&mut inner.metadata, inner.spec != spec || is_going != was_going);
        self.put(Item::Pool(pool));
    }

    /// A user deletes a pool. With a finalizer it stays until that is removed.
    pub fn delete_pool(&mut self, name: &str) {
        let now = self.timestamp();
        let has_finalizer = matches!(self.get(Kind::Pool, name), Some(Item::Pool(pool))
            if pool.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty()));
        if has_finalizer {
            self.edit_pool(name, |pool| {
                pool.metadata.deletion_timestamp.get_or_insert(Time(now));
            });
        } else {
            self.gone(Kind::Pool, name);
        }
    }

    /// Somebody changes a pod's view: a user its annotations, the kubelet its state.
    pub fn edit_pod(&mut self, name: &str, edit: impl FnOnce(&mut PodView)) -> Option<Stored> {
        let mut pod = Arc::clone(self.pod(name)?);
        edit(Arc::make_mut(&mut pod));
        Some(self.put(Item::Pod(pod)))
    }

    /// Somebody changes a pod set's annotations.
    pub fn edit_set(&mut self, name: &str, edit: impl FnOnce(&mut PodSetView)) -> Option<Stored> {
        let Some(Item::PodSet(set)) = self.get(Kind::PodSet, name) else { return None };
        let mut set = Arc::clone(set);
        edit(Arc::make_mut(&mut set));
        Some(self.put(Item::PodSet(set)))
    }

    /// Merges into a status, under the precondition that the version is this one, if one is given. (A uid would be ignored.)
    pub fn patch_status(
        &mut self,
        kind: Kind,
        name: &str,
        version: Option<&str>,
        patch: &Value,
    ) -> Result<Stored, Refusal> {
        let stored = self.find(kind, name).ok_or(Refusal::Missing)?;
        if version.is_some_and(|version| version != stored.version.to_string()) {
            return Err(Refusal::Conflict);
        }
        let item = match &stored.item {
            Item::Kafka(kafka) => {
                let mut kafka = Arc::clone(kafka);
                let new = merged(kafka.status.as_ref(), patch).map_err(|_| Refusal::Conflict)?;
                Arc::make_mut(&mut kafka).status = Some(new);
                Item::Kafka(kafka)
            }
            Item::Pool(pool) => {
                let mut pool = Arc::clone(pool);
                let new = merged(pool.status.as_ref(), patch).map_err(|_| Refusal::Conflict)?;
                Arc::make_mut(&mut pool).status = Some(new);
                Item::Pool(pool)
            }
            _ => return Err(Refusal::Missing),
        };
        Ok(self.put(item))
    }

    /// Writes what a pod set reports.
    pub fn report_set(&mut self, name: &str, status: &api::StrimziPodSetStatus) -> Result<Stored, Refusal> {
        self.edit_set(name, |set| set.status = Some(status.clone())).ok_or(Refusal::Missing)
    }

    /// Sets a pool's finalizers, under the precondition that the version is this one.
    pub fn set_finalizers(
        &mut self,
        name: &str,
        version: Option<&str>,
        finalizers: Vec<String>,
    ) -> Result<Option<Stored>, Refusal> {
        let stored = self.find(Kind::Pool, name).ok_or(Refusal::Missing)?;
        if version.is_some_and(|version| version != stored.version.to_string()) {
            return Err(Refusal::Conflict);
        }
        let Item::Pool(pool) = &stored.item else { return Err(Refusal::Missing) };
        let mut pool = Arc::clone(pool);
        let is_free = finalizers.is_empty();
        Arc::make_mut(&mut pool).metadata.finalizers = (!is_free).then_some(finalizers);
        if is_free && pool.metadata.deletion_timestamp.is_some() {
            self.gone(Kind::Pool, name);
            return Ok(None);
        }
        Ok(Some(self.put(Item::Pool(pool))))
    }

    /// Server-side apply: what Karst sets is set, what others added stays. It is refused if what is there is not what was seen.
    pub fn apply(&mut self, object: Object) -> Result<Stored, Refusal> {
        let wanted = object.meta();
        let name = wanted.name.clone().ok_or(Refusal::Missing)?;
        let kind = kind_of(&object);
        let old = self.find(kind, &name);
        let is_as_seen = old.map(|old| old.version.to_string()) == wanted.resource_version;
        if !is_as_seen || self.others.has(kind, &name) {
            return Err(Refusal::Conflict);
        }
        let old = old.map(|old| old.item.clone());
        let mut meta = self.applied_meta(wanted, old.as_ref().and_then(Item::meta));
        self.forget_annotations(kind, wanted, &mut meta);
        let item = match object {
            Object::ServiceAccount(_) => Item::Account(Arc::new(ServiceAccountView { meta })),
            Object::Service(service) => {
                let digest = self.kept_service(&service);
                Item::Service(Arc::new(ServiceView { meta, digest, ..ServiceView::default() }))
            }
            Object::ConfigMap(map) => {
                let data = map.data.unwrap_or_default();
                let view = ConfigMapView::new(meta, Some(&data), |text| text.into());
                self.settings.insert(name, Arc::new(data));
                Item::ConfigMap(Arc::new(view))
            }
            Object::Budget(budget) => {
                Item::Budget(Arc::new(PlainView { meta, digest: self.kept_budget(budget.spec.as_ref()) }))
            }
            Object::Policy(policy) => {
                Item::Policy(Arc::new(PlainView { meta, digest: self.kept_policy(policy.spec.as_ref()) }))
            }
            // Of a claim that exists only the metadata changes.
            Object::Claim(claim) => Item::Claim(Arc::new(match old {
                Some(Item::Claim(old)) => ClaimView { meta, ..(*old).clone() },
                _ => new_claim(meta, claim),
            })),
            Object::PodSet(set) => {
                let digest = pod_set_digest(&set.spec).ok();
                let pods = set.spec.pods.iter().filter_map(wanted_pod).collect();
                let (generation, status) = match old {
                    Some(Item::PodSet(old)) => {
                        (old.generation + i64::from(old.digest != digest), old.status.clone())
                    }
                    _ => (1, None),
                };
                Item::PodSet(Arc::new(PodSetView { meta, generation, pods, digest, status }))
            }
        };
        let stored = self.put(item);
        self.provoke(kind, stored.item.name());
        Ok(stored)
    }

    fn applied_meta(&self, wanted: &ObjectMeta, old: Option<&Meta>) -> Meta {
        let mut meta = old.cloned().unwrap_or_else(|| Meta {
            name: wanted.name.clone().unwrap_or_default(),
            uid: self.fresh_uid(),
            created: Some(self.timestamp()),
            ..Meta::default()
        });
        meta.labels.extend(wanted.labels.clone().unwrap_or_default());
        meta.annotations.extend(wanted.annotations.clone().unwrap_or_default());
        meta.owners = wanted.owner_references.iter().flatten().map(|owner| owner.uid.clone()).collect();
        meta
    }

    /// Writes a Secret as a whole: a new one, or in place of the one that was seen.
    pub fn write_secret(&mut self, secret: Secret) -> Result<Stored, Refusal> {
        let wanted = &secret.metadata;
        let old = self.find(Kind::Secret, wanted.name.as_deref().unwrap_or_default());
        if old.map(|old| old.version.to_string()) != wanted.resource_version {
            return Err(Refusal::Conflict);
        }
        let as_a_whole = |old: Meta| Meta { labels: BTreeMap::new(), annotations: BTreeMap::new(), ..old };
        let old = old.and_then(|old| old.item.meta()).cloned().map(as_a_whole);
        let meta = self.admitted(self.applied_meta(wanted, old.as_ref()));
        let data = secret.data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0)).collect();
        let stored = self.put(Item::Secret(Arc::new(SecretView::new(meta, data))));
        self.provoke(Kind::Secret, stored.item.name());
        Ok(stored)
    }

    /// A user sets an annotation of a Secret.
    pub fn annotate_secret(&mut self, name: &str, annotation: &str, value: &str) {
        let Some(Item::Secret(secret)) = self.get(Kind::Secret, name) else { return };
        let Some(material) = secret.material() else { return };
        let (mut meta, data) = (secret.meta.clone(), material.secret.data.clone());
        meta.annotations.insert(annotation.to_owned(), value.to_owned());
        self.put(Item::Secret(Arc::new(SecretView::new(meta, data))));
    }

    /// A user deletes a Secret.
    pub fn delete_secret(&mut self, name: &str) {
        if self.get(Kind::Secret, name).is_some() {
            self.lost_secrets += 1;
            self.gone(Kind::Secret, name);
        }
    }

    /// A user writes other content into entries of a Secret of an authority.
    pub fn overwrite_secret(&mut self, name: &str, entries: impl IntoIterator<Item = (String, Vec<u8>)>) {
        let Some(Item::Secret(secret)) = self.get(Kind::Secret, name) else { return };
        let Some(material) = secret.material() else { return };
        let (meta, mut data) = (secret.meta.clone(), material.secret.data.clone());
        data.extend(entries);
        self.put(Item::Secret(Arc::new(SecretView::new(meta, data))));
    }

    /// Gives a Secret other owners, if it is still the one that was seen.
    pub fn own(&mut self, name: &str, uid: &str, owners: Vec<String>) -> Result<Stored, Refusal> {
        let Some(Item::Secret(secret)) = self.get(Kind::Secret, name) else { return Err(Refusal::Missing) };
        if secret.meta.uid != uid {
            return Err(Refusal::Conflict);
        }
        let mut secret = Arc::clone(secret);
        Arc::make_mut(&mut secret).meta.owners = owners;
        Ok(self.put(Item::Secret(secret)))
    }

    /// Changes a claim, if it is still the one that was seen.
    pub fn edit_claim(
        &mut self,
        name: &str,
        uid: &str,
        edit: impl FnOnce(&mut ClaimView),
    ) -> Result<Stored, Refusal> {
        let mut claim = Arc::clone(self.claim(name).ok_or(Refusal::Missing)?);
        if claim.meta.uid != uid {
            return Err(Refusal::Conflict);
        }
        edit(Arc::make_mut(&mut claim));
        Ok(self.put(Item::Claim(claim)))
    }

    /// Creates a pod of a pod set.
    pub fn create_pod(&mut self, json: &str, owner: &str) -> Result<Stored, Refusal> {
        let pod: Value = serde_json::from_str(json).map_err(|_| Refusal::Missing)?;
        let meta: ObjectMeta =
            serde_json::from_value(pod["metadata"].clone()).map_err(|_| Refusal::Missing)?;
        let name = meta.name.clone().unwrap_or_default();
        if self.pod(&name).is_some() {
            return Err(Refusal::Conflict);
        }
        let mut meta = self.applied_meta(&meta, None);
        meta.owners = vec![owner.to_owned()];
        let volumes = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
        let claim = volumes.iter().find_map(|one| one["persistentVolumeClaim"]["claimName"].as_str());
        if let Some(claim) = claim {
            self.others.use_of_pod(&name, claim);
        }
        self.volumes.insert(meta.uid.clone(), claim.map(str::to_owned));
        let since = Some(self.timestamp());
        let view = PodView { meta, phase: "Pending".to_owned(), ready: false, since, ..PodView::default() };
        Ok(self.put(Item::Pod(Arc::new(view))))
    }

    /// Is it still the object that was seen, and in that state, if one is given?
    pub fn is_still(&self, kind: Kind, name: &str, uid: &str, version: Option<&str>) -> bool {
        self.find(kind, name).is_some_and(|stored| {
            stored.item.uid() == uid && version.is_none_or(|version| version == stored.version.to_string())
        })
    }

    /// Deletes an object if it is still the one that was seen. Pods end in grace, claims when nobody uses them.
    pub fn delete(
        &mut self,
        kind: Kind,
        name: &str,
        uid: &str,
        version: Option<&str>,
    ) -> Result<(), Refusal> {
        let item = self.get(kind, name).ok_or(Refusal::Missing)?.clone();
        if !self.is_still(kind, name, uid, version) {
            return Err(Refusal::Conflict);
        }
        match item {
            Item::Pod(mut pod) => {
                if !pod.meta.deleting {
                    Arc::make_mut(&mut pod).meta.deleting = true;
                    self.put(Item::Pod(pod));
                }
            }
            Item::Claim(mut claim) => {
                if !claim.meta.deleting {
                    Arc::make_mut(&mut claim).meta.deleting = true;
                    self.put(Item::Claim(claim));
                }
            }
            _ => self.gone(kind, name),
        }
        Ok(())
    }

    /// A pod has ended.
    pub fn end_pod(&mut self, name: &str) {
        self.gone(Kind::Pod, name);
    }

    /// Lets deleted claims go that no pod uses which has a machine, and deletes pods whose pod set is gone. Returns the uids of
    /// the claims.
    pub fn collect_garbage(&mut self, has_machine: impl Fn(&str) -> bool) -> Vec<String> {
        let is_used = |name: &str| {
            let users = self.volumes.iter().filter(|(_, claim)| claim.as_deref() == Some(name));
            users.into_iter().any(|(pod, _)| has_machine(pod))
        };
        let free: Vec<_> = self
            .claims()
            .filter(|claim| claim.meta.deleting && !is_used(&claim.meta.name))
            .map(|claim| (claim.meta.name.clone(), claim.meta.uid.clone()))
            .collect();
        for (name, _) in &free {
            self.gone(Kind::Claim, name);
        }
        let sets: Vec<&str> = self.pod_sets().map(|set| set.meta.uid.as_str()).collect();
        let is_set = |owner: &String| sets.contains(&owner.as_str());
        let orphans: Vec<_> = self
            .pods()
            .filter(|pod| !pod.meta.deleting && !pod.meta.owners.iter().any(is_set))
            .map(|pod| (pod.meta.name.clone(), pod.meta.uid.clone()))
            .collect();
        for (name, uid) in orphans {
            // It was just seen.
            let _ = self.delete(Kind::Pod, &name, &uid, None);
        }
        free.into_iter().map(|(_, uid)| uid).collect()
    }

    /// Is nothing left of an earlier life?
    pub fn has_remains(&self) -> bool {
        self.pod_sets().next().is_some() || self.claims().next().is_some()
    }
}

fn of_kind(objects: &Objects, kind: Kind) -> impl Iterator<Item = &Stored> {
    objects.get(&kind).into_iter().flat_map(BTreeMap::values)
}

fn new_claim(meta: Meta, claim: PersistentVolumeClaim) -> ClaimView {
    let spec = claim.spec.unwrap_or_default();
    let requests = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
    ClaimView {
        meta,
        requested: requests.get("storage").map(|size| size.0.clone()),
        class: spec.storage_class_name,
        selector: spec.selector.and_then(|selector| selector.match_labels),
        ..ClaimView::default()
    }
}

fn wanted_pod(pod: &Value) -> Option<(String, WantedPod)> {
    let name = pod["metadata"]["name"].as_str()?.to_owned();
    let revision = karst_core::pods::revision(pod).map(str::to_owned);
    Some((name, WantedPod { json: Arc::from(pod.to_string()), revision }))
}
