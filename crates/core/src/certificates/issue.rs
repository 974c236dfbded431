//! What is to be made of keys and certificates, and the Secrets that it goes into.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use karst_certs::{
    Authority, Decision, Error, Issuer, KeyAlgorithm, Kind, Leaf, Reason, Request, Secret, SecretWrite,
};

use super::{settings, spec};
use crate::names::{
    CA_CERT_GENERATION_ANNOTATION, CA_KEY_GENERATION_ANNOTATION, OPERATOR_CERTIFICATE, OPERATOR_KEY,
    POD_NAME_LABEL, POOL_LABEL,
};
use crate::objects;
use crate::own_certificates::Files;
use crate::strangers;
use crate::world::{SecretContent, World};

/// Something that needs a key, or goes into a Secret as a whole.
#[derive(Debug, Clone)]
pub enum Issue {
    /// A step in the life of an authority.
    Authority {
        /// The authority as it is.
        authority: Authority,
        /// The step.
        decision: Decision,
    },
    /// A certificate.
    Leaf {
        /// The Secret that it goes into.
        secret: String,
        /// How it is laid out there.
        layout: Layout,
        /// What it is for.
        request: Request,
        /// Who signs.
        issuer: Arc<Issuer>,
        /// The newest certificate of the authority.
        cert_generation: u64,
        /// Why it is made.
        reason: Reason,
    },
    /// The files that nodes trust.
    Trust {
        /// The Secret.
        secret: String,
        /// The files.
        files: BTreeMap<String, Vec<u8>>,
        /// What the Secret says about them.
        annotations: BTreeMap<String, String>,
    },
    /// The certificates that users brought for listeners.
    Listeners {
        /// The Secret.
        secret: String,
        /// The files.
        files: Files,
    },
}

/// How a certificate lies in its Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// That of a node.
    Node {
        /// Its pool.
        pool: String,
    },
    /// That of the operator.
    Operator,
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authority { authority, decision } => write!(f, "{}: {decision}", authority.kind()),
            Self::Leaf { secret, reason, .. } => write!(f, "a new certificate in Secret {secret}: {reason}"),
            Self::Trust { secret, .. } => write!(f, "what nodes trust changes, in Secret {secret}"),
            Self::Listeners { secret, .. } => {
                write!(f, "certificates of users for listeners change, in Secret {secret}")
            }
        }
    }
}

impl Issue {
    /// Makes what is asked for: the Secrets, in the order in which they have to be written.
    ///
    /// It rolls dice, so it is no part of deciding: it is for whoever carries a plan out.
    pub fn make(&self, now: Timestamp) -> Result<Vec<SecretWrite>, Error> {
        match self {
            Self::Authority { authority, decision } => authority.carry_out(decision, now),
            Self::Leaf { secret, layout, request, issuer, cert_generation, .. } => {
                let leaf = issuer.issue(request, now)?;
                let annotations = [
                    (CA_CERT_GENERATION_ANNOTATION, *cert_generation),
                    (CA_KEY_GENERATION_ANNOTATION, issuer.key_generation()),
                ];
                let content = Secret {
                    data: layout.entries(secret, &leaf),
                    annotations: annotations
                        .map(|(key, generation)| (key.to_owned(), generation.to_string()))
                        .into(),
                };
                Ok(vec![SecretWrite { name: secret.clone(), content }])
            }
            Self::Trust { secret, files, annotations } => {
                let content = Secret { data: files.clone(), annotations: annotations.clone() };
                Ok(vec![SecretWrite { name: secret.clone(), content }])
            }
            Self::Listeners { secret, files } => {
                let content = Secret { data: files.0.clone(), annotations: BTreeMap::new() };
                Ok(vec![SecretWrite { name: secret.clone(), content }])
            }
        }
    }

    /// Does it take longer than a moment? So does every key that is not made of a curve.
    pub fn takes_long(&self) -> bool {
        let algorithm = match self {
            Self::Authority { authority, decision: Decision::Create | Decision::Replace(_) } => {
                authority.algorithm()
            }
            Self::Leaf { request, .. } => request.algorithm,
            _ => KeyAlgorithm::EcdsaP256,
        };
        algorithm != KeyAlgorithm::EcdsaP256
    }

    /// Is it worth an event: does it change what others trust, after the cluster was made?
    pub fn is_remarkable(&self) -> bool {
        matches!(self, Self::Authority { decision, .. } if *decision != Decision::Create)
    }

    /// The pool of the node that it is for.
    pub fn pool(&self) -> Option<&str> {
        match self {
            Self::Leaf { layout: Layout::Node { pool }, .. } => Some(pool),
            _ => None,
        }
    }
}

impl Layout {
    fn entries(&self, secret: &str, leaf: &Leaf) -> BTreeMap<String, Vec<u8>> {
        let entries = match self {
            Self::Operator => {
                vec![
                    (OPERATOR_CERTIFICATE.to_owned(), leaf.chain.clone()),
                    (OPERATOR_KEY.to_owned(), leaf.key.clone()),
                ]
            }
            Self::Node { .. } => vec![
                (format!("{secret}.crt"), leaf.chain.clone()),
                (format!("{secret}.key"), leaf.key.clone()),
                // Kafka takes key and chain from one file.
                (format!("{secret}.pem"), leaf.key_and_chain()),
            ],
        };
        entries.into_iter().map(|(name, text)| (name, text.into_bytes())).collect()
    }
}

/// The Secret as it is sent. One that was seen is replaced on condition that it is still that one.
pub fn secret_object(world: &World, pool: Option<&str>, write: SecretWrite) -> v1::Secret {
    let seen = world.secrets.get(&write.name).map(|secret| &secret.meta);
    let mut labels = seen.map(|meta| meta.labels.clone()).unwrap_or_default();
    labels.extend(world.key.labels());
    if let Some(pool) = pool {
        labels.insert(POOL_LABEL.to_owned(), pool.to_owned());
        labels.insert(POD_NAME_LABEL.to_owned(), write.name.clone());
    }
    v1::Secret {
        metadata: ObjectMeta {
            namespace: Some(world.key.namespace.clone()),
            labels: Some(labels),
            annotations: Some(write.content.annotations),
            owner_references: Some(owners(world, &write.name)),
            resource_version: seen.map(|meta| meta.resource_version.clone()),
            uid: seen.map(|meta| meta.uid.clone()),
            name: Some(write.name),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        data: Some(write.content.data.into_iter().map(|(name, bytes)| (name, ByteString(bytes))).collect()),
        ..v1::Secret::default()
    }
}

/// A Secret that is to go with another resource than it does, or with none.
#[derive(Debug, Clone, PartialEq)]
pub struct Ownership {
    /// Its name.
    pub secret: String,
    /// Which one.
    pub uid: String,
    /// With what it is to go.
    pub owners: Vec<OwnerReference>,
}

fn owners(world: &World, secret: &str) -> Vec<OwnerReference> {
    if is_owned(world, secret) { vec![objects::owner(&world.kafka)] } else { Vec::new() }
}

/// Does a Secret go with the cluster?
fn is_owned(world: &World, secret: &str) -> bool {
    of_authority(world, secret).is_none_or(|kind| goes_with_cluster(world, kind))
}

fn of_authority(world: &World, secret: &str) -> Option<Kind> {
    Kind::of_secret(&world.key.name, secret)
}

fn goes_with_cluster(world: &World, kind: Kind) -> bool {
    spec(&world.kafka, kind).and_then(|spec| spec.generate_secret_owner_reference).unwrap_or(true)
}

/// Secrets of an earlier cluster of this name would be taken away with it, under the new one; and users change their
/// minds about what is to outlive a cluster. What users made is theirs.
pub(super) fn ownerships(world: &World) -> Vec<Ownership> {
    let ours = world.secrets.values().filter(|secret| {
        let is_theirs =
            of_authority(world, &secret.meta.name).is_some_and(|kind| !settings(&world.kafka, kind).generate);
        let is_free = strangers::controller(world, &secret.meta).is_none();
        !is_theirs && is_free && !secret.meta.deleting && !matches!(secret.content, SecretContent::Other)
    });
    let cluster = world.kafka.metadata.uid.as_deref().unwrap_or_default();
    let wrong = ours.filter(|secret| match secret.meta.owners.as_slice() {
        [] => is_owned(world, &secret.meta.name),
        [owner] => owner != cluster || !is_owned(world, &secret.meta.name),
        _ => true,
    });
    wrong
        .map(|secret| Ownership {
            secret: secret.meta.name.clone(),
            uid: secret.meta.uid.clone(),
            owners: owners(world, &secret.meta.name),
        })
        .collect()
}
