//! A short fingerprint of a JSON value, the same however its keys are ordered.

use std::fmt::{self, Write as _};

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// A fingerprint of 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 16]);

impl Digest {
    /// The fingerprint of a value as JSON.
    pub fn of(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        let mut feed = Feed(Sha256::new());
        feed.feed(&serde_json::to_value(value)?).map_err(serde::ser::Error::custom)?;
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&feed.0.finalize()[..16]);
        Ok(Self(bytes))
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

/// What is formatted goes straight into the hash: these fingerprints are most of what a pass costs.
struct Feed(Sha256);

impl fmt::Write for Feed {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text);
        Ok(())
    }
}

impl Feed {
    /// Every value is preceded by its kind and size, so that no two different values feed the same bytes.
    fn feed(&mut self, value: &Value) -> fmt::Result {
        match value {
            Value::Array(items) => {
                write!(self, "a{};", items.len())?;
                items.iter().try_for_each(|item| self.feed(item))
            }
            Value::Object(fields) => {
                let mut sorted: Vec<_> = fields.iter().collect();
                sorted.sort_by_key(|(key, _)| *key);
                write!(self, "o{};", sorted.len())?;
                sorted.into_iter().try_for_each(|(key, value)| {
                    write!(self, "k{};{key}", key.len())?;
                    self.feed(value)
                })
            }
            Value::String(text) => write!(self, "s{};{text}", text.len()),
            scalar => write!(self, "v{scalar};"),
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
}
