//! Fields that are accepted and kept, but not acted on yet. Nothing a user wrote is ignored in silence.

use karst_api as api;

use crate::notice::Notice;

/// The fields of a cluster that have no effect.
pub(crate) fn of_kafka(kafka: &api::Kafka) -> Option<Notice> {
    let spec = &kafka.spec;
    let cluster = &spec.kafka;
    let mut fields = present(&[
        ("spec.kafka.rack", cluster.rack.is_some()),
        ("spec.kafka.brokerRackInitImage", cluster.broker_rack_init_image.is_some()),
        ("spec.kafka.jmxOptions", cluster.jmx_options.is_some()),
        ("spec.kafka.metricsConfig", cluster.metrics_config.is_some()),
        ("spec.kafka.logging", cluster.logging.is_some()),
        ("spec.kafka.template", cluster.template.is_some()),
        ("spec.kafka.tieredStorage", cluster.tiered_storage.is_some()),
        ("spec.kafka.quotas", cluster.quotas.is_some()),
        ("spec.entityOperator", spec.entity_operator.is_some()),
        ("spec.clusterCa", spec.cluster_ca.is_some()),
        ("spec.clientsCa", spec.clients_ca.is_some()),
        ("spec.cruiseControl", spec.cruise_control.is_some()),
        ("spec.kafkaExporter", spec.kafka_exporter.is_some()),
        ("spec.maintenanceTimeWindows", spec.maintenance_time_windows.is_some()),
    ]);
    for (index, listener) in cluster.listeners.iter().enumerate() {
        let at = |field: &str| format!("spec.kafka.listeners[{index}].{field}");
        fields.extend(listener.configuration.is_some().then(|| at("configuration")));
        fields.extend(listener.network_policy_peers.is_some().then(|| at("networkPolicyPeers")));
    }
    fields.extend(cluster.storage.iter().flat_map(|storage| of_storage("spec.kafka.storage", storage)));
    notice(None, fields)
}

/// The fields of a pool that have no effect.
pub(crate) fn of_pool(name: &str, pool: &api::KafkaNodePool) -> Option<Notice> {
    let mut fields = present(&[("spec.template", pool.spec.template.is_some())]);
    fields.extend(of_storage("spec.storage", &pool.spec.storage));
    let claims = pool.spec.resources.as_ref().is_some_and(|resources| resources.claims.is_some());
    fields.extend(claims.then(|| "spec.resources.claims".to_owned()));
    notice(Some(name.to_owned()), fields)
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
