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

/// The key in a PEM file in PKCS#8, the only form that Kafka reads; those of `openssl` and of cert managers are often in another.
pub fn to_pkcs8(pem: &[u8]) -> Option<String> {
    // What cannot be read as a key at all is not made into one.
    read(pem)?;
    let blocks = pem::parse_many(pem).ok()?;
    let block = blocks.iter().find(|block| block.tag().ends_with("PRIVATE KEY"))?;
    let inner = block.contents();
    let algorithm = match block.tag() {
        // Kafka reads keys of RSA and of elliptic curves, and no others.
        "PRIVATE KEY" => {
            let is_known = [RSA, EC].iter().any(|kind| inner.windows(kind.len()).any(|part| part == *kind));
            return is_known.then(|| crate::trust::to_pem("PRIVATE KEY", inner));
        }
        "RSA PRIVATE KEY" => [RSA, NULL].concat(),
        "EC PRIVATE KEY" => {
            let curve = CURVES.iter().find(|curve| inner.windows(curve.len()).any(|part| part == **curve))?;
            [EC, curve].concat()
        }
        _ => return None,
    };
    const VERSION: &[u8] = &[0x02, 0x01, 0x00];
    let parts = [VERSION.to_vec(), der(0x30, &algorithm), der(0x04, inner)].concat();
    Some(crate::trust::to_pem("PRIVATE KEY", &der(0x30, &parts)))
}

const NULL: &[u8] = &[0x05, 0x00];
/// The object identifiers of the two kinds of keys.
const RSA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC: &[u8] = &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// Those of the curves P-256, P-384 and P-521.
const CURVES: [&[u8]; 3] = [
    &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
    &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22],
    &[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x23],
];

/// One value with its tag and length.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let length: Vec<u8> = length.into_iter().skip_while(|byte| *byte == 0).collect();
    let mut out = vec![tag];
    match (content.len(), u8::try_from(length.len())) {
        (0..=127, _) => out.push(length.first().copied().unwrap_or_default()),
        (_, Ok(count)) => {
            out.push(0x80 | count);
            out.extend(&length);
        }
        (_, Err(_)) => {}
    }
    out.extend(content);
    out
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Error::NoRandomness)?;
    Ok(bytes)
}
