//! A short fingerprint of a JSON value, the same however its keys are ordered.

use std::fmt;
use std::io::Write as _;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// A fingerprint of 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 16]);

impl Digest {
    /// The fingerprint of a value as JSON.
    pub fn of(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(Self::of_json(&serde_json::to_value(value)?))
    }

    /// The fingerprint of what is JSON already.
    pub fn of_json(value: &Value) -> Self {
        Self::fed(|feed| feed.feed(value))
    }

    /// The fingerprint of a list of values.
    pub fn of_list(values: &[&Value]) -> Self {
        Self::fed(|feed| feed.list(values))
    }

    /// The fingerprint of a list of two: a value and a list.
    pub fn of_value_and_list(value: &Value, list: &[&Value]) -> Self {
        Self::fed(|feed| {
            feed.begin(b'a', 2);
            feed.feed(value);
            feed.list(list);
        })
    }

    /// The fingerprint of values of which only the fingerprints are known, in this order.
    pub fn of_digests(digests: impl Iterator<Item = Self>) -> Self {
        Self::fed(|feed| digests.for_each(|digest| feed.0.extend_from_slice(&digest.0)))
    }

    /// The fingerprint of bytes in parts.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        Self::fed(|feed| {
            for part in parts {
                feed.begin(b'b', part.len());
                feed.0.extend_from_slice(part);
            }
        })
    }

    /// The fingerprint itself.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn fed(with: impl FnOnce(&mut Feed)) -> Self {
        let mut feed = Feed(Vec::with_capacity(USUAL));
        with(&mut feed);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&Sha256::digest(&feed.0)[..16]);
        Self(bytes)
    }

    /// The first eight hexadecimal digits, as they stand in Strimzi's annotations.
    pub fn short(&self) -> String {
        let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
        self.0[..4].iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({})", self.short())
    }
}

/// So many bytes are enough for most values.
const USUAL: usize = 8 * 1024;

/// What is to be hashed, in one piece: a hash that is fed by the word spends most of its time on being fed.
struct Feed(Vec<u8>);

impl Feed {
    /// Every value is preceded by its kind and size, so that no two different values feed the same bytes.
    fn feed(&mut self, value: &Value) {
        match value {
            Value::Array(items) => {
                self.begin(b'a', items.len());
                items.iter().for_each(|item| self.feed(item));
            }
            Value::Object(fields) => {
                self.begin(b'o', fields.len());
                if fields.keys().is_sorted() {
                    fields.iter().for_each(|field| self.field(field));
                } else {
                    let mut sorted: Vec<_> = fields.iter().collect();
                    sorted.sort_by_key(|(key, _)| *key);
                    sorted.into_iter().for_each(|field| self.field(field));
                }
            }
            Value::String(text) => self.text(b's', text),
            scalar => {
                self.0.push(b'v');
                // Writing into memory does not fail.
                let _ = write!(self.0, "{scalar};");
            }
        }
    }

    fn list(&mut self, values: &[&Value]) {
        self.begin(b'a', values.len());
        values.iter().for_each(|value| self.feed(value));
    }

    fn field(&mut self, (key, value): (&String, &Value)) {
        self.text(b'k', key);
        self.feed(value);
    }

    fn text(&mut self, kind: u8, text: &str) {
        self.begin(kind, text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    fn begin(&mut self, kind: u8, size: usize) {
        self.0.push(kind);
        match u8::try_from(size) {
            Ok(digit @ 0..=9) => self.0.extend_from_slice(&[b'0' + digit, b';']),
            // Writing into memory does not fail.
            _ => drop(write!(self.0, "{size};")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_order_of_keys_does_not_matter_and_everything_else_does() {
        let digest = |value: Value| Digest::of(&value).unwrap();
        let text = |text: &str| digest(serde_json::from_str(text).unwrap());
        assert_eq!(text(r#"{"a":1,"b":[1,2]}"#), text(r#"{"b":[1,2],"a":1}"#));
        assert_ne!(digest(json!({"a": 1})), digest(json!({"a": "1"})));
        assert_ne!(digest(json!([1, 2])), digest(json!([2, 1])));
        assert_ne!(digest(json!(["ab", "c"])), digest(json!(["a", "bc"])));
    }

    /// They stand in annotations of pods that run: another fingerprint of the same value would restart every one of them.
    #[test]
    fn fingerprints_stay_what_they_are() {
        let value = json!({"b": ["x".repeat(123), 1.5, null, true, {}], "a": {"z": -7, "ä": "é"}});
        assert_eq!(Digest::of(&value).unwrap().short(), "782cde67");
    }

    #[test]
    fn a_list_has_the_fingerprint_of_the_same_list_as_json() {
        let (one, other) = (json!({"a": 1}), json!("b"));
        assert_eq!(Digest::of_list(&[&one, &other]), Digest::of(&[&one, &other]).unwrap());
        let pair = Digest::of(&(&one, [&other, &one])).unwrap();
        assert_eq!(Digest::of_value_and_list(&one, &[&other, &one]), pair);
    }
}
