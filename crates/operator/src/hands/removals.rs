//! What goes, and only if it is still what was seen.

use k8s_openapi::api::core::v1::Pod;
use karst_api::StrimziPodSet;
use karst_core::names::ClusterKey;
use karst_core::plan::{Removal, Seen};
use karst_core::rolling::Restart;
use karst_core::world::{PodSetView, WantedPod, World};
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Resource};

use super::Hands;
use crate::failure::Failure;
use crate::index::Indexed;
use crate::views::{ClaimWire, ConfigMapWire, PodWire, SecretWire, ServiceWire, Watched};

impl Hands {
    /// Deletes an object that is no longer wanted, if it is still the one that was seen.
    pub(crate) async fn remove(&self, world: &World, removal: &Removal) -> Result<(), Failure> {
        let key = &world.key;
        match removal {
            Removal::ConfigMap(seen) => self.delete_seen::<ConfigMapWire>(key, seen).await,
            Removal::Secret(seen) => self.delete_seen::<SecretWire>(key, seen).await,
            Removal::Service(seen) => self.delete_seen::<ServiceWire>(key, seen).await,
            Removal::PodSet(seen) => self.delete_seen::<StrimziPodSet>(key, seen).await,
            Removal::Claim { claim, pod } => {
                // Perhaps somebody wants to keep it by now.
                self.wishes_are_as_seen(world).await?;
                self.is_not_used(key, pod, &claim.name).await?;
                self.delete_seen::<ClaimWire>(key, claim).await
            }
        }
    }

    /// Deletes an object that did not change since it was seen.
    async fn delete_seen<K: Indexed>(&self, key: &ClusterKey, seen: &Seen) -> Result<(), Failure> {
        let only_this =
            Preconditions { uid: Some(seen.uid.clone()), resource_version: Some(seen.version.clone()) };
        self.delete_only::<K>(&key.namespace, &seen.name, only_this).await
    }

    pub(super) async fn delete<K: Indexed>(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), Failure> {
        let only_this = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        self.delete_only::<K>(namespace, name, only_this).await
    }

    pub(super) async fn delete_only<K: Indexed>(
        &self,
        namespace: &str,
        name: &str,
        only_this: Preconditions,
    ) -> Result<(), Failure> {
        let kind = K::kind(&());
        tracing::info!(%kind, name, "deleting what is no longer wanted");
        if let Some(uid) = &only_this.uid {
            self.confirmed.forget(uid);
        }
        let parameters = DeleteParams { preconditions: Some(only_this), ..DeleteParams::background() };
        let api = self.api::<K>(namespace);
        let what = format!("could not delete {kind} {name}");
        match self.call(&what, api.delete(name, &parameters)).await {
            Err(failure) if failure.is_missing() => Ok(()),
            result => result.map(drop),
        }
    }

    /// A disk goes only after the pod that used it: the cache may lag behind, so ask.
    async fn is_not_used(&self, key: &ClusterKey, pod: &str, claim: &str) -> Result<(), Failure> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let found = self.call("could not look for a pod", api.get_opt(pod)).await?;
        let volumes = found.and_then(|pod| pod.spec).and_then(|spec| spec.volumes).unwrap_or_default();
        let mut claims = volumes.into_iter().filter_map(|volume| volume.persistent_volume_claim);
        if claims.any(|used| used.claim_name == claim) {
            return Err(Failure::Changed(format!("pod {pod} uses its claim {claim}, which stays")));
        }
        Ok(())
    }

    /// Replaces a pod: it is deleted, and its pod set makes another. Disks that are to go with it go first: they
    /// are only gone when the pod is.
    pub(crate) async fn restart(&self, world: &World, restart: &Restart) -> Result<(), Failure> {
        let key = &world.key;
        let kept = restart.keeps.iter().map(|(claim, uid)| self.stays(key, claim, uid));
        futures::future::try_join_all(kept).await?;
        if restart.loses_disk {
            // Perhaps somebody wants to keep it by now.
            self.wishes_are_as_seen(world).await?;
            self.is_still_asked_of(key, restart).await?;
        }
        for (claim, uid) in &restart.claims {
            self.delete::<ClaimWire>(&key.namespace, claim, uid).await?;
        }
        // What is on a claim that is on its way out is there as long as its pod is, and that call may have taken long.
        if !restart.claims.is_empty() {
            self.wishes_are_as_seen(world).await?;
        }
        self.delete::<PodWire>(&key.namespace, &restart.pod, &restart.uid).await?;
        self.index.mark_deleting(key, &restart.pod, &restart.uid);
        Ok(())
    }

    /// A pod that is to find its disks again must not lose them by its end: a claim that somebody deletes goes with its pod. The cache
    /// may lag behind, so ask.
    async fn stays(&self, key: &ClusterKey, claim: &str, uid: &str) -> Result<(), Failure> {
        let api = self.api::<ClaimWire>(&key.namespace);
        let live = self.call("could not look at a PersistentVolumeClaim", api.get_opt(claim)).await?;
        let stays = live.as_ref().is_some_and(|live| {
            let meta = live.meta();
            meta.uid.as_deref() == Some(uid) && meta.deletion_timestamp.is_none()
        });
        if let Some(live) = live {
            self.learn(live);
        }
        if stays {
            return Ok(());
        }
        Err(Failure::Changed(format!(
            "PersistentVolumeClaim {claim} is on its way out, and its pod would lose it by a restart"
        )))
    }

    /// Empty disks are for the pod that was to have them, and not for the one that has them already; and what was asked of it by an
    /// annotation must still be asked. The cache may lag behind, so ask.
    async fn is_still_asked_of(&self, key: &ClusterKey, restart: &Restart) -> Result<(), Failure> {
        let (api, pod) = (self.api::<PodWire>(&key.namespace), &restart.pod);
        let found = self.call("could not look for a pod", api.get_opt(pod)).await?;
        let is_asked = found.as_ref().is_some_and(|found| restart.is_still_asked_of(&found.clone().view()));
        if let Some(found) = found {
            self.learn(found);
        }
        if is_asked {
            return Ok(());
        }
        Err(Failure::Changed(format!(
            "pod {pod} is another one by now, or is no longer asked to restart, and its disks stay"
        )))
    }

    /// What is on the claims of a pod that does not run is kept by Kubernetes for its sake: it makes no place for another one while one of
    /// them is on its way out. The cache may lag behind, so ask.
    pub(super) async fn claims_stay(
        &self,
        namespace: &str,
        set: &PodSetView,
        pod: &str,
    ) -> Result<(), Failure> {
        let api = self.api::<ClaimWire>(namespace);
        for claim in set.pods.get(pod).map(WantedPod::claims).unwrap_or_default() {
            let live = self.call("could not look at a PersistentVolumeClaim", api.get_opt(&claim)).await?;
            let Some(live) = live else { continue };
            let view = live.clone().view();
            if view.meta.deleting && view.bound {
                self.learn(live);
                return Err(Failure::Changed(format!(
                    "PersistentVolumeClaim {claim} is on its way out, and pod {pod} is all that keeps it"
                )));
            }
        }
        Ok(())
    }
}
