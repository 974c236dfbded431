//! What users add to the pods, or replace in them.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Affinity, HostAlias, KeyToPath, LocalObjectReference, PodDNSConfig, PodSecurityContext, Toleration,
    TopologySpreadConstraint, Volume,
};
use karst_api as api;

use super::{Metadata, free_form};
use crate::ids::NodeId;
use crate::listeners::template;
use crate::names::{LONGEST_NAME, is_host_label};
use crate::problem::Problem;
use crate::quantity::Quantity;
use crate::rack;

/// What an additional volume can be. A volume that reaches into the machine is not among them.
const SOURCES: &[&str] = &["secret", "configMap", "emptyDir", "persistentVolumeClaim", "csi", "image"];
/// What an additional volume can be whose settings name the node.
const TEMPLATED_SOURCES: &[&str] = &["secret", "configMap", "persistentVolumeClaim"];

/// What users say about the pods of a pool. `None` leaves it to Karst.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PodTemplate {
    pub(super) metadata: Metadata,
    /// In addition to those that the operator was told.
    pub(crate) image_pull_secrets: Vec<LocalObjectReference>,
    pub(crate) security_context: Option<PodSecurityContext>,
    pub(crate) termination_grace_period_seconds: Option<i64>,
    pub(crate) affinity: Option<Affinity>,
    pub(crate) tolerations: Option<Vec<Toleration>>,
    pub(crate) topology_spread_constraints: Option<Vec<TopologySpreadConstraint>>,
    pub(crate) priority_class_name: Option<String>,
    pub(crate) scheduler_name: Option<String>,
    pub(crate) host_aliases: Option<Vec<HostAlias>>,
    pub(crate) dns_policy: Option<&'static str>,
    pub(crate) dns_config: Option<PodDNSConfig>,
    pub(crate) enable_service_links: Option<bool>,
    pub(crate) tmp_dir_size_limit: Option<String>,
    /// In addition to those that the node needs.
    volumes: Vec<Volume>,
    /// In addition to those, with `{nodeId}` and `{nodePodName}` in what they refer to.
    templated_volumes: Vec<Volume>,
    pub(crate) host_users: Option<bool>,
}

impl PodTemplate {
    /// Reads the template at `field`. What cannot be used is reported and left out.
    pub(super) fn read(field: &str, written: Option<&api::PodTemplate>, problems: &mut Vec<Problem>) -> Self {
        let Some(written) = written else { return Self::default() };
        let at = |part: &str| format!("{field}.{part}");
        let mut names = BTreeSet::new();
        let mut volumes = |part: &str, written, sources, problems: &mut _| {
            read_volumes(&at(part), written, sources, &mut names, problems)
        };
        let plain = volumes("volumes", written.volumes.as_ref(), SOURCES, problems);
        let templated =
            volumes("templatedVolumes", written.templated_volumes.as_ref(), TEMPLATED_SOURCES, problems);
        Self {
            metadata: Metadata::read(field, written.metadata.as_ref(), problems),
            image_pull_secrets: free_form::list(
                &at("imagePullSecrets"),
                written.image_pull_secrets.as_ref(),
                problems,
            )
            .unwrap_or_default(),
            security_context: free_form::one(
                &at("securityContext"),
                written.security_context.as_ref(),
                problems,
            ),
            termination_grace_period_seconds: written.termination_grace_period_seconds,
            affinity: free_form::one(&at("affinity"), written.affinity.as_ref(), problems),
            tolerations: free_form::list(&at("tolerations"), written.tolerations.as_ref(), problems),
            topology_spread_constraints: free_form::list(
                &at("topologySpreadConstraints"),
                written.topology_spread_constraints.as_ref(),
                problems,
            ),
            priority_class_name: written.priority_class_name.clone(),
            scheduler_name: written.scheduler_name.clone(),
            host_aliases: free_form::list(&at("hostAliases"), written.host_aliases.as_ref(), problems),
            dns_policy: written.dns_policy.map(dns_policy),
            dns_config: free_form::one(&at("dnsConfig"), written.dns_config.as_ref(), problems),
            enable_service_links: written.enable_service_links,
            tmp_dir_size_limit: size(&at("tmpDirSizeLimit"), written.tmp_dir_size_limit.as_ref(), problems),
            volumes: plain,
            templated_volumes: templated,
            host_users: written.host_users,
        }
    }

    /// The additional volumes of a node.
    pub(crate) fn volumes(&self, node: NodeId, pod: &str) -> impl Iterator<Item = Volume> {
        let templated = self.templated_volumes.iter().map(move |volume| filled(volume, node, pod));
        self.volumes.iter().cloned().chain(templated)
    }
}

/// A volume with the node in its place: in the names of what it refers to, and in what it takes of that.
fn filled(volume: &Volume, node: NodeId, pod: &str) -> Volume {
    let fill = |text: &mut String| *text = template::fill(text, node, pod);
    let fill_items = |items: &mut Option<Vec<KeyToPath>>| {
        for item in items.iter_mut().flatten() {
            fill(&mut item.key);
            fill(&mut item.path);
        }
    };
    let mut volume = volume.clone();
    if let Some(secret) = &mut volume.secret {
        secret.secret_name.as_mut().map(fill);
        fill_items(&mut secret.items);
    }
    if let Some(map) = &mut volume.config_map {
        fill(&mut map.name);
        fill_items(&mut map.items);
    }
    if let Some(claim) = &mut volume.persistent_volume_claim {
        fill(&mut claim.claim_name);
    }
    volume
}

fn dns_policy(policy: api::DnsPolicy) -> &'static str {
    match policy {
        api::DnsPolicy::ClusterFirst => "ClusterFirst",
        api::DnsPolicy::ClusterFirstWithHostNet => "ClusterFirstWithHostNet",
        api::DnsPolicy::Default => "Default",
        api::DnsPolicy::None => "None",
    }
}

fn size(field: &str, written: Option<&String>, problems: &mut Vec<Problem>) -> Option<String> {
    let written = written?;
    if !written.parse::<Quantity>().is_ok_and(Quantity::is_positive) {
        problems.push(Problem::Quantity { field: field.to_owned(), value: written.clone() });
    }
    Some(written.clone())
}

/// The names of the additional volumes, usable or not.
pub(super) fn volume_names(written: Option<&api::PodTemplate>) -> BTreeSet<&str> {
    let volumes = written.into_iter().flat_map(|written| [&written.volumes, &written.templated_volumes]);
    let volumes = volumes.flatten().flatten();
    volumes.filter_map(|volume| volume.get("name")?.as_str()).collect()
}

fn read_volumes(
    field: &str,
    written: Option<&Vec<api::FreeForm>>,
    sources: &[&str],
    names: &mut BTreeSet<String>,
    problems: &mut Vec<Problem>,
) -> Vec<Volume> {
    let mut volumes: Vec<Volume> = Vec::new();
    for (index, written) in written.into_iter().flatten().enumerate() {
        let field = format!("{field}[{index}]");
        if let Some(problem) = source_problem(&field, written, sources) {
            problems.push(problem);
        } else if let Some(volume) = free_form::one::<Volume>(&field, Some(written), problems) {
            let is_new = names.insert(volume.name.clone());
            problems.extend(name_problem(format!("{field}.name"), &volume.name, is_new));
            volumes.push(volume);
        }
    }
    volumes
}

fn source_problem(field: &str, volume: &api::FreeForm, possible: &[&str]) -> Option<Problem> {
    let sources: Vec<_> = volume.keys().map(String::as_str).filter(|key| *key != "name").collect();
    let found = match sources.as_slice() {
        [] => "has no source".to_owned(),
        [source] if possible.contains(source) => return None,
        [source] => format!("has the source '{source}', which is not supported"),
        several => format!("has more than one source ({})", several.join(", ")),
    };
    let advice = format!("use one of {}", possible.join(", "));
    Some(Problem::Template { field: field.to_owned(), found, advice })
}

fn name_problem(field: String, name: &str, is_new: bool) -> Option<Problem> {
    let found = if is_of_karst(name) {
        format!("is '{name}', the name of a volume that every node has")
    } else if !is_new {
        format!("is '{name}', which another volume has")
    } else if name.len() > LONGEST_NAME || !is_host_label(name) {
        let advice = format!("use up to {LONGEST_NAME} lower-case letters, digits and '-'");
        return Some(Problem::Template { field, found: format!("is '{name}'"), advice });
    } else {
        return None;
    };
    Some(Problem::Template { field, found, advice: "choose another name".to_owned() })
}

/// Disks are called `data` or `data-0`, `data-1` and so on, however many the pool has now or will have.
fn is_of_karst(name: &str) -> bool {
    let disk = name.strip_prefix("data-").is_some_and(|id| id.parse::<u32>().is_ok());
    disk || ["karst", "tmp", "config", "certificate", "trust", "listeners", "data", rack::VOLUME]
        .contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(written: Value) -> (PodTemplate, Vec<String>) {
        let written: api::PodTemplate = serde_json::from_value(written).unwrap();
        let mut problems = Vec::new();
        let read = PodTemplate::read("spec.template.pod", Some(&written), &mut problems);
        (read, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn additional_volumes_are_those_that_stay_inside_the_pod() {
        let (pod, problems) = read(json!({"volumes": [
            {"name": "plugins", "image": {"reference": "docker.io/acme/plugins:1"}},
            {"name": "data-lake", "csi": {"driver": "csi.acme.io"}},
        ]}));
        assert_eq!(problems, [""; 0]);
        assert_eq!(pod.volumes(NodeId(0), "a-b-0").count(), 2);

        for (volume, part) in [
            (json!({"name": "host", "hostPath": {"path": "/"}}), "volumes[0] has the source 'hostPath'"),
            (json!({"name": "nothing"}), "volumes[0] has no source"),
            (json!({"name": "two", "emptyDir": {}, "secret": {}}), "more than one source (emptyDir, secret)"),
        ] {
            let (_, problems) = read(json!({"volumes": [volume]}));
            assert!(problems.iter().any(|problem| problem.contains(part)), "{problems:?}");
        }
    }

    #[test]
    fn a_templated_volume_is_another_one_for_each_node() {
        let (pod, problems) = read(json!({"templatedVolumes": [
            {"name": "creds", "secret": {"secretName": "creds", "items": [{"key": "key-{nodeId}", "path": "key"}]}},
            {"name": "rules", "configMap": {"name": "{nodePodName}-rules"}},
            {"name": "audit", "persistentVolumeClaim": {"claimName": "audit-{nodeId}"}},
        ]}));
        assert_eq!(problems, [""; 0]);
        let volumes: Vec<_> = pod.volumes(NodeId(7), "a-b-7").collect();
        let volumes = serde_json::to_value(volumes).unwrap();
        assert_eq!(volumes[0]["secret"]["secretName"], "creds");
        assert_eq!(volumes[0]["secret"]["items"][0], json!({"key": "key-7", "path": "key"}));
        assert_eq!(volumes[1]["configMap"]["name"], "a-b-7-rules");
        assert_eq!(volumes[2]["persistentVolumeClaim"]["claimName"], "audit-7");

        let (_, problems) = read(json!({
            "volumes": [{"name": "a", "emptyDir": {}}],
            "templatedVolumes": [{"name": "b", "emptyDir": {}}, {"name": "a", "secret": {"secretName": "x"}}],
        }));
        assert!(problems[0].starts_with("spec.template.pod.templatedVolumes[0] has the source 'emptyDir'"));
        assert!(problems[1].contains("templatedVolumes[1].name is 'a', which another volume has"));
    }

    #[test]
    fn names_of_the_nodes_own_volumes_are_taken() {
        for name in ["karst", "tmp", "config", "certificate", "trust", "pod", "data", "data-0", "data-17"] {
            let (_, problems) = read(json!({"volumes": [{"name": name, "emptyDir": {}}]}));
            assert_eq!(problems.len(), 1, "{problems:?}");
            let start = format!("spec.template.pod.volumes[0].name is '{name}', the name of a volume");
            assert!(problems[0].starts_with(&start), "{problems:?}");
        }
        let (_, problems) =
            read(json!({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "a", "emptyDir": {}}]}));
        assert!(problems[0].contains("volumes[1].name is 'a', which another volume has"), "{problems:?}");
        let (_, problems) = read(json!({"volumes": [{"name": "My_Volume", "emptyDir": {}}]}));
        assert!(problems[0].contains("lower-case"), "{problems:?}");
    }

    #[test]
    fn every_part_that_does_not_fit_is_named() {
        let (_, problems) = read(json!({
            "affinity": {"nodeAffinity": "everywhere"},
            "tolerations": [{"key": "a"}, {"kee": "b"}],
            "tmpDirSizeLimit": "0",
            "imagePullSecrets": [{}],
        }));
        for field in
            ["imagePullSecrets[0].name", "affinity.nodeAffinity", "tolerations[1].kee", "tmpDirSizeLimit"]
        {
            let start = format!("spec.template.pod.{field} ");
            assert!(
                problems.iter().any(|problem| problem.starts_with(&start)),
                "{start} is not in {problems:?}"
            );
        }
        assert_eq!(problems.len(), 4);
    }
}
