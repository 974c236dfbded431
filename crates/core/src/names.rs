//! What things are called. Every name and every label is made here and nowhere else: users, consoles and
//! other tools look for them, and a changed name would orphan what runs under the old one.

use std::collections::BTreeMap;

use karst_certs::Kind;

use crate::ids::NodeId;
use crate::listeners::ClientListener;

/// The label that ties everything to its cluster.
pub const CLUSTER_LABEL: &str = "strimzi.io/cluster";
/// The kind of resource an object was made for.
pub const KIND_LABEL: &str = "strimzi.io/kind";
/// The component an object belongs to.
pub const NAME_LABEL: &str = "strimzi.io/name";
/// The pool an object belongs to.
pub const POOL_LABEL: &str = "strimzi.io/pool-name";
/// Whether a pod runs the broker role now.
pub const BROKER_ROLE_LABEL: &str = "strimzi.io/broker-role";
/// Whether a pod runs the controller role now.
pub const CONTROLLER_ROLE_LABEL: &str = "strimzi.io/controller-role";
/// The pod's own name, as a label that services can select.
pub const POD_NAME_LABEL: &str = "strimzi.io/pod-name";
/// Which operator made an object.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// What [`MANAGED_BY_LABEL`] says on everything Karst made.
pub const MANAGED_BY: &str = "karst";
/// Fingerprint of the pod that was asked for.
pub const REVISION_ANNOTATION: &str = "strimzi.io/revision";
/// The storage that the nodes of a pool run with, as JSON: on their pod set and on their claims.
pub const STORAGE_ANNOTATION: &str = "strimzi.io/storage";
/// On a claim: the id of the cluster whose data it holds. It outlives the `Kafka` resource, and labels that somebody took off.
pub const CLUSTER_ID_ANNOTATION: &str = "karst.io/cluster-id";
/// The Kafka version a pod or pod set runs.
pub const KAFKA_VERSION_ANNOTATION: &str = "strimzi.io/kafka-version";
/// Whether a claim goes with its node.
pub const DELETE_CLAIM_ANNOTATION: &str = "strimzi.io/delete-claim";
/// Annotation of a claim: the pod that had it last, and that was seen to have nothing on it. Only such a claim goes with its volume.
pub const EMPTIED_ANNOTATION: &str = "karst.io/empty-in-pod";
/// Fingerprint of the settings that a node reads when it starts.
pub const CONFIGURATION_HASH_ANNOTATION: &str = "strimzi.io/configuration-hash";
/// Turns node pools on or off for a cluster.
pub const NODE_POOLS_ANNOTATION: &str = "strimzi.io/node-pools";
/// Ids that new nodes of a pool should get.
pub const NEXT_IDS_ANNOTATION: &str = "strimzi.io/next-node-ids";
/// Ids of nodes that should go first when a pool shrinks.
pub const REMOVE_IDS_ANNOTATION: &str = "strimzi.io/remove-node-ids";
/// Lets nodes go though partitions live on them.
pub const SKIP_CHECK_ANNOTATION: &str = "strimzi.io/skip-broker-scaledown-check";
/// Names pods, on the `Kafka` resource, that may lose what only they have.
pub const ALLOW_LOSS_ANNOTATION: &str = "karst.io/allow-data-loss";
/// Asks for a restart of a pod, or of all pods of a pod set.
pub const MANUAL_ROLL_ANNOTATION: &str = "strimzi.io/manual-rolling-update";
/// Asks for a pod to be made anew, with empty disks.
pub const DELETE_POD_AND_CLAIM_ANNOTATION: &str = "strimzi.io/delete-pod-and-pvc";
/// The pods of the controllers that a node knew when it started.
pub const QUORUM_PODS_ANNOTATION: &str = "karst.io/quorum-pods";
/// Gives a voter back its identity, after a majority of disks was lost: node id and directory id.
pub const RESTORE_ANNOTATION: &str = "karst.io/restore-voter";
/// On the ConfigMap of a voter that is restored: the pod that ran before.
pub const RESTORED_POD_ANNOTATION: &str = "karst.io/restored-pod";
/// Names pods, on the `Kafka` resource, whose nodes may vote on an empty disk though they may have voted on another one.
pub const EMPTY_VOTER_ANNOTATION: &str = "karst.io/vote-on-empty-disk";
/// On the ConfigMap of a voter that a person let start on an empty disk, until somebody leads.
pub const LET_IN_ANNOTATION: &str = "karst.io/let-in-empty";
/// On the ConfigMap of a first voter that was not seen in the quorum yet: the claim that its node first ran on.
pub const FIRST_CLAIM_ANNOTATION: &str = "karst.io/first-claim";
/// On the ConfigMap of a node with ephemeral disks: the pod that had them when the quorum was last seen.
pub const DISK_ANNOTATION: &str = "karst.io/disk-of-pod";
/// On a pod: the rack that it is in.
pub const RACK_ANNOTATION: &str = "karst.io/rack";
/// What kind of keys a cluster's certificates get from now on.
pub const KEY_ALGORITHM_ANNOTATION: &str = "karst.io/key-algorithm";
/// On a pod: the settings that it started with, of those that can change while it runs, as JSON.
pub const STARTED_WITH_ANNOTATION: &str = "karst.io/started-with";
/// On the headless service: the settings that Kafka was told while it ran, as names. One that nobody runs with any more has the time since then
/// behind it, `name@time`, until nodes were asked once more.
pub const SETTINGS_IN_KAFKA_ANNOTATION: &str = "karst.io/settings-in-kafka";
/// Asks for a static quorum to become a dynamic one.
pub const MIGRATION_ANNOTATION: &str = "strimzi.io/kraft-quorum-migration";
/// How many brokers that share no partition may restart at once.
pub const RESTARTS_AT_ONCE_ANNOTATION: &str = "karst.io/broker-restarts-at-once";
/// Keeps a deleted pool until its nodes are gone in order.
pub const POOL_FINALIZER: &str = "karst.io/nodes-leave-in-order";
/// Stops Karst from changing anything of a cluster.
pub const PAUSE_ANNOTATION: &str = "strimzi.io/pause-reconciliation";
/// Fingerprint of what users added to an object by templates and by labels that it inherits.
pub const ADDITIONS_ANNOTATION: &str = "karst.io/additions";
/// On the services of a listener: its name.
pub const LISTENER_LABEL: &str = "karst.io/listener";
/// On a node's ConfigMap: the addresses that others decided about, as they were last known.
pub const ADVERTISED_ANNOTATION: &str = "karst.io/advertised";
/// Lets Karst take over a cluster that another operator made.
pub const ADOPT_ANNOTATION: &str = "karst.io/adopt";

/// On a pod: the certificates of the cluster's authority that it trusts, by their generation.
pub const CA_CERT_GENERATION_ANNOTATION: &str = "strimzi.io/cluster-ca-cert-generation";
/// On a pod or its Secret: which key of the cluster's authority signed its certificate.
pub const CA_KEY_GENERATION_ANNOTATION: &str = "strimzi.io/cluster-ca-key-generation";
/// The same as [`CA_CERT_GENERATION_ANNOTATION`], of the clients' authority.
pub const CLIENTS_CA_CERT_GENERATION_ANNOTATION: &str = "strimzi.io/clients-ca-cert-generation";
/// On the Secret of what nodes trust: since when it says what it says of clients.
pub const CLIENTS_TRUST_SINCE_ANNOTATION: &str = "karst.io/clients-trust-since";
/// On a pod: fingerprint of the certificate that it started with.
pub const CERTIFICATE_HASH_ANNOTATION: &str = "strimzi.io/server-cert-hash";
/// On a pod: the authorities that it trusts inside the cluster, by what they are.
pub const TRUSTED_AUTHORITIES_ANNOTATION: &str = "karst.io/trusted-authorities";
/// On a pod: the authority that signed the certificate that it started with, by what it is.
pub const CERTIFICATE_AUTHORITY_ANNOTATION: &str = "karst.io/certificate-authority";
/// On a pod: when the certificate ends that it started with.
pub const CERTIFICATE_END_ANNOTATION: &str = "karst.io/certificate-end";

/// The operator's own certificate, in [`operator_secret`].
pub const OPERATOR_CERTIFICATE: &str = "cluster-operator.crt";
/// The key of [`OPERATOR_CERTIFICATE`].
pub const OPERATOR_KEY: &str = "cluster-operator.key";
/// The certificates of the cluster's authority, in [`trust_secret`].
pub const CLUSTER_TRUST: &str = "cluster-ca.crt";
/// The certificates of the clients' authority, in [`trust_secret`].
pub const CLIENTS_TRUST: &str = "clients-ca.crt";

/// The name of the pool that stands for a cluster without pools.
pub(crate) const VIRTUAL_POOL: &str = "kafka";

/// The longest name a pod can have: it is also its host name and a label.
pub const LONGEST_NAME: usize = 63;

/// Where a cluster lives and what it is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterKey {
    /// Namespace of the `Kafka` resource and of everything made for it.
    pub namespace: String,
    /// Name of the `Kafka` resource.
    pub name: String,
}

impl std::fmt::Display for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl ClusterKey {
    // Names are looked up by all that decides, many times in a pass: they are put together in the cheapest way there is.
    fn with(&self, end: &str) -> String {
        [&self.name, end].concat()
    }

    /// The service account of the nodes.
    pub fn service_account(&self) -> String {
        self.with("-kafka")
    }

    /// The headless service that gives every node its host name.
    pub fn headless_service(&self) -> String {
        self.with("-kafka-brokers")
    }

    /// The service that clients start from.
    pub fn bootstrap_service(&self) -> String {
        self.with("-kafka-bootstrap")
    }

    /// The service that clients of one listener start from.
    pub fn listener_bootstrap(&self, listener: &str) -> String {
        [&self.name, "-kafka-", listener, "-bootstrap"].concat()
    }

    /// The service of one broker for one listener. The listener that everybody had once has a shorter one.
    pub fn listener_broker(&self, pool: &str, listener: &ClientListener, node: NodeId) -> String {
        match (listener.name.as_str(), listener.port) {
            ("external", 9094) => self.pod(pool, node),
            (name, _) => format!("{}-{pool}-{name}-{node}", self.name),
        }
    }

    /// All names under which a service is known.
    pub(crate) fn service_names(&self, service: &str, domain: &str) -> [String; 4] {
        let namespace = self.namespace.as_str();
        [
            service.to_owned(),
            [service, ".", namespace].concat(),
            [service, ".", namespace, ".svc"].concat(),
            [service, ".", namespace, ".svc.", domain].concat(),
        ]
    }

    /// The pod disruption budget of the nodes that only serve.
    pub fn brokers_budget(&self) -> String {
        self.with("-kafka")
    }

    /// The pod disruption budget of the nodes that vote.
    pub fn controllers_budget(&self) -> String {
        self.with("-kafka-controllers")
    }

    /// The network policy of the nodes.
    pub fn network_policy(&self) -> String {
        self.with("-network-policy-kafka")
    }

    /// The pod set of a pool.
    pub fn pod_set(&self, pool: &str) -> String {
        [&self.name, "-", pool].concat()
    }

    /// The pod of a node, and its ConfigMap.
    pub fn pod(&self, pool: &str, node: NodeId) -> String {
        [&self.name, "-", pool, "-", &node.0.to_string()].concat()
    }

    /// The host name of a pod.
    ///
    /// Controllers' addresses are stored in the quorum's own log: never change how this is built.
    pub fn pod_host(&self, pod: &str, domain: &str) -> String {
        [pod, ".", &self.host_domain(domain)].concat()
    }

    /// What the host names of all pods are directly below of.
    pub fn host_domain(&self, domain: &str) -> String {
        [&self.headless_service(), ".", &self.namespace, ".svc.", domain].concat()
    }

    /// Can this be the name of something that Karst makes for the cluster? What cannot be read and has such a name counts as there.
    pub fn gives(&self, kind: &str, name: &str) -> bool {
        let own = |name: &str| name.strip_prefix(&self.name).is_some_and(|rest| rest.starts_with('-'));
        let is_of_node = |name: &str| own(name) && node_of_pod(name).is_some();
        match kind {
            // Their names are the users'.
            "Kafka" | "KafkaNodePool" => true,
            "Pod" | "ConfigMap" => is_of_node(name),
            "PersistentVolumeClaim" => name.strip_prefix("data-").is_some_and(|rest| {
                let of_volume = rest.split_once('-').filter(|(volume, _)| volume.parse::<i32>().is_ok());
                is_of_node(rest) || of_volume.is_some_and(|(_, pod)| is_of_node(pod))
            }),
            "Secret" => is_of_node(name) || self.secrets().iter().any(|secret| secret == name),
            _ => own(name),
        }
    }

    /// The Secrets that are not those of nodes.
    fn secrets(&self) -> [String; 7] {
        let cluster = &self.name;
        [
            Kind::Cluster.cert_secret(cluster),
            Kind::Cluster.key_secret(cluster),
            Kind::Clients.cert_secret(cluster),
            Kind::Clients.key_secret(cluster),
            operator_secret(cluster),
            trust_secret(cluster),
            listeners_secret(cluster),
        ]
    }

    /// Labels of everything made for the cluster.
    pub fn labels(&self) -> BTreeMap<String, String> {
        labels([
            (CLUSTER_LABEL, self.name.as_str()),
            (KIND_LABEL, "Kafka"),
            (NAME_LABEL, &self.with("-kafka")),
            ("strimzi.io/component-type", "kafka"),
            ("app.kubernetes.io/name", "kafka"),
            ("app.kubernetes.io/instance", label_value(&self.name)),
            ("app.kubernetes.io/part-of", label_value(&["strimzi-", &self.name].concat())),
            (MANAGED_BY_LABEL, MANAGED_BY),
        ])
    }

    /// Labels of what belongs to one pool.
    pub fn pool_labels(&self, pool: &str) -> BTreeMap<String, String> {
        let mut labels = self.labels();
        labels.insert(POOL_LABEL.to_owned(), pool.to_owned());
        labels
    }

    /// Labels by which the cluster's pods are found.
    pub fn selector(&self) -> BTreeMap<String, String> {
        labels([
            (CLUSTER_LABEL, self.name.as_str()),
            (NAME_LABEL, &self.with("-kafka")),
            (KIND_LABEL, "Kafka"),
        ])
    }

    /// Labels by which one pool's pods are found.
    pub fn pool_selector(&self, pool: &str) -> BTreeMap<String, String> {
        let mut selector = self.selector();
        selector.insert(POOL_LABEL.to_owned(), pool.to_owned());
        selector
    }

    /// The pool's selector as text, for the scale subresource.
    pub fn pool_selector_text(&self, pool: &str) -> String {
        format!(
            "{CLUSTER_LABEL}={name},{NAME_LABEL}={name}-kafka,{KIND_LABEL}=Kafka,{POOL_LABEL}={pool}",
            name = self.name
        )
    }
}

/// The cluster that a pool's selector names.
pub(crate) fn cluster_of_selector(selector: Option<&str>) -> Option<&str> {
    let mut pairs = selector?.split(',').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == CLUSTER_LABEL).map(|(_, cluster)| cluster)
}

/// The Secret with the operator's own certificate.
pub fn operator_secret(cluster: &str) -> String {
    [cluster, "-cluster-operator-certs"].concat()
}

/// The Secret with all certificates that nodes trust.
pub fn trust_secret(cluster: &str) -> String {
    [cluster, "-trustbundle"].concat()
}

/// The Secret with the certificates that users brought for listeners.
pub fn listeners_secret(cluster: &str) -> String {
    [cluster, "-kafka-listener-certs"].concat()
}

/// Annotations of the `Kafka` resource that decide what is safe. No generation tells that one of them changed.
const SAFETY_OF_KAFKA: &[&str] = &[
    PAUSE_ANNOTATION,
    SKIP_CHECK_ANNOTATION,
    ALLOW_LOSS_ANNOTATION,
    RESTORE_ANNOTATION,
    EMPTY_VOTER_ANNOTATION,
    MIGRATION_ANNOTATION,
    NODE_POOLS_ANNOTATION,
];
/// The same, of a pool.
const SAFETY_OF_POOL: &[&str] = &[NEXT_IDS_ANNOTATION, REMOVE_IDS_ANNOTATION];

/// What the annotations of a `Kafka` resource say that decide what is safe.
pub fn safety_of_kafka(annotations: Option<&BTreeMap<String, String>>) -> Vec<Option<&String>> {
    said(SAFETY_OF_KAFKA, annotations)
}

/// The same, of a pool.
pub fn safety_of_pool(annotations: Option<&BTreeMap<String, String>>) -> Vec<Option<&String>> {
    said(SAFETY_OF_POOL, annotations)
}

fn said<'a>(keys: &[&str], annotations: Option<&'a BTreeMap<String, String>>) -> Vec<Option<&'a String>> {
    keys.iter().map(|key| annotations.and_then(|all| all.get(*key))).collect()
}

/// Is an annotation set to true? As Strimzi reads it: only "true" counts, in any case.
pub fn is_true(annotations: Option<&BTreeMap<String, String>>, key: &str) -> bool {
    annotations.and_then(|all| all.get(key)).is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// The claim of one volume of a pod. `volume` is its id, or `None` for the only volume.
pub fn claim(pod: &str, volume: Option<i32>) -> String {
    match volume {
        Some(id) => ["data-", &id.to_string(), "-", pod].concat(),
        None => ["data-", pod].concat(),
    }
}

/// The node id that a pod name ends with.
pub fn node_of_pod(pod: &str) -> Option<NodeId> {
    pod.rsplit_once('-').and_then(|(_, id)| id.parse().ok()).map(NodeId)
}

/// Is the text one part of a host name: lower-case letters, digits and `-`, no `-` at the ends?
pub fn is_host_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.chars().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// A label value is at most 63 characters, and ends with a letter or a digit.
fn label_value(text: &str) -> &str {
    text.get(..LONGEST_NAME).unwrap_or(text).trim_end_matches(['.', '-', '_'])
}

fn labels<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_strimzi_users_know() {
        let key = ClusterKey { namespace: "myproject".into(), name: "my-cluster".into() };
        assert_eq!(key.pod("controller", NodeId(3)), "my-cluster-controller-3");
        assert_eq!(
            key.pod_host("my-cluster-controller-3", "cluster.local"),
            "my-cluster-controller-3.my-cluster-kafka-brokers.myproject.svc.cluster.local"
        );
        assert_eq!(claim("my-cluster-big-0", Some(1)), "data-1-my-cluster-big-0");
        assert_eq!(claim("my-cluster-big-0", None), "data-my-cluster-big-0");
        assert_eq!(
            key.pool_selector_text("big"),
            "strimzi.io/cluster=my-cluster,strimzi.io/name=my-cluster-kafka,strimzi.io/kind=Kafka,strimzi.io/pool-name=big"
        );
    }

    #[test]
    fn a_long_cluster_name_still_makes_valid_label_values() {
        let name = format!("{}-x", "a".repeat(61));
        let key = ClusterKey { namespace: "n".into(), name };
        assert!(key.labels().values().all(|value| value.len() <= LONGEST_NAME || value.ends_with("-kafka")));
        assert_eq!(label_value("abc-_."), "abc");
    }

    #[test]
    fn an_annotation_that_decides_what_is_safe_is_seen_to_change() {
        let with = |key: &str, value: &str| Some(BTreeMap::from([(key.to_owned(), value.to_owned())]));
        let kafka = |all: Option<BTreeMap<String, String>>| format!("{:?}", safety_of_kafka(all.as_ref()));
        for key in [
            PAUSE_ANNOTATION,
            SKIP_CHECK_ANNOTATION,
            ALLOW_LOSS_ANNOTATION,
            RESTORE_ANNOTATION,
            EMPTY_VOTER_ANNOTATION,
            MIGRATION_ANNOTATION,
            NODE_POOLS_ANNOTATION,
        ] {
            assert_ne!(kafka(with(key, "true")), kafka(None), "{key}");
            assert_ne!(kafka(with(key, "true")), kafka(with(key, "false")), "{key}");
        }
        assert_eq!(kafka(with("example.com/note", "true")), kafka(None));
        let pool = |all: Option<BTreeMap<String, String>>| format!("{:?}", safety_of_pool(all.as_ref()));
        for key in [NEXT_IDS_ANNOTATION, REMOVE_IDS_ANNOTATION] {
            assert_ne!(pool(with(key, "[1]")), pool(with(key, "[2]")), "{key}");
        }
    }

    #[test]
    fn what_karst_makes_is_known_by_its_name() {
        let key = ClusterKey { namespace: "n".into(), name: "my-cluster".into() };
        let pod = key.pod("big", NodeId(17));
        let mut all: Vec<_> = key.secrets().map(|secret| ("Secret", secret)).into();
        all.extend(["Pod", "ConfigMap", "Secret", "Service"].map(|kind| (kind, pod.clone())));
        all.extend([None, Some(0), Some(3)].map(|volume| ("PersistentVolumeClaim", claim(&pod, volume))));
        all.push(("StrimziPodSet", key.pod_set("big")));
        all.extend([key.headless_service(), key.bootstrap_service()].map(|name| ("Service", name)));
        all.extend(
            [key.brokers_budget(), key.controllers_budget()].map(|name| ("PodDisruptionBudget", name)),
        );
        all.push(("NetworkPolicy", key.network_policy()));
        all.push(("ServiceAccount", key.service_account()));
        all.extend(["Kafka", "KafkaNodePool"].map(|kind| (kind, "any".to_owned())));
        for (kind, name) in &all {
            assert!(key.gives(kind, name), "{kind} {name}");
        }
        for kind in [
            "Pod",
            "ConfigMap",
            "Secret",
            "Service",
            "PersistentVolumeClaim",
            "StrimziPodSet",
            "NetworkPolicy",
        ] {
            for name in ["junk", "my-clusters-big-0", "my-cluster", "data-junk-0", ""] {
                assert!(!key.gives(kind, name), "{kind} {name}");
            }
        }
        assert!(!key.gives("Secret", "my-cluster-junk") && !key.gives("ConfigMap", "my-cluster-junk"));
    }

    #[test]
    fn a_pod_tells_its_node() {
        assert_eq!(node_of_pod("my-cluster-big-17"), Some(NodeId(17)));
        assert_eq!(node_of_pod("my-cluster-big"), None);
    }
}
