//! The other half of the operator: keeping the pods of pod sets.

use std::sync::Arc;

use karst_core::podset::{self, PodAction};
use karst_core::strangers::Needy;
use karst_core::world::{ClaimView, PodSetView, PodView, WantedPod};

use super::{Called, End, Failure, Operator, pause_after};
use crate::invariants::Stop;
use crate::kubernetes::{Item, Kind, Stored};
use crate::sim::Sim;

impl Operator {
    /// Keeps the pods of the pod sets that are due.
    pub(super) fn keep_sets(&mut self, sim: &mut Sim) -> Called<()> {
        let due: Vec<String> =
            self.due_sets.iter().filter(|(_, due)| **due <= sim.now).map(|(name, _)| name.clone()).collect();
        for name in due {
            self.due_sets.remove(&name);
            let mut failures = Vec::new();
            self.note(&mut failures, |own| own.keep_set(sim, &name))?;
            if let Some(failure) = failures.first() {
                self.due_sets.insert(name, sim.now + pause_after(*failure));
            }
        }
        Ok(())
    }

    fn keep_set(&mut self, sim: &mut Sim, name: &str) -> Called<()> {
        let Some(Stored { item: Item::PodSet(set), .. }) = self.cache.get(Kind::PodSet, name) else {
            return Ok(());
        };
        let set = Arc::clone(set);
        let pods: Vec<Arc<PodView>> = self
            .cache
            .all()
            .filter_map(|item| if let Item::Pod(pod) = item { Some(Arc::clone(pod)) } else { None })
            .collect();
        let claims = self.cache.all().filter_map(|item| match item {
            Item::Claim(claim) if claim.meta.deleting => Some(Arc::clone(claim)),
            _ => None,
        });
        let mut plan = podset::plan(&set, &pods, &claims.collect::<Vec<_>>(), self.memory.rendered.get(name));
        let needy = Needy::of_met(&self.key, &self.memory.strangers);
        plan.actions.retain(|action| !action.is_creation() || needy.may_start(action.pod()));
        // As the real one: pods are made only for the pod set as it is now.
        let identity = |set: &PodSetView| (set.meta.uid.clone(), set.generation);
        let live = sim.api.pod_sets().find(|live| live.meta.name == *name).map(|live| identity(live));
        if plan.actions.iter().any(PodAction::is_creation) && live != Some(identity(&set)) {
            return Err(End::Failed(Failure::Changed));
        }
        let secrets = self.cache.all().filter_map(|item| match item {
            Item::Secret(secret) => Some((secret.meta.name.clone(), Arc::clone(secret))),
            _ => None,
        });
        let secrets = secrets.collect();
        let actions = std::mem::take(&mut plan.actions).into_iter();
        plan.actions = actions.map(|action| action.as_started_now(&self.key, &secrets)).collect();
        let mut failures = Vec::new();
        for action in &plan.actions {
            self.note(&mut failures, |own| own.handle_pod(sim, &set, action))?;
        }
        if plan.actions.is_empty() && set.status.as_ref() != Some(&plan.status) {
            self.note(&mut failures, |own| own.report_set(sim, &set, &plan))?;
        }
        failures.into_iter().next().map_or(Ok(()), |failure| Err(End::Failed(failure)))
    }

    fn report_set(&mut self, sim: &mut Sim, set: &PodSetView, plan: &podset::PodSetPlan) -> Called<()> {
        let (name, uid) = (&set.meta.name, &set.meta.uid);
        let version = self.only(Kind::PodSet, name, Some(uid))?;
        let written = self.call(
            sim,
            || format!("reports on pod set {name}"),
            |sim| {
                if !sim.api.is_still(Kind::PodSet, name, uid, Some(&version)) {
                    return Err(Failure::Changed);
                }
                sim.api.report_set(name, &plan.status).map_err(Failure::from)
            },
        )?;
        self.cache.answer(written);
        Ok(())
    }

    fn handle_pod(&mut self, sim: &mut Sim, set: &PodSetView, action: &PodAction) -> Called<()> {
        match action {
            PodAction::Create { name, pod } => {
                let created = self.call(
                    sim,
                    || format!("creates pod {name}"),
                    |sim| sim.api.create_pod(pod, &set.meta.uid).map_err(Failure::from),
                )?;
                self.learn(created, sim);
                Ok(())
            }
            PodAction::Remove { name, uid } => {
                let live = sim.api.pod_sets().find(|live| live.meta.name == set.meta.name).cloned();
                let Some(live) = live else { return Ok(()) };
                if live.pods.contains_key(name) || live.meta.uid != set.meta.uid {
                    return Err(End::Failed(Failure::Changed));
                }
                self.delete_checked(sim, Kind::Pod, name, uid, None, |sim| {
                    sim.check_stop(name, Stop::Removal);
                })
            }
            PodAction::Replace { name, uid, version, .. } => {
                // As the real one: what only this pod keeps stays.
                let claims = set.pods.get(name).map(WantedPod::claims).unwrap_or_default();
                let is_kept_by_it = |claim: &ClaimView| claim.meta.deleting && claim.bound;
                if claims.iter().any(|claim| sim.api.claim(claim).is_some_and(|one| is_kept_by_it(one))) {
                    return Err(End::Failed(Failure::Changed));
                }
                let is_going = |claim: &String| {
                    self.cache
                        .get(Kind::Claim, claim)
                        .is_some_and(|known| matches!(&known.item, Item::Claim(claim) if claim.meta.deleting))
                };
                let knows = claims.iter().any(is_going);
                self.delete_checked(sim, Kind::Pod, name, uid, Some(version), |sim| {
                    sim.check_replaced(name, knows);
                })
            }
            PodAction::Adopt { .. } => Ok(()),
        }
    }
}
