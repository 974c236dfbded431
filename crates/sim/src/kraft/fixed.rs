//! Static quorums: the voters are in the settings of every node, by their ids alone, until `kraft.version` becomes 1.
//!
//! Nobody knows the disks of such voters. A node that lost its disk votes again, as if nothing had happened: that is how Kafka
//! is, and why such a quorum is to be migrated.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use karst_core::ids::{DirectoryId, Entropy, NodeId};
use karst_core::membership::Voter;

use super::{
    Disk, FETCH_TIMEOUT, Follower, OFFICE_TIMEOUT, Office, Pending, Process, Quorum, Refused, Voters, What,
    majority,
};

/// The disk of a static voter: whichever its node has. No real disk is called so.
pub(super) static ANY_DISK: LazyLock<DirectoryId> =
    LazyLock::new(|| Entropy([0xa5; 32]).directory_id(NodeId(-1)));

/// Is this node, with the disk it has, that voter?
pub(super) fn is(own: &Voter, voter: &Voter) -> bool {
    own.node == voter.node && (own.directory == voter.directory || voter.directory == *ANY_DISK)
}

/// The voters that a list in the settings names, as `1@host:9090,2@host:9090`.
pub fn fixed_voters(list: &str) -> Option<Voters> {
    let nodes = list.split(',').map(|entry| entry.split_once('@')?.0.trim().parse().ok());
    let nodes: BTreeSet<i32> = nodes.collect::<Option<_>>()?;
    let voters = nodes.into_iter().map(|node| Voter { node: NodeId(node), directory: *ANY_DISK });
    Some(Arc::new(voters.collect()))
}

impl Office {
    /// The disk that a node copied to last, and how far it came.
    pub(super) fn newest_of(&self, node: NodeId) -> Option<(&Voter, &Follower)> {
        let of_node = self.followers.iter().filter(|(voter, _)| voter.node == node);
        of_node.max_by_key(|(_, follower)| follower.fetched)
    }
}

impl Quorum {
    /// The newest voters that a process knows: its log names them, or its settings do.
    pub(super) fn known_to<'a>(&'a self, process: &'a Process) -> Option<&'a Voters> {
        let disk = self.disk_of(process)?;
        disk.voters().or_else(|| process.fixed.as_ref().filter(|_| disk.is_static))
    }

    /// Tells a process that has just started which voters its settings name.
    ///
    /// As long as the quorum is static they must name the same ones everywhere: with two lists there are two quorums, and who
    /// has none knows nobody.
    pub fn read_settings(&mut self, node: NodeId, voters: Option<Voters>) {
        let Some(process) = self.processes.get_mut(&node) else { return };
        process.fixed.clone_from(&voters);
        let Some(process) = self.processes.get(&node).filter(|process| process.controller) else { return };
        let goes_by_settings = self.disk_of(process).is_some_and(|disk| disk.is_static)
            && !self.history.iter().any(|record| matches!(record.what, What::Voters(_)));
        if !goes_by_settings {
            return;
        }
        match (&self.fixed, voters) {
            (_, None) => {
                self.fail(format!("node {node} starts without the list of voters, and the quorum is static"));
            }
            (Some(known), Some(voters)) if *known != voters => {
                let names = |voters: &Voters| {
                    voters.iter().map(|voter| voter.node.to_string()).collect::<Vec<_>>().join(", ")
                };
                let what = format!(
                    "node {node} starts with the voters {}, and others run with {}",
                    names(&voters),
                    names(known)
                );
                self.fail(what);
            }
            (_, voters) => self.fixed = voters,
        }
    }

    /// UpdateFeatures, for `kraft.version` 1. A leader that has not heard from each voter gives up its office.
    pub fn make_dynamic(&mut self) -> Result<Pending, Refused> {
        let (disk, epoch) = self.open_for_records().ok_or(Refused::NoLeader)?;
        let leader = self.leader().ok_or(Refused::NoLeader)?;
        if self.disk_of(leader).and_then(super::Disk::voters).is_some() {
            return Err(Refused::Duplicate);
        }
        let Some(voters) = self.real_disks(leader) else {
            let leader = leader.node;
            self.said.push(format!("node {leader} does not know the disks of all voters, and gives up"));
            self.end_office(leader);
            return Err(Refused::Behind);
        };
        Ok(self.write(&disk, epoch, What::Voters(Arc::new(voters))))
    }

    /// The voters with the disks that they told the leader.
    fn real_disks(&self, leader: &Process) -> Option<BTreeSet<Voter>> {
        let (office, own) = (leader.office.as_ref()?, self.voter_of(leader)?);
        let real = |voter: &Voter| {
            if is(&own, voter) {
                return Some(own);
            }
            let (real, follower) = office.newest_of(voter.node)?;
            (self.now.saturating_sub(follower.fetched) <= OFFICE_TIMEOUT).then_some(*real)
        };
        self.known_to(leader)?.iter().map(real).collect()
    }

    /// Does a leader say that most voters, without this one, have everything?
    pub fn can_do_without(&self, node: NodeId) -> bool {
        let Some(leader) = self.leader() else { return false };
        let (Some(office), Some(voters)) = (leader.office.as_ref(), self.known_to(leader)) else {
            return false;
        };
        let has_all = |voter: &&Voter| {
            let caught_up = office.follower(voter).and_then(|follower| follower.caught_up);
            voter.node == leader.node
                || caught_up.is_some_and(|at| self.now.saturating_sub(at) < FETCH_TIMEOUT)
        };
        let others = voters.iter().filter(|voter| voter.node != node);
        office.committed > 0 && others.filter(has_all).count() >= majority(voters.len())
    }

    /// Nobody joins or leaves by a migration, and each voter has the disk that it is said to have.
    pub(super) fn check_migrated(&mut self, old: &BTreeSet<Voter>, new: &BTreeSet<Voter>) {
        let nodes = |voters: &BTreeSet<Voter>| voters.iter().map(|voter| voter.node).collect::<BTreeSet<_>>();
        if nodes(old) != nodes(new) {
            self.fail(format!(
                "the quorum became dynamic, and {:?} voted before, {:?} after",
                nodes(old),
                nodes(new)
            ));
        }
        let has_disk = |voter: &Voter| self.disks.values().any(|disk| disk.directory == voter.directory);
        // One that was lost just now nobody has missed yet.
        let is_recent = self.last_loss.is_some_and(|at| self.now.saturating_sub(at) < FETCH_TIMEOUT);
        if let Some(voter) = new.iter().find(|voter| !has_disk(voter) && !is_recent).copied() {
            self.fail(format!("the quorum became dynamic, and no disk is that of voter {voter}"));
        }
    }

    /// Does the newest committed word about voters stand in settings?
    pub fn is_static(&self) -> bool {
        self.fixed.is_some() && self.committed_voters().iter().any(|voter| voter.directory == *ANY_DISK)
    }

    /// With the last disk that held anything, everything that was committed is gone. Whoever starts now starts a new life.
    ///
    /// As long as one such disk is left, nobody may lead without what is on it.
    pub fn is_over(&mut self) -> bool {
        let is_over = !self.history.is_empty() && !self.disks.values().any(Disk::is_of_use);
        if is_over {
            self.said.push("no disk is left that holds anything".to_owned());
            self.history.clear();
            self.registered.clear();
            self.controllers.clear();
            self.heard.clear();
            self.settings.clear();
            self.level = super::LEVEL;
            self.lives += 1;
        }
        is_over
    }
}
