//! Watches, which lag behind, and lists, which may be old.

use std::collections::BTreeMap;

use super::{ApiServer, Kind, Stored, of_kind};

/// What a watch tells.
#[derive(Debug, Clone)]
pub enum Event {
    /// An object is new, or changed.
    Put(Stored),
    /// An object is gone.
    Gone {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
        /// Everything up to this version was before.
        version: u64,
    },
}

impl Event {
    /// Of which kind of objects it tells.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Put(stored) => stored.item.kind(),
            Self::Gone { kind, .. } => *kind,
        }
    }

    /// Up to which version everything has been told with it.
    pub fn version(&self) -> u64 {
        match self {
            Self::Put(stored) => stored.version,
            Self::Gone { version, .. } => *version,
        }
    }
}

/// All objects of a kind, as they were at some version.
#[derive(Debug, Clone)]
pub struct List {
    /// Up to which version everything is in it.
    pub version: u64,
    /// The objects.
    pub objects: Vec<Stored>,
}

/// Something that happened, and when watches tell of it.
#[derive(Debug, Clone)]
pub(super) struct Told {
    at: u64,
    due: u64,
    event: Event,
}

/// How much the watches of one client have told it.
#[derive(Debug, Clone, Default)]
pub struct Watcher(BTreeMap<Kind, usize>);

impl ApiServer {
    pub(super) fn tell(&mut self, kind: Kind, event: Event) {
        let queue = self.told.entry(kind).or_default();
        let due = queue.last().map_or(0, |told| told.due).max(self.now + self.lags);
        queue.push(Told { at: self.now, due, event });
    }

    /// What the watches of a client tell it by now, but for those that `is_silent` names.
    pub fn tell_news(&self, watcher: &mut Watcher, is_silent: impl Fn(Kind) -> bool) -> Vec<Event> {
        let mut news = Vec::new();
        for (kind, all) in self.told.iter().filter(|(kind, _)| !is_silent(**kind)) {
            let heard = watcher.0.entry(*kind).or_default();
            let new = all.iter().skip(*heard).take_while(|told| told.due <= self.now);
            let before = news.len();
            news.extend(new.map(|told| told.event.clone()));
            *heard += news.len() - before;
        }
        news
    }

    /// Have the watches told a client everything?
    pub fn has_told_all(&self, watcher: &Watcher) -> bool {
        self.told.iter().all(|(kind, all)| watcher.0.get(kind).copied().unwrap_or_default() == all.len())
    }

    /// All objects of a kind as a new list shows them that is as old as `at`. What happened since, the watch tells.
    pub fn list(&self, kind: Kind, at: u64, watcher: &mut Watcher) -> List {
        let all = self.told.get(&kind).map_or(&[][..], Vec::as_slice);
        let upto = all.partition_point(|told| told.at <= at);
        watcher.0.insert(kind, upto);
        let Some(next) = all.get(upto) else {
            let objects = of_kind(&self.objects, kind).cloned().collect();
            return List { version: self.version, objects };
        };
        let mut then: BTreeMap<String, Stored> =
            of_kind(&self.past, kind).map(|stored| (stored.item.name().to_owned(), stored.clone())).collect();
        for told in &all[..upto] {
            match &told.event {
                Event::Put(stored) => drop(then.insert(stored.item.name().to_owned(), stored.clone())),
                Event::Gone { name, .. } => drop(then.remove(name)),
            }
        }
        List { version: next.event.version().saturating_sub(1), objects: then.into_values().collect() }
    }

    /// Forgets how everything came to be. Only when all who watch have been told.
    pub fn forget_past(&mut self) {
        self.past.clone_from(&self.objects);
        self.told.clear();
    }
}
