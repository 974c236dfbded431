//! All that the objects of a node are made from, and a memory of what came of it.
//!
//! To render a pod and the settings beside it takes longer than all other decisions together, and most passes render what the
//! last one did. So the fingerprints of what was rendered are kept, with all that it was rendered from. The same sheet always gives
//! the same objects: rendering sees nothing of the world but its [`Sheet`], so there is nothing to invalidate, and to forget an entry
//! costs time and nothing else. Only fingerprints are kept, because the objects would take more memory than all that is watched.

use std::cell::RefCell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use karst_api as api;
use serde_json::Value;

use crate::cluster::{Cluster, Node, Pool};
use crate::config;
use crate::digest::Digest;
use crate::empty_disk::EmptyDisk;
use crate::ids::{ClusterId, NodeId};
use crate::listeners::Reach;
use crate::listeners::address::{Advertised, Served};
use crate::listeners::kept::Shown;
use crate::names::{
    CLUSTER_ID_ANNOTATION, DELETE_CLAIM_ANNOTATION, KAFKA_VERSION_ANNOTATION, POD_NAME_LABEL,
    STORAGE_ANNOTATION,
};
use crate::objects::{self, Object, config_digest, digest_of_set, is_in};
use crate::properties::Properties;
use crate::quorum::{InitialControllers, Kind, StorageFormat};
use crate::storage::{Disk, Medium};
use crate::versions::Logging;
use crate::world::{ClaimView, ConfigMapView, PodSetView, Settings};
use crate::{jvm, logging, metrics, pods};

/// How many clusters are remembered. One that is at work is looked at many times in a row.
const REMEMBERED: usize = 4;

/// What all objects of a cluster are made from.
#[derive(Debug)]
pub(crate) struct Common<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) spec: &'a api::KafkaClusterSpec,
    /// Who owns all objects.
    pub(crate) owner: OwnerReference,
    /// The labels of the `Kafka` resource. Objects inherit some.
    pub(crate) labels: Option<&'a BTreeMap<String, String>>,
    pub(crate) settings: &'a Settings,
    /// The id the nodes are formatted with, if it is known.
    pub(crate) cluster_id: Option<&'a ClusterId>,
    /// Who formed the quorum, if that is known.
    pub(crate) initial: Option<&'a InitialControllers>,
    /// Where its voters are kept.
    pub(crate) quorum: Kind,
    /// Where nodes find it when they start.
    pub(crate) bootstrap_servers: &'a str,
}

/// What the objects of one node are made from besides.
#[derive(Debug, PartialEq)]
pub(crate) struct Own {
    /// The settings of users, when they are not those of the spec.
    pub(crate) user: Option<BTreeMap<String, Value>>,
    /// How it formats an empty disk.
    pub(crate) format: StorageFormat,
    /// What an empty disk means, when the node is to form the quorum.
    pub(crate) empty_disk: Option<EmptyDisk>,
    /// The voters it formats its disk with, when they are not those that formed the quorum.
    pub(crate) restored: Option<InitialControllers>,
    /// What it logs.
    pub(crate) logging: Arc<str>,
    /// How it tells about itself in numbers, if it does.
    pub(crate) metrics: Option<Arc<str>>,
    /// What its pod is annotated with about certificates.
    pub(crate) certificate: Vec<(String, String)>,
    /// What its ConfigMap remembers.
    pub(crate) memories: Vec<(&'static str, String)>,
    /// The listeners that it can serve.
    pub(crate) served: Vec<Serves>,
    /// Who may do everything, when the node has them in another order than the spec.
    pub(crate) super_users: Option<String>,
}

/// A listener that a node can serve.
#[derive(Debug, PartialEq)]
pub(crate) struct Serves {
    /// Its name.
    pub(crate) listener: String,
    /// What the node tells its clients.
    pub(crate) advertised: Advertised,
    /// How they get there.
    pub(crate) reach: Reach,
    /// The certificate that they see.
    pub(crate) shown: Option<Shown>,
}

impl From<Served<'_>> for Serves {
    fn from(Served { listener, advertised, reach, shown }: Served<'_>) -> Self {
        Self { listener: listener.name.clone(), advertised, reach, shown }
    }
}

/// All that the objects of a node are made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sheet<'a> {
    pub(crate) common: &'a Common<'a>,
    pub(crate) node: Node<'a>,
    pub(crate) own: &'a Own,
}

/// An object that was found to be as it should be. What was observed does not change, so the same one is good again.
#[derive(Debug)]
pub(crate) struct Found<T>(Weak<T>);

impl<T> Default for Found<T> {
    fn default() -> Self {
        Self(Weak::new())
    }
}

impl<T> Found<T> {
    /// Is this one as it should be? `look` finds out, if it is another one.
    pub(crate) fn is_good(&mut self, seen: &Arc<T>, look: impl FnOnce(&T) -> bool) -> bool {
        // As long as somebody points to where an object was, no other one gets its place.
        if std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(seen)) {
            return true;
        }
        let is_good = look(seen);
        if is_good {
            self.0 = Arc::downgrade(seen);
        }
        is_good
    }
}

/// What came of a sheet.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Fingerprint of what is in the node's ConfigMap.
    pub(crate) settings: Digest,
    /// Who that ConfigMap is.
    pub(crate) settings_meta: ObjectMeta,
    pub(crate) settings_found: Found<ConfigMapView>,
    /// Who its claims are.
    pub(crate) claims: Vec<(ObjectMeta, Found<ClaimView>)>,
    /// Fingerprint of the pod.
    pod: Digest,
}

impl<'a> Sheet<'a> {
    /// What comes of it, and the pod itself.
    fn outcome(&self) -> Result<(Outcome, Value), serde_json::Error> {
        let (served, config) = self.config();
        let map = self.config_map(&config);
        let pod = pods::render(self, &served, &config)?;
        let outcome = Outcome {
            settings: config_digest(map.data.as_ref())?,
            settings_meta: map.metadata,
            settings_found: Found::default(),
            claims: self.claims().map(|(_, meta)| (meta, Found::default())).collect(),
            pod: Digest::of_json(&pod),
        };
        Ok((outcome, pod))
    }

    /// The pod.
    pub(crate) fn pod(&self) -> Result<Value, serde_json::Error> {
        let (served, config) = self.config();
        pods::render(self, &served, &config)
    }

    /// The listeners that are served, and the settings of the node.
    fn config(&self) -> (Vec<Served<'a>>, Properties) {
        let Common { cluster, spec, quorum, bootstrap_servers, .. } = self.common;
        let find = |name: &str| cluster.listeners.iter().find(|listener| listener.name == name);
        let served = self.own.served.iter().filter_map(|Serves { listener, advertised, reach, shown }| {
            let (advertised, reach, shown) = (advertised.clone(), *reach, *shown);
            Some(Served { listener: find(listener)?, advertised, reach, shown })
        });
        let served: Vec<_> = served.collect();
        let user = self.own.user.as_ref().or(spec.config.as_ref());
        let super_users = self.own.super_users.as_deref();
        let config =
            config::render(cluster, self.node, &served, *quorum, bootstrap_servers, user, super_users);
        (served, config)
    }

    /// The JVM's arguments.
    pub(crate) fn jvm_options(&self) -> String {
        let pool = self.node.pool;
        let mut options = jvm::options(pool.jvm_options.as_ref(), pool.memory());
        if self.own.metrics.is_some() {
            options.push_str(&metrics::argument());
            options.push('\n');
        }
        options
    }

    /// What the node logs, when it finds that out only at its start and it is not what every node logs.
    pub(crate) fn logging_read_once(&self) -> Option<&'a str> {
        let kind = self.common.cluster.version.logging;
        let text = Some(&*self.own.logging).filter(|_| kind == Logging::Log4j1)?;
        logging::is_special(logging::key(kind), text).then_some(text)
    }

    fn config_map(&self, config: &Properties) -> ConfigMap {
        let Common { cluster, cluster_id, initial, .. } = self.common;
        let initial = self.own.restored.as_ref().or(*initial);
        let mut data = vec![
            ("server.config", config.render()),
            ("cluster.id", cluster_id.map(ToString::to_string).unwrap_or_default()),
            ("metadata.version", cluster.metadata_version.to_owned()),
            ("storage.format", self.own.format.as_str().to_owned()),
            ("initial.controllers", initial.map(ToString::to_string).unwrap_or_default()),
            ("jvm.options", self.jvm_options()),
            ("java.security", jvm::SECURITY.to_owned()),
            (logging::key(cluster.version.logging), self.own.logging.to_string()),
        ];
        data.extend(self.own.empty_disk.map(|disk| ("empty.disk", disk.as_str().to_owned())));
        data.extend(self.own.metrics.as_ref().map(|text| (metrics::FILE, text.to_string())));
        ConfigMap {
            metadata: self.config_map_meta(),
            data: Some(data.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
            ..ConfigMap::default()
        }
    }

    /// The disks of the node that have claims, and who those are.
    pub(crate) fn claims(&self) -> impl Iterator<Item = (&'a Disk, ObjectMeta)> {
        let Self { common, node, .. } = *self;
        let disks = node.pool.storage.disks().iter();
        disks.filter_map(move |disk| Some((disk, claim_meta(common, node, disk)?)))
    }

    fn config_map_meta(&self) -> ObjectMeta {
        let cluster = self.common.cluster;
        let name = cluster.pod_name(self.node);
        let mut meta = node_meta(cluster, self.node, name, self.common.owner.clone());
        for (key, memory) in &self.own.memories {
            meta.annotations.get_or_insert_default().insert((*key).to_owned(), memory.clone());
        }
        self.node.pool.template.others().add_marked_to(&mut meta);
        meta
    }
}

/// Who a claim is. What its node runs with, and whose data it is, is written on it: it stays when all else is lost.
pub(crate) fn claim_meta(common: &Common<'_>, node: Node<'_>, disk: &Disk) -> Option<ObjectMeta> {
    let Medium::Claim { delete, .. } = &disk.medium else { return None };
    let name = disk.claim_name(&common.cluster.pod_name(node))?;
    let mut meta = node_meta(common.cluster, node, name, common.owner.clone());
    let annotations = [
        (DELETE_CLAIM_ANNOTATION, Some(delete.to_string())),
        (STORAGE_ANNOTATION, serde_json::to_string(&node.pool.storage_written).ok()),
        (CLUSTER_ID_ANNOTATION, common.cluster_id.map(ToString::to_string)),
    ];
    let known = annotations.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    meta.annotations = Some(known.collect());
    if !delete {
        // Data that is to outlive the cluster must not go with its owner.
        meta.owner_references = None;
    }
    node.pool.template.claims().add_marked_to(&mut meta);
    Some(meta)
}

/// Who an object of a node is.
fn node_meta(cluster: &Cluster, node: Node<'_>, name: String, owner: OwnerReference) -> ObjectMeta {
    let mut labels = cluster.key.pool_labels(&node.pool.name);
    labels.insert(POD_NAME_LABEL.to_owned(), cluster.pod_name(node));
    ObjectMeta {
        name: Some(name),
        namespace: Some(cluster.key.namespace.clone()),
        labels: Some(labels),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    }
}

fn empty_set(common: &Common<'_>, pool: &Pool) -> Result<api::StrimziPodSet, serde_json::Error> {
    let (key, version) = (&common.cluster.key, common.cluster.version);
    let name = key.pod_set(&pool.name);
    let selector =
        LabelSelector { match_labels: Some(key.pool_selector(&pool.name)), ..LabelSelector::default() };
    let mut set = api::StrimziPodSet::new(&name, api::StrimziPodSetSpec { selector, pods: Vec::new() });
    set.metadata.namespace = Some(key.namespace.clone());
    set.metadata.labels = Some(key.pool_labels(&pool.name));
    set.metadata.owner_references = Some(vec![common.owner.clone()]);
    set.metadata.annotations = Some(
        [
            (KAFKA_VERSION_ANNOTATION.to_owned(), version.version.to_owned()),
            (STORAGE_ANNOTATION.to_owned(), serde_json::to_string(&pool.storage_written)?),
        ]
        .into(),
    );
    pool.template.pod_set().add_marked_to(&mut set.metadata);
    Ok(set)
}

/// What is known of the objects of one cluster, by what all of them are made from.
#[derive(Debug, Default)]
pub(crate) struct Known {
    shared: Option<Shared>,
    nodes: BTreeMap<NodeId, (Own, Outcome)>,
    /// The pods that were rendered in this pass.
    pods: BTreeMap<NodeId, Value>,
    /// Pod sets by the names of their pools.
    sets: BTreeMap<String, KnownSet>,
}

/// A pod set.
#[derive(Debug)]
pub(crate) struct KnownSet {
    /// The set, without the pods.
    pub(crate) set: api::StrimziPodSet,
    /// The fingerprints of the pods, and that of the whole with them.
    digest: (Vec<Digest>, Digest),
    found: Found<PodSetView>,
}

impl KnownSet {
    fn of(common: &Common<'_>, pool: &Pool, pods: Vec<Digest>) -> Result<Self, serde_json::Error> {
        let set = empty_set(common, pool)?;
        let digest = digest_of_set(&set.spec.selector, pods.iter().copied())?;
        Ok(Self { set, digest: (pods, digest), found: Found::default() })
    }

    /// The fingerprint of its spec.
    pub(crate) fn digest(&self) -> Digest {
        self.digest.1
    }

    /// Is this it?
    pub(crate) fn is(&mut self, seen: &Arc<PodSetView>) -> bool {
        let Self { set, digest: (_, digest), found } = self;
        found.is_good(seen, |seen| seen.digest == Some(*digest) && is_in(&set.metadata, &seen.meta))
    }
}

/// The objects that do not depend on nodes.
#[derive(Debug)]
struct Shared {
    /// The settings that Kafka may have been told while it ran.
    told: Option<BTreeSet<String>>,
    /// The objects, with their fingerprints.
    objects: Vec<(Object, Option<Digest>)>,
}

impl Shared {
    fn of(common: &Common<'_>, told: Option<&BTreeSet<String>>) -> Result<Self, serde_json::Error> {
        let objects = objects::shared(common, told).into_iter();
        let objects = objects.map(|object| object.digest().map(|digest| (object, digest)));
        Ok(Self { told: told.cloned(), objects: objects.collect::<Result<_, _>>()? })
    }
}

impl Known {
    /// The objects that do not depend on nodes, with their fingerprints.
    pub(crate) fn shared(
        &mut self,
        common: &Common<'_>,
        told: Option<&BTreeSet<String>>,
    ) -> Result<&[(Object, Option<Digest>)], serde_json::Error> {
        let known = self.shared.take().filter(|known| known.told.as_ref() == told);
        let known = known.map_or_else(|| Shared::of(common, told), Ok)?;
        Ok(&self.shared.insert(known).objects)
    }

    /// What comes of a node's sheet.
    pub(crate) fn of(
        &mut self,
        common: &Common<'_>,
        node: Node<'_>,
        own: Own,
    ) -> Result<&mut Outcome, serde_json::Error> {
        let mut outcome = |own: &Own| {
            let (outcome, pod) = Sheet { common, node, own }.outcome()?;
            self.pods.insert(node.id, pod);
            Ok(outcome)
        };
        let known = match self.nodes.entry(node.id) {
            Entry::Occupied(mut known) => {
                if known.get().0 != own {
                    let outcome = outcome(&own)?;
                    known.insert((own, outcome));
                }
                known.into_mut()
            }
            Entry::Vacant(new) => {
                let outcome = outcome(&own)?;
                new.insert((own, outcome))
            }
        };
        Ok(&mut known.1)
    }

    /// The ConfigMap of a node that was looked at in this pass.
    pub(crate) fn config_map(&self, common: &Common<'_>, node: Node<'_>) -> Option<ConfigMap> {
        let sheet = self.sheet(common, node)?;
        Some(sheet.config_map(&sheet.config().1))
    }

    /// The pod of such a node.
    pub(crate) fn pod(
        &mut self,
        common: &Common<'_>,
        node: Node<'_>,
    ) -> Result<Option<Value>, serde_json::Error> {
        if let Some(pod) = self.pods.remove(&node.id) {
            return Ok(Some(pod));
        }
        self.sheet(common, node).map(|sheet| sheet.pod()).transpose()
    }

    /// The fingerprint of that pod.
    pub(crate) fn pod_digest(&self, node: NodeId) -> Option<Digest> {
        self.nodes.get(&node).map(|(_, outcome)| outcome.pod)
    }

    /// A claim of such a node, by its name: its disk and who it is.
    pub(crate) fn claim<'a>(
        &'a self,
        common: &'a Common<'a>,
        node: Node<'a>,
        name: Option<&str>,
    ) -> Option<(&'a Disk, ObjectMeta)> {
        self.sheet(common, node)?.claims().find(|(_, meta)| meta.name.as_deref() == name)
    }

    /// The pod set of a pool, with pods of these fingerprints.
    pub(crate) fn set(
        &mut self,
        common: &Common<'_>,
        pool: &Pool,
        pods: Vec<Digest>,
    ) -> Result<&mut KnownSet, serde_json::Error> {
        Ok(match self.sets.entry(pool.name.clone()) {
            Entry::Occupied(known) if known.get().digest.0 == pods => known.into_mut(),
            Entry::Occupied(mut other) => {
                other.insert(KnownSet::of(common, pool, pods)?);
                other.into_mut()
            }
            Entry::Vacant(new) => new.insert(KnownSet::of(common, pool, pods)?),
        })
    }

    fn sheet<'a>(&'a self, common: &'a Common<'a>, node: Node<'a>) -> Option<Sheet<'a>> {
        self.nodes.get(&node.id).map(|(own, _)| Sheet { common, node, own })
    }
}

/// A [`Common`] that outlives a pass, and what is known of its nodes.
struct Memory {
    cluster: Cluster,
    spec: api::KafkaClusterSpec,
    owner: OwnerReference,
    labels: Option<BTreeMap<String, String>>,
    settings: Arc<Settings>,
    cluster_id: Option<ClusterId>,
    initial: Option<InitialControllers>,
    quorum: Kind,
    bootstrap_servers: String,
    known: Known,
}

impl Memory {
    fn new(common: &Common<'_>, settings: &Arc<Settings>) -> Self {
        // Named one by one, so that whoever adds a field to what objects are made from has to add it here.
        let Common {
            cluster,
            spec,
            owner,
            labels,
            settings: _,
            cluster_id,
            initial,
            quorum,
            bootstrap_servers,
        } = common;
        Self {
            cluster: (*cluster).clone(),
            spec: (*spec).clone(),
            owner: owner.clone(),
            labels: labels.cloned(),
            settings: Arc::clone(settings),
            cluster_id: cluster_id.cloned(),
            initial: initial.cloned(),
            quorum: *quorum,
            bootstrap_servers: (*bootstrap_servers).to_owned(),
            known: Known::default(),
        }
    }

    /// Is it about exactly this?
    fn is_of(&self, common: &Common<'_>) -> bool {
        let Common { cluster, spec, owner, labels, settings, cluster_id, initial, quorum, bootstrap_servers } =
            common;
        self.bootstrap_servers == *bootstrap_servers
            && self.cluster == **cluster
            && self.owner == *owner
            && self.labels.as_ref() == *labels
            && self.quorum == *quorum
            && self.cluster_id.as_ref() == *cluster_id
            && self.initial.as_ref() == *initial
            && *self.settings == **settings
            && self.spec == **spec
    }
}

thread_local! {
    /// The clusters that were looked at last, the newest first.
    static MEMORIES: RefCell<VecDeque<Box<Memory>>> = const { RefCell::new(VecDeque::new()) };
}

/// Does something with what is known of the nodes that are made from this.
pub(crate) fn remembering<T>(
    common: &Common<'_>,
    settings: &Arc<Settings>,
    does: impl FnOnce(&mut Known) -> T,
) -> T {
    MEMORIES.with_borrow_mut(|memories| {
        let found = memories.iter().position(|memory| memory.is_of(common));
        let mut memory = found
            .and_then(|at| memories.remove(at))
            .unwrap_or_else(|| Box::new(Memory::new(common, settings)));
        let done = does(&mut memory.known);
        memory.known.pods.clear();
        memories.push_front(memory);
        memories.truncate(REMEMBERED);
        done
    })
}
