//! Pools whose `Kafka` resource does not exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use karst_api::KafkaNodePool;
use karst_core::memory::Memory;
use karst_core::names::POOL_FINALIZER;
use karst_core::plan::{self, Protection};

use super::{Called, End, Failure, Operator, pause_after_all};
use crate::kubernetes::{Item, Kind};
use crate::sim::{Sim, timestamp};

impl Operator {
    /// Such pools are told so, and wait for nothing when they are deleted.
    pub(super) fn keep_orphans(&mut self, sim: &mut Sim) -> Called<Option<u64>> {
        self.memory = Memory::default();
        let pools: BTreeMap<String, Arc<KafkaNodePool>> = self
            .cache
            .all()
            .filter_map(|item| match item {
                Item::Pool(pool) => Some((item.name().to_owned(), Arc::clone(pool))),
                _ => None,
            })
            .collect();
        let mut failures = Vec::new();
        for (name, protection) in plan::released_without_kafka(&pools) {
            if protection == Protection::Remove
                && let Some(pool) = pools.get(&name)
            {
                self.note(&mut failures, |own| own.release(sim, &name, pool))?;
            }
        }
        let Ok(statuses) = plan::pools_without_kafka(&self.key, &pools, timestamp(sim.now)) else {
            sim.fail("the status of a pool could not be rendered".to_owned());
            return Ok(None);
        };
        for (name, patch) in &statuses {
            let uid = pools.get(name).and_then(|pool| pool.metadata.uid.as_deref());
            self.note(&mut failures, |own| own.report(sim, Kind::Pool, name, uid, &patch["status"]))?;
        }
        Ok(pause_after_all(&failures))
    }

    fn release(&mut self, sim: &mut Sim, name: &str, pool: &KafkaNodePool) -> Called<()> {
        let mut finalizers = pool.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != POOL_FINALIZER);
        let version = pool.metadata.resource_version.clone();
        let released = self.call(
            sim,
            || format!("lets pool {name} go, whose cluster is gone"),
            |sim| sim.api.set_finalizers(name, version.as_deref(), finalizers).map_err(Failure::from),
        );
        match released {
            Ok(_) | Err(End::Failed(Failure::Missing)) => Ok(()),
            Err(end) => Err(end),
        }
    }
}
