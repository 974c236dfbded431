//! The cluster of the quickstart: what a new user gets, and what becomes of it when things are deleted.

mod repairs;
mod serving;
mod silence;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use karst_e2e::cluster::Cluster;
use karst_e2e::kubectl;
use karst_e2e::story::{Scene, story};

#[tokio::test]
async fn the_quickstart_cluster_serves_and_heals_and_falls_silent() -> Result<()> {
    story("quickstart", Duration::from_secs(1500), async |scene| {
        let cluster = apply_the_example(scene).await?;
        scene.step("waiting until it is ready");
        let status = cluster.until_ready().await?;
        serving::the_status_tells_who_the_cluster_is(&cluster, &status).await?;
        serving::kubectl_shows_the_columns_that_users_know(&cluster).await?;
        serving::the_quorum_is_dynamic_and_has_the_recorded_directories(&cluster, &status).await?;
        serving::console_tools_produce_and_consume(&cluster).await?;
        serving::kcat_produces_and_consumes(&cluster).await?;
        serving::the_admin_client_sees_what_is_there(&cluster, &status).await?;

        repairs::what_is_deleted_or_changed_comes_back(&cluster).await?;
        repairs::a_deleted_pod_comes_back_and_records_survive(&cluster).await?;
        repairs::a_deleted_pod_set_comes_back_with_its_pods_and_records_survive(&cluster).await?;

        silence::a_converged_cluster_causes_no_requests(&cluster).await
    })
    .await
}

async fn apply_the_example(scene: &Scene) -> Result<Cluster<'_>> {
    scene.step("applying deploy/examples/quickstart.yaml");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/examples/quickstart.yaml");
    let manifests = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    kubectl::apply(&scene.namespace, &manifests).await?;
    Ok(Cluster::named(scene, "my-cluster"))
}
