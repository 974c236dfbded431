//! Listeners: the doors through which clients reach the brokers.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::NetworkPolicyPeer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::common::FreeForm;
use crate::schema;

/// One listener of the brokers.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// Name of the listener, unique in the cluster: up to 11 lowercase letters and digits.
    #[schemars(regex(pattern = r"^[a-z0-9]{1,11}$"))]
    pub name: String,
    /// Port of the listener in the pods, unique in the cluster, from 9092 on, but not 9404 and 9999.
    #[schemars(range(min = 9092, max = 65535))]
    pub port: i32,
    /// How clients reach the listener.
    #[serde(rename = "type")]
    pub type_: ListenerType,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// How clients prove who they are; anybody may connect when it is missing.
    pub authentication: Option<ListenerAuthentication>,
    /// Further settings of the listener.
    pub configuration: Option<Box<ListenerConfiguration>>,
    /// Who may connect, as peers of a network policy; everybody when it is missing.
    #[serde(default)]
    #[schemars(schema_with = "schema::network_policy_peers")]
    pub network_policy_peers: Option<Vec<NetworkPolicyPeer>>,
}

/// How clients reach a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ListenerType {
    Internal,
    Route,
    TlsRoute,
    LoadBalancer,
    NodePort,
    Ingress,
    #[serde(rename = "cluster-ip")]
    ClusterIp,
}

/// How clients of a listener prove who they are.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListenerAuthentication {
    /// Kind of authentication.
    #[serde(rename = "type")]
    pub type_: ListenerAuthenticationType,
    /// Kafka settings of the listener, for custom authentication.
    pub listener_config: Option<FreeForm>,
    /// Whether custom authentication uses SASL.
    pub sasl: Option<bool>,
}

/// The kinds of [`ListenerAuthentication`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ListenerAuthenticationType {
    #[serde(rename = "tls")]
    Tls,
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
    #[serde(rename = "custom")]
    Custom,
}

/// Further settings of a listener; which of them apply depends on its type.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListenerConfiguration {
    /// The user's own certificate for this listener.
    pub broker_cert_chain_and_key: Option<CertificateAndKey>,
    /// Class of the ingress controller or of the load balancer.
    pub class: Option<String>,
    /// Whether traffic from outside may take a hop between Kubernetes nodes.
    pub external_traffic_policy: Option<ExternalTrafficPolicy>,
    /// Address ranges, in CIDR form, that may connect to the load balancer.
    pub load_balancer_source_ranges: Option<Vec<String>>,
    /// Settings of the bootstrap address.
    pub bootstrap: Option<ListenerBootstrap>,
    /// Settings of single brokers.
    pub brokers: Option<Vec<ListenerBroker>>,
    /// Whether services have addresses of one IP family or of both.
    pub ip_family_policy: Option<IpFamilyPolicy>,
    /// IP families of the services, the preferred one first.
    pub ip_families: Option<Vec<IpFamily>>,
    /// Whether a bootstrap service is made; it is unless switched off.
    pub create_bootstrap_service: Option<bool>,
    /// Finalizers of the load balancer services.
    pub finalizers: Option<Vec<String>>,
    /// Whether advertised addresses include the DNS domain of the Kubernetes cluster.
    pub use_service_dns_domain: Option<bool>,
    /// Most connections that a broker accepts on this listener.
    pub max_connections: Option<i32>,
    /// Most new connections per second that a broker accepts on this listener.
    pub max_connection_creation_rate: Option<i32>,
    /// Which address of a Kubernetes node is advertised, for listeners of type nodeport.
    pub preferred_node_port_address_type: Option<NodeAddressType>,
    /// Whether services lead to pods that are not ready.
    pub publish_not_ready_addresses: Option<bool>,
    /// Annotations of what is made for each broker; the text may name the node.
    pub per_broker_annotations_template: Option<BTreeMap<String, String>>,
    /// Labels of what is made for each broker; the text may name the node.
    pub per_broker_labels_template: Option<BTreeMap<String, String>>,
    /// Host name of each broker; the text may name the node.
    pub host_template: Option<String>,
    /// Host name that each broker advertises; the text may name the node.
    pub advertised_host_template: Option<String>,
    /// Port that each broker advertises, as a number or as a sum with the node's id.
    pub advertised_port_template: Option<String>,
    /// Whether load balancer services get node ports.
    pub allocate_load_balancer_node_ports: Option<bool>,
    /// Gateways that routes are attached to.
    pub parent_refs: Option<Vec<ParentReference>>,
}

/// A certificate and its key in a secret of the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateAndKey {
    /// Name of the secret.
    pub secret_name: String,
    /// Key in the secret under which the certificate is.
    pub certificate: String,
    /// Key in the secret under which the private key is.
    pub key: String,
}

/// Whether traffic from outside may take a hop between Kubernetes nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExternalTrafficPolicy {
    Local,
    Cluster,
}

/// Settings of a listener's bootstrap address.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListenerBootstrap {
    /// Further names that the certificate is valid for.
    pub alternative_names: Option<Vec<String>>,
    /// Host name of the bootstrap address.
    pub host: Option<String>,
    /// Node port of the bootstrap service.
    pub node_port: Option<i32>,
    /// Address to ask of the load balancer.
    #[serde(rename = "loadBalancerIP")]
    pub load_balancer_ip: Option<String>,
    /// Annotations to add.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels to add.
    pub labels: Option<BTreeMap<String, String>>,
    /// External addresses of the bootstrap service.
    #[serde(rename = "externalIPs")]
    pub external_ips: Option<Vec<String>>,
}

/// Settings of one broker on a listener.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListenerBroker {
    /// Node id of the broker.
    pub broker: i32,
    /// Host name that the broker tells its clients.
    pub advertised_host: Option<String>,
    /// Port that the broker tells its clients.
    pub advertised_port: Option<i32>,
    /// Host name of the broker.
    pub host: Option<String>,
    /// Node port of the broker's service.
    pub node_port: Option<i32>,
    /// Address to ask of the load balancer.
    #[serde(rename = "loadBalancerIP")]
    pub load_balancer_ip: Option<String>,
    /// Annotations to add.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels to add.
    pub labels: Option<BTreeMap<String, String>>,
    /// External addresses of the broker's service.
    #[serde(rename = "externalIPs")]
    pub external_ips: Option<Vec<String>>,
}

/// Whether a service has addresses of one IP family or of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IpFamilyPolicy {
    SingleStack,
    PreferDualStack,
    RequireDualStack,
}

/// An IP family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IpFamily {
    #[serde(rename = "IPv4")]
    V4,
    #[serde(rename = "IPv6")]
    V6,
}

/// Which address of a Kubernetes node is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodeAddressType {
    #[serde(rename = "ExternalIP")]
    ExternalIp,
    #[serde(rename = "ExternalDNS")]
    ExternalDns,
    #[serde(rename = "InternalIP")]
    InternalIp,
    #[serde(rename = "InternalDNS")]
    InternalDns,
    Hostname,
}

/// A gateway, or a part of one, that routes are attached to.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParentReference {
    /// Kind of the parent.
    pub kind: Option<String>,
    /// API group of the parent.
    pub group: Option<String>,
    /// Name of the parent.
    pub name: Option<String>,
    /// Namespace of the parent.
    pub namespace: Option<String>,
    /// Port of the parent.
    pub port: Option<i32>,
    /// Name of the parent's listener.
    pub section_name: Option<String>,
}
