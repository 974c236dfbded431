//! The stories of the simulation, on real clusters: what ends there in a way ends here in the same. `KARST_SOAK_SCENARIOS` names some of
//! them, by parts of their names, divided by commas.

use std::time::Duration;

use anyhow::{Result, ensure};
use karst_e2e::stage;
use karst_e2e::story::story;
use karst_sim::scenarios::{self, Scenario};

const LIMIT: Duration = Duration::from_secs(1500);

/// What a real machine can be made to do.
fn can_be_told(scenario: &Scenario) -> bool {
    !scenario.steps.iter().any(|step| step.edit.is_simulated_only())
}

#[tokio::test]
async fn scenarios_of_the_simulation_end_the_same() -> Result<()> {
    let chosen = std::env::var("KARST_SOAK_SCENARIOS").unwrap_or_default();
    let is_chosen = |name: &str| chosen.split(',').any(|part| name.contains(part.trim()));
    let (mut told, mut failed) = (0, Vec::new());
    for scenario in scenarios::all().into_iter().filter(can_be_told).filter(|one| is_chosen(one.name)) {
        let name = format!("sim-{}", scenario.name);
        told += 1;
        if let Err(error) = story(&name, LIMIT, async |scene| stage::tell(scene, &scenario).await).await {
            failed.push(format!("{}: {error:#}", scenario.name));
        }
    }
    ensure!(failed.is_empty(), "{} of {told} stories ended otherwise:\n{}", failed.len(), failed.join("\n"));
    Ok(())
}
