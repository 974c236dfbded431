//! The Secrets of a cluster, as far as decisions look at them.
//!
//! What costs time to read is read once, when a Secret arrives; what nobody looks at is not kept.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use karst_certs::{Certificate, Kind, Material, Secret, Stored};

use crate::names::{CLUSTER_LABEL, CLUSTER_TRUST, POD_NAME_LABEL};
use crate::names::{OPERATOR_CERTIFICATE, OPERATOR_KEY, listeners_secret, operator_secret, trust_secret};
use crate::own_certificates::Files;
use crate::world::Meta;

/// A Secret of a cluster.
#[derive(Debug, Clone, Default)]
pub struct SecretView {
    /// Who it is.
    pub meta: Meta,
    /// What is in it.
    pub content: SecretContent,
    /// The certificates of the cluster's authorities that nodes trust, if it is the Secret that has them.
    authorities: Vec<Certificate>,
}

/// What a Secret holds, by what it is for.
#[derive(Debug, Clone, Default)]
pub enum SecretContent {
    /// The certificates or the key of an authority.
    Authority(Arc<Material>),
    /// The certificate of a node. `None` when it cannot be read.
    Node(Option<Box<Stored>>),
    /// The certificate of the operator.
    Operator(Option<Box<OperatorIdentity>>),
    /// The certificates that nodes trust, by the name of the file.
    Trust(BTreeMap<String, Vec<u8>>),
    /// The certificates that users brought for listeners.
    Listeners(Files),
    /// Something that no decision looks at.
    #[default]
    Other,
}

/// What the operator shows to nodes.
#[derive(Clone)]
pub struct OperatorIdentity {
    /// The certificate, read.
    pub stored: Stored,
    /// The certificate and those that lead to its authority, in PEM.
    pub chain: Vec<u8>,
    /// Its key, in PEM.
    pub key: Vec<u8>,
}

impl fmt::Debug for OperatorIdentity {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stored.fmt(f)
    }
}

impl SecretView {
    /// Keeps of a Secret what decisions need.
    pub fn new(meta: Meta, data: BTreeMap<String, Vec<u8>>) -> Self {
        let cluster = meta.labels.get(CLUSTER_LABEL).map_or("", String::as_str);
        let is_authority = [Kind::Cluster, Kind::Clients]
            .iter()
            .any(|kind| meta.name == kind.cert_secret(cluster) || meta.name == kind.key_secret(cluster));
        let mut authorities = Vec::new();
        let content = if is_authority {
            let secret = Secret { data, annotations: meta.annotations.clone() };
            SecretContent::Authority(Arc::new(Material::new(secret)))
        } else if meta.name == trust_secret(cluster) {
            let given = data.get(CLUSTER_TRUST).and_then(|pem| Certificate::all_from_pem(pem).ok());
            authorities = given.unwrap_or_default();
            SecretContent::Trust(data)
        } else if meta.name == listeners_secret(cluster) {
            SecretContent::Listeners(Files(data))
        } else if meta.name == operator_secret(cluster) {
            SecretContent::Operator(operator_identity(data).map(Box::new))
        } else if meta.labels.get(POD_NAME_LABEL) == Some(&meta.name) {
            let entry = |ending: &str| data.get(&format!("{}.{ending}", meta.name));
            let stored = entry("crt").zip(entry("key")).and_then(|(chain, key)| Stored::read(chain, key));
            // Kafka reads the one file that has both.
            SecretContent::Node(stored.filter(|_| entry("pem").is_some()).map(Box::new))
        } else {
            SecretContent::Other
        };
        Self { meta, content, authorities }
    }

    /// The parts of an authority.
    pub fn material(&self) -> Option<&Arc<Material>> {
        match &self.content {
            SecretContent::Authority(material) => Some(material),
            _ => None,
        }
    }

    /// The certificate of a node or of the operator.
    pub fn stored(&self) -> Option<&Stored> {
        match &self.content {
            SecretContent::Node(stored) => stored.as_deref(),
            SecretContent::Operator(identity) => identity.as_deref().map(|identity| &identity.stored),
            _ => None,
        }
    }

    /// The certificates that nodes trust.
    pub fn trust(&self) -> Option<&BTreeMap<String, Vec<u8>>> {
        match &self.content {
            SecretContent::Trust(files) => Some(files),
            _ => None,
        }
    }

    /// The certificates of the cluster's authorities that nodes trust.
    pub(crate) fn authorities(&self) -> &[Certificate] {
        &self.authorities
    }

    /// The certificates that users brought for listeners.
    pub(crate) fn listeners(&self) -> Option<&Files> {
        match &self.content {
            SecretContent::Listeners(files) => Some(files),
            _ => None,
        }
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.meta.annotations.get(key).map(String::as_str)
    }
}

fn operator_identity(mut data: BTreeMap<String, Vec<u8>>) -> Option<OperatorIdentity> {
    let (chain, key) = (data.remove(OPERATOR_CERTIFICATE)?, data.remove(OPERATOR_KEY)?);
    Some(OperatorIdentity { stored: Stored::read(&chain, &key)?, chain, key })
}
