//! UpdateFeatures: new levels for `metadata.version`, `kraft.version` and the like.

use std::time::Duration;

use kafka_protocol::messages::update_features_request::FeatureUpdateKey;
use kafka_protocol::messages::{UpdateFeaturesRequest, UpdateFeaturesResponse};
use kafka_protocol::protocol::StrBytes;

use super::{Call, Context, kafkas_share};
use crate::error::{Api, Error, Versions};
use crate::{FeatureUpdate, Intent, Refusal, UpdateKind};

/// From this version on, Kafka takes all of the updates or none, and says so once for all of them.
const FIRST_ALL_OR_NONE: i16 = 2;

#[derive(Debug)]
pub(crate) struct UpdateFeatures {
    pub(crate) updates: Vec<FeatureUpdate>,
    pub(crate) intent: Intent,
}

impl Call for UpdateFeatures {
    const API: Api = Api::UpdateFeatures;
    // Version 0 can neither validate only nor tell a safe downgrade from an unsafe one.
    const VERSIONS: Versions = Versions::new(1, FIRST_ALL_OR_NONE);
    type Request = UpdateFeaturesRequest;
    type Answer = Vec<(String, Result<(), Refusal>)>;

    fn request(&self, _version: i16, time_left: Duration) -> UpdateFeaturesRequest {
        UpdateFeaturesRequest::default()
            .with_timeout_ms(kafkas_share(time_left))
            .with_feature_updates(self.updates.iter().map(key).collect())
            .with_validate_only(self.intent.validates_only())
    }

    fn answer(&self, response: UpdateFeaturesResponse, context: &Context<'_>) -> Result<Self::Answer, Error> {
        context.check(response.error_code, response.error_message.as_ref())?;
        let outcome = |update: &FeatureUpdate| {
            if context.version >= FIRST_ALL_OR_NONE {
                return Ok((update.name.clone(), Ok(())));
            }
            let result = response.results.iter().find(|result| result.feature.as_str() == update.name);
            let result =
                result.ok_or_else(|| context.malformed(format!("it does not speak of {}", update.name)))?;
            let outcome = context.outcome(result.error_code, result.error_message.as_ref())?;
            Ok((update.name.clone(), outcome))
        };
        self.updates.iter().map(outcome).collect()
    }
}

fn key(update: &FeatureUpdate) -> FeatureUpdateKey {
    FeatureUpdateKey::default()
        .with_feature(StrBytes::from_string(update.name.clone()))
        .with_max_version_level(update.level)
        .with_upgrade_type(match update.kind {
            UpdateKind::Upgrade => 1,
            UpdateKind::SafeDowngrade => 2,
            UpdateKind::UnsafeDowngrade => 3,
        })
}
