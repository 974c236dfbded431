//! The Kubernetes objects of a cluster, and whether what exists is what is wanted.
//!
//! An object is written only when it differs from what was observed in something Karst sets, so a cluster that
//! is as it should be causes no request at all.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolumeClaim, PersistentVolumeClaimSpec, Service, ServiceAccount, ServicePort,
    ServiceSpec, VolumeResourceRequirements,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use karst_api as api;
use serde_json::Value;

use crate::cluster::{Cluster, Node, Pool};
use crate::config::REPLICATION_PORT;
use crate::digest::Digest;
use crate::empty_disk::{self, EmptyDisk};
use crate::ids::{ClusterId, NodeId};
use crate::let_in::{self, LetIn};
use crate::listeners::address::{self, Served};
use crate::listeners::{ClientListener, Reach};
use crate::names::{
    ADDITIONS_ANNOTATION, ADVERTISED_ANNOTATION, BROKER_ROLE_LABEL, DELETE_CLAIM_ANNOTATION, DISK_ANNOTATION,
    EMPTIED_ANNOTATION, FIRST_CLAIM_ANNOTATION, LET_IN_ANNOTATION, POD_NAME_LABEL, POOL_LABEL,
    RESTORED_POD_ANNOTATION, SETTINGS_IN_KAFKA_ANNOTATION, node_of_pod,
};
use crate::podset::Rendered;
use crate::quorum::{CONTROLLER_PORT, InitialControllers, Kind, StorageFormat};
use crate::references::Wish;
use crate::restoration::{self, Restoration};
use crate::sheet::{self, Common, Known, Outcome, Own, Sheet};
use crate::storage::{Disk, Medium};
use crate::template::SharedTemplate;
use crate::world::{ClaimView, Meta, World};
use crate::{
    anew, certificates, claim_memory, dynamic, fences, limits, logging, metrics, stored, strangers, unproven,
};

/// What the annotations about its certificate add to a pod, at most.
const CERTIFICATE_WEIGHT: usize = 256;
/// What a listener adds to a pod, at most.
const LISTENER_WEIGHT: usize = 128;

/// An object to be written.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)]
pub enum Object {
    /// The identity of the nodes in Kubernetes.
    ServiceAccount(ServiceAccount),
    /// How nodes and clients find each other.
    Service(Service),
    /// What a node reads when it starts.
    ConfigMap(ConfigMap),
    /// How many pods may be evicted at once.
    Budget(PodDisruptionBudget),
    /// Who may connect to the pods.
    Policy(NetworkPolicy),
    /// A disk of a node.
    Claim(PersistentVolumeClaim),
    /// The pods of a pool.
    PodSet(api::StrimziPodSet),
}

impl Object {
    /// Kind and name, for people.
    pub fn describe(&self) -> String {
        format!("{} {}", self.kind(), self.meta().name.as_deref().unwrap_or_default())
    }

    /// Its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ServiceAccount(_) => "ServiceAccount",
            Self::Service(_) => "Service",
            Self::ConfigMap(_) => "ConfigMap",
            Self::Budget(_) => "PodDisruptionBudget",
            Self::Policy(_) => "NetworkPolicy",
            Self::Claim(_) => "PersistentVolumeClaim",
            Self::PodSet(_) => "StrimziPodSet",
        }
    }

    /// Its metadata.
    pub fn meta(&self) -> &ObjectMeta {
        match self {
            Self::ServiceAccount(object) => &object.metadata,
            Self::Service(object) => &object.metadata,
            Self::ConfigMap(object) => &object.metadata,
            Self::Budget(object) => &object.metadata,
            Self::Policy(object) => &object.metadata,
            Self::Claim(object) => &object.metadata,
            Self::PodSet(object) => &object.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::ServiceAccount(object) => &mut object.metadata,
            Self::Service(object) => &mut object.metadata,
            Self::ConfigMap(object) => &mut object.metadata,
            Self::Budget(object) => &mut object.metadata,
            Self::Policy(object) => &mut object.metadata,
            Self::Claim(object) => &mut object.metadata,
            Self::PodSet(object) => &mut object.metadata,
        }
    }

    /// Who the object is that exists already, if one does, and the fingerprint of what Karst sets in it.
    fn seen<'a>(&self, world: &'a World) -> Option<(&'a Meta, Option<Digest>)> {
        let name = self.meta().name.as_deref().unwrap_or_default();
        match self {
            Self::ServiceAccount(_) => world.service_accounts.get(name).map(|seen| (&seen.meta, None)),
            Self::Service(_) => world.services.get(name).map(|seen| (&seen.meta, seen.digest)),
            Self::ConfigMap(_) => world.config_maps.get(name).map(|seen| (&seen.meta, seen.digest)),
            Self::Budget(_) => world.budgets.get(name).map(|seen| (&seen.meta, seen.digest)),
            Self::Policy(_) => world.policies.get(name).map(|seen| (&seen.meta, seen.digest)),
            Self::Claim(_) => world.claims.get(name).map(|seen| (&seen.meta, None)),
            Self::PodSet(_) => world.pod_sets.get(name).map(|seen| (&seen.meta, seen.digest)),
        }
    }

    /// Who the object is that exists already, if one does.
    pub(crate) fn seen_meta<'a>(&self, world: &'a World) -> Option<&'a Meta> {
        self.seen(world).map(|(meta, _)| meta)
    }

    /// The fingerprint of what Karst sets in it besides metadata. Of a claim that exists only the metadata is looked at: most of
    /// the rest cannot be changed, and growing it is a step of its own.
    pub(crate) fn digest(&self) -> Result<Option<Digest>, serde_json::Error> {
        Ok(match self {
            Self::ServiceAccount(_) | Self::Claim(_) => None,
            Self::Service(wanted) => Some(service_digest(wanted)?),
            Self::ConfigMap(wanted) => Some(config_digest(wanted.data.as_ref())?),
            Self::PodSet(wanted) => Some(pod_set_digest(&wanted.spec)?),
            Self::Budget(wanted) => Some(stored::budget_digest(wanted.spec.as_ref())?),
            Self::Policy(wanted) => Some(stored::policy_digest(wanted.spec.as_ref())?),
        })
    }

    /// The object as it is sent.
    pub fn to_json(&self) -> Result<Value, serde_json::Error> {
        match self {
            Self::ServiceAccount(object) => serde_json::to_value(object),
            Self::Service(object) => serde_json::to_value(object),
            Self::ConfigMap(object) => serde_json::to_value(object),
            Self::Budget(object) => serde_json::to_value(object),
            Self::Policy(object) => serde_json::to_value(object),
            Self::Claim(object) => serde_json::to_value(object),
            Self::PodSet(object) => serde_json::to_value(object),
        }
    }

    /// The fingerprint of all that is asked for, whatever object it is to replace.
    pub(crate) fn fingerprint(&self) -> Result<Digest, serde_json::Error> {
        let mut object = self.to_json()?;
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.remove("uid");
            meta.remove("resourceVersion");
        }
        Ok(Digest::of_json(&object))
    }

    /// The same, with the version of what it is to replace. Without one it is to be new.
    ///
    /// Two operators can believe to lead for a moment. The one that sees less must not undo what the other did: a pod set
    /// that lists fewer pods takes them away, and settings of yesterday form a quorum anew.
    pub(crate) fn in_place_of_seen(mut self, world: &World) -> Self {
        let seen = self.seen(world).map(|(seen, _)| (seen.uid.clone(), seen.resource_version.clone()));
        let (uid, version) = seen.unzip();
        let meta = self.meta_mut();
        (meta.uid, meta.resource_version) = (uid, version);
        self
    }

    /// Is it hard to undo, so that whoever writes it asks once more what users want? Pods come and go with their pod set, and a node that
    /// starts in the moment in which its vote is not to be restored, or no longer, has the wrong disk for good.
    pub fn is_hard_to_undo(&self, world: &World) -> bool {
        match self {
            Self::PodSet(set) => changes_pods(set, world),
            Self::ConfigMap(map) => gives_or_takes_vote(map, world),
            _ => false,
        }
    }

    /// Is this what exists already, in all that Karst sets?
    pub fn is_as_observed(&self, world: &World) -> Result<bool, serde_json::Error> {
        Ok(self.is_seen(self.digest()?, world))
    }

    /// The same, of one whose fingerprint is known.
    fn is_seen(&self, digest: Option<Digest>, world: &World) -> bool {
        let seen = self.seen(world);
        seen.is_some_and(|(meta, seen)| seen == digest && is_in(self.meta(), meta))
    }
}

/// Has it other pods than the one which was seen?
fn changes_pods(wanted: &api::StrimziPodSet, world: &World) -> bool {
    let seen = wanted.metadata.name.as_ref().and_then(|name| world.pod_sets.get(name));
    let names = wanted.spec.pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str());
    let names: BTreeSet<_> = names.collect();
    seen.is_some_and(|seen| !seen.pods.keys().map(String::as_str).eq(names))
}

/// Is its node to vote on an empty disk though somebody may know better, or no longer?
fn gives_or_takes_vote(wanted: &ConfigMap, world: &World) -> bool {
    let seen = wanted.metadata.name.as_ref().and_then(|name| world.config_maps.get(name));
    let decided = [StorageFormat::Restore.as_str(), StorageFormat::StaticAnew.as_str()];
    let gives = |format: Option<&String>, disk: Option<&String>| {
        format.is_some_and(|it| decided.contains(&it.as_str()))
            || disk.is_some_and(|it| it == EmptyDisk::Allowed.as_str())
    };
    let will = |key: &str| wanted.data.as_ref().and_then(|data| data.get(key));
    let is_given = gives(will("storage.format"), will("empty.disk"));
    // One that is gone gave nothing.
    seen.map_or(is_given, |seen| gives(seen.storage_format.as_ref(), seen.empty_disk.as_ref()) != is_given)
}

/// Is all that Karst sets in an object's metadata there already?
pub(crate) fn is_in(wanted: &ObjectMeta, seen: &Meta) -> bool {
    let subset = |wanted: &Option<BTreeMap<String, String>>, seen: &BTreeMap<String, String>| {
        wanted.iter().flatten().all(|(key, value)| seen.get(key) == Some(value))
    };
    let is_marked_alike =
        |mark: &str| wanted.annotations.as_ref().and_then(|all| all.get(mark)) == seen.annotations.get(mark);
    if ![ADDITIONS_ANNOTATION, RESTORED_POD_ANNOTATION, LET_IN_ANNOTATION].into_iter().all(is_marked_alike) {
        return false;
    }
    // A claim that a pod gets again was empty once.
    if claim_memory::emptied_in(seen).is_some() {
        return false;
    }
    let owned = wanted.owner_references.iter().flatten().all(|owner| seen.owners.contains(&owner.uid));
    owned && subset(&wanted.labels, &seen.labels) && subset(&wanted.annotations, &seen.annotations)
}

fn claim_spec(claim: &ClaimView) -> PersistentVolumeClaimSpec {
    let size = claim.requested.iter().map(|size| ("storage".to_owned(), Quantity(size.clone())));
    PersistentVolumeClaimSpec {
        access_modes: claim.access_modes.clone(),
        resources: Some(VolumeResourceRequirements {
            requests: Some(size.collect()),
            ..VolumeResourceRequirements::default()
        }),
        storage_class_name: claim.class.clone(),
        selector: claim
            .selector
            .clone()
            .map(|labels| LabelSelector { match_labels: Some(labels), ..LabelSelector::default() }),
        volume_mode: Some("Filesystem".to_owned()),
        ..PersistentVolumeClaimSpec::default()
    }
}

/// Claims that are to be kept by now and would still go with the `Kafka` resource, as they are without an owner: of those pools that
/// nothing else is carried out for. To keep something is right whatever is wrong with the rest.
pub(crate) fn released_claims(world: &World, is_carried_out: impl Fn(&str) -> bool) -> Vec<Object> {
    let is_open = |claim: &ClaimView| {
        let meta = &claim.meta;
        let is_ours = meta.other_manager().is_none() && !meta.deleting;
        let is_left_alone = meta.labels.get(POOL_LABEL).is_none_or(|pool| !is_carried_out(pool));
        is_ours && is_left_alone && claim_memory::is_to_be_released(world, meta)
    };
    let claims = world.claims.values().filter(|claim| is_open(claim));
    let released = claims.map(|claim| {
        let mut annotations = claim.meta.annotations.clone();
        annotations.insert(DELETE_CLAIM_ANNOTATION.to_owned(), "false".to_owned());
        let metadata = ObjectMeta {
            name: Some(claim.meta.name.clone()),
            namespace: Some(world.key.namespace.clone()),
            labels: Some(claim.meta.labels.clone()),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        };
        let spec = Some(claim_spec(claim));
        Object::Claim(PersistentVolumeClaim { metadata, spec, ..PersistentVolumeClaim::default() })
    });
    let released = released.filter(|claim| !strangers::is_hidden(world, claim));
    released.map(|claim| claim.in_place_of_seen(world)).collect()
}

/// Fingerprint of those fields of a service that Karst sets. The API server fills in others.
pub fn service_digest(service: &Service) -> Result<Digest, serde_json::Error> {
    let empty = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&empty);
    let ports: Vec<_> = spec.ports.iter().flatten().map(|port| (&port.name, port.port)).collect();
    let headless = spec.cluster_ip.as_deref() == Some("None");
    let type_ = spec.type_.as_deref().unwrap_or("ClusterIP");
    let publishes = spec.publish_not_ready_addresses.unwrap_or_default();
    Digest::of(&(type_, ports, &spec.selector, headless, publishes))
}

/// Fingerprint of the spec of a pod set.
pub fn pod_set_digest(spec: &api::StrimziPodSetSpec) -> Result<Digest, serde_json::Error> {
    digest_of_set(&spec.selector, spec.pods.iter().map(Digest::of_json))
}

/// The same, of a set of which only the fingerprints of the pods are known.
pub(crate) fn digest_of_set(
    selector: &LabelSelector,
    pods: impl Iterator<Item = Digest>,
) -> Result<Digest, serde_json::Error> {
    Ok(Digest::of_digests(std::iter::once(Digest::of(selector)?).chain(pods)))
}

/// The keys of a node's ConfigMap that Karst may set. Others are not ours: they can be added, and are not looked at.
const CONFIG_KEYS: &[&str] = &[
    "server.config",
    "cluster.id",
    "metadata.version",
    "storage.format",
    "initial.controllers",
    "empty.disk",
    "jvm.options",
    "java.security",
    "log4j.properties",
    "log4j2.properties",
    metrics::FILE,
];

/// Fingerprint of those keys of a ConfigMap that Karst sets.
pub fn config_digest(data: Option<&BTreeMap<String, String>>) -> Result<Digest, serde_json::Error> {
    let ours: BTreeMap<_, _> =
        data.into_iter().flatten().filter(|(key, _)| CONFIG_KEYS.contains(&key.as_str())).collect();
    Digest::of(&ours)
}

/// Those files of a node's ConfigMap that users asked for. They are remembered: what they were made from can go away.
/// `keep` makes the copy that stays.
pub fn files(
    data: Option<&BTreeMap<String, String>>,
    keep: impl Fn(&str) -> Arc<str>,
) -> BTreeMap<String, Arc<str>> {
    let asked_for = |entry: &str, text: &str| entry == metrics::FILE || logging::is_special(entry, text);
    let found = data.into_iter().flatten().filter(|(entry, text)| asked_for(entry, text));
    found.map(|(entry, text)| (entry.clone(), keep(text))).collect()
}

/// Who owns everything that is made for a cluster: its `Kafka` resource, so that it all goes with it.
pub fn owner(kafka: &api::Kafka) -> OwnerReference {
    OwnerReference {
        api_version: "kafka.strimzi.io/v1".to_owned(),
        kind: "Kafka".to_owned(),
        name: kafka.metadata.name.clone().unwrap_or_default(),
        uid: kafka.metadata.uid.clone().unwrap_or_default(),
        controller: Some(false),
        block_owner_deletion: Some(false),
    }
}

/// What all objects of a cluster are made from.
#[derive(Debug)]
pub struct Render<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// What is true.
    pub world: &'a World,
    /// The id the nodes are formatted with, if it is known.
    pub cluster_id: Option<&'a ClusterId>,
    /// Who formed the quorum, if that is known.
    pub initial: Option<&'a InitialControllers>,
    /// Where its voters are kept.
    pub quorum: Kind,
    /// Where nodes find it when they start.
    pub bootstrap_servers: String,
    /// A voter that gets back its identity.
    pub(crate) restoration: Option<Restoration>,
    /// Settings of the user's that nodes are not to start with yet.
    pub(crate) unproven: &'a BTreeSet<String>,
    /// Nodes that are not made yet, because they would start without what only they have.
    pub(crate) held: &'a BTreeSet<NodeId>,
}

impl Render<'_> {
    /// The objects that do not depend on nodes and are not yet as they should be. They can be made before the cluster has an
    /// identity.
    ///
    /// `told` are the settings that Kafka may have been told while it ran.
    pub(crate) fn shared_to_write(
        &self,
        told: Option<&BTreeSet<String>>,
    ) -> Result<Vec<Object>, serde_json::Error> {
        let common = self.common();
        sheet::remembering(&common, &self.world.settings, |known| {
            let shared = known.shared(&common, told)?.iter();
            let missing = shared.filter(|(object, digest)| !object.is_seen(*digest, self.world));
            let missing = missing.filter(|(object, _)| !strangers::is_hidden(self.world, object));
            Ok(missing.map(|(object, _)| object.clone()).collect())
        })
    }

    /// The objects of the nodes that are not yet as they should be: what pods need first, then the pods. And the pod sets as they
    /// should be, written already or not.
    pub(crate) fn nodes_to_write(&self) -> Result<(Vec<Object>, Rendered), serde_json::Error> {
        let common = self.common();
        sheet::remembering(&common, &self.world.settings, |known| {
            let (mut objects, mut rendered) = (Vec::new(), Rendered::new());
            let needy = strangers::Needy::of(self.world);
            for pool in &self.cluster.pools {
                let nodes = pool.nodes.iter().map(|id| Node { id: *id, pool });
                let nodes: Vec<_> = nodes.filter(|node| self.can_run(*node)).collect();
                for node in &nodes {
                    let outcome = known.of(&common, *node, self.own(*node))?;
                    let (has_settings, claims) =
                        (self.has_settings(*node, outcome), self.missing_claims(outcome));
                    if !has_settings {
                        objects.extend(known.config_map(&common, *node).map(Object::ConfigMap));
                    }
                    let claims =
                        claims.iter().filter_map(|name| known.claim(&common, *node, name.as_deref()));
                    objects
                        .extend(claims.filter_map(|(disk, meta)| self.claim(disk, meta)).map(Object::Claim));
                }
                if !pool.ids.is_empty() {
                    let nodes: Vec<_> =
                        nodes.into_iter().filter(|node| self.may_be_listed(*node, &needy)).collect();
                    let (name, digest, missing) = self.pod_set(&common, pool, &nodes, known)?;
                    rendered.insert(name, digest);
                    objects.extend(missing);
                }
            }
            objects.extend(self.claims_left(&common));
            objects.retain(|object| !strangers::is_hidden(self.world, object));
            Ok((objects, rendered))
        })
    }

    /// Is a node's ConfigMap as it should be?
    fn has_settings(&self, node: Node<'_>, outcome: &mut Outcome) -> bool {
        let Outcome { settings, settings_meta, settings_found, .. } = outcome;
        let seen = self.world.config_maps.get(&self.cluster.pod_name(node));
        seen.is_some_and(|seen| {
            settings_found
                .is_good(seen, |seen| seen.digest == Some(*settings) && is_in(settings_meta, &seen.meta))
        })
    }

    /// Those of a node's claims that are not as they should be, by name. Of one that exists only the metadata is looked at: see
    /// [`Object::digest`].
    fn missing_claims(&self, outcome: &mut Outcome) -> Vec<Option<String>> {
        let mut missing = Vec::new();
        for (meta, found) in &mut outcome.claims {
            let seen = meta.name.as_ref().and_then(|name| self.world.claims.get(name));
            if !seen.is_some_and(|seen| found.is_good(seen, |seen| is_in(meta, &seen.meta))) {
                missing.push(meta.name.clone());
            }
        }
        missing
    }

    /// Claims of nodes that go or are gone, and that say otherwise than the user whether they go, too. One that is to be kept must
    /// not go with the `Kafka` resource either. One that was kept when its node went stays kept, whatever is said later.
    fn claims_left(&self, common: &Common<'_>) -> Vec<Object> {
        let world = self.world;
        let left = world.claims.values().filter(|claim| !claim.meta.deleting).filter_map(|claim| {
            let (labels, name) = (&claim.meta.labels, &claim.meta.name);
            let (pool, pod) = (labels.get(POOL_LABEL)?, labels.get(POD_NAME_LABEL)?);
            let pool = self.cluster.pools.iter().find(|one| one.name == *pool)?;
            let node = Node { id: node_of_pod(pod)?, pool };
            // Nodes are in the order of their ids.
            if pool.nodes.binary_search(&node.id).is_ok() || self.cluster.pod_name(node) != *pod {
                return None;
            }
            let disk = if claim_memory::is_to_be_released(world, &claim.meta) {
                claim_memory::kept_disk(name, pod)?
            } else {
                let mut disks = pool.storage.disks().iter().filter(|_| pool.ids.contains(&node.id));
                disks.find(|disk| disk.claim_name(pod).as_ref() == Some(name))?.clone()
            };
            let meta = sheet::claim_meta(common, node, &disk)?;
            let wanted = self.claim(&disk, meta).filter(|wanted| !is_in(&wanted.metadata, &claim.meta))?;
            Some(Object::Claim(wanted))
        });
        left.collect()
    }

    /// The pod set of a pool: its name, its fingerprint, and the set itself unless it is as it should be.
    fn pod_set(
        &self,
        common: &Common<'_>,
        pool: &Pool,
        nodes: &[Node<'_>],
        known: &mut Known,
    ) -> Result<(String, Digest, Option<Object>), serde_json::Error> {
        let pods: Vec<_> = nodes.iter().filter_map(|node| known.pod_digest(node.id)).collect();
        let wanted = known.set(common, pool, pods)?;
        let (name, digest) = (self.cluster.key.pod_set(&pool.name), wanted.digest());
        if self.world.pod_sets.get(&name).is_some_and(|seen| wanted.is(seen)) {
            return Ok((name, digest, None));
        }
        let mut set = wanted.set.clone();
        for node in nodes {
            set.spec.pods.extend(known.pod(common, *node)?);
        }
        Ok((name, digest, Some(Object::PodSet(set))))
    }

    /// How many bytes of JSON the pod of a node is, with what is added to it when its certificate and its listeners are there.
    pub(crate) fn weight_of_pod(&self, node: Node<'_>) -> Result<usize, serde_json::Error> {
        let (common, own) = (self.common(), self.own(node));
        let pod = limits::weight(&Sheet { common: &common, node, own: &own }.pod()?);
        let has_certificate = self.world.secrets.contains_key(&self.cluster.pod_name(node));
        let certificate = if has_certificate { 0 } else { CERTIFICATE_WEIGHT };
        let listeners = self.cluster.listeners.len().saturating_sub(own.served.len());
        Ok(pod + certificate + LISTENER_WEIGHT * listeners)
    }

    /// What the objects of all nodes are made from.
    fn common(&self) -> Common<'_> {
        Common {
            cluster: self.cluster,
            spec: &self.world.kafka.spec.kafka,
            owner: owner(&self.world.kafka),
            labels: self.world.kafka.metadata.labels.as_ref(),
            settings: &self.world.settings,
            cluster_id: self.cluster_id,
            initial: self.initial,
            quorum: self.quorum,
            bootstrap_servers: &self.bootstrap_servers,
        }
    }

    /// What the objects of one node are made from besides.
    fn own(&self, node: Node<'_>) -> Own {
        let pod = self.cluster.pod_name(node);
        let served = address::served(self.world, self.cluster, node);
        let user = match unproven::settings(self.world, self.cluster, node, self.unproven) {
            Cow::Borrowed(_) => None,
            Cow::Owned(settings) => Some(settings),
        };
        let format = self.storage_format(node);
        let forms = format == StorageFormat::Initial && node.pool.roles.has_controller();
        let initial = self.initial.filter(|_| forms);
        let empty_disk = initial.map(|initial| EmptyDisk::of(self.world, self.cluster, initial, node));
        let is_let_in = format == StorageFormat::StaticAnew || empty_disk == Some(EmptyDisk::Allowed);
        Own {
            user,
            format,
            empty_disk,
            restored: self.restored(node).map(|one| one.voters.clone()),
            logging: self.logging(node),
            metrics: self.metrics(node),
            certificate: certificates::annotations(self.world, &pod),
            memories: self.memories(node, (forms, is_let_in), &served),
            served: served.into_iter().map(Into::into).collect(),
            super_users: self.super_users(&pod),
        }
    }

    /// A node without its certificate is not made yet, nor one whose listeners get their addresses in a moment. One that runs
    /// is never taken away for that, nor one that was asked for before: its pod may only not have been seen.
    fn can_run(&self, node: Node<'_>) -> bool {
        let pod = self.cluster.pod_name(node);
        self.is_listed(node)
            || (!self.held.contains(&node.id)
                && certificates::has_secrets(self.world, &pod, self.cluster.asks_for_certificates())
                && address::may_start(self.world, self.cluster, node).is_ok())
    }

    /// Does the node's pod run, or was it asked for before?
    fn is_listed(&self, node: Node<'_>) -> bool {
        let pod = self.cluster.pod_name(node);
        let set = self.world.pod_sets.get(&self.cluster.key.pod_set(&node.pool.name));
        self.world.pods.contains_key(&pod) || set.is_some_and(|set| set.pods.contains_key(&pod))
    }

    /// A node whose settings or disks are somebody else's is not made. One that runs is not taken away for that.
    fn may_be_listed(&self, node: Node<'_>, needy: &strangers::Needy) -> bool {
        needy.may_start(&self.cluster.pod_name(node)) || self.is_listed(node)
    }

    /// Who may do everything, when the node has them in another order than the spec.
    fn super_users(&self, pod: &str) -> Option<String> {
        let written = self.world.config_maps.get(pod)?.serving.super_users()?;
        self.cluster.authorization.as_ref()?.ordered_as(written, &self.cluster.key.name)
    }

    /// What a node logs.
    fn logging(&self, node: Node<'_>) -> Arc<str> {
        let kind = self.cluster.version.logging;
        match &self.cluster.logging {
            Wish::Text(text) => Arc::clone(text),
            Wish::Kept => {
                self.kept(node, logging::key(kind)).unwrap_or_else(|| logging::default(kind).into())
            }
        }
    }

    /// How a node tells about itself in numbers, if it does.
    fn metrics(&self, node: Node<'_>) -> Option<Arc<str>> {
        match self.cluster.metrics.as_ref()? {
            Wish::Text(text) => Some(Arc::clone(text)),
            Wish::Kept => self.kept(node, metrics::FILE),
        }
    }

    /// A file as the node has it; a new node gets it from any of the others.
    fn kept(&self, node: Node<'_>, file: &str) -> Option<Arc<str>> {
        let maps = &self.world.config_maps;
        match maps.get(&self.cluster.pod_name(node)) {
            Some(own) => own.files.get(file).cloned(),
            None => maps.values().find_map(|map| map.files.get(file).cloned()),
        }
    }

    fn storage_format(&self, node: Node<'_>) -> StorageFormat {
        if self.cluster_id.is_none() {
            return StorageFormat::Adopt;
        }
        let pod = self.cluster.pod_name(node);
        if let_in::is_static(self.world, self.quorum, &pod) {
            // While somebody leads, the launcher can ask whether the others have what this node lost.
            let starts_anew = self.world.answers.quorum.known().is_none()
                && node.pool.roles.has_controller()
                && LetIn::of_static(self.world, self.cluster).has(&pod);
            return if starts_anew { StorageFormat::StaticAnew } else { StorageFormat::Static };
        }
        if self.restored(node).is_some() {
            return StorageFormat::Restore;
        }
        // Whoever votes in a static quorum must not be told to join: it would start on an empty disk, and vote. Somebody who leads tells.
        if self.quorum == Kind::Unknown && node.pool.roles.has_controller() {
            return StorageFormat::Adopt;
        }
        let map = self.world.config_maps.get(&pod);
        let running = map.and_then(|map| map.storage_format.as_deref());
        let status = self.world.kafka.status.as_ref();
        let worked_before = status.is_some_and(|status| status.kafka_version.is_some())
            || map.is_some_and(|map| map.meta.annotations.contains_key(RESTORED_POD_ANNOTATION));
        let quorum = self.world.answers.quorum.known();
        crate::quorum::storage_format(node.id, self.initial, running, worked_before, quorum)
    }

    fn restored(&self, node: Node<'_>) -> Option<&Restoration> {
        self.restoration.as_ref().filter(|restoration| restoration.is_of(node.id))
    }

    /// What a node's ConfigMap remembers.
    fn memories(
        &self,
        node: Node<'_>,
        (forms_quorum, is_let_in): (bool, bool),
        served: &[Served<'_>],
    ) -> Vec<(&'static str, String)> {
        let restored = match self.restoration.as_ref().filter(|restoration| restoration.empties(node.id)) {
            Some(restoration) => Some(restoration.first_pod(self.world, node.id)),
            None => restoration::mark(self.world, node.id),
        };
        let memories = [
            (RESTORED_POD_ANNOTATION, restored),
            (DISK_ANNOTATION, anew::memory(self.world, self.cluster, node)),
            (
                FIRST_CLAIM_ANNOTATION,
                forms_quorum.then(|| empty_disk::memory(self.world, self.cluster, node)).flatten(),
            ),
            (LET_IN_ANNOTATION, let_in::memory(self.world, &self.cluster.pod_name(node), is_let_in)),
            (ADVERTISED_ANNOTATION, address::memory(served)),
        ];
        memories.into_iter().filter_map(|(key, memory)| Some((key, memory?))).collect()
    }

    fn claim(&self, disk: &Disk, mut meta: ObjectMeta) -> Option<PersistentVolumeClaim> {
        let Medium::Claim { size, class, selector, .. } = &disk.medium else { return None };
        let wanted = ClaimView {
            requested: Some(size.clone()),
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            class: class.clone(),
            selector: selector.clone(),
            ..ClaimView::default()
        };
        // Of one that exists nothing can be changed, and growing it is a step of its own.
        let seen = meta.name.as_ref().and_then(|name| self.world.claims.get(name));
        let spec = claim_spec(seen.map_or(&wanted, AsRef::as_ref));
        if seen.is_some_and(|seen| claim_memory::emptied_in(&seen.meta).is_some()) {
            let annotations = meta.annotations.get_or_insert_default();
            annotations.insert(EMPTIED_ANNOTATION.to_owned(), String::new());
        }
        Some(PersistentVolumeClaim { metadata: meta, spec: Some(spec), ..PersistentVolumeClaim::default() })
    }
}

/// The objects that do not depend on nodes. `told` are the settings that Kafka may have been told while it ran.
pub(crate) fn shared(common: &Common<'_>, told: Option<&BTreeSet<String>>) -> Vec<Object> {
    let Common { cluster, owner, .. } = common;
    let template = SharedTemplate::of(common.labels, common.spec);
    let mut account = service_account(cluster, owner);
    template.service_account.add_marked_to(&mut account.metadata);
    let mut headless = headless_service(cluster, owner);
    template.brokers_service.add_to(&mut headless);
    if let Some(told) = told {
        let annotations = headless.metadata.annotations.get_or_insert_default();
        annotations.insert(SETTINGS_IN_KAFKA_ANNOTATION.to_owned(), dynamic::record(told));
    }
    let mut bootstrap = bootstrap_service(cluster, owner);
    template.bootstrap_service.add_to(&mut bootstrap);
    let mut objects =
        vec![Object::ServiceAccount(account), Object::Service(headless), Object::Service(bootstrap)];
    objects.extend(fences::budgets(cluster, owner, &template));
    objects.extend(fences::policy(cluster, owner, common.settings));
    objects
}

pub(crate) fn shared_meta(cluster: &Cluster, owner: OwnerReference, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(cluster.key.namespace.clone()),
        labels: Some(cluster.key.labels()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    }
}

fn service_account(cluster: &Cluster, owner: &OwnerReference) -> ServiceAccount {
    ServiceAccount {
        metadata: shared_meta(cluster, owner.clone(), cluster.key.service_account()),
        ..ServiceAccount::default()
    }
}

fn port(name: &str, port: u16) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port: i32::from(port),
        target_port: Some(IntOrString::Int(i32::from(port))),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    }
}

fn broker_ports(cluster: &Cluster) -> Vec<ServicePort> {
    let clients = internal(cluster).map(|listener| port(&listener.port_name(), listener.port));
    std::iter::once(port("tcp-replication", REPLICATION_PORT)).chain(clients).collect()
}

/// Listeners that are not internal have services of their own.
fn internal(cluster: &Cluster) -> impl Iterator<Item = &ClientListener> {
    cluster
        .listeners
        .iter()
        .filter(|listener| cluster.kept_listener(listener).reach.unwrap_or(listener.reach) == Reach::Internal)
}

/// Gives every node its host name, ready or not: nodes must find each other before any of them can be ready.
fn headless_service(cluster: &Cluster, owner: &OwnerReference) -> Service {
    let mut ports = vec![port("tcp-ctrlplane", CONTROLLER_PORT)];
    ports.extend(broker_ports(cluster));
    Service {
        metadata: shared_meta(cluster, owner.clone(), cluster.key.headless_service()),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(cluster.key.selector()),
            ports: Some(ports),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

fn bootstrap_service(cluster: &Cluster, owner: &OwnerReference) -> Service {
    let mut selector = cluster.key.selector();
    selector.insert(BROKER_ROLE_LABEL.to_owned(), "true".to_owned());
    let mut metadata = shared_meta(cluster, owner.clone(), cluster.key.bootstrap_service());
    metadata.labels.get_or_insert_default().insert("strimzi.io/discovery".to_owned(), "true".to_owned());
    metadata.annotations = Some([("strimzi.io/discovery".to_owned(), discovery(cluster))].into());
    Service {
        metadata,
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            selector: Some(selector),
            ports: Some(broker_ports(cluster)),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

/// What consoles read to find out how to connect.
fn discovery(cluster: &Cluster) -> String {
    let listeners: Vec<_> = internal(cluster)
        .map(|listener| {
            let auth = listener.authentication.name();
            serde_json::json!({"port": listener.port, "tls": listener.tls, "protocol": "kafka", "auth": auth})
        })
        .collect();
    Value::Array(listeners).to_string()
}
