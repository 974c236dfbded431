//! Asking Kafka about itself.

use std::time::Duration;

use karst_core::ids::{DirectoryId, NodeId};
use karst_core::quorum::CONTROLLER_PORT;
use karst_core::world::{KafkaAnswer, KafkaView, Replica};
use karst_kafka::{Admin, Bootstrap, ClientConfig, Endpoint, Error, Quorum};

/// How long Kafka may take. A pass does not wait longer: no answer is an answer too.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks the controllers at these hosts.
pub(crate) async fn ask(controllers: &[String]) -> KafkaAnswer {
    let endpoints = controllers.iter().map(|host| Endpoint::new(host, CONTROLLER_PORT)).collect();
    let config = ClientConfig {
        client_id: "karst-operator".to_owned(),
        connect_timeout: PATIENCE / 2,
        request_timeout: PATIENCE,
        ..ClientConfig::default()
    };
    match questions(&Admin::new(Bootstrap::Controllers(endpoints), config)).await {
        Ok(view) => KafkaAnswer::Answered(view),
        Err(error) => KafkaAnswer::Silent(error.to_string()),
    }
}

async fn questions(admin: &Admin) -> Result<KafkaView, Error> {
    let quorum = admin.describe_quorum().await?;
    let features = admin.features().await?;
    Ok(KafkaView {
        voters: voters(&quorum),
        metadata_level: features.finalized.get("metadata.version").copied(),
    })
}

fn voters(quorum: &Quorum) -> Vec<Replica> {
    let replica = |voter: &karst_kafka::ReplicaState| Replica {
        node: NodeId(voter.id.0),
        directory: voter.directory.and_then(|id| id.to_string().parse::<DirectoryId>().ok()),
        takes_part: voter.id == quorum.leader || voter.last_fetch.is_some(),
    };
    quorum.voters.iter().map(replica).collect()
}
