//! What gives whoever may write a resource more than a Kafka cluster: rights over the Kubernetes node that a pod runs on, and
//! addresses whose traffic a service takes over.
//!
//! The operator makes pods and services with its own rights, so whatever a resource can ask for is given to all who may write it. What
//! reaches out of the pod is refused unless whoever runs the operator allowed it. Namespaces of the host and `hostPath` volumes are not
//! among this: no resource can ask for them at all.

use karst_api as api;
use serde_json::Value;

use crate::problem::Problem;
use crate::world::World;

/// What the cluster's resource asks for.
pub(crate) fn of_kafka(world: &World) -> Vec<Problem> {
    if world.settings.privileged_templates {
        return Vec::new();
    }
    let spec = &world.kafka.spec.kafka;
    let mut problems = Vec::new();
    if let Some(template) = spec.template.as_deref() {
        let (kafka, init) = (template.kafka_container.as_ref(), template.init_container.as_ref());
        problems.extend(of_parts("spec.kafka.template", template.pod.as_deref(), kafka, init));
    }
    for (index, listener) in spec.listeners.iter().enumerate() {
        problems.extend(of_listener(index, listener));
    }
    problems
}

/// What a pool asks for.
pub(crate) fn of_pool(world: &World, pool: &api::KafkaNodePool) -> Vec<Problem> {
    let template = pool.spec.template.as_deref().filter(|_| !world.settings.privileged_templates);
    let Some(template) = template else { return Vec::new() };
    let (kafka, init) = (template.kafka_container.as_ref(), template.init_container.as_ref());
    of_parts("spec.template", template.pod.as_deref(), kafka, init)
}

fn of_parts(
    field: &str,
    pod: Option<&api::PodTemplate>,
    kafka: Option<&api::ContainerTemplate>,
    init: Option<&api::ContainerTemplate>,
) -> Vec<Problem> {
    let contexts = [
        ("pod", pod.and_then(|pod| pod.security_context.as_ref())),
        ("kafkaContainer", kafka.and_then(|container| container.security_context.as_ref())),
        ("initContainer", init.and_then(|container| container.security_context.as_ref())),
    ];
    let written = contexts.into_iter().filter_map(|(part, context)| Some((part, context?)));
    let of_part = |(part, context)| of_context(&format!("{field}.{part}.securityContext"), context);
    written.flat_map(of_part).collect()
}

/// Does a value reach out of the container?
type Reaches = fn(&Value) -> bool;

/// The fields of a security context that can.
const REACHING: &[(&str, Reaches)] = &[
    ("/privileged", is_true),
    ("/allowPrivilegeEscalation", is_true),
    ("/capabilities/add", has_items),
    ("/runAsUser", is_root),
    ("/procMount", is_unmasked),
    ("/seccompProfile/type", is_unconfined),
    ("/appArmorProfile/type", is_unconfined),
    ("/seLinuxOptions/type", is_no_container),
    ("/windowsOptions/hostProcess", is_true),
];

fn is_true(value: &Value) -> bool {
    value == true
}

fn has_items(value: &Value) -> bool {
    value.as_array().is_some_and(|items| !items.is_empty())
}

fn is_root(value: &Value) -> bool {
    value == 0
}

fn is_unmasked(value: &Value) -> bool {
    value == "Unmasked"
}

fn is_unconfined(value: &Value) -> bool {
    value == "Unconfined"
}

/// Types of SELinux other than those which the baseline of Kubernetes' pod security lets pass.
fn is_no_container(value: &Value) -> bool {
    let types = ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
    value.as_str().is_some_and(|found| !types.contains(&found))
}

fn of_context(field: &str, context: &api::FreeForm) -> Vec<Problem> {
    let context = Value::Object(context.clone().into_iter().collect());
    let reaching = REACHING.iter().filter_map(|(path, reaches)| {
        let value = context.pointer(path).filter(|value| reaches(value))?;
        let found = match value {
            Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
            value => plain(value),
        };
        Some(Problem::Privileged { field: format!("{field}{}", path.replace('/', ".")), found })
    });
    reaching.collect()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn of_listener(index: usize, listener: &api::Listener) -> Vec<Problem> {
    let Some(written) = listener.configuration.as_deref() else { return Vec::new() };
    let at = format!("spec.kafka.listeners[{index}].configuration");
    let bootstrap = written.bootstrap.iter().map(|one| ("bootstrap".to_owned(), one.external_ips.as_ref()));
    let brokers = written.brokers.iter().flatten().enumerate();
    let brokers = brokers.map(|(index, one)| (format!("brokers[{index}]"), one.external_ips.as_ref()));
    let asked =
        bootstrap.chain(brokers).filter_map(|(part, ips)| Some((part, ips.filter(|ips| !ips.is_empty())?)));
    let problem = |(part, ips): (String, &Vec<String>)| Problem::Privileged {
        field: format!("{at}.{part}.externalIPs"),
        found: ips.join(", "),
    };
    asked.map(problem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(context: Value) -> Vec<String> {
        let context = serde_json::from_value(context).unwrap();
        of_context("at", &context).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn whatever_reaches_out_of_a_container_is_refused_by_its_field() {
        for (context, start) in [
            (json!({"privileged": true}), "at.privileged is true"),
            (json!({"allowPrivilegeEscalation": true}), "at.allowPrivilegeEscalation is true"),
            (
                json!({"capabilities": {"add": ["SYS_ADMIN", "NET_RAW"]}}),
                "at.capabilities.add is SYS_ADMIN, NET_RAW",
            ),
            (json!({"runAsUser": 0}), "at.runAsUser is 0"),
            (json!({"procMount": "Unmasked"}), "at.procMount is Unmasked"),
            (json!({"seccompProfile": {"type": "Unconfined"}}), "at.seccompProfile.type is Unconfined"),
            (json!({"appArmorProfile": {"type": "Unconfined"}}), "at.appArmorProfile.type is Unconfined"),
            (json!({"seLinuxOptions": {"type": "spc_t"}}), "at.seLinuxOptions.type is spc_t"),
            (json!({"windowsOptions": {"hostProcess": true}}), "at.windowsOptions.hostProcess is true"),
        ] {
            let found = found(context);
            assert!(found.len() == 1 && found[0].starts_with(start), "{found:?}");
            assert!(found[0].contains("KARST_ALLOW_PRIVILEGED_TEMPLATES"), "{found:?}");
        }
    }

    #[test]
    fn what_keeps_a_container_in_is_no_problem() {
        let usual = json!({
            "privileged": false, "allowPrivilegeEscalation": false, "runAsNonRoot": true, "runAsUser": 1001,
            "runAsGroup": 0, "fsGroup": 1001, "capabilities": {"drop": ["ALL"], "add": []},
            "seccompProfile": {"type": "RuntimeDefault"}, "seLinuxOptions": {"level": "s0:c1,c2"},
            "readOnlyRootFilesystem": true
        });
        assert_eq!(found(usual), [""; 0]);
    }

    /// Were it otherwise, it would have to be refused here.
    #[test]
    fn no_template_can_ask_for_namespaces_of_the_host() {
        let written = json!({"hostNetwork": true, "hostPID": true, "hostIPC": true, "shareProcessNamespace": true,
                             "serviceAccountName": "other", "initContainers": [], "containers": []});
        let read: api::PodTemplate = serde_json::from_value(written).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), json!({}));
        let written =
            json!({"ports": [{"hostPort": 1}], "image": "x", "command": ["x"], "volumeDevices": []});
        let read: api::ContainerTemplate = serde_json::from_value(written).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), json!({}));
    }
}
