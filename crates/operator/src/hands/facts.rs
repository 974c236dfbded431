//! Statuses: facts that must be durable before anything is built on them, and what is told to people.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karst_api::{Condition, Kafka, KafkaNodePool, StrimziPodSet, StrimziPodSetStatus};
use karst_core::ids::NodeId;
use karst_core::names::ClusterKey;
use karst_core::plan::{Fact, Protection};
use karst_core::registration;
use karst_core::status;
use karst_core::world::{PodSetView, World};
use kube::api::{PartialObjectMeta, Patch, PatchParams};
use kube::core::Request;
use kube::{Api, Resource};
use serde_json::{Value, json};

use super::{Hands, made_for};
use crate::failure::Failure;
use crate::index::Indexed;
use crate::views::ClaimWire;

impl Hands {
    /// Makes a fact durable, on the condition that the resource is still as it was read.
    pub(crate) async fn write_fact(&self, world: &World, fact: &Fact) -> Result<(), Failure> {
        let namespace = &world.key.namespace;
        match fact {
            Fact::PoolNodes { pool, status } | Fact::PoolCluster { pool, status } => {
                let Some(resource) = world.pools.get(pool) else { return Ok(()) };
                self.patch_fact::<KafkaNodePool>(
                    namespace,
                    pool,
                    resource.meta().resource_version.as_ref(),
                    status,
                )
                .await
            }
            Fact::PoolProtected { pool } => {
                let Some(resource) = world.pools.get(pool) else { return Ok(()) };
                self.protect(namespace, resource, Protection::Add).await
            }
            Fact::Registered { status } => {
                let version = world.kafka.metadata.resource_version.as_ref();
                self.patch_fact::<Kafka>(namespace, &world.key.name, version, status).await
            }
            Fact::Identity { status, forms } => {
                if *forms {
                    self.nothing_is_left_of(&world.key).await?;
                }
                let version = world.kafka.metadata.resource_version.as_ref();
                self.patch_fact::<Kafka>(namespace, &world.key.name, version, status).await
            }
        }
    }

    async fn patch_fact<K: Indexed>(
        &self,
        namespace: &str,
        name: &str,
        version: Option<&String>,
        status: &Value,
    ) -> Result<(), Failure> {
        let what = format!("could not write a durable fact of {} {name}", K::kind(&()));
        let patch = Patch::Merge(json!({ "metadata": { "resourceVersion": version }, "status": status }));
        let api = self.api::<K>(namespace);
        let written = self.call(&what, api.patch_status(name, &PatchParams::default(), &patch)).await?;
        tracing::info!(kind = %K::kind(&()), name, fact = %status, "made durable");
        self.learn(written);
        Ok(())
    }

    /// A cluster is formed only when nothing of an earlier life is left. The cache may lag behind, so ask.
    async fn nothing_is_left_of(&self, key: &ClusterKey) -> Result<(), Failure> {
        self.none_exist::<StrimziPodSet>(key).await?;
        self.none_exist::<ClaimWire>(key).await
    }

    async fn none_exist<K: Indexed>(&self, key: &ClusterKey) -> Result<(), Failure> {
        let kind = K::kind(&());
        let parameters = made_for(key).limit(1);
        let api: Api<PartialObjectMeta<K>> = Api::namespaced(self.client.clone(), &key.namespace);
        let what = format!("could not look for objects of kind {kind}");
        let found = self.call(&what, api.list(&parameters)).await?;
        match found.items.first().and_then(|object| object.metadata.name.as_ref()) {
            None => Ok(()),
            Some(name) => {
                Err(Failure::Changed(format!("{kind} {name} exists, though it was not seen before")))
            }
        }
    }

    /// Takes a broker that was unregistered off the list of those that may be registered, where there is one.
    pub(crate) async fn forget_broker(&self, world: &World, node: NodeId) -> Result<(), Failure> {
        let Some(status) = registration::without(world, node) else { return Ok(()) };
        // The list as it is now: others may have been taken off it in this pass.
        let key = &world.key;
        let known = self.index.snapshot(key).kafka;
        let known = known.filter(|known| known.metadata.uid == world.kafka.metadata.uid);
        let known = known.unwrap_or_else(|| Arc::clone(&world.kafka));
        let version = known.metadata.resource_version.as_ref();
        let now = World { kafka: Arc::clone(&known), ..world.clone() };
        let status = registration::without(&now, node).unwrap_or(status);
        self.patch_fact::<Kafka>(&key.namespace, &key.name, version, &status).await
    }

    /// Writes the changed part of the status of a resource, and never into the next one of its name.
    pub(crate) async fn write_status<K: Indexed>(
        &self,
        cluster: &ClusterKey,
        name: &str,
        uid: Option<&str>,
        patch: &Value,
    ) -> Result<(), Failure> {
        let what = format!("could not write the status of {} {name}", K::kind(&()));
        let only_tells = status::only_tells(&patch["status"]);
        let mut patch = patch.clone();
        patch["metadata"] = self.only::<K>(cluster, name, uid)?;
        let api = self.api::<K>(&cluster.namespace);
        let patch = Patch::Merge(patch);
        let written = self.call(&what, api.patch_status(name, &PatchParams::default(), &patch)).await?;
        let work = self.index.answer(written);
        // It differs from what was known in what was just said, and in nothing else: that is the precondition.
        if !only_tells {
            self.queue.push(work);
        }
        Ok(())
    }

    /// Says something in the status of a `Kafka` resource that cannot be read. So cannot what is answered.
    pub(crate) async fn write_conditions(
        &self,
        cluster: &ClusterKey,
        meta: &ObjectMeta,
        conditions: &[Condition],
    ) -> Result<(), Failure> {
        let what = format!("could not write the status of Kafka {}", cluster.name);
        let only_this = json!({ "uid": meta.uid, "resourceVersion": meta.resource_version });
        let patch = Patch::Merge(json!({ "metadata": only_this, "status": { "conditions": conditions } }));
        let request = Request::new(Kafka::url_path(&(), Some(&cluster.namespace)));
        let request = request.patch_subresource("status", &cluster.name, &PatchParams::default(), &patch);
        let request = request.map_err(|error| Failure::Changed(format!("{what}: {error}")))?;
        self.call(&what, self.client.request_text(request)).await?;
        Ok(())
    }

    /// The precondition that a resource is the one that was decided on, as new as it is known. A uid would not do: in a patch of
    /// a custom resource's status it is ignored.
    pub(super) fn only<K: Indexed>(
        &self,
        cluster: &ClusterKey,
        name: &str,
        uid: Option<&str>,
    ) -> Result<Value, Failure> {
        let version = self.index.version::<K>(cluster, name, uid.unwrap_or_default());
        let version = version.ok_or_else(|| {
            Failure::Changed(format!("{} {name} is gone, or another one by now", K::kind(&())))
        })?;
        Ok(json!({ "resourceVersion": version }))
    }

    /// Writes what a pod set reports.
    pub(crate) async fn write_report(
        &self,
        cluster: &ClusterKey,
        set: &PodSetView,
        status: &StrimziPodSetStatus,
    ) -> Result<(), Failure> {
        let (meta, patch) = (&set.meta, json!({ "status": status }));
        self.write_status::<StrimziPodSet>(cluster, &meta.name, Some(&meta.uid), &patch).await
    }
}
