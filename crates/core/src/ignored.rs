//! Fields that are accepted and kept, but not acted on yet. Nothing a user wrote is ignored in silence.

use karst_api as api;

use crate::metrics;
use crate::notice::Notice;

/// The fields of a cluster that have no effect.
pub(crate) fn of_kafka(kafka: &api::Kafka) -> Option<Notice> {
    let spec = &kafka.spec;
    let cluster = &spec.kafka;
    let mut fields = present(&[
        ("spec.kafka.brokerRackInitImage", cluster.broker_rack_init_image.is_some()),
        ("spec.kafka.jmxOptions", cluster.jmx_options.is_some()),
        ("spec.kafka.metricsConfig (strimziMetricsReporter)", metrics::is_unsupported(cluster)),
        ("spec.kafka.tieredStorage", cluster.tiered_storage.is_some()),
        ("spec.kafka.quotas", cluster.quotas.is_some()),
        ("spec.entityOperator", spec.entity_operator.is_some()),
        ("spec.cruiseControl", spec.cruise_control.is_some()),
        ("spec.kafkaExporter", spec.kafka_exporter.is_some()),
    ]);
    fields.extend(cluster.template.iter().flat_map(|template| of_cluster_template(template)));
    fields.extend(cluster.storage.iter().flat_map(|storage| of_storage("spec.kafka.storage", storage)));
    notice(None, fields)
}

/// The fields of a pool that have no effect.
pub(crate) fn of_pool(name: &str, pool: &api::KafkaNodePool) -> Option<Notice> {
    let mut fields: Vec<_> =
        pool.spec.template.iter().flat_map(|template| of_pool_template(template)).collect();
    fields.extend(of_storage("spec.storage", &pool.spec.storage));
    let claims = pool.spec.resources.as_ref().is_some_and(|resources| resources.claims.is_some());
    fields.extend(claims.then(|| "spec.resources.claims".to_owned()));
    notice(Some(name.to_owned()), fields)
}

/// The parts of a cluster's template whose objects are not made yet.
fn of_cluster_template(template: &api::KafkaClusterTemplate) -> Vec<String> {
    present(&[
        ("spec.kafka.template.externalBootstrapRoute", template.external_bootstrap_route.is_some()),
        ("spec.kafka.template.perPodRoute", template.per_pod_route.is_some()),
        ("spec.kafka.template.externalBootstrapIngress", template.external_bootstrap_ingress.is_some()),
        ("spec.kafka.template.perPodIngress", template.per_pod_ingress.is_some()),
        ("spec.kafka.template.clusterCaCert", template.cluster_ca_cert.is_some()),
        ("spec.kafka.template.jmxSecret", template.jmx_secret.is_some()),
        ("spec.kafka.template.clusterRoleBinding", template.cluster_role_binding.is_some()),
    ])
}

/// The parts of a pool's template whose objects are not made yet.
fn of_pool_template(template: &api::KafkaNodePoolTemplate) -> Vec<String> {
    present(&[
        ("spec.template.perPodRoute", template.per_pod_route.is_some()),
        ("spec.template.perPodIngress", template.per_pod_ingress.is_some()),
    ])
}

fn of_storage(field: &str, storage: &api::Storage) -> Vec<String> {
    let mut fields = Vec::new();
    if storage.volume_attributes_class.is_some() {
        fields.push(format!("{field}.volumeAttributesClass"));
    }
    for (index, volume) in storage.volumes.iter().flatten().enumerate() {
        if volume.volume_attributes_class.is_some() {
            fields.push(format!("{field}.volumes[{index}].volumeAttributesClass"));
        }
    }
    fields
}

fn present(fields: &[(&str, bool)]) -> Vec<String> {
    fields.iter().filter(|(_, present)| *present).map(|(field, _)| (*field).to_owned()).collect()
}

fn notice(pool: Option<String>, fields: Vec<String>) -> Option<Notice> {
    (!fields.is_empty()).then_some(Notice::FieldsIgnored { pool, fields })
}
