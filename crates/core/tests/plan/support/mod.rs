//! A world that does what it is told: what a plan asks for becomes true, as a well-behaved Kubernetes would do it.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use karst_api as api;
use karst_certs::SecretWrite;
use karst_core::certificates::{Issue, secret_object, started_now};
use karst_core::dynamic::{self, RunningSetting, SettingChange, Source};
use karst_core::ids::{DirectoryId, Entropy, NodeId};
use karst_core::membership::{Change, Voter};
use karst_core::memory::Memory;
use karst_core::names::{
    ClusterKey, EMPTIED_ANNOTATION, MANUAL_ROLL_ANNOTATION, POOL_FINALIZER, RACK_ANNOTATION,
    STARTED_WITH_ANNOTATION, node_of_pod,
};
use karst_core::objects::{Object, service_digest};
use karst_core::plan::{Deed, Fact, Plan, Protection, Questions, Removal, plan};
use karst_core::quorum::InitialControllers;
use karst_core::rewrites::Rewrite;
use karst_core::stored;
use karst_core::versions;
use karst_core::world::{
    Answer, Answers, ClaimView, ConfigMapView, LogDirView, Meta, PartitionView, Partitions, PlainView,
    PodSetView, PodView, QuorumView, Reference, Registered, RegisteredBroker, Replica, SecretView,
    ServiceAccountView, ServiceView, Settings, WantedPod, World,
};
use serde_json::Value;

pub(crate) const NAMESPACE: &str = "myproject";
/// Where all pods run.
pub(crate) const MACHINE: &str = "machine-1";

/// The resources of a file of YAML documents, as a world in which nothing was done yet.
pub(crate) fn world(yaml: &str) -> World {
    let mut kafka = None;
    let (mut pools, mut references) = (BTreeMap::new(), BTreeMap::new());
    for document in yaml.split("\n---\n").filter(|document| !document.trim().is_empty()) {
        let value: Value = serde_saphyr::from_str(document).expect(document);
        match value["kind"].as_str() {
            Some("Kafka") => kafka = Some(serde_json::from_value::<api::Kafka>(value).expect(document)),
            Some("KafkaNodePool") => {
                let mut pool: api::KafkaNodePool = serde_json::from_value(value).expect(document);
                fill(&mut pool.metadata, "pool");
                pools.insert(pool.metadata.name.clone().unwrap(), Arc::new(pool));
            }
            Some("ConfigMap") => {
                let data: BTreeMap<String, String> = serde_json::from_value(value["data"].clone()).unwrap();
                let entries = data.into_iter().map(|(key, text)| (key, Arc::from(text))).collect();
                let name = value["metadata"]["name"].as_str().unwrap().to_owned();
                references.insert(name, Reference::Found(entries));
            }
            other => panic!("unexpected kind {other:?}"),
        }
    }
    let mut kafka = kafka.expect("a Kafka resource");
    fill(&mut kafka.metadata, "kafka");
    World {
        key: ClusterKey { namespace: NAMESPACE.into(), name: kafka.metadata.name.clone().unwrap() },
        kafka: Arc::new(kafka),
        pools,
        pod_sets: BTreeMap::new(),
        taken: BTreeMap::new(),
        pods: BTreeMap::new(),
        config_maps: BTreeMap::new(),
        services: BTreeMap::new(),
        service_accounts: BTreeMap::new(),
        budgets: BTreeMap::new(),
        policies: BTreeMap::new(),
        claims: BTreeMap::new(),
        secrets: BTreeMap::new(),
        references,
        unreadable: None,
        strays: Vec::new(),
        answers: Answers::default(),
        memory: Memory::default(),
        referenced: BTreeMap::new(),
        settings: Arc::new(Settings {
            operator_version: "0.1.0".into(),
            node_image: "docker.io/karst/operator:0.1.0".into(),
            kafka_images: BTreeMap::new(),
            image_pull_policy: None,
            image_pull_secrets: Vec::new(),
            cluster_domain: "cluster.local".into(),
            network_policies: true,
            operator_namespace: None,
            operator_namespace_labels: BTreeMap::new(),
            privileged_templates: false,
        }),
        now: Timestamp::from_second(1_700_000_000).unwrap(),
        api_server_time: None,
        entropy: Entropy([1; 32]),
    }
}

/// The example that the README starts with.
pub(crate) fn quickstart() -> World {
    example(include_str!("../../../../../deploy/examples/quickstart.yaml"))
}

/// A cluster with as many nodes as there can be, in as few pools as their pod sets allow.
pub(crate) fn thousand() -> World {
    let mut world = quickstart();
    edit_pool(&mut world, "brokers", |pool| pool.spec.replicas = 199);
    edit_pool(&mut world, "controllers", |pool| pool.spec.replicas = 5);
    for number in 1..5 {
        let mut pool = (*world.pools["brokers"]).clone();
        let name = format!("brokers-{number}");
        (pool.metadata.name, pool.metadata.uid) = (Some(name.clone()), Some(format!("uid-{name}")));
        world.pools.insert(name, Arc::new(pool));
    }
    world
}

/// An example on the line of Kafka that the Kafka of these tests is: newer ones are there to be upgraded to.
pub(crate) fn example(yaml: &str) -> World {
    world(&yaml.replace("version: 4.3.1", "version: 4.1.1"))
}

/// A cluster as it was before there were pools, in which nothing was done yet.
pub(crate) fn without_pools() -> World {
    world(
        "apiVersion: kafka.strimzi.io/v1beta2
kind: Kafka
metadata: {name: old}
spec:
  kafka:
    version: 4.1.1
    replicas: 3
    storage: {type: persistent-claim, size: 1Gi}
    listeners: [{name: plain, port: 9092, type: internal, tls: false}]
    config: {default.replication.factor: 3, min.insync.replicas: 2}
",
    )
}

fn fill(meta: &mut ObjectMeta, uid: &str) {
    meta.namespace = Some(NAMESPACE.into());
    meta.uid = Some(format!("uid-{uid}"));
    meta.generation = Some(1);
    meta.resource_version = Some("1".into());
}

/// Decides once, with the quorum as its initial controllers formed it where nobody says otherwise.
pub(crate) fn decide(world: &World) -> Plan {
    let first = plan(world).expect("a plan");
    let mut answers = world.answers.clone();
    if !first.questions.quorum.is_empty() {
        answers.quorum = healthy_quorum(world);
    }
    if first.questions.registered {
        answers.registered = Kafka::default().registered(world);
    }
    let mut world = World { answers, ..world.clone() };
    let second = plan(&world).expect("a plan");
    Kafka::default().tell_settings(&mut world, &second.questions);
    let decided = plan(&world).expect("a plan");
    assert_eq!(
        format!("{decided:?}"),
        format!("{:?}", plan_from_nothing(&world)),
        "it was remembered wrongly"
    );
    decided
}

/// The plan of a thread that remembers nothing of earlier passes.
fn plan_from_nothing(world: &World) -> Plan {
    thread::scope(|scope| scope.spawn(|| plan(world).expect("a plan")).join().expect("a thread"))
}

/// Changes the `Kafka` resource as a user would.
pub(crate) fn edit_kafka(world: &mut World, edit: impl FnOnce(&mut api::Kafka)) {
    let kafka = Arc::make_mut(&mut world.kafka);
    edit(kafka);
    kafka.metadata.generation = kafka.metadata.generation.map(|generation| generation + 1);
}

/// Changes what is seen of a pod.
pub(crate) fn edit_pod(world: &mut World, name: &str, edit: impl FnOnce(&mut PodView)) {
    edit(Arc::make_mut(world.pods.get_mut(name).expect(name)));
}

/// Changes a pool as a user would.
pub(crate) fn edit_pool(world: &mut World, name: &str, edit: impl FnOnce(&mut api::KafkaNodePool)) {
    let pool = Arc::make_mut(world.pools.get_mut(name).expect(name));
    edit(pool);
    pool.metadata.generation = pool.metadata.generation.map(|generation| generation + 1);
}

/// Does what one plan asks for.
pub(crate) fn carry_out(world: &mut World, plan: Plan) {
    let told = plan.deeds.iter().any(|deed| matches!(deed, Deed::Configure(_)));
    if !told {
        world.memory.checked_settings.extend(plan.checked_settings.clone());
    }
    if let Some(rendered) = &plan.rendered {
        world.memory.rendered = karst_core::podset::remembered(world, rendered);
    }
    for fact in &plan.facts {
        write_fact(world, fact);
    }
    for issue in &plan.certificates {
        issue_certificates(world, issue);
    }
    for ownership in &plan.ownerships {
        let secret = Arc::make_mut(world.secrets.get_mut(&ownership.secret).expect("a secret"));
        secret.meta.owners = ownership.owners.iter().map(|owner| owner.uid.clone()).collect();
    }
    for object in plan.objects {
        write_object(world, object);
    }
    for service in plan.services {
        write_object(world, service);
    }
    for growth in &plan.growths {
        let claim = Arc::make_mut(world.claims.get_mut(&growth.claim).expect("a claim"));
        claim.requested = Some(growth.size.clone());
    }
    for removal in &plan.removals {
        let name = &removal.seen().name;
        match removal {
            Removal::ConfigMap(_) => drop(world.config_maps.remove(name)),
            Removal::Secret(_) => drop(world.secrets.remove(name)),
            Removal::Claim { .. } => drop(world.claims.remove(name)),
            Removal::PodSet(_) => drop(world.pod_sets.remove(name)),
            Removal::Service(_) => drop(world.services.remove(name)),
        }
    }
    for restart in &plan.restarts {
        world.pods.remove(&restart.pod);
        for (claim, _) in plan.emptied.get(&restart.uid).into_iter().flatten() {
            let claim = Arc::make_mut(world.claims.get_mut(claim).expect("a claim"));
            claim.meta.annotations.insert(EMPTIED_ANNOTATION.into(), restart.uid.clone());
        }
        for (claim, _) in &restart.claims {
            world.claims.remove(claim);
        }
    }
    for mark in &plan.marks {
        let key = MANUAL_ROLL_ANNOTATION.to_owned();
        for (pod, _) in &mark.pods {
            let pod = Arc::make_mut(world.pods.get_mut(pod).expect(pod));
            pod.meta.annotations.insert(key.clone(), "true".into());
        }
        let set = Arc::make_mut(world.pod_sets.get_mut(&mark.pod_set).expect("a pod set"));
        set.meta.annotations.remove(&key);
    }
    for racked in &plan.racked {
        let pod = Arc::make_mut(world.pods.get_mut(&racked.pod).expect("a pod"));
        pod.meta.annotations.insert(RACK_ANNOTATION.into(), racked.rack.clone());
    }
    for annotation in &plan.forgotten {
        let kafka = Arc::make_mut(&mut world.kafka);
        kafka.metadata.annotations.as_mut().and_then(|all| all.remove(*annotation));
    }
    for (pool, protection) in &plan.protections {
        protect(world, pool, *protection);
    }
    let patches: Vec<_> =
        plan.pool_statuses.iter().filter(|(pool, _)| world.pools.contains_key(*pool)).collect();
    for (pool, patch) in patches {
        patch_pool(world, pool, &patch["status"]);
    }
    if let Some(patch) = &plan.status {
        patch_kafka(world, &patch["status"]);
    }
}

/// Makes what is asked for and writes it, each Secret on condition that it is still the one that was seen.
pub(crate) fn issue_certificates(world: &mut World, issue: &Issue) {
    let (written, rewrite) = Rewrite::after_issue(world, issue, None);
    for write in issue.make(world.now).expect("a certificate") {
        write_secret(world, issue.pool(), write);
    }
    world.memory.rewrites.insert(written, rewrite);
}

pub(crate) fn write_secret(world: &mut World, pool: Option<&str>, write: SecretWrite) {
    let object = secret_object(world, pool, write);
    let name = object.metadata.name.clone().unwrap();
    let seen = world.secrets.get(&name).map(|secret| secret.meta.resource_version.clone());
    assert_eq!(object.metadata.resource_version, seen, "a Secret is replaced only as it was seen");
    let data = object.data.unwrap().into_iter().map(|(key, bytes)| (key, bytes.0)).collect();
    let mut meta = meta(&object.metadata);
    let version = seen.map_or(0, |seen| seen.parse::<u64>().unwrap()) + 1;
    meta.resource_version = version.to_string();
    world.secrets.insert(name, Arc::new(SecretView::new(meta, data)));
}

/// Adds or removes the finalizer. A deleted pool without one is gone.
fn protect(world: &mut World, name: &str, protection: Protection) {
    let pool = Arc::make_mut(world.pools.get_mut(name).expect(name));
    match protection {
        Protection::Add => pool.metadata.finalizers = Some(vec![POOL_FINALIZER.into()]),
        Protection::Remove => pool.metadata.finalizers = None,
    }
    if pool.metadata.finalizers.is_none() && pool.metadata.deletion_timestamp.is_some() {
        world.pools.remove(name);
    }
}

/// Makes one fact durable.
pub(crate) fn write_fact(world: &mut World, fact: &Fact) {
    match fact {
        Fact::PoolNodes { pool, status } | Fact::PoolCluster { pool, status } => {
            patch_pool(world, pool, status);
        }
        Fact::PoolProtected { pool } => protect(world, pool, Protection::Add),
        Fact::Identity { status, .. } | Fact::Registered { status } => patch_kafka(world, status),
    }
}

fn merged<S: serde::Serialize + serde::de::DeserializeOwned>(old: Option<&S>, patch: &Value) -> S {
    let mut value =
        old.map(|old| serde_json::to_value(old).unwrap()).unwrap_or_else(|| serde_json::json!({}));
    for (key, new) in patch.as_object().unwrap() {
        if new.is_null() {
            value.as_object_mut().unwrap().remove(key);
        } else {
            value[key] = new.clone();
        }
    }
    serde_json::from_value(value).unwrap()
}

fn patch_kafka(world: &mut World, patch: &Value) {
    let kafka = Arc::make_mut(&mut world.kafka);
    kafka.status = Some(merged(kafka.status.as_ref(), patch));
}

fn patch_pool(world: &mut World, pool: &str, patch: &Value) {
    let pool = Arc::make_mut(world.pools.get_mut(pool).expect(pool));
    pool.status = Some(merged(pool.status.as_ref(), patch));
}

/// Pods and claims that follow each other under one name are told apart by it.
fn new_uid() -> String {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    format!("uid-{}", MADE.fetch_add(1, Ordering::Relaxed))
}

fn meta(meta: &ObjectMeta) -> Meta {
    Meta {
        name: meta.name.clone().unwrap(),
        uid: format!("uid-{}", meta.name.as_ref().unwrap()),
        resource_version: "1".into(),
        labels: meta.labels.clone().unwrap_or_default(),
        annotations: meta.annotations.clone().unwrap_or_default(),
        owners: meta.owner_references.iter().flatten().map(|owner| owner.uid.clone()).collect(),
        controller: None,
        created: Some(Timestamp::from_second(1_600_000_000).unwrap()),
        deleting: false,
        gone_by: None,
    }
}

/// What the API server keeps of a spec: no list and no map without entries.
fn kept<S: serde::Serialize + serde::de::DeserializeOwned>(spec: &Option<S>) -> Option<S> {
    fn prune(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.values_mut().for_each(prune);
                let empty_map = |name: &str, value: &Value| {
                    name == "matchLabels" && value.as_object().is_some_and(serde_json::Map::is_empty)
                };
                let empty_list = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
                fields.retain(|name, value| !empty_map(name, value) && !empty_list(value));
            }
            Value::Array(items) => items.iter_mut().for_each(prune),
            _ => {}
        }
    }
    let mut spec = serde_json::to_value(spec.as_ref()?).unwrap();
    prune(&mut spec);
    Some(serde_json::from_value(spec).unwrap())
}

fn write_object(world: &mut World, object: Object) {
    let rewrite = world.memory.rewrite(&object, world.now, None).unwrap();
    world.memory.wrote(&object, rewrite);
    let meta = meta(object.meta());
    let name = meta.name.clone();
    match object {
        Object::ServiceAccount(_) => {
            world.service_accounts.insert(name, Arc::new(ServiceAccountView { meta }));
        }
        Object::Service(service) => {
            let digest = service_digest(&service).ok();
            // Every service that asks for one gets a port of the nodes, and keeps it.
            let type_ = service.spec.as_ref().and_then(|spec| spec.type_.clone()).unwrap_or_default();
            let asked = service
                .spec
                .iter()
                .flat_map(|spec| spec.ports.iter().flatten())
                .find_map(|one| one.node_port);
            let seen = world.services.get(&name).map(|seen| ServiceView::clone(seen)).unwrap_or_default();
            let free = 30000 + u16::try_from(world.services.len()).unwrap();
            let port = asked.map(|port| u16::try_from(port).unwrap()).or(seen.node_port).unwrap_or(free);
            let node_port = ["NodePort", "LoadBalancer"].contains(&type_.as_str()).then_some(port);
            let view = ServiceView { meta, digest, node_port, addresses: seen.addresses };
            world.services.insert(name, Arc::new(view));
        }
        Object::ConfigMap(map) => {
            let view = ConfigMapView::new(meta, map.data.as_ref(), |text| text.into());
            world.config_maps.insert(name, Arc::new(view));
        }
        Object::Budget(budget) => {
            let digest = stored::budget_digest(kept(&budget.spec).as_ref()).ok();
            world.budgets.insert(name, Arc::new(PlainView { meta, digest }));
        }
        Object::Policy(policy) => {
            let digest = stored::policy_digest(kept(&policy.spec).as_ref()).ok();
            world.policies.insert(name, Arc::new(PlainView { meta, digest }));
        }
        Object::Claim(claim) => {
            // Of a claim that exists only the metadata is written.
            let seen = world.claims.get(&name).map(|seen| ClaimView::clone(seen));
            let uid = seen.as_ref().map_or_else(new_uid, |seen| seen.meta.uid.clone());
            let meta = Meta { uid, ..meta };
            let spec = claim.spec.unwrap();
            let size = spec.resources.unwrap().requests.unwrap()["storage"].0.clone();
            let new = ClaimView {
                requested: Some(size),
                class: spec.storage_class_name,
                selector: spec.selector.and_then(|selector| selector.match_labels),
                bound: true,
                ..ClaimView::default()
            };
            world.claims.insert(name, Arc::new(ClaimView { meta, ..seen.unwrap_or(new) }));
        }
        Object::PodSet(set) => {
            let digest = karst_core::objects::pod_set_digest(&set.spec).ok();
            let pods = set.spec.pods.iter().map(wanted_pod).collect();
            let view = PodSetView { meta, generation: 1, pods, digest, status: None };
            world.pod_sets.insert(name, Arc::new(view));
        }
    }
}

fn wanted_pod(pod: &Value) -> (String, WantedPod) {
    let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
    let revision = karst_core::pods::revision(pod).map(str::to_owned);
    (name, WantedPod { json: Arc::from(pod.to_string()), revision })
}

/// Starts the pods that the pod sets ask for and do not exist, makes all pods ready or not, and ends those that no
/// pod set asks for.
pub(crate) fn run_pods(world: &mut World, ready: bool) {
    let listed = |name: &str| world.pod_sets.values().any(|set| set.pods.contains_key(name));
    let gone: Vec<_> = world.pods.keys().filter(|name| !listed(name)).cloned().collect();
    for name in gone {
        world.pods.remove(&name);
    }
    let wanted: Vec<_> = world.pod_sets.values().flat_map(|set| set.pods.clone()).collect();
    for (name, pod) in wanted {
        let json = started_now(&world.key, &world.secrets, &name, &pod.json);
        let value: Value = serde_json::from_str(&json).unwrap();
        let metadata: ObjectMeta = serde_json::from_value(value["metadata"].clone()).unwrap();
        let running = world
            .pods
            .get(&name)
            .map_or_else(|| Meta { uid: new_uid(), ..meta(&metadata) }, |pod| pod.meta.clone());
        let host_ip = node_of_pod(&name).map(|node| format!("192.168.0.{}", node.0 + 1));
        let view = PodView {
            meta: running,
            phase: "Running".into(),
            ready,
            was_ready: true,
            machine: Some(MACHINE.into()),
            host_ip,
            ..PodView::default()
        };
        world.pods.insert(name, Arc::new(view));
    }
}

/// What Kafka answers when all initial controllers take part.
pub(crate) fn healthy_quorum(world: &World) -> Answer<QuorumView> {
    Kafka::formed(world).quorum(world)
}

/// What Kafka answers when these controllers are its voters.
pub(crate) fn voters(world: &World, initial: &InitialControllers) -> Answer<QuorumView> {
    let voters = initial.iter().map(|one| Voter { node: one.node, directory: one.directory }).collect();
    Kafka { voters, ..Kafka::default() }.quorum(world)
}

/// The id that Kafka tells when it is asked.
pub(crate) const ID_IN_KAFKA: &str = "4L6g3nShT-eMCtK--X86sw";

/// A Kafka that does what it is told.
#[derive(Debug, Clone)]
pub(crate) struct Kafka {
    pub(crate) voters: Vec<Voter>,
    /// Disks of nodes that are not the ones their nodes started with.
    pub(crate) disks: BTreeMap<NodeId, DirectoryId>,
    pub(crate) is_static: bool,
    /// Brokers that registered once and were not unregistered.
    pub(crate) registered: BTreeSet<NodeId>,
    /// Controllers that registered once, and the newest level that each could follow then. Kafka never forgets one.
    pub(crate) controllers: BTreeMap<NodeId, i16>,
    /// The level of its metadata version.
    pub(crate) level: i16,
    /// Does it tell of brokers that do not serve?
    pub(crate) fenced_known: bool,
    /// Directories of brokers in which there is something.
    pub(crate) log_dirs: BTreeMap<NodeId, Vec<LogDirView>>,
    /// What the machine's label says.
    pub(crate) rack: Answer<Option<String>>,
    /// Settings that it was told for all nodes.
    pub(crate) told: BTreeMap<String, String>,
    /// Settings that it was told for one node.
    pub(crate) told_alone: BTreeMap<(NodeId, String), String>,
    /// Settings that nodes read when their containers started again, later than their pods.
    pub(crate) read_later: BTreeMap<NodeId, BTreeMap<String, String>>,
    /// What it does not do, and what it says instead.
    pub(crate) refused: Vec<(Deed, &'static str)>,
    /// Does it answer nothing at all?
    pub(crate) is_silent: bool,
}

impl Default for Kafka {
    fn default() -> Self {
        Self {
            voters: Vec::new(),
            disks: BTreeMap::new(),
            is_static: false,
            registered: BTreeSet::new(),
            controllers: BTreeMap::new(),
            level: 27,
            fenced_known: true,
            log_dirs: BTreeMap::new(),
            rack: Answer::Known(Some("zone-a".into())),
            told: BTreeMap::new(),
            told_alone: BTreeMap::new(),
            read_later: BTreeMap::new(),
            refused: Vec::new(),
            is_silent: false,
        }
    }
}

impl Kafka {
    /// As the initial controllers formed it.
    pub(crate) fn formed(world: &World) -> Self {
        let text = world.kafka.status.as_ref().and_then(|status| status.initial_controllers.clone());
        let initial = text.map(|text| InitialControllers::parse(&text).unwrap());
        let voters = initial.iter().flat_map(InitialControllers::iter);
        let voters = voters.map(|one| Voter { node: one.node, directory: one.directory }).collect();
        let level = newest(world).level().min(Self::default().level);
        Self { voters, level, ..Self::default() }
    }

    fn disk(&self, node: NodeId) -> DirectoryId {
        let voter = self.voters.iter().find(|voter| voter.node == node).map(|voter| voter.directory);
        self.disks.get(&node).copied().or(voter).unwrap_or_else(|| Entropy([7; 32]).directory_id(node))
    }

    /// What its leader says.
    pub(crate) fn quorum(&self, world: &World) -> Answer<QuorumView> {
        let running: BTreeSet<NodeId> = world
            .pods
            .iter()
            .filter(|(_, pod)| pod.is_serving() && pod.runs_controller())
            .filter_map(|(name, _)| karst_core::names::node_of_pod(name))
            .collect();
        let is_up = |voter: &Voter| running.contains(&voter.node) && self.disk(voter.node) == voter.directory;
        let up: Vec<_> = self.voters.iter().filter(|voter| is_up(voter)).collect();
        let [leader, ..] = up.as_slice() else { return Answer::Silent("no leader".into()) };
        if up.len() * 2 <= self.voters.len() {
            return Answer::Silent("no majority".into());
        }
        let replica = |voter: &Voter| Replica {
            node: voter.node,
            directory: (!self.is_static).then_some(voter.directory),
            takes_part: is_up(voter),
            behind: is_up(voter).then_some(Duration::ZERO),
        };
        let others = running.iter().map(|node| Voter { node: *node, directory: self.disk(*node) });
        let brokers = world.pods.iter().filter(|(_, pod)| pod.is_serving() && !pod.runs_controller());
        let brokers = brokers.filter_map(|(name, _)| karst_core::names::node_of_pod(name));
        let brokers = brokers.map(|node| Replica {
            node,
            directory: (!self.is_static).then(|| self.disk(node)),
            takes_part: true,
            behind: Some(Duration::ZERO),
        });
        Answer::Known(QuorumView {
            cluster_id: Some(ID_IN_KAFKA.into()),
            leader: leader.node,
            epoch: 1,
            stable_for: Duration::from_secs(60),
            voters: self.voters.iter().map(replica).collect(),
            observers: others
                .filter(|one| !self.voters.contains(one))
                .map(|one| replica(&one))
                .chain(brokers)
                .collect(),
            is_dynamic: !self.is_static,
            registered: self.controllers.keys().copied().chain(running.iter().copied()).collect(),
            is_committed: true,
            metadata_level: Some(self.level),
            features: [("kraft.version".into(), 1)].into(),
        })
    }

    /// Controllers register when they start.
    fn register_controllers(&mut self, world: &World) {
        for (name, pod) in world.pods.iter().filter(|(_, pod)| pod.is_serving() && pod.runs_controller()) {
            let version = pod.meta.annotations.get(karst_core::names::KAFKA_VERSION_ANNOTATION);
            let version = version.and_then(|version| karst_core::versions::find(version));
            let level = version.map(karst_core::versions::KafkaVersion::level);
            self.controllers.extend(karst_core::names::node_of_pod(name).zip(level));
        }
    }

    /// Why it does not do what it is asked to do.
    fn refuses(&self, deed: &Deed) -> Option<String> {
        let refused = self.refused.iter().find(|(refused, _)| refused == deed);
        if let Some((_, why)) = refused {
            return Some((*why).to_owned());
        }
        let Deed::Metadata(change) = deed else { return None };
        let (node, most) = self.controllers.iter().find(|(_, most)| **most < change.level)?;
        Some(format!("Controller {node} only supports versions 7-{most}"))
    }

    /// Which brokers are registered, with all that run now.
    pub(crate) fn registered(&mut self, world: &World) -> Answer<Registered> {
        let running = world.pods.iter().filter(|(_, pod)| pod.is_serving() && pod.runs_broker());
        let running: BTreeSet<NodeId> =
            running.filter_map(|(name, _)| karst_core::names::node_of_pod(name)).collect();
        self.registered.extend(&running);
        let brokers = self
            .registered
            .iter()
            .map(|node| RegisteredBroker { node: *node, fenced: !running.contains(node) });
        let brokers = brokers.filter(|broker| self.fenced_known || !broker.fenced).collect();
        Answer::Known(Registered { brokers, fenced_known: self.fenced_known })
    }

    /// The settings that a node runs with: what it was told stands above what it started with.
    pub(crate) fn settings(&self, world: &World, node: NodeId) -> Vec<RunningSetting> {
        let pod = world.pods.values().find(|pod| node_of_pod(&pod.meta.name) == Some(node)).expect("a pod");
        let text = pod.meta.annotations.get(STARTED_WITH_ANNOTATION).map_or("{}", String::as_str);
        let read: BTreeMap<String, String> = serde_json::from_str(text).unwrap();
        let later = self.read_later.get(&node).cloned().unwrap_or_default();
        let read = read.into_iter().chain(later).collect();
        let alone = self.told_alone.iter().filter(|((to, _), _)| *to == node);
        let layers = [
            (Source::Start, read),
            (Source::Cluster, self.told.clone()),
            (Source::Node, alone.map(|((_, key), value)| (key.clone(), value.clone())).collect()),
        ];
        let unset = |key: &str| RunningSetting { key: key.into(), value: None, source: Source::Default };
        let known = versions::find("4.1.1").unwrap();
        let mut running: BTreeMap<_, _> =
            dynamic::keys(known).map(|key| (key.to_owned(), unset(key))).collect();
        for (source, layer) in layers {
            for (key, value) in layer {
                running.insert(key.clone(), RunningSetting { key, value: Some(value), source });
            }
        }
        running.into_values().collect()
    }

    /// Answers what is asked.
    pub(crate) fn answer(&mut self, world: &mut World, partitions: &[PartitionView], questions: &Questions) {
        if !questions.quorum.is_empty() {
            world.answers.quorum = match self.is_silent {
                true => Answer::Silent("no answer".into()),
                false => self.quorum(world),
            };
        }
        if questions.registered {
            world.answers.registered = self.registered(world);
        }
        let of = &questions.partitions_of;
        if !of.is_empty() {
            let found = partitions.iter().filter(|partition| !partition.replicas.is_disjoint(of)).cloned();
            world.answers.partitions = match self.is_silent {
                true => Answer::Silent("no answer".into()),
                false => Answer::Known(Partitions { of: of.clone(), found: found.collect() }),
            };
        }
        for node in &questions.log_dirs_of {
            let dirs = self.log_dirs.get(node).cloned().unwrap_or_default();
            world.answers.log_dirs.insert(*node, Answer::Known(dirs));
        }
        for machine in questions.machines.keys() {
            world.answers.machines.insert(machine.clone(), self.rack.clone());
        }
        self.tell_settings(world, questions);
    }

    /// Answers what is asked about settings.
    pub(crate) fn tell_settings(&self, world: &mut World, questions: &Questions) {
        for node in questions.settings_of_brokers.iter().chain(&questions.settings_of_controllers) {
            let running = self.settings(world, *node);
            world.answers.settings.insert(*node, Answer::Known(running));
        }
    }

    fn configure(&mut self, change: &SettingChange) {
        let SettingChange { key, node, value } = change;
        let key = key.clone();
        match (node, value.clone()) {
            (None, Some(value)) => drop(self.told.insert(key, value)),
            (None, None) => drop(self.told.remove(&key)),
            (Some(node), Some(value)) => drop(self.told_alone.insert((*node, key), value)),
            (Some(node), None) => drop(self.told_alone.remove(&(*node, key))),
        }
    }

    /// Does what it is asked to do.
    pub(crate) fn do_it(&mut self, deed: &Deed) {
        match deed {
            Deed::Change(change) => self.change(change),
            Deed::Unregister(node) => drop(self.registered.remove(node)),
            Deed::Metadata(change) => self.level = change.level,
            Deed::Configure(change) => self.configure(change),
        }
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Join { voter, .. } => self.voters.push(*voter),
            Change::Leave { voter, .. } => self.voters.retain(|one| one != voter),
            Change::MakeDynamic => self.is_static = false,
        }
    }
}

/// The newest version that pods run, or that is asked for.
fn newest(world: &World) -> &'static versions::KafkaVersion {
    let pods = world.pods.values().filter_map(|pod| pod.meta.annotations.get("strimzi.io/kafka-version"));
    let newest = pods.filter_map(|version| versions::find(version)).max_by_key(|version| version.order());
    let asked = world.kafka.spec.kafka.version.as_deref().unwrap_or(versions::DEFAULT);
    newest.or_else(|| versions::find(asked)).unwrap_or(&versions::SUPPORTED[0])
}

/// Nodes by their numbers.
pub(crate) fn nodes(ids: &[i32]) -> BTreeSet<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

/// The first partition of a topic.
pub(crate) fn partition(topic: &str, replicas: &[i32], in_sync: &[i32], min_in_sync: usize) -> PartitionView {
    PartitionView {
        topic: topic.into(),
        index: 0,
        replicas: nodes(replicas),
        in_sync: nodes(in_sync),
        min_in_sync: Some(min_in_sync),
        leader: in_sync.first().map(|node| NodeId(*node)),
        ..PartitionView::default()
    }
}

/// Decides and carries out until nothing is left to do, with no partitions anywhere.
pub(crate) fn converge(world: &mut World) -> usize {
    converge_with(world, &[])
}

/// Decides and carries out until nothing is left to do. Returns how many plans did something.
pub(crate) fn converge_with(world: &mut World, partitions: &[PartitionView]) -> usize {
    let mut kafka = None;
    for round in 0..100 {
        let kafka = kafka.get_or_insert_with(|| Kafka::formed(world));
        if kafka.voters.is_empty() {
            *kafka = Kafka::formed(world);
        }
        if !step(world, kafka, partitions) {
            return round;
        }
    }
    panic!("it never comes to rest: {:?}", decide(world));
}

/// Decides and carries out until nothing is left to do, with a Kafka that lives on.
pub(crate) fn converge_kafka(world: &mut World, kafka: &mut Kafka, partitions: &[PartitionView]) {
    for _ in 0..200 {
        if !step(world, kafka, partitions) {
            return;
        }
    }
    panic!("it never comes to rest: {:?}", decide(world));
}

/// So many steps at most. Whoever has not come to rest by then, and left the loop, fails.
pub(crate) fn steps(most: usize) -> impl Iterator<Item = usize> {
    (0..=most).inspect(move |step| assert!(*step < most, "it does not come to rest within {most} steps"))
}

/// Asks, decides and carries out once. Was there anything to do?
pub(crate) fn step(world: &mut World, kafka: &mut Kafka, partitions: &[PartitionView]) -> bool {
    let plan = plan(world).expect("a plan");
    if !plan.questions.is_empty() {
        kafka.answer(world, partitions, &plan.questions);
        return true;
    }
    world.answers = Answers::default();
    if is_quiet(&plan) {
        return false;
    }
    obey(world, kafka, plan);
    run_pods(world, true);
    true
}

/// One whole pass: asks until nothing is left to ask, and carries out. What becomes of the pods is for the caller to say.
pub(crate) fn pass(world: &mut World, kafka: &mut Kafka) -> Option<karst_core::status::Progress> {
    world.answers = Answers::default();
    for _ in 0..8 {
        let plan = plan(world).expect("a plan");
        if plan.questions.is_empty() {
            let progress = plan.progress.clone();
            obey(world, kafka, plan);
            world.answers = Answers::default();
            return progress;
        }
        kafka.answer(world, &[], &plan.questions);
    }
    panic!("it never stops asking: {:?}", plan(world).unwrap().questions);
}

/// Lets Kafka and Kubernetes do what a plan asks for.
fn obey(world: &mut World, kafka: &mut Kafka, plan: Plan) {
    kafka.register_controllers(world);
    for deed in &plan.deeds {
        if let Some(why) = kafka.refuses(deed) {
            world.memory.kafka_refused(deed, &why, world.now);
            // The clock stands still here, so no pause would ever end.
            world.memory.troubles.iter_mut().for_each(|trouble| trouble.until = world.now);
            continue;
        }
        kafka.do_it(deed);
        world.memory.kafka_did(deed);
        if matches!(deed, Deed::Configure(_)) {
            world.memory.checked_settings.clear();
        }
        if let Deed::Unregister(node) = deed
            && let Some(status) = karst_core::registration::without(world, *node)
        {
            patch_kafka(world, &status);
        }
    }
    carry_out(world, plan);
}

/// Does a plan do nothing at all?
pub(crate) fn is_quiet(plan: &Plan) -> bool {
    plan.facts.is_empty()
        && plan.certificates.is_empty()
        && plan.ownerships.is_empty()
        && plan.objects.is_empty()
        && plan.services.is_empty()
        && plan.growths.is_empty()
        && plan.status.is_none()
        && plan.pool_statuses.is_empty()
        && plan.removals.is_empty()
        && plan.protections.is_empty()
        && plan.questions.is_empty()
        && plan.restarts.is_empty()
        && plan.marks.is_empty()
        && plan.racked.is_empty()
        && plan.deeds.is_empty()
        && plan.forgotten.is_empty()
}

/// What the pools say of themselves is lost, and all that runs. The disks are left.
pub(crate) fn lose_all_but_disks(world: &mut World) {
    for pool in world.pools.values_mut() {
        Arc::make_mut(pool).status = None;
    }
    (world.pods, world.pod_sets, world.config_maps) = Default::default();
}

/// A cluster made from the example, at rest.
pub(crate) fn converged() -> World {
    let mut world = quickstart();
    converge(&mut world);
    world
}

/// The conditions of the cluster of a type: reason and message.
pub(crate) fn conditions(world: &World, type_: &str) -> Vec<(String, String, String)> {
    let status = world.kafka.status.clone().unwrap_or_default();
    of_type(status.conditions, type_)
}

/// The conditions of a pool of a type.
pub(crate) fn pool_conditions(world: &World, pool: &str, type_: &str) -> Vec<(String, String, String)> {
    let status = world.pools[pool].status.clone().unwrap_or_default();
    of_type(status.conditions, type_)
}

fn of_type(conditions: Option<Vec<api::Condition>>, type_: &str) -> Vec<(String, String, String)> {
    conditions
        .unwrap_or_default()
        .into_iter()
        .filter(|condition| condition.type_.as_deref() == Some(type_))
        .map(|condition| {
            let text = |field: Option<String>| field.unwrap_or_default();
            (text(condition.status), text(condition.reason), text(condition.message))
        })
        .collect()
}
