//! Doing what was decided: the only place that writes to Kubernetes.
//!
//! Every call has a deadline. What the API server answers goes into the index at once, so the next decision does
//! not wait for the watch to catch up.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use karst_api::{Kafka, KafkaNodePool, StrimziPodSet, StrimziPodSetStatus};
use karst_core::certificates::{Issue, Ownership, secret_object};
use karst_core::claims::Growth;
use karst_core::ids::NodeId;
use karst_core::names::{CLUSTER_LABEL, ClusterKey, KIND_LABEL, MANUAL_ROLL_ANNOTATION, POOL_FINALIZER};
use karst_core::objects::Object;
use karst_core::plan::{Fact, Mark, Protection, Removal, Seen};
use karst_core::podset::PodAction;
use karst_core::registration;
use karst_core::rolling::Restart;
use karst_core::world::{PodSetView, World};
use kube::api::{DeleteParams, ListParams, PartialObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Api, Client, Resource};
use serde_json::{Value, json};

use crate::failure::{DEADLINE, Failure};
use crate::index::{Index, Indexed};
use crate::keys;
use crate::lease::Leadership;
use crate::queue::Queue;
use crate::views::{
    AccountWire, BudgetWire, ClaimWire, ConfigMapWire, PodWire, PolicyWire, SecretWire, ServiceWire,
};

/// The name under which Karst owns fields.
const MANAGER: &str = "karst";
/// A version that no object ever has: what is written in its place can only be new.
const NEVER: &str = "1";
/// How many calls of one pass run at once.
const AT_ONCE: usize = 8;

/// The hands.
#[derive(Clone)]
pub(crate) struct Hands {
    pub(crate) client: Client,
    pub(crate) index: Arc<Index>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) leadership: Arc<Leadership>,
}

impl std::fmt::Debug for Hands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hands").finish_non_exhaustive()
    }
}

impl Hands {
    /// One call, with a deadline, and only as the leader.
    pub(crate) async fn call<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Failure> {
        if !self.leadership.holds() {
            return Err(Failure::NotLeader);
        }
        match tokio::time::timeout(DEADLINE, call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(source)) => Err(Failure::Api { what: what.to_owned(), source: Box::new(source) }),
            Err(_) => Err(Failure::Deadline { what: what.to_owned() }),
        }
    }

    pub(crate) fn api<K: Indexed>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn learn<K: Indexed>(&self, object: K) {
        self.queue.push(self.index.insert(object));
    }

    /// Writes objects: those that pods need first, the pods last, and those only when nothing before them failed.
    pub(crate) async fn write(&self, world: &World, objects: Vec<Object>) -> Vec<Failure> {
        let (pod_sets, others): (Vec<_>, Vec<_>) =
            objects.into_iter().partition(|object| matches!(object, Object::PodSet(_)));
        let failures = self.write_together(&world.key, others).await;
        if !failures.is_empty() {
            return failures;
        }
        if pod_sets.iter().any(|set| set.takes_pods_away(world))
            && let Err(failure) = self.wishes_are_as_seen(world).await
        {
            return vec![failure];
        }
        self.write_together(&world.key, pod_sets).await
    }

    /// What is hard to undo is done only for what users want now, and for the nodes that are durable now. The cache may lag behind,
    /// and another operator may know better, so ask.
    pub(crate) async fn wishes_are_as_seen(&self, world: &World) -> Result<(), Failure> {
        let key = &world.key;
        let kafkas: Api<PartialObjectMeta<Kafka>> = Api::namespaced(self.client.clone(), &key.namespace);
        let kafka =
            self.call(&format!("could not look at Kafka {}", key.name), kafkas.get_opt(&key.name)).await?;
        let of_cluster = ListParams::default().labels(&format!("{CLUSTER_LABEL}={}", key.name));
        let pools: Api<KafkaNodePool> = self.api(&key.namespace);
        let pools = self.call("could not look at the pools", pools.list(&of_cluster)).await?;
        let kafka_is_same = kafka.is_some_and(|live| wish(&live.metadata) == wish(&world.kafka.metadata));
        let seen = world.pools.values().map(|pool| nodes_of(pool));
        if kafka_is_same && pools.iter().map(nodes_of).collect::<BTreeSet<_>>() == seen.collect() {
            return Ok(());
        }
        Err(Failure::Changed(format!(
            "Kafka {} or one of its pools changed since it was looked at",
            key.name
        )))
    }

    async fn write_together(&self, key: &ClusterKey, objects: Vec<Object>) -> Vec<Failure> {
        futures::stream::iter(objects)
            .map(|object| async move { self.write_one(&key.namespace, &object).await })
            .buffer_unordered(AT_ONCE)
            .filter_map(async |result| result.err())
            .collect()
            .await
    }

    /// Writes objects of which none waits for another, and says of each what became of it.
    pub(crate) async fn write_each(
        &self,
        key: &ClusterKey,
        objects: Vec<Object>,
    ) -> Vec<(Object, Result<(), Failure>)> {
        futures::stream::iter(objects)
            .map(|object| async move {
                let outcome = self.write_one(&key.namespace, &object).await;
                (object, outcome)
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await
    }

    async fn write_one(&self, namespace: &str, object: &Object) -> Result<(), Failure> {
        match object {
            Object::ServiceAccount(account) => self.apply::<AccountWire, _>(namespace, object, account).await,
            Object::Service(service) => self.apply::<ServiceWire, _>(namespace, object, service).await,
            Object::ConfigMap(map) => self.apply::<ConfigMapWire, _>(namespace, object, map).await,
            Object::Budget(budget) => self.apply::<BudgetWire, _>(namespace, object, budget).await,
            Object::Policy(policy) => self.apply::<PolicyWire, _>(namespace, object, policy).await,
            Object::PodSet(set) => self.apply::<StrimziPodSet, _>(namespace, object, set).await,
            Object::Claim(claim) => self.apply::<ClaimWire, _>(namespace, object, claim).await,
        }
    }

    /// Writes an object in place of the one that was seen, or as a new one.
    ///
    /// A new one is applied too, and not posted: what a POST sets belongs to another field manager, and would stay when it is
    /// no longer asked for.
    async fn apply<K, B>(&self, namespace: &str, object: &Object, body: &B) -> Result<(), Failure>
    where
        K: Indexed,
        B: serde::Serialize,
    {
        let render = |source| Failure::Render { what: object.describe(), source };
        let mut body = serde_json::to_value(body).map_err(render)?;
        let is_new = object.meta().resource_version.is_none();
        if is_new {
            body["metadata"]["resourceVersion"] = json!(NEVER);
        }
        match self.patch::<K, _>(namespace, object, &Patch::Apply(&body)).await {
            Err(failure) if failure.is_conflict() => {
                let live = self.look_again::<K>(namespace, object).await?;
                let Some(version) = live.filter(|_| is_new) else { return Err(failure) };
                body["metadata"]["resourceVersion"] = json!(version);
                self.patch::<K, _>(namespace, object, &Patch::Apply(&body)).await
            }
            written => written,
        }
    }

    /// An object is not as it was seen. If it is the cluster's, the next decision sees it as it is. One that is not labelled as
    /// the cluster's was never seen, and is taken over: returns its version.
    async fn look_again<K: Indexed>(
        &self,
        namespace: &str,
        object: &Object,
    ) -> Result<Option<String>, Failure> {
        let name = object.meta().name.as_deref().unwrap_or_default();
        let api = self.api::<K>(namespace);
        let live = self.call(&format!("could not look at {}", object.describe()), api.get_opt(name)).await?;
        Ok(live.and_then(|live| {
            let is_ours = K::cluster(live.meta()) == K::cluster(object.meta());
            let version = live.meta().resource_version.clone().filter(|_| !is_ours);
            self.learn(live);
            version
        }))
    }

    async fn patch<K, B>(&self, namespace: &str, object: &Object, patch: &Patch<B>) -> Result<(), Failure>
    where
        K: Indexed,
        B: serde::Serialize + std::fmt::Debug,
    {
        let name = object.meta().name.as_deref().unwrap_or_default();
        let what = format!("could not write {}", object.describe());
        let parameters = match patch {
            Patch::Apply(_) => PatchParams::apply(MANAGER).force(),
            _ => PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() },
        };
        let api = self.api::<K>(namespace);
        let written = self.call(&what, api.patch(name, &parameters, patch)).await?;
        tracing::debug!(object = %object.describe(), "written");
        self.learn(written);
        Ok(())
    }

    /// Makes keys and certificates and writes them: what belongs together in its order, the rest at once.
    pub(crate) async fn certify(&self, world: &World, issues: &[Issue]) -> Vec<Failure> {
        let mut failures = Vec::new();
        for some in issues.chunks(2 * AT_ONCE) {
            let written = some.iter().map(|issue| self.write_certificates(world, issue));
            failures.extend(futures::future::join_all(written).await.into_iter().filter_map(Result::err));
        }
        failures
    }

    async fn write_certificates(&self, world: &World, issue: &Issue) -> Result<(), Failure> {
        let made = keys::make(issue, world.now).await;
        let made = made.map_err(|source| Failure::Certificate { what: issue.to_string(), source })?;
        for write in made {
            let secret = secret_object(world, issue.pool(), write);
            self.write_secret(&world.key, secret).await?;
        }
        tracing::debug!(cluster = %world.key, "{issue}");
        Ok(())
    }

    /// Writes a Secret as a whole: a new one, or in place of the one that was seen.
    async fn write_secret(&self, key: &ClusterKey, secret: Secret) -> Result<(), Failure> {
        let name = secret.metadata.name.clone().unwrap_or_default();
        let what = format!("could not write Secret {name}");
        let is_new = secret.metadata.resource_version.is_none();
        let body =
            serde_json::to_vec(&secret).map_err(|source| Failure::Render { what: what.clone(), source })?;
        let request = Request::new(SecretWire::url_path(&(), Some(&key.namespace)));
        let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let request = if is_new {
            request.create(&parameters, body)
        } else {
            request.replace(&name, &parameters, body)
        };
        let request = request.map_err(|error| Failure::Changed(format!("{what}: {error}")))?;
        match self.call::<SecretWire>(&what, self.client.request(request)).await {
            // One that is labelled as ours would have been seen.
            Err(failure) if is_new && failure.is_conflict() => Err(Failure::Unlabelled(name)),
            Err(failure) => Err(failure),
            Ok(written) => {
                self.learn(written);
                Ok(())
            }
        }
    }

    /// Makes a Secret go with another resource, or with none.
    pub(crate) async fn own(&self, key: &ClusterKey, ownership: &Ownership) -> Result<(), Failure> {
        let Ownership { secret, uid, owners } = ownership;
        let patch = Patch::Merge(json!({ "metadata": { "uid": uid, "ownerReferences": owners } }));
        let api: Api<SecretWire> = self.api(&key.namespace);
        let what = format!("could not change the owner of Secret {secret}");
        let patched = self.call(&what, api.patch(secret, &PatchParams::default(), &patch)).await?;
        self.learn(patched);
        Ok(())
    }

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
        let labels = format!("{CLUSTER_LABEL}={},{KIND_LABEL}=Kafka", key.name);
        let parameters = ListParams::default().labels(&labels).limit(1);
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
        let known = self.index.snapshot(key).kafka.unwrap_or_else(|| Arc::clone(&world.kafka));
        let version = known.metadata.resource_version.as_ref();
        let now = World { kafka: Arc::clone(&known), ..world.clone() };
        let status = registration::without(&now, node).unwrap_or(status);
        self.patch_fact::<Kafka>(&key.namespace, &key.name, version, &status).await
    }

    /// Writes the changed part of a status.
    pub(crate) async fn write_status<K: Indexed>(
        &self,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<(), Failure> {
        let what = format!("could not write the status of {} {name}", K::kind(&()));
        let api = self.api::<K>(namespace);
        let patch = Patch::Merge(patch);
        let written = self.call(&what, api.patch_status(name, &PatchParams::default(), &patch)).await?;
        self.learn(written);
        Ok(())
    }

    /// Writes what a pod set reports.
    pub(crate) async fn write_report(
        &self,
        namespace: &str,
        set: &PodSetView,
        status: &StrimziPodSetStatus,
    ) -> Result<(), Failure> {
        self.write_status::<StrimziPodSet>(namespace, &set.meta.name, &json!({ "status": status })).await
    }

    /// Deletes an object that is no longer wanted, if it is still the one that was seen.
    pub(crate) async fn remove(&self, key: &ClusterKey, removal: &Removal) -> Result<(), Failure> {
        match removal {
            Removal::ConfigMap(seen) => self.delete_seen::<ConfigMapWire>(key, seen).await,
            Removal::Secret(seen) => self.delete_seen::<SecretWire>(key, seen).await,
            Removal::Service(seen) => self.delete_seen::<ServiceWire>(key, seen).await,
            Removal::PodSet(seen) => self.delete_seen::<StrimziPodSet>(key, seen).await,
            Removal::Claim { claim, pod } => {
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

    async fn delete<K: Indexed>(&self, namespace: &str, name: &str, uid: &str) -> Result<(), Failure> {
        let only_this = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        self.delete_only::<K>(namespace, name, only_this).await
    }

    async fn delete_only<K: Indexed>(
        &self,
        namespace: &str,
        name: &str,
        only_this: Preconditions,
    ) -> Result<(), Failure> {
        let kind = K::kind(&());
        tracing::info!(%kind, name, "deleting what is no longer wanted");
        let parameters = DeleteParams { preconditions: Some(only_this), ..DeleteParams::background() };
        let api = self.api::<K>(namespace);
        let what = format!("could not delete {kind} {name}");
        match self.call(&what, api.delete(name, &parameters)).await {
            Err(failure) if failure.is_missing() => Ok(()),
            result => result.map(drop),
        }
    }

    /// Replaces a pod: it is deleted, and its pod set makes another. Disks that are to go with it go first: they
    /// are only gone when the pod is.
    pub(crate) async fn restart(&self, key: &ClusterKey, restart: &Restart) -> Result<(), Failure> {
        if !restart.claims.is_empty() {
            self.is_there(key, &restart.pod, &restart.uid).await?;
        }
        for (claim, uid) in &restart.claims {
            self.delete::<ClaimWire>(&key.namespace, claim, uid).await?;
        }
        self.delete::<PodWire>(&key.namespace, &restart.pod, &restart.uid).await?;
        self.index.mark_deleting(key, &restart.pod, &restart.uid);
        Ok(())
    }

    /// Empty disks are for the pod that was to have them, and not for the one that has them already: the cache may lag behind, so
    /// ask.
    async fn is_there(&self, key: &ClusterKey, pod: &str, uid: &str) -> Result<(), Failure> {
        let api: Api<PartialObjectMeta<Pod>> = Api::namespaced(self.client.clone(), &key.namespace);
        let found = self.call("could not look for a pod", api.get_opt(pod)).await?;
        let is_same =
            |meta: &ObjectMeta| meta.uid.as_deref() == Some(uid) && meta.deletion_timestamp.is_none();
        if found.is_some_and(|found| is_same(&found.metadata)) {
            return Ok(());
        }
        Err(Failure::Changed(format!("pod {pod} is another one by now, and its disks stay")))
    }

    /// Passes the wish of a pod set's annotation on to its pods, and removes it when all have it.
    pub(crate) async fn mark(&self, key: &ClusterKey, mark: &Mark) -> Result<(), Failure> {
        let annotate =
            |value: Value| json!({ "metadata": { "annotations": { MANUAL_ROLL_ANNOTATION: value } } });
        for (pod, uid) in &mark.pods {
            let mut patch = annotate(json!("true"));
            patch["metadata"]["uid"] = json!(uid);
            let what = format!("could not mark pod {pod} for a restart");
            let api: Api<PodWire> = self.api(&key.namespace);
            let patched =
                self.call(&what, api.patch(pod, &PatchParams::default(), &Patch::Merge(&patch))).await?;
            self.learn(patched);
        }
        let what = format!("could not change the annotations of StrimziPodSet {}", mark.pod_set);
        let patch = annotate(Value::Null);
        let api: Api<StrimziPodSet> = self.api(&key.namespace);
        let patched = self
            .call(&what, api.patch(&mark.pod_set, &PatchParams::default(), &Patch::Merge(&patch)))
            .await?;
        self.learn(patched);
        Ok(())
    }

    /// Removes an annotation of the `Kafka` resource that has served its purpose.
    pub(crate) async fn forget_annotation(&self, key: &ClusterKey, annotation: &str) -> Result<(), Failure> {
        let what = format!("could not remove the annotation {annotation} of Kafka {}", key.name);
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { annotation: null } } }));
        let api: Api<Kafka> = self.api(&key.namespace);
        let patched = self.call(&what, api.patch(&key.name, &PatchParams::default(), &patch)).await?;
        self.learn(patched);
        Ok(())
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

    /// Lets a claim grow.
    pub(crate) async fn grow(&self, key: &ClusterKey, growth: &Growth) -> Result<(), Failure> {
        let Growth { claim, uid, size } = growth;
        let what = format!("could not grow PersistentVolumeClaim {claim} to {size}");
        let requests = json!({ "requests": { "storage": size } });
        let patch = json!({ "metadata": { "uid": uid }, "spec": { "resources": requests } });
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let api = self.api::<ClaimWire>(&key.namespace);
        let grown = self.call(&what, api.patch(claim, &parameters, &Patch::Merge(patch))).await?;
        tracing::info!(%claim, %size, "asked Kubernetes for a larger volume");
        self.learn(grown);
        Ok(())
    }

    /// Makes a pool's deletion wait for its nodes, or no longer.
    pub(crate) async fn protect(
        &self,
        namespace: &str,
        pool: &KafkaNodePool,
        protection: Protection,
    ) -> Result<(), Failure> {
        let meta = pool.meta();
        let name = meta.name.as_deref().unwrap_or_default();
        let mut finalizers = meta.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != POOL_FINALIZER);
        if protection == Protection::Add {
            finalizers.push(POOL_FINALIZER.to_owned());
        }
        let patch =
            json!({ "metadata": { "resourceVersion": meta.resource_version, "finalizers": finalizers } });
        let api = self.api::<KafkaNodePool>(namespace);
        let what = format!("could not change the finalizers of KafkaNodePool {name}");
        match self.call(&what, api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await {
            Err(failure) if failure.is_missing() => Ok(()),
            Err(failure) => Err(failure),
            Ok(patched) if patched.metadata.deletion_timestamp.is_none() => {
                self.learn(patched);
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    /// Does one thing for a pod set.
    pub(crate) async fn handle_pod(
        &self,
        namespace: &str,
        set: &PodSetView,
        action: &PodAction,
    ) -> Result<(), Failure> {
        match action {
            PodAction::Create { name, pod } => self.create_pod(namespace, set, name, pod).await,
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
            PodAction::Replace { name, uid, phase } => {
                tracing::info!(pod = %name, %phase, "a pod that will not run makes place for a new one");
                self.delete::<PodWire>(namespace, name, uid).await
            }
        }
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
        namespace: &str,
        set: &PodSetView,
        name: &str,
        pod: &str,
    ) -> Result<(), Failure> {
        let what = format!("could not create pod {name}");
        let render = |source| Failure::Render { what: format!("pod {name}"), source };
        let mut pod: Value = serde_json::from_str(pod).map_err(render)?;
        pod["metadata"]["ownerReferences"] = json!([owner(set)]);
        let body = serde_json::to_vec(&pod).map_err(render)?;
        let request = Request::new(PodWire::url_path(&(), Some(namespace)))
            .create(&PostParams::default(), body)
            .map_err(|error| Failure::Changed(format!("{what}: {error}")))?;
        let created: PodWire = self.call(&what, self.client.request(request)).await?;
        tracing::info!(pod = %name, "created");
        self.learn(created);
        Ok(())
    }
}

/// Which resource it is, and which of its specs.
fn wish(meta: &ObjectMeta) -> (Option<&String>, Option<i64>, bool) {
    (meta.uid.as_ref(), meta.generation, meta.deletion_timestamp.is_some())
}

/// What is wanted of a pool, and the nodes it has.
fn nodes_of(pool: &KafkaNodePool) -> (Option<&String>, Option<i64>, bool, Option<&Vec<i32>>) {
    let (uid, generation, is_going) = wish(pool.meta());
    let nodes = pool.status.as_ref().and_then(|status| status.node_ids.as_ref());
    (uid, generation, is_going, nodes)
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
