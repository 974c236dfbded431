//! How often a leader dies because a voter is removed.
//!
//! The leader sends its voters heartbeats (BeginQuorumEpoch). When the answer of one arrives that was removed in the meantime,
//! the leader's process ends: "Unexpected acknowledgement from non-voter". Up to Kafka 4.1 every voter gets a heartbeat in each half
//! of `controller.quorum.fetch.timeout.ms`; since 4.2 only one that did not fetch for so long.
//!
//! `KARST_REMOVALS` is how many are done of voters of which nothing is wrong (100 is usual). Fewer are done of voters that are stalled for
//! more than a second: at once, and as Karst does it. `KARST_KAFKA_HOME` runs it here, with the Kafka that is there. How many leaders
//! die depends on how long answers take, so on what else the machine has to do.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use karst_kafka::{
    Admin, Bootstrap, ClientConfig, DirectoryId, Error, ErrorCode, Listener, NodeId, Quorum, ReplicaState,
};
use tokio::time::sleep;

use crate::machine::{Machine, SETTLES, on_a_machine};

const NODES: std::ops::RangeInclusive<i32> = 1..=4;
const FOUNDERS: std::ops::RangeInclusive<i32> = 1..=3;
const USUAL: u32 = 100;
/// After so long the leader sends heartbeats to a voter that is stalled.
const STALLED: Duration = Duration::from_millis(1_200);
/// Half of the time within which a follower must fetch.
const KEEPS_UP: i64 = 1_000;
/// What a leader says that dies of this.
const LAST_WORDS: &str = "Unexpected acknowledgement from non-voter";
/// A leader waits for no answer any more after this time (`controller.quorum.request.timeout.ms`).
const ANSWERED: Duration = Duration::from_secs(2);

#[tokio::test]
async fn removals_of_voters() -> Result<()> {
    on_a_machine("removals-of-voters", async |machine, tell| {
        let mut real = Real { machine, running: BTreeSet::new() };
        let done = real.begin_and_remove(removals()?, tell).await;
        for node in real.running.clone() {
            machine.end(node, "KILL").await?;
        }
        done
    })
    .await
}

fn removals() -> Result<u32> {
    match std::env::var("KARST_REMOVALS") {
        Ok(many) => many.parse().with_context(|| format!("KARST_REMOVALS={many} is no number")),
        Err(_) => Ok(USUAL),
    }
}

/// When a voter is removed.
#[derive(Debug, Clone, Copy)]
enum When {
    AtOnce,
    /// While it is stalled.
    Stalled,
    /// Not before it keeps up after a stall, as Karst does it.
    KeepsUpAgain,
}

/// Four real controllers, of which three or four vote.
struct Real<'a> {
    machine: &'a Machine,
    running: BTreeSet<i32>,
}

impl Real<'_> {
    async fn begin_and_remove(&mut self, removals: u32, tell: &dyn Fn(String)) -> Result<()> {
        self.begin().await?;
        self.remove_many(removals, When::AtOnce, tell).await?;
        self.remove_many(removals / 5, When::Stalled, tell).await?;
        self.remove_many(removals / 5, When::KeepsUpAgain, tell).await
    }

    async fn remove_many(&mut self, removals: u32, when: When, tell: &dyn Fn(String)) -> Result<()> {
        let (mut deaths, mut longest) = (0, Duration::ZERO);
        for removal in 0..removals {
            self.make_all_vote().await?;
            // Heartbeats come in a rhythm. Each removal comes at another point of it.
            sleep(Duration::from_millis(u64::from(removal) * 618 % 1000)).await;
            let quorum = self.quorum().await?;
            let leaves = follower(&quorum, removal).context("nobody can leave")?;
            let stall = Duration::from_millis(1_300 + u64::from(removal) * 137 % 500);
            let began = self.remove_when(when, &leaves, stall).await?;
            let Some(outage) = self.outage(began).await? else { continue };
            longest = longest.max(outage);
            deaths += 1;
            tell(format!(
                "removal {removal}, of {}: the leader {} died, and another led after {} ms",
                leaves.id.0,
                quorum.leader.0,
                outage.as_millis()
            ));
        }
        tell(format!(
            "{removals} removals of voters ({when:?}), {deaths} leaders died, longest time without one {} ms",
            longest.as_millis()
        ));
        Ok(())
    }

    /// Removes a voter, and tells when that began.
    async fn remove_when(&self, when: When, leaves: &ReplicaState, stall: Duration) -> Result<Instant> {
        let node = leaves.id.0;
        match when {
            When::AtOnce => {
                let began = Instant::now();
                self.remove(leaves).await.map(|()| began)
            }
            When::Stalled => {
                self.machine.signal(node, "STOP").await?;
                sleep(stall).await;
                let began = Instant::now();
                let removed = self.remove(leaves).await;
                self.machine.signal(node, "CONT").await?;
                removed.map(|()| began)
            }
            When::KeepsUpAgain => {
                self.machine.signal(node, "STOP").await?;
                let goes_on = async {
                    sleep(stall).await;
                    self.machine.signal(node, "CONT").await
                };
                let waits = async {
                    sleep(STALLED).await;
                    self.until_it_keeps_up(leaves).await
                };
                let (goes_on, waits) = futures::join!(goes_on, waits);
                goes_on.and(waits)?;
                let began = Instant::now();
                self.remove(leaves).await.map(|()| began)
            }
        }
    }

    /// Waits until an answer can come no more. Who died of one starts again, and this is how long nobody led.
    async fn outage(&self, began: Instant) -> Result<Option<Duration>> {
        while began.elapsed() < ANSWERED {
            for node in &self.running {
                if self.machine.is_running(*node).await? {
                    continue;
                }
                let said = self.machine.last_words(*node).await?;
                ensure!(said.contains(LAST_WORDS), "node {node} died of something else: {said}");
                let outage = self.until_led_by_another(NodeId(*node), began).await?;
                self.machine.start(*node).await?;
                return Ok(Some(outage));
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(None)
    }

    fn admin(&self) -> Admin {
        let endpoints = self.running.iter().map(|node| self.machine.endpoint(*node)).collect();
        let patience = Duration::from_secs(2);
        let config =
            ClientConfig { connect_timeout: patience, request_timeout: patience, ..ClientConfig::default() };
        Admin::new(Bootstrap::Controllers(endpoints), config)
    }

    async fn begin(&mut self) -> Result<()> {
        let founders: Vec<_> = FOUNDERS
            .map(|node| format!("{node}@{}:{}", self.machine.endpoint(node), directory(node)))
            .collect();
        for node in NODES {
            let option = if FOUNDERS.contains(&node) {
                format!("--initial-controllers={}", founders.join(","))
            } else {
                "--no-initial-controllers".to_owned()
            };
            self.machine.format(node, &self.settings(node), &option).await?;
        }
        for node in NODES {
            self.machine.start(node).await?;
            self.running.insert(node);
        }
        self.quorum().await.map(drop)
    }

    fn settings(&self, node: i32) -> String {
        let endpoint = self.machine.endpoint(node);
        let known: Vec<_> = NODES.map(|one| self.machine.endpoint(one).to_string()).collect();
        format!(
            "node.id={node}\nprocess.roles=controller\ncontroller.listener.names=CONTROLLER\n\
             listeners=CONTROLLER://0.0.0.0:{}\nadvertised.listeners=CONTROLLER://{endpoint}\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT\nlog.dirs={}/{node}\n\
             controller.quorum.bootstrap.servers={}\n",
            endpoint.port,
            self.machine.scratch,
            known.join(",")
        )
    }

    /// What a leader says, once there is one.
    async fn quorum(&self) -> Result<Quorum> {
        let (admin, until) = (self.admin(), Instant::now() + SETTLES);
        loop {
            match admin.describe_quorum().await {
                Ok(quorum) => return Ok(quorum),
                Err(error) => ensure!(Instant::now() < until, "no leader: {error}"),
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn make_all_vote(&self) -> Result<()> {
        let (admin, until) = (self.admin(), Instant::now() + SETTLES);
        loop {
            let quorum = self.quorum().await?;
            let votes = |node: i32| quorum.voters.iter().any(|voter| voter.id.0 == node);
            let joins: Vec<i32> = NODES.filter(|node| !votes(*node)).collect();
            if joins.is_empty() && quorum.voters.iter().all(|voter| keeps_up(&quorum, voter)) {
                return Ok(());
            }
            ensure!(Instant::now() < until, "{joins:?} do not become voters: {quorum:?}");
            for node in joins {
                let observer = quorum.observers.iter().find(|one| one.id.0 == node);
                let Some(directory) = observer.and_then(|one| one.directory) else { continue };
                let endpoint = self.machine.endpoint(node);
                let listener = Listener { name: "CONTROLLER".to_owned(), endpoint };
                // What became of it is seen next.
                drop(admin.add_voter(None, NodeId(node), directory, &[listener]).await);
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Kafka sends no heartbeats to such a voter, since 4.2.
    async fn until_it_keeps_up(&self, leaves: &ReplicaState) -> Result<()> {
        let until = Instant::now() + SETTLES;
        loop {
            let quorum = self.quorum().await?;
            let voter = quorum.voters.iter().find(|voter| voter.id == leaves.id);
            if voter.is_some_and(|voter| keeps_up(&quorum, voter)) {
                return Ok(());
            }
            ensure!(Instant::now() < until, "node {} does not keep up: {quorum:?}", leaves.id.0);
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn remove(&self, voter: &ReplicaState) -> Result<()> {
        let directory: DirectoryId = voter.directory.context("a dynamic quorum knows directories")?;
        let (admin, until) = (self.admin(), Instant::now() + SETTLES);
        loop {
            match admin.remove_voter(None, voter.id, directory).await {
                Ok(()) | Err(Error::Kafka { code: ErrorCode::VoterNotFound, .. }) => return Ok(()),
                Err(error) if Instant::now() > until => bail!("node {} stays: {error}", voter.id.0),
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    }

    async fn until_led_by_another(&self, dead: NodeId, began: Instant) -> Result<Duration> {
        loop {
            if self.quorum().await?.leader != dead {
                return Ok(began.elapsed());
            }
            ensure!(began.elapsed() < SETTLES, "nobody leads but the one that died");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

fn directory(node: i32) -> String {
    karst_sim::conformance::founder(node).to_string()
}

/// Had it everything lately, by the leader's clock?
fn keeps_up(quorum: &Quorum, voter: &ReplicaState) -> bool {
    let now = quorum.voters.iter().filter_map(|voter| voter.last_caught_up).max();
    voter.last_caught_up.zip(now).is_some_and(|(then, now)| then > 0 && now - then < KEEPS_UP)
}

/// A voter that does not lead, another one each time.
fn follower(quorum: &Quorum, turn: u32) -> Option<ReplicaState> {
    let mut followers: Vec<_> = quorum.voters.iter().filter(|voter| voter.id != quorum.leader).collect();
    followers.sort_by_key(|voter| voter.id.0);
    let index = usize::try_from(turn).ok()?.checked_rem(followers.len())?;
    followers.get(index).map(|voter| (*voter).clone())
}
