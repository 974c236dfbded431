//! AlterUserScramCredentials: what users prove themselves with.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use kafka_protocol::messages::{AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse};
use kafka_protocol::protocol::StrBytes;

use super::{Call, Context};
use crate::error::{Api, Error, Versions};
use crate::{Refusal, ScramChange};

const SCRAM_SHA_512: i8 = 2;

#[derive(Debug)]
pub(crate) struct AlterScram(pub(crate) Vec<ScramChange>);

impl Call for AlterScram {
    const API: Api = Api::AlterUserScramCredentials;
    const VERSIONS: Versions = Versions::new(0, 0);
    type Request = AlterUserScramCredentialsRequest;
    type Answer = Vec<(String, Result<(), Refusal>)>;

    fn request(&self, _version: i16, _time_left: Duration) -> AlterUserScramCredentialsRequest {
        AlterUserScramCredentialsRequest::default()
            .with_deletions(self.0.iter().filter_map(deletion).collect())
            .with_upsertions(self.0.iter().filter_map(upsertion).collect())
    }

    fn answer(
        &self,
        response: AlterUserScramCredentialsResponse,
        context: &Context<'_>,
    ) -> Result<Self::Answer, Error> {
        let outcome = |change: &ScramChange| {
            let user = change.user();
            let result = response.results.iter().find(|result| result.user.as_str() == user);
            let result = result.ok_or_else(|| context.malformed(format!("it does not speak of {user}")))?;
            let outcome = context.outcome(result.error_code, result.error_message.as_ref())?;
            Ok((user.to_owned(), outcome))
        };
        self.0.iter().map(outcome).collect()
    }
}

fn deletion(change: &ScramChange) -> Option<ScramCredentialDeletion> {
    let ScramChange::Delete { user } = change else { return None };
    Some(
        ScramCredentialDeletion::default()
            .with_name(StrBytes::from_string(user.clone()))
            .with_mechanism(SCRAM_SHA_512),
    )
}

fn upsertion(change: &ScramChange) -> Option<ScramCredentialUpsertion> {
    let ScramChange::Upsert { user, credential } = change else { return None };
    Some(
        ScramCredentialUpsertion::default()
            .with_name(StrBytes::from_string(user.clone()))
            .with_mechanism(SCRAM_SHA_512)
            .with_iterations(credential.iterations)
            .with_salt(Bytes::copy_from_slice(&credential.salt))
            .with_salted_password(Bytes::copy_from_slice(&credential.salted_password)),
    )
}
