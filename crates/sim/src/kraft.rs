//! The KRaft quorum, as Kafka does it: disks that remember, processes that forget, elections, commits, voters that come
//! and go.
//!
//! A node's disk holds its directory id, its log and its vote; they survive the process and go with the disk. The set of
//! voters is in the log: a node goes by the newest one it has, committed or not. Nothing here knows of Kubernetes.

mod brokers;
mod disturbed;
mod election;
mod fixed;
mod heartbeat;
mod memory;
mod replication;
mod view;
mod voters;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use karst_core::dynamic::SettingChange;
use karst_core::ids::{DirectoryId, NodeId};
use karst_core::membership::Voter;

use crate::dice::Dice;
pub use fixed::fixed_voters;
use fixed::{ANY_DISK, is};
use heartbeat::Heartbeat;
pub use memory::Memory;

/// For so long a follower may be silent, in milliseconds.
pub const FETCH_TIMEOUT: u64 = 2_000;
/// After so long without a majority a leader gives up its office.
const OFFICE_TIMEOUT: u64 = 3_000;

/// A set of voters.
pub type Voters = Arc<BTreeSet<Voter>>;

/// One entry of the metadata log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The term of office in which it was written.
    pub epoch: u32,
    /// What it says.
    pub what: What,
}

/// What an entry says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A leader took office.
    Leader(Voter),
    /// Who votes from now on.
    Voters(Voters),
    /// A topic was created.
    Topic(u32),
    /// A broker is known from now on.
    Registered(NodeId),
    /// A broker is forgotten.
    Unregistered(NodeId),
    /// The level of the metadata version from now on.
    Metadata(i16),
    /// A setting of all nodes from now on, or none.
    Setting(String, Option<String>),
}

/// A metadata disk that was formatted.
#[derive(Debug, Clone)]
pub struct Disk {
    /// Its identity.
    pub directory: DirectoryId,
    /// The cluster it belongs to.
    pub cluster: String,
    /// The voters it was formatted with.
    pub founders: Option<Voters>,
    /// The metadata log.
    pub log: Vec<Record>,
    /// The newest term of office it knows.
    pub epoch: u32,
    /// Whom it voted for in that term.
    pub voted: Option<Voter>,
    /// Was it formatted without a word about voters, which are in its node's settings?
    pub is_static: bool,
    /// Was its node ready since? Before that nobody can tell it from an empty one.
    pub served: bool,
    /// How the last broker on it ended.
    pub ended: Option<End>,
}

/// How a broker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It said that it goes, and closed its logs.
    InPeace,
    /// It died, or runs still.
    Suddenly,
}

impl Disk {
    /// A disk that was formatted just now.
    pub fn formatted(directory: DirectoryId, cluster: String, founders: Option<Voters>) -> Self {
        Self {
            directory,
            cluster,
            founders,
            log: Vec::new(),
            epoch: 0,
            voted: None,
            is_static: false,
            served: false,
            ended: None,
        }
    }

    /// The newest set of voters it knows.
    pub fn voters(&self) -> Option<&Voters> {
        let newest = self.log.iter().rev().find_map(voters_of);
        newest.or(self.founders.as_ref())
    }

    /// How far its log goes: a log that goes further is never overruled by one that does not.
    fn reach(&self) -> (u32, usize) {
        (self.log.last().map_or(0, |record| record.epoch), self.log.len())
    }

    /// Does it hold anything that somebody could have seen?
    fn is_of_use(&self) -> bool {
        self.served && !self.log.is_empty()
    }

    /// Did it ever vote, or copy anything?
    pub fn took_part(&self) -> bool {
        self.epoch > 0 || !self.log.is_empty()
    }
}

fn voters_of(record: &Record) -> Option<&Voters> {
    if let What::Voters(voters) = &record.what { Some(voters) } else { None }
}

/// How many voters make a majority.
pub fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

/// What a leader knows of somebody who copies from it.
#[derive(Debug, Clone)]
struct Follower {
    has: usize,
    fetched: u64,
    caught_up: Option<u64>,
}

/// A term of office, in the memory of its leader.
#[derive(Debug, Clone)]
pub struct Office {
    /// Which term.
    pub epoch: u32,
    since: u64,
    /// How much of the log is committed.
    pub committed: usize,
    followers: BTreeMap<Voter, Follower>,
}

impl Office {
    /// What is known of a voter. In a static one it is whatever disk the node copied to last.
    fn follower(&self, voter: &Voter) -> Option<&Follower> {
        if voter.directory == *ANY_DISK {
            return self.newest_of(voter.node).map(|(_, follower)| follower);
        }
        self.followers.get(voter)
    }

    /// Is it the leader itself, or did it ever copy from it in this term?
    fn has_seen(&self, own: &Voter, voter: &Voter) -> bool {
        is(own, voter) || self.follower(voter).is_some()
    }
}

/// A Kafka process.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its node.
    pub node: NodeId,
    /// Its metadata disk.
    pub disk: String,
    /// Does it run the controller role?
    pub controller: bool,
    /// Does it run the broker role?
    pub broker: bool,
    /// The newest metadata version that its Kafka can read, by its level.
    pub understands: i16,
    /// When it started.
    pub since: u64,
    /// Its office, while it leads.
    pub office: Option<Office>,
    fetched: Option<u64>,
    /// Had it everything when it last fetched?
    has_all: bool,
    /// Since when it serves as a broker.
    pub serves: Option<u64>,
    /// Did the broker before it end in peace, on the same disk?
    pub ended_well: bool,
    /// From when until when it reads its logs anew, because they were not closed.
    pub recovers: Option<(u64, u64)>,
    /// The voters that its settings name.
    fixed: Option<Voters>,
}

/// Why Kafka did not change its quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Nobody leads, or nobody who could be reached does.
    NoLeader,
    /// Another change is not committed yet, or nothing of this term is.
    Busy,
    /// It is a voter already.
    Duplicate,
    /// There is no such voter.
    NotFound,
    /// The new voter lacks records.
    Behind,
    /// The voters are in the settings of nodes.
    Static,
    /// Another cluster is meant.
    OtherCluster,
}

/// All of Kafka that has to do with its metadata.
#[derive(Debug, Clone)]
pub struct Quorum {
    /// Formatted disks.
    pub disks: BTreeMap<String, Disk>,
    /// Processes.
    pub processes: BTreeMap<NodeId, Process>,
    /// Everything that was ever committed, in order.
    pub history: Vec<Record>,
    /// The first thing that went wrong.
    pub broken: Option<String>,
    /// What is worth a line in the story.
    pub said: Vec<String>,
    topics: u32,
    /// The brokers that are registered, as far as that is committed.
    registered: BTreeSet<NodeId>,
    /// The controllers that are registered, and how much was committed then: whoever has that knows of them.
    controllers: BTreeMap<NodeId, usize>,
    /// When a broker was last heard of.
    heard: BTreeMap<NodeId, u64>,
    now: u64,
    /// Are topics being created?
    pub has_clients: bool,
    /// The level of the metadata version.
    pub level: i16,
    /// Settings that all nodes were told while they ran.
    pub settings: BTreeMap<String, String>,
    /// The voters that settings name, while no log does.
    fixed: Option<Voters>,
    /// How often everything that was committed was lost, with every disk.
    pub lives: usize,
    /// Brokers that ended since somebody last asked, and how.
    pub ended: Vec<(NodeId, End)>,
    /// Disks that were lost since somebody last asked.
    pub lost: Vec<DirectoryId>,
    /// When the last one was lost.
    last_loss: Option<u64>,
    /// Nodes that reach no controller, and until when.
    cut_off: BTreeMap<NodeId, u64>,
    /// Nodes that reach the controllers again, and since when.
    reconnected: BTreeMap<NodeId, u64>,
    /// The heartbeat that the last voter to be removed may still answer.
    unanswered: Option<Heartbeat>,
}

/// The level that the version of all stories is formatted with.
pub const LEVEL: i16 = 27;

impl Default for Quorum {
    fn default() -> Self {
        Self {
            disks: BTreeMap::new(),
            processes: BTreeMap::new(),
            history: Vec::new(),
            broken: None,
            said: Vec::new(),
            topics: 0,
            registered: BTreeSet::new(),
            controllers: BTreeMap::new(),
            heard: BTreeMap::new(),
            now: 0,
            has_clients: false,
            level: LEVEL,
            settings: BTreeMap::new(),
            fixed: None,
            lives: 0,
            ended: Vec::new(),
            lost: Vec::new(),
            last_loss: None,
            cut_off: BTreeMap::new(),
            reconnected: BTreeMap::new(),
            unanswered: None,
        }
    }
}

impl Quorum {
    /// Starts a process on a formatted disk.
    pub fn start(&mut self, node: NodeId, disk: &str, controller: bool, broker: bool, understands: i16) {
        if understands < self.level {
            self.fail(format!("node {node} starts, and cannot read metadata of level {}", self.level));
        }
        if self.processes.contains_key(&node) {
            self.fail(format!("node {node} is alive twice"));
        }
        let process = Process {
            node,
            disk: disk.to_owned(),
            controller,
            broker,
            understands,
            since: self.now,
            office: None,
            fetched: None,
            has_all: false,
            serves: None,
            ended_well: broker && self.open_logs(disk),
            recovers: None,
            fixed: None,
        };
        self.processes.insert(node, process);
    }

    fn fail(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    fn disk_of(&self, process: &Process) -> Option<&Disk> {
        self.disks.get(&process.disk)
    }

    fn voter_of(&self, process: &Process) -> Option<Voter> {
        Some(Voter { node: process.node, directory: self.disk_of(process)?.directory })
    }

    /// The committed set of voters.
    pub fn committed_voters(&self) -> BTreeSet<Voter> {
        self.committed().map(|voters| (**voters).clone()).unwrap_or_default()
    }

    fn committed(&self) -> Option<&Voters> {
        self.history.iter().rev().find_map(voters_of).or(self.fixed.as_ref())
    }

    /// How many vote, as far as that is committed.
    pub fn count_voters(&self) -> usize {
        self.committed().map_or(0, |voters| voters.len())
    }

    /// Topics whose creation was acknowledged.
    pub fn topics(&self) -> usize {
        self.history.iter().filter(|record| matches!(record.what, What::Topic(_))).count()
    }

    /// The leader of the newest term.
    pub fn leader(&self) -> Option<&Process> {
        let leading = self.processes.values().filter_map(|one| Some((one.office.as_ref()?.epoch, one)));
        leading.max_by_key(|(epoch, _)| *epoch).map(|(_, one)| one)
    }

    /// The newest set of voters, committed or not, as the leader knows it.
    pub fn newest_voters(&self) -> BTreeSet<Voter> {
        let led = self.leader().and_then(|leader| self.known_to(leader));
        led.map_or_else(|| self.committed_voters(), |voters| (**voters).clone())
    }

    /// Sets of voters that somebody has written down or copied, and that are not committed. Whoever has one goes by it, and may stand no more.
    pub fn half_written_voters(&self) -> Vec<Voters> {
        let new = self.disks.values().flat_map(|disk| disk.log.iter().skip(self.history.len()));
        new.filter_map(voters_of).cloned().collect()
    }

    /// Was a static quorum told to become dynamic, and is that not committed? The disks that it had then are written down.
    pub fn is_migrating(&self) -> bool {
        self.fixed.is_some() && !self.half_written_voters().is_empty()
    }

    /// Does this voter run, and is it caught up as far as the leader, if there is one, can tell?
    pub fn is_healthy(&self, voter: &Voter) -> bool {
        let Some(process) = self.processes.get(&voter.node).filter(|process| process.controller) else {
            return false;
        };
        let is_same = self.voter_of(process).is_some_and(|own| is(&own, voter));
        let office = self.leader().and_then(|leader| leader.office.as_ref());
        let is_caught_up = office.is_none_or(|office| {
            let caught_up = office.follower(voter).and_then(|follower| follower.caught_up);
            process.office.is_some()
                || caught_up.is_some_and(|at| self.now.saturating_sub(at) < FETCH_TIMEOUT)
        });
        is_same && is_caught_up
    }

    /// Is the quorum in the one state that Kafka does not find out of? The leader of two voters was told to leave, wrote that down,
    /// and the other one was gone before it could copy it. The one that wrote it knows itself to be no voter, and does not stand;
    /// the other one needs its vote, and does not get it, because it lacks that record.
    pub fn is_stuck_between_two(&self) -> bool {
        let voters = self.committed_voters();
        let has_left = |voter: &Voter| {
            let mut own = self.disks.values().filter(|disk| disk.directory == voter.directory);
            own.any(|disk| disk.voters().is_some_and(|known| !known.contains(voter)))
        };
        self.leader().is_none() && voters.len() == 2 && voters.iter().any(has_left)
    }

    /// Are the disks of most voters gone, while somebody who does not vote has a copy of what they knew? Then a person decides.
    pub fn outlives_its_voters(&self) -> bool {
        let voters = self.committed_voters();
        let has_disk = |voter: &&Voter| self.disks.values().any(|disk| disk.directory == voter.directory);
        let left = voters.iter().filter(has_disk).count();
        let has_copy = self.disks.values().any(Disk::is_of_use);
        self.leader().is_none() && left < majority(voters.len()) && has_copy
    }

    /// How many of these voters are healthy.
    pub fn healthy<'a>(&self, voters: impl IntoIterator<Item = &'a Voter>) -> usize {
        voters.into_iter().filter(|voter| self.is_healthy(voter)).count()
    }

    /// Time passes.
    pub fn step(&mut self, now: u64, dice: &mut Dice) {
        self.now = now;
        self.reconnect();
        self.resign();
        self.fetch(dice);
        self.commit();
        self.elect(dice);
        self.register();
        self.register_controllers();
        self.create_topics(dice);
        self.note_who_serves();
    }

    fn note_who_serves(&mut self) {
        let is_news =
            |one: &&Process| self.disk_of(one).is_some_and(|disk| !disk.served) && self.is_ready(one.node);
        let disks: Vec<String> =
            self.processes.values().filter(is_news).map(|one| one.disk.clone()).collect();
        for disk in disks {
            if let Some(disk) = self.disks.get_mut(&disk) {
                disk.served = true;
            }
        }
    }

    /// A disk is gone for good.
    pub fn loses(&mut self, directory: DirectoryId) {
        self.lost.push(directory);
        self.last_loss = Some(self.now);
    }

    /// Leaders that lost their followers, or left the quorum, give up their office.
    fn resign(&mut self) {
        let ends: Vec<NodeId> =
            self.leaders().filter(|leader| self.must_resign(leader)).map(|one| one.node).collect();
        for node in ends {
            self.said.push(format!("node {node} gives up its office"));
            self.end_office(node);
        }
    }

    fn end_office(&mut self, node: NodeId) {
        let now = self.now;
        if let Some(process) = self.processes.get_mut(&node) {
            process.office = None;
            process.fetched = Some(now);
            process.has_all = false;
        }
    }

    fn leaders(&self) -> impl Iterator<Item = &Process> {
        self.processes.values().filter(|process| process.office.is_some())
    }

    fn must_resign(&self, leader: &Process) -> bool {
        let (Some(office), Some(disk), Some(own)) =
            (&leader.office, self.disk_of(leader), self.voter_of(leader))
        else {
            return true;
        };
        let Some(voters) = self.known_to(leader) else { return true };
        let is_committed = office.committed >= disk.log.len();
        if !voters.iter().any(|voter| is(&own, voter)) && is_committed {
            return true;
        }
        let heard = voters.iter().filter(|voter| {
            is(&own, voter)
                || office
                    .follower(voter)
                    .is_some_and(|follower| self.now.saturating_sub(follower.fetched) <= OFFICE_TIMEOUT)
        });
        self.now.saturating_sub(office.since) > OFFICE_TIMEOUT && heard.count() < majority(voters.len())
    }

    /// Adds to the history, and checks that it is never rewritten.
    fn remember(&mut self, node: NodeId, upto: usize) {
        let Some(disk) = self.processes.get(&node).and_then(|leader| self.disk_of(leader)) else { return };
        let from = self.history.len().min(upto).saturating_sub(1);
        let log = disk.log[from..upto].to_vec();
        for (index, record) in (from..).zip(log) {
            match self.history.get(index) {
                Some(known) if *known != record => {
                    self.fail(format!(
                        "node {node} committed {record:?} at {index}, where {known:?} had been committed"
                    ));
                    return;
                }
                Some(_) => {}
                None => self.add_to_history(record),
            }
        }
    }

    fn add_to_history(&mut self, record: Record) {
        if let What::Voters(new) = &record.what {
            let old = self.committed_voters();
            let changes = old.symmetric_difference(new).count();
            let names: Vec<_> = new.iter().map(|voter| voter.node.to_string()).collect();
            self.said.push(format!("the voters are {}", names.join(", ")));
            if old.iter().any(|voter| voter.directory == *ANY_DISK) {
                self.check_migrated(&old, new);
            } else if !old.is_empty() && changes > 1 {
                self.fail(format!("{changes} voters changed at once"));
            }
        }
        match &record.what {
            What::Registered(node) => drop(self.registered.insert(*node)),
            What::Unregistered(node) => drop(self.registered.remove(node)),
            What::Metadata(level) => self.raise(*level),
            What::Setting(key, Some(value)) => drop(self.settings.insert(key.clone(), value.clone())),
            What::Setting(key, None) => drop(self.settings.remove(key)),
            What::Leader(_) | What::Voters(_) | What::Topic(_) => {}
        }
        self.history.push(record);
    }

    fn raise(&mut self, level: i16) {
        self.level = level;
        self.said.push(format!("the metadata version has level {level}"));
        let old = self.processes.values().find(|process| process.understands < level).map(|one| one.node);
        if let Some(node) = old {
            self.fail(format!("node {node} runs, and cannot read metadata of level {level}"));
        }
    }

    /// UpdateFeatures, for the metadata version.
    pub fn set_metadata(&mut self, level: i16) -> Result<Pending, Refused> {
        let (disk, epoch) = self.open_for_records().ok_or(Refused::NoLeader)?;
        Ok(self.write(&disk, epoch, What::Metadata(level)))
    }

    /// All nodes get another setting.
    pub fn configure(&mut self, change: &SettingChange) -> Result<Pending, Refused> {
        let (disk, epoch) = self.open_for_records().ok_or(Refused::NoLeader)?;
        Ok(self.write(&disk, epoch, What::Setting(change.key.clone(), change.value.clone())))
    }

    /// A leader that took office for good: its disk and term.
    fn open_for_records(&self) -> Option<(String, u32)> {
        let leader = self.leader()?;
        let office = leader.office.as_ref().filter(|office| office.committed > 0)?;
        Some((leader.disk.clone(), office.epoch))
    }

    fn write(&mut self, disk: &str, epoch: u32, what: What) -> Pending {
        let mut index = 0;
        if let Some(disk) = self.disks.get_mut(disk) {
            index = disk.log.len();
            disk.log.push(Record { epoch, what });
        }
        Pending { index, epoch }
    }

    /// A client creates topics now and then.
    fn create_topics(&mut self, dice: &mut Dice) {
        if !self.has_clients || !dice.chance(30) {
            return;
        }
        let Some((disk, epoch)) = self.open_for_records() else { return };
        self.topics += 1;
        self.write(&disk, epoch, What::Topic(self.topics));
    }

    /// Is a change committed? `None` when it can no longer be told.
    pub fn is_done(&self, pending: &Pending) -> Option<bool> {
        if let Some(record) = self.history.get(pending.index) {
            return Some(record.epoch == pending.epoch);
        }
        let leader = self.leader()?.office.as_ref()?;
        (leader.epoch == pending.epoch).then_some(false)
    }
}

/// A change that was written, and is not committed yet.
#[derive(Debug, Clone, Copy)]
pub struct Pending {
    index: usize,
    epoch: u32,
}
