//! What a pod set needs: pods that come, go, and are taken over.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use karst_api::StrimziPodSet;
use karst_core::names::ClusterKey;
use karst_core::podset::PodAction;
use karst_core::strangers;
use karst_core::world::PodSetView;
use kube::api::{PartialObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Api, Resource};
use serde_json::{Value, json};

use super::Hands;
use crate::failure::Failure;
use crate::views::PodWire;

impl Hands {
    /// Does one thing for a pod set.
    pub(crate) async fn handle_pod(
        &self,
        cluster: &ClusterKey,
        set: &PodSetView,
        action: &PodAction,
    ) -> Result<(), Failure> {
        let namespace = &cluster.namespace;
        match action {
            PodAction::Create { name, pod } => self.create_pod(cluster, set, name, pod).await,
            PodAction::Remove { name, uid } => self.remove_pod(namespace, set, name, uid).await,
            PodAction::Adopt { name, uid } => {
                tracing::info!(pod = %name, "taking over a pod without an owner");
                let only_this = json!({ "uid": uid, "ownerReferences": [owner(set)] });
                let patch = Patch::Merge(json!({ "metadata": only_this }));
                let what = format!("could not take over pod {name}");
                let api: Api<PodWire> = self.api(namespace);
                let adopted = self.call(&what, api.patch(name, &PatchParams::default(), &patch)).await?;
                self.learn(adopted);
                Ok(())
            }
            PodAction::Replace { name, uid, version, phase } => {
                self.claims_stay(namespace, set, name).await?;
                tracing::info!(pod = %name, %phase, "a pod that will not run makes place for a new one");
                let only_this =
                    Preconditions { uid: Some(uid.clone()), resource_version: Some(version.clone()) };
                self.delete_only::<PodWire>(namespace, name, only_this).await
            }
        }
    }

    /// Pods are made only for the pod set as it is now: one that it does not list any more may live elsewhere under the same id. The
    /// cache may lag behind, so ask.
    pub(crate) async fn is_as_seen(&self, namespace: &str, set: &PodSetView) -> Result<(), Failure> {
        if self.confirmed.is_of(&set.meta.uid, set.generation) {
            return Ok(());
        }
        let name = &set.meta.name;
        let api: Api<PartialObjectMeta<StrimziPodSet>> = Api::namespaced(self.client.clone(), namespace);
        let live = self.call(&format!("could not look at StrimziPodSet {name}"), api.get_opt(name)).await?;
        let is_same = |meta: &ObjectMeta| {
            meta.uid.as_ref() == Some(&set.meta.uid) && meta.generation == Some(set.generation)
        };
        if live.is_some_and(|live| is_same(&live.metadata)) {
            return Ok(());
        }
        Err(Failure::Changed(format!("StrimziPodSet {name} changed since it was looked at")))
    }

    /// A pod goes only if the pod set, asked once more, does not list it.
    async fn remove_pod(
        &self,
        namespace: &str,
        set: &PodSetView,
        name: &str,
        uid: &str,
    ) -> Result<(), Failure> {
        let api: Api<StrimziPodSet> = self.api(namespace);
        let what = format!("could not look at StrimziPodSet {}", set.meta.name);
        let Some(live) = self.call(&what, api.get_opt(&set.meta.name)).await? else { return Ok(()) };
        let is_listed = live.spec.pods.iter().any(|pod| pod["metadata"]["name"] == name);
        if is_listed || live.metadata.uid.as_ref() != Some(&set.meta.uid) {
            return Err(Failure::Changed(format!(
                "StrimziPodSet {} changed; pod {name} stays",
                set.meta.name
            )));
        }
        self.delete::<PodWire>(namespace, name, uid).await
    }

    async fn create_pod(
        &self,
        cluster: &ClusterKey,
        set: &PodSetView,
        name: &str,
        pod: &str,
    ) -> Result<(), Failure> {
        let what = format!("could not create pod {name}");
        let render = |source| Failure::Render { what: format!("pod {name}"), source };
        let mut pod: Value = serde_json::from_str(pod).map_err(render)?;
        pod["metadata"]["ownerReferences"] = json!([owner(set)]);
        let body = serde_json::to_vec(&pod).map_err(render)?;
        let request = Request::new(PodWire::url_path(&(), Some(&cluster.namespace)))
            .create(&PostParams::default(), body)
            .map_err(|error| Failure::Changed(format!("{what}: {error}")))?;
        match self.call::<PodWire>(&what, self.client.request(request)).await {
            Err(failure) if failure.is_conflict() => {
                self.meet_pod(cluster, set, name, &pod["metadata"]["labels"], failure).await
            }
            Err(failure) => Err(failure),
            Ok(created) => {
                tracing::info!(pod = %name, "created");
                self.learn(created);
                Ok(())
            }
        }
    }

    /// A pod of this name is there, and was not seen. One of the cluster lost the labels by which it is seen, and gets them back. That
    /// of somebody else is left alone.
    async fn meet_pod(
        &self,
        cluster: &ClusterKey,
        set: &PodSetView,
        name: &str,
        labels: &Value,
        failure: Failure,
    ) -> Result<(), Failure> {
        let api: Api<PodWire> = self.api(&cluster.namespace);
        let live = self.call(&format!("could not look at pod {name}"), api.get_opt(name)).await?;
        let Some(live) = live else { return Err(failure) };
        if strangers::is_labelled(cluster, live.meta()) {
            self.learn(live);
            return Err(Failure::Changed(format!("pod {name} is there, though it was not seen")));
        }
        let kafka = self.index.snapshot(cluster).kafka;
        let kafka = kafka.as_ref().and_then(|kafka| kafka.metadata.uid.as_deref());
        let ours: Vec<_> = kafka.into_iter().chain([set.meta.uid.as_str()]).collect();
        if let Some(owner) = strangers::owner_of_pod(&ours, live.meta()) {
            return Err(Failure::Foreign { object: format!("Pod {name}"), owner });
        }
        tracing::warn!(cluster = %cluster, pod = %name, "lost the labels of its cluster, and gets them back");
        let meta = live.meta();
        let only_this =
            json!({ "uid": meta.uid, "resourceVersion": meta.resource_version, "labels": labels });
        let patch = Patch::Merge(json!({ "metadata": only_this }));
        let what = format!("could not label pod {name}");
        let labelled = self.call(&what, api.patch(name, &PatchParams::default(), &patch)).await?;
        self.learn(labelled);
        Ok(())
    }
}

fn owner(set: &PodSetView) -> OwnerReference {
    OwnerReference {
        api_version: StrimziPodSet::api_version(&()).into_owned(),
        kind: StrimziPodSet::kind(&()).into_owned(),
        name: set.meta.name.clone(),
        uid: set.meta.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    }
}
