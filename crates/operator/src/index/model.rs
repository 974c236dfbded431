//! All interleavings of what can happen to one object, and of how the index hears of it.
//!
//! The API server creates, changes, deletes and creates again. Each of its answers may arrive at any later time, or never. The watch
//! tells events one by one, breaks off at any point, and begins again with a list, which is told piece by piece while all else goes on.
//! The store may be restored from an earlier state. Whatever the order: the index never shows what the watch said is over, and in the
//! end it shows what there is.

use std::collections::HashSet;
use std::sync::Mutex;

use karst_core::names::CLUSTER_LABEL;
use serde_json::json;

use super::*;
use crate::views::AccountWire;
use crate::watch::Event;

/// How much happens. Enough for create, delete, create and one thing more.
const OPERATIONS: usize = 4;
const LISTS: usize = 2;

/// An incarnation, and its version.
type Shown = (u64, u64);

/// One change in the history of the store: at this version the object is so, or gone.
type Change = (u64, Option<u64>);

/// How far a list has been told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Listing {
    None,
    /// As it was when it was asked for.
    Asked {
        version: u64,
        shows: Option<Shown>,
    },
    Begun {
        version: u64,
        shows: Option<Shown>,
    },
    Told {
        version: u64,
    },
}

/// Everything but the index.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    revision: u64,
    /// The highest revision there ever was.
    highest: u64,
    history: Vec<Change>,
    /// How much of the history the watch has told.
    told: usize,
    /// Up to which version.
    told_up_to: u64,
    /// Can only a list help?
    is_deaf: bool,
    listing: Listing,
    answers: Vec<Shown>,
    incarnations: u64,
    operations: usize,
    lists: usize,
    restored: bool,
    bookmarks: usize,
}

#[derive(Clone)]
struct Run {
    world: World,
    index: State,
    feed: Feed,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Update,
    Delete,
    /// The next event.
    Tell,
    Bookmark,
    /// The watch breaks, and asks for a list.
    Break,
    /// The list goes on.
    List,
    /// An answer arrives.
    Answer(usize),
    /// The store goes back to where it was so many changes ago.
    Restore(usize),
}

fn object((uid, version): Shown) -> AccountWire {
    let labels = json!({CLUSTER_LABEL: "c"});
    let meta = json!({"namespace": "ns", "name": "x", "uid": uid.to_string(), "resourceVersion": version.to_string(), "labels": labels});
    serde_json::from_value(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})).unwrap()
}

impl World {
    fn begin() -> Self {
        Self {
            revision: 1,
            highest: 1,
            history: Vec::new(),
            told: 0,
            told_up_to: 0,
            is_deaf: true,
            listing: Listing::Asked { version: 1, shows: None },
            answers: Vec::new(),
            incarnations: 0,
            operations: 0,
            lists: 0,
            restored: false,
            bookmarks: 0,
        }
    }

    /// What there is.
    fn shows(&self) -> Option<Shown> {
        let (version, uid) = *self.history.last()?;
        Some((uid?, version))
    }

    fn change(&mut self, uid: Option<u64>) {
        self.revision += 1;
        self.highest = self.highest.max(self.revision);
        self.operations += 1;
        self.history.push((self.revision, uid));
        self.answers.extend(uid.map(|uid| (uid, self.revision)));
    }

    fn possible(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.operations < OPERATIONS {
            match self.shows() {
                None => steps.push(Step::Create),
                Some(_) => steps.extend([Step::Update, Step::Delete]),
            }
        }
        match self.listing {
            Listing::None => {
                if !self.is_deaf && self.told < self.history.len() {
                    steps.push(Step::Tell);
                }
                if !self.is_deaf && self.bookmarks < 1 {
                    steps.push(Step::Bookmark);
                }
                if self.is_deaf || self.lists < LISTS {
                    steps.push(Step::Break);
                }
            }
            _ => steps.push(Step::List),
        }
        steps.extend((0..self.answers.len()).map(Step::Answer));
        if !self.restored && self.listing == Listing::None {
            steps.extend((1..=self.history.len().min(2)).map(Step::Restore));
        }
        steps
    }
}

impl Run {
    fn index<T>(&mut self, act: impl FnOnce(&Index, &mut Feed) -> T) -> T {
        let index = Index { state: Mutex::new(std::mem::take(&mut self.index)) };
        let outcome = act(&index, &mut self.feed);
        self.index = index.state.into_inner().unwrap();
        outcome
    }

    fn hear(&mut self, event: Event<AccountWire>) {
        let missed = self.index(|index, feed| feed.take(index, event).missed);
        self.world.is_deaf |= missed;
    }

    fn take(&mut self, step: Step) {
        self.steps.push(step);
        match step {
            Step::Create => {
                self.world.incarnations += 1;
                self.world.change(Some(self.world.incarnations));
            }
            Step::Update => self.world.change(self.world.shows().map(|(uid, _)| uid)),
            Step::Delete => self.world.change(None),
            Step::Tell => self.tell(),
            Step::Bookmark => {
                self.world.bookmarks += 1;
                let next = self.world.history.get(self.world.told);
                let version = next.map_or(self.world.revision, |(version, _)| version - 1);
                self.world.told_up_to = self.world.told_up_to.max(version);
                self.hear(Event::ToldUpTo(version));
            }
            Step::Break => {
                self.world.lists += 1;
                self.world.listing =
                    Listing::Asked { version: self.world.revision, shows: self.world.shows() };
            }
            Step::List => self.list(),
            Step::Answer(at) => {
                let answer = self.world.answers.remove(at);
                self.index(|index, _| index.answer(object(answer)));
            }
            Step::Restore(changes) => {
                self.world.restored = true;
                let left = self.world.history.len() - changes;
                self.world.history.truncate(left);
                self.world.revision = self.world.history.last().map_or(1, |(version, _)| *version);
                // The API server breaks off all watches, and what they ask for shows that it went back.
                self.world.is_deaf = true;
                self.world.told = left;
            }
        }
    }

    fn tell(&mut self) {
        let (version, uid) = self.world.history[self.world.told];
        let before = self.world.told.checked_sub(1).and_then(|at| self.world.history[at].1);
        self.world.told += 1;
        self.world.told_up_to = version;
        match uid.or(before) {
            Some(it) if uid.is_some() => self.hear(Event::Applied(Ok(object((it, version))))),
            Some(it) => self.hear(Event::Deleted(Ok(object((it, version))))),
            None => unreachable!("nothing is deleted that was not there"),
        }
    }

    fn list(&mut self) {
        self.world.listing = match self.world.listing {
            Listing::Asked { version, shows } => {
                self.hear(Event::ListBegins(version));
                Listing::Begun { version, shows }
            }
            Listing::Begun { version, shows } => {
                if let Some(shown) = shows {
                    self.hear(Event::Listed(Ok(object(shown))));
                }
                Listing::Told { version }
            }
            Listing::Told { version } => {
                self.hear(Event::ListEnds);
                self.world.is_deaf = false;
                self.world.told_up_to = version;
                self.world.told = self.world.history.iter().take_while(|(at, _)| *at <= version).count();
                Listing::None
            }
            Listing::None => Listing::None,
        };
    }

    fn shown(&self) -> Option<Shown> {
        let objects = self.index.clusters.values().next()?;
        let seen = objects.accounts.get("x")?;
        Some((seen.uid.parse().unwrap(), seen.version))
    }

    /// What is shown is as the watch told it, or newer.
    fn check(&self) {
        if self.world.restored || self.world.told_up_to == 0 {
            return;
        }
        let told = self.world.told_up_to;
        let last = self.world.history.iter().rev().find(|(version, _)| *version <= told);
        let shown = self.shown();
        match shown {
            Some((uid, version)) if version <= told => {
                assert_eq!(
                    last,
                    Some(&(version, Some(uid))),
                    "older than told: {shown:?} {:?} {:?}",
                    self.world,
                    self.steps
                );
            }
            Some((uid, version)) => {
                let is_real = self.world.history.contains(&(version, Some(uid)));
                assert!(is_real, "never was: {:?} {:?}", self.world, self.steps);
            }
            None => {
                let exists = last.is_some_and(|(_, uid)| uid.is_some());
                assert!(!exists, "not shown: {:?} {:?}", self.world, self.steps);
            }
        }
    }

    /// Everything is told, every answer arrives, and nothing happens any more but that time goes by.
    fn comes_to_rest(mut self) {
        self.all_is_told();
        while !self.world.answers.is_empty() {
            self.take(Step::Answer(0));
        }
        if !self.world.restored {
            assert_eq!(self.shown(), self.world.shows(), "at rest: {:?} {:?}", self.world, self.steps);
        }
        self.world.revision = self.world.highest + 1;
        self.world.bookmarks = 0;
        self.take(Step::Bookmark);
        self.all_is_told();
        assert_eq!(self.shown(), self.world.shows(), "in the end: {:?} {:?}", self.world, self.steps);
        assert!(self.index.told.values().all(|told| told.answered.is_empty()));
    }

    fn all_is_told(&mut self) {
        loop {
            match self.world.listing {
                Listing::None if self.world.is_deaf => self.take(Step::Break),
                Listing::None if self.world.told < self.world.history.len() => self.take(Step::Tell),
                Listing::None => return,
                _ => self.take(Step::List),
            }
        }
    }

    /// What decides how it goes on.
    fn key(&self) -> impl Eq + std::hash::Hash + use<> {
        let told: Vec<_> =
            self.index.told.values().map(|told| (told.version, told.answered.clone())).collect();
        (self.world.clone(), self.shown(), told, self.feed.is_in_an_older_list())
    }
}

#[test]
fn in_every_order_the_index_shows_what_there_is() {
    let begin =
        Run { world: World::begin(), index: State::default(), feed: Feed::new(None), steps: Vec::new() };
    let (mut open, mut seen, mut restored) = (vec![begin], HashSet::new(), 0);
    while let Some(run) = open.pop() {
        for step in run.world.possible() {
            let mut next = run.clone();
            next.take(step);
            next.check();
            if seen.insert(next.key()) {
                restored += usize::from(next.world.restored);
                next.clone().comes_to_rest();
                open.push(next);
            }
        }
    }
    assert!(
        seen.len() > 20_000 && restored > 10_000,
        "{} states, {restored} after a restoration",
        seen.len()
    );
}
