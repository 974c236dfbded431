//! The pods that exist, as seen by a watch of our own.

use std::collections::HashSet;
use std::pin::pin;

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Ends its watch when dropped.
#[derive(Debug)]
pub(crate) struct Pods {
    count: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Pods {
    /// Starts to watch.
    pub(crate) fn watch(client: &Client, namespace: &str) -> Self {
        let (sender, count) = watch::channel(0);
        let task = tokio::spawn(follow(Api::namespaced(client.clone(), namespace), sender));
        Self { count, task }
    }

    pub(crate) fn count(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits until there are so many pods.
    pub(crate) async fn reach(&mut self, count: usize) -> Result<()> {
        self.count.wait_for(|seen| *seen >= count).await.context("the watch on pods ended")?;
        Ok(())
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(api: Api<PartialObjectMeta<Pod>>, count: watch::Sender<usize>) {
    // Names only: the measuring must not cost more than what is measured.
    let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff());
    let mut names = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => names.clear(),
            Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                names.insert(pod.name_any());
            }
            Ok(Event::Delete(pod)) => {
                names.remove(&pod.name_any());
            }
            Ok(Event::InitDone) => {}
            Err(error) => eprintln!("    the watch on pods failed, and starts again: {error}"),
        }
        if count.send(names.len()).is_err() {
            return;
        }
    }
}
