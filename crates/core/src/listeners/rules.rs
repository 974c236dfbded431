//! What a listener may not ask for: settings that its type has no use for, and values that cannot be used.
//!
//! A setting without an effect is refused, not ignored: whoever writes it expects something from it.

use std::collections::BTreeSet;

use api::ListenerType::{ClusterIp, Ingress, Internal, LoadBalancer, NodePort, Route, TlsRoute};
use karst_api as api;

use super::template::{compute, is_host};
use crate::ids::NodeId;
use crate::problem::Problem;
use crate::template::Metadata;

/// A type as users write it.
pub(super) fn type_name(type_: api::ListenerType) -> &'static str {
    match type_ {
        Internal => "internal",
        Route => "route",
        TlsRoute => "tlsroute",
        LoadBalancer => "loadbalancer",
        NodePort => "nodeport",
        Ingress => "ingress",
        ClusterIp => "cluster-ip",
    }
}

const ALL_BUT_INTERNAL: &[api::ListenerType] = &[Route, TlsRoute, LoadBalancer, NodePort, Ingress, ClusterIp];
const WITH_HOSTS: &[api::ListenerType] = &[Route, TlsRoute, Ingress];

/// All that is wrong with one listener, but for its name and port.
pub(super) fn problems(index: usize, listener: &api::Listener) -> Vec<Problem> {
    let mut rules = Rules { at: format!("spec.kafka.listeners[{index}]"), listener, problems: Vec::new() };
    rules.encryption();
    let default = api::ListenerConfiguration::default();
    let configuration = listener.configuration.as_deref().unwrap_or(&default);
    rules.settings_of_other_types(configuration);
    rules.certificate(configuration);
    rules.addresses(configuration);
    rules.numbers(configuration);
    rules.metadata(configuration);
    rules.hosts_of_routes(configuration);
    rules.problems
}

struct Rules<'a> {
    at: String,
    listener: &'a api::Listener,
    problems: Vec<Problem>,
}

impl Rules<'_> {
    fn refuse(&mut self, field: &str, found: impl Into<String>, advice: impl Into<String>) {
        let field = format!("{}.{field}", self.at);
        self.problems.push(Problem::Listener { field, found: found.into(), advice: advice.into() });
    }

    fn is_one_of(&self, types: &[api::ListenerType]) -> bool {
        types.contains(&self.listener.type_)
    }

    /// A field that only listeners of some types have a use for.
    fn only_for(&mut self, is_set: bool, field: &str, types: &[api::ListenerType]) {
        if is_set && !self.is_one_of(types) {
            let names: Vec<_> = types.iter().map(|type_| type_name(*type_)).collect();
            self.refuse(
                field,
                format!(
                    "is set, and a listener of type {} has no use for it",
                    type_name(self.listener.type_)
                ),
                format!("remove it, or use it with {}", names.join(", ")),
            );
        }
    }

    fn encryption(&mut self) {
        if self.is_one_of(WITH_HOSTS) && !self.listener.tls {
            let found = format!(
                "is false, and a listener of type {} is found by TLS",
                type_name(self.listener.type_)
            );
            self.refuse("tls", found, "set it to true");
        }
    }

    fn settings_of_other_types(&mut self, written: &api::ListenerConfiguration) {
        let bootstrap = written.bootstrap.clone().unwrap_or_default();
        let outside: &[api::ListenerType] = &[LoadBalancer, NodePort];
        for (is_set, field, types) in [
            (written.use_service_dns_domain.is_some(), "useServiceDnsDomain", &[Internal, ClusterIp][..]),
            (written.create_bootstrap_service == Some(false), "createBootstrapService", &[LoadBalancer]),
            (written.ip_family_policy.is_some(), "ipFamilyPolicy", ALL_BUT_INTERNAL),
            (written.ip_families.is_some(), "ipFamilies", ALL_BUT_INTERNAL),
            (written.publish_not_ready_addresses.is_some(), "publishNotReadyAddresses", ALL_BUT_INTERNAL),
            (written.class.is_some(), "class", &[LoadBalancer, Ingress]),
            (written.preferred_node_port_address_type.is_some(), "preferredNodePortAddressType", &[NodePort]),
            (written.external_traffic_policy.is_some(), "externalTrafficPolicy", outside),
            (written.load_balancer_source_ranges.is_some(), "loadBalancerSourceRanges", &[LoadBalancer]),
            (
                written.allocate_load_balancer_node_ports.is_some(),
                "allocateLoadBalancerNodePorts",
                &[LoadBalancer],
            ),
            (written.finalizers.is_some(), "finalizers", &[LoadBalancer]),
            (written.host_template.is_some(), "hostTemplate", WITH_HOSTS),
            (
                written.per_broker_annotations_template.is_some(),
                "perBrokerAnnotationsTemplate",
                ALL_BUT_INTERNAL,
            ),
            (written.per_broker_labels_template.is_some(), "perBrokerLabelsTemplate", ALL_BUT_INTERNAL),
            (written.parent_refs.is_some(), "parentRefs", &[TlsRoute]),
            (bootstrap.host.is_some(), "bootstrap.host", WITH_HOSTS),
            (bootstrap.node_port.is_some(), "bootstrap.nodePort", outside),
            (bootstrap.load_balancer_ip.is_some(), "bootstrap.loadBalancerIP", &[LoadBalancer]),
            (bootstrap.external_ips.is_some(), "bootstrap.externalIPs", &[NodePort]),
            (bootstrap.annotations.is_some(), "bootstrap.annotations", ALL_BUT_INTERNAL),
            (bootstrap.labels.is_some(), "bootstrap.labels", ALL_BUT_INTERNAL),
        ] {
            self.only_for(is_set, &format!("configuration.{field}"), types);
        }
        for (index, broker) in written.brokers.iter().flatten().enumerate() {
            for (is_set, field, types) in [
                (broker.host.is_some(), "host", WITH_HOSTS),
                (broker.node_port.is_some(), "nodePort", outside),
                (broker.load_balancer_ip.is_some(), "loadBalancerIP", &[LoadBalancer]),
                (broker.external_ips.is_some(), "externalIPs", &[NodePort]),
                (broker.annotations.is_some(), "annotations", ALL_BUT_INTERNAL),
                (broker.labels.is_some(), "labels", ALL_BUT_INTERNAL),
            ] {
                self.only_for(is_set, &format!("configuration.brokers[{index}].{field}"), types);
            }
        }
    }

    fn certificate(&mut self, written: &api::ListenerConfiguration) {
        const FIELD: &str = "configuration.brokerCertChainAndKey";
        let Some(certificate) = &written.broker_cert_chain_and_key else { return };
        if !self.listener.tls {
            self.refuse(FIELD, "is set, and tls of this listener is false", "set tls to true, or remove it");
        }
        for (name, value) in [
            ("secretName", &certificate.secret_name),
            ("certificate", &certificate.certificate),
            ("key", &certificate.key),
        ] {
            if value.trim().is_empty() {
                self.refuse(
                    &format!("{FIELD}.{name}"),
                    "is empty",
                    "name the Secret, and the two keys in it",
                );
            }
        }
    }

    /// What brokers tell their clients, and what their certificates are for. It becomes part of a setting, so it is checked
    /// letter by letter.
    fn addresses(&mut self, written: &api::ListenerConfiguration) {
        const ADVICE: &str = "use a host name or an IP address, without a port";
        let names =
            written.bootstrap.iter().filter_map(|bootstrap| bootstrap.alternative_names.as_ref()).flatten();
        for (index, name) in names.enumerate() {
            if !is_host(name.strip_prefix("*.").unwrap_or(name)) {
                let field = format!("configuration.bootstrap.alternativeNames[{index}]");
                self.refuse(&field, format!("is '{name}', which no certificate can be for"), ADVICE);
            }
        }
        let mut ids = BTreeSet::new();
        for (index, broker) in written.brokers.iter().flatten().enumerate() {
            let field = format!("configuration.brokers[{index}]");
            if !ids.insert(broker.broker) {
                let found = format!("is {}, and another entry is for that node too", broker.broker);
                self.refuse(&format!("{field}.broker"), found, "write one entry for each node");
            }
            if let Some(host) = broker.advertised_host.as_ref().filter(|host| !is_host(host)) {
                self.refuse(
                    &format!("{field}.advertisedHost"),
                    format!("is '{host}', which is no host"),
                    ADVICE,
                );
            }
            if let Some(port) = broker.advertised_port.filter(|port| !(1..=65535).contains(port)) {
                let found = format!("is {port}, which is no port");
                self.refuse(&format!("{field}.advertisedPort"), found, "use a number from 1 to 65535");
            }
        }
        if let Some(template) = &written.advertised_port_template
            && let Err(why) = compute(template, NodeId(0))
            && !why.contains("65535")
        {
            let found = format!("is '{template}', which is no port: {why}");
            let advice = "use numbers, {nodeId}, +, -, * and parentheses";
            self.refuse("configuration.advertisedPortTemplate", found, advice);
        }
    }

    fn numbers(&mut self, written: &api::ListenerConfiguration) {
        for (name, value) in [
            ("maxConnections", written.max_connections),
            ("maxConnectionCreationRate", written.max_connection_creation_rate),
        ] {
            if let Some(value) = value.filter(|value| *value < 1) {
                self.refuse(
                    &format!("configuration.{name}"),
                    format!("is {value}"),
                    "use a number from 1 on",
                );
            }
        }
    }

    fn metadata(&mut self, written: &api::ListenerConfiguration) {
        let at = |parts: [&str; 2]| parts.map(|part| format!("{}.configuration.{part}", self.at));
        let mut problems = Vec::new();
        if let Some(bootstrap) = &written.bootstrap {
            let fields = at(["bootstrap.labels", "bootstrap.annotations"]);
            Metadata::checked(&fields, &bootstrap.labels, &bootstrap.annotations, &mut problems);
        }
        for (index, broker) in written.brokers.iter().flatten().enumerate() {
            let fields = ["labels", "annotations"].map(|part| format!("brokers[{index}].{part}"));
            let fields = at([&fields[0], &fields[1]]);
            Metadata::checked(&fields, &broker.labels, &broker.annotations, &mut problems);
        }
        // What stands for the node is filled in as the largest node would.
        let filled = super::services::per_broker(written, NodeId(i32::MAX), "pod");
        let fields = at(["perBrokerLabelsTemplate", "perBrokerAnnotationsTemplate"]);
        Metadata::checked(&fields, &Some(filled.0), &Some(filled.1), &mut problems);
        self.problems.extend(problems);
    }

    fn hosts_of_routes(&mut self, written: &api::ListenerConfiguration) {
        if !self.is_one_of(&[Ingress, TlsRoute]) {
            return;
        }
        let name = type_name(self.listener.type_);
        if written.bootstrap.as_ref().is_none_or(|bootstrap| bootstrap.host.is_none()) {
            let found = format!("is missing, and a listener of type {name} is found by it");
            self.refuse("configuration.bootstrap.host", found, "set it");
        }
        let mut brokers = written.brokers.iter().flatten().peekable();
        let has_hosts = brokers.peek().is_some() && brokers.all(|broker| broker.host.is_some());
        if written.host_template.is_none() && !has_hosts {
            let found = format!("is missing, and a broker of a listener of type {name} is found by its host");
            self.refuse("configuration.brokers[].host", found, "set it for each broker, or set hostTemplate");
        }
        if self.listener.type_ == TlsRoute && written.parent_refs.as_ref().is_none_or(Vec::is_empty) {
            let found = "is missing, and a TLSRoute is attached to a Gateway by it";
            self.refuse("configuration.parentRefs", found, "name at least one Gateway");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[allow(clippy::needless_pass_by_value, reason = "a test writes it in place")]
    fn said(type_: &str, tls: bool, configuration: Value) -> Vec<String> {
        let listener =
            json!({"name": "a", "port": 9094, "type": type_, "tls": tls, "configuration": configuration});
        let listener = serde_json::from_value(listener).unwrap();
        problems(3, &listener).iter().map(ToString::to_string).collect()
    }

    /// Every field that only some types have a use for, with the types that do.
    #[test]
    fn a_setting_is_refused_where_it_has_no_effect() {
        let all = ["internal", "route", "tlsroute", "loadbalancer", "nodeport", "ingress", "cluster-ip"];
        let hosts = ["route", "tlsroute", "ingress"];
        let not_internal = &all[1..];
        let outside = ["loadbalancer", "nodeport"];
        let rules: &[(&str, Value, &[&str])] = &[
            ("useServiceDnsDomain", json!({"useServiceDnsDomain": true}), &["internal", "cluster-ip"]),
            ("createBootstrapService", json!({"createBootstrapService": false}), &["loadbalancer"]),
            ("ipFamilyPolicy", json!({"ipFamilyPolicy": "SingleStack"}), not_internal),
            ("ipFamilies", json!({"ipFamilies": ["IPv4"]}), not_internal),
            ("publishNotReadyAddresses", json!({"publishNotReadyAddresses": true}), not_internal),
            ("class", json!({"class": "x"}), &["loadbalancer", "ingress"]),
            (
                "preferredNodePortAddressType",
                json!({"preferredNodePortAddressType": "Hostname"}),
                &["nodeport"],
            ),
            ("externalTrafficPolicy", json!({"externalTrafficPolicy": "Local"}), &outside),
            (
                "loadBalancerSourceRanges",
                json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]}),
                &["loadbalancer"],
            ),
            (
                "allocateLoadBalancerNodePorts",
                json!({"allocateLoadBalancerNodePorts": true}),
                &["loadbalancer"],
            ),
            ("finalizers", json!({"finalizers": ["a.b/c"]}), &["loadbalancer"]),
            ("hostTemplate", json!({"hostTemplate": "a"}), &hosts),
            (
                "perBrokerAnnotationsTemplate",
                json!({"perBrokerAnnotationsTemplate": {"a": "b"}}),
                not_internal,
            ),
            ("perBrokerLabelsTemplate", json!({"perBrokerLabelsTemplate": {"a": "b"}}), not_internal),
            ("parentRefs", json!({"parentRefs": [{"name": "g"}]}), &["tlsroute"]),
            ("bootstrap.host", json!({"bootstrap": {"host": "a"}}), &hosts),
            ("bootstrap.nodePort", json!({"bootstrap": {"nodePort": 32000}}), &outside),
            (
                "bootstrap.loadBalancerIP",
                json!({"bootstrap": {"loadBalancerIP": "10.0.0.1"}}),
                &["loadbalancer"],
            ),
            ("bootstrap.externalIPs", json!({"bootstrap": {"externalIPs": ["10.0.0.1"]}}), &["nodeport"]),
            ("bootstrap.annotations", json!({"bootstrap": {"annotations": {"a": "b"}}}), not_internal),
            ("bootstrap.labels", json!({"bootstrap": {"labels": {"a": "b"}}}), not_internal),
            ("brokers[0].host", json!({"brokers": [{"broker": 0, "host": "a"}]}), &hosts),
            ("brokers[0].nodePort", json!({"brokers": [{"broker": 0, "nodePort": 32000}]}), &outside),
            (
                "brokers[0].loadBalancerIP",
                json!({"brokers": [{"broker": 0, "loadBalancerIP": "10.0.0.1"}]}),
                &["loadbalancer"],
            ),
            (
                "brokers[0].externalIPs",
                json!({"brokers": [{"broker": 0, "externalIPs": ["10.0.0.1"]}]}),
                &["nodeport"],
            ),
            (
                "brokers[0].annotations",
                json!({"brokers": [{"broker": 0, "annotations": {"a": "b"}}]}),
                not_internal,
            ),
            ("brokers[0].labels", json!({"brokers": [{"broker": 0, "labels": {"a": "b"}}]}), not_internal),
        ];
        for (field, configuration, types) in rules {
            for type_ in all {
                let field = format!(
                    "spec.kafka.listeners[3].configuration.{field} is set, and a listener of type {type_} has no use"
                );
                let is_refused =
                    said(type_, true, configuration.clone()).iter().any(|one| one.starts_with(&field));
                assert_eq!(is_refused, !types.contains(&type_), "{field}");
            }
        }
    }

    #[test]
    fn what_works_without_encryption_and_what_does_not() {
        for type_ in ["route", "tlsroute", "ingress"] {
            assert!(
                said(type_, false, json!({})).iter().any(|one| one.contains("].tls is false")),
                "{type_}"
            );
        }
        assert_eq!(said("nodeport", false, json!({})), Vec::<String>::new());
        let certificate =
            json!({"brokerCertChainAndKey": {"secretName": "s", "certificate": "tls.crt", "key": "tls.key"}});
        assert_eq!(said("internal", true, certificate.clone()), Vec::<String>::new());
        assert_eq!(said("internal", false, certificate).len(), 1);
    }

    #[test]
    fn a_certificate_is_named_with_all_its_parts() {
        let said = said(
            "internal",
            true,
            json!({"brokerCertChainAndKey": {"secretName": "", "certificate": " ", "key": ""}}),
        );
        assert_eq!(said.len(), 3, "{said:#?}");
    }

    #[test]
    fn addresses_are_hosts_and_ports() {
        let said = said(
            "nodeport",
            true,
            json!({
                "bootstrap": {"alternativeNames": ["*.example.com", "10.0.0.1", "a b"]},
                "brokers": [
                    {"broker": 0, "advertisedHost": "a,PLAIN://b", "advertisedPort": 70000},
                    {"broker": 0, "advertisedHost": "good.example.com"},
                ],
                "advertisedPortTemplate": "nine thousand",
                "maxConnections": 0,
            }),
        );
        assert_eq!(said.len(), 6, "{said:#?}");
        assert!(said[0].contains("alternativeNames[2] is 'a b'"), "{said:#?}");
    }

    #[test]
    fn labels_that_are_not_the_users_are_refused() {
        let said = said(
            "nodeport",
            true,
            json!({"bootstrap": {"labels": {"strimzi.io/cluster": "x"}}, "perBrokerLabelsTemplate": {"node": "{nodePodName} x"}}),
        );
        assert_eq!(said.len(), 2, "{said:#?}");
    }

    #[test]
    fn routes_need_hosts() {
        assert_eq!(said("ingress", true, json!({})).len(), 2);
        assert_eq!(said("tlsroute", true, json!({})).len(), 3);
        let hosts = json!({"bootstrap": {"host": "b"}, "hostTemplate": "broker-{nodeId}", "parentRefs": [{"name": "g"}]});
        assert_eq!(said("tlsroute", true, hosts), Vec::<String>::new());
        assert_eq!(said("route", true, json!({})), Vec::<String>::new());
    }
}
