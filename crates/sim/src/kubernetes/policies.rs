//! What becomes of an object on its way into the API server and afterwards: empty lists and maps are not kept, fields that nobody
//! set are filled in, and a policy of whoever runs Kubernetes changes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use karst_core::digest::Digest;
use karst_core::names::trust_secret;
use karst_core::objects::service_digest;
use karst_core::stored::{budget_digest, policy_digest};
use karst_core::world::Meta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{ApiServer, Item, Kind};
use crate::scenarios::CLUSTER;

/// How soon somebody changes back what was written, in milliseconds.
const REACTS: u64 = 300;

/// What a policy does with budgets, network policies, services and Secrets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PolicyEngine {
    /// Nothing.
    #[default]
    Absent,
    /// It adds fields to whatever is written.
    Adds,
    /// It changes back what is written, a moment later.
    Fights,
    /// It takes all annotations off the Secrets that are written.
    Strips,
}

/// What the API server keeps.
fn kept<S: Serialize + DeserializeOwned>(spec: Option<&S>, change: impl FnOnce(&mut Value)) -> Option<S> {
    let mut value = serde_json::to_value(spec?).ok()?;
    change(&mut value);
    prune(&mut value);
    serde_json::from_value(value).ok()
}

/// As Go's `omitempty` does, where these kinds have it: on all lists, and on the map of a selector.
fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(prune);
            fields.retain(|name, value| match value {
                Value::Array(items) => !items.is_empty(),
                Value::Object(fields) => !(fields.is_empty() && name == "matchLabels"),
                _ => true,
            });
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

fn fill(spec: &mut Value, defaults: &[(&str, Value)]) {
    let Some(fields) = spec.as_object_mut() else { return };
    for (name, value) in defaults {
        fields.entry(*name).or_insert_with(|| value.clone());
    }
}

impl ApiServer {
    /// Fingerprint of a budget as it is kept.
    pub(super) fn kept_budget(
        &self,
        spec: Option<&k8s_openapi::api::policy::v1::PodDisruptionBudgetSpec>,
    ) -> Option<Digest> {
        let adds = self.engine == PolicyEngine::Adds;
        let spec = kept(spec, |spec| {
            if adds {
                fill(spec, &[("unhealthyPodEvictionPolicy", json!("AlwaysAllow"))]);
                spec["selector"]["matchLabels"]["example.com/team"] = json!("storage");
            }
        });
        budget_digest(spec.as_ref()).ok()
    }

    /// Fingerprint of a network policy as it is kept.
    pub(super) fn kept_policy(
        &self,
        spec: Option<&k8s_openapi::api::networking::v1::NetworkPolicySpec>,
    ) -> Option<Digest> {
        let adds = self.engine == PolicyEngine::Adds;
        let spec = kept(spec, |spec| {
            if adds {
                spec["policyTypes"] = json!(["Ingress", "Egress"]);
                spec["egress"] = json!([{}]);
            }
        });
        policy_digest(spec.as_ref()).ok()
    }

    /// Fingerprint of a service as it is kept.
    pub(super) fn kept_service(&self, service: &k8s_openapi::api::core::v1::Service) -> Option<Digest> {
        let adds = self.engine == PolicyEngine::Adds;
        let spec = kept(service.spec.as_ref(), |spec| {
            let defaults = [
                ("type", json!("ClusterIP")),
                ("clusterIP", json!("10.0.0.1")),
                ("sessionAffinity", json!("None")),
                ("internalTrafficPolicy", json!("Cluster")),
                ("ipFamilyPolicy", json!("SingleStack")),
            ];
            fill(spec, &defaults);
            if let Some(ports) = spec["ports"].as_array_mut().filter(|_| adds) {
                ports.push(json!({"name": "http-mesh", "port": 15_090, "protocol": "TCP"}));
            }
        });
        let service = k8s_openapi::api::core::v1::Service { spec, ..service.clone() };
        service_digest(&service).ok()
    }

    /// What is left of what is said of a Secret that is written.
    pub(super) fn admitted(&self, meta: Meta) -> Meta {
        match self.engine {
            PolicyEngine::Strips => Meta { annotations: BTreeMap::new(), ..meta },
            _ => meta,
        }
    }

    /// Somebody is going to change back what was just written: of Secrets, what is said of those that have what nodes trust.
    pub(super) fn provoke(&mut self, kind: Kind, name: &str) {
        let is_its = match kind {
            Kind::Budget | Kind::Policy | Kind::Service => true,
            Kind::Secret => name == trust_secret(CLUSTER),
            _ => false,
        };
        if is_its && self.engine == PolicyEngine::Fights {
            self.provoked.insert((kind, name.to_owned()), self.now + REACTS);
        }
    }

    /// Changes back what was written a while ago.
    pub(crate) fn react(&mut self) {
        let due: Vec<_> =
            self.provoked.iter().filter(|(_, at)| **at <= self.now).map(|(key, _)| key.clone()).collect();
        for (kind, name) in due {
            self.provoked.remove(&(kind, name.clone()));
            let theirs = Some(Digest::of_json(&json!("theirs")));
            let changed = match self.get(kind, &name).cloned() {
                Some(Item::Budget(mut plain)) => {
                    Arc::make_mut(&mut plain).digest = theirs;
                    Item::Budget(plain)
                }
                Some(Item::Policy(mut plain)) => {
                    Arc::make_mut(&mut plain).digest = theirs;
                    Item::Policy(plain)
                }
                Some(Item::Service(mut service)) => {
                    Arc::make_mut(&mut service).digest = theirs;
                    Item::Service(service)
                }
                Some(Item::Secret(mut secret)) => {
                    Arc::make_mut(&mut secret).meta.annotations.clear();
                    Item::Secret(secret)
                }
                _ => continue,
            };
            self.put(changed);
        }
    }
}
