//! Certificates: what the two authorities of a cluster need, which certificates its nodes and the operator are to have,
//! and what all of them trust.
//!
//! This is decided in every pass, whatever else is wrong with the cluster: a certificate ends on its day, ready or not. The
//! rules of a single authority and of a single certificate are those of [`karst_certs`]; here they meet the cluster. Nothing
//! here makes a key: a plan asks for it, and [`Issue::make`] is called by whoever carries the plan out.

mod clock;
mod inside;
mod issue;
mod keys;
mod operator;
mod pods;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use karst_api as api;
use karst_certs::authority::{Change, Until};
use karst_certs::{
    Authority, Certificate, Decision, Issuer, Kind, Nodes, Refusal, Request, Settings, Stored, Windows, trust,
};

pub(crate) use self::inside::Inside;
use self::issue::Layout;
pub use self::issue::{Issue, Ownership, secret_object};
pub use self::operator::{files_of, stand_in};
pub use self::pods::{Secrets, Stale, started_now};
pub(crate) use self::pods::{
    annotations, cannot_wait, ending_while_paused, is_of_no_use, lacks_certificate, stale, waits_for_others,
};
use crate::cluster::{Cluster, Node};
use crate::limits;
use crate::listeners::address;
use crate::names::{
    CA_CERT_GENERATION_ANNOTATION, CLIENTS_CA_CERT_GENERATION_ANNOTATION, CLIENTS_TRUST,
    CLIENTS_TRUST_SINCE_ANNOTATION, CLUSTER_TRUST, ClusterKey, POD_NAME_LABEL, POOL_LABEL, operator_secret,
    trust_secret,
};
use crate::notice::Notice;
use crate::world::{Files, Reference, SecretContent, SecretView, World};

const KINDS: [Kind; 2] = [Kind::Cluster, Kind::Clients];
/// After how long every broker has loaded what it is to trust. A kubelet takes up to two minutes to put new files in place.
const TRUSTED_AFTER: Duration = Duration::from_secs(300);
/// Who the operator is, to nodes.
const OPERATOR: &str = "cluster-operator";

/// A node that is to have a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bearer {
    pub(crate) pod: String,
    pub(crate) pool: String,
    /// Names and addresses of listeners that it is reached by.
    pub(crate) names: BTreeSet<String>,
    /// Whether names that it has already stay, until it is made anew for another name.
    pub(crate) keeps_names: bool,
}

impl Bearer {
    /// A node of a cluster that can be carried out.
    pub(crate) fn of(world: &World, cluster: &Cluster, node: Node<'_>, hosts: &address::NodeHosts) -> Self {
        Self {
            pod: cluster.pod_name(node),
            pool: node.pool.name.clone(),
            names: address::certificate_names(world, cluster, node, hosts),
            keeps_names: address::names_come_and_go(cluster),
        }
    }
}

/// What came of looking at the certificates.
#[derive(Debug, Default)]
pub(crate) struct Certificates {
    /// What is to be made.
    pub(crate) issues: Vec<Issue>,
    /// Secrets that go with the wrong resource.
    pub(crate) ownerships: Vec<Ownership>,
    /// What people should know.
    pub(crate) notices: Vec<Notice>,
    /// Why no node can get a certificate.
    pub(crate) refusal: Option<Refusal>,
    /// When there is something to do without anything having happened.
    pub(crate) look_again: Option<Duration>,
}

/// Decides what is to be made now. Nodes that have a certificate already keep it fresh even if they are not listed.
pub(crate) fn next(world: &World, bearers: &[Bearer]) -> Certificates {
    let windows = windows(&world.kafka);
    let mut found = Certificates { ownerships: issue::ownerships(world), ..Certificates::default() };
    let problems = windows.problems.iter();
    found.notices.extend(problems.map(|problem| Notice::Window { why: problem.to_string() }));
    if let Some(doubt) = clock::doubt(world) {
        found.notices.push(doubt);
        return found;
    }
    let inside = Inside::of(world);
    let algorithm = keys::algorithm(&world.kafka);
    found.notices.extend(algorithm.clone().err());
    let mut trusted = BTreeMap::new();
    for kind in KINDS {
        let authority = match authority(world, kind, &inside) {
            Ok(authority) => authority,
            Err(refusal) => {
                found.refuse(kind, refusal);
                continue;
            }
        };
        let nodes = nodes(world, kind, &authority, &inside);
        let decision = authority.decide(world.now, windows.opening(world.now), nodes);
        found.notices.extend(warning(world, kind, &authority, &decision));
        // Everybody would have to trust a new key for years: it is not made by guessing which kind is meant.
        let decision = match decision {
            Decision::Create if algorithm.is_err() => continue,
            Decision::Replace(_) if algorithm.is_err() => Decision::Keep,
            decision => decision,
        };
        if !matches!(decision, Decision::Keep | Decision::Postpone { .. }) {
            found.issues.push(Issue::Authority { authority, decision });
            continue;
        }
        if kind == Kind::Cluster {
            match authority.issuer(world.now, nodes) {
                Ok(issuer) => {
                    let wanted = leaves(world, bearers, issuer, authority.cert_generation());
                    found.sign(world, &inside, wanted);
                }
                Err(refusal) => found.refuse(kind, refusal),
            }
        }
        if kind == Kind::Clients {
            found.look_again = until_clients_are_trusted(world, &authority);
        }
        let given = authority.given_to_nodes(world.now);
        let cuts_off = kind == Kind::Cluster && inside.would_be_refused_by(&given);
        if !given.is_empty() && !cuts_off {
            trusted.insert(kind.to_string(), (trust::bundle(given), authority.cert_generation()));
        }
    }
    found.notices.extend(lost(world, &inside));
    let own = operator_secret(&world.key.name);
    let is_made = |issue: &Issue| matches!(issue, Issue::Leaf { secret, .. } if *secret == own);
    if !found.issues.iter().any(is_made) {
        found.notices.extend(operator::notice(world, &inside));
    }
    found.notices.extend(pods::unrenewed(world));
    found.issues.extend(trust_bundle(world, &trusted));
    found
}

impl Certificates {
    /// Has these made that everybody accepts who runs. Others wait until all trust who signs them: a node reads its files when it
    /// starts, and what is shown to it earlier it refuses.
    fn sign(&mut self, world: &World, inside: &Inside<'_>, wanted: Vec<Issue>) {
        let Some(Issue::Leaf { issuer, .. }) = wanted.first() else { return };
        let authority = issuer.certificate().clone();
        let id = authority.authority_id();
        let unaware = inside.who_does_not_trust(&id);
        if unaware.is_empty() {
            self.issues.extend(wanted);
            return;
        }
        let may = |issue: &Issue| match issue {
            Issue::Leaf { secret, .. } => inside.may_get_its_first(secret, &id),
            _ => false,
        };
        self.issues.extend(wanted.into_iter().filter(may));
        let secret = Kind::Cluster.cert_secret(&world.key.name);
        self.notices.push(Notice::AuthorityUnknown { secret, authority: authority.subject.clone(), unaware });
    }

    /// Without the clients' authority a cluster runs all the same.
    fn refuse(&mut self, kind: Kind, refusal: Refusal) {
        match kind {
            Kind::Cluster => self.refusal = Some(refusal),
            Kind::Clients => self.notices.push(Notice::AuthorityUnusable { why: refusal.to_string() }),
        }
    }
}

fn spec(kafka: &api::Kafka, kind: Kind) -> Option<&api::CertificateAuthority> {
    match kind {
        Kind::Cluster => kafka.spec.cluster_ca.as_ref(),
        Kind::Clients => kafka.spec.clients_ca.as_ref(),
    }
}

fn settings(kafka: &api::Kafka, kind: Kind) -> Settings {
    let default = Settings::default();
    let algorithm = keys::algorithm(kafka).unwrap_or_default();
    let Some(spec) = spec(kafka, kind) else { return Settings { algorithm, ..default } };
    let days = |wanted: Option<i32>, default: u32| {
        let wanted = wanted.filter(|days| limits::is_days(*days));
        wanted.and_then(|days| u32::try_from(days).ok()).unwrap_or(default)
    };
    Settings {
        generate: spec.generate_certificate_authority.unwrap_or(true),
        validity_days: days(spec.validity_days, default.validity_days),
        renewal_days: days(spec.renewal_days, default.renewal_days),
        on_expiry: match spec.certificate_expiration_policy {
            Some(api::CertificateExpirationPolicy::ReplaceKey) => Change::ReplaceKey,
            _ => Change::RenewCertificate,
        },
        algorithm,
    }
}

fn windows(kafka: &api::Kafka) -> Windows {
    Windows::parse(kafka.spec.maintenance_time_windows.as_deref().unwrap_or_default())
}

fn authority(world: &World, kind: Kind, inside: &Inside<'_>) -> Result<Authority, Refusal> {
    let cluster = &world.key.name;
    let material = |name: String| world.secrets.get(&name).and_then(|secret| secret.material());
    let (cert, key) = (material(kind.cert_secret(cluster)), material(kind.key_secret(cluster)));
    let settings = settings(&world.kafka, kind);
    let read = Authority::from_material(kind, cluster, &settings, cert, key);
    let authority = read.map_err(|refusal| with_labels(refusal, cluster))?;
    let relied_on = match kind {
        Kind::Cluster => inside.relied_on(),
        // Nobody knows which clients show what: what they were trusted by stays when the Secret is gone that has it.
        Kind::Clients if settings.generate && cert.is_none() && !inside.is_empty() => {
            given_for_clients(world)
        }
        Kind::Clients => return Ok(authority),
    };
    let annotation = match kind {
        Kind::Cluster => CA_CERT_GENERATION_ANNOTATION,
        Kind::Clients => CLIENTS_CA_CERT_GENERATION_ANNOTATION,
    };
    let given = world.secrets.get(&trust_secret(cluster));
    let generation = given.and_then(|given| given.annotation(annotation)?.parse().ok()).unwrap_or(0);
    Ok(authority.remembering(&relied_on, generation))
}

/// By which certificates nodes trust clients now.
fn given_for_clients(world: &World) -> Vec<Certificate> {
    let given = world.secrets.get(&trust_secret(&world.key.name)).and_then(|given| given.trust());
    let pem = given.and_then(|files| files.get(CLIENTS_TRUST));
    pem.and_then(|pem| Certificate::all_from_pem(pem).ok()).unwrap_or_default()
}

/// A Secret without the labels is as good as none, and looks like one that is there.
fn with_labels(mut refusal: Refusal, cluster: &str) -> Refusal {
    if refusal.problem.starts_with("does not exist") {
        refusal.remedy = format!(
            "{}, and the labels strimzi.io/kind: Kafka and strimzi.io/cluster: {cluster}",
            refusal.remedy
        );
    }
    refusal
}

/// What the running nodes loaded when they started. Nobody can tell which users present what, so nothing of the clients'
/// authority is dropped before it ends.
fn nodes(world: &World, kind: Kind, authority: &Authority, inside: &Inside<'_>) -> Nodes {
    match kind {
        Kind::Cluster if inside.is_empty() => Nodes::NONE,
        Kind::Cluster => {
            let newest = authority.certificate().map(Certificate::authority_id);
            let all = |is_so: &dyn Fn(&str) -> bool| newest.as_deref().is_some_and(is_so);
            Nodes {
                all_trust_newest: all(&|newest| inside.all_trust(newest)),
                all_present_newest: all(&|newest| inside.all_show(newest)),
            }
        }
        Kind::Clients => {
            let all_trust_newest = until_clients_are_trusted(world, authority).is_none();
            Nodes { all_trust_newest, all_present_newest: false }
        }
    }
}

/// For how long some broker may not trust the clients' next key yet. Brokers load it without a restart, and only the
/// kubelet knows when it gave it to them.
fn until_clients_are_trusted(world: &World, authority: &Authority) -> Option<Duration> {
    if !authority.has_next() || world.pods.values().all(|pod| pod.is_finished()) {
        return None;
    }
    let secret = world.secrets.get(&trust_secret(&world.key.name));
    let bundle = trust::bundle(authority.given_to_nodes(world.now)).into_bytes();
    let given =
        secret.filter(|secret| secret.trust().and_then(|files| files.get(CLIENTS_TRUST)) == Some(&bundle));
    let Some(since) = given.and_then(|secret| clients_trust_since(&secret.meta.annotations)) else {
        return Some(TRUSTED_AFTER);
    };
    let waited = Duration::try_from(world.now.duration_since(since)).unwrap_or_default();
    TRUSTED_AFTER.checked_sub(waited).filter(|left| !left.is_zero())
}

/// Since when nodes are given what they trust of clients now, by the Secret that has it.
fn clients_trust_since(annotations: &BTreeMap<String, String>) -> Option<Timestamp> {
    annotations.get(CLIENTS_TRUST_SINCE_ANNOTATION)?.parse().ok()
}

/// That no pod can learn of a new authority, because what signed the certificates of others is lost.
fn lost(world: &World, inside: &Inside<'_>) -> Option<Notice> {
    let strangers = inside.lost();
    let cluster = &world.key.name;
    (!strangers.is_empty()).then(|| Notice::AuthorityLost {
        secret: Kind::Cluster.cert_secret(cluster),
        given: trust_secret(cluster),
        pods: strangers,
    })
}

/// That an authority ends and Karst may not do anything about it, or finds no time to.
fn warning(world: &World, kind: Kind, authority: &Authority, decision: &Decision) -> Option<Notice> {
    let secret = kind.cert_secret(&world.key.name);
    let what = match decision {
        Decision::Postpone { until: Until::NoWindow, .. } => decision.to_string(),
        Decision::Keep if authority.certificate()?.is_expired(world.now) => format!(
            "its certificate ended at {}, and what it signed is refused; Karst does not renew what it did not make, and goes on to give it to nodes, because Kafka does not start with an empty list of trusted certificates; put a renewed certificate there and raise the annotation strimzi.io/ca-cert-generation",
            authority.certificate()?.not_after
        ),
        Decision::Keep if authority.is_due(world.now) => format!(
            "its certificate ends at {}, and Karst does not renew what it did not make; put a renewed certificate there and raise the annotation strimzi.io/ca-cert-generation",
            authority.certificate()?.not_after
        ),
        _ => return None,
    };
    Some(Notice::CertificateEnds { secret, what })
}

/// The certificates that the cluster's authority is to sign now.
fn leaves(world: &World, bearers: &[Bearer], issuer: Issuer, cert_generation: u64) -> Vec<Issue> {
    let settings = settings(&world.kafka, Kind::Cluster);
    let issuer = Arc::new(issuer);
    let operator = Request {
        validity_days: settings.validity_days,
        renewal_days: settings.renewal_days,
        algorithm: settings.algorithm,
        ..Request::client(OPERATOR)
    };
    let known = world.secrets.values().filter_map(|secret| bearer(secret));
    let listed: BTreeSet<&String> = bearers.iter().map(|bearer| &bearer.pod).collect();
    let is_listed = |known: &Bearer| listed.contains(&known.pod);
    let known = known.filter(|known| !is_listed(known) && world.pods.contains_key(&known.pod));
    let services = service_names(world);
    let of_nodes = bearers.iter().cloned().chain(known).map(|bearer| {
        let request = node_request(world, &bearer, &operator, &services);
        (bearer.pod.clone(), request, Layout::Node { pool: bearer.pool })
    });
    let bearer = operator_secret(&world.key.name);
    let of_operator = (bearer.clone(), Request { bearer, ..operator.clone() }, Layout::Operator);
    std::iter::once(of_operator)
        .chain(of_nodes)
        .filter_map(|(secret, request, layout)| {
            let stored = world.secrets.get(&secret).map(|secret| secret.stored());
            let reason = match stored {
                None => karst_certs::Reason::Missing,
                Some(None) => karst_certs::Reason::Unreadable,
                Some(Some(stored)) => stored.why_reissue(&request, &issuer, world.now)?,
            };
            let issuer = Arc::clone(&issuer);
            Some(Issue::Leaf { secret, layout, request, issuer, cert_generation, reason })
        })
        .collect()
}

/// The node whose Secret this is.
fn bearer(secret: &SecretView) -> Option<Bearer> {
    let label = |key: &str| secret.meta.labels.get(key).cloned();
    let is_node = matches!(secret.content, SecretContent::Node(_)) && !secret.meta.deleting;
    is_node
        .then(|| {
            let (pod, pool) = (label(POD_NAME_LABEL)?, label(POOL_LABEL)?);
            // Nobody can say now which listeners lead to it.
            Some(Bearer { pod, pool, names: BTreeSet::new(), keeps_names: true })
        })
        .flatten()
}

/// The names of the services that lead to every node.
fn service_names(world: &World) -> BTreeSet<String> {
    let (key, domain) = (&world.key, &world.settings.cluster_domain);
    let services = [key.bootstrap_service(), key.headless_service()];
    services.iter().flat_map(|service| key.service_names(service, domain)).collect()
}

/// A node is known by its own name, by those of the services that lead to it, and by those of its listeners.
fn node_request(world: &World, bearer: &Bearer, like: &Request, services: &BTreeSet<String>) -> Request {
    let (key, pod, domain) = (&world.key, &bearer.pod, &world.settings.cluster_domain);
    let own = [format!("{pod}.{}.{}.svc", key.headless_service(), key.namespace), key.pod_host(pod, domain)];
    let listeners = bearer.names.iter().map(|name| match name.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => name.clone(),
    });
    let mut names: Vec<String> = services.iter().cloned().chain(own).chain(listeners).collect();
    let stored = world.secrets.get(pod).and_then(|secret| secret.stored()).map(Stored::certificate);
    if let Some(stored) = stored
        && bearer.keeps_names
        && names.iter().all(|name| stored.names.contains(name))
    {
        names.extend(stored.names.iter().cloned());
    }
    names.sort_unstable();
    names.dedup();
    // Addresses are told from names where the certificate is made.
    let common_name = format!("{}-kafka", key.name);
    Request { common_name, dns_names: names, bearer: pod.clone(), ..like.clone() }
}

/// The files that nodes trust, when they are not what they should be. Of an authority that cannot be read now the file
/// stays as it is.
fn trust_bundle(world: &World, trusted: &BTreeMap<String, (String, u64)>) -> Option<Issue> {
    let name = trust_secret(&world.key.name);
    let seen = world.secrets.get(&name);
    let mut files = seen.and_then(|secret| secret.trust()).cloned().unwrap_or_default();
    let mut annotations = seen.map(|secret| secret.meta.annotations.clone()).unwrap_or_default();
    let before = (files.clone(), annotations.clone());
    for (kind, file, annotation) in [
        (Kind::Cluster, CLUSTER_TRUST, CA_CERT_GENERATION_ANNOTATION),
        (Kind::Clients, CLIENTS_TRUST, CLIENTS_CA_CERT_GENERATION_ANNOTATION),
    ] {
        if let Some((bundle, generation)) = trusted.get(&kind.to_string()) {
            let bundle = bundle.clone().into_bytes();
            let is_same = files.get(file) == Some(&bundle);
            files.insert(file.to_owned(), bundle);
            if kind == Kind::Clients && !(is_same && clients_trust_since(&annotations).is_some()) {
                annotations.insert(CLIENTS_TRUST_SINCE_ANNOTATION.to_owned(), world.now.to_string());
            }
            annotations.insert(annotation.to_owned(), generation.to_string());
        }
    }
    let is_useful = files.contains_key(CLUSTER_TRUST);
    (is_useful && before != (files.clone(), annotations.clone())).then_some(Issue::Trust {
        secret: name,
        files,
        annotations,
    })
}

/// Has a node all the Secrets that its pod mounts?
pub(crate) fn has_secrets(world: &World, pod: &str, needs_clients: bool) -> bool {
    let trusts = world.secrets.get(&trust_secret(&world.key.name)).and_then(|secret| secret.trust());
    let is_known = world.secrets.get(pod).is_some_and(|secret| secret.stored().is_some());
    let has = |files: &BTreeMap<String, Vec<u8>>| {
        files.contains_key(CLUSTER_TRUST) && (!needs_clients || files.contains_key(CLIENTS_TRUST))
    };
    is_known && trusts.is_some_and(has)
}

/// The certificates by which clients know that it is the right cluster.
pub(crate) fn for_clients(world: &World) -> Option<Vec<String>> {
    let authority = authority(world, Kind::Cluster, &Inside::of(world)).ok()?;
    Some(vec![trust::bundle(authority.for_clients(world.now))])
}

/// When the certificates in these Secrets end, by what they are for: of several the first.
pub fn ends<'a>(
    key: &ClusterKey,
    secrets: impl Iterator<Item = &'a SecretView>,
) -> BTreeMap<String, Timestamp> {
    let mut ends = BTreeMap::new();
    for secret in secrets {
        let authority = KINDS.into_iter().find(|kind| secret.meta.name == kind.cert_secret(&key.name));
        let found = match (&secret.content, authority) {
            (SecretContent::Authority(material), Some(kind)) => {
                let newest = material.certificates("ca.crt").and_then(<[_]>::first);
                newest.map(|newest| (kind.to_string(), newest.not_after))
            }
            (SecretContent::Node(Some(stored)), _) => {
                Some(("node".to_owned(), stored.certificate().not_after))
            }
            (SecretContent::Operator(Some(identity)), _) => {
                Some((OPERATOR.to_owned(), identity.stored.certificate().not_after))
            }
            _ => None,
        };
        if let Some((kind, end)) = found {
            let first = ends.entry(kind).or_insert(end);
            *first = end.min(*first);
        }
    }
    ends
}

/// How the operator talks to the nodes.
pub struct OperatorSide<'a> {
    /// Whom it trusts, in PEM.
    pub trust: String,
    /// Who it says it is: the certificate and those that lead to its authority, in PEM.
    pub chain: &'a [u8],
    /// The key of that, in PEM.
    pub key: &'a [u8],
}

impl fmt::Debug for OperatorSide<'_> {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorSide").field("trust", &self.trust).finish_non_exhaustive()
    }
}

/// How the operator talks to the nodes, if there is anything that it could show them.
pub fn operator_side(world: &World) -> Option<OperatorSide<'_>> {
    let (chain, key) = shown_by_stand_in(world).or_else(|| own_identity(world))?;
    // What nodes are given holds all that one of them may show, also while the Secrets of the authority are edited.
    let given = world.secrets.get(&trust_secret(&world.key.name)).and_then(|given| given.trust());
    let given = given.and_then(|files| String::from_utf8(files.get(CLUSTER_TRUST)?.clone()).ok());
    let read = || authority(world, Kind::Cluster, &Inside::of(world)).ok();
    let trust = given.or_else(|| Some(trust::bundle(read()?.given_to_nodes(world.now))))?;
    Some(OperatorSide { trust, chain, key })
}

fn own_identity(world: &World) -> Option<(&[u8], &[u8])> {
    match &world.secrets.get(&operator_secret(&world.key.name))?.content {
        SecretContent::Operator(Some(identity)) => Some((&identity.chain, &identity.key)),
        _ => None,
    }
}

/// What the node shows in whose place the operator stands, once its Secret was read.
fn shown_by_stand_in(world: &World) -> Option<(&[u8], &[u8])> {
    let node = stand_in(world)?;
    let Reference::Found(files) = world.referenced.get(&node)? else { return None };
    let Files(files) = &**files;
    let [certificate, key] = files_of(&node);
    Some((files.get(&certificate)?, files.get(&key)?))
}
