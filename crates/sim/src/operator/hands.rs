//! What the operator writes and deletes: one call each, under the preconditions of the real one.

use std::collections::BTreeSet;
use std::sync::Arc;

use karst_api::{Kafka, KafkaNodePool};
use karst_core::certificates::{Issue, Ownership, secret_object};
use karst_core::claims::Growth;
use karst_core::names::{
    ALLOW_LOSS_ANNOTATION, MANUAL_ROLL_ANNOTATION, POOL_FINALIZER, safety_of_kafka, safety_of_pool,
};
use karst_core::objects::Object;
use karst_core::plan::{Fact, Mark, Protection, Removal, Seen};
use karst_core::rewrites::Rewrite;
use karst_core::rolling::{Cause, Restart};
use karst_core::world::World;
use karst_core::{status, strangers};
use serde_json::Value;

use super::{Called, End, Failure, Operator};
use crate::invariants::Stop;
use crate::kubernetes::{Item, Kind, Stored, kind_of};
use crate::sim::{Sim, timestamp};

impl Operator {
    pub(super) fn write_fact(&mut self, sim: &mut Sim, world: &World, fact: &Fact) -> Called<()> {
        match fact {
            Fact::PoolNodes { pool, status } | Fact::PoolCluster { pool, status } => {
                let Some(resource) = world.pools.get(pool) else { return Ok(()) };
                let version = resource.metadata.resource_version.as_deref();
                self.patch_fact(sim, Kind::Pool, pool, version, status)
            }
            Fact::PoolProtected { pool } => self.protect(sim, world, pool, Protection::Add),
            Fact::Identity { forms: true, .. } if sim.api.has_remains() => Err(End::Failed(Failure::Changed)),
            Fact::Identity { status, .. } | Fact::Registered { status } => {
                let version = world.kafka.metadata.resource_version.as_deref();
                self.patch_fact(sim, Kind::Kafka, &world.key.name, version, status)
            }
        }
    }

    pub(super) fn patch_fact(
        &mut self,
        sim: &mut Sim,
        kind: Kind,
        name: &str,
        version: Option<&str>,
        status: &Value,
    ) -> Called<()> {
        let written = self.call(
            sim,
            || format!("makes durable {kind:?} {name}: {status}"),
            |sim| sim.api.patch_status(kind, name, version, status).map_err(Failure::from),
        )?;
        self.learn(written, sim);
        Ok(())
    }

    /// Makes what is asked for of keys and certificates, and goes on after a failure.
    pub(super) fn certify(
        &mut self,
        sim: &mut Sim,
        world: &World,
        issues: &[Issue],
        failures: &mut Vec<Failure>,
    ) -> Called<()> {
        for issue in issues {
            self.note(failures, |own| own.write_certificates(sim, world, issue))?;
        }
        Ok(())
    }

    /// Of several Secrets that belong together none is written after one that could not be.
    fn write_certificates(&mut self, sim: &mut Sim, world: &World, issue: &Issue) -> Called<()> {
        let Some(made) = self.mint.make(issue, sim.api.lost_secrets) else {
            sim.fail(format!("could not be made: {issue}"));
            return Ok(());
        };
        for write in made {
            let secret = secret_object(world, issue.pool(), write);
            let name = secret.metadata.name.clone().unwrap_or_default();
            let written = self.call(
                sim,
                || format!("writes Secret {name}: {issue}"),
                |sim| sim.api.write_secret(secret).map_err(Failure::from),
            )?;
            self.learn(written, sim);
        }
        let (name, rewrite) = Rewrite::after_issue(world, issue, None);
        self.memory.rewrites.insert(name, rewrite);
        Ok(())
    }

    pub(super) fn own(&mut self, sim: &mut Sim, ownership: &Ownership) -> Called<()> {
        let Ownership { secret, uid, owners } = ownership;
        let owners = owners.iter().map(|owner| owner.uid.clone()).collect();
        let owned = self.call(
            sim,
            || format!("gives Secret {secret} another owner"),
            |sim| sim.api.own(secret, uid, owners).map_err(Failure::from),
        )?;
        self.learn(owned, sim);
        Ok(())
    }

    pub(super) fn grow(&mut self, sim: &mut Sim, growth: &Growth) -> Called<()> {
        let Growth { claim, uid, size } = growth;
        let grown = self.call(
            sim,
            || format!("grows claim {claim} to {size}"),
            |sim| {
                let grown = sim.api.edit_claim(claim, uid, |claim| claim.requested = Some(size.clone()));
                grown.map_err(Failure::from)
            },
        );
        match grown {
            Ok(grown) => self.learn(grown, sim),
            Err(End::Failed(Failure::Missing)) => {}
            Err(end) => return Err(end),
        }
        Ok(())
    }

    pub(super) fn forget(&mut self, sim: &mut Sim, world: &World, annotation: &str) -> Called<()> {
        let (name, uid) = (&world.key.name, world.kafka.metadata.uid.as_deref().unwrap_or_default());
        if annotation == ALLOW_LOSS_ANNOTATION {
            self.look_at_what_may_be_lost(sim, world)?;
        }
        let version = self.only(Kind::Kafka, name, Some(uid))?;
        self.call(
            sim,
            || format!("takes the annotation {annotation} off"),
            |sim| {
                if !sim.api.is_still(Kind::Kafka, name, uid, Some(&version)) {
                    return Err(Failure::Changed);
                }
                sim.api.edit_kafka(|kafka| {
                    kafka.metadata.annotations.as_mut().and_then(|all| all.remove(annotation));
                });
                Ok(())
            },
        )?;
        // As the answer of the real one.
        if let Some(live) = sim.api.stored(Kind::Kafka, name) {
            self.learn(live, sim);
        }
        Ok(())
    }

    /// As the real one: pods and claims are listed once more.
    fn look_at_what_may_be_lost(&mut self, sim: &mut Sim, world: &World) -> Called<()> {
        let are_as_seen = world.has_just_these_pods(sim.api.pods().map(AsRef::as_ref))
            && world.has_just_these_claims(sim.api.claims().map(AsRef::as_ref));
        if are_as_seen {
            return Ok(());
        }
        let pods = sim.api.pods().map(|pod| (Kind::Pod, pod.meta.name.clone()));
        let claims = sim.api.claims().map(|claim| (Kind::Claim, claim.meta.name.clone()));
        let all: Vec<_> = pods.chain(claims).collect();
        for live in all.into_iter().filter_map(|(kind, name)| sim.api.stored(kind, &name)).collect::<Vec<_>>()
        {
            self.learn(live, sim);
        }
        Err(End::Failed(Failure::Changed))
    }

    pub(super) fn write(
        &mut self,
        sim: &mut Sim,
        world: &World,
        objects: Vec<Object>,
        failures: &mut Vec<Failure>,
    ) -> Called<()> {
        let (sets, mut others): (Vec<_>, Vec<_>) =
            objects.into_iter().partition(|object| matches!(object, Object::PodSet(_)));
        // The real ones go out side by side: any can be the first.
        if sim.faults.interleaves && !others.is_empty() {
            let first = usize::try_from(sim.dice.roll()).unwrap_or_default() % others.len();
            others.rotate_left(first);
        }
        self.write_for_wishes(sim, world, &others, failures)?;
        if failures.is_empty() {
            self.write_for_wishes(sim, world, &sets, failures)?;
        }
        Ok(())
    }

    fn write_for_wishes(
        &mut self,
        sim: &mut Sim,
        world: &World,
        objects: &[Object],
        failures: &mut Vec<Failure>,
    ) -> Called<()> {
        if objects.iter().any(|object| object.is_hard_to_undo(world))
            && wishes_are_as_seen(sim, world).is_err()
        {
            failures.push(Failure::Changed);
            return Ok(());
        }
        for object in objects {
            self.note(failures, |own| own.write_one(sim, world, object))?;
        }
        Ok(())
    }

    fn write_one(&mut self, sim: &mut Sim, world: &World, object: &Object) -> Called<()> {
        let what = object.describe();
        let what_again = what.clone();
        let name = object.meta().name.as_deref().unwrap_or_default();
        let written = self.call(
            sim,
            || format!("writes {what}{}", details(object)),
            |sim| {
                if let Object::ConfigMap(map) = object {
                    let new = map.data.as_ref().and_then(|data| data.get("storage.format").cloned());
                    // What is refused does no harm.
                    let live = sim.api.stored(Kind::ConfigMap, name).map(|live| live.version.to_string());
                    if live == map.metadata.resource_version {
                        sim.check_settings(name, new.as_ref());
                    }
                }
                let takes_off = object.is_hard_to_undo(world) && matches!(object, Object::PodSet(_));
                let applied = sim.api.apply(object.clone()).map_err(Failure::from)?;
                if takes_off {
                    sim.strike_down();
                }
                Ok(applied)
            },
        );
        match written {
            Ok(written) => {
                self.learn(written, sim);
                let difference = self.memory.rewrites.get(&what_again).map(|_| "spec".to_owned());
                match self.memory.rewrite(object, timestamp(sim.now), difference) {
                    Ok(rewrite) => self.memory.wrote(object, rewrite),
                    Err(error) => sim.fail(format!("{what_again} could not be rendered: {error}")),
                }
            }
            Err(End::Failed(Failure::Changed)) => {
                self.meet_stranger(sim, world, object);
                if let Some(live) = sim.api.stored(kind_of(object), name) {
                    self.learn(live, sim);
                }
                return Err(End::Failed(Failure::Changed));
            }
            Err(end) => return Err(end),
        }
        Ok(())
    }

    /// As the real one: an object that was not seen and is not the cluster's is left alone for a while. One that may be taken for it
    /// is written next time.
    fn meet_stranger(&mut self, sim: &mut Sim, world: &World, object: &Object) {
        let (kind, name) = (kind_of(object), object.meta().name.as_deref().unwrap_or_default());
        let Some(live) = sim.api.other(kind, name) else { return };
        match strangers::owner(world, live) {
            Some(owner) => {
                self.memory.met_stranger(&object.describe(), &owner, timestamp(sim.now));
            }
            None => sim.api.take_over(kind, name),
        }
    }

    /// As the real one: what is said of a resource is never written into the next one of its name.
    pub(super) fn report(
        &mut self,
        sim: &mut Sim,
        kind: Kind,
        name: &str,
        uid: Option<&str>,
        patch: &Value,
    ) -> Called<()> {
        let version = self.only(kind, name, uid)?;
        let written = self.call(
            sim,
            || format!("reports on {kind:?} {name}{}", said(patch)),
            |sim| sim.api.patch_status(kind, name, Some(&version), patch).map_err(Failure::from),
        );
        match written {
            Ok(written) if status::only_tells(patch) => drop(self.cache.answer(written)),
            Ok(written) => self.learn(written, sim),
            Err(End::Failed(Failure::Missing)) if kind == Kind::Pool => {}
            Err(end) => return Err(end),
        }
        Ok(())
    }

    /// The newest version that is known of a resource that was decided on.
    pub(super) fn only(&self, kind: Kind, name: &str, uid: Option<&str>) -> Called<String> {
        let known = self.cache.get(kind, name);
        let known = known.filter(|known| Some(known.item.uid()) == uid);
        known.map(|known| known.version.to_string()).ok_or(End::Failed(Failure::Changed))
    }

    fn delete_seen(
        &mut self,
        sim: &mut Sim,
        kind: Kind,
        seen: &Seen,
        check: impl FnOnce(&mut Sim),
    ) -> Called<()> {
        self.delete_checked(sim, kind, &seen.name, &seen.uid, Some(&seen.version), check)
    }

    pub(super) fn delete_checked(
        &mut self,
        sim: &mut Sim,
        kind: Kind,
        name: &str,
        uid: &str,
        version: Option<&str>,
        check: impl FnOnce(&mut Sim),
    ) -> Called<()> {
        let deleted = self.call(
            sim,
            || format!("deletes {kind:?} {name}"),
            |sim| {
                if sim.api.is_still(kind, name, uid, version) {
                    check(sim);
                }
                sim.api.delete(kind, name, uid, version).map_err(Failure::from)
            },
        );
        if let Err(End::Failed(Failure::Missing)) = deleted { Ok(()) } else { deleted }
    }

    pub(super) fn remove(&mut self, sim: &mut Sim, world: &World, removal: &Removal) -> Called<()> {
        match removal {
            Removal::ConfigMap(seen) => self.delete_seen(sim, Kind::ConfigMap, seen, |_| {}),
            Removal::Secret(seen) => self.delete_seen(sim, Kind::Secret, seen, |_| {}),
            Removal::Service(seen) => self.delete_seen(sim, Kind::Service, seen, |_| {}),
            Removal::PodSet(seen) => self.delete_seen(sim, Kind::PodSet, seen, |_| {}),
            Removal::Claim { claim, pod } => {
                wishes_are_as_seen(sim, world)?;
                if sim.api.pod(pod).is_some() {
                    return Err(End::Failed(Failure::Changed));
                }
                self.delete_seen(sim, Kind::Claim, claim, |sim| sim.check_claim_removal(&claim.name))
            }
        }
    }

    pub(super) fn protect(
        &mut self,
        sim: &mut Sim,
        world: &World,
        pool: &str,
        protection: Protection,
    ) -> Called<()> {
        let Some(resource) = world.pools.get(pool) else { return Ok(()) };
        let mut finalizers = resource.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != POOL_FINALIZER);
        if protection == Protection::Add {
            finalizers.push(POOL_FINALIZER.to_owned());
        }
        let version = resource.metadata.resource_version.clone();
        let patched = self.call(
            sim,
            || format!("{protection:?}s the finalizer of pool {pool}"),
            |sim| sim.api.set_finalizers(pool, version.as_deref(), finalizers.clone()).map_err(Failure::from),
        )?;
        if let Some(patched) = patched.filter(|patched| !is_going(patched)) {
            self.learn(patched, sim);
        }
        Ok(())
    }

    pub(super) fn mark(&mut self, sim: &mut Sim, mark: &Mark) -> Called<()> {
        for (pod, uid) in &mark.pods {
            let patched = self.call(
                sim,
                || format!("marks pod {pod} for a restart"),
                |sim| {
                    let is_same = sim.api.pod(pod).is_some_and(|pod| pod.meta.uid == *uid);
                    let marked = is_same.then(|| {
                        sim.api.edit_pod(pod, |pod| {
                            pod.meta.annotations.insert(MANUAL_ROLL_ANNOTATION.to_owned(), "true".to_owned());
                        })
                    });
                    marked.flatten().ok_or(Failure::Changed)
                },
            )?;
            self.learn(patched, sim);
        }
        let set = &mark.pod_set;
        let patched = self.call(
            sim,
            || format!("takes the mark off pod set {set}"),
            |sim| {
                let edited =
                    sim.api.edit_set(set, |set| drop(set.meta.annotations.remove(MANUAL_ROLL_ANNOTATION)));
                edited.ok_or(Failure::Missing)
            },
        )?;
        self.learn(patched, sim);
        Ok(())
    }

    pub(super) fn restart(&mut self, sim: &mut Sim, world: &World, restart: &Restart) -> Called<()> {
        let pod = &restart.pod;
        let stays = |claim: &str, uid: &str| {
            sim.api.claim(claim).is_some_and(|claim| claim.meta.uid == uid && !claim.meta.deleting)
        };
        if !restart.keeps.iter().all(|(claim, uid)| stays(claim, uid)) {
            return Err(End::Failed(Failure::Changed));
        }
        if restart.loses_disk {
            wishes_are_as_seen(sim, world)?;
            if !sim.api.pod(pod).is_some_and(|pod| restart.is_still_asked_of(pod)) {
                return Err(End::Failed(Failure::Changed));
            }
        }
        for (claim, uid) in &restart.claims {
            self.delete_checked(sim, Kind::Claim, claim, uid, None, |sim| sim.check_emptied(claim, pod))?;
        }
        if !restart.claims.is_empty() {
            wishes_are_as_seen(sim, world)?;
        }
        let causes: Vec<_> = restart.causes.iter().map(ToString::to_string).collect();
        let name = self.name();
        sim.tell(|| format!("{name}restarts {pod}, because {}", causes.join(", ")));
        // What is formed anew has nothing left that its logs could be read for.
        let stop = match restart.causes.contains(&Cause::FormedAnew) {
            true => Stop::Anew,
            false => Stop::Restart,
        };
        self.delete_checked(sim, Kind::Pod, pod, &restart.uid, None, |sim| sim.check_stop(pod, stop))?;
        self.cache.note(Kind::Pod, pod, &restart.uid, |item| {
            if let Item::Pod(seen) = item {
                Arc::make_mut(seen).meta.deleting = true;
            }
        });
        Ok(())
    }
}

impl Sim {
    /// What was just written to a pod set may be the last that an operator does for long.
    fn strike_down(&mut self) {
        if let Some(millis) = self.dies_unlisting.take() {
            self.no_operator_until = self.now + millis;
        }
    }
}

/// As the real one: what is hard to undo is done only for what users want now, and for the nodes that are durable now.
pub(super) fn wishes_are_as_seen(sim: &Sim, world: &World) -> Called<()> {
    let nodes_of = |pool: &Arc<KafkaNodePool>| {
        let meta = &pool.metadata;
        let nodes = pool.status.as_ref().and_then(|status| status.node_ids.clone());
        let safety = safety_of_pool(meta.annotations.as_ref());
        (
            meta.uid.clone(),
            meta.generation,
            nodes,
            safety.into_iter().map(Option::<&String>::cloned).collect::<Vec<_>>(),
        )
    };
    let live: BTreeSet<_> = sim.api.pools().map(nodes_of).collect();
    let wish = |kafka: &Arc<Kafka>| {
        let meta = &kafka.metadata;
        let safety = safety_of_kafka(meta.annotations.as_ref());
        (
            meta.uid.clone(),
            meta.generation,
            safety.into_iter().map(Option::<&String>::cloned).collect::<Vec<_>>(),
        )
    };
    let kafka = sim.api.kafka().map(wish);
    if kafka == Some(wish(&world.kafka)) && live == world.pools.values().map(nodes_of).collect() {
        return Ok(());
    }
    Err(End::Failed(Failure::Changed))
}

/// As the real one: nothing is made for a pool that is gone.
pub(super) fn pools_exist(sim: &Sim, world: &World, pools: &BTreeSet<&str>) -> Called<()> {
    let seen = pools.iter().filter_map(|name| world.pools.get(*name));
    let exists = |uid: &Option<String>| sim.api.pools().any(|live| live.metadata.uid == *uid);
    let all_exist = seen.map(|pool| &pool.metadata.uid).all(exists);
    if all_exist { Ok(()) } else { Err(End::Failed(Failure::Changed)) }
}

fn is_going(stored: &Stored) -> bool {
    matches!(&stored.item, Item::Pool(pool) if pool.metadata.deletion_timestamp.is_some())
}

/// What is worth reading of an object.
fn details(object: &Object) -> String {
    match object {
        Object::PodSet(set) => {
            let names: Vec<_> =
                set.spec.pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
            format!(": {}", names.join(", "))
        }
        Object::ConfigMap(map) => {
            let format = map.data.as_ref().and_then(|data| data.get("storage.format")).cloned();
            format!(" (format {})", format.unwrap_or_default())
        }
        _ => String::new(),
    }
}

/// What is worth reading of a status.
fn said(patch: &Value) -> String {
    let conditions = patch["conditions"].as_array().cloned().unwrap_or_default();
    let text: Vec<_> = conditions
        .iter()
        .map(|one| {
            format!("{}={} {}", one["type"], one["status"], one["message"].as_str().unwrap_or_default())
        })
        .collect();
    if text.is_empty() { String::new() } else { format!(": {}", text.join("; ").replace('"', "")) }
}
