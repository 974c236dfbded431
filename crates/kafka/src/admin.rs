//! The client: which node is asked what.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::calls::{
    ApiVersionsCall, Call, DescribeBrokers, DescribeConfigs, DescribeControllers, DescribeQuorum,
    DescribeTopics, FindBroker, FindController, FindLeader,
};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::pool::{Attempt, Pool};
use crate::{
    Bootstrap, ClientConfig, ClusterDescription, ConfigEntry, ConfigResource, ControllersDescription,
    Endpoint, Features, NodeId, Quorum, TopicMetadata, TopicSelection,
};

/// An administrator's view of one Kafka cluster.
///
/// Making one does nothing yet; connections are opened by the first call that needs them, are kept, and are closed when the
/// client is dropped. Calls may run concurrently; those to the same node wait for each other.
#[derive(Debug)]
pub struct Admin {
    bootstrap: Bootstrap,
    pool: Pool,
    /// The position of the address to ask first. It stays while that one answers, and moves on when it does not.
    preferred: AtomicUsize,
}

impl Admin {
    #[must_use]
    pub fn new(bootstrap: Bootstrap, config: ClientConfig) -> Self {
        Self { bootstrap, pool: Pool::new(config), preferred: AtomicUsize::new(0) }
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
        let deadline = self.deadline();
        match &self.bootstrap {
            Bootstrap::Brokers(_) => self.ask_any(&DescribeQuorum, deadline).await,
            Bootstrap::Controllers(_) => match self.ask_leader(&DescribeQuorum, deadline).await {
                Err(error) if error.is_not_leader() => {
                    // Whoever named that leader is behind; another controller may know better.
                    self.prefer_another();
                    self.ask_leader(&DescribeQuorum, deadline).await
                }
                outcome => outcome,
            },
        }
    }

    /// Topics and their partitions. A topic that does not exist is an entry with an error, and is not created.
    pub async fn metadata(&self, topics: TopicSelection) -> Result<TopicMetadata, Error> {
        self.ask_any(&DescribeTopics(topics), self.deadline()).await
    }

    /// The configuration of a topic, asked of any node, or of a node, asked of that node.
    pub async fn describe_configs(&self, resource: ConfigResource) -> Result<Vec<ConfigEntry>, Error> {
        let deadline = self.deadline();
        let node = match &resource {
            ConfigResource::Broker(id) => Some(*id),
            ConfigResource::Topic(_) => None,
        };
        let call = DescribeConfigs(resource);
        match node {
            Some(id) => self.ask(&self.locate(id, deadline).await?, &call, deadline).await,
            None => self.ask_any(&call, deadline).await,
        }
    }

    /// The features that a node supports and that the cluster has finalized.
    pub async fn features(&self) -> Result<Features, Error> {
        self.ask_any(&ApiVersionsCall, self.deadline()).await
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.pool.config().request_timeout)
    }

    /// Asks the addresses in turn, the one that answered last first, until one answers. A refusal is an answer too.
    async fn ask_any<C: Call>(&self, call: &C, deadline: Deadline) -> Result<C::Answer, Error> {
        let endpoints = self.bootstrap.endpoints();
        let first = self.preferred.load(Ordering::Relaxed);
        let mut failures = Vec::new();
        for tried in 0..endpoints.len() {
            let position = (first + tried) % endpoints.len();
            let endpoint = &endpoints[position];
            let attempt = Attempt { deadline, candidates: endpoints.len() - tried };
            match self.pool.ask(endpoint, call, attempt).await {
                Err(error) if error.is_no_answer() => {
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

    /// Asks the leader of the quorum, wherever it is by the word of a controller.
    async fn ask_leader<C: Call>(&self, call: &C, deadline: Deadline) -> Result<C::Answer, Error> {
        let leader = self.ask_any(&FindLeader, deadline).await?;
        self.ask(&leader, call, deadline).await
    }

    /// Where a given node listens.
    async fn locate(&self, node: NodeId, deadline: Deadline) -> Result<Endpoint, Error> {
        match &self.bootstrap {
            Bootstrap::Brokers(_) => self.ask_any(&FindBroker(node), deadline).await,
            Bootstrap::Controllers(_) => self.ask_any(&FindController(node), deadline).await,
        }
    }

    /// Makes the next call start with another address than this one did.
    fn prefer_another(&self) {
        self.preferred.fetch_add(1, Ordering::Relaxed);
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
            admin.features().await
        })
        .await;
        assert!(matches!(outcome, Err(Error::NoEndpoint)));
    }
}
