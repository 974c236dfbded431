//! A short fingerprint of a JSON value, the same however its keys are ordered.

use std::fmt;

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
        Self::fed(|feed| {
            feed.begin(b'a', values.len());
            values.iter().for_each(|value| feed.feed(value));
        })
    }

    fn fed(with: impl FnOnce(&mut Feed)) -> Self {
        let mut feed = Feed(Sha256::new());
        with(&mut feed);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&feed.0.finalize()[..16]);
        Self(bytes)
    }

    /// The first eight hexadecimal digits, as they stand in Strimzi's annotations.
    pub fn short(&self) -> String {
        self.0[..4].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({})", self.short())
    }
}

/// What is looked at goes straight into the hash: these fingerprints are most of what a pass costs.
struct Feed(Sha256);

impl Feed {
    /// Every value is preceded by its kind and size, so that no two different values feed the same bytes.
    fn feed(&mut self, value: &Value) {
        match value {
            Value::Array(items) => {
                self.begin(b'a', items.len());
                items.iter().for_each(|item| self.feed(item));
            }
            Value::Object(fields) => {
                let mut sorted: Vec<_> = fields.iter().collect();
                sorted.sort_by_key(|(key, _)| *key);
                self.begin(b'o', sorted.len());
                for (key, value) in sorted {
                    self.text(b'k', key);
                    self.feed(value);
                }
            }
            Value::String(text) => self.text(b's', text),
            scalar => {
                self.0.update(b"v");
                self.0.update(scalar.to_string());
                self.0.update(b";");
            }
        }
    }

    fn text(&mut self, kind: u8, text: &str) {
        self.begin(kind, text.len());
        self.0.update(text);
    }

    fn begin(&mut self, kind: u8, size: usize) {
        self.0.update([kind]);
        let mut place = 1;
        while size / place >= 10 {
            place *= 10;
        }
        while place > 0 {
            let digit = u8::try_from(size / place % 10).unwrap_or_default();
            self.0.update([b'0' + digit]);
            place /= 10;
        }
        self.0.update(b";");
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
    }
}
