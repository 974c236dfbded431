//! What kind of keys a cluster gets.

use karst_api as api;
use karst_certs::KeyAlgorithm;

use crate::names::KEY_ALGORITHM_ANNOTATION;
use crate::notice::Notice;

const KNOWN: [(&str, KeyAlgorithm); 3] = [
    ("ecdsa-p256", KeyAlgorithm::EcdsaP256),
    ("rsa-2048", KeyAlgorithm::Rsa2048),
    ("rsa-4096", KeyAlgorithm::Rsa4096),
];

/// The kind that is asked for. Keys that exist stay what they are until they are replaced.
pub(super) fn algorithm(kafka: &api::Kafka) -> Result<KeyAlgorithm, Notice> {
    let annotations = kafka.metadata.annotations.as_ref();
    let Some(asked) = annotations.and_then(|all| all.get(KEY_ALGORITHM_ANNOTATION)) else {
        return Ok(KeyAlgorithm::default());
    };
    let found = KNOWN.iter().find(|(name, _)| *name == asked.trim()).map(|(_, algorithm)| *algorithm);
    found.ok_or_else(|| Notice::KeyAlgorithm {
        asked: asked.clone(),
        known: KNOWN.iter().map(|(name, _)| *name).collect(),
    })
}
