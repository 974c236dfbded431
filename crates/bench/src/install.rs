//! What `deploy/` installs, without the Deployment: definitions, namespace, roles, and the operator's own account.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::time::timeout;

use crate::control_plane::ControlPlane;
use crate::places;

/// Where the operator is installed.
pub(crate) const NAMESPACE: &str = "karst-system";
const ACCOUNT: &str = "karst-operator";

/// Longer than any measurement.
const TOKEN_SECONDS: i64 = 24 * 3600;
const ESTABLISHED: Duration = Duration::from_secs(60);

/// The name under which the API server knows the operator.
pub(crate) fn operator_user() -> String {
    format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}")
}

/// Installs everything, and writes a kubeconfig with which the operator may do what its role allows and no more.
pub(crate) async fn install(control_plane: &ControlPlane, client: &Client) -> Result<PathBuf> {
    for object in documents_in(&places::checkout().join("deploy/crds"))? {
        create(client, &object).await?;
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let name = object.name_any();
        let established = await_condition(definitions, &name, conditions::is_crd_established());
        timeout(ESTABLISHED, established)
            .await
            .with_context(|| format!("the API server does not serve {name} yet"))??;
    }
    for object in documents_in(&places::checkout().join("deploy/install"))? {
        // Without nodes nothing would run it: the operator is started as a process.
        if object.types.as_ref().is_none_or(|types| types.kind != "Deployment") {
            create(client, &object).await?;
        }
    }
    let path = control_plane.directory().join("operator.kubeconfig");
    let kubeconfig = operator_kubeconfig(control_plane, &token(client).await?)?;
    fs::write(&path, kubeconfig).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

/// Creates an object of any kind. Its own words say where it belongs.
pub(crate) async fn create(client: &Client, object: &DynamicObject) -> Result<()> {
    let types = object.types.as_ref().context("a document without apiVersion and kind cannot be created")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types)?);
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let created = api.create(&PostParams::default(), object).await;
    created.with_context(|| format!("the API server refuses {} {}", types.kind, object.name_any()))?;
    Ok(())
}

pub(crate) fn documents(path: &Path) -> Result<Vec<DynamicObject>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_saphyr::from_multiple(&text).with_context(|| format!("{} is not what it should be", path.display()))
}

/// All documents of a directory's files, in the order of their names.
fn documents_in(directory: &Path) -> Result<Vec<DynamicObject>> {
    let entries = fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    let mut files: Vec<_> = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let documents: Vec<_> = files.iter().map(|path| documents(path)).collect::<Result<_>>()?;
    Ok(documents.into_iter().flatten().collect())
}

async fn token(client: &Client) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let spec = TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await;
    let answer = answer.with_context(|| format!("no token for {ACCOUNT} in {NAMESPACE}"))?;
    Ok(answer.status.context("the API server's answer has no token")?.token)
}

/// Kubeconfigs are YAML, and JSON is YAML.
fn operator_kubeconfig(control_plane: &ControlPlane, token: &str) -> Result<String> {
    let admin = control_plane.kubeconfig()?;
    let cluster = admin.clusters.first().and_then(|named| named.cluster.as_ref());
    let cluster = cluster.context("the administrator's kubeconfig names no cluster")?;
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bench", "cluster": cluster}],
        "users": [{"name": "operator", "user": {"token": token}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "operator"}}],
        "current-context": "bench",
    });
    Ok(kubeconfig.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_has_the_account_that_the_operator_runs_as() {
        let all = documents_in(&places::checkout().join("deploy/install")).unwrap();
        let account =
            all.iter().find(|object| object.types.as_ref().unwrap().kind == "ServiceAccount").unwrap();
        assert_eq!((account.name_any().as_str(), account.namespace().as_deref()), (ACCOUNT, Some(NAMESPACE)));
    }
}
