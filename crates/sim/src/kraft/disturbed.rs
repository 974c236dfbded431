//! Brokers that end, suddenly or in peace, that read their logs anew after that, and nodes that are cut off from the controllers.

use std::collections::BTreeMap;

use karst_core::ids::{DirectoryId, NodeId};

use super::{End, Process, Quorum};

/// For so long a broker that has read its logs is about to serve, as its launcher says, in milliseconds.
const RETURN: u64 = 30_000;

impl Quorum {
    /// A process ends in peace. One that still read its logs anew begins with that again.
    pub fn stop(&mut self, node: NodeId) {
        self.end(node, End::InPeace);
    }

    /// A process dies.
    pub fn crash(&mut self, node: NodeId) {
        self.end(node, End::Suddenly);
    }

    fn end(&mut self, node: NodeId, end: End) {
        let Some(process) = self.processes.remove(&node) else { return };
        if !process.broker {
            return;
        }
        self.ended.push((node, end));
        let is_in_the_middle = process.recovers.is_some_and(|(_, until)| until > self.now);
        if end == End::InPeace
            && !is_in_the_middle
            && let Some(disk) = self.disks.get_mut(&process.disk)
        {
            disk.ended = Some(End::InPeace);
        }
    }

    /// A broker opens the logs on a disk. Had they been closed?
    pub(super) fn open_logs(&mut self, disk: &str) -> bool {
        let disk = self.disks.get_mut(disk);
        disk.is_some_and(|disk| disk.ended.replace(End::Suddenly) == Some(End::InPeace))
    }

    /// Is there a broker on this disk that died?
    pub fn needs_recovery(&self, disk: &str) -> bool {
        self.disks.get(disk).is_some_and(|disk| disk.ended == Some(End::Suddenly))
    }

    /// A broker that just started reads its logs anew, for so long.
    pub fn recover(&mut self, node: NodeId, millis: u64) {
        let now = self.now;
        if let Some(process) = self.processes.get_mut(&node) {
            process.recovers = Some((now, now + millis));
            self.said
                .push(format!("broker {node} was not shut down cleanly, and reads its logs for {millis} ms"));
        }
    }

    /// Since when and until when a broker reads its logs anew, if it does.
    pub fn recovery(&self, node: NodeId) -> Option<(u64, u64)> {
        self.processes.get(&node)?.recovers.filter(|(_, until)| *until > self.now)
    }

    /// What the launcher of a broker says: that it reads its logs, or for a while that it has read them, and is about to serve.
    pub fn tells_of_recovery(&self, node: NodeId) -> bool {
        let process = self.processes.get(&node).filter(|process| process.serves.is_none());
        let recovers = process.and_then(|process| process.recovers);
        recovers.is_some_and(|(_, until)| until + RETURN > self.now)
    }

    /// Does a broker read its logs anew, or did one less than this long ago?
    pub fn just_recovered(&self, long: u64) -> bool {
        self.processes.values().filter_map(|one| one.recovers).any(|(_, until)| until + long > self.now)
    }

    /// A broker reaches no controller for a while.
    pub fn cut(&mut self, node: NodeId, millis: u64) {
        if self.processes.get(&node).is_some_and(|process| !process.controller) {
            self.cut_off.insert(node, self.now + millis);
        }
    }

    /// Who was cut off for long enough reaches the controllers again.
    pub(super) fn reconnect(&mut self) {
        let now = self.now;
        let all = std::mem::take(&mut self.cut_off).into_iter();
        let (back, still): (BTreeMap<_, _>, _) = all.partition(|(_, until)| *until <= now);
        self.cut_off = still;
        self.reconnected.extend(back.into_keys().map(|node| (node, now)));
    }

    /// Was this node cut off from the controllers, and is back since then?
    pub fn is_reconnected_since(&self, node: NodeId, then: u64) -> bool {
        self.reconnected.get(&node).is_some_and(|since| *since >= then)
    }

    /// Does this node reach no controller?
    pub fn is_cut_off(&self, node: NodeId) -> bool {
        self.cut_off.contains_key(&node)
    }

    /// The nodes that reach no controller.
    pub fn cut_off(&self) -> impl Iterator<Item = NodeId> {
        self.cut_off.keys().copied()
    }

    /// Does somebody lead who can decide?
    pub fn has_leader(&self) -> bool {
        self.leader().and_then(|leader| leader.office.as_ref()).is_some_and(|office| office.committed > 0)
    }

    /// The disk of a process.
    pub fn directory_of(&self, process: &Process) -> Option<DirectoryId> {
        self.disk_of(process).map(|disk| disk.directory)
    }
}
