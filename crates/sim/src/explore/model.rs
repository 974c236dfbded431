//! A quorum of at most five nodes, without time: what happens next is chosen from outside.
//!
//! The rules are those of [`crate::kraft`], reduced to what the order of events decides.

use std::fmt;

use crate::kraft::majority;

/// How many nodes there can be.
pub(super) const NODES: usize = 5;
/// How many disks a node can have had.
const DISKS: usize = 3;

/// A node with one of the disks it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Seat {
    /// The node, counted from 0.
    pub(super) node: usize,
    /// How many disks it lost before.
    pub(super) disk: usize,
}

impl Seat {
    fn index(self) -> usize {
        self.node * DISKS + self.disk
    }
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.node + 1)?;
        (0..self.disk).try_for_each(|_| f.write_str("'"))
    }
}

/// A set of seats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Seats(u16);

impl Seats {
    /// Does it have this one?
    pub(super) fn has(self, seat: Seat) -> bool {
        self.0 & (1 << seat.index()) != 0
    }

    /// With one more.
    pub(super) fn with(self, seat: Seat) -> Self {
        Self(self.0 | (1 << seat.index()))
    }

    /// With one fewer.
    pub(super) fn without(self, seat: Seat) -> Self {
        Self(self.0 & !(1 << seat.index()))
    }

    /// How many.
    pub(super) fn len(self) -> usize {
        usize::try_from(self.0.count_ones()).unwrap_or_default()
    }

    /// None?
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Every seat that there can be.
    pub(super) fn all() -> impl Iterator<Item = Seat> {
        (0..NODES).flat_map(|node| (0..DISKS).map(move |disk| Seat { node, disk }))
    }

    /// Those in it, in order.
    pub(super) fn iter(self) -> impl Iterator<Item = Seat> {
        Self::all().filter(move |seat| self.has(*seat))
    }

    /// How many are in only one of two sets.
    fn difference(self, other: Self) -> usize {
        Self(self.0 ^ other.0).len()
    }
}

impl fmt::Display for Seats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.iter().map(|seat| seat.to_string()).collect();
        f.write_str(&all.join(", "))
    }
}

/// One entry of a log: that a leader took office, or who votes from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    epoch: u8,
    voters: Option<Seats>,
}

/// A term of office, in the memory of its leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Office {
    /// Which term.
    pub(super) epoch: u8,
    /// How much is committed, as far as it knows.
    pub(super) committed: usize,
    has: [Option<u8>; NODES * DISKS],
}

/// A node: its disk, and its process while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Node {
    /// How many disks it lost.
    pub(super) disk: usize,
    /// Does it run?
    pub(super) up: bool,
    /// Its office, while it leads.
    pub(super) office: Option<Office>,
    founders: Option<Seats>,
    log: Vec<Entry>,
    epoch: u8,
}

impl Node {
    /// The newest set of voters it knows.
    pub(super) fn voters(&self) -> Option<Seats> {
        self.log.iter().rev().find_map(|entry| entry.voters).or(self.founders)
    }

    fn reach(&self) -> (u8, usize) {
        (self.log.last().map_or(0, |entry| entry.epoch), self.log.len())
    }
}

/// What an operator asks Kafka for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Request {
    /// Somebody is to vote.
    Join(Seat),
    /// Somebody is to vote no longer.
    Leave(Seat),
}

impl Request {
    /// The voters when it is done.
    pub(super) fn done(self, voters: Seats) -> Seats {
        match self {
            Self::Join(seat) => voters.with(seat),
            Self::Leave(seat) => voters.without(seat),
        }
    }
}

/// The quorum, and what was ever committed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Quorum {
    /// The nodes.
    pub(super) nodes: Vec<Node>,
    history: Vec<Entry>,
}

/// Something that must never happen did.
pub(super) type Checked<T> = Result<T, String>;

impl Quorum {
    /// A quorum that its first so many nodes formed. The others run, and have joined nothing.
    pub(super) fn formed(founders: usize) -> Self {
        let seats = (0..founders).fold(Seats::default(), |all, node| all.with(Seat { node, disk: 0 }));
        let node = |index: usize| Node {
            disk: 0,
            up: true,
            office: None,
            founders: (index < founders).then_some(seats),
            log: Vec::new(),
            epoch: 0,
        };
        Self { nodes: (0..NODES).map(node).collect(), history: Vec::new() }
    }

    /// A node with the disk it has.
    pub(super) fn seat(&self, node: usize) -> Seat {
        Seat { node, disk: self.nodes[node].disk }
    }

    /// Is the disk still there?
    pub(super) fn is_intact(&self, seat: Seat) -> bool {
        self.nodes[seat.node].disk == seat.disk
    }

    /// Who votes, as far as that is committed.
    pub(super) fn committed(&self) -> Seats {
        self.history.iter().rev().find_map(|entry| entry.voters).unwrap_or_default()
    }

    /// All sets of voters that could count: what is committed, and what is newest on any disk.
    pub(super) fn possible(&self) -> impl Iterator<Item = Seats> {
        self.nodes
            .iter()
            .filter(|node| !node.log.is_empty())
            .filter_map(Node::voters)
            .chain([self.committed()])
    }

    /// Those who believe to lead.
    pub(super) fn leaders(&self) -> impl Iterator<Item = usize> {
        (0..NODES).filter(|node| self.nodes[*node].office.is_some())
    }

    /// The leader of the newest term.
    pub(super) fn leader(&self) -> Option<(usize, &Office)> {
        let all =
            self.nodes.iter().enumerate().filter_map(|(index, node)| Some((index, node.office.as_ref()?)));
        all.max_by_key(|(_, office)| office.epoch)
    }

    /// How far a seat is, for the leader: all of it, some of it, or nothing ever.
    pub(super) fn progress(&self, leader: usize, seat: Seat) -> Option<bool> {
        if seat == self.seat(leader) {
            return Some(true);
        }
        let has = self.nodes[leader].office.as_ref()?.has[seat.index()]?;
        Some(
            usize::from(has) == self.nodes[leader].log.len()
                && self.is_intact(seat)
                && self.nodes[seat.node].up,
        )
    }

    /// Has this disk everything that is committed?
    pub(super) fn holds_all(&self, seat: Seat) -> bool {
        self.is_intact(seat) && self.nodes[seat.node].log.starts_with(&self.history)
    }

    /// Does the leader of the newest term lead whom a majority knows, or is nothing on any disk that is not committed?
    pub(super) fn is_settled(&self) -> bool {
        let newest = self.nodes.iter().map(|node| node.epoch).max();
        match self.leader() {
            Some((_, office)) => office.committed > 0 && Some(office.epoch) == newest,
            None => self.nodes.iter().all(|node| self.history.starts_with(&node.log)),
        }
    }

    /// A process ends.
    pub(super) fn crash(&mut self, node: usize) {
        self.nodes[node].up = false;
        self.nodes[node].office = None;
    }

    /// A disk is lost. The node is to join with the next one.
    pub(super) fn lose_disk(&mut self, node: usize) -> bool {
        self.crash(node);
        let lost = &mut self.nodes[node];
        if lost.disk + 1 == DISKS {
            return false;
        }
        *lost =
            Node { disk: lost.disk + 1, up: false, office: None, founders: None, log: Vec::new(), epoch: 0 };
        true
    }

    /// A node stands for election; a leader that is there may be asked for its vote, or not be reached. Says whether it won.
    pub(super) fn elect(&mut self, node: usize, reaches_leaders: bool) -> Checked<bool> {
        let own = self.seat(node);
        let candidate = &self.nodes[node];
        let Some(voters) = candidate.voters().filter(|voters| voters.has(own)) else { return Ok(false) };
        if !candidate.up || candidate.office.is_some() {
            return Ok(false);
        }
        let reached = |seat: &Seat| {
            let other = &self.nodes[seat.node];
            other.up && self.is_intact(*seat) && (reaches_leaders || other.office.is_none())
        };
        let epoch = voters.iter().filter(reached).map(|seat| self.nodes[seat.node].epoch);
        let epoch = epoch.max().unwrap_or_default().max(candidate.epoch) + 1;
        let reach = candidate.reach();
        let granting: Vec<Seat> =
            voters.iter().filter(reached).filter(|seat| self.nodes[seat.node].reach() <= reach).collect();
        if granting.len() < majority(voters.len()) {
            return Ok(false);
        }
        for seat in granting {
            self.nodes[seat.node].epoch = epoch;
            self.nodes[seat.node].office = None;
        }
        let is_complete = self.nodes[node].log.starts_with(&self.history);
        let winner = &mut self.nodes[node];
        winner.log.push(Entry { epoch, voters: None });
        if winner.log.iter().all(|entry| entry.voters.is_none()) {
            winner.log.push(Entry { epoch, voters: Some(voters) });
        }
        winner.office = Some(Office { epoch, committed: 0, has: [None; NODES * DISKS] });
        self.commit(node)?;
        if is_complete { Ok(true) } else { Err(format!("node {own} leads, and lacks what is committed")) }
    }

    /// A node copies from a leader, and cuts off what that one does not have.
    pub(super) fn fetch(&mut self, node: usize, leader: usize) -> Checked<()> {
        let (own, source) = (self.seat(node), self.nodes[leader].clone());
        let Some(office) = source.office.filter(|_| node != leader && self.nodes[node].up) else {
            return Ok(());
        };
        if self.nodes[node].epoch > office.epoch {
            // Somebody knows of a newer term: this one is over.
            self.nodes[leader].office = None;
            return Ok(());
        }
        let target = &mut self.nodes[node];
        if target.office.is_some_and(|own| own.epoch < office.epoch) {
            target.office = None;
        }
        target.epoch = office.epoch;
        target.log.clone_from(&source.log);
        let has = u8::try_from(source.log.len()).ok();
        if let Some(office) = &mut self.nodes[leader].office {
            office.has[own.index()] = has;
        }
        self.commit(leader)
    }

    fn commit(&mut self, leader: usize) -> Checked<()> {
        let (own, node) = (self.seat(leader), &self.nodes[leader]);
        let (Some(office), Some(voters)) = (node.office, node.voters()) else { return Ok(()) };
        let mut has: Vec<usize> =
            voters
                .iter()
                .map(|seat| {
                    if seat == own { node.log.len() } else { office.has[seat.index()].map_or(0, usize::from) }
                })
                .collect();
        has.sort_unstable_by(|one, other| other.cmp(one));
        let Some(upto) = has.get(majority(has.len()) - 1).copied() else { return Ok(()) };
        if upto <= office.committed || node.log[upto - 1].epoch != office.epoch {
            return Ok(());
        }
        let (log, is_last) = (node.log[..upto].to_vec(), upto == node.log.len());
        if let Some(office) = &mut self.nodes[leader].office {
            office.committed = upto;
            // A leader that left does so when everybody knows.
            if is_last && !voters.has(own) {
                self.nodes[leader].office = None;
            }
        }
        self.remember(own, &log)
    }

    fn remember(&mut self, leader: Seat, log: &[Entry]) -> Checked<()> {
        let known = log.len().min(self.history.len());
        if log[..known] != self.history[..known] {
            return Err(format!("node {leader} committed something else than what had been committed"));
        }
        for entry in &log[known..] {
            let old = self.committed();
            if let Some(new) = entry.voters.filter(|new| !old.is_empty() && old.difference(*new) > 1) {
                return Err(format!("more than one voter changed at once: from {old} to {new}"));
            }
            self.history.push(*entry);
        }
        Ok(())
    }

    /// Kafka is asked for a change. It refuses while another one, or its own term, is not committed.
    pub(super) fn change(&mut self, request: Request) -> Checked<()> {
        let Some((leader, office)) = self.leader() else { return Ok(()) };
        let (office, log) = (*office, &self.nodes[leader].log);
        let last = log.iter().rposition(|entry| entry.voters.is_some());
        let Some(voters) = self.nodes[leader].voters() else { return Ok(()) };
        if office.committed == 0 || last.is_some_and(|last| last >= office.committed) {
            return Ok(());
        }
        let is_possible = match request {
            Request::Join(seat) => {
                let is_new = voters.iter().all(|voter| voter.node != seat.node);
                is_new && self.progress(leader, seat) == Some(true)
            }
            Request::Leave(seat) => voters.has(seat) && voters.len() > 1,
        };
        if is_possible {
            let entry = Entry { epoch: office.epoch, voters: Some(request.done(voters)) };
            self.nodes[leader].log.push(entry);
            self.commit(leader)?;
        }
        Ok(())
    }
}
