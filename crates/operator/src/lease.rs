//! Who acts, when several replicas run: the one that holds the Lease.
//!
//! Whether a lease has run out is judged by how long *this* process has seen it unchanged, never by comparing
//! clocks of different machines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::bail;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::settings::LeaseSettings;

/// Whether this process may act, as a time until which it may.
#[derive(Debug)]
pub(crate) struct Leadership {
    start: Instant,
    until_ms: AtomicU64,
}

impl Leadership {
    /// Not the leader yet.
    pub(crate) fn none() -> Self {
        Self { start: Instant::now(), until_ms: AtomicU64::new(0) }
    }

    /// The only replica there is.
    pub(crate) fn always() -> Self {
        Self { start: Instant::now(), until_ms: AtomicU64::new(u64::MAX) }
    }

    /// May this process act now?
    pub(crate) fn holds(&self) -> bool {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        now < self.until_ms.load(Ordering::Acquire)
    }

    fn extend(&self, until: Instant) {
        let until = u64::try_from(until.duration_since(self.start).as_millis()).unwrap_or(u64::MAX);
        self.until_ms.store(until, Ordering::Release);
    }

    fn end(&self) {
        self.until_ms.store(0, Ordering::Release);
    }
}

/// What was last seen of the lease, and since when it has looked like that.
struct Observed {
    version: Option<String>,
    since: Instant,
}

/// One replica's side of the election.
pub(crate) struct Election {
    api: Api<Lease>,
    settings: LeaseSettings,
    observed: Option<Observed>,
}

impl std::fmt::Debug for Election {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Election").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Election {
    /// `client` must not retry by itself: a late success is worse than a failure here.
    pub(crate) fn new(client: Client, settings: LeaseSettings) -> Self {
        let api = match &settings.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::default_namespaced(client),
        };
        Self { api, settings, observed: None }
    }

    /// Waits until this process leads.
    pub(crate) async fn win(&mut self, leadership: &Leadership) {
        loop {
            let asked = Instant::now();
            match self.attempt().await {
                Ok(true) => {
                    leadership.extend(asked + self.settings.renew_deadline);
                    return;
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "could not look at the lease '{}'", self.settings.name),
            }
            tokio::time::sleep(self.settings.retry_period).await;
        }
    }

    /// Keeps the lease until `stop`, then gives it back. Ends with an error when it was lost.
    pub(crate) async fn keep(
        &mut self,
        leadership: &Leadership,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(self.settings.retry_period) => {}
            }
            let asked = Instant::now();
            match self.attempt().await {
                Ok(true) => {
                    renewed = asked;
                    leadership.extend(asked + self.settings.renew_deadline);
                }
                Ok(false) => {
                    leadership.end();
                    bail!("another replica took the lease '{}'", self.settings.name);
                }
                Err(error) if renewed.elapsed() < self.settings.renew_deadline => {
                    tracing::warn!(%error, "could not renew the lease, trying again");
                }
                Err(error) => {
                    leadership.end();
                    bail!("could not renew the lease '{}' in time: {error}", self.settings.name);
                }
            }
        }
    }

    /// Gives the lease back, so that another replica need not wait for it to run out.
    pub(crate) async fn release(&mut self, leadership: &Leadership) {
        leadership.end();
        let released = async {
            let mut lease = self.api.get(&self.settings.name).await?;
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() == Some(&self.settings.identity) {
                spec.holder_identity = None;
                self.api.replace(&self.settings.name, &PostParams::default(), &lease).await?;
            }
            Ok::<_, kube::Error>(())
        };
        match tokio::time::timeout(self.settings.retry_period, released).await {
            Ok(Ok(())) => tracing::info!("gave the lease back"),
            Ok(Err(error)) => tracing::warn!(%error, "could not give the lease back; it runs out by itself"),
            Err(_) => tracing::warn!("giving the lease back took too long; it runs out by itself"),
        }
    }

    /// Takes or renews the lease, if it is ours to take.
    async fn attempt(&mut self) -> anyhow::Result<bool> {
        let deadline = self.settings.renew_deadline / 2;
        Ok(tokio::time::timeout(deadline, self.try_attempt()).await??)
    }

    async fn try_attempt(&mut self) -> Result<bool, kube::Error> {
        let Some(found) = self.api.get_opt(&self.settings.name).await? else {
            return conflict_is_no(self.api.create(&PostParams::default(), &self.new_lease()).await);
        };
        if !self.may_take(&found) {
            return Ok(false);
        }
        let taken = self.taken(found);
        conflict_is_no(self.api.replace(&self.settings.name, &PostParams::default(), &taken).await)
    }

    fn may_take(&mut self, found: &Lease) -> bool {
        let holder = found.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
        if holder.is_empty() || holder == self.settings.identity {
            return true;
        }
        let version = found.metadata.resource_version.clone();
        match &self.observed {
            Some(observed) if observed.version == version => {
                observed.since.elapsed() >= duration_of(found).unwrap_or(self.settings.duration)
            }
            _ => {
                self.observed = Some(Observed { version, since: Instant::now() });
                false
            }
        }
    }

    fn taken(&self, mut lease: Lease) -> Lease {
        let now = MicroTime(Timestamp::now());
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&self.settings.identity) {
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default() + 1);
        }
        spec.holder_identity = Some(self.settings.identity.clone());
        spec.lease_duration_seconds = i32::try_from(self.settings.duration.as_secs()).ok();
        spec.renew_time = Some(now);
        lease
    }

    fn new_lease(&self) -> Lease {
        let lease = Lease {
            metadata: ObjectMeta { name: Some(self.settings.name.clone()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec::default()),
        };
        self.taken(lease)
    }
}

fn duration_of(lease: &Lease) -> Option<Duration> {
    let seconds = lease.spec.as_ref()?.lease_duration_seconds?;
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

/// Somebody else was faster: that is an answer, not a failure.
fn conflict_is_no(result: Result<Lease, kube::Error>) -> Result<bool, kube::Error> {
    match result {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}
