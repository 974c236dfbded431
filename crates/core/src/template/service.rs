//! What users add to the services inside the Kubernetes cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use karst_api as api;
use serde::Serialize;

use super::metadata::{self, Metadata};
use crate::problem::Problem;

/// What users say about a service.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct ServiceTemplate {
    metadata: Metadata,
    ip_family_policy: Option<&'static str>,
    ip_families: Option<Vec<&'static str>>,
}

impl ServiceTemplate {
    /// Reads the template at `field`. What cannot be used is reported and left out.
    pub(super) fn read(
        field: &str,
        written: Option<&api::InternalServiceTemplate>,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let Some(written) = written else { return Self::default() };
        let families = written.ip_families.as_deref().unwrap_or_default();
        problems.extend(families_problem(field, families, written.ip_family_policy));
        let names: Vec<_> = families.iter().copied().map(family).collect();
        Self {
            metadata: Metadata::read(field, written.metadata.as_ref(), problems),
            ip_family_policy: written.ip_family_policy.map(policy),
            ip_families: (!names.is_empty()).then_some(names),
        }
    }

    /// The same, with labels that the service inherits.
    pub(super) fn inheriting(self, labels: &BTreeMap<String, String>) -> Self {
        Self { metadata: self.metadata.inheriting(labels), ..self }
    }

    /// Adds it to the service. The API server fills in what is not set here, and such a service is left as it is:
    /// the mark tells what was asked for, not what was filled in.
    pub(crate) fn add_to(&self, service: &mut Service) {
        self.metadata.add_to(&mut service.metadata);
        let spec = service.spec.get_or_insert_default();
        spec.ip_family_policy = self.ip_family_policy.map(str::to_owned);
        spec.ip_families =
            self.ip_families.as_ref().map(|all| all.iter().map(|family| (*family).to_owned()).collect());
        if *self != Self::default() {
            metadata::mark(&mut service.metadata, self);
        }
    }
}

pub(crate) fn policy(policy: api::IpFamilyPolicy) -> &'static str {
    match policy {
        api::IpFamilyPolicy::SingleStack => "SingleStack",
        api::IpFamilyPolicy::PreferDualStack => "PreferDualStack",
        api::IpFamilyPolicy::RequireDualStack => "RequireDualStack",
    }
}

pub(crate) fn family(family: api::IpFamily) -> &'static str {
    match family {
        api::IpFamily::V4 => "IPv4",
        api::IpFamily::V6 => "IPv6",
    }
}

fn families_problem(
    field: &str,
    families: &[api::IpFamily],
    policy: Option<api::IpFamilyPolicy>,
) -> Option<Problem> {
    let (found, advice) = match families {
        [] | [_] => return None,
        [one, other] if one != other => {
            // Without a policy the API server takes SingleStack, and refuses the second family.
            if policy.is_some_and(|policy| policy != api::IpFamilyPolicy::SingleStack) {
                return None;
            }
            (
                "lists two families for a service of one",
                "set ipFamilyPolicy to PreferDualStack or RequireDualStack",
            )
        }
        _ => ("lists a family twice", "list IPv4, IPv6, or both in the order you prefer"),
    };
    let (found, advice) = (found.to_owned(), advice.to_owned());
    Some(Problem::Template { field: format!("{field}.ipFamilies"), found, advice })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(written: Value) -> (ServiceTemplate, Vec<Problem>) {
        let written = serde_json::from_value(written).unwrap();
        let mut problems = Vec::new();
        let read = ServiceTemplate::read("spec.kafka.template.brokersService", Some(&written), &mut problems);
        (read, problems)
    }

    #[test]
    fn the_families_reach_the_service() {
        let (template, problems) =
            read(json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]}));
        assert_eq!(problems, []);
        let mut service = Service::default();
        template.add_to(&mut service);
        let spec = service.spec.unwrap();
        assert_eq!(spec.ip_family_policy.as_deref(), Some("RequireDualStack"));
        assert_eq!(spec.ip_families, Some(vec!["IPv6".to_owned(), "IPv4".to_owned()]));
    }

    #[test]
    fn a_service_without_additions_is_not_marked() {
        let mut service = Service::default();
        ServiceTemplate::default().add_to(&mut service);
        assert_eq!(service.metadata.annotations, None);
    }

    #[test]
    fn families_that_the_api_server_would_refuse_are_refused_before() {
        for written in [
            json!({"ipFamilies": ["IPv4", "IPv4"], "ipFamilyPolicy": "PreferDualStack"}),
            json!({"ipFamilies": ["IPv4", "IPv6"]}),
            json!({"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "SingleStack"}),
        ] {
            let (_, problems) = read(written);
            let message = problems[0].to_string();
            assert!(message.starts_with("spec.kafka.template.brokersService.ipFamilies lists"), "{message}");
        }
    }
}
