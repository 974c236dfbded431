//! Keys and certificates on their way into Secrets.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use karst_core::certificates::{Issue, Ownership, secret_object};
use karst_core::names::ClusterKey;
use karst_core::strangers;
use karst_core::world::World;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Api, Resource};
use serde_json::json;

use super::{AT_ONCE, Hands, MANAGER, found};
use crate::failure::Failure;
use crate::keys;
use crate::views::SecretWire;

impl Hands {
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
            self.write_secret(world, secret).await?;
        }
        tracing::debug!(cluster = %world.key, "{issue}");
        Ok(())
    }

    /// Writes a Secret as a whole: a new one, or in place of the one that was seen.
    pub(super) async fn write_secret(&self, world: &World, secret: Secret) -> Result<(), Failure> {
        let key = &world.key;
        let name = secret.metadata.name.clone().unwrap_or_default();
        let seen = world.secrets.get(&name).map(|seen| &seen.meta);
        if let Some(owner) = seen.and_then(|seen| strangers::controller(world, seen)) {
            return Err(Failure::Foreign { object: format!("Secret {name}"), owner });
        }
        let labels = secret.metadata.labels.clone().unwrap_or_default();
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
            Err(failure) if is_new && failure.is_conflict() => self.label_again(world, &name, labels).await,
            Err(failure) => Err(failure),
            Ok(written) => {
                self.learn(written);
                Ok(())
            }
        }
    }

    /// A Secret of this name is there, and was not seen. One of the cluster gets its labels back, and nothing else: what was made
    /// just now must not take the place of a key that everybody trusts.
    async fn label_again(
        &self,
        world: &World,
        name: &str,
        labels: BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        let api: Api<SecretWire> = self.api(&world.key.namespace);
        let live = self.call(&format!("could not look at Secret {name}"), api.get_opt(name)).await?;
        if let Some(live) = live {
            let known = match found(world, live.meta(), format!("Secret {name}"))? {
                None => live,
                Some(version) => {
                    tracing::info!(secret = %name, "gets its labels back");
                    let patch = json!({ "metadata": { "resourceVersion": version, "labels": labels } });
                    let what = format!("could not label Secret {name}");
                    self.call(&what, api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await?
                }
            };
            self.learn(known);
        }
        Err(Failure::Changed(format!("Secret {name} is there, or was, though it was not seen")))
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
}
