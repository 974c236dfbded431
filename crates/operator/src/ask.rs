//! Asking Kafka about itself, and launchers about their nodes.

mod launchers;
mod partitions;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::join_all;
use karst_core::dynamic::{RunningSetting, Source};
use karst_core::ids::{DirectoryId, NodeId};
use karst_core::names::ClusterKey;
use karst_core::plan::Questions;
use karst_core::world::{
    Answer, Answers, LogDirView, Partitions, QuorumView, Registered, RegisteredBroker, Replica, World,
};
use karst_kafka::{
    Admin, Broker, ConfigEntry, ConfigResource, ConfigSource, Endpoint, Error, Hosts, LogDir, Quorum,
    ReplicaState,
};

use crate::clients::{Clients, PATIENCE, Unable, own_hosts};
use crate::silences::{self, Whom};

/// How long the few questions of one kind may take together. Each has a deadline of its own.
const TOGETHER: Duration = PATIENCE.saturating_mul(2);
/// How long it may take to tell of all partitions: of tens of thousands of topics in many questions.
const ALL_PARTITIONS: Duration = Duration::from_secs(40);

/// Why nobody is asked about partitions.
const NOBODY_IS_CURRENT: &str = "no broker is known to have a current view of the metadata: only the leader of the quorum can tell which of them follow it";

/// How many of the partitions in a directory are kept by name. There may be many directories of many brokers.
const NAMED: usize = 10;

/// How many addresses that are not the cluster's are remembered: Kafka may be made to name any number.
const MOST_FOREIGN: usize = 100;

/// What was seen of a quorum.
#[derive(Debug, Clone)]
pub(crate) struct Term {
    /// What its leader said last.
    pub(crate) quorum: QuorumView,
    /// How many records each voter lacked then.
    pub(crate) missing: BTreeMap<NodeId, i64>,
    /// How many times another leader, or another term, was seen.
    pub(crate) changes: u64,
    since: Instant,
}

/// Since when the leader of each quorum has been seen in its term. Kept in memory only: a new process sees for itself.
#[derive(Debug, Default)]
pub(crate) struct Terms(Mutex<HashMap<ClusterKey, Term>>);

impl Terms {
    fn watched(
        &self,
        key: &ClusterKey,
        mut quorum: QuorumView,
        missing: BTreeMap<NodeId, i64>,
    ) -> QuorumView {
        let mut terms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new =
            || Term { quorum: quorum.clone(), missing: BTreeMap::new(), changes: 0, since: Instant::now() };
        let term = terms.entry(key.clone()).or_insert_with(new);
        if (term.quorum.leader, term.quorum.epoch) != (quorum.leader, quorum.epoch) {
            term.since = Instant::now();
            term.changes += 1;
        }
        quorum.stable_for = term.since.elapsed();
        // Nobody looks at its features here.
        term.quorum = QuorumView { features: BTreeMap::new(), ..quorum.clone() };
        term.missing = missing;
        quorum
    }

    /// What is known of all quorums.
    pub(crate) fn all(&self) -> Vec<(ClusterKey, Term)> {
        let terms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        terms.iter().map(|(key, term)| (key.clone(), term.clone())).collect()
    }

    /// A cluster is gone.
    pub(crate) fn forget(&self, key: &ClusterKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

/// Asks what is to be asked, all at once, and adds the answers to those there are.
pub(crate) async fn ask(
    clients: &Clients,
    terms: &Terms,
    world: &World,
    questions: &Questions,
    silences: &silences::Questions<'_>,
    answers: &mut Answers,
) {
    let asker = Asker { clients, terms, world, questions, silences, foreign: Mutex::default() };
    let (launchers, quorum, registered, partitions, of_brokers, of_controllers, log_dirs) = futures::join!(
        launchers::ask(&questions.launchers, silences),
        asker.quorum(),
        asker.registered(),
        asker.partitions(),
        asker.settings_of_brokers(),
        asker.settings_of_controllers(),
        asker.log_dirs(),
    );
    answers.launchers.extend(launchers);
    answers.quorum = quorum.unwrap_or(std::mem::take(&mut answers.quorum));
    answers.registered = registered.unwrap_or(std::mem::take(&mut answers.registered));
    answers.partitions = partitions.unwrap_or(std::mem::take(&mut answers.partitions));
    answers.settings.extend(of_brokers.into_iter().chain(of_controllers));
    answers.log_dirs.extend(log_dirs);
    answers.foreign_hosts.extend(asker.foreign.into_inner().unwrap_or_else(PoisonError::into_inner));
}

/// Asks the quorum once more, about one thing that is about to be changed: what a pass was decided on may be some seconds old.
pub(crate) async fn quorum_now(clients: &Clients, terms: &Terms, world: &World) -> Answer<QuorumView> {
    let admin = match clients.controllers(world, &world.serving_controllers()) {
        Ok(admin) => admin,
        Err(unable) => return Answer::Silent(unable.to_string()),
    };
    let seen = tokio::time::timeout(TOGETHER, quorum(&admin, &own_hosts(world), &mut BTreeSet::new())).await;
    let seen = seen.map(|seen| seen.map(|(view, missing)| terms.watched(&world.key, view, missing)));
    seen.map_or_else(|late| Answer::Silent(late.to_string()), answer)
}

/// What is asked in one round, of whom.
struct Asker<'a> {
    clients: &'a Clients,
    terms: &'a Terms,
    world: &'a World,
    questions: &'a Questions,
    silences: &'a silences::Questions<'a>,
    /// Addresses that Kafka named, and that are not the cluster's.
    foreign: Mutex<BTreeSet<String>>,
}

impl Asker<'_> {
    async fn quorum(&self) -> Option<Answer<QuorumView>> {
        let hosts = &self.questions.quorum;
        if hosts.is_empty() {
            return None;
        }
        let question = async {
            let admin = match self.clients.controllers(self.world, hosts) {
                Ok(admin) => admin,
                Err(unable) => return Answer::Silent(unable.to_string()),
            };
            let mut foreign = BTreeSet::new();
            let seen = quorum(&admin, &own_hosts(self.world), &mut foreign).await;
            self.met(foreign);
            answer(seen.map(|(view, missing)| self.terms.watched(&self.world.key, view, missing)))
        };
        Some(self.silences.ask(Whom::Quorum, TOGETHER, question).await)
    }

    async fn registered(&self) -> Option<Answer<Registered>> {
        if !self.questions.registered {
            return None;
        }
        let question = async {
            let admin = match self.brokers() {
                Ok(admin) => admin,
                Err(unable) => return Answer::Silent(unable.to_string()),
            };
            let mut foreign = BTreeSet::new();
            let seen = registered(&admin, &own_hosts(self.world), &mut foreign).await;
            self.met(foreign);
            answer(seen)
        };
        Some(self.silences.ask(Whom::Brokers, TOGETHER, question).await)
    }

    async fn partitions(&self) -> Option<Answer<Partitions>> {
        if self.questions.partitions_of.is_empty() {
            return None;
        }
        let question = partitions_of(self.clients, self.world, self.questions);
        Some(self.ask_brokers(Whom::Partitions, ALL_PARTITIONS, question).await)
    }

    async fn settings_of_brokers(&self) -> Vec<(NodeId, Answer<Vec<RunningSetting>>)> {
        let (nodes, keys) = (&self.questions.settings_of_brokers, &self.questions.settings);
        join_all(nodes.iter().map(async |node| {
            let question = async { settings(self.brokers(), *node, keys).await };
            (*node, self.ask_brokers(Whom::BrokerSettings(*node), TOGETHER, question).await)
        }))
        .await
    }

    async fn settings_of_controllers(&self) -> Vec<(NodeId, Answer<Vec<RunningSetting>>)> {
        let (nodes, keys) = (&self.questions.settings_of_controllers, &self.questions.settings);
        join_all(nodes.iter().map(async |node| {
            let admin = self.clients.controllers(self.world, &self.questions.controllers);
            let question = async { settings(admin, *node, keys).await };
            (*node, self.silences.ask(Whom::ControllerSettings(*node), TOGETHER, question).await)
        }))
        .await
    }

    /// Only a broker itself knows its directories. One that is silent says nothing about the others.
    async fn log_dirs(&self) -> Vec<(NodeId, Answer<Vec<LogDirView>>)> {
        join_all(self.questions.log_dirs_of.iter().map(async |node| {
            let question = async {
                match self.brokers() {
                    Ok(admin) => answer(log_dirs(&admin, *node).await),
                    Err(unable) => Answer::Silent(unable.to_string()),
                }
            };
            (*node, self.ask_brokers(Whom::LogDirs(*node), TOGETHER, question).await)
        }))
        .await
    }

    fn met(&self, foreign: BTreeSet<String>) {
        self.foreign.lock().unwrap_or_else(PoisonError::into_inner).extend(foreign);
    }

    fn brokers(&self) -> Result<Arc<Admin>, Unable> {
        self.clients.brokers(self.world, &self.questions.brokers)
    }

    /// When no broker says who the brokers are, none of them says anything else.
    async fn ask_brokers<T>(
        &self,
        whom: Whom,
        patience: Duration,
        question: impl Future<Output = Answer<T>>,
    ) -> Answer<T> {
        match self.silences.remembered(Whom::Brokers) {
            Some(why) => Answer::Silent(why),
            None => self.silences.ask(whom, patience, question).await,
        }
    }
}

/// Asks only brokers whose view is current: what one that is cut off from the controllers says of partitions was true once.
async fn partitions_of(clients: &Clients, world: &World, questions: &Questions) -> Answer<Partitions> {
    if questions.current_brokers.is_empty() {
        return Answer::Silent(NOBODY_IS_CURRENT.to_owned());
    }
    match clients.brokers(world, &questions.current_brokers) {
        Ok(admin) => answer(partitions::on(&admin, &questions.partitions_of).await),
        Err(unable) => Answer::Silent(unable.to_string()),
    }
}

/// What a node runs with. Only it itself knows.
async fn settings(
    admin: Result<Arc<Admin>, Unable>,
    node: NodeId,
    keys: &[&str],
) -> Answer<Vec<RunningSetting>> {
    match admin {
        Ok(admin) => answer(node_settings(&admin, node, keys).await),
        Err(unable) => Answer::Silent(unable.to_string()),
    }
}

async fn node_settings(admin: &Admin, node: NodeId, keys: &[&str]) -> Result<Vec<RunningSetting>, Error> {
    let resource = ConfigResource::Broker(karst_kafka::NodeId(node.0));
    let entries = admin.describe_some_configs(resource, keys).await?;
    let setting = |entry: ConfigEntry| RunningSetting {
        source: match entry.source {
            ConfigSource::DynamicDefaultBroker => Source::Cluster,
            ConfigSource::DynamicBroker => Source::Node,
            ConfigSource::StaticBroker => Source::Start,
            _ => Source::Default,
        },
        key: entry.name,
        value: entry.value,
    };
    Ok(entries.into_iter().map(setting).collect())
}

async fn log_dirs(admin: &Admin, node: NodeId) -> Result<Vec<LogDirView>, Error> {
    let dirs = admin.describe_log_dirs(karst_kafka::NodeId(node.0)).await?;
    let view = |dir: LogDir| LogDirView {
        error: dir.error.map(|code| code.to_string()),
        partitions: dir
            .replicas
            .iter()
            .take(NAMED)
            .map(|one| format!("{}-{}", one.topic, one.partition))
            .collect(),
        more: dir.replicas.len().saturating_sub(NAMED),
        path: dir.path,
    };
    Ok(dirs.into_iter().map(view).collect())
}

fn answer<T>(result: Result<T, impl Display>) -> Answer<T> {
    match result {
        Ok(answer) => Answer::Known(answer),
        Err(error) => {
            tracing::debug!(%error, "Kafka did not answer");
            Answer::Silent(error.to_string())
        }
    }
}

async fn quorum(
    admin: &Admin,
    hosts: &Hosts,
    foreign: &mut BTreeSet<String>,
) -> Result<(QuorumView, BTreeMap<NodeId, i64>), Error> {
    let quorum = admin.describe_quorum().await.inspect_err(|error| {
        if let Error::ForeignHost { endpoint } = error {
            foreign.insert(endpoint.to_string());
        }
    })?;
    let is_committed = is_committed(admin, &quorum).await?;
    let features = admin.features().await?.finalized;
    let told = admin.describe_controllers().await?;
    foreign.extend(foreign_hosts(hosts, told.controllers.iter().map(|controller| &controller.endpoint)));
    let view = QuorumView {
        cluster_id: Some(told.cluster_id).filter(|id| !id.is_empty()),
        registered: told.controllers.iter().map(|controller| NodeId(controller.id.0)).collect(),
        leader: NodeId(quorum.leader.0),
        epoch: quorum.leader_epoch,
        stable_for: Duration::ZERO,
        voters: replicas(&quorum, &quorum.voters),
        observers: replicas(&quorum, &quorum.observers),
        is_dynamic: features.get("kraft.version").is_some_and(|level| *level > 0),
        is_committed,
        metadata_level: features.get("metadata.version").copied(),
        features,
    };
    Ok((view, missing(&quorum)))
}

/// How many records each voter lacks. Of a node that is listed twice, with a disk it lost, the one that lacks less is alive.
fn missing(quorum: &Quorum) -> BTreeMap<NodeId, i64> {
    let end =
        quorum.voters.iter().filter(|voter| voter.id == quorum.leader).map(|leader| leader.log_end_offset);
    let Some(end) = end.max() else { return BTreeMap::new() };
    let mut missing = BTreeMap::new();
    for voter in &quorum.voters {
        // A voter that was never heard of has nothing, as far as anybody knows.
        let lacks = end.saturating_sub(voter.log_end_offset.max(0)).max(0);
        let least = missing.entry(NodeId(voter.id.0)).or_insert(lacks);
        *least = lacks.min(*least);
    }
    missing
}

/// The leader tells the newest voter set, committed or not. It is committed when everything is that the leader had then.
async fn is_committed(admin: &Admin, seen: &Quorum) -> Result<bool, Error> {
    let leader = seen.voters.iter().chain(&seen.observers).find(|replica| replica.id == seen.leader);
    let Some(end) = leader.map(|leader| leader.log_end_offset) else { return Ok(false) };
    if seen.high_watermark >= end {
        return Ok(true);
    }
    let later = admin.describe_quorum().await?;
    let same_term = (later.leader, later.leader_epoch) == (seen.leader, seen.leader_epoch);
    Ok(same_term && later.high_watermark >= end)
}

fn replicas(quorum: &Quorum, replicas: &[ReplicaState]) -> Vec<Replica> {
    let all = quorum.voters.iter().chain(&quorum.observers);
    let leader_time =
        all.filter(|replica| replica.id == quorum.leader).find_map(|leader| leader.last_caught_up);
    let behind = |replica: &ReplicaState| {
        let lag = leader_time?.saturating_sub(replica.last_caught_up?);
        Some(Duration::from_millis(u64::try_from(lag).unwrap_or_default()))
    };
    let view = |replica: &ReplicaState| Replica {
        node: NodeId(replica.id.0),
        directory: replica.directory.and_then(|id| id.to_string().parse::<DirectoryId>().ok()),
        takes_part: quorum.takes_part(replica),
        behind: if replica.id == quorum.leader { Some(Duration::ZERO) } else { behind(replica) },
    };
    replicas.iter().map(view).collect()
}

/// Those of the addresses that no pod of the cluster has.
fn foreign_hosts<'a>(
    hosts: &Hosts,
    named: impl Iterator<Item = &'a Endpoint>,
) -> impl Iterator<Item = String> {
    named.filter(|endpoint| !hosts.include(&endpoint.host)).take(MOST_FOREIGN).map(ToString::to_string)
}

async fn registered(
    admin: &Admin,
    hosts: &Hosts,
    foreign: &mut BTreeSet<String>,
) -> Result<Registered, Error> {
    let cluster = admin.describe_cluster().await?;
    foreign.extend(foreign_hosts(hosts, cluster.brokers.iter().map(|broker| &broker.endpoint)));
    let broker = |broker: &Broker| RegisteredBroker { node: NodeId(broker.id.0), fenced: broker.fenced };
    Ok(Registered {
        brokers: cluster.brokers.iter().map(broker).collect(),
        fenced_known: cluster.fenced_known,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_no_pod_has_are_noticed() {
        let hosts = Hosts::Below("c-kafka-brokers.ns.svc.cluster.local".to_owned());
        let own = Endpoint::new("c-nodes-0.c-kafka-brokers.ns.svc.cluster.local", 9091);
        let named = [own, Endpoint::new("169.254.169.254", 80)];
        assert_eq!(foreign_hosts(&hosts, named.iter()).collect::<Vec<_>>(), ["169.254.169.254:80"]);
        let many: Vec<_> = (0..1_000).map(|port| Endpoint::new("evil.example", port)).collect();
        assert_eq!(foreign_hosts(&hosts, many.iter()).count(), MOST_FOREIGN);
    }

    #[test]
    fn a_voter_lacks_what_the_leader_has_and_it_has_not() {
        let voter = |id, log_end_offset| ReplicaState {
            id: karst_kafka::NodeId(id),
            directory: None,
            log_end_offset,
            last_fetch: None,
            last_caught_up: None,
        };
        let quorum = Quorum {
            leader: karst_kafka::NodeId(0),
            leader_epoch: 1,
            high_watermark: 90,
            // Node 2 is listed with the disk it has and with the one it lost; node 3 was never heard of.
            voters: vec![voter(0, 100), voter(1, 93), voter(2, 100), voter(2, 40), voter(3, -1)],
            observers: Vec::new(),
        };
        let found: Vec<_> = missing(&quorum).into_iter().map(|(node, lacks)| (node.0, lacks)).collect();
        assert_eq!(found, [(0, 0), (1, 7), (2, 0), (3, 100)]);
    }
}
