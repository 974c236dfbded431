//! The client: which node is asked what.

mod changes;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;

use crate::calls::{
    ApiVersionsCall, Call, DescribeBrokers, DescribeConfigs, DescribeControllers, DescribeLogDirs,
    DescribeQuorum, DescribeTopicConfigs, DescribeTopicPartitions, DescribeTopics, DescribeVoterListeners,
    FindBroker, FindController, FindLeader, FollowLeader, ListReassignments, Page, QuorumEpoch,
};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::pool::{Attempt, Pool};
use crate::{
    Bootstrap, ClientConfig, ClusterDescription, ConfigEntry, ConfigResource, ControllersDescription,
    DescribedTopic, Endpoint, Features, Listener, LogDir, NodeId, Quorum, Reassignment, Refusal,
    TopicMetadata, TopicSelection,
};

/// How many topics are asked about in one question, where they are named. It keeps a node from being busy with one for long.
const TOPICS_AT_ONCE: usize = 500;
/// How many questions' time a call may take in which many questions are asked one after the other.
const LONGEST_SERIES: u32 = 15;

/// An administrator's view of one Kafka cluster.
///
/// Making one does nothing yet; connections are opened by the first call that needs them, are kept, and are closed when the
/// client is dropped. Calls may run concurrently; those to the same node wait for each other.
#[derive(Debug)]
pub struct Admin {
    bootstrap: Bootstrap,
    pool: Arc<Pool>,
    /// The position of the address to ask first. It stays while that one answers, and moves on when it does not.
    preferred: AtomicUsize,
}

impl Admin {
    #[must_use]
    pub fn new(bootstrap: Bootstrap, config: ClientConfig) -> Self {
        Self { bootstrap, pool: Arc::new(Pool::new(config)), preferred: AtomicUsize::new(0) }
    }

    /// A client of the same cluster that starts from other addresses, over the same connections: to ask only some nodes costs no
    /// connection more.
    #[must_use]
    pub fn starting_from(&self, bootstrap: Bootstrap) -> Self {
        Self { bootstrap, pool: Arc::clone(&self.pool), preferred: AtomicUsize::new(0) }
    }

    /// Closes connections that were not used since then. One that is in use stays; one that is needed again is opened again.
    pub fn close_idle(&self, not_used_since: Instant) {
        self.pool.close_idle(not_used_since);
    }

    /// When each open connection was last used. Those in use right now are left out.
    #[must_use]
    pub fn connections(&self) -> Vec<Instant> {
        self.pool.connections()
    }

    /// The brokers that are registered; with the fenced ones among them where Kafka lists those.
    ///
    /// Brokers answer this from what they know themselves, even while the quorum has no leader. Controllers refuse it.
    pub async fn describe_cluster(&self) -> Result<ClusterDescription, Error> {
        self.ask_any(&DescribeBrokers, self.deadline()).await
    }

    /// The controllers that are registered and the leader of the quorum. Only controllers answer this.
    pub async fn describe_controllers(&self) -> Result<ControllersDescription, Error> {
        self.ask_any(&DescribeControllers, self.deadline()).await
    }

    /// The metadata quorum, as its leader sees it. Brokers pass the question on to the leader; where only controllers are known,
    /// the leader is found first, and once more if it has just lost its office.
    pub async fn describe_quorum(&self) -> Result<Quorum, Error> {
        self.ask_quorum(&DescribeQuorum, self.deadline()).await
    }

    /// The newest epoch that a controller knows of, whether anybody leads in it or not. Other controllers may know a newer one. Only
    /// controllers answer this.
    pub async fn quorum_epoch(&self) -> Result<i32, Error> {
        self.ask_any(&QuorumEpoch, self.deadline()).await
    }

    /// Where the voters can be reached by each other, as the metadata log has it. Kafka before 3.9 does not say.
    pub async fn describe_voter_listeners(&self) -> Result<BTreeMap<NodeId, Vec<Listener>>, Error> {
        self.ask_quorum(&DescribeVoterListeners, self.deadline()).await
    }

    /// Topics and their partitions. A topic that does not exist is an entry with an error, and is not created.
    pub async fn metadata(&self, topics: TopicSelection) -> Result<TopicMetadata, Error> {
        self.ask_any(&DescribeTopics(topics), self.deadline()).await
    }

    /// These topics and their partitions, with the replicas that could lead them. A topic that does not exist is an entry with an
    /// error, and is not created. The answer is in the order of the topics' names.
    ///
    /// Brokers have this since Kafka 3.8; one that has not is [`Error::Unsupported`], and [`Admin::metadata`] tells the rest.
    pub async fn describe_topic_partitions(&self, topics: &[String]) -> Result<Vec<DescribedTopic>, Error> {
        let series = self.series();
        let mut names = topics.to_vec();
        names.sort_unstable();
        names.dedup();
        let (mut described, mut told) = (Vec::with_capacity(names.len()), 0);
        for topics in names.chunks(TOPICS_AT_ONCE) {
            described.extend(self.describe_partitions_of(topics, series, &mut told).await?);
        }
        Ok(described)
    }

    /// Asks page after page, until nothing is left.
    async fn describe_partitions_of(
        &self,
        topics: &[String],
        series: Deadline,
        told: &mut usize,
    ) -> Result<impl Iterator<Item = DescribedTopic> + use<>, Error> {
        let mut described = BTreeMap::new();
        let mut from = None;
        loop {
            let call = DescribeTopicPartitions { topics, from, told: *told };
            let Page { topics, next } = self.ask_any(&call, self.one_of(series)).await?;
            for topic in topics {
                *told += topic.partitions.len();
                add_page(&mut described, topic);
            }
            if next.is_none() {
                break;
            }
            from = next;
        }
        Ok(described.into_values())
    }

    /// The configuration of a topic, asked of any node, or of a node, asked of that node.
    pub async fn describe_configs(&self, resource: ConfigResource) -> Result<Vec<ConfigEntry>, Error> {
        self.describe_some_configs(resource, &[]).await
    }

    /// The same, but only the entries called `keys`.
    pub async fn describe_some_configs(
        &self,
        resource: ConfigResource,
        keys: &[&str],
    ) -> Result<Vec<ConfigEntry>, Error> {
        let deadline = self.deadline();
        let node = match &resource {
            ConfigResource::Broker(id) | ConfigResource::BrokerLogger(id) => Some(*id),
            ConfigResource::BrokerDefaults | ConfigResource::Topic(_) => None,
        };
        let call = DescribeConfigs { resource, keys };
        match node {
            Some(id) => self.ask(&self.locate(id, deadline).await?, &call, deadline).await,
            None => self.ask_any(&call, deadline).await,
        }
    }

    /// The entries called `keys` of the configuration of each of `topics`, or all entries if no key is named. A topic that does
    /// not exist, or may not be read, has its own refusal.
    pub async fn describe_topic_configs(
        &self,
        topics: &[String],
        keys: &[&str],
    ) -> Result<Vec<(String, Result<Vec<ConfigEntry>, Refusal>)>, Error> {
        let series = self.series();
        let mut described = Vec::with_capacity(topics.len());
        for topics in topics.chunks(TOPICS_AT_ONCE) {
            let call = DescribeTopicConfigs { topics, keys };
            described.extend(self.ask_any(&call, self.one_of(series)).await?);
        }
        Ok(described)
    }

    /// Partitions that are on their way from some brokers to others.
    pub async fn list_partition_reassignments(&self) -> Result<Vec<Reassignment>, Error> {
        self.ask_quorum(&ListReassignments, self.deadline()).await
    }

    /// The directories of a broker, and what is in them. Only the broker itself knows, so it is asked itself; controllers do not
    /// tell where brokers are.
    pub async fn describe_log_dirs(&self, broker: NodeId) -> Result<Vec<LogDir>, Error> {
        let deadline = self.deadline();
        self.ask(&self.locate(broker, deadline).await?, &DescribeLogDirs, deadline).await
    }

    /// The features that a node supports and that the cluster has finalized.
    pub async fn features(&self) -> Result<Features, Error> {
        self.ask_any(&ApiVersionsCall, self.deadline()).await
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.pool.config().request_timeout)
    }

    /// When a call must have ended in which many questions are asked.
    fn series(&self) -> Deadline {
        Deadline::after(self.pool.config().request_timeout.saturating_mul(LONGEST_SERIES))
    }

    /// The deadline of the next question of a series.
    fn one_of(&self, series: Deadline) -> Deadline {
        series.no_longer_than(self.pool.config().request_timeout)
    }

    /// Asks the addresses in turn, the one that answered last first, until one answers. A refusal is an answer too,
    /// and so, for a change, is every failure that leaves open whether it was made.
    async fn ask_any<C: Call>(&self, call: &C, deadline: Deadline) -> Result<C::Answer, Error> {
        let endpoints = self.bootstrap.endpoints();
        let first = self.preferred.load(Ordering::Relaxed);
        let mut failures = Vec::new();
        for tried in 0..endpoints.len() {
            let position = (first + tried) % endpoints.len();
            let endpoint = &endpoints[position];
            let attempt = Attempt { deadline, candidates: endpoints.len() - tried };
            match self.pool.ask(endpoint, call, attempt).await {
                Err(error) if error.is_no_answer() && !error.may_have_happened() => {
                    tracing::debug!(%error, "no answer from a Kafka node");
                    self.preferred.store(position + 1, Ordering::Relaxed);
                    failures.push(error);
                }
                outcome => return outcome,
            }
            if deadline.has_passed() {
                break;
            }
        }
        Err(Error::from_attempts(failures))
    }

    /// Asks one given node.
    async fn ask<C: Call>(
        &self,
        endpoint: &Endpoint,
        call: &C,
        deadline: Deadline,
    ) -> Result<C::Answer, Error> {
        self.pool.ask(endpoint, call, Attempt { deadline, candidates: 1 }).await
    }

    /// Asks whoever leads the quorum. A broker finds the leader itself.
    async fn ask_quorum<C: Call>(&self, call: &C, deadline: Deadline) -> Result<C::Answer, Error> {
        match &self.bootstrap {
            Bootstrap::Brokers(_) => self.ask_any(call, deadline).await,
            Bootstrap::Controllers(_) => match self.ask_leader(call, deadline).await {
                Err(error) if error.is_not_leader() => {
                    // Whoever named that leader is behind; another controller may know better.
                    self.prefer_another();
                    if C::API.is_change() { Err(error) } else { self.ask_leader(call, deadline).await }
                }
                outcome => outcome,
            },
        }
    }

    /// Asks the leader of the quorum, wherever it is by the word of a controller.
    async fn ask_leader<C: Call>(&self, call: &C, deadline: Deadline) -> Result<C::Answer, Error> {
        let leader = match self.ask_any(&FindLeader, deadline).await {
            // It may lead without having registered. Then only the quorum itself knows of it.
            Err(error) if error.is_lost_leader() => {
                self.ask_any(&FollowLeader, deadline).await.or(Err(error))?
            }
            found => found?,
        };
        self.ask(&leader, call, deadline).await
    }

    /// Where a given node listens.
    async fn locate(&self, node: NodeId, deadline: Deadline) -> Result<Endpoint, Error> {
        match &self.bootstrap {
            Bootstrap::Brokers(_) => self.ask_any(&FindBroker(node), deadline).await,
            Bootstrap::Controllers(_) => match self.ask_any(&FindController(node), deadline).await {
                Err(error) if error.is_unknown_node() => self.locate_voter(node, deadline).await.ok_or(error),
                outcome => outcome,
            },
        }
    }

    /// Where a controller listens that votes without having registered.
    async fn locate_voter(&self, node: NodeId, deadline: Deadline) -> Option<Endpoint> {
        let mut voters = self.ask_leader(&DescribeVoterListeners, deadline).await.ok()?;
        voters.remove(&node)?.into_iter().next().map(|listener| listener.endpoint)
    }

    /// Makes the next call start with another address than this one did.
    fn prefer_another(&self) {
        self.preferred.fetch_add(1, Ordering::Relaxed);
    }
}

/// Adds what one page tells of a topic to what those before did.
fn add_page(described: &mut BTreeMap<Arc<str>, DescribedTopic>, page: DescribedTopic) {
    match described.entry(Arc::clone(&page.name)) {
        Entry::Vacant(free) => {
            free.insert(page);
        }
        Entry::Occupied(mut known) => {
            let known = known.get_mut();
            // It may have been deleted meanwhile.
            known.error = page.error.or(known.error);
            known.partitions.extend(page.partitions);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn can_be_spawned<T: Send>(value: T) -> T {
        value
    }

    #[tokio::test]
    async fn calls_can_be_made_from_any_task() {
        let admin = Admin::new(Bootstrap::Brokers(Vec::new()), ClientConfig::default());
        let outcome = can_be_spawned(async {
            admin.describe_cluster().await?;
            admin.describe_controllers().await?;
            admin.describe_quorum().await?;
            admin.metadata(TopicSelection::All).await?;
            admin.describe_configs(ConfigResource::Broker(NodeId(1))).await?;
            admin.describe_topic_configs(&["orders".to_owned()], &[]).await?;
            admin.describe_topic_partitions(&["orders".to_owned()]).await?;
            admin.unregister_broker(NodeId(1)).await?;
            admin.features().await
        })
        .await;
        assert!(matches!(outcome, Err(Error::NoEndpoint)));
    }
}
