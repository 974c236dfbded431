//! The watches: one per kind and namespace, each feeding the index.

pub(crate) mod item;
mod list_watch;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use karst_api::{Kafka, KafkaNodePool, StrimziPodSet};
use karst_core::names::KIND_LABEL;
use kube::Client;
use tokio::sync::Notify;
use tokio::task::JoinSet;

pub(crate) use self::item::{Read, Unreadable};
#[cfg(test)]
pub(crate) use self::list_watch::MARGIN;
pub(crate) use self::list_watch::{Event, ListWatch, Next, Turns, Version, number};
use crate::heartbeats::{Heartbeats, Pulse};
use crate::index::{Feed, Index, Indexed};
use crate::queue::Queue;
use crate::settings::{Namespaces, Settings};
use crate::views::{
    AccountWire, BudgetWire, ClaimWire, ConfigMapWire, PodWire, PolicyWire, SecretWire, ServiceWire,
};

/// How long a watch lasts: so long may it be deaf without anybody noticing.
pub(crate) const LASTS: Duration = Duration::from_secs(120);

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
    heartbeats: &Arc<Heartbeats>,
) -> JoinSet<()> {
    let turns = Turns::default();
    let mut watches = Watches { client, index, queue, synced, heartbeats, turns, tasks: JoinSet::new() };
    let namespaces = match &settings.namespaces {
        Namespaces::All => vec![None],
        Namespaces::Some(names) => names.iter().map(|name| Some(name.as_str())).collect(),
    };
    let ours = format!("{KIND_LABEL}=Kafka");
    let ours = Some(ours.as_str());
    for namespace in namespaces {
        watches.start::<Kafka>(namespace, settings.selector.as_deref());
        watches.start::<KafkaNodePool>(namespace, None);
        watches.start::<StrimziPodSet>(namespace, ours);
        watches.start::<PodWire>(namespace, ours);
        watches.start::<ConfigMapWire>(namespace, ours);
        watches.start::<ServiceWire>(namespace, ours);
        watches.start::<AccountWire>(namespace, ours);
        watches.start::<BudgetWire>(namespace, ours);
        watches.start::<PolicyWire>(namespace, ours);
        watches.start::<ClaimWire>(namespace, ours);
        watches.start::<SecretWire>(namespace, ours);
    }
    watches.tasks
}

struct Watches<'a> {
    client: &'a Client,
    index: &'a Arc<Index>,
    queue: &'a Arc<Queue>,
    synced: &'a Arc<Synced>,
    heartbeats: &'a Arc<Heartbeats>,
    turns: Turns,
    tasks: JoinSet<()>,
}

impl Watches<'_> {
    fn start<K: Indexed>(&mut self, namespace: Option<&str>, labels: Option<&str>) {
        let source = ListWatch::<K> {
            client: self.client.clone(),
            namespace: namespace.map(str::to_owned),
            labels: labels.map(str::to_owned),
            fields: None,
            largest: K::LARGEST,
            lasts: LASTS,
            turns: self.turns.clone(),
            kind: PhantomData,
        };
        self.synced.one_more();
        let mut sink = Sink {
            index: Arc::clone(self.index),
            queue: Arc::clone(self.queue),
            synced: Arc::clone(self.synced),
            pulse: self.heartbeats.of_watch(&K::kind(&()), namespace, source.longest_silence()),
            feed: Feed::new(namespace),
            has_synced: false,
        };
        self.tasks.spawn(source.follow(move |event| sink.take::<K>(event)));
    }
}

/// Where the events of one watch go.
struct Sink {
    index: Arc<Index>,
    queue: Arc<Queue>,
    synced: Arc<Synced>,
    pulse: Pulse,
    feed: Feed,
    has_synced: bool,
}

impl Sink {
    fn take<K: Indexed>(&mut self, event: Event<K>) -> Next {
        self.pulse.beat();
        match &event {
            Event::Failed(error) => {
                tracing::warn!(kind = %K::kind(&()), "the watch failed; reconnecting: {error}");
            }
            Event::Applied(Err(unreadable)) | Event::Listed(Err(unreadable)) => tell(unreadable),
            _ => {}
        }
        let heard = self.feed.take(&self.index, event);
        self.queue.push(heard.work);
        if heard.is_complete && !std::mem::replace(&mut self.has_synced, true) {
            self.synced.one_done();
        }
        if heard.missed { Next::ListAgain } else { Next::GoOn }
    }
}

fn tell(unreadable: &Unreadable) {
    let Unreadable { kind, meta, why, .. } = unreadable;
    let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
    tracing::warn!(
        namespace,
        "{kind} {} cannot be read: {why}; its cluster is left as it is",
        name.unwrap_or_default()
    );
}
