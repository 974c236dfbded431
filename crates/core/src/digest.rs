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
        let mut hash = Sha256::new();
        feed(&mut hash, &serde_json::to_value(value)?);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
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

/// Every value is preceded by its kind and size, so that no two different values feed the same bytes.
fn feed(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Array(items) => {
            hash.update(format!("a{};", items.len()));
            items.iter().for_each(|item| feed(hash, item));
        }
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by_key(|(key, _)| *key);
            hash.update(format!("o{};", sorted.len()));
            for (key, value) in sorted {
                hash.update(format!("k{};{key}", key.len()));
                feed(hash, value);
            }
        }
        Value::String(text) => hash.update(format!("s{};{text}", text.len())),
        scalar => hash.update(format!("v{scalar};")),
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
