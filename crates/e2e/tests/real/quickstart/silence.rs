//! A cluster that is as it should be costs nothing.

use std::time::Duration;

use anyhow::{Result, ensure};
use karst_e2e::audit::{Audit, Request};
use karst_e2e::cluster::Cluster;

const CALM: Duration = Duration::from_secs(5);
const SETTLING: Duration = Duration::from_secs(60);

/// More than a minute sees every kind of unrest but the resync, which comes after at most twelve and a half minutes.
fn window() -> Duration {
    let long = std::env::var_os("KARST_E2E_LONG").is_some();
    Duration::from_secs(if long { 780 } else { 75 })
}

pub(crate) async fn a_converged_cluster_causes_no_requests(cluster: &Cluster<'_>) -> Result<()> {
    let window = window();
    cluster.scene.step(format!("listening to the silence for {} s", window.as_secs()));
    Audit::until_calm(CALM, SETTLING).await?;
    let audit = Audit::from_now()?;
    tokio::time::sleep(window).await;
    let requests = audit.of_operator()?;
    let noise: Vec<_> = requests.iter().filter(|request| request.breaks_the_silence()).collect();
    ensure!(noise.is_empty(), "{} requests broke the silence: {noise:#?}", noise.len());
    // A record without the lease's renewals would be a record of something else.
    let renewals = requests.iter().filter(|request| Request::is_about_the_lease(request)).count();
    let seconds = usize::try_from(window.as_secs())?;
    ensure!(
        renewals >= seconds / 15,
        "only {renewals} renewals of the lease: is this the operator's record?"
    );
    ensure!(renewals <= seconds / 5, "{renewals} requests about the lease, more than twelve a minute");
    Ok(())
}
