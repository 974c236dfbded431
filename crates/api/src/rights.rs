//! The rights that the operator needs, and what for: the one list of them.
//!
//! Chart, plain YAML and docs/install.md say the same, and tests compare them with this. A right is added here with the code that
//! uses it, and goes with it.

/// Leave to do something with objects of some kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Right {
    /// Their API group; empty for the core of Kubernetes.
    pub group: &'static str,
    /// Their kinds, as in URLs.
    pub resources: &'static [&'static str],
    /// The only name they may have, if there is one.
    pub name: Option<&'static str>,
    /// What may be done.
    pub verbs: &'static [&'static str],
    /// What for.
    pub why: &'static str,
}

const fn right(
    group: &'static str,
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
    why: &'static str,
) -> Right {
    Right { group, resources, name: None, verbs, why }
}

/// In the namespaces that are looked after. Server-side apply needs `create` beside `patch`; `get` asks once more before something that
/// is hard to undo.
pub const IN_NAMESPACES: &[Right] = &[
    right(
        "kafka.strimzi.io",
        &["kafkas"],
        &["get", "list", "watch", "patch"],
        "read; patched only to take off an annotation that has done its work",
    ),
    right(
        "kafka.strimzi.io",
        &["kafkanodepools"],
        &["get", "list", "watch", "patch"],
        "read; patched only for the finalizer that lets nodes leave in order",
    ),
    right(
        "kafka.strimzi.io",
        &["kafkas/status", "kafkanodepools/status"],
        &["patch"],
        "what is told, and the facts that must outlive the operator",
    ),
    right(
        "core.strimzi.io",
        &["strimzipodsets"],
        &["get", "list", "watch", "create", "patch", "delete"],
        "the pods of each pool; deleted with the pool",
    ),
    right(
        "core.strimzi.io",
        &["strimzipodsets/status"],
        &["patch"],
        "which pods there are, and which description of them is Karst's own",
    ),
    right(
        "",
        &["pods"],
        &["get", "list", "watch", "create", "patch", "delete"],
        "made, restarted by deletion, and removed with their node; patched for annotations, and for an owner that was lost",
    ),
    right(
        "",
        &["configmaps", "persistentvolumeclaims"],
        &["get", "list", "watch", "create", "patch", "delete"],
        "settings and disks of nodes; deleted with the node. ConfigMaps that a resource names are read",
    ),
    right(
        "",
        &["secrets"],
        &["get", "list", "watch", "create", "update", "patch", "delete"],
        "keys and certificates that Karst makes or is given, deleted with the node they are of. Secrets that a listener names are read. \
         Kubernetes cannot limit this to some Secrets: it is all of the namespace",
    ),
    right(
        "",
        &["services"],
        &["get", "list", "watch", "create", "patch", "delete"],
        "how nodes and clients find each other; those of a listener are deleted with it",
    ),
    right(
        "",
        &["serviceaccounts"],
        &["get", "list", "watch", "create", "patch"],
        "who the pods are. They get no token, and the operator gives no rights to anybody",
    ),
    right(
        "policy",
        &["poddisruptionbudgets"],
        &["get", "list", "watch", "create", "patch"],
        "how many pods may be evicted at once",
    ),
    right(
        "networking.k8s.io",
        &["networkpolicies"],
        &["get", "list", "watch", "create", "patch"],
        "who may connect to the pods",
    ),
    right("events.k8s.io", &["events"], &["create", "patch"], "what happened, for `kubectl describe`"),
];

/// In the operator's own namespace.
pub const IN_OWN_NAMESPACE: &[Right] = &[
    right(
        "coordination.k8s.io",
        &["leases"],
        &["create"],
        "who leads. A request to create cannot be limited to a name",
    ),
    Right {
        name: Some("karst-operator"),
        ..right("coordination.k8s.io", &["leases"], &["get", "update"], "who leads")
    },
];

/// In the whole Kubernetes cluster, and only where racks are used.
pub const FOR_RACKS: &[Right] =
    &[right("", &["nodes"], &["get"], "the label that tells the rack of a broker")];
