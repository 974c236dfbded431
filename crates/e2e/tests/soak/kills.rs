//! The operator is killed every few seconds while nodes come, go, restart and lose their disks, under load, for an hour:
//! `KARST_SOAK_MINUTES` says for how long else.

use std::time::Duration;

use anyhow::{Context, Result};
use karst_e2e::plots;
use karst_e2e::story::story;

const USUAL_MINUTES: u64 = 60;
/// Time to begin, and for the last round to come to its end.
const AROUND: Duration = Duration::from_secs(1200);

#[tokio::test]
async fn kills_every_few_seconds() -> Result<()> {
    let minutes = match std::env::var("KARST_SOAK_MINUTES") {
        Ok(minutes) => {
            minutes.parse().with_context(|| format!("KARST_SOAK_MINUTES={minutes} is no number"))?
        }
        Err(_) => USUAL_MINUTES,
    };
    let length = Duration::from_secs(60 * minutes);
    story("kills", length + AROUND, async |scene| plots::kill_for(scene, length).await).await
}
