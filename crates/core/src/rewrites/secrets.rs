//! Of what does not stay as Karst writes it, the Secrets with keys and certificates.
//!
//! They are known by what they are for: a key is another one each time it is made. What is only said of a Secret, in its annotations,
//! harms nobody when it is gone. What is in it does: a pod that starts with it may be accepted by nobody, or accept nobody.

use karst_certs::authority::Cause;
use karst_certs::{Decision, Kind};

use crate::certificates::Issue;
use crate::digest::Digest;
use crate::names::{
    CA_CERT_GENERATION_ANNOTATION, CLIENTS_CA_CERT_GENERATION_ANNOTATION, CLIENTS_TRUST, CLUSTER_TRUST,
    ClusterKey, POD_NAME_LABEL, listeners_secret, trust_secret,
};
use crate::world::{SecretContent, World};

/// What somebody puts at stake who changes a Secret back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stake {
    /// What pods start with, and load while they run.
    Files,
    /// The key of the authority inside. Each time another one is made, which every node has to learn to trust.
    Key,
}

/// How a Secret is remembered among the other objects.
fn called(secret: &str) -> String {
    format!("Secret {secret}")
}

pub(super) fn describe(issue: &Issue, key: &ClusterKey) -> String {
    called(&name(issue, key))
}

/// The Secret that is put right. An authority has two, and of each step one tells why it is taken.
pub(super) fn name(issue: &Issue, key: &ClusterKey) -> String {
    match issue {
        Issue::Authority { authority, decision } => match decision {
            Decision::Create | Decision::Replace(_) | Decision::SignWithNewKey => {
                authority.kind().key_secret(&key.name)
            }
            _ => authority.kind().cert_secret(&key.name),
        },
        Issue::Leaf { secret, .. } | Issue::Trust { secret, .. } | Issue::Listeners { secret, .. } => {
            secret.clone()
        }
    }
}

/// The fingerprint of what is asked for, the same however often it is made.
pub(super) fn fingerprint(issue: &Issue) -> Digest {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    match issue {
        Issue::Authority { .. } => parts.push(issue.to_string().into_bytes()),
        Issue::Leaf { request, issuer, .. } => {
            parts.push(issuer.certificate().authority_id().into_bytes());
            parts.push(format!("{request:?}").into_bytes());
        }
        // Only what is Karst's: others may write beside it what is new each time, and a time that is lost is another one.
        Issue::Trust { files, annotations, .. } => {
            let files = [CLUSTER_TRUST, CLIENTS_TRUST].map(|name| files.get(name).cloned());
            let said = [CA_CERT_GENERATION_ANNOTATION, CLIENTS_CA_CERT_GENERATION_ANNOTATION];
            let said = said.map(|name| annotations.get(name).cloned().map(String::into_bytes));
            parts.extend(files.into_iter().chain(said).map(Option::unwrap_or_default));
        }
        Issue::Listeners { files, .. } => {
            let files = files.0.iter();
            parts.extend(files.flat_map(|(name, file)| [name.clone().into_bytes(), file.clone()]));
        }
    }
    Digest::of_parts(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// What is at stake by what is found in place of what was written.
pub(super) fn stake(world: &World, issue: &Issue) -> Option<Stake> {
    match issue {
        Issue::Authority { authority, decision: Decision::Create | Decision::Replace(_) } => {
            (authority.kind() == Kind::Cluster).then_some(Stake::Key)
        }
        Issue::Trust { secret, files, .. } => {
            let found = world.secrets.get(secret).and_then(|found| found.trust());
            (found != Some(files)).then_some(Stake::Files)
        }
        Issue::Listeners { .. } => Some(Stake::Files),
        // No pod starts with that of the operator.
        Issue::Leaf { .. } => issue.pool().map(|_| Stake::Files),
        // Whoever signs goes on to sign, and to be trusted.
        Issue::Authority { .. } => None,
    }
}

/// What is different in the Secret that was found, for people.
pub(super) fn difference(world: &World, issue: &Issue) -> String {
    let annotation = |name: &str| format!("metadata.annotations[{name}]");
    let Some(found) = world.secrets.get(&name(issue, &world.key)) else {
        return "all of it: it was deleted".to_owned();
    };
    match issue {
        Issue::Authority { decision: Decision::Renew(cause) | Decision::Replace(cause), .. } => match cause {
            Cause::Asked(asked) => annotation(asked),
            _ => "data".to_owned(),
        },
        Issue::Trust { files, annotations, .. } if found.trust() == Some(files) => {
            let other = annotations.iter().find(|(name, value)| found.annotation(name) != Some(value));
            other.map_or_else(|| "metadata".to_owned(), |(name, _)| annotation(name))
        }
        // Nobody knows any more what it is.
        _ if matches!(found.content, SecretContent::Other) => format!("metadata.labels[{POD_NAME_LABEL}]"),
        _ => "data".to_owned(),
    }
}

/// The pods that would start with what is in a Secret, or because of it.
pub(super) fn readers(world: &World, object: &str) -> Vec<String> {
    let cluster = &world.key.name;
    let read_by_all = [trust_secret(cluster), listeners_secret(cluster), Kind::Cluster.key_secret(cluster)];
    let is_read_by_all = read_by_all.iter().any(|secret| called(secret) == object);
    world.pods.keys().filter(|pod| is_read_by_all || called(pod) == object).cloned().collect()
}
