//! What is measured, put together: an API server with everything installed, and on it, or not yet, the operator.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use kube::Client;
use tokio::time::{Instant, sleep, timeout};

use crate::audit::AuditLog;
use crate::clusters::{self, NODES, Quickstart};
use crate::control_plane::ControlPlane;
use crate::install;
use crate::operator::Operator;
use crate::pods::Pods;
use crate::requests::Requests;
use crate::usage::Memory;

/// How long an operator must have asked for nothing to count as settled.
const QUIET: Duration = Duration::from_secs(2);
/// How long settling may take, however many clusters there are.
const SETTLE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the pods of a cluster may take to appear, and how much longer with every further cluster.
const PODS: Duration = Duration::from_secs(60);
const PODS_OF_ONE_MORE: Duration = Duration::from_secs(2);

/// The programs that are run.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    /// etcd, kube-apiserver and more in one.
    pub(crate) kubernetes: PathBuf,
    pub(crate) operator: PathBuf,
}

/// An API server with everything installed, and no operator. Dropping it ends it and removes its files.
pub(crate) struct Stage {
    pods: Pods,
    audit: AuditLog,
    quickstart: Quickstart,
    client: Client,
    kubeconfig: PathBuf,
    operator: PathBuf,
    control_plane: ControlPlane,
}

/// The same, with the operator, which is ended first.
pub(crate) struct Running {
    operator: Operator,
    stage: Stage,
}

/// What it took to make clusters.
#[derive(Debug)]
pub(crate) struct Applied {
    /// From before the first request to the last pod seen.
    pub(crate) pods_created: Duration,
    /// What the operator used until it had settled.
    pub(crate) cpu: Duration,
    /// What the API server and its store used until then: for the operator's requests, our own, and all watches.
    pub(crate) api_cpu: Duration,
    /// What the operator asked for until it had settled, but for its lease.
    pub(crate) requests: Requests,
}

/// What an operator does that has nothing to do.
#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) cpu: Duration,
    pub(crate) leases: Requests,
    pub(crate) others: Requests,
}

impl Stage {
    pub(crate) async fn prepare(programs: &Programs) -> Result<Self> {
        let mut control_plane = ControlPlane::start(&programs.kubernetes, &install::operator_user()).await?;
        let client = control_plane.client().await?;
        let kubeconfig = install::install(&control_plane, &client).await?;
        clusters::create_namespace(&client).await?;
        control_plane.await_idle().await?;
        Ok(Self {
            pods: Pods::watch(&client, clusters::NAMESPACE),
            audit: AuditLog::open(&control_plane.audit_log())?,
            quickstart: Quickstart::read()?,
            client,
            kubeconfig,
            operator: programs.operator.clone(),
            control_plane,
        })
    }

    /// Starts the operator. Returns when it is ready, with the time that took.
    pub(crate) async fn start(self) -> Result<(Running, Duration)> {
        let logs = self.control_plane.directory();
        let (operator, took) = Operator::start(&self.operator, &self.kubeconfig, logs).await?;
        Ok((Running { operator, stage: self }, took))
    }
}

impl Running {
    pub(crate) async fn stop(self) -> Result<Stage> {
        self.operator.stop().await?;
        Ok(self.stage)
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        self.operator.memory()
    }

    /// Waits until the operator leads, has nothing to do and asks for nothing. Returns what it asked for until then.
    pub(crate) async fn settle(&mut self) -> Result<Requests> {
        let (deadline, mut quiet_since) = (Instant::now() + SETTLE, Instant::now());
        let (mut all, mut last) = (Requests::default(), Requests::default());
        loop {
            let new = self.stage.audit.read_new()?.without_leases();
            if new.total() > 0 || !self.operator.has_nothing_to_do().await? {
                quiet_since = Instant::now();
            }
            if quiet_since.elapsed() >= QUIET {
                return Ok(all);
            }
            if Instant::now() > deadline {
                let words = self.operator.last_words();
                bail!(
                    "the operator does not come to rest within {} s; it last asked for {last:?} and said:\n{words}",
                    SETTLE.as_secs()
                );
            }
            if new.total() > 0 {
                last = new.clone();
            }
            all.add(new);
            sleep(LOOK_EVERY).await;
        }
    }

    /// Applies clusters by number, all at once, and waits for their pods and then for rest.
    pub(crate) async fn apply(&mut self, numbers: RangeInclusive<usize>) -> Result<Applied> {
        let clusters = numbers.clone().count();
        let pods = self.stage.pods.count() + clusters * NODES;
        let patience = PODS + PODS_OF_ONE_MORE * u32::try_from(clusters)?;
        let (cpu, api_cpu) = (self.operator.cpu()?, self.stage.control_plane.cpu()?);
        let began = Instant::now();
        let Stage { quickstart, client, pods: seen, .. } = &mut self.stage;
        let both = async { futures::try_join!(quickstart.apply(client, numbers), seen.reach(pods)) };
        let Ok(done) = timeout(patience, both).await else {
            let (seen, words) = (self.stage.pods.count(), self.operator.last_words());
            bail!(
                "only {seen} of {pods} pods are there after {} s; the operator's last words:\n{words}",
                patience.as_secs()
            );
        };
        done?;
        let pods_created = began.elapsed();
        let requests = self.settle().await?;
        Ok(Applied {
            pods_created,
            cpu: self.operator.cpu()? - cpu,
            api_cpu: self.stage.control_plane.cpu()? - api_cpu,
            requests,
        })
    }

    /// Watches a settled operator do nothing.
    pub(crate) async fn idle(&mut self, time: Duration) -> Result<Idle> {
        self.stage.audit.read_new()?;
        let cpu = self.operator.cpu()?;
        sleep(time).await;
        let (leases, others) = self.stage.audit.read_new()?.split_leases();
        Ok(Idle { cpu: self.operator.cpu()? - cpu, leases, others })
    }
}
