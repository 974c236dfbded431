//! What clients show and trust, as users get it: from the Secrets that are published, and with openssl.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use crate::cluster::Cluster;
use crate::kubectl;
use crate::story::Scene;

/// Files of certificates and keys for clients of one cluster.
#[derive(Debug)]
pub struct Credentials<'a> {
    cluster: &'a Cluster<'a>,
    place: TempDir,
}

impl<'a> Credentials<'a> {
    /// No files yet.
    pub fn of(cluster: &'a Cluster<'a>) -> Result<Self> {
        Ok(Self { cluster, place: tempfile::tempdir()? })
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.place.path().join(name)
    }

    /// Saves an entry of one of the cluster's Secrets, whose name goes on with `secret`.
    async fn save(&self, secret: &str, key: &str, file: &str) -> Result<()> {
        let name = format!("{}-{secret}", self.cluster.name);
        std::fs::write(self.file(file), entry(self.cluster.scene, &name, key).await?)?;
        Ok(())
    }

    /// The options of a client that trusts the authority of nodes as it is published now.
    pub async fn trusting(&self) -> Result<Vec<String>> {
        self.save("cluster-ca-cert", "ca.crt", "ca.crt").await?;
        Ok(self.options("ca.crt"))
    }

    /// The options of a client that trusts somebody else.
    pub async fn trusting_others(&self) -> Result<Vec<String>> {
        self.save("clients-ca-cert", "ca.crt", "other.crt").await?;
        Ok(self.options("other.crt"))
    }

    /// The option of a client that trusts these certificates instead of those that are published.
    pub fn trusting_these(&self, certificates: &str) -> Result<String> {
        std::fs::write(self.file("these.crt"), certificates)?;
        Ok(format!("ssl.ca.location={}", self.file("these.crt").display()))
    }

    fn options(&self, trusted: &str) -> Vec<String> {
        vec!["security.protocol=ssl".to_owned(), format!("ssl.ca.location={}", self.file(trusted).display())]
    }

    /// The options of a client with a certificate that the authority of clients, as it is now, has signed.
    pub async fn signed(&self, name: &str) -> Result<Vec<String>> {
        self.save("clients-ca-cert", "ca.crt", "clients.crt").await?;
        self.save("clients-ca", "ca.key", "clients.key").await?;
        sign(self.place.path(), name, Some("clients")).await?;
        self.showing(name).await
    }

    /// The options of a client with a certificate that this authority has signed. It shows all that leads to the root.
    pub async fn signed_by(&self, name: &str, company: &Company) -> Result<Vec<String>> {
        std::fs::write(self.file("company.crt"), &company.chain)?;
        std::fs::write(self.file("company.key"), &company.key)?;
        sign(self.place.path(), name, Some("company")).await?;
        let leaf = std::fs::read_to_string(self.file(&format!("{name}.crt")))?;
        std::fs::write(self.file(&format!("{name}.crt")), [leaf.as_str(), &company.chain].concat())?;
        self.showing(name).await
    }

    /// The options of a client with a certificate that it has signed itself.
    pub async fn self_signed(&self, name: &str) -> Result<Vec<String>> {
        sign(self.place.path(), name, None).await?;
        self.showing(name).await
    }

    async fn showing(&self, name: &str) -> Result<Vec<String>> {
        let mut options = self.trusting().await?;
        for (option, suffix) in [("ssl.certificate.location", "crt"), ("ssl.key.location", "key")] {
            options.push(format!("{option}={}", self.file(&format!("{name}.{suffix}")).display()));
        }
        Ok(options)
    }
}

/// An authority of a company: a root, or one below it.
#[derive(Debug)]
pub struct Company {
    /// Its certificate, and those above it.
    pub chain: String,
    /// Its key.
    pub key: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Company {
    /// An authority that nobody signed.
    pub fn root() -> Result<Self> {
        Self::signing_itself(of_company("Root"))
    }

    /// The same, under a name of its own.
    pub fn named(name: &str) -> Result<Self> {
        Self::signing_itself(of_company(name))
    }

    /// The same, which ends soon.
    pub fn for_only(valid: Duration) -> Result<Self> {
        let mut params = of_company("Brief");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        params.not_after = date_time_ymd(1970, 1, 1) + now + valid;
        Self::signing_itself(params)
    }

    fn signing_itself(params: CertificateParams) -> Result<Self> {
        let key = KeyPair::generate()?;
        let chain = params.self_signed(&key)?.pem();
        Ok(Self { chain, key: key.serialize_pem(), issuer: Issuer::new(params, key) })
    }

    /// An authority below this one.
    pub fn below(&self, name: &str) -> Result<Self> {
        let (params, key) = (of_company(name), KeyPair::generate()?);
        let own = params.signed_by(&key, &self.issuer)?.pem();
        let chain = [own.as_str(), &self.chain].concat();
        Ok(Self { chain, key: key.serialize_pem(), issuer: Issuer::new(params, key) })
    }

    /// Creates both Secrets of an authority of a cluster as users do, or writes over those that are there.
    pub async fn bring(&self, scene: &Scene, cluster: &str, authority: &str) -> Result<()> {
        let labels = json!({ "strimzi.io/kind": "Kafka", "strimzi.io/cluster": cluster });
        let secret = format!("{cluster}-{authority}");
        for (name, entry, text) in
            [(format!("{secret}-cert"), "ca.crt", &self.chain), (secret, "ca.key", &self.key)]
        {
            let made = json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "labels": labels },
                "stringData": { entry: text },
            });
            kubectl::apply(&scene.namespace, &made.to_string()).await?;
        }
        Ok(())
    }
}

fn of_company(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.use_authority_key_identifier_extension = true;
    params
}

/// An entry of a Secret.
pub async fn entry(scene: &Scene, secret: &str, key: &str) -> Result<Vec<u8>> {
    let found = scene.api::<Secret>().get(secret).await?;
    let value: Option<ByteString> = found.data.unwrap_or_default().get(key).cloned();
    value.map(|value| value.0).with_context(|| format!("Secret {secret} has no {key}"))
}

/// Makes a key and a certificate, as `<name>.key` and `<name>.crt`. Without an issuer it signs itself.
pub async fn sign(place: &Path, name: &str, issuer: Option<&str>) -> Result<()> {
    let subject = format!("/CN={name}");
    let mut openssl = Command::new("openssl");
    openssl.current_dir(place).args(["req", "-x509", "-nodes", "-days", "2", "-subj", &subject]);
    openssl.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.crt")]);
    if let Some(issuer) = issuer {
        openssl.args(["-CA", &format!("{issuer}.crt"), "-CAkey", &format!("{issuer}.key")]);
    }
    let made = openssl.output().await?;
    ensure!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
    Ok(())
}
