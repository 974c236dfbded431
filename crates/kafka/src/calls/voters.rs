//! AddRaftVoter and RemoveRaftVoter: who votes in the metadata quorum. Only its leader does either.
//!
//! Kafka refuses both when they carry the id of another cluster.

use std::time::Duration;

use kafka_protocol::messages::add_raft_voter_request::Listener as WireListener;
use kafka_protocol::messages::{
    AddRaftVoterRequest, AddRaftVoterResponse, RemoveRaftVoterRequest, RemoveRaftVoterResponse,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::{Call, Context, kafkas_share};
use crate::error::{Api, Error, Versions};
use crate::{DirectoryId, Listener, NodeId};

#[derive(Debug)]
pub(crate) struct AddVoter {
    pub(crate) cluster: Option<String>,
    pub(crate) node: NodeId,
    pub(crate) directory: DirectoryId,
    pub(crate) listeners: Vec<Listener>,
}

impl Call for AddVoter {
    const API: Api = Api::AddRaftVoter;
    const VERSIONS: Versions = Versions::new(0, 0);
    type Request = AddRaftVoterRequest;
    type Answer = ();

    fn request(&self, _version: i16, time_left: Duration) -> AddRaftVoterRequest {
        AddRaftVoterRequest::default()
            .with_cluster_id(self.cluster.clone().map(StrBytes::from_string))
            .with_timeout_ms(kafkas_share(time_left))
            .with_voter_id(self.node.0)
            .with_voter_directory_id(Uuid::from_bytes(self.directory.to_bytes()))
            .with_listeners(self.listeners.iter().map(listener).collect())
    }

    fn answer(&self, response: AddRaftVoterResponse, context: &Context<'_>) -> Result<(), Error> {
        context.check(response.error_code, response.error_message.as_ref())
    }
}

fn listener(listener: &Listener) -> WireListener {
    WireListener::default()
        .with_name(StrBytes::from_string(listener.name.clone()))
        .with_host(StrBytes::from_string(listener.endpoint.host.clone()))
        .with_port(listener.endpoint.port)
}

#[derive(Debug)]
pub(crate) struct RemoveVoter {
    pub(crate) cluster: Option<String>,
    pub(crate) node: NodeId,
    pub(crate) directory: DirectoryId,
}

impl Call for RemoveVoter {
    const API: Api = Api::RemoveRaftVoter;
    const VERSIONS: Versions = Versions::new(0, 0);
    type Request = RemoveRaftVoterRequest;
    type Answer = ();

    fn request(&self, _version: i16, _time_left: Duration) -> RemoveRaftVoterRequest {
        RemoveRaftVoterRequest::default()
            .with_cluster_id(self.cluster.clone().map(StrBytes::from_string))
            .with_voter_id(self.node.0)
            .with_voter_directory_id(Uuid::from_bytes(self.directory.to_bytes()))
    }

    fn answer(&self, response: RemoveRaftVoterResponse, context: &Context<'_>) -> Result<(), Error> {
        context.check(response.error_code, response.error_message.as_ref())
    }
}
