//! All orders of events in small quorums.
//!
//! Beginning with a quorum at rest, every event that could come next is tried, and after each of them every other, up to a
//! number of events in a row. States that were met before are not gone into again. What an operator asks Kafka for is decided by
//! the real [`karst_core::membership`]; between the decision and the request anything else can happen, and two requests can be on
//! their way. From every state the quorum must also come to rest with the voters that are wanted once everybody runs again.

mod decision;
mod model;

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::kraft::majority;
use decision::Decisions;
use model::{NODES, Quorum, Request, Seat, Seats};

/// How many requests can be on their way.
const ON_THEIR_WAY: usize = 2;
/// When all is well, the quorum comes to rest within so many changes.
const CHANGES: usize = 40;

/// Who is wanted at first, and then.
#[derive(Debug, Clone, Copy)]
pub struct Plot {
    /// What it is called.
    pub name: &'static str,
    founders: usize,
    /// Bits of nodes, the wish of the beginning first.
    wishes: &'static [u8],
}

/// What users could want of a small quorum.
pub fn plots() -> Vec<Plot> {
    let plot = |name, founders, wishes| Plot { name, founders, wishes };
    vec![
        plot("three-stay", 3, &[0b00111]),
        plot("one-to-three", 1, &[0b00001, 0b00111]),
        plot("three-to-one", 3, &[0b00111, 0b00001]),
        plot("three-to-five-and-back", 3, &[0b00111, 0b11111, 0b00111]),
        plot("three-to-two-others", 3, &[0b00111, 0b11100]),
        plot("five-to-three", 5, &[0b11111, 0b00111]),
    ]
}

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Wish,
    Crash(usize),
    Restart(usize),
    LoseDisk(usize),
    Elect { node: usize, reaches_leaders: bool },
    Fetch { node: usize, leader: usize },
    Decide,
    Ask(usize),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wish => f.write_str("the user wants other controllers"),
            Self::Crash(node) => write!(f, "node {} dies", node + 1),
            Self::Restart(node) => write!(f, "node {} starts", node + 1),
            Self::LoseDisk(node) => write!(f, "node {} loses its disk", node + 1),
            Self::Elect { node, reaches_leaders } => {
                let alone = if *reaches_leaders { "" } else { ", and does not reach who led before" };
                write!(f, "node {} is elected{alone}", node + 1)
            }
            Self::Fetch { node, leader } => write!(f, "node {} copies from node {}", node + 1, leader + 1),
            Self::Decide => f.write_str("an operator looks at the quorum and decides"),
            Self::Ask(which) => write!(f, "request {which} of those on their way reaches Kafka"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    quorum: Quorum,
    wish: usize,
    requests: Vec<Request>,
}

/// What an exploration found.
#[derive(Debug, Default)]
pub struct Explored {
    /// How many different states.
    pub states: usize,
    /// How many events were tried.
    pub events: usize,
    /// How often the operator decided.
    pub decisions: usize,
    /// On how many different views of the quorum.
    pub views: usize,
    /// How to get to where something did not hold.
    pub story: Option<Vec<String>>,
}

/// Tries all orders of so many events.
pub fn explore(plot: &Plot, depth: usize) -> Explored {
    Search { plot, decisions: Decisions::new(), seen: HashSet::new(), paths: Vec::new(), events: 0 }
        .run(depth)
}

struct Search<'a> {
    plot: &'a Plot,
    decisions: Decisions,
    seen: HashSet<u64>,
    /// By which event from which other state each was reached.
    paths: Vec<(usize, Option<Event>)>,
    events: usize,
}

impl Search<'_> {
    fn run(mut self, depth: usize) -> Explored {
        let wrong = self.spread(depth);
        Explored {
            states: self.seen.len(),
            events: self.events,
            decisions: self.decisions.asked,
            views: self.decisions.views(),
            story: wrong.map(|(state, event, what)| self.story(state, event, &what)),
        }
    }

    /// Level by level. Returns the shortest way to something that does not hold.
    fn spread(&mut self, depth: usize) -> Option<(usize, Option<Event>, String)> {
        let first = match self.begin() {
            Ok(first) => first,
            Err(what) => return Some((0, None, what)),
        };
        self.seen.insert(fingerprint(&first));
        self.paths.push((0, None));
        let mut level = vec![(0, first)];
        for _ in 0..depth {
            let mut next = Vec::new();
            for (at, state) in &level {
                for event in self.possible(state) {
                    self.events += 1;
                    let mut new = state.clone();
                    match self.apply(&mut new, event) {
                        Err(what) => return Some((*at, Some(event), what)),
                        Ok(false) => continue,
                        Ok(true) => {}
                    }
                    if !self.seen.insert(fingerprint(&new)) {
                        continue;
                    }
                    if let Err(what) = self.check(&new) {
                        return Some((*at, Some(event), what));
                    }
                    next.push((self.paths.len(), new));
                    self.paths.push((*at, Some(event)));
                }
            }
            level = next;
        }
        None
    }

    /// A quorum at rest.
    fn begin(&mut self) -> Result<State, String> {
        let mut quorum = Quorum::formed(self.plot.founders);
        quorum.elect(0, true)?;
        for _ in 0..2 {
            fetch_all(&mut quorum)?;
        }
        Ok(State { quorum, wish: 0, requests: Vec::new() })
    }

    fn possible(&self, state: &State) -> Vec<Event> {
        let quorum = &state.quorum;
        let mut events = Vec::new();
        if state.wish + 1 < self.plot.wishes.len() {
            events.push(Event::Wish);
        }
        if state.requests.len() < ON_THEIR_WAY {
            events.push(Event::Decide);
        }
        events.extend((0..state.requests.len()).map(Event::Ask));
        for node in (0..NODES).filter(|node| self.matters(*node)) {
            if quorum.nodes[node].up {
                events.extend([Event::Crash(node), Event::Elect { node, reaches_leaders: true }]);
                if quorum.leaders().next().is_some() {
                    events.push(Event::Elect { node, reaches_leaders: false });
                }
                events.extend(quorum.leaders().map(|leader| Event::Fetch { node, leader }));
            } else {
                events.push(Event::Restart(node));
            }
            if can_lose_disk(state, node) {
                events.push(Event::LoseDisk(node));
            }
        }
        events
    }

    /// Is it ever wanted?
    fn matters(&self, node: usize) -> bool {
        self.plot.wishes.iter().any(|wish| wish & (1 << node) != 0)
    }

    /// Makes it happen. Says whether anything did.
    fn apply(&mut self, state: &mut State, event: Event) -> Result<bool, String> {
        let quorum = &mut state.quorum;
        match event {
            Event::Wish => state.wish += 1,
            Event::Crash(node) => quorum.crash(node),
            Event::Restart(node) => quorum.nodes[node].up = true,
            Event::LoseDisk(node) => return Ok(quorum.lose_disk(node)),
            Event::Elect { node, reaches_leaders } => return quorum.elect(node, reaches_leaders),
            Event::Fetch { node, leader } => quorum.fetch(node, leader)?,
            Event::Decide => match self.decisions.next(quorum, self.plot.wishes[state.wish]) {
                Some(request) if !state.requests.contains(&request) => {
                    check_request(quorum, request)?;
                    state.requests.push(request);
                    state.requests.sort_unstable();
                }
                _ => return Ok(false),
            },
            Event::Ask(which) => {
                let request = state.requests.remove(which);
                quorum.change(request)?;
            }
        }
        Ok(true)
    }

    /// What must hold in every state.
    fn check(&mut self, state: &State) -> Result<(), String> {
        let committed = state.quorum.committed();
        let intact = committed.iter().filter(|seat| state.quorum.is_intact(*seat)).count();
        if intact < majority(committed.len()) {
            return Err(format!("of the voters {committed} only {intact} have their disks"));
        }
        self.check_rest(state.clone())
    }

    /// When everybody runs and nothing goes wrong any more, those vote who are wanted.
    fn check_rest(&mut self, mut state: State) -> Result<(), String> {
        state.wish = self.plot.wishes.len() - 1;
        let wish = self.plot.wishes[state.wish];
        let quorum = &mut state.quorum;
        quorum.nodes.iter_mut().for_each(|node| node.up = true);
        for request in std::mem::take(&mut state.requests) {
            quorum.change(request)?;
        }
        for _ in 0..CHANGES {
            lead(quorum)?;
            let Some(request) = self.decisions.next(quorum, wish) else { break };
            check_request(quorum, request)?;
            quorum.change(request)?;
        }
        let voters = quorum.committed();
        let is_wanted = |seat: Seat| wish & (1 << seat.node) != 0 && quorum.is_intact(seat);
        let wanted = usize::try_from(wish.count_ones()).unwrap_or_default();
        if voters.len() != wanted || !voters.iter().all(is_wanted) {
            return Err(format!("when all is well again, {voters} vote, and nobody changes that"));
        }
        Ok(())
    }

    fn story(&self, mut at: usize, event: Option<Event>, what: &str) -> Vec<String> {
        let mut events: Vec<Event> = event.into_iter().collect();
        while let Some((before, Some(event))) = self.paths.get(at).copied() {
            events.push(event);
            at = before;
        }
        let told = events.iter().rev().map(ToString::to_string);
        told.chain([format!("BROKEN: {what}")]).collect()
    }
}

fn fingerprint(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

fn fetch_all(quorum: &mut Quorum) -> Result<(), String> {
    for node in 0..NODES {
        if let Some(leader) = quorum.leader().map(|(leader, _)| leader) {
            quorum.fetch(node, leader)?;
        }
    }
    Ok(())
}

/// Somebody leads, and everybody has everything.
fn lead(quorum: &mut Quorum) -> Result<(), String> {
    for _ in 0..2 {
        fetch_all(quorum)?;
        if quorum.leader().is_none_or(|(_, office)| office.committed == 0) {
            for node in 0..NODES {
                if quorum.elect(node, true)? {
                    break;
                }
            }
        }
        fetch_all(quorum)?;
        fetch_all(quorum)?;
    }
    match quorum.leader() {
        Some((_, office)) if office.committed > 0 => Ok(()),
        _ => Err("everybody runs, and nobody can lead".to_owned()),
    }
}

/// Would every set of voters that could count, or is about to, keep a majority that has everything?
///
/// Disks are not lost in the middle of an election: an observer that copied from a leader nobody else knows, and whose disk is
/// lost then, can block the next election for good. No operator can help that.
fn can_lose_disk(state: &State, node: usize) -> bool {
    let quorum = &state.quorum;
    let lost = quorum.seat(node);
    let enough = |voters: Seats| {
        let left = voters.iter().filter(|seat| *seat != lost && quorum.holds_all(*seat)).count();
        left >= majority(voters.len())
    };
    let soon = |voters: Seats| state.requests.iter().all(|request| enough(request.done(voters)));
    let both = |voters: Seats| {
        let all = state.requests.iter().fold(voters, |voters, request| request.done(voters));
        enough(all)
    };
    quorum.is_settled() && quorum.possible().all(|voters| enough(voters) && soon(voters) && both(voters))
}

/// At the instant of the decision: a quorum that works would work with what is asked for.
fn check_request(quorum: &Quorum, request: Request) -> Result<(), String> {
    let Some((leader, _)) = quorum.leader() else {
        return Err("somebody decided without a leader".to_owned());
    };
    let voters = quorum.nodes[leader].voters().unwrap_or_default();
    let healthy =
        |voters: Seats| voters.iter().filter(|seat| quorum.progress(leader, *seat) == Some(true)).count();
    let after = request.done(voters);
    if healthy(voters) >= majority(voters.len()) && healthy(after) < majority(after.len()) {
        return Err(format!("{request:?} is asked for: of the voters {after} only {} work", healthy(after)));
    }
    Ok(())
}
