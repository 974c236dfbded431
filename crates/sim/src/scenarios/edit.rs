//! What users do to a cluster and what befalls it: as changes of resources, which real clusters take too, and as they are carried out in
//! the simulated world.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karst_api::{self as api, Role};
use karst_certs::{Kind as Authority, authority};
use karst_core::ids::NodeId;
use karst_core::names::{
    ALLOW_LOSS_ANNOTATION, DELETE_POD_AND_CLAIM_ANNOTATION, MANUAL_ROLL_ANNOTATION, MIGRATION_ANNOTATION,
    NODE_POOLS_ANNOTATION, PAUSE_ANNOTATION, RESTORE_ANNOTATION, node_of_pod, operator_secret, trust_secret,
};

use super::{CLUSTER, authorities, disks, disposable, kafka, pool};
use crate::data::RECORDS;
use crate::kubelet::Fails;
use crate::kubernetes::{Kind, PolicyEngine};
use crate::sim::Sim;

/// What a user does, or what befalls a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Edit {
    Scale(&'static str, i32),
    AddPool(&'static str, i32, &'static [Role], Disks),
    DeletePool(&'static str),
    Roles(&'static str, &'static [Role]),
    Configure(&'static str, i64),
    Unset(&'static str),
    /// Asks for another version of Kafka.
    Version(&'static str),
    /// Asks for another version of Kafka, and for the metadata version to stay.
    VersionOnly(&'static str),
    /// Asks for another listener: its name, port and type. Its lists of who may connect are there, and empty.
    Listen(&'static str, u16, &'static str),
    /// Puts all resources back to what they were.
    Revert,
    /// Tells the operator to leave the cluster alone, or not to.
    Pause(bool),
    /// Says with an annotation of a pool which node ids it gets, or gives away.
    Steer(&'static str, &'static str, &'static str),
    /// From now on the cluster is made of its pools.
    UsePools,
    /// Asks for larger disks.
    Grow(&'static str, &'static str),
    /// Asks for a pod to be made anew with empty disks.
    Empty(i32),
    /// Asks for a restart of all pods of a pool.
    Roll(&'static str),
    /// A process dies and starts again.
    Crash(i32),
    /// A voter that was just removed answers a heartbeat of this leader, which dies of that and starts again.
    Answer(i32),
    /// All processes die and start again.
    PowerCut,
    /// A process dies, and stays away for so many milliseconds.
    Down(i32, u64),
    /// The operator dies, and none runs for so many milliseconds.
    OperatorDown(u64),
    /// The same, from the moment in which it next changes which pods a pod set lists.
    OperatorDownUnlisting(u64),
    /// For so many milliseconds no machine has room for another pod.
    Full(u64),
    /// A process dies, and its disk is gone.
    LoseDisk(i32),
    /// Somebody deletes a pod.
    DeletePod(i32),
    /// Somebody deletes a pod and its claim.
    DeletePodAndClaim(i32),
    /// Somebody deletes the `Kafka` resource, and all that goes with it.
    DeleteKafka,
    /// Somebody creates it again.
    CreateKafka,
    /// Asks for a static quorum to become a dynamic one.
    Migrate,
    /// A person who knows that another voter is intact asks for the vote of the first of these lost ones to be restored that did not lead last.
    Restore([i32; 2]),
    /// Asks for a new certificate of an authority.
    Renew(Authority),
    /// Asks for a new key of an authority.
    Replace(Authority),
    /// Somebody deletes Secrets of an authority.
    Lose(Authority, Half),
    /// Somebody writes another authority over one, in one of its Secrets or in both.
    Overwrite(Authority, Half),
    /// Somebody deletes the Secret of what nodes trust.
    LoseTrust,
    /// Somebody deletes the operator's own certificate.
    LoseOwn,
    /// Nothing, but time passes.
    Wait,
    /// All of these at once, as one file is applied.
    Apply(&'static [Edit]),
    /// Asks for the claims of a pool to be kept when their nodes go.
    KeepClaims(&'static str),
    /// Asks for so much memory for all nodes.
    Memory(&'static str),
    /// A person says that the data of these pods may be lost. With no pods they take back what they said.
    AllowLoss(&'static str),
    /// Asks for a restart of one pod.
    Mark(i32),
    /// Somebody deletes the claim of a node, and not its pod.
    DeleteClaim(i32),
    /// Somebody creates a topic with copies on these nodes, and with so many that must be in sync.
    AddTopic(&'static str, &'static [i32], usize),
    /// Somebody moves all copies of one broker to others of these, as far as they have none yet.
    Reassign(i32, &'static [i32]),
    /// A broker copies nothing for so many milliseconds.
    Slow(i32, u64),
    /// A broker reaches no controller for so many milliseconds.
    CutOff(i32, u64),
    /// One directory of a broker fails.
    FailDirectory(i32),
    /// Somebody else makes an object of a name that the cluster is going to need.
    Other(Kind, &'static str),
    /// Somebody else deletes all objects of theirs.
    NoOthers,
    /// A pool is labelled as another cluster's.
    GiveAway(&'static str),
    /// It is labelled as this cluster's again.
    TakeBack(&'static str),
    /// All nodes have too little memory: as they are made now, they die whenever they start.
    Starve,
    /// A pod is made anew, and what is in the new one dies whenever it starts.
    CrashAnew(i32),
    /// A pod is made anew, and the image of the new one cannot be had.
    PullAnew(i32),
    /// From now on a policy changes budgets, network policies and services.
    Enforce(PolicyEngine),
}

/// Which of the Secrets of an authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// That of its certificates.
    Certificates,
    /// That of its key.
    Key,
    /// Both.
    Both,
}

impl Half {
    /// Their names.
    pub(super) fn secrets(self, kind: Authority) -> Vec<String> {
        let (certificates, key) = (kind.cert_secret(CLUSTER), kind.key_secret(CLUSTER));
        match self {
            Self::Certificates => vec![certificates],
            Self::Key => vec![key],
            Self::Both => vec![key, certificates],
        }
    }
}

/// What a pool keeps its data on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disks {
    /// Claims that go with their node.
    Disposable,
    /// Claims that stay.
    Kept,
    /// The pods' own.
    Ephemeral,
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl Edit {
    /// Does it disturb what runs?
    pub fn is_fault(&self) -> bool {
        matches!(
            self,
            Self::Crash(_)
                | Self::Answer(_)
                | Self::Down(..)
                | Self::PowerCut
                | Self::LoseDisk(_)
                | Self::DeletePod(_)
                | Self::DeletePodAndClaim(_)
                | Self::DeleteKafka
                | Self::Slow(..)
                | Self::CutOff(..)
                | Self::FailDirectory(_)
                | Self::Starve
                | Self::CrashAnew(_)
                | Self::PullAnew(_)
        )
    }

    /// Is something taken back that a user allowed?
    pub(crate) fn takes_back(&self) -> bool {
        matches!(self, Self::AllowLoss(""))
    }

    /// Can it be done in the simulated world only?
    pub fn is_simulated_only(&self) -> bool {
        matches!(
            self,
            Self::Revert
                | Self::Answer(_)
                | Self::Down(..)
                | Self::OperatorDown(_)
                | Self::OperatorDownUnlisting(_)
                | Self::Full(_)
                | Self::Apply(_)
                | Self::Lose(..)
                | Self::Overwrite(..)
                | Self::LoseTrust
                | Self::LoseOwn
                | Self::Memory(_)
                | Self::Mark(_)
                | Self::DeleteClaim(_)
                | Self::AddTopic(..)
                | Self::Reassign(..)
                | Self::Slow(..)
                | Self::CutOff(..)
                | Self::FailDirectory(_)
                | Self::Other(..)
                | Self::NoOthers
                | Self::GiveAway(_)
                | Self::TakeBack(_)
                | Self::Starve
                | Self::CrashAnew(_)
                | Self::PullAnew(_)
                | Self::Enforce(_)
        )
    }

    /// Is a disk lost by it?
    pub(crate) fn takes_disk(&self) -> bool {
        matches!(self, Self::LoseDisk(_) | Self::DeletePodAndClaim(_))
    }

    /// Misfortune strikes.
    pub(crate) fn befall(&self, sim: &mut Sim) {
        sim.tell(|| format!("fate      {self}"));
        sim.watch.last_fault = sim.now;
        if !matches!(self, Self::Answer(_)) {
            sim.watch.last_surprise = sim.now;
        }
        if let Self::LoseDisk(node) = self {
            sim.watch.lost_disk = Some((sim.now, NodeId(*node)));
        }
        self.carry_out(sim);
    }

    /// What it changes in the `Kafka` resource.
    pub fn change_kafka(&self, kafka: &mut api::Kafka) {
        let spec = &mut kafka.spec.kafka;
        match self {
            Self::Configure(key, value) => {
                spec.config.get_or_insert_default().insert((*key).to_owned(), (*value).into());
            }
            Self::Unset(key) => drop(spec.config.as_mut().and_then(|config| config.remove(*key))),
            Self::Version(version) => spec.version = Some((*version).to_owned()),
            Self::VersionOnly(version) => {
                spec.version = Some((*version).to_owned());
                spec.metadata_version = Some("4.1".to_owned());
            }
            Self::Listen(name, port, kind) => {
                let listener = serde_json::json!({"name": name, "port": port, "type": kind, "tls": false,
                                                   "networkPolicyPeers": []});
                spec.listeners.extend(serde_json::from_value(listener).ok());
            }
            Self::Pause(paused) => annotate(&mut kafka.metadata, PAUSE_ANNOTATION, &paused.to_string()),
            Self::UsePools => annotate(&mut kafka.metadata, NODE_POOLS_ANNOTATION, "enabled"),
            Self::AllowLoss(pods) => annotate(&mut kafka.metadata, ALLOW_LOSS_ANNOTATION, pods),
            Self::Migrate => annotate(&mut kafka.metadata, MIGRATION_ANNOTATION, "true"),
            Self::Restore(lost) => {
                if let Some((node, directory)) = disks::restorable(kafka, *lost) {
                    annotate(&mut kafka.metadata, RESTORE_ANNOTATION, &format!("{node}:{directory}"));
                }
            }
            _ => {}
        }
    }

    /// The pool whose resource it changes.
    pub fn pool(&self) -> Option<&'static str> {
        match self {
            Self::Scale(pool, _)
            | Self::Roles(pool, _)
            | Self::Steer(pool, ..)
            | Self::Grow(pool, _)
            | Self::KeepClaims(pool) => Some(pool),
            _ => None,
        }
    }

    /// What it changes there.
    pub fn change_pool(&self, pool: &mut api::KafkaNodePool) {
        match self {
            Self::Scale(_, replicas) => pool.spec.replicas = *replicas,
            Self::Roles(_, roles) => pool.spec.roles = roles.to_vec(),
            Self::Steer(_, annotation, ids) => annotate(&mut pool.metadata, annotation, ids),
            Self::KeepClaims(_) => pool.spec.storage.delete_claim = Some(false),
            Self::Grow(_, size) => {
                if let Ok(storage) = serde_json::from_value(disposable(size)) {
                    pool.spec.storage = storage;
                }
            }
            _ => {}
        }
    }

    /// The Secret that it marks with an annotation.
    pub fn marks_secret(&self) -> Option<(String, &'static str)> {
        match self {
            Self::Renew(kind) => Some((kind.cert_secret(CLUSTER), authority::FORCE_RENEW)),
            Self::Replace(kind) => Some((kind.key_secret(CLUSTER), authority::FORCE_REPLACE)),
            _ => None,
        }
    }

    /// Makes it so.
    pub(crate) fn carry_out(&self, sim: &mut Sim) {
        if let Some(pool) = self.pool() {
            return sim.api.edit_pool(pool, |pool| self.change_pool(pool));
        }
        if let Some((secret, annotation)) = self.marks_secret() {
            return sim.api.annotate_secret(&secret, annotation, "true");
        }
        match self {
            Self::AddPool(name, replicas, roles, disks) => {
                if let Some(pool) = pool(name, *replicas, roles, *disks) {
                    sim.api.create_pool(pool);
                }
            }
            Self::DeletePool(pool) => sim.api.delete_pool(pool),
            Self::Revert => {
                if let Some(before) = sim.before.clone() {
                    before.restore(&mut sim.api);
                }
            }
            Self::Empty(node) => {
                if let Some(pod) = pod_of(sim, *node) {
                    sim.api.edit_pod(&pod, |pod| {
                        let key = DELETE_POD_AND_CLAIM_ANNOTATION.to_owned();
                        pod.meta.annotations.insert(key, "true".to_owned());
                    });
                }
            }
            Self::Roll(pool) => {
                sim.api.edit_set(&format!("{CLUSTER}-{pool}"), |set| {
                    set.meta.annotations.insert(MANUAL_ROLL_ANNOTATION.to_owned(), "true".to_owned());
                });
            }
            Self::Apply(all) => all.iter().for_each(|edit| edit.carry_out(sim)),
            Self::Memory(amount) => raise_memory(sim, amount),
            Self::Mark(node) => {
                if let Some(pod) = pod_of(sim, *node) {
                    sim.api.edit_pod(&pod, |pod| {
                        pod.meta.annotations.insert(MANUAL_ROLL_ANNOTATION.to_owned(), "true".to_owned());
                    });
                }
            }
            Self::DeleteClaim(node) => delete_claims(sim, *node),
            Self::AddTopic(topic, on, min) => sim.data.create(topic, 0, on, *min, RECORDS),
            Self::Reassign(from, to) => sim.data.reassign(NodeId(*from), to),
            Self::Slow(node, millis) => sim.data.slow_down(NodeId(*node), *millis),
            Self::CutOff(node, millis) => sim.quorum.cut(NodeId(*node), *millis),
            Self::FailDirectory(node) => sim.data.fail_directory(NodeId(*node)),
            Self::Starve => {
                for pod in sim.api.pods().cloned().collect::<Vec<_>>() {
                    sim.kubelet.starve(&pod, sim.now, &mut sim.api, &mut sim.quorum);
                }
            }
            Self::CrashAnew(node) => fail_anew(sim, *node, Fails::Crashes),
            Self::PullAnew(node) => fail_anew(sim, *node, Fails::Waits),
            Self::Crash(node) | Self::Answer(node) => crash(sim, *node, None),
            Self::Down(node, millis) => crash(sim, *node, Some(*millis)),
            Self::OperatorDown(millis) => sim.no_operator_until = sim.now + millis,
            Self::OperatorDownUnlisting(millis) => sim.dies_unlisting = Some(*millis),
            Self::Full(millis) => sim.kubelet.full_until = sim.now + millis,
            Self::LoseDisk(node) => lose_disk(sim, *node),
            Self::PowerCut => {
                let nodes: Vec<NodeId> = sim.quorum.processes.keys().copied().collect();
                for node in nodes {
                    crash(sim, node.0, None);
                }
            }
            Self::DeletePod(node) => delete_pod(sim, *node),
            Self::DeletePodAndClaim(node) => {
                delete_claims(sim, *node);
                delete_pod(sim, *node);
            }
            Self::DeleteKafka => sim.api.delete_kafka(),
            Self::CreateKafka => {
                if let Some(kafka) = kafka() {
                    sim.api.create_kafka(kafka);
                }
            }
            Self::Lose(kind, half) => {
                half.secrets(*kind).iter().for_each(|name| sim.api.delete_secret(name));
            }
            Self::Overwrite(kind, half) => authorities::overwrite(sim, *kind, *half),
            Self::Other(kind, name) => sim.api.create_other(*kind, name),
            Self::NoOthers => sim.api.delete_others(),
            Self::GiveAway(pool) => sim.api.give_away_pool(pool),
            Self::TakeBack(pool) => sim.api.take_back_pool(pool),
            Self::LoseTrust => sim.api.delete_secret(&trust_secret(CLUSTER)),
            Self::LoseOwn => sim.api.delete_secret(&operator_secret(CLUSTER)),
            Self::Enforce(engine) => sim.api.engine = *engine,
            Self::Wait => {}
            of_kafka => {
                if let Self::Restore(lost) = of_kafka {
                    disks::allow_restoration(sim, *lost);
                }
                sim.api.edit_kafka(|kafka| of_kafka.change_kafka(kafka));
            }
        }
    }
}

fn delete_claims(sim: &mut Sim, node: i32) {
    let claims = sim.api.claims().filter(|claim| node_of_pod(&claim.meta.name) == Some(NodeId(node)));
    let claims: Vec<_> = claims.map(|claim| (claim.meta.name.clone(), claim.meta.uid.clone())).collect();
    for (name, uid) in claims {
        // It was just seen.
        let _ = sim.api.delete(Kind::Claim, &name, &uid, None);
    }
}

/// Nodes with other memory are other pods.
fn raise_memory(sim: &mut Sim, amount: &str) {
    let names: Vec<String> = sim.api.pools().filter_map(|pool| pool.metadata.name.clone()).collect();
    let limits = serde_json::json!({"limits": {"memory": amount}, "requests": {"memory": amount}});
    for name in names {
        sim.api.edit_pool(&name, |pool| pool.spec.resources = serde_json::from_value(limits.clone()).ok());
    }
}

pub(super) fn annotate(meta: &mut ObjectMeta, annotation: &str, value: &str) {
    meta.annotations.get_or_insert_default().insert(annotation.to_owned(), value.to_owned());
}

fn pod_of(sim: &Sim, node: i32) -> Option<String> {
    let pod = sim.api.pods().find(|pod| node_of_pod(&pod.meta.name) == Some(NodeId(node)))?;
    Some(pod.meta.name.clone())
}

fn delete_pod(sim: &mut Sim, node: i32) {
    let Some(name) = pod_of(sim, node) else { return };
    let Some(uid) = sim.api.pod(&name).map(|pod| pod.meta.uid.clone()) else { return };
    // It was just seen.
    let _ = sim.api.delete(Kind::Pod, &name, &uid, None);
}

fn fail_anew(sim: &mut Sim, node: i32, fails: Fails) {
    sim.kubelet.next_fails.insert(NodeId(node), fails);
    delete_pod(sim, node);
}

fn crash(sim: &mut Sim, node: i32, down: Option<u64>) {
    sim.kubelet.crash(NodeId(node), down, sim.now, &mut sim.quorum, &mut sim.dice);
}

/// The disk of a node's pod is gone, whether its process runs or not.
fn lose_disk(sim: &mut Sim, node: i32) {
    let Some(pod) = pod_of(sim, node).and_then(|name| sim.api.pod(&name).cloned()) else { return };
    let claim = sim.api.volume(&pod.meta.uid).and_then(|claim| sim.api.claim(claim));
    let disk = claim.map_or_else(|| pod.meta.uid.clone(), |claim| claim.meta.uid.clone());
    crash(sim, node, None);
    sim.kubelet.lose_disk(&disk, &mut sim.quorum);
}
