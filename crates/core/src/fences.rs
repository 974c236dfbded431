//! What keeps others away from the pods: budgets for those who evict, policies for those who connect.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::cluster::Cluster;
use crate::config::REPLICATION_PORT;
use crate::metrics;
use crate::names::{CLUSTER_LABEL, CONTROLLER_ROLE_LABEL};
use crate::objects::{Object, shared_meta};
use crate::probes;
use crate::quorum::CONTROLLER_PORT;
use crate::template::SharedTemplate;
use crate::world::Settings;

/// The label by which the operator's own pods are known.
const OPERATOR_KIND: (&str, &str) = ("strimzi.io/kind", "cluster-operator");
/// The label with the name of a namespace. The API server sets it, and lets nobody change it.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// One budget for the nodes that vote and one for those that only serve: no pod is in both, and neither kind uses up what the
/// other may lose.
pub(crate) fn budgets(cluster: &Cluster, owner: &OwnerReference, template: &SharedTemplate) -> Vec<Object> {
    // Those of pools that are refused run on, and are as dear as the others.
    let roles = cluster.nodes().map(|node| node.pool.roles).chain(cluster.kept.iter().map(|kept| kept.roles));
    let (voters, others): (Vec<_>, Vec<_>) = roles.partition(|roles| roles.has_controller());
    let groups = [
        (cluster.key.controllers_budget(), "true", voters.len()),
        (cluster.key.brokers_budget(), "false", others.len()),
    ];
    let one = |(name, votes, nodes): (String, &str, usize)| {
        let mut selector = cluster.key.selector();
        selector.insert(CONTROLLER_ROLE_LABEL.to_owned(), votes.to_owned());
        let least = i32::try_from(nodes).unwrap_or(i32::MAX).saturating_sub(template.max_unavailable).max(0);
        let mut metadata = shared_meta(cluster, owner.clone(), name);
        template.budget.add_marked_to(&mut metadata);
        Object::Budget(PodDisruptionBudget {
            metadata,
            spec: Some(PodDisruptionBudgetSpec {
                min_available: Some(IntOrString::Int(least)),
                selector: Some(matching(selector)),
                ..PodDisruptionBudgetSpec::default()
            }),
            ..PodDisruptionBudget::default()
        })
    };
    groups.into_iter().filter(|(_, _, nodes)| *nodes > 0).map(one).collect()
}

fn matching(labels: BTreeMap<String, String>) -> LabelSelector {
    LabelSelector { match_labels: Some(labels), ..LabelSelector::default() }
}

/// Who may connect: nodes and the operator to what is internal, anybody (or whom the user names) to the listeners of clients.
/// Only the operator asks the launcher: the kubelet of the node that a pod is on needs no leave.
pub(crate) fn policy(cluster: &Cluster, owner: &OwnerReference, settings: &Settings) -> Option<Object> {
    if !settings.network_policies {
        return None;
    }
    let nodes = NetworkPolicyPeer {
        pod_selector: Some(matching(cluster.key.selector())),
        ..NetworkPolicyPeer::default()
    };
    let of_cluster = NetworkPolicyPeer {
        pod_selector: Some(matching([(CLUSTER_LABEL.to_owned(), cluster.key.name.clone())].into())),
        ..NetworkPolicyPeer::default()
    };
    let operator = operator(settings);
    let mut rules = vec![
        rule(CONTROLLER_PORT, Some(vec![nodes, operator.clone()])),
        rule(REPLICATION_PORT, Some(vec![of_cluster, operator.clone()])),
        rule(probes::PORT, Some(vec![operator])),
    ];
    rules.extend(cluster.listeners.iter().map(|listener| rule(listener.port, listener.peers.clone())));
    rules.extend(cluster.metrics.iter().map(|_| rule(metrics::PORT, None)));
    Some(Object::Policy(NetworkPolicy {
        metadata: shared_meta(cluster, owner.clone(), cluster.key.network_policy()),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(matching(cluster.key.selector())),
            ingress: Some(rules),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ..NetworkPolicySpec::default()
        }),
    }))
}

fn rule(port: u16, from: Option<Vec<NetworkPolicyPeer>>) -> NetworkPolicyIngressRule {
    NetworkPolicyIngressRule {
        from,
        ports: Some(vec![NetworkPolicyPort {
            port: Some(IntOrString::Int(i32::from(port))),
            protocol: Some("TCP".to_owned()),
            ..NetworkPolicyPort::default()
        }]),
    }
}

fn operator(settings: &Settings) -> NetworkPolicyPeer {
    let labels = &settings.operator_namespace_labels;
    let by_name = |name: &String| matching([(NAMESPACE_NAME.to_owned(), name.clone())].into());
    let namespaces = if labels.is_empty() {
        settings.operator_namespace.as_ref().map(by_name).unwrap_or_default()
    } else {
        matching(labels.clone())
    };
    NetworkPolicyPeer {
        pod_selector: Some(matching([(OPERATOR_KIND.0.to_owned(), OPERATOR_KIND.1.to_owned())].into())),
        namespace_selector: Some(namespaces),
        ..NetworkPolicyPeer::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn namespaces(name: Option<&str>, labels: &[(&str, &str)]) -> serde_json::Value {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let settings = Settings {
            operator_version: String::new(),
            node_image: String::new(),
            kafka_images: BTreeMap::new(),
            image_pull_policy: None,
            image_pull_secrets: Vec::new(),
            cluster_domain: String::new(),
            network_policies: true,
            operator_namespace: name.map(str::to_owned),
            operator_namespace_labels: labels.collect(),
            privileged_templates: false,
        };
        serde_json::to_value(operator(&settings).namespace_selector).unwrap()
    }

    #[test]
    fn operators_of_other_namespaces_are_kept_out() {
        let own = json!({"matchLabels": {"kubernetes.io/metadata.name": "karst-system"}});
        assert_eq!(namespaces(Some("karst-system"), &[]), own);
        let labelled = json!({"matchLabels": {"team": "kafka"}});
        assert_eq!(namespaces(Some("karst-system"), &[("team", "kafka")]), labelled);
        assert_eq!(
            namespaces(None, &[]),
            json!({}),
            "an operator that does not know where it runs is let in everywhere"
        );
    }
}
