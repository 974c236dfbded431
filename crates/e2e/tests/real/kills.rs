//! One round of what `cargo xtask soak kills` does for an hour.

use std::time::Duration;

use anyhow::Result;
use karst_e2e::plots;
use karst_e2e::story::story;

#[tokio::test]
async fn an_operator_that_is_killed_every_few_seconds_scales_replaces_and_restarts_under_load() -> Result<()>
{
    story("kills", Duration::from_secs(600), async |scene| plots::kill_for(scene, Duration::ZERO).await).await
}
