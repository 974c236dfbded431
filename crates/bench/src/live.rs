//! Clusters that seem to live: their pods are called ready, and somebody answers in their name.

use anyhow::Result;
use kube::Client;

use crate::kafka::Kafka;
use crate::kubelet::Kubelet;
use crate::network::{self, Names};

/// They live until this is dropped.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) kafka: Kafka,
    _kubelet: Kubelet,
    _names: Names,
}

impl Live {
    /// Lets all clusters live, those that come later too.
    pub(crate) async fn begin(client: &Client) -> Result<Self> {
        network::allow_connections();
        let (names, kafka) = (Names::serve().await?, Kafka::serve(client).await?);
        Ok(Self { kafka, _kubelet: Kubelet::start(client), _names: names })
    }
}
