//! What an operator asks Kafka to change, read from the bytes on their way.

use anyhow::{Context, Result, anyhow};
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{
    AddRaftVoterRequest, ApiKey, IncrementalAlterConfigsRequest, RemoveRaftVoterRequest, RequestHeader,
    ResponseHeader, UnregisterBrokerRequest, UnregisterBrokerResponse, UpdateFeaturesRequest,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

/// What Kafka answers to somebody who may not change the cluster.
const CLUSTER_AUTHORIZATION_FAILED: i16 = 31;
/// What a refusal says, so that whoever reads of it can be found.
pub const REFUSAL: &str = "the door refuses";

/// A call that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Kafka's name for it.
    pub api: ApiKey,
    /// What it is about. A call that is made again, because nobody knows what became of it, is about the same.
    pub subject: String,
    version: i16,
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {}", self.api, self.subject)
    }
}

impl Call {
    /// The call in a message, unless it only asks.
    pub fn read(message: &Bytes) -> Result<Option<Self>> {
        let number = |at: usize| Some(i16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
        let (Some(api), Some(version)) = (number(0), number(2)) else { return Ok(None) };
        let Ok(api) = ApiKey::try_from(api) else { return Ok(None) };
        let subject = subject(api, message, version)?;
        Ok(subject.map(|subject| Self { api, subject, version }))
    }

    /// Kafka's answer, should it refuse: of those calls that must not harm anything when they are refused.
    pub fn refusal(&self, question: &Bytes) -> Result<Option<Bytes>> {
        if self.api != ApiKey::UnregisterBroker {
            return Ok(None);
        }
        let number = question.get(4..8).context("a call without a number")?;
        let number = i32::from_be_bytes(number.try_into()?);
        let header = ResponseHeader::default().with_correlation_id(number);
        let refusal = UnregisterBrokerResponse::default()
            .with_error_code(CLUSTER_AUTHORIZATION_FAILED)
            .with_error_message(Some(StrBytes::from_static_str(REFUSAL)));
        let mut answer = BytesMut::new();
        header
            .encode(&mut answer, UnregisterBrokerResponse::header_version(self.version))
            .and_then(|()| refusal.encode(&mut answer, self.version))
            .map_err(|error| anyhow!("{error}"))?;
        Ok(Some(answer.freeze()))
    }

    /// Does the answer say that it was carried out?
    pub fn is_carried_out(&self, answer: &Bytes) -> Result<bool> {
        let version = self.version;
        Ok(match self.api {
            ApiKey::AddRaftVoter => decode_answer::<AddRaftVoterRequest>(answer, version)?.error_code == 0,
            ApiKey::RemoveRaftVoter => {
                decode_answer::<RemoveRaftVoterRequest>(answer, version)?.error_code == 0
            }
            ApiKey::UnregisterBroker => {
                decode_answer::<UnregisterBrokerRequest>(answer, version)?.error_code == 0
            }
            ApiKey::UpdateFeatures => {
                let answer = decode_answer::<UpdateFeaturesRequest>(answer, version)?;
                answer.error_code == 0 && answer.results.iter().all(|one| one.error_code == 0)
            }
            _ => {
                let answer = decode_answer::<IncrementalAlterConfigsRequest>(answer, version)?;
                answer.responses.iter().all(|one| one.error_code == 0)
            }
        })
    }
}

fn subject(api: ApiKey, message: &Bytes, version: i16) -> Result<Option<String>> {
    Ok(match api {
        ApiKey::AddRaftVoter => {
            let call = decode::<AddRaftVoterRequest>(message, version)?;
            Some(format!("{} {}", call.voter_id, call.voter_directory_id.simple()))
        }
        ApiKey::RemoveRaftVoter => {
            let call = decode::<RemoveRaftVoterRequest>(message, version)?;
            Some(format!("{} {}", call.voter_id, call.voter_directory_id.simple()))
        }
        ApiKey::UnregisterBroker => {
            Some(decode::<UnregisterBrokerRequest>(message, version)?.broker_id.0.to_string())
        }
        ApiKey::UpdateFeatures => {
            let call = decode::<UpdateFeaturesRequest>(message, version)?;
            let levels = call.feature_updates.iter();
            let levels: Vec<_> =
                levels.map(|one| format!("{}={}", &*one.feature, one.max_version_level)).collect();
            (!call.validate_only).then(|| levels.join(" "))
        }
        ApiKey::IncrementalAlterConfigs => {
            let call = decode::<IncrementalAlterConfigsRequest>(message, version)?;
            let resources = call.resources.iter().flat_map(|resource| {
                resource.configs.iter().map(|one| {
                    let value = one.value.as_deref().unwrap_or("(none)");
                    format!("{}:{}={value}", &*resource.resource_name, &*one.name)
                })
            });
            let resources: Vec<_> = resources.collect();
            (!call.validate_only).then(|| resources.join(" "))
        }
        _ => None,
    })
}

fn decode<R: Request>(message: &Bytes, version: i16) -> Result<R> {
    let mut message = message.clone();
    let read = RequestHeader::decode(&mut message, R::header_version(version))
        .and_then(|_| R::decode(&mut message, version));
    read.map_err(|error| anyhow!("{error}")).context("a call of the operator cannot be read")
}

fn decode_answer<R: Request>(message: &Bytes, version: i16) -> Result<R::Response> {
    let mut message = message.clone();
    let read = ResponseHeader::decode(&mut message, R::Response::header_version(version))
        .and_then(|_| R::Response::decode(&mut message, version));
    read.map_err(|error| anyhow!("{error}")).context("an answer of Kafka cannot be read")
}
