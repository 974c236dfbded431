//! The services by which clients reach listeners that are not internal: one for all brokers, and one for each.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use karst_api as api;

use super::{ClientListener, Reach, template};
use crate::cluster::{Cluster, Node};
use crate::ids::NodeId;
use crate::names::{ADDITIONS_ANNOTATION, BROKER_ROLE_LABEL, LISTENER_LABEL, POD_NAME_LABEL};
use crate::objects::{owner, shared_meta};
use crate::template::{Metadata, SharedTemplate, family, mark, policy};

/// Labels and annotations.
type Additions = (BTreeMap<String, String>, BTreeMap<String, String>);

/// All services of the listeners, as they should be.
pub(crate) fn wanted(cluster: &Cluster, kafka: &api::Kafka) -> Vec<Service> {
    let template = SharedTemplate::of(kafka.metadata.labels.as_ref(), &kafka.spec.kafka);
    let mut services = Vec::new();
    let ours = |listener: &&ClientListener| listener.reach != Reach::Internal && !listener.is_frozen;
    for listener in cluster.listeners.iter().filter(ours) {
        if listener.has_bootstrap_service() {
            services.push(bootstrap(cluster, kafka, listener, &template.external_bootstrap_service));
        }
        let brokers = cluster.nodes().filter(|node| node.pool.roles.has_broker());
        services.extend(brokers.map(|node| of_broker(cluster, kafka, listener, node)));
    }
    services
}

/// What a service was asked to be, by its mark.
pub fn asked(meta: &ObjectMeta) -> Option<&str> {
    meta.annotations.as_ref()?.get(ADDITIONS_ANNOTATION).map(String::as_str)
}

fn bootstrap(
    cluster: &Cluster,
    kafka: &api::Kafka,
    listener: &ClientListener,
    template: &Metadata,
) -> Service {
    let mut selector = cluster.key.selector();
    selector.insert(BROKER_ROLE_LABEL.to_owned(), "true".to_owned());
    let settings = listener.bootstrap().cloned().unwrap_or_default();
    let own = Own {
        node_port: settings.node_port,
        load_balancer_ip: settings.load_balancer_ip,
        external_ips: settings.external_ips,
        additions: (settings.labels.unwrap_or_default(), settings.annotations.unwrap_or_default()),
    };
    let metadata = shared_meta(cluster, owner(kafka), cluster.key.listener_bootstrap(&listener.name));
    service(listener, metadata, selector, template, own)
}

fn of_broker(cluster: &Cluster, kafka: &api::Kafka, listener: &ClientListener, node: Node<'_>) -> Service {
    let pod = cluster.pod_name(node);
    let mut selector = cluster.key.pool_selector(&node.pool.name);
    selector.insert(POD_NAME_LABEL.to_owned(), pod.clone());
    let mut labels = cluster.key.pool_labels(&node.pool.name);
    labels.insert(POD_NAME_LABEL.to_owned(), pod.clone());
    let metadata = ObjectMeta {
        name: Some(cluster.key.listener_broker(&node.pool.name, listener, node.id)),
        namespace: Some(cluster.key.namespace.clone()),
        labels: Some(labels),
        owner_references: Some(vec![owner(kafka)]),
        ..ObjectMeta::default()
    };
    let mut additions = per_broker(&listener.configuration, node.id, &pod);
    let settings = listener.broker(node.id);
    if let Some(settings) = settings {
        additions.0.extend(settings.labels.clone().unwrap_or_default());
        additions.1.extend(settings.annotations.clone().unwrap_or_default());
    }
    let own = Own {
        node_port: settings.and_then(|settings| settings.node_port),
        load_balancer_ip: settings.and_then(|settings| settings.load_balancer_ip.clone()),
        external_ips: settings.and_then(|settings| settings.external_ips.clone()),
        additions,
    };
    service(listener, metadata, selector, &node.pool.template.per_pod_service(), own)
}

/// What users add to the service of each broker.
pub(super) fn per_broker(written: &api::ListenerConfiguration, node: NodeId, pod: &str) -> Additions {
    let filled = |entries: &Option<BTreeMap<String, String>>| {
        let entries = entries.iter().flatten();
        entries.map(|(key, value)| (key.clone(), template::fill(value, node, pod))).collect()
    };
    (filled(&written.per_broker_labels_template), filled(&written.per_broker_annotations_template))
}

/// What users say about this one service.
struct Own {
    node_port: Option<i32>,
    load_balancer_ip: Option<String>,
    external_ips: Option<Vec<String>>,
    additions: Additions,
}

fn service(
    listener: &ClientListener,
    mut metadata: ObjectMeta,
    selector: BTreeMap<String, String>,
    template: &Metadata,
    own: Own,
) -> Service {
    let all = &listener.configuration;
    let type_ = match listener.reach {
        Reach::Internal | Reach::ClusterIp => "ClusterIP",
        Reach::NodePort => "NodePort",
        Reach::LoadBalancer => "LoadBalancer",
    };
    let is_balanced = listener.reach == Reach::LoadBalancer;
    let traffic = all.external_traffic_policy.map(|policy| match policy {
        api::ExternalTrafficPolicy::Local => "Local".to_owned(),
        api::ExternalTrafficPolicy::Cluster => "Cluster".to_owned(),
    });
    let families = all.ip_families.as_ref();
    let spec = ServiceSpec {
        type_: Some(type_.to_owned()),
        selector: Some(selector),
        ports: Some(vec![ServicePort {
            name: Some(listener.port_name()),
            port: i32::from(listener.port),
            target_port: Some(IntOrString::Int(i32::from(listener.port))),
            protocol: Some("TCP".to_owned()),
            node_port: own.node_port,
            ..ServicePort::default()
        }]),
        external_traffic_policy: traffic,
        load_balancer_ip: own.load_balancer_ip,
        load_balancer_source_ranges: all.load_balancer_source_ranges.clone(),
        load_balancer_class: all.class.clone().filter(|_| is_balanced),
        allocate_load_balancer_node_ports: all.allocate_load_balancer_node_ports,
        external_ips: own.external_ips,
        ip_family_policy: all.ip_family_policy.map(|one| policy(one).to_owned()),
        ip_families: families.map(|all| all.iter().map(|one| family(*one).to_owned()).collect()),
        publish_not_ready_addresses: all.publish_not_ready_addresses,
        ..ServiceSpec::default()
    };
    metadata.finalizers = all.finalizers.clone().filter(|_| is_balanced);
    metadata.labels.get_or_insert_default().insert(LISTENER_LABEL.to_owned(), listener.name.clone());
    let added = Metadata::checked(
        &Default::default(),
        &Some(own.additions.0),
        &Some(own.additions.1),
        &mut Vec::new(),
    );
    template.add_to(&mut metadata);
    added.add_to(&mut metadata);
    // The API server fills in what is not set here. The mark tells what was asked for, so that a change of it shows.
    mark(&mut metadata, &(template, &added, &spec, &all.finalizers));
    Service { metadata, spec: Some(spec), ..Service::default() }
}
