//! Texts that many objects have in common are kept once: a thousand clusters are monitored by the same rules.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use karst_core::digest::Digest;

/// How many texts there may be before those that nobody uses are looked for.
const CROWD: usize = 64;

static TEXTS: Mutex<Option<HashMap<Digest, Weak<str>>>> = Mutex::new(None);

/// The text, shared with all that have the same.
pub(crate) fn shared(text: &str) -> Arc<str> {
    let Ok(digest) = Digest::of(&text) else { return Arc::from(text) };
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let texts = texts.get_or_insert_default();
    if let Some(known) = texts.get(&digest).and_then(Weak::upgrade).filter(|known| &**known == text) {
        return known;
    }
    if texts.len() >= CROWD {
        texts.retain(|_, known| known.strong_count() > 0);
    }
    let new: Arc<str> = Arc::from(text);
    texts.insert(digest, Arc::downgrade(&new));
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_kept_once() {
        let (one, other) = (shared("rules: []"), shared("rules: []"));
        assert!(Arc::ptr_eq(&one, &other));
        assert!(!Arc::ptr_eq(&one, &shared("rules: [x]")));
    }
}
