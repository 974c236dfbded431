//! What an administrator can change.
//!
//! A change is sent to one node, once. It is sent to another only while it is certain that the first never got it; in any other
//! case of doubt the caller gets an error of which [`Error::may_have_happened`] is true.
//!
//! Brokers pass changes on to the leader of the quorum, and repeat them if the leader changes meanwhile. So over brokers even a
//! plain refusal, such as "duplicate voter", may be the echo of one's own success. Where the difference matters, ask controllers.

use super::Admin;
use crate::calls::{AddVoter, AlterConfigs, AlterScram, RemoveVoter, UnregisterBroker, UpdateFeatures};
use crate::error::Error;
use crate::{
    Bootstrap, ConfigChange, ConfigResource, DirectoryId, FeatureUpdate, Intent, Listener, NodeId, Refusal,
    ScramChange,
};

impl Admin {
    /// Makes a controller a voter of the metadata quorum, under the directory it has, reachable for the others at `listeners`.
    ///
    /// Kafka makes one such change at a time, and only for a controller that has caught up and answers. It refuses with
    /// [`ErrorCode::InconsistentClusterId`](crate::ErrorCode::InconsistentClusterId) when `cluster` is the id of another one.
    pub async fn add_voter(
        &self,
        cluster: Option<&str>,
        node: NodeId,
        directory: DirectoryId,
        listeners: &[Listener],
    ) -> Result<(), Error> {
        let cluster = cluster.map(str::to_owned);
        let call = AddVoter { cluster, node, directory, listeners: listeners.to_vec() };
        self.ask_quorum(&call, self.deadline()).await
    }

    /// Takes the vote from a controller, unless `cluster` is the id of another cluster. A leader that is removed resigns once the
    /// change is committed.
    pub async fn remove_voter(
        &self,
        cluster: Option<&str>,
        node: NodeId,
        directory: DirectoryId,
    ) -> Result<(), Error> {
        let call = RemoveVoter { cluster: cluster.map(str::to_owned), node, directory };
        self.ask_quorum(&call, self.deadline()).await
    }

    /// Moves features to other levels. From Kafka 4.0 on it is all of them or none, and a refusal is an error of the whole;
    /// before, each feature has its own.
    pub async fn update_features(
        &self,
        updates: &[FeatureUpdate],
        intent: Intent,
    ) -> Result<Vec<(String, Result<(), Refusal>)>, Error> {
        self.ask_quorum(&UpdateFeatures { updates: updates.to_vec(), intent }, self.deadline()).await
    }

    /// Makes the cluster forget a broker. Kafka does not check that it is gone: one that lives loses all leaderships at once, and
    /// then registers again.
    pub async fn unregister_broker(&self, node: NodeId) -> Result<(), Error> {
        self.ask_quorum(&UnregisterBroker(node), self.deadline()).await
    }

    /// Changes entries of one configuration.
    ///
    /// A broker refuses changes of another broker's configuration or log levels, so those are sent to the broker itself. Where only
    /// controllers are known, their leader takes all but log levels, also for brokers that are down.
    ///
    /// Values are checked by brokers only: a controller takes `log.cleaner.threads=nonsense` without a word. Ask brokers if there
    /// are any.
    pub async fn incremental_alter_configs(
        &self,
        resource: ConfigResource,
        changes: &[ConfigChange],
        intent: Intent,
    ) -> Result<(), Error> {
        let deadline = self.deadline();
        let own = match (&resource, &self.bootstrap) {
            (ConfigResource::BrokerLogger(id), _) | (ConfigResource::Broker(id), Bootstrap::Brokers(_)) => {
                Some(*id)
            }
            (ConfigResource::Broker(_), Bootstrap::Controllers(_))
            | (ConfigResource::BrokerDefaults | ConfigResource::Topic(_), _) => None,
        };
        let call = AlterConfigs { resource, changes: changes.to_vec(), intent };
        match own {
            Some(id) => self.ask(&self.locate(id, deadline).await?, &call, deadline).await,
            None => self.ask_quorum(&call, deadline).await,
        }
    }

    /// Sets or deletes what users prove themselves with. Each user has an outcome, in the order of `changes`.
    pub async fn alter_user_scram_credentials(
        &self,
        changes: &[ScramChange],
    ) -> Result<Vec<(String, Result<(), Refusal>)>, Error> {
        self.ask_quorum(&AlterScram(changes.to_vec()), self.deadline()).await
    }
}
