//! A door between an operator and Kafka: it sees every call that changes something, before Kafka does and again when Kafka has
//! carried it out, and asks what to do about it. It can also be shut for a while, or refuse in Kafka's name.
//!
//! The operator is the one that is shipped and knows nothing of the door. What it sends to the ports of nodes is redirected
//! by the kernel, by the group that it runs in; the door has a certificate of the cluster's own authority, and shows Kafka
//! the operator's.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use karst_core::names::{OPERATOR_CERTIFICATE, OPERATOR_KEY, operator_secret};
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::cluster::Cluster;
use crate::credentials::entry;
use crate::kafka_call::Call;

/// The group of operators whose way to Kafka leads through the door.
pub const GROUP: u32 = 4242;
/// The ports by which an operator reaches controllers and brokers.
const PORTS: [u16; 2] = [9090, 9091];

/// When something happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Kafka does not know of it yet.
    Before,
    /// Kafka has carried it out, and nobody knows.
    After,
}

/// What becomes of a call, or of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Pass,
    /// It is lost, and the connection with it.
    Lose,
}

/// A call at the door. It waits there for its verdict.
#[derive(Debug)]
pub struct Moment {
    /// What is asked for.
    pub call: Call,
    /// Whether Kafka has done it.
    pub when: When,
    /// The pod that is asked.
    pub pod: String,
    /// Where the verdict is awaited. Without one, it is lost.
    pub verdict: oneshot::Sender<Verdict>,
}

/// The door. It is taken away when dropped.
#[derive(Debug)]
pub struct KafkaDoor {
    way: Arc<Way>,
    shut: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    rules: Vec<Vec<String>>,
}

/// What all connections share.
struct Way {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    moments: mpsc::Sender<Moment>,
    /// The last moment of each call.
    seen: Mutex<BTreeMap<String, When>>,
    shut: watch::Receiver<bool>,
    refuses: AtomicBool,
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Way").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl KafkaDoor {
    /// Opens a door to a cluster. Each call comes to it twice: when it is first made, and when it is first carried out.
    pub async fn open(cluster: &Cluster<'_>) -> Result<(Self, mpsc::Receiver<Moment>)> {
        let (moments, received) = mpsc::channel(1);
        let (shut, is_shut) = watch::channel(false);
        let way = Arc::new(Way {
            acceptor: acceptor(cluster).await?,
            connector: connector(cluster).await?,
            moments,
            seen: Mutex::default(),
            shut: is_shut,
            refuses: AtomicBool::new(false),
        });
        let mut door = Self { way, shut, tasks: Vec::new(), rules: Vec::new() };
        for port in PORTS {
            let listener = TcpListener::bind("127.0.0.1:0").await.context("opening a door to Kafka")?;
            door.redirect(port, listener.local_addr()?.port())?;
            door.tasks.push(tokio::spawn(serve(listener, port, Arc::clone(&door.way))));
        }
        Ok((door, received))
    }

    /// Lets what the operator sends to `port` of anybody come here.
    fn redirect(&mut self, port: u16, here: u16) -> Result<()> {
        let rule = format!(
            "OUTPUT --protocol tcp --match owner --gid-owner {GROUP} --dport {port} --jump REDIRECT --to-ports {here}"
        );
        let rule: Vec<_> = rule.split(' ').map(str::to_owned).collect();
        // Before all others: a run that was killed may have left its own.
        iptables("--insert", &rule)?;
        self.rules.push(rule);
        Ok(())
    }

    /// Shuts the door: nothing gets through, and nobody is told why. Or opens it again.
    pub fn shut(&self, shut: bool) {
        self.shut.send_replace(shut);
    }

    /// Refuses, from now on, what Kafka can refuse without harm. Or leaves it to Kafka again.
    pub fn refuse(&self, refuse: bool) {
        self.way.refuses.store(refuse, Ordering::SeqCst);
    }

    /// Forgets which calls it has seen, so that they count again.
    pub fn forget(&self) {
        self.way.seen().clear();
    }
}

impl Drop for KafkaDoor {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        for rule in &self.rules {
            // The rules go with the instance at the latest.
            let _ = iptables("--delete", rule);
        }
    }
}

fn iptables(action: &str, rule: &[String]) -> Result<()> {
    let done = Command::new("iptables").args(["--wait", "--table", "nat", action]).args(rule).output()?;
    ensure!(done.status.success(), "iptables {action}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// Speaks to the operator as any node would.
async fn acceptor(cluster: &Cluster<'_>) -> Result<TlsAcceptor> {
    let (scene, name) = (cluster.scene, &cluster.name);
    let authority = text(entry(scene, &format!("{name}-cluster-ca-cert"), "ca.crt").await?)?;
    let signing = text(entry(scene, &format!("{name}-cluster-ca"), "ca.key").await?)?;
    let issuer = Issuer::from_ca_cert_pem(&authority, KeyPair::from_pem(&signing)?)?;
    let key = KeyPair::generate()?;
    let nodes = format!("*.{name}-kafka-brokers.{}.svc.cluster.local", scene.namespace);
    let certificate = CertificateParams::new(vec![nodes])?.signed_by(&key, &issuer)?;
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes())?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Speaks to nodes as the operator would.
async fn connector(cluster: &Cluster<'_>) -> Result<TlsConnector> {
    let (scene, name) = (cluster.scene, &cluster.name);
    let mut trusted = RootCertStore::empty();
    let authority = entry(scene, &format!("{name}-cluster-ca-cert"), "ca.crt").await?;
    for certificate in CertificateDer::pem_slice_iter(&authority) {
        trusted.add(certificate?)?;
    }
    let identity = operator_secret(name);
    let chain = entry(scene, &identity, OPERATOR_CERTIFICATE).await?;
    let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(&entry(scene, &identity, OPERATOR_KEY).await?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(trusted)
        .with_client_auth_cert(chain, key)?;
    Ok(TlsConnector::from(Arc::new(config)))
}

fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).context("a certificate or key is no text")
}

async fn serve(listener: TcpListener, port: u16, way: Arc<Way>) {
    while let Ok((stream, _)) = listener.accept().await {
        let way = Arc::clone(&way);
        tokio::spawn(async move {
            // A connection that breaks off is all that either side learns, as in life.
            let _ = way.carry(stream, port).await;
        });
    }
}

/// One question at a time: that is how the operator speaks.
struct Connection {
    operator: server::TlsStream<TcpStream>,
    kafka: client::TlsStream<TcpStream>,
    pod: String,
}

impl Way {
    fn seen(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, When>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails when the door is shut, once it is open again: what was on its way is lost.
    async fn pass(&self) -> Result<()> {
        let mut shut = self.shut.clone();
        if *shut.borrow_and_update() {
            shut.wait_for(|shut| !shut).await?;
            bail!("the door was shut");
        }
        Ok(())
    }

    async fn carry(&self, stream: TcpStream, port: u16) -> Result<()> {
        self.pass().await?;
        let operator = self.acceptor.accept(stream).await?;
        let host = operator.get_ref().1.server_name().context("the operator names no host")?.to_owned();
        let node = TcpStream::connect((host.as_str(), port)).await?;
        let kafka = self.connector.connect(ServerName::try_from(host.clone())?, node).await?;
        let pod = host.split('.').next().unwrap_or_default().to_owned();
        let mut connection = Connection { operator, kafka, pod };
        loop {
            self.exchange(&mut connection).await?;
        }
    }

    async fn exchange(&self, connection: &mut Connection) -> Result<()> {
        let Connection { operator, kafka, pod } = connection;
        let question = read(operator).await?;
        self.pass().await?;
        let call = Call::read(&question)?;
        if let Some(call) = &call {
            self.judge(call, When::Before, pod).await?;
            if self.refuses.load(Ordering::SeqCst)
                && let Some(refusal) = call.refusal(&question)?
            {
                return write(operator, &refusal).await;
            }
        }
        self.pass().await?;
        write(kafka, &question).await?;
        let answer = read(kafka).await?;
        if let Some(call) = &call
            && call.is_carried_out(&answer)?
        {
            self.judge(call, When::After, pod).await?;
        }
        self.pass().await?;
        write(operator, &answer).await
    }

    /// Asks what is to become of a call, the first time it comes to this moment.
    async fn judge(&self, call: &Call, when: When, pod: &str) -> Result<()> {
        let key = call.to_string();
        {
            let mut seen = self.seen();
            if seen.get(&key).is_some_and(|last| *last >= when) {
                return Ok(());
            }
            seen.insert(key, when);
        }
        let (verdict, judged) = oneshot::channel();
        let moment = Moment { call: call.clone(), when, pod: pod.to_owned(), verdict };
        self.moments.send(moment).await?;
        ensure!(judged.await? == Verdict::Pass, "{call} is lost");
        Ok(())
    }
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Bytes> {
    let length = usize::try_from(stream.read_i32().await?)?;
    let mut message = BytesMut::zeroed(length);
    stream.read_exact(&mut message).await?;
    Ok(message.freeze())
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), message: &Bytes) -> Result<()> {
    stream.write_i32(i32::try_from(message.len())?).await?;
    stream.write_all(message).await?;
    Ok(stream.flush().await?)
}
