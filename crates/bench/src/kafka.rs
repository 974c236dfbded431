//! Kafka as the operator meets it, for clusters whose pods never run. It listens where all nodes of all clusters are said to listen, is
//! told apart by the name that it is asked for, and says what every healthy cluster without topics would say.
//!
//! Or it hangs: takes connections, and never says a word.

mod answers;
mod facts;

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use bytes::{BufMut, Bytes, BytesMut};
use kube::Client;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::LazyConfigAcceptor;

use self::facts::Facts;

/// The ports by which an operator reaches controllers and brokers.
const PORTS: [u16; 2] = [9090, 9091];
/// No question of the operator is longer.
const LONGEST: usize = 1 << 20;

/// A cluster by its namespace and name.
pub(crate) type Name = (String, String);

/// All nodes of all clusters. They are gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Kafka {
    nodes: Arc<Nodes>,
    tasks: Vec<JoinHandle<()>>,
}

struct Nodes {
    client: Client,
    known: Mutex<HashMap<Name, Arc<Facts>>>,
    hung: Mutex<HashSet<Name>>,
    open: AtomicUsize,
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nodes").field("open", &self.open).finish_non_exhaustive()
    }
}

impl Kafka {
    pub(crate) async fn serve(client: &Client) -> Result<Self> {
        let (known, hung) = (Mutex::default(), Mutex::default());
        let nodes = Arc::new(Nodes { client: client.clone(), known, hung, open: AtomicUsize::new(0) });
        let mut kafka = Self { nodes, tasks: Vec::new() };
        for port in PORTS {
            let listener = TcpListener::bind(("127.0.0.1", port)).await;
            let listener = listener.with_context(|| format!("port {port} is not free"))?;
            kafka.tasks.push(tokio::spawn(accept(listener, port, Arc::clone(&kafka.nodes))));
        }
        Ok(kafka)
    }

    /// How many connections there are.
    pub(crate) fn connections(&self) -> usize {
        self.nodes.open.load(Ordering::Relaxed)
    }

    /// How many clusters were asked something so far.
    pub(crate) fn asked(&self) -> usize {
        lock(&self.nodes.known).len()
    }

    /// From now on these clusters take connections and questions, and say nothing.
    pub(crate) fn hang(&self, clusters: impl IntoIterator<Item = Name>) {
        lock(&self.nodes.hung).extend(clusters);
    }

    /// These clusters are gone.
    pub(crate) fn forget(&self, namespace: &str) {
        lock(&self.nodes.known).retain(|(known, _), _| known != namespace);
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// What is locked is whole between any two statements.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, port: u16, nodes: Arc<Nodes>) {
    loop {
        // Without a free descriptor it is tried again; the number of connections tells.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        let nodes = Arc::clone(&nodes);
        tokio::spawn(async move {
            nodes.open.fetch_add(1, Ordering::Relaxed);
            // A connection that ends is all that either side learns.
            let _ = nodes.converse(stream, port).await;
            nodes.open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

impl Nodes {
    async fn converse(&self, stream: TcpStream, port: u16) -> Result<()> {
        stream.set_nodelay(true)?;
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let host = hello.client_hello().server_name().unwrap_or_default().to_owned();
        let name = cluster_of(&host).with_context(|| format!("'{host}' is no node of a cluster"))?;
        self.say_nothing_if_hung(&name).await;
        let facts = self.facts(&name).await?;
        let mut stream = hello.into_stream(Arc::clone(&facts.tls)).await?;
        loop {
            let question = read(&mut stream).await?;
            self.say_nothing_if_hung(&name).await;
            write(&mut stream, &answers::answer(&facts, port, question)?).await?;
        }
    }

    async fn say_nothing_if_hung(&self, name: &Name) {
        if lock(&self.hung).contains(name) {
            pending::<()>().await;
        }
    }

    async fn facts(&self, name: &Name) -> Result<Arc<Facts>> {
        if let Some(known) = lock(&self.known).get(name) {
            return Ok(Arc::clone(known));
        }
        let facts = Arc::new(Facts::read(&self.client, name).await?);
        lock(&self.known).insert(name.clone(), Arc::clone(&facts));
        Ok(facts)
    }
}

/// The cluster of a node: `pod.CLUSTER-kafka-brokers.NAMESPACE.svc...`.
fn cluster_of(host: &str) -> Option<Name> {
    let mut labels = host.split('.').skip(1);
    let cluster = labels.next()?.strip_suffix("-kafka-brokers")?;
    Some((labels.next()?.to_owned(), cluster.to_owned()))
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Bytes> {
    let length = usize::try_from(stream.read_i32().await?)?;
    anyhow::ensure!(length <= LONGEST, "a question of {length} bytes");
    let mut message = BytesMut::zeroed(length);
    stream.read_exact(&mut message).await?;
    Ok(message.freeze())
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), message: &Bytes) -> Result<()> {
    let mut frame = BytesMut::with_capacity(message.len() + 4);
    frame.put_i32(i32::try_from(message.len())?);
    frame.put_slice(message);
    stream.write_all(&frame).await?;
    Ok(stream.flush().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_asked_for_by_a_name_that_tells_its_cluster() {
        let host = "c-0001-brokers-0.c-0001-kafka-brokers.bench.svc.cluster.local";
        assert_eq!(cluster_of(host), Some(("bench".to_owned(), "c-0001".to_owned())));
        assert_eq!(cluster_of("localhost"), None);
        assert_eq!(cluster_of("a.b.c"), None);
    }
}
