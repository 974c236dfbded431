//! Records that were acknowledged and are gone, and by whose doing.

use karst_core::ids::{DirectoryId, NodeId};

use super::brokers::Brokers;
use super::log::Log;
use super::partition::Partition;

/// The operator did something by which a disk will be gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doom {
    /// When.
    pub at: u64,
    /// What it did.
    pub what: String,
    /// Did a person name the pod, and say that its data may be lost?
    pub is_allowed: bool,
}

/// A complete copy that was destroyed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destroyed {
    /// By what the operator did, if it was the operator.
    pub by: Option<Doom>,
}

/// Acknowledged records of a partition are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Of which partition, and how.
    pub what: String,
    /// Who destroyed the copy that is missed. Nobody, if it is still there.
    pub destroyed: Option<Destroyed>,
}

impl Partition {
    /// Does the copy on this disk hold everything that was acknowledged?
    pub(super) fn is_complete(&self, disk: DirectoryId) -> bool {
        self.copies.get(&disk).is_some_and(|copy| copy.has_all_of(&self.acknowledged))
    }

    /// The last complete copies, if all of them are on these disks.
    pub(super) fn would_be_lost(&self, is_going: impl Fn(DirectoryId) -> bool) -> bool {
        let mut complete = self.copies.keys().filter(|disk| self.is_complete(**disk));
        self.acknowledged.end() > 0 && complete.all(|disk| is_going(*disk))
    }

    /// A disk is gone.
    pub(super) fn lose(&mut self, disk: DirectoryId, by: Option<&Doom>) -> Option<Loss> {
        let was_complete = self.is_complete(disk) && self.acknowledged.end() > 0;
        self.copies.remove(&disk)?;
        if !was_complete {
            return None;
        }
        let destroyed = Destroyed { by: by.cloned() };
        self.destroyed = Some(destroyed.clone());
        if self.copies.keys().any(|other| self.is_complete(*other)) {
            return None;
        }
        let what = format!("the last complete copy of partition {self} is gone");
        self.count_from_here();
        Some(Loss { what, destroyed: Some(destroyed) })
    }

    /// Who leads decides what there is.
    pub(super) fn lost_by_election(&mut self, leader: NodeId, brokers: &Brokers) -> Option<Loss> {
        let disk = brokers.directory(leader)?;
        if self.acknowledged.end() == 0 || self.is_complete(disk) {
            return None;
        }
        let log = self.copies.get(&disk).cloned().unwrap_or_default();
        let what = format!(
            "broker {leader} leads partition {self} with {} of {} acknowledged records",
            log.shared(&self.acknowledged),
            self.acknowledged.end()
        );
        self.acknowledged = log;
        Some(Loss { what, destroyed: self.destroyed.clone() })
    }

    /// What is lost is lost. From now on that counts which the best copy has.
    fn count_from_here(&mut self) {
        let shared = |copy: &&Log| copy.shared(&self.acknowledged);
        let best = self.copies.values().max_by_key(shared);
        let (log, upto) = best.map_or((Log::default(), 0), |best| (best.clone(), shared(&best)));
        self.acknowledged.become_start_of(&log, upto);
    }
}
