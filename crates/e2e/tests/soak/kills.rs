//! The operator is killed every few seconds while nodes come, go, restart and lose their disks, under load, for an hour:
//! `KARST_SOAK_MINUTES` says for how long else.

use std::time::Duration;

use anyhow::Result;
use karst_e2e::plots;
use karst_e2e::story::{minutes, story};

const USUAL_MINUTES: u64 = 60;
/// Time to begin, and for the last round to come to its end.
const AROUND: Duration = Duration::from_secs(1200);

#[tokio::test]
async fn kills_every_few_seconds() -> Result<()> {
    let length = minutes(USUAL_MINUTES)?;
    story("kills", length + AROUND, async |scene| plots::kill_for(scene, length).await).await
}
