//! A story of the simulation, on a real cluster. `cargo xtask soak scenarios` tells the others.

use std::time::Duration;

use anyhow::{Context, Result};
use karst_e2e::stage;
use karst_e2e::story::story;
use karst_sim::scenarios;

#[tokio::test]
async fn a_story_of_the_simulation_ends_the_same() -> Result<()> {
    let scenario = scenarios::all().into_iter().find(|one| one.name == "paused-and-resumed");
    let scenario = scenario.context("there is no such story")?;
    story("scenarios", Duration::from_secs(900), async |scene| stage::tell(scene, &scenario).await).await
}
