//! What the quorum says about itself: to clients, to probes, and to people.

use std::time::Duration;

use karst_core::ids::NodeId;
use karst_core::membership::Voter;
use karst_core::world::{QuorumView, Replica};

use super::fixed::{ANY_DISK, is};
use super::{FETCH_TIMEOUT, Follower, Process, Quorum};
use crate::dice::Dice;

/// For so long an observer that is gone stays in the list.
const OBSERVER_LINGERS: u64 = 300_000;

impl Quorum {
    /// Does a controller take part, so that it calls itself ready?
    pub fn is_ready(&self, node: NodeId) -> bool {
        let Some(process) = self.processes.get(&node) else { return false };
        if process.broker {
            return process.serves.is_some();
        }
        match &process.office {
            Some(office) => office.committed > 0,
            None => {
                process.has_all
                    && process.fetched.is_some_and(|fetched| self.now.saturating_sub(fetched) < FETCH_TIMEOUT)
            }
        }
    }

    /// What a leader says about the quorum. More than one may think that it leads.
    pub fn describe(&self, dice: &mut Dice) -> Option<QuorumView> {
        let all: Vec<_> = self.leaders().collect();
        let leader = if dice.chance(900) { self.leader()? } else { *dice.pick(&all)? };
        let (office, disk) = (leader.office.as_ref()?, self.disk_of(leader)?);
        if office.committed == 0 {
            return None;
        }
        let own = self.voter_of(leader)?;
        let voters = self.known_to(leader)?;
        let is_static = voters.iter().any(|voter| voter.directory == *ANY_DISK);
        let replica = |voter: &Voter| {
            let follower = office.follower(voter);
            let behind = match follower {
                _ if is(&own, voter) => Some(0),
                follower => follower.and_then(|one| one.caught_up).map(|at| self.now.saturating_sub(at)),
            };
            Replica {
                node: voter.node,
                directory: (!is_static).then_some(voter.directory),
                takes_part: office.has_seen(&own, voter),
                behind: behind.map(Duration::from_millis),
            }
        };
        let lingering = |follower: &Follower| self.now.saturating_sub(follower.fetched) < OBSERVER_LINGERS;
        let mut observers: Vec<_> = office
            .followers
            .iter()
            .filter(|(voter, follower)| !voters.iter().any(|one| is(voter, one)) && lingering(follower))
            .map(|(voter, _)| replica(voter))
            .collect();
        if !voters.iter().any(|voter| is(&own, voter)) {
            observers.push(replica(&own));
        }
        Some(QuorumView {
            cluster_id: Some(disk.cluster.clone()),
            leader: own.node,
            epoch: i32::try_from(office.epoch).unwrap_or(i32::MAX),
            stable_for: Duration::from_millis(self.now.saturating_sub(office.since)),
            voters: voters.iter().map(replica).collect(),
            observers,
            is_dynamic: !is_static,
            registered: voters.iter().map(|voter| voter.node).collect(),
            is_committed: office.committed >= disk.log.len(),
            metadata_level: Some(self.level),
            features: [
                ("kraft.version".to_owned(), i16::from(!is_static)),
                ("metadata.version".to_owned(), self.level),
            ]
            .into(),
        })
    }

    /// A node that holds something else than what was committed, and does not know it.
    pub fn astray(&self) -> Option<NodeId> {
        let is_astray = |process: &&Process| {
            let log = self.disk_of(process).map_or(&[][..], |disk| &disk.log);
            log.iter().zip(&self.history).any(|(own, committed)| own != committed)
        };
        self.processes.values().find(is_astray).map(|process| process.node)
    }

    /// Every process and what is on its disk, for people.
    pub fn picture(&self) -> Vec<String> {
        let of = |process: &Process| {
            let Some(disk) = self.disk_of(process) else {
                return format!("node {} has no disk", process.node);
            };
            let voters: Vec<_> =
                disk.voters().iter().flat_map(|all| all.iter().map(ToString::to_string)).collect();
            format!(
                "node {} (directory {}): leads {}, controller {}, term {}, {} records, knows the voters {}",
                process.node,
                disk.directory,
                process.office.is_some(),
                process.controller,
                disk.epoch,
                disk.log.len(),
                voters.join(", ")
            )
        };
        self.processes.values().map(of).collect()
    }
}
