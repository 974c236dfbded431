//! ApiVersions: which APIs a node has, and, since version 3, which features.

use std::time::Duration;

use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use kafka_protocol::protocol::StrBytes;

use super::{Call, Context, bounds};
use crate::error::{Api, Error, Versions};
use crate::{Features, LevelRange};

#[derive(Debug)]
pub(crate) struct ApiVersionsCall;

impl Call for ApiVersionsCall {
    const API: Api = Api::ApiVersions;
    // Version 4 also lists features whose lowest level is 0, `kraft.version` among them (KIP-1022).
    const VERSIONS: Versions = Versions::new(3, 4);
    type Request = ApiVersionsRequest;
    type Answer = Features;

    fn request(&self, version: i16, _time_left: Duration) -> ApiVersionsRequest {
        let request = ApiVersionsRequest::default();
        if version < Self::VERSIONS.min {
            return request;
        }
        request
            .with_client_software_name(StrBytes::from_static_str(env!("CARGO_PKG_NAME")))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")))
    }

    fn answer(&self, response: ApiVersionsResponse, context: &Context<'_>) -> Result<Features, Error> {
        context.check(response.error_code, None)?;
        for features in [response.supported_features.len(), response.finalized_features.len()] {
            context.at_most("features", features, bounds::FEATURES)?;
        }
        let supported = response.supported_features.iter().map(|feature| {
            let levels = LevelRange { min: feature.min_version, max: feature.max_version };
            Ok((context.name(&feature.name)?, levels))
        });
        let finalized = response
            .finalized_features
            .iter()
            .map(|feature| Ok((context.name(&feature.name)?, feature.max_version_level)));
        Ok(Features {
            supported: supported.collect::<Result<_, Error>>()?,
            finalized: finalized.collect::<Result<_, Error>>()?,
            epoch: (response.finalized_features_epoch >= 0).then_some(response.finalized_features_epoch),
        })
    }
}
