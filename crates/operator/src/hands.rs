//! Doing what was decided: the only place that writes to Kubernetes.
//!
//! Every call has a deadline. What the API server answers goes into the index at once, so the next decision does
//! not wait for the watch to catch up.

pub(crate) mod confirmed;
mod facts;
mod pods;
mod removals;
mod secrets;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use karst_api::{Kafka, KafkaNodePool, StrimziPodSet};
use karst_core::claims::Growth;
use karst_core::ids::NodeId;
use karst_core::names::{
    ALLOW_LOSS_ANNOTATION, CLUSTER_LABEL, ClusterKey, EMPTIED_ANNOTATION, KIND_LABEL, MANUAL_ROLL_ANNOTATION,
    POOL_FINALIZER, safety_of_kafka, safety_of_pool,
};
use karst_core::objects::Object;
use karst_core::plan::{Mark, Protection};
use karst_core::world::{PodView, World};
use karst_core::{stored, strangers};
use kube::api::{ApiResource, DynamicObject, ListParams, ObjectList, PartialObjectMeta, Patch, PatchParams};
use kube::{Api, Client, Resource};
use serde_json::{Value, json};
use tokio::time::Instant;

use self::confirmed::Confirmed;
use crate::failure::{DEADLINE, Failure};
use crate::heartbeats::{Heartbeats, Part};
use crate::index::{Index, Indexed};
use crate::keys::Keys;
use crate::lease::Leadership;
use crate::memories::Memories;
use crate::queue::Queue;
use crate::views::{
    AccountWire, BudgetWire, ClaimWire, ConfigMapWire, PodWire, PolicyWire, ServiceWire, Watched,
};

/// The name under which Karst owns fields.
const MANAGER: &str = "karst";
/// A version that no object ever has: what is written in its place can only be new.
const NEVER: &str = "1";
/// How many calls of one pass run at once.
const AT_ONCE: usize = 8;
/// A call that fails after this long keeps others of its kind from being begun.
const LONG: Duration = Duration::from_secs(2);

/// The hands.
#[derive(Clone)]
pub(crate) struct Hands {
    pub(crate) client: Client,
    pub(crate) index: Arc<Index>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) leadership: Arc<Leadership>,
    pub(crate) heartbeats: Arc<Heartbeats>,
    pub(crate) confirmed: Arc<Confirmed>,
    pub(crate) memories: Arc<Memories>,
    pub(crate) keys: Keys,
}

impl std::fmt::Debug for Hands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hands").finish_non_exhaustive()
    }
}

impl Hands {
    /// One call, only as the leader, and with a deadline before which nobody else can be that.
    pub(crate) async fn call<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Failure> {
        let Some(after) = self.leadership.time_for(DEADLINE) else { return Err(Failure::NotLeader) };
        let outcome = tokio::time::timeout(after, call).await;
        self.heartbeats.beat(Part::Work);
        match outcome {
            // The machine slept, and somebody else may lead.
            _ if !self.leadership.is_exclusive() => Err(Failure::NotLeader),
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(source)) => Err(Failure::Api { what: what.to_owned(), source: Box::new(source) }),
            Err(_) => Err(Failure::Deadline { what: what.to_owned(), after }),
        }
    }

    pub(crate) fn api<K: Indexed>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn learn<K: Indexed>(&self, object: K) {
        self.queue.push(self.index.answer(object));
    }

    /// Writes objects: those that pods need first, the pods last, and those only when nothing before them failed.
    pub(crate) async fn write(&self, world: &World, objects: Vec<Object>) -> Vec<Failure> {
        let (pod_sets, others): (Vec<_>, Vec<_>) =
            objects.into_iter().partition(|object| matches!(object, Object::PodSet(_)));
        let failures = self.write_for_wishes(world, others).await;
        if !failures.is_empty() {
            return failures;
        }
        self.write_for_wishes(world, pod_sets).await
    }

    async fn write_for_wishes(&self, world: &World, objects: Vec<Object>) -> Vec<Failure> {
        if objects.iter().any(|object| object.is_hard_to_undo(world))
            && let Err(failure) = self.wishes_are_as_seen(world).await
        {
            return vec![failure];
        }
        self.write_together(world, objects).await
    }

    /// What is hard to undo is done only for what users want now, and for the nodes that are durable now. The cache may lag behind,
    /// and another operator may know better, so ask.
    pub(crate) async fn wishes_are_as_seen(&self, world: &World) -> Result<(), Failure> {
        let key = &world.key;
        let kafkas: Api<PartialObjectMeta<Kafka>> = Api::namespaced(self.client.clone(), &key.namespace);
        let kafka =
            self.call(&format!("could not look at Kafka {}", key.name), kafkas.get_opt(&key.name)).await?;
        let pools = self.live_pools(key).await?;
        let kafka_is_same =
            kafka.is_some_and(|live| wish_of_kafka(&live.metadata) == wish_of_kafka(&world.kafka.metadata));
        let seen = world.pools.values().map(|pool| nodes_of(pool));
        if kafka_is_same && pools.iter().map(nodes_of).collect::<BTreeSet<_>>() == seen.collect() {
            return Ok(());
        }
        Err(Failure::Changed(format!(
            "Kafka {} or one of its pools changed since it was looked at",
            key.name
        )))
    }

    /// What depends on who is up is done only if those are up who were seen to be. The cache may lag behind, and another operator may
    /// have been here, so ask.
    pub(crate) async fn pods_are_as_seen(&self, world: &World) -> Result<(), Failure> {
        let live = self.live_pods(&world.key).await?;
        if world.has_just_these_pods(&live) { Ok(()) } else { Err(pods_changed(&world.key)) }
    }

    /// A disk gets a vote only while its pod is there, and gives it up only to go with that. Another operator may be replacing the pod, so
    /// ask.
    pub(crate) async fn still_has_pod_of(&self, world: &World, node: NodeId) -> Result<(), Failure> {
        let live = self.live_pods(&world.key).await?;
        if world.still_has_pod_of(node, &live) { Ok(()) } else { Err(pods_changed(&world.key)) }
    }

    async fn live_pods(&self, key: &ClusterKey) -> Result<Vec<PodView>, Failure> {
        let pods: Api<PodWire> = self.api(&key.namespace);
        let live = self.call("could not look at the pods", pods.list(&made_for(key))).await?;
        let views = live.iter().map(|pod| pod.clone().view()).collect();
        for pod in live {
            self.learn(pod);
        }
        Ok(views)
    }

    /// Nothing is made for a pool that is gone: nobody would remove it. The cache may lag behind, so ask: for each one by itself,
    /// because a list waits until the API server's own cache is up to date, up to a tenth of a second.
    pub(crate) async fn pools_exist(&self, world: &World, pools: &BTreeSet<&str>) -> Result<(), Failure> {
        let is_sure = |pool: &&Arc<KafkaNodePool>| {
            pool.meta().uid.as_deref().is_some_and(|uid| self.confirmed.is_there(uid))
        };
        let seen = pools.iter().filter_map(|name| world.pools.get(*name)).filter(|pool| !is_sure(pool));
        let looked =
            few_at_once(seen.map(|pool| self.exists(&world.key, pool)).collect(), Result::is_err).await;
        looked.into_iter().collect()
    }

    async fn exists(&self, key: &ClusterKey, pool: &KafkaNodePool) -> Result<(), Failure> {
        let (name, uid) = (pool.meta().name.as_deref().unwrap_or_default(), &pool.meta().uid);
        let api: Api<PartialObjectMeta<KafkaNodePool>> = Api::namespaced(self.client.clone(), &key.namespace);
        let live = self.call(&format!("could not look at KafkaNodePool {name}"), api.get_opt(name)).await?;
        if let Some(live) = live.filter(|live| live.metadata.uid == *uid) {
            self.confirmed.pool(&live.metadata);
            return Ok(());
        }
        Err(Failure::Changed(format!("KafkaNodePool {name} is gone since it was looked at")))
    }

    /// Is there a `Kafka` resource, whatever its labels are?
    pub(crate) async fn has_kafka(&self, key: &ClusterKey) -> Result<bool, Failure> {
        let kafkas: Api<PartialObjectMeta<Kafka>> = Api::namespaced(self.client.clone(), &key.namespace);
        let what = format!("could not look at Kafka {}", key.name);
        Ok(self.call(&what, kafkas.get_opt(&key.name)).await?.is_some())
    }

    async fn live_pools(&self, key: &ClusterKey) -> Result<ObjectList<KafkaNodePool>, Failure> {
        let of_cluster = ListParams::default().labels(&format!("{CLUSTER_LABEL}={}", key.name));
        let pools: Api<KafkaNodePool> = self.api(&key.namespace);
        self.call("could not look at the pools", pools.list(&of_cluster)).await
    }

    async fn write_together(&self, world: &World, objects: Vec<Object>) -> Vec<Failure> {
        let writes = objects.into_iter().map(|object| async move { self.write_one(world, &object).await });
        few_at_once(writes.collect(), Result::is_err).await.into_iter().filter_map(Result::err).collect()
    }

    /// Writes objects of which none waits for another, and says of each what became of it.
    pub(crate) async fn write_each(
        &self,
        world: &World,
        objects: Vec<Object>,
    ) -> Vec<(Object, Result<(), Failure>)> {
        let writes = objects.into_iter().map(|object| async move {
            let outcome = self.write_one(world, &object).await;
            (object, outcome)
        });
        few_at_once(writes.collect(), |(_, outcome)| outcome.is_err()).await
    }

    async fn write_one(&self, world: &World, object: &Object) -> Result<(), Failure> {
        if let Some(owner) = strangers::owner_of_seen(world, object) {
            return Err(Failure::Foreign { object: object.describe(), owner });
        }
        let difference = self.difference(world, object).await?;
        match object {
            Object::ServiceAccount(account) => self.apply::<AccountWire, _>(world, object, account).await,
            Object::Service(service) => self.apply::<ServiceWire, _>(world, object, service).await,
            Object::ConfigMap(map) => self.apply::<ConfigMapWire, _>(world, object, map).await,
            Object::Budget(budget) => self.apply::<BudgetWire, _>(world, object, budget).await,
            Object::Policy(policy) => self.apply::<PolicyWire, _>(world, object, policy).await,
            Object::PodSet(set) => {
                let written = self.apply::<StrimziPodSet, _>(world, object, set).await?;
                self.confirmed.pod_set(&written);
                Ok(written)
            }
            Object::Claim(claim) => self.apply::<ClaimWire, _>(world, object, claim).await,
        }?;
        self.remember_rewrite(world, object, difference)
    }

    /// Remembers that this was written, and taken.
    fn remember_rewrite(
        &self,
        world: &World,
        object: &Object,
        difference: Option<String>,
    ) -> Result<(), Failure> {
        let rewrite = world.memory.rewrite(object, world.now, difference);
        let rewrite = rewrite.map_err(|source| Failure::Render { what: object.describe(), source })?;
        self.memories.change(&world.key, |memory| memory.wrote(object, rewrite));
        Ok(())
    }

    /// What is different in an object that was written lately and is not as it was written, and who changed it last. For people:
    /// without an answer it is written all the same.
    async fn difference(&self, world: &World, object: &Object) -> Result<Option<String>, Failure> {
        let render = |source| Failure::Render { what: object.describe(), source };
        let known = world.memory.rewrites.get(&object.describe());
        if !known.is_some_and(|known| known.is_of(object).is_ok_and(|is_again| is_again)) {
            return Ok(None);
        }
        let resource = match object {
            Object::ServiceAccount(_) => ApiResource::erase::<AccountWire>(&()),
            Object::Service(_) => ApiResource::erase::<ServiceWire>(&()),
            Object::ConfigMap(_) => ApiResource::erase::<ConfigMapWire>(&()),
            Object::Budget(_) => ApiResource::erase::<BudgetWire>(&()),
            Object::Policy(_) => ApiResource::erase::<PolicyWire>(&()),
            Object::PodSet(_) => ApiResource::erase::<StrimziPodSet>(&()),
            Object::Claim(_) => ApiResource::erase::<ClaimWire>(&()),
        };
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &world.key.namespace, &resource);
        let name = object.meta().name.as_deref().unwrap_or_default();
        let what = format!("could not look at {}", object.describe());
        let live = match self.call(&what, api.get_opt(name)).await {
            Ok(live) => live,
            Err(Failure::NotLeader) => return Err(Failure::NotLeader),
            Err(_) => return Ok(None),
        };
        let Some(live) = live else { return Ok(Some("all of it: it was deleted".to_owned())) };
        let by = last_manager(&live.metadata).map(|by| format!(" (changed last by \"{by}\")"));
        let field = stored::first_difference(
            &object.to_json().map_err(render)?,
            &serde_json::to_value(&live).map_err(render)?,
        );
        Ok(field.map(|field| field + &by.unwrap_or_default()))
    }

    /// Writes an object in place of the one that was seen, or as a new one.
    ///
    /// A new one is applied too, and not posted: what a POST sets belongs to another field manager, and would stay when it is
    /// no longer asked for.
    async fn apply<K, B>(&self, world: &World, object: &Object, body: &B) -> Result<ObjectMeta, Failure>
    where
        K: Indexed,
        B: serde::Serialize,
    {
        let namespace = &world.key.namespace;
        let render = |source| Failure::Render { what: object.describe(), source };
        let mut body = serde_json::to_value(body).map_err(render)?;
        let is_new = object.meta().resource_version.is_none();
        if is_new {
            body["metadata"]["resourceVersion"] = json!(NEVER);
        }
        match self.patch::<K, _>(namespace, object, &Patch::Apply(&body)).await {
            Err(failure) if failure.is_conflict() => {
                let live = self.look_again::<K>(world, object).await?;
                let Some(version) = live.filter(|_| is_new) else { return Err(failure) };
                body["metadata"]["resourceVersion"] = json!(version);
                self.patch::<K, _>(namespace, object, &Patch::Apply(&body)).await
            }
            written => written,
        }
    }

    /// An object is not as it was seen. If it is labelled as the cluster's, the next decision sees it as it is. One that is not was
    /// never seen: it gets its labels back if it is the cluster's all the same (returns its version), and is left alone if it is
    /// not.
    async fn look_again<K: Indexed>(
        &self,
        world: &World,
        object: &Object,
    ) -> Result<Option<String>, Failure> {
        let name = object.meta().name.as_deref().unwrap_or_default();
        let api = self.api::<K>(&world.key.namespace);
        let live = self.call(&format!("could not look at {}", object.describe()), api.get_opt(name)).await?;
        let Some(live) = live else { return Ok(None) };
        let found = found(world, live.meta(), object.describe())?;
        if found.is_none() {
            self.learn(live);
        }
        Ok(found)
    }

    /// Returns what was written, as the API server has it.
    async fn patch<K, B>(
        &self,
        namespace: &str,
        object: &Object,
        patch: &Patch<B>,
    ) -> Result<ObjectMeta, Failure>
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
        let meta = written.meta().clone();
        self.learn(written);
        Ok(meta)
    }

    /// Writes on a claim that the pod which had it last was seen to have nothing there. Not before that pod was told to stop: it could
    /// go on to fill it. Should this fail, the claim stays, and a person is told.
    pub(crate) async fn note_empty(
        &self,
        key: &ClusterKey,
        claim: &str,
        uid: &str,
        pod_uid: &str,
    ) -> Result<(), Failure> {
        let only_this = json!({ "uid": uid, "annotations": { EMPTIED_ANNOTATION: pod_uid } });
        let patch = Patch::Merge(json!({ "metadata": only_this }));
        let what = format!("could not note that PersistentVolumeClaim {claim} is empty");
        let api: Api<ClaimWire> = self.api(&key.namespace);
        match self.call(&what, api.patch(claim, &PatchParams::default(), &patch)).await {
            Err(failure) if failure.is_missing() => Ok(()),
            noted => noted.map(|noted| self.learn(noted)),
        }
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

    /// That nothing is left to lose is known only of the claims that there are now. The cache may lag behind, so ask.
    async fn claims_are_as_seen(&self, world: &World) -> Result<(), Failure> {
        let key = &world.key;
        let claims: Api<ClaimWire> = self.api(&key.namespace);
        let live =
            self.call("could not look at the PersistentVolumeClaims", claims.list(&made_for(key))).await?;
        let views: Vec<_> = live.iter().map(|claim| claim.clone().view()).collect();
        for claim in live {
            self.learn(claim);
        }
        if world.has_just_these_claims(&views) {
            return Ok(());
        }
        Err(Failure::Changed(format!("the claims of Kafka {} changed since they were looked at", key.name)))
    }

    /// Removes an annotation of the `Kafka` resource that has served its purpose. What a person allows to be lost may be something that
    /// was not seen yet.
    pub(crate) async fn forget_annotation(&self, world: &World, annotation: &str) -> Result<(), Failure> {
        let key = &world.key;
        if annotation == ALLOW_LOSS_ANNOTATION {
            self.pods_are_as_seen(world).await?;
            self.claims_are_as_seen(world).await?;
        }
        let what = format!("could not remove the annotation {annotation} of Kafka {}", key.name);
        let mut meta = self.only::<Kafka>(key, &key.name, world.kafka.metadata.uid.as_deref())?;
        meta["annotations"] = json!({ annotation: null });
        let patch = Patch::Merge(json!({ "metadata": meta }));
        let api: Api<Kafka> = self.api(&key.namespace);
        let patched = self.call(&what, api.patch(&key.name, &PatchParams::default(), &patch)).await?;
        self.learn(patched);
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
        let patched =
            self.call(&what, api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await?;
        self.confirmed.pool(&patched.metadata);
        if patched.metadata.deletion_timestamp.is_none() {
            self.learn(patched);
        }
        Ok(())
    }
}

/// Makes calls, a few at once. When one fails for which the API server let us wait, no other is begun: each would wait as long, and
/// what is not begun is due in the next pass all the same.
pub(crate) async fn few_at_once<F: Future>(calls: Vec<F>, failed: fn(&F::Output) -> bool) -> Vec<F::Output> {
    let (mut due, mut running) = (calls.into_iter(), FuturesUnordered::new());
    let (mut ended, mut lets_wait) = (Vec::new(), false);
    loop {
        if !lets_wait {
            running.extend(due.by_ref().take(AT_ONCE - running.len()).map(timed));
        }
        let Some((outcome, time)) = running.next().await else { return ended };
        lets_wait |= time >= LONG && failed(&outcome);
        ended.push(outcome);
    }
}

async fn timed<F: Future>(call: F) -> (F::Output, Duration) {
    let began = Instant::now();
    (call.await, began.elapsed())
}

/// Who wrote fields of an object last, besides Karst. What a policy changes while Karst writes counts as Karst's.
fn last_manager(meta: &ObjectMeta) -> Option<String> {
    let others = meta.managed_fields.iter().flatten();
    let others = others.filter(|entry| entry.subresource.as_deref().unwrap_or_default().is_empty());
    let others = others.filter(|entry| entry.manager.as_deref() != Some(MANAGER));
    others.max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?.manager.clone()
}

fn pods_changed(key: &ClusterKey) -> Failure {
    Failure::Changed(format!("the pods of Kafka {} changed since they were looked at", key.name))
}

/// Selects what is made for a cluster.
fn made_for(key: &ClusterKey) -> ListParams {
    ListParams::default().labels(&format!("{CLUSTER_LABEL}={},{KIND_LABEL}=Kafka", key.name))
}

/// What an object is that was not seen, and has the name of one that is to be made: none, when it is labelled as the cluster's,
/// or else the version of one that lost its labels. That of somebody else is a failure.
fn found(world: &World, live: &ObjectMeta, object: String) -> Result<Option<String>, Failure> {
    match strangers::owner(world, live) {
        Some(owner) => Err(Failure::Foreign { object, owner }),
        None if strangers::is_labelled(&world.key, live) => Ok(None),
        None => Ok(live.resource_version.clone()),
    }
}

/// What is wanted of a resource: which one it is, which of its specs, whether it goes, and what its annotations say of safety.
type Wish<'a> = (Option<&'a String>, Option<i64>, bool, Vec<Option<&'a String>>);

fn wish<'a>(meta: &'a ObjectMeta, safety: Vec<Option<&'a String>>) -> Wish<'a> {
    (meta.uid.as_ref(), meta.generation, meta.deletion_timestamp.is_some(), safety)
}

fn wish_of_kafka(meta: &ObjectMeta) -> Wish<'_> {
    wish(meta, safety_of_kafka(meta.annotations.as_ref()))
}

/// What is wanted of a pool, and the nodes it has.
fn nodes_of(pool: &KafkaNodePool) -> (Wish<'_>, Option<&Vec<i32>>) {
    let meta = pool.meta();
    let nodes = pool.status.as_ref().and_then(|status| status.node_ids.as_ref());
    (wish(meta, safety_of_pool(meta.annotations.as_ref())), nodes)
}

#[cfg(test)]
pub(crate) mod tests;
