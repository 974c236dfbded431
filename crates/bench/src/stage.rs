//! What is measured, put together: an API server with everything installed, and on it, or not yet, the operator.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::audit::AuditLog;
use crate::clusters::{self, NAMESPACE, NODES, Quickstart};
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
        clusters::create_namespace(&client, NAMESPACE).await?;
        control_plane.await_idle().await?;
        Ok(Self {
            pods: Pods::watch(&client, NAMESPACE),
            audit: AuditLog::open(&control_plane.audit_log())?,
            quickstart: Quickstart::read()?,
            client,
            kubeconfig,
            operator: programs.operator.clone(),
            control_plane,
        })
    }

    /// Starts what removes objects that belong to nobody any more.
    pub(crate) fn start_controllers(&mut self, programs: &Programs) -> Result<()> {
        self.control_plane.start_controllers(&programs.kubernetes)
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

    pub(crate) fn cpu(&self) -> Result<Duration> {
        self.operator.cpu()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.operator.pid()
    }

    pub(crate) fn last_words(&self) -> String {
        self.operator.last_words()
    }

    pub(crate) async fn metrics(&mut self) -> Result<String> {
        self.operator.metrics().await
    }

    /// The administrator's way to the API server.
    pub(crate) fn client(&self) -> &Client {
        &self.stage.client
    }

    /// Fails when anything has ended that should run.
    pub(crate) fn must_run(&mut self) -> Result<()> {
        self.stage.control_plane.must_run()?;
        self.operator.must_run()
    }

    /// Waits until the operator leads, has nothing to do and asks for nothing. Returns what it asked for until then.
    pub(crate) async fn settle(&mut self) -> Result<Requests> {
        self.settle_within(SETTLE).await
    }

    /// The same, for work that takes longer.
    pub(crate) async fn settle_within(&mut self, patience: Duration) -> Result<Requests> {
        let (deadline, mut quiet_since) = (Instant::now() + patience, Instant::now());
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
                    patience.as_secs()
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
        let (cpu, api_cpu) = (self.operator.cpu()?, self.stage.control_plane.cpu()?);
        let pods_created = self.appear(numbers).await?;
        let requests = self.settle().await?;
        Ok(Applied {
            pods_created,
            cpu: self.operator.cpu()? - cpu,
            api_cpu: self.stage.control_plane.cpu()? - api_cpu,
            requests,
        })
    }

    /// Applies clusters by number, all at once, and waits for their pods only. Returns how long that took.
    pub(crate) async fn appear(&mut self, numbers: RangeInclusive<usize>) -> Result<Duration> {
        let clusters = numbers.clone().count();
        let pods = self.stage.pods.count() + clusters * NODES;
        let patience = PODS + PODS_OF_ONE_MORE * u32::try_from(clusters)?;
        let began = Instant::now();
        let Stage { quickstart, client, pods: seen, .. } = &mut self.stage;
        let both =
            async { futures::try_join!(quickstart.apply(client, NAMESPACE, numbers), seen.reach(pods)) };
        let Ok(done) = timeout(patience, both).await else {
            let (seen, words) = (self.stage.pods.count(), self.operator.last_words());
            bail!(
                "only {seen} of {pods} pods are there after {} s; the operator's last words:\n{words}",
                patience.as_secs()
            );
        };
        done?;
        Ok(began.elapsed())
    }

    /// Applies clusters by number in another namespace, and waits for nothing.
    pub(crate) async fn apply_in(&self, namespace: &str, numbers: RangeInclusive<usize>) -> Result<()> {
        self.stage.quickstart.apply(&self.stage.client, namespace, numbers).await
    }

    /// Changes clusters by number, all in the same way, and waits for nothing.
    pub(crate) async fn change_in(
        &self,
        namespace: &str,
        numbers: RangeInclusive<usize>,
        change: &Value,
    ) -> Result<()> {
        clusters::change(&self.stage.client, namespace, numbers, change).await
    }

    /// Waits until a namespace has so many pods.
    pub(crate) async fn until_pods_in(
        &self,
        namespace: &str,
        count: usize,
        patience: Duration,
    ) -> Result<()> {
        let api: Api<Pod> = Api::namespaced(self.stage.client.clone(), namespace);
        let deadline = Instant::now() + patience;
        loop {
            let pods = api.list_metadata(&ListParams::default()).await?.items.len();
            if pods >= count {
                return Ok(());
            }
            if Instant::now() > deadline {
                let words = self.operator.last_words();
                bail!("{namespace} has only {pods} of {count} pods; the operator's last words:\n{words}");
            }
            sleep(LOOK_EVERY * 5).await;
        }
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
