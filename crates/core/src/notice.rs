//! What is done otherwise than asked, or is worth a look, though the cluster goes on.
//!
//! Each notice is a value with its data and one sentence. Conditions, events, logs and dry runs print that sentence.

use std::fmt;

use k8s_openapi::jiff::Timestamp;

use crate::health;
use crate::ids::NodeId;
use crate::names::{
    ALLOW_LOSS_ANNOTATION, DELETE_POD_AND_CLAIM_ANNOTATION, EMPTY_VOTER_ANNOTATION, KEY_ALGORITHM_ANNOTATION,
    MIGRATION_ANNOTATION, RESTORE_ANNOTATION, SKIP_CHECK_ANNOTATION,
};
use crate::reason::Reason;

/// Something a user should know, though the cluster goes on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Notice {
    /// Fields that have no effect.
    #[error("Karst keeps these fields but does not act on them yet: {}", fields.join(", "))]
    FieldsIgnored {
        /// The pool they are on, or `None` for the cluster.
        pool: Option<String>,
        /// Their paths.
        fields: Vec<String>,
    },
    /// Settings that only the operator may make.
    #[error("these settings of spec.kafka.config belong to Karst and are left out: {}", keys.join(", "))]
    SettingsLeftOut {
        /// The keys.
        keys: Vec<String>,
    },
    /// Settings that Kafka does not know. A plugin may.
    #[error("Kafka {kafka} does not know these settings of spec.kafka.config: {}; unless a plugin reads them they do nothing: correct or remove them", keys.join(", "))]
    SettingsUnknown {
        /// The Kafka version.
        kafka: &'static str,
        /// The keys.
        keys: Vec<String>,
    },
    /// More copies than brokers.
    #[error(
        "spec.kafka.config.{key} is {factor}, and there are {brokers} brokers: topics that get it cannot be created; set it to {brokers} or less, or add brokers"
    )]
    TooManyReplicas {
        /// The setting.
        key: &'static str,
        /// What it is.
        factor: usize,
        /// How many brokers there are.
        brokers: usize,
    },
    /// A minimum of copies that topics never have.
    #[error(
        "spec.kafka.config.{key} is {minimum}, and {factor_key} is {factor}: topics that get both take no writes with acks=all; the minimum should be below the number of copies"
    )]
    MinimumTooHigh {
        /// The minimum.
        key: &'static str,
        /// What it is.
        minimum: usize,
        /// The number of copies.
        factor_key: &'static str,
        /// What it is.
        factor: usize,
    },
    /// A setting that Kafka did not take while it runs.
    #[error(
        "{change}, but Kafka did not do it: {why}; nodes keep the value they run with, also when they restart; correct the value, or take it back; it is tried again"
    )]
    SettingNotTaken {
        /// The change.
        change: String,
        /// What Kafka said.
        why: String,
    },
    /// Nodes that serve and do not say what they run with.
    #[error(
        "nodes {nodes} serve, but do not say which settings they run with ({why}): whether they have taken those of spec.kafka.config is not known; they are asked again"
    )]
    SettingsUntold {
        /// The nodes.
        nodes: String,
        /// What came instead of an answer.
        why: String,
    },
    /// A listener that is not served.
    #[error("listener '{name}' is not served: {why}")]
    ListenerLeftOut {
        /// The listener.
        name: String,
        /// What is not supported.
        why: String,
    },
    /// A listener that stays as it is, because it cannot be what is asked for.
    #[error("listener '{name}' stays as it is ({now}): {why}")]
    ListenerTypeKept {
        /// The listener.
        name: String,
        /// Its type now.
        now: &'static str,
        /// What is not supported.
        why: String,
    },
    /// A listener that stays as it is until its new addresses are there.
    #[error(
        "listener '{name}' is to be of type {asked} and stays as it is ({now}) until its services have addresses: {services}; clients are served as before, and then brokers restart once, one at a time"
    )]
    ListenerReachKept {
        /// The listener.
        name: String,
        /// What was asked for.
        asked: &'static str,
        /// Its type now.
        now: &'static str,
        /// The services without an address.
        services: String,
    },
    /// Settings of a listener that have no effect.
    #[error("listener '{name}': these fields of its authentication are left out: {}; {why}", fields.join(", "))]
    ListenerSettingsLeftOut {
        /// The listener.
        name: String,
        /// The fields.
        fields: Vec<String>,
        /// Why, and what would have an effect.
        why: &'static str,
    },
    /// The end of a certificate that the user brought.
    #[error(
        "listener '{listener}': the certificate '{subject}' in '{entry}' of Secret {secret} {}; put a renewed one there: it is loaded without a restart",
        if *is_over { format!("ended at {end}, and clients that check it are shut out") } else { format!("ends at {end}") }
    )]
    OwnCertificateEnds {
        /// The listener.
        listener: String,
        /// The Secret.
        secret: String,
        /// The entry of the Secret.
        entry: String,
        /// Whose certificate it is.
        subject: String,
        /// When it ends.
        end: Timestamp,
        /// Is that past?
        is_over: bool,
    },
    /// A listener whose brokers have no address yet.
    #[error(
        "listener '{name}' waits for addresses, and brokers without one serve only the others: services {services}"
    )]
    ListenerAwaitsAddress {
        /// The listener.
        name: String,
        /// The services without an address.
        services: String,
    },
    /// A service that Kubernetes does not take.
    #[error(
        "Service {service} of listener '{name}' cannot be written: {why}; correct the listener; it is tried again every minute"
    )]
    ListenerServiceRefused {
        /// The listener.
        name: String,
        /// The service.
        service: String,
        /// What Kubernetes said.
        why: String,
    },
    /// Something that Kubernetes does not do: a quota, or another rule of whoever runs it.
    #[error("Kubernetes does not do what the cluster needs: {what}; it is tried again")]
    Refused {
        /// What was tried, and what Kubernetes said.
        what: String,
    },
    /// Objects with the cluster's label that cannot be read, and that nothing waits for.
    #[error(
        "{}; by their names Karst made none of them, and nothing waits for them: take the label strimzi.io/cluster off them, or delete them", strays.join("; ")
    )]
    Strays {
        /// What they are, and what is wrong with them.
        strays: Vec<String>,
    },
    /// An object that is changed whenever Karst writes it.
    #[error(
        "{object} does not stay as Karst writes it{}: a policy of this Kubernetes, or another controller, changes it; Karst writes it again at least every minute, and goes on with everything else{}; exempt the object from what changes it", differing(field.as_deref()), held_restarts(holds)
    )]
    ObjectKeepsChanging {
        /// Its kind and name.
        object: String,
        /// The field that was found changed, and who changed the object last.
        field: Option<String>,
        /// The pods that do not restart meanwhile.
        holds: Vec<String>,
    },
    /// Addresses of Kubernetes nodes that Karst does not know.
    #[error(
        "listener '{name}': preferredNodePortAddressType is {asked}, which a pod is not told about its node, so brokers advertise the node's InternalIP; use InternalIP or Hostname, or set advertisedHost of each broker (or advertisedHostTemplate)"
    )]
    NodeAddressType {
        /// The listener.
        name: String,
        /// What was asked for.
        asked: &'static str,
    },
    /// Settings of nodes that are no brokers.
    #[error(
        "listener '{name}': configuration.brokers is about nodes {nodes}, which are no brokers of this cluster"
    )]
    ListenerBrokersUnknown {
        /// The listener.
        name: String,
        /// The nodes.
        nodes: String,
    },
    /// A certificate of the user's that cannot be used.
    #[error("listener '{listener}': Secret {secret} of brokerCertChainAndKey: {why}; {meanwhile}")]
    OwnCertificate {
        /// The listener.
        listener: String,
        /// The Secret.
        secret: String,
        /// What is wrong with it.
        why: String,
        /// What becomes of the listener until that is mended.
        meanwhile: Meanwhile,
    },
    /// Pools that are not used.
    #[error("the KafkaNodePool resources {} are not used, because spec.kafka.replicas is set and the annotation strimzi.io/node-pools is not 'enabled'", pools.join(", "))]
    PoolsNotUsed {
        /// The pools.
        pools: Vec<String>,
    },
    /// A change of the controllers of a static quorum.
    #[error(
        "pool '{pool}' keeps its controllers {kept}: the voters of a static quorum cannot change; set the annotation {MIGRATION_ANNOTATION}: \"true\" on the Kafka resource to migrate it first (Kafka 4.1 and later)"
    )]
    ControllersHeld {
        /// The pool.
        pool: String,
        /// Its nodes.
        kept: String,
    },
    /// Controllers that are to go, and the quorum does not say whether they vote.
    #[error(
        "nodes {nodes} of pool '{pool}' are to go and stay, because the quorum does not say whether they vote ({why})"
    )]
    QuorumUnknown {
        /// The pool.
        pool: String,
        /// The nodes.
        nodes: String,
        /// What came instead of an answer.
        why: String,
    },
    /// A voter that is to leave and cannot.
    #[error(
        "controller {node} is to leave the quorum and stays: of the {left} voters that would remain only {healthy} are up and caught up; not so: {voters}"
    )]
    VoterStays {
        /// The voter.
        node: NodeId,
        /// How many would remain.
        left: usize,
        /// How many of them are healthy.
        healthy: usize,
        /// Those that are not.
        voters: String,
    },
    /// A voter that is to leave, and lags behind all the time.
    #[error(
        "controller {node} is to leave the quorum and stays for now: it does not keep up with the leader, and a leader can die of the late answer of a voter that it has just removed. It leaves as soon as it keeps up, or when it has been away for a minute. If this goes on, find out what slows it down (CPU, disk, network), or delete its pod"
    )]
    VoterLags {
        /// The voter.
        node: NodeId,
    },
    /// A static quorum that is to become a dynamic one, and cannot.
    #[error(
        "the quorum stays static for now, though the annotation {MIGRATION_ANNOTATION} asks for a dynamic one: {why}"
    )]
    MigrationHeld {
        /// What is missing.
        why: String,
    },
    /// A change of the quorum that Kafka did not make.
    #[error("{change}, but Kafka did not do it: {why}; it is tried again")]
    QuorumChangeFailed {
        /// The change.
        change: String,
        /// What Kafka said.
        why: String,
    },
    /// A broker that is gone, and that Kafka did not forget.
    #[error(
        "broker {node} is gone and still registered, because Kafka did not unregister it: {why}; it is tried again"
    )]
    UnregistrationFailed {
        /// The broker.
        node: NodeId,
        /// What Kafka said.
        why: String,
    },
    /// A metadata version that Kafka did not take.
    #[error("the metadata version is to become {name}, but Kafka did not do it: {why}; it is tried again")]
    MetadataFailed {
        /// The metadata version.
        name: &'static str,
        /// What Kafka said.
        why: String,
    },
    /// A metadata version that waits for brokers to be forgotten.
    #[error(
        "the metadata version is to become {name} and waits until brokers {brokers}, which are gone, are unregistered: Kafka counts them with what they could do when they left; unregister them by hand (kafka-cluster.sh unregister) should Kafka go on refusing"
    )]
    MetadataWaits {
        /// The metadata version.
        name: &'static str,
        /// The brokers.
        brokers: String,
    },
    /// A voter that is not restored.
    #[error("the annotation {RESTORE_ANNOTATION}: \"{asked}\" is not followed: {why}")]
    RestorationHeld {
        /// What was asked for.
        asked: String,
        /// Why not.
        why: String,
    },
    /// Controllers whose disks are empty, and may have been lost.
    #[error(
        "{pods}: the disk is empty, the node may have voted on another one before, and no controller leads that could tell. It waits, because a vote that is given twice can cost metadata: bring the other controllers back. If that cannot be, docs/quorum.md tells what is lost by setting {EMPTY_VOTER_ANNOTATION}: {first} on the Kafka resource (name one pod only: as soon as there is a leader, others go on by themselves)"
    )]
    EmptyDiskHeld {
        /// Their pods.
        pods: String,
        /// One of them.
        first: String,
    },
    /// Voters that a person lets start on empty disks, when others do already.
    #[error(
        "{annotation} is not followed for {held} yet: {first} may start on an empty disk already, and with more such voters they could elect each other, and a controller that still has its disk would lose what only it knows. Bring up the controllers that have their disks: then there is a leader, and the others follow by themselves. If no controller has its disk any more, name them all: {all} (docs/quorum.md)"
    )]
    EmptyStartHeld {
        /// The annotation that names them.
        annotation: &'static str,
        /// Their pods.
        held: String,
        /// Those that were first.
        first: String,
        /// All voters.
        all: String,
    },
    /// A cluster of which only disks are left.
    #[error(
        "{claims} claims of an earlier cluster of this name are there, and no resource knows its id: its nodes start on these disks as they are, no disk is formatted, and the cluster's id is taken from Kafka when it has a leader. If the disks are not needed, delete the claims to start empty"
    )]
    Adopting {
        /// How many.
        claims: usize,
    },
    /// A cluster that lost everything, and starts over.
    #[error(
        "every disk of the cluster was ephemeral, and is gone with its pod: the cluster is formed anew, without topics and records"
    )]
    FormedAnew,
    /// A cluster that cannot go on, and has not lost everything.
    #[error(
        "the disks of most voters were ephemeral, and are gone with their pods: nobody can be elected any more. Left are the disks of {pods}. Save what you need from them, then delete these pods: the cluster is formed anew then, without topics and records"
    )]
    DisksLeft {
        /// The pods that have them.
        pods: String,
    },
    /// Controllers that are gone, and in the way of a metadata version.
    #[error(
        "controllers {nodes} left the quorum, and Kafka still has them registered with what they could do when they left; should that be less than metadata version {metadata} needs, they run once more, without a vote, until they have registered anew"
    )]
    ControllersRegistered {
        /// The controllers.
        nodes: String,
        /// The metadata version.
        metadata: &'static str,
    },
    /// A metadata version that cannot be had, in a cluster that has one.
    #[error(
        "spec.kafka.metadataVersion is '{asked}', and the metadata version stays {kept}: {why}; correct it, or leave it out"
    )]
    MetadataVersionHeld {
        /// What was asked for.
        asked: String,
        /// What there is.
        kept: &'static str,
        /// What is in the way.
        why: String,
    },
    /// A metadata version that waits for pods of which Karst knows no valid pool.
    #[error(
        "the metadata version is to become {name} and waits for these pods, which run another version of Kafka and belong to no valid pool: {pods}; correct their pools, or remove them"
    )]
    MetadataWaitsForPods {
        /// The metadata version.
        name: &'static str,
        /// The pods.
        pods: String,
    },
    /// Brokers that serve, and do not say who is registered.
    #[error(
        "Kafka does not list its brokers ({why}): whether brokers that are gone are still registered is not known, so none is unregistered, and the metadata version may wait for that; it is asked again"
    )]
    BrokersUntold {
        /// What came instead of an answer.
        why: String,
    },
    /// An object with the labels of a cluster that Karst runs, made by somebody else.
    #[error(
        "{object} has the labels of this cluster and was made by '{manager}': Karst does not count it as a part of the cluster, and neither changes nor deletes it; delete it, or take off its label strimzi.io/cluster"
    )]
    NotOfCluster {
        /// Its kind and name.
        object: String,
        /// Who made it.
        manager: String,
    },
    /// A version that could not read what is there.
    #[error("spec.kafka.version is {asked}, and the nodes stay at {kept}: {why}")]
    VersionHeld {
        /// What was asked for.
        asked: &'static str,
        /// What is run.
        kept: &'static str,
        /// What is in the way.
        why: String,
    },
    /// A pod that is to restart and cannot.
    #[error("pod {pod} is to restart and does not yet: {why}")]
    RestartHeld {
        /// The pod.
        pod: String,
        /// What keeps it.
        why: String,
    },
    /// A pod that does not come back.
    #[error("no other pod is restarted before pod {pod} is ready: {why}")]
    RollStopped {
        /// The pod.
        pod: String,
        /// What is wrong with it.
        why: String,
    },
    /// Nodes that are to go, and still have partitions.
    #[error(
        "node {node} of pool '{pool}' is to go and stays, because partitions live there: {partitions}; move them to other brokers (kafka-reassign-partitions.sh), or set the annotation {SKIP_CHECK_ANNOTATION}: \"true\" on the Kafka resource to remove the node and what it alone has"
    )]
    PartitionsHere {
        /// The pool.
        pool: String,
        /// The node.
        node: NodeId,
        /// The partitions.
        partitions: String,
    },
    /// A node that is to be moved, and has what nobody else has.
    #[error(
        "node {node} of pool '{pool}' is to move to another pool, where it starts empty, and waits: {why}"
    )]
    MoveHeld {
        /// The pool.
        pool: String,
        /// The node.
        node: NodeId,
        /// What for.
        why: String,
    },
    /// A restart, or a move, by which something is lost that nobody else has.
    #[error(
        "pod {pod} waits for your decision: {why}; to let it go and lose what only it has, set the annotation {ALLOW_LOSS_ANNOTATION}: {pod} on the Kafka resource"
    )]
    LossHeld {
        /// Its pool.
        pool: String,
        /// The pod.
        pod: String,
        /// What would be lost, or why nobody knows.
        why: String,
    },
    /// Nodes that are to go, and Kafka does not say whether they can.
    #[error(
        "nodes {nodes} of pool '{pool}' are to go and stay, because Kafka does not say whether partitions live there ({why})"
    )]
    PartitionsUnknown {
        /// The pool.
        pool: String,
        /// The nodes.
        nodes: String,
        /// What came instead of an answer.
        why: String,
    },
    /// What a broker that is gone had, and that is still needed.
    #[error(
        "node {node} is gone, and {what}: {why}. To get back what is there, scale its pool up again (next-node-ids says which id it gets) and move the partitions first; if it is not needed, delete the topics, or set the annotation {SKIP_CHECK_ANNOTATION}: \"true\" on the Kafka resource"
    )]
    LeftBehind {
        /// The node.
        node: NodeId,
        /// What stays of it.
        what: String,
        /// What for.
        why: String,
    },
    /// Claims of volumes that nodes no longer have, and that may hold records.
    #[error(
        "PVCs {} of pool '{pool}' stay, though their volume was removed and has deleteClaim: their pods were replaced before anybody saw that these were empty. To get back what is there, list the volume again; if it is not needed, delete them (kubectl delete pvc)",
        few(claims)
    )]
    VolumesLeft {
        /// The pool.
        pool: String,
        /// The claims.
        claims: Vec<String>,
    },
    /// A new node that has to wait for the id it is to get.
    #[error("pool '{pool}' waits for node ids {ids}, which another pool gives up")]
    IdsAwaited {
        /// The pool.
        pool: String,
        /// The ids.
        ids: String,
    },
    /// Ids that were asked for and could not be used.
    #[error("pool '{pool}': {annotation} is {asked}, but {what}")]
    IdsIgnored {
        /// The pool.
        pool: String,
        /// The annotation.
        annotation: &'static str,
        /// What it says.
        asked: String,
        /// What was done instead, and why.
        what: String,
    },
    /// A change of roles.
    #[error("spec.roles of pool '{pool}' is {asked}, and its nodes are {kept} for now: {why}")]
    RolesHeld {
        /// The pool.
        pool: String,
        /// The roles that were asked for.
        asked: String,
        /// The roles that its nodes get instead.
        kept: String,
        /// What is in the way.
        why: String,
    },
    /// Storage that cannot be used, for nodes that run.
    #[error("pool '{pool}' keeps the storage its nodes run with: {why}")]
    StorageInvalid {
        /// The pool.
        pool: String,
        /// What is wrong with what was asked for.
        why: String,
    },
    /// A change of storage that is not possible.
    #[error("pool '{pool}': {field} is {found}, and its nodes keep {kept}: {why}")]
    StorageHeld {
        /// The pool.
        pool: String,
        /// What was changed.
        field: String,
        /// What it is now.
        found: String,
        /// What nodes run with.
        kept: String,
        /// Why, and what can be done.
        why: String,
    },
    /// A volume that is to go, and is in use.
    #[error(
        "volume {volume} of pool '{pool}' is to go and stays: {why}; move the partitions to other volumes (kafka-reassign-partitions.sh with log_dirs), or set the annotation {SKIP_CHECK_ANNOTATION}: \"true\" on the Kafka resource to remove the volume and what it alone has"
    )]
    VolumeStays {
        /// The pool.
        pool: String,
        /// The volume's id.
        volume: i32,
        /// What is there.
        why: String,
    },
    /// A claim that cannot grow.
    #[error(
        "claim {claim} of pool '{pool}' is to grow to {size}, and Kubernetes refuses: {why}; allow it (allowVolumeExpansion of the storage class), or set the size back; it is tried again every minute"
    )]
    GrowthRefused {
        /// The pool.
        pool: String,
        /// The claim.
        claim: String,
        /// What it is to hold.
        size: String,
        /// What Kubernetes said.
        why: String,
    },
    /// A PVC whose volume has not grown yet.
    #[error(
        "PVC {claim} of pool '{pool}' asks for {size}, and its volume holds {capacity}: {}", why.as_deref().map_or_else(
            || "Karst waits for the driver of its storage class; if that never grows it, look at the events of the PVC (kubectl describe pvc)".to_owned(),
            |why| format!("{why}; correct that, or ask whoever runs the storage")
        )
    )]
    GrowthPending {
        /// The pool.
        pool: String,
        /// The claim.
        claim: String,
        /// What it asks for.
        size: String,
        /// What it holds.
        capacity: String,
        /// What Kubernetes says about it.
        why: Option<String>,
    },
    /// A pod whose deletion does not end.
    #[error(
        "pod {pod} was to be gone by {} and is still there, so its successor cannot start: look at its finalizers (kubectl get pod {pod} -o yaml){}",
        minute(since),
        machine.as_ref().map_or_else(String::new, |machine| format!(
            ", and whether Kubernetes node {machine} answers; only if that node is gone for good, delete the pod by force (kubectl delete pod {pod} --force)"
        ))
    )]
    PodTerminating {
        /// The pod.
        pod: String,
        /// When it should have been gone.
        since: Timestamp,
        /// Where it runs.
        machine: Option<String>,
    },
    /// A PVC whose deletion does not end, though no pod uses it.
    #[error(
        "PVC {claim} was to be gone by {} and is still there, so pod {pod} is not made: look at its finalizers (kubectl get pvc {claim} -o yaml), and for pods of others that use it",
        minute(since)
    )]
    ClaimTerminating {
        /// The claim.
        claim: String,
        /// The pod that it was made for.
        pod: String,
        /// When it should have been gone.
        since: Timestamp,
    },
    /// A PVC that somebody deleted while its pod runs.
    #[error(
        "PVC {claim} was deleted ({}) while pod {pod} uses it, and that cannot be undone: Kubernetes keeps it until the pod goes, and then what is on it is lost; Karst lets the pod go only when nothing is lost by it; to have it replaced, annotate the pod with {DELETE_POD_AND_CLAIM_ANNOTATION}: \"true\"",
        minute(since)
    )]
    ClaimDeletedInUse {
        /// The claim.
        claim: String,
        /// Who uses it.
        pod: String,
        /// Since when.
        since: Timestamp,
    },
    /// Claims that were made otherwise than what is asked for now.
    #[error(
        "pool '{pool}': {field} is {found}, and these claims stay as they were made: {}; new nodes use it; to replace a node's disks, annotate its pod with {DELETE_POD_AND_CLAIM_ANNOTATION}: \"true\"", claims.join(", ")
    )]
    ClaimsKeep {
        /// The pool.
        pool: String,
        /// What was changed.
        field: String,
        /// What it is now.
        found: String,
        /// The claims.
        claims: Vec<String>,
    },
    /// A pool whose resource was deleted.
    #[error(
        "the pool of StrimziPodSet '{pod_set}' does not exist any more; its nodes stay; create the KafkaNodePool again and scale it to 0, or delete it, to remove them in order"
    )]
    PoolGone {
        /// Its pod set.
        pod_set: String,
    },
    /// A pod set whose pods somebody else described.
    #[error(
        "the pods of StrimziPodSet '{pod_set}' were not described by Karst, so it makes none of them and removes none{}; delete it if it is not of a pool of this cluster; one that is gets its own pods again when this resource is valid and not paused",
        missing_pods(missing)
    )]
    NotRendered {
        /// The pod set.
        pod_set: String,
        /// Its pods that do not exist.
        missing: Vec<String>,
    },
    /// Kafka tells of nodes elsewhere.
    #[error(
        "Kafka says that nodes are at {}, and these are no hosts of this cluster's pods: Karst does not connect to them; look for the node that was made to say so, and delete its pod",
        few(addresses)
    )]
    ForeignHosts {
        /// Where.
        addresses: Vec<String>,
    },
    /// An authority that cannot be used, in a cluster that runs.
    #[error("{why}; until then no certificate can be signed, and what runs goes on with those it has")]
    AuthorityUnusable {
        /// What is wrong, and what would be right.
        why: String,
    },
    /// An authority that running pods do not trust yet, so that it signs nothing.
    #[error(
        "the CA {authority} in Secret {secret} is new to {}; they restart one after the other to trust it, and it signs no certificate before all do; those that are in use stay",
        health::some_of(unaware)
    )]
    AuthorityUnknown {
        /// The Secret that has its certificate.
        secret: String,
        /// Its subject.
        authority: String,
        /// Who does not trust it.
        unaware: Vec<String>,
    },
    /// An authority of which nothing is left but what it signed.
    #[error(
        "the certificate of the CA that signed those of {} is neither in Secret {secret} nor in Secret {given}; a pod that restarts would not trust them, so none restarts to trust the new CA; put the old CA certificate into Secret {secret} as ca-old.crt; or, if nobody has it, delete all pods at once",
        health::some_of(pods)
    )]
    AuthorityLost {
        /// The Secret of the authority's certificates.
        secret: String,
        /// The Secret of what nodes trust.
        given: String,
        /// Whose certificates it signed.
        pods: Vec<String>,
    },
    /// The operator has no certificate that the pods accept.
    #[error(
        "the operator has no certificate that all pods accept (Secret {secret}){}",
        match shows {
            Some(pod) => format!(
                "; until it has, it shows Kafka that of pod {pod}, so that pods can restart in order; nothing needs to be done"
            ),
            None => ", and no pod has one: Kafka does not answer it, so nothing that serves restarts. Put the Secrets of the certificates back from a backup; if there is none, delete all pods at once: they start together with certificates of the new CA (what is on ephemeral disks is lost by that)".to_owned(),
        }
    )]
    OperatorNotAccepted {
        /// The Secret of its certificate.
        secret: String,
        /// The pod whose certificate it shows meanwhile.
        shows: Option<String>,
    },
    /// The clock of the operator, or that of the API server, is wrong.
    #[error(
        "the operator's clock says {}, and the API server's says {}; Karst makes and renews no certificate, and restarts nothing for one that ends, before they agree; correct the clock that is wrong",
        minute(operator),
        minute(server)
    )]
    ClocksDiffer {
        /// What the operator's clock says.
        operator: Timestamp,
        /// What the API server's clock says.
        server: Timestamp,
    },
    /// A certificate that Karst may not renew, or not yet.
    #[error("Secret {secret}: {what}")]
    CertificateEnds {
        /// The Secret.
        secret: String,
        /// When it ends, and who can do something about it.
        what: String,
    },
    /// A maintenance window that cannot be understood.
    #[error("spec.maintenanceTimeWindows: {why}")]
    Window {
        /// What is wrong with it.
        why: String,
    },
    /// A file of the nodes that cannot be what is asked for.
    #[error("{why}; until then nodes keep the {what} they have")]
    FileKept {
        /// What the file is about.
        what: &'static str,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// The rack of a machine cannot be read.
    #[error(
        "spec.kafka.rack needs the labels of machine '{machine}', and they cannot be read: {why}; brokers that have no rack yet wait for it, and those that run are not restarted; let the operator get nodes (the chart's value racks: true does that)"
    )]
    RackUnknown {
        /// The machine.
        machine: String,
        /// What came instead.
        why: String,
    },
    /// A machine without a rack.
    #[error(
        "machine '{machine}' has no label '{label}', so {} have no rack; label the machine (kubectl label node {machine} {label}=...), or correct spec.kafka.rack.topologyKey", pods.join(", ")
    )]
    RackMissing {
        /// The machine.
        machine: String,
        /// The label.
        label: String,
        /// The pods that run there.
        pods: Vec<String>,
    },
    /// A kind of key that is not known.
    #[error(
        "the annotation {KEY_ALGORITHM_ANNOTATION} is '{asked}'; use one of {}; until then certificates get keys of kind ecdsa-p256, and no certificate authority gets a new key", known.join(", ")
    )]
    KeyAlgorithm {
        /// What was asked for.
        asked: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// Controllers in a number that buys nothing.
    #[error("{count} controllers survive the loss of {survives}, no more than {fewer} would; use an odd number, 3 or 5", survives = (count - 1) / 2, fewer = count - 1)]
    EvenControllers {
        /// How many there are.
        count: usize,
    },
    /// Settings that make data easy to lose.
    #[error(
        "spec.kafka.config has no {key}, so topics get Kafka's default of 1 in a cluster of {brokers} brokers; set it (3 brokers: default.replication.factor 3, min.insync.replicas 2)"
    )]
    ReplicationUnset {
        /// The key.
        key: &'static str,
        /// How many brokers there are.
        brokers: usize,
    },
    /// A single node without a disk that lasts.
    #[error("the only {role} has ephemeral storage: everything is lost when its pod goes")]
    SingleEphemeral {
        /// The role.
        role: &'static str,
    },
    /// An object of somebody else has the name of one that the cluster needs.
    #[error(
        "{object} belongs to {owner}, and Kafka '{cluster}' needs an object of this name: Karst neither writes nor deletes it, and pods that need it wait; delete or rename one of the two; or hand it over: take its owner references off and set the labels strimzi.io/cluster: {cluster} and strimzi.io/kind: Kafka; Karst looks again every minute"
    )]
    ForeignObject {
        /// Its kind and name.
        object: String,
        /// Whose it is.
        owner: String,
        /// The cluster.
        cluster: String,
    },
}

/// How a listener is served whose certificate cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meanwhile {
    /// With the last one of the user's that could be used.
    LastGood,
    /// With the brokers' own certificates, as before.
    OfBrokers,
    /// With what running brokers have loaded.
    Loaded,
    /// Not at all.
    Closed,
}

impl fmt::Display for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LastGood => "until then the certificate that was good before is used",
            Self::OfBrokers => {
                "until then brokers show the certificates of the cluster CA, as before, and nothing restarts"
            }
            Self::Loaded => {
                "until then brokers that run use the one they have loaded, and one that starts does not serve the listener"
            }
            Self::Closed => "until then the listener is not served",
        })
    }
}

/// How many are named: a list that somebody else wrote may be long.
const NAMED: usize = 5;

fn few(names: &[String]) -> String {
    let (named, more) = names.split_at(names.len().min(NAMED));
    match more.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

fn differing(field: Option<&str>) -> String {
    field.map(|field| format!(", in {field}")).unwrap_or_default()
}

fn held_restarts(pods: &[String]) -> String {
    if pods.is_empty() { String::new() } else { format!(", but does not restart {}", few(pods)) }
}

fn missing_pods(missing: &[String]) -> String {
    if missing.is_empty() { String::new() } else { format!(" (missing: {})", few(missing)) }
}

/// A time for people, who need not read that it passes.
fn minute(time: &Timestamp) -> impl std::fmt::Display {
    time.strftime("%Y-%m-%d %H:%M UTC")
}

impl Notice {
    /// The reason of the condition.
    pub fn reason(&self) -> Reason {
        match self {
            Self::FieldsIgnored { .. } => Reason::NotSupportedYet,
            Self::SettingsLeftOut { .. } => Reason::ForbiddenSettings,
            Self::SettingsUnknown { .. } => Reason::UnknownSettings,
            Self::TooManyReplicas { .. } => Reason::KafkaReplicationFactor,
            Self::MinimumTooHigh { .. } => Reason::KafkaMinInsyncReplicas,
            Self::SettingNotTaken { .. } => Reason::SettingNotTaken,
            Self::SettingsUntold { .. } => Reason::SettingsNotTold,
            Self::ListenerLeftOut { .. } => Reason::ListenerNotServed,
            Self::ListenerTypeKept { .. } => Reason::ListenerKept,
            Self::ListenerAwaitsAddress { .. } | Self::ListenerReachKept { .. } => {
                Reason::ListenerAwaitsAddress
            }
            Self::ListenerSettingsLeftOut { .. } => Reason::ForbiddenSettings,
            Self::OwnCertificateEnds { .. } => Reason::ListenerCertificateEnds,
            Self::ListenerServiceRefused { .. } => Reason::ListenerServiceRefused,
            Self::Refused { .. } => Reason::KubernetesRefused,
            Self::Strays { .. } => Reason::Unreadable,
            Self::ForeignObject { .. } => Reason::ForeignObject,
            Self::ObjectKeepsChanging { .. } => Reason::ObjectKeepsChanging,
            Self::NodeAddressType { .. } => Reason::NodeAddressUnknown,
            Self::ListenerBrokersUnknown { .. } => Reason::ListenerBrokersUnknown,
            Self::OwnCertificate { .. } => Reason::ListenerCertificateUnusable,
            Self::PoolsNotUsed { .. } => Reason::PoolsNotUsed,
            Self::ControllersHeld { .. } | Self::RolesHeld { .. } => Reason::ChangeHeld,
            Self::QuorumUnknown { .. } | Self::VoterStays { .. } | Self::VoterLags { .. } => {
                Reason::QuorumChangeHeld
            }
            Self::MigrationHeld { .. } => Reason::MigrationHeld,
            Self::QuorumChangeFailed { .. } => Reason::QuorumChangeFailed,
            Self::UnregistrationFailed { .. } => Reason::UnregistrationFailed,
            Self::MetadataFailed { .. }
            | Self::MetadataWaits { .. }
            | Self::MetadataVersionHeld { .. }
            | Self::MetadataWaitsForPods { .. } => Reason::MetadataVersionHeld,
            Self::BrokersUntold { .. } => Reason::BrokersNotTold,
            Self::NotOfCluster { .. } => Reason::NotOfCluster,
            Self::PodTerminating { .. } | Self::ClaimTerminating { .. } | Self::ClaimDeletedInUse { .. } => {
                Reason::DeletionPending
            }
            Self::VersionHeld { .. } => Reason::VersionHeld,
            Self::RestorationHeld { .. } => Reason::RestorationHeld,
            Self::EmptyDiskHeld { .. } | Self::EmptyStartHeld { .. } => Reason::EmptyDiskHeld,
            Self::FormedAnew => Reason::FormedAnew,
            Self::Adopting { .. } => Reason::AdoptingDisks,
            Self::DisksLeft { .. } => Reason::DisksLost,
            Self::ControllersRegistered { .. } => Reason::ControllersStillRegistered,
            Self::RestartHeld { .. } => Reason::RestartHeld,
            Self::LossHeld { .. } => Reason::DataLossHeld,
            Self::RollStopped { .. } => Reason::RollingUpdateStopped,
            Self::PartitionsHere { .. } | Self::PartitionsUnknown { .. } | Self::LeftBehind { .. } => {
                Reason::ScaleDownPreventionCheck
            }
            Self::MoveHeld { .. } => Reason::MoveHeld,
            Self::IdsAwaited { .. } => Reason::NodeIdsAwaited,
            Self::IdsIgnored { .. } => Reason::NodeIdsIgnored,
            Self::StorageInvalid { .. }
            | Self::StorageHeld { .. }
            | Self::VolumeStays { .. }
            | Self::VolumesLeft { .. }
            | Self::GrowthRefused { .. }
            | Self::GrowthPending { .. }
            | Self::ClaimsKeep { .. }
            | Self::SingleEphemeral { .. } => Reason::KafkaStorage,
            Self::PoolGone { .. } => Reason::PoolGone,
            Self::NotRendered { .. } => Reason::PodSetNotRendered,
            Self::ForeignHosts { .. } => Reason::ForeignAddress,
            Self::AuthorityUnusable { .. } => Reason::CertificateAuthorityUnusable,
            Self::AuthorityUnknown { .. } => Reason::CertificateAuthorityUnknown,
            Self::AuthorityLost { .. } => Reason::CertificateAuthorityLost,
            Self::OperatorNotAccepted { .. } => Reason::OperatorCertificateUnknown,
            Self::ClocksDiffer { .. } => Reason::ClocksDiffer,
            Self::CertificateEnds { .. } => Reason::CertificateEnds,
            Self::Window { .. } => Reason::MaintenanceWindow,
            Self::FileKept { .. } => Reason::ConfigurationKept,
            Self::RackUnknown { .. } | Self::RackMissing { .. } => Reason::RackUnknown,
            Self::KeyAlgorithm { .. } => Reason::KeyAlgorithm,
            Self::EvenControllers { .. } => Reason::KafkaKRaftControllerNodeCount,
            Self::ReplicationUnset { key: "min.insync.replicas", .. } => Reason::KafkaMinInsyncReplicas,
            Self::ReplicationUnset { .. } => Reason::KafkaDefaultReplicationFactor,
        }
    }

    /// Does it go away when partitions move, or Kafka answers again?
    pub fn waits_for_kafka(&self) -> bool {
        matches!(
            self,
            Self::PartitionsHere { .. }
                | Self::PartitionsUnknown { .. }
                | Self::MoveHeld { .. }
                | Self::LossHeld { .. }
                | Self::RolesHeld { .. }
                | Self::QuorumUnknown { .. }
                | Self::VolumeStays { .. }
                | Self::LeftBehind { .. }
        )
    }

    /// Was something that was asked for tried, and did it not work? A broker that is gone and still registered is not among
    /// it: the cluster is as asked for without.
    pub(crate) fn is_failure(&self) -> bool {
        matches!(
            self,
            Self::SettingNotTaken { .. }
                | Self::ListenerServiceRefused { .. }
                | Self::ListenerTypeKept { .. }
                | Self::ListenerReachKept { .. }
                | Self::OwnCertificate { .. }
                | Self::Refused { .. }
                | Self::ForeignObject { .. }
                | Self::ObjectKeepsChanging { .. }
                | Self::GrowthRefused { .. }
                | Self::QuorumChangeFailed { .. }
                | Self::MetadataFailed { .. }
                | Self::MetadataWaits { .. }
                | Self::MetadataVersionHeld { .. }
                | Self::MetadataWaitsForPods { .. }
        )
    }

    /// Is it told by its pool alone? A change that is held is told by the cluster, too: that is where people's alerts look.
    pub(crate) fn is_for_pool_alone(&self) -> bool {
        matches!(self, Self::FieldsIgnored { .. } | Self::IdsIgnored { .. })
    }

    /// The pool it is about, when it is about one.
    pub fn pool(&self) -> Option<&str> {
        match self {
            Self::ControllersHeld { pool, .. }
            | Self::PartitionsHere { pool, .. }
            | Self::PartitionsUnknown { pool, .. }
            | Self::MoveHeld { pool, .. }
            | Self::LossHeld { pool, .. }
            | Self::IdsAwaited { pool, .. }
            | Self::IdsIgnored { pool, .. }
            | Self::QuorumUnknown { pool, .. }
            | Self::RolesHeld { pool, .. }
            | Self::StorageInvalid { pool, .. }
            | Self::StorageHeld { pool, .. }
            | Self::VolumeStays { pool, .. }
            | Self::VolumesLeft { pool, .. }
            | Self::GrowthRefused { pool, .. }
            | Self::GrowthPending { pool, .. }
            | Self::ClaimsKeep { pool, .. } => Some(pool),
            Self::FieldsIgnored { pool, .. } => pool.as_deref(),
            _ => None,
        }
    }
}
