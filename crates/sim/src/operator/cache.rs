//! What an operator knows of objects, by the rules of the real one's index.
//!
//! What a watch told is so. An answer counts only if it is newer than all that the watch told, however late it comes: it never brings
//! back what is gone. A list shows what there is, but for what an answer said later.

use std::collections::BTreeMap;

use crate::kubernetes::{Event, Item, Kind, List, Stored};

/// Where an object stands.
type Place = (Kind, String);

/// All that is known.
#[derive(Debug, Clone, Default)]
pub(super) struct Cache {
    known: BTreeMap<Place, Stored>,
    /// Up to which version the watch of a kind has told everything.
    told: BTreeMap<Kind, u64>,
}

impl Cache {
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.told.clear();
    }

    pub(super) fn get(&self, kind: Kind, name: &str) -> Option<&Stored> {
        self.known.get(&(kind, name.to_owned()))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Item> {
        self.known.values().map(|stored| &stored.item)
    }

    /// Changes what is known of an object, if it is still this one.
    pub(super) fn note(&mut self, kind: Kind, name: &str, uid: &str, change: impl FnOnce(&mut Item)) {
        let seen = self.known.get_mut(&(kind, name.to_owned()));
        if let Some(seen) = seen.filter(|seen| seen.item.uid() == uid) {
            change(&mut seen.item);
        }
    }

    /// Takes in an answer. Tells whether it is news.
    pub(super) fn answer(&mut self, stored: Stored) -> bool {
        let kind = stored.item.kind();
        let place = (kind, stored.item.name().to_owned());
        let told = self.told.get(&kind).copied().unwrap_or_default();
        let is_old = stored.version <= told
            || self.known.get(&place).is_some_and(|known| known.version >= stored.version);
        if !is_old {
            self.known.insert(place, stored);
        }
        !is_old
    }

    /// Takes in what a watch tells. Returns what is other than it was.
    pub(super) fn hear(&mut self, event: Event) -> Option<Item> {
        let told = self.told.entry(event.kind()).or_default();
        *told = event.version().max(*told);
        match event {
            Event::Put(stored) => self.put(stored),
            Event::Gone { kind, name, version } => {
                let place = (kind, name);
                let is_newer = self.known.get(&place).is_some_and(|known| known.version > version);
                let gone = if is_newer { None } else { self.known.remove(&place) };
                gone.map(|gone| gone.item)
            }
        }
    }

    /// Takes in a list. Returns what is other than it was. One that is older than what was told comes from nowhere.
    pub(super) fn list(&mut self, kind: Kind, list: List) -> Vec<Item> {
        let mut changed = Vec::new();
        let is_shown = |name: &str| list.objects.iter().any(|shown| shown.item.name() == name);
        let of_kind = self.known.iter().filter(|((of, _), _)| *of == kind);
        let unlisted = of_kind.filter(|((_, name), known)| known.version <= list.version && !is_shown(name));
        let unlisted: Vec<Place> = unlisted.map(|(place, _)| place.clone()).collect();
        changed.extend(unlisted.iter().filter_map(|place| self.known.remove(place)).map(|gone| gone.item));
        changed.extend(list.objects.into_iter().filter_map(|shown| self.put(shown)));
        self.told.insert(kind, list.version);
        changed
    }

    fn put(&mut self, stored: Stored) -> Option<Item> {
        let place = (stored.item.kind(), stored.item.name().to_owned());
        let is_known = self.known.get(&place).is_some_and(|known| known.version >= stored.version);
        if is_known {
            return None;
        }
        let item = stored.item.clone();
        self.known.insert(place, stored);
        Some(item)
    }

    /// Up to which version the watch of a kind has told everything.
    pub(super) fn told(&self, kind: Kind) -> u64 {
        self.told.get(&kind).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use karst_core::world::{Meta, ServiceAccountView};

    use super::*;

    fn account(name: &str, version: u64) -> Stored {
        let meta = Meta { name: name.to_owned(), uid: format!("uid-{version}"), ..Meta::default() };
        Stored { version, item: Item::Account(Arc::new(ServiceAccountView { meta })) }
    }

    fn gone(name: &str, version: u64) -> Event {
        Event::Gone { kind: Kind::Account, name: name.to_owned(), version }
    }

    fn list(version: u64, objects: &[Stored]) -> List {
        List { version, objects: objects.to_vec() }
    }

    #[test]
    fn a_late_answer_brings_nothing_back() {
        let mut cache = Cache::default();
        assert!(cache.answer(account("a", 3)));
        assert!(cache.hear(Event::Put(account("a", 3))).is_none(), "it is known");
        assert!(cache.hear(gone("a", 4)).is_some());
        assert!(!cache.answer(account("a", 3)));
        assert!(cache.get(Kind::Account, "a").is_none());
        assert!(cache.answer(account("a", 5)), "that is another one");
        assert!(cache.hear(gone("a", 4)).is_none());
        assert!(cache.get(Kind::Account, "a").is_some());
    }

    #[test]
    fn a_list_shows_what_there_is_but_for_what_an_answer_said_later() {
        let mut cache = Cache::default();
        cache.hear(Event::Put(account("old", 2)));
        cache.answer(account("new", 9));
        let changed = cache.list(Kind::Account, list(7, &[account("other", 6)]));
        assert_eq!(changed.iter().map(Item::name).collect::<Vec<_>>(), ["old", "other"]);
        assert!(cache.get(Kind::Account, "old").is_none());
        assert!(cache.get(Kind::Account, "new").is_some());
        assert!(!cache.answer(account("old", 5)));
    }
}
