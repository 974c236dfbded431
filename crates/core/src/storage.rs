//! Storage as it can be used: at least one disk, every disk with what its kind needs.

use std::collections::{BTreeMap, BTreeSet};

use karst_api as api;
use karst_api::bounds;

use crate::ids::NodeId;
use crate::limits;
use crate::names;
use crate::problem::Problem;
use crate::quantity::Quantity;

/// What a disk is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Medium {
    /// Goes with the pod.
    Ephemeral {
        /// How much it may hold.
        size_limit: Option<String>,
    },
    /// Outlives the pod.
    Claim {
        /// How much it holds, as the user wrote it.
        size: String,
        /// The storage class, or the cluster's default.
        class: Option<String>,
        /// Labels that the volume must have.
        selector: Option<BTreeMap<String, String>>,
        /// Does it go when its node goes?
        delete: bool,
    },
}

fn volume_name(volume: Option<i32>) -> String {
    volume.map_or_else(|| "data".to_owned(), |id| format!("data-{id}"))
}

fn mount_path(volume: Option<i32>) -> String {
    format!("/var/lib/kafka/{}", volume_name(volume))
}

/// The directory Kafka uses on a volume.
pub(crate) fn log_dir(volume: Option<i32>, node: NodeId) -> String {
    format!("{}/kafka-log{node}", mount_path(volume))
}

/// One disk of every node of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The volume's id, or `None` for the only disk of a pool without JBOD.
    pub id: Option<i32>,
    /// What it is made of.
    pub medium: Medium,
}

impl Disk {
    /// The volume's name inside the pod.
    pub fn volume_name(&self) -> String {
        volume_name(self.id)
    }

    /// Where it is mounted.
    pub fn mount_path(&self) -> String {
        mount_path(self.id)
    }

    /// The directory Kafka uses on it.
    pub fn log_dir(&self, node: NodeId) -> String {
        log_dir(self.id, node)
    }

    /// The claim for it, when it outlives the pod.
    pub fn claim_name(&self, pod: &str) -> Option<String> {
        matches!(self.medium, Medium::Claim { .. }).then(|| names::claim(pod, self.id))
    }
}

/// The disks of a pool's nodes: one or more, one of them for the metadata log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    disks: Vec<Disk>,
    metadata: usize,
}

impl Storage {
    /// All disks, in the order of their ids.
    pub fn disks(&self) -> &[Disk] {
        &self.disks
    }

    /// The disk that holds the metadata log.
    pub fn metadata_disk(&self) -> &Disk {
        &self.disks[self.metadata]
    }

    /// Reads what a user wrote at `field`.
    pub fn parse(field: &str, wire: &api::Storage) -> Result<Self, Problem> {
        let fields = Fields::of_storage(wire);
        let medium = match wire.type_ {
            api::StorageType::Jbod => return Self::parse_jbod(field, wire),
            api::StorageType::Ephemeral => ephemeral(field, &fields)?,
            api::StorageType::PersistentClaim => claim(field, &fields)?,
        };
        Ok(Self { disks: vec![Disk { id: None, medium }], metadata: 0 })
    }

    fn parse_jbod(field: &str, wire: &api::Storage) -> Result<Self, Problem> {
        let volumes = wire.volumes.as_deref().unwrap_or_default();
        if volumes.is_empty() {
            return Err(Problem::storage(field, "volumes", "is empty", "list at least one volume"));
        }
        if let Some(problem) = limits::too_many(&format!("{field}.volumes"), volumes.len(), bounds::VOLUMES) {
            return Err(problem);
        }
        let mut ids = BTreeSet::new();
        let mut disks = Vec::new();
        let mut metadata = Vec::new();
        for (index, volume) in volumes.iter().enumerate() {
            let field = format!("{field}.volumes[{index}]");
            let id = volume.id;
            if !ids.insert(id) {
                let found = format!("is {id}, which another volume has");
                return Err(Problem::storage(&field, "id", &found, "give every volume an id of its own"));
            }
            if volume.kraft_metadata.is_some() {
                metadata.push(id);
            }
            let fields = Fields::of_volume(volume);
            let medium = match volume.type_ {
                api::VolumeType::Ephemeral => ephemeral(&field, &fields)?,
                api::VolumeType::PersistentClaim => claim(&field, &fields)?,
            };
            disks.push(Disk { id: Some(id), medium });
        }
        if metadata.len() > 1 {
            let found = format!("is set on volumes {metadata:?}");
            return Err(Problem::storage(
                field,
                "volumes[].kraftMetadata",
                &found,
                "set it on one volume at most",
            ));
        }
        disks.sort_by_key(|disk| disk.id);
        let metadata = metadata
            .first()
            .and_then(|id| disks.iter().position(|disk| disk.id == Some(*id)))
            .unwrap_or_default();
        Ok(Self { disks, metadata })
    }
}

/// The fields that a single disk and a volume of a jbod share.
struct Fields<'a> {
    size: Option<&'a str>,
    size_limit: Option<&'a str>,
    class: Option<&'a str>,
    selector: Option<&'a BTreeMap<String, String>>,
    delete_claim: Option<bool>,
}

impl<'a> Fields<'a> {
    fn of_storage(wire: &'a api::Storage) -> Self {
        Self {
            size: wire.size.as_deref(),
            size_limit: wire.size_limit.as_deref(),
            class: wire.class.as_deref(),
            selector: wire.selector.as_ref(),
            delete_claim: wire.delete_claim,
        }
    }

    fn of_volume(wire: &'a api::Volume) -> Self {
        Self {
            size: wire.size.as_deref(),
            size_limit: wire.size_limit.as_deref(),
            class: wire.class.as_deref(),
            selector: wire.selector.as_ref(),
            delete_claim: wire.delete_claim,
        }
    }
}

fn ephemeral(field: &str, volume: &Fields<'_>) -> Result<Medium, Problem> {
    if let Some(limit) = volume.size_limit {
        positive(field, "sizeLimit", limit)?;
    }
    Ok(Medium::Ephemeral { size_limit: volume.size_limit.map(str::to_owned) })
}

fn claim(field: &str, volume: &Fields<'_>) -> Result<Medium, Problem> {
    let size = volume.size.ok_or_else(|| {
        Problem::storage(field, "size", "is missing", "a persistent-claim needs a size, such as 100Gi")
    })?;
    positive(field, "size", size)?;
    Ok(Medium::Claim {
        size: size.to_owned(),
        class: volume.class.map(str::to_owned),
        selector: volume.selector.cloned(),
        delete: volume.delete_claim.unwrap_or_default(),
    })
}

fn positive(field: &str, name: &str, text: &str) -> Result<(), Problem> {
    match text.parse::<Quantity>() {
        Ok(quantity) if quantity.is_positive() => Ok(()),
        _ => {
            let found = format!("is '{text}'");
            Err(Problem::storage(field, name, &found, "write a size above zero, such as 100Gi"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(wire: serde_json::Value) -> Result<Storage, Problem> {
        Storage::parse("spec.storage", &serde_json::from_value(wire).unwrap())
    }

    #[test]
    fn a_single_claim_has_no_number_in_its_names() {
        let storage = parse(json!({"type": "persistent-claim", "size": "10Gi"})).unwrap();
        let disk = storage.metadata_disk();
        assert_eq!(disk.log_dir(NodeId(4)), "/var/lib/kafka/data/kafka-log4");
        assert_eq!(disk.claim_name("c-p-4").as_deref(), Some("data-c-p-4"));
    }

    #[test]
    fn the_metadata_log_is_on_the_marked_volume_or_on_the_lowest() {
        let volume = |id: i32, marked: bool| {
            let mut volume = json!({"type": "persistent-claim", "size": "1Gi", "id": id});
            if marked {
                volume["kraftMetadata"] = json!("shared");
            }
            volume
        };
        let of = |volumes: &[serde_json::Value]| {
            parse(json!({"type": "jbod", "volumes": volumes})).unwrap().metadata_disk().id
        };
        assert_eq!(of(&[volume(2, false), volume(1, false)]), Some(1));
        assert_eq!(of(&[volume(1, false), volume(2, true)]), Some(2));
    }

    #[test]
    fn bad_storage_is_refused_by_field_and_value() {
        let claim = json!({"type": "persistent-claim", "size": "1Gi", "id": 0});
        let cases = [
            (json!({"type": "persistent-claim"}), "spec.storage.size is missing"),
            (json!({"type": "persistent-claim", "size": "-1Gi"}), "spec.storage.size is '-1Gi'"),
            (json!({"type": "ephemeral", "sizeLimit": "much"}), "spec.storage.sizeLimit is 'much'"),
            (json!({"type": "jbod"}), "spec.storage.volumes is empty"),
            (json!({"type": "jbod", "volumes": [claim, claim]}), "spec.storage.volumes[1].id is 0"),
        ];
        for (wire, expected) in cases {
            let problem = parse(wire).unwrap_err().to_string();
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
