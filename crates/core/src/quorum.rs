//! How the controller quorum is formed: the list of initial controllers, and how each node formats its disks.
//!
//! Both are matters of data safety. A list that changed would form two quorums; a controller that formats an
//! empty disk as an initial one after it once voted has forgotten its votes, and can help elect a leader that
//! lacks committed metadata.

use std::fmt;

use crate::ids::{DirectoryId, Entropy, NodeId};
use crate::problem::Problem;
use crate::world::{QuorumView, World};
use karst_api as api;

/// The port on which controllers talk to each other and to brokers.
pub const CONTROLLER_PORT: u16 = 9090;

/// One controller of those that form the quorum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitialController {
    /// Its node.
    pub node: NodeId,
    /// Its host name.
    pub host: String,
    /// The identity its disk is formatted with.
    pub directory: DirectoryId,
}

/// The controllers that form the quorum of a new cluster: written once, before the first pod, never changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitialControllers(Vec<InitialController>);

impl InitialControllers {
    /// A new list, with a fresh directory id for each controller.
    pub fn form(controllers: impl IntoIterator<Item = (NodeId, String)>, entropy: &Entropy) -> Self {
        let mut list: Vec<_> = controllers
            .into_iter()
            .map(|(node, host)| InitialController { node, host, directory: entropy.directory_id(node) })
            .collect();
        list.sort_by_key(|controller| controller.node);
        Self(list)
    }

    /// The list that voters would have been formed with.
    pub fn of_voters(voters: Vec<(NodeId, String, DirectoryId)>) -> Self {
        let entry = |(node, host, directory)| InitialController { node, host, directory };
        let mut list: Vec<_> = voters.into_iter().map(entry).collect();
        list.sort_by_key(|controller| controller.node);
        Self(list)
    }

    /// Reads the list from the status.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        text.split(',').map(parse_entry).collect::<Result<_, _>>().map(Self)
    }

    /// The controllers, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &InitialController> {
        self.0.iter()
    }

    /// The entry of a node.
    pub fn get(&self, node: NodeId) -> Option<&InitialController> {
        self.iter().find(|controller| controller.node == node)
    }
}

impl fmt::Display for InitialControllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, controller) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let InitialController { node, host, directory } = controller;
            write!(f, "{comma}{node}@{host}:{CONTROLLER_PORT}:{directory}")?;
        }
        Ok(())
    }
}

fn parse_entry(entry: &str) -> Result<InitialController, Problem> {
    let parsed = || {
        let (node, rest) = entry.split_once('@')?;
        let (address, directory) = rest.rsplit_once(':')?;
        let (host, port) = address.rsplit_once(':')?;
        port.parse::<u16>().ok().filter(|port| *port == CONTROLLER_PORT)?;
        Some(InitialController {
            node: NodeId(node.parse().ok()?),
            host: host.to_owned(),
            directory: directory.parse().ok()?,
        })
    };
    parsed().ok_or_else(|| Problem::InitialControllers { entry: entry.to_owned() })
}

/// Where the set of voters is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// In the quorum's own log: it can change while the cluster runs.
    Dynamic,
    /// In the settings of every node.
    Static,
    /// Nobody remembers, and Kafka has not said.
    Unknown,
}

impl Kind {
    /// What is remembered, or what Kafka says.
    pub fn of(world: &World) -> Self {
        let status = world.kafka.status.as_ref();
        if status.is_some_and(|status| status.initial_controllers.is_some()) {
            return Self::Dynamic;
        }
        let remembered = status.and_then(|status| status.quorum.as_ref()?.kind);
        match (world.answers.quorum.known().map(|quorum| quorum.is_dynamic), remembered) {
            (Some(true), _) | (None, Some(api::QuorumKind::Dynamic)) => Self::Dynamic,
            (Some(false), _) | (None, Some(api::QuorumKind::Static)) => Self::Static,
            (None, None) => Self::Unknown,
        }
    }
}

/// How a node formats a disk that is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageFormat {
    /// Without a word about voters, which its settings name. Kafka said that the quorum is static, so it exists: an empty disk of a voter
    /// is one in the place of a lost one, and the launcher waits until the others can do without what was on it.
    Static,
    /// The same, and it waits for nobody: a person decided that.
    StaticAnew,
    /// As one of those that form the quorum.
    Initial,
    /// The same, though another disk of the node had this vote before: somebody decided that.
    Restore,
    /// As one that joins a quorum that exists.
    Join,
    /// Not at all: it starts on a disk that is formatted already, whatever the cluster's id and the kind of its quorum are.
    Adopt,
}

impl StorageFormat {
    /// As the launcher reads it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::StaticAnew => "static-anew",
            Self::Initial => "initial",
            Self::Restore => "restore",
            Self::Join => "join",
            Self::Adopt => "adopt",
        }
    }
}

/// How a node is to format empty disks from now on.
///
/// An initial controller formats as such only until its disk was seen taking part in the quorum. From then
/// on an empty disk means that one was lost, and its successor must not vote under the same identity. There is
/// no way back: once `running` (what the node's ConfigMap says) is join, it stays so, and nobody forms the quorum of a
/// cluster that worked before.
pub fn storage_format(
    node: NodeId,
    initial: Option<&InitialControllers>,
    running: Option<&str>,
    worked_before: bool,
    kafka: Option<&QuorumView>,
) -> StorageFormat {
    let Some(controller) = initial.and_then(|initial| initial.get(node)) else { return StorageFormat::Join };
    let joins = running.is_some_and(|running| running != StorageFormat::Initial.as_str());
    if joins || worked_before {
        return StorageFormat::Join;
    }
    let took_part = kafka.is_some_and(|kafka| {
        kafka.voters.iter().any(|voter| {
            voter.node == node && voter.directory == Some(controller.directory) && voter.takes_part
        })
    });
    if took_part { StorageFormat::Join } else { StorageFormat::Initial }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Replica;

    fn two() -> InitialControllers {
        let hosts = [(NodeId(4), "b".to_owned()), (NodeId(3), "a".to_owned())];
        InitialControllers::form(hosts, &Entropy([9; 32]))
    }

    fn kafka(voters: Vec<Replica>) -> QuorumView {
        QuorumView {
            cluster_id: None,
            leader: NodeId(3),
            epoch: 1,
            stable_for: std::time::Duration::from_secs(60),
            voters,
            observers: Vec::new(),
            is_dynamic: true,
            registered: Default::default(),
            is_committed: true,
            metadata_level: None,
            features: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn the_list_is_sorted_and_survives_its_text() {
        let list = two();
        assert!(list.to_string().starts_with("3@a:9090:"), "{list}");
        assert_eq!(InitialControllers::parse(&list.to_string()), Ok(list));
    }

    #[test]
    fn the_format_of_the_proposal_is_read() {
        let text = "3@my-cluster-controller-3.my-cluster-kafka-brokers.myproject.svc.cluster.local:9090:r9VGTiw2QUCoDUadCt6q2g";
        let list = InitialControllers::parse(text).unwrap();
        assert_eq!(list.to_string(), text);
    }

    #[test]
    fn a_list_that_cannot_be_read_names_the_part() {
        for text in ["", "3@a:9090", "x@a:9090:r9VGTiw2QUCoDUadCt6q2g", "3@a:9090:AAAAAAAAAAAAAAAAAAAAAA"] {
            let problem = InitialControllers::parse(text).unwrap_err();
            assert_eq!(problem, Problem::InitialControllers { entry: text.to_owned() });
        }
    }

    #[test]
    fn an_initial_controller_formats_as_such_until_its_disk_takes_part() {
        let list = two();
        let directory = list.get(NodeId(3)).map(|controller| controller.directory);
        let seen = |directory, takes_part| {
            let voters = vec![Replica { node: NodeId(3), directory, takes_part, behind: None }];
            storage_format(NodeId(3), Some(&list), Some("initial"), false, Some(&kafka(voters)))
        };
        assert_eq!(storage_format(NodeId(3), Some(&list), None, false, None), StorageFormat::Initial);
        assert_eq!(seen(directory, false), StorageFormat::Initial);
        assert_eq!(seen(Some(Entropy([8; 32]).directory_id(NodeId(3))), true), StorageFormat::Initial);
        assert_eq!(seen(directory, true), StorageFormat::Join);
    }

    #[test]
    fn what_joined_once_never_forms_a_quorum_again() {
        assert_eq!(storage_format(NodeId(3), Some(&two()), Some("join"), false, None), StorageFormat::Join);
        assert_eq!(storage_format(NodeId(7), Some(&two()), None, false, None), StorageFormat::Join);
    }

    #[test]
    fn a_lost_config_map_of_a_cluster_that_worked_does_not_make_its_node_form_a_quorum() {
        for running in [None, Some("initial")] {
            assert_eq!(storage_format(NodeId(3), Some(&two()), running, true, None), StorageFormat::Join);
        }
    }
}
