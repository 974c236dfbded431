//! Keys and certificates on their way into Secrets.

use k8s_openapi::api::core::v1::Secret;
use karst_core::certificates::{Issue, Ownership, secret_object};
use karst_core::names::ClusterKey;
use karst_core::world::World;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Api, Resource};
use serde_json::json;

use super::{AT_ONCE, Hands, MANAGER};
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
}
