//! Whether the time can be believed.
//!
//! A clock that is a year ahead would end every certificate, and one that is behind would make certificates that nobody accepts
//! yet. The API server has a clock too.

use k8s_openapi::jiff::SignedDuration;

use crate::notice::Notice;
use crate::world::World;

/// By how much two clocks may differ. Certificates begin as long before they are made.
const LIMIT: SignedDuration = SignedDuration::from_mins(10);

/// What is to be said when the two clocks differ. Nothing is known of the other when the API server does not tell.
pub(super) fn doubt(world: &World) -> Option<Notice> {
    let server = world.api_server_time?;
    let difference = world.now.duration_since(server).abs();
    (difference > LIMIT).then_some(Notice::ClocksDiffer { operator: world.now, server })
}
