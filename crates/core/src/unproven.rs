//! Values that Kafka has not taken yet stay out of what nodes read when they start.
//!
//! A setting that can change while nodes run is first told to Kafka, which looks at the value. Only when a node was seen to run
//! with it, it goes into the nodes' ConfigMaps: a value that Kafka refuses would otherwise wait there for the next restart. What is
//! written now is read back from the pods that the pod sets ask for.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::cluster::{Cluster, Node};
use crate::dynamic;
use crate::names::{KAFKA_VERSION_ANNOTATION, STARTED_WITH_ANNOTATION};
use crate::plan::Deed;
use crate::versions::{self, KafkaVersion};
use crate::world::{WantedPod, World};

type Config = BTreeMap<String, Value>;

/// The settings that a pod would start with, of those that can change while it runs.
struct Written {
    kafka: &'static KafkaVersion,
    settings: Config,
}

impl Written {
    fn of(pod: &WantedPod) -> Option<Self> {
        let pod: Value = serde_json::from_str(&pod.json).ok()?;
        let annotation = |key: &str| pod["metadata"]["annotations"][key].as_str();
        let kafka = versions::find(annotation(KAFKA_VERSION_ANNOTATION)?)?;
        let settings = serde_json::from_str(annotation(STARTED_WITH_ANNOTATION)?).ok()?;
        Some(Self { kafka, settings })
    }
}

/// Was Kafka told exactly this, and did not do it?
pub(crate) fn was_refused(world: &World, key: &str, value: &str) -> bool {
    world.memory.troubles.iter().any(|trouble| match &trouble.deed {
        Deed::Configure(change) => change.key == key && change.value.as_deref() == Some(value),
        _ => false,
    })
}

/// The user's settings for one node, with those that are not proven as they are written now.
pub(crate) fn settings<'a>(
    world: &'a World,
    cluster: &Cluster,
    node: Node<'_>,
    unproven: &BTreeSet<String>,
) -> Cow<'a, Config> {
    let wanted = world.kafka.spec.kafka.config.as_ref();
    let Some(wanted) = wanted.filter(|_| !unproven.is_empty()) else {
        return wanted.map_or_else(Cow::default, Cow::Borrowed);
    };
    let Some(written) = written(world, &cluster.pod_name(node)) else { return Cow::Borrowed(wanted) };
    // What makes a node restart is tried by the first one that does, as every other setting.
    let is_held = |key: &str| {
        unproven.contains(key)
            && !dynamic::needs_restart(cluster.version, node.pool.roles, key)
            && !dynamic::needs_restart(written.kafka, node.pool.roles, key)
    };
    let mut config = wanted.clone();
    config.retain(|key, _| !is_held(key.trim()));
    config.extend(written.settings.into_iter().filter(|(key, _)| is_held(key)));
    Cow::Owned(config)
}

/// What a node would start with; a new one is made as any of the others.
fn written(world: &World, pod: &str) -> Option<Written> {
    let own = world.pod_sets.values().find_map(|set| set.pods.get(pod));
    let any = || world.pod_sets.values().flat_map(|set| set.pods.values()).next();
    own.or_else(any).and_then(Written::of)
}
