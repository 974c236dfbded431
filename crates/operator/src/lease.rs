//! Who acts, when several replicas run: the one that holds the Lease.
//!
//! Whether a lease has run out is judged by how long *this* process has seen it unchanged, never by comparing
//! clocks of different machines.
//!
//! Whoever holds it counts from when it *asked* to renew it, and begins no call that could last longer than the lease; whoever
//! waits for it counts from when it *saw* it, which is later. So the calls of one have ended before the other begins.

mod leadership;

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::heartbeats::{Heartbeats, Part};
use crate::settings::LeaseSettings;

pub(crate) use leadership::Leadership;

/// How long one look at the lease may take, reading and writing.
const ATTEMPT: Duration = Duration::from_secs(5);

/// What was last seen of the lease of another, and since when it has looked like that.
struct Observed {
    version: Option<String>,
    since: Instant,
}

/// What came of an attempt to hold the lease.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    /// It is ours.
    Ours,
    /// It is this one's.
    Others(String),
    /// It was written by somebody meanwhile. Only another look can tell by whom.
    Disturbed,
}

/// One replica's side of the election.
pub(crate) struct Election {
    api: Api<Lease>,
    settings: LeaseSettings,
    heartbeats: Arc<Heartbeats>,
    /// Our own lease, as we wrote it last.
    held: Option<Lease>,
    observed: Option<Observed>,
}

impl std::fmt::Debug for Election {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Election").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Election {
    /// `client` must not retry by itself: a late success is worse than a failure here.
    pub(crate) fn new(client: Client, settings: LeaseSettings, heartbeats: Arc<Heartbeats>) -> Self {
        let api = match &settings.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::default_namespaced(client),
        };
        Self { api, settings, heartbeats, held: None, observed: None }
    }

    /// Waits until this process leads.
    pub(crate) async fn win(&mut self, leadership: &Leadership) {
        loop {
            self.heartbeats.beat(Part::Lease);
            let asked = leadership.now();
            match in_time(self.take()).await {
                Ok(Attempt::Ours) => {
                    leadership.extend(asked, &self.settings);
                    return;
                }
                Ok(Attempt::Others(_) | Attempt::Disturbed) => {}
                Err(error) => tracing::warn!(%error, "could not look at the lease '{}'", self.settings.name),
            }
            tokio::time::sleep(self.settings.look_period()).await;
        }
    }

    /// Keeps the lease until `stop`. Ends with an error when it was lost.
    pub(crate) async fn keep(
        &mut self,
        leadership: &Leadership,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        let mut pause = self.settings.renew_period();
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
            self.heartbeats.beat(Part::Lease);
            let asked = leadership.now();
            let why = match in_time(self.renew()).await {
                Ok(Attempt::Ours) => {
                    leadership.extend(asked, &self.settings);
                    pause = self.settings.renew_period();
                    continue;
                }
                Ok(Attempt::Others(other)) => {
                    leadership.end();
                    bail!("{other} took the lease '{}'", self.settings.name);
                }
                Ok(Attempt::Disturbed) => anyhow::anyhow!("somebody else writes it at the same time"),
                Err(error) => error,
            };
            if !leadership.holds() {
                leadership.end();
                bail!("could not renew the lease '{}' in time: {why}", self.settings.name);
            }
            tracing::warn!(error = %why, "could not renew the lease, trying again");
            pause = self.settings.retry_period;
        }
    }

    /// Gives the lease back, so that another replica need not wait for it to run out. Nothing may be under way any more that
    /// relies on it.
    pub(crate) async fn release(&mut self, leadership: &Leadership) {
        leadership.end();
        match in_time(self.give_back()).await {
            Ok(()) => tracing::info!("gave the lease back"),
            Err(error) => tracing::warn!(%error, "could not give the lease back; it runs out by itself"),
        }
    }

    async fn give_back(&mut self) -> Result<(), kube::Error> {
        let mut lease = self.api.get(&self.settings.name).await?;
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() == Some(&self.settings.identity) {
            spec.holder_identity = None;
            self.api.replace(&self.settings.name, &PostParams::default(), &lease).await?;
        }
        Ok(())
    }

    /// Renews the lease by one request, as long as nobody else touches it. Whoever does has not taken it yet: who holds it is
    /// read then, and only if that is another it is lost.
    async fn renew(&mut self) -> Result<Attempt, kube::Error> {
        if let Some(held) = self.held.clone() {
            match self.write(self.taken(held)).await? {
                Attempt::Ours => return Ok(Attempt::Ours),
                // An earlier request of ours may have arrived after all.
                _ => self.held = None,
            }
        }
        let Some(found) = self.api.get_opt(&self.settings.name).await? else { return self.create().await };
        match holder(&found) {
            other if !other.is_empty() && other != self.settings.identity => {
                Ok(Attempt::Others(other.to_owned()))
            }
            _ => self.write(self.taken(found)).await,
        }
    }

    /// Takes the lease, if it is ours to take.
    async fn take(&mut self) -> Result<Attempt, kube::Error> {
        let Some(found) = self.api.get_opt(&self.settings.name).await? else { return self.create().await };
        if !self.may_take(&found) {
            return Ok(Attempt::Others(holder(&found).to_owned()));
        }
        self.write(self.taken(found)).await
    }

    async fn create(&mut self) -> Result<Attempt, kube::Error> {
        let new = self.new_lease();
        let created = self.api.create(&PostParams::default(), &new).await;
        self.keep_what_was_written(created)
    }

    /// Writes the lease in place of the one that was read.
    async fn write(&mut self, lease: Lease) -> Result<Attempt, kube::Error> {
        let written = self.api.replace(&self.settings.name, &PostParams::default(), &lease).await;
        self.keep_what_was_written(written)
    }

    fn keep_what_was_written(&mut self, written: Result<Lease, kube::Error>) -> Result<Attempt, kube::Error> {
        match written {
            Ok(lease) => {
                self.held = Some(lease);
                Ok(Attempt::Ours)
            }
            // Somebody else was faster, or removed it: that is an answer, not a failure.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Attempt::Disturbed),
            Err(error) => Err(error),
        }
    }

    fn may_take(&mut self, found: &Lease) -> bool {
        let holder = holder(found);
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

/// Who holds it; nobody, when empty.
fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

fn duration_of(lease: &Lease) -> Option<Duration> {
    let seconds = lease.spec.as_ref()?.lease_duration_seconds?;
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

async fn in_time<T>(attempt: impl Future<Output = Result<T, kube::Error>>) -> anyhow::Result<T> {
    match tokio::time::timeout(ATTEMPT, attempt).await {
        Ok(outcome) => Ok(outcome?),
        Err(_) => bail!("no answer from the API server within {} s", ATTEMPT.as_secs()),
    }
}

#[cfg(test)]
mod tests;
