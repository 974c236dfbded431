//! The pod of a node: the unmodified Kafka image, and the launcher that an init container puts beside it.
//!
//! What users wrote in templates was checked before; here it is only put in its place.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, EnvVar,
    EnvVarSource, KeyToPath, LocalObjectReference, ObjectFieldSelector, PersistentVolumeClaimVolumeSource,
    Pod, PodAffinityTerm, PodAntiAffinity, PodSecurityContext, PodSpec, ResourceRequirements, SeccompProfile,
    SecretVolumeSource, SecurityContext, Volume, VolumeMount, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use karst_api as api;

use crate::cluster::Pool;
use crate::config::{self, REPLICATION_PORT};
use crate::digest::Digest;
use crate::dynamic;
use crate::listeners::address::Served;
use crate::metrics;
use crate::names::{
    BROKER_ROLE_LABEL, CONFIGURATION_HASH_ANNOTATION, CONTROLLER_ROLE_LABEL, KAFKA_VERSION_ANNOTATION,
    POD_NAME_LABEL, QUORUM_PODS_ANNOTATION, REVISION_ANNOTATION, STARTED_WITH_ANNOTATION, listeners_secret,
    trust_secret,
};
use crate::probes;
use crate::properties::Properties;
use crate::quorum::CONTROLLER_PORT;
use crate::rack::Rack;
use crate::reach;
use crate::revision;
use crate::sheet::Sheet;
use crate::storage::{Disk, Medium};
use crate::template::{ContainerTemplate, PodTemplate};
use crate::world::Settings;

/// The user and group of the official image.
const KAFKA_USER: i64 = 1000;
/// How long a node may take to hand over its partitions before it is killed.
const GRACE_SECONDS: i64 = 30;

/// The pod as it is to be created, with its fingerprint.
pub(crate) fn render(
    sheet: &Sheet<'_>,
    served: &[Served<'_>],
    config: &Properties,
) -> Result<serde_json::Value, serde_json::Error> {
    let metadata = metadata(sheet, config)?;
    let pod = Pod { metadata, spec: Some(spec(sheet, served)), ..Pod::default() };
    let mut pod = serde_json::to_value(pod)?;
    let revision = revision::of(&pod);
    let mut annotations = BTreeMap::from([(REVISION_ANNOTATION.to_owned(), revision)]);
    // New certificates are no reason to restart, so they are no part of the fingerprint.
    annotations.extend(sheet.own.certificate.iter().cloned());
    // Neither are new addresses, as long as some of the old ones are good.
    let known = reach::annotation(sheet.common.bootstrap_servers);
    annotations.insert(QUORUM_PODS_ANNOTATION.to_owned(), known);
    // Nor settings that can change while it runs.
    let changeable = dynamic::annotation(sheet.common.cluster.version, config)?;
    annotations.insert(STARTED_WITH_ANNOTATION.to_owned(), changeable);
    for (key, value) in annotations {
        pod["metadata"]["annotations"][key] = value.into();
    }
    Ok(pod)
}

fn metadata(sheet: &Sheet<'_>, config: &Properties) -> Result<ObjectMeta, serde_json::Error> {
    let (cluster, node) = (sheet.common.cluster, sheet.node);
    let name = cluster.pod_name(node);
    let pool = &node.pool.name;
    let mut labels = cluster.key.pool_labels(pool);
    for (key, value) in [
        (POD_NAME_LABEL, name.clone()),
        (BROKER_ROLE_LABEL, node.pool.roles.has_broker().to_string()),
        (CONTROLLER_ROLE_LABEL, node.pool.roles.has_controller().to_string()),
        ("strimzi.io/controller", "strimzipodset".to_owned()),
        ("strimzi.io/controller-name", cluster.key.pod_set(pool)),
    ] {
        labels.insert(key.to_owned(), value);
    }
    let settings = settings_digest(sheet, config)?.short();
    let annotations = [
        (KAFKA_VERSION_ANNOTATION.to_owned(), cluster.version.version.to_owned()),
        (CONFIGURATION_HASH_ANNOTATION.to_owned(), settings),
        // Otherwise kubectl exec and logs ask which of the two containers is meant.
        ("kubectl.kubernetes.io/default-container".to_owned(), "kafka".to_owned()),
    ];
    let mut meta = ObjectMeta {
        name: Some(name),
        namespace: Some(cluster.key.namespace.clone()),
        labels: Some(labels),
        annotations: Some(annotations.into()),
        ..ObjectMeta::default()
    };
    node.pool.template.pods().add_to(&mut meta);
    Ok(meta)
}

/// The fingerprint of what a node reads only when it starts.
fn settings_digest(sheet: &Sheet<'_>, config: &Properties) -> Result<Digest, serde_json::Error> {
    let version = sheet.common.cluster.version;
    let (relevant, jvm) =
        (config::restart_relevant(config, version, sheet.node.pool.roles), sheet.jvm_options());
    match sheet.logging_read_once() {
        Some(logging) => Digest::of(&(relevant, jvm, logging)),
        None => Digest::of(&(relevant, jvm)),
    }
}

fn spec(sheet: &Sheet<'_>, served: &[Served<'_>]) -> PodSpec {
    let (cluster, node) = (sheet.common.cluster, sheet.node);
    let name = cluster.pod_name(node);
    let template = node.pool.template.pod.clone();
    PodSpec {
        hostname: Some(name.clone()),
        subdomain: Some(cluster.key.headless_service()),
        service_account_name: Some(cluster.key.service_account()),
        // Kafka has no business with the API server.
        automount_service_account_token: Some(false),
        enable_service_links: Some(template.enable_service_links.unwrap_or(false)),
        restart_policy: Some("Always".to_owned()),
        termination_grace_period_seconds: template.termination_grace_period_seconds.or(Some(GRACE_SECONDS)),
        image_pull_secrets: pull_secrets(sheet.common.settings, &template),
        security_context: template.security_context.or_else(|| Some(unprivileged())),
        affinity: Some(affinity(sheet, template.affinity)),
        tolerations: template.tolerations,
        topology_spread_constraints: template.topology_spread_constraints,
        priority_class_name: template.priority_class_name,
        scheduler_name: template.scheduler_name,
        host_aliases: template.host_aliases,
        dns_policy: template.dns_policy.map(str::to_owned),
        dns_config: template.dns_config,
        host_users: template.host_users,
        init_containers: Some(vec![launcher_container(sheet)]),
        containers: vec![kafka_container(sheet, served)],
        volumes: Some(volumes(sheet, &name, served)),
        ..PodSpec::default()
    }
}

/// Those of the operator, and those of the template.
fn pull_secrets(settings: &Settings, template: &PodTemplate) -> Option<Vec<LocalObjectReference>> {
    let names = settings.image_pull_secrets.iter();
    let mut secrets: Vec<_> = names.map(|name| LocalObjectReference { name: name.clone() }).collect();
    for secret in &template.image_pull_secrets {
        if !secrets.contains(secret) {
            secrets.push(secret.clone());
        }
    }
    (!secrets.is_empty()).then_some(secrets)
}

fn unprivileged() -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(KAFKA_USER),
        run_as_group: Some(KAFKA_USER),
        fs_group: Some(KAFKA_USER),
        // Without it every restart walks all files of the volume to change an owner that is right already.
        fs_group_change_policy: Some("OnRootMismatch".to_owned()),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            ..SeccompProfile::default()
        }),
        ..PodSecurityContext::default()
    }
}

/// Where a pod may and should run.
fn affinity(sheet: &Sheet<'_>, wanted: Option<Affinity>) -> Affinity {
    let selector = sheet.common.cluster.key.selector();
    let affinity = wanted.unwrap_or_else(|| apart(&selector));
    match rack(sheet) {
        Some(rack) => rack.spread(affinity, selector),
        None => affinity,
    }
}

/// Where the node's rack comes from. Controllers have none.
fn rack<'a>(sheet: &Sheet<'a>) -> Option<&'a Rack> {
    sheet.common.cluster.rack.as_ref().filter(|_| sheet.node.pool.roles.has_broker())
}

/// Nodes of a cluster prefer different machines: one machine lost is then one node lost.
fn apart(selector: &BTreeMap<String, String>) -> Affinity {
    let term = PodAffinityTerm {
        topology_key: "kubernetes.io/hostname".to_owned(),
        label_selector: Some(LabelSelector {
            match_labels: Some(selector.clone()),
            ..LabelSelector::default()
        }),
        ..PodAffinityTerm::default()
    };
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![WeightedPodAffinityTerm {
                weight: 100,
                pod_affinity_term: term,
            }]),
            ..PodAntiAffinity::default()
        }),
        ..Affinity::default()
    }
}

fn restricted() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Capabilities::default() }),
        ..SecurityContext::default()
    }
}

fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

fn launcher_container(sheet: &Sheet<'_>) -> Container {
    let settings = sheet.common.settings;
    let mut command = ["/karst-node", "install", "/karst/karst-node"].map(str::to_owned).to_vec();
    if sheet.own.metrics.is_some() {
        command.extend(["--agent".to_owned(), metrics::AGENT.to_owned()]);
    }
    let container = Container {
        name: "karst-node".to_owned(),
        image: Some(settings.node_image.clone()),
        image_pull_policy: settings.image_pull_policy.clone(),
        command: Some(command),
        volume_mounts: Some(vec![mount("karst", "/karst", false)]),
        security_context: Some(restricted()),
        ..Container::default()
    };
    customized(container, &sheet.node.pool.template.init_container)
}

/// A container with what users say about it.
fn customized(mut container: Container, template: &ContainerTemplate) -> Container {
    let own = container.env.get_or_insert_default();
    let theirs = template.env.iter().flatten();
    let theirs: Vec<_> = theirs.filter(|one| !own.iter().any(|own| own.name == one.name)).cloned().collect();
    own.extend(theirs);
    // No variables are none at all: an empty list would be another pod.
    container.env = container.env.filter(|env| !env.is_empty());
    container.security_context = template.security_context.clone().or(container.security_context);
    container.volume_mounts.get_or_insert_default().extend(template.volume_mounts.clone());
    container
}

/// What a pod is told about its Kubernetes node, for listeners that are reached through it. Others are told nothing: what is
/// new in a pod restarts it.
fn node_variables(served: &[Served<'_>]) -> Option<Vec<EnvVar>> {
    let from = |name: &str, field: &str| EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector { field_path: field.to_owned(), api_version: None }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    };
    let needed = served.iter().any(Served::needs_node);
    needed.then(|| vec![from("KARST_NODE_IP", "status.hostIP"), from("KARST_NODE_NAME", "spec.nodeName")])
}

fn has_own_certificate(served: &[Served<'_>]) -> bool {
    served.iter().any(Served::shows_users)
}

fn kafka_container(sheet: &Sheet<'_>, served: &[Served<'_>]) -> Container {
    let (node, spec) = (sheet.node, sheet.common.spec);
    let mut mounts = vec![
        mount("karst", "/karst", true),
        mount("config", "/opt/kafka/custom-config", true),
        mount("certificate", config::CERTIFICATE_DIR, true),
        mount("trust", config::TRUST_DIR, true),
        mount("tmp", "/tmp", false),
    ];
    mounts.extend(has_own_certificate(served).then(|| mount("listeners", config::LISTENERS_DIR, true)));
    mounts.extend(
        node.pool.storage.disks().iter().map(|disk| mount(&disk.volume_name(), &disk.mount_path(), false)),
    );
    let mut command = vec!["/karst/karst-node".to_owned(), "run".to_owned()];
    if let Some(rack) = rack(sheet) {
        command.extend(rack.arguments());
        mounts.extend(rack.mount());
    }
    let container = Container {
        name: "kafka".to_owned(),
        image: Some(sheet.common.cluster.image.clone()),
        image_pull_policy: sheet.common.settings.image_pull_policy.clone(),
        command: Some(command),
        ports: Some(ports(sheet, served)),
        env: node_variables(served),
        resources: node.pool.resources.as_ref().map(resources),
        volume_mounts: Some(mounts),
        liveness_probe: Some(probes::liveness(spec)),
        readiness_probe: Some(probes::readiness(spec)),
        security_context: Some(restricted()),
        // What the launcher says last, when it refuses to start, becomes part of the pod's status.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    };
    customized(container, &node.pool.template.kafka_container)
}

fn ports(sheet: &Sheet<'_>, served: &[Served<'_>]) -> Vec<ContainerPort> {
    let node = sheet.node;
    let port = |name: &str, port: u16| ContainerPort {
        name: Some(name.to_owned()),
        container_port: i32::from(port),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    let mut ports = vec![port("tcp-health", probes::PORT)];
    if node.pool.roles.has_controller() {
        ports.push(port("tcp-ctrlplane", CONTROLLER_PORT));
    }
    if node.pool.roles.has_broker() {
        ports.push(port("tcp-replication", REPLICATION_PORT));
        ports.extend(served.iter().map(|one| port(&one.listener.port_name(), one.listener.port)));
    }
    if sheet.own.metrics.is_some() {
        ports.push(port(metrics::PORT_NAME, metrics::PORT));
    }
    ports
}

fn resources(wanted: &api::ResourceRequirements) -> ResourceRequirements {
    let amounts = |amounts: &Option<BTreeMap<String, api::Quantity>>| {
        amounts
            .as_ref()
            .map(|all| all.iter().map(|(key, value)| (key.clone(), Quantity::from(value))).collect())
    };
    ResourceRequirements {
        limits: amounts(&wanted.limits),
        requests: amounts(&wanted.requests),
        ..ResourceRequirements::default()
    }
}

fn volumes(sheet: &Sheet<'_>, pod: &str, served: &[Served<'_>]) -> Vec<Volume> {
    let (node, cluster) = (sheet.node, &sheet.common.cluster.key.name);
    let template = &node.pool.template.pod;
    let empty_dir = |name: &str, size_limit: Option<&str>| Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            size_limit: size_limit.map(|limit| Quantity(limit.to_owned())),
            ..EmptyDirVolumeSource::default()
        }),
        ..Volume::default()
    };
    let mut volumes = vec![
        empty_dir("karst", None),
        empty_dir("tmp", template.tmp_dir_size_limit.as_deref()),
        Volume {
            name: "config".to_owned(),
            config_map: Some(ConfigMapVolumeSource {
                name: pod.to_owned(),
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        },
        secret_file("certificate", pod, &format!("{pod}.pem"), config::CERTIFICATE_FILE),
        secret_volume("trust", &trust_secret(cluster)),
    ];
    volumes
        .extend(has_own_certificate(served).then(|| secret_volume("listeners", &listeners_secret(cluster))));
    volumes.extend(node.pool.storage.disks().iter().map(|disk| data_volume(disk, pod, &empty_dir)));
    volumes.extend(rack(sheet).and_then(Rack::volume));
    volumes.extend(template.volumes(node.id, pod));
    volumes
}

/// All entries of a Secret as files.
fn secret_volume(volume: &str, secret: &str) -> Volume {
    Volume {
        name: volume.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.to_owned()),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// One entry of a Secret as a file.
fn secret_file(volume: &str, secret: &str, entry: &str, file: &str) -> Volume {
    Volume {
        name: volume.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.to_owned()),
            items: Some(vec![KeyToPath { key: entry.to_owned(), path: file.to_owned(), mode: None }]),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    }
}

fn data_volume(disk: &Disk, pod: &str, empty_dir: &impl Fn(&str, Option<&str>) -> Volume) -> Volume {
    match &disk.medium {
        Medium::Ephemeral { size_limit } => empty_dir(&disk.volume_name(), size_limit.as_deref()),
        Medium::Claim { .. } => Volume {
            name: disk.volume_name(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: crate::names::claim(pod, disk.id),
                ..PersistentVolumeClaimVolumeSource::default()
            }),
            ..Volume::default()
        },
    }
}

/// The fingerprint of a pod, as its annotations say.
pub fn revision(pod: &serde_json::Value) -> Option<&str> {
    pod.pointer("/metadata/annotations")?.get(REVISION_ANNOTATION)?.as_str()
}

/// Does the pool use a disk that goes with the pod?
pub fn is_ephemeral(pool: &Pool) -> bool {
    matches!(pool.storage.metadata_disk().medium, Medium::Ephemeral { .. })
}
