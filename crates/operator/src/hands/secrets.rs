//! Keys and certificates on their way into Secrets.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use karst_certs::{Error, SecretWrite};
use karst_core::certificates::{Issue, Ownership, secret_object};
use karst_core::names::ClusterKey;
use karst_core::rewrites::Rewrite;
use karst_core::strangers;
use karst_core::world::World;
use kube::api::{PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Api, Resource};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::{Hands, MANAGER, few_at_once, found, last_manager};
use crate::failure::Failure;
use crate::keys;
use crate::views::SecretWire;

/// How long one pass is about keys that take long. Whatever else the cluster needs waits for them.
const LONGEST: Duration = Duration::from_secs(10);

impl Hands {
    /// Makes keys and certificates that take a moment and writes them: what belongs together in its order, the rest at once.
    pub(crate) async fn certify(&self, world: &World, issues: &[&Issue]) -> Vec<Failure> {
        let written = issues.iter().map(|issue| async move {
            let made = issue.make(world.now);
            self.write_certificates(world, issue, made).await
        });
        few_at_once(written.collect(), Result::is_err).await.into_iter().filter_map(Result::err).collect()
    }

    /// Makes keys and certificates that take long and writes them, one after the other: so every cluster has its turn. Tells how many
    /// were tried; there is time for the others in later passes.
    pub(crate) async fn certify_slowly(&self, world: &World, issues: &[&Issue]) -> (usize, Vec<Failure>) {
        let (mut tried, mut failures) = (0, Vec::new());
        let end = Instant::now() + LONGEST;
        for issue in issues {
            let Ok(turn) = timeout_at(end, self.keys.turn()).await else { break };
            tried += 1;
            let made = keys::make(issue, world.now, turn).await;
            failures.extend(self.write_certificates(world, issue, made).await.err());
            if Instant::now() >= end {
                break;
            }
        }
        (tried, failures)
    }

    async fn write_certificates(
        &self,
        world: &World,
        issue: &Issue,
        made: Result<Vec<SecretWrite>, Error>,
    ) -> Result<(), Failure> {
        let made = made.map_err(|source| Failure::Certificate { what: issue.to_string(), source })?;
        let by = self.who_changed(world, issue).await?;
        for write in made {
            let secret = secret_object(world, issue.pool(), write);
            self.write_secret(world, secret).await?;
        }
        tracing::debug!(cluster = %world.key, "{issue}");
        let (name, rewrite) = Rewrite::after_issue(world, issue, by.as_deref());
        self.memories.change(&world.key, |memory| drop(memory.rewrites.insert(name, rewrite)));
        Ok(())
    }

    /// Who changed a Secret that was written lately and is not as it was written. For people: without an answer it is written all the
    /// same.
    async fn who_changed(&self, world: &World, issue: &Issue) -> Result<Option<String>, Failure> {
        let Some(name) = Rewrite::changed_secret(world, issue) else { return Ok(None) };
        let api: Api<PartialObjectMeta<SecretWire>> =
            Api::namespaced(self.client.clone(), &world.key.namespace);
        match self.call(&format!("could not look at Secret {name}"), api.get_opt(&name)).await {
            Ok(live) => Ok(live.and_then(|live| last_manager(&live.metadata))),
            Err(Failure::NotLeader) => Err(Failure::NotLeader),
            Err(_) => Ok(None),
        }
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
