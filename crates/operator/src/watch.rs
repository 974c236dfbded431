//! The watches: one per kind and namespace, each feeding the index.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use karst_api::{Kafka, KafkaNodePool, StrimziPodSet};
use karst_core::names::KIND_LABEL;
use kube::core::{DeserializeGuard, NamespaceResourceScope};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::index::{Feed, Index, Indexed};
use crate::queue::Queue;
use crate::settings::{Namespaces, Settings};
use crate::views::{
    AccountWire, BudgetWire, ClaimWire, ConfigMapWire, PodWire, PolicyWire, SecretWire, ServiceWire,
};

/// How many objects a list asks for at once: few enough that a long list does not swell the process.
const PAGE: u32 = 100;

/// Whether every watch has seen everything once. Before that nothing may be decided: a world that is only half
/// known looks like one where half of everything is missing.
#[derive(Debug, Default)]
pub(crate) struct Synced {
    missing: AtomicUsize,
    changed: Notify,
}

impl Synced {
    /// Has every watch seen everything?
    pub(crate) fn is_done(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }

    /// Waits until every watch has seen everything.
    pub(crate) async fn done(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.is_done() {
                return;
            }
            changed.await;
        }
    }

    fn one_more(&self) {
        self.missing.fetch_add(1, Ordering::AcqRel);
    }

    fn one_done(&self) {
        self.missing.fetch_sub(1, Ordering::AcqRel);
        self.changed.notify_waiters();
    }
}

/// Starts all watches. They end only with the process.
pub(crate) fn start(
    client: &Client,
    settings: &Settings,
    index: &Arc<Index>,
    queue: &Arc<Queue>,
    synced: &Arc<Synced>,
) -> JoinSet<()> {
    let mut watches = Watches { client, index, queue, synced, tasks: JoinSet::new() };
    let namespaces = match &settings.namespaces {
        Namespaces::All => vec![None],
        Namespaces::Some(names) => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    let ours = format!("{KIND_LABEL}=Kafka");
    for namespace in namespaces {
        watches.guarded::<Kafka>(namespace, settings.selector.as_deref());
        watches.guarded::<KafkaNodePool>(namespace, None);
        watches.plain::<StrimziPodSet>(namespace, &ours);
        watches.plain::<PodWire>(namespace, &ours);
        watches.plain::<ConfigMapWire>(namespace, &ours);
        watches.plain::<ServiceWire>(namespace, &ours);
        watches.plain::<AccountWire>(namespace, &ours);
        watches.plain::<BudgetWire>(namespace, &ours);
        watches.plain::<PolicyWire>(namespace, &ours);
        watches.plain::<ClaimWire>(namespace, &ours);
        watches.plain::<SecretWire>(namespace, &ours);
    }
    watches.tasks
}

struct Watches<'a> {
    client: &'a Client,
    index: &'a Arc<Index>,
    queue: &'a Arc<Queue>,
    synced: &'a Arc<Synced>,
    tasks: JoinSet<()>,
}

impl Watches<'_> {
    fn api<K>(&self, namespace: Option<&str>) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    /// Watches what the operator writes itself.
    fn plain<K: Indexed>(&mut self, namespace: Option<&str>, labels: &str) {
        let config = watcher::Config::default().page_size(PAGE).labels(labels);
        let mut events = Box::pin(watcher(self.api::<K>(namespace), config).default_backoff());
        let mut sink = self.sink();
        self.tasks.spawn(async move {
            while let Some(event) = events.next().await {
                sink.take::<K>(event);
            }
        });
    }

    /// Watches what users write. One object that cannot be read must not hide all others of its kind.
    fn guarded<K: Indexed>(&mut self, namespace: Option<&str>, labels: Option<&str>) {
        let mut config = watcher::Config::default().page_size(PAGE);
        config.label_selector = labels.map(str::to_owned);
        let api = self.api::<DeserializeGuard<K>>(namespace);
        let mut events = Box::pin(watcher(api, config).default_backoff());
        let mut sink = self.sink();
        self.tasks.spawn(async move {
            while let Some(event) = events.next().await {
                match event.map(readable).transpose() {
                    Some(event) => sink.take::<K>(event),
                    None => continue,
                }
            }
        });
    }

    fn sink(&self) -> Sink {
        self.synced.one_more();
        Sink {
            index: Arc::clone(self.index),
            queue: Arc::clone(self.queue),
            synced: Arc::clone(self.synced),
            feed: Feed::default(),
            has_synced: false,
        }
    }
}

/// The event, unless its object cannot be read.
fn readable<K: Indexed>(event: Event<DeserializeGuard<K>>) -> Option<Event<K>> {
    let read = |guarded: DeserializeGuard<K>| match guarded.0 {
        Ok(object) => Some(object),
        Err(invalid) => {
            let (namespace, name) = (&invalid.metadata.namespace, &invalid.metadata.name);
            tracing::warn!(?namespace, ?name, kind = %K::kind(&()), error = %invalid.error, "cannot be read, and is left alone");
            None
        }
    };
    match event {
        Event::Apply(object) => read(object).map(Event::Apply),
        Event::Delete(object) => read(object).map(Event::Delete),
        Event::InitApply(object) => read(object).map(Event::InitApply),
        Event::Init => Some(Event::Init),
        Event::InitDone => Some(Event::InitDone),
    }
}

/// Where the events of one watch go.
struct Sink {
    index: Arc<Index>,
    queue: Arc<Queue>,
    synced: Arc<Synced>,
    feed: Feed,
    has_synced: bool,
}

impl Sink {
    fn take<K: Indexed>(&mut self, event: Result<Event<K>, watcher::Error>) {
        match event {
            Ok(event) => {
                let (work, complete) = self.feed.take(&self.index, event);
                self.queue.push(work);
                if complete && !std::mem::replace(&mut self.has_synced, true) {
                    self.synced.one_done();
                }
            }
            Err(error) => tracing::warn!(kind = %K::kind(&()), %error, "the watch failed, and starts again"),
        }
    }
}
