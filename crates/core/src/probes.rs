//! How Kubernetes finds out whether a node lives and is useful.
//!
//! The launcher answers, and it does so at once: nothing is gained by waiting before the first question, and a node that
//! formats its disks or recovers its log is alive all the while, so no startup probe is needed to protect it.

use k8s_openapi::api::core::v1::{HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use karst_api as api;

use crate::problem::Problem;

/// Where the launcher tells how the node is.
pub const PORT: u16 = 8080;
/// How often it is asked for signs of life, in seconds.
const LIVENESS_PERIOD: i32 = 5;
/// How often it is asked whether the node is useful: clients wait for that.
const READINESS_PERIOD: i32 = 1;
const TIMEOUT: i32 = 5;
const FAILURES: i32 = 3;

/// The probe that ends a container which gives no sign of life.
pub(crate) fn liveness(spec: &api::KafkaClusterSpec) -> Probe {
    probe("/live", spec.liveness_probe.as_ref(), LIVENESS_PERIOD)
}

/// The probe that sends clients to a node.
pub(crate) fn readiness(spec: &api::KafkaClusterSpec) -> Probe {
    probe("/ready", spec.readiness_probe.as_ref(), READINESS_PERIOD)
}

fn probe(path: &str, wanted: Option<&api::Probe>, period: i32) -> Probe {
    let default = api::Probe::default();
    let wanted = wanted.unwrap_or(&default);
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::Int(i32::from(PORT)),
            ..HTTPGetAction::default()
        }),
        initial_delay_seconds: wanted.initial_delay_seconds,
        timeout_seconds: Some(wanted.timeout_seconds.unwrap_or(TIMEOUT)),
        period_seconds: Some(wanted.period_seconds.unwrap_or(period)),
        success_threshold: wanted.success_threshold,
        failure_threshold: Some(wanted.failure_threshold.unwrap_or(FAILURES)),
        ..Probe::default()
    }
}

/// What Kubernetes would refuse only when the pod is made: then it is too late.
pub(crate) fn check(spec: &api::KafkaClusterSpec, problems: &mut Vec<Problem>) {
    let threshold = spec.liveness_probe.as_ref().and_then(|probe| probe.success_threshold);
    if let Some(threshold) = threshold.filter(|threshold| *threshold != 1) {
        problems.push(Problem::Template {
            field: "spec.kafka.livenessProbe.successThreshold".to_owned(),
            found: format!("is {threshold}"),
            advice: "Kubernetes allows only 1 there: set it to 1, or leave it out".to_owned(),
        });
    }
}
