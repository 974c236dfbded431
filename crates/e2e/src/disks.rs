//! Disks that are lost.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;

use crate::processes;
use crate::story::Scene;

/// The process in a pod dies, and when it starts again the disk of its claim is empty.
pub async fn lose(scene: &Scene, pod: &Pod, claim: &PersistentVolumeClaim) -> Result<()> {
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
    let volumes: Api<PersistentVolume> = Api::all(scene.client.clone());
    let volume = volumes.get(&volume.context("a claim without a volume")?).await?;
    let place = volume.spec.and_then(|spec| spec.local).context("only local volumes can be emptied")?;
    if processes::kafka_runs(pod) {
        processes::kill_kafka(pod)?;
    }
    empty(Path::new(&place.path))
}

/// Removes everything in a directory.
fn empty(place: &Path) -> Result<()> {
    let all: Vec<PathBuf> = std::fs::read_dir(place)
        .with_context(|| format!("looking into {}", place.display()))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    for one in all {
        let removed = if one.is_dir() { std::fs::remove_dir_all(&one) } else { std::fs::remove_file(&one) };
        removed.with_context(|| format!("removing {}", one.display()))?;
    }
    Ok(())
}
