//! Private keys: made, read, and compared with certificates.

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize};

use crate::Error;

/// What kind of key to make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyAlgorithm {
    /// Made in a moment, small in every handshake.
    #[default]
    EcdsaP256,
    Rsa2048,
    Rsa4096,
}

impl KeyAlgorithm {
    pub(crate) fn make(self) -> Result<KeyPair, Error> {
        Ok(match self {
            Self::EcdsaP256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
            Self::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?,
            Self::Rsa4096 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_4096)?,
        })
    }
}

/// The key in a PEM file, whichever of the usual forms it has; an encrypted one cannot be read.
pub(crate) fn read(pem: &[u8]) -> Option<KeyPair> {
    let is_key = |block: &pem::Pem| block.tag().ends_with("PRIVATE KEY");
    let block = pem::parse_many(pem).ok()?.into_iter().find(is_key)?;
    KeyPair::try_from(block.contents()).ok()
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Error::NoRandomness)?;
    Ok(bytes)
}
